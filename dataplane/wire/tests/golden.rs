//! Stored MADs, real ones from the stock tools and hand-made ones, against their stored printed form.
//!
//! `tests/golden/NAME.hex` is one MAD with a sentence about its origin, `NAME.txt` what [`pretty::Tree`] makes of it. After a wanted
//! change of the printer `MADPLANE_BLESS=1` rewrites the texts; read the difference before committing it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use madplane_wire::smp::{NodeDescription, NodeInfo, Notice, PortInfo, SmInfo, notice};
use madplane_wire::{Mad, MadBuf, Smp, catalog, fuzz_mad, mad, pma, pretty, rmpp, sa, smp, vendor};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn load(path: &Path) -> MadBuf {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (sentences, lines): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('#'));
    assert!(!sentences.is_empty(), "{} has a sentence about its origin", path.display());
    let digits: String = lines.concat().split_whitespace().collect();
    let bytes: Vec<u8> = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    bytes.try_into().unwrap_or_else(|_| panic!("{} is not 256 bytes", path.display()))
}

fn named(name: &str) -> MadBuf {
    load(&folder().join(name).with_extension("hex"))
}

fn all() -> Vec<(PathBuf, MadBuf)> {
    let mut paths: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "hex"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), load(&path))).collect()
}

#[test]
fn every_stored_mad_prints_as_stored() {
    let bless = std::env::var("MADPLANE_BLESS").is_ok_and(|value| value == "1");
    let mads = all();
    assert!(mads.len() >= 20, "only {} stored MADs", mads.len());
    for (path, buf) in mads {
        let text = pretty::Tree(&buf).to_string();
        let stored = path.with_extension("txt");
        if bless {
            std::fs::write(&stored, &text).unwrap();
        }
        let want =
            std::fs::read_to_string(&stored).unwrap_or_else(|error| panic!("{}: {error}", stored.display()));
        assert_eq!(text, want, "{}", path.display());
    }
}

#[test]
fn every_stored_attribute_is_emitted_as_it_was_read() {
    for (path, buf) in all() {
        fuzz_mad(&buf);
        let mad = Mad::new(&buf);
        let Some(layout) = catalog::attribute(mad.mgmt_class(), mad.attr_id()) else { continue };
        let data = &buf[catalog::data_offset(mad.mgmt_class())..];
        let mut out = [0xa5; mad::MAD_LEN];
        (layout.parse_emit)(data, &mut out);
        assert_eq!(out[layout.start..layout.end], data[layout.start..layout.end], "{}", path.display());
        assert!(out[layout.end..].iter().all(|byte| *byte == 0xa5), "{}", path.display());
    }
}

#[test]
fn a_directed_route_answer_carries_its_route() {
    let buf = named("ibsim-node-info");
    let smp = Smp::new(&buf);
    assert!(smp.mad().is_response() && smp.direction());
    assert_eq!((smp.status(), smp.hop_pointer(), smp.hop_count()), (0, 0, 1));
    assert_eq!((smp.dr_slid(), smp.dr_dlid()), (smp::PERMISSIVE_LID, smp::PERMISSIVE_LID));
    assert_eq!((smp.initial_path()[1], smp.return_path()[1]), (1, 1));
    let info = NodeInfo::parse(smp.data());
    let want = NodeInfo {
        base_version: 1,
        class_version: 1,
        node_type: smp::node_info::node_type::SWITCH,
        num_ports: 8,
        system_image_guid: 0x20_0000,
        node_guid: 0x20_0000,
        port_guid: 0x20_0000,
        partition_cap: 8,
        device_id: 0,
        revision: 0xa1,
        local_port_num: 1,
        vendor_id: 0,
    };
    assert_eq!(info, want);
    assert_eq!(NodeDescription::parse(Smp::new(&named("ibsim-node-desc")).data()).text(), b"Switch1");
}

#[test]
fn our_request_is_the_request_of_libibmad() {
    let theirs = named("ibsim-node-info-get");
    let mut ours = [0xa5; mad::MAD_LEN];
    let tid = Mad::new(&theirs).tid();
    smp::SmpMut::new(&mut ours).init_directed(mad::METHOD_GET, smp::attr::NODE_INFO, 0, tid, &[1]);
    assert_eq!(ours, theirs);
}

#[test]
fn a_swept_port_shows_what_opensm_set() {
    let buf = named("ibsim-port-info-lid");
    let info = PortInfo::parse(Smp::new(&buf).data());
    assert_eq!((info.lid, info.master_sm_lid, info.gid_prefix), (1, 1, 0xfe80_0000_0000_0000));
    assert_eq!(info.port_state, smp::port_info::state::ACTIVE);
    assert_eq!(info.port_phys_state, smp::port_info::phys_state::LINK_UP);
}

#[test]
fn nibbles_of_a_hand_made_sm_info_are_not_swapped() {
    let manager = SmInfo::parse(Smp::new(&named("hand-sm-info")).data());
    assert_eq!((manager.guid, manager.act_count), (0x10_0001, 42));
    assert_eq!((manager.priority, manager.state), (14, smp::sm_info::state::MASTER));
}

#[test]
fn counters_of_ibsim_grow_by_72_words_per_mad() {
    let counters = pma::PortCounters::parse(pma::data(&named("ibsim-port-counters")));
    assert_eq!((counters.port_select, counters.xmit_pkts), (1, 120));
    assert_eq!(u64::from(counters.xmit_data), pma::MAD_DATA_WORDS * u64::from(counters.xmit_pkts));
    assert_eq!(pma::ClassPortInfo::parse(pma::data(&named("ibsim-class-port-info"))).cap_mask, 0x1200);
}

#[test]
fn hand_made_traps_are_understood() {
    let parse = |name| Notice::parse(Smp::new(&named(name)).data());
    let trap = parse("hand-trap-128");
    assert_eq!((trap.head.kind, trap.head.producer, trap.head.issuer_lid, trap.head.count), (1, 2, 5, 7));
    assert_eq!(trap.details, notice::Details::LinkState(notice::link_state::Repr { lid: 5 }));
    let notice::Details::LocalChange(change) = parse("hand-trap-144").details else { panic!("trap 144") };
    assert_eq!(
        (change.lid, change.other_local_changes, change.changes),
        (9, true, notice::change::NODE_DESC)
    );
    assert_eq!(change.cap_mask, 0x0251_486a);
    let notice::Details::BadMKey(refused) = parse("hand-trap-256").details else { panic!("trap 256") };
    assert_eq!((refused.lid, refused.method, refused.attr_id, refused.m_key), (5, 2, 0x15, 0xdead_beef));
    assert_eq!((refused.dr_notice, refused.hop_count, &refused.return_path[..3]), (true, 2, &[0, 1, 3][..]));
    let notice::Details::BadKey(bad) = parse("hand-trap-257").details else { panic!("trap 257") };
    assert_eq!((bad.lid1, bad.lid2, bad.key, bad.sl, bad.qp1, bad.qp2), (7, 3, 0x8001, 4, 0x123, 0x456));
    assert_eq!((bad.gid1[15], bad.gid2[15]), (7, 3));
    let notice::Details::BadPKeySwitch(bad) = parse("hand-trap-259").details else { panic!("trap 259") };
    assert_eq!((bad.data_valid, bad.lid1, bad.lid2, bad.p_key), (0x3fff, 7, 3, 0x8001));
    assert_eq!((bad.sl, bad.qp1, bad.qp2, bad.gid1[15], bad.gid2[15]), (4, 0x123, 0x456, 7, 3));
    assert_eq!((bad.switch_lid, bad.port), (5, 17));
    let port_error = notice::port_error::Repr { lid: 9, port: 2 };
    assert_eq!(parse("hand-trap-129").details, notice::Details::PortError(port_error));
    let image = notice::system_image::Repr { lid: 9, guid: 0x0011_2233_4455_6677 };
    assert_eq!(parse("hand-trap-145").details, notice::Details::SystemImage(image));
    let report = Notice::parse(&named("hand-report-64")[sa::SA_DATA]);
    let notice::Details::GidEvent(event) = report.details else { panic!("trap 64") };
    assert_eq!((event.gid[0], event.gid[15]), (0xfe, 7));
}

#[test]
fn a_hand_made_extended_sample_is_understood() {
    let result = pma::samples::result_ext::Repr::parse(pma::data(&named("hand-samples-result-ext")));
    assert_eq!((result.tag, result.sample_status, result.extended_width), (0x1234, 2, 2));
    assert_eq!((result.counters[0], result.counters[1], result.counters[14]), (1, 2, 15));
}

#[test]
fn a_hand_made_segment_has_the_lengths_of_its_plan() {
    let buf = named("hand-sa-node-record-segment-1");
    let plan = rmpp::Segments::new(mad::CLASS_SA, 3 * 112).unwrap();
    let head = rmpp::Rmpp::new(&buf);
    assert!(head.is_active());
    assert_eq!((head.kind(), head.segment()), (rmpp::kind::DATA, 1));
    assert_eq!((head.payload_len(), head.flags()), (plan.payload_len(1), plan.flags(1)));
    let stride = sa::Repr::parse(&buf).attr_offset;
    assert_eq!(sa::record_count(plan.message_len(), stride), 3);
    assert_eq!(vendor::Repr::parse(&named("hand-vendor-ping")).oui, vendor::OPENIB_OUI);
}
