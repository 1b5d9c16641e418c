//! The slot ring beside ringbuf, crossbeam and rtrb.

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
