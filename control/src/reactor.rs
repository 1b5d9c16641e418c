//! madctld's loop: one thread that sleeps until a source is ready.
//!
//! Sources: the admin listener and its clients, the link to the plane, a pipe that signal handlers write into, and
//! inotify on the runtime directory, so that a plane that starts is found without looking for it. A service manager hears
//! that madctld is well from this loop (`manager.rs`), so one that hangs is not well.
//!
//! Invariants: nothing here blocks on a peer. With no client waiting, no route to publish and the plane connected there
//! is no timer at all; while a command waits for the plane the sleep is bounded ([`LOOK_AGAIN`]), because a doorbell may
//! be lost; while routes wait for the workers the route desk says when to look again. Clients
//! are bounded in number, in bytes each way and in commands under way, and the longest silent one makes room for a new
//! one. Every command gets exactly one answer, also when the plane dies or does not answer.

use std::collections::{BTreeMap, HashMap};
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use madplane_shm::command::{Command, Event, ask, event};
use madplane_shm::links::LinkSpec;
use madplane_shm::paths::PlanePaths;
use rustix::fs::inotify;
use serde_json::Value;
use tracing::{debug, info, warn};

use crate::admin::{self, Action, ControlStatus, Done};
use crate::admin_peer::{AdminPeer, PeerState};
use crate::answer::Answer;
use crate::link_list::LinkList;
use crate::manager::Manager;
use crate::plane_link::{Change, LinkSources, PlaneLink};
use crate::poller::{Interest, Poller, Ready};
use crate::publish::Capacities;
use crate::route_desk::RouteDesk;
use madplane_shm::process;
use madplane_shm::process::lock::{DaemonLock, LockError};

mod service;

const LISTENER: u64 = 0;
const SIGNALS: u64 = 1;
const DIRECTORY: u64 = 2;
const PLANE_SOCKET: u64 = 3;
const EVENT_BELL: u64 = 4;
const RELOADS: u64 = 5;
const FIRST_PEER: u64 = 16;

/// Most admin clients at one time.
pub const MAX_CLIENTS: usize = 128;
/// Most commands of one client that the plane has not answered.
pub const MAX_UNDER_WAY: usize = 64;
/// How long the plane may take to carry out a command.
pub const COMMAND_WITHIN: Duration = Duration::from_secs(10);
/// Longest sleep while a command waits for its answer.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Id of a command whose answer nobody waits for.
const UNASKED: u64 = u64::MAX;
const EVENTS_PER_TURN: usize = 256;
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Why madctld did not start or had to end; one line each.
#[derive(Debug, thiserror::Error)]
pub enum ReactorError {
    /// There is one already.
    #[error("madctld of plane {name} is already running (pid {pid})")]
    AlreadyRunning {
        /// The plane.
        name: String,
        /// The other one.
        pid: u32,
    },
    /// The plane gives its control channel to somebody else.
    #[error("{0}")]
    Refused(String),
    /// The route table cannot be opened.
    #[error(transparent)]
    Table(#[from] madplane_shm::table::TableError),
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

struct UnderWay {
    peer: u64,
    id: Value,
    until: Instant,
    /// The list of links to go back to if the plane refuses.
    undo: Option<Vec<LinkSpec>>,
}

/// What the start of the daemon is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A stop was asked for.
    Stopped,
    /// The link to the plane has been tried; madctld is ready.
    Ready,
}

/// madctld.
pub struct Reactor {
    paths: PlanePaths,
    _lock: DaemonLock,
    poller: Poller,
    listener: UnixListener,
    listening: Result<(), Instant>,
    signals: UnixStream,
    _signal_ids: Vec<signal_hook::SigId>,
    directory: Option<OwnedFd>,
    link: PlaneLink,
    routes: RouteDesk,
    links: LinkList,
    peers: BTreeMap<u64, AdminPeer>,
    next_peer: u64,
    under_way: HashMap<u64, UnderWay>,
    next_command: u64,
    events_taken: u64,
    started_unix_ns: u64,
    own_uid: u32,
    stopping: bool,
    reloads: UnixStream,
    manager: Manager,
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor").field("plane", &self.paths.name()).finish_non_exhaustive()
    }
}

impl Reactor {
    /// Takes the lock of madctld, opens the route table and the admin socket (replacing a stale one) and gets ready for
    /// signals.
    ///
    /// # Errors
    /// See [`ReactorError`].
    pub fn open(paths: PlanePaths, capacities: Capacities) -> Result<Self, ReactorError> {
        let system = |what: String| move |source| ReactorError::System { what, source };
        std::fs::create_dir_all(paths.run_dir())
            .map_err(system(format!("runtime directory {}", paths.run_dir().display())))?;
        let lock = DaemonLock::acquire(&paths.control_lock()).map_err(|error| match error {
            LockError::Held { pid } => ReactorError::AlreadyRunning { name: paths.name().to_owned(), pid },
            LockError::Io { path, source } => {
                ReactorError::System { what: format!("lock file {}", path.display()), source }
            }
        })?;
        let routes = RouteDesk::open(&paths.table_segment(), capacities)?;
        let listener = listen(paths.admin_socket())
            .map_err(system(format!("admin socket {}", paths.admin_socket().display())))?;
        let mut signal_ids = Vec::new();
        let signals =
            service::pipe_of(&[signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT], &mut signal_ids)
                .map_err(system("signal handler".to_owned()))?;
        let reloads = service::pipe_of(&[signal_hook::consts::SIGHUP], &mut signal_ids)
            .map_err(system("signal handler".to_owned()))?;
        let poller = Poller::create().map_err(system("epoll".to_owned()))?;
        let directory = watch(&paths);
        let mut sources = vec![poller.add(&listener, LISTENER, Interest::READ)];
        sources.push(poller.add(&signals, SIGNALS, Interest::READ));
        sources.push(poller.add(&reloads, RELOADS, Interest::READ));
        sources.extend(directory.as_ref().map(|fd| poller.add(fd, DIRECTORY, Interest::READ)));
        sources.into_iter().collect::<io::Result<()>>().map_err(system("epoll".to_owned()))?;
        let link_sources = LinkSources { socket: PLANE_SOCKET, event_bell: EVENT_BELL };
        Ok(Self {
            links: LinkList::new(&paths),
            link: PlaneLink::new(paths.clone(), link_sources, Instant::now()),
            paths,
            routes,
            _lock: lock,
            poller,
            listener,
            listening: Ok(()),
            signals,
            _signal_ids: signal_ids,
            directory,
            peers: BTreeMap::new(),
            next_peer: FIRST_PEER,
            under_way: HashMap::new(),
            next_command: 1,
            events_taken: 0,
            started_unix_ns: process::unix_ns(),
            own_uid: rustix::process::geteuid().as_raw(),
            stopping: false,
            reloads,
            manager: Manager::default(),
        })
    }

    /// Runs until the link to the plane has been tried. A plane that is not there is no error: it may come later.
    ///
    /// # Errors
    /// [`ReactorError::Refused`] if the plane keeps refusing, and as [`Reactor::run`].
    pub fn run_until_ready(&mut self) -> Result<Outcome, ReactorError> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            self.turn()?;
            let trying = self.link.is_greeting() || self.link.refusals() > 0;
            if self.stopping {
                return Ok(Outcome::Stopped);
            }
            if !trying {
                return Ok(Outcome::Ready);
            }
            if Instant::now() >= until {
                return Err(ReactorError::Refused(self.link.why_away()));
            }
        }
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// [`ReactorError::System`] when waiting itself fails.
    pub fn run(&mut self) -> Result<(), ReactorError> {
        while !self.stopping {
            self.turn()?;
        }
        info!("stopping");
        self.manager.stopping();
        self.routes.finish(Instant::now());
        let _ = std::fs::remove_file(self.paths.admin_socket());
        Ok(())
    }

    /// One sleep and what follows from it.
    fn turn(&mut self) -> Result<(), ReactorError> {
        let may_sleep = self.link.arm();
        let limit = if may_sleep { self.sleep_limit(Instant::now()) } else { Some(Duration::ZERO) };
        let ready = self
            .poller
            .wait(limit)
            .map_err(|source| ReactorError::System { what: "epoll".to_owned(), source })?;
        self.link.disarm();
        let now = Instant::now();
        for source in &ready {
            self.on_ready(*source, now);
        }
        self.take_events(now);
        let change = self.link.on_time(&self.poller, now);
        self.on_link(change);
        self.expire(now);
        // before anybody waits for the workers
        self.ring_workers();
        for (peer, reply) in self.routes.on_time(Instant::now()) {
            self.answer(peer, &reply, true);
        }
        self.ring_workers();
        self.tell_manager();
        Ok(())
    }

    /// Has workers that sleep look at what was published; without it they would when they next wake up.
    fn ring_workers(&mut self) {
        if self.routes.take_unrung() {
            let _ = self.link.send(&Command { id: UNASKED, kind: ask::WAKE_WORKERS, ..Command::default() });
        }
    }

    /// Has the workers go back to what they were started with, whatever was asked of them before.
    pub fn forget_tuning(&mut self) {
        self.routes.forget_tuning(Instant::now());
    }

    fn sleep_limit(&self, now: Instant) -> Option<Duration> {
        let commands = self.under_way.values().map(|command| command.until).min();
        let deadlines = [self.link.deadline(), commands, self.listening.err()];
        let nearest = deadlines.into_iter().flatten().min().map(|at| at.saturating_duration_since(now));
        // rounded up: waking a moment too early would cost one more turn
        let nearest = nearest.map(|wait| wait + Duration::from_millis(1));
        let nearest = if commands.is_some() { nearest.map(|wait| wait.min(LOOK_AGAIN)) } else { nearest };
        let routes = self.routes.deadline(now).map(|at| at.saturating_duration_since(now));
        nearest.into_iter().chain(routes).chain(self.manager.longest_sleep()).min()
    }

    fn on_ready(&mut self, ready: Ready, now: Instant) {
        match ready.source {
            LISTENER => self.accept(now),
            SIGNALS => {
                let mut bytes = [0u8; 64];
                self.stopping |= rustix::io::read(&self.signals, &mut bytes).is_ok();
            }
            DIRECTORY => self.on_directory(now),
            RELOADS => self.reload(now),
            PLANE_SOCKET => {
                // what the plane said before it went counts
                self.take_events(now);
                let change = self.link.on_socket(&self.poller, now);
                self.on_link(change);
            }
            EVENT_BELL => {}
            peer => self.on_peer(peer, ready, now),
        }
    }

    fn on_directory(&mut self, now: Instant) {
        let Some(fd) = &self.directory else { return };
        let mut bytes = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut bytes);
        let mut appeared = false;
        while let Ok(event) = reader.next() {
            appeared |= event.file_name().is_some_and(|name| name.to_bytes() == b"attach.sock");
        }
        if appeared {
            let change = self.link.attempt(&self.poller, now);
            self.on_link(change);
        }
    }

    fn on_link(&mut self, change: Change) {
        match change {
            Change::None => {}
            Change::Connected => {
                info!("connected to the plane");
                self.routes.plane_came(&self.paths);
            }
            Change::Failed => debug!(why = self.link.why_away(), "not connected to the plane"),
            Change::Lost => {
                warn!(why = self.link.why_away(), commands = self.under_way.len(), "lost the plane");
                self.routes.plane_gone();
                let lost: Vec<UnderWay> = self.under_way.drain().map(|(_, command)| command).collect();
                for command in lost {
                    let error = "the plane went away before it answered; whether it was done is not known";
                    self.answer(command.peer, &Answer::failed(command.id, error), true);
                }
            }
        }
    }

    fn take_events(&mut self, now: Instant) {
        for event in self.link.take_events(EVENTS_PER_TURN) {
            self.events_taken += 1;
            if event.kind == event::DONE {
                self.on_done(&event);
            } else {
                log_event(&event);
            }
        }
        self.expire(now);
    }

    fn on_done(&mut self, done: &Event) {
        let Some(command) = self.under_way.remove(&done.id) else {
            debug!(id = done.id, "answer to a command that nobody waits for");
            return;
        };
        let text = done.text();
        if let Some(former) = command.undo.as_ref().filter(|_| done.status != 0)
            && let Err(error) = self.links.store(former)
        {
            warn!(error, "the list of links cannot be written");
        }
        let reply = if done.status == 0 {
            let node_guid = format!("{:#018x}", done.node_guid);
            Answer::done(&command.id, &Done { node_guid, port: done.port, text })
        } else if text.is_empty() {
            let errno = i32::try_from(done.status).unwrap_or(0);
            Answer::failed(command.id, io::Error::from_raw_os_error(errno).to_string())
        } else {
            Answer::failed(command.id, text)
        };
        self.answer(command.peer, &reply, true);
    }

    fn expire(&mut self, now: Instant) {
        let late: Vec<u64> =
            self.under_way.iter().filter(|(_, command)| command.until <= now).map(|(id, _)| *id).collect();
        for id in late {
            let Some(command) = self.under_way.remove(&id) else { continue };
            let seconds = COMMAND_WITHIN.as_secs();
            let error = format!("the plane has not answered within {seconds} s; see its log");
            self.answer(command.peer, &Answer::failed(command.id, error), true);
        }
        if self.listening.is_err_and(|until| until <= now)
            && self.poller.add(&self.listener, LISTENER, Interest::READ).is_ok()
        {
            self.listening = Ok(());
        }
    }

    fn accept(&mut self, now: Instant) {
        // a few at a time, so that a flood of connections does not starve the rest
        for _ in 0..16 {
            match self.listener.accept() {
                Ok((stream, _)) => self.welcome(stream, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if !self.make_room() {
                        warn!(%error, "cannot accept admin clients; trying again in a second");
                        self.poller.remove(&self.listener);
                        self.listening = Err(now + ACCEPT_PAUSE);
                        return;
                    }
                }
            }
        }
    }

    fn welcome(&mut self, stream: UnixStream, now: Instant) {
        if self.peers.len() >= MAX_CLIENTS {
            self.make_room();
        }
        let token = self.next_peer;
        self.next_peer += 1;
        match AdminPeer::new(stream, token, self.own_uid, &self.poller, now) {
            Ok(peer) => {
                self.peers.insert(token, peer);
            }
            Err(error) => debug!(%error, "admin client not accepted"),
        }
    }

    /// Closes the client that has been silent for longest; false if there is none.
    fn make_room(&mut self) -> bool {
        let Some(token) = self.peers.iter().min_by_key(|(_, peer)| peer.rank()).map(|(token, _)| *token)
        else {
            return false;
        };
        debug!(token, "closing the longest silent admin client");
        self.close(token);
        true
    }

    fn close(&mut self, token: u64) {
        if let Some(peer) = self.peers.remove(&token) {
            self.poller.remove(peer.stream());
            self.routes.forget(token);
        }
    }

    fn on_peer(&mut self, token: u64, ready: Ready, now: Instant) {
        let Some(peer) = self.peers.get_mut(&token) else { return };
        if ready.write {
            peer.flush();
        }
        if ready.read {
            peer.fill(now);
        }
        self.serve(token, now);
        if ready.closed && self.peers.get(&token).is_some_and(|peer| !peer.has_input()) {
            // both directions are closed: nobody reads an answer any more
            self.close(token);
        }
    }

    /// Carries out the whole lines that a client has sent, as far as there is room for the answers.
    fn serve(&mut self, token: u64, now: Instant) {
        loop {
            let Some(peer) = self.peers.get_mut(&token) else { return };
            match peer.next_request() {
                PeerState::Idle => break,
                PeerState::Finished => return self.close(token),
                PeerState::TooLong(error) => {
                    self.answer(token, &Answer::failed(Value::Null, error.to_string()), false);
                }
                PeerState::Line(line) => {
                    let may_change = peer.may_change();
                    let under_way = peer.under_way();
                    if let Some(reply) = self.carry_out(token, &line, may_change, under_way, now) {
                        self.answer(token, &reply, false);
                    }
                }
            }
        }
        if let Some(peer) = self.peers.get_mut(&token)
            && peer.update_interest(&self.poller).is_err()
        {
            self.close(token);
        }
    }

    /// Carries out one line; the reply, unless the plane has to be asked for it.
    fn carry_out(
        &mut self,
        peer: u64,
        line: &[u8],
        may_change: bool,
        under_way: usize,
        now: Instant,
    ) -> Option<Answer> {
        let (id, action) = match admin::parse(line) {
            Ok(request) => request,
            Err(reply) => return Some(Answer::from(*reply)),
        };
        let changes = match &action {
            Action::Ping => return Some(Answer::done(&id, &serde_json::json!({}))),
            Action::Status => return Some(Answer::done(&id, &self.status())),
            Action::Plane { changes, .. } => *changes,
            Action::Bind { .. } | Action::Links(_) => true,
            Action::Routes(action) => action.changes(),
            Action::Tenants(action) => action.changes(),
            Action::Tuning(_) => true,
        };
        if changes && !may_change {
            return Some(Answer::failed(id, "only root and the user who runs madctld may change the plane"));
        }
        if under_way >= MAX_UNDER_WAY {
            return Some(Answer::failed(
                id,
                format!("more than {MAX_UNDER_WAY} commands under way; wait for answers"),
            ));
        }
        let number = self.next_command;
        let mut undo = None;
        let command = match action {
            Action::Plane { kind, value, selector, .. } => {
                let command = Command::about(number, kind, value, &selector);
                let Some(command) = command else {
                    return Some(Answer::failed(id, "the name of a node is longer than 192 bytes"));
                };
                command
            }
            Action::Links(action) => {
                let former = match self.links.change(&action) {
                    Ok(former) => former,
                    Err(error) => return Some(Answer::failed(id, error)),
                };
                if !self.link.is_connected() {
                    let text = "the plane is away; it will see to it when it starts".to_owned();
                    return Some(Answer::done(&id, &Done { node_guid: String::new(), port: 0, text }));
                }
                let Some(command) = Command::about(number, ask::LINKS_CHANGED, 0, action.at()) else {
                    return Some(Answer::failed(id, "the name of a port is longer than 192 bytes"));
                };
                undo = Some(former);
                command
            }
            Action::Bind { session, path, drop_broken } => {
                // the plane counts from 0
                let slot = session.saturating_sub(1);
                let Some(command) = Command::bind_session(number, slot, &path, drop_broken) else {
                    return Some(Answer::failed(id, "a path has 1 to 63 ports"));
                };
                command
            }
            Action::Routes(action) => {
                let reply = self.routes.carry_out(peer, id, action, now);
                return self.unless_waiting(peer, reply);
            }
            Action::Tenants(action) => {
                let reply = self.routes.carry_out_tenants(peer, id, action, now);
                return self.unless_waiting(peer, reply);
            }
            Action::Tuning(action) => {
                let reply = self.routes.carry_out_tuning(peer, id, &action, now);
                return self.unless_waiting(peer, reply);
            }
            Action::Status | Action::Ping => return None,
        };
        if let Err(error) = self.link.send(&command) {
            return Some(Answer::failed(id, error.to_string()));
        }
        self.next_command += 1;
        self.under_way.insert(number, UnderWay { peer, id, until: now + COMMAND_WITHIN, undo });
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.command_given();
        }
        if changes {
            let (kind, value) = (command.kind, command.value);
            info!(kind, value, "command given to the plane");
        }
        None
    }

    /// Remembers that a client waits for an answer, if it has not got one yet.
    fn unless_waiting(&mut self, peer: u64, reply: Option<Answer>) -> Option<Answer> {
        if reply.is_none()
            && let Some(peer) = self.peers.get_mut(&peer)
        {
            peer.command_given();
        }
        reply
    }

    fn status(&self) -> ControlStatus {
        ControlStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_unix_ns: self.started_unix_ns,
            connected: self.link.is_connected(),
            link: self.link.why_away(),
            clients: self.peers.len(),
            commands: self.next_command - 1,
            events: self.events_taken,
        }
    }

    /// Gives a reply to a client, if it is still there.
    fn answer(&mut self, token: u64, reply: &Answer, was_under_way: bool) {
        let Some(peer) = self.peers.get_mut(&token) else { return };
        peer.reply(reply.line());
        if was_under_way {
            peer.command_answered();
            // it may be finished with that, or have more lines than there was room for
            self.serve(token, Instant::now());
        }
    }
}

fn listen(path: PathBuf) -> io::Result<UnixListener> {
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    // anyone may ask; changes are decided by the credentials of the peer
    std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Watches for the plane's socket to appear; without it the link is only tried from time to time.
fn watch(paths: &PlanePaths) -> Option<OwnedFd> {
    let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK);
    let watched = fd.and_then(|fd| {
        let what = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&fd, paths.run_dir(), what).map(|_| fd)
    });
    watched.inspect_err(|error| warn!(%error, "cannot watch the runtime directory")).ok()
}

fn log_event(told: &Event) {
    let (guid, port, value) = (format!("{:#018x}", told.node_guid), told.port, told.value);
    match told.kind {
        event::SESSION_OPENED => debug!(session = value, text = told.text(), "session opened"),
        event::SESSION_CLOSED => debug!(session = value, text = told.text(), "session closed"),
        event::PORT_CHANGED => debug!(node = guid, port, state = value, "port changed"),
        event::LINK => info!(node = guid, port, up = value, "{}", told.text()),
        event::DEVICE => info!(guid, port, how = value, "{}", told.text()),
        event::TRAP => debug!(node = guid, port, trap = value, "trap"),
        other => debug!(kind = other, node = guid, port, value, "event of an unknown kind"),
    }
}
