//! The structures of `umad.h`, as C lays them out.
//!
//! Plain data; every structure is followed by its assertions, and `tests/c/umad_abi.c` compares the same numbers with
//! the installed header. Nothing here decides anything.
//!
//! Source: spec/libibumad-abi.md section 1.2.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::offset_of;

/// Length of a device name with its NUL.
pub(crate) const CA_NAME_LEN: usize = 20;
/// Entries of [`Ca::ports`], so that port numbers above 9 cannot be shown.
pub(crate) const CA_MAX_PORTS: usize = 10;
/// Length of the header in front of a MAD.
pub(crate) const HEADER_LEN: usize = 64;
/// The only flag of [`RegAttr::flags`]: the caller does RMPP itself.
pub(crate) const USER_RMPP: u32 = 1;

/// `ib_mad_addr_t`: where a MAD goes to or comes from. Fields marked BE are in network order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct MadAddr {
    /// Queue pair, BE.
    pub(crate) qpn: u32,
    /// Q_Key, BE.
    pub(crate) qkey: u32,
    /// LID, BE.
    pub(crate) lid: u16,
    /// Service level.
    pub(crate) sl: u8,
    /// Low LMC bits of the local LID.
    pub(crate) path_bits: u8,
    /// Whether the GRH fields mean anything.
    pub(crate) grh_present: u8,
    /// Index of the local GID.
    pub(crate) gid_index: u8,
    /// Hop limit.
    pub(crate) hop_limit: u8,
    /// Traffic class.
    pub(crate) traffic_class: u8,
    /// Remote GID, wire order.
    pub(crate) gid: [u8; 16],
    /// Flow label, BE.
    pub(crate) flow_label: u32,
    /// Index into the P_Key table, host order.
    pub(crate) pkey_index: u16,
    /// Reserved.
    pub(crate) reserved: [u8; 6],
}

/// `ib_user_mad_t`: what stands in front of a MAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct UserMad {
    /// Agent, 0 to 31.
    pub(crate) agent_id: u32,
    /// 0 or an errno.
    pub(crate) status: u32,
    /// Time to wait for a response, 0 for none.
    pub(crate) timeout_ms: u32,
    /// How often a request is repeated.
    pub(crate) retries: u32,
    /// Header and MAD.
    pub(crate) length: u32,
    /// Peer.
    pub(crate) addr: MadAddr,
}

/// `umad_port_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Port {
    /// Device name.
    pub(crate) ca_name: [c_char; CA_NAME_LEN],
    /// Port number.
    pub(crate) portnum: c_int,
    /// Base LID.
    pub(crate) base_lid: c_uint,
    /// LMC.
    pub(crate) lmc: c_uint,
    /// LID of the master SM.
    pub(crate) sm_lid: c_uint,
    /// SL to the master SM.
    pub(crate) sm_sl: c_uint,
    /// PortState.
    pub(crate) state: c_uint,
    /// PortPhysicalState.
    pub(crate) phys_state: c_uint,
    /// Gb/s, rounded down.
    pub(crate) rate: c_uint,
    /// CapabilityMask, BE.
    pub(crate) capmask: u32,
    /// GID prefix, BE.
    pub(crate) gid_prefix: u64,
    /// Port GUID, BE.
    pub(crate) port_guid: u64,
    /// Entries of `pkeys`.
    pub(crate) pkeys_size: c_uint,
    /// P_Key table, host order; from malloc.
    pub(crate) pkeys: *mut u16,
    /// "InfiniBand".
    pub(crate) link_layer: [c_char; CA_NAME_LEN],
}

/// `umad_ca_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Ca {
    /// Device name.
    pub(crate) ca_name: [c_char; CA_NAME_LEN],
    /// NodeType.
    pub(crate) node_type: c_uint,
    /// Highest port number.
    pub(crate) numports: c_int,
    /// Firmware version.
    pub(crate) fw_ver: [c_char; 20],
    /// Kind of adapter.
    pub(crate) ca_type: [c_char; 40],
    /// Hardware version.
    pub(crate) hw_ver: [c_char; 20],
    /// Node GUID, BE.
    pub(crate) node_guid: u64,
    /// System image GUID, BE.
    pub(crate) system_guid: u64,
    /// Ports by number, null where there is none; each from malloc.
    pub(crate) ports: [*mut Port; CA_MAX_PORTS],
}

/// `struct umad_device_node`: one entry of the device list.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct DeviceNode {
    /// Next entry or null.
    pub(crate) next: *mut DeviceNode,
    /// Device name.
    pub(crate) ca_name: *const c_char,
}

/// `struct umad_reg_attr`: what `umad_register2` registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct RegAttr {
    /// Management class.
    pub(crate) mgmt_class: u8,
    /// Its version.
    pub(crate) mgmt_class_version: u8,
    /// [`USER_RMPP`] or 0.
    pub(crate) flags: u32,
    /// Methods wanted as requests.
    pub(crate) method_mask: [u64; 2],
    /// OUI of vendor range 2 in the low 24 bits.
    pub(crate) oui: u32,
    /// RMPP version, 0 for none.
    pub(crate) rmpp_version: u8,
}

/// `struct umad_ca_pair`: the devices that carry SMPs and GMPs.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CaPair {
    /// Device for SMPs.
    pub(crate) smi_name: [c_char; CA_NAME_LEN],
    /// Its port.
    pub(crate) smi_preferred_port: u32,
    /// Device for GMPs.
    pub(crate) gsi_name: [c_char; CA_NAME_LEN],
    /// Its port.
    pub(crate) gsi_preferred_port: u32,
}

const _: () = {
    assert!(size_of::<MadAddr>() == 44 && align_of::<MadAddr>() == 4);
    assert!(offset_of!(MadAddr, lid) == 8 && offset_of!(MadAddr, grh_present) == 12);
    assert!(offset_of!(MadAddr, gid) == 16 && offset_of!(MadAddr, flow_label) == 32);
    assert!(offset_of!(MadAddr, pkey_index) == 36 && offset_of!(MadAddr, reserved) == 38);
    assert!(size_of::<UserMad>() == HEADER_LEN && offset_of!(UserMad, addr) == 20);
    assert!(size_of::<Port>() == 112 && offset_of!(Port, portnum) == 20);
    assert!(offset_of!(Port, capmask) == 52 && offset_of!(Port, gid_prefix) == 56);
    assert!(offset_of!(Port, pkeys_size) == 72 && offset_of!(Port, pkeys) == 80);
    assert!(offset_of!(Port, link_layer) == 88);
    assert!(size_of::<Ca>() == 208 && offset_of!(Ca, fw_ver) == 28 && offset_of!(Ca, ca_type) == 48);
    assert!(offset_of!(Ca, hw_ver) == 88 && offset_of!(Ca, node_guid) == 112 && offset_of!(Ca, ports) == 128);
    assert!(size_of::<DeviceNode>() == 16 && offset_of!(DeviceNode, ca_name) == 8);
    assert!(size_of::<RegAttr>() == 32 && offset_of!(RegAttr, method_mask) == 8);
    assert!(offset_of!(RegAttr, oui) == 24 && offset_of!(RegAttr, rmpp_version) == 28);
    assert!(size_of::<CaPair>() == 48 && offset_of!(CaPair, gsi_name) == 24);
};
