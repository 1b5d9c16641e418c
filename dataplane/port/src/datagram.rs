//! Unreliable datagrams between two ends: what a link is made on.
//!
//! A transport moves whole frames of at most [`MAX_FRAME`] bytes, may lose, repeat or reorder them, and says when its far end
//! is certainly gone. Sequence numbers, keep-alive and versions are the link's. Owned by one worker, called from its
//! thread; a transport with a thread of its own (QUIC) meets it through rings.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

pub mod pair;

/// Longest frame, bytes: fits the smallest path MTU that carries a MAD and its state (512, and QUIC's 1200).
pub const MAX_FRAME: usize = 480;

/// How a transport stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// Frames may pass.
    Up,
    /// None can pass at present; the transport tries to come back by itself.
    Down,
    /// It will not come back by itself: device removed, credential refused.
    Gone,
}

/// What a transport has lost or refused, each a count of past events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mishaps {
    /// Frames longer than [`MAX_FRAME`].
    pub oversized: u64,
    /// Frames that came and found no room.
    pub overflowed: u64,
    /// Peers that could not show who they are; over queue pairs, frames and questions of others than the peer.
    pub refused_peers: u64,
}

/// How a transport with a service of its own stands, in one line for people: the service writes it, housekeeping reads it, a worker
/// never touches it.
#[derive(Debug, Clone, Default)]
pub struct Standing(Arc<Mutex<String>>);

impl Standing {
    /// Says something else from now on.
    pub fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// What was said last.
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Both directions of a transport; a link owns it whole.
pub trait Datagrams: Send {
    /// Hands over a frame; false if it was not taken, which has no effect. One that was taken may still be lost.
    fn send(&mut self, frame: &[u8]) -> bool;

    /// Takes the next frame into `into`, of at least [`MAX_FRAME`] bytes; its length, or `None` if there is none. A longer one
    /// is counted and dropped by the transport.
    fn receive(&mut self, into: &mut [u8]) -> Option<usize>;

    /// Makes sure that what was sent leaves. Call once per duty cycle; true if that took a system call.
    fn flush(&mut self) -> bool;

    /// How it stands.
    fn carrier(&self) -> Carrier;

    /// Says that the worker is about to sleep; true if it may, false if frames are there already. The descriptor of
    /// [`Datagrams::waker`] becomes readable when one comes.
    fn arm(&mut self) -> bool;

    /// Says that the worker is awake.
    fn disarm(&mut self);

    /// What to wait for; `None` if the transport can only be polled.
    fn waker(&self) -> Option<BorrowedFd<'_>>;

    /// Frames that fit before [`Datagrams::send`] takes no more, if none leaves.
    fn depth(&self) -> usize {
        256
    }

    /// What the transport itself has lost or refused so far.
    fn mishaps(&self) -> Mishaps {
        Mishaps::default()
    }

    /// One line about how it stands, for people: the peer's address, or why it is not up. May allocate; not once per frame.
    fn describe(&self) -> String {
        String::new()
    }
}
