//! What a worker does when a duty cycle found nothing.
//!
//! The loop asks the strategy and nothing else, so that sleeping modes join without touching the duty cycle. Owned by
//! the worker's thread.

use crossbeam::utils::Backoff;

/// What to do between duty cycles.
pub trait IdleStrategy: Send + std::fmt::Debug {
    /// Called after every duty cycle with the amount of work it did.
    fn idle(&mut self, work: usize);
}

/// Polls without a pause: lowest latency, costs a core.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spin;

impl IdleStrategy for Spin {
    fn idle(&mut self, _work: usize) {
        std::hint::spin_loop();
    }
}

/// Polls for a while and then gives the core away: for a machine where pollers share cores with their clients.
#[derive(Debug, Default)]
pub struct Yield {
    backoff: Backoff,
}

impl IdleStrategy for Yield {
    fn idle(&mut self, work: usize) {
        if work > 0 {
            self.backoff.reset();
        } else {
            // spins first, then yields to the scheduler
            self.backoff.snooze();
        }
    }
}
