//! Fuzz body: a small fabric fed with whatever bytes come.
//!
//! A library function, so that a fuzzer and the tests run the same code. It must not panic, loop or allocate without bound.

use crate::packet::Packet;
use crate::pinned::{MAX_PATH, OnBroken, PinnedRoute, Place};
use crate::plan::{FabricOptions, FabricPlan};
use crate::sink::{LinkOffer, PeerEvent, PeerEventKind, Sink};
use crate::{NodeId, Shard};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind, PortRef, Topology};
use madplane_wire::smp::port_info::state;

/// Takes every second packet and forgets everything.
#[derive(Debug, Default)]
struct Void {
    offered: u32,
}

impl Sink for Void {
    fn deliver(&mut self, _: NodeId, _: u8, _: &Packet) -> bool {
        self.offered = self.offered.wrapping_add(1);
        self.offered & 1 == 0
    }
    fn to_shard(&mut self, _: usize, _: NodeId, _: u8, _: &Packet) {}
    fn peer_event(&mut self, _: usize, _: PeerEvent) {}
    fn dropped(&mut self, _: NodeId, _: DropReason) {}
}

/// Bytes of one step: operation, node, port, LIDs and keys, then the MAD.
const STEP: usize = 16 + 256;

/// Runs `input` as a list of steps against one shard of a fabric with two switches, two hosts and a loopback plug.
#[doc(hidden)]
pub fn fuzz_shard(input: &[u8]) {
    let Some((plan, topology)) = fabric() else { return };
    let mut shard = plan.build_shard(&topology, 0);
    let mut sink = Void::default();
    if input.first().is_some_and(|first| first & 0x80 != 0) {
        bring_up(&mut shard);
    }
    let mut now_ns = 0_u64;
    for step in input.chunks(STEP) {
        let mut bytes = [0; STEP];
        bytes[..step.len()].copy_from_slice(step);
        now_ns += u64::from(bytes[15]) << 22;
        apply(&mut shard, now_ns, &bytes, &mut sink);
    }
    shard.run_timers(now_ns, &mut sink);
}

fn apply(shard: &mut Shard, now_ns: u64, bytes: &[u8; STEP], sink: &mut Void) {
    let [op, node, port, a, b, c, d, e, f, g, h, ..] = *bytes;
    let (node, port) = (u32::from(node % 6), port % 10);
    let mut pkt = Packet {
        dlid: u16::from_be_bytes([a, b]),
        slid: u16::from_be_bytes([c, d]),
        sl: e,
        path_bits: f,
        lid_hops: g,
        dst_qp: u32::from(h & 3),
        src_qp: u32::from(h >> 6),
        q_key: if h & 4 == 0 { 0x8001_0000 } else { u32::from(a) },
        p_key: if h & 8 == 0 { 0xFFFF } else { u16::from_be_bytes([c, a]) },
        p_key_index: if h & 16 == 0 { 0 } else { u16::from(b) },
        ..Packet::default()
    };
    pkt.mad.copy_from_slice(&bytes[16..]);
    if bytes[11] & 3 != 0 {
        let (reverse, hop) = (bytes[12] & 0x80 != 0, bytes[12] & 0x7F);
        pkt.pin =
            Place { route: u32::from(bytes[11] & 7), origin: u32::from(bytes[13]), hop, reverse }.into();
    }
    if op >= 0xE0 {
        set_route(shard, bytes, &pkt);
        return;
    }
    let kinds =
        [PeerEventKind::Dropped, PeerEventKind::Offer, PeerEventKind::Unplugged, PeerEventKind::Plugged];
    match op % 8 {
        0..=2 => shard.send(now_ns, node, port, &mut pkt, sink),
        3 | 4 => shard.arrive(now_ns, node, port, &mut pkt, sink),
        5 => shard.set_link(now_ns, node, port, a & 1 == 0, sink),
        6 => {
            let offer = LinkOffer { want: a, width: b, speed: c, speed_ext: d, fdr10: e };
            let kind = kinds[usize::from(f & 3)];
            shard.peer_event(now_ns, PeerEvent { node, port, kind, offer }, sink);
        }
        _ => match a & 3 {
            0 => shard.reboot_node(now_ns, node, sink),
            1 => shard.set_is_sm(now_ns, node, port, b & 1 == 0, sink),
            2 => shard.count_overflow(node, port, u32::from(b & 1)),
            _ => shard.run_timers(now_ns, sink),
        },
    }
}

/// Puts a route at one of eight indices, or takes one away.
fn set_route(shard: &mut Shard, bytes: &[u8; STEP], pkt: &Packet) {
    let mut route = PinnedRoute {
        slid: pkt.slid,
        dlid: pkt.dlid,
        p_key: pkt.p_key,
        tenant: u16::from(bytes[3] & 1),
        priority: bytes[1],
        on_broken: if bytes[14] & 1 == 0 { OnBroken::Fallback } else { OnBroken::Drop },
        path_len: bytes[14] >> 1,
        ..PinnedRoute::default()
    };
    route.path.copy_from_slice(&bytes[16..16 + MAX_PATH]);
    shard.set_route(u32::from(bytes[2] & 7), (bytes[12] & 7 != 0).then_some(&route));
}

/// Gives each port a LID of its own and makes every link Active, so that LIDs lead somewhere from the first step.
fn bring_up(shard: &mut Shard) {
    for (lid, (hot, cold)) in (1..).zip(shard.ports.iter_mut().zip(&mut shard.cold)) {
        cold.lid = lid;
        if hot.state >= state::INIT {
            hot.state = state::ACTIVE;
        }
    }
    let ports = u32::try_from(shard.ports.len()).unwrap_or(0);
    (0..ports).for_each(|at| shard.carriage_changed(at));
}

/// Nodes 0 to 3 in shard 0; node 4 belongs to another.
fn fabric() -> Option<(FabricPlan, Topology)> {
    let mut topology = Topology::default();
    for (guid, kind, ports) in [
        (1, NodeKind::Ca, 2),
        (2, NodeKind::Switch, 8),
        (3, NodeKind::Switch, 4),
        (4, NodeKind::Router, 1),
        (5, NodeKind::Switch, 20),
    ] {
        topology.nodes.push(Node::new(kind, guid, ports, "fuzz"));
    }
    let end = |(node, port)| PortRef { node, port };
    for (a, b) in [((0, 1), (1, 1)), ((1, 2), (2, 1)), ((2, 2), (3, 1)), ((1, 8), (1, 8)), ((0, 2), (4, 1))] {
        topology.connect(end(a), end(b), LinkWidth::X4, LinkSpeed::Hdr);
    }
    let plan = FabricPlan::new(&topology, &FabricOptions { shards: 2 }).ok()?;
    Some((plan, topology))
}
