//! The distinct error log of a plane.
//!
//! Plain values made from one look at the segment.

use madplane_shm::status::{MAX_ERRORS, Status};
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use serde::Serialize;

use super::Head;
use crate::show;

/// One distinct error.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorEntry {
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

/// The log.
#[derive(Debug, Clone, Serialize)]
pub struct Errors {
    /// The plane.
    pub plane: Head,
    /// In the order in which they first happened.
    pub errors: Vec<ErrorEntry>,
}

impl Errors {
    /// Reads a segment.
    pub fn of(status: &Status, plane: Head) -> Self {
        let entry = |index| {
            let record = status.error(index);
            // pairs with the release in `Status::record_error`: the text is complete
            let count = record.count.load(Acquire);
            (count > 0).then(|| ErrorEntry {
                count,
                first_unix_ns: record.first_unix_ns.load(Relaxed),
                last_unix_ns: record.last_unix_ns.load(Relaxed),
                text: record.text.load(),
            })
        };
        Self { plane, errors: (0..MAX_ERRORS).filter_map(entry).collect() }
    }
}
