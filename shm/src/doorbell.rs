//! Doorbells: eventfds that wake a sleeping peer.
//!
//! A doorbell carries no information; losing one costs at most the bounded wait of the sleeper. Whether one is due is
//! decided by the sleep word of a ring ([`crate::ring`]). Any thread may ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::sync::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Whether a thread of this process sleeps: for sleepers that several others wake, and that look at more than one ring.
///
/// The sleeper raises the flag, looks once more at everything, and waits. Whoever has something for it makes that visible
/// first and asks [`SleepFlag::ring_due`] then: one of them, and only one, rings.
#[derive(Debug)]
pub struct SleepFlag {
    word: AtomicU32,
}

impl Default for SleepFlag {
    fn default() -> Self {
        Self { word: AtomicU32::new(AWAKE) }
    }
}

impl SleepFlag {
    /// Says that the owner is about to sleep. What others made visible before they found the flag down is seen after this.
    pub fn raise(&self) {
        self.word.store(ASLEEP, Ordering::Relaxed);
        // pairs with the fence in `ring_due`
        fence(Ordering::SeqCst);
    }

    /// Says that the owner is awake.
    pub fn lower(&self) {
        self.word.store(AWAKE, Ordering::Relaxed);
    }

    /// Whether the owner sleeps and nobody has rung for this sleep; true for one caller, who rings.
    pub fn ring_due(&self) -> bool {
        // pairs with the fence in `raise`: either we see the flag, or the sleeper sees what we have for it
        fence(Ordering::SeqCst);
        self.word.load(Ordering::Relaxed) == ASLEEP && self.word.swap(AWAKE, Ordering::Relaxed) == ASLEEP
    }
}

/// A non-blocking eventfd.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
}

impl Doorbell {
    /// Creates a doorbell that has not been rung.
    ///
    /// # Errors
    /// The descriptor table of the process or of the system is full.
    pub fn create() -> Result<Self, Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd })
    }

    /// Takes over an eventfd received from a peer.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Rings. A full counter already means "awake", so failure is not an error.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes all rings so far; true if there was one.
    pub fn take(&self) -> bool {
        let mut count = [0u8; 8];
        rustix::io::read(&self.fd, &mut count).is_ok()
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::Doorbell;

    #[test]
    fn taking_returns_true_once_for_many_rings() {
        let bell = Doorbell::create().unwrap();
        assert!(!bell.take());
        bell.ring();
        bell.ring();
        assert!(bell.take());
        assert!(!bell.take());
    }
}
