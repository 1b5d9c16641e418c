//! The optional counter attributes (spec section 7.4): details of errors, per-lane and per-level counters, congestion.
//!
//! Plain data, no state. Every attribute starts with PortSelect and CounterSelect; select bit i belongs to the i-th counter, or
//! to VL or SL i of an array.

/// PortRcvErrorDetails, select bits 0 to 5.
pub mod rcv_errors {
    layout! {
        /// PortRcvErrorDetails taken apart.
        "PortRcvErrorDetails" 0..16 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// PortLocalPhysicalErrors.
            LOCAL_PHYSICAL_ERRORS local_physical_errors: u16 @ 4;
            /// PortMalformedPacketErrors.
            MALFORMED_PACKET_ERRORS malformed_packet_errors: u16 @ 6;
            /// PortBufferOverrunErrors.
            BUFFER_OVERRUN_ERRORS buffer_overrun_errors: u16 @ 8;
            /// PortDLIDMappingErrors.
            DLID_MAPPING_ERRORS dlid_mapping_errors: u16 @ 10;
            /// PortVLMappingErrors.
            VL_MAPPING_ERRORS vl_mapping_errors: u16 @ 12;
            /// PortLoopingErrors.
            LOOPING_ERRORS looping_errors: u16 @ 14;
        }
    }
}

/// PortXmitDiscardDetails, select bits 0 to 3.
pub mod xmit_discards {
    layout! {
        /// PortXmitDiscardDetails taken apart.
        "PortXmitDiscardDetails" 0..12 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// PortInactiveDiscards.
            INACTIVE inactive: u16 @ 4;
            /// PortNeighborMTUDiscards.
            NEIGHBOR_MTU neighbor_mtu: u16 @ 6;
            /// PortSwLifetimeLimitDiscards.
            SW_LIFETIME_LIMIT sw_lifetime_limit: u16 @ 8;
            /// PortSwHOQLifetimeLimitDiscards.
            SW_HOQ_LIFETIME_LIMIT sw_hoq_lifetime_limit: u16 @ 10;
        }
    }
}

/// PortOpRcvCounters, select bits 0 and 1.
pub mod op_rcv {
    layout! {
        /// PortOpRcvCounters taken apart.
        "PortOpRcvCounters" 0..12 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// PortOpRcvPkts.
            PKTS pkts: u32 @ 4;
            /// PortOpRcvData.
            DATA data: u32 @ 8;
        }
    }
}

/// PortFlowCtlCounters, select bits 0 and 1.
pub mod flow_ctl {
    layout! {
        /// PortFlowCtlCounters taken apart.
        "PortFlowCtlCounters" 0..12 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// PortXmitFlowPkts.
            XMIT_FLOW_PKTS xmit_flow_pkts: u32 @ 4;
            /// PortRcvFlowPkts.
            RCV_FLOW_PKTS rcv_flow_pkts: u32 @ 8;
        }
    }
}

/// PortVLOpPackets.
pub mod vl_op_packets {
    layout! {
        /// PortVLOpPackets taken apart.
        "PortVLOpPackets" 0..36 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Packets of each VL.
            PACKETS packets: [u16; 16] @ 4;
        }
    }
}

/// PortVLOpData.
pub mod vl_op_data {
    layout! {
        /// PortVLOpData taken apart.
        "PortVLOpData" 0..68 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Data of each VL in words of 4 bytes.
            DATA data: [u32; 16] @ 4;
        }
    }
}

/// PortVLXmitFlowCtlUpdateErrors.
pub mod vl_flow_ctl_errors {
    layout! {
        /// PortVLXmitFlowCtlUpdateErrors taken apart.
        "PortVLXmitFlowCtlUpdateErrors" 0..8 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Errors of each VL, 2 bits.
            ERRORS errors: [u8; 16] @ 4 [7:6];
        }
    }
}

/// PortVLXmitWaitCounters.
pub mod vl_xmit_wait {
    layout! {
        /// PortVLXmitWaitCounters taken apart.
        "PortVLXmitWaitCounters" 0..36 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Wait of each VL in ticks.
            WAIT wait: [u16; 16] @ 4;
        }
    }
}

/// SwPortVLCongestion.
pub mod vl_congestion {
    layout! {
        /// SwPortVLCongestion taken apart.
        "SwPortVLCongestion" 0..36 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Congestion count of each VL.
            CONGESTION congestion: [u16; 16] @ 4;
        }
    }
}

/// PortRcvConCtrl, select bits 0 and 1.
pub mod rcv_con_ctrl {
    layout! {
        /// PortRcvConCtrl taken apart.
        "PortRcvConCtrl" 0..12 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// PortPktRcvFECN.
            FECN_PKTS fecn_pkts: u32 @ 4;
            /// PortPktRcvBECN.
            BECN_PKTS becn_pkts: u32 @ 8;
        }
    }
}

/// PortSLRcvFECN.
pub mod sl_rcv_fecn {
    layout! {
        /// PortSLRcvFECN taken apart.
        "PortSLRcvFECN" 0..68 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Packets with FECN of each SL.
            PKTS pkts: [u32; 16] @ 4;
        }
    }
}

/// PortSLRcvBECN.
pub mod sl_rcv_becn {
    layout! {
        /// PortSLRcvBECN taken apart.
        "PortSLRcvBECN" 0..68 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Packets with BECN of each SL.
            PKTS pkts: [u32; 16] @ 4;
        }
    }
}

/// PortXmitConCtrl, select bit 0.
pub mod xmit_con_ctrl {
    layout! {
        /// PortXmitConCtrl taken apart.
        "PortXmitConCtrl" 0..8 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// PortXmitTimeCong.
            TIME_CONGESTED time_congested: u32 @ 4;
        }
    }
}

/// PortVLXmitTimeCong.
pub mod vl_time_congested {
    layout! {
        /// PortVLXmitTimeCong taken apart.
        "PortVLXmitTimeCong" 0..64 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Congested time of each of VLs 0 to 14.
            TIME time: [u32; 15] @ 4;
        }
    }
}

/// PortXmitDataSL.
pub mod xmit_data_sl {
    layout! {
        /// PortXmitDataSL taken apart.
        "PortXmitDataSL" 0..68 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Data sent of each SL in words of 4 bytes.
            DATA data: [u32; 16] @ 4;
        }
    }
}

/// PortRcvDataSL.
pub mod rcv_data_sl {
    layout! {
        /// PortRcvDataSL taken apart.
        "PortRcvDataSL" 0..68 {
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// CounterSelect.
            COUNTER_SELECT counter_select: u16 @ 2;
            /// Data received of each SL in words of 4 bytes.
            DATA data: [u32; 16] @ 4;
        }
    }
}
