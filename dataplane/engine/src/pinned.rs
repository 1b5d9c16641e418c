//! Pinned routes: traffic between two LIDs that follows a list of ports instead of forwarding tables.
//!
//! The types that the owner of a [`Shard`](crate::Shard) and a [`Packet`](crate::Packet) see; routes live in a shard and
//! are touched on its worker's thread only. Every shard holds every route, each resolves the hops between its own ports.
//! How a packet walks is in `shard/pinned.rs`; where routes come from and how they are published is not known here.

pub(crate) mod cabling;
pub(crate) mod table;

/// Longest path of a route.
pub const MAX_PATH: usize = 63;
/// Number of route indices; [`Shard::set_route`](crate::Shard::set_route) refuses what lies beyond.
pub const MAX_ROUTES: u32 = 1 << 16;

/// What happens to a packet whose pinned path cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBroken {
    /// It goes on by forwarding tables, from the node where the path ends.
    #[default]
    Fallback,
    /// It is dropped as `RouteBroken`.
    Drop,
}

/// An explicit path for what is sent from one LID to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedRoute {
    /// Source LID, unicast.
    pub slid: u16,
    /// Destination LID, unicast.
    pub dlid: u16,
    /// P_Key that a GMP has to match; 0 takes every key.
    pub p_key: u16,
    /// Priority; carried for the scheduler, not looked at here.
    pub priority: u8,
    /// What happens when the path cannot be followed.
    pub on_broken: OnBroken,
    /// Output port of the sender's node, then of each node on the way; on an adapter the first is the sending port.
    pub path: [u8; MAX_PATH],
    /// Number of hops, 1 to 63.
    pub path_len: u8,
}

impl Default for PinnedRoute {
    /// No hops and no LIDs: not a route that a shard takes.
    fn default() -> Self {
        Self {
            slid: 0,
            dlid: 0,
            p_key: 0,
            priority: 0,
            on_broken: OnBroken::Fallback,
            path: [0; MAX_PATH],
            path_len: 0,
        }
    }
}

/// How often packets found their route resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PinnedActivity {
    /// Packets whose route was resolved and no link had changed since.
    pub cache_hits: u64,
    /// Packets for which the route had to be resolved.
    pub cache_misses: u64,
}

/// Where a packet stands on its pinned route; belongs to the fabric, has to cross shards unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pin {
    /// Index of the route plus 1, 0 for a packet that is not pinned.
    pub(crate) route: u32,
    /// Port of the sender of the forward direction, counted over the whole fabric.
    pub(crate) origin: u32,
    /// Nodes between the sender of the forward direction and the packet.
    pub(crate) hop: u8,
    /// The packet is a reply and goes back by the way of the request.
    pub(crate) reverse: bool,
}
