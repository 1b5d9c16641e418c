//! The fabric of a plane with the LIDs of its ports: what turns LIDs and names into paths, and paths into nodes.
//!
//! Made and used by madctl on its own thread. The nodes and cables are those of the source that the status segment names;
//! LIDs and port states are asked of the running plane ([`super::lids`]). Without one the LIDs that the source
//! recorded have to do, and no state is known.

use std::collections::{HashMap, HashSet};

use madplane_shm::paths::PlanePaths;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering::Relaxed;
use madplane_topology::{PortRef, Topology, find_node};

use super::lids::{self, PortAnswer};
use super::path::{self, Walk, describe};
use crate::daemons;
use crate::route::{PathSpec, RawRoute, Route, Written};

/// Why the fabric cannot be seen or a path not be found; one line each.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// There is no status segment to say which fabric it is.
    #[error("which fabric plane {name} has is not known: {reason}")]
    NoStatus {
        /// The plane.
        name: String,
        /// Why.
        reason: String,
    },
    /// The source of the fabric cannot be read or has changed.
    #[error("{0}")]
    Source(String),
    /// The running plane does not say which LIDs there are.
    #[error("LIDs cannot be asked of the plane: {0}")]
    Lids(String),
    /// A LID belongs to nobody.
    #[error("no port of the fabric has LID {lid:#06x}; {why}")]
    Unresolved {
        /// The LID.
        lid: u16,
        /// What to do.
        why: String,
    },
    /// A name, a path or a route.
    #[error("{0}")]
    Path(String),
}

/// The fabric of one plane.
#[derive(Debug)]
pub struct FabricView {
    paths: PlanePaths,
    source: String,
    topology: Topology,
    lids: HashMap<u16, PortRef>,
    live: bool,
}

impl FabricView {
    /// Reads the fabric of the plane at `paths`, and asks for its LIDs if it runs.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub fn open(paths: &PlanePaths) -> Result<Self, ViewError> {
        let no_status = |reason: String| ViewError::NoStatus { name: paths.name().to_owned(), reason };
        let status = Status::open(&paths.status_segment()).map_err(|error| no_status(error.to_string()))?;
        let source = status.plane().fabric.load();
        let topology = path::load(&source).map_err(ViewError::Source)?;
        let (found, loaded) = (topology.nodes.len(), status.plane().nodes.load(Relaxed));
        if u64::try_from(found) != Ok(loaded) {
            let text = format!(
                "{source} has changed since it was loaded: it has {found} nodes now, the plane {loaded}"
            );
            return Err(ViewError::Source(text));
        }
        let live = daemons::find_plane(paths).is_ok_and(|pid| pid.is_some());
        let lids = if live {
            let answers = lids::ask(paths, &topology, &lids::lid_ports(&topology));
            let mut answers: Vec<_> = answers.map_err(ViewError::Lids)?.into_iter().collect();
            answers.sort_unstable_by_key(|(end, _)| *end);
            lids::by_lid(answers)
        } else {
            lids::recorded(&topology)
        };
        Ok(Self { paths: paths.clone(), source, topology, lids, live })
    }

    /// Nodes and cables.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether LIDs and states come from a running plane.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The port that has a LID; port 0 stands for a switch.
    ///
    /// # Errors
    /// [`ViewError::Unresolved`].
    pub fn owner(&self, lid: u16) -> Result<PortRef, ViewError> {
        self.lids.get(&lid).copied().ok_or_else(|| {
            let why = match (self.live, self.lids.is_empty()) {
                (true, true) => "a subnet manager has to run in it first".to_owned(),
                (true, false) => format!("{} LIDs are in use", self.lids.len()),
                (false, _) => format!("the plane is not running and {} does not record it", self.source),
            };
            ViewError::Unresolved { lid, why }
        })
    }

    /// Finds the ports of a route whose path is not given by ports.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub fn compile(&self, written: &Written) -> Result<Route, ViewError> {
        let fail = |error: &dyn std::fmt::Display| ViewError::Path(error.to_string());
        let node = |name: &String| find_node(&self.topology, name).map_err(|error| fail(&error));
        // ends first, so that a wrong LID is named before it is looked for
        let ends = RawRoute { path: vec![1], ..written.raw.clone() };
        let (slid, dlid) = Route::try_from(ends).map_err(|error| fail(&error))?.key();
        let path = match &written.path {
            PathSpec::Ports(ports) => ports.clone(),
            PathSpec::Via(names) => {
                let over = names.iter().map(node).collect::<Result<Vec<_>, _>>()?;
                let (from, to) = (self.owner(slid)?, self.owner(dlid)?);
                widen(&path::via(&self.topology, from, to, &over).map_err(|error| fail(&error))?)
            }
            PathSpec::Shortest { avoid } => {
                let avoid = avoid.iter().map(node).collect::<Result<HashSet<_>, _>>()?;
                let (from, to) = (self.owner(slid)?, self.owner(dlid)?);
                widen(&path::shortest(&self.topology, from, to, &avoid).map_err(|error| fail(&error))?)
            }
        };
        Route::try_from(RawRoute { path, ..written.raw.clone() }).map_err(|error| fail(&error))
    }

    /// Follows a route over the cables.
    ///
    /// # Errors
    /// [`ViewError::Unresolved`] for the LIDs at its ends.
    pub fn walk(&self, route: &Route) -> Result<Walk, ViewError> {
        let (slid, dlid) = route.key();
        Ok(path::walk(&self.topology, self.owner(slid)?, self.owner(dlid)?, route.path()))
    }

    /// States of the ports by which hops leave; nothing if no plane runs.
    ///
    /// # Errors
    /// [`ViewError::Lids`] if the plane went away.
    pub fn states(&self, ports: &[PortRef]) -> Result<HashMap<PortRef, PortAnswer>, ViewError> {
        if !self.live {
            return Ok(HashMap::new());
        }
        lids::ask(&self.paths, &self.topology, ports).map_err(ViewError::Lids)
    }

    /// Adds to a walk what the states of its ports say.
    pub fn judge(&self, walk: &mut Walk, states: &HashMap<PortRef, PortAnswer>) {
        if !self.live {
            return;
        }
        for (index, hop) in walk.hops.iter().enumerate() {
            let end = PortRef { node: hop.node, port: hop.port };
            let what = match states.get(&end) {
                Some(answer) if answer.state > 1 => continue,
                Some(_) => "is down",
                None => "does not answer",
            };
            let earlier = index + 1 < walk.hops.len() || walk.fault.is_none();
            if earlier && hop.to.is_some() {
                let name = describe(&self.topology, hop.node);
                walk.fault = Some(format!("hop {}: port {} of {name:?} {what}", index + 1, hop.port));
                return;
            }
        }
    }
}

fn widen(path: &[u8]) -> Vec<u64> {
    path.iter().map(|port| u64::from(*port)).collect()
}
