//! The published routes with the use of each.
//!
//! Plain values made from a copy of the table, which is of one generation; the counters beside it are read when asked for.

use madplane_shm::counters::Counter;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering::Relaxed;
use serde::Serialize;

use super::table::{PlacedRoute, TableCopy};
use super::{Head, worker_count};
use crate::protocol::RoutesStats;
use crate::route::OnBroken;
use crate::show;

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

impl RouteLine {
    fn of(placed: &PlacedRoute, uses: Option<&RouteCounters>, monotonic_ns: u64) -> Self {
        let PlacedRoute { route, place, tenant, id } = placed;
        let (packets, bytes, last_ns) = uses.map_or((0, 0, 0), |uses| uses.get(*place));
        let (slid, dlid) = route.key();
        Self {
            slid,
            dlid,
            path: route.path().to_vec(),
            p_key: route.p_key(),
            priority: route.priority(),
            on_broken: route.on_broken(),
            tenant: *tenant,
            tenant_name: route.tenant().map(str::to_owned),
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
    /// Routes and tenants that are damaged and not shown.
    pub damaged: u32,
    /// What madctld says of the table, if it was asked ([`crate::Plane::routes`]).
    pub control: Option<RoutesStats>,
    /// What the workers make of it, if the plane has shown itself.
    pub workers: Option<TableWorkers>,
    /// Sorted by the two LIDs.
    pub routes: Vec<RouteLine>,
}

impl RouteTable {
    pub(crate) fn of(
        copy: &TableCopy,
        plane: Option<Head>,
        workers: Option<TableWorkers>,
        uses: Option<&RouteCounters>,
        monotonic_ns: u64,
    ) -> Self {
        Self {
            plane,
            generation: copy.reader.generation(),
            capacity: copy.reader.capacity(),
            writer_pid: copy.reader.writer().pid,
            damaged: copy.damaged,
            control: None,
            workers,
            routes: copy.routes.iter().map(|placed| RouteLine::of(placed, uses, monotonic_ns)).collect(),
        }
    }
}
