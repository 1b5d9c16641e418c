//! Connected random graphs from a seed.

use super::build::{Builder, switch_name};
use super::grid::attach_hosts;
use super::params::{Params, bad};
use super::{DEFAULT_RATE, GenerateError};
use crate::graph::{LinkSpeed, LinkWidth, MAX_NODES, Topology};

/// A random fabric: a random tree over all switches, and further links between random pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random {
    /// Switches, 1 at least.
    pub switches: u64,
    /// Hosts on each switch.
    pub hosts: u64,
    /// Links between switches beyond the tree; pairs may repeat, no switch links to itself.
    pub links: u64,
    /// Seed; equal seeds give equal fabrics.
    pub seed: u64,
    /// Rate of all links.
    pub rate: (LinkWidth, LinkSpeed),
}

impl Default for Random {
    fn default() -> Self {
        Self { switches: 16, hosts: 2, links: 16, seed: 1, rate: DEFAULT_RATE }
    }
}

impl Random {
    pub(super) fn from_params(params: &Params<'_>) -> Result<Self, GenerateError> {
        let default = Self::default();
        let limit = u64::try_from(MAX_NODES).unwrap_or(u64::MAX);
        Ok(Self {
            switches: params.number("switches", 1..=limit)?.unwrap_or(default.switches),
            hosts: params.number("hosts", 0..=253)?.unwrap_or(default.hosts),
            links: params.number("links", 0..=6_000_000)?.unwrap_or(default.links),
            seed: params.number("seed", 0..=u64::MAX)?.unwrap_or(default.seed),
            rate: params.rate()?,
        })
    }

    /// Makes the fabric; hosts have the first ports of a switch.
    ///
    /// # Errors
    /// [`GenerateError`] for no switch, too many nodes or ports, or more links than there are ports for.
    pub fn build(&self) -> Result<Topology, GenerateError> {
        if self.switches == 0 {
            return Err(bad("switches", 0, format!("a number from 1 to {MAX_NODES}")));
        }
        let hosts = self.switches.saturating_mul(self.hosts);
        let mut builder = Builder::new(self.switches, hosts, self.rate)?;
        let room = 254 - self.hosts.min(254);
        let mut random = SplitMix { state: self.seed };
        let mut used = vec![0u64; usize::try_from(self.switches).unwrap_or(usize::MAX)];
        let mut pairs = Vec::new();
        for b in 1..used.len() {
            // Looks on from a random place for one with room; the newest always has some.
            let start = random.below(b);
            let a = (0..b).map(|step| (start + step) % b).find(|a| used[*a] < room);
            let Some(a) = a else { return Err(GenerateError::TooManyPorts { ports: 255 }) };
            used[a] += 1;
            used[b] += 1;
            pairs.push((a, b));
        }
        let mut open: Vec<usize> = (0..used.len()).filter(|index| used[*index] < room).collect();
        for _ in 0..self.links {
            if open.len() < 2 {
                let wanted =
                    format!("fewer links, these switches have no ports for more than {}", pairs.len());
                return Err(bad("links", self.links, wanted));
            }
            let first = random.below(open.len());
            let second = (first + 1 + random.below(open.len() - 1)) % open.len();
            let (a, b) = (open[first], open[second]);
            used[a] += 1;
            used[b] += 1;
            pairs.push((a, b));
            open.retain(|index| (*index != a && *index != b) || used[*index] < room);
        }
        for (index, used) in (0..self.switches).zip(&used) {
            builder.switch(switch_name("sw", index, self.switches), (self.hosts + used).max(1))?;
        }
        let mut next = vec![self.hosts + 1; used.len()];
        for (a, b) in pairs {
            let node = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
            builder.cable(node(a), next[a], node(b), next[b]);
            next[a] += 1;
            next[b] += 1;
        }
        attach_hosts(&mut builder, self.switches, self.hosts, 0);
        Ok(builder.finish())
    }
}

/// The splitmix64 generator: small, and the same everywhere.
#[derive(Debug)]
struct SplitMix {
    state: u64,
}

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        let wide = u128::from(self.next()) * u128::from(bound);
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}
