//! Any 256 bytes through every view, parser and printer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| madplane_wire::fuzz_mad(data));
