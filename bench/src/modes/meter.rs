//! What a plane spent on a stretch of work: processor time, sleeps, wake-ups, system calls, context switches.
//!
//! Counters come from the status segment, which a worker updates a millisecond after they moved; [`Meter::counts`] is told how
//! many requests there have been and waits until they are shown. Processor time of threads is the scheduler's own account in nanoseconds (`schedstat`): exact for a thread that
//! sleeps, up to one tick old for one that runs. Edges of a stretch are off by a few sleeps, except for system calls. Owned by the measuring thread.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use madplane_shm::counters::Counter;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering;

use crate::error::BenchError;
use crate::harness::Summary;
use crate::plane::Plane;

/// Longest time until a worker has shown what it counted.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// Reads the accounts of a plane with one worker.
#[derive(Debug)]
pub struct Meter {
    status: Status,
    process: PathBuf,
    worker: PathBuf,
}

/// Processor time so far, at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    at: Instant,
    worker_ns: u64,
    process_ns: u64,
}

/// Counts so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    received: u64,
    sent: u64,
    doorbells: u64,
    sleeps: u64,
    wake_ups: u64,
    coalesced: u64,
    moderated: u64,
    voluntary: u64,
    involuntary: u64,
}

impl Meter {
    /// Of a running plane.
    ///
    /// # Errors
    /// [`BenchError::Program`] without a status segment, [`BenchError::Missing`] if the kernel keeps no such accounts.
    pub fn of(plane: &Plane) -> Result<Self, BenchError> {
        let status = plane.status()?;
        let process = PathBuf::from(format!("/proc/{}/task", plane.process().id()));
        let thread = status.worker(0).thread.load(Ordering::Relaxed);
        let worker = process.join(thread.to_string());
        let made = Self { status, process, worker };
        if run_ns(&made.worker).is_none() {
            return Err(BenchError::Missing(format!("{} cannot be read", made.worker.display())));
        }
        Ok(made)
    }

    /// The status segment.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Processor time now.
    pub fn time(&self) -> Time {
        let threads = std::fs::read_dir(&self.process).into_iter().flatten().flatten();
        let process_ns = threads.filter_map(|thread| run_ns(&thread.path())).sum();
        Time { at: Instant::now(), worker_ns: run_ns(&self.worker).unwrap_or(0), process_ns }
    }

    /// What was counted until `asked` requests had come to this plane since it was started.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] if the worker does not count so many, or counts more.
    pub fn counts(&self, asked: u64) -> Result<Counts, BenchError> {
        let start = Instant::now();
        loop {
            let counts = self.shown();
            if counts.received == asked {
                return Ok(counts);
            }
            if counts.received > asked || start.elapsed() > SHOWN_WITHIN {
                let counted = counts.received;
                return Err(BenchError::Wrong(format!("{asked} requests, but the worker counted {counted}")));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// What the worker shows now, which may be a millisecond old.
    pub fn shown(&self) -> Counts {
        let block = self.status.worker(0);
        let counter = |counter: Counter| block.counters[counter as usize].load(Ordering::Relaxed);
        let status = std::fs::read_to_string(self.worker.join("status")).unwrap_or_default();
        Counts {
            received: counter(Counter::SessionReceived),
            sent: counter(Counter::SessionSent),
            doorbells: counter(Counter::DoorbellsRung),
            sleeps: counter(Counter::WorkerSleeps),
            wake_ups: counter(Counter::WakeUps),
            coalesced: counter(Counter::WakeUpsCoalesced),
            moderated: counter(Counter::SleepsModerated),
            voluntary: field(&status, "voluntary_ctxt_switches:"),
            involuntary: field(&status, "nonvoluntary_ctxt_switches:"),
        }
    }
}

/// Nanoseconds that a thread has run.
fn run_ns(thread: &std::path::Path) -> Option<u64> {
    std::fs::read_to_string(thread.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}

fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

impl Time {
    /// Adds processor time since `before`: seconds a second, in all and for each of `requests`.
    pub fn since(self, before: Self, requests: u64, into: &mut Summary) {
        let wall_ns = (self.at - before.at).as_nanos() as f64;
        let mut add = |name: &str, value: f64| into.values.insert(name.to_owned(), value);
        for (name, now, then) in
            [("worker", self.worker_ns, before.worker_ns), ("process", self.process_ns, before.process_ns)]
        {
            let ns = now.saturating_sub(then) as f64;
            add(&format!("{name}_cpu"), ns / wall_ns);
            if requests > 0 {
                add(&format!("{name}_cpu_ns_per_mad"), ns / requests as f64);
            }
        }
    }
}

impl Counts {
    /// Adds what happened since `before`, for each of `requests`, or a second if there was none.
    pub fn since(self, before: Self, requests: u64, elapsed: Duration, into: &mut Summary) {
        let (per, unit) = match requests {
            0 => (elapsed.as_secs_f64(), "per_second"),
            requests => (requests as f64, "per_mad"),
        };
        let mut add = |name: String, value: f64| into.values.insert(name, value);
        let moved = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let sleeps = moved(self.sleeps, before.sleeps);
        let wake_ups = moved(self.wake_ups, before.wake_ups);
        let doorbells = moved(self.doorbells, before.doorbells);
        for (name, value) in [
            ("sleeps", sleeps),
            ("wake_ups", wake_ups),
            ("timed_out", (sleeps - wake_ups).max(0.0)),
            ("coalesced", moved(self.coalesced, before.coalesced)),
            ("moderated", moved(self.moderated, before.moderated)),
            ("doorbells", doorbells),
            ("voluntary_switches", moved(self.voluntary, before.voluntary)),
            ("involuntary_switches", moved(self.involuntary, before.involuntary)),
        ] {
            add(format!("{name}_{unit}"), value / per);
        }
    }

    /// Adds the system calls since `before`, for each request and for each MAD. Both have to be as shown at one moment while
    /// requests came: the worker's last sleep, after which it shows that there are no more, belongs to none of them.
    pub fn calls_since(self, before: Self, into: &mut Summary) {
        let moved = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let calls = moved(self.sleeps, before.sleeps) + moved(self.doorbells, before.doorbells);
        let taken = moved(self.received, before.received);
        if taken > 0.0 {
            let mut add = |name: &str, value: f64| into.values.insert(name.to_owned(), thousandths(value));
            add("worker_calls_per_request", calls / taken);
            add("worker_calls_per_mad", calls / (taken + moved(self.sent, before.sent)));
        }
    }
}

/// To three digits behind the point: a stretch of thousands is disturbed once or twice.
fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_shared_among_requests_and_among_requests_and_answers() {
        let before = Counts { received: 10, sent: 10, sleeps: 5, ..Counts::default() };
        let after = Counts { received: 110, sent: 110, sleeps: 105, doorbells: 100, wake_ups: 75, ..before };
        let mut summary = Summary::default();
        after.since(before, 100, Duration::from_secs(1), &mut summary);
        after.calls_since(before, &mut summary);
        for (metric, value) in [
            ("sleeps_per_mad", 1.0),
            ("doorbells_per_mad", 1.0),
            ("wake_ups_per_mad", 0.75),
            ("timed_out_per_mad", 0.25),
            ("coalesced_per_mad", 0.0),
            ("worker_calls_per_request", 2.0),
            ("worker_calls_per_mad", 1.0),
        ] {
            assert_eq!(summary.get(metric).to_bits(), f64::to_bits(value), "{metric}");
        }
        let mut idle = Summary::default();
        after.since(before, 0, Duration::from_secs(4), &mut idle);
        assert_eq!(idle.get("sleeps_per_second").to_bits(), 25f64.to_bits());
        before.calls_since(before, &mut idle);
        assert!(idle.get("worker_calls_per_mad").is_nan());
    }

    #[test]
    fn an_edge_of_a_few_calls_does_not_show() {
        assert_eq!(thousandths(1.000_2).to_bits(), 1f64.to_bits());
        assert_eq!(thousandths(1.001).to_bits(), 1.001f64.to_bits());
    }

    #[test]
    fn the_scheduler_accounts_for_this_thread() {
        let path = std::path::Path::new("/proc/thread-self");
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        assert!(status.contains("nonvoluntary_ctxt_switches:"));
        // a kernel without the account has no file at all
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        assert!(run_ns(path).is_none_or(|ns| ns > 0));
        assert_eq!(field("x: 1\nvoluntary_ctxt_switches:\t7\n", "voluntary_ctxt_switches:"), 7);
    }
}
