//! `madctl errors show`: the distinct error logs of both daemons.

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
        let mut rows = vec![["count", "first", "last", "source", "error"].map(str::to_owned).to_vec()];
        for entry in &self.errors {
            rows.push(vec![
                entry.count.to_string(),
                utc(entry.first_unix_ns),
                utc(entry.last_unix_ns),
                entry.source.label().to_owned(),
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
    use madplane_shm::table::TableOptions;
    use madplane_shm::table::publish::RoutePublisher;
    use madplane_shm::table::snapshot::TableReader;

    #[test]
    fn errors_are_shown_once_with_their_count() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        let plane = ready_head();
        assert!(Errors::of(Some((&status, plane.clone())), &[]).text().ends_with("no errors\n"));
        status.record_error("a worker does not answer", 0);
        status.record_error("cannot accept a client", 0);
        status.record_error("a worker does not answer", 90_000_000_000_000);
        let path = directory.path().join("table");
        let table = RoutePublisher::create(&path, TableOptions::default(), Incarnation::default()).unwrap();
        table.record_error("DR table full (max=1024), refusing route", 60_000_000_000);
        drop(table);
        let reader = TableReader::open(&path).unwrap();
        let both = Errors::of(Some((&status, plane)), reader.errors());
        assert_eq!(both.text(), include_str!("../../tests/golden/errors.txt"));
        assert!(Errors::of(None, reader.errors()).text().starts_with("count"), "without a plane, too");
    }
}
