//! Performance management attributes (spec section 7).
//!
//! Plain data, no state. Attribute data starts at byte 64 of the MAD ([`data`]), offsets in the submodules count from there.
//! Widths are here, saturation and clearing are the agent's business; [`port_counters::COUNTERS`] and its kin only say which
//! select bit belongs to which counter.

use core::ops::Range;

use crate::mad::{self, MadBuf};

pub mod class_port_info;
pub mod details;
pub mod ext_speeds;
pub mod port_counters;
pub mod port_counters_ext;
pub mod samples;

pub use class_port_info::Repr as ClassPortInfo;
pub use port_counters::Repr as PortCounters;
pub use port_counters_ext::Repr as PortCountersExtended;

/// Bytes of a MAD that hold the attribute of a performance MAD.
pub const PMA_DATA: Range<usize> = 64..256;
/// Number of attribute bytes in a performance MAD.
pub const DATA_LEN: usize = 192;
/// PortSelect value for all ports of a switch.
pub const ALL_PORTS: u8 = 0xff;
/// Words of 4 bytes by which one MAD without GRH advances PortXmitData and PortRcvData (spec section 1).
pub const MAD_DATA_WORDS: u64 = 72;

/// Attribute ids of the performance class.
pub mod attr {
    /// ClassPortInfo.
    pub const CLASS_PORT_INFO: u16 = 0x0001;
    /// PortSamplesControl.
    pub const PORT_SAMPLES_CONTROL: u16 = 0x0010;
    /// PortSamplesResult.
    pub const PORT_SAMPLES_RESULT: u16 = 0x0011;
    /// PortCounters.
    pub const PORT_COUNTERS: u16 = 0x0012;
    /// PortRcvErrorDetails.
    pub const PORT_RCV_ERROR_DETAILS: u16 = 0x0015;
    /// PortXmitDiscardDetails.
    pub const PORT_XMIT_DISCARD_DETAILS: u16 = 0x0016;
    /// PortOpRcvCounters.
    pub const PORT_OP_RCV_COUNTERS: u16 = 0x0017;
    /// PortFlowCtlCounters.
    pub const PORT_FLOW_CTL_COUNTERS: u16 = 0x0018;
    /// PortVLOpPackets.
    pub const PORT_VL_OP_PACKETS: u16 = 0x0019;
    /// PortVLOpData.
    pub const PORT_VL_OP_DATA: u16 = 0x001a;
    /// PortVLXmitFlowCtlUpdateErrors.
    pub const PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS: u16 = 0x001b;
    /// PortVLXmitWaitCounters.
    pub const PORT_VL_XMIT_WAIT: u16 = 0x001c;
    /// PortCountersExtended.
    pub const PORT_COUNTERS_EXT: u16 = 0x001d;
    /// PortSamplesResultExtended.
    pub const PORT_SAMPLES_RESULT_EXT: u16 = 0x001e;
    /// PortExtendedSpeedsCounters.
    pub const PORT_EXT_SPEEDS_COUNTERS: u16 = 0x001f;
    /// SwPortVLCongestion.
    pub const SW_PORT_VL_CONGESTION: u16 = 0x0030;
    /// PortRcvConCtrl.
    pub const PORT_RCV_CON_CTRL: u16 = 0x0031;
    /// PortSLRcvFECN.
    pub const PORT_SL_RCV_FECN: u16 = 0x0032;
    /// PortSLRcvBECN.
    pub const PORT_SL_RCV_BECN: u16 = 0x0033;
    /// PortXmitConCtrl.
    pub const PORT_XMIT_CON_CTRL: u16 = 0x0034;
    /// PortVLXmitTimeCong.
    pub const PORT_VL_XMIT_TIME_CONG: u16 = 0x0035;
    /// PortXmitDataSL.
    pub const PORT_XMIT_DATA_SL: u16 = 0x0036;
    /// PortRcvDataSL.
    pub const PORT_RCV_DATA_SL: u16 = 0x0037;
}

/// ClassPortInfo CapabilityMask bits of the performance class.
pub mod cap_mask {
    /// Traps of this class are supported.
    pub const TRAP: u16 = 1 << 0;
    /// Notices of this class are supported.
    pub const NOTICE: u16 = 1 << 1;
    /// AllPortSelect: PortSelect 0xFF is accepted.
    pub const ALL_PORT_SELECT: u16 = 1 << 8;
    /// PortCountersExtended with unicast and multicast counters.
    pub const EXT_WIDTH: u16 = 1 << 9;
    /// PortCountersExtended without them.
    pub const EXT_WIDTH_NO_IETF: u16 = 1 << 10;
    /// SamplesOnly.
    pub const SAMPLES_ONLY: u16 = 1 << 11;
    /// PortXmitWait is present.
    pub const XMIT_WAIT: u16 = 1 << 12;
    /// IsInhibitLimitedPKeyMulticastConstraintErrors.
    pub const INHIBIT_LIMITED_PKEY: u16 = 1 << 13;
    /// RSFEC counters are present.
    pub const RSFEC: u16 = 1 << 14;
    /// QP1Dropped is present.
    pub const QP1_DROPPED: u16 = 1 << 15;
    /// CapabilityMask2: PM_Key.
    pub const MASK2_PM_KEY: u32 = 1 << 0;
    /// CapabilityMask2: error counters in PortCountersExtended.
    pub const MASK2_ADDITIONAL: u32 = 1 << 1;
}

/// The attribute of a performance MAD, 192 bytes.
#[inline]
pub fn data(buf: &MadBuf) -> &[u8; DATA_LEN] {
    mad::window::<64, DATA_LEN>(buf)
}

/// The attribute of a performance MAD, 192 bytes, for writing.
#[inline]
pub fn data_mut(buf: &mut MadBuf) -> &mut [u8; DATA_LEN] {
    mad::window_mut::<64, DATA_LEN>(buf)
}
