//! A worker: one thread that owns a shard of the fabric and the sessions attached to it.
//!
//! [`Worker::poll`] is the duty cycle: a bounded burst from every session and from every other worker (`worker/turns.rs`:
//! whose turn it is), orders (`worker/errands.rs`), timers by deadline, doorbells. It reads no clock and never sleeps;
//! [`Worker::run`] does both (`worker/rest.rs`), the latter as an [`Idle`] says. On the way of a MAD nothing allocates, locks,
//! logs or calls the system; ringing the doorbell of a client that sleeps is the one exception, at most once per sleep.

mod attached;
mod errands;
mod linked;
mod rest;
mod turns;

use std::sync::Arc;

use madplane_engine::{Packet, Shard};
use madplane_port::{DEFAULT_BURST, Envelope};
use madplane_shm::counters::Counter;
use madplane_shm::doorbell::Doorbell;
use madplane_shm::status::{MAX_SESSIONS, Status};
use madplane_shm::sync::Ordering;
use madplane_shm::tuning::{Tuning, TuningPatch};

use crate::acl::{Acl, Meters};
use crate::devices::Devices;
use crate::egress::Egress;
use crate::idle::Idle;
use crate::links;
use crate::mesh::MeshEnds;
use crate::notices::{NoticeBox, notice_ring};
use crate::orders::OrderBox;
use crate::route_view::RouteView;
use crate::sleep::Sleeper;
use crate::telemetry::Telemetry;
use madplane_shm::process::monotonic_ns;

pub use linked::NewLink;

/// The receiving half of a session, and what is needed to check what it sends.
#[derive(Debug)]
struct SessionIn {
    slot: u32,
    generation: u32,
    node: u32,
    port: u8,
    rx: madplane_port::session::SessionRx,
    /// Rung by the client while the worker sleeps.
    bell: Option<Arc<Doorbell>>,
    received: u64,
    /// MADs taken since the worker last slept.
    batch: u64,
    member: crate::acl::Membership,
    /// Its tenant is of the reserved class.
    reserved: bool,
    /// Number of its own path plus 1, 0 for none.
    bound: u16,
}

/// A MAD taken from a session, where it is worked on until it has left the shard: its only copy between two rings.
#[derive(Debug, Clone, Default)]
struct Arrival {
    packet: Packet,
    envelope: Envelope,
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    index: usize,
    shard: Shard,
    sessions: Vec<SessionIn>,
    /// Places in `sessions` whose tenant is of the reserved class.
    reserved: Vec<usize>,
    /// The source of reserved MADs whose turn it is.
    turn: usize,
    /// Reserved MADs that may still be taken before others have to be.
    credit: usize,
    egress: Egress,
    devices: Devices,
    orders: OrderBox,
    routes: Option<Box<RouteView>>,
    telemetry: Telemetry,
    burst: Vec<Arrival>,
    /// MADs taken from a source at one time; as long as `burst`.
    most: usize,
    /// MADs that the last duty cycle found.
    mads: usize,
    idle: Idle,
    /// The last sleep was ended by a doorbell.
    woken: bool,
    /// What it sleeps in; without one it polls whatever the mode.
    sleeper: Option<Sleeper>,
    /// How it was started to wait.
    own_tuning: Tuning,
    /// How control asks it to, laid over that.
    asked: TuningPatch,
    stopping: bool,
}

impl Worker {
    /// Makes a worker for `shard`, alone with its tenants and with nobody to listen to its notices.
    pub fn new(index: usize, shard: Shard, mesh: MeshEnds, orders: OrderBox, status: Status) -> Self {
        Self {
            index,
            shard,
            sessions: Vec::with_capacity(MAX_SESSIONS),
            reserved: Vec::with_capacity(MAX_SESSIONS),
            turn: 0,
            credit: 0,
            egress: Egress::new(mesh, Acl::new(Arc::default()), notice_ring().0),
            devices: Devices::default(),
            orders,
            routes: None,
            telemetry: Telemetry::new(status, index, monotonic_ns()),
            burst: vec![Arrival::default(); DEFAULT_BURST],
            most: DEFAULT_BURST,
            mads: 0,
            idle: Idle::new(Tuning::default(), false),
            woken: false,
            sleeper: None,
            own_tuning: Tuning::default(),
            asked: TuningPatch::default(),
            stopping: false,
        }
    }

    /// Shares the rates of tenants with other workers, and tells housekeeping what is to be told.
    #[must_use]
    pub fn among(mut self, meters: Arc<Meters>, notices: NoticeBox) -> Self {
        self.egress.acl = Acl::new(meters);
        self.egress.notices = notices;
        self
    }

    /// Does everything that is due at `now_ns`; returns how much there was.
    pub fn poll(&mut self, now_ns: u64) -> usize {
        if self.routes.as_ref().is_some_and(|routes| routes.is_due()) {
            self.refresh_routes();
        }
        self.egress.now_ns = now_ns;
        let mut work = self.poll_rings(now_ns);
        if !self.egress.links.is_empty() {
            work += self.poll_links(now_ns);
        }
        if !self.devices.is_empty() {
            work += self.poll_devices(now_ns);
        }
        self.mads = work;
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
            work += self.wake_sessions(now_ns);
        }
        work
    }

    /// Takes over what has changed in the route table and says so.
    #[cold]
    fn refresh_routes(&mut self) {
        let Some(routes) = &mut self.routes else { return };
        let applied = routes.refresh(&mut self.shard, &mut self.egress.acl);
        let asked = applied.and_then(|_| routes.tuning(self.index));
        let tenants_moved = routes.tenants_moved();
        let (retries, refused) = routes.mishaps();
        if let Some(asked) = asked.filter(|asked| *asked != self.asked) {
            self.follow(&asked);
        }
        let block = self.telemetry.status().worker(self.index);
        block.table_retries.store(retries, Ordering::Relaxed);
        block.table_refused.store(refused, Ordering::Relaxed);
        if let Some(generation) = applied {
            block.applied_ns.store(monotonic_ns(), Ordering::Relaxed);
            // control looks at the generation first: the time is that of this generation
            block.applied_generation.store(generation, Ordering::Release);
        }
        if tenants_moved {
            self.sort_by_class();
        }
    }

    /// Shows all counts in the status segment; [`Worker::run`] does so by itself.
    pub fn commit(&mut self, now_ns: u64) {
        let pinned = self.shard.pinned_activity();
        self.egress.counts.set(Counter::DrCacheHit, pinned.cache_hits);
        self.egress.counts.set(Counter::DrCacheMiss, pinned.cache_misses);
        let stages = self.shard.stage_counts();
        for (counter, value) in [
            (Counter::ClassifyAccepted, stages.classify_accepted),
            (Counter::DlidRouted, stages.dlid_routed),
            (Counter::Sl2vlChecked, stages.sl_to_vl_checked),
            (Counter::PKeyChecked, stages.p_key_checked),
            (Counter::DrTableLooked, stages.dr_table_looked),
        ] {
            self.egress.counts.set(counter, value);
        }
        self.telemetry.commit(&self.egress.counts, now_ns);
        let status = self.telemetry.status();
        let block = status.worker(self.index);
        block.sessions.store(self.sessions.len() as u64, Ordering::Relaxed);
        let (held_ns, pkts) = self.idle.moderation();
        block.moderation_us.store(held_ns / 1_000, Ordering::Relaxed);
        block.moderation_pkts.store(pkts, Ordering::Relaxed);
        for end in self.egress.links.iter() {
            links::show(end, status.link(usize::from(end.number)));
        }
        for end in self.devices.iter() {
            end.show(status.device(end.number()));
        }
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
