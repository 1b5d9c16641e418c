//! One session as its worker knows it.

use madplane_engine::NodeId;
use madplane_port::session::{SessionRx, SessionTx};

use crate::agents::{AGENTS_PER_SESSION, AgentId, AgentSpec};

/// A client's rings, where it sits, and its agents.
#[derive(Debug)]
pub struct Session {
    /// Slot in the session table of the plane.
    pub slot: u32,
    /// Generation of the slot.
    pub generation: u32,
    /// Node it is attached to.
    pub node: NodeId,
    /// Port there; 0 on a switch.
    pub port: u8,
    /// Receiving half.
    pub rx: SessionRx,
    /// Everything a sender to this session needs.
    pub out: SessionOut,
    /// MADs taken from it.
    pub received: u64,
}

/// The half of a session that others send to.
#[derive(Debug)]
pub struct SessionOut {
    /// Generation of the slot.
    pub generation: u32,
    /// Node it is attached to.
    pub node: NodeId,
    /// Port there.
    pub port: u8,
    /// Sending half.
    pub tx: SessionTx,
    /// Its agents by number.
    pub agents: [Option<AgentSpec>; AGENTS_PER_SESSION as usize],
    /// MADs were given since the last flush.
    pub dirty: bool,
    /// MADs given to it.
    pub sent: u64,
    /// MADs it did not make room for.
    pub dropped: u64,
}

impl SessionOut {
    /// The agent, if this session has it.
    pub fn agent(&self, id: AgentId) -> Option<&AgentSpec> {
        if self.generation != id.generation {
            return None;
        }
        self.agents.get(id.agent as usize)?.as_ref()
    }
}
