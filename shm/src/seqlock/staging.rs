//! Private copies of entries that wait to be found whole: no longer than need be, so that a copy of everything is small.
//!
//! Belongs to one [`super::Reader`]. An entry is kept as a word with its index and number of words, and those of its words
//! that count. All memory is touched when it is made, and never grows.
//!
//! Not here: whether an entry is whole, and whether anybody wants it.

use crate::sync::{AtomicU64, Ordering};
use crate::table::TableMemory;

const NOT_STAGED: u32 = u32::MAX;

/// Copies of entries.
#[derive(Debug)]
pub(super) struct Staging {
    words: Vec<u64>,
    used: usize,
    /// Where the last copy of an entry begins.
    at: Vec<u32>,
}

impl Staging {
    /// Room for all of `entries` entries of `entry_words`, and for some that are copied again and have become longer.
    pub(super) fn new(entries: usize, entry_words: usize) -> Self {
        // written once here, so that no copy meets a page for the first time
        let mut words = vec![u64::MAX; (entries + entries / 4 + 64) * (1 + entry_words)];
        words.fill(0);
        Self { words, used: 0, at: vec![NOT_STAGED; entries] }
    }

    pub(super) fn holds(&self, index: u32) -> bool {
        self.at[index as usize] != NOT_STAGED
    }

    /// Copies an entry, in place of an earlier copy. False, and nothing happened, if there is no room.
    pub(super) fn put<M: TableMemory>(&mut self, index: u32, record: &[AtomicU64]) -> bool {
        let begin = self.used;
        let Some(room) = self.words.get_mut(begin..=begin + record.len()) else { return false };
        let (first, room) = room.split_at_mut(1);
        let (head, rest) = room.split_at_mut(M::HEAD_WORDS);
        let (head_record, rest_record) = record.split_at(M::HEAD_WORDS);
        load(head, head_record);
        // a torn head may say anything
        let in_use = M::words_in_use(head).clamp(M::HEAD_WORDS, record.len());
        let more = in_use - M::HEAD_WORDS;
        load(&mut rest[..more], rest_record);
        first[0] = header(index, in_use);
        let at = &mut self.at[index as usize];
        let earlier = *at as usize;
        if *at != NOT_STAGED && self.words[earlier] == header(index, in_use) {
            self.words.copy_within(begin..=begin + in_use, earlier);
            return true;
        }
        // never more than the words, which are far fewer
        *at = u32::try_from(begin).expect("a place within the words");
        self.used = begin + 1 + in_use;
        true
    }

    /// Where the next copy begins; for [`Staging::undo`].
    pub(super) fn mark(&self) -> usize {
        self.used
    }

    /// Forgets the copies of these entries, all of them made since `mark`.
    pub(super) fn undo(&mut self, mark: usize, indexes: std::ops::Range<u32>) {
        self.at[indexes.start as usize..indexes.end as usize].fill(NOT_STAGED);
        self.used = mark;
    }

    /// Forgets all copies.
    pub(super) fn clear(&mut self) {
        self.take_all(|_, _| {});
    }

    /// Hands out the last copy of each entry, the words that count, and forgets it.
    pub(super) fn take_all(&mut self, mut take: impl FnMut(u32, &[u64])) {
        let mut begin = 0;
        let words = &self.words[..self.used];
        while let Some((header, rest)) = words[begin..].split_first() {
            let (index, in_use) = parts(*header);
            let at = &mut self.at[index as usize];
            if *at as usize == begin {
                *at = NOT_STAGED;
                take(index, &rest[..in_use]);
            }
            begin += 1 + in_use;
        }
        self.used = 0;
    }
}

fn load(words: &mut [u64], record: &[AtomicU64]) {
    for (word, place) in words.iter_mut().zip(record) {
        *word = place.load(Ordering::Relaxed);
    }
}

const fn header(index: u32, in_use: usize) -> u64 {
    (in_use as u64) << 32 | index as u64
}

#[expect(clippy::cast_possible_truncation, reason = "made of a u32 and a small number")]
const fn parts(header: u64) -> (u32, usize) {
    (header as u32, (header >> 32) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type Entry = [u64; 4];

    /// The last word counts if the second is not 0.
    struct Memory;

    impl TableMemory for Memory {
        type Entry = Entry;
        const HEAD_WORDS: usize = 3;
        fn words_in_use(head: &[u64]) -> usize {
            if head[1] == 0 { 3 } else { usize::MAX }
        }
        fn entries(&self) -> u32 {
            unreachable!()
        }
        fn journal_words(&self) -> u64 {
            unreachable!()
        }
        fn generation(&self) -> &AtomicU64 {
            unreachable!()
        }
        fn bank_generation(&self, _: usize) -> &AtomicU64 {
            unreachable!()
        }
        fn bank_count(&self, _: usize) -> &AtomicU64 {
            unreachable!()
        }
        fn bank_head(&self, _: usize) -> &AtomicU64 {
            unreachable!()
        }
        fn bank_check(&self, _: usize) -> &AtomicU64 {
            unreachable!()
        }
        fn record(&self, _: usize, _: u32) -> &[AtomicU64] {
            unreachable!()
        }
        fn journal(&self, _: u64) -> &AtomicU64 {
            unreachable!()
        }
    }

    fn put(staging: &mut Staging, index: u32, words: Entry) -> bool {
        staging.put::<Memory>(index, &words.map(AtomicU64::new))
    }

    fn taken(staging: &mut Staging) -> Vec<(u32, Vec<u64>)> {
        let mut found = Vec::new();
        staging.take_all(|index, words| found.push((index, words.to_vec())));
        found
    }

    #[test]
    fn entries_come_back_with_the_words_that_count() {
        let mut staging = Staging::new(2, 4);
        for _ in 0..3 {
            assert!(put(&mut staging, 1, [1, 0, 3, 4]) && put(&mut staging, 0, [1, 2, 3, 4]));
            assert!(staging.holds(0) && staging.holds(1));
            assert_eq!(taken(&mut staging), [(1, vec![1, 0, 3]), (0, vec![1, 2, 3, 4])]);
            assert!(!staging.holds(0) && !staging.holds(1) && taken(&mut staging).is_empty());
        }
    }

    #[test]
    fn the_last_copy_of_an_entry_counts_whatever_its_length() {
        let mut staging = Staging::new(3, 4);
        for (index, words) in [
            (2, [1, 0, 1, 9]),
            (0, [2, 2, 2, 2]),
            (2, [3, 3, 3, 3]),
            (1, [0, 0, 0, 9]),
            (2, [4, 4, 4, 4]),
            (0, [5, 0, 5, 9]),
        ] {
            assert!(put(&mut staging, index, words));
        }
        let mut found = taken(&mut staging);
        found.sort_unstable();
        assert_eq!(found, [(0, vec![5, 0, 5]), (1, vec![0, 0, 0]), (2, vec![4, 4, 4, 4])]);
    }

    #[test]
    fn what_was_copied_since_a_mark_can_be_undone() {
        let mut staging = Staging::new(8, 4);
        assert!(put(&mut staging, 7, [7; 4]));
        let mark = staging.mark();
        assert!(put(&mut staging, 2, [2; 4]) && put(&mut staging, 3, [3, 0, 3, 9]));
        staging.undo(mark, 2..4);
        assert!(!staging.holds(2) && !staging.holds(3) && staging.holds(7));
        assert!(put(&mut staging, 3, [9; 4]));
        assert_eq!(taken(&mut staging), [(7, vec![7; 4]), (3, vec![9; 4])]);
        assert!(put(&mut staging, 1, [1; 4]));
        staging.clear();
        assert!(!staging.holds(1) && taken(&mut staging).is_empty());
    }

    #[test]
    fn a_copy_without_room_is_refused_and_the_earlier_one_stands() {
        let mut staging = Staging::new(1, 4);
        let mut number = 0;
        // lengths alternate, so no copy fits in place of the one before
        while put(&mut staging, 0, [number, number % 2, 0, 0]) {
            number += 1;
            assert!(number < 1000, "room never ends");
        }
        let found = taken(&mut staging);
        assert_eq!((found.len(), found[0].0, found[0].1[0]), (1, 0, number - 1));
    }
}
