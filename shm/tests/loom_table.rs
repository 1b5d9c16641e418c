//! The two banks and the journal under loom: every interleaving, every ordering that the memory model allows.
//!
//! Run by `scripts/loom`, which also takes each fence and ordering away in turn and expects a test here to fail.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use madplane_shm::seqlock::pair::{PairReader, PairWriter};
use madplane_shm::seqlock::{Reader, Refresh, Writer};
use madplane_shm::table::TableMemory;

const WORDS: usize = 3;
const JOURNAL: usize = 2;
const FIRST_GENERATION: u64 = 1;

struct Bank {
    generation: AtomicU64,
    count: AtomicU64,
    head: AtomicU64,
    check: AtomicU64,
    words: Vec<[AtomicU64; WORDS]>,
}

impl Bank {
    fn new(generation: u64, entries: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            generation: AtomicU64::new(generation),
            count: zero(),
            head: zero(),
            check: zero(),
            words: (0..entries).map(|_| [zero(), zero(), zero()]).collect(),
        }
    }
}

struct Words {
    generation: AtomicU64,
    banks: [Bank; 2],
    journal: [AtomicU64; JOURNAL],
}

#[derive(Clone)]
struct HeapTable(Arc<Words>);

impl HeapTable {
    fn new(entries: usize) -> Self {
        Self(Arc::new(Words {
            generation: AtomicU64::new(FIRST_GENERATION),
            banks: [Bank::new(0, entries), Bank::new(FIRST_GENERATION, entries)],
            journal: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
        }))
    }
}

impl TableMemory for HeapTable {
    type Entry = [u64; WORDS];
    const RETRIES: u32 = 1;
    const CHUNK: u32 = 1;
    const HEAD_WORDS: usize = WORDS;
    fn words_in_use(_head: &[u64]) -> usize {
        WORDS
    }
    fn entries(&self) -> u32 {
        u32::try_from(self.0.banks[0].words.len()).unwrap()
    }
    fn journal_words(&self) -> u64 {
        JOURNAL as u64
    }
    fn generation(&self) -> &AtomicU64 {
        &self.0.generation
    }
    fn bank_generation(&self, bank: usize) -> &AtomicU64 {
        &self.0.banks[bank].generation
    }
    fn bank_count(&self, bank: usize) -> &AtomicU64 {
        &self.0.banks[bank].count
    }
    fn bank_head(&self, bank: usize) -> &AtomicU64 {
        &self.0.banks[bank].head
    }
    fn bank_check(&self, bank: usize) -> &AtomicU64 {
        &self.0.banks[bank].check
    }
    fn record(&self, bank: usize, index: u32) -> &[AtomicU64] {
        &self.0.banks[bank].words[index as usize]
    }
    fn journal(&self, position: u64) -> &AtomicU64 {
        &self.0.journal[usize::try_from(position).unwrap() % JOURNAL]
    }
}

fn entry(index: u32, version: u64) -> [u64; WORDS] {
    let payload = version * 10 + u64::from(index);
    [version, payload, payload * 1000 + version]
}

/// Changes `indexes` in one publication.
fn publish(writer: &mut Writer<HeapTable>, indexes: &[u32]) {
    for index in indexes {
        let words = entry(*index, writer.next_version());
        writer.write(*index, &words, 0);
    }
    writer.publish();
}

/// A reader and the versions it was given.
struct Follower {
    reader: Reader<HeapTable>,
    versions: Vec<u64>,
}

impl Follower {
    fn new(memory: HeapTable) -> Self {
        let versions = vec![0; memory.0.banks[0].words.len()];
        Self { reader: Reader::new(memory), versions }
    }

    /// Refreshes once and checks the copy: whole entries, and for each generation the versions of `history`.
    fn follow(&mut self, history: &[(u64, &[u64])]) -> Refresh {
        let (reader, versions) = (&mut self.reader, &mut self.versions);
        let done = reader.refresh(&mut |index, words| take(versions, index, words));
        self.check(done, history)
    }

    /// The same in steps of one entry, as many as `steps` unless a generation is complete before.
    fn step(&mut self, steps: usize, history: &[(u64, &[u64])]) -> Refresh {
        let (reader, versions) = (&mut self.reader, &mut self.versions);
        for _ in 0..steps {
            if reader.advance(1, &mut |index, words| take(versions, index, words)).complete {
                let done = Refresh { generation: reader.generation(), complete: true, ..Refresh::default() };
                return self.check(done, history);
            }
        }
        Refresh::default()
    }

    fn check(&self, done: Refresh, history: &[(u64, &[u64])]) -> Refresh {
        let held = history.iter().find(|(generation, _)| *generation == done.generation);
        let expected = held.map_or(&[][..], |(_, versions)| versions);
        if done.generation != 0 {
            assert_eq!(self.versions, expected, "generation {} is a mix", done.generation);
        }
        done
    }
}

fn take(versions: &mut [u64], index: u32, words: &[u64]) -> bool {
    assert_eq!(words, entry(index, words[0]), "a torn entry was handed out");
    versions[index as usize] = words[0];
    true
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

#[test]
fn a_publication_is_seen_whole_by_the_journal() {
    model(|| {
        let memory = HeapTable::new(2);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory);
        let history: &[(u64, &[u64])] = &[(1, &[0, 0]), (2, &[2, 2])];
        follower.follow(history);
        let publisher = thread::spawn(move || publish(&mut writer, &[0, 1]));
        follower.follow(history);
        publisher.join().unwrap();
        assert!(follower.follow(history).complete);
    });
}

#[test]
fn a_publication_is_seen_whole_by_a_full_pass() {
    model(|| {
        let memory = HeapTable::new(2);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory);
        let publisher = thread::spawn(move || publish(&mut writer, &[0, 1]));
        follower.follow(&[(1, &[0, 0]), (2, &[2, 2])]);
        publisher.join().unwrap();
    });
}

#[test]
fn a_publication_is_seen_whole_in_steps_by_the_journal() {
    model(|| {
        let memory = HeapTable::new(2);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory);
        let history: &[(u64, &[u64])] = &[(1, &[0, 0]), (2, &[2, 2]), (3, &[3, 2])];
        assert!(follower.step(9, history).complete);
        publish(&mut writer, &[0, 1]);
        let publisher = thread::spawn(move || publish(&mut writer, &[0]));
        follower.step(3, history);
        publisher.join().unwrap();
        assert_eq!(follower.step(9, history).generation, 3);
    });
}

#[test]
fn a_publication_is_seen_whole_in_steps_by_a_full_pass() {
    model(|| {
        let memory = HeapTable::new(2);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory);
        let history: &[(u64, &[u64])] = &[(1, &[0, 0]), (2, &[2, 2])];
        let publisher = thread::spawn(move || publish(&mut writer, &[0, 1]));
        follower.step(3, history);
        publisher.join().unwrap();
        while follower.step(9, history).generation != 2 {}
    });
}

#[test]
fn a_step_of_a_full_pass_that_was_overtaken_is_made_again() {
    model(|| {
        let memory = HeapTable::new(2);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory);
        publish(&mut writer, &[0, 1]);
        let history: &[(u64, &[u64])] = &[(2, &[2, 2]), (3, &[3, 2]), (4, &[4, 2])];
        let publisher = thread::spawn(move || {
            publish(&mut writer, &[0]);
            publish(&mut writer, &[0]);
        });
        follower.step(4, history);
        publisher.join().unwrap();
        while follower.step(9, history).generation != 4 {}
    });
}

#[test]
fn a_bank_that_is_written_again_during_a_step_is_not_used() {
    model(|| {
        let memory = HeapTable::new(1);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory);
        publish(&mut writer, &[0]);
        let publisher = thread::spawn(move || {
            publish(&mut writer, &[0]);
            publish(&mut writer, &[0]);
        });
        follower.step(3, &[(2, &[2]), (3, &[3]), (4, &[4])]);
        publisher.join().unwrap();
    });
}

#[test]
fn a_bank_that_is_written_again_during_a_copy_is_not_used() {
    model(|| {
        let memory = HeapTable::new(1);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory);
        publish(&mut writer, &[0]);
        let publisher = thread::spawn(move || {
            publish(&mut writer, &[0]);
            publish(&mut writer, &[0]);
        });
        follower.follow(&[(2, &[2]), (3, &[3]), (4, &[4])]);
        publisher.join().unwrap();
    });
}

#[test]
fn a_journal_word_of_another_round_is_not_taken_for_a_change() {
    model(|| {
        let memory = HeapTable::new(2);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory);
        let history: &[(u64, &[u64])] = &[(1, &[0, 0]), (2, &[2, 0]), (3, &[2, 3]), (4, &[2, 4])];
        follower.follow(history);
        publish(&mut writer, &[0]);
        publish(&mut writer, &[1]);
        let publisher = thread::spawn(move || publish(&mut writer, &[1]));
        follower.follow(history);
        publisher.join().unwrap();
    });
}

#[test]
fn a_writer_that_follows_a_killed_one_does_not_disturb_a_reader() {
    model(|| {
        let memory = HeapTable::new(2);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory.clone());
        publish(&mut writer, &[0]);
        let shared = memory.clone();
        let publisher = thread::spawn(move || {
            publish(&mut writer, &[0]);
            // words that nobody publishes; such a payload would be found out
            writer.write(1, &[4, 7, 7], 0);
            drop(writer);
            let mut next = Writer::open(shared);
            publish(&mut next, &[0]);
        });
        follower.follow(&[(2, &[2, 0]), (3, &[3, 0]), (4, &[4, 0])]);
        publisher.join().unwrap();
        Follower::new(memory).follow(&[(4, &[4, 0])]);
    });
}

#[test]
fn the_last_publication_reaches_a_reader_that_looks_later() {
    model(|| {
        let memory = HeapTable::new(1);
        let mut writer = Writer::open(memory.clone());
        let mut follower = Follower::new(memory.clone());
        let history: &[(u64, &[u64])] = &[(1, &[0]), (2, &[2])];
        let publisher = thread::spawn(move || publish(&mut writer, &[0]));
        follower.follow(history);
        publisher.join().unwrap();
        follower.follow(history);
        assert_eq!(follower.versions, [2]);
        assert_eq!(memory.generation().load(Ordering::Relaxed), 2);
    });
}

/// Two locks under one word, one entry each.
struct Pair {
    writer: PairWriter<HeapTable, HeapTable>,
    first: HeapTable,
    second: HeapTable,
}

impl Pair {
    fn new() -> Self {
        let (first, second) = (HeapTable::new(1), HeapTable::new(1));
        let writer = PairWriter { first: Writer::open(first.clone()), second: Writer::open(second.clone()) };
        Self { writer, first, second }
    }

    fn reader(&self) -> PairFollower {
        PairFollower { reader: PairReader::new(self.first.clone(), self.second.clone()), versions: [0; 2] }
    }
}

struct PairFollower {
    reader: PairReader<HeapTable, HeapTable>,
    /// Of the entry of the first, and of the second.
    versions: [u64; 2],
}

impl PairFollower {
    /// Refreshes once and checks that entries are whole; the generation if the refresh is complete.
    fn follow(&mut self) -> Option<u64> {
        let [first, second] = &mut self.versions;
        let mut take_first = |index, words: &[u64]| {
            assert_eq!(words, entry(index, words[0]), "a torn entry was handed out");
            *first = words[0];
            true
        };
        let mut take_second = |index, words: &[u64]| {
            assert_eq!(words, entry(index, words[0]), "a torn entry was handed out");
            *second = words[0];
            true
        };
        let done = self.reader.refresh(&mut take_first, &mut take_second);
        done.complete.then_some(done.second.generation)
    }
}

#[test]
fn the_generation_of_the_second_says_that_the_first_has_been_seen() {
    model(|| {
        let mut pair = Pair::new();
        let mut follower = pair.reader();
        let publisher = thread::spawn(move || {
            let words = entry(0, pair.writer.first.next_version());
            pair.writer.first.write(0, &words, 0);
            assert_eq!(pair.writer.publish(), 2);
        });
        if follower.follow() == Some(2) {
            assert_eq!(follower.versions[0], 2, "the word moved before the first was shown");
        }
        publisher.join().unwrap();
        assert_eq!(follower.follow(), Some(2));
        assert_eq!(follower.versions, [2, 0]);
        assert!(!follower.reader.changed());
    });
}

#[test]
fn a_publication_of_both_is_never_the_second_alone() {
    model(|| {
        let mut pair = Pair::new();
        let mut follower = pair.reader();
        assert_eq!(follower.follow(), Some(1));
        let publisher = thread::spawn(move || {
            let words = entry(0, 2);
            pair.writer.second.write(0, &words, 0);
            pair.writer.first.write(0, &words, 0);
            pair.writer.publish();
        });
        let seen = follower.follow();
        assert!(follower.versions[0] >= follower.versions[1], "{:?}", follower.versions);
        if seen == Some(2) {
            assert_eq!(follower.versions, [2, 2]);
        }
        publisher.join().unwrap();
    });
}
