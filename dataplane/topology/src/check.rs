//! Facts about a finished graph: counts, parts, rates, and what should not be.
//!
//! Pure functions over a borrowed [`Topology`]; linear in its ports. The parser refuses or repairs what is listed here as
//! broken, so only graphs built by hand can show it. Judges nothing: a fabric in two parts is reported, not refused.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{LinkSpeed, LinkWidth, NodeKind, PortRef, Topology};

/// Nodes that are connected with each other and with nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Island {
    /// Lowest index of a member in [`Topology::nodes`].
    pub first_node: u32,
    /// Number of members.
    pub nodes: usize,
    /// Switches among them.
    pub switches: usize,
}

/// Number of links of one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateCount {
    /// Width.
    pub width: LinkWidth,
    /// Speed.
    pub speed: LinkSpeed,
    /// Links.
    pub links: usize,
}

/// What [`check`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Channel adapters.
    pub adapters: usize,
    /// Switches.
    pub switches: usize,
    /// Routers.
    pub routers: usize,
    /// Links; a link counts once.
    pub links: usize,
    /// Links that lead back to the node they start from.
    pub loopbacks: usize,
    /// Physical ports.
    pub ports: usize,
    /// Physical ports without a cable.
    pub unconnected_ports: usize,
    /// Nodes without any cable.
    pub unconnected_nodes: usize,
    /// Parts of the fabric, in the order of their first nodes.
    pub islands: Vec<Island>,
    /// Rates in use, most links first.
    pub rates: Vec<RateCount>,
    /// Descriptions that more than one node has.
    pub shared_descriptions: usize,
    /// GUIDs that two nodes, or ports of two nodes, share.
    pub duplicate_guids: Vec<u64>,
    /// Ports whose peer does not exist or names somebody else.
    pub broken_links: Vec<PortRef>,
}

impl Report {
    /// True if the graph keeps its promises: unique GUIDs and links that both ends agree on.
    pub fn is_sound(&self) -> bool {
        self.duplicate_guids.is_empty() && self.broken_links.is_empty()
    }

    /// True if every node can reach every other.
    pub fn is_connected(&self) -> bool {
        self.islands.len() < 2
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "nodes: {} switches, {} adapters, {} routers",
            self.switches, self.adapters, self.routers
        )?;
        write!(f, "links: {}", self.links)?;
        for (rate, mark) in self.rates.iter().zip(std::iter::once(" (").chain(std::iter::repeat(", "))) {
            write!(f, "{mark}{} {}{}", rate.links, rate.width, rate.speed)?;
        }
        writeln!(f, "{}", if self.rates.is_empty() { "" } else { ")" })?;
        if self.loopbacks > 0 {
            writeln!(f, "loopbacks: {}", self.loopbacks)?;
        }
        writeln!(f, "ports: {}, {} without a cable", self.ports, self.unconnected_ports)?;
        write!(f, "parts: {}", self.islands.len())?;
        if !self.is_connected() {
            for (island, mark) in
                self.islands.iter().zip(std::iter::once(" (").chain(std::iter::repeat(", "))).take(8)
            {
                write!(f, "{mark}{} nodes", island.nodes)?;
            }
            write!(f, "{}", if self.islands.len() > 8 { ", ...)" } else { ")" })?;
        }
        writeln!(f)?;
        if self.shared_descriptions > 0 {
            writeln!(f, "descriptions shared by several nodes: {}", self.shared_descriptions)?;
        }
        for guid in &self.duplicate_guids {
            writeln!(f, "duplicate guid: 0x{guid:016x}")?;
        }
        for end in &self.broken_links {
            writeln!(f, "broken link: node {} port {}", end.node, end.port)?;
        }
        Ok(())
    }
}

/// Collects counts, parts and faults of a fabric.
pub fn check(topology: &Topology) -> Report {
    let mut report = Report { islands: islands(topology), links: topology.link_count(), ..Report::default() };
    let mut rates: FxHashMap<(u8, LinkSpeed), usize> = FxHashMap::default();
    let mut owners: FxHashMap<u64, usize> = FxHashMap::default();
    let mut duplicates = FxHashSet::default();
    let mut descriptions: FxHashMap<&str, usize> = FxHashMap::default();
    for (index, node) in topology.nodes.iter().enumerate() {
        match node.kind {
            NodeKind::Ca => report.adapters += 1,
            NodeKind::Switch => report.switches += 1,
            NodeKind::Router => report.routers += 1,
        }
        *descriptions.entry(&node.description).or_default() += 1;
        // A node may share its own GUID with its ports.
        let port_guids = node.ports.iter().map(|port| port.guid).filter(|guid| *guid != 0);
        for guid in std::iter::once(node.guid).chain(port_guids) {
            if *owners.entry(guid).or_insert(index) != index {
                duplicates.insert(guid);
            }
        }
        report.ports += usize::from(node.num_ports());
        let mut cabled = 0;
        for (number, port) in node.ports.iter().enumerate().skip(1) {
            let Some(peer) = port.peer else { continue };
            cabled += 1;
            let here = PortRef {
                node: u32::try_from(index).unwrap_or(u32::MAX),
                port: u8::try_from(number).unwrap_or(u8::MAX),
            };
            if topology.port(peer).is_none_or(|p| p.peer != Some(here)) || peer.port == 0 {
                report.broken_links.push(here);
            } else if here <= peer {
                *rates.entry((port.width.lanes(), port.speed)).or_default() += 1;
                report.loopbacks += usize::from(here.node == peer.node);
            }
        }
        report.unconnected_ports += usize::from(node.num_ports()) - cabled;
        report.unconnected_nodes += usize::from(cabled == 0);
    }
    report.shared_descriptions = descriptions.values().filter(|count| **count > 1).count();
    report.duplicate_guids = duplicates.into_iter().collect();
    report.duplicate_guids.sort_unstable();
    let width = |lanes| LinkWidth::from_lanes(lanes).unwrap_or_default();
    let mut counts: Vec<_> = rates.into_iter().collect();
    counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(b.0.cmp(&a.0)));
    report.rates = counts
        .into_iter()
        .map(|((lanes, speed), links)| RateCount { width: width(lanes), speed, links })
        .collect();
    report
}

/// Finds the parts of a fabric, in the order of their first nodes.
pub fn islands(topology: &Topology) -> Vec<Island> {
    let mut seen = vec![false; topology.nodes.len()];
    let mut found = Vec::new();
    let mut queue = Vec::new();
    for first in 0..topology.nodes.len() {
        if seen[first] {
            continue;
        }
        seen[first] = true;
        queue.push(first);
        let first_node = u32::try_from(first).unwrap_or(u32::MAX);
        let mut island = Island { first_node, nodes: 0, switches: 0 };
        while let Some(index) = queue.pop() {
            let node = &topology.nodes[index];
            island.nodes += 1;
            island.switches += usize::from(node.kind == NodeKind::Switch);
            for peer in node.ports.iter().filter_map(|port| port.peer) {
                let next = peer.node as usize;
                if seen.get(next) == Some(&false) {
                    seen[next] = true;
                    queue.push(next);
                }
            }
        }
        found.push(island);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Node;

    fn end(node: u32, port: u8) -> PortRef {
        PortRef { node, port }
    }

    fn sample() -> Topology {
        let mut t = Topology::default();
        t.nodes.push(Node::new(NodeKind::Switch, 0x10, 4, "leaf"));
        t.nodes.push(Node::new(NodeKind::Ca, 0x20, 1, "host"));
        t.nodes.push(Node::new(NodeKind::Ca, 0x30, 2, "host"));
        t.nodes.push(Node::new(NodeKind::Router, 0x40, 1, "router"));
        assert!(t.connect(end(0, 1), end(1, 1), LinkWidth::X4, LinkSpeed::Edr));
        assert!(t.connect(end(0, 2), end(2, 2), LinkWidth::X1, LinkSpeed::Sdr));
        assert!(t.connect(end(0, 3), end(0, 3), LinkWidth::X4, LinkSpeed::Edr));
        t
    }

    #[test]
    fn a_report_counts_everything_once() {
        let report = check(&sample());
        let expected = Report {
            adapters: 2,
            switches: 1,
            routers: 1,
            links: 3,
            loopbacks: 1,
            ports: 8,
            unconnected_ports: 3,
            unconnected_nodes: 1,
            islands: vec![
                Island { first_node: 0, nodes: 3, switches: 1 },
                Island { first_node: 3, nodes: 1, switches: 0 },
            ],
            rates: vec![
                RateCount { width: LinkWidth::X4, speed: LinkSpeed::Edr, links: 2 },
                RateCount { width: LinkWidth::X1, speed: LinkSpeed::Sdr, links: 1 },
            ],
            shared_descriptions: 1,
            duplicate_guids: vec![],
            broken_links: vec![],
        };
        assert_eq!(report, expected);
        assert!(report.is_sound());
        assert!(!report.is_connected());
    }

    #[test]
    fn one_sided_links_and_shared_guids_are_unsound() {
        let mut t = sample();
        t.nodes[0].ports[1].peer = None;
        t.nodes[3].ports[1].guid = 0x20;
        let report = check(&t);
        assert_eq!(report.broken_links, [end(1, 1)]);
        assert_eq!(report.duplicate_guids, [0x20]);
        assert!(!report.is_sound());
    }

    #[test]
    fn a_peer_that_does_not_exist_is_a_broken_link_not_a_panic() {
        let mut t = sample();
        t.nodes[1].ports[1].peer = Some(end(99, 1));
        assert!(check(&t).broken_links.contains(&end(1, 1)));
    }

    #[test]
    fn the_text_of_a_report_names_parts_and_rates() {
        let text = check(&sample()).to_string();
        assert!(text.contains("links: 3 (2 4xEDR, 1 1xSDR)"), "{text}");
        assert!(text.contains("parts: 2 (3 nodes, 1 nodes)"), "{text}");
    }
}
