//! Subnet management agent: answers Get and Set of the SMP attributes of a node.
//!
//! Part of the shard, same owner and thread. The answer is written over the request. Order of checks: class version, M_Key,
//! method, attribute, fields; a Set applies the valid fields even if it answers 0x1C, and every answer shows the values
//! after it. Traps and reports are left to the clients, and so is SMInfo where the port acts as SM.

mod port_info;
mod tables;

use crate::agent::SmaOutcome;
use crate::agent::m_key::Access;
use crate::node::{LINEAR_FDB_CAP, MULTICAST_FDB_CAP};
use crate::packet::Packet;
use crate::setup::has_mlnx_ext_port_info;
use crate::shard::{Shard, make_answer};
use crate::sink::Sink;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{field as mad, method, status};
use madplane_wire::smp::mlnx_ext_port_info::field as mlnx;
use madplane_wire::smp::node_info::field as ni;
use madplane_wire::smp::switch_info::field as si;
use madplane_wire::smp::{DATA_LEN, SMP_DATA, attr};

/// Attribute data of an SMP.
pub(crate) type Data = [u8; DATA_LEN];

/// A request as the attribute functions see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Port index on which it arrived; port 0 if a client of a switch asks its own node.
    pub(crate) at: u32,
    /// Index of port 0 of the node.
    pub(crate) first: u32,
    pub(crate) is_switch: bool,
    pub(crate) num_ports: u8,
    pub(crate) is_set: bool,
    pub(crate) modifier: u32,
    /// The requester may see the M_Key.
    pub(crate) show_key: bool,
}

impl Request {
    /// Number of the arrival port.
    pub(crate) fn arrival(&self) -> u8 {
        u8::try_from((self.at - self.first) & 0xFF).unwrap_or(0)
    }
}

impl Shard {
    /// Handles an SMP request that is for the node of `at`.
    #[inline(always)]
    pub(crate) fn sma<S: Sink>(
        &mut self,
        now_ns: u64,
        at: u32,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> SmaOutcome {
        let method = mad::METHOD.get_u8(&pkt.mad);
        if method == method::TRAP || method == method::REPORT {
            return SmaOutcome::ToAgent;
        }
        if mad::CLASS_VERSION.get_u8(&pkt.mad) != 1 {
            return refuse(pkt, method, status::BAD_VERSION);
        }
        let mut show_key = true;
        if matches!(method, method::GET | method::SET | method::TRAP_REPRESS) {
            match self.check_m_key(now_ns, self.endport(at), pkt) {
                Access::Granted { show_key: show } => show_key = show,
                Access::Refused => return SmaOutcome::Silent(Some(DropReason::MKey)),
            }
        }
        match method {
            method::GET | method::SET => {}
            method::TRAP_REPRESS => return self.trap_repress(self.endport(at), pkt),
            _ => return refuse(pkt, method, status::UNSUPPORTED_METHOD),
        }
        let Some(hot) = self.ports.get(at as usize) else { return SmaOutcome::Silent(None) };
        let request = Request {
            at,
            first: hot.first,
            is_switch: hot.is_switch,
            num_ports: hot.num_ports,
            is_set: method == method::SET,
            modifier: mad::ATTR_MOD.get_u32(&pkt.mad),
            show_key,
        };
        self.attribute(now_ns, request, pkt, sink)
    }

    #[inline(always)]
    fn attribute<S: Sink>(
        &mut self,
        now_ns: u64,
        request: Request,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> SmaOutcome {
        let attribute = mad::ATTR_ID.get_u16(&pkt.mad);
        if attribute == attr::SM_INFO {
            let endport = self.endport(request.at);
            if self.cold.get(endport as usize).is_some_and(|p| p.is_sm) {
                return SmaOutcome::ToAgent;
            }
        }
        if attribute == attr::PORT_INFO {
            // the key of the port that the modifier names counts too
            let other = self.port_info_target(&request).map(|at| self.endport(at));
            if let Some(other) = other.filter(|other| *other != self.endport(request.at))
                && self.check_m_key(now_ns, other, pkt) == Access::Refused
            {
                return SmaOutcome::Silent(Some(DropReason::MKey));
            }
        }
        let data: &mut Data =
            pkt.mad[SMP_DATA.start..].first_chunk_mut().expect("an SMP has 64 bytes of data after byte 64");
        let status = match (attribute, request.is_set) {
            (attr::NODE_INFO, false) => self.get_node_info(&request, data),
            (attr::NODE_DESC, false) => self.get_description(&request, data),
            (attr::PORT_INFO, _) => self.port_info_request(now_ns, &request, data, sink),
            (attr::SWITCH_INFO, _) => self.switch_info(&request, data),
            (attr::GUID_INFO, _) => self.guid_info(&request, data),
            (attr::PKEY_TABLE, _) => self.p_key_table(&request, data, sink),
            (attr::SL_TO_VL, _) => self.sl_to_vl(&request, data),
            (attr::VL_ARB, _) => self.vl_arbitration(&request, data),
            (attr::LFT, _) => self.linear_fdb(&request, data),
            (attr::MFT, _) => self.multicast_fdb(&request, data),
            (attr::MLNX_EXT_PORT_INFO, _) => self.mlnx_ext_port_info(now_ns, &request, data, sink),
            _ => status::UNSUPPORTED_METHOD_ATTR,
        };
        make_answer(pkt, status);
        SmaOutcome::Reply
    }

    /// NodeInfo as read through port `at`.
    pub(crate) fn node_info_data(&self, at: u32) -> [u8; 40] {
        let mut info = [0; 40];
        self.write_node_info(at, &mut info);
        info
    }

    /// Writes it where it is to stand.
    #[inline(always)]
    fn write_node_info(&self, at: u32, info: &mut [u8; 40]) {
        let Some(hot) = self.ports.get(at as usize) else { return info.fill(0) };
        *info = self.nodes.get(hot.node as usize).map_or([0; 40], |n| n.info);
        let port = if hot.is_switch { hot.first } else { at };
        ni::PORT_GUID.set(info, self.cold.get(port as usize).map_or(0, |p| p.guid));
        ni::LOCAL_PORT_NUM.set(info, u64::from(at - hot.first));
    }

    #[inline(always)]
    fn get_node_info(&self, request: &Request, data: &mut Data) -> u16 {
        if request.modifier != 0 {
            return status::INVALID_FIELD;
        }
        let (info, rest) = data.split_first_chunk_mut().expect("64 bytes are more than 40");
        self.write_node_info(request.at, info);
        rest.fill(0);
        0
    }

    fn get_description(&self, request: &Request, data: &mut Data) -> u16 {
        if request.modifier != 0 {
            return status::INVALID_FIELD;
        }
        let node = self.ports.get(request.at as usize).map_or(u32::MAX, |p| p.node);
        *data = self.nodes.get(node as usize).map_or([0; 64], |n| n.description);
        0
    }

    /// Index of the switch of a request, if it is one.
    fn switch_of(&mut self, request: &Request) -> Option<&mut crate::node::Switch> {
        let node = self.ports.get(request.at as usize)?.node;
        let switch = self.nodes.get(node as usize)?.switch;
        self.switches.get_mut(switch as usize)
    }

    fn switch_info(&mut self, request: &Request, data: &mut Data) -> u16 {
        let Some(switch) = self.switch_of(request) else { return status::UNSUPPORTED_METHOD_ATTR };
        if request.modifier != 0 {
            return status::INVALID_FIELD;
        }
        let mut status = 0;
        if request.is_set {
            let info = &mut switch.info;
            let top = si::LINEAR_FDB_TOP.get_u16(data);
            if top < LINEAR_FDB_CAP {
                si::LINEAR_FDB_TOP.set(info, u64::from(top));
                switch.linear_fdb_top = top;
            } else {
                status = status::INVALID_FIELD;
            }
            let top = si::MULTICAST_FDB_TOP.get_u16(data);
            // 0xBFFF is how an SM says that there are no groups
            if top == 0 || (0xBFFF..0xC000 + MULTICAST_FDB_CAP).contains(&top) {
                si::MULTICAST_FDB_TOP.set(info, u64::from(top));
            } else {
                status = status::INVALID_FIELD;
            }
            for field in [
                si::DEFAULT_PORT,
                si::DEFAULT_MCAST_PRIMARY_PORT,
                si::DEFAULT_MCAST_NOT_PRIMARY_PORT,
                si::LIFE_TIME_VALUE,
            ] {
                field.set(info, field.get(data));
            }
            if si::PORT_STATE_CHANGE.get_bool(data) {
                si::PORT_STATE_CHANGE.set(info, 0);
            }
        }
        data[..20].copy_from_slice(&switch.info);
        data[20..].fill(0);
        status
    }

    /// FDR10 of a port, on the devices that have the attribute.
    fn mlnx_ext_port_info<S: Sink>(
        &mut self,
        now_ns: u64,
        request: &Request,
        data: &mut Data,
        sink: &mut S,
    ) -> u16 {
        let node = self.ports.get(request.at as usize).map_or(u32::MAX, |p| p.node);
        if !self.nodes.get(node as usize).is_some_and(|n| has_mlnx_ext_port_info(n.device_id)) {
            return status::UNSUPPORTED_METHOD_ATTR;
        }
        let Some(at) = self.port_info_target(request) else { return status::INVALID_FIELD };
        let Some(cold) = self.cold.get_mut(at as usize) else { return status::INVALID_FIELD };
        let mut status = 0;
        let mut changed = false;
        if request.is_set && mlnx::STATE_CHANGE_ENABLE.get_u8(data) == 1 {
            match mlnx::LINK_SPEED_ENABLED.get_u8(data) {
                wanted @ 0..=1 if wanted <= u8::from(cold.fdr10.supported) => {
                    changed = cold.fdr10.enabled != (wanted == 1);
                    cold.fdr10.enabled = wanted == 1;
                }
                _ => status = status::INVALID_FIELD,
            }
        }
        data.fill(0);
        mlnx::LINK_SPEED_SUPPORTED.set(data, u64::from(cold.fdr10.supported));
        mlnx::LINK_SPEED_ENABLED.set(data, u64::from(cold.fdr10.enabled));
        mlnx::LINK_SPEED_ACTIVE.set(data, u64::from(cold.fdr10.active));
        if changed {
            self.offer_changed(now_ns, at, sink);
        }
        status
    }
}

/// Answers with an error; TrapRepress is never answered.
#[cold]
fn refuse(pkt: &mut Packet, method: u8, status: u16) -> SmaOutcome {
    if method == method::TRAP_REPRESS {
        return SmaOutcome::Silent(Some(DropReason::TrapRepressUnmatched));
    }
    make_answer(pkt, status);
    SmaOutcome::Reply
}
