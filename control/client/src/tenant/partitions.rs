//! OpenSM's `partitions.conf`: which partitions there are, their P_Keys, and which ports are in them.
//!
//! Pure functions over text; nothing is programmed from here. What a text means is what OpenSM 3.3.2x does with it, also
//! where its manual page says something else:
//!
//! | subject | what holds |
//! |---|---|
//! | no P_Key | a partition of the same name defined above is meant; else the lowest of 1 to 0x7ffe not given above |
//! | name starts with a digit and no P_Key follows | it is the P_Key, and the name is its four hex digits |
//! | numbers | as C reads them: `0x` hexadecimal, leading `0` octal, else decimal |
//! | words | may be shortened: `limi`, `def`, `ALL_SW` |
//! | several rules for one port | the last one holds |
//! | `both` | `full`, as in an OpenSM without `allow_both_pkeys` |
//! | the partition `Default`, 0x7fff | exists first, with `ALL=limited, SELF=full`; a file without any definition counts as no file: `ALL=full` |
//! | the same P_Key again | more rules for that partition, under its first name |
//! | definition up to `:` | stands in one line; what follows may take several, to `;` or the end of the file |
//! | `mgid=` and what follows in its line | about multicast, which this product has none of: read over |
//! | unknown flags and memberships | read over with a warning |
//!
//! What OpenSM stops at (and then runs with everybody in the default partition) is an error here. Among that is
//! `NAME=KEY : defmember=... : ...`, which its manual page shows.

use std::collections::HashMap;
use std::net::Ipv6Addr;

/// P_Key of the default partition, without the membership bit.
pub const DEFAULT_P_KEY: u16 = 0x7fff;
/// Longest name that OpenSM keeps.
const MAX_NAME_BYTES: usize = 31;

/// Kind of the node that a port belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortKind {
    /// Channel adapter.
    Ca,
    /// Switch; its management port.
    Switch,
    /// Router.
    Router,
}

/// Part that a port has in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// It may talk to full members.
    Limited,
    /// It may talk to every member.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    All,
    Kind(PortKind),
    Sm,
    Port(u64),
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    name: String,
    p_key: u16,
    line: u32,
    rules: Vec<(Who, Membership)>,
}

impl Partition {
    /// Its name; not necessarily the only one of that name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its P_Key, 1 to 0x7fff: without the membership bit.
    pub fn p_key(&self) -> u16 {
        self.p_key
    }

    /// Line of its first definition, 0 for the default partition if the file does not define it.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Whether any rule puts a port in. OpenSM programs no partition without a member.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Part of the port `guid` of a node of this kind, where the subnet manager's own port is `sm_guid`.
    pub fn membership(&self, guid: u64, kind: PortKind, sm_guid: u64) -> Option<Membership> {
        let meant = |who: Who| match who {
            Who::All => true,
            Who::Kind(of) => of == kind,
            Who::Sm => guid == sm_guid,
            Who::Port(port) => guid == port,
        };
        self.rules.iter().rev().find(|(who, _)| meant(*who)).map(|(_, membership)| *membership)
    }
}

/// Something that is read over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where, from 1.
    pub line: u32,
    /// What; one line.
    pub text: String,
}

/// Why a file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {text}")]
pub struct PartitionError {
    /// Where, from 1.
    pub line: u32,
    /// What is wrong; one line.
    pub text: String,
}

/// All partitions of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitions {
    all: Vec<Partition>,
    warnings: Vec<Warning>,
}

impl Partitions {
    /// Reads a file.
    ///
    /// # Errors
    /// The first line that OpenSM would stop at, and why.
    pub fn parse(text: &str) -> Result<Self, PartitionError> {
        let mut reader = Reader::default();
        for (line, text) in (1u32..).zip(text.lines()) {
            reader.line(line, text)?;
        }
        let Reader { mut all, warnings, defined, .. } = reader;
        if !defined {
            all[0].rules = vec![(Who::All, Membership::Full)];
        }
        Ok(Self { all, warnings })
    }

    /// All of them, the default partition first, then as they are defined.
    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.all.iter()
    }

    /// What was read over.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// One line: there is none, or several with different P_Keys.
    pub fn find(&self, name: &str) -> Result<&Partition, String> {
        let found: Vec<&Partition> = self.all.iter().filter(|partition| partition.name == name).collect();
        match found[..] {
            [one] => Ok(one),
            [] => {
                let hint = crate::nearest::hint(name, self.all.iter().map(Partition::name));
                Err(format!("there is no partition {name:?}{hint}"))
            }
            [first, second, ..] => Err(format!(
                "partition {name:?} has several P_Keys, {:#06x} and {:#06x}; name the one by pkey=",
                first.p_key, second.p_key
            )),
        }
    }
}

/// A definition whose `;` has not come yet.
#[derive(Debug, Clone, Copy)]
struct Open {
    index: usize,
    default: Membership,
    line: u32,
}

#[derive(Debug)]
struct Reader {
    all: Vec<Partition>,
    warnings: Vec<Warning>,
    open: Option<Open>,
    defined: bool,
    generated: u16,
    by_key: HashMap<u16, usize>,
    by_name: HashMap<String, usize>,
}

impl Default for Reader {
    fn default() -> Self {
        let rules = vec![(Who::All, Membership::Limited), (Who::Sm, Membership::Full)];
        let default = Partition { name: "Default".to_owned(), p_key: DEFAULT_P_KEY, line: 0, rules };
        Self {
            by_key: HashMap::from([(DEFAULT_P_KEY, 0)]),
            by_name: HashMap::from([(default.name.clone(), 0)]),
            all: vec![default],
            warnings: Vec::new(),
            open: None,
            defined: false,
            generated: 0,
        }
    }
}

impl Reader {
    fn line(&mut self, line: u32, text: &str) -> Result<(), PartitionError> {
        let mut rest = text.split('#').next().unwrap_or_default();
        loop {
            rest = rest.trim_start();
            if rest.is_empty() {
                return Ok(());
            }
            let (piece, more) = match rest.split_once(';') {
                Some((piece, more)) => (piece, Some(more)),
                None => (rest, None),
            };
            let (open, members) = match self.open {
                Some(open) => (open, piece),
                None => {
                    let fail = |text: &str| PartitionError { line, text: text.to_owned() };
                    let (head, members) = piece.split_once(':').ok_or_else(|| {
                        fail("a definition is NAME[=PKEY][,FLAG...] : MEMBER[,MEMBER...] ;")
                    })?;
                    (self.define(line, head)?, members)
                }
            };
            self.open = Some(open);
            self.members(line, open, members)?;
            match more {
                Some(more) => {
                    self.open = None;
                    rest = more;
                }
                None => return Ok(()),
            }
        }
    }

    /// What stands before the colon.
    fn define(&mut self, line: u32, head: &str) -> Result<Open, PartitionError> {
        let fail = |text: String| PartitionError { line, text };
        let mut words = head.split(',').map(word);
        let (mut name, mut key) = words.next().unwrap_or_default();
        if key.is_none() && name.starts_with(|first: char| first.is_ascii_digit()) {
            (name, key) = ("", Some(name));
        }
        let key = match key {
            None => 0,
            Some(text) => {
                let number = c_number(text).and_then(|number| u16::try_from(number).ok());
                number.ok_or_else(|| fail(format!("{text:?} is no P_Key")))? & 0x7fff
            }
        };
        let mut default = Membership::Limited;
        for (flag, value) in words {
            if is_group_flag(flag) || shortens(flag, "ipoib") || flag == "indx0" {
                continue;
            }
            if !shortens(flag, "defmember") {
                self.warn(line, format!("unknown flag {flag:?} is ignored, as by OpenSM"));
                continue;
            }
            match value.and_then(membership) {
                Some(membership) => default = membership,
                None => {
                    let value = value.unwrap_or_default();
                    self.warn(line, format!("defmember is full, limited or both, not {value:?}; ignored"));
                }
            }
        }
        self.defined = true;
        let mut name = name.to_owned();
        while name.len() > MAX_NAME_BYTES {
            name.pop();
        }
        let index = self.place(line, name, key).ok_or_else(|| fail("no P_Key is left".to_owned()))?;
        Ok(Open { index, default, line })
    }

    /// Finds the partition that is meant, or makes it.
    fn place(&mut self, line: u32, name: String, key: u16) -> Option<usize> {
        let mut p_key = key;
        if p_key == 0 {
            if let Some(index) = self.by_name.get(&name) {
                return Some(*index);
            }
            p_key = loop {
                self.generated += 1;
                if self.generated >= DEFAULT_P_KEY {
                    return None;
                }
                if !self.by_key.contains_key(&self.generated) {
                    break self.generated;
                }
            };
        }
        if let Some(index) = self.by_key.get(&p_key).copied() {
            let known = &mut self.all[index];
            if known.line == 0 {
                known.line = line;
            }
            return Some(index);
        }
        let name = if name.is_empty() { format!("{p_key:04x}") } else { name };
        let index = self.all.len();
        self.by_key.insert(p_key, index);
        // of several with one name OpenSM finds the first in its order, that of P_Keys as they travel
        let of_name = self.by_name.entry(name.clone()).or_insert(index);
        if self.all.get(*of_name).is_some_and(|known| known.p_key.swap_bytes() > p_key.swap_bytes()) {
            *of_name = index;
        }
        self.all.push(Partition { name, p_key, line, rules: Vec::new() });
        Some(index)
    }

    /// What stands after the colon.
    fn members(&mut self, line: u32, open: Open, text: &str) -> Result<(), PartitionError> {
        let mut words = text.split(',').map(word);
        while let Some((name, value)) = words.next() {
            if name == "mgid" {
                let group = value.unwrap_or_default();
                if !group.parse::<Ipv6Addr>().is_ok_and(|group| group.is_multicast()) {
                    self.warn(line, format!("mgid {group:?} is no multicast group"));
                }
                for (flag, _) in words.by_ref().filter(|(flag, _)| !is_group_flag(flag)) {
                    self.warn(
                        line,
                        format!("{flag:?} after mgid is no flag of a group; ignored, as by OpenSM"),
                    );
                }
                break;
            }
            if shortens(name, "NONE") {
                continue;
            }
            let who = if shortens(name, "ALL") {
                Who::All
            } else if shortens(name, "ALL_CAS") {
                Who::Kind(PortKind::Ca)
            } else if shortens(name, "ALL_SWITCHES") {
                Who::Kind(PortKind::Switch)
            } else if shortens(name, "ALL_ROUTERS") {
                Who::Kind(PortKind::Router)
            } else if shortens(name, "SELF") {
                Who::Sm
            } else if let Some(guid) = c_number(name).filter(|guid| *guid != 0) {
                Who::Port(guid)
            } else {
                return Err(PartitionError { line, text: wrong_member(line, open, name) });
            };
            let membership = match value {
                None => open.default,
                Some(value) => membership(value).unwrap_or_else(|| {
                    self.warn(line, format!("membership {value:?} is unknown and counts as limited"));
                    Membership::Limited
                }),
            };
            self.all[open.index].rules.push((who, membership));
        }
        Ok(())
    }

    fn warn(&mut self, line: u32, text: String) {
        self.warnings.push(Warning { line, text });
    }
}

fn wrong_member(line: u32, open: Open, name: &str) -> String {
    let known = "write a port GUID, ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS or SELF";
    if shortens(name, "defmember") {
        return "defmember belongs before the colon: OpenSM refuses it here too".to_owned();
    }
    if line != open.line {
        return format!(
            "{name:?} is no member: {known}; or does the definition in line {} lack its \";\"?",
            open.line
        );
    }
    format!("{name:?} is no member: {known}")
}

/// `NAME` or `NAME=VALUE`, blanks around both taken off.
fn word(text: &str) -> (&str, Option<&str>) {
    match text.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text.trim(), None),
    }
}

/// Whether `word` is the beginning of `whole`; so is the empty word.
fn shortens(word: &str, whole: &str) -> bool {
    whole.starts_with(word)
}

fn is_group_flag(flag: &str) -> bool {
    let flags = ["mtu", "rate", "scope", "Q_Key", "TClass", "sl", "FlowLabel"];
    flags.iter().any(|known| shortens(flag, known))
}

fn membership(text: &str) -> Option<Membership> {
    if shortens(text, "full") || shortens(text, "both") {
        return Some(Membership::Full);
    }
    shortens(text, "limited").then_some(Membership::Limited)
}

/// A whole number as strtoul(3) with base 0 reads it.
fn c_number(text: &str) -> Option<u64> {
    let digits = |text: &str, radix| {
        let good = !text.is_empty() && text.bytes().all(|byte| char::from(byte).is_digit(radix));
        good.then(|| u64::from_str_radix(text, radix).ok()).flatten()
    };
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return digits(hex, 16);
    }
    let radix = if text.len() > 1 && text.starts_with('0') { 8 } else { 10 };
    digits(text, radix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Membership::{Full, Limited};

    const SM: u64 = 0x5e1f;

    fn parse(text: &str) -> Partitions {
        Partitions::parse(text).unwrap()
    }

    fn keys(text: &str) -> Vec<(String, u16)> {
        parse(text).iter().map(|partition| (partition.name.clone(), partition.p_key)).collect()
    }

    /// Membership of ports 0x1 (adapter), 0x2 (switch), 0x3 (router) and the subnet manager's in a partition.
    fn members(text: &str, p_key: u16) -> [Option<Membership>; 4] {
        let all = parse(text);
        let partition = all.iter().find(|partition| partition.p_key == p_key).unwrap();
        [(1, PortKind::Ca), (2, PortKind::Switch), (3, PortKind::Router), (SM, PortKind::Ca)]
            .map(|(guid, kind)| partition.membership(guid, kind, SM))
    }

    #[test]
    fn the_default_partition_is_always_there() {
        let all = Some(Full);
        assert_eq!(members("", 0x7fff), [all; 4]);
        assert_eq!(members("# nothing\n\n", 0x7fff), [all; 4], "a file that says nothing is no file");
        let limited = Some(Limited);
        assert_eq!(members("A=1: 0x1;", 0x7fff), [limited, limited, limited, all]);
        assert_eq!(members("Default=0x7fff : ALL=full;", 0x7fff), [all; 4]);
        assert_eq!(
            members("Default : ALL_CAS=full ;", 0x7fff),
            [all, limited, limited, all],
            "found by its name"
        );
        assert_eq!(members("0xffff,ipoib: ALL, 0x2=full;", 0x7fff), [limited, all, limited, limited]);
    }

    #[test]
    fn rules_hold_in_their_order_and_the_last_one_wins() {
        let (no, limited, full) = (None, Some(Limited), Some(Full));
        for (text, expected) in [
            ("P=2: ;", [no; 4]),
            ("P=2: NONE;", [no; 4]),
            ("P=2: ALL, SELF=full;", [limited, limited, limited, full]),
            ("P=2: SELF=full, ALL;", [limited; 4]),
            ("P=2: ALL_SWITCHES=full, ALL_ROUTERS;", [no, full, limited, no]),
            ("P=2: ALL_CAS;", [limited, no, no, limited]),
            ("P=2,defmember=full: 0x1, 2=limited, 03;", [full, limited, full, no]),
            ("P=2,defmember=both: 0x1, 0x2=both, 0x3=limited;", [full, full, limited, no]),
            ("P=2,def=fu: AL=limi, S;", [limited, limited, limited, full]),
            ("P=2 , ipoib , defmember = full : \n 0x1 = limi ,\n\t2\n, 3;", [limited, full, full, no]),
            ("P=2: 0x1=full; P=2: 0x2=full; Q=0x8002: 0x3;", [full, full, limited, no]),
        ] {
            assert_eq!(members(text, 2), expected, "{text}");
        }
    }

    #[test]
    fn p_keys_are_given_as_opensm_gives_them() {
        let named = |list: &[(&str, u16)]| {
            let all = [("Default", 0x7fff)].into_iter().chain(list.iter().copied());
            all.map(|(name, key)| (name.to_owned(), key)).collect::<Vec<_>>()
        };
        for (text, expected) in [
            ("A: ALL; B: ALL; C=0x8003: ALL; D: ALL;", named(&[("A", 1), ("B", 2), ("C", 3), ("D", 4)])),
            ("C=2: ALL; A: ALL; B: ALL;", named(&[("C", 2), ("A", 1), ("B", 3)])),
            ("A: ALL; A: SELF;", named(&[("A", 1)])),
            ("A=5: ALL; A=6: ALL; A: SELF=full;", named(&[("A", 5), ("A", 6)])),
            ("A=0x300: ALL; B=0x300: SELF;", named(&[("A", 0x300)])),
            ("0x80: ALL; 010: ALL; 10: ALL;", named(&[("0080", 0x80), ("0008", 8), ("000a", 10)])),
            (": ALL; =7: ALL;", named(&[("0001", 1), ("0007", 7)])),
            ("A=0x8000: ALL;", named(&[("A", 1)])),
        ] {
            assert_eq!(keys(text), expected, "{text}");
        }
        let long = "x".repeat(40);
        assert_eq!(keys(&format!("{long}=9: ALL;"))[1].0.len(), MAX_NAME_BYTES);
        let many: String = (0..0x7ffe).map(|number| format!("p{number}: ALL;\n")).collect();
        assert_eq!(parse(&many).all.len(), 0x7fff);
        let error = Partitions::parse(&(many + "one: ALL;")).unwrap_err();
        assert_eq!((error.line, error.text.as_str()), (0x7fff, "no P_Key is left"));
    }

    #[test]
    fn what_opensm_stops_at_is_an_error_with_its_line() {
        for (text, line, expected) in [
            ("A=0x10x: ALL;", 1, "\"0x10x\" is no P_Key"),
            ("A=0x10000: ALL;", 1, "\"0x10000\" is no P_Key"),
            ("A=: ALL;", 1, "\"\" is no P_Key"),
            ("\n# x\n  A=1\n: ALL;", 3, "a definition is NAME"),
            ("A=1: ALL; rubbish;", 1, "a definition is NAME"),
            ("A=1: host1;", 1, "\"host1\" is no member: write a port GUID"),
            ("A=1: 0;", 1, "\"0\" is no member"),
            ("A=1: ALL_", 1, ""),
            ("A=1: 0x1=full\nB=2: 0x2;", 2, "does the definition in line 1 lack its \";\"?"),
            ("A=1 : defmember=limited : 0x1;", 1, "belongs before the colon"),
        ] {
            let read = Partitions::parse(text);
            if expected.is_empty() {
                assert!(read.is_ok(), "{text}");
                continue;
            }
            let error = read.unwrap_err();
            assert!(
                error.line == line && error.text.contains(expected) && !error.text.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn what_opensm_reads_over_is_a_warning() {
        let text = "A=1,ipoibx,defmember=no,mtu=5,rate=3,sl=1,indx0: 0x1=owner;\n\
                    B=2,ipoib:\n mgid=ff12:401b::0707,sl=1 # IPv4\n mgid=ff12::1,sl=1,Q_Key=0xDEADBEEF,rate=3,mtu=2\n \
                    mgid=fe80::1\n mgid=ff12::2,ALL=full\n ALL=full;";
        let all = parse(text);
        let warned: Vec<u32> = all.warnings().iter().map(|warning| warning.line).collect();
        assert_eq!(warned, [1, 1, 1, 5, 6], "{:?}", all.warnings());
        assert_eq!(members(text, 1), [Some(Limited), None, None, None]);
        assert_eq!(members(text, 2), [Some(Full); 4]);
    }

    #[test]
    fn names_are_found_and_told_apart() {
        let all = parse("storage=0x10: ALL; A=5: ALL; A=6: ALL;");
        assert_eq!(all.find("storage").unwrap().p_key(), 0x10);
        assert_eq!(all.find("Default").unwrap().line(), 0);
        assert_eq!(
            all.find("storge").unwrap_err(),
            "there is no partition \"storge\"; did you mean storage?"
        );
        assert_eq!(
            all.find("A").unwrap_err(),
            "partition \"A\" has several P_Keys, 0x0005 and 0x0006; name the one by pkey="
        );
    }

    #[test]
    fn the_examples_of_the_manual_page_are_read() {
        let text = "Default=0x7fff : ALL, SELF=full ;\n\
             Default=0x7fff : ALL, ALL_SWITCHES=full, SELF=full ;\n\
             NewPartition , ipoib : 0x123456=full, 0x3456789034=limi, 0x2134af2306 ;\n\
             YetAnotherOne = 0x300 : SELF=full ;\nYetAnotherOne = 0x300 : ALL=limited ;\n\
             ShareIO = 0x80 , defmember=full : 0x123451, 0x123452;\n\
             ShareIO = 0x80 : 0x123453, 0x123454, 0x123455=full;\n\
             ShareIO = 0x80 , defmember=full : 0x12345b, 0x12345c=limited, 0x12345d;\n";
        let all = parse(text);
        assert_eq!(all.warnings(), []);
        assert_eq!(keys(text).len(), 4);
        let share = all.find("ShareIO").unwrap();
        let of = |guid| share.membership(guid, PortKind::Ca, SM);
        assert_eq!(
            [0x123451, 0x123453, 0x123455, 0x12345c, 0x1].map(of),
            [Some(Full), Some(Limited), Some(Full), Some(Limited), None]
        );
        assert_eq!(all.find("NewPartition").unwrap().p_key(), 1);
        assert_eq!(members(text, 0x300), [Some(Limited); 4], "the later rule wins over SELF=full");
    }
}
