//! A reader that follows in small steps: what it has when a generation is complete is that generation, whatever the writer
//! did between the steps.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which prints its seed")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use madplane_shm::header::Incarnation;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::{Refresh, TableReader};
use madplane_shm::table::tenant::TenantEntry;
use madplane_shm::table::{RouteEntry, TableOptions};

struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % below
    }
}

fn seed() -> u64 {
    let seed = std::env::var("MADPLANE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5EED_0003);
    println!("seed {seed} (MADPLANE_SEED)");
    seed
}

fn route(number: u64) -> RouteEntry {
    let low = u16::try_from(number % 40_000).unwrap();
    RouteEntry { id: number, ..RouteEntry::new(low + 1, 7, &[1, 2, 3]).unwrap() }
}

type Copy = BTreeMap<u32, RouteEntry>;

fn step(reader: &mut TableReader, budget: u32, copy: &mut Copy) -> Refresh {
    reader.advance(
        budget,
        &mut |index, entry: Option<&RouteEntry>| {
            match entry {
                Some(entry) => copy.insert(index, *entry),
                None => copy.remove(&index),
            };
        },
        &mut |_, _: Option<&TenantEntry>| {},
    )
}

#[test]
fn a_complete_copy_is_the_generation_that_it_says() {
    let mut dice = Dice(seed());
    for routes in [1, 30, 700, 5000] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let options = TableOptions { routes, tenants: 3 };
        let mut publisher = RoutePublisher::create(&path, options, Incarnation::default()).unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        let (mut now, mut copy, mut history) = (Copy::new(), Copy::new(), BTreeMap::new());
        history.insert(publisher.generation(), now.clone());
        let (mut complete, mut number) = (0, 0);
        for _ in 0..1500 {
            // mostly small publications, seldom more changes than the journal holds
            if dice.roll(3) == 0 {
                let changes = if dice.roll(40) == 0 { 2 * routes } else { dice.roll(4) };
                for _ in 0..changes {
                    let index = dice.roll(routes);
                    number += 1;
                    if dice.roll(5) == 0 {
                        publisher.clear(index);
                        now.remove(&index);
                    } else {
                        publisher.set(index, &route(number));
                        now.insert(index, route(number));
                    }
                }
                history.insert(publisher.publish(), now.clone());
                history = history.split_off(&reader.generation());
            }
            let budget = [1, 3, 40, 10_000][usize::try_from(dice.roll(4)).unwrap()];
            let before = reader.generation();
            let done = step(&mut reader, budget, &mut copy);
            assert_eq!(done.generation, reader.generation());
            if done.complete {
                complete += 1;
                assert!(copy == history[&done.generation], "generation {}, {routes} routes", done.generation);
            } else {
                assert_eq!(done.generation, before, "a generation is told when it is complete");
                assert!(reader.changed());
            }
            assert!(done.changed <= budget, "{} of {budget}", done.changed);
        }
        assert!(complete > 50, "{complete}");
        // the two ways of following can be mixed
        step(&mut reader, 1, &mut copy);
        publisher.set(0, &route(1));
        history.insert(publisher.publish(), BTreeMap::from_iter(now.into_iter().chain([(0, route(1))])));
        step(&mut reader, 1, &mut copy);
        let mut late = copy.clone();
        let done = reader.refresh(
            &mut |index, entry| {
                match entry {
                    Some(entry) => late.insert(index, *entry),
                    None => late.remove(&index),
                };
            },
            &mut |_, _| {},
        );
        assert!(done.complete && late == history[&done.generation]);
    }
}

#[test]
fn a_writer_at_full_speed_never_makes_a_complete_copy_a_mix() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let routes = 256;
    let mut publisher =
        RoutePublisher::create(&path, TableOptions { routes, tenants: 3 }, Incarnation::default()).unwrap();
    let mut reader = TableReader::open(&path).unwrap();
    let stop = AtomicBool::new(false);
    // every publication changes all routes to its own number
    let mut all = move |number: u64| {
        (0..routes).for_each(|index| publisher.set(index, &route(number)));
        publisher.publish();
    };
    all(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                all(number);
                std::thread::yield_now();
            }
        });
        let (mut copy, mut complete) = (Copy::new(), 0);
        for _ in 0..200_000 {
            if complete == 200 {
                break;
            }
            if step(&mut reader, 7, &mut copy).complete {
                complete += 1;
                let mut ids: Vec<_> = copy.values().map(|entry| entry.id).collect();
                ids.dedup();
                assert!(copy.len() == routes as usize && ids.len() == 1, "{ids:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(complete > 0);
    });
}
