//! A polling worker makes no system call per MAD: strace watches it while a client streams.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use madplane_bench::BenchError;
use madplane_bench::fabrics::{Fabric, HOSTS_648};
use madplane_bench::load::RingClient;
use madplane_bench::plane::{Plane, PlaneOptions};
use madplane_bench::process::Process;
use madplane_bench::programs::{ours, peer, peers_required};
use madplane_shm::sync::Ordering;
use rustix::process::Signal;

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

#[test]
fn a_stream_of_mads_costs_the_worker_no_system_call() {
    let Ok(strace) = peer("strace") else { return skip("strace is not installed") };
    if let Err(error) = daemon() {
        return skip(&error.to_string());
    }
    let fabric = Fabric::from_spec(HOSTS_648).unwrap();
    let plane = Plane::start(&PlaneOptions {
        fabric: fabric.spec.clone(),
        at: Some(fabric.host_selector()),
        ..PlaneOptions::default()
    })
    .unwrap();
    let status = plane.status().unwrap();
    // without a core of its own a worker yields to its clients, and that is a system call
    let pinned = status.worker(0).cpu.load(Ordering::Relaxed) != u32::MAX;
    if !pinned {
        return skip("the worker has no core of its own");
    }
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("calls");
    let thread = status.worker(0).thread.load(Ordering::Relaxed);
    let thread = if thread == 0 { worker_thread(plane.process().id()) } else { thread };
    let mut command = Command::new(strace);
    command.args(["-c", "-p", &thread.to_string(), "-o"]).arg(&table);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut tracer = Process::start("strace", &mut command).unwrap();
    let tracing = || {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|pid| pid.trim() != "0").then_some(())
    };
    if let Err(error) = tracer.wait_for(Duration::from_secs(60), Duration::from_millis(5), tracing) {
        return skip(&format!("strace cannot trace here: {error}"));
    }
    let mut client = RingClient::attach(plane.paths(), "", 0).unwrap();
    let mut query = client.query(&fabric.route(4).unwrap());
    client.ask_many(&mut query, MADS, 64).unwrap();
    client.ask_each(&mut query, MADS / 10, &mut madplane_bench::harness::Distribution::new()).unwrap();
    drop(client);
    tracer.signal(Signal::INT);
    let _ = tracer.child().wait();
    let table = std::fs::read_to_string(&table).unwrap();
    let calls = calls(&table);
    // attaching, registering and closing ring housekeeping's doorbell once each; strace interrupts with restart_syscall
    let total: u64 = calls.values().sum();
    assert!(total >= 1, "the reports to housekeeping were seen, so the tracer saw the worker:\n{table}");
    assert!(total <= 16, "{total} system calls for {MADS} MADs:\n{table}");
}

/// Thread of the first worker, by its name.
fn worker_thread(pid: u32) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the plane runs");
    tasks
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .find(|task| {
            std::fs::read_to_string(format!("/proc/{pid}/task/{task}/comm"))
                .is_ok_and(|name| name.trim() == "madplane-w0")
        })
        .expect("the worker has a thread")
}
