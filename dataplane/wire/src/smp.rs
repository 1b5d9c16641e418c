//! Subnet management packets, LID routed and by directed route (spec sections 3 to 5).
//!
//! Borrowed views over any 256 bytes; no accessor can fail and none looks at the class first, so the routing fields of a
//! LID-routed SMP read as whatever is there. The hop rules (who increments the pointer, when a path entry counts) belong
//! to the engine. Attribute layouts are in the submodules; their offsets count from byte 64, see [`Smp::data`].

use core::fmt;
use core::ops::Range;

use crate::mad::{self, Mad, MadBuf, MadMut};

pub mod guid_info;
pub mod lft;
pub mod mft;
pub mod mlnx_ext_port_info;
pub mod node_desc;
pub mod node_info;
pub mod notice;
pub mod pkey_table;
pub mod port_info;
pub mod port_info_ext;
pub mod sl2vl;
pub mod sm_info;
pub mod switch_info;
pub mod vlarb;

pub use guid_info::Repr as GuidInfo;
pub use lft::Repr as Lft;
pub use mft::Repr as Mft;
pub use mlnx_ext_port_info::Repr as MlnxExtPortInfo;
pub use node_desc::Repr as NodeDescription;
pub use node_info::Repr as NodeInfo;
pub use notice::Notice;
pub use pkey_table::Repr as PKeyTable;
pub use port_info::Repr as PortInfo;
pub use port_info_ext::Repr as PortInfoExtended;
pub use sl2vl::Repr as SlToVl;
pub use sm_info::Repr as SmInfo;
pub use switch_info::Repr as SwitchInfo;
pub use vlarb::Repr as VlArb;

/// Bytes of a MAD that hold the attribute of an SMP.
pub const SMP_DATA: Range<usize> = 64..128;
/// Number of attribute bytes in an SMP.
pub const DATA_LEN: usize = 64;
/// Number of path entries, of which entry 0 is unused.
pub const PATH_LEN: usize = 64;
/// First hop count that is too large.
pub const MAX_HOPS: u8 = 64;
/// DrSLID or DrDLID of a route without a LID-routed part on that side.
pub const PERMISSIVE_LID: u16 = 0xffff;
/// Where the initial path starts in a MAD.
pub const INITIAL_PATH: usize = 128;
/// Where the return path starts in a MAD.
pub const RETURN_PATH: usize = 192;

/// Attribute ids of SMPs.
pub mod attr {
    /// Notice.
    pub const NOTICE: u16 = 0x0002;
    /// NodeDescription.
    pub const NODE_DESC: u16 = 0x0010;
    /// NodeInfo.
    pub const NODE_INFO: u16 = 0x0011;
    /// SwitchInfo.
    pub const SWITCH_INFO: u16 = 0x0012;
    /// GUIDInfo, modifier = block of 8.
    pub const GUID_INFO: u16 = 0x0014;
    /// PortInfo, modifier bits 7:0 = port.
    pub const PORT_INFO: u16 = 0x0015;
    /// P_KeyTable, modifier 15:0 block of 32, 31:16 port.
    pub const PKEY_TABLE: u16 = 0x0016;
    /// SLtoVLMappingTable.
    pub const SL_TO_VL: u16 = 0x0017;
    /// VLArbitrationTable.
    pub const VL_ARB: u16 = 0x0018;
    /// LinearForwardingTable, modifier = block of 64.
    pub const LFT: u16 = 0x0019;
    /// RandomForwardingTable, modifier = block of 16.
    pub const RFT: u16 = 0x001a;
    /// MulticastForwardingTable, modifier 8:0 block of 32, 31:28 position.
    pub const MFT: u16 = 0x001b;
    /// LinkSpeedWidthPairsTable.
    pub const LINK_SPEED_WIDTH_PAIRS: u16 = 0x001c;
    /// VendorMADsTable.
    pub const VENDOR_MADS: u16 = 0x001d;
    /// HierarchyInfo.
    pub const HIERARCHY_INFO: u16 = 0x001e;
    /// SMInfo.
    pub const SM_INFO: u16 = 0x0020;
    /// VendorDiag.
    pub const VENDOR_DIAG: u16 = 0x0030;
    /// LedInfo.
    pub const LED_INFO: u16 = 0x0031;
    /// CableInfo.
    pub const CABLE_INFO: u16 = 0x0032;
    /// PortInfoExtended.
    pub const PORT_INFO_EXT: u16 = 0x0033;
    /// Mellanox ExtendedPortInfo, modifier = port.
    pub const MLNX_EXT_PORT_INFO: u16 = 0xff90;
}

fields! {
    /// D bit of a directed-route SMP: 0 outgoing, 1 returning.
    DIRECTION direction: bool @ 4 [15];
    /// Status without the D bit.
    STATUS status: u16 @ 4 [14:0];
    /// HopPointer.
    HOP_POINTER hop_pointer: u8 @ 6;
    /// HopCount, valid below 64.
    HOP_COUNT hop_count: u8 @ 7;
    /// M_Key.
    M_KEY m_key: u64 @ 24;
    /// DrSLID.
    DR_SLID dr_slid: u16 @ 32;
    /// DrDLID.
    DR_DLID dr_dlid: u16 @ 34;
    /// InitialPath; entry i is the output port of hop i, entry 0 is unused.
    INITIAL_PATH initial_path: [u8; 64] @ 128;
    /// ReturnPath; entry i is the port on which receiver i got the request, entry 0 is unused.
    RETURN_PATH return_path: [u8; 64] @ 192;
}

/// Read-only view of an SMP.
///
/// ```
/// use madplane_wire::{Smp, SmpMut, smp};
/// let mut buf = [0_u8; 256];
/// let mut request = SmpMut::new(&mut buf);
/// request.init_directed(madplane_wire::mad::METHOD_GET, smp::attr::NODE_INFO, 0, 1, &[3, 1]);
/// let view = Smp::new(&buf);
/// assert_eq!((view.hop_pointer(), view.hop_count()), (0, 2));
/// assert_eq!(view.initial_path()[..3], [0, 3, 1]);
/// ```
#[derive(Clone, Copy)]
pub struct Smp<'a>(&'a MadBuf);

impl<'a> Smp<'a> {
    /// Views any 256 bytes.
    #[inline]
    pub const fn new(buf: &'a MadBuf) -> Self {
        Self(buf)
    }

    /// View of the common header.
    #[inline]
    pub const fn mad(self) -> Mad<'a> {
        Mad::new(self.0)
    }

    /// The bytes.
    #[inline]
    pub const fn as_bytes(self) -> &'a MadBuf {
        self.0
    }

    /// D bit: whether a directed-route SMP is on its way back.
    #[inline]
    pub const fn direction(self) -> bool {
        self.0[4] & 0x80 != 0
    }

    /// Status without the D bit.
    #[inline]
    pub const fn status(self) -> u16 {
        field::STATUS.get_u16(self.0)
    }

    /// HopPointer.
    #[inline]
    pub const fn hop_pointer(self) -> u8 {
        self.0[6]
    }

    /// HopCount.
    #[inline]
    pub const fn hop_count(self) -> u8 {
        self.0[7]
    }

    /// M_Key.
    #[inline]
    pub const fn m_key(self) -> u64 {
        field::M_KEY.get(self.0)
    }

    /// DrSLID.
    #[inline]
    pub const fn dr_slid(self) -> u16 {
        field::DR_SLID.get_u16(self.0)
    }

    /// DrDLID.
    #[inline]
    pub const fn dr_dlid(self) -> u16 {
        field::DR_DLID.get_u16(self.0)
    }

    /// The attribute, 64 bytes.
    #[inline]
    pub fn data(self) -> &'a [u8; DATA_LEN] {
        mad::window::<64, DATA_LEN>(self.0)
    }

    /// InitialPath, entry 0 unused.
    #[inline]
    pub fn initial_path(self) -> &'a [u8; PATH_LEN] {
        mad::window::<INITIAL_PATH, PATH_LEN>(self.0)
    }

    /// ReturnPath, entry 0 unused.
    #[inline]
    pub fn return_path(self) -> &'a [u8; PATH_LEN] {
        mad::window::<RETURN_PATH, PATH_LEN>(self.0)
    }
}

impl fmt::Debug for Smp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mad().fmt(f)
    }
}

/// Writing view of an SMP; read through [`SmpMut::view`].
pub struct SmpMut<'a>(&'a mut MadBuf);

impl fmt::Debug for SmpMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl<'a> SmpMut<'a> {
    /// Views any 256 bytes.
    #[inline]
    pub const fn new(buf: &'a mut MadBuf) -> Self {
        Self(buf)
    }

    /// Reading view of the same bytes.
    #[inline]
    pub const fn view(&self) -> Smp<'_> {
        Smp(self.0)
    }

    /// Writing view of the common header.
    #[inline]
    pub const fn mad(&mut self) -> MadMut<'_> {
        MadMut::new(self.0)
    }

    /// The bytes.
    #[inline]
    pub const fn as_bytes_mut(&mut self) -> &mut MadBuf {
        self.0
    }

    /// Zeroes the MAD and writes the header of a LID-routed SMP; M_Key and attribute stay 0.
    pub fn init_lid_routed(&mut self, method: u8, attr_id: u16, attr_mod: u32, tid: u64) {
        self.mad().init(mad::CLASS_SUBN_LID, 1, method, attr_id, attr_mod, tid);
    }

    /// Zeroes the MAD and writes an outgoing directed-route SMP whose route has no LID-routed part.
    ///
    /// `ports[i]` is the output port of hop i + 1; the hop pointer starts at 0; M_Key and attribute stay 0.
    ///
    /// # Panics
    /// If `ports` has more than 63 entries.
    pub fn init_directed(&mut self, method: u8, attr_id: u16, attr_mod: u32, tid: u64, ports: &[u8]) {
        self.mad().init(mad::CLASS_SUBN_DIRECTED, 1, method, attr_id, attr_mod, tid);
        self.set_hop_count(u8::try_from(ports.len()).expect("at most 63 hops"));
        self.set_dr_slid(PERMISSIVE_LID);
        self.set_dr_dlid(PERMISSIVE_LID);
        self.initial_path_mut()[1..=ports.len()].copy_from_slice(ports);
    }

    /// Writes the D bit, leaving the status.
    #[inline]
    pub const fn set_direction(&mut self, returning: bool) {
        field::DIRECTION.set(self.0, returning as u64);
    }

    /// Writes the low 15 status bits, leaving the D bit.
    #[inline]
    pub const fn set_status(&mut self, value: u16) {
        field::STATUS.set(self.0, value as u64);
    }

    /// Writes HopPointer.
    #[inline]
    pub const fn set_hop_pointer(&mut self, value: u8) {
        self.0[6] = value;
    }

    /// Writes HopCount.
    #[inline]
    pub const fn set_hop_count(&mut self, value: u8) {
        self.0[7] = value;
    }

    /// Writes M_Key.
    #[inline]
    pub const fn set_m_key(&mut self, value: u64) {
        field::M_KEY.set(self.0, value);
    }

    /// Writes DrSLID.
    #[inline]
    pub const fn set_dr_slid(&mut self, value: u16) {
        field::DR_SLID.set(self.0, value as u64);
    }

    /// Writes DrDLID.
    #[inline]
    pub const fn set_dr_dlid(&mut self, value: u16) {
        field::DR_DLID.set(self.0, value as u64);
    }

    /// The attribute, 64 bytes.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8; DATA_LEN] {
        mad::window_mut::<64, DATA_LEN>(self.0)
    }

    /// InitialPath, entry 0 unused.
    #[inline]
    pub fn initial_path_mut(&mut self) -> &mut [u8; PATH_LEN] {
        mad::window_mut::<INITIAL_PATH, PATH_LEN>(self.0)
    }

    /// ReturnPath, entry 0 unused.
    #[inline]
    pub fn return_path_mut(&mut self) -> &mut [u8; PATH_LEN] {
        mad::window_mut::<RETURN_PATH, PATH_LEN>(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direction_and_status_share_a_word_without_touching_each_other() {
        let mut buf = [0xa5; 256];
        let mut smp = SmpMut::new(&mut buf);
        smp.set_status(mad::STATUS_INVALID_FIELD);
        assert!(smp.view().direction());
        smp.set_direction(false);
        assert_eq!(smp.view().status(), mad::STATUS_INVALID_FIELD);
        smp.set_direction(true);
        smp.set_status(0xffff);
        assert_eq!(buf[3..7], [0xa5, 0xff, 0xff, 0xa5]);
        SmpMut::new(&mut buf).set_direction(false);
        assert_eq!(Smp::new(&buf).status(), 0x7fff);
    }

    #[test]
    fn route_fields_lie_where_the_spec_says() {
        let mut buf = [0xa5; 256];
        let mut smp = SmpMut::new(&mut buf);
        smp.set_hop_pointer(3);
        smp.set_hop_count(7);
        smp.set_m_key(0x0102_0304_0506_0708);
        smp.set_dr_slid(0x1112);
        smp.set_dr_dlid(PERMISSIVE_LID);
        smp.data_mut().fill(0xdd);
        smp.initial_path_mut().fill(0x11);
        smp.return_path_mut().fill(0x22);
        assert_eq!(buf[6..8], [3, 7]);
        assert_eq!(buf[24..37], [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0xff, 0xff, 0xa5]);
        assert_eq!((buf[63], buf[64], buf[127], buf[128]), (0xa5, 0xdd, 0xdd, 0x11));
        assert_eq!((buf[191], buf[192], buf[255]), (0x11, 0x22, 0x22));
        let smp = Smp::new(&buf);
        assert_eq!((smp.hop_pointer(), smp.hop_count(), smp.m_key()), (3, 7, 0x0102_0304_0506_0708));
        assert_eq!((smp.dr_slid(), smp.dr_dlid()), (0x1112, PERMISSIVE_LID));
    }

    #[test]
    #[should_panic(expected = "range end index")]
    fn a_path_of_64_hops_is_refused() {
        SmpMut::new(&mut [0; 256]).init_directed(mad::METHOD_GET, attr::NODE_INFO, 0, 0, &[1; 64]);
    }
}
