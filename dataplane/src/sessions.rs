//! One session as its worker knows it.

use std::sync::Arc;

use madplane_engine::NodeId;
use madplane_port::session::{SessionRx, SessionTx};
use madplane_shm::doorbell::Doorbell;

use crate::acl::Membership;
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
    /// Rung by the client for a worker that sleeps; none for a session that cannot wake.
    pub bell: Option<Arc<Doorbell>>,
    /// Everything a sender to this session needs.
    pub out: SessionOut,
    /// MADs taken from it.
    pub received: u64,
}

impl Session {
    /// A session in `slot`, in its `generation`, at `(node, port)`, that has no agents yet and belongs to no tenant.
    pub fn new(slot: u32, generation: u32, (node, port): (NodeId, u8), rx: SessionRx, tx: SessionTx) -> Self {
        let out = SessionOut {
            generation,
            node,
            port,
            tx,
            agents: [None; AGENTS_PER_SESSION as usize],
            member: Membership::NONE,
            reserved: false,
            dirty: false,
            sent: 0,
            dropped: 0,
        };
        Self { slot, generation, node, port, rx, bell: None, out, received: 0 }
    }
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
    /// As whom it is attached.
    pub member: Membership,
    /// It is of the reserved class.
    pub reserved: bool,
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
