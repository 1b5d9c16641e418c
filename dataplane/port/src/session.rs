//! The plane's side of a session: one client process on this host, over two shared-memory rings.
//!
//! Owned by the worker that serves the session. The halves are separate values, because a worker that empties one
//! session's ring fills another's.

use madplane_shm::doorbell::Doorbell;
use madplane_shm::session::{PlaneEnds, SharedConsumer, SharedProducer};

use crate::{Capabilities, Envelope, MAD_LEN, MadMessage, MadRx, MadTx};

/// Takes what the client sends.
#[derive(Debug)]
pub struct SessionRx {
    ring: SharedConsumer<MadMessage>,
    depth: usize,
}

/// Gives to the client, and wakes it if it sleeps.
#[derive(Debug)]
pub struct SessionTx {
    ring: SharedProducer<MadMessage>,
    bell: Doorbell,
    depth: usize,
}

/// Splits the plane's ends of a pair into port halves; `bell` wakes the client.
pub fn split(ends: PlaneEnds<MadMessage, MadMessage>, bell: Doorbell, slots: u64) -> (SessionRx, SessionTx) {
    let depth = usize::try_from(slots).unwrap_or(usize::MAX);
    (SessionRx { ring: ends.up, depth }, SessionTx { ring: ends.down, bell, depth })
}

impl SessionRx {
    /// Says that the worker is about to sleep until `mads` are there, at most half a ring. Returns true if it may; on false
    /// they are there already. See [`madplane_shm::ring`].
    pub fn arm_for(&mut self, mads: u64) -> bool {
        self.ring.arm_for(mads)
    }

    /// Says that the worker is awake.
    pub fn disarm(&mut self) {
        self.ring.disarm();
    }
}

impl MadRx for SessionRx {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        let mut taken = 0;
        for message in into {
            if !self.ring.pop(message) {
                break;
            }
            taken += 1;
        }
        taken
    }

    fn rx_parts(&mut self, envelope: &mut Envelope, mad: &mut [u8; MAD_LEN]) -> bool {
        self.ring.pop_parts(envelope, mad)
    }

    fn release(&mut self) {
        self.ring.commit();
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { depth: self.depth, wakes: false, can_sleep: true }
    }
}

impl MadTx for SessionTx {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        let mut given = 0;
        for message in from {
            if self.ring.push(message).is_err() {
                break;
            }
            given += 1;
        }
        given
    }

    fn tx_parts(&mut self, envelope: &Envelope, mad: &[u8; MAD_LEN]) -> bool {
        self.ring.push_parts(envelope, mad).is_ok()
    }

    fn flush(&mut self) -> bool {
        let due = self.ring.wake_due();
        if due {
            self.bell.ring();
        }
        due
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { depth: self.depth, wakes: true, can_sleep: false }
    }
}
