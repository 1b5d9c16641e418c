//! The first 128 bytes of every segment: what it is, who writes it, whether it is ready.
//!
//! | field | writer | readers | ordering |
//! |---|---|---|---|
//! | all but `version` | creator, before the segment is shown to anybody | openers | ordered by `version` |
//! | `version` | creator, last | openers, first | release, pairs with the acquire in [`SegmentHeader::check`] |
//!
//! A version of 0 means "not ready yet". An opener compares `length` with the size of its own mapping and refuses the
//! rest of the segment otherwise.

use crate::LAYOUT_VERSION;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// `MADPLANE` in ASCII, as a big-endian number.
pub const MAGIC: u64 = 0x4D41_4450_4C41_4E45;

/// What a segment holds; the number travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SegmentKind {
    /// Counters, sessions, workers, errors.
    Status = 1,
    /// Ring from a client or from control to the plane.
    Up = 2,
    /// Ring from the plane to a client or to control.
    Down = 3,
    /// Route table.
    Table = 4,
    /// Use of each route.
    RouteCounters = 5,
}

/// Identity of a writing process: changes whenever another process, or the same number after a restart, writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Incarnation {
    /// Process id in the writer's own namespace.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot.
    pub start_ticks: u64,
    /// First half of the boot id.
    pub boot: u64,
}

/// Header of a segment.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct SegmentHeader {
    magic: AtomicU64,
    version: AtomicU32,
    kind: AtomicU32,
    header_bytes: AtomicU32,
    pid: AtomicU32,
    start_ticks: AtomicU64,
    boot: AtomicU64,
    length_bytes: AtomicU64,
    slots: AtomicU64,
    reserved: [AtomicU64; 8],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<SegmentHeader>() == 128 && align_of::<SegmentHeader>() == 128);
    assert!(core::mem::offset_of!(SegmentHeader, version) == 8);
    assert!(core::mem::offset_of!(SegmentHeader, length_bytes) == 40);
    assert!(core::mem::offset_of!(SegmentHeader, slots) == 48);
};

/// Why a segment was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The segment is shorter than a header, or its pages are not those of madplane.
    #[error("not a madplane segment")]
    NotASegment,
    /// The creator has not finished.
    #[error("segment is not ready yet")]
    NotReady,
    /// Built from another layout.
    #[error("layout version {theirs} found, this program speaks version {ours}")]
    Version {
        /// Version in the segment.
        theirs: u32,
        /// Version of this program.
        ours: u32,
    },
    /// A segment of another kind.
    #[error("segment of kind {theirs} found where kind {ours} is expected")]
    Kind {
        /// Kind in the segment.
        theirs: u32,
        /// Kind that was asked for.
        ours: u32,
    },
    /// The header speaks of another length than the mapping has.
    #[error("segment says {said} bytes, {mapped} are mapped")]
    Length {
        /// Length in the header.
        said: u64,
        /// Length of the mapping.
        mapped: u64,
    },
}

impl SegmentHeader {
    /// Fills the header and shows the segment as ready; the creator's last step.
    pub fn publish(&self, kind: SegmentKind, length_bytes: u64, slots: u64, writer: Incarnation) {
        self.magic.store(MAGIC, Ordering::Relaxed);
        self.kind.store(kind as u32, Ordering::Relaxed);
        self.header_bytes.store(128, Ordering::Relaxed);
        self.pid.store(writer.pid, Ordering::Relaxed);
        self.start_ticks.store(writer.start_ticks, Ordering::Relaxed);
        self.boot.store(writer.boot, Ordering::Relaxed);
        self.length_bytes.store(length_bytes, Ordering::Relaxed);
        self.slots.store(slots, Ordering::Relaxed);
        // pairs with the acquire in `check`
        self.version.store(LAYOUT_VERSION, Ordering::Release);
    }

    /// Checks that this is a ready segment of `kind` and that it is as long as the mapping.
    ///
    /// # Errors
    /// The first test that failed.
    pub fn check(&self, kind: SegmentKind, mapped_bytes: u64) -> Result<(), HeaderError> {
        // pairs with the release in `publish`
        let theirs = self.version.load(Ordering::Acquire);
        let magic = self.magic.load(Ordering::Relaxed);
        if theirs == 0 && magic == 0 {
            return Err(HeaderError::NotReady);
        }
        if magic != MAGIC {
            return Err(HeaderError::NotASegment);
        }
        if theirs == 0 {
            return Err(HeaderError::NotReady);
        }
        if theirs != LAYOUT_VERSION {
            return Err(HeaderError::Version { theirs, ours: LAYOUT_VERSION });
        }
        let found = self.kind.load(Ordering::Relaxed);
        if found != kind as u32 {
            return Err(HeaderError::Kind { theirs: found, ours: kind as u32 });
        }
        let said = self.length_bytes.load(Ordering::Relaxed);
        if said != mapped_bytes {
            return Err(HeaderError::Length { said, mapped: mapped_bytes });
        }
        Ok(())
    }

    /// Names another writer, one that goes on where the former ended.
    pub fn take_over(&self, writer: Incarnation) {
        self.pid.store(writer.pid, Ordering::Relaxed);
        self.start_ticks.store(writer.start_ticks, Ordering::Relaxed);
        self.boot.store(writer.boot, Ordering::Relaxed);
    }

    /// Who wrote the segment.
    pub fn writer(&self) -> Incarnation {
        Incarnation {
            pid: self.pid.load(Ordering::Relaxed),
            start_ticks: self.start_ticks.load(Ordering::Relaxed),
            boot: self.boot.load(Ordering::Relaxed),
        }
    }

    /// Number of ring slots, for ring segments. Not checked here.
    pub fn slots(&self) -> u64 {
        self.slots.load(Ordering::Relaxed)
    }
}

/// Lists the private fields for [`crate::layout::listing`].
pub(crate) fn list_fields(out: &mut String) {
    use std::fmt::Write;
    use std::mem::offset_of;
    crate::layout::fields!(out, SegmentHeader: magic version kind header_bytes pid start_ticks boot length_bytes
        slots reserved);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn blank() -> SegmentHeader {
        SegmentHeader {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            header_bytes: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            start_ticks: AtomicU64::new(0),
            boot: AtomicU64::new(0),
            length_bytes: AtomicU64::new(0),
            slots: AtomicU64::new(0),
            reserved: Default::default(),
        }
    }

    fn ready() -> SegmentHeader {
        let header = blank();
        header.publish(SegmentKind::Status, 4096, 0, Incarnation { pid: 7, start_ticks: 8, boot: 9 });
        header
    }

    #[test]
    fn a_published_header_is_accepted_and_names_its_writer() {
        let header = ready();
        assert_eq!(header.check(SegmentKind::Status, 4096), Ok(()));
        assert_eq!(header.writer(), Incarnation { pid: 7, start_ticks: 8, boot: 9 });
    }

    #[test]
    fn a_blank_header_is_not_ready() {
        assert_eq!(blank().check(SegmentKind::Status, 4096), Err(HeaderError::NotReady));
    }

    #[test]
    fn every_spoilt_field_is_refused() {
        let header = ready();
        header.magic.store(1, Ordering::Relaxed);
        assert_eq!(header.check(SegmentKind::Status, 4096), Err(HeaderError::NotASegment));
        let header = ready();
        header.version.store(99, Ordering::Relaxed);
        let error = header.check(SegmentKind::Status, 4096).unwrap_err();
        assert_eq!(error, HeaderError::Version { theirs: 99, ours: LAYOUT_VERSION });
        assert!(error.to_string().contains("99") && error.to_string().contains(&LAYOUT_VERSION.to_string()));
        assert!(matches!(ready().check(SegmentKind::Up, 4096), Err(HeaderError::Kind { .. })));
        assert!(matches!(ready().check(SegmentKind::Status, 8192), Err(HeaderError::Length { .. })));
    }
}
