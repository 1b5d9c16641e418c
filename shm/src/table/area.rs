//! The memory of one sequence lock: generation word, journal, two banks of records.
//!
//! A table has two areas, tenants and routes. [`TableMemory`] is what [`crate::seqlock`] needs of one; loom runs the
//! protocol on memory of its own.

use std::sync::Arc;

use crate::map::{Mapping, Placed};
use crate::seqlock::{bank_of, header_check, mix};
use crate::sync::{AtomicU64, Ordering};

/// Bytes of a bank before its first record.
pub(crate) const BANK_HEADER_BYTES: usize = 128;

/// The words of a table, wherever they live; the protocol is in [`crate::seqlock`], and loom runs it on its own memory.
pub trait TableMemory {
    /// Words of an entry in private memory; the first is its version.
    type Entry: Copy + Default + AsRef<[u64]> + AsMut<[u64]> + std::fmt::Debug;
    /// How often a copy that the writer overtook is begun again.
    const RETRIES: u32 = 8;
    /// Entries copied between two looks at whether the writer has come.
    const CHUNK: u32 = 32;
    /// Words that are copied of every entry, at least one.
    const HEAD_WORDS: usize;
    /// How many words of an entry count, by its first [`TableMemory::HEAD_WORDS`], which may be torn.
    fn words_in_use(head: &[u64]) -> usize;
    /// Number of entries.
    fn entries(&self) -> u32;
    /// Number of journal words, a power of two.
    fn journal_words(&self) -> u64;
    /// The generation word.
    fn generation(&self) -> &AtomicU64;
    /// Generation that a bank (0 or 1) is complete for, 0 while it is written.
    fn bank_generation(&self, bank: usize) -> &AtomicU64;
    /// Entries present in a bank.
    fn bank_count(&self, bank: usize) -> &AtomicU64;
    /// Journal position at which a bank's generation ends.
    fn bank_head(&self, bank: usize) -> &AtomicU64;
    /// Check over the three words above.
    fn bank_check(&self, bank: usize) -> &AtomicU64;
    /// The words of an entry, as many as [`TableMemory::Entry`] has.
    fn record(&self, bank: usize, index: u32) -> &[AtomicU64];
    /// The journal word of a position, masked by the implementation.
    fn journal(&self, position: u64) -> &AtomicU64;
}

/// The one word that readers look at, alone in its lines.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct GenerationLine {
    /// The generation that holds; its lowest bit names the bank.
    pub generation: AtomicU64,
    reserved: [AtomicU64; 15],
}

/// Head of a bank.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct BankHeader {
    /// Generation that the bank is complete for, 0 while it is written.
    pub generation: AtomicU64,
    /// Records present.
    pub present: AtomicU64,
    /// Journal position at which the generation ends.
    pub journal_head: AtomicU64,
    /// Check over the words above.
    pub check: AtomicU64,
    reserved: [AtomicU64; 12],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<GenerationLine>() == 128 && align_of::<GenerationLine>() == 128);
    assert!(size_of::<BankHeader>() == BANK_HEADER_BYTES && align_of::<BankHeader>() == 128);
};

/// What stands in a bank.
pub(crate) trait Record: crate::map::SharedLayout + std::fmt::Debug {
    /// Its words in private memory.
    type Words: Copy + Default + AsRef<[u64]> + AsMut<[u64]> + std::fmt::Debug;
    /// Records copied between two looks at whether the writer has come.
    const CHUNK: u32;
    /// Words that are copied of every record.
    const HEAD_WORDS: usize;
    /// How many words of a record count, by its first ones, which may be torn.
    fn words_in_use(head: &[u64]) -> usize;
    /// Its words.
    fn words(&self) -> &[AtomicU64];
}

/// One area of a mapped table.
#[derive(Debug)]
pub(crate) struct Area<R> {
    generation: Placed<GenerationLine>,
    journal: Placed<AtomicU64>,
    heads: [Placed<BankHeader>; 2],
    records: [Placed<R>; 2],
}

impl<R> Clone for Area<R> {
    fn clone(&self) -> Self {
        Self {
            generation: self.generation.clone(),
            journal: self.journal.clone(),
            heads: self.heads.clone(),
            records: self.records.clone(),
        }
    }
}

impl<R: Record> Area<R> {
    /// Finds the parts of an area of `capacity` records; `None` if they do not lie in the mapping.
    pub(crate) fn place(
        mapping: &Arc<Mapping>,
        generation_at: usize,
        shape: &AreaShape,
        capacity: u32,
    ) -> Option<Self> {
        let head = |bank: usize| mapping.place(shape.bank_at[bank], 1);
        let records = |bank: usize| mapping.place(shape.bank_at[bank] + BANK_HEADER_BYTES, capacity as usize);
        Some(Self {
            generation: mapping.place(generation_at, 1)?,
            journal: mapping.place(shape.journal_at, shape.journal_words)?,
            heads: [head(0)?, head(1)?],
            records: [records(0)?, records(1)?],
        })
    }

    /// Makes zeroed memory an empty area of generation `generation`, which is not 0.
    pub(crate) fn format(&self, generation: u64) {
        let head = &self.heads[bank_of(generation)][0];
        head.generation.store(generation, Ordering::Relaxed);
        head.check.store(header_check(generation, 0, 0), Ordering::Relaxed);
        self.generation[0].generation.store(generation, Ordering::Relaxed);
    }

    /// What a writer has to find before it goes on: the current bank is complete. Otherwise the field that says no, what it
    /// says and what it has to say.
    pub(crate) fn check_current_bank(&self) -> Result<(), (BankFault, u64, u64)> {
        let generation = self.generation[0].generation.load(Ordering::Acquire);
        let head = &self.heads[bank_of(generation)][0];
        let found = head.generation.load(Ordering::Relaxed);
        if generation == 0 || found != generation {
            return Err((BankFault::Generation, found, generation));
        }
        let present = head.present.load(Ordering::Relaxed);
        let expected = header_check(generation, present, head.journal_head.load(Ordering::Relaxed));
        let found = head.check.load(Ordering::Relaxed);
        if found == expected { Ok(()) } else { Err((BankFault::Check, found, expected)) }
    }
}

/// Which word of a bank's head is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BankFault {
    Generation,
    Check,
}

/// Where an area's journal and banks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AreaShape {
    pub(crate) journal_at: usize,
    pub(crate) journal_words: usize,
    pub(crate) bank_at: [usize; 2],
    pub(crate) bank_bytes: usize,
}

impl AreaShape {
    /// An area that begins at `journal_at`, its journal with room for one change of every record: who misses that much needs
    /// all of them anyway.
    pub(crate) fn of<R: Record>(journal_at: usize, capacity: u32, least_journal_words: u32) -> Self {
        let bank_bytes = (BANK_HEADER_BYTES + capacity as usize * size_of::<R>()).next_multiple_of(4096);
        let journal_words = capacity.next_power_of_two().max(least_journal_words) as usize;
        let first = (journal_at + journal_words * 8).next_multiple_of(4096);
        Self { journal_at, journal_words, bank_at: [first, first + bank_bytes], bank_bytes }
    }

    /// Where it ends.
    pub(crate) fn end(&self) -> usize {
        self.bank_at[1] + self.bank_bytes
    }
}

impl<R: Record> TableMemory for Area<R> {
    type Entry = R::Words;
    const CHUNK: u32 = R::CHUNK;
    const HEAD_WORDS: usize = R::HEAD_WORDS;

    fn words_in_use(head: &[u64]) -> usize {
        R::words_in_use(head)
    }

    fn entries(&self) -> u32 {
        // the count came from a u32
        u32::try_from(self.records[0].len()).unwrap_or(u32::MAX)
    }

    fn journal_words(&self) -> u64 {
        self.journal.len() as u64
    }

    fn generation(&self) -> &AtomicU64 {
        &self.generation[0].generation
    }

    fn bank_generation(&self, bank: usize) -> &AtomicU64 {
        &self.heads[bank][0].generation
    }

    fn bank_count(&self, bank: usize) -> &AtomicU64 {
        &self.heads[bank][0].present
    }

    fn bank_head(&self, bank: usize) -> &AtomicU64 {
        &self.heads[bank][0].journal_head
    }

    fn bank_check(&self, bank: usize) -> &AtomicU64 {
        &self.heads[bank][0].check
    }

    fn record(&self, bank: usize, index: u32) -> &[AtomicU64] {
        self.records[bank][index as usize].words()
    }

    fn journal(&self, position: u64) -> &AtomicU64 {
        // the length is a power of two
        #[expect(clippy::cast_possible_truncation, reason = "masked to the journal's length")]
        let at = (position & (self.journal.len() as u64 - 1)) as usize;
        &self.journal[at]
    }
}

/// Numbers of the words that every record has.
pub(crate) mod record_word {
    /// Generation that changed the record last; 0 for one that never was.
    pub(crate) const VERSION: usize = 0;
    /// Over all other words that count and the record's place in the table.
    pub(crate) const CHECKSUM: usize = 1;
}

const KEY: u64 = 0x9e37_79b9_7f4a_7c15;

/// The check word of a record that stands at `index`: over all words but itself; their number is even.
///
/// Each pair of words is one multiplication, and none waits for another. A product has every bit of both words in it, the
/// keys make a word's place count, and domain and index set records apart.
pub(crate) fn checksum(domain: u64, index: u32, words: &[u64]) -> u64 {
    let place = mix(domain, u64::from(index));
    let mut sum = folded(words[record_word::VERSION] ^ place, KEY);
    let mut key = KEY;
    for [first, second] in words[2..].as_chunks::<2>().0 {
        key = key.wrapping_add(KEY << 1);
        sum = sum.wrapping_add(folded(first ^ key, second ^ key.rotate_left(32)));
    }
    mix(sum, place)
}

/// Both halves of a product in one word.
#[expect(clippy::cast_possible_truncation, reason = "the other half is taken by the shift")]
fn folded(first: u64, second: u64) -> u64 {
    let product = u128::from(first) * u128::from(second);
    (product as u64) ^ (product >> 64) as u64
}
