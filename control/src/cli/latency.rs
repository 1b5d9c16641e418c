//! `madctl latency show`: how long synchronisations of the table and duty cycles of the workers take.
//!
//! Reads the segments only; both daemons may be dead.

use madctl::View;
use madctl::protocol::Latency;
use madctl::view::{Latencies, TableWorkers};
use madplane_shm::paths::PlanePaths;

use super::Outcome;
use super::output::{self, Format, Text, span};

impl Text for Latencies {
    fn text(&self) -> String {
        let mut text = self.plane.as_ref().map(Text::text).unwrap_or_default();
        let mut rows = vec![["", "count", "p50", "p90", "p99", "p99.9", "max"].map(str::to_owned).to_vec()];
        if let Some(latency) = &self.hw_sync_latency {
            rows.push(row("hw_sync_latency".to_owned(), latency));
        }
        for of in &self.workers {
            rows.push(row(format!("worker {} duty cycle", of.worker), &of.cycles));
        }
        text.push_str(&output::table(&rows));
        if self.hw_sync_latency.is_some() {
            let Self { publications, failures, .. } = self;
            text.push_str(&format!("publications {publications}, not applied in time {failures}\n"));
        }
        if let Some(TableWorkers { dr_cache_hit, dr_cache_miss, retry_count, .. }) = &self.table {
            text.push_str(&format!(
                "dr_cache_hit {dr_cache_hit}, dr_cache_miss {dr_cache_miss}, retry_count {retry_count}\n"
            ));
        }
        text
    }
}

fn row(name: String, latency: &Latency) -> Vec<String> {
    let Latency { count, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = *latency;
    let mut row = vec![name, count.to_string()];
    row.extend([p50_ns, p90_ns, p99_ns, p999_ns, max_ns].map(|ns| match count {
        0 => "-".to_owned(),
        _ => fine(ns),
    }));
    row
}

/// A short time to a tenth of a microsecond: what is measured here is that short.
fn fine(ns: u64) -> String {
    match ns {
        1_000..100_000 => format!("{}.{} us", ns / 1_000, ns / 100 % 10),
        _ => span(ns),
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    Ok(output::print(format, &View::new(paths).latency()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::ready_head;
    use madctl::view::WorkerLatency;

    #[test]
    fn latencies_are_shown_a_line_each_and_nothing_measured_is_no_zero() {
        let measured = Latency {
            count: 1000,
            p50_ns: 900,
            p90_ns: 1_500,
            p99_ns: 12_000,
            p999_ns: 2_000_000,
            max_ns: 3_000_000_000,
        };
        let shown = Latencies {
            plane: Some(ready_head()),
            hw_sync_latency: Some(measured),
            publications: 1001,
            failures: 1,
            table: Some(TableWorkers {
                dr_cache_hit: 7,
                dr_cache_miss: 2,
                retry_count: 3,
                ..TableWorkers::default()
            }),
            workers: vec![
                WorkerLatency { worker: 0, cycles: measured },
                WorkerLatency { worker: 1, cycles: Latency::default() },
            ],
        };
        assert_eq!(shown.text(), include_str!("../../tests/golden/latency.txt"));
    }
}
