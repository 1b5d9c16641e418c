//! Compares every field with the installed libibmad: what we write it reads, what it writes we read, bit for bit.
//!
//! The numbers of libibmad's fields come from its installed header at test time, so a newer one is compared as it is. Without
//! library or header the tests print that they were skipped; with `MADPLANE_REQUIRE_PEERS=1` they fail instead.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

#[path = "libibmad/table.rs"]
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use libloading::{Library, Symbol};
use madplane_wire::{Field, catalog, mad, smp};
use table::{ONLY_OURS, OUT_OF_SCOPE, RANGES, SELECT_AS_IN_PORT_COUNTERS, SWAPPED_IN_LIBIBMAD, TABLE};

const HEADER: &str = "/usr/include/infiniband/mad.h";
const LIBRARY: &str = "libibmad.so.5";
/// Room behind a MAD, so that a field wider than we think is found and not fatal.
const ROOM: usize = 512;

/// The library with the numbers of its fields.
struct Peer {
    library: Library,
    /// Name to number, aliases included.
    numbers: BTreeMap<String, c_int>,
}

// libibmad is not documented as thread safe, and the test harness is threaded.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Peer {
    fn open() -> Option<Self> {
        let attempt = || -> Result<Self, String> {
            let text = std::fs::read_to_string(HEADER).map_err(|error| format!("{HEADER}: {error}"))?;
            // SAFETY: libibmad's initialisers only set up tables and read no state of ours.
            let library = unsafe { Library::new(LIBRARY) }.map_err(|error| format!("{LIBRARY}: {error}"))?;
            Ok(Self { library, numbers: parse_enum(&text) })
        };
        match attempt() {
            Ok(peer) => Some(peer),
            Err(reason) => {
                let required = std::env::var("MADPLANE_REQUIRE_PEERS").is_ok_and(|value| value == "1");
                assert!(!required, "libibmad is required but missing: {reason}");
                println!("SKIPPED: no comparison with libibmad, {reason}");
                None
            }
        }
    }

    fn number(&self, name: &str) -> c_int {
        *self.numbers.get(name).unwrap_or_else(|| panic!("{name} is not in {HEADER}"))
    }

    fn get(&self, buf: &mut [u8; ROOM], number: c_int, width: u32) -> u64 {
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        if width > 32 {
            // SAFETY: the symbol has this signature in the installed header.
            let get: Symbol<unsafe extern "C" fn(*mut c_void, c_int, c_int) -> u64> =
                unsafe { self.library.get(b"mad_get_field64") }.unwrap();
            // SAFETY: buf has 512 bytes and every libibmad field of a MAD ends within 256; number is from the header.
            unsafe { get(buf.as_mut_ptr().cast(), 0, number) }
        } else {
            // SAFETY: the symbol has this signature in the installed header.
            let get: Symbol<unsafe extern "C" fn(*mut c_void, c_int, c_int) -> u32> =
                unsafe { self.library.get(b"mad_get_field") }.unwrap();
            // SAFETY: as above.
            u64::from(unsafe { get(buf.as_mut_ptr().cast(), 0, number) })
        }
    }

    fn set(&self, buf: &mut [u8; ROOM], number: c_int, width: u32, value: u64) {
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        if width > 32 {
            // SAFETY: the symbol has this signature in the installed header.
            let set: Symbol<unsafe extern "C" fn(*mut c_void, c_int, c_int, u64)> =
                unsafe { self.library.get(b"mad_set_field64") }.unwrap();
            // SAFETY: buf has 512 bytes and every libibmad field of a MAD ends within 256; number is from the header.
            unsafe { set(buf.as_mut_ptr().cast(), 0, number, value) }
        } else {
            let value = u32::try_from(value).unwrap();
            // SAFETY: the symbol has this signature in the installed header.
            let set: Symbol<unsafe extern "C" fn(*mut c_void, c_int, c_int, u32)> =
                unsafe { self.library.get(b"mad_set_field") }.unwrap();
            // SAFETY: as above.
            unsafe { set(buf.as_mut_ptr().cast(), 0, number, value) }
        }
    }

    fn get_array(&self, buf: &mut [u8; ROOM], number: c_int, into: &mut [u8; ROOM]) {
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        // SAFETY: the symbol has this signature in the installed header.
        let get: Symbol<unsafe extern "C" fn(*mut c_void, c_int, c_int, *mut c_void)> =
            unsafe { self.library.get(b"mad_get_array") }.unwrap();
        // SAFETY: both buffers have 512 bytes, no array of a MAD has more than 256; number is from the header.
        unsafe { get(buf.as_mut_ptr().cast(), 0, number, into.as_mut_ptr().cast()) }
    }

    fn set_array(&self, buf: &mut [u8; ROOM], number: c_int, from: &mut [u8; ROOM]) {
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        // SAFETY: the symbol has this signature in the installed header.
        let set: Symbol<unsafe extern "C" fn(*mut c_void, c_int, c_int, *mut c_void)> =
            unsafe { self.library.get(b"mad_set_array") }.unwrap();
        // SAFETY: both buffers have 512 bytes, no array of a MAD has more than 256; number is from the header.
        unsafe { set(buf.as_mut_ptr().cast(), 0, number, from.as_mut_ptr().cast()) }
    }
}

/// Reads `enum MAD_FIELDS` out of the header text; understands comments, `NAME = NUMBER` and `NAME = OTHER`.
fn parse_enum(text: &str) -> BTreeMap<String, c_int> {
    let start = text.find("enum MAD_FIELDS {").expect("the header declares enum MAD_FIELDS");
    let body = &text[start + "enum MAD_FIELDS {".len()..];
    let mut plain = String::new();
    let mut rest = body;
    while let Some((before, comment)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = comment.split_once("*/").expect("comments end").1;
    }
    plain.push_str(rest);
    let plain = plain.split_once("};").expect("the enum ends").0.to_owned();
    let mut numbers = BTreeMap::new();
    let mut next = 0;
    for entry in plain.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, value) = match entry.split_once('=') {
            None => (entry, next),
            Some((name, value)) => {
                let value = value.trim();
                (name.trim(), value.parse().unwrap_or_else(|_| numbers[value]))
            }
        };
        assert_eq!(numbers.insert(name.to_owned(), value), None, "{name} twice");
        next = value + 1;
    }
    numbers
}

/// Our layouts by name, with the parts of the MAD that have no `Repr`.
fn layouts() -> BTreeMap<&'static str, Vec<(&'static str, Field)>> {
    let mut all: BTreeMap<_, _> =
        catalog::all().map(|layout| (layout.name, layout.fields.to_vec())).collect();
    assert_eq!(all.insert("SMP", smp::FIELDS.to_vec()), None);
    assert_eq!(all.insert("MadMethod", vec![("r_bit", mad::R_BIT), ("method_code", mad::METHOD_CODE)]), None);
    all
}

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

    fn bytes(&mut self) -> [u8; ROOM] {
        std::array::from_fn(|_| self.next().to_le_bytes()[0])
    }
}

/// All rows with `{}` expanded: layout, field name, field, element, libibmad's name.
fn scalar_rows() -> Vec<(&'static str, &'static str, Field, usize, String)> {
    let layouts = layouts();
    let mut rows = Vec::new();
    let selects = SELECT_AS_IN_PORT_COUNTERS.iter().flat_map(|layout| {
        [
            (*layout, "port_select", "IB_PC_PORT_SELECT_F"),
            (*layout, "counter_select", "IB_PC_COUNTER_SELECT_F"),
        ]
    });
    let table = TABLE
        .iter()
        .flat_map(|(layout, rows)| rows.iter().map(move |(field, name)| (*layout, *field, *name)));
    for (layout, field_name, name) in table.chain(selects).filter(|row| !row.2.starts_with('*')) {
        let fields = layouts.get(layout).unwrap_or_else(|| panic!("no layout {layout}"));
        let field = fields.iter().find(|(known, _)| *known == field_name);
        let field = field.unwrap_or_else(|| panic!("no field {layout}.{field_name}")).1;
        assert_eq!(
            name.contains("{}"),
            field.count() > 1,
            "{layout}.{field_name} has {} elements",
            field.count()
        );
        for index in 0..field.count() {
            rows.push((layout, field_name, field, index, name.replace("{}", &index.to_string())));
        }
    }
    rows
}

/// Compares one scalar; the error says where the two differ.
fn compare_scalar(
    peer: &Peer,
    random: &mut Random,
    field: Field,
    index: usize,
    number: c_int,
) -> Result<(), String> {
    for round in 0..64 {
        let value = match round {
            0 => 0,
            1 => field.max(),
            _ => random.next() & field.max(),
        };
        // Both start from the same dirty buffer and must leave the same bytes: value, place and width agree.
        let dirty = match round % 4 {
            0 => [0xff; ROOM],
            1 => [0; ROOM],
            _ => random.bytes(),
        };
        let (mut ours, mut theirs) = (dirty, dirty);
        field.set_at(&mut ours, index, value);
        peer.set(&mut theirs, number, field.width(), value);
        if let Some(at) = (0..ROOM).find(|at| ours[*at] != theirs[*at]) {
            let (our, their) = (&ours[at..at + 4], &theirs[at..at + 4]);
            return Err(format!(
                "writing {value:#x} differs from byte {at}: ours {our:02x?}, libibmad's {their:02x?}"
            ));
        }
        let read = peer.get(&mut ours, number, field.width());
        if read != value {
            return Err(format!("we wrote {value:#x}, libibmad reads {read:#x}"));
        }
        let read = field.get_at(&theirs, index);
        if read != value {
            return Err(format!("libibmad wrote {value:#x}, we read {read:#x}"));
        }
    }
    Ok(())
}

#[test]
fn every_scalar_has_the_same_value_both_ways() {
    let Some(peer) = Peer::open() else { return };
    let mut random = Random::seeded();
    let (mut compared, mut differ) = (0, Vec::new());
    for (layout, field_name, field, index, name) in scalar_rows() {
        let number = peer.number(&name);
        compared += 1;
        let verdict = compare_scalar(&peer, &mut random, field, index, number);
        let known = SWAPPED_IN_LIBIBMAD.iter().find(|(swapped, ..)| *swapped == name);
        match (verdict, known) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => println!("{name} is right in this libibmad; its entry in the list can go"),
            (Err(_), Some((_, byte, reason))) => {
                // The known mistake and no other: with the offset libibmad uses, everything agrees.
                println!("{layout}.{field_name}: byte {}, {name}: byte {byte}, {reason}", field.byte());
                let theirs = Field::whole(*byte, 16);
                compare_scalar(&peer, &mut random, theirs, 0, number)
                    .unwrap_or_else(|how| panic!("{name}: {how}"));
            }
            (Err(how), None) => differ.push(format!("{layout}.{field_name}[{index}] and {name}: {how}")),
        }
    }
    println!("{compared} scalars compared");
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(compared > 300, "only {compared} scalars were compared");
}

#[test]
fn every_array_covers_the_same_bytes() {
    let Some(peer) = Peer::open() else { return };
    let mut random = Random::seeded();
    let layouts = layouts();
    // One array of libibmad's may be several fields of ours (VL and weight of an arbitration entry).
    let mut arrays: BTreeMap<&str, (&str, Vec<Field>)> = BTreeMap::new();
    for (layout, rows) in TABLE {
        for (field_name, name) in rows.iter().filter(|row| row.1.starts_with('*')) {
            let field = layouts[layout].iter().find(|(known, _)| known == field_name).unwrap().1;
            arrays.entry(&name[1..]).or_insert((layout, Vec::new())).1.push(field);
        }
    }
    for (name, (layout, fields)) in &arrays {
        let number = peer.number(name);
        let start = fields.iter().map(|field| field.byte()).min().unwrap();
        let end = fields.iter().map(|field| field.end()).max().unwrap();
        let (mut buf, mut from) = ([0xa5; ROOM], random.bytes());
        peer.set_array(&mut buf, number, &mut from);
        assert_eq!(buf[start..end], from[..end - start], "{layout} and {name}");
        assert!(buf[..start].iter().chain(&buf[end..]).all(|byte| *byte == 0xa5), "{layout} and {name}");
        // Elements read by us are the bytes libibmad placed.
        for field in fields {
            for index in 0..field.count() {
                let bit = (field.byte() - start) * 8 + field.bit_in_byte() + index * field.stride();
                let want = (0..field.width() as usize).fold(0, |value, at| {
                    value << 1 | u64::from(from[(bit + at) / 8] >> (7 - (bit + at) % 8) & 1)
                });
                assert_eq!(field.get_at(&buf, index), want, "{layout} and {name} element {index}");
            }
        }
        // And the other way.
        let (mut buf, mut got) = (random.bytes(), [0xa5; ROOM]);
        for field in fields {
            for index in 0..field.count() {
                field.set_at(&mut buf, index, random.next());
            }
        }
        peer.get_array(&mut buf, number, &mut got);
        assert_eq!(got[..end - start], buf[start..end], "{layout} and {name}");
        assert!(got[end - start..].iter().all(|byte| *byte == 0xa5), "{layout} and {name}");
    }
    println!("{} arrays compared", arrays.len());
    assert!(arrays.len() >= 9);
}

#[test]
fn data_areas_are_where_libibmad_puts_them() {
    let Some(peer) = Peer::open() else { return };
    for (name, range) in RANGES {
        let (mut buf, mut ones) = ([0; ROOM], [0xff; ROOM]);
        peer.set_array(&mut buf, peer.number(name), &mut ones);
        let first = buf.iter().position(|byte| *byte != 0).unwrap_or(ROOM);
        let end = buf.iter().rposition(|byte| *byte != 0).map_or(ROOM, |at| at + 1);
        assert_eq!(first..end, range.clone(), "{name}");
    }
}

#[test]
fn every_field_of_ours_is_compared_or_excused() {
    let layouts = layouts();
    let mut compared: BTreeSet<(&str, &str)> = TABLE
        .iter()
        .flat_map(|(layout, rows)| rows.iter().map(move |(field, _)| (*layout, *field)))
        .collect();
    for layout in SELECT_AS_IN_PORT_COUNTERS {
        compared.extend([(*layout, "port_select"), (*layout, "counter_select")]);
    }
    let excused = |layout: &str, field: &str| {
        ONLY_OURS.iter().any(|(known, name, _)| *known == layout && (*name == "*" || *name == field))
    };
    for (layout, fields) in &layouts {
        for (field, _) in fields {
            let is_compared = compared.contains(&(*layout, *field));
            assert_ne!(
                is_compared,
                excused(layout, field),
                "{layout}.{field}: either compared or excused, not both"
            );
        }
    }
    for (layout, field, reason) in ONLY_OURS {
        let known = &layouts[layout];
        assert!(
            *field == "*" || known.iter().any(|(name, _)| name == field),
            "stale excuse {layout}.{field}: {reason}"
        );
    }
    println!("{} fields of ours compared, {} excuses", compared.len(), ONLY_OURS.len());
}

#[test]
fn every_field_of_libibmad_in_scope_is_compared() {
    let Some(peer) = Peer::open() else { return };
    let mut covered: BTreeSet<c_int> = scalar_rows().iter().map(|row| peer.number(&row.4)).collect();
    for (_, rows) in TABLE {
        covered.extend(rows.iter().filter(|row| row.1.starts_with('*')).map(|row| peer.number(&row.1[1..])));
    }
    covered.extend(RANGES.iter().map(|(name, _)| peer.number(name)));
    // Markers: `..._FIRST_F` shares its number with a field, `..._LAST_F` and `IB_FIELD_LAST_` name none.
    let fields =
        || peer.numbers.iter().filter(|(name, _)| !name.contains("_FIRST_") && !name.contains("_LAST_"));
    let in_scope = |name: &str| !OUT_OF_SCOPE.iter().any(|(prefix, _)| name.starts_with(prefix));
    let missing: Vec<_> =
        fields().filter(|(name, number)| in_scope(name) && !covered.contains(number)).collect();
    assert!(missing.is_empty(), "fields of libibmad that nobody compares: {missing:?}");
    let total = fields().count();
    let scope = fields().filter(|(name, _)| in_scope(name)).count();
    println!(
        "libibmad has {total} fields, {scope} in scope (SMP, PMA, SA header, RMPP, notice, vendor): all compared"
    );
    assert!(scope > 350, "only {scope} fields found; was the header understood?");
}
