//! Where workers run, looked at whenever housekeeping comes by: a cpuset may have changed.

use std::time::{Duration, Instant};

use madplane_port::machine::{allow_cores_of, ranges};
use madplane_shm::sync::Ordering;

use super::Housekeeping;
use crate::cores::Move;
use crate::orders::Order;

/// Time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(400);

impl Housekeeping {
    /// Moves workers whose cores are gone, and those whose cores are back.
    pub(super) fn look_at_cores(&mut self) {
        if self.looked_at_cores.elapsed() < BETWEEN_LOOKS {
            return;
        }
        self.look_at_cores_now();
    }

    /// The same, however short ago it was done.
    pub(super) fn look_at_cores_now(&mut self) {
        self.looked_at_cores = Instant::now();
        let moves = self.cores.look(&self.config.cores().others);
        for step in &moves {
            self.move_worker(step);
        }
    }

    fn move_worker(&mut self, step: &Move) {
        let Move { worker, core } = *step;
        let block = self.status.worker(worker);
        let cores = core.map_or_else(|| self.cores.shared(), |core| vec![core]);
        let pinned = allow_cores_of(block.thread.load(Ordering::Relaxed), &cores) && core.is_some();
        let shown = core.filter(|_| pinned).and_then(|core| u32::try_from(core).ok());
        block.cpu.store(shown.unwrap_or(u32::MAX), Ordering::Relaxed);
        if pinned {
            tracing::info!(worker, core, "the allowed cores changed: a worker has moved");
        } else {
            let place = ranges(&cores);
            self.error(&format!(
                "the allowed cores changed: worker {worker} shares core {place} and waits for interrupts"
            ));
        }
        self.ask(worker, Order::ShareCore(!pinned || self.config.overprovisioned()));
    }
}
