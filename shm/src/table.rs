//! The route table: directed routes that control publishes and workers follow without waiting for anybody.
//!
//! | word | writer | readers | ordering |
//! |---|---|---|---|
//! | header, [`TableControl`] | madctld, before the file gets its name | openers | ordered by the header's version |
//! | tuning words of [`TableControl`] | madctld | anyone | relaxed, for people |
//! | [`GenerationLine`], journal, banks | madctld ([`publish`]) | anyone ([`snapshot`]) | see [`crate::seqlock`] |
//!
//! Exactly one process writes: it holds a lock on the file that the kernel takes back when the process ends. Readers map
//! read-only; they need neither daemon to be alive. The whole geometry follows from the two capacities, and an opener
//! compares every stored offset and length with it and with its own mapping.
//!
//! Each bank keeps room for tenants behind its routes; nothing is stored there yet.
//!
//! Not here: when something is published, what a route means for a MAD, whether its path exists.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::header::{HeaderError, SegmentHeader, SegmentKind};
use crate::map::{Mapping, Placed};
use crate::seqlock::{bank_of, header_check, mix};
use crate::sync::{AtomicU64, Ordering};

pub mod publish;
pub mod snapshot;

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
/// Least number of journal words.
pub const MIN_JOURNAL_WORDS: u32 = 4096;
/// Words of a route in a bank.
pub const ROUTE_WORDS: usize = 16;
/// Bytes kept for a tenant in a bank.
pub const TENANT_BYTES: usize = 256;

const GENERATION_AT: usize = 128;
const CONTROL_AT: usize = 256;
const JOURNAL_AT: usize = 4096;
const BANK_HEADER_BYTES: usize = 128;
const ROUTE_BYTES: usize = ROUTE_WORDS * 8;

/// What becomes of a MAD whose pinned path is broken; the number travels.
pub mod on_broken {
    /// Goes by the forwarding tables.
    pub const FALLBACK: u8 = 0;
    /// Is dropped and counted.
    pub const DROP: u8 = 1;
}

/// Numbers of the words of a route.
pub(crate) mod route_word {
    /// `slid << 16 | dlid`.
    pub(crate) const KEY: usize = 0;
    /// Bit 0 present, 8..16 `on_broken`, 16..32 P_Key, 32..40 priority, 40..48 path length, 48..64 tenant.
    pub(crate) const FACTS: usize = 1;
    /// Eight words, one byte a port, in memory order.
    pub(crate) const PATH: usize = 2;
    /// Control's own number.
    pub(crate) const ID: usize = 10;
    /// Generation that changed the route last; 0 for one that never was.
    pub(crate) const VERSION: usize = 14;
    /// Over all words before it and the route's place in the table.
    pub(crate) const CHECKSUM: usize = 15;
}

/// A route, as both sides handle it.
///
/// ```
/// use madplane_shm::table::RouteEntry;
/// let route = RouteEntry::new(0x11, 0x22, &[1, 2, 3, 4]).unwrap();
/// assert_eq!(route.ports(), [1, 2, 3, 4]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteEntry {
    /// LID of the sender.
    pub slid: u16,
    /// LID of the receiver.
    pub dlid: u16,
    /// Partition.
    pub p_key: u16,
    /// Higher is served first.
    pub priority: u8,
    /// One of [`on_broken`].
    pub on_broken: u8,
    /// Tenant number, 0 for none.
    pub tenant: u16,
    /// Ports by which the MAD leaves, hop by hop; `path_len` of them count.
    pub path: [u8; MAX_PATH_PORTS],
    /// 1 to 63.
    pub path_len: u8,
    /// Control's own number.
    pub id: u64,
}

impl RouteEntry {
    /// A route with the full default partition, priority 0, no tenant, falling back when broken. `None` unless `ports`
    /// has 1 to 63 ports.
    pub fn new(slid: u16, dlid: u16, ports: &[u8]) -> Option<Self> {
        let mut path = [0; MAX_PATH_PORTS];
        path.get_mut(..ports.len())?.copy_from_slice(ports);
        let path_len = u8::try_from(ports.len()).ok().filter(|len| *len > 0)?;
        let on_broken = on_broken::FALLBACK;
        Some(Self { slid, dlid, p_key: 0xffff, priority: 0, on_broken, tenant: 0, path, path_len, id: 0 })
    }

    /// The ports that count.
    pub fn ports(&self) -> &[u8] {
        &self.path[..MAX_PATH_PORTS.min(usize::from(self.path_len))]
    }

    /// Whether readers would take it: path length and `on_broken` are within their ranges.
    pub fn is_sound(&self) -> bool {
        (1..=MAX_PATH_PORTS).contains(&usize::from(self.path_len)) && self.on_broken <= on_broken::DROP
    }
}

/// Words of a route in private memory.
pub type RouteWords = [u64; ROUTE_WORDS];

/// What the words of a route say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded {
    Absent,
    Present(RouteEntry),
    Damaged,
}

pub(crate) fn encode(index: u32, version: u64, entry: Option<&RouteEntry>) -> RouteWords {
    let mut words = [0; ROUTE_WORDS];
    if let Some(entry) = entry {
        words[route_word::KEY] = u64::from(entry.slid) << 16 | u64::from(entry.dlid);
        words[route_word::FACTS] = 1
            | u64::from(entry.on_broken) << 8
            | u64::from(entry.p_key) << 16
            | u64::from(entry.priority) << 32
            | u64::from(entry.path_len) << 40
            | u64::from(entry.tenant) << 48;
        let mut path = [0; 64];
        path[..MAX_PATH_PORTS].copy_from_slice(&entry.path);
        for (word, piece) in words[route_word::PATH..].iter_mut().zip(path.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*piece);
        }
        words[route_word::ID] = entry.id;
    }
    words[route_word::VERSION] = version;
    words[route_word::CHECKSUM] = checksum(index, &words);
    words
}

pub(crate) fn decode(index: u32, words: &RouteWords) -> Decoded {
    if words[route_word::VERSION] == 0 && words.iter().all(|word| *word == 0) {
        return Decoded::Absent;
    }
    if words[route_word::CHECKSUM] != checksum(index, words) {
        return Decoded::Damaged;
    }
    let facts = words[route_word::FACTS].to_le_bytes();
    if facts[0] == 0 {
        return Decoded::Absent;
    }
    let key = words[route_word::KEY].to_le_bytes();
    let mut path = [0; 64];
    for (piece, word) in path.as_chunks_mut::<8>().0.iter_mut().zip(&words[route_word::PATH..]) {
        *piece = word.to_ne_bytes();
    }
    let mut entry = RouteEntry {
        slid: u16::from_le_bytes([key[2], key[3]]),
        dlid: u16::from_le_bytes([key[0], key[1]]),
        p_key: u16::from_le_bytes([facts[2], facts[3]]),
        priority: facts[4],
        on_broken: facts[1],
        tenant: u16::from_le_bytes([facts[6], facts[7]]),
        path: [0; MAX_PATH_PORTS],
        path_len: facts[5],
        id: words[route_word::ID],
    };
    entry.path.copy_from_slice(&path[..MAX_PATH_PORTS]);
    if facts[0] == 1 && entry.is_sound() { Decoded::Present(entry) } else { Decoded::Damaged }
}

/// Two lanes, so that one multiplication need not wait for the other.
fn checksum(index: u32, words: &RouteWords) -> u64 {
    let (mut even, mut odd) = (mix(0x726f_7574_6573, u64::from(index)), 0x7461_626c_6573);
    let (pairs, _) = words[..route_word::CHECKSUM].as_chunks::<2>();
    for [first, second] in pairs {
        even = mix(even, *first);
        odd = mix(odd, *second);
    }
    mix(mix(even, words[route_word::VERSION]), odd)
}

/// The words of a table, wherever they live; the protocol is in [`crate::seqlock`], and loom runs it on its own memory.
pub trait TableMemory {
    /// Words of an entry in private memory; the last but one is its version, the last its checksum.
    type Entry: Copy + Default + AsRef<[u64]> + AsMut<[u64]> + std::fmt::Debug;
    /// How often a copy that the writer overtook is begun again.
    const RETRIES: u32 = 8;
    /// Entries copied between two looks at whether the writer has come.
    const CHUNK: u32 = 32;
    /// Number of entries.
    fn entries(&self) -> u32;
    /// Number of journal words, a power of two.
    fn journal_words(&self) -> u64;
    /// The generation word.
    fn generation(&self) -> &AtomicU64;
    /// Generation that a bank (0 or 1) is complete for, 0 while it is written.
    fn bank_generation(&self, bank: usize) -> &AtomicU64;
    /// Entries present in a bank.
    fn bank_count(&self, bank: usize) -> &AtomicU64;
    /// Journal position at which a bank's generation ends.
    fn bank_head(&self, bank: usize) -> &AtomicU64;
    /// Check over the three words above.
    fn bank_check(&self, bank: usize) -> &AtomicU64;
    /// The words of an entry, as many as [`TableMemory::Entry`] has.
    fn record(&self, bank: usize, index: u32) -> &[AtomicU64];
    /// The journal word of a position, masked by the implementation.
    fn journal(&self, position: u64) -> &AtomicU64;
}

/// The one word that readers look at, alone in its lines.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct GenerationLine {
    /// The generation that holds; its lowest bit names the bank.
    pub generation: AtomicU64,
    reserved: [AtomicU64; 15],
}

/// Geometry and tuning.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct TableControl {
    /// Routes in each bank.
    pub capacity_routes: AtomicU64,
    /// Tenants in each bank.
    pub capacity_tenants: AtomicU64,
    /// Offset of the journal.
    pub journal_at: AtomicU64,
    /// Words of the journal.
    pub journal_words: AtomicU64,
    /// Offsets of the banks.
    pub bank_at: [AtomicU64; 2],
    /// Length of a bank.
    pub bank_bytes: AtomicU64,
    /// Offset of the tenants within a bank.
    pub tenants_at: AtomicU64,
    /// Milliseconds after which changes are published; for people.
    pub sync_interval_ms: AtomicU64,
    /// Changes after which they are published; for people.
    pub sync_threshold: AtomicU64,
    reserved: [AtomicU64; 6],
}

/// Head of a bank.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct BankHeader {
    /// Generation that the bank is complete for, 0 while it is written.
    pub generation: AtomicU64,
    /// Routes present.
    pub routes: AtomicU64,
    /// Journal position at which the generation ends.
    pub journal_head: AtomicU64,
    /// Check over the words above.
    pub check: AtomicU64,
    reserved: [AtomicU64; 12],
}

/// A route in a bank.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct RouteRecord {
    /// Meaning by number: LAYOUT.md.
    pub words: [AtomicU64; ROUTE_WORDS],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<GenerationLine>() == 128 && align_of::<GenerationLine>() == 128);
    assert!(size_of::<TableControl>() == 128 && align_of::<TableControl>() == 128);
    assert!(size_of::<BankHeader>() == BANK_HEADER_BYTES && align_of::<BankHeader>() == 128);
    assert!(size_of::<RouteRecord>() == ROUTE_BYTES && align_of::<RouteRecord>() == 128);
    assert!(MIN_JOURNAL_WORDS.is_power_of_two() && (MIN_JOURNAL_WORDS * 8).is_multiple_of(4096));
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
}

pub(crate) fn io_error(path: &Path) -> impl Fn(io::Error) -> TableError {
    move |source| TableError::Io { path: path.display().to_string(), source }
}

/// Where everything lies in a table of given capacities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Room for one change of every route: who misses that much needs all of them anyway.
    pub(crate) journal_words: usize,
    pub(crate) bank_at: [usize; 2],
    pub(crate) bank_bytes: usize,
    pub(crate) tenants_at: usize,
    pub(crate) total: usize,
}

impl Geometry {
    pub(crate) fn of(options: TableOptions) -> Result<Self, TableError> {
        let TableOptions { routes, tenants } = options;
        if !(1..=MAX_ROUTES).contains(&routes) || tenants > MAX_TENANTS {
            return Err(TableError::Options { routes, tenants });
        }
        let tenants_at = BANK_HEADER_BYTES + routes as usize * ROUTE_BYTES;
        let bank_bytes = (tenants_at + tenants as usize * TENANT_BYTES).next_multiple_of(4096);
        let journal_words = routes.next_power_of_two().max(MIN_JOURNAL_WORDS) as usize;
        let first = JOURNAL_AT + journal_words * 8;
        let bank_at = [first, first + bank_bytes];
        Ok(Self { journal_words, bank_at, bank_bytes, tenants_at, total: first + 2 * bank_bytes })
    }

    /// The stored geometry words, each with its name and the value it has to have.
    fn words(self, control: &TableControl) -> [(&'static str, &AtomicU64, u64); 6] {
        [
            ("journal_at", &control.journal_at, JOURNAL_AT as u64),
            ("journal_words", &control.journal_words, self.journal_words as u64),
            ("bank_at[0]", &control.bank_at[0], self.bank_at[0] as u64),
            ("bank_at[1]", &control.bank_at[1], self.bank_at[1] as u64),
            ("bank_bytes", &control.bank_bytes, self.bank_bytes as u64),
            ("tenants_at", &control.tenants_at, self.tenants_at as u64),
        ]
    }
}

/// A table in a mapped file.
#[derive(Debug)]
pub struct SharedTable {
    options: TableOptions,
    header: Placed<SegmentHeader>,
    generation: Placed<GenerationLine>,
    control: Placed<TableControl>,
    journal: Placed<AtomicU64>,
    heads: [Placed<BankHeader>; 2],
    routes: [Placed<RouteRecord>; 2],
}

impl SharedTable {
    /// Fills fresh zeroed memory: an empty table of generation `generation` (not 0). The header comes later.
    pub(crate) fn format(mapping: &Arc<Mapping>, options: TableOptions, generation: u64) -> Option<Self> {
        let geometry = Geometry::of(options).ok()?;
        let table = Self::place(mapping, options, geometry)?;
        let control = &table.control[0];
        control.capacity_routes.store(u64::from(options.routes), Ordering::Relaxed);
        control.capacity_tenants.store(u64::from(options.tenants), Ordering::Relaxed);
        for (_, word, value) in geometry.words(control) {
            word.store(value, Ordering::Relaxed);
        }
        let head = &table.heads[bank_of(generation)][0];
        head.generation.store(generation, Ordering::Relaxed);
        head.check.store(header_check(generation, 0, 0), Ordering::Relaxed);
        table.generation[0].generation.store(generation, Ordering::Relaxed);
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
        let head = |bank: usize| mapping.place(geometry.bank_at[bank], 1);
        let routes =
            |bank: usize| mapping.place(geometry.bank_at[bank] + BANK_HEADER_BYTES, options.routes as usize);
        Some(Self {
            options,
            header: mapping.place(0, 1)?,
            generation: mapping.place(GENERATION_AT, 1)?,
            control: mapping.place(CONTROL_AT, 1)?,
            journal: mapping.place(JOURNAL_AT, geometry.journal_words)?,
            heads: [head(0)?, head(1)?],
            routes: [routes(0)?, routes(1)?],
        })
    }

    /// What a writer has to find before it goes on: the current bank is complete.
    pub(crate) fn check_current_bank(&self, path: &Path) -> Result<(), TableError> {
        let damaged = |field, found, expected| TableError::Damaged {
            path: path.display().to_string(),
            field,
            found,
            expected,
        };
        let generation = self.generation[0].generation.load(Ordering::Acquire);
        let head = &self.heads[bank_of(generation)][0];
        let found = head.generation.load(Ordering::Relaxed);
        if generation == 0 || found != generation {
            return Err(damaged("generation of the current bank", found, generation));
        }
        let routes = head.routes.load(Ordering::Relaxed);
        let expected = header_check(generation, routes, head.journal_head.load(Ordering::Relaxed));
        let found = head.check.load(Ordering::Relaxed);
        if found != expected {
            return Err(damaged("check of the current bank", found, expected));
        }
        Ok(())
    }

    /// Capacities.
    pub fn options(&self) -> TableOptions {
        self.options
    }

    /// The segment header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header[0]
    }

    /// Geometry and tuning.
    pub fn control(&self) -> &TableControl {
        &self.control[0]
    }
}

impl TableMemory for SharedTable {
    type Entry = RouteWords;

    fn entries(&self) -> u32 {
        self.options.routes
    }

    fn journal_words(&self) -> u64 {
        self.journal.len() as u64
    }

    fn generation(&self) -> &AtomicU64 {
        &self.generation[0].generation
    }

    fn bank_generation(&self, bank: usize) -> &AtomicU64 {
        &self.heads[bank][0].generation
    }

    fn bank_count(&self, bank: usize) -> &AtomicU64 {
        &self.heads[bank][0].routes
    }

    fn bank_head(&self, bank: usize) -> &AtomicU64 {
        &self.heads[bank][0].journal_head
    }

    fn bank_check(&self, bank: usize) -> &AtomicU64 {
        &self.heads[bank][0].check
    }

    fn record(&self, bank: usize, index: u32) -> &[AtomicU64] {
        &self.routes[bank][index as usize].words
    }

    fn journal(&self, position: u64) -> &AtomicU64 {
        // the length is a power of two
        #[expect(clippy::cast_possible_truncation, reason = "masked to the journal's length")]
        let at = (position & (self.journal.len() as u64 - 1)) as usize;
        &self.journal[at]
    }
}

/// Where the parts of the segment lie, for [`crate::layout::listing`].
pub(crate) fn placement() -> String {
    format!(
        "table generation {GENERATION_AT} control {CONTROL_AT} journal {JOURNAL_AT} x {MIN_JOURNAL_WORDS} or more, bank header \
         {BANK_HEADER_BYTES} route {ROUTE_BYTES} tenant {TENANT_BYTES}\nroute words key {} facts {} path {} id {} version {} \
         checksum {}",
        route_word::KEY,
        route_word::FACTS,
        route_word::PATH,
        route_word::ID,
        route_word::VERSION,
        route_word::CHECKSUM
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::mem::offset_of;
    use std::path::PathBuf;

    use super::publish::RoutePublisher;
    use super::snapshot::TableReader;
    use super::*;
    use crate::LAYOUT_VERSION;
    use crate::header::Incarnation;

    const OPTIONS: TableOptions = TableOptions { routes: 40, tenants: 3 };

    fn table_with_a_route(directory: &tempfile::TempDir) -> PathBuf {
        let path = directory.path().join("table");
        let mut publisher =
            RoutePublisher::create(&path, OPTIONS, Incarnation::default()).expect("an empty directory");
        publisher.set(3, &RouteEntry::new(1, 2, &[5]).expect("one port"));
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
            ("tenants_at", offset_of!(TableControl, tenants_at)),
        ];
        for (field, offset) in fields {
            let at = CONTROL_AT + offset;
            let good = spoil(&path, at, 0);
            for bad in [0, good + 1, good - 1, good + 4096, good << 32, 1 << 63, u64::MAX] {
                // tenants may be as few as 0, and a few more or fewer tenants or routes move something else
                let names: &[&str] = match field {
                    "capacity_routes" | "capacity_tenants" => &[field, "length", "tenants_at", "bank_bytes"],
                    _ => &[field],
                };
                if field == "capacity_tenants" && (bad == 0 || bad == good + 1 || bad == good - 1) {
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
        let bank = Geometry::of(OPTIONS).unwrap().bank_at[0];
        for (at, named) in [(0, "generation"), (8, "check"), (16, "check"), (24, "check")] {
            let good = spoil(&path, bank + at, 77);
            let error = RoutePublisher::open_or_create(&path, OPTIONS, Incarnation::default()).unwrap_err();
            assert!(
                matches!(error, TableError::Damaged { field, .. } if field.starts_with(named)),
                "{error}"
            );
            spoil(&path, bank + at, good);
        }
        assert!(RoutePublisher::open_or_create(&path, OPTIONS, Incarnation::default()).is_ok());
    }

    #[test]
    fn a_route_with_any_bit_flipped_is_refused_and_the_old_copy_stands() {
        let directory = tempfile::tempdir().unwrap();
        let path = table_with_a_route(&directory);
        let record = Geometry::of(OPTIONS).unwrap().bank_at[0] + BANK_HEADER_BYTES + 3 * ROUTE_BYTES;
        for word in 0..ROUTE_WORDS {
            let at = record + word * 8;
            let good = spoil(&path, at, 0);
            spoil(&path, at, good ^ 1 << (word * 5 % 64));
            let mut reader = TableReader::open(&path).unwrap();
            let mut handed_out = 0;
            let done = reader.refresh(&mut |_, _| handed_out += 1);
            assert_eq!((done.refused, done.changed, handed_out), (1, 0, 0), "word {word}");
            assert!(done.complete && !reader.changed());
            spoil(&path, at, good);
        }
        let mut reader = TableReader::open(&path).unwrap();
        assert_eq!(reader.refresh(&mut |_, _| {}).changed, 1);
    }

    #[test]
    fn a_route_survives_encoding_and_no_other_place_accepts_it() {
        let mut entry = RouteEntry::new(0xbfff, 1, &[255; 63]).unwrap();
        entry.id = u64::MAX;
        entry.tenant = 1023;
        entry.priority = 255;
        entry.on_broken = on_broken::DROP;
        let words = encode(65_535, 9, Some(&entry));
        assert_eq!(decode(65_535, &words), Decoded::Present(entry));
        assert_eq!(decode(65_534, &words), Decoded::Damaged);
        assert_eq!(decode(1, &encode(1, 9, None)), Decoded::Absent);
        assert_eq!(decode(1, &[0; ROUTE_WORDS]), Decoded::Absent);
    }

    #[test]
    fn a_path_has_1_to_63_ports() {
        assert!(RouteEntry::new(1, 2, &[]).is_none() && RouteEntry::new(1, 2, &[1; 64]).is_none());
        for length in [1, 63] {
            let entry = RouteEntry::new(1, 2, &vec![7; length]).unwrap();
            assert!(entry.is_sound() && entry.ports().len() == length);
        }
        let mut entry = RouteEntry::new(1, 2, &[1]).unwrap();
        entry.path_len = 64;
        assert!(!entry.is_sound() && entry.ports().len() == 63);
        assert_eq!(decode(0, &encode(0, 2, Some(&entry))), Decoded::Damaged);
    }
}
