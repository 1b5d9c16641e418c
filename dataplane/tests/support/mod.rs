//! Workers without threads over a small fabric, driven by hand: rings, checks and engine are those of a running plane.
//!
//! ```text
//!  A (0) p1 ── p1 S1 (1) p2 ══ p2 S2 (2) p1 ── p1 B (3)
//!                        p3 ══ p3
//! ```
//! Forwarding tables take the link of ports 2.
#![allow(dead_code, reason = "every test file uses another part")]
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::sync::Arc;

use madplane_dataplane::acl::{Membership, Meters};
use madplane_dataplane::agents::{AgentId, AgentSpec, RegisterError};
use madplane_dataplane::devices::DeviceEnd;
use madplane_dataplane::mesh::mesh;
use madplane_dataplane::notices::{NoticeDesk, notice_ring};
use madplane_dataplane::orders::{Order, OrderDesk, Report, order_rings};
use madplane_dataplane::route_view::RouteView;
use madplane_dataplane::sessions::Session;
use madplane_dataplane::worker::{NewLink, Worker};
use madplane_engine::{FabricOptions, FabricPlan, NodeId, PinnedRoute};
use madplane_port::MadMessage;
use madplane_port::datagram::Datagrams;
use madplane_port::datagram::pair::{Faults, pair};
use madplane_port::device::PortIdentity;
use madplane_port::opened::MadDevice;
use madplane_port::session::split;
use madplane_shm::counters::Counter;
use madplane_shm::doorbell::Doorbell;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::header::Incarnation;
use madplane_shm::message::{Envelope, kind};
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::session::{ClientEnds, create_pair, open_pair};
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::tenant::TenantEntry;
use madplane_shm::table::{RouteEntry, TableOptions};
use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind, PortRef, Topology};
use madplane_wire::mad::{class, field as mad, method};
use madplane_wire::smp::port_info::{field as pi, state};
use madplane_wire::smp::switch_info::field as si;
use madplane_wire::smp::{attr, field as smp};
use madplane_wire::{MadMut, SmpMut};

pub(crate) const A: NodeId = 0;
pub(crate) const S1: NodeId = 1;
pub(crate) const S2: NodeId = 2;
pub(crate) const B: NodeId = 3;
pub(crate) const LID_A: u16 = 0x10;
pub(crate) const LID_S1: u16 = 2;
pub(crate) const LID_S2: u16 = 3;
pub(crate) const LID_B: u16 = 4;
/// From A to B by the tables, and by the other link.
pub(crate) const USUAL: &[u8] = &[1, 2, 1];
pub(crate) const OTHER: &[u8] = &[1, 3, 1];

/// Node GUIDs by node.
pub(crate) const GUIDS: [u64; 4] = [0xA0, 0x51, 0x52, 0xB0];

fn topology() -> Topology {
    let mut t = Topology::default();
    t.nodes.push(Node::new(NodeKind::Ca, GUIDS[0], 1, "A"));
    t.nodes.push(Node::new(NodeKind::Switch, GUIDS[1], 4, "S1"));
    t.nodes.push(Node::new(NodeKind::Switch, GUIDS[2], 4, "S2"));
    t.nodes.push(Node::new(NodeKind::Ca, GUIDS[3], 1, "B"));
    let end = |(node, port)| PortRef { node, port };
    for (a, b) in [((A, 1), (S1, 1)), ((S1, 2), (S2, 2)), ((S1, 3), (S2, 3)), ((S2, 1), (B, 1))] {
        assert!(t.connect(end(a), end(b), LinkWidth::X4, LinkSpeed::Edr));
    }
    t
}

/// The client's half of a session.
pub(crate) struct Client {
    pub(crate) slot: u32,
    place: (NodeId, u8),
    ends: ClientEnds<MadMessage, MadMessage>,
    agents: u32,
}

/// A plane in one thread.
pub(crate) struct Fleet {
    plan: FabricPlan,
    workers: Vec<Worker>,
    desks: Vec<OrderDesk>,
    notices: Vec<NoticeDesk>,
    status: Status,
    pub(crate) table: RoutePublisher,
    routes: Arc<RouteCounters>,
    pub(crate) clients: Vec<Client>,
    pub(crate) now_ns: u64,
    tid: u32,
    _directory: tempfile::TempDir,
}

/// A link as the status segment shows it.
#[derive(Debug)]
pub(crate) struct LinkSeen {
    pub(crate) lost: u64,
    pub(crate) downs: u64,
}

/// What all workers together have dropped, by reason.
pub(crate) type Drops = Vec<u64>;

impl Fleet {
    /// Starts `workers` workers and brings the fabric up: LIDs, tables, Active links. Client 0 is at A and nobody's.
    pub(crate) fn new(workers: usize) -> Self {
        let topology = topology();
        let plan = FabricPlan::new(&topology, &FabricOptions { shards: workers }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        let path = directory.path().join("table");
        let options = TableOptions { routes: 16, tenants: 16 };
        let table = RoutePublisher::create(&path, options, Incarnation::default()).unwrap();
        let counters = RouteCounters::create(&directory.path().join("routes"), 16, Incarnation::default());
        let counters = Arc::new(counters.unwrap());
        let bell = Arc::new(Doorbell::create().unwrap());
        let meters = Arc::new(Meters::default());
        let mut this = Self {
            workers: Vec::new(),
            desks: Vec::new(),
            notices: Vec::new(),
            status: status.clone(),
            table,
            routes: counters.clone(),
            clients: Vec::new(),
            now_ns: 1_000_000_000,
            tid: 0,
            plan,
            _directory: directory,
        };
        for (index, ends) in mesh(workers).into_iter().enumerate() {
            let (desk, orders) = order_rings(bell.clone());
            let (notice_box, notices) = notice_ring();
            let shard = this.plan.build_shard(&topology, index);
            let worker =
                Worker::new(index, shard, ends, orders, status.clone()).among(meters.clone(), notice_box);
            this.workers.push(worker);
            this.desks.push(desk);
            this.notices.push(notices);
            let view = RouteView::new(TableReader::open(&path).unwrap(), counters.clone(), index == 0);
            assert!(matches!(this.ask(index, Order::Routes(Box::new(view))), Report::Replaced(None)));
        }
        this.open((A, 1), Membership::NONE, &[agent(0x81, &[]), agent(0x01, &[]), agent(0x04, &[])]);
        this.bring_up();
        this
    }

    fn ask(&mut self, worker: usize, order: Order) -> Report {
        self.desks[worker].give(order).unwrap();
        self.now_ns += 1;
        self.workers[worker].poll(self.now_ns);
        self.desks[worker].report().unwrap()
    }

    /// Opens a session with agents; its number.
    pub(crate) fn open(&mut self, place: (NodeId, u8), member: Membership, agents: &[AgentSpec]) -> usize {
        self.open_with(place, member, agents, 256)
    }

    pub(crate) fn open_with(
        &mut self,
        place: (NodeId, u8),
        member: Membership,
        agents: &[AgentSpec],
        slots: u64,
    ) -> usize {
        let slot = u32::try_from(self.clients.len()).unwrap();
        let (plane, fds) = create_pair("fleet", slots, false, Incarnation::default()).unwrap();
        let (rx, tx) = split(plane, Doorbell::create().unwrap(), slots);
        let mut session = Session::new(slot, 1, place, rx, tx);
        session.out.member = member;
        let worker = if place.0 < 4 { self.plan.shard_of(place.0) } else { 0 };
        assert!(matches!(self.ask(worker, Order::Open(Box::new(session))), Report::Done(_)));
        for (number, spec) in (0..).zip(agents) {
            let id = AgentId { slot, generation: 1, agent: number };
            let report = self.ask(worker, Order::Register { id, spec: *spec });
            assert!(matches!(report, Report::Done(_)), "{report:?}");
        }
        let agents = u32::try_from(agents.len()).unwrap();
        self.clients.push(Client { slot, place, ends: open_pair(&fds).unwrap(), agents });
        self.clients.len() - 1
    }

    /// Gives a session a path of its own, as housekeeping does: by an order to every worker.
    pub(crate) fn bind(&mut self, client: usize, route: Option<PinnedRoute>) {
        let slot = self.clients[client].slot;
        for worker in 0..self.workers.len() {
            self.ask(worker, Order::Bind { slot, route: route.map(Box::new) });
        }
    }

    pub(crate) fn hi_tid(&self, client: usize, agent: u32) -> u32 {
        AgentId { slot: self.clients[client].slot, generation: 1, agent }.hi_tid()
    }

    /// Puts a MAD into a session's ring, from its agent 0; nothing moves yet.
    pub(crate) fn push(&mut self, client: usize, mut message: MadMessage) {
        message.envelope.kind = kind::MAD;
        message.envelope.length = 256;
        message.envelope.agent = self.hi_tid(client, 0);
        self.clients[client].ends.up.push(&message).unwrap();
    }

    /// One duty cycle of every worker.
    pub(crate) fn poll(&mut self) -> usize {
        self.now_ns += 1_000;
        let now_ns = self.now_ns;
        self.workers.iter_mut().map(|worker| worker.poll(now_ns)).sum()
    }

    /// One duty cycle of one worker.
    pub(crate) fn poll_one(&mut self, worker: usize) -> usize {
        self.now_ns += 1_000;
        self.workers[worker].poll(self.now_ns)
    }

    /// Pulls or plugs a cable.
    pub(crate) fn set_link(&mut self, node: NodeId, port: u8, up: bool) {
        let worker = self.plan.shard_of(node);
        self.ask(worker, Order::SetLink { node, port, up });
        self.run();
    }

    /// Gives a port a link to another plane.
    pub(crate) fn open_link(&mut self, number: u16, place: (NodeId, u8), transport: Box<dyn Datagrams>) {
        assert!(self.give_link(number, place, transport));
    }

    /// Gives a port a link to nowhere; whether it took it.
    pub(crate) fn try_open_link(&mut self, number: u16, place: (NodeId, u8)) -> bool {
        let (transport, _) = pair(4, Faults::default()).unwrap();
        self.give_link(number, place, Box::new(transport))
    }

    fn give_link(&mut self, number: u16, (node, port): (NodeId, u8), transport: Box<dyn Datagrams>) -> bool {
        let node_guid = GUIDS[node as usize];
        let new = NewLink { number, node, port, node_guid, transport };
        let worker = self.plan.shard_of(node);
        matches!(self.ask(worker, Order::OpenLink(Box::new(new))), Report::Done(None))
    }

    /// Takes a link away; whether it was there.
    pub(crate) fn close_link(&mut self, number: u16, node: NodeId) -> bool {
        let worker = self.plan.shard_of(node);
        matches!(self.ask(worker, Order::CloseLink { number }), Report::Unlinked(_))
    }

    /// Gives worker 0 a device; the place of its sessions.
    pub(crate) fn open_device(
        &mut self,
        number: usize,
        device: Box<dyn MadDevice>,
        identity: PortIdentity,
    ) -> (NodeId, u8) {
        let spec = "umad:loop,gid=2,peer=7@fe80::7".parse().unwrap();
        let end = DeviceEnd::new(number, &spec, device, identity).unwrap();
        let place = end.place();
        assert!(matches!(self.ask(0, Order::OpenDevice(Box::new(end))), Report::Done(None)));
        place
    }

    /// Takes a device away; whether it was there.
    pub(crate) fn close_device(&mut self, number: usize) -> bool {
        matches!(self.ask(0, Order::CloseDevice { number }), Report::DeviceClosed(_))
    }

    /// What the status segment says of a device: MADs sent, received, SMPs pinned, requests that wait, flags.
    pub(crate) fn device_record(&mut self, number: usize) -> ([u64; 4], u32) {
        self.show();
        let record = self.status.device(number);
        let words = [&record.sent, &record.received, &record.pinned, &record.requests];
        (words.map(|word| word.load(Ordering::Relaxed)), record.flags.load(Ordering::Relaxed))
    }

    /// Registers one more agent of a session.
    pub(crate) fn register(&mut self, client: usize, spec: AgentSpec) -> Result<u32, RegisterError> {
        let Client { slot, place, agents, .. } = self.clients[client];
        let worker = if place.0 < 4 { self.plan.shard_of(place.0) } else { 0 };
        match self.ask(worker, Order::Register { id: AgentId { slot, generation: 1, agent: agents }, spec }) {
            Report::Done(_) => {
                self.clients[client].agents += 1;
                Ok(agents)
            }
            Report::Refused(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    /// Ends a session.
    pub(crate) fn close(&mut self, client: usize) {
        let Client { slot, place, .. } = self.clients[client];
        let worker = if place.0 < 4 { self.plan.shard_of(place.0) } else { 0 };
        assert!(matches!(self.ask(worker, Order::Close { slot }), Report::Done(Some(_))));
    }

    /// What the status segment says of a link.
    pub(crate) fn link_record(&mut self, number: usize) -> LinkSeen {
        self.show();
        let record = self.status.link(number);
        let load = |word: &madplane_shm::sync::AtomicU64| word.load(Ordering::Relaxed);
        LinkSeen { lost: load(&record.lost), downs: load(&record.downs) }
    }

    /// Power-cycles a node.
    pub(crate) fn reboot(&mut self, node: NodeId) {
        let worker = self.plan.shard_of(node);
        self.ask(worker, Order::Reboot { node });
    }

    /// Duty cycles until nothing is left to do.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            if self.poll() == 0 {
                return;
            }
        }
        panic!("MADs keep circling");
    }

    /// Everything that a session has been given.
    pub(crate) fn take(&mut self, client: usize) -> Vec<MadMessage> {
        let down = &mut self.clients[client].ends.down;
        let mut got = Vec::new();
        let mut message = MadMessage::default();
        while down.pop(&mut message) {
            got.push(message);
        }
        down.commit();
        got
    }

    /// Sends a MAD and lets everything happen that follows.
    pub(crate) fn send(&mut self, client: usize, message: MadMessage) {
        self.push(client, message);
        self.run();
    }

    fn show(&mut self) {
        let now_ns = self.now_ns;
        self.workers.iter_mut().for_each(|worker| worker.commit(now_ns));
    }

    pub(crate) fn drops(&mut self) -> Drops {
        self.show();
        let of = |worker: usize, reason: DropReason| {
            self.status.worker(worker).drops[reason as usize].load(Ordering::Relaxed)
        };
        let workers = self.workers.len();
        DropReason::ALL.iter().map(|reason| (0..workers).map(|w| of(w, *reason)).sum()).collect()
    }

    /// What has been dropped since `before`.
    pub(crate) fn dropped_since(&mut self, before: &Drops) -> Vec<DropReason> {
        let now = self.drops();
        let mut all = Vec::new();
        for (reason, (now, before)) in DropReason::ALL.iter().zip(now.iter().zip(before)) {
            for _ in *before..*now {
                all.push(*reason);
            }
        }
        all
    }

    pub(crate) fn counter(&mut self, counter: Counter) -> u64 {
        self.show();
        let of =
            |worker: usize| self.status.worker(worker).counters[counter as usize].load(Ordering::Relaxed);
        (0..self.workers.len()).map(of).sum()
    }

    /// What workers have told housekeeping.
    pub(crate) fn told(&mut self) -> Vec<String> {
        self.notices
            .iter_mut()
            .flat_map(|desk| std::iter::from_fn(|| desk.take()))
            .map(|notice| notice.to_string())
            .collect()
    }

    /// Publishes what was changed in the table and lets workers take it over.
    pub(crate) fn publish(&mut self) {
        self.table.publish();
        self.poll();
    }

    pub(crate) fn set_tenant(&mut self, place: u32, entry: &TenantEntry) -> Membership {
        self.table.set_tenant(place, entry);
        self.publish();
        Membership { tenant: madplane_shm::table::tenant::number_of(place), id: entry.id }
    }

    pub(crate) fn set_route(&mut self, index: u32, route: Option<&RouteEntry>) {
        match route {
            Some(route) => self.table.set(index, route),
            None => self.table.clear(index),
        }
        self.publish();
    }

    /// How many packets have taken a route.
    pub(crate) fn route_uses(&self, index: u32) -> u64 {
        self.routes.get(index).0
    }

    fn next_tid(&mut self) -> u64 {
        self.tid += 1;
        u64::from(self.tid)
    }

    pub(crate) fn directed(&mut self, method: u8, path: &[u8], attribute: u16, modifier: u32) -> MadMessage {
        let mut message = MadMessage::default();
        let tid = self.next_tid();
        SmpMut::new(&mut message.mad).init_directed(method, attribute, modifier, tid, path);
        message.envelope = Envelope { dlid: 0xFFFF, ..Envelope::default() };
        message
    }

    pub(crate) fn by_lid(&mut self, method: u8, dlid: u16, attribute: u16, modifier: u32) -> MadMessage {
        let mut message = MadMessage::default();
        let tid = self.next_tid();
        SmpMut::new(&mut message.mad).init_lid_routed(method, attribute, modifier, tid);
        message.envelope = Envelope { dlid, ..Envelope::default() };
        message
    }

    pub(crate) fn gmp(&mut self, method: u8, mgmt_class: u8, dlid: u16, p_key_index: u16) -> MadMessage {
        let mut message = MadMessage::default();
        let tid = self.next_tid();
        let mut m = MadMut::new(&mut message.mad);
        m.set_base_version(1);
        m.set_mgmt_class(mgmt_class);
        m.set_class_version(1);
        m.set_method(method);
        m.set_tid(tid);
        m.set_attr_id(1);
        message.envelope =
            Envelope { dlid, dst_qp: 1, q_key: 0x8001_0000, p_key_index, ..Envelope::default() };
        message
    }

    /// Directed request of client 0: status and data of the answer.
    pub(crate) fn manage(
        &mut self,
        method: u8,
        path: &[u8],
        attribute: u16,
        modifier: u32,
        data: &[u8; 64],
    ) -> [u8; 64] {
        let (status, data) = self.ask_node(method, path, attribute, modifier, data);
        assert_eq!(status, 0, "{method:#x} of {attribute:#x} along {path:?}");
        data
    }

    fn ask_node(
        &mut self,
        method: u8,
        path: &[u8],
        attribute: u16,
        modifier: u32,
        data: &[u8; 64],
    ) -> (u16, [u8; 64]) {
        let mut message = self.directed(method, path, attribute, modifier);
        *SmpMut::new(&mut message.mad).data_mut() = *data;
        self.send(0, message);
        let got = self.take(0);
        assert_eq!(got.len(), 1, "{method:#x} of {attribute:#x} along {path:?}");
        (smp::STATUS.get_u16(&got[0].mad), got[0].mad[64..128].try_into().unwrap())
    }

    fn set_port(&mut self, path: &[u8], port: u32, fields: &[(madplane_wire::Field, u64)]) {
        let mut data = self.manage(method::GET, path, attr::PORT_INFO, port, &[0; 64]);
        pi::PORT_STATE.set(&mut data, 0);
        pi::PORT_PHYS_STATE.set(&mut data, 0);
        for (field, value) in fields {
            field.set(&mut data, *value);
        }
        // refused for its master SM LID of 0, which is what keeps ports from sending traps: the rest counts
        self.ask_node(method::SET, path, attr::PORT_INFO, port, &data);
    }

    /// Programs the P_Key table of a port: A is `&[]` with port 1, B [`USUAL`] with port 1.
    pub(crate) fn set_p_keys(&mut self, path: &[u8], keys: &[u16]) {
        let mut data = [0; 64];
        for (place, key) in data.chunks_exact_mut(2).zip(keys) {
            place.copy_from_slice(&key.to_be_bytes());
        }
        self.manage(method::SET, path, attr::PKEY_TABLE, 0, &data);
    }

    /// Packets that left and entered a port of S1, by its performance agent; asking takes neither link to S2.
    pub(crate) fn traffic(&mut self, port: u8) -> (u64, u64) {
        let mut ask = self.gmp(method::GET, class::PERF, LID_S1, 0);
        MadMut::new(&mut ask.mad).set_attr_id(0x12);
        ask.mad[65] = port;
        self.send(0, ask);
        let got = self.take(0);
        assert_eq!(got.len(), 1);
        let count = |at: usize| u64::from(u32::from_be_bytes(got[0].mad[at..at + 4].try_into().unwrap()));
        (count(64 + 32), count(64 + 36))
    }

    fn bring_up(&mut self) {
        const TO_S1: &[u8] = &[1];
        const TO_S2: &[u8] = &[1, 2];
        for (path, port, lid) in
            [(&[][..], 1, LID_A), (TO_S1, 0, LID_S1), (TO_S2, 0, LID_S2), (USUAL, 1, LID_B)]
        {
            self.set_port(path, port, &[(pi::LID, u64::from(lid))]);
        }
        for (path, entries) in [
            (TO_S1, [(LID_A, 1), (LID_S1, 0), (LID_S2, 2), (LID_B, 2)]),
            (TO_S2, [(LID_A, 2), (LID_S1, 2), (LID_S2, 0), (LID_B, 1)]),
        ] {
            let mut block = [255; 64];
            entries.iter().for_each(|(lid, port)| block[usize::from(*lid)] = *port);
            self.manage(method::SET, path, attr::LFT, 0, &block);
            let mut data = [0; 64];
            si::LINEAR_FDB_TOP.set(&mut data, 0x20);
            self.manage(method::SET, path, attr::SWITCH_INFO, 0, &data);
        }
        let ports: [(&[u8], u32); 8] =
            [(&[], 1), (TO_S1, 1), (TO_S1, 2), (TO_S1, 3), (TO_S2, 1), (TO_S2, 2), (TO_S2, 3), (USUAL, 1)];
        for state in [state::ARMED, state::ACTIVE] {
            for (path, port) in ports {
                self.set_port(path, port, &[(pi::PORT_STATE, u64::from(state))]);
            }
        }
        let drops = self.drops();
        assert!(drops.iter().all(|count| *count == 0), "{drops:?}");
    }
}

/// An agent of a class that takes these methods as requests.
pub(crate) fn agent(mgmt_class: u8, methods: &[u8]) -> AgentSpec {
    let mut spec = AgentSpec {
        qpn: u8::from(!matches!(mgmt_class, 1 | 0x81)),
        mgmt_class,
        class_version: 1,
        ..AgentSpec::default()
    };
    for method in methods {
        spec.method_mask[usize::from(method >> 6)] |= 1 << (method & 63);
    }
    spec
}

/// A tenant with every class and right and these P_Keys.
pub(crate) fn tenant(name: &str, id: u64, p_keys: &[u16]) -> TenantEntry {
    let mut entry = TenantEntry::new(name).unwrap();
    entry.id = id;
    entry.classes = [!0; 4];
    entry.rights = 3;
    assert!(entry.set_p_keys(p_keys));
    entry
}

/// A route from A to B that takes any P_Key.
pub(crate) fn route(path: &[u8]) -> RouteEntry {
    RouteEntry { p_key: 0, ..RouteEntry::new(LID_A, LID_B, path).unwrap() }
}

pub(crate) fn method_of(message: &MadMessage) -> u8 {
    mad::METHOD.get_u8(&message.mad)
}
