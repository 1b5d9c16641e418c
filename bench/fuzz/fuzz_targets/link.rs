//! Any bytes as what comes over a link to another plane.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    madplane_port::link::frame::fuzz_frame(data);
    madplane_port::link::fuzz_link(data);
});
