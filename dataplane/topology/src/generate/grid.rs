//! Regular grids: torus, hypercube, ring.

use super::build::{Builder, switch_name};
use super::params::{Params, bad};
use super::{DEFAULT_RATE, GenerateError};
use crate::graph::{LinkSpeed, LinkWidth, MAX_NODES, Topology};

/// A torus of any number of dimensions up to six; a dimension of two has one link, one of one has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torus {
    /// Switches along each dimension.
    pub dims: Vec<u64>,
    /// Hosts on each switch.
    pub hosts: u64,
    /// Rate of all links.
    pub rate: (LinkWidth, LinkSpeed),
}

impl Default for Torus {
    fn default() -> Self {
        Self { dims: vec![4, 4, 4], hosts: 1, rate: DEFAULT_RATE }
    }
}

impl Torus {
    pub(super) fn from_params(params: &Params<'_>) -> Result<Self, GenerateError> {
        let default = Self::default();
        let dims = match params.text("dims") {
            None => default.dims,
            Some(text) => text
                .split('x')
                .map(|size| size.parse().ok())
                .collect::<Option<Vec<u64>>>()
                .ok_or_else(|| bad("dims", text, "sizes such as 4x4x4"))?,
        };
        let hosts = params.number("hosts", 0..=253)?.unwrap_or(default.hosts);
        Ok(Self { dims, hosts, rate: params.rate()? })
    }

    /// Makes the fabric; ports 2d + 1 and 2d + 2 of a switch lead up and down dimension d, the hosts follow.
    ///
    /// # Errors
    /// [`GenerateError`] for no or more than six dimensions, a size of 0, or too many nodes or ports.
    pub fn build(&self) -> Result<Topology, GenerateError> {
        let text = || self.dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        if self.dims.is_empty() || self.dims.len() > 6 || self.dims.contains(&0) {
            return Err(bad("dims", text(), "one to six sizes of at least 1, such as 4x4x4"));
        }
        let switches = self.dims.iter().fold(1u64, |all, size| all.saturating_mul(*size));
        let mut builder = Builder::new(switches, switches.saturating_mul(self.hosts), self.rate)?;
        let mesh_ports = 2 * u64::try_from(self.dims.len()).unwrap_or(u64::MAX);
        for index in 0..switches {
            let mut rest = index;
            let mut name = String::from("sw");
            for size in &self.dims {
                name.push_str(&format!("-{}", rest % size));
                rest /= size;
            }
            builder.switch(name, mesh_ports + self.hosts)?;
        }
        for index in 0..switches {
            let mut unit = 1;
            for (size, port) in self.dims.iter().zip((1..).step_by(2)) {
                let digit = index / unit % size;
                let next = index - digit * unit + (digit + 1) % size * unit;
                let wraps = digit + 1 == *size;
                if *size > 2 || (*size == 2 && !wraps) {
                    builder.cable(node(index), port, node(next), port + 1);
                }
                unit *= size;
            }
        }
        attach_hosts(&mut builder, switches, self.hosts, mesh_ports);
        Ok(builder.finish())
    }
}

/// A hypercube: 2^dim switches, linked where their numbers differ in one bit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hypercube {
    /// Dimensions, 1 to 15.
    pub dim: u8,
    /// Hosts on each switch.
    pub hosts: u64,
    /// Rate of all links.
    pub rate: (LinkWidth, LinkSpeed),
}

impl Default for Hypercube {
    fn default() -> Self {
        Self { dim: 4, hosts: 1, rate: DEFAULT_RATE }
    }
}

impl Hypercube {
    pub(super) fn from_params(params: &Params<'_>) -> Result<Self, GenerateError> {
        let default = Self::default();
        Ok(Self {
            dim: params.number("dim", 1..=15)?.unwrap_or(default.dim),
            hosts: params.number("hosts", 0..=253)?.unwrap_or(default.hosts),
            rate: params.rate()?,
        })
    }

    /// Makes the fabric; port d + 1 of a switch crosses dimension d, the hosts follow.
    ///
    /// # Errors
    /// [`GenerateError`] for another number of dimensions, or too many nodes or ports.
    pub fn build(&self) -> Result<Topology, GenerateError> {
        if !(1..=15).contains(&self.dim) {
            return Err(bad("dim", self.dim, "a number from 1 to 15"));
        }
        let dim = u64::from(self.dim);
        let switches = 1u64 << dim;
        let mut builder = Builder::new(switches, switches.saturating_mul(self.hosts), self.rate)?;
        for index in 0..switches {
            builder
                .switch(format!("cube-{index:0width$b}", width = usize::from(self.dim)), dim + self.hosts)?;
        }
        for index in 0..switches {
            for bit in (0..dim).filter(|bit| index & (1 << bit) == 0) {
                builder.cable(node(index), bit + 1, node(index | (1 << bit)), bit + 1);
            }
        }
        attach_hosts(&mut builder, switches, self.hosts, dim);
        Ok(builder.finish())
    }
}

/// A ring of switches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// Switches, 2 at least; two have one link.
    pub switches: u64,
    /// Hosts on each switch.
    pub hosts: u64,
    /// Rate of all links.
    pub rate: (LinkWidth, LinkSpeed),
}

impl Default for Ring {
    fn default() -> Self {
        Self { switches: 8, hosts: 1, rate: DEFAULT_RATE }
    }
}

impl Ring {
    pub(super) fn from_params(params: &Params<'_>) -> Result<Self, GenerateError> {
        let default = Self::default();
        let limit = u64::try_from(MAX_NODES).unwrap_or(u64::MAX);
        Ok(Self {
            switches: params.number("switches", 2..=limit)?.unwrap_or(default.switches),
            hosts: params.number("hosts", 0..=252)?.unwrap_or(default.hosts),
            rate: params.rate()?,
        })
    }

    /// Makes the fabric; port 1 leads on, port 2 back, the hosts follow.
    ///
    /// # Errors
    /// [`GenerateError`] for fewer than two switches, or too many nodes or ports.
    pub fn build(&self) -> Result<Topology, GenerateError> {
        let count = self.switches;
        if count < 2 {
            return Err(bad("switches", count, format!("a number from 2 to {MAX_NODES}")));
        }
        let mut builder = Builder::new(count, count.saturating_mul(self.hosts), self.rate)?;
        for index in 0..count {
            builder.switch(switch_name("ring", index, count), self.hosts.saturating_add(2))?;
        }
        for index in 0..if count == 2 { 1 } else { count } {
            builder.cable(node(index), 1, node((index + 1) % count), 2);
        }
        attach_hosts(&mut builder, count, self.hosts, 2);
        Ok(builder.finish())
    }
}

fn node(index: u64) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Attaches `hosts` to each of the first `switches` nodes, on the ports behind `used`.
pub(super) fn attach_hosts(builder: &mut Builder, switches: u64, hosts: u64, used: u64) {
    for index in 0..switches {
        for host in 0..hosts {
            builder.host(node(index), used + host + 1);
        }
    }
}
