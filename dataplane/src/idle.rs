//! What a worker does when a duty cycle found nothing: look again, pause, or sleep, and for how many MADs.
//!
//! [`Idle`] is told after every duty cycle what it found and answers with a [`Step`]. It reads no clock, makes no system call
//! and knows no ring, so that every decision can be tested by numbers; sleeping is [`crate::sleep`]'s. Owned by the worker's
//! thread. A change of mode or numbers takes hold with the next duty cycle: a worker that is awake has armed nothing, so
//! there is nothing that could be lost.
//!
//! **Moderation** holds a wake-up back so that one serves several MADs. It begins only after a batch of more than one: whoever
//! sends one MAD and waits for its answer is never held up. After a batch the worker sleeps for `moderator_timeout` at most,
//! its rings armed for `moderator_pkts` or for as many as their session last sent, whichever is less (a client with four
//! requests outstanding never sends a fifth); if that brings nothing it sleeps until the next MAD.
//!
//! **Adaptive** polls while traffic comes. Without load it stops polling after `max_empty_polls` or `idle_poll_us`, whichever
//! ends first; with `poll_threshold` MADs within `idle_poll_us` only the time counts, until the load falls below
//! `irq_threshold`, or stays between both for `suspend_timeout`.

mod dim;

use madplane_shm::tuning::{Adaptation, Mode, Parameter, Tuning};

use dim::Dim;

/// Shortest stretch over which load is measured.
const LEAST_WINDOW_NS: u64 = 10_000;

/// What to do between two duty cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Look again.
    Again,
    /// Look again after so many nanoseconds.
    Pause(u64),
    /// Sleep until several MADs are there, for so many nanoseconds at most.
    Moderate(u64),
    /// Sleep until something comes.
    Sleep,
}

/// When wake-ups are held back.
#[derive(Debug, Clone, Copy)]
struct Moderator {
    timeout_ns: u64,
    pkts: u64,
    /// MADs since the last sleep.
    batch: u64,
    dim: Option<Dim>,
}

impl Moderator {
    fn new(tuning: &Tuning, dynamic: bool) -> Self {
        let mut made = Self {
            timeout_ns: tuning.get(Parameter::ModeratorTimeout) * 1_000,
            pkts: tuning.get(Parameter::ModeratorPkts),
            batch: 0,
            dim: dynamic.then(Dim::default),
        };
        made.follow();
        made
    }

    /// Takes the numbers of the current profile.
    fn follow(&mut self) {
        if let Some(dim) = &self.dim {
            let (us, pkts) = dim.profile();
            (self.timeout_ns, self.pkts) = (us * 1_000, pkts);
        }
    }

    /// The sleep that follows a batch.
    fn sleep(&mut self, now_ns: u64) -> Step {
        let batch = std::mem::take(&mut self.batch);
        if let Some(dim) = &mut self.dim
            && dim.event(batch, now_ns)
        {
            self.follow();
        }
        if batch > 1 && self.pkts > 1 && self.timeout_ns > 0 {
            return Step::Moderate(self.timeout_ns);
        }
        Step::Sleep
    }
}

/// When polling is worth it.
#[derive(Debug, Clone, Copy)]
struct Adaptive {
    max_empty_polls: u64,
    idle_ns: u64,
    poll_threshold: u64,
    irq_threshold: u64,
    suspend_ns: u64,
    /// Thresholds count.
    hysteresis: bool,
    empty: u64,
    last_work_ns: u64,
    window_from_ns: u64,
    in_window: u64,
    /// The load pays for polling through gaps.
    busy: bool,
    busy_until_ns: u64,
}

impl Adaptive {
    fn new(tuning: &Tuning) -> Self {
        Self {
            max_empty_polls: tuning.get(Parameter::MaxEmptyPolls),
            idle_ns: tuning.get(Parameter::IdlePollUs) * 1_000,
            poll_threshold: tuning.get(Parameter::PollThreshold),
            irq_threshold: tuning.get(Parameter::IrqThreshold),
            suspend_ns: tuning.get(Parameter::SuspendTimeout) * 1_000,
            hysteresis: tuning.adaptation() != Adaptation::Off,
            empty: 0,
            last_work_ns: 0,
            window_from_ns: 0,
            in_window: 0,
            busy: false,
            busy_until_ns: 0,
        }
    }

    fn found(&mut self, mads: u64, now_ns: u64) {
        self.empty = 0;
        self.last_work_ns = now_ns;
        if self.hysteresis {
            self.in_window += mads;
            self.weigh(now_ns);
        }
    }

    /// Compares the load with the thresholds.
    fn weigh(&mut self, now_ns: u64) {
        let window_ns = self.idle_ns.max(LEAST_WINDOW_NS);
        let elapsed = now_ns.saturating_sub(self.window_from_ns);
        if elapsed < window_ns {
            if self.in_window >= self.poll_threshold {
                (self.busy, self.busy_until_ns) = (true, now_ns + self.suspend_ns);
            }
            return;
        }
        let load = u128::from(self.in_window) * u128::from(window_ns) / u128::from(elapsed);
        if load >= u128::from(self.poll_threshold) {
            (self.busy, self.busy_until_ns) = (true, now_ns + self.suspend_ns);
        } else if load < u128::from(self.irq_threshold) || now_ns >= self.busy_until_ns {
            self.busy = false;
        }
        (self.window_from_ns, self.in_window) = (now_ns, 0);
    }

    /// Nothing was found; whether to go on polling.
    fn goes_on(&mut self, now_ns: u64) -> bool {
        self.empty += 1;
        if self.busy {
            self.weigh(now_ns);
        }
        let idle_ns = now_ns.saturating_sub(self.last_work_ns);
        if idle_ns >= self.idle_ns || (!self.busy && self.empty >= self.max_empty_polls) {
            self.empty = 0;
            return false;
        }
        true
    }
}

#[derive(Debug, Clone, Copy)]
enum Strategy {
    Polling { pause_ns: u64 },
    Interrupt(Moderator),
    Adaptive(Adaptive, Moderator),
}

/// A worker's strategy and what it is tuned by.
#[derive(Debug)]
pub struct Idle {
    tuning: Tuning,
    shares_core: bool,
    strategy: Strategy,
}

impl Idle {
    /// A strategy by `tuning`. A worker that `shares_core` never polls in vain, whatever its mode: it would be in the way of
    /// those who are to give it work.
    pub fn new(tuning: Tuning, shares_core: bool) -> Self {
        let dynamic = tuning.adaptation() == Adaptation::Dim;
        let strategy = match tuning.mode() {
            _ if shares_core => Strategy::Interrupt(Moderator::new(&tuning, dynamic)),
            Mode::Polling => Strategy::Polling { pause_ns: tuning.get(Parameter::PollInterval) * 1_000 },
            Mode::Interrupt => Strategy::Interrupt(Moderator::new(&tuning, dynamic)),
            Mode::Adaptive => Strategy::Adaptive(Adaptive::new(&tuning), Moderator::new(&tuning, dynamic)),
        };
        Self { tuning, shares_core, strategy }
    }

    /// What it is tuned by.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Whether the worker has no core of its own.
    pub fn shares_core(&self) -> bool {
        self.shares_core
    }

    /// The mode that it is in.
    pub fn mode(&self) -> Mode {
        match self.strategy {
            Strategy::Polling { .. } => Mode::Polling,
            Strategy::Interrupt(_) => Mode::Interrupt,
            Strategy::Adaptive(..) => Mode::Adaptive,
        }
    }

    /// Nanoseconds for which a wake-up is held back now, and MADs that wake at once.
    pub fn moderation(&self) -> (u64, u64) {
        match &self.strategy {
            Strategy::Polling { .. } => (0, 1),
            Strategy::Interrupt(moderator) | Strategy::Adaptive(_, moderator) => {
                (moderator.timeout_ns, moderator.pkts)
            }
        }
    }

    /// What to do after a duty cycle that did `work`, `mads` of it MADs. `now_ns` may be some empty cycles old.
    pub fn after(&mut self, work: usize, mads: usize, now_ns: u64) -> Step {
        let mads = mads as u64;
        match &mut self.strategy {
            Strategy::Polling { pause_ns } => {
                if work > 0 || *pause_ns == 0 {
                    Step::Again
                } else {
                    Step::Pause(*pause_ns)
                }
            }
            Strategy::Interrupt(moderator) => {
                if work > 0 {
                    moderator.batch += mads;
                    return Step::Again;
                }
                moderator.sleep(now_ns)
            }
            Strategy::Adaptive(adaptive, moderator) => {
                if work > 0 {
                    moderator.batch += mads;
                    adaptive.found(mads, now_ns);
                    return Step::Again;
                }
                if moderator.dim.is_some() && !adaptive.busy {
                    return moderator.sleep(now_ns);
                }
                if adaptive.goes_on(now_ns) {
                    return Step::Again;
                }
                // nothing came for a while: what came before it says nothing about the next
                moderator.batch = 0;
                Step::Sleep
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_shm::tuning::TuningPatch;

    const MS: u64 = 1_000_000;

    fn idle(text: &str) -> Idle {
        let patch = TuningPatch::parse(text.split_whitespace()).unwrap();
        Idle::new(Tuning::default().with(&patch).unwrap(), false)
    }

    /// Empty polls, 50 ns each, until it stops polling; `None` if it does not within `most`.
    fn polls_until_sleep(idle: &mut Idle, from_ns: u64, most: u64) -> Option<u64> {
        (1..=most).find(|poll| idle.after(0, 0, from_ns + poll * 50) != Step::Again)
    }

    #[test]
    fn polling_never_sleeps_and_pauses_if_it_is_told_to() {
        let mut idle = self::idle("mode=polling");
        assert_eq!(polls_until_sleep(&mut idle, 0, 10_000), None);
        let mut idle = self::idle("mode=polling poll_interval=7");
        assert_eq!((idle.after(3, 3, 0), idle.after(0, 0, 0)), (Step::Again, Step::Pause(7_000)));
    }

    #[test]
    fn interrupt_sleeps_at_once_and_moderates_only_after_a_batch() {
        let mut idle = self::idle("mode=interrupt");
        assert_eq!(idle.after(0, 0, 0), Step::Sleep);
        assert_eq!((idle.after(1, 1, 0), idle.after(0, 0, 0)), (Step::Again, Step::Sleep));
        assert_eq!((idle.after(2, 2, 0), idle.after(0, 0, 0)), (Step::Again, Step::Moderate(16_000)));
        // the moderated sleep brought nothing
        assert_eq!(idle.after(0, 0, 0), Step::Sleep);
        // one MAD in each of two cycles of one stay is a batch too
        idle.after(1, 1, 0);
        idle.after(1, 1, 0);
        assert_eq!(idle.after(0, 0, 0), Step::Moderate(16_000));
        // an order is not a MAD
        idle.after(2, 0, 0);
        assert_eq!(idle.after(0, 0, 0), Step::Sleep);
    }

    #[test]
    fn moderation_can_be_switched_off_by_either_number() {
        for text in ["mode=interrupt rx-usecs=0", "mode=interrupt rx-frames=1"] {
            let mut idle = self::idle(text);
            idle.after(9, 9, 0);
            assert_eq!(idle.after(0, 0, 0), Step::Sleep, "{text}");
        }
    }

    #[test]
    fn adaptive_without_load_stops_after_empty_polls_or_time_whichever_is_first() {
        let mut idle = self::idle("mode=adaptive max_empty_polls=100");
        idle.after(1, 1, MS);
        assert_eq!(polls_until_sleep(&mut idle, MS, 10_000), Some(100));
        let mut idle = self::idle("mode=adaptive idle_poll_us=1 max_empty_polls=100");
        idle.after(1, 1, MS);
        assert_eq!(polls_until_sleep(&mut idle, MS, 10_000), Some(20));
        // awake for another reason than work it goes to sleep again as soon
        assert!(polls_until_sleep(&mut idle, 5 * MS, 10_000).is_some());
    }

    #[test]
    fn adaptive_under_load_polls_through_gaps_that_end_it_otherwise() {
        let mut idle = self::idle("mode=adaptive max_empty_polls=100");
        let mut now = MS;
        for _ in 0..40 {
            idle.after(1, 1, now);
            now += 10_000;
        }
        assert_eq!(polls_until_sleep(&mut idle, now - 10_000, 10_000), Some(4_000), "200 us");
        let mut off = self::idle("mode=adaptive max_empty_polls=100 adaptive=off");
        for step in 0..40 {
            off.after(1, 1, MS + step * 10_000);
        }
        assert_eq!(polls_until_sleep(&mut off, MS + 390_000, 10_000), Some(100));
    }

    #[test]
    fn load_between_the_thresholds_keeps_what_was_until_suspend_timeout() {
        let mut idle = self::idle("mode=adaptive max_empty_polls=10 suspend_timeout=1000");
        let busy = |idle: &Idle| matches!(idle.strategy, Strategy::Adaptive(adaptive, _) if adaptive.busy);
        let mut now = MS;
        // seven MADs in 200 us do not begin it
        for _ in 0..50 {
            idle.after(1, 1, now);
            now += 28_000;
        }
        assert!(!busy(&idle));
        for _ in 0..50 {
            idle.after(1, 1, now);
            now += 10_000;
        }
        assert!(busy(&idle));
        for _ in 0..20 {
            idle.after(1, 1, now);
            now += 28_000;
        }
        assert!(busy(&idle), "0.6 ms between the thresholds");
        for _ in 0..50 {
            idle.after(1, 1, now);
            now += 28_000;
        }
        assert!(!busy(&idle), "2 ms between the thresholds");
    }

    #[test]
    fn who_shares_a_core_never_polls_in_vain() {
        for mode in ["polling", "interrupt", "adaptive"] {
            let patch = TuningPatch::parse([format!("mode={mode}").as_str()]).unwrap();
            let mut idle = Idle::new(Tuning::default().with(&patch).unwrap(), true);
            idle.after(1, 1, MS);
            assert_eq!((idle.after(0, 0, MS), idle.mode()), (Step::Sleep, Mode::Interrupt), "{mode}");
        }
    }

    #[test]
    fn dim_begins_with_the_least_latency() {
        let mut idle = self::idle("mode=interrupt adaptive=dim");
        assert_eq!(idle.moderation(), (1_000, 1));
        idle.after(9, 9, 0);
        assert_eq!(idle.after(0, 0, 0), Step::Sleep);
    }
}
