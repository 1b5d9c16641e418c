//! Delivery inside a node: its own agents first, then the clients that the sink knows.
//!
//! Part of [`Shard`], same owner and thread. An answer replaces the request in place, the LIDs still those of the request;
//! the caller turns it round. Drops are counted here with the reason that a client would want to see.

use super::Shard;
use crate::agent::SmaOutcome;
use crate::packet::{Packet, right};
use crate::sink::Sink;
use crate::smi;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{class, field as mad, method, status};
use madplane_wire::smp::node_info::field as ni;

impl Shard {
    /// Delivers to the node of `at`; true if `pkt` now holds an answer that has to be sent back.
    #[inline(always)]
    pub(super) fn local<S: Sink>(&mut self, now_ns: u64, at: u32, pkt: &mut Packet, sink: &mut S) -> bool {
        if pkt.rights & right::CHECK_NODE != 0 && self.out_of_scope(at, pkt, sink) {
            return false;
        }
        if mad::METHOD.get_u8(&pkt.mad) & method::RESPONSE != 0 {
            self.hand_to_client(at, pkt, sink);
            return false;
        }
        let outcome = if pkt.dst_qp == 0 { self.sma(now_ns, at, pkt, sink) } else { self.gma(at, pkt) };
        match outcome {
            SmaOutcome::Reply => true,
            SmaOutcome::Silent(reason) => {
                if let Some(reason) = reason {
                    sink.dropped(self.name(at).0, reason);
                }
                false
            }
            SmaOutcome::ToAgent => self.hand_to_agent(at, pkt, sink),
        }
    }

    /// Offers a request to the agents; true if nobody wants it and an answer says so.
    fn hand_to_agent<S: Sink>(&mut self, at: u32, pkt: &mut Packet, sink: &mut S) -> bool {
        if self.offer(at, pkt, sink) {
            return false;
        }
        match mad::METHOD.get_u8(&pkt.mad) {
            method::GET | method::SET => {
                make_answer(pkt, status::UNSUPPORTED_METHOD_ATTR);
                true
            }
            _ => {
                sink.dropped(self.name(at).0, DropReason::NoAgent);
                false
            }
        }
    }

    /// Whether the sender's tenant may not manage this node; the request is then counted.
    #[cold]
    fn out_of_scope<S: Sink>(&self, at: u32, pkt: &Packet, sink: &mut S) -> bool {
        let is_response = mad::METHOD.get_u8(&pkt.mad) & method::RESPONSE != 0;
        if pkt.dst_qp != 0 || is_response {
            return false;
        }
        let node = self.ports.get(at as usize).and_then(|hot| self.nodes.get(hot.node as usize));
        let guid = node.map_or(0, |node| ni::NODE_GUID.get(&node.info));
        if sink.may_manage(pkt.tenant, guid) {
            return false;
        }
        sink.dropped(self.name(at).0, DropReason::TenantScope);
        true
    }

    /// Delivers a response to the client that owns its transaction.
    pub(super) fn hand_to_client<S: Sink>(&mut self, at: u32, pkt: &mut Packet, sink: &mut S) {
        // a request with the direction bit of an answer ends here too
        if pkt.rights & right::CHECK_NODE != 0 && self.out_of_scope(at, pkt, sink) {
            return;
        }
        if !self.offer(at, pkt, sink) {
            sink.dropped(self.name(at).0, DropReason::NoTransaction);
        }
    }

    #[inline(always)]
    fn offer<S: Sink>(&mut self, at: u32, pkt: &mut Packet, sink: &mut S) -> bool {
        let endport = self.endport(at);
        let mask = self.cold.get(endport as usize).map_or(0, |p| (1_u16 << (p.lmc & 7)) - 1);
        pkt.path_bits =
            if pkt.dlid == smi::PERMISSIVE { 0 } else { u8::try_from(pkt.dlid & mask).unwrap_or(0) };
        let (node, port) = self.name(endport);
        sink.deliver(node, port, pkt)
    }
}

/// Turns a request into its answer: method GetResp, the status, D set for class 0x81. The data is the caller's business.
#[inline(always)]
pub(crate) fn make_answer(pkt: &mut Packet, status: u16) {
    let directed = mad::MGMT_CLASS.get_u8(&pkt.mad) == class::SUBN_DIRECTED;
    mad::METHOD.set(&mut pkt.mad, u64::from(method::GET_RESP));
    mad::STATUS.set(&mut pkt.mad, u64::from(status) | if directed { 0x8000 } else { 0 });
}
