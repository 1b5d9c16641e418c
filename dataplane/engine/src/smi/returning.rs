//! Returning direction (D = 1), rules R1 to R5 in the order of the specification.
//!
//! Pure; see the parent module for ownership and invariants.

use super::{
    DR_DLID, DR_SLID, HOP_COUNT, HOP_POINTER, PERMISSIVE, RETURN_PATH, SmiNode, Verdict, follow_path, lid_at,
    path, start_tail,
};
use crate::packet::Packet;
use madplane_shm::drop_reason::DropReason;

#[inline(always)]
pub(super) fn receive(node: &impl SmiNode, arrival: u8, by_lid: bool, pkt: &mut Packet) -> Verdict {
    let (pointer, count) = (pkt.mad[HOP_POINTER], pkt.mad[HOP_COUNT]);
    // R2: between two hops, the common case; see `Course` as well
    if is_between(pointer, count) {
        if !node.is_switch() {
            return Verdict::discard(DropReason::NotSwitch);
        }
        let port = next_port(pointer, pkt);
        advance(pointer, pkt);
        return follow_path(node, port, pkt);
    }
    // R1: the directed part starts here, after a LID-routed part
    if count != 0 && pointer == count + 1 {
        if !by_lid || lid_at(pkt, DR_DLID) == PERMISSIVE {
            return Verdict::discard(DropReason::HopPointer);
        }
        if !node.is_switch() {
            return Verdict::discard(DropReason::NotSwitch);
        }
        pkt.mad[HOP_POINTER] = count;
        return follow_path(node, path(pkt, RETURN_PATH, count), pkt);
    }
    // R3: end of the directed part
    if pointer == 1 {
        pkt.mad[HOP_POINTER] = 0;
        let dr_slid = lid_at(pkt, DR_SLID);
        if dr_slid == PERMISSIVE {
            return Verdict::Client;
        }
        if !node.is_switch() {
            return Verdict::discard(DropReason::NotSwitch);
        }
        if node.owns_lid(arrival, dr_slid) {
            return Verdict::Client;
        }
        return start_tail(node, arrival, dr_slid, pkt);
    }
    // R4: end of a LID-routed tail, or loopback; R5: beyond
    if pointer == 0 { Verdict::Client } else { Verdict::discard(DropReason::HopPointer) }
}

/// Whether R2 applies.
#[inline(always)]
pub(super) fn is_between(pointer: u8, count: u8) -> bool {
    pointer >= 2 && pointer <= count
}

/// The port by which the packet is to leave a switch between two hops.
#[inline(always)]
pub(super) fn next_port(pointer: u8, pkt: &Packet) -> u8 {
    path(pkt, RETURN_PATH, pointer - 1)
}

/// Moves the pointer back at a switch between two hops.
#[inline(always)]
pub(super) fn advance(pointer: u8, pkt: &mut Packet) {
    pkt.mad[HOP_POINTER] = pointer - 1;
}
