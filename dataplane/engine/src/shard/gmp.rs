//! GMPs: LID relay with the checks that SMPs do not have, and admission at the receiving port.
//!
//! Part of [`Shard`], same owner and thread. Data needs Active to leave a port and Armed to enter one; SLtoVL, partition
//! enforcement, P_Key and Q_Key are checked here. Multicast is dropped: no MAD agent is attached to a group.

use super::Shard;
use crate::agent::pma::event;
use crate::agent::trap::KeyViolation;
use crate::lid_route;
use crate::node::{DEFAULT_SL_TO_VL, PortCold};
use crate::packet::{Packet, right};
use crate::partition::{FULL_MEMBER, counterpart, find_match, same_partition};
use crate::sink::Sink;
use crate::smi::{self, SmiNode, Verdict};
use madplane_shm::drop_reason::DropReason;
use madplane_wire::Field;
use madplane_wire::mad::GSI_Q_KEY;
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::smp::port_info::state;

/// Neither partition enforcement nor a VL ever stops a GMP that leaves by a port.
pub(super) const LEAVES_FREELY: u8 = 1;
/// Partition enforcement never stops a GMP that enters by a port.
pub(super) const ENTERS_FREELY: u8 = 2;

impl Shard {
    /// A client of endport `at` sends: where the GMP stands then, and what happens there.
    pub(super) fn gmp_transmit<S: Sink>(
        &mut self,
        at: u32,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> (u32, Verdict) {
        let Some(cold) = self.cold.get(at as usize) else {
            return (at, Verdict::discard(DropReason::SenderInvalid));
        };
        let Some(p_key) = cold.p_keys().get(usize::from(pkt.p_key_index)) else {
            return (at, Verdict::discard(DropReason::SenderInvalid));
        };
        pkt.p_key = if pkt.rights & right::AS_LIMITED != 0 { *p_key & !FULL_MEMBER } else { *p_key };
        let mask = (1_u16 << (cold.lmc & 7)) - 1;
        pkt.slid = cold.lid | (u16::from(pkt.path_bits) & mask);
        stamp_gid(cold, pkt);
        self.gmp_start(at, false, pkt, sink)
    }

    /// The agent of endport `at` answers; `pkt` still has addresses and keys of the request.
    pub(super) fn gmp_answer<S: Sink>(&mut self, at: u32, pkt: &mut Packet, sink: &mut S) -> (u32, Verdict) {
        (pkt.slid, pkt.dlid) = (pkt.dlid, pkt.slid);
        (pkt.src_qp, pkt.dst_qp) = (1, pkt.src_qp);
        if pkt.dst_qp != 1 {
            return (at, Verdict::discard(DropReason::ClassQp));
        }
        pkt.q_key = GSI_Q_KEY;
        if let Some(cold) = self.cold.get(at as usize) {
            if let Some(key) = cold.p_keys().get(usize::from(pkt.p_key_index)) {
                pkt.p_key = *key;
            }
            stamp_gid(cold, pkt);
        }
        self.gmp_start(at, true, pkt, sink)
    }

    #[inline(always)]
    fn gmp_start<S: Sink>(
        &mut self,
        at: u32,
        answer: bool,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> (u32, Verdict) {
        match self.pin_gmp(at, answer, pkt, sink) {
            Some(start) => start,
            None => (at, self.gmp_start_by_lid(at, pkt)),
        }
    }

    /// Sends from endport `at` by forwarding tables.
    pub(super) fn gmp_start_by_lid(&mut self, at: u32, pkt: &mut Packet) -> Verdict {
        let (Some(hot), Some(view)) = (self.ports.get(at as usize), self.view(at)) else {
            return Verdict::discard(DropReason::SenderInvalid);
        };
        let number = u8::try_from((at - hot.first) & 0xFF).unwrap_or(0);
        if hot.state != state::ACTIVE {
            return Verdict::Discard { reason: DropReason::RoutePortDown, output: number };
        }
        if let Some(verdict) = refuse_dlid(pkt.dlid) {
            return verdict;
        }
        if view.owns_lid(number, pkt.dlid) {
            return self.gmp_admit(at, pkt);
        }
        if view.is_switch {
            return self.gmp_relay(at, None, pkt);
        }
        self.stages.sl_to_vl_checked += 1;
        if let Some(reason) = vl_refused(self.cold.get(at as usize), 0, pkt.sl) {
            return Verdict::Discard { reason, output: number };
        }
        Verdict::Forward { port: number }
    }

    /// A GMP arrived on port `at`.
    pub(super) fn gmp_receive(&mut self, at: u32, pkt: &mut Packet) -> Verdict {
        let (Some(hot), Some(view), Some(cold)) =
            (self.ports.get(at as usize), self.view(at), self.cold.get(at as usize))
        else {
            return Verdict::discard(DropReason::ArrivalDown);
        };
        if hot.state < state::ARMED {
            return Verdict::discard(DropReason::ArrivalDown);
        }
        if let Some(verdict) = refuse_dlid(pkt.dlid) {
            return verdict;
        }
        let arrival = u8::try_from((at - hot.first) & 0xFF).unwrap_or(0);
        let is_switch = hot.is_switch;
        let ours = view.owns_lid(arrival, pkt.dlid);
        if is_switch && enforced(cold, pi::PARTITION_ENFORCEMENT_INBOUND, pkt.p_key) {
            self.constraint_violation(at, event::RCV_CONSTRAINT, pkt);
            return Verdict::discard(DropReason::PartitionEnforcement);
        }
        if ours {
            return self.gmp_admit(self.endport(at), pkt);
        }
        if !is_switch {
            return Verdict::discard(DropReason::NotOurLid);
        }
        self.gmp_relay(at, Some(arrival), pkt)
    }

    /// Relay of a switch; `arrival` is `None` for what port 0 sends.
    fn gmp_relay(&mut self, at: u32, arrival: Option<u8>, pkt: &mut Packet) -> Verdict {
        let Some(view) = self.view(at) else { return Verdict::discard(DropReason::NoRoute) };
        let first = view.first;
        let port = match lid_route::lookup(&view, arrival, pkt.dlid) {
            Ok(0) => return self.gmp_admit(first, pkt),
            Ok(port) => port,
            Err(reason) => return Verdict::discard(reason),
        };
        let out = first + u32::from(port);
        let active = self.ports.get(out as usize).is_some_and(|p| p.state == state::ACTIVE);
        let Some(cold) = self.cold.get(out as usize) else { return Verdict::discard(DropReason::RoutePort) };
        if !active {
            return Verdict::Discard { reason: DropReason::RoutePortDown, output: port };
        }
        if enforced(cold, pi::PARTITION_ENFORCEMENT_OUTBOUND, pkt.p_key) {
            self.constraint_violation(out, event::XMIT_CONSTRAINT, pkt);
            return Verdict::discard(DropReason::PartitionEnforcement);
        }
        self.stages.sl_to_vl_checked += 1;
        if let Some(reason) = vl_refused(Some(cold), arrival.unwrap_or(0), pkt.sl) {
            return Verdict::Discard { reason, output: port };
        }
        Verdict::Forward { port }
    }

    /// What refuses a GMP that leaves by the Active port `out` of its node, which it entered by `input`.
    pub(super) fn gmp_departure_refused(&mut self, out: u32, input: u8, pkt: &Packet) -> Option<Verdict> {
        let (hot, cold) = (self.ports.get(out as usize)?, self.cold.get(out as usize)?);
        if hot.is_switch && enforced(cold, pi::PARTITION_ENFORCEMENT_OUTBOUND, pkt.p_key) {
            self.constraint_violation(out, event::XMIT_CONSTRAINT, pkt);
            return Some(Verdict::discard(DropReason::PartitionEnforcement));
        }
        self.stages.sl_to_vl_checked += 1;
        let reason = vl_refused(Some(cold), input, pkt.sl)?;
        Some(Verdict::Discard { reason, output: u8::try_from((out - hot.first) & 0xFF).unwrap_or(0) })
    }

    /// What refuses a GMP that enters by port `at`, whoever it is for.
    pub(super) fn gmp_arrival_refused(&mut self, at: u32, pkt: &Packet) -> Option<Verdict> {
        let (hot, cold) = (self.ports.get(at as usize)?, self.cold.get(at as usize)?);
        if hot.state < state::ARMED {
            return Some(Verdict::discard(DropReason::ArrivalDown));
        }
        if hot.is_switch && enforced(cold, pi::PARTITION_ENFORCEMENT_INBOUND, pkt.p_key) {
            self.constraint_violation(at, event::RCV_CONSTRAINT, pkt);
            return Some(Verdict::discard(DropReason::PartitionEnforcement));
        }
        None
    }

    /// Checks the keys of a GMP that has reached endport `at`, and notes the matching P_Key entry.
    pub(super) fn gmp_admit(&mut self, at: u32, pkt: &mut Packet) -> Verdict {
        let Some(cold) = self.cold.get(at as usize) else { return Verdict::discard(DropReason::NotOurLid) };
        self.stages.p_key_checked += 1;
        let Some(index) = find_match(pkt.p_key, cold.p_keys()) else {
            self.key_violation(at, KeyViolation::PKey, pkt);
            return Verdict::discard(DropReason::PKey);
        };
        pkt.p_key_index = index;
        if pkt.q_key != GSI_Q_KEY {
            self.key_violation(at, KeyViolation::QKey, pkt);
            return Verdict::discard(DropReason::QKey);
        }
        Verdict::Local
    }

    /// Says which key of the port of `at` the packet's key was held against.
    #[cold]
    pub(super) fn tell_mismatch<S: Sink>(&self, at: u32, pkt: &Packet, sink: &mut S) {
        let Some(cold) = self.cold.get(self.endport(at) as usize) else { return };
        if find_match(pkt.p_key, cold.p_keys()).is_some() {
            // a route wanted another key, and has told so itself
            return;
        }
        let had = counterpart(pkt.p_key, cold.p_keys());
        sink.p_key_mismatch(self.name(at).0, pkt.p_key, had);
    }

    #[cold]
    fn constraint_violation(&mut self, port: u32, which: usize, pkt: &Packet) {
        if let Some(cold) = self.cold.get_mut(port as usize) {
            cold.counters_mut().count(which);
        }
        self.raise_partition_trap(port, pkt);
    }

    #[cold]
    fn key_violation(&mut self, at: u32, kind: KeyViolation, pkt: &Packet) {
        if let Some(cold) = self.cold.get_mut(at as usize) {
            let field = match kind {
                KeyViolation::PKey => pi::P_KEY_VIOLATIONS,
                KeyViolation::QKey => pi::Q_KEY_VIOLATIONS,
            };
            let count = field.get_u16(&cold.info).saturating_add(1);
            field.set(&mut cold.info, u64::from(count));
        }
        self.raise_key_trap(at, kind, pkt);
    }

    /// Counts a drop: `at` is the arrival port, `output` the port that was to be used.
    pub(super) fn charge(&mut self, at: u32, output: u32, reason: DropReason) {
        let (port, sum, detail) = match reason {
            DropReason::AboveFdbTop | DropReason::NoRoute | DropReason::RoutePort | DropReason::PathPort => {
                (at, event::SWITCH_RELAY, event::DLID_MAPPING)
            }
            DropReason::RouteLoop => (at, event::SWITCH_RELAY, event::LOOPING),
            DropReason::RoutePortDown | DropReason::PathPortDown => {
                (output, event::XMIT_DISCARDS, event::DISCARD_INACTIVE)
            }
            DropReason::SlToVl => (output, event::XMIT_DISCARDS, event::NO_DETAIL),
            _ => return,
        };
        // relay errors belong to what an external port of a switch received; a client's own mistake is not one
        let external = self.ports.get(port as usize).is_some_and(|p| p.is_switch && p.first != port);
        if sum == event::SWITCH_RELAY && !external {
            return;
        }
        if let Some(cold) = self.cold.get_mut(port as usize) {
            let counters = cold.counters_mut();
            counters.count(sum);
            counters.count(detail);
        }
    }
}

/// Writes the sender's GID over the destination's, which nobody needs to route: the receiver wants to know where to
/// answer. It is told that its GID 0 was addressed.
fn stamp_gid(cold: &PortCold, pkt: &mut Packet) {
    let Some(grh) = &mut pkt.grh else { return };
    let prefix = pi::GID_PREFIX.get(&cold.info);
    let alias = cold.tables.as_ref().and_then(|t| t.guids.as_ref()?.get(usize::from(grh.gid_index)).copied());
    let guid = if grh.gid_index == 0 { cold.guid } else { alias.unwrap_or(0) };
    grh.gid = (u128::from(prefix) << 64 | u128::from(guid)).to_be_bytes();
    grh.gid_index = 0;
}

fn refuse_dlid(dlid: u16) -> Option<Verdict> {
    let reason = match dlid {
        0 => DropReason::DlidInvalid,
        smi::PERMISSIVE => DropReason::PermissiveLid,
        smi::MULTICAST.. => DropReason::Multicast,
        _ => return None,
    };
    Some(Verdict::discard(reason))
}

/// Whether a switch port with partition enforcement refuses `p_key`.
///
/// The port keeps strangers out of a partition; who may talk to whom in it is for the receiver. OpenSM gives a switch port
/// the P_Keys of the port behind it as they are: held to memberships, a limited member could not send at all.
fn enforced(cold: &PortCold, side: Field, p_key: u16) -> bool {
    side.get_bool(&cold.info) && !cold.p_keys().iter().any(|entry| same_partition(p_key, *entry))
}

/// For whom a port is open without a question, apart from its state: [`LEAVES_FREELY`] and [`ENTERS_FREELY`].
///
/// Says no where in doubt: a map that names VL8 to VL14 is looked at for each packet.
pub(super) fn freely(cold: &PortCold, is_switch: bool) -> u8 {
    let info = &cold.info;
    let inoperable: u64 = match pi::OPERATIONAL_VLS.get_u8(info) {
        0 | 1 => u64::MAX,
        2 => 0xEEEE_EEEE_EEEE_EEEE,
        3 => 0xCCCC_CCCC_CCCC_CCCC,
        _ => 0x8888_8888_8888_8888,
    };
    let carried = |map: &[u8; 8]| u64::from_be_bytes(*map) & inoperable == 0;
    let maps = cold.tables.as_ref().and_then(|t| t.sl_to_vl.as_deref()).unwrap_or(&[DEFAULT_SL_TO_VL]);
    let leaves =
        !(is_switch && pi::PARTITION_ENFORCEMENT_OUTBOUND.get_bool(info)) && maps.iter().all(carried);
    let enters = !(is_switch && pi::PARTITION_ENFORCEMENT_INBOUND.get_bool(info));
    (if leaves { LEAVES_FREELY } else { 0 }) | if enters { ENTERS_FREELY } else { 0 }
}

/// Whether the VL that `sl` maps to between `input` and the port of `cold` cannot carry data.
fn vl_refused(cold: Option<&PortCold>, input: u8, sl: u8) -> Option<DropReason> {
    let cold = cold?;
    let map = cold.sl_to_vl(input);
    let pair = map.get(usize::from(sl & 15) / 2).copied().unwrap_or(0xFF);
    let vl = if sl & 1 == 0 { pair >> 4 } else { pair & 15 };
    let operational = match pi::OPERATIONAL_VLS.get_u8(&cold.info) {
        0 | 1 => 1,
        2 => 2,
        3 => 4,
        4 => 8,
        _ => 15,
    };
    (vl >= operational).then_some(DropReason::SlToVl)
}
