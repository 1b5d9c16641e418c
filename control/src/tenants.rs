//! The software table of tenants: who may do what, before the workers have it.
//!
//! Owned by madctld's thread (the route desk). Transactions, places and versions are those of [`crate::places`]; here is
//! what is particular to tenants: found by name; the number, which sessions and routes name, is the place + 1; a tenant
//! that is replaced keeps its id too, so that its sessions stay its own; a freed place is the last to be given again, so
//! that a number outlives its tenant for as long as possible.
//!
//! What it does not do: write shared memory ([`crate::publish`]), read text ([`spec`]), know who is in
//! use (the route desk asks before it removes).

use madplane_shm::table::tenant::number_of;

pub use madctl::tenant as spec;
pub use madctl::tenant::{Priority, RawTenant, SmpRight, Tenant, TenantError};

pub use crate::places::Applied;
use crate::places::{self, Deed, Held, Obstacle, Places, Placing, Wish};

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

/// A tenant in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The tenant.
    pub tenant: Tenant,
    /// Never given to another tenant.
    pub id: u64,
}

/// The table.
pub type TenantTable = Places<Placed>;

/// A refused transaction.
pub type Refused = places::Refused<TableError>;

impl Held for Placed {
    type Key = String;
    type Change = Change;
    type Error = TableError;

    const PLACING: Placing = Placing::NextFree;

    fn key(&self) -> String {
        self.tenant.name().to_owned()
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn refusal(table: &TenantTable, change: &Change, obstacle: Obstacle) -> TableError {
        let name = change.key();
        match obstacle {
            Obstacle::Exists => TableError::Exists(name),
            Obstacle::Twice => TableError::Twice(name),
            Obstacle::Unknown => table.unknown(&name),
            Obstacle::Full => TableError::Full { capacity: table.capacity(), name },
        }
    }
}

impl Wish<Placed> for Change {
    fn key(&self) -> String {
        match self {
            Self::Add { tenant, .. } => tenant.name().to_owned(),
            Self::Remove(name) => name.clone(),
        }
    }

    fn deed(&self) -> Deed {
        match self {
            Self::Add { replace: false, .. } => Deed::Add,
            Self::Add { replace: true, .. } => Deed::Replace,
            Self::Remove(_) => Deed::Remove,
        }
    }

    fn entry(&self, former: Option<&Placed>, fresh: impl FnOnce() -> u64) -> Option<Placed> {
        let Self::Add { tenant, .. } = self else { return None };
        Some(Placed { tenant: tenant.clone(), id: former.map_or_else(fresh, Held::id) })
    }
}

impl TenantTable {
    /// The refusal of a name that is not in the table.
    pub fn unknown(&self, name: &str) -> TableError {
        let hint = crate::nearest::hint(name, self.keys().map(String::as_str));
        TableError::Unknown { name: name.to_owned(), hint }
    }

    /// Place and tenant of a name.
    pub fn find(&self, name: &str) -> Option<(u32, &Placed)> {
        self.look_up(name)
    }

    /// Number of a name, from 1, as sessions and routes carry it.
    pub fn number(&self, name: &str) -> Option<u16> {
        self.find(name).map(|(index, _)| number_of(index))
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
