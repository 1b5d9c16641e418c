//! Which port has which LID: asked of the fabric itself, from a session, by directed route.
//!
//! Used by madctl; blocks the calling thread for a bounded time. LIDs are given by a subnet manager inside the fabric, so
//! nobody but the nodes knows them. Every node is asked along cables that the topology knows, many at a time; no
//! forwarding table and no LID is needed for that. Only Gets are sent.
//!
//! Without a running plane there is what the fabric's file recorded, which is a hint ([`recorded`]).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use madplane_client::{AgentSpec, Envelope, Outgoing, Session, SessionOptions, Taken};
use madplane_shm::paths::PlanePaths;
use madplane_topology::{NodeKind, PortRef, Topology, find_node};
use madplane_wire::smp::{PERMISSIVE_LID, Smp, SmpMut, attr};

use crate::route::MAX_HOPS;

/// Requests under way at one time.
const WINDOW: usize = 128;
/// How long a node may take; it is asked twice.
const ANSWER_WITHIN_MS: u32 = 250;
/// How long all of them may take.
const ALL_WITHIN: Duration = Duration::from_secs(20);

const METHOD_GET: u8 = 1;
const PORT_INFO_LID: usize = 16;
const PORT_INFO_STATE: usize = 32;
const PORT_INFO_LMC: usize = 34;

/// What a port says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAnswer {
    /// Base LID, 0 for none.
    pub lid: u16,
    /// How many low bits of the LID are the port's own choice.
    pub lmc: u8,
    /// PortState: 1 down, 2 init, 3 armed, 4 active.
    pub state: u8,
}

/// Ports that have a LID of their own: port 0 of switches, the cabled ports of the others.
pub fn lid_ports(topology: &Topology) -> Vec<PortRef> {
    let mut found = Vec::new();
    for (node, entry) in (0u32..).zip(&topology.nodes) {
        if entry.kind == NodeKind::Switch {
            found.push(PortRef { node, port: 0 });
            continue;
        }
        let cabled = (0u8..=255).zip(&entry.ports).skip(1).filter(|(_, port)| port.peer.is_some());
        found.extend(cabled.map(|(port, _)| PortRef { node, port }));
    }
    found
}

/// LIDs that the fabric's source recorded.
pub fn recorded(topology: &Topology) -> HashMap<u16, PortRef> {
    let answer = |end: &PortRef| {
        let port = topology.port(*end)?;
        Some((*end, PortAnswer { lid: port.lid, lmc: port.lmc, state: 0 }))
    };
    by_lid(lid_ports(topology).iter().filter_map(answer))
}

/// Turns answers of ports around: who has a LID. Of two ports with one LID the first has it.
pub fn by_lid(answers: impl IntoIterator<Item = (PortRef, PortAnswer)>) -> HashMap<u16, PortRef> {
    let mut found = HashMap::new();
    for (end, answer) in answers {
        if answer.lid == 0 {
            continue;
        }
        let last = answer.lid.saturating_add((1u16 << answer.lmc.min(7)) - 1);
        for lid in answer.lid..=last {
            found.entry(lid).or_insert(end);
        }
    }
    found
}

/// How to reach every node from `from`: egress ports, at most [`MAX_HOPS`]. A node without an entry cannot be reached.
fn ways(topology: &Topology, from: u32) -> HashMap<u32, Vec<u8>> {
    let mut ways = HashMap::from([(from, Vec::new())]);
    let mut edge = VecDeque::from([from]);
    while let Some(at) = edge.pop_front() {
        let Some(node) = topology.nodes.get(at as usize) else { continue };
        let way = ways.get(&at).cloned().unwrap_or_default();
        if way.len() >= MAX_HOPS || (at != from && node.kind != NodeKind::Switch) {
            continue;
        }
        for (number, port) in (0u8..=255).zip(&node.ports).skip(1) {
            if let Some(peer) = port.peer
                && !ways.contains_key(&peer.node)
            {
                ways.insert(peer.node, [&way[..], &[number]].concat());
                edge.push_back(peer.node);
            }
        }
    }
    ways
}

/// Asks ports of the running plane's nodes for their PortInfo. A port that does not answer is not in the result.
///
/// # Errors
/// One line: no session can be opened, or the plane went away.
pub fn ask(
    paths: &PlanePaths,
    topology: &Topology,
    ports: &[PortRef],
) -> Result<HashMap<PortRef, PortAnswer>, String> {
    let session = Session::open(paths, "", &SessionOptions::default()).map_err(|error| error.to_string())?;
    let spec = AgentSpec { qpn: 0, mgmt_class: 0x81, class_version: 1, ..AgentSpec::default() };
    let agent = session.register(&spec).map_err(|error| error.to_string())?;
    let own = format!("{:#018x}", session.info().node_guid);
    let from = find_node(topology, &own).map_err(|error| error.to_string())?;
    let ways = ways(topology, from);
    let mut found = HashMap::with_capacity(ports.len());
    let (mut asked, mut under_way) = (0, 0usize);
    let until = Instant::now() + ALL_WITHIN;
    while (asked < ports.len() || under_way > 0) && Instant::now() < until {
        while let Some(end) = ports.get(asked).filter(|_| under_way < WINDOW) {
            asked += 1;
            let Some(way) = ways.get(&end.node) else { continue };
            let tid = u64::try_from(asked).unwrap_or(0);
            let mut mad = [0u8; 256];
            SmpMut::new(&mut mad).init_directed(METHOD_GET, attr::PORT_INFO, end.port.into(), tid, way);
            let envelope = Envelope { slid: PERMISSIVE_LID, dlid: PERMISSIVE_LID, ..Envelope::default() };
            let outgoing = Outgoing { agent, envelope, data: &mad, timeout_ms: ANSWER_WITHIN_MS, retries: 1 };
            session.send(&outgoing).map_err(|error| error.to_string())?;
            under_way += 1;
        }
        if under_way == 0 {
            continue;
        }
        let taken = session.recv_with(Some(Duration::from_secs(5)), |incoming| {
            let number =
                incoming.data.get(12..16).and_then(|tid| tid.try_into().ok()).map(u32::from_be_bytes);
            let answer = <&[u8; 256]>::try_from(incoming.data).ok().filter(|_| incoming.status == 0);
            Taken::Done((number, answer.and_then(read)))
        });
        let (number, answer) = taken.map_err(|error| format!("asking the fabric for LIDs: {error}"))?;
        under_way -= 1;
        let end = number.and_then(|number| ports.get((number as usize).checked_sub(1)?));
        if let (Some(end), Some(answer)) = (end, answer) {
            found.insert(*end, answer);
        }
    }
    Ok(found)
}

fn read(mad: &[u8; 256]) -> Option<PortAnswer> {
    let smp = Smp::new(mad);
    let data = smp.data();
    let lid = u16::from_be_bytes([data[PORT_INFO_LID], data[PORT_INFO_LID + 1]]);
    let (lmc, state) = (data[PORT_INFO_LMC] & 7, data[PORT_INFO_STATE] & 15);
    (smp.status() == 0).then_some(PortAnswer { lid, lmc, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lids_of_a_range_belong_to_one_port_and_nothing_goes_over_the_end() {
        let at = |node, port| PortRef { node, port };
        let answer = |lid, lmc| PortAnswer { lid, lmc, state: 4 };
        let found = by_lid([
            (at(0, 0), answer(0, 0)),
            (at(1, 1), answer(4, 2)),
            (at(2, 1), answer(6, 0)),
            (at(3, 1), answer(0xffff, 7)),
        ]);
        let mut lids: Vec<_> = found.iter().map(|(lid, end)| (*lid, end.node)).collect();
        lids.sort_unstable();
        assert_eq!(lids, [(4, 1), (5, 1), (6, 1), (7, 1), (0xffff, 3)]);
    }

    #[test]
    fn every_node_of_a_connected_fabric_has_a_way_that_leads_to_it() {
        let topology = crate::fabric::path::load("builtin:ring,switches=4,hosts=2").unwrap();
        let ways = ways(&topology, 5);
        assert_eq!(ways.len(), topology.nodes.len());
        for (node, way) in ways {
            let mut at = 5;
            for port in way {
                at = topology.port(PortRef { node: at, port }).unwrap().peer.unwrap().node;
            }
            assert_eq!(at, node);
        }
        assert_eq!(lid_ports(&topology).len(), topology.nodes.len());
    }

    #[test]
    fn what_the_source_recorded_is_found_again() {
        let mut topology = crate::fabric::path::load("builtin:ring,switches=3,hosts=1").unwrap();
        assert!(recorded(&topology).is_empty());
        topology.nodes[0].ports[0].lid = 9;
        assert_eq!(recorded(&topology), HashMap::from([(9, PortRef { node: 0, port: 0 })]));
    }
}
