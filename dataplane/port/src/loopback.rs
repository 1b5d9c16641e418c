//! Two ends in one process: what one sends, the other receives. For tests and for measuring without a second process.
//!
//! Each direction is a bounded queue; both ends may be used from different threads. [`device`] stands in for a device and its kernel.

pub mod device;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Capabilities, MadMessage, MadRx, MadTx};

type Queue = Arc<Mutex<VecDeque<MadMessage>>>;

/// The receiving half of an end.
#[derive(Debug)]
pub struct LoopbackRx {
    queue: Queue,
    depth: usize,
}

/// The sending half of an end.
#[derive(Debug)]
pub struct LoopbackTx {
    queue: Queue,
    depth: usize,
}

/// Makes one direction that holds up to `depth` MADs.
pub fn channel(depth: usize) -> (LoopbackTx, LoopbackRx) {
    let queue: Queue = Arc::new(Mutex::new(VecDeque::with_capacity(depth)));
    (LoopbackTx { queue: queue.clone(), depth }, LoopbackRx { queue, depth })
}

impl MadRx for LoopbackRx {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = 0;
        for slot in into {
            let Some(message) = queue.pop_front() else { break };
            *slot = message;
            taken += 1;
        }
        taken
    }

    fn release(&mut self) {}

    fn capabilities(&self) -> Capabilities {
        Capabilities { depth: self.depth, wakes: false, can_sleep: false }
    }
}

impl MadTx for LoopbackTx {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let given = from.len().min(self.depth.saturating_sub(queue.len()));
        queue.extend(from[..given].iter().copied());
        given
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { depth: self.depth, wakes: false, can_sleep: false }
    }
}
