//! A writer publishing as fast as it can against readers that check every route and every publication.
//!
//! A publication gives one number to a group of routes spread over the table; a copy that holds two numbers is a mix. A
//! route is made from its place and number alone, so a torn one does not equal what it should be, checksum or not.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper that fails has to fail its test")]

use std::sync::atomic::{AtomicBool, Ordering};

use madplane_shm::header::Incarnation;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::{RouteEntry, TableOptions};

/// The route that stands at `index` with `number`.
fn route(index: u32, number: u64) -> RouteEntry {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(index);
    let mut ports = [0u8; 63];
    for port in &mut ports {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *port = state.to_be_bytes()[0] | 1;
    }
    let length = 1 + usize::try_from(number % 63).unwrap();
    let [.., high, low] = index.to_be_bytes();
    let lid = u16::from_be_bytes([high, low]);
    let mut entry = RouteEntry::new(lid, !lid, &ports[..length]).unwrap();
    entry.id = number;
    entry.tenant = lid;
    entry.priority = ports[62];
    entry
}

/// Places that change together.
fn group(size: u32) -> Vec<u32> {
    let mut places: Vec<u32> = (0..5).map(|part| (size - 1) * part / 4).collect();
    places.dedup();
    places
}

#[derive(Debug, Default)]
struct Tally {
    publications: u64,
    refreshes: u64,
    entries: u64,
    full_entries: u64,
    retries: u64,
    given_up: u64,
}

struct Checker {
    reader: TableReader,
    numbers: Vec<u64>,
    group: Vec<u32>,
}

impl Checker {
    fn new(path: &std::path::Path) -> Self {
        let reader = TableReader::open(path).unwrap();
        let size = reader.capacity();
        Self { numbers: vec![0; size as usize], group: group(size), reader }
    }

    /// Refreshes once and checks all that comes.
    fn look(&mut self, tally: &mut Tally) -> u64 {
        let numbers = &mut self.numbers;
        let mut check = |index: u32, entry: Option<&RouteEntry>| {
            let number = entry.map_or(0, |entry| {
                assert_eq!(*entry, route(index, entry.id), "a torn route was handed out");
                entry.id
            });
            assert!(number == 0 || number > numbers[index as usize], "place {index} went back in time");
            numbers[index as usize] = number;
        };
        let done = self.reader.refresh(&mut check, &mut |_, _| {});
        let first = self.numbers[self.group[0] as usize];
        let mixed = self.group.iter().any(|place| self.numbers[*place as usize] != first);
        assert!(!mixed, "generation {} is a mix of publications", done.generation);
        assert_eq!(done.refused, 0, "a checksum failed after the copy was found whole");
        tally.refreshes += 1;
        tally.retries += u64::from(done.retries);
        tally.given_up += u64::from(!done.complete);
        u64::from(done.changed)
    }
}

/// Runs writer and readers on a table of `size` routes until both numbers are reached.
fn stress(size: u32, publications: u64, reads: u64) -> Tally {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let options = TableOptions { routes: size, tenants: 1 };
    let mut publisher = RoutePublisher::create(&path, options, Incarnation::default()).unwrap();
    let enough = AtomicBool::new(false);
    let mut tally = Tally::default();
    let last = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let group = group(size);
            let mut number = 0;
            while number < publications || !enough.load(Ordering::Relaxed) {
                number += 1;
                for place in &group {
                    publisher.set(*place, &route(*place, number));
                }
                let other = u32::try_from(number.wrapping_mul(2_654_435_761) % u64::from(size)).unwrap();
                if !group.contains(&other) {
                    if number.is_multiple_of(7) {
                        publisher.clear(other);
                    } else {
                        publisher.set(other, &route(other, number));
                    }
                }
                publisher.publish();
            }
            number
        });
        let mut checker = Checker::new(&path);
        while !writing.is_finished() {
            tally.entries += checker.look(&mut tally);
            // one that has never looked takes a full pass under fire
            if tally.refreshes.is_multiple_of(if size < 1024 { 64 } else { 4 }) {
                tally.full_entries += Checker::new(&path).look(&mut tally);
            }
            if tally.entries + tally.full_entries >= reads {
                enough.store(true, Ordering::Relaxed);
            }
        }
        let number = writing.join().unwrap();
        checker.look(&mut tally);
        assert_eq!(checker.numbers[0], number, "the last publication did not arrive");
        let mut late = Checker::new(&path);
        late.look(&mut tally);
        assert_eq!(late.numbers, checker.numbers, "a late reader sees another table");
        number
    });
    tally.publications = last;
    tally
}

const SIZES: [u32; 10] = [1, 2, 3, 64, 255, 256, 257, 1024, 4097, 65_536];

#[test]
fn no_route_is_torn_and_no_publication_is_mixed_at_any_table_size() {
    for size in SIZES {
        let tally = stress(size, 20_000, 10_000);
        println!("{size:>6} routes: {tally:?}");
        assert!(tally.entries + tally.full_entries >= 10_000 && tally.refreshes > tally.given_up);
    }
}

/// `MADPLANE_STRESS_READS` sets another total.
#[test]
#[ignore = "takes minutes: a thousand million routes read"]
fn no_route_is_torn_in_a_thousand_million_reads() {
    let total = std::env::var("MADPLANE_STRESS_READS").map_or(1_000_000_000, |reads| reads.parse().unwrap());
    let all = u64::from(SIZES.iter().sum::<u32>());
    let mut read = 0;
    for size in SIZES {
        // small tables change a route or two at a time: most reads come from large ones
        let share = total * u64::from(size) / all;
        let tally = stress(size, 100_000, share.max(10_000));
        println!("{size:>6} routes: {tally:?}");
        read += tally.entries + tally.full_entries;
    }
    assert!(read + SIZES.len() as u64 >= total, "{read} of {total}");
    println!("{read} routes read, none torn, no mix");
}
