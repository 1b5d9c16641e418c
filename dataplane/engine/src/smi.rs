//! Subnet management interface: how an SMP moves through one node.
//!
//! Pure functions over [`SmiNode`], called by the shard that owns the node on its worker's thread. They decide from the
//! header alone, write only hop pointer, return path and the LIDs of the packet, and never look at method or R bit while
//! relaying. A verdict of discard leaves the packet in an unspecified state. They know nothing of agents, counters or time.
//!
//! The caller has already checked what does not change on the way: length, base version, class against queue pair.

mod course;
mod outbound;
mod returning;
mod transmit;

pub(crate) use course::Course;
pub(crate) use transmit::answer_by_lid;
pub use transmit::{respond, transmit};

use crate::lid_route;
use crate::packet::Packet;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{class, field as mad};
pub use madplane_wire::smp::PERMISSIVE_LID as PERMISSIVE;
use madplane_wire::smp::field as smp;
use madplane_wire::smp::{INITIAL_PATH, RETURN_PATH};

/// First multicast LID.
pub const MULTICAST: u16 = 0xC000;
/// Largest hop count: 64 path bytes, entry 0 is unused.
pub const MAX_HOPS: u8 = 63;

pub(crate) const MGMT_CLASS: usize = mad::MGMT_CLASS.byte();
pub(crate) const HOP_POINTER: usize = smp::HOP_POINTER.byte();
pub(crate) const HOP_COUNT: usize = smp::HOP_COUNT.byte();
const DR_SLID: usize = smp::DR_SLID.byte();
const DR_DLID: usize = smp::DR_DLID.byte();

/// What the SMI has to know of a node.
pub trait SmiNode {
    /// Whether the node relays.
    fn is_switch(&self) -> bool;
    /// Number of physical ports.
    fn num_ports(&self) -> u8;
    /// Whether `lid` addresses this node when it came in on `port` (a switch owns only the LIDs of port 0).
    fn owns_lid(&self, port: u8, lid: u16) -> bool;
    /// Base LID that the node uses as source on `port`; 0 if it has none.
    fn own_lid(&self, port: u8) -> u16;
    /// Low bits of the LID that `port` may vary.
    fn path_mask(&self, port: u8) -> u16;
    /// Whether the link of `port` is at least Initialize; false for a port that does not exist.
    fn link_up(&self, port: u8) -> bool;
    /// LinearFDBTop.
    fn linear_fdb_top(&self) -> u16;
    /// Forwarding entry of `dlid`, 255 if there is none.
    fn route(&self, dlid: u16) -> u8;
}

/// What happens to a packet at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Leaves by this port with the LIDs now in the packet.
    Forward {
        /// Output port, 1-based.
        port: u8,
    },
    /// For the node's own agent or the client registered for the method.
    Local,
    /// For the client that owns the transaction.
    Client,
    /// Dropped.
    Discard {
        /// Why.
        reason: DropReason,
        /// The output port that was to be used, 0 if none.
        output: u8,
    },
}

impl Verdict {
    /// Discards without an output port.
    #[inline(always)]
    pub(crate) const fn discard(reason: DropReason) -> Self {
        Self::Discard { reason, output: 0 }
    }
}

/// Decides about an SMP that arrived on port `arrival`.
///
/// Cost: constant, no allocation. Source: smi-rules.md sections 1 to 4.
#[inline(always)]
pub fn receive(node: &impl SmiNode, arrival: u8, pkt: &mut Packet) -> Verdict {
    if pkt.dlid == PERMISSIVE {
        if pkt.mad[MGMT_CLASS] != class::SUBN_DIRECTED {
            return Verdict::discard(DropReason::PermissiveLid);
        }
        return directed(node, arrival, false, pkt);
    }
    receive_by_lid(node, arrival, pkt)
}

fn receive_by_lid(node: &impl SmiNode, arrival: u8, pkt: &mut Packet) -> Verdict {
    let dlid = pkt.dlid;
    if dlid == 0 {
        return Verdict::discard(DropReason::DlidInvalid);
    }
    if !node.owns_lid(arrival, dlid) {
        if dlid >= MULTICAST {
            return Verdict::discard(DropReason::Multicast);
        }
        if !node.is_switch() {
            return Verdict::discard(DropReason::NotOurLid);
        }
        return lid_route::relay_smp(node, Some(arrival), dlid);
    }
    if pkt.mad[MGMT_CLASS] == class::SUBN_DIRECTED {
        return directed(node, arrival, true, pkt);
    }
    if pkt.slid == PERMISSIVE {
        return Verdict::discard(DropReason::PermissiveLid);
    }
    Verdict::Local
}

#[inline(always)]
fn directed(node: &impl SmiNode, arrival: u8, by_lid: bool, pkt: &mut Packet) -> Verdict {
    if pkt.mad[HOP_COUNT] > MAX_HOPS {
        return Verdict::discard(DropReason::HopCount);
    }
    if !smp::DIRECTION.get_bool(&pkt.mad) {
        outbound::receive(node, arrival, by_lid, pkt)
    } else {
        returning::receive(node, arrival, by_lid, pkt)
    }
}

/// Sends the directed part on by the port that a path byte names.
#[inline(always)]
fn follow_path(node: &impl SmiNode, port: u8, pkt: &mut Packet) -> Verdict {
    if port == 0 || port > node.num_ports() {
        return Verdict::discard(DropReason::PathPort);
    }
    if !node.link_up(port) {
        return Verdict::Discard { reason: DropReason::PathPortDown, output: port };
    }
    pkt.slid = PERMISSIVE;
    pkt.dlid = PERMISSIVE;
    Verdict::Forward { port }
}

/// Starts a LID-routed tail at this node.
fn start_tail(node: &impl SmiNode, port: u8, dlid: u16, pkt: &mut Packet) -> Verdict {
    if dlid == 0 {
        return Verdict::discard(DropReason::DlidInvalid);
    }
    if dlid >= MULTICAST {
        return Verdict::discard(DropReason::Multicast);
    }
    pkt.slid = node.own_lid(port);
    pkt.dlid = dlid;
    lid_route::relay_smp(node, None, dlid)
}

/// Reads entry `index` of the path that starts at byte `base`.
///
/// Masked to the 64 entries of a path, so that no index can leave it.
#[inline(always)]
fn path(pkt: &Packet, base: usize, index: u8) -> u8 {
    pkt.mad[base + usize::from(index & 0x3F)]
}

#[inline(always)]
fn lid_at(pkt: &Packet, at: usize) -> u16 {
    u16::from_be_bytes([pkt.mad[at], pkt.mad[at + 1]])
}
