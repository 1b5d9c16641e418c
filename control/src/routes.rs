//! The software table: what the operator wants, before the workers have it.
//!
//! Owned by madctld's thread (the route desk); the place of a route here is its place in the table segment. A change is
//! a transaction: applied whole with a new version, or refused with the table as it was. Indices that changed are kept
//! until the publisher takes them. Invariants: a key `(slid, dlid)` is in the table once; an id is never given twice;
//! the lowest free place is used first.
//!
//! What it does not do: write shared memory ([`crate::publish`]), read text ([`spec`]), look at the fabric
//! ([`crate::fabric_path`]).

use std::collections::{BTreeSet, HashSet};

pub use madctl::route as spec;
pub use madctl::route::{Key, OnBroken, RawRoute, Route, RouteError, show_key};
use rustc_hash::FxHashMap;

/// Most places of a table.
pub const MAX_CAPACITY: u32 = 65_536;

/// One wish of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Put a route in; with `replace` also over one with the same key.
    Add {
        /// The route.
        route: Route,
        /// Number of the tenant that it names, 0 without.
        tenant: u16,
        /// Whether it may take the place of another.
        replace: bool,
    },
    /// Take a route out.
    Remove(Key),
}

/// What a transaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Version of the table afterwards.
    pub version: u64,
    /// Routes that are new.
    pub added: u32,
    /// Routes that took the place of another.
    pub replaced: u32,
    /// Routes that are gone.
    pub removed: u32,
}

/// Why a transaction was refused; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The key is in the table.
    #[error("route {} exists already (ports {ports}); change it with --replace", show_key(*key))]
    Exists {
        /// The key.
        key: Key,
        /// Its ports.
        ports: String,
    },
    /// The key is in the transaction more than once.
    #[error("route {} is given twice", show_key(*.0))]
    Twice(Key),
    /// The key is not in the table.
    #[error("there is no route {}", show_key(*.0))]
    Unknown(Key),
    /// No place is left.
    #[error("DR table full (max={capacity}), refusing route {}", show_key(*key))]
    Full {
        /// Places of the table.
        capacity: u32,
        /// The first route without a place.
        key: Key,
    },
}

/// A refused transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Which change, from 0.
    pub position: usize,
    /// Why.
    pub why: TableError,
}

/// A route in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The route.
    pub route: Route,
    /// Tenant it belongs to, 0 for none.
    pub tenant: u16,
    /// Never given to another route.
    pub id: u64,
}

/// The table.
#[derive(Debug)]
pub struct SoftwareTable {
    places: Vec<Option<Placed>>,
    by_key: FxHashMap<Key, u32>,
    free: BTreeSet<u32>,
    changed: BTreeSet<u32>,
    version: u64,
    next_id: u64,
}

impl SoftwareTable {
    /// An empty table of `capacity` places.
    pub fn new(capacity: u32) -> Self {
        Self {
            places: (0..capacity).map(|_| None).collect(),
            by_key: FxHashMap::default(),
            free: (0..capacity).collect(),
            changed: BTreeSet::new(),
            version: 0,
            next_id: 1,
        }
    }

    /// Puts a route of a former madctld back into its place; false if the place or the key is taken. Nothing counts as
    /// changed by that.
    pub fn restore(&mut self, index: u32, placed: Placed) -> bool {
        if self.by_key.contains_key(&placed.route.key()) || !self.free.remove(&index) {
            return false;
        }
        self.next_id = self.next_id.max(placed.id.saturating_add(1));
        self.by_key.insert(placed.route.key(), index);
        self.places[index as usize] = Some(placed);
        true
    }

    /// Carries out all changes, or none.
    ///
    /// # Errors
    /// The first change that is not possible, and why; the table is then as it was.
    ///
    /// # Panics
    /// Never: free places are counted before.
    pub fn apply(&mut self, changes: &[Change]) -> Result<Applied, Refused> {
        self.check(changes)?;
        let mut applied = Applied::default();
        for change in changes {
            match change {
                Change::Remove(key) => {
                    let Some(index) = self.by_key.remove(key) else { continue };
                    self.places[index as usize] = None;
                    self.free.insert(index);
                    self.changed.insert(index);
                    applied.removed += 1;
                }
                Change::Add { route, tenant, .. } => {
                    let key = route.key();
                    let index = match self.by_key.get(&key) {
                        Some(index) => {
                            applied.replaced += 1;
                            *index
                        }
                        None => {
                            applied.added += 1;
                            self.free.pop_first().expect("the check counted the free places")
                        }
                    };
                    let placed = Placed { route: route.clone(), tenant: *tenant, id: self.next_id };
                    self.next_id += 1;
                    self.places[index as usize] = Some(placed);
                    self.by_key.insert(key, index);
                    self.changed.insert(index);
                }
            }
        }
        self.version += u64::from(!changes.is_empty());
        applied.version = self.version;
        Ok(applied)
    }

    fn check(&self, changes: &[Change]) -> Result<(), Refused> {
        // a single change cannot meet itself
        let alone = changes.len() == 1;
        let mut touched: HashSet<Key> = HashSet::with_capacity(if alone { 0 } else { changes.len() });
        let mut free = self.free.len();
        for (position, change) in changes.iter().enumerate() {
            let refuse = |why| Err(Refused { position, why });
            match change {
                Change::Remove(key) => {
                    if !alone && !touched.insert(*key) {
                        return refuse(TableError::Twice(*key));
                    }
                    if !self.by_key.contains_key(key) {
                        return refuse(TableError::Unknown(*key));
                    }
                    free += 1;
                }
                Change::Add { route, replace, .. } => {
                    let key = route.key();
                    if !alone && !touched.insert(key) {
                        return refuse(TableError::Twice(key));
                    }
                    match self.find(key) {
                        Some(_) if *replace => {}
                        Some((_, there)) => {
                            return refuse(TableError::Exists { key, ports: there.route.ports() });
                        }
                        None if free == 0 => {
                            return refuse(TableError::Full { capacity: self.capacity(), key });
                        }
                        None => free -= 1,
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes all routes out.
    pub fn clear(&mut self) -> Applied {
        let all: Vec<Change> = self.by_key.keys().map(|key| Change::Remove(*key)).collect();
        // every key is in the table once, so this cannot be refused
        self.apply(&all).unwrap_or_default()
    }

    /// Place and route of a key.
    pub fn find(&self, key: Key) -> Option<(u32, &Placed)> {
        let index = *self.by_key.get(&key)?;
        Some((index, self.places.get(index as usize)?.as_ref()?))
    }

    /// Keys of the routes of a tenant, by place.
    pub fn of_tenant(&self, number: u16) -> Vec<Key> {
        let of = |placed: &&Placed| placed.tenant == number;
        self.places.iter().flatten().filter(of).map(|placed| placed.route.key()).collect()
    }

    /// The route in a place.
    pub fn get(&self, index: u32) -> Option<&Placed> {
        self.places.get(index as usize)?.as_ref()
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

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Number of transactions applied by this madctld.
    pub fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(slid: u16, dlid: u16) -> Route {
        Route::try_from(RawRoute::new(slid, dlid, &[1, 2])).unwrap()
    }

    fn add(slid: u16, dlid: u16) -> Change {
        Change::Add { route: route(slid, dlid), tenant: 0, replace: false }
    }

    /// Everything that can be seen of a table.
    fn image(table: &SoftwareTable) -> Vec<Option<Placed>> {
        (0..table.capacity()).map(|index| table.get(index).cloned()).collect()
    }

    #[test]
    fn a_refused_transaction_changes_nothing_and_names_its_change() {
        let mut table = SoftwareTable::new(3);
        table.apply(&[add(1, 2), add(1, 3)]).unwrap();
        table.take_changed();
        let before = image(&table);
        let cases: [(&[Change], usize, TableError); 5] = [
            (&[add(5, 6), add(1, 2)], 1, TableError::Exists { key: (1, 2), ports: "1,2".into() }),
            (&[add(5, 6), add(5, 6)], 1, TableError::Twice((5, 6))),
            (&[add(5, 6), Change::Remove((9, 9))], 1, TableError::Unknown((9, 9))),
            (&[add(5, 6), add(5, 7)], 1, TableError::Full { capacity: 3, key: (5, 7) }),
            (&[Change::Remove((1, 2)), Change::Remove((1, 2))], 1, TableError::Twice((1, 2))),
        ];
        for (changes, position, why) in cases {
            assert_eq!(table.apply(changes), Err(Refused { position, why }));
            assert_eq!((image(&table), table.changed(), table.version()), (before.clone(), 0, 1));
        }
    }

    #[test]
    fn places_are_reused_from_the_lowest_and_ids_are_not() {
        let mut table = SoftwareTable::new(4);
        table.apply(&[add(1, 4), add(1, 2), add(1, 3)]).unwrap();
        table.apply(&[Change::Remove((1, 4)), Change::Remove((1, 2))]).unwrap();
        table.take_changed();
        table.apply(&[add(7, 8)]).unwrap();
        let (index, placed) = table.find((7, 8)).unwrap();
        assert_eq!((index, placed.id), (0, 4));
        assert_eq!(table.take_changed().into_iter().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_full_table_makes_room_for_what_the_same_transaction_removes_first() {
        let mut table = SoftwareTable::new(1);
        table.apply(&[add(1, 2)]).unwrap();
        let applied = table.apply(&[Change::Remove((1, 2)), add(3, 4)]).unwrap();
        assert_eq!(applied, Applied { version: 2, added: 1, replaced: 0, removed: 1 });
        assert_eq!((table.len(), table.find((1, 2))), (1, None));
    }

    #[test]
    fn a_replaced_route_keeps_its_place_and_gets_a_new_id() {
        let mut table = SoftwareTable::new(2);
        table.apply(&[add(1, 2)]).unwrap();
        let other = Route::try_from(RawRoute::new(1, 2, &[9])).unwrap();
        let applied = table.apply(&[Change::Add { route: other, tenant: 5, replace: true }]).unwrap();
        assert_eq!((applied.added, applied.replaced), (0, 1));
        let (index, placed) = table.find((1, 2)).unwrap();
        assert_eq!((index, placed.id, placed.route.ports().as_str()), (0, 2, "9"));
        assert_eq!((table.of_tenant(5), table.of_tenant(0)), (vec![(1, 2)], vec![]));
    }

    #[test]
    fn a_restored_table_goes_on_where_the_former_one_was() {
        let mut table = SoftwareTable::new(4);
        assert!(table.restore(2, Placed { route: route(1, 2), tenant: 7, id: 41 }));
        assert!(!table.restore(2, Placed { route: route(5, 6), tenant: 0, id: 1 }), "the place is taken");
        assert!(!table.restore(3, Placed { route: route(1, 2), tenant: 0, id: 1 }), "the key is taken");
        assert!(!table.restore(4, Placed { route: route(5, 6), tenant: 0, id: 1 }), "no such place");
        assert_eq!((table.changed(), table.len()), (0, 1));
        table.apply(&[add(3, 4)]).unwrap();
        let (index, placed) = table.find((3, 4)).unwrap();
        assert_eq!((index, placed.id), (0, 42));
        assert_eq!(table.clear().removed, 2);
        assert!(table.is_empty() && table.changed() == 2);
    }
}
