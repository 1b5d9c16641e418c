//! Where a worker and the service meet: a ring of words, a ring for queues that go back, and how the transport stands.
//!
//! | field | who writes | who reads | ordering |
//! |---|---|---|---|
//! | ring of words | service | worker | `ringbuf`'s own |
//! | ring of queues back | worker | service | `ringbuf`'s own |
//! | flag | worker raises, who rings lowers | both | see `SleepFlag` |
//! | rung | service, then worker | worker | relaxed: it is set before the ring that it tells of |
//! | carrier, counts | service | worker | relaxed: they say when, and order nothing |
//! | standing | service | housekeeping | see [`Standing`] |

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use madplane_shm::doorbell::{Doorbell, SleepFlag};
use madplane_shm::sync::{AtomicU32, AtomicU64, Ordering};
use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use rustix::event::epoll;

use super::UdDatagrams;
use crate::datagram::{Carrier, Datagrams, Mishaps, Standing};
use crate::rendezvous::End;

/// Words that may be on their way to a worker.
const WORDS: usize = 16;
/// Queues that may be on their way back; there is never more than one.
const BACK: usize = 2;

/// Datagrams whose other end is told to them.
pub trait LinkQueue: Datagrams {
    /// Says who the other end is, from now on.
    fn connect(&mut self, peer: End);

    /// Frames dropped because they were not from the peer.
    fn strange(&self) -> u64;

    /// Frames dropped because of their length.
    fn oversized(&self) -> u64;
}

impl LinkQueue for UdDatagrams {
    fn connect(&mut self, peer: End) {
        Self::connect(self, peer);
    }

    fn strange(&self) -> u64 {
        Self::strange(self)
    }

    fn oversized(&self) -> u64 {
        self.counters().bad_length
    }
}

/// What the service has for a worker.
#[derive(Debug)]
pub(super) enum Word<Q> {
    /// A queue, open and ready.
    Take(Box<Q>),
    /// Who the other end of the queue is.
    Connect(End),
    /// The queue has to go back.
    GiveBack,
}

const DOWN: u32 = 0;
const UP: u32 = 1;

/// What both sides and housekeeping see.
#[derive(Debug)]
pub(super) struct Shared {
    carrier: AtomicU32,
    refused: AtomicU64,
    worker_gone: AtomicU32,
    /// The worker sleeps, and what wakes it.
    asleep: SleepFlag,
    bell: Doorbell,
    /// The bell was rung and nobody has taken that.
    rung: AtomicU32,
    /// What the worker waits for: the bell, and the completion channel of the queue of the day.
    wakes: OwnedFd,
    service: Arc<Doorbell>,
    pub(super) standing: Standing,
}

impl Shared {
    fn new(service: Arc<Doorbell>) -> Result<Self, rustix::io::Errno> {
        let shared = Self {
            carrier: AtomicU32::new(DOWN),
            refused: AtomicU64::new(0),
            worker_gone: AtomicU32::new(0),
            asleep: SleepFlag::default(),
            bell: Doorbell::create()?,
            rung: AtomicU32::new(0),
            wakes: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            service,
            standing: Standing::default(),
        };
        shared.standing.set("starting".to_owned());
        shared.wait_for(&shared.bell)?;
        Ok(shared)
    }

    /// The worker is woken by this descriptor from now on, until it is closed.
    fn wait_for(&self, fd: impl AsFd) -> Result<(), rustix::io::Errno> {
        epoll::add(&self.wakes, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
    }

    fn wake_worker(&self) {
        if self.asleep.ring_due() {
            self.rung.store(1, Ordering::Relaxed);
            self.bell.ring();
        }
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// The worker's end.
pub struct LinkDatagrams<Q: LinkQueue = UdDatagrams> {
    shared: Arc<Shared>,
    queue: Option<Box<Q>>,
    words: HeapCons<Word<Q>>,
    back: HeapProd<Box<Q>>,
    /// What queues that went back had counted.
    former: Mishaps,
}

impl<Q: LinkQueue> std::fmt::Debug for LinkDatagrams<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkDatagrams").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// The service's end.
pub(super) struct ServiceEnd<Q: LinkQueue = UdDatagrams> {
    pub(super) shared: Arc<Shared>,
    words: HeapProd<Word<Q>>,
    back: HeapCons<Box<Q>>,
    /// The worker has a queue.
    lent: bool,
}

/// Makes both ends; `service` is rung when a queue comes back and when the worker's end goes.
pub(super) fn rings<Q: LinkQueue>(
    service: Arc<Doorbell>,
) -> Result<(LinkDatagrams<Q>, Standing, ServiceEnd<Q>), rustix::io::Errno> {
    let (words, taken) = HeapRb::new(WORDS).split();
    let (back, returned) = HeapRb::new(BACK).split();
    let shared = Arc::new(Shared::new(service)?);
    let worker =
        LinkDatagrams { shared: shared.clone(), queue: None, words: taken, back, former: Mishaps::default() };
    let end = ServiceEnd { shared: shared.clone(), words, back: returned, lent: false };
    Ok((worker, shared.standing.clone(), end))
}

impl<Q: LinkQueue> ServiceEnd<Q> {
    /// Lends a queue to the worker; the queue itself, if there is no way to.
    pub(super) fn lend(&mut self, queue: Box<Q>) -> Result<(), Box<Q>> {
        if let Some(waker) = queue.waker()
            && self.shared.wait_for(waker).is_err()
        {
            return Err(queue);
        }
        match self.words.try_push(Word::Take(queue)) {
            Ok(()) => {}
            Err(Word::Take(queue)) => return Err(queue),
            Err(_) => return Ok(()),
        }
        self.lent = true;
        self.shared.wake_worker();
        Ok(())
    }

    /// Tells the worker who the other end is; false if the worker has not taken what it was told before.
    pub(super) fn connect(&mut self, peer: End) -> bool {
        self.say(Word::Connect(peer))
    }

    /// Asks for the queue; false as above.
    pub(super) fn ask_back(&mut self) -> bool {
        self.say(Word::GiveBack)
    }

    fn say(&mut self, word: Word<Q>) -> bool {
        let said = self.words.try_push(word).is_ok();
        self.shared.wake_worker();
        said
    }

    /// Whether the worker has a queue, or may have one.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// The queue that came back, if one did.
    pub(super) fn returned(&mut self) -> Option<Box<Q>> {
        let queue = self.back.try_pop()?;
        self.lent = false;
        Some(queue)
    }

    pub(super) fn set_carrier(&self, up: bool) {
        let carrier = if up { UP } else { DOWN };
        if self.shared.carrier.swap(carrier, Ordering::Relaxed) != carrier {
            self.shared.wake_worker();
        }
    }

    pub(super) fn worker_is_gone(&self) -> bool {
        self.shared.worker_gone.load(Ordering::Relaxed) != 0
    }
}

impl<Q: LinkQueue> LinkDatagrams<Q> {
    #[cold]
    fn take_words(&mut self) {
        while let Some(word) = self.words.try_pop() {
            match word {
                Word::Take(queue) => {
                    self.give_back();
                    self.queue = Some(queue);
                }
                Word::Connect(peer) => {
                    if let Some(queue) = &mut self.queue {
                        queue.connect(peer);
                    }
                }
                Word::GiveBack => self.give_back(),
            }
        }
    }

    #[cold]
    fn give_back(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        self.former.oversized += queue.oversized();
        self.former.refused_peers += queue.strange();
        // one queue at a time is lent, so there is room
        let _ = self.back.try_push(queue);
        self.shared.service.ring();
    }
}

impl<Q: LinkQueue> Drop for LinkDatagrams<Q> {
    fn drop(&mut self) {
        // a descriptor that the service may still wait for goes with the service's own end
        self.shared.worker_gone.store(1, Ordering::Relaxed);
        self.shared.service.ring();
    }
}

impl<Q: LinkQueue> Datagrams for LinkDatagrams<Q> {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.queue.as_mut().is_some_and(|queue| queue.send(frame))
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        if let Some(queue) = &mut self.queue {
            let length = queue.receive(into);
            if length.is_some() {
                return length;
            }
            if queue.carrier() == Carrier::Gone {
                self.give_back();
            }
        }
        if !self.words.is_empty() {
            self.take_words();
        }
        None
    }

    fn flush(&mut self) -> bool {
        self.queue.as_mut().is_some_and(|queue| queue.flush())
    }

    fn carrier(&self) -> Carrier {
        let up = self.shared.carrier.load(Ordering::Relaxed) == UP
            && self.queue.as_ref().is_some_and(|queue| queue.carrier() == Carrier::Up);
        if up { Carrier::Up } else { Carrier::Down }
    }

    fn arm(&mut self) -> bool {
        self.shared.asleep.raise();
        let quiet = self.queue.as_mut().is_none_or(|queue| queue.arm());
        quiet && self.words.is_empty()
    }

    fn disarm(&mut self) {
        self.shared.asleep.lower();
        if let Some(queue) = &mut self.queue {
            queue.disarm();
        }
        if self.shared.rung.load(Ordering::Relaxed) != 0 {
            self.shared.rung.store(0, Ordering::Relaxed);
            self.shared.bell.take();
        }
    }

    fn waker(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.wakes.as_fd())
    }

    fn depth(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.depth())
    }

    fn mishaps(&self) -> Mishaps {
        let queue = self.queue.as_ref();
        let strange = queue.map_or(0, |queue| queue.strange()) + self.former.refused_peers;
        Mishaps {
            oversized: queue.map_or(0, |queue| queue.oversized()) + self.former.oversized,
            overflowed: 0,
            refused_peers: strange + self.shared.refused.load(Ordering::Relaxed),
        }
    }

    fn describe(&self) -> String {
        self.shared.standing.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::pair::{Faults, PairEnd, pair};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// A queue in memory that is up once it is connected, and breaks when it is told to.
    struct Double {
        wire: PairEnd,
        peer: Option<End>,
        broken: Arc<AtomicU32>,
    }

    impl Datagrams for Double {
        fn send(&mut self, frame: &[u8]) -> bool {
            self.peer.is_some() && self.wire.send(frame)
        }
        fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
            self.wire.receive(into)
        }
        fn flush(&mut self) -> bool {
            self.wire.flush()
        }
        fn carrier(&self) -> Carrier {
            match (self.broken.load(Ordering::Relaxed), self.peer) {
                (0, None) => Carrier::Down,
                (0, Some(_)) => Carrier::Up,
                _ => Carrier::Gone,
            }
        }
        fn arm(&mut self) -> bool {
            self.wire.arm()
        }
        fn disarm(&mut self) {
            self.wire.disarm();
        }
        fn waker(&self) -> Option<BorrowedFd<'_>> {
            self.wire.waker()
        }
    }

    impl LinkQueue for Double {
        fn connect(&mut self, peer: End) {
            self.peer = Some(peer);
        }
        fn strange(&self) -> u64 {
            3
        }
        fn oversized(&self) -> u64 {
            1
        }
    }

    fn double() -> (Box<Double>, PairEnd, Arc<AtomicU32>) {
        let (wire, far) = pair(8, Faults::default()).unwrap();
        let broken = Arc::new(AtomicU32::new(0));
        (Box::new(Double { wire, peer: None, broken: broken.clone() }), far, broken)
    }

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_queue_is_lent_connected_and_asked_back() {
        let bell = Arc::new(Doorbell::create().unwrap());
        let (mut worker, watch, mut service) = rings::<Double>(bell.clone()).unwrap();
        let mut into = [0xa5; 480];
        assert_eq!((worker.send(b"x"), worker.receive(&mut into), worker.depth()), (false, None, 0));
        let (queue, mut far, _) = double();
        assert!(service.lend(queue).is_ok() && service.connect(End::default()));
        assert_eq!(worker.carrier(), Carrier::Down);
        assert_eq!(worker.receive(&mut into), None);
        assert_eq!(worker.carrier(), Carrier::Down, "the port is not up");
        service.set_carrier(true);
        assert_eq!((worker.carrier(), worker.send(b"hello")), (Carrier::Up, true));
        worker.flush();
        assert_eq!(far.receive(&mut into), Some(5));
        assert!(far.send(b"back") && service.ask_back() && !bell.take());
        assert_eq!(worker.receive(&mut into), Some(4), "what has come is not lost");
        assert!(service.returned().is_none() && service.is_lent());
        assert_eq!(worker.receive(&mut into), None);
        assert!(bell.take() && service.returned().is_some() && !service.is_lent());
        assert_eq!((worker.carrier(), worker.send(b"x")), (Carrier::Down, false));
        service.shared.count_refused();
        let counted = Mishaps { oversized: 1, overflowed: 0, refused_peers: 4 };
        assert_eq!(worker.mishaps(), counted, "what the former queue counted is kept");
        service.shared.standing.set("gone".to_owned());
        assert_eq!((watch.text(), worker.describe()), ("gone".to_owned(), "gone".to_owned()));
        drop(worker);
        assert!(service.worker_is_gone() && bell.take());
    }

    #[test]
    fn a_broken_queue_goes_back_by_itself_and_another_takes_its_place() {
        let bell = Arc::new(Doorbell::create().unwrap());
        let (mut worker, _watch, mut service) = rings::<Double>(bell.clone()).unwrap();
        let mut into = [0xa5; 480];
        for _ in 0..3 {
            let (queue, _far, broken) = double();
            assert!(service.lend(queue).is_ok());
            worker.receive(&mut into);
            assert!(service.returned().is_none());
            broken.store(1, Ordering::Relaxed);
            worker.receive(&mut into);
            assert!(bell.take() && service.returned().is_some());
        }
    }

    #[test]
    fn a_sleeping_worker_is_woken_by_a_word_and_by_a_frame() {
        let bell = Arc::new(Doorbell::create().unwrap());
        let (mut worker, _watch, mut service) = rings::<Double>(bell).unwrap();
        let mut into = [0xa5; 480];
        assert!(worker.arm() && !is_readable(worker.waker().unwrap()));
        let (queue, mut far, _) = double();
        assert!(service.lend(queue).is_ok());
        assert!(is_readable(worker.waker().unwrap()));
        assert!(!worker.arm(), "there is a word");
        worker.disarm();
        assert!(!is_readable(worker.waker().unwrap()), "the ring was taken");
        worker.receive(&mut into);
        assert!(worker.arm());
        far.send(b"x");
        far.flush();
        assert!(is_readable(worker.waker().unwrap()));
        worker.disarm();
        assert_eq!(worker.receive(&mut into), Some(1));
    }
}
