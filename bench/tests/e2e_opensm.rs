//! OpenSM, unmodified, brings up the 648-host fat tree with whatever it is asked to do.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;

use support::probe::{GET, Probe, attribute};
use support::{OpenSm, Plane, have};

const FABRIC: &str = "builtin:fat-tree,radix=36,levels=2";
const NODES: u16 = 702;

/// Every node answers at its LID, as seen from `at`: OpenSM's routes lead everywhere and back.
#[track_caller]
fn assert_all_reachable(plane: &Plane, at: &str, lid_step: u16) {
    let probe = Probe::open(plane, at);
    let mut found = BTreeSet::new();
    let mut lid = 1;
    while found.len() < usize::from(NODES) && lid <= NODES * 2 * lid_step {
        if let Some(guid) = probe.node_guid(lid) {
            assert!(found.insert(guid) || lid_step > 1, "two lids lead to {guid:#x}");
        }
        lid += 1;
    }
    assert_eq!(found.len(), usize::from(NODES), "nodes that answer from {at:?}");
}

#[test]
fn the_fabric_comes_up_without_a_complaint_and_every_node_answers_at_its_lid() {
    if !have(&["opensm"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let opensm = OpenSm::up(&plane, "", &[], &[]);
    opensm.assert_no_errors();
    assert_eq!(opensm.count("Entering MASTER state"), 1);
    assert_all_reachable(&plane, "", 1);
    assert_all_reachable(&plane, "node-0647 HCA-1", 1);
    // every port that has a cable is active
    let status = plane.json(&["sessions", "list"]);
    assert!(status.to_string().contains("opensm"), "{status}");
    let discovered = plane.ok(&["iblinkinfo", "-l"]);
    assert_eq!(
        discovered.lines().filter(|line| line.contains("Active/  LinkUp")).count(),
        2592,
        "{discovered}"
    );
}

#[test]
fn each_routing_engine_routes_the_fat_tree() {
    if !have(&["opensm"]) {
        return;
    }
    for engine in ["minhop", "updn", "dnup", "ftree", "lash", "dor", "sssp", "dfsssp"] {
        let plane = Plane::up(FABRIC);
        let opensm = OpenSm::up(&plane, "", &["-R", engine], &[]);
        opensm.assert_no_errors();
        assert_eq!(opensm.count(&format!("{engine} tables configured on all switches")), 1, "{engine}");
        assert_all_reachable(&plane, "node-0300 HCA-1", 1);
    }
}

#[test]
fn an_engine_that_does_not_fit_the_fabric_is_left_by_opensm_for_a_reason_it_names() {
    if !have(&["opensm"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let opensm = OpenSm::up(&plane, "", &["-Q", "-R", "torus-2QoS"], &[]);
    assert!(opensm.log().contains("torus-2QoS: cannot build fwd tables"), "{}", opensm.log());
    assert_eq!(opensm.count("minhop tables configured on all switches"), 1);
    assert_all_reachable(&plane, "", 1);
}

#[test]
fn an_lmc_of_1_gives_every_adapter_two_lids_that_both_work() {
    if !have(&["opensm", "smpquery"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let opensm = OpenSm::up(&plane, "", &["-l", "1"], &[]);
    opensm.assert_no_errors();
    assert_all_reachable(&plane, "", 2);
    let stat = plane.ok_at("node-0500 HCA-1", &["ibstat"]);
    assert!(stat.contains("LMC: 1"), "{stat}");
    let lid: u16 = stat.lines().find_map(|l| l.trim().strip_prefix("Base lid: ")).unwrap().parse().unwrap();
    assert_eq!(lid % 2, 0, "{stat}");
    let probe = Probe::open(&plane, "");
    let guid = probe.node_guid(lid).expect("the base lid");
    assert_eq!(probe.node_guid(lid + 1), Some(guid));
}

#[test]
fn partitions_of_a_configuration_file_arrive_in_the_p_key_tables() {
    if !have(&["opensm"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let (full, limited) = ("node-0001 HCA-1", "node-0002 HCA-1");
    let port = |at: &str| {
        let text = plane.ok_at(at, &["ibstat"]);
        let guid = text.lines().find_map(|line| line.trim().strip_prefix("Port GUID: ").map(str::to_owned));
        guid.unwrap()
    };
    let file = plane.path("partitions.conf");
    let text = format!(
        "Default=0x7fff, ipoib : ALL=limited, SELF=full ;\nstorage=0x1234 : {}=full, {}=limited ;\n",
        port(full),
        port(limited)
    );
    std::fs::write(&file, text).unwrap();
    let opensm = OpenSm::up(&plane, "", &["-P", file.to_str().unwrap()], &[]);
    opensm.assert_no_errors();
    let keys = |at: &str| {
        let (status, data) = Probe::open(&plane, at)
            .directed(GET, &[], attribute::P_KEY_TABLE, 0, &[])
            .expect("own P_Key table");
        assert_eq!(status, 0);
        let words = data.as_chunks::<2>().0.iter().map(|word| u16::from_be_bytes(*word));
        words.filter(|key| key & 0x7fff != 0).collect::<BTreeSet<u16>>()
    };
    assert_eq!(keys(""), BTreeSet::from([0xffff]));
    assert_eq!(keys(full), BTreeSet::from([0x7fff, 0x9234]));
    assert_eq!(keys(limited), BTreeSet::from([0x7fff, 0x1234]));
    assert_eq!(keys("node-0003 HCA-1"), BTreeSet::from([0x7fff]));
    // the tool sees the same through the plane
    let lid = Probe::open(&plane, full).directed(GET, &[], attribute::PORT_INFO, 1, &[]).unwrap().1;
    let lid = u16::from_be_bytes([lid[16], lid[17]]).to_string();
    let table = plane.ok(&["smpquery", "pkeys", &lid]);
    assert!(table.contains("0x9234"), "{table}");
}

#[test]
fn quality_of_service_sets_tables_and_limits() {
    if !have(&["opensm", "smpquery"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let config = [
        "qos_max_vls 4",
        "qos_high_limit 7",
        "qos_vlarb_high 0:3,1:5",
        "qos_vlarb_low 0:11,1:13,2:17",
        "qos_sl2vl 3,2,1,0,3,2,1,0,3,2,1,0,3,2,1,0",
    ];
    let opensm = OpenSm::up(&plane, "", &["-Q"], &config);
    opensm.assert_no_errors();
    let lid =
        Probe::open(&plane, "node-0400 HCA-1").directed(GET, &[], attribute::PORT_INFO, 1, &[]).unwrap().1;
    let lid = u16::from_be_bytes([lid[16], lid[17]]).to_string();
    let sl2vl = plane.ok(&["smpquery", "sl2vl", &lid]);
    assert!(sl2vl.contains("| 3| 2| 1| 0| 3| 2| 1| 0| 3| 2| 1| 0| 3| 2| 1| 0|"), "{sl2vl}");
    let arbitration = plane.ok(&["smpquery", "vlarb", &lid]);
    assert!(arbitration.contains("|0xB |0xD |0x11|"), "{arbitration}");
    assert!(arbitration.contains("|0x3 |0x5 |"), "{arbitration}");
    let info = plane.ok(&["smpquery", "portinfo", &lid]);
    assert!(info.contains("VLHighLimit:.....................7"), "{info}");
}
