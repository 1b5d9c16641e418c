//! Test bed: directories of one test's own, daemons that end with it, and a plane that is only a thread.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]

pub mod cpuset;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command as Process, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use madplane_control::sys;
use madplane_shm::command::{Command, Event, event};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{self, Reply, Request, op};
use madplane_shm::header::Incarnation;
use madplane_shm::process::lock::DaemonLock;
use madplane_shm::session::{PlaneEnds, create_pair};
use madplane_shm::status::{Status, plane_state};
use madplane_shm::table::snapshot::TableReader;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zerocopy::{FromBytes, IntoBytes};

/// Watchdog of everything that waits; far beyond what anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const NAME: &str = "bed";

/// Waits until `done`, or fails.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "still not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a command printed that was done.
pub fn ok(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of a command that failed with this exit code.
pub fn failed(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(code), 1), "{text}");
    text.trim_end().strip_prefix("madctl: ").unwrap().to_owned()
}

/// Whether something that a test needs is there; says so if not, and fails where nothing may be missing.
pub fn present(what: &str, found: bool, remedy: &str) -> bool {
    if !found {
        let required = std::env::var("MADPLANE_REQUIRE_PEERS").is_ok_and(|value| value == "1");
        assert!(!required, "no {what}, and MADPLANE_REQUIRE_PEERS=1");
        println!("skipped: no {what}; {remedy}");
    }
    found
}

/// Directories for one test, removed with it.
pub struct Bed {
    root: tempfile::TempDir,
}

impl Bed {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("run").join(NAME)).unwrap();
        std::fs::create_dir_all(root.path().join("shm")).unwrap();
        Self { root }
    }

    /// One for a real plane; `None`, with a word, if madplaned is not built and need not be.
    pub fn beside_madplaned() -> Option<Self> {
        let beside = std::path::Path::new(env!("CARGO_BIN_EXE_madctl")).with_file_name("madplaned");
        present("madplaned", beside.is_file(), "cargo build -p madplane-dataplane").then(Self::new)
    }

    /// One that other users may look into, with a madctl that they may execute; `None`, with a word, without root.
    pub fn for_anyone() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to act as another user");
            return None;
        }
        let bed = Self::new();
        std::fs::set_permissions(bed.root(), std::fs::Permissions::from_mode(0o755)).unwrap();
        // copied by another process: a file that this one had open for writing could be busy in a child that a test beside
        // this one has just forked
        let copy = bed.root().join("madctl");
        assert!(Process::new("cp").arg(env!("CARGO_BIN_EXE_madctl")).arg(copy).status().unwrap().success());
        Some(bed)
    }

    pub fn root(&self) -> PathBuf {
        self.root.path().to_owned()
    }

    pub fn run_file(&self, file: &str) -> PathBuf {
        self.root.path().join("run").join(NAME).join(file)
    }

    pub fn status_file(&self) -> PathBuf {
        self.root.path().join("shm").join(format!("madplane.{NAME}.status"))
    }

    pub fn table_file(&self) -> PathBuf {
        self.root.path().join("shm").join(format!("madplane.{NAME}.table"))
    }

    pub fn table(&self) -> TableReader {
        TableReader::open(&self.table_file()).unwrap()
    }

    /// Writes a file of this test's own; its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.root.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A program of this crate in the directories of this test.
    pub fn program(&self, path: &str) -> Process {
        let mut process = Process::new(path);
        process
            .env("MADPLANE_RUNTIME_DIR", self.root.path().join("run"))
            .env("MADPLANE_SHM_DIR", self.root.path().join("shm"))
            .env_remove("MADPLANE_NAME")
            .env_remove("MADPLANE_TENANT")
            .env_remove("MADPLANE_PATH")
            .env_remove("MADPLANE_LIBEXEC")
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null());
        process
    }

    pub fn madctl(&self, arguments: &[&str]) -> Output {
        self.program(env!("CARGO_BIN_EXE_madctl")).args(["--name", NAME]).args(arguments).output().unwrap()
    }

    /// madctl run by a user who is neither root nor madctld's, in a bed [`Bed::for_anyone`].
    pub fn madctl_as_nobody(&self, arguments: &[&str]) -> Output {
        let mut process = self.program(self.root().join("madctl").to_str().unwrap());
        process.args(["--name", NAME]).args(arguments).uid(65534).gid(65534).output().unwrap()
    }

    /// Starts madctld and waits until it listens.
    pub fn madctld(&self) -> Daemon {
        self.madctld_with(&[])
    }

    /// Likewise, with more options.
    pub fn madctld_with(&self, options: &[&str]) -> Daemon {
        self.spawn_madctld(options, Stdio::null())
    }

    /// Likewise, and what it logs can be read after its end.
    pub fn madctld_that_logs(&self, options: &[&str]) -> Daemon {
        self.spawn_madctld(options, Stdio::piped())
    }

    fn spawn_madctld(&self, options: &[&str], log: Stdio) -> Daemon {
        let mut process = self.program(env!("CARGO_BIN_EXE_madctld"));
        process.args(["--name", NAME]).args(options).stderr(log);
        let daemon = Daemon { child: process.spawn().unwrap() };
        eventually("madctld listens", || self.connect().is_some());
        daemon
    }

    pub fn connect(&self) -> Option<UnixStream> {
        let stream = UnixStream::connect(self.run_file("admin.sock")).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(stream)
    }

    /// Sends one line on a connection of its own and returns the reply.
    pub fn ask(&self, line: &str) -> serde_json::Value {
        Admin::new(self).ask(line)
    }

    pub fn wait_connected(&self) {
        let connected = || self.ask(r#"{"v":1,"cmd":"control.status"}"#)["result"]["connected"] == true;
        eventually("madctld has the control channel", connected);
    }
}

/// A connection to madctld.
/// Stops the plane with the test, whatever the test did.
pub struct Running<'a>(pub &'a Bed);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.madctl(&["down"]);
    }
}

pub struct Admin {
    pub stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Admin {
    pub fn new(bed: &Bed) -> Self {
        let stream = bed.connect().expect("madctld listens");
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    pub fn send(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next reply; `None` if the connection has ended.
    pub fn reply(&mut self) -> Option<serde_json::Value> {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        if line.is_empty() { None } else { Some(serde_json::from_str(&line).unwrap()) }
    }

    pub fn ask(&mut self, line: &str) -> serde_json::Value {
        self.send(line);
        self.reply().expect("a reply")
    }
}

/// A daemon that is killed with its test.
pub struct Daemon {
    pub child: Child,
}

impl Daemon {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end and returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut status = None;
        eventually("the daemon ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How the fake plane answers a command; `None` is silence.
pub type Answer = fn(&Command) -> Option<Event>;

pub fn done(command: &Command) -> Option<Event> {
    let mut event = Event { id: command.id, kind: event::DONE, node_guid: 0x10, port: 3, ..Event::default() };
    event.set_text(&format!("{} {} {}", command.kind, command.value, command.selector()));
    Some(event)
}

/// A plane that consists of a lock, a status segment and a thread that serves the attach socket.
pub struct FakePlane {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _lock: DaemonLock,
    pub status: Status,
}

impl FakePlane {
    pub fn start(bed: &Bed, answer: Answer) -> Self {
        let lock = DaemonLock::acquire(&bed.run_file("madplaned.lock")).unwrap();
        let me = Incarnation {
            pid: std::process::id(),
            start_ticks: madplane_shm::process::start_ticks(std::process::id()).unwrap(),
            boot: 0,
        };
        let status = Status::create(&bed.status_file(), me).unwrap();
        let plane = status.plane();
        plane.state.store(plane_state::READY, madplane_shm::sync::Ordering::Relaxed);
        plane.workers.store(1, madplane_shm::sync::Ordering::Relaxed);
        plane.nodes.store(6, madplane_shm::sync::Ordering::Relaxed);
        plane.fabric.store("builtin:ring,switches=3,hosts=1");
        plane.program.store("fake");
        let path = bed.run_file("attach.sock");
        let _ = std::fs::remove_file(&path);
        let kind = SocketType::SEQPACKET;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 16).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || serve(&listener, answer, &stopped));
        Self { stop, thread: Some(thread), _lock: lock, status }
    }
}

impl Drop for FakePlane {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Channel {
    ends: PlaneEnds<Command, Event>,
    command_bell: Doorbell,
    event_bell: Doorbell,
}

fn serve(listener: &OwnedFd, answer: Answer, stop: &AtomicBool) {
    let mut sockets: Vec<OwnedFd> = Vec::new();
    let mut control: Option<(usize, Channel)> = None;
    while !stop.load(Ordering::Relaxed) {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        if let Some((_, channel)) = &control {
            fds.push(PollFd::new(&channel.command_bell, PollFlags::IN));
        }
        let first_socket = fds.len();
        fds.extend(sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        let _ = rustix::event::poll(&mut fds, Some(&sys::timespec(Duration::from_millis(5))));
        let woken: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for index in (first_socket..woken.len()).rev().filter(|index| woken[*index]) {
            let index = index - first_socket;
            let mut bytes = [0u8; 256];
            let (length, _) = handoff::recv_with_fds(&sockets[index], &mut bytes).unwrap_or((0, Vec::new()));
            if length == 0 {
                sockets.remove(index);
                control =
                    control.filter(|(of, _)| *of != index).map(|(of, c)| (of - usize::from(of > index), c));
                continue;
            }
            let request = Request::read_from_bytes(&bytes).unwrap();
            let socket = sockets[index].as_fd();
            match request.op {
                op::CONTROL if control.is_some() => {
                    let reply = Reply::refusal(16, "another control process is attached (pid 1)");
                    handoff::send_with_fds(socket, reply.as_bytes(), &[]).unwrap();
                }
                op::CONTROL => {
                    let (mut ends, fds): (PlaneEnds<Command, Event>, _) =
                        create_pair("control", 64, false, Incarnation::default()).unwrap();
                    let (command_bell, event_bell) =
                        (Doorbell::create().unwrap(), Doorbell::create().unwrap());
                    let given = [fds.up.as_fd(), fds.down.as_fd(), command_bell.as_fd(), event_bell.as_fd()];
                    handoff::send_with_fds(socket, Reply::default().as_bytes(), &given).unwrap();
                    ends.up.arm();
                    control = Some((index, Channel { ends, command_bell, event_bell }));
                }
                op::LOOKUP if request.selector() == "host-1" || request.selector().is_empty() => {
                    handoff::send_with_fds(socket, Reply::default().as_bytes(), &[]).unwrap();
                }
                _ => {
                    let reply = Reply::refusal(19, "no node is called that, did you mean \"host-1\"?");
                    handoff::send_with_fds(socket, reply.as_bytes(), &[]).unwrap();
                }
            }
        }
        if woken[0] {
            sockets.push(rustix::net::accept(listener).unwrap());
        }
        if let Some((_, channel)) = &mut control {
            channel.serve(answer);
        }
    }
}

impl Channel {
    fn serve(&mut self, answer: Answer) {
        self.command_bell.take();
        self.ends.up.disarm();
        let mut command = Command::default();
        let mut told = false;
        while self.ends.up.pop(&mut command) {
            if let Some(event) = answer(&command) {
                self.ends.down.push(&event).unwrap();
                told = true;
            }
        }
        self.ends.up.commit();
        if told && self.ends.down.wake_due() {
            self.event_bell.ring();
        }
        self.ends.up.arm();
    }
}
