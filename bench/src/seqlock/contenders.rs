//! What holds one value of 128 bytes for one writer and one reader: the route table, a cell, a mutex.
//!
//! A [`Value`] is made of a number; the reader of each contender gets the number back only if the value is whole.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::atomic::AtomicCell;
use madplane_shm::header::Incarnation;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::{RouteEntry, TableOptions};

use crate::error::BenchError;

/// Words of an entry of the route table, which has 128 bytes.
pub const WORDS: usize = 16;
/// As much as a route has.
pub type Value = [u64; WORDS];
/// Routes of the table.
pub const ROUTES: u32 = 1024;
/// The route that is changed.
const PLACE: u32 = 7;
/// Ports of a route.
const PORTS: usize = 12;

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Number of the value; those of one writer only grow.
    pub number: u64,
    /// Copies thrown away on the way.
    pub retries: u32,
    /// Nothing new could be had: the number is that of an old value.
    pub missed: bool,
}

/// The writing side.
pub trait Write: Send {
    /// Shows the value with this number.
    fn write(&mut self, number: u64);
}

/// The reading side.
pub trait Read: Send {
    /// The value that is shown now.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] if it is of two writes.
    fn read(&mut self) -> Result<Seen, BenchError>;
}

/// Both sides of a contender.
pub struct Pair {
    /// Its name.
    pub name: &'static str,
    /// The writing side.
    pub writer: Box<dyn Write>,
    /// The reading side.
    pub reader: Box<dyn Read>,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All contenders; the table is made in `directory`.
///
/// # Errors
/// [`BenchError::Program`] if there is no table.
pub fn all(directory: &Path) -> Result<[Pair; 3], BenchError> {
    let path = directory.join("contender");
    let publisher = table(&path)?;
    let reader = TableReader::open(&path).map_err(failed)?;
    let cell = Arc::new(AtomicCell::new(value(0)));
    let mutex = Arc::new(Mutex::new(value(0)));
    Ok([
        Pair {
            name: "route table",
            writer: Box::new(TableWriter(publisher)),
            reader: Box::new(Follower { reader, copy: None }),
        },
        Pair {
            name: "crossbeam AtomicCell",
            writer: Box::new(CellEnd(cell.clone())),
            reader: Box::new(CellEnd(cell)),
        },
        Pair { name: "Mutex", writer: Box::new(MutexEnd(mutex.clone())), reader: Box::new(MutexEnd(mutex)) },
    ])
}

/// A fresh table for [`ROUTES`] routes.
///
/// # Errors
/// [`BenchError::Program`].
pub fn table(path: &Path) -> Result<RoutePublisher, BenchError> {
    let options = TableOptions { routes: ROUTES, tenants: 16 };
    RoutePublisher::create(path, options, Incarnation::default()).map_err(failed)
}

/// A table that cannot be had.
pub fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::program("route table", error.to_string())
}

/// The route with this number.
///
/// # Panics
/// Never: the path has a length that a path may have.
pub fn route(number: u64) -> RouteEntry {
    // all ports follow from the number
    let port = u8::try_from(number % 251).unwrap_or(0);
    let mut entry = RouteEntry::new(1, 2, &[port; PORTS]).expect("a dozen ports are a path");
    entry.id = number;
    entry
}

/// Whether a route is what [`route`] makes of its number.
pub fn is_whole(entry: &RouteEntry) -> bool {
    entry.ports() == [u8::try_from(entry.id % 251).unwrap_or(0); PORTS]
}

fn value(number: u64) -> Value {
    std::array::from_fn(|word| number ^ word as u64)
}

fn seen(value: &Value) -> Result<Seen, BenchError> {
    let number = value[0];
    let is_whole = (0u64..).zip(value).all(|(word, content)| number ^ word == *content);
    if is_whole { Ok(Seen { number, ..Seen::default() }) } else { Err(torn(number)) }
}

fn torn(number: u64) -> BenchError {
    BenchError::Wrong(format!("value {number} is of two writes"))
}

struct TableWriter(RoutePublisher);

impl Write for TableWriter {
    fn write(&mut self, number: u64) {
        self.0.set(PLACE, &route(number));
        self.0.publish();
    }
}

/// Keeps a copy, as a worker does, and looks whether it is still the newest.
struct Follower {
    reader: TableReader,
    copy: Option<RouteEntry>,
}

impl Read for Follower {
    fn read(&mut self) -> Result<Seen, BenchError> {
        let mut now = Seen::default();
        if self.reader.changed() {
            let copy = &mut self.copy;
            let done = self.reader.refresh(&mut |_, entry| *copy = entry.copied(), &mut |_, _| ());
            if done.refused > 0 {
                return Err(torn(copy.map_or(0, |entry| entry.id)));
            }
            now = Seen { retries: done.retries, missed: !done.complete, ..now };
        }
        match &self.copy {
            Some(entry) if !is_whole(entry) => Err(torn(entry.id)),
            copy => Ok(Seen { number: copy.map_or(0, |entry| entry.id), ..now }),
        }
    }
}

struct CellEnd(Arc<AtomicCell<Value>>);

impl Write for CellEnd {
    fn write(&mut self, number: u64) {
        self.0.store(value(number));
    }
}

impl Read for CellEnd {
    fn read(&mut self) -> Result<Seen, BenchError> {
        seen(&self.0.load())
    }
}

struct MutexEnd(Arc<Mutex<Value>>);

impl Write for MutexEnd {
    fn write(&mut self, number: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value(number);
    }
}

impl Read for MutexEnd {
    fn read(&mut self) -> Result<Seen, BenchError> {
        let copy = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen(&copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_shows_what_was_written_last() {
        let directory = tempfile::tempdir().unwrap();
        for mut pair in all(directory.path()).unwrap() {
            for number in 1..300 {
                pair.writer.write(number);
                let expected = Seen { number, ..Seen::default() };
                assert_eq!(pair.reader.read().unwrap(), expected, "{}", pair.name);
                assert_eq!(pair.reader.read().unwrap(), expected, "{}", pair.name);
            }
        }
    }

    #[test]
    fn a_value_of_two_writes_is_noticed() {
        let mut torn = value(5);
        torn[9] = value(6)[9];
        assert!(seen(&torn).is_err() && seen(&value(5)).is_ok());
        let entry = RouteEntry { id: 6, ..route(5) };
        assert!(!is_whole(&entry) && is_whole(&route(5)));
    }
}
