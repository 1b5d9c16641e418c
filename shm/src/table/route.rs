//! A route: what both sides handle, and its words in a bank.
//!
//! Plain functions over private memory. A word in shared memory is looked at only after it has been copied; what the copy
//! says is believed only if its checksum, which covers the place in the table, agrees.
//!
//! Not here: what a route means for a MAD.

use zerocopy::IntoBytes;

use super::MAX_PATH_PORTS;
use super::area::{Record, checksum, record_word};
use crate::sync::AtomicU64;

/// Words of a route in a bank.
pub const ROUTE_WORDS: usize = 16;

/// Sets the checksums of routes apart.
const DOMAIN: u64 = 0x726f_7574_6573;

/// What becomes of a MAD whose pinned path is broken; the number travels.
pub mod on_broken {
    /// Goes by the forwarding tables.
    pub const FALLBACK: u8 = 0;
    /// Is dropped and counted.
    pub const DROP: u8 = 1;
}

/// Numbers of the words of a route, after version and checksum.
pub(crate) mod route_word {
    /// `slid << 16 | dlid`.
    pub(crate) const KEY: usize = 2;
    /// Bit 0 present, 8..16 `on_broken`, 16..32 P_Key, 32..40 priority, 40..48 path length, 48..64 tenant.
    pub(crate) const FACTS: usize = 3;
    /// Control's own number.
    pub(crate) const ID: usize = 4;
    /// Eight words, one byte a port, in memory order. Last, so that a route of few ports is one line of the processor.
    pub(crate) const PATH: usize = 5;
}

/// Words that count of a route with at most [`SHORT_PATH_PORTS`].
const SHORT_WORDS: usize = 8;
/// Ports whose bytes are in the first line.
const SHORT_PATH_PORTS: usize = (SHORT_WORDS - route_word::PATH) * 8;

/// A route, as both sides handle it.
///
/// ```
/// use madplane_shm::table::RouteEntry;
/// let route = RouteEntry::new(0x11, 0x22, &[1, 2, 3, 4]).unwrap();
/// assert_eq!(route.ports(), [1, 2, 3, 4]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteEntry {
    /// LID of the sender.
    pub slid: u16,
    /// LID of the receiver.
    pub dlid: u16,
    /// Partition.
    pub p_key: u16,
    /// 0 for MADs of every class, more for those of the reserved class only.
    pub priority: u8,
    /// One of [`on_broken`].
    pub on_broken: u8,
    /// Number of the tenant whose MADs it serves, 0 for everybody's.
    pub tenant: u16,
    /// Ports by which the MAD leaves, hop by hop; `path_len` of them count.
    pub path: [u8; MAX_PATH_PORTS],
    /// 1 to 63.
    pub path_len: u8,
    /// Control's own number.
    pub id: u64,
}

impl RouteEntry {
    /// A route with the full default partition, priority 0, no tenant, falling back when broken. `None` unless `ports`
    /// has 1 to 63 ports.
    pub fn new(slid: u16, dlid: u16, ports: &[u8]) -> Option<Self> {
        let mut path = [0; MAX_PATH_PORTS];
        path.get_mut(..ports.len())?.copy_from_slice(ports);
        let path_len = u8::try_from(ports.len()).ok().filter(|len| *len > 0)?;
        let on_broken = on_broken::FALLBACK;
        Some(Self { slid, dlid, p_key: 0xffff, priority: 0, on_broken, tenant: 0, path, path_len, id: 0 })
    }

    /// The ports that count.
    pub fn ports(&self) -> &[u8] {
        &self.path[..MAX_PATH_PORTS.min(usize::from(self.path_len))]
    }

    /// Whether readers would take it: path length and `on_broken` are within their ranges.
    pub fn is_sound(&self) -> bool {
        (1..=MAX_PATH_PORTS).contains(&usize::from(self.path_len)) && self.on_broken <= on_broken::DROP
    }
}

/// Words of a route in private memory.
pub type RouteWords = [u64; ROUTE_WORDS];

/// What the words of a route say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded {
    Absent,
    Present(RouteEntry),
    Damaged,
}

pub(crate) fn encode(index: u32, version: u64, entry: Option<&RouteEntry>) -> RouteWords {
    let mut words = [0; ROUTE_WORDS];
    if let Some(entry) = entry {
        words[route_word::KEY] = u64::from(entry.slid) << 16 | u64::from(entry.dlid);
        words[route_word::FACTS] = 1
            | u64::from(entry.on_broken) << 8
            | u64::from(entry.p_key) << 16
            | u64::from(entry.priority) << 32
            | u64::from(entry.path_len) << 40
            | u64::from(entry.tenant) << 48;
        let mut path = [0; 64];
        path[..MAX_PATH_PORTS].copy_from_slice(&entry.path);
        for (word, piece) in words[route_word::PATH..].iter_mut().zip(path.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*piece);
        }
        words[route_word::ID] = entry.id;
    }
    words[record_word::VERSION] = version;
    words[record_word::CHECKSUM] = checksum(DOMAIN, index, &words[..RouteRecord::words_in_use(&words)]);
    words
}

/// What the words of a route say, all of them or those that count.
pub(crate) fn decode(index: u32, words: &[u64]) -> Decoded {
    if words[record_word::VERSION] == 0 && words.iter().all(|word| *word == 0) {
        return Decoded::Absent;
    }
    let Some(words) = words.get(..RouteRecord::words_in_use(words)) else { return Decoded::Damaged };
    if words[record_word::CHECKSUM] != checksum(DOMAIN, index, words) {
        return Decoded::Damaged;
    }
    let facts = words[route_word::FACTS].to_le_bytes();
    if facts[0] == 0 {
        return Decoded::Absent;
    }
    let key = words[route_word::KEY].to_le_bytes();
    let mut entry = RouteEntry {
        slid: u16::from_le_bytes([key[2], key[3]]),
        dlid: u16::from_le_bytes([key[0], key[1]]),
        p_key: u16::from_le_bytes([facts[2], facts[3]]),
        priority: facts[4],
        on_broken: facts[1],
        tenant: u16::from_le_bytes([facts[6], facts[7]]),
        path: [0; MAX_PATH_PORTS],
        path_len: facts[5],
        id: words[route_word::ID],
    };
    let path = words[route_word::PATH..].as_bytes();
    // two lengths that the compiler knows
    match path.first_chunk::<MAX_PATH_PORTS>() {
        Some(long) => entry.path = *long,
        None => entry.path[..SHORT_PATH_PORTS].copy_from_slice(&path[..SHORT_PATH_PORTS]),
    }
    if facts[0] == 1 && entry.is_sound() { Decoded::Present(entry) } else { Decoded::Damaged }
}

/// A route in a bank.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct RouteRecord {
    /// Meaning by number: LAYOUT.md.
    pub words: [AtomicU64; ROUTE_WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<RouteRecord>() == ROUTE_WORDS * 8 && align_of::<RouteRecord>() == 128);

impl Record for RouteRecord {
    type Words = RouteWords;
    const CHUNK: u32 = 32;
    const HEAD_WORDS: usize = SHORT_WORDS;

    fn words_in_use(head: &[u64]) -> usize {
        let path_len = usize::from(head[route_word::FACTS].to_le_bytes()[5]);
        if path_len <= SHORT_PATH_PORTS { SHORT_WORDS } else { ROUTE_WORDS }
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_route_survives_encoding_and_no_other_place_accepts_it() {
        let mut entry = RouteEntry::new(0xbfff, 1, &[255; 63]).unwrap();
        entry.id = u64::MAX;
        entry.tenant = 1023;
        entry.priority = 255;
        entry.on_broken = on_broken::DROP;
        let words = encode(65_535, 9, Some(&entry));
        assert_eq!(decode(65_535, &words), Decoded::Present(entry));
        assert_eq!(decode(65_534, &words), Decoded::Damaged);
        assert_eq!(decode(65_535, &words[..SHORT_WORDS]), Decoded::Damaged, "words that count are missing");
        for length in 1..=MAX_PATH_PORTS {
            let mut entry = RouteEntry::new(3, 4, &vec![9; length]).unwrap();
            entry.id = length as u64;
            let words = encode(7, 9, Some(&entry));
            let in_use = RouteRecord::words_in_use(&words[..SHORT_WORDS]);
            assert_eq!(in_use, if length <= 24 { 8 } else { 16 });
            assert_eq!(decode(7, &words), Decoded::Present(entry));
            assert_eq!(decode(7, &words[..in_use]), Decoded::Present(entry));
        }
        assert_eq!(decode(1, &encode(1, 9, None)), Decoded::Absent);
        assert_eq!(decode(1, &[0; ROUTE_WORDS]), Decoded::Absent);
    }

    #[test]
    fn a_path_has_1_to_63_ports() {
        assert!(RouteEntry::new(1, 2, &[]).is_none() && RouteEntry::new(1, 2, &[1; 64]).is_none());
        for length in [1, 63] {
            let entry = RouteEntry::new(1, 2, &vec![7; length]).unwrap();
            assert!(entry.is_sound() && entry.ports().len() == length);
        }
        let mut entry = RouteEntry::new(1, 2, &[1]).unwrap();
        entry.path_len = 64;
        assert!(!entry.is_sound() && entry.ports().len() == 63);
        assert_eq!(decode(0, &encode(0, 2, Some(&entry))), Decoded::Damaged);
    }
}
