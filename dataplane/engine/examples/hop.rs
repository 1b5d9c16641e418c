//! Measures what a directed-route hop and a NodeInfo over four hops cost.
//!
//! `hop [ROUNDS] [radix=36,levels=3] [1,2,4,6]`. Prints build time and resident size of the fabric, then nanoseconds per hop (long
//! against short paths through the same links) and per NodeInfo over four hops to random hosts, with the whole answer way.
//! Then the same exchanges by LID over 1, 2, 4 and 6 hops: by forwarding tables, pinned with every route looking at its
//! links anew for each request, and pinned with resolved routes; the three interleaved, best of seven.
//! Processor time of a single thread; run it pinned. Every answer is checked before anything is timed.
#![allow(clippy::print_stdout, reason = "prints its measurements")]

use madplane_engine::{FabricOptions, FabricPlan, NodeId, Packet, PeerEvent, PinnedRoute, Shard, Sink};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{NodeKind, PortRef, Topology, from_spec};
use madplane_wire::mad::{class, method};
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::smp::switch_info::field as si;
use madplane_wire::smp::{attr, port_info::state};
use madplane_wire::{MadMut, SmpMut};
use std::hint::black_box;
use std::slice::from_ref;
use std::time::{Duration, Instant};

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
    let hops: Vec<usize> = match args.next() {
        Some(list) => list.split(',').map(|hops| hops.parse().expect("a number of hops")).collect(),
        None => vec![1, 2, 4, 6],
    };
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
    compare_routing(&mut shard, &topology, host, rounds, &hops);
}

/// Forwarding tables against pinned routes, for SMPs and GMPs.
fn compare_routing(shard: &mut Shard, topology: &Topology, host: NodeId, rounds: u32, hops: &[usize]) {
    let paths = bring_up(shard, topology, host);
    for &hops in hops {
        let routes: Vec<PinnedRoute> = (0..)
            .zip(&paths)
            .filter(|(_, path)| path.len() == hops)
            .take(4096)
            .map(|(node, path)| {
                let mut route = PinnedRoute { slid: lid(host), dlid: lid(node), ..PinnedRoute::default() };
                route.path[..hops].copy_from_slice(path);
                route.path_len = u8::try_from(hops).expect("few hops");
                route
            })
            .collect();
        for (kind, make) in [("SMP", by_lid as fn(u16) -> Packet), ("GMP", gmp)] {
            let requests: Vec<Packet> = routes.iter().map(|route| make(route.dlid)).collect();
            let (mut lft, mut anew, mut cached) = (f64::MAX, f64::MAX, f64::MAX);
            for _ in 0..7 {
                (0..).zip(&routes).for_each(|(index, _)| assert!(shard.set_route(index, None)));
                lft = lft.min(time(shard, host, &requests, rounds));
                (0..).zip(&routes).for_each(|(index, route)| assert!(shard.set_route(index, Some(route))));
                let before = shard.pinned_activity();
                anew = anew.min(time_with(shard, host, &requests, rounds, Shard::forget_link_states));
                let between = shard.pinned_activity();
                assert!(between.cache_misses - before.cache_misses >= u64::from(rounds));
                cached = cached.min(time(shard, host, &requests, rounds));
                let after = shard.pinned_activity();
                assert!(after.cache_misses - between.cache_misses <= requests.len() as u64 + 1);
            }
            println!(
                "{kind} over {hops} hops to {} nodes: tables {lft:.1} ns, pinned {anew:.1} ns ({:.2}x), resolved {cached:.1} ns ({:.2}x)",
                requests.len(),
                lft / anew,
                lft / cached
            );
        }
    }
}

fn lid(node: NodeId) -> u16 {
    u16::try_from(node + 1).expect("fewer nodes than LIDs")
}

fn by_lid(dlid: u16) -> Packet {
    let mut pkt = Packet { dlid, ..Packet::default() };
    SmpMut::new(&mut pkt.mad).init_lid_routed(method::GET, attr::NODE_INFO, 0, 1);
    pkt
}

/// ClassPortInfo of the performance agent.
fn gmp(dlid: u16) -> Packet {
    let mut pkt = Packet { dlid, src_qp: 1, dst_qp: 1, q_key: 0x8001_0000, ..Packet::default() };
    let mut mad = MadMut::new(&mut pkt.mad);
    mad.set_base_version(1);
    mad.set_mgmt_class(class::PERF);
    mad.set_class_version(1);
    mad.set_method(method::GET);
    mad.set_tid(1);
    mad.set_attr_id(1);
    pkt
}

/// Gives every node a LID, makes links Active, and routes between `host` and everybody else by a random tree of shortest
/// paths. Returns the path to each node.
fn bring_up(shard: &mut Shard, topology: &Topology, host: NodeId) -> Vec<Vec<u8>> {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut roll = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    // each level chooses its parents among the links from the level before; the last choice wins, at random
    let mut paths: Vec<Vec<u8>> = vec![Vec::new(); topology.nodes.len()];
    let mut back = vec![0_u8; topology.nodes.len()];
    let mut level = vec![host];
    while !level.is_empty() {
        let mut next = Vec::new();
        for &node in &level {
            let path = paths[node as usize].clone();
            for (number, port) in (0_u8..).zip(&topology.nodes[node as usize].ports) {
                let Some(end) = port.peer else { continue };
                let known = &paths[end.node as usize];
                if end.node == host || (!known.is_empty() && known.len() <= path.len()) {
                    continue;
                }
                if known.is_empty() {
                    next.push(end.node);
                } else if roll() % 3 != 0 {
                    continue;
                }
                let mut path = path.clone();
                path.push(number);
                (paths[end.node as usize], back[end.node as usize]) = (path, end.port);
            }
        }
        level = next;
    }
    let mut tables = vec![vec![255_u8; 14_016]; topology.nodes.len()];
    for (node, path) in (0..).zip(&paths) {
        let mut at = host;
        for port in path {
            tables[at as usize][usize::from(lid(node))] = *port;
            at = topology.nodes[at as usize].ports[usize::from(*port)].peer.expect("cabled").node;
        }
        assert_eq!(at, node, "every node is reached");
        tables[node as usize][usize::from(lid(node))] = 0;
        tables[node as usize][usize::from(lid(host))] = back[node as usize];
    }
    let mut sink = Count::default();
    let mut set = |shard: &mut Shard, node: NodeId, attribute: u16, modifier: u32, data: &[u8]| {
        let mut pkt = Packet::default();
        SmpMut::new(&mut pkt.mad).init_directed(method::SET, attribute, modifier, 1, &[]);
        pkt.mad[64..64 + data.len()].copy_from_slice(data);
        let port = u8::from(topology.nodes[node as usize].kind != NodeKind::Switch);
        shard.send(0, node, port, &mut pkt, &mut sink);
    };
    // an adapter's answer shows the table of the port that was asked, like a switch port's
    let mut keys = [0; 64];
    keys[..2].fill(0xFF);
    for (id, node) in (0..).zip(&topology.nodes) {
        if node.kind == NodeKind::Switch {
            for (block, entries) in (0..).zip(tables[id as usize].chunks_exact(64)) {
                set(shard, id, attr::LFT, block, entries);
            }
            let mut data = [0; 64];
            si::LINEAR_FDB_TOP.set(&mut data, 14_015);
            set(shard, id, attr::SWITCH_INFO, 0, &data);
            set(shard, id, attr::PKEY_TABLE, 0, &keys);
        } else {
            set(shard, id, attr::PKEY_TABLE, 0, &keys);
        }
        for (number, port) in (0_u8..).zip(&node.ports) {
            let endport = (node.kind == NodeKind::Switch) == (number == 0);
            if port.peer.is_none() && !endport || (number == 0 && node.kind != NodeKind::Switch) {
                continue;
            }
            for wanted in [state::ARMED, state::ACTIVE] {
                let mut data = shard.port_info(id, number).expect("own port");
                pi::PORT_STATE.set(&mut data, if number == 0 { 0 } else { u64::from(wanted) });
                pi::PORT_PHYS_STATE.set(&mut data, 0);
                if endport {
                    pi::LID.set(&mut data, u64::from(lid(id)));
                    pi::MASTER_SM_LID.set(&mut data, 1);
                }
                set(shard, id, attr::PORT_INFO, u32::from(number), &data);
            }
        }
    }
    paths
}

fn time(shard: &mut Shard, host: NodeId, requests: &[Packet], rounds: u32) -> f64 {
    time_with(shard, host, requests, rounds, |_| ())
}

fn time_with(
    shard: &mut Shard,
    host: NodeId,
    requests: &[Packet],
    rounds: u32,
    before_each: impl Fn(&mut Shard),
) -> f64 {
    let mut sink = Count::default();
    let start = cpu_ns();
    let mut pkt = Packet::default();
    let mut next = requests.iter().cycle();
    for now in 0..u64::from(rounds) {
        if let Some(request) = next.next() {
            pkt.clone_from(request);
            before_each(shard);
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

/// Processor time of this thread, so that a busy machine does not count.
fn cpu_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(now.tv_sec).expect("not negative"),
        u32::try_from(now.tv_nsec).expect("below a second"),
    )
    .as_secs_f64()
        * 1e9
}

fn resident_kb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4
}
