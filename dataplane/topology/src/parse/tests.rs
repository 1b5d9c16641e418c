use super::*;
use crate::check::check;
use crate::graph::{LinkSpeed, LinkWidth, NodeKind, PortRef};

fn lenient(text: &str) -> Parsed {
    parse(text, &ParseOptions::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn warnings(text: &str) -> Vec<String> {
    lenient(text).warnings.iter().map(ToString::to_string).collect()
}

fn refusal(text: &str, options: &ParseOptions<'_>) -> String {
    parse(text, options).expect_err(text).to_string()
}

const STRICT: ParseOptions<'static> = ParseOptions { strict: true, stub_undefined: false, loader: None };
const STUBS: ParseOptions<'static> = ParseOptions { strict: false, stub_undefined: true, loader: None };

/// A fault that is a warning as a rule and refuses when strict, with the same words.
fn assert_fault(text: &str, expected: &str) {
    let found = warnings(text);
    assert!(found.iter().any(|w| w == expected), "expected {expected:?}\nfound {found:#?}\n{text}");
    assert_eq!(refusal(text, &STRICT), expected);
}

fn rate(parsed: &Parsed, node: usize, port: usize) -> (LinkWidth, LinkSpeed) {
    let port = &parsed.topology.nodes[node].ports[port];
    assert!(port.peer.is_some());
    (port.width, port.speed)
}

const PAIR: &str = "\
vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x2c90300000013\nswitchguid=0x2c90300000010(2c90300000010)\n\
Switch\t36 \"S-0002c90300000010\"\t\t# \"MF0;leaf:X/U1\" enhanced port 0 lid 7 lmc 0\n\
[3]\t\"H-0002c90300000020\"[1](2c90300000021) \t\t# \"node HCA-1\" lid 9 4xHDR\n\
\nvendid=0x2c9\ndevid=0x101b\nsysimgguid=0x2c90300000023\ncaguid=0x2c90300000020\n\
Ca\t2 \"H-0002c90300000020\"\t\t# \"node HCA-1\"\n\
[1](2c90300000021) \t\"S-0002c90300000010\"[3]\t\t# lid 9 lmc 2 \"MF0;leaf:X/U1\" lid 7 4xHDR\n";

#[test]
fn every_field_of_a_record_arrives() {
    let parsed = lenient(PAIR);
    assert_eq!(parsed.warnings, []);
    let [switch, host] = &parsed.topology.nodes[..] else { panic!("two nodes") };
    assert_eq!(
        (switch.kind, switch.guid, switch.system_image_guid),
        (NodeKind::Switch, 0x2_c903_0000_0010, 0x2_c903_0000_0013)
    );
    assert_eq!((switch.vendor_id, switch.device_id, switch.num_ports()), (0x2c9, 0xd2f2, 36));
    assert_eq!((switch.description.as_str(), switch.enhanced_port0), ("MF0;leaf:X/U1", true));
    assert_eq!((switch.ports[0].lid, switch.ports[0].guid), (7, switch.guid));
    assert_eq!(
        (host.kind, host.guid, host.num_ports(), host.device_id),
        (NodeKind::Ca, 0x2_c903_0000_0020, 2, 0x101b)
    );
    assert_eq!((host.ports[1].guid, host.ports[1].lid, host.ports[1].lmc), (0x2_c903_0000_0021, 9, 2));
    assert_eq!(host.ports[2].guid, 0x2_c903_0000_0022, "a port that is not mentioned is counted on");
    assert_eq!(host.ports[1].peer, Some(PortRef { node: 0, port: 3 }));
    assert_eq!(rate(&parsed, 0, 3), (LinkWidth::X4, LinkSpeed::Hdr));
    assert!(parsed.topology.names.is_empty());
}

#[test]
fn line_ends_and_a_byte_order_mark_change_nothing() {
    let plain = lenient(PAIR);
    assert_eq!(lenient(&PAIR.replace('\n', "\r\n")), plain);
    assert_eq!(lenient(&format!("\u{feff}{PAIR}")), plain);
    assert_eq!(lenient(&format!("\u{feff}{}", PAIR.replace('\n', "\r\n"))), plain);
    assert_eq!(lenient(PAIR.trim_end()), plain);
    assert_eq!(lenient(&PAIR.replace('\t', "  ")), plain);
    assert_eq!(lenient(&PAIR.replace("\n\n", "\n")), plain, "no blank line between records");
    assert_eq!(lenient(&PAIR.replace("\n\n", "\n \t\n")), plain);
}

#[test]
fn a_pasted_prompt_and_error_messages_are_only_noise() {
    let text = format!("[root@head ~]# ibnetdiscover\n{PAIR}ibwarn: [123] mad_rpc: failed\n[root@head ~]#\n");
    let found = warnings(&text);
    let noise = |line| format!("line {line}, column 1: line not understood and ignored: ");
    assert_eq!(found.len(), 3, "{found:#?}");
    for (warning, line) in found.iter().zip([1, 15, 16]) {
        assert!(warning.starts_with(&noise(line)), "{warning}");
    }
    assert!(parse(&text, &STRICT).is_ok());
    assert_eq!(lenient(&text).topology, lenient(PAIR).topology);
}

#[test]
fn grouped_output_has_headings_and_outside_port_numbers() {
    let text = PAIR
        .replace(
            "vendid=0x2c9\ndevid=0xd2f2",
            "\nChassis 1 (guid 0x2c90300000000)\n\n# Chassis 1 Line Nodes\n\nvendid=0x2c9\ndevid=0xd2f2",
        )
        .replace("sysimgguid=0x2c90300000013", "sysimgguid=0x2c90300000013\t\t# Chassis 1")
        .replace("[3]\t\"H", "[3][ext 5]\t\"H")
        .replace("[3]\t\t# lid 9", "[3][ext 5]\t\t# lid 9")
        .replace("\n\nvendid=0x2c9\ndevid=0x101b", "\n\nNon-Chassis Nodes\n\nvendid=0x2c9\ndevid=0x101b");
    assert_ne!(text, PAIR);
    let parsed = lenient(&text);
    assert_eq!(parsed.warnings, []);
    assert_eq!(parsed.topology, lenient(PAIR).topology);
}

#[test]
fn a_lid_without_a_number_or_out_of_range_is_dropped() {
    let text = PAIR.replace("lid 7 lmc 0", "lid");
    assert_eq!(warnings(&text), ["line 5, column 67: lid without a number"]);
    assert_eq!(lenient(&text).topology.nodes[0].ports[0].lid, 0);
    let text = PAIR.replace("# lid 9 lmc 2", "# lid 49152 lmc 9");
    let expected = [
        "line 13, column 52: lid 49152 is not a unicast lid and is ignored",
        "line 13, column 62: lmc 9 is not in 0 to 7 and is ignored",
    ];
    assert_eq!(warnings(&text), expected);
    let port = &lenient(&text).topology.nodes[1].ports[1];
    assert_eq!((port.lid, port.lmc), (0, 0));
    assert_eq!(
        lenient(&PAIR.replace("lid 9 lmc 2", "lid 49151 lmc 0")).topology.nodes[1].ports[1].lid,
        0xbfff
    );
}

#[test]
fn guids_of_repeated_digits_are_guids() {
    for guid in ["1111111111111111", "ffffffffffffffff", "aaaaaaaaaaaaaaaa"] {
        let text = format!("switchguid=0x{guid}({guid})\nSwitch 2 \"S-{guid}\" # \"x\"\n");
        let parsed = lenient(&text);
        assert_eq!(parsed.warnings, []);
        assert_eq!(format!("{:x}", parsed.topology.nodes[0].guid), guid);
    }
}

#[test]
fn ids_need_not_be_hexadecimal() {
    let text =
        "Ca 1 \"H-node one!\" # \"first\"\n[1] \"S-xyz\"[2]\n\nSwitch 4 \"S-xyz\"\n[2] \"H-node one!\"[1]\n";
    let parsed = lenient(text);
    assert_eq!(parsed.warnings, []);
    let names: Vec<_> = parsed.topology.names.iter().map(|n| (n.name.as_str(), n.end.node)).collect();
    assert_eq!(names, [("H-node one!", 0), ("S-xyz", 1)]);
    assert_eq!(parsed.topology.nodes[0].description, "first");
    assert_eq!(parsed.topology.nodes[1].description, "S-xyz", "the id stands in for a description");
}

#[test]
fn adapters_may_come_before_any_switch() {
    let (switch, host) = PAIR.split_once("\n\n").expect("two records");
    let parsed = lenient(&format!("{host}\n{switch}\n"));
    assert_eq!(parsed.warnings, []);
    assert_eq!(parsed.topology.nodes[0].kind, NodeKind::Ca);
    assert_eq!(parsed.topology.link_count(), 1);
}

#[test]
fn ibdiagnet_writes_port_numbers_in_brackets() {
    let text = PAIR
        .replace("[3]\t\"H-0002c90300000020\"[1](2c90300000021)", "[3](3) \"H-0002c90300000020\"[1](1)")
        .replace("[1](2c90300000021) \t\"S", "[1](1) \"S");
    let parsed = lenient(&text);
    assert_eq!(parsed.warnings, []);
    assert_eq!(parsed.topology, lenient(PAIR).topology, "1 is not taken for a guid");
}

#[test]
fn cables_may_lead_back_to_the_same_switch() {
    let two_sided = lenient(
        "Switch 4 \"S-00000000000000aa\"\n[1] \"S-00000000000000aa\"[2]\n[2] \"S-00000000000000aa\"[1]\n",
    );
    assert_eq!(two_sided.warnings, []);
    assert_eq!(two_sided.topology.link_count(), 1);
    let plug = lenient("Switch 4 \"a\"\n[3] \"a\"[3]\n");
    assert_eq!(plug.warnings, []);
    assert_eq!(plug.topology.nodes[0].ports[3].peer, Some(PortRef { node: 0, port: 3 }));
    let one_sided = "Switch 4 \"a\"\n[1] \"a\"[2]\n";
    assert_fault(one_sided, "line 2, column 1: one-sided link: \"a\"[2] does not name this port");
    assert_eq!(lenient(one_sided).topology.link_count(), 1);
}

#[test]
fn descriptions_hold_64_bytes_and_are_cut_between_characters() {
    let exact = "x".repeat(64);
    assert_eq!(lenient(&format!("Ca 1 \"a\" # \"{exact}\"\n")).topology.nodes[0].description, exact);
    let long = format!("Ca 1 \"a\" # \"{}\u{e9}\"\n", "x".repeat(63));
    assert_fault(&long, "line 1, column 12: description of 65 bytes is cut to 64");
    assert_eq!(lenient(&long).topology.nodes[0].description, "x".repeat(63));
}

#[test]
fn descriptions_hold_quotes_and_hashes() {
    let text = PAIR.replace("\"node HCA-1\"", "\"a \"b\" # lid 3 [1] \"\"");
    let parsed = lenient(&text);
    assert_eq!(parsed.warnings, []);
    assert_eq!(parsed.topology.nodes[1].description, "a \"b\" # lid 3 [1] \"");
    assert_eq!(parsed.topology.nodes[1].ports[1].lid, 9);
}

#[test]
fn many_nodes_may_share_a_description() {
    let mut text = String::new();
    for n in 1..=84 {
        text.push_str(&format!("switchguid=0x{n:x}00\nSwitch 2 \"S-{:016x}\" # \"Quantum\"\n\n", n * 256));
    }
    let parsed = lenient(&text);
    assert_eq!(parsed.topology.nodes.len(), 84);
    assert_eq!(check(&parsed.topology).shared_descriptions, 1);
}

#[test]
fn routers_are_nodes_too() {
    let text = "rtguid=0x900\nRt\t2 \"R-0000000000000900\"\t\t# \"edge\"\n[1](901) \t\"S-0000000000000010\"[4]\t\t# lid 5 lmc 0 \"sw\" lid 2 4xEDR\n\
                \nswitchguid=0x10(10)\nSwitch 8 \"S-0000000000000010\" # \"sw\" base port 0 lid 2 lmc 0\n[4] \"R-0000000000000900\"[1](901) # \"edge\" lid 5 4xEDR\n";
    let parsed = lenient(text);
    assert_eq!(parsed.warnings, []);
    let router = &parsed.topology.nodes[0];
    assert_eq!(
        (router.kind, router.guid, router.ports[1].guid, router.ports[1].lid),
        (NodeKind::Router, 0x900, 0x901, 5)
    );
}

#[test]
fn rates_reach_from_sdr_to_xdr_and_differ_by_link() {
    for (text, width, speed) in [
        ("1xXDR", LinkWidth::X1, LinkSpeed::Xdr),
        ("2xHDR", LinkWidth::X2, LinkSpeed::Hdr),
        ("4xFDR10", LinkWidth::X4, LinkSpeed::Fdr10),
        ("12xDDR", LinkWidth::X12, LinkSpeed::Ddr),
    ] {
        assert_eq!(rate(&lenient(&PAIR.replace("4xHDR", text)), 0, 3), (width, speed));
    }
    assert_fault(&PAIR.replacen("4xHDR", "4xTDR", 1), "line 6, column 67: link rate \"4xTDR\" is not known");
}

#[test]
fn ends_that_disagree_on_the_rate_get_the_lower_one() {
    let parsed = lenient(&PAIR.replacen("4xHDR", "1xNDR", 1));
    assert_eq!(rate(&parsed, 1, 1), (LinkWidth::X1, LinkSpeed::Hdr));
    assert_eq!(parsed.warnings[0].message, "1xNDR here but 4xHDR on line 13; 1xHDR is used");
}

#[test]
fn guids_are_invented_as_ibsim_does() {
    let text = "Hca 2 \"h1\"\n\nHca 1 \"h2\"\n\nSwitch 4 \"s1\"\n\nSwitch 4 \"s2\"\n\nswitchguid=0x500\nSwitch 4 \"s3\"\n\nSwitch 4 \"s4\"\n\n\
                switchguid+0x20\nSwitch 4 \"s5\"\n\nhcaguids = 0x1000\nCa 3 \"h3\"\n\nCa 1 \"h4\"\n";
    let guids: Vec<_> = lenient(text).topology.nodes.iter().map(|n| n.guid).collect();
    assert_eq!(guids, [0x10_0000, 0x10_0003, 0x20_0000, 0x20_0001, 0x500, 0x501, 0x520, 0x1000, 0x1004]);
}

#[test]
fn a_device_id_stays_and_vendor_and_image_do_not() {
    let text = "vendid=0x8f1\ndevid=0x1234\nsysimgguid=0x77\nSwitch 2 \"a\"\n\nSwitch 2 \"b\"\n";
    let parsed = lenient(text);
    let [a, b] = &parsed.topology.nodes[..] else { panic!("two nodes") };
    assert_eq!((a.vendor_id, a.device_id, a.system_image_guid), (0x8f1, 0x1234, 0x77));
    assert_eq!((b.vendor_id, b.device_id, b.system_image_guid), (crate::DEFAULT_VENDOR_ID, 0x1234, b.guid));
}

#[test]
fn link_options_and_defaults_follow_the_netfile_rules() {
    let text = "width=8\nspeed=2\nSwitch 9 \"a\"\n[1] \"b\"[1]\n[2] \"b\"[2] w=1 s=0\n[3] \"b\"[3] e=2\n\n\
                Switch 9 \"b\"\n[1] \"a\"[1]\n[2] \"a\"[2]\n[3] \"a\"[3]\n";
    let parsed = lenient(text);
    assert_eq!(parsed.warnings, []);
    assert_eq!(rate(&parsed, 0, 1), (LinkWidth::X12, LinkSpeed::Ddr));
    assert_eq!(rate(&parsed, 1, 2), (LinkWidth::X1, LinkSpeed::Qdr));
    assert_eq!(rate(&parsed, 1, 3), (LinkWidth::X12, LinkSpeed::Edr));
    assert_fault(
        "Switch 2 \"a\"\n[1] \"a\"[1] w=99\n",
        "line 2, column 12: link option \"w=99\" is not valid and is ignored",
    );
}

#[test]
fn modules_and_aliases_name_nodes_and_ports() {
    let text = "module=\"left\"\nSwitch 4 \"sw\"\n@[4] \"out\"\n[1] \"h\"[1]\n\nHca 1 \"h\"\n[1] \"sw\"[1]\n\n\
                module=\"right\"\nSwitch 4 \"sw\"\n[2] \"left@out\"\n[3] \"left#sw\"[3]\n";
    let parsed = lenient(text);
    let names: Vec<_> = parsed.topology.names.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["left#sw", "left@out", "left#h", "right#sw"]);
    assert_eq!(parsed.topology.nodes[0].ports[4].peer, Some(PortRef { node: 2, port: 2 }));
    assert_eq!(parsed.topology.nodes[0].ports[3].peer, Some(PortRef { node: 2, port: 3 }));
    let found: Vec<_> = parsed.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["line 12, column 1: one-sided link: \"left#sw\"[3] does not name this port"]);
    assert_fault(
        "Switch 2 \"a\"\n[1] \"@b\"\n",
        "line 2, column 1: alias \"@b\" is never defined; line ignored",
    );
}

#[test]
fn includes_come_from_the_loader() {
    let loader = |name: &str| match name {
        "rack.net" => Ok(b"Hca 1 \"h\"\n[1] \"s\"[1]\n[1] \"s\"[2]\n".to_vec()),
        "self.net" => Ok(b"include \"self.net\"\n".to_vec()),
        _ => Err("no such file".to_string()),
    };
    let options = ParseOptions { loader: Some(&loader), ..ParseOptions::default() };
    let parsed = parse("include \"rack.net\"\nSwitch 2 \"s\"\n[1] \"h\"[1]\n", &options).expect("a fabric");
    assert_eq!(parsed.topology.link_count(), 1);
    let warning = parsed.warnings[0].to_string();
    assert_eq!(
        warning,
        "line 3, column 1: port 1 is cabled to something else on line 2; line ignored (in \"rack.net\")"
    );
    let refused = |text: &str| refusal(text, &options);
    assert_eq!(
        refused("include \"gone.net\"\n"),
        "line 1, column 9: cannot include \"gone.net\": no such file"
    );
    assert!(refused("\ninclude \"self.net\"\n").contains("more than 9 levels"));
    let expected = "line 1, column 9: cannot include \"a\": this text came without a place to look for files";
    assert_eq!(refusal("include \"a\"\n", &ParseOptions::default()), expected);
}

#[test]
fn console_commands_are_not_run() {
    let text = "do Start\npdebug=1\nSwitch 2 \"a\"\n";
    assert_eq!(warnings(text), ["line 1, column 1: console commands (do) are not run and are ignored"]);
}

#[test]
fn one_sided_and_contradictory_links_are_told_apart() {
    assert_fault(
        "Switch 4 \"a\"\n[1] \"b\"[2]\n\nSwitch 4 \"b\"\n",
        "line 2, column 1: one-sided link: \"b\"[2] does not name this port",
    );
    let text = "Switch 4 \"a\"\n[1] \"b\"[1]\n\nSwitch 4 \"b\"\n[1] \"c\"[1]\n\nSwitch 4 \"c\"\n[1] \"b\"[1]\n[2] \"a\"[2]\n\n";
    assert_fault(
        text,
        "line 2, column 1: \"b\"[1] is cabled to \"c\"[1] according to line 5; this line is ignored",
    );
    let parsed = lenient(text);
    assert_eq!(parsed.topology.nodes[0].ports[1].peer, None);
    assert_eq!(
        parsed.topology.nodes[1].ports[1].peer,
        Some(PortRef { node: 2, port: 1 }),
        "the agreed link stays"
    );
    assert_fault(
        "Switch 4 \"a\"\n[1] \"c\"[1]\n\nSwitch 4 \"b\"\n[1] \"c\"[1]\n[2] \"a\"[2]\n\nSwitch 4 \"c\"\n",
        "line 2, column 1: one-sided link: \"c\"[1] does not name this port",
    );
    assert_fault(
        "Switch 4 \"a\"\n[1] \"a\"[2]\n[1] \"a\"[2]\n[2] \"a\"[1]\n",
        "line 3, column 1: port 1 repeats line 2; line ignored",
    );
}

#[test]
fn ports_out_of_range_are_named() {
    assert_fault(
        "Switch 4 \"a\"\n[5] \"a\"[1]\n",
        "line 2, column 1: port 5 is out of range, the node has ports 1 to 4; line ignored",
    );
    assert_fault(
        "Switch 4 \"a\"\n[1] \"a\"[5]\n",
        "line 2, column 1: port 5 is out of range, node \"a\" has ports 1 to 4; line ignored",
    );
    assert_fault(
        "Switch 4 \"a\"\n[1] \"a\"[999]\n",
        "line 2, column 8: no node can have a port 999 to cable; line ignored",
    );
    assert_fault(
        "Switch 4 \"a\"\n\nSwitch 0 \"b\"\n[1] \"a\"[1]\n",
        "line 3, column 8: node \"b\" has 0 ports, 1 to 254 are possible; record skipped",
    );
    assert_fault(
        "Switch 255 \"a\"\n",
        "line 1, column 8: node \"a\" has 255 ports, 254 are possible; the last is left out",
    );
}

#[test]
fn duplicates_are_refused_or_replaced() {
    assert_fault(
        "Switch 4 \"a\"\n\nSwitch 4 \"a\"\n",
        "line 3, column 10: node \"a\" is already defined on line 1; record skipped",
    );
    let text = "switchguid=0x10\nSwitch 4 \"a\"\n\nswitchguid=0x10\nSwitch 4 \"b\"\n[1] \"a\"[1]\n";
    assert_fault(
        text,
        "line 5, column 10: guid 0x10 already belongs to the node of line 2; 0x200000 is used",
    );
    assert_eq!(lenient(text).topology.nodes[1].guid, 0x20_0000);
    let text = "caguid=0x10\nCa 1 \"a\"\n[1](99) \"b\"[1]\n\ncaguid=0x20\nCa 1 \"b\"\n[1](99) \"a\"[1]\n";
    assert_fault(
        text,
        "line 6, column 1: guid 0x99 of port 1 is used by the node of line 2 too; another is taken",
    );
    assert_eq!(lenient(text).topology.nodes[1].ports[1].guid, 0x21);
    assert_fault("caguid=0\nCa 1 \"a\"\n", "line 2, column 6: a node cannot have guid 0; 0x100000 is used");
}

#[test]
fn undefined_peers_are_refused_or_stubbed() {
    let text = "Switch 4 \"a\"\n[1] \"S-0000000000000077\"[40] # \"far\" lid 12 4xEDR\n[2] \"H-0000000000000088\"[2](99) # \"h\" lid 3\n";
    let expected = "line 2, column 1: 2 nodes named as peer are never defined: \"S-0000000000000077\", \"H-0000000000000088\"";
    assert_eq!(refusal(text, &ParseOptions::default()), expected);
    let parsed = parse(text, &STUBS).expect("stubs");
    let [_, far, host] = &parsed.topology.nodes[..] else { panic!("three nodes") };
    assert_eq!((far.kind, far.guid, far.num_ports(), far.ports[0].lid), (NodeKind::Switch, 0x77, 40, 12));
    assert_eq!(far.description, "far");
    assert_eq!((host.kind, host.guid, host.num_ports(), host.ports[2].guid), (NodeKind::Ca, 0x88, 2, 0x99));
    assert_eq!(parsed.warnings.len(), 2, "a stub is not called one-sided: {:?}", parsed.warnings);
}

#[test]
fn islands_are_named_with_their_first_lines() {
    assert_fault(
        "Switch 4 \"a\"\n[1] \"b\"[1]\n\nSwitch 4 \"b\"\n[1] \"a\"[1]\n\nHca 1 \"c\"\n",
        "line 7, column 1: the fabric is in 2 parts without a link between them: 2 nodes from line 1, 1 node from line 7",
    );
}

#[test]
fn a_lone_adapter_takes_its_port_guid_from_the_start_of_the_scan() {
    let text = "# Initiated from node b8e92403009ca838 port b8e92403009ca838\n\ncaguid=0xb8e92403009ca838\nCa 1 \"H-b8e92403009ca838\" # \"n\"\n";
    assert_eq!(lenient(text).topology.nodes[0].ports[1].guid, 0xb8e9_2403_009c_a838);
}

#[test]
fn port_lines_go_to_the_right_record_or_nowhere() {
    assert_fault(
        "Switch 4 \"a\"\n\n[1] \"a\"[1]\n",
        "line 3, column 1: port line after a blank line, counted to the node of line 1",
    );
    let garbled = "Switch 4 \"a\"\n\nvendid=0x2c9\nSwtich 4 \"b\"\n[1] \"a\"[1]\n";
    assert_eq!(refusal(garbled, &STRICT), "line 5, column 1: port line outside a node record; line ignored");
    assert_eq!(lenient(garbled).topology.link_count(), 0);
}

#[test]
fn a_text_cut_anywhere_is_read_as_far_as_it_goes() {
    for end in 0..PAIR.len() {
        if let Ok(parsed) = parse(&PAIR[..end], &STUBS) {
            assert!(check(&parsed.topology).is_sound(), "{end}");
        }
    }
}

#[test]
fn other_formats_are_called_by_name() {
    let wanted = "; wanted is plain ibnetdiscover output or an ibsim netfile";
    for (text, expected) in [
        ("", "line 1, column 1: the text is empty"),
        ("\u{feff}\n \n", "line 1, column 1: no node record found"),
        ("# only a comment\n", "line 1, column 1: no node record found"),
        ("hello\n", "line 1, column 1: no node record found"),
        ("abc\nd\0ef", "line 2, column 2: this looks like a binary file"),
        (
            "\n\n CA   134  1 0x7c 4x EDR - SW 1 1 0x7\n",
            "line 3, column 2: this looks like the port report of ibnetdiscover -p, which does not describe nodes",
        ),
        (
            "{ SW Ports:08 SystemGUID:a } { CA }\n",
            "line 1, column 1: this looks like a subnet dump of OpenSM (.lst), which is not read yet",
        ),
        (
            "MTS800 SW-1\n   P1 -> Cougar H-1 P1\n",
            "line 2, column 4: this looks like an ibdm topology (.topo), which needs system definitions to expand",
        ),
        (
            "Ca\t: 0x0002c903 ports 1 \"h\"\n",
            "line 1, column 1: this looks like a node list (ibnodes, ibhosts or ibswitches), which has no links",
        ),
        ("CA: host HCA-1:\n", "line 1, column 1: this looks like a link report of iblinkinfo"),
        ("{\"nodes\": []}\n", "line 1, column 1: this looks like JSON"),
        ("\u{7f}ELF\u{2}\n", "line 1, column 1: this looks like a program"),
    ] {
        assert_eq!(refusal(text, &ParseOptions::default()), format!("{expected}{wanted}"), "{text:?}");
    }
    let gzip = parse(b"\x1f\x8b\x08\0\0", &ParseOptions::default()).expect_err("gzip").to_string();
    assert!(gzip.contains("this looks like a gzip file"), "{gzip}");
}

#[test]
fn a_flood_of_warnings_is_counted_not_listed() {
    let text = format!("Switch 2 \"a\"\n{}", "?\n".repeat(5000));
    let parsed = lenient(&text);
    assert_eq!(parsed.warnings.len(), MAX_WARNINGS + 1);
    assert_eq!(parsed.warnings[MAX_WARNINGS].message, "4000 further warnings are not listed");
}
