//! One message on its way out.
//!
//! Part of the state machine. Invariant: `acked < next <= acked + window + 1` and nothing beyond `window_last` is written.
//! What it does not do: keep queues, or know other transfers.

use madplane_shm::message::{Envelope, MAD_LEN, MadMessage};
use madplane_wire::rmpp::{Segments, kind, status};

use super::packet::{self, Header};
use super::{ACK_WAIT_NS, Key, Transfer};

/// What an acknowledgement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnAck {
    /// Nothing new.
    Old,
    /// The window moved.
    More,
    /// That was the last one.
    Complete,
    /// The last one once more, from a peer that has not seen our turn-around.
    Again,
    /// It cannot be.
    Wrong(u8),
}

#[derive(Debug)]
pub(super) struct Outbound {
    key: Key,
    pub(super) envelope: Envelope,
    pub(super) expects_response: bool,
    pub(super) window_last: u32,
    pub(super) queued: bool,
    /// When to send the window again; none while segments are still to be written or a response is waited for.
    pub(super) deadline_ns: Option<u64>,
    message: Vec<u8>,
    header_len: usize,
    plan: Segments,
    ack_wait_ns: u64,
    retries: u32,
    retries_left: u32,
    /// Last segment acknowledged.
    acked: u32,
    /// Next segment to write.
    next: u32,
    turn_around: bool,
}

impl Outbound {
    pub(super) fn new(transfer: &Transfer<'_>, header_len: usize, plan: Segments) -> Self {
        let message = transfer.message.to_vec();
        let tid = message[8..16].iter().fold(0u64, |tid, byte| tid << 8 | u64::from(*byte));
        let key = Key { agent: transfer.agent, tid, class: message[1], method: message[3] };
        let ack_wait_ns = match transfer.timeout_ns {
            0 => ACK_WAIT_NS,
            shorter => shorter.min(ACK_WAIT_NS),
        };
        Self {
            key,
            envelope: transfer.envelope,
            expects_response: transfer.expects_response,
            window_last: 1,
            queued: false,
            deadline_ns: None,
            message,
            header_len,
            plan,
            ack_wait_ns,
            retries: transfer.retries,
            retries_left: transfer.retries,
            acked: 0,
            next: 1,
            turn_around: false,
        }
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn message_len(&self) -> usize {
        self.message.len()
    }

    pub(super) fn header24(&self) -> [u8; 24] {
        *self.message.first_chunk().expect("a message is longer than its headers")
    }

    /// Whether a packet comes from where this message goes. As in the kernel, the address of the peer is compared when
    /// responses are sent; a request is identified by its TID.
    pub(super) fn goes_to(&self, packet: &MadMessage) -> bool {
        let response = self.key.method & 0x80 != 0;
        !response || self.envelope.dlid == packet.envelope.slid || self.envelope.dlid == 0xffff
    }

    fn is_complete(&self) -> bool {
        self.acked == self.plan.count()
    }

    pub(super) fn has_next(&self) -> bool {
        self.next <= self.window_last.min(self.plan.count())
    }

    /// Writes the next segment of the window, if there is one; starts the timer after the last.
    pub(super) fn write_next(&mut self, packet: &mut MadMessage, now_ns: u64) -> bool {
        if !self.has_next() {
            return false;
        }
        let number = self.next;
        let data = &self.message[self.header_len..][self.plan.data_range(number)];
        packet.envelope = self.envelope;
        packet.mad[..self.header_len].copy_from_slice(&self.message[..self.header_len]);
        packet.mad[self.header_len..self.header_len + data.len()].copy_from_slice(data);
        packet.mad[self.header_len + data.len()..MAD_LEN].fill(0);
        let header = Header {
            kind: kind::DATA,
            resp_time: self.message[26] >> 3,
            flags: self.plan.flags(number),
            status: status::OK,
            segment: number,
            length: self.plan.payload_len(number),
        };
        header.write(&mut packet.mad);
        self.next += 1;
        self.deadline_ns = (!self.has_next()).then_some(now_ns + self.ack_wait_ns);
        true
    }

    /// Writes the acknowledgement that opens the window for the response of a double-sided transfer, if it is due.
    pub(super) fn write_turn_around(&mut self, packet: &mut MadMessage) -> bool {
        if !std::mem::take(&mut self.turn_around) {
            return false;
        }
        packet.envelope = self.envelope;
        packet.mad[..self.header_len].copy_from_slice(&self.message[..self.header_len]);
        packet.mad[self.header_len..].fill(0);
        packet::ack(0, 1).write(&mut packet.mad);
        true
    }

    pub(super) fn acknowledge(&mut self, segment: u32, window_last: u32, now_ns: u64) -> OnAck {
        if self.is_complete() {
            self.turn_around = self.expects_response;
            return if self.turn_around { OnAck::Again } else { OnAck::Old };
        }
        if segment > self.plan.count() || segment > self.window_last {
            return OnAck::Wrong(status::SEGMENT_TOO_BIG);
        }
        if window_last < self.window_last || segment < self.acked {
            return OnAck::Old;
        }
        if segment > self.acked {
            self.acked = segment;
            self.retries_left = self.retries;
            self.next = self.next.max(segment + 1);
            self.deadline_ns = Some(now_ns + self.ack_wait_ns);
        }
        self.window_last = window_last;
        if self.is_complete() {
            self.deadline_ns = None;
            self.turn_around = self.expects_response;
            return OnAck::Complete;
        }
        if self.has_next() { OnAck::More } else { OnAck::Old }
    }

    /// Goes back to the first segment that is not acknowledged; false if that was done often enough.
    pub(super) fn resend(&mut self) -> bool {
        if self.retries_left == 0 {
            return false;
        }
        self.retries_left -= 1;
        self.next = self.acked + 1;
        self.deadline_ns = None;
        true
    }
}
