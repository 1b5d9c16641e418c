//! What wakes a receiver that sleeps: its doorbells and the end of the plane, with one system call per sleep.
//!
//! Doorbells are watched edge by edge, as the plane watches its own: nobody has to read them after a wake-up. A pipe holds
//! some thousands of rings and then takes no more, so it is emptied now and then. That each write to a pipe which is not empty
//! is an edge holds since Linux 5.14 (and on the stable kernels before it). For one sleeper at a time: an edge wakes one.
//! Invariant: what was rung before [`Alarm::wait`] and not reported yet ends it at once. What it does not do: arm rings.

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use madplane_shm::doorbell::Doorbell;
use madplane_shm::sync::{AtomicU32, Ordering};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Wake-ups between two times that the doorbell is emptied; far fewer than a pipe has room for.
const WAKES_PER_TAKE: u32 = 1024;

const RUNG: u64 = 0;
const GONE: u64 = 1;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// By a doorbell, by time, or for no reason.
    Somehow,
    /// The plane has closed the connection.
    Gone,
}

/// The descriptors.
#[derive(Debug)]
pub(crate) struct Alarm {
    epoll: OwnedFd,
    wakes: AtomicU32,
}

impl Alarm {
    /// Is rung by `bells` and by the end of `connection`.
    ///
    /// # Errors
    /// No descriptor or memory left.
    pub(crate) fn create(bells: &[&Doorbell], connection: BorrowedFd<'_>) -> Result<Self, Errno> {
        let made = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for bell in bells {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&made, bell, epoll::EventData::new_u64(RUNG), flags)?;
        }
        // not by edges: the end has to be seen whoever sees it first
        epoll::add(&made, connection, epoll::EventData::new_u64(GONE), epoll::EventFlags::RDHUP)?;
        Ok(Self { epoll: made, wakes: AtomicU32::new(0) })
    }

    /// Waits for at most `ns`. `down` is the doorbell that the plane rings.
    pub(crate) fn wait(&self, ns: u64, down: &Doorbell) -> Woken {
        let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0) };
        let mut events = [const { MaybeUninit::uninit() }; 4];
        // interrupted: the caller looks at everything and comes back
        let Ok((happened, _)) = epoll::wait(&self.epoll, &mut events, Some(&timeout)) else {
            return Woken::Somehow;
        };
        if self.wakes.fetch_add(1, Ordering::Relaxed) % WAKES_PER_TAKE == WAKES_PER_TAKE - 1 {
            down.take();
        }
        if happened.iter().any(|event| event.data.u64() == GONE) { Woken::Gone } else { Woken::Somehow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    const LONG_NS: u64 = 60_000_000_000;

    fn alarm() -> (Alarm, Doorbell, Doorbell, OwnedFd) {
        let (rings, hears) = Doorbell::one_way().unwrap();
        let hears = Doorbell::from_fd(hears);
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let alarm = Alarm::create(&[&hears], ours.as_fd()).unwrap();
        // the descriptor is watched for as long as it is open
        std::mem::forget(ours);
        (alarm, rings, hears, theirs)
    }

    #[test]
    fn every_ring_wakes_though_nobody_reads_and_the_pipe_never_fills() {
        let (alarm, rings, hears, _theirs) = alarm();
        for _ in 0..20_000 {
            rings.ring();
            assert_eq!(alarm.wait(LONG_NS, &hears), Woken::Somehow);
        }
        assert_eq!(alarm.wait(1, &hears), Woken::Somehow, "an edge is reported once");
    }

    #[test]
    fn a_ring_of_before_counts_and_the_end_of_the_plane_is_seen_again_and_again() {
        let (alarm, rings, hears, theirs) = alarm();
        rings.ring();
        assert_eq!(alarm.wait(LONG_NS, &hears), Woken::Somehow);
        drop(theirs);
        assert_eq!(alarm.wait(LONG_NS, &hears), Woken::Gone);
        assert_eq!(alarm.wait(LONG_NS, &hears), Woken::Gone);
    }
}
