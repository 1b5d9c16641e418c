//! Any bytes as what comes to queue pair 1 from an end of a link.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| madplane_port::rendezvous::fuzz_rendezvous(data));
