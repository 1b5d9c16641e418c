//! Keyword lines (`vendid=`, `switchguid=`, `module`, `include`, ...) and comments that carry data.

use super::{Current, GuidCounter, Reader, c_number, guid_number, kind_index};
use crate::graph::{LinkSpeed, LinkWidth, Name, NodeKind, PortRef};
use crate::lex::{Cursor, is_blank};
use crate::parse::{ParseError, sniff};

/// Depth of includes, as in ibsim.
const MAX_INCLUDE_DEPTH: u32 = 9;
/// Includes in one text altogether, so that files that include each other end.
const MAX_INCLUDES: u32 = 1000;

impl Reader<'_> {
    pub(super) fn keyword_line(
        &mut self,
        mut cursor: Cursor<'_>,
        after_blank: bool,
    ) -> Result<(), ParseError> {
        let start = cursor;
        let word = cursor.take_while(|b| b.is_ascii_lowercase());
        cursor.skip_blanks();
        match word {
            b"include" => {
                self.current = Current::None;
                return self.include_line(cursor);
            }
            b"do" => {
                self.warn(&start, "console commands (do) are not run and are ignored");
                return Ok(());
            }
            b"module" => {
                let _ = cursor.eat(b'=');
                return self.module_line(cursor);
            }
            _ => {}
        }
        let guid_of = match word {
            b"switchguid" | b"switchguids" => Some(NodeKind::Switch),
            b"caguid" | b"caguids" | b"hcaguid" | b"hcaguids" => Some(NodeKind::Ca),
            b"rtguid" | b"rtguids" => Some(NodeKind::Router),
            _ => None,
        };
        let known = guid_of.is_some()
            || matches!(
                word,
                b"vendid" | b"devid" | b"sysimgguid" | b"width" | b"speed" | b"extspeed" | b"pdebug"
            );
        let relative = guid_of.is_some() && cursor.peek() == Some(b'+');
        if !known || !(cursor.eat(b'=') || relative && cursor.eat(b'+')) {
            self.noise(start, after_blank);
            return Ok(());
        }
        self.current = Current::None;
        cursor.skip_blanks();
        let at = cursor;
        let value = cursor.take_while(|b| !is_blank(b) && b != b'(' && b != b'#');
        let number =
            if guid_of.is_some() || word == b"sysimgguid" { guid_number(value) } else { c_number(value) };
        let Some(number) = number else {
            let word = String::from_utf8_lossy(word);
            let value = String::from_utf8_lossy(value);
            return self.fault(&at, format!("{word} needs a number, not {value:?}; line ignored"));
        };
        if let Some(kind) = guid_of {
            let port0 = cursor.parenthesised_hex().filter(|guid| *guid != 0 && kind == NodeKind::Switch);
            let counter = &mut self.guids[kind_index(kind)];
            let base = if relative { counter.base } else { number };
            let next = if relative { base.wrapping_add(number) } else { number };
            *counter = GuidCounter { base, next, fresh: true, port0 };
            return Ok(());
        }
        let name = String::from_utf8_lossy(word).into_owned();
        let refuse =
            |reader: &mut Self| reader.fault(&at, format!("{name} {number} is not valid; line ignored"));
        match word {
            b"vendid" => match u32::try_from(number) {
                Ok(id @ 0..=0xff_ffff) => self.vendor_id = Some(id),
                _ => return refuse(self),
            },
            b"devid" => match u16::try_from(number) {
                Ok(id) => self.device_id = Some(id),
                Err(_) => return refuse(self),
            },
            b"sysimgguid" => self.system_image_guid = Some(number),
            b"width" => match LinkWidth::widest_of(number) {
                Some(width) => self.width = width,
                None => return refuse(self),
            },
            b"speed" => match LinkSpeed::fastest_of(number) {
                Some(speed) => self.speed = speed,
                None => return refuse(self),
            },
            b"extspeed" => match LinkSpeed::fastest_extended_of(number) {
                Some(speed) => self.extended_speed = speed,
                None => return refuse(self),
            },
            _ => {}
        }
        Ok(())
    }

    fn module_line(&mut self, mut cursor: Cursor<'_>) -> Result<(), ParseError> {
        cursor.skip_blanks();
        self.current = Current::None;
        match cursor.quoted() {
            Some(prefix) => {
                let prefix = String::from_utf8_lossy(prefix);
                if prefix.contains(['#', '@']) {
                    return self.fault(&cursor, format!("module {prefix:?}: # and @ cannot be part of it"));
                }
                self.module = prefix.into_owned();
                Ok(())
            }
            None => self.fault(&cursor, "module needs a prefix in quotes; line ignored"),
        }
    }

    fn include_line(&mut self, mut cursor: Cursor<'_>) -> Result<(), ParseError> {
        let at = cursor;
        let Some(name) = cursor.quoted() else {
            return self.fault(&cursor, "include needs a file name in quotes; line ignored");
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let (line, column) = (self.line, at.column());
        let Some(loader) = self.options.loader else {
            let message =
                format!("cannot include {name:?}: this text came without a place to look for files");
            return Err(self.log.error(line, column, message));
        };
        self.includes += 1;
        if self.include_depth >= MAX_INCLUDE_DEPTH || self.includes > MAX_INCLUDES {
            let message = format!(
                "cannot include {name:?}: more than {MAX_INCLUDE_DEPTH} levels or {MAX_INCLUDES} files of includes"
            );
            return Err(self.log.error(line, column, message));
        }
        let text = loader(&name)
            .map_err(|reason| self.log.error(line, column, format!("cannot include {name:?}: {reason}")))?;
        let outer = self.log.file;
        self.log.files.push(name.clone());
        self.log.file = u16::try_from(self.log.files.len()).unwrap_or(u16::MAX);
        if let Err(error) = sniff::refuse_unreadable(&text) {
            self.log.file = outer;
            return Err(self.log.error(line, column, format!("cannot include {name:?}: {}", error.message)));
        }
        self.include_depth += 1;
        let result = self.read(&text);
        self.include_depth -= 1;
        self.log.file = outer;
        self.line = line;
        self.after_blank = false;
        self.current = Current::None;
        result
    }

    /// Comments say nothing, but for the start of the scan and for the notes our own emitter leaves (`#: ...`).
    pub(super) fn comment_line(&mut self, mut cursor: Cursor<'_>) -> Result<(), ParseError> {
        if cursor.eat_text(b"#:") {
            return self.note(cursor);
        }
        if cursor.eat_text(b"# Initiated from node ") {
            let node = cursor.take_while(|b| b.is_ascii_hexdigit());
            if cursor.eat_text(b" port ") {
                let port = cursor.take_while(|b| b.is_ascii_hexdigit());
                if let (1..=16, 1..=16) = (node.len(), port.len()) {
                    let hex = |digits| crate::lex::fold_digits(digits, 16);
                    self.origin = Some((hex(node), hex(port)));
                }
            }
        }
        Ok(())
    }

    /// Reads `#: name "id"`, `#: alias 3 "name"` or `#: port 2 guid 0x1 lid 3 lmc 0`: what the format has no place for.
    ///
    /// Anything else behind `#:` is somebody's comment.
    fn note(&mut self, mut cursor: Cursor<'_>) -> Result<(), ParseError> {
        let Current::Node(node) = self.current else { return Ok(()) };
        let last = self.topology.nodes[node as usize].num_ports();
        let what = cursor.word();
        cursor.skip_blanks();
        match what {
            Some(b"name") => {
                if let Some(name) = cursor.quoted() {
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.topology.names.push(Name { name, end: PortRef { node, port: 0 } });
                }
            }
            Some(b"alias") => {
                let port = cursor.decimal().and_then(|port| u8::try_from(port).ok()).unwrap_or(0);
                cursor.skip_blanks();
                if let Some(name) = cursor.quoted()
                    && (1..=last).contains(&port)
                {
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.topology.names.push(Name { name, end: PortRef { node, port } });
                }
            }
            Some(b"port") => {
                let port = cursor.decimal().and_then(|port| u8::try_from(port).ok()).unwrap_or(0);
                let is_switch = self.topology.nodes[node as usize].kind == NodeKind::Switch;
                if !(1..=last).contains(&port) || is_switch {
                    return Ok(());
                }
                cursor.skip_blanks();
                let guid = if cursor.eat_text(b"guid ") { cursor.word().and_then(guid_number) } else { None };
                let remarks = self.remarks(&mut cursor, true)?;
                let entry = &mut self.topology.nodes[node as usize].ports[usize::from(port)];
                entry.guid = guid.unwrap_or(entry.guid);
                (entry.lid, entry.lmc) = (remarks.lid, remarks.lmc);
            }
            _ => {}
        }
        Ok(())
    }
}
