//! A tenant as it is written and as it is valid.
//!
//! [`RawTenant`] is what the admin protocol says; [`Tenant`] is checked and has private fields; a line of text is read in
//! [`text`]. Pure functions and plain values. What a tenant may do is enforced by the plane, not here.

use std::fmt;

use madplane_shm::table::tenant::{
    MAX_MEMBERS, MAX_P_KEYS, MAX_PREFIX_PORTS, MAX_PREFIXES, NAME_BYTES, PathPrefix, TenantEntry,
    is_tenant_name, service_class, tenant_right,
};
use serde::{Deserialize, Serialize};

use crate::route::number;

mod classes;
pub mod file;
pub mod partitions;
pub mod text;

pub use classes::{CLASS_NAMES, Classes};
pub use text::{Names, NumbersOnly, parse, parse_line};

/// Limited member of the default partition.
pub const DEFAULT_P_KEY: u16 = 0x7fff;
/// Largest bucket of a tenant with a rate and no burst of its own.
pub const DEFAULT_BURST: u32 = 64;

/// Who is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// After the reserved class.
    #[default]
    Bulk,
    /// Before all others.
    Reserved,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bulk => "bulk",
            Self::Reserved => "reserved",
        })
    }
}

/// What a tenant may do with SMPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SmpRight {
    /// Nothing.
    #[default]
    #[serde(rename = "none")]
    None,
    /// Ask.
    #[serde(rename = "get")]
    Get,
    /// Ask and change.
    #[serde(rename = "get,set")]
    GetSet,
}

impl fmt::Display for SmpRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Get => "get",
            Self::GetSet => "get,set",
        })
    }
}

/// A tenant as the admin protocol carries it, nothing checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTenant {
    /// Its name.
    pub name: String,
    /// P_Keys with their membership bits.
    #[serde(default = "default_p_keys")]
    pub p_keys: Vec<u64>,
    /// Users.
    #[serde(default)]
    pub uids: Vec<u64>,
    /// Groups.
    #[serde(default)]
    pub gids: Vec<u64>,
    /// Management classes: `all`, names, numbers, ranges.
    #[serde(default = "default_classes")]
    pub classes: Vec<String>,
    /// What it may do with SMPs.
    #[serde(default)]
    pub smp: SmpRight,
    /// GUIDs of the nodes that its SMPs may be for, each `0x` and digits.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Beginnings of the directed routes that it may use.
    #[serde(default)]
    pub prefixes: Vec<Vec<u64>>,
    /// MADs a second, 0 for no limit.
    #[serde(default)]
    pub rate: u64,
    /// MADs at once, 0 for the default.
    #[serde(default)]
    pub burst: u64,
    /// When it is served.
    #[serde(default)]
    pub priority: Priority,
}

fn default_p_keys() -> Vec<u64> {
    vec![DEFAULT_P_KEY.into()]
}

fn default_classes() -> Vec<String> {
    vec!["all".to_owned()]
}

impl RawTenant {
    /// A tenant with nothing but a name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            p_keys: default_p_keys(),
            uids: Vec::new(),
            gids: Vec::new(),
            classes: default_classes(),
            smp: SmpRight::None,
            nodes: Vec::new(),
            prefixes: Vec::new(),
            rate: 0,
            burst: 0,
            priority: Priority::Bulk,
        }
    }
}

/// Why a tenant is none; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    /// Not a name.
    #[error("{0:?} is no name for a tenant: 1 to {most} of the characters A-Z a-z 0-9 . _ -", most = NAME_BYTES - 1)]
    Name(String),
    /// Not a P_Key.
    #[error("P_Key {0:#06x} is none: its low 15 bits have to be from 1 to 0x7fff")]
    PKey(u64),
    /// A partition more than once.
    #[error("P_Keys {0:#06x} and {1:#06x} are of one partition")]
    PKeyTwice(u16, u16),
    /// Not a management class.
    #[error(
        "{0:?} is no management class: write all, a number from 0 to 0xff, a range like 0x30-0x4f, or one of smp sa perf bm devmgt cm snmp vendor cc app"
    )]
    Class(String),
    /// Not a user or group number.
    #[error("{0} is no user or group: numbers are 0 to 4294967294")]
    Owner(u64),
    /// Not a GUID.
    #[error("{0:?} is no GUID of a node")]
    Node(String),
    /// Not a prefix.
    #[error(
        "{0:?} is no beginning of a directed route: 1 to {MAX_PREFIX_PORTS} ports from 1 to 255, like 1.2.3"
    )]
    Prefix(String),
    /// A list is too long.
    #[error("a tenant has at most {most} {what}, this one has {found}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The most.
        most: usize,
        /// How many there are.
        found: usize,
    },
    /// A number is too large.
    #[error("{what} {found} is out of range, the most is {}", u32::MAX)]
    Large {
        /// Which.
        what: &'static str,
        /// The number.
        found: u64,
    },
    /// A bucket without a rate.
    #[error("a burst needs a rate")]
    BurstAlone,
}

/// A valid tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    name: String,
    p_keys: Vec<u16>,
    uids: Vec<u32>,
    gids: Vec<u32>,
    classes: Classes,
    smp: SmpRight,
    nodes: Vec<u64>,
    prefixes: Vec<Vec<u8>>,
    rate: u32,
    burst: u32,
    priority: Priority,
}

impl TryFrom<RawTenant> for Tenant {
    type Error = TenantError;

    fn try_from(raw: RawTenant) -> Result<Self, TenantError> {
        if !is_tenant_name(&raw.name) {
            return Err(TenantError::Name(raw.name));
        }
        let limit = |what, most, found| {
            if found > most { Err(TenantError::TooMany { what, most, found }) } else { Ok(()) }
        };
        limit("P_Keys", MAX_P_KEYS, raw.p_keys.len())?;
        limit("users", MAX_MEMBERS, raw.uids.len())?;
        limit("groups", MAX_MEMBERS, raw.gids.len())?;
        limit("nodes", MAX_MEMBERS, raw.nodes.len())?;
        limit("prefixes", MAX_PREFIXES, raw.prefixes.len())?;
        let mut p_keys: Vec<u16> = Vec::with_capacity(raw.p_keys.len());
        for given in raw.p_keys {
            let key =
                u16::try_from(given).ok().filter(|key| key & 0x7fff != 0).ok_or(TenantError::PKey(given))?;
            if let Some(before) = p_keys.iter().find(|before| **before & 0x7fff == key & 0x7fff) {
                return Err(TenantError::PKeyTwice(*before, key));
            }
            p_keys.push(key);
        }
        let owners = |list: Vec<u64>| {
            let owner =
                |id| u32::try_from(id).ok().filter(|id| *id != u32::MAX).ok_or(TenantError::Owner(id));
            list.into_iter().map(owner).collect::<Result<Vec<u32>, _>>()
        };
        let guid = |text: String| number(&text).filter(|guid| *guid != 0).ok_or(TenantError::Node(text));
        let prefix = |ports: Vec<u64>| {
            let good = (1..=MAX_PREFIX_PORTS).contains(&ports.len());
            let path = ports.iter().map(|port| u8::try_from(*port).ok().filter(|port| *port != 0));
            let path: Option<Vec<u8>> = path.collect();
            path.filter(|_| good).ok_or_else(|| TenantError::Prefix(dotted(&ports)))
        };
        let mut classes = Classes::read(&raw.classes)?;
        if raw.smp != SmpRight::None {
            CLASS_NAMES[0].1.iter().for_each(|range| classes.add(*range));
        }
        let small = |what, found| u32::try_from(found).map_err(|_| TenantError::Large { what, found });
        let (rate, burst) = (small("rate", raw.rate)?, small("burst", raw.burst)?);
        if burst > 0 && rate == 0 {
            return Err(TenantError::BurstAlone);
        }
        Ok(Self {
            name: raw.name,
            p_keys,
            uids: owners(raw.uids)?,
            gids: owners(raw.gids)?,
            classes,
            smp: raw.smp,
            nodes: raw.nodes.into_iter().map(guid).collect::<Result<_, _>>()?,
            prefixes: raw.prefixes.into_iter().map(prefix).collect::<Result<_, _>>()?,
            rate,
            burst: if burst == 0 { rate.min(DEFAULT_BURST) } else { burst },
            priority: raw.priority,
        })
    }
}

impl From<&Tenant> for RawTenant {
    fn from(tenant: &Tenant) -> Self {
        let wide = |list: &[u32]| list.iter().map(|id| u64::from(*id)).collect();
        let prefix = |ports: &Vec<u8>| ports.iter().map(|port| u64::from(*port)).collect();
        Self {
            name: tenant.name.clone(),
            p_keys: tenant.p_keys.iter().map(|key| u64::from(*key)).collect(),
            uids: wide(&tenant.uids),
            gids: wide(&tenant.gids),
            classes: tenant.classes.words(),
            smp: tenant.smp,
            nodes: tenant.nodes.iter().map(|guid| format!("{guid:#018x}")).collect(),
            prefixes: tenant.prefixes.iter().map(prefix).collect(),
            rate: tenant.rate.into(),
            burst: tenant.burst.into(),
            priority: tenant.priority,
        }
    }
}

impl Tenant {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// P_Keys with their membership bits, each partition once.
    pub fn p_keys(&self) -> &[u16] {
        &self.p_keys
    }

    /// Users who may attach as it.
    pub fn uids(&self) -> &[u32] {
        &self.uids
    }

    /// Groups whose members may attach as it.
    pub fn gids(&self) -> &[u32] {
        &self.gids
    }

    /// Management classes that it may send and register for.
    pub fn classes(&self) -> Classes {
        self.classes
    }

    /// What it may do with SMPs.
    pub fn smp(&self) -> SmpRight {
        self.smp
    }

    /// Nodes that its SMPs may be for.
    pub fn nodes(&self) -> &[u64] {
        &self.nodes
    }

    /// Beginnings of the directed routes that it may use.
    pub fn prefixes(&self) -> &[Vec<u8>] {
        &self.prefixes
    }

    /// MADs a second, 0 for no limit.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// MADs at once, if there is a rate.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// When it is served.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The tenant as it lies in the table segment.
    ///
    /// # Panics
    /// Never: a valid tenant is within the segment's bounds.
    pub fn to_entry(&self, id: u64) -> TenantEntry {
        const FITS: &str = "a valid tenant is within the segment's bounds";
        let mut entry = TenantEntry::new(&self.name).expect(FITS);
        entry.rights = match self.smp {
            SmpRight::None => 0,
            SmpRight::Get => tenant_right::SMP_GET,
            SmpRight::GetSet => tenant_right::SMP_GET | tenant_right::SMP_SET,
        };
        entry.class = match self.priority {
            Priority::Bulk => service_class::BULK,
            Priority::Reserved => service_class::RESERVED,
        };
        let prefixes: Option<Vec<PathPrefix>> =
            self.prefixes.iter().map(|ports| PathPrefix::new(ports)).collect();
        let filled = entry.set_p_keys(&self.p_keys)
            && entry.set_uids(&self.uids)
            && entry.set_gids(&self.gids)
            && entry.set_nodes(&self.nodes)
            && entry.set_prefixes(&prefixes.expect(FITS));
        assert!(filled, "{FITS}");
        (entry.classes, entry.rate, entry.burst, entry.id) = (self.classes.0, self.rate, self.burst, id);
        entry
    }

    /// A tenant of the table segment; `None` if it is no valid tenant.
    pub fn from_entry(entry: &TenantEntry) -> Option<Self> {
        let wide = |list: &[u32]| list.iter().map(|id| u64::from(*id)).collect();
        let smp = match entry.rights {
            0 => SmpRight::None,
            tenant_right::SMP_GET => SmpRight::Get,
            tenant_right::ALL => SmpRight::GetSet,
            _ => return None,
        };
        let raw = RawTenant {
            p_keys: entry.p_keys().iter().map(|key| u64::from(*key)).collect(),
            uids: wide(entry.uids()),
            gids: wide(entry.gids()),
            classes: Classes(entry.classes).words(),
            smp,
            nodes: entry.nodes().iter().map(|guid| format!("{guid:#x}")).collect(),
            prefixes: entry
                .prefixes()
                .iter()
                .map(|prefix| prefix.ports().iter().map(|port| u64::from(*port)).collect())
                .collect(),
            rate: entry.rate.into(),
            burst: entry.burst.into(),
            priority: if entry.class == service_class::RESERVED {
                Priority::Reserved
            } else {
                Priority::Bulk
            },
            ..RawTenant::new(entry.name())
        };
        Self::try_from(raw).ok()
    }

    /// The tenant as a line of a file, in numbers only.
    pub fn to_line(&self) -> String {
        let mut line = self.name.clone();
        let mut say = |key: &str, value: String| {
            if !value.is_empty() {
                line.push_str(&format!(" {key}={value}"));
            }
        };
        say(
            "pkey",
            if self.p_keys.is_empty() {
                "none".to_owned()
            } else {
                listed(&self.p_keys, |key| format!("{key:#06x}"))
            },
        );
        say("uid", listed(&self.uids, u32::to_string));
        say("gid", listed(&self.gids, u32::to_string));
        say("classes", self.classes.words().join(","));
        say("smp", self.smp.to_string());
        say("nodes", listed(&self.nodes, |guid| format!("{guid:#018x}")));
        say("prefix", listed(&self.prefixes, |ports| dotted(ports)));
        if self.rate > 0 {
            say("rate", self.rate.to_string());
            say("burst", self.burst.to_string());
        }
        say("priority", self.priority.to_string());
        line
    }
}

/// A list as it is written.
pub fn listed<T>(list: &[T], show: impl Fn(&T) -> String) -> String {
    list.iter().map(show).collect::<Vec<_>>().join(",")
}

/// Ports of a route prefix as they are written.
pub fn dotted<T: ToString>(ports: &[T]) -> String {
    ports.iter().map(T::to_string).collect::<Vec<_>>().join(".")
}
