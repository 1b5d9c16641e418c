//! Link states: Sets, cables, reboots, and what the other end sees of them.

use crate::world::*;
use madplane_engine::FabricEvent;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::method;
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::smp::{attr, switch_info};

const DOWN_POLLING: (u8, u8) = (1, 2);
const DOWN_SLEEP: (u8, u8) = (1, 1);
const DOWN_DISABLED: (u8, u8) = (1, 3);
const INIT: (u8, u8) = (2, 5);
const ARMED: (u8, u8) = (3, 5);
const ACTIVE: (u8, u8) = (4, 5);

fn changed(w: &mut World, node: u32) -> bool {
    let pkt = w.directed(method::GET, &[], attr::SWITCH_INFO, 0, &[0; 64]);
    let answer = w.exchange_from(node, 0, pkt).unwrap();
    switch_info::field::PORT_STATE_CHANGE.get_bool(&answer.mad[64..128])
}

/// Reads and clears PortStateChange of both switches.
fn take_changes(w: &mut World) -> (bool, bool) {
    let mut seen = Vec::new();
    for node in [S1, S2] {
        seen.push(changed(w, node));
        let pkt = w.directed(method::GET, &[], attr::SWITCH_INFO, 0, &[0; 64]);
        let data: [u8; 64] = w.exchange_from(node, 0, pkt).unwrap().mad[64..128].try_into().unwrap();
        let mut data = data;
        switch_info::field::PORT_STATE_CHANGE.set(&mut data, 1);
        let pkt = w.directed(method::SET, &[], attr::SWITCH_INFO, 0, &data);
        w.exchange_from(node, 0, pkt).unwrap();
    }
    (seen[0], seen[1])
}

/// Sets state and physical state of port 3 of S2 from S2's own agent; its peer is port 3 of S1.
fn set_s2(w: &mut World, state: u64, phys: u64) -> u16 {
    let pkt = w.directed(method::GET, &[], attr::PORT_INFO, 3, &[0; 64]);
    let mut data: [u8; 64] = w.exchange_from(S2, 0, pkt).unwrap().mad[64..128].try_into().unwrap();
    pi::PORT_STATE.set(&mut data, state);
    pi::PORT_PHYS_STATE.set(&mut data, phys);
    let pkt = w.directed(method::SET, &[], attr::PORT_INFO, 3, &data);
    let answer = w.exchange_from(S2, 0, pkt).unwrap();
    madplane_wire::smp::field::STATUS.get_u16(&answer.mad)
}

fn both(w: &mut World) -> ((u8, u8), (u8, u8)) {
    (w.state(S2, 3), w.state(S1, 3))
}

#[test]
fn states_step_from_initialize_to_armed_to_active_only() {
    let mut w = World::new(2);
    assert_eq!(both(&mut w), (INIT, INIT));
    assert_eq!(set_s2(&mut w, 4, 0), 0x1C, "Initialize to Active");
    assert_eq!(both(&mut w), (INIT, INIT));
    assert_eq!(set_s2(&mut w, 3, 0), 0);
    assert_eq!(both(&mut w), (ARMED, INIT));
    assert_eq!(set_s2(&mut w, 3, 0), 0, "same state");
    assert_eq!(set_s2(&mut w, 4, 0), 0);
    assert_eq!(set_s2(&mut w, 4, 0), 0, "same state");
    assert_eq!(set_s2(&mut w, 3, 0), 0, "Active to Armed: accepted, nothing happens");
    assert_eq!(both(&mut w), (ACTIVE, INIT));
    for (state, phys) in [(2, 0), (5, 0), (15, 0), (3, 2), (4, 2), (0, 4), (1, 5), (0, 15)] {
        assert_eq!(set_s2(&mut w, state, phys), 0x1C, "{state} {phys}");
        assert_eq!(both(&mut w), (ACTIVE, INIT));
    }
    assert_eq!(set_s2(&mut w, 0, 0), 0);
    assert_eq!(take_changes(&mut w), (false, false));
}

#[test]
fn set_down_retrains_both_ends_and_both_note_the_training() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        take_changes(&mut w);
        assert_eq!(set_s2(&mut w, 1, 0), 0);
        assert_eq!(both(&mut w), (INIT, INIT));
        assert_eq!(take_changes(&mut w), (true, true));
        assert_eq!((w.counters(S2, 3).link_downed, w.counters(S1, 3).link_downed), (1, 1));
        assert_eq!(w.owner(S2).lid(S2, 0), Some(LID_S2), "LIDs survive");
    }
}

#[test]
fn a_disabled_port_stays_down_until_it_polls_again() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        take_changes(&mut w);
        assert_eq!(set_s2(&mut w, 1, 3), 0);
        assert_eq!(both(&mut w), (DOWN_DISABLED, DOWN_POLLING));
        assert_eq!(take_changes(&mut w), (true, false));
        // nothing passes, neither directed nor by LID
        let pkt = w.directed(method::GET, TO_S2, attr::NODE_INFO, 0, &[0; 64]);
        assert!(w.exchange(pkt).is_none());
        let pkt = w.by_lid(method::GET, LID_B, attr::NODE_INFO, 0, &[0; 64]);
        assert!(w.exchange(pkt).is_none());
        assert_eq!(w.drops(), [(S1, DropReason::PathPortDown), (S1, DropReason::RoutePortDown)]);
        assert_eq!(w.counters(S1, 3).xmit_discards, 2);
        // Down alone does not enable it; a peer that polls does not either
        assert_eq!(set_s2(&mut w, 1, 0), 0);
        assert_eq!(w.set_port(TO_S1, 3, &[(pi::PORT_STATE, 1), (pi::PORT_PHYS_STATE, 2)]).unwrap().0, 0);
        assert_eq!(both(&mut w), (DOWN_DISABLED, DOWN_POLLING));
        for state in [3, 4] {
            assert_eq!(set_s2(&mut w, state, 0), 0x1C, "Down to {state}");
        }
        take_changes(&mut w);
        assert_eq!(set_s2(&mut w, 0, 2), 0);
        assert_eq!(both(&mut w), (INIT, INIT));
        assert_eq!(take_changes(&mut w), (true, true));
    }
}

#[test]
fn a_sleeping_port_is_woken_by_its_peer() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        assert_eq!(set_s2(&mut w, 1, 1), 0);
        assert_eq!(both(&mut w), (DOWN_SLEEP, DOWN_POLLING));
        take_changes(&mut w);
        assert_eq!(w.set_port(TO_S1, 3, &[(pi::PORT_STATE, 1)]).unwrap().0, 0);
        assert_eq!(both(&mut w), (INIT, INIT));
        assert_eq!(take_changes(&mut w), (true, true));
    }
}

#[test]
fn link_down_default_sleep_keeps_a_port_down_after_a_set() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        assert_eq!(w.set_port(TO_S2, 3, &[(pi::LINK_DOWN_DEFAULT_STATE, 1)]).unwrap().0, 0);
        assert_eq!(set_s2(&mut w, 1, 0), 0);
        assert_eq!(both(&mut w), (DOWN_SLEEP, DOWN_POLLING));
    }
}

#[test]
fn both_ends_note_a_pulled_cable_and_its_return() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        take_changes(&mut w);
        w.out.events.clear();
        w.with_owner(S1, |s, now, out| s.set_link(now, S1, 3, false, out));
        assert_eq!(both(&mut w), (DOWN_POLLING, DOWN_POLLING));
        assert_eq!(take_changes(&mut w), (true, true));
        for (node, port) in [(S1, 3), (S2, 3)] {
            assert!(w.out.events.contains(&FabricEvent::PortChanged { node, port }));
        }
        // a Set cannot bring it up, and pulling it twice changes nothing
        assert_eq!(set_s2(&mut w, 1, 2), 0);
        w.with_owner(S2, |s, now, out| s.set_link(now, S2, 3, false, out));
        assert_eq!(both(&mut w), (DOWN_POLLING, DOWN_POLLING));
        assert_eq!(take_changes(&mut w), (false, false));
        // it is one cable: the other end can plug it in
        w.with_owner(S2, |s, now, out| s.set_link(now, S2, 3, true, out));
        assert_eq!(both(&mut w), (INIT, INIT));
        assert_eq!(take_changes(&mut w), (true, true));
        assert_eq!((w.counters(S2, 3).link_downed, w.counters(S1, 3).link_downed), (1, 1));
    }
}

#[test]
fn a_new_cable_wakes_one_sleeper_and_not_two() {
    for (shards, end) in [(1, S1), (1, S2), (6, S1), (6, S2)] {
        let mut w = World::new(shards);
        assert_eq!(w.set_port(TO_S1, 3, &[(pi::LINK_DOWN_DEFAULT_STATE, 1)]).unwrap().0, 0);
        w.with_owner(end, |s, now, out| s.set_link(now, end, 3, false, out));
        assert_eq!(both(&mut w), (DOWN_POLLING, DOWN_SLEEP));
        w.with_owner(end, |s, now, out| s.set_link(now, end, 3, true, out));
        assert_eq!(both(&mut w), (INIT, INIT));
        assert_eq!(w.set_port(TO_S2, 3, &[(pi::LINK_DOWN_DEFAULT_STATE, 1)]).unwrap().0, 0);
        for up in [false, true] {
            w.with_owner(end, |s, now, out| s.set_link(now, end, 3, up, out));
            assert_eq!(both(&mut w), (DOWN_SLEEP, DOWN_SLEEP));
        }
        assert_eq!(set_s2(&mut w, 1, 2), 0);
        assert_eq!(both(&mut w), (INIT, INIT));
    }
}

#[test]
fn a_disabled_port_ignores_a_new_cable() {
    let mut w = World::new(2);
    assert_eq!(set_s2(&mut w, 1, 3), 0);
    for up in [false, true] {
        w.with_owner(S1, |s, now, out| s.set_link(now, S1, 3, up, out));
        assert_eq!(both(&mut w), (DOWN_DISABLED, DOWN_POLLING));
    }
}

#[test]
fn a_port_without_cable_has_nothing_to_plug() {
    let mut w = World::new(1);
    for up in [true, false, true] {
        w.with_owner(D, |s, now, out| s.set_link(now, D, 1, up, out));
        w.with_owner(S1, |s, now, out| s.set_link(now, S1, 0, up, out));
    }
    assert_eq!((w.state(D, 1), w.state(S1, 0)), (DOWN_POLLING, ACTIVE));
}

#[test]
fn a_reboot_forgets_everything_and_bounces_the_links() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        let fresh_port = w.get(TO_S2, attr::PORT_INFO, 0);
        let fresh_ext = w.get(TO_S2, attr::PORT_INFO, 2);
        let fresh_info = w.get(TO_S2, attr::SWITCH_INFO, 0);
        w.bring_up();
        w.set(TO_S2, attr::PKEY_TABLE, 0, &[0x12; 64]);
        take_changes(&mut w);
        w.with_owner(S2, |s, now, out| s.reboot_node(now, S2, out));
        assert_eq!(both(&mut w), (INIT, INIT));
        assert_eq!((w.state(B, 1), w.state(A, 2), w.state(A, 1)), (INIT, INIT, ACTIVE));
        assert!(changed(&mut w, S1), "the peer noticed");
        assert_eq!(w.counters(S2, 3), Default::default(), "counters start again");
        let counted = w.counters(S1, 3);
        assert_eq!(counted.link_downed, 1);
        let mut expected = fresh_info;
        switch_info::field::PORT_STATE_CHANGE.set(&mut expected, 1);
        assert_eq!(w.get(TO_S2, attr::SWITCH_INFO, 0), expected);
        assert_eq!(w.get(TO_S2, attr::PORT_INFO, 0), fresh_port);
        assert_eq!(w.get(TO_S2, attr::PORT_INFO, 2), fresh_ext);
        assert_eq!(w.get(TO_S2, attr::LFT, 0), [255; 64]);
        assert_eq!(w.get(TO_S2, attr::PKEY_TABLE, 0)[..4], [0xFF, 0xFF, 0, 0]);
        assert_eq!(w.owner(B).lid(B, 1), Some(LID_B), "other nodes keep their LIDs");
    }
}

#[test]
fn a_new_width_and_speed_take_effect_with_the_next_training() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        let active = |d: &[u8; 64]| {
            (pi::LINK_WIDTH_ACTIVE.get(d), pi::LINK_SPEED_ACTIVE.get(d), pi::LINK_SPEED_EXT_ACTIVE.get(d))
        };
        // B is QDR 4X: let it do DDR 1X
        let fields = [(pi::LINK_WIDTH_ENABLED, 1), (pi::LINK_SPEED_ENABLED, 2)];
        let (_, data) = w.set_port(TO_B, 1, &fields).unwrap();
        assert_eq!(active(&data), (2, 4, 0));
        assert_eq!(w.set_port(TO_S2, 2, &[(pi::PORT_STATE, 1)]).unwrap().0, 0);
        assert_eq!(active(&w.get(TO_S2, attr::PORT_INFO, 2)), (1, 2, 0));
        assert_eq!(active(&w.get(TO_B, attr::PORT_INFO, 1)), (1, 2, 0));
        // nothing in common: no link
        assert_eq!(w.set_port(TO_S2, 2, &[(pi::LINK_SPEED_ENABLED, 4), (pi::PORT_STATE, 1)]).unwrap().0, 0);
        assert_eq!((w.state(S2, 2), w.state(B, 1)), (DOWN_POLLING, DOWN_POLLING));
        assert_eq!(w.set_port(TO_S2, 2, &[(pi::LINK_SPEED_ENABLED, 15)]).unwrap().0, 0);
        assert_eq!((w.state(S2, 2), w.state(B, 1)), (INIT, INIT));
    }
}

#[test]
fn a_plug_into_the_own_port_goes_down_and_comes_back() {
    let mut w = World::new(1);
    assert_eq!(w.state(S1, 8), INIT);
    assert_eq!(w.set_port(TO_S1, 8, &[(pi::PORT_STATE, 1)]).unwrap().0, 0);
    assert_eq!(w.state(S1, 8), INIT);
    assert_eq!(w.set_port(TO_S1, 8, &[(pi::PORT_STATE, 1), (pi::PORT_PHYS_STATE, 3)]).unwrap().0, 0);
    assert_eq!(w.state(S1, 8), DOWN_DISABLED);
    assert_eq!(w.set_port(TO_S1, 8, &[(pi::PORT_PHYS_STATE, 2)]).unwrap().0, 0);
    assert_eq!(w.state(S1, 8), INIT);
    for (up, state) in [(false, DOWN_POLLING), (true, INIT)] {
        w.with_owner(S1, |s, now, out| s.set_link(now, S1, 8, up, out));
        assert_eq!(w.state(S1, 8), state);
    }
    w.with_owner(S1, |s, now, out| s.reboot_node(now, S1, out));
    assert_eq!(w.state(S1, 8), INIT);
}

#[test]
fn a_set_that_cuts_its_own_way_back_is_not_answered() {
    let mut w = World::new(2);
    assert!(w.set_port(TO_B, 1, &[(pi::LID, 9), (pi::MASTER_SM_LID, 9), (pi::PORT_PHYS_STATE, 3)]).is_none());
    assert_eq!(w.state(B, 1), DOWN_DISABLED);
    assert_eq!(w.drops(), [(B, DropReason::PathPortDown)]);
}
