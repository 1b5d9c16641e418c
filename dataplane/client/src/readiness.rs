//! The descriptor that a program may poll: readable when a receive is worth a call.
//!
//! An epoll descriptor over four others. It is a descriptor of its own so that "readable" can be switched from four
//! reasons without the program noticing.
//!
//! | member | readable when |
//! |---|---|
//! | down doorbell | the plane rang because the receiver is armed |
//! | attach socket (`RDHUP`, `HUP`) | the plane stopped or died |
//! | timer | the nearest timeout of a watched session is due |
//! | ready | something is already on this side: a kept packet, a timeout, a reassembled message |
//!
//! Used under the receive lock of a session, except [`Readiness::arm_timer`], which senders use under the core lock.
//! Invariant: members are level-triggered and cleared by the session. What it does not do: decide.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use madplane_shm::doorbell::Doorbell;
use madplane_shm::sync::{AtomicU64, Ordering};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

const UNARMED: u64 = u64::MAX;

/// The descriptors.
#[derive(Debug)]
pub(crate) struct Readiness {
    epoll: OwnedFd,
    timer: OwnedFd,
    ready: Doorbell,
    armed_ns: AtomicU64,
}

impl Readiness {
    /// Creates the descriptors and watches the members that the plane drives.
    pub(crate) fn create(bell: &Doorbell, socket: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let ready = Doorbell::create()?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, bell, data, epoll::EventFlags::IN)?;
        epoll::add(&epoll, socket, data, epoll::EventFlags::RDHUP)?;
        epoll::add(&epoll, &timer, data, epoll::EventFlags::IN)?;
        epoll::add(&epoll, &ready, data, epoll::EventFlags::IN)?;
        Ok(Self { epoll, timer, ready, armed_ns: AtomicU64::new(UNARMED) })
    }

    /// The descriptor for the program.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the descriptor readable until [`Readiness::clear_ready`].
    pub(crate) fn set_ready(&self) {
        self.ready.ring();
    }

    /// Undoes [`Readiness::set_ready`].
    pub(crate) fn clear_ready(&self) {
        self.ready.take();
    }

    /// Lets the timer fire at `at_ns` of the monotonic clock, or never. No system call if nothing changes. A timer that has
    /// fired is silenced.
    pub(crate) fn arm_timer(&self, at_ns: Option<u64>) {
        let at = at_ns.unwrap_or(UNARMED);
        if self.armed_ns.swap(at, Ordering::Relaxed) == at {
            return;
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let when = at_ns.map_or(zero, |ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        });
        let setting = Itimerspec { it_interval: zero, it_value: when };
        // can fail for impossible times only
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting);
    }
}
