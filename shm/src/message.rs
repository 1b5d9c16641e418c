//! One MAD in a ring slot: the envelope that travels with it, and its 256 bytes.
//!
//! Written by the producer of a ring, copied out by its consumer. All integers are native endian and in host order
//! except the MAD itself and the GID, which are wire order. Reserved fields are written 0 and checked by nobody.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ring::TwoParts;

/// Length of a MAD in bytes.
pub const MAD_LEN: usize = 256;

/// Slot kinds; the number travels.
pub mod kind {
    /// A MAD.
    pub const MAD: u16 = 1;
}

/// Bits of [`Envelope::flags`].
pub mod flag {
    /// The GRH fields are meaningful.
    pub const GRH: u16 = 1;
}

/// What travels beside a MAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Envelope {
    /// One of [`kind`].
    pub kind: u16,
    /// Bits of [`flag`].
    pub flags: u16,
    /// Up: the sending agent's `hi_tid`. Down: the `hi_tid` of the agent that is to receive it.
    pub agent: u32,
    /// Source LID.
    pub slid: u16,
    /// Destination LID; 0xFFFF is permissive.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Low LMC bits of the local LID that was or is to be used.
    pub path_bits: u8,
    /// Index of the P_Key in the table of the session's port.
    pub p_key_index: u16,
    /// Source queue pair.
    pub src_qp: u32,
    /// Destination queue pair.
    pub dst_qp: u32,
    /// Q_Key of a GMP.
    pub q_key: u32,
    /// Flow label of the GRH.
    pub flow_label: u32,
    /// GID index of the GRH.
    pub gid_index: u8,
    /// Hop limit of the GRH.
    pub hop_limit: u8,
    /// Traffic class of the GRH.
    pub traffic_class: u8,
    /// Reserved.
    pub reserved: u8,
    /// GID of the GRH, wire order.
    pub gid: [u8; 16],
    /// Length of the MAD in bytes, always 256.
    pub length: u32,
}

/// One slot's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct MadMessage {
    /// What travels beside the MAD.
    pub envelope: Envelope,
    /// The MAD, wire order.
    pub mad: [u8; MAD_LEN],
}

impl Default for MadMessage {
    fn default() -> Self {
        Self { envelope: Envelope::default(), mad: [0; MAD_LEN] }
    }
}

impl TwoParts for MadMessage {
    type Head = Envelope;
    type Body = [u8; MAD_LEN];
}

const _: () = {
    assert!(size_of::<Envelope>() == 56);
    assert!(size_of::<MadMessage>() == 312);
    assert!(core::mem::offset_of!(MadMessage, mad) == 56);
};
