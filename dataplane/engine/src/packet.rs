//! A MAD together with the header fields that travel with it.
//!
//! Plain data, copied between shards and sessions; owned by whoever holds it. Multi-byte header fields are native
//! integers, the MAD itself stays in wire order. It does not check anything: every reader treats the bytes as hostile.

use crate::pinned::Pin;

/// Global route header of a GMP that carries one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grh {
    /// On send: index of the sender's GID. On delivery: 0.
    pub gid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label (20 bits).
    pub flow_label: u32,
    /// On send: GID of the destination, not looked at. On delivery: GID of the sender.
    pub gid: [u8; 16],
}

/// Bits of [`Packet::rights`].
pub mod right {
    /// The packet is of the reserved class: it is served first and may take reserved routes.
    pub const RESERVED: u8 = 1;
    /// The node that is addressed has to ask [`Sink::may_manage`](crate::Sink::may_manage) before it takes the request.
    pub const CHECK_NODE: u8 = 2;
    /// The sender is a limited member, whatever its port's P_Key table says.
    pub const AS_LIMITED: u8 = 4;
}

/// One MAD on its way through the fabric.
///
/// The MAD comes first and starts on a cache line; the header fields share the fifth line, so that a hop touches two
/// lines of the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Packet {
    /// The MAD, 256 bytes in wire order.
    pub mad: [u8; 256],
    /// Source LID of the local route header; 0xFFFF in a directed part.
    pub slid: u16,
    /// Destination LID of the local route header; 0xFFFF in a directed part.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// On send: low bits to add to the base LID. On delivery: low LMC bits of the DLID that was addressed.
    pub path_bits: u8,
    /// LID hops so far. Belongs to the fabric: reset by `send`, has to cross shards unchanged.
    pub lid_hops: u8,
    /// What the sender's tenant allows and asks for, bits of [`right`]. Who calls `send` fills it in; an answer of a node's
    /// own agent has those of its request; has to cross shards unchanged, and so have `tenant` and `bound`.
    pub rights: u8,
    /// Source queue pair.
    pub src_qp: u32,
    /// Destination queue pair, 0 or 1.
    pub dst_qp: u32,
    /// Queue key of a GMP.
    pub q_key: u32,
    /// Partition key of a GMP, as on the wire.
    pub p_key: u16,
    /// On send: index into the P_Key table of the sending port. On delivery: index of the entry that matched.
    pub p_key_index: u16,
    /// Global route header, if any.
    pub grh: Option<Grh>,
    /// Tenant of the sender, 0 for none.
    pub tenant: u16,
    /// Number of the sender's own path plus 1 ([`Shard::bind`](crate::Shard::bind)), 0 for none.
    pub bound: u16,
    /// Place on a pinned route. Belongs to the fabric: reset by `send`, has to cross shards unchanged.
    pub pin: Pin,
}

impl Default for Packet {
    /// Zero everywhere, both LIDs permissive.
    fn default() -> Self {
        Self {
            mad: [0; 256],
            slid: 0xFFFF,
            dlid: 0xFFFF,
            sl: 0,
            path_bits: 0,
            lid_hops: 0,
            rights: 0,
            src_qp: 0,
            dst_qp: 0,
            q_key: 0,
            p_key: 0,
            p_key_index: 0,
            grh: None,
            tenant: 0,
            bound: 0,
            pin: Pin::NONE,
        }
    }
}

const _: () = assert!(size_of::<Packet>() == 320 && align_of::<Packet>() == 64);
