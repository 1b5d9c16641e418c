//! An allocator that counts what the calling thread allocates.
//!
//! A test makes it its global allocator and looks at [`allocations`] before and after. The count is per thread, so that
//! what a test runner does elsewhere does not matter. What it does not do: count what is freed.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // no destructor and a constant start, so that the allocator may touch it at any time
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator with a count.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingAllocator;

/// Allocations and reallocations of this thread so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.try_with(Cell::get).unwrap_or(0)
}

fn count() {
    // fails only while the thread ends, when nobody looks any more
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every method passes its arguments on to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: our caller promises of `layout` what `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: our caller promises of `layout` what `System` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: our caller got `pointer` from us, that is from `System`, with this `layout`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: our caller got `pointer` from us, that is from `System`, with this `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
