//! The half of the table that control writes with.
//!
//! One [`RoutePublisher`] per table, in one process: it holds the lock on the file. Changes go straight into the banks
//! that nobody reads; [`RoutePublisher::publish`] shows all tenants that changed at once, and then all routes. A publisher
//! that is killed anywhere leaves readers with the last published tenants and routes, and the next one brings the other
//! banks up to them. Killed between the two it leaves new tenants and old routes; the next one moves the generation,
//! so that everybody looks.
//!
//! Not here: the software table with its versions, when to publish, waiting for workers.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::area::Area;
use super::route::{self, RouteRecord};
use super::tenant::{self, TenantEntry, TenantRecord};
use super::{Geometry, RouteEntry, SharedTable, TableError, TableMemory, TableOptions, io_error};
use crate::errors;
use crate::header::{HeaderError, Incarnation, SegmentHeader, SegmentKind};
use crate::latency::LatencyHistogram;
use crate::map::{self, Mapping};
use crate::seqlock::pair::PairWriter;
use crate::seqlock::{Step, Writer};
use crate::status::MAX_WORKERS;
use crate::sync::{AtomicU64, Ordering};
use crate::tuning::TuningPatch;

/// Routes and tenants with their places, to be put into a new table.
#[derive(Debug, Default)]
struct Contents {
    routes: Vec<(u32, RouteEntry)>,
    tenants: Vec<(u32, TenantEntry)>,
    tuning: Vec<TuningPatch>,
    /// Generations of routes and tenants that the new table's come after.
    former: (u64, u64),
}

/// Writes the table.
#[derive(Debug)]
pub struct RoutePublisher {
    table: SharedTable,
    writer: PairWriter<Area<TenantRecord>, Area<RouteRecord>>,
    /// Tunings written since the generation moved.
    retuned: usize,
    _lock: File,
}

impl RoutePublisher {
    /// Makes an empty table at `path`, in place of one that is there; its readers keep what they have.
    ///
    /// # Errors
    /// [`TableError::Held`] names the process that writes the table at `path` now. Otherwise capacities out of range,
    /// or the file system refuses or is full.
    pub fn create(path: &Path, options: TableOptions, writer: Incarnation) -> Result<Self, TableError> {
        let old = lock_place(path)?;
        // generations go on, so that nobody takes a worker's old acknowledgement for a new one
        let former = attach_locked(&old, path).map_or((0, 0), |table| generations(&table));
        Self::make(path, options, writer, &Contents { former, ..Contents::default() })
    }

    /// Goes on with the table at `path`, or makes one if there is none. A table of other capacities is made anew with
    /// the routes it has, each at its place.
    ///
    /// # Errors
    /// [`TableError::Held`] names the process that writes the table now; [`TableError::Header`] names both versions of
    /// a table of another layout; [`TableError::Damaged`] names a field; [`TableError::TooSmall`] a route that the
    /// new capacity has no place for. The table is then as it was.
    pub fn open_or_create(
        path: &Path,
        options: TableOptions,
        writer: Incarnation,
    ) -> Result<Self, TableError> {
        Geometry::of(options)?;
        let lock = lock_place(path)?;
        if lock.metadata().map_err(io_error(path))?.len() == 0 {
            return Self::make(path, options, writer, &Contents::default());
        }
        let table = match attach_locked(&lock, path) {
            Err(TableError::Header { source: HeaderError::NotReady, .. }) => {
                return Self::make(path, options, writer, &Contents::default());
            }
            table => table?,
        };
        table.check_current_banks(path)?;
        table.header().take_over(writer);
        let mut former = Self::on(table, lock);
        if former.options() == options {
            former.show_unannounced_tenants();
            return Ok(former);
        }
        let contents = former.contents_for(path, options)?;
        Self::make(path, options, writer, &contents)
    }

    fn on(table: SharedTable, lock: File) -> Self {
        let first = Writer::open(table.tenants.clone());
        let second = Writer::open(table.routes.clone());
        Self { table, writer: PairWriter { first, second }, retuned: 0, _lock: lock }
    }

    /// Moves the generation if the former writer ended between showing tenants and moving it.
    fn show_unannounced_tenants(&mut self) {
        let shown = &self.table.control().tenants_shown;
        if shown.load(Ordering::Relaxed) != self.writer.first.generation() {
            self.writer.second.publish_anyway();
            self.note_publication();
        }
    }

    /// What a table of `options` in place of this one has to hold.
    fn contents_for(&self, path: &Path, options: TableOptions) -> Result<Contents, TableError> {
        let place = || path.display().to_string();
        let mut contents = Contents { former: generations(&self.table), ..Contents::default() };
        for index in 0..self.capacity() {
            let Some(entry) = self.get(index) else { continue };
            if index >= options.routes {
                return Err(TableError::TooSmall { path: place(), index, routes: options.routes });
            }
            contents.routes.push((index, entry));
        }
        for index in 0..self.options().tenants {
            let Some(entry) = self.get_tenant(index) else { continue };
            if index >= options.tenants {
                let number = tenant::number_of(index);
                return Err(TableError::TooFewTenants { path: place(), number, tenants: options.tenants });
            }
            contents.tenants.push((index, entry));
        }
        contents.tuning = (0..MAX_WORKERS).map(|worker| self.worker_tuning(worker)).collect();
        Ok(contents)
    }

    /// Makes a table under another name, fills it, and moves it into place. The caller holds the lock of the place.
    fn make(
        path: &Path,
        options: TableOptions,
        writer: Incarnation,
        contents: &Contents,
    ) -> Result<Self, TableError> {
        let geometry = Geometry::of(options)?;
        let fail = io_error(path);
        let (file, length) = map::create_file(path, geometry.total).map_err(&fail)?;
        file.try_lock().map_err(|error| fail(error.into()))?;
        let mapping = Arc::new(Mapping::writable(&file).map_err(&fail)?);
        let (routes_generation, tenants_generation) = (contents.former.0 + 1, contents.former.1 + 1);
        let table = SharedTable::format(&mapping, options, routes_generation, tenants_generation)
            .expect("the file was made long enough for its capacities");
        let mut publisher = Self::on(table, file);
        for (place, entry) in &contents.tenants {
            publisher.set_tenant(*place, entry);
        }
        for (index, entry) in &contents.routes {
            publisher.set(*index, entry);
        }
        for (worker, patch) in contents.tuning.iter().enumerate() {
            if !patch.is_empty() {
                publisher.set_worker_tuning(worker, patch);
            }
        }
        publisher.publish();
        let header = publisher.table.header();
        header.publish(SegmentKind::Table, length as u64, u64::from(options.routes), writer);
        map::publish_file(path).map_err(&fail)?;
        Ok(publisher)
    }

    /// Number of routes the table has room for.
    pub fn capacity(&self) -> u32 {
        self.table.options().routes
    }

    /// Capacities.
    pub fn options(&self) -> TableOptions {
        self.table.options()
    }

    /// Number of routes in the table, unpublished changes included.
    pub fn present(&self) -> u64 {
        self.writer.second.present()
    }

    /// Number of tenants in the table, unpublished changes included.
    pub fn tenants_present(&self) -> u64 {
        self.writer.first.present()
    }

    /// The route at `index`, unpublished changes included; `None` for a free place and for one out of range.
    pub fn get(&self, index: u32) -> Option<RouteEntry> {
        if index >= self.capacity() {
            return None;
        }
        match route::decode(index, self.writer.second.read(index).as_ref()) {
            route::Decoded::Present(entry) => Some(entry),
            route::Decoded::Absent | route::Decoded::Damaged => None,
        }
    }

    /// Places a route; readers see it after [`RoutePublisher::publish`]. Cost: constant.
    ///
    /// # Panics
    /// If `index` is not below [`RoutePublisher::capacity`] or the entry is not [`RouteEntry::is_sound`].
    pub fn set(&mut self, index: u32, entry: &RouteEntry) {
        assert!(index < self.capacity(), "place {index} of {}", self.capacity());
        assert!(entry.is_sound(), "a path of {} ports, broken paths as {}", entry.path_len, entry.on_broken);
        let change = i8::from(self.get(index).is_none());
        let routes = &mut self.writer.second;
        routes.write(index, &route::encode(index, routes.next_version(), Some(entry)), change);
    }

    /// Frees a place; readers see it after [`RoutePublisher::publish`]. Cost: constant.
    ///
    /// # Panics
    /// If `index` is not below [`RoutePublisher::capacity`].
    pub fn clear(&mut self, index: u32) {
        assert!(index < self.capacity(), "place {index} of {}", self.capacity());
        let change = -i8::from(self.get(index).is_some());
        let routes = &mut self.writer.second;
        routes.write(index, &route::encode(index, routes.next_version(), None), change);
    }

    /// The tenant at `place`, unpublished changes included; `None` for a free place and for one out of range.
    pub fn get_tenant(&self, place: u32) -> Option<TenantEntry> {
        if place >= self.options().tenants {
            return None;
        }
        match tenant::decode(place, self.writer.first.read(place).as_ref()) {
            tenant::Decoded::Present(entry) => Some(entry),
            tenant::Decoded::Absent | tenant::Decoded::Damaged => None,
        }
    }

    /// Places a tenant, whose number is then [`tenant::number_of`] `place`; readers see it after
    /// [`RoutePublisher::publish`]. Cost: constant.
    ///
    /// # Panics
    /// If `place` is not below the capacity for tenants or the entry is not [`TenantEntry::is_sound`].
    pub fn set_tenant(&mut self, place: u32, entry: &TenantEntry) {
        self.check_tenant_place(place);
        assert!(entry.is_sound(), "a tenant {entry:?}");
        let change = i8::from(self.get_tenant(place).is_none());
        let tenants = &mut self.writer.first;
        tenants.write(place, &tenant::encode(place, tenants.next_version(), Some(entry)), change);
    }

    /// Frees the place of a tenant; readers see it after [`RoutePublisher::publish`]. Cost: constant.
    ///
    /// # Panics
    /// If `place` is not below the capacity for tenants.
    pub fn clear_tenant(&mut self, place: u32) {
        self.check_tenant_place(place);
        let change = -i8::from(self.get_tenant(place).is_some());
        let tenants = &mut self.writer.first;
        tenants.write(place, &tenant::encode(place, tenants.next_version(), None), change);
    }

    fn check_tenant_place(&self, place: u32) {
        assert!(place < self.options().tenants, "tenant place {place} of {}", self.options().tenants);
    }

    /// What is asked of a worker; nothing for one whose record is damaged.
    pub fn worker_tuning(&self, worker: usize) -> TuningPatch {
        self.table.tuning().get(worker).and_then(|record| record.load(worker)).unwrap_or_default()
    }

    /// Asks a worker for a tuning; it looks after [`RoutePublisher::publish`]. Cost: constant.
    ///
    /// # Panics
    /// If `worker` is not below [`MAX_WORKERS`].
    pub fn set_worker_tuning(&mut self, worker: usize, patch: &TuningPatch) {
        self.table.tuning()[worker].store(worker, patch);
        self.retuned += 1;
    }

    /// Shows all changes since the last time, first the tenants and then the routes, and returns the generation that has
    /// them. Without changes the generation stays. Cost: by changes.
    pub fn publish(&mut self) -> u64 {
        let before = self.generation();
        let mut generation = self.writer.publish();
        if generation == before && self.retuned > 0 {
            generation = self.writer.second.publish_anyway();
        }
        self.retuned = 0;
        if generation != before {
            self.note_publication();
        }
        generation
    }

    fn note_publication(&self) {
        let control = self.table.control();
        control.tenants_shown.store(self.writer.first.generation(), Ordering::Relaxed);
        increment(&control.publications);
    }

    /// The generation that readers see.
    pub fn generation(&self) -> u64 {
        self.writer.second.generation()
    }

    /// Number of changed places, of routes and of tenants, and of tunings, that [`RoutePublisher::publish`] would show.
    pub fn pending(&self) -> usize {
        self.writer.first.pending() + self.writer.second.pending() + self.retuned
    }

    /// Counts a publication that a worker did not apply in time.
    pub fn note_failure(&self) {
        increment(&self.table.control().failures);
    }

    /// Counts an error in the table's distinct error log; see [`crate::errors`].
    pub fn record_error(&self, text: &str, now_unix_ns: u64) {
        errors::record(self.table.errors().iter(), text, now_unix_ns);
    }

    /// How long it took from publishing until every worker had applied it; kept in the file.
    pub fn sync_latency(&self) -> &LatencyHistogram {
        self.table.sync_latency()
    }

    /// Says in the segment how changes are batched; for people who look.
    pub fn set_tuning(&self, sync_interval_ms: u64, sync_threshold: u64) {
        let control = self.table.control();
        control.sync_interval_ms.store(sync_interval_ms, Ordering::Relaxed);
        control.sync_threshold.store(sync_threshold, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn table(&self) -> &SharedTable {
        &self.table
    }

    /// Calls `hook` after each step of writing; for tests that end the process there.
    #[doc(hidden)]
    pub fn set_step_hook(&mut self, hook: fn(Step)) {
        self.writer.first.set_step_hook(hook);
        self.writer.second.set_step_hook(hook);
    }
}

/// Only one thread of one process writes.
fn increment(word: &AtomicU64) {
    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn generations(table: &SharedTable) -> (u64, u64) {
    let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
    (of(table.routes.generation()), of(table.tenants.generation()))
}

/// Opens the file at `path`, empty if there was none, and locks it against other writers.
fn lock_place(path: &Path) -> Result<File, TableError> {
    let fail = io_error(path);
    loop {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(&fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(TableError::Held { path: path.display().to_string(), pid: holder(&file) });
            }
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        // a writer may have moved another file into place between our open and our lock
        let ours = file.metadata().map_err(&fail)?;
        if let Ok(named) = std::fs::metadata(path)
            && (named.dev(), named.ino()) == (ours.dev(), ours.ino())
        {
            return Ok(file);
        }
    }
}

fn holder(file: &File) -> u32 {
    let Ok(mapping) = Mapping::read_only(file) else { return 0 };
    mapping.atomics::<SegmentHeader>(0).map_or(0, |header| header.writer().pid)
}

fn attach_locked(file: &File, path: &Path) -> Result<SharedTable, TableError> {
    let mapping = Arc::new(Mapping::writable(file).map_err(io_error(path))?);
    SharedTable::attach(&mapping, path)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::table::snapshot::{Refresh, TableReader};
    use crate::table::{MAX_ROUTES, on_broken};

    fn route(number: u16) -> RouteEntry {
        let mut entry = RouteEntry::new(number, number + 1, &[1, 2, 255]).expect("three ports");
        entry.id = u64::from(number) << 32;
        entry.on_broken = on_broken::DROP;
        entry.tenant = 7;
        entry.priority = 3;
        entry.p_key = 0x8001;
        entry
    }

    fn options(routes: u32) -> TableOptions {
        TableOptions { routes, tenants: 3 }
    }

    fn writer(pid: u32) -> Incarnation {
        Incarnation { pid, ..Incarnation::default() }
    }

    fn follow(reader: &mut TableReader, copy: &mut BTreeMap<u32, RouteEntry>) -> Refresh {
        let mut keep = |index, entry: Option<&RouteEntry>| {
            match entry {
                Some(entry) => copy.insert(index, *entry),
                None => copy.remove(&index),
            };
        };
        reader.refresh(&mut keep, &mut |_, _| {})
    }

    #[test]
    fn a_reader_gets_exactly_what_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, options(100), writer(5)).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        assert_eq!((reader.writer().pid, reader.capacity(), publisher.capacity()), (5, 100, 100));
        let mut copy = BTreeMap::new();
        assert!(reader.changed());
        let first = follow(&mut reader, &mut copy);
        assert_eq!(first, Refresh { generation: 1, complete: true, ..Refresh::default() });
        assert!(!reader.changed());
        publisher.set(0, &route(1));
        publisher.set(99, &route(2));
        publisher.set(99, &route(3));
        assert!(!reader.changed());
        assert_eq!((publisher.get(99), publisher.present(), publisher.pending()), (Some(route(3)), 2, 2));
        assert_eq!(publisher.publish(), 2);
        assert!(reader.changed());
        let second = follow(&mut reader, &mut copy);
        assert_eq!(second, Refresh { generation: 2, changed: 2, complete: true, ..Refresh::default() });
        assert_eq!(copy, BTreeMap::from([(0, route(1)), (99, route(3))]));
        publisher.clear(0);
        assert_eq!((publisher.get(0), publisher.present()), (None, 1));
        publisher.publish();
        publisher.set(1, &route(4));
        assert_eq!(publisher.publish(), 4);
        assert_eq!(publisher.publish(), 4);
        assert_eq!(follow(&mut reader, &mut copy).changed, 2);
        assert_eq!(copy, BTreeMap::from([(1, route(4)), (99, route(3))]));
        let mut late = BTreeMap::new();
        let all = follow(&mut TableReader::open(&path).unwrap(), &mut late);
        assert_eq!((all.generation, &late), (4, &copy));
    }

    #[test]
    fn a_tuning_moves_the_generation_and_is_kept_by_a_grown_table() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, options(10), writer(1)).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        follow(&mut reader, &mut BTreeMap::new());
        let asked = TuningPatch::parse(["mode=adaptive", "burst=7"]).unwrap();
        for worker in [0, MAX_WORKERS - 1] {
            publisher.set_worker_tuning(worker, &asked);
        }
        assert_eq!((publisher.pending(), reader.changed()), (2, false));
        assert_eq!(publisher.publish(), 2);
        assert_eq!((publisher.pending(), publisher.publish()), (0, 2));
        assert!(reader.changed());
        assert_eq!(follow(&mut reader, &mut BTreeMap::new()).changed, 0);
        let seen = [0, 1, MAX_WORKERS - 1, MAX_WORKERS].map(|worker| reader.worker_tuning(worker));
        assert_eq!(seen, [Some(asked), Some(TuningPatch::default()), Some(asked), None]);
        drop(publisher);
        let grown = RoutePublisher::open_or_create(&path, options(20), writer(3)).unwrap();
        assert_eq!(grown.worker_tuning(MAX_WORKERS - 1), asked);
        assert_eq!(TableReader::open(&path).unwrap().worker_tuning(0), Some(asked));
    }

    #[test]
    fn a_reader_behind_by_more_than_the_journal_takes_a_full_pass() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let routes = 4096;
        let mut publisher = RoutePublisher::create(&path, options(routes), writer(5)).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        let mut copy = BTreeMap::new();
        follow(&mut reader, &mut copy);
        let mut expected = BTreeMap::new();
        for round in 0..5000u16 {
            let index = u32::from(round) % routes;
            publisher.set(index, &route(round));
            expected.insert(index, route(round));
            publisher.publish();
        }
        let caught = follow(&mut reader, &mut copy);
        assert_eq!((caught.generation, caught.changed, caught.refused), (5001, routes, 0));
        assert_eq!(copy, expected);
    }

    #[test]
    fn the_largest_table_is_published_and_followed_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, options(MAX_ROUTES), writer(5)).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        let (mut copy, mut late) = (BTreeMap::new(), BTreeMap::new());
        follow(&mut reader, &mut copy);
        for index in 0..MAX_ROUTES {
            publisher.set(index, &route(u16::try_from(index % 1000).unwrap()));
        }
        publisher.publish();
        assert_eq!(follow(&mut reader, &mut copy).changed, MAX_ROUTES);
        assert_eq!(follow(&mut TableReader::open(&path).unwrap(), &mut late).changed, MAX_ROUTES);
        assert_eq!(copy.len(), MAX_ROUTES as usize);
        assert!(copy == late && copy[&65_535] == route(535));
    }

    #[test]
    fn a_second_writer_is_refused_and_told_who_holds_the_table() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let first = RoutePublisher::open_or_create(&path, options(10), writer(4711)).unwrap();
        for attempt in [RoutePublisher::open_or_create, RoutePublisher::create] {
            let error = attempt(&path, options(10), writer(1)).unwrap_err();
            assert!(matches!(error, TableError::Held { pid: 4711, .. }), "{error}");
            assert!(error.to_string().ends_with("is written by process 4711"));
        }
        drop(first);
        let second = RoutePublisher::open_or_create(&path, options(10), writer(1)).unwrap();
        assert_eq!(TableReader::open(&path).unwrap().writer().pid, 1);
        drop(second);
    }

    #[test]
    fn a_reopened_table_goes_on_and_a_grown_one_keeps_routes_and_places() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, options(10), writer(1)).unwrap();
        publisher.set(9, &route(1));
        publisher.publish();
        publisher.set(8, &route(2));
        drop(publisher);
        let mut reader = TableReader::open(&path).unwrap();
        let mut copy = BTreeMap::new();
        follow(&mut reader, &mut copy);
        let mut publisher = RoutePublisher::open_or_create(&path, options(10), writer(2)).unwrap();
        assert_eq!((publisher.get(9), publisher.get(8), publisher.present()), (Some(route(1)), None, 1));
        publisher.set(7, &route(3));
        assert_eq!(publisher.publish(), 3);
        follow(&mut reader, &mut copy);
        assert_eq!(copy, BTreeMap::from([(9, route(1)), (7, route(3))]));
        drop(publisher);
        assert!(matches!(
            RoutePublisher::open_or_create(&path, options(9), writer(3)),
            Err(TableError::TooSmall { index: 9, routes: 9, .. })
        ));
        assert!(reader.is_at(&path));
        let grown = RoutePublisher::open_or_create(&path, options(20), writer(3)).unwrap();
        assert!(!reader.is_at(&path));
        assert!(grown.generation() > 3);
        assert_eq!((grown.get(9), grown.get(7), grown.present()), (Some(route(1)), Some(route(3)), 2));
    }

    #[test]
    fn a_new_table_in_place_of_an_old_one_has_a_later_generation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, options(10), writer(1)).unwrap();
        publisher.set(0, &route(1));
        publisher.publish();
        drop(publisher);
        let publisher = RoutePublisher::create(&path, options(10), writer(1)).unwrap();
        assert_eq!((publisher.generation(), publisher.present()), (3, 0));
    }

    #[test]
    fn capacities_out_of_range_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        for (routes, tenants) in [(0, 0), (MAX_ROUTES + 1, 0), (1, 1025)] {
            let attempt = RoutePublisher::open_or_create(&path, TableOptions { routes, tenants }, writer(1));
            assert!(matches!(attempt, Err(TableError::Options { .. })));
            assert!(!path.exists());
        }
    }

    fn tenant(name: &str, rate: u32) -> TenantEntry {
        let mut entry = TenantEntry::new(name).expect("a name");
        entry.rate = rate;
        entry.id = u64::from(rate) << 32;
        entry
    }

    type Tenants = Vec<(u32, Option<TenantEntry>)>;

    /// Refreshes and returns what was handed out: first tenants, then routes, in the order in which they came.
    fn look(reader: &mut TableReader) -> (Refresh, Tenants, Vec<u32>) {
        let (mut tenants, mut routes) = (Vec::new(), Vec::new());
        let done = reader.refresh(&mut |index, _| routes.push(index), &mut |place, entry| {
            tenants.push((place, entry.copied()));
        });
        (done, tenants, routes)
    }

    #[test]
    fn tenants_follow_the_generation_of_the_routes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, options(10), writer(5)).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        look(&mut reader);
        publisher.set_tenant(0, &tenant("blue", 1));
        publisher.set_tenant(2, &tenant("red", 2));
        publisher.set_tenant(2, &tenant("red", 3));
        assert!(!reader.changed());
        assert_eq!((publisher.pending(), publisher.tenants_present(), publisher.present()), (2, 2, 0));
        assert_eq!(publisher.get_tenant(2), Some(tenant("red", 3)));
        assert_eq!(publisher.publish(), 2);
        assert!(reader.changed());
        let (done, tenants, routes) = look(&mut reader);
        assert_eq!(
            done,
            Refresh { generation: 2, tenants_changed: 2, complete: true, ..Refresh::default() },
            "tenants alone move the one generation"
        );
        assert_eq!(tenants, [(0, Some(tenant("blue", 1))), (2, Some(tenant("red", 3)))]);
        assert!(routes.is_empty() && !reader.changed());
        publisher.clear_tenant(0);
        publisher.set(4, &route(1));
        assert_eq!((publisher.get_tenant(0), publisher.tenants_present()), (None, 1));
        assert_eq!(publisher.publish(), 3);
        let (done, tenants, routes) = look(&mut reader);
        assert_eq!((done.generation, tenants, routes), (3, vec![(0, None)], vec![4]));
        publisher.set(5, &route(2));
        assert_eq!((publisher.publish(), publisher.publish()), (4, 4));
        let (_, tenants, routes) = look(&mut reader);
        assert!(tenants.is_empty() && routes == [5]);
        assert_eq!(reader.tenants(), Some(vec![(2, tenant("red", 3))]));
        assert_eq!(reader.publications(), (3, 0), "making the empty table is none");
        let (done, tenants, routes) = look(&mut TableReader::open(&path).unwrap());
        assert_eq!(tenants, [(0, None), (2, Some(tenant("red", 3)))], "one that never looked hears of both");
        assert_eq!((done.generation, routes.len()), (4, 2));
    }

    #[test]
    fn a_table_has_0_to_1024_tenants_and_all_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        for tenants in [0, 1, 2, 3, 63, 64, 65, 511, 512, 513, 1023, 1024] {
            let path = directory.path().join(format!("table-{tenants}"));
            let options = TableOptions { routes: 1, tenants };
            let mut publisher = RoutePublisher::create(&path, options, writer(5)).unwrap();
            let mut reader = TableReader::open(&path).unwrap();
            look(&mut reader);
            for round in 1..4 {
                for place in 0..tenants {
                    publisher.set_tenant(place, &tenant(&format!("tenant-{place}"), round));
                }
                publisher.set(0, &route(1));
                publisher.publish();
                let (done, found, _) = look(&mut reader);
                assert!(done.complete && done.refused == 0 && done.generation == u64::from(round) + 1);
                assert_eq!((done.tenants_changed, found.len()), (tenants, tenants as usize));
                assert_eq!(publisher.tenants_present(), u64::from(tenants));
                let (_, late, _) = look(&mut TableReader::open(&path).unwrap());
                assert_eq!(late.len(), tenants as usize);
                assert!(late.iter().all(|(place, entry)| entry.unwrap().name() == format!("tenant-{place}")));
            }
            drop(publisher);
            let publisher = RoutePublisher::open_or_create(&path, options, writer(6)).unwrap();
            assert_eq!((publisher.generation(), publisher.tenants_present()), (4, u64::from(tenants)));
            assert_eq!(publisher.get_tenant(tenants), None);
            assert_eq!(reader.tenants().unwrap().len(), tenants as usize);
        }
    }

    #[test]
    fn a_reader_of_tenants_behind_by_more_than_their_journal_takes_all_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let options = TableOptions { routes: 1, tenants: 1024 };
        let mut publisher = RoutePublisher::create(&path, options, writer(5)).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        look(&mut reader);
        for round in 0..1500 {
            publisher.set_tenant(round % 1024, &tenant("t", round + 1));
            publisher.publish();
        }
        let (done, found, routes) = look(&mut reader);
        assert_eq!((done.generation, done.tenants_changed, routes.len()), (1501, 1024, 0));
        for (place, entry) in found {
            let newest = if place < 1500 - 1024 { place + 1025 } else { place + 1 };
            assert_eq!(entry.unwrap().rate, newest, "place {place}");
        }
    }

    #[test]
    fn a_table_of_another_capacity_keeps_its_tenants_and_a_smaller_one_names_the_first_it_would_lose() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let of = |routes, tenants| TableOptions { routes, tenants };
        let mut publisher = RoutePublisher::create(&path, of(10, 5), writer(1)).unwrap();
        publisher.set_tenant(3, &tenant("blue", 1));
        publisher.set(9, &route(1));
        publisher.publish();
        publisher.set_tenant(4, &tenant("never-shown", 1));
        drop(publisher);
        for tenants in [0, 3] {
            let error = RoutePublisher::open_or_create(&path, of(10, tenants), writer(1)).unwrap_err();
            assert!(matches!(error, TableError::TooFewTenants { number: 4, .. }), "{error}");
        }
        let before = TableReader::open(&path).unwrap().generation();
        for options in [of(10, 4), of(20, 1024), of(20, 4)] {
            let grown = RoutePublisher::open_or_create(&path, options, writer(3)).unwrap();
            assert_eq!((grown.tenants_present(), grown.present(), grown.options()), (1, 1, options));
            assert_eq!((grown.get_tenant(3), grown.get(9)), (Some(tenant("blue", 1)), Some(route(1))));
            assert!(grown.generation() > before);
        }
    }

    #[test]
    fn counts_latencies_and_errors_outlive_their_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, options(10), writer(1)).unwrap();
        for number in 1..=3 {
            publisher.set(0, &route(number));
            publisher.publish();
            publisher.sync_latency().record(u64::from(number) * 1000);
        }
        publisher.note_failure();
        publisher.record_error("DR table full", 7);
        drop(publisher);
        let reader = TableReader::open(&path).unwrap();
        assert_eq!((reader.publications(), reader.sync_latency().count()), ((3, 1), 3));
        assert_eq!((reader.errors().len(), reader.errors()[0].text.load()), (32, "DR table full".to_owned()));
        let publisher = RoutePublisher::open_or_create(&path, options(10), writer(2)).unwrap();
        publisher.record_error("DR table full", 9);
        publisher.sync_latency().record(5);
        assert_eq!(reader.errors()[0].count.load(Ordering::Relaxed), 2);
        assert_eq!(reader.errors()[0].last_unix_ns.load(Ordering::Relaxed), 9);
        assert_eq!((reader.sync_latency().count(), reader.sync_latency().longest_ns()), (4, 3000));
        for number in 0..40 {
            publisher.record_error(&format!("error {number}"), 10);
        }
        assert_eq!(reader.errors()[31].text.load(), "further errors (log full)");
        assert_eq!(reader.errors()[31].count.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn tenants_that_a_killed_writer_showed_without_moving_the_generation_are_announced_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, options(10), writer(1)).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        look(&mut reader);
        publisher.set_tenant(1, &tenant("blue", 1));
        // what a writer has done that is killed between the two
        publisher.writer.first.publish();
        drop(publisher);
        assert!(!reader.changed());
        let publisher = RoutePublisher::open_or_create(&path, options(10), writer(2)).unwrap();
        assert_eq!(publisher.generation(), 2);
        let (done, tenants, _) = look(&mut reader);
        assert_eq!((done.generation, tenants), (2, vec![(1, Some(tenant("blue", 1)))]));
        drop(publisher);
        RoutePublisher::open_or_create(&path, options(10), writer(2)).unwrap();
        assert!(!reader.changed(), "announced twice");
    }

    #[test]
    #[should_panic(expected = "tenant place 3 of 3")]
    fn a_place_of_a_tenant_out_of_range_is_a_fault_of_the_caller() {
        let directory = tempfile::tempdir().unwrap();
        let mut publisher =
            RoutePublisher::create(&directory.path().join("table"), options(10), writer(1)).unwrap();
        publisher.set_tenant(3, &tenant("blue", 1));
    }

    #[test]
    #[should_panic(expected = "place 10 of 10")]
    fn a_place_out_of_range_is_a_fault_of_the_caller() {
        let directory = tempfile::tempdir().unwrap();
        let mut publisher =
            RoutePublisher::create(&directory.path().join("table"), options(10), writer(1)).unwrap();
        publisher.set(10, &route(1));
    }
}
