//! Fabrics as sets that can be compared, whatever text they came from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use madplane_topology::{ParseOptions, Topology, from_spec, parse};

/// A port by the GUID of its node.
pub type End = (u64, u8);

/// What a fabric is, apart from order and numbering.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graph {
    /// Kind, number of ports and description by node GUID.
    pub nodes: BTreeMap<u64, (char, u8, String)>,
    /// Links, smaller end first, with width and speed.
    pub links: BTreeSet<(End, End, String)>,
}

impl Graph {
    pub fn of(topology: &Topology) -> Self {
        let mut graph = Self::default();
        for node in &topology.nodes {
            let about = (node.kind.letter(), node.num_ports(), node.description.clone());
            graph.nodes.insert(node.guid, about);
            for (number, port) in (0u8..).zip(&node.ports) {
                let Some(peer) = port.peer else { continue };
                let here = (node.guid, number);
                let there = (topology.nodes[peer.node as usize].guid, peer.port);
                let rate = format!("{:?} {:?}", port.width, port.speed);
                graph.links.insert((here.min(there), here.max(there), rate));
            }
        }
        graph
    }

    /// Reads the text of a fabric, which has to be free of faults.
    #[track_caller]
    pub fn parse_strict(text: &str) -> Self {
        let options = ParseOptions { strict: true, ..ParseOptions::default() };
        let parsed = parse(text, &options).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(parsed.warnings, [], "in\n{text}");
        Self::of(&parsed.topology)
    }

    /// Without the nodes of another graph and what leads to them.
    pub fn without(&self, other: &Self) -> Self {
        let stays = |guid: &u64| !other.nodes.contains_key(guid);
        let nodes = self.nodes.iter().filter(|(guid, _)| stays(guid));
        Self {
            nodes: nodes.map(|(guid, about)| (*guid, about.clone())).collect(),
            links: self.links.iter().filter(|(a, b, _)| stays(&a.0) && stays(&b.0)).cloned().collect(),
        }
    }

    /// Only what can be reached from the node with this GUID.
    pub fn reachable_from(&self, guid: u64) -> Self {
        let mut seen = BTreeSet::from([guid]);
        loop {
            let before = seen.len();
            for ((a, _), (b, _), _) in &self.links {
                if seen.contains(a) || seen.contains(b) {
                    seen.extend([*a, *b]);
                }
            }
            if seen.len() == before {
                break;
            }
        }
        let nodes = self.nodes.iter().filter(|(guid, _)| seen.contains(guid));
        Self {
            nodes: nodes.map(|(guid, about)| (*guid, about.clone())).collect(),
            links: self.links.iter().filter(|(a, _, _)| seen.contains(&a.0)).cloned().collect(),
        }
    }

    /// Fails with the differences only.
    #[track_caller]
    pub fn assert_same(&self, other: &Self, what: &str) {
        let lost: Vec<_> = self.nodes.iter().filter(|n| other.nodes.get(n.0) != Some(n.1)).take(5).collect();
        let new: Vec<_> = other.nodes.iter().filter(|n| self.nodes.get(n.0) != Some(n.1)).take(5).collect();
        assert!(lost.is_empty() && new.is_empty(), "{what}: nodes lost {lost:x?}, made up {new:x?}");
        let lost: Vec<_> = self.links.difference(&other.links).take(5).collect();
        let new: Vec<_> = other.links.difference(&self.links).take(5).collect();
        assert!(lost.is_empty() && new.is_empty(), "{what}: links lost {lost:x?}, made up {new:x?}");
    }
}

/// The fabric of a specification.
pub fn builtin(spec: &str) -> Topology {
    from_spec(spec).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// A file of the shared folder, if that is there.
pub fn shared_fabric(name: &str) -> Option<PathBuf> {
    let workspace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let shared =
        std::env::var_os("MADPLANE_SHARED").map_or_else(|| workspace.join("../shared"), PathBuf::from);
    let path = shared.join("fabrics").join(name);
    path.is_file().then_some(path)
}
