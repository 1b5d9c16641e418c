//! Every field of the segments comes out of a view as it was stored, in Rust and through the C structs; damage is refused.
//!
//! The plane is made of its files only: there has never been a process behind it.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::path::Path;

use madctl::protocol::Latency;
use madctl::tenant::{Priority, SmpRight};
use madctl::view::{ErrorSource, PlaneState};
use madctl::{LookError, OnBroken, RawTenant, Tenant};
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::header::Incarnation;
use madplane_shm::process::monotonic_ns;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::status::{Status, plane_state};
use madplane_shm::sync::Ordering::{Relaxed, Release};
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::{RouteEntry, TableOptions, on_broken};
use support::{Bed, folder, installed, must};

const SECOND: u64 = 1_000_000_000;

fn writer(pid: u32) -> Incarnation {
    Incarnation { pid, ..Incarnation::default() }
}

fn make_status(bed: &Bed) -> Status {
    let status = Status::create(&bed.plane().paths().status_segment(), writer(4711)).unwrap();
    let plane = status.plane();
    plane.state.store(plane_state::STOPPED, Relaxed);
    plane.workers.store(2, Relaxed);
    plane.heartbeat_ns.store(monotonic_ns(), Relaxed);
    plane.started_unix_ns.store(1_767_225_599 * SECOND, Relaxed);
    plane.startup_ns.store(35_000_000, Relaxed);
    plane.nodes.store(702, Relaxed);
    plane.switches.store(54, Relaxed);
    plane.links.store(1296, Relaxed);
    plane.sessions.store(1, Relaxed);
    plane.default_node_guid.store(0x10, Relaxed);
    plane.default_port.store(3, Relaxed);
    plane.session_slots.store(1024, Relaxed);
    plane.huge_pages.store(1, Relaxed);
    plane.fabric.store("builtin:fat-tree");
    plane.program.store("0.1.0");
    let worker = status.worker(1);
    worker.cpu.store(5, Relaxed);
    worker.thread.store(77, Relaxed);
    worker.polls_full.store(11, Relaxed);
    worker.polls_empty.store(12, Relaxed);
    worker.busy_ns.store(1, Relaxed);
    worker.total_ns.store(4, Relaxed);
    worker.longest_cycle_ns.store(13, Relaxed);
    worker.stalls.store(14, Relaxed);
    worker.sessions.store(15, Relaxed);
    worker.nodes.store(16, Relaxed);
    worker.applied_generation.store(17, Relaxed);
    worker.table_retries.store(18, Relaxed);
    worker.table_refused.store(19, Relaxed);
    worker.counters[Counter::DrCacheHit as usize].store(20, Relaxed);
    status.worker(0).counters[Counter::DrCacheHit as usize].store(1, Relaxed);
    worker.counters[Counter::DrCacheMiss as usize].store(21, Relaxed);
    worker.drops[DropReason::TenantRate as usize].store(22, Relaxed);
    (1..=10).for_each(|ns| worker.cycles.record(ns));
    let session = status.session(9);
    session.pid.store(99, Relaxed);
    session.uid.store(1000, Relaxed);
    session.port.store(2, Relaxed);
    session.node_guid.store(0x20, Relaxed);
    session.since_unix_ns.store(5 * SECOND, Relaxed);
    session.received.store(31, Relaxed);
    session.sent.store(32, Relaxed);
    session.dropped.store(33, Relaxed);
    session.agents.store(4, Relaxed);
    session.worker.store(1, Relaxed);
    session.program.store("opensm");
    session.node.store("host-001");
    session.tenant.store(3, Relaxed);
    session.class.store(1, Relaxed);
    session.tenant_name.store("blue");
    session.store_path(&[1, 2, 3], on_broken::DROP);
    session.id.store(10, Release);
    status.record_error("a worker does not answer", 7 * SECOND);
    status
}

fn blue() -> Tenant {
    let raw = RawTenant {
        p_keys: vec![0x8001, 2],
        uids: vec![1000, 1001],
        gids: vec![100],
        classes: vec!["0x04".into()],
        nodes: vec!["0x10".into()],
        prefixes: vec![vec![1, 2], vec![3]],
        smp: SmpRight::GetSet,
        rate: 5000,
        burst: 64,
        priority: Priority::Reserved,
        ..RawTenant::new("blue")
    };
    Tenant::try_from(raw).unwrap()
}

fn make_table(bed: &Bed) -> RoutePublisher {
    let options = TableOptions { routes: 100, tenants: 8 };
    let path = bed.plane().paths().table_segment();
    let mut table = RoutePublisher::create(&path, options, writer(4712)).unwrap();
    table.set_tenant(2, &blue().to_entry(70));
    let plain = RouteEntry { id: 41, ..RouteEntry::new(0x22, 0x11, &[9]).unwrap() };
    let owned = RouteEntry {
        p_key: 0x8001,
        priority: 1,
        on_broken: on_broken::DROP,
        tenant: 3,
        id: 40,
        ..RouteEntry::new(0x11, 0x22, &[1, 2, 3]).unwrap()
    };
    table.set(4, &plain);
    table.set(7, &owned);
    table.publish();
    table.sync_latency().record(1234);
    table.record_error("Failed to sync DR table (err=-110)", 8 * SECOND);
    table.record_error("Failed to sync DR table (err=-110)", 9 * SECOND);
    table
}

fn make_uses(bed: &Bed) -> RouteCounters {
    let uses = RouteCounters::create(&bed.plane().paths().routes_segment(), 100, writer(4711)).unwrap();
    uses.add(7, 256, 1);
    uses.add(7, 256, monotonic_ns());
    uses
}

#[test]
fn a_view_shows_every_field_as_it_was_stored() {
    let bed = Bed::new();
    let (_status, mut table, _uses) = (make_status(&bed), make_table(&bed), make_uses(&bed));
    let mut view = bed.plane().view();

    let status = view.status().unwrap();
    assert_eq!((status.head.state, status.head.pid, status.head.running), (PlaneState::Stopped, 4711, false));
    assert_eq!((status.head.version.as_str(), status.fabric.as_str()), ("0.1.0", "builtin:fat-tree"));
    assert_eq!((status.started_unix_ns, status.uptime_ns), (1_767_225_599 * SECOND, None));
    assert_eq!((status.startup_ns, status.nodes, status.switches, status.links), (35_000_000, 702, 54, 1296));
    assert_eq!((status.sessions, status.default_node_guid, status.default_port), (1, 0x10, 3));
    assert_eq!((status.session_slots, status.huge_pages, status.control.running), (1024, true, false));

    let workers = view.workers().unwrap();
    let worker = &workers[1];
    assert_eq!((workers.len(), worker.worker, worker.cpu, worker.thread), (2, 1, Some(5), 77));
    assert_eq!((worker.polls_full, worker.polls_empty, worker.longest_cycle_ns), (11, 12, 13));
    assert_eq!((worker.stalls, worker.sessions, worker.nodes, worker.applied_generation), (14, 15, 16, 17));
    assert!(worker.busy_share == 0.25 && !worker.silent, "nobody is silent in a dead plane");

    let sessions = view.sessions().unwrap().sessions;
    let session = &sessions[0];
    assert_eq!((sessions.len(), session.session, session.pid, session.uid), (1, 10, 99, 1000));
    assert_eq!(
        (session.program.as_str(), session.node.as_str(), session.node_guid),
        ("opensm", "host-001", 0x20)
    );
    assert_eq!((session.port, session.since_unix_ns, session.worker, session.agents), (2, 5 * SECOND, 1, 4));
    assert_eq!((session.received, session.sent, session.dropped), (31, 32, 33));
    assert_eq!(
        (session.tenant, session.tenant_name.as_str(), session.class),
        (3, "blue", Priority::Reserved)
    );
    assert_eq!((session.path.as_slice(), session.path_on_broken), (&[1, 2, 3][..], Some(OnBroken::Drop)));

    let counters = view.counters(None, false).unwrap();
    let shown: Vec<_> = counters.counters.iter().map(|count| (count.name.as_str(), count.value)).collect();
    let expected = [("dr_cache_hit", 21), ("dr_cache_miss", 21), ("retry_count", 18), ("routes_refused", 19)];
    assert_eq!(shown, expected);
    assert!(counters.counters.iter().all(|count| count.stage == Some("dr_table")));
    let drop = &counters.drops[0];
    assert_eq!(
        (counters.drops.len(), drop.name.as_str(), drop.stage, drop.value),
        (1, "drop_tenant_rate", Some("acl"), 22)
    );
    assert_eq!(view.counters(Some(0), false).unwrap().counters[0].value, 1);
    assert!(matches!(view.counters(Some(2), false), Err(LookError::NoWorker { worker: 2, last: 1 })));

    let errors = view.errors().unwrap().errors;
    let shown: Vec<_> = errors
        .iter()
        .map(|error| {
            (error.source, error.count, error.first_unix_ns, error.last_unix_ns, error.text.as_str())
        })
        .collect();
    let sync = "Failed to sync DR table (err=-110)";
    assert_eq!(
        shown,
        [
            (ErrorSource::Madplaned, 1, 7 * SECOND, 7 * SECOND, "a worker does not answer"),
            (ErrorSource::Madctld, 2, 8 * SECOND, 9 * SECOND, sync),
        ]
    );

    let latency = view.latency().unwrap();
    assert_eq!(latency.hw_sync_latency.map(|sync| (sync.count, sync.max_ns)), Some((1, 1234)));
    let cycles = Latency { count: 10, p50_ns: 5, p90_ns: 9, p99_ns: 10, p999_ns: 10, max_ns: 10 };
    assert_eq!((latency.workers[0].cycles.count, latency.workers[1].cycles), (0, cycles));
    assert_eq!(latency.failures, 0);
    assert!(latency.publications >= 1);

    let routes = view.routes().unwrap();
    assert_eq!((routes.capacity, routes.writer_pid, routes.damaged), (100, 4712, 0));
    assert_eq!(routes.generation, table.generation());
    let workers = routes.workers.unwrap();
    assert_eq!(
        (workers.dr_cache_hit, workers.dr_cache_miss, workers.retry_count, workers.refused),
        (21, 21, 18, 19)
    );
    assert_eq!(workers.applied_generations, [0, 17]);
    let [owned, plain] = &routes.routes[..] else { panic!("{:?}", routes.routes) };
    assert_eq!((owned.slid, owned.dlid, owned.place, owned.id), (0x11, 0x22, 7, 40));
    assert_eq!((owned.path.as_slice(), owned.p_key, owned.priority), (&[1, 2, 3][..], 0x8001, 1));
    assert_eq!(
        (owned.on_broken, owned.tenant, owned.tenant_name.as_deref()),
        (OnBroken::Drop, 3, Some("blue"))
    );
    assert_eq!((owned.packets, owned.bytes, owned.last_use_age_ns.is_some()), (2, 512, true));
    assert_eq!((plain.slid, plain.place, plain.id, plain.tenant, plain.packets), (0x22, 4, 41, 0, 0));
    assert_eq!((&plain.tenant_name, plain.last_use_age_ns), (&None, None));

    let tenants = view.tenants().unwrap();
    let [used] = &tenants.tenants[..] else { panic!("{:?}", tenants.tenants) };
    assert_eq!((tenants.capacity, used.number, used.tenant_id, used.routes, used.sessions), (8, 3, 70, 1, 1));
    assert_eq!(Tenant::try_from(used.tenant.clone()).unwrap(), blue());

    // the same view follows the writer
    table.clear(7);
    table.clear_tenant(2);
    table.publish();
    assert_eq!(view.routes().unwrap().routes.len(), 1);
    assert!(view.tenants().unwrap().tenants.is_empty());
}

#[test]
fn the_c_structs_carry_every_field() {
    if !installed("python3") {
        return;
    }
    let bed = Bed::new();
    let (_status, _table, _uses) = (make_status(&bed), make_table(&bed), make_uses(&bed));
    let script = r#"
import ctypes, madctl
def show(record, *skip):
    def value(of):
        if isinstance(of, bytes): return of.decode()
        if not isinstance(of, ctypes.Array): return of
        of = [value(one) for one in of]
        while of and not of[-1]: of.pop()
        return of
    print(type(record).__name__, *(f"{name}={value(getattr(record, name))}" for name, *_ in record._fields_ if name not in skip))
with madctl.Plane("bed") as plane:
    show(plane.info(), "heartbeat_age_ns")
    show(plane.workers()[1], "heartbeat_age_ns")
    for record in plane.sessions() + plane.errors() + plane.tenants(): show(record)
    for record in plane.counters():
        if record.value: show(record)
    show(plane.latency()); show(plane.latency(1)); show(plane.table())
    for record in plane.routes(): show(record, "last_use_age_ns")
    assert plane.routes()[1].last_use_age_ns == madctl.NEVER
    for noun in "status workers sessions counters errors latency routes tenants".split():
        assert plane.show(noun), noun
    for worker in (2, -2):
        try: plane.latency(worker)
        except madctl.Error as error: print(error.errno, error.strerror)
"#;
    let mut python = bed.program("python3");
    python.env("PYTHONPATH", folder().join("examples/python")).args(["-c", script]);
    let shown = must(&mut python);
    let golden = include_str!("golden/structs.txt");
    let generation = bed.plane().view().routes().unwrap().generation;
    assert_eq!(shown, golden.replace("GENERATION", &generation.to_string()));
}

/// What looking costs at the largest table; for people: `cargo test --release ... -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn figures_of_the_largest_table() {
    let bed = Bed::new();
    let _status = make_status(&bed);
    let options = TableOptions { routes: 65_536, tenants: 1024 };
    let mut table = RoutePublisher::create(&bed.plane().paths().table_segment(), options, writer(1)).unwrap();
    for place in 0..65_536u32 {
        let (slid, dlid) = (1 + place / 256, 0x1000 + place % 256);
        let (slid, dlid) = (u16::try_from(slid).unwrap(), u16::try_from(dlid).unwrap());
        table.set(place, &RouteEntry::new(slid, dlid, &[1, 2, 3, 4]).unwrap());
    }
    table.publish();
    let mut view = bed.plane().view();
    let mut look = |what: &str| {
        let start = std::time::Instant::now();
        let routes = view.routes().unwrap().routes.len();
        println!("{what}: {routes} routes in {:?}", start.elapsed());
    };
    look("first look");
    (0..3).for_each(|_| look("nothing changed"));
    for place in 0..3 {
        table.clear(place);
        table.publish();
        look("one route changed");
    }
}

fn spoil(path: &Path, offset: usize, bytes: &[u8]) {
    let mut file = std::fs::read(path).unwrap();
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
    std::fs::write(path, file).unwrap();
}

#[test]
fn segments_of_another_version_are_refused_naming_both_and_damage_is_counted() {
    let bed = Bed::new();
    let paths = bed.plane().paths().clone();
    let ours = madplane_shm::LAYOUT_VERSION.to_string();
    {
        let (_status, _table) = (make_status(&bed), make_table(&bed));
    }
    // a byte of a route in both banks: its checksum does not hold any more
    let file = std::fs::read(paths.table_segment()).unwrap();
    let key = (0x11u64 << 16 | 0x22).to_ne_bytes();
    let found: Vec<usize> = (0..file.len()).step_by(8).filter(|at| file[*at..].starts_with(&key)).collect();
    assert!(!found.is_empty());
    for at in found {
        spoil(&paths.table_segment(), at + 16, &[0xee]);
    }
    let routes = bed.plane().view().routes().unwrap();
    assert_eq!((routes.routes.len(), routes.damaged), (1, 1));
    if installed("python3") {
        let example = folder().join("examples/python/madctl.py");
        let shown = must(bed.program("python3").arg(example).arg("bed"));
        assert!(shown.contains("\ndamaged and not shown: 1\n"), "{shown}");
    }

    spoil(&paths.table_segment(), 8, &99u32.to_ne_bytes());
    let mut view = bed.plane().view();
    let refused = view.routes().unwrap_err();
    assert_eq!(refused.errno(), 95);
    let line = refused.to_string();
    assert!(line.contains("99") && line.contains(&ours) && !line.contains('\n'), "{line}");
    let errors = view.errors().unwrap_err();
    assert_eq!(
        (errors.errno(), errors.to_string()),
        (95, line),
        "half of the errors would look like all of them"
    );

    drop(view);
    spoil(&paths.status_segment(), 8, &98u32.to_ne_bytes());
    let refused = bed.plane().view().head().unwrap_err();
    assert_eq!(refused.errno(), 95);
    let line = refused.to_string();
    assert!(line.contains("98") && line.contains(&ours), "{line}");

    std::fs::write(paths.status_segment(), [0u8; 100]).unwrap();
    assert!(bed.plane().view().status().is_err());
    std::fs::write(paths.table_segment(), [0u8; 0]).unwrap();
    assert_eq!(bed.plane().view().tenants().unwrap_err().errno(), 11, "not ready yet");
}
