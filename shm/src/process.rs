//! Processes, clocks, locks and the service manager as all sides of the segments see them.
//!
//! Heartbeats and times of application are compared across processes, and so is the identity of a writer: what they are
//! made of has one home. Plain functions, any thread; the clocks are vDSO reads.

use rustix::time::{ClockId, clock_gettime};

use crate::header::Incarnation;

pub mod lock;
pub mod notify;

/// Identity of this process.
pub fn incarnation() -> Incarnation {
    let pid = std::process::id();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot_id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    Incarnation {
        pid,
        start_ticks: start_ticks(pid).unwrap_or(0),
        boot: u64::from_str_radix(&digits, 16).unwrap_or(0),
    }
}

/// Start time of a process in clock ticks since boot; `None` if there is no such process.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name in brackets may hold anything, also blanks and brackets
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The monotonic clock in nanoseconds: the clock of heartbeats and deadlines.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// Unix time in nanoseconds.
pub fn unix_ns() -> u64 {
    clock_ns(ClockId::Realtime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_names_this_process_its_start_and_the_boot() {
        let me = incarnation();
        assert_eq!(me.pid, std::process::id());
        assert!(me.start_ticks > 0 && me.boot != 0);
    }

    #[test]
    fn the_start_of_a_process_is_known_and_that_of_no_process_is_not() {
        assert!(start_ticks(std::process::id()).unwrap() > 0);
        assert_eq!(start_ticks(u32::MAX), None);
    }
}
