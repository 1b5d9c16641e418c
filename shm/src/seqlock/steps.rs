//! Following in small steps: a refresh whose work is spread over as many calls as it takes.
//!
//! For a reader that has other things to do and must not be away for long. The protocol is that of [`Reader::refresh`], a
//! chunk at a time, but a chunk is delivered as soon as it has been validated, without waiting for the rest: less is
//! copied, and what the caller's copy holds between two steps is newer in some entries than in others. Once a chunk meets
//! the head of a generation, the copy is that generation, and only then the reader says so.
//!
//! | stand | what is true of the caller's copy |
//! |---|---|
//! | idle | it is of the reader's generation |
//! | full | entries below `next` are as they were at some time since journal position `head` |
//! | journal | all entries are as they were at some time since journal position `from` |
//!
//! Each entry is delivered whole; changes of one publication that fit into a step are delivered in one.

use super::Reader;
use crate::table::TableMemory;

/// Where a refresh in steps stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Stand {
    #[default]
    Idle,
    Full {
        head: u64,
        next: u32,
    },
    Journal {
        from: u64,
    },
}

/// What a step has brought, besides the entries that it delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// Entries delivered.
    pub changed: u32,
    /// Copies that the writer overtook and that were thrown away.
    pub retries: u32,
    /// Entries not delivered because they are damaged.
    pub refused: u32,
    /// The caller's copy is of the reader's generation.
    pub complete: bool,
}

impl<M: TableMemory> Reader<M> {
    /// Does a part of [`Reader::refresh`]: looks at no more than `budget` entries, or one.
    ///
    /// A chunk that the writer overtook is begun again by the next call.
    pub fn advance(&mut self, budget: u32, accept: &mut impl FnMut(u32, &[u64]) -> bool) -> Step {
        let mut step = Step::default();
        let mut left = budget.max(1);
        while left > 0 && !step.complete {
            let taken = match self.stand {
                Stand::Idle => self.begin(&mut step),
                Stand::Full { head, next } => self.full_step(head, next, left),
                Stand::Journal { from } => self.journal_step(from, left, &mut step),
            };
            let Some(taken) = taken else {
                self.staging.clear();
                step.retries += 1;
                break;
            };
            left -= taken;
            self.hand_out(accept, &mut step.changed, &mut step.refused);
        }
        step
    }

    /// Whether the steps go through all entries, because the journal has been lost.
    pub fn goes_through_all(&self) -> bool {
        self.generation == 0 || matches!(self.stand, Stand::Full { .. })
    }

    fn begin(&mut self, step: &mut Step) -> Option<u32> {
        if !self.changed() {
            step.complete = true;
        } else if self.generation == 0 {
            self.begin_full()?;
        } else {
            self.stand = Stand::Journal { from: self.head };
        }
        Some(0)
    }

    fn begin_full(&mut self) -> Option<()> {
        self.stand = Stand::Idle;
        self.staging.clear();
        let view = self.enter()?;
        self.is_intact(view).then(|| self.stand = Stand::Full { head: view.head, next: 0 })
    }

    fn full_step(&mut self, head: u64, next: u32, left: u32) -> Option<u32> {
        let end = self.memory.entries().min(next + left.min(self.chunk_now));
        if !self.chunk(next, end) {
            // a shorter one may fit between two publications
            self.chunk_now = (self.chunk_now / 2).max(1);
            return None;
        }
        self.chunk_now = (self.chunk_now * 2).min(M::CHUNK);
        let all = end == self.memory.entries();
        self.stand = if all { Stand::Journal { from: head } } else { Stand::Full { head, next: end } };
        Some(end - next)
    }

    fn journal_step(&mut self, from: u64, left: u32, step: &mut Step) -> Option<u32> {
        let view = self.enter()?;
        let behind = view.head.wrapping_sub(from);
        let take = behind.min(u64::from(left.min(M::CHUNK)));
        let kept = behind <= self.memory.journal_words() && self.follow(view, from, take);
        if !self.is_intact(view) {
            return None;
        }
        if !kept {
            // without its beginning the journal says nothing
            self.begin_full()?;
            return Some(0);
        }
        let from = from.wrapping_add(take);
        if from == view.head {
            self.stand = Stand::Idle;
            (self.generation, self.head) = (view.generation, view.head);
            step.complete = true;
        } else {
            self.stand = Stand::Journal { from };
        }
        u32::try_from(take).ok()
    }
}
