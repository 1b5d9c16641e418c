//! Whose turn it is in a duty cycle: the reserved class first, and a tenth for everybody else.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use madplane_dataplane::acl::Membership;
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::table::tenant::service_class;
use support::*;

const SEND: u8 = 0x03;
const RESERVED: u32 = 2;

/// A fleet with reserved and bulk senders at A and a receiver of everything at B.
struct Race {
    fleet: Fleet,
    reserved: Vec<usize>,
    bulk: Vec<usize>,
    receiver: usize,
}

impl Race {
    fn new(workers: usize, reserved: usize, bulk: usize, slots: u64) -> Self {
        let mut fleet = Fleet::new(workers);
        let mut entry = tenant("critical", 9, &[0xFFFF]);
        entry.class = service_class::RESERVED;
        let member = fleet.set_tenant(RESERVED, &entry);
        let agents = [agent(0x09, &[])];
        let receiver = fleet.open_with((B, 1), Membership::NONE, &[agent(0x0A, &[SEND])], 16_384);
        let mut open = |member| fleet.open_with((A, 1), member, &agents, slots);
        // bulk sessions come first in the order of sessions
        let bulk = (0..bulk).map(|_| open(Membership::NONE)).collect();
        let reserved = (0..reserved).map(|_| open(member)).collect();
        Self { fleet, reserved, bulk, receiver }
    }

    fn push(&mut self, client: usize, count: usize) {
        for _ in 0..count {
            let mad = self.fleet.gmp(SEND, 0x0A, LID_B, 0);
            self.fleet.push(client, mad);
        }
    }

    /// What has arrived, in order: sender by sender, with how many in a row.
    fn arrivals(&mut self) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for message in self.fleet.take(self.receiver) {
            let slot = u32::from_be_bytes(message.mad[8..12].try_into().unwrap()) >> 5 & 0x3FF;
            match runs.last_mut() {
                Some((last, count)) if *last == slot as usize => *count += 1,
                _ => runs.push((slot as usize, 1)),
            }
        }
        runs
    }
}

#[test]
fn reserved_mads_go_first_and_between_small_chunks_of_others() {
    let mut race = Race::new(1, 1, 1, 256);
    let (r, b) = (race.reserved[0], race.bulk[0]);
    race.push(b, 40);
    race.push(r, 3);
    race.fleet.poll();
    // 32 of the bulk session are its burst of the cycle
    assert_eq!(race.arrivals(), [(r, 3), (b, 32)]);
    race.fleet.run();
    assert_eq!(race.arrivals(), [(b, 8)]);
    race.push(b, 12);
    race.push(r, 100);
    race.fleet.poll();
    assert_eq!(race.arrivals(), [(r, 32), (b, 4), (r, 32), (b, 4), (r, 32), (b, 4), (r, 4)]);
}

#[test]
fn a_flood_of_the_reserved_class_leaves_a_tenth_to_others() {
    for reserved in [1, 3] {
        let mut race = Race::new(1, reserved, 16, 4096);
        for client in race.reserved.clone() {
            race.push(client, 4096);
        }
        for client in race.bulk.clone() {
            race.push(client, 40);
        }
        let before =
            (race.fleet.counter(Counter::ReservedReceived), race.fleet.counter(Counter::SessionReceived));
        // as far as every reserved MAD came while others waited
        for _ in 0..2 {
            race.fleet.poll();
            let fast = race.fleet.counter(Counter::ReservedReceived) - before.0;
            let all = race.fleet.counter(Counter::SessionReceived) - before.1;
            let slow = all - fast;
            assert!(slow * 10 >= all, "{reserved} reserved: {slow} of {all}");
            assert!(fast > slow, "and is first all the same: {fast} of {all}");
        }
    }
}

#[test]
fn others_that_send_one_at_a_time_get_their_tenth_too() {
    let mut race = Race::new(1, 1, 1, 4096);
    let (r, b) = (race.reserved[0], race.bulk[0]);
    race.push(r, 4096);
    let mut fast = 0;
    for cycle in 0..200 {
        race.push(b, 1);
        race.fleet.poll();
        let arrivals = race.arrivals();
        assert_eq!(arrivals.iter().filter(|run| run.0 == b).count(), 1, "in every cycle");
        fast += arrivals.iter().filter(|run| run.0 == r).map(|run| run.1).sum::<usize>();
        assert!(fast <= 32 + 8 * (cycle + 1), "cycle {cycle}: {fast}");
    }
    assert!(fast >= 8 * 199);
    race.fleet.poll();
    race.fleet.poll();
    assert_eq!(race.arrivals(), [(r, 32)], "with nobody else it has all");
}

#[test]
fn reserved_sessions_take_turns_among_themselves() {
    let mut race = Race::new(1, 3, 0, 256);
    for client in race.reserved.clone() {
        race.push(client, 40);
    }
    race.fleet.poll();
    let arrivals = race.arrivals();
    assert!(arrivals.iter().all(|(_, count)| *count <= 8), "{arrivals:?}");
    let of = |client: usize| arrivals.iter().filter(|run| run.0 == client).map(|run| run.1).sum::<usize>();
    let counts: Vec<usize> = race.reserved.iter().map(|client| of(*client)).collect();
    assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 8, "{counts:?}");
    race.fleet.run();
    assert_eq!(race.arrivals().iter().map(|run| run.1).sum::<usize>() + counts.iter().sum::<usize>(), 120);
}

#[test]
fn a_tenant_that_becomes_reserved_is_so_at_once_and_ends_so() {
    let mut race = Race::new(1, 1, 1, 256);
    let (r, b) = (race.reserved[0], race.bulk[0]);
    let mut entry = tenant("critical", 9, &[0xFFFF]);
    race.fleet.set_tenant(RESERVED, &entry);
    race.push(r, 5);
    race.push(b, 5);
    race.fleet.poll();
    assert_eq!(race.arrivals(), [(b, 5), (r, 5)], "in the order of sessions");
    entry.class = service_class::RESERVED;
    race.fleet.table.set_tenant(RESERVED, &entry);
    race.fleet.table.publish();
    race.push(r, 5);
    race.push(b, 5);
    race.fleet.poll();
    assert_eq!(race.arrivals(), [(r, 5), (b, 5)]);
}

#[test]
fn reserved_mads_overtake_others_between_workers() {
    let mut race = Race::new(2, 1, 1, 256);
    let (r, b) = (race.reserved[0], race.bulk[0]);
    race.push(b, 20);
    race.fleet.poll_one(0);
    race.push(r, 2);
    race.fleet.poll_one(0);
    race.fleet.poll_one(1);
    assert_eq!(race.arrivals(), [(r, 2), (b, 20)]);
}

#[test]
fn nothing_of_a_reserved_tenant_stays_behind_when_it_goes() {
    let mut race = Race::new(2, 1, 1, 256);
    let r = race.reserved[0];
    race.push(r, 2);
    race.fleet.poll_one(0);
    race.fleet.table.clear_tenant(RESERVED);
    race.fleet.table.publish();
    race.fleet.run();
    assert_eq!(race.arrivals(), [(r, 2)], "what was on its way arrives");
    let before = race.fleet.drops();
    race.push(r, 2);
    race.fleet.run();
    assert_eq!(race.fleet.dropped_since(&before), [DropReason::TenantGone; 2]);
}
