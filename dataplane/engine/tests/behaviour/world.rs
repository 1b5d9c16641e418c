//! A small fabric in any number of shards, packets between them passed by hand.
//!
//! ```text
//!  A (0) p1 ── p1 S1 (1) p3 ── p3 S2 (2) p2 ── p1 B (3)
//!  A (0) p2 ── p4 S2       S1 p8 plugged into itself; S1 p6 ── p1 C (4, FDR10); D (5) has no cable
//! ```

use madplane_engine::{
    EXTERNAL, FabricEvent, FabricOptions, FabricPlan, NodeId, Packet, PeerEvent, PinnedRoute,
    PortCounterSnapshot, Shard, Sink,
};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind, PortRef, Topology};
use madplane_wire::mad::{class, field as mad, method};
use madplane_wire::smp::{attr, field as smp, port_info, switch_info};
use madplane_wire::{Field, MadMut, SmpMut};
use port_info::field as pi;
use std::collections::VecDeque;

pub(crate) const A: NodeId = 0;
pub(crate) const S1: NodeId = 1;
pub(crate) const S2: NodeId = 2;
pub(crate) const B: NodeId = 3;
pub(crate) const C: NodeId = 4;
pub(crate) const D: NodeId = 5;

/// Directed paths from port 1 of A.
pub(crate) const TO_A: &[u8] = &[];
pub(crate) const TO_S1: &[u8] = &[1];
pub(crate) const TO_S2: &[u8] = &[1, 3];
pub(crate) const TO_B: &[u8] = &[1, 3, 2];
pub(crate) const TO_A2: &[u8] = &[1, 3, 4];
pub(crate) const TO_C: &[u8] = &[1, 6];

pub(crate) const LID_A: u16 = 0x10;
pub(crate) const LID_A2: u16 = 0x18;
pub(crate) const LID_S1: u16 = 2;
pub(crate) const LID_S2: u16 = 3;
pub(crate) const LID_B: u16 = 4;
pub(crate) const LID_C: u16 = 5;

pub(crate) fn topology() -> Topology {
    let mut t = Topology::default();
    t.nodes.push(Node::new(NodeKind::Ca, 0xA0, 2, "A"));
    t.nodes.push(Node::new(NodeKind::Switch, 0x51, 8, "S1"));
    t.nodes.push(Node::new(NodeKind::Switch, 0x52, 8, "S2"));
    t.nodes.push(Node::new(NodeKind::Ca, 0xB0, 1, "B"));
    t.nodes.push(Node::new(NodeKind::Ca, 0xC0, 1, "C"));
    t.nodes.push(Node::new(NodeKind::Ca, 0xD0, 1, "D"));
    for (index, node) in (0..).zip(&mut t.nodes) {
        for (number, port) in (0..).zip(&mut node.ports) {
            port.guid = if node.kind == NodeKind::Switch { node.guid } else { 0xF000 + index * 16 + number };
        }
        node.device_id = if index == 4 || index == 1 { 0x1003 } else { 0x0100 };
    }
    t.nodes[S2 as usize].enhanced_port0 = true;
    let links = [
        ((A, 1), (S1, 1), LinkSpeed::Edr),
        ((S1, 3), (S2, 3), LinkSpeed::Hdr),
        ((S2, 2), (B, 1), LinkSpeed::Qdr),
        ((A, 2), (S2, 4), LinkSpeed::Xdr),
        ((S1, 6), (C, 1), LinkSpeed::Fdr10),
    ];
    let end = |(node, port)| PortRef { node, port };
    for (a, b, speed) in links {
        assert!(t.connect(end(a), end(b), LinkWidth::X4, speed));
    }
    assert!(t.connect(end((S1, 8)), end((S1, 8)), LinkWidth::X4, LinkSpeed::Edr));
    t
}

/// What left the shards.
#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) delivered: Vec<(NodeId, u8, Packet)>,
    pub(crate) dropped: Vec<(NodeId, DropReason)>,
    pub(crate) events: Vec<FabricEvent>,
    /// Ports whose agents take requests.
    pub(crate) listening: Vec<(NodeId, u8)>,
    /// Tenants and the GUIDs of nodes that they may manage.
    pub(crate) manageable: Vec<(u16, u64)>,
    /// Refused P_Keys: where, which, and what they were held against.
    pub(crate) mismatches: Vec<(NodeId, u16, u16)>,
    /// Routes that senders have used.
    pub(crate) used: Vec<(u32, u32)>,
    /// The port at which each external link of the test's arrives.
    pub(crate) wires: Vec<(NodeId, u8)>,
    crossing: VecDeque<(usize, NodeId, u8, Packet)>,
    telling: VecDeque<(usize, PeerEvent)>,
}

impl Sink for Outside {
    fn deliver(&mut self, node: NodeId, port: u8, pkt: &Packet) -> bool {
        let request = matches!(mad::METHOD.get_u8(&pkt.mad), method::GET | method::SET);
        let taken = !request || self.listening.contains(&(node, port));
        if taken {
            self.delivered.push((node, port, pkt.clone()));
        }
        taken
    }
    fn to_shard(&mut self, shard: usize, node: NodeId, port: u8, pkt: &Packet) {
        self.crossing.push_back((shard, node, port, pkt.clone()));
    }
    fn peer_event(&mut self, shard: usize, event: PeerEvent) {
        self.telling.push_back((shard, event));
    }
    fn dropped(&mut self, node: NodeId, reason: DropReason) {
        self.dropped.push((node, reason));
    }
    fn may_manage(&mut self, tenant: u16, node_guid: u64) -> bool {
        self.manageable.contains(&(tenant, node_guid))
    }
    fn p_key_mismatch(&mut self, node: NodeId, got: u16, had: u16) {
        self.mismatches.push((node, got, had));
    }
    fn route_used(&mut self, index: u32, bytes: u32) {
        self.used.push((index, bytes));
    }
    fn event(&mut self, event: FabricEvent) {
        self.events.push(event);
    }
}

/// The fabric with its surroundings.
pub(crate) struct World {
    pub(crate) plan: FabricPlan,
    pub(crate) shards: Vec<Shard>,
    pub(crate) out: Outside,
    pub(crate) now_ns: u64,
    pub(crate) m_key: u64,
    tid: u64,
}

impl World {
    pub(crate) fn new(shards: usize) -> Self {
        Self::of(&topology(), shards)
    }

    pub(crate) fn of(topology: &Topology, shards: usize) -> Self {
        let plan = FabricPlan::new(topology, &FabricOptions { shards }).unwrap();
        let shards = (0..shards).map(|index| plan.build_shard(topology, index)).collect();
        Self { plan, shards, out: Outside::default(), now_ns: 0, m_key: 0, tid: 0x1_0000_0000 }
    }

    pub(crate) fn owner(&mut self, node: NodeId) -> &mut Shard {
        let shard = self.plan.shard_of(node);
        &mut self.shards[shard]
    }

    pub(crate) fn with_owner<R>(
        &mut self,
        node: NodeId,
        f: impl FnOnce(&mut Shard, u64, &mut Outside) -> R,
    ) -> R {
        let shard = self.plan.shard_of(node);
        let result = f(&mut self.shards[shard], self.now_ns, &mut self.out);
        self.settle();
        result
    }

    /// Carries what crosses between shards until nothing moves.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            if let Some((shard, mut event)) = self.out.telling.pop_front() {
                let shard = self.beyond(shard, &mut event.node, &mut event.port);
                self.shards[shard].peer_event(self.now_ns, event, &mut self.out);
            } else if let Some((shard, mut node, mut port, mut pkt)) = self.out.crossing.pop_front() {
                let shard = self.beyond(shard, &mut node, &mut port);
                self.shards[shard].arrive(self.now_ns, node, port, &mut pkt, &mut self.out);
            } else {
                return;
            }
        }
        panic!("packets keep circling");
    }

    /// The shard behind an external end, and the port there.
    fn beyond(&self, shard: usize, node: &mut NodeId, port: &mut u8) -> usize {
        let Some(link) = shard.checked_sub(EXTERNAL) else { return shard };
        (*node, *port) = self.out.wires[link];
        self.plan.shard_of(*node)
    }

    /// Tells every shard about a route; whether they took it.
    pub(crate) fn pin(&mut self, index: u32, route: Option<&PinnedRoute>) -> bool {
        let took: Vec<bool> = self.shards.iter_mut().map(|s| s.set_route(index, route)).collect();
        assert!(took.iter().all(|t| *t == took[0]), "shards agree");
        took[0]
    }

    pub(crate) fn send(&mut self, node: NodeId, port: u8, mut pkt: Packet) {
        self.with_owner(node, |shard, now, out| shard.send(now, node, port, &mut pkt, out));
    }

    /// Lets time pass and runs the timers that are due.
    pub(crate) fn pass(&mut self, ns: u64) {
        let end = self.now_ns + ns;
        loop {
            let due = self.shards.iter().filter_map(Shard::next_deadline).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now_ns = self.now_ns.max(due);
            for shard in &mut self.shards {
                shard.run_timers(self.now_ns, &mut self.out);
            }
            self.settle();
        }
        self.now_ns = end;
    }

    pub(crate) fn directed(
        &mut self,
        method: u8,
        path: &[u8],
        attribute: u16,
        modifier: u32,
        data: &[u8; 64],
    ) -> Packet {
        self.tid += 1;
        let mut pkt = Packet::default();
        let mut s = SmpMut::new(&mut pkt.mad);
        s.init_directed(method, attribute, modifier, self.tid, path);
        s.set_m_key(self.m_key);
        *s.data_mut() = *data;
        pkt
    }

    pub(crate) fn by_lid(
        &mut self,
        method: u8,
        dlid: u16,
        attribute: u16,
        modifier: u32,
        data: &[u8; 64],
    ) -> Packet {
        self.tid += 1;
        let mut pkt = Packet { dlid, ..Packet::default() };
        let mut s = SmpMut::new(&mut pkt.mad);
        s.init_lid_routed(method, attribute, modifier, self.tid);
        s.set_m_key(self.m_key);
        *s.data_mut() = *data;
        pkt
    }

    /// A GMP with everything that a well-behaved sender fills in.
    pub(crate) fn gmp(&mut self, method: u8, mgmt_class: u8, dlid: u16, attribute: u16) -> Packet {
        self.tid += 1;
        let mut pkt = Packet { dlid, src_qp: 1, dst_qp: 1, q_key: 0x8001_0000, ..Packet::default() };
        let mut m = MadMut::new(&mut pkt.mad);
        m.set_base_version(1);
        m.set_mgmt_class(mgmt_class);
        m.set_class_version(if mgmt_class == class::SA { 2 } else { 1 });
        m.set_method(method);
        m.set_tid(self.tid);
        m.set_attr_id(attribute);
        pkt
    }

    /// Sends from port 1 of A and returns the one packet that came back to it, if one did.
    pub(crate) fn exchange(&mut self, pkt: Packet) -> Option<Packet> {
        self.exchange_from(A, 1, pkt)
    }

    pub(crate) fn exchange_from(&mut self, node: NodeId, port: u8, pkt: Packet) -> Option<Packet> {
        let tid = mad::TID.get(&pkt.mad);
        let before = self.out.delivered.len();
        self.send(node, port, pkt);
        let answers: Vec<_> = self.out.delivered[before..]
            .iter()
            .filter(|(n, p, got)| {
                (*n, *p) == (node, port)
                    && mad::TID.get(&got.mad) == tid
                    && mad::METHOD.get_u8(&got.mad) & method::RESPONSE != 0
            })
            .collect();
        assert!(answers.len() <= 1, "one request, {} answers", answers.len());
        answers.first().map(|(_, _, got)| got.clone())
    }

    /// Directed request from port 1 of A: status and data of the answer.
    pub(crate) fn query(
        &mut self,
        method: u8,
        path: &[u8],
        attribute: u16,
        modifier: u32,
        data: &[u8; 64],
    ) -> Option<(u16, [u8; 64])> {
        let pkt = self.directed(method, path, attribute, modifier, data);
        let answer = self.exchange(pkt)?;
        assert_eq!(mad::METHOD.get_u8(&answer.mad), method::GET_RESP);
        assert!(smp::DIRECTION.get_bool(&answer.mad), "an answer of class 0x81 has D");
        Some((smp::STATUS.get_u16(&answer.mad), answer.mad[64..128].try_into().unwrap()))
    }

    pub(crate) fn get(&mut self, path: &[u8], attribute: u16, modifier: u32) -> [u8; 64] {
        let (status, data) =
            self.query(method::GET, path, attribute, modifier, &[0xA5; 64]).expect("an answer");
        assert_eq!(status, 0, "Get of {attribute:#x} modifier {modifier:#x}");
        data
    }

    pub(crate) fn set(
        &mut self,
        path: &[u8],
        attribute: u16,
        modifier: u32,
        data: &[u8; 64],
    ) -> (u16, [u8; 64]) {
        self.query(method::SET, path, attribute, modifier, data).expect("an answer")
    }

    /// PortInfo as a manager would write it back: what was read, without the state bits.
    pub(crate) fn port_info(&mut self, path: &[u8], port: u32) -> [u8; 64] {
        let mut data = self.get(path, attr::PORT_INFO, port);
        pi::PORT_STATE.set(&mut data, 0);
        pi::PORT_PHYS_STATE.set(&mut data, 0);
        data
    }

    /// Sets some fields of a PortInfo and leaves the others.
    pub(crate) fn set_port(
        &mut self,
        path: &[u8],
        port: u32,
        fields: &[(Field, u64)],
    ) -> Option<(u16, [u8; 64])> {
        let mut data = self.port_info(path, port);
        for (field, value) in fields {
            field.set(&mut data, *value);
        }
        self.query(method::SET, path, attr::PORT_INFO, port, &data)
    }

    /// LIDs, forwarding tables and Active links: what an SM does. The SM is said to be at port 1 of A.
    pub(crate) fn bring_up(&mut self) {
        let endports: [(&[u8], u32, u16, u64); 6] = [
            (TO_A, 1, LID_A, 2),
            (TO_S1, 0, LID_S1, 0),
            (TO_S2, 0, LID_S2, 0),
            (TO_B, 1, LID_B, 0),
            (TO_A2, 2, LID_A2, 0),
            (TO_C, 1, LID_C, 0),
        ];
        for (path, port, lid, lmc) in endports {
            let fields = [(pi::LID, u64::from(lid)), (pi::MASTER_SM_LID, u64::from(LID_A)), (pi::LMC, lmc)];
            assert_eq!(self.set_port(path, port, &fields).unwrap().0, 0);
        }
        let routes: [(&[u8], &[(u16, u8)]); 2] = [
            (TO_S1, &[(LID_A, 1), (LID_S1, 0), (LID_S2, 3), (LID_B, 3), (LID_C, 6), (LID_A2, 3)]),
            (TO_S2, &[(LID_A, 3), (LID_S1, 3), (LID_S2, 0), (LID_B, 2), (LID_C, 3), (LID_A2, 4)]),
        ];
        for (path, entries) in routes {
            let mut block = [255; 64];
            for (lid, port) in entries {
                block[usize::from(*lid)] = *port;
            }
            // port 1 of A has four LIDs
            for alias in 1..4 {
                block[usize::from(LID_A + alias)] = block[usize::from(LID_A)];
            }
            assert_eq!(self.set(path, attr::LFT, 0, &block), (0, block));
            let mut data = [0; 64];
            switch_info::field::LINEAR_FDB_TOP.set(&mut data, 0x20);
            assert_eq!(self.set(path, attr::SWITCH_INFO, 0, &data).0, 0);
        }
        let links: [(&[u8], u32); 10] = [
            (TO_A, 1),
            (TO_S1, 1),
            (TO_S1, 3),
            (TO_S2, 3),
            (TO_S2, 2),
            (TO_B, 1),
            (TO_S2, 4),
            (TO_A2, 2),
            (TO_S1, 6),
            (TO_C, 1),
        ];
        for state in [port_info::state::ARMED, port_info::state::ACTIVE] {
            for (path, port) in links {
                let (status, data) =
                    self.set_port(path, port, &[(pi::PORT_STATE, u64::from(state))]).unwrap();
                assert_eq!((status, pi::PORT_STATE.get_u8(&data)), (0, state), "{path:?} {port}");
            }
        }
        self.out.delivered.clear();
        assert_eq!(self.out.dropped, []);
        self.out.events.clear();
    }

    pub(crate) fn counters(&mut self, node: NodeId, port: u8) -> PortCounterSnapshot {
        self.owner(node).counters(node, port).unwrap()
    }

    pub(crate) fn state(&mut self, node: NodeId, port: u8) -> (u8, u8) {
        let shard = self.owner(node);
        (shard.port_state(node, port).unwrap(), shard.phys_state(node, port).unwrap())
    }

    /// Traps delivered so far, as trap number and packet, and forgets them.
    pub(crate) fn take_traps(&mut self) -> Vec<(u16, Packet)> {
        let mut traps = Vec::new();
        self.out.delivered.retain(|(node, port, pkt)| {
            let is_trap = mad::METHOD.get_u8(&pkt.mad) == method::TRAP;
            if is_trap {
                assert_eq!((*node, *port), (A, 1), "traps go to the SM");
                traps.push((u16::from_be_bytes([pkt.mad[68], pkt.mad[69]]), pkt.clone()));
            }
            !is_trap
        });
        traps
    }

    /// Answers a trap as an SM does.
    pub(crate) fn repress(&mut self, trap: &Packet) {
        let mut pkt = trap.clone();
        pkt.dlid = trap.slid;
        mad::METHOD.set(&mut pkt.mad, u64::from(method::TRAP_REPRESS));
        smp::M_KEY.set(&mut pkt.mad, self.m_key);
        self.send(A, 1, pkt);
    }

    pub(crate) fn drops(&mut self) -> Vec<(NodeId, DropReason)> {
        std::mem::take(&mut self.out.dropped)
    }
}
