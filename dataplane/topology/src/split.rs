//! A topology cut into parts, for planes on several machines that links join again.
//!
//! Pure function, deterministic. A switch and the adapters cabled to it stay together. The switches are divided by a simple rule:
//! each part grows from a switch far from the parts before it, always by the switch that has the most links into the part for
//! those it has elsewhere, until it has its share of the nodes; then single switches move, and pairs change places, as long as
//! that cuts fewer links and no part grows much beyond its share. That is not the best cut there is, but a good one of a tree or a
//! torus. Cost: by links and parts, a few times over.

use crate::graph::{Name, NodeKind, PortRef, Topology};

/// Times that all switches are looked at for a better place.
const PASSES: usize = 32;

/// One link that is cut: its ends, each as part and port in that part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutLink {
    /// One end.
    pub a: (usize, PortRef),
    /// The other.
    pub b: (usize, PortRef),
}

/// A topology in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The parts; ports of cut links have no cable.
    pub parts: Vec<Topology>,
    /// What has to be joined again, in the order of the source.
    pub cut: Vec<CutLink>,
}

/// Why a topology cannot be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitError {
    /// Parts of nothing, or more parts than switches.
    Parts {
        /// Parts asked for.
        parts: usize,
        /// Switches (or adapters without one) there are.
        switches: usize,
    },
}

impl std::fmt::Display for SplitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Parts { parts, switches } = self;
        write!(f, "a fabric of {switches} switches cannot be cut into {parts} parts")
    }
}

impl std::error::Error for SplitError {}

/// Cuts a topology into `parts` parts with few links between them.
///
/// # Errors
/// [`SplitError`], if there are not enough switches.
///
/// # Examples
/// ```
/// let whole = madplane_topology::from_spec("fat-tree,radix=4,levels=2").expect("a known kind");
/// let split = madplane_topology::split(&whole, 2)?;
/// let nodes: usize = split.parts.iter().map(|part| part.nodes.len()).sum();
/// assert_eq!((nodes, split.cut.len()), (whole.nodes.len(), 4));
/// # Ok::<(), madplane_topology::SplitError>(())
/// ```
pub fn split(topology: &Topology, parts: usize) -> Result<Split, SplitError> {
    let groups = Groups::of(topology);
    if parts == 0 || parts > groups.weights.len() {
        return Err(SplitError::Parts { parts, switches: groups.weights.len() });
    }
    let mut part_of = groups.grow(parts);
    groups.refine(&mut part_of, parts);
    Ok(cut(topology, parts, |node| {
        groups.of_node.get(node).and_then(|group| part_of.get(*group)).copied().unwrap_or(0)
    }))
}

/// Switches with their adapters, and the links among them.
struct Groups {
    of_node: Vec<usize>,
    /// Nodes of each.
    weights: Vec<usize>,
    /// Links from each to others, as group and number.
    links: Vec<Vec<(usize, usize)>>,
}

impl Groups {
    fn of(topology: &Topology) -> Self {
        const NONE: usize = usize::MAX;
        let mut of_node = vec![NONE; topology.nodes.len()];
        let mut count = 0;
        for (node, of) in topology.nodes.iter().zip(&mut of_node) {
            if node.kind == NodeKind::Switch {
                *of = count;
                count += 1;
            }
        }
        for index in 0..topology.nodes.len() {
            if of_node[index] == NONE {
                let peers = topology.nodes[index].ports.iter().filter_map(|port| port.peer);
                let mut known =
                    peers.filter_map(|peer| of_node.get(peer.node as usize)).filter(|of| **of != NONE);
                of_node[index] = known.next().copied().unwrap_or_else(|| {
                    count += 1;
                    count - 1
                });
            }
        }
        let mut weights = vec![0; count];
        let mut links = vec![Vec::<(usize, usize)>::new(); count];
        for (node, own) in topology.nodes.iter().zip(&of_node) {
            weights[*own] += 1;
            for peer in node.ports.iter().filter_map(|port| port.peer) {
                let Some(other) = of_node.get(peer.node as usize).filter(|other| *other != own) else {
                    continue;
                };
                match links[*own].iter_mut().find(|(group, _)| group == other) {
                    Some((_, number)) => *number += 1,
                    None => links[*own].push((*other, 1)),
                }
            }
        }
        Self { of_node, weights, links }
    }

    /// Links of a group to those of `part`.
    fn links_to(&self, group: usize, part: usize, part_of: &[usize]) -> usize {
        self.links[group].iter().filter(|(other, _)| part_of[*other] == part).map(|(_, number)| number).sum()
    }

    fn grow(&self, parts: usize) -> Vec<usize> {
        const FREE: usize = usize::MAX;
        let mut part_of = vec![FREE; self.weights.len()];
        let mut left: usize = self.weights.iter().sum();
        let mut free = self.weights.len();
        for part in 0..parts {
            let goal = left.div_ceil(parts - part);
            let mut weight = 0;
            while free > 0 && (weight == 0 || weight < goal) && (weight == 0 || free > parts - part - 1) {
                let value = |group: usize| {
                    let into = self.links_to(group, part, &part_of);
                    let elsewhere = self.links_to(group, FREE, &part_of);
                    // the first of a part: one that is least in the way of the others
                    (into > 0, into.cast_signed() * 2 - elsewhere.cast_signed())
                };
                let candidates = (0..part_of.len()).filter(|group| part_of[*group] == FREE);
                let Some(best) = candidates.max_by_key(|group| (value(*group), std::cmp::Reverse(*group)))
                else {
                    break;
                };
                part_of[best] = part;
                weight += self.weights[best];
                free -= 1;
            }
            left -= weight.min(left);
        }
        // what the last part had no room for
        part_of.iter_mut().filter(|part| **part == FREE).for_each(|part| *part = parts - 1);
        part_of
    }

    fn refine(&self, part_of: &mut [usize], parts: usize) {
        let total: usize = self.weights.iter().sum();
        let heaviest = self.weights.iter().copied().max().unwrap_or(0);
        let most = total.div_ceil(parts) + total.div_ceil(parts) / 20 + heaviest / 2;
        let mut weights = vec![0; parts];
        let mut members = vec![0; parts];
        for (group, part) in part_of.iter().enumerate() {
            weights[*part] += self.weights[group];
            members[*part] += 1;
        }
        for _ in 0..PASSES {
            let mut moved = false;
            for group in 0..part_of.len() {
                let own = part_of[group];
                let stays = self.links_to(group, own, part_of);
                let better = (0..parts)
                    .filter(|part| {
                        *part != own && members[own] > 1 && weights[*part] + self.weights[group] <= most
                    })
                    .map(|part| (self.links_to(group, part, part_of), std::cmp::Reverse(part)))
                    .max();
                if let Some((links, std::cmp::Reverse(part))) = better.filter(|(links, _)| *links > stays) {
                    debug_assert!(links > stays);
                    weights[own] -= self.weights[group];
                    weights[part] += self.weights[group];
                    (members[own], members[part]) = (members[own] - 1, members[part] + 1);
                    part_of[group] = part;
                    moved = true;
                }
            }
            moved |= self.swap(part_of, &mut weights, most);
            if !moved {
                return;
            }
        }
    }

    /// Lets pairs change places where that cuts fewer links.
    fn swap(&self, part_of: &mut [usize], weights: &mut [usize], most: usize) -> bool {
        let mut moved = false;
        for one in 0..part_of.len() {
            let mut neighbours: Vec<usize> =
                self.links[one].iter().map(|(group, _)| part_of[*group]).collect();
            neighbours.sort_unstable();
            neighbours.dedup();
            for part in neighbours {
                let own = part_of[one];
                if part == own {
                    continue;
                }
                let gain = |group: usize, from: usize, to: usize| {
                    self.links_to(group, to, part_of).cast_signed()
                        - self.links_to(group, from, part_of).cast_signed()
                };
                let first = gain(one, own, part);
                if first <= 0 {
                    continue;
                }
                let between = |other: usize| {
                    let found = self.links[one].iter().find(|(group, _)| *group == other);
                    found.map_or(0, |(_, number)| number.cast_signed())
                };
                let fits = |other: &usize| {
                    let (light, heavy) = (self.weights[*other], self.weights[one]);
                    weights[own] - heavy + light <= most && weights[part] - light + heavy <= most
                };
                let others = (0..part_of.len()).filter(|other| part_of[*other] == part).filter(fits);
                let best = others
                    .map(|other| {
                        (first + gain(other, part, own) - 2 * between(other), std::cmp::Reverse(other))
                    })
                    .max();
                if let Some((gained, std::cmp::Reverse(other))) = best
                    && gained > 0
                {
                    weights[own] = weights[own] - self.weights[one] + self.weights[other];
                    weights[part] = weights[part] - self.weights[other] + self.weights[one];
                    (part_of[one], part_of[other]) = (part, own);
                    moved = true;
                }
            }
        }
        moved
    }
}

fn cut(topology: &Topology, parts: usize, part_of: impl Fn(usize) -> usize) -> Split {
    let mut split = Split { parts: vec![Topology::default(); parts], cut: Vec::new() };
    // part and number there, by number in the source
    let mut places = Vec::with_capacity(topology.nodes.len());
    for (index, node) in topology.nodes.iter().enumerate() {
        let part = part_of(index);
        let nodes = &mut split.parts[part].nodes;
        places.push((part, u32::try_from(nodes.len()).unwrap_or(u32::MAX)));
        nodes.push(node.clone());
    }
    let place = |end: PortRef| {
        let (part, node) = places[end.node as usize];
        (part, PortRef { node, port: end.port })
    };
    for (index, node) in (0u32..).zip(&topology.nodes) {
        for (number, port) in (0u8..=255).zip(&node.ports) {
            let Some(peer) = port.peer else { continue };
            let own = PortRef { node: index, port: number };
            let (a, b) = (place(own), place(peer));
            let there = &mut split.parts[a.0].nodes[a.1.node as usize].ports[usize::from(number)];
            if a.0 == b.0 {
                there.peer = Some(b.1);
                continue;
            }
            (there.peer, there.width, there.speed) =
                (None, crate::LinkWidth::default(), crate::LinkSpeed::default());
            if own < peer {
                split.cut.push(CutLink { a, b });
            }
        }
    }
    for name in &topology.names {
        let (part, end) = place(name.end);
        split.parts[part].names.push(Name { name: name.name.clone(), end });
    }
    split
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParseOptions, check, from_spec, parse, to_ibnetdiscover};
    use std::collections::BTreeSet;

    type Link = (u64, u8, u64, u8);

    /// Links as GUIDs and ports, lower end first.
    fn links(topology: &Topology) -> BTreeSet<Link> {
        let mut all = BTreeSet::new();
        for node in &topology.nodes {
            for (number, port) in (0u8..=255).zip(&node.ports) {
                if let Some(peer) = port.peer {
                    let other = topology.nodes[peer.node as usize].guid;
                    all.insert(ordered((node.guid, number), (other, peer.port)));
                }
            }
        }
        all
    }

    fn ordered(a: (u64, u8), b: (u64, u8)) -> Link {
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        (a.0, a.1, b.0, b.1)
    }

    #[test]
    fn the_parts_and_the_cut_links_are_the_whole() {
        for spec in
            ["fat-tree,radix=4,levels=2", "fat-tree,radix=8,levels=3", "torus,dims=4x4x2", "ring,switches=9"]
        {
            let whole = from_spec(spec).unwrap();
            for parts in 1..=6 {
                let split = split(&whole, parts).unwrap();
                let mut all = BTreeSet::new();
                for part in &split.parts {
                    assert!(!part.nodes.is_empty(), "{spec} in {parts}");
                    all.extend(links(part));
                    let text = to_ibnetdiscover(part);
                    assert_eq!(parse(&text, &ParseOptions::default()).unwrap().topology, *part, "it loads");
                }
                let guid = |(part, end): (usize, PortRef)| {
                    (split.parts[part].nodes[end.node as usize].guid, end.port)
                };
                for link in &split.cut {
                    assert_ne!(link.a.0, link.b.0);
                    assert!(all.insert(ordered(guid(link.a), guid(link.b))), "cut and still there");
                }
                assert_eq!(all, links(&whole), "{spec} in {parts}");
                let nodes: usize = split.parts.iter().map(|part| part.nodes.len()).sum();
                assert_eq!(nodes, whole.nodes.len());
                assert!(parts > 1 || split.cut.is_empty());
                assert_eq!(super::split(&whole, parts).unwrap(), split, "the same again");
            }
        }
    }

    #[test]
    fn known_fabrics_are_cut_where_they_are_thin() {
        let fat_tree = from_spec("fat-tree,radix=4,levels=2").unwrap();
        let split = split(&fat_tree, 2).unwrap();
        assert_eq!(split.cut.len(), 4);
        let sizes: Vec<usize> = split.parts.iter().map(|part| part.nodes.len()).collect();
        assert!(sizes.iter().all(|size| (6..=8).contains(size)), "{sizes:?}");
        // no adapter is parted from its switch
        for part in &split.parts {
            for node in part.nodes.iter().filter(|node| node.kind == NodeKind::Ca) {
                assert!(node.ports.iter().any(|port| port.peer.is_some()), "{}", node.description);
            }
            assert_eq!(check(part).islands.len(), 1, "each half is in one piece");
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let fabric = from_spec("fat-tree,radix=4,levels=2").unwrap();
        assert_eq!(split(&fabric, 0), Err(SplitError::Parts { parts: 0, switches: 6 }));
        assert_eq!(split(&fabric, 7), Err(SplitError::Parts { parts: 7, switches: 6 }));
        assert_eq!(split(&Topology::default(), 1), Err(SplitError::Parts { parts: 1, switches: 0 }));
    }
}
