//! Memory that a device reads and writes: private, zeroed, on 2 MiB pages where the machine has some free.
//!
//! Owned by one queue. The device writes receive slots whenever it likes, so nothing here makes a reference to the bytes: they
//! are copied in and out by address. The region stays out of children of the process, whose copies of its pages would
//! otherwise take them away from the device.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const HUGE_PAGE: usize = 2 << 20;

/// A mapping, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Region {
    at: NonNull<u8>,
    length: usize,
    huge: bool,
}

// SAFETY: the mapping is private to its owner and bound to no thread.
unsafe impl Send for Region {}

impl Region {
    /// Maps at least `length` bytes, on huge pages if `huge` and if there are any.
    pub(super) fn map(length: usize, huge: bool) -> rustix::io::Result<Self> {
        let rounded = length.next_multiple_of(HUGE_PAGE);
        if huge && let Ok(region) = Self::map_with(rounded, MapFlags::HUGETLB | MapFlags::HUGE_2MB, true) {
            return Ok(region);
        }
        Self::map_with(length.next_multiple_of(4096), MapFlags::empty(), false)
    }

    fn map_with(length: usize, flags: MapFlags, huge: bool) -> rustix::io::Result<Self> {
        let flags = flags | MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: no address is asked for, so no other mapping is touched.
        let at = unsafe { mmap_anonymous(null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let at = NonNull::new(at.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        let region = Self { at, length, huge };
        // SAFETY: the range is the mapping just made; children are not given it, nothing else changes.
        unsafe { madvise(region.start(), length, Advice::LinuxDontFork) }?;
        Ok(region)
    }

    pub(super) fn start(&self) -> *mut c_void {
        self.at.as_ptr().cast()
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn is_huge(&self) -> bool {
        self.huge
    }

    /// Address of a byte, as the device is told it.
    pub(super) fn address(&self, offset: usize) -> u64 {
        debug_assert!(offset <= self.length);
        self.at.as_ptr().addr() as u64 + offset as u64
    }

    /// Copies `from` to `offset`.
    pub(super) fn write(&mut self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.length, "slots lie inside their region");
        // SAFETY: the assertion keeps the range inside the mapping.
        let to = unsafe { self.at.as_ptr().add(offset) };
        // SAFETY: the mapping is live and writable, `from` is memory of the program and cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// Copies from `offset` into `into`.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.length, "slots lie inside their region");
        // SAFETY: the assertion keeps the range inside the mapping.
        let from = unsafe { self.at.as_ptr().add(offset) };
        // SAFETY: the mapping is live and `into` cannot overlap it; the device has completed the slot and does not write it
        // before it is posted again.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; the queue deregisters it before (field order) and keeps no address.
        let _ = unsafe { munmap(self.start(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_rest_is_zero() {
        let mut region = Region::map(5000, false).unwrap();
        assert!(!region.is_huge() && region.length() >= 5000);
        region.write(100, &[1, 2, 3]);
        let mut bytes = [0xa5; 5];
        region.read(99, &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3, 0]);
    }

    #[test]
    #[should_panic(expected = "inside their region")]
    fn a_copy_beyond_the_end_is_refused() {
        let mut region = Region::map(4096, false).unwrap();
        region.write(4095, &[0; 2]);
    }

    #[test]
    fn without_huge_pages_there_are_normal_ones() {
        let region = Region::map(1, true).unwrap();
        assert_eq!(region.length(), if region.is_huge() { HUGE_PAGE } else { 4096 });
    }
}
