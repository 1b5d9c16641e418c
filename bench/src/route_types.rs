//! LID, directed, pinned and cached routing over 1, 2, 4 and 6 hops: mean and deviation, percentiles.

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
