//! The agents inside every node: subnet management (SMA), performance (PMA), and the traps they send.
//!
//! All of them are methods of the shard that owns the node; they run on its worker's thread and never send by
//! themselves: an answer replaces the request in place, a trap is queued and leaves when the packet at hand is done.

pub(crate) mod m_key;
pub(crate) mod pma;
pub(crate) mod sma;
pub(crate) mod trap;

use madplane_shm::drop_reason::DropReason;

/// What an agent did with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SmaOutcome {
    /// The packet now holds the answer.
    Reply,
    /// No answer; counted if there is a reason.
    Silent(Option<DropReason>),
    /// Not the agent's business: some client may want it.
    ToAgent,
}
