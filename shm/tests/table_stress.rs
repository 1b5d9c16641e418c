//! A writer publishing as fast as it can against readers that check every route and every publication.
//!
//! A publication gives one number to a group of routes spread over the table; a copy that holds two numbers is a mix. A
//! route is made from its place and number alone, so a torn one does not equal what it should be, checksum or not.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper that fails has to fail its test")]

mod stress;

use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::{Refresh, TableReader};
use madplane_shm::table::{RouteEntry, TableOptions};
use stress::{Checker, Effort, Seen, Tally, group, other, race, words_of};

/// The route that stands at `index` with `number`.
fn route(index: u32, number: u64) -> RouteEntry {
    let mut next = words_of(index, number);
    let mut ports = [0u8; 63];
    ports.fill_with(|| next().to_be_bytes()[0] | 1);
    let length = 1 + usize::try_from(number % 63).unwrap();
    let [.., high, low] = index.to_be_bytes();
    let lid = u16::from_be_bytes([high, low]);
    let mut entry = RouteEntry::new(lid, !lid, &ports[..length]).unwrap();
    entry.id = number;
    entry.tenant = lid;
    entry.priority = ports[62];
    entry
}

/// Routes that change together.
const MEMBERS: u32 = 5;

/// Follows in steps of so many places, as a worker does; 0 for all at once.
struct Routes<const STEP: u32> {
    reader: TableReader,
    seen: Seen,
}

/// Steps after which a reader that the writer keeps overtaking gives up.
const STEPS: usize = 20_000;

impl<const STEP: u32> Checker for Routes<STEP> {
    fn new(reader: TableReader) -> Self {
        let size = reader.capacity();
        Self { seen: Seen::nothing(size, group(size, MEMBERS)), reader }
    }

    fn look(&mut self) -> Refresh {
        let mut check = |index: u32, entry: Option<&RouteEntry>| {
            let number = entry.map_or(0, |entry| {
                assert_eq!(*entry, route(index, entry.id), "a torn route was handed out");
                entry.id
            });
            self.seen.take(index, number);
        };
        let mut none = |_, _: Option<&_>| {};
        if STEP == 0 {
            let done = self.reader.refresh(&mut check, &mut none);
            self.seen.of_group(done.generation);
            return done;
        }
        let mut all = Refresh::default();
        for _ in 0..STEPS {
            let done = self.reader.advance(STEP, &mut check, &mut none);
            (all.generation, all.complete) = (done.generation, done.complete);
            all.changed += done.changed;
            all.retries += done.retries;
            all.refused += done.refused;
            if done.complete {
                self.seen.of_group(done.generation);
                break;
            }
        }
        all
    }

    fn seen(&self) -> &Seen {
        &self.seen
    }

    fn taken(done: &Refresh) -> u64 {
        u64::from(done.changed)
    }
}

/// Runs writer and readers on a table of `size` routes until both numbers are reached.
fn stress<const STEP: u32>(size: u32, publications: u64, entries_read: u64) -> Tally {
    let together = group(size, MEMBERS);
    let change = |publisher: &mut RoutePublisher, number| {
        for place in &together {
            publisher.set(*place, &route(*place, number));
        }
        match other(size, number, &together) {
            None => {}
            Some((place, true)) => publisher.clear(place),
            Some((place, false)) => publisher.set(place, &route(place, number)),
        }
    };
    let newcomer_every = if size < 1024 { 64 } else { 4 };
    let options = TableOptions { routes: size, tenants: 1 };
    race::<Routes<STEP>>(options, Effort { publications, entries_read, newcomer_every }, change, |number| {
        number
    })
}

const SIZES: [u32; 10] = [1, 2, 3, 64, 255, 256, 257, 1024, 4097, 65_536];

#[test]
fn no_route_is_torn_and_no_publication_is_mixed_at_any_table_size() {
    for size in SIZES {
        for stress in [stress::<0>, stress::<8>] {
            let tally = stress(size, 20_000, 10_000);
            println!("{size:>6} routes: {tally:?}");
            assert!(tally.entries_read() >= 10_000 && tally.refreshes > tally.given_up);
        }
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
        for stress in [stress::<0>, stress::<8>] {
            let tally = stress(size, 50_000, (share / 2).max(10_000));
            println!("{size:>6} routes: {tally:?}");
            read += tally.entries_read();
        }
    }
    assert!(read + 2 * SIZES.len() as u64 >= total, "{read} of {total}");
    println!("{read} routes read, none torn, no mix");
}
