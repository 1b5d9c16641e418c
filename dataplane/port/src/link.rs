//! A link to another plane over unreliable datagrams: MADs, and what each end has to say of itself.
//!
//! Owned by the worker that owns the port it ends at, called from its thread only. Nothing is sent twice: a lost MAD is lost, and
//! counted, as on any link of a fabric; who sent it tries again. What an end *is* (cable in, offer, how often it fell) is declared
//! in every keep-alive instead of being told once, so no loss makes the two ends disagree for longer than until the next one.
//!
//! | who | says | how the other knows |
//! |---|---|---|
//! | an end that lives | a keep-alive every [`KEEP_ALIVE_NS`] | silence of [`DEAD_NS`] is [`LinkEvent::Unplugged`] |
//! | an end that counted the other for dead, or started anew | a new session number, larger than the last | the link goes down and up there too |
//! | an end that hears nothing | 0 for the other's session | the link is down while it says so |
//! | an end that fell | a new [`Declared::episode`] | [`LinkEvent::Dropped`] |
//!
//! Invariants: [`LinkEvent::Plugged`] and [`LinkEvent::Unplugged`] alternate; MADs are given out between them only, each at most
//! once. One that was overtaken on the way is given out late, and counted, if at most [`WINDOW`] others came before it. Whatever
//! comes in is refused by name or understood, never a panic. Not here: what an offer means, and whose MADs may cross.

pub mod frame;

use std::os::fd::BorrowedFd;

use madplane_shm::message::{Envelope, kind};

use crate::datagram::{Carrier, Datagrams, MAX_FRAME, Mishaps};
use crate::{Capabilities, MadMessage, MadRx, MadTx};
use frame::{Body, Clock, Frame, Header, Refusal};

/// Time between two keep-alives.
pub const KEEP_ALIVE_NS: u64 = 100_000_000;
/// Silence after which the other end is dead.
pub const DEAD_NS: u64 = 800_000_000;
/// MADs by which one may come late.
pub const WINDOW: u64 = 64;
/// A number that is further ahead than this is nobody's.
const MOST_AHEAD: u64 = 1 << 32;

/// What an end is ready to do; the engine knows what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offer {
    /// Physical state wanted while the link is down.
    pub want: u8,
    /// LinkWidthEnabled.
    pub width: u8,
    /// LinkSpeedEnabled.
    pub speed: u8,
    /// LinkSpeedExtEnabled and, in bits 7:5, LinkSpeedExtEnabled2.
    pub speed_ext: u8,
    /// FDR10 enabled.
    pub fdr10: u8,
}

/// What an end says of itself in every keep-alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Declared {
    /// What it is ready to do.
    pub offer: Offer,
    /// Its cable is in.
    pub plugged: bool,
    /// How often it fell.
    pub episode: u32,
    /// GUID of the node at this end.
    pub node_guid: u64,
    /// Port of the node.
    pub port: u8,
}

/// What happened at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEvent {
    /// It is there, with this offer.
    Plugged(Offer),
    /// It is dead, cannot hear us, or its cable was pulled.
    Unplugged,
    /// It fell and may be ready to train again.
    Dropped(Offer),
    /// Only the offer changed.
    Offer(Offer),
}

/// How a link stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The other end is not heard.
    Silent,
    /// It is heard, and does not hear us.
    OneWay,
    /// Each hears the other, the cable is out at one end or both.
    Pulled,
    /// MADs pass.
    Up,
}

impl LinkState {
    /// The name under which it is shown.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::OneWay => "one-way",
            Self::Pulled => "pulled",
            Self::Up => "up",
        }
    }
}

/// Past events of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounts {
    /// MADs handed to the transport.
    pub sent: u64,
    /// MADs given out.
    pub received: u64,
    /// MADs of the other end that did not arrive; one that comes late is taken off again.
    pub lost: u64,
    /// MADs that came twice, or too late to tell.
    pub repeated: u64,
    /// MADs given out although a later one had been.
    pub late: u64,
    /// Keep-alives sent.
    pub keep_alives_sent: u64,
    /// Keep-alives understood.
    pub keep_alives_received: u64,
    /// Times that the link came up.
    pub ups: u64,
    /// Times that it went down.
    pub downs: u64,
    /// Round trip of the last keep-alive, nanoseconds.
    pub round_trip_ns: u64,
    /// By [`Refusal`].
    pub refused: [u64; Refusal::ALL.len()],
}

/// What is known of the other end while it is heard.
#[derive(Debug, Clone, Copy)]
struct Peer {
    session: u64,
    heard_ns: u64,
    hears_us: bool,
    declared: Declared,
    /// Its clock in its last keep-alive, and ours when that came.
    clock_ns: u64,
    clock_heard_ns: u64,
}

/// Numbers seen: the highest, and which of the [`WINDOW`] up to it.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    top: u64,
    bits: u64,
}

/// What [`Link::next_event`] has told.
#[derive(Debug, Clone, Copy)]
struct Told {
    outage: u64,
    declared: Declared,
}

/// One end of a link.
pub struct Link {
    transport: Box<dyn Datagrams>,
    session: u64,
    own: Declared,
    /// The other end does not know yet what `own` says.
    news: bool,
    peer: Option<Peer>,
    /// Times that the other end was not there, so that none is overlooked.
    outage: u64,
    told: Option<Told>,
    now_ns: u64,
    keep_alive_due_ns: u64,
    sequence: u64,
    seen: Seen,
    counts: LinkCounts,
    buffer: Box<[u8; MAX_FRAME]>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("session", &self.session)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// An end over `transport`. `session` is larger than that of any former end of this link: Unix time in nanoseconds.
    pub fn new(transport: Box<dyn Datagrams>, session: u64, own: Declared) -> Self {
        Self {
            transport,
            session: session.max(1),
            own,
            news: true,
            peer: None,
            outage: 0,
            told: None,
            now_ns: 0,
            keep_alive_due_ns: 0,
            sequence: 0,
            seen: Seen::default(),
            counts: LinkCounts::default(),
            buffer: Box::new([0; MAX_FRAME]),
        }
    }

    /// What this end says of itself.
    pub fn own(&self) -> &Declared {
        &self.own
    }

    /// Says something else of this end from now on.
    pub fn declare(&mut self, own: Declared) {
        self.news |= own != self.own;
        self.own = own;
    }

    /// What the other end says of itself, if it is heard.
    pub fn peer(&self) -> Option<&Declared> {
        self.peer.as_ref().map(|peer| &peer.declared)
    }

    /// How the link stands.
    pub fn state(&self) -> LinkState {
        match &self.peer {
            None => LinkState::Silent,
            Some(peer) if !peer.hears_us => LinkState::OneWay,
            Some(peer) if !peer.declared.plugged || !self.own.plugged => LinkState::Pulled,
            Some(_) => LinkState::Up,
        }
    }

    /// What was counted.
    pub fn counts(&self) -> &LinkCounts {
        &self.counts
    }

    /// What the transport has counted.
    pub fn mishaps(&self) -> Mishaps {
        self.transport.mishaps()
    }

    /// One line about the transport, for people.
    pub fn describe(&self) -> String {
        self.transport.describe()
    }

    /// Takes the time: looks whether the other end still lives, and sends a keep-alive if one is due. Call after
    /// [`MadRx::rx_burst`], so that what has come counts. Returns how many frames were sent.
    pub fn tick(&mut self, now_ns: u64) -> usize {
        self.now_ns = self.now_ns.max(now_ns);
        if let Some(peer) = &self.peer
            && (self.now_ns.saturating_sub(peer.heard_ns) > DEAD_NS
                || self.transport.carrier() != Carrier::Up)
        {
            // the other end must notice, even if it has heard us all the time
            self.session += 1;
            (self.sequence, self.news) = (0, true);
            self.lose_peer();
        }
        if (!self.news && self.now_ns < self.keep_alive_due_ns) || self.transport.carrier() != Carrier::Up {
            return 0;
        }
        let clock = Clock {
            sent_ns: self.now_ns,
            echo_ns: self.peer.map_or(0, |peer| peer.clock_ns),
            held_ns: self.peer.map_or(0, |peer| self.now_ns.saturating_sub(peer.clock_heard_ns)),
        };
        let header = self.header(self.sequence);
        let length = frame::write_keep_alive(&header, &self.own, &clock, &mut self.buffer);
        if !self.transport.send(&self.buffer[..length]) {
            return 0;
        }
        self.news = false;
        self.keep_alive_due_ns = self.now_ns + KEEP_ALIVE_NS;
        self.counts.keep_alives_sent += 1;
        1
    }

    /// When [`Link::tick`] has something to do at the latest.
    pub fn deadline_ns(&self) -> u64 {
        if self.news && self.transport.carrier() == Carrier::Up {
            return self.now_ns;
        }
        let dead = self.peer.map_or(u64::MAX, |peer| peer.heard_ns + DEAD_NS + 1);
        // a transport that is down is looked at now and then
        dead.min(self.keep_alive_due_ns.max(self.now_ns + KEEP_ALIVE_NS / 10))
    }

    /// What happened at the other end since the last call.
    pub fn next_event(&mut self) -> Option<LinkEvent> {
        let there = self.peer.filter(|peer| peer.hears_us && peer.declared.plugged).map(|peer| peer.declared);
        match (&mut self.told, there) {
            (None, None) => None,
            (None, Some(declared)) => {
                self.told = Some(Told { outage: self.outage, declared });
                self.counts.ups += 1;
                Some(LinkEvent::Plugged(declared.offer))
            }
            (Some(told), Some(declared)) if told.outage == self.outage => {
                let former = std::mem::replace(&mut told.declared, declared);
                if former.episode != declared.episode {
                    Some(LinkEvent::Dropped(declared.offer))
                } else if former.offer != declared.offer {
                    Some(LinkEvent::Offer(declared.offer))
                } else {
                    None
                }
            }
            (Some(_), _) => {
                self.told = None;
                self.counts.downs += 1;
                Some(LinkEvent::Unplugged)
            }
        }
    }

    /// Says that the worker is about to sleep; true if it may.
    pub fn arm(&mut self) -> bool {
        self.transport.arm()
    }

    /// Says that the worker is awake.
    pub fn disarm(&mut self) {
        self.transport.disarm();
    }

    /// What to wait for, if there is something.
    pub fn waker(&self) -> Option<BorrowedFd<'_>> {
        self.transport.waker()
    }

    fn header(&self, sequence: u64) -> Header {
        let to = self.peer.map_or(0, |peer| peer.session);
        Header { from: self.session, to, sequence, received: self.counts.received }
    }

    fn lose_peer(&mut self) {
        self.peer = None;
        self.outage += 1;
    }

    /// Takes one frame; whether `message` holds a MAD now.
    fn take(&mut self, length: usize, message: &mut MadMessage) -> bool {
        let bytes = self.buffer.get(..length).unwrap_or(&[]);
        let (header, body) = match Frame::parse(bytes) {
            Ok(Frame { header, body }) => (header, body),
            Err(refusal) => return self.refuse(refusal),
        };
        match body {
            Body::KeepAlive(declared, clock) => {
                self.hear(header, declared, clock);
                false
            }
            Body::Mad(bytes) => {
                let (own, now_ns) = (self.session, self.now_ns);
                let known = self.peer.as_mut().filter(|peer| header.from == peer.session && header.to == own);
                let Some(peer) = known else { return self.refuse(Refusal::Session) };
                if header.sequence == 0 || header.sequence > self.seen.top + MOST_AHEAD {
                    return self.refuse(Refusal::Sequence);
                }
                peer.heard_ns = now_ns;
                if !self.seen.note(header.sequence, &mut self.counts) {
                    return false;
                }
                frame::read_mad(bytes, message);
                self.counts.received += 1;
                true
            }
        }
    }

    #[cold]
    fn refuse(&mut self, refusal: Refusal) -> bool {
        self.counts.refused[refusal as usize] += 1;
        false
    }

    fn hear(&mut self, header: Header, declared: Declared, clock: Clock) {
        let former = self.peer.map(|peer| peer.session);
        // of an end that lives, only a later session is no echo of the past
        if former.is_some_and(|former| header.from < former) {
            self.refuse(Refusal::Session);
            return;
        }
        if former != Some(header.from) {
            if former.is_some() {
                self.lose_peer();
            }
            self.seen = Seen::default();
            self.news = true;
        }
        if header.sequence > self.seen.top + MOST_AHEAD {
            self.refuse(Refusal::Sequence);
            return;
        }
        let hears_us = header.to == self.session;
        let heard_us = self.peer.is_some_and(|peer| peer.hears_us);
        if heard_us && !hears_us {
            self.outage += 1;
        }
        self.news |= hears_us != heard_us;
        // those it sent last may have been lost; one that is only late takes itself off again
        self.seen.advance(header.sequence, &mut self.counts);
        let (now_ns, clock_ns) = (self.now_ns, clock.sent_ns);
        self.peer = Some(Peer {
            session: header.from,
            heard_ns: now_ns,
            hears_us,
            declared,
            clock_ns,
            clock_heard_ns: now_ns,
        });
        self.counts.keep_alives_received += 1;
        if clock.echo_ns != 0 {
            self.counts.round_trip_ns = now_ns.saturating_sub(clock.echo_ns).saturating_sub(clock.held_ns);
        }
    }
}

impl Seen {
    /// Notes a number; whether it is new.
    fn note(&mut self, number: u64, counts: &mut LinkCounts) -> bool {
        if number > self.top {
            counts.lost += number - self.top - 1;
            self.shift(number);
            self.bits |= 1;
            return true;
        }
        let back = self.top - number;
        if back >= WINDOW || self.bits >> back & 1 == 1 {
            counts.repeated += 1;
            return false;
        }
        self.bits |= 1 << back;
        counts.lost = counts.lost.saturating_sub(1);
        counts.late += 1;
        true
    }

    /// Learns that `number` was sent.
    fn advance(&mut self, number: u64, counts: &mut LinkCounts) {
        if number > self.top {
            counts.lost += number - self.top;
            self.shift(number);
        }
    }

    fn shift(&mut self, top: u64) {
        let by = u32::try_from(top - self.top).unwrap_or(u32::MAX);
        self.bits = self.bits.checked_shl(by).unwrap_or(0);
        self.top = top;
    }
}

impl MadRx for Link {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        let mut taken = 0;
        // what is no MAD counts too, so that a flood of it does not hold the worker
        let mut frames = 2 * into.len();
        while taken < into.len() && frames > 0 {
            let Some(length) = self.transport.receive(&mut self.buffer[..]) else { break };
            frames -= 1;
            if self.take(length, &mut into[taken]) {
                taken += 1;
            }
        }
        taken
    }

    fn release(&mut self) {}

    fn capabilities(&self) -> Capabilities {
        let can_sleep = self.transport.waker().is_some();
        Capabilities { depth: self.transport.depth(), wakes: false, can_sleep }
    }
}

impl MadTx for Link {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        if self.state() != LinkState::Up {
            return 0;
        }
        let mut given = 0;
        for message in from {
            let header = self.header(self.sequence + 1);
            let length = frame::write_mad(&header, message, &mut self.buffer);
            if !self.transport.send(&self.buffer[..length]) {
                break;
            }
            self.sequence += 1;
            self.counts.sent += 1;
            given += 1;
        }
        given
    }

    fn flush(&mut self) -> bool {
        self.transport.flush()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { depth: self.transport.depth(), wakes: true, can_sleep: false }
    }
}

/// Feeds an end with whatever comes; it must bear it. For fuzzing.
#[doc(hidden)]
pub fn fuzz_link(bytes: &[u8]) {
    struct Feed(Vec<Vec<u8>>);
    impl Datagrams for Feed {
        fn send(&mut self, _: &[u8]) -> bool {
            true
        }
        fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
            let frame = self.0.pop()?;
            into.get_mut(..frame.len())?.copy_from_slice(&frame);
            Some(frame.len())
        }
        fn flush(&mut self) -> bool {
            false
        }
        fn carrier(&self) -> Carrier {
            Carrier::Up
        }
        fn arm(&mut self) -> bool {
            self.0.is_empty()
        }
        fn disarm(&mut self) {}
        fn waker(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }
    let frames = bytes.chunks(frame::MAD_FRAME).map(<[u8]>::to_vec).collect();
    let own = Declared { plugged: true, ..Declared::default() };
    let mut link = Link::new(Box::new(Feed(frames)), 5, own);
    let blank = MadMessage { envelope: Envelope { kind: kind::MAD, ..Envelope::default() }, mad: [0; 256] };
    let mut into = [blank; 4];
    for round in 0..64 {
        link.rx_burst(&mut into);
        link.tick(round * KEEP_ALIVE_NS);
        while link.next_event().is_some() {}
        link.tx_burst(&into);
    }
}

#[cfg(test)]
#[path = "link/tests.rs"]
mod tests;
