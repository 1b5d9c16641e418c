//! Two ends of a transport in one process, with a seeded choice of what goes wrong on the way. For tests.
//!
//! Each direction is a bounded queue under a lock; the ends may be used from different threads. Faults are decided when a frame
//! is sent, from the seed alone, so a run can be repeated. An end that is dropped leaves the other with [`Carrier::Gone`].

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use madplane_shm::doorbell::{Doorbell, SleepFlag};
use rustix::io::Errno;

use super::{Carrier, Datagrams, MAX_FRAME, Mishaps};

/// How often something goes wrong, of a thousand frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Frames that vanish.
    pub lost: u32,
    /// Frames that arrive twice.
    pub repeated: u32,
    /// Frames that arrive before the one sent just before them.
    pub swapped: u32,
    /// Where the choice starts.
    pub seed: u64,
}

#[derive(Debug)]
struct Way {
    frames: VecDeque<Vec<u8>>,
    depth: usize,
    faults: Faults,
    random: u64,
    open: bool,
    cut: bool,
    oversized: u64,
}

impl Way {
    fn roll(&mut self, per_mille: u32) -> bool {
        // xorshift: nothing depends on its quality
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000 < u64::from(per_mille)
    }
}

#[derive(Debug)]
struct Hose {
    way: Mutex<Way>,
    flag: SleepFlag,
    bell: Doorbell,
}

impl Hose {
    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end.
#[derive(Debug)]
pub struct PairEnd {
    out: Arc<Hose>,
    into: Arc<Hose>,
}

/// Makes two ends whose queues hold `depth` frames each way.
///
/// # Errors
/// No descriptor left.
pub fn pair(depth: usize, faults: Faults) -> Result<(PairEnd, PairEnd), Errno> {
    let hose = |salt: u64| {
        let random = (faults.seed ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let frames = VecDeque::with_capacity(depth);
        let way = Way { frames, depth, faults, random, open: true, cut: false, oversized: 0 };
        let hose = Hose { way: Mutex::new(way), flag: SleepFlag::default(), bell: Doorbell::create()? };
        Ok::<_, Errno>(Arc::new(hose))
    };
    let (one, other) = (hose(1)?, hose(2)?);
    Ok((PairEnd { out: one.clone(), into: other.clone() }, PairEnd { out: other, into: one }))
}

impl PairEnd {
    /// Lets nothing pass from this end to the other until it is called with false; what is sent is lost.
    pub fn cut(&self, cut: bool) {
        self.out.way().cut = cut;
    }

    /// Cuts or mends the way from this end, from anywhere.
    pub fn cutter(&self) -> impl Fn(bool) + Send + Sync + use<> {
        let out = self.out.clone();
        move |cut| out.way().cut = cut
    }
}

impl Drop for PairEnd {
    fn drop(&mut self) {
        for hose in [&self.out, &self.into] {
            hose.way().open = false;
        }
    }
}

impl Datagrams for PairEnd {
    fn send(&mut self, frame: &[u8]) -> bool {
        let mut way = self.out.way();
        if !way.open || way.frames.len() >= way.depth {
            return false;
        }
        let Faults { lost, repeated, swapped, .. } = way.faults;
        if way.cut || way.roll(lost) {
            return true;
        }
        let at = way.frames.len() - usize::from(!way.frames.is_empty() && way.roll(swapped));
        way.frames.insert(at, frame.to_vec());
        if way.roll(repeated) && way.frames.len() < way.depth {
            way.frames.push_back(frame.to_vec());
        }
        true
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        let mut way = self.into.way();
        loop {
            let frame = way.frames.pop_front()?;
            if frame.len() <= MAX_FRAME.min(into.len()) {
                into[..frame.len()].copy_from_slice(&frame);
                return Some(frame.len());
            }
            way.oversized += 1;
        }
    }

    fn flush(&mut self) -> bool {
        let due = !self.out.way().frames.is_empty() && self.out.flag.ring_due();
        if due {
            self.out.bell.ring();
        }
        due
    }

    fn carrier(&self) -> Carrier {
        if self.out.way().open { Carrier::Up } else { Carrier::Gone }
    }

    fn arm(&mut self) -> bool {
        self.into.flag.raise();
        self.into.way().frames.is_empty()
    }

    fn disarm(&mut self) {
        self.into.flag.lower();
    }

    fn waker(&self) -> Option<BorrowedFd<'_>> {
        Some(self.into.bell.as_fd())
    }

    fn depth(&self) -> usize {
        self.out.way().depth
    }

    fn mishaps(&self) -> Mishaps {
        Mishaps { oversized: self.into.way().oversized, ..Mishaps::default() }
    }

    fn describe(&self) -> String {
        "another end in this process".to_owned()
    }
}
