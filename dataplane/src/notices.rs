//! What a worker has to say that is not a number: a bounded ring to housekeeping, and what becomes of it there.
//!
//! A [`NoticeBox`] belongs to a worker: [`NoticeBox::put`] is a copy of a few bytes; what finds no room is lost, since the
//! packet path neither waits nor formats. A [`NoticeDesk`] belongs to housekeeping, which comes by at least twice a second
//! and passes everything on to a [`Digest`]: each kind of notice once, with how often it came, and only a few lines a
//! second. Not here: counting drops, which are exact and in the status segment.

use ringbuf::traits::{Consumer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use crate::agents::RegisterError;

/// Something an operator may want to know the values of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A P_Key was refused.
    PKeyMismatch {
        /// Key of the packet.
        got: u16,
        /// What it was held against.
        had: u16,
    },
    /// A device that was opened again does not have an agent registered that it had before.
    AgentRefused(RegisterError),
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PKeyMismatch { got, had } => write!(f, "P_Key mismatch ({got:#06X} vs {had:#06X})"),
            Self::AgentRefused(refused) => write!(f, "an agent is lost: {refused}"),
        }
    }
}

/// Notices that may wait.
const DEPTH: usize = 64;

/// The worker's end.
pub struct NoticeBox {
    ring: HeapProd<Notice>,
}

/// Housekeeping's end.
pub struct NoticeDesk {
    ring: HeapCons<Notice>,
}

impl std::fmt::Debug for NoticeBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoticeBox").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for NoticeDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoticeDesk").finish_non_exhaustive()
    }
}

/// Makes the ring between one worker and housekeeping.
pub fn notice_ring() -> (NoticeBox, NoticeDesk) {
    let (into, out) = HeapRb::new(DEPTH).split();
    (NoticeBox { ring: into }, NoticeDesk { ring: out })
}

impl NoticeBox {
    /// Leaves a notice, or loses it if housekeeping has not come by for a while.
    pub fn put(&mut self, notice: Notice) {
        let _ = self.ring.try_push(notice);
    }
}

impl NoticeDesk {
    /// Takes the next notice.
    pub fn take(&mut self) -> Option<Notice> {
        self.ring.try_pop()
    }
}

/// Lines a second.
const LINES_PER_SECOND: u32 = 4;
/// A second.
const WINDOW_NS: u64 = 1_000_000_000;

/// Decides which notices become lines.
#[derive(Debug, Default)]
pub struct Digest {
    window_ns: u64,
    lines: u32,
    /// What this window has shown already.
    shown: Vec<Notice>,
    held_back: u64,
}

impl Digest {
    /// Whether `notice` is to be written to the log at `now_ns`: the first of its kind in this second, among the first few.
    pub fn wants(&mut self, notice: Notice, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.window_ns) >= WINDOW_NS {
            self.window_ns = now_ns;
            self.lines = 0;
            self.shown.clear();
        }
        if self.lines >= LINES_PER_SECOND || self.shown.contains(&notice) {
            self.held_back += 1;
            return false;
        }
        self.lines += 1;
        self.shown.push(notice);
        true
    }

    /// How many were not written since this was last asked.
    pub fn take_held_back(&mut self) -> u64 {
        std::mem::take(&mut self.held_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mismatch(got: u16) -> Notice {
        Notice::PKeyMismatch { got, had: 0xFFFF }
    }

    #[test]
    fn the_line_is_the_one_that_operators_look_for() {
        let notice = Notice::PKeyMismatch { got: 0x8001, had: 0x7fff };
        assert_eq!(notice.to_string(), "P_Key mismatch (0x8001 vs 0x7FFF)");
        assert_eq!(mismatch(2).to_string(), "P_Key mismatch (0x0002 vs 0xFFFF)");
    }

    #[test]
    fn a_full_ring_loses_notices_and_goes_on() {
        let (mut into, mut out) = notice_ring();
        for key in 0..200 {
            into.put(mismatch(key));
        }
        let taken: Vec<_> = std::iter::from_fn(|| out.take()).collect();
        assert_eq!((taken.len(), taken[0], taken[DEPTH - 1]), (DEPTH, mismatch(0), mismatch(63)));
        into.put(mismatch(7));
        assert_eq!(out.take(), Some(mismatch(7)));
    }

    #[test]
    fn a_flood_becomes_a_few_distinct_lines_a_second() {
        let mut digest = Digest::default();
        let lines = (0..1000).filter(|n| digest.wants(mismatch(n % 10), WINDOW_NS)).count();
        assert_eq!(lines, 4);
        assert_eq!((digest.take_held_back(), digest.take_held_back()), (996, 0));
        assert!(!digest.wants(mismatch(1), 2 * WINDOW_NS - 1));
        assert!(digest.wants(mismatch(1), 2 * WINDOW_NS));
        assert!(!digest.wants(mismatch(1), 2 * WINDOW_NS), "the same again");
    }
}
