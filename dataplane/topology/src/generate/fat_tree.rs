//! Fat trees of full bisection: every switch below the top has half its ports up and half down.

use super::build::{Builder, switch_name};
use super::params::{Params, bad};
use super::{DEFAULT_RATE, GenerateError};
use crate::graph::{LinkSpeed, LinkWidth, Topology};

/// A fat tree; with the default, 648 hosts on 36 leaves and 18 spines of 36 ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FatTree {
    /// Ports of a switch: even, 2 to 254.
    pub radix: u8,
    /// Levels of switches: 2, 3 or 4.
    pub levels: u8,
    /// Hosts, attached leaf by leaf; all there is room for if `None`.
    pub hosts: Option<u64>,
    /// Rate of all links.
    pub rate: (LinkWidth, LinkSpeed),
}

impl Default for FatTree {
    fn default() -> Self {
        Self { radix: 36, levels: 2, hosts: None, rate: DEFAULT_RATE }
    }
}

impl FatTree {
    pub(super) fn from_params(params: &Params<'_>) -> Result<Self, GenerateError> {
        let default = Self::default();
        let radix = params.number("radix", 2..=254)?.unwrap_or(default.radix);
        Ok(Self {
            radix,
            levels: params.number("levels", 2..=4)?.unwrap_or(default.levels),
            hosts: params.number("hosts", 0..=u64::MAX)?,
            rate: params.rate()?,
        })
    }

    /// Makes the fabric.
    ///
    /// A switch of one level is told from its neighbours by `levels - 1` digits; going up from level l changes digit l
    /// only, which is what makes every pair of leaves reachable over every top switch.
    ///
    /// # Errors
    /// [`GenerateError::BadValue`] for an odd radix, other levels, or more hosts than ports; [`GenerateError::TooManyNodes`].
    pub fn build(&self) -> Result<Topology, GenerateError> {
        if self.radix < 2 || !self.radix.is_multiple_of(2) || self.radix > 254 {
            return Err(bad("radix", self.radix, "an even number from 2 to 254"));
        }
        if !(2..=4).contains(&self.levels) {
            return Err(bad("levels", self.levels, "a number from 2 to 4"));
        }
        let levels = u32::from(self.levels);
        let half = u64::from(self.radix) / 2;
        let top = half.pow(levels - 1);
        let lower = 2 * top;
        let room = lower * half;
        let hosts = self.hosts.unwrap_or(room);
        if hosts > room {
            return Err(bad("hosts", hosts, format!("at most {room} for this radix and number of levels")));
        }
        let switches = lower * u64::from(levels - 1) + top;
        let mut builder = Builder::new(switches, hosts, self.rate)?;
        let roles: &[&str] = match self.levels {
            2 => &["leaf", "spine"],
            3 => &["leaf", "agg", "core"],
            _ => &["leaf", "agg", "mid", "core"],
        };
        let mut first = Vec::new();
        for (level, role) in (1u32..).zip(roles) {
            let count = if level == levels { top } else { lower };
            for index in 0..count {
                let node = builder.switch(switch_name(role, index, count), u64::from(self.radix))?;
                if index == 0 {
                    first.push(u64::from(node));
                }
            }
        }
        let node = |level: usize, index: u64| u32::try_from(first[level] + index).unwrap_or(u32::MAX);
        for host in 0..hosts {
            builder.host(node(0, host / half), host % half + 1);
        }
        for (level, place) in (0..levels - 1).zip(0usize..) {
            let unit = half.pow(level);
            for index in 0..lower {
                let last = level == levels - 2;
                let digit = if last { index / unit } else { index / unit % half };
                for up in 0..half {
                    let above = index - digit * unit + up * unit;
                    builder.cable(node(place, index), half + up + 1, node(place + 1, above), digit + 1);
                }
            }
        }
        Ok(builder.finish())
    }
}
