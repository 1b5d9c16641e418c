//! `madctl counters show`.

use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::paths::PlanePaths;
use madplane_shm::status::{DROP_WORDS, Status};
use madplane_shm::sync::Ordering::Relaxed;
use serde::Serialize;

use super::output::{self, Format, Text};
use super::status::{Head, look, worker_count};
use super::{Failure, Outcome};

#[derive(Debug, Serialize)]
struct Count {
    name: String,
    value: u64,
}

#[derive(Debug, Serialize)]
struct Counters {
    plane: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<usize>,
    counters: Vec<Count>,
    drops: Vec<Count>,
}

impl Text for Counters {
    fn text(&self) -> String {
        let all = || self.counters.iter().chain(&self.drops);
        if all().next().is_none() {
            return format!("{}nothing counted yet\n", self.plane.text());
        }
        let digits = all().map(|count| count.value.to_string().len()).max().unwrap_or(0);
        let line = |count: &Count| format!("{:>digits$}  {}\n", count.value, count.name);
        self.plane.text() + &all().map(line).collect::<String>()
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format, worker: Option<usize>, all: bool) -> Outcome {
    let (status, plane) = look(paths)?;
    let workers = worker_count(&status);
    if let Some(wanted) = worker.filter(|wanted| *wanted >= workers) {
        let last = workers.saturating_sub(1);
        return Err(Failure::Failed(format!("there is no worker {wanted}; workers are 0 to {last}")));
    }
    Ok(output::print(format, &collect(&status, plane, worker, all))?)
}

fn collect(status: &Status, plane: Head, worker: Option<usize>, all: bool) -> Counters {
    let workers = worker.map_or(0..worker_count(status), |one| one..one + 1);
    let sum = |of: &dyn Fn(usize) -> u64| workers.clone().map(of).fold(0u64, u64::wrapping_add);
    let counters = Counter::ALL.iter().enumerate().map(|(id, counter)| Count {
        name: counter.label().to_owned(),
        value: sum(&|index| status.worker(index).counters[id].load(Relaxed)),
    });
    let table = [
        ("retry_count", sum(&|index| status.worker(index).table_retries.load(Relaxed))),
        ("routes_refused", sum(&|index| status.worker(index).table_refused.load(Relaxed))),
    ];
    let table = table.map(|(name, value)| Count { name: name.to_owned(), value });
    let drops = (0..DROP_WORDS).map(|id| Count {
        name: DropReason::ALL
            .get(id)
            .map_or_else(|| format!("drop_reason_{id}"), |reason| reason.label().to_owned()),
        value: sum(&|index| status.worker(index).drops[id].load(Relaxed)),
    });
    let known = DropReason::ALL.len();
    Counters {
        plane,
        worker,
        counters: counters.chain(table).filter(|count| all || count.value > 0).collect(),
        // a reason that only a newer plane knows is shown when it has counted
        drops: drops
            .enumerate()
            .filter(|(id, c)| c.value > 0 || (all && *id < known))
            .map(|(_, c)| c)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_shm::header::Incarnation;

    #[test]
    fn what_counted_is_summed_over_workers_and_shown_by_name() {
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
        status.plane().workers.store(2, Relaxed);
        assert!(collect(&status, plane.clone(), None, false).text().ends_with("nothing counted yet\n"));
        for index in 0..3 {
            status.worker(index).counters[Counter::SessionReceived as usize].store(1000, Relaxed);
        }
        status.worker(1).drops[DropReason::HopCount as usize].store(7, Relaxed);
        status.worker(1).drops[127].store(1, Relaxed);
        let text = collect(&status, plane.clone(), None, false).text();
        assert_eq!(text, include_str!("../../tests/golden/counters.txt"));
        let one = collect(&status, plane.clone(), Some(0), false);
        assert_eq!((one.counters.len(), one.counters[0].value, one.drops.len()), (1, 1000, 0));
        let all = collect(&status, plane, None, true);
        assert_eq!(
            (all.counters.len(), all.drops.len()),
            (Counter::ALL.len() + 2, DropReason::ALL.len() + 1)
        );
    }
}
