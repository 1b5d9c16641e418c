//! Replays what the fuzzers have found, on the stable compiler.
//!
//! `bench/fuzz/corpus/TARGET/*` and `bench/fuzz/crashes/TARGET/*` are fed to the bodies that the fuzz targets call. A
//! crash file that once failed stays for ever, with a sentence in `crashes/README.md`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests; the last name printed is the culprit"
)]

use std::path::Path;

fn replay(target: &str, body: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut inputs = 0;
    for kind in ["corpus", "crashes"] {
        let Ok(entries) = std::fs::read_dir(root.join(kind).join(target)) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            body(&std::fs::read(&path).unwrap());
            inputs += 1;
        }
    }
    assert!(inputs > 0, "no corpus for {target}");
}

#[test]
fn mads_that_were_found_interesting() {
    replay("mad", madplane_wire::fuzz_mad);
}

#[test]
fn packets_that_were_found_interesting() {
    replay("fabric", madplane_engine::fuzz_shard);
}

#[test]
fn slots_that_were_found_interesting() {
    replay("slots", madplane_dataplane::fuzz::fuzz_slots);
}

#[test]
fn frames_of_links_that_were_found_interesting() {
    replay("link", madplane_port::link::frame::fuzz_frame);
    replay("link", madplane_port::link::fuzz_link);
}

#[test]
fn introductions_of_links_that_were_found_interesting() {
    replay("rendezvous", madplane_port::rendezvous::fuzz_rendezvous);
}

#[test]
fn topologies_that_were_found_interesting() {
    replay("topology", madplane_topology::fuzz_parse);
}
