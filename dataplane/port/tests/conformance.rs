//! One suite for every backend of the port traits.
//!
//! The questions are in `suite`; a backend joins by a line in `conformance!`. Backends on devices need the two of scripts/rxe-vm and
//! are skipped elsewhere. Links over QUIC are asked the same in their own crate.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they saw and why they are skipped"
)]

mod suite;
mod support;
#[cfg(feature = "verbs")]
mod verbs_end;

use madplane_port::datagram::pair::{Faults, pair};
use madplane_port::link::{Link, LinkState};
use madplane_port::{Envelope, MAD_LEN, MadMessage, MadRx, MadTx, loopback, session};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::header::Incarnation;
use madplane_shm::session::create_pair;
use suite::{Direction, Full, conformance, plugged};

/// The client's half of a session, so that the plane's transmit half has somebody to talk to.
struct ClientRx(madplane_shm::session::SharedConsumer<MadMessage>);

impl MadRx for ClientRx {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        into.iter_mut().map(|message| self.0.pop(message)).take_while(|taken| *taken).count()
    }
    fn rx_parts(&mut self, envelope: &mut Envelope, mad: &mut [u8; MAD_LEN]) -> bool {
        self.0.pop_parts(envelope, mad)
    }
    fn release(&mut self) {
        self.0.commit();
    }
    fn capabilities(&self) -> madplane_port::Capabilities {
        unreachable!("not the half under test")
    }
}

struct ClientTx(madplane_shm::session::SharedProducer<MadMessage>, usize);

impl MadTx for ClientTx {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        from.iter().take_while(|message| self.0.push(message).is_ok()).count()
    }
    fn tx_parts(&mut self, envelope: &Envelope, mad: &[u8; MAD_LEN]) -> bool {
        self.0.push_parts(envelope, mad).is_ok()
    }
    fn flush(&mut self) -> bool {
        false
    }
    fn capabilities(&self) -> madplane_port::Capabilities {
        madplane_port::Capabilities { depth: self.1, wakes: false, can_sleep: false }
    }
}

fn session_pair(slots: u64) -> (session::SessionRx, session::SessionTx, ClientTx, ClientRx) {
    let (plane, fds) =
        create_pair::<MadMessage, MadMessage>("t", slots, false, Incarnation::default()).unwrap();
    let client = madplane_shm::session::open_pair(&fds).unwrap();
    let (rx, tx) = session::split(plane, Doorbell::create().unwrap(), slots);
    (rx, tx, ClientTx(client.up, usize::try_from(slots).unwrap()), ClientRx(client.down))
}

fn loopback_direction(depth: usize) -> Option<Direction> {
    let (tx, rx) = loopback::channel(depth);
    Some(Direction::in_memory(tx, rx))
}

fn session_down(depth: usize) -> Option<Direction> {
    let (_rx, tx, _client_tx, client_rx) = session_pair(depth as u64);
    Some(Direction::in_memory(tx, client_rx))
}

fn session_up(depth: usize) -> Option<Direction> {
    let (rx, _tx, client_tx, _client_rx) = session_pair(depth as u64);
    Some(Direction::in_memory(client_tx, rx))
}

/// Both ends are up and nothing is on the way, so what a test sees is the link's and not its beginning.
fn link_direction(depth: usize) -> Option<Direction> {
    let (one, other) = pair(depth, Faults::default()).unwrap();
    let mut ends = [Link::new(Box::new(one), 1, plugged()), Link::new(Box::new(other), 1, plugged())];
    for round in 1..10 {
        for end in &mut ends {
            assert_eq!(end.rx_burst(&mut [MadMessage::default(); 4]), 0);
            end.tick(round);
        }
    }
    assert!(ends.iter().all(|end| end.state() == LinkState::Up));
    let [tx, rx] = ends;
    Some(Direction::in_memory(tx, rx))
}

/// An agent on each device; requests without answers, from the one to the other.
fn umad_direction(_depth: usize) -> Option<Direction> {
    use madplane_port::umad_dev::{AgentSpec, port::UmadPort};
    if !support::rxe_or_skip("umad") {
        return None;
    }
    let agent =
        AgentSpec { pair: 1, class: support::CLASS, version: 1, oui: support::OUI, ..Default::default() };
    let mut tx = UmadPort::open(&"umad:rxe0".parse().unwrap()).unwrap();
    let mut rx = UmadPort::open(&"umad:rxe1".parse().unwrap()).unwrap();
    let from = tx.register(&agent).unwrap();
    rx.register(&AgentSpec { methods: 1 << suite::SEND, ..agent }).unwrap();
    let address = Envelope { agent: from, ..support::to("rxe1", 1) };
    let full = Full::Never;
    Some(Direction { address, whole: false, ordered: false, full, ..Direction::in_memory(tx, rx) })
}

#[cfg(feature = "verbs")]
fn verbs_direction(depth: usize) -> Option<Direction> {
    use madplane_port::verbs::{MadPort, QueueSettings};
    if !support::rxe_or_skip("verbs") {
        return None;
    }
    let settings = QueueSettings { send_depth: depth, receive_depth: 64, ..Default::default() };
    let tx = MadPort::open(&"verbs:rxe0".parse().unwrap(), &settings).unwrap();
    let rx = MadPort::open(&"verbs:rxe1".parse().unwrap(), &settings).unwrap();
    let address = support::to("rxe1", rx.number());
    Some(Direction { address, whole: false, ..Direction::in_memory(tx, rx) })
}

/// A link between queue pairs that have found each other.
#[cfg(feature = "verbs")]
fn verbs_link_direction(_depth: usize) -> Option<Direction> {
    if !support::rxe_or_skip("verbs link") {
        return None;
    }
    let [a, b] = [("rxe0", "rxe1"), ("rxe1", "rxe0")].map(|(own, peer)| verbs_end::verbs_link(own, peer, ""));
    let keep = (a.service, b.service);
    Some(Direction::over_links([a.link, b.link], keep))
}

conformance!(
    loopback_direction,
    session_down,
    session_up,
    link_direction,
    umad_direction,
    #[cfg(feature = "verbs")]
    verbs_direction,
    #[cfg(feature = "verbs")]
    verbs_link_direction
);
