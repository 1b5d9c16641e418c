//! The status segment: what the plane shows of itself to anybody who may read the file.
//!
//! | part | offset | writer in madplaned | what |
//! |---|---|---|---|
//! | header | 0 | housekeeping, once | [`SegmentHeader`] |
//! | plane | 4096 | housekeeping | [`PlaneBlock`]: fabric, state, heartbeat |
//! | workers | 8192 | each worker its own | [`WorkerBlock`] × [`MAX_WORKERS`] |
//! | sessions | 139264 | housekeeping; counts by the worker | [`SessionRecord`] × [`MAX_SESSIONS`] |
//! | errors | 532480 | housekeeping | [`ErrorRecord`] × [`MAX_ERRORS`] |
//! | links | 548864 | housekeeping; state and counts by the worker | [`LinkRecord`] × [`MAX_LINKS`] |
//! | devices | 614400 | housekeeping; flags and counts by the worker | [`DeviceRecord`] × [`MAX_DEVICES`] |
//!
//! Every word is a relaxed atomic; words that belong together may be seen at different times. The file outlives the
//! process, so a reader judges liveness by the heartbeat and the writer's incarnation, not by the file being there.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::counters::COUNTER_WORDS;
use crate::errors;
pub use crate::errors::ErrorRecord;
use crate::header::{HeaderError, Incarnation, SegmentHeader, SegmentKind};
use crate::latency::LatencyHistogram;
use crate::map::{self, Mapping};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::table::MAX_PATH_PORTS;
use crate::text::SharedText;
use crate::tuning::TUNING_WORDS;

/// Most workers of a plane.
pub const MAX_WORKERS: usize = 16;
/// Most sessions at one time.
pub const MAX_SESSIONS: usize = 1024;
/// Distinct errors kept.
pub const MAX_ERRORS: usize = 64;
/// Most links to other planes at one time.
pub const MAX_LINKS: usize = 64;
/// Most RDMA devices at one time.
pub const MAX_DEVICES: usize = 16;
/// Words reserved for what a link refuses.
pub const REFUSAL_WORDS: usize = 16;
/// Words reserved for drop reasons in a worker's block.
pub const DROP_WORDS: usize = 128;

const PATH_WORDS: usize = 8;
const PLANE_AT: usize = 4096;
const WORKERS_AT: usize = 8192;
const SESSIONS_AT: usize = WORKERS_AT + MAX_WORKERS * size_of::<WorkerBlock>();
const ERRORS_AT: usize = SESSIONS_AT + MAX_SESSIONS * size_of::<SessionRecord>();
const LINKS_AT: usize = ERRORS_AT + MAX_ERRORS * size_of::<ErrorRecord>();
const DEVICES_AT: usize = LINKS_AT + MAX_LINKS * size_of::<LinkRecord>();
const TOTAL_BYTES: usize = (DEVICES_AT + MAX_DEVICES * size_of::<DeviceRecord>()).next_multiple_of(4096);

/// States of the plane; the number is shared.
pub mod plane_state {
    /// Being built.
    pub const STARTING: u32 = 0;
    /// Serving.
    pub const READY: u32 = 1;
    /// Shut down in order.
    pub const STOPPED: u32 = 2;
}

/// The plane as a whole.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct PlaneBlock {
    /// One of [`plane_state`].
    pub state: AtomicU32,
    /// Number of workers.
    pub workers: AtomicU32,
    /// Monotonic clock, nanoseconds, when the housekeeping thread last came by.
    pub heartbeat_ns: AtomicU64,
    /// Unix time of the start, nanoseconds.
    pub started_unix_ns: AtomicU64,
    /// Time from process start to ready, nanoseconds.
    pub startup_ns: AtomicU64,
    /// Nodes of the fabric.
    pub nodes: AtomicU64,
    /// Switches among them.
    pub switches: AtomicU64,
    /// Links of the fabric.
    pub links: AtomicU64,
    /// Sessions open now.
    pub sessions: AtomicU64,
    /// GUID of the node where sessions attach by default.
    pub default_node_guid: AtomicU64,
    /// Port number there.
    pub default_port: AtomicU32,
    /// Slots per ring of a session.
    pub session_slots: AtomicU32,
    /// 1 if the memory of the next session is likely to be in huge pages.
    pub huge_pages: AtomicU32,
    /// Mode that the workers were started in, a [`crate::tuning::Mode`].
    pub mode: AtomicU32,
    /// Bytes of the plane's own memory that are in huge pages.
    pub own_huge_bytes: AtomicU64,
    /// Bytes of sessions in huge pages now.
    pub session_huge_bytes: AtomicU64,
    reserved: [AtomicU64; 2],
    /// Where the fabric came from.
    pub fabric: SharedText<32>,
    /// Version of the program.
    pub program: SharedText<8>,
}

/// One worker.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct WorkerBlock {
    /// Monotonic clock, nanoseconds, of the last committed duty cycle.
    pub heartbeat_ns: AtomicU64,
    /// CPU it is pinned to, `u32::MAX` if none.
    pub cpu: AtomicU32,
    /// Thread id.
    pub thread: AtomicU32,
    /// Duty cycles that found nothing.
    pub polls_empty: AtomicU64,
    /// Duty cycles that found work.
    pub polls_full: AtomicU64,
    /// Nanoseconds in duty cycles that found work.
    pub busy_ns: AtomicU64,
    /// Nanoseconds since the worker started.
    pub total_ns: AtomicU64,
    /// Longest duty cycle, nanoseconds.
    pub longest_cycle_ns: AtomicU64,
    /// Duty cycles longer than a millisecond.
    pub stalls: AtomicU64,
    /// Sessions it serves.
    pub sessions: AtomicU64,
    /// Nodes it owns.
    pub nodes: AtomicU64,
    /// Generation of the table that it forwards by, tenants included; 0 for none. Stored last, release.
    pub applied_generation: AtomicU64,
    /// Monotonic clock, nanoseconds, when it did so.
    pub applied_ns: AtomicU64,
    /// Copies of the route table that the writer overtook.
    pub table_retries: AtomicU64,
    /// Routes and tenants refused because they are damaged.
    pub table_refused: AtomicU64,
    reserved: [AtomicU64; 2],
    /// By [`crate::counters::Counter`] id.
    pub counters: [AtomicU64; COUNTER_WORDS],
    /// By [`crate::drop_reason::DropReason`] id.
    pub drops: [AtomicU64; DROP_WORDS],
    /// How long full duty cycles took.
    pub cycles: LatencyHistogram,
    /// How it waits, by [`crate::tuning::Parameter`]; the mode is what was asked for.
    pub tuning: [AtomicU64; TUNING_WORDS],
    /// The [`crate::tuning::Mode`] that it is in: a worker without a core of its own does not poll.
    pub mode: AtomicU32,
    /// 1 if it has no core of its own.
    pub shares_core: AtomicU32,
    /// Longest time, microseconds, for which a wake-up is held back now.
    pub moderation_us: AtomicU64,
    /// MADs that wake at once now.
    pub moderation_pkts: AtomicU64,
    /// Nanoseconds asleep.
    pub slept_ns: AtomicU64,
}

/// One session.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct SessionRecord {
    /// Session number, 0 for a free record.
    pub id: AtomicU32,
    /// Process id of the client.
    pub pid: AtomicU32,
    /// User id of the client.
    pub uid: AtomicU32,
    /// Port number it is attached to.
    pub port: AtomicU32,
    /// GUID of the node it is attached to.
    pub node_guid: AtomicU64,
    /// Unix time of the attach, nanoseconds.
    pub since_unix_ns: AtomicU64,
    /// MADs taken from it.
    pub received: AtomicU64,
    /// MADs given to it.
    pub sent: AtomicU64,
    /// MADs it did not make room for.
    pub dropped: AtomicU64,
    /// Agents registered.
    pub agents: AtomicU32,
    /// Worker that serves it.
    pub worker: AtomicU32,
    reserved: [AtomicU64; 3],
    /// Name of the program.
    pub program: SharedText<4>,
    /// Node description.
    pub node: SharedText<8>,
    /// Number of its tenant, 0 for none.
    pub tenant: AtomicU32,
    /// One of [`crate::table::tenant::service_class`].
    pub class: AtomicU32,
    /// Name of its tenant.
    pub tenant_name: SharedText<4>,
    /// Ports of the path that it is bound to, 0 for none.
    pub path_len: AtomicU32,
    /// What becomes of a MAD when that path is broken: one of [`crate::table::on_broken`].
    pub path_on_broken: AtomicU32,
    /// The path, a byte a port, in memory order.
    pub path: [AtomicU64; PATH_WORDS],
    reserved2: [AtomicU64; 10],
}

impl SessionRecord {
    /// Stores the path that the session is bound to; empty for none. For people, as all of the record.
    ///
    /// # Panics
    /// If there are more than 63 ports.
    pub fn store_path(&self, ports: &[u8], on_broken: u8) {
        assert!(ports.len() <= MAX_PATH_PORTS, "a path of {} ports", ports.len());
        let mut bytes = [0; PATH_WORDS * 8];
        bytes[..ports.len()].copy_from_slice(ports);
        for (word, piece) in self.path.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*piece), Ordering::Relaxed);
        }
        self.path_on_broken.store(u32::from(on_broken), Ordering::Relaxed);
        self.path_len.store(ports.len().try_into().unwrap_or(0), Ordering::Relaxed);
    }

    /// The ports of the path that the session is bound to; empty for none.
    pub fn bound_path(&self) -> Vec<u8> {
        let words = self.path.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        words.take(MAX_PATH_PORTS.min(self.path_len.load(Ordering::Relaxed) as usize)).collect()
    }
}

/// One link to another plane.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct LinkRecord {
    /// How it stands plus 1: silent, one-way, pulled, up; [`LINK_UNAVAILABLE`] for one that could not be opened; 0 for a free record.
    pub state: AtomicU32,
    /// Port at this end.
    pub port: AtomicU32,
    /// GUID of the node at this end.
    pub node_guid: AtomicU64,
    /// GUID of the node at the other end, as that says; 0 while it is not heard.
    pub peer_guid: AtomicU64,
    /// Port at the other end, likewise.
    pub peer_port: AtomicU32,
    /// Worker that serves it.
    pub worker: AtomicU32,
    /// MADs handed to the transport.
    pub sent: AtomicU64,
    /// MADs taken from it.
    pub received: AtomicU64,
    /// MADs of the other end that did not arrive.
    pub lost: AtomicU64,
    /// MADs that came twice, or too late to tell.
    pub repeated: AtomicU64,
    /// MADs that came after a later one.
    pub late: AtomicU64,
    /// Keep-alives sent.
    pub keep_alives_sent: AtomicU64,
    /// Keep-alives understood.
    pub keep_alives_received: AtomicU64,
    /// Times that it came up.
    pub ups: AtomicU64,
    /// Times that it went down.
    pub downs: AtomicU64,
    /// Round trip of the last keep-alive, nanoseconds.
    pub round_trip_ns: AtomicU64,
    /// Frames longer than a frame can be.
    pub oversized: AtomicU64,
    /// Frames that came and found no room.
    pub overflowed: AtomicU64,
    /// Peers that could not show who they are.
    pub refused_peers: AtomicU64,
    /// Frames refused: truncated, oversized, magic, version, kind, session, sequence.
    pub refused: [AtomicU64; REFUSAL_WORDS],
    reserved: [AtomicU64; 12],
    /// Node description at this end.
    pub node: SharedText<8>,
    /// How it was asked for.
    pub spec: SharedText<40>,
    /// How the transport stands, a line.
    pub transport: SharedText<24>,
}

/// State of a link that could not be opened: [`LinkRecord::transport`] says why. It is tried again.
pub const LINK_UNAVAILABLE: u32 = 5;

impl LinkRecord {
    /// Sets all counts to 0. For whoever gives out records, while no worker counts in this one.
    pub fn clear_counts(&self) {
        let counts = [
            &self.sent,
            &self.received,
            &self.lost,
            &self.repeated,
            &self.late,
            &self.keep_alives_sent,
            &self.keep_alives_received,
            &self.ups,
            &self.downs,
            &self.round_trip_ns,
            &self.oversized,
            &self.overflowed,
            &self.refused_peers,
        ];
        for count in counts.into_iter().chain(&self.refused) {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// How an RDMA device of a plane stands: values of [`DeviceRecord::state`].
pub mod device_state {
    /// No device.
    pub const NONE: u32 = 0;
    /// Cannot be used; [`super::DeviceRecord::why`] says why. It is tried again.
    pub const UNAVAILABLE: u32 = 1;
    /// Open, its port is not ACTIVE.
    pub const DOWN: u32 = 2;
    /// Open, its port is ACTIVE.
    pub const UP: u32 = 3;
}

/// What a device is used by: values of [`DeviceRecord::backend`].
pub mod device_backend {
    /// Not open.
    pub const NONE: u32 = 0;
    /// A queue pair of the plane's own.
    pub const VERBS: u32 = 1;
    /// The kernel's device.
    pub const UMAD: u32 = 2;
}

/// What its worker says of a device: bits of [`DeviceRecord::flags`].
pub mod device_flag {
    /// It has to be opened again.
    pub const BROKEN: u32 = 1;
    /// It said that its port is not ACTIVE.
    pub const DOWN: u32 = 2;
}

/// One RDMA device of the plane.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct DeviceRecord {
    /// One of [`device_state`].
    pub state: AtomicU32,
    /// Bits of [`device_flag`].
    pub flags: AtomicU32,
    /// Port of the device.
    pub port: AtomicU32,
    /// Worker that serves it.
    pub worker: AtomicU32,
    /// Node GUID of the device.
    pub node_guid: AtomicU64,
    /// LID of its port, 0 if it has none.
    pub lid: AtomicU32,
    /// One of [`device_backend`].
    pub backend: AtomicU32,
    /// MADs that the device took.
    pub sent: AtomicU64,
    /// MADs that it brought.
    pub received: AtomicU64,
    /// Requests that the kernel gave up waiting for.
    pub timed_out: AtomicU64,
    /// MADs that the device or the kernel refused.
    pub refused: AtomicU64,
    /// LID-routed SMPs that left along a pinned route.
    pub pinned: AtomicU64,
    /// Requests that wait for their answers now.
    pub requests: AtomicU64,
    /// Times that it came up.
    pub ups: AtomicU64,
    /// Times that it went down.
    pub downs: AtomicU64,
    /// Unix time of the last change of `state`, nanoseconds.
    pub since_unix_ns: AtomicU64,
    reserved: [AtomicU64; 19],
    /// Name of the device.
    pub name: SharedText<8>,
    /// How it was asked for.
    pub spec: SharedText<16>,
    /// Why it cannot be used, or why not by the first backend; a line.
    pub why: SharedText<40>,
    reserved2: [AtomicU64; 32],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<DeviceRecord>() == 1024 && DEVICES_AT == 614_400);
    assert!(size_of::<PlaneBlock>() <= 4096);
    assert!(size_of::<LinkRecord>() == 1024 && LINKS_AT == 548_864);
    assert!(size_of::<WorkerBlock>() == 8192);
    assert!(size_of::<SessionRecord>() == 384);
    assert!(SESSIONS_AT == 139_264 && ERRORS_AT == 532_480);
    assert!(crate::drop_reason::DropReason::ALL.len() <= DROP_WORDS);
};

/// Where the parts of the segment lie, for [`crate::layout::listing`].
pub(crate) fn placement() -> String {
    format!(
        "plane {PLANE_AT} workers {WORKERS_AT} x {MAX_WORKERS} sessions {SESSIONS_AT} x {MAX_SESSIONS} errors {ERRORS_AT} x \
         {MAX_ERRORS} links {LINKS_AT} x {MAX_LINKS} devices {DEVICES_AT} x {MAX_DEVICES} total {TOTAL_BYTES}"
    )
}

/// Why the status of a plane cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// No such file, no permission, no space.
    #[error("status segment {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a status segment of this version.
    #[error("status segment {path}: {source}")]
    Header {
        /// The file.
        path: String,
        /// The failed check.
        source: HeaderError,
    },
}

/// The mapped segment, writable for its one writer and read-only for everybody else.
#[derive(Debug, Clone)]
pub struct Status {
    mapping: Arc<Mapping>,
}

impl Status {
    /// Creates the segment at `path`, replacing what a former plane left there, and shows it.
    ///
    /// # Errors
    /// [`StatusError::Io`] when the file system refuses or is full.
    ///
    /// # Panics
    /// Never: the file is made long enough for a header.
    pub fn create(path: &Path, writer: Incarnation) -> Result<Self, StatusError> {
        let fail = |source| StatusError::Io { path: path.display().to_string(), source };
        let (file, length) = map::create_file(path, TOTAL_BYTES).map_err(fail)?;
        let mapping = Mapping::writable(&file).map_err(fail)?;
        let header = mapping.atomics::<SegmentHeader>(0).expect("the file was made long enough");
        header.publish(SegmentKind::Status, length as u64, 0, writer);
        map::publish_file(path).map_err(fail)?;
        Ok(Self { mapping: Arc::new(mapping) })
    }

    /// Opens the segment at `path` for reading.
    ///
    /// # Errors
    /// [`StatusError::Io`] when it is not there, [`StatusError::Header`] when it is of another version.
    pub fn open(path: &Path) -> Result<Self, StatusError> {
        let fail = |source| StatusError::Io { path: path.display().to_string(), source };
        let file = File::open(path).map_err(fail)?;
        let mapping = Mapping::read_only(&file).map_err(fail)?;
        let refuse = |source| StatusError::Header { path: path.display().to_string(), source };
        let header = mapping.atomics::<SegmentHeader>(0).ok_or(refuse(HeaderError::NotASegment))?;
        header.check(SegmentKind::Status, mapping.len() as u64).map_err(refuse)?;
        if mapping.len() < TOTAL_BYTES {
            return Err(refuse(HeaderError::NotASegment));
        }
        Ok(Self { mapping: Arc::new(mapping) })
    }

    fn part<T: map::SharedLayout>(&self, offset: usize) -> &T {
        self.mapping.atomics(offset).expect("length was checked when the segment was opened")
    }

    /// Who wrote the segment.
    pub fn writer(&self) -> Incarnation {
        self.part::<SegmentHeader>(0).writer()
    }

    /// The plane as a whole.
    pub fn plane(&self) -> &PlaneBlock {
        self.part(PLANE_AT)
    }

    /// One worker.
    ///
    /// # Panics
    /// If `index` is not below [`MAX_WORKERS`].
    pub fn worker(&self, index: usize) -> &WorkerBlock {
        assert!(index < MAX_WORKERS, "worker {index} of {MAX_WORKERS}");
        self.part(WORKERS_AT + index * size_of::<WorkerBlock>())
    }

    /// One session record.
    ///
    /// # Panics
    /// If `index` is not below [`MAX_SESSIONS`].
    pub fn session(&self, index: usize) -> &SessionRecord {
        assert!(index < MAX_SESSIONS, "session {index} of {MAX_SESSIONS}");
        self.part(SESSIONS_AT + index * size_of::<SessionRecord>())
    }

    /// One record of the distinct error log.
    ///
    /// # Panics
    /// If `index` is not below [`MAX_ERRORS`].
    pub fn error(&self, index: usize) -> &ErrorRecord {
        assert!(index < MAX_ERRORS, "error {index} of {MAX_ERRORS}");
        self.part(ERRORS_AT + index * size_of::<ErrorRecord>())
    }

    /// One record of a link to another plane.
    ///
    /// # Panics
    /// If `index` is not below [`MAX_LINKS`].
    pub fn link(&self, index: usize) -> &LinkRecord {
        assert!(index < MAX_LINKS, "link {index} of {MAX_LINKS}");
        self.part(LINKS_AT + index * size_of::<LinkRecord>())
    }

    /// One record of an RDMA device.
    ///
    /// # Panics
    /// If `index` is not below [`MAX_DEVICES`].
    pub fn device(&self, index: usize) -> &DeviceRecord {
        assert!(index < MAX_DEVICES, "device {index} of {MAX_DEVICES}");
        self.part(DEVICES_AT + index * size_of::<DeviceRecord>())
    }

    /// Counts an error, by its text; the text of a full log goes to the last record. One thread of the writer only.
    pub fn record_error(&self, text: &str, now_unix_ns: u64) {
        errors::record((0..MAX_ERRORS).map(|index| self.error(index)), text, now_unix_ns);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::on_broken;
    use crate::table::tenant::service_class;

    #[test]
    fn a_reader_sees_what_the_writer_stored_and_errors_are_kept_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let writer = Status::create(&path, Incarnation { pid: 5, ..Incarnation::default() }).unwrap();
        writer.plane().nodes.store(702, Ordering::Relaxed);
        writer.worker(15).drops[3].store(9, Ordering::Relaxed);
        writer.session(1023).program.store("opensm");
        for at in 1..=3 {
            writer.record_error("bad thing", at);
        }
        let reader = Status::open(&path).unwrap();
        assert_eq!(reader.writer().pid, 5);
        assert_eq!(reader.plane().nodes.load(Ordering::Relaxed), 702);
        assert_eq!(reader.worker(15).drops[3].load(Ordering::Relaxed), 9);
        assert_eq!(reader.session(1023).program.load(), "opensm");
        let record = reader.error(0);
        assert_eq!(record.text.load(), "bad thing");
        assert_eq!(record.count.load(Ordering::Relaxed), 3);
        assert_eq!(record.first_unix_ns.load(Ordering::Relaxed), 1);
        assert_eq!(record.last_unix_ns.load(Ordering::Relaxed), 3);
        assert_eq!(reader.error(1).count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_session_shows_its_tenant_class_and_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let writer = Status::create(&path, Incarnation::default()).unwrap();
        let reader = Status::open(&path).unwrap();
        for at in [0, MAX_SESSIONS - 1] {
            let session = writer.session(at);
            session.tenant.store(1024, Ordering::Relaxed);
            session.class.store(u32::from(service_class::RESERVED), Ordering::Relaxed);
            session.tenant_name.store("blue");
            for ports in [&[7; 63][..], &[1, 2, 255], &[]] {
                session.store_path(ports, on_broken::DROP);
                assert_eq!(reader.session(at).bound_path(), ports);
            }
            let seen = reader.session(at);
            assert_eq!((seen.tenant.load(Ordering::Relaxed), seen.tenant_name.load()), (1024, "blue".into()));
            assert_eq!(seen.path_on_broken.load(Ordering::Relaxed), u32::from(on_broken::DROP));
            // a length that no writer stored
            session.path_len.store(u32::MAX, Ordering::Relaxed);
            assert_eq!(reader.session(at).bound_path(), [0; 63]);
        }
        let neighbours = [1, MAX_SESSIONS - 2].map(|at| reader.session(at).tenant_name.load());
        assert_eq!(neighbours, ["", ""]);
    }

    #[test]
    fn a_link_shows_how_it_stands() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let writer = Status::create(&path, Incarnation::default()).unwrap();
        let reader = Status::open(&path).unwrap();
        for at in [0, MAX_LINKS - 1] {
            writer.link(at).state.store(4, Ordering::Relaxed);
            writer.link(at).refused[REFUSAL_WORDS - 1].store(7, Ordering::Relaxed);
            writer.link(at).spec.store(&"x".repeat(320));
            writer.link(at).transport.store("up");
            let seen = reader.link(at);
            assert_eq!((seen.state.load(Ordering::Relaxed), seen.spec.load().len()), (4, 320));
            assert_eq!(seen.refused[REFUSAL_WORDS - 1].load(Ordering::Relaxed), 7);
            assert_eq!(seen.transport.load(), "up");
        }
        assert_eq!(reader.link(1).state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_device_shows_how_it_stands() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let writer = Status::create(&path, Incarnation::default()).unwrap();
        let reader = Status::open(&path).unwrap();
        for at in [0, MAX_DEVICES - 1] {
            let device = writer.device(at);
            device.state.store(device_state::UNAVAILABLE, Ordering::Relaxed);
            device.since_unix_ns.store(7, Ordering::Relaxed);
            device.name.store(&"n".repeat(63));
            device.why.store(&"x".repeat(400));
            let seen = reader.device(at);
            assert_eq!(seen.state.load(Ordering::Relaxed), device_state::UNAVAILABLE);
            assert_eq!(seen.since_unix_ns.load(Ordering::Relaxed), 7);
            assert_eq!((seen.name.load().len(), seen.why.load().len()), (63, 320), "cut to what fits");
        }
        assert_eq!(reader.device(1).state.load(Ordering::Relaxed), device_state::NONE);
    }

    #[test]
    fn a_workers_cycles_are_read_by_anybody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let writer = Status::create(&path, Incarnation::default()).unwrap();
        for index in 0..MAX_WORKERS {
            for _ in 0..=index {
                writer.worker(index).cycles.record(900);
            }
        }
        let reader = Status::open(&path).unwrap();
        for index in 0..MAX_WORKERS {
            let cycles = &reader.worker(index).cycles;
            assert_eq!((cycles.count(), cycles.percentile(0.5)), (index as u64 + 1, 900));
        }
    }

    #[test]
    fn a_full_error_log_counts_on_in_its_last_record() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        for number in 0..MAX_ERRORS + 10 {
            status.record_error(&format!("error {number}"), 1);
        }
        let last = status.error(MAX_ERRORS - 1);
        assert_eq!(last.count.load(Ordering::Relaxed), 11);
        assert_eq!(last.text.load(), "further errors (log full)");
    }

    #[test]
    fn a_file_that_is_no_status_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        assert!(matches!(Status::open(&path), Err(StatusError::Io { .. })));
        std::fs::write(&path, vec![1u8; 8192]).unwrap();
        assert!(matches!(Status::open(&path), Err(StatusError::Header { .. })));
    }
}
