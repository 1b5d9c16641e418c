//! What ibnetdiscover prints is the fabric that was loaded, and can be loaded again.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use madplane_topology::{ParseOptions, parse};
use support::{Graph, Plane, builtin, have, shared_fabric, skip};

/// GUID of the node at which sessions attach by default.
fn default_node(plane: &Plane) -> u64 {
    let stat = plane.ok(&["ibstat"]);
    let guid = stat.lines().find_map(|line| line.trim().strip_prefix("Node GUID: 0x")).unwrap();
    u64::from_str_radix(guid, 16).unwrap()
}

/// Loads a fabric, discovers it, compares, loads the discovered text and discovers again.
#[track_caller]
fn assert_round_trip(given: &str, fabric: &Graph, arguments: &[&str]) {
    let plane = Plane::up_with(given, arguments);
    let reachable = fabric.reachable_from(default_node(&plane));
    assert!(reachable.nodes.len() > 1, "{given}: the default port sees nothing");
    let text = plane.ok(&["ibnetdiscover"]);
    let discovered = Graph::parse_strict(&text);
    reachable.assert_same(&discovered, given);
    let file = plane.path("again.ibnetdiscover");
    std::fs::write(&file, text).unwrap();
    let again = Plane::up_with(file.to_str().unwrap(), arguments);
    let text = again.ok(&["ibnetdiscover"]);
    reachable.assert_same(&Graph::parse_strict(&text), &format!("{given}, a second time"));
}

fn assert_builtin(spec: &str) {
    if have(&["ibnetdiscover", "ibstat"]) {
        assert_round_trip(&format!("builtin:{spec}"), &Graph::of(&builtin(spec)), &[]);
    }
}

#[test]
fn a_fat_tree_of_648_hosts_is_discovered_as_it_is() {
    assert_builtin("fat-tree,radix=36,levels=2");
}

#[test]
fn a_torus_is_discovered_as_it_is() {
    assert_builtin("torus,dims=4x3x3,hosts=2");
}

#[test]
fn a_dragonfly_is_discovered_as_it_is() {
    assert_builtin("dragonfly+,groups=5");
}

#[test]
fn a_hypercube_a_ring_and_a_random_fabric_are_discovered_as_they_are() {
    assert_builtin("hypercube,dim=4,hosts=2");
    assert_builtin("ring,switches=5,hosts=3");
    assert_builtin("random,switches=12,hosts=2,links=8,seed=7");
}

#[test]
fn two_workers_on_shared_cores_discover_the_same() {
    if have(&["ibnetdiscover", "ibstat"]) {
        let spec = "fat-tree,radix=8,levels=2";
        assert_round_trip(&format!("builtin:{spec}"), &Graph::of(&builtin(spec)), &["--workers", "2"]);
    }
}

#[test]
fn real_fabrics_are_discovered_as_their_files_say() {
    if !have(&["ibnetdiscover", "ibstat"]) {
        return;
    }
    let files = [
        "ndr-dgx-582ca-2025.ibnetdiscover",
        "qdr-fdr10-144ca-2014.ibnetdiscover",
        "manpage-grouped-voltaire-2007.ibnetdiscover",
        "missing-sysimgguid-2009.ibnetdiscover",
        "loopback-cables-and-stderr-2016.ibnetdiscover",
        "sun-dcs36-no-blank-lines.ibnetdiscover",
        "ibsim-example-2sw2path4hca2port.net",
        "ibsim-example-annotated.net",
    ];
    for name in files {
        let Some(path) = shared_fabric(name) else {
            skip("the shared folder with real fabrics is not there");
            return;
        };
        let text = std::fs::read(&path).unwrap();
        let parsed = parse(&text, &ParseOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_round_trip(path_text(&path), &Graph::of(&parsed.topology), &[]);
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}
