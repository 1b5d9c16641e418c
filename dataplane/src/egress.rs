//! Where packets go when they leave a shard: to a session, to another worker, to another plane, or into a drop counter.
//!
//! Implements the engine's [`Sink`]. Owned by a worker, called in the middle of the engine's loop; everything here is
//! bounded and free of allocation, system calls wait until [`Egress::flush`].

use std::sync::Arc;

use madplane_engine::{EXTERNAL, Grh, NodeId, Packet, PeerEvent, Sink};
use madplane_port::MadTx;
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::message::{Envelope, flag, kind};
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::status::MAX_SESSIONS;
use madplane_wire::Mad;

use crate::acl::{Acl, Membership};
use crate::agents::{AgentId, RequestTable};
use crate::links::Links;
use crate::mesh::MeshEnds;
use crate::notices::{Notice, NoticeBox};
use crate::sessions::SessionOut;
use crate::telemetry::Counts;

/// Everything a packet can leave through.
#[derive(Debug)]
pub struct Egress {
    sessions: Vec<Option<SessionOut>>,
    dirty: Vec<u32>,
    /// As `dirty`, sessions of the reserved class.
    dirty_reserved: Vec<u32>,
    /// What tenants may do.
    pub acl: Acl,
    /// What housekeeping is told.
    pub notices: NoticeBox,
    /// Agents that take requests.
    pub requests: RequestTable,
    /// Rings to and from other workers.
    pub mesh: MeshEnds,
    /// Links to other planes.
    pub links: Links,
    /// What this worker counts.
    pub counts: Counts,
    overflows: Vec<Overflow>,
    /// Where the use of routes is counted.
    pub route_counters: Option<Arc<RouteCounters>>,
    /// The clock as of this duty cycle.
    pub now_ns: u64,
}

/// A MAD for which a session had no room: the port counts it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow {
    /// Node of the session.
    pub node: NodeId,
    /// Port of the session.
    pub port: u8,
    /// Queue pair that the MAD was for.
    pub qp: u32,
}

/// Overflows remembered within a duty cycle; further ones are counted for the session only.
const OVERFLOWS_PER_CYCLE: usize = 256;

impl Egress {
    /// Starts without sessions.
    pub fn new(mesh: MeshEnds, acl: Acl, notices: NoticeBox) -> Self {
        Self {
            sessions: (0..MAX_SESSIONS).map(|_| None).collect(),
            dirty: Vec::with_capacity(MAX_SESSIONS),
            dirty_reserved: Vec::with_capacity(MAX_SESSIONS),
            acl,
            notices,
            requests: RequestTable::default(),
            mesh,
            links: Links::default(),
            counts: Counts::default(),
            overflows: Vec::with_capacity(OVERFLOWS_PER_CYCLE),
            route_counters: None,
            now_ns: 0,
        }
    }

    /// The sending half of a session.
    pub fn session(&self, slot: u32) -> Option<&SessionOut> {
        self.sessions.get(slot as usize)?.as_ref()
    }

    /// The sending half of a session, to change its agents.
    pub fn session_mut(&mut self, slot: u32) -> Option<&mut SessionOut> {
        self.sessions.get_mut(slot as usize)?.as_mut()
    }

    /// Adds a session; false if the slot is taken or does not exist.
    pub fn open(&mut self, slot: u32, out: SessionOut) -> bool {
        match self.sessions.get_mut(slot as usize) {
            Some(place @ None) => {
                *place = Some(out);
                true
            }
            _ => false,
        }
    }

    /// Removes a session and its agents.
    pub fn close(&mut self, slot: u32) -> Option<SessionOut> {
        let out = self.sessions.get_mut(slot as usize)?.take()?;
        self.dirty.retain(|other| *other != slot);
        self.dirty_reserved.retain(|other| *other != slot);
        for agent in (0u32..).zip(&out.agents).filter_map(|(n, spec)| spec.map(|_| n)) {
            let id = AgentId { slot, generation: out.generation, agent };
            self.requests.remove(out.node, out.port, id);
        }
        Some(out)
    }

    /// Wakes sessions that were given something and sleep. Call once per duty cycle.
    pub fn flush(&mut self) {
        self.flush_reserved();
        while let Some(slot) = self.dirty.pop() {
            self.wake(slot);
        }
        if self.mesh.has_kept() {
            self.mesh.retry();
        }
        let woken = self.mesh.wake_others() + self.links.flush();
        self.counts.add(Counter::DoorbellsRung, woken as u64);
    }

    /// Sessions that were given something since they were last seen to, without those of the reserved class.
    pub fn given(&self) -> usize {
        self.dirty.len()
    }

    /// Wakes one of the sessions that were given something, if it sleeps; whether that took a system call.
    pub fn flush_next(&mut self) -> bool {
        self.dirty.pop().is_some_and(|slot| self.wake(slot))
    }

    /// Wakes sessions of the reserved class.
    pub fn flush_reserved(&mut self) {
        while let Some(slot) = self.dirty_reserved.pop() {
            self.wake(slot);
        }
    }

    fn wake(&mut self, slot: u32) -> bool {
        let Some(Some(session)) = self.sessions.get_mut(slot as usize) else { return false };
        session.dirty = false;
        let rang = session.tx.flush();
        if rang {
            self.counts.add(Counter::DoorbellsRung, 1);
        }
        rang
    }

    /// Says that a tenant may not have this key.
    #[cold]
    pub fn refused_by_tenant(&mut self, who: Membership, p_key: u16) {
        let had = self.acl.counterpart(who, p_key);
        self.notices.put(Notice::PKeyMismatch { got: p_key, had });
    }

    /// Takes the next overflow of this duty cycle.
    pub fn next_overflow(&mut self) -> Option<Overflow> {
        self.overflows.pop()
    }

    #[inline(never)]
    fn leave_by_link(&mut self, shard: usize, pkt: &Packet) {
        match self.links.send(shard, pkt) {
            Ok(()) => self.counts.add(Counter::LinkSent, 1),
            Err(reason) => self.counts.drop(reason),
        }
    }

    fn give(&mut self, id: AgentId, pkt: &Packet) {
        let Some(Some(session)) = self.sessions.get_mut(id.slot as usize) else { return };
        let member = session.member;
        if !member.is_none() && pkt.dst_qp != 0 && !self.acl.receives(member, pkt.p_key) {
            self.counts.drop(DropReason::TenantReceiver);
            self.refused_by_tenant(member, pkt.p_key);
            return;
        }
        if session.tx.tx_parts(&envelope_of(id.hi_tid(), pkt), &pkt.mad) {
            session.sent += 1;
            self.counts.add(Counter::SessionSent, 1);
        } else {
            session.dropped += 1;
            self.counts.drop(DropReason::SessionFull);
            if self.overflows.len() < OVERFLOWS_PER_CYCLE {
                self.overflows.push(Overflow { node: session.node, port: session.port, qp: pkt.dst_qp });
            }
        }
        if !session.dirty {
            session.dirty = true;
            if session.reserved { &mut self.dirty_reserved } else { &mut self.dirty }.push(id.slot);
        }
    }
}

impl Sink for Egress {
    fn deliver(&mut self, node: NodeId, port: u8, pkt: &Packet) -> bool {
        let mad = Mad::new(&pkt.mad);
        let id = if mad.is_response() {
            let [b0, b1, b2, b3, ..] = mad.tid().to_be_bytes();
            let id = AgentId::from_hi_tid(u32::from_be_bytes([b0, b1, b2, b3]));
            let here = self.session(id.slot).is_some_and(|session| {
                session.node == node && session.port == port && session.agent(id).is_some()
            });
            here.then_some(id)
        } else {
            self.requests.find(node, port, mad)
        };
        match id {
            Some(id) => {
                self.give(id, pkt);
                true
            }
            None => false,
        }
    }

    fn to_shard(&mut self, shard: usize, node: NodeId, port: u8, pkt: &Packet) {
        if shard >= EXTERNAL {
            self.leave_by_link(shard, pkt);
        } else if self.mesh.send(shard, node, port, pkt) {
            self.counts.add(Counter::ShardSent, 1);
        } else {
            self.counts.drop(DropReason::ShardFull);
        }
    }

    fn peer_event(&mut self, shard: usize, event: PeerEvent) {
        if shard >= EXTERNAL {
            self.links.declare(shard, event);
        } else {
            self.mesh.send_peer_event(shard, event);
        }
    }

    fn route_used(&mut self, index: u32, bytes: u32) {
        if let Some(counters) = &self.route_counters {
            counters.add(index, u64::from(bytes), self.now_ns);
        }
    }

    fn may_manage(&mut self, tenant: u16, node_guid: u64) -> bool {
        self.acl.may_manage(tenant, node_guid)
    }

    fn p_key_mismatch(&mut self, _node: NodeId, got: u16, had: u16) {
        self.notices.put(Notice::PKeyMismatch { got, had });
    }

    fn dropped(&mut self, _node: NodeId, reason: DropReason) {
        self.counts.drop(reason);
    }
}

/// What goes with a MAD to whoever is `agent`.
pub(crate) fn envelope_of(agent: u32, pkt: &Packet) -> Envelope {
    let mut envelope = Envelope {
        kind: kind::MAD,
        agent,
        slid: pkt.slid,
        dlid: pkt.dlid,
        sl: pkt.sl,
        path_bits: pkt.path_bits,
        p_key_index: pkt.p_key_index,
        src_qp: pkt.src_qp,
        dst_qp: pkt.dst_qp,
        q_key: pkt.q_key,
        length: 256,
        ..Envelope::default()
    };
    if let Some(grh) = &pkt.grh {
        envelope.flags = flag::GRH;
        envelope.flow_label = grh.flow_label;
        envelope.gid_index = grh.gid_index;
        envelope.hop_limit = grh.hop_limit;
        envelope.traffic_class = grh.traffic_class;
        envelope.gid = grh.gid;
    }
    envelope
}

/// The global header of what came with `envelope`.
pub(crate) fn grh_of(envelope: &Envelope) -> Option<Grh> {
    (envelope.flags & flag::GRH != 0).then_some(Grh {
        gid_index: envelope.gid_index,
        hop_limit: envelope.hop_limit,
        traffic_class: envelope.traffic_class,
        flow_label: envelope.flow_label,
        gid: envelope.gid,
    })
}

/// Fills in what a packet has beside its MAD from what a client sent. The caller has checked the agent.
pub fn fill_from(envelope: &Envelope, qpn: u8, pkt: &mut Packet) {
    pkt.slid = 0;
    pkt.dlid = envelope.dlid;
    pkt.sl = envelope.sl;
    pkt.path_bits = envelope.path_bits;
    pkt.lid_hops = 0;
    (pkt.rights, pkt.tenant, pkt.bound) = (0, 0, 0);
    pkt.src_qp = u32::from(qpn);
    pkt.dst_qp = envelope.dst_qp;
    pkt.q_key = envelope.q_key;
    pkt.p_key = 0;
    pkt.p_key_index = envelope.p_key_index;
    pkt.grh = grh_of(envelope);
}
