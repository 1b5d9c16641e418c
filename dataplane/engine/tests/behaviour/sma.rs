//! Subnet management attributes.

use crate::world::*;
use madplane_engine::{FabricEvent, LID_HOP_LIMIT, Packet};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind, PortRef, Topology};
use madplane_wire::mad::{field as mad, method};
use madplane_wire::smp::port_info::{cap_mask, field as pi};
use madplane_wire::smp::{attr, field as smp, node_info, switch_info};

#[test]
fn node_info_names_the_arrival_port_and_the_right_port_guid() {
    let expected: [(&[u8], u8, u8, u64); 6] = [
        (TO_A, 1, 1, 0xF001),
        (TO_S1, 2, 1, 0x51),
        (TO_S2, 2, 3, 0x52),
        (TO_B, 1, 1, 0xF031),
        (TO_A2, 1, 2, 0xF002),
        (&[1, 8], 2, 8, 0x51),
    ];
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        for (path, kind, local_port, port_guid) in expected {
            let data = w.get(path, attr::NODE_INFO, 0);
            let info = node_info::Repr::parse(&data);
            assert_eq!((info.node_type, info.local_port_num, info.port_guid), (kind, local_port, port_guid));
            assert_eq!((info.base_version, info.class_version), (1, 1));
            assert!(data[40..].iter().all(|b| *b == 0), "the rest of the data is 0");
        }
        assert_eq!(w.out.dropped, []);
    }
}

#[test]
fn a_query_from_a_switch_to_itself_says_port_0() {
    let mut w = World::new(1);
    let pkt = w.directed(method::GET, &[], attr::NODE_INFO, 0, &[0; 64]);
    let answer = w.exchange_from(S1, 0, pkt).unwrap();
    assert_eq!(node_info::Repr::parse(&answer.mad[64..128]).local_port_num, 0);
}

#[test]
fn the_answer_keeps_the_request_but_for_method_status_and_data() {
    let mut w = World::new(2);
    let mut request = w.directed(method::GET, TO_B, attr::NODE_DESC, 0, &[0xA5; 64]);
    request.mad[18] = 0xA5; // reserved
    smp::M_KEY.set(&mut request.mad, 0xDEAD_BEEF);
    let answer = w.exchange(request.clone()).unwrap();
    let mut expected = request.mad;
    mad::METHOD.set(&mut expected, 0x81);
    smp::DIRECTION.set(&mut expected, 1);
    expected[64..128].fill(0);
    expected[64] = b'B';
    expected[193..196].copy_from_slice(&[1, 3, 1]);
    assert_eq!(answer.mad, expected);
    assert_eq!((answer.slid, answer.dlid), (0xFFFF, 0xFFFF));
}

#[test]
fn statuses_follow_the_order_version_method_attribute_field() {
    let mut w = World::new(1);
    let cases = [
        (2, method::GET, attr::NODE_INFO, 0, 0x04),
        (2, method::SEND, 0x7777, 9, 0x04),
        (1, method::SEND, attr::NODE_INFO, 0, 0x08),
        (1, method::GET_TABLE, 0x7777, 9, 0x08),
        (1, method::GET, 0x7777, 9, 0x0C),
        (1, method::SET, attr::NODE_INFO, 0, 0x0C),
        (1, method::SET, attr::NODE_DESC, 0, 0x0C),
        (1, method::GET, attr::NOTICE, 0, 0x0C),
        (1, method::GET, attr::SM_INFO, 0, 0x0C),
        (1, method::GET, attr::RFT, 0, 0x0C),
        (1, method::GET, attr::LED_INFO, 0, 0x0C),
        (1, method::GET, attr::VENDOR_DIAG, 0, 0x0C),
        (1, method::GET, attr::PORT_INFO_EXT, 1, 0x0C),
        (1, method::GET, attr::NODE_INFO, 1, 0x1C),
        (1, method::GET, attr::NODE_DESC, 1, 0x1C),
        (1, method::GET, attr::SWITCH_INFO, 1, 0x1C),
        (1, method::GET, attr::PORT_INFO, 9, 0x1C),
        (1, method::GET, attr::PKEY_TABLE, 2, 0x1C),
        (1, method::GET, attr::PKEY_TABLE, 9 << 16, 0x1C),
        (1, method::GET, attr::SL_TO_VL, 9 << 8 | 1, 0x1C),
        (1, method::GET, attr::SL_TO_VL, 1 << 8 | 9, 0x1C),
        (1, method::GET, attr::SL_TO_VL, 3 << 16, 0x1C),
        (1, method::GET, attr::VL_ARB, 0x0005_0001, 0x1C),
        (1, method::GET, attr::VL_ARB, 1, 0x1C),
        (1, method::GET, attr::VL_ARB, 0x0001_0009, 0x1C),
        (1, method::GET, attr::LFT, 768, 0x1C),
        (1, method::GET, attr::LFT, 767, 0),
        (1, method::GET, attr::MFT, 32, 0x1C),
        (1, method::GET, attr::MFT, 1 << 28, 0x1C),
        (1, method::GET, attr::MFT, 31, 0),
        (1, method::GET, attr::GUID_INFO, 1, 0x1C),
        (1, method::GET, attr::GUID_INFO, 0, 0),
        (1, method::GET, attr::PORT_INFO, 0x8000_0008, 0),
    ];
    for (version, method, attribute, modifier, status) in cases {
        let mut pkt = w.directed(method, TO_S1, attribute, modifier, &[0; 64]);
        mad::CLASS_VERSION.set(&mut pkt.mad, version);
        let answer = w.exchange(pkt).unwrap();
        assert_eq!(
            smp::STATUS.get(&answer.mad),
            status,
            "version {version} method {method:#x} attribute {attribute:#x} modifier {modifier:#x}"
        );
    }
    for attribute in [attr::SWITCH_INFO, attr::LFT, attr::MFT] {
        assert_eq!(w.query(method::GET, TO_A, attribute, 0, &[0; 64]).unwrap().0, 0x0C, "not on an adapter");
    }
}

#[test]
fn reports_and_traps_that_nobody_wants_are_not_answered() {
    let mut w = World::new(1);
    let report = w.directed(method::REPORT, TO_S1, attr::NOTICE, 0, &[0; 64]);
    // the recording sink takes everything that is no request, so ask a sink that takes nothing
    struct Nobody(Vec<DropReason>);
    impl madplane_engine::Sink for Nobody {
        fn deliver(&mut self, _: u32, _: u8, _: &Packet) -> bool {
            false
        }
        fn to_shard(&mut self, _: usize, _: u32, _: u8, _: &Packet) {}
        fn peer_event(&mut self, _: usize, _: madplane_engine::PeerEvent) {}
        fn dropped(&mut self, _: u32, reason: DropReason) {
            self.0.push(reason);
        }
    }
    let mut nobody = Nobody(Vec::new());
    w.shards[0].send(0, A, 1, &mut report.clone(), &mut nobody);
    let mut trap = report.clone();
    mad::METHOD.set(&mut trap.mad, u64::from(method::TRAP));
    w.shards[0].send(0, A, 1, &mut trap, &mut nobody);
    let mut response = report.clone();
    mad::METHOD.set(&mut response.mad, u64::from(method::GET_RESP));
    w.shards[0].send(0, A, 1, &mut response, &mut nobody);
    assert_eq!(nobody.0, [DropReason::NoAgent, DropReason::NoAgent, DropReason::NoTransaction]);
}

#[test]
fn sm_info_goes_to_the_agent_only_while_the_port_is_sm() {
    let mut w = World::new(2);
    w.out.listening.push((B, 1));
    assert_eq!(w.query(method::GET, TO_B, attr::SM_INFO, 0, &[0; 64]).unwrap().0, 0x0C);
    w.with_owner(B, |s, now, out| s.set_is_sm(now, B, 1, true, out));
    let capabilities = pi::CAP_MASK.get_u32(&w.port_info(TO_B, 1));
    assert_eq!(capabilities & cap_mask::SM, cap_mask::SM);
    let request = w.directed(method::GET, TO_B, attr::SM_INFO, 0, &[0; 64]);
    let before = w.out.delivered.len();
    w.send(A, 1, request.clone());
    let (node, port, got) = w.out.delivered[before].clone();
    assert_eq!((node, port), (B, 1));
    assert_eq!(mad::TID.get(&got.mad), mad::TID.get(&request.mad));
    // its answer finds the way back
    let mut answer = got;
    mad::METHOD.set(&mut answer.mad, u64::from(method::GET_RESP));
    smp::DIRECTION.set(&mut answer.mad, 1);
    w.send(B, 1, answer);
    assert_eq!(w.out.delivered.last().map(|(n, p, _)| (*n, *p)), Some((A, 1)));
    // an SM that does not listen
    w.out.listening.clear();
    assert_eq!(w.query(method::GET, TO_B, attr::SM_INFO, 0, &[0; 64]).unwrap().0, 0x0C);
    w.with_owner(B, |s, now, out| s.set_is_sm(now, B, 1, false, out));
    assert_eq!(pi::CAP_MASK.get_u32(&w.port_info(TO_B, 1)) & cap_mask::SM, 0);
}

#[test]
fn tables_read_back_what_was_written() {
    let mut w = World::new(2);
    let mut data = [0; 64];
    for (value, byte) in (1..).zip(&mut data) {
        *byte = value;
    }
    let cases: [(&[u8], u16, u32, usize); 13] = [
        (TO_B, attr::PKEY_TABLE, 0, 64),
        (TO_B, attr::PKEY_TABLE, 1, 64),
        (TO_S2, attr::PKEY_TABLE, 0, 64),
        (TO_S2, attr::PKEY_TABLE, 2 << 16 | 1, 64),
        (TO_B, attr::SL_TO_VL, 0, 8),
        (TO_S2, attr::SL_TO_VL, 3 << 8 | 2, 8),
        (TO_S2, attr::SL_TO_VL, 2, 8),
        (TO_B, attr::VL_ARB, 0x0001_0000, 16),
        (TO_S2, attr::VL_ARB, 0x0003_0002, 16),
        (TO_S2, attr::VL_ARB, 0x0002_0002, 0),
        (TO_S2, attr::LFT, 767, 64),
        (TO_S2, attr::LFT, 3, 64),
        (TO_S2, attr::MFT, 5, 64),
    ];
    for (path, attribute, modifier, kept) in cases {
        let mut expected = [0; 64];
        expected[..kept].copy_from_slice(&data[..kept]);
        assert_eq!(w.set(path, attribute, modifier, &data), (0, expected), "{attribute:#x} {modifier:#x}");
        assert_eq!(w.get(path, attribute, modifier), expected, "{attribute:#x} {modifier:#x}");
    }
    assert_eq!(w.get(TO_S2, attr::LFT, 4), [255; 64], "a block between two written ones");
    assert_eq!(w.get(TO_S2, attr::SL_TO_VL, 4 << 8 | 2)[..3], [0x01, 0x23, 0x45], "another input port");
}

#[test]
fn an_adapter_does_not_look_at_the_port_of_a_p_key_or_arbitration_modifier() {
    let mut w = World::new(1);
    let (status, written) = w.set(TO_B, attr::PKEY_TABLE, 0, &[0x12; 64]);
    assert_eq!(status, 0);
    assert_eq!(w.get(TO_B, attr::PKEY_TABLE, 1 << 16), written, "as smpquery and ibdiagnet ask");
    assert_eq!(w.query(method::GET, TO_B, attr::PKEY_TABLE, 1 << 16 | 2, &[0; 64]).unwrap().0, 0x1C);
    let weights = w.get(TO_B, attr::VL_ARB, 3 << 16);
    assert_eq!(w.get(TO_B, attr::VL_ARB, 3 << 16 | 1), weights);
    assert_eq!(w.query(method::GET, TO_B, attr::VL_ARB, 5 << 16 | 1, &[0; 64]).unwrap().0, 0x1C);
}

#[test]
fn guid_entry_0_stays_the_port_guid() {
    let mut w = World::new(1);
    let (status, data) = w.set(TO_B, attr::GUID_INFO, 0, &[0x11; 64]);
    assert_eq!(status, 0);
    assert_eq!(data[..8], 0xF031_u64.to_be_bytes());
    assert_eq!(data[8..], [0x11; 56]);
    assert_eq!(w.get(TO_B, attr::GUID_INFO, 0), data);
    assert_eq!(w.get(TO_B, attr::GUID_INFO, 3), [0; 64]);
    assert_eq!(w.query(method::GET, TO_B, attr::GUID_INFO, 4, &[0; 64]).unwrap().0, 0x1C);
}

#[test]
fn switch_info_set_keeps_capabilities_and_clears_port_state_change() {
    let mut w = World::new(1);
    let before = w.get(TO_S1, attr::SWITCH_INFO, 0);
    use switch_info::field as si;
    assert_eq!(si::LINEAR_FDB_CAP.get(&before), 49152);
    assert_eq!(si::RANDOM_FDB_CAP.get(&before), 0);
    w.with_owner(S1, |s, now, out| s.set_link(now, S1, 6, false, out));
    assert!(si::PORT_STATE_CHANGE.get_bool(&w.get(TO_S1, attr::SWITCH_INFO, 0)));
    let mut data = [0xFF; 64];
    si::LINEAR_FDB_TOP.set(&mut data, 0xBFFF);
    si::MULTICAST_FDB_TOP.set(&mut data, 0xC000);
    si::PORT_STATE_CHANGE.set(&mut data, 0);
    let (status, got) = w.set(TO_S1, attr::SWITCH_INFO, 0, &data);
    assert_eq!(status, 0);
    let mut expected = before;
    si::LINEAR_FDB_TOP.set(&mut expected, 0xBFFF);
    si::MULTICAST_FDB_TOP.set(&mut expected, 0xC000);
    si::LIFE_TIME_VALUE.set(&mut expected, 31);
    expected[8..11].fill(255);
    si::PORT_STATE_CHANGE.set(&mut expected, 1);
    assert_eq!(got, expected, "writing 0 leaves the bit");
    si::PORT_STATE_CHANGE.set(&mut data, 1);
    si::PORT_STATE_CHANGE.set(&mut expected, 0);
    si::LINEAR_FDB_TOP.set(&mut data, 0xC000);
    assert_eq!(
        w.set(TO_S1, attr::SWITCH_INFO, 0, &data),
        (0x1C, expected),
        "a top beyond the cap is refused"
    );
}

#[test]
fn every_settable_field_of_an_adapter_port_is_stored() {
    let mut w = World::new(1);
    let fields = [
        (pi::GID_PREFIX, 0x1234_5678_9ABC_DEF0),
        (pi::LID, 0x40),
        (pi::MASTER_SM_LID, 0x41),
        (pi::MASTER_SM_SL, 5),
        (pi::LMC, 3),
        (pi::M_KEY_LEASE_PERIOD, 99),
        (pi::M_KEY_PROTECT_BITS, 1),
        (pi::NEIGHBOR_MTU, 2),
        (pi::OPERATIONAL_VLS, 2),
        (pi::VL_HIGH_LIMIT, 7),
        (pi::SUBNET_TIMEOUT, 17),
        (pi::MCAST_PKEY_TRAP_SUPPRESSION, 1),
        (pi::LOCAL_PHY_ERRORS, 3),
        (pi::OVERRUN_ERRORS, 4),
        (pi::INIT_TYPE, 1),
        (pi::LINK_WIDTH_ENABLED, 1),
        (pi::LINK_SPEED_ENABLED, 3),
        (pi::LINK_DOWN_DEFAULT_STATE, 1),
    ];
    let mut expected = w.port_info(TO_B, 1);
    for (field, value) in fields {
        field.set(&mut expected, value);
    }
    let (status, got) = w.set_port(TO_B, 1, &fields).unwrap();
    assert_eq!(status, 0);
    pi::PORT_STATE.set(&mut expected, 2);
    pi::PORT_PHYS_STATE.set(&mut expected, 5);
    assert_eq!(got, expected);
    assert_eq!(w.get(TO_B, attr::PORT_INFO, 0), expected, "port 0 means the arrival port");
    assert_eq!(w.owner(B).lid(B, 1), Some(0x40));
}

#[test]
fn read_only_fields_ignore_a_set() {
    let mut w = World::new(1);
    let before = w.get(TO_B, attr::PORT_INFO, 1);
    let mut data = [0; 64];
    data.copy_from_slice(&before);
    for field in [
        pi::CAP_MASK,
        pi::CAP_MASK2,
        pi::LOCAL_PORT_NUM,
        pi::LINK_WIDTH_SUPPORTED,
        pi::LINK_WIDTH_ACTIVE,
        pi::LINK_SPEED_SUPPORTED,
        pi::LINK_SPEED_ACTIVE,
        pi::VL_CAP,
        pi::MTU_CAP,
        pi::GUID_CAP,
        pi::RESP_TIME_VALUE,
        pi::VL_ARB_HIGH_CAP,
        pi::VL_ARB_LOW_CAP,
        pi::LINK_SPEED_EXT_SUPPORTED,
        pi::LINK_SPEED_EXT_ACTIVE,
        pi::VL_STALL_COUNT,
        pi::PARTITION_ENFORCEMENT_INBOUND,
    ] {
        field.set(&mut data, u64::MAX);
    }
    pi::LID.set(&mut data, 8);
    pi::MASTER_SM_LID.set(&mut data, 8);
    pi::PORT_STATE.set(&mut data, 0);
    pi::PORT_PHYS_STATE.set(&mut data, 0);
    let (status, got) = w.set(TO_B, attr::PORT_INFO, 1, &data);
    let mut expected = before;
    pi::LID.set(&mut expected, 8);
    pi::MASTER_SM_LID.set(&mut expected, 8);
    assert_eq!((status, got), (0, expected));
}

#[test]
fn a_bad_field_answers_0x1c_and_the_good_ones_are_applied() {
    let bad = [
        (pi::LID, 0),
        (pi::LID, 0xC000),
        (pi::MASTER_SM_LID, 0),
        (pi::MASTER_SM_LID, 0xFFFF),
        (pi::LMC, 4), // LID 0x48 is aligned to 8 only
        (pi::LINK_WIDTH_ENABLED, 4),
        (pi::LINK_SPEED_ENABLED, 8),
        (pi::NEIGHBOR_MTU, 0),
        (pi::NEIGHBOR_MTU, 6),
        (pi::OPERATIONAL_VLS, 5),
        (pi::PORT_STATE, 2),
        (pi::PORT_STATE, 5),
        (pi::PORT_STATE, 4),
        (pi::PORT_PHYS_STATE, 4),
        (pi::LINK_DOWN_DEFAULT_STATE, 3),
    ];
    for (field, value) in bad {
        let mut w = World::new(1);
        let before = w.get(TO_B, attr::PORT_INFO, 1);
        let good = [(pi::LID, 0x48), (pi::MASTER_SM_LID, 9), (pi::VL_HIGH_LIMIT, 3)];
        let mut expected = before;
        for (f, v) in good {
            if f != field && (field, f) != (pi::LMC, pi::LID) {
                f.set(&mut expected, v);
            }
        }
        let mut fields = good.to_vec();
        fields.push((field, value));
        assert_eq!(w.set_port(TO_B, 1, &fields), Some((0x1C, expected)), "{field:?} = {value}");
    }
}

#[test]
fn zero_means_no_change_and_all_ones_mean_supported() {
    let mut w = World::new(1);
    let ids = [(pi::LID, 8), (pi::MASTER_SM_LID, 8)];
    let narrow = [(pi::LINK_WIDTH_ENABLED, 1), (pi::LINK_SPEED_ENABLED, 1)];
    let (_, data) = w.set_port(TO_B, 1, &[&ids[..], &narrow[..]].concat()).unwrap();
    let zero = [(pi::LINK_WIDTH_ENABLED, 0), (pi::LINK_SPEED_ENABLED, 0), (pi::OPERATIONAL_VLS, 0)];
    assert_eq!(w.set_port(TO_B, 1, &[&ids[..], &zero[..]].concat()), Some((0, data)));
    let ones = [(pi::LINK_WIDTH_ENABLED, 255), (pi::LINK_SPEED_ENABLED, 15)];
    let (status, data) = w.set_port(TO_B, 1, &[&ids[..], &ones[..]].concat()).unwrap();
    assert_eq!(status, 0);
    assert_eq!((pi::LINK_WIDTH_ENABLED.get(&data), pi::LINK_SPEED_ENABLED.get(&data)), (3, 7));
}

#[test]
fn extended_speeds_change_only_with_bit_31() {
    let mut w = World::new(1);
    let mut data = w.port_info(TO_S1, 3);
    pi::LINK_SPEED_EXT_ENABLED.set(&mut data, 1);
    let (_, got) = w.set(TO_S1, attr::PORT_INFO, 3, &data);
    assert_eq!(pi::LINK_SPEED_EXT_ENABLED.get(&got), 7, "a Set that does not know them");
    let (status, got) = w.set(TO_S1, attr::PORT_INFO, 1 << 31 | 3, &data);
    assert_eq!((status, pi::LINK_SPEED_EXT_ENABLED.get(&got)), (0, 1));
    pi::LINK_SPEED_EXT_ENABLED.set(&mut data, 8);
    let (status, got) = w.set(TO_S1, attr::PORT_INFO, 1 << 31 | 3, &data);
    assert_eq!((status, pi::LINK_SPEED_EXT_ENABLED.get(&got)), (0x1C, 1), "not supported");
    pi::LINK_SPEED_EXT_ENABLED.set(&mut data, 31);
    let (status, got) = w.set(TO_S1, attr::PORT_INFO, 1 << 31 | 3, &data);
    assert_eq!((status, pi::LINK_SPEED_EXT_ENABLED.get(&got)), (0, 7));
    pi::LINK_SPEED_EXT_ENABLED.set(&mut data, 30);
    let (status, got) = w.set(TO_S1, attr::PORT_INFO, 1 << 31 | 3, &data);
    assert_eq!((status, pi::LINK_SPEED_EXT_ENABLED.get(&got)), (0, 30));
}

#[test]
fn speeds_and_widths_are_those_of_the_topology() {
    let mut w = World::new(1);
    let speeds = |d: &[u8; 64]| {
        [
            pi::LINK_SPEED_ACTIVE.get(d),
            pi::LINK_SPEED_EXT_ACTIVE.get(d),
            pi::LINK_SPEED_EXT_ACTIVE2.get(d),
            pi::LINK_WIDTH_ACTIVE.get(d),
        ]
    };
    assert_eq!(speeds(&w.get(TO_A, attr::PORT_INFO, 1)), [4, 2, 0, 2], "EDR");
    assert_eq!(speeds(&w.get(TO_S2, attr::PORT_INFO, 3)), [4, 4, 0, 2], "HDR");
    assert_eq!(speeds(&w.get(TO_B, attr::PORT_INFO, 1)), [4, 0, 0, 2], "QDR");
    assert_eq!(speeds(&w.get(TO_A2, attr::PORT_INFO, 2)), [4, 8, 1, 2], "XDR");
    assert_eq!(speeds(&w.get(TO_C, attr::PORT_INFO, 1)), [4, 0, 0, 2], "FDR10");
    let extended = |d: &[u8; 64]| pi::CAP_MASK.get_u32(d) & cap_mask::EXTENDED_SPEEDS != 0;
    assert!(extended(&w.get(TO_A, attr::PORT_INFO, 1)) && extended(&w.get(TO_S2, attr::PORT_INFO, 0)));
    assert!(!extended(&w.get(TO_B, attr::PORT_INFO, 1)));
}

#[test]
fn fdr10_shows_in_the_vendor_attribute_of_the_devices_that_have_it() {
    let mut w = World::new(2);
    let fdr10 = |d: &[u8; 64]| [d[7], d[11], d[15]];
    assert_eq!(fdr10(&w.get(TO_C, attr::MLNX_EXT_PORT_INFO, 1)), [1, 1, 1]);
    assert_eq!(fdr10(&w.get(TO_S1, attr::MLNX_EXT_PORT_INFO, 6)), [1, 1, 1]);
    assert_eq!(fdr10(&w.get(TO_S1, attr::MLNX_EXT_PORT_INFO, 1)), [0, 0, 0]);
    assert_eq!(w.query(method::GET, TO_B, attr::MLNX_EXT_PORT_INFO, 1, &[0; 64]).unwrap().0, 0x0C);
    let mut data = [0; 64];
    data[3] = 1;
    assert_eq!(w.set(TO_C, attr::MLNX_EXT_PORT_INFO, 1, &data).1[11], 0);
    assert_eq!(w.set_port(TO_S1, 6, &[(pi::PORT_STATE, 1)]).unwrap().0, 0);
    assert_eq!(fdr10(&w.get(TO_S1, attr::MLNX_EXT_PORT_INFO, 6)), [1, 1, 0], "the other end switched it off");
}

#[test]
fn external_ports_ignore_lids_and_store_enforcement() {
    let mut w = World::new(1);
    let before = w.get(TO_S1, attr::PORT_INFO, 3);
    let fields = [
        (pi::LID, 0),
        (pi::MASTER_SM_LID, 0xFFFF),
        (pi::M_KEY, 5),
        (pi::HOQ_LIFE, 16),
        (pi::VL_STALL_COUNT, 7),
        (pi::PARTITION_ENFORCEMENT_INBOUND, 1),
        (pi::PARTITION_ENFORCEMENT_OUTBOUND, 1),
        (pi::FILTER_RAW_INBOUND, 1),
        (pi::FILTER_RAW_OUTBOUND, 1),
        (pi::NEIGHBOR_MTU, 4),
        (pi::VL_HIGH_LIMIT, 9),
        (pi::SUBNET_TIMEOUT, 11),
    ];
    let mut expected = before;
    for (field, value) in &fields[3..] {
        field.set(&mut expected, *value);
    }
    assert_eq!(w.set_port(TO_S1, 3, &fields), Some((0, expected)));
}

#[test]
fn an_adapter_port_is_set_only_through_itself() {
    let mut w = World::new(1);
    let other = w.port_info(TO_A, 2);
    let (status, got) = w.set(TO_A, attr::PORT_INFO, 2, &other);
    let current = w.get(TO_A, attr::PORT_INFO, 2);
    assert_eq!((status, got), (0x1C, current));
    assert_eq!(pi::LOCAL_PORT_NUM.get(&current), 1, "asked through port 1");
}

#[test]
fn a_base_port_0_has_no_lmc_and_an_enhanced_one_may() {
    let mut w = World::new(1);
    let fields = [(pi::LID, 8), (pi::MASTER_SM_LID, 1), (pi::LMC, 1)];
    assert_eq!(w.set_port(TO_S1, 0, &fields).unwrap().0, 0x1C);
    assert_eq!(w.owner(S1).lid(S1, 0), Some(0));
    assert_eq!(w.set_port(TO_S2, 0, &fields).unwrap().0, 0);
    assert_eq!(w.owner(S2).lid(S2, 5), Some(8));
}

#[test]
fn port_0_reads_active_and_has_no_state_to_set() {
    let mut w = World::new(1);
    let fields = [(pi::LID, 8), (pi::MASTER_SM_LID, 1), (pi::PORT_STATE, 1)];
    let (status, data) = w.set_port(TO_S1, 0, &fields).unwrap();
    assert_eq!((status, pi::PORT_STATE.get(&data), pi::PORT_PHYS_STATE.get(&data)), (0, 4, 5));
}

#[test]
fn client_reregister_is_echoed_once_and_raises_an_event() {
    let mut w = World::new(2);
    let fields = [(pi::LID, 8), (pi::MASTER_SM_LID, 1), (pi::CLIENT_REREGISTER, 1)];
    let (status, data) = w.set_port(TO_B, 1, &fields).unwrap();
    assert_eq!((status, pi::CLIENT_REREGISTER.get(&data)), (0, 1));
    assert_eq!(pi::CLIENT_REREGISTER.get(&w.get(TO_B, attr::PORT_INFO, 1)), 0);
    let events: Vec<_> =
        w.out.events.iter().filter(|e| matches!(e, FabricEvent::ClientReregister { .. })).collect();
    assert_eq!(events, [&FabricEvent::ClientReregister { node: B, port: 1 }]);
}

#[test]
fn an_uncabled_port_is_down_and_polling_and_still_sane() {
    let mut w = World::new(1);
    assert_eq!(w.state(S1, 5), (1, 2));
    assert_eq!(w.state(D, 1), (1, 2));
    let data = w.get(TO_S1, attr::PORT_INFO, 5);
    assert_eq!(pi::LINK_WIDTH_ACTIVE.get(&data).count_ones(), 1);
    assert_eq!(pi::LINK_SPEED_ACTIVE.get(&data).count_ones(), 1);
    // its own agent answers nevertheless
    let pkt = w.directed(method::GET, &[], attr::PORT_INFO, 0, &[0; 64]);
    assert_eq!(pi::PORT_STATE.get(&w.exchange_from(D, 1, pkt).unwrap().mad[64..128]), 1);
}

#[test]
fn lid_routed_smps_work_before_links_are_active_and_aliases_answer_as_themselves() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        // back to Initialize: S1 to S2
        assert_eq!(w.set_port(TO_S1, 3, &[(pi::PORT_STATE, 1)]).unwrap().0, 0);
        assert_eq!((w.state(S1, 3), w.state(S2, 3)), ((2, 5), (2, 5)));
        let pkt = w.by_lid(method::GET, LID_B, attr::NODE_DESC, 0, &[0; 64]);
        let answer = w.exchange(pkt).unwrap();
        assert_eq!((answer.slid, answer.dlid, answer.mad[64]), (LID_B, LID_A, b'B'));
        // B asks the third LID of A's port 1; A answers as that LID
        let pkt = w.by_lid(method::GET, LID_A + 3, attr::NODE_DESC, 0, &[0; 64]);
        let answer = w.exchange_from(B, 1, pkt).unwrap();
        assert_eq!((answer.slid, answer.dlid, answer.mad[64]), (LID_A + 3, LID_B, b'A'));
        // path bits choose the source LID and come back as the addressed ones
        let mut pkt = w.by_lid(method::GET, LID_B, attr::NODE_DESC, 0, &[0; 64]);
        pkt.path_bits = 2;
        let answer = w.exchange(pkt).unwrap();
        assert_eq!((answer.dlid, answer.path_bits), (LID_A + 2, 2));
        assert_eq!(w.drops(), []);
    }
}

#[test]
fn combined_routes_query_the_peer_of_a_port() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        // as ibportstate does: by LID to S2, then out of its port 2
        let mut pkt = w.directed(method::GET, &[2], attr::NODE_DESC, 0, &[0; 64]);
        pkt.dlid = LID_S2;
        smp::DR_SLID.set(&mut pkt.mad, u64::from(LID_A));
        let answer = w.exchange(pkt).unwrap();
        assert_eq!((answer.slid, answer.dlid, answer.mad[64]), (LID_S2, LID_A, b'B'));
        // directed to S1, then by LID to B
        let mut pkt = w.directed(method::GET, &[1], attr::NODE_DESC, 0, &[0; 64]);
        smp::DR_DLID.set(&mut pkt.mad, u64::from(LID_B));
        assert_eq!(w.exchange(pkt).unwrap().mad[64], b'B');
        // directed to S1, whose own LID is the end
        let mut pkt = w.directed(method::GET, &[1], attr::NODE_DESC, 0, &[0; 64]);
        smp::DR_DLID.set(&mut pkt.mad, u64::from(LID_S1));
        assert_eq!(w.exchange(pkt).unwrap().mad[64..66], *b"S1");
        // both ends by LID: S1 starts, out of port 3 to S2, by LID to B
        let mut pkt = w.directed(method::GET, &[3], attr::NODE_DESC, 0, &[0; 64]);
        pkt.dlid = LID_S1;
        smp::DR_SLID.set(&mut pkt.mad, u64::from(LID_A));
        smp::DR_DLID.set(&mut pkt.mad, u64::from(LID_B));
        assert_eq!(w.exchange(pkt).unwrap().mad[64], b'B');
        // class 0x81 by LID only
        for (lid, name) in [(LID_B, b'B'), (LID_C, b'C')] {
            let mut pkt = w.directed(method::GET, &[], attr::NODE_DESC, 0, &[0; 64]);
            pkt.dlid = lid;
            smp::DR_SLID.set(&mut pkt.mad, u64::from(LID_A));
            assert_eq!(w.exchange(pkt).unwrap().mad[64], name);
        }
        // by LID to oneself
        let pkt = w.by_lid(method::GET, LID_A, attr::NODE_DESC, 0, &[0; 64]);
        assert_eq!(w.exchange(pkt).unwrap().mad[64], b'A');
        assert_eq!(w.drops(), []);
    }
}

#[test]
fn senders_must_be_ports_that_a_client_can_have() {
    let mut w = World::new(1);
    for (node, port) in [(A, 0), (A, 3), (S1, 1), (S1, 9), (77, 1)] {
        let pkt = w.directed(method::GET, &[], attr::NODE_INFO, 0, &[0; 64]);
        w.send(node, port, pkt);
        assert_eq!(w.drops(), [(node, DropReason::SenderInvalid)]);
    }
    let mut pkt = w.directed(method::GET, &[], attr::NODE_INFO, 0, &[0; 64]);
    pkt.dst_qp = 1;
    w.send(A, 1, pkt.clone());
    pkt.dst_qp = 0;
    pkt.mad[0] = 2;
    w.send(A, 1, pkt);
    assert_eq!(w.drops(), [(A, DropReason::ClassQp), (A, DropReason::BaseVersion)]);
    assert!(w.out.delivered.is_empty());
}

#[test]
fn a_packet_that_comes_back_by_a_loopback_plug_is_not_sent_there_again() {
    for shards in [1, 2, 6] {
        let mut w = World::new(shards);
        w.bring_up();
        let mut block = w.get(TO_S1, attr::LFT, 0);
        block[9] = 8;
        w.set(TO_S1, attr::LFT, 0, &block);
        let before = w.counters(S1, 8);
        let pkt = w.by_lid(method::GET, 9, attr::NODE_DESC, 0, &[0; 64]);
        w.send(A, 1, pkt);
        assert_eq!(w.drops(), [(S1, DropReason::RouteLoop)], "the plug is the arrival port the second time");
        let after = w.counters(S1, 8);
        assert_eq!((after.xmit_pkts, after.rcv_pkts), (before.xmit_pkts + 1, before.rcv_pkts + 1));
        assert_eq!(after.switch_relay_errors, before.switch_relay_errors + 1);
    }
}

#[test]
fn a_routing_loop_ends_at_the_hop_limit_in_any_number_of_shards() {
    let mut t = Topology::default();
    for index in 0..3 {
        t.nodes.push(Node::new(NodeKind::Switch, 0x50 + index, 4, "S"));
    }
    for (a, b) in [(0, 1), (1, 2), (2, 0)] {
        let (a, b) = (PortRef { node: a, port: 1 }, PortRef { node: b, port: 2 });
        assert!(t.connect(a, b, LinkWidth::X4, LinkSpeed::Edr));
    }
    for shards in [1, 2, 3] {
        let mut w = World::of(&t, shards);
        for node in 0..3 {
            let mut top = [0; 64];
            switch_info::field::LINEAR_FDB_TOP.set(&mut top, 63);
            for (attribute, data) in [(attr::LFT, [1; 64]), (attr::SWITCH_INFO, top)] {
                let pkt = w.directed(method::SET, &[], attribute, 0, &data);
                w.exchange_from(node, 0, pkt).unwrap();
            }
        }
        let pkt = w.by_lid(method::GET, 9, attr::NODE_DESC, 0, &[0; 64]);
        w.send(0, 0, pkt);
        let reasons: Vec<_> = w.drops().into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(reasons, [DropReason::HopLimit]);
        let sent: u64 = (0..3).map(|node| w.counters(node, 1).xmit_pkts).sum();
        assert_eq!(sent, u64::from(LID_HOP_LIMIT));
    }
}
