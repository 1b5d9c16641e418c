//! The software table: what the operator wants, before the workers have it.
//!
//! Owned by madctld's thread (the route desk). Transactions, places and versions are those of [`crate::places`]; here is
//! what is particular to routes: found by `(slid, dlid)`, the lowest free place is used first, a route that replaces
//! another gets a new id.
//!
//! What it does not do: write shared memory ([`crate::publish`]), read text ([`spec`]), look at the fabric
//! ([`crate::fabric_path`]).

pub use madctl::route as spec;
pub use madctl::route::{Key, OnBroken, RawRoute, Route, RouteError, show_key};

pub use crate::places::Applied;
use crate::places::{self, Deed, Held, Obstacle, Places, Placing, Wish};

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
pub type SoftwareTable = Places<Placed>;

/// A refused transaction.
pub type Refused = places::Refused<TableError>;

impl Held for Placed {
    type Key = Key;
    type Change = Change;
    type Error = TableError;

    const PLACING: Placing = Placing::LowestFree;

    fn key(&self) -> Key {
        self.route.key()
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn refusal(table: &SoftwareTable, change: &Change, obstacle: Obstacle) -> TableError {
        let key = change.key();
        match obstacle {
            Obstacle::Exists => {
                let ports = table.find(key).map_or_else(String::new, |(_, there)| there.route.ports());
                TableError::Exists { key, ports }
            }
            Obstacle::Twice => TableError::Twice(key),
            Obstacle::Unknown => TableError::Unknown(key),
            Obstacle::Full => TableError::Full { capacity: table.capacity(), key },
        }
    }
}

impl Wish<Placed> for Change {
    fn key(&self) -> Key {
        match self {
            Self::Add { route, .. } => route.key(),
            Self::Remove(key) => *key,
        }
    }

    fn deed(&self) -> Deed {
        match self {
            Self::Add { replace: false, .. } => Deed::Add,
            Self::Add { replace: true, .. } => Deed::Replace,
            Self::Remove(_) => Deed::Remove,
        }
    }

    fn entry(&self, _former: Option<&Placed>, fresh: impl FnOnce() -> u64) -> Option<Placed> {
        let Self::Add { route, tenant, .. } = self else { return None };
        Some(Placed { route: route.clone(), tenant: *tenant, id: fresh() })
    }
}

impl SoftwareTable {
    /// Takes all routes out.
    pub fn clear(&mut self) -> Applied {
        let all: Vec<Change> = self.keys().copied().map(Change::Remove).collect();
        // every key is in the table once, so this cannot be refused
        self.apply(&all).unwrap_or_default()
    }

    /// Place and route of a key.
    pub fn find(&self, key: Key) -> Option<(u32, &Placed)> {
        self.look_up(&key)
    }

    /// Keys of the routes of a tenant, by place.
    pub fn of_tenant(&self, number: u16) -> Vec<Key> {
        let of = |(_, placed): &(u32, &Placed)| placed.tenant == number;
        self.iter().filter(of).map(|(_, placed)| placed.route.key()).collect()
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
