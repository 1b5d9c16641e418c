//! Pinned routes: traffic between two LIDs that follows a list of ports instead of forwarding tables.
//!
//! The types that the owner of a [`Shard`](crate::Shard) and a [`Packet`](crate::Packet) see; routes live in a shard and
//! are touched on its worker's thread only. Every shard holds every route, each resolves the hops between its own ports.
//! How a packet walks is in `shard/pinned.rs`; where routes come from and how they are published is not known here.

pub(crate) mod cabling;
mod index;
pub(crate) mod table;

/// Longest path of a route.
pub const MAX_PATH: usize = 63;
/// Number of paths that [`Shard::bind`](crate::Shard::bind) takes.
pub const MAX_BOUND: u16 = 1024;
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
    /// Tenant whose MADs alone it serves; 0 serves everybody's.
    pub tenant: u16,
    /// Above 0 it serves MADs of the reserved class only.
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
            tenant: 0,
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
///
/// One word, written and read as a whole: a processor that has just stored the parts would wait to load them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pin(u64);

impl Pin {
    /// Not on a pinned route.
    pub(crate) const NONE: Self = Self(0);

    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The place, which means something only if this is not [`Pin::NONE`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "each part is cut to its own bits")]
    pub(crate) fn place(self) -> Place {
        Place {
            route: (self.0 >> 41) as u32,
            origin: self.0 as u32,
            hop: (self.0 >> 32) as u8,
            reverse: self.0 >> 40 & 1 != 0,
        }
    }
}

/// A [`Pin`] taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Index of the route plus 1.
    pub(crate) route: u32,
    /// Port of the sender of the forward direction, counted over the whole fabric.
    pub(crate) origin: u32,
    /// Nodes between the sender of the forward direction and the packet.
    pub(crate) hop: u8,
    /// The packet is a reply and goes back by the way of the request.
    pub(crate) reverse: bool,
}

impl From<Place> for Pin {
    #[inline(always)]
    fn from(place: Place) -> Self {
        let (route, hop) = (u64::from(place.route) << 41, u64::from(place.hop) << 32);
        Self(route | u64::from(place.reverse) << 40 | hop | u64::from(place.origin))
    }
}
