//! What a worker may read and set from outside the protocol: status of ports, the SM role, overflow of sessions.
//!
//! Part of [`Shard`], same owner and thread. Reads copy; nothing here sends anything but the notice of a changed IsSM.

use super::Shard;
use crate::NodeId;
use crate::agent::pma::event;
use crate::sink::Sink;
use madplane_wire::smp::port_info::field as pi;

/// Traffic of one port since power on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounterSnapshot {
    /// Packets sent.
    pub xmit_pkts: u64,
    /// Packets received.
    pub rcv_pkts: u64,
    /// Packets refused by the relay (PortRcvSwitchRelayErrors).
    pub switch_relay_errors: u32,
    /// Packets discarded at the output (PortXmitDiscards).
    pub xmit_discards: u32,
    /// Packets refused by partition enforcement on entry.
    pub rcv_constraint_errors: u32,
    /// Packets refused by partition enforcement on exit.
    pub xmit_constraint_errors: u32,
    /// SMPs lost because a client did not read.
    pub vl15_dropped: u32,
    /// GMPs lost because a client did not read.
    pub qp1_dropped: u32,
    /// Times the link went down.
    pub link_downed: u32,
}

impl Shard {
    /// PortState of a port, `None` if the shard does not own it.
    pub fn port_state(&self, node: NodeId, port: u8) -> Option<u8> {
        Some(self.ports.get(self.index(node, port)? as usize)?.state)
    }

    /// PortPhysicalState of a port.
    pub fn phys_state(&self, node: NodeId, port: u8) -> Option<u8> {
        Some(self.ports.get(self.index(node, port)? as usize)?.phys)
    }

    /// LID of an endport; on a switch that of port 0 whatever the port.
    pub fn lid(&self, node: NodeId, port: u8) -> Option<u16> {
        Some(self.cold.get(self.endport(self.index(node, port)?) as usize)?.lid)
    }

    /// PortInfo of a port as its own SM would read it, 64 bytes in wire order.
    pub fn port_info(&self, node: NodeId, port: u8) -> Option<[u8; 64]> {
        let at = self.index(node, port)?;
        Some(self.port_info_data(at, port, true))
    }

    /// NodeInfo as read through `port`, 40 bytes in wire order.
    pub fn node_info(&self, node: NodeId, port: u8) -> Option<[u8; 40]> {
        Some(self.node_info_data(self.index(node, port)?))
    }

    /// NodeDescription, 64 bytes padded with zeros.
    pub fn node_description(&self, node: NodeId) -> Option<[u8; 64]> {
        let first = self.index(node, 0)?;
        let local = self.ports.get(first as usize)?.node;
        Some(self.nodes.get(local as usize)?.description)
    }

    /// P_Key table of a port.
    pub fn p_keys(&self, node: NodeId, port: u8) -> Option<&[u16]> {
        Some(self.cold.get(self.index(node, port)? as usize)?.p_keys().as_slice())
    }

    /// GUID of a port, the port 0 GUID on a switch.
    pub fn port_guid(&self, node: NodeId, port: u8) -> Option<u64> {
        Some(self.cold.get(self.endport(self.index(node, port)?) as usize)?.guid)
    }

    /// Traffic and drops of a port; unlike the PMA's counters not cleared by anybody but a reboot.
    pub fn counters(&self, node: NodeId, port: u8) -> Option<PortCounterSnapshot> {
        let at = self.index(node, port)? as usize;
        let (hot, cold) = (self.ports.get(at)?, self.cold.get(at)?);
        let count = |which: usize| cold.counters.as_ref().map_or(0, |c| c.total(which));
        Some(PortCounterSnapshot {
            xmit_pkts: hot.xmit_pkts,
            rcv_pkts: hot.rcv_pkts,
            switch_relay_errors: count(event::SWITCH_RELAY),
            xmit_discards: count(event::XMIT_DISCARDS),
            rcv_constraint_errors: count(event::RCV_CONSTRAINT),
            xmit_constraint_errors: count(event::XMIT_CONSTRAINT),
            vl15_dropped: count(event::VL15_DROPPED),
            qp1_dropped: count(event::QP1_DROPPED),
            link_downed: count(event::LINK_DOWNED),
        })
    }

    /// Counts a packet that a client of `(node, port)` did not take because it does not read: VL15Dropped for QP 0,
    /// QP1Dropped otherwise.
    pub fn count_overflow(&mut self, node: NodeId, port: u8, qp: u32) {
        let Some(at) = self.index(node, port) else { return };
        if let Some(cold) = self.cold.get_mut(at as usize) {
            cold.counters_mut().count(if qp == 0 { event::VL15_DROPPED } else { event::QP1_DROPPED });
        }
    }

    /// Sets or clears the IsSM bit of a port, as opening its issm node does; sends trap 144 if it changed.
    pub fn set_is_sm<S: Sink>(&mut self, now_ns: u64, node: NodeId, port: u8, is_sm: bool, sink: &mut S) {
        let Some(at) = self.index(node, port).map(|at| self.endport(at)) else { return };
        let Some(cold) = self.cold.get_mut(at as usize) else { return };
        if cold.is_sm == is_sm {
            return;
        }
        cold.is_sm = is_sm;
        let mask = pi::CAP_MASK.get(&cold.info);
        pi::CAP_MASK.set(&mut cold.info, if is_sm { mask | 2 } else { mask & !2 });
        self.raise_change_trap(at, 0);
        self.port_changed(at, sink);
        self.flush_traps(now_ns, sink);
    }
}
