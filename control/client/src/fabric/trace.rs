//! Published routes held against the fabric: where they lead, and whether each hop is there.
//!
//! Runs on the caller's thread. Routes come from the table segment, nodes and cables from the fabric's source, LIDs and port
//! states from the running plane; without one only cables are looked at, and `live` says so.

use std::collections::BTreeSet;

use madplane_shm::paths::PlanePaths;
use madplane_topology::PortRef;
use serde::Serialize;

use super::path::{Walk, describe};
use super::view::{FabricView, ViewError};
use crate::route::{Key, OnBroken, Route, show_key};
use crate::show;
use crate::view::{LookError, TableCopy};

/// Why a route cannot be followed; one line each.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The table cannot be seen.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The fabric cannot be seen.
    #[error(transparent)]
    Fabric(#[from] ViewError),
    /// The route is not in the table.
    #[error("there is no route {} in the published table", show_key(*.0))]
    Unknown(Key),
}

/// One hop of a route.
#[derive(Debug, Clone, Serialize)]
pub struct TracedHop {
    /// Its number, from 1.
    pub hop: usize,
    /// Description of the node that it leaves.
    pub node: String,
    /// GUID of that node.
    #[serde(serialize_with = "show::as_guid")]
    pub node_guid: u64,
    /// Port by which it leaves.
    pub port: u8,
    /// Node at the other end of the cable.
    pub to_node: Option<String>,
    /// Port there.
    pub to_port: Option<u8>,
    /// State of the port, if the plane runs and the node answered.
    pub state: Option<&'static str>,
}

/// A route, followed.
#[derive(Debug, Clone, Serialize)]
pub struct Trace {
    /// LID of the sender.
    #[serde(serialize_with = "show::as_short")]
    pub slid: u16,
    /// LID of the receiver.
    #[serde(serialize_with = "show::as_short")]
    pub dlid: u16,
    /// Its ports as they are written.
    pub ports: String,
    /// What becomes of a MAD when the path is broken.
    pub on_broken: OnBroken,
    /// Whether the plane runs, so that states are known.
    pub live: bool,
    /// Its hops, as far as there are cables.
    pub hops: Vec<TracedHop>,
    /// What is wrong with it, if anything is.
    pub fault: Option<String>,
}

fn ports_of(walk: &Walk) -> impl Iterator<Item = PortRef> {
    let ends = walk.hops.iter().filter(|hop| hop.to.is_some());
    ends.map(|hop| PortRef { node: hop.node, port: hop.port })
}

fn state_name(state: u8) -> &'static str {
    match state {
        1 => "down",
        2 => "init",
        3 => "armed",
        4 => "active",
        _ => "unknown",
    }
}

impl Trace {
    pub(crate) fn of(paths: &PlanePaths, key: Key) -> Result<Self, TraceError> {
        let table = TableCopy::once(paths)?;
        let found = table.routes.iter().find(|placed| placed.route.key() == key);
        let route = &found.ok_or(TraceError::Unknown(key))?.route;
        let view = FabricView::open(paths)?;
        let mut walk = view.walk(route)?;
        let ports: Vec<PortRef> = ports_of(&walk).collect();
        let states = view.states(&ports)?;
        view.judge(&mut walk, &states);
        let name = |node| describe(view.topology(), node);
        let hop = |(index, hop): (usize, &super::path::Hop)| TracedHop {
            hop: index + 1,
            node: name(hop.node),
            node_guid: view.topology().nodes.get(hop.node as usize).map_or(0, |node| node.guid),
            port: hop.port,
            to_node: hop.to.map(|to| name(to.node)),
            to_port: hop.to.map(|to| to.port),
            state: states
                .get(&PortRef { node: hop.node, port: hop.port })
                .map(|answer| state_name(answer.state)),
        };
        Ok(Self {
            slid: key.0,
            dlid: key.1,
            ports: route.ports(),
            on_broken: route.on_broken(),
            live: view.is_live(),
            hops: walk.hops.iter().enumerate().map(hop).collect(),
            fault: walk.fault.clone(),
        })
    }
}

/// A route that does not lead where it should.
#[derive(Debug, Clone, Serialize)]
pub struct RouteFault {
    /// LID of the sender.
    #[serde(serialize_with = "show::as_short")]
    pub slid: u16,
    /// LID of the receiver.
    #[serde(serialize_with = "show::as_short")]
    pub dlid: u16,
    /// Its ports as they are written.
    pub ports: String,
    /// What is wrong with it.
    pub fault: String,
}

/// All routes, held against the fabric.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// How many there are.
    pub routes: usize,
    /// Whether the plane runs, so that states are known.
    pub live: bool,
    /// Those that are broken.
    pub faults: Vec<RouteFault>,
}

impl Check {
    pub(crate) fn of(paths: &PlanePaths) -> Result<Self, TraceError> {
        let table = TableCopy::once(paths)?;
        let view = FabricView::open(paths)?;
        let routes = table.routes.iter().map(|placed| &placed.route);
        let walks: Vec<(&Route, Result<Walk, String>)> =
            routes.map(|route| (route, view.walk(route).map_err(|error| error.to_string()))).collect();
        let ports: BTreeSet<PortRef> =
            walks.iter().filter_map(|(_, walk)| walk.as_ref().ok()).flat_map(ports_of).collect();
        let ports: Vec<PortRef> = ports.into_iter().collect();
        let states = view.states(&ports)?;
        let mut faults = Vec::new();
        for (route, walk) in walks {
            let fault = match walk {
                Ok(mut walk) => {
                    view.judge(&mut walk, &states);
                    walk.fault
                }
                Err(error) => Some(error),
            };
            if let Some(fault) = fault {
                let (slid, dlid) = route.key();
                faults.push(RouteFault { slid, dlid, ports: route.ports(), fault });
            }
        }
        Ok(Self { routes: table.routes.len(), live: view.is_live(), faults })
    }
}
