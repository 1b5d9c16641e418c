//! Dragonfly+: groups of leaves and spines, every pair of groups linked through spines.

use super::build::{Builder, switch_name};
use super::params::{Params, bad};
use super::{DEFAULT_RATE, GenerateError};
use crate::graph::{LinkSpeed, LinkWidth, Topology};

/// A dragonfly+ fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DragonflyPlus {
    /// Groups, 1 at least.
    pub groups: u64,
    /// Leaf switches in a group, each linked to every spine of the group.
    pub leaf: u64,
    /// Spine switches in a group.
    pub spine: u64,
    /// Hosts on each leaf.
    pub hosts: u64,
    /// Links between each pair of groups, spread over the spines in turn.
    pub global: u64,
    /// Rate of all links.
    pub rate: (LinkWidth, LinkSpeed),
}

impl Default for DragonflyPlus {
    fn default() -> Self {
        Self { groups: 5, leaf: 4, spine: 4, hosts: 4, global: 1, rate: DEFAULT_RATE }
    }
}

impl DragonflyPlus {
    pub(super) fn from_params(params: &Params<'_>) -> Result<Self, GenerateError> {
        let default = Self::default();
        Ok(Self {
            groups: params.number("groups", 1..=10_000)?.unwrap_or(default.groups),
            leaf: params.number("leaf", 1..=254)?.unwrap_or(default.leaf),
            spine: params.number("spine", 1..=254)?.unwrap_or(default.spine),
            hosts: params.number("hosts", 0..=253)?.unwrap_or(default.hosts),
            global: params.number("global", 1..=254)?.unwrap_or(default.global),
            rate: params.rate()?,
        })
    }

    /// Makes the fabric.
    ///
    /// A leaf has its spines on the first ports, then its hosts; a spine has its leaves first, then other groups.
    ///
    /// # Errors
    /// [`GenerateError`] for an empty group, or too many nodes or ports.
    pub fn build(&self) -> Result<Topology, GenerateError> {
        for (name, value) in
            [("groups", self.groups), ("leaf", self.leaf), ("spine", self.spine), ("global", self.global)]
        {
            if value == 0 {
                return Err(bad(name, value, "at least 1"));
            }
        }
        let per_group = self.leaf.saturating_add(self.spine);
        let switches = self.groups.saturating_mul(per_group);
        let leaves = self.groups.saturating_mul(self.leaf);
        let mut builder = Builder::new(switches, leaves.saturating_mul(self.hosts), self.rate)?;
        let outward = (self.groups - 1).saturating_mul(self.global);
        let outward_of_spine = outward.div_ceil(self.spine);
        for group in 0..self.groups {
            let group_name = switch_name("g", group, self.groups);
            for index in 0..self.leaf {
                let name = format!("{group_name}-{}", switch_name("leaf", index, self.leaf));
                builder.switch(name, self.spine.saturating_add(self.hosts))?;
            }
            for index in 0..self.spine {
                let name = format!("{group_name}-{}", switch_name("spine", index, self.spine));
                builder.switch(name, self.leaf.saturating_add(outward_of_spine))?;
            }
        }
        let node = |index: u64| u32::try_from(index).unwrap_or(u32::MAX);
        let leaf = |group: u64, index: u64| node(group * per_group + index);
        let spine = |group: u64, index: u64| node(group * per_group + self.leaf + index);
        for group in 0..self.groups {
            for l in 0..self.leaf {
                for s in 0..self.spine {
                    builder.cable(leaf(group, l), s + 1, spine(group, s), l + 1);
                }
            }
        }
        // The outward links of a group are numbered by the distance to the other group.
        let outward_end = |from: u64, to: u64, link: u64| {
            let number = (to + self.groups - from - 1) % self.groups * self.global + link;
            (spine(from, number % self.spine), self.leaf + number / self.spine + 1)
        };
        for a in 0..self.groups {
            for b in a + 1..self.groups {
                for link in 0..self.global {
                    let (from, from_port) = outward_end(a, b, link);
                    let (to, to_port) = outward_end(b, a, link);
                    builder.cable(from, from_port, to, to_port);
                }
            }
        }
        for group in 0..self.groups {
            for l in 0..self.leaf {
                for host in 0..self.hosts {
                    builder.host(leaf(group, l), self.spine + host + 1);
                }
            }
        }
        Ok(builder.finish())
    }
}
