//! Paths over a fabric: finding them, and following one that is given.
//!
//! Pure functions over a [`Topology`]. A path is a list of egress ports: of the source's node first, then of each
//! switch on the way. Only switches pass things on, so a path neither goes through an adapter nor through a router. Between
//! ways of one length the one over the lowest ports wins, so that the same question has the same answer.
//!
//! Whether a cable that the topology knows is plugged in is not known here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use madplane_topology::{Node, NodeKind, ParseOptions, PortRef, Topology};

use crate::route::MAX_HOPS;

/// What a generated fabric starts with.
pub const BUILTIN_PREFIX: &str = "builtin:";

/// Why there is no path; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing leads there.
    #[error("no path from {from:?} to {to:?}{}", if *.avoiding { " that avoids what has to be avoided" } else { "" })]
    None {
        /// Description of the start.
        from: String,
        /// Description of the end.
        to: String,
        /// Whether nodes were excluded.
        avoiding: bool,
    },
    /// An end is to be avoided.
    #[error("{0:?} is an end of the path and cannot be avoided")]
    AvoidsEnd(String),
    /// A way over an adapter.
    #[error("{0:?} is no switch, a path cannot go over it")]
    NotASwitch(String),
    /// Longer than a route may be.
    #[error("the path has {0} hops, a route has at most {MAX_HOPS}")]
    TooLong(usize),
}

/// Reads the fabric that `source` names, as the plane does.
///
/// # Errors
/// One line.
pub fn load(source: &str) -> Result<Topology, String> {
    if source.starts_with(BUILTIN_PREFIX) {
        return madplane_topology::from_spec(source).map_err(|error| error.to_string());
    }
    let text = std::fs::read(source).map_err(|error| format!("cannot read {source}: {error}"))?;
    let folder = Path::new(source).parent().unwrap_or(Path::new(""));
    let loader = |name: &str| std::fs::read(folder.join(name)).map_err(|error| error.to_string());
    let options = ParseOptions { loader: Some(&loader), ..ParseOptions::default() };
    let parsed = madplane_topology::parse(&text, &options);
    parsed
        .map(|parsed| parsed.topology)
        .map_err(|error| format!("{source}:{}:{}: {}", error.line, error.column, error.message))
}

fn node(topology: &Topology, index: u32) -> Option<&Node> {
    topology.nodes.get(index as usize)
}

/// Description of a node, or its GUID if it has none.
pub fn describe(topology: &Topology, index: u32) -> String {
    match node(topology, index) {
        Some(node) if node.description.is_empty() => format!("{:#018x}", node.guid),
        Some(node) => node.description.clone(),
        None => format!("node {index}"),
    }
}

/// Whether things that arrive at `node` may leave it by another port.
fn passes_on(topology: &Topology, index: u32) -> bool {
    node(topology, index).is_some_and(|node| node.kind == NodeKind::Switch)
}

/// Whether the LID that belongs to `owner` is reached when something arrives at `arrival`.
fn owns(topology: &Topology, owner: PortRef, arrival: PortRef) -> bool {
    owner.node == arrival.node && (passes_on(topology, owner.node) || owner.port == arrival.port)
}

/// The ways out of a node: port and where its cable ends. An end with a LID of its own leaves by its own port only.
fn exits(topology: &Topology, from: PortRef) -> impl Iterator<Item = (u8, PortRef)> + '_ {
    let any = passes_on(topology, from.node);
    let ports = node(topology, from.node).map_or(&[][..], |node| &node.ports);
    let numbered = (0u8..=255).zip(ports).skip(1);
    numbered
        .filter(move |(number, _)| any || *number == from.port)
        .filter_map(|(number, port)| Some((number, port.peer?)))
}

/// Ports of the shortest path between the owners of two LIDs that touches none of `avoid`.
///
/// `from` and `to` are ports of adapters, or port 0 of switches.
///
/// # Errors
/// See [`PathError`].
pub fn shortest(
    topology: &Topology,
    from: PortRef,
    to: PortRef,
    avoid: &HashSet<u32>,
) -> Result<Vec<u8>, PathError> {
    if let Some(end) = [from, to].into_iter().find(|end| avoid.contains(&end.node)) {
        return Err(PathError::AvoidsEnd(describe(topology, end.node)));
    }
    // by which port of which node each node was reached first
    let mut reached: HashMap<u32, (u32, u8)> = HashMap::new();
    let mut edge = VecDeque::from([from]);
    while let Some(at) = edge.pop_front() {
        for (port, arrival) in exits(topology, at) {
            if owns(topology, to, arrival) {
                let mut path = vec![port];
                let mut back = at.node;
                while back != from.node {
                    let Some((before, port)) = reached.get(&back).copied() else { break };
                    path.push(port);
                    back = before;
                }
                path.reverse();
                return if path.len() > MAX_HOPS { Err(PathError::TooLong(path.len())) } else { Ok(path) };
            }
            if arrival.node != from.node
                && passes_on(topology, arrival.node)
                && !avoid.contains(&arrival.node)
                && !reached.contains_key(&arrival.node)
            {
                reached.insert(arrival.node, (at.node, port));
                edge.push_back(PortRef { node: arrival.node, port: 0 });
            }
        }
    }
    Err(PathError::None {
        from: describe(topology, from.node),
        to: describe(topology, to.node),
        avoiding: !avoid.is_empty(),
    })
}

/// Ports of the path that goes the shortest way to each of `over` in turn and then to `to`.
///
/// No node is passed twice if that can be helped: a stop at the end of a dead end is left as it was entered.
///
/// # Errors
/// See [`PathError`].
pub fn via(topology: &Topology, from: PortRef, to: PortRef, over: &[u32]) -> Result<Vec<u8>, PathError> {
    let mut path = Vec::new();
    let mut at = from;
    let mut passed = HashSet::from([from.node]);
    if let Some(stop) = over.iter().find(|stop| !passes_on(topology, **stop)) {
        return Err(PathError::NotASwitch(describe(topology, *stop)));
    }
    let stops = over.iter().map(|stop| PortRef { node: *stop, port: 0 });
    for next in stops.chain([to]) {
        if next.node == at.node && at != from {
            continue;
        }
        let fresh: HashSet<u32> =
            passed.iter().copied().filter(|node| *node != at.node && *node != next.node).collect();
        let piece = shortest(topology, at, next, &fresh)
            .or_else(|_| shortest(topology, at, next, &HashSet::new()))?;
        passed.extend(walk(topology, at, next, &piece).hops.iter().filter_map(|hop| Some(hop.to?.node)));
        path.extend(piece);
        if path.len() > MAX_HOPS {
            return Err(PathError::TooLong(path.len()));
        }
        at = next;
    }
    Ok(path)
}

/// One hop of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Node that it leaves.
    pub node: u32,
    /// Port by which it leaves.
    pub port: u8,
    /// Where the cable of that port ends.
    pub to: Option<PortRef>,
}

/// A path that was followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Its hops, as far as there are cables.
    pub hops: Vec<Hop>,
    /// What is wrong with it, if anything is; one line.
    pub fault: Option<String>,
}

/// Follows `path` from the owner of the source LID and says whether it ends at the owner of the destination LID.
pub fn walk(topology: &Topology, from: PortRef, to: PortRef, path: &[u8]) -> Walk {
    let mut walk = Walk { hops: Vec::new(), fault: None };
    let mut at = from.node;
    let mut arrival = None;
    for (index, port) in path.iter().copied().enumerate() {
        let name = describe(topology, at);
        let hop = index + 1;
        if index > 0 && !passes_on(topology, at) {
            walk.fault = Some(format!("hop {hop}: {name:?} is no switch and passes nothing on"));
            return walk;
        }
        if index == 0 && !passes_on(topology, at) && port != from.port {
            walk.fault = Some(format!(
                "hop {hop}: the source LID is that of port {} of {name:?}, not of port {port}",
                from.port
            ));
            return walk;
        }
        let last = node(topology, at).map_or(0, Node::num_ports);
        let to = topology.port(PortRef { node: at, port }).and_then(|port| port.peer);
        walk.hops.push(Hop { node: at, port, to });
        let Some(end) = to else {
            let what = if port > last {
                format!("has no port {port}, it has ports 1 to {last}")
            } else {
                format!("has no cable at port {port}")
            };
            walk.fault = Some(format!("hop {hop}: {name:?} {what}"));
            return walk;
        };
        at = end.node;
        arrival = Some(end);
    }
    if !arrival.is_some_and(|arrival| owns(topology, to, arrival)) {
        let (ends, wanted) = (describe(topology, at), describe(topology, to.node));
        walk.fault = Some(format!("it ends at {ends:?}, the destination LID is that of {wanted:?}"));
    }
    walk
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_topology::{find_node, parse_endpoint};

    fn ring() -> Topology {
        load("builtin:ring,switches=5,hosts=1").unwrap()
    }

    fn end(topology: &Topology, name: &str) -> PortRef {
        parse_endpoint(topology, name).unwrap_or_else(|error| panic!("{error}"))
    }

    fn hosts(topology: &Topology) -> Vec<PortRef> {
        let adapters = topology.nodes.iter().filter(|node| node.kind == NodeKind::Ca);
        adapters.map(|node| end(topology, &format!("{:#018x}", node.guid))).collect()
    }

    fn nodes_of(topology: &Topology, walk: &Walk) -> Vec<String> {
        walk.hops.iter().map(|hop| describe(topology, hop.node)).collect()
    }

    #[test]
    fn the_shortest_path_leads_there_and_nothing_is_shorter() {
        let topology = ring();
        for from in hosts(&topology) {
            for to in hosts(&topology).into_iter().filter(|to| *to != from) {
                let path = shortest(&topology, from, to, &HashSet::new()).unwrap();
                assert_eq!(walk(&topology, from, to, &path).fault, None);
                assert!((3..=4).contains(&path.len()), "a ring of 5: {path:?}");
            }
        }
    }

    #[test]
    fn a_path_avoids_what_it_has_to_and_says_when_it_cannot() {
        let topology = ring();
        let corners = |topology: &Topology| hosts(topology);
        let hosts = hosts(&topology);
        let (from, to) = (hosts[0], hosts[1]);
        let direct = shortest(&topology, from, to, &HashSet::new()).unwrap();
        assert_eq!(direct.len(), 3);
        let third = find_node(&topology, "ring-03").unwrap();
        let second = find_node(&topology, "ring-02").unwrap();
        let long = via(&topology, from, to, &[third]).unwrap();
        let way = walk(&topology, from, to, &long);
        assert_eq!(way.fault, None);
        assert!(nodes_of(&topology, &way).contains(&"ring-03".to_owned()));
        let around =
            shortest(&topology, from, hosts[2], &HashSet::from([end(&topology, "ring-01").node])).unwrap();
        assert!(
            nodes_of(&topology, &walk(&topology, from, hosts[2], &around)).contains(&"ring-03".to_owned())
        );
        let square = load("builtin:ring,switches=4,hosts=1").unwrap();
        let corners = corners(&square);
        let over = find_node(&square, "ring-03").unwrap();
        let way =
            walk(&square, corners[0], corners[2], &via(&square, corners[0], corners[2], &[over]).unwrap());
        assert_eq!(
            nodes_of(&square, &way)[1..],
            ["ring-00", "ring-03", "ring-02"],
            "not back the way it came"
        );
        let both = HashSet::from([end(&topology, "ring-01").node, third]);
        let error = shortest(&topology, from, hosts[2], &both).unwrap_err();
        assert!(matches!(error, PathError::None { avoiding: true, .. }), "{error}");
        let ends = HashSet::from([from.node]);
        assert!(matches!(shortest(&topology, from, to, &ends), Err(PathError::AvoidsEnd(_))));
        assert!(matches!(via(&topology, from, to, &[hosts[3].node]), Err(PathError::NotASwitch(_))));
        let there_and_back: Vec<u32> = [second, third].repeat(40);
        assert!(matches!(via(&topology, from, to, &there_and_back), Err(PathError::TooLong(_))));
    }

    #[test]
    fn every_kind_of_broken_path_names_its_hop() {
        let topology = ring();
        let hosts = hosts(&topology);
        let (from, to) = (hosts[0], hosts[1]);
        let good = shortest(&topology, from, to, &HashSet::new()).unwrap();
        let with = |at: usize, port: u8| {
            let mut path = good.clone();
            path[at] = port;
            walk(&topology, from, to, &path).fault.unwrap()
        };
        assert!(with(0, 9).starts_with("hop 1: the source LID is that of port 1 of"), "{}", with(0, 9));
        assert!(with(1, 200).contains("has no port 200, it has ports 1 to"), "{}", with(1, 200));
        let short = walk(&topology, from, to, &good[..2]).fault.unwrap();
        assert!(short.starts_with("it ends at \"ring-01\", the destination LID is that of"), "{short}");
        let beyond = walk(&topology, from, to, &[&good[..], &[1]].concat()).fault.unwrap();
        assert!(
            beyond.starts_with("hop 4:") && beyond.ends_with("is no switch and passes nothing on"),
            "{beyond}"
        );
    }

    #[test]
    fn a_switch_is_a_good_end_by_any_of_its_ports() {
        let topology = ring();
        let from = end(&topology, "ring-00");
        let to = end(&topology, "ring-02");
        let path = shortest(&topology, from, to, &HashSet::new()).unwrap();
        assert_eq!((path.len(), walk(&topology, from, to, &path).fault), (2, None));
    }
}
