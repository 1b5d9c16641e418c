//! PortCountersExtended: the 64-bit counter set (spec section 7.3).
//!
//! Plain data, no state. The error counters from byte 72 exist only if CapabilityMask2 bit 1 of ClassPortInfo is set.

use crate::Field;

/// Counters with their select bit: CounterSelect in bits 15:0, CounterSelect2 in bits 47:16.
pub const COUNTERS: &[(u64, Field)] = &[
    (0x1, field::XMIT_DATA),
    (0x2, field::RCV_DATA),
    (0x4, field::XMIT_PKTS),
    (0x8, field::RCV_PKTS),
    (0x10, field::UNICAST_XMIT_PKTS),
    (0x20, field::UNICAST_RCV_PKTS),
    (0x40, field::MULTICAST_XMIT_PKTS),
    (0x80, field::MULTICAST_RCV_PKTS),
    (1 << 16, field::SYMBOL_ERRORS),
    (1 << 17, field::LINK_ERROR_RECOVERY),
    (1 << 18, field::LINK_DOWNED),
    (1 << 19, field::RCV_ERRORS),
    (1 << 20, field::RCV_REMOTE_PHYSICAL_ERRORS),
    (1 << 21, field::RCV_SWITCH_RELAY_ERRORS),
    (1 << 22, field::XMIT_DISCARDS),
    (1 << 23, field::XMIT_CONSTRAINT_ERRORS),
    (1 << 24, field::RCV_CONSTRAINT_ERRORS),
    (1 << 25, field::LOCAL_LINK_INTEGRITY_ERRORS),
    (1 << 26, field::EXCESSIVE_BUFFER_OVERRUN_ERRORS),
    (1 << 27, field::VL15_DROPPED),
    (1 << 28, field::XMIT_WAIT),
    (1 << 29, field::QP1_DROPPED),
];

layout! {
    /// PortCountersExtended taken apart.
    "PortCountersExtended" 0..184 {
        /// PortSelect.
        PORT_SELECT port_select: u8 @ 1;
        /// CounterSelect.
        COUNTER_SELECT counter_select: u16 @ 2;
        /// CounterSelect2.
        COUNTER_SELECT2 counter_select2: u32 @ 4;
        /// PortXmitData in words of 4 bytes.
        XMIT_DATA xmit_data: u64 @ 8;
        /// PortRcvData in words of 4 bytes.
        RCV_DATA rcv_data: u64 @ 16;
        /// PortXmitPkts.
        XMIT_PKTS xmit_pkts: u64 @ 24;
        /// PortRcvPkts.
        RCV_PKTS rcv_pkts: u64 @ 32;
        /// PortUnicastXmitPkts.
        UNICAST_XMIT_PKTS unicast_xmit_pkts: u64 @ 40;
        /// PortUnicastRcvPkts.
        UNICAST_RCV_PKTS unicast_rcv_pkts: u64 @ 48;
        /// PortMulticastXmitPkts.
        MULTICAST_XMIT_PKTS multicast_xmit_pkts: u64 @ 56;
        /// PortMulticastRcvPkts.
        MULTICAST_RCV_PKTS multicast_rcv_pkts: u64 @ 64;
        /// SymbolErrorCounter; valid with CapabilityMask2 bit 1.
        SYMBOL_ERRORS symbol_errors: u64 @ 72;
        /// LinkErrorRecoveryCounter; valid with CapabilityMask2 bit 1.
        LINK_ERROR_RECOVERY link_error_recovery: u64 @ 80;
        /// LinkDownedCounter; valid with CapabilityMask2 bit 1.
        LINK_DOWNED link_downed: u64 @ 88;
        /// PortRcvErrors; valid with CapabilityMask2 bit 1.
        RCV_ERRORS rcv_errors: u64 @ 96;
        /// PortRcvRemotePhysicalErrors; valid with CapabilityMask2 bit 1.
        RCV_REMOTE_PHYSICAL_ERRORS rcv_remote_physical_errors: u64 @ 104;
        /// PortRcvSwitchRelayErrors; valid with CapabilityMask2 bit 1.
        RCV_SWITCH_RELAY_ERRORS rcv_switch_relay_errors: u64 @ 112;
        /// PortXmitDiscards; valid with CapabilityMask2 bit 1.
        XMIT_DISCARDS xmit_discards: u64 @ 120;
        /// PortXmitConstraintErrors; valid with CapabilityMask2 bit 1.
        XMIT_CONSTRAINT_ERRORS xmit_constraint_errors: u64 @ 128;
        /// PortRcvConstraintErrors; valid with CapabilityMask2 bit 1.
        RCV_CONSTRAINT_ERRORS rcv_constraint_errors: u64 @ 136;
        /// LocalLinkIntegrityErrors; valid with CapabilityMask2 bit 1.
        LOCAL_LINK_INTEGRITY_ERRORS local_link_integrity_errors: u64 @ 144;
        /// ExcessiveBufferOverrunErrors; valid with CapabilityMask2 bit 1.
        EXCESSIVE_BUFFER_OVERRUN_ERRORS excessive_buffer_overrun_errors: u64 @ 152;
        /// VL15Dropped; valid with CapabilityMask2 bit 1.
        VL15_DROPPED vl15_dropped: u64 @ 160;
        /// PortXmitWait in ticks; valid with CapabilityMask2 bit 1.
        XMIT_WAIT xmit_wait: u64 @ 168;
        /// QP1Dropped; valid with CapabilityMask2 bit 1.
        QP1_DROPPED qp1_dropped: u64 @ 176;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_bits_follow_the_wire() {
        let counters = &FIELDS[3..];
        for (index, (select, counter)) in COUNTERS.iter().enumerate() {
            let bit = if index < 8 { index } else { index + 8 };
            assert_eq!((*select, *counter), (1 << bit, counters[index].1), "{}", counters[index].0);
        }
        assert_eq!(COUNTERS.len(), counters.len());
    }
}
