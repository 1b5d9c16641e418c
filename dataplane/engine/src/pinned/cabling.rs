//! Which port is cabled to which, over the whole topology: what a path means does not depend on who owns a node.
//!
//! Immutable, made once per plan and shared by its shards. A port is named by its index over all nodes. No state of any
//! link is in here.

use crate::node::NO_PEER;
use madplane_topology::{NodeKind, Topology};

/// One port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cable {
    /// Port at the other end, or [`NO_PEER`].
    pub(crate) peer: u32,
    /// Port 0 of the node.
    pub(crate) first: u32,
    pub(crate) num_ports: u8,
    pub(crate) is_switch: bool,
}

/// All ports of `topology`; `bases` says where the ports of each node begin.
pub(crate) fn cabling(topology: &Topology, bases: &[u32]) -> Box<[Cable]> {
    let mut cables = Vec::with_capacity(bases.last().copied().unwrap_or(0) as usize);
    for (node, first) in topology.nodes.iter().zip(bases) {
        let (num_ports, is_switch) = (node.num_ports(), node.kind == NodeKind::Switch);
        for port in &node.ports {
            let peer = port.peer.and_then(|end| Some(*bases.get(end.node as usize)? + u32::from(end.port)));
            cables.push(Cable { peer: peer.unwrap_or(NO_PEER), first: *first, num_ports, is_switch });
        }
    }
    cables.into_boxed_slice()
}
