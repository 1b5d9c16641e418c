//! Measures what a directed-route hop and a NodeInfo over four hops cost.
//!
//! `hop [ROUNDS] [radix=36,levels=3]`. Prints build time and resident size of the fabric, then nanoseconds per hop (long
//! against short paths through the same links) and per NodeInfo over four hops to random hosts, with the whole answer way.
//! Processor time of a single thread; run it pinned. Every answer is checked before anything is timed.
#![allow(clippy::print_stdout, reason = "prints its measurements")]

use madplane_engine::{FabricOptions, FabricPlan, NodeId, Packet, PeerEvent, Shard, Sink};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{NodeKind, PortRef, Topology, from_spec};
use madplane_wire::SmpMut;
use madplane_wire::mad::method;
use madplane_wire::smp::attr;
use std::hint::black_box;
use std::slice::from_ref;
use std::time::Instant;

/// Counts deliveries; stands for the session ring.
#[derive(Default)]
struct Count {
    delivered: u64,
    dropped: u64,
    last_guid: u64,
}

impl Sink for Count {
    fn deliver(&mut self, _: NodeId, _: u8, pkt: &Packet) -> bool {
        self.delivered += 1;
        self.last_guid = u64::from_be_bytes(pkt.mad[76..84].try_into().expect("eight bytes"));
        true
    }
    fn to_shard(&mut self, _: usize, _: NodeId, _: u8, _: &Packet) {}
    fn peer_event(&mut self, _: usize, _: PeerEvent) {}
    fn dropped(&mut self, _: NodeId, _: DropReason) {
        self.dropped += 1;
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let rounds: u32 = args.next().and_then(|a| a.parse().ok()).unwrap_or(2_000_000);
    let params = args.next().unwrap_or_else(|| "radix=36,levels=3".to_string());
    let topology = from_spec(&format!("fat-tree,{params}")).expect("parameters of a fat tree");
    let before = resident_kb();
    let start = Instant::now();
    let plan = FabricPlan::new(&topology, &FabricOptions::default()).expect("a fabric");
    let mut shard = plan.build_shard(&topology, 0);
    println!("{} nodes built in {:?}, {} kB", topology.nodes.len(), start.elapsed(), resident_kb() - before);
    let start = Instant::now();
    program_tables(&mut shard, &topology);
    println!("tables programmed in {:?}, {} kB with the building", start.elapsed(), resident_kb() - before);

    let host = find_host(&topology);
    let leaf = topology.nodes[host as usize].ports[1].peer.expect("cabled");
    let spine =
        topology.nodes[leaf.node as usize].ports.iter().rposition(|p| p.peer.is_some()).expect("up link");
    let up = u8::try_from(spine).expect("port");
    let back = topology.nodes[leaf.node as usize].ports[spine].peer.expect("cabled").port;

    // long: 62 hops up and down one link, short: 2 hops; the difference is 60 hops each way
    let path = |hops: usize| -> Vec<u8> {
        let mut path = vec![1];
        while path.len() < hops {
            path.push(if path.len() % 2 == 1 { up } else { back });
        }
        path
    };
    let (short, long) = (request(&path(2)), request(&path(62)));
    let mut best = f64::MAX;
    for _ in 0..5 {
        let base = time(&mut shard, host, from_ref(&short), rounds / 10);
        let full = time(&mut shard, host, from_ref(&long), rounds / 10);
        best = best.min((full - base) / 120.0);
    }
    println!("one hop more, same link: {best:.2} ns");

    let requests: Vec<Packet> = four_hop_paths(&topology, host, 4096).iter().map(|p| request(p)).collect();
    let mut best = f64::MAX;
    for _ in 0..5 {
        best = best.min(time(&mut shard, host, &requests, rounds));
    }
    println!("NodeInfo over 4 hops to {} random hosts: {best:.1} ns, {:.2} M/s", requests.len(), 1e3 / best);

    let requests: Vec<Packet> = four_hop_paths(&topology, host, 4096)
        .iter()
        .map(|path| {
            let mut pkt = request(path);
            SmpMut::new(&mut pkt.mad).init_directed(method::GET, attr::PORT_INFO, 1, 1, path);
            pkt
        })
        .collect();
    let mut best = f64::MAX;
    for _ in 0..5 {
        best = best.min(time(&mut shard, host, &requests, rounds));
    }
    println!("PortInfo over 4 hops to {} random hosts: {best:.1} ns, {:.2} M/s", requests.len(), 1e3 / best);
}

fn time(shard: &mut Shard, host: NodeId, requests: &[Packet], rounds: u32) -> f64 {
    let mut sink = Count::default();
    let start = cpu_ns();
    let mut pkt = Packet::default();
    let mut next = requests.iter().cycle();
    for now in 0..u64::from(rounds) {
        if let Some(request) = next.next() {
            pkt.clone_from(request);
            shard.send(now, host, 1, black_box(&mut pkt), &mut sink);
        }
    }
    let elapsed = cpu_ns() - start;
    assert_eq!((sink.delivered, sink.dropped), (u64::from(rounds), 0));
    elapsed / f64::from(rounds)
}

fn request(path: &[u8]) -> Packet {
    let mut pkt = Packet::default();
    SmpMut::new(&mut pkt.mad).init_directed(method::GET, attr::NODE_INFO, 0, 1, path);
    pkt
}

fn find_host(topology: &Topology) -> NodeId {
    let index = topology.nodes.iter().position(|n| n.kind == NodeKind::Ca).expect("a host");
    NodeId::try_from(index).expect("few nodes")
}

/// Paths host, leaf, next level, another leaf, host.
fn four_hop_paths(topology: &Topology, host: NodeId, count: usize) -> Vec<Vec<u8>> {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut paths = Vec::new();
    while paths.len() < count {
        let mut at = PortRef { node: host, port: 0 };
        let mut path = Vec::new();
        for hop in 0..4 {
            let ports = &topology.nodes[at.node as usize].ports;
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let want_host = hop == 3;
            let choices: Vec<u8> = (1_u8..=254)
                .zip(ports.iter().skip(1))
                .filter(|(_, p)| {
                    p.peer
                        .is_some_and(|e| (topology.nodes[e.node as usize].kind == NodeKind::Ca) == want_host)
                })
                .map(|(number, _)| number)
                .collect();
            if choices.is_empty() {
                path.clear();
                break;
            }
            let port = choices[usize::try_from(seed >> 33).expect("31 bits") % choices.len()];
            path.push(port);
            at = ports[usize::from(port)].peer.expect("cabled");
        }
        if path.len() == 4 {
            paths.push(path);
        }
    }
    paths
}

/// Writes LFT blocks for 14,000 LIDs and P_Keys everywhere, as an SM would.
fn program_tables(shard: &mut Shard, topology: &Topology) {
    let mut sink = Count::default();
    for (id, node) in (0..).zip(&topology.nodes) {
        let port = if node.kind == NodeKind::Switch { 0 } else { 1 };
        let mut set = |attribute: u16, modifier: u32| {
            let mut pkt = Packet::default();
            SmpMut::new(&mut pkt.mad).init_directed(method::SET, attribute, modifier, 1, &[]);
            pkt.mad[64..128].fill(1);
            shard.send(0, id, port, &mut pkt, &mut sink);
        };
        if node.kind == NodeKind::Switch {
            (0..14_000 / 64).for_each(|block| set(attr::LFT, block));
            (0..=node.num_ports()).for_each(|port| set(attr::PKEY_TABLE, u32::from(port) << 16));
            (0..4).for_each(|block| set(attr::MFT, block));
        } else {
            set(attr::PKEY_TABLE, 0);
        }
    }
}

/// Processor time of this thread, so that a busy machine does not count; good to a scheduler tick.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}

fn resident_kb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4
}
