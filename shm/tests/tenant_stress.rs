//! A writer that changes tenants and routes as fast as it can, readers that check every one of them.
//!
//! The number of a publication is its generation. A tenant is made from its place and the number that changed it last, so
//! a torn one does not equal what it should be, checksum or not; tenants that change together hold one number. A reader
//! that says generation `n` has exactly the routes of `n`, and tenants that are not older.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper that fails has to fail its test")]

mod stress;

use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::{Refresh, TableReader};
use madplane_shm::table::tenant::{PathPrefix, TenantEntry};
use madplane_shm::table::{RouteEntry, TableOptions};
use stress::{Checker, Effort, Seen, Tally, group, other, race, words_of};

const ROUTES: u32 = 4;

/// The tenant that stands at `place` with `number`: every word of it from both.
fn tenant(place: u32, number: u64) -> TenantEntry {
    let mut entry = TenantEntry::new(&format!("t{place}-{number}")).unwrap();
    let mut next = words_of(place, number);
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

/// Tenants that change together.
const MEMBERS: u32 = 4;

struct Tenants {
    reader: TableReader,
    seen: Seen,
    routes: [u64; ROUTES as usize],
}

impl Checker for Tenants {
    fn new(reader: TableReader) -> Self {
        let size = reader.options().tenants;
        Self { seen: Seen::nothing(size, group(size, MEMBERS)), routes: [0; ROUTES as usize], reader }
    }

    fn look(&mut self) -> Refresh {
        let mut take_route = |index: u32, entry: Option<&RouteEntry>| {
            let entry = entry.unwrap();
            assert_eq!(*entry, route(index, entry.id), "a torn route was handed out");
            self.routes[index as usize] = entry.id;
        };
        let mut take_tenant = |place: u32, entry: Option<&TenantEntry>| {
            let number = entry.map_or(0, |entry| {
                assert_eq!(*entry, tenant(place, entry.id), "a torn tenant was handed out");
                entry.id
            });
            self.seen.take(place, number);
        };
        let done = self.reader.refresh(&mut take_route, &mut take_tenant);
        let newest = self.seen.of_group(done.generation);
        if done.complete {
            let (of_routes, of_tenants) = last_changes(done.generation - 1);
            assert_eq!(self.routes, [of_routes; ROUTES as usize], "generation {}", done.generation);
            assert!(newest >= of_tenants, "generation {} without its tenants: {newest}", done.generation);
        }
        done
    }

    fn seen(&self) -> &Seen {
        &self.seen
    }

    fn taken(done: &Refresh) -> u64 {
        u64::from(done.tenants_changed)
    }
}

fn stress(size: u32, publications: u64, entries_read: u64) -> Tally {
    let together = group(size, MEMBERS);
    let change = |publisher: &mut RoutePublisher, number| {
        let (of_routes, of_tenants) = last_changes(number);
        if of_tenants == number {
            for place in &together {
                publisher.set_tenant(*place, &tenant(*place, number));
            }
            match other(size, number, &together) {
                None => {}
                Some((place, true)) => publisher.clear_tenant(place),
                Some((place, false)) => publisher.set_tenant(place, &tenant(place, number)),
            }
        }
        if of_routes == number {
            (0..ROUTES).for_each(|index| publisher.set(index, &route(index, number)));
        }
    };
    let options = TableOptions { routes: ROUTES, tenants: size };
    let effort = Effort { publications, entries_read, newcomer_every: 32 };
    race::<Tenants>(options, effort, change, |number| last_changes(number).1)
}

#[test]
fn no_tenant_is_torn_and_no_generation_is_without_its_tenants_at_any_size() {
    for size in [1, 2, 3, 8, 9, 64, 255, 1024] {
        let tally = stress(size, 10_000, 5_000);
        println!("{size:>5} tenants: {tally:?}");
        assert!(tally.entries_read() >= 5_000 && tally.refreshes > tally.given_up);
    }
}
