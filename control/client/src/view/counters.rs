//! What the workers counted.
//!
//! Plain values made from one look at the status segment. Values only grow while the plane runs.

use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::stage::Stage;
use madplane_shm::status::{DROP_WORDS, Status};
use madplane_shm::sync::Ordering::Relaxed;
use serde::Serialize;

use super::{Head, worker_count};

/// One counter.
#[derive(Debug, Clone, Serialize)]
pub struct Count {
    /// Stage of the pipeline that moves it, if it belongs to one.
    pub stage: Option<&'static str>,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// The counters of a worker, or their sums.
#[derive(Debug, Clone, Serialize)]
pub struct Counters {
    /// The plane.
    pub plane: Head,
    /// The worker, if it is one only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<usize>,
    /// What was done.
    pub counters: Vec<Count>,
    /// What was dropped, by reason.
    pub drops: Vec<Count>,
}

impl Counters {
    /// Reads a segment: one worker, or the sums of all; with `all` also what is zero.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn of(status: &Status, plane: Head, worker: Option<usize>, all: bool) -> Self {
        let workers = worker.map_or(0..worker_count(status), |one| one..one + 1);
        let sum = |of: &dyn Fn(usize) -> u64| workers.clone().map(of).fold(0u64, u64::wrapping_add);
        let counters = Counter::ALL.iter().enumerate().map(|(id, counter)| Count {
            stage: counter.stage().map(Stage::label),
            name: counter.label().to_owned(),
            value: sum(&|index| status.worker(index).counters[id].load(Relaxed)),
        });
        let table = [
            ("retry_count", sum(&|index| status.worker(index).table_retries.load(Relaxed))),
            ("routes_refused", sum(&|index| status.worker(index).table_refused.load(Relaxed))),
        ];
        let stage = Some(Stage::DrTable.label());
        let table = table.map(|(name, value)| Count { stage, name: name.to_owned(), value });
        let drops = (0..DROP_WORDS).map(|id| Count {
            stage: DropReason::ALL.get(id).map(|reason| reason.stage().label()),
            name: DropReason::ALL
                .get(id)
                .map_or_else(|| format!("drop_reason_{id}"), |reason| reason.label().to_owned()),
            value: sum(&|index| status.worker(index).drops[id].load(Relaxed)),
        });
        let known = DropReason::ALL.len();
        Self {
            plane,
            worker,
            counters: counters.chain(table).filter(|count| all || count.value > 0).collect(),
            // a reason that only a newer plane knows is shown when it has counted
            drops: drops
                .enumerate()
                .filter(|(id, count)| count.value > 0 || (all && *id < known))
                .map(|(_, count)| count)
                .collect(),
        }
    }
}
