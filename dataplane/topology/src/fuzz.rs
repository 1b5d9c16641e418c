//! Body of the fuzz target: any bytes, every option, all promises.
//!
//! Shared by the tests of this crate and by fuzz targets outside; panics where a promise is broken.

use crate::{NodeKind, ParseOptions, Parsed, Topology, check, find_node, parse, to_ibnetdiscover};

/// Parses `data` with every set of options and checks what comes out.
///
/// # Panics
/// If an accepted graph is unsound or does not survive being written and read, or an error is not one line.
pub fn fuzz_parse(data: &[u8]) {
    // The text includes itself once in a while, and a missing file otherwise.
    let loader =
        |name: &str| if name.len().is_multiple_of(2) { Ok(data.to_vec()) } else { Err("absent".to_string()) };
    for (strict, stub_undefined) in [(false, false), (false, true), (true, false)] {
        let options = ParseOptions { strict, stub_undefined, loader: Some(&loader) };
        match parse(data, &options) {
            Ok(parsed) => check_parsed(&parsed),
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains('\n') && error.line > 0 && error.column > 0, "{text:?}");
            }
        }
    }
}

fn check_parsed(parsed: &Parsed) {
    let topology = &parsed.topology;
    assert_sound(topology);
    let text = to_ibnetdiscover(topology);
    let again = parse(&text, &ParseOptions::default()).expect("emitted text is accepted");
    assert!(again.topology == *topology, "emitted text reads back differently:\n{text}");
    let _ = find_node(topology, &topology.nodes[0].description);
}

fn assert_sound(topology: &Topology) {
    let report = check(topology);
    assert!(report.is_sound(), "{report}");
    assert!(!topology.nodes.is_empty());
    for node in &topology.nodes {
        assert!((1..=254).contains(&node.num_ports()));
        assert_eq!(node.ports.len(), usize::from(node.num_ports()) + 1);
        assert!(node.guid != 0 && node.description.len() <= 64 && node.vendor_id < 1 << 24);
        let switch = node.kind == NodeKind::Switch;
        assert!(node.ports[0].peer.is_none());
        for (number, port) in node.ports.iter().enumerate() {
            assert_eq!(port.guid != 0, switch == (number == 0), "guid of port {number}");
            assert!(port.lid <= 0xbfff && port.lmc <= 7);
        }
    }
}
