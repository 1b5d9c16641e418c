//! The routes of one shard and what has been found out about their paths.
//!
//! Owned by a shard, touched on its worker's thread. Invariants: `by_key` names a live slot for every key that has one,
//! and slots of the same key are chained from it; `hops()[..reached]` of a slot follow the cabling from `origin`; `clean`
//! and `express` are true of the link state of `epoch` only. A path longer than [`INLINE_HOPS`] is allocated when its route
//! is set, and nothing ever is for a packet. Nothing here moves a packet.

use super::cabling::Cable;
use super::index::KeyIndex;
use super::{MAX_BOUND, MAX_PATH, MAX_ROUTES, OnBroken, PinnedActivity, PinnedRoute, Place};
use crate::node::NO_PEER;
use crate::packet::{Packet, right};
use crate::smi;
use madplane_wire::mad::{field as mad, method};
use std::sync::Arc;

/// Port index of an end that another shard owns.
pub(crate) const ELSEWHERE: u32 = u32::MAX;
/// No sender is known.
pub(crate) const NO_ORIGIN: u32 = u32::MAX;

/// No such route.
const NO_ROUTE: u32 = u32::MAX;
/// Hops that a slot holds itself.
const INLINE_HOPS: usize = 8;

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

const NOWHERE: Hop = Hop { near: ELSEWHERE, far: ELSEWHERE };

/// What a packet needs of a route: two cache lines, the first of them alone for a path of up to two hops.
///
/// `path_len` is 0 in a vacant slot.
#[derive(Debug, Clone)]
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// Source LID in the upper half, destination LID in the lower.
    key: u32,
    /// Sending port from which the hops were followed, counted over the whole fabric.
    pub(crate) origin: u32,
    /// Origin of the last packet that reached its end here.
    pub(crate) recorded: u32,
    /// Endport at which the path ends; means something only where `express` is not 0.
    pub(crate) end: u32,
    /// Link epoch in which `clean` was found.
    pub(crate) epoch: u64,
    /// P_Key that a GMP has to match; 0 takes every key.
    pub(crate) p_key: u16,
    /// Number of hops.
    pub(crate) path_len: u8,
    pub(crate) on_broken: OnBroken,
    /// Hops that exist.
    pub(crate) reached: u8,
    /// For whom every hop of this shard may be taken without looking.
    pub(crate) clean: u8,
    /// `clean` if the whole path lies in this shard, else 0.
    pub(crate) express: u8,
    /// Whether no hop has an end in another shard; true of `hops()[..reached]`.
    whole: bool,
    /// The route of the other direction when the routes stood at `paired`; [`NO_ROUTE`] if there was none.
    counterpart: u32,
    /// Whom the route serves: tenant in the upper half, whether it is for the reserved class only in the lower; 0 for all.
    serves: u32,
    paired: u64,
    /// The path, unless it is longer.
    few: [Hop; INLINE_HOPS],
    /// The path if it is longer.
    many: Box<[Hop]>,
}

const _: () = assert!(size_of::<Slot>() == 128);

impl Slot {
    fn vacant() -> Self {
        Self {
            key: 0,
            origin: NO_ORIGIN,
            recorded: NO_ORIGIN,
            end: ELSEWHERE,
            epoch: 0,
            p_key: 0,
            path_len: 0,
            on_broken: OnBroken::Fallback,
            reached: 0,
            clean: 0,
            express: 0,
            whole: false,
            counterpart: NO_ROUTE,
            serves: 0,
            paired: 0,
            few: [NOWHERE; INLINE_HOPS],
            many: Box::default(),
        }
    }

    fn of_route(route: &PinnedRoute) -> Self {
        let mut slot = Self::vacant();
        slot.set(route);
        slot
    }

    /// Makes this the slot of `route`, whose path is not followed yet. Writes the first line only, unless a path is long.
    fn set(&mut self, route: &PinnedRoute) {
        self.forget_path(route.path_len);
        self.key = key(route.slid, route.dlid);
        self.p_key = route.p_key;
        self.on_broken = route.on_broken;
        self.serves = served(route);
    }

    fn vacate(&mut self) {
        self.forget_path(0);
        self.key = 0;
    }

    fn forget_path(&mut self, path_len: u8) {
        if usize::from(self.path_len.max(path_len)) > INLINE_HOPS {
            let hops = usize::from(path_len);
            self.many = if hops > INLINE_HOPS { vec![NOWHERE; hops].into() } else { Box::default() };
        }
        (self.origin, self.recorded, self.epoch) = (NO_ORIGIN, NO_ORIGIN, 0);
        (self.path_len, self.reached, self.clean, self.express) = (path_len, 0, 0, 0);
    }

    /// Whether this is the slot of `route`, as far as it is known without the path.
    fn is_of(&self, route: &PinnedRoute) -> bool {
        self.path_len == route.path_len
            && self.p_key == route.p_key
            && self.on_broken == route.on_broken
            && self.serves == served(route)
    }

    /// Whether the route is there for this packet.
    #[inline(always)]
    pub(crate) fn serves(&self, pkt: &Packet) -> bool {
        self.serves == 0 || self.serves_only(pkt)
    }

    #[inline(never)]
    fn serves_only(&self, pkt: &Packet) -> bool {
        let tenant = self.serves >> 16;
        (tenant == 0 || tenant == u32::from(pkt.tenant))
            && (self.serves & 1 == 0 || pkt.rights & right::RESERVED != 0)
    }

    /// One entry per hop of the path.
    #[inline(always)]
    pub(crate) fn hops(&self) -> &[Hop] {
        self.few.get(..usize::from(self.path_len)).unwrap_or(&self.many)
    }

    /// The link that a packet at `place` takes next: its near and far end in the direction of travel.
    pub(crate) fn next(&self, place: Place) -> Option<Hop> {
        if place.reverse {
            let hop = self.hops().get(usize::from(place.hop).checked_sub(1)?)?;
            return (place.hop <= self.reached).then_some(Hop { near: hop.far, far: hop.near });
        }
        (place.hop < self.reached).then(|| self.hops().get(usize::from(place.hop)).copied()).flatten()
    }

    /// The port on which a packet at `place` has arrived.
    pub(crate) fn arrival(&self, place: Place) -> Option<u32> {
        let back = if place.reverse { place.hop.checked_add(1)? } else { place.hop.checked_sub(1)? };
        Some(self.next(Place { hop: back, ..place })?.far)
    }

    /// Whether a packet at `place` has taken its last hop.
    pub(crate) fn at_end(&self, place: Place) -> bool {
        if place.reverse { place.hop == 0 } else { place.hop >= self.path_len }
    }

    /// What is known of the links is true of them in link epoch `epoch`: `clean` says for whom they are open.
    #[inline(always)]
    pub(crate) fn inspected(&mut self, epoch: u64, clean: u8) {
        (self.epoch, self.clean) = (epoch, clean);
        self.express = if self.whole { clean } else { 0 };
    }

    /// Follows `path` along the cables from `origin`; `own` are the ports of this shard. The links are to be inspected.
    fn follow(&mut self, path: &[u8], cabling: &[Cable], own: &std::ops::Range<u32>, origin: u32) {
        (self.origin, self.epoch, self.reached, self.whole) = (origin, 0, 0, true);
        let local = |port: u32| if own.contains(&port) { port - own.start } else { ELSEWHERE };
        let hops = self.few.get_mut(..usize::from(self.path_len)).unwrap_or(&mut self.many);
        let mut at = origin;
        for (hop, port) in hops.iter_mut().zip(path) {
            let Some(cable) = cabling.get(at as usize) else { return };
            let near = cable.first + u32::from(*port);
            // an adapter only sends, and only by the port of the client
            let may_send = cable.is_switch || (self.reached == 0 && near == at);
            if !may_send || *port == 0 || *port > cable.num_ports {
                return;
            }
            let Some(far) = cabling.get(near as usize).map(|c| c.peer).filter(|peer| *peer != NO_PEER) else {
                return;
            };
            *hop = Hop { near: local(near), far: local(far) };
            self.whole &= own.contains(&near) && own.contains(&far);
            self.reached += 1;
            at = far;
        }
        self.end = cabling
            .get(at as usize)
            .map_or(ELSEWHERE, |end| local(if end.is_switch { end.first } else { at }));
    }
}

/// What is needed only when routes change or are followed anew.
#[derive(Debug, Clone)]
struct Cold {
    /// The next older route with the same LIDs.
    older: u32,
    /// A newer route has the same LIDs.
    hidden: bool,
    /// As many bytes count as the slot says.
    path: [u8; MAX_PATH],
}

impl Cold {
    const VACANT: Self = Self { older: NO_ROUTE, hidden: false, path: [0; MAX_PATH] };
}

/// [`Slot::serves`] of a route.
fn served(route: &PinnedRoute) -> u32 {
    u32::from(route.tenant) << 16 | u32::from(route.priority > 0)
}

/// Key of a route or a packet; not 0 for a route.
fn key(slid: u16, dlid: u16) -> u32 {
    u32::from(slid) << 16 | u32::from(dlid)
}

/// Memory for the routes of a shard, touched when it is made: for whoever may allocate where a worker must not wait.
#[derive(Debug, Default)]
pub struct RouteRoom {
    slots: Vec<Slot>,
    cold: Vec<Cold>,
    by_key: KeyIndex,
}

impl RouteRoom {
    /// Room for the indices below `indices`.
    pub fn new(indices: u32) -> Self {
        let indices = indices.min(MAX_ROUTES) as usize;
        let mut room = Self { slots: Vec::new(), cold: Vec::new(), by_key: KeyIndex::default() };
        room.slots.resize(indices, Slot::vacant());
        room.cold.resize(indices, Cold::VACANT);
        room.slots.clear();
        room.cold.clear();
        room.by_key.reserve(indices);
        room
    }
}

/// All routes of a shard.
#[derive(Debug)]
pub(crate) struct Routes {
    slots: Vec<Slot>,
    /// One for each slot.
    cold: Vec<Cold>,
    /// Senders' own paths, with the indices from [`MAX_ROUTES`] on; without keys.
    bound: Vec<(Slot, PinnedRoute)>,
    by_key: KeyIndex,
    /// Slots that are not vacant, bound ones with them.
    live: u32,
    /// The route that `by_key` named last: an answer often follows its request at once.
    last: u32,
    /// Moves with every change of the routes.
    version: u64,
    /// Moves with every change that may make a hop usable or not.
    pub(crate) epoch: u64,
    cabling: Arc<[Cable]>,
    /// Ports of this shard, counted over the whole fabric.
    pub(crate) own: std::ops::Range<u32>,
    pub(crate) activity: PinnedActivity,
}

impl Routes {
    pub(crate) fn new(cabling: Arc<[Cable]>, own: std::ops::Range<u32>) -> Self {
        Self {
            slots: Vec::new(),
            cold: Vec::new(),
            bound: Vec::new(),
            by_key: KeyIndex::default(),
            live: 0,
            last: NO_ROUTE,
            version: 0,
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

    /// The slot of a route or of a sender's own path.
    #[inline(always)]
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        match self.slots.get(index as usize) {
            None => self.bound.get(index.wrapping_sub(MAX_ROUTES) as usize).map(|bound| &bound.0),
            found => found,
        }
    }

    /// As [`Routes::slot`], to write.
    #[inline(always)]
    pub(crate) fn slot_mut(&mut self, index: u32) -> Option<&mut Slot> {
        match self.slots.get_mut(index as usize) {
            None => self.bound.get_mut(index.wrapping_sub(MAX_ROUTES) as usize).map(|bound| &mut bound.0),
            found => found,
        }
    }

    /// As [`Routes::slot_mut`], with what is counted and the link epoch.
    #[inline(always)]
    pub(crate) fn slot_and_activity(&mut self, index: u32) -> Option<(&mut Slot, &mut PinnedActivity, u64)> {
        let slot = match self.slots.get_mut(index as usize) {
            None => &mut self.bound.get_mut(index.wrapping_sub(MAX_ROUTES) as usize)?.0,
            Some(slot) => slot,
        };
        Some((slot, &mut self.activity, self.epoch))
    }

    /// Gives `number` a path of its own or takes it away; false if it is not one. LIDs and keys do not matter.
    pub(crate) fn bind(&mut self, number: u16, route: Option<&PinnedRoute>) -> bool {
        if number >= MAX_BOUND {
            return false;
        }
        let valid = route.filter(|route| (1..=MAX_PATH).contains(&usize::from(route.path_len)));
        if valid.is_none() && usize::from(number) >= self.bound.len() {
            return route.is_none();
        }
        while self.bound.len() <= usize::from(number) {
            self.bound.push((Slot::vacant(), PinnedRoute::default()));
        }
        let Some((slot, path)) = self.bound.get_mut(usize::from(number)) else { return false };
        self.live -= u32::from(slot.path_len != 0);
        let new = valid.map(|route| PinnedRoute {
            path: route.path,
            path_len: route.path_len,
            on_broken: route.on_broken,
            ..PinnedRoute::default()
        });
        *slot = new.as_ref().map_or_else(Slot::vacant, Slot::of_route);
        *path = new.unwrap_or_default();
        self.live += u32::from(slot.path_len != 0);
        valid.is_some() || route.is_none()
    }

    /// Index of the path of the sender of `pkt`, if it has one of its own.
    #[inline(always)]
    pub(crate) fn own_path(&self, pkt: &Packet) -> Option<u32> {
        if pkt.bound == 0 {
            return None;
        }
        let index = MAX_ROUTES + u32::from(pkt.bound - 1);
        self.slot(index).filter(|slot| slot.path_len != 0).map(|_| index)
    }

    /// Moves the routes into `room` and leaves there the memory that they had. Cost: by routes.
    pub(crate) fn move_into(&mut self, room: &mut RouteRoom) {
        while self.slots.last().is_some_and(|slot| slot.path_len == 0) {
            self.slots.pop();
            self.cold.pop();
        }
        room.slots.append(&mut self.slots);
        room.cold.append(&mut self.cold);
        room.by_key.take_over(&self.by_key);
        std::mem::swap(&mut self.slots, &mut room.slots);
        std::mem::swap(&mut self.cold, &mut room.cold);
        std::mem::swap(&mut self.by_key, &mut room.by_key);
        self.changed();
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
        let (key, hops) = (key(new.slid, new.dlid), usize::from(new.path_len));
        if let (Some(slot), Some(cold)) =
            (self.slots.get_mut(index as usize), self.cold.get_mut(index as usize))
            && slot.path_len != 0
            && slot.key == key
        {
            if slot.is_of(new) && cold.path[..hops] == new.path[..hops] {
                return true;
            }
            if !cold.hidden {
                slot.set(new);
                cold.path[..hops].copy_from_slice(&new.path[..hops]);
                self.changed();
                return true;
            }
        }
        self.remove(index);
        self.changed();
        let older = self.by_key.insert(key, index).unwrap_or(NO_ROUTE);
        if let Some(older) = self.cold.get_mut(older as usize) {
            older.hidden = true;
        }
        while self.slots.len() <= index as usize {
            self.slots.push(Slot::vacant());
            self.cold.push(Cold::VACANT);
        }
        self.live += 1;
        self.slots[index as usize].set(new);
        let cold = &mut self.cold[index as usize];
        (cold.older, cold.hidden) = (older, false);
        cold.path[..hops].copy_from_slice(&new.path[..hops]);
        true
    }

    fn remove(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index as usize).filter(|slot| slot.path_len != 0) else {
            return;
        };
        let key = slot.key;
        slot.vacate();
        let gone = &mut self.cold[index as usize];
        let older = std::mem::replace(&mut gone.older, NO_ROUTE);
        let hidden = std::mem::take(&mut gone.hidden);
        self.live -= 1;
        self.changed();
        if hidden {
            // taken out of the chain of those with the same LIDs
            let mut at = self.by_key.get(key).unwrap_or(NO_ROUTE);
            while let Some(cold) = self.cold.get_mut(at as usize) {
                if cold.older == index {
                    cold.older = older;
                    break;
                }
                at = cold.older;
            }
        } else if let Some(cold) = self.cold.get_mut(older as usize) {
            cold.hidden = false;
            self.by_key.insert(key, older);
        } else {
            self.by_key.remove(key);
        }
    }

    /// What was remembered about which route belongs to which packet counts no more.
    fn changed(&mut self) {
        self.last = NO_ROUTE;
        self.version += 1;
    }

    /// The route of a packet with these LIDs, and whether the packet is a reply on its way back.
    #[inline(always)]
    pub(crate) fn find(&mut self, slid: u16, dlid: u16, pkt: &Packet) -> Option<(u32, bool)> {
        let is_reply = mad::METHOD.get_u8(&pkt.mad) & method::RESPONSE != 0;
        if is_reply
            && let Some(slot) = self.slots.get_mut(self.last as usize)
            && slot.key == key(dlid, slid)
        {
            if slot.paired != self.version {
                slot.paired = self.version;
                slot.counterpart = self.by_key.get(key(slid, dlid)).unwrap_or(NO_ROUTE);
            }
            let own = slot.counterpart;
            return Some(if own == NO_ROUTE { (self.last, true) } else { (own, false) });
        }
        if let Some(index) = self.by_key.get(key(slid, dlid)) {
            self.last = index;
            return Some((index, false));
        }
        if !is_reply {
            return None;
        }
        let index = self.by_key.get(key(dlid, slid))?;
        Some((index, true))
    }

    /// [`Routes::find`] for a packet whom the route found does not serve: a reply may go back by the route of its request.
    #[cold]
    pub(crate) fn find_past(&self, slid: u16, dlid: u16, reverse: bool, pkt: &Packet) -> Option<(u32, bool)> {
        let is_reply = mad::METHOD.get_u8(&pkt.mad) & method::RESPONSE != 0;
        if reverse || !is_reply {
            return None;
        }
        let index = self.by_key.get(key(dlid, slid))?;
        self.slots.get(index as usize)?.serves(pkt).then_some((index, true))
    }

    /// The path that a request with the LIDs of `pkt` takes, and the index of its route: of its sender's own path first, without index.
    pub(crate) fn path_of(&self, pkt: &Packet) -> Option<(Option<u32>, &[u8])> {
        if self.is_empty() {
            return None;
        }
        if let Some(index) = self.own_path(pkt) {
            let (slot, route) = self.bound.get(index.wrapping_sub(MAX_ROUTES) as usize)?;
            return Some((None, route.path.get(..usize::from(slot.path_len))?));
        }
        let index = self.by_key.get(key(pkt.slid, pkt.dlid))?;
        let (slot, cold) = (self.slots.get(index as usize)?, self.cold.get(index as usize)?);
        let path = cold.path.get(..usize::from(slot.path_len))?;
        slot.serves(pkt).then_some((Some(index), path))
    }

    /// The route at `place`, if it still is the one of the packet.
    pub(crate) fn of(&self, place: Place, pkt: &Packet) -> Option<(u32, &Slot)> {
        let index = place.route.checked_sub(1)?;
        let slot = self.slot(index).filter(|slot| slot.path_len != 0)?;
        if index >= MAX_ROUTES {
            return (self.own_path(pkt) == Some(index)).then_some((index, slot));
        }
        let (slid, dlid) = if place.reverse { (pkt.dlid, pkt.slid) } else { (pkt.slid, pkt.dlid) };
        (slot.key == key(slid, dlid)).then_some((index, slot))
    }

    /// Follows the path of `index` from `origin`.
    #[cold]
    pub(crate) fn follow(&mut self, index: u32, origin: u32) {
        let Self { slots, cold, bound, cabling, own, .. } = self;
        if let (Some(slot), Some(cold)) = (slots.get_mut(index as usize), cold.get(index as usize)) {
            slot.follow(&cold.path, cabling, own, origin);
        } else if let Some((slot, route)) = bound.get_mut(index.wrapping_sub(MAX_ROUTES) as usize) {
            slot.follow(&route.path, cabling, own, origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_set_last_counts_whatever_was_set_and_taken_away_before() {
        const PLACES: u32 = 40;
        let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
        let mut roll = |below: u16| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u16::try_from((dice >> 33) % u64::from(below)).unwrap()
        };
        let mut routes = Routes::new(Arc::default(), 0..0);
        // by place: the route and when it was set
        let mut model: Vec<Option<(PinnedRoute, u32)>> = vec![None; PLACES as usize];
        for now in 0..30_000 {
            let place = u32::from(roll(u16::try_from(PLACES).unwrap()));
            let mut route = PinnedRoute { slid: 1 + roll(3), dlid: 1 + roll(3), ..PinnedRoute::default() };
            route.path_len = [1, 2, 8, 9, 63][usize::from(roll(5))];
            route.path.fill(1);
            route.path[usize::from(route.path_len) - 1] = u8::try_from(1 + roll(2)).unwrap();
            let model = &mut model[..];
            let at = &mut model[place as usize];
            let mut same = route;
            if roll(3) == 0 {
                assert!(routes.set(place, None));
                *at = None;
            } else {
                if let Some((known, _)) = at
                    && roll(4) == 0
                {
                    same = *known;
                }
                assert!(routes.set(place, Some(&same)));
                let known = |(known, _): &(PinnedRoute, u32)| {
                    let hops = usize::from(same.path_len);
                    (known.slid, known.dlid, known.path_len) == (same.slid, same.dlid, same.path_len)
                        && known.path[..hops] == same.path[..hops]
                };
                if !at.as_ref().is_some_and(known) {
                    // a route that already counts stays where it is among those of the same LIDs
                    let counts = at.filter(|(old, set)| {
                        let newer = |other: &(PinnedRoute, u32)| {
                            (other.0.slid, other.0.dlid) == (old.slid, old.dlid) && other.1 > *set
                        };
                        (old.slid, old.dlid) == (same.slid, same.dlid) && !model.iter().flatten().any(newer)
                    });
                    let set = counts.map_or(now + 1, |(_, set)| set);
                    model[place as usize] = Some((same, set));
                }
            }
            assert_eq!(routes.live as usize, model.iter().flatten().count());
            for (slid, dlid) in (1..=3).flat_map(|slid| (1..=3).map(move |dlid| (slid, dlid))) {
                let newest = (0u32..)
                    .zip(model.iter())
                    .filter_map(|(place, route)| route.map(|(route, set)| (place, route, set)))
                    .filter(|(_, route, _)| (route.slid, route.dlid) == (slid, dlid))
                    .max_by_key(|(.., set)| *set);
                let found = routes.by_key.get(key(slid, dlid));
                assert_eq!(found, newest.map(|(place, ..)| place), "step {now}");
                if let Some((place, route, _)) = newest {
                    let slot = &routes.slots[place as usize];
                    assert_eq!(
                        (slot.path_len, slot.hops().len()),
                        (route.path_len, usize::from(route.path_len))
                    );
                }
            }
        }
    }
}
