//! How a topology is divided among shards: immutable, computed once, shared by all workers.
//!
//! Shards own contiguous ranges of nodes with about equally many ports. A node is named by its index in the topology
//! everywhere outside a shard; inside, by its index in the shard. The plan holds no state of any node.

use crate::NodeId;
use crate::node::MAX_PORTS;
use crate::pinned::cabling::{Cable, cabling};
use crate::shard::Shard;
use madplane_topology::{PortRef, Topology};
use std::fmt;
use std::sync::Arc;

/// Choices of a fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricOptions {
    /// Number of shards, at least 1; there may be more shards than nodes.
    pub shards: usize,
}

impl Default for FabricOptions {
    fn default() -> Self {
        Self { shards: 1 }
    }
}

/// Why a topology cannot become a fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// No shards asked for.
    NoShards,
    /// A node has no ports, or more than 254.
    PortCount {
        /// The node.
        node: NodeId,
    },
    /// More ports in total than a port index can count.
    TooManyPorts,
    /// The two ends of a link disagree, or one does not exist.
    OneSidedLink {
        /// Node of the end that was looked at.
        node: NodeId,
        /// Its port.
        port: u8,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoShards => write!(f, "a fabric needs at least one shard"),
            Self::PortCount { node } => write!(f, "node {node} must have 1 to 254 ports"),
            Self::TooManyPorts => write!(f, "the topology has more than {MAX_PORTS} ports"),
            Self::OneSidedLink { node, port } => {
                write!(f, "the other end of the link at node {node} port {port} does not agree")
            }
        }
    }
}

impl std::error::Error for PlanError {}

/// Division of a topology into shards.
#[derive(Debug, Clone)]
pub struct FabricPlan {
    /// First node of each shard, and the number of nodes at the end.
    starts: Vec<NodeId>,
    /// Port index of port 0 of each node, counted over the whole topology; the total at the end.
    port_bases: Vec<u32>,
    /// Every port and its other end.
    cabling: Arc<[Cable]>,
}

impl FabricPlan {
    /// Checks the topology and divides it.
    ///
    /// # Errors
    /// [`PlanError`] names the node that cannot be simulated.
    pub fn new(topology: &Topology, options: &FabricOptions) -> Result<Self, PlanError> {
        if options.shards == 0 {
            return Err(PlanError::NoShards);
        }
        let node_count = u32::try_from(topology.nodes.len()).map_err(|_| PlanError::TooManyPorts)?;
        let mut port_bases = Vec::with_capacity(topology.nodes.len() + 1);
        let mut total = 0_usize;
        for (id, node) in (0..).zip(&topology.nodes) {
            if !(2..=255).contains(&node.ports.len()) {
                return Err(PlanError::PortCount { node: id });
            }
            port_bases.push(u32::try_from(total).map_err(|_| PlanError::TooManyPorts)?);
            total += node.ports.len();
            check_links(topology, id)?;
        }
        if total > MAX_PORTS {
            return Err(PlanError::TooManyPorts);
        }
        port_bases.push(u32::try_from(total).map_err(|_| PlanError::TooManyPorts)?);
        let mut starts = Vec::with_capacity(options.shards + 1);
        for shard in 0..options.shards {
            let goal = total / options.shards * shard;
            let start = port_bases.partition_point(|base| (*base as usize) < goal);
            starts.push(u32::try_from(start).unwrap_or(node_count).min(node_count));
        }
        starts.push(node_count);
        let cabling = cabling(topology, &port_bases).into();
        Ok(Self { starts, port_bases, cabling })
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of nodes in the whole fabric.
    pub fn nodes(&self) -> u32 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Shard that owns `node`; the last shard for a node that does not exist.
    pub fn shard_of(&self, node: NodeId) -> usize {
        let ends = &self.starts[1..];
        ends.partition_point(|end| *end <= node).min(self.shards() - 1)
    }

    /// Nodes that `shard` owns.
    pub fn nodes_of(&self, shard: usize) -> std::ops::Range<NodeId> {
        match self.starts.get(shard..shard + 2) {
            Some(&[start, end]) => start..end,
            _ => 0..0,
        }
    }

    /// Index of port 0 of `node` over the whole topology.
    pub(crate) fn port_base(&self, node: NodeId) -> u32 {
        self.port_bases.get(node as usize).or(self.port_bases.last()).copied().unwrap_or(0)
    }

    pub(crate) fn cabling(&self) -> Arc<[Cable]> {
        Arc::clone(&self.cabling)
    }

    /// Builds the state of one shard: links come up, nothing has a LID.
    pub fn build_shard(&self, topology: &Topology, shard: usize) -> Shard {
        Shard::build(self, topology, shard)
    }
}

fn check_links(topology: &Topology, id: NodeId) -> Result<(), PlanError> {
    let Some(node) = topology.nodes.get(id as usize) else { return Ok(()) };
    for (number, port) in (0_u8..=255).zip(&node.ports) {
        let Some(peer) = port.peer else { continue };
        let back = topology.port(peer).and_then(|p| p.peer);
        if number == 0 || peer.port == 0 || back != Some(PortRef { node: id, port: number }) {
            return Err(PlanError::OneSidedLink { node: id, port: number });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind};

    fn hosts(count: u64) -> Topology {
        let mut topology = Topology::default();
        topology.nodes.extend((0..count).map(|i| Node::new(NodeKind::Ca, 1 + i, 1, "host")));
        topology
    }

    #[test]
    fn every_node_belongs_to_one_shard() {
        for nodes in [0, 1, 2, 7, 100] {
            let topology = hosts(nodes);
            for shards in [1, 2, 3, 8, 150] {
                let plan = FabricPlan::new(&topology, &FabricOptions { shards }).unwrap();
                let mut next = 0;
                for shard in 0..shards {
                    let range = plan.nodes_of(shard);
                    assert_eq!(range.start, next, "{nodes} nodes, {shards} shards");
                    next = range.end;
                    assert!(range.clone().all(|node| plan.shard_of(node) == shard));
                    let built = plan.build_shard(&topology, shard);
                    assert_eq!(built.nodes.len(), range.len());
                }
                assert_eq!(next, plan.nodes());
                assert_eq!(u64::from(next), nodes);
                assert_eq!(plan.shard_of(next), shards - 1);
                assert_eq!(plan.nodes_of(shards), 0..0);
            }
        }
    }

    #[test]
    fn what_cannot_be_simulated_is_refused_by_name() {
        let refused =
            |topology: &Topology| FabricPlan::new(topology, &FabricOptions { shards: 1 }).unwrap_err();
        let mut topology = hosts(2);
        assert_eq!(
            FabricPlan::new(&topology, &FabricOptions { shards: 0 }).unwrap_err(),
            PlanError::NoShards
        );
        let (a, b) = (PortRef { node: 0, port: 1 }, PortRef { node: 1, port: 1 });
        assert!(topology.connect(a, b, LinkWidth::X4, LinkSpeed::Edr));
        topology.nodes[1].ports[1].peer = None;
        assert_eq!(refused(&topology), PlanError::OneSidedLink { node: 0, port: 1 });
        topology.nodes[0].ports[1].peer = Some(PortRef { node: 9, port: 1 });
        assert_eq!(refused(&topology), PlanError::OneSidedLink { node: 0, port: 1 });
        topology.nodes[0].ports.truncate(1);
        assert_eq!(refused(&topology), PlanError::PortCount { node: 0 });
    }
}
