//! The table between processes: a writer killed at every step, readers that go on, the next writer that repairs.
//!
//! The writer is this test program again, told by its environment to be one.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper that fails has to fail its test")]

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use madplane_shm::header::Incarnation;
use madplane_shm::seqlock::Step;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::{Refresh, TableReader};
use madplane_shm::table::tenant::TenantEntry;
use madplane_shm::table::{RouteEntry, TableError, TableOptions};

const ROUTES: u32 = 8;
const OPTIONS: TableOptions = TableOptions { routes: ROUTES, tenants: 2 };
/// Places that the killed publication changes: two set, one cleared.
const CHANGED: [u32; 3] = [1, 5, 2];

static STEPS_LEFT: AtomicU32 = AtomicU32::new(u32::MAX);

/// One test at a time: a child of another test holds this test's lock between its fork and its exec.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn me() -> Incarnation {
    Incarnation { pid: std::process::id(), ..Incarnation::default() }
}

fn route(index: u32, round: u16) -> RouteEntry {
    let index = u16::try_from(index).unwrap();
    RouteEntry::new(index + 1, round, &[1, 2, 3, 4]).unwrap()
}

fn tenant(place: u32, round: u32) -> TenantEntry {
    let mut entry = TenantEntry::new(&format!("tenant-{place}-{round}")).unwrap();
    // every word of a tenant tells the round
    entry.classes = [u64::from(round); 4];
    entry.nodes = [u64::from(round); 8];
    (entry.uids, entry.gids) = ([round; 8], [round; 8]);
    (entry.rate, entry.burst, entry.id) = (round, place, u64::from(round));
    entry
}

/// The tenants before the killed publication, which changes one and sets another, and after it.
fn tenants() -> [BTreeMap<u32, TenantEntry>; 2] {
    [BTreeMap::from([(0, tenant(0, 1))]), BTreeMap::from([(0, tenant(0, 2)), (1, tenant(1, 2))])]
}

/// The routes before the killed publication, and after it.
fn tables() -> [BTreeMap<u32, RouteEntry>; 2] {
    let before: BTreeMap<_, _> = (0..4).map(|index| (index, route(index, 1))).collect();
    let mut after = before.clone();
    after.insert(1, route(1, 2));
    after.insert(5, route(5, 2));
    after.remove(&2);
    [before, after]
}

fn prepare(path: &Path) -> u64 {
    let mut publisher = RoutePublisher::create(path, OPTIONS, me()).unwrap();
    for (index, entry) in &tables()[0] {
        publisher.set(*index, entry);
    }
    for (place, entry) in &tenants()[0] {
        publisher.set_tenant(*place, entry);
    }
    publisher.publish()
}

fn change(publisher: &mut RoutePublisher) -> u64 {
    for (place, entry) in &tenants()[1] {
        publisher.set_tenant(*place, entry);
    }
    for index in CHANGED {
        match tables()[1].get(&index) {
            Some(entry) => publisher.set(index, entry),
            None => publisher.clear(index),
        }
    }
    publisher.publish()
}

/// What a follower has.
#[derive(Debug, Default, PartialEq, Eq)]
struct Copy {
    routes: BTreeMap<u32, RouteEntry>,
    tenants: BTreeMap<u32, TenantEntry>,
}

fn follow_both(reader: &mut TableReader, copy: &mut Copy) -> Refresh {
    let Copy { routes, tenants } = copy;
    let mut keep_route = |index, entry: Option<&RouteEntry>| {
        match entry {
            Some(entry) => routes.insert(index, *entry),
            None => routes.remove(&index),
        };
    };
    let mut keep_tenant = |place, entry: Option<&TenantEntry>| {
        match entry {
            Some(entry) => tenants.insert(place, *entry),
            None => tenants.remove(&place),
        };
    };
    reader.refresh(&mut keep_route, &mut keep_tenant)
}

fn follow(reader: &mut TableReader, copy: &mut BTreeMap<u32, RouteEntry>) -> Refresh {
    let mut keep = |index, entry: Option<&RouteEntry>| {
        match entry {
            Some(entry) => copy.insert(index, *entry),
            None => copy.remove(&index),
        };
    };
    reader.refresh(&mut keep, &mut |_, _| {})
}

fn kill_self_at_step(_: Step) {
    if STEPS_LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// This program as another process in `role`.
fn other(role: &str, path: &Path, steps: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "the_other_process", "--nocapture", "--quiet"])
        .env("MADPLANE_TEST_ROLE", role)
        .env("MADPLANE_TEST_TABLE", path)
        .env("MADPLANE_TEST_STEPS", steps.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn run_as(role: &str, path: &Path, steps: u32) -> ExitStatus {
    other(role, path, steps).status().unwrap()
}

/// Does nothing unless this process is the other one.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var("MADPLANE_TEST_ROLE") else { return };
    let path = PathBuf::from(std::env::var_os("MADPLANE_TEST_TABLE").unwrap());
    let steps: u32 = std::env::var("MADPLANE_TEST_STEPS").unwrap().parse().unwrap();
    match role.as_str() {
        "change" => {
            let mut publisher = RoutePublisher::open_or_create(&path, OPTIONS, me()).unwrap();
            STEPS_LEFT.store(steps, Ordering::Relaxed);
            publisher.set_step_hook(kill_self_at_step);
            // the second time the bank has to be marked and brought up first
            change(&mut publisher);
            change(&mut publisher);
        }
        "churn" => {
            // every publication changes every place to one and the same number
            let mut publisher = RoutePublisher::open_or_create(&path, OPTIONS, me()).unwrap();
            for round in 1.. {
                for index in 0..ROUTES {
                    let mut entry = route(index, 1);
                    entry.id = publisher.generation() + round;
                    publisher.set(index, &entry);
                }
                publisher.publish();
            }
        }
        "scribble" => {
            // a reader that tries to write through its mapping
            let reader = TableReader::open(&path).unwrap();
            reader.table().control().sync_threshold.store(1, Ordering::Relaxed);
        }
        "refused" => {
            let error = RoutePublisher::open_or_create(&path, OPTIONS, me()).unwrap_err();
            assert!(matches!(error, TableError::Held { pid, .. } if pid == steps), "{error}");
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn a_writer_killed_at_any_step_leaves_a_whole_table_and_the_next_repairs_it() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let [before, after] = tables();
    let [tenants_before, tenants_after] = tenants();
    let (mut killed, mut published, mut half_shown, mut announced) = (0, 0, 0, 0);
    for steps in 1.. {
        let generation = prepare(&path);
        // one that followed before the crash, one that has never looked
        let mut reader = TableReader::open(&path).unwrap();
        let mut copy = Copy::default();
        follow_both(&mut reader, &mut copy);
        assert_eq!((&copy.routes, &copy.tenants), (&before, &tenants_before));

        let status = run_as("change", &path, steps);
        assert!(status.success() || status.signal() == Some(libc::SIGKILL), "step {steps}: {status}");
        let mut late = Copy::default();
        let seen = follow_both(&mut TableReader::open(&path).unwrap(), &mut late);
        let caught = follow_both(&mut reader, &mut copy);
        assert!(seen.complete && caught.complete, "step {steps}: a reader has to wait for a dead writer");
        assert_eq!(
            (seen.refused, seen.retries, caught.refused, caught.retries),
            (0, 0, 0, 0),
            "step {steps}"
        );
        let expected = if seen.generation == generation { &before } else { &after };
        assert_eq!((&late.routes, &copy.routes), (expected, expected), "step {steps}");
        assert!(late.tenants == tenants_before || late.tenants == tenants_after, "step {steps}: {late:?}");
        if seen.generation != generation {
            published += 1;
            assert_eq!((&late.tenants, &copy.tenants), (&tenants_after, &tenants_after), "step {steps}");
        } else if late.tenants == tenants_after {
            half_shown += 1;
            assert_eq!(copy.tenants, tenants_before, "step {steps}: nobody told this one to look");
        }

        // the next one does the whole change again, or nothing new but telling of tenants already shown
        let mut publisher = RoutePublisher::open_or_create(&path, OPTIONS, me()).unwrap();
        let repaired = publisher.generation();
        let moved = repaired - seen.generation;
        assert!(moved <= 1 && publisher.pending() == 0, "step {steps}");
        announced += moved;
        assert_eq!(reader.changed(), moved == 1, "step {steps}");
        assert_eq!(publisher.present(), expected.len() as u64, "step {steps}");
        let found: BTreeMap<_, _> = (0..ROUTES).filter_map(|i| Some((i, publisher.get(i)?))).collect();
        assert_eq!(&found, expected, "step {steps}");
        let found: BTreeMap<_, _> = (0..2).filter_map(|i| Some((i, publisher.get_tenant(i)?))).collect();
        assert_eq!((&found, publisher.tenants_present()), (&late.tenants, found.len() as u64));
        assert_eq!(follow_both(&mut reader, &mut copy).generation, repaired);
        assert_eq!(copy, late, "step {steps}: all readers have the same after a repair");
        for round in 1..4 {
            change(&mut publisher);
            assert_eq!(follow_both(&mut reader, &mut copy).generation, repaired + round);
            assert_eq!(
                (&copy.routes, &copy.tenants),
                (&after, &tenants_after),
                "step {steps}, round {round}"
            );
        }
        if status.success() {
            break;
        }
        killed += 1;
    }
    // two tenants and three routes of two steps each; then journal words, header, bank and generation of the tenants and
    // of the routes; then the same after marks of both banks and as many entries brought up
    let (writing, showing_tenants, showing_routes) = (4 + 6, 2 + 3, 3 + 3);
    let publication = writing + showing_tenants + showing_routes;
    assert_eq!(killed, publication + (1 + 2) + (1 + 3) + publication, "steps of two publications");
    assert_eq!(published, 1 + 7 + publication + 1, "from the last step of the first publication on");
    assert_eq!(half_shown, showing_routes, "from the tenants' last step to the one before the routes'");
    assert_eq!(announced, 2 * (showing_routes + 1), "of each publication, its last step included");
}

#[test]
fn a_writer_killed_at_any_moment_of_its_life_leaves_one_publication_and_never_a_mix() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    prepare(&path);
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    println!("seed {seed}");
    let mut random = u64::from(seed) | 1;
    let mut reader = TableReader::open(&path).unwrap();
    let mut copy = BTreeMap::new();
    let mut reads = 0u32;
    for round in 0..200 {
        let mut child = other("churn", &path, 0).spawn().unwrap();
        let started = std::time::Instant::now();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let life = std::time::Duration::from_micros(random % 6000);
        while started.elapsed() < life {
            if follow(&mut reader, &mut copy).complete && copy.len() == 8 {
                reads += 1;
                assert!(
                    copy.values().all(|entry| entry.id == copy[&0].id),
                    "a mix of publications, seed {seed}"
                );
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let last = follow(&mut reader, &mut copy);
        assert!(last.complete && last.refused == 0, "round {round}, seed {seed}");
        let mut late = BTreeMap::new();
        follow(&mut TableReader::open(&path).unwrap(), &mut late);
        assert_eq!(copy, late, "round {round}, seed {seed}");
        let publisher = RoutePublisher::open_or_create(&path, OPTIONS, me()).unwrap();
        assert_eq!(publisher.generation(), last.generation);
        assert_eq!(publisher.present(), copy.len() as u64);
    }
    println!("{reads} reads, generation {}", reader.generation());
    assert!(copy.len() == 8 && reader.generation() > 1000, "the writer never came to write");
}

#[test]
fn a_writer_in_another_process_is_refused_and_the_lock_ends_with_its_holder() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    prepare(&path);
    let publisher = RoutePublisher::open_or_create(&path, OPTIONS, me()).unwrap();
    assert!(run_as("refused", &path, std::process::id()).success());
    drop(publisher);
    assert!(!run_as("refused", &path, std::process::id()).success());
    // the child was killed while it held the lock
    assert!(!run_as("change", &path, 1).success());
    assert!(RoutePublisher::open_or_create(&path, OPTIONS, me()).is_ok());
}

#[test]
fn a_reader_cannot_write() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    prepare(&path);
    let status = run_as("scribble", &path, 0);
    assert_eq!(status.signal(), Some(libc::SIGSEGV));
}
