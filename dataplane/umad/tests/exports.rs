//! The names and versions that the dynamic linker sees, against the stock library.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// `umad_*` names with their versions, as nm prints them.
fn exported(library: &Path) -> BTreeMap<String, String> {
    let output =
        Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", support::text(&output));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| name.starts_with("umad_"))
        .map(|name| {
            let (name, version) = name.split_once("@@").unwrap_or((name, "none"));
            (name.to_owned(), version.to_owned())
        })
        .collect()
}

#[test]
fn every_name_of_the_stock_library_is_there_under_the_same_version() {
    if !support::installed("nm") {
        return;
    }
    let ours = exported(&support::library());
    assert_eq!(ours.len(), 42, "{ours:?}");
    for (name, version) in [
        ("umad_init", "IBUMAD_1.0"),
        ("umad_get_ca_device_list", "IBUMAD_1.1"),
        ("umad_sort_ca_device_list", "IBUMAD_1.2"),
        ("umad_open_smi_port", "IBUMAD_1.3"),
        ("umad_get_smi_gsi_pairs", "IBUMAD_1.4"),
        ("umad_get_smi_gsi_pair_by_ca_name", "IBUMAD_1.4"),
    ] {
        assert_eq!(ours.get(name).map(String::as_str), Some(version), "{name}");
    }
    let stock = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .map(|directory| Path::new(directory).join("libibumad.so.3"))
        .find(|path| path.exists());
    let Some(stock) = stock else {
        println!("skipped: no stock libibumad to compare with");
        return;
    };
    for (name, version) in exported(&stock) {
        assert_eq!(ours.get(&name), Some(&version), "{name}");
    }
}

#[test]
fn the_soname_is_that_of_the_replaced_library() {
    if !support::installed("readelf") {
        return;
    }
    let output = Command::new("readelf").arg("-d").arg(support::library()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("soname: [libibumad.so.3]"));
}
