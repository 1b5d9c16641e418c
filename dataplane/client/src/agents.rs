//! The agents of a session: up to 32, numbered like those of one open umad file.
//!
//! Owned by the session's core, used under its lock. Invariants: an index is below [`MAX_AGENTS`] and means one agent
//! until that is removed; `hi_tid` is never 0 for a registered agent. What it does not do: talk to the plane.

use madplane_wire::mad;

use crate::error::RegisterError;

/// Most agents of a session.
pub const MAX_AGENTS: usize = 32;

/// What an agent wants to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentSpec {
    /// Queue pair: 0 for the subnet management classes, 1 for every other class.
    pub qpn: u8,
    /// Management class; 0 for an agent that only sends.
    pub mgmt_class: u8,
    /// Class version.
    pub class_version: u8,
    /// 1 to let this library do RMPP, 0 to see single segments.
    pub rmpp_version: u8,
    /// See single segments although `rmpp_version` is 1 (umad's USER_RMPP).
    pub user_rmpp: bool,
    /// Methods wanted as requests: bit m % 64 of word m / 64. Zero: responses only.
    pub method_mask: [u64; 2],
    /// OUI for classes of vendor range 2, in the low 24 bits.
    pub oui: u32,
}

impl AgentSpec {
    /// Checks what can be known without the plane; the kernel's rules.
    pub(crate) fn check(&self) -> Result<(), RegisterError> {
        let Self { qpn, mgmt_class, rmpp_version, .. } = *self;
        if qpn > 1 || (mgmt_class != 0 && mad::is_smp_class(mgmt_class) != (qpn == 0)) {
            return Err(RegisterError::QueuePair { mgmt_class, qpn });
        }
        let rmpp_possible = mgmt_class == 0 || mad::is_rmpp_class(mgmt_class);
        if rmpp_version > 1 || (rmpp_version == 1 && !rmpp_possible) {
            return Err(RegisterError::Rmpp { mgmt_class, rmpp_version });
        }
        if mad::is_vendor2(mgmt_class) && self.oui & 0x00ff_ffff == 0 {
            return Err(RegisterError::NoOui(mgmt_class));
        }
        Ok(())
    }
}

/// A registered agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agent {
    pub(crate) hi_tid: u32,
    pub(crate) rmpp: bool,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Agents {
    table: [Option<Agent>; MAX_AGENTS],
    last_hit: usize,
}

impl Agents {
    pub(crate) fn new() -> Self {
        Self { table: [None; MAX_AGENTS], last_hit: 0 }
    }

    pub(crate) fn get(&self, index: u32) -> Option<Agent> {
        self.table.get(usize::try_from(index).ok()?).copied().flatten()
    }

    /// Lowest free index.
    pub(crate) fn free_index(&self) -> Option<u32> {
        self.table.iter().position(Option::is_none).and_then(|index| u32::try_from(index).ok())
    }

    pub(crate) fn set(&mut self, index: u32, agent: Option<Agent>) {
        if let Some(place) = usize::try_from(index).ok().and_then(|index| self.table.get_mut(index)) {
            *place = agent;
        }
    }

    /// The agent that the plane knows by `hi_tid`.
    pub(crate) fn by_hi_tid(&mut self, hi_tid: u32) -> Option<(u32, Agent)> {
        if self.table[self.last_hit].is_none_or(|agent| agent.hi_tid != hi_tid) {
            self.last_hit =
                self.table.iter().position(|place| place.is_some_and(|agent| agent.hi_tid == hi_tid))?;
        }
        let agent = self.table[self.last_hit]?;
        Some((u32::try_from(self.last_hit).ok()?, agent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(qpn: u8, mgmt_class: u8, rmpp_version: u8, oui: u32) -> AgentSpec {
        AgentSpec { qpn, mgmt_class, class_version: 1, rmpp_version, oui, ..AgentSpec::default() }
    }

    #[test]
    fn the_kernels_registration_rules_hold() {
        for good in [
            (0, 0x01, 0, 0),
            (0, 0x81, 0, 0),
            (1, 0x03, 1, 0),
            (1, 0x32, 0, 0x1405),
            (1, 0, 1, 0),
            (0, 0, 0, 0),
        ] {
            assert!(spec(good.0, good.1, good.2, good.3).check().is_ok(), "{good:x?}");
        }
        for bad in [
            (1, 0x01, 0, 0),
            (0, 0x03, 0, 0),
            (2, 0x03, 0, 0),
            (1, 0x04, 1, 0),
            (1, 0x03, 2, 0),
            (1, 0x30, 0, 0),
        ] {
            let error = spec(bad.0, bad.1, bad.2, bad.3).check().unwrap_err();
            assert_eq!(error.errno(), 22, "{bad:x?}");
        }
    }

    #[test]
    fn a_removed_agent_is_found_no_more_and_its_index_is_the_next_to_be_given() {
        let mut agents = Agents::new();
        for index in 0..32 {
            assert_eq!(agents.free_index(), Some(index));
            agents.set(index, Some(Agent { hi_tid: 100 + index, rmpp: false }));
        }
        assert_eq!(agents.free_index(), None);
        assert_eq!(agents.by_hi_tid(107).unwrap().0, 7);
        agents.set(7, None);
        assert!(agents.by_hi_tid(107).is_none());
        assert_eq!(agents.free_index(), Some(7));
        assert!(agents.get(32).is_none());
    }
}
