//! The loop around the duty cycle: the clock, what is shown when, and what a worker does when it has nothing to do.
//!
//! Part of [`Worker`], same thread. The clock is read once per duty cycle with work, after it, every [`EMPTY_CYCLES_PER_CLOCK`]
//! empty ones, and after every sleep. A worker that is awake has nothing armed; before it waits it arms every ring, raises its
//! flag, and looks once more at everything (`sleep.rs`). What it has counted is shown before it lies down, so that no sleep ends
//! for that.

use std::sync::Arc;
use std::time::Duration;

use madplane_shm::counters::Counter;
use madplane_shm::process::monotonic_ns;
use madplane_shm::sync::Ordering;
use madplane_shm::tuning::{Parameter, Tuning, TuningPatch};
use rustix::io::Errno;

use super::{Arrival, Worker};
use crate::idle::{Idle, Step};
use crate::sleep::{Sleeper, WorkerBell};

/// Duty cycles without work between two looks at the clock.
const EMPTY_CYCLES_PER_CLOCK: u32 = 16;
/// Counters that moved are shown this long after the last time.
const COMMIT_NS: u64 = 1_000_000;
/// An idle worker shows that it lives this often.
const HEARTBEAT_NS: u64 = 100_000_000;

/// As good as for ever.
const WITHOUT_NET_NS: u64 = 3_600_000_000_000;

/// When counts were shown, and whether they moved since.
#[derive(Debug, Clone, Copy)]
struct Shown {
    at_ns: u64,
    moved: bool,
}

impl Shown {
    fn is_due(self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.at_ns) > if self.moved { COMMIT_NS } else { HEARTBEAT_NS }
    }

    /// Time until counts are due.
    fn due_in(self, now_ns: u64) -> u64 {
        (self.at_ns + if self.moved { COMMIT_NS } else { HEARTBEAT_NS } + 1).saturating_sub(now_ns)
    }
}

impl Worker {
    /// Lets the worker sleep: it is woken by `bell`, and wakes the workers of `others` (one for each, itself included).
    ///
    /// # Errors
    /// No descriptor left.
    pub fn sleeping(mut self, bell: Arc<WorkerBell>, others: Vec<Arc<WorkerBell>>) -> Result<Self, Errno> {
        self.sleeper = Some(Sleeper::new(bell)?);
        self.egress.mesh.set_bells(others);
        Ok(self)
    }

    /// Lets nothing but doorbells, moderation and the fabric's timers end a sleep; for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn without_net(mut self) -> Self {
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.remove_net();
        }
        self
    }

    /// Waits as `tuning` says until control asks for something else. Without a core of its own it never polls in vain.
    #[must_use]
    pub fn tuned(mut self, tuning: Tuning, shares_core: bool) -> Self {
        self.own_tuning = tuning;
        self.idle = Idle::new(tuning, shares_core);
        self.take_up(tuning, shares_core);
        self
    }

    /// Lays what control asks for over what the worker was started with.
    #[cold]
    pub(super) fn follow(&mut self, asked: &TuningPatch) {
        self.asked = *asked;
        // control has checked it against its own defaults; what does not go with ours is left
        if let Ok(tuning) = self.own_tuning.with(asked) {
            self.take_up(tuning, self.idle.shares_core());
        }
    }

    /// Waits as `tuning` says from now on, and shows it.
    #[cold]
    pub(super) fn take_up(&mut self, tuning: Tuning, shares_core: bool) {
        if (tuning, shares_core) != (*self.idle.tuning(), self.idle.shares_core()) {
            self.egress.counts.add(Counter::ModeChanges, 1);
        }
        self.idle = Idle::new(tuning, shares_core);
        self.most = usize::try_from(tuning.get(Parameter::Burst)).unwrap_or(1).max(1);
        self.burst.resize(self.most, Arrival::default());
        let block = self.telemetry.status().worker(self.index);
        tuning.store(&block.tuning);
        block.mode.store(self.idle.mode() as u32, Ordering::Relaxed);
        block.shares_core.store(u32::from(shares_core), Ordering::Relaxed);
    }

    /// Serves until ordered to stop.
    pub fn run(mut self) {
        let mut now_ns = monotonic_ns();
        let mut shown = Shown { at_ns: 0, moved: false };
        let mut empty: u32 = 0;
        while !self.stopping {
            let work = self.poll(now_ns);
            if work > 0 {
                let after_ns = monotonic_ns();
                // `now_ns` may be some empty cycles old; that little is counted as busy
                self.telemetry.full_cycle(after_ns.saturating_sub(now_ns));
                now_ns = after_ns;
                shown.moved = true;
                empty = 0;
                if std::mem::take(&mut self.woken) && self.mads > 1 {
                    self.egress.counts.add(Counter::WakeUpsCoalesced, 1);
                }
            } else {
                empty += 1;
                if empty == EMPTY_CYCLES_PER_CLOCK {
                    empty = 0;
                    self.telemetry.empty_cycles(u64::from(EMPTY_CYCLES_PER_CLOCK));
                    now_ns = monotonic_ns();
                }
            }
            if shown.is_due(now_ns) {
                self.commit(now_ns);
                shown = Shown { at_ns: now_ns, moved: false };
            }
            let step = self.idle.after(work, self.mads, now_ns);
            if shown.moved && matches!(step, Step::Sleep) {
                // rather than be woken for it a millisecond later
                self.commit(now_ns);
                shown = Shown { at_ns: now_ns, moved: false };
            }
            let has_net = self.sleeper.as_ref().is_none_or(Sleeper::has_net);
            let due_ns = if has_net { shown.due_in(now_ns) } else { WITHOUT_NET_NS };
            match step {
                Step::Again => std::hint::spin_loop(),
                Step::Pause(ns) => {
                    std::thread::sleep(Duration::from_nanos(ns));
                    now_ns = monotonic_ns();
                }
                Step::Moderate(ns) => now_ns = self.sleep(now_ns, ns.min(due_ns), true),
                Step::Sleep => now_ns = self.sleep(now_ns, due_ns, false),
            }
        }
        self.commit(now_ns);
    }

    /// Sleeps until something comes, or several MADs if `moderated`, for `ns` at most; returns the time.
    fn sleep(&mut self, now_ns: u64, ns: u64, moderated: bool) -> u64 {
        if self.routes.as_ref().is_some_and(|routes| routes.is_due()) {
            // the table is taken over in steps
            return monotonic_ns();
        }
        let (_, pkts) = self.idle.moderation();
        let Some(sleeper) = &self.sleeper else { return monotonic_ns() };
        let moderated = moderated && self.sessions.iter().any(|session| session.batch > 1);
        let mut quiet = true;
        for session in &mut self.sessions {
            // who has one request outstanding sends no second one: it is not to be waited for
            let mads = if moderated { session.batch.clamp(1, pkts) } else { 1 };
            session.batch = 0;
            quiet = quiet && session.rx.arm_for(mads);
        }
        quiet = self.egress.links.arm() && quiet;
        quiet = self.devices.arm() && quiet;
        sleeper.lie_down();
        quiet = quiet
            && !self.egress.mesh.is_waiting()
            && !self.egress.mesh.has_kept()
            && !self.orders.is_waiting()
            && !self.routes.as_ref().is_some_and(|routes| routes.is_due());
        let deadline =
            self.shard.next_deadline().unwrap_or(u64::MAX).min(self.egress.links.deadline_ns(now_ns));
        let until_timer = deadline.saturating_sub(now_ns);
        let mut woken = false;
        let mut after_ns = now_ns;
        if quiet && until_timer > 0 {
            woken = sleeper.wait(ns.min(until_timer));
            after_ns = monotonic_ns();
        }
        sleeper.get_up();
        for session in &mut self.sessions {
            session.rx.disarm();
        }
        self.egress.links.disarm();
        self.devices.disarm();
        let counts = &mut self.egress.counts;
        if after_ns == now_ns {
            counts.add(Counter::SleepsGivenUp, 1);
            // kept link-state messages wait for another worker
            self.egress.mesh.retry();
            self.egress.mesh.wake_others();
            return monotonic_ns();
        }
        counts.add(Counter::WorkerSleeps, 1);
        counts.add(Counter::SleepsModerated, u64::from(moderated));
        counts.add(Counter::WakeUps, u64::from(woken));
        self.woken = woken;
        self.telemetry.slept(after_ns.saturating_sub(now_ns));
        after_ns
    }
}
