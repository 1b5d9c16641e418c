//! Line by line: keywords, node headers, port lines.
//!
//! [`Reader`] is owned by one call of `parse`. It makes nodes at once and keeps links as claims of one end, which
//! `resolve` pairs when all nodes are known. Keywords, GUID counters and defaults follow ibsim.

mod keywords;
mod ports;

use rustc_hash::FxHashMap;

use super::names::{Key, SlotState, Slots};
use super::{Log, ParseError, ParseOptions};
use crate::graph::{
    DEFAULT_VENDOR_ID, LinkSpeed, LinkWidth, MAX_NODES, Name, Node, NodeKind, Port, PortRef, Topology,
};
use crate::lex::{Cursor, Lines, c_number, guid_number, is_blank};
use crate::rate::{looks_like_rate, parse_rate};

pub(super) use ports::{Claim, Rate, Target};

/// Highest LID of an end port.
const LAST_UNICAST_LID: u64 = 0xbfff;
/// Longest NodeDescription.
const DESCRIPTION_LEN: usize = 64;
/// GUIDs that are invented for nodes without one start here, by kind (adapter, switch, router).
const FIRST_GUIDS: [u64; 3] = [0x10_0000, 0x20_0000, 0x30_0000];

/// GUID source of one kind of node.
#[derive(Debug, Clone, Copy)]
struct GuidCounter {
    base: u64,
    next: u64,
    /// Assigned by a keyword since the last node of the kind.
    fresh: bool,
    /// Port GUID that came in brackets behind `switchguid=`.
    port0: Option<u64>,
}

/// The record that port lines belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    /// No header so far.
    None,
    /// This node.
    Node(u32),
    /// A record that is skipped.
    Skipped,
}

/// What the part of a line behind `#` says besides the description.
#[derive(Debug, Default, Clone, Copy)]
struct Remarks {
    enhanced_port0: bool,
    lid: u16,
    lmc: u8,
    rate: Option<(LinkWidth, LinkSpeed)>,
}

/// State of reading; see the module.
pub(super) struct Reader<'o> {
    pub(super) options: &'o ParseOptions<'o>,
    pub(super) log: Log,
    pub(super) topology: Topology,
    pub(super) slots: Slots,
    pub(super) claims: Vec<Claim>,
    /// Port aliases, by full name.
    pub(super) aliases: FxHashMap<String, Alias>,
    /// Line of each node's header.
    pub(super) node_lines: Vec<u32>,
    /// Slot of each node.
    pub(super) node_slots: Vec<u32>,
    pub(super) node_by_guid: FxHashMap<u64, u32>,
    /// Index of the first made-up node.
    pub(super) first_stub: Option<u32>,
    /// The port that the header comment says the scan started from.
    pub(super) origin: Option<(u64, u64)>,
    guids: [GuidCounter; 3],
    vendor_id: Option<u32>,
    device_id: Option<u16>,
    system_image_guid: Option<u64>,
    width: LinkWidth,
    speed: LinkSpeed,
    extended_speed: Option<LinkSpeed>,
    module: String,
    current: Current,
    after_blank: bool,
    line: u32,
    includes: u32,
    include_depth: u32,
}

/// An alias of a port: where, on which line, and the rate its line gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alias {
    pub(super) end: PortRef,
    pub(super) rate: Rate,
}

fn kind_index(kind: NodeKind) -> usize {
    match kind {
        NodeKind::Ca => 0,
        NodeKind::Switch => 1,
        NodeKind::Router => 2,
    }
}

impl<'o> Reader<'o> {
    pub(super) fn new(options: &'o ParseOptions<'o>) -> Self {
        let counter = |first| GuidCounter { base: first, next: first, fresh: false, port0: None };
        Self {
            options,
            log: Log::new(options.strict),
            topology: Topology::default(),
            slots: Slots::default(),
            claims: Vec::new(),
            aliases: FxHashMap::default(),
            node_lines: Vec::new(),
            node_slots: Vec::new(),
            node_by_guid: FxHashMap::default(),
            first_stub: None,
            origin: None,
            guids: FIRST_GUIDS.map(counter),
            vendor_id: None,
            device_id: None,
            system_image_guid: None,
            width: LinkWidth::default(),
            speed: LinkSpeed::default(),
            extended_speed: None,
            module: String::new(),
            current: Current::None,
            after_blank: false,
            line: 0,
            includes: 0,
            include_depth: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.topology.nodes.is_empty()
    }

    /// Reads one text from its first line to its last.
    pub(super) fn read(&mut self, text: &[u8]) -> Result<(), ParseError> {
        if u32::try_from(text.len()).is_err() {
            return Err(self.log.error(1, 1, "texts of 4 GiB or more are not read"));
        }
        for (number, line) in Lines::new(text) {
            self.line = number;
            self.read_line(line)?;
        }
        Ok(())
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), ParseError> {
        let mut cursor = Cursor::new(line);
        cursor.skip_blanks();
        let blank_before = std::mem::replace(&mut self.after_blank, false);
        let Some(first) = cursor.peek() else {
            self.after_blank = true;
            return Ok(());
        };
        match first {
            b'#' => {
                self.after_blank = blank_before;
                self.comment_line(cursor)
            }
            b'[' if cursor.rest().get(1).is_some_and(u8::is_ascii_digit) => {
                if blank_before {
                    self.port_line_after_blank(cursor)?;
                }
                self.port_line(cursor)
            }
            b'@' if cursor.rest().get(1) == Some(&b'[') => self.alias_line(cursor),
            b'S' | b'C' | b'H' | b'R' | b'N' => self.header_or_noise(cursor, blank_before),
            b'a'..=b'z' => self.keyword_line(cursor, blank_before),
            _ => {
                self.noise(cursor, blank_before);
                Ok(())
            }
        }
    }

    /// A line that is not of the language, such as an error message or a pasted prompt.
    ///
    /// After a blank line it may be a garbled header, so port lines that follow are not counted to the node before.
    fn noise(&mut self, cursor: Cursor<'_>, after_blank: bool) {
        if after_blank {
            self.current = Current::None;
        }
        let text = String::from_utf8_lossy(cursor.rest());
        let text = text.trim_end();
        let cut = text.char_indices().nth(40).map_or(text, |(at, _)| &text[..at]);
        let dots = if cut.len() < text.len() { "..." } else { "" };
        self.log.warn(self.line, cursor.column(), format!("line not understood and ignored: {cut:?}{dots}"));
    }

    fn fault(&mut self, cursor: &Cursor<'_>, message: impl Into<String>) -> Result<(), ParseError> {
        self.log.fault(self.line, cursor.column(), message)
    }

    fn warn(&mut self, cursor: &Cursor<'_>, message: impl Into<String>) {
        self.log.warn(self.line, cursor.column(), message);
    }

    fn header_or_noise(&mut self, mut cursor: Cursor<'_>, after_blank: bool) -> Result<(), ParseError> {
        let start = cursor;
        let word = cursor.take_while(|b| b.is_ascii_alphabetic());
        let kind = match word {
            b"Switch" => NodeKind::Switch,
            b"Ca" | b"Hca" => NodeKind::Ca,
            b"Rt" => NodeKind::Router,
            // Headings of grouped output.
            b"Chassis" => return Ok(()),
            b"Non" if cursor.rest().starts_with(b"-Chassis") => return Ok(()),
            _ => {
                self.noise(start, after_blank);
                return Ok(());
            }
        };
        if !cursor.peek().is_some_and(|b| is_blank(b) || b.is_ascii_digit()) {
            self.noise(start, after_blank);
            return Ok(());
        }
        cursor.skip_blanks();
        let ports_at = cursor;
        let Some(num_ports) = cursor.decimal() else {
            // Another tool's list, or a sentence that starts with this word.
            self.noise(start, after_blank);
            return Ok(());
        };
        cursor.skip_blanks();
        self.current = Current::Skipped;
        let id_at = cursor;
        let Some(id) = cursor.quoted().filter(|id| !id.is_empty()) else {
            return self.fault(&cursor, "a node header needs an id in quotes; the record is skipped");
        };
        let id = self.qualified_id(id, &id_at)?;
        let slot = self.slots.intern(&id);
        if let SlotState::Node(other) = self.slots.get(slot).state {
            let before = self.node_lines[other as usize];
            return self
                .fault(&id_at, format!("node {id:?} is already defined on line {before}; record skipped"));
        }
        let num_ports = match u8::try_from(num_ports) {
            Ok(255) => {
                self.fault(
                    &ports_at,
                    format!("node {id:?} has 255 ports, 254 are possible; the last is left out"),
                )?;
                254
            }
            Ok(n) if n > 0 => n,
            _ => {
                self.slots.get_mut(slot).state = SlotState::Skipped;
                let message =
                    format!("node {id:?} has {num_ports} ports, 1 to 254 are possible; record skipped");
                return self.fault(&ports_at, message);
            }
        };
        if self.topology.nodes.len() >= MAX_NODES {
            let message = format!("more than {MAX_NODES} nodes, which is all the unicast LIDs there are");
            return Err(self.log.error(self.line, start.column(), message));
        }
        let (description, remarks) = self.header_comment(cursor, kind)?;
        self.add_node(kind, num_ports, slot, description.unwrap_or(id), remarks, &id_at)
    }

    /// Reads `# "description" enhanced port 0 lid 1 lmc 0`; ibsim takes the description without quotes too.
    fn header_comment(
        &mut self,
        mut cursor: Cursor<'_>,
        kind: NodeKind,
    ) -> Result<(Option<String>, Remarks), ParseError> {
        if !cursor.skip_past(b'#') {
            return Ok((None, Remarks::default()));
        }
        cursor.skip_blanks();
        let at = cursor;
        let raw = if cursor.peek() == Some(b'"') {
            match cursor.quoted_greedy() {
                Some(text) => text,
                None => {
                    self.fault(&cursor, "the quote of the description is not closed")?;
                    let rest = &cursor.rest()[1..];
                    cursor = Cursor::new(b"");
                    rest.trim_ascii_end()
                }
            }
        } else {
            let rest = cursor.rest();
            let marks: [&[u8]; 4] = [b" enhanced port ", b" base port ", b" lid ", b" lmc "];
            let found = |mark: &[u8]| rest.windows(mark.len()).position(|w| w == mark);
            let end = marks.into_iter().filter_map(found).min().unwrap_or(rest.len());
            cursor.advance(end);
            rest[..end].trim_ascii_end()
        };
        let description = self.description(raw, &at)?;
        let remarks = self.remarks(&mut cursor, kind == NodeKind::Switch)?;
        Ok((Some(description), remarks))
    }

    /// Makes valid text of at most 64 bytes.
    fn description(&mut self, raw: &[u8], at: &Cursor<'_>) -> Result<String, ParseError> {
        let mut text = String::from_utf8_lossy(raw).into_owned();
        if text.len() > DESCRIPTION_LEN {
            self.fault(at, format!("description of {} bytes is cut to {DESCRIPTION_LEN}", text.len()))?;
            let mut end = DESCRIPTION_LEN;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        Ok(text)
    }

    /// Reads words such as `lid 3 lmc 0 4xQDR` up to a quote or the end of the line.
    fn remarks(&mut self, cursor: &mut Cursor<'_>, say: bool) -> Result<Remarks, ParseError> {
        let mut remarks = Remarks::default();
        loop {
            cursor.skip_blanks();
            if matches!(cursor.peek(), None | Some(b'"')) {
                return Ok(remarks);
            }
            let at = *cursor;
            let word = cursor.take_while(|b| !is_blank(b) && b != b'"');
            match word {
                b"enhanced" => remarks.enhanced_port0 = true,
                b"lid" | b"lmc" => {
                    let mut ahead = *cursor;
                    ahead.skip_blanks();
                    let number_at = ahead;
                    let text = ahead.take_while(|b| !is_blank(b) && b != b'"');
                    let Some(number) = c_number(text).or_else(|| decimal_number(text)) else {
                        if say {
                            let name = String::from_utf8_lossy(word);
                            self.warn(&at, format!("{name} without a number"));
                        }
                        continue;
                    };
                    *cursor = ahead;
                    if word == b"lmc" {
                        remarks.lmc = match u8::try_from(number) {
                            Ok(lmc @ 0..=7) => lmc,
                            _ => {
                                self.warn(
                                    &number_at,
                                    format!("lmc {number} is not in 0 to 7 and is ignored"),
                                );
                                0
                            }
                        };
                    } else if number > LAST_UNICAST_LID {
                        if say {
                            let message = format!("lid {number} is not a unicast lid and is ignored");
                            self.warn(&number_at, message);
                        }
                    } else {
                        remarks.lid = u16::try_from(number).unwrap_or(0);
                    }
                }
                _ if looks_like_rate(word) => match parse_rate(word) {
                    Some(rate) => remarks.rate = Some(rate),
                    None => {
                        let word = String::from_utf8_lossy(word);
                        self.fault(&at, format!("link rate {word:?} is not known"))?;
                    }
                },
                _ => {
                    if word.is_empty() {
                        return Ok(remarks);
                    }
                }
            }
        }
    }

    /// Chooses the GUID of a new node: from a keyword, else from its id, else the next one of its kind.
    fn choose_guid(
        &mut self,
        kind: NodeKind,
        num_ports: u8,
        slot: u32,
        at: &Cursor<'_>,
    ) -> Result<u64, ParseError> {
        let own = match self.slots.get(slot).key {
            Key::Guid(_, guid) => Some(guid),
            Key::Text(_) => None,
        };
        let counter = &mut self.guids[kind_index(kind)];
        let assigned = std::mem::replace(&mut counter.fresh, false);
        let used = if kind == NodeKind::Switch { 1 } else { u64::from(num_ports) + 1 };
        let guid = match own {
            Some(own) if !assigned => own,
            _ => {
                let guid = counter.next;
                counter.next = counter.next.wrapping_add(used);
                guid
            }
        };
        if let Some(own) = own
            && own != guid
        {
            let id = self.slots.get(slot).key.text();
            self.warn(at, format!("the guid 0x{guid:x} of node {id:?} differs from its id; the guid counts"));
        }
        let taken = |guid: u64, map: &FxHashMap<u64, u32>| guid == 0 || map.contains_key(&guid);
        if !taken(guid, &self.node_by_guid) {
            return Ok(guid);
        }
        let replacement = match own {
            Some(own) if !taken(own, &self.node_by_guid) => own,
            _ => {
                let first = FIRST_GUIDS[kind_index(kind)];
                (0..).map(|n: u64| first + n * 256).find(|g| !taken(*g, &self.node_by_guid)).expect("endless")
            }
        };
        let message = match self.node_by_guid.get(&guid) {
            Some(other) => {
                let other_line = self.node_lines[*other as usize];
                format!(
                    "guid 0x{guid:x} already belongs to the node of line {other_line}; 0x{replacement:x} is used"
                )
            }
            None => format!("a node cannot have guid 0; 0x{replacement:x} is used"),
        };
        self.fault(at, message)?;
        Ok(replacement)
    }

    fn add_node(
        &mut self,
        kind: NodeKind,
        num_ports: u8,
        slot: u32,
        description: String,
        remarks: Remarks,
        at: &Cursor<'_>,
    ) -> Result<(), ParseError> {
        let description = if description.len() > DESCRIPTION_LEN {
            self.description(description.as_bytes(), at)?
        } else {
            description
        };
        let port0 = self.guids[kind_index(kind)].port0.take();
        let guid = self.choose_guid(kind, num_ports, slot, at)?;
        let index = u32::try_from(self.topology.nodes.len()).expect("bounded by MAX_NODES");
        let mut ports = vec![Port::default(); usize::from(num_ports) + 1];
        if kind == NodeKind::Switch {
            ports[0].guid = port0.unwrap_or(guid);
            ports[0].lid = remarks.lid;
            ports[0].lmc = remarks.lmc;
        }
        self.topology.nodes.push(Node {
            kind,
            guid,
            system_image_guid: self.system_image_guid.take().unwrap_or(guid),
            vendor_id: self.vendor_id.take().unwrap_or(DEFAULT_VENDOR_ID),
            device_id: self.device_id.unwrap_or_else(|| kind.default_device_id()),
            description,
            ports,
            enhanced_port0: kind == NodeKind::Switch && remarks.enhanced_port0,
        });
        self.node_by_guid.insert(guid, index);
        self.node_lines.push(self.line);
        self.node_slots.push(slot);
        let entry = self.slots.get_mut(slot);
        entry.state = SlotState::Node(index);
        if entry.key != Key::Guid(kind, guid) {
            let name = entry.key.text();
            self.topology.names.push(Name { name, end: PortRef { node: index, port: 0 } });
        }
        self.current = Current::Node(index);
        Ok(())
    }

    /// Decodes an id of a header and puts the module prefix in front.
    fn qualified_id(&mut self, id: &[u8], at: &Cursor<'_>) -> Result<String, ParseError> {
        let id = String::from_utf8_lossy(id);
        if id.contains(['#', '@']) {
            self.fault(at, format!("node id {id:?}: # and @ are kept for modules and aliases"))?;
        }
        if self.module.is_empty() { Ok(id.into_owned()) } else { Ok(format!("{}#{id}", self.module)) }
    }
}

/// Decimal digits with a leading zero that C notation would refuse, such as `09`.
fn decimal_number(text: &[u8]) -> Option<u64> {
    (!text.is_empty() && text.iter().all(u8::is_ascii_digit)).then(|| crate::lex::fold_digits(text, 10))
}
