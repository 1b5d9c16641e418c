//! Building a plane and taking it down again.
//!
//! [`Plane::start`] either returns a plane that serves, or an error and nothing left behind: lock, socket, segment and
//! threads come in that order and go with the value.

use std::fs::Permissions;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use madplane_engine::{FabricOptions, FabricPlan};
use madplane_port::{machine, pool};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::map;
use madplane_shm::process::lock::{DaemonLock, LockError};
use madplane_shm::process::{incarnation, unix_ns};
use madplane_shm::status::{Status, StatusError, plane_state};
use madplane_shm::sync::Ordering;
use madplane_topology::{ParseOptions, Topology};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::acl::Meters;
use crate::attach::devices::{Sources, of_this_machine};
use crate::attach::{Housekeeping, HousekeepingParts, default_place, session_place};
use crate::config::{Config, FabricSource};
use crate::cores::{ClaimError, Cores};
use crate::mesh::mesh;
use crate::notices::{NoticeDesk, notice_ring};
use crate::orders::{OrderDesk, order_rings};
use crate::service::Service;
use crate::sleep::WorkerBell;
use crate::worker::Worker;

/// Why a plane could not be started; `Display` is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process runs this plane.
    #[error("plane {name} is already running (pid {pid})")]
    AlreadyRunning {
        /// Name of the plane.
        name: String,
        /// Process id of the holder.
        pid: u32,
    },
    /// The plane's lock file cannot be used.
    #[error(transparent)]
    Lock(LockError),
    /// A core that was named is somebody else's.
    #[error(transparent)]
    Core(#[from] ClaimError),
    /// The runtime directory cannot be used.
    #[error("cannot use {path}: {source}")]
    Directory {
        /// The directory or socket.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The status segment cannot be made.
    #[error("{0}; free some space or set MADPLANE_SHM_DIR")]
    Status(#[from] StatusError),
    /// The fabric cannot be loaded.
    #[error("fabric {source_name}: {reason}")]
    Fabric {
        /// File or specification.
        source_name: String,
        /// Why.
        reason: String,
    },
    /// The default attach place does not exist.
    #[error("--at {selector}: {reason}")]
    At {
        /// What was asked for.
        selector: String,
        /// Why.
        reason: String,
    },
    /// A link that the plane was to be started with cannot be had.
    #[error("{0}")]
    Link(String),
    /// A thread could not be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(std::io::Error),
    /// epoll or a doorbell could not be made.
    #[error("cannot create a descriptor: {0}")]
    Descriptor(rustix::io::Errno),
}

/// A plane that serves.
#[derive(Debug)]
pub struct Plane {
    housekeeping: Housekeeping,
    workers: Vec<JoinHandle<()>>,
    status: Status,
    attach_socket: PathBuf,
    _lock: DaemonLock,
}

impl Plane {
    /// Loads the fabric, starts the workers and listens for clients. `started` is when the process began.
    ///
    /// # Errors
    /// [`StartError`], with nothing left running.
    pub fn start(config: Config, started: Instant) -> Result<Self, StartError> {
        Self::start_with(config, started, &of_this_machine())
    }

    /// The same, with devices from `sources`.
    ///
    /// # Errors
    /// As [`Plane::start`].
    pub fn start_with(mut config: Config, started: Instant, sources: &Sources) -> Result<Self, StartError> {
        let paths = config.paths().clone();
        let directory =
            |source| StartError::Directory { path: paths.run_dir().display().to_string(), source };
        std::fs::create_dir_all(paths.run_dir()).map_err(directory)?;
        let lock = DaemonLock::acquire(&paths.plane_lock()).map_err(|error| match error {
            LockError::Held { pid } => StartError::AlreadyRunning { name: paths.name().to_owned(), pid },
            other => StartError::Lock(other),
        })?;
        let cores = Cores::claim(&mut config)?;
        let topology = load_fabric(&config)?;
        let default_place = choose_place(&config, &topology)?;
        let me = incarnation();
        let status = Status::create(&paths.status_segment(), me)?;
        let huge_pages = config.huge_pages().is_some() && huge_pages_are_free();
        if config.huge_pages().is_some() && !huge_pages {
            tracing::warn!("no huge pages are free: rings and buffers are in normal pages (vm.nr_hugepages)");
        }
        fill_status(&status, &config, &topology, huge_pages);
        let listener = listen(&paths.attach_socket())?;
        let reports_bell = Arc::new(Doorbell::create().map_err(StartError::Descriptor)?);
        let shares_core = config.overprovisioned() || config.cores().workers.is_empty();
        if config.cores().workers.is_empty() {
            let asked = config.tuning().mode().name();
            tracing::warn!(asked, "workers have no core of their own and wait for interrupts");
        } else if config.takes_all_cores() {
            let asked = config.tuning().mode().name();
            tracing::warn!(asked, "workers have every core that there is and wait for interrupts");
        }
        if !machine::lock_memory() {
            tracing::warn!("memory cannot be locked and may be paged out (raise ulimit -l)");
        }
        let bells = (0..config.workers()).map(|_| WorkerBell::create()).collect::<Result<Vec<_>, _>>();
        let bells = bells.map_err(StartError::Descriptor)?;
        let build = || Team::build(&config, &topology, &status, &reports_bell, &bells, shares_core);
        let (team, own_huge_bytes) = match config.huge_pages().filter(|_| huge_pages) {
            Some(source) => pool::fill(source.clone(), own_huge_budget(&config), build),
            None => (build(), 0),
        };
        status.plane().own_huge_bytes.store(own_huge_bytes as u64, Ordering::Relaxed);
        let Team { plan, desks, notices, workers: team } = team?;
        // a worker without a core of its own starts where this thread runs
        machine::allow_cores(&config.cores().others);
        let mut workers = Vec::new();
        for (index, worker) in team.into_iter().enumerate() {
            workers.push(start_worker(worker, index, config.cores().workers.get(index).copied(), &status)?);
        }
        let parts = HousekeepingParts {
            config,
            topology,
            plan,
            status: status.clone(),
            me,
            default_place,
            desks,
            notices,
            reports_bell,
            listener,
            huge_pages,
            cores,
        };
        let mut housekeeping = Housekeeping::new(parts).map_err(StartError::Descriptor)?;
        housekeeping.show_default_place();
        housekeeping.look_for_table();
        housekeeping.begin_links().map_err(StartError::Link)?;
        housekeeping.begin_devices(sources);
        let plane = status.plane();
        plane
            .startup_ns
            .store(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        plane.state.store(plane_state::READY, Ordering::Release);
        Ok(Self { housekeeping, workers, status, attach_socket: paths.attach_socket(), _lock: lock })
    }

    /// Tells a service manager that the plane is ready, well and stopping, and reloads when asked to.
    #[must_use]
    pub fn with_service(mut self, service: Service) -> Self {
        self.housekeeping.serve_for(service);
        self
    }

    /// Serves until `stop` becomes readable, then stops the workers and removes the socket.
    ///
    /// # Errors
    /// Waiting for events failed.
    pub fn serve(mut self, stop: impl AsFd) -> Result<(), rustix::io::Errno> {
        let served = self.housekeeping.serve(stop);
        for worker in self.workers.drain(..) {
            // a worker that panics has ended the process
            let _ = worker.join();
        }
        self.status.plane().state.store(plane_state::STOPPED, Ordering::Release);
        let _ = std::fs::remove_file(&self.attach_socket);
        served
    }

    /// The status segment of this plane.
    pub fn status(&self) -> &Status {
        &self.status
    }
}

/// Everything that is made once and used for every MAD, and what housekeeping needs of it.
struct Team {
    plan: Arc<FabricPlan>,
    workers: Vec<Worker>,
    desks: Vec<OrderDesk>,
    notices: Vec<NoticeDesk>,
}

impl Team {
    fn build(
        config: &Config,
        topology: &Topology,
        status: &Status,
        reports_bell: &Arc<Doorbell>,
        bells: &[Arc<WorkerBell>],
        shares_core: bool,
    ) -> Result<Self, StartError> {
        let plan = FabricPlan::new(topology, &FabricOptions { shards: config.workers() })
            .map_err(|error| fabric_error(config, &error.to_string()))?;
        let meters = Arc::new(Meters::default());
        let (mut workers, mut desks, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        for (index, ends) in mesh(config.workers()).into_iter().enumerate() {
            let (desk, order_box) = order_rings(reports_bell.clone());
            let shard = plan.build_shard(topology, index);
            status.worker(index).nodes.store(plan.nodes_of(index).len() as u64, Ordering::Relaxed);
            let (notice_box, notice_desk) = notice_ring();
            let worker = Worker::new(index, shard, ends, order_box, status.clone())
                .among(meters.clone(), notice_box)
                .tuned(*config.tuning(), shares_core)
                .sleeping(bells[index].clone(), bells.to_vec())
                .map_err(StartError::Descriptor)?;
            desks.push(desk.waking(bells[index].clone()));
            notices.push(notice_desk);
            workers.push(worker);
        }
        Ok(Self { plan: Arc::new(plan), workers, desks, notices })
    }
}

/// Ends the process when a worker panics: a plane that looks alive and forwards nothing is worse than none.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

fn start_worker(
    worker: Worker,
    index: usize,
    core: Option<usize>,
    status: &Status,
) -> Result<JoinHandle<()>, StartError> {
    let block = status.worker(index);
    let cpu = core.and_then(|core| u32::try_from(core).ok()).unwrap_or(u32::MAX);
    block.cpu.store(cpu, Ordering::Relaxed);
    let shown = status.clone();
    let (begun, begins) = mpsc::sync_channel(1);
    let body = move || {
        let alarm = AbortOnPanic;
        if core.is_some_and(|core| !machine::pin_thread(core)) {
            tracing::warn!("cannot pin worker {index} to core {core:?}");
        }
        machine::sharpen_timers();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        shown.worker(index).thread.store(u32::try_from(thread).unwrap_or(0), Ordering::Relaxed);
        let _ = begun.send(());
        worker.run();
        std::mem::forget(alarm);
    };
    let thread = std::thread::Builder::new().name(format!("madplane-w{index}")).spawn(body);
    let thread = thread.map_err(StartError::Thread)?;
    // a plane that is ready has workers that are; one that panics instead ends the process
    let _ = begins.recv();
    Ok(thread)
}

/// Bytes of huge pages that the plane may take for itself: what is left for sessions is what was said, or half.
fn own_huge_budget(config: &Config) -> usize {
    let free = machine::free_huge_bytes();
    let sessions = config.session_bytes().map_or(free / 2, |limits| limits.iter().sum());
    usize::try_from(free.saturating_sub(sessions)).unwrap_or(usize::MAX)
}

/// Whether a session could be in huge pages now; the answer may change, so every session tries for itself.
fn huge_pages_are_free() -> bool {
    map::create_memfd("probe", map::HUGE_PAGE_BYTES, true).is_ok()
}

fn fill_status(status: &Status, config: &Config, topology: &Topology, huge_pages: bool) {
    let plane = status.plane();
    plane.fabric.store(&config.fabric().to_string());
    plane.program.store(env!("CARGO_PKG_VERSION"));
    plane.started_unix_ns.store(unix_ns(), Ordering::Relaxed);
    plane.nodes.store(topology.nodes.len() as u64, Ordering::Relaxed);
    plane.links.store(topology.link_count() as u64, Ordering::Relaxed);
    plane.workers.store(u32::try_from(config.workers()).unwrap_or(0), Ordering::Relaxed);
    plane.session_slots.store(u32::try_from(config.session_slots()).unwrap_or(0), Ordering::Relaxed);
    plane.huge_pages.store(u32::from(huge_pages), Ordering::Relaxed);
    plane.mode.store(config.tuning().mode() as u32, Ordering::Relaxed);
}

fn fabric_error(config: &Config, reason: &str) -> StartError {
    StartError::Fabric { source_name: config.fabric().to_string(), reason: reason.to_owned() }
}

fn load_fabric(config: &Config) -> Result<Topology, StartError> {
    let fail = |reason: String| fabric_error(config, &reason);
    let topology = match config.fabric() {
        FabricSource::Builtin(spec) => {
            madplane_topology::from_spec(spec).map_err(|error| fail(error.to_string()))?
        }
        FabricSource::File(path) => {
            let text = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
            let options = ParseOptions { strict: config.strict(), ..ParseOptions::default() };
            let parsed =
                madplane_topology::parse(&text, &options).map_err(|error| fail(error.to_string()))?;
            for warning in parsed.warnings.iter().take(20) {
                tracing::warn!("{}: {warning}", path.display());
            }
            if parsed.warnings.len() > 20 {
                tracing::warn!("{}: {} further warnings", path.display(), parsed.warnings.len() - 20);
            }
            parsed.topology
        }
    };
    if topology.nodes.is_empty() {
        return Err(fail("has no nodes".to_owned()));
    }
    Ok(topology)
}

fn choose_place(config: &Config, topology: &Topology) -> Result<(u32, u8), StartError> {
    let Some(selector) = config.at() else {
        return default_place(topology).map_err(|reason| fabric_error(config, &reason));
    };
    let fail = |reason: String| StartError::At { selector: selector.to_owned(), reason };
    let end =
        madplane_topology::parse_endpoint(topology, selector).map_err(|error| fail(error.to_string()))?;
    session_place(topology, end.node, (end.port != 0).then_some(end.port)).map_err(fail)
}

fn listen(path: &std::path::Path) -> Result<OwnedFd, StartError> {
    let fail = |source: std::io::Error| StartError::Directory { path: path.display().to_string(), source };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|e| fail(e.into()))?;
    // the lock is ours, so a socket that is there belongs to nobody
    let _ = std::fs::remove_file(path);
    let address = SocketAddrUnix::new(path).map_err(|e| fail(e.into()))?;
    rustix::net::bind(&socket, &address).map_err(|e| fail(e.into()))?;
    // who may come in is decided by the directory, and by who the kernel says it is (`attach/tenancy.rs`)
    std::fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(fail)?;
    rustix::net::listen(&socket, 128).map_err(|e| fail(e.into()))?;
    Ok(socket)
}
