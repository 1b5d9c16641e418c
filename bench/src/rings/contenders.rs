//! The rings that are compared, each used as its own documentation says is fastest for bursts of plain data.
//!
//! Every contender carries the same [`Item`] through [`SLOTS`] slots. What differs beyond the algorithm is said in
//! [`Contender::NOTE`]. A pair of ends is used by one thread each.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;
use madplane_shm::header::Incarnation;
use madplane_shm::ring::{Consumer, ITEM_BYTES, Producer, RingMemory};
use madplane_shm::session::{SharedConsumer, SharedProducer, create_pair, open_pair};
use madplane_shm::sync::{AtomicU64, Ordering};
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use crate::error::BenchError;

/// 64-bit words of an item.
pub const WORDS: usize = ITEM_BYTES / 8;
/// What a slot carries: as long as a MAD with its envelope, 312 bytes.
pub type Item = [u64; WORDS];
/// Slots of every ring.
pub const SLOTS: usize = 1024;

/// The end that writes.
pub trait Transmit: Send {
    /// Copies items in and shows them; the number for which there was room.
    fn push(&mut self, items: &[Item]) -> usize;
}

/// The end that reads.
pub trait Receive: Send {
    /// Copies items out and frees their slots; the number that was there.
    fn pop(&mut self, items: &mut [Item]) -> usize;
}

/// A ring.
pub trait Contender {
    /// Its writing end.
    type Tx: Transmit;
    /// Its reading end.
    type Rx: Receive;
    /// What people call it.
    const NAME: &'static str;
    /// What a reader of its numbers has to know.
    const NOTE: &'static str;

    /// A fresh ring.
    ///
    /// # Errors
    /// [`BenchError::Attach`] if there is no memory.
    fn pair() -> Result<(Self::Tx, Self::Rx), BenchError>;
}

/// Our ring between two processes, with the look at the sleeper's word after each burst.
#[derive(Debug)]
pub struct Shared;

/// The same without that look: what the look costs.
#[derive(Debug)]
pub struct SharedUnrung;

/// The protocol of our ring on the memory of one process.
#[derive(Debug)]
pub struct InProcess;

/// `ringbuf::HeapRb`.
#[derive(Debug)]
pub struct Ringbuf;

/// `crossbeam::queue::ArrayQueue`.
#[derive(Debug)]
pub struct Crossbeam;

/// `rtrb::RingBuffer`.
#[derive(Debug)]
pub struct Rtrb;

impl Transmit for SharedProducer<Item> {
    fn push(&mut self, items: &[Item]) -> usize {
        let done = push_each(self, items);
        // nobody sleeps here, so there is nothing to ring
        std::hint::black_box(self.wake_due());
        done
    }
}

impl Receive for SharedConsumer<Item> {
    fn pop(&mut self, items: &mut [Item]) -> usize {
        pop_each(self, items)
    }
}

#[inline]
fn push_each<M: RingMemory<Item = Item>>(ring: &mut Producer<M>, items: &[Item]) -> usize {
    items.iter().take_while(|item| ring.push(item).is_ok()).count()
}

#[inline]
fn pop_each<M: RingMemory<Item = Item>>(ring: &mut Consumer<M>, items: &mut [Item]) -> usize {
    let mut done = 0;
    while done < items.len() && ring.pop(&mut items[done]) {
        done += 1;
    }
    ring.commit();
    done
}

fn shared() -> Result<(SharedProducer<Item>, SharedConsumer<Item>), BenchError> {
    let refuse = |error: madplane_shm::session::PairError| BenchError::Attach(error.to_string());
    let (plane, fds) =
        create_pair::<Item, Item>("rings", SLOTS as u64, false, Incarnation::default()).map_err(refuse)?;
    let client = open_pair::<Item, Item>(&fds).map_err(refuse)?;
    Ok((client.up, plane.up))
}

impl Contender for Shared {
    type Tx = SharedProducer<Item>;
    type Rx = SharedConsumer<Item>;
    const NAME: &'static str = "slot ring";
    const NOTE: &'static str = "between two mappings as between two processes, each item shown by itself, and after each burst the fence and the \
                                look whether the other side sleeps; the others have no doorbell";

    fn pair() -> Result<(Self::Tx, Self::Rx), BenchError> {
        shared()
    }
}

/// A writing end that never looks whether somebody sleeps.
#[derive(Debug)]
pub struct Unrung<M>(Producer<M>);

impl<M: RingMemory<Item = Item> + Send> Transmit for Unrung<M> {
    fn push(&mut self, items: &[Item]) -> usize {
        push_each(&mut self.0, items)
    }
}

impl Contender for SharedUnrung {
    type Tx = Unrung<madplane_shm::ring::SharedRing<Item>>;
    type Rx = SharedConsumer<Item>;
    const NAME: &'static str = "slot ring without doorbell";
    const NOTE: &'static str = "the same memory and protocol for a consumer that never sleeps";

    fn pair() -> Result<(Self::Tx, Self::Rx), BenchError> {
        let (tx, rx) = shared()?;
        Ok((Unrung(tx), rx))
    }
}

/// Words of an item in the first cache line of its slot; the sequence word is the eighth.
const FIRST_LINE_WORDS: usize = 7;

#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

#[derive(Debug)]
struct Slots {
    slots: Box<[Slot]>,
    consumed: CachePadded<AtomicU64>,
    sleep: CachePadded<AtomicU64>,
    wake_at: AtomicU64,
}

/// [`RingMemory`] on atomic words of this process.
#[derive(Debug)]
pub struct WordMemory(Arc<Slots>);

impl WordMemory {
    fn slot(&self, index: u64) -> &Slot {
        // the remainder is below the number of slots
        let place = usize::try_from(index % SLOTS as u64).unwrap_or(0);
        &self.0.slots[place]
    }
}

impl RingMemory for WordMemory {
    type Item = Item;

    fn capacity(&self) -> u64 {
        SLOTS as u64
    }

    fn sequence(&self, index: u64) -> &AtomicU64 {
        &self.slot(index).sequence
    }

    fn read(&self, index: u64, item: &mut Item) {
        for (word, place) in item.iter_mut().zip(&self.slot(index).words) {
            *word = place.load(Ordering::Relaxed);
        }
    }

    fn write(&self, index: u64, item: &Item) {
        let words = self.slot(index).words.iter().zip(item);
        // as in shared memory: the line that the consumer watches comes last
        for (place, word) in words.clone().skip(FIRST_LINE_WORDS).chain(words.take(FIRST_LINE_WORDS)) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    fn warm(&self, index: u64) {
        for word in self.slot(index).words.iter().skip(FIRST_LINE_WORDS).step_by(8) {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn consumed(&self) -> &AtomicU64 {
        &self.0.consumed
    }

    fn sleep(&self) -> &AtomicU64 {
        &self.0.sleep
    }

    fn wake_at(&self) -> &AtomicU64 {
        &self.0.wake_at
    }
}

impl Receive for Consumer<WordMemory> {
    fn pop(&mut self, items: &mut [Item]) -> usize {
        pop_each(self, items)
    }
}

impl Contender for InProcess {
    type Tx = Unrung<WordMemory>;
    type Rx = Consumer<WordMemory>;
    const NAME: &'static str = "slot ring in one process";
    const NOTE: &'static str =
        "the protocol of the slot ring without doorbell on atomic words, copied word by word";

    fn pair() -> Result<(Self::Tx, Self::Rx), BenchError> {
        let slot = || Slot { sequence: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] };
        let slots = Arc::new(Slots {
            slots: std::iter::repeat_with(slot).take(SLOTS).collect(),
            consumed: CachePadded::default(),
            sleep: CachePadded::default(),
            wake_at: AtomicU64::new(0),
        });
        Ok((Unrung(Producer::new(WordMemory(slots.clone()))), Consumer::new(WordMemory(slots))))
    }
}

impl Transmit for HeapProd<Item> {
    fn push(&mut self, items: &[Item]) -> usize {
        self.push_slice(items)
    }
}

impl Receive for HeapCons<Item> {
    fn pop(&mut self, items: &mut [Item]) -> usize {
        self.pop_slice(items)
    }
}

impl Contender for Ringbuf {
    type Tx = HeapProd<Item>;
    type Rx = HeapCons<Item>;
    const NAME: &'static str = "ringbuf";
    const NOTE: &'static str =
        "HeapRb, push_slice and pop_slice: copied into place, a burst is shown at once";

    fn pair() -> Result<(Self::Tx, Self::Rx), BenchError> {
        Ok(HeapRb::new(SLOTS).split())
    }
}

/// An end of an [`ArrayQueue`].
#[derive(Debug)]
pub struct QueueEnd(Arc<ArrayQueue<Item>>);

impl Transmit for QueueEnd {
    fn push(&mut self, items: &[Item]) -> usize {
        items.iter().take_while(|item| self.0.push(**item).is_ok()).count()
    }
}

impl Receive for QueueEnd {
    fn pop(&mut self, items: &mut [Item]) -> usize {
        for (done, item) in items.iter_mut().enumerate() {
            let Some(taken) = self.0.pop() else { return done };
            *item = taken;
        }
        items.len()
    }
}

impl Contender for Crossbeam {
    type Tx = QueueEnd;
    type Rx = QueueEnd;
    const NAME: &'static str = "crossbeam ArrayQueue";
    const NOTE: &'static str =
        "for many producers and consumers, which is more than is needed here; by value, one at a time";

    fn pair() -> Result<(Self::Tx, Self::Rx), BenchError> {
        let queue = Arc::new(ArrayQueue::new(SLOTS));
        Ok((QueueEnd(queue.clone()), QueueEnd(queue)))
    }
}

impl Transmit for rtrb::Producer<Item> {
    fn push(&mut self, items: &[Item]) -> usize {
        self.push_partial_slice(items).0.len()
    }
}

impl Receive for rtrb::Consumer<Item> {
    fn pop(&mut self, items: &mut [Item]) -> usize {
        self.pop_partial_slice(items).0.len()
    }
}

impl Contender for Rtrb {
    type Tx = rtrb::Producer<Item>;
    type Rx = rtrb::Consumer<Item>;
    const NAME: &'static str = "rtrb";
    const NOTE: &'static str =
        "push_partial_slice and pop_partial_slice: copied into place, a burst is shown at once";

    fn pair() -> Result<(Self::Tx, Self::Rx), BenchError> {
        Ok(rtrb::RingBuffer::new(SLOTS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps_order_over_laps<C: Contender>() {
        let (mut tx, mut rx) = C::pair().unwrap();
        let (mut sent, mut got) = (0u64, 0u64);
        let mut items = [[0xa5a5; WORDS]; 48];
        while got < 3 * SLOTS as u64 {
            let burst: Vec<Item> = (sent..sent + 40).map(|number| [number; WORDS]).collect();
            sent += tx.push(&burst) as u64;
            let taken = rx.pop(&mut items[..32]);
            for item in &items[..taken] {
                assert_eq!(item, &[got; WORDS], "{}", C::NAME);
                got += 1;
            }
        }
        while rx.pop(&mut items) > 0 {}
        let burst = [[7; WORDS]; SLOTS + 1];
        assert_eq!(tx.push(&burst), SLOTS, "{} has room for what it says", C::NAME);
        assert_eq!(tx.push(&burst), 0, "{} is full", C::NAME);
    }

    #[test]
    fn every_contender_keeps_order_and_says_when_it_is_full() {
        keeps_order_over_laps::<Shared>();
        keeps_order_over_laps::<SharedUnrung>();
        keeps_order_over_laps::<InProcess>();
        keeps_order_over_laps::<Ringbuf>();
        keeps_order_over_laps::<Crossbeam>();
        keeps_order_over_laps::<Rtrb>();
    }
}
