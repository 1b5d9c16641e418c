//! How everything leaves a shard: packets for agents, packets and link events for other shards, drops, events.
//!
//! The worker that owns the shard implements [`Sink`]; the engine calls it from the worker's thread, in the middle of
//! its loop, so an implementation must not call back into the shard and should only queue.

use crate::NodeId;
use crate::packet::Packet;
use madplane_shm::drop_reason::DropReason;

/// What one end of a link tells the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerEvent {
    /// Node that shall hear it.
    pub node: NodeId,
    /// Its port.
    pub port: u8,
    /// What happened at the other end.
    pub kind: PeerEventKind,
    /// What the other end is ready to do now.
    pub offer: LinkOffer,
}

/// What happened at the other end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerEventKind {
    /// The link was dropped there; it wants to train again if the offer says so.
    Dropped,
    /// Only the offer changed.
    Offer,
    /// The cable was pulled.
    Unplugged,
    /// The cable was plugged in again.
    Plugged,
}

/// What an end of a link is ready to do; both ends compute the common link from the two offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkOffer {
    /// Physical state wanted while the link is down: 1 Sleep, 2 Polling, 3 Disabled.
    pub want: u8,
    /// LinkWidthEnabled.
    pub width: u8,
    /// LinkSpeedEnabled.
    pub speed: u8,
    /// LinkSpeedExtEnabled in bits 4:0 and LinkSpeedExtEnabled2 in bits 7:5.
    pub speed_ext: u8,
    /// FDR10 enabled (MlnxExtPortInfo).
    pub fdr10: u8,
}

/// Something a worker may want to tell its clients or the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FabricEvent {
    /// State, LID, SM LID, LMC or another attribute of the port changed.
    PortChanged {
        /// Node of the port.
        node: NodeId,
        /// Port number.
        port: u8,
    },
    /// An SM asked the clients of the port to register again.
    ClientReregister {
        /// Node of the port.
        node: NodeId,
        /// Port number.
        port: u8,
    },
}

/// Receiver of everything that leaves a shard.
pub trait Sink {
    /// Offers a packet to the agents of `(node, port)`; true if some agent took it.
    fn deliver(&mut self, node: NodeId, port: u8, pkt: &Packet) -> bool;

    /// Hands over a packet that arrives at `(node, port)`, owned by another shard.
    fn to_shard(&mut self, shard: usize, node: NodeId, port: u8, pkt: &Packet);

    /// Hands over a link event for a port owned by another shard.
    fn peer_event(&mut self, shard: usize, event: PeerEvent);

    /// Says that a packet was dropped at `node`.
    fn dropped(&mut self, node: NodeId, reason: DropReason);

    /// Whether `tenant` may send SMP requests to the node with this GUID; asked by the node that a packet with
    /// [`right::CHECK_NODE`](crate::right::CHECK_NODE) addresses. Everything is allowed unless overridden.
    fn may_manage(&mut self, _tenant: u16, _node_guid: u64) -> bool {
        true
    }

    /// Says that `node` refuses the P_Key `got`, of whose partition it has `had`, or which it has first in its table;
    /// ignored unless overridden. The drop is reported besides.
    fn p_key_mismatch(&mut self, _node: NodeId, _got: u16, _had: u16) {}

    /// Says that a packet of `bytes` bytes leaves its sender by the pinned route `index`; ignored unless overridden.
    ///
    /// Said once per packet, in the shard of the sender; a reply that takes the route of its request backwards does not
    /// count.
    fn route_used(&mut self, _index: u32, _bytes: u32) {}

    /// Says that something changed; ignored unless overridden.
    fn event(&mut self, _event: FabricEvent) {}
}
