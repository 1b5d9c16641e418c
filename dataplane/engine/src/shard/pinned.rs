//! How a packet follows a pinned route, and what happens where the path ends too early.
//!
//! Part of [`Shard`], same owner and thread. A packet is pinned where it starts: when a client sends it, or when the
//! node's own agent answers. From there each hop is a link of the route's resolved path; no LID and no forwarding table is
//! looked at until the end, where the node has to own the DLID. A hop whose links nobody has touched since the route was
//! inspected is only counted, and if that is true of the whole path and all of it lies in this shard, the packet is taken
//! to its end in one step (`express`); otherwise state, partition enforcement and SLtoVL are checked as on a LID route.
//! Where the path cannot be followed the packet is dropped, or goes on by LID as if that node had sent it; it is never pinned again,
//! so the steps stay bounded (63 hops and [`super::LID_HOP_LIMIT`]).
//!
//! Some routes serve one tenant only, or the reserved class only; for other packets they are not there. What a sender with
//! a path of its own sends ([`Shard::bind`]) takes that, whatever its LIDs.
//!
//! A reply goes back by the links of the last request that reached its end here. Traps of a node's own agent are not
//! pinned: they report broken links.

use super::Shard;
use super::gmp::{self, ENTERS_FREELY, LEAVES_FREELY};
use crate::node::{PortCold, PortHot, REMOTE};
use crate::packet::Packet;
use crate::partition::p_key_matches;
use crate::pinned::table::{
    CLEAN_ALL, CLEAN_GMP, CLEAN_REVERSE_SHIFT, CLEAN_SMP, Hop, NO_ORIGIN, RouteRoom, Slot,
};
use crate::pinned::{MAX_ROUTES, OnBroken, Pin, PinnedActivity, PinnedRoute, Place};
use crate::sink::Sink;
use crate::smi::{self, MGMT_CLASS, SmiNode, Verdict};
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::class;
use madplane_wire::smp::port_info::state;

/// Length of a MAD.
const MAD_BYTES: u32 = 256;

/// Why a hop is not taken.
enum Stop {
    /// The path cannot be followed.
    Broken,
    /// The packet is refused, whatever the way.
    Refused(Verdict),
}

impl Shard {
    /// Puts a route at `index` or takes it away; every shard has to be told.
    ///
    /// False if `route` is not one (LIDs that are not unicast, no or too many hops) or the index is too large; what was at
    /// `index` is gone then too. Setting the same route again changes nothing. Of two routes with the same LIDs the one
    /// set last counts. Allocates; not for the packet path.
    pub fn set_route(&mut self, index: u32, route: Option<&PinnedRoute>) -> bool {
        self.pinned.set(index, route)
    }

    /// Gives the sender `number` a path of its own for all it sends that is not a directed route
    /// ([`Packet::bound`] is `number` plus 1), or takes it away; every shard has to be told.
    ///
    /// Of `route` only the path counts and what happens when it is broken. It is walked as a pinned route is: the packet
    /// ends there if that node owns its DLID, and goes on by LID or is dropped otherwise; what the node itself answers goes
    /// back by it. False if `route` has no or too many hops, or the number is [`MAX_BOUND`](crate::MAX_BOUND) or more; a
    /// former path is gone then too. Allocates; not for the packet path.
    pub fn bind(&mut self, number: u16, route: Option<&PinnedRoute>) -> bool {
        self.pinned.bind(number, route)
    }

    /// The ports of the path on which `pkt` would start that a client sends, by its LIDs or by its sender's own path, and the index of the
    /// route if it is one; for a sender that is not in the fabric and walks it elsewhere.
    pub fn path_of(&self, pkt: &Packet) -> Option<(Option<u32>, &[u8])> {
        self.pinned.path_of(pkt)
    }

    /// How often packets found their route resolved, since the shard was built.
    pub fn pinned_activity(&self) -> PinnedActivity {
        self.pinned.activity
    }

    /// Moves the routes into `room`, where setting a route allocates nothing unless its path is long; the memory that
    /// they had is left in its place. Cost: by routes.
    pub fn move_routes_into(&mut self, room: &mut RouteRoom) {
        self.pinned.move_into(room);
    }

    /// The state of port `at`, or what it lets pass, has changed.
    pub(crate) fn carriage_changed(&mut self, at: u32) {
        self.pinned.epoch += 1;
        if let (Some(open), Some(hot), Some(cold)) =
            (self.open.get_mut(at as usize), self.ports.get(at as usize), self.cold.get(at as usize))
        {
            *open = open_end(hot, cold);
        }
    }

    /// Makes every route look at its links again; for measurements.
    #[doc(hidden)]
    pub fn forget_link_states(&mut self) {
        self.pinned.epoch += 1;
    }

    /// Pins a GMP that starts at endport `at`, if a route has its LIDs: the port where it stands then, and what happens
    /// there. `None`: by forwarding tables.
    #[inline(always)]
    pub(super) fn pin_gmp<S: Sink>(
        &mut self,
        at: u32,
        answer: bool,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<(u32, Verdict)> {
        if self.pinned.is_empty() {
            return None;
        }
        let (slid, dlid) = (pkt.slid, pkt.dlid);
        self.pin_by_key(at, slid, dlid, answer, pkt, sink)
    }

    /// [`Shard::pin_gmp`] for an SMP that a client sends; on `None` the packet is as it was but for its source LID.
    #[inline(always)]
    pub(super) fn pin_smp<S: Sink>(
        &mut self,
        at: u32,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<(u32, Verdict)> {
        if self.pinned.is_empty() || pkt.mad[MGMT_CLASS] != class::SUBN_LID {
            return None;
        }
        let cold = self.cold.get(at as usize)?;
        let slid = cold.lid | (u16::from(pkt.path_bits) & ((1 << (cold.lmc & 7)) - 1));
        pkt.slid = slid;
        self.pin_by_key(at, slid, pkt.dlid, false, pkt, sink)
    }

    /// [`Shard::pin_gmp`] for the answer of the node's own SMA, which still has the LIDs of the request.
    #[inline(always)]
    pub(super) fn pin_smp_answer<S: Sink>(
        &mut self,
        at: u32,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<(u32, Verdict)> {
        if self.pinned.is_empty() || pkt.mad[MGMT_CLASS] != class::SUBN_LID {
            return None;
        }
        let (slid, dlid) = (pkt.slid, pkt.dlid);
        (pkt.slid, pkt.dlid) = (dlid, slid);
        let start = self.pin_by_key(self.endport(at), dlid, slid, true, pkt, sink);
        if start.is_none() {
            (pkt.slid, pkt.dlid) = (slid, dlid);
        }
        start
    }

    /// Pins by the LIDs of the packet: a load of both together would wait for the stores just made.
    #[inline(always)]
    fn pin_by_key<S: Sink>(
        &mut self,
        at: u32,
        slid: u16,
        dlid: u16,
        answer: bool,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<(u32, Verdict)> {
        self.stages.dr_table_looked += 1;
        if pkt.bound != 0
            && let Some(index) = self.pinned.own_path(pkt)
        {
            return self.pin_own(at, index, dlid, answer, pkt, sink);
        }
        let (index, reverse) = self.pinned.find(slid, dlid, pkt)?;
        self.pin_to(at, index, reverse, dlid, pkt, sink)
    }

    /// Pins to the path of the sender of `pkt`, or the answer to it back along that.
    #[inline(never)]
    fn pin_own<S: Sink>(
        &mut self,
        at: u32,
        index: u32,
        dlid: u16,
        answer: bool,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<(u32, Verdict)> {
        // what is for the own node goes nowhere
        if self.cold.get(at as usize)?.owns_lid(dlid) {
            return None;
        }
        self.pin_to(at, index, answer, dlid, pkt, sink)
    }

    /// Pins what the route of its LIDs does not serve, if it is a reply that may go back by the route of its request.
    #[cold]
    fn pin_past<S: Sink>(
        &mut self,
        at: u32,
        reverse: bool,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<(u32, Verdict)> {
        let (slid, dlid) = (pkt.slid, pkt.dlid);
        let (index, reverse) = self.pinned.find_past(slid, dlid, reverse, pkt)?;
        self.pin_to(at, index, reverse, dlid, pkt, sink)
    }

    /// Pins to the route at `index`, forwards or back.
    ///
    /// Where the whole path lies in this shard and is open, the packet is taken to its end at once.
    #[inline(always)]
    fn pin_to<S: Sink>(
        &mut self,
        at: u32,
        index: u32,
        reverse: bool,
        dlid: u16,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<(u32, Verdict)> {
        let slot = self.pinned.slot(index)?;
        if !slot.serves(pkt) {
            return self.pin_past(at, reverse, pkt, sink);
        }
        let origin = if reverse { slot.recorded } else { self.pinned.own.start + at };
        if origin == NO_ORIGIN {
            return None;
        }
        if pkt.dst_qp != 0 && slot.p_key != 0 && !p_key_matches(pkt.p_key, slot.p_key) {
            let had = slot.p_key;
            sink.p_key_mismatch(self.name(at).0, pkt.p_key, had);
            return Some((at, Verdict::discard(DropReason::PKey)));
        }
        if slot.origin != origin {
            self.pinned.follow(index, origin);
        }
        let Self { pinned, ports, open, cold, .. } = self;
        let own_start = pinned.own.start;
        let (slot, activity, epoch) = pinned.slot_and_activity(index)?;
        look_at_links(slot, open, activity, epoch);
        if slot.express & clean_bit(reverse, pkt) == 0 || (reverse && slot.end != at) {
            return self.pin_step(at, Place { route: index + 1, origin, hop: 0, reverse }, pkt);
        }
        // all links are open and in this shard
        let (arrived, end) = if reverse {
            for hop in slot.hops() {
                count(ports, Hop { near: hop.far, far: hop.near });
            }
            (slot.hops().first().map(|hop| hop.near), origin.wrapping_sub(own_start))
        } else {
            say_used(index, sink);
            for hop in slot.hops() {
                count(ports, *hop);
            }
            (slot.hops().last().map(|hop| hop.far), slot.end)
        };
        let arrived = arrived.unwrap_or(end);
        if !cold.get(end as usize).is_some_and(|end| end.owns_lid(dlid)) {
            let verdict = broken(slot.on_broken);
            return Some((arrived, verdict.unwrap_or_else(|| self.fall_back(arrived, pkt))));
        }
        if !reverse {
            slot.recorded = origin;
        }
        Some((arrived, if pkt.dst_qp == 0 { Verdict::Local } else { self.gmp_admit(end, pkt) }))
    }

    /// The first step of a packet that is looked at hop by hop; `place` is where it starts.
    #[inline(never)]
    fn pin_step(&mut self, at: u32, mut place: Place, pkt: &mut Packet) -> Option<(u32, Verdict)> {
        if place.reverse {
            place.hop = self.pinned.slot(place.route - 1)?.path_len;
        }
        let verdict = self.step(at, 0, place, pkt)?;
        pkt.pin = place.into();
        Some((at, verdict))
    }

    /// Goes on with a pinned packet that arrived from another shard on port `at`.
    #[cold]
    pub(super) fn resume_pinned(&mut self, at: u32, pkt: &mut Packet) -> Verdict {
        if let Some(verdict) = self.arrival_refused(at, pkt) {
            return verdict;
        }
        // the route may have been replaced while the packet was between the shards
        let place = pkt.pin.place();
        if let Some((index, _)) = self.pinned.of(place, pkt) {
            self.resolve(index, place.origin);
            if self.pinned.of(place, pkt).and_then(|(_, slot)| slot.arrival(place)) == Some(at) {
                return self.step_or_fall_back(at, place, pkt);
            }
        }
        self.fall_back(at, pkt)
    }

    /// Crosses the next link and, where nothing has to be looked at, all that follow. `None`: left the shard.
    ///
    /// Otherwise the port where the packet stands, and what happens there.
    #[inline(never)]
    pub(super) fn walk_pinned<S: Sink>(&mut self, pkt: &mut Packet, sink: &mut S) -> Option<(u32, Verdict)> {
        let mut place = pkt.pin.place();
        let index = place.route.wrapping_sub(1);
        let Self { pinned, ports, .. } = self;
        let slot = pinned.slot(index)?;
        if place.hop == 0 && !place.reverse {
            say_used(index, sink);
        }
        let clean = slot.clean & clean_bit(place.reverse, pkt) != 0;
        let split = usize::from(place.hop);
        let walk = if !clean {
            walk(ports, slot.next(place).into_iter())
        } else if place.reverse {
            let flip = |hop: &Hop| Hop { near: hop.far, far: hop.near };
            walk(ports, slot.hops().get(..split)?.iter().rev().map(flip))
        } else {
            walk(ports, slot.hops().get(split..)?.iter().copied())
        };
        place.hop = if place.reverse { place.hop.checked_sub(walk.steps)? } else { place.hop + walk.steps };
        let at = match walk.end {
            Ok(at) => at,
            Err(peer) => {
                let end = self.remote.get((peer ^ REMOTE) as usize)?;
                pkt.pin = place.into();
                sink.to_shard(end.shard as usize, end.node, end.port, pkt);
                return None;
            }
        };
        if !clean && let Some(verdict) = self.arrival_refused(at, pkt) {
            return Some((at, verdict));
        }
        pkt.pin = place.into();
        Some((at, self.step_or_fall_back(at, place, pkt)))
    }

    fn step_or_fall_back(&mut self, at: u32, place: Place, pkt: &mut Packet) -> Verdict {
        let input = self.ports.get(at as usize).map_or(0, |hot| number(hot, at));
        match self.step(at, input, place, pkt) {
            Some(verdict) => verdict,
            None => self.fall_back(at, pkt),
        }
    }

    /// What happens to a pinned packet at the node of `at`, which it entered by `input` (0: it starts here). `None`: it
    /// goes on by LID.
    #[inline(always)]
    fn step(&mut self, at: u32, input: u8, place: Place, pkt: &mut Packet) -> Option<Verdict> {
        let slot = self.pinned.slot(place.route.wrapping_sub(1))?;
        let on_broken = slot.on_broken;
        if slot.at_end(place) {
            return self.finish(at, input, place, on_broken, pkt);
        }
        let stop = match (slot.next(place), self.ports.get(at as usize)) {
            (Some(hop), Some(here)) => match self.ports.get(hop.near as usize) {
                // an adapter has no other port than that of its client; this matters for the first hop of a reply
                Some(out) if out.first == here.first && (here.is_switch || hop.near == at) => {
                    let port = number(out, hop.near);
                    if slot.clean & clean_bit(place.reverse, pkt) != 0 {
                        return Some(Verdict::Forward { port });
                    }
                    match self.departure_refused(hop.near, input, pkt) {
                        None => return Some(Verdict::Forward { port }),
                        Some(stop) => stop,
                    }
                }
                _ => Stop::Broken,
            },
            _ => Stop::Broken,
        };
        match stop {
            Stop::Refused(verdict) => Some(verdict),
            Stop::Broken => broken(on_broken),
        }
    }

    /// The path has been taken to its end on port `at`.
    fn finish(
        &mut self,
        at: u32,
        arrival: u8,
        place: Place,
        on_broken: OnBroken,
        pkt: &mut Packet,
    ) -> Option<Verdict> {
        if !self.view(at)?.owns_lid(arrival, pkt.dlid) {
            return broken(on_broken);
        }
        pkt.pin = Pin::NONE;
        if !place.reverse
            && let Some(slot) = self.pinned.slot_mut(place.route.wrapping_sub(1))
        {
            slot.recorded = place.origin;
        }
        Some(if pkt.dst_qp == 0 { Verdict::Local } else { self.gmp_admit(self.endport(at), pkt) })
    }

    /// Goes on by forwarding tables from the node of `at`, as if that node had sent the packet.
    #[cold]
    fn fall_back(&mut self, at: u32, pkt: &mut Packet) -> Verdict {
        pkt.pin = Pin::NONE;
        let endport = self.endport(at);
        if pkt.dst_qp != 0 {
            return self.gmp_start_by_lid(endport, pkt);
        }
        match (self.view(endport), self.ports.get(endport as usize)) {
            (Some(view), Some(hot)) => smi::answer_by_lid(&view, number(hot, endport), pkt),
            _ => Verdict::discard(DropReason::RouteBroken),
        }
    }

    /// Why the packet may not leave by `out`.
    fn departure_refused(&mut self, out: u32, input: u8, pkt: &Packet) -> Option<Stop> {
        let needed = if pkt.dst_qp == 0 { state::INIT } else { state::ACTIVE };
        if self.ports.get(out as usize).is_none_or(|hot| hot.state < needed) {
            return Some(Stop::Broken);
        }
        if pkt.dst_qp == 0 {
            return None;
        }
        self.gmp_departure_refused(out, input, pkt).map(Stop::Refused)
    }

    /// Why the packet may not enter by `at`.
    fn arrival_refused(&mut self, at: u32, pkt: &Packet) -> Option<Verdict> {
        if pkt.dst_qp != 0 {
            return self.gmp_arrival_refused(at, pkt);
        }
        let down = self.ports.get(at as usize).is_none_or(|hot| hot.state < state::INIT);
        down.then(|| Verdict::discard(DropReason::ArrivalDown))
    }

    /// Sees to it that the route at `index` is resolved from `origin` for the links as they are.
    fn resolve(&mut self, index: u32, origin: u32) {
        if self.pinned.slot(index).is_some_and(|slot| slot.origin != origin) {
            self.pinned.follow(index, origin);
        }
        if let Some((slot, activity, epoch)) = self.pinned.slot_and_activity(index) {
            look_at_links(slot, &self.open, activity, epoch);
        }
    }
}

/// Sees to it that what `slot` says of its links is true in link epoch `epoch`.
#[inline(always)]
fn look_at_links(slot: &mut Slot, open: &[u8], activity: &mut PinnedActivity, epoch: u64) {
    if slot.epoch == epoch {
        activity.cache_hits += 1;
        return;
    }
    activity.cache_misses += 1;
    let clean = inspect(slot, open);
    slot.inspected(epoch, clean);
}

/// Tells that a packet takes a route; a sender's own path is nobody's route.
#[inline(always)]
fn say_used<S: Sink>(index: u32, sink: &mut S) {
    if index < MAX_ROUTES {
        sink.route_used(index, MAD_BYTES);
    }
}

/// Counts a packet over one link.
#[inline(always)]
fn count(ports: &mut [PortHot], hop: Hop) {
    if let Some(near) = ports.get_mut(hop.near as usize) {
        near.xmit_pkts += 1;
    }
    if let Some(far) = ports.get_mut(hop.far as usize) {
        far.rcv_pkts += 1;
    }
}

/// Where a walk over links ended.
struct Walk {
    steps: u8,
    /// The port that was reached, or the remote peer behind the last link.
    end: Result<u32, u32>,
}

/// Counts a packet over links until they end or leave the shard.
#[inline(always)]
fn walk(ports: &mut [PortHot], hops: impl Iterator<Item = Hop>) -> Walk {
    let mut walk = Walk { steps: 0, end: Err(u32::MAX) };
    for hop in hops {
        let Some(near) = ports.get_mut(hop.near as usize) else { break };
        near.xmit_pkts += 1;
        let peer = near.peer;
        walk.steps += 1;
        match ports.get_mut(hop.far as usize) {
            Some(far) => {
                far.rcv_pkts += 1;
                walk.end = Ok(hop.far);
            }
            None => {
                walk.end = Err(peer);
                break;
            }
        }
    }
    walk
}

/// Number of port `at`.
fn number(hot: &PortHot, at: u32) -> u8 {
    u8::try_from((at - hot.first) & 0xFF).unwrap_or(0)
}

fn broken(on_broken: OnBroken) -> Option<Verdict> {
    (on_broken == OnBroken::Drop).then(|| Verdict::discard(DropReason::RouteBroken))
}

/// The bit of [`Slot::clean`] that speaks for a packet.
#[inline(always)]
fn clean_bit(reverse: bool, pkt: &Packet) -> u8 {
    let kind = if pkt.dst_qp == 0 { CLEAN_SMP } else { CLEAN_GMP };
    if reverse { kind << CLEAN_REVERSE_SHIFT } else { kind }
}

/// For whom every end of a hop in this shard is open without a question, as [`Slot::clean`]; `open` are its ports.
#[inline(always)]
fn inspect(slot: &Slot, open: &[u8]) -> u8 {
    if slot.reached != slot.path_len {
        return 0;
    }
    // the end of another shard is looked at there
    let end = |at: u32| open.get(at as usize).copied().unwrap_or(u8::MAX);
    slot.hops().iter().fold(CLEAN_ALL, |clean, hop| clean & end(hop.near) & (end(hop.far) >> 4))
}

/// For whom a port is open without a question: as the near end of a hop in the lower four bits, as the far end in the
/// upper, each as [`Slot::clean`].
pub(super) fn open_end(hot: &PortHot, cold: &PortCold) -> u8 {
    let freely = gmp::freely(cold, hot.is_switch);
    let smp = if hot.state >= state::INIT { CLEAN_SMP } else { 0 };
    let gmp = |open: bool| if open { CLEAN_GMP } else { 0 };
    let leave = smp | gmp(hot.state == state::ACTIVE && freely & LEAVES_FREELY != 0);
    let enter = smp | gmp(hot.state >= state::ARMED && freely & ENTERS_FREELY != 0);
    let (near, far) = (leave | enter << CLEAN_REVERSE_SHIFT, enter | leave << CLEAN_REVERSE_SHIFT);
    near | far << 4
}
