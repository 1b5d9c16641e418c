//! The plane as a whole and its workers.
//!
//! Plain values made from one look at the status segment; all words are relaxed, each is right for itself.

use madplane_shm::status::{MAX_WORKERS, Status};
use madplane_shm::sync::Ordering::Relaxed;
use madplane_shm::tuning::Mode;
use serde::Serialize;

use super::{Device, Head};
use crate::protocol::ControlStatus;
use crate::show;

/// Workers show themselves several times a second; one that does not is called silent.
pub const SILENT_AFTER_NS: u64 = 2_000_000_000;

/// Number of workers that the segment speaks of, at most what it has room for.
pub fn worker_count(status: &Status) -> usize {
    usize::try_from(status.plane().workers.load(Relaxed)).unwrap_or(MAX_WORKERS).min(MAX_WORKERS)
}

/// One worker.
#[derive(Debug, Clone, Serialize)]
pub struct Worker {
    /// Its number, from 0.
    pub worker: usize,
    /// The CPU it has to itself, if any.
    pub cpu: Option<u32>,
    /// Thread id.
    pub thread: u32,
    /// How long ago it showed itself, nanoseconds.
    pub heartbeat_age_ns: u64,
    /// The plane runs but this worker has not shown itself for [`SILENT_AFTER_NS`]: it hangs or is dead.
    pub silent: bool,
    /// Part of its time in duty cycles that found work, 0 to 1.
    pub busy_share: f64,
    /// Duty cycles that found work.
    pub polls_full: u64,
    /// Duty cycles that found nothing.
    pub polls_empty: u64,
    /// Longest duty cycle, nanoseconds.
    pub longest_cycle_ns: u64,
    /// Duty cycles longer than a millisecond.
    pub stalls: u64,
    /// Sessions it serves.
    pub sessions: u64,
    /// Nodes it owns.
    pub nodes: u64,
    /// Generation of the route table that it forwards by, 0 for none.
    pub applied_generation: u64,
    /// Nanoseconds in duty cycles that found work.
    pub busy_ns: u64,
    /// Nanoseconds since it started.
    pub total_ns: u64,
    /// Nanoseconds asleep.
    pub slept_ns: u64,
}

impl Worker {
    /// All workers of a plane; `running` is whether it lives, `monotonic_ns` the time.
    pub fn all(status: &Status, monotonic_ns: u64, running: bool) -> Vec<Self> {
        (0..worker_count(status)).map(|index| Self::of(status, index, monotonic_ns, running)).collect()
    }

    fn of(status: &Status, index: usize, monotonic_ns: u64, running: bool) -> Self {
        let block = status.worker(index);
        let heartbeat_age_ns = monotonic_ns.saturating_sub(block.heartbeat_ns.load(Relaxed));
        Self {
            worker: index,
            cpu: Some(block.cpu.load(Relaxed)).filter(|cpu| *cpu != u32::MAX),
            thread: block.thread.load(Relaxed),
            heartbeat_age_ns,
            silent: running && heartbeat_age_ns > SILENT_AFTER_NS,
            busy_share: share(block.busy_ns.load(Relaxed), block.total_ns.load(Relaxed)),
            polls_full: block.polls_full.load(Relaxed),
            polls_empty: block.polls_empty.load(Relaxed),
            longest_cycle_ns: block.longest_cycle_ns.load(Relaxed),
            stalls: block.stalls.load(Relaxed),
            sessions: block.sessions.load(Relaxed),
            nodes: block.nodes.load(Relaxed),
            applied_generation: block.applied_generation.load(Relaxed),
            busy_ns: block.busy_ns.load(Relaxed),
            total_ns: block.total_ns.load(Relaxed),
            slept_ns: block.slept_ns.load(Relaxed),
        }
    }
}

/// What is known of madctld.
#[derive(Debug, Clone, Serialize)]
pub struct Control {
    /// Whether it runs.
    pub running: bool,
    /// Its process id.
    pub pid: Option<u32>,
    /// What it says of itself, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<ControlStatus>,
    /// Why it said nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A plane as a whole.
#[derive(Debug, Clone, Serialize)]
pub struct PlaneStatus {
    /// Who it is and whether it lives.
    #[serde(flatten)]
    pub head: Head,
    /// Unix time of its start, nanoseconds.
    #[serde(rename = "started", serialize_with = "show::as_utc")]
    pub started_unix_ns: u64,
    /// For how long it has run, nanoseconds, if it does.
    pub uptime_ns: Option<u64>,
    /// From process start to ready, nanoseconds.
    pub startup_ns: u64,
    /// Where the fabric came from.
    pub fabric: String,
    /// Nodes of the fabric.
    pub nodes: u64,
    /// Switches among them.
    pub switches: u64,
    /// Its links.
    pub links: u64,
    /// How workers wait.
    pub mode: &'static str,
    /// Node where sessions attach by default.
    #[serde(serialize_with = "show::as_guid")]
    pub default_node_guid: u64,
    /// Port there.
    pub default_port: u32,
    /// Sessions open.
    pub sessions: u64,
    /// Slots per ring of a session.
    pub session_slots: u32,
    /// Whether the memory of the next session is likely to be in huge pages.
    pub huge_pages: bool,
    /// Bytes of the plane's own memory that are in huge pages.
    pub own_huge_bytes: u64,
    /// Bytes of sessions in huge pages.
    pub session_huge_bytes: u64,
    /// Its RDMA devices.
    pub devices: Vec<Device>,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// What is known of madctld.
    pub control: Control,
}

impl PlaneStatus {
    /// Reads a segment; the two times are the monotonic clock and Unix time, nanoseconds.
    pub fn of(status: &Status, head: Head, control: Control, monotonic_ns: u64, unix_ns: u64) -> Self {
        let plane = status.plane();
        let started_unix_ns = plane.started_unix_ns.load(Relaxed);
        Self {
            started_unix_ns,
            uptime_ns: head.running.then(|| unix_ns.saturating_sub(started_unix_ns)),
            startup_ns: plane.startup_ns.load(Relaxed),
            fabric: plane.fabric.load(),
            nodes: plane.nodes.load(Relaxed),
            switches: plane.switches.load(Relaxed),
            links: plane.links.load(Relaxed),
            mode: common_mode(status),
            default_node_guid: plane.default_node_guid.load(Relaxed),
            default_port: plane.default_port.load(Relaxed),
            sessions: plane.sessions.load(Relaxed),
            session_slots: plane.session_slots.load(Relaxed),
            huge_pages: plane.huge_pages.load(Relaxed) == 1,
            own_huge_bytes: plane.own_huge_bytes.load(Relaxed),
            session_huge_bytes: plane.session_huge_bytes.load(Relaxed),
            devices: Device::all(status),
            workers: Worker::all(status, monotonic_ns, head.running),
            head,
            control,
        }
    }
}

/// The mode of all workers, or that they are in different ones.
fn common_mode(status: &Status) -> &'static str {
    let mode = |worker| Mode::from_number(status.worker(worker).mode.load(Relaxed).into());
    let first = mode(0);
    if (1..worker_count(status)).any(|worker| mode(worker) != first) {
        return "mixed";
    }
    first.map_or("unknown", Mode::name)
}

/// Part of the whole in ten thousandths, from 0 to 1.
fn share(part: u64, whole: u64) -> f64 {
    let ratio = u128::from(part) * 10_000 / u128::from(whole.max(1));
    f64::from(u16::try_from(ratio).unwrap_or(10_000).min(10_000)) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_stay_between_nothing_and_all() {
        assert!(share(0, 0) == 0.0 && share(5, 0) == 1.0 && share(u64::MAX, 1) == 1.0 && share(1, 4) == 0.25);
    }
}
