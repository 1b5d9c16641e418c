//! Performance management agent: counters of a port and the attributes that show and clear them.
//!
//! Part of the shard, same owner and thread. Events only grow; each attribute has its own zero points, so that clearing
//! one leaves the others alone, and a counter that reached its width stays there until it is cleared. Packet counters
//! live in the hot port entry; data counters are [`WORDS_PER_MAD`] times packets. Source: mad-format.md section 7.

use crate::agent::SmaOutcome;
use crate::field::{Field, mad, si};
use crate::packet::Packet;
use crate::shard::{Shard, answer_status as status, make_answer, method};

/// LRH, BTH, DETH, MAD and ICRC in words of four bytes.
pub(crate) const WORDS_PER_MAD: u64 = 72;

const CLASS: u8 = 0x04;
const DATA: usize = 64;
const ALL_PORTS: u8 = 0xFF;

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
    pub(super) const COUNT: usize = 24;
    /// Counted nowhere: a drop that has a sum but no detail.
    pub(crate) const NO_DETAIL: usize = usize::MAX;
}

/// Traffic counters in the order of PortCounters.
const XMIT_DATA: usize = 0;
const RCV_DATA: usize = 1;
const XMIT_PKTS: usize = 2;
const RCV_PKTS: usize = 3;

/// Error counters of a port and the zero points of every attribute; exists once something was counted or cleared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    events: [u32; event::COUNT],
    /// Zero points of PortCounters and of the two detail attributes.
    zero: [u32; event::COUNT],
    /// Zero points of PortCountersExtended.
    zero_extended: [u32; 14],
    /// Zero points of the traffic counters of PortCounters.
    zero_traffic: [u64; 4],
    /// Zero points of the traffic counters of PortCountersExtended, then those of its unicast counters.
    zero_traffic_extended: [u64; 6],
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

mod port_counters {
    use super::Field;
    pub(super) const PORT_SELECT: usize = 1;
    pub(super) const COUNTER_SELECT: Field = Field::whole(2, 16);
    pub(super) const COUNTER_SELECT2: Field = Field::whole(18, 8);
}

/// PortCounters: select bit (16 and up are in CounterSelect2), field, event.
const ERRORS: [(u32, Field, usize); 14] = [
    (0, Field::whole(4, 16), event::SYMBOL),
    (1, Field::whole(6, 8), event::LINK_RECOVERY),
    (2, Field::whole(7, 8), event::LINK_DOWNED),
    (3, Field::whole(8, 16), event::RCV_ERRORS),
    (4, Field::whole(10, 16), event::RCV_REMOTE_PHYSICAL),
    (5, Field::whole(12, 16), event::SWITCH_RELAY),
    (6, Field::whole(14, 16), event::XMIT_DISCARDS),
    (7, Field::whole(16, 8), event::XMIT_CONSTRAINT),
    (8, Field::whole(17, 8), event::RCV_CONSTRAINT),
    (9, Field::bits(19, 7, 4), event::LOCAL_INTEGRITY),
    (10, Field::bits(19, 3, 0), event::OVERRUN),
    (11, Field::whole(22, 16), event::VL15_DROPPED),
    (16, Field::whole(40, 32), event::XMIT_WAIT),
    (17, Field::whole(20, 16), event::QP1_DROPPED),
];

/// PortCounters: select bit, field, index of the traffic counter.
const TRAFFIC: [(u32, Field, usize); 4] = [
    (12, Field::whole(24, 32), XMIT_DATA),
    (13, Field::whole(28, 32), RCV_DATA),
    (14, Field::whole(32, 32), XMIT_PKTS),
    (15, Field::whole(36, 32), RCV_PKTS),
];

type PmaData = [u8; 192];

impl Shard {
    /// Handles a GMP request that is for the node of `at`.
    pub(crate) fn gma(&mut self, at: u32, pkt: &mut Packet) -> SmaOutcome {
        let method = mad::METHOD.get_u8(&pkt.mad);
        if mad::MGMT_CLASS.get_u8(&pkt.mad) != CLASS || !matches!(method, method::GET | method::SET) {
            return SmaOutcome::ToAgent;
        }
        if mad::CLASS_VERSION.get_u8(&pkt.mad) != 1 {
            make_answer(pkt, status::BAD_VERSION);
            return SmaOutcome::Reply;
        }
        let is_set = method == method::SET;
        let attribute = mad::ATTRIBUTE.get_u16(&pkt.mad);
        let data: &mut PmaData =
            pkt.mad[DATA..].first_chunk_mut().expect("a MAD has 192 bytes after byte 64");
        let status = match (attribute, is_set) {
            (0x0001, false) => self.pma_class_port_info(at, data),
            (0x0012, _) => self.pma_attribute(at, is_set, data, port_counters),
            (0x0015, _) => self.pma_attribute(at, is_set, data, receive_error_details),
            (0x0016, _) => self.pma_attribute(at, is_set, data, discard_details),
            (0x001D, _) => self.pma_attribute(at, is_set, data, port_counters_extended),
            _ => status::BAD_ATTRIBUTE,
        };
        make_answer(pkt, status);
        SmaOutcome::Reply
    }

    fn pma_class_port_info(&self, at: u32, data: &mut PmaData) -> u16 {
        /// Extended width with unicast and multicast counters, PortXmitWait.
        const CAPABILITIES: u64 = 1 << 9 | 1 << 12;
        const ALL_PORT_SELECT: u64 = 1 << 8;
        /// Error counters in PortCountersExtended.
        const CAPABILITIES2: u64 = 1 << 1;
        /// 4.096 µs times 2^18: the answer comes within about a second.
        const RESPONSE_TIME: u64 = 18;
        let is_switch = self.ports.get(at as usize).is_some_and(|p| p.is_switch);
        data.fill(0);
        data[0] = 1;
        data[1] = 1;
        let mask = CAPABILITIES | if is_switch { ALL_PORT_SELECT } else { 0 };
        Field::whole(2, 16).set(data, mask);
        Field::bits(4, 31, 5).set(data, CAPABILITIES2);
        Field::bits(4, 4, 0).set(data, RESPONSE_TIME);
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
        let Some(hot) = self.ports.get(at as usize) else { return status::BAD_FIELD };
        let (first, is_switch, num_ports) = (hot.first, hot.is_switch, hot.num_ports);
        let ports = match data[port_counters::PORT_SELECT] {
            ALL_PORTS if is_switch => 1..=num_ports,
            0 if !is_switch || !self.has_enhanced_port0(at) => return status::BAD_FIELD,
            port if port <= num_ports => port..=port,
            _ => return status::BAD_FIELD,
        };
        let mut sum: PmaData = [0; 192];
        for number in ports {
            let index = (first + u32::from(number)) as usize;
            let (Some(hot), Some(cold)) = (self.ports.get(index), self.cold.get_mut(index)) else { continue };
            let traffic = [
                hot.xmit_pkts.wrapping_mul(WORDS_PER_MAD),
                hot.rcv_pkts.wrapping_mul(WORDS_PER_MAD),
                hot.xmit_pkts,
                hot.rcv_pkts,
            ];
            let mut port = PortView { traffic, counters: &mut cold.counters };
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
    traffic: [u64; 4],
    counters: &'a mut Option<Box<Counters>>,
}

impl PortView<'_> {
    fn event(&self, zero: fn(&Counters) -> &[u32], which: usize) -> u64 {
        let Some(counters) = self.counters.as_ref() else { return 0 };
        let zero = zero(counters).get(which).copied().unwrap_or(0);
        u64::from(counters.total(which).saturating_sub(zero))
    }

    fn traffic(&self, zero: fn(&Counters) -> &[u64], slot: usize, which: usize) -> u64 {
        let zero = self.counters.as_ref().and_then(|c| zero(c).get(slot).copied()).unwrap_or(0);
        self.traffic.get(which).copied().unwrap_or(0).saturating_sub(zero)
    }

    fn clearing(&mut self) -> &mut Counters {
        self.counters.get_or_insert_with(Box::default)
    }
}

/// Adds to a field, sticking at its maximum.
fn add(data: &mut PmaData, field: Field, value: u64) {
    let sum = field.get(data).saturating_add(value).min(field.max());
    field.set(data, sum);
}

fn port_counters(request: &PmaData, is_set: bool, port: &mut PortView<'_>, out: &mut PmaData) {
    let select = u64::from(port_counters::COUNTER_SELECT2.get_u8(request)) << 16
        | port_counters::COUNTER_SELECT.get(request);
    let traffic = port.traffic;
    for (bit, field, which) in ERRORS {
        if is_set && select >> bit & 1 != 0 {
            let counters = port.clearing();
            counters.zero[which] = counters.events[which];
        }
        add(out, field, port.event(|c| &c.zero, which));
    }
    for (bit, field, which) in TRAFFIC {
        if is_set && select >> bit & 1 != 0 {
            port.clearing().zero_traffic[which] = traffic[which];
        }
        add(out, field, port.traffic(|c| &c.zero_traffic, which, which));
    }
}

fn port_counters_extended(request: &PmaData, is_set: bool, port: &mut PortView<'_>, out: &mut PmaData) {
    let select = Field::whole(2, 16).get(request);
    let select2 = Field::whole(4, 32).get(request);
    let traffic = port.traffic;
    // 4 and 5 are the unicast packets: every MAD is unicast; 6 and 7, multicast, stay 0
    let sources = [XMIT_DATA, RCV_DATA, XMIT_PKTS, RCV_PKTS, XMIT_PKTS, RCV_PKTS];
    for (slot, which) in sources.into_iter().enumerate() {
        if is_set && select >> slot & 1 != 0 {
            port.clearing().zero_traffic_extended[slot] = traffic[which];
        }
        add(out, wide(8, slot), port.traffic(|c| &c.zero_traffic_extended, slot, which));
    }
    for which in 0..14 {
        if is_set && select2 >> which & 1 != 0 {
            let counters = port.clearing();
            counters.zero_extended[which] = counters.events[which];
        }
        add(out, wide(72, which), port.event(|c| &c.zero_extended, which));
    }
    Field::whole(4, 32).set(out, select2);
}

/// 64-bit counter `index` of a list that starts at `byte`.
fn wide(byte: u16, index: usize) -> Field {
    Field::whole(byte + 8 * u16::try_from(index).unwrap_or(0), 64)
}

fn receive_error_details(request: &PmaData, is_set: bool, port: &mut PortView<'_>, out: &mut PmaData) {
    details(request, is_set, port, out, event::RCV_DETAILS, 6);
}

fn discard_details(request: &PmaData, is_set: bool, port: &mut PortView<'_>, out: &mut PmaData) {
    details(request, is_set, port, out, event::DISCARD_DETAILS, 4);
}

fn details(
    request: &PmaData,
    is_set: bool,
    port: &mut PortView<'_>,
    out: &mut PmaData,
    first: usize,
    count: u16,
) {
    let select = port_counters::COUNTER_SELECT.get(request);
    for index in 0..count {
        let which = first + usize::from(index);
        if is_set && select >> index & 1 != 0 {
            let counters = port.clearing();
            counters.zero[which] = counters.events[which];
        }
        add(out, Field::whole(4 + 2 * index, 16), port.event(|c| &c.zero, which));
    }
}
