//! Housekeeping: attach socket, sessions, SM holds, control channel, liveness.
//!
//! One thread, asleep in epoll. A connection ends a session, whichever side closes it and however; the kernel says so at
//! once when a client is killed. Nothing here is on the way of a MAD. Workers are asked by orders and answer by reports;
//! an order takes them one duty cycle, so housekeeping waits for it.

mod binding;
mod connections;
pub mod devices;
mod links;
mod placement;
mod requests;
mod routes;
mod tenancy;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use madplane_engine::{FabricPlan, NodeId};
use madplane_port::machine;
use madplane_shm::command::{Command, Event};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{AUTO_PREFIX, DEVICE_PREFIX};
use madplane_shm::header::Incarnation;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::session::{SharedConsumer, SharedProducer};
use madplane_shm::status::{MAX_LINKS, MAX_SESSIONS, Status};
use madplane_shm::sync::Ordering;
use madplane_shm::table::snapshot::TableReader;
use madplane_topology::{NodeKind, PortRef, Topology};
use rustix::event::epoll;
use rustix::io::Errno;

use crate::acl::Membership;
use crate::config::Config;
use crate::cores::Cores;
use crate::links::open::Transports;
use crate::memory::{Portion, SessionMemory};
use crate::notices::{Digest, NoticeDesk};
use crate::orders::{Order, OrderDesk, Report};
use crate::service::Service;
use madplane_shm::process::monotonic_ns;
use tenancy::Peer;

/// How long housekeeping waits for a worker before it gives the order up.
const ORDER_PATIENCE: Duration = Duration::from_secs(2);
/// Housekeeping comes by at least this often, to show that it lives.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// What epoll tells apart.
mod token {
    pub(super) const LISTENER: u64 = u64::MAX;
    pub(super) const SIGNALS: u64 = u64::MAX - 1;
    pub(super) const REPORTS: u64 = u64::MAX - 2;
    pub(super) const COMMANDS: u64 = u64::MAX - 3;
    pub(super) const RELOAD: u64 = u64::MAX - 4;
}

/// What a connection is for.
#[derive(Debug)]
enum Role {
    /// Has not said.
    New,
    /// A session.
    Session { slot: u32 },
    /// Holds, or waits for, the SM bit of a port.
    SmHold { place: (NodeId, u8), held: bool },
    /// The control process.
    Control,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    peer: Peer,
    role: Role,
}

/// A session slot as housekeeping knows it.
#[derive(Debug, Default, Clone, Copy)]
struct Slot {
    generation: u32,
    open: bool,
    place: (NodeId, u8),
    agents: u32,
    member: Membership,
    bound: bool,
    /// Memory of its rings.
    memory: Portion,
}

/// The control channel.
#[derive(Debug)]
struct ControlChannel {
    commands: SharedConsumer<Command>,
    command_bell: Doorbell,
    events: SharedProducer<Event>,
    event_bell: Doorbell,
}

/// The housekeeping thread's state.
#[derive(Debug)]
pub struct Housekeeping {
    config: Config,
    topology: Topology,
    plan: Arc<FabricPlan>,
    status: Status,
    me: Incarnation,
    /// The user that runs the plane.
    owner: u32,
    default_place: (NodeId, u8),
    desks: Vec<OrderDesk>,
    notices: Vec<NoticeDesk>,
    digest: Digest,
    reports_bell: Arc<Doorbell>,
    epoll: OwnedFd,
    listener: OwnedFd,
    connections: Vec<Option<Connection>>,
    slots: Vec<Slot>,
    control: Option<ControlChannel>,
    sm_waiting: VecDeque<usize>,
    memory: SessionMemory,
    /// Cores of each NUMA node.
    numa_nodes: Vec<Vec<usize>>,
    /// It was said that there are no huge pages for sessions.
    lacks_huge: bool,
    /// The table that the workers read, and its counters.
    table: Option<(TableReader, Arc<RouteCounters>)>,
    /// Where the workers are.
    cores: Cores,
    looked_at_cores: Instant,
    /// Links to other planes, by number.
    links: Vec<Option<links::Held>>,
    /// How often each was seen to come up and go down.
    links_seen: Vec<(u64, u64)>,
    /// When to try again what could not be opened.
    links_again: Option<Instant>,
    /// What links are made on.
    transports: Transports,
    /// RDMA devices, by number.
    devices: Vec<devices::Held>,
    looked_at_devices: Instant,
    /// The last complaint about the table, so that it is made once.
    table_complaint: String,
    service: Service,
}

/// What housekeeping needs to start.
#[derive(Debug)]
pub struct HousekeepingParts {
    /// Configuration.
    pub config: Config,
    /// The fabric.
    pub topology: Topology,
    /// Its division among workers.
    pub plan: Arc<FabricPlan>,
    /// Status segment.
    pub status: Status,
    /// Identity of this process.
    pub me: Incarnation,
    /// Where sessions attach by default.
    pub default_place: (NodeId, u8),
    /// Orders to each worker.
    pub desks: Vec<OrderDesk>,
    /// Notices of each worker.
    pub notices: Vec<NoticeDesk>,
    /// Rung by workers for every report.
    pub reports_bell: Arc<Doorbell>,
    /// Listening attach socket.
    pub listener: OwnedFd,
    /// Huge pages are wanted, and there were some.
    pub huge_pages: bool,
    /// Where the workers are.
    pub cores: Cores,
}

impl Housekeeping {
    /// Prepares epoll; nothing is accepted yet.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new(parts: HousekeepingParts) -> Result<Self, Errno> {
        let HousekeepingParts {
            config,
            topology,
            plan,
            status,
            me,
            default_place,
            desks,
            notices,
            reports_bell,
            listener,
            huge_pages,
            cores,
        } = parts;
        let numa_nodes = machine::numa_nodes();
        let limits = config.session_bytes().map(<[u64]>::to_vec);
        let memory = SessionMemory::new(numa_nodes.len(), limits, config.huge_pages().is_some());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        add(&epoll, &listener, token::LISTENER)?;
        add(&epoll, &*reports_bell, token::REPORTS)?;
        Ok(Self {
            config,
            topology,
            plan,
            status,
            me,
            owner: rustix::process::geteuid().as_raw(),
            default_place,
            desks,
            notices,
            digest: Digest::default(),
            reports_bell,
            epoll,
            listener,
            connections: Vec::new(),
            slots: vec![Slot::default(); MAX_SESSIONS],
            control: None,
            sm_waiting: VecDeque::new(),
            memory,
            numa_nodes,
            lacks_huge: !huge_pages,
            table: None,
            cores,
            looked_at_cores: Instant::now(),
            links: links::none(),
            links_seen: vec![(0, 0); MAX_LINKS],
            links_again: None,
            transports: Transports::default(),
            devices: Vec::new(),
            looked_at_devices: Instant::now(),
            table_complaint: String::new(),
            service: Service::default(),
        })
    }

    /// Tells a service manager how the plane is.
    pub fn serve_for(&mut self, service: Service) {
        self.service = service;
    }

    /// Serves until `stop` becomes readable, then stops the workers.
    ///
    /// # Errors
    /// epoll itself failed.
    pub fn serve(&mut self, stop: impl AsFd) -> Result<(), Errno> {
        add(&self.epoll, &stop, token::SIGNALS)?;
        if let Some(reload) = self.service.reload_fd() {
            add(&self.epoll, reload, token::RELOAD)?;
        }
        let longest = self.service.longest_sleep().map_or(HEARTBEAT, |ours| ours.min(HEARTBEAT));
        let longest = rustix::time::Timespec {
            tv_sec: 0,
            // at most half a second
            tv_nsec: longest.subsec_nanos().into(),
        };
        self.service.begin(&self.status);
        let mut events = Vec::with_capacity(64);
        loop {
            self.status.plane().heartbeat_ns.store(monotonic_ns(), Ordering::Relaxed);
            self.look_for_table();
            self.show_tenants();
            self.read_notices();
            self.look_at_cores();
            self.show_links();
            self.watch_links();
            self.watch_devices();
            self.service.come_by(&self.status);
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&longest)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            for event in &events {
                match event.data.u64() {
                    token::LISTENER => self.accept(),
                    token::RELOAD => self.reload(),
                    token::SIGNALS => {
                        self.service.stopping();
                        self.stop_workers();
                        return Ok(());
                    }
                    token::REPORTS => {
                        self.reports_bell.take();
                    }
                    token::COMMANDS => self.commands(),
                    index => self.readable(usize::try_from(index).unwrap_or(usize::MAX)),
                }
            }
        }
    }

    /// Looks at once at what it otherwise finds when it comes by: the table, and the cores that it may use.
    fn reload(&mut self) {
        self.service.reloading();
        self.look_at_cores_now();
        self.table_complaint.clear();
        self.look_for_table();
        tracing::info!("looked at cores and table again");
        self.service.reloaded(&self.status);
    }

    fn stop_workers(&mut self) {
        for worker in 0..self.desks.len() {
            let _ = self.ask(worker, Order::Stop);
        }
    }

    /// Gives an order to a worker and waits for its report.
    fn ask(&mut self, worker: usize, order: Order) -> Option<Report> {
        let desk = self.desks.get_mut(worker)?;
        desk.give(order).ok()?;
        let given = Instant::now();
        loop {
            if let Some(report) = desk.report() {
                return Some(report);
            }
            if given.elapsed() > ORDER_PATIENCE {
                self.error("a worker does not answer housekeeping");
                return None;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// The worker that owns a node or serves a device.
    fn worker_of(&self, node: NodeId) -> usize {
        self.worker_of_device(node).unwrap_or_else(|| self.plan.shard_of(node))
    }

    /// Passes on what workers have to say.
    fn read_notices(&mut self) {
        let now_ns = monotonic_ns();
        for desk in &mut self.notices {
            while let Some(notice) = desk.take() {
                let text = notice.to_string();
                self.status.record_error(&text, madplane_shm::process::unix_ns());
                if self.digest.wants(notice, now_ns) {
                    tracing::warn!(held_back = self.digest.take_held_back(), "{text}");
                }
            }
        }
    }

    /// Notes an error for operators.
    fn error(&self, text: &str) {
        tracing::warn!("{text}");
        self.status.record_error(text, madplane_shm::process::unix_ns());
    }

    /// Resolves a selector to a node, or a device, and the port at which a session would sit.
    fn place(&self, selector: &str) -> Result<(NodeId, u8), String> {
        if selector.is_empty() {
            return Ok(self.default_place);
        }
        if let Some(device) = selector.strip_prefix(DEVICE_PREFIX) {
            return self.device_place(device);
        }
        if let Some(device) = selector.strip_prefix(AUTO_PREFIX) {
            return Ok(self.device_place(device).unwrap_or(self.default_place));
        }
        let end = madplane_topology::parse_endpoint(&self.topology, selector).map_err(|e| e.to_string())?;
        session_place(&self.topology, end.node, (end.port != 0).then_some(end.port))
    }
}

/// The port at which a session on `node` sits: port 0 of a switch, the named or first cabled port of an adapter.
///
/// # Errors
/// One line that says why there is none.
pub fn session_place(topology: &Topology, node: NodeId, port: Option<u8>) -> Result<(NodeId, u8), String> {
    let Some(there) = topology.nodes.get(node as usize) else { return Err(format!("no node {node}")) };
    match (there.kind, port) {
        (NodeKind::Switch, None | Some(0)) => Ok((node, 0)),
        (NodeKind::Switch, Some(_)) => {
            Err(format!("{:?} is a switch: sessions attach to its port 0", there.description))
        }
        (_, Some(port)) if port <= there.num_ports() => Ok((node, port)),
        (_, Some(port)) => {
            Err(format!("{:?} has ports 1 to {}, not {port}", there.description, there.num_ports()))
        }
        (_, None) => {
            let cabled = (1..=there.num_ports())
                .find(|p| topology.port(PortRef { node, port: *p }).is_some_and(|port| port.peer.is_some()));
            Ok((node, cabled.unwrap_or(1)))
        }
    }
}

/// Where sessions attach unless they say otherwise: the first cabled adapter port, or the first node.
///
/// # Errors
/// The fabric has no nodes.
pub fn default_place(topology: &Topology) -> Result<(NodeId, u8), String> {
    let cabled = |node: &madplane_topology::Node| node.ports.iter().any(|port| port.peer.is_some());
    let adapter = topology.nodes.iter().position(|node| node.kind == NodeKind::Ca && cabled(node));
    let node = NodeId::try_from(adapter.unwrap_or(0)).map_err(|_| "too many nodes".to_owned())?;
    session_place(topology, node, None)
}

fn add(epoll: &OwnedFd, fd: impl AsFd, token: u64) -> Result<(), Errno> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
}
