//! A subnet brought up by hand, as far as measurements by LID need it: LIDs, Active links, forwarding tables.
//!
//! Every SMP goes by directed route from one adapter, and every answer is checked. Only what lies between that adapter and
//! the others is routed, by a tree of shortest paths that is drawn by lot, so that all links take part. Used by one
//! thread. What it does not do: sweep, react, or route between two other nodes.

use madplane_topology::{NodeKind, Topology};
use madplane_wire::mad;
use madplane_wire::smp::port_info::{field as pi, state};
use madplane_wire::smp::switch_info::field as si;
use madplane_wire::smp::{DATA_LEN, attr};

use crate::error::BenchError;
use crate::fabrics::Fabric;

/// Attribute data of an SMP.
pub type Data = [u8; DATA_LEN];
/// Entries of an LFT block.
const BLOCK: usize = 64;

/// Sends one SMP by directed route and gives the data of its answer.
pub trait Asks {
    /// Method, attribute and modifier to the node at the end of `path`.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] for an answer with a bad status, [`BenchError::Silence`] for none.
    fn ask(
        &mut self,
        path: &[u8],
        method: u8,
        attribute: u16,
        modifier: u32,
        data: &Data,
    ) -> Result<Data, BenchError>;
}

/// A subnet that is up.
#[derive(Debug, Clone)]
pub struct Subnet {
    /// By node: egress ports from the adapter to there; empty for the adapter itself.
    pub paths: Vec<Vec<u8>>,
    /// By node: port by which what comes from the adapter enters.
    arrivals: Vec<u8>,
}

impl Subnet {
    /// Draws the tree; nothing is programmed yet.
    pub fn draw(fabric: &Fabric) -> Self {
        let topology = &fabric.topology;
        let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
        let mut one_in_three = || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33).is_multiple_of(3)
        };
        let mut paths: Vec<Vec<u8>> = vec![Vec::new(); topology.nodes.len()];
        let mut arrivals = vec![0; topology.nodes.len()];
        let mut level = vec![fabric.host];
        while !level.is_empty() {
            let mut next = Vec::new();
            for &at in &level {
                let node = &topology.nodes[at as usize];
                if node.kind == NodeKind::Ca && at != fabric.host {
                    continue;
                }
                let path = paths[at as usize].clone();
                for (number, port) in (0u8..=254).zip(&node.ports) {
                    let Some(end) = port.peer.filter(|end| end.node != fabric.host) else { continue };
                    let known = paths[end.node as usize].len();
                    match known {
                        0 => next.push(end.node),
                        // another shortest way, perhaps
                        _ if known == path.len() + 1 && one_in_three() => {}
                        _ => continue,
                    }
                    let mut longer = path.clone();
                    longer.push(number);
                    (paths[end.node as usize], arrivals[end.node as usize]) = (longer, end.port);
                }
            }
            level = next;
        }
        Self { paths, arrivals }
    }

    /// LID of a node in every subnet of this module.
    ///
    /// # Panics
    /// For a fabric with more nodes than there are LIDs.
    pub fn lid(node: u32) -> u16 {
        u16::try_from(node + 1).expect("fewer nodes than LIDs")
    }

    /// Nodes exactly `hops` from the adapter.
    pub fn at_distance(&self, hops: usize) -> impl Iterator<Item = u32> {
        (0u32..)
            .zip(&self.paths)
            .filter(move |(_, path)| path.len() == hops && hops > 0)
            .map(|(node, _)| node)
    }

    /// Programs every node.
    ///
    /// # Errors
    /// See [`Asks::ask`].
    pub fn bring_up(&self, fabric: &Fabric, port: &mut impl Asks) -> Result<(), BenchError> {
        let tables = self.forwarding_tables(fabric);
        for ((id, node), table) in (0u32..).zip(&fabric.topology.nodes).zip(&tables) {
            let path = &self.paths[id as usize];
            if path.is_empty() && id != fabric.host {
                continue;
            }
            let is_switch = node.kind == NodeKind::Switch;
            if is_switch {
                program_switch(port, path, table)?;
            }
            for (number, record) in (0u8..=254).zip(&node.ports) {
                let endport = if is_switch { number == 0 } else { number == self.arrival(fabric, id) };
                if !endport && (record.peer.is_none() || !is_switch) {
                    continue;
                }
                let states: &[u8] = if is_switch && endport { &[0] } else { &[state::ARMED, state::ACTIVE] };
                for wanted in states {
                    let mut data =
                        port.ask(path, mad::METHOD_GET, attr::PORT_INFO, u32::from(number), &[0; DATA_LEN])?;
                    pi::PORT_STATE.set(&mut data, u64::from(*wanted));
                    pi::PORT_PHYS_STATE.set(&mut data, 0);
                    if endport {
                        pi::LID.set(&mut data, u64::from(Self::lid(id)));
                        pi::MASTER_SM_LID.set(&mut data, u64::from(Self::lid(fabric.host)));
                    }
                    port.ask(path, mad::METHOD_SET, attr::PORT_INFO, u32::from(number), &data)?;
                }
            }
        }
        Ok(())
    }

    /// Port of a node that has its LID.
    fn arrival(&self, fabric: &Fabric, node: u32) -> u8 {
        if node == fabric.host { 1 } else { self.arrivals[node as usize] }
    }

    fn forwarding_tables(&self, fabric: &Fabric) -> Vec<Vec<u8>> {
        let topology: &Topology = &fabric.topology;
        let entries = (topology.nodes.len() + 1).next_multiple_of(BLOCK);
        let is_switch = |node: usize| topology.nodes[node].kind == NodeKind::Switch;
        let mut tables: Vec<Vec<u8>> = (0..topology.nodes.len())
            .map(|node| vec![255; if is_switch(node) { entries } else { 0 }])
            .collect();
        for (id, path) in (0u32..).zip(&self.paths).filter(|(_, path)| !path.is_empty()) {
            let mut at = fabric.host as usize;
            for port in path {
                if let Some(entry) = tables[at].get_mut(usize::from(Self::lid(id))) {
                    *entry = *port;
                }
                let Some(end) = topology.nodes[at].ports[usize::from(*port)].peer else { break };
                at = end.node as usize;
            }
            let table = &mut tables[id as usize];
            if !table.is_empty() {
                table[usize::from(Self::lid(id))] = 0;
                table[usize::from(Self::lid(fabric.host))] = self.arrivals[id as usize];
            }
        }
        tables
    }
}

fn program_switch(port: &mut impl Asks, path: &[u8], table: &[u8]) -> Result<(), BenchError> {
    let top = u64::try_from(table.len() - 1).unwrap_or(u64::MAX);
    let mut info = port.ask(path, mad::METHOD_GET, attr::SWITCH_INFO, 0, &[0; DATA_LEN])?;
    si::LINEAR_FDB_TOP.set(&mut info, top);
    si::PORT_STATE_CHANGE.set(&mut info, 0);
    port.ask(path, mad::METHOD_SET, attr::SWITCH_INFO, 0, &info)?;
    for (block, entries) in (0u32..).zip(table.as_chunks::<BLOCK>().0) {
        port.ask(path, mad::METHOD_SET, attr::LFT, block, entries)?;
    }
    Ok(())
}
