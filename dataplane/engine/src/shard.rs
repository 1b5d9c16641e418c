//! One worker's part of the fabric: its nodes, and the loop that moves a packet through them.
//!
//! Owned by exactly one worker and called on its thread; several shards share nothing but what the worker carries between
//! them through the [`Sink`]. Time comes in as nanoseconds and must not go backwards by much; it only drives trap
//! repeats and leases. Invariants: a call processes one packet until it is delivered, dropped or leaves the shard; the
//! number of steps is bounded by the hop count of a directed route (63 each way) and by [`LID_HOP_LIMIT`]; nothing on
//! the way allocates except a Set that writes a table for the first time, or the bookkeeping of a trap.
//!
//! Not here: who is registered for what, transaction ids, retries, faults. Those are the sink's business.

mod directed;
mod gmp;
mod link;
mod local;
mod pinned;
mod status;

use crate::NodeId;
use crate::agent::trap::Traps;
use crate::node::{MAX_PORTS, NO_PEER, NodeCold, PortCold, PortHot, REMOTE, RemoteEnd, Switch};
use crate::packet::Packet;
use crate::pinned::Pin;
use crate::pinned::table::Routes;
use crate::plan::FabricPlan;
use crate::setup;
use crate::sink::{FabricEvent, PeerEvent, Sink};
use crate::smi::{self, Course, SmiNode, Verdict};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{LinkSpeed, NodeKind, Topology};
use madplane_wire::mad::{field as mad, is_smp_class};
use madplane_wire::smp::port_info::{phys_state as phys, state};

pub(crate) use local::make_answer;
pub use status::PortCounterSnapshot;

/// LID-routed hops after which a packet is taken for looping.
pub const LID_HOP_LIMIT: u8 = 64;

/// What the stages of the pipeline have handled, since the shard was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageCounts {
    /// MADs of clients that are well formed.
    pub classify_accepted: u64,
    /// Links taken by LID: from a switch by its forwarding table, from an adapter by its only port.
    pub dlid_routed: u64,
    /// SLtoVL maps consulted.
    pub sl_to_vl_checked: u64,
    /// P_Keys compared at the receiving port.
    pub p_key_checked: u64,
    /// Packets that were looked up among the pinned routes.
    pub dr_table_looked: u64,
}

/// A part of the fabric that one worker owns.
#[derive(Debug)]
pub struct Shard {
    /// Index of the first node in the topology.
    first_node: NodeId,
    pub(crate) ports: Vec<PortHot>,
    pub(crate) cold: Vec<PortCold>,
    pub(crate) nodes: Vec<NodeCold>,
    pub(crate) switches: Vec<Switch>,
    remote: Vec<RemoteEnd>,
    /// Per port, for whom it is open whatever they carry, as [`pinned::open_end`] says.
    open: Vec<u8>,
    pub(crate) traps: Traps,
    pub(crate) pinned: Routes,
    pub(crate) stages: StageCounts,
}

/// The SMI's view of one node of a shard.
struct NodeView<'a> {
    shard: &'a Shard,
    first: u32,
    is_switch: bool,
    num_ports: u8,
    node: u32,
}

impl NodeView<'_> {
    #[inline(always)]
    fn endport(&self, port: u8) -> Option<&PortCold> {
        let at = if self.is_switch { self.first } else { self.first + u32::from(port) };
        self.shard.cold.get(at as usize)
    }

    #[inline(always)]
    fn switch(&self) -> Option<&Switch> {
        self.shard.switches.get(self.shard.nodes.get(self.node as usize)?.switch as usize)
    }
}

impl SmiNode for NodeView<'_> {
    #[inline(always)]
    fn is_switch(&self) -> bool {
        self.is_switch
    }

    #[inline(always)]
    fn num_ports(&self) -> u8 {
        self.num_ports
    }

    #[inline(always)]
    fn owns_lid(&self, port: u8, lid: u16) -> bool {
        self.endport(port).is_some_and(|p| p.owns_lid(lid))
    }

    #[inline(always)]
    fn own_lid(&self, port: u8) -> u16 {
        self.endport(port).map_or(0, |p| p.lid)
    }

    #[inline(always)]
    fn path_mask(&self, port: u8) -> u16 {
        self.endport(port).map_or(0, |p| (1 << (p.lmc & 7)) - 1)
    }

    #[inline(always)]
    fn link_up(&self, port: u8) -> bool {
        self.shard.ports.get((self.first + u32::from(port)) as usize).is_some_and(|p| p.state >= state::INIT)
    }

    #[inline(always)]
    fn linear_fdb_top(&self) -> u16 {
        self.switch().map_or(0, |s| s.linear_fdb_top)
    }

    #[inline(always)]
    fn route(&self, dlid: u16) -> u8 {
        self.switch().map_or(255, |s| s.route(dlid))
    }
}

impl Shard {
    /// Builds the nodes of `shard` and brings the links up.
    pub(crate) fn build(plan: &FabricPlan, topology: &Topology, shard: usize) -> Self {
        let range = plan.nodes_of(shard);
        let base = plan.port_base(range.start);
        let port_count = plan.port_base(range.end).saturating_sub(base) as usize;
        let mut this = Self {
            first_node: range.start,
            ports: Vec::with_capacity(port_count),
            cold: Vec::with_capacity(port_count),
            nodes: Vec::with_capacity(range.len()),
            switches: Vec::new(),
            remote: Vec::new(),
            open: vec![0; port_count],
            traps: Traps::default(),
            pinned: Routes::new(plan.cabling(), base..plan.port_base(range.end)),
            stages: StageCounts::default(),
        };
        debug_assert!(port_count <= MAX_PORTS);
        let nodes = topology.nodes.get(range.start as usize..range.end as usize).unwrap_or(&[]);
        let speeds: Vec<LinkSpeed> = nodes.iter().map(setup::node_speed).collect();
        for (index, node) in (0_u32..).zip(nodes) {
            let first = u32::try_from(this.ports.len()).unwrap_or(NO_PEER);
            let is_switch = node.kind == NodeKind::Switch;
            let mut switch = u32::MAX;
            if is_switch {
                switch = u32::try_from(this.switches.len()).unwrap_or(u32::MAX);
                this.switches.push(setup::switch(node.enhanced_port0));
            }
            this.nodes.push(NodeCold {
                info: setup::node_info(node),
                description: setup::description(node),
                first,
                switch,
                num_ports: node.num_ports(),
                device_id: node.device_id,
                trap_tid: 0,
            });
            let fastest = speeds.get(index as usize).copied().unwrap_or_default();
            for (number, record) in (0_u8..=254).zip(&node.ports) {
                let mut cold = setup::port(node, number, record, fastest);
                let mut peer = NO_PEER;
                if let Some(end) = record.peer {
                    peer = this.peer_index(plan, &range, base, end);
                    if let (Some(other), Some(far)) =
                        (topology.nodes.get(end.node as usize), topology.port(end))
                    {
                        cold.peer_offer = setup::port(other, end.port, far, LinkSpeed::Sdr).offer();
                    }
                }
                let (state, phys) = match peer {
                    NO_PEER if is_switch && number == 0 => (state::ACTIVE, phys::LINK_UP),
                    NO_PEER => (state::DOWN, phys::POLLING),
                    _ if cold.negotiate() => (state::INIT, phys::LINK_UP),
                    _ => (state::DOWN, phys::POLLING),
                };
                this.ports.push(PortHot {
                    peer,
                    node: index,
                    first,
                    state,
                    phys,
                    is_switch,
                    num_ports: node.num_ports(),
                    xmit_pkts: 0,
                    rcv_pkts: 0,
                });
                this.cold.push(cold);
            }
        }
        for (open, (hot, cold)) in this.open.iter_mut().zip(this.ports.iter().zip(&this.cold)) {
            *open = pinned::open_end(hot, cold);
        }
        this
    }

    fn peer_index(
        &mut self,
        plan: &FabricPlan,
        range: &std::ops::Range<NodeId>,
        base: u32,
        end: madplane_topology::PortRef,
    ) -> u32 {
        if range.contains(&end.node) {
            return plan.port_base(end.node) - base + u32::from(end.port);
        }
        let shard = u32::try_from(plan.shard_of(end.node)).unwrap_or(u32::MAX);
        self.remote.push(RemoteEnd { shard, node: end.node, port: end.port });
        u32::try_from(self.remote.len() - 1).unwrap_or(0) | REMOTE
    }

    /// Index of `(node, port)`; `None` if the shard does not own it.
    #[inline(always)]
    pub(crate) fn index(&self, node: NodeId, port: u8) -> Option<u32> {
        let node = self.nodes.get(node.checked_sub(self.first_node)? as usize)?;
        if port > node.num_ports { None } else { Some(node.first + u32::from(port)) }
    }

    /// Node and port number of a port index.
    #[inline(always)]
    pub(crate) fn name(&self, at: u32) -> (NodeId, u8) {
        match self.ports.get(at as usize) {
            Some(hot) => (hot.node + self.first_node, u8::try_from(at - hot.first).unwrap_or(0)),
            None => (self.first_node, 0),
        }
    }

    /// Index of the port that holds the LID and keys for `at`: port 0 on a switch, the port itself elsewhere.
    #[inline(always)]
    pub(crate) fn endport(&self, at: u32) -> u32 {
        match self.ports.get(at as usize) {
            Some(hot) if hot.is_switch => hot.first,
            _ => at,
        }
    }

    #[inline(always)]
    fn view(&self, at: u32) -> Option<NodeView<'_>> {
        let hot = self.ports.get(at as usize)?;
        Some(NodeView {
            shard: self,
            first: hot.first,
            is_switch: hot.is_switch,
            num_ports: hot.num_ports,
            node: hot.node,
        })
    }

    /// What the stages of the pipeline have handled.
    pub fn stage_counts(&self) -> StageCounts {
        self.stages
    }

    /// The P_Key with which a client of `(node, port)` sends that names `index`; `None` if there is no such entry.
    pub fn sender_p_key(&self, node: NodeId, port: u8, index: u16) -> Option<u16> {
        let at = self.session_port(node, port)?;
        self.cold.get(at as usize)?.p_keys().get(usize::from(index)).copied()
    }

    /// Sends what a local client of `(node, port)` hands in; `port` is 0 on a switch.
    ///
    /// `pkt` names destination, queue pairs, `path_bits`, `p_key_index`, and what belongs to the client's tenant; source LID
    /// and P_Key are filled in here. The source queue pair follows from the class. The packet is used as the place to work
    /// in, its content afterwards is unspecified. Cost: bounded, see the module.
    pub fn send<S: Sink>(&mut self, now_ns: u64, node: NodeId, port: u8, pkt: &mut Packet, sink: &mut S) {
        pkt.lid_hops = 0;
        pkt.pin = Pin::NONE;
        let Some(at) = self.session_port(node, port) else {
            sink.dropped(node, DropReason::SenderInvalid);
            return;
        };
        if let Err(reason) = validate(pkt) {
            sink.dropped(node, reason);
            return;
        }
        self.stages.classify_accepted += 1;
        pkt.src_qp = pkt.dst_qp;
        let (at, verdict) = if pkt.dst_qp == 0 {
            pkt.grh = None;
            if let Some(start) = self.pin_smp(at, pkt, sink) {
                start
            } else {
                match self.view(at) {
                    Some(view) => (at, smi::transmit(&view, port, pkt)),
                    None => return,
                }
            }
        } else {
            self.gmp_transmit(at, pkt, sink)
        };
        self.drive(now_ns, at, verdict, pkt, sink);
        self.flush_traps(now_ns, sink);
    }

    /// Sends an SMP that the agent of endport `at` made by itself.
    pub(crate) fn send_from_agent<S: Sink>(&mut self, now_ns: u64, at: u32, pkt: &mut Packet, sink: &mut S) {
        let number = self.name(at).1;
        let Some(view) = self.view(at) else { return };
        let verdict = smi::transmit(&view, number, pkt);
        self.drive(now_ns, at, verdict, pkt, sink);
    }

    /// Takes a packet that crossed from another shard and arrives at `(node, port)`.
    pub fn arrive<S: Sink>(&mut self, now_ns: u64, node: NodeId, port: u8, pkt: &mut Packet, sink: &mut S) {
        let at = match self.index(node, port) {
            Some(at) if port != 0 => at,
            _ => {
                sink.dropped(node, DropReason::SenderInvalid);
                return;
            }
        };
        if let Err(reason) = validate(pkt) {
            sink.dropped(node, reason);
            return;
        }
        if let Some(hot) = self.ports.get_mut(at as usize)
            && hot.state >= state::INIT
        {
            hot.rcv_pkts += 1;
        }
        let verdict = if pkt.pin.is_none() { self.receive(at, pkt) } else { self.resume_pinned(at, pkt) };
        self.drive(now_ns, at, verdict, pkt, sink);
        self.flush_traps(now_ns, sink);
    }

    fn session_port(&self, node: NodeId, port: u8) -> Option<u32> {
        let at = self.index(node, port)?;
        let is_switch = self.ports.get(at as usize)?.is_switch;
        (is_switch == (port == 0)).then_some(at)
    }

    /// Decides about a packet that arrived on `at`.
    #[inline(always)]
    fn receive(&mut self, at: u32, pkt: &mut Packet) -> Verdict {
        let Some(hot) = self.ports.get(at as usize) else {
            return Verdict::discard(DropReason::ArrivalDown);
        };
        let arrival = u8::try_from((at - hot.first) & 0xFF).unwrap_or(0);
        if hot.state < state::INIT {
            Verdict::discard(DropReason::ArrivalDown)
        } else if pkt.dst_qp == 0 {
            match self.view(at) {
                Some(view) => smi::receive(&view, arrival, pkt),
                None => Verdict::discard(DropReason::ArrivalDown),
            }
        } else {
            self.gmp_receive(at, pkt)
        }
    }

    /// Carries out `verdict` at `at`, and moves the packet from node to node until it ends or leaves the shard.
    fn drive<S: Sink>(
        &mut self,
        now_ns: u64,
        mut at: u32,
        mut verdict: Verdict,
        pkt: &mut Packet,
        sink: &mut S,
    ) {
        loop {
            let out = if let Verdict::Forward { port } = verdict {
                let Some(hot) = self.ports.get(at as usize) else { return };
                hot.first + u32::from(port)
            } else {
                match self.settle(now_ns, at, verdict, pkt, sink) {
                    Some(out) => out,
                    None => return,
                }
            };
            if pkt.pin.is_none() {
                let next = match Course::of(pkt) {
                    Some(course) => self.follow(course, out, pkt, sink),
                    None => self.cross(out, pkt, sink),
                };
                let Some(next) = next else { return };
                (at, verdict) = (next, self.receive(next, pkt));
            } else {
                let Some(next) = self.walk_pinned(pkt, sink) else { return };
                (at, verdict) = next;
            }
        }
    }

    /// Counts a packet over the link of `out`; the arrival port if that is in this shard.
    #[inline(always)]
    fn cross<S: Sink>(&mut self, out: u32, pkt: &mut Packet, sink: &mut S) -> Option<u32> {
        if pkt.dlid != smi::PERMISSIVE {
            if pkt.lid_hops >= LID_HOP_LIMIT {
                sink.dropped(self.name(out).0, DropReason::HopLimit);
                return None;
            }
            pkt.lid_hops += 1;
            self.stages.dlid_routed += 1;
        }
        let hot = self.ports.get_mut(out as usize)?;
        hot.xmit_pkts += 1;
        let peer = hot.peer;
        if let Some(far) = self.ports.get_mut(peer as usize) {
            far.rcv_pkts += 1;
            return Some(peer);
        }
        self.hand_over(peer, pkt, sink);
        None
    }

    /// Gives a packet to the shard that owns the far end of a link, if there is one.
    fn hand_over<S: Sink>(&self, peer: u32, pkt: &Packet, sink: &mut S) {
        if let Some(end) = self.remote.get((peer ^ REMOTE) as usize) {
            sink.to_shard(end.shard as usize, end.node, end.port, pkt);
        }
    }

    /// Carries out a verdict at the node of port `at`; the output port if a packet leaves the node.
    ///
    /// An answer of the node's own agent takes the place of the request and gets a verdict of its own; since answers are
    /// never answered, the loop ends after at most one turn more.
    fn settle<S: Sink>(
        &mut self,
        now_ns: u64,
        mut at: u32,
        mut verdict: Verdict,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<u32> {
        loop {
            match verdict {
                Verdict::Forward { port } => {
                    return self.ports.get(at as usize).map(|hot| hot.first + u32::from(port));
                }
                Verdict::Local => {
                    if !self.local(now_ns, at, pkt, sink) {
                        return None;
                    }
                    (at, verdict) = self.answer_verdict(at, pkt, sink)?;
                }
                Verdict::Client => {
                    self.hand_to_client(at, pkt, sink);
                    return None;
                }
                Verdict::Discard { reason, output } => {
                    if reason == DropReason::PKey {
                        self.tell_mismatch(at, pkt, sink);
                    }
                    self.discard(at, reason, output, sink);
                    return None;
                }
            }
        }
    }

    #[inline(always)]
    fn answer_verdict<S: Sink>(&mut self, at: u32, pkt: &mut Packet, sink: &mut S) -> Option<(u32, Verdict)> {
        if pkt.dst_qp == 0 {
            if let Some(start) = self.pin_smp_answer(at, pkt, sink) {
                return Some(start);
            }
            let view = self.view(at)?;
            let port = if view.is_switch { 0 } else { u8::try_from((at - view.first) & 0xFF).unwrap_or(0) };
            Some((at, smi::respond(&view, port, pkt)))
        } else {
            let endport = self.endport(at);
            let (start, verdict) = self.gmp_answer(endport, pkt, sink);
            // one that goes by LID stands where the request arrived, which is charged for what has no route
            Some((if start == endport { at } else { start }, verdict))
        }
    }

    /// Counts a drop at the port to which the specification charges it.
    #[cold]
    fn discard<S: Sink>(&mut self, at: u32, reason: DropReason, output: u8, sink: &mut S) {
        let (node, arrival) = self.name(at);
        let first = at - u32::from(arrival);
        self.charge(at, first + u32::from(output), reason);
        sink.dropped(node, reason);
    }

    pub(crate) fn port_changed<S: Sink>(&self, at: u32, sink: &mut S) {
        let (node, port) = self.name(at);
        sink.event(FabricEvent::PortChanged { node, port });
    }

    /// Tells the other end of the link of `at`; directly, or by the sink.
    fn remote_end(&self, at: u32) -> Option<RemoteEnd> {
        let peer = self.ports.get(at as usize)?.peer;
        if peer == NO_PEER || peer & REMOTE == 0 {
            return None;
        }
        self.remote.get((peer ^ REMOTE) as usize).copied()
    }

    /// Takes a link event that another shard reports about the other end of a link.
    pub fn peer_event<S: Sink>(&mut self, now_ns: u64, event: PeerEvent, sink: &mut S) {
        if let Some(at) = self.index(event.node, event.port)
            && event.port != 0
        {
            self.hear_peer(now_ns, at, event.kind, event.offer, sink);
            self.flush_traps(now_ns, sink);
        }
    }
}

/// Checks what does not change while a MAD travels: base version and class against queue pair.
fn validate(pkt: &mut Packet) -> Result<(), DropReason> {
    if mad::BASE_VERSION.get_u8(&pkt.mad) != 1 {
        return Err(DropReason::BaseVersion);
    }
    let class = mad::MGMT_CLASS.get_u8(&pkt.mad);
    let is_smp = is_smp_class(class);
    if pkt.dst_qp > 1 || is_smp != (pkt.dst_qp == 0) {
        return Err(DropReason::ClassQp);
    }
    Ok(())
}
