//! What an operator does to a running plane, and what killed or wicked processes do to it.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use madplane_client::{AgentSpec, Outgoing, RecvError, Session, SessionOptions, Taken};
use madplane_shm::handoff::{Connection, Request, op};
use madplane_shm::message::MadMessage;
use madplane_shm::session::{PairFds, open_pair};
use rustix::process::Signal;
use support::probe::{GET, Probe, attribute};
use support::{Bed, OpenSm, PATIENCE, Plane, eventually, have, kill};

const FABRIC: &str = "builtin:fat-tree,radix=8,levels=2";
const NODES: usize = 44;

/// LIDs at which a node answers.
fn answering(plane: &Plane) -> usize {
    let probe = Probe::open(plane, "");
    (1..=44).filter_map(|lid| probe.node_guid(lid)).collect::<BTreeSet<_>>().len()
}

fn session_count(plane: &Plane) -> usize {
    plane.json(&["sessions", "list"])["sessions"].as_array().unwrap().len()
}

/// A deterministic sequence of numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 33
    }
}

#[test]
fn a_pulled_cable_is_reported_swept_and_routed_around() {
    if !have(&["opensm", "ibtracert", "saquery"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let mut opensm = OpenSm::up(&plane, "", &[], &[]);
    let target = plane.ok(&["saquery", "-L", "node-0020 HCA-1"]).trim().to_owned();
    let exit = |trace: &str| -> String {
        let line =
            trace.lines().filter(|line| line.starts_with('[')).nth(1).unwrap_or_else(|| panic!("{trace}"));
        line[1..].split(']').next().unwrap().to_owned()
    };
    let before = exit(&plane.ok(&["ibtracert", "1", &target]));
    let cable = format!("leaf-00:{before}");
    let ran = plane.madctl(&["links", "down", &cable]);
    assert_eq!(ran.code, Some(0), "{ran}");
    opensm.wait_for("SUBNET UP", 2);
    assert!(opensm.count("Link state change") >= 2, "both switches report it: {}", opensm.log());
    let after = exit(&plane.ok(&["ibtracert", "1", &target]));
    assert_ne!(after, before, "still over the pulled cable");
    assert_eq!(answering(&plane), NODES);
    let sweeps = opensm.count("SUBNET UP");
    assert_eq!(plane.madctl(&["links", "up", &cable]).code, Some(0));
    opensm.wait_for("SUBNET UP", sweeps + 1);
    eventually("both ends are active again", || {
        let links = plane.ok(&["iblinkinfo", "-l"]);
        links.lines().filter(|line| line.contains("Active/  LinkUp")).count() == 128
    });
    opensm.assert_no_errors();
}

#[test]
fn rebooted_nodes_are_configured_again() {
    if !have(&["opensm"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let mut opensm = OpenSm::up(&plane, "", &[], &[]);
    for node in ["spine-01", "node-0030 HCA-1", "leaf-07"] {
        let sweeps = opensm.count("SUBNET UP");
        let ran = plane.madctl(&["nodes", "reboot", node]);
        assert_eq!(ran.code, Some(0), "{ran}");
        opensm.wait_for("SUBNET UP", sweeps + 1);
        eventually("every node answers at its lid", || answering(&plane) == NODES);
    }
}

#[test]
fn forwarding_goes_on_while_madctld_is_killed_and_a_new_one_takes_over() {
    let plane = Plane::up(FABRIC);
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let probe = Probe::open(&plane, "");
            while !stop.load(Ordering::Relaxed) {
                let answer = probe.directed(GET, &[1, 5, 2], attribute::NODE_INFO, 0, &[]);
                assert_eq!(answer.map(|(status, _)| status), Some(0), "a query is lost");
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        let more = |text: &str| {
            let from = asked.load(Ordering::Relaxed);
            eventually(text, || asked.load(Ordering::Relaxed) > from + 100);
        };
        more("traffic flows");
        let control = plane.control_pid().expect("madctld runs");
        kill(control, Signal::KILL);
        eventually("madctld is dead", || plane.control_pid().is_none());
        more("traffic flows without madctld");
        let refused = plane.madctl(&["links", "down", "leaf-00:5"]);
        assert_eq!((refused.code, refused.err.lines().count()), (Some(1), 1), "{refused}");
        let again = plane.madctl(&["up"]);
        assert_eq!(again.code, Some(0), "{again}");
        assert!(plane.control_pid().is_some_and(|pid| pid != control), "a new madctld");
        eventually("the new madctld carries commands out", || {
            plane.madctl(&["links", "down", "leaf-00:8"]).code == Some(0)
        });
        assert_eq!(plane.madctl(&["links", "up", "leaf-00:8"]).code, Some(0));
        more("traffic flows with the new madctld");
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(plane.madctl(&["down"]).code, Some(0));
}

#[test]
fn clients_of_a_killed_plane_get_an_error_and_it_comes_up_again_without_cleaning() {
    let plane = Plane::up(FABRIC);
    let session = Session::open(&plane.paths(), "", &SessionOptions::default()).unwrap();
    session.register(&AgentSpec { mgmt_class: 1, class_version: 1, ..AgentSpec::default() }).unwrap();
    let stock = have(&["ibping", "opensm"]);
    let mut programs = Vec::new();
    if stock {
        programs.push(plane.spawn_at("node-0001 HCA-1", &["ibping", "-S"]));
        let opensm = OpenSm::up(&plane, "", &[], &[]);
        eventually("three sessions", || session_count(&plane) == 3);
        let pid = plane.plane_pid().unwrap();
        blocked_receive_ends(&session, pid);
        // OpenSM stays, but every operation of it fails and it can be ended
        opensm.process.signal(Signal::TERM);
        let mut opensm = opensm;
        opensm.process.wait();
    } else {
        blocked_receive_ends(&session, plane.plane_pid().unwrap());
    }
    for program in &mut programs {
        // the server ends by itself: its receive fails
        program.wait();
    }
    let agent = session.register(&AgentSpec { mgmt_class: 1, class_version: 1, ..AgentSpec::default() });
    assert!(agent.is_err(), "a dead plane registers nobody");
    let status = plane.madctl(&["status"]);
    assert!(status.out.contains("not running") || status.err.contains("not running"), "{status}");
    plane.again(FABRIC, &[]);
    assert_eq!(session_count(&plane), 0);
    let probe = Probe::open(&plane, "");
    assert!(probe.directed(GET, &[1, 5, 2], attribute::NODE_INFO, 0, &[]).is_some());
}

/// A thread that waits without a limit is told when the plane is killed.
fn blocked_receive_ends(session: &Session, plane_pid: u32) {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let result = session.recv_with(None, |_| Taken::Done(()));
            tell.send((result, Instant::now())).unwrap();
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(told.try_recv().is_err(), "it waits");
        let killed = Instant::now();
        kill(plane_pid, Signal::KILL);
        let (result, at) = told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            eprintln!("the receive still hangs");
            std::process::exit(1);
        });
        assert_eq!(result, Err(RecvError::Gone));
        eprintln!("told after {:?}", at - killed);
    });
}

#[test]
fn a_killed_client_is_gone_with_its_sm_bit_and_the_manager_is_told() {
    if !have(&["opensm", "smpquery"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let mut master = OpenSm::up(&plane, "", &["-p", "9"], &[]);
    let mut other = OpenSm::start(&plane, "node-0031 HCA-1", &["-p", "1"], &[]);
    other.wait_for("Entering STANDBY state", 1);
    let is_sm = || {
        let path = ["-D", "portinfo", "0,1,8,8,4", "1"];
        plane.ok(&[&["smpquery"], &path[..]].concat()).contains("IsSM")
    };
    assert!(is_sm(), "node-0031 is on port 4 of leaf-07");
    let told = master.count("num:144") + master.count("Local change");
    other.process.kill();
    eventually("its session is gone", || session_count(&plane) == 1);
    assert!(!is_sm(), "the bit is still set");
    eventually("trap 144 arrives", || master.count("num:144") + master.count("Local change") > told);
    assert!(master.process.ended().is_none());
}

#[test]
fn a_second_plane_of_that_name_is_refused_and_the_first_goes_on() {
    let plane = Plane::up(FABRIC);
    let pid = plane.plane_pid().unwrap();
    let ran = plane.madctl(&["up", "--fabric", FABRIC]);
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{ran}");
    assert!(ran.err.contains("already running") && ran.err.contains(&pid.to_string()), "{ran}");
    assert_eq!(plane.plane_pid(), Some(pid));
    assert!(Probe::open(&plane, "").directed(GET, &[1], attribute::NODE_INFO, 0, &[]).is_some());
}

#[test]
fn sixty_four_sessions_work_side_by_side() {
    let plane = Plane::up("builtin:fat-tree,radix=12,levels=2");
    let probes: Vec<Probe> =
        (0..64).map(|host| Probe::open(&plane, &format!("node-{host:04} HCA-1"))).collect();
    for round in 0..20 {
        for (host, probe) in probes.iter().enumerate() {
            let (status, data) =
                probe.directed(GET, &[1], attribute::NODE_DESCRIPTION, 0, &[]).expect("an answer");
            let leaf = format!("leaf-{:02}", host / 6);
            assert_eq!(
                (status, data.starts_with(leaf.as_bytes())),
                (0, true),
                "session {host}, round {round}"
            );
        }
    }
    assert_eq!(session_count(&plane), 64);
    drop(probes);
    eventually("all sessions are closed", || session_count(&plane) == 0);
}

/// A session on the level of shared memory.
struct Raw {
    connection: Connection,
    fds: Vec<std::os::fd::OwnedFd>,
}

impl Raw {
    fn attach(bed: &Bed, at: &str) -> Self {
        let connection = Connection::open(&bed.paths().attach_socket(), &bed.name).unwrap();
        let (_, fds) = connection.call(&Request::with_selector(op::ATTACH, at).unwrap()).unwrap();
        assert_eq!(fds.len(), 4);
        Self { connection, fds }
    }

    fn register(&self) -> u32 {
        let request = Request { op: op::REGISTER, mgmt_class: 0x81, class_version: 1, ..Request::default() };
        self.connection.call(&request).unwrap().0.value
    }
}

#[test]
fn rubbish_in_a_clients_own_memory_harms_nobody_else() {
    let plane = Plane::up(FABRIC);
    let good = Probe::open(&plane, "");
    let seed = std::env::var("MADPLANE_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(u64::from(std::process::id()));
    println!("MADPLANE_SEED={seed}");
    let mut random = Random(seed);
    for round in 0..40 {
        let raw = Raw::attach(&plane, "node-0005 HCA-1");
        raw.register();
        let [up, down] = [0, 1].map(|index| File::from(raw.fds[index].try_clone().unwrap()));
        // what the plane writes is not for the client to change, and neither segment can shrink under the plane
        assert!(down.write_at(&[1], 64).is_err(), "the down segment can be written");
        assert!(up.set_len(0).is_err() && down.set_len(0).is_err(), "a segment can shrink");
        let length = up.metadata().unwrap().len();
        for _ in 0..2000 {
            // words of any value, the small ones more often: they pass more checks
            let value = random.next() >> (random.next() % 64);
            // the header and the indices more often than the slots
            let within = if random.next().is_multiple_of(2) { 1024 } else { length - 8 };
            let _ = up.write_at(&value.to_ne_bytes(), random.next() % within / 4 * 4);
        }
        let answer = good.directed(GET, &[1, 5, 2], attribute::NODE_INFO, 0, &[]);
        assert_eq!(answer.map(|(status, _)| status), Some(0), "round {round}: a neighbour's query is lost");
        drop(raw);
    }
    // proper ring, senseless items
    let raw = Raw::attach(&plane, "node-0006 HCA-1");
    let hi_tid = raw.register();
    let mut fds = raw.fds.into_iter();
    let (up, down) = (fds.next().unwrap(), fds.next().unwrap());
    let mut ends = open_pair::<MadMessage, MadMessage>(&PairFds { up, down }).unwrap();
    for _ in 0..20_000 {
        let mut message = MadMessage::default();
        for byte in &mut message.mad {
            *byte = random.next().to_le_bytes()[3];
        }
        let number = random.next().to_le_bytes();
        message.envelope.kind = u16::from(number[0] % 3);
        message.envelope.agent = if number[1].is_multiple_of(2) { hi_tid } else { u32::from(number[2]) };
        message.envelope.length = if number[3].is_multiple_of(4) { u32::from(number[4]) << 20 } else { 256 };
        message.envelope.dlid = u16::from_le_bytes([number[5], number[6]]);
        message.envelope.p_key_index = u16::from(number[7]);
        while ends.up.push(&message).is_err() {
            std::thread::yield_now();
        }
        let mut item = MadMessage::default();
        while ends.down.pop(&mut item) {}
        ends.down.commit();
    }
    let answer = good.directed(GET, &[1, 5, 2], attribute::NODE_INFO, 0, &[]);
    assert_eq!(answer.map(|(status, _)| status), Some(0));
    drop(raw.connection);
    eventually("only the good session is left", || session_count(&plane) == 1);
    let status = plane.json(&["status"]);
    assert_eq!(status["running"], true, "{status}");
}

#[test]
fn a_client_that_does_not_read_loses_only_its_own_mads() {
    let plane = Plane::up(FABRIC);
    let good = Probe::open(&plane, "");
    let deaf = {
        // a small ring: the library takes out what it can throw away once every 1024 sends
        let options = SessionOptions { slots: 64, ..SessionOptions::default() };
        Session::open(&plane.paths(), "node-0005 HCA-1", &options).unwrap()
    };
    let agent =
        deaf.register(&AgentSpec { mgmt_class: 0x81, class_version: 1, ..AgentSpec::default() }).unwrap();
    let mut mad = [0u8; 256];
    mad[..4].copy_from_slice(&[1, 0x81, 1, 1]);
    mad[17] = 0x11;
    mad[32..36].fill(0xff);
    let mut sent = 0u32;
    for tid in 1u32..=5000 {
        mad[12..16].copy_from_slice(&tid.to_be_bytes());
        let envelope = madplane_client::Envelope { dlid: 0xffff, ..Default::default() };
        let outgoing = Outgoing { agent, envelope, data: &mad, timeout_ms: 0, retries: 0 };
        sent += u32::from(deaf.send(&outgoing).is_ok());
        if tid % 100 == 0 {
            let answer = good.directed(GET, &[1, 5, 2], attribute::NODE_INFO, 0, &[]);
            assert_eq!(answer.map(|(status, _)| status), Some(0), "a neighbour's query is lost after {tid}");
        }
    }
    assert!(sent > 1000, "sent {sent}");
    let list = plane.json(&["sessions", "list"]);
    let sessions = list["sessions"].as_array().unwrap();
    let deaf_one = sessions.iter().find(|session| session["node"] == "node-0005 HCA-1").unwrap();
    assert!(deaf_one["dropped"].as_u64() > Some(0), "{list}");
    let good_one = sessions.iter().find(|session| session["node"] == "node-0000 HCA-1").unwrap();
    assert_eq!(good_one["dropped"], 0, "{list}");
}
