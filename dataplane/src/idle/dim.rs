//! Dynamic moderation: a walk over nine profiles, a step at a time, towards whatever carries more.
//!
//! Every [`EVENTS`] sleeps the MADs a millisecond and the MADs a sleep are compared with those of the stretch before. Better
//! by a tenth: another step the same way; worse: turn round. As many MADs a sleep as half the profile's number at most mean
//! that there is nothing to gather, and the walk begins anew. Private to a worker; reads no clock.

use madplane_shm::tuning::PROFILES;

/// Sleeps between two comparisons.
const EVENTS: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    /// MADs in a thousand milliseconds.
    rate: u64,
    /// MADs in a hundred sleeps.
    per_sleep: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
}

/// Where the walk is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dim {
    at: usize,
    down: bool,
    from_ns: u64,
    events: u64,
    mads: u64,
    former: Option<Stretch>,
}

impl Dim {
    /// Microseconds and MADs of the current profile.
    pub(super) fn profile(&self) -> (u64, u64) {
        PROFILES[self.at]
    }

    /// A sleep that follows `mads`; whether the profile changed.
    pub(super) fn event(&mut self, mads: u64, now_ns: u64) -> bool {
        if self.events == 0 {
            self.from_ns = now_ns;
            self.mads = 0;
        } else {
            self.mads += mads;
        }
        self.events += 1;
        let elapsed = now_ns.saturating_sub(self.from_ns);
        if self.events <= EVENTS || elapsed == 0 {
            return false;
        }
        let seen = Stretch {
            rate: self.mads.saturating_mul(1_000_000_000) / elapsed,
            per_sleep: self.mads * 100 / EVENTS,
        };
        self.events = 0;
        let before = self.at;
        self.decide(seen);
        self.former = Some(seen);
        self.at != before
    }

    fn decide(&mut self, seen: Stretch) {
        let verdict = self.former.map_or(Verdict::Better, |former| compare(seen, former));
        match verdict {
            Verdict::Same if seen.per_sleep <= 50 * self.at as u64 => self.at = 0,
            Verdict::Same => {}
            Verdict::Better => self.step(),
            Verdict::Worse => {
                self.down = !self.down;
                self.step();
            }
        }
    }

    fn step(&mut self) {
        if self.down && self.at == 0 || !self.down && self.at + 1 == PROFILES.len() {
            self.down = !self.down;
        } else if self.down {
            self.at -= 1;
        } else {
            self.at += 1;
        }
    }
}

fn compare(now: Stretch, former: Stretch) -> Verdict {
    for (now, former) in [(now.rate, former.rate), (now.per_sleep, former.per_sleep)] {
        if now.abs_diff(former) * 10 > former {
            return if now > former { Verdict::Better } else { Verdict::Worse };
        }
    }
    Verdict::Same
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One stretch of `mads` a sleep, one sleep in `ns`.
    fn stretch(dim: &mut Dim, now_ns: &mut u64, mads: u64, ns: u64) {
        for _ in 0..=EVENTS {
            dim.event(mads, *now_ns);
            *now_ns += ns;
        }
    }

    #[test]
    fn more_and_more_load_walks_up_and_the_end_of_it_starts_anew() {
        let (mut dim, mut now) = (Dim::default(), 1_000);
        let mut seen = vec![dim.profile()];
        for mads in [2, 3, 4, 6, 8, 12, 16, 24] {
            stretch(&mut dim, &mut now, mads, 10_000);
            seen.push(dim.profile());
        }
        assert_eq!(seen, PROFILES);
        stretch(&mut dim, &mut now, 1, 10_000);
        stretch(&mut dim, &mut now, 1, 10_000);
        assert_eq!(dim.profile(), PROFILES[0]);
    }

    #[test]
    fn a_step_that_made_it_worse_is_taken_back() {
        let (mut dim, mut now) = (Dim::default(), 1_000);
        stretch(&mut dim, &mut now, 4, 10_000);
        stretch(&mut dim, &mut now, 8, 10_000);
        assert_eq!(dim.profile(), PROFILES[2]);
        stretch(&mut dim, &mut now, 4, 20_000);
        assert_eq!(dim.profile(), PROFILES[1]);
    }

    #[test]
    fn a_steady_load_that_fills_its_profile_stays_there() {
        let (mut dim, mut now) = (Dim::default(), 1_000);
        stretch(&mut dim, &mut now, 4, 10_000);
        for _ in 0..10 {
            stretch(&mut dim, &mut now, 4, 10_000);
            assert_eq!(dim.profile(), PROFILES[1]);
        }
    }
}
