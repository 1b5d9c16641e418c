//! Doorbells: descriptors that wake a sleeping peer.
//!
//! A doorbell carries no information; losing one costs at most the bounded wait of the sleeper. Whether one is due is
//! decided by the sleep word of a ring ([`crate::ring`]). Any thread may ring.
//!
//! Whoever shares an eventfd shares its flags too, and can make the other's write or read wait for ever. So the plane only
//! watches the eventfd that a client rings, edge by edge, and rings clients by a pipe ([`Doorbell::one_way`]), of which it
//! keeps its end to itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

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

/// A non-blocking eventfd, or one end of a pipe.
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

    /// Creates a doorbell to ring, and the end at which somebody else who need not be trusted hears it: whatever is done
    /// to that end, ringing never waits. SIGPIPE has to be ignored, as the Rust runtime does.
    ///
    /// # Errors
    /// The descriptor table of the process or of the system is full.
    pub fn one_way() -> Result<(Self, OwnedFd), Errno> {
        let (hears, rings) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok((Self { fd: rings }, hears))
    }

    /// Takes over what was received from a peer.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Rings. Where there is no room for one more the other is called already, so failure is not an error.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes all rings so far; true if there was one.
    pub fn take(&self) -> bool {
        let mut rings = [0u8; 512];
        let mut any = false;
        // an eventfd gives eight bytes for all rings, a pipe eight for each
        while let Ok(taken @ 1..) = rustix::io::read(&self.fd, &mut rings) {
            any = true;
            if taken < rings.len() {
                break;
            }
        }
        any
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
        let both = Doorbell::create().unwrap();
        let (rings, hears) = Doorbell::one_way().unwrap();
        let hears = Doorbell::from_fd(hears);
        for (rings, hears) in [(&both, &both), (&rings, &hears)] {
            for times in [0, 1, 2, 200] {
                (0..times).for_each(|_| rings.ring());
                assert_eq!(hears.take(), times > 0);
                assert!(!hears.take());
            }
        }
    }

    #[test]
    fn who_hears_cannot_make_who_rings_wait() {
        use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
        use std::os::fd::AsRawFd;

        let (rings, hears) = Doorbell::one_way().unwrap();
        // blocking, never read, and filled from behind by an end of the listener's own
        fcntl_setfl(&hears, OFlags::empty()).unwrap();
        let path = format!("/proc/self/fd/{}", hears.as_raw_fd());
        let behind = open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        while rustix::io::write(&behind, &[0; 4096]).is_ok() {}
        fcntl_setfl(&behind, OFlags::empty()).unwrap();
        let (done, rung) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            (0..1000).for_each(|_| rings.ring());
            done.send(rings).unwrap();
        });
        let rings = rung.recv_timeout(std::time::Duration::from_secs(60)).expect("the ringer does not wait");
        drop((hears, behind));
        rings.ring();
    }
}
