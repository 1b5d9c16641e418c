//! How long things take: synchronisations of the table, duty cycles of the workers.
//!
//! Plain values made from the histograms in both segments, which outlive the daemons.

use madplane_shm::status::Status;
use serde::Serialize;

use super::table::TableCopy;
use super::{Head, TableWorkers, worker_count};
use crate::protocol::Latency;

/// Duty cycles of one worker.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerLatency {
    /// Its number, from 0.
    pub worker: usize,
    /// Duty cycles that found work.
    pub cycles: Latency,
}

/// Latencies of a plane.
#[derive(Debug, Clone, Serialize)]
pub struct Latencies {
    /// The plane, if it has shown itself.
    pub plane: Option<Head>,
    /// From publication until every worker had it; nothing without a table.
    pub hw_sync_latency: Option<Latency>,
    /// Generations published.
    pub publications: u64,
    /// Those that a worker did not apply in time.
    pub failures: u64,
    /// What the workers make of the table, if the plane has shown itself.
    pub table: Option<TableWorkers>,
    /// The workers.
    pub workers: Vec<WorkerLatency>,
}

impl Latencies {
    pub(crate) fn of(seen: Option<(Status, Head)>, table: Option<&TableCopy>) -> Self {
        let (publications, failures) = table.map_or((0, 0), |table| table.reader.publications());
        let worker = |status: &Status, worker: usize| WorkerLatency {
            worker,
            cycles: Latency::of(&status.worker(worker).cycles),
        };
        let workers = seen.as_ref().map_or_else(Vec::new, |(status, _)| {
            (0..worker_count(status)).map(|index| worker(status, index)).collect()
        });
        Self {
            hw_sync_latency: table.map(|table| Latency::of(table.reader.sync_latency())),
            publications,
            failures,
            table: seen.as_ref().map(|(status, _)| TableWorkers::of(status)),
            workers,
            plane: seen.map(|(_, head)| head),
        }
    }
}
