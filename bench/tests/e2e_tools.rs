//! The stock diagnostics, unmodified, on a fabric that OpenSM has brought up.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;

use support::{Graph, OpenSm, Plane, builtin, eventually, have};

/// 32 hosts, 8 leaves, 4 spines.
const FABRIC: &str = "fat-tree,radix=8,levels=2";
const HOST: &str = "node-0009 HCA-1";
const LEAF: &str = "leaf-02";

/// A fabric that is up.
struct Up {
    // first: ends before the plane does
    _opensm: OpenSm,
    plane: Plane,
}

impl std::ops::Deref for Up {
    type Target = Plane;

    fn deref(&self) -> &Plane {
        &self.plane
    }
}

fn up(fabric: &str, tools: &[&str]) -> Option<Up> {
    if !have(tools) || !have(&["opensm", "ibstat", "saquery"]) {
        return None;
    }
    let plane = Plane::up(&format!("builtin:{fabric}"));
    // as it is, OpenSM would set what ibportstate enables back to what is supported
    let opensm = OpenSm::up(&plane, "", &[], &["force_link_speed 0"]);
    Some(Up { _opensm: opensm, plane })
}

/// The value behind a label such as `Base lid:` or `PortXmitPkts:.....`.
#[track_caller]
fn value<'a>(text: &'a str, label: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {label:?} in\n{text}")).trim_start_matches('.').trim()
}

#[track_caller]
fn number(text: &str, label: &str) -> u64 {
    value(text, label).parse().unwrap_or_else(|error| panic!("{label}: {error} in\n{text}"))
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

impl Up {
    /// LID and port GUID of an adapter.
    fn address(&self, host: &str) -> (String, String) {
        let stat = self.ok_at(host, &["ibstat"]);
        (value(&stat, "Base lid").to_owned(), value(&stat, "Port GUID").to_owned())
    }

    /// LID of any node by its description.
    fn lid(&self, description: &str) -> String {
        let lid = self.ok(&["saquery", "-L", description]);
        assert!(lid.trim().parse::<u16>().is_ok(), "{description}: {lid:?}");
        lid.trim().to_owned()
    }
}

#[test]
fn the_local_port_is_shown_by_ibstat_ibstatus_and_ibaddr() {
    let Some(up) = up(FABRIC, &["ibstat", "ibstatus", "ibaddr"]) else { return };
    let stat = up.ok_at(HOST, &["ibstat"]);
    contains(
        &stat,
        &["CA 'mlx5_0'", "State: Active", "Physical state: LinkUp", "Rate: 40", "Number of ports: 1"],
    );
    assert_eq!(number(&stat, "SM lid"), 1);
    let lid = value(&stat, "Base lid");
    assert_eq!(up.ok_at(HOST, &["ibstat", "-l"]).trim(), "mlx5_0");
    assert_eq!(up.ok_at(HOST, &["ibstat", "-p"]).trim(), value(&stat, "Port GUID"));
    let status = up.ok_at(HOST, &["ibstatus"]);
    let hexadecimal = format!("{:#x}", lid.parse::<u16>().unwrap());
    contains(&status, &["'mlx5_0' port 1", "4: ACTIVE", "5: LinkUp", "40 Gb/sec (4X QDR)", &hexadecimal]);
    let address = up.ok_at(HOST, &["ibaddr"]);
    contains(&address, &[&format!("start {hexadecimal} end {hexadecimal}")]);
    let (peer, guid) = up.address("node-0001 HCA-1");
    let by_lid = up.ok_at(HOST, &["ibaddr", &peer]);
    assert_eq!(by_lid, up.ok_at(HOST, &["ibaddr", "-G", &guid]), "by LID and by GUID");
}

#[test]
fn the_lists_of_nodes_are_complete() {
    let Some(up) = up(FABRIC, &["ibhosts", "ibswitches", "ibnodes", "iblinkinfo", "ibidsverify"]) else {
        return;
    };
    let fabric = Graph::of(&builtin(FABRIC));
    for (tool, letters) in [("ibhosts", "H"), ("ibswitches", "S"), ("ibnodes", "HS")] {
        let text = up.ok(&[tool]);
        let wanted: Vec<_> = fabric.nodes.iter().filter(|(_, about)| letters.contains(about.0)).collect();
        assert!(wanted.len() > 10);
        assert_eq!(text.lines().count(), wanted.len(), "{tool}:\n{text}");
        for (guid, (_, ports, description)) in wanted {
            let expected = format!(": 0x{guid:016x} ports {ports} \"{description}\"");
            assert!(text.contains(&expected), "{tool} does not know {expected}:\n{text}");
        }
    }
    let links = up.ok(&["iblinkinfo", "-l"]);
    assert_eq!(links.lines().filter(|line| line.contains("Active/  LinkUp")).count(), fabric.links.len() * 2);
    assert_eq!(up.ok(&["ibidsverify"]), "", "all LIDs and GUIDs are unique");
}

#[test]
fn smpquery_reads_everything_by_lid_by_directed_and_by_combined_route() {
    let Some(up) = up(FABRIC, &["smpquery", "smpdump"]) else { return };
    let (leaf, (host, guid)) = (up.lid(LEAF), up.address(HOST));
    let query = |arguments: &[&str]| up.ok(&[&["smpquery"], arguments].concat());
    let info = query(&["nodeinfo", &host]);
    contains(&info, &["Channel Adapter", &format!("PortGuid:........................{guid}")]);
    contains(&query(&["nodeinfo", &leaf]), &["Switch", "NumPorts:........................8"]);
    assert!(query(&["nodedesc", &host]).trim_end().ends_with(HOST));
    assert!(query(&["-G", "nodedesc", &guid]).trim_end().ends_with(HOST), "by GUID");
    let port = query(&["portinfo", &host, "1"]);
    assert_eq!(value(&port, "Lid"), host);
    contains(&port, &["LinkState:.......................Active", "LinkWidthActive:.................4X"]);
    let switch = query(&["switchinfo", &leaf]);
    assert_eq!(number(&switch, "LinearFdbCap"), 49152, "LIDs 0 to 49151");
    assert!(number(&switch, "LinearFdbTop") >= 44);
    contains(&query(&["pkeys", &host]), &["0xffff"]);
    assert_eq!(query(&["pkeys", &host]), query(&["pkeys", &host, "1"]), "an adapter's port may be named");
    contains(&query(&["pkeys", &leaf, "3"]), &["0xffff"]);
    assert_eq!(query(&["sl2vl", &leaf, "2"]).lines().count(), 2 + 9, "one line per input");
    contains(&query(&["sl2vl", &host]), &["| 0| 1| 2| 3| 4| 5| 6| 7|"]);
    contains(&query(&["vlarb", &leaf, "1"]), &["Low priority", "High priority", "WEIGHT"]);
    contains(&query(&["vlarb", &host, "1"]), &["Low priority", "High priority", "WEIGHT"]);
    contains(&query(&["guidinfo", &host]).to_lowercase(), &[&guid.to_lowercase()]);
    // a directed route to the own switch and on; the same by LID to the switch and one step from there
    let own = query(&["-D", "nodeinfo", "0,1"]);
    let own_lid = up.lid("leaf-00");
    let strip = |text: String| {
        text.lines().filter(|l| !l.starts_with('#') && !l.contains("LocalPort")).collect::<String>()
    };
    assert_eq!(strip(own), strip(query(&["nodeinfo", &own_lid])));
    assert!(query(&["-D", "nodedesc", "0,1,2"]).trim_end().ends_with("node-0001 HCA-1"));
    assert!(query(&["-c", "nodedesc", &own_lid, "0,2"]).trim_end().ends_with("node-0001 HCA-1"), "combined");
    // attributes that this hardware does not have are refused, as by hardware without them
    for operation in ["mepi", "PortInfoExtended"] {
        let ran = up.run(&["smpquery", operation, &host, "1"]);
        assert_ne!(ran.code, Some(0), "{operation}: {ran}");
        assert!(ran.out.contains("iberror"), "{operation}: {ran}");
    }
    let dump = up.ok(&["smpdump", "-D", "0,1", "0x11"]);
    assert!(dump.starts_with("0101 0208"), "NodeInfo of a switch with 8 ports: {dump}");
    contains(&dump, &["SMP status: 0x8000"]);
    assert!(
        up.ok(&["smpdump", &host, "0x10"]).starts_with("6e6f 6465 2d30 3030 39"),
        "the description's letters"
    );
}

#[test]
fn the_subnet_manager_is_seen_by_sminfo() {
    let Some(up) = up(FABRIC, &["sminfo"]) else { return };
    contains(&up.ok(&["sminfo"]), &["sm lid 1", "state 3 SMINFO_MASTER"]);
    let count = |text: String| {
        let after = text.split("activity count ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        after.parse::<u64>().unwrap()
    };
    let first = count(up.ok_at(HOST, &["sminfo"]));
    eventually("the activity count moves", || count(up.ok_at(HOST, &["sminfo"])) > first);
}

#[test]
fn routes_shown_by_ibroute_are_those_that_ibtracert_walks() {
    let Some(up) = up(FABRIC, &["ibroute", "ibtracert", "dump_lfts", "dump_mfts", "dump_fts"]) else {
        return;
    };
    let (host, _) = up.address(HOST);
    let leaf = up.lid("leaf-00");
    let table = up.ok(&["ibroute", &leaf]);
    assert_eq!(table.lines().filter(|line| line.contains("portguid")).count(), 44, "{table}");
    let wanted = format!("{:#06x} ", host.parse::<u16>().unwrap());
    let line =
        table.lines().find(|line| line.starts_with(&wanted)).unwrap_or_else(|| panic!("{wanted} in {table}"));
    let exit: u8 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    contains(line, &[HOST]);
    let trace = up.ok(&["ibtracert", "1", &host]);
    contains(&trace, &["From ca", "\"node-0000 HCA-1\"", "To ca {", &format!("\"{HOST}\"")]);
    let hops: Vec<&str> = trace.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(hops.len(), 4, "leaf, spine, leaf, host: {trace}");
    assert!(hops[1].starts_with(&format!("[{exit}] ")), "ibroute says {exit}: {trace}");
    let all = up.ok(&["dump_lfts"]);
    assert_eq!(all.lines().filter(|line| line.starts_with("Unicast lids")).count(), 12);
    assert_eq!(all.lines().filter(|line| line.contains("portguid")).count(), 12 * 44);
    let multicast = up.ok(&["ibroute", "-M", &leaf]);
    contains(&multicast, &["Multicast mlids", "valid mlids dumped"]);
    let groups = up.ok(&["dump_mfts"]);
    assert_eq!(groups.lines().filter(|line| line.starts_with("Multicast mlids")).count(), 12);
    contains(&up.ok(&["dump_fts"]), &["Unicast lids"]);
}

#[test]
fn counters_move_at_the_right_ports_and_can_be_reset() {
    let Some(up) = up(FABRIC, &["perfquery", "ibqueryerrors", "ibping"]) else { return };
    contains(
        &up.ok(&["ibqueryerrors"]),
        &["44 nodes checked, 0 bad nodes found", "128 ports checked, 0 ports have errors"],
    );
    let (host, other) = (up.address(HOST).0, up.address("node-0020 HCA-1").0);
    let leaf = up.lid(LEAF);
    // node-0009 is on port 2 of leaf-02, node-0010 on port 3
    let packets = |lid: &str, port: &str| {
        let text = up.ok(&["perfquery", "-x", lid, port]);
        (number(&text, "PortXmitPkts"), number(&text, "PortRcvPkts"))
    };
    let before = [packets(&leaf, "2"), packets(&leaf, "3"), packets(&other, "1")];
    for _ in 0..10 {
        up.ok(&["smpquery", "nodeinfo", &host]);
    }
    let after = [packets(&leaf, "2"), packets(&leaf, "3"), packets(&other, "1")];
    // smpquery asks one to two MADs a time
    assert!(after[0].0 >= before[0].0 + 10, "to the host: {before:?} {after:?}");
    assert!(after[0].1 >= before[0].1 + 10, "from the host: {before:?} {after:?}");
    assert_eq!(after[1], before[1], "nothing at its neighbour");
    // asking the third is the only traffic there: ClassPortInfo and counters, twice
    assert!(after[2].0 - before[2].0 <= 4, "{before:?} {after:?}");
    let plain = up.ok(&["perfquery", &leaf, "2"]);
    assert_eq!(number(&plain, "SymbolErrorCounter"), 0);
    assert!(number(&plain, "PortXmitPkts") >= 10, "{plain}");
    let all = up.ok(&["perfquery", "-a", &leaf]);
    assert_eq!(number(&all, "PortSelect"), 255);
    assert!(number(&all, "PortXmitPkts") > number(&plain, "PortXmitPkts"), "sum over the ports");
    assert_eq!(up.ok(&["perfquery", "-l", "-a", &leaf]).matches("# Port counters").count(), 8);
    up.ok(&["perfquery", "-r", &leaf, "2"]);
    assert!(number(&up.ok(&["perfquery", &leaf, "2"]), "PortXmitPkts") < 10, "reset after read");
    up.ok(&["perfquery", "-a", "-r", &leaf]);
    let quiet = up.ok(&["perfquery", &leaf, "3"]);
    assert_eq!(
        (number(&quiet, "PortXmitPkts"), number(&quiet, "PortRcvPkts")),
        (0, 0),
        "all ports were reset"
    );
}

#[test]
fn ibportstate_switches_a_port_off_and_on_and_changes_its_rate() {
    let Some(up) = up(FABRIC, &["ibportstate", "smpquery"]) else { return };
    let leaf = up.lid(LEAF);
    let state = |arguments: &[&str]| up.ok(&[&["ibportstate", &leaf], arguments].concat());
    let wait = |port: &str, wanted: &[&str]| {
        eventually(&format!("port {port} shows {wanted:?}"), || {
            let text = state(&[port, "query"]);
            let own = text.split("Peer PortInfo").next().unwrap();
            wanted.iter().all(|wanted| own.contains(wanted))
        });
    };
    let query = state(&["2", "query"]);
    contains(&query, &["Switch PortInfo", "Peer PortInfo", "LinkState:.......................Active"]);
    assert_eq!(value(query.split("Peer PortInfo").nth(1).unwrap(), "Lid"), up.address(HOST).0);
    state(&["2", "disable"]);
    wait("2", &["PhysLinkState:...................Disabled", "LinkState:.......................Down"]);
    assert_ne!(up.run(&["smpquery", "nodeinfo", "-D", "0,1,5,3,2"]).code, Some(0));
    state(&["2", "enable"]);
    // the link trains by itself and the switch reports it: OpenSM comes without being asked
    wait("2", &["PhysLinkState:...................LinkUp", "LinkState:.......................Active"]);
    state(&["5", "reset"]);
    wait("5", &["LinkState:.......................Active"]);
    // what is enabled counts at the next training
    state(&["6", "speed", "2"]);
    state(&["6", "width", "1"]);
    state(&["6", "reset"]);
    wait(
        "6",
        &[
            "LinkSpeedActive:.................5.0 Gbps",
            "LinkWidthActive:.................1X",
            "LinkState:.......................Active",
        ],
    );
    let links = up.ok(&["iblinkinfo", "-l"]);
    assert_eq!(links.lines().filter(|line| line.contains("( 1X           5.0 Gbps")).count(), 2, "{links}");
}

#[test]
fn ibping_and_ibsysstat_reach_a_server_on_another_node_by_lid_and_by_guid() {
    let Some(up) = up(FABRIC, &["ibping", "ibsysstat"]) else { return };
    let (lid, guid) = up.address(HOST);
    let silent = up.run_at("node-0001 HCA-1", &["ibping", "-c", "1", &lid]);
    contains(&silent.out, &["1 packets transmitted, 0 received"]);
    let mut server = up.spawn_at(HOST, &["ibping", "-S"]);
    eventually("the server answers", || {
        up.run_at("node-0001 HCA-1", &["ibping", "-c", "1", &lid]).out.contains("1 received")
    });
    for address in [&[lid.as_str()][..], &["-G", &guid]] {
        let text = up.ok_at("node-0001 HCA-1", &[&["ibping", "-c", "5"], address].concat());
        contains(&text, &["5 packets transmitted, 5 received, 0% packet loss"]);
        assert_eq!(text.matches("Pong from").count(), 5);
    }
    assert!(server.ended().is_none());
    let _system = up.spawn_at("node-0020 HCA-1", &["ibsysstat", "-S"]);
    let other = up.address("node-0020 HCA-1").0;
    eventually("the other server answers", || {
        up.run_at("node-0001 HCA-1", &["ibsysstat", &other]).out.contains("sysstat ping succeeded")
    });
    contains(&up.ok_at("node-0001 HCA-1", &["ibsysstat", &other, "cpu"]), &["cpu 0:"]);
}

#[test]
fn saquery_returns_all_702_nodes_and_every_kind_of_record() {
    let Some(large) = up("fat-tree,radix=36,levels=2", &["saquery"]) else { return };
    let nodes = large.ok(&["saquery", "NR"]);
    assert_eq!(nodes.matches("NodeRecord dump").count(), 702);
    let fabric = Graph::of(&builtin("fat-tree,radix=36,levels=2"));
    for guid in fabric.nodes.keys() {
        assert!(nodes.contains(&format!("node_guid...............0x{guid:016x}")), "{guid:#x}");
    }
    let ports = large.ok(&["saquery", "PIR"]);
    assert_eq!(ports.matches("PortInfoRecord dump").count(), 648 + 54 * 37);
    let links = large.ok(&["saquery", "LR"]);
    assert_eq!(links.matches("LinkRecord dump").count(), 2592, "both directions");
    drop(large);
    let up = up(FABRIC, &[]).unwrap();
    let counts = BTreeMap::from([
        ("NR", 44),
        ("PIR", 32 + 12 * 9),
        ("SWIR", 12),
        ("LR", 128),
        ("SMIR", 1),
        ("PR", 44 * 44),
        ("LFTR", 12),
        ("GIR", 32 + 12 * 9),
        ("MCMR", 1),
        ("CPI", 1),
        ("SL2VL", 32 + 12 * 9 * 9),
        ("VLAR", 0),
        ("SR", 0),
        ("IIR", 0),
        ("MFTR", 0),
    ]);
    let heads =
        |text: &str| text.lines().filter(|line| !line.starts_with('\t') && line.ends_with(':')).count();
    let mut wrong = Vec::new();
    for (record, count) in counts {
        let text = up.ok(&["saquery", record]);
        if heads(&text) != count && count != 0 {
            wrong.push((record, count, heads(&text)));
        }
    }
    assert_eq!(wrong, [], "record, wanted, got");
    // the keys of a trusted requester
    contains(&up.ok(&["saquery", "PKTR", "--smkey", "1"]), &["PKeyTableRecord dump"]);
    contains(&up.ok(&["saquery", "VLAR"]), &["VLArbTableRecord dump"]);
    assert_eq!(up.ok(&["saquery", "-O", "1"]).trim(), "node-0000 HCA-1");
    contains(
        &up.ok(&["saquery", "-p", "--src-to-dst", "1:2"]),
        &["PathRecord dump", "slid....................1"],
    );
    contains(&up.ok(&["saquery", "-s"]), &["IsSM ports"]);
    contains(&up.ok(&["saquery", "--list"]), &["node-0031 HCA-1"]);
}

#[test]
fn osmtest_passes_all_its_flows() {
    let Some(up) = up(FABRIC, &["osmtest"]) else { return };
    let inventory = up.path("inventory.dat");
    let log = up.path("osmtest.log");
    for (flow, name) in [
        ("c", "Create Inventory"),
        ("v", "Validate Inventory"),
        ("s", "Services Registration"),
        ("e", "Event Forwarding"),
        ("q", "QoS: VLArb and SLtoVL"),
        ("m", "Multicast"),
        ("f", "Stress SA"),
    ] {
        let (inventory, log) = (inventory.to_str().unwrap(), log.to_str().unwrap());
        let text = up.ok(&["osmtest", "-f", flow, "-i", inventory, "-l", log, "-m", "0x40"]);
        contains(&text, &[&format!("TEST \"{name}\" PASS")]);
    }
    let text = std::fs::read_to_string(&inventory).unwrap();
    assert_eq!(text.matches("DEFINE_NODE").count(), 44);
}

#[test]
fn ibdiagnet_finds_nothing_wrong() {
    // its queries time out after 100 ms and it takes that for a bad link: a small fabric
    let Some(up) = up("fat-tree,radix=4,levels=2", &["ibdiagnet"]) else { return };
    let folder = up.path("ibdiagnet");
    let text = up.ok(&["ibdiagnet", "-lw", "4x", "-ls", "10", "-o", folder.to_str().unwrap()]);
    contains(
        &text,
        &[
            "14 nodes (6 Switches & 8 CA-s) discovered",
            "No bad Guids were found",
            "No bad Links (with logical state = INIT) were found",
            "No illegal PM counters values were found",
            "No unmatched Links (with width != 4x) were found",
            "No unmatched Links (with speed != 10) were found",
            "PKey:0x7fff Hosts:8 full:8 limited:0",
            "-I- Done",
        ],
    );
    assert!(!text.contains("-E-"), "{text}");
}
