//! One suite for every backend of the port traits.
//!
//! The contract is the one in the documentation of `MadRx` and `MadTx`. A backend joins by adding a line to `backends!`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use madplane_port::datagram::pair::{Faults, pair};
use madplane_port::link::{Declared, Link, LinkState};
use madplane_port::{Envelope, MAD_LEN, MadMessage, MadRx, MadTx, loopback, session};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::header::Incarnation;
use madplane_shm::session::create_pair;
use zerocopy::FromBytes;

/// A direction: what goes into the first comes out of the second.
type Direction = (Box<dyn MadTx>, Box<dyn MadRx>);

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

struct ClientTx(madplane_shm::session::SharedProducer<MadMessage>);

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
        unreachable!("not the half under test")
    }
}

fn session_pair(slots: u64) -> (session::SessionRx, session::SessionTx, ClientTx, ClientRx) {
    let (plane, fds) =
        create_pair::<MadMessage, MadMessage>("t", slots, false, Incarnation::default()).unwrap();
    let client = madplane_shm::session::open_pair(&fds).unwrap();
    let (rx, tx) = session::split(plane, Doorbell::create().unwrap(), slots);
    (rx, tx, ClientTx(client.up), ClientRx(client.down))
}

fn loopback_direction(depth: usize) -> Direction {
    let (tx, rx) = loopback::channel(depth);
    (Box::new(tx), Box::new(rx))
}

fn session_down(depth: usize) -> Direction {
    let (_rx, tx, _client_tx, client_rx) = session_pair(depth as u64);
    (Box::new(tx), Box::new(client_rx))
}

fn session_up(depth: usize) -> Direction {
    let (rx, _tx, client_tx, _client_rx) = session_pair(depth as u64);
    (Box::new(client_tx), Box::new(rx))
}

/// Both ends are up and nothing is on the way, so what a test sees is the link's and not its beginning.
fn link_direction(depth: usize) -> Direction {
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
    (Box::new(tx), Box::new(rx))
}

fn numbered(number: u32) -> MadMessage {
    let mut message = MadMessage::default();
    message.envelope.agent = number;
    message.envelope.length = 256;
    message.mad.fill(number.to_le_bytes()[0]);
    message
}

fn take_all(rx: &mut dyn MadRx) -> Vec<MadMessage> {
    let mut buffer = vec![numbered(0xa5a5); 7];
    let mut all = Vec::new();
    loop {
        let count = rx.rx_burst(&mut buffer);
        if count == 0 {
            rx.release();
            return all;
        }
        all.extend_from_slice(&buffer[..count]);
    }
}

fn mads_arrive_in_order_each_once_and_whole((mut tx, mut rx): Direction) {
    let mut next_in = 0;
    let mut next_out = 0;
    for burst in [1u32, 3, 16, 5, 16, 2, 16, 16, 9] {
        let sent: Vec<_> = (next_in..next_in + burst).map(numbered).collect();
        assert_eq!(tx.tx_burst(&sent), sent.len());
        tx.flush();
        next_in += burst;
        for message in take_all(&mut *rx) {
            assert_eq!(message, numbered(next_out));
            next_out += 1;
        }
    }
    assert_eq!(next_out, next_in);
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

fn a_mad_is_the_same_whole_or_in_parts((mut tx, mut rx): Direction) {
    for number in 0..=255_u8 {
        let (sent, mut got) = (marked(number), marked(!number));
        if number & 1 == 0 {
            assert!(tx.tx_parts(&sent.envelope, &sent.mad));
        } else {
            assert_eq!(tx.tx_burst(&[sent]), 1);
        }
        if number & 2 == 0 {
            assert!(rx.rx_parts(&mut got.envelope, &mut got.mad));
        } else {
            assert_eq!(rx.rx_burst(std::slice::from_mut(&mut got)), 1);
        }
        assert_eq!(got, sent);
        rx.release();
    }
    let mut untouched = marked(9);
    assert!(!rx.rx_parts(&mut untouched.envelope, &mut untouched.mad));
    assert_eq!(untouched, marked(9));
    for number in 0..16 {
        assert!(tx.tx_parts(&marked(number).envelope, &marked(number).mad));
    }
    assert!(!tx.tx_parts(&marked(16).envelope, &marked(16).mad), "depth is 16");
    assert_eq!(take_all(&mut *rx), (0..16).map(marked).collect::<Vec<_>>());
}

fn a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost((mut tx, mut rx): Direction) {
    let burst: Vec<_> = (0..40).map(numbered).collect();
    assert_eq!(tx.tx_burst(&burst), 16, "depth is 16");
    assert_eq!(tx.tx_burst(&burst[16..]), 0);
    tx.flush();
    let got = take_all(&mut *rx);
    assert_eq!(got, burst[..16]);
    assert_eq!(tx.tx_burst(&burst[16..]), 16);
    tx.flush();
    assert_eq!(take_all(&mut *rx), burst[16..32]);
}

fn an_empty_port_gives_nothing_and_leaves_the_buffers((_tx, mut rx): Direction) {
    let mut buffer = [numbered(7)];
    assert_eq!(rx.rx_burst(&mut buffer), 0);
    assert_eq!(buffer[0], numbered(7));
    assert_eq!(rx.rx_burst(&mut []), 0);
}

fn the_other_half_may_close_while_busy((mut tx, rx): Direction) {
    let burst: Vec<_> = (0..40).map(numbered).collect();
    drop(rx);
    assert!(tx.tx_burst(&burst) <= 16);
    tx.flush();
}

macro_rules! backends {
    ($($backend:ident),*) => { $( mod $backend {
        #[test] fn mads_arrive_in_order_each_once_and_whole() {
            super::mads_arrive_in_order_each_once_and_whole(super::$backend(16));
        }
        #[test] fn a_mad_is_the_same_whole_or_in_parts() {
            super::a_mad_is_the_same_whole_or_in_parts(super::$backend(16));
        }
        #[test] fn a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost() {
            super::a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost(super::$backend(16));
        }
        #[test] fn an_empty_port_gives_nothing_and_leaves_the_buffers() {
            super::an_empty_port_gives_nothing_and_leaves_the_buffers(super::$backend(16));
        }
        #[test] fn the_other_half_may_close_while_busy() {
            super::the_other_half_may_close_while_busy(super::$backend(16));
        }
    } )* };
}

backends!(loopback_direction, session_down, session_up, link_direction);
