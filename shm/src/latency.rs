//! A histogram of durations in shared memory: log-linear, exact below 16 ns and within a sixteenth above.
//!
//! | word | writer | readers | ordering |
//! |---|---|---|---|
//! | buckets, longest | one thread | anyone | relaxed |
//!
//! [`LatencyHistogram::record`] is a load and a store of one or two words, so it can stand in a duty cycle. Counts only grow;
//! a reader may see a duration in a bucket and not yet in the longest, or the other way round.
//!
//! Not here: what is measured, and by which clock.

use crate::sync::{AtomicU64, Ordering};

/// Buckets below which every nanosecond has its own, and buckets of each power of two above.
const SUB_BUCKETS: usize = 16;
const SUB_BITS: u32 = SUB_BUCKETS.trailing_zeros();
/// Durations from 2 to this power on share the last bucket.
const TOP_BITS: u32 = 36;
/// Number of buckets.
pub const LATENCY_BUCKETS: usize = SUB_BUCKETS * (TOP_BITS - SUB_BITS + 1) as usize;

/// Counts of durations by their length.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct LatencyHistogram {
    longest_ns: AtomicU64,
    reserved: [AtomicU64; 15],
    buckets: [AtomicU64; LATENCY_BUCKETS],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<LatencyHistogram>() == 4352 && align_of::<LatencyHistogram>() == 128);
    assert!(bucket_of((1 << TOP_BITS) - 1) == LATENCY_BUCKETS - 1);
};

impl LatencyHistogram {
    /// Counts a duration. One thread of the writing process only.
    pub fn record(&self, ns: u64) {
        let bucket = &self.buckets[bucket_of(ns)];
        bucket.store(bucket.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if ns > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.store(ns, Ordering::Relaxed);
        }
    }

    /// The longest duration recorded, nanoseconds; 0 for none.
    pub fn longest_ns(&self) -> u64 {
        self.longest_ns.load(Ordering::Relaxed)
    }

    /// Number of durations recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// The buckets that hold something, shortest first: longest duration that belongs there, in nanoseconds, and count.
    /// The last bucket of all ends where the longest recorded duration does.
    pub fn read(&self) -> Vec<(u64, u64)> {
        let filled = |(at, bucket): (usize, &AtomicU64)| {
            let count = bucket.load(Ordering::Relaxed);
            (count != 0).then(|| (self.upper_bound(at), count))
        };
        self.buckets.iter().enumerate().filter_map(filled).collect()
    }

    /// The duration that a share `q` (0 to 1) of all recorded ones does not exceed, nanoseconds, at most a sixteenth too
    /// long and never longer than the longest; 0 if there are none.
    pub fn percentile(&self, q: f64) -> u64 {
        let counts = self.read();
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank off by one in 2^53 is as good, and the product is not negative"
        )]
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        for (upper, count) in counts {
            below += count;
            if below >= rank {
                return upper.min(self.longest_ns());
            }
        }
        0
    }

    fn upper_bound(&self, at: usize) -> u64 {
        if at == LATENCY_BUCKETS - 1 { self.longest_ns() } else { upper_bound(at) }
    }
}

const fn bucket_of(ns: u64) -> usize {
    let ns = if ns >> TOP_BITS == 0 { ns } else { (1 << TOP_BITS) - 1 };
    #[expect(clippy::cast_possible_truncation, reason = "below 2^36, shifted to below 16 where it counts")]
    if ns < SUB_BUCKETS as u64 {
        ns as usize
    } else {
        let octave = ns.ilog2() - SUB_BITS;
        SUB_BUCKETS * (octave as usize + 1) + (ns >> octave) as usize % SUB_BUCKETS
    }
}

/// The longest duration of a bucket.
const fn upper_bound(at: usize) -> u64 {
    if at < SUB_BUCKETS {
        return at as u64;
    }
    let octave = at / SUB_BUCKETS - 1;
    let first = (SUB_BUCKETS + at % SUB_BUCKETS) as u64;
    ((first + 1) << octave) - 1
}

/// Lists the private fields for [`crate::layout::listing`].
pub(crate) fn list_fields(out: &mut String) {
    use std::fmt::Write;
    use std::mem::offset_of;
    crate::layout::fields!(out, LatencyHistogram: longest_ns buckets);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn empty() -> LatencyHistogram {
        LatencyHistogram {
            longest_ns: AtomicU64::new(0),
            reserved: Default::default(),
            buckets: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap() {
        let mut next = 0;
        for at in 0..LATENCY_BUCKETS {
            let last = upper_bound(at);
            assert_eq!((bucket_of(next), bucket_of(last)), (at, at));
            assert!(last - next <= next / 16, "bucket {at} is {next} to {last}");
            next = last + 1;
        }
        assert_eq!(next, 1 << TOP_BITS);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_durations_to_a_sixteenth() {
        let histogram = empty();
        let seed = 0x2545_f491_4f6c_dd1d;
        println!("seed {seed:#x}");
        let mut state: u64 = seed;
        let mut all: Vec<u64> = (0..10_000)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state >> (28 + state % 36)
            })
            .collect();
        all.iter().for_each(|ns| histogram.record(*ns));
        all.sort_unstable();
        assert_eq!((histogram.count(), histogram.longest_ns()), (10_000, all[9_999]));
        for (q, rank) in [(0.0, 1), (0.5, 5_000), (0.9, 9_000), (0.99, 9_900), (0.999, 9_990), (1.0, 10_000)]
        {
            let (found, exact) = (histogram.percentile(q), all[rank - 1]);
            assert!(found >= exact && found <= exact + exact / 16, "q {q}: {found} for {exact}");
        }
        assert_eq!(histogram.read().iter().map(|(_, count)| count).sum::<u64>(), 10_000);
    }

    #[test]
    fn durations_without_bound_go_to_the_last_bucket_and_none_has_no_percentile() {
        let histogram = empty();
        assert_eq!((histogram.percentile(0.5), histogram.count(), histogram.read().len()), (0, 0, 0));
        histogram.record(u64::MAX);
        histogram.record(1 << TOP_BITS);
        assert_eq!(histogram.read(), [(u64::MAX, 2)]);
        assert_eq!(histogram.percentile(0.1), u64::MAX);
        histogram.record(0);
        assert_eq!(histogram.read(), [(0, 1), (u64::MAX, 2)]);
        assert_eq!(histogram.percentile(0.01), 0);
    }
}
