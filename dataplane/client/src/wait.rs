//! How a receiver waits: spin a little, then sleep in poll(2).
//!
//! A [`SpinBudget`] belongs to the receiving side of a session and is used under its lock. Invariant: the budget is never
//! above what the policy says, and is 0 when the process may run on one CPU only and the worker may need that one. What it
//! does not do: look at rings or clocks.

use std::time::Duration;

/// How to wait for a MAD that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Never sleep. The lowest latency; keeps one CPU busy for as long as a receive waits.
    Spin,
    /// Spin for up to so many microseconds, then sleep. The time is halved by every wait that went to sleep and restored
    /// by every one that did not.
    Adaptive {
        /// Longest time to spin.
        spin_us: u32,
    },
    /// Sleep at once.
    Sleep,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self::Adaptive { spin_us: 50 }
    }
}

/// Longest time in poll(2) without looking around, so that a lost doorbell costs time and never a MAD.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

const LEAST_NS: u64 = 2_000;
/// Longest time to spin on the only CPU that this process has: a few round trips. The threads that would send the next
/// request wait for this CPU too, and giving it away without sleeping means to wait for a whole time slice of somebody else.
const LONGEST_ALONE_NS: u64 = 3_000;
/// One stretch of spinning for those who never sleep.
const ENDLESS_NS: u64 = 20_000_000;

/// Time that may be spent spinning before the next sleep.
#[derive(Debug)]
pub(crate) struct SpinBudget {
    full_ns: u64,
    now_ns: u64,
    /// One CPU only: let others run instead of pausing.
    pub(crate) alone: bool,
    sleeps: bool,
}

impl SpinBudget {
    pub(crate) fn new(policy: WaitPolicy, worker_cpu: Option<u32>) -> Self {
        let alone = cpus_allowed() <= 1;
        let full_ns = match policy {
            WaitPolicy::Spin => ENDLESS_NS,
            WaitPolicy::Adaptive { spin_us } if alone => match polls_elsewhere(worker_cpu) {
                true => (u64::from(spin_us) * 1_000).min(LONGEST_ALONE_NS),
                false => 0,
            },
            WaitPolicy::Adaptive { spin_us } => u64::from(spin_us) * 1_000,
            WaitPolicy::Sleep => 0,
        };
        Self { full_ns, now_ns: full_ns, alone, sleeps: policy != WaitPolicy::Spin }
    }

    /// Whether a sender may wait a moment for the answer on behalf of a sleeping receiver: the policy lets it spin, and the
    /// worker has a CPU of its own.
    pub(crate) fn may_stay(&self) -> bool {
        self.full_ns > 0
    }

    /// Whether there is nothing but spinning.
    pub(crate) fn never_sleeps(&self) -> bool {
        !self.sleeps
    }

    /// Nanoseconds to spin before sleeping.
    pub(crate) fn spin_ns(&self) -> u64 {
        self.now_ns
    }

    /// The wait ended while spinning.
    pub(crate) fn hit(&mut self) {
        self.now_ns = self.full_ns;
    }

    /// The wait went to sleep.
    pub(crate) fn miss(&mut self) {
        self.now_ns = (self.now_ns / 2).max(LEAST_NS).min(self.full_ns);
    }
}

fn cpus_allowed() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
}

/// Whether the worker is pinned to a CPU that this process may not use, so that spinning cannot be in its way.
fn polls_elsewhere(worker_cpu: Option<u32>) -> bool {
    let cpu = worker_cpu.and_then(|cpu| usize::try_from(cpu).ok());
    cpu.is_some_and(|cpu| rustix::thread::sched_getaffinity(None).is_ok_and(|set| !set.is_set(cpu)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_halve_the_budget_and_a_hit_restores_it() {
        let mut budget = SpinBudget { full_ns: 50_000, now_ns: 50_000, alone: false, sleeps: true };
        budget.miss();
        assert_eq!(budget.spin_ns(), 25_000);
        for _ in 0..20 {
            budget.miss();
        }
        assert_eq!(budget.spin_ns(), LEAST_NS);
        budget.hit();
        assert_eq!(budget.spin_ns(), 50_000);
    }

    #[test]
    fn sleep_never_spins_and_spin_never_sleeps() {
        let mut sleep = SpinBudget::new(WaitPolicy::Sleep, None);
        sleep.miss();
        assert_eq!(sleep.spin_ns(), 0);
        assert!(!sleep.never_sleeps());
        assert!(SpinBudget::new(WaitPolicy::Spin, None).never_sleeps());
    }
}
