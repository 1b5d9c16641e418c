//! Outgoing direction (D = 0), rules O1 to O5 in the order of the specification.
//!
//! Pure; see the parent module for ownership and invariants.

use super::{
    DR_DLID, DR_SLID, HOP_COUNT, HOP_POINTER, INITIAL_PATH, PERMISSIVE, RETURN_PATH, SmiNode, Verdict,
    follow_path, lid_at, path, start_tail,
};
use crate::packet::Packet;
use madplane_shm::drop_reason::DropReason;

#[inline(always)]
pub(super) fn receive(node: &impl SmiNode, arrival: u8, by_lid: bool, pkt: &mut Packet) -> Verdict {
    let (pointer, count) = (pkt.mad[HOP_POINTER], pkt.mad[HOP_COUNT]);
    // O2: between two hops, the common case; see `Course` as well
    if is_between(pointer, count) {
        if !node.is_switch() {
            return Verdict::discard(DropReason::NotSwitch);
        }
        let port = next_port(pointer, pkt);
        advance(pointer, arrival, pkt);
        return follow_path(node, port, pkt);
    }
    // O3: end of the directed part
    if pointer == count {
        if count != 0 {
            pkt.mad[RETURN_PATH + usize::from(pointer & 0x3F)] = arrival;
        }
        pkt.mad[HOP_POINTER] = pointer + 1;
        let dr_dlid = lid_at(pkt, DR_DLID);
        if dr_dlid == PERMISSIVE {
            return Verdict::Local;
        }
        return end_with_tail(node, arrival, dr_dlid, pkt);
    }
    // O1: the directed part starts here, after a LID-routed part
    if pointer == 0 {
        if !by_lid || lid_at(pkt, DR_SLID) == PERMISSIVE {
            return Verdict::discard(DropReason::HopPointer);
        }
        if !node.is_switch() {
            return Verdict::discard(DropReason::NotSwitch);
        }
        pkt.mad[HOP_POINTER] = 1;
        return follow_path(node, path(pkt, INITIAL_PATH, 1), pkt);
    }
    // O4: end of a LID-routed tail; O5: beyond
    if pointer == count + 1 { Verdict::Local } else { Verdict::discard(DropReason::HopPointer) }
}

/// Whether O2 applies.
#[inline(always)]
pub(super) fn is_between(pointer: u8, count: u8) -> bool {
    pointer != 0 && pointer < count
}

/// The port by which the packet is to leave a switch between two hops.
#[inline(always)]
pub(super) fn next_port(pointer: u8, pkt: &Packet) -> u8 {
    path(pkt, INITIAL_PATH, pointer + 1)
}

/// Moves the pointer on at a switch between two hops.
#[inline(always)]
pub(super) fn advance(pointer: u8, arrival: u8, pkt: &mut Packet) {
    pkt.mad[RETURN_PATH + usize::from(pointer & 0x3F)] = arrival;
    pkt.mad[HOP_POINTER] = pointer + 1;
}

/// O3b.
fn end_with_tail(node: &impl SmiNode, arrival: u8, dr_dlid: u16, pkt: &mut Packet) -> Verdict {
    if !node.is_switch() {
        return Verdict::discard(DropReason::NotSwitch);
    }
    if node.owns_lid(arrival, dr_dlid) {
        return Verdict::Local;
    }
    start_tail(node, arrival, dr_dlid, pkt)
}
