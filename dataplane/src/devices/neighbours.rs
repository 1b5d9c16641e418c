//! LIDs for those that have none: the other ends of an Ethernet port, by number.
//!
//! Programs of InfiniBand name a destination by LID; on Ethernet every packet needs a global header with a GID instead, and a LID is 0. So that
//! they run there as they are, the operator gives LIDs to GIDs (`--device ...,peer=LID@GID`), and who sends to the port without having one is
//! given the next that is free, to be answered by it. The numbers mean something at this port of this plane only.
//!
//! Owned by a device's worker; bounded, no allocation after it was made. When all that can be learnt are in use the oldest one gives way.

use madplane_engine::Grh;

/// A GID, wire order.
pub type Gid = [u8; 16];

/// First LID that is given to who has none.
const FIRST_LEARNT: u16 = 0xB000;
/// Others that are remembered by themselves.
const LEARNT: u16 = 64;
/// Routers between the ends of a packet that we address.
const HOP_LIMIT: u8 = 64;

/// Who has which LID.
#[derive(Debug)]
pub struct Neighbours {
    named: Vec<(u16, Gid)>,
    learnt: Vec<Gid>,
    /// The next to give way.
    oldest: usize,
    gid_index: u8,
}

impl Neighbours {
    /// With the LIDs that were given; the port sends by the GID at `gid_index`.
    pub fn new(named: &[(u16, Gid)], gid_index: u8) -> Self {
        Self { named: named.to_vec(), learnt: Vec::with_capacity(usize::from(LEARNT)), oldest: 0, gid_index }
    }

    /// The global header for a packet to `lid`; `None` if nobody has it.
    pub fn header(&self, lid: u16) -> Option<Grh> {
        let named = self.named.iter().find(|(other, _)| *other == lid).map(|(_, gid)| *gid);
        let learnt = || self.learnt.get(usize::from(lid.checked_sub(FIRST_LEARNT)?)).copied();
        let gid = named.or_else(learnt)?;
        Some(Grh { gid_index: self.gid_index, hop_limit: HOP_LIMIT, traffic_class: 0, flow_label: 0, gid })
    }

    /// The LID of who sends from `gid`, from now on.
    pub fn lid_of(&mut self, gid: &Gid) -> u16 {
        if let Some((lid, _)) = self.named.iter().find(|(_, other)| other == gid) {
            return *lid;
        }
        let place = self.learnt.iter().position(|other| other == gid).unwrap_or_else(|| self.learn(gid));
        FIRST_LEARNT + u16::try_from(place).unwrap_or(0)
    }

    fn learn(&mut self, gid: &Gid) -> usize {
        if self.learnt.len() < usize::from(LEARNT) {
            self.learnt.push(*gid);
            return self.learnt.len() - 1;
        }
        let place = self.oldest;
        self.learnt[place] = *gid;
        self.oldest = (place + 1) % self.learnt.len();
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(number: u8) -> Gid {
        let mut gid = [0; 16];
        (gid[0], gid[15]) = (0xfe, number);
        gid
    }

    #[test]
    fn who_was_named_has_that_lid_and_who_was_not_the_next() {
        let mut all = Neighbours::new(&[(7, gid(7))], 3);
        assert_eq!(all.header(7).map(|grh| (grh.gid, grh.gid_index, grh.hop_limit)), Some((gid(7), 3, 64)));
        assert_eq!((all.header(8), all.header(0), all.header(FIRST_LEARNT)), (None, None, None));
        assert_eq!([7, 1, 2, 1].map(|n| all.lid_of(&gid(n))), [7, 0xB000, 0xB001, 0xB000]);
        assert_eq!(all.header(0xB001).map(|grh| grh.gid), Some(gid(2)));
    }

    #[test]
    fn the_oldest_gives_way_and_there_are_never_more() {
        let mut all = Neighbours::new(&[], 0);
        for n in 0..64 {
            assert_eq!(all.lid_of(&gid(n)), FIRST_LEARNT + u16::from(n));
        }
        assert_eq!([100, 101].map(|n| all.lid_of(&gid(n))), [0xB000, 0xB001]);
        assert_eq!(all.header(0xB000).map(|grh| grh.gid), Some(gid(100)));
        assert_eq!(all.lid_of(&gid(2)), 0xB002, "not yet");
        assert_eq!(all.learnt.len(), 64);
    }
}
