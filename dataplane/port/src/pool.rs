//! Memory of a plane's own in huge pages: an allocator that gives it out while it is told to.
//!
//! [`Pool`] is the global allocator of a daemon. Everywhere but inside of [`fill`] it is the system's. There, on that thread,
//! blocks of [`LEAST_BYTES`] and more are cut from chunks of huge pages for as long as there are any, and from the system's
//! memory when there are none. Meant for what is made once and used for every MAD: shards, mesh rings, buffers.
//!
//! Invariants: a chunk is storage that the kernel has set aside, so touching it cannot fail; memory is cut off once and never
//! again, so it is zero, and giving it back does nothing. What it does not do: serve memory that comes and goes, choose a NUMA
//! node (the thread that fills is where its memory is), or tell clients anything: sessions have segments of their own.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use madplane_shm::map::{self, HUGE_PAGE_BYTES};
use madplane_shm::sync::{AtomicU64, Ordering};
use rustix::mm::{MapFlags, ProtFlags};

/// Smaller blocks are the system's.
pub const LEAST_BYTES: usize = 512;
/// Most chunks; each is at least a quarter of all before it.
const MOST_CHUNKS: usize = 96;

/// The allocator; `#[global_allocator]` of a program whose planes may use huge pages.
#[derive(Debug)]
pub struct Pool;

/// Where huge pages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The machine's pool of pages of the default size.
    Machine,
    /// A mount of hugetlbfs.
    Mount(PathBuf),
}

impl Source {
    /// Makes a nameless object of at least `bytes` with its storage set aside; returns its real length too.
    fn create(&self, bytes: usize) -> std::io::Result<(OwnedFd, usize)> {
        match self {
            Self::Machine => map::create_memfd("madplane-plane", bytes, true),
            Self::Mount(directory) => map::create_in_mount(directory, bytes),
        }
    }
}

/// Address and length of each chunk; a length of 0 ends the list.
static CHUNKS: [(AtomicU64, AtomicU64); MOST_CHUNKS] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MOST_CHUNKS];

/// What is cut from, and what may still be taken.
struct Store {
    chunks: usize,
    from: *mut u8,
    left: usize,
    total: usize,
    /// Bytes of chunks that may still be made.
    budget: usize,
    source: Option<Source>,
}

// SAFETY: the pointer leads to memory of this process that is never unmapped; only the holder of the lock cuts from it.
unsafe impl Send for Store {}

static STORE: Mutex<Store> =
    Mutex::new(Store { chunks: 0, from: null_mut(), left: 0, total: 0, budget: 0, source: None });

thread_local! {
    static FILLS: Cell<bool> = const { Cell::new(false) };
}

fn store() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `make` with what it allocates in huge pages of `source`, `most_bytes` of them at the most; returns how many of those
/// were taken besides. Without [`Pool`] as the allocator, or without huge pages, that is none.
pub fn fill<R>(source: Source, most_bytes: usize, make: impl FnOnce() -> R) -> (R, usize) {
    let before = {
        let mut store = store();
        (store.source, store.budget) = (Some(source), most_bytes);
        store.total
    };
    let end = End;
    FILLS.set(true);
    let made = make();
    drop(end);
    (made, store().total - before)
}

/// Ends filling, also when what is filled panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        FILLS.set(false);
        let source = store().source.take();
        drop(source);
    }
}

impl Store {
    fn cut(&mut self, layout: Layout) -> Option<*mut u8> {
        if !self.fits(layout) {
            self.extend(layout.size().checked_add(layout.align())?)?;
        }
        let skip = self.from.align_offset(layout.align());
        let taken = skip.checked_add(layout.size())?;
        let block = self.from.wrapping_add(skip);
        self.from = self.from.wrapping_add(taken);
        self.left = self.left.checked_sub(taken)?;
        Some(block)
    }

    fn fits(&self, layout: Layout) -> bool {
        self.from.align_offset(layout.align()).checked_add(layout.size()).is_some_and(|end| end <= self.left)
    }

    /// Goes on in another chunk; what is left of the former one is lost.
    fn extend(&mut self, bytes: usize) -> Option<()> {
        if self.chunks == MOST_CHUNKS {
            return None;
        }
        let least = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let wanted = least.max((self.total / 4).next_multiple_of(HUGE_PAGE_BYTES)).min(self.budget);
        let Some((start, length)) = self.map(wanted.max(least)).or_else(|| self.map(least)) else {
            // no second try for every block that follows
            self.budget = 0;
            return None;
        };
        let (at, bytes) = &CHUNKS[self.chunks];
        at.store(start.addr() as u64, Ordering::Relaxed);
        // who sees the length sees the address; pairs with the acquire in `owns`
        bytes.store(length as u64, Ordering::Release);
        self.chunks += 1;
        (self.from, self.left) = (start, length);
        self.total += length;
        self.budget = self.budget.saturating_sub(length);
        Some(())
    }

    fn map(&self, bytes: usize) -> Option<(*mut u8, usize)> {
        let source = self.source.as_ref().filter(|_| bytes <= self.budget)?;
        let (fd, length) = source.create(bytes).ok()?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of an object of this length that nobody else has; it replaces none, as no address is asked for.
        let start = unsafe { rustix::mm::mmap(null_mut(), length, access, MapFlags::SHARED, fd, 0) };
        Some((start.ok()?.cast(), length))
    }
}

/// Whether a block came from a chunk.
fn owns(block: *mut u8, size: usize) -> bool {
    if size < LEAST_BYTES {
        return false;
    }
    let address = block.addr() as u64;
    CHUNKS
        .iter()
        .map_while(|(at, bytes)| {
            // pairs with the release in `extend`
            let length = bytes.load(Ordering::Acquire);
            (length > 0).then(|| (at.load(Ordering::Relaxed), length))
        })
        .any(|(at, length)| address.wrapping_sub(at) < length)
}

/// A block of huge pages, if this thread fills any and it is not too small.
fn cut(layout: Layout) -> Option<*mut u8> {
    if layout.size() < LEAST_BYTES || !FILLS.try_with(Cell::get).unwrap_or(false) {
        return None;
    }
    // what making a chunk allocates is the system's
    FILLS.set(false);
    let block = store().cut(layout);
    FILLS.set(true);
    block
}

// SAFETY: blocks are the system's, or cut from a chunk: aligned, as long as asked for, cut once, mapped for ever. A block of a
// chunk is told from one of the system's by its address, and never given to the system.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match cut(layout) {
            Some(block) => block,
            // SAFETY: the caller's promise about `layout` is the one that the system asks for.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match cut(layout) {
            // nobody has had it: as the kernel made it
            Some(block) => block,
            // SAFETY: the caller's promise about `layout` is the one that the system asks for.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !owns(block, layout.size()) {
            // SAFETY: it is not of a chunk, so the system gave it with this layout.
            unsafe { System.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !owns(block, layout.size()) {
            // SAFETY: it is not of a chunk, so the system gave it with this layout; `size` is the caller's promise.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the caller promises a size that is no zero and does not overflow when rounded up to the alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller's promise, as above.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are at least as long as the shorter of the two, and the new one is nobody else's.
            unsafe { new.copy_from_nonoverlapping(block, layout.size().min(size)) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static MEMORY: Pool = Pool;

    fn is_huge(block: &[u8]) -> bool {
        owns(block.as_ptr().cast_mut(), block.len())
    }

    #[test]
    fn what_is_made_while_filling_is_in_huge_pages_if_there_are_any_and_lives_on() {
        let ((mut big, mut grown, small), taken) = fill(Source::Machine, 8 << 20, || {
            let mut grown = vec![0xa5; 4096];
            grown.resize(100_000, 7);
            (vec![0; 3 << 20], grown, vec![1; LEAST_BYTES - 1])
        });
        assert!(big.iter().all(|byte| *byte == 0));
        assert!(
            grown[..4096].iter().all(|byte| *byte == 0xa5) && grown[4096..].iter().all(|byte| *byte == 7)
        );
        assert_eq!(taken > 0, is_huge(&big), "{taken}");
        assert_eq!(taken % HUGE_PAGE_BYTES, 0);
        assert!(taken <= 8 << 20 && !is_huge(&small));
        // it can be grown and given back elsewhere
        big.fill(3);
        big.resize(5 << 20, 4);
        assert!(!is_huge(&big) && big[(3 << 20) - 1] == 3 && big[3 << 20] == 4);
        grown.shrink_to(1000);
        std::thread::spawn(move || drop(grown)).join().unwrap();
    }

    #[test]
    fn without_a_budget_or_a_mount_it_is_the_systems() {
        // more than another test can have left over
        const BLOCK: usize = 16 << 20;
        let (block, taken) = fill(Source::Machine, 0, || vec![1_u8; BLOCK]);
        assert_eq!((taken, is_huge(&block)), (0, false));
        let nowhere = Source::Mount("/no/such/mount".into());
        let (block, taken) = fill(nowhere, 2 * BLOCK, || vec![1_u8; BLOCK]);
        assert_eq!((taken, is_huge(&block)), (0, false));
    }

    #[test]
    fn a_panic_ends_filling() {
        let panics = || fill(Source::Machine, 8 << 20, || panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(!FILLS.get() && !is_huge(&vec![1; 1 << 20]));
    }
}
