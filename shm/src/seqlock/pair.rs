//! Two sequence locks under one word: what the first holds is shown before the second's generation moves.
//!
//! The table's tenants are the first, its routes the second. Who publishes a change of the first publishes the second
//! afterwards, with or without changes of its own, so a reader looks at one word only, the second's generation.
//!
//! A reader that has followed the second to generation `g` has acquired it, and with it everything of the first that was
//! published before `g`; it looks at the first once more then, because its earlier look may have been too early. So the
//! first is never older than `g` says. It may be newer: its next publication may have come already, whose word has not.
//!
//! Not here: an order between the contents of the two; each is whole for itself.

use super::{Reader, Refresh, Writer};
use crate::sync::Ordering;
use crate::table::TableMemory;

/// Refreshes of both in one look.
const ROUNDS: u32 = 4;

/// The half that writes both.
#[derive(Debug)]
pub struct PairWriter<A, B> {
    /// Shown first.
    pub first: Writer<A>,
    /// Its generation is the word that readers look at.
    pub second: Writer<B>,
}

impl<A: TableMemory, B: TableMemory> PairWriter<A, B> {
    /// Shows all that was written to either since the last time and returns the second's generation.
    pub fn publish(&mut self) -> u64 {
        if self.first.pending() == 0 {
            return self.second.publish();
        }
        self.first.publish();
        self.second.publish_anyway()
    }
}

/// What a look at both brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PairRefresh {
    /// Of the first.
    pub first: Refresh,
    /// Of the second.
    pub second: Refresh,
    /// False if the writer overtook too often: a half that says it is not complete delivered nothing.
    pub complete: bool,
}

/// The half that follows both.
#[derive(Debug)]
pub struct PairReader<A: TableMemory, B: TableMemory> {
    first: Reader<A>,
    second: Reader<B>,
    generation: u64,
}

impl<A: TableMemory, B: TableMemory> PairReader<A, B> {
    /// Starts with empty copies of both.
    pub fn new(first: A, second: B) -> Self {
        Self { first: Reader::new(first), second: Reader::new(second), generation: 0 }
    }

    /// The memory of the first.
    pub fn first(&self) -> &A {
        self.first.memory()
    }

    /// The memory of the second.
    pub fn second(&self) -> &B {
        self.second.memory()
    }

    /// Whether something was published since the last complete refresh. One relaxed load.
    pub fn changed(&self) -> bool {
        self.second.memory().generation().load(Ordering::Relaxed) != self.generation
    }

    /// The second's generation at the last complete refresh, 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Brings both copies up to date, the first before the second. Each is delivered whole or not at all.
    pub fn refresh(
        &mut self,
        accept_first: &mut impl FnMut(u32, &[u64]) -> bool,
        accept_second: &mut impl FnMut(u32, &[u64]) -> bool,
    ) -> PairRefresh {
        let mut done = PairRefresh { complete: true, ..PairRefresh::default() };
        if self.changed() {
            done.complete = false;
            for _ in 0..ROUNDS {
                done.first.add(self.first.refresh(accept_first));
                done.second.add(self.second.refresh(accept_second));
                if !done.first.complete || !done.second.complete {
                    break;
                }
                // the generation just followed may have been published after more of the first than was seen above
                if !self.first.changed() {
                    self.generation = self.second.generation();
                    done.complete = true;
                    break;
                }
            }
        }
        done.second.generation = self.second.generation();
        done.first.generation = self.first.generation();
        done
    }

    /// Does a part of [`PairReader::refresh`]: all of the first, and no more than `budget` entries of the second, or one.
    ///
    /// Complete when both copies are of the generation it says; until then the next call goes on.
    pub fn advance(
        &mut self,
        budget: u32,
        accept_first: &mut impl FnMut(u32, &[u64]) -> bool,
        accept_second: &mut impl FnMut(u32, &[u64]) -> bool,
    ) -> PairRefresh {
        let mut done = PairRefresh::default();
        for _ in 0..ROUNDS {
            done.first.add(self.first.refresh(accept_first));
            if !done.first.complete {
                break;
            }
            let left = budget.saturating_sub(done.second.changed);
            let step = self.second.advance(left, accept_second);
            done.second.changed += step.changed;
            done.second.retries += step.retries;
            done.second.refused += step.refused;
            // what was just delivered may have been published after more of the first than was seen above
            if !self.first.changed() {
                done.complete = step.complete;
                break;
            }
        }
        if done.complete {
            self.generation = self.second.generation();
        }
        done.second.generation = self.generation;
        done.second.complete = done.complete;
        done
    }

    /// Whether [`PairReader::advance`] goes through all entries of the second, because its journal has been lost.
    pub fn goes_through_all(&self) -> bool {
        self.second.goes_through_all()
    }
}
