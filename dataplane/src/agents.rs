//! Who registered for what: agents of sessions, and which of them gets a MAD.
//!
//! An agent is named by its `hi_tid`, which is also the upper half of the transaction ids of its requests, so that a
//! response finds its way back by the transaction id alone, whatever its class. A request finds an agent by class, class
//! version and method (and OUI for vendor range 2), among the agents of the port at which it arrived. Owned by a worker.

use madplane_engine::NodeId;
use madplane_shm::status::MAX_SESSIONS;
use madplane_wire::mad::is_vendor2;
use madplane_wire::{Mad, MadBuf};
use rustc_hash::FxHashMap;

/// Agents per session, as in the kernel.
pub const AGENTS_PER_SESSION: u32 = 32;

const AGENT_BITS: u32 = 5;
const SLOT_BITS: u32 = 10;
/// Generations of a session slot; 0 is never used, so that no `hi_tid` is 0.
pub const GENERATIONS: u32 = 512;

const _: () = {
    assert!(1 << AGENT_BITS == AGENTS_PER_SESSION);
    assert!(1 << SLOT_BITS == MAX_SESSIONS);
    assert!(GENERATIONS.ilog2() + SLOT_BITS + AGENT_BITS == 24, "the kernel's ids have 24 bits");
};

/// Name of an agent: session slot, generation of the slot, number within the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentId {
    /// Session slot, below [`MAX_SESSIONS`].
    pub slot: u32,
    /// 1 to [`GENERATIONS`] - 1.
    pub generation: u32,
    /// Below [`AGENTS_PER_SESSION`].
    pub agent: u32,
}

impl AgentId {
    /// The id as it travels.
    pub const fn hi_tid(self) -> u32 {
        (self.generation << (SLOT_BITS + AGENT_BITS)) | (self.slot << AGENT_BITS) | self.agent
    }

    /// Takes a travelling id apart; any 32 bits give an id, which need not exist.
    pub const fn from_hi_tid(hi_tid: u32) -> Self {
        Self {
            slot: (hi_tid >> AGENT_BITS) & ((1 << SLOT_BITS) - 1),
            generation: hi_tid >> (SLOT_BITS + AGENT_BITS),
            agent: hi_tid & (AGENTS_PER_SESSION - 1),
        }
    }
}

/// What an agent wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentSpec {
    /// Queue pair, 0 or 1.
    pub qpn: u8,
    /// Management class; 0 for an agent that only sends.
    pub mgmt_class: u8,
    /// Class version.
    pub class_version: u8,
    /// Methods wanted as requests, bit m % 64 of word m / 64; empty for an agent that wants responses only.
    pub method_mask: [u64; 2],
    /// OUI for vendor range 2.
    pub oui: u32,
}

/// Why an agent cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Queue pair is neither 0 nor 1, or the class does not belong to it.
    #[error("class {class:#04x} does not belong to queue pair {qpn}")]
    ClassQp {
        /// The class.
        class: u8,
        /// The queue pair.
        qpn: u8,
    },
    /// Vendor range 2 without an OUI.
    #[error("class {0:#04x} needs an OUI")]
    NoOui(u8),
    /// Another agent of the port has a method of the class.
    #[error("another agent of this port has method {method:#04x} of class {class:#04x}")]
    Taken {
        /// The class.
        class: u8,
        /// The first method that is taken.
        method: u8,
    },
    /// The kernel does not register it at the device.
    #[error("the kernel does not register class {class:#04x} at the device: {}", kernel_says(*errno))]
    Kernel {
        /// The class.
        class: u8,
        /// Its error number.
        errno: i32,
    },
}

fn kernel_says(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

impl RegisterError {
    /// The error number that the client is given.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Kernel { errno, .. } => *errno,
            _ => rustix::io::Errno::INVAL.raw_os_error(),
        }
    }
}

impl AgentSpec {
    /// Checks what can be checked without looking at other agents.
    ///
    /// # Errors
    /// As the kernel refuses: a class on the wrong queue pair, vendor range 2 without an OUI.
    pub fn check(&self) -> Result<(), RegisterError> {
        let class = self.mgmt_class;
        let smp = matches!(class, 0x01 | 0x81);
        if self.qpn > 1 || (class != 0 && smp != (self.qpn == 0)) {
            return Err(RegisterError::ClassQp { class, qpn: self.qpn });
        }
        if is_vendor2(class) && self.oui == 0 {
            return Err(RegisterError::NoOui(class));
        }
        Ok(())
    }

    pub(crate) fn wants_requests(&self) -> bool {
        self.mgmt_class != 0 && self.method_mask != [0; 2]
    }

    fn wants(&self, mad: Mad<'_>) -> bool {
        self.mgmt_class == mad.mgmt_class()
            && self.class_version == mad.class_version()
            && self.method_mask[usize::from(mad.method() >> 6) & 1] >> (mad.method() & 63) & 1 == 1
            && (!is_vendor2(self.mgmt_class) || self.oui == oui_of(mad.as_bytes()))
    }

    fn collides(&self, other: &Self) -> Option<u8> {
        if self.mgmt_class != other.mgmt_class
            || self.class_version != other.class_version
            || (is_vendor2(self.mgmt_class) && self.oui != other.oui)
        {
            return None;
        }
        (0..128u8).find(|m| {
            let both = self.method_mask[usize::from(m >> 6)] & other.method_mask[usize::from(m >> 6)];
            both >> (m & 63) & 1 == 1
        })
    }
}

fn oui_of(mad: &MadBuf) -> u32 {
    u32::from_be_bytes([0, mad[37], mad[38], mad[39]])
}

/// Agents that take requests, by port.
#[derive(Debug, Default)]
pub struct RequestTable {
    ports: FxHashMap<(NodeId, u8), Vec<(AgentId, AgentSpec)>>,
}

impl RequestTable {
    /// Adds an agent.
    ///
    /// # Errors
    /// [`RegisterError`] as the kernel refuses; nothing is then changed.
    pub fn add(&mut self, node: NodeId, port: u8, id: AgentId, spec: AgentSpec) -> Result<(), RegisterError> {
        spec.check()?;
        if !spec.wants_requests() {
            return Ok(());
        }
        let there = self.ports.entry((node, port)).or_default();
        if let Some(method) = there.iter().find_map(|(_, other)| spec.collides(other)) {
            return Err(RegisterError::Taken { class: spec.mgmt_class, method });
        }
        there.push((id, spec));
        Ok(())
    }

    /// Removes an agent if it is there.
    pub fn remove(&mut self, node: NodeId, port: u8, id: AgentId) {
        if let Some(there) = self.ports.get_mut(&(node, port)) {
            there.retain(|(other, _)| *other != id);
            if there.is_empty() {
                self.ports.remove(&(node, port));
            }
        }
    }

    /// The agent that gets this request.
    pub fn find(&self, node: NodeId, port: u8, mad: Mad<'_>) -> Option<AgentId> {
        let there = self.ports.get(&(node, port))?;
        there.iter().find(|(_, spec)| spec.wants(mad)).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32, agent: u32) -> AgentId {
        AgentId { slot, generation: 3, agent }
    }

    fn spec(class: u8, methods: &[u8]) -> AgentSpec {
        let mut spec = AgentSpec {
            qpn: u8::from(!matches!(class, 1 | 0x81)),
            mgmt_class: class,
            class_version: 1,
            ..AgentSpec::default()
        };
        for method in methods {
            spec.method_mask[usize::from(method >> 6)] |= 1 << (method & 63);
        }
        spec
    }

    fn mad(class: u8, method: u8) -> MadBuf {
        let mut bytes = [0u8; 256];
        bytes[..4].copy_from_slice(&[1, class, 1, method]);
        bytes
    }

    #[test]
    fn an_id_survives_the_way_through_a_transaction_id() {
        let id = AgentId { slot: 1023, generation: 511, agent: 31 };
        assert_eq!(id.hi_tid(), 0xff_ffff);
        assert_eq!(AgentId::from_hi_tid(id.hi_tid()), id);
        assert_ne!(AgentId { slot: 0, generation: 1, agent: 0 }.hi_tid(), 0);
    }

    #[test]
    fn a_request_goes_to_the_agent_of_its_port_class_version_and_method() {
        let mut table = RequestTable::default();
        table.add(7, 1, id(1, 0), spec(0x81, &[1, 5])).unwrap();
        table.add(7, 1, id(2, 0), spec(0x01, &[1])).unwrap();
        assert_eq!(table.find(7, 1, Mad::new(&mad(0x81, 5))), Some(id(1, 0)));
        assert_eq!(table.find(7, 1, Mad::new(&mad(0x01, 1))), Some(id(2, 0)));
        assert_eq!(table.find(7, 1, Mad::new(&mad(0x81, 2))), None);
        assert_eq!(table.find(7, 2, Mad::new(&mad(0x81, 5))), None);
        let mut other_version = mad(0x81, 5);
        other_version[2] = 2;
        assert_eq!(table.find(7, 1, Mad::new(&other_version)), None);
        table.remove(7, 1, id(1, 0));
        assert_eq!(table.find(7, 1, Mad::new(&mad(0x81, 5))), None);
    }

    #[test]
    fn a_method_has_one_owner_and_responses_only_never_collide() {
        let mut table = RequestTable::default();
        table.add(7, 1, id(1, 0), spec(0x04, &[1, 100])).unwrap();
        let error = table.add(7, 1, id(2, 0), spec(0x04, &[100])).unwrap_err();
        assert_eq!(error, RegisterError::Taken { class: 4, method: 100 });
        table.add(7, 1, id(2, 1), spec(0x04, &[])).unwrap();
        table.add(7, 2, id(2, 2), spec(0x04, &[100])).unwrap();
        table.add(8, 1, id(2, 3), spec(0x04, &[100])).unwrap();
    }

    #[test]
    fn vendor_classes_are_told_apart_by_oui() {
        let mut table = RequestTable::default();
        assert_eq!(table.add(7, 1, id(1, 0), spec(0x32, &[1])), Err(RegisterError::NoOui(0x32)));
        table.add(7, 1, id(1, 0), AgentSpec { oui: 0x1405, ..spec(0x32, &[1]) }).unwrap();
        table.add(7, 1, id(1, 1), AgentSpec { oui: 0x1406, ..spec(0x32, &[1]) }).unwrap();
        let mut ping = mad(0x32, 1);
        ping[37..40].copy_from_slice(&[0, 0x14, 0x06]);
        assert_eq!(table.find(7, 1, Mad::new(&ping)), Some(id(1, 1)));
    }

    #[test]
    fn a_class_on_the_wrong_queue_pair_is_refused() {
        for (class, qpn) in [(0x01, 1), (0x81, 1), (0x04, 0), (0x03, 0), (0x04, 2)] {
            let wrong = AgentSpec { qpn, ..spec(class, &[1]) };
            assert!(matches!(wrong.check(), Err(RegisterError::ClassQp { .. })), "{class:#x} on {qpn}");
        }
        assert_eq!(AgentSpec { qpn: 0, ..spec(0, &[]) }.check(), Ok(()));
    }
}
