//! Ports of a worker: where MADs come in and go out, and the machine below them.
//!
//! A worker owns its ports and calls them from its own thread only. A port moves bursts of [`MadMessage`]; it does not
//! look inside a MAD. Backends: [`session`] (a client process, over shared memory), [`link`] (another plane, over [`datagram`]s;
//! on queue pairs its ends find each other by [`rendezvous`]), [`umad_dev`] (the kernel's device), with the feature `verbs` queue
//! pairs of our own, and [`loopback`] (two ends in one process, for tests). [`device`] knows which RDMA devices there are and why
//! one cannot be used; [`opened`] opens one and keeps it open.
#![deny(unsafe_code)]

pub mod datagram;
pub mod device;
pub mod link;
pub mod loopback;
pub mod machine;
pub mod opened;
pub mod pool;
pub mod rendezvous;
pub mod session;
pub mod sys;
pub mod umad_dev;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use madplane_shm::message::{Envelope, MAD_LEN, MadMessage};

/// MADs taken from one port in one duty cycle, unless configured otherwise.
pub const DEFAULT_BURST: usize = 32;

/// What a port can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// MADs that fit before [`MadTx::tx_burst`] refuses, if the other side takes none.
    pub depth: usize,
    /// Sleepers on the other side are woken by [`MadTx::flush`].
    pub wakes: bool,
    /// The receiving half can be armed and slept on.
    pub can_sleep: bool,
}

/// The receiving half of a port.
///
/// Contract, checked for every backend by `tests/conformance.rs`: MADs come out in the order in which they went in, each
/// once and whole; nothing blocks; a MAD that was taken is the caller's.
pub trait MadRx {
    /// Takes up to `into.len()` MADs; returns how many.
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize;

    /// Takes one MAD, what travels with it and its bytes each to a place of its own: a copy less for whoever wants them
    /// there. On false there is none, and both are as they were.
    fn rx_parts(&mut self, envelope: &mut Envelope, mad: &mut [u8; MAD_LEN]) -> bool {
        let mut message = MadMessage::default();
        if self.rx_burst(std::slice::from_mut(&mut message)) == 0 {
            return false;
        }
        (*envelope, *mad) = (message.envelope, message.mad);
        true
    }

    /// Gives the buffers of all MADs taken so far back to the sender. Call once per duty cycle.
    fn release(&mut self);

    /// What this half can do.
    fn capabilities(&self) -> Capabilities;
}

/// The sending half of a port.
///
/// Contract, checked for every backend by `tests/conformance.rs`: a MAD that was accepted arrives unless the other side
/// goes away; one that was not accepted has no effect; nothing blocks.
pub trait MadTx {
    /// Hands over MADs from the front of `from`; returns how many were accepted.
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize;

    /// Hands over one MAD that lies apart from what travels with it; whether it was accepted.
    fn tx_parts(&mut self, envelope: &Envelope, mad: &[u8; MAD_LEN]) -> bool {
        self.tx_burst(&[MadMessage { envelope: *envelope, mad: *mad }]) == 1
    }

    /// Makes sure that the other side will look. Call once per duty cycle; returns true if somebody had to be woken,
    /// which costs a system call.
    fn flush(&mut self) -> bool;

    /// What this half can do.
    fn capabilities(&self) -> Capabilities;
}
