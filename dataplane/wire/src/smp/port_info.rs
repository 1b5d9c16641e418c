//! PortInfo: addresses, link and limits of a port (spec sections 5.5 and 5.6).
//!
//! Plain data, no state. Access rules and the "0 = no change" convention of a Set are the agent's business.

/// PortState values.
pub mod state {
    /// Set only: leave as it is.
    pub const NO_CHANGE: u8 = 0;
    /// Down.
    pub const DOWN: u8 = 1;
    /// Initialize.
    pub const INIT: u8 = 2;
    /// Armed.
    pub const ARMED: u8 = 3;
    /// Active.
    pub const ACTIVE: u8 = 4;
    /// ActiveDefer.
    pub const ACTIVE_DEFER: u8 = 5;
}

/// PortPhysicalState values.
pub mod phys_state {
    /// Set only: leave as it is.
    pub const NO_CHANGE: u8 = 0;
    /// Sleep.
    pub const SLEEP: u8 = 1;
    /// Polling.
    pub const POLLING: u8 = 2;
    /// Disabled.
    pub const DISABLED: u8 = 3;
    /// PortConfigurationTraining.
    pub const TRAINING: u8 = 4;
    /// LinkUp.
    pub const LINK_UP: u8 = 5;
    /// LinkErrorRecovery.
    pub const ERROR_RECOVERY: u8 = 6;
    /// Phy test.
    pub const PHY_TEST: u8 = 7;
}

/// CapabilityMask bits.
pub mod cap_mask {
    /// IsSM.
    pub const SM: u32 = 1 << 1;
    /// IsNoticeSupported.
    pub const NOTICE: u32 = 1 << 2;
    /// IsTrapSupported.
    pub const TRAP: u32 = 1 << 3;
    /// IsAutomaticMigrationSupported.
    pub const AUTO_MIGRATION: u32 = 1 << 5;
    /// IsSLMappingSupported.
    pub const SL_MAPPING: u32 = 1 << 6;
    /// IsLedInfoSupported.
    pub const LED_INFO: u32 = 1 << 9;
    /// IsSMdisabled.
    pub const SM_DISABLED: u32 = 1 << 10;
    /// IsSystemImageGUIDSupported.
    pub const SYSTEM_IMAGE_GUID: u32 = 1 << 11;
    /// IsPKeySwitchExternalPortTrapSupported.
    pub const PKEY_SW_EXT_PORT_TRAP: u32 = 1 << 12;
    /// IsCableInfoSupported.
    pub const CABLE_INFO: u32 = 1 << 13;
    /// IsExtendedSpeedsSupported.
    pub const EXTENDED_SPEEDS: u32 = 1 << 14;
    /// CapabilityMask2 is present.
    pub const CAP_MASK2: u32 = 1 << 15;
    /// IsCommunicationManagementSupported.
    pub const COMMUNICATION_MGMT: u32 = 1 << 16;
    /// IsReinitSupported.
    pub const REINIT: u32 = 1 << 18;
    /// IsDeviceManagementSupported.
    pub const DEVICE_MGMT: u32 = 1 << 19;
    /// IsVendorClassSupported.
    pub const VENDOR_CLASS: u32 = 1 << 20;
    /// IsCapabilityMaskNoticeSupported.
    pub const CAP_MASK_NOTICE: u32 = 1 << 22;
    /// IsLinkRoundTripLatencySupported.
    pub const LINK_ROUND_TRIP: u32 = 1 << 24;
    /// IsClientReregistrationSupported.
    pub const CLIENT_REREGISTER: u32 = 1 << 25;
    /// IsOtherLocalChangesNoticeSupported.
    pub const OTHER_LOCAL_CHANGES: u32 = 1 << 26;
    /// IsLinkSpeedWidthPairsTableSupported.
    pub const LINK_SPEED_WIDTH_PAIRS: u32 = 1 << 27;
    /// IsMulticastPKeyTrapSuppressionSupported.
    pub const MCAST_PKEY_TRAP_SUPPRESSION: u32 = 1 << 29;
    /// IsMulticastFDBTopSupported.
    pub const MULTICAST_FDB_TOP: u32 = 1 << 30;
    /// IsHierarchyInfoSupported.
    pub const HIERARCHY_INFO: u32 = 1 << 31;
}

/// CapabilityMask2 bits.
pub mod cap_mask2 {
    /// IsSetNodeDescriptionSupported.
    pub const SET_NODE_DESC: u16 = 1 << 0;
    /// IsPortInfoExtendedSupported.
    pub const PORT_INFO_EXT: u16 = 1 << 1;
    /// IsVirtualizationSupported.
    pub const VIRTUALIZATION: u16 = 1 << 2;
    /// IsSwitchPortStateTableSupported.
    pub const SWITCH_PORT_STATE_TABLE: u16 = 1 << 3;
    /// IsLinkWidth2xSupported.
    pub const LINK_WIDTH_2X: u16 = 1 << 4;
    /// IsLinkSpeedHDRSupported.
    pub const LINK_SPEED_HDR: u16 = 1 << 5;
    /// IsMKeyProtectBitsExtSupported.
    pub const MKEY_PROTECT_EXT: u16 = 1 << 6;
    /// IsEnhancedTrap128Supported.
    pub const ENHANCED_TRAP_128: u16 = 1 << 7;
    /// IsLinkSpeedNDRSupported.
    pub const LINK_SPEED_NDR: u16 = 1 << 10;
}

layout! {
    /// PortInfo taken apart.
    "PortInfo" 0..64 {
        /// M_Key of the port.
        M_KEY m_key: u64 @ 0;
        /// GidPrefix.
        GID_PREFIX gid_prefix: u64 @ 8;
        /// LID, base of the port's 2^LMC LIDs.
        LID lid: u16 @ 16;
        /// MasterSMLID.
        MASTER_SM_LID master_sm_lid: u16 @ 18;
        /// CapabilityMask, see [its values](crate::smp::port_info::cap_mask).
        CAP_MASK cap_mask: u32 @ 20;
        /// DiagCode.
        DIAG_CODE diag_code: u16 @ 24;
        /// M_KeyLeasePeriod in seconds, 0 = no expiry.
        M_KEY_LEASE_PERIOD m_key_lease_period: u16 @ 26;
        /// LocalPortNum: arrival port of the SMP.
        LOCAL_PORT_NUM local_port_num: u8 @ 28;
        /// LinkWidthEnabled, width bits.
        LINK_WIDTH_ENABLED link_width_enabled: u8 @ 29;
        /// LinkWidthSupported, width bits.
        LINK_WIDTH_SUPPORTED link_width_supported: u8 @ 30;
        /// LinkWidthActive, width bit.
        LINK_WIDTH_ACTIVE link_width_active: u8 @ 31;
        /// LinkSpeedSupported, speed bits.
        LINK_SPEED_SUPPORTED link_speed_supported: u8 @ 32 [7:4];
        /// PortState, see [its values](crate::smp::port_info::state).
        PORT_STATE port_state: u8 @ 32 [3:0];
        /// PortPhysicalState, see [its values](crate::smp::port_info::phys_state).
        PORT_PHYS_STATE port_phys_state: u8 @ 33 [7:4];
        /// LinkDownDefaultState: 1 Sleep, 2 Polling.
        LINK_DOWN_DEFAULT_STATE link_down_default_state: u8 @ 33 [3:0];
        /// M_KeyProtectBits.
        M_KEY_PROTECT_BITS m_key_protect_bits: u8 @ 34 [7:6];
        /// LMC.
        LMC lmc: u8 @ 34 [2:0];
        /// LinkSpeedActive, speed bit; 0 = see the extended speed.
        LINK_SPEED_ACTIVE link_speed_active: u8 @ 35 [7:4];
        /// LinkSpeedEnabled, speed bits.
        LINK_SPEED_ENABLED link_speed_enabled: u8 @ 35 [3:0];
        /// NeighborMTU, MTU code.
        NEIGHBOR_MTU neighbor_mtu: u8 @ 36 [7:4];
        /// MasterSMSL.
        MASTER_SM_SL master_sm_sl: u8 @ 36 [3:0];
        /// VLCap, VL code.
        VL_CAP vl_cap: u8 @ 37 [7:4];
        /// InitType.
        INIT_TYPE init_type: u8 @ 37 [3:0];
        /// VLHighLimit.
        VL_HIGH_LIMIT vl_high_limit: u8 @ 38;
        /// VLArbitrationHighCap.
        VL_ARB_HIGH_CAP vl_arb_high_cap: u8 @ 39;
        /// VLArbitrationLowCap.
        VL_ARB_LOW_CAP vl_arb_low_cap: u8 @ 40;
        /// InitTypeReply.
        INIT_TYPE_REPLY init_type_reply: u8 @ 41 [7:4];
        /// MTUCap, MTU code.
        MTU_CAP mtu_cap: u8 @ 41 [3:0];
        /// VLStallCount.
        VL_STALL_COUNT vl_stall_count: u8 @ 42 [7:5];
        /// HOQLife.
        HOQ_LIFE hoq_life: u8 @ 42 [4:0];
        /// OperationalVLs, VL code.
        OPERATIONAL_VLS operational_vls: u8 @ 43 [7:4];
        /// PartitionEnforcementInbound.
        PARTITION_ENFORCEMENT_INBOUND partition_enforcement_inbound: bool @ 43 [3];
        /// PartitionEnforcementOutbound.
        PARTITION_ENFORCEMENT_OUTBOUND partition_enforcement_outbound: bool @ 43 [2];
        /// FilterRawInbound.
        FILTER_RAW_INBOUND filter_raw_inbound: bool @ 43 [1];
        /// FilterRawOutbound.
        FILTER_RAW_OUTBOUND filter_raw_outbound: bool @ 43 [0];
        /// M_KeyViolations.
        M_KEY_VIOLATIONS m_key_violations: u16 @ 44;
        /// P_KeyViolations.
        P_KEY_VIOLATIONS p_key_violations: u16 @ 46;
        /// Q_KeyViolations.
        Q_KEY_VIOLATIONS q_key_violations: u16 @ 48;
        /// GUIDCap: entries of the GUID table.
        GUID_CAP guid_cap: u8 @ 50;
        /// ClientReregister.
        CLIENT_REREGISTER client_reregister: bool @ 51 [7];
        /// MulticastPKeyTrapSuppressionEnabled.
        MCAST_PKEY_TRAP_SUPPRESSION mcast_pkey_trap_suppression: u8 @ 51 [6:5];
        /// SubnetTimeOut: 4.096 us * 2^n.
        SUBNET_TIMEOUT subnet_timeout: u8 @ 51 [4:0];
        /// RespTimeValue: 4.096 us * 2^n.
        RESP_TIME_VALUE resp_time_value: u8 @ 52 [4:0];
        /// LocalPhyErrors threshold.
        LOCAL_PHY_ERRORS local_phy_errors: u8 @ 53 [7:4];
        /// OverrunErrors threshold.
        OVERRUN_ERRORS overrun_errors: u8 @ 53 [3:0];
        /// MaxCreditHint.
        MAX_CREDIT_HINT max_credit_hint: u16 @ 54;
        /// LinkSpeedExtActive2 (XDR).
        LINK_SPEED_EXT_ACTIVE2 link_speed_ext_active2: u8 @ 56 [6:5];
        /// LinkSpeedExtSupported2 (XDR).
        LINK_SPEED_EXT_SUPPORTED2 link_speed_ext_supported2: u8 @ 56 [4:3];
        /// LinkSpeedExtEnabled2 (XDR).
        LINK_SPEED_EXT_ENABLED2 link_speed_ext_enabled2: u8 @ 56 [2:0];
        /// LinkRoundTripLatency, 24 bits.
        LINK_ROUND_TRIP_LATENCY link_round_trip_latency: u32 @ 56 [23:0];
        /// CapabilityMask2, see [its values](crate::smp::port_info::cap_mask2).
        CAP_MASK2 cap_mask2: u16 @ 60;
        /// LinkSpeedExtActive, extended speed bit.
        LINK_SPEED_EXT_ACTIVE link_speed_ext_active: u8 @ 62 [7:4];
        /// LinkSpeedExtSupported, extended speed bits.
        LINK_SPEED_EXT_SUPPORTED link_speed_ext_supported: u8 @ 62 [3:0];
        /// LinkSpeedExtEnabled, extended speed bits.
        LINK_SPEED_EXT_ENABLED link_speed_ext_enabled: u8 @ 63 [4:0];
    }
}
