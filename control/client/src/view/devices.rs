//! The RDMA devices of a plane.
//!
//! Plain values made from one look at the status segment. Not here: which devices this machine has, whether a plane uses them or not;
//! madplaned knows (`madctl devices`).

use madplane_shm::status::{MAX_DEVICES, Status, device_backend, device_state};
use madplane_shm::sync::AtomicU64;
use madplane_shm::sync::Ordering::Relaxed;
use serde::Serialize;

use super::Head;
use crate::show;

/// How a device stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// It cannot be used; it is tried again.
    Unavailable,
    /// Open; its port is not ACTIVE.
    Down,
    /// MADs pass.
    Up,
    /// In a state that this program does not know.
    Unknown,
}

impl DeviceState {
    /// The name under which it is shown.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Down => "down",
            Self::Up => "up",
            Self::Unknown => "unknown",
        }
    }
}

/// One device.
#[derive(Debug, Clone, Serialize)]
pub struct Device {
    /// Its number.
    pub device: usize,
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u32,
    /// How it was asked for.
    pub spec: String,
    /// How it stands.
    pub state: DeviceState,
    /// What it is used by: `verbs`, `umad`, or nothing while it is not open.
    pub backend: Option<&'static str>,
    /// Why it cannot be used, or why not by what was tried before; a line, mostly empty.
    pub why: String,
    /// Node GUID.
    #[serde(serialize_with = "show::as_guid")]
    pub node_guid: u64,
    /// LID of the port, 0 if it has none.
    pub lid: u32,
    /// Worker that serves it.
    pub worker: u32,
    /// MADs that it took since it was opened.
    pub sent: u64,
    /// MADs that it brought.
    pub received: u64,
    /// Requests that the kernel gave up waiting for.
    pub timed_out: u64,
    /// MADs that the device or the kernel refused.
    pub refused: u64,
    /// LID-routed SMPs that left along a pinned route.
    pub pinned: u64,
    /// Requests that wait for their answers now.
    pub requests: u64,
    /// Times that it came up.
    pub ups: u64,
    /// Times that it went down.
    pub downs: u64,
    /// Unix time of the last change of its state, nanoseconds.
    #[serde(rename = "since", serialize_with = "show::as_utc")]
    pub since_unix_ns: u64,
}

/// All devices of a plane.
#[derive(Debug, Clone, Serialize)]
pub struct Devices {
    /// The plane.
    pub plane: Head,
    /// By number.
    pub devices: Vec<Device>,
}

impl Devices {
    /// Reads a segment.
    pub fn of(status: &Status, plane: Head) -> Self {
        Self { plane, devices: Device::all(status) }
    }
}

impl Device {
    /// All that a segment shows.
    pub fn all(status: &Status) -> Vec<Self> {
        (0..MAX_DEVICES).filter_map(|index| Self::of(status, index)).collect()
    }

    fn of(status: &Status, index: usize) -> Option<Self> {
        let record = status.device(index);
        let state = match record.state.load(Relaxed) {
            device_state::NONE => return None,
            device_state::UNAVAILABLE => DeviceState::Unavailable,
            device_state::DOWN => DeviceState::Down,
            device_state::UP => DeviceState::Up,
            _ => DeviceState::Unknown,
        };
        let backend = match record.backend.load(Relaxed) {
            device_backend::VERBS => Some("verbs"),
            device_backend::UMAD => Some("umad"),
            _ => None,
        };
        let load = |word: &AtomicU64| word.load(Relaxed);
        Some(Self {
            device: index,
            name: record.name.load(),
            port: record.port.load(Relaxed),
            spec: record.spec.load(),
            state,
            backend,
            why: record.why.load(),
            node_guid: load(&record.node_guid),
            lid: record.lid.load(Relaxed),
            worker: record.worker.load(Relaxed),
            sent: load(&record.sent),
            received: load(&record.received),
            timed_out: load(&record.timed_out),
            refused: load(&record.refused),
            pinned: load(&record.pinned),
            requests: load(&record.requests),
            ups: load(&record.ups),
            downs: load(&record.downs),
            since_unix_ns: load(&record.since_unix_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_shm::header::Incarnation;
    use madplane_shm::sync::Ordering::Relaxed;

    #[test]
    fn devices_are_those_that_the_plane_was_told_to_have() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        assert!(Device::all(&status).is_empty());
        for (index, state, backend) in [
            (0, device_state::UP, device_backend::UMAD),
            (2, device_state::UNAVAILABLE, device_backend::NONE),
            (3, 99, 99),
        ] {
            let record = status.device(index);
            record.state.store(state, Relaxed);
            record.backend.store(backend, Relaxed);
            record.sent.store(7 + index as u64, Relaxed);
            record.why.store("unavailable, because");
        }
        let all = Device::all(&status);
        let seen: Vec<_> = all.iter().map(|d| (d.device, d.state.label(), d.backend, d.sent)).collect();
        assert_eq!(seen, [(0, "up", Some("umad"), 7), (2, "unavailable", None, 9), (3, "unknown", None, 10)]);
    }
}
