//! How much longer `routes.add` with `sync` takes than a round trip over the admin socket; figures only, nothing is asserted
//! about them. Run by hand on a quiet machine:
//!
//! ```sh
//! cargo test --release -p madplane-control --test sync_figures -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use madplane_shm::sync::Ordering::{Relaxed, Release};
use madplane_shm::table::snapshot::TableReader;
use support::{Bed, FakePlane, done};

const ROUNDS: usize = 4000;

/// One request and its answer, nanoseconds.
fn round(
    stream: &mut UnixStream,
    reader: &mut BufReader<UnixStream>,
    line: &str,
    answer: &mut String,
) -> u64 {
    answer.clear();
    let start = Instant::now();
    stream.write_all(line.as_bytes()).unwrap();
    reader.read_line(answer).unwrap();
    let took = start.elapsed();
    assert!(answer.contains("\"ok\":true"), "{answer}");
    u64::try_from(took.as_nanos()).unwrap()
}

fn percentiles(name: &str, all: &mut [u64]) {
    all.sort_unstable();
    let at = |per_mille: usize| all[(all.len() - 1) * per_mille / 1000];
    println!("{name}: p10 {} p50 {} p90 {} p99 {} p99.9 {} ns", at(100), at(500), at(900), at(990), at(999));
}

#[test]
#[ignore = "measures"]
fn a_change_with_sync_beside_a_round_trip() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, done);
    let daemon = bed.madctld();
    bed.wait_connected();
    let path = bed.table_file();
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, status) = (stop.clone(), plane.status.clone());
    // the worker has a processor of its own, as a pinned one has; the other one is for the two that talk
    let cpus = madplane_control::sys::allowed_cpus().unwrap();
    let (first, last) = (cpus[0], *cpus.last().unwrap());
    let worker = std::thread::spawn(move || {
        madplane_control::sys::confine_to(&[last]).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        while !stopped.load(Ordering::Relaxed) {
            if reader.changed() {
                let refresh = reader.refresh(&mut |_, _| {}, &mut |_, _| {});
                let block = status.worker(0);
                block.applied_ns.store(madplane_shm::process::monotonic_ns(), Relaxed);
                block.applied_generation.store(refresh.generation, Release);
            }
            std::hint::spin_loop();
        }
    });
    let mut set = rustix::thread::CpuSet::new();
    set.set(first as usize);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
    let pid = rustix::process::Pid::from_child(&daemon.child);
    rustix::thread::sched_setaffinity(Some(pid), &set).unwrap();
    let mut stream = bed.connect().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut answer = String::new();
    let (mut nothing, mut unsynced, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..ROUNDS {
        let (dlid, port) = (2 + index % 500, 1 + index % 250);
        let add = |sync| {
            format!(
                "{{\"v\":1,\"id\":1,\"cmd\":\"routes.add\",\"args\":{{\"route\":{{\"slid\":1,\"dlid\":{dlid},\"path\":[{port},2,3]}},\"replace\":true,\"sync\":{sync}}}}}\n"
            )
        };
        let ping = "{\"v\":1,\"id\":1,\"cmd\":\"control.ping\"}\n";
        nothing.push(round(&mut stream, &mut reader, ping, &mut answer));
        synced.push(round(&mut stream, &mut reader, &add(true), &mut answer));
        assert!(answer.contains("\"synced\":true"), "{answer}");
        if index % 8 == 0 {
            unsynced.push(round(&mut stream, &mut reader, &add(false), &mut answer));
        }
    }
    stop.store(true, Ordering::Relaxed);
    worker.join().unwrap();
    let mut beyond: Vec<u64> = synced.iter().zip(&nothing).map(|(s, n)| s.saturating_sub(*n)).collect();
    percentiles("round trip", &mut nothing);
    percentiles("routes.add", &mut unsynced);
    percentiles("routes.add sync", &mut synced);
    percentiles("beyond, round by round", &mut beyond);
    println!("publish to applied, by the worker's clock: see hw_sync_latency");
    println!("{}", String::from_utf8_lossy(&bed.madctl(&["latency", "show"]).stdout));
}
