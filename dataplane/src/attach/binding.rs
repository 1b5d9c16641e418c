//! Sessions with a path of their own: what a client, or control, asks for, and telling every worker.
//!
//! Every worker holds every path, since a MAD may cross any of them on its way. Owned by housekeeping. Not here: how a MAD
//! follows a path (the engine).

use madplane_engine::{NodeId, OnBroken, PinnedRoute};
use madplane_shm::command::Command;
use madplane_shm::handoff::{Reply, Request, flag};
use madplane_shm::table::on_broken;
use madplane_topology::{NodeKind, PortRef, Topology};

use super::Housekeeping;
use super::connections::libc_errno::{EINVAL, EIO, ENOENT};
use crate::devices::is_device;
use crate::orders::Order;

impl Housekeeping {
    /// BIND_PATH of a client: its own session.
    pub(super) fn bind_path(&mut self, index: usize, request: &Request) -> Result<(), (i32, String)> {
        let slot = self.session_of(index)?;
        let ports = request.path().ok_or_else(too_long)?;
        self.bind(slot, ports, request.flags & flag::DROP_BROKEN != 0)?;
        self.answer_to(index, &Reply::default(), &[]);
        Ok(())
    }

    /// BIND_SESSION of control: any session. Returns where it sits.
    pub(super) fn bind_session(&mut self, item: &Command) -> Result<PortRef, (i32, String)> {
        let slot = item.value;
        let Some(state) = self.slots.get(slot as usize).filter(|state| state.open) else {
            return Err((ENOENT, format!("there is no session {}", slot.saturating_add(1))));
        };
        let (node, port) = state.place;
        let ports = item.path().ok_or_else(too_long)?;
        self.bind(slot, ports, item.flags & flag::DROP_BROKEN != 0)?;
        Ok(PortRef { node, port })
    }

    fn bind(&mut self, slot: u32, ports: &[u8], drop_broken: bool) -> Result<(), (i32, String)> {
        let place = self.slots[slot as usize].place;
        // only the subnet behind a device knows its cables
        if !is_device(place.0) {
            follow(&self.topology, place, ports).map_err(|text| (EINVAL, text))?;
        }
        let mut route = PinnedRoute {
            on_broken: if drop_broken { OnBroken::Drop } else { OnBroken::Fallback },
            path_len: u8::try_from(ports.len()).map_err(|_| too_long())?,
            ..PinnedRoute::default()
        };
        route.path[..ports.len()].copy_from_slice(ports);
        let bound = !ports.is_empty();
        self.slots[slot as usize].bound = bound;
        for worker in 0..self.desks.len() {
            let route = bound.then(|| Box::new(route));
            if self.ask(worker, Order::Bind { slot, route }).is_none() {
                return Err((EIO, "a worker did not take the path".to_owned()));
            }
        }
        let shown = if drop_broken && bound { on_broken::DROP } else { on_broken::FALLBACK };
        self.status.session(slot as usize).store_path(ports, shown);
        Ok(())
    }

    /// Takes the path of a session away that is closed.
    pub(super) fn unbind(&mut self, slot: u32) {
        if std::mem::take(&mut self.slots[slot as usize].bound) {
            for worker in 0..self.desks.len() {
                self.ask(worker, Order::Bind { slot, route: None });
            }
        }
    }
}

fn too_long() -> (i32, String) {
    (EINVAL, "a path has at most 63 ports".to_owned())
}

/// Follows a path along the cables, whether they are plugged at the moment or not.
///
/// # Errors
/// One line that names the hop that does not exist.
fn follow(topology: &Topology, (mut node, port): (NodeId, u8), ports: &[u8]) -> Result<(), String> {
    for (hop, out) in (1..).zip(ports) {
        let Some(here) = topology.nodes.get(node as usize) else { return Err(format!("no node {node}")) };
        if here.kind != NodeKind::Switch && hop > 1 {
            return Err(format!("hop {hop} of the path leaves {:?}, which does not relay", here.description));
        }
        if here.kind != NodeKind::Switch && *out != port {
            return Err(format!("the path starts at port {out}, the session sits at port {port}"));
        }
        let end = PortRef { node, port: *out };
        let peer = if *out == 0 { None } else { topology.port(end).and_then(|port| port.peer) };
        let Some(peer) = peer else {
            return Err(format!("hop {hop} of the path: {:?} has no cable at port {out}", here.description));
        };
        node = peer.node;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_the_cables_do_not_have_is_refused_at_its_hop() {
        let topology = madplane_topology::from_spec("fat-tree,radix=4,levels=2").unwrap();
        let host = topology.nodes.iter().position(|node| node.kind == NodeKind::Ca).unwrap();
        let host = u32::try_from(host).unwrap();
        let leaf = topology.port(PortRef { node: host, port: 1 }).unwrap().peer.unwrap();
        let back = leaf.port;
        assert_eq!(follow(&topology, (host, 1), &[]), Ok(()));
        assert_eq!(follow(&topology, (host, 1), &[1, back]), Ok(()));
        let refused = |ports: &[u8]| follow(&topology, (host, 1), ports).unwrap_err();
        assert!(refused(&[2]).contains("sits at port 1"), "{}", refused(&[2]));
        assert!(refused(&[1, 99]).starts_with("hop 2 of the path"), "{}", refused(&[1, 99]));
        assert!(refused(&[1, 0]).contains("no cable at port 0"));
        assert!(refused(&[1, back, 1]).contains("does not relay"));
        assert!(follow(&topology, (leaf.node, 0), &[back]).is_ok());
    }
}
