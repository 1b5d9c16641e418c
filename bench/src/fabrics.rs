//! Fabrics to measure on: from a specification, with directed routes of a wanted length.
//!
//! Pure; any thread.

use std::collections::VecDeque;

use madplane_topology::{NodeKind, Topology, from_spec, to_ibnetdiscover};

use crate::error::BenchError;

/// 648 hosts: the default fabric of a plane.
pub const HOSTS_648: &str = "builtin:fat-tree,radix=36,levels=2";
/// 11,664 hosts.
pub const HOSTS_11664: &str = "builtin:fat-tree,radix=36,levels=3";
/// Long directed routes: the far side of the ring is 14 hops from a host.
pub const RING: &str = "builtin:ring,switches=26,hosts=1";

/// A fabric and the place where clients sit in it.
#[derive(Debug, Clone)]
pub struct Fabric {
    /// What makes it.
    pub spec: String,
    /// The graph.
    pub topology: Topology,
    /// Index of the first adapter.
    pub host: u32,
}

/// A directed route and what is at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Egress port of each hop.
    pub ports: Vec<u8>,
    /// GUID of the node at the end.
    pub node_guid: u64,
}

impl Fabric {
    /// Makes the fabric of a specification.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for one that is none, or without an adapter.
    pub fn from_spec(spec: &str) -> Result<Self, BenchError> {
        let topology = from_spec(spec).map_err(|error| BenchError::Usage(error.to_string()))?;
        let host = (0u32..)
            .zip(&topology.nodes)
            .find(|(_, node)| node.kind == NodeKind::Ca)
            .map(|(index, _)| index)
            .ok_or_else(|| BenchError::Usage(format!("{spec} has no adapter")))?;
        Ok(Self { spec: spec.to_owned(), topology, host })
    }

    /// The first adapter as other programs name it.
    pub fn host_id(&self) -> String {
        self.topology.nodes[self.host as usize].id()
    }

    /// The first adapter as a selector of the plane.
    pub fn host_selector(&self) -> String {
        format!("0x{:016x}", self.topology.nodes[self.host as usize].guid)
    }

    /// The fabric as text that ibsim reads.
    pub fn netfile(&self) -> String {
        to_ibnetdiscover(&self.topology)
    }

    /// A shortest directed route from the first adapter to a node `hops` away; an adapter if there is one that far, else
    /// a switch. `None` if nothing is that far.
    pub fn route(&self, hops: usize) -> Option<Route> {
        let mut paths: Vec<Option<Vec<u8>>> = vec![None; self.topology.nodes.len()];
        paths[self.host as usize] = Some(Vec::new());
        let mut next = VecDeque::from([self.host]);
        let mut found: Option<u32> = None;
        while let Some(at) = next.pop_front() {
            let path = paths[at as usize].clone()?;
            let node = &self.topology.nodes[at as usize];
            if path.len() == hops {
                if node.kind == NodeKind::Ca {
                    return Some(Route { ports: path, node_guid: node.guid });
                }
                found = found.or(Some(at));
                continue;
            }
            if path.len() > hops || (node.kind == NodeKind::Ca && at != self.host) {
                continue;
            }
            for (number, port) in (0u8..=254).zip(&node.ports) {
                let Some(peer) = port.peer else { continue };
                if paths[peer.node as usize].is_none() {
                    let mut longer = path.clone();
                    longer.push(number);
                    paths[peer.node as usize] = Some(longer);
                    next.push_back(peer.node);
                }
            }
        }
        let at = found? as usize;
        Some(Route { ports: paths[at].clone()?, node_guid: self.topology.nodes[at].guid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_follows_cables_and_ends_where_it_says() {
        for (spec, longest) in [("builtin:fat-tree,radix=8,levels=2", 4), (RING, 12)] {
            let fabric = Fabric::from_spec(spec).unwrap();
            for hops in 0..=longest {
                let route = fabric.route(hops).unwrap();
                assert_eq!(route.ports.len(), hops);
                let mut at = fabric.host;
                for port in &route.ports {
                    let peer = fabric.topology.nodes[at as usize].ports[usize::from(*port)].peer;
                    at = peer.unwrap().node;
                }
                assert_eq!(fabric.topology.nodes[at as usize].guid, route.node_guid);
            }
        }
    }

    #[test]
    fn four_hops_of_a_fat_tree_lead_to_a_host_and_nothing_is_farther() {
        let fabric = Fabric::from_spec("builtin:fat-tree,radix=8,levels=2").unwrap();
        let end = fabric.route(4).unwrap().node_guid;
        assert!(fabric.topology.nodes.iter().any(|node| node.guid == end && node.kind == NodeKind::Ca));
        assert!(fabric.route(9).is_none());
    }
}
