//! Directed SMPs of 1 to 6 hops in flight, mixed classes, Get and Set; sessions and workers.

use crate::error::BenchError;
use crate::report::Record;
use crate::scenario::Options;

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(_options: &Options) -> Result<Vec<Record>, BenchError> {
    Err(BenchError::Missing("not written yet".to_owned()))
}
