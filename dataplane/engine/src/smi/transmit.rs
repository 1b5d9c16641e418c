//! Sending side: what a local client or the node's own agent hands to the SMI.
//!
//! Pure; see the parent module for ownership and invariants. `port` is the adapter port of the agent, 0 on a switch.

use super::{
    DR_DLID, DR_SLID, HOP_COUNT, HOP_POINTER, INITIAL_PATH, MAX_HOPS, MGMT_CLASS, MULTICAST, PERMISSIVE,
    RETURN_PATH, SmiNode, Verdict, follow_path, lid_at, path, start_tail,
};
use crate::lid_route;
use crate::packet::Packet;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::class;
use madplane_wire::smp::field as smp;

/// Decides about an SMP that a client of this node sends.
///
/// `pkt.dlid` is the destination that the client asked for, `pkt.path_bits` the low bits of its source LID; the LIDs of
/// the packet are set on success. Source: smi-rules.md section 6.
pub fn transmit(node: &impl SmiNode, port: u8, pkt: &mut Packet) -> Verdict {
    if pkt.mad[MGMT_CLASS] != class::SUBN_DIRECTED {
        return send_by_lid(node, port, pkt);
    }
    let (pointer, count) = (pkt.mad[HOP_POINTER], pkt.mad[HOP_COUNT]);
    if count > MAX_HOPS {
        return Verdict::discard(DropReason::HopCount);
    }
    let returning = smp::DIRECTION.get_bool(&pkt.mad);
    let entry = lid_at(pkt, if returning { DR_DLID } else { DR_SLID });
    if entry != PERMISSIVE {
        return send_leading_part(node, port, returning, pkt);
    }
    if returning {
        return send_response(node, port, pkt);
    }
    if pointer != 0 {
        return Verdict::discard(DropReason::HopPointer);
    }
    pkt.mad[HOP_POINTER] = 1;
    if count == 0 {
        let dr_dlid = lid_at(pkt, DR_DLID);
        if dr_dlid == PERMISSIVE || node.owns_lid(port, dr_dlid) {
            return Verdict::Local;
        }
        if !node.is_switch() {
            return Verdict::discard(DropReason::NotSwitch);
        }
        return start_tail(node, port, dr_dlid, pkt);
    }
    let first = path(pkt, INITIAL_PATH, 1);
    if !node.is_switch() && first != port {
        return Verdict::discard(DropReason::PathPort);
    }
    follow_path(node, first, pkt)
}

/// Decides about the answer that the node's own agent made in place of a request.
///
/// `pkt` carries the LIDs of the request; `port` is the arrival port on an adapter, 0 on a switch. Goes beyond
/// [`transmit`] in two cases that only an agent can meet: a request that ended here although it names this very node as
/// the end of a LID-routed tail, and a class 0x81 query without directed part that came by LID.
#[inline(always)]
pub fn respond(node: &impl SmiNode, port: u8, pkt: &mut Packet) -> Verdict {
    let (slid, dlid) = (pkt.slid, pkt.dlid);
    if pkt.mad[MGMT_CLASS] != class::SUBN_DIRECTED {
        pkt.slid = dlid;
        pkt.dlid = slid;
        return answer_by_lid(node, port, pkt);
    }
    if pkt.mad[HOP_COUNT] > MAX_HOPS {
        return Verdict::discard(DropReason::HopCount);
    }
    let dr_dlid = lid_at(pkt, DR_DLID);
    if dr_dlid != PERMISSIVE && dlid != PERMISSIVE {
        pkt.slid = dlid;
        pkt.dlid = slid;
        return answer_by_lid(node, port, pkt);
    }
    let dr_slid = lid_at(pkt, DR_SLID);
    if pkt.mad[HOP_COUNT] == 0 && dr_slid != PERMISSIVE && dlid != PERMISSIVE && !node.owns_lid(port, dr_slid)
    {
        pkt.mad[HOP_POINTER] = 0;
        pkt.slid = dlid;
        pkt.dlid = dr_slid;
        return answer_by_lid(node, port, pkt);
    }
    send_response(node, port, pkt)
}

/// First step of a directed response; the hop pointer has to stand one beyond the hop count.
#[inline(always)]
fn send_response(node: &impl SmiNode, port: u8, pkt: &mut Packet) -> Verdict {
    let count = pkt.mad[HOP_COUNT];
    if pkt.mad[HOP_POINTER] != count + 1 {
        return Verdict::discard(DropReason::HopPointer);
    }
    pkt.mad[HOP_POINTER] = count;
    if count != 0 {
        let first = path(pkt, RETURN_PATH, count);
        if !node.is_switch() && first != port {
            return Verdict::discard(DropReason::PathPort);
        }
        return follow_path(node, first, pkt);
    }
    let dr_slid = lid_at(pkt, DR_SLID);
    if dr_slid == PERMISSIVE || node.owns_lid(port, dr_slid) {
        return Verdict::Client;
    }
    if !node.is_switch() {
        return Verdict::discard(DropReason::NotSwitch);
    }
    start_tail(node, port, dr_slid, pkt)
}

/// A directed SMP whose first part is LID-routed leaves as it is, unless its directed part starts at this very node.
fn send_leading_part(node: &impl SmiNode, port: u8, returning: bool, pkt: &mut Packet) -> Verdict {
    if !node.owns_lid(port, pkt.dlid) {
        return send_by_lid(node, port, pkt);
    }
    if !returning && pkt.mad[HOP_COUNT] == 0 {
        pkt.mad[HOP_POINTER] = 1;
        return Verdict::Local;
    }
    if !returning && pkt.mad[HOP_POINTER] == 0 && node.is_switch() {
        pkt.mad[HOP_POINTER] = 1;
        return follow_path(node, path(pkt, INITIAL_PATH, 1), pkt);
    }
    Verdict::discard(DropReason::HopPointer)
}

fn send_by_lid(node: &impl SmiNode, port: u8, pkt: &mut Packet) -> Verdict {
    pkt.slid = node.own_lid(port) | (u16::from(pkt.path_bits) & node.path_mask(port));
    answer_by_lid(node, port, pkt)
}

/// Plain LID-routed send with the LIDs that the packet carries.
pub(crate) fn answer_by_lid(node: &impl SmiNode, port: u8, pkt: &mut Packet) -> Verdict {
    let dlid = pkt.dlid;
    if node.owns_lid(port, dlid) {
        return if smp::DIRECTION.get_bool(&pkt.mad) && pkt.mad[MGMT_CLASS] == class::SUBN_DIRECTED {
            Verdict::Client
        } else {
            Verdict::Local
        };
    }
    if dlid == 0 || dlid == PERMISSIVE {
        return Verdict::discard(DropReason::DlidInvalid);
    }
    if dlid >= MULTICAST {
        return Verdict::discard(DropReason::Multicast);
    }
    if node.is_switch() {
        return lid_route::relay_smp(node, None, dlid);
    }
    if !node.link_up(port) {
        return Verdict::Discard { reason: DropReason::RoutePortDown, output: port };
    }
    Verdict::Forward { port }
}
