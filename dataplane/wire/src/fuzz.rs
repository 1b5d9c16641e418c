//! Body of the MAD fuzz target; a library function so that `cargo test` can replay inputs on stable.
//!
//! Pure, no state. Panics when a claim of this crate is broken: something panicked, or parse and emit do not agree.

use core::fmt::{self, Write};

use crate::mad::{MAD_LEN, Mad, MadBuf};
use crate::rmpp::{Rmpp, Segments};
use crate::smp::{Notice, Smp};
use crate::{catalog, pretty, sa};

struct Sink;

impl Write for Sink {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

/// Runs every view, parser, emitter and printer over `input`, cut or zero-padded to one MAD.
///
/// # Panics
/// If parse and emit disagree; that is the finding.
pub fn fuzz_mad(input: &[u8]) {
    let mut buf: MadBuf = [0; MAD_LEN];
    for (to, from) in buf.iter_mut().zip(input) {
        *to = *from;
    }
    let _ = write!(Sink, "{} {}", pretty::OneLine(&buf), pretty::Tree(&buf));
    let _ = write!(Sink, "{:?} {:?} {:?}", Mad::new(&buf), Smp::new(&buf), Rmpp::new(&buf));
    for layout in catalog::all() {
        let (mut once, mut twice) = ([0xa5; MAD_LEN], [0x5a; MAD_LEN]);
        (layout.parse_emit)(&buf, &mut once);
        (layout.parse_emit)(&once, &mut twice);
        let (start, end) = (layout.start, layout.end);
        assert_eq!(once[start..end], twice[start..end], "{} is stable", layout.name);
        assert!(
            once[..start].iter().chain(&once[end..]).all(|byte| *byte == 0xa5),
            "{} stays inside",
            layout.name
        );
        for (name, field) in layout.fields {
            for index in 0..field.count() {
                assert_eq!(field.get_at(&once, index), field.get_at(&buf, index), "{} {name}", layout.name);
            }
        }
    }
    let notice = Notice::parse(&buf[64..]);
    let mut again = [0xa5; 64];
    notice.emit(&mut again);
    assert_eq!(Notice::parse(&again), notice);
    let rmpp = Rmpp::new(&buf);
    if let Some(cut) = Segments::from_last(Mad::new(&buf).mgmt_class(), rmpp.segment(), rmpp.payload_len()) {
        let headers = u64::from(rmpp.segment()) * (220 - cut.capacity()) as u64;
        let payload = u64::from(rmpp.segment() - 1) * 220 + u64::from(rmpp.payload_len());
        assert_eq!(payload - headers, cut.data_len() as u64);
        let _ = sa::record_count(cut.message_len(), sa::field::ATTR_OFFSET.get_u16(&buf));
        assert_eq!(cut.data_range(cut.count()).end, cut.data_len());
    }
}
