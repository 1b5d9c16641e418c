//! A plane for tests: the attach socket, rings, and a worker thread that does what a test tells it.
//!
//! It rewrites nothing by itself; [`Desk::route`] does what the real plane does with a MAD between two sessions.
#![allow(dead_code, reason = "every test file uses another part")]
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use madplane_client::{AgentSpec, MadMessage, Outgoing, PlanePaths, Session, SessionOptions, WaitPolicy};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{Reply, Request, flag, op, recv_with_fds, send_with_fds};
use madplane_shm::header::Incarnation;
use madplane_shm::message::Envelope;
use madplane_shm::session::{PlaneEnds, create_pair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zerocopy::{FromBytes, IntoBytes};

/// An agent as the plane knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) session: usize,
    pub(crate) hi_tid: u32,
    pub(crate) class: u8,
    pub(crate) methods: [u64; 2],
}

struct Line {
    ends: PlaneEnds<MadMessage, MadMessage>,
    down_bell: Doorbell,
    _up_bell: Doorbell,
}

/// What a behaviour works with.
#[derive(Default)]
pub(crate) struct Desk {
    lines: Vec<Line>,
    pub(crate) agents: Vec<Known>,
    /// Tenants named by those who attached, in order.
    pub(crate) tenants: Vec<String>,
    /// Paths asked for, and whether to drop what cannot follow them.
    pub(crate) paths: Vec<(usize, Vec<u8>, bool)>,
    /// Everything that came up, in order.
    pub(crate) seen: Vec<(usize, MadMessage)>,
}

impl Desk {
    /// Gives a MAD to a session.
    pub(crate) fn give(&mut self, session: usize, message: &MadMessage) {
        let line = &mut self.lines[session];
        let _ = line.ends.down.push(message);
        if line.ends.down.wake_due() {
            line.down_bell.ring();
        }
    }

    /// Deals with everything that is in the rings.
    pub(crate) fn pump(&mut self, mut behaviour: impl FnMut(&mut Desk, usize, &MadMessage)) {
        let mut message = MadMessage::default();
        for session in 0..self.lines.len() {
            while self.lines[session].ends.up.pop(&mut message) {
                self.seen.push((session, message));
                behaviour(self, session, &message);
            }
            self.lines[session].ends.up.commit();
        }
    }

    /// Answers a request with a response that repeats it.
    pub(crate) fn echo(&mut self, session: usize, message: &MadMessage) {
        self.give(session, &response_to(message));
    }

    /// Routes as the real plane does: responses by TID, requests by class and method.
    pub(crate) fn route(&mut self, session: usize, message: &MadMessage) {
        let mut message = *message;
        let is_response = message.mad[3] & 0x80 != 0;
        if !is_response {
            message.mad[8..12].copy_from_slice(&message.envelope.agent.to_be_bytes());
        }
        let tid_high = u32::from_be_bytes(message.mad[8..12].try_into().unwrap());
        let (class, method) = (message.mad[1], message.mad[3]);
        let wants = |agent: &Known| agent.methods[usize::from(method / 64 % 2)] >> (method % 64) & 1 == 1;
        let target = self.agents.iter().find(|agent| {
            if is_response { agent.hi_tid == tid_high } else { agent.class == class && wants(agent) }
        });
        let Some(target) = target.copied() else { return };
        message.envelope.agent = target.hi_tid;
        message.envelope.slid = lid_of(session);
        message.envelope.src_qp = 1;
        self.give(target.session, &message);
    }
}

/// The response that repeats a request.
pub(crate) fn response_to(message: &MadMessage) -> MadMessage {
    let mut message = *message;
    message.mad[3] |= 0x80;
    message.envelope.slid = message.envelope.dlid;
    message
}

/// LID of a session's port.
pub(crate) fn lid_of(session: usize) -> u16 {
    100 + u16::try_from(session).unwrap()
}

/// A running plane.
pub(crate) struct FakePlane {
    pub(crate) paths: PlanePaths,
    pub(crate) desk: Arc<Mutex<Desk>>,
    /// The worker stands still while true.
    pub(crate) frozen: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl FakePlane {
    /// Starts a plane whose worker calls `behaviour` for every MAD that comes up.
    pub(crate) fn start(behaviour: impl FnMut(&mut Desk, usize, &MadMessage) + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let paths = PlanePaths::under(directory.path(), "test").unwrap();
        std::fs::create_dir_all(paths.run_dir()).unwrap();
        let listener = listen(&paths.attach_socket());
        let desk = Arc::new(Mutex::new(Desk::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let frozen = Arc::new(AtomicBool::new(false));
        let threads = vec![
            std::thread::spawn({
                let (desk, stop) = (desk.clone(), stop.clone());
                move || serve(&listener, &desk, &stop)
            }),
            std::thread::spawn({
                let (desk, stop, frozen) = (desk.clone(), stop.clone(), frozen.clone());
                move || work(behaviour, &desk, &stop, &frozen)
            }),
        ];
        Self { paths, desk, frozen, stop, threads, _directory: directory }
    }

    /// Answers every request by itself.
    pub(crate) fn echo() -> Self {
        Self::start(|desk, session, message| desk.echo(session, message))
    }

    /// Answers nothing.
    pub(crate) fn silent() -> Self {
        Self::start(|_, _, _| {})
    }

    /// Routes between sessions.
    pub(crate) fn fabric() -> Self {
        Self::start(|desk, session, message| desk.route(session, message))
    }

    pub(crate) fn open(&self) -> Session {
        self.open_with(WaitPolicy::default())
    }

    pub(crate) fn open_with(&self, wait: WaitPolicy) -> Session {
        Session::open(&self.paths, "", &SessionOptions { wait, ..SessionOptions::default() }).unwrap()
    }

    /// Gives a MAD to a session from outside.
    pub(crate) fn give(&self, session: usize, message: &MadMessage) {
        self.desk.lock().unwrap().give(session, message);
    }

    /// Number of MADs that came up so far.
    pub(crate) fn seen(&self) -> Vec<MadMessage> {
        self.desk.lock().unwrap().seen.iter().map(|seen| seen.1).collect()
    }

    /// Waits until so many MADs have come up.
    pub(crate) fn wait_for(&self, count: usize) {
        while self.desk.lock().unwrap().seen.len() < count {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Drop for FakePlane {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn listen(path: &Path) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 16).unwrap();
    socket
}

/// Housekeeping: one thread for all connections.
fn serve(listener: &OwnedFd, desk: &Mutex<Desk>, stop: &AtomicBool) {
    let next_hi_tid = AtomicU32::new(0x10);
    let mut connections: Vec<(OwnedFd, Option<usize>)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let ready: Vec<bool> = {
            let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
            fds.extend(connections.iter().map(|one| PollFd::new(&one.0, PollFlags::IN)));
            let timeout = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let _ = poll(&mut fds, Some(&timeout));
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        let mut ended = Vec::new();
        for (place, _) in ready.iter().skip(1).enumerate().filter(|(_, ready)| **ready) {
            let (socket, session) = &mut connections[place];
            let mut bytes = [0u8; 256];
            match recv_with_fds(&*socket, &mut bytes) {
                Ok((256, _)) => {
                    let request = Request::read_from_bytes(&bytes).unwrap();
                    answer(socket, session, &request, desk, &next_hi_tid);
                }
                _ => ended.push(place),
            }
        }
        for place in ended.into_iter().rev() {
            let (_, session) = connections.remove(place);
            if let Some(session) = session {
                desk.lock().unwrap().agents.retain(|agent| agent.session != session);
            }
        }
        if ready[0] {
            connections.push((rustix::net::accept(listener).unwrap(), None));
        }
    }
}

fn answer(
    socket: &OwnedFd,
    session: &mut Option<usize>,
    request: &Request,
    desk: &Mutex<Desk>,
    next_hi_tid: &AtomicU32,
) {
    let mut desk = desk.lock().unwrap();
    match request.op {
        op::ATTACH if request.tenant() == "closed" => {
            let reply = Reply::refusal(13, "user 7 may not be tenant closed");
            send_with_fds(socket, reply.as_bytes(), &[]).unwrap();
        }
        op::BIND_PATH => {
            let path = request.path().unwrap().to_vec();
            let refused = path.contains(&99);
            if !refused {
                desk.paths.push((session.unwrap(), path, request.flags & flag::DROP_BROKEN != 0));
            }
            let refusal = Reply::refusal(22, "hop 2 of the path: \"sw\" has no cable at port 99");
            let reply = if refused { refusal } else { Reply::default() };
            send_with_fds(socket, reply.as_bytes(), &[]).unwrap();
        }
        op::ATTACH => {
            desk.tenants.push(request.tenant());
            let slots = if request.value == 0 { 256 } else { u64::from(request.value) };
            let (ends, fds) = create_pair("fake", slots, false, Incarnation::default()).unwrap();
            let (up_bell, down_bell) = (Doorbell::create().unwrap(), Doorbell::create().unwrap());
            let mut reply =
                Reply { node_guid: 0x1234, port: 1, node_type: 1, num_ports: 1, ..Reply::default() };
            reply.value = u32::try_from(desk.lines.len()).unwrap() + 1;
            reply.set_text("fake node");
            let all = [fds.up.as_fd(), fds.down.as_fd(), up_bell.as_fd(), down_bell.as_fd()];
            send_with_fds(socket, reply.as_bytes(), &all).unwrap();
            *session = Some(desk.lines.len());
            desk.lines.push(Line { ends, down_bell, _up_bell: up_bell });
        }
        op::REGISTER if request.mgmt_class == 0x0f => {
            let reply = Reply::refusal(22, "method is taken");
            send_with_fds(socket, reply.as_bytes(), &[]).unwrap();
        }
        op::REGISTER => {
            let hi_tid = next_hi_tid.fetch_add(1, Ordering::Relaxed);
            let agent = Known {
                session: session.unwrap(),
                hi_tid,
                class: request.mgmt_class,
                methods: request.method_mask,
            };
            desk.agents.push(agent);
            send_with_fds(socket, Reply { value: hi_tid, ..Reply::default() }.as_bytes(), &[]).unwrap();
        }
        op::UNREGISTER => {
            desk.agents.retain(|agent| agent.hi_tid != request.value);
            send_with_fds(socket, Reply::default().as_bytes(), &[]).unwrap();
        }
        other => panic!("unexpected request {other}"),
    }
}

fn work(
    mut behaviour: impl FnMut(&mut Desk, usize, &MadMessage),
    desk: &Mutex<Desk>,
    stop: &AtomicBool,
    frozen: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        if !frozen.load(Ordering::Relaxed) {
            desk.lock().unwrap().pump(&mut behaviour);
        }
        std::thread::yield_now();
    }
}

/// A spec for tests.
pub(crate) fn spec(qpn: u8, mgmt_class: u8, methods: &[u8]) -> AgentSpec {
    let mut method_mask = [0u64; 2];
    for method in methods {
        method_mask[usize::from(method / 64)] |= 1 << (method % 64);
    }
    let class_version = if mgmt_class == 3 { 2 } else { 1 };
    AgentSpec { qpn, mgmt_class, class_version, method_mask, ..AgentSpec::default() }
}

/// A MAD with a class, method and TID; the rest is a pattern.
pub(crate) fn mad(class: u8, method: u8, tid: u64) -> [u8; 256] {
    let mut bytes = [0x5a; 256];
    bytes[..8].copy_from_slice(&[1, class, 1, method, 0, 0, 0, 0]);
    bytes[8..16].copy_from_slice(&tid.to_be_bytes());
    bytes[16..24].copy_from_slice(&[0, 0x11, 0, 0, 0, 0, 0, 0]);
    bytes[24..36].fill(0);
    bytes
}

/// A send with the default address.
pub(crate) fn outgoing(agent: u32, data: &[u8], timeout_ms: u32, retries: u32) -> Outgoing<'_> {
    let envelope = Envelope { dlid: 7, dst_qp: 1, ..Envelope::default() };
    Outgoing { agent, envelope, data, timeout_ms, retries }
}
