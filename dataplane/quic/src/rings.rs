//! Where a worker and the service thread meet: two rings of frames, a bell each way, and how the transport stands.
//!
//! | field | who writes | who reads | ordering |
//! |---|---|---|---|
//! | ring out | worker | service | `ringbuf`'s own |
//! | ring in | service | worker | `ringbuf`'s own |
//! | flags | who sleeps raises, who rings lowers | both | see `SleepFlag` |
//! | carrier, counts | service | worker | relaxed: they say when, and order nothing |
//! | standing | service | housekeeping | see [`Standing`] |
//!
//! A frame that finds the ring full is lost: outwards [`Datagrams::send`] says so, inwards it is counted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use madplane_port::datagram::{Carrier, Datagrams, MAX_FRAME, Mishaps, Standing};
use madplane_shm::doorbell::{Doorbell, SleepFlag};
use madplane_shm::sync::{AtomicU32, AtomicU64, Ordering};
use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

/// Frames that a ring holds.
pub const DEPTH: usize = 512;

/// One frame in a ring.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    length: u16,
    bytes: [u8; MAX_FRAME],
}

impl Slot {
    /// A frame; `None` if it is too long.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let mut slot = Self { length: u16::try_from(frame.len()).ok()?, bytes: [0; MAX_FRAME] };
        slot.bytes.get_mut(..frame.len())?.copy_from_slice(frame);
        Some(slot)
    }

    pub(crate) fn frame(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }
}

/// What both sides and housekeeping see.
#[derive(Debug)]
pub(crate) struct Shared {
    carrier: AtomicU32,
    pub(crate) oversized: AtomicU64,
    pub(crate) overflowed: AtomicU64,
    pub(crate) refused_peers: AtomicU64,
    worker_gone: AtomicU32,
    /// The worker sleeps, and what wakes it.
    worker: (SleepFlag, Doorbell),
    /// The service's task sleeps, and what wakes it.
    pub(crate) service: (SleepFlag, Doorbell),
    standing: Standing,
}

const DOWN: u32 = 0;
const UP: u32 = 1;

impl Shared {
    pub(crate) fn set(&self, up: bool, text: String) {
        self.standing.set(text);
        self.carrier.store(if up { UP } else { DOWN }, Ordering::Relaxed);
        self.wake_worker();
    }

    pub(crate) fn wake_worker(&self) {
        if self.worker.0.ring_due() {
            self.worker.1.ring();
        }
    }

    pub(crate) fn worker_is_gone(&self) -> bool {
        self.worker_gone.load(Ordering::Relaxed) != 0
    }
}

/// The worker's end.
pub struct QuicDatagrams {
    shared: Arc<Shared>,
    out: HeapProd<Slot>,
    into: HeapCons<Slot>,
    given: bool,
}

/// The service's end.
pub(crate) struct ServiceEnd {
    pub(crate) shared: Arc<Shared>,
    pub(crate) out: HeapCons<Slot>,
    pub(crate) into: HeapProd<Slot>,
}

impl std::fmt::Debug for QuicDatagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuicDatagrams").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// Makes both ends; the service hears at the descriptor that it is rung.
pub(crate) fn rings() -> Result<(QuicDatagrams, Standing, ServiceEnd, OwnedFd), rustix::io::Errno> {
    let (out_producer, out_consumer) = HeapRb::new(DEPTH).split();
    let (in_producer, in_consumer) = HeapRb::new(DEPTH).split();
    // a pipe: the runtime knows how to wait for one
    let (rings_service, hears) = Doorbell::one_way()?;
    let shared = Arc::new(Shared {
        carrier: AtomicU32::new(DOWN),
        oversized: AtomicU64::new(0),
        overflowed: AtomicU64::new(0),
        refused_peers: AtomicU64::new(0),
        worker_gone: AtomicU32::new(0),
        worker: (SleepFlag::default(), Doorbell::create()?),
        service: (SleepFlag::default(), rings_service),
        standing: Standing::default(),
    });
    shared.standing.set("starting".to_owned());
    let worker = QuicDatagrams { shared: shared.clone(), out: out_producer, into: in_consumer, given: false };
    let service = ServiceEnd { shared: shared.clone(), out: out_consumer, into: in_producer };
    Ok((worker, shared.standing.clone(), service, hears))
}

impl ServiceEnd {
    /// Gives a frame to the worker, or counts why not.
    pub(crate) fn give(&mut self, frame: &[u8]) {
        let Some(slot) = Slot::of(frame) else {
            self.shared.oversized.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if self.into.try_push(slot).is_err() {
            self.shared.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.wake_worker();
    }

    /// Takes what the worker has sent.
    pub(crate) fn next(&mut self) -> Option<Slot> {
        self.out.try_pop()
    }

    /// Whether the worker has sent something.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.out.is_empty()
    }
}

impl Drop for QuicDatagrams {
    fn drop(&mut self) {
        self.shared.worker_gone.store(1, Ordering::Relaxed);
        self.shared.service.1.ring();
    }
}

impl Datagrams for QuicDatagrams {
    fn send(&mut self, frame: &[u8]) -> bool {
        let sent = Slot::of(frame).is_some_and(|slot| self.out.try_push(slot).is_ok());
        self.given |= sent;
        sent
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        let slot = self.into.try_pop()?;
        let frame = slot.frame();
        into.get_mut(..frame.len())?.copy_from_slice(frame);
        Some(frame.len())
    }

    fn flush(&mut self) -> bool {
        let due = std::mem::take(&mut self.given) && self.shared.service.0.ring_due();
        if due {
            self.shared.service.1.ring();
        }
        due
    }

    fn carrier(&self) -> Carrier {
        if self.shared.carrier.load(Ordering::Relaxed) == UP { Carrier::Up } else { Carrier::Down }
    }

    fn arm(&mut self) -> bool {
        self.shared.worker.0.raise();
        self.into.is_empty()
    }

    fn disarm(&mut self) {
        self.shared.worker.0.lower();
    }

    fn waker(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.worker.1.as_fd())
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn mishaps(&self) -> Mishaps {
        Mishaps {
            oversized: self.shared.oversized.load(Ordering::Relaxed),
            overflowed: self.shared.overflowed.load(Ordering::Relaxed),
            refused_peers: self.shared.refused_peers.load(Ordering::Relaxed),
        }
    }

    fn describe(&self) -> String {
        self.shared.standing.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_goes_each_way_and_what_does_not_fit_is_told_or_counted() {
        let (mut worker, watch, mut service, _hears) = rings().unwrap();
        let mut into = [0xa5; MAX_FRAME];
        assert_eq!(worker.receive(&mut into), None);
        service.give(b"hello");
        service.give(&[0; MAX_FRAME + 1]);
        assert_eq!(worker.receive(&mut into), Some(5));
        assert_eq!(&into[..6], b"hello\xa5");
        for _ in 0..DEPTH {
            assert!(worker.send(&[7; MAX_FRAME]));
            service.give(&[8; 9]);
        }
        assert!(!worker.send(b"x"));
        service.give(b"x");
        assert_eq!(worker.mishaps(), Mishaps { oversized: 1, overflowed: 1, refused_peers: 0 });
        assert_eq!(service.next().unwrap().frame(), [7; MAX_FRAME]);
        assert_eq!((watch.text(), worker.carrier()), ("starting".to_owned(), Carrier::Down));
        service.shared.set(true, "there".to_owned());
        assert_eq!((worker.describe(), worker.carrier()), ("there".to_owned(), Carrier::Up));
    }

    #[test]
    fn who_sleeps_is_rung_once_and_only_then() {
        let (mut worker, _watch, mut service, _hears) = rings().unwrap();
        assert!(worker.arm());
        service.give(b"x");
        service.give(b"y");
        assert!(service.shared.worker.1.take(), "rung");
        assert!(!worker.arm(), "something is there");
        worker.disarm();
        service.give(b"z");
        assert!(!service.shared.worker.1.take(), "awake");
        worker.send(b"x");
        assert!(!worker.flush(), "the service is awake");
        service.shared.service.0.raise();
        assert!(!worker.flush(), "nothing new");
        worker.send(b"y");
        assert!(worker.flush());
        drop(worker);
        assert!(service.shared.worker_is_gone() && service.is_waiting());
    }
}
