//! The part of madctld that deals with routes and tenants: changes, files, publications, and who waits for them.
//!
//! Owned by the reactor, on its thread. Invariants: a request is answered once; a request that waits for the workers is
//! answered when all of them have its publication, or after [`crate::publish::SYNC_WITHIN`]; a file that comes in
//! parts is kept per client and applied with its last part, so that one whose client goes away leaves no trace. With
//! nothing to publish and nothing in flight there is no deadline.

use std::path::Path;
use std::time::{Duration, Instant};

use madplane_shm::paths::PlanePaths;
use madplane_shm::status::{MAX_WORKERS, Status};
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use serde_json::Value;
use tracing::{debug, error, warn};

use crate::admin_routes::{Latency, RouteAction, RoutesDone, RoutesStats};
use crate::admin_tenants::TenantsDone;
use crate::admin_tuning::TuningDone;
use crate::answer::Answer;
use crate::file_part::{FilePart, StagedFiles};
use crate::publish::{Arrival, Capacities, Landed, Level, Levels, Publisher, Tuning};
use crate::routes::{self, Route, SoftwareTable, TableError};
use crate::tenants::{Tenant, TenantTable};

mod tenants;
mod tuning;

/// A line of one kind is logged at most so often.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Keeps lines that repeat from filling the log.
#[derive(Debug, Default)]
struct LogLimit {
    logged: Option<Instant>,
    unlogged: u64,
}

impl LogLimit {
    /// How many lines were left out since the last one, if it is time for one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.logged.is_some_and(|last| now.saturating_duration_since(last) < LOG_PAUSE) {
            self.unlogged += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// What a change of either table did, without what is known only when the workers have it.
#[derive(Debug)]
enum Change {
    Routes(RoutesDone),
    Tenants(TenantsDone),
    Tuning(TuningDone),
}

impl Change {
    /// The answer to who wanted it.
    fn answer(self, id: &Value, arrival: Option<Arrival>) -> Answer {
        let synced = arrival.is_some();
        let Arrival { workers, latency_ns: hw_sync_latency_ns } = arrival.unwrap_or_default();
        match self {
            Self::Routes(done) => {
                Answer::done(id, &RoutesDone { synced, workers, hw_sync_latency_ns, ..done })
            }
            Self::Tenants(done) => {
                Answer::done(id, &TenantsDone { synced, workers, hw_sync_latency_ns, ..done })
            }
            Self::Tuning(done) => {
                Answer::done(id, &TuningDone { synced, workers, hw_sync_latency_ns, ..done })
            }
        }
    }
}

struct Waiting {
    peer: u64,
    id: Value,
    generation: u64,
    change: Change,
}

/// Routes and tenants of madctld.
pub struct RouteDesk {
    table: SoftwareTable,
    tenants: TenantTable,
    publisher: Publisher,
    status: Option<Status>,
    staged: StagedFiles<Route>,
    staged_tenants: StagedFiles<Tenant>,
    waiting: Vec<Waiting>,
    /// Something was published of which workers that sleep have not been told.
    unrung: bool,
    full_log: LogLimit,
    late_log: LogLimit,
}

impl std::fmt::Debug for RouteDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (routes, tenants) = (self.table.len(), self.tenants.len());
        f.debug_struct("RouteDesk")
            .field("routes", &routes)
            .field("tenants", &tenants)
            .finish_non_exhaustive()
    }
}

impl RouteDesk {
    /// Opens the table at `path` and takes over what is in it.
    ///
    /// # Errors
    /// As [`Publisher::open`].
    pub fn open(path: &Path, capacities: Capacities) -> Result<Self, madplane_shm::table::TableError> {
        let (publisher, table, tenants) = Publisher::open(path, capacities, Tuning::default())?;
        Ok(Self {
            table,
            tenants,
            publisher,
            status: None,
            staged: StagedFiles::new(),
            staged_tenants: StagedFiles::new(),
            waiting: Vec::new(),
            unrung: false,
            full_log: LogLimit::default(),
            late_log: LogLimit::default(),
        })
    }

    /// The plane is there: its workers are waited for from now on.
    pub fn plane_came(&mut self, paths: &PlanePaths) {
        self.status = Status::open(&paths.status_segment())
            .inspect_err(|error| warn!(%error, "cannot see which routes the workers have"))
            .ok();
    }

    /// The plane is gone: nobody is waited for.
    pub fn plane_gone(&mut self) {
        self.status = None;
    }

    /// A client is gone, and with it what it had not finished.
    pub fn forget(&mut self, peer: u64) {
        self.staged.forget(peer);
        self.staged_tenants.forget(peer);
        self.waiting.retain(|waiting| waiting.peer != peer);
    }

    /// Carries out a request about routes; the reply, unless the workers have to have it first.
    pub fn carry_out(&mut self, peer: u64, id: Value, action: RouteAction, now: Instant) -> Option<Answer> {
        let changed = match action {
            RouteAction::Stats => return Some(Answer::done(&id, &self.stats())),
            RouteAction::Sync => Ok((RoutesDone::default(), true)),
            RouteAction::Add { route, replace, sync } => {
                self.add(vec![route], replace).map_err(|refused| refused.1).map(|done| (done, sync))
            }
            RouteAction::Remove { key, sync } => {
                let change = [routes::Change::Remove(key)];
                self.change(&change).map_err(|refused| refused.1).map(|done| (done, sync))
            }
            RouteAction::Flush { sync } => {
                let removed = self.table.clear().removed;
                Ok((RoutesDone { removed, ..RoutesDone::default() }, sync))
            }
            RouteAction::Load(FilePart { lines, more, replace, sync }) => {
                let Some(file) = self.staged.take(peer, lines, more, self.table.capacity()) else {
                    return Some(Answer::done(&id, &self.describe(RoutesDone::default())));
                };
                let added = self.add(file.entries, replace);
                added.map_err(|refused| file.numbers.name(refused)).map(|done| (done, sync))
            }
        };
        match changed {
            Ok((done, sync)) => self.bring(peer, id, Change::Routes(done), sync, now),
            Err(text) => Some(Answer::failed(id, text)),
        }
    }

    /// Publishes a change at once or lets it wait for others; the reply, unless the workers have to have it first.
    fn bring(&mut self, peer: u64, id: Value, change: Change, sync: bool, now: Instant) -> Option<Answer> {
        if !sync {
            self.publisher.note_changes(self.table.changed() + self.tenants.changed(), now);
            let change = self.describe_change(change);
            if self.publisher.is_due(now) {
                self.publish(now);
            }
            return Some(change.answer(&id, None));
        }
        let generation = self.publish(now);
        let change = self.describe_change(change);
        let levels = self.applied();
        if !self.publisher.follow_up(&levels, now) {
            return Some(change.answer(&id, Some(Arrival { workers: levels.len(), latency_ns: None })));
        }
        if self.waiting.is_empty() {
            // workers that poll need less time than this thread's way through its loop
            let status = self.status.as_ref();
            let landed = self.publisher.look(|| applied(status), now);
            landed.iter().for_each(|landed| self.note(landed));
            if let Some(landed) = landed.last().filter(|landed| landed.generation >= generation) {
                return Some(settled(id, change, landed));
            }
        }
        self.waiting.push(Waiting { peer, id, generation, change });
        None
    }

    fn publish(&mut self, now: Instant) -> u64 {
        let before = self.publisher.generation();
        let generation = self.publisher.publish(&mut self.table, &mut self.tenants, now);
        self.unrung |= generation != before;
        generation
    }

    /// Puts routes in, all or none.
    fn add(&mut self, routes: Vec<Route>, replace: bool) -> Result<RoutesDone, (usize, String)> {
        let mut changes = Vec::with_capacity(routes.len());
        for route in routes {
            let tenant = match route.tenant() {
                None => 0,
                Some(name) => self
                    .tenants
                    .number(name)
                    .ok_or_else(|| (changes.len(), self.tenants.unknown(name).to_string()))?,
            };
            changes.push(routes::Change::Add { route, tenant, replace });
        }
        self.change(&changes)
    }

    fn change(&mut self, changes: &[routes::Change]) -> Result<RoutesDone, (usize, String)> {
        match self.table.apply(changes) {
            Ok(applied) => {
                debug!(
                    version = applied.version,
                    added = applied.added,
                    replaced = applied.replaced,
                    removed = applied.removed,
                    "routes changed"
                );
                let (added, replaced, removed) = (applied.added, applied.replaced, applied.removed);
                Ok(RoutesDone { added, replaced, removed, ..RoutesDone::default() })
            }
            Err(refused) => {
                if let TableError::Full { capacity, .. } = refused.why {
                    self.table_full(&format!("DR table full (max={capacity}), refusing route"));
                }
                Err((refused.position, refused.why.to_string()))
            }
        }
    }

    fn table_full(&mut self, text: &str) {
        self.publisher.record_error(text);
        if let Some(unlogged) = self.full_log.admit(Instant::now()) {
            warn!(unlogged, "{text}");
        }
    }

    /// Fills in how the tables are now.
    fn describe_change(&self, change: Change) -> Change {
        match change {
            Change::Routes(done) => Change::Routes(self.describe(done)),
            Change::Tenants(done) => Change::Tenants(self.describe_tenants(done)),
            Change::Tuning(done) => {
                Change::Tuning(TuningDone { generation: self.publisher.generation(), ..done })
            }
        }
    }

    fn describe(&self, done: RoutesDone) -> RoutesDone {
        RoutesDone {
            version: self.table.version(),
            routes: self.table.len(),
            capacity: self.table.capacity(),
            generation: self.publisher.generation(),
            ..done
        }
    }

    fn stats(&self) -> RoutesStats {
        let (publications, failures) = self.publisher.counts();
        let tuning = self.publisher.tuning();
        RoutesStats {
            version: self.table.version(),
            generation: self.publisher.generation(),
            routes: self.table.len(),
            capacity: self.table.capacity(),
            unpublished: self.table.changed() + self.tenants.changed(),
            sync_interval_ms: u64::try_from(tuning.interval.as_millis()).unwrap_or(u64::MAX),
            sync_threshold: tuning.threshold,
            publications,
            failures,
            hw_sync_latency: Latency::of(self.publisher.latency()),
        }
    }

    /// Does what has become due; replies to those who waited.
    pub fn on_time(&mut self, now: Instant) -> Vec<(u64, Answer)> {
        if self.publisher.is_due(now) {
            self.publish(now);
        }
        let status = self.status.as_ref();
        let landed = self.publisher.look(|| applied(status), now);
        landed.into_iter().flat_map(|landed| self.on_landed(&landed)).collect()
    }

    /// Logs what became of a publication.
    fn note(&mut self, landed: &Landed) {
        match &landed.outcome {
            Ok(arrival) => {
                debug!(landed.generation, arrival.workers, arrival.latency_ns, "routes are with the workers");
            }
            Err(late) => {
                let worker = late.worker;
                self.publisher.record_error(&format!("Failed to sync DR table (err=-110): worker {worker}"));
                if let Some(unlogged) = self.late_log.admit(Instant::now()) {
                    error!(unlogged, "{late}");
                }
            }
        }
    }

    fn on_landed(&mut self, landed: &Landed) -> Vec<(u64, Answer)> {
        self.note(landed);
        let (now, later): (Vec<Waiting>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.generation <= landed.generation);
        self.waiting = later;
        let answer = |Waiting { peer, id, change, .. }: Waiting| (peer, settled(id, change, landed));
        now.into_iter().map(answer).collect()
    }

    /// When [`RouteDesk::on_time`] wants to be called next.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        self.publisher.deadline(now)
    }

    /// Publishes what waits, for the last time.
    pub fn finish(&mut self, now: Instant) {
        self.publish(now);
    }

    fn applied(&self) -> Levels {
        applied(self.status.as_ref())
    }
}

/// The answer to who waited for a publication.
fn settled(id: Value, change: Change, landed: &Landed) -> Answer {
    match &landed.outcome {
        Ok(arrival) => change.answer(&id, Some(*arrival)),
        Err(late) => Answer::failed(id, late.to_string()),
    }
}

/// What each worker has applied; nothing if no plane runs.
fn applied(status: Option<&Status>) -> Levels {
    let Some(status) = status else { return Levels::default() };
    let workers = usize::try_from(status.plane().workers.load(Relaxed)).unwrap_or(MAX_WORKERS);
    let level = |index| {
        let block = status.worker(index);
        // pairs with the worker's release: its clock reading is that of this generation or a later one
        let generation = block.applied_generation.load(Acquire);
        Level { generation, applied_ns: block.applied_ns.load(Relaxed) }
    };
    (0..workers.min(MAX_WORKERS)).map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_line_is_logged_once_a_second_and_the_others_are_counted() {
        let mut limit = LogLimit::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let admitted = [0, 1, 999, 1000, 1500, 5000].map(|ms| limit.admit(at(ms)));
        assert_eq!(admitted, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
