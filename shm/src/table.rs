//! The table: routes and tenants that control publishes and workers follow without waiting for anybody.
//!
//! | word | writer | readers | ordering |
//! |---|---|---|---|
//! | header, geometry in [`TableControl`] | madctld, before the file gets its name | openers | ordered by the header's version |
//! | other words of [`TableControl`], error log, latencies | madctld | anyone | relaxed, for people |
//! | [`TuningRecord`]s | madctld, before it moves the routes' generation | workers | see [`crate::tuning`] |
//! | [`GenerationLine`]s, journals, banks | madctld ([`publish`]) | anyone ([`snapshot`]) | see [`crate::seqlock`] |
//!
//! Tenants and routes have an area each: generation, journal and two banks of their own. Tenants are shown first, and the
//! routes' generation moves afterwards, so it is the one word to look at ([`crate::seqlock::pair`]).
//!
//! Exactly one process writes: it holds a lock on the file that the kernel takes back when the process ends. Readers map
//! read-only; they need neither daemon to be alive. The whole geometry follows from the two capacities, and an opener
//! compares every stored offset and length with it and with its own mapping.
//!
//! Not here: when something is published, what a route or a tenant means for a MAD, whether a path exists.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::errors::ErrorRecord;
use crate::header::{HeaderError, SegmentHeader, SegmentKind};
use crate::latency::LatencyHistogram;
use crate::map::{Mapping, Placed};
use crate::status::MAX_WORKERS;
use crate::sync::{AtomicU64, Ordering};
use crate::tuning::TuningRecord;

mod area;
pub mod publish;
mod route;
pub mod snapshot;
pub mod tenant;

pub(crate) use area::checksum;
use area::{Area, AreaShape, BANK_HEADER_BYTES, BankFault, record_word};
pub use area::{BankHeader, GenerationLine, TableMemory};
use route::route_word;
pub use route::{ROUTE_WORDS, RouteEntry, RouteRecord, RouteWords, on_broken};
use tenant::{TenantRecord, tenant_word};

/// Most routes of a table.
pub const MAX_ROUTES: u32 = 65_536;
/// Most tenants of a table.
pub const MAX_TENANTS: u32 = 1024;
/// Routes unless configured otherwise.
pub const DEFAULT_ROUTES: u32 = 1024;
/// Tenants unless configured otherwise.
pub const DEFAULT_TENANTS: u32 = 64;
/// Most ports in a path.
pub const MAX_PATH_PORTS: usize = 63;
/// Least number of journal words of the routes.
pub const MIN_JOURNAL_WORDS: u32 = 4096;
/// Least number of journal words of the tenants.
pub const MIN_TENANT_JOURNAL_WORDS: u32 = 512;
/// Distinct errors kept beside the table.
pub const TABLE_ERRORS: usize = 32;

const ROUTE_GENERATION_AT: usize = 128;
const TENANT_GENERATION_AT: usize = 256;
const CONTROL_AT: usize = 384;
const ERRORS_AT: usize = 4096;
const LATENCY_AT: usize = ERRORS_AT + TABLE_ERRORS * size_of::<ErrorRecord>();
const TUNING_AT: usize = LATENCY_AT + size_of::<LatencyHistogram>();
const ROUTES_AT: usize = (TUNING_AT + MAX_WORKERS * size_of::<TuningRecord>()).next_multiple_of(4096);

/// Geometry, tuning and counts.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct TableControl {
    /// Routes in each bank.
    pub capacity_routes: AtomicU64,
    /// Tenants in each bank.
    pub capacity_tenants: AtomicU64,
    /// Offset of the routes' journal.
    pub journal_at: AtomicU64,
    /// Words of the routes' journal.
    pub journal_words: AtomicU64,
    /// Offsets of the routes' banks.
    pub bank_at: [AtomicU64; 2],
    /// Length of a bank of routes.
    pub bank_bytes: AtomicU64,
    /// Offset of the tenants' journal.
    pub tenant_journal_at: AtomicU64,
    /// Words of the tenants' journal.
    pub tenant_journal_words: AtomicU64,
    /// Offsets of the tenants' banks.
    pub tenant_bank_at: [AtomicU64; 2],
    /// Length of a bank of tenants.
    pub tenant_bank_bytes: AtomicU64,
    reserved: [AtomicU64; 4],
    /// Milliseconds after which changes are published; for people.
    pub sync_interval_ms: AtomicU64,
    /// Changes after which they are published; for people.
    pub sync_threshold: AtomicU64,
    /// Generations published by this file's writers; for people.
    pub publications: AtomicU64,
    /// Publications that a worker did not apply in time; for people.
    pub failures: AtomicU64,
    /// Generation of the tenants that a generation of the routes has followed; for the next writer.
    pub tenants_shown: AtomicU64,
    reserved2: [AtomicU64; 11],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<TableControl>() == 256 && align_of::<TableControl>() == 128);
    assert!(CONTROL_AT + size_of::<TableControl>() <= ERRORS_AT && LATENCY_AT.is_multiple_of(128));
    assert!(ERRORS_AT == 4096 && LATENCY_AT == 12_288 && TUNING_AT == 16_640 && ROUTES_AT == 20_480);
    assert!(MIN_JOURNAL_WORDS.is_power_of_two() && MIN_TENANT_JOURNAL_WORDS.is_power_of_two());
};

/// How many routes and tenants a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// 1 to [`MAX_ROUTES`].
    pub routes: u32,
    /// 0 to [`MAX_TENANTS`].
    pub tenants: u32,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { routes: DEFAULT_ROUTES, tenants: DEFAULT_TENANTS }
    }
}

/// Why a table cannot be made, opened or written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// No such file, no permission, no space.
    #[error("route table {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a route table of this version.
    #[error("route table {path}: {source}")]
    Header {
        /// The file.
        path: String,
        /// The failed check.
        source: HeaderError,
    },
    /// A stored number is not what the capacities or the mapping allow.
    #[error("route table {path} is damaged: {field} is {found}, not {expected}")]
    Damaged {
        /// The file.
        path: String,
        /// The field.
        field: &'static str,
        /// What it says.
        found: u64,
        /// What it has to say, or the largest it may.
        expected: u64,
    },
    /// Another process writes the table.
    #[error("route table {path} is written by process {pid}")]
    Held {
        /// The file.
        path: String,
        /// The process that holds it.
        pid: u32,
    },
    /// Capacities out of range.
    #[error("a route table holds 1 to 65536 routes and at most 1024 tenants, not {routes} and {tenants}")]
    Options {
        /// Routes asked for.
        routes: u32,
        /// Tenants asked for.
        tenants: u32,
    },
    /// The table to be made is too small for a route of the table it would replace.
    #[error("route table {path} has a route at place {index}, a table of {routes} routes would lose it")]
    TooSmall {
        /// The file.
        path: String,
        /// Place of the last route.
        index: u32,
        /// Routes asked for.
        routes: u32,
    },
    /// The table to be made is too small for a tenant of the table it would replace.
    #[error("route table {path} has tenant number {number}, a table of {tenants} tenants would lose it")]
    TooFewTenants {
        /// The file.
        path: String,
        /// Number of the last tenant.
        number: u16,
        /// Tenants asked for.
        tenants: u32,
    },
}

pub(crate) fn io_error(path: &Path) -> impl Fn(io::Error) -> TableError {
    move |source| TableError::Io { path: path.display().to_string(), source }
}

/// Where everything lies in a table of given capacities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) routes: AreaShape,
    pub(crate) tenants: AreaShape,
    pub(crate) total: usize,
}

impl Geometry {
    pub(crate) fn of(options: TableOptions) -> Result<Self, TableError> {
        let TableOptions { routes, tenants } = options;
        if !(1..=MAX_ROUTES).contains(&routes) || tenants > MAX_TENANTS {
            return Err(TableError::Options { routes, tenants });
        }
        let routes = AreaShape::of::<RouteRecord>(ROUTES_AT, routes, MIN_JOURNAL_WORDS);
        let tenants = AreaShape::of::<TenantRecord>(routes.end(), tenants, MIN_TENANT_JOURNAL_WORDS);
        Ok(Self { routes, tenants, total: tenants.end() })
    }

    /// The stored geometry words, each with its name and the value it has to have.
    fn words(self, control: &TableControl) -> [(&'static str, &AtomicU64, u64); 10] {
        let (routes, tenants) = (self.routes, self.tenants);
        [
            ("journal_at", &control.journal_at, routes.journal_at as u64),
            ("journal_words", &control.journal_words, routes.journal_words as u64),
            ("bank_at[0]", &control.bank_at[0], routes.bank_at[0] as u64),
            ("bank_at[1]", &control.bank_at[1], routes.bank_at[1] as u64),
            ("bank_bytes", &control.bank_bytes, routes.bank_bytes as u64),
            ("tenant_journal_at", &control.tenant_journal_at, tenants.journal_at as u64),
            ("tenant_journal_words", &control.tenant_journal_words, tenants.journal_words as u64),
            ("tenant_bank_at[0]", &control.tenant_bank_at[0], tenants.bank_at[0] as u64),
            ("tenant_bank_at[1]", &control.tenant_bank_at[1], tenants.bank_at[1] as u64),
            ("tenant_bank_bytes", &control.tenant_bank_bytes, tenants.bank_bytes as u64),
        ]
    }
}

/// A table in a mapped file.
#[derive(Debug)]
pub struct SharedTable {
    options: TableOptions,
    header: Placed<SegmentHeader>,
    control: Placed<TableControl>,
    errors: Placed<ErrorRecord>,
    latency: Placed<LatencyHistogram>,
    tuning: Placed<TuningRecord>,
    routes: Area<RouteRecord>,
    tenants: Area<TenantRecord>,
}

impl SharedTable {
    /// Fills fresh zeroed memory: an empty table of these generations (not 0). The header comes later.
    pub(crate) fn format(
        mapping: &Arc<Mapping>,
        options: TableOptions,
        routes_generation: u64,
        tenants_generation: u64,
    ) -> Option<Self> {
        let geometry = Geometry::of(options).ok()?;
        let table = Self::place(mapping, options, geometry)?;
        let control = &table.control[0];
        control.capacity_routes.store(u64::from(options.routes), Ordering::Relaxed);
        control.capacity_tenants.store(u64::from(options.tenants), Ordering::Relaxed);
        for (_, word, value) in geometry.words(control) {
            word.store(value, Ordering::Relaxed);
        }
        table.routes.format(routes_generation);
        table.tenants.format(tenants_generation);
        control.tenants_shown.store(tenants_generation, Ordering::Relaxed);
        Some(table)
    }

    /// Finds the parts of a ready table, checking every offset and length against this mapping.
    pub(crate) fn attach(mapping: &Arc<Mapping>, path: &Path) -> Result<Self, TableError> {
        let name = || path.display().to_string();
        let refuse = |source| TableError::Header { path: name(), source };
        let header = mapping.atomics::<SegmentHeader>(0).ok_or(refuse(HeaderError::NotASegment))?;
        header.check(SegmentKind::Table, mapping.len() as u64).map_err(refuse)?;
        let control = mapping.atomics::<TableControl>(CONTROL_AT).ok_or(refuse(HeaderError::NotASegment))?;
        let damaged = |field, found, expected| TableError::Damaged { path: name(), field, found, expected };
        let limited = |field, word: &AtomicU64, low: u32, high: u32| {
            let found = word.load(Ordering::Relaxed);
            let small = u32::try_from(found).ok().filter(|value| (low..=high).contains(value));
            small.ok_or(damaged(field, found, u64::from(high)))
        };
        let routes = limited("capacity_routes", &control.capacity_routes, 1, MAX_ROUTES)?;
        let tenants = limited("capacity_tenants", &control.capacity_tenants, 0, MAX_TENANTS)?;
        let options = TableOptions { routes, tenants };
        let geometry = Geometry::of(options)?;
        let mapped = mapping.len() as u64;
        if geometry.total as u64 != mapped {
            return Err(damaged("length", mapped, geometry.total as u64));
        }
        for (field, word, expected) in geometry.words(control) {
            let found = word.load(Ordering::Relaxed);
            if found != expected {
                return Err(damaged(field, found, expected));
            }
        }
        Self::place(mapping, options, geometry).ok_or(damaged("length", mapped, geometry.total as u64))
    }

    fn place(mapping: &Arc<Mapping>, options: TableOptions, geometry: Geometry) -> Option<Self> {
        mapping.populate();
        Some(Self {
            options,
            header: mapping.place(0, 1)?,
            control: mapping.place(CONTROL_AT, 1)?,
            errors: mapping.place(ERRORS_AT, TABLE_ERRORS)?,
            latency: mapping.place(LATENCY_AT, 1)?,
            tuning: mapping.place(TUNING_AT, MAX_WORKERS)?,
            routes: Area::place(mapping, ROUTE_GENERATION_AT, &geometry.routes, options.routes)?,
            tenants: Area::place(mapping, TENANT_GENERATION_AT, &geometry.tenants, options.tenants)?,
        })
    }

    /// What a writer has to find before it goes on: the current banks are complete.
    pub(crate) fn check_current_banks(&self, path: &Path) -> Result<(), TableError> {
        let damaged = |fields: [&'static str; 2]| {
            move |(fault, found, expected)| TableError::Damaged {
                path: path.display().to_string(),
                field: if fault == BankFault::Generation { fields[0] } else { fields[1] },
                found,
                expected,
            }
        };
        let routes = ["generation of the current bank", "check of the current bank"];
        self.routes.check_current_bank().map_err(damaged(routes))?;
        let tenants = ["generation of the current tenant bank", "check of the current tenant bank"];
        self.tenants.check_current_bank().map_err(damaged(tenants))
    }

    /// Capacities.
    pub fn options(&self) -> TableOptions {
        self.options
    }

    /// The segment header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header[0]
    }

    /// Geometry, tuning and counts.
    pub fn control(&self) -> &TableControl {
        &self.control[0]
    }

    /// The distinct error log of the table's writers.
    pub fn errors(&self) -> &[ErrorRecord] {
        &self.errors
    }

    /// How long it took from publishing until every worker had applied it.
    pub fn sync_latency(&self) -> &LatencyHistogram {
        &self.latency[0]
    }

    /// What is asked of each worker.
    pub(crate) fn tuning(&self) -> &[TuningRecord] {
        &self.tuning
    }
}

/// Where the parts of the segment lie, for [`crate::layout::listing`].
pub(crate) fn placement() -> String {
    format!(
        "table generation {ROUTE_GENERATION_AT} tenants {TENANT_GENERATION_AT} control {CONTROL_AT} errors {ERRORS_AT} x \
         {TABLE_ERRORS} latency {LATENCY_AT} tuning {TUNING_AT} x {MAX_WORKERS} routes {ROUTES_AT}, journal {MIN_JOURNAL_WORDS} or {MIN_TENANT_JOURNAL_WORDS} or \
         more, bank header {BANK_HEADER_BYTES}\nrecord words version {} checksum {}\nroute words key {} facts {} id {} path {}\n\
         tenant words facts {} name {} id {} classes {} p_keys {} uids {} gids {} nodes {} prefixes {} rate {}",
        record_word::VERSION,
        record_word::CHECKSUM,
        route_word::KEY,
        route_word::FACTS,
        route_word::ID,
        route_word::PATH,
        tenant_word::FACTS,
        tenant_word::NAME,
        tenant_word::ID,
        tenant_word::CLASSES,
        tenant_word::P_KEYS,
        tenant_word::UIDS,
        tenant_word::GIDS,
        tenant_word::NODES,
        tenant_word::PREFIXES,
        tenant_word::RATE,
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::mem::offset_of;
    use std::path::PathBuf;

    use super::publish::RoutePublisher;
    use super::snapshot::TableReader;
    use super::tenant::TenantEntry;
    use super::*;
    use crate::LAYOUT_VERSION;
    use crate::header::Incarnation;
    use crate::seqlock::bank_of;

    const OPTIONS: TableOptions = TableOptions { routes: 40, tenants: 3 };

    fn table_with_a_route(directory: &tempfile::TempDir) -> PathBuf {
        let path = directory.path().join("table");
        let mut publisher =
            RoutePublisher::create(&path, OPTIONS, Incarnation::default()).expect("an empty directory");
        publisher.set(3, &RouteEntry::new(1, 2, &[5]).expect("one port"));
        publisher.set_tenant(2, &TenantEntry::new("blue").expect("a name"));
        publisher.publish();
        path
    }

    fn spoil(path: &Path, at: usize, value: u64) -> u64 {
        let mut bytes = std::fs::read(path).expect("the table is there");
        let place = &mut bytes[at..at + 8];
        let old = u64::from_ne_bytes(place.try_into().expect("eight bytes"));
        place.copy_from_slice(&value.to_ne_bytes());
        std::fs::write(path, bytes).expect("the table can be written");
        old
    }

    #[test]
    fn every_spoilt_offset_and_length_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = table_with_a_route(&directory);
        let fields = [
            ("capacity_routes", offset_of!(TableControl, capacity_routes)),
            ("capacity_tenants", offset_of!(TableControl, capacity_tenants)),
            ("journal_at", offset_of!(TableControl, journal_at)),
            ("journal_words", offset_of!(TableControl, journal_words)),
            ("bank_at[0]", offset_of!(TableControl, bank_at)),
            ("bank_at[1]", offset_of!(TableControl, bank_at) + 8),
            ("bank_bytes", offset_of!(TableControl, bank_bytes)),
            ("tenant_journal_at", offset_of!(TableControl, tenant_journal_at)),
            ("tenant_journal_words", offset_of!(TableControl, tenant_journal_words)),
            ("tenant_bank_at[0]", offset_of!(TableControl, tenant_bank_at)),
            ("tenant_bank_at[1]", offset_of!(TableControl, tenant_bank_at) + 8),
            ("tenant_bank_bytes", offset_of!(TableControl, tenant_bank_bytes)),
        ];
        for (field, offset) in fields {
            let at = CONTROL_AT + offset;
            let good = spoil(&path, at, 0);
            for bad in [0, good + 1, good - 1, good + 4096, good << 32, 1 << 63, u64::MAX] {
                // a few more or fewer of either may not move anything: banks are whole pages
                let geometry = |routes: u64, tenants: u64| {
                    let options =
                        TableOptions { routes: routes.try_into().ok()?, tenants: tenants.try_into().ok()? };
                    Geometry::of(options).ok()
                };
                let (names, other): (&[&str], _) = match field {
                    "capacity_routes" => (&[field, "length"], geometry(bad, OPTIONS.tenants.into())),
                    "capacity_tenants" => (&[field, "length"], geometry(OPTIONS.routes.into(), bad)),
                    _ => (&[field], None),
                };
                if other.is_some() && other == Geometry::of(OPTIONS).ok() {
                    continue;
                }
                spoil(&path, at, bad);
                for error in [
                    TableReader::open(&path).err(),
                    RoutePublisher::open_or_create(&path, OPTIONS, Incarnation::default()).err(),
                ] {
                    let Some(TableError::Damaged { field: named, .. }) = &error else {
                        panic!("{field} = {bad:#x}: {error:?}")
                    };
                    assert!(names.contains(named), "{field} = {bad:#x}: {named}");
                }
            }
            spoil(&path, at, good);
            assert!(TableReader::open(&path).is_ok(), "{field} restored");
        }
    }

    #[test]
    fn a_table_of_another_version_is_refused_with_both_versions_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = table_with_a_route(&directory);
        let old = spoil(&path, 8, u64::from(LAYOUT_VERSION + 7) | 4 << 32);
        let bytes = std::fs::read(&path).unwrap();
        let reader = TableReader::open(&path).unwrap_err().to_string();
        let writer = RoutePublisher::open_or_create(&path, OPTIONS, Incarnation::default());
        for text in [reader, writer.unwrap_err().to_string()] {
            let named = format!(
                "layout version {} found, this program speaks version {LAYOUT_VERSION}",
                LAYOUT_VERSION + 7
            );
            assert!(text.contains(&named), "{text}");
        }
        assert!(bytes == std::fs::read(&path).unwrap(), "a refused table was written");
        spoil(&path, 8, old);
        assert!(RoutePublisher::open_or_create(&path, OPTIONS, Incarnation::default()).is_ok());
    }

    #[test]
    fn a_longer_or_shorter_file_is_refused_and_an_unfinished_one_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let path = table_with_a_route(&directory);
        let length = std::fs::metadata(&path).unwrap().len();
        for other in [length + 4096, length - 4096] {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(other).unwrap();
            let error = TableReader::open(&path).unwrap_err();
            assert!(
                matches!(error, TableError::Header { source: HeaderError::Length { .. }, .. }),
                "{error}"
            );
        }
        for empty in [0, 4096] {
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(empty).unwrap();
            let error = TableReader::open(&path).unwrap_err();
            assert!(matches!(error, TableError::Header { source: HeaderError::NotReady, .. }), "{error}");
        }
        assert!(RoutePublisher::open_or_create(&path, OPTIONS, Incarnation::default()).is_ok());
        assert!(TableReader::open(&path).is_ok());
    }

    #[test]
    fn a_writer_does_not_go_on_from_a_damaged_bank() {
        let directory = tempfile::tempdir().unwrap();
        let path = table_with_a_route(&directory);
        let geometry = Geometry::of(OPTIONS).unwrap();
        for (bank, kind) in [(geometry.routes.bank_at[0], ""), (geometry.tenants.bank_at[0], "tenant ")] {
            for (at, named) in [(0, "generation"), (8, "check"), (16, "check"), (24, "check")] {
                let good = spoil(&path, bank + at, 77);
                let error =
                    RoutePublisher::open_or_create(&path, OPTIONS, Incarnation::default()).unwrap_err();
                let TableError::Damaged { field, .. } = error else { panic!("{error}") };
                assert_eq!(field, format!("{named} of the current {kind}bank"));
                spoil(&path, bank + at, good);
            }
        }
        assert!(RoutePublisher::open_or_create(&path, OPTIONS, Incarnation::default()).is_ok());
    }

    #[test]
    fn a_route_with_any_bit_flipped_is_refused_and_the_old_copy_stands() {
        let directory = tempfile::tempdir().unwrap();
        let path = table_with_a_route(&directory);
        let record = Geometry::of(OPTIONS).unwrap().routes.bank_at[0]
            + BANK_HEADER_BYTES
            + 3 * size_of::<RouteRecord>();
        // the rest is for longer paths
        for word in 0..8 {
            let at = record + word * 8;
            let good = spoil(&path, at, 0);
            spoil(&path, at, good ^ 1 << (word * 5 % 64));
            let mut reader = TableReader::open(&path).unwrap();
            let mut handed_out = 0;
            let done = reader.refresh(&mut |_, _| handed_out += 1, &mut |_, _| {});
            assert_eq!((done.refused, done.changed, handed_out), (1, 0, 0), "word {word}");
            assert!(done.complete && !reader.changed());
            spoil(&path, at, good);
        }
        let mut reader = TableReader::open(&path).unwrap();
        assert_eq!(reader.refresh(&mut |_, _| {}, &mut |_, _| {}).changed, 1);
    }

    #[test]
    fn a_tenant_with_any_bit_flipped_is_refused_and_counted_and_the_routes_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = table_with_a_route(&directory);
        let record = Geometry::of(OPTIONS).unwrap().tenants.bank_at[0]
            + BANK_HEADER_BYTES
            + 2 * size_of::<TenantRecord>();
        for word in 0..tenant::TENANT_WORDS {
            let at = record + word * 8;
            let good = spoil(&path, at, 0);
            spoil(&path, at, good ^ 1 << (word * 5 % 64));
            let mut reader = TableReader::open(&path).unwrap();
            let (mut routes, mut tenants) = (0, 0);
            let done = reader.refresh(&mut |_, _| routes += 1, &mut |_, _| tenants += 1);
            assert_eq!((done.refused, done.tenants_changed, tenants), (1, 0, 0), "word {word}");
            assert_eq!((done.changed, routes), (1, 1), "word {word}");
            assert!(done.complete && !reader.changed());
            assert_eq!(reader.tenants().map(|found| found.len()), Some(0), "word {word}");
            spoil(&path, at, good);
        }
        let mut reader = TableReader::open(&path).unwrap();
        assert_eq!(reader.refresh(&mut |_, _| {}, &mut |_, _| {}).tenants_changed, 1);
        assert_eq!(reader.tenants().unwrap()[0].1.name(), "blue");
    }

    #[test]
    fn a_damaged_tenant_leaves_the_good_copy_of_one_who_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut publisher = RoutePublisher::create(&path, OPTIONS, Incarnation::default()).unwrap();
        let mut entry = TenantEntry::new("blue").unwrap();
        publisher.set_tenant(1, &entry);
        publisher.publish();
        let mut reader = TableReader::open(&path).unwrap();
        let mut seen = Vec::new();
        reader.refresh(&mut |_, _| {}, &mut |place, entry| seen.push((place, entry.copied())));
        entry.rate = 5;
        publisher.set_tenant(1, &entry);
        publisher.publish();
        // behind the publisher's back, into the bank that the reader looks at next
        let word = &publisher.table().tenants.record(bank_of(3), 1)[tenant_word::RATE];
        word.store(6, Ordering::Relaxed);
        let done = reader.refresh(&mut |_, _| {}, &mut |place, entry| seen.push((place, entry.copied())));
        assert_eq!((done.refused, done.tenants_changed, done.complete), (1, 0, true));
        assert_eq!(seen.len(), 1, "{seen:?}");
    }
}
