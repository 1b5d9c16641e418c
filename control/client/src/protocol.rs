//! The admin protocol as both ends see it: requests, replies and their results.
//!
//! JSON lines over madctld's Unix stream socket. A request is one line `{"v":1,"id":...,"cmd":"links.down","args":{...}}`,
//! answered by exactly one line `{"v":1,"id":...,"ok":true,"result":{...}}` or `{"v":1,"id":...,"ok":false,"error":"one line"}`.
//! Replies carry the request's `id` (a number, a text, or null) and may come in another order than the requests. Fields are
//! only ever added, so a reader ignores those it does not know.
//!
//! Plain values, any thread. Which commands there are and who may give them is madctld's business; sockets are those of
//! [`crate::admin`] and of the daemon.

use madplane_shm::latency::LatencyHistogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tenant::RawTenant;

/// Version of the protocol.
pub const PROTOCOL_VERSION: u64 = 1;
/// Longest line, either way, without its end.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// One request as it travels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`PROTOCOL_VERSION`].
    pub v: u64,
    /// Chosen by the client, sent back unchanged.
    #[serde(default)]
    pub id: Value,
    /// Which command.
    pub cmd: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub args: Value,
}

/// One reply as it travels. A reader ignores fields it does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// [`PROTOCOL_VERSION`].
    pub v: u64,
    /// The request's.
    pub id: Value,
    /// Whether it was done.
    pub ok: bool,
    /// What came of it, if it was done.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub result: Value,
    /// One line why not, if it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Reply {
    /// A success.
    pub fn done(id: Value, result: &impl Serialize) -> Self {
        let result = serde_json::to_value(result).unwrap_or(Value::Null);
        Self { v: PROTOCOL_VERSION, id, ok: true, result, error: None }
    }

    /// A failure, in one line.
    pub fn failed(id: Value, error: impl Into<String>) -> Self {
        let error = error.into().replace(['\n', '\r'], " ");
        Self { v: PROTOCOL_VERSION, id, ok: false, result: Value::Null, error: Some(error) }
    }

    /// The reply as a line with its end.
    #[expect(clippy::missing_panics_doc, reason = "a reply can always be written as JSON")]
    pub fn to_line(&self) -> Vec<u8> {
        let mut line =
            serde_json::to_vec(self).expect("texts, numbers and maps with text keys can be written as JSON");
        line.push(b'\n');
        line
    }
}

/// Result of `control.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlStatus {
    /// Version of madctld.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Unix time of its start, nanoseconds.
    pub started_unix_ns: u64,
    /// Whether it has the plane's control channel.
    pub connected: bool,
    /// Why not, or nothing.
    pub link: String,
    /// Admin clients connected now.
    pub clients: usize,
    /// Commands given to the plane so far.
    pub commands: u64,
    /// Events taken from the plane so far.
    pub events: u64,
}

/// Result of a command that the plane carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Node it was about, `0x` and 16 digits.
    pub node_guid: String,
    /// Port it was about.
    pub port: u32,
    /// What the plane says.
    pub text: String,
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoutesDone {
    /// Version of the software table.
    pub version: u64,
    /// Generation of the table in shared memory.
    pub generation: u64,
    /// Routes in the table.
    pub routes: usize,
    /// Places in the table.
    pub capacity: u32,
    /// Routes that are new.
    pub added: u32,
    /// Routes that took the place of another.
    pub replaced: u32,
    /// Routes that are gone.
    pub removed: u32,
    /// Whether every worker has it.
    pub synced: bool,
    /// How many workers that are.
    pub workers: usize,
    /// From publication until they had it, if it was published for this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hw_sync_latency_ns: Option<u64>,
}

/// Percentiles of a latency, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Half of them were at most this.
    pub p50_ns: u64,
    /// 9 of 10 were at most this.
    #[serde(default)]
    pub p90_ns: u64,
    /// 99 of 100 were at most this.
    pub p99_ns: u64,
    /// 999 of 1000 were at most this.
    #[serde(default)]
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Latency {
    /// Percentiles of a histogram, up to a sixteenth too long.
    pub fn of(histogram: &LatencyHistogram) -> Self {
        Self {
            count: histogram.count(),
            p50_ns: histogram.percentile(0.5),
            p90_ns: histogram.percentile(0.9),
            p99_ns: histogram.percentile(0.99),
            p999_ns: histogram.percentile(0.999),
            max_ns: histogram.longest_ns(),
        }
    }
}

/// Result of `routes.stats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutesStats {
    /// Version of the software table.
    pub version: u64,
    /// Generation of the table in shared memory.
    pub generation: u64,
    /// Routes in the software table.
    pub routes: usize,
    /// Places in it.
    pub capacity: u32,
    /// Changes that are not published yet.
    pub unpublished: usize,
    /// How long a change waits for others.
    pub sync_interval_ms: u64,
    /// How many changes do not wait.
    pub sync_threshold: usize,
    /// Publications of this madctld.
    pub publications: u64,
    /// Those that a worker did not follow in time.
    pub failures: u64,
    /// From publication until every worker had it.
    pub hw_sync_latency: Latency,
}

/// Result of a change of tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TenantsDone {
    /// Version of the software table of tenants.
    pub version: u64,
    /// Generation of the table in shared memory.
    pub generation: u64,
    /// Tenants in the table.
    pub tenants: usize,
    /// Places in the table.
    pub capacity: u32,
    /// Tenants that are new.
    pub added: u32,
    /// Tenants that took the place of another.
    pub replaced: u32,
    /// Tenants that are gone.
    pub removed: u32,
    /// Routes that went with them.
    pub routes_removed: u32,
    /// Sessions that were theirs and may not send any more.
    pub sessions: usize,
    /// Whether every worker has it.
    pub synced: bool,
    /// How many workers that are.
    pub workers: usize,
    /// From publication until they had it, if it was published for this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hw_sync_latency_ns: Option<u64>,
}

/// A tenant and its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantUse {
    /// The tenant.
    #[serde(flatten)]
    pub tenant: RawTenant,
    /// Its number, from 1, as sessions and routes carry it.
    pub number: u16,
    /// Never given to another tenant.
    pub tenant_id: u64,
    /// Routes of its own.
    pub routes: usize,
    /// Sessions attached as it now.
    pub sessions: usize,
}

/// Result of `tenants.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantsShown {
    /// Version of the software table of tenants.
    pub version: u64,
    /// Places in it.
    pub capacity: u32,
    /// Some of the tenants, by number.
    pub tenants: Vec<TenantUse>,
    /// The `from` to ask for the others with, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}
