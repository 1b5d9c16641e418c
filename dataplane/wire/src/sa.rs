//! Subnet administration header and attribute ids (spec section 8).
//!
//! Plain data, no state. The records themselves are not taken apart here: subnet administration is the subnet manager's
//! business and its MADs are only carried.

use core::ops::Range;

/// Bytes of a MAD that hold SA records; with RMPP, of one segment.
pub const SA_DATA: Range<usize> = 56..256;
/// Length of common, RMPP and SA header.
pub const SA_HEADER_LEN: usize = 56;
/// ClassVersion of SA.
pub const CLASS_VERSION: u8 = 2;

/// Attribute ids of SA.
pub mod attr {
    /// ClassPortInfo.
    pub const CLASS_PORT_INFO: u16 = 0x0001;
    /// Notice.
    pub const NOTICE: u16 = 0x0002;
    /// InformInfo.
    pub const INFORM_INFO: u16 = 0x0003;
    /// NodeRecord.
    pub const NODE_RECORD: u16 = 0x0011;
    /// PortInfoRecord.
    pub const PORT_INFO_RECORD: u16 = 0x0012;
    /// SLtoVLMappingTableRecord.
    pub const SL_TO_VL_RECORD: u16 = 0x0013;
    /// SwitchInfoRecord.
    pub const SWITCH_INFO_RECORD: u16 = 0x0014;
    /// LinearForwardingTableRecord.
    pub const LFT_RECORD: u16 = 0x0015;
    /// MulticastForwardingTableRecord.
    pub const MFT_RECORD: u16 = 0x0017;
    /// SMInfoRecord.
    pub const SM_INFO_RECORD: u16 = 0x0018;
    /// LinkRecord.
    pub const LINK_RECORD: u16 = 0x0020;
    /// GuidInfoRecord.
    pub const GUID_INFO_RECORD: u16 = 0x0030;
    /// ServiceRecord.
    pub const SERVICE_RECORD: u16 = 0x0031;
    /// P_KeyTableRecord.
    pub const PKEY_TABLE_RECORD: u16 = 0x0033;
    /// PathRecord.
    pub const PATH_RECORD: u16 = 0x0035;
    /// VLArbitrationTableRecord.
    pub const VL_ARB_RECORD: u16 = 0x0036;
    /// MCMemberRecord.
    pub const MC_MEMBER_RECORD: u16 = 0x0038;
    /// MultiPathRecord.
    pub const MULTI_PATH_RECORD: u16 = 0x003a;
    /// InformInfoRecord.
    pub const INFORM_INFO_RECORD: u16 = 0x00f3;
}

layout! {
    /// SA header taken apart.
    "SA" 36..56 {
        /// SM_Key.
        SM_KEY sm_key: u64 @ 36;
        /// AttributeOffset: record stride in units of 8 bytes, 0 without records.
        ATTR_OFFSET attr_offset: u16 @ 44;
        /// ComponentMask.
        COMPONENT_MASK component_mask: u64 @ 48;
    }
}

/// Number of records in a reassembled message of `message_len` bytes, headers included; 0 if the stride is 0.
pub const fn record_count(message_len: usize, attr_offset: u16) -> usize {
    let stride = attr_offset as usize * 8;
    match message_len.saturating_sub(SA_HEADER_LEN).checked_div(stride) {
        Some(count) => count,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_rounding_down() {
        assert_eq!(record_count(56 + 112 * 3, 14), 3);
        assert_eq!(record_count(56 + 112 * 3 + 111, 14), 3);
        assert_eq!((record_count(55, 14), record_count(400, 0)), (0, 0));
    }
}
