//! The distinct error log: each error's text once, then only how often and when.
//!
//! A segment keeps a row of [`ErrorRecord`]s. One thread of the segment's writer records; anyone reads, and looks at the
//! count first (acquire), because the text is complete by then.
//!
//! Not here: limiting how often something is recorded; a log that is full counts on in its last record.

use crate::sync::{AtomicU64, Ordering};
use crate::text::SharedText;

/// Text of the record in which a full log counts on.
const LOG_FULL: &str = "further errors (log full)";

/// One distinct error: the text once, then only a count and a time.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct ErrorRecord {
    /// How often; 0 for a free record. Stored after the text.
    pub count: AtomicU64,
    /// Unix time of the first, nanoseconds.
    pub first_unix_ns: AtomicU64,
    /// Unix time of the last, nanoseconds.
    pub last_unix_ns: AtomicU64,
    reserved: AtomicU64,
    /// One line.
    pub text: SharedText<28>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ErrorRecord>() == 256);

/// Counts an error, by its text. One thread of the writer only.
pub(crate) fn record<'a>(log: impl ExactSizeIterator<Item = &'a ErrorRecord>, text: &str, now_unix_ns: u64) {
    let last = log.len() - 1;
    for (index, record) in log.enumerate() {
        let count = record.count.load(Ordering::Relaxed);
        if count == 0 {
            record.text.store(if index == last { LOG_FULL } else { text });
            record.first_unix_ns.store(now_unix_ns, Ordering::Relaxed);
        } else if index < last && record.text.load().as_bytes() != record.text.fitting(text) {
            continue;
        }
        record.last_unix_ns.store(now_unix_ns, Ordering::Relaxed);
        // pairs with the acquire of readers: the text is complete
        record.count.store(count + 1, Ordering::Release);
        return;
    }
}
