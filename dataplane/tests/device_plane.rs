//! A whole plane in this process with devices that are not there: what housekeeping does when they go, come and change.
//!
//! The plane finds its directories by the environment, so the test starts this program again with one of its own.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use madplane_dataplane::attach::devices::{DeviceSource, Opening, Sources};
use madplane_dataplane::config::{Config, RawConfig};
use madplane_dataplane::plane::Plane;
use madplane_port::MadMessage;
use madplane_port::device::{DeviceSpec, PortIdentity, Unavailable};
use madplane_port::loopback::device::{Wire, device};
use madplane_port::opened::DeviceEvent;
use madplane_shm::handoff::{Connection, HandoffError, Reply, Request, op, place_kind};
use madplane_shm::message::{Envelope, kind};
use madplane_shm::paths::PlanePaths;
use madplane_shm::session::{ClientEnds, PairFds, open_pair};
use madplane_shm::status::{Status, device_state, plane_state};
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use madplane_wire::MadMut;
use madplane_wire::mad::{class, method};

const ENODEV: i32 = 19;
const EAGAIN: i32 = 11;
const NAME: &str = "device-plane";

/// A device as the test has it.
#[derive(Debug, Default)]
struct Fake {
    present: bool,
    identity: PortIdentity,
    wire: Option<Wire>,
    introduced: u32,
    /// The other ends of what holds IsSM.
    is_sm: Vec<UnixStream>,
}

type Fakes = Arc<Mutex<HashMap<String, Fake>>>;

#[derive(Debug)]
struct Source {
    name: String,
    backends: usize,
    fakes: Fakes,
}

impl Source {
    fn with<T>(&self, look: impl FnOnce(&mut Fake) -> T) -> T {
        look(self.fakes.lock().unwrap().get_mut(&self.name).unwrap())
    }
}

impl DeviceSource for Source {
    fn open(&mut self) -> Opening {
        self.with(|fake| -> Opening {
            let absent = Unavailable::NoDevice { name: self.name.clone(), known: vec![] };
            if !fake.present {
                return Err(vec![absent; self.backends]);
            }
            let (port, wire) = device(64, true).unwrap();
            fake.wire = Some(wire);
            Ok((Box::new(port), vec![Unavailable::NotBuilt; self.backends - 1]))
        })
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn state(&self) -> Option<u32> {
        self.with(|fake| fake.present.then_some(fake.identity.state))
    }

    fn introduce(&self) {
        self.with(|fake| fake.introduced += 1);
    }

    fn hold_is_sm(&self) -> std::io::Result<OwnedFd> {
        let (held, holder) = UnixStream::pair()?;
        holder.set_nonblocking(true)?;
        self.with(|fake| fake.is_sm.push(holder));
        if self.name == "two" { Err(std::io::ErrorKind::NotFound.into()) } else { Ok(held.into()) }
    }

    fn identity(&self) -> Option<PortIdentity> {
        self.with(|fake| fake.present.then(|| fake.identity.clone()))
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn connect(paths: &PlanePaths) -> Connection {
    Connection::open(&paths.attach_socket(), NAME).unwrap()
}

fn ask(paths: &PlanePaths, op: u32, selector: &str) -> Result<Reply, (i32, String)> {
    let request = Request::with_selector(op, selector).unwrap();
    match connect(paths).call(&request) {
        Ok((reply, _)) => Ok(reply),
        Err(HandoffError::Refused { errno, text }) => Err((errno, text)),
        Err(other) => panic!("{other}"),
    }
}

/// A session at a device, with one agent.
struct Session {
    connection: Connection,
    ends: ClientEnds<MadMessage, MadMessage>,
    bell: madplane_shm::doorbell::Doorbell,
    agent: u32,
}

impl Session {
    fn open(paths: &PlanePaths, selector: &str) -> Self {
        let connection = connect(paths);
        let (_, fds) = connection.call(&Request::with_selector(op::ATTACH, selector).unwrap()).unwrap();
        let [up, down, up_bell, _] = <[_; 4]>::try_from(fds).unwrap();
        let ends = open_pair(&PairFds { up, down }).unwrap();
        let request = Request {
            op: op::REGISTER,
            qpn: 1,
            mgmt_class: class::PERF,
            class_version: 1,
            method_mask: [1 << method::GET, 0],
            ..Request::default()
        };
        let agent = connection.call(&request).unwrap().0.value;
        let bell = madplane_shm::doorbell::Doorbell::from_fd(up_bell);
        Self { connection, ends, bell, agent }
    }

    /// Sends a request.
    fn send(&mut self, dlid: u16, tid: u64) {
        let mut message = MadMessage::default();
        let mut mad = MadMut::new(&mut message.mad);
        mad.init(class::PERF, 1, method::GET, 1, 0, tid);
        message.envelope = Envelope {
            kind: kind::MAD,
            agent: self.agent,
            dlid,
            dst_qp: 1,
            q_key: 0x8001_0000,
            length: 256,
            ..Envelope::default()
        };
        self.ends.up.push(&message).unwrap();
        if self.ends.up.wake_due() {
            self.bell.ring();
        }
    }

    fn receive(&mut self) -> MadMessage {
        let mut message = MadMessage::default();
        wait_until("an answer", || self.ends.down.pop(&mut message));
        self.ends.down.commit();
        message
    }
}

#[test]
fn a_plane_looks_after_its_devices() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_directory_of_its_own", "--ignored", "--nocapture"])
        .env("MADPLANE_RUNTIME_DIR", directory.path())
        .env("MADPLANE_SHM_DIR", directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "started by a_plane_looks_after_its_devices"]
fn in_a_directory_of_its_own() {
    let fakes: Fakes = Arc::default();
    let identity =
        PortIdentity { node_guid: 0xD0, state: 4, lid: 5, p_keys: vec![0xffff], ..PortIdentity::default() };
    for (name, present) in [("one", true), ("two", false)] {
        let fake = Fake { present, identity: identity.clone(), ..Fake::default() };
        fakes.lock().unwrap().insert(name.to_owned(), fake);
    }
    let (stop, stops) = UnixStream::pair().unwrap();
    let in_thread = fakes.clone();
    let plane = std::thread::spawn(move || {
        let raw = RawConfig {
            name: NAME.to_owned(),
            fabric: Some("builtin:ring,switches=2".to_owned()),
            workers: Some(2),
            no_huge: true,
            overprovisioned: true,
            devices: vec!["umad:one".to_owned(), "auto:two".to_owned()],
            ..RawConfig::default()
        };
        let sources: Sources = Box::new(move |spec: &DeviceSpec| {
            let fakes = in_thread.clone();
            Box::new(Source { name: spec.device().to_owned(), backends: spec.backends().len(), fakes })
        });
        let plane = Plane::start_with(Config::try_from(raw).unwrap(), Instant::now(), &sources).unwrap();
        plane.serve(stops).unwrap();
    });
    let paths = PlanePaths::new(NAME).unwrap();
    wait_until("a plane", || {
        let status = Status::open(&paths.status_segment());
        status.is_ok_and(|status| status.plane().state.load(Acquire) == plane_state::READY)
    });
    let status = Status::open(&paths.status_segment()).unwrap();
    let state = |number: usize| status.device(number).state.load(Relaxed);
    let fake = |name: &str, change: &dyn Fn(&mut Fake)| {
        change(fakes.lock().unwrap().get_mut(name).unwrap());
    };
    let wire = |name: &str| fakes.lock().unwrap()[name].wire.clone().unwrap();
    let absent = "unavailable, because there is no RDMA device \"two\"; there is none";

    // at the start: one works, the other does not, and the plane is there
    assert_eq!((state(0), state(1)), (device_state::UP, device_state::UNAVAILABLE));
    assert_eq!(
        (status.device(1).why.load(), status.device(0).why.load()),
        (absent.to_owned(), String::new())
    );
    assert_eq!((status.device(0).lid.load(Relaxed), status.device(0).node_guid.load(Relaxed)), (5, 0xD0));
    assert_eq!((status.device(0).worker.load(Relaxed), status.device(1).worker.load(Relaxed)), (0, 1));
    let place = ask(&paths, op::LOOKUP, "device:one").unwrap();
    assert_eq!(
        (place.kind, place.port, place.text(), place.node_guid),
        (place_kind::DEVICE, 1, "one".to_owned(), 0xD0)
    );
    for (selector, line) in [
        ("device:two", format!("device two: {absent}")),
        ("device:two:1", format!("device two: {absent}")),
        ("device:three", "the plane has no device \"three\"; it has one:1, two:1".to_owned()),
        ("device:one:2", "the plane has no device \"one:2\"; it has one:1, two:1".to_owned()),
        ("device:one:x", "the plane has no device \"one:x\"; it has one:1, two:1".to_owned()),
        ("device:", "the plane has no device \"\"; it has one:1, two:1".to_owned()),
    ] {
        for op in [op::LOOKUP, op::ATTACH] {
            assert_eq!(ask(&paths, op, selector).unwrap_err(), (ENODEV, line.clone()));
        }
    }
    assert_eq!(ask(&paths, op::LOOKUP, "auto:two").unwrap().kind, place_kind::FABRIC);
    assert_eq!(ask(&paths, op::LOOKUP, "auto:one").unwrap().kind, place_kind::DEVICE);

    // IsSM is the kernel's, as long as the connection lives; a device that goes takes it along
    let holds = |time: usize| {
        let mut byte = [0];
        let read = (&fakes.lock().unwrap()["one"].is_sm[time]).read(&mut byte);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let manager = connect(&paths);
    manager.call(&Request::with_selector(op::HOLD_SM, "device:one").unwrap()).unwrap();
    assert!(holds(0));
    let busy = ask(&paths, op::HOLD_SM, "device:one:1").unwrap_err();
    assert_eq!(busy, (EAGAIN, "another program holds the SM bit of this port".to_owned()));

    // a session, there and back
    let mut session = Session::open(&paths, "device:one:1");
    assert_eq!(status.session(0).node.load(), "device one");
    let mut exchange = |wire: &Wire, tid: u64| {
        session.send(9, tid);
        let mut sent = Vec::new();
        wait_until("a request", || {
            sent.extend(wire.take());
            !sent.is_empty()
        });
        let mut answer = sent[0];
        answer.mad[3] |= method::RESPONSE;
        assert!(wire.deliver(&answer));
        assert_eq!(session.receive().mad[15], u8::try_from(tid).unwrap());
    };
    exchange(&wire("one"), 7);

    // it is removed, and comes back: the session is still there, and so is its agent
    fake("one", &|fake| {
        fake.present = false;
        fake.wire.as_ref().unwrap().happen(DeviceEvent::Broken);
    });
    wait_until("the removal", || state(0) == device_state::UNAVAILABLE);
    assert_eq!(status.device(0).downs.load(Relaxed), 1);
    wait_until("the reason", || {
        ask(&paths, op::LOOKUP, "device:one").is_err_and(|(_, line)| line.contains("there is no RDMA device"))
    });
    fake("one", &|fake| fake.present = true);
    wait_until("the return", || state(0) == device_state::UP);
    let classes: Vec<u8> = wire("one").agents().iter().map(|agent| agent.class).collect();
    assert_eq!(classes, [0, 0, class::PERF]);
    exchange(&wire("one"), 8);
    assert!(!holds(0) && holds(1));
    drop(manager);
    wait_until("the SM bit is free", || !holds(1));

    // its link goes and comes, its LID changes
    fake("one", &|fake| fake.identity.state = 1);
    wait_until("a link that is down", || state(0) == device_state::DOWN);
    fake("one", &|fake| (fake.identity.state, fake.identity.lid) = (4, 6));
    wait_until("a link that is up", || state(0) == device_state::UP);
    wait_until("another LID", || status.device(0).lid.load(Relaxed) == 6);
    assert_eq!((status.device(0).ups.load(Relaxed), status.device(0).downs.load(Relaxed)), (3, 2));
    assert_eq!(fakes.lock().unwrap()["one"].introduced, 3, "whenever it came up");
    exchange(&wire("one"), 9);

    // a path of its own is taken as it is: nobody here knows the cables behind a device
    session.connection.call(&Request::bind_path(&[1, 99, 3], false).unwrap()).unwrap();

    // the other one turns up at last, by its second backend
    fake("two", &|fake| fake.present = true);
    wait_until("the other device", || state(1) == device_state::UP);
    assert_eq!(status.device(1).why.load(), Unavailable::NotBuilt.to_string());
    assert_eq!(ask(&paths, op::LOOKUP, "auto:two").unwrap().text(), "two");
    let (errno, line) = ask(&paths, op::HOLD_SM, "device:two").unwrap_err();
    assert_eq!((errno, line.contains("IsSM of device two cannot be set")), (ENODEV, true), "{line}");
    let errors: Vec<String> = (0..8).map(|index| status.error(index).text.load()).collect();
    assert!(errors.contains(&format!("device two: by umad: {absent}")), "{errors:?}");

    drop(stop);
    plane.join().unwrap();
}
