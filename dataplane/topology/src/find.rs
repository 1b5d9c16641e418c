//! Finds a node or a port by what people type: GUID, id, description, alias.
//!
//! Linear searches over a borrowed [`Topology`]; meant for operators' commands, not for a packet path.

use std::fmt;

use crate::graph::{Node, NodeKind, PortRef, Topology};
use crate::suggest::nearest;

/// GUIDs listed of an ambiguous description.
const LISTED: usize = 3;

/// Why a name finds nothing; prints as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindError {
    /// Nothing is called that.
    Unknown {
        /// The name.
        name: String,
        /// The description or id that comes nearest.
        nearest: Option<String>,
    },
    /// Several nodes are called that.
    Ambiguous {
        /// The name.
        name: String,
        /// How many.
        count: usize,
        /// GUIDs of the first few.
        guids: Vec<u64>,
    },
    /// The node has no such port.
    NoSuchPort {
        /// The node.
        name: String,
        /// The port as typed.
        port: String,
        /// The last port it has.
        last: u8,
    },
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, nearest: Some(nearest) } => {
                write!(f, "no node is called {name:?}, did you mean {nearest:?}?")
            }
            Self::Unknown { name, nearest: None } => write!(f, "no node is called {name:?}"),
            Self::Ambiguous { name, count, guids } => {
                let list: Vec<_> = guids.iter().map(|guid| format!("0x{guid:016x}")).collect();
                let more = if guids.len() < *count { ", ..." } else { "" };
                write!(f, "{count} nodes are called {name:?}, name one by guid: {}{more}", list.join(", "))
            }
            Self::NoSuchPort { name, port, last } => {
                write!(f, "node {name:?} has no port {port:?}, it has ports 1 to {last}")
            }
        }
    }
}

impl std::error::Error for FindError {}

/// Finds a node by `0x...` (GUID of the node or of one of its ports), by id (`S-...`, `H-...`, `R-...`, or a name of the
/// netfile), or by its exact description; returns its index in [`Topology::nodes`].
///
/// A node GUID goes before a port GUID, and an id before a description.
///
/// # Errors
/// [`FindError::Unknown`] with the nearest name, or [`FindError::Ambiguous`] for a description of several nodes.
pub fn find_node(topology: &Topology, name: &str) -> Result<u32, FindError> {
    let index = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    if let Some(guid) = name.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
        let nodes = &topology.nodes;
        let by_node = nodes.iter().position(|node| node.guid == guid);
        let has_port = |node: &Node| node.ports.iter().any(|port| port.guid == guid);
        if let Some(at) = by_node.or_else(|| nodes.iter().position(has_port)) {
            return Ok(index(at));
        }
    }
    if let Some((kind, guid)) = parse_id(name)
        && let Some(at) = topology.nodes.iter().position(|node| node.kind == kind && node.guid == guid)
    {
        return Ok(index(at));
    }
    if let Some(entry) = topology.names.iter().find(|entry| entry.end.port == 0 && entry.name == name) {
        return Ok(entry.end.node);
    }
    let named: Vec<_> =
        topology.nodes.iter().enumerate().filter(|(_, node)| node.description == name).collect();
    match named[..] {
        [(at, _)] => Ok(index(at)),
        [] => {
            let descriptions = topology.nodes.iter().map(|node| node.description.as_str());
            let names = topology.names.iter().map(|entry| entry.name.as_str());
            let nearest = nearest(name, names.chain(descriptions)).map(str::to_string);
            Err(FindError::Unknown { name: name.to_string(), nearest })
        }
        _ => {
            let guids = named.iter().take(LISTED).map(|(_, node)| node.guid).collect();
            Err(FindError::Ambiguous { name: name.to_string(), count: named.len(), guids })
        }
    }
}

/// Reads `S-` and 16 hexadecimal digits, and the like for other kinds.
fn parse_id(name: &str) -> Option<(NodeKind, u64)> {
    let (letter, hex) = name.split_once('-')?;
    let kind = match letter {
        "S" => NodeKind::Switch,
        "H" => NodeKind::Ca,
        "R" => NodeKind::Router,
        _ => return None,
    };
    let valid = hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    Some((kind, u64::from_str_radix(hex, 16).ok().filter(|_| valid)?))
}

/// Finds the port that `NODE` or `NODE:PORT` means.
///
/// The whole text is tried as a node first, since descriptions hold colons. Without a port: the port that has the given
/// GUID or alias, else 0 for a switch, else the first cabled port of an adapter or router (port 1 if there is none).
///
/// # Errors
/// As [`find_node`], and [`FindError::NoSuchPort`]. Port 0 is a port of switches only.
///
/// # Examples
/// ```
/// use madplane_topology::{PortRef, from_spec, parse_endpoint};
/// let fabric = from_spec("builtin:ring,switches=3").map_err(|e| e.to_string())?;
/// assert_eq!(parse_endpoint(&fabric, "ring-02:1").map_err(|e| e.to_string())?, PortRef { node: 2, port: 1 });
/// # Ok::<(), String>(())
/// ```
pub fn parse_endpoint(topology: &Topology, text: &str) -> Result<PortRef, FindError> {
    if let Some(entry) = topology.names.iter().find(|entry| entry.end.port != 0 && entry.name == text) {
        return Ok(entry.end);
    }
    let whole = match find_node(topology, text) {
        Ok(node) => return Ok(default_port(topology, node, text)),
        Err(error) => error,
    };
    let Some((name, port)) = text.rsplit_once(':') else { return Err(whole) };
    if port.is_empty()
        || !port.bytes().all(|b| b.is_ascii_digit())
        || matches!(whole, FindError::Ambiguous { .. })
    {
        return Err(whole);
    }
    let node = match find_node(topology, name) {
        Ok(node) => node,
        // The longer name may have been meant if it comes near to one.
        Err(FindError::Unknown { nearest: None, .. }) => return Err(whole),
        Err(error) => return Err(error),
    };
    let entry = &topology.nodes[node as usize];
    let last = entry.num_ports();
    let first = u8::from(entry.kind != NodeKind::Switch);
    match port.parse() {
        Ok(port) if (first..=last).contains(&port) => Ok(PortRef { node, port }),
        _ => Err(FindError::NoSuchPort { name: name.to_string(), port: port.to_string(), last }),
    }
}

fn default_port(topology: &Topology, node: u32, text: &str) -> PortRef {
    let entry = &topology.nodes[node as usize];
    let guid = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    if entry.kind == NodeKind::Switch {
        return PortRef { node, port: 0 };
    }
    let ports = (0u8..=255).zip(&entry.ports).skip(1);
    let by_guid = ports.clone().find(|(_, port)| guid == Some(port.guid));
    let chosen = by_guid.or_else(|| ports.clone().find(|(_, port)| port.peer.is_some()));
    PortRef { node, port: chosen.map_or(1, |(number, _)| number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{LinkSpeed, LinkWidth, Name};

    fn sample() -> Topology {
        let mut t = Topology::default();
        t.nodes.push(Node::new(NodeKind::Switch, 0x10, 4, "MF0;leaf:SX6036/U1"));
        t.nodes.push(Node::new(NodeKind::Ca, 0x20, 2, "Aggregation Node"));
        t.nodes.push(Node::new(NodeKind::Ca, 0x30, 2, "Aggregation Node"));
        t.nodes.push(Node::new(NodeKind::Ca, 0x40, 2, "host:7"));
        let (a, b) = (PortRef { node: 0, port: 1 }, PortRef { node: 3, port: 2 });
        assert!(t.connect(a, b, LinkWidth::X4, LinkSpeed::Qdr));
        t.names.push(Name { name: "m#sw".into(), end: PortRef { node: 0, port: 0 } });
        t.names.push(Name { name: "m@up".into(), end: PortRef { node: 0, port: 3 } });
        t
    }

    #[test]
    fn a_node_answers_to_guids_ids_names_and_its_description() {
        let t = sample();
        for (name, node) in [
            ("0x10", 0),
            ("0x0000000000000030", 2),
            ("0x32", 2),
            ("S-0000000000000010", 0),
            ("H-0000000000000040", 3),
            ("m#sw", 0),
            ("MF0;leaf:SX6036/U1", 0),
            ("host:7", 3),
        ] {
            assert_eq!(find_node(&t, name), Ok(node), "{name}");
        }
    }

    #[test]
    fn an_id_of_the_wrong_kind_finds_nothing() {
        assert!(find_node(&sample(), "H-0000000000000010").is_err());
        assert!(find_node(&sample(), "S-10").is_err());
    }

    #[test]
    fn endpoints_take_a_port_or_choose_one() {
        let t = sample();
        for (text, node, port) in [
            ("0x10", 0, 0),
            ("0x10:4", 0, 4),
            ("0x10:0", 0, 0),
            ("host:7", 3, 2),
            ("host:7:1", 3, 1),
            ("0x41", 3, 1),
            ("H-0000000000000020", 1, 1),
            ("MF0;leaf:SX6036/U1:2", 0, 2),
            ("m@up", 0, 3),
        ] {
            assert_eq!(parse_endpoint(&t, text), Ok(PortRef { node, port }), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_found_is_said_in_one_line() {
        let t = sample();
        for (text, expected) in [
            (
                "Aggregation Node",
                "2 nodes are called \"Aggregation Node\", name one by guid: 0x0000000000000020, 0x0000000000000030",
            ),
            ("hots:7", "no node is called \"hots:7\", did you mean \"host:7\"?"),
            ("zebra", "no node is called \"zebra\""),
            ("0x10:5", "node \"0x10\" has no port \"5\", it has ports 1 to 4"),
            ("0x40:0", "node \"0x40\" has no port \"0\", it has ports 1 to 2"),
            ("0x10:256", "node \"0x10\" has no port \"256\", it has ports 1 to 4"),
        ] {
            assert_eq!(parse_endpoint(&t, text).expect_err(text).to_string(), expected, "{text}");
        }
    }
}
