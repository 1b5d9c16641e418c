//! What a plane shows of itself: state, workers, sessions, counters, errors, routes.
//!
//! A [`View`] belongs to one thread and maps the plane's segments read-only, so it disturbs nobody and needs neither daemon
//! to be alive or to answer: the segments outlive their writers. Every call looks afresh; a segment that a successor has
//! replaced is opened again by itself. Whether the plane runs is told by its lock, never by the files being there; for a
//! caller who may not read the lock, by whether the process that wrote the segment still exists.
//!
//! Invariants: no call waits for a daemon; numbers that belong together may be a moment apart, only the route table is of one
//! generation. Not here: changes ([`crate::admin`]), and what only a living daemon can tell ([`crate::Plane`]).

mod counters;
mod devices;
mod errors;
mod latency;
mod links;
mod routes;
mod sessions;
mod status;
mod table;
mod tenants;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use madplane_shm::header::Incarnation;
use madplane_shm::paths::PlanePaths;
use madplane_shm::process;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::status::{Status, StatusError, plane_state};
use madplane_shm::sync::Ordering::Relaxed;
use madplane_shm::table::TableError;
use serde::{Serialize, Serializer};

pub use counters::{Count, Counters};
pub use devices::{Device, DeviceState, Devices};
pub use errors::{ErrorEntry, ErrorSource, Errors};
pub use latency::{Latencies, WorkerLatency};
pub use links::{Link, LinkState, Links, Refused};
pub use routes::{RouteLine, RouteTable, TableWorkers};
pub use sessions::{Session, Sessions};
pub use status::{Control, PlaneStatus, SILENT_AFTER_NS, Worker, worker_count};
pub use tenants::TenantTable;

use crate::daemons;
pub(crate) use table::TableCopy;

/// Why something cannot be seen; one line each.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Nothing is there and nobody runs.
    #[error("{0}")]
    NotRunning(String),
    /// The plane has not shown its status yet.
    #[error("plane {0} is still starting; try again")]
    Starting(String),
    /// The lock files cannot be read.
    #[error("lock of plane {name}: {source}")]
    Lock {
        /// The plane.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The status segment cannot be read.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// There is no route table.
    #[error("plane {0} has no route table; start it with: madctl up")]
    NoTable(String),
    /// The route table cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The writer of the table was always faster.
    #[error("the route table changes too fast to be copied; try again")]
    TooFast,
    /// There is no such worker.
    #[error("there is no worker {worker}; workers are 0 to {last}")]
    NoWorker {
        /// The one asked for.
        worker: usize,
        /// The last one there is.
        last: usize,
    },
}

impl LookError {
    /// Whether a segment is there that a program of another version has written.
    fn is_other_version(&self) -> bool {
        use madplane_shm::header::HeaderError::Version;
        matches!(
            self,
            Self::Status(StatusError::Header { source: Version { .. }, .. })
                | Self::Table(TableError::Header { source: Version { .. }, .. })
        )
    }

    /// The errno for a C caller.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let of = |error: &io::Error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        match self {
            Self::NotRunning(_) => Errno::NODEV.raw_os_error(),
            Self::NoTable(_) => Errno::NOENT.raw_os_error(),
            Self::Starting(_) | Self::TooFast => Errno::AGAIN.raw_os_error(),
            Self::NoWorker { .. } => Errno::INVAL.raw_os_error(),
            Self::Lock { source, .. }
            | Self::Status(StatusError::Io { source, .. })
            | Self::Table(TableError::Io { source, .. }) => of(source),
            Self::Status(StatusError::Header { source, .. })
            | Self::Table(TableError::Header { source, .. }) => match source {
                madplane_shm::header::HeaderError::Version { .. } => Errno::OPNOTSUPP.raw_os_error(),
                madplane_shm::header::HeaderError::NotReady => Errno::AGAIN.raw_os_error(),
                _ => Errno::PROTO.raw_os_error(),
            },
            Self::Table(_) => Errno::PROTO.raw_os_error(),
        }
    }
}

/// How a plane does, judged by its segment and its lock; the number is that of the C header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PlaneState {
    /// Being built.
    Starting = 0,
    /// Serving.
    Ready = 1,
    /// Shutting down.
    Stopping = 2,
    /// Shut down in order; what it showed last is still there.
    Stopped = 3,
    /// Ended without shutting down; what it showed last is still there.
    Died = 4,
    /// The segment is a former plane's, another one is starting.
    Replaced = 5,
    /// Runs, in a state that this program does not know.
    Unknown = 6,
}

impl PlaneState {
    fn judge(shown: u32, writer_runs: bool, somebody_runs: bool) -> Self {
        match (shown, writer_runs, somebody_runs) {
            (_, false, true) => Self::Replaced,
            (plane_state::STARTING, true, _) => Self::Starting,
            (plane_state::READY, true, _) => Self::Ready,
            (plane_state::STOPPED, true, _) => Self::Stopping,
            (_, true, _) => Self::Unknown,
            (plane_state::STOPPED, false, false) => Self::Stopped,
            (_, false, false) => Self::Died,
        }
    }

    /// The state in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
            Self::Stopped => "not running (stopped in order)",
            Self::Died => "not running (died)",
            Self::Replaced => "not running any more (its successor is starting)",
            Self::Unknown => "in an unknown state",
        }
    }
}

impl Serialize for PlaneState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.label())
    }
}

/// A plane at a glance: who it is and whether it lives. The first line of every tool that looks in.
#[derive(Debug, Clone, Serialize)]
pub struct Head {
    /// Its name.
    pub name: String,
    /// Version of madplaned.
    pub version: String,
    /// Process id of madplaned, also of a dead one.
    pub pid: u32,
    /// Whether that process runs.
    pub running: bool,
    /// How it does.
    pub state: PlaneState,
    /// How long ago its housekeeping showed itself, nanoseconds.
    pub heartbeat_age_ns: u64,
}

impl Head {
    /// Judges a status segment: `running` is the process that holds the plane's lock, `monotonic_ns` the time.
    pub fn of(name: &str, status: &Status, running: Option<u32>, monotonic_ns: u64) -> Self {
        let plane = status.plane();
        let pid = status.writer().pid;
        let is_writer = running.is_some_and(|holder| holder == pid);
        Self {
            name: name.to_owned(),
            version: plane.program.load(),
            pid,
            running: is_writer,
            state: PlaneState::judge(plane.state.load(Relaxed), is_writer, running.is_some()),
            heartbeat_age_ns: monotonic_ns.saturating_sub(plane.heartbeat_ns.load(Relaxed)),
        }
    }
}

/// Device and inode of a file: another one after it was replaced.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The segments of one plane, mapped read-only.
///
/// ```no_run
/// let mut view = madctl::Plane::open("default")?.view();
/// println!("{} is {}", view.head()?.name, view.head()?.state.label());
/// for route in view.routes()?.routes {
///     println!("{:#06x} -> {:#06x}: {} packets", route.slid, route.dlid, route.packets);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct View {
    paths: PlanePaths,
    status: Option<(Identity, Status)>,
    uses: Option<(Identity, RouteCounters)>,
    table: Option<TableCopy>,
}

impl View {
    /// A view of the plane at `paths`; nothing is opened yet.
    pub fn new(paths: &PlanePaths) -> Self {
        Self { paths: paths.clone(), status: None, uses: None, table: None }
    }

    /// The status segment as it is now, for what has no function here.
    ///
    /// # Errors
    /// [`LookError::NotRunning`], [`LookError::Starting`], [`LookError::Status`].
    pub fn segment(&mut self) -> Result<Status, LookError> {
        let path = self.paths.status_segment();
        // before it is opened: a file that is replaced in between is found to be another one the next time
        let found = identity(&path);
        if let (Some(found), Some((known, status))) = (found, &self.status)
            && *known == found
        {
            return Ok(status.clone());
        }
        self.status = None;
        let status = Status::open(&path).map_err(|error| self.no_status(error))?;
        self.status = found.map(|found| (found, status.clone()));
        Ok(status)
    }

    fn no_status(&self, error: StatusError) -> LookError {
        match &error {
            StatusError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                match daemons::find_plane(&self.paths) {
                    Ok(Some(_)) => LookError::Starting(self.paths.name().to_owned()),
                    Ok(None) => LookError::NotRunning(daemons::not_running(&self.paths)),
                    Err(source) => LookError::Lock { name: self.paths.name().to_owned(), source },
                }
            }
            _ => LookError::Status(error),
        }
    }

    fn look(&mut self) -> Result<(Status, Head), LookError> {
        let found = daemons::find_plane(&self.paths);
        let status = self.segment()?;
        // who may read the segment and not the lock still gets to know whether the writer lives
        let running = found.unwrap_or_else(|_| {
            let Incarnation { pid, start_ticks, .. } = status.writer();
            process::start_ticks(pid).filter(|found| *found == start_ticks).map(|_| pid)
        });
        let head = Head::of(self.paths.name(), &status, running, process::monotonic_ns());
        Ok((status, head))
    }

    /// Who the plane is and whether it lives.
    ///
    /// # Errors
    /// As [`View::segment`].
    pub fn head(&mut self) -> Result<Head, LookError> {
        Ok(self.look()?.1)
    }

    /// The plane as a whole, with its workers. What madctld says of itself is left out.
    ///
    /// # Errors
    /// As [`View::head`].
    pub fn status(&mut self) -> Result<PlaneStatus, LookError> {
        let (status, head) = self.look()?;
        let pid = daemons::find_control(&self.paths).ok().flatten();
        let control = Control { running: pid.is_some(), pid, daemon: None, trouble: None };
        Ok(PlaneStatus::of(&status, head, control, process::monotonic_ns(), process::unix_ns()))
    }

    /// The workers.
    ///
    /// # Errors
    /// As [`View::head`].
    pub fn workers(&mut self) -> Result<Vec<Worker>, LookError> {
        let (status, head) = self.look()?;
        Ok(Worker::all(&status, process::monotonic_ns(), head.running))
    }

    /// Programs attached, or that were when the plane died.
    ///
    /// # Errors
    /// As [`View::head`].
    pub fn sessions(&mut self) -> Result<Sessions, LookError> {
        let (status, head) = self.look()?;
        Ok(Sessions::of(&status, head))
    }

    /// The links of the plane to other planes.
    ///
    /// # Errors
    /// As [`View::head`].
    pub fn links(&mut self) -> Result<Links, LookError> {
        let (status, head) = self.look()?;
        Ok(Links::of(&status, head))
    }

    /// The RDMA devices of the plane.
    ///
    /// # Errors
    /// As [`View::head`].
    pub fn devices(&mut self) -> Result<Devices, LookError> {
        let (status, head) = self.look()?;
        Ok(Devices::of(&status, head))
    }

    /// Counters and drops, of one worker or summed over all; with `all` also those that are zero.
    ///
    /// # Errors
    /// As [`View::head`], and [`LookError::NoWorker`].
    pub fn counters(&mut self, worker: Option<usize>, all: bool) -> Result<Counters, LookError> {
        let (status, head) = self.look()?;
        let workers = worker_count(&status);
        if let Some(worker) = worker.filter(|wanted| *wanted >= workers) {
            return Err(LookError::NoWorker { worker, last: workers.saturating_sub(1) });
        }
        Ok(Counters::of(&status, head, worker, all))
    }

    /// The distinct error logs of both daemons; a segment that is not there has none.
    ///
    /// # Errors
    /// As [`View::head`], if neither segment is there; one of another version.
    pub fn errors(&mut self) -> Result<Errors, LookError> {
        let (seen, table) = self.either()?;
        let log = table.map_or(&[][..], |table| table.reader.errors());
        Ok(Errors::of(seen.as_ref().map(|(status, head)| (status, head.clone())), log))
    }

    /// How long synchronisations of the table and duty cycles of the workers take; a segment that is not there has none.
    ///
    /// # Errors
    /// As [`View::head`], if neither segment is there; one of another version.
    pub fn latency(&mut self) -> Result<Latencies, LookError> {
        let (seen, table) = self.either()?;
        Ok(Latencies::of(seen, table))
    }

    /// What there is of both segments; an error if there is nothing, or something of another version.
    #[expect(clippy::type_complexity, reason = "used in the two functions above only")]
    fn either(&mut self) -> Result<(Option<(Status, Head)>, Option<&TableCopy>), LookError> {
        let seen = self.look();
        let table = TableCopy::map(&mut self.table, &self.paths);
        match (seen, table) {
            // what this program cannot read is not nothing
            (Err(error), _) | (_, Err(error)) if error.is_other_version() => Err(error),
            (Err(error), Err(_)) => Err(error),
            (seen, table) => Ok((seen.ok(), table.ok().map(|table| &*table))),
        }
    }

    /// The published tenants with the number of their routes and sessions. Works without a status segment, too.
    ///
    /// # Errors
    /// [`LookError::NoTable`], [`LookError::Table`], [`LookError::TooFast`].
    pub fn tenants(&mut self) -> Result<TenantTable, LookError> {
        let seen = self.look().ok();
        Ok(TenantTable::of(TableCopy::look(&mut self.table, &self.paths)?, seen))
    }

    /// The route table with the use of each route. Works without a status segment, too; its parts are then left out.
    ///
    /// # Errors
    /// [`LookError::NoTable`], [`LookError::Table`], [`LookError::TooFast`].
    pub fn routes(&mut self) -> Result<RouteTable, LookError> {
        let seen = self.look().ok();
        let uses = self.uses();
        let copy = TableCopy::look(&mut self.table, &self.paths)?;
        let workers = seen.as_ref().map(|(status, _)| TableWorkers::of(status));
        let plane = seen.map(|(_, head)| head);
        Ok(RouteTable::of(copy, plane, workers, uses.as_ref(), process::monotonic_ns()))
    }

    fn uses(&mut self) -> Option<RouteCounters> {
        let path = self.paths.routes_segment();
        let found = identity(&path)?;
        if self.uses.as_ref().is_none_or(|(known, _)| *known != found) {
            self.uses = RouteCounters::open(&path).ok().map(|uses| (found, uses));
        }
        Some(self.uses.as_ref()?.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_told_by_segment_and_lock_together() {
        use PlaneState::{Died, Ready, Replaced, Starting, Stopped, Stopping, Unknown};
        let shown = [plane_state::STARTING, plane_state::READY, plane_state::STOPPED, 77];
        for (shown, alive) in shown.into_iter().zip([Starting, Ready, Stopping, Unknown]) {
            assert_eq!(PlaneState::judge(shown, true, true), alive);
            assert_eq!(PlaneState::judge(shown, false, true), Replaced);
            let dead = if shown == plane_state::STOPPED { Stopped } else { Died };
            assert_eq!(PlaneState::judge(shown, false, false), dead);
        }
    }

    #[test]
    fn without_the_lock_the_writer_itself_is_looked_for() {
        let root = tempfile::tempdir().unwrap();
        for part in ["shm", "run"] {
            std::fs::create_dir_all(root.path().join(part)).unwrap();
        }
        let paths = PlanePaths::under(root.path(), "one").unwrap();
        // nobody can follow this, root neither
        std::os::unix::fs::symlink(paths.run_dir(), paths.run_dir()).unwrap();
        assert!(daemons::find_plane(&paths).is_err());
        let me = process::incarnation();
        let other = Incarnation { start_ticks: me.start_ticks + 1, ..me };
        for (writer, state) in [(me, PlaneState::Ready), (other, PlaneState::Died)] {
            let status = Status::create(&paths.status_segment(), writer).unwrap();
            status.plane().state.store(plane_state::READY, Relaxed);
            let head = View::new(&paths).head().unwrap();
            assert_eq!((head.state, head.running), (state, state == PlaneState::Ready));
        }
    }

    #[test]
    fn a_replaced_segment_is_opened_again_and_a_missing_one_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("shm")).unwrap();
        let paths = PlanePaths::under(root.path(), "one").unwrap();
        let mut view = View::new(&paths);
        let missing = view.head().unwrap_err();
        assert!(missing.to_string().starts_with("plane one is not running; start it with"), "{missing}");
        assert_eq!(missing.errno(), 19);
        for pid in [4, 5] {
            let writer = Incarnation { pid, ..Incarnation::default() };
            Status::create(&paths.status_segment(), writer).unwrap();
            assert_eq!((view.head().unwrap().pid, view.head().unwrap().state), (pid, PlaneState::Died));
        }
        assert!(matches!(view.routes(), Err(LookError::NoTable(_))));
        assert!(matches!(view.counters(Some(0), false), Err(LookError::NoWorker { worker: 0, last: 0 })));
    }
}
