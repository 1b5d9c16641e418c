//! The times behind the percentiles as an HdrHistogram interval log, which the usual viewers and libraries read.
//!
//! One line per case, tagged `scenario/case` with underscores for spaces and without commas; times are nanoseconds. Pure but for the clock.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::error::BenchError;
use crate::machine::Environment;
use crate::report::Record;

/// The log of all records that kept their times.
///
/// # Errors
/// [`BenchError::Usage`] if a histogram cannot be written.
pub fn to_hdr_log(environment: &Environment, records: &[Record]) -> Result<String, BenchError> {
    let refuse = |error: &dyn std::fmt::Debug| BenchError::Usage(format!("histogram log: {error:?}"));
    let start = Duration::from_secs(environment.unix_time);
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("times in nanoseconds")
        .add_comment(&environment.to_string())
        .with_start_time(SystemTime::UNIX_EPOCH + start)
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(|error| refuse(&error))?;
    for record in records {
        let Some(times) = &record.times else { continue };
        let name = tag(record);
        log.write_histogram(times.histogram(), start, Duration::ZERO, Tag::new(&name))
            .map_err(|error| refuse(&error))?;
    }
    String::from_utf8(bytes).map_err(|error| refuse(&error))
}

fn tag(record: &Record) -> String {
    let whole = format!("{}/{}", record.bench, record.case);
    whole
        .chars()
        .filter(|letter| *letter != ',')
        .map(|letter| if letter.is_whitespace() { '_' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::harness::Distribution;

    #[test]
    fn every_case_with_times_has_a_line_of_its_own() {
        let mut times = Distribution::new();
        times.record(1234);
        let records = [
            Record::from_rounds("raw", "0 hops, polling", "ns", &[]).distributed(times),
            Record::from_rounds("raw", "no times", "ns", &[]),
        ];
        let log = to_hdr_log(&Environment::default(), &records).unwrap();
        let tags: Vec<String> = IntervalLogIterator::new(log.as_bytes())
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => Some(interval.tag()?.as_str().to_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(tags, ["raw/0_hops_polling"]);
    }
}
