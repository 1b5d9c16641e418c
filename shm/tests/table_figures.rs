//! What the route table costs, as JSON lines; asserts only that each figure is of work that was done.
//!
//! `taskset -c 0 cargo test --release -p madplane-shm --test table_figures -- --ignored --nocapture`
#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that measures, in the shape of a test"
)]

use std::hint::black_box;
use std::time::Duration;

use madplane_shm::header::Incarnation;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::{MAX_ROUTES, RouteEntry, TableOptions};

const ROUNDS: usize = 9;

/// Processor time of this thread: what others do on the machine counts only through the caches.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap(), u32::try_from(now.tv_nsec).unwrap())
}

/// Runs `work` some times; prints median and extremes of nanoseconds divided by `per`.
fn measure(name: &str, per: u32, mut work: impl FnMut()) {
    measure_after(name, per, || {}, |()| work());
}

/// As [`measure`], with something before each round that does not count.
fn measure_after<T>(name: &str, per: u32, mut before: impl FnMut() -> T, mut work: impl FnMut(T)) {
    let mut found: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let prepared = before();
            let started = thread_time();
            work(prepared);
            (thread_time() - started).as_secs_f64() * 1e9 / f64::from(per)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    let (low, median, high) = (found[0], found[ROUNDS / 2], found[ROUNDS - 1]);
    println!(
        "{{\"figure\":\"{name}\",\"rounds\":{ROUNDS},\"per\":{per},\"ns_min\":{low:.2},\"ns_median\":{median:.2},\"ns_max\":{high:.2}}}"
    );
}

fn route(index: u32) -> RouteEntry {
    let [.., high, low] = index.to_be_bytes();
    let mut entry = RouteEntry::new(u16::from_be_bytes([high, low]), 7, &[1, 2, 3, 4, 5, 6]).unwrap();
    entry.id = u64::from(index);
    entry
}

fn sum(reader: &mut TableReader) -> u64 {
    let mut sum = 0;
    let mut add = |_, entry: Option<&RouteEntry>| sum += entry.map_or(0, |entry| entry.id);
    let done = reader.refresh(&mut add, &mut |_, _| {});
    assert!(done.complete && done.refused == 0);
    black_box(sum);
    u64::from(done.changed)
}

#[test]
#[ignore = "measures; run it alone and in release"]
fn what_a_look_a_publication_and_a_refresh_cost() {
    let memory = std::path::Path::new("/dev/shm");
    let directory = tempfile::tempdir_in(if memory.is_dir() { memory } else { "/tmp".as_ref() }).unwrap();
    for routes in [1024, MAX_ROUTES] {
        let path = directory.path().join(format!("table-{routes}"));
        let options = TableOptions { routes, tenants: 64 };
        let mut publisher = RoutePublisher::create(&path, options, Incarnation::default()).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        let mut next = 0u32;

        measure(&format!("publish_all_{routes}"), 1, || {
            next += 1;
            for index in 0..routes {
                let mut entry = route(index);
                entry.id += u64::from(next);
                publisher.set(index, &entry);
            }
            publisher.publish();
        });
        measure(&format!("open_reader_{routes}"), 1, || {
            assert!(black_box(TableReader::open(&path).unwrap()).changed());
        });
        let mut fresh: Vec<_> = (0..ROUNDS).map(|_| TableReader::open(&path).unwrap()).collect();
        measure(&format!("first_refresh_all_{routes}"), 1, || {
            assert_eq!(sum(&mut fresh.pop().unwrap()), u64::from(routes));
        });
        assert_eq!(sum(&mut reader), u64::from(routes));
        let mut number = 0;
        let mut change_all = |times: u32| {
            for _ in 0..times {
                number += 1;
                for index in 0..routes {
                    publisher.set(index, &route(index + number));
                }
                publisher.publish();
            }
        };
        // as many changes as the journal has words, one word a route
        measure_after(
            &format!("refresh_all_by_journal_{routes}"),
            1,
            || change_all(1),
            |()| assert_eq!(sum(&mut reader), u64::from(routes)),
        );
        // more than that
        measure_after(
            &format!("refresh_all_by_full_pass_{routes}"),
            1,
            || change_all(5),
            |()| assert_eq!(sum(&mut reader), u64::from(routes)),
        );
        measure(&format!("publish_one_of_{routes}"), 200_000, || {
            for number in 0..200_000 {
                publisher.set(number * 7919 % routes, &route(number));
                publisher.publish();
            }
        });
        assert_eq!(sum(&mut reader), u64::from(routes));
        measure(&format!("publish_one_and_refresh_of_{routes}"), 200_000, || {
            for number in 0..200_000 {
                publisher.set(number * 7919 % routes, &route(number));
                publisher.publish();
                assert_eq!(sum(&mut reader), 1);
            }
        });
        measure("look_unchanged_burst_1", 100_000_000, || {
            for _ in 0..100_000_000 {
                assert!(!black_box(&reader).changed());
            }
        });
        drop(publisher);
        measure(&format!("reopen_and_repair_{routes}"), 1, || {
            let again = RoutePublisher::open_or_create(&path, options, Incarnation::default()).unwrap();
            assert_eq!(again.present(), u64::from(routes));
        });
    }
    let counters =
        RouteCounters::create(&directory.path().join("routes"), 1024, Incarnation::default()).unwrap();
    measure("count_route_use", 10_000_000, || {
        for number in 0..10_000_000u32 {
            counters.add(black_box(number & 1023), 256, u64::from(number));
        }
    });
}
