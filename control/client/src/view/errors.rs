//! The distinct error logs of a plane: madplaned's in the status segment, madctld's in the table segment.
//!
//! Plain values made from one look at each.

use madplane_shm::errors::ErrorRecord;
use madplane_shm::status::{MAX_ERRORS, Status};
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use serde::Serialize;

use super::Head;
use crate::show;

/// Which daemon recorded an error; the number is that of the C header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum ErrorSource {
    /// The data plane.
    Madplaned = 0,
    /// The control daemon.
    Madctld = 1,
}

impl ErrorSource {
    /// The daemon's name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Madplaned => "madplaned",
            Self::Madctld => "madctld",
        }
    }
}

/// One distinct error.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorEntry {
    /// Who recorded it.
    pub source: ErrorSource,
    /// How often.
    pub count: u64,
    /// Unix time of the first, nanoseconds.
    #[serde(rename = "first", serialize_with = "show::as_utc")]
    pub first_unix_ns: u64,
    /// Unix time of the last, nanoseconds.
    #[serde(rename = "last", serialize_with = "show::as_utc")]
    pub last_unix_ns: u64,
    /// One line.
    pub text: String,
}

/// Both logs.
#[derive(Debug, Clone, Serialize)]
pub struct Errors {
    /// The plane, if it has shown itself.
    pub plane: Option<Head>,
    /// Each log in the order in which its errors first happened, madplaned's first.
    pub errors: Vec<ErrorEntry>,
}

impl Errors {
    /// Reads the logs: that of a status segment, and that of a table.
    pub fn of(seen: Option<(&Status, Head)>, table: &[ErrorRecord]) -> Self {
        let mut errors = Vec::new();
        if let Some((status, _)) = &seen {
            let records = (0..MAX_ERRORS).map(|index| status.error(index));
            errors.extend(records.filter_map(|record| entry(ErrorSource::Madplaned, record)));
        }
        errors.extend(table.iter().filter_map(|record| entry(ErrorSource::Madctld, record)));
        Self { plane: seen.map(|(_, head)| head), errors }
    }
}

fn entry(source: ErrorSource, record: &ErrorRecord) -> Option<ErrorEntry> {
    // pairs with the release in `record_error`: the text is complete
    let count = record.count.load(Acquire);
    (count > 0).then(|| ErrorEntry {
        source,
        count,
        first_unix_ns: record.first_unix_ns.load(Relaxed),
        last_unix_ns: record.last_unix_ns.load(Relaxed),
        text: record.text.load(),
    })
}
