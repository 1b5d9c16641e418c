//! A tenant: who may use it and what its sessions may send, as both sides handle it, and its words in a bank.
//!
//! Tenants have numbers from 1 on: the place in the table and one. Number 0 is no tenant, which may do everything.
//! Plain functions over private memory, as for routes: copied, held against the checksum, then believed.
//!
//! Not here: holding a MAD or a peer's credentials against a tenant.

use super::MAX_TENANTS;
use super::area::{Record, checksum, record_word};
use crate::sync::AtomicU64;

/// Words of a tenant in a bank.
pub const TENANT_WORDS: usize = 64;
/// Bytes of a name, at least one of them zero.
pub const NAME_BYTES: usize = 32;
/// Most P_Keys of a tenant.
pub const MAX_P_KEYS: usize = 32;
/// Most user ids, group ids and nodes of a tenant, each.
pub const MAX_MEMBERS: usize = 8;
/// Most path prefixes of a tenant.
pub const MAX_PREFIXES: usize = 4;
/// Most ports of a path prefix.
pub const MAX_PREFIX_PORTS: usize = 15;

/// Sets the checksums of tenants apart.
const DOMAIN: u64 = 0x7465_6e61_6e74;

/// Bits of [`TenantEntry::rights`].
pub mod tenant_right {
    /// Get by SMP, and the answers.
    pub const SMP_GET: u8 = 1;
    /// Set by SMP.
    pub const SMP_SET: u8 = 2;
    /// All there are.
    pub const ALL: u8 = SMP_GET | SMP_SET;
}

/// Values of [`TenantEntry::class`]; the number travels.
pub mod service_class {
    /// Served after the reserved class.
    pub const BULK: u8 = 0;
    /// Served first.
    pub const RESERVED: u8 = 1;
}

/// Numbers of the words of a tenant, after version and checksum.
pub(crate) mod tenant_word {
    /// Bytes, lowest first: present, rights, class, then how many P_Keys, uids, gids, nodes and prefixes count.
    pub(crate) const FACTS: usize = 2;
    /// Four words, in memory order.
    pub(crate) const NAME: usize = 3;
    /// Control's own number.
    pub(crate) const ID: usize = 7;
    /// Four words, bit `class % 64` of word `class / 64`.
    pub(crate) const CLASSES: usize = 8;
    /// Eight words, four P_Keys each, lowest first.
    pub(crate) const P_KEYS: usize = 12;
    /// Four words, two user ids each, lowest first.
    pub(crate) const UIDS: usize = 20;
    /// Four words, two group ids each, lowest first.
    pub(crate) const GIDS: usize = 24;
    /// Eight words, a GUID each.
    pub(crate) const NODES: usize = 28;
    /// Eight words, two a prefix, in memory order: its length, then its ports.
    pub(crate) const PREFIXES: usize = 36;
    /// `rate | burst << 32`.
    pub(crate) const RATE: usize = 44;
}

/// The first ports of a directed path.
///
/// ```
/// use madplane_shm::table::tenant::PathPrefix;
/// let prefix = PathPrefix::new(&[1, 4]).unwrap();
/// assert!(prefix.covers(&[1, 4, 9]) && prefix.covers(&[1, 4]));
/// assert!(!prefix.covers(&[1]) && !prefix.covers(&[1, 5, 9]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathPrefix {
    /// How many ports count, at most 15; with 0 it covers every path.
    pub len: u8,
    /// The ports.
    pub ports: [u8; MAX_PREFIX_PORTS],
}

impl PathPrefix {
    /// A prefix of these ports; `None` for more than 15.
    pub fn new(ports: &[u8]) -> Option<Self> {
        let mut made = Self { len: u8::try_from(ports.len()).ok()?, ..Self::default() };
        made.ports.get_mut(..ports.len())?.copy_from_slice(ports);
        Some(made)
    }

    /// The ports that count.
    pub fn ports(&self) -> &[u8] {
        &self.ports[..MAX_PREFIX_PORTS.min(usize::from(self.len))]
    }

    /// Whether `path` begins with it.
    pub fn covers(&self, path: &[u8]) -> bool {
        path.starts_with(self.ports())
    }
}

/// A tenant, as both sides handle it.
///
/// ```
/// use madplane_shm::table::tenant::{TenantEntry, service_class, tenant_right};
/// let mut tenant = TenantEntry::new("blue").unwrap();
/// tenant.rights = tenant_right::SMP_GET;
/// tenant.class = service_class::RESERVED;
/// tenant.allow_class(0x04, true);
/// assert!(tenant.set_p_keys(&[0x8001, 0x0002]) && tenant.set_uids(&[1000]));
/// assert_eq!(tenant.name(), "blue");
/// assert_eq!(tenant.p_keys(), [0x8001, 0x0002]);
/// assert!(tenant.allows_class(0x04) && !tenant.allows_class(0x03));
/// assert!(tenant.is_sound());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantEntry {
    /// Zero padded; 1 to 31 bytes of letters, digits, `.`, `_` and `-`.
    pub name: [u8; NAME_BYTES],
    /// Bits of [`tenant_right`].
    pub rights: u8,
    /// One of [`service_class`].
    pub class: u8,
    /// Management classes that may be sent and registered, bit `class % 64` of word `class / 64`.
    pub classes: [u64; 4],
    /// P_Keys with their membership bit 0x8000.
    pub p_keys: [u16; MAX_P_KEYS],
    /// How many of them count.
    pub p_key_count: u8,
    /// Users who may be this tenant.
    pub uids: [u32; MAX_MEMBERS],
    /// How many of them count.
    pub uid_count: u8,
    /// Groups whose members may be this tenant.
    pub gids: [u32; MAX_MEMBERS],
    /// How many of them count.
    pub gid_count: u8,
    /// GUIDs of the nodes whose subnet management agents it may address.
    pub nodes: [u64; MAX_MEMBERS],
    /// How many of them count.
    pub node_count: u8,
    /// Directed paths that it may send along begin with one of these.
    pub prefixes: [PathPrefix; MAX_PREFIXES],
    /// How many of them count.
    pub prefix_count: u8,
    /// MADs a second, 0 for no limit.
    pub rate: u32,
    /// MADs that may come at once.
    pub burst: u32,
    /// Control's own number, never used for another tenant.
    pub id: u64,
}

/// Copies `new` to the front of `list` and clears the rest; `None` if there is no room.
fn fill<T: Copy + Default>(list: &mut [T], count: &mut u8, new: &[T]) -> bool {
    let (Ok(length), true) = (u8::try_from(new.len()), new.len() <= list.len()) else { return false };
    list.fill(T::default());
    list[..new.len()].copy_from_slice(new);
    *count = length;
    true
}

fn counted<T>(list: &[T], count: u8) -> &[T] {
    &list[..list.len().min(usize::from(count))]
}

/// Whether `name` can be a tenant's: 1 to 31 letters, digits, `.`, `_` and `-`.
pub fn is_tenant_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

/// Number of the tenant that stands at `place`; 0, no tenant, for a place that no table has.
pub fn number_of(place: u32) -> u16 {
    if place < MAX_TENANTS { u16::try_from(place + 1).unwrap_or(0) } else { 0 }
}

/// Place of the tenant with `number`; `None` for 0, no tenant.
pub fn place_of(number: u16) -> Option<u32> {
    u32::from(number).checked_sub(1)
}

impl TenantEntry {
    /// A tenant that nobody may be and that may send nothing, of the bulk class and without a limit. `None` unless
    /// [`is_tenant_name`] holds.
    pub fn new(name: &str) -> Option<Self> {
        let mut field = [0; NAME_BYTES];
        field.get_mut(..name.len()).filter(|_| is_tenant_name(name))?.copy_from_slice(name.as_bytes());
        Some(Self {
            name: field,
            rights: 0,
            class: service_class::BULK,
            classes: [0; 4],
            p_keys: [0; MAX_P_KEYS],
            p_key_count: 0,
            uids: [0; MAX_MEMBERS],
            uid_count: 0,
            gids: [0; MAX_MEMBERS],
            gid_count: 0,
            nodes: [0; MAX_MEMBERS],
            node_count: 0,
            prefixes: [PathPrefix::default(); MAX_PREFIXES],
            prefix_count: 0,
            rate: 0,
            burst: 0,
            id: 0,
        })
    }

    /// The name; empty if it is none.
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(0);
        std::str::from_utf8(&self.name[..end]).unwrap_or("")
    }

    /// Whether MADs of management class `class` may be sent, and agents for it registered.
    pub fn allows_class(&self, class: u8) -> bool {
        self.classes[usize::from(class / 64)] >> (class % 64) & 1 == 1
    }

    /// Allows or forbids a management class.
    pub fn allow_class(&mut self, class: u8, allowed: bool) {
        let (word, bit) = (&mut self.classes[usize::from(class / 64)], 1 << (class % 64));
        *word = if allowed { *word | bit } else { *word & !bit };
    }

    /// The P_Keys.
    pub fn p_keys(&self) -> &[u16] {
        counted(&self.p_keys, self.p_key_count)
    }

    /// The users.
    pub fn uids(&self) -> &[u32] {
        counted(&self.uids, self.uid_count)
    }

    /// The groups.
    pub fn gids(&self) -> &[u32] {
        counted(&self.gids, self.gid_count)
    }

    /// The nodes.
    pub fn nodes(&self) -> &[u64] {
        counted(&self.nodes, self.node_count)
    }

    /// The path prefixes.
    pub fn prefixes(&self) -> &[PathPrefix] {
        counted(&self.prefixes, self.prefix_count)
    }

    /// Replaces the P_Keys; false, and nothing changed, for more than 32.
    #[must_use]
    pub fn set_p_keys(&mut self, p_keys: &[u16]) -> bool {
        fill(&mut self.p_keys, &mut self.p_key_count, p_keys)
    }

    /// Replaces the users; false, and nothing changed, for more than 8.
    #[must_use]
    pub fn set_uids(&mut self, uids: &[u32]) -> bool {
        fill(&mut self.uids, &mut self.uid_count, uids)
    }

    /// Replaces the groups; false, and nothing changed, for more than 8.
    #[must_use]
    pub fn set_gids(&mut self, gids: &[u32]) -> bool {
        fill(&mut self.gids, &mut self.gid_count, gids)
    }

    /// Replaces the nodes; false, and nothing changed, for more than 8.
    #[must_use]
    pub fn set_nodes(&mut self, nodes: &[u64]) -> bool {
        fill(&mut self.nodes, &mut self.node_count, nodes)
    }

    /// Replaces the path prefixes; false, and nothing changed, for more than 4.
    #[must_use]
    pub fn set_prefixes(&mut self, prefixes: &[PathPrefix]) -> bool {
        fill(&mut self.prefixes, &mut self.prefix_count, prefixes)
    }

    /// Whether readers would take it: the name is one, every number is within its range.
    pub fn is_sound(&self) -> bool {
        let name = self.name();
        is_tenant_name(name)
            && self.name[name.len()..].iter().all(|byte| *byte == 0)
            && self.rights & !tenant_right::ALL == 0
            && self.class <= service_class::RESERVED
            && usize::from(self.p_key_count) <= MAX_P_KEYS
            && [self.uid_count, self.gid_count, self.node_count]
                .iter()
                .all(|count| usize::from(*count) <= MAX_MEMBERS)
            && usize::from(self.prefix_count) <= MAX_PREFIXES
            && self.prefixes.iter().all(|prefix| usize::from(prefix.len) <= MAX_PREFIX_PORTS)
    }
}

/// Words of a tenant in private memory.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct TenantWords([u64; TENANT_WORDS]);

impl Default for TenantWords {
    fn default() -> Self {
        Self([0; TENANT_WORDS])
    }
}

impl AsRef<[u64]> for TenantWords {
    fn as_ref(&self) -> &[u64] {
        &self.0
    }
}

impl AsMut<[u64]> for TenantWords {
    fn as_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

/// What the words of a tenant say.
#[expect(clippy::large_enum_variant, reason = "lives for one call")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded {
    Absent,
    Present(TenantEntry),
    Damaged,
}

pub(crate) fn encode(place: u32, version: u64, entry: Option<&TenantEntry>) -> TenantWords {
    let mut words = [0; TENANT_WORDS];
    if let Some(entry) = entry {
        words[tenant_word::FACTS] = u64::from_le_bytes([
            1,
            entry.rights,
            entry.class,
            entry.p_key_count,
            entry.uid_count,
            entry.gid_count,
            entry.node_count,
            entry.prefix_count,
        ]);
        for (word, piece) in words[tenant_word::NAME..].iter_mut().zip(entry.name.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*piece);
        }
        words[tenant_word::ID] = entry.id;
        words[tenant_word::RATE] = pair([entry.rate, entry.burst]);
        words[tenant_word::CLASSES..][..4].copy_from_slice(&entry.classes);
        for (word, four) in words[tenant_word::P_KEYS..].iter_mut().zip(entry.p_keys.as_chunks::<4>().0) {
            *word = four.iter().rev().fold(0, |word, p_key| word << 16 | u64::from(*p_key));
        }
        for (first, list) in [(tenant_word::UIDS, &entry.uids), (tenant_word::GIDS, &entry.gids)] {
            for (word, two) in words[first..].iter_mut().zip(list.as_chunks::<2>().0) {
                *word = pair(*two);
            }
        }
        words[tenant_word::NODES..][..MAX_MEMBERS].copy_from_slice(&entry.nodes);
        for (words, prefix) in
            words[tenant_word::PREFIXES..].as_chunks_mut::<2>().0.iter_mut().zip(&entry.prefixes)
        {
            let mut bytes = [prefix.len; 16];
            bytes[1..].copy_from_slice(&prefix.ports);
            for (word, piece) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_ne_bytes(*piece);
            }
        }
    }
    words[record_word::VERSION] = version;
    words[record_word::CHECKSUM] = checksum(DOMAIN, place, &words);
    TenantWords(words)
}

/// What the words of a tenant say.
pub(crate) fn decode(place: u32, words: &[u64]) -> Decoded {
    let Some(words) = words.first_chunk::<TENANT_WORDS>() else { return Decoded::Damaged };
    if words[record_word::VERSION] == 0 && words.iter().all(|word| *word == 0) {
        return Decoded::Absent;
    }
    if words[record_word::CHECKSUM] != checksum(DOMAIN, place, words) {
        return Decoded::Damaged;
    }
    let facts = words[tenant_word::FACTS].to_le_bytes();
    if facts[0] == 0 {
        return Decoded::Absent;
    }
    let [present, rights, class, p_key_count, uid_count, gid_count, node_count, prefix_count] = facts;
    let [rate, burst] = halves(words[tenant_word::RATE]);
    let mut entry = TenantEntry {
        name: [0; NAME_BYTES],
        rights,
        class,
        classes: [0; 4],
        p_keys: [0; MAX_P_KEYS],
        p_key_count,
        uids: [0; MAX_MEMBERS],
        uid_count,
        gids: [0; MAX_MEMBERS],
        gid_count,
        nodes: [0; MAX_MEMBERS],
        node_count,
        prefixes: [PathPrefix::default(); MAX_PREFIXES],
        prefix_count,
        rate,
        burst,
        id: words[tenant_word::ID],
    };
    for (piece, word) in entry.name.as_chunks_mut::<8>().0.iter_mut().zip(&words[tenant_word::NAME..]) {
        *piece = word.to_ne_bytes();
    }
    entry.classes.copy_from_slice(&words[tenant_word::CLASSES..][..4]);
    for (four, word) in entry.p_keys.as_chunks_mut::<4>().0.iter_mut().zip(&words[tenant_word::P_KEYS..]) {
        for (p_key, bytes) in four.iter_mut().zip(word.to_le_bytes().as_chunks::<2>().0) {
            *p_key = u16::from_le_bytes(*bytes);
        }
    }
    for (first, list) in [(tenant_word::UIDS, &mut entry.uids), (tenant_word::GIDS, &mut entry.gids)] {
        for (two, word) in list.as_chunks_mut::<2>().0.iter_mut().zip(&words[first..]) {
            *two = halves(*word);
        }
    }
    entry.nodes.copy_from_slice(&words[tenant_word::NODES..][..MAX_MEMBERS]);
    for (prefix, [first, second]) in
        entry.prefixes.iter_mut().zip(words[tenant_word::PREFIXES..].as_chunks::<2>().0)
    {
        let [len, low @ ..] = first.to_ne_bytes();
        prefix.len = len;
        prefix.ports[..7].copy_from_slice(&low);
        prefix.ports[7..].copy_from_slice(&second.to_ne_bytes());
    }
    if present == 1 && entry.is_sound() { Decoded::Present(entry) } else { Decoded::Damaged }
}

fn pair([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// A tenant in a bank.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct TenantRecord {
    /// Meaning by number: LAYOUT.md.
    pub words: [AtomicU64; TENANT_WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<TenantRecord>() == TENANT_WORDS * 8 && align_of::<TenantRecord>() == 128);

impl Record for TenantRecord {
    type Words = TenantWords;
    // as many bytes between two looks as routes have
    const CHUNK: u32 = 8;
    const HEAD_WORDS: usize = TENANT_WORDS;

    fn words_in_use(_head: &[u64]) -> usize {
        TENANT_WORDS
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests {
    use super::*;

    /// A sound tenant that uses every byte it may.
    fn made_from(seed: u64) -> TenantEntry {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) ^ state >> 40
        };
        let mut byte = || next().to_le_bytes()[0];
        let letters = b"abcXYZ019._-";
        let mut name = [0; NAME_BYTES];
        let length = 1 + usize::from(byte()) % (NAME_BYTES - 1);
        name[..length].fill_with(|| letters[usize::from(byte()) % letters.len()]);
        let mut entry = TenantEntry::new(std::str::from_utf8(&name[..length]).unwrap()).unwrap();
        entry.rights = byte() & tenant_right::ALL;
        entry.class = byte() & 1;
        entry.p_key_count = byte() % 33;
        (entry.uid_count, entry.gid_count, entry.node_count) = (byte() % 9, byte() % 9, byte() % 9);
        entry.prefix_count = byte() % 5;
        for prefix in &mut entry.prefixes {
            prefix.len = byte() % 16;
            prefix.ports.fill_with(&mut byte);
        }
        entry.classes.fill_with(&mut next);
        entry.nodes.fill_with(&mut next);
        entry.id = next();
        let mut half = || u32::try_from(next() & 0xffff_ffff).unwrap();
        (entry.rate, entry.burst) = (half(), half());
        entry.uids.fill_with(&mut half);
        entry.gids.fill_with(&mut half);
        entry.p_keys.fill_with(|| u16::try_from(half() & 0xffff).unwrap());
        entry
    }

    #[test]
    fn every_field_of_a_tenant_survives_encoding_and_no_other_place_accepts_it() {
        for seed in 0..500 {
            let entry = made_from(seed);
            assert!(entry.is_sound(), "seed {seed}: {entry:?}");
            let words = encode(1023, 9, Some(&entry));
            assert_eq!(decode(1023, words.as_ref()), Decoded::Present(entry), "seed {seed}");
            assert_eq!(decode(1022, words.as_ref()), Decoded::Damaged, "seed {seed}");
        }
        assert_eq!(decode(1, encode(1, 9, None).as_ref()), Decoded::Absent);
        assert_eq!(decode(1, TenantWords::default().as_ref()), Decoded::Absent);
    }

    #[test]
    fn every_field_has_words_of_its_own() {
        type Change = (&'static str, std::ops::Range<usize>, fn(&mut TenantEntry));
        let changes: [Change; 16] = [
            ("rights", 2..3, |entry| entry.rights ^= 1),
            ("class", 2..3, |entry| entry.class ^= 1),
            ("p_key_count", 2..3, |entry| entry.p_key_count ^= 1),
            ("uid_count", 2..3, |entry| entry.uid_count ^= 1),
            ("gid_count", 2..3, |entry| entry.gid_count ^= 1),
            ("node_count", 2..3, |entry| entry.node_count ^= 1),
            ("prefix_count", 2..3, |entry| entry.prefix_count ^= 1),
            ("name", 3..7, |entry| entry.name[30] ^= b'a' ^ b'b'),
            ("id", 7..8, |entry| entry.id ^= 1 << 63),
            ("rate", 44..45, |entry| entry.rate ^= 1 << 31),
            ("burst", 44..45, |entry| entry.burst ^= 1 << 31),
            ("classes", 8..12, |entry| entry.classes[3] ^= 1 << 63),
            ("p_keys", 12..20, |entry| entry.p_keys[31] ^= 0x8000),
            ("uids", 20..24, |entry| entry.uids[7] ^= 1),
            ("gids", 24..28, |entry| entry.gids[7] ^= 1),
            ("nodes", 28..36, |entry| entry.nodes[7] ^= 1),
        ];
        let mut entry = made_from(7);
        entry.name = *b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0";
        for count in
            [&mut entry.uid_count, &mut entry.gid_count, &mut entry.node_count, &mut entry.prefix_count]
        {
            *count = 2;
        }
        entry.p_key_count = 2;
        let before = encode(3, 1, Some(&entry)).0;
        for (field, words, change) in changes {
            let mut other = entry;
            change(&mut other);
            let after = encode(3, 1, Some(&other));
            let moved: Vec<usize> = (2..TENANT_WORDS).filter(|at| before[*at] != after.0[*at]).collect();
            assert!(moved.len() == 1 && words.contains(&moved[0]), "{field} moved {moved:?}");
            assert_eq!(decode(3, after.as_ref()), Decoded::Present(other), "{field}");
        }
        for (prefix, byte) in (0..MAX_PREFIXES).flat_map(|prefix| (0..16).map(move |byte| (prefix, byte))) {
            let mut other = entry;
            match byte {
                0 => other.prefixes[prefix].len ^= 1,
                port => other.prefixes[prefix].ports[port - 1] ^= 1,
            }
            let after = encode(3, 1, Some(&other));
            assert_ne!(before[36 + prefix * 2 + byte / 8], after.0[36 + prefix * 2 + byte / 8]);
            assert_eq!(decode(3, after.as_ref()), Decoded::Present(other));
        }
    }

    #[test]
    fn a_tenant_with_one_number_out_of_range_is_not_sound_and_no_reader_takes_it() {
        type Spoil = (&'static str, fn(&mut TenantEntry));
        let spoil: [Spoil; 13] = [
            ("no name", |entry| entry.name = [0; NAME_BYTES]),
            ("a name without end", |entry| entry.name = [b'a'; NAME_BYTES]),
            ("a name with a blank", |entry| entry.name[0] = b' '),
            ("a name that is not UTF-8", |entry| entry.name[0] = 0xff),
            ("something behind the name", |entry| entry.name[31] = b'a'),
            ("a right that is none", |entry| entry.rights = 4),
            ("a class that is none", |entry| entry.class = 2),
            ("33 P_Keys", |entry| entry.p_key_count = 33),
            ("9 users", |entry| entry.uid_count = 9),
            ("9 groups", |entry| entry.gid_count = 9),
            ("9 nodes", |entry| entry.node_count = 9),
            ("5 prefixes", |entry| entry.prefix_count = 5),
            ("a prefix of 16 ports", |entry| entry.prefixes[3].len = 16),
        ];
        for (what, spoil) in spoil {
            let mut entry = TenantEntry::new("t").unwrap();
            assert!(entry.is_sound());
            spoil(&mut entry);
            assert!(!entry.is_sound(), "{what}");
            assert_eq!(decode(0, encode(0, 2, Some(&entry)).as_ref()), Decoded::Damaged, "{what}");
            // whatever the counts say, looking at it does not leave its lists
            let _ = (entry.p_keys(), entry.uids(), entry.gids(), entry.nodes(), entry.prefixes());
            let _ = (entry.name(), entry.prefixes[3].covers(&[0; 63]));
        }
    }

    #[test]
    fn names_have_1_to_31_of_the_letters_that_may_be_used() {
        let longest = "x".repeat(31);
        for name in ["a", "A-1_b.c", longest.as_str()] {
            assert_eq!(TenantEntry::new(name).unwrap().name(), name);
        }
        let too_long = "x".repeat(32);
        for name in ["", " ", "a b", "ä", "a\0", "a/b", "a:b", too_long.as_str()] {
            assert!(!is_tenant_name(name) && TenantEntry::new(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn a_list_that_does_not_fit_changes_nothing() {
        let mut entry = TenantEntry::new("t").unwrap();
        assert!(entry.set_p_keys(&[1; 32]) && entry.set_uids(&[2; 8]) && entry.set_gids(&[3; 8]));
        assert!(entry.set_nodes(&[4; 8]) && entry.set_prefixes(&[PathPrefix::new(&[5]).unwrap(); 4]));
        let full = entry;
        assert!(!entry.set_p_keys(&[9; 33]) && !entry.set_uids(&[9; 9]) && !entry.set_gids(&[9; 300]));
        assert!(!entry.set_nodes(&[9; 9]) && !entry.set_prefixes(&[PathPrefix::default(); 5]));
        assert_eq!(entry, full);
        assert!(
            entry.set_p_keys(&[7]) && entry.p_keys() == [7] && entry.p_keys[1..].iter().all(|key| *key == 0)
        );
        assert!(PathPrefix::new(&[1; 16]).is_none() && PathPrefix::new(&[1; 300]).is_none());
        assert!(PathPrefix::default().covers(&[]) && PathPrefix::default().covers(&[9]));
    }

    #[test]
    fn every_class_has_a_bit_and_every_place_a_number() {
        for class in 0..=255 {
            let mut entry = TenantEntry::new("t").unwrap();
            entry.allow_class(class, true);
            assert!((0..=255).all(|other| entry.allows_class(other) == (other == class)), "{class:#x}");
            entry.allow_class(class, false);
            assert_eq!(entry.classes, [0; 4]);
        }
        for place in 0..MAX_TENANTS {
            assert_eq!(place_of(number_of(place)), Some(place));
        }
        assert_eq!((number_of(0), number_of(1023), number_of(MAX_TENANTS), place_of(0)), (1, 1024, 0, None));
    }
}
