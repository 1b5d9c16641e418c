//! A route as it is written and as it is valid; the words for both.
//!
//! [`RawRoute`] is what a command line, a file or the admin protocol says; [`Route`] is checked and has private fields.
//! Pure functions and plain values. Whether a path exists in a fabric is not known here.

use std::fmt;
use std::str::FromStr;

use madplane_shm::table::tenant::is_tenant_name;
use serde::{Deserialize, Serialize};

/// Most ports of a path.
pub const MAX_HOPS: usize = 63;
/// Unicast LIDs.
pub const UNICAST: std::ops::RangeInclusive<u16> = 0x0001..=0xbfff;
/// The default partition, full member.
pub const DEFAULT_P_KEY: u16 = 0xffff;
/// Highest priority.
pub const MAX_PRIORITY: u8 = 15;

/// Source and destination LID.
pub type Key = (u16, u16);

/// A key as all messages write it.
pub fn show_key((slid, dlid): Key) -> String {
    format!("{slid:#06x} -> {dlid:#06x}")
}

/// What becomes of a MAD whose pinned path is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBroken {
    /// It goes the way that the forwarding tables say.
    #[default]
    Fallback,
    /// It is dropped and counted.
    Drop,
}

impl fmt::Display for OnBroken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fallback => "fallback",
            Self::Drop => "drop",
        })
    }
}

impl FromStr for OnBroken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fallback" => Ok(Self::Fallback),
            "drop" => Ok(Self::Drop),
            _ => Err(format!("on-broken is fallback or drop, not {text:?}")),
        }
    }
}

/// A route as written, nothing checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRoute {
    /// Source LID.
    pub slid: u64,
    /// Destination LID.
    pub dlid: u64,
    /// Egress port of the source's node, then of each switch on the way.
    pub path: Vec<u64>,
    /// Partition.
    #[serde(default = "default_p_key")]
    pub p_key: u64,
    /// Priority, 0 is served last.
    #[serde(default)]
    pub priority: u64,
    /// What to do when the path is broken.
    #[serde(default)]
    pub on_broken: OnBroken,
    /// Name of the tenant whose MADs it is for; nothing for anybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

fn default_p_key() -> u64 {
    DEFAULT_P_KEY.into()
}

impl RawRoute {
    /// A route in the default partition with the lowest priority.
    pub fn new(slid: u16, dlid: u16, path: &[u8]) -> Self {
        Self {
            slid: slid.into(),
            dlid: dlid.into(),
            path: path.iter().map(|port| u64::from(*port)).collect(),
            p_key: default_p_key(),
            priority: 0,
            on_broken: OnBroken::Fallback,
            tenant: None,
        }
    }
}

/// Why a route is none; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Not a number.
    #[error("{0:?} is no LID: write a number from 0x0001 to 0xbfff")]
    NoLid(String),
    /// Out of range.
    #[error("LID {0:#06x} is outside the unicast range 0x0001 to 0xbfff")]
    NotUnicast(u64),
    /// The two ends are one.
    #[error("a route leads from one LID to another, and both are {0:#06x}")]
    Loop(u16),
    /// Not a list of ports.
    #[error("{0:?} is no list of ports: write them like 1,2,3,4")]
    NoPorts(String),
    /// A port that cannot be.
    #[error("port {port} at hop {hop} is out of range, ports are 1 to 255")]
    Port {
        /// The port.
        port: u64,
        /// Where, from 1.
        hop: usize,
    },
    /// No port at all, or too many.
    #[error("a path has 1 to {MAX_HOPS} ports, this one has {0}")]
    Length(usize),
    /// No partition.
    #[error("P_Key {0:#06x} is none: its low 15 bits have to be from 1 to 0x7fff")]
    PKey(u64),
    /// Not a number.
    #[error("{0:?} is no P_Key: write a number such as 0x8001")]
    NoPKey(String),
    /// Out of range.
    #[error("priority {0} is out of range, priorities are 0 to {MAX_PRIORITY}")]
    Priority(u64),
    /// No name.
    #[error("{0:?} is no name of a tenant")]
    Tenant(String),
}

/// A valid route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    slid: u16,
    dlid: u16,
    path: Vec<u8>,
    p_key: u16,
    priority: u8,
    on_broken: OnBroken,
    tenant: Option<String>,
}

impl TryFrom<RawRoute> for Route {
    type Error = RouteError;

    fn try_from(raw: RawRoute) -> Result<Self, RouteError> {
        let (slid, dlid) = (unicast(raw.slid)?, unicast(raw.dlid)?);
        if slid == dlid {
            return Err(RouteError::Loop(slid));
        }
        let path = check_path(&raw.path)?;
        let p_key = u16::try_from(raw.p_key).ok().filter(|key| key & 0x7fff != 0);
        if let Some(name) = raw.tenant.as_ref().filter(|name| !is_tenant_name(name)) {
            return Err(RouteError::Tenant(name.clone()));
        }
        let priority = u8::try_from(raw.priority).ok().filter(|priority| *priority <= MAX_PRIORITY);
        Ok(Self {
            slid,
            dlid,
            path,
            p_key: p_key.ok_or(RouteError::PKey(raw.p_key))?,
            priority: priority.ok_or(RouteError::Priority(raw.priority))?,
            on_broken: raw.on_broken,
            tenant: raw.tenant,
        })
    }
}

impl From<&Route> for RawRoute {
    fn from(route: &Route) -> Self {
        Self {
            p_key: route.p_key.into(),
            priority: route.priority.into(),
            on_broken: route.on_broken,
            tenant: route.tenant.clone(),
            ..Self::new(route.slid, route.dlid, &route.path)
        }
    }
}

impl Route {
    /// Source and destination LID.
    pub fn key(&self) -> Key {
        (self.slid, self.dlid)
    }

    /// Egress ports, 1 to 63 of them, none is 0.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Partition.
    pub fn p_key(&self) -> u16 {
        self.p_key
    }

    /// Priority, 0 is served last.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// What to do when the path is broken.
    pub fn on_broken(&self) -> OnBroken {
        self.on_broken
    }

    /// Name of the tenant whose MADs it is for.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The route as a line of a file.
    pub fn to_line(&self) -> String {
        let Self { slid, dlid, p_key, priority, on_broken, .. } = self;
        let ports = self.ports();
        let mut line =
            format!("{slid} {dlid} {ports} pkey={p_key} priority={priority} on-broken={on_broken}");
        if let Some(name) = &self.tenant {
            line.push_str(&format!(" tenant={name}"));
        }
        line
    }

    /// The ports as they are written.
    pub fn ports(&self) -> String {
        show_ports(&self.path)
    }
}

/// The ports of a path, if they are one.
///
/// # Errors
/// [`RouteError::Length`], [`RouteError::Port`].
pub fn check_path(ports: &[u64]) -> Result<Vec<u8>, RouteError> {
    if !(1..=MAX_HOPS).contains(&ports.len()) {
        return Err(RouteError::Length(ports.len()));
    }
    let port = |(at, port): (usize, &u64)| {
        let valid = u8::try_from(*port).ok().filter(|port| *port != 0);
        valid.ok_or(RouteError::Port { port: *port, hop: at + 1 })
    };
    ports.iter().enumerate().map(port).collect()
}

/// Ports as they are written: `1,2,3`.
pub fn show_ports(path: &[u8]) -> String {
    path.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

fn unicast(lid: u64) -> Result<u16, RouteError> {
    u16::try_from(lid).ok().filter(|lid| UNICAST.contains(lid)).ok_or(RouteError::NotUnicast(lid))
}

/// Reads `0x...` or a decimal number.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => u64::from_str(text).ok(),
        _ => None,
    }
}

/// Reads a LID.
///
/// # Errors
/// [`RouteError::NoLid`], [`RouteError::NotUnicast`].
pub fn parse_lid(text: &str) -> Result<u16, RouteError> {
    unicast(number(text).ok_or_else(|| RouteError::NoLid(text.to_owned()))?)
}

/// Reads a P_Key; whether it is one is checked with the route.
///
/// # Errors
/// [`RouteError::NoPKey`].
pub fn parse_p_key(text: &str) -> Result<u64, RouteError> {
    number(text).ok_or_else(|| RouteError::NoPKey(text.to_owned()))
}

/// Where a path comes from, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSpec {
    /// Ports.
    Ports(Vec<u64>),
    /// The shortest way over these nodes, in this order.
    Via(Vec<String>),
    /// The shortest way.
    Shortest {
        /// Nodes that it may not touch.
        avoid: Vec<String>,
    },
}

impl PathSpec {
    /// Reads `1,2,3`, `via NODE[,NODE]`, `shortest` or `shortest avoid NODE[,NODE]`.
    ///
    /// # Errors
    /// One line that says how it has to be written.
    pub fn parse(words: &[impl AsRef<str>]) -> Result<Self, String> {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let nodes = |text: &str| text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
        let spec = match words[..] {
            ["via", list] => Self::Via(nodes(list)),
            ["shortest"] => Self::Shortest { avoid: Vec::new() },
            ["shortest", "avoid", list] => Self::Shortest { avoid: nodes(list) },
            ["via" | "shortest", ..] => {
                return Err("write the path as via NODE[,NODE] or shortest [avoid NODE[,NODE]]".to_owned());
            }
            [list] => {
                let ports = list.split(',').map(|port| number(port.trim()).filter(|_| !port.is_empty()));
                let ports = ports.collect::<Option<Vec<u64>>>();
                Self::Ports(ports.ok_or_else(|| RouteError::NoPorts(list.to_owned()).to_string())?)
            }
            [] => return Err("the path is missing: PORTS, via NODE or shortest".to_owned()),
            [first, ..] => return Err(format!("unknown path {first:?}: write PORTS, via NODE or shortest")),
        };
        match &spec {
            Self::Via(names) | Self::Shortest { avoid: names } if names.iter().any(String::is_empty) => {
                Err("the name of a node is empty".to_owned())
            }
            _ => Ok(spec),
        }
    }
}

/// A route as an operator writes it: its path may have to be found first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Everything but the path.
    pub raw: RawRoute,
    /// The path.
    pub path: PathSpec,
}

impl Written {
    /// The route, if its path is given by ports.
    ///
    /// # Errors
    /// Why it is no valid route.
    pub fn by_ports(&self) -> Result<Option<Route>, RouteError> {
        match &self.path {
            PathSpec::Ports(ports) => {
                Route::try_from(RawRoute { path: ports.clone(), ..self.raw.clone() }).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Reads a line of a file: `SLID DLID PATH [pkey=P] [priority=N] [on-broken=fallback|drop] [tenant=NAME]`; `None` for an empty line
    /// and a comment, which starts with `#`. Names of nodes may hold blanks, but not two in a row.
    ///
    /// # Errors
    /// One line.
    pub fn parse_line(line: &str) -> Result<Option<Self>, String> {
        let mut words: Vec<&str> =
            line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        if words.is_empty() {
            return Ok(None);
        }
        let mut raw = RawRoute::new(0, 0, &[]);
        while let Some((name, value)) = words.last().and_then(|word| word.split_once('=')) {
            match name {
                "pkey" => raw.p_key = parse_p_key(value).map_err(|error| error.to_string())?,
                "priority" => {
                    raw.priority = number(value).ok_or_else(|| format!("{value:?} is no priority"))?;
                }
                "on-broken" => raw.on_broken = value.parse()?,
                "tenant" => raw.tenant = Some(value.to_owned()),
                _ => {
                    let hint = crate::nearest::hint(name, ["pkey", "priority", "on-broken", "tenant"]);
                    return Err(format!("unknown option {name:?}{hint}"));
                }
            }
            words.pop();
        }
        let [slid, dlid, path @ ..] = &words[..] else {
            return Err("a route is SLID DLID PATH".to_owned());
        };
        let lid = |text: &str| parse_lid(text).map(u64::from).map_err(|error| error.to_string());
        (raw.slid, raw.dlid) = (lid(slid)?, lid(dlid)?);
        let path = match path {
            ["via", list @ ..] if !list.is_empty() => PathSpec::parse(&["via", &list.join(" ")]),
            ["shortest", "avoid", list @ ..] if !list.is_empty() => {
                PathSpec::parse(&["shortest", "avoid", &list.join(" ")])
            }
            other => PathSpec::parse(other),
        };
        Ok(Some(Self { raw, path: path? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> RawRoute {
        RawRoute::new(0x11, 0x22, &[1, 2, 3])
    }

    #[test]
    fn every_spoilt_field_is_refused_in_one_line() {
        let table: [(RawRoute, &str); 13] = [
            (RawRoute { tenant: Some("a b".into()), ..raw() }, "\"a b\" is no name of a tenant"),
            (RawRoute { slid: 0, ..raw() }, "LID 0x0000 is outside the unicast range 0x0001 to 0xbfff"),
            (RawRoute { slid: 0xc000, ..raw() }, "LID 0xc000 is outside the unicast range 0x0001 to 0xbfff"),
            (
                RawRoute { dlid: 0x1_0001, ..raw() },
                "LID 0x10001 is outside the unicast range 0x0001 to 0xbfff",
            ),
            (RawRoute { dlid: 0x11, ..raw() }, "a route leads from one LID to another, and both are 0x0011"),
            (RawRoute { path: vec![1, 0], ..raw() }, "port 0 at hop 2 is out of range, ports are 1 to 255"),
            (RawRoute { path: vec![256], ..raw() }, "port 256 at hop 1 is out of range, ports are 1 to 255"),
            (RawRoute { path: vec![], ..raw() }, "a path has 1 to 63 ports, this one has 0"),
            (RawRoute { path: vec![1; 64], ..raw() }, "a path has 1 to 63 ports, this one has 64"),
            (
                RawRoute { p_key: 0, ..raw() },
                "P_Key 0x0000 is none: its low 15 bits have to be from 1 to 0x7fff",
            ),
            (
                RawRoute { p_key: 0x8000, ..raw() },
                "P_Key 0x8000 is none: its low 15 bits have to be from 1 to 0x7fff",
            ),
            (
                RawRoute { p_key: 0x1_ffff, ..raw() },
                "P_Key 0x1ffff is none: its low 15 bits have to be from 1 to 0x7fff",
            ),
            (RawRoute { priority: 16, ..raw() }, "priority 16 is out of range, priorities are 0 to 15"),
        ];
        for (raw, expected) in table {
            assert_eq!(Route::try_from(raw).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn the_longest_path_and_both_ends_of_the_range_are_good() {
        let raw = RawRoute { path: vec![255; MAX_HOPS], ..RawRoute::new(1, 0xbfff, &[]) };
        let route = Route::try_from(raw.clone()).unwrap();
        assert_eq!((route.key(), route.path().len()), ((1, 0xbfff), MAX_HOPS));
        assert_eq!(RawRoute::from(&route), raw);
        let odd = RawRoute {
            p_key: 0x8001,
            priority: 3,
            on_broken: OnBroken::Drop,
            tenant: Some("red".into()),
            ..raw
        };
        let odd = Route::try_from(odd).unwrap();
        assert_eq!(Written::parse_line(&odd.to_line()).unwrap().unwrap().by_ports(), Ok(Some(odd)));
    }

    #[test]
    fn paths_are_read_in_every_form_and_nothing_else_is() {
        let good: [(&[&str], PathSpec); 5] = [
            (&["1,2,3"], PathSpec::Ports(vec![1, 2, 3])),
            (&["0x10, 300"], PathSpec::Ports(vec![16, 300])),
            (&["via", "a,b"], PathSpec::Via(vec!["a".into(), "b".into()])),
            (&["shortest"], PathSpec::Shortest { avoid: vec![] }),
            (&["shortest", "avoid", "a b"], PathSpec::Shortest { avoid: vec!["a b".into()] }),
        ];
        for (words, expected) in good {
            assert_eq!(PathSpec::parse(words), Ok(expected));
        }
        let bad: [&[&str]; 9] = [
            &[],
            &[""],
            &["1,,2"],
            &["1;2"],
            &["-1"],
            &["via"],
            &["via", "a,"],
            &["shortest", "a"],
            &["over", "a"],
        ];
        for words in bad {
            assert!(!PathSpec::parse(words).unwrap_err().contains('\n'), "{words:?}");
        }
    }

    #[test]
    fn lids_are_read_in_two_bases() {
        assert_eq!((parse_lid("0x0011"), parse_lid("17")), (Ok(17), Ok(17)));
        for text in ["", "0x", "x", "+1", "0x+1", "1 ", "99999999999999999999999"] {
            assert!(parse_lid(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_lid("0"), Err(RouteError::NotUnicast(0)));
    }

    #[test]
    fn lines_of_a_file_are_routes_comments_or_wrong() {
        let read = |line: &str| Written::parse_line(line);
        assert_eq!((read(""), read("   "), read("# 1 2 3")), (Ok(None), Ok(None), Ok(None)));
        let plain = read("0x11 0x22 1,2,3 # the long way").unwrap().unwrap();
        assert_eq!(plain.by_ports().unwrap().unwrap(), Route::try_from(raw()).unwrap());
        let full = read("17 34 via leaf 1,spine 2 pkey=0x8001 priority=3 on-broken=drop").unwrap().unwrap();
        assert_eq!(full.path, PathSpec::Via(vec!["leaf 1".into(), "spine 2".into()]));
        assert_eq!((full.raw.p_key, full.raw.priority, full.raw.on_broken), (0x8001, 3, OnBroken::Drop));
        assert_eq!(full.by_ports(), Ok(None));
        for (line, expected) in [
            ("1", "a route is SLID DLID PATH"),
            ("1 2", "the path is missing"),
            ("1 x 1", "\"x\" is no LID"),
            ("0 2 1", "outside the unicast range"),
            ("1 2 1 pky=1", "did you mean pkey?"),
            ("1 2 1 on-broken=no", "fallback or drop"),
            ("1 2 1 2", "unknown path"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
