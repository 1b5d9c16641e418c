//! Sizes at the end of the scale.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;

use support::probe::{GET, Probe, SET, attribute};
use support::{OpenSm, Plane, have};

const LARGE: &str = "builtin:fat-tree,radix=36,levels=3";
const LAST_LID: u16 = 0xBFFF;

/// Sets the exits of all LIDs of a block of the forwarding table at the end of a route.
#[track_caller]
fn set_block(probe: &Probe, path: &[u8], block: u32, exit: u8) {
    let (status, data) =
        probe.directed(SET, path, attribute::LINEAR_FORWARDING_TABLE, block, &[exit; 64]).expect("an answer");
    assert_eq!((status, data), (0, [exit; 64]), "block {block} at {path:?}");
    let read = probe.directed(GET, path, attribute::LINEAR_FORWARDING_TABLE, block, &[]);
    assert_eq!(read, Some((0, [exit; 64])), "block {block} at {path:?}, read back");
}

/// Gives the node at the end of a route a LID.
#[track_caller]
fn set_lid(probe: &Probe, path: &[u8], port: u8, lid: u16) {
    let (status, mut info) =
        probe.directed(GET, path, attribute::PORT_INFO, port.into(), &[]).expect("an answer");
    assert_eq!(status, 0);
    info[16..18].copy_from_slice(&lid.to_be_bytes());
    // SM LID, and neither state nor phys state is asked to change
    info[18..20].copy_from_slice(&1u16.to_be_bytes());
    info[32] &= 0xf0;
    info[33] &= 0x0f;
    let (status, data) =
        probe.directed(SET, path, attribute::PORT_INFO, port.into(), &info).expect("an answer");
    assert_eq!((status, &data[16..18]), (0, &lid.to_be_bytes()[..]), "lid at {path:?}");
}

/// Opens the whole forwarding table of the switch at the end of a route.
#[track_caller]
fn set_top(probe: &Probe, path: &[u8]) {
    let (status, mut info) = probe.directed(GET, path, attribute::SWITCH_INFO, 0, &[]).expect("an answer");
    assert_eq!((status, &info[..2]), (0, &0xC000_u16.to_be_bytes()[..]), "LinearFDBCap");
    info[6..8].copy_from_slice(&LAST_LID.to_be_bytes());
    let (status, data) = probe.directed(SET, path, attribute::SWITCH_INFO, 0, &info).expect("an answer");
    assert_eq!((status, &data[6..8]), (0, &LAST_LID.to_be_bytes()[..]), "LinearFDBTop at {path:?}");
}

#[test]
fn the_fabric_of_11664_hosts_is_ready_and_every_leaf_answers() {
    let plane = Plane::up(LARGE);
    let status = plane.json(&["status"]);
    assert_eq!(
        (status["nodes"].as_u64(), status["switches"].as_u64()),
        (Some(13_284), Some(1620)),
        "{status}"
    );
    assert_eq!(status["links"], 34_992, "{status}");
    println!("ready after {} ms", status["startup_ns"].as_u64().unwrap() / 1_000_000);
    let probe = Probe::open(&plane, "");
    let mut hosts = BTreeSet::new();
    // up to the core by two exits and down by two, then to a host
    for pod in 1..=36u8 {
        for leaf in 1..=18u8 {
            for host in [1, 18] {
                let path = [1, 19, 19, pod, leaf, host];
                let (status, data) =
                    probe.directed(GET, &path, attribute::NODE_INFO, 0, &[]).expect("an answer");
                assert_eq!(status, 0, "{path:?}");
                assert_eq!(data[2], 1, "an adapter at the end of {path:?}");
                hosts.insert(u64::from_be_bytes(data[12..20].try_into().unwrap()));
            }
        }
    }
    assert_eq!(hosts.len(), 36 * 18 * 2);
}

#[test]
fn the_last_unicast_lid_is_routed_to_its_port() {
    let plane = Plane::up(LARGE);
    let probe = Probe::open(&plane, "");
    let far = [1, 19, 19, 36, 18, 18];
    // where the routes go up and where they come down
    let (own_leaf, own_top) = ([1], [1, 19]);
    let core = [1, 19, 19];
    let (their_top, their_leaf) = ([1, 19, 19, 36], [1, 19, 19, 36, 18]);
    set_lid(&probe, &[], 1, 1);
    set_lid(&probe, &far, 1, LAST_LID);
    let last = u32::from(LAST_LID) / 64;
    assert_eq!(last, 767);
    for (path, exit) in
        [(&own_leaf[..], 19), (&own_top, 19), (&core, 36), (&their_top, 18), (&their_leaf, 18)]
    {
        set_block(&probe, path, last, exit);
    }
    // back: the exits that the way up came in by
    let back = |path: &[u8]| {
        let (status, data) = probe.directed(GET, path, attribute::NODE_INFO, 0, &[]).expect("an answer");
        assert_eq!(status, 0);
        data[36]
    };
    for path in [&own_leaf[..], &own_top, &core, &their_top, &their_leaf] {
        set_block(&probe, path, 0, back(path));
        set_top(&probe, path);
    }
    let beyond = probe.directed(GET, &[1], attribute::LINEAR_FORWARDING_TABLE, 768, &[]).expect("an answer");
    assert_eq!(beyond.0, 0x1c, "there is no block 768");
    let direct = probe.directed(GET, &far, attribute::NODE_INFO, 0, &[]).unwrap().1;
    let (status, routed) =
        probe.by_lid(GET, LAST_LID, attribute::NODE_INFO, 0, &[]).expect("an answer from lid 49151");
    assert_eq!((status, routed), (0, direct));
    // a LID of the same block that nobody has ends at the same host, and nobody answers for it
    let stray = probe.by_lid(GET, LAST_LID - 1, attribute::NODE_INFO, 0, &[]);
    assert!(stray.is_none(), "{stray:?}");
}

/// Takes minutes in a debug build; `madbench` measures the same with an optimised one.
#[test]
#[ignore = "minutes; madbench measures it"]
fn opensm_brings_up_11664_hosts() {
    if !have(&["opensm"]) {
        return;
    }
    let plane = Plane::up(LARGE);
    let opensm = OpenSm::up(&plane, "", &[], &[]);
    opensm.assert_no_errors();
}
