//! The software table of tenants: who may do what, before the workers have it.
//!
//! Owned by madctld's thread (the route desk); the place of a tenant here is its place in the table segment, and its
//! number, which sessions and routes name, is that place + 1. A change is a transaction: applied whole with a new
//! version, or refused with the table as it was. Places that changed are kept until the publisher takes them.
//! Invariants: a name is in the table once; an id is never given twice, and a tenant that is replaced keeps place and
//! id, so that its sessions stay its own; a freed place is the last to be given again, so that a number outlives its
//! tenant for as long as possible.
//!
//! What it does not do: write shared memory ([`crate::publish`]), read text ([`spec`]), know who is in
//! use (the route desk asks before it removes).

use std::collections::{BTreeSet, HashMap, HashSet};

use madplane_shm::table::tenant::number_of;

pub use madctl::tenant as spec;
pub use madctl::tenant::{Priority, RawTenant, SmpRight, Tenant, TenantError};

/// One wish of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Put a tenant in; with `replace` also over one with the same name.
    Add {
        /// The tenant.
        tenant: Tenant,
        /// Whether it may take the place of another.
        replace: bool,
    },
    /// Take a tenant out.
    Remove(String),
}

/// What a transaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Version of the table afterwards.
    pub version: u64,
    /// Tenants that are new.
    pub added: u32,
    /// Tenants that took the place of another.
    pub replaced: u32,
    /// Tenants that are gone.
    pub removed: u32,
}

/// Why a transaction was refused; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The name is in the table.
    #[error("tenant {0} exists already; change it with --replace")]
    Exists(String),
    /// The name is in the transaction more than once.
    #[error("tenant {0} is given twice")]
    Twice(String),
    /// The name is not in the table.
    #[error("there is no tenant {name:?}{hint}")]
    Unknown {
        /// The name.
        name: String,
        /// The nearest one, or nothing.
        hint: String,
    },
    /// No place is left.
    #[error("tenant table full (max={capacity}), refusing tenant {name}")]
    Full {
        /// Places of the table.
        capacity: u32,
        /// The first tenant without a place.
        name: String,
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

/// A tenant in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The tenant.
    pub tenant: Tenant,
    /// Never given to another tenant.
    pub id: u64,
}

/// The table.
#[derive(Debug)]
pub struct TenantTable {
    places: Vec<Option<Placed>>,
    by_name: HashMap<String, u32>,
    changed: BTreeSet<u32>,
    /// Where the search for a free place begins.
    cursor: u32,
    version: u64,
    next_id: u64,
}

impl TenantTable {
    /// An empty table of `capacity` places.
    pub fn new(capacity: u32) -> Self {
        Self {
            places: (0..capacity).map(|_| None).collect(),
            by_name: HashMap::new(),
            changed: BTreeSet::new(),
            cursor: 0,
            version: 0,
            next_id: 1,
        }
    }

    /// Puts a tenant of a former madctld back into its place; false if the place or the name is taken. Nothing counts as
    /// changed by that.
    pub fn restore(&mut self, index: u32, placed: Placed) -> bool {
        let free = self.places.get(index as usize).is_some_and(Option::is_none);
        if !free || self.by_name.contains_key(placed.tenant.name()) {
            return false;
        }
        if placed.id >= self.next_id {
            self.next_id = placed.id.saturating_add(1);
            self.cursor = index + 1;
        }
        self.by_name.insert(placed.tenant.name().to_owned(), index);
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
                Change::Remove(name) => {
                    let Some(index) = self.by_name.remove(name) else { continue };
                    self.places[index as usize] = None;
                    self.changed.insert(index);
                    applied.removed += 1;
                }
                Change::Add { tenant, .. } => {
                    let name = tenant.name();
                    let (index, id) = match self.find(name) {
                        Some((index, former)) => {
                            applied.replaced += 1;
                            (index, former.id)
                        }
                        None => {
                            applied.added += 1;
                            let id = self.next_id;
                            self.next_id += 1;
                            (self.take_place().expect("the check counted the free places"), id)
                        }
                    };
                    self.by_name.insert(name.to_owned(), index);
                    self.places[index as usize] = Some(Placed { tenant: tenant.clone(), id });
                    self.changed.insert(index);
                }
            }
        }
        self.version += u64::from(!changes.is_empty());
        applied.version = self.version;
        Ok(applied)
    }

    fn check(&self, changes: &[Change]) -> Result<(), Refused> {
        let mut touched: HashSet<&str> = HashSet::with_capacity(changes.len());
        let mut free = self.places.len() - self.by_name.len();
        for (position, change) in changes.iter().enumerate() {
            let refuse = |why| Err(Refused { position, why });
            let name = match change {
                Change::Remove(name) => name,
                Change::Add { tenant, .. } => tenant.name(),
            };
            if !touched.insert(name) {
                return refuse(TableError::Twice(name.to_owned()));
            }
            match (change, self.by_name.contains_key(name)) {
                (Change::Remove(_), true) => free += 1,
                (Change::Remove(_), false) => return refuse(self.unknown(name)),
                (Change::Add { replace: true, .. }, true) => {}
                (Change::Add { .. }, true) => return refuse(TableError::Exists(name.to_owned())),
                (Change::Add { .. }, false) if free == 0 => {
                    return refuse(TableError::Full { capacity: self.capacity(), name: name.to_owned() });
                }
                (Change::Add { .. }, false) => free -= 1,
            }
        }
        Ok(())
    }

    fn take_place(&mut self) -> Option<u32> {
        let capacity = self.capacity();
        let index = (self.cursor..capacity)
            .chain(0..self.cursor.min(capacity))
            .find(|index| self.places[*index as usize].is_none())?;
        self.cursor = index + 1;
        Some(index)
    }

    /// The refusal of a name that is not in the table.
    pub fn unknown(&self, name: &str) -> TableError {
        let hint = crate::nearest::hint(name, self.by_name.keys().map(String::as_str));
        TableError::Unknown { name: name.to_owned(), hint }
    }

    /// Place and tenant of a name.
    pub fn find(&self, name: &str) -> Option<(u32, &Placed)> {
        let index = *self.by_name.get(name)?;
        Some((index, self.get(index)?))
    }

    /// Number of a name, from 1, as sessions and routes carry it.
    pub fn number(&self, name: &str) -> Option<u16> {
        self.find(name).map(|(index, _)| number_of(index))
    }

    /// The tenant in a place.
    pub fn get(&self, index: u32) -> Option<&Placed> {
        self.places.get(index as usize)?.as_ref()
    }

    /// All tenants with their places, by place.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Placed)> {
        (0u32..).zip(&self.places).filter_map(|(index, placed)| Some((index, placed.as_ref()?)))
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

    /// Number of tenants.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is no tenant.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Number of transactions applied by this madctld.
    pub fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::try_from(RawTenant::new(name)).unwrap()
    }

    fn add(name: &str) -> Change {
        Change::Add { tenant: tenant(name), replace: false }
    }

    fn remove(name: &str) -> Change {
        Change::Remove(name.to_owned())
    }

    /// Everything that can be seen of a table.
    fn image(table: &TenantTable) -> Vec<(u32, Placed)> {
        table.iter().map(|(index, placed)| (index, placed.clone())).collect()
    }

    #[test]
    fn a_refused_transaction_changes_nothing_and_names_its_change() {
        let mut table = TenantTable::new(3);
        table.apply(&[add("red"), add("blue")]).unwrap();
        table.take_changed();
        let before = image(&table);
        let unknown = TableError::Unknown { name: "bleu".into(), hint: "; did you mean blue?".into() };
        let cases: [(&[Change], TableError); 5] = [
            (&[add("x"), add("red")], TableError::Exists("red".into())),
            (&[add("x"), add("x")], TableError::Twice("x".into())),
            (&[add("x"), remove("bleu")], unknown),
            (&[add("x"), add("y")], TableError::Full { capacity: 3, name: "y".into() }),
            (&[remove("red"), remove("red")], TableError::Twice("red".into())),
        ];
        for (changes, why) in cases {
            assert_eq!(table.apply(changes), Err(Refused { position: 1, why }));
            assert_eq!((image(&table), table.changed(), table.version()), (before.clone(), 0, 1));
        }
    }

    #[test]
    fn a_replaced_tenant_keeps_its_number_and_its_id() {
        let mut table = TenantTable::new(4);
        table.apply(&[add("red"), add("blue")]).unwrap();
        let other = Tenant::try_from(RawTenant { rate: 5, ..RawTenant::new("red") }).unwrap();
        let applied = table.apply(&[Change::Add { tenant: other.clone(), replace: true }]).unwrap();
        assert_eq!(applied, Applied { version: 2, replaced: 1, ..Applied::default() });
        assert_eq!(table.find("red"), Some((0, &Placed { tenant: other, id: 1 })));
        assert_eq!((table.number("red"), table.number("blue"), table.number("x")), (Some(1), Some(2), None));
    }

    #[test]
    fn a_freed_place_is_given_again_last() {
        let mut table = TenantTable::new(3);
        table.apply(&[add("a"), add("b")]).unwrap();
        table.apply(&[remove("a")]).unwrap();
        table.take_changed();
        table.apply(&[add("c")]).unwrap();
        assert_eq!(table.find("c").map(|(index, placed)| (index, placed.id)), Some((2, 3)));
        table.apply(&[add("d")]).unwrap();
        assert_eq!(table.find("d").map(|(index, placed)| (index, placed.id)), Some((0, 4)));
        assert_eq!(table.take_changed().into_iter().collect::<Vec<_>>(), [0, 2]);
        assert!(matches!(table.apply(&[add("e")]).unwrap_err().why, TableError::Full { capacity: 3, .. }));
        let applied = table.apply(&[remove("b"), add("e")]).unwrap();
        assert_eq!((applied.removed, applied.added, table.len()), (1, 1, 3), "room that the same one makes");
        let mut none = TenantTable::new(0);
        assert!(none.apply(&[add("a")]).is_err() && none.is_empty());
    }

    #[test]
    fn a_restored_table_goes_on_where_the_former_one_was() {
        let mut table = TenantTable::new(4);
        assert!(table.restore(1, Placed { tenant: tenant("red"), id: 41 }));
        assert!(table.restore(3, Placed { tenant: tenant("blue"), id: 7 }));
        assert!(!table.restore(1, Placed { tenant: tenant("x"), id: 1 }), "the place is taken");
        assert!(!table.restore(2, Placed { tenant: tenant("red"), id: 1 }), "the name is taken");
        assert!(!table.restore(4, Placed { tenant: tenant("x"), id: 1 }), "no such place");
        assert_eq!((table.changed(), table.len()), (0, 2));
        table.apply(&[add("x")]).unwrap();
        assert_eq!(table.find("x").map(|(index, placed)| (index, placed.id)), Some((2, 42)));
    }
}
