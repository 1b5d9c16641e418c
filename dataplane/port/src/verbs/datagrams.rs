//! Frames of a link over a UD queue pair: [`Datagrams`] for hosts with RDMA.
//!
//! Owned by one worker. One peer, whose queue pair may change while it runs: a peer that was started again has another, and
//! says so where the operator, or whoever looks after links, learns it. Frames of other queue pairs than the peer's are
//! counted and dropped.

use std::os::fd::BorrowedFd;

use super::context::PortEvent;
use super::handles::Address;
use super::queue::{QueueCounters, QueueSettings, Sent, UdQueue};
use crate::datagram::{Carrier, Datagrams, MAX_FRAME};
use crate::device::{DeviceSpec, Unavailable};

/// Where the other end of a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// GID of its port, wire order; all zero on InfiniBand without global headers.
    pub gid: [u8; 16],
    /// LID of its port; 0 on Ethernet.
    pub lid: u16,
    /// Its queue pair.
    pub pair: u32,
}

/// A link's frames over one queue pair.
#[derive(Debug)]
pub struct UdDatagrams {
    queue: UdQueue,
    peer: Option<Peer>,
    /// Frames of others than the peer.
    strange: u64,
    down: bool,
}

impl UdDatagrams {
    /// Opens a queue pair for frames; [`UdDatagrams::connect`] says to whom.
    ///
    /// # Errors
    /// [`Unavailable`], for the operator.
    pub fn open(spec: &DeviceSpec, settings: &QueueSettings) -> Result<Self, Unavailable> {
        Ok(Self { queue: UdQueue::open(spec, settings, MAX_FRAME)?, peer: None, strange: 0, down: false })
    }

    /// What the other end has to be told.
    pub fn own(&self) -> Peer {
        Peer { gid: self.queue.gid(), lid: self.queue.lid(), pair: self.queue.number() }
    }

    /// Says who the other end is, from now on.
    pub fn connect(&mut self, peer: Peer) {
        self.peer = Some(peer);
    }

    /// What happened to device or port; housekeeping asks now and then, because it is a system call.
    pub fn event(&mut self) -> Option<PortEvent> {
        let event = self.queue.event();
        match event {
            Some(PortEvent::Up) => self.down = false,
            Some(PortEvent::Down) => self.down = true,
            _ => {}
        }
        event
    }

    /// Readable when [`UdDatagrams::event`] has something to tell.
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.queue.events_fd()
    }

    /// Counters since it was opened.
    pub fn counters(&self) -> QueueCounters {
        self.queue.counters()
    }

    /// Frames dropped because they were not from the peer.
    pub fn strange(&self) -> u64 {
        self.strange
    }

    fn address(&self, peer: &Peer) -> Address {
        Address {
            gid: peer.gid,
            lid: peer.lid,
            global: self.queue.is_ethernet() || peer.gid != [0; 16],
            gid_index: self.queue.gid_index(),
            hop_limit: 64,
            ..Address::default()
        }
    }
}

impl Datagrams for UdDatagrams {
    fn send(&mut self, frame: &[u8]) -> bool {
        let Some(peer) = self.peer else { return false };
        if frame.len() > MAX_FRAME {
            return false;
        }
        let to = self.address(&peer);
        // a frame without a way to its address is a lost one
        self.queue.send(&to, peer.pair, self.queue.q_key(), frame) != Sent::Full
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        loop {
            let Some(arrival) = self.queue.receive() else {
                self.queue.release();
                return None;
            };
            if self.peer.is_none_or(|peer| peer.pair != arrival.source_pair) {
                self.strange += 1;
            } else if arrival.length > into.len().min(MAX_FRAME) {
                self.queue.count_bad_length();
            } else {
                self.queue.packet(&arrival, &mut into[..arrival.length]);
                return Some(arrival.length);
            }
        }
    }

    fn flush(&mut self) -> bool {
        self.queue.release();
        self.queue.flush()
    }

    fn carrier(&self) -> Carrier {
        if self.queue.is_broken() {
            Carrier::Gone
        } else if self.down || self.peer.is_none() {
            Carrier::Down
        } else {
            Carrier::Up
        }
    }

    fn arm(&mut self) -> bool {
        self.queue.release();
        self.queue.arm()
    }

    fn disarm(&mut self) {
        self.queue.disarm();
    }

    fn waker(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.waker())
    }
}
