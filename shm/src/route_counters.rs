//! Packets, bytes and last use of each route, in a file of their own.
//!
//! | part | offset | writer | readers | ordering |
//! |---|---|---|---|---|
//! | header | 0 | madplaned, once | openers | ordered by the header's version |
//! | [`RouteUse`] × routes | 4096 | madplaned's workers | anyone | relaxed |
//!
//! A place counts for whatever route stands there; who changes the route calls [`RouteCounters::reset`].
//!
//! Not here: what a route is. Three words of one place may be seen at different times.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::header::{HeaderError, Incarnation, SegmentHeader, SegmentKind};
use crate::map::{self, Mapping, Placed};
use crate::sync::{AtomicU64, Ordering};
use crate::table::{MAX_ROUTES, TableError, io_error};

const USES_AT: usize = 4096;

/// Use of one route.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct RouteUse {
    /// MADs carried.
    pub packets: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Monotonic clock, nanoseconds, of the last one; 0 for none.
    pub last_use_ns: AtomicU64,
    reserved: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<RouteUse>() == 32);

/// The mapped counters, writable for madplaned and read-only for everybody else.
#[derive(Debug, Clone)]
pub struct RouteCounters {
    uses: Placed<RouteUse>,
    header: Placed<SegmentHeader>,
}

impl RouteCounters {
    /// Creates counters for `routes` routes at `path`, all zero, replacing what is there.
    ///
    /// # Errors
    /// [`TableError::Options`] for no routes or too many, [`TableError::Io`] when the file system refuses or is full.
    ///
    /// # Panics
    /// Never: the file is made long enough.
    pub fn create(path: &Path, routes: u32, writer: Incarnation) -> Result<Self, TableError> {
        if !(1..=MAX_ROUTES).contains(&routes) {
            return Err(TableError::Options { routes, tenants: 0 });
        }
        let fail = io_error(path);
        let bytes = USES_AT + routes as usize * size_of::<RouteUse>();
        let (file, length) = map::create_file(path, bytes).map_err(&fail)?;
        let mapping = Arc::new(Mapping::writable(&file).map_err(&fail)?);
        let counters = Self::place(&mapping, routes).expect("the file was made long enough");
        counters.header[0].publish(SegmentKind::RouteCounters, length as u64, u64::from(routes), writer);
        map::publish_file(path).map_err(&fail)?;
        Ok(counters)
    }

    /// Opens the counters at `path` for reading.
    ///
    /// # Errors
    /// [`TableError::Io`] when they are not there, [`TableError::Header`] when they are of another version,
    /// [`TableError::Damaged`] when they are shorter than they say.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let fail = io_error(path);
        let file = File::open(path).map_err(&fail)?;
        let mapping = Arc::new(Mapping::read_only(&file).map_err(&fail)?);
        let name = || path.display().to_string();
        let refuse = |source| TableError::Header { path: name(), source };
        let header = mapping.atomics::<SegmentHeader>(0).ok_or(refuse(HeaderError::NotASegment))?;
        header.check(SegmentKind::RouteCounters, mapping.len() as u64).map_err(refuse)?;
        let found = header.slots();
        let routes = u32::try_from(found).ok().filter(|routes| (1..=MAX_ROUTES).contains(routes));
        routes.and_then(|routes| Self::place(&mapping, routes)).ok_or_else(|| TableError::Damaged {
            path: name(),
            field: "routes",
            found,
            expected: ((mapping.len() - USES_AT.min(mapping.len())) / size_of::<RouteUse>()) as u64,
        })
    }

    fn place(mapping: &Arc<Mapping>, routes: u32) -> Option<Self> {
        mapping.populate();
        Some(Self { uses: mapping.place(USES_AT, routes as usize)?, header: mapping.place(0, 1)? })
    }

    /// Number of routes counted.
    pub fn routes(&self) -> u32 {
        // the count came from a u32
        u32::try_from(self.uses.len()).unwrap_or(u32::MAX)
    }

    /// Who writes the counters, or wrote them last.
    pub fn writer(&self) -> Incarnation {
        self.header[0].writer()
    }

    /// Counts one MAD; a place out of range is ignored. Only on counters that this process created.
    pub fn add(&self, index: u32, bytes: u64, now_ns: u64) {
        let Some(place) = self.uses.get(index as usize).filter(|_| self.uses.is_writable()) else { return };
        place.packets.fetch_add(1, Ordering::Relaxed);
        place.bytes.fetch_add(bytes, Ordering::Relaxed);
        place.last_use_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Packets, bytes and last use of a place; zeros for one out of range.
    pub fn get(&self, index: u32) -> (u64, u64, u64) {
        let Some(place) = self.uses.get(index as usize) else { return (0, 0, 0) };
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        (load(&place.packets), load(&place.bytes), load(&place.last_use_ns))
    }

    /// Sets a place to zero, because another route stands there now. Only on counters that this process created.
    pub fn reset(&self, index: u32) {
        let Some(place) = self.uses.get(index as usize).filter(|_| self.uses.is_writable()) else { return };
        for word in [&place.packets, &place.bytes, &place.last_use_ns] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_was_counted_and_places_out_of_range_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("routes");
        let writer =
            RouteCounters::create(&path, 200, Incarnation { pid: 5, ..Incarnation::default() }).unwrap();
        writer.add(199, 256, 17);
        writer.add(199, 256, 18);
        writer.add(200, 256, 19);
        let reader = RouteCounters::open(&path).unwrap();
        assert_eq!((reader.routes(), reader.writer().pid), (200, 5));
        assert_eq!(reader.get(199), (2, 512, 18));
        assert_eq!(reader.get(200), (0, 0, 0));
        writer.reset(199);
        assert_eq!(reader.get(199), (0, 0, 0));
    }

    #[test]
    fn a_read_only_mapping_is_never_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("routes");
        RouteCounters::create(&path, 1, Incarnation::default()).unwrap();
        let reader = RouteCounters::open(&path).unwrap();
        reader.add(0, 256, 1);
        reader.reset(0);
        assert_eq!(reader.get(0), (0, 0, 0));
    }

    #[test]
    fn counters_that_say_more_routes_than_are_mapped_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("routes");
        RouteCounters::create(&path, 128, Incarnation::default()).unwrap();
        for (said, accepted) in [(128u64, true), (129, false), (0, false), (u64::MAX, false)] {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[48..56].copy_from_slice(&said.to_ne_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let opened = RouteCounters::open(&path);
            assert_eq!(opened.is_ok(), accepted, "{said}");
            assert!(accepted || matches!(opened, Err(TableError::Damaged { field: "routes", .. })));
        }
        assert!(matches!(
            RouteCounters::create(&path, MAX_ROUTES + 1, Incarnation::default()),
            Err(TableError::Options { .. })
        ));
    }
}
