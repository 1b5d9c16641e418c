//! A tenant as text: a line of a file, or the arguments of `madctl tenants add`, `NAME [KEY=VALUE...]`.
//!
//!
//! | key | value | without it |
//! |---|---|---|
//! | `pkey` | P_Keys, 0x8000 is the membership bit; or `none` | `0x7fff`: limited member of the default partition |
//! | `partition` | names of partitions, each full member unless `:limited` follows | |
//! | `uid`, `gid` | numbers or names | nobody but root and the plane's own user |
//! | `classes` | `all`, names ([`CLASS_NAMES`](super::CLASS_NAMES)), numbers, ranges like `0x30-0x4f` | `all` |
//! | `smp` | `none`, `get` or `get,set` | `none` |
//! | `nodes` | GUIDs, or what a [`Names`] knows (descriptions) | every node, if there is no `prefix` either |
//! | `prefix` | beginnings of directed routes, ports with dots between: `1.2.3` | every route, if there are no `nodes` either |
//! | `rate` | MADs a second, 0 for no limit | 0 |
//! | `burst` | MADs at once | the rate, at most 64 |
//! | `priority` | `bulk` or `reserved` | `bulk` |
//!
//! Lists are separated by commas; a key that takes a list may be repeated. Right to SMPs brings the two SMP classes with it.
//!
//! Pure functions and plain values: names of users, groups, nodes and partitions are looked up by the caller's [`Names`].

use madplane_shm::table::tenant::is_tenant_name;

use super::{Priority, RawTenant, SmpRight, Tenant, TenantError};
use crate::nearest;
use crate::route::number;

const KEYS: [&str; 11] =
    ["pkey", "partition", "uid", "gid", "classes", "smp", "nodes", "prefix", "rate", "burst", "priority"];

/// Looks up what is written by name. Each gives one line why not.
pub trait Names {
    /// Number of a user.
    ///
    /// # Errors
    /// Nobody is called that.
    fn user(&mut self, name: &str) -> Result<u32, String>;
    /// Number of a group.
    ///
    /// # Errors
    /// No group is called that.
    fn group(&mut self, name: &str) -> Result<u32, String>;
    /// GUID of a node.
    ///
    /// # Errors
    /// No node, or more than one, is called that.
    fn node(&mut self, name: &str) -> Result<u64, String>;
    /// P_Key of a partition, 15 bits.
    ///
    /// # Errors
    /// No partition is called that, or no file of them is known.
    fn partition(&mut self, name: &str) -> Result<u16, String>;
}

/// Knows no name: what madctld reads is in numbers.
#[derive(Debug, Clone, Copy)]
pub struct NumbersOnly;

impl Names for NumbersOnly {
    fn user(&mut self, name: &str) -> Result<u32, String> {
        Err(format!("user {name:?} has to be given by its number here"))
    }

    fn group(&mut self, name: &str) -> Result<u32, String> {
        Err(format!("group {name:?} has to be given by its number here"))
    }

    fn node(&mut self, name: &str) -> Result<u64, String> {
        Err(format!("node {name:?} has to be given by its GUID here"))
    }

    fn partition(&mut self, name: &str) -> Result<u16, String> {
        Err(format!("partition {name:?} has to be given by its P_Key here"))
    }
}

/// Reads a line of a file; `None` for an empty line and a comment, which starts with `#`. Descriptions of nodes may hold
/// blanks, but not two in a row.
///
/// # Errors
/// One line.
pub fn parse_line(line: &str, names: &mut impl Names) -> Result<Option<Tenant>, String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace().take_while(|word| !word.starts_with('#')) {
        match words.last_mut().filter(|_| !word.contains('=')) {
            Some(last) if last.starts_with("nodes=") => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    if words.is_empty() { Ok(None) } else { parse(&words, names).map(Some) }
}

/// Reads `NAME KEY=VALUE...`.
///
/// # Errors
/// One line.
pub fn parse(words: &[impl AsRef<str>], names: &mut impl Names) -> Result<Tenant, String> {
    let mut words = words.iter().map(AsRef::as_ref);
    let mut raw = RawTenant::new(words.next().unwrap_or_default());
    if raw.name.contains('=') {
        return Err(format!(
            "a tenant is NAME KEY=VALUE..., and {:?} stands where its name should be",
            raw.name
        ));
    }
    if !is_tenant_name(&raw.name) {
        return Err(TenantError::Name(raw.name).to_string());
    }
    let (mut p_keys, mut no_p_key) = (Vec::new(), false);
    let mut classes: Vec<String> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for word in words {
        let (key, value) =
            word.split_once('=').ok_or_else(|| format!("{word:?} is no option: write KEY=VALUE"))?;
        if matches!(key, "smp" | "rate" | "burst" | "priority") && seen.contains(&key) {
            return Err(format!("{key} is given twice"));
        }
        seen.push(key);
        let list = || value.split(',').map(str::trim).collect::<Vec<_>>();
        let known = KEYS.contains(&key);
        if known && list().contains(&"") {
            return Err(format!("{key} has an empty value"));
        }
        let count = |what: &str| number(value).ok_or_else(|| format!("{value:?} is no {what}"));
        match key {
            "pkey" if value == "none" => no_p_key = true,
            "pkey" => {
                for text in list() {
                    p_keys.push(
                        number(text)
                            .ok_or_else(|| format!("{text:?} is no P_Key: write a number such as 0x8001"))?,
                    );
                }
            }
            "partition" => {
                for text in list() {
                    let (name, bit) = match text.rsplit_once(':') {
                        Some((name, "limited")) => (name, 0),
                        Some((name, "full")) => (name, 0x8000),
                        Some((_, other)) => {
                            return Err(format!("a member is full or limited, not {other:?}"));
                        }
                        None => (text, 0x8000),
                    };
                    p_keys.push(u64::from(names.partition(name)? & 0x7fff | bit));
                }
            }
            "uid" => raw.uids.extend(numbers(list(), |name| names.user(name))?),
            "gid" => raw.gids.extend(numbers(list(), |name| names.group(name))?),
            "classes" => classes.extend(list().into_iter().map(str::to_owned)),
            "smp" => {
                raw.smp = match list()[..] {
                    ["none"] => SmpRight::None,
                    ["get"] => SmpRight::Get,
                    ["get", "set"] | ["set", "get"] => SmpRight::GetSet,
                    _ => return Err(format!("smp is none, get or get,set, not {value:?}")),
                }
            }
            "nodes" => {
                for text in list() {
                    let guid = match text.strip_prefix("0x").and_then(|_| number(text)) {
                        Some(guid) => guid,
                        None => names.node(text)?,
                    };
                    raw.nodes.push(format!("{guid:#018x}"));
                }
            }
            "prefix" => {
                for text in list() {
                    let ports: Option<Vec<u64>> = text.split('.').map(number).collect();
                    raw.prefixes.push(ports.ok_or_else(|| TenantError::Prefix(text.to_owned()).to_string())?);
                }
            }
            "rate" => raw.rate = count("rate: write MADs a second")?,
            "burst" => raw.burst = count("burst: write a number of MADs")?,
            "priority" => {
                raw.priority = match value {
                    "bulk" => Priority::Bulk,
                    "reserved" => Priority::Reserved,
                    _ => return Err(format!("priority is bulk or reserved, not {value:?}")),
                }
            }
            _ => return Err(format!("unknown option {key:?}{}", nearest::hint(key, KEYS))),
        }
    }
    if no_p_key && !p_keys.is_empty() {
        return Err("pkey=none goes with no other P_Key".to_owned());
    }
    if no_p_key || !p_keys.is_empty() {
        raw.p_keys = p_keys;
    }
    if !classes.is_empty() {
        raw.classes = classes;
    }
    Tenant::try_from(raw).map_err(|error| error.to_string())
}

fn numbers(
    list: Vec<&str>,
    mut look_up: impl FnMut(&str) -> Result<u32, String>,
) -> Result<Vec<u64>, String> {
    let one = |text: &str| match number(text) {
        Some(id) => Ok(id),
        None => look_up(text).map(u64::from),
    };
    list.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::{Classes, DEFAULT_BURST};

    /// Knows one of each.
    struct Few;

    impl Names for Few {
        fn user(&mut self, name: &str) -> Result<u32, String> {
            if name == "alice" { Ok(1001) } else { Err(format!("there is no user {name:?}")) }
        }

        fn group(&mut self, name: &str) -> Result<u32, String> {
            if name == "users" { Ok(100) } else { Err(format!("there is no group {name:?}")) }
        }

        fn node(&mut self, name: &str) -> Result<u64, String> {
            if name == "leaf 01" { Ok(0xabc) } else { Err(format!("no node is called {name:?}")) }
        }

        fn partition(&mut self, name: &str) -> Result<u16, String> {
            if name == "storage" { Ok(0x10) } else { Err(format!("there is no partition {name:?}")) }
        }
    }

    fn read(line: &str) -> Result<Tenant, String> {
        parse_line(line, &mut Few).map(|tenant| tenant.expect("a tenant"))
    }

    #[test]
    fn a_name_alone_is_a_tenant_with_the_defaults() {
        let tenant = read("a").unwrap();
        assert_eq!(tenant.to_line(), "a pkey=0x7fff classes=all smp=none priority=bulk");
        assert_eq!(tenant, Tenant::try_from(RawTenant::new("a")).unwrap());
        for empty in ["", "  ", "# a", "\t#"] {
            assert_eq!(parse_line(empty, &mut Few), Ok(None));
        }
    }

    #[test]
    fn every_option_is_read_and_written_again() {
        let line = "team-1.x pkey=0x8001,0x0002 partition=storage,Default:limited";
        assert_eq!(read(line).unwrap_err(), "there is no partition \"Default\"");
        let line = "team-1.x pkey=0x8001,2 partition=storage:limited uid=1000,alice gid=users,5 classes=perf,sa,vendor,0x81 \
                    smp=get,set nodes=0x10,leaf 01,0x20 prefix=1.2.3,255 rate=10000 burst=7 priority=reserved # x";
        let tenant = read(line).unwrap();
        assert_eq!(tenant.p_keys(), [0x8001, 2, 0x10]);
        assert_eq!((tenant.uids(), tenant.gids()), (&[1000, 1001][..], &[100, 5][..]));
        assert_eq!(tenant.nodes(), [0x10, 0xabc, 0x20]);
        assert_eq!(tenant.prefixes(), [vec![1, 2, 3], vec![255]]);
        assert_eq!((tenant.rate(), tenant.burst(), tenant.priority()), (10_000, 7, Priority::Reserved));
        let classes = tenant.classes();
        let listed: Vec<u8> = (0..=255).filter(|class| classes.has(*class)).collect();
        let expected: Vec<u8> =
            [0x01, 0x03, 0x04].into_iter().chain(0x09..=0x0f).chain(0x30..=0x4f).chain([0x81]).collect();
        assert_eq!(listed, expected);
        let again = parse_line(&tenant.to_line(), &mut NumbersOnly).unwrap().unwrap();
        assert_eq!(again, tenant);
        assert_eq!(Tenant::try_from(RawTenant::from(&tenant)).unwrap(), tenant);
        let entry = tenant.to_entry(77);
        assert!(entry.is_sound() && entry.id == 77 && entry.allows_class(0x4f) && !entry.allows_class(0x50));
        assert_eq!(Tenant::from_entry(&entry).unwrap(), tenant);
        let json = serde_json::to_string(&RawTenant::from(&tenant)).unwrap();
        assert_eq!(Tenant::try_from(serde_json::from_str::<RawTenant>(&json).unwrap()).unwrap(), tenant);
        assert_eq!(read("a partition=storage").unwrap().p_keys(), [0x8010]);
        assert!(read("a pkey=none").unwrap().p_keys().is_empty());
    }

    #[test]
    fn defaults_follow_from_what_is_given() {
        let of = |line: &str| read(line).unwrap();
        assert_eq!(of("a rate=1000").burst(), DEFAULT_BURST);
        assert_eq!(of("a rate=5").burst(), 5);
        assert_eq!(of("a").burst(), 0);
        assert!(of("a classes=perf smp=get").classes().has(0x81), "the right brings the classes");
        assert!(!of("a classes=perf").classes().has(0x81));
        assert!(of("a uid=1 uid=2 pkey=1 pkey=2").uids() == [1, 2]);
    }

    #[test]
    fn sets_of_classes_have_one_name_each() {
        for (text, expected) in [
            ("all", "all"),
            ("0-255", "all"),
            ("0x04,sa", "sa,perf"),
            ("0x10-0x2f", "app"),
            ("cc", "cc"),
            ("app,cc", "app"),
            ("vendor,0x20-0x22,0xff", "vendor,cc,0x20,0x22,0xff"),
            ("0x50-0x52,0x53", "0x50-0x53"),
        ] {
            let classes = read(&format!("a classes={text}")).unwrap().classes();
            assert_eq!(classes.words().join(","), expected, "{text}");
            let again = Tenant::try_from(RawTenant { classes: classes.words(), ..RawTenant::new("a") })
                .map(|tenant| tenant.classes())
                .unwrap();
            assert_eq!(again, classes, "{text}");
        }
        let but_one = Classes([u64::MAX, u64::MAX, !2, u64::MAX]);
        assert_eq!(
            Tenant::try_from(RawTenant { classes: but_one.words(), ..RawTenant::new("a") })
                .map(|tenant| tenant.classes())
                .unwrap(),
            but_one
        );
    }

    #[test]
    fn wrong_lines_say_what_is_wrong_in_one_line() {
        let many = |count: usize, one: &str| vec![one; count].join(",");
        let keys: Vec<String> = (1..=33).map(|key| key.to_string()).collect();
        for (line, expected) in [
            ("pkey=1", "stands where its name should be"),
            ("a/b", "\"a/b\" is no name for a tenant"),
            (&"x".repeat(32), "is no name for a tenant"),
            ("a b", "\"b\" is no option: write KEY=VALUE"),
            ("a pky=1", "unknown option \"pky\"; did you mean pkey?"),
            ("a pkey=x", "\"x\" is no P_Key"),
            ("a pkey=0x8000", "P_Key 0x8000 is none"),
            ("a pkey=0x10001", "P_Key 0x10001 is none"),
            ("a pkey=0x8001,0x0001", "P_Keys 0x8001 and 0x0001 are of one partition"),
            ("a pkey=none,1", "\"none\" is no P_Key"),
            ("a pkey=none pkey=1", "goes with no other P_Key"),
            (&format!("a pkey={}", keys.join(",")), "at most 32 P_Keys, this one has 33"),
            ("a partition=x", "there is no partition \"x\""),
            ("a partition=storage:owner", "a member is full or limited, not \"owner\""),
            ("a uid=bob", "there is no user \"bob\""),
            ("a uid=4294967295", "4294967295 is no user or group"),
            (&format!("a uid={}", many(9, "1")), "at most 8 users, this one has 9"),
            ("a gid=", "gid has an empty value"),
            ("a gid=x", "there is no group \"x\""),
            (&format!("a gid={}", many(9, "1")), "at most 8 groups"),
            ("a classes=foo", "\"foo\" is no management class"),
            ("a classes=256", "\"256\" is no management class"),
            ("a classes=5-4", "\"5-4\" is no management class"),
            ("a smp=set", "smp is none, get or get,set, not \"set\""),
            ("a smp=get smp=get", "smp is given twice"),
            ("a nodes=leaf", "no node is called \"leaf\""),
            ("a nodes=0x0", "is no GUID of a node"),
            (&format!("a nodes={}", many(9, "0x1")), "at most 8 nodes"),
            ("a prefix=1.0", "\"1.0\" is no beginning of a directed route"),
            ("a prefix=1.256", "\"1.256\" is no beginning"),
            ("a prefix=1..2", "\"1..2\" is no beginning"),
            (&format!("a prefix={}", ["1"; 16].join(".")), "is no beginning"),
            (&format!("a prefix={}", many(5, "1")), "at most 4 prefixes"),
            ("a rate=fast", "\"fast\" is no rate"),
            ("a rate=4294967296", "rate 4294967296 is out of range"),
            ("a burst=3", "a burst needs a rate"),
            ("a priority=high", "priority is bulk or reserved, not \"high\""),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn the_daemon_reads_numbers_only() {
        for (line, expected) in [
            ("a uid=alice", "user \"alice\" has to be given by its number here"),
            ("a gid=users", "group \"users\" has"),
            ("a nodes=leaf", "node \"leaf\" has"),
            ("a partition=x", "partition \"x\" has"),
        ] {
            assert!(parse_line(line, &mut NumbersOnly).unwrap_err().starts_with(expected), "{line}");
        }
    }
}
