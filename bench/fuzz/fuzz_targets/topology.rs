//! Any text as a topology.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| madplane_topology::fuzz_parse(data));
