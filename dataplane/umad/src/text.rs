//! Names of classes, methods, attributes and status values.
//!
//! Tables only; every function returns a string that lives for ever, `<unknown>` for what has no name, and never null.
//! The numbers come from spec/mad-format.md through `madplane_wire`, the words are our own.

use std::ffi::{CStr, c_char};

use madplane_wire::mad::{class, is_smp_class, is_vendor1, is_vendor2, method, status};
use madplane_wire::smp::attr;

const UNKNOWN: &CStr = c"<unknown>";

/// `umad_class_str`.
pub(crate) extern "C" fn class_str(mgmt_class: u8) -> *const c_char {
    class_name(mgmt_class).as_ptr()
}

/// `umad_method_str`.
pub(crate) extern "C" fn method_str(mgmt_class: u8, method: u8) -> *const c_char {
    method_name(mgmt_class, method).as_ptr()
}

/// `umad_attribute_str`; `attr_id` in network order.
pub(crate) extern "C" fn attribute_str(mgmt_class: u8, attr_id: u16) -> *const c_char {
    attribute_name(mgmt_class, u16::from_be(attr_id)).as_ptr()
}

/// `umad_common_mad_status_str`; `status` in network order.
pub(crate) extern "C" fn common_mad_status_str(status: u16) -> *const c_char {
    common_status_name(u16::from_be(status)).as_ptr()
}

/// `umad_sa_mad_status_str`; `status` in network order.
pub(crate) extern "C" fn sa_mad_status_str(status: u16) -> *const c_char {
    sa_status_name(u16::from_be(status)).as_ptr()
}

fn class_name(mgmt_class: u8) -> &'static CStr {
    match mgmt_class {
        class::SUBN_LID => c"Subn",
        class::SUBN_DIRECTED => c"SubnDirected",
        class::SA => c"SubnAdm",
        class::PERF => c"Perf",
        class::BM => c"BM",
        class::DEV_MGMT => c"DevMgt",
        class::CM => c"ComMgt",
        class::SNMP => c"SNMP",
        class::DEV_ADM => c"DevAdm",
        class::BOOT => c"BootMgt",
        class::BIS => c"BIS",
        class::CONGESTION => c"CongestionManagement",
        other if is_vendor1(other) => c"Vendor (range 1)",
        other if is_vendor2(other) => c"Vendor (range 2)",
        _ => UNKNOWN,
    }
}

fn method_name(mgmt_class: u8, method: u8) -> &'static CStr {
    let common = match method {
        method::GET => c"Get",
        method::SET => c"Set",
        method::SEND => c"Send",
        method::TRAP => c"Trap",
        method::REPORT => c"Report",
        method::TRAP_REPRESS => c"TrapRepress",
        method::GET_RESP => c"GetResp",
        method::REPORT_RESP => c"ReportResp",
        _ => UNKNOWN,
    };
    if mgmt_class != class::SA {
        return common;
    }
    match method {
        method::GET_TABLE => c"GetTable",
        method::GET_TABLE_RESP => c"GetTableResp",
        method::GET_TRACE_TABLE => c"GetTraceTable",
        method::GET_TRACE_TABLE_RESP => c"GetTraceTableResp",
        method::GET_MULTI => c"GetMulti",
        method::GET_MULTI_RESP => c"GetMultiResp",
        method::DELETE => c"Delete",
        method::DELETE_RESP => c"DeleteResp",
        _ => common,
    }
}

fn attribute_name(mgmt_class: u8, attr_id: u16) -> &'static CStr {
    let common = match attr_id {
        0x0001 => c"ClassPortInfo",
        0x0002 => c"Notice",
        0x0003 => c"InformInfo",
        _ => UNKNOWN,
    };
    if common != UNKNOWN {
        return common;
    }
    if is_smp_class(mgmt_class) {
        return smp_attribute_name(attr_id);
    }
    match mgmt_class {
        class::SA => sa_attribute_name(attr_id),
        class::PERF => perf_attribute_name(attr_id),
        _ => UNKNOWN,
    }
}

fn smp_attribute_name(attr_id: u16) -> &'static CStr {
    match attr_id {
        attr::NODE_DESC => c"NodeDescription",
        attr::NODE_INFO => c"NodeInfo",
        attr::SWITCH_INFO => c"SwitchInfo",
        attr::GUID_INFO => c"GUIDInfo",
        attr::PORT_INFO => c"PortInfo",
        attr::PKEY_TABLE => c"P_KeyTable",
        attr::SL_TO_VL => c"SLtoVLMappingTable",
        attr::VL_ARB => c"VLArbitrationTable",
        attr::LFT => c"LinearForwardingTable",
        attr::RFT => c"RandomForwardingTable",
        attr::MFT => c"MulticastForwardingTable",
        attr::LINK_SPEED_WIDTH_PAIRS => c"LinkSpeedWidthPairsTable",
        attr::VENDOR_MADS => c"VendorSpecificMadsTable",
        attr::HIERARCHY_INFO => c"HierarchyInfo",
        attr::SM_INFO => c"SMInfo",
        attr::VENDOR_DIAG => c"VendorDiag",
        attr::LED_INFO => c"LedInfo",
        attr::CABLE_INFO => c"CableInfo",
        attr::PORT_INFO_EXT => c"PortInfoExtended",
        attr::MLNX_EXT_PORT_INFO => c"ExtendedPortInfo (vendor)",
        0xff00.. => c"Vendor attribute",
        _ => UNKNOWN,
    }
}

fn sa_attribute_name(attr_id: u16) -> &'static CStr {
    match attr_id {
        0x0011 => c"NodeRecord",
        0x0012 => c"PortInfoRecord",
        0x0013 => c"SLtoVLMappingTableRecord",
        0x0014 => c"SwitchInfoRecord",
        0x0015 => c"LinearForwardingTableRecord",
        0x0016 => c"RandomForwardingTableRecord",
        0x0017 => c"MulticastForwardingTableRecord",
        0x0018 => c"SMInfoRecord",
        0x0019 => c"LinkSpeedWidthPairsTableRecord",
        0x0020 => c"LinkRecord",
        0x0030 => c"GuidInfoRecord",
        0x0031 => c"ServiceRecord",
        0x0033 => c"P_KeyTableRecord",
        0x0035 => c"PathRecord",
        0x0036 => c"VLArbitrationTableRecord",
        0x0038 => c"MCMemberRecord",
        0x0039 => c"TraceRecord",
        0x003a => c"MultiPathRecord",
        0x003b => c"ServiceAssociationRecord",
        0x003c => c"HierarchyInfoRecord",
        0x003d => c"CableInfoRecord",
        0x003e => c"PortInfoExtendedRecord",
        0x00f3 => c"InformInfoRecord",
        _ => UNKNOWN,
    }
}

fn perf_attribute_name(attr_id: u16) -> &'static CStr {
    match attr_id {
        0x0010 => c"PortSamplesControl",
        0x0011 => c"PortSamplesResult",
        0x0012 => c"PortCounters",
        0x0015 => c"PortRcvErrorDetails",
        0x0016 => c"PortXmitDiscardDetails",
        0x001d => c"PortCountersExtended",
        _ => UNKNOWN,
    }
}

fn common_status_name(value: u16) -> &'static CStr {
    if value & status::BUSY != 0 {
        return c"Busy";
    }
    if value & status::REDIRECT != 0 {
        return c"Redirection required";
    }
    match value & status::CODE_MASK {
        0 => c"Success",
        status::BAD_VERSION => c"Bad base or class version",
        status::UNSUPPORTED_METHOD => c"Method not supported",
        status::UNSUPPORTED_METHOD_ATTR => c"Method and attribute not supported together",
        status::INVALID_FIELD => c"Invalid value in attribute or modifier",
        _ => UNKNOWN,
    }
}

fn sa_status_name(value: u16) -> &'static CStr {
    match value & 0xff00 {
        0 => c"Success",
        status::SA_NO_RESOURCES => c"No resources",
        status::SA_REQ_INVALID => c"Invalid request",
        status::SA_NO_RECORDS => c"No records",
        status::SA_TOO_MANY_RECORDS => c"Too many records",
        status::SA_INVALID_GID => c"Invalid GID",
        status::SA_INSUFFICIENT_COMPONENTS => c"Insufficient components",
        status::SA_DENIED => c"Request denied",
        status::SA_PRIORITY_SUGGESTED => c"Priority suggested",
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_name_is_unknown() {
        assert_eq!(class_name(0x50), UNKNOWN);
        assert_eq!(method_name(class::SUBN_LID, method::GET_TABLE), UNKNOWN);
        assert_eq!(attribute_name(class::PERF, 0x0099), UNKNOWN);
        assert_eq!(common_status_name(0x10), UNKNOWN);
        assert_eq!(sa_status_name(0x0900), UNKNOWN);
    }

    #[test]
    fn names_depend_on_the_class() {
        assert_eq!(attribute_name(class::SUBN_DIRECTED, 0x0011), c"NodeInfo");
        assert_eq!(attribute_name(class::SA, 0x0011), c"NodeRecord");
        assert_eq!(attribute_name(class::PERF, 0x0012), c"PortCounters");
        assert_eq!(attribute_name(class::CM, 0x0002), c"Notice");
        assert_eq!(method_name(class::SA, method::DELETE_RESP), c"DeleteResp");
        assert_eq!(method_name(class::SA, method::GET), c"Get");
        assert_eq!(class_name(0x0f), c"Vendor (range 1)");
        assert_eq!(class_name(0x4f), c"Vendor (range 2)");
    }

    #[test]
    fn exported_forms_take_network_order() {
        // SAFETY: the functions return string literals.
        let text = |pointer| unsafe { CStr::from_ptr(pointer) };
        assert_eq!(text(attribute_str(class::SUBN_LID, 0x0015_u16.to_be())), c"PortInfo");
        assert_eq!(text(sa_mad_status_str(0x0300_u16.to_be())), c"No records");
        assert_eq!(
            text(common_mad_status_str(0x001c_u16.to_be())),
            c"Invalid value in attribute or modifier"
        );
        assert_eq!(text(class_str(0x81)), c"SubnDirected");
        assert_eq!(text(method_str(0x81, 0x81)), c"GetResp");
    }
}
