//! When to call the other end: at once or after a little, then ever more slowly.
//!
//! Numbers only, so that a test is a table.

use std::time::Duration;

/// The end that does not call first waits this long for a call.
const COURTESY: Duration = Duration::from_millis(1000);
/// First pause after a failure.
const SHORTEST: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(5);
/// A connection that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(2);

/// How patient a link is.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    first: bool,
    failures: u32,
    random: u64,
}

impl Pace {
    /// `first`: this end calls first. `seed` keeps two ends from calling in step for ever.
    pub(crate) fn new(first: bool, seed: u64) -> Self {
        Self { first, failures: 0, random: seed | 1 }
    }

    /// Time until the next call.
    pub(crate) fn pause(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let base = match self.failures {
            0 => Duration::ZERO,
            failures => (SHORTEST * 2_u32.saturating_pow(failures.min(10) - 1)).min(LONGEST),
        };
        // up to a half more
        let jitter = base * u32::try_from(self.random % 512).unwrap_or(0) / 1024;
        base + jitter + if self.first { Duration::ZERO } else { COURTESY }
    }

    /// The call came to nothing.
    pub(crate) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// There was a connection, and it is over.
    pub(crate) fn lasted(&mut self, time: Duration) {
        if time >= GOOD {
            self.failures = 0;
        } else {
            self.failed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_slow_down_to_five_seconds_and_begin_anew_after_a_good_connection() {
        let mut pace = Pace::new(true, 7);
        assert_eq!(pace.pause(), Duration::ZERO);
        let mut last = Duration::ZERO;
        for _ in 0..6 {
            pace.failed();
            let pause = pace.pause();
            assert!(pause > last, "{pause:?} after {last:?}");
            last = pause;
        }
        for _ in 0..100 {
            pace.lasted(Duration::from_millis(1));
            assert!((LONGEST..=LONGEST * 3 / 2).contains(&pace.pause()) || last < LONGEST);
            last = LONGEST;
        }
        pace.lasted(GOOD);
        assert_eq!(pace.pause(), Duration::ZERO);
    }

    #[test]
    fn the_other_end_waits_for_a_call_before_each_of_its_own() {
        let mut pace = Pace::new(false, 7);
        assert_eq!(pace.pause(), COURTESY);
        pace.failed();
        assert!(pace.pause() > COURTESY);
    }
}
