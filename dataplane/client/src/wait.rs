//! How a receiver waits: spin a little, then sleep in poll(2).
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `MADPLANE_WAIT` | `spin`, `adaptive`, `adaptive:US` or `sleep`, for sessions whose program says nothing | `adaptive:50` |
//!
//! A [`SpinBudget`] belongs to the receiving side of a session and is used under its lock. Invariants: the budget is never
//! above what the policy says; it is 0 when the process may run on one CPU only and the worker may need that one; and nobody
//! who may sleep spins while more threads want to run than there are CPUs, because one of them waits for this one. What it
//! does not do: look at rings or clocks.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::str::FromStr;
use std::time::Duration;

/// Variable that says how sessions wait whose program does not.
pub const WAIT_VARIABLE: &str = "MADPLANE_WAIT";
const DEFAULT_SPIN_US: u32 = 50;
/// Longest spin that can be asked for: who wants more wants [`WaitPolicy::Spin`].
const MOST_SPIN_US: u32 = 1_000_000;

/// How to wait for a MAD that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitPolicy {
    /// As [`WAIT_VARIABLE`] says, else adaptive with 50 us.
    #[default]
    Environment,
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

/// Not a way to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way to wait; there are spin, adaptive, adaptive:MICROSECONDS (up to 1000000) and sleep")]
pub struct WaitError(pub String);

impl FromStr for WaitPolicy {
    type Err = WaitError;

    fn from_str(text: &str) -> Result<Self, WaitError> {
        let (name, us) = text.split_once(':').map_or((text, None), |(name, us)| (name, Some(us)));
        let spin_us = us.map_or(Ok(DEFAULT_SPIN_US), str::parse).ok().filter(|us| *us <= MOST_SPIN_US);
        match (name, us, spin_us) {
            ("spin", None, _) => Ok(Self::Spin),
            ("sleep", None, _) => Ok(Self::Sleep),
            ("adaptive", _, Some(spin_us)) => Ok(Self::Adaptive { spin_us }),
            _ => Err(WaitError(text.to_owned())),
        }
    }
}

impl WaitPolicy {
    /// What is meant if the environment decides.
    ///
    /// # Errors
    /// [`WAIT_VARIABLE`] says nonsense.
    pub(crate) fn resolved(self) -> Result<Self, WaitError> {
        if self != Self::Environment {
            return Ok(self);
        }
        match std::env::var(WAIT_VARIABLE) {
            Ok(text) if !text.is_empty() => text.parse(),
            _ => Ok(Self::Adaptive { spin_us: DEFAULT_SPIN_US }),
        }
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
    crowd: Crowd,
}

/// Whether more threads want to run than there are CPUs, looked at now and then.
#[derive(Debug, Default)]
struct Crowd {
    load: Option<File>,
    cpus: u32,
    looked_ns: u64,
    /// Looks in a row that found it crowded.
    seen: u32,
}

/// Time between two looks: a look costs some microseconds.
const CROWD_LOOK_NS: u64 = 5_000_000;
/// Looks in a row that count: the kernel's own threads run for a moment now and then.
const CROWD_LOOKS: u32 = 3;

impl Crowd {
    fn new() -> Self {
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
        let cpus = cpus.and_then(|text| count_cpus(text.trim())).unwrap_or(u32::MAX);
        Self { load: File::open("/proc/loadavg").ok(), cpus, ..Self::default() }
    }

    fn is_there(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.looked_ns) >= CROWD_LOOK_NS {
            self.looked_ns = now_ns;
            let mut text = [0u8; 64];
            let length = self.load.as_ref().and_then(|load| load.read_at(&mut text, 0).ok()).unwrap_or(0);
            let running = running_threads(text.get(..length).unwrap_or(&[]));
            self.seen = if running.is_some_and(|running| running > self.cpus) { self.seen + 1 } else { 0 };
        }
        self.seen >= CROWD_LOOKS
    }
}

/// Runnable threads according to a line such as `0.20 0.18 0.12 2/80 11206`.
fn running_threads(line: &[u8]) -> Option<u32> {
    let line = std::str::from_utf8(line).ok()?;
    line.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// CPUs in a list such as `0-3,6`.
fn count_cpus(list: &str) -> Option<u32> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.split(',').map(part).sum()
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
            // resolved when the session was opened
            WaitPolicy::Environment => u64::from(DEFAULT_SPIN_US) * 1_000,
        };
        let sleeps = policy != WaitPolicy::Spin;
        let crowd = if sleeps && full_ns > 0 { Crowd::new() } else { Crowd::default() };
        Self { full_ns, now_ns: full_ns, alone, sleeps, crowd }
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

    /// Whether spinning would keep a CPU from others that want it; a look at the system every few milliseconds.
    pub(crate) fn is_rude(&mut self, now_ns: u64) -> bool {
        self.crowd.load.is_some() && self.crowd.is_there(now_ns)
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
        let mut budget = SpinBudget {
            full_ns: 50_000,
            now_ns: 50_000,
            alone: false,
            sleeps: true,
            crowd: Crowd::default(),
        };
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
    fn ways_to_wait_are_read_and_nonsense_is_refused_in_one_line() {
        let read = |text: &str| text.parse::<WaitPolicy>();
        assert_eq!(read("spin"), Ok(WaitPolicy::Spin));
        assert_eq!(read("sleep"), Ok(WaitPolicy::Sleep));
        assert_eq!(read("adaptive"), Ok(WaitPolicy::Adaptive { spin_us: 50 }));
        assert_eq!(read("adaptive:7"), Ok(WaitPolicy::Adaptive { spin_us: 7 }));
        for text in ["", "poll", "spin:3", "sleep:1", "adaptive:", "adaptive:-1", "adaptive:1000001", "Spin"]
        {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("is no way to wait") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn lists_of_cpus_and_the_load_are_read() {
        assert_eq!([count_cpus("0"), count_cpus("0-3,6"), count_cpus("")], [Some(1), Some(5), None]);
        assert_eq!(running_threads(b"0.20 0.18 0.12 2/80 11206\n"), Some(2));
        assert_eq!([running_threads(b""), running_threads(b"0.2 0.1 0.1 x")], [None, None]);
    }

    #[test]
    fn a_crowd_is_believed_when_it_lasts_and_looked_for_seldom() {
        let mut budget = SpinBudget::new(WaitPolicy::Adaptive { spin_us: 50 }, None);
        if budget.crowd.load.is_none() {
            println!("no /proc/loadavg here");
            return;
        }
        // this thread runs: with no CPU at all it is a crowd
        budget.crowd.cpus = 0;
        let rude = [1, 1, 2, 2, 3, 3].map(|look| budget.is_rude(look * CROWD_LOOK_NS));
        assert_eq!(rude, [false, false, false, false, true, true]);
        budget.crowd.cpus = u32::MAX;
        assert!(!budget.is_rude(4 * CROWD_LOOK_NS));
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
