//! A worker on a thread of its own and a client that asks, waits for every answer and counts.
//!
//! The worker sleeps without a net: only doorbells, moderation and the fabric's own timers end a sleep, so a lost wake-up is
//! a hang, which the client's patience turns into a failure.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use madplane_dataplane::agents::{AgentId, AgentSpec};
use madplane_dataplane::mesh::mesh;
use madplane_dataplane::orders::{Order, OrderDesk, Report, order_rings};
use madplane_dataplane::route_view::RouteView;
use madplane_dataplane::sessions::Session;
use madplane_dataplane::sleep::WorkerBell;
use madplane_dataplane::worker::{NewLink, Worker};
use madplane_engine::{FabricOptions, FabricPlan};
use madplane_port::MadMessage;
use madplane_port::datagram::pair::{Faults, pair};
use madplane_port::session::split;
use madplane_shm::counters::Counter;
use madplane_shm::doorbell::Doorbell;
use madplane_shm::header::Incarnation;
use madplane_shm::message::kind;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::session::{ClientEnds, create_pair, open_pair};
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering;
use madplane_shm::table::TableOptions;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::tuning::{Tuning, TuningPatch};
use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind, PortRef, Topology};
use madplane_wire::mad::{class, method};
use madplane_wire::smp::attr;
use madplane_wire::{Mad, SmpMut};

const SLOTS: u64 = 256;

/// What the worker counted.
#[derive(Debug)]
pub(crate) struct Counted(Vec<(Counter, u64)>);

impl Counted {
    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.0[counter as usize].1
    }
}

/// The worker and its client.
pub(crate) struct Stand {
    client: ClientEnds<MadMessage, MadMessage>,
    agent: AgentId,
    bell: Arc<Doorbell>,
    desk: OrderDesk,
    thread: Option<JoinHandle<()>>,
    status: Status,
    table: RoutePublisher,
    asked: u64,
    answered: u64,
    /// Where the asked node is.
    path: Vec<u8>,
    directory: tempfile::TempDir,
}

impl Stand {
    /// Starts a worker that waits as `tune` says, without a net.
    pub(crate) fn with(tune: &str, shares_core: bool) -> Self {
        Self::start(tune, shares_core, false)
    }

    pub(crate) fn start(tune: &str, shares_core: bool, net: bool) -> Self {
        let topology = madplane_topology::from_spec("fat-tree,radix=4,levels=2").unwrap();
        Self::of(&topology, tune, shares_core, net)
    }

    /// Two of a host at a switch each, their switches linked; the first asks the switch of the second.
    pub(crate) fn linked(tune: &str) -> (Self, Self) {
        let mut topology = Topology::default();
        topology.nodes.push(Node::new(NodeKind::Switch, 0x51, 4, "S"));
        topology.nodes.push(Node::new(NodeKind::Ca, 0xA0, 1, "H"));
        let (switch, host) = (PortRef { node: 0, port: 1 }, PortRef { node: 1, port: 1 });
        assert!(topology.connect(switch, host, LinkWidth::X4, LinkSpeed::Edr));
        let (a, b) = pair(256, Faults::default()).unwrap();
        let (mut one, mut other) =
            (Self::of(&topology, tune, false, false), Self::of(&topology, tune, false, false));
        for (stand, transport) in [(&mut one, a), (&mut other, b)] {
            let transport = Box::new(transport);
            let new = NewLink { number: 3, node: 0, port: 4, node_guid: 0x51, transport };
            assert!(matches!(stand.order(Order::OpenLink(Box::new(new))), Report::Done(None)));
        }
        let mut watch = Watch::new(Duration::from_secs(20), "the link does not come up");
        while [&one, &other].iter().any(|stand| stand.status.link(3).ups.load(Ordering::Relaxed) == 0) {
            watch.pause();
        }
        one.path = vec![1, 4];
        (one, other)
    }

    fn of(topology: &Topology, tune: &str, shares_core: bool, net: bool) -> Self {
        let tuning = Tuning::default().with(&patch(tune)).unwrap();
        let plan = FabricPlan::new(topology, &FabricOptions { shards: 1 }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        let (table, view) = fresh_table(&directory.path().join("first"));
        let (desk, orders) = order_rings(Arc::new(Doorbell::create().unwrap()));
        let worker_bell = WorkerBell::create().unwrap();
        let mut worker =
            Worker::new(0, plan.build_shard(topology, 0), mesh(1).pop().unwrap(), orders, status.clone())
                .tuned(tuning, shares_core)
                .sleeping(worker_bell.clone(), vec![worker_bell.clone()])
                .unwrap();
        if !net {
            worker = worker.without_net();
        }
        let (plane, fds) = create_pair("modes", SLOTS, false, Incarnation::default()).unwrap();
        let node = u32::try_from(topology.nodes.len() - 1).unwrap();
        let (rx, tx) = split(plane, Doorbell::create().unwrap(), SLOTS);
        let agent = AgentId { slot: 0, generation: 1, agent: 0 };
        let mut session = Session::new(agent.slot, agent.generation, (node, 1), rx, tx);
        let bell = Arc::new(Doorbell::create().unwrap());
        session.bell = Some(bell.clone());
        let thread = std::thread::spawn(move || worker.run());
        let mut made = Self {
            client: open_pair(&fds).unwrap(),
            agent,
            bell,
            desk: desk.waking(worker_bell),
            thread: Some(thread),
            status,
            table,
            asked: 0,
            answered: 0,
            path: Vec::new(),
            directory,
        };
        let spec = AgentSpec { mgmt_class: class::SUBN_DIRECTED, class_version: 1, ..AgentSpec::default() };
        for order in [
            Order::Routes(Box::new(view)),
            Order::Open(Box::new(session)),
            Order::Register { id: agent, spec },
        ] {
            made.order(order);
        }
        made
    }

    fn order(&mut self, order: Order) -> Report {
        self.desk.give(order).unwrap();
        let mut watch = Watch::new(Duration::from_secs(20), "the worker takes no order");
        loop {
            if let Some(report) = self.desk.report() {
                return report;
            }
            watch.pause();
        }
    }

    fn push(&mut self) {
        let mut message = MadMessage::default();
        message.envelope.kind = kind::MAD;
        message.envelope.length = 256;
        message.envelope.agent = self.agent.hi_tid();
        message.envelope.dlid = 0xffff;
        SmpMut::new(&mut message.mad).init_directed(method::GET, attr::NODE_INFO, 0, self.asked, &self.path);
        self.client.up.push(&message).unwrap();
        self.asked += 1;
    }

    fn flush(&mut self) {
        if self.client.up.wake_due() {
            self.bell.ring();
        }
    }

    /// Takes what is there; every answer has to be the next one.
    fn take(&mut self) -> u64 {
        let mut message = MadMessage::default();
        let mut taken = 0;
        while self.client.down.pop(&mut message) {
            let mad = Mad::new(&message.mad);
            assert!(mad.is_response());
            assert_eq!(mad.tid() & 0xffff_ffff, self.answered & 0xffff_ffff, "answers come in order");
            self.answered += 1;
            taken += 1;
        }
        self.client.down.commit();
        taken
    }

    /// Asks `count` times with up to `depth` requests outstanding, and waits for all answers.
    pub(crate) fn exchange(&mut self, count: u64, depth: u64, patience: Duration) {
        let end = self.asked + count;
        let mut watch = Watch::new(patience, "an answer is missing");
        while self.answered < end {
            while self.asked < end && self.asked - self.answered < depth {
                self.push();
            }
            self.flush();
            if self.take() == 0 { watch.pause() } else { watch.reset() }
        }
    }

    /// Asks `count` times, ringing after each if that is due, and waits for all answers.
    pub(crate) fn trickle(&mut self, count: u64, patience: Duration) {
        for _ in 0..count {
            self.push();
            self.flush();
        }
        let mut watch = Watch::new(patience, "an answer is missing");
        while self.answered < self.asked {
            if self.take() == 0 { watch.pause() } else { watch.reset() }
        }
    }

    /// Publishes a tuning and wakes the worker as housekeeping does; the generation.
    pub(crate) fn tune(&mut self, text: &str) -> u64 {
        self.table.set_worker_tuning(0, &patch(text));
        let generation = self.table.publish();
        self.desk.wake_worker();
        generation
    }

    /// Gives the worker another table, which asks for nothing yet.
    pub(crate) fn replace_table(&mut self) {
        let (table, view) = fresh_table(&self.directory.path().join("second"));
        self.table = table;
        assert!(matches!(self.order(Order::Routes(Box::new(view))), Report::Replaced(Some(_))));
    }

    /// Waits until the worker says that it has a generation.
    pub(crate) fn wait_for(&self, generation: u64, patience: Duration) {
        let mut watch = Watch::new(patience, "the worker does not follow the table");
        while self.status.worker(0).applied_generation.load(Ordering::Acquire) < generation {
            watch.pause();
        }
    }

    /// The tuning that the worker shows.
    pub(crate) fn shown(&self) -> String {
        Tuning::load(&self.status.worker(0).tuning).to_string()
    }

    /// When it last showed that it lives, and how long it has slept.
    pub(crate) fn heartbeat(&self) -> (u64, u64) {
        let block = self.status.worker(0);
        (block.heartbeat_ns.load(Ordering::Relaxed), block.slept_ns.load(Ordering::Relaxed))
    }

    /// Stops the worker; what it counted.
    pub(crate) fn finish(mut self) -> Counted {
        self.order(Order::Stop);
        self.thread.take().unwrap().join().unwrap();
        let block = self.status.worker(0);
        let count = |counter: &Counter| (*counter, block.counters[*counter as usize].load(Ordering::Relaxed));
        Counted(Counter::ALL.iter().map(count).collect())
    }
}

/// An empty table in a folder of its own, and a view of it.
fn fresh_table(folder: &Path) -> (RoutePublisher, RouteView) {
    std::fs::create_dir(folder).unwrap();
    let (path, options) = (folder.join("table"), TableOptions { routes: 16, tenants: 4 });
    let table = RoutePublisher::create(&path, options, Incarnation::default()).unwrap();
    let counters = RouteCounters::create(&folder.join("routes"), 16, Incarnation::default()).unwrap();
    (table, RouteView::new(TableReader::open(&path).unwrap(), Arc::new(counters), true))
}

fn patch(text: &str) -> TuningPatch {
    TuningPatch::parse(text.split_whitespace()).unwrap()
}

/// Ends a wait that would never end.
struct Watch {
    from: Instant,
    patience: Duration,
    complaint: &'static str,
    pauses: u32,
}

impl Watch {
    fn new(patience: Duration, complaint: &'static str) -> Self {
        Self { from: Instant::now(), patience, complaint, pauses: 0 }
    }

    fn reset(&mut self) {
        self.pauses = 0;
        self.from = Instant::now();
    }

    fn pause(&mut self) {
        self.pauses += 1;
        if self.pauses.is_multiple_of(256) {
            assert!(self.from.elapsed() < self.patience, "{}", self.complaint);
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}
