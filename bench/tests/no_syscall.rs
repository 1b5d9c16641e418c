//! What a worker asks of the system per MAD: strace watches it while a client asks.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use madplane_bench::BenchError;
use madplane_bench::fabrics::{Fabric, HOSTS_648};
use madplane_bench::load::RingClient;
use madplane_bench::open_loop::{self, Load, Pace, Sessions, Waits};
use madplane_bench::plane::{Plane, PlaneOptions};
use madplane_bench::process::Process;
use madplane_bench::programs::{ours, peer, peers_required};
use madplane_shm::counters::Counter;
use madplane_shm::sync::Ordering;
use rustix::process::Signal;
use tempfile::TempDir;

const MADS: u32 = 100_000;

fn skip(reason: &str) {
    assert!(!peers_required(), "{reason}, and MADPLANE_REQUIRE_PEERS=1");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// Builds madplaned as this test was built if nobody has yet.
fn daemon() -> Result<(), BenchError> {
    if ours("madplaned").is_ok() {
        return Ok(());
    }
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "-p", "madplane-dataplane", "--bin", "madplaned"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let _ = build.status();
    ours("madplaned").map(|_| ())
}

/// Calls by name in the table that `strace -c` prints.
fn calls(table: &str) -> BTreeMap<String, u64> {
    table
        .lines()
        .filter_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let count = words.get(3)?.parse().ok()?;
            let name = words.last()?;
            (*name != "total" && words[0].parse::<f64>().is_ok()).then(|| ((*name).to_owned(), count))
        })
        .collect()
}

/// A plane, and what it serves; `None` where there is no daemon.
fn started(arguments: &[&str]) -> Option<(Fabric, Plane)> {
    if let Err(error) = daemon() {
        skip(&error.to_string());
        return None;
    }
    let fabric = Fabric::from_spec(HOSTS_648).expect("a built-in fabric");
    let plane = Plane::start(&PlaneOptions {
        fabric: fabric.spec.clone(),
        at: Some(fabric.host_selector()),
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        ..PlaneOptions::default()
    });
    Some((fabric, plane.expect("the daemon is there")))
}

/// A trace of the plane's worker; `None` where nobody may trace.
fn traced(plane: &Plane) -> Option<Trace> {
    match Trace::start(plane) {
        Ok(trace) => Some(trace),
        Err(error) => {
            skip(&format!("strace cannot trace here: {error}"));
            None
        }
    }
}

#[test]
fn a_stream_of_mads_costs_the_worker_no_system_call() {
    let Some((fabric, plane)) = started(&[]) else { return };
    let status = plane.status().unwrap();
    // without a core of its own a worker yields to its clients, and that is a system call
    let pinned = status.worker(0).cpu.load(Ordering::Relaxed) != u32::MAX;
    if !pinned {
        return skip("the worker has no core of its own");
    }
    let Some(trace) = traced(&plane) else { return };
    let mut client = RingClient::attach(plane.paths(), "", 0).unwrap();
    let mut query = client.query(&fabric.route(4).unwrap());
    client.ask_many(&mut query, MADS, 64).unwrap();
    client.ask_each(&mut query, MADS / 10, &mut madplane_bench::harness::Distribution::new()).unwrap();
    drop(client);
    let (total, table) = trace.end();
    // attaching, registering and closing ring housekeeping's doorbell once each; strace interrupts with restart_syscall
    assert!(total >= 1, "the reports to housekeeping were seen, so the tracer saw the worker:\n{table}");
    assert!(total <= 16, "{total} system calls for {MADS} MADs:\n{table}");
}

#[test]
fn the_counters_of_an_interrupt_worker_are_its_system_calls() {
    let Some((fabric, plane)) = started(&["--mode", "interrupt"]) else { return };
    let status = plane.status().unwrap();
    let client = RingClient::attach(plane.paths(), "", 0).unwrap();
    let query = client.query(&fabric.route(4).unwrap());
    let mut sessions = Sessions::new(client, query);
    let Some(trace) = traced(&plane) else { return };
    let counted = || {
        // idle workers show their counts ten times a second
        std::thread::sleep(Duration::from_millis(500));
        let counters = &status.worker(0).counters;
        let of = |counter: Counter| counters[counter as usize].load(Ordering::Relaxed);
        [Counter::SessionReceived, Counter::WorkerSleeps, Counter::WakeUps, Counter::DoorbellsRung].map(of)
    };
    let before = counted();
    let duration = Duration::from_millis(500);
    let load = Load { pace: Pace::Closed, in_flight: 1, duration, waits: Waits::Sleeping };
    let outcome = open_loop::run(&mut sessions, load).unwrap();
    let after = counted();
    let (total, table) = trace.end();
    let [asked, sleeps, wakes, bells] = std::array::from_fn(|at| after[at] - before[at]);
    assert_eq!(asked, outcome.answered);
    assert!(asked > 20, "there was something to count: {asked}");
    // a request and its answer are two MADs: one wake-up and one doorbell, and no more
    assert!(wakes <= asked + 4 && bells <= asked + 4, "{wakes} wake-ups and {bells} doorbells for {asked}");
    // idle sleeps before and after, and what strace itself interrupts
    let unseen = total.abs_diff(sleeps + bells);
    assert!(
        unseen <= 200,
        "{total} system calls, of which {sleeps} sleeps and {bells} doorbells are counted:\n{table}"
    );
    assert!(unseen < asked, "{asked} requests are too few to tell:\n{table}");
}

/// strace on a worker's thread.
struct Trace {
    tracer: Process,
    table: PathBuf,
    _directory: TempDir,
}

impl Trace {
    /// Starts it and waits until it traces.
    fn start(plane: &Plane) -> Result<Self, BenchError> {
        let strace = peer("strace")?;
        let directory = tempfile::tempdir().map_err(|error| BenchError::io("temporary directory", error))?;
        let table = directory.path().join("calls");
        let thread = plane.status()?.worker(0).thread.load(Ordering::Relaxed);
        assert_ne!(thread, 0, "a plane that is ready shows the threads of its workers");
        let mut command = Command::new(strace);
        command.args(["-c", "-p", &thread.to_string(), "-o"]).arg(&table);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut tracer = Process::start("strace", &mut command)?;
        let tracing = || {
            let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
            let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
            tracer.is_some_and(|pid| pid.trim() != "0").then_some(())
        };
        tracer.wait_for(Duration::from_secs(60), Duration::from_millis(5), tracing)?;
        Ok(Self { tracer, table, _directory: directory })
    }

    /// Calls in all, and strace's table.
    fn end(mut self) -> (u64, String) {
        self.tracer.signal(Signal::INT);
        let _ = self.tracer.child().wait();
        let table = std::fs::read_to_string(&self.table).expect("strace has written its table");
        (calls(&table).values().sum(), table)
    }
}
