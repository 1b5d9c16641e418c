//! How workers wait: what is asked of them goes into the table and under its generation.
//!
//! Part of [`RouteDesk`], on its thread. A change is checked against what each worker shows of itself now, so that nothing is
//! published that a worker would have to refuse.

use std::time::Instant;

use madplane_shm::status::MAX_WORKERS;
use madplane_shm::sync::Ordering::Relaxed;
use madplane_shm::tuning::{Mode, Parameter, Tuning, TuningPatch};
use serde_json::Value;
use tracing::info;

use super::{Change, RouteDesk};
use crate::admin_tuning::{TuningAction, TuningDone};
use crate::answer::Answer;

impl RouteDesk {
    /// Carries out a request about tuning; the reply, unless the workers have to have it first.
    pub fn carry_out_tuning(
        &mut self,
        peer: u64,
        id: Value,
        action: &TuningAction,
        now: Instant,
    ) -> Option<Answer> {
        match self.tune(action) {
            Ok(done) => {
                // it is rare, and whoever asks expects to see it: published at once, with or without waiting
                self.publish(now);
                self.bring(peer, id, Change::Tuning(done), action.sync, now)
            }
            Err(text) => Some(Answer::failed(id, text)),
        }
    }

    /// Forgets what was asked of workers; they go back to what they were started with.
    pub fn forget_tuning(&mut self, now: Instant) {
        let asked: Vec<usize> =
            (0..MAX_WORKERS).filter(|worker| !self.publisher.worker_tuning(*worker).is_empty()).collect();
        for worker in &asked {
            self.publisher.set_worker_tuning(*worker, &TuningPatch::default());
        }
        if !asked.is_empty() {
            self.publish(now);
        }
    }

    fn tune(&mut self, action: &TuningAction) -> Result<TuningDone, String> {
        let running = self.running_workers();
        if let (Some(worker), Some(running)) = (action.worker, running)
            && worker >= running
        {
            return Err(format!("there is no worker {worker}; workers are 0 to {}", running.max(1) - 1));
        }
        let of = action.worker.map_or(0..MAX_WORKERS, |worker| worker..worker + 1);
        if action.patch.get(Parameter::Mode) == Some(Mode::Polling as u64)
            && let Some(worker) = of.clone().find(|worker| self.shares_core(*worker))
        {
            return Err(format!(
                "worker {worker} has no core of its own and cannot poll; interrupt and adaptive are possible"
            ));
        }
        let mut changes = Vec::new();
        for worker in of {
            let before =
                if action.reset { TuningPatch::default() } else { self.publisher.worker_tuning(worker) };
            let asked = before.and(&action.patch);
            let now = self.shown_tuning(worker).filter(|_| !action.reset).unwrap_or_default();
            now.with(&asked).map_err(|error| error.to_string())?;
            changes.push((worker, asked));
        }
        let first = changes.first().map_or_else(String::new, |(_, asked)| asked.to_string());
        for (worker, asked) in changes {
            self.publisher.set_worker_tuning(worker, &asked);
        }
        info!(worker = action.worker, asked = first, "workers tuned");
        Ok(TuningDone { asked: first, ..TuningDone::default() })
    }

    fn running_workers(&self) -> Option<usize> {
        let status = self.status.as_ref()?;
        usize::try_from(status.plane().workers.load(Relaxed)).ok().map(|workers| workers.min(MAX_WORKERS))
    }

    /// Whether a running worker has to leave its core to others.
    fn shares_core(&self, worker: usize) -> bool {
        let running = self.running_workers().unwrap_or(0);
        let status = self.status.as_ref().filter(|_| worker < running);
        status.is_some_and(|status| status.worker(worker).shares_core.load(Relaxed) == 1)
    }

    fn shown_tuning(&self, worker: usize) -> Option<Tuning> {
        let running = self.running_workers()?;
        let status = self.status.as_ref().filter(|_| worker < running)?;
        Some(Tuning::load(&status.worker(worker).tuning))
    }

    /// Whether a publication may have to wake somebody: there are workers that sleep now and then.
    pub(crate) fn take_unrung(&mut self) -> bool {
        if !std::mem::take(&mut self.unrung) {
            return false;
        }
        let Some(status) = &self.status else { return false };
        (0..self.running_workers().unwrap_or(0)).any(|worker| {
            let block = status.worker(worker);
            let paused = block.tuning[Parameter::PollInterval as usize].load(Relaxed) > 0;
            paused || block.mode.load(Relaxed) != Mode::Polling as u32
        })
    }
}
