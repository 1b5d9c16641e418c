//! How long one thing is measured: a number of times, or until its share of the time is over.
//!
//! Owned by the measuring thread. It looks at the clock once per [`STRETCH`] of what is done, so that the clock is not what
//! is measured.

use std::time::{Duration, Instant};

use crate::harness::STRETCH;
use crate::scenario::Options;

/// What one measurement is given.
#[derive(Debug, Clone, Copy)]
pub struct Stint {
    time: Option<Duration>,
    count: u64,
}

impl Stint {
    /// `--count` measurements if that was said, otherwise one of `parts` equal parts of `--duration`, otherwise `default`.
    pub fn of(options: &Options, parts: u32, default: Duration) -> Self {
        if options.count > 0 {
            return Self { time: None, count: u64::from(options.count) };
        }
        Self { time: Some(options.part_of(parts, default)), count: u64::MAX }
    }

    /// What is given to warming up.
    #[must_use]
    pub fn tenth(self) -> Self {
        let count = if self.time.is_some() { self.count } else { (self.count / 10).max(1) };
        Self { time: self.time.map(|time| time / 10), count }
    }

    /// The same, but not fewer measurements than this.
    #[must_use]
    pub fn at_least(self, count: u32) -> Self {
        Self { count: self.count.max(u64::from(count)), ..self }
    }

    /// The same, where each measurement does `size` things of which the others do one.
    #[must_use]
    pub fn of_size(self, size: u32) -> Self {
        Self { count: (self.count / u64::from(size.max(1))).max(1), ..self }
    }

    /// Starts the clock.
    pub fn begin(self) -> Running {
        Running { end: self.time.map(|time| Instant::now() + time), left: self.count, unseen: 0 }
    }
}

/// A stint that has begun.
#[derive(Debug)]
pub struct Running {
    end: Option<Instant>,
    left: u64,
    unseen: u32,
}

impl Running {
    /// Counts what was done; whether there is to be more. The end of the time is noticed within [`STRETCH`].
    #[inline]
    pub fn goes_on(&mut self, done: u32) -> bool {
        self.left = self.left.saturating_sub(u64::from(done));
        self.unseen += done;
        if self.unseen >= STRETCH {
            self.unseen = 0;
            return self.left > 0 && self.end.is_none_or(|end| Instant::now() < end);
        }
        self.left > 0
    }

    /// As [`Running::goes_on`], by a clock that was read for another reason.
    #[inline]
    pub fn goes_on_at(&mut self, now: Instant, done: u32) -> bool {
        self.left = self.left.saturating_sub(u64::from(done));
        self.left > 0 && self.end.is_none_or(|end| now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_kept_whatever_time_it_takes() {
        let options = Options { count: 10, duration: Some(Duration::from_secs(1)), ..Options::default() };
        let stint = Stint::of(&options, 1, Duration::ZERO);
        for (stint, count) in [(stint, 10), (stint.tenth(), 1)] {
            let mut running = stint.begin();
            let mut done = 1;
            while running.goes_on(1) {
                done += 1;
            }
            assert_eq!(done, count);
        }
    }

    #[test]
    fn a_time_ends_at_the_first_look_after_it() {
        let mut running = Stint::of(&Options::default(), 1, Duration::ZERO).begin();
        assert!(running.goes_on(1), "not looked yet");
        assert!(!running.goes_on(STRETCH));
        let mut long = Stint::of(&Options::default(), 1, Duration::from_secs(3600)).begin();
        assert!(long.goes_on(STRETCH) && long.goes_on_at(Instant::now(), 1));
        assert!(!long.goes_on_at(Instant::now() + Duration::from_secs(7200), 1));
    }
}
