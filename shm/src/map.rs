//! Creating, sealing and mapping segments.
//!
//! A [`Mapping`] is raw memory with a length; nobody gets a slice of it. Typed access goes through [`Mapping::atomics`],
//! which hands out references to structs made of atomics only, after checking that they lie inside.
//!
//! Invariant: storage is reserved before the first byte is touched, so a full memory file system is an error here and
//! never a signal later. A memfd is sealed against shrinking and growing; a peer cannot take pages away.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};

/// Marks structs that consist of atomics only, have no padding that matters, and are valid for every bit pattern.
///
/// # Safety
/// - `#[repr(C)]`, every field an atomic integer or another `SharedLayout`.
/// - No pointers, references, handles, bools or enums.
pub unsafe trait SharedLayout {}

/// Length of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Type of a mount of hugetlbfs, as statfs(2) has it.
const HUGETLBFS_MAGIC: rustix::fs::FsWord = 0x9584_58f6;

/// Mapped memory of one segment.
#[derive(Debug)]
pub struct Mapping {
    map: MmapRaw,
    writable: bool,
}

/// Creates a memfd of at least `bytes`, with its storage reserved, sealed against shrinking and growing.
///
/// With `huge` the memory comes from reserved huge pages and the length is rounded up to them. Returns the descriptor
/// and the real length.
///
/// # Errors
/// No memory, no huge pages, or no descriptor left.
pub fn create_memfd(name: &str, bytes: usize, huge: bool) -> io::Result<(OwnedFd, usize)> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let unit = if huge { HUGE_PAGE_BYTES } else { 4096 };
    if huge {
        flags |= MemfdFlags::HUGETLB;
    }
    let length = bytes.next_multiple_of(unit);
    let fd = rustix::fs::memfd_create(name, flags)?;
    reserve(&fd, length)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok((fd, length))
}

/// Creates a nameless file of at least `bytes` in a mount of hugetlbfs, with its storage reserved; returns the real length too.
///
/// Such a file cannot be sealed: it is for memory that no other process gets.
///
/// # Errors
/// `Unsupported` if `directory` is no such mount or its pages are not of [`HUGE_PAGE_BYTES`]; no huge pages left.
pub fn create_in_mount(directory: &Path, bytes: usize) -> io::Result<(OwnedFd, usize)> {
    let page = mount_page_bytes(directory)?;
    if page != HUGE_PAGE_BYTES as u64 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let length = bytes.next_multiple_of(HUGE_PAGE_BYTES);
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
    reserve(&fd, length)?;
    Ok((fd, length))
}

/// Length of a page of a mount of hugetlbfs.
///
/// # Errors
/// `Unsupported` if `directory` is something else; as statfs(2).
pub fn mount_page_bytes(directory: &Path) -> io::Result<u64> {
    let of = rustix::fs::statfs(directory)?;
    match u64::try_from(of.f_bsize) {
        Ok(page) if of.f_type == HUGETLBFS_MAGIC => Ok(page),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Forbids writable mappings of `fd` from now on; those that exist stay writable.
///
/// # Errors
/// The kernel is older than 5.1 or `fd` is not a memfd.
pub fn seal_future_writes(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?)
}

/// Creates a file segment next to `path` and returns it; [`publish_file`] moves it into place once it is filled.
///
/// # Errors
/// The directory cannot be written or the file system is full.
pub fn create_file(path: &Path, bytes: usize) -> io::Result<(File, usize)> {
    let length = bytes.next_multiple_of(4096);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(staging(path))?;
    if let Err(error) = reserve(&file, length) {
        let _ = std::fs::remove_file(staging(path));
        return Err(error);
    }
    Ok((file, length))
}

/// Shows a segment made by [`create_file`] under its name, in one step; a predecessor's readers keep theirs.
///
/// # Errors
/// As rename(2).
pub fn publish_file(path: &Path) -> io::Result<()> {
    std::fs::rename(staging(path), path)
}

fn staging(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn reserve(fd: impl AsFd, length: usize) -> io::Result<()> {
    let length = u64::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    rustix::fs::ftruncate(&fd, length)?;
    Ok(rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, length)?)
}

/// Returns the length of the object behind `fd`, as far as it can be mapped.
///
/// # Errors
/// As fstat(2).
pub fn length_of(fd: impl AsFd) -> io::Result<usize> {
    let stat = rustix::fs::fstat(fd)?;
    usize::try_from(stat.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}

impl Mapping {
    /// Maps all of `fd` for reading and writing.
    ///
    /// # Errors
    /// As mmap(2), and `InvalidData` for an object shorter than a page.
    pub fn writable(fd: impl AsFd) -> io::Result<Self> {
        let length = checked_length(&fd)?;
        let map = MmapOptions::new().len(length).map_raw(&fd.as_fd())?;
        Ok(Self { map, writable: true })
    }

    /// Maps all of `fd` for reading.
    ///
    /// # Errors
    /// As mmap(2), and `InvalidData` for an object shorter than a page.
    pub fn read_only(fd: impl AsFd) -> io::Result<Self> {
        let length = checked_length(&fd)?;
        let map = MmapOptions::new().len(length).map_raw_read_only(&fd.as_fd())?;
        Ok(Self { map, writable: false })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Always false: a mapping has at least one page.
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// Whether this process may write.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Brings all pages in, so that nobody meets them for the first time while it polls. Kernels before 5.14 do nothing.
    pub fn populate(&self) {
        let advice = if self.writable { Advice::PopulateWrite } else { Advice::PopulateRead };
        let _ = self.map.advise(advice);
    }

    /// First byte. Only this crate's ring uses it.
    pub(crate) fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Returns a struct of atomics at `offset`, or `None` if it does not lie inside or is not aligned.
    ///
    /// Storing through it on a read-only mapping is a fault of the caller and ends the process; the writer halves of
    /// this crate check [`Mapping::is_writable`] when they are made.
    pub fn atomics<T: SharedLayout>(&self, offset: usize) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.len() || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset` lies inside the mapping, as checked above.
        let place = unsafe { self.map.as_ptr().add(offset) };
        // SAFETY: in bounds, aligned (mappings start at a page), and T is made of atomics valid for all bits.
        Some(unsafe { &*place.cast::<T>() })
    }

    /// Returns `count` structs of atomics in a row from `offset` on, which keep the mapping alive; `None` if they do not
    /// lie inside or are not aligned. The rule of [`Mapping::atomics`] about storing holds.
    pub fn place<T: SharedLayout>(self: &Arc<Self>, offset: usize, count: usize) -> Option<Placed<T>> {
        let end = size_of::<T>().checked_mul(count)?.checked_add(offset)?;
        if end > self.len() || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset` lies inside the mapping, as checked above.
        let first = unsafe { self.map.as_ptr().add(offset) };
        Some(Placed { first: first.cast::<T>(), count, mapping: Arc::clone(self) })
    }
}

/// A row of structs of atomics in a mapping that it keeps alive; found and checked once, used often.
#[derive(Debug)]
pub struct Placed<T> {
    first: *const T,
    count: usize,
    mapping: Arc<Mapping>,
}

impl<T> Placed<T> {
    /// Whether this process may write.
    pub fn is_writable(&self) -> bool {
        self.mapping.is_writable()
    }
}

impl<T> Clone for Placed<T> {
    fn clone(&self) -> Self {
        Self { first: self.first, count: self.count, mapping: Arc::clone(&self.mapping) }
    }
}

impl<T: SharedLayout> Deref for Placed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `place` checked alignment and that `count` structs lie inside the mapping, which `self` keeps alive;
        // T is made of atomics valid for all bits.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

// SAFETY: the pointer leads into a mapping that the value keeps alive, to atomics only.
unsafe impl<T: SharedLayout + Send + Sync> Send for Placed<T> {}
// SAFETY: as for `Send`; shared access is atomic access.
unsafe impl<T: SharedLayout + Send + Sync> Sync for Placed<T> {}

fn checked_length(fd: impl AsFd) -> io::Result<usize> {
    let length = length_of(fd)?;
    if length < 4096 { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::header::SegmentHeader {}
// SAFETY: a plain atomic word.
unsafe impl SharedLayout for crate::sync::AtomicU64 {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::status::PlaneBlock {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::status::WorkerBlock {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::status::SessionRecord {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::status::LinkRecord {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::status::DeviceRecord {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::errors::ErrorRecord {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::latency::LatencyHistogram {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::table::GenerationLine {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::table::TableControl {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::table::BankHeader {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::table::RouteRecord {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::table::tenant::TenantRecord {}
// SAFETY: made of atomics only (see the struct).
unsafe impl SharedLayout for crate::route_counters::RouteUse {}
// SAFETY: repr(C), atomics only, zero is a value.
unsafe impl SharedLayout for crate::tuning::TuningRecord {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU64, Ordering};

    #[test]
    fn two_mappings_of_one_memfd_see_the_same_word() {
        let (fd, length) = create_memfd("test", 100, false).unwrap();
        assert_eq!(length, 4096);
        let writer = Mapping::writable(&fd).unwrap();
        let reader = Mapping::read_only(&fd).unwrap();
        writer.atomics::<AtomicU64>(8).unwrap().store(5, Ordering::Relaxed);
        assert_eq!(reader.atomics::<AtomicU64>(8).unwrap().load(Ordering::Relaxed), 5);
        assert!(reader.atomics::<AtomicU64>(4096).is_none());
        assert!(reader.atomics::<AtomicU64>(4).is_none());
        assert!(reader.atomics::<AtomicU64>(usize::MAX).is_none());
    }

    #[test]
    fn a_sealed_memfd_can_be_neither_shrunk_nor_mapped_writable_again() {
        let (fd, _) = create_memfd("test", 4096, false).unwrap();
        let writer = Mapping::writable(&fd).unwrap();
        seal_future_writes(&fd).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert!(Mapping::writable(&fd).is_err());
        assert!(Mapping::read_only(&fd).is_ok());
        writer.atomics::<AtomicU64>(0).unwrap().store(1, Ordering::Relaxed);
    }

    #[test]
    fn what_is_no_mount_of_hugetlbfs_gives_no_huge_pages() {
        let directory = tempfile::tempdir().unwrap();
        for place in [directory.path(), Path::new("/no/such/place")] {
            assert!(mount_page_bytes(place).is_err() && create_in_mount(place, 1).is_err());
        }
    }

    #[test]
    fn an_object_shorter_than_a_page_is_refused() {
        let fd = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 100).unwrap();
        assert!(Mapping::read_only(&fd).is_err());
    }
}
