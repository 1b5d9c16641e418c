//! Claims about any 256 bytes: nothing panics, parse and emit agree, reserved bits are emitted as zero.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

use madplane_wire::{MadBuf, MadMut, catalog, fuzz_mad, mad};

/// SplitMix64; the seed is printed, `MADPLANE_SEED` repeats a run.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let seed = std::env::var("MADPLANE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(now);
        println!("MADPLANE_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn mad(&mut self) -> MadBuf {
        std::array::from_fn(|_| self.next().to_le_bytes()[0])
    }
}

/// Class and attribute pairs that lead every printer branch somewhere, known and unknown.
fn headers() -> Vec<(u8, u16)> {
    let mut pairs: Vec<(u8, u16)> = (0..=255).map(|class| (class, 0x0012)).collect();
    for (class, entries) in [
        (mad::CLASS_SUBN_LID, catalog::SMP),
        (mad::CLASS_SUBN_DIRECTED, catalog::SMP),
        (mad::CLASS_PERF, catalog::PMA),
        (mad::CLASS_SA, catalog::SA),
    ] {
        pairs.extend(entries.iter().map(|(id, _)| (class, *id)));
    }
    pairs
}

#[test]
fn random_bytes_panic_nothing_and_round_trip() {
    let mut random = Random::seeded();
    for (class, attr_id) in headers() {
        for _ in 0..8 {
            let mut buf = random.mad();
            MadMut::new(&mut buf).set_mgmt_class(class);
            MadMut::new(&mut buf).set_attr_id(attr_id);
            fuzz_mad(&buf);
        }
    }
    for _ in 0..500 {
        fuzz_mad(&random.mad());
    }
}

#[test]
fn extreme_and_short_inputs_panic_nothing() {
    for fill in [0, 0x01, 0x55, 0x7f, 0x80, 0xa5, 0xff] {
        for len in [0, 1, 23, 24, 63, 64, 255, 256, 300] {
            fuzz_mad(&vec![fill; len]);
        }
    }
}

#[test]
fn every_notice_number_prints_and_round_trips() {
    let mut random = Random::seeded();
    for number in (0..400_u16).chain([u16::MAX]) {
        for generic in [0x80, 0x00] {
            let mut buf = random.mad();
            let mut mad = MadMut::new(&mut buf);
            mad.set_mgmt_class(mad::CLASS_SUBN_LID);
            mad.set_attr_id(0x0002);
            buf[64] = generic | buf[64] & 0x7f;
            buf[68..70].copy_from_slice(&number.to_be_bytes());
            fuzz_mad(&buf);
        }
    }
}

#[test]
fn emit_clears_what_no_field_owns_and_leaves_the_rest_alone() {
    for layout in catalog::all() {
        let mut owned = [0_u8; mad::MAD_LEN];
        for (_, field) in layout.fields {
            for index in 0..field.count() {
                field.set_at(&mut owned, index, field.max());
            }
        }
        let mut out = [0xa5; mad::MAD_LEN];
        (layout.parse_emit)(&[0xff; mad::MAD_LEN], &mut out);
        for at in 0..mad::MAD_LEN {
            let inside = (layout.start..layout.end).contains(&at);
            assert_eq!(out[at], if inside { owned[at] } else { 0xa5 }, "{} byte {at}", layout.name);
        }
    }
}
