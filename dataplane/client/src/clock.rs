//! The monotonic clock, in nanoseconds, at two prices.
//!
//! Free functions, any thread. Invariant: [`coarse_ns`] is never ahead of [`now_ns`] and lags by at most one
//! timer tick, [`coarse_lag_ns`]. Both are vDSO reads, no system call.

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// How far [`coarse_ns`] may lag: a deadline computed from it is moved by so much, so that it never comes early.
pub(crate) fn coarse_lag_ns() -> u64 {
    nanoseconds(clock_getres(ClockId::MonotonicCoarse))
}

/// Exact time.
pub(crate) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Time of the last timer tick; a fifth of the price of [`now_ns`].
pub(crate) fn coarse_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::MonotonicCoarse))
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_is_never_ahead() {
        for _ in 0..100_000 {
            let coarse = coarse_ns();
            assert!(coarse <= now_ns());
        }
    }
}
