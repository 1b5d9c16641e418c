//! Performance counters and the attributes that show them.

use crate::world::*;
use madplane_wire::Field;
use madplane_wire::mad::{class, field as mad, method};
use madplane_wire::pma::{attr, class_port_info, details, port_counters, port_counters_ext};
use madplane_wire::smp::attr as smp_attr;
use port_counters::field as pc;
use port_counters_ext::field as ext;

/// One request to the PMA at `lid`; select bits as in the table of the attribute.
fn pma(
    w: &mut World,
    method: u8,
    lid: u16,
    attribute: u16,
    port: u8,
    fields: &[(Field, u64)],
) -> (u64, [u8; 192]) {
    let mut pkt = w.gmp(method, class::PERF, lid, attribute);
    pkt.mad[64..].fill(0xA5);
    pkt.mad[64..76].fill(0);
    pkt.mad[64 + 18] = 0;
    pkt.mad[65] = port;
    for (field, value) in fields {
        field.set(&mut pkt.mad[64..], *value);
    }
    let answer = w.exchange(pkt).expect("an answer");
    (mad::STATUS.get(&answer.mad), answer.mad[64..].try_into().unwrap())
}

fn up(shards: usize) -> World {
    let mut w = World::new(shards);
    w.bring_up();
    w
}

fn counters(w: &mut World, lid: u16, port: u8) -> port_counters::Repr {
    let (status, data) = pma(w, method::GET, lid, attr::PORT_COUNTERS, port, &[]);
    assert_eq!(status, 0);
    port_counters::Repr::parse(&data)
}

#[test]
fn class_port_info_says_what_is_there() {
    let mut w = up(2);
    for (lid, mask) in [(LID_S1, 0x1300), (LID_B, 0x1200)] {
        let (status, data) = pma(&mut w, method::GET, lid, attr::CLASS_PORT_INFO, 0, &[]);
        let info = class_port_info::Repr::parse(&data);
        assert_eq!((status, info.base_version, info.class_version, info.cap_mask), (0, 1, 1, mask));
        assert_eq!(info.cap_mask2, 2);
        assert!(data[8..].iter().all(|b| *b == 0));
    }
}

#[test]
fn statuses_of_bad_requests() {
    let mut w = up(1);
    let cases = [
        (LID_B, attr::PORT_COUNTERS, 2, 0x1C),
        (LID_B, attr::PORT_COUNTERS, 0, 0x1C),
        (LID_B, attr::PORT_COUNTERS, 255, 0x1C),
        (LID_A, attr::PORT_COUNTERS, 2, 0),
        (LID_S1, attr::PORT_COUNTERS, 9, 0x1C),
        (LID_S1, attr::PORT_COUNTERS, 0, 0x1C),
        (LID_S2, attr::PORT_COUNTERS, 0, 0),
        (LID_S1, attr::PORT_COUNTERS, 255, 0),
        (LID_S1, attr::PORT_COUNTERS_EXT, 9, 0x1C),
        (LID_S1, attr::PORT_SAMPLES_CONTROL, 1, 0x0C),
        (LID_S1, attr::PORT_EXT_SPEEDS_COUNTERS, 1, 0x0C),
        (LID_S1, 0x7777, 1, 0x0C),
    ];
    for (lid, attribute, port, status) in cases {
        assert_eq!(
            pma(&mut w, method::GET, lid, attribute, port, &[]).0,
            status,
            "{attribute:#x} port {port}"
        );
    }
    assert_eq!(pma(&mut w, method::SET, LID_S1, attr::CLASS_PORT_INFO, 1, &[]).0, 0x0C);
    let mut pkt = w.gmp(method::GET, class::PERF, LID_S1, attr::PORT_COUNTERS);
    mad::CLASS_VERSION.set(&mut pkt.mad, 2);
    assert_eq!(mad::STATUS.get(&w.exchange(pkt).unwrap().mad), 0x04);
}

#[test]
fn a_mad_counts_once_at_each_end_of_each_link() {
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        let ports = [(A, 1), (S1, 1), (S1, 3), (S2, 3), (S2, 2), (B, 1), (S1, 2), (S1, 0), (S2, 0), (A, 2)];
        let before: Vec<_> = ports.map(|(n, p)| w.counters(n, p)).to_vec();
        for _ in 0..5 {
            w.get(TO_B, smp_attr::NODE_INFO, 0);
        }
        for (index, (node, port)) in ports.into_iter().enumerate() {
            let mut expected = before[index];
            if index < 6 {
                expected.xmit_pkts += 5;
                expected.rcv_pkts += 5;
            }
            assert_eq!(w.counters(node, port), expected, "node {node} port {port}");
        }
    }
}

#[test]
fn the_shown_counters_are_packets_and_72_words_each() {
    let mut w = up(2);
    // the request itself has arrived when it is answered
    let first = counters(&mut w, LID_B, 1);
    let second = counters(&mut w, LID_B, 1);
    assert_eq!(second.rcv_pkts, first.rcv_pkts + 1);
    assert_eq!(second.xmit_pkts, first.xmit_pkts + 1);
    assert_eq!((second.rcv_data, second.xmit_data), (second.rcv_pkts * 72, second.xmit_pkts * 72));
    let (_, data) = pma(&mut w, method::GET, LID_B, attr::PORT_COUNTERS_EXT, 1, &[]);
    let wide = port_counters_ext::Repr::parse(&data);
    assert_eq!(wide.rcv_pkts, u64::from(second.rcv_pkts) + 1);
    assert_eq!(wide.rcv_data, wide.rcv_pkts * 72);
    assert_eq!((wide.unicast_rcv_pkts, wide.unicast_xmit_pkts), (wide.rcv_pkts, wide.xmit_pkts));
    assert_eq!((wide.multicast_rcv_pkts, wide.multicast_xmit_pkts), (0, 0));
}

#[test]
fn clearing_follows_the_select_bits_and_leaves_other_attributes_alone() {
    let mut w = up(1);
    let before = counters(&mut w, LID_B, 1);
    let (_, data) = pma(&mut w, method::SET, LID_B, attr::PORT_COUNTERS, 1, &[(pc::COUNTER_SELECT, 0x8000)]);
    let after = port_counters::Repr::parse(&data);
    assert_eq!(after.rcv_pkts, 0, "the answer shows the cleared value");
    assert_eq!(after.rcv_data, (before.rcv_pkts + 1) * 72);
    assert_eq!(after.xmit_pkts, before.xmit_pkts + 1);
    assert_eq!(counters(&mut w, LID_B, 1).rcv_pkts, 1);
    let (_, data) = pma(&mut w, method::GET, LID_B, attr::PORT_COUNTERS_EXT, 1, &[]);
    let wide = port_counters_ext::Repr::parse(&data);
    assert_eq!(wide.rcv_pkts, u64::from(before.rcv_pkts) + 3);
    let select = [(ext::COUNTER_SELECT, 0x21)];
    let (_, data) = pma(&mut w, method::SET, LID_B, attr::PORT_COUNTERS_EXT, 1, &select);
    let cleared = port_counters_ext::Repr::parse(&data);
    assert_eq!((cleared.xmit_data, cleared.unicast_rcv_pkts), (0, 0));
    assert_eq!(cleared.rcv_pkts, wide.rcv_pkts + 1);
    assert_eq!(cleared.xmit_pkts, wide.xmit_pkts + 1);
    assert_eq!(counters(&mut w, LID_B, 1).rcv_pkts, 4);
}

#[test]
fn relay_errors_and_discards_show_with_their_details() {
    let mut w = up(2);
    let mut bad = |dlid: u16| {
        let pkt = w.by_lid(method::GET, dlid, smp_attr::NODE_INFO, 0, &[0; 64]);
        w.send(A, 1, pkt);
    };
    bad(0x30); // above the top
    bad(0x1F); // no route
    let mut block = w.get(TO_S1, smp_attr::LFT, 0);
    block[0x1E] = 1;
    block[0x1D] = 9;
    block[0x1C] = 5;
    w.set(TO_S1, smp_attr::LFT, 0, &block);
    for dlid in [0x1E, 0x1D, 0x1C] {
        let pkt = w.by_lid(method::GET, dlid, smp_attr::NODE_INFO, 0, &[0; 64]);
        w.send(A, 1, pkt);
    }
    let seen = counters(&mut w, LID_S1, 1);
    assert_eq!((seen.rcv_switch_relay_errors, seen.xmit_discards), (4, 0));
    let seen = counters(&mut w, LID_S1, 5);
    assert_eq!((seen.rcv_switch_relay_errors, seen.xmit_discards), (0, 1));
    let (_, data) = pma(&mut w, method::GET, LID_S1, attr::PORT_RCV_ERROR_DETAILS, 1, &[]);
    let detail = details::rcv_errors::Repr::parse(&data);
    assert_eq!((detail.dlid_mapping_errors, detail.looping_errors, detail.vl_mapping_errors), (3, 1, 0));
    let (_, data) = pma(&mut w, method::GET, LID_S1, attr::PORT_XMIT_DISCARD_DETAILS, 5, &[]);
    assert_eq!(details::xmit_discards::Repr::parse(&data).inactive, 1);
    let (_, data) = pma(&mut w, method::GET, LID_S1, attr::PORT_COUNTERS_EXT, 1, &[]);
    assert_eq!(port_counters_ext::Repr::parse(&data).rcv_switch_relay_errors, 4);
    // clearing the sum leaves the details and the other way round
    pma(&mut w, method::SET, LID_S1, attr::PORT_COUNTERS, 1, &[(pc::COUNTER_SELECT, 0xFFFF)]);
    let (_, data) =
        pma(&mut w, method::SET, LID_S1, attr::PORT_RCV_ERROR_DETAILS, 1, &[(pc::COUNTER_SELECT, 8)]);
    let detail = details::rcv_errors::Repr::parse(&data);
    assert_eq!((detail.dlid_mapping_errors, detail.looping_errors), (0, 1));
    assert_eq!(counters(&mut w, LID_S1, 1).rcv_switch_relay_errors, 0);
    // all ports together
    let all = counters(&mut w, LID_S1, 255);
    assert_eq!((all.rcv_switch_relay_errors, all.xmit_discards), (0, 1));
    let mine: u64 = (1..=8).map(|p| w.counters(S1, p).rcv_pkts).sum();
    assert!(u64::from(all.rcv_pkts) < mine, "port 1 was cleared");
    pma(&mut w, method::SET, LID_S1, attr::PORT_COUNTERS, 255, &[(pc::COUNTER_SELECT, 0xFFFF)]);
    assert_eq!(counters(&mut w, LID_S1, 5).xmit_discards, 0);
}

#[test]
fn counters_stick_at_their_width_until_cleared() {
    let mut w = up(1);
    for _ in 0..300 {
        w.with_owner(B, |s, now, out| {
            s.set_link(now, B, 1, false, out);
            s.set_link(now, B, 1, true, out);
        });
    }
    w.take_traps();
    for state in [3, 4] {
        for (path, port) in [(TO_S2, 2), (TO_B, 1)] {
            assert_eq!(
                w.set_port(path, port, &[(madplane_wire::smp::port_info::field::PORT_STATE, state)])
                    .unwrap()
                    .0,
                0
            );
        }
    }
    assert_eq!(counters(&mut w, LID_B, 1).link_downed, 255);
    let (_, data) = pma(&mut w, method::GET, LID_B, attr::PORT_COUNTERS_EXT, 1, &[]);
    assert_eq!(port_counters_ext::Repr::parse(&data).link_downed, 300);
    let (_, data) = pma(&mut w, method::SET, LID_B, attr::PORT_COUNTERS, 1, &[(pc::COUNTER_SELECT, 4)]);
    assert_eq!(pc::LINK_DOWNED.get(&data), 0);
    let before = counters(&mut w, LID_B, 1);
    for qp in [0, 0, 1] {
        w.with_owner(B, |s, _, _| s.count_overflow(B, 1, qp));
    }
    let after = counters(&mut w, LID_B, 1);
    assert_eq!((after.vl15_dropped, after.qp1_dropped), (before.vl15_dropped + 2, before.qp1_dropped + 1));
    pma(&mut w, method::SET, LID_B, attr::PORT_COUNTERS, 1, &[(pc::COUNTER_SELECT2, 2)]);
    let cleared = counters(&mut w, LID_B, 1);
    assert_eq!((cleared.vl15_dropped, cleared.qp1_dropped), (2, 0));
}
