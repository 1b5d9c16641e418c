//! `madctl errors show`: the distinct error log of the plane.

use madplane_shm::paths::PlanePaths;
use madplane_shm::status::{MAX_ERRORS, Status};
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use serde::Serialize;

use super::Outcome;
use super::output::{self, Format, Text, utc};
use super::status::{Head, look};

#[derive(Debug, Serialize)]
struct Entry {
    count: u64,
    first: String,
    last: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct Errors {
    plane: Head,
    errors: Vec<Entry>,
}

impl Text for Errors {
    fn text(&self) -> String {
        if self.errors.is_empty() {
            return format!("{}no errors\n", self.plane.text());
        }
        let mut rows = vec![["count", "first", "last", "error"].map(str::to_owned).to_vec()];
        for entry in &self.errors {
            rows.push(vec![
                entry.count.to_string(),
                entry.first.clone(),
                entry.last.clone(),
                entry.text.clone(),
            ]);
        }
        self.plane.text() + &output::table(&rows)
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    let (status, plane) = look(paths)?;
    Ok(output::print(format, &collect(&status, plane))?)
}

fn collect(status: &Status, plane: Head) -> Errors {
    let entry = |index| {
        let record = status.error(index);
        // pairs with the release in `Status::record_error`: the text is complete
        let count = record.count.load(Acquire);
        (count > 0).then(|| Entry {
            count,
            first: utc(record.first_unix_ns.load(Relaxed)),
            last: utc(record.last_unix_ns.load(Relaxed)),
            text: record.text.load(),
        })
    };
    Errors { plane, errors: (0..MAX_ERRORS).filter_map(entry).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_shm::header::Incarnation;

    #[test]
    fn errors_are_shown_once_with_their_count() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        let plane = Head {
            name: "ci".into(),
            version: "0.1.0".into(),
            pid: 4711,
            running: true,
            state: "ready",
            heartbeat_age_ns: 4_000_000,
        };
        assert!(collect(&status, plane.clone()).text().ends_with("no errors\n"));
        status.record_error("a worker does not answer", 0);
        status.record_error("cannot accept a client", 0);
        status.record_error("a worker does not answer", 90_000_000_000_000);
        assert_eq!(collect(&status, plane).text(), include_str!("../../tests/golden/errors.txt"));
    }
}
