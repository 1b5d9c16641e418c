//! Adds named nodes with GUIDs of their own and cables them.
//!
//! GUIDs are made of [`DEFAULT_VENDOR_ID`], a byte for the kind and a running number, so they do not depend on anything
//! but the order of the calls.

use super::GenerateError;
use crate::graph::{DEFAULT_VENDOR_ID, LinkSpeed, LinkWidth, MAX_NODES, Node, NodeKind, PortRef, Topology};

/// A fabric under construction.
#[derive(Debug)]
pub(super) struct Builder {
    topology: Topology,
    rate: (LinkWidth, LinkSpeed),
    switches: u64,
    hosts: u64,
    host_digits: usize,
}

impl Builder {
    /// Starts a fabric of that many nodes altogether.
    pub(super) fn new(
        switches: u64,
        hosts: u64,
        rate: (LinkWidth, LinkSpeed),
    ) -> Result<Self, GenerateError> {
        let nodes = switches.saturating_add(hosts);
        match usize::try_from(nodes) {
            Ok(count) if count <= MAX_NODES => {
                let topology = Topology { nodes: Vec::with_capacity(count), ..Topology::default() };
                let host_digits = digits(hosts).max(4);
                Ok(Self { topology, rate, switches: 0, hosts: 0, host_digits })
            }
            _ => Err(GenerateError::TooManyNodes { nodes }),
        }
    }

    /// Adds a switch; `ports` is checked against what a switch can have.
    pub(super) fn switch(&mut self, description: String, ports: u64) -> Result<u32, GenerateError> {
        let num_ports = match u8::try_from(ports) {
            Ok(n @ 1..=254) => n,
            _ => return Err(GenerateError::TooManyPorts { ports }),
        };
        let guid = (u64::from(DEFAULT_VENDOR_ID) << 40) | (2 << 32) | self.switches;
        self.switches += 1;
        Ok(self.push(Node::new(NodeKind::Switch, guid, num_ports, description)))
    }

    /// Adds a one-port adapter and cables it.
    pub(super) fn host(&mut self, switch: u32, port: u64) {
        let guid = (u64::from(DEFAULT_VENDOR_ID) << 40) | (1 << 32) | (self.hosts << 8);
        let description = format!("node-{:0width$} HCA-1", self.hosts, width = self.host_digits);
        self.hosts += 1;
        let host = self.push(Node::new(NodeKind::Ca, guid, 1, description));
        self.cable(host, 1, switch, port);
    }

    fn push(&mut self, node: Node) -> u32 {
        let index = u32::try_from(self.topology.nodes.len()).expect("bounded by MAX_NODES");
        self.topology.nodes.push(node);
        index
    }

    /// Cables two free ports.
    pub(super) fn cable(&mut self, a: u32, a_port: u64, b: u32, b_port: u64) {
        let end = |node, port: u64| PortRef { node, port: u8::try_from(port).unwrap_or(0) };
        let (width, speed) = self.rate;
        let connected = self.topology.connect(end(a, a_port), end(b, b_port), width, speed);
        debug_assert!(connected, "the generators cable each port once: {a}[{a_port}] {b}[{b_port}]");
    }

    pub(super) fn finish(self) -> Topology {
        self.topology
    }
}

/// Number of decimal digits of the highest index of `count` things.
pub(super) fn digits(count: u64) -> usize {
    count.saturating_sub(1).checked_ilog10().map_or(1, |log| usize::try_from(log).unwrap_or(0) + 1)
}

/// A switch name such as `leaf-03`: two digits at least.
pub(super) fn switch_name(role: &str, index: u64, count: u64) -> String {
    format!("{role}-{index:0width$}", width = digits(count).max(2))
}
