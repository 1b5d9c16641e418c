//! The half of the route table that everybody reads with.
//!
//! A [`TableReader`] belongs to one thread. [`TableReader::changed`] is one load; [`TableReader::refresh`] hands out what
//! changed, whole and of one generation, for a copy that the caller keeps. The mapping is read-only, so a reader cannot
//! disturb the writer or another reader, and needs neither of the daemons to be alive.
//!
//! Memory: 148 bytes a route of the capacity, touched when the reader is opened; a refresh allocates nothing.
//!
//! Not here: what a route means, and noticing that the file was replaced without being asked ([`TableReader::is_at`]).

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

pub use crate::seqlock::Refresh;

use super::{
    Decoded, RouteEntry, RouteWords, SharedTable, TableError, TableMemory, TableOptions, decode, io_error,
};
use crate::header::{HeaderError, Incarnation};
use crate::map::{Mapping, length_of};
use crate::seqlock::Reader;
use crate::sync::Ordering;

/// Reads the route table.
#[derive(Debug)]
pub struct TableReader {
    reader: Reader<SharedTable>,
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
        Ok(Self { reader: Reader::new(table), identity: (found.dev(), found.ino()) })
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
        self.reader.memory().options()
    }

    /// Number of routes the table has room for.
    pub fn capacity(&self) -> u32 {
        self.reader.memory().entries()
    }

    /// Who writes the table, or wrote it last.
    pub fn writer(&self) -> Incarnation {
        self.reader.memory().header().writer()
    }

    /// The mapped table; for tests.
    #[doc(hidden)]
    pub fn table(&self) -> &SharedTable {
        self.reader.memory()
    }

    /// Interval in milliseconds and number of changes after which control publishes.
    pub fn tuning(&self) -> (u64, u64) {
        let control = self.reader.memory().control();
        (control.sync_interval_ms.load(Ordering::Relaxed), control.sync_threshold.load(Ordering::Relaxed))
    }

    /// Calls `apply` once for each place that changed since the last complete refresh, with its route or `None` for a
    /// place that is free now. All are of the generation returned.
    ///
    /// A damaged route is counted in [`Refresh::refused`] and not handed out: the caller's copy keeps the last good one.
    /// Never waits: with the writer overtaking again and again it gives up, hands out nothing and says so.
    pub fn refresh(&mut self, apply: &mut impl FnMut(u32, Option<&RouteEntry>)) -> Refresh {
        self.reader.refresh(&mut |index, words: &RouteWords| match decode(index, words) {
            Decoded::Present(entry) => {
                apply(index, Some(&entry));
                true
            }
            Decoded::Absent => {
                apply(index, None);
                true
            }
            Decoded::Damaged => false,
        })
    }
}
