//! One plane, by its name: where a client begins.
//!
//! A value without anything open; cheap to make and to clone, any thread. [`Plane::view`] looks in, [`Plane::admin`] talks to
//! madctld, the rest ties the two together as `madctl` does.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use madplane_shm::paths::{NameError, PlanePaths};

use crate::admin::{AdminClient, AdminError};
use crate::daemons;
use crate::fabric::trace::{Check, Trace, TraceError};
use crate::fabric::view::{FabricView, ViewError};
use crate::protocol::RoutesStats;
use crate::route::{Key, Route, Written};
use crate::route_file::{self, FileError};
use crate::view::{Control, LookError, PlaneStatus, RouteTable, TenantTable, View};

/// How long madctld may take for one answer; it waits for workers for a second at most, for the plane for ten.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(12);
/// How long it may take for an answer that is only added to what the segments show.
const REMARK_WITHIN: Duration = Duration::from_secs(2);
/// How long whoever looks waits for changes that madctld has been given but has not published: some batches.
const PUBLISHED_WITHIN: Duration = Duration::from_millis(400);

/// A plane, running or not.
///
/// ```no_run
/// use madctl::{Plane, RawRoute, Route};
///
/// let plane = Plane::open("default")?;
/// let mut admin = plane.admin()?;
/// let route = Route::try_from(RawRoute::new(0x11, 0x22, &[1, 2, 3]))?;
/// let done = admin.routes_add(&route, false, true)?;
/// assert!(done.synced);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plane {
    paths: PlanePaths,
}

impl Plane {
    /// The plane called `name`; an empty name stands for `MADPLANE_NAME`, else for `default`. Nothing is opened.
    ///
    /// # Errors
    /// [`NameError`] if that is no name.
    pub fn open(name: &str) -> Result<Self, NameError> {
        let inherited = || std::env::var("MADPLANE_NAME").ok().filter(|name| !name.is_empty());
        let paths = match name {
            "" => {
                PlanePaths::new(&inherited().unwrap_or_else(|| madplane_shm::paths::DEFAULT_NAME.to_owned()))
            }
            name => PlanePaths::new(name),
        };
        paths.map(Self::at)
    }

    /// The plane at `paths`.
    pub fn at(paths: PlanePaths) -> Self {
        Self { paths }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.paths.name()
    }

    /// Where it lives in the file system.
    pub fn paths(&self) -> &PlanePaths {
        &self.paths
    }

    /// What it shows of itself. Needs neither daemon.
    pub fn view(&self) -> View {
        View::new(&self.paths)
    }

    /// Connects to its madctld.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn admin(&self) -> Result<AdminClient, AdminError> {
        AdminClient::open(&self.paths, ANSWER_WITHIN)
    }

    /// What is known of madctld: whether it runs, and what it says of itself within two seconds.
    ///
    /// # Errors
    /// [`LookError::Lock`].
    pub fn control(&self) -> Result<Control, LookError> {
        let fail = |source| LookError::Lock { name: self.name().to_owned(), source };
        let pid = daemons::find_control(&self.paths).map_err(fail)?;
        let mut control = Control { running: pid.is_some(), pid, daemon: None, trouble: None };
        if control.running {
            match AdminClient::open(&self.paths, REMARK_WITHIN).and_then(|mut admin| admin.status()) {
                Ok(daemon) => control.daemon = Some(daemon),
                Err(error) => control.trouble = Some(error.to_string()),
            }
        }
        Ok(control)
    }

    /// The plane as a whole, with what madctld says of itself.
    ///
    /// # Errors
    /// As [`View::status`].
    pub fn status(&self) -> Result<PlaneStatus, LookError> {
        let mut status = self.view().status()?;
        status.control = self.control()?;
        Ok(status)
    }

    /// The routes as published, with what madctld says of them if it runs.
    ///
    /// Changes that madctld has been given a moment ago are waited for; where batches are longer than that, its word on
    /// what is not published says so.
    ///
    /// # Errors
    /// As [`View::routes`].
    pub fn routes(&self) -> Result<RouteTable, LookError> {
        let control = self.settled();
        let mut table = self.view().routes()?;
        table.control = control;
        Ok(table)
    }

    /// The tenants as published; waits as [`Plane::routes`] does.
    ///
    /// # Errors
    /// As [`View::tenants`].
    pub fn tenants(&self) -> Result<TenantTable, LookError> {
        self.settled();
        self.view().tenants()
    }

    /// Waits until madctld has published what it has been given, or for [`PUBLISHED_WITHIN`]; what it says then, if it runs.
    fn settled(&self) -> Option<RoutesStats> {
        daemons::find_control(&self.paths).ok().flatten()?;
        let mut admin = AdminClient::open(&self.paths, REMARK_WITHIN).ok()?;
        let since = Instant::now();
        loop {
            let said = admin.routes_stats().ok()?;
            if said.unpublished == 0 || since.elapsed() >= PUBLISHED_WITHIN {
                return Some(said);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its nodes and cables, with the LIDs of its ports. Needs the plane for LIDs that the fabric's source does not record.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub fn fabric(&self) -> Result<FabricView, ViewError> {
        FabricView::open(&self.paths)
    }

    /// Turns a route as written into one by ports; looks at the fabric only if it has to.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub fn compile(&self, written: &Written) -> Result<Route, ViewError> {
        match written.by_ports().map_err(|error| ViewError::Path(error.to_string()))? {
            Some(route) => Ok(route),
            None => self.fabric()?.compile(written),
        }
    }

    /// Reads a file of routes, each with the number of its line.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn read_routes(&self, file: &Path) -> Result<Vec<(u32, Route)>, FileError> {
        route_file::read(self, file)
    }

    /// Follows a published route over the cables, with the states of the ports if the plane runs.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn trace(&self, key: Key) -> Result<Trace, TraceError> {
        self.settled();
        Trace::of(&self.paths, key)
    }

    /// Holds every published route against the fabric.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn check(&self) -> Result<Check, TraceError> {
        self.settled();
        Check::of(&self.paths)
    }
}
