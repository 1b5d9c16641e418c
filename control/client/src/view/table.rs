//! A private copy of the table segment.
//!
//! A [`View`](super::View) keeps one and makes it anew when the generation has moved; a copy is of one generation, whole. What
//! has no generation (latencies, errors) is read from the mapping each time.

use std::collections::BTreeMap;

use madplane_shm::paths::PlanePaths;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::tenant::{TenantEntry, number_of};
use madplane_shm::table::{RouteEntry, TableError, on_broken};

use super::LookError;
use crate::route::{OnBroken, RawRoute, Route};

/// A route in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedRoute {
    /// The route.
    pub(crate) route: Route,
    /// Where it stands in the table.
    pub(crate) place: u32,
    /// Tenant it belongs to, 0 for none.
    pub(crate) tenant: u16,
    /// Never given to another route.
    pub(crate) id: u64,
}

/// The copy, and the mapping that it comes from.
#[derive(Debug)]
pub(crate) struct TableCopy {
    pub(crate) reader: TableReader,
    /// Routes and tenants that are not believed.
    pub(crate) damaged: u32,
    /// Sorted by key.
    pub(crate) routes: Vec<PlacedRoute>,
    /// By number.
    pub(crate) tenants: BTreeMap<u16, TenantEntry>,
}

/// A route of the segment; `None` if it is no valid one.
fn sound(entry: &RouteEntry, tenants: &BTreeMap<u16, TenantEntry>) -> Option<Route> {
    let fallback = entry.on_broken == on_broken::FALLBACK;
    let raw = RawRoute {
        p_key: entry.p_key.into(),
        priority: entry.priority.into(),
        on_broken: if fallback { OnBroken::Fallback } else { OnBroken::Drop },
        tenant: tenants.get(&entry.tenant).map(|tenant| tenant.name().to_owned()),
        ..RawRoute::new(entry.slid, entry.dlid, entry.ports())
    };
    Route::try_from(raw).ok()
}

impl TableCopy {
    /// Maps the table at `paths`, unless `kept` has done so. Nothing is copied yet.
    pub(crate) fn map<'a>(kept: &'a mut Option<Self>, paths: &PlanePaths) -> Result<&'a mut Self, LookError> {
        let copy = match kept.take() {
            Some(copy) if copy.reader.is_at(&paths.table_segment()) => copy,
            _ => Self::open(paths)?,
        };
        Ok(kept.insert(copy))
    }

    /// Copies the table at `paths`, unless `kept` is that already.
    pub(crate) fn look<'a>(kept: &'a mut Option<Self>, paths: &PlanePaths) -> Result<&'a Self, LookError> {
        let copy = Self::map(kept, paths)?;
        if copy.reader.changed() {
            // anew, so that what is damaged is counted over the whole table
            if copy.reader.generation() != 0 {
                *copy = Self::open(paths)?;
            }
            copy.fill()?;
        }
        Ok(copy)
    }

    /// A copy that nobody keeps.
    pub(crate) fn once(paths: &PlanePaths) -> Result<Self, LookError> {
        let mut copy = Self::open(paths)?;
        copy.fill()?;
        Ok(copy)
    }

    fn open(paths: &PlanePaths) -> Result<Self, LookError> {
        let reader = TableReader::open(&paths.table_segment()).map_err(|error| match error {
            TableError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                LookError::NoTable(paths.name().to_owned())
            }
            other => LookError::Table(other),
        })?;
        Ok(Self { reader, damaged: 0, routes: Vec::new(), tenants: BTreeMap::new() })
    }

    fn fill(&mut self) -> Result<(), LookError> {
        let mut entries = Vec::new();
        let tenants = &mut self.tenants;
        let refresh = self.reader.refresh(
            &mut |place, entry: Option<&RouteEntry>| entries.extend(entry.map(|entry| (place, *entry))),
            &mut |place, entry: Option<&TenantEntry>| {
                tenants.extend(entry.map(|entry| (number_of(place), *entry)));
            },
        );
        if !refresh.complete {
            return Err(LookError::TooFast);
        }
        self.damaged = refresh.refused;
        for (place, entry) in entries {
            match sound(&entry, &self.tenants) {
                Some(route) => {
                    let (tenant, id) = (entry.tenant, entry.id);
                    self.routes.push(PlacedRoute { route, place, tenant, id });
                }
                None => self.damaged += 1,
            }
        }
        self.routes.sort_unstable_by_key(|placed| placed.route.key());
        Ok(())
    }
}
