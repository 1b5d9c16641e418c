//! Frames of a link over a UD queue pair: [`Datagrams`] for hosts with RDMA.
//!
//! Owned by one worker. One peer, whose queue pair may change while it runs: a peer that was started again has another, and
//! says so ([`crate::rendezvous`]). Frames of other ports or other queue pairs than the peer's are counted and dropped. [`super::links`]
//! makes these queues, keeps them open and learns who the peer is.

use std::os::fd::BorrowedFd;

use super::context::PortEvent;
use super::handles::Address;
use super::queue::{Arrival, GRH_LEN, QueueCounters, QueueSettings, Sent, UdQueue};
use crate::datagram::{Carrier, Datagrams, MAX_FRAME};
use crate::device::{DeviceSpec, Unavailable};
use crate::rendezvous::{End, Place};

/// A link's frames over one queue pair.
#[derive(Debug)]
pub struct UdDatagrams {
    queue: UdQueue,
    peer: Option<End>,
    /// Frames of others than the peer.
    strange: u64,
    down: bool,
}

/// GID of the sender in a global header: that of IPv6, or an IPv4 address in the last 20 of the 40 bytes.
fn source_gid(header: &[u8; GRH_LEN]) -> [u8; 16] {
    let mut gid = [0; 16];
    if header[0] >> 4 == 6 {
        gid.copy_from_slice(&header[8..24]);
    } else if header[20] >> 4 == 4 {
        gid[10..12].fill(0xFF);
        gid[12..].copy_from_slice(&header[32..36]);
    }
    gid
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
    pub fn own(&self) -> End {
        End {
            place: Place { gid: self.queue.gid(), lid: self.lid_of(self.queue.lid()) },
            pair: self.queue.number(),
            q_key: self.queue.q_key(),
            frame: u16::try_from(MAX_FRAME).unwrap_or(u16::MAX),
        }
    }

    /// Says who the other end is, from now on.
    pub fn connect(&mut self, peer: End) {
        self.peer = Some(peer);
    }

    /// Makes the address handle to a port, so that the first frame need not: it can take the system long. False if there is no
    /// way to that port.
    pub fn prepare(&mut self, place: &Place) -> bool {
        let to = self.address(place);
        self.queue.prepare(&to)
    }

    /// True where every packet needs a global header.
    pub fn is_ethernet(&self) -> bool {
        self.queue.is_ethernet()
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

    fn address(&self, place: &Place) -> Address {
        Address {
            gid: place.gid,
            lid: place.lid,
            global: self.queue.is_ethernet() || place.gid != [0; 16],
            gid_index: self.queue.gid_index(),
            hop_limit: 64,
            ..Address::default()
        }
    }

    /// What a device says of LIDs means nothing on Ethernet.
    fn lid_of(&self, lid: u16) -> u16 {
        if self.queue.is_ethernet() { 0 } else { lid }
    }

    /// Whether a frame is the peer's; `None` while there is none.
    fn is_peers(&self, arrival: &Arrival) -> Option<bool> {
        let peer = self.peer.as_ref()?;
        let gid = if arrival.global { source_gid(&self.queue.global_header(arrival)) } else { [0; 16] };
        let from = Place { gid, lid: self.lid_of(arrival.slid) };
        Some(peer.pair == arrival.source_pair && peer.place.is(&from))
    }
}

impl Datagrams for UdDatagrams {
    fn send(&mut self, frame: &[u8]) -> bool {
        let Some(peer) = self.peer else { return false };
        if frame.len() > MAX_FRAME {
            return false;
        }
        let to = self.address(&peer.place);
        // a frame without a way to its address is a lost one
        self.queue.send(&to, peer.pair, peer.q_key, frame) != Sent::Full
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        loop {
            let Some(arrival) = self.queue.receive() else {
                self.queue.release();
                return None;
            };
            let own = self.is_peers(&arrival);
            if own != Some(true) {
                // before anybody was introduced there are no strangers
                self.strange += u64::from(own.is_some());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_known_by_either_kind_of_global_header() {
        let mut header = [0xa5; GRH_LEN];
        header[0] = 0x60;
        assert_eq!(source_gid(&header), [0xa5; 16]);
        header[..20].fill(0);
        header[20] = 0x45;
        header[32..36].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(source_gid(&header), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
        header[20] = 0;
        assert_eq!(source_gid(&header), [0; 16]);
    }
}
