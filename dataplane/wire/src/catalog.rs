//! Which layout belongs to which class and attribute id.
//!
//! Static tables for generic code: printer, tests, fuzzing. Not for the packet path, which knows the attribute it handles.

use crate::layout::Layout;
use crate::{mad, pma, rmpp, sa, smp, vendor};

/// One attribute: its id, and its layout counted from the class's data area.
pub type Entry = (u16, &'static Layout);

/// Attributes of the two subnet management classes; data at byte 64.
pub const SMP: &[Entry] = &[
    (smp::attr::NOTICE, &smp::notice::LAYOUT),
    (smp::attr::NODE_DESC, &smp::node_desc::LAYOUT),
    (smp::attr::NODE_INFO, &smp::node_info::LAYOUT),
    (smp::attr::SWITCH_INFO, &smp::switch_info::LAYOUT),
    (smp::attr::GUID_INFO, &smp::guid_info::LAYOUT),
    (smp::attr::PORT_INFO, &smp::port_info::LAYOUT),
    (smp::attr::PKEY_TABLE, &smp::pkey_table::LAYOUT),
    (smp::attr::SL_TO_VL, &smp::sl2vl::LAYOUT),
    (smp::attr::VL_ARB, &smp::vlarb::LAYOUT),
    (smp::attr::LFT, &smp::lft::LAYOUT),
    (smp::attr::MFT, &smp::mft::LAYOUT),
    (smp::attr::SM_INFO, &smp::sm_info::LAYOUT),
    (smp::attr::PORT_INFO_EXT, &smp::port_info_ext::LAYOUT),
    (smp::attr::MLNX_EXT_PORT_INFO, &smp::mlnx_ext_port_info::LAYOUT),
];

/// Attributes of the performance class; data at byte 64.
pub const PMA: &[Entry] = &[
    (pma::attr::CLASS_PORT_INFO, &pma::class_port_info::LAYOUT),
    (pma::attr::PORT_SAMPLES_CONTROL, &pma::samples::control::LAYOUT),
    (pma::attr::PORT_SAMPLES_RESULT, &pma::samples::result::LAYOUT),
    (pma::attr::PORT_COUNTERS, &pma::port_counters::LAYOUT),
    (pma::attr::PORT_RCV_ERROR_DETAILS, &pma::details::rcv_errors::LAYOUT),
    (pma::attr::PORT_XMIT_DISCARD_DETAILS, &pma::details::xmit_discards::LAYOUT),
    (pma::attr::PORT_OP_RCV_COUNTERS, &pma::details::op_rcv::LAYOUT),
    (pma::attr::PORT_FLOW_CTL_COUNTERS, &pma::details::flow_ctl::LAYOUT),
    (pma::attr::PORT_VL_OP_PACKETS, &pma::details::vl_op_packets::LAYOUT),
    (pma::attr::PORT_VL_OP_DATA, &pma::details::vl_op_data::LAYOUT),
    (pma::attr::PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS, &pma::details::vl_flow_ctl_errors::LAYOUT),
    (pma::attr::PORT_VL_XMIT_WAIT, &pma::details::vl_xmit_wait::LAYOUT),
    (pma::attr::PORT_COUNTERS_EXT, &pma::port_counters_ext::LAYOUT),
    (pma::attr::PORT_SAMPLES_RESULT_EXT, &pma::samples::result_ext::LAYOUT),
    (pma::attr::PORT_EXT_SPEEDS_COUNTERS, &pma::ext_speeds::LAYOUT),
    (pma::attr::SW_PORT_VL_CONGESTION, &pma::details::vl_congestion::LAYOUT),
    (pma::attr::PORT_RCV_CON_CTRL, &pma::details::rcv_con_ctrl::LAYOUT),
    (pma::attr::PORT_SL_RCV_FECN, &pma::details::sl_rcv_fecn::LAYOUT),
    (pma::attr::PORT_SL_RCV_BECN, &pma::details::sl_rcv_becn::LAYOUT),
    (pma::attr::PORT_XMIT_CON_CTRL, &pma::details::xmit_con_ctrl::LAYOUT),
    (pma::attr::PORT_VL_XMIT_TIME_CONG, &pma::details::vl_time_congested::LAYOUT),
    (pma::attr::PORT_XMIT_DATA_SL, &pma::details::xmit_data_sl::LAYOUT),
    (pma::attr::PORT_RCV_DATA_SL, &pma::details::rcv_data_sl::LAYOUT),
];

/// Attributes of subnet administration that are taken apart; data at byte 56.
pub const SA: &[Entry] =
    &[(sa::attr::CLASS_PORT_INFO, &pma::class_port_info::LAYOUT), (sa::attr::NOTICE, &smp::notice::LAYOUT)];

/// Headers, counted from the start of the MAD.
pub const HEADERS: &[&Layout] = &[&mad::LAYOUT, &rmpp::LAYOUT, &sa::LAYOUT, &vendor::LAYOUT];

/// Details of the notices, counted from the start of the notice.
pub const NOTICE_DETAILS: &[&Layout] = &[
    &smp::notice::gid_event::LAYOUT,
    &smp::notice::link_state::LAYOUT,
    &smp::notice::port_error::LAYOUT,
    &smp::notice::local_change::LAYOUT,
    &smp::notice::system_image::LAYOUT,
    &smp::notice::bad_m_key::LAYOUT,
    &smp::notice::bad_key::LAYOUT,
    &smp::notice::bad_p_key_switch::LAYOUT,
];

/// First byte of the attribute of `mgmt_class`; 24, right after the header, for classes this crate does not know.
pub const fn data_offset(mgmt_class: u8) -> usize {
    match mgmt_class {
        mad::class::SUBN_LID | mad::class::SUBN_DIRECTED | mad::class::PERF => 64,
        _ => match rmpp::class_header_len(mgmt_class) {
            Some(len) => len,
            None => mad::HEADER_LEN,
        },
    }
}

/// The layout of attribute `attr_id` of `mgmt_class`, if it is taken apart here.
pub fn attribute(mgmt_class: u8, attr_id: u16) -> Option<&'static Layout> {
    let entries = match mgmt_class {
        mad::class::SUBN_LID | mad::class::SUBN_DIRECTED => SMP,
        mad::class::PERF => PMA,
        mad::class::SA => SA,
        _ => return None,
    };
    entries.iter().find(|(id, _)| *id == attr_id).map(|(_, layout)| *layout)
}

/// All layouts once, with the number of bytes their slice has in a MAD.
pub fn all() -> impl Iterator<Item = &'static Layout> {
    SMP.iter()
        .chain(PMA)
        .map(|(_, layout)| *layout)
        .chain(HEADERS.iter().copied())
        .chain(NOTICE_DETAILS.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_fit_their_data_area() {
        for (class, entries) in [(mad::CLASS_SUBN_LID, SMP), (mad::CLASS_PERF, PMA), (mad::CLASS_SA, SA)] {
            let room = if class == mad::CLASS_SUBN_LID { 64 } else { mad::MAD_LEN - data_offset(class) };
            for (id, layout) in entries {
                assert!(layout.end <= room, "{} of {class:#x}", layout.name);
                assert_eq!(attribute(class, *id).map(|found| found.name), Some(layout.name));
            }
        }
    }

    #[test]
    fn fields_of_a_layout_do_not_overlap() {
        for layout in all() {
            let mut owner = [None; 256 * 8];
            for (name, field) in layout.fields {
                for index in 0..field.count() {
                    let first = field.byte() * 8 + field.bit_in_byte() + index * field.stride();
                    for bit in &mut owner[first..][..field.width() as usize] {
                        assert_eq!(bit.replace(*name), None, "{} {name}", layout.name);
                    }
                }
            }
        }
    }
}
