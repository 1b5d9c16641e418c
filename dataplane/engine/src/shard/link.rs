//! Link states: what a Set, a cable, a reboot or the other end does to a port.
//!
//! Part of [`Shard`], same owner and thread. Both ends of a link hold the last [`LinkOffer`] of the other; a link is up when
//! the cable is in, both want to poll and width and speed have something in common. Each end computes that by itself and
//! tells the other of every change of its own, so two shards agree after their messages have crossed. A message is
//! answered only if it made this end want something else, which bounds the exchange.

use super::Shard;
use crate::agent::pma::event;
use crate::node::{NO_PEER, REMOTE, RemoteEnd};
use crate::setup;
use crate::sink::{LinkOffer, PeerEvent, PeerEventKind, Sink};
use crate::{EXTERNAL, MAX_EXTERNAL, NodeId};
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::smp::port_info::{phys_state as phys, state};
use madplane_wire::smp::switch_info::field as si;

/// Who changed the state of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A Set of this very port.
    OwnSet,
    /// The link: cable, other end, power.
    Link,
}

impl Shard {
    /// Drops the link of `at` because of a Set; `want` is the physical state to go to.
    pub(crate) fn drop_link_by_set<S: Sink>(&mut self, now_ns: u64, at: u32, want: u8, sink: &mut S) {
        let Some(cold) = self.cold.get_mut(at as usize) else { return };
        cold.want = want;
        self.take_down(at, Cause::OwnSet, sink);
        self.poll_peer(now_ns, at, sink);
    }

    /// Tells the other end about changed enables; they count at the next training.
    pub(crate) fn offer_changed<S: Sink>(&mut self, now_ns: u64, at: u32, sink: &mut S) {
        self.tell_peer(now_ns, at, PeerEventKind::Offer, sink);
        self.train(at, sink);
    }

    /// Pulls the cable of `(node, port)` or plugs it in again; the other end follows.
    ///
    /// A port without a cable in the topology has nothing to pull. Both ends count the change: PortStateChange and trap
    /// 128 where they are switches.
    pub fn set_link<S: Sink>(&mut self, now_ns: u64, node: NodeId, port: u8, up: bool, sink: &mut S) {
        let Some(at) = self.index(node, port) else { return };
        if self.ports.get(at as usize).is_none_or(|p| p.peer == NO_PEER) {
            return;
        }
        let kind = if up { PeerEventKind::Plugged } else { PeerEventKind::Unplugged };
        self.cable(at, up, sink);
        self.tell_peer(now_ns, at, kind, sink);
        self.flush_traps(now_ns, sink);
    }

    /// Gives `(node, port)`, which has no cable in the topology, an end outside of the fabric: link `link`. What leaves by it
    /// goes to the [`Sink`] as to shard [`EXTERNAL`] plus `link`, named by this very port; what the other end says is told by
    /// [`Shard::peer_event`]. The cable counts as pulled until that says [`PeerEventKind::Plugged`].
    ///
    /// Returns what this end is ready to do; `None` if the port does not exist here, has a cable, or `link` is not below
    /// [`MAX_EXTERNAL`]. Not for the packet path: allocates.
    pub fn attach_external(&mut self, node: NodeId, port: u8, link: u16) -> Option<LinkOffer> {
        let at = self.index(node, port).filter(|_| port != 0 && link < MAX_EXTERNAL)?;
        let hot = self.ports.get_mut(at as usize).filter(|hot| hot.peer == NO_PEER)?;
        let cold = self.cold.get_mut(at as usize)?;
        let shard = u32::try_from(EXTERNAL).ok()? + u32::from(link);
        let end = RemoteEnd { shard, node, port };
        // a place is left behind by a link that was taken away
        let place = self.remote.iter().position(|end| end.shard == u32::MAX).unwrap_or(self.remote.len());
        match self.remote.get_mut(place) {
            Some(free) => *free = end,
            None => self.remote.push(end),
        }
        hot.peer = u32::try_from(place).ok()? | REMOTE;
        cold.plugged = false;
        cold.peer_offer = LinkOffer::default();
        Some(cold.offer())
    }

    /// Takes the end away that [`Shard::attach_external`] gave the port: its link falls, and it has no cable again. False if
    /// there is none.
    pub fn detach_external<S: Sink>(&mut self, now_ns: u64, node: NodeId, port: u8, sink: &mut S) -> bool {
        let Some(at) = self.index(node, port) else { return false };
        let Some(end) = self.remote_end(at).filter(|end| end.shard as usize >= EXTERNAL) else {
            return false;
        };
        self.cable(at, false, sink);
        let Some(hot) = self.ports.get_mut(at as usize) else { return false };
        let place = hot.peer ^ REMOTE;
        hot.peer = NO_PEER;
        if let Some(left) = self.remote.get_mut(place as usize) {
            *left = RemoteEnd { shard: u32::MAX, ..end };
        }
        self.flush_traps(now_ns, sink);
        true
    }

    /// What `(node, port)` is ready to do; `None` if it is not in this shard.
    pub fn offer_of(&self, node: NodeId, port: u8) -> Option<LinkOffer> {
        Some(self.cold.get(self.index(node, port)? as usize)?.offer())
    }

    /// Power-cycles a node: LIDs, keys, tables and counters are lost, its links bounce and its peers notice.
    ///
    /// Clients stay attached and a port that acts as SM keeps its IsSM bit.
    pub fn reboot_node<S: Sink>(&mut self, now_ns: u64, node: NodeId, sink: &mut S) {
        let Some(first) = self.index(node, 0) else { return };
        let Some(hot) = self.ports.get(first as usize) else { return };
        let (is_switch, num_ports, local) = (hot.is_switch, hot.num_ports, hot.node);
        self.traps.forget(first, num_ports);
        if let Some(cold) = self.nodes.get_mut(local as usize) {
            cold.trap_tid = 0;
            if let Some(switch) = self.switches.get_mut(cold.switch as usize) {
                *switch = setup::switch(si::ENHANCED_PORT0.get_bool(&switch.info));
            }
        }
        for at in first..=first + u32::from(num_ports) {
            if let (Some(hot), Some(cold)) = (self.ports.get_mut(at as usize), self.cold.get_mut(at as usize))
            {
                (hot.xmit_pkts, hot.rcv_pkts) = (0, 0);
                cold.power_cycle();
            }
            self.carriage_changed(at);
            if at != first {
                self.take_down(at, Cause::Link, sink);
                // power off clears what the fall of the link has counted
                if let Some(cold) = self.cold.get_mut(at as usize) {
                    cold.counters = None;
                }
                self.poll_peer(now_ns, at, sink);
            }
            if at != first || is_switch {
                self.port_changed(at, sink);
            }
        }
        self.flush_traps(now_ns, sink);
    }

    /// The other end of the link of `at` has something to say.
    pub(super) fn hear_peer<S: Sink>(
        &mut self,
        now_ns: u64,
        at: u32,
        kind: PeerEventKind,
        offer: LinkOffer,
        sink: &mut S,
    ) {
        let Some(cold) = self.cold.get_mut(at as usize) else { return };
        cold.peer_offer = offer;
        let wanted = cold.want;
        match kind {
            PeerEventKind::Offer => self.train(at, sink),
            PeerEventKind::Dropped => {
                let plugged = cold.plugged;
                self.fall(at, sink);
                // without a cable nothing is heard but the news of what the other end wants
                if plugged {
                    self.wake(at);
                }
                self.train(at, sink);
            }
            PeerEventKind::Unplugged => self.cable(at, false, sink),
            PeerEventKind::Plugged => self.cable(at, true, sink),
        }
        if self.cold.get(at as usize).is_some_and(|cold| cold.want != wanted) {
            self.tell_peer(now_ns, at, PeerEventKind::Offer, sink);
        }
    }

    fn cable<S: Sink>(&mut self, at: u32, up: bool, sink: &mut S) {
        let Some(cold) = self.cold.get_mut(at as usize) else { return };
        cold.plugged = up;
        if up {
            self.wake(at);
            self.train(at, sink);
        } else {
            self.fall(at, sink);
        }
    }

    /// Tells the other end that the link fell or is polled anew, and trains.
    ///
    /// A poll wakes a sleeping peer; this end knows that and does not wait to hear it, so that the answer to a Set is the
    /// same whether the peer lives in this shard or in another.
    fn poll_peer<S: Sink>(&mut self, now_ns: u64, at: u32, sink: &mut S) {
        self.tell_peer(now_ns, at, PeerEventKind::Dropped, sink);
        if let Some(cold) = self.cold.get_mut(at as usize)
            && cold.plugged
            && cold.want == phys::POLLING
            && cold.peer_offer.want == phys::SLEEP
        {
            cold.peer_offer.want = phys::POLLING;
        }
        self.train(at, sink);
    }

    /// An end that begins to poll wakes a sleeping port.
    fn wake(&mut self, at: u32) {
        if let Some(cold) = self.cold.get_mut(at as usize)
            && cold.want == phys::SLEEP
            && cold.peer_offer.want == phys::POLLING
        {
            cold.want = phys::POLLING;
            self.show_want(at);
        }
    }

    /// The link failed: the port goes where LinkDownDefaultState says, unless it was told to stay elsewhere.
    fn fall<S: Sink>(&mut self, at: u32, sink: &mut S) {
        let Some(hot) = self.ports.get(at as usize) else { return };
        if hot.state < state::INIT {
            return;
        }
        if let Some(cold) = self.cold.get_mut(at as usize) {
            cold.want = if pi::LINK_DOWN_DEFAULT_STATE.get_u8(&cold.info) == phys::SLEEP {
                phys::SLEEP
            } else {
                phys::POLLING
            };
        }
        self.take_down(at, Cause::Link, sink);
    }

    /// Takes a port down, if it was up, and shows the physical state it now wants.
    fn take_down<S: Sink>(&mut self, at: u32, cause: Cause, sink: &mut S) {
        let Some(hot) = self.ports.get_mut(at as usize) else { return };
        let was_up = hot.state >= state::INIT;
        hot.state = state::DOWN;
        self.show_want(at);
        if was_up {
            if let Some(cold) = self.cold.get_mut(at as usize) {
                cold.counters_mut().count(event::LINK_DOWNED);
            }
            self.state_changed(at, cause, sink);
        }
    }

    fn show_want(&mut self, at: u32) {
        if let (Some(hot), Some(cold)) = (self.ports.get_mut(at as usize), self.cold.get(at as usize)) {
            hot.phys = cold.want;
        }
    }

    /// Brings a port up if everything is ready for it.
    fn train<S: Sink>(&mut self, at: u32, sink: &mut S) {
        let (Some(hot), Some(cold)) = (self.ports.get_mut(at as usize), self.cold.get_mut(at as usize))
        else {
            return;
        };
        if hot.peer == at {
            cold.peer_offer = cold.offer();
        }
        let ready = cold.plugged && cold.want == phys::POLLING && cold.peer_offer.want == phys::POLLING;
        if hot.state >= state::INIT || hot.peer == NO_PEER || !ready || !cold.negotiate() {
            return;
        }
        hot.state = state::INIT;
        hot.phys = phys::LINK_UP;
        // also after a Set of Down: that was the Set's doing, training is the link's, and without the trap an SM would
        // leave the port in Initialize
        self.state_changed(at, Cause::Link, sink);
    }

    fn state_changed<S: Sink>(&mut self, at: u32, cause: Cause, sink: &mut S) {
        self.carriage_changed(at);
        self.port_changed(at, sink);
        if cause == Cause::OwnSet {
            return;
        }
        let Some(hot) = self.ports.get(at as usize) else { return };
        let (first, node) = (hot.first, hot.node);
        let switch = self.nodes.get(node as usize).map_or(u32::MAX, |n| n.switch);
        if let Some(switch) = self.switches.get_mut(switch as usize) {
            si::PORT_STATE_CHANGE.set(&mut switch.info, 1);
            self.raise_link_trap(first);
        }
    }

    fn tell_peer<S: Sink>(&mut self, now_ns: u64, at: u32, kind: PeerEventKind, sink: &mut S) {
        let (Some(hot), Some(cold)) = (self.ports.get(at as usize), self.cold.get(at as usize)) else {
            return;
        };
        let (peer, offer) = (hot.peer, cold.offer());
        if let Some(end) = self.remote_end(at) {
            sink.peer_event(end.shard as usize, PeerEvent { node: end.node, port: end.port, kind, offer });
        } else if peer != at && peer != NO_PEER {
            self.hear_peer(now_ns, peer, kind, offer, sink);
        }
    }
}
