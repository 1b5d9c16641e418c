//! Rules O2 and R2 alone: what a directed SMP does at each of the switches between its ends.
//!
//! Pure; see the parent module for ownership. Nearly all hops are of this kind, and what decides about them is the same from
//! switch to switch, so it is looked at once ([`Course::of`]). Invariant: where a course has no next port nothing has been
//! written, and [`super::receive`] decides as if nobody had asked. Not here: ports and links, which the shard has at hand.

use super::{HOP_COUNT, HOP_POINTER, MAX_HOPS, MGMT_CLASS, PERMISSIVE, outbound, returning};
use crate::packet::Packet;
use madplane_wire::mad::class;
use madplane_wire::smp::field as smp;

/// Where a packet stands in its directed part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course {
    returning: bool,
    count: u8,
    pointer: u8,
}

impl Course {
    /// The course of a packet that is in a directed part.
    #[inline(always)]
    pub(crate) fn of(pkt: &Packet) -> Option<Self> {
        let directed = pkt.dst_qp == 0
            && pkt.mad[MGMT_CLASS] == class::SUBN_DIRECTED
            && pkt.dlid == PERMISSIVE
            && pkt.slid == PERMISSIVE
            && pkt.mad[HOP_COUNT] <= MAX_HOPS;
        directed.then(|| Self {
            returning: smp::DIRECTION.get_bool(&pkt.mad),
            count: pkt.mad[HOP_COUNT],
            pointer: pkt.mad[HOP_POINTER],
        })
    }

    /// The port by which the packet wants to leave a switch, if it is between two hops.
    #[inline(always)]
    pub(crate) fn next_port(self, pkt: &Packet) -> Option<u8> {
        if self.returning {
            returning::is_between(self.pointer, self.count).then(|| returning::next_port(self.pointer, pkt))
        } else {
            outbound::is_between(self.pointer, self.count).then(|| outbound::next_port(self.pointer, pkt))
        }
    }

    /// Lets it leave the switch at which it arrived on port `arrival` and which had a next port for it.
    #[inline(always)]
    pub(crate) fn advance(&mut self, arrival: u8, pkt: &mut Packet) {
        if self.returning {
            returning::advance(self.pointer, pkt);
            self.pointer -= 1;
        } else {
            outbound::advance(self.pointer, arrival, pkt);
            self.pointer += 1;
        }
    }
}
