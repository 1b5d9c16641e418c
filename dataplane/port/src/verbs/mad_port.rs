//! MADs over a UD queue pair of our own.
//!
//! Owned by one worker, called from its thread. 256 bytes a MAD, 40 for the global header. A MAD leaves to the queue pair, LID or
//! GID that its envelope names; what arrives has an envelope from which an answer can be sent by [`answer`]. UD promises
//! nothing: what the other side has no slot for is lost there, and no counter of ours says so.

use std::os::fd::BorrowedFd;

use madplane_shm::message::{MAD_LEN, flag, kind};

use super::context::PortEvent;
use super::handles::Address;
use super::queue::{Arrival, QueueCounters, QueueSettings, Sent, UdQueue};
use crate::device::{DeviceSpec, Unavailable};
use crate::{Capabilities, MadMessage, MadRx, MadTx};

/// A verbs port; both halves, because one completion queue serves both.
#[derive(Debug)]
pub struct MadPort {
    queue: UdQueue,
}

/// The address and the queue pair that a MAD's envelope names.
fn destination(message: &MadMessage) -> Address {
    let envelope = &message.envelope;
    let mut address =
        Address { lid: envelope.dlid, sl: envelope.sl, path_bits: envelope.path_bits, ..Address::default() };
    if envelope.flags & flag::GRH != 0 {
        address.global = true;
        address.gid = envelope.gid;
        address.flow_label = envelope.flow_label & 0x000f_ffff;
        address.gid_index = envelope.gid_index;
        address.hop_limit = envelope.hop_limit;
        address.traffic_class = envelope.traffic_class;
    }
    address
}

/// The envelope of an answer to what came with `envelope`: back to where it came from.
pub fn answer(envelope: &madplane_shm::message::Envelope) -> madplane_shm::message::Envelope {
    let mut back = *envelope;
    (back.src_qp, back.dst_qp) = (envelope.dst_qp, envelope.src_qp);
    (back.slid, back.dlid) = (envelope.dlid, envelope.slid);
    back
}

impl MadPort {
    /// Opens a queue pair on a device.
    ///
    /// # Errors
    /// [`Unavailable`], for the operator.
    pub fn open(spec: &DeviceSpec, settings: &QueueSettings) -> Result<Self, Unavailable> {
        Ok(Self { queue: UdQueue::open(spec, settings, MAD_LEN)? })
    }

    fn envelope(&self, arrival: &Arrival) -> madplane_shm::message::Envelope {
        let mut envelope = madplane_shm::message::Envelope {
            kind: kind::MAD,
            slid: arrival.slid,
            dlid: self.queue.lid() | u16::from(arrival.path_bits),
            sl: arrival.sl,
            path_bits: arrival.path_bits,
            p_key_index: arrival.p_key_index,
            src_qp: arrival.source_pair,
            dst_qp: self.queue.number(),
            q_key: self.queue.q_key(),
            length: 256,
            ..Default::default()
        };
        if arrival.global {
            // RoCE over IPv4 fills the last 20 of the 40 bytes; its GIDs are not used here
            let header = self.queue.global_header(arrival);
            let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
            envelope.flags = flag::GRH;
            envelope.traffic_class = word.to_be_bytes()[0] << 4 | word.to_be_bytes()[1] >> 4;
            envelope.flow_label = word & 0x000f_ffff;
            envelope.hop_limit = header[7];
            envelope.gid.copy_from_slice(&header[8..24]);
            envelope.gid_index = self.queue.gid_index();
        }
        envelope
    }

    /// Asks for a wake-up at [`MadPort::waker`], then looks once more; true if the worker may sleep.
    pub fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    /// Says that the worker is awake: takes and acknowledges wake-ups.
    pub fn disarm(&mut self) {
        self.queue.disarm();
    }

    /// The completion channel's descriptor.
    pub fn waker(&self) -> BorrowedFd<'_> {
        self.queue.waker()
    }

    /// Readable when [`MadPort::event`] has something to tell.
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.queue.events_fd()
    }

    /// What happened to device or port, if anything; [`PortEvent::QueueBroken`] as long as the queue is. Returns at once.
    pub fn event(&mut self) -> Option<PortEvent> {
        self.queue.event()
    }

    /// False if the port has to be opened again.
    pub fn is_whole(&self) -> bool {
        !self.queue.is_broken()
    }

    /// Asks the device whether the port carries packets; a system call.
    pub fn is_active(&self) -> bool {
        self.queue.is_active()
    }

    /// Counters since it was opened.
    pub fn counters(&self) -> QueueCounters {
        self.queue.counters()
    }

    /// Number of the queue pair, which others send to.
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// GID of the port, wire order.
    pub fn gid(&self) -> [u8; 16] {
        self.queue.gid()
    }

    /// LID of the port when it was opened; 0 on Ethernet.
    pub fn lid(&self) -> u16 {
        self.queue.lid()
    }

    /// True where every packet needs a global header.
    pub fn is_ethernet(&self) -> bool {
        self.queue.is_ethernet()
    }

    /// True if the slots lie on huge pages.
    pub fn on_huge_pages(&self) -> bool {
        self.queue.facts().0
    }

    /// Whether the device gathers completions as asked.
    ///
    /// # Errors
    /// The device's error number; EOPNOTSUPP where it has no moderation.
    pub fn moderation(&self) -> Result<(), i32> {
        self.queue.facts().1
    }
}

impl MadRx for MadPort {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        let mut taken = 0;
        while taken < into.len() {
            let Some(arrival) = self.queue.receive() else { break };
            if arrival.length != MAD_LEN {
                self.queue.count_bad_length();
                continue;
            }
            let message = &mut into[taken];
            message.envelope = self.envelope(&arrival);
            self.queue.packet(&arrival, &mut message.mad);
            taken += 1;
        }
        taken
    }

    fn release(&mut self) {
        self.queue.release();
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { depth: self.queue.depth(), wakes: true, can_sleep: true }
    }
}

impl MadTx for MadPort {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        let mut given = 0;
        for message in from {
            let to = destination(message);
            let envelope = &message.envelope;
            if self.queue.send(&to, envelope.dst_qp, envelope.q_key, &message.mad) == Sent::Full {
                break;
            }
            given += 1;
        }
        given
    }

    fn flush(&mut self) -> bool {
        self.queue.flush()
    }

    fn capabilities(&self) -> Capabilities {
        <Self as MadRx>::capabilities(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_back_to_where_the_request_came_from() {
        let mut message = MadMessage::default();
        message.envelope.src_qp = 1;
        message.envelope.dst_qp = 17;
        message.envelope.slid = 5;
        message.envelope.dlid = 6;
        message.envelope.flags = flag::GRH;
        message.envelope.gid = [9; 16];
        message.envelope.hop_limit = 3;
        message.envelope = answer(&message.envelope);
        assert_eq!((message.envelope.src_qp, message.envelope.dst_qp), (17, 1));
        let to = destination(&message);
        assert_eq!((to.lid, to.global, to.gid, to.hop_limit), (5, true, [9; 16], 3));
    }

    #[test]
    fn without_a_global_header_its_fields_are_not_looked_at() {
        let mut message = MadMessage::default();
        message.envelope.gid = [9; 16];
        message.envelope.dlid = 6;
        assert_eq!(destination(&message), Address { lid: 6, ..Address::default() });
    }
}
