//! The 24-byte header that every MAD starts with, and the numbers used in it (spec sections 1 and 2).
//!
//! Borrowed views; they run on the caller's thread. Invariant: [`Mad`] and [`MadMut`] accept any 256 bytes and no accessor
//! can fail. Not done here: no check that a class, method and attribute belong together, no agent matching beyond
//! [`Mad::is_response`].

use core::fmt;

use crate::Field;

/// Length of every MAD in bytes; a QP0 or QP1 payload of another length is not a MAD.
pub const MAD_LEN: usize = 256;

/// One MAD in wire order.
pub type MadBuf = [u8; MAD_LEN];

/// Length of the common header in bytes.
pub const HEADER_LEN: usize = LEN;

/// Q_Key of QP1, and of those who talk with it.
pub const GSI_Q_KEY: u32 = 0x8001_0000;

/// Management classes (byte 1).
pub mod class {
    /// Subnet management, LID routed (QP0).
    pub const SUBN_LID: u8 = 0x01;
    /// Subnet administration.
    pub const SA: u8 = 0x03;
    /// Performance management.
    pub const PERF: u8 = 0x04;
    /// Baseboard management.
    pub const BM: u8 = 0x05;
    /// Device management.
    pub const DEV_MGMT: u8 = 0x06;
    /// Communication management.
    pub const CM: u8 = 0x07;
    /// SNMP tunnelling.
    pub const SNMP: u8 = 0x08;
    /// First class of vendor range 1.
    pub const VENDOR1_FIRST: u8 = 0x09;
    /// Last class of vendor range 1.
    pub const VENDOR1_LAST: u8 = 0x0f;
    /// Device administration.
    pub const DEV_ADM: u8 = 0x10;
    /// Boot management.
    pub const BOOT: u8 = 0x11;
    /// BIS.
    pub const BIS: u8 = 0x12;
    /// Congestion control.
    pub const CONGESTION: u8 = 0x21;
    /// First class of vendor range 2.
    pub const VENDOR2_FIRST: u8 = 0x30;
    /// Last class of vendor range 2.
    pub const VENDOR2_LAST: u8 = 0x4f;
    /// Subnet management, directed route (QP0).
    pub const SUBN_DIRECTED: u8 = 0x81;
}
pub use class::{
    PERF as CLASS_PERF, SA as CLASS_SA, SUBN_DIRECTED as CLASS_SUBN_DIRECTED, SUBN_LID as CLASS_SUBN_LID,
};

/// Methods (byte 3, R bit included).
pub mod method {
    /// Read an attribute.
    pub const GET: u8 = 0x01;
    /// Write an attribute.
    pub const SET: u8 = 0x02;
    /// Datagram without an answer.
    pub const SEND: u8 = 0x03;
    /// Unsolicited notice.
    pub const TRAP: u8 = 0x05;
    /// Forwarded notice.
    pub const REPORT: u8 = 0x06;
    /// Stops the repetition of a trap; has no R bit, yet counts as a response.
    pub const TRAP_REPRESS: u8 = 0x07;
    /// SA: all records that match.
    pub const GET_TABLE: u8 = 0x12;
    /// SA: trace table.
    pub const GET_TRACE_TABLE: u8 = 0x13;
    /// SA: multi-packet request.
    pub const GET_MULTI: u8 = 0x14;
    /// SA: remove a record.
    pub const DELETE: u8 = 0x15;
    /// The R bit.
    pub const RESPONSE: u8 = 0x80;
    /// Answer to Get and to Set.
    pub const GET_RESP: u8 = 0x81;
    /// Answer to Report.
    pub const REPORT_RESP: u8 = 0x86;
    /// SA: answer to GetTable.
    pub const GET_TABLE_RESP: u8 = 0x92;
    /// SA: answer to GetTraceTable.
    pub const GET_TRACE_TABLE_RESP: u8 = 0x93;
    /// SA: answer to GetMulti.
    pub const GET_MULTI_RESP: u8 = 0x94;
    /// SA: answer to Delete.
    pub const DELETE_RESP: u8 = 0x95;
}
pub use method::{
    GET as METHOD_GET, GET_RESP as METHOD_GET_RESP, REPORT as METHOD_REPORT, SEND as METHOD_SEND,
    SET as METHOD_SET, TRAP as METHOD_TRAP, TRAP_REPRESS as METHOD_TRAP_REPRESS,
};

/// Status values (bytes 4 and 5); in a directed-route SMP bit 15 is the direction bit, so mask with [`status::DR_MASK`].
pub mod status {
    /// Success.
    pub const OK: u16 = 0;
    /// Discarded because busy; retry later.
    pub const BUSY: u16 = 0x0001;
    /// Redirection required.
    pub const REDIRECT: u16 = 0x0002;
    /// Bad base or class version.
    pub const BAD_VERSION: u16 = 0x0004;
    /// Method not supported.
    pub const UNSUPPORTED_METHOD: u16 = 0x0008;
    /// Method and attribute do not go together, or the attribute is not supported.
    pub const UNSUPPORTED_METHOD_ATTR: u16 = 0x000c;
    /// A field of the attribute or the modifier has an invalid value.
    pub const INVALID_FIELD: u16 = 0x001c;
    /// The three bits of the invalid-field code.
    pub const CODE_MASK: u16 = 0x001c;
    /// Status bits of a directed-route SMP.
    pub const DR_MASK: u16 = 0x7fff;
    /// SA: no resources.
    pub const SA_NO_RESOURCES: u16 = 0x0100;
    /// SA: invalid request.
    pub const SA_REQ_INVALID: u16 = 0x0200;
    /// SA: no records.
    pub const SA_NO_RECORDS: u16 = 0x0300;
    /// SA: too many records.
    pub const SA_TOO_MANY_RECORDS: u16 = 0x0400;
    /// SA: invalid GID.
    pub const SA_INVALID_GID: u16 = 0x0500;
    /// SA: insufficient components.
    pub const SA_INSUFFICIENT_COMPONENTS: u16 = 0x0600;
    /// SA: request denied.
    pub const SA_DENIED: u16 = 0x0700;
    /// SA: priority suggested.
    pub const SA_PRIORITY_SUGGESTED: u16 = 0x0800;
}
pub use status::{
    BAD_VERSION as STATUS_BAD_VERSION, BUSY as STATUS_BUSY, INVALID_FIELD as STATUS_INVALID_FIELD,
    OK as STATUS_OK, REDIRECT as STATUS_REDIRECT, UNSUPPORTED_METHOD as STATUS_UNSUPPORTED_METHOD,
    UNSUPPORTED_METHOD_ATTR as STATUS_UNSUPPORTED_METHOD_ATTR,
};

layout! {
    /// The common header taken apart.
    "MadHeader" 0..24 {
        /// BaseVersion, 1.
        BASE_VERSION base_version: u8 @ 0;
        /// MgmtClass, see [its values](crate::mad::class).
        MGMT_CLASS mgmt_class: u8 @ 1;
        /// ClassVersion: 2 for SA and congestion control, else 1.
        CLASS_VERSION class_version: u8 @ 2;
        /// Method with the R bit, see [its values](crate::mad::method).
        METHOD method: u8 @ 3;
        /// Status; bit 15 is the direction bit in a directed-route SMP.
        STATUS status: u16 @ 4;
        /// ClassSpecific: hop pointer and hop count in a directed-route SMP.
        CLASS_SPECIFIC class_specific: u16 @ 6;
        /// TransactionID; the upper half belongs to the MAD layer.
        TID tid: u64 @ 8;
        /// AttributeID.
        ATTR_ID attr_id: u16 @ 16;
        /// Reserved; an answer carries what the request had.
        RESERVED reserved: u16 @ 18;
        /// AttributeModifier.
        ATTR_MOD attr_mod: u32 @ 20;
    }
}
pub use Repr as Header;

/// The R bit inside the method byte.
pub const R_BIT: Field = Field::bits(3, 7, 7);
/// The method byte without the R bit.
pub const METHOD_CODE: Field = Field::bits(3, 6, 0);

/// Whether `mgmt_class` carries an RMPP header at byte 24: SA, device management and administration, BIS, vendor range 2.
///
/// Source: spec/libibumad-abi.md, the classes for which an agent may ask for RMPP.
#[inline]
pub const fn is_rmpp_class(mgmt_class: u8) -> bool {
    matches!(mgmt_class, class::SA | class::DEV_MGMT | class::DEV_ADM | class::BIS) || is_vendor2(mgmt_class)
}

/// Whether `mgmt_class` lies in vendor range 1 (data at byte 24, no OUI).
#[inline]
pub const fn is_vendor1(mgmt_class: u8) -> bool {
    matches!(mgmt_class, class::VENDOR1_FIRST..=class::VENDOR1_LAST)
}

/// Whether `mgmt_class` lies in vendor range 2 (RMPP header at 24, OUI at 37, data at 40).
#[inline]
pub const fn is_vendor2(mgmt_class: u8) -> bool {
    matches!(mgmt_class, class::VENDOR2_FIRST..=class::VENDOR2_LAST)
}

/// Whether `mgmt_class` is one of the two subnet management classes, which use QP0.
#[inline]
pub const fn is_smp_class(mgmt_class: u8) -> bool {
    matches!(mgmt_class, class::SUBN_LID | class::SUBN_DIRECTED)
}

/// The `N` bytes of `buf` from byte `AT`; the bounds are checked when it is compiled.
#[inline]
pub(crate) fn window<const AT: usize, const N: usize>(buf: &MadBuf) -> &[u8; N] {
    const { assert!(AT + N <= MAD_LEN) };
    buf[AT..].first_chunk().expect("checked at compile time")
}

/// As [`window`], for writing.
#[inline]
pub(crate) fn window_mut<const AT: usize, const N: usize>(buf: &mut MadBuf) -> &mut [u8; N] {
    const { assert!(AT + N <= MAD_LEN) };
    buf[AT..].first_chunk_mut().expect("checked at compile time")
}

/// Read-only view of a MAD.
///
/// ```
/// use madplane_wire::{Mad, MadMut, mad};
/// let mut buf = [0_u8; mad::MAD_LEN];
/// MadMut::new(&mut buf).init(mad::CLASS_PERF, 1, mad::METHOD_GET, 0x0012, 0, 7);
/// assert_eq!(Mad::new(&buf).tid(), 7);
/// assert!(!Mad::new(&buf).is_response());
/// ```
#[derive(Clone, Copy)]
pub struct Mad<'a>(&'a MadBuf);

impl<'a> Mad<'a> {
    /// Views any 256 bytes.
    #[inline]
    pub const fn new(buf: &'a MadBuf) -> Self {
        Self(buf)
    }

    /// The bytes.
    #[inline]
    pub const fn as_bytes(self) -> &'a MadBuf {
        self.0
    }

    /// BaseVersion.
    #[inline]
    pub const fn base_version(self) -> u8 {
        self.0[0]
    }

    /// MgmtClass.
    #[inline]
    pub const fn mgmt_class(self) -> u8 {
        self.0[1]
    }

    /// ClassVersion.
    #[inline]
    pub const fn class_version(self) -> u8 {
        self.0[2]
    }

    /// Method, R bit included.
    #[inline]
    pub const fn method(self) -> u8 {
        self.0[3]
    }

    /// The R bit alone; see [`Mad::is_response`] for matching.
    #[inline]
    pub const fn has_r_bit(self) -> bool {
        self.0[3] & method::RESPONSE != 0
    }

    /// Whether this MAD is matched to a request: R bit set, or TrapRepress, or baseboard management with modifier bit 0 set.
    ///
    /// Source: spec section 2.2 (Linux `ib_response_mad`).
    #[inline]
    pub const fn is_response(self) -> bool {
        self.has_r_bit()
            || self.method() == method::TRAP_REPRESS
            || (self.mgmt_class() == class::BM && self.attr_mod() & 1 != 0)
    }

    /// Status as it stands, all 16 bits.
    #[inline]
    pub const fn status(self) -> u16 {
        field::STATUS.get_u16(self.0)
    }

    /// ClassSpecific, bytes 6 and 7.
    #[inline]
    pub const fn class_specific(self) -> u16 {
        field::CLASS_SPECIFIC.get_u16(self.0)
    }

    /// TransactionID.
    #[inline]
    pub const fn tid(self) -> u64 {
        field::TID.get(self.0)
    }

    /// AttributeID.
    #[inline]
    pub const fn attr_id(self) -> u16 {
        field::ATTR_ID.get_u16(self.0)
    }

    /// AttributeModifier.
    #[inline]
    pub const fn attr_mod(self) -> u32 {
        field::ATTR_MOD.get_u32(self.0)
    }

    /// Whether the class carries an RMPP header; see [`is_rmpp_class`].
    #[inline]
    pub const fn is_rmpp_class(self) -> bool {
        is_rmpp_class(self.mgmt_class())
    }

    /// Whether the class lies in vendor range 2.
    #[inline]
    pub const fn is_vendor2(self) -> bool {
        is_vendor2(self.mgmt_class())
    }

    /// Whether the class is a subnet management class.
    #[inline]
    pub const fn is_smp(self) -> bool {
        is_smp_class(self.mgmt_class())
    }

    /// Whether the class is subnet management by directed route.
    #[inline]
    pub const fn is_directed_route(self) -> bool {
        self.mgmt_class() == class::SUBN_DIRECTED
    }

    /// The header taken apart.
    pub fn header(self) -> Header {
        Header::parse(self.0)
    }
}

impl fmt::Debug for Mad<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header().fmt(f)
    }
}

/// Writing view of a MAD; read through [`MadMut::view`].
pub struct MadMut<'a>(&'a mut MadBuf);

impl fmt::Debug for MadMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl<'a> MadMut<'a> {
    /// Views any 256 bytes.
    #[inline]
    pub const fn new(buf: &'a mut MadBuf) -> Self {
        Self(buf)
    }

    /// Reading view of the same bytes.
    #[inline]
    pub const fn view(&self) -> Mad<'_> {
        Mad(self.0)
    }

    /// The bytes.
    #[inline]
    pub const fn as_bytes_mut(&mut self) -> &mut MadBuf {
        self.0
    }

    /// Zeroes all 256 bytes and writes a request header with BaseVersion 1.
    pub fn init(
        &mut self,
        mgmt_class: u8,
        class_version: u8,
        method: u8,
        attr_id: u16,
        attr_mod: u32,
        tid: u64,
    ) {
        self.0.fill(0);
        self.set_base_version(1);
        self.set_mgmt_class(mgmt_class);
        self.set_class_version(class_version);
        self.set_method(method);
        self.set_attr_id(attr_id);
        self.set_attr_mod(attr_mod);
        self.set_tid(tid);
    }

    /// Writes BaseVersion.
    #[inline]
    pub const fn set_base_version(&mut self, value: u8) {
        self.0[0] = value;
    }

    /// Writes MgmtClass.
    #[inline]
    pub const fn set_mgmt_class(&mut self, value: u8) {
        self.0[1] = value;
    }

    /// Writes ClassVersion.
    #[inline]
    pub const fn set_class_version(&mut self, value: u8) {
        self.0[2] = value;
    }

    /// Writes the method, R bit included.
    #[inline]
    pub const fn set_method(&mut self, value: u8) {
        self.0[3] = value;
    }

    /// Writes all 16 status bits; for directed-route SMPs use [`SmpMut::set_status`](crate::SmpMut::set_status).
    #[inline]
    pub const fn set_status(&mut self, value: u16) {
        field::STATUS.set(self.0, value as u64);
    }

    /// Writes ClassSpecific.
    #[inline]
    pub const fn set_class_specific(&mut self, value: u16) {
        field::CLASS_SPECIFIC.set(self.0, value as u64);
    }

    /// Writes TransactionID.
    #[inline]
    pub const fn set_tid(&mut self, value: u64) {
        field::TID.set(self.0, value);
    }

    /// Writes AttributeID.
    #[inline]
    pub const fn set_attr_id(&mut self, value: u16) {
        field::ATTR_ID.set(self.0, value as u64);
    }

    /// Writes AttributeModifier.
    #[inline]
    pub const fn set_attr_mod(&mut self, value: u32) {
        field::ATTR_MOD.set(self.0, value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mgmt_class: u8, method: u8, attr_mod: u32) -> MadBuf {
        let mut buf = [0xa5; MAD_LEN];
        let mut mad = MadMut::new(&mut buf);
        mad.set_mgmt_class(mgmt_class);
        mad.set_method(method);
        mad.set_attr_mod(attr_mod);
        buf
    }

    #[test]
    fn setters_write_only_their_bytes() {
        let mut buf = [0xa5; MAD_LEN];
        let mut mad = MadMut::new(&mut buf);
        mad.set_base_version(1);
        mad.set_mgmt_class(CLASS_SUBN_LID);
        mad.set_class_version(2);
        mad.set_method(METHOD_SET);
        mad.set_status(0x1234);
        mad.set_class_specific(0x5678);
        mad.set_tid(0x0102_0304_0506_0708);
        mad.set_attr_id(0x0015);
        mad.set_attr_mod(0x8000_0001);
        let want = [
            1, 1, 2, 2, 0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x15, 0xa5, 0xa5, 0x80, 0, 0, 1,
            0xa5,
        ];
        assert_eq!(buf[..25], want);
        let mad = Mad::new(&buf);
        assert_eq!((mad.base_version(), mad.mgmt_class(), mad.class_version(), mad.method()), (1, 1, 2, 2));
        assert_eq!((mad.status(), mad.class_specific()), (0x1234, 0x5678));
        assert_eq!((mad.tid(), mad.attr_id(), mad.attr_mod()), (0x0102_0304_0506_0708, 0x15, 0x8000_0001));
        assert_eq!(Header::parse(&buf).tid, mad.tid());
    }

    #[test]
    fn response_rule_knows_trap_repress_and_baseboard() {
        for (mgmt_class, method, attr_mod, want) in [
            (CLASS_SUBN_LID, METHOD_GET, 1, false),
            (CLASS_SUBN_LID, METHOD_GET_RESP, 0, true),
            (CLASS_SUBN_LID, METHOD_TRAP, 0, false),
            (CLASS_SUBN_LID, METHOD_TRAP_REPRESS, 0, true),
            (class::BM, METHOD_SEND, 1, true),
            (class::BM, METHOD_SEND, 2, false),
        ] {
            let buf = with(mgmt_class, method, attr_mod);
            assert_eq!(Mad::new(&buf).is_response(), want, "{mgmt_class:#x} {method:#x} {attr_mod}");
        }
    }

    #[test]
    fn class_ranges_have_the_bounds_of_the_spec() {
        let vendor2 = (0..=255).filter(|c| is_vendor2(*c)).count();
        let vendor1 = (0..=255).filter(|c| is_vendor1(*c)).count();
        assert_eq!((vendor1, vendor2), (7, 32));
        assert!(is_rmpp_class(0x30) && is_rmpp_class(0x4f) && is_rmpp_class(CLASS_SA));
        assert!(!is_rmpp_class(0x2f) && !is_rmpp_class(0x50) && !is_rmpp_class(CLASS_PERF));
    }
}
