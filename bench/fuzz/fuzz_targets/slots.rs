//! Any slots from a client into a worker.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| madplane_dataplane::fuzz::fuzz_slots(data));
