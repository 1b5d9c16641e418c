//! Performance management agent: counters of a port and the attributes that show and clear them.
//!
//! Part of the shard, same owner and thread. Events only grow; each attribute has its own zero points, so that clearing
//! one leaves the others alone, and a counter that reached its width stays there until it is cleared. Packet counters
//! live in the hot port entry; data counters are `MAD_DATA_WORDS` times packets. Source: mad-format.md section 7.

use crate::agent::SmaOutcome;
use crate::packet::Packet;
use crate::shard::{Shard, make_answer};
use madplane_wire::Field;
use madplane_wire::mad::{class, field as mad, method, status};
use madplane_wire::pma::class_port_info::field as cpi;
use madplane_wire::pma::details::{rcv_errors, xmit_discards};
use madplane_wire::pma::{self, ALL_PORTS, MAD_DATA_WORDS, attr, cap_mask, port_counters, port_counters_ext};
use madplane_wire::smp::switch_info::field as si;

/// What is counted; the first fourteen in the order of PortCountersExtended.CounterSelect2.
pub(crate) mod event {
    pub(crate) const SYMBOL: usize = 0;
    pub(crate) const LINK_RECOVERY: usize = 1;
    pub(crate) const LINK_DOWNED: usize = 2;
    pub(crate) const RCV_ERRORS: usize = 3;
    pub(crate) const RCV_REMOTE_PHYSICAL: usize = 4;
    pub(crate) const SWITCH_RELAY: usize = 5;
    pub(crate) const XMIT_DISCARDS: usize = 6;
    pub(crate) const XMIT_CONSTRAINT: usize = 7;
    pub(crate) const RCV_CONSTRAINT: usize = 8;
    pub(crate) const LOCAL_INTEGRITY: usize = 9;
    pub(crate) const OVERRUN: usize = 10;
    pub(crate) const VL15_DROPPED: usize = 11;
    pub(crate) const XMIT_WAIT: usize = 12;
    pub(crate) const QP1_DROPPED: usize = 13;
    pub(crate) const RCV_DETAILS: usize = 14;
    pub(crate) const DLID_MAPPING: usize = 17;
    pub(crate) const LOOPING: usize = 19;
    pub(crate) const DISCARD_DETAILS: usize = 20;
    pub(crate) const DISCARD_INACTIVE: usize = 20;
    /// Events that PortCounters shows.
    pub(super) const COUNTERS: usize = 14;
    pub(super) const COUNT: usize = 24;
    /// Counted nowhere: a drop that has a sum but no detail.
    pub(crate) const NO_DETAIL: usize = usize::MAX;
}

/// Where the value of a counter comes from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Event(usize),
    XmitData,
    RcvData,
    XmitPkts,
    RcvPkts,
    /// Never counts.
    Nothing,
}

/// Sources of [`port_counters::COUNTERS`], in its order.
const PORT_COUNTERS: [Source; port_counters::COUNTERS.len()] = [
    Source::Event(event::SYMBOL),
    Source::Event(event::LINK_RECOVERY),
    Source::Event(event::LINK_DOWNED),
    Source::Event(event::RCV_ERRORS),
    Source::Event(event::RCV_REMOTE_PHYSICAL),
    Source::Event(event::SWITCH_RELAY),
    Source::Event(event::XMIT_DISCARDS),
    Source::Event(event::XMIT_CONSTRAINT),
    Source::Event(event::RCV_CONSTRAINT),
    Source::Event(event::LOCAL_INTEGRITY),
    Source::Event(event::OVERRUN),
    Source::Event(event::VL15_DROPPED),
    Source::XmitData,
    Source::RcvData,
    Source::XmitPkts,
    Source::RcvPkts,
    Source::Event(event::XMIT_WAIT),
    Source::Event(event::QP1_DROPPED),
];

/// Sources of [`port_counters_ext::COUNTERS`], in its order. Every MAD is unicast.
const PORT_COUNTERS_EXT: [Source; port_counters_ext::COUNTERS.len()] = [
    Source::XmitData,
    Source::RcvData,
    Source::XmitPkts,
    Source::RcvPkts,
    Source::XmitPkts,
    Source::RcvPkts,
    Source::Nothing,
    Source::Nothing,
    Source::Event(event::SYMBOL),
    Source::Event(event::LINK_RECOVERY),
    Source::Event(event::LINK_DOWNED),
    Source::Event(event::RCV_ERRORS),
    Source::Event(event::RCV_REMOTE_PHYSICAL),
    Source::Event(event::SWITCH_RELAY),
    Source::Event(event::XMIT_DISCARDS),
    Source::Event(event::XMIT_CONSTRAINT),
    Source::Event(event::RCV_CONSTRAINT),
    Source::Event(event::LOCAL_INTEGRITY),
    Source::Event(event::OVERRUN),
    Source::Event(event::VL15_DROPPED),
    Source::Event(event::XMIT_WAIT),
    Source::Event(event::QP1_DROPPED),
];

/// Error counters of a port and the zero points of every attribute; exists once something was counted or cleared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    events: [u32; event::COUNT],
    /// Zero points of the events in PortCounters and in the two detail attributes.
    zero: [u32; event::COUNT],
    /// Zero points of the events in PortCountersExtended.
    zero_ext: [u32; event::COUNTERS],
    /// Zero points of data sent and received, packets sent and received in PortCounters.
    zero_traffic: [u64; 4],
    /// Zero points of the first six counters of PortCountersExtended.
    zero_traffic_ext: [u64; 6],
}

impl Counters {
    /// Counts an event.
    pub(crate) fn count(&mut self, which: usize) {
        if let Some(counter) = self.events.get_mut(which) {
            *counter = counter.saturating_add(1);
        }
    }

    /// Events since power on.
    pub(crate) fn total(&self, which: usize) -> u32 {
        self.events.get(which).copied().unwrap_or(0)
    }
}

type PmaData = [u8; pma::DATA_LEN];

impl Shard {
    /// Handles a GMP request that is for the node of `at`.
    pub(crate) fn gma(&mut self, at: u32, pkt: &mut Packet) -> SmaOutcome {
        let method = mad::METHOD.get_u8(&pkt.mad);
        if mad::MGMT_CLASS.get_u8(&pkt.mad) != class::PERF || !matches!(method, method::GET | method::SET) {
            return SmaOutcome::ToAgent;
        }
        if mad::CLASS_VERSION.get_u8(&pkt.mad) != 1 {
            make_answer(pkt, status::BAD_VERSION);
            return SmaOutcome::Reply;
        }
        let is_set = method == method::SET;
        let attribute = mad::ATTR_ID.get_u16(&pkt.mad);
        let data = pma::data_mut(&mut pkt.mad);
        let status = match (attribute, is_set) {
            (attr::CLASS_PORT_INFO, false) => self.pma_class_port_info(at, data),
            (attr::PORT_COUNTERS, _) => self.pma_attribute(at, is_set, data, show_port_counters),
            (attr::PORT_RCV_ERROR_DETAILS, _) => self.pma_attribute(at, is_set, data, show_rcv_details),
            (attr::PORT_XMIT_DISCARD_DETAILS, _) => {
                self.pma_attribute(at, is_set, data, show_discard_details)
            }
            (attr::PORT_COUNTERS_EXT, _) => self.pma_attribute(at, is_set, data, show_port_counters_ext),
            _ => status::UNSUPPORTED_METHOD_ATTR,
        };
        make_answer(pkt, status);
        SmaOutcome::Reply
    }

    fn pma_class_port_info(&self, at: u32, data: &mut PmaData) -> u16 {
        /// 4.096 µs times 2^18: the answer comes within about a second.
        const RESPONSE_TIME: u64 = 18;
        let is_switch = self.ports.get(at as usize).is_some_and(|p| p.is_switch);
        let all_ports = if is_switch { cap_mask::ALL_PORT_SELECT } else { 0 };
        data.fill(0);
        cpi::BASE_VERSION.set(data, 1);
        cpi::CLASS_VERSION.set(data, 1);
        cpi::CAP_MASK.set(data, u64::from(cap_mask::EXT_WIDTH | cap_mask::XMIT_WAIT | all_ports));
        cpi::CAP_MASK2.set(data, u64::from(cap_mask::MASK2_ADDITIONAL));
        cpi::RESP_TIME_VALUE.set(data, RESPONSE_TIME);
        0
    }

    /// Clears if it is a Set, then adds up the ports that PortSelect names.
    fn pma_attribute(
        &mut self,
        at: u32,
        is_set: bool,
        data: &mut PmaData,
        view: fn(&PmaData, bool, &mut PortView<'_>, &mut PmaData),
    ) -> u16 {
        let Some(hot) = self.ports.get(at as usize) else { return status::INVALID_FIELD };
        let (first, is_switch, num_ports) = (hot.first, hot.is_switch, hot.num_ports);
        let ports = match port_counters::field::PORT_SELECT.get_u8(data) {
            ALL_PORTS if is_switch => 1..=num_ports,
            0 if !is_switch || !self.has_enhanced_port0(at) => return status::INVALID_FIELD,
            port if port <= num_ports => port..=port,
            _ => return status::INVALID_FIELD,
        };
        let mut sum: PmaData = [0; 192];
        for number in ports {
            let index = (first + u32::from(number)) as usize;
            let (Some(hot), Some(cold)) = (self.ports.get(index), self.cold.get_mut(index)) else { continue };
            let mut port =
                PortView { xmit_pkts: hot.xmit_pkts, rcv_pkts: hot.rcv_pkts, counters: &mut cold.counters };
            view(data, is_set, &mut port, &mut sum);
        }
        data[4..].copy_from_slice(&sum[4..]);
        0
    }

    fn has_enhanced_port0(&self, at: u32) -> bool {
        self.ports
            .get(at as usize)
            .and_then(|hot| self.nodes.get(hot.node as usize))
            .and_then(|node| self.switches.get(node.switch as usize))
            .is_some_and(|switch| si::ENHANCED_PORT0.get_bool(&switch.info))
    }
}

/// Counters of one port while an attribute is made.
struct PortView<'a> {
    xmit_pkts: u64,
    rcv_pkts: u64,
    counters: &'a mut Option<Box<Counters>>,
}

/// The zero points of an attribute: of events by number, of traffic by place in the attribute.
type Zero = fn(&mut Counters) -> (&mut [u32], &mut [u64]);

impl PortView<'_> {
    /// Shows one counter, after clearing it if asked to. `slot` is the place of its zero point if it counts traffic.
    fn show(&mut self, source: Source, slot: usize, zero: Zero, clear: bool) -> u64 {
        let total = match source {
            Source::Event(which) => u64::from(self.counters.as_ref().map_or(0, |c| c.total(which))),
            Source::XmitData => self.xmit_pkts.wrapping_mul(MAD_DATA_WORDS),
            Source::RcvData => self.rcv_pkts.wrapping_mul(MAD_DATA_WORDS),
            Source::XmitPkts => self.xmit_pkts,
            Source::RcvPkts => self.rcv_pkts,
            Source::Nothing => return 0,
        };
        if clear {
            self.counters.get_or_insert_with(Box::default);
        }
        let Some(counters) = self.counters.as_mut() else { return total };
        let (events, traffic) = zero(counters);
        let cleared_at = match source {
            Source::Event(which) => {
                let Some(point) = events.get_mut(which) else { return total };
                if clear {
                    *point = u32::try_from(total).unwrap_or(u32::MAX);
                }
                u64::from(*point)
            }
            _ => {
                let Some(point) = traffic.get_mut(slot) else { return total };
                if clear {
                    *point = total;
                }
                *point
            }
        };
        total.saturating_sub(cleared_at)
    }
}

/// Adds to a field, sticking at its maximum.
fn add(data: &mut PmaData, field: Field, value: u64) {
    let sum = field.get(data).saturating_add(value).min(field.max());
    field.set(data, sum);
}

fn show_port_counters(request: &PmaData, is_set: bool, port: &mut PortView<'_>, out: &mut PmaData) {
    use port_counters::{COUNTERS, field};
    let select =
        u32::from(field::COUNTER_SELECT2.get_u8(request)) << 16 | field::COUNTER_SELECT.get_u32(request);
    for (index, ((bit, place), source)) in COUNTERS.iter().zip(PORT_COUNTERS).enumerate() {
        let clear = is_set && select & bit != 0;
        // the four traffic counters follow the twelve events with a bit in CounterSelect
        let slot = index.wrapping_sub(12);
        add(out, *place, port.show(source, slot, |c| (&mut c.zero, &mut c.zero_traffic), clear));
    }
}

fn show_port_counters_ext(request: &PmaData, is_set: bool, port: &mut PortView<'_>, out: &mut PmaData) {
    use port_counters_ext::{COUNTERS, field};
    let select = field::COUNTER_SELECT2.get(request) << 16 | field::COUNTER_SELECT.get(request);
    for (slot, ((bit, place), source)) in COUNTERS.iter().zip(PORT_COUNTERS_EXT).enumerate() {
        let clear = is_set && select & bit != 0;
        add(out, *place, port.show(source, slot, |c| (&mut c.zero_ext, &mut c.zero_traffic_ext), clear));
    }
    field::COUNTER_SELECT2.set(out, field::COUNTER_SELECT2.get(request));
}

fn show_rcv_details(request: &PmaData, is_set: bool, port: &mut PortView<'_>, out: &mut PmaData) {
    use rcv_errors::field as f;
    let select = f::COUNTER_SELECT.get(request);
    let fields = [
        f::LOCAL_PHYSICAL_ERRORS,
        f::MALFORMED_PACKET_ERRORS,
        f::BUFFER_OVERRUN_ERRORS,
        f::DLID_MAPPING_ERRORS,
        f::VL_MAPPING_ERRORS,
        f::LOOPING_ERRORS,
    ];
    show_details(select, is_set, port, out, event::RCV_DETAILS, &fields);
}

fn show_discard_details(request: &PmaData, is_set: bool, port: &mut PortView<'_>, out: &mut PmaData) {
    use xmit_discards::field as f;
    let select = f::COUNTER_SELECT.get(request);
    let fields = [f::INACTIVE, f::NEIGHBOR_MTU, f::SW_LIFETIME_LIMIT, f::SW_HOQ_LIFETIME_LIMIT];
    show_details(select, is_set, port, out, event::DISCARD_DETAILS, &fields);
}

fn show_details(
    select: u64,
    is_set: bool,
    port: &mut PortView<'_>,
    out: &mut PmaData,
    first: usize,
    fields: &[Field],
) {
    for (index, place) in fields.iter().enumerate() {
        let clear = is_set && select >> index & 1 != 0;
        let source = Source::Event(first + index);
        add(out, *place, port.show(source, usize::MAX, |c| (&mut c.zero, &mut c.zero_traffic), clear));
    }
}
