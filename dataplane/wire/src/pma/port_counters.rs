//! PortCounters: the 32-bit counter set (spec section 7.2).
//!
//! Plain data, no state. Counters stick at their maximum; who counts has to see to that.

use crate::Field;

/// Counters with their select bit: CounterSelect in bits 15:0, CounterSelect2 in bits 23:16.
pub const COUNTERS: &[(u32, Field)] = &[
    (0x0001, field::SYMBOL_ERRORS),
    (0x0002, field::LINK_ERROR_RECOVERY),
    (0x0004, field::LINK_DOWNED),
    (0x0008, field::RCV_ERRORS),
    (0x0010, field::RCV_REMOTE_PHYSICAL_ERRORS),
    (0x0020, field::RCV_SWITCH_RELAY_ERRORS),
    (0x0040, field::XMIT_DISCARDS),
    (0x0080, field::XMIT_CONSTRAINT_ERRORS),
    (0x0100, field::RCV_CONSTRAINT_ERRORS),
    (0x0200, field::LOCAL_LINK_INTEGRITY_ERRORS),
    (0x0400, field::EXCESSIVE_BUFFER_OVERRUN_ERRORS),
    (0x0800, field::VL15_DROPPED),
    (0x1000, field::XMIT_DATA),
    (0x2000, field::RCV_DATA),
    (0x4000, field::XMIT_PKTS),
    (0x8000, field::RCV_PKTS),
    (0x1_0000, field::XMIT_WAIT),
    (0x2_0000, field::QP1_DROPPED),
];

layout! {
    /// PortCounters taken apart.
    "PortCounters" 0..44 {
        /// PortSelect.
        PORT_SELECT port_select: u8 @ 1;
        /// CounterSelect.
        COUNTER_SELECT counter_select: u16 @ 2;
        /// SymbolErrorCounter.
        SYMBOL_ERRORS symbol_errors: u16 @ 4;
        /// LinkErrorRecoveryCounter.
        LINK_ERROR_RECOVERY link_error_recovery: u8 @ 6;
        /// LinkDownedCounter.
        LINK_DOWNED link_downed: u8 @ 7;
        /// PortRcvErrors.
        RCV_ERRORS rcv_errors: u16 @ 8;
        /// PortRcvRemotePhysicalErrors.
        RCV_REMOTE_PHYSICAL_ERRORS rcv_remote_physical_errors: u16 @ 10;
        /// PortRcvSwitchRelayErrors.
        RCV_SWITCH_RELAY_ERRORS rcv_switch_relay_errors: u16 @ 12;
        /// PortXmitDiscards.
        XMIT_DISCARDS xmit_discards: u16 @ 14;
        /// PortXmitConstraintErrors.
        XMIT_CONSTRAINT_ERRORS xmit_constraint_errors: u8 @ 16;
        /// PortRcvConstraintErrors.
        RCV_CONSTRAINT_ERRORS rcv_constraint_errors: u8 @ 17;
        /// CounterSelect2.
        COUNTER_SELECT2 counter_select2: u8 @ 18;
        /// LocalLinkIntegrityErrors.
        LOCAL_LINK_INTEGRITY_ERRORS local_link_integrity_errors: u8 @ 19 [7:4];
        /// ExcessiveBufferOverrunErrors.
        EXCESSIVE_BUFFER_OVERRUN_ERRORS excessive_buffer_overrun_errors: u8 @ 19 [3:0];
        /// QP1Dropped.
        QP1_DROPPED qp1_dropped: u16 @ 20;
        /// VL15Dropped.
        VL15_DROPPED vl15_dropped: u16 @ 22;
        /// PortXmitData in words of 4 bytes.
        XMIT_DATA xmit_data: u32 @ 24;
        /// PortRcvData in words of 4 bytes.
        RCV_DATA rcv_data: u32 @ 28;
        /// PortXmitPkts.
        XMIT_PKTS xmit_pkts: u32 @ 32;
        /// PortRcvPkts.
        RCV_PKTS rcv_pkts: u32 @ 36;
        /// PortXmitWait in ticks.
        XMIT_WAIT xmit_wait: u32 @ 40;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_bits_follow_the_wire_except_for_the_two_late_counters() {
        let late = [field::XMIT_WAIT, field::QP1_DROPPED];
        let selects = [field::PORT_SELECT, field::COUNTER_SELECT, field::COUNTER_SELECT2];
        let fields = FIELDS.iter().map(|(_, field)| *field);
        let want: Vec<_> =
            fields.filter(|one| !late.contains(one) && !selects.contains(one)).chain(late).collect();
        for (bit, (select, counter)) in COUNTERS.iter().enumerate() {
            assert_eq!((*select, *counter), (1 << bit, want[bit]));
        }
        assert_eq!(COUNTERS.len(), want.len());
    }
}
