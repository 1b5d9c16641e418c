//! A route table written by the measuring process itself, under a running plane and without madctld.
//!
//! Owned by one thread. Invariants: [`Publisher`] holds the table's lock, so it is the only writer; the workers of the plane
//! read it from [`Publisher::start`] on.

use std::time::{Duration, Instant};

use madplane_shm::process::incarnation;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::tenant::TenantEntry;
use madplane_shm::table::{RouteEntry, TableOptions};
use madplane_shm::tuning::{Mode, TuningPatch};

use crate::by_lid::Patience;
use crate::error::BenchError;
use crate::plane::Plane;

/// Longest time until the plane has found a new table.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
/// Tenants of the tables made here.
const TENANTS: u32 = 16;

/// Writes the table of a running plane.
#[derive(Debug)]
pub struct Publisher {
    publisher: RoutePublisher,
    status: Status,
    workers: usize,
    ids: u64,
}

impl Publisher {
    /// Makes an empty table with room for `routes` and waits until every worker reads it.
    ///
    /// # Errors
    /// [`BenchError::Program`] if the table cannot be made, [`BenchError::Silence`] if the plane does not find it.
    pub fn start(plane: &Plane, routes: u32) -> Result<Self, BenchError> {
        let options = TableOptions { routes, tenants: TENANTS };
        let publisher = RoutePublisher::create(&plane.paths().table_segment(), options, incarnation())
            .map_err(|error| BenchError::program("route table", error.to_string()))?;
        let status = plane.status()?;
        let workers = usize::try_from(status.plane().workers.load(Ordering::Relaxed)).unwrap_or(1);
        let this = Self { publisher, status, workers, ids: 0 };
        let start = Instant::now();
        while !this.is_applied(this.publisher.generation()) {
            if start.elapsed() > FOUND_WITHIN {
                return Err(BenchError::Silence(FOUND_WITHIN.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(this)
    }

    /// Puts a route at `index` with a new number, or takes away what is there; shown with the next publication.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for a path without ports or with too many.
    pub fn set(&mut self, index: u32, route: Option<&RouteSpec<'_>>) -> Result<(), BenchError> {
        let Some(spec) = route else {
            self.publisher.clear(index);
            return Ok(());
        };
        self.ids += 1;
        set_route(&mut self.publisher, index, spec, self.ids)
    }

    /// Puts a tenant at `place`; shown with the next publication.
    pub fn set_tenant(&mut self, place: u32, entry: &TenantEntry) {
        self.publisher.set_tenant(place, entry);
    }

    /// Asks every worker for a mode; shown with the next publication.
    pub fn set_mode(&mut self, mode: Mode) {
        for worker in 0..self.workers {
            self.publisher.set_worker_tuning(worker, &TuningPatch::of_mode(mode));
        }
    }

    /// Shows all changes and returns their generation.
    pub fn publish(&mut self) -> u64 {
        self.publisher.publish()
    }

    /// Whether every worker forwards by `generation` or a later one.
    pub fn is_applied(&self, generation: u64) -> bool {
        (0..self.workers)
            .all(|worker| self.status.worker(worker).applied_generation.load(Ordering::Acquire) >= generation)
    }

    /// Waits, spinning, until every worker forwards by `generation`.
    ///
    /// # Errors
    /// [`BenchError::Silence`].
    #[inline]
    pub fn wait(&self, generation: u64) -> Result<(), BenchError> {
        let mut patience = Patience::default();
        while !self.is_applied(generation) {
            patience.look()?;
        }
        Ok(())
    }

    /// Shows all changes and waits until every worker forwards by them.
    ///
    /// # Errors
    /// [`BenchError::Silence`].
    pub fn sync(&mut self) -> Result<(), BenchError> {
        let generation = self.publish();
        self.wait(generation)
    }

    /// The plane's status segment.
    pub fn status(&self) -> &Status {
        &self.status
    }
}

/// Puts a route at `index` of a table; shown with its next publication.
///
/// # Errors
/// [`BenchError::Usage`] for a path without ports or with too many.
pub fn set_route(
    publisher: &mut RoutePublisher,
    index: u32,
    spec: &RouteSpec<'_>,
    id: u64,
) -> Result<(), BenchError> {
    let mut entry = RouteEntry::new(spec.slid, spec.dlid, spec.path)
        .ok_or_else(|| BenchError::Usage(format!("a path of {} hops", spec.path.len())))?;
    (entry.id, entry.p_key) = (id, spec.p_key);
    publisher.set(index, &entry);
    Ok(())
}

/// A route to be published.
#[derive(Debug, Clone, Copy)]
pub struct RouteSpec<'a> {
    /// LID of the sender.
    pub slid: u16,
    /// LID of the receiver.
    pub dlid: u16,
    /// Egress ports.
    pub path: &'a [u8],
    /// Partition, 0 for any.
    pub p_key: u16,
}
