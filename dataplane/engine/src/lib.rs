//! What a MAD means: the subnet management interface, LID relay, the agents inside a node, and a fabric made of them.
//!
//! [`FabricPlan`] divides a topology among workers; each worker owns one [`Shard`] and drives it with packets and time.
//! Everything leaves through the worker's [`Sink`]. The rules of the SMI are pure functions in [`smi`] and
//! [`lid_route`], usable without a fabric.
//!
//! Invariants: no I/O, no clock, no lock, no unsafe code; a malformed MAD is dropped or answered, it never panics; work
//! per packet is bounded. Traffic between two LIDs may be pinned to a path ([`Shard::set_route`]). Not here: sessions,
//! agents' registrations, transaction matching, timeouts, faults.
//!
//! | item | who uses it | on which thread |
//! |---|---|---|
//! | [`FabricPlan`] | anyone, immutable | any |
//! | [`Shard`] | exactly one worker | that worker's |
//! | [`Packet`] | whoever holds it | any |
//! | [`PinnedRoute`] | who sets routes, copied into each shard | any |
#![forbid(unsafe_code)]

mod agent;
mod fuzz;
pub mod lid_route;
mod node;
mod packet;
pub mod partition;
mod pinned;
mod plan;
mod setup;
mod shard;
mod sink;
pub mod smi;

#[doc(hidden)]
pub use fuzz::fuzz_shard;
pub use packet::{Grh, Packet, right};
pub use pinned::table::RouteRoom;
pub use pinned::{MAX_BOUND, MAX_PATH, MAX_ROUTES, OnBroken, Pin, PinnedActivity, PinnedRoute};
pub use plan::{FabricOptions, FabricPlan, PlanError};
pub use shard::{LID_HOP_LIMIT, PortCounterSnapshot, Shard, StageCounts};
pub use sink::{FabricEvent, LinkOffer, PeerEvent, PeerEventKind, Sink};

/// Index of a node in `Topology::nodes`, the same in all shards.
pub type NodeId = u32;

/// Shard numbers from here on are ends outside of the fabric: [`Sink`] is given this plus the number of the link, see
/// [`Shard::attach_external`].
pub const EXTERNAL: usize = 1 << 16;
/// Links that a fabric may have to the outside.
pub const MAX_EXTERNAL: u16 = 64;
