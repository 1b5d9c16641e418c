//! A writer that changes tenants and routes as fast as it can, readers that check every one of them.
//!
//! The number of a publication is its generation. A tenant is made from its place and the number that changed it last, so
//! a torn one does not equal what it should be, checksum or not; tenants that change together hold one number. A reader
//! that says generation `n` has exactly the routes of `n`, and tenants that are not older.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper that fails has to fail its test")]

use std::sync::atomic::{AtomicBool, Ordering};

use madplane_shm::header::Incarnation;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::tenant::{PathPrefix, TenantEntry};
use madplane_shm::table::{RouteEntry, TableOptions};

const ROUTES: u32 = 4;

/// The tenant that stands at `place` with `number`: every word of it from both.
fn tenant(place: u32, number: u64) -> TenantEntry {
    let mut entry = TenantEntry::new(&format!("t{place}-{number}")).unwrap();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(place);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state
    };
    entry.classes.fill_with(&mut next);
    entry.nodes.fill_with(&mut next);
    let mut half = || u32::try_from(next() >> 32).unwrap();
    entry.uids.fill_with(&mut half);
    entry.gids.fill_with(&mut half);
    (entry.rate, entry.burst) = (half(), half());
    entry.p_keys.fill_with(|| u16::try_from(half() >> 16).unwrap());
    let mut byte = || u8::try_from(half() >> 24).unwrap();
    (entry.rights, entry.class) = (byte() & 3, byte() & 1);
    (entry.p_key_count, entry.uid_count, entry.gid_count) = (byte() % 33, byte() % 9, byte() % 9);
    (entry.node_count, entry.prefix_count) = (byte() % 9, byte() % 5);
    entry.prefixes.fill_with(|| {
        let mut prefix = PathPrefix { len: byte() % 16, ..PathPrefix::default() };
        prefix.ports.fill_with(&mut byte);
        prefix
    });
    entry.id = number;
    entry
}

fn route(index: u32, number: u64) -> RouteEntry {
    let lid = u16::try_from(index + 1).unwrap();
    let mut entry = RouteEntry::new(lid, lid, &[1, 2, 3]).unwrap();
    entry.id = number;
    entry
}

/// The publication up to `number` that changed the routes last; the one that changed tenants last.
fn last_changes(number: u64) -> (u64, u64) {
    // of five publications: both, routes, tenants, routes, tenants
    let back = |changes: [bool; 5]| {
        (0..number).map(|ago| number - ago).find(|at| changes[usize::try_from(at % 5).unwrap()]).unwrap_or(0)
    };
    (back([true, true, false, true, false]), back([true, false, true, false, true]))
}

/// Places of tenants that change together.
fn group(size: u32) -> Vec<u32> {
    let mut places: Vec<u32> = (0..4).map(|part| (size - 1) * part / 3).collect();
    places.dedup();
    places
}

#[derive(Debug, Default)]
struct Tally {
    publications: u64,
    refreshes: u64,
    tenants: u64,
    retries: u64,
    given_up: u64,
}

struct Checker {
    reader: TableReader,
    tenants: Vec<u64>,
    routes: [u64; ROUTES as usize],
    group: Vec<u32>,
}

impl Checker {
    fn new(path: &std::path::Path) -> Self {
        let reader = TableReader::open(path).unwrap();
        let size = reader.options().tenants;
        Self { tenants: vec![0; size as usize], routes: [0; ROUTES as usize], group: group(size), reader }
    }

    fn look(&mut self, tally: &mut Tally) {
        let (tenants, routes) = (&mut self.tenants, &mut self.routes);
        let mut take_route = |index: u32, entry: Option<&RouteEntry>| {
            let entry = entry.unwrap();
            assert_eq!(*entry, route(index, entry.id), "a torn route was handed out");
            routes[index as usize] = entry.id;
        };
        let mut take_tenant = |place: u32, entry: Option<&TenantEntry>| {
            let number = entry.map_or(0, |entry| {
                assert_eq!(*entry, tenant(place, entry.id), "a torn tenant was handed out");
                entry.id
            });
            assert!(number == 0 || number > tenants[place as usize], "tenant {place} went back in time");
            tenants[place as usize] = number;
        };
        let done = self.reader.refresh(&mut take_route, &mut take_tenant);
        assert_eq!(done.refused, 0, "a checksum failed after the copy was found whole");
        let newest = self.tenants[self.group[0] as usize];
        let mixed = self.group.iter().any(|place| self.tenants[*place as usize] != newest);
        assert!(!mixed, "generation {} has tenants of two publications", done.generation);
        if done.complete {
            // generation 1 is that of the empty table
            let (of_routes, of_tenants) = last_changes(done.generation - 1);
            assert_eq!(self.routes, [of_routes; ROUTES as usize], "generation {}", done.generation);
            assert!(newest >= of_tenants, "generation {} without its tenants: {newest}", done.generation);
        }
        tally.refreshes += 1;
        tally.tenants += u64::from(done.tenants_changed);
        tally.retries += u64::from(done.retries);
        tally.given_up += u64::from(!done.complete);
    }
}

fn stress(size: u32, publications: u64, tenants_read: u64) -> Tally {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let options = TableOptions { routes: ROUTES, tenants: size };
    let mut publisher = RoutePublisher::create(&path, options, Incarnation::default()).unwrap();
    let enough = AtomicBool::new(false);
    let mut tally = Tally::default();
    let last = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let group = group(size);
            let mut number = 0;
            while number < publications || !enough.load(Ordering::Relaxed) {
                number += 1;
                let (of_routes, of_tenants) = last_changes(number);
                if of_tenants == number {
                    for place in &group {
                        publisher.set_tenant(*place, &tenant(*place, number));
                    }
                    let other = u32::try_from(number.wrapping_mul(2_654_435_761) % u64::from(size)).unwrap();
                    match group.contains(&other) {
                        true => {}
                        false if number.is_multiple_of(7) => publisher.clear_tenant(other),
                        false => publisher.set_tenant(other, &tenant(other, number)),
                    }
                }
                if of_routes == number {
                    (0..ROUTES).for_each(|index| publisher.set(index, &route(index, number)));
                }
                assert_eq!(publisher.publish(), number + 1);
            }
            number
        });
        let mut checker = Checker::new(&path);
        while !writing.is_finished() {
            checker.look(&mut tally);
            if tally.refreshes.is_multiple_of(32) {
                Checker::new(&path).look(&mut tally);
            }
            enough.store(tally.tenants >= tenants_read, Ordering::Relaxed);
        }
        let number = writing.join().unwrap();
        checker.look(&mut tally);
        assert_eq!(checker.tenants[0], last_changes(number).1, "the last tenants did not arrive");
        let mut late = Checker::new(&path);
        late.look(&mut tally);
        assert_eq!(late.tenants, checker.tenants, "a late reader sees other tenants");
        number
    });
    tally.publications = last;
    tally
}

#[test]
fn no_tenant_is_torn_and_no_generation_is_without_its_tenants_at_any_size() {
    for size in [1, 2, 3, 8, 9, 64, 255, 1024] {
        let tally = stress(size, 10_000, 5_000);
        println!("{size:>5} tenants: {tally:?}");
        assert!(tally.tenants >= 5_000 && tally.refreshes > tally.given_up);
    }
}
