//! Whose turn it is: bursts from sessions and from other workers, the reserved class first.
//!
//! Part of [`Worker`], same thread. Without tenants of the reserved class every session gives up to a burst per duty cycle,
//! and then every other worker. With them, what is not reserved is taken in chunks of [`BULK_CHUNK`], and before and between
//! any two chunks the reserved sources are emptied, so that a reserved MAD waits for a chunk at the most, however many others
//! there are. At most [`RESERVED_BURST`] reserved MADs go between two chunks, fewer if the chunk was not full, so that whoever
//! floods the plane in the reserved class leaves a tenth of it to everybody else who wants it: a credit, which a cycle
//! without other work fills up again.

use madplane_engine::{Packet, Shard};
use madplane_port::MadRx;
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::message::{Envelope, MAD_LEN, kind};
use madplane_wire::Mad;

use super::{Arrival, SessionIn, Worker};
use crate::agents::AgentId;
use crate::devices::{Devices, is_device};
use crate::egress::{Egress, fill_from};
use crate::mesh::Crossing;
use crate::sessions::SessionOut;

/// MADs that are not reserved, between two looks at the reserved ones.
const BULK_CHUNK: usize = 4;
/// Reserved MADs between two full chunks of others.
const RESERVED_BURST: usize = 32;
/// Reserved MADs of one source before the next has its turn.
const RESERVED_TURN: usize = 8;

const _: () = assert!(BULK_CHUNK * 10 >= BULK_CHUNK + RESERVED_BURST, "a tenth is left to others");

impl Worker {
    /// Finds out anew which sessions are of the reserved class.
    #[cold]
    pub(super) fn sort_by_class(&mut self) {
        self.reserved.clear();
        self.turn = 0;
        for (at, session) in self.sessions.iter_mut().enumerate() {
            session.reserved = self.egress.acl.is_reserved(session.member);
            if session.reserved {
                self.reserved.push(at);
            }
            if let Some(out) = self.egress.session_mut(session.slot) {
                out.reserved = session.reserved;
            }
        }
    }

    /// Takes what sessions and other workers have, from each up to a burst.
    pub(super) fn poll_rings(&mut self, now_ns: u64) -> usize {
        if self.egress.acl.has_reserved() {
            return self.poll_by_class(now_ns);
        }
        let (mut work, most) = (0, self.most);
        for at in 0..self.sessions.len() {
            work += self.serve(at, most, now_ns);
        }
        if self.egress.mesh.workers() > 1 {
            for other in 0..self.egress.mesh.workers() {
                // the last reserved tenant may have gone while MADs of it were on their way
                work += self.serve_reserved_mesh(other, most, now_ns);
                work += self.serve_mesh(other, most, now_ns);
            }
        }
        work
    }

    fn poll_by_class(&mut self, now_ns: u64) -> usize {
        let mut work = self.serve_reserved(now_ns);
        let mut others = 0;
        let sessions = self.sessions.len();
        for source in 0..sessions + self.egress.mesh.workers() {
            if self.sessions.get(source).is_some_and(|session| session.reserved) {
                continue;
            }
            for _ in 0..self.most.div_ceil(BULK_CHUNK) {
                let taken = match source.checked_sub(sessions) {
                    None => self.serve(source, BULK_CHUNK, now_ns),
                    Some(other) => self.serve_mesh(other, BULK_CHUNK, now_ns),
                };
                if taken > 0 {
                    others += taken;
                    self.credit = (self.credit + taken * RESERVED_BURST / BULK_CHUNK).min(RESERVED_BURST);
                    work += taken + self.serve_reserved(now_ns);
                }
                if taken < BULK_CHUNK {
                    break;
                }
            }
        }
        if others == 0 {
            self.credit = RESERVED_BURST;
        }
        work
    }

    /// Takes what the reserved sources have, each in its turn, as far as the credit goes.
    fn serve_reserved(&mut self, now_ns: u64) -> usize {
        let sessions = self.reserved.len();
        let sources = sessions + self.egress.mesh.workers();
        let mut served = 0;
        let mut idle = 0;
        while self.credit > 0 && idle < sources {
            if self.turn >= sources {
                self.turn = 0;
            }
            let most = self.credit.min(RESERVED_TURN);
            let taken = match self.reserved.get(self.turn) {
                Some(at) => {
                    let taken = self.serve(*at, most, now_ns);
                    self.egress.counts.add(Counter::ReservedReceived, taken as u64);
                    taken
                }
                None => self.serve_reserved_mesh(self.turn - sessions, most, now_ns),
            };
            idle = if taken == 0 { idle + 1 } else { 0 };
            self.credit -= taken;
            served += taken;
            self.turn += 1;
        }
        if served > 0 {
            self.egress.flush_reserved();
        }
        served
    }

    fn serve_mesh(&mut self, other: usize, most: usize, now_ns: u64) -> usize {
        for taken in 0..most {
            let Some(crossing) = self.egress.mesh.receive(other) else { return taken };
            self.take_over(crossing, now_ns);
        }
        most
    }

    fn serve_reserved_mesh(&mut self, other: usize, most: usize, now_ns: u64) -> usize {
        for taken in 0..most {
            let Some(crossing) = self.egress.mesh.receive_reserved(other) else { return taken };
            self.take_over(crossing, now_ns);
        }
        most
    }

    fn take_over(&mut self, crossing: Crossing, now_ns: u64) {
        match crossing {
            Crossing::Mad { node, port, mut packet } => {
                self.shard.arrive(now_ns, node, port, &mut packet, &mut self.egress);
                self.egress.counts.add(Counter::ShardReceived, 1);
            }
            Crossing::Peer(event) => {
                self.shard.peer_event(now_ns, event, &mut self.egress);
                self.egress.counts.add(Counter::ShardEvents, 1);
            }
        }
    }

    /// Takes up to `most` MADs from the session at `at`.
    fn serve(&mut self, at: usize, most: usize, now_ns: u64) -> usize {
        let Self { sessions, burst, shard, egress, devices, .. } = self;
        let (Some(session), Some(burst)) = (sessions.get_mut(at), burst.get_mut(..most)) else { return 0 };
        // all of them first: their cache lines come from the client's core at the same time
        let mut count = 0;
        for Arrival { packet, envelope } in burst.iter_mut() {
            if !session.rx.rx_parts(envelope, &mut packet.mad) {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return 0;
        }
        if is_device(session.node) {
            leave_by_device(session, egress, (devices, shard), now_ns, &mut burst[..count]);
        } else {
            for Arrival { packet, envelope } in &mut burst[..count] {
                let own_key = |index| shard.sender_p_key(session.node, session.port, index);
                match accept(session, egress, own_key, envelope, now_ns, packet) {
                    Ok(()) => shard.send(now_ns, session.node, session.port, packet, egress),
                    Err(reason) => egress.counts.drop(reason),
                }
            }
        }
        session.rx.release();
        session.received += count as u64;
        session.batch += count as u64;
        egress.counts.add(Counter::SessionReceived, count as u64);
        count
    }

    /// Wakes sessions that sleep; a system call each, so that the reserved class is looked at in between.
    pub(super) fn wake_sessions(&mut self, now_ns: u64) -> usize {
        let mut work = 0;
        if self.egress.acl.has_reserved() {
            // those that are given something meanwhile wait for the end
            for _ in 0..self.egress.given() {
                if self.egress.flush_next() {
                    work += self.serve_reserved(now_ns);
                }
            }
        }
        self.egress.flush();
        work
    }
}

/// Sends what a session at a device has sent, all of it at once.
#[inline(never)]
fn leave_by_device(
    session: &SessionIn,
    egress: &mut Egress,
    (devices, shard): (&mut Devices, &Shard),
    now_ns: u64,
    burst: &mut [Arrival],
) {
    let Some(end) = devices.at(session.node) else {
        burst.iter().for_each(|_| egress.counts.drop(DropReason::DeviceDown));
        return;
    };
    for Arrival { packet, envelope } in burst {
        let own_key = |index| end.identity().p_key(index);
        let sent = accept(session, egress, own_key, envelope, now_ns, packet);
        let id = AgentId::from_hi_tid(envelope.agent);
        if let Err(reason) = sent.and_then(|()| end.send(id, packet, now_ns, shard, egress)) {
            egress.counts.drop(reason);
        }
    }
    end.give(&mut egress.counts);
}

/// Checks what a client sent and makes a packet of it, whose MAD is there already.
fn accept(
    session: &SessionIn,
    egress: &mut Egress,
    own_key: impl Fn(u16) -> Option<u16>,
    envelope: &Envelope,
    now_ns: u64,
    packet: &mut Packet,
) -> Result<(), DropReason> {
    if envelope.kind != kind::MAD || envelope.length as usize != MAD_LEN {
        return Err(DropReason::Malformed);
    }
    let id = AgentId::from_hi_tid(envelope.agent);
    if id.slot != session.slot || id.generation != session.generation {
        return Err(DropReason::UnknownAgent);
    }
    let spec = egress.session(id.slot).and_then(|out: &SessionOut| out.agent(id));
    let Some(spec) = spec else { return Err(DropReason::UnknownAgent) };
    fill_from(envelope, spec.qpn, packet);
    packet.bound = session.bound;
    if !session.member.is_none() {
        admit(session, egress, own_key, now_ns, packet)?;
    }
    if !Mad::new(&packet.mad).is_response() {
        // the way back: see `agents`
        packet.mad[8..12].copy_from_slice(&id.hi_tid().to_be_bytes());
    }
    Ok(())
}

/// Checks what a tenant's session sends against what the tenant may.
fn admit(
    session: &SessionIn,
    egress: &mut Egress,
    own_key: impl Fn(u16) -> Option<u16>,
    now_ns: u64,
    packet: &mut Packet,
) -> Result<(), DropReason> {
    egress.counts.add(Counter::AclChecked, 1);
    let refusal = egress.acl.admit(session.member, now_ns, &own_key, packet);
    if refusal == Err(DropReason::TenantPKey)
        && let Some(key) = own_key(packet.p_key_index)
    {
        egress.refused_by_tenant(session.member, key);
    }
    refusal
}
