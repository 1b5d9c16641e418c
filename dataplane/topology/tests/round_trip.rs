//! Written and read again, a fabric is the same; and no bytes whatever make the parser panic or break a promise.
#![allow(clippy::print_stdout, reason = "tests say what they skip and which seed they use")]

use std::path::PathBuf;

use madplane_topology::{
    LinkSpeed, LinkWidth, Name, Node, NodeKind, ParseOptions, PortRef, Topology, from_spec, fuzz_parse,
    parse, to_ibnetdiscover,
};
use proptest::prelude::*;

fn assert_survives(topology: &Topology, what: &str) {
    let text = to_ibnetdiscover(topology);
    let parsed = parse(&text, &ParseOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}\n{text}"));
    assert!(parsed.topology == *topology, "{what} reads back differently:\n{text}");
    let expected = |message: &str| message.contains("parts without a link");
    assert!(parsed.warnings.iter().all(|w| expected(&w.message)), "{what}: {:?}", parsed.warnings);
}

#[test]
fn every_generated_fabric_survives() {
    for spec in [
        "fat-tree",
        "fat-tree,radix=8,levels=3,hosts=100",
        "fat-tree,radix=4,levels=4,rate=2xHDR",
        "torus,dims=3x3x3,hosts=2,rate=4xFDR10",
        "torus,dims=2x1",
        "hypercube,dim=6,rate=1xXDR",
        "dragonfly+,groups=9,rate=8xNDR",
        "ring,switches=2,rate=12xDDR",
        "random,switches=50,links=80,seed=3",
    ] {
        assert_survives(&from_spec(spec).expect(spec), spec);
    }
}

#[test]
fn a_strict_reader_accepts_what_is_written() {
    let topology = from_spec("dragonfly+").expect("the default");
    let strict = ParseOptions { strict: true, ..ParseOptions::default() };
    assert_eq!(parse(to_ibnetdiscover(&topology), &strict).expect("sound").topology, topology);
}

const WIDTHS: [LinkWidth; 5] = [LinkWidth::X1, LinkWidth::X2, LinkWidth::X4, LinkWidth::X8, LinkWidth::X12];

/// A node without cables; GUIDs are told apart by `index` unless the small ones are asked for.
fn node(index: usize) -> impl Strategy<Value = Node> {
    let kind = prop_oneof![Just(NodeKind::Ca), Just(NodeKind::Switch), Just(NodeKind::Router)];
    // Quotes, hashes, brackets, blanks at both ends: all of it may stand in a description.
    let description = "[ -~é]{0,31}";
    (
        kind,
        1u8..8,
        description,
        any::<bool>(),
        0u32..1 << 24,
        any::<u16>(),
        any::<u64>(),
        0u16..0xc000,
        0u8..8,
    )
        .prop_map(move |(kind, ports, description, enhanced, vendor, device, image, lid, lmc)| {
            let base = if image % 5 == 0 { 0x1 } else { 0xffff_0000_0000_0000 };
            let guid = base + u64::try_from(index).expect("small") * 16;
            let mut node = Node::new(kind, guid, ports, description);
            node.vendor_id = vendor;
            node.device_id = device;
            node.system_image_guid = image;
            node.enhanced_port0 = enhanced && kind == NodeKind::Switch;
            if kind == NodeKind::Switch {
                (node.ports[0].lid, node.ports[0].lmc) = (lid, lmc);
            } else {
                let last = usize::from(ports);
                (node.ports[last].lid, node.ports[last].lmc) = (lid, lmc);
                if image % 3 == 0 {
                    node.ports[last].guid = guid + 9;
                }
            }
            node
        })
}

fn fabric() -> impl Strategy<Value = Topology> {
    let nodes = (1usize..12).prop_flat_map(|count| (0..count).map(node).collect::<Vec<_>>());
    let cable =
        (any::<prop::sample::Index>(), 1u8..8, any::<prop::sample::Index>(), 1u8..8, 0usize..5, 0usize..9);
    (nodes, prop::collection::vec(cable, 0..40), any::<bool>()).prop_map(|(nodes, cables, named)| {
        let mut topology = Topology { nodes, names: Vec::new() };
        for (a, a_port, b, b_port, width, speed) in cables {
            let end = |index: prop::sample::Index, port| {
                let node = u32::try_from(index.index(topology.nodes.len())).expect("small");
                PortRef { node, port }
            };
            let (a, b) = (end(a, a_port), end(b, b_port));
            let names = ["SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR"];
            let speed = LinkSpeed::from_name(names[speed]).expect("a name of the table");
            // Ports that do not exist or are taken stay as they are.
            let _ = topology.connect(a, b, WIDTHS[width], speed);
        }
        if named {
            topology.names.push(Name { name: "rack#a b".into(), end: PortRef { node: 0, port: 0 } });
            topology.names.push(Name { name: "rack@up".into(), end: PortRef { node: 0, port: 1 } });
        }
        topology
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_sound_fabric_survives(topology in fabric()) {
        assert_survives(&topology, "random fabric");
    }
}

/// Small texts that between them use everything the language has.
const SEEDS: &[&str] = &[
    "vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x10\nswitchguid=0x10(10)\nSwitch\t8 \"S-0000000000000010\"\t\t# \"sw;1:a\" \
     enhanced port 0 lid 7 lmc 0\n[1]\t\"H-0000000000000020\"[1](21) \t\t# \"h 1\" lid 9 4xQDR\n[2][ext 3]\t\
     \"S-0000000000000010\"[3]\t\t# \"sw;1:a\" lid 7 4xFDR10\n\ncaguid=0x20\nCa\t1 \"H-0000000000000020\"\t\t# \"h 1\"\n\
     [1](21) \t\"S-0000000000000010\"[1]\t\t# lid 9 lmc 1 \"sw;1:a\" lid 7 4xQDR\n",
    "module=\"m\"\nwidth=2\nspeed=4\nextspeed=1\nswitchguid+5\nSwitch 4 \"a\"\n@[4] \"up\" w=8\n[1] \"b\"[1] w=3 s=0 e=2\n\n\
     hcaguids=0x500\nHca 2 \"b\"\n[1] \"m#a\"\n\ninclude \"x\"\ndo Start\npdebug=1\nRt 1 \"r\" # free text lid 3\n[1] \"@up\"\n",
    "Chassis 1 (guid 0x1)\n\nNon-Chassis Nodes\n\n#: name \"q\"\nSwitch 3 \"S-00000000000000ff\" # \"x\" base port 0 lid\n\
     #: name \"q\"\n#: port 2 guid 0x77 lid 3 lmc 2\n[1](1) \"S-00000000000000ff\"[1] # \"x\" lid 70000 1xXDR\n",
];

#[test]
fn no_bytes_break_the_parser() {
    let mut texts: Vec<Vec<u8>> = SEEDS.iter().map(|text| text.as_bytes().to_vec()).collect();
    texts.extend(corpus());
    for text in &texts {
        fuzz_parse(text);
    }
    let seed: u64 = match std::env::var("MADPLANE_SEED") {
        Ok(text) => text.parse().expect("MADPLANE_SEED is a number"),
        Err(_) => 0x5eed,
    };
    println!("seed {seed} (set MADPLANE_SEED for another)");
    let mut state = seed;
    let mut random = move |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % bound.max(1)
    };
    let pieces: &[&[u8]] = &[
        b"\"",
        b"[",
        b"]",
        b"(",
        b")",
        b"#",
        b"@",
        b"=",
        b"\n",
        b"\n\n",
        b"\r\n",
        b"0",
        b"1",
        b"255",
        b"65536",
        b"-",
        b" ",
        b"Switch 3 \"z\"\n",
        b"[1] \"z\"[2]\n",
        b"Ca 1 \"c\"\n",
        b"lid ",
        b"\xff",
        b"\0",
        b"99999999999999999999",
        b"switchguid=0x10\n",
        b"caguid=0x0\n",
        b"#: port 1 guid 0x10\n",
        b"include \"ab\"\n",
        b"4xQDR",
    ];
    for round in 0..3000 {
        let mut text = texts[round % texts.len()].clone();
        // Long texts cost time, so a window of them is mutated.
        if text.len() > 4000 {
            let start = random(text.len() - 4000);
            text = text[start..start + 4000].to_vec();
        }
        for _ in 0..=random(6) {
            let at = random(text.len() + 1);
            match random(5) {
                0 => text.truncate(at),
                1 if at < text.len() => text[at] = u8::try_from(random(256)).expect("a byte"),
                2 => {
                    let end = text.len().min(at + random(40));
                    text.drain(at..end);
                }
                3 => {
                    let end = text.len().min(at + random(300));
                    let copy = text[at..end].to_vec();
                    let to = random(text.len() + 1);
                    text.splice(to..to, copy);
                }
                _ => {
                    let piece = pieces[random(pieces.len())];
                    text.splice(at..at, piece.iter().copied());
                }
            }
        }
        if let Err(panic) = std::panic::catch_unwind(|| fuzz_parse(&text)) {
            println!("seed {seed} round {round}: {:?}", String::from_utf8_lossy(&text));
            std::panic::resume_unwind(panic);
        }
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let shared = std::env::var_os("MADPLANE_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(shared.join("fabrics")) else {
        println!("no folder of fabrics: only the built-in texts are mutated");
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("readable file")).collect()
}
