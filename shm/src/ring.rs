//! Rings of fixed slots between exactly one producer and one consumer, which need not trust each other.
//!
//! A slot is 320 bytes: a sequence word and 312 bytes of item. The sequence word in the slot's own first line says that
//! the item is ready, so a consumer that is being fed touches no index line at all; a producer looks at the consumer's
//! index only when its cached copy says that the ring is full.
//!
//! | word | lives in | who writes | who reads | ordering |
//! |---|---|---|---|---|
//! | slot sequence | producer's segment | producer | consumer | release / acquire: the item is complete |
//! | item | producer's segment | producer | consumer | ordered by the sequence |
//! | `consumed` | consumer's segment | consumer | producer | release / acquire: the slot may be written again |
//! | `sleep`, `wake_at` | consumer's segment | consumer | producer | sequentially consistent fences on both sides |
//!
//! What holds whatever the peer does: an index is used only after masking; a consumer that claims more than was
//! produced makes its own ring look full; a producer that scribbles gives its consumer garbage items, which are copied
//! out before anybody looks at them. Nothing here blocks, allocates or calls the system.
//!
//! **Sleeping.** `sleep` counts: odd means asleep. A consumer arms ([`Consumer::arm`]), looks once more, and only then
//! waits; a producer asks [`Producer::wake_due`] after a burst and rings the doorbell at most once per sleep. A wait is
//! bounded all the same, so a lost doorbell costs time and never a MAD.
//!
//! **Moderation.** `wake_at` stands beside `sleep`: the position that the producer has to reach before it rings. A consumer
//! that arms for more than one item ([`Consumer::arm_for`]) is woken once for all of them, and waits for the last only as
//! long as it says itself; fewer than that many items do not ring, so its wait has to be short. A producer that sees an old
//! `wake_at` beside a new `sleep` has not passed its fence after the consumer's, so the consumer's look sees its items; at
//! worst it rings early.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use crate::map::Mapping;
use crate::sync::{AtomicU64, Ordering, fence};

/// Length of a slot in bytes.
pub const SLOT_BYTES: usize = 320;
/// Length of a slot's first cache line: sequence word and head of the item.
const FIRST_LINE_BYTES: usize = 64;
/// Length of the item in a slot.
pub const ITEM_BYTES: usize = SLOT_BYTES - 8;

/// The words and items of one ring, wherever they live.
///
/// The two halves below hold the whole protocol; this trait is what lets loom run the same protocol on its own memory.
pub trait RingMemory {
    /// What a slot carries.
    type Item;
    /// Number of slots, a power of two.
    fn capacity(&self) -> u64;
    /// Sequence word of a slot; `index` is masked by the implementation.
    fn sequence(&self, index: u64) -> &AtomicU64;
    /// Copies the item of a slot out.
    fn read(&self, index: u64, item: &mut Self::Item);
    /// Copies an item into a slot.
    fn write(&self, index: u64, item: &Self::Item);
    /// Takes the cache lines of a free slot away from the consumer, ahead of the next write. Optional.
    fn warm(&self, _index: u64) {}
    /// The consumer's index.
    fn consumed(&self) -> &AtomicU64;
    /// The consumer's sleep count.
    fn sleep(&self) -> &AtomicU64;
    /// The position at which a sleeping consumer wants to be woken.
    fn wake_at(&self) -> &AtomicU64;
}

/// An item whose two parts may lie apart outside of a ring: in a slot the head shares the first cache line with the sequence
/// word, and the body has the other four for itself.
pub trait TwoParts {
    /// What comes first, 56 bytes.
    type Head: FromBytes + IntoBytes;
    /// What follows, 256 bytes.
    type Body: FromBytes + IntoBytes;
}

/// Memory whose items can be copied in their two parts: one copy less for whoever keeps the parts in different places.
pub trait PartsMemory: RingMemory<Item: TwoParts> {
    /// Copies the parts of the item of a slot out.
    fn read_parts(&self, index: u64, head: &mut HeadOf<Self>, body: &mut BodyOf<Self>);
    /// Copies the parts of an item into a slot.
    fn write_parts(&self, index: u64, head: &HeadOf<Self>, body: &BodyOf<Self>);
}

/// Head of the items of a memory.
pub type HeadOf<M> = <<M as RingMemory>::Item as TwoParts>::Head;
/// Body of the items of a memory.
pub type BodyOf<M> = <<M as RingMemory>::Item as TwoParts>::Body;

/// The ring is full; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ring is full")]
pub struct RingFull;

/// The half that writes items.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    next: u64,
    consumed: u64,
    woken: u64,
}

impl<M: RingMemory> Producer<M> {
    /// Starts on a fresh ring.
    pub fn new(memory: M) -> Self {
        Self { memory, next: 0, consumed: 0, woken: 0 }
    }

    /// Copies `item` into the next slot and shows it.
    ///
    /// # Errors
    /// [`RingFull`] when the consumer has not freed a slot.
    pub fn push(&mut self, item: &M::Item) -> Result<(), RingFull> {
        self.push_by(|memory, at| memory.write(at, item))
    }

    /// [`Producer::push`] of an item whose parts lie apart.
    ///
    /// # Errors
    /// As there.
    pub fn push_parts(&mut self, head: &HeadOf<M>, body: &BodyOf<M>) -> Result<(), RingFull>
    where
        M: PartsMemory,
    {
        self.push_by(|memory, at| memory.write_parts(at, head, body))
    }

    #[inline(always)]
    fn push_by(&mut self, write: impl FnOnce(&M, u64)) -> Result<(), RingFull> {
        if self.next.wrapping_sub(self.consumed) >= self.memory.capacity() && !self.refresh() {
            return Err(RingFull);
        }
        write(&self.memory, self.next);
        // pairs with the acquire in `Consumer::is_ready`
        self.memory.sequence(self.next).store(self.next.wrapping_add(1), Ordering::Release);
        self.next = self.next.wrapping_add(1);
        if self.next.wrapping_sub(self.consumed) < self.memory.capacity() {
            // free for certain, and the time until the next item is not ours
            self.memory.warm(self.next);
        }
        Ok(())
    }

    /// Reads the consumer's index; true if a slot is free. An index that cannot be true leaves the ring full.
    #[cold]
    fn refresh(&mut self) -> bool {
        // pairs with the release in `Consumer::commit`
        let consumed = self.memory.consumed().load(Ordering::Acquire);
        let outstanding = self.next.wrapping_sub(consumed);
        if outstanding > self.memory.capacity() || outstanding > self.next.wrapping_sub(self.consumed) {
            return false;
        }
        self.consumed = consumed;
        outstanding < self.memory.capacity()
    }

    /// Number of slots that are free for certain; looks at the consumer's index.
    pub fn free(&mut self) -> u64 {
        self.refresh();
        self.memory.capacity() - self.next.wrapping_sub(self.consumed)
    }

    /// Whether the consumer sleeps, has not been rung for this sleep, and what it waits for is there. Call after a burst;
    /// ring if true.
    pub fn wake_due(&mut self) -> bool {
        // pairs with the fence in `Consumer::arm_for`: either we see the sleep, or the sleeper sees our item
        fence(Ordering::SeqCst);
        let sleep = self.memory.sleep().load(Ordering::Relaxed);
        if sleep & 1 == 0 || sleep == self.woken {
            return false;
        }
        let wake_at = self.memory.wake_at().load(Ordering::Relaxed);
        // a position ahead of ours by less than half of all numbers has not been reached
        if wake_at.wrapping_sub(self.next).wrapping_sub(1) < u64::MAX / 2 {
            return false;
        }
        self.woken = sleep;
        true
    }

    /// Items written so far.
    pub fn position(&self) -> u64 {
        self.next
    }
}

/// The half that takes items.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    next: u64,
    committed: u64,
    sleep: u64,
}

impl<M: RingMemory> Consumer<M> {
    /// Starts on a fresh ring.
    pub fn new(memory: M) -> Self {
        Self { memory, next: 0, committed: 0, sleep: 0 }
    }

    /// Whether an item is there.
    pub fn is_ready(&self) -> bool {
        // pairs with the release in `Producer::push`
        self.memory.sequence(self.next).load(Ordering::Acquire) == self.next.wrapping_add(1)
    }

    /// Copies the next item out; false if there is none. Free the slots with [`Consumer::commit`] after a burst; half
    /// a ring of uncommitted slots is freed at once.
    pub fn pop(&mut self, item: &mut M::Item) -> bool {
        self.pop_by(|memory, at| memory.read(at, item))
    }

    /// [`Consumer::pop`] of an item whose parts are to lie apart.
    pub fn pop_parts(&mut self, head: &mut HeadOf<M>, body: &mut BodyOf<M>) -> bool
    where
        M: PartsMemory,
    {
        self.pop_by(|memory, at| memory.read_parts(at, head, body))
    }

    #[inline(always)]
    fn pop_by(&mut self, read: impl FnOnce(&M, u64)) -> bool {
        if !self.is_ready() {
            return false;
        }
        read(&self.memory, self.next);
        self.next = self.next.wrapping_add(1);
        if self.next.wrapping_sub(self.committed) >= self.memory.capacity() / 2 {
            self.commit();
        }
        true
    }

    /// Gives the slots taken so far back to the producer.
    pub fn commit(&mut self) {
        if self.committed != self.next {
            self.committed = self.next;
            // pairs with the acquire in `Producer::refresh`: our copies out of the slots are complete
            self.memory.consumed().store(self.next, Ordering::Release);
        }
    }

    /// Says that this side is about to sleep until an item comes. Returns true if it may: nothing has arrived meanwhile. On
    /// false the consumer is awake again.
    pub fn arm(&mut self) -> bool {
        self.arm_for(1)
    }

    /// Says that this side is about to sleep until `items` of them are there, at most half a ring; for more than one the
    /// sleep has to be a short one. Returns true if it may: fewer have arrived meanwhile. On false the consumer is awake
    /// again.
    pub fn arm_for(&mut self, items: u64) -> bool {
        let wake_at = self.next.wrapping_add(items.min(self.memory.capacity() / 2).max(1));
        self.memory.wake_at().store(wake_at, Ordering::Relaxed);
        // already armed: a new sleep, for which the producer may ring again
        self.sleep = self.sleep.wrapping_add(if self.is_armed() { 2 } else { 1 });
        self.memory.sleep().store(self.sleep, Ordering::Relaxed);
        // pairs with the fence in `Producer::wake_due`
        fence(Ordering::SeqCst);
        if self.memory.sequence(wake_at.wrapping_sub(1)).load(Ordering::Acquire) == wake_at {
            self.disarm();
            return false;
        }
        true
    }

    /// Says that this side is awake.
    pub fn disarm(&mut self) {
        if self.sleep & 1 == 1 {
            self.sleep = self.sleep.wrapping_add(1);
            self.memory.sleep().store(self.sleep, Ordering::Relaxed);
        }
    }

    /// Whether this side is armed.
    pub fn is_armed(&self) -> bool {
        self.sleep & 1 == 1
    }

    /// Items taken so far.
    pub fn position(&self) -> u64 {
        self.next
    }
}

/// A ring in two mapped segments: slots in the producer's, `consumed` and `sleep` in the consumer's.
#[derive(Debug)]
pub struct SharedRing<T> {
    slots: *mut u8,
    mask: u64,
    consumed: *const AtomicU64,
    sleep: *const AtomicU64,
    wake_at: *const AtomicU64,
    _segments: (Arc<Mapping>, Arc<Mapping>),
    _item: PhantomData<T>,
}

// SAFETY: the pointers lead into mappings that the value keeps alive; words are atomics, items are ordered by them, and
// each half is used by one thread at a time because its methods take `&mut self`.
unsafe impl<T: Send> Send for SharedRing<T> {}

impl<T> SharedRing<T> {
    /// Places a ring of `slots` slots at `slots_at` of the producer's mapping, its words at the given offsets of the
    /// consumer's; `wake_at` follows `sleep`. `None` if anything does not fit, is not aligned, or `slots` is not a power of two.
    pub fn new(
        producer: Arc<Mapping>,
        slots_at: usize,
        slots: u64,
        consumer: Arc<Mapping>,
        consumed_at: usize,
        sleep_at: usize,
    ) -> Option<Self> {
        const { assert!(size_of::<T>() == ITEM_BYTES) };
        let bytes = usize::try_from(slots).ok()?.checked_mul(SLOT_BYTES)?;
        let end = slots_at.checked_add(bytes)?;
        if !slots.is_power_of_two() || slots < 2 || end > producer.len() || !slots_at.is_multiple_of(64) {
            return None;
        }
        let consumed: *const AtomicU64 = consumer.atomics::<AtomicU64>(consumed_at)?;
        let sleep: *const AtomicU64 = consumer.atomics::<AtomicU64>(sleep_at)?;
        let wake_at: *const AtomicU64 = consumer.atomics::<AtomicU64>(sleep_at.checked_add(8)?)?;
        // SAFETY: `slots_at` lies inside the mapping, as checked above.
        let first = unsafe { producer.base().add(slots_at) };
        Some(Self {
            slots: first,
            mask: slots - 1,
            consumed,
            sleep,
            wake_at,
            _segments: (producer, consumer),
            _item: PhantomData,
        })
    }

    fn slot(&self, index: u64) -> *mut u8 {
        // the mask is below the slot count, whose byte length fits usize (checked in `new`)
        #[allow(clippy::cast_possible_truncation)]
        let offset = (index & self.mask) as usize * SLOT_BYTES;
        // SAFETY: masked index, so the offset is inside the slots that `new` checked.
        unsafe { self.slots.add(offset) }
    }
}

/// Asks for a cache line so that it can be written, without waiting for it: a store in its place would hold up all stores
/// behind it until the line is there (196 ns per MAD with stores, 155 without anything, 131 with this; 64 in flight, worker only).
#[inline(always)]
fn ask_to_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which changes nothing and never faults, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = line;
}

impl<T: FromBytes + IntoBytes> RingMemory for SharedRing<T> {
    type Item = T;

    fn capacity(&self) -> u64 {
        self.mask + 1
    }

    fn sequence(&self, index: u64) -> &AtomicU64 {
        let word = self.slot(index).cast::<AtomicU64>();
        // SAFETY: slots are 64-byte aligned and alive as long as `self`; the word is only ever accessed atomically.
        unsafe { &*word }
    }

    fn read(&self, index: u64, item: &mut T) {
        let from = self.slot(index).wrapping_add(8);
        // SAFETY: ITEM_BYTES after the sequence word belong to the slot; T is valid for any bytes, should a peer that
        // breaks the protocol write meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(from, std::ptr::from_mut(item).cast::<u8>(), ITEM_BYTES) };
    }

    fn write(&self, index: u64, item: &T) {
        let slot = self.slot(index);
        let from = std::ptr::from_ref(item).cast::<u8>();
        // the first line last: the consumer watches it, and every look takes it away from here
        let (tail_from, tail_to) =
            (from.wrapping_add(FIRST_LINE_BYTES - 8), slot.wrapping_add(FIRST_LINE_BYTES));
        // SAFETY: the tail of the item and the lines behind the first, all inside the slot, which is free for us.
        unsafe { std::ptr::copy_nonoverlapping(tail_from, tail_to, SLOT_BYTES - FIRST_LINE_BYTES) };
        let to = slot.wrapping_add(8);
        // SAFETY: the head of the item and what follows the sequence word in the first line.
        unsafe { std::ptr::copy_nonoverlapping(from, to, FIRST_LINE_BYTES - 8) };
    }

    fn warm(&self, index: u64) {
        let slot = self.slot(index);
        for line in 0..SLOT_BYTES / FIRST_LINE_BYTES {
            ask_to_write(slot.wrapping_add(line * FIRST_LINE_BYTES));
        }
    }

    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: checked in `new`, kept alive by `_segments`.
        unsafe { &*self.consumed }
    }

    fn sleep(&self) -> &AtomicU64 {
        // SAFETY: checked in `new`, kept alive by `_segments`.
        unsafe { &*self.sleep }
    }

    fn wake_at(&self) -> &AtomicU64 {
        // SAFETY: checked in `new`, kept alive by `_segments`.
        unsafe { &*self.wake_at }
    }
}

impl<T: FromBytes + IntoBytes + TwoParts> SharedRing<T> {
    const PARTS_FIT: () = {
        assert!(size_of::<T::Head>() == FIRST_LINE_BYTES - 8, "the head fills the first line");
        assert!(size_of::<T::Body>() == SLOT_BYTES - FIRST_LINE_BYTES, "the body fills the others");
    };
}

impl<T: FromBytes + IntoBytes + TwoParts> PartsMemory for SharedRing<T> {
    fn read_parts(&self, index: u64, head: &mut T::Head, body: &mut T::Body) {
        const { Self::PARTS_FIT };
        let slot = self.slot(index);
        let (from, to) = (slot.wrapping_add(8), std::ptr::from_mut(head).cast::<u8>());
        // SAFETY: what follows the sequence word in the first line, as long as a head, which is valid for any bytes, should
        // a peer that breaks the protocol write meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size_of::<T::Head>()) };
        let (from, to) = (slot.wrapping_add(FIRST_LINE_BYTES), std::ptr::from_mut(body).cast::<u8>());
        // SAFETY: the other lines of the slot, as long as a body, which is valid for any bytes too.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size_of::<T::Body>()) };
    }

    fn write_parts(&self, index: u64, head: &T::Head, body: &T::Body) {
        const { Self::PARTS_FIT };
        let slot = self.slot(index);
        // the first line last, as in `write`
        let (from, to) = (std::ptr::from_ref(body).cast::<u8>(), slot.wrapping_add(FIRST_LINE_BYTES));
        // SAFETY: the lines behind the first, as long as a body; the slot is free for us.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size_of::<T::Body>()) };
        let (from, to) = (std::ptr::from_ref(head).cast::<u8>(), slot.wrapping_add(8));
        // SAFETY: what follows the sequence word in the first line, as long as a head.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size_of::<T::Head>()) };
    }
}
