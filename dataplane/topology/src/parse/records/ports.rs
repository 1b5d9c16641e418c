//! Port lines and alias lines: who is cabled to whom, as seen from one end.

use super::{Alias, Current, Reader, c_number};
use crate::graph::{LinkSpeed, LinkWidth, Name, NodeKind, PortRef};
use crate::lex::{Cursor, is_blank};
use crate::parse::ParseError;

/// Rate of a link as one end gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::parse) struct Rate {
    pub(in crate::parse) width: LinkWidth,
    pub(in crate::parse) speed: LinkSpeed,
    /// The width was written on the line itself, not taken from a default.
    pub(in crate::parse) own_width: bool,
    /// The same for the speed.
    pub(in crate::parse) own_speed: bool,
}

/// What a port line names as the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::parse) enum Target {
    /// A port of a node, by id.
    Port(u32, u8),
    /// A port by alias.
    Alias(Box<str>),
}

/// One port line.
#[derive(Debug)]
pub(in crate::parse) struct Claim {
    pub(in crate::parse) from: PortRef,
    pub(in crate::parse) target: Target,
    pub(in crate::parse) line: u32,
    pub(in crate::parse) column: u32,
    pub(in crate::parse) file: u16,
    pub(in crate::parse) rate: Rate,
    /// GUID of the port at the other end, 0 if not given.
    pub(in crate::parse) peer_guid: u64,
}

impl Reader<'_> {
    pub(super) fn port_line_after_blank(&mut self, cursor: Cursor<'_>) -> Result<(), ParseError> {
        match self.current {
            Current::Node(node) => {
                let header = self.node_lines[node as usize];
                self.fault(
                    &cursor,
                    format!("port line after a blank line, counted to the node of line {header}"),
                )
            }
            Current::None | Current::Skipped => Ok(()),
        }
    }

    /// Takes `[n]`; says what is wrong with anything else.
    fn port_number(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<u64>, ParseError> {
        let start = *cursor;
        let number = if cursor.eat(b'[') { cursor.decimal() } else { None };
        if number.is_none() || !cursor.eat(b']') {
            self.fault(&start, "a port number in brackets is expected; line ignored")?;
            return Ok(None);
        }
        Ok(number)
    }

    /// The port of the current record that a line starts with, if it can be cabled.
    fn own_port(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<PortRef>, ParseError> {
        let start = *cursor;
        let node = match self.current {
            Current::Node(node) => node,
            Current::Skipped => return Ok(None),
            Current::None => {
                self.fault(&start, "port line outside a node record; line ignored")?;
                return Ok(None);
            }
        };
        let Some(number) = self.port_number(cursor)? else { return Ok(None) };
        let last = self.topology.nodes[node as usize].num_ports();
        match u8::try_from(number) {
            Ok(port) if (1..=last).contains(&port) => Ok(Some(PortRef { node, port })),
            _ => {
                let message =
                    format!("port {number} is out of range, the node has ports 1 to {last}; line ignored");
                self.fault(&start, message)?;
                Ok(None)
            }
        }
    }

    /// Reads `[1](guid) "peer"[2](guid) w=2 # lid 1 lmc 0 "description" lid 2 4xQDR`.
    pub(super) fn port_line(&mut self, mut cursor: Cursor<'_>) -> Result<(), ParseError> {
        let column = cursor.column();
        let Some(from) = self.own_port(&mut cursor)? else { return Ok(()) };
        skip_external_port(&mut cursor);
        let own_guid = port_guid(&mut cursor, from.port);
        cursor.skip_blanks();
        let Some(peer) = cursor.quoted().filter(|id| !id.is_empty()) else {
            return self.fault(&cursor, "the id of the other end is expected in quotes; line ignored");
        };
        let peer = String::from_utf8_lossy(peer);
        let mut peer_port = 1;
        if cursor.peek() == Some(b'[') && !cursor.rest().starts_with(b"[ext") {
            let at = cursor;
            let Some(number) = self.port_number(&mut cursor)? else { return Ok(()) };
            peer_port = match u8::try_from(number) {
                Ok(port @ 1..=254) => port,
                _ => {
                    return self
                        .fault(&at, format!("no node can have a port {number} to cable; line ignored"));
                }
            };
        }
        skip_external_port(&mut cursor);
        let peer_guid = port_guid(&mut cursor, peer_port);
        let mut rate = self.default_rate();
        self.options_of_link(&mut cursor, &mut rate)?;

        let slot = if peer.contains('@') {
            None
        } else if self.module.is_empty() || peer.contains('#') {
            Some(self.slots.intern(&peer))
        } else {
            Some(self.slots.intern(&format!("{}#{peer}", self.module)))
        };
        if cursor.eat(b'#') {
            self.port_comment(cursor, from, slot, &mut rate)?;
        }
        let node = &mut self.topology.nodes[from.node as usize];
        if node.kind != NodeKind::Switch && own_guid != 0 {
            node.ports[usize::from(from.port)].guid = own_guid;
        }
        let target = match slot {
            Some(slot) => Target::Port(slot, peer_port),
            None if peer.starts_with('@') => Target::Alias(format!("{}{peer}", self.module).into()),
            None => Target::Alias(peer.into()),
        };
        let (line, file) = (self.line, self.log.file);
        self.claims.push(Claim { from, target, line, column, file, rate, peer_guid });
        Ok(())
    }

    /// Reads what follows `#`: own LID and LMC (adapters only), the peer's description and LID, the rate.
    fn port_comment(
        &mut self,
        mut cursor: Cursor<'_>,
        from: PortRef,
        peer: Option<u32>,
        rate: &mut Rate,
    ) -> Result<(), ParseError> {
        let is_switch = self.topology.nodes[from.node as usize].kind == NodeKind::Switch;
        let own = self.remarks(&mut cursor, !is_switch)?;
        let mut theirs = own;
        if cursor.peek() == Some(b'"') {
            let Some(description) = cursor.quoted_greedy() else {
                return self.fault(&cursor, "the quote of the description is not closed");
            };
            theirs = self.remarks(&mut cursor, false)?;
            if self.options.stub_undefined
                && let Some(slot) = peer
                && self.slots.get(slot).hint.is_none()
            {
                let text = String::from_utf8_lossy(description).into_owned();
                self.slots.get_mut(slot).hint = Some((text, theirs.lid));
            }
        }
        if !is_switch {
            let port = &mut self.topology.nodes[from.node as usize].ports[usize::from(from.port)];
            (port.lid, port.lmc) = (own.lid, own.lmc);
        }
        if let Some((width, speed)) = theirs.rate.or(own.rate) {
            *rate = Rate { width, speed, own_width: true, own_speed: true };
        }
        Ok(())
    }

    fn default_rate(&self) -> Rate {
        let speed = self.extended_speed.unwrap_or(self.speed);
        Rate { width: self.width, speed, own_width: false, own_speed: false }
    }

    /// Reads `w=`, `s=` and `e=` up to a `#` or the end of the line.
    fn options_of_link(&mut self, cursor: &mut Cursor<'_>, rate: &mut Rate) -> Result<(), ParseError> {
        loop {
            let _ = cursor.take_while(|b| is_blank(b) || b == b',');
            if matches!(cursor.peek(), None | Some(b'#')) {
                return Ok(());
            }
            let at = *cursor;
            let name = cursor.take_while(|b| b.is_ascii_alphabetic());
            if name.is_empty() || !cursor.eat(b'=') {
                let _ = cursor.take_while(|b| !is_blank(b) && b != b'#');
                self.fault(&at, "text that is no link option (w=, s=, e=) is ignored")?;
                continue;
            }
            let value = cursor.take_while(|b| !is_blank(b) && b != b',' && b != b'#');
            let number = c_number(value);
            let understood = match name.first() {
                Some(b'w') => match number.and_then(LinkWidth::widest_of) {
                    Some(width) => {
                        (rate.width, rate.own_width) = (width, true);
                        true
                    }
                    None => false,
                },
                Some(b's') => match number.and_then(LinkSpeed::fastest_of) {
                    Some(speed) => {
                        if !(rate.own_speed && rate.speed > LinkSpeed::Qdr) {
                            (rate.speed, rate.own_speed) = (speed, true);
                        }
                        true
                    }
                    None => false,
                },
                Some(b'e') => match number.and_then(LinkSpeed::fastest_extended_of) {
                    Some(speed) => {
                        if let Some(speed) = speed {
                            (rate.speed, rate.own_speed) = (speed, true);
                        }
                        true
                    }
                    None => false,
                },
                _ => false,
            };
            if !understood {
                let text = format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                self.fault(&at, format!("link option {text:?} is not valid and is ignored"))?;
            }
        }
    }

    /// Reads `@[1] "alias" w=2`: a name for a port of the current node.
    pub(super) fn alias_line(&mut self, mut cursor: Cursor<'_>) -> Result<(), ParseError> {
        let _ = cursor.eat(b'@');
        let Some(end) = self.own_port(&mut cursor)? else { return Ok(()) };
        cursor.skip_blanks();
        let at = cursor;
        let Some(alias) = cursor.quoted().filter(|alias| !alias.is_empty()) else {
            return self.fault(&cursor, "an alias is expected in quotes; line ignored");
        };
        let alias = String::from_utf8_lossy(alias);
        if alias.contains(['#', '@']) {
            return self.fault(&at, format!("alias {alias:?}: # and @ cannot be part of it; line ignored"));
        }
        let name = format!("{}@{alias}", self.module);
        let mut rate = self.default_rate();
        self.options_of_link(&mut cursor, &mut rate)?;
        if self.aliases.contains_key(&name) {
            return self.fault(&at, format!("alias {name:?} is taken already; line ignored"));
        }
        self.aliases.insert(name.clone(), Alias { end, rate });
        self.topology.names.push(Name { name, end });
        Ok(())
    }
}

/// Takes `[ext 5]`, the label on the outside of a chassis.
fn skip_external_port(cursor: &mut Cursor<'_>) {
    if cursor.rest().starts_with(b"[ext") {
        let _ = cursor.skip_past(b']');
    }
}

/// Takes `(guid)`; 0 if there is none. ibdiagnet writes the port number there, which is no GUID.
fn port_guid(cursor: &mut Cursor<'_>, port: u8) -> u64 {
    let text = cursor.rest();
    let guid = cursor.parenthesised_hex().unwrap_or(0);
    if is_port_label(text, port) { 0 } else { guid }
}

/// True if `text` starts with the port number itself in brackets.
fn is_port_label(text: &[u8], port: u8) -> bool {
    let mut cursor = Cursor::new(text);
    cursor.eat(b'(') && cursor.decimal() == Some(u64::from(port)) && cursor.eat(b')')
}
