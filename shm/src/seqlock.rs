//! Two banks of entries under one generation word: a writer that never waits, readers that never see a half-written bank.
//!
//! Generation `g` stands in bank `g & 1`. The writer prepares `g + 1` in the other bank and then stores the generation;
//! the bank of `g` stays untouched until `g + 2` is prepared, so a reader has a whole publication's time for its copy.
//! A **journal** tells a reader which entries changed, so following a single change costs a single entry.
//!
//! | word | writer | readers | ordering |
//! |---|---|---|---|
//! | `generation` | after a bank is complete | first | release / acquire: the bank is complete |
//! | `bank_generation` | 0 before the bank is touched, the new generation after | before and after the copy | release fence after the 0 / acquire fence before the second look |
//! | entries, `bank_head`, `bank_count` | between the two | between the two looks | relaxed, ordered by the above |
//! | journal | before `generation` | after `generation` | relaxed; each word says which position it is for |
//!
//! What holds at every instruction of the writer, also if it is killed there: the bank that `generation` names is
//! complete. [`Writer::open`] makes the other one equal to it again.
//!
//! **Long copies under fire.** A reader that has lost the journal copies all entries in chunks, each chunk validated by
//! itself, and then follows the journal from where it stood before the first chunk, again chunk by chunk, until it meets
//! the head of a generation. What did not change since then is the same in both generations, and what did is read again,
//! so the result is one generation and not a mix. A chunk is short enough to be copied between two publications.
//!
//! Nothing here knows what an entry means, maps memory, or decides when to publish. Entries are delivered only after they
//! have been validated; until then they stay in private memory.

use crate::sync::{AtomicU64, Ordering, fence};
use crate::table::TableMemory;

use staging::Staging;

pub mod pair;
mod staging;
pub mod steps;

/// Number of the word of an entry that says which generation changed it last.
const VERSION: usize = 0;
/// Marks a bank that is being written.
const BEING_WRITTEN: u64 = 0;
/// Attempts of one refresh, also if each comes further.
const ATTEMPTS: u32 = 128;
/// Full passes begun in one refresh.
const FULL_PASSES: u32 = 3;

/// Where the writer is; for tests that end it there.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The bank is marked as being written.
    Marked,
    /// An entry of the previous publication has been copied.
    CaughtUp,
    /// Half of an entry's words are stored.
    HalfEntry,
    /// All of an entry's words are stored.
    Entry,
    /// A word of the journal is stored.
    Journal,
    /// Count, head and check of the bank are stored.
    Header,
    /// The bank says its new generation; `generation` does not yet.
    BankReady,
    /// `generation` is stored.
    Published,
}

/// The half that writes.
#[derive(Debug)]
pub struct Writer<M> {
    memory: M,
    generation: u64,
    head: u64,
    present: u64,
    changed: Vec<u32>,
    change_of: Vec<u64>,
    behind: Vec<u32>,
    bank_is_open: bool,
    hook: Option<fn(Step)>,
}

impl<M: TableMemory> Writer<M> {
    /// Starts on memory whose current bank is complete and makes the other bank equal to it.
    ///
    /// The caller has checked that the current bank says the current generation.
    pub fn open(memory: M) -> Self {
        let entries = memory.entries();
        let generation = memory.generation().load(Ordering::Relaxed);
        let current = bank_of(generation);
        let head = memory.bank_head(current).load(Ordering::Relaxed);
        let present = memory.bank_count(current).load(Ordering::Relaxed);
        let mut writer = Self {
            memory,
            generation,
            head,
            present,
            changed: Vec::with_capacity(entries as usize),
            change_of: vec![0; entries as usize],
            behind: Vec::with_capacity(entries as usize),
            bank_is_open: false,
            hook: None,
        };
        writer.open_bank();
        for index in 0..entries {
            writer.catch_up(index);
        }
        writer
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The generation readers see.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Entries that [`Writer::publish`] would show.
    pub fn pending(&self) -> usize {
        self.changed.len()
    }

    /// Entries that say they are present, the pending ones included.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// Calls `hook` after each step of writing.
    pub fn set_step_hook(&mut self, hook: fn(Step)) {
        self.hook = Some(hook);
    }

    /// The version an entry gets that is written now.
    pub fn next_version(&self) -> u64 {
        self.generation + 1
    }

    /// Copies the newest words of an entry, pending or published.
    pub fn read(&self, index: u32) -> M::Entry {
        let pending = self.change_of[index as usize] == self.next_version();
        let bank = if pending { bank_of(self.generation + 1) } else { bank_of(self.generation) };
        copy_out(&self.memory, bank, index)
    }

    /// Writes an entry into the bank that is not shown; `present_change` is what it adds to the count.
    ///
    /// # Panics
    /// If `index` is not below the number of entries.
    pub fn write(&mut self, index: u32, words: &M::Entry, present_change: i8) {
        self.open_bank();
        let bank = bank_of(self.generation + 1);
        let (words, record) = (words.as_ref(), self.memory.record(bank, index));
        let half = words.len() / 2;
        for (place, word) in record.iter().zip(words).take(half) {
            place.store(*word, Ordering::Relaxed);
        }
        self.step(Step::HalfEntry);
        for (place, word) in record.iter().zip(words).skip(half) {
            place.store(*word, Ordering::Relaxed);
        }
        self.step(Step::Entry);
        self.present = self.present.wrapping_add_signed(i64::from(present_change));
        let next = self.next_version();
        let change = &mut self.change_of[index as usize];
        if *change != next {
            *change = next;
            self.changed.push(index);
        }
    }

    /// Shows all that was written since the last time and returns the generation. Without changes it stays what it is.
    pub fn publish(&mut self) -> u64 {
        if self.changed.is_empty() { self.generation } else { self.publish_anyway() }
    }

    /// Shows all that was written since the last time under a new generation, be it nothing.
    pub fn publish_anyway(&mut self) -> u64 {
        self.open_bank();
        let next = self.generation + 1;
        let bank = bank_of(next);
        // a reader that is behind by more than the journal holds does not look at it
        if self.changed.len() as u64 <= self.memory.journal_words() {
            for (position, index) in (self.head..).zip(&self.changed) {
                let word = journal_word(position, *index);
                self.memory.journal(position).store(word, Ordering::Relaxed);
                self.step(Step::Journal);
            }
        }
        self.head += self.changed.len() as u64;
        self.memory.bank_count(bank).store(self.present, Ordering::Relaxed);
        self.memory.bank_head(bank).store(self.head, Ordering::Relaxed);
        self.memory.bank_check(bank).store(header_check(next, self.present, self.head), Ordering::Relaxed);
        self.step(Step::Header);
        self.memory.bank_generation(bank).store(next, Ordering::Relaxed);
        self.step(Step::BankReady);
        // pairs with the acquire in `Reader::enter`: the bank and its journal words are complete
        self.memory.generation().store(next, Ordering::Release);
        self.generation = next;
        self.bank_is_open = false;
        std::mem::swap(&mut self.behind, &mut self.changed);
        self.step(Step::Published);
        next
    }

    /// Takes the other bank away from readers and brings it up to the current one.
    fn open_bank(&mut self) {
        if self.bank_is_open {
            return;
        }
        let bank = bank_of(self.generation + 1);
        self.memory.bank_generation(bank).store(BEING_WRITTEN, Ordering::Relaxed);
        // pairs with the fence in `Reader::is_intact`: who has read a word stored below sees the mark
        fence(Ordering::Release);
        self.bank_is_open = true;
        self.step(Step::Marked);
        for at in 0..self.behind.len() {
            self.catch_up(self.behind[at]);
            self.step(Step::CaughtUp);
        }
        self.behind.clear();
    }

    /// Copies an entry from the current bank to the other where they differ.
    fn catch_up(&self, index: u32) {
        let (from, to) = (bank_of(self.generation), bank_of(self.generation + 1));
        for (place, word) in self.memory.record(to, index).iter().zip(self.memory.record(from, index)) {
            let word = word.load(Ordering::Relaxed);
            if place.load(Ordering::Relaxed) != word {
                place.store(word, Ordering::Relaxed);
            }
        }
    }

    fn step(&self, step: Step) {
        if let Some(hook) = self.hook {
            hook(step);
        }
    }
}

/// What a look at a changed table brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refresh {
    /// The generation the reader's copy now is of.
    pub generation: u64,
    /// Entries delivered.
    pub changed: u32,
    /// Copies that the writer overtook and that were thrown away.
    pub retries: u32,
    /// Entries not delivered because they are damaged.
    pub refused: u32,
    /// False if the writer overtook too often: nothing was delivered, the old copy stands; try again later.
    pub complete: bool,
}

impl Refresh {
    /// Adds what a later look brought.
    fn add(&mut self, later: Self) {
        self.changed += later.changed;
        self.retries += later.retries;
        self.refused += later.refused;
        (self.generation, self.complete) = (later.generation, later.complete);
    }
}

/// The half that follows.
#[derive(Debug)]
pub struct Reader<M: TableMemory> {
    memory: M,
    generation: u64,
    head: u64,
    versions: Vec<u64>,
    staging: Staging,
    /// Where [`Reader::advance`] goes on.
    stand: steps::Stand,
    /// Entries it copies before it looks whether the writer has come.
    chunk_now: u32,
}

/// One bank as it was found.
#[derive(Debug, Clone, Copy)]
struct View {
    generation: u64,
    head: u64,
}

impl<M: TableMemory> Reader<M> {
    /// Starts with an empty copy; the first refresh delivers all that is there.
    pub fn new(memory: M) -> Self {
        let entries = memory.entries() as usize;
        let staging = Staging::new(entries, M::Entry::default().as_ref().len());
        // written once here, as the staging is, so that a refresh meets no page for the first time
        let mut versions = vec![u64::MAX; entries];
        versions.fill(0);
        Self {
            memory,
            generation: 0,
            head: 0,
            versions,
            staging,
            stand: steps::Stand::Idle,
            chunk_now: M::CHUNK,
        }
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Whether there is another generation than the one last refreshed to. One relaxed load.
    pub fn changed(&self) -> bool {
        self.memory.generation().load(Ordering::Relaxed) != self.generation
    }

    /// The generation last refreshed to, 0 before the first time.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Brings the copy up to the current generation: calls `accept` once for each entry that differs from what was
    /// delivered before, with those of its words that count, all of one generation. `accept` says whether it is sound.
    pub fn refresh(&mut self, accept: &mut impl FnMut(u32, &[u64]) -> bool) -> Refresh {
        let mut done = Refresh { generation: self.generation, complete: true, ..Refresh::default() };
        self.stand = steps::Stand::Idle;
        if !self.changed() {
            return done;
        }
        let mut base = (self.generation != 0).then_some(self.head);
        let (mut wasted, mut full_passes) = (0, 0);
        for _ in 0..ATTEMPTS {
            let before = base;
            full_passes += u32::from(base.is_none());
            if wasted > M::RETRIES || full_passes > FULL_PASSES {
                break;
            }
            if let Some(view) = self.attempt(&mut base, &mut done.retries) {
                self.deliver(view, accept, &mut done);
                return done;
            }
            done.retries += 1;
            // one that came further along the journal is not wasted
            let advanced = base.is_some() && before.is_some() && base != before;
            wasted = if advanced { 0 } else { wasted + 1 };
            std::hint::spin_loop();
        }
        self.staging.clear();
        done.complete = false;
        done
    }

    /// Stages all that changed since journal position `base`, or everything if that is lost; `None` if overtaken.
    fn attempt(&mut self, base: &mut Option<u64>, retries: &mut u32) -> Option<View> {
        let mut from = match *base {
            Some(from) => from,
            None => *base.insert(self.full_pass(retries)?),
        };
        // a writer that is faster than this reader is not run after for ever
        for _ in 0..=2 * self.memory.journal_words() / u64::from(M::CHUNK) {
            let view = self.enter()?;
            let behind = view.head.wrapping_sub(from);
            let take = behind.min(u64::from(M::CHUNK));
            let kept = behind <= self.memory.journal_words() && self.follow(view, from, take);
            if !self.is_intact(view) {
                return None;
            }
            if !kept {
                *base = None;
                return None;
            }
            from = from.wrapping_add(take);
            *base = Some(from);
            if from == view.head {
                return Some(view);
            }
        }
        None
    }

    /// Stages the entries that `take` journal words name; false if one has been written over, or if there is no room.
    fn follow(&mut self, view: View, from: u64, take: u64) -> bool {
        for ahead in 0..take {
            let position = from.wrapping_add(ahead);
            let word = self.memory.journal(position).load(Ordering::Relaxed);
            let index = index_of(word);
            if word != journal_word(position, index) || index >= self.memory.entries() {
                return false;
            }
            if !self.stage(view, index) {
                return false;
            }
        }
        true
    }

    /// Stages every entry that differs, chunk by chunk, and returns the journal position from which to follow.
    fn full_pass(&mut self, retries: &mut u32) -> Option<u64> {
        self.staging.clear();
        let start = self.enter()?;
        if !self.is_intact(start) {
            return None;
        }
        let mut first = 0;
        while first < self.memory.entries() {
            let end = self.memory.entries().min(first + M::CHUNK);
            let mut tries = 0;
            while !self.chunk(first, end) {
                tries += 1;
                *retries += 1;
                if tries > M::RETRIES {
                    return None;
                }
            }
            first = end;
        }
        Some(start.head)
    }

    fn chunk(&mut self, first: u32, end: u32) -> bool {
        let Some(view) = self.enter() else { return false };
        let mark = self.staging.mark();
        let copied = (first..end).all(|index| self.stage(view, index)) && self.is_intact(view);
        if !copied {
            self.staging.undo(mark, first..end);
        }
        copied
    }

    /// Finds the current bank; `None` if the writer already works on it again.
    fn enter(&self) -> Option<View> {
        // pairs with the release in `Writer::publish`
        let generation = self.memory.generation().load(Ordering::Acquire);
        let bank = bank_of(generation);
        if self.memory.bank_generation(bank).load(Ordering::Relaxed) != generation {
            return None;
        }
        Some(View { generation, head: self.memory.bank_head(bank).load(Ordering::Relaxed) })
    }

    /// Whether nothing that was read since `enter` can be of another generation.
    fn is_intact(&self, view: View) -> bool {
        // pairs with the fence in `Writer::open_bank`
        fence(Ordering::Acquire);
        self.memory.bank_generation(bank_of(view.generation)).load(Ordering::Relaxed) == view.generation
    }

    /// Copies an entry to private memory unless it is the one delivered before; false if there is no room.
    fn stage(&mut self, view: View, index: u32) -> bool {
        let record = self.memory.record(bank_of(view.generation), index);
        let unchanged = record[VERSION].load(Ordering::Relaxed) == self.versions[index as usize];
        // an entry that was staged is staged again, whatever it says: nothing here has to rely on versions that only grow
        (unchanged && !self.staging.holds(index)) || self.staging.put::<M>(index, record)
    }

    fn deliver(&mut self, view: View, accept: &mut impl FnMut(u32, &[u64]) -> bool, done: &mut Refresh) {
        self.hand_out(accept, &mut done.changed, &mut done.refused);
        self.generation = view.generation;
        self.head = view.head;
        done.generation = view.generation;
    }

    /// Hands out what is staged and differs from what was delivered before.
    fn hand_out(
        &mut self,
        accept: &mut impl FnMut(u32, &[u64]) -> bool,
        changed: &mut u32,
        refused: &mut u32,
    ) {
        let versions = &mut self.versions;
        self.staging.take_all(|index, words| {
            let version = words[VERSION];
            let seen = &mut versions[index as usize];
            // staged by a copy that was thrown away, unchanged in the one that holds
            if *seen == version {
                return;
            }
            *seen = version;
            if accept(index, words) {
                *changed += 1;
            } else {
                *refused += 1;
            }
        });
    }
}

/// The bank of a generation.
pub(crate) const fn bank_of(generation: u64) -> usize {
    if generation & 1 == 0 { 0 } else { 1 }
}

/// The check word of a bank's header.
pub(crate) fn header_check(generation: u64, count: u64, head: u64) -> u64 {
    mix(mix(mix(0x6d61_6470_6c61_6e65, generation), count), head)
}

/// One step of the checksums of this crate's tables.
pub(crate) const fn mix(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

fn copy_out<M: TableMemory>(memory: &M, bank: usize, index: u32) -> M::Entry {
    let mut words = M::Entry::default();
    load_words(memory.record(bank, index), &mut words);
    words
}

fn load_words(record: &[AtomicU64], words: &mut impl AsMut<[u64]>) {
    for (word, place) in words.as_mut().iter_mut().zip(record) {
        *word = place.load(Ordering::Relaxed);
    }
}

/// Entry in the high half, low half of the position below: a word of another round does not pass for this one.
const fn journal_word(position: u64, index: u32) -> u64 {
    (index as u64) << 32 | (position & 0xffff_ffff)
}

const fn index_of(word: u64) -> u32 {
    (word >> 32) as u32
}
