//! Brings the software tables, routes and tenants, to the workers: batches, publications, and who has them.
//!
//! Owned by madctld's thread; the only caller of [`RoutePublisher`]. Changes wait for [`Tuning::interval`] after the first
//! of them, or until there are [`Tuning::threshold`] of them, or for nobody. A publication is in flight until every
//! worker says in the status segment that it has applied it; the time that takes is `hw_sync_latency`, kept in the segment. One that is not
//! applied within [`SYNC_WITHIN`] has failed; it stays published and a worker that wakes up takes it.
//!
//! Nothing here sleeps: the caller comes back at [`Publisher::deadline`]. What was published is in shared memory and
//! survives this process.

use std::collections::VecDeque;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use madplane_shm::latency::LatencyHistogram;
use madplane_shm::status::MAX_WORKERS;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::{
    DEFAULT_ROUTES, DEFAULT_TENANTS, MAX_PATH_PORTS, RouteEntry, TableError, TableOptions, on_broken, tenant,
};
use madplane_shm::tuning::TuningPatch;
use tracing::{info, warn};

use crate::routes::{OnBroken, Placed, RawRoute, Route, SoftwareTable};
use crate::tenants::{self, Tenant, TenantTable};
use madplane_shm::process;

/// How long workers may take to apply a publication.
pub const SYNC_WITHIN: Duration = Duration::from_secs(1);
/// How long a publication looks for its arrival before it lets the other work of madctld go on.
const LOOK_AT_ONCE_NS: u64 = 20_000;

/// When changes are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// After the first change that waits.
    pub interval: Duration,
    /// As soon as so many changes wait.
    pub threshold: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { interval: Duration::from_millis(100), threshold: 64 }
    }
}

/// Places of the table; what is not given stays as it is, or is the default in a new table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacities {
    /// For routes.
    pub routes: Option<u32>,
    /// For tenants.
    pub tenants: Option<u32>,
}

/// Why a publication did not arrive; one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Failed to sync DR table (err=-110): worker {worker} is at generation {applied}, not {generation}, after {} ms", SYNC_WITHIN.as_millis())]
pub struct SyncError {
    /// The first worker that does not follow.
    pub worker: usize,
    /// What it has applied.
    pub applied: u64,
    /// What it should have.
    pub generation: u64,
}

/// A publication that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrival {
    /// Workers that have it; 0 if no plane runs.
    pub workers: usize,
    /// From publication until the last worker had it, by the workers' own clock readings; nothing without workers.
    pub latency_ns: Option<u64>,
}

/// What became of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landed {
    /// Its generation.
    pub generation: u64,
    /// Whether all workers have it.
    pub outcome: Result<Arrival, SyncError>,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    generation: u64,
    published: Instant,
    published_ns: u64,
    /// False for a look at an old publication: its time says nothing.
    measured: bool,
}

/// What a worker says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level {
    /// Generation that it forwards by.
    pub generation: u64,
    /// Monotonic clock, nanoseconds, when it began to.
    pub applied_ns: u64,
}

/// What each worker says of itself; nothing if no plane runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Levels {
    levels: [Level; MAX_WORKERS],
    count: usize,
}

impl FromIterator<Level> for Levels {
    fn from_iter<I: IntoIterator<Item = Level>>(from: I) -> Self {
        let mut made = Self::default();
        for (place, level) in made.levels.iter_mut().zip(from) {
            *place = level;
            made.count += 1;
        }
        made
    }
}

impl Deref for Levels {
    type Target = [Level];

    fn deref(&self) -> &[Level] {
        &self.levels[..self.count]
    }
}

/// The way to the workers.
#[derive(Debug)]
pub struct Publisher {
    segment: RoutePublisher,
    tuning: Tuning,
    due: Option<Instant>,
    flights: VecDeque<Flight>,
    publications: u64,
    failures: u64,
}

impl Publisher {
    /// Opens the segment at `path`, or makes it, and rebuilds the software tables from it. Routes and tenants stay at
    /// their places, whatever the capacities.
    ///
    /// # Errors
    /// The table cannot be made, mapped or locked, is damaged or of another layout, or has something at places that a
    /// smaller one has not. It is then as it was.
    pub fn open(
        path: &Path,
        capacities: Capacities,
        tuning: Tuning,
    ) -> Result<(Self, SoftwareTable, TenantTable), TableError> {
        let former = TableReader::open(path).ok().map(|reader| reader.options());
        let new = TableOptions { routes: DEFAULT_ROUTES, tenants: DEFAULT_TENANTS };
        let TableOptions { routes, tenants } = former.unwrap_or(new);
        let options = TableOptions {
            routes: capacities.routes.unwrap_or(routes),
            tenants: capacities.tenants.unwrap_or(tenants),
        };
        let segment = RoutePublisher::open_or_create(path, options, process::incarnation())?;
        let interval_ms = u64::try_from(tuning.interval.as_millis()).unwrap_or(u64::MAX);
        segment.set_tuning(interval_ms, u64::try_from(tuning.threshold).unwrap_or(u64::MAX));
        let tenants = restore_tenants(&segment);
        let routes = restore_routes(&segment, &tenants);
        if !routes.is_empty() || !tenants.is_empty() {
            let generation = segment.generation();
            info!(routes = routes.len(), tenants = tenants.len(), generation, "taken over");
        }
        let flights = VecDeque::new();
        Ok((Self { segment, tuning, due: None, flights, publications: 0, failures: 0 }, routes, tenants))
    }

    /// Says that changes wait; they are published when [`Publisher::deadline`] has come.
    pub fn note_changes(&mut self, waiting: usize, now: Instant) {
        let latest = if waiting >= self.tuning.threshold { now } else { now + self.tuning.interval };
        if waiting > 0 {
            self.due = Some(self.due.map_or(latest, |due| due.min(latest)));
        }
    }

    /// Whether the batch has become due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Publishes what waits, if anything does; the generation that holds all changes so far.
    pub fn publish(&mut self, table: &mut SoftwareTable, tenants: &mut TenantTable, now: Instant) -> u64 {
        self.due = None;
        for place in tenants.take_changed() {
            match tenants.get(place) {
                Some(placed) => self.segment.set_tenant(place, &placed.tenant.to_entry(placed.id)),
                None => self.segment.clear_tenant(place),
            }
        }
        for index in table.take_changed() {
            match table.get(index) {
                Some(placed) => self.segment.set(index, &entry(placed)),
                None => self.segment.clear(index),
            }
        }
        if self.segment.pending() == 0 {
            return self.generation();
        }
        let published_ns = process::monotonic_ns();
        let generation = self.segment.publish();
        self.publications += 1;
        self.flights.push_back(Flight { generation, published: now, published_ns, measured: true });
        generation
    }

    /// What is asked of a worker.
    pub fn worker_tuning(&self, worker: usize) -> TuningPatch {
        self.segment.worker_tuning(worker)
    }

    /// Asks a worker for a tuning with the next publication.
    pub fn set_worker_tuning(&mut self, worker: usize, patch: &TuningPatch) {
        self.segment.set_worker_tuning(worker, patch);
    }

    /// Waits for the workers once more if the last publication is not in flight any more but has not reached all of them;
    /// true if something is in flight.
    pub fn follow_up(&mut self, levels: &[Level], now: Instant) -> bool {
        let generation = self.generation();
        if self.flights.is_empty() && levels.iter().any(|level| level.generation < generation) {
            let published_ns = process::monotonic_ns();
            self.flights.push_back(Flight { generation, published: now, published_ns, measured: false });
        }
        !self.flights.is_empty()
    }

    /// Looks which publications have arrived, given what each worker has applied; no worker means no plane.
    pub fn look(&mut self, applied: impl Fn() -> Levels, now: Instant) -> Vec<Landed> {
        let mut landed = Vec::new();
        let mut levels = applied();
        while let Some(flight) = self.flights.front().copied() {
            let behind =
                |levels: &[Level]| levels.iter().position(|level| level.generation < flight.generation);
            // just published: the workers need less time than a trip to the kernel and back
            while behind(&levels).is_some() && process::monotonic_ns() < flight.published_ns + LOOK_AT_ONCE_NS
            {
                std::hint::spin_loop();
                levels = applied();
            }
            let outcome = match behind(&levels) {
                None => {
                    let last = levels.iter().map(|level| level.applied_ns).max();
                    let latency_ns =
                        last.filter(|_| flight.measured).map(|last| last.saturating_sub(flight.published_ns));
                    if let Some(ns) = latency_ns {
                        self.segment.sync_latency().record(ns);
                    }
                    Ok(Arrival { workers: levels.len(), latency_ns })
                }
                Some(worker) if now.saturating_duration_since(flight.published) >= SYNC_WITHIN => {
                    self.failures += 1;
                    self.segment.note_failure();
                    let applied = levels.get(worker).map_or(0, |level| level.generation);
                    Err(SyncError { worker, applied, generation: flight.generation })
                }
                Some(_) => break,
            };
            self.flights.pop_front();
            landed.push(Landed { generation: flight.generation, outcome });
        }
        landed
    }

    /// When something has to be done next: the batch, or a look at the workers, seldomer the longer they take.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let look = self.flights.front().map(|flight| {
            let age = now.saturating_duration_since(flight.published);
            now + (age / 4).clamp(Duration::from_micros(20), Duration::from_millis(10))
        });
        look.into_iter().chain(self.due).min()
    }

    /// The last publication that is not known to have arrived.
    pub fn in_flight(&self) -> Option<u64> {
        self.flights.back().map(|flight| flight.generation)
    }

    /// Generation of the table in shared memory.
    pub fn generation(&self) -> u64 {
        self.segment.generation()
    }

    /// When changes are published.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Publications of this process, and how many of them failed to arrive.
    pub fn counts(&self) -> (u64, u64) {
        (self.publications, self.failures)
    }

    /// From publication until every worker had it, of this and all former daemons that wrote the segment.
    pub fn latency(&self) -> &LatencyHistogram {
        self.segment.sync_latency()
    }

    /// Counts an error in the segment's distinct error log.
    pub fn record_error(&self, text: &str) {
        self.segment.record_error(text, process::unix_ns());
    }
}

fn restore_tenants(segment: &RoutePublisher) -> TenantTable {
    let mut table = TenantTable::new(segment.options().tenants);
    for place in 0..table.capacity() {
        let Some(entry) = segment.get_tenant(place) else { continue };
        let placed = Tenant::from_entry(&entry).map(|tenant| tenants::Placed { tenant, id: entry.id });
        if !placed.is_some_and(|placed| table.restore(place, placed)) {
            warn!(place, "a tenant of the table is not valid or is there twice; it is left alone");
        }
    }
    table
}

fn restore_routes(segment: &RoutePublisher, tenants: &TenantTable) -> SoftwareTable {
    let mut table = SoftwareTable::new(segment.capacity());
    let name = |number| {
        let placed = tenants.get(tenant::place_of(number)?)?;
        Some(placed.tenant.name().to_owned())
    };
    for index in 0..segment.capacity() {
        let Some(entry) = segment.get(index) else { continue };
        if !placed(&entry, name).is_some_and(|placed| table.restore(index, placed)) {
            warn!(index, "a route of the table is not valid or is there twice; it is left alone");
        }
    }
    table
}

/// A route as it lies in the segment.
pub fn entry(placed: &Placed) -> RouteEntry {
    let route = &placed.route;
    let (slid, dlid) = route.key();
    let mut path = [0; MAX_PATH_PORTS];
    path.iter_mut().zip(route.path()).for_each(|(word, port)| *word = *port);
    RouteEntry {
        slid,
        dlid,
        p_key: route.p_key(),
        priority: route.priority(),
        on_broken: match route.on_broken() {
            OnBroken::Fallback => on_broken::FALLBACK,
            OnBroken::Drop => on_broken::DROP,
        },
        tenant: placed.tenant,
        path,
        path_len: u8::try_from(route.path().len()).unwrap_or(0),
        id: placed.id,
    }
}

/// A route of the segment; `None` if it is no valid route. Tenants are named by number.
pub fn placed(entry: &RouteEntry, name: impl Fn(u16) -> Option<String>) -> Option<Placed> {
    let path = entry.path.get(..usize::from(entry.path_len))?;
    let raw = RawRoute {
        p_key: entry.p_key.into(),
        priority: entry.priority.into(),
        on_broken: if entry.on_broken == on_broken::FALLBACK { OnBroken::Fallback } else { OnBroken::Drop },
        tenant: name(entry.tenant),
        ..RawRoute::new(entry.slid, entry.dlid, path)
    };
    Some(Placed { route: Route::try_from(raw).ok()?, tenant: entry.tenant, id: entry.id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Change;
    use crate::tenants::RawTenant;

    fn small() -> Capacities {
        Capacities { routes: Some(100), tenants: Some(5) }
    }

    fn bench(tuning: Tuning) -> (tempfile::TempDir, Publisher, SoftwareTable) {
        let directory = tempfile::tempdir().unwrap();
        let opened = Publisher::open(&directory.path().join("table"), small(), tuning).unwrap();
        (directory, opened.0, opened.1)
    }

    fn none() -> TenantTable {
        TenantTable::new(0)
    }

    fn add(table: &mut SoftwareTable, dlid: u16) {
        let route = Route::try_from(RawRoute::new(1, dlid, &[1, 2])).unwrap();
        table.apply(&[Change::Add { route, tenant: 0, replace: false }]).unwrap();
    }

    #[test]
    fn a_batch_is_due_after_the_interval_or_at_the_threshold() {
        let (_directory, mut publisher, mut table) = bench(Tuning { threshold: 3, ..Tuning::default() });
        let start = Instant::now();
        assert_eq!(publisher.deadline(start), None, "nothing to do, no timer");
        add(&mut table, 2);
        publisher.note_changes(table.changed(), start);
        add(&mut table, 3);
        publisher.note_changes(table.changed(), start + Duration::from_millis(60));
        assert_eq!(
            publisher.deadline(start),
            Some(start + Duration::from_millis(100)),
            "the first one counts"
        );
        assert!(!publisher.is_due(start + Duration::from_millis(99)));
        assert!(publisher.is_due(start + Duration::from_millis(100)));
        add(&mut table, 4);
        publisher.note_changes(table.changed(), start + Duration::from_millis(70));
        assert!(publisher.is_due(start + Duration::from_millis(70)), "three wait");
        let before = publisher.generation();
        let generation = publisher.publish(&mut table, &mut none(), start);
        assert_eq!((generation, publisher.generation()), (before + 1, before + 1));
        assert!(!publisher.is_due(start + Duration::from_secs(9)));
        assert_eq!(
            publisher.publish(&mut table, &mut none(), start),
            generation,
            "nothing waits, nothing is published"
        );
    }

    #[test]
    fn a_publication_lands_when_the_last_worker_has_it() {
        let (_directory, mut publisher, mut table) = bench(Tuning::default());
        let start = Instant::now();
        add(&mut table, 2);
        let generation = publisher.publish(&mut table, &mut none(), start);
        let level = |generation| Level { generation, applied_ns: process::monotonic_ns() + 5_000 };
        assert_eq!(
            publisher.look(|| [level(generation), level(generation - 1)].into_iter().collect(), start),
            []
        );
        assert_eq!(publisher.in_flight(), Some(generation));
        assert!(publisher.deadline(start).is_some());
        let landed = publisher.look(|| [level(generation), level(generation)].into_iter().collect(), start);
        let Ok(Arrival { workers: 2, latency_ns: Some(ns) }) = landed[0].outcome else {
            panic!("{landed:?}")
        };
        assert!(ns >= 5_000, "{ns}");
        assert_eq!(
            (publisher.in_flight(), publisher.latency().count(), publisher.deadline(start)),
            (None, 1, None)
        );
    }

    #[test]
    fn a_publication_fails_after_a_second_and_later_ones_need_not() {
        let (_directory, mut publisher, mut table) = bench(Tuning::default());
        let start = Instant::now();
        add(&mut table, 2);
        let first = publisher.publish(&mut table, &mut none(), start);
        let late = start + SYNC_WITHIN;
        add(&mut table, 3);
        let second = publisher.publish(&mut table, &mut none(), late);
        let at = |generation| move || Levels::from_iter([Level { generation, applied_ns: 1 }]);
        let landed = publisher.look(at(first - 1), late);
        let error = SyncError { worker: 0, applied: first - 1, generation: first };
        assert_eq!(landed, [Landed { generation: first, outcome: Err(error.clone()) }]);
        assert!(error.to_string().starts_with("Failed to sync DR table (err=-110): worker 0"), "{error}");
        assert_eq!(publisher.counts(), (2, 1));
        assert!(publisher.follow_up(&at(first)(), late), "the second is still in flight");
        let landed = publisher.look(at(second), late);
        assert!(landed.len() == 1 && landed[0].outcome.is_ok(), "{landed:?}");
        assert!(!publisher.follow_up(&at(second)(), late), "all have it");
        assert!(publisher.follow_up(&at(first)(), late), "a worker has fallen behind");
        let landed = publisher.look(at(second), late);
        assert_eq!(landed[0].outcome, Ok(Arrival { workers: 1, latency_ns: None }), "nothing to measure");
    }

    #[test]
    fn without_a_worker_there_is_nobody_to_wait_for_and_nothing_to_measure() {
        let (_directory, mut publisher, mut table) = bench(Tuning::default());
        add(&mut table, 2);
        let generation = publisher.publish(&mut table, &mut none(), Instant::now());
        let landed = publisher.look(Levels::default, Instant::now());
        let outcome = Ok(Arrival { workers: 0, latency_ns: None });
        assert_eq!(landed, [Landed { generation, outcome }]);
        assert_eq!(publisher.latency().count(), 0);
    }

    #[test]
    fn the_tables_are_rebuilt_from_the_segment_place_by_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let (mut publisher, mut table, mut tenants) =
            Publisher::open(&path, small(), Tuning::default()).unwrap();
        for dlid in 2..40 {
            add(&mut table, dlid);
        }
        let tenant = |name: &str| Tenant::try_from(RawTenant { rate: 9, ..RawTenant::new(name) }).unwrap();
        let new = |name: &str| tenants::Change::Add { tenant: tenant(name), replace: false };
        tenants.apply(&[new("red"), new("blue"), new("green")]).unwrap();
        tenants.apply(&[tenants::Change::Remove("red".into())]).unwrap();
        let raw = RawRoute { tenant: Some("blue".into()), ..RawRoute::new(7, 8, &[1]) };
        let of_blue = Change::Add {
            route: Route::try_from(raw).unwrap(),
            tenant: tenants.number("blue").unwrap(),
            replace: false,
        };
        table.apply(&[Change::Remove((1, 2)), Change::Remove((1, 30)), of_blue]).unwrap();
        publisher.publish(&mut table, &mut tenants, Instant::now());
        let image = |table: &SoftwareTable, tenants: &TenantTable| {
            let routes = (0..100).map(|index| table.get(index).cloned()).collect::<Vec<_>>();
            (routes, tenants.iter().map(|(place, placed)| (place, placed.clone())).collect::<Vec<_>>())
        };
        let before = image(&table, &tenants);
        let sizes = |routes, tenants| Capacities { routes, tenants };
        for capacities in [
            sizes(None, None),
            sizes(Some(200), None),
            sizes(Some(100), Some(1024)),
            sizes(None, Some(3)),
            sizes(None, None),
        ] {
            drop(publisher);
            (publisher, table, tenants) = Publisher::open(&path, capacities, Tuning::default()).unwrap();
            assert_eq!(image(&table, &tenants), before, "{capacities:?}");
            assert_eq!((table.changed(), tenants.changed()), (0, 0));
        }
        assert_eq!((table.capacity(), tenants.capacity()), (100, 3));
        drop(publisher);
        for (capacities, expected) in [
            (sizes(Some(10), None), "a table of 10 routes would lose it"),
            (sizes(None, Some(2)), "a table of 2"),
        ] {
            let error = Publisher::open(&path, capacities, Tuning::default()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
