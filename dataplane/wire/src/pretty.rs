//! Printing of any MAD: [`OneLine`] for logs and traces, [`Tree`] for people.
//!
//! Borrowed views that implement `Display`; they run wherever they are formatted, never on the packet path. Invariant: any 256
//! bytes print, and what cannot be named is printed as a number. The texts are for reading, not for parsing.

use core::fmt::{self, Display, Formatter};

use crate::layout::Layout;
use crate::mad::{self, Mad, MadBuf, class, method, status};
use crate::rmpp::{self, Rmpp};
use crate::smp::{self, Smp, notice};
use crate::{Field, catalog, pma, sa, vendor};

/// Prints a MAD in one line: class, method, attribute, modifier, transaction, route and status.
#[derive(Clone, Copy)]
pub struct OneLine<'a>(pub &'a MadBuf);

/// Prints a MAD as an indented tree: headers, routing, attribute field by field.
#[derive(Clone, Copy)]
pub struct Tree<'a>(pub &'a MadBuf);

/// Name of a management class, if it has one.
pub const fn class_name(mgmt_class: u8) -> Option<&'static str> {
    Some(match mgmt_class {
        class::SUBN_LID => "SubnLid",
        class::SUBN_DIRECTED => "SubnDirected",
        class::SA => "SubnAdm",
        class::PERF => "Perf",
        class::BM => "BM",
        class::DEV_MGMT => "DevMgt",
        class::CM => "ComMgt",
        class::SNMP => "SNMP",
        class::DEV_ADM => "DevAdm",
        class::BOOT => "Boot",
        class::BIS => "BIS",
        class::CONGESTION => "CongCtl",
        _ if mad::is_vendor1(mgmt_class) => "Vendor1",
        _ if mad::is_vendor2(mgmt_class) => "Vendor2",
        _ => return None,
    })
}

/// Name of a method, if it has one.
pub const fn method_name(method: u8) -> Option<&'static str> {
    Some(match method {
        method::GET => "Get",
        method::SET => "Set",
        method::SEND => "Send",
        method::TRAP => "Trap",
        method::REPORT => "Report",
        method::TRAP_REPRESS => "TrapRepress",
        method::GET_TABLE => "GetTable",
        method::GET_TRACE_TABLE => "GetTraceTable",
        method::GET_MULTI => "GetMulti",
        method::DELETE => "Delete",
        method::GET_RESP => "GetResp",
        method::REPORT_RESP => "ReportResp",
        method::GET_TABLE_RESP => "GetTableResp",
        method::GET_TRACE_TABLE_RESP => "GetTraceTableResp",
        method::GET_MULTI_RESP => "GetMultiResp",
        method::DELETE_RESP => "DeleteResp",
        _ => return None,
    })
}

/// Name of an attribute, if it has one here.
pub fn attribute_name(mgmt_class: u8, attr_id: u16) -> Option<&'static str> {
    if let Some(layout) = catalog::attribute(mgmt_class, attr_id) {
        return Some(layout.name);
    }
    Some(match (mgmt_class, attr_id) {
        (class::SUBN_LID | class::SUBN_DIRECTED, smp::attr::RFT) => "RandomForwardingTable",
        (class::SUBN_LID | class::SUBN_DIRECTED, smp::attr::VENDOR_DIAG) => "VendorDiag",
        (class::SUBN_LID | class::SUBN_DIRECTED, smp::attr::LED_INFO) => "LedInfo",
        (class::SUBN_LID | class::SUBN_DIRECTED, smp::attr::CABLE_INFO) => "CableInfo",
        (class::SA, sa::attr::INFORM_INFO) => "InformInfo",
        (class::SA, sa::attr::NODE_RECORD) => "NodeRecord",
        (class::SA, sa::attr::PORT_INFO_RECORD) => "PortInfoRecord",
        (class::SA, sa::attr::SWITCH_INFO_RECORD) => "SwitchInfoRecord",
        (class::SA, sa::attr::LFT_RECORD) => "LinearForwardingTableRecord",
        (class::SA, sa::attr::MFT_RECORD) => "MulticastForwardingTableRecord",
        (class::SA, sa::attr::SM_INFO_RECORD) => "SMInfoRecord",
        (class::SA, sa::attr::LINK_RECORD) => "LinkRecord",
        (class::SA, sa::attr::GUID_INFO_RECORD) => "GuidInfoRecord",
        (class::SA, sa::attr::SERVICE_RECORD) => "ServiceRecord",
        (class::SA, sa::attr::PATH_RECORD) => "PathRecord",
        (class::SA, sa::attr::MC_MEMBER_RECORD) => "MCMemberRecord",
        (class::SA, sa::attr::INFORM_INFO_RECORD) => "InformInfoRecord",
        _ => return None,
    })
}

/// A number under its name, or as hexadecimal with a question mark.
struct Named(Option<&'static str>, u32);

impl Display for Named {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => f.write_str(name),
            None => write!(f, "?{:#x}", self.1),
        }
    }
}

/// The 15 or 16 status bits in words.
struct Status(u16);

impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == status::OK {
            return f.write_str("ok");
        }
        write!(f, "{:#06x}", self.0)?;
        if self.0 & status::BUSY != 0 {
            f.write_str(" busy")?;
        }
        if self.0 & status::REDIRECT != 0 {
            f.write_str(" redirect")?;
        }
        f.write_str(match self.0 & status::CODE_MASK {
            0 => "",
            status::BAD_VERSION => " bad version",
            status::UNSUPPORTED_METHOD => " unsupported method",
            status::UNSUPPORTED_METHOD_ATTR => " unsupported attribute",
            status::INVALID_FIELD => " invalid field",
            _ => " reserved code",
        })
    }
}

fn status_of(buf: &MadBuf) -> Status {
    let mad = Mad::new(buf);
    Status(if mad.is_directed_route() { Smp::new(buf).status() } else { mad.status() })
}

/// Path entries `0..=hop_count`, as far as the array goes.
fn write_path(f: &mut Formatter<'_>, path: &[u8; smp::PATH_LEN], hop_count: u8) -> fmt::Result {
    for (index, port) in path.iter().take(usize::from(hop_count) + 1).enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        write!(f, "{port}")?;
    }
    Ok(())
}

impl Display for OneLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mad = Mad::new(self.0);
        write!(
            f,
            "{} {} {} mod {:#x} tid {:#x}",
            Named(class_name(mad.mgmt_class()), mad.mgmt_class().into()),
            Named(method_name(mad.method()), mad.method().into()),
            Named(attribute_name(mad.mgmt_class(), mad.attr_id()), mad.attr_id().into()),
            mad.attr_mod(),
            mad.tid(),
        )?;
        if mad.is_directed_route() {
            let smp = Smp::new(self.0);
            let way = if smp.direction() { "back" } else { "out" };
            write!(f, " {way} hop {}/{} path ", smp.hop_pointer(), smp.hop_count())?;
            write_path(f, smp.initial_path(), smp.hop_count())?;
        }
        if mad.is_rmpp_class() && Rmpp::new(self.0).is_active() {
            let rmpp = Rmpp::new(self.0);
            write!(
                f,
                " rmpp {} segment {}",
                Named(rmpp_name(rmpp.kind()), rmpp.kind().into()),
                rmpp.segment()
            )?;
        }
        write!(f, " status {}", status_of(self.0))
    }
}

impl fmt::Debug for OneLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

const fn rmpp_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        rmpp::kind::NONE => "none",
        rmpp::kind::DATA => "data",
        rmpp::kind::ACK => "ack",
        rmpp::kind::STOP => "stop",
        rmpp::kind::ABORT => "abort",
        _ => return None,
    })
}

impl Display for Tree<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mad = Mad::new(self.0);
        let class = mad.mgmt_class();
        writeln!(f, "{}", OneLine(self.0))?;
        write_layout(f, &mad::LAYOUT, self.0)?;
        if mad.is_smp() {
            let smp = Smp::new(self.0);
            writeln!(f, "  Route")?;
            writeln!(f, "    m_key = {:#018x}", smp.m_key())?;
            if mad.is_directed_route() {
                writeln!(f, "    returning = {}", smp.direction())?;
                writeln!(f, "    status = {}", Status(smp.status()))?;
                writeln!(f, "    hop = {} of {}", smp.hop_pointer(), smp.hop_count())?;
                writeln!(f, "    dr_slid = {:#06x}", smp.dr_slid())?;
                writeln!(f, "    dr_dlid = {:#06x}", smp.dr_dlid())?;
                f.write_str("    initial_path = ")?;
                write_path(f, smp.initial_path(), smp.hop_count())?;
                f.write_str("\n    return_path = ")?;
                write_path(f, smp.return_path(), smp.hop_count())?;
                f.write_str("\n")?;
            }
        }
        if mad.is_rmpp_class() {
            write_layout(f, &rmpp::LAYOUT, self.0)?;
        }
        if class == class::SA {
            write_layout(f, &sa::LAYOUT, self.0)?;
        }
        if mad.is_vendor2() {
            write_layout(f, &vendor::LAYOUT, self.0)?;
        }
        let end = if mad.is_smp() { smp::SMP_DATA.end } else { mad::MAD_LEN };
        let data = &self.0[catalog::data_offset(class)..end];
        let Some(layout) = catalog::attribute(class, mad.attr_id()) else {
            return write_dump(f, data);
        };
        write_layout(f, layout, data)?;
        if layout.name == notice::LAYOUT.name && notice::field::IS_GENERIC.get_bool(data) {
            match notice::details_layout(notice::field::TRAP_NUMBER.get_u16(data)) {
                Some(details) => write_layout(f, details, data)?,
                None => write_dump(f, &data[notice::DETAILS..notice::NOTICE_LEN])?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Tree<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

fn write_layout(f: &mut Formatter<'_>, layout: &Layout, data: &[u8]) -> fmt::Result {
    writeln!(f, "  {}", layout.name)?;
    for (name, field) in layout.fields {
        write!(f, "    {name} = ")?;
        write_value(f, name, *field, data)?;
        f.write_str("\n")?;
    }
    Ok(())
}

/// Whether a value of this name is easier to read in hexadecimal.
fn reads_better_in_hex(name: &str) -> bool {
    let words = [
        "guid", "guids", "gid", "key", "pkey", "pkeys", "qkey", "mask", "mask2", "masks", "tid", "id", "oui",
        "mod",
    ];
    let more = [
        "status", "select", "select2", "selects", "prefix", "qp", "qp1", "qp2", "revision", "changes",
        "class", "method", "slid",
    ];
    name.split('_').any(|word| words.contains(&word) || more.contains(&word)) && !name.ends_with("_cap")
}

fn write_value(f: &mut Formatter<'_>, name: &str, field: Field, data: &[u8]) -> fmt::Result {
    let hex = reads_better_in_hex(name);
    if field.count() == 1 {
        return write_number(f, hex, field.width(), field.get(data));
    }
    if name == "text" {
        let bytes = &data[field.byte()..field.end()];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        return write!(f, "\"{}\"", bytes[..end].escape_ascii());
    }
    if field.count() == 16 && field.width() == 8 && name.contains("gid") {
        for pair in 0..8 {
            let colon = if pair > 0 { ":" } else { "" };
            write!(f, "{colon}{:02x}{:02x}", field.get_at(data, 2 * pair), field.get_at(data, 2 * pair + 1))?;
        }
        return Ok(());
    }
    for index in 0..field.count() {
        if index > 0 {
            f.write_str(" ")?;
        }
        write_number(f, hex, field.width(), field.get_at(data, index))?;
    }
    Ok(())
}

fn write_number(f: &mut Formatter<'_>, hex: bool, width: u32, value: u64) -> fmt::Result {
    if hex {
        write!(f, "{value:#0digits$x}", digits = 2 + (width as usize).div_ceil(4))
    } else {
        write!(f, "{value}")
    }
}

/// Hexadecimal lines of 16 bytes; a run of zero lines is left out.
fn write_dump(f: &mut Formatter<'_>, data: &[u8]) -> fmt::Result {
    writeln!(f, "  Data")?;
    for (index, line) in data.chunks(16).enumerate() {
        if line.iter().all(|byte| *byte == 0) {
            continue;
        }
        write!(f, "    {:3}:", index * 16)?;
        for byte in line {
            write!(f, " {byte:02x}")?;
        }
        f.write_str("\n")?;
    }
    Ok(())
}

const _: () = assert!(pma::PMA_DATA.start == 64 && sa::SA_DATA.start == sa::SA_HEADER_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MadMut, SmpMut};

    #[test]
    fn one_line_names_what_it_knows_and_numbers_the_rest() {
        let mut buf = [0; mad::MAD_LEN];
        SmpMut::new(&mut buf).init_directed(method::GET, smp::attr::PORT_INFO, 3, 0x1b, &[1, 2]);
        let want = "SubnDirected Get PortInfo mod 0x3 tid 0x1b out hop 0/2 path 0,1,2 status ok";
        assert_eq!(OneLine(&buf).to_string(), want);
        MadMut::new(&mut buf).init(0xfe, 1, 0x7e, 0xabcd, 0, 1);
        MadMut::new(&mut buf).set_status(0x001d);
        assert_eq!(
            OneLine(&buf).to_string(),
            "?0xfe ?0x7e ?0xabcd mod 0x0 tid 0x1 status 0x001d busy invalid field"
        );
    }

    #[test]
    fn the_direction_bit_is_not_printed_as_status() {
        let mut buf = [0; mad::MAD_LEN];
        let mut smp = SmpMut::new(&mut buf);
        smp.init_directed(method::GET_RESP, smp::attr::NODE_INFO, 0, 1, &[]);
        smp.set_direction(true);
        assert!(OneLine(&buf).to_string().ends_with("back hop 0/0 path 0 status ok"));
    }

    #[test]
    fn every_field_of_every_attribute_appears_in_its_tree() {
        for (class, entries) in [
            (mad::CLASS_SUBN_LID, catalog::SMP),
            (mad::CLASS_PERF, catalog::PMA),
            (mad::CLASS_SA, catalog::SA),
        ] {
            for (id, layout) in entries {
                let mut buf = [0xa5; mad::MAD_LEN];
                MadMut::new(&mut buf).set_mgmt_class(class);
                MadMut::new(&mut buf).set_attr_id(*id);
                let text = Tree(&buf).to_string();
                for (name, _) in layout.fields {
                    assert!(text.contains(&format!("    {name} = ")), "{} {name}", layout.name);
                }
            }
        }
    }

    #[test]
    fn a_trap_shows_its_details_by_name() {
        let mut buf = [0; mad::MAD_LEN];
        let mut smp = SmpMut::new(&mut buf);
        smp.init_lid_routed(method::TRAP, smp::attr::NOTICE, 0, 9);
        notice::Repr { is_generic: true, trap_number: 128, ..Default::default() }.emit(smp.data_mut());
        notice::link_state::field::LID.set(smp.data_mut(), 17);
        let text = Tree(&buf).to_string();
        assert!(text.contains("  LinkStateChange\n    lid = 17\n"), "{text}");
    }
}
