//! Every case of the SMI rules, against the pure functions and through a whole shard.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail like tests")]

mod table;

use madplane_engine::smi::{self, SmiNode, Verdict};
use madplane_engine::{FabricOptions, FabricPlan, NodeId, Packet, PeerEvent, Shard, Sink};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind, PortRef, Topology};
use madplane_wire::mad::{class, field as mad, method};
use madplane_wire::smp::{attr, field as smp, port_info, switch_info};
use madplane_wire::{MadBuf, MadMut, SmpMut};

/// The node under test.
#[derive(Clone, Copy)]
pub(crate) struct Dut {
    kind: NodeKind,
    num_ports: u8,
    lid: u16,
    lmc: u8,
    lft: &'static [(u16, u8)],
    down: &'static [u8],
}

pub(crate) const fn adapter(lmc: u8) -> Dut {
    Dut { kind: NodeKind::Ca, num_ports: 2, lid: 0x20, lmc, lft: &[], down: &[] }
}

#[derive(Clone, Copy)]
pub(crate) enum Op {
    Arrives(u8),
    Sends(u8),
}

/// Path bytes from entry 1 on.
#[derive(Clone, Copy)]
pub(crate) enum Path {
    Short(&'static [u8]),
    Long(u8, usize),
}

impl Path {
    fn write(self, to: &mut [u8; 64]) {
        match self {
            Path::Short(ports) => to[1..=ports.len()].copy_from_slice(ports),
            Path::Long(port, count) => to[1..=count].fill(port),
        }
    }
}

pub(crate) struct SmpCase {
    class: u8,
    method: u8,
    status: u16,
    hop_pointer: u8,
    hop_count: u8,
    dr_slid: u16,
    dr_dlid: u16,
    initial: Path,
    recorded: Path,
    attribute: u16,
    modifier: u32,
}

#[expect(clippy::too_many_arguments, reason = "a row of the table")]
pub(crate) const fn dr(
    method: u8,
    status: u16,
    hop_pointer: u8,
    hop_count: u8,
    dr_slid: u16,
    dr_dlid: u16,
    initial: Path,
    recorded: Path,
) -> SmpCase {
    let (class, attribute, modifier) = (class::SUBN_DIRECTED, attr::NODE_INFO, 0);
    SmpCase {
        class,
        method,
        status,
        hop_pointer,
        hop_count,
        dr_slid,
        dr_dlid,
        initial,
        recorded,
        attribute,
        modifier,
    }
}

pub(crate) const fn lid(method: u8, attribute: u16) -> SmpCase {
    let mut case = dr(method, 0, 0, 0, 0, 0, Path::Short(&[]), Path::Short(&[]));
    case.class = class::SUBN_LID;
    case.attribute = attribute;
    case
}

impl SmpCase {
    pub(crate) const fn attribute(mut self, attribute: u16, modifier: u32) -> Self {
        self.attribute = attribute;
        self.modifier = modifier;
        self
    }

    fn bytes(&self) -> MadBuf {
        let mut buf = [0; 256];
        let mut m = MadMut::new(&mut buf);
        m.set_base_version(1);
        m.set_mgmt_class(self.class);
        m.set_class_version(1);
        m.set_method(self.method);
        m.set_status(self.status);
        m.set_tid(0x1_0000_00AA);
        m.set_attr_id(self.attribute);
        m.set_attr_mod(self.modifier);
        if self.class == class::SUBN_DIRECTED {
            let mut s = SmpMut::new(&mut buf);
            s.set_hop_pointer(self.hop_pointer);
            s.set_hop_count(self.hop_count);
            s.set_dr_slid(self.dr_slid);
            s.set_dr_dlid(self.dr_dlid);
            self.initial.write(s.initial_path_mut());
            self.recorded.write(s.return_path_mut());
        }
        buf
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Expect {
    Forward { port: u8, slid: u16, dlid: u16, hop_pointer: u8, recorded: Option<(u8, u8)> },
    Local { hop_pointer: u8, recorded: Option<(u8, u8)> },
    Client { hop_pointer: u8, recorded: Option<(u8, u8)> },
    Discard(DropReason),
}

pub(crate) struct Case {
    name: &'static str,
    op: Op,
    dut: Dut,
    slid: u16,
    dlid: u16,
    smp: SmpCase,
    expect: Expect,
}

impl Case {
    fn packet(&self) -> Packet {
        Packet { mad: self.smp.bytes(), slid: self.slid, dlid: self.dlid, ..Packet::default() }
    }

    /// The SMP after the node, from the request and what the case says changes.
    fn smp_after(&self) -> MadBuf {
        let mut buf = self.smp.bytes();
        if let Expect::Forward { hop_pointer, recorded, .. }
        | Expect::Local { hop_pointer, recorded }
        | Expect::Client { hop_pointer, recorded } = self.expect
            && self.smp.class == class::SUBN_DIRECTED
        {
            let mut s = SmpMut::new(&mut buf);
            s.set_hop_pointer(hop_pointer);
            if let Some((index, port)) = recorded {
                s.return_path_mut()[usize::from(index)] = port;
            }
        }
        buf
    }
}

impl SmiNode for Dut {
    fn is_switch(&self) -> bool {
        self.kind == NodeKind::Switch
    }
    fn num_ports(&self) -> u8 {
        self.num_ports
    }
    fn owns_lid(&self, _: u8, lid: u16) -> bool {
        self.lid != 0 && lid >= self.lid && lid < self.lid + (1 << self.lmc)
    }
    fn own_lid(&self, _: u8) -> u16 {
        self.lid
    }
    fn path_mask(&self, _: u8) -> u16 {
        (1 << self.lmc) - 1
    }
    fn link_up(&self, port: u8) -> bool {
        port != 0 && port <= self.num_ports && !self.down.contains(&port)
    }
    fn linear_fdb_top(&self) -> u16 {
        self.lft.iter().map(|(lid, _)| *lid).max().unwrap_or(0)
    }
    fn route(&self, dlid: u16) -> u8 {
        self.lft.iter().find(|(lid, _)| *lid == dlid).map_or(255, |(_, port)| *port)
    }
}

/// A down port is named by the directed or by the LID part, the cases do not tell them apart.
fn same_reason(got: DropReason, want: DropReason) -> bool {
    got == want || (got == DropReason::RoutePortDown && want == DropReason::PathPortDown)
}

#[test]
fn there_are_107_cases_with_different_names() {
    let mut names: Vec<_> = table::CASES.iter().map(|c| c.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 107);
}

#[test]
fn pure_rules_reach_the_verdict_of_every_case() {
    for case in &table::CASES {
        let mut pkt = case.packet();
        let verdict = match case.op {
            Op::Arrives(port) => smi::receive(&case.dut, port, &mut pkt),
            Op::Sends(port) => smi::transmit(&case.dut, port, &mut pkt),
        };
        let name = case.name;
        match (case.expect, verdict) {
            (Expect::Forward { port, slid, dlid, .. }, Verdict::Forward { port: got }) => {
                assert_eq!((got, pkt.slid, pkt.dlid), (port, slid, dlid), "{name}");
                assert_eq!(pkt.mad, case.smp_after(), "{name}");
            }
            (Expect::Local { .. }, Verdict::Local) | (Expect::Client { .. }, Verdict::Client) => {
                assert_eq!(pkt.mad, case.smp_after(), "{name}");
            }
            (Expect::Discard(want), Verdict::Discard { reason, .. }) => {
                assert!(same_reason(reason, want), "{name}: {reason:?}");
            }
            (want, got) => panic!("{name}: {want:?} but {got:?}"),
        }
    }
}

#[derive(Default)]
struct Recorder {
    delivered: Vec<(NodeId, u8, Packet)>,
    crossed: Vec<(NodeId, u8, Packet)>,
    dropped: Vec<DropReason>,
}

impl Sink for Recorder {
    fn deliver(&mut self, node: NodeId, port: u8, pkt: &Packet) -> bool {
        self.delivered.push((node, port, pkt.clone()));
        true
    }
    fn to_shard(&mut self, _: usize, node: NodeId, port: u8, pkt: &Packet) {
        self.crossed.push((node, port, pkt.clone()));
    }
    fn peer_event(&mut self, _: usize, _: PeerEvent) {}
    fn dropped(&mut self, node: NodeId, reason: DropReason) {
        assert_eq!(node, 0);
        self.dropped.push(reason);
    }
}

/// The node under test alone in a shard: port p is cabled to port 1 of adapter p, which belongs to another.
fn shard_of(dut: &Dut) -> Shard {
    let mut topology = Topology::default();
    topology.nodes.push(Node::new(dut.kind, 0x1000, dut.num_ports, "under test"));
    for port in 1..=dut.num_ports {
        topology.nodes.push(Node::new(NodeKind::Ca, 0x2000 + u64::from(port), 1, "peer"));
        let (a, b) = (PortRef { node: 0, port }, PortRef { node: u32::from(port), port: 1 });
        assert!(topology.connect(a, b, LinkWidth::X4, LinkSpeed::Edr));
    }
    // one shard per port: the first node fills its shards and every other begins one of its own
    let shards = topology.nodes.iter().map(|n| n.ports.len()).sum();
    let plan = FabricPlan::new(&topology, &FabricOptions { shards }).unwrap();
    assert_eq!(plan.nodes_of(0), 0..1);
    let mut shard = plan.build_shard(&topology, 0);
    let mut sink = Recorder::default();
    for port in dut.down {
        shard.set_link(0, 0, *port, false, &mut sink);
    }
    let first = u8::from(dut.kind != NodeKind::Switch);
    for port in first..=if first == 0 { 0 } else { dut.num_ports } {
        let mut data = shard.port_info(0, port).unwrap();
        port_info::field::LID.set(&mut data, u64::from(dut.lid));
        port_info::field::LMC.set(&mut data, u64::from(dut.lmc));
        port_info::field::MASTER_SM_LID.set(&mut data, 1);
        port_info::field::PORT_STATE.set(&mut data, 0);
        port_info::field::PORT_PHYS_STATE.set(&mut data, 0);
        set(&mut shard, port, attr::PORT_INFO, u32::from(port), &data, if dut.lid == 0 { 0x1C } else { 0 });
    }
    if dut.kind == NodeKind::Switch {
        let mut block = [255; 64];
        for (lid, port) in dut.lft {
            block[usize::from(*lid)] = *port;
        }
        set(&mut shard, 0, attr::LFT, 0, &block, 0);
        let mut data = [0; 64];
        switch_info::field::LINEAR_FDB_TOP.set(&mut data, u64::from(dut.linear_fdb_top()));
        set(&mut shard, 0, attr::SWITCH_INFO, 0, &data, 0);
    }
    shard
}

fn set(shard: &mut Shard, port: u8, attribute: u16, modifier: u32, data: &[u8; 64], status: u64) {
    let mut pkt = Packet::default();
    SmpMut::new(&mut pkt.mad).init_directed(method::SET, attribute, modifier, 1, &[]);
    pkt.mad[64..128].copy_from_slice(data);
    let mut sink = Recorder::default();
    shard.send(0, 0, port, &mut pkt, &mut sink);
    assert_eq!(sink.dropped, []);
    assert_eq!(smp::STATUS.get(&sink.delivered[0].2.mad), status);
}

#[test]
fn a_shard_reaches_the_verdict_of_every_case() {
    for case in &table::CASES {
        let mut shard = shard_of(&case.dut);
        let mut sink = Recorder::default();
        let mut pkt = case.packet();
        let before = counters(&shard, &case.dut);
        match case.op {
            Op::Arrives(port) => shard.arrive(0, 0, port, &mut pkt, &mut sink),
            Op::Sends(port) => shard.send(0, 0, port, &mut pkt, &mut sink),
        }
        let name = case.name;
        let seen = (sink.delivered.len(), sink.crossed.len(), sink.dropped.len());
        let mut after = before.clone();
        let arrival = if let Op::Arrives(port) = case.op {
            after[usize::from(port)].1 += 1;
            port
        } else {
            0
        };
        match case.expect {
            Expect::Forward { port, slid, dlid, .. } => {
                assert_eq!(seen, (0, 1, 0), "{name}");
                let (node, far_port, pkt) = &sink.crossed[0];
                assert_eq!((*node, *far_port), (u32::from(port), 1), "{name}");
                assert_eq!((pkt.slid, pkt.dlid), (slid, dlid), "{name}");
                assert_eq!(pkt.mad, case.smp_after(), "{name}");
                after[usize::from(port)].0 += 1;
            }
            Expect::Client { .. } => {
                assert_eq!(seen, (1, 0, 0), "{name}");
                assert_eq!(sink.delivered[0].2.mad, case.smp_after(), "{name}");
            }
            Expect::Local { .. } => check_local(case, &sink, &mut after, arrival),
            Expect::Discard(want) => {
                assert_eq!(seen, (0, 0, 1), "{name}");
                assert!(same_reason(sink.dropped[0], want), "{name}: {:?}", sink.dropped);
                let moved = match sink.dropped[0] {
                    DropReason::PathPortDown | DropReason::RoutePortDown => Some((6, 3)),
                    DropReason::AboveFdbTop
                    | DropReason::NoRoute
                    | DropReason::RoutePort
                    | DropReason::RouteLoop
                    | DropReason::PathPort => Some((arrival, 2)),
                    _ => None,
                };
                match moved {
                    Some((0, _)) | None => {}
                    Some((port, 2)) => after[usize::from(port)].2 += 1,
                    Some((port, _)) => after[usize::from(port)].3 += 1,
                }
            }
        }
        assert_eq!(counters(&shard, &case.dut), after, "{name}");
    }
}

/// A request for the node's own agent: a response goes to a client, an answer leaves or is delivered.
fn check_local(case: &Case, sink: &Recorder, after: &mut [(u64, u64, u32, u32)], arrival: u8) {
    let name = case.name;
    let request = case.smp_after();
    if mad::METHOD.get_u8(&request) & method::RESPONSE != 0 || mad::METHOD.get_u8(&request) == method::TRAP {
        assert_eq!((sink.delivered.len(), sink.crossed.len()), (1, 0), "{name}");
        assert_eq!(sink.delivered[0].2.mad, request, "{name}");
        return;
    }
    let answer = match (sink.crossed.first(), sink.delivered.first(), sink.dropped.first()) {
        (Some((port, _, pkt)), None, None) => {
            after[usize::try_from(*port).unwrap()].0 += 1;
            pkt
        }
        (None, Some((_, _, pkt)), None) => pkt,
        // no way back: the source LID has no route, or the return path was never recorded
        (None, None, Some(DropReason::AboveFdbTop | DropReason::PathPort | DropReason::NoRoute)) => {
            if arrival != 0 && case.dut.kind == NodeKind::Switch {
                after[usize::from(arrival)].2 += 1;
            }
            return;
        }
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(mad::METHOD.get_u8(&answer.mad), method::GET_RESP, "{name}");
    assert_eq!(smp::STATUS.get(&answer.mad), 0, "{name}");
    assert_eq!(mad::TID.get(&answer.mad), 0x1_0000_00AA, "{name}");
    assert_eq!(smp::DIRECTION.get_bool(&answer.mad), case.smp.class == class::SUBN_DIRECTED, "{name}");
    assert_eq!(answer.mad[128..192], request[128..192], "{name}");
    assert_eq!(answer.mad[64..68], [1, 1, case.dut.kind as u8, case.dut.num_ports], "{name}");
}

type Counters = Vec<(u64, u64, u32, u32)>;

/// Packets out and in, relay errors and discards of each port.
fn counters(shard: &Shard, dut: &Dut) -> Counters {
    (0..=dut.num_ports)
        .map(|port| {
            let c = shard.counters(0, port).unwrap();
            (c.xmit_pkts, c.rcv_pkts, c.switch_relay_errors, c.xmit_discards)
        })
        .collect()
}
