//! One message on its way in.
//!
//! Part of the state machine. Invariants: segments 1 to `in_order` are in `data`; bit i of `beyond` says that segment
//! `in_order + 2 + i` is there too; nothing above `window_last` is taken, and the window is at most 64 wide, so that
//! `beyond` is one word. What it does not do: know other transfers.

use madplane_shm::message::{Envelope, MadMessage};
use madplane_wire::rmpp::{Rmpp, Segments, flag, status};

use super::Key;
use super::packet;

/// What a segment did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It is new; whether to acknowledge now.
    Took { ack: bool },
    /// It was there already: acknowledge again.
    Seen,
    /// Beyond the window: as if lost.
    Ignored,
    /// The message is whole.
    Complete,
    /// It cannot be.
    Wrong(u8),
}

#[derive(Debug)]
pub(super) struct Inbound {
    key: Key,
    envelope: Envelope,
    headers: [u8; 64],
    header_len: usize,
    data: Vec<u8>,
    in_order: u32,
    beyond: u64,
    window_last: u32,
    acked: u32,
    last: Option<(u32, u32)>,
    complete: bool,
    pub(super) ack_queued: bool,
    /// Window that the peer gave for our response.
    pub(super) reply_window: u32,
    /// When it is too late for the rest; when a complete one is forgotten.
    pub(super) deadline_ns: u64,
}

impl Inbound {
    pub(super) fn new(key: Key, packet: &MadMessage, header_len: usize, deadline_ns: u64) -> Self {
        let mut headers = [0; 64];
        headers[..header_len].copy_from_slice(&packet.mad[..header_len]);
        Self {
            key,
            envelope: packet.envelope,
            headers,
            header_len,
            data: Vec::new(),
            in_order: 0,
            beyond: 0,
            window_last: 1,
            acked: 0,
            last: None,
            complete: false,
            ack_queued: false,
            reply_window: 1,
            deadline_ns,
        }
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn is_from(&self, packet: &MadMessage) -> bool {
        self.envelope.slid == packet.envelope.slid && self.envelope.src_qp == packet.envelope.src_qp
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(super) fn buffered(&self) -> usize {
        self.data.len()
    }

    fn has(&self, segment: u32) -> bool {
        segment <= self.in_order
            || (segment >= self.in_order + 2
                && segment - self.in_order - 2 < 64
                && self.beyond >> (segment - self.in_order - 2) & 1 == 1)
    }

    /// Takes a data segment with a sound header. `most_bytes` bounds the message.
    pub(super) fn take(&mut self, packet: &MadMessage, window: u32, most_bytes: usize) -> Progress {
        let header = Rmpp::new(&packet.mad);
        let segment = header.segment();
        if self.complete || self.has(segment) {
            return Progress::Seen;
        }
        if segment > self.window_last {
            return Progress::Ignored;
        }
        let is_last = header.flags() & flag::LAST != 0;
        match self.last {
            Some((last, _)) if segment > last || is_last => return Progress::Wrong(status::BAD_SEGMENT),
            _ => {}
        }
        if is_last {
            if Segments::from_last(self.key.class, segment, header.payload_len()).is_none() {
                return Progress::Wrong(status::BAD_LENGTH);
            }
            if self.highest() > segment {
                return Progress::Wrong(status::BAD_SEGMENT);
            }
            self.last = Some((segment, header.payload_len()));
        }
        let bytes = &packet.mad[self.header_len..];
        let from = (segment as usize - 1) * bytes.len();
        let end = from + bytes.len();
        if end > most_bytes {
            return Progress::Wrong(status::RESOURCES);
        }
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[from..end].copy_from_slice(bytes);
        self.mark(segment);
        if self.last.is_some_and(|(last, _)| last == self.in_order) {
            self.complete = true;
            self.window_last = self.window_last.max(self.in_order);
            return Progress::Complete;
        }
        let due = segment == 1
            || self.in_order == self.window_last
            || self.in_order - self.acked >= window.div_ceil(2);
        if due {
            self.acked = self.in_order;
            self.window_last = self.window_last.max(self.in_order.saturating_add(window));
        }
        Progress::Took { ack: due }
    }

    fn highest(&self) -> u32 {
        match self.beyond {
            0 => self.in_order,
            bits => self.in_order + 2 + (63 - bits.leading_zeros()),
        }
    }

    fn mark(&mut self, segment: u32) {
        if segment != self.in_order + 1 {
            self.beyond |= 1 << (segment - self.in_order - 2);
            return;
        }
        self.in_order += 1;
        while self.beyond & 1 == 1 {
            self.in_order += 1;
            self.beyond >>= 1;
        }
        self.beyond >>= 1;
    }

    /// Gives the message away; from now on only duplicates are acknowledged, until `deadline_ns`.
    pub(super) fn finish(&mut self, deadline_ns: u64) -> (Envelope, Vec<u8>) {
        self.deadline_ns = deadline_ns;
        let (count, payload) = self.last.expect("only a whole message is finished");
        let plan = Segments::from_last(self.key.class, count, payload).expect("checked when it came");
        let mut message = Vec::with_capacity(plan.message_len());
        message.extend_from_slice(&self.headers[..self.header_len]);
        let data = std::mem::take(&mut self.data);
        message.extend_from_slice(&data[..plan.data_len()]);
        (self.envelope, message)
    }

    pub(super) fn write_ack(&self, packet: &mut MadMessage) {
        let header = packet::ack(self.in_order, self.window_last);
        packet::write_answer(packet, &self.headers[..self.header_len], &self.envelope, header);
    }

    /// ABORT for a peer that took too long.
    pub(super) fn too_late(&self) -> MadMessage {
        let mut packet = MadMessage { envelope: self.envelope, ..MadMessage::default() };
        packet.mad[..24].copy_from_slice(&self.headers[..24]);
        packet::refusal(&packet, status::TOTAL_TIME)
    }
}
