use super::*;
use crate::check::check;
use crate::graph::NodeKind;

fn spec(text: &str) -> Topology {
    from_spec(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Switches, adapters, links.
fn size(topology: &Topology) -> (usize, usize, usize) {
    let report = check(topology);
    assert!(report.is_sound(), "{report}");
    assert!(report.is_connected(), "{report}");
    assert_eq!(report.shared_descriptions, 0, "{report}");
    (report.switches, report.adapters, report.links)
}

#[test]
fn fat_trees_have_the_sizes_of_the_books() {
    assert_eq!(size(&spec("builtin:fat-tree")), (54, 648, 648 + 36 * 18));
    assert_eq!(size(&spec("builtin:fat-tree,radix=36,levels=2")), (54, 648, 1296));
    assert_eq!(size(&spec("fat-tree,radix=36,levels=3")), (1620, 11_664, 3 * 11_664));
    assert_eq!(size(&spec("fat-tree,radix=8,levels=4")), (448, 512, 4 * 512));
    assert_eq!(size(&spec("fat-tree,radix=4,levels=3")), (20, 16, 48));
    assert_eq!(size(&spec("fat-tree,radix=36,levels=2,hosts=10")), (54, 10, 658));
}

#[test]
fn a_fat_tree_gives_every_leaf_pair_every_top_switch() {
    let tree = spec("fat-tree,radix=4,levels=3");
    let climb = |leaf: u32| {
        let mut level = std::collections::BTreeSet::from([leaf]);
        for _ in 0..2 {
            level = level
                .iter()
                .flat_map(|node| tree.nodes[*node as usize].ports[3..].iter().filter_map(|p| p.peer))
                .map(|peer| peer.node)
                .collect();
        }
        level
    };
    for leaf in 0..8 {
        assert_eq!(climb(leaf), climb(0));
        assert_eq!(climb(leaf).len(), 4);
    }
}

#[test]
fn grids_have_their_links() {
    assert_eq!(size(&spec("torus,dims=4x3x2,hosts=2")), (24, 48, 24 + 24 + 12 + 48));
    assert_eq!(size(&spec("torus,dims=1x1,hosts=1")), (1, 1, 1));
    assert_eq!(size(&spec("torus")), (64, 64, 3 * 64 + 64));
    assert_eq!(size(&spec("hypercube,dim=5,hosts=3")), (32, 96, 80 + 96));
    assert_eq!(size(&spec("ring,switches=5,hosts=0")), (5, 0, 5));
    assert_eq!(size(&spec("ring,switches=2")), (2, 2, 3));
}

#[test]
fn a_dragonfly_links_every_pair_of_groups() {
    assert_eq!(size(&spec("dragonfly+")), (40, 80, 5 * 16 + 10 + 80));
    assert_eq!(size(&spec("dragonfly+,groups=7,leaf=2,spine=3,hosts=1,global=2")), (35, 14, 7 * 6 + 42 + 14));
    assert_eq!(size(&spec("dragonfly+,groups=1")), (8, 16, 32));
}

#[test]
fn random_fabrics_follow_their_seed() {
    let a = spec("random,switches=40,hosts=3,links=60,seed=7");
    assert_eq!(size(&a), (40, 120, 39 + 60 + 120));
    assert_eq!(a, spec("random,switches=40,hosts=3,links=60,seed=7"));
    assert_ne!(a, spec("random,switches=40,hosts=3,links=60,seed=8"));
    assert_eq!(size(&spec("random,switches=1,hosts=0,links=0")), (1, 0, 0));
}

#[test]
fn nodes_have_readable_names_and_guids_of_their_kind() {
    let t = spec("fat-tree,radix=4,levels=2,rate=4xNDR");
    assert_eq!(t.nodes[0].description, "leaf-00");
    assert_eq!(t.nodes[5].description, "spine-01");
    assert_eq!(t.nodes[6].description, "node-0000 HCA-1");
    assert_eq!(t.nodes[5].guid, 0x026d_7002_0000_0005);
    assert_eq!(t.nodes[7].guid, 0x026d_7001_0000_0100);
    assert_eq!(t.nodes[7].ports[1].guid, 0x026d_7001_0000_0101);
    assert_eq!(t.nodes[7].ports[1].speed, LinkSpeed::Ndr);
    assert_eq!(t.nodes[7].kind, NodeKind::Ca);
}

#[test]
fn nonsense_is_refused_with_what_is_accepted() {
    let cases = [
        (
            "fattree",
            "unknown kind of fabric \"fattree\", did you mean \"fat-tree\"? \
             (accepted: fat-tree, torus, hypercube, dragonfly+, ring, random)",
        ),
        (
            "fat-tree,radx=4",
            "fat-tree has no parameter \"radx\", did you mean \"radix\"? (accepted: radix, levels, hosts, rate)",
        ),
        ("fat-tree,radix=7", "radix=7 is not valid, wanted is an even number from 2 to 254"),
        ("fat-tree,radix=0", "radix=0 is not valid, wanted is a number from 2 to 254"),
        (
            "fat-tree,radix=99999999999999999999",
            "radix=99999999999999999999 is not valid, wanted is a number from 2 to 254",
        ),
        ("fat-tree,levels=5", "levels=5 is not valid, wanted is a number from 2 to 4"),
        (
            "fat-tree,radix=4,hosts=9",
            "hosts=9 is not valid, wanted is at most 8 for this radix and number of levels",
        ),
        ("fat-tree,radix=36,levels=4", "250776 nodes are more than the 49151 that unicast lids suffice for"),
        ("fat-tree,radix", "\"radix\" is not of the form name=value"),
        ("fat-tree,radix=4,radix=4", "parameter radix is given twice"),
        (
            "fat-tree,rate=5xQDR",
            "rate=5xQDR is not valid, wanted is width and speed such as 4xEDR (1, 2, 4, 8, 12; SDR to XDR, FDR10)",
        ),
        ("torus,dims=4x0", "dims=4x0 is not valid, wanted is one to six sizes of at least 1, such as 4x4x4"),
        ("torus,dims=4*4", "dims=4*4 is not valid, wanted is sizes such as 4x4x4"),
        ("torus,dims=4x4,hosts=251", "a switch would need 255 ports, 254 are possible"),
        (
            "torus,dims=99999999999x99999999999",
            "18446744073709551615 nodes are more than the 49151 that unicast lids suffice for",
        ),
        ("ring,switches=1", "switches=1 is not valid, wanted is a number from 2 to 49151"),
        ("hypercube,dim=16", "dim=16 is not valid, wanted is a number from 1 to 15"),
        ("dragonfly+,groups=300,spine=1", "a switch would need 303 ports, 254 are possible"),
        (
            "random,switches=2,hosts=0,links=254",
            "links=254 is not valid, wanted is fewer links, these switches have no ports for more than 254",
        ),
        ("random,switches=3,hosts=253", "a switch would need 255 ports, 254 are possible"),
    ];
    for (text, expected) in cases {
        assert_eq!(from_spec(text).expect_err(text).to_string(), expected, "{text}");
    }
}
