//! Links to other planes as their worker knows them: the ends, what leaves by them, and what they have to say.
//!
//! Owned by the worker that owns the node at the end, inside its [`crate::egress::Egress`], because packets leave by a link in the
//! middle of the engine's loop. A link is named by its number, the same in the engine ([`EXTERNAL`] plus that), in the status
//! segment and in orders.
//!
//! What crosses: the MAD, LIDs, SL, path bits, LID hops, P_Key, queue pairs, Q_Key, GRH, and of the sender's rights "as limited
//! member" and "reserved". Tenants end at the plane: a request that the addressed node would have to ask its tenants about is
//! dropped here, because the other plane has tenants of its own. Pinned paths end too: the engine knows no cable there. Not here:
//! frames, sessions, liveness ([`madplane_port::link`]); transports and their threads (`links/open.rs`).

pub mod open;

use madplane_engine::{EXTERNAL, LinkOffer, MAX_EXTERNAL, NodeId, Packet, PeerEvent, PeerEventKind, right};
use madplane_port::link::frame::Refusal;
use madplane_port::link::{Declared, Link, LinkEvent, LinkState, Offer};
use madplane_port::{MadMessage, MadRx, MadTx};
use madplane_shm::drop_reason::DropReason;
use madplane_shm::message::{Envelope, flag, kind};
use madplane_shm::status::LinkRecord;
use madplane_shm::sync::Ordering;

use crate::egress::grh_of;

/// PortPhysicalState of an end that wants nothing: what a port without other end is told.
const DISABLED: u8 = 3;
/// A transport that wakes nobody is looked at this often while its worker sleeps.
const UNWOKEN_NS: u64 = 1_000_000;

/// One end of a link and where it is.
#[derive(Debug)]
pub struct PlaneLink {
    /// Its number, below [`MAX_EXTERNAL`].
    pub number: u16,
    /// Node at this end.
    pub node: NodeId,
    /// Port of the node.
    pub port: u8,
    /// The protocol, over its transport.
    pub link: Link,
}

/// The links of one worker.
#[derive(Debug, Default)]
pub struct Links {
    ends: Vec<PlaneLink>,
    /// Place in `ends` by number, plus 1.
    places: Vec<u8>,
    /// What was received last.
    arrival: MadMessage,
    /// MADs were given to a link since the last flush.
    given: bool,
}

impl Links {
    /// Whether there is none, which is the rule.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The link at a place, counted from 0.
    pub fn at(&self, place: usize) -> Option<&PlaneLink> {
        self.ends.get(place)
    }

    /// All links.
    pub fn iter(&self) -> impl Iterator<Item = &PlaneLink> {
        self.ends.iter()
    }

    /// All links, to arm and disarm them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PlaneLink> {
        self.ends.iter_mut()
    }

    /// Takes a link on. Its number is not in use: housekeeping gives each once.
    pub fn add(&mut self, end: PlaneLink) {
        debug_assert!(end.number < MAX_EXTERNAL && self.place(end.number).is_none());
        self.ends.push(end);
        self.renumber();
    }

    /// Gives a link up.
    pub fn remove(&mut self, number: u16) -> Option<PlaneLink> {
        let end = self.ends.remove(self.place(number)?);
        self.renumber();
        Some(end)
    }

    fn renumber(&mut self) {
        self.places.clear();
        self.places.resize(usize::from(MAX_EXTERNAL), 0);
        for (place, end) in (1..).zip(&self.ends) {
            if let Some(entry) = self.places.get_mut(usize::from(end.number)) {
                *entry = place;
            }
        }
    }

    fn place(&self, number: u16) -> Option<usize> {
        usize::from(*self.places.get(usize::from(number))?).checked_sub(1)
    }

    fn by_shard(&mut self, shard: usize) -> Option<&mut PlaneLink> {
        let number = u16::try_from(shard.checked_sub(EXTERNAL)?).ok()?;
        let place = self.place(number)?;
        self.ends.get_mut(place)
    }

    /// Hands over a packet that leaves by the link behind shard number `shard`.
    ///
    /// # Errors
    /// Why it is dropped instead.
    pub fn send(&mut self, shard: usize, pkt: &Packet) -> Result<(), DropReason> {
        if pkt.rights & right::CHECK_NODE != 0 {
            return Err(DropReason::LinkTenant);
        }
        let end = self.by_shard(shard).filter(|end| end.link.state() == LinkState::Up);
        if !end.ok_or(DropReason::LinkDown)?.link.tx_parts(&envelope_of(pkt), &pkt.mad) {
            return Err(DropReason::LinkFull);
        }
        self.given = true;
        Ok(())
    }

    /// Says of our end what the engine says of it.
    pub fn declare(&mut self, shard: usize, event: PeerEvent) {
        let Some(end) = self.by_shard(shard) else { return };
        let mut own = Declared { offer: offer_to(event.offer), ..*end.link.own() };
        match event.kind {
            PeerEventKind::Dropped => own.episode = own.episode.wrapping_add(1),
            PeerEventKind::Offer => {}
            PeerEventKind::Unplugged => own.plugged = false,
            PeerEventKind::Plugged => own.plugged = true,
        }
        end.link.declare(own);
    }

    /// Takes a MAD from the link at `place`: where it arrives, and what it is; no packet if it is no MAD.
    pub fn receive(&mut self, place: usize) -> Option<(NodeId, u8, Option<Packet>)> {
        let end = self.ends.get_mut(place)?;
        let taken = end.link.rx_burst(std::slice::from_mut(&mut self.arrival));
        (taken == 1).then(|| (end.node, end.port, packet_from(&self.arrival)))
    }

    /// Lets the link at `place` look at the time; how many frames it has sent.
    pub fn tick(&mut self, place: usize, now_ns: u64) -> usize {
        let Some(end) = self.ends.get_mut(place) else { return 0 };
        let sent = end.link.tick(now_ns);
        self.given |= sent > 0;
        sent
    }

    /// What happened at the other end of the link at `place`, as the engine wants to hear it.
    pub fn next_event(&mut self, place: usize) -> Option<PeerEvent> {
        let end = self.ends.get_mut(place)?;
        let gone = LinkOffer { want: DISABLED, ..LinkOffer::default() };
        let (kind, offer) = match end.link.next_event()? {
            // a cable that was pulled at this end is not plugged in from the other
            LinkEvent::Plugged(offer) if end.link.own().plugged => {
                (PeerEventKind::Plugged, offer_from(offer))
            }
            LinkEvent::Plugged(offer) | LinkEvent::Offer(offer) => (PeerEventKind::Offer, offer_from(offer)),
            LinkEvent::Dropped(offer) => (PeerEventKind::Dropped, offer_from(offer)),
            LinkEvent::Unplugged => (PeerEventKind::Unplugged, gone),
        };
        Some(PeerEvent { node: end.node, port: end.port, kind, offer })
    }

    /// Makes sure that what was sent leaves; how many system calls that took.
    pub fn flush(&mut self) -> usize {
        if !std::mem::take(&mut self.given) {
            return 0;
        }
        self.ends.iter_mut().map(|end| usize::from(end.link.flush())).sum()
    }

    /// Says that the worker is about to sleep; false if something has come meanwhile.
    pub fn arm(&mut self) -> bool {
        let mut quiet = true;
        for end in &mut self.ends {
            // every one of them, whatever the others say
            quiet &= end.link.arm();
        }
        quiet
    }

    /// Says that the worker is awake.
    pub fn disarm(&mut self) {
        self.ends.iter_mut().for_each(|end| end.link.disarm());
    }

    /// When a link has something to do at the latest.
    pub fn deadline_ns(&self, now_ns: u64) -> u64 {
        let one = |end: &PlaneLink| {
            let due = end.link.deadline_ns();
            if end.link.waker().is_some() { due } else { due.min(now_ns + UNWOKEN_NS) }
        };
        self.iter().map(one).min().unwrap_or(u64::MAX)
    }
}

/// Shows how a link stands.
pub fn show(end: &PlaneLink, record: &LinkRecord) {
    let (counts, mishaps) = (end.link.counts(), end.link.mishaps());
    let peer = end.link.peer().copied().unwrap_or_default();
    record.state.store(end.link.state() as u32 + 1, Ordering::Relaxed);
    record.peer_port.store(u32::from(peer.port), Ordering::Relaxed);
    let words = [
        (&record.peer_guid, peer.node_guid),
        (&record.sent, counts.sent),
        (&record.received, counts.received),
        (&record.lost, counts.lost),
        (&record.repeated, counts.repeated),
        (&record.late, counts.late),
        (&record.keep_alives_sent, counts.keep_alives_sent),
        (&record.keep_alives_received, counts.keep_alives_received),
        (&record.ups, counts.ups),
        (&record.downs, counts.downs),
        (&record.round_trip_ns, counts.round_trip_ns),
        (&record.oversized, mishaps.oversized),
        (&record.overflowed, mishaps.overflowed),
        (&record.refused_peers, mishaps.refused_peers),
    ];
    for (word, value) in words {
        word.store(value, Ordering::Relaxed);
    }
    for (word, value) in record.refused.iter().zip(counts.refused) {
        word.store(value, Ordering::Relaxed);
    }
}

const _: () = assert!(Refusal::ALL.len() <= madplane_shm::status::REFUSAL_WORDS);

fn offer_to(offer: LinkOffer) -> Offer {
    let LinkOffer { want, width, speed, speed_ext, fdr10 } = offer;
    Offer { want, width, speed, speed_ext, fdr10 }
}

fn offer_from(offer: Offer) -> LinkOffer {
    let Offer { want, width, speed, speed_ext, fdr10 } = offer;
    LinkOffer { want, width, speed, speed_ext, fdr10 }
}

/// What our end says of itself to begin with.
pub fn declared(offer: LinkOffer, node_guid: u64, port: u8) -> Declared {
    Declared { offer: offer_to(offer), plugged: true, episode: 0, node_guid, port }
}

/// Bits of the sender's rights that mean something in another plane.
const RIGHTS_THAT_CROSS: u8 = right::RESERVED | right::AS_LIMITED;

/// On a link the agent's word holds LID hops and rights, and the index of the P_Key is the P_Key.
fn envelope_of(pkt: &Packet) -> Envelope {
    let grh = pkt.grh.unwrap_or_default();
    Envelope {
        kind: kind::MAD,
        flags: if pkt.grh.is_some() { flag::GRH } else { 0 },
        agent: u32::from(pkt.lid_hops) | u32::from(pkt.rights & RIGHTS_THAT_CROSS) << 8,
        slid: pkt.slid,
        dlid: pkt.dlid,
        sl: pkt.sl,
        path_bits: pkt.path_bits,
        p_key_index: pkt.p_key,
        src_qp: pkt.src_qp,
        dst_qp: pkt.dst_qp,
        q_key: pkt.q_key,
        flow_label: grh.flow_label,
        gid_index: grh.gid_index,
        hop_limit: grh.hop_limit,
        traffic_class: grh.traffic_class,
        gid: grh.gid,
        length: 256,
        ..Envelope::default()
    }
}

/// What came over a link; `None` if that is no MAD.
fn packet_from(message: &MadMessage) -> Option<Packet> {
    let envelope = &message.envelope;
    let [lid_hops, rights, ..] = envelope.agent.to_le_bytes();
    (envelope.kind == kind::MAD).then(|| Packet {
        mad: message.mad,
        slid: envelope.slid,
        dlid: envelope.dlid,
        sl: envelope.sl & 0xF,
        path_bits: envelope.path_bits,
        lid_hops,
        rights: rights & RIGHTS_THAT_CROSS,
        src_qp: envelope.src_qp,
        dst_qp: envelope.dst_qp,
        q_key: envelope.q_key,
        p_key: envelope.p_key_index,
        grh: grh_of(envelope),
        ..Packet::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_engine::Grh;
    use madplane_port::datagram::pair::{Faults, PairEnd, pair};

    fn end(transport: PairEnd, number: u16) -> PlaneLink {
        let own = declared(LinkOffer { want: 2, ..LinkOffer::default() }, 7, 1);
        PlaneLink { number, node: 3, port: 4, link: Link::new(Box::new(transport), 1, own) }
    }

    fn meet(one: &mut Links, other: &mut Links) -> Vec<PeerEvent> {
        let mut events = Vec::new();
        for now_ns in 1..10 {
            for links in [&mut *one, &mut *other] {
                assert!(links.receive(0).is_none());
                links.tick(0, now_ns);
                events.extend(std::iter::from_fn(|| links.next_event(0)));
            }
        }
        events
    }

    fn joined() -> (Links, Links) {
        let (a, b) = pair(64, Faults::default()).unwrap();
        let (mut one, mut other) = (Links::default(), Links::default());
        one.add(end(a, 5));
        other.add(end(b, 0));
        let events = meet(&mut one, &mut other);
        assert_eq!(events.len(), 2);
        assert!(events.iter().all(|event| event.kind == PeerEventKind::Plugged && event.node == 3));
        (one, other)
    }

    #[test]
    fn a_packet_crosses_with_all_that_the_other_plane_understands() {
        let (mut one, mut other) = joined();
        let grh = Grh { gid_index: 1, hop_limit: 2, traffic_class: 3, flow_label: 4, gid: [5; 16] };
        let sent = Packet {
            mad: [0xa5; 256],
            slid: 1,
            dlid: 2,
            sl: 3,
            path_bits: 4,
            lid_hops: 63,
            rights: right::RESERVED | right::AS_LIMITED,
            src_qp: 1,
            dst_qp: 1,
            q_key: 0x8001_0000,
            p_key: 0x7fff,
            p_key_index: 9,
            grh: Some(grh),
            tenant: 6,
            bound: 7,
            ..Packet::default()
        };
        assert_eq!(one.send(EXTERNAL + 5, &sent), Ok(()));
        let (node, port, got) = other.receive(0).unwrap();
        assert_eq!((node, port), (3, 4));
        assert!(other.receive(0).is_none());
        // tenants and their paths end here, and the index is the sender's own
        assert_eq!(got, Some(Packet { tenant: 0, bound: 0, p_key_index: 0, ..sent }));
    }

    #[test]
    fn what_cannot_cross_is_dropped_by_its_reason() {
        let (mut one, _other) = joined();
        let asks = Packet { rights: right::CHECK_NODE, tenant: 2, ..Packet::default() };
        assert_eq!(one.send(EXTERNAL + 5, &asks), Err(DropReason::LinkTenant));
        assert_eq!(one.send(EXTERNAL + 4, &Packet::default()), Err(DropReason::LinkDown));
        assert_eq!(one.send(0, &Packet::default()), Err(DropReason::LinkDown));
        while one.send(EXTERNAL + 5, &Packet::default()).is_ok() {}
        assert_eq!(one.send(EXTERNAL + 5, &Packet::default()), Err(DropReason::LinkFull));
        assert!(one.remove(5).is_some());
        assert_eq!(one.send(EXTERNAL + 5, &Packet::default()), Err(DropReason::LinkDown));
    }

    #[test]
    fn a_cable_pulled_at_one_end_is_plugged_in_there() {
        let (mut one, mut other) = joined();
        let offer = LinkOffer { want: 2, ..LinkOffer::default() };
        let say = |kind| PeerEvent { node: 3, port: 4, kind, offer };
        other.declare(EXTERNAL, say(PeerEventKind::Unplugged));
        let events = meet(&mut one, &mut other);
        assert_eq!(
            events.iter().map(|e| (e.kind, e.offer.want)).collect::<Vec<_>>(),
            [(PeerEventKind::Unplugged, 3)]
        );
        assert_eq!(one.send(EXTERNAL + 5, &Packet::default()), Err(DropReason::LinkDown));
        // the end that is not pulled falls, too, and the pulled one hears of its return as of an offer
        one.declare(EXTERNAL + 5, say(PeerEventKind::Unplugged));
        one.declare(EXTERNAL + 5, say(PeerEventKind::Plugged));
        assert_eq!(meet(&mut one, &mut other), []);
        other.declare(EXTERNAL, say(PeerEventKind::Plugged));
        let events = meet(&mut one, &mut other);
        assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [PeerEventKind::Plugged]);
    }
}
