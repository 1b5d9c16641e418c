//! `madctl counters show`.

use madctl::View;
use madctl::view::{Count, Counters};
use madplane_shm::paths::PlanePaths;
use madplane_shm::stage::Stage;

use super::Outcome;
use super::output::{self, Format, Text};

impl Text for Counters {
    /// What no stage counts, then a heading for each stage in the order of the pipeline.
    fn text(&self) -> String {
        let all = || self.counters.iter().chain(&self.drops);
        if all().next().is_none() {
            return format!("{}nothing counted yet\n", self.plane.text());
        }
        let digits = all().map(|count| count.value.to_string().len()).max().unwrap_or(0);
        let mut text = self.plane.text();
        let stages = Stage::ALL.iter().map(|stage| Some(stage.label()));
        for stage in [None].into_iter().chain(stages) {
            let mut heading = stage;
            for Count { name, value, .. } in all().filter(|count| count.stage == stage) {
                if let Some(stage) = heading.take() {
                    text.push_str(&format!("{stage}\n"));
                }
                text.push_str(&format!("{value:>digits$}  {name}\n"));
            }
        }
        text
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format, worker: Option<usize>, all: bool) -> Outcome {
    Ok(output::print(format, &View::new(paths).counters(worker, all)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::ready_head;
    use madplane_shm::counters::Counter;
    use madplane_shm::drop_reason::DropReason;
    use madplane_shm::header::Incarnation;
    use madplane_shm::status::Status;
    use madplane_shm::sync::Ordering::Relaxed;

    #[test]
    fn what_counted_is_summed_over_workers_and_shown_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        let plane = ready_head();
        status.plane().workers.store(2, Relaxed);
        assert!(Counters::of(&status, plane.clone(), None, false).text().ends_with("nothing counted yet\n"));
        for index in 0..3 {
            status.worker(index).counters[Counter::SessionReceived as usize].store(1000, Relaxed);
        }
        status.worker(0).counters[Counter::DrCacheHit as usize].store(5, Relaxed);
        status.worker(1).table_retries.store(3, Relaxed);
        status.worker(1).drops[DropReason::HopCount as usize].store(7, Relaxed);
        status.worker(1).drops[DropReason::RouteBroken as usize].store(2, Relaxed);
        status.worker(1).drops[DropReason::TenantClass as usize].store(1, Relaxed);
        status.worker(1).drops[127].store(1, Relaxed);
        let text = Counters::of(&status, plane.clone(), None, false).text();
        assert_eq!(text, include_str!("../../tests/golden/counters.txt"));
        let json = serde_json::to_value(Counters::of(&status, plane.clone(), None, false)).unwrap();
        assert_eq!((&json["counters"][0]["stage"], &json["drops"][0]["stage"]), (&().into(), &"smi".into()));
        let one = Counters::of(&status, plane.clone(), Some(0), false);
        assert_eq!((one.counters.len(), one.counters[0].value, one.drops.len()), (2, 1000, 0));
        let all = Counters::of(&status, plane, None, true);
        assert_eq!(
            (all.counters.len(), all.drops.len()),
            (Counter::ALL.len() + 2, DropReason::ALL.len() + 1)
        );
    }
}
