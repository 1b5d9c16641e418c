//! A table from small numbers to shared values that is read without a lock, a copy or an allocation.
//!
//! Used by [`crate::ports`] with descriptor numbers as keys, from any thread. Each slot has one state word:
//!
//! | bits | meaning |
//! |---|---|
//! | 31 | open: new users may enter |
//! | 30 | taken: the slot holds a value (from `insert` until the last user has left) |
//! | 0..=29 | users inside, plus one for the table itself while open |
//!
//! | field | who writes | who reads | ordering |
//! |---|---|---|---|
//! | `state` | anyone | anyone | enter acquires what `insert` released; the last to leave acquires what the others released |
//! | `value` | `insert` and the last to leave, both while nobody is inside | users inside | through `state` |
//!
//! Invariant: between [`Table::enter`] and the drop of its [`Entered`] the value is neither moved nor dropped, even
//! though [`Table::remove`] returns at once. Not done here: waking users that are inside.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

const OPEN: u32 = 1 << 31;
const TAKEN: u32 = 1 << 30;
const USERS: u32 = TAKEN - 1;

/// Number of slots; keys are below it.
pub(crate) const CAPACITY: usize = 4096;

struct Slot<T> {
    state: AtomicU32,
    value: AtomicPtr<T>,
}

/// The table.
pub(crate) struct Table<T> {
    slots: [Slot<T>; CAPACITY],
}

impl<T> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

/// A user inside a slot; leaving is dropping it.
#[derive(Debug)]
pub(crate) struct Entered<'a, T> {
    slot: &'a Slot<T>,
}

impl<T> std::fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("state", &self.state).finish_non_exhaustive()
    }
}

// values are shared by reference and dropped by whichever thread leaves last, hence both bounds
impl<T: Send + Sync> Table<T> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self {
            slots: [const { Slot { state: AtomicU32::new(0), value: AtomicPtr::new(ptr::null_mut()) } };
                CAPACITY],
        }
    }

    /// Puts a value at `key`; gives it back if the slot is taken or there is no such slot.
    pub(crate) fn insert(&self, key: usize, value: Box<T>) -> Result<(), Box<T>> {
        let Some(slot) = self.slots.get(key) else { return Err(value) };
        // the slot is claimed first, so that two threads cannot both store a value; it is not open yet
        if slot.state.compare_exchange(0, TAKEN | 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(value);
        }
        slot.value.store(Box::into_raw(value), Ordering::Relaxed);
        // pairs with the acquire in enter
        slot.state.fetch_or(OPEN, Ordering::Release);
        Ok(())
    }

    /// Enters the slot at `key`; `None` if there is nothing.
    #[inline]
    pub(crate) fn enter(&self, key: usize) -> Option<Entered<'_, T>> {
        let slot = self.slots.get(key)?;
        let mut seen = slot.state.load(Ordering::Relaxed);
        loop {
            if seen & OPEN == 0 {
                return None;
            }
            // pairs with the release in insert
            match slot.state.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Entered { slot }),
                Err(now) => seen = now,
            }
        }
    }

    /// Closes the slot at `key`: nobody enters any more, and the value is dropped when the last user leaves, which may
    /// be now. False if there was nothing.
    pub(crate) fn remove(&self, key: usize) -> bool {
        let Some(slot) = self.slots.get(key) else { return false };
        let before = slot.state.fetch_and(!OPEN, Ordering::Relaxed);
        if before & OPEN == 0 {
            return false;
        }
        drop(Entered { slot });
        true
    }

    /// Forgets the value at `key` without dropping it, unless a user is inside. For a value whose descriptor, the key, was
    /// closed by the program: the number belongs to something else now, and dropping the value would close that.
    pub(crate) fn forget(&self, key: usize) {
        let Some(slot) = self.slots.get(key) else { return };
        // a slot that is taken and not open lets nobody in, as in insert
        if slot
            .state
            .compare_exchange(OPEN | TAKEN | 1, TAKEN | 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            slot.value.store(ptr::null_mut(), Ordering::Relaxed);
            slot.state.store(0, Ordering::Release);
        }
    }
}

impl<T> std::ops::Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        let value = self.slot.value.load(Ordering::Relaxed);
        // SAFETY: insert stored a valid box before it opened the slot, and nobody frees it while a user is inside.
        unsafe { &*value }
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        // release: what this user did comes before the drop by the last one, whose acquire it pairs with
        let before = self.slot.state.fetch_sub(1, Ordering::AcqRel);
        if before & USERS != 1 {
            return;
        }
        let value = self.slot.value.swap(ptr::null_mut(), Ordering::Relaxed);
        // the slot can be taken again from here on
        self.slot.state.store(0, Ordering::Release);
        // SAFETY: stored by insert from a box; this was the last user, and a closed slot lets nobody in.
        drop(unsafe { Box::from_raw(value) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    struct Counted(Arc<AtomicUsize>, u64);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1 = 0;
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_value_lives_until_the_last_user_has_left() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let table = Box::new(Table::new());
        assert!(table.insert(3, Box::new(Counted(dropped.clone(), 7))).is_ok());
        assert!(table.insert(3, Box::new(Counted(dropped.clone(), 8))).is_err());
        assert_eq!(dropped.load(Ordering::SeqCst), 1, "the refused one");
        let inside = table.enter(3).unwrap();
        assert!(table.remove(3));
        assert!(!table.remove(3));
        assert!(table.enter(3).is_none());
        assert!(table.insert(3, Box::new(Counted(Arc::default(), 9))).is_err(), "somebody is inside");
        assert_eq!((inside.1, dropped.load(Ordering::SeqCst)), (7, 1));
        drop(inside);
        assert_eq!(dropped.load(Ordering::SeqCst), 2);
        assert!(table.insert(3, Box::new(Counted(dropped.clone(), 9))).is_ok());
        table.remove(3);
    }

    #[test]
    fn a_value_is_forgotten_only_while_nobody_is_inside() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let table = Box::new(Table::new());
        assert!(table.insert(1, Box::new(Counted(dropped.clone(), 7))).is_ok());
        let inside = table.enter(1).unwrap();
        table.forget(1);
        assert_eq!(table.enter(1).map(|entered| entered.1), Some(7));
        drop(inside);
        table.forget(1);
        assert!(table.enter(1).is_none());
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        assert!(table.insert(1, Box::new(Counted(dropped.clone(), 8))).is_ok());
        table.remove(1);
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn keys_beyond_the_table_hold_nothing() {
        let table: Box<Table<u8>> = Box::new(Table::new());
        assert!(table.enter(CAPACITY).is_none());
        assert!(table.insert(CAPACITY, Box::new(1)).is_err());
        assert!(!table.remove(usize::MAX));
    }

    #[test]
    fn users_and_closers_never_meet_a_dropped_value() {
        let table: Arc<Table<Counted>> = Arc::new(Table::new());
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut put = 0;
        std::thread::scope(|scope| {
            let stop = Arc::new(AtomicUsize::new(0));
            for _ in 0..2 {
                let (table, stop) = (table.clone(), stop.clone());
                scope.spawn(move || {
                    while stop.load(Ordering::Relaxed) == 0 {
                        if let Some(inside) = table.enter(1) {
                            assert_eq!(inside.1, 42);
                        }
                    }
                });
            }
            for _ in 0..20_000 {
                if table.insert(1, Box::new(Counted(dropped.clone(), 42))).is_ok() {
                    put += 1;
                } else {
                    std::thread::yield_now();
                }
                table.remove(1);
            }
            stop.store(1, Ordering::Relaxed);
        });
        // the refused ones were dropped as well
        assert_eq!(dropped.load(Ordering::SeqCst), 20_000);
        assert!(put > 0);
    }
}
