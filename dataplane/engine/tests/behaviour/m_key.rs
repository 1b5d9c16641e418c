//! M_Key: protection, violations, lease.

use crate::world::*;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::method;
use madplane_wire::smp::attr;
use madplane_wire::smp::port_info::field as pi;

const KEY: u64 = 0x1234_5678_9ABC_DEF0;
const SECOND: u64 = 1_000_000_000;

/// Gives B a key; afterwards the requests carry no key.
fn protect(w: &mut World, bits: u64, lease_s: u64) {
    let fields = [
        (pi::M_KEY, KEY),
        (pi::M_KEY_PROTECT_BITS, bits),
        (pi::M_KEY_LEASE_PERIOD, lease_s),
        (pi::LID, 8),
        (pi::MASTER_SM_LID, 9),
    ];
    assert_eq!(w.set_port(TO_B, 1, &fields).unwrap().0, 0);
}

fn violations(w: &mut World) -> u64 {
    pi::M_KEY_VIOLATIONS.get(&w.owner(B).port_info(B, 1).unwrap())
}

#[test]
fn protect_bits_decide_who_reads() {
    // bits, is a Get answered, which key does it show
    for (bits, answered, shown) in [(0, true, KEY), (1, true, 0), (2, false, 0), (3, false, 0)] {
        let mut w = World::new(2);
        protect(&mut w, bits, 0);
        let got = w.query(method::GET, TO_B, attr::PORT_INFO, 1, &[0; 64]);
        assert_eq!(got.map(|(_, data)| pi::M_KEY.get(&data)), answered.then_some(shown), "bits {bits}");
        assert_eq!(violations(&mut w), u64::from(!answered), "a Get that is allowed is no violation");
        assert_eq!(w.drops(), if answered { vec![] } else { vec![(B, DropReason::MKey)] });
        // a Set never passes
        let data = w.owner(B).port_info(B, 1).unwrap();
        assert!(w.query(method::SET, TO_B, attr::PORT_INFO, 1, &data).is_none());
        assert_eq!(violations(&mut w), 1 + u64::from(!answered));
        assert_eq!(w.drops(), [(B, DropReason::MKey)]);
        // with the key everything passes and shows the key
        w.m_key = KEY;
        assert_eq!(pi::M_KEY.get(&w.get(TO_B, attr::PORT_INFO, 1)), KEY);
        assert_eq!(w.set_port(TO_B, 1, &[]).unwrap().0, 0);
    }
}

#[test]
fn a_key_of_zero_lets_everybody_in() {
    let mut w = World::new(1);
    w.m_key = KEY;
    assert_eq!(pi::M_KEY.get(&w.get(TO_B, attr::PORT_INFO, 1)), 0);
    w.get(TO_B, attr::NODE_INFO, 0);
    assert_eq!(violations(&mut w), 0);
}

#[test]
fn violations_stick_and_are_cleared_by_writing_zero() {
    let mut w = World::new(1);
    protect(&mut w, 2, 0);
    for _ in 0..70_000 {
        let pkt = w.directed(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]);
        assert!(w.exchange(pkt).is_none());
    }
    assert_eq!(violations(&mut w), 0xFFFF);
    w.m_key = KEY;
    assert_eq!(w.set_port(TO_B, 1, &[(pi::M_KEY_VIOLATIONS, 5)]).unwrap().0, 0);
    assert_eq!(violations(&mut w), 0xFFFF, "another value than 0 is ignored");
    assert_eq!(w.set_port(TO_B, 1, &[(pi::M_KEY_VIOLATIONS, 0)]).unwrap().0, 0);
    assert_eq!(violations(&mut w), 0);
}

#[test]
fn the_lease_ends_protection_and_keeps_the_key() {
    let mut w = World::new(2);
    protect(&mut w, 2, 3);
    assert!(w.query(method::GET, TO_B, attr::PORT_INFO, 1, &[0; 64]).is_none());
    w.pass(2 * SECOND);
    // a second violation does not start the lease anew
    assert!(w.query(method::GET, TO_B, attr::PORT_INFO, 1, &[0; 64]).is_none());
    w.pass(SECOND - 1);
    assert!(w.query(method::GET, TO_B, attr::PORT_INFO, 1, &[0; 64]).is_none());
    w.pass(1);
    let (_, data) = w.query(method::GET, TO_B, attr::PORT_INFO, 1, &[0; 64]).unwrap();
    assert_eq!((pi::M_KEY.get(&data), pi::M_KEY_PROTECT_BITS.get(&data)), (KEY, 0));
    assert_eq!(pi::M_KEY_VIOLATIONS.get(&data), 3);
}

#[test]
fn the_right_key_stops_the_lease_and_period_zero_never_ends() {
    let mut w = World::new(1);
    protect(&mut w, 2, 3);
    assert!(w.query(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]).is_none());
    w.m_key = KEY;
    w.get(TO_B, attr::NODE_INFO, 0);
    w.pass(100 * SECOND);
    w.m_key = 0;
    assert!(w.query(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]).is_none(), "still protected");
    let mut w = World::new(1);
    protect(&mut w, 2, 0);
    assert!(w.query(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]).is_none());
    assert!(w.shards[0].next_deadline().is_none());
    w.pass(1_000_000 * SECOND);
    assert!(w.query(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]).is_none());
}

#[test]
fn a_lease_that_was_stopped_runs_its_full_period_the_next_time() {
    let mut w = World::new(1);
    protect(&mut w, 2, 3);
    let bad = |w: &mut World| w.query(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]);
    assert!(bad(&mut w).is_none());
    w.pass(2 * SECOND);
    w.m_key = KEY;
    w.get(TO_B, attr::NODE_INFO, 0);
    w.m_key = 0;
    assert!(bad(&mut w).is_none());
    w.pass(3 * SECOND - 1);
    assert!(bad(&mut w).is_none());
    w.pass(1);
    assert!(bad(&mut w).is_some());
}

#[test]
fn a_switch_is_protected_by_the_key_of_port_0() {
    let mut w = World::new(1);
    let fields = [(pi::M_KEY, KEY), (pi::M_KEY_PROTECT_BITS, 2), (pi::LID, 8), (pi::MASTER_SM_LID, 9)];
    assert_eq!(w.set_port(TO_S1, 0, &fields).unwrap().0, 0);
    for (attribute, modifier) in [(attr::PORT_INFO, 3), (attr::LFT, 0), (attr::NODE_INFO, 0)] {
        assert!(w.query(method::GET, TO_S1, attribute, modifier, &[0; 64]).is_none());
    }
    w.get(TO_S2, attr::NODE_INFO, 0); // relaying asks for no key
}

#[test]
fn the_other_port_of_an_adapter_is_protected_by_its_own_key() {
    let mut w = World::new(1);
    let fields = [(pi::M_KEY, KEY), (pi::M_KEY_PROTECT_BITS, 2), (pi::LID, 8), (pi::MASTER_SM_LID, 9)];
    assert_eq!(w.set_port(TO_A2, 2, &fields).unwrap().0, 0);
    assert!(w.query(method::GET, TO_A, attr::PORT_INFO, 2, &[0; 64]).is_none());
    w.get(TO_A, attr::PORT_INFO, 1);
    w.get(TO_A, attr::NODE_INFO, 0);
    let data = w.owner(A).port_info(A, 2).unwrap();
    assert_eq!(pi::M_KEY_VIOLATIONS.get(&data), 1);
}
