//! Notice: the attribute of traps and reports (spec section 6).
//!
//! Plain data, no state. [`Repr`] is the 10-byte head that all notices share, [`Notice`] adds the details, whose shape
//! [`Details`] chooses by trap number for generic notices. All offsets count from the start of the notice. Not done here:
//! who sends which trap, repetition, and the IssuerGID that SA reports append.

use crate::Layout;

/// Trap numbers of generic notices.
pub mod trap {
    /// GID in service.
    pub const GID_IN_SERVICE: u16 = 64;
    /// GID out of service.
    pub const GID_OUT_OF_SERVICE: u16 = 65;
    /// Multicast group created.
    pub const MCAST_CREATED: u16 = 66;
    /// Multicast group deleted.
    pub const MCAST_DELETED: u16 = 67;
    /// Link state change of a switch port.
    pub const LINK_STATE_CHANGE: u16 = 128;
    /// Local link integrity threshold reached.
    pub const LOCAL_LINK_INTEGRITY: u16 = 129;
    /// Excessive buffer overrun threshold reached.
    pub const BUFFER_OVERRUN: u16 = 130;
    /// Flow control update watchdog expired.
    pub const FLOW_CONTROL_WATCHDOG: u16 = 131;
    /// Capability mask or another local value changed.
    pub const LOCAL_CHANGE: u16 = 144;
    /// SystemImageGUID changed.
    pub const SYSTEM_IMAGE_GUID: u16 = 145;
    /// Bad M_Key.
    pub const BAD_M_KEY: u16 = 256;
    /// Bad P_Key.
    pub const BAD_P_KEY: u16 = 257;
    /// Bad Q_Key.
    pub const BAD_Q_KEY: u16 = 258;
    /// Bad P_Key at an external port of a switch.
    pub const BAD_P_KEY_SWITCH: u16 = 259;
}

/// Notice types.
pub mod kind {
    /// Fatal.
    pub const FATAL: u8 = 0;
    /// Urgent.
    pub const URGENT: u8 = 1;
    /// Security.
    pub const SECURITY: u8 = 2;
    /// Subnet management.
    pub const SUBNET_MANAGEMENT: u8 = 3;
    /// Informational.
    pub const INFORMATIONAL: u8 = 4;
    /// Empty notice.
    pub const EMPTY: u8 = 0x7f;
}

/// Change flags of trap 144.
pub mod change {
    /// NodeDescription changed.
    pub const NODE_DESC: u16 = 0x01;
    /// LinkWidthEnabled changed.
    pub const LINK_WIDTH_ENABLED: u16 = 0x02;
    /// LinkSpeedEnabled changed.
    pub const LINK_SPEED_ENABLED: u16 = 0x04;
    /// Priority of the subnet manager changed.
    pub const SM_PRIORITY: u16 = 0x08;
    /// HierarchyInfo changed.
    pub const HIERARCHY_INFO: u16 = 0x10;
    /// CapabilityMask2 changed.
    pub const CAP_MASK2: u16 = 0x20;
}

/// First byte of the details.
pub const DETAILS: usize = 10;
/// Number of bytes of a notice in an SMP.
pub const NOTICE_LEN: usize = 64;
/// Most return path entries trap 256 has room for.
pub const BAD_M_KEY_PATH_LEN: usize = 30;

layout! {
    /// Head of a notice.
    "Notice" 0..10 {
        /// IsGeneric.
        IS_GENERIC is_generic: bool @ 0 [7];
        /// Type, see [its values](crate::smp::notice::kind).
        KIND kind: u8 @ 0 [6:0];
        /// ProducerType (1 CA, 2 switch, 3 router, 4 class manager), or VendorID; 24 bits.
        PRODUCER producer: u32 @ 0 [23:0];
        /// TrapNumber, see [its values](crate::smp::notice::trap), or DeviceID.
        TRAP_NUMBER trap_number: u16 @ 4;
        /// IssuerLID.
        ISSUER_LID issuer_lid: u16 @ 6;
        /// NoticeToggle.
        TOGGLE toggle: bool @ 8 [15];
        /// NoticeCount.
        COUNT count: u16 @ 8 [14:0];
    }
}

/// Details of traps 64 to 67.
pub mod gid_event {
    layout! {
        /// A GID or multicast group came or went.
        "GidEvent" 10..64 {
            /// The GID or MGID.
            GID gid: [u8; 16] @ 16;
        }
    }
}

/// Details of trap 128.
pub mod link_state {
    layout! {
        /// A link of this switch changed state.
        "LinkStateChange" 10..64 {
            /// LIDADDR of the switch.
            LID lid: u16 @ 10;
        }
    }
}

/// Details of traps 129, 130 and 131.
pub mod port_error {
    layout! {
        /// A threshold of one port was reached.
        "PortError" 10..64 {
            /// LIDADDR.
            LID lid: u16 @ 12;
            /// PortNum.
            PORT port: u8 @ 14;
        }
    }
}

/// Details of trap 144.
pub mod local_change {
    layout! {
        /// CapabilityMask or another local value changed.
        "LocalChange" 10..64 {
            /// LIDADDR.
            LID lid: u16 @ 12;
            /// OtherLocalChanges: the change flags are meant.
            OTHER_LOCAL_CHANGES other_local_changes: bool @ 15 [0];
            /// New CapabilityMask.
            CAP_MASK cap_mask: u32 @ 16;
            /// Change flags, see [its values](crate::smp::notice::change).
            CHANGES changes: u16 @ 20;
            /// New CapabilityMask2.
            CAP_MASK2 cap_mask2: u16 @ 22;
        }
    }
}

/// Details of trap 145.
pub mod system_image {
    layout! {
        /// SystemImageGUID changed.
        "SystemImageGuidChange" 10..64 {
            /// LIDADDR.
            LID lid: u16 @ 12;
            /// New SystemImageGUID.
            GUID guid: u64 @ 16;
        }
    }
}

/// Details of trap 256.
pub mod bad_m_key {
    layout! {
        /// An SMP came with the wrong M_Key.
        "BadMKey" 10..64 {
            /// LIDADDR of the port that refused.
            LID lid: u16 @ 12;
            /// DrSLID of the refused SMP.
            DR_SLID dr_slid: u16 @ 14;
            /// Method of the refused SMP.
            METHOD method: u8 @ 16;
            /// AttributeID of the refused SMP.
            ATTR_ID attr_id: u16 @ 18;
            /// AttributeModifier of the refused SMP.
            ATTR_MOD attr_mod: u32 @ 20;
            /// The M_Key it carried.
            M_KEY m_key: u64 @ 24;
            /// DrNotice: the SMP was a directed-route one.
            DR_NOTICE dr_notice: bool @ 33 [7];
            /// The path did not fit.
            PATH_TRUNCATED path_truncated: bool @ 33 [6];
            /// Entries of the path that are valid, at most 30.
            HOP_COUNT hop_count: u8 @ 33 [5:0];
            /// Return path.
            RETURN_PATH return_path: [u8; 30] @ 34;
        }
    }
}

/// Details of traps 257 and 258.
pub mod bad_key {
    layout! {
        /// A packet came with the wrong P_Key (257) or Q_Key (258).
        "BadKey" 10..64 {
            /// LIDADDR1: source of the packet.
            LID1 lid1: u16 @ 12;
            /// LIDADDR2: destination of the packet.
            LID2 lid2: u16 @ 14;
            /// The key; a P_Key is in the low 16 bits.
            KEY key: u32 @ 16;
            /// SL of the packet.
            SL sl: u8 @ 20 [31:28];
            /// QP1: source QP.
            QP1 qp1: u32 @ 20 [23:0];
            /// QP2: destination QP.
            QP2 qp2: u32 @ 24 [23:0];
            /// GIDADDR1.
            GID1 gid1: [u8; 16] @ 28;
            /// GIDADDR2.
            GID2 gid2: [u8; 16] @ 44;
        }
    }
}

/// Details of trap 259.
pub mod bad_p_key_switch {
    layout! {
        /// A packet with the wrong P_Key met an external port of a switch.
        "BadPKeySwitch" 10..64 {
            /// DataValid: which of the fields hold something.
            DATA_VALID data_valid: u16 @ 10;
            /// LIDADDR1: source of the packet.
            LID1 lid1: u16 @ 12;
            /// LIDADDR2: destination of the packet.
            LID2 lid2: u16 @ 14;
            /// The P_Key.
            P_KEY p_key: u16 @ 16;
            /// SL of the packet.
            SL sl: u8 @ 18 [31:28];
            /// QP1: source QP.
            QP1 qp1: u32 @ 18 [23:0];
            /// QP2: destination QP.
            QP2 qp2: u32 @ 22 [23:0];
            /// GIDADDR1.
            GID1 gid1: [u8; 16] @ 26;
            /// GIDADDR2.
            GID2 gid2: [u8; 16] @ 42;
            /// LID of the switch.
            SWITCH_LID switch_lid: u16 @ 58;
            /// PortNum of the external port.
            PORT port: u8 @ 60;
        }
    }
}

/// DataDetails of a notice, by trap number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Details {
    /// Traps 64 to 67.
    GidEvent(gid_event::Repr),
    /// Trap 128.
    LinkState(link_state::Repr),
    /// Traps 129 to 131.
    PortError(port_error::Repr),
    /// Trap 144.
    LocalChange(local_change::Repr),
    /// Trap 145.
    SystemImage(system_image::Repr),
    /// Trap 256.
    BadMKey(bad_m_key::Repr),
    /// Traps 257 and 258.
    BadKey(bad_key::Repr),
    /// Trap 259.
    BadPKeySwitch(bad_p_key_switch::Repr),
    /// Not generic, or a number this crate does not know: the bytes as they are.
    Unknown([u8; NOTICE_LEN - DETAILS]),
}

/// A whole notice of 64 bytes: head and details.
///
/// `emit` writes the details in the shape of the variant; that the variant fits `head.trap_number` is the caller's duty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// The first 10 bytes.
    pub head: Repr,
    /// Bytes 10 to 63.
    pub details: Details,
}

/// Layout of the details of a generic notice with `trap_number`, if it is known.
pub const fn details_layout(trap_number: u16) -> Option<&'static Layout> {
    Some(match trap_number {
        64..=67 => &gid_event::LAYOUT,
        128 => &link_state::LAYOUT,
        129..=131 => &port_error::LAYOUT,
        144 => &local_change::LAYOUT,
        145 => &system_image::LAYOUT,
        256 => &bad_m_key::LAYOUT,
        257 | 258 => &bad_key::LAYOUT,
        259 => &bad_p_key_switch::LAYOUT,
        _ => return None,
    })
}

impl Notice {
    /// Reads head and details; any bytes parse.
    ///
    /// # Panics
    /// If `data` is shorter than [`NOTICE_LEN`].
    pub fn parse(data: &[u8]) -> Self {
        let head = Repr::parse(data);
        let details = match head.trap_number {
            _ if !head.is_generic => Self::unknown(data),
            64..=67 => Details::GidEvent(gid_event::Repr::parse(data)),
            128 => Details::LinkState(link_state::Repr::parse(data)),
            129..=131 => Details::PortError(port_error::Repr::parse(data)),
            144 => Details::LocalChange(local_change::Repr::parse(data)),
            145 => Details::SystemImage(system_image::Repr::parse(data)),
            256 => Details::BadMKey(bad_m_key::Repr::parse(data)),
            257 | 258 => Details::BadKey(bad_key::Repr::parse(data)),
            259 => Details::BadPKeySwitch(bad_p_key_switch::Repr::parse(data)),
            _ => Self::unknown(data),
        };
        Self { head, details }
    }

    fn unknown(data: &[u8]) -> Details {
        Details::Unknown(*data[DETAILS..].first_chunk().expect("data shorter than a notice"))
    }

    /// Writes all 64 bytes.
    ///
    /// # Panics
    /// If `data` is shorter than [`NOTICE_LEN`].
    pub fn emit(&self, data: &mut [u8]) {
        self.head.emit(data);
        match &self.details {
            Details::GidEvent(details) => details.emit(data),
            Details::LinkState(details) => details.emit(data),
            Details::PortError(details) => details.emit(data),
            Details::LocalChange(details) => details.emit(data),
            Details::SystemImage(details) => details.emit(data),
            Details::BadMKey(details) => details.emit(data),
            Details::BadKey(details) => details.emit(data),
            Details::BadPKeySwitch(details) => details.emit(data),
            Details::Unknown(bytes) => data[DETAILS..NOTICE_LEN].copy_from_slice(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_take_the_shape_of_the_trap_number() {
        for number in 0..=u16::MAX {
            let mut data = [0xa5; NOTICE_LEN];
            Repr { is_generic: true, trap_number: number, ..Repr::default() }.emit(&mut data);
            let notice = Notice::parse(&data);
            let known = !matches!(notice.details, Details::Unknown(_));
            assert_eq!(known, details_layout(number).is_some(), "trap {number}");
            field::IS_GENERIC.set(&mut data, 0);
            assert!(matches!(Notice::parse(&data).details, Details::Unknown(_)), "device {number}");
        }
    }

    #[test]
    fn a_bad_m_key_notice_has_its_bytes_in_place() {
        let mut data = [0xa5; NOTICE_LEN];
        let mut return_path = [0; 30];
        return_path[1] = 7;
        let notice = Notice {
            head: Repr {
                is_generic: true,
                kind: kind::SECURITY,
                producer: 2,
                trap_number: trap::BAD_M_KEY,
                issuer_lid: 0x0102,
                toggle: false,
                count: 3,
            },
            details: Details::BadMKey(bad_m_key::Repr {
                lid: 0x0102,
                dr_slid: 0xffff,
                method: 2,
                attr_id: 0x15,
                attr_mod: 1,
                m_key: 0x1122_3344_5566_7788,
                dr_notice: true,
                path_truncated: false,
                hop_count: 1,
                return_path,
            }),
        };
        notice.emit(&mut data);
        let want: [u8; 36] = [
            0x82, 0, 0, 2, 1, 0, 1, 2, 0, 3, 0, 0, 1, 2, 0xff, 0xff, 2, 0, 0, 0x15, 0, 0, 0, 1, 0x11, 0x22,
            0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0x81, 0, 7,
        ];
        assert_eq!(data[..36], want);
        assert_eq!(data[36..], [0; 28]);
        assert_eq!(Notice::parse(&data), notice);
    }
}
