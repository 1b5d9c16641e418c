//! A real plane and who may be whom on it: users, tenants, agents, the SM bit, control, paths, the log.
//!
//! Other users are played by this program itself, started again under another uid; that needs root and is skipped otherwise.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is a test")]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use madplane_port::MadMessage;
use madplane_shm::handoff::{Connection, HandoffError, Request, op};
use madplane_shm::header::Incarnation;
use madplane_shm::message::{Envelope, kind};
use madplane_shm::paths::PlanePaths;
use madplane_shm::session::{ClientEnds, PairFds, open_pair};
use madplane_shm::status::{SessionRecord, Status};
use madplane_shm::sync::Ordering;
use madplane_shm::table::TableOptions;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::tenant::{TenantEntry, service_class, tenant_right};
use madplane_wire::MadMut;

const NOBODY: u32 = 65_534;
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;

/// A running madplaned and the table that it reads.
struct Plane {
    paths: PlanePaths,
    daemon: Child,
    table: RoutePublisher,
    directory: tempfile::TempDir,
}

impl Plane {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let paths = PlanePaths::under(directory.path(), "t").unwrap();
        let runtime = paths.run_dir().parent().unwrap();
        let memory = paths.status_segment().parent().unwrap().to_owned();
        std::fs::create_dir_all(&memory).unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let daemon = Command::new(env!("CARGO_BIN_EXE_madplaned"))
            .args(["--name", "t", "--fabric", "builtin:fat-tree,radix=4,levels=2", "--workers", "2"])
            .env("MADPLANE_RUNTIME_DIR", runtime)
            .env("MADPLANE_SHM_DIR", memory)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let options = TableOptions { routes: 16, tenants: 16 };
        let table = RoutePublisher::create(&paths.table_segment(), options, Incarnation::default()).unwrap();
        let plane = Self { paths, daemon, table, directory };
        plane.wait_until("the plane listens", || plane.connect().is_ok());
        plane
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(60), "{what} does not happen\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(&self) -> Result<Connection, HandoffError> {
        Connection::open(&self.paths.attach_socket(), "t")
    }

    fn set_tenants(&mut self, tenants: &[TenantEntry]) {
        for place in 0..16 {
            match tenants.get(place as usize) {
                Some(entry) => self.table.set_tenant(place, entry),
                None => self.table.clear_tenant(place),
            }
        }
        self.table.publish();
    }

    /// What comes of `request` when another user sends it.
    fn as_user(&self, uid: u32, gid: u32, what: &str) -> Option<String> {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "another_user", "--ignored", "--nocapture"])
            .env("TENANTS_SOCKET", self.paths.attach_socket())
            .env("TENANTS_WHAT", what)
            .uid(uid)
            .gid(gid)
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                println!("skipped: cannot start another user's process: {error}");
                return None;
            }
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let result = text.lines().find_map(|line| line.split_once("RESULT ").map(|(_, result)| result));
        Some(result.unwrap_or_else(|| panic!("{what}: {text}")).to_owned())
    }

    fn session(&self, slot: usize, look: impl FnOnce(&SessionRecord)) {
        look(Status::open(&self.paths.status_segment()).unwrap().session(slot));
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn tenant(name: &str, id: u64, uids: &[u32], gids: &[u32]) -> TenantEntry {
    let mut entry = TenantEntry::new(name).unwrap();
    entry.id = id;
    entry.rights = tenant_right::SMP_GET;
    for class in [0x01, 0x81, 0x04] {
        entry.allow_class(class, true);
    }
    assert!(entry.set_uids(uids) && entry.set_gids(gids) && entry.set_p_keys(&[0x8001]));
    entry
}

fn outcome(result: Result<u32, HandoffError>) -> String {
    match result {
        Ok(value) => format!("ok {value}"),
        Err(HandoffError::Refused { errno, text }) => format!("errno {errno} {text}"),
        Err(other) => format!("failed {other}"),
    }
}

/// Carries `what` out over fresh connections to `socket`: words separated by blanks.
fn act(socket: &Path, what: &str) -> String {
    let connection = match Connection::open(socket, "t") {
        Ok(connection) => connection,
        Err(error) => return outcome(Err(error)),
    };
    let call = |request: &Request| connection.call(request).map(|(reply, _)| reply.value);
    let named = |op, name: &str| Request::with_selector(op, "").unwrap().of_tenant(name).unwrap();
    let words: Vec<&str> = what.split(' ').collect();
    match words[..] {
        ["attach"] => outcome(call(&named(op::ATTACH, ""))),
        ["attach", name] => outcome(call(&named(op::ATTACH, name))),
        ["sm"] => outcome(call(&named(op::HOLD_SM, ""))),
        ["sm", name] => outcome(call(&named(op::HOLD_SM, name))),
        ["control"] => outcome(call(&Request { op: op::CONTROL, ..Request::default() })),
        ["register", name, class] => outcome(call(&named(op::ATTACH, name)).and_then(|_| {
            let mgmt_class = class.parse().unwrap();
            let qpn = u8::from(!matches!(mgmt_class, 1 | 0x81));
            let request =
                Request { op: op::REGISTER, qpn, mgmt_class, class_version: 1, ..Request::default() };
            call(&request).map(|_| 0)
        })),
        _ => panic!("{what}"),
    }
}

#[test]
#[ignore = "run by other tests, as another user"]
fn another_user() {
    let Some(socket) = std::env::var_os("TENANTS_SOCKET") else { return };
    println!("RESULT {}", act(Path::new(&socket), &std::env::var("TENANTS_WHAT").unwrap()));
}

fn errno_of(result: &str) -> i32 {
    result.strip_prefix("errno ").and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn root_names_a_tenant_or_none_and_is_told_what_does_not_fit() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
    }
    let mut plane = Plane::start();
    let socket = plane.paths.attach_socket();
    assert_eq!(act(&socket, "attach"), "ok 1");
    let none = act(&socket, "attach blue");
    assert_eq!(none, format!("errno {ENOENT} there is no tenant blue"));
    let mut red = tenant("red", 2, &[1], &[]);
    red.rights = tenant_right::ALL;
    plane.set_tenants(&[tenant("blue", 1, &[NOBODY], &[]), red]);
    assert!(act(&socket, "attach").starts_with("ok"));
    assert!(act(&socket, "attach blue").starts_with("ok"));
    assert_eq!(
        act(&socket, "attach Blau"),
        format!("errno {ENOENT} there is no tenant Blau; did you mean blue?")
    );
    assert_eq!(act(&socket, "register blue 4"), "ok 0");
    assert_eq!(act(&socket, "register blue 0"), "ok 0");
    let refused = act(&socket, "register blue 3");
    assert_eq!(refused, format!("errno {EPERM} tenant blue may not use class 0x03"));
    let refused = act(&socket, "sm blue");
    assert_eq!(refused, format!("errno {EPERM} tenant blue may not act as subnet manager"));
    assert_eq!(act(&socket, "sm red"), "ok 0");
    assert_eq!(act(&socket, "sm"), "ok 0");
}

#[test]
fn another_user_is_what_the_tenants_make_of_it() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be somebody else");
        return;
    }
    let mut plane = Plane::start();
    let Some(free) = plane.as_user(NOBODY, NOBODY, "attach") else { return };
    assert!(free.starts_with("ok"), "without tenants all may: {free}");
    let control = plane.as_user(NOBODY, NOBODY, "control").unwrap();
    assert_eq!(errno_of(&control), EACCES, "{control}");

    plane.set_tenants(&[tenant("blue", 1, &[NOBODY], &[]), tenant("red", 2, &[1], &[])]);
    let user = |plane: &Plane, what: &str| plane.as_user(NOBODY, NOBODY, what).unwrap();
    for (what, expected) in [
        ("attach", 0),
        ("attach blue", 0),
        ("attach red", EACCES),
        ("attach green", ENOENT),
        ("register blue 4", 0),
        ("register blue 3", EPERM),
        ("sm", EPERM),
        ("sm red", EACCES),
    ] {
        let got = user(&plane, what);
        assert_eq!(errno_of(&got), expected, "{what}: {got}");
    }
    // another user, of no tenant, and one whose group is listed
    let got = plane.as_user(7, 7, "attach").unwrap();
    assert_eq!(got, format!("errno {EACCES} no tenant of this plane lists user 7 or its groups"));
    plane.set_tenants(&[
        tenant("blue", 1, &[NOBODY], &[]),
        tenant("red", 2, &[1], &[]),
        tenant("green", 3, &[], &[NOBODY]),
    ]);
    assert!(plane.as_user(7, NOBODY, "attach").unwrap().starts_with("ok"));
    let several = user(&plane, "attach");
    assert_eq!(errno_of(&several), EACCES, "{several}");
    assert!(several.contains("blue, green or others: name one with MADPLANE_TENANT"), "{several}");
    assert!(user(&plane, "attach green").starts_with("ok"));
}

/// A session with one agent for sending GMPs.
struct Session {
    connection: Connection,
    ends: ClientEnds<MadMessage, MadMessage>,
    slot: usize,
    hi_tid: u32,
}

fn open(plane: &Plane, name: &str) -> Session {
    let connection = plane.connect().unwrap();
    let request = Request::with_selector(op::ATTACH, "").unwrap().of_tenant(name).unwrap();
    let (reply, fds) = connection.call(&request).unwrap();
    let [up, down, _, _] = <[_; 4]>::try_from(fds).unwrap();
    let request = Request { op: op::REGISTER, qpn: 1, mgmt_class: 4, class_version: 1, ..Request::default() };
    let (agent, _) = connection.call(&request).unwrap();
    let ends = open_pair(&PairFds { up, down }).unwrap();
    Session { connection, ends, slot: reply.value as usize - 1, hi_tid: agent.value }
}

#[test]
fn a_session_shows_its_tenant_class_and_path() {
    let mut plane = Plane::start();
    let mut blue = tenant("blue", 1, &[NOBODY], &[]);
    plane.set_tenants(&[tenant("red", 2, &[1], &[]), blue]);
    let session = open(&plane, "blue");
    plane.session(session.slot, |record| {
        assert_eq!(record.tenant.load(Ordering::Relaxed), 2);
        assert_eq!(record.tenant_name.load(), "blue");
        assert_eq!(record.class.load(Ordering::Relaxed), u32::from(service_class::BULK));
        assert_eq!(record.bound_path(), []);
    });
    // the class follows the tenant
    blue.class = service_class::RESERVED;
    plane.set_tenants(&[tenant("red", 2, &[1], &[]), blue]);
    plane.wait_until("the class is shown", || {
        let mut class = 0;
        plane.session(session.slot, |record| class = record.class.load(Ordering::Relaxed));
        class == u32::from(service_class::RESERVED)
    });
    let bind = |ports: &[u8], drop| {
        session.connection.call(&Request::bind_path(ports, drop).unwrap()).map(|(reply, _)| reply.value)
    };
    // the first host hangs at port 1 of its switch in these fabrics, or at another: any port leads somewhere
    let refused = outcome(bind(&[2, 1], false));
    assert_eq!(errno_of(&refused), EINVAL, "{refused}");
    bind(&[1], true).unwrap();
    plane.session(session.slot, |record| {
        assert_eq!(record.bound_path(), [1]);
        assert_eq!(
            record.path_on_broken.load(Ordering::Relaxed),
            u32::from(madplane_shm::table::on_broken::DROP)
        );
    });
    bind(&[], false).unwrap();
    plane.session(session.slot, |record| assert_eq!(record.bound_path(), []));
    let slot = session.slot;
    drop(session);
    plane.wait_until("the session is closed", || {
        let mut id = 1;
        plane.session(slot, |record| id = record.id.load(Ordering::Acquire));
        id == 0
    });
    let nobodys = open(&plane, "");
    plane.session(nobodys.slot, |record| {
        assert_eq!((record.tenant.load(Ordering::Relaxed), record.tenant_name.load().as_str()), (0, ""));
    });
}

#[test]
fn a_refused_p_key_is_in_the_error_log_and_in_the_log_but_not_each_time() {
    let mut plane = Plane::start();
    plane.set_tenants(&[tenant("blue", 1, &[], &[])]);
    let mut session = open(&plane, "blue");
    let mut message = MadMessage::default();
    let mut mad = MadMut::new(&mut message.mad);
    mad.set_base_version(1);
    mad.set_mgmt_class(4);
    mad.set_class_version(1);
    mad.set_method(1);
    message.envelope = Envelope {
        kind: kind::MAD,
        length: 256,
        agent: session.hi_tid,
        dlid: 1,
        dst_qp: 1,
        q_key: 0x8001_0000,
        ..Envelope::default()
    };
    const SENT: u64 = 40;
    for _ in 0..SENT {
        session.ends.up.push(&message).unwrap();
    }
    // the port has the default partition, the tenant has another
    let line = "P_Key mismatch (0xFFFF vs 0x8001)";
    let status = Status::open(&plane.paths.status_segment()).unwrap();
    plane.wait_until("the error log tells", || {
        let record = status.error(0);
        record.count.load(Ordering::Acquire) == SENT && record.text.load() == line
    });
    plane.wait_until("the log tells", || plane.log().contains(line));
    let lines = plane.log().matches(line).count() as u64;
    assert!(lines < SENT, "{lines} lines");
}
