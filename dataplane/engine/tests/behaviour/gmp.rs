//! GMPs: who may send and receive, keys, SL to VL, partitions.

use crate::world::*;
use madplane_engine::{Grh, Packet};
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{class, field as mad, method};
use madplane_wire::pma::attr as pma;
use madplane_wire::smp::attr;
use madplane_wire::smp::port_info::field as pi;

fn up(shards: usize) -> World {
    let mut w = World::new(shards);
    w.bring_up();
    w
}

fn keys(list: &[u16]) -> [u8; 64] {
    let mut data = [0; 64];
    for (key, bytes) in list.iter().zip(data.chunks_exact_mut(2)) {
        bytes.copy_from_slice(&key.to_be_bytes());
    }
    data
}

/// Sends an SA query from A to B where an agent listens; the packet as it arrived.
fn ask_b(w: &mut World, change: impl FnOnce(&mut Packet)) -> Option<Packet> {
    w.out.listening = vec![(B, 1)];
    let mut pkt = w.gmp(method::GET, class::SA, LID_B, 0x11);
    change(&mut pkt);
    let before = w.out.delivered.len();
    w.send(A, 1, pkt);
    // a trap of the receiver is not what is asked for
    let mut arrived = w.out.delivered[before..].iter().filter(|(node, port, _)| (*node, *port) == (B, 1));
    arrived.next().map(|(_, _, got)| got.clone())
}

#[test]
fn a_gmp_arrives_with_its_addresses_and_the_answer_goes_back() {
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        let got = ask_b(&mut w, |pkt| (pkt.path_bits, pkt.sl) = (1, 2)).unwrap();
        assert_eq!((got.slid, got.dlid, got.sl, got.path_bits), (LID_A + 1, LID_B, 2, 0));
        assert_eq!((got.src_qp, got.dst_qp, got.p_key, got.p_key_index), (1, 1, 0xFFFF, 0));
        let mut answer = got;
        mad::METHOD.set(&mut answer.mad, u64::from(method::GET_RESP));
        answer.dlid = answer.slid;
        w.send(B, 1, answer);
        let (node, port, back) = w.out.delivered.last().unwrap();
        assert_eq!((*node, *port, back.slid, back.dlid, back.path_bits), (A, 1, LID_B, LID_A + 1, 1));
        assert_eq!(w.drops(), []);
    }
}

#[test]
fn a_request_that_nobody_wants_is_answered_0x0c_and_a_trap_is_not() {
    let mut w = up(2);
    let pkt = w.gmp(method::GET, class::SA, LID_B, 0x11);
    let answer = w.exchange(pkt.clone()).unwrap();
    let mut expected = pkt.mad;
    expected[3..6].copy_from_slice(&[0x81, 0, 0x0C]);
    assert_eq!(answer.mad, expected, "no D bit outside class 0x81");
    assert_eq!((answer.slid, answer.dlid, answer.src_qp, answer.dst_qp), (LID_B, LID_A, 1, 1));
    assert_eq!((answer.q_key, answer.p_key), (0x8001_0000, 0xFFFF));
}

#[test]
fn data_needs_active_to_leave_and_armed_to_enter() {
    let mut w = up(2);
    // S2 port 2 back to Initialize takes B with it
    assert_eq!(w.set_port(TO_S2, 2, &[(pi::PORT_STATE, 1)]).unwrap().0, 0);
    assert!(ask_b(&mut w, |_| ()).is_none());
    assert_eq!(w.drops(), [(S2, DropReason::RoutePortDown)]);
    assert_eq!(w.counters(S2, 2).xmit_discards, 1);
    for state in [3, 4] {
        assert_eq!(w.set_port(TO_S2, 2, &[(pi::PORT_STATE, state)]).unwrap().0, 0);
    }
    assert!(ask_b(&mut w, |_| ()).is_none());
    assert_eq!(w.drops(), [(B, DropReason::ArrivalDown)]);
    assert_eq!(w.set_port(TO_B, 1, &[(pi::PORT_STATE, 3)]).unwrap().0, 0);
    assert!(ask_b(&mut w, |_| ()).is_some(), "Armed receives");
    let pkt = w.gmp(method::GET, class::SA, LID_A, 0x11);
    w.send(B, 1, pkt);
    assert_eq!(w.drops(), [(B, DropReason::RoutePortDown)], "Armed does not send");
}

#[test]
fn gmps_to_the_own_lid_stay_at_home() {
    let mut w = up(1);
    let before = (w.counters(A, 1), w.counters(S1, 0));
    for (node, port, lid) in [(A, 1, LID_A), (A, 1, LID_A + 3), (S1, 0, LID_S1)] {
        w.out.listening = vec![(node, port)];
        let pkt = w.gmp(method::GET, class::SA, lid, 0x11);
        let already = w.out.delivered.len();
        w.send(node, port, pkt);
        let (n, p, got) = &w.out.delivered[already];
        assert_eq!((*n, *p, got.dlid), (node, port, lid));
        assert_eq!(u16::from(got.path_bits), lid - if node == A { LID_A } else { lid });
        // and answers too
        w.out.listening.clear();
        let pkt = w.gmp(method::GET, class::PERF, lid, pma::CLASS_PORT_INFO);
        let answer = w.exchange_from(node, port, pkt).unwrap();
        assert_eq!(mad::STATUS.get(&answer.mad), 0);
    }
    assert_eq!((w.counters(A, 1), w.counters(S1, 0)), before, "nothing crossed a link");
    assert_eq!(w.drops(), []);
}

#[test]
fn the_other_port_of_an_adapter_is_reached_through_the_fabric() {
    let mut w = up(2);
    w.out.listening = vec![(A, 2)];
    let pkt = w.gmp(method::GET, class::SA, LID_A2, 0x11);
    let before = w.counters(A, 2).rcv_pkts;
    w.send(A, 1, pkt);
    assert_eq!(w.out.delivered.last().map(|(n, p, _)| (*n, *p)), Some((A, 2)));
    assert_eq!(w.counters(A, 2).rcv_pkts, before + 1);
}

#[test]
fn bad_destinations_are_dropped_by_their_reason() {
    let mut w = up(1);
    for (dlid, node, reason) in [
        (0, A, DropReason::DlidInvalid),
        (0xFFFF, A, DropReason::PermissiveLid),
        (0xC001, A, DropReason::Multicast),
        (0x30, S1, DropReason::AboveFdbTop),
        (0x1F, S1, DropReason::NoRoute),
    ] {
        assert!(ask_b(&mut w, |pkt| pkt.dlid = dlid).is_none());
        assert_eq!(w.drops(), [(node, reason)]);
    }
    assert_eq!(w.counters(S1, 1).switch_relay_errors, 2);
    for dst_qp in [0, 2] {
        assert!(ask_b(&mut w, |pkt| pkt.dst_qp = dst_qp).is_none());
        assert_eq!(w.drops(), [(A, DropReason::ClassQp)]);
    }
    assert!(ask_b(&mut w, |pkt| pkt.p_key_index = 64).is_none());
    assert_eq!(w.drops(), [(A, DropReason::SenderInvalid)]);
}

#[test]
fn p_keys_match_any_entry_and_two_limited_members_do_not() {
    let cases: [(&[u16], u16, &[u16], Option<u16>); 6] = [
        (&[0x7FFF], 0, &[0xFFFF], Some(0)),
        (&[0xFFFF], 0, &[0x7FFF], Some(0)),
        (&[0x7FFF], 0, &[0x7FFF], None),
        (&[0xFFFF, 0x8005], 1, &[0xFFFF, 1, 0x0005], Some(2)),
        (&[0xFFFF, 0x0005], 1, &[0xFFFF, 0x0005, 0x8005], Some(2)),
        (&[0x8000], 0, &[0x8000], None),
    ];
    for (sender, index, receiver, found) in cases {
        let mut w = up(2);
        w.set(TO_A, attr::PKEY_TABLE, 0, &keys(sender));
        w.set(TO_B, attr::PKEY_TABLE, 0, &keys(receiver));
        let got = ask_b(&mut w, |pkt| pkt.p_key_index = index);
        assert_eq!(got.as_ref().map(|pkt| pkt.p_key_index), found, "{sender:x?} {receiver:x?}");
        if let Some(got) = got {
            assert_eq!(got.p_key, sender[usize::from(index)]);
        } else {
            assert_eq!(w.drops(), [(B, DropReason::PKey)]);
            assert_eq!(pi::P_KEY_VIOLATIONS.get(&w.owner(B).port_info(B, 1).unwrap()), 1);
        }
    }
}

#[test]
fn an_answer_carries_the_entry_that_matched() {
    let mut w = up(1);
    w.set(TO_A, attr::PKEY_TABLE, 0, &keys(&[0xFFFF, 0x8005]));
    w.set(TO_B, attr::PKEY_TABLE, 0, &keys(&[0xFFFF, 0x0005]));
    let mut pkt = w.gmp(method::GET, class::PERF, LID_B, pma::CLASS_PORT_INFO);
    pkt.p_key_index = 1;
    let answer = w.exchange(pkt).unwrap();
    assert_eq!((answer.p_key, answer.p_key_index), (0x0005, 1));
}

#[test]
fn sl_to_vl_15_and_inoperable_vls_drop() {
    let mut w = up(2);
    // out of S1 port 3, in by port 1: SL 2 to VL 15, SL 3 to VL 8 (VL0-7 operate), SL 4 to VL 7
    let mut map = [0; 64];
    map[1..3].copy_from_slice(&[0xF8, 0x70]);
    w.set(TO_S1, attr::SL_TO_VL, 1 << 8 | 3, &map);
    for (sl, passes) in [(0, true), (2, false), (3, false), (4, true)] {
        assert_eq!(ask_b(&mut w, |pkt| pkt.sl = sl).is_some(), passes, "SL {sl}");
    }
    assert_eq!(w.drops(), [(S1, DropReason::SlToVl), (S1, DropReason::SlToVl)]);
    assert_eq!(w.counters(S1, 3).xmit_discards, 2);
    assert_eq!(w.set_port(TO_S1, 3, &[(pi::OPERATIONAL_VLS, 3)]).unwrap().0, 0);
    assert!(ask_b(&mut w, |pkt| pkt.sl = 4).is_none());
    // an adapter uses its own table; SMPs never do
    w.set(TO_A, attr::SL_TO_VL, 0, &[0xFF; 64]);
    w.drops();
    assert!(ask_b(&mut w, |_| ()).is_none());
    assert_eq!(w.drops(), [(A, DropReason::SlToVl)]);
    let pkt = w.by_lid(method::GET, LID_B, attr::NODE_DESC, 0, &[0; 64]);
    assert!(w.exchange(pkt).is_some());
}

#[test]
fn partition_enforcement_drops_at_either_side_of_a_switch_port() {
    for (field, port, count) in
        [(pi::PARTITION_ENFORCEMENT_INBOUND, 1, (1, 0)), (pi::PARTITION_ENFORCEMENT_OUTBOUND, 3, (0, 1))]
    {
        let mut w = up(2);
        assert_eq!(w.set_port(TO_S1, port, &[(field, 1)]).unwrap().0, 0);
        assert!(ask_b(&mut w, |_| ()).is_some(), "the default key passes");
        w.set(TO_S1, attr::PKEY_TABLE, port << 16, &keys(&[0x8005]));
        assert!(ask_b(&mut w, |_| ()).is_none());
        assert_eq!(w.drops(), [(S1, DropReason::PartitionEnforcement)]);
        let seen = w.counters(S1, u8::try_from(port).unwrap());
        assert_eq!((seen.rcv_constraint_errors, seen.xmit_constraint_errors), count);
        // a limited member of A's partition, as OpenSM tells the switch about it, may send to a full one
        w.set(TO_A, attr::PKEY_TABLE, 0, &keys(&[0x0005]));
        w.set(TO_B, attr::PKEY_TABLE, 0, &keys(&[0x8005]));
        w.set(TO_S1, attr::PKEY_TABLE, port << 16, &keys(&[0x0005]));
        assert!(ask_b(&mut w, |_| ()).is_some(), "the switch asks for the partition only");
        w.set(TO_B, attr::PKEY_TABLE, 0, &keys(&[0x0005]));
        assert!(ask_b(&mut w, |_| ()).is_none());
        assert_eq!(w.drops(), [(B, DropReason::PKey)], "two limited members are kept apart by the receiver");
        let pkt = w.directed(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]);
        assert!(w.exchange(pkt).is_some(), "SMPs have no P_Key");
    }
}

#[test]
fn a_q_key_other_than_that_of_qp1_is_counted_and_dropped() {
    let mut w = up(1);
    assert!(ask_b(&mut w, |pkt| pkt.q_key = 0).is_none());
    assert_eq!(w.drops(), [(B, DropReason::QKey)]);
    let data = w.owner(B).port_info(B, 1).unwrap();
    assert_eq!((pi::Q_KEY_VIOLATIONS.get(&data), pi::P_KEY_VIOLATIONS.get(&data)), (1, 0));
}

#[test]
fn a_global_route_header_arrives_with_the_gid_of_the_sender() {
    let mut w = up(2);
    w.set(TO_A, attr::GUID_INFO, 0, &[0x77; 64]);
    for (gid_index, guid) in [(0, 0xF001), (3, 0x7777_7777_7777_7777_u64), (200, 0)] {
        let sent = Grh { gid_index, hop_limit: 9, traffic_class: 8, flow_label: 7, gid: [0xB0; 16] };
        let got = ask_b(&mut w, |pkt| pkt.grh = Some(sent)).unwrap().grh.unwrap();
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xFE, 0x80]);
        gid[8..].copy_from_slice(&guid.to_be_bytes());
        assert_eq!(got, Grh { gid_index: 0, gid, ..sent });
    }
}

#[test]
fn a_switch_takes_gmps_at_port_0() {
    let mut w = up(2);
    w.out.listening = vec![(S2, 0)];
    let pkt = w.gmp(method::SET, 0x32, LID_S2, 0);
    w.send(A, 1, pkt);
    assert_eq!(w.out.delivered.last().map(|(n, p, _)| (*n, *p)), Some((S2, 0)));
}
