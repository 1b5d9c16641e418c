//! Two planes in one thread, joined by a link over a pair of transports: what crosses, what does not, and what a cut does.
//!
//! Port 4 of S1 of the one is joined to port 4 of S2 of the other; B of the other is two hops behind it.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use madplane_port::datagram::pair::{Faults, pair};
use madplane_port::link::DEAD_NS;
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{class, method};
use madplane_wire::smp::attr;
use madplane_wire::smp::port_info::field as pi;
use support::*;

const OVER: &[u8] = &[1, 4];
const FAR_B: &[u8] = &[1, 4, 1];

/// Two planes and a way to cut what leads from the second to the first.
struct Pair {
    one: Fleet,
    other: Fleet,
    cut: Box<dyn Fn(bool)>,
}

impl Pair {
    fn new(workers: usize, faults: Faults) -> Self {
        let (a, b) = pair(256, faults).unwrap();
        let cut = Box::new(b.cutter());
        let (mut one, mut other) = (Fleet::new(workers), Fleet::new(workers));
        one.open_link(0, (S1, 4), Box::new(a));
        other.open_link(7, (S2, 4), Box::new(b));
        let mut this = Self { one, other, cut };
        this.settle();
        this
    }

    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..100_000 {
            quiet = if self.one.poll() + self.other.poll() == 0 { quiet + 1 } else { 0 };
            if quiet == 3 {
                return;
            }
        }
        panic!("MADs keep circling");
    }

    /// Lets time pass in steps of a millisecond.
    fn pass(&mut self, ns: u64) {
        for _ in 0..ns / 1_000_000 {
            self.one.now_ns += 1_000_000;
            self.other.now_ns += 1_000_000;
            self.one.poll();
            self.other.poll();
        }
        self.settle();
    }

    /// Data of the answer to a directed Get of client 0 of the first plane.
    fn get(&mut self, path: &[u8], attribute: u16, modifier: u32) -> Option<[u8; 64]> {
        let message = self.one.directed(method::GET, path, attribute, modifier);
        self.one.push(0, message);
        self.settle();
        let got = self.one.take(0);
        assert!(got.len() <= 1);
        got.first().map(|message| message.mad[64..128].try_into().unwrap())
    }

    fn guid(&mut self, path: &[u8]) -> Option<u64> {
        let info = self.get(path, attr::NODE_INFO, 0)?;
        Some(u64::from_be_bytes(info[12..20].try_into().unwrap()))
    }

    fn states(&mut self) -> (u8, Option<u8>) {
        let near = self.get(&[1], attr::PORT_INFO, 4).unwrap();
        let far = self.get(OVER, attr::PORT_INFO, 4);
        (pi::PORT_STATE.get_u8(&near), far.map(|far| pi::PORT_STATE.get_u8(&far)))
    }
}

#[test]
fn directed_requests_cross_to_the_other_plane_and_their_answers_come_back() {
    for workers in [1, 2, 4] {
        let mut pair = Pair::new(workers, Faults::default());
        assert_eq!(pair.guid(OVER), Some(GUIDS[2]));
        assert_eq!(pair.guid(FAR_B), Some(GUIDS[3]));
        assert_eq!(pair.states(), (2, Some(2)), "both ends are in Initialize");
        for fleet in [&mut pair.one, &mut pair.other] {
            assert_eq!(fleet.counter(Counter::LinkSent), 3);
            assert_eq!(fleet.counter(Counter::LinkReceived), 3);
            assert_eq!(fleet.counter(Counter::LinkEvents), 1, "it came up");
        }
    }
}

#[test]
fn a_dead_peer_takes_the_link_down_at_both_ends_and_a_returning_one_brings_it_up() {
    for workers in [1, 4] {
        let mut pair = Pair::new(workers, Faults::default());
        (pair.cut)(true);
        pair.pass(DEAD_NS - 200_000_000);
        assert_eq!(pair.states().0, 2, "not yet");
        pair.pass(400_000_000);
        let before = pair.one.drops();
        assert_eq!(pair.states(), (1, None));
        assert_eq!(pair.one.dropped_since(&before), [DropReason::PathPortDown]);
        // the other end heard everything all the time
        let far = pair.other.manage(method::GET, &[1, 2], attr::PORT_INFO, 4, &[0; 64]);
        assert_eq!(pi::PORT_STATE.get_u8(&far), 1);
        (pair.cut)(false);
        pair.pass(300_000_000);
        assert_eq!(pair.states(), (2, Some(2)));
    }
}

#[test]
fn a_cable_pulled_at_one_end_falls_at_both() {
    let mut pair = Pair::new(1, Faults::default());
    pair.one.set_link(S1, 4, false);
    pair.settle();
    assert_eq!(pair.states(), (1, None));
    let far = pair.other.manage(method::GET, &[1, 2], attr::PORT_INFO, 4, &[0; 64]);
    assert_eq!(pi::PORT_STATE.get_u8(&far), 1);
    pair.pass(2_000_000_000);
    assert_eq!(pair.states(), (1, None), "keep-alives do not plug it in");
    pair.one.set_link(S1, 4, true);
    pair.settle();
    assert_eq!(pair.states(), (2, Some(2)));
}

#[test]
fn a_node_that_boots_again_bounces_the_link() {
    let mut pair = Pair::new(2, Faults::default());
    let before = pair.one.counter(Counter::LinkEvents);
    pair.other.reboot(S2);
    pair.settle();
    assert!(pair.one.counter(Counter::LinkEvents) > before);
    assert_eq!(pair.states(), (2, Some(2)));
}

#[test]
fn a_lossy_link_stays_up_and_whoever_asks_again_is_answered() {
    let seed = 11;
    println!("seed {seed}");
    let mut pair = Pair::new(1, Faults { lost: 20, repeated: 10, swapped: 10, seed });
    pair.pass(1_000_000_000);
    let (mut asked, mut answered) = (0, 0);
    while answered < 500 {
        asked += 1;
        answered += i32::from(pair.guid(FAR_B).is_some());
        pair.pass(1_000_000);
    }
    assert!(asked > 500 && asked < 1_000, "{asked} requests for 500 answers");
    let status = pair.one.link_record(0);
    assert!(status.lost > 0 && status.downs == 0, "{status:?}");
}

#[test]
fn a_tenants_scoped_request_ends_at_the_plane() {
    let mut pair = Pair::new(1, Faults::default());
    let mut scoped = tenant("t", 5, &[0xFFFF]);
    assert!(scoped.set_nodes(&[GUIDS[2], GUIDS[3]]));
    let member = pair.one.set_tenant(0, &scoped);
    let client = pair.one.open((A, 1), member, &[agent(class::SUBN_DIRECTED, &[])]);
    let ask = pair.one.directed(method::GET, FAR_B, attr::NODE_INFO, 0);
    let before = pair.one.drops();
    pair.one.push(client, ask);
    pair.settle();
    assert_eq!(pair.one.dropped_since(&before), [DropReason::LinkTenant]);
    // the same nodes in its own plane are its to manage
    let ask = pair.one.directed(method::GET, &[1, 2], attr::NODE_INFO, 0);
    pair.one.push(client, ask);
    pair.settle();
    assert_eq!(pair.one.take(client).len(), 1);
}

#[test]
fn a_link_that_is_taken_away_leaves_a_port_without_cable() {
    let mut pair = Pair::new(2, Faults::default());
    assert!(pair.one.close_link(0, S1));
    assert!(!pair.one.close_link(0, S1));
    pair.settle();
    assert_eq!(pair.states(), (1, None));
    pair.pass(1_000_000_000);
    let far = pair.other.manage(method::GET, &[1, 2], attr::PORT_INFO, 4, &[0; 64]);
    assert_eq!(pi::PORT_STATE.get_u8(&far), 1, "nobody is there");
    assert!(!pair.one.try_open_link(1, (S1, 2)), "has a cable");
    assert!(pair.one.try_open_link(1, (S1, 4)));
    assert!(!pair.one.try_open_link(2, (S1, 4)), "has a link");
}
