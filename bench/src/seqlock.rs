//! What reading and publishing under the sequence lock costs.

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
