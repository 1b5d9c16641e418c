//! The programs attached to a plane.
//!
//! Plain values made from one look at the status segment.

use madplane_shm::status::{MAX_SESSIONS, Status};
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use madplane_shm::table::on_broken;
use madplane_shm::table::tenant::service_class;
use serde::Serialize;

use super::Head;
use crate::route::OnBroken;
use crate::show;
use crate::tenant::Priority;

/// One attachment.
#[derive(Debug, Clone, Serialize)]
pub struct Session {
    /// Its number, from 1.
    pub session: u32,
    /// Process id of the program.
    pub pid: u32,
    /// User id of the program.
    pub uid: u32,
    /// Name of the program.
    pub program: String,
    /// Description of the node it is attached to.
    pub node: String,
    /// GUID of that node.
    #[serde(serialize_with = "show::as_guid")]
    pub node_guid: u64,
    /// Port it is attached to.
    pub port: u32,
    /// Unix time of the attach, nanoseconds.
    #[serde(rename = "since", serialize_with = "show::as_utc")]
    pub since_unix_ns: u64,
    /// Worker that serves it.
    pub worker: u32,
    /// Agents registered.
    pub agents: u32,
    /// MADs taken from it.
    pub received: u64,
    /// MADs given to it.
    pub sent: u64,
    /// MADs it did not make room for.
    pub dropped: u64,
    /// Number of its tenant, 0 for none.
    pub tenant: u32,
    /// Name of its tenant, empty for none.
    pub tenant_name: String,
    /// When it is served.
    pub class: Priority,
    /// Ports of the path that it is bound to, empty for none.
    pub path: Vec<u8>,
    /// What becomes of a MAD when that path is broken; nothing without one.
    pub path_on_broken: Option<OnBroken>,
}

/// All attachments of a plane.
#[derive(Debug, Clone, Serialize)]
pub struct Sessions {
    /// The plane.
    pub plane: Head,
    /// In the order of their places.
    pub sessions: Vec<Session>,
}

impl Sessions {
    /// Reads a segment.
    pub fn of(status: &Status, plane: Head) -> Self {
        Self { plane, sessions: (0..MAX_SESSIONS).filter_map(|index| Session::of(status, index)).collect() }
    }
}

impl Session {
    fn of(status: &Status, index: usize) -> Option<Self> {
        let record = status.session(index);
        // pairs with the release in the plane's housekeeping: the other fields are stored by then
        let session = record.id.load(Acquire);
        let path = record.bound_path();
        (session != 0).then(|| Self {
            session,
            pid: record.pid.load(Relaxed),
            uid: record.uid.load(Relaxed),
            program: record.program.load(),
            node: record.node.load(),
            node_guid: record.node_guid.load(Relaxed),
            port: record.port.load(Relaxed),
            since_unix_ns: record.since_unix_ns.load(Relaxed),
            worker: record.worker.load(Relaxed),
            agents: record.agents.load(Relaxed),
            received: record.received.load(Relaxed),
            sent: record.sent.load(Relaxed),
            dropped: record.dropped.load(Relaxed),
            tenant: record.tenant.load(Relaxed),
            tenant_name: record.tenant_name.load(),
            class: if record.class.load(Relaxed) == u32::from(service_class::RESERVED) {
                Priority::Reserved
            } else {
                Priority::Bulk
            },
            path_on_broken: (!path.is_empty()).then(|| {
                let drop = record.path_on_broken.load(Relaxed) == u32::from(on_broken::DROP);
                if drop { OnBroken::Drop } else { OnBroken::Fallback }
            }),
            path,
        })
    }
}
