//! A worker: one thread that owns a shard of the fabric and the sessions attached to it.
//!
//! [`Worker::poll`] is the duty cycle: a bounded burst from every session, a bounded burst from every other worker, orders,
//! timers by deadline, doorbells. It reads no clock and never sleeps; [`Worker::run`] does the first and an
//! [`IdleStrategy`] the second. On the way of a MAD nothing allocates, locks, logs or calls the system; ringing the doorbell
//! of a client that sleeps is the one exception, at most once per sleep.

use madplane_engine::{Packet, Shard};
use madplane_port::{DEFAULT_BURST, MadMessage, MadRx};
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::message::{MAD_LEN, kind};
use madplane_shm::status::{MAX_SESSIONS, Status};
use madplane_shm::sync::Ordering;
use madplane_wire::Mad;

use crate::agents::AgentId;
use crate::egress::{Egress, packet_from};
use crate::idle::IdleStrategy;
use crate::mesh::{Crossing, MeshEnds};
use crate::orders::{Order, OrderBox, Report};
use crate::route_view::RouteView;
use crate::sessions::{Session, SessionOut};
use crate::telemetry::Telemetry;
use madplane_shm::process::monotonic_ns;

/// Duty cycles without work between two looks at the clock.
const EMPTY_CYCLES_PER_CLOCK: u32 = 16;
/// Counters that moved are shown this long after the last time.
const COMMIT_NS: u64 = 1_000_000;
/// An idle worker shows that it lives this often.
const HEARTBEAT_NS: u64 = 100_000_000;

/// The receiving half of a session, and what is needed to check what it sends.
#[derive(Debug)]
struct SessionIn {
    slot: u32,
    generation: u32,
    node: u32,
    port: u8,
    rx: madplane_port::session::SessionRx,
    received: u64,
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    index: usize,
    shard: Shard,
    sessions: Vec<SessionIn>,
    egress: Egress,
    orders: OrderBox,
    routes: Option<Box<RouteView>>,
    telemetry: Telemetry,
    burst: Vec<MadMessage>,
    packet: Box<Packet>,
    stopping: bool,
}

impl Worker {
    /// Makes a worker for `shard`.
    pub fn new(index: usize, shard: Shard, mesh: MeshEnds, orders: OrderBox, status: Status) -> Self {
        Self {
            index,
            shard,
            sessions: Vec::with_capacity(MAX_SESSIONS),
            egress: Egress::new(mesh),
            orders,
            routes: None,
            telemetry: Telemetry::new(status, index, monotonic_ns()),
            burst: vec![MadMessage::default(); DEFAULT_BURST],
            packet: Box::default(),
            stopping: false,
        }
    }

    /// Does everything that is due at `now_ns`; returns how much there was.
    pub fn poll(&mut self, now_ns: u64) -> usize {
        if self.routes.as_ref().is_some_and(|routes| routes.is_due()) {
            self.refresh_routes();
        }
        self.egress.now_ns = now_ns;
        let mut work = self.poll_sessions(now_ns);
        work += self.poll_mesh(now_ns);
        if let Some(order) = self.orders.take() {
            let report = self.carry_out(order, now_ns);
            self.orders.answer(report);
            work += 1;
        }
        if self.shard.next_deadline().is_some_and(|deadline| deadline <= now_ns) {
            self.shard.run_timers(now_ns, &mut self.egress);
            work += 1;
        }
        if work > 0 {
            while let Some(lost) = self.egress.next_overflow() {
                self.shard.count_overflow(lost.node, lost.port, lost.qp);
            }
            self.egress.flush();
        }
        work
    }

    fn poll_sessions(&mut self, now_ns: u64) -> usize {
        let mut work = 0;
        for session in &mut self.sessions {
            let count = session.rx.rx_burst(&mut self.burst);
            if count == 0 {
                continue;
            }
            for message in &self.burst[..count] {
                match accept(session, &self.egress, message, &mut self.packet) {
                    Ok(()) => {
                        self.shard.send(
                            now_ns,
                            session.node,
                            session.port,
                            &mut self.packet,
                            &mut self.egress,
                        );
                    }
                    Err(reason) => self.egress.counts.drop(reason),
                }
            }
            session.rx.release();
            session.received += count as u64;
            self.egress.counts.add(Counter::SessionReceived, count as u64);
            work += count;
        }
        work
    }

    fn poll_mesh(&mut self, now_ns: u64) -> usize {
        let mut work = 0;
        for other in 0..self.egress.mesh.workers() {
            for _ in 0..DEFAULT_BURST {
                match self.egress.mesh.receive(other) {
                    None => break,
                    Some(Crossing::Mad { node, port, packet }) => {
                        *self.packet = packet;
                        self.shard.arrive(now_ns, node, port, &mut self.packet, &mut self.egress);
                        self.egress.counts.add(Counter::ShardReceived, 1);
                    }
                    Some(Crossing::Peer(event)) => {
                        self.shard.peer_event(now_ns, event, &mut self.egress);
                        self.egress.counts.add(Counter::ShardEvents, 1);
                    }
                }
                work += 1;
            }
        }
        work
    }

    /// Takes over what has changed in the route table and says so.
    #[cold]
    fn refresh_routes(&mut self) {
        let Some(routes) = &mut self.routes else { return };
        let applied = routes.refresh(&mut self.shard);
        let block = self.telemetry.status().worker(self.index);
        let (retries, refused) = routes.mishaps();
        block.table_retries.store(retries, Ordering::Relaxed);
        block.table_refused.store(refused, Ordering::Relaxed);
        if let Some(generation) = applied {
            block.applied_ns.store(monotonic_ns(), Ordering::Relaxed);
            // control looks at the generation first: the time is that of this generation
            block.applied_generation.store(generation, Ordering::Release);
        }
    }

    fn carry_out(&mut self, order: Order, now_ns: u64) -> Report {
        match order {
            Order::Open(session) => self.open(*session),
            Order::Close { slot } => self.close(slot),
            Order::Register { id, spec } => {
                let Some(session) = self.egress.session(id.slot).filter(|s| s.generation == id.generation)
                else {
                    return Report::Unknown;
                };
                let (node, port) = (session.node, session.port);
                if let Err(error) = self.egress.requests.add(node, port, id, spec) {
                    return Report::Refused(error);
                }
                if let Some(place) =
                    self.egress.session_mut(id.slot).and_then(|s| s.agents.get_mut(id.agent as usize))
                {
                    *place = Some(spec);
                }
                Report::Done(None)
            }
            Order::Unregister { id } => {
                let Some(session) = self.egress.session_mut(id.slot).filter(|s| s.agent(id).is_some()) else {
                    return Report::Unknown;
                };
                session.agents[id.agent as usize] = None;
                let (node, port) = (session.node, session.port);
                self.egress.requests.remove(node, port, id);
                Report::Done(None)
            }
            Order::SetIsSm { node, port, on } => {
                self.shard.set_is_sm(now_ns, node, port, on, &mut self.egress);
                Report::Done(None)
            }
            Order::SetLink { node, port, up } => {
                self.shard.set_link(now_ns, node, port, up, &mut self.egress);
                Report::Done(None)
            }
            Order::Reboot { node } => {
                self.shard.reboot_node(now_ns, node, &mut self.egress);
                Report::Done(None)
            }
            Order::Routes(view) => {
                let former = self.routes.take();
                if let Some(former) = &former {
                    former.withdraw(&mut self.shard);
                }
                self.egress.route_counters = Some(view.counters().clone());
                self.routes = Some(view);
                Report::Replaced(former)
            }
            Order::Stop => {
                self.stopping = true;
                Report::Done(None)
            }
        }
    }

    fn open(&mut self, session: Session) -> Report {
        let Session { slot, generation, node, port, rx, out, received } = session;
        if !self.egress.open(slot, out) {
            return Report::Unknown;
        }
        self.sessions.push(SessionIn { slot, generation, node, port, rx, received });
        Report::Done(None)
    }

    fn close(&mut self, slot: u32) -> Report {
        let place = self.sessions.iter().position(|session| session.slot == slot);
        let (Some(place), Some(out)) = (place, self.egress.close(slot)) else { return Report::Unknown };
        let SessionIn { slot, generation, node, port, rx, received } = self.sessions.remove(place);
        Report::Done(Some(Box::new(Session { slot, generation, node, port, rx, out, received })))
    }

    /// Polls until ordered to stop.
    pub fn run(mut self, mut idle: impl IdleStrategy) {
        let mut now_ns = monotonic_ns();
        let mut committed_ns = 0;
        let mut empty: u32 = 0;
        let mut moved = false;
        while !self.stopping {
            let work = self.poll(now_ns);
            if work > 0 {
                let after_ns = monotonic_ns();
                // `now_ns` may be some empty cycles old; that little is counted as busy
                self.telemetry.full_cycle(after_ns.saturating_sub(now_ns));
                now_ns = after_ns;
                (moved, empty) = (true, 0);
            } else {
                empty += 1;
                if empty == EMPTY_CYCLES_PER_CLOCK {
                    empty = 0;
                    self.telemetry.empty_cycles(u64::from(EMPTY_CYCLES_PER_CLOCK));
                    now_ns = monotonic_ns();
                }
            }
            if now_ns.saturating_sub(committed_ns) > if moved { COMMIT_NS } else { HEARTBEAT_NS } {
                self.commit(now_ns);
                (moved, committed_ns) = (false, now_ns);
            }
            idle.idle(work);
        }
        self.commit(now_ns);
    }

    fn commit(&mut self, now_ns: u64) {
        let pinned = self.shard.pinned_activity();
        self.egress.counts.set(Counter::DrCacheHit, pinned.cache_hits);
        self.egress.counts.set(Counter::DrCacheMiss, pinned.cache_misses);
        self.telemetry.commit(&self.egress.counts, now_ns);
        let status = self.telemetry.status();
        status.worker(self.index).sessions.store(self.sessions.len() as u64, Ordering::Relaxed);
        for session in &self.sessions {
            let record = status.session(session.slot as usize);
            record.received.store(session.received, Ordering::Relaxed);
            if let Some(out) = self.egress.session(session.slot) {
                record.sent.store(out.sent, Ordering::Relaxed);
                record.dropped.store(out.dropped, Ordering::Relaxed);
            }
        }
    }
}

/// Checks what a client sent and turns it into a packet.
fn accept(
    session: &SessionIn,
    egress: &Egress,
    message: &MadMessage,
    packet: &mut Packet,
) -> Result<(), DropReason> {
    let envelope = &message.envelope;
    if envelope.kind != kind::MAD || envelope.length as usize != MAD_LEN {
        return Err(DropReason::Malformed);
    }
    let id = AgentId::from_hi_tid(envelope.agent);
    if id.slot != session.slot || id.generation != session.generation {
        return Err(DropReason::UnknownAgent);
    }
    let spec = egress.session(id.slot).and_then(|out: &SessionOut| out.agent(id));
    let Some(spec) = spec else { return Err(DropReason::UnknownAgent) };
    packet_from(message, spec.qpn, packet);
    if !Mad::new(&packet.mad).is_response() {
        // the way back: see `agents`
        packet.mad[8..12].copy_from_slice(&id.hi_tid().to_be_bytes());
    }
    Ok(())
}
