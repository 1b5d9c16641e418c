//! `madctl errors show`: the distinct error log of the plane.

use madctl::View;
use madctl::view::Errors;
use madplane_shm::paths::PlanePaths;

use super::Outcome;
use super::output::{self, Format, Text, utc};

impl Text for Errors {
    fn text(&self) -> String {
        if self.errors.is_empty() {
            return format!("{}no errors\n", self.plane.as_ref().map(Text::text).unwrap_or_default());
        }
        let mut rows = vec![["count", "first", "last", "error"].map(str::to_owned).to_vec()];
        for entry in &self.errors {
            rows.push(vec![
                entry.count.to_string(),
                utc(entry.first_unix_ns),
                utc(entry.last_unix_ns),
                entry.text.clone(),
            ]);
        }
        self.plane.as_ref().map(Text::text).unwrap_or_default() + &output::table(&rows)
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    Ok(output::print(format, &View::new(paths).errors()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::ready_head;
    use madplane_shm::header::Incarnation;
    use madplane_shm::status::Status;

    #[test]
    fn errors_are_shown_once_with_their_count() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        let plane = ready_head();
        assert!(Errors::of(Some((&status, plane.clone())), &[]).text().ends_with("no errors\n"));
        status.record_error("a worker does not answer", 0);
        status.record_error("cannot accept a client", 0);
        status.record_error("a worker does not answer", 90_000_000_000_000);
        assert_eq!(Errors::of(Some((&status, plane)), &[]).text(), include_str!("../../tests/golden/errors.txt"));
    }
}
