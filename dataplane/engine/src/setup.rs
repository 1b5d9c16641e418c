//! Power-on state of nodes and ports, from the topology.
//!
//! Pure; runs when a shard is built and when a node is rebooted. Invariant: the image of a port depends only on its node
//! and port record, so that a shard can compute what the other end of a link offers without asking for it.

use crate::node::{
    Fdr10, GUID_CAP, LINEAR_FDB_CAP, MULTICAST_FDB_CAP, P_KEY_CAP, PortCold, Switch, VL_ARB_CAP,
};
use crate::sink::LinkOffer;
use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind, Port};
use madplane_wire::Field;
use madplane_wire::smp::node_info::field as ni;
use madplane_wire::smp::port_info::phys_state as phys;
use madplane_wire::smp::port_info::{cap_mask, cap_mask2, field as pi};
use madplane_wire::smp::switch_info::field as si;
use rustc_hash::FxHashMap;

/// MTU of every port: 4096 bytes.
const MTU_CAP: u64 = 5;
/// VLs of every port: VL0 to VL7.
const VL_CAP: u64 = 4;
/// 4.096 µs times 2^18, about a second: response time and trap spacing until an SM says otherwise.
const DEFAULT_TIMEOUT: u64 = 18;

/// What every endport can do; ExtendedSpeeds is added where a port has them.
const CAPABILITIES: u32 = cap_mask::TRAP
    | cap_mask::SL_MAPPING
    | cap_mask::CAP_MASK2
    | cap_mask::CAP_MASK_NOTICE
    | cap_mask::CLIENT_REREGISTER
    | cap_mask::OTHER_LOCAL_CHANGES;
/// Switches also report P_Key failures of their external ports (trap 259).
const SWITCH_CAPABILITIES: u32 = CAPABILITIES | cap_mask::PKEY_SW_EXT_PORT_TRAP;
const CAPABILITIES2: u16 = cap_mask2::LINK_WIDTH_2X | cap_mask2::LINK_SPEED_HDR | cap_mask2::LINK_SPEED_NDR;

/// Device ids that answer MlnxExtPortInfo.
pub(crate) fn has_mlnx_ext_port_info(device_id: u16) -> bool {
    matches!(device_id,
        0xC738..=0xC73B | 0xC839 | 0xCB20 | 0xCF08 | 0xCF09 | 0xD2F0 | 0x1003..=0x101B | 0xA2D2)
}

/// NodeInfo without PortGUID and LocalPortNum.
pub(crate) fn node_info(node: &Node) -> [u8; 40] {
    let mut info = [0; 40];
    ni::BASE_VERSION.set(&mut info, 1);
    ni::CLASS_VERSION.set(&mut info, 1);
    ni::NODE_TYPE.set(&mut info, node.kind as u64);
    ni::NUM_PORTS.set(&mut info, u64::from(node.num_ports()));
    ni::SYSTEM_IMAGE_GUID.set(&mut info, node.system_image_guid);
    ni::NODE_GUID.set(&mut info, node.guid);
    ni::PARTITION_CAP.set(&mut info, P_KEY_CAP as u64);
    ni::DEVICE_ID.set(&mut info, u64::from(node.device_id));
    ni::REVISION.set(&mut info, 0xA0);
    ni::VENDOR_ID.set(&mut info, u64::from(node.vendor_id));
    info
}

/// NodeDescription, cut at 64 bytes and never empty.
pub(crate) fn description(node: &Node) -> [u8; 64] {
    let mut text = [0; 64];
    let source = if node.description.is_empty() { b"node".as_slice() } else { node.description.as_bytes() };
    let length = source.len().min(64);
    text[..length].copy_from_slice(&source[..length]);
    text
}

/// A switch as it is after power on.
pub(crate) fn switch(enhanced_port0: bool) -> Switch {
    let mut info = [0; 20];
    si::LINEAR_FDB_CAP.set(&mut info, u64::from(LINEAR_FDB_CAP));
    si::MULTICAST_FDB_CAP.set(&mut info, u64::from(MULTICAST_FDB_CAP));
    si::LIFE_TIME_VALUE.set(&mut info, DEFAULT_TIMEOUT);
    si::PARTITION_ENFORCEMENT_CAP.set(&mut info, P_KEY_CAP as u64);
    for field in [
        si::INBOUND_ENFORCEMENT_CAP,
        si::OUTBOUND_ENFORCEMENT_CAP,
        si::FILTER_RAW_INBOUND_CAP,
        si::FILTER_RAW_OUTBOUND_CAP,
    ] {
        field.set(&mut info, 1);
    }
    si::ENHANCED_PORT0.set(&mut info, u64::from(enhanced_port0));
    Switch { info, linear_fdb_top: 0, lft: Vec::new(), mft: FxHashMap::default() }
}

/// Fastest link of a node; what its uncabled ports support.
pub(crate) fn node_speed(node: &Node) -> LinkSpeed {
    node.ports.iter().filter(|p| p.peer.is_some()).map(|p| p.speed).max().unwrap_or_default()
}

/// A port as it is after power on, its link still down. `fastest` is [`node_speed`] of the node.
pub(crate) fn port(node: &Node, number: u8, record: &Port, fastest: LinkSpeed) -> PortCold {
    let is_switch = node.kind == NodeKind::Switch;
    let endport = !is_switch || number == 0;
    let cabled = record.peer.is_some();
    let (speed, width) = if cabled { (record.speed, record.width) } else { (fastest, LinkWidth::X4) };
    let mut info = [0; 64];
    let mut set = |field: Field, value: u64| field.set(&mut info, value);
    let (legacy, ext, ext2) = supported_speeds(speed);
    if endport {
        let mask = if is_switch { SWITCH_CAPABILITIES } else { CAPABILITIES };
        let extended = supported_speeds(if is_switch { fastest } else { speed }).1 != 0;
        set(pi::CAP_MASK, u64::from(mask | if extended { cap_mask::EXTENDED_SPEEDS } else { 0 }));
        set(pi::CAP_MASK2, u64::from(CAPABILITIES2));
        set(pi::GUID_CAP, if is_switch { 1 } else { GUID_CAP as u64 });
    }
    set(pi::LINK_WIDTH_SUPPORTED, supported_widths(width));
    set(pi::LINK_WIDTH_ACTIVE, width as u64);
    set(pi::LINK_SPEED_SUPPORTED, legacy);
    set(pi::LINK_SPEED_ACTIVE, highest(legacy));
    set(pi::LINK_SPEED_EXT_SUPPORTED, ext);
    set(pi::LINK_SPEED_EXT_SUPPORTED2, ext2);
    set(pi::MTU_CAP, MTU_CAP);
    set(pi::VL_CAP, VL_CAP);
    set(pi::VL_ARB_HIGH_CAP, VL_ARB_CAP as u64);
    set(pi::VL_ARB_LOW_CAP, VL_ARB_CAP as u64);
    set(pi::RESP_TIME_VALUE, DEFAULT_TIMEOUT);
    let fdr10 = speed == LinkSpeed::Fdr10 && has_mlnx_ext_port_info(node.device_id);
    let mut cold = PortCold {
        info,
        guid: match record.guid {
            0 if is_switch => node.guid,
            // port GUIDs must differ; next to the node GUID is where vendors put them
            0 => node.guid.wrapping_add(u64::from(number)),
            guid => guid,
        },
        lease_deadline_ns: 0,
        endport,
        lid: 0,
        lmc: 0,
        want: phys::POLLING,
        plugged: cabled,
        is_sm: false,
        fdr10: Fdr10 { supported: fdr10, enabled: fdr10, active: false },
        peer_offer: LinkOffer::default(),
        tables: None,
        counters: None,
    };
    cold.power_cycle();
    cold
}

impl PortCold {
    /// Forgets everything that a Set or the traffic has written; cable, SM role and what the port can do stay.
    pub(crate) fn power_cycle(&mut self) {
        let info = &mut self.info;
        let cleared = [
            pi::M_KEY,
            pi::LID,
            pi::MASTER_SM_LID,
            pi::M_KEY_LEASE_PERIOD,
            pi::M_KEY_PROTECT_BITS,
            pi::LMC,
            pi::MASTER_SM_SL,
            pi::INIT_TYPE,
            pi::VL_HIGH_LIMIT,
            pi::VL_STALL_COUNT,
            pi::HOQ_LIFE,
            pi::PARTITION_ENFORCEMENT_INBOUND,
            pi::PARTITION_ENFORCEMENT_OUTBOUND,
            pi::FILTER_RAW_INBOUND,
            pi::FILTER_RAW_OUTBOUND,
            pi::M_KEY_VIOLATIONS,
            pi::P_KEY_VIOLATIONS,
            pi::Q_KEY_VIOLATIONS,
            pi::MCAST_PKEY_TRAP_SUPPRESSION,
        ];
        for field in cleared {
            field.set(info, 0);
        }
        for (field, source) in [
            (pi::LINK_WIDTH_ENABLED, pi::LINK_WIDTH_SUPPORTED),
            (pi::LINK_SPEED_ENABLED, pi::LINK_SPEED_SUPPORTED),
            (pi::LINK_SPEED_EXT_ENABLED, pi::LINK_SPEED_EXT_SUPPORTED),
            (pi::LINK_SPEED_EXT_ENABLED2, pi::LINK_SPEED_EXT_SUPPORTED2),
            (pi::NEIGHBOR_MTU, pi::MTU_CAP),
            (pi::OPERATIONAL_VLS, pi::VL_CAP),
        ] {
            let value = source.get(info);
            field.set(info, value);
        }
        pi::GID_PREFIX.set(info, if self.endport { 0xFE80 << 48 } else { 0 });
        pi::LINK_DOWN_DEFAULT_STATE.set(info, u64::from(phys::POLLING));
        pi::SUBNET_TIMEOUT.set(info, DEFAULT_TIMEOUT);
        pi::LOCAL_PHY_ERRORS.set(info, 8);
        pi::OVERRUN_ERRORS.set(info, 8);
        self.fdr10.enabled = self.fdr10.supported;
        self.lease_deadline_ns = 0;
        (self.lid, self.lmc) = (0, 0);
        self.want = phys::POLLING;
        self.tables = None;
        self.counters = None;
    }

    /// What this end is ready to do.
    pub(crate) fn offer(&self) -> LinkOffer {
        let ext = pi::LINK_SPEED_EXT_ENABLED.get_u8(&self.info);
        LinkOffer {
            want: self.want,
            width: pi::LINK_WIDTH_ENABLED.get_u8(&self.info),
            speed: pi::LINK_SPEED_ENABLED.get_u8(&self.info),
            // 30 is the code for "extended speeds disabled"
            speed_ext: if ext == 30 { 0 } else { ext } | pi::LINK_SPEED_EXT_ENABLED2.get_u8(&self.info) << 5,
            fdr10: u8::from(self.fdr10.enabled),
        }
    }

    /// Chooses width and speed from both offers and stores them as active; false if the ends have none in common.
    pub(crate) fn negotiate(&mut self) -> bool {
        let (own, peer) = (self.offer(), self.peer_offer);
        let widths = own.width & peer.width;
        let speeds = own.speed & peer.speed;
        let ext = own.speed_ext & peer.speed_ext & 0x1F;
        let ext2 = (own.speed_ext & peer.speed_ext) >> 5;
        let width = [8, 4, 2, 16, 1].into_iter().find(|bit| widths & bit != 0);
        let Some(width) = width else { return false };
        if speeds == 0 && ext == 0 {
            return false;
        }
        self.fdr10.active = own.fdr10 & peer.fdr10 != 0 && ext == 0;
        pi::LINK_WIDTH_ACTIVE.set(&mut self.info, u64::from(width));
        pi::LINK_SPEED_ACTIVE.set(&mut self.info, if ext != 0 { 4 } else { highest(u64::from(speeds)) });
        pi::LINK_SPEED_EXT_ACTIVE.set(&mut self.info, highest(u64::from(ext)));
        pi::LINK_SPEED_EXT_ACTIVE2
            .set(&mut self.info, if ext & 8 != 0 { highest(u64::from(ext2)) } else { 0 });
        true
    }
}

/// Highest bit of `mask`, 0 for 0.
fn highest(mask: u64) -> u64 {
    mask.checked_ilog2().map_or(0, |bit| 1 << bit)
}

/// LinkSpeedSupported, LinkSpeedExtSupported and LinkSpeedExtSupported2 of a port whose fastest speed is `speed`.
fn supported_speeds(speed: LinkSpeed) -> (u64, u64, u64) {
    match speed {
        LinkSpeed::Sdr => (1, 0, 0),
        LinkSpeed::Ddr => (3, 0, 0),
        LinkSpeed::Qdr | LinkSpeed::Fdr10 => (7, 0, 0),
        LinkSpeed::Fdr => (7, 1, 0),
        LinkSpeed::Edr => (7, 3, 0),
        LinkSpeed::Hdr => (7, 7, 0),
        LinkSpeed::Ndr => (7, 15, 0),
        LinkSpeed::Xdr => (7, 15, 1),
    }
}

/// LinkWidthSupported of a port whose widest link is `width`; one of the sums that the architecture allows.
fn supported_widths(width: LinkWidth) -> u64 {
    match width {
        LinkWidth::X1 => 1,
        LinkWidth::X4 => 3,
        LinkWidth::X8 => 7,
        LinkWidth::X12 => 11,
        LinkWidth::X2 => 17,
    }
}
