//! NodeInfo: what a node is (spec section 5.2).
//!
//! Plain data, no state. Says where the fields are; that PortGUID and LocalPortNum depend on the arrival port is the
//! agent's business.

/// NodeType values.
pub mod node_type {
    /// Channel adapter.
    pub const CA: u8 = 1;
    /// Switch.
    pub const SWITCH: u8 = 2;
    /// Router.
    pub const ROUTER: u8 = 3;
}

layout! {
    /// NodeInfo taken apart.
    "NodeInfo" 0..40 {
        /// BaseVersion, 1.
        BASE_VERSION base_version: u8 @ 0;
        /// ClassVersion, 1.
        CLASS_VERSION class_version: u8 @ 1;
        /// NodeType, see [its values](crate::smp::node_info::node_type).
        NODE_TYPE node_type: u8 @ 2;
        /// NumPorts: physical ports, port 0 of a switch not counted.
        NUM_PORTS num_ports: u8 @ 3;
        /// SystemImageGUID.
        SYSTEM_IMAGE_GUID system_image_guid: u64 @ 4;
        /// NodeGUID.
        NODE_GUID node_guid: u64 @ 12;
        /// PortGUID: of the arrival port, on a switch of port 0.
        PORT_GUID port_guid: u64 @ 20;
        /// PartitionCap: entries of the P_Key table of a CA port or of switch port 0.
        PARTITION_CAP partition_cap: u16 @ 28;
        /// DeviceID.
        DEVICE_ID device_id: u16 @ 30;
        /// Revision.
        REVISION revision: u32 @ 32;
        /// LocalPortNum: port on which the SMP arrived.
        LOCAL_PORT_NUM local_port_num: u8 @ 36;
        /// VendorID, 24 bits.
        VENDOR_ID vendor_id: u32 @ 36 [23:0];
    }
}
