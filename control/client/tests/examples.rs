//! The examples against a real plane, alive and with both daemons killed, and the library while both hang.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use madctl::view::{ErrorSource, PlaneState};
use madctl::{AdminError, OnBroken, RawRoute, RawTenant, Route};
use support::{Bed, NAME, RealPlane, eventually, example, failed, folder, installed, must, signal};

fn route(slid: u16, dlid: u16, ports: &[u8]) -> Route {
    Route::try_from(RawRoute::new(slid, dlid, ports)).unwrap()
}

fn python(bed: &Bed) -> Command {
    let mut command = bed.program("python3");
    command.arg(folder().join("examples/python/madctl.py"));
    command
}

#[test]
fn the_rust_example_watches_routes_come_change_and_go_and_shows_them_after_death() {
    let bed = Bed::new();
    let Some(program) = example("watch_routes") else { return };
    let Some(plane) = RealPlane::start(&bed) else { return };
    let [pid, _] = plane.pids();
    let mut admin = bed.plane().admin().unwrap();
    admin.routes_add(&route(0x11, 0x22, &[1, 2, 3]), false, true).unwrap();

    let mut watcher = bed.program(&program).args([NAME, "3"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    let head = lines.next().unwrap();
    assert!(
        head.starts_with("plane bed: madplaned ") && head.ends_with(&format!(", pid {pid}, ready")),
        "{head}"
    );
    assert_eq!(lines.next().unwrap(), "+ 0x0011 -> 0x0022: ports 1,2,3, 0 packets");
    admin.routes_add(&route(0x22, 0x11, &[3, 3]), false, true).unwrap();
    assert_eq!(lines.next().unwrap(), "+ 0x0022 -> 0x0011: ports 3,3, 0 packets");
    assert!(lines.next().unwrap().ends_with(": 2 routes"));
    admin.routes_add(&route(0x11, 0x22, &[9]), true, true).unwrap();
    assert_eq!(lines.next().unwrap(), "+ 0x0011 -> 0x0022: ports 9, 0 packets");
    assert!(lines.next().unwrap().ends_with(": 2 routes"));
    admin.routes_del((0x22, 0x11), true).unwrap();
    assert_eq!(lines.next().unwrap(), "- 0x0022 -> 0x0011");
    assert!(lines.next().unwrap().ends_with(": 1 routes"));
    assert_eq!(lines.next(), None);
    assert!(watcher.wait().unwrap().success());

    plane.kill();
    let after = must(bed.program(&program).args([NAME, "0"]));
    let expected = format!(", pid {pid}, not running (died)\n+ 0x0011 -> 0x0022: ports 9, 0 packets\n");
    assert!(after.ends_with(&expected), "{after}");
}

#[test]
fn the_c_example_pins_and_shows_routes_alive_and_dead() {
    let bed = Bed::new();
    if !installed("cc") {
        return;
    }
    let Some(plane) = RealPlane::start(&bed) else { return };
    let [pid, _] = plane.pids();
    let program = bed.compile("examples/c/routes.c");
    let pinned = must(bed.program(&program).args([NAME, "0x11", "0x22", "1,2,3"]));
    assert!(pinned.starts_with("pinned: {") && pinned.contains("\"synced\":true"), "{pinned}");
    let refused = failed(&bed.program(&program).args([NAME, "0x11", "0x22", "1,0"]).output().unwrap());
    assert_eq!(
        refused,
        "routes: not pinned: port 0 at hop 2 is out of range, ports are 1 to 255 (Remote I/O error)"
    );
    let version = bed.plane().view().head().unwrap().version;
    let generation = bed.plane().view().routes().unwrap().generation;
    let shown = |state: &str| {
        format!(
            "plane bed: madplaned {version}, pid {pid}, {state}\n\
             table: 1 routes of 1024, generation {generation}\n\
             0x0011 -> 0x0022: ports 1,2,3, 0 packets\n\
             hw_sync_latency: 1 measured\n"
        )
    };
    assert_eq!(must(bed.program(&program).arg(NAME)), shown("running"));
    plane.kill();
    assert_eq!(must(bed.program(&program).arg(NAME)), shown("not running"));
    let refused = failed(&bed.program(&program).args([NAME, "1", "2", "3"]).output().unwrap());
    assert!(refused.contains("madctld of plane bed is not running"), "{refused}");
    let nobody = failed(&bed.program(&program).arg("nobody").output().unwrap());
    assert!(nobody.starts_with("routes: no plane: plane nobody is not running"), "{nobody}");
}

#[test]
fn the_python_example_pins_and_shows_routes_alive_and_dead() {
    let bed = Bed::new();
    if !installed("python3") {
        return;
    }
    let Some(plane) = RealPlane::start(&bed) else { return };
    let [pid, _] = plane.pids();
    let pinned = must(python(&bed).args([NAME, "--pin", "0x11", "0x22", "1,2,3"]));
    let generation = bed.plane().view().routes().unwrap().generation;
    assert_eq!(pinned, format!("pinned: 1 of 1024, generation {generation}\n"));
    let refused = failed(&python(&bed).args([NAME, "--pin", "0", "1", "1"]).output().unwrap());
    assert!(refused.starts_with("madctl.py: LID 0x0000 is outside the unicast range"), "{refused}");
    let version = bed.plane().view().head().unwrap().version;
    let shown = |state: &str| {
        format!(
            "plane bed: madplaned {version}, pid {pid}, {state}\n\
             fabric builtin:ring,switches=4,hosts=2: 12 nodes, 12 links, 1 workers\n\
             table: 1 routes of 1024, generation {generation}\n\
             0x0011 -> 0x0022: ports 1,2,3, 0 packets\n\
             hw_sync_latency: 1 measured\n"
        )
    };
    assert_eq!(must(python(&bed).arg(NAME)), shown("ready"));
    plane.kill();
    assert_eq!(must(python(&bed).arg(NAME)), shown("died"));
    let refused = failed(&python(&bed).args([NAME, "--pin", "1", "2", "1"]).output().unwrap());
    assert!(refused.contains("madctld of plane bed is not running"), "{refused}");
}

#[test]
fn everything_can_be_read_while_both_daemons_hang_and_after_they_were_killed() {
    let bed = Bed::new();
    let Some(plane) = RealPlane::start(&bed) else { return };
    let mut admin = bed.plane().admin().unwrap();
    let ping = admin.ping().unwrap();
    assert_eq!(ping.port, 0, "{ping:?}");
    let routes: Vec<(u32, Route)> =
        (1..=500).map(|lid: u16| (lid.into(), route(lid, 0x1000, &[1, 2, 3]))).collect();
    let done = admin.routes_load(&routes, false, true).unwrap();
    assert_eq!((done.added, done.routes, done.synced), (500, 500, true));
    let again = admin.routes_load(&routes, false, true).unwrap_err();
    assert!(matches!(&again, AdminError::Refused(line) if line.starts_with("line 1: ")), "{again}");
    assert_eq!(admin.routes_stats().unwrap().routes, 500);
    let blue = madctl::Tenant::try_from(RawTenant { uids: vec![1000], ..RawTenant::new("blue") }).unwrap();
    assert_eq!(admin.tenants_add(&blue, false, true).unwrap().added, 1);
    let owned = RawRoute { tenant: Some("blue".into()), ..RawRoute::new(0x2000, 0x1000, &[1]) };
    admin.routes_add(&Route::try_from(owned).unwrap(), false, true).unwrap();
    let listed = admin.tenants_show(None).unwrap();
    assert_eq!((listed.len(), listed[0].routes), (1, 1));
    let used = admin.tenants_del("blue", false, true).unwrap_err();
    assert!(matches!(&used, AdminError::Refused(line) if line.contains("blue")), "{used}");
    assert_eq!(admin.call("control.status", &()).unwrap()["connected"], true);
    assert_eq!(admin.links_set("ring-00:1", false).unwrap().port, 1);
    assert_eq!(admin.links_set("ring-00:1", true).unwrap().port, 1);
    admin.nodes_reboot("ring-00").unwrap();

    // one view for all of it, as a monitor would have
    let mut view = bed.plane().view();
    let pids = plane.pids();
    let mut check = |state: PlaneState| {
        let status = view.status().unwrap();
        assert_eq!((status.head.state, status.nodes, status.workers.len()), (state, 12, 1));
        assert_eq!(view.workers().unwrap()[0].applied_generation, view.routes().unwrap().generation);
        assert!(view.sessions().unwrap().sessions.is_empty());
        let counters = view.counters(Some(0), true).unwrap();
        assert!(counters.counters.iter().any(|count| count.name == "dr_cache_hit"));
        let latency = view.latency().unwrap();
        assert_eq!((latency.hw_sync_latency.unwrap().count, latency.failures), (3, 0));
        assert!(latency.publications >= 1 && latency.workers.len() == 1);
        let table = view.routes().unwrap();
        assert_eq!((table.routes.len(), table.damaged, table.writer_pid), (501, 0, pids[1]));
        assert!(table.routes.windows(2).all(|pair| pair[0].slid < pair[1].slid));
        assert_eq!(table.routes[500].tenant_name.as_deref(), Some("blue"));
        assert_eq!(view.tenants().unwrap().tenants, listed);
        let errors = view.errors().unwrap().errors;
        assert!(errors.iter().all(|error| error.source == ErrorSource::Madplaned), "{errors:?}");
    };
    check(PlaneState::Ready);
    signal(&pids, rustix::process::Signal::STOP);
    check(PlaneState::Ready);
    signal(&pids, rustix::process::Signal::CONT);
    plane.kill();
    check(PlaneState::Died);
    let gone = admin.ping().unwrap_err();
    assert!(matches!(gone, AdminError::NoAnswer { .. }), "{gone}");
    assert!(matches!(bed.plane().admin(), Err(AdminError::NotRunning(_))));

    // a successor at the same place is noticed by the same view
    let successor = RealPlane::start(&bed).unwrap();
    eventually("the view follows", || view.head().unwrap().pid == successor.pids()[0]);
    assert_eq!(view.routes().unwrap().routes.len(), 501, "routes outlive both daemons");
}

#[test]
fn a_live_session_is_shown_bound_to_a_path_and_freed() {
    let bed = Bed::new();
    let Some(_plane) = RealPlane::start(&bed) else { return };
    let (mut admin, mut view) = (bed.plane().admin().unwrap(), bed.plane().view());
    let options = madplane_client::SessionOptions::default();
    let session = madplane_client::Session::open(bed.plane().paths(), "", &options).unwrap();
    let number = session.info().session_id;
    let mut shown = || {
        let sessions = view.sessions().unwrap().sessions;
        sessions.into_iter().find(|shown| shown.session == number)
    };
    eventually("the session is shown", || shown().is_some_and(|shown| shown.pid == std::process::id()));
    let free = shown().unwrap();
    assert_eq!((free.tenant, free.path, free.path_on_broken), (0, vec![], None));
    admin.sessions_bind(number, &[1, 1, 3], OnBroken::Drop).unwrap();
    eventually("it is bound", || shown().is_some_and(|shown| shown.path == [1, 1, 3]));
    assert_eq!(shown().unwrap().path_on_broken, Some(OnBroken::Drop));
    admin.sessions_bind(number, &[], OnBroken::Fallback).unwrap();
    eventually("it is free", || shown().is_some_and(|shown| shown.path.is_empty()));
    let wrong = admin.sessions_bind(number, &[0], OnBroken::Fallback).unwrap_err();
    assert!(matches!(&wrong, AdminError::Refused(line) if line.contains("port 0")), "{wrong}");
    drop(session);
    eventually("it is gone", || shown().is_none());
}

#[test]
fn a_handle_outlives_madctld_and_finds_its_successor() {
    let bed = Bed::new();
    if !installed("python3") {
        return;
    }
    let Some(plane) = RealPlane::start(&bed) else { return };
    let script = r#"
import madctl
with madctl.Plane("bed") as plane:
    for _ in range(2):
        print(plane.call("control.status")["pid"], flush=True)
        input()
        try: plane.call("plane.ping")
        except madctl.Error as error: print(error.errno, error.strerror, flush=True)
        else: print("answered", flush=True)
        input()
"#;
    let mut python = bed.program("python3");
    python.env("PYTHONPATH", folder().join("examples/python")).args(["-c", script]);
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut input = python.stdin.take().unwrap();
    let [_, first] = plane.pids();
    assert_eq!(lines.next(), Some(first.to_string()));
    signal(&[first], rustix::process::Signal::KILL);
    let mut view = bed.plane().view();
    eventually("madctld is gone", || !view.status().unwrap().control.running);
    writeln!(input).unwrap();
    assert_eq!(
        lines.next().as_deref(),
        Some("111 madctld of plane bed is not running; start it with: madctl up --name bed")
    );
    plane.repair();
    writeln!(input).unwrap();
    let [_, second] = plane.pids();
    assert_eq!(lines.next(), Some(second.to_string()), "the same handle");
    assert_ne!(first, second);
    writeln!(input).unwrap();
    assert_eq!(lines.next().as_deref(), Some("answered"));
    writeln!(input).unwrap();
    assert!(python.wait().unwrap().success());
}
