//! How a worker sleeps, and how it is woken.
//!
//! | | who | when |
//! |---|---|---|
//! | up doorbell of a session | its client | it has put something into an armed ring |
//! | waker of a link to another plane | its transport | a frame has come while it was armed |
//! | the worker's own [`WorkerBell`] | housekeeping, other workers | an order, something in a mesh ring, the table has moved |
//!
//! These are eventfds in one epoll of the worker's, edge-triggered: nobody reads them, so a wake-up costs one system call.
//! Each session has a doorbell of its own, because a client may do with it whatever it wants: it can wake the worker in vain,
//! which it can do by sending, and nothing else. The order is always the same: arm the rings, raise the flag, look once more
//! at everything, and only then wait, for a bounded time. A [`Sleeper`] belongs to its worker's thread; a [`WorkerBell`] may
//! be rung by any. Not here: when to sleep ([`crate::idle`]).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use madplane_shm::doorbell::{Doorbell, SleepFlag};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Longest wait, nanoseconds: a lost doorbell costs time and never a MAD.
pub const LONGEST_NS: u64 = 100_000_000;
/// Doorbells taken from the kernel at one time; what is left ends the next wait.
const EVENTS: usize = 64;

/// Wakes one worker.
#[derive(Debug)]
pub struct WorkerBell {
    flag: SleepFlag,
    bell: Doorbell,
}

impl WorkerBell {
    /// A bell of a worker that is awake.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn create() -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self { flag: SleepFlag::default(), bell: Doorbell::create()? }))
    }

    /// Wakes the worker if it sleeps; whether that took a system call, which is so once per sleep. Call after what it shall
    /// see is there to be seen.
    pub fn call(&self) -> bool {
        let due = self.flag.ring_due();
        if due {
            self.bell.ring();
        }
        due
    }
}

/// What a worker sleeps in.
#[derive(Debug)]
pub struct Sleeper {
    epoll: OwnedFd,
    bell: Arc<WorkerBell>,
    /// Every wait is bounded.
    net: bool,
}

impl Sleeper {
    /// For the worker that `bell` wakes.
    ///
    /// # Errors
    /// No descriptor or memory left.
    pub fn new(bell: Arc<WorkerBell>) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let made = Self { epoll, bell, net: true };
        made.watch(&made.bell.bell)?;
        Ok(made)
    }

    /// Is woken by `bell` from now on.
    ///
    /// # Errors
    /// The kernel has no memory for it, or the user watches too much already.
    pub fn watch(&self, bell: impl AsFd) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, bell, epoll::EventData::new_u64(0), flags)
    }

    /// Is no longer woken by `bell`.
    pub fn forget(&self, bell: impl AsFd) {
        let _ = epoll::delete(&self.epoll, bell);
    }

    /// Says that this worker is about to sleep; what was there before is to be looked for afterwards.
    pub fn lie_down(&self) {
        self.bell.flag.raise();
    }

    /// Says that this worker is awake.
    pub fn get_up(&self) {
        self.bell.flag.lower();
    }

    /// Waits without bound from now on, so that a lost wake-up is seen as one; for tests.
    #[doc(hidden)]
    pub fn remove_net(&mut self) {
        self.net = false;
    }

    /// Whether waits are bounded.
    pub fn has_net(&self) -> bool {
        self.net
    }

    /// Waits for a doorbell, `ns` and [`LONGEST_NS`] at most; whether there was one.
    pub fn wait(&self, ns: u64) -> bool {
        let ns = if self.net { ns.min(LONGEST_NS) } else { ns };
        let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0) };
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        // interrupted: the caller looks at everything and comes back
        epoll::wait(&self.epoll, &mut events, Some(&timeout)).is_ok_and(|(rung, _)| !rung.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_rung_once_per_sleep_and_never_read() {
        let bell = WorkerBell::create().unwrap();
        let sleeper = Sleeper::new(bell.clone()).unwrap();
        assert!(!bell.call(), "awake");
        for _ in 0..3 {
            sleeper.lie_down();
            assert!(!sleeper.wait(1_000));
            assert_eq!([bell.call(), bell.call()], [true, false]);
            assert!(sleeper.wait(LONGEST_NS));
            sleeper.get_up();
            assert!(!bell.call());
            assert!(!sleeper.wait(1_000), "an edge is reported once");
        }
    }

    #[test]
    fn a_sessions_doorbell_wakes_until_it_is_forgotten() {
        let sleeper = Sleeper::new(WorkerBell::create().unwrap()).unwrap();
        let bell = Doorbell::create().unwrap();
        bell.ring();
        sleeper.watch(&bell).unwrap();
        assert!(sleeper.wait(LONGEST_NS), "what was rung before counts");
        bell.ring();
        assert!(sleeper.wait(LONGEST_NS));
        sleeper.forget(&bell);
        bell.ring();
        assert!(!sleeper.wait(1_000));
    }
}
