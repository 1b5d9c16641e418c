//! What clients and control ask for.

use std::os::fd::AsFd;
use std::sync::Arc;

use madplane_engine::NodeId;
use madplane_port::MadMessage;
use madplane_port::machine;
use madplane_port::session::split;
use madplane_shm::LAYOUT_VERSION;
use madplane_shm::command::{Command, Event, ask, event};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{HANDOFF_MAGIC, Reply, Request, flag, op, place_kind};
use madplane_shm::session::{MAX_SLOTS, PairError, PairFds, PlaneEnds, create_pair};
use madplane_shm::sync::Ordering;
use madplane_shm::table::tenant::TenantEntry;
use madplane_topology::{NodeKind, PortRef};
use rustix::io::Errno;

use super::connections::libc_errno::{EACCES, EAGAIN, EBUSY, EINVAL, EIO, EMFILE, ENODEV, ENOMEM, EPROTO};
use super::tenancy::{may_hold_sm, may_register, membership};
use super::{ControlChannel, Housekeeping, Role, add, token};
use crate::acl::Membership;
use crate::agents::{AGENTS_PER_SESSION, AgentId, AgentSpec, GENERATIONS};
use crate::memory::Portion;
use crate::orders::{Order, OrderDesk, Report};
use crate::sessions::Session;
use madplane_shm::process::unix_ns;

/// A session's rings, and what its client gets of them.
type SessionPair = (PlaneEnds<MadMessage, MadMessage>, PairFds);

/// Commands taken from the control channel at one time.
const COMMANDS_PER_WAKE: usize = 64;

impl Housekeeping {
    /// Carries out one request and answers it.
    pub(super) fn request(&mut self, index: usize, request: &Request) {
        if request.magic != HANDOFF_MAGIC {
            self.disconnect(index);
            return;
        }
        if request.version != LAYOUT_VERSION {
            let theirs = request.version;
            let text =
                format!("the plane speaks layout version {LAYOUT_VERSION}, the client version {theirs}");
            self.answer_to(index, &Reply::refusal(EPROTO, &text), &[]);
            return;
        }
        let outcome = match request.op {
            op::ATTACH => self.attach(index, request),
            op::REGISTER => self.register(index, request),
            op::UNREGISTER => self.unregister(index, request),
            op::HOLD_SM => self.request_sm(index, request),
            op::CONTROL => self.open_control(index),
            op::BIND_PATH => self.bind_path(index, request),
            op::LOOKUP => self.place(&request.selector()).map_err(|text| (ENODEV, text)).map(|place| {
                let reply = self.about(place);
                self.answer_to(index, &reply, &[]);
            }),
            other => Err((EINVAL, format!("unknown request {other}"))),
        };
        if let Err((errno, text)) = outcome {
            self.answer_to(index, &Reply::refusal(errno, &text), &[]);
        }
    }

    /// A reply that describes a place.
    fn about(&self, (node, port): (NodeId, u8)) -> Reply {
        let mut reply = Reply { port, ..Reply::default() };
        if let Some(there) = self.topology.nodes.get(node as usize) {
            reply.node_guid = there.guid;
            reply.system_image_guid = there.system_image_guid;
            let own = there.ports.get(usize::from(port)).map_or(0, |p| p.guid);
            reply.port_guid = if own == 0 { there.guid } else { own };
            reply.node_type = there.kind as u8;
            reply.num_ports = there.num_ports();
            reply.set_text(&there.description);
        }
        if let Some((guid, name)) = self.name_of_device(node) {
            (reply.kind, reply.node_type, reply.num_ports) = (place_kind::DEVICE, NodeKind::Ca as u8, port);
            reply.node_guid = guid;
            reply.set_text(&name);
        }
        reply.worker_cpu = self.status.worker(self.worker_of(node)).cpu.load(Ordering::Relaxed);
        reply
    }

    fn attach(&mut self, index: usize, request: &Request) -> Result<(), (i32, String)> {
        self.expect_new(index)?;
        let place = self.place(&request.selector()).map_err(|text| (ENODEV, text))?;
        let tenant = self.tenant_for(index, &request.tenant())?;
        let slots = if request.value == 0 { self.config.session_slots() } else { u64::from(request.value) };
        if !slots.is_power_of_two() || slots > MAX_SLOTS {
            return Err((EINVAL, PairError::Slots(slots).to_string()));
        }
        let free = self.slots.iter().position(|slot| !slot.open);
        let Some(slot) = free.and_then(|slot| u32::try_from(slot).ok()) else {
            return Err((EMFILE, format!("all {} sessions are in use", self.slots.len())));
        };
        let ((ends, fds), memory) =
            self.session_memory(&format!("session-{slot}"), slots, self.worker_of(place.0))?;
        let up_bell = Arc::new(bell()?);
        let (down_bell, heard) = Doorbell::one_way().map_err(no_bell)?;
        let state = &mut self.slots[slot as usize];
        let generation = if state.generation + 1 >= GENERATIONS { 1 } else { state.generation + 1 };
        let member = tenant.as_ref().map_or(Membership::NONE, |(place, tenant)| membership(*place, tenant));
        *state = super::Slot { generation, open: true, place, agents: 0, member, bound: false, memory };
        let (rx, tx) = split(ends, down_bell, slots);
        let mut session = Session::new(slot, generation, place, rx, tx);
        session.out.member = member;
        session.bell = Some(up_bell.clone());
        let worker = self.worker_of(place.0);
        if !matches!(self.ask(worker, Order::Open(Box::new(session))), Some(Report::Done(_))) {
            self.slots[slot as usize].open = false;
            return Err((EIO, "the worker did not take the session".to_owned()));
        }
        self.memory.take(memory);
        self.show_huge_bytes();
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.role = Role::Session { slot };
        }
        self.show_session(index, slot, worker, tenant.as_ref().map(|(_, tenant)| tenant));
        let mut reply = self.about(place);
        reply.value = slot + 1;
        let fds = [fds.up.as_fd(), fds.down.as_fd(), up_bell.as_fd(), heard.as_fd()];
        self.answer_to(index, &reply, &fds);
        self.tell_control(event::SESSION_OPENED, place, slot + 1, "");
        Ok(())
    }

    /// Makes a pair near its worker, in huge pages if there are any; warns once when there are none.
    fn session_memory(
        &mut self,
        name: &str,
        slots: u64,
        worker: usize,
    ) -> Result<(SessionPair, Portion), (i32, String)> {
        let cpu = self.status.worker(worker).cpu.load(Ordering::Relaxed) as usize;
        let node = self.numa_nodes.iter().position(|cores| cores.contains(&cpu)).unwrap_or(0);
        let candidates = self.memory.candidates(node, slots);
        let mut last = Err((ENOMEM, self.memory.refusal()));
        for portion in candidates {
            match self.on_numa_node(portion.node, || create_pair(name, slots, portion.huge, self.me)) {
                Ok(pair) => {
                    if portion.huge {
                        self.lacks_huge = false;
                    }
                    self.status.plane().huge_pages.store(u32::from(portion.huge), Ordering::Relaxed);
                    return Ok((pair, portion));
                }
                Err(PairError::Io(_)) if portion.huge && !self.lacks_huge => {
                    self.lacks_huge = true;
                    tracing::warn!(
                        "huge pages have run out: session memory is in normal pages until some are free"
                    );
                }
                Err(PairError::Io(_)) if portion.huge => {}
                Err(error) => last = Err(no_memory(error)),
            }
        }
        last
    }

    /// Runs `make` where memory that it touches first is that of a NUMA node.
    fn on_numa_node<R>(&self, node: usize, make: impl FnOnce() -> R) -> R {
        if self.numa_nodes.len() < 2 {
            return make();
        }
        let allowed = self.config.allowed_cores();
        let there: Vec<usize> =
            allowed.iter().copied().filter(|core| self.numa_nodes[node].contains(core)).collect();
        let moved = !there.is_empty() && machine::allow_cores(&there);
        let made = make();
        if moved {
            machine::allow_cores(&self.config.cores().others);
        }
        made
    }

    /// Shows how much of sessions is in huge pages.
    pub(super) fn show_huge_bytes(&self) {
        self.status.plane().session_huge_bytes.store(self.memory.huge_bytes(), Ordering::Relaxed);
    }

    fn show_session(&self, index: usize, slot: u32, worker: usize, tenant: Option<&TenantEntry>) {
        let Some(Some(connection)) = self.connections.get(index) else { return };
        let (node, port) = self.slots[slot as usize].place;
        let record = self.status.session(slot as usize);
        let program =
            std::fs::read_to_string(format!("/proc/{}/comm", connection.peer.pid)).unwrap_or_default();
        record.pid.store(connection.peer.pid, Ordering::Relaxed);
        record.uid.store(connection.peer.uid, Ordering::Relaxed);
        record.tenant.store(u32::from(self.slots[slot as usize].member.tenant), Ordering::Relaxed);
        record.class.store(u32::from(tenant.map_or(0, |tenant| tenant.class)), Ordering::Relaxed);
        record.tenant_name.store(tenant.map_or("", |tenant| tenant.name()));
        record.store_path(&[], 0);
        record.port.store(u32::from(port), Ordering::Relaxed);
        record.since_unix_ns.store(unix_ns(), Ordering::Relaxed);
        for word in [&record.received, &record.sent, &record.dropped] {
            word.store(0, Ordering::Relaxed);
        }
        record.agents.store(0, Ordering::Relaxed);
        record.worker.store(u32::try_from(worker).unwrap_or(0), Ordering::Relaxed);
        record.program.store(program.trim_end());
        if let Some(there) = self.topology.nodes.get(node as usize) {
            record.node_guid.store(there.guid, Ordering::Relaxed);
            record.node.store(&there.description);
        }
        if let Some((guid, name)) = self.name_of_device(node) {
            record.node_guid.store(guid, Ordering::Relaxed);
            record.node.store(&format!("device {name}"));
        }
        // a reader that sees the number sees the rest
        record.id.store(slot + 1, Ordering::Release);
        self.count_sessions();
    }

    fn register(&mut self, index: usize, request: &Request) -> Result<(), (i32, String)> {
        let slot = self.session_of(index)?;
        let spec = AgentSpec {
            qpn: request.qpn,
            mgmt_class: request.mgmt_class,
            class_version: request.class_version,
            method_mask: request.method_mask,
            oui: request.oui & 0xff_ffff,
        };
        check_rmpp(request)?;
        let state = self.slots[slot as usize];
        if let Some(tenant) = self.tenant_of(state.member)? {
            may_register(&tenant, spec.mgmt_class)?;
        }
        let Some(agent) = (0..AGENTS_PER_SESSION).find(|agent| state.agents >> agent & 1 == 0) else {
            return Err((ENOMEM, format!("a session has at most {AGENTS_PER_SESSION} agents")));
        };
        let id = AgentId { slot, generation: state.generation, agent };
        match self.ask(self.worker_of(state.place.0), Order::Register { id, spec }) {
            Some(Report::Done(_)) => {}
            Some(Report::Refused(error)) => return Err((error.errno(), error.to_string())),
            _ => return Err((EIO, "the worker did not take the agent".to_owned())),
        }
        self.set_agents(slot, state.agents | 1 << agent);
        self.answer_to(index, &Reply { value: id.hi_tid(), ..Reply::default() }, &[]);
        Ok(())
    }

    fn unregister(&mut self, index: usize, request: &Request) -> Result<(), (i32, String)> {
        let slot = self.session_of(index)?;
        let id = AgentId::from_hi_tid(request.value);
        let state = self.slots[slot as usize];
        let known = id.slot == slot && id.generation == state.generation && state.agents >> id.agent & 1 == 1;
        if !known {
            return Err((EINVAL, "no such agent".to_owned()));
        }
        self.ask(self.worker_of(state.place.0), Order::Unregister { id });
        self.set_agents(slot, state.agents & !(1 << id.agent));
        self.answer_to(index, &Reply::default(), &[]);
        Ok(())
    }

    fn set_agents(&mut self, slot: u32, agents: u32) {
        self.slots[slot as usize].agents = agents;
        self.status.session(slot as usize).agents.store(agents.count_ones(), Ordering::Relaxed);
    }

    fn request_sm(&mut self, index: usize, request: &Request) -> Result<(), (i32, String)> {
        self.expect_new(index)?;
        let place = self.place(&request.selector()).map_err(|text| (ENODEV, text))?;
        if let Some((_, tenant)) = self.tenant_for(index, &request.tenant())? {
            may_hold_sm(&tenant)?;
        }
        if !self.is_sm_held(place) {
            self.hold_sm(index, place);
            return Ok(());
        }
        if request.flags & flag::WAIT == 0 {
            return Err((EAGAIN, "another program holds the SM bit of this port".to_owned()));
        }
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.role = Role::SmHold { place, held: false };
        }
        self.sm_waiting.push_back(index);
        Ok(())
    }

    fn open_control(&mut self, index: usize) -> Result<(), (i32, String)> {
        self.expect_new(index)?;
        let owner = self.owner;
        if let Some(Some(connection)) = self.connections.get(index)
            && !connection.peer.owns_plane(owner)
        {
            let text =
                format!("user {} may not control this plane; user {owner} and root may", connection.peer.uid);
            return Err((EACCES, text));
        }
        if let Some(holder) = self.connections.iter().flatten().find(|c| matches!(c.role, Role::Control)) {
            return Err((EBUSY, format!("another control process is attached (pid {})", holder.peer.pid)));
        }
        let (ends, fds) = create_pair::<Command, Event>("control", 256, false, self.me).map_err(no_memory)?;
        let command_bell = bell()?;
        let event_bell = bell()?;
        let handed = [fds.up.as_fd(), fds.down.as_fd(), command_bell.as_fd(), event_bell.as_fd()];
        add(&self.epoll, &command_bell, token::COMMANDS).map_err(|e| (EMFILE, e.to_string()))?;
        let reply = self.about(self.default_place);
        let mut commands = ends.up;
        commands.arm();
        self.answer_to(index, &reply, &handed);
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.role = Role::Control;
            tracing::info!(pid = connection.peer.pid, "control attached");
            self.control = Some(ControlChannel { commands, command_bell, events: ends.down, event_bell });
        }
        Ok(())
    }

    /// Carries out what control asked for.
    pub(super) fn commands(&mut self) {
        let Some(mut channel) = self.control.take() else { return };
        channel.command_bell.take();
        channel.commands.disarm();
        let mut item = Command::default();
        loop {
            for _ in 0..COMMANDS_PER_WAKE {
                if !channel.commands.pop(&mut item) {
                    break;
                }
                let done = self.carry_out(&item);
                channel.send(&done);
            }
            channel.commands.commit();
            if channel.commands.arm() {
                break;
            }
        }
        self.control = Some(channel);
    }

    fn carry_out(&mut self, item: &Command) -> Event {
        let mut done = Event { id: item.id, kind: event::DONE, ..Event::default() };
        match self.try_carry_out(item) {
            Ok(Some(end)) => {
                done.port = u32::from(end.port);
                if let Some(there) = self.topology.nodes.get(end.node as usize) {
                    done.node_guid = there.guid;
                    done.set_text(&there.description);
                }
            }
            Ok(None) => {}
            Err((errno, text)) => {
                done.status = errno.unsigned_abs();
                done.set_text(&text);
            }
        }
        done
    }

    /// Returns what the command was about.
    fn try_carry_out(&mut self, item: &Command) -> Result<Option<PortRef>, (i32, String)> {
        let unanswered = || (EIO, "the worker did not carry out the command".to_owned());
        match item.kind {
            ask::PING => return Ok(None),
            ask::WAKE_WORKERS => {
                self.desks.iter().for_each(OrderDesk::wake_worker);
                return Ok(None);
            }
            ask::LINKS_CHANGED => {
                let wrong = self.apply_links().err().unwrap_or_default();
                wrong.iter().for_each(|wrong| self.error(&wrong.to_string()));
                // another one that is still impossible is no fault of this
                let selector = item.selector();
                let (mine, others): (Vec<_>, Vec<_>) =
                    wrong.into_iter().partition(|wrong| wrong.concerns(&selector));
                // this one will be taken off the list again
                self.show_unavailable(&others);
                return mine.into_iter().next().map_or(Ok(None), |wrong| Err((EINVAL, wrong.text)));
            }
            ask::BIND_SESSION => return self.bind_session(item).map(Some),
            _ => {}
        }
        let selector = item.selector();
        let end = madplane_topology::parse_endpoint(&self.topology, &selector)
            .map_err(|error| (ENODEV, error.to_string()))?;
        let node = end.node;
        let order = match item.kind {
            ask::SET_LINK => {
                let cabled = self.topology.port(end).is_some_and(|port| port.peer.is_some())
                    || self.is_linked((end.node, end.port));
                if end.port == 0 || !cabled {
                    return Err((EINVAL, format!("{selector} is not a cabled port; name it as NODE:PORT")));
                }
                Order::SetLink { node, port: end.port, up: item.value != 0 }
            }
            ask::REBOOT_NODE => Order::Reboot { node },
            other => return Err((EINVAL, format!("unknown command {other}"))),
        };
        let worker = self.worker_of(node);
        self.ask(worker, order).map(|_| Some(end)).ok_or_else(unanswered)
    }

    /// Reports something that nobody asked for, if control is there.
    pub(super) fn tell_control(&mut self, kind: u32, (node, port): (NodeId, u8), value: u32, text: &str) {
        let device = self.name_of_device(node).map_or(0, |(guid, _)| guid);
        let guid = self.topology.nodes.get(node as usize).map_or(device, |there| there.guid);
        if let Some(channel) = &mut self.control {
            let mut event = Event { kind, value, node_guid: guid, port: u32::from(port), ..Event::default() };
            event.set_text(text);
            channel.send(&event);
        }
    }

    fn expect_new(&self, index: usize) -> Result<(), (i32, String)> {
        match self.connections.get(index) {
            Some(Some(connection)) if matches!(connection.role, Role::New) => Ok(()),
            _ => Err((EINVAL, "this connection is already in use".to_owned())),
        }
    }

    pub(super) fn session_of(&self, index: usize) -> Result<u32, (i32, String)> {
        match self.connections.get(index) {
            Some(Some(super::Connection { role: Role::Session { slot }, .. })) => Ok(*slot),
            _ => Err((EINVAL, "this connection has no session".to_owned())),
        }
    }

    /// Adds the default place and the kind of fabric to the status segment.
    pub(crate) fn show_default_place(&self) {
        let (node, port) = self.default_place;
        let plane = self.status.plane();
        if let Some(there) = self.topology.nodes.get(node as usize) {
            plane.default_node_guid.store(there.guid, Ordering::Relaxed);
        }
        plane.default_port.store(u32::from(port), Ordering::Relaxed);
        let switches = self.topology.nodes.iter().filter(|node| node.kind == NodeKind::Switch).count();
        plane.switches.store(switches as u64, Ordering::Relaxed);
    }
}

impl ControlChannel {
    /// Sends an event; control that does not read loses events, never the plane its time.
    fn send(&mut self, event: &Event) {
        let _ = self.events.push(event);
        if self.events.wake_due() {
            self.event_bell.ring();
        }
    }
}

/// RMPP is the client's business, but a class without it is refused as the kernel does.
fn check_rmpp(request: &Request) -> Result<(), (i32, String)> {
    let class = request.mgmt_class;
    if request.rmpp_version != 0 && class != 0 && !madplane_wire::mad::is_rmpp_class(class) {
        return Err((EINVAL, format!("class {class:#04x} has no RMPP")));
    }
    Ok(())
}

fn bell() -> Result<Doorbell, (i32, String)> {
    Doorbell::create().map_err(no_bell)
}

fn no_bell(error: Errno) -> (i32, String) {
    (EMFILE, format!("cannot create a doorbell: {error}"))
}

fn no_memory(error: PairError) -> (i32, String) {
    (ENOMEM, format!("no memory for a session: {error}"))
}
