//! One suite for every backend of the port traits.
//!
//! The contract is the one in the documentation of `MadRx` and `MadTx`. A backend joins by adding a line to `backends!`. Backends
//! on devices need the two of scripts/rxe-vm and are skipped elsewhere.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they saw and why they are skipped"
)]

mod support;

use madplane_port::datagram::pair::{Faults, pair};
use madplane_port::link::{Declared, Link, LinkState};
use madplane_port::{Envelope, MAD_LEN, MadMessage, MadRx, MadTx, loopback, session};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::header::Incarnation;
use madplane_shm::message::Envelope;
use madplane_shm::session::create_pair;
use support::{vendor_mad, wait_for};
use zerocopy::FromBytes;

/// A direction: what goes into the first half comes out of the second.
struct Direction {
    tx: Box<dyn MadTx>,
    rx: Box<dyn MadRx>,
    /// How a MAD is addressed so that it comes out.
    address: Envelope,
    /// MADs come out in the order in which they went in. The kernel's agents swap neighbours now and then (DEVICES.md).
    ordered: bool,
}

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

fn in_memory(tx: impl MadTx + 'static, rx: impl MadRx + 'static) -> Option<Direction> {
    Some(Direction { tx: Box::new(tx), rx: Box::new(rx), address: Envelope::default(), ordered: true })
}

fn loopback_direction(depth: usize) -> Option<Direction> {
    let (tx, rx) = loopback::channel(depth);
    in_memory(tx, rx)
}

fn session_down(depth: usize) -> Option<Direction> {
    let (_rx, tx, _client_tx, client_rx) = session_pair(depth as u64);
    in_memory(tx, client_rx)
}

fn session_up(depth: usize) -> Option<Direction> {
    let (rx, _tx, client_tx, _client_rx) = session_pair(depth as u64);
    in_memory(client_tx, rx)
}

/// Both ends are up and nothing is on the way, so what a test sees is the link's and not its beginning.
fn link_direction(depth: usize) -> Option<Direction> {
    let (one, other) = pair(depth, Faults::default()).unwrap();
    let own = Declared { plugged: true, ..Declared::default() };
    let mut ends = [Link::new(Box::new(one), 1, own), Link::new(Box::new(other), 1, own)];
    for round in 1..10 {
        for end in &mut ends {
            assert_eq!(end.rx_burst(&mut [MadMessage::default(); 4]), 0);
            end.tick(round);
        }
    }
    assert!(ends.iter().all(|end| end.state() == LinkState::Up));
    let [tx, rx] = ends;
    in_memory(tx, rx)
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
    rx.register(&AgentSpec { methods: 1 << SEND, ..agent }).unwrap();
    let address = Envelope { agent: from, ..support::to("rxe1", 1) };
    Some(Direction { tx: Box::new(tx), rx: Box::new(rx), address, ordered: false })
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
    Some(Direction { tx: Box::new(tx), rx: Box::new(rx), address, ordered: true })
}

const SEND: u8 = 0x03;

impl Direction {
    fn numbered(&self, number: u32) -> MadMessage {
        MadMessage { envelope: self.address, mad: vendor_mad(SEND, number) }
    }

    fn burst(&self, numbers: std::ops::Range<u32>) -> Vec<MadMessage> {
        numbers.map(|number| self.numbered(number)).collect()
    }

    /// Takes what is there.
    fn take(&mut self) -> Vec<MadMessage> {
        let mut buffer = vec![self.numbered(0xa5a5); 7];
        let mut all = Vec::new();
        loop {
            let count = self.rx.rx_burst(&mut buffer);
            if count == 0 {
                self.rx.release();
                return all;
            }
            all.extend_from_slice(&buffer[..count]);
        }
    }

    /// Takes as many as have to come, and looks for more.
    fn expect(&mut self, numbers: std::ops::Range<u32>) {
        let mut all = Vec::new();
        let wanted = numbers.len();
        wait_for("MADs that were sent", || {
            all.extend(self.take());
            (all.len() >= wanted).then_some(())
        });
        all.extend(self.take());
        assert_eq!(all.len(), wanted, "each once");
        if !self.ordered {
            all.sort_by_key(|message| support::number_of(&message.mad));
        }
        for (got, number) in all.iter_mut().zip(numbers) {
            // the kernel writes the agent into the upper half of a request's transaction id
            got.mad[8..12].fill(0);
            assert_eq!(got.mad, vendor_mad(SEND, number), "in order and whole");
        }
    }

    /// Hands over as many as the other end's progress allows, all of them in the end.
    fn send_all(&mut self, burst: &[MadMessage]) {
        let mut given = 0;
        wait_for("room", || {
            given += self.tx.tx_burst(&burst[given..]);
            self.tx.flush();
            (given == burst.len()).then_some(())
        });
    }
}

fn mads_arrive_in_order_each_once_and_whole(mut way: Direction) {
    let mut next = 0;
    for burst in [1u32, 3, 16, 5, 16, 2, 16, 16, 9] {
        let sent = way.burst(next..next + burst);
        way.send_all(&sent);
        way.expect(next..next + burst);
        next += burst;
    }
}

/// Every field of the envelope that travels and every byte differ from those of another number and from their neighbours.
fn marked(number: u8) -> MadMessage {
    let mut bytes = [0; 312];
    for (byte, at) in bytes.iter_mut().zip(0..) {
        *byte = number.wrapping_mul(31).wrapping_add(u8::try_from(at % 251).unwrap());
    }
    let mut message = MadMessage::read_from_bytes(&bytes).unwrap();
    (message.envelope.length, message.envelope.reserved) = (256, 0);
    message
}

fn a_mad_is_the_same_whole_or_in_parts(mut way: Direction) {
    let all = |got: &mut MadMessage, rx: &mut dyn MadRx, whole: bool| {
        if whole {
            rx.rx_burst(std::slice::from_mut(got)) == 1
        } else {
            rx.rx_parts(&mut got.envelope, &mut got.mad)
        }
    };
    for number in 0..=255_u8 {
        let (sent, mut got) = (way.marked(number), marked(!number));
        if number & 1 == 0 {
            wait_for("room", || way.tx.tx_parts(&sent.envelope, &sent.mad).then_some(()));
        } else {
            wait_for("room", || (way.tx.tx_burst(&[sent]) == 1).then_some(()));
        }
        way.tx.flush();
        wait_for("a MAD that was sent", || all(&mut got, &mut *way.rx, number & 2 == 0).then_some(()));
        way.rx.release();
        way.assert_same(&got, &sent);
    }
    let mut untouched = marked(9);
    assert!(!way.rx.rx_parts(&mut untouched.envelope, &mut untouched.mad));
    assert_eq!(untouched, marked(9));
    let depth = u8::try_from(way.tx.capabilities().depth.min(40)).unwrap();
    for number in 0..depth {
        let sent = way.marked(number);
        assert!(way.tx.tx_parts(&sent.envelope, &sent.mad), "room for {depth}");
    }
    let more = way.marked(depth);
    assert!(!way.tx.tx_parts(&more.envelope, &more.mad), "depth is {depth}");
    way.tx.flush();
    for number in 0..depth {
        let (sent, mut got) = (way.marked(number), marked(!number));
        wait_for("a MAD that was sent", || all(&mut got, &mut *way.rx, false).then_some(()));
        way.rx.release();
        way.assert_same(&got, &sent);
    }
}

fn a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost(mut way: Direction) {
    let burst = way.burst(0..40);
    let depth = way.tx.capabilities().depth.min(40);
    let end = u32::try_from(depth).unwrap();
    assert_eq!(way.tx.tx_burst(&burst), depth, "as many as fit");
    assert_eq!(way.tx.tx_burst(&burst[depth..]), 0);
    way.tx.flush();
    way.expect(0..end);
    let rest = &burst[depth..(2 * depth).min(40)];
    way.send_all(rest);
    way.expect(end..end + u32::try_from(rest.len()).unwrap());
}

fn an_empty_port_gives_nothing_and_leaves_the_buffers(mut way: Direction) {
    let mut buffer = [way.numbered(7)];
    assert_eq!(way.rx.rx_burst(&mut buffer), 0);
    assert_eq!(buffer[0], way.numbered(7));
    assert_eq!(way.rx.rx_burst(&mut []), 0);
}

fn the_other_half_may_close_while_busy(way: Direction) {
    let burst = way.burst(0..40);
    let Direction { mut tx, rx, .. } = way;
    let depth = tx.capabilities().depth;
    drop(rx);
    assert!(tx.tx_burst(&burst) <= depth);
    tx.flush();
}

fn a_port_may_be_closed_and_opened_again(open: impl Fn(usize) -> Option<Direction>) {
    let Some(mut first) = open(16) else { return };
    let burst = first.burst(0..16);
    first.send_all(&burst);
    first.expect(0..16);
    drop(first);
    let mut second = open(16).unwrap();
    assert_eq!(second.take(), []);
    let burst = second.burst(100..116);
    second.send_all(&burst);
    second.expect(100..116);
}

macro_rules! backends {
    ($($(#[$when:meta])? $backend:ident),*) => { $( $(#[$when])? mod $backend {
        #[test] fn mads_arrive_in_order_each_once_and_whole() {
            if let Some(way) = super::$backend(16) { super::mads_arrive_in_order_each_once_and_whole(way) }
        }
        #[test] fn a_mad_is_the_same_whole_or_in_parts() {
            super::a_mad_is_the_same_whole_or_in_parts(super::$backend(16));
        }
        #[test] fn a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost() {
            if let Some(way) = super::$backend(16) { super::a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost(way) }
        }
        #[test] fn an_empty_port_gives_nothing_and_leaves_the_buffers() {
            if let Some(way) = super::$backend(16) { super::an_empty_port_gives_nothing_and_leaves_the_buffers(way) }
        }
        #[test] fn the_other_half_may_close_while_busy() {
            if let Some(way) = super::$backend(16) { super::the_other_half_may_close_while_busy(way) }
        }
        #[test] fn a_port_may_be_closed_and_opened_again() {
            super::a_port_may_be_closed_and_opened_again(super::$backend);
        }
    } )* };
}

backends!(
    loopback_direction,
    session_down,
    session_up,
    link_direction,
    umad_direction,
    #[cfg(feature = "verbs")]
    verbs_direction
);
