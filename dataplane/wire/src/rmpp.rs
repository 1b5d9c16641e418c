//! RMPP header and the arithmetic of segments (spec section 8).
//!
//! Plain data and pure functions, no state. Windows, timers and retries belong to whoever runs the protocol; the kernel or
//! the client does. Offsets count from the start of the MAD.

use core::ops::Range;

use crate::mad::{self, MadBuf};

/// Bytes of a MAD that PayloadLength counts: everything after the RMPP header.
pub const SEGMENT_PAYLOAD: usize = 220;
/// Length of common header and RMPP header.
pub const RMPP_END: usize = 36;
/// RMPPVersion.
pub const VERSION: u8 = 1;
/// RRespTime of a MAD that sets none.
pub const NO_RESP_TIME: u8 = 0x1f;

/// RMPPType values.
pub mod kind {
    /// Not an RMPP MAD.
    pub const NONE: u8 = 0;
    /// A segment.
    pub const DATA: u8 = 1;
    /// Acknowledges segments and moves the window.
    pub const ACK: u8 = 2;
    /// The sender has to stop: resources.
    pub const STOP: u8 = 3;
    /// The transfer is over: protocol error.
    pub const ABORT: u8 = 4;
}

/// RMPPFlags bits.
pub mod flag {
    /// The MAD is part of an RMPP transfer.
    pub const ACTIVE: u8 = 1;
    /// First segment.
    pub const FIRST: u8 = 2;
    /// Last segment.
    pub const LAST: u8 = 4;
}

/// RMPPStatus values.
pub mod status {
    /// Fine.
    pub const OK: u8 = 0;
    /// STOP: resources exhausted.
    pub const RESOURCES: u8 = 1;
    /// Total time too long.
    pub const TOTAL_TIME: u8 = 118;
    /// Inconsistent last segment and payload length.
    pub const BAD_LENGTH: u8 = 119;
    /// Inconsistent first flag and segment number.
    pub const BAD_SEGMENT: u8 = 120;
    /// Bad RMPPType.
    pub const BAD_TYPE: u8 = 121;
    /// NewWindowLast below the segment.
    pub const WINDOW_TOO_SMALL: u8 = 122;
    /// Segment beyond the window.
    pub const SEGMENT_TOO_BIG: u8 = 123;
    /// Illegal status.
    pub const BAD_STATUS: u8 = 124;
    /// Unsupported version.
    pub const BAD_VERSION: u8 = 125;
    /// Too many retries.
    pub const TOO_MANY_RETRIES: u8 = 126;
    /// Unspecified.
    pub const UNSPECIFIED: u8 = 127;
}

layout! {
    /// RMPP header taken apart.
    "RMPP" 24..36 {
        /// RMPPVersion, 1, or 0 without RMPP.
        VERSION version: u8 @ 24;
        /// RMPPType, see [its values](crate::rmpp::kind).
        KIND kind: u8 @ 25;
        /// RRespTime.
        RESP_TIME resp_time: u8 @ 26 [7:3];
        /// RMPPFlags, see [its values](crate::rmpp::flag).
        FLAGS flags: u8 @ 26 [2:0];
        /// RMPPStatus, see [its values](crate::rmpp::status).
        STATUS status: u8 @ 27;
        /// SegmentNumber; of an ACK the last segment received in order.
        SEGMENT segment: u32 @ 28;
        /// PayloadLength of a segment, NewWindowLast of an ACK.
        PAYLOAD_LEN payload_len: u32 @ 32;
    }
}

/// Read-only view of an RMPP header; ask only MADs of an [RMPP class](mad::is_rmpp_class).
#[derive(Debug, Clone, Copy)]
pub struct Rmpp<'a>(&'a MadBuf);

impl<'a> Rmpp<'a> {
    /// Views any 256 bytes.
    #[inline]
    pub const fn new(buf: &'a MadBuf) -> Self {
        Self(buf)
    }

    /// Whether Flags.Active is set; if not, the other fields mean nothing.
    #[inline]
    pub const fn is_active(self) -> bool {
        self.flags() & flag::ACTIVE != 0
    }

    /// RMPPType.
    #[inline]
    pub const fn kind(self) -> u8 {
        self.0[25]
    }

    /// RMPPFlags.
    #[inline]
    pub const fn flags(self) -> u8 {
        self.0[26] & 7
    }

    /// RMPPStatus.
    #[inline]
    pub const fn status(self) -> u8 {
        self.0[27]
    }

    /// SegmentNumber, or what an ACK acknowledges.
    #[inline]
    pub const fn segment(self) -> u32 {
        field::SEGMENT.get_u32(self.0)
    }

    /// PayloadLength, or NewWindowLast of an ACK.
    #[inline]
    pub const fn payload_len(self) -> u32 {
        field::PAYLOAD_LEN.get_u32(self.0)
    }
}

/// Bytes of a segment before the data: common, RMPP and class header. `None` for a class without RMPP.
pub const fn class_header_len(mgmt_class: u8) -> Option<usize> {
    match mgmt_class {
        mad::class::SA => Some(56),
        mad::class::DEV_MGMT | mad::class::DEV_ADM | mad::class::BIS => Some(64),
        _ if mad::is_vendor2(mgmt_class) => Some(40),
        _ => None,
    }
}

/// How a message is cut into segments: every one repeats the header, all but the last are full.
///
/// ```
/// use madplane_wire::{mad, rmpp::Segments};
/// // Three node records of 112 bytes need two segments of 200 bytes.
/// let cut = Segments::new(mad::CLASS_SA, 336).expect("SA has RMPP");
/// assert_eq!((cut.count(), cut.pad()), (2, 64));
/// assert_eq!((cut.payload_len(1), cut.payload_len(2)), (376, 156));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    header: usize,
    data_len: usize,
}

impl Segments {
    /// Plans a message of `data_len` bytes after the class header. `None` if the class has no RMPP or the message would
    /// have a PayloadLength beyond 32 bits.
    pub fn new(mgmt_class: u8, data_len: usize) -> Option<Self> {
        let plan = Self { header: class_header_len(mgmt_class)?, data_len };
        let bytes = u64::try_from(data_len)
            .ok()?
            .div_ceil(plan.capacity() as u64)
            .checked_mul(SEGMENT_PAYLOAD as u64)?;
        u32::try_from(bytes).is_ok().then_some(plan)
    }

    /// Plans back from what arrived: `count` segments, the last of which carried PayloadLength `last_payload_len`.
    ///
    /// `None` if that length cannot be: below the class header or above a segment, or no segment at all.
    pub fn from_last(mgmt_class: u8, count: u32, last_payload_len: u32) -> Option<Self> {
        let header = class_header_len(mgmt_class)?;
        let last = usize::try_from(last_payload_len).ok()?;
        if last > SEGMENT_PAYLOAD {
            return None;
        }
        let last_data = last.checked_sub(header - RMPP_END)?;
        let full = usize::try_from(count.checked_sub(1)?).ok()?;
        let data_len = full.checked_mul(mad::MAD_LEN - header)?.checked_add(last_data)?;
        Self::new(mgmt_class, data_len)
    }

    /// Data bytes of a full segment: 200 for SA, 216 for vendor range 2.
    pub const fn capacity(self) -> usize {
        mad::MAD_LEN - self.header
    }

    /// Data bytes of the message.
    pub const fn data_len(self) -> usize {
        self.data_len
    }

    /// Length of the message as umad users see it: one header and all data.
    pub const fn message_len(self) -> usize {
        self.header + self.data_len
    }

    /// Number of segments, at least 1.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "new refused messages whose payload length needs 33 bits"
    )]
    pub const fn count(self) -> u32 {
        if self.data_len == 0 { 1 } else { self.data_len.div_ceil(self.capacity()) as u32 }
    }

    /// Unused bytes at the end of the last segment.
    pub const fn pad(self) -> usize {
        self.count() as usize * self.capacity() - self.data_len
    }

    /// PayloadLength that segment `number`, from 1, carries: the whole message in the first, the rest in the last, else 0.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "new refused messages whose payload length needs 33 bits"
    )]
    pub const fn payload_len(self, number: u32) -> u32 {
        let count = self.count();
        if number == 1 {
            count * SEGMENT_PAYLOAD as u32 - self.pad() as u32
        } else if number == count {
            (SEGMENT_PAYLOAD - self.pad()) as u32
        } else {
            0
        }
    }

    /// RMPPFlags of segment `number`, from 1.
    pub const fn flags(self, number: u32) -> u8 {
        let first = if number == 1 { flag::FIRST } else { 0 };
        let last = if number == self.count() { flag::LAST } else { 0 };
        flag::ACTIVE | first | last
    }

    /// Which bytes of the message's data go into segment `number`, from 1; they are put at the class header's end.
    /// Empty beyond the last segment.
    pub fn data_range(self, number: u32) -> Range<usize> {
        let index = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let start = index.saturating_mul(self.capacity()).min(self.data_len);
        start..start.saturating_add(self.capacity()).min(self.data_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::{CLASS_PERF, CLASS_SA};

    #[test]
    fn payload_lengths_follow_the_spec() {
        for (data_len, count, pad, first, last) in [
            (0, 1, 200, 20, 20),
            (1, 1, 199, 21, 21),
            (200, 1, 0, 220, 220),
            (201, 2, 199, 241, 21),
            (400, 2, 0, 440, 220),
            (112 * 9, 6, 192, 1128, 28),
        ] {
            let cut = Segments::new(CLASS_SA, data_len).unwrap();
            assert_eq!((cut.count(), cut.pad()), (count, pad), "{data_len}");
            assert_eq!((cut.payload_len(1), cut.payload_len(count)), (first, last), "{data_len}");
            assert_eq!(cut.message_len(), 56 + 200 * count as usize - pad);
            assert!((2..count).all(|number| cut.payload_len(number) == 0));
        }
    }

    #[test]
    fn pieces_cover_the_data_once_and_lead_back_to_the_plan() {
        for class in [CLASS_SA, 0x10, 0x32] {
            for data_len in 0..1500 {
                let cut = Segments::new(class, data_len).unwrap();
                let mut next = 0;
                for number in 1..=cut.count() {
                    let range = cut.data_range(number);
                    assert_eq!(range.start, next);
                    next = range.end;
                }
                assert_eq!(next, data_len);
                assert!(cut.data_range(cut.count() + 1).is_empty() && cut.data_range(u32::MAX).is_empty());
                let back = Segments::from_last(class, cut.count(), cut.payload_len(cut.count()));
                // A single segment's first payload length is also its last one.
                assert_eq!(back, Some(cut), "class {class:#x} data {data_len}");
            }
        }
    }

    #[test]
    fn flags_mark_first_and_last() {
        let cut = Segments::new(CLASS_SA, 600).unwrap();
        assert_eq!([1, 2, 3].map(|number| cut.flags(number)), [3, 1, 5]);
        assert_eq!(Segments::new(CLASS_SA, 1).unwrap().flags(1), 7);
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(Segments::new(CLASS_PERF, 10), None);
        assert_eq!(Segments::new(CLASS_SA, usize::MAX), None);
        assert_eq!(Segments::from_last(CLASS_SA, 0, 100), None);
        assert_eq!(Segments::from_last(CLASS_SA, 1, 19), None);
        assert_eq!(Segments::from_last(CLASS_SA, 1, 221), None);
        assert_eq!(Segments::from_last(CLASS_SA, u32::MAX, 220), None);
    }
}
