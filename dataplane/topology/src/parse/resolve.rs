//! Pairs the claims of port lines to links and completes what the text left open.
//!
//! Order of trust: two lines that name each other make a link; then a line whose other end says nothing; a line that the
//! other end contradicts makes none. Everything but the first is a fault. One pass over the claims each, no recursion.

use rustc_hash::{FxHashMap, FxHashSet};

use super::names::{Key, SlotState};
use super::records::{Reader, Target};
use super::{Log, ParseError};
use crate::check;
use crate::graph::{MAX_NODES, Name, Node, NodeKind, PortRef, Topology};

/// Names listed in one message before the rest is only counted.
const LISTED: usize = 5;
/// Ports of a switch that is made up.
const STUB_SWITCH_PORTS: u8 = 36;

pub(super) fn resolve(mut reader: Reader<'_>) -> Result<(Topology, Log), ParseError> {
    reader.log.file = 0;
    define_stubs(&mut reader)?;
    pair_claims(&mut reader)?;
    complete_port_guids(&mut reader)?;
    report_islands(&mut reader)?;
    Ok((reader.topology, reader.log))
}

/// Makes nodes for ids that are named but not defined, or refuses.
fn define_stubs(reader: &mut Reader<'_>) -> Result<(), ParseError> {
    struct Undefined {
        slot: u32,
        claim: usize,
        last_port: u8,
    }
    let mut found: Vec<Undefined> = Vec::new();
    let mut by_slot: FxHashMap<u32, usize> = FxHashMap::default();
    for (index, claim) in reader.claims.iter().enumerate() {
        let Target::Port(slot, port) = claim.target else { continue };
        if reader.slots.get(slot).state != SlotState::Mentioned {
            continue;
        }
        match by_slot.get(&slot) {
            Some(at) => found[*at].last_port = found[*at].last_port.max(port),
            None => {
                by_slot.insert(slot, found.len());
                found.push(Undefined { slot, claim: index, last_port: port });
            }
        }
    }
    let Some(first) = found.first() else { return Ok(()) };
    let at = &reader.claims[first.claim];
    if !reader.options.stub_undefined {
        let names: Vec<_> =
            found.iter().take(LISTED).map(|u| format!("{:?}", reader.slots.get(u.slot).key.text())).collect();
        let more = if found.len() > LISTED { ", ..." } else { "" };
        let count = found.len();
        let (nodes, are) = if count == 1 { ("node", "is") } else { ("nodes", "are") };
        let names = names.join(", ");
        let message = format!("{count} {nodes} named as peer {are} never defined: {names}{more}");
        reader.log.file = at.file;
        return Err(reader.log.error(at.line, at.column, message));
    }
    reader.first_stub = u32::try_from(reader.topology.nodes.len()).ok();
    for undefined in found {
        if reader.topology.nodes.len() >= MAX_NODES {
            return Err(reader.log.error(1, 1, format!("more than {MAX_NODES} nodes")));
        }
        let slot = reader.slots.get_mut(undefined.slot);
        let text = slot.key.text();
        let (mut kind, mut guid) = match &slot.key {
            Key::Guid(kind, guid) => (*kind, *guid),
            Key::Text(_) => (NodeKind::Switch, 0),
        };
        if matches!(slot.key, Key::Text(_)) && undefined.last_port <= 2 {
            kind = NodeKind::Ca;
        }
        if guid == 0 || reader.node_by_guid.contains_key(&guid) {
            guid = (0x40_0000..)
                .step_by(256)
                .find(|g| !reader.node_by_guid.contains_key(g))
                .expect("fewer nodes than that");
        }
        let ports = match kind {
            NodeKind::Switch => undefined.last_port.max(STUB_SWITCH_PORTS),
            NodeKind::Ca | NodeKind::Router => undefined.last_port,
        };
        let (mut description, lid) = slot.hint.take().unwrap_or_else(|| (text.clone(), 0));
        while description.len() > 64 {
            description.pop();
        }
        let index = u32::try_from(reader.topology.nodes.len()).expect("bounded by MAX_NODES");
        slot.state = SlotState::Node(index);
        let named = slot.key != Key::Guid(kind, guid);
        let mut node = Node::new(kind, guid, ports, description);
        if kind == NodeKind::Switch {
            node.ports[0].lid = lid;
        } else {
            for port in &mut node.ports {
                port.guid = 0;
            }
        }
        reader.topology.nodes.push(node);
        reader.node_by_guid.insert(guid, index);
        if named {
            reader.topology.names.push(Name { name: text.clone(), end: PortRef { node: index, port: 0 } });
        }
        let claim = &reader.claims[undefined.claim];
        let (line, column) = (claim.line, claim.column);
        reader.node_lines.push(line);
        reader.node_slots.push(undefined.slot);
        reader.log.file = claim.file;
        reader.log.warn(
            line,
            column,
            format!("node {text:?} is never defined; a stub with {ports} ports stands in"),
        );
    }
    reader.log.file = 0;
    Ok(())
}

fn end_text(reader: &Reader<'_>, end: PortRef) -> String {
    let slot = reader.node_slots[end.node as usize];
    format!("{:?}[{}]", reader.slots.get(slot).key.text(), end.port)
}

/// Finds the port that a claim names; says why if there is none.
fn other_end(reader: &mut Reader<'_>, index: usize) -> Result<Option<PortRef>, ParseError> {
    let claim = &reader.claims[index];
    let (line, column) = (claim.line, claim.column);
    let message = match &claim.target {
        Target::Alias(name) => match reader.aliases.get(&**name) {
            Some(alias) => return Ok(Some(alias.end)),
            None => format!("alias {name:?} is never defined; line ignored"),
        },
        Target::Port(slot, port) => match reader.slots.get(*slot).state {
            SlotState::Node(node) => {
                let last = reader.topology.nodes[node as usize].num_ports();
                if *port <= last {
                    return Ok(Some(PortRef { node, port: *port }));
                }
                let name = reader.slots.get(*slot).key.text();
                format!("port {port} is out of range, node {name:?} has ports 1 to {last}; line ignored")
            }
            SlotState::Skipped | SlotState::Mentioned => {
                let name = reader.slots.get(*slot).key.text();
                format!("the record of node {name:?} was skipped; line ignored")
            }
        },
    };
    reader.log.file = claim.file;
    reader.log.fault(line, column, message)?;
    Ok(None)
}

fn pair_claims(reader: &mut Reader<'_>) -> Result<(), ParseError> {
    const FREE: u32 = u32::MAX;
    let mut first_port = Vec::with_capacity(reader.topology.nodes.len());
    let mut total = 0;
    for node in &reader.topology.nodes {
        first_port.push(total);
        total += node.ports.len();
    }
    let place = |end: PortRef| first_port[end.node as usize] + usize::from(end.port);
    // Which claim each port makes, and what it names.
    let mut claim_of = vec![FREE; total];
    let mut ends: Vec<Option<PortRef>> = Vec::with_capacity(reader.claims.len());
    for index in 0..reader.claims.len() {
        let mut end = other_end(reader, index)?;
        let claim = &reader.claims[index];
        let holder = &mut claim_of[place(claim.from)];
        if *holder == FREE {
            if end.is_some() {
                *holder = u32::try_from(index).expect("fewer claims than bytes");
            }
        } else {
            let earlier = *holder as usize;
            let (line, column, before) = (claim.line, claim.column, reader.claims[earlier].line);
            let port = claim.from.port;
            let message = if ends[earlier] == end {
                format!("port {port} repeats line {before}; line ignored")
            } else {
                format!("port {port} is cabled to something else on line {before}; line ignored")
            };
            reader.log.file = claim.file;
            reader.log.fault(line, column, message)?;
            end = None;
        }
        ends.push(end);
    }

    let mut alone = Vec::new();
    for index in 0..reader.claims.len() {
        let Some(end) = ends[index] else { continue };
        let from = reader.claims[index].from;
        let answer = claim_of[place(end)];
        if answer == FREE {
            alone.push(index);
        } else if ends[answer as usize] == Some(from) {
            if index <= answer as usize {
                link(reader, index, Some(answer as usize), end)?;
            }
        } else {
            let claim = &reader.claims[index];
            let (line, column) = (claim.line, claim.column);
            let other = ends[answer as usize].map_or_else(String::new, |end| end_text(reader, end));
            let message = format!(
                "{} is cabled to {other} according to line {}; this line is ignored",
                end_text(reader, end),
                reader.claims[answer as usize].line
            );
            reader.log.file = claim.file;
            reader.log.fault(line, column, message)?;
        }
    }
    for index in alone {
        let Some(end) = ends[index] else { continue };
        let claim = &reader.claims[index];
        let (line, column, file) = (claim.line, claim.column, claim.file);
        reader.log.file = file;
        if reader.topology.port(end).is_some_and(|port| port.peer.is_some()) {
            let message =
                format!("{} is cabled to another port already; this line is ignored", end_text(reader, end));
            reader.log.fault(line, column, message)?;
            continue;
        }
        if matches!(claim.target, Target::Port(..)) && claim.from != end && !is_stub(reader, end.node) {
            let message = format!("one-sided link: {} does not name this port", end_text(reader, end));
            reader.log.fault(line, column, message)?;
        }
        link(reader, index, None, end)?;
    }
    reader.log.file = 0;
    Ok(())
}

/// True for a made-up node, which has no lines of its own to answer with.
fn is_stub(reader: &Reader<'_>, node: u32) -> bool {
    reader.first_stub.is_some_and(|first| node >= first)
}

/// The slower of two values, unless only one of them was written down.
fn agree<T: Copy>(a: T, a_own: bool, b: T, b_own: bool, b_is_less: bool) -> T {
    match (a_own, b_own) {
        (true, false) => a,
        (false, true) => b,
        _ if b_is_less => b,
        _ => a,
    }
}

fn link(
    reader: &mut Reader<'_>,
    index: usize,
    answer: Option<usize>,
    end: PortRef,
) -> Result<(), ParseError> {
    let claim = &reader.claims[index];
    let from = claim.from;
    let (mut width, mut speed) = (claim.rate.width, claim.rate.speed);
    let other = match answer {
        Some(answer) => Some(reader.claims[answer].rate),
        None => match &claim.target {
            Target::Alias(name) => reader.aliases.get(&**name).map(|alias| alias.rate),
            Target::Port(..) => None,
        },
    };
    let mut disagreement = None;
    if let Some(other) = other {
        let mine = claim.rate;
        let narrower = other.width.lanes() < mine.width.lanes();
        width = agree(mine.width, mine.own_width, other.width, other.own_width, narrower);
        let slower = other.speed < mine.speed;
        speed = agree(mine.speed, mine.own_speed, other.speed, other.own_speed, slower);
        let differs = mine.own_width && other.own_width && mine.width != other.width
            || mine.own_speed && other.own_speed && mine.speed != other.speed;
        if differs {
            let line = answer.map_or(claim.line, |answer| reader.claims[answer].line);
            disagreement = Some(format!(
                "{}{} here but {}{} on line {line}; {width}{speed} is used",
                mine.width, mine.speed, other.width, other.speed
            ));
        }
    }
    let (line, column, file) = (claim.line, claim.column, claim.file);
    for claim in [Some(index), answer].into_iter().flatten().map(|at| &reader.claims[at]) {
        let end = if claim.from == from { end } else { from };
        let node = &mut reader.topology.nodes[end.node as usize];
        let port = &mut node.ports[usize::from(end.port)];
        if node.kind != NodeKind::Switch && port.guid == 0 {
            port.guid = claim.peer_guid;
        }
    }
    if let Some(message) = disagreement {
        reader.log.file = file;
        reader.log.warn(line, column, message);
    }
    let connected = reader.topology.connect(from, end, width, speed);
    debug_assert!(connected, "both ends were checked to be free");
    Ok(())
}

/// Gives every port that is to have one a GUID, and sees that no two nodes share one.
fn complete_port_guids(reader: &mut Reader<'_>) -> Result<(), ParseError> {
    let mut used: FxHashMap<u64, u32> = reader.node_by_guid.clone();
    if let Some((node_guid, port_guid)) = reader.origin
        && let Some(index) = reader.node_by_guid.get(&node_guid)
        && used.get(&port_guid).is_none_or(|owner| owner == index)
    {
        let node = &mut reader.topology.nodes[*index as usize];
        if node.kind != NodeKind::Switch && node.num_ports() == 1 && node.ports[1].guid == 0 {
            node.ports[1].guid = port_guid;
        }
    }
    for index in 0..reader.topology.nodes.len() {
        let number = u32::try_from(index).expect("bounded by MAX_NODES");
        let mut own: FxHashSet<u64> = FxHashSet::default();
        for port in 0..reader.topology.nodes[index].ports.len() {
            let guid = reader.topology.nodes[index].ports[port].guid;
            if guid == 0 {
                continue;
            }
            let clash = match used.get(&guid) {
                Some(owner) if *owner != number => Some(*owner),
                _ if !own.insert(guid) => Some(number),
                _ => None,
            };
            if let Some(owner) = clash {
                let line = reader.node_lines[index];
                let other = reader.node_lines[owner as usize];
                let message = format!(
                    "guid 0x{guid:x} of port {port} is used by the node of line {other} too; another is taken"
                );
                reader.log.fault(line, 1, message)?;
                let node = &mut reader.topology.nodes[index];
                node.ports[port].guid = if port == 0 { node.guid } else { 0 };
            } else {
                used.insert(guid, number);
            }
        }
    }
    for (node, number) in reader.topology.nodes.iter_mut().zip(0u32..) {
        if node.kind == NodeKind::Switch {
            continue;
        }
        for (port, n) in node.ports.iter_mut().zip(0u64..).skip(1).filter(|(port, _)| port.guid == 0) {
            let first = node.guid.wrapping_add(n);
            let mut guid = first;
            while guid == 0 || used.contains_key(&guid) {
                guid = guid.wrapping_add(1 << 40);
            }
            used.insert(guid, number);
            port.guid = guid;
        }
    }
    Ok(())
}

/// Says where each part of a fabric in pieces starts.
fn report_islands(reader: &mut Reader<'_>) -> Result<(), ParseError> {
    let islands = check::islands(&reader.topology);
    if islands.len() < 2 {
        return Ok(());
    }
    let largest = islands.iter().map(|island| island.nodes).max().unwrap_or(0);
    let at = islands.iter().find(|island| island.nodes < largest).unwrap_or(&islands[1]);
    let line = reader.node_lines[at.first_node as usize];
    let list: Vec<_> = islands
        .iter()
        .take(LISTED)
        .map(|island| {
            let (nodes, line) = (island.nodes, reader.node_lines[island.first_node as usize]);
            format!("{nodes} {} from line {line}", if nodes == 1 { "node" } else { "nodes" })
        })
        .collect();
    let more = if islands.len() > LISTED { ", ..." } else { "" };
    let message = format!(
        "the fabric is in {} parts without a link between them: {}{more}",
        islands.len(),
        list.join(", ")
    );
    reader.log.fault(line, 1, message)
}
