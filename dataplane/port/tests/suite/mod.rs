//! What every backend of the port traits is asked: the contract in the documentation of `MadRx` and `MadTx`.
//!
//! Shared by the test programs of several crates, each of which opens backends of its own and lists them in `conformance!`.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;

use madplane_port::link::{Declared, Link, LinkState};
use madplane_port::{Capabilities, Envelope, MadMessage, MadRx, MadTx};
use madplane_shm::process::monotonic_ns;
use zerocopy::FromBytes;

use crate::support::{number_of, vendor_mad, wait_for};

pub(crate) const SEND: u8 = 0x03;
/// MADs offered beyond what a port says it holds.
const BEYOND: usize = 24;
/// More MADs than any port holds while it drains.
const FLOOD: u32 = 100_000;

/// A direction: what goes into the first half comes out of the second.
pub(crate) struct Direction {
    pub(crate) tx: Box<dyn MadTx>,
    pub(crate) rx: Box<dyn MadRx>,
    /// How a MAD is addressed so that it comes out.
    pub(crate) address: Envelope,
    /// What comes out is the whole message: every field of the envelope as well.
    pub(crate) whole: bool,
    /// MADs come out in the order in which they went in. The kernel's agents swap neighbours now and then (DEVICES.md).
    pub(crate) ordered: bool,
    /// When it takes no more.
    pub(crate) full: Full,
    /// MADs that the receiving half counts as lost.
    pub(crate) lost: Rc<Cell<u64>>,
    /// What has to live as long.
    pub(crate) _keep: Option<Box<dyn Any>>,
}

/// When a sending half takes no more.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "not every test program has backends of all kinds")]
pub(crate) enum Full {
    /// After as many as its capabilities say: nothing leaves while nobody takes anything out.
    AtDepth,
    /// Some time: it drains by itself, more slowly than it is filled.
    Drains,
    /// Never: whoever is behind it says so by dropping.
    Never,
}

impl Direction {
    /// A direction in memory, where everything is exact.
    pub(crate) fn in_memory(tx: impl MadTx + 'static, rx: impl MadRx + 'static) -> Self {
        Self {
            tx: Box::new(tx),
            rx: Box::new(rx),
            address: Envelope { length: 256, ..Envelope::default() },
            whole: true,
            ordered: true,
            full: Full::AtDepth,
            lost: Rc::default(),
            _keep: None,
        }
    }

    /// Two ends of a link whose transport is up or on its way there.
    #[allow(dead_code, reason = "not every test program has a transport with a life of its own")]
    pub(crate) fn over_links(ends: [Link; 2], keep: impl Any) -> Self {
        let mut ends = ends.map(LinkEnd::new);
        wait_for("both ends of the link", || {
            ends.iter_mut().for_each(LinkEnd::look_after);
            ends.iter().all(|end| end.link.state() == LinkState::Up).then_some(())
        });
        let [tx, rx] = ends;
        let lost = rx.lost.clone();
        Self { full: Full::Drains, lost, _keep: Some(Box::new(keep)), ..Self::in_memory(tx, rx) }
    }

    fn numbered(&self, number: u32) -> MadMessage {
        MadMessage { envelope: self.address, mad: vendor_mad(SEND, number) }
    }

    fn marked(&self, number: u8) -> MadMessage {
        if self.whole { marked(number) } else { self.numbered(number.into()) }
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
                // a sender with keep-alives of its own has to have its turn
                self.tx.flush();
                return all;
            }
            all.extend_from_slice(&buffer[..count]);
        }
    }

    /// Takes as many as have to come, less those that are counted as lost, and looks for more.
    fn expect(&mut self, numbers: std::ops::Range<u32>) {
        let mut all = Vec::new();
        let before = self.lost.get();
        let wanted = numbers.len();
        let arrived = |all: &Vec<MadMessage>, lost: u64| all.len() + usize::try_from(lost - before).unwrap();
        wait_for("MADs that were sent", || {
            all.extend(self.take());
            (arrived(&all, self.lost.get()) >= wanted).then_some(())
        });
        all.extend(self.take());
        assert_eq!(arrived(&all, self.lost.get()), wanted, "each once, or counted");
        let mut got: Vec<u32> = all.iter().map(|message| number_of(&message.mad)).collect();
        if !self.ordered {
            got.sort_unstable();
        }
        assert!(got.is_sorted_by(|one, next| one < next), "in order, each once: {got:?}");
        if self.lost.get() == before {
            assert_eq!(got, numbers.collect::<Vec<_>>());
        }
        for message in &mut all {
            let sent = self.numbered(number_of(&message.mad));
            self.assert_same(message, &sent);
        }
    }

    #[track_caller]
    fn assert_same(&self, got: &MadMessage, sent: &MadMessage) {
        if self.whole {
            assert_eq!(got, sent);
            return;
        }
        let mut mad = got.mad;
        // the kernel writes the agent into the upper half of a request's transaction id
        mad[8..12].fill(0);
        assert_eq!(mad, sent.mad, "whole");
    }

    /// Takes one MAD as it lies in the port, or in parts.
    fn take_one(&mut self, in_parts: bool) -> MadMessage {
        let mut got = marked(0x5a);
        wait_for("a MAD that was sent", || {
            let there = if in_parts {
                self.rx.rx_parts(&mut got.envelope, &mut got.mad)
            } else {
                self.rx.rx_burst(std::slice::from_mut(&mut got)) == 1
            };
            self.rx.release();
            self.tx.flush();
            there.then_some(())
        });
        got
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

    /// Sends until no more is taken; how many were.
    fn fill(&mut self) -> u32 {
        let depth = MadTx::capabilities(&*self.tx).depth;
        match self.full {
            Full::AtDepth => {
                let end = u32::try_from(depth).unwrap();
                let burst = self.burst(0..end + u32::try_from(BEYOND).unwrap());
                assert_eq!(self.tx.tx_burst(&burst), depth, "as many as fit");
                assert_eq!(self.tx.tx_burst(&burst[depth..]), 0);
                end
            }
            Full::Drains => {
                let mut given = 0;
                loop {
                    let burst = self.burst(given..given + 512);
                    let taken = u32::try_from(self.tx.tx_burst(&burst)).unwrap();
                    given += taken;
                    if taken < 512 {
                        return given;
                    }
                    assert!(given < FLOOD, "a depth of {depth} has to be felt");
                }
            }
            Full::Never => {
                let burst = self.burst(0..40);
                assert_eq!(self.tx.tx_burst(&burst), 40);
                40
            }
        }
    }
}

/// One end of a link, served as a worker serves it.
struct LinkEnd {
    link: Link,
    lost: Rc<Cell<u64>>,
}

impl LinkEnd {
    fn new(link: Link) -> Self {
        Self { link, lost: Rc::default() }
    }

    fn look_after(&mut self) {
        assert_eq!(self.link.rx_burst(&mut [MadMessage::default(); 1]), 0, "nobody has sent yet");
        self.tick();
    }

    fn tick(&mut self) {
        self.link.tick(monotonic_ns());
        while self.link.next_event().is_some() {}
        self.link.flush();
        self.lost.set(self.link.counts().lost);
    }
}

impl MadRx for LinkEnd {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        let count = self.link.rx_burst(into);
        self.tick();
        count
    }

    fn release(&mut self) {
        self.link.release();
    }

    fn capabilities(&self) -> Capabilities {
        MadRx::capabilities(&self.link)
    }
}

impl MadTx for LinkEnd {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        self.link.tx_burst(from)
    }

    fn flush(&mut self) -> bool {
        self.look_after();
        false
    }

    fn capabilities(&self) -> Capabilities {
        MadTx::capabilities(&self.link)
    }
}

/// What an end says of itself while it carries MADs.
#[allow(dead_code, reason = "not every test program has links")]
pub(crate) fn plugged() -> Declared {
    Declared { plugged: true, ..Declared::default() }
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

pub(crate) fn mads_arrive_in_order_each_once_and_whole(mut way: Direction) {
    let mut next = 0;
    for burst in [1u32, 3, 16, 5, 16, 2, 16, 16, 9] {
        let sent = way.burst(next..next + burst);
        way.send_all(&sent);
        way.expect(next..next + burst);
        next += burst;
    }
}

pub(crate) fn a_mad_is_the_same_whole_or_in_parts(mut way: Direction) {
    for number in 0..=255_u8 {
        let sent = way.marked(number);
        wait_for("room", || {
            let given = if number & 1 == 0 {
                way.tx.tx_parts(&sent.envelope, &sent.mad)
            } else {
                way.tx.tx_burst(&[sent]) == 1
            };
            given.then_some(())
        });
        way.tx.flush();
        let got = way.take_one(number & 2 == 0);
        way.assert_same(&got, &sent);
    }
    let mut untouched = marked(9);
    assert!(!way.rx.rx_parts(&mut untouched.envelope, &mut untouched.mad));
    assert_eq!(untouched, marked(9));
    if way.full != Full::AtDepth {
        return;
    }
    let depth = u8::try_from(MadTx::capabilities(&*way.tx).depth).unwrap();
    for number in 0..depth {
        let sent = way.marked(number);
        assert!(way.tx.tx_parts(&sent.envelope, &sent.mad), "room for {depth}");
    }
    let more = way.marked(depth);
    assert!(!way.tx.tx_parts(&more.envelope, &more.mad), "depth is {depth}");
    way.tx.flush();
    for number in 0..depth {
        let (sent, got) = (way.marked(number), way.take_one(true));
        way.assert_same(&got, &sent);
    }
}

pub(crate) fn a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost(mut way: Direction) {
    let end = way.fill();
    way.tx.flush();
    way.expect(0..end);
    // and there is room again
    let rest = way.burst(end..end + 8);
    way.send_all(&rest);
    way.expect(end..end + 8);
}

pub(crate) fn an_empty_port_gives_nothing_and_leaves_the_buffers(mut way: Direction) {
    let mut buffer = [way.numbered(7)];
    assert_eq!(way.rx.rx_burst(&mut buffer), 0);
    assert_eq!(buffer[0], way.numbered(7));
    assert_eq!(way.rx.rx_burst(&mut []), 0);
}

pub(crate) fn the_other_half_may_close_while_busy(mut way: Direction) {
    let burst = way.burst(0..40);
    let depth = MadTx::capabilities(&*way.tx).depth;
    let one = way.burst(0..1);
    way.send_all(&one);
    drop(way.rx);
    assert!(way.tx.tx_burst(&burst) <= depth);
    way.tx.flush();
}

pub(crate) fn a_port_may_be_closed_and_opened_again(open: impl Fn(usize) -> Option<Direction>) {
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

/// Asks everything of every backend: a function from a depth to a [`Direction`], or to `None` where its peers are missing.
macro_rules! conformance {
    ($($(#[$when:meta])? $backend:ident),* $(,)?) => { $( $(#[$when])? mod $backend {
        #[test] fn mads_arrive_in_order_each_once_and_whole() {
            if let Some(way) = super::$backend(16) { crate::suite::mads_arrive_in_order_each_once_and_whole(way) }
        }
        #[test] fn a_mad_is_the_same_whole_or_in_parts() {
            if let Some(way) = super::$backend(16) { crate::suite::a_mad_is_the_same_whole_or_in_parts(way) }
        }
        #[test] fn a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost() {
            if let Some(way) = super::$backend(16) { crate::suite::a_full_port_accepts_the_front_of_a_burst_and_nothing_is_lost(way) }
        }
        #[test] fn an_empty_port_gives_nothing_and_leaves_the_buffers() {
            if let Some(way) = super::$backend(16) { crate::suite::an_empty_port_gives_nothing_and_leaves_the_buffers(way) }
        }
        #[test] fn the_other_half_may_close_while_busy() {
            if let Some(way) = super::$backend(16) { crate::suite::the_other_half_may_close_while_busy(way) }
        }
        #[test] fn a_port_may_be_closed_and_opened_again() {
            crate::suite::a_port_may_be_closed_and_opened_again(super::$backend);
        }
    } )* };
}
pub(crate) use conformance;
