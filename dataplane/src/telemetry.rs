//! Private counts of a worker and their way into the status segment.
//!
//! Counting is an addition to a private word. [`Telemetry::commit`] copies the words out with relaxed stores; the worker
//! calls it once a millisecond at most, never once per MAD.

use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering;

/// What a worker counts for itself.
#[derive(Debug)]
pub struct Counts {
    counters: [u64; Counter::ALL.len()],
    drops: [u64; DropReason::ALL.len()],
}

impl Default for Counts {
    fn default() -> Self {
        Self { counters: [0; Counter::ALL.len()], drops: [0; DropReason::ALL.len()] }
    }
}

impl Counts {
    /// Adds to a counter.
    pub fn add(&mut self, counter: Counter, amount: u64) {
        self.counters[counter as usize] += amount;
    }

    /// Sets a counter that somebody else keeps.
    pub fn set(&mut self, counter: Counter, value: u64) {
        self.counters[counter as usize] = value;
    }

    /// Counts a dropped MAD.
    pub fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    /// Value of a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// MADs dropped for a reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }
}

/// Time accounting of a duty cycle, and the worker's block in the status segment.
#[derive(Debug)]
pub struct Telemetry {
    status: Status,
    worker: usize,
    started_ns: u64,
    polls_empty: u64,
    polls_full: u64,
    busy_ns: u64,
    longest_cycle_ns: u64,
    stalls: u64,
    slept_ns: u64,
}

/// A duty cycle longer than this is counted as a stall.
pub const STALL_NS: u64 = 1_000_000;

impl Telemetry {
    /// Starts accounting for `worker`.
    pub fn new(status: Status, worker: usize, now_ns: u64) -> Self {
        Self {
            status,
            worker,
            started_ns: now_ns,
            polls_empty: 0,
            polls_full: 0,
            busy_ns: 0,
            longest_cycle_ns: 0,
            stalls: 0,
            slept_ns: 0,
        }
    }

    /// Accounts for duty cycles without work.
    pub fn empty_cycles(&mut self, count: u64) {
        self.polls_empty += count;
    }

    /// Accounts for a duty cycle that did something.
    pub fn full_cycle(&mut self, duration_ns: u64) {
        self.polls_full += 1;
        self.busy_ns += duration_ns;
        self.longest_cycle_ns = self.longest_cycle_ns.max(duration_ns);
        self.stalls += u64::from(duration_ns > STALL_NS);
        self.status.worker(self.worker).cycles.record(duration_ns);
    }

    /// Accounts for time asleep.
    pub fn slept(&mut self, duration_ns: u64) {
        self.slept_ns += duration_ns;
    }

    /// Copies everything to the status segment.
    pub fn commit(&self, counts: &Counts, now_ns: u64) {
        let block = self.status.worker(self.worker);
        let words = [
            (&block.heartbeat_ns, now_ns),
            (&block.polls_empty, self.polls_empty),
            (&block.polls_full, self.polls_full),
            (&block.busy_ns, self.busy_ns),
            (&block.total_ns, now_ns.saturating_sub(self.started_ns)),
            (&block.longest_cycle_ns, self.longest_cycle_ns),
            (&block.stalls, self.stalls),
            (&block.slept_ns, self.slept_ns),
        ];
        for (word, value) in words {
            word.store(value, Ordering::Relaxed);
        }
        for (word, value) in block.counters.iter().zip(counts.counters) {
            word.store(value, Ordering::Relaxed);
        }
        for (word, value) in block.drops.iter().zip(counts.drops) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The status segment.
    pub fn status(&self) -> &Status {
        &self.status
    }
}
