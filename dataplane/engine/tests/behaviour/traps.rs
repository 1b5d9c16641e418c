//! Traps: what is sent, how often, and what stops it.

use crate::world::*;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{class, field as mad, method};
use madplane_wire::pma::attr as pma_attr;
use madplane_wire::smp::notice::{
    bad_key, bad_m_key, bad_p_key_switch, field as head, link_state, local_change,
};
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::smp::{attr, field as smp};

const SECOND: u64 = 1_000_000_000;

fn up(shards: usize) -> World {
    let mut w = World::new(shards);
    w.bring_up();
    assert_eq!(w.take_traps().len(), 0);
    w
}

fn numbers(w: &mut World) -> Vec<u16> {
    w.take_traps().into_iter().map(|(number, _)| number).collect()
}

#[test]
fn a_pulled_cable_makes_both_switches_send_trap_128() {
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, false, out));
        let traps = w.take_traps();
        assert_eq!(traps.len(), 1, "B is no switch");
        let (number, pkt) = &traps[0];
        let notice = &pkt.mad[64..128];
        assert_eq!((*number, pkt.slid, pkt.dlid), (128, LID_S2, LID_A));
        assert_eq!(pkt.mad[..4], [1, class::SUBN_LID, 1, method::TRAP]);
        assert_ne!(mad::TID.get(&pkt.mad), 0);
        assert_eq!(mad::ATTR_ID.get(&pkt.mad), u64::from(attr::NOTICE));
        assert_eq!((mad::ATTR_MOD.get(&pkt.mad), smp::M_KEY.get(&pkt.mad)), (0, 0));
        assert_eq!(
            (head::IS_GENERIC.get(notice), head::KIND.get(notice), head::PRODUCER.get(notice)),
            (1, 1, 2)
        );
        assert_eq!(head::ISSUER_LID.get(notice), u64::from(LID_S2));
        assert_eq!(link_state::field::LID.get(notice), u64::from(LID_S2));
        assert!(notice[12..].iter().all(|b| *b == 0));
        w.with_owner(S1, |s, now, out| s.set_link(now, S1, 8, false, out));
        assert_eq!(numbers(&mut w), [128], "S1 for its own plug");
    }
}

#[test]
fn a_trap_is_repeated_with_the_subnet_timeout_and_given_up() {
    let mut w = up(2);
    let spacing = 4096 << 18;
    w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, false, out));
    let first = w.take_traps().remove(0).1;
    w.pass(spacing - 1);
    assert_eq!(numbers(&mut w), []);
    w.pass(1);
    let again = w.take_traps();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1.mad, first.mad, "the same trap with the same transaction id");
    w.pass(1000 * spacing);
    assert_eq!(numbers(&mut w).len(), 6, "eight in all");
    assert_eq!(w.shards.iter().filter_map(madplane_engine::Shard::next_deadline).min(), None);
}

#[test]
fn a_short_subnet_timeout_is_held_to_ten_milliseconds() {
    let mut w = up(1);
    assert_eq!(w.set_port(TO_S2, 0, &[(pi::SUBNET_TIMEOUT, 0)]).unwrap().0, 0);
    w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, false, out));
    assert_eq!(numbers(&mut w).len(), 1);
    w.pass(9_999_999);
    assert_eq!(numbers(&mut w).len(), 0);
    w.pass(1);
    assert_eq!(numbers(&mut w).len(), 1);
}

#[test]
fn a_repress_stops_the_trap_and_is_never_answered() {
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, false, out));
        let trap = w.take_traps().remove(0).1;
        w.repress(&trap);
        assert_eq!((w.out.delivered.len(), w.drops()), (0, vec![]));
        w.pass(1000 * SECOND);
        assert_eq!(numbers(&mut w), []);
        w.repress(&trap);
        assert_eq!(w.drops(), [(S2, DropReason::TrapRepressUnmatched)]);
        assert_eq!(w.out.delivered.len(), 0);
    }
}

#[test]
fn a_repress_with_another_transaction_or_a_wrong_key_stops_nothing() {
    let mut w = up(1);
    let key = 77;
    assert_eq!(w.set_port(TO_S2, 0, &[(pi::M_KEY, key)]).unwrap().0, 0);
    w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, false, out));
    let trap = w.take_traps().remove(0).1;
    w.m_key = key;
    let mut other = trap.clone();
    mad::TID.set(&mut other.mad, mad::TID.get(&trap.mad) + 1);
    w.repress(&other);
    w.m_key = 0;
    w.repress(&trap);
    assert_eq!(w.drops(), [(S2, DropReason::TrapRepressUnmatched), (S2, DropReason::MKey)]);
    w.pass(2 * SECOND);
    assert!(numbers(&mut w).contains(&128));
}

#[test]
fn changes_while_a_trap_waits_are_reported_after_its_repress() {
    let mut w = up(1);
    w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, false, out));
    let trap = w.take_traps().remove(0).1;
    w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, true, out));
    assert_eq!(numbers(&mut w), [], "the first is still waiting");
    w.repress(&trap);
    let traps = w.take_traps();
    assert_eq!(traps.len(), 1);
    assert_ne!(mad::TID.get(&traps[0].1.mad), mad::TID.get(&trap.mad));
    w.repress(&traps[0].1);
    assert_eq!(numbers(&mut w), []);
}

#[test]
fn no_trap_without_lid_or_sm_lid_or_active_link() {
    let mut w = World::new(1);
    w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, false, out));
    w.with_owner(B, |s, now, out| s.set_is_sm(now, B, 1, true, out));
    assert_eq!(w.set_port(TO_S2, 0, &[(pi::LID, 9), (pi::MASTER_SM_LID, 9)]).unwrap().0, 0);
    w.with_owner(C, |s, now, out| s.set_is_sm(now, C, 1, true, out));
    assert_eq!(w.set_port(TO_C, 1, &[(pi::LID, 10), (pi::MASTER_SM_LID, 9)]).unwrap().0, 0);
    w.with_owner(C, |s, now, out| s.set_is_sm(now, C, 1, false, out));
    assert_eq!(numbers(&mut w), []);
    assert!(w.shards[0].next_deadline().is_none());
    assert_eq!(w.drops(), []);
}

#[test]
fn becoming_sm_sends_trap_144_even_to_the_own_port() {
    for shards in [1, 6] {
        let mut w = up(shards);
        for (node, lid) in [(B, LID_B), (A, LID_A)] {
            w.with_owner(node, |s, now, out| s.set_is_sm(now, node, 1, true, out));
            w.with_owner(node, |s, now, out| s.set_is_sm(now, node, 1, true, out));
            let traps = w.take_traps();
            assert_eq!(traps.len(), 1, "only a change is reported");
            let (number, pkt) = &traps[0];
            let notice = &pkt.mad[64..128];
            assert_eq!((*number, pkt.slid), (144, lid));
            assert_eq!((head::KIND.get(notice), head::PRODUCER.get(notice)), (4, 1));
            assert_eq!(local_change::field::LID.get(notice), u64::from(lid));
            assert_eq!(local_change::field::CAP_MASK.get(notice) & 2, 2);
            assert_eq!(local_change::field::OTHER_LOCAL_CHANGES.get(notice), 0);
            w.repress(pkt);
        }
    }
}

#[test]
fn width_and_speed_changes_set_the_flags_of_trap_144() {
    let mut w = up(1);
    let flags = |pkt: &madplane_engine::Packet| {
        let notice = &pkt.mad[64..128];
        (local_change::field::OTHER_LOCAL_CHANGES.get(notice), local_change::field::CHANGES.get(notice))
    };
    assert_eq!(w.set_port(TO_B, 1, &[(pi::LINK_WIDTH_ENABLED, 1)]).unwrap().0, 0);
    let traps = w.take_traps();
    assert_eq!((traps.len(), traps[0].0, flags(&traps[0].1)), (1, 144, (1, 2)));
    assert_eq!(w.set_port(TO_B, 1, &[(pi::LINK_SPEED_ENABLED, 1)]).unwrap().0, 0);
    let traps = w.take_traps();
    assert_eq!((traps.len(), flags(&traps[0].1)), (1, (1, 4)));
    assert_eq!(w.set_port(TO_B, 1, &[]).unwrap().0, 0);
    assert_eq!(numbers(&mut w), [], "nothing changed");
}

#[test]
fn a_wrong_m_key_is_reported_with_its_return_path() {
    let mut w = up(2);
    assert_eq!(w.set_port(TO_B, 1, &[(pi::M_KEY, 99), (pi::M_KEY_PROTECT_BITS, 2)]).unwrap().0, 0);
    w.m_key = 0xBAD;
    let pkt = w.directed(method::SET, TO_B, attr::PORT_INFO, 0x8000_0001, &[0; 64]);
    assert!(w.exchange(pkt).is_none());
    let traps = w.take_traps();
    assert_eq!((traps.len(), traps[0].0), (1, 256));
    let notice = &traps[0].1.mad[64..128];
    use bad_m_key::field as f;
    assert_eq!((f::LID.get(notice), f::DR_SLID.get(notice)), (0xFFFF, 0xFFFF));
    assert_eq!((f::METHOD.get(notice), f::ATTR_ID.get(notice)), (2, 0x15));
    assert_eq!((f::ATTR_MOD.get(notice), f::M_KEY.get(notice)), (0x8000_0001, 0xBAD));
    assert_eq!(
        (f::DR_NOTICE.get(notice), f::PATH_TRUNCATED.get(notice), f::HOP_COUNT.get(notice)),
        (1, 0, 3)
    );
    assert_eq!(notice[34..38], [1, 3, 1, 0]);
    // by LID: no path
    let pkt = w.by_lid(method::GET, LID_B, attr::NODE_INFO, 0, &[0; 64]);
    assert!(w.exchange(pkt).is_none());
    let traps = w.take_traps();
    let notice = &traps[0].1.mad[64..128];
    assert_eq!((f::LID.get(notice), f::DR_SLID.get(notice)), (u64::from(LID_A), 0));
    assert!(notice[33..].iter().all(|b| *b == 0));
    // the same again while it waits adds nothing, and sixteen different ones are the limit
    let pkt = w.by_lid(method::GET, LID_B, attr::NODE_INFO, 0, &[0; 64]);
    assert!(w.exchange(pkt).is_none());
    assert_eq!(numbers(&mut w), []);
    w.drops();
    for modifier in 100..200 {
        let pkt = w.by_lid(method::GET, LID_B, attr::NODE_INFO, modifier, &[0; 64]);
        assert!(w.exchange(pkt).is_none());
    }
    assert_eq!(numbers(&mut w).len(), 14);
    let full = w.drops().iter().filter(|d| **d == (B, DropReason::TrapQueueFull)).count();
    assert_eq!(full, 86);
}

#[test]
fn a_bad_p_key_and_q_key_are_reported_by_the_receiver() {
    let mut w = up(2);
    let mut keys = [0; 64];
    keys[..2].copy_from_slice(&0x8005_u16.to_be_bytes());
    w.set(TO_B, attr::PKEY_TABLE, 0, &keys);
    let mut pkt = w.gmp(method::GET, class::PERF, LID_B, pma_attr::CLASS_PORT_INFO);
    pkt.sl = 3;
    assert!(w.exchange(pkt.clone()).is_none());
    let traps = w.take_traps();
    assert_eq!((traps.len(), traps[0].0), (1, 257));
    let notice = &traps[0].1.mad[64..128];
    use bad_key::field as f;
    let lids = (f::LID1.get(notice), f::LID2.get(notice));
    assert_eq!(lids, (u64::from(LID_A), u64::from(LID_B)));
    assert_eq!((f::KEY.get(notice), f::SL.get(notice)), (0xFFFF, 3));
    assert_eq!((f::QP1.get(notice), f::QP2.get(notice)), (1, 1));
    w.set(TO_A, attr::PKEY_TABLE, 0, &keys);
    pkt.q_key = 0x1234;
    assert!(w.exchange(pkt).is_none());
    let traps = w.take_traps();
    assert_eq!((traps.len(), traps[0].0), (1, 258));
    assert_eq!(f::KEY.get(&traps[0].1.mad[64..128]), 0x1234);
    let data = w.owner(B).port_info(B, 1).unwrap();
    assert_eq!((pi::P_KEY_VIOLATIONS.get(&data), pi::Q_KEY_VIOLATIONS.get(&data)), (1, 1));
    assert_eq!(w.drops(), [(B, DropReason::PKey), (B, DropReason::QKey)]);
}

#[test]
fn partition_enforcement_is_reported_by_the_switch() {
    let mut w = up(2);
    let fields = [(pi::PARTITION_ENFORCEMENT_INBOUND, 1)];
    assert_eq!(w.set_port(TO_S1, 1, &fields).unwrap().0, 0);
    let mut keys = [0; 64];
    keys[..2].copy_from_slice(&0x8005_u16.to_be_bytes());
    w.set(TO_S1, attr::PKEY_TABLE, 1 << 16, &keys);
    let pkt = w.gmp(method::GET, class::PERF, LID_B, pma_attr::CLASS_PORT_INFO);
    assert!(w.exchange(pkt).is_none());
    let traps = w.take_traps();
    assert_eq!((traps.len(), traps[0].0, traps[0].1.slid), (1, 259, LID_S1));
    let notice = &traps[0].1.mad[64..128];
    use bad_p_key_switch::field as f;
    assert_eq!((f::LID1.get(notice), f::LID2.get(notice)), (u64::from(LID_A), u64::from(LID_B)));
    assert_eq!((f::P_KEY.get(notice), f::SWITCH_LID.get(notice)), (0xFFFF, u64::from(LID_S1)));
    assert_eq!(f::PORT.get(notice), 1);
    assert_eq!(w.drops(), [(S1, DropReason::PartitionEnforcement)]);
}

#[test]
fn a_reboot_forgets_waiting_traps() {
    let mut w = up(1);
    w.with_owner(S2, |s, now, out| s.set_link(now, S2, 2, false, out));
    assert_eq!(numbers(&mut w), [128]);
    w.with_owner(S2, |s, now, out| s.reboot_node(now, S2, out));
    w.drops();
    for (_, trap) in w.take_traps() {
        assert_eq!(trap.slid, LID_S1, "only the peer can report");
    }
    w.pass(100 * SECOND);
    for (_, trap) in w.take_traps() {
        assert_eq!(trap.slid, LID_S1);
    }
}
