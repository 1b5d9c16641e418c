//! The routes of one shard and what has been found out about their paths.
//!
//! Owned by a shard, touched on its worker's thread. Invariants: `by_key` names a live slot for every key that has one;
//! `hops[..reached]` of a slot follow the cabling from `origin`; `clean` is true of the link state of `epoch` only. The
//! hops of a route are allocated when it is set and never for a packet. Nothing here moves a packet.

use super::cabling::Cable;
use super::{MAX_PATH, MAX_ROUTES, PinnedActivity, PinnedRoute, Place};
use crate::node::NO_PEER;
use crate::packet::Packet;
use crate::smi;
use madplane_wire::mad::{field as mad, method};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Port index of an end that another shard owns.
pub(crate) const ELSEWHERE: u32 = u32::MAX;
/// No sender is known.
pub(crate) const NO_ORIGIN: u32 = u32::MAX;

/// No such route.
const NO_ROUTE: u32 = u32::MAX;

/// SMPs forward, GMPs forward, SMPs back, GMPs back: bits of [`Slot::clean`].
pub(crate) const CLEAN_SMP: u8 = 1;
pub(crate) const CLEAN_GMP: u8 = 2;
pub(crate) const CLEAN_REVERSE_SHIFT: u8 = 2;
pub(crate) const CLEAN_ALL: u8 = 15;

/// One link of a path, as port indices of the shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    /// The end that is nearer to the sender.
    pub(crate) near: u32,
    pub(crate) far: u32,
}

/// One route; `route.path_len` is 0 in a vacant slot.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// One entry per hop of the path.
    pub(crate) hops: Box<[Hop]>,
    /// Link epoch in which `clean` was found.
    pub(crate) epoch: u64,
    /// Sending port from which `hops` were followed, counted over the whole fabric.
    pub(crate) origin: u32,
    /// Origin of the last packet that reached its end here.
    pub(crate) recorded: u32,
    /// The route of the other direction, [`NO_ROUTE`] if there is none.
    pub(crate) counterpart: u32,
    /// Hops that exist.
    pub(crate) reached: u8,
    /// For whom every hop of this shard may be taken without looking.
    pub(crate) clean: u8,
    pub(crate) route: PinnedRoute,
}

impl Slot {
    fn vacant() -> Self {
        Self {
            hops: Box::default(),
            epoch: 0,
            origin: NO_ORIGIN,
            recorded: NO_ORIGIN,
            counterpart: NO_ROUTE,
            reached: 0,
            clean: 0,
            route: PinnedRoute::default(),
        }
    }

    pub(crate) fn key(&self) -> u32 {
        key(self.route.slid, self.route.dlid)
    }

    /// The link that a packet at `place` takes next: its near and far end in the direction of travel.
    pub(crate) fn next(&self, place: Place) -> Option<Hop> {
        if place.reverse {
            let hop = self.hops.get(usize::from(place.hop).checked_sub(1)?)?;
            return (place.hop <= self.reached).then_some(Hop { near: hop.far, far: hop.near });
        }
        (place.hop < self.reached).then(|| self.hops.get(usize::from(place.hop)).copied()).flatten()
    }

    /// The port on which a packet at `place` has arrived.
    pub(crate) fn arrival(&self, place: Place) -> Option<u32> {
        let back = if place.reverse { place.hop.checked_add(1)? } else { place.hop.checked_sub(1)? };
        Some(self.next(Place { hop: back, ..place })?.far)
    }

    /// Whether a packet at `place` has taken its last hop.
    pub(crate) fn at_end(&self, place: Place) -> bool {
        if place.reverse { place.hop == 0 } else { place.hop >= self.route.path_len }
    }

    /// Follows the path along the cables from `origin`; `own` are the ports of this shard.
    pub(crate) fn follow(&mut self, cabling: &[Cable], own: &std::ops::Range<u32>, origin: u32) {
        (self.origin, self.reached) = (origin, 0);
        let local = |port: u32| if own.contains(&port) { port - own.start } else { ELSEWHERE };
        let mut at = origin;
        for (hop, port) in self.hops.iter_mut().zip(self.route.path) {
            let Some(cable) = cabling.get(at as usize) else { return };
            let near = cable.first + u32::from(port);
            // an adapter only sends, and only by the port of the client
            let may_send = cable.is_switch || (self.reached == 0 && near == at);
            if !may_send || port == 0 || port > cable.num_ports {
                return;
            }
            let Some(far) = cabling.get(near as usize).map(|c| c.peer).filter(|peer| *peer != NO_PEER) else {
                return;
            };
            *hop = Hop { near: local(near), far: local(far) };
            self.reached += 1;
            at = far;
        }
    }
}

/// Key of a route or a packet.
fn key(slid: u16, dlid: u16) -> u32 {
    u32::from(slid) << 16 | u32::from(dlid)
}

/// All routes of a shard.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) slots: Vec<Slot>,
    by_key: FxHashMap<u32, u32>,
    /// Slots that are not vacant.
    live: u32,
    /// The route that `by_key` named last: an answer often follows its request at once.
    last: u32,
    /// Moves with every change that may make a hop usable or not.
    pub(crate) epoch: u64,
    pub(crate) cabling: Arc<[Cable]>,
    /// Ports of this shard, counted over the whole fabric.
    pub(crate) own: std::ops::Range<u32>,
    pub(crate) activity: PinnedActivity,
}

impl Routes {
    pub(crate) fn new(cabling: Arc<[Cable]>, own: std::ops::Range<u32>) -> Self {
        Self {
            slots: Vec::new(),
            by_key: FxHashMap::default(),
            live: 0,
            last: NO_ROUTE,
            epoch: 1,
            cabling,
            own,
            activity: PinnedActivity::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Puts `route` at `index`, or takes away what is there; false if it is not a route.
    pub(crate) fn set(&mut self, index: u32, route: Option<&PinnedRoute>) -> bool {
        if index >= MAX_ROUTES {
            return false;
        }
        let valid = route.filter(|r| {
            let unicast = 1..smi::MULTICAST;
            (1..=MAX_PATH).contains(&usize::from(r.path_len))
                && unicast.contains(&r.slid)
                && unicast.contains(&r.dlid)
        });
        let Some(new) = valid else {
            self.remove(index);
            return route.is_none();
        };
        if self.slots.get(index as usize).is_some_and(|slot| slot.route == *new) {
            return true;
        }
        self.remove(index);
        if self.slots.len() <= index as usize {
            self.slots.resize_with(index as usize + 1, Slot::vacant);
        }
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.route = *new;
            slot.hops = vec![Hop { near: ELSEWHERE, far: ELSEWHERE }; usize::from(new.path_len)].into();
            self.by_key.insert(slot.key(), index);
            self.live += 1;
            self.pair(key(new.slid, new.dlid));
        }
        true
    }

    fn remove(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index as usize).filter(|slot| slot.route.path_len != 0) else {
            return;
        };
        let key = slot.key();
        *slot = Slot::vacant();
        self.live -= 1;
        if self.by_key.get(&key) == Some(&index) {
            self.by_key.remove(&key);
            // another index may have had the key before; only then are there more routes than keys
            if self.live as usize > self.by_key.len() {
                let older = (0..).zip(&self.slots).find(|(_, s)| s.route.path_len != 0 && s.key() == key);
                if let Some((older, _)) = older {
                    self.by_key.insert(key, older);
                }
            }
        }
        self.pair(key);
    }

    /// Tells the routes of `key` and of the other direction about each other.
    fn pair(&mut self, key: u32) {
        self.last = NO_ROUTE;
        for key in [key, key.rotate_left(16)] {
            let counterpart = self.by_key.get(&key.rotate_left(16)).copied().unwrap_or(NO_ROUTE);
            if let Some(slot) = self.by_key.get(&key).and_then(|index| self.slots.get_mut(*index as usize)) {
                slot.counterpart = counterpart;
            }
        }
    }

    /// The route of a packet with these LIDs, and whether the packet is a reply on its way back.
    #[inline(always)]
    pub(crate) fn find(&mut self, slid: u16, dlid: u16, pkt: &Packet) -> Option<(u32, bool)> {
        let is_reply = mad::METHOD.get_u8(&pkt.mad) & method::RESPONSE != 0;
        if is_reply
            && let Some(slot) = self.slots.get(self.last as usize)
            && slot.key() == key(dlid, slid)
        {
            let own = slot.counterpart;
            return Some(if own == NO_ROUTE { (self.last, true) } else { (own, false) });
        }
        if let Some(index) = self.by_key.get(&key(slid, dlid)) {
            self.last = *index;
            return Some((*index, false));
        }
        if !is_reply {
            return None;
        }
        let index = self.by_key.get(&key(dlid, slid))?;
        Some((*index, true))
    }

    /// The route at `place`, if it still is the one of the packet.
    pub(crate) fn of(&self, place: Place, pkt: &Packet) -> Option<(u32, &Slot)> {
        let index = place.route.checked_sub(1)?;
        let slot = self.slots.get(index as usize).filter(|slot| slot.route.path_len != 0)?;
        let (slid, dlid) = if place.reverse { (pkt.dlid, pkt.slid) } else { (pkt.slid, pkt.dlid) };
        (slot.key() == key(slid, dlid)).then_some((index, slot))
    }
}
