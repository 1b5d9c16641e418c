//! PortInfo: the Get image and the rules of a Set, field by field.
//!
//! Part of the shard, same owner and thread. Invariant: the stored image is always what a Get shows apart from the state
//! bits, the local port and a hidden M_Key. Source: sma-behaviour.md sections 3 and 4.

use super::{Data, Request};
use crate::shard::Shard;
use crate::sink::{FabricEvent, Sink};
use crate::smi::MULTICAST;
use madplane_wire::Field;
use madplane_wire::mad::status;
use madplane_wire::smp::notice::change;
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::smp::port_info::{phys_state as phys, state};
use madplane_wire::smp::switch_info::field as si;

/// What a Set changed beyond the image.
#[derive(Debug, Default)]
struct Effects {
    status: u16,
    /// Flags of trap 144.
    local_changes: u16,
    /// The offer to the other end changed.
    offer: bool,
    /// LID, SM LID or another attribute that clients cache.
    visible: bool,
}

impl Effects {
    fn refuse(&mut self) {
        self.status = status::INVALID_FIELD;
    }
}

impl Shard {
    /// Port that a PortInfo request names; `None` if the node has no such port.
    pub(super) fn port_info_target(&self, request: &Request) -> Option<u32> {
        let number = request.modifier.to_be_bytes()[3];
        if number == 0 && !request.is_switch {
            return Some(request.at);
        }
        (number <= request.num_ports).then(|| request.first + u32::from(number))
    }

    /// PortInfo of port `at` as seen by a request that arrived on port number `arrival`.
    pub(crate) fn port_info_data(&self, at: u32, arrival: u8, show_key: bool) -> Data {
        let (Some(hot), Some(cold)) = (self.ports.get(at as usize), self.cold.get(at as usize)) else {
            return [0; 64];
        };
        let mut data = cold.info;
        pi::PORT_STATE.set(&mut data, u64::from(hot.state));
        pi::PORT_PHYS_STATE.set(&mut data, u64::from(hot.phys));
        pi::LOCAL_PORT_NUM.set(&mut data, u64::from(arrival));
        if !show_key {
            pi::M_KEY.set(&mut data, 0);
        }
        data
    }

    pub(super) fn port_info_request<S: Sink>(
        &mut self,
        now_ns: u64,
        request: &Request,
        data: &mut Data,
        sink: &mut S,
    ) -> u16 {
        let Some(at) = self.port_info_target(request) else { return status::INVALID_FIELD };
        let mut status = 0;
        let mut reregister = false;
        if request.is_set {
            if !request.is_switch && at != request.at {
                status = status::INVALID_FIELD;
            } else {
                status = self.set_port_info(now_ns, request, at, data, sink);
                reregister = self.reregister(at, data, sink);
            }
        }
        *data = self.port_info_data(at, request.arrival(), request.show_key);
        if reregister {
            pi::CLIENT_REREGISTER.set(data, 1);
        }
        status
    }

    fn set_port_info<S: Sink>(
        &mut self,
        now_ns: u64,
        request: &Request,
        at: u32,
        new: &Data,
        sink: &mut S,
    ) -> u16 {
        let port0 = request.is_switch && at == request.first;
        let external = request.is_switch && !port0;
        let extended = request.modifier >> 31 != 0;
        let Some(cold) = self.cold.get_mut(at as usize) else { return status::INVALID_FIELD };
        let mut effects = Effects::default();
        let info = &mut cold.info;
        let before = *info;
        if !external {
            let base_port0 = port0
                && self
                    .ports
                    .get(at as usize)
                    .and_then(|hot| self.nodes.get(hot.node as usize))
                    .and_then(|node| self.switches.get(node.switch as usize))
                    .is_some_and(|s| !si::ENHANCED_PORT0.get_bool(&s.info));
            set_endport_fields(info, new, base_port0, &mut effects);
            cold.lid = pi::LID.get_u16(info);
            cold.lmc = pi::LMC.get_u8(info);
        }
        set_common_fields(info, new, &mut effects);
        if external {
            for field in [
                pi::VL_STALL_COUNT,
                pi::HOQ_LIFE,
                pi::PARTITION_ENFORCEMENT_INBOUND,
                pi::PARTITION_ENFORCEMENT_OUTBOUND,
                pi::FILTER_RAW_INBOUND,
                pi::FILTER_RAW_OUTBOUND,
            ] {
                copy(info, new, field);
            }
        }
        if !port0 {
            set_link_fields(info, new, extended, &mut effects);
        }
        if *info != before {
            // enforcement and operational VLs decide what a hop carries
            self.carriage_changed(at);
        }
        if effects.visible {
            self.port_changed(at, sink);
        }
        if effects.local_changes != 0 {
            self.raise_change_trap(self.endport(at), effects.local_changes);
        }
        if effects.offer {
            self.offer_changed(now_ns, at, sink);
        }
        if !port0 && !self.set_state(now_ns, at, new, sink) {
            effects.refuse();
        }
        effects.status
    }

    /// Carries out PortState and PortPhysicalState; false if they are not allowed.
    fn set_state<S: Sink>(&mut self, now_ns: u64, at: u32, new: &Data, sink: &mut S) -> bool {
        let (wanted, wanted_phys) = (pi::PORT_STATE.get_u8(new), pi::PORT_PHYS_STATE.get_u8(new));
        let Some(hot) = self.ports.get_mut(at as usize) else { return false };
        match (wanted, wanted_phys) {
            (0, 0) => true,
            (0 | state::DOWN, 0..=phys::DISABLED) => {
                let want = match wanted_phys {
                    0 => self.down_default(at),
                    explicit => explicit,
                };
                self.drop_link_by_set(now_ns, at, want, sink);
                true
            }
            (state::ARMED, 0) => match hot.state {
                state::INIT => {
                    hot.state = state::ARMED;
                    self.carriage_changed(at);
                    self.port_changed(at, sink);
                    true
                }
                // Armed already, or Active: nothing to do
                now => now > state::INIT,
            },
            (state::ACTIVE, 0) => match hot.state {
                state::ARMED => {
                    hot.state = state::ACTIVE;
                    self.carriage_changed(at);
                    self.port_changed(at, sink);
                    true
                }
                now => now == state::ACTIVE,
            },
            _ => false,
        }
    }

    /// Where a port goes that is told Down without a physical state. A disabled port stays disabled.
    fn down_default(&self, at: u32) -> u8 {
        let Some(cold) = self.cold.get(at as usize) else { return phys::POLLING };
        match (cold.want, pi::LINK_DOWN_DEFAULT_STATE.get_u8(&cold.info)) {
            (phys::DISABLED, _) => phys::DISABLED,
            (_, phys::SLEEP) => phys::SLEEP,
            _ => phys::POLLING,
        }
    }

    /// Raises the reregister event if the Set asks for it; the answer echoes the bit, a later Get does not.
    fn reregister<S: Sink>(&mut self, at: u32, new: &Data, sink: &mut S) -> bool {
        let asked = pi::CLIENT_REREGISTER.get_bool(new) && self.endport(at) == at;
        if asked {
            let (node, port) = self.name(at);
            sink.event(FabricEvent::ClientReregister { node, port });
        }
        asked
    }
}

fn copy(info: &mut Data, new: &Data, field: Field) {
    field.set(info, field.get(new));
}

/// Fields of adapter ports and of switch port 0.
fn set_endport_fields(info: &mut Data, new: &Data, base_port0: bool, effects: &mut Effects) {
    let before =
        [pi::LID, pi::MASTER_SM_LID, pi::LMC, pi::MASTER_SM_SL, pi::GID_PREFIX].map(|field| field.get(info));
    let lmc = pi::LMC.get(new);
    let lid = pi::LID.get_u16(new);
    let aligned = lid.trailing_zeros() >= pi::LMC.get_u8(new).into();
    if lid == 0 || lid >= MULTICAST || !aligned || (base_port0 && lmc != 0) {
        effects.refuse();
    } else {
        copy(info, new, pi::LID);
        copy(info, new, pi::LMC);
    }
    let sm_lid = pi::MASTER_SM_LID.get_u16(new);
    if sm_lid == 0 || sm_lid >= MULTICAST {
        effects.refuse();
    } else {
        copy(info, new, pi::MASTER_SM_LID);
    }
    for field in [pi::M_KEY, pi::GID_PREFIX, pi::M_KEY_LEASE_PERIOD, pi::M_KEY_PROTECT_BITS, pi::MASTER_SM_SL]
    {
        copy(info, new, field);
    }
    let after =
        [pi::LID, pi::MASTER_SM_LID, pi::LMC, pi::MASTER_SM_SL, pi::GID_PREFIX].map(|field| field.get(info));
    effects.visible = before != after;
}

/// Fields that every port has.
fn set_common_fields(info: &mut Data, new: &Data, effects: &mut Effects) {
    let mtu = pi::NEIGHBOR_MTU.get(new);
    if mtu == 0 || mtu > pi::MTU_CAP.get(info) {
        effects.refuse();
    } else {
        copy(info, new, pi::NEIGHBOR_MTU);
    }
    let vls = pi::OPERATIONAL_VLS.get(new);
    if vls > pi::VL_CAP.get(info) {
        effects.refuse();
    } else if vls != 0 {
        copy(info, new, pi::OPERATIONAL_VLS);
    }
    for field in [
        pi::INIT_TYPE,
        pi::VL_HIGH_LIMIT,
        pi::SUBNET_TIMEOUT,
        pi::MCAST_PKEY_TRAP_SUPPRESSION,
        pi::LOCAL_PHY_ERRORS,
        pi::OVERRUN_ERRORS,
    ] {
        copy(info, new, field);
    }
    for field in [pi::M_KEY_VIOLATIONS, pi::P_KEY_VIOLATIONS, pi::Q_KEY_VIOLATIONS] {
        if field.get(new) == 0 {
            field.set(info, 0);
        }
    }
}

/// Width, speed and the default state of a port with a link.
fn set_link_fields(info: &mut Data, new: &Data, extended: bool, effects: &mut Effects) {
    match pi::LINK_DOWN_DEFAULT_STATE.get_u8(new) {
        0 => {}
        phys::SLEEP | phys::POLLING => copy(info, new, pi::LINK_DOWN_DEFAULT_STATE),
        _ => effects.refuse(),
    }
    let mut enable = |enabled: Field, supported: Field, all: u64, off: Option<u64>, flag: u16| {
        let wanted = enabled.get(new);
        let supported = supported.get(info);
        let value = if wanted == all { supported } else { wanted };
        if wanted == 0 {
            return;
        }
        // a port without extended speeds is told "all supported" by tools that do not look first
        if Some(wanted) != off && value & !supported != 0 {
            effects.refuse();
        } else if enabled.get(info) != value {
            enabled.set(info, value);
            effects.local_changes |= flag;
            effects.offer = true;
        }
    };
    enable(pi::LINK_WIDTH_ENABLED, pi::LINK_WIDTH_SUPPORTED, 255, None, change::LINK_WIDTH_ENABLED);
    enable(pi::LINK_SPEED_ENABLED, pi::LINK_SPEED_SUPPORTED, 15, None, change::LINK_SPEED_ENABLED);
    if extended {
        enable(
            pi::LINK_SPEED_EXT_ENABLED,
            pi::LINK_SPEED_EXT_SUPPORTED,
            31,
            Some(30),
            change::LINK_SPEED_ENABLED,
        );
        enable(
            pi::LINK_SPEED_EXT_ENABLED2,
            pi::LINK_SPEED_EXT_SUPPORTED2,
            7,
            None,
            change::LINK_SPEED_ENABLED,
        );
    }
}
