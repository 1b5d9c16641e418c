//! The published route table with the use of each route.
//!
//! A [`View`](super::View) keeps one private copy and makes it anew when the generation has moved; a copy is of one
//! generation, whole. The counters beside it are read when asked for.

use std::collections::BTreeMap;

use madplane_shm::counters::Counter;
use madplane_shm::paths::PlanePaths;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering::Relaxed;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::tenant::{TenantEntry, number_of};
use madplane_shm::table::{RouteEntry, TableError, on_broken};
use serde::Serialize;

use super::{Head, LookError, worker_count};
use crate::protocol::RoutesStats;
use crate::route::{OnBroken, RawRoute, Route};
use crate::show;

/// A route in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedRoute {
    /// The route.
    pub route: Route,
    /// Where it stands in the table.
    pub place: u32,
    /// Tenant it belongs to, 0 for none.
    pub tenant: u16,
    /// Never given to another route.
    pub id: u64,
}

/// A private copy of the table.
#[derive(Debug)]
pub(crate) struct RouteCopy {
    reader: TableReader,
    generation: u64,
    damaged: u32,
    /// Sorted by key.
    pub(crate) routes: Vec<PlacedRoute>,
    /// By number.
    pub(crate) tenants: BTreeMap<u16, TenantEntry>,
}

/// A route of the segment; `None` if it is no valid one.
fn sound(entry: &RouteEntry) -> Option<Route> {
    let fallback = entry.on_broken == on_broken::FALLBACK;
    let raw = RawRoute {
        p_key: entry.p_key.into(),
        priority: entry.priority.into(),
        on_broken: if fallback { OnBroken::Fallback } else { OnBroken::Drop },
        ..RawRoute::new(entry.slid, entry.dlid, entry.ports())
    };
    Route::try_from(raw).ok()
}

impl RouteCopy {
    /// Copies the table at `paths`, unless `kept` is that already.
    pub(crate) fn look<'a>(kept: &'a mut Option<Self>, paths: &PlanePaths) -> Result<&'a Self, LookError> {
        let path = paths.table_segment();
        let copy = match kept.take() {
            Some(copy) if !copy.reader.changed() && copy.reader.is_at(&path) => copy,
            _ => Self::open(paths)?,
        };
        Ok(kept.insert(copy))
    }

    pub(crate) fn open(paths: &PlanePaths) -> Result<Self, LookError> {
        let mut reader = TableReader::open(&paths.table_segment()).map_err(|error| match error {
            TableError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                LookError::NoTable(paths.name().to_owned())
            }
            other => LookError::Table(other),
        })?;
        let mut routes = Vec::new();
        let mut tenants = BTreeMap::new();
        let mut damaged = 0;
        let refresh = reader.refresh(
            &mut |place, entry: Option<&RouteEntry>| {
                let Some(entry) = entry else { return };
                match sound(entry) {
                    Some(route) => {
                        let (tenant, id) = (entry.tenant, entry.id);
                        routes.push(PlacedRoute { route, place, tenant, id });
                    }
                    None => damaged += 1,
                }
            },
            &mut |place, entry: Option<&TenantEntry>| {
                tenants.extend(entry.map(|entry| (number_of(place), *entry)));
            },
        );
        if !refresh.complete {
            return Err(LookError::TooFast);
        }
        damaged += refresh.refused;
        routes.sort_unstable_by_key(|placed| placed.route.key());
        Ok(Self { generation: refresh.generation, reader, routes, tenants, damaged })
    }

    pub(crate) fn show(
        &self,
        plane: Option<Head>,
        workers: Option<TableWorkers>,
        uses: Option<&RouteCounters>,
        monotonic_ns: u64,
    ) -> RouteTable {
        RouteTable {
            plane,
            generation: self.generation,
            capacity: self.reader.capacity(),
            writer_pid: self.reader.writer().pid,
            damaged: self.damaged,
            control: None,
            workers,
            routes: self.routes.iter().map(|placed| self.line(placed, uses, monotonic_ns)).collect(),
        }
    }
}

/// A route as it is shown.
#[derive(Debug, Clone, Serialize)]
pub struct RouteLine {
    /// LID of the sender.
    #[serde(serialize_with = "show::as_short")]
    pub slid: u16,
    /// LID of the receiver.
    #[serde(serialize_with = "show::as_short")]
    pub dlid: u16,
    /// Egress ports.
    pub path: Vec<u8>,
    /// Partition.
    #[serde(serialize_with = "show::as_short")]
    pub p_key: u16,
    /// Priority, 0 is served last.
    pub priority: u8,
    /// What becomes of a MAD when the path is broken.
    pub on_broken: OnBroken,
    /// Tenant it belongs to, 0 for none.
    pub tenant: u16,
    /// Name of that tenant, if it is still there.
    pub tenant_name: Option<String>,
    /// Where it stands in the table.
    pub place: u32,
    /// Never given to another route.
    pub id: u64,
    /// MADs carried.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long ago the last one was, nanoseconds.
    pub last_use_age_ns: Option<u64>,
}

impl RouteCopy {
    fn line(&self, placed: &PlacedRoute, uses: Option<&RouteCounters>, monotonic_ns: u64) -> RouteLine {
        let PlacedRoute { route, place, tenant, id } = placed;
        let (packets, bytes, last_ns) = uses.map_or((0, 0, 0), |uses| uses.get(*place));
        let (slid, dlid) = route.key();
        RouteLine {
            slid,
            dlid,
            path: route.path().to_vec(),
            p_key: route.p_key(),
            priority: route.priority(),
            on_broken: route.on_broken(),
            tenant: *tenant,
            tenant_name: self.tenants.get(tenant).map(|entry| entry.name().to_owned()),
            place: *place,
            id: *id,
            packets,
            bytes,
            last_use_age_ns: (last_ns > 0).then(|| monotonic_ns.saturating_sub(last_ns)),
        }
    }
}

/// What the workers make of the table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TableWorkers {
    /// MADs carried by a route that was resolved before.
    pub dr_cache_hit: u64,
    /// Routes resolved against the fabric.
    pub dr_cache_miss: u64,
    /// Copies of the table that the writer overtook.
    pub retry_count: u64,
    /// Routes refused because they are damaged.
    pub refused: u64,
    /// Generation that each worker forwards by.
    pub applied_generations: Vec<u64>,
}

impl TableWorkers {
    pub(crate) fn of(status: &Status) -> Self {
        let mut sum = Self::default();
        for index in 0..worker_count(status) {
            let block = status.worker(index);
            let counter = |counter: Counter| block.counters[counter as usize].load(Relaxed);
            sum.dr_cache_hit += counter(Counter::DrCacheHit);
            sum.dr_cache_miss += counter(Counter::DrCacheMiss);
            sum.retry_count += block.table_retries.load(Relaxed);
            sum.refused += block.table_refused.load(Relaxed);
            sum.applied_generations.push(block.applied_generation.load(Relaxed));
        }
        sum
    }
}

/// The published table.
#[derive(Debug, Clone, Serialize)]
pub struct RouteTable {
    /// The plane, if it has shown itself.
    pub plane: Option<Head>,
    /// Generation of the copy.
    pub generation: u64,
    /// Places.
    pub capacity: u32,
    /// Process id of madctld, also of a dead one.
    pub writer_pid: u32,
    /// Routes that are damaged and not shown.
    pub damaged: u32,
    /// What madctld says of the table, if it was asked ([`crate::Plane::routes`]).
    pub control: Option<RoutesStats>,
    /// What the workers make of it, if the plane has shown itself.
    pub workers: Option<TableWorkers>,
    /// Sorted by the two LIDs.
    pub routes: Vec<RouteLine>,
}
