//! Any packets into any node of a small fabric.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| madplane_engine::fuzz_shard(data));
