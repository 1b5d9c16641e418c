//! The half of the table that everybody reads with.
//!
//! A [`TableReader`] belongs to one thread. [`TableReader::changed`] is one load; [`TableReader::refresh`] hands out what
//! changed, whole and of one generation, for a copy that the caller keeps. The mapping is read-only, so a reader cannot
//! disturb the writer or another reader, and needs neither of the daemons to be alive.
//!
//! Memory: 182 bytes a route and 662 a tenant of the capacities and some 40 KiB, touched when the reader is opened; a
//! refresh allocates nothing.
//!
//! Not here: what a route means, and noticing that the file was replaced without being asked ([`TableReader::is_at`]).

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::area::Area;
use super::route::{self, RouteRecord};
use super::tenant::{self, TenantEntry, TenantRecord};
use super::{RouteEntry, SharedTable, TableError, TableOptions, io_error};
use crate::errors::ErrorRecord;
use crate::header::{HeaderError, Incarnation};
use crate::latency::LatencyHistogram;
use crate::map::{Mapping, length_of};
use crate::seqlock::Reader;
use crate::seqlock::pair::{PairReader, PairRefresh};
use crate::sync::Ordering;
use crate::tuning::TuningPatch;

/// Attempts of [`TableReader::tenants`].
const TRIES_FOR_PEOPLE: u32 = 100;

/// What a look at a changed table brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refresh {
    /// The generation that the reader's copy of the routes now is of; its copy of the tenants is of this one or later.
    pub generation: u64,
    /// Routes handed out.
    pub changed: u32,
    /// Tenants handed out.
    pub tenants_changed: u32,
    /// Copies that the writer overtook and that were thrown away.
    pub retries: u32,
    /// Routes and tenants not handed out because they are damaged.
    pub refused: u32,
    /// False if the writer overtook too often: routes, and tenants, are whole but perhaps not of one generation, or the old
    /// ones; [`TableReader::changed`] stays true.
    pub complete: bool,
}

/// Reads the table.
///
/// ```
/// use madplane_shm::header::Incarnation;
/// use madplane_shm::table::publish::RoutePublisher;
/// use madplane_shm::table::snapshot::TableReader;
/// use madplane_shm::table::tenant::{TenantEntry, number_of};
/// use madplane_shm::table::{RouteEntry, TableOptions};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("table");
/// let mut publisher = RoutePublisher::create(&path, TableOptions::default(), Incarnation::default())?;
/// let mut route = RouteEntry::new(0x11, 0x22, &[1, 2, 3]).unwrap();
/// route.tenant = number_of(0);
/// publisher.set_tenant(0, &TenantEntry::new("blue").unwrap());
/// publisher.set(7, &route);
/// let generation = publisher.publish();
///
/// let mut reader = TableReader::open(&path)?;
/// let (mut names, mut paths) = (Vec::new(), Vec::new());
/// assert!(reader.changed());
/// let done = reader.refresh(
///     &mut |place, route| paths.extend(route.map(|route| (place, route.ports().to_vec()))),
///     &mut |place, tenant| names.extend(tenant.map(|tenant| (number_of(place), tenant.name().to_owned()))),
/// );
/// assert!(done.complete && done.generation == generation && !reader.changed());
/// assert_eq!((names, paths), (vec![(1, "blue".to_owned())], vec![(7, vec![1, 2, 3])]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TableReader {
    table: SharedTable,
    reader: PairReader<Area<TenantRecord>, Area<RouteRecord>>,
    identity: (u64, u64),
}

impl TableReader {
    /// Opens the table at `path`.
    ///
    /// # Errors
    /// [`TableError::Io`] when it is not there; [`TableError::Header`] when it is of another layout version, naming
    /// both, or not ready yet; [`TableError::Damaged`] when a stored offset or length is wrong.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let fail = io_error(path);
        let file = File::open(path).map_err(&fail)?;
        if length_of(&file).map_err(&fail)? == 0 {
            let source = HeaderError::NotReady;
            return Err(TableError::Header { path: path.display().to_string(), source });
        }
        let found = file.metadata().map_err(&fail)?;
        let mapping = Arc::new(Mapping::read_only(&file).map_err(&fail)?);
        let table = SharedTable::attach(&mapping, path)?;
        let reader = PairReader::new(table.tenants.clone(), table.routes.clone());
        Ok(Self { table, reader, identity: (found.dev(), found.ino()) })
    }

    /// Whether the file at `path` is the one this reader has mapped. For housekeeping: a system call.
    pub fn is_at(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }

    /// Whether something was published since the last complete refresh. One load.
    pub fn changed(&self) -> bool {
        self.reader.changed()
    }

    /// The generation of the last complete refresh, 0 before the first.
    pub fn generation(&self) -> u64 {
        self.reader.generation()
    }

    /// Capacities.
    pub fn options(&self) -> TableOptions {
        self.table.options()
    }

    /// Number of routes the table has room for.
    pub fn capacity(&self) -> u32 {
        self.table.options().routes
    }

    /// Who writes the table, or wrote it last.
    pub fn writer(&self) -> Incarnation {
        self.table.header().writer()
    }

    /// The mapped table; for tests.
    #[doc(hidden)]
    pub fn table(&self) -> &SharedTable {
        &self.table
    }

    /// Interval in milliseconds and number of changes after which control publishes.
    pub fn tuning(&self) -> (u64, u64) {
        let control = self.table.control();
        (control.sync_interval_ms.load(Ordering::Relaxed), control.sync_threshold.load(Ordering::Relaxed))
    }

    /// What is asked of a worker; `None` while that is written (the generation moves afterwards), if it is damaged, and for a
    /// worker that cannot be.
    pub fn worker_tuning(&self, worker: usize) -> Option<TuningPatch> {
        self.table.tuning().get(worker)?.load(worker)
    }

    /// Generations published by writers of this file, and how many of them a worker did not apply in time.
    pub fn publications(&self) -> (u64, u64) {
        let control = self.table.control();
        (control.publications.load(Ordering::Relaxed), control.failures.load(Ordering::Relaxed))
    }

    /// How long it took from publishing until every worker had applied it.
    pub fn sync_latency(&self) -> &LatencyHistogram {
        self.table.sync_latency()
    }

    /// The distinct error log of the table's writers.
    pub fn errors(&self) -> &[ErrorRecord] {
        self.table.errors()
    }

    /// Calls `routes` once for each place that changed since the last complete refresh, with its route or `None` for a
    /// place that is free now, and `tenants` likewise for each place of a tenant. Tenants come first, unless more of them
    /// are published meanwhile. All routes are of the generation returned, all tenants of that one or later.
    ///
    /// A damaged entry is counted in [`Refresh::refused`] and not handed out: the caller's copy keeps the last good one.
    /// Never waits: with the writer overtaking again and again it gives up and says so; routes, and tenants, are handed out
    /// all or none.
    pub fn refresh(
        &mut self,
        routes: &mut impl FnMut(u32, Option<&RouteEntry>),
        tenants: &mut impl FnMut(u32, Option<&TenantEntry>),
    ) -> Refresh {
        let done = self
            .reader
            .refresh(&mut |place, words| accept_tenant(place, words, tenants), &mut |index, words| {
                accept_route(index, words, routes)
            });
        done.into()
    }

    /// Does a part of [`TableReader::refresh`], for a reader that must not be away for long: all tenants, and no more
    /// than `budget` places looked at. Complete when the caller's copy is of the generation returned; until then the next
    /// call goes on, [`TableReader::changed`] stays true, and some routes are already of a later generation than
    /// [`TableReader::generation`] says. Each is whole, and a publication of no more changes than `budget` comes in one.
    pub fn advance(
        &mut self,
        budget: u32,
        routes: &mut impl FnMut(u32, Option<&RouteEntry>),
        tenants: &mut impl FnMut(u32, Option<&TenantEntry>),
    ) -> Refresh {
        let done = self.reader.advance(
            budget,
            &mut |place, words| accept_tenant(place, words, tenants),
            &mut |index, words| accept_route(index, words, routes),
        );
        done.into()
    }

    /// Whether [`TableReader::advance`] goes through the whole table, because the reader is new or has fallen behind too
    /// far.
    pub fn goes_through_all(&self) -> bool {
        self.reader.goes_through_all()
    }

    /// All sound tenants with their places, for people: a copy of its own, which allocates and leaves
    /// [`TableReader::refresh`] as it is. `None` if the writer overtakes a hundred times.
    pub fn tenants(&self) -> Option<Vec<(u32, TenantEntry)>> {
        let mut found = Vec::new();
        let mut reader = Reader::new(self.table.tenants.clone());
        for _ in 0..TRIES_FOR_PEOPLE {
            let done = reader.refresh(&mut |place, words| {
                accept_tenant(place, words, &mut |place, entry: Option<&TenantEntry>| {
                    found.extend(entry.map(|entry| (place, *entry)));
                })
            });
            if done.complete {
                found.sort_unstable_by_key(|(place, _)| *place);
                return Some(found);
            }
        }
        None
    }
}

impl From<PairRefresh> for Refresh {
    fn from(done: PairRefresh) -> Self {
        Self {
            generation: done.second.generation,
            changed: done.second.changed,
            tenants_changed: done.first.changed,
            retries: done.first.retries + done.second.retries,
            refused: done.first.refused + done.second.refused,
            complete: done.complete,
        }
    }
}

/// Hands a sound route, or a free place, to `apply`; whether it was one.
fn accept_route(index: u32, words: &[u64], apply: &mut impl FnMut(u32, Option<&RouteEntry>)) -> bool {
    match route::decode(index, words) {
        route::Decoded::Present(entry) => {
            apply(index, Some(&entry));
            true
        }
        route::Decoded::Absent => {
            apply(index, None);
            true
        }
        route::Decoded::Damaged => false,
    }
}

/// Hands a sound tenant, or a free place, to `apply`; whether it was one.
fn accept_tenant(place: u32, words: &[u64], apply: &mut impl FnMut(u32, Option<&TenantEntry>)) -> bool {
    match tenant::decode(place, words) {
        tenant::Decoded::Present(entry) => {
            apply(place, Some(&entry));
            true
        }
        tenant::Decoded::Absent => {
            apply(place, None);
            true
        }
        tenant::Decoded::Damaged => false,
    }
}
