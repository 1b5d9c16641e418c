//! Polling, interrupt and adaptive under an open load of 0 to all a client can send: latency, processor time, wake-ups.

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
