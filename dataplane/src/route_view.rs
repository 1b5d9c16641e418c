//! A worker's view of the route table: a reader of the shared table, and what it has told the shard.
//!
//! Owned by a worker. [`RouteView::is_due`] looks at one shared word and is called once per duty cycle; everything else
//! happens when that word moved: places that changed are read under the sequence lock and handed to the shard, which
//! keeps its own compiled copy. One duty cycle takes a few places only, so that no MAD waits long behind a large
//! publication; the generation counts as applied with its last place. Until then each route that the shard has is whole,
//! some are old and some are new. Forwarding never waits for control.

use std::sync::Arc;

use madplane_engine::{OnBroken, PinnedRoute, RouteRoom, Shard};
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::{RouteEntry, on_broken};
use madplane_shm::tuning::TuningPatch;

use crate::acl::Acl;

/// Places looked at in one duty cycle: about a microsecond.
const STEP: u32 = 8;
/// The same once a publication has turned out to be very large.
const LARGE_STEP: u32 = 64;
/// Steps after which it has.
const STEPS_TO_LARGE: u32 = 160;

/// One worker's reader and what has come of it.
#[derive(Debug)]
pub struct RouteView {
    reader: TableReader,
    counters: Arc<RouteCounters>,
    /// Control's numbers of the routes that the shard has; 0 for a free place.
    ids: Vec<u64>,
    /// This worker sets the counters of a replaced route to zero.
    resets_counters: bool,
    retries: u64,
    refused: u64,
    /// Tenants were among what the last refresh brought.
    tenants_moved: bool,
    /// Steps since the last complete refresh.
    steps: u32,
    /// Memory for the shard's routes, then what it had before.
    room: RouteRoom,
}

impl RouteView {
    /// Makes a view that has seen nothing yet. One of the workers, the first, `resets_counters`.
    pub fn new(reader: TableReader, counters: Arc<RouteCounters>, resets_counters: bool) -> Self {
        // touched here, so that the worker meets no page for the first time
        let mut ids = vec![u64::MAX; reader.capacity() as usize];
        ids.fill(0);
        let room = RouteRoom::new(reader.capacity());
        Self {
            reader,
            counters,
            ids,
            resets_counters,
            retries: 0,
            refused: 0,
            tenants_moved: false,
            steps: 0,
            room,
        }
    }

    /// Whether there is something to [`RouteView::refresh`]. One load of a word that rarely changes.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.reader.changed()
    }

    /// Tells the shard and `acl` some of what has changed; the generation that it forwards by now, or `None` if there is more.
    #[cold]
    pub fn refresh(&mut self, shard: &mut Shard, acl: &mut Acl) -> Option<u64> {
        let (ids, counters, resets) = (&mut self.ids, &self.counters, self.resets_counters);
        let apply_route = &mut |index: u32, entry: Option<&RouteEntry>| {
            let id = entry.map_or(0, |entry| entry.id);
            if let Some(known) = ids.get_mut(index as usize)
                && *known != id
            {
                *known = id;
                // mostly nothing was counted; a load costs less than stores
                if resets && counters.get(index) != (0, 0, 0) {
                    counters.reset(index);
                }
            }
            shard.set_route(index, entry.map(pinned).as_ref());
        };
        self.steps += 1;
        let is_large = self.reader.goes_through_all() || self.steps > STEPS_TO_LARGE;
        let budget = if is_large { LARGE_STEP } else { STEP };
        let outcome = self.reader.advance(budget, apply_route, &mut |place, entry| acl.set(place, entry));
        self.retries += u64::from(outcome.retries);
        self.refused += u64::from(outcome.refused);
        self.tenants_moved = outcome.tenants_changed != 0;
        if outcome.complete {
            self.steps = 0;
        }
        outcome.complete.then_some(outcome.generation)
    }

    /// Whether the last [`RouteView::refresh`] told `acl` something.
    pub fn tenants_moved(&self) -> bool {
        self.tenants_moved
    }

    /// Gives the shard the memory for as many routes as the table has places.
    pub fn make_room(&mut self, shard: &mut Shard) {
        shard.move_routes_into(&mut self.room);
    }

    /// Takes from the shard what this view gave it, before another view takes over.
    pub fn withdraw(&self, shard: &mut Shard) {
        for (index, _) in (0u32..).zip(&self.ids).filter(|(_, id)| **id != 0) {
            shard.set_route(index, None);
        }
    }

    /// How `worker` is asked to wait; `None` while that is being written: the table then changes again.
    pub fn tuning(&self, worker: usize) -> Option<TuningPatch> {
        self.reader.worker_tuning(worker)
    }

    /// Per-route counters, shared by all workers.
    pub fn counters(&self) -> &Arc<RouteCounters> {
        &self.counters
    }

    /// Reads that the writer overtook, and routes refused as damaged, so far.
    pub fn mishaps(&self) -> (u64, u64) {
        (self.retries, self.refused)
    }
}

fn pinned(entry: &RouteEntry) -> PinnedRoute {
    PinnedRoute {
        slid: entry.slid,
        dlid: entry.dlid,
        p_key: entry.p_key,
        tenant: entry.tenant,
        priority: entry.priority,
        on_broken: if entry.on_broken == on_broken::DROP { OnBroken::Drop } else { OnBroken::Fallback },
        path: entry.path,
        path_len: entry.path_len,
    }
}
