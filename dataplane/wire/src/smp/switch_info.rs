//! SwitchInfo: forwarding table sizes and switch-wide switches (spec section 5.3).
//!
//! Plain data, no state. Access rules (read-only, write 1 to clear) are the agent's business.

layout! {
    /// SwitchInfo taken apart.
    "SwitchInfo" 0..20 {
        /// LinearFDBCap: entries of the linear table.
        LINEAR_FDB_CAP linear_fdb_cap: u16 @ 0;
        /// RandomFDBCap: entries of the random table.
        RANDOM_FDB_CAP random_fdb_cap: u16 @ 2;
        /// MulticastFDBCap: entries of the multicast table.
        MULTICAST_FDB_CAP multicast_fdb_cap: u16 @ 4;
        /// LinearFDBTop: highest valid LID.
        LINEAR_FDB_TOP linear_fdb_top: u16 @ 6;
        /// DefaultPort, for a miss in the random table.
        DEFAULT_PORT default_port: u8 @ 8;
        /// DefaultMulticastPrimaryPort.
        DEFAULT_MCAST_PRIMARY_PORT default_mcast_primary_port: u8 @ 9;
        /// DefaultMulticastNotPrimaryPort.
        DEFAULT_MCAST_NOT_PRIMARY_PORT default_mcast_not_primary_port: u8 @ 10;
        /// LifeTimeValue.
        LIFE_TIME_VALUE life_time_value: u8 @ 11 [7:3];
        /// PortStateChange; writing 1 clears it.
        PORT_STATE_CHANGE port_state_change: bool @ 11 [2];
        /// OptimizedSLtoVLMappingProgramming capability.
        OPTIMIZED_SL_TO_VL optimized_sl_to_vl: u8 @ 11 [1:0];
        /// LIDsPerPort, random table.
        LIDS_PER_PORT lids_per_port: u16 @ 12;
        /// PartitionEnforcementCap: P_Key entries of an external port, 0 = none.
        PARTITION_ENFORCEMENT_CAP partition_enforcement_cap: u16 @ 14;
        /// InboundEnforcementCap.
        INBOUND_ENFORCEMENT_CAP inbound_enforcement_cap: bool @ 16 [7];
        /// OutboundEnforcementCap.
        OUTBOUND_ENFORCEMENT_CAP outbound_enforcement_cap: bool @ 16 [6];
        /// FilterRawInboundCap.
        FILTER_RAW_INBOUND_CAP filter_raw_inbound_cap: bool @ 16 [5];
        /// FilterRawOutboundCap.
        FILTER_RAW_OUTBOUND_CAP filter_raw_outbound_cap: bool @ 16 [4];
        /// EnhancedPort0.
        ENHANCED_PORT0 enhanced_port0: bool @ 16 [3];
        /// MulticastFDBTop, valid if CapabilityMask bit 30 is set.
        MULTICAST_FDB_TOP multicast_fdb_top: u16 @ 18;
    }
}
