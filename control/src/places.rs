//! A software table: numbered places, what stands in them, and changes that are done whole or not at all.
//!
//! Owned by madctld's thread (the route desk), once for routes ([`crate::routes`]) and once for tenants
//! ([`crate::tenants`]); a place here is the place with the same number in the table segment. A change is a transaction:
//! applied whole with a new version, or refused with the table as it was. Places that changed are kept until the
//! publisher takes them. Invariants: a key is in the table once; an id is never given to two; a replaced entry keeps its
//! place.
//!
//! What it does not do: know what it holds ([`Held`] says that), write shared memory ([`crate::publish`]).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

/// Which free place a new entry is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// The lowest: the table stays short.
    LowestFree,
    /// The next one behind the place that was given last, from the end on to the beginning: a number outlives its entry
    /// for as long as possible.
    NextFree,
}

/// What a table holds, in its place.
pub trait Held: Sized {
    /// By what it is found.
    type Key: Clone + Eq + Hash + Debug;
    /// One wish of a transaction about it.
    type Change: Wish<Self>;
    /// Why a transaction is refused.
    type Error;

    /// How places are given.
    const PLACING: Placing;

    /// By what this one is found.
    fn key(&self) -> Self::Key;

    /// The number that no other has had.
    fn id(&self) -> u64;

    /// The refusal of a change in the words of the noun.
    fn refusal(table: &Places<Self>, change: &Self::Change, obstacle: Obstacle) -> Self::Error;
}

/// One wish of a transaction, as the table sees it.
pub trait Wish<H: Held> {
    /// What it is about.
    fn key(&self) -> H::Key;

    /// What is to be done.
    fn deed(&self) -> Deed;

    /// What is to stand in the place; nothing for [`Deed::Remove`]. `former` is what stands there, `fresh` gives an id.
    fn entry(&self, former: Option<&H>, fresh: impl FnOnce() -> u64) -> Option<H>;
}

/// What a wish is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// To put an entry in.
    Add,
    /// To put an entry in, over the one with its key if there is one.
    Replace,
    /// To take an entry out.
    Remove,
}

/// What stands in the way of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The key is in the table.
    Exists,
    /// The key is in the transaction more than once.
    Twice,
    /// The key is not in the table.
    Unknown,
    /// No place is left.
    Full,
}

/// What a transaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Version of the table afterwards.
    pub version: u64,
    /// Entries that are new.
    pub added: u32,
    /// Entries that took the place of another.
    pub replaced: u32,
    /// Entries that are gone.
    pub removed: u32,
}

/// A refused transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused<E> {
    /// Which change, from 0.
    pub position: usize,
    /// Why.
    pub why: E,
}

/// The table.
#[derive(Debug)]
pub struct Places<H: Held> {
    places: Vec<Option<H>>,
    by_key: FxHashMap<H::Key, u32>,
    free: BTreeSet<u32>,
    /// Behind the place that was given last.
    cursor: u32,
    changed: BTreeSet<u32>,
    version: u64,
    next_id: u64,
}

impl<H: Held> Places<H> {
    /// An empty table of `capacity` places.
    pub fn new(capacity: u32) -> Self {
        Self {
            places: (0..capacity).map(|_| None).collect(),
            by_key: FxHashMap::default(),
            free: (0..capacity).collect(),
            cursor: 0,
            changed: BTreeSet::new(),
            version: 0,
            next_id: 1,
        }
    }

    /// Puts an entry of a former madctld back into its place; false if the place or the key is taken. Nothing counts as
    /// changed by that.
    pub fn restore(&mut self, index: u32, held: H) -> bool {
        if self.by_key.contains_key(&held.key()) || !self.free.remove(&index) {
            return false;
        }
        if held.id() >= self.next_id {
            // the youngest so far stands where a place was given last
            self.next_id = held.id().saturating_add(1);
            self.cursor = index + 1;
        }
        self.by_key.insert(held.key(), index);
        self.places[index as usize] = Some(held);
        true
    }

    /// Carries out all changes, or none.
    ///
    /// # Errors
    /// The first change that is not possible, and why; the table is then as it was.
    ///
    /// # Panics
    /// Never: free places are counted before.
    pub fn apply(&mut self, changes: &[H::Change]) -> Result<Applied, Refused<H::Error>> {
        self.check(changes)?;
        let mut applied = Applied::default();
        for change in changes {
            let key = change.key();
            let place = match (change.deed(), self.by_key.get(&key)) {
                (Deed::Remove, None) => continue,
                (Deed::Remove, Some(place)) => {
                    applied.removed += 1;
                    *place
                }
                (_, Some(place)) => {
                    applied.replaced += 1;
                    *place
                }
                (_, None) => {
                    applied.added += 1;
                    self.give_place().expect("the check counted the free places")
                }
            };
            let next_id = &mut self.next_id;
            let fresh = || {
                let id = *next_id;
                *next_id += 1;
                id
            };
            let entry = change.entry(self.places[place as usize].as_ref(), fresh);
            match entry {
                Some(_) => _ = self.by_key.insert(key, place),
                None => {
                    self.by_key.remove(&key);
                    self.free.insert(place);
                }
            }
            self.places[place as usize] = entry;
            self.changed.insert(place);
        }
        self.version += u64::from(!changes.is_empty());
        applied.version = self.version;
        Ok(applied)
    }

    fn check(&self, changes: &[H::Change]) -> Result<(), Refused<H::Error>> {
        // a single change cannot meet itself
        let alone = changes.len() == 1;
        let room = if alone { 0 } else { changes.len() };
        let mut touched = FxHashSet::with_capacity_and_hasher(room, rustc_hash::FxBuildHasher);
        let mut free = self.free.len();
        for (position, change) in changes.iter().enumerate() {
            let key = change.key();
            let obstacle = match (change.deed(), self.by_key.contains_key(&key)) {
                _ if !alone && !touched.insert(key) => Obstacle::Twice,
                (Deed::Remove, true) => {
                    free += 1;
                    continue;
                }
                (Deed::Remove, false) => Obstacle::Unknown,
                (Deed::Replace, true) => continue,
                (Deed::Add, true) => Obstacle::Exists,
                (Deed::Add | Deed::Replace, false) if free == 0 => Obstacle::Full,
                (Deed::Add | Deed::Replace, false) => {
                    free -= 1;
                    continue;
                }
            };
            return Err(Refused { position, why: H::refusal(self, change, obstacle) });
        }
        Ok(())
    }

    fn give_place(&mut self) -> Option<u32> {
        let from = match H::PLACING {
            Placing::LowestFree => 0,
            Placing::NextFree => self.cursor,
        };
        let place = self.free.range(from..).next().or_else(|| self.free.first()).copied()?;
        self.free.remove(&place);
        self.cursor = place + 1;
        Some(place)
    }

    /// The keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &H::Key> {
        self.by_key.keys()
    }

    /// Place and entry of a key.
    pub fn look_up<Q>(&self, key: &Q) -> Option<(u32, &H)>
    where
        Q: Eq + Hash + ?Sized,
        H::Key: std::borrow::Borrow<Q>,
    {
        let place = *self.by_key.get(key)?;
        Some((place, self.get(place)?))
    }

    /// The entry in a place.
    pub fn get(&self, index: u32) -> Option<&H> {
        self.places.get(index as usize)?.as_ref()
    }

    /// All entries with their places, by place.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &H)> {
        (0u32..).zip(&self.places).filter_map(|(index, held)| Some((index, held.as_ref()?)))
    }

    /// Takes the places that changed since the last time, in order.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    /// Number of places that changed and have not been taken.
    pub fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Number of places.
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Number of transactions applied by this madctld.
    pub fn version(&self) -> u64 {
        self.version
    }
}
