//! Writing RMPP packets.
//!
//! Free functions of the state machine, no state. Invariant: every byte of the packet is written. What it does not do:
//! decide when.

use madplane_shm::message::{Envelope, MAD_LEN, MadMessage, kind};
use madplane_wire::mad::GSI_Q_KEY;
use madplane_wire::mad::method::RESPONSE;
use madplane_wire::rmpp::{NO_RESP_TIME, VERSION, flag, kind as packet_kind, status};

use super::send::Outbound;

/// The 12 bytes of an RMPP header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) resp_time: u8,
    pub(super) flags: u8,
    pub(super) status: u8,
    pub(super) segment: u32,
    pub(super) length: u32,
}

impl Header {
    pub(super) fn write(&self, mad: &mut [u8; MAD_LEN]) {
        mad[24] = VERSION;
        mad[25] = self.kind;
        mad[26] = self.resp_time << 3 | self.flags;
        mad[27] = self.status;
        mad[28..32].copy_from_slice(&self.segment.to_be_bytes());
        mad[32..36].copy_from_slice(&self.length.to_be_bytes());
    }
}

/// Envelope of an answer to a packet that came with `received`.
pub(super) fn answer(received: &Envelope) -> Envelope {
    Envelope {
        kind: kind::MAD,
        slid: 0,
        dlid: received.slid,
        src_qp: 0,
        dst_qp: received.src_qp,
        q_key: GSI_Q_KEY,
        ..*received
    }
}

/// Fills `packet` with the headers of `like`, R bit turned, an RMPP header, and nothing else.
pub(super) fn write_answer(packet: &mut MadMessage, like: &[u8], received: &Envelope, header: Header) {
    packet.envelope = answer(received);
    packet.mad[..like.len()].copy_from_slice(like);
    packet.mad[like.len()..].fill(0);
    packet.mad[3] ^= RESPONSE;
    header.write(&mut packet.mad);
}

/// ABORT (STOP for a lack of resources) as the answer to a packet.
pub(super) fn refusal(received: &MadMessage, why: u8) -> MadMessage {
    let mut packet = MadMessage::default();
    let kind = if why == status::RESOURCES { packet_kind::STOP } else { packet_kind::ABORT };
    write_answer(&mut packet, &received.mad[..24], &received.envelope, end(kind, why));
    packet
}

/// ABORT from a sender whom nobody answers.
pub(super) fn abort_of_sender(send: &Outbound) -> MadMessage {
    let mut packet = MadMessage { envelope: send.envelope, ..MadMessage::default() };
    packet.mad[..24].copy_from_slice(&send.header24());
    end(packet_kind::ABORT, status::TOO_MANY_RETRIES).write(&mut packet.mad);
    packet
}

fn end(kind: u8, status: u8) -> Header {
    Header { kind, resp_time: NO_RESP_TIME, flags: flag::ACTIVE, status, segment: 0, length: 0 }
}

/// Header of an acknowledgement.
pub(super) fn ack(segment: u32, window_last: u32) -> Header {
    Header {
        kind: packet_kind::ACK,
        resp_time: NO_RESP_TIME,
        flags: flag::ACTIVE,
        status: status::OK,
        segment,
        length: window_last,
    }
}
