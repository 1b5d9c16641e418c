//! Says what a text is when it is not a fabric description.
//!
//! Looks at bytes and first words only. A text that holds one node record is never refused here.

use super::ParseError;
use crate::lex::Lines;

const WANTED: &str = "wanted is plain ibnetdiscover output or an ibsim netfile";

fn refusal(line: u32, column: usize, what: &str) -> ParseError {
    let column = u32::try_from(column).unwrap_or(u32::MAX);
    ParseError { line, column, message: format!("{what}; {WANTED}") }
}

/// Refuses what cannot be text: nothing at all, UTF-16, compressed files, anything with NUL bytes.
pub(super) fn refuse_unreadable(text: &[u8]) -> Result<(), ParseError> {
    if text.iter().all(u8::is_ascii_whitespace) || text == b"\xef\xbb\xbf" {
        return Err(refusal(1, 1, "the text is empty"));
    }
    if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
        return Err(refusal(1, 1, "this looks like UTF-16 text, which has to be converted to UTF-8 first"));
    }
    let magics: [(&[u8], &str); 6] = [
        (b"\x1f\x8b", "this looks like a gzip file, which has to be unpacked first"),
        (b"\x28\xb5\x2f\xfd", "this looks like a zstd file, which has to be unpacked first"),
        (b"\xfd7zXZ\0", "this looks like an xz file, which has to be unpacked first"),
        (b"BZh", "this looks like a bzip2 file, which has to be unpacked first"),
        (b"\x7fELF", "this looks like a program"),
        (b"PK\x03\x04", "this looks like a zip file, which has to be unpacked first"),
    ];
    for (magic, what) in magics {
        if text.starts_with(magic) {
            return Err(refusal(1, 1, what));
        }
    }
    if let Some(at) = text.iter().position(|b| *b == 0) {
        let line = text[..at].iter().filter(|b| **b == b'\n').count() + 1;
        let start = text[..at].iter().rposition(|b| *b == b'\n').map_or(0, |nl| nl + 1);
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        return Err(refusal(line, at - start + 1, "this looks like a binary file"));
    }
    Ok(())
}

/// Names the format of a text in which no node record was found.
pub(super) fn explain_no_nodes(text: &[u8]) -> ParseError {
    for (number, line) in Lines::new(text) {
        let indent = line.iter().take_while(|b| b.is_ascii_whitespace()).count();
        let line_text = String::from_utf8_lossy(&line[indent..]);
        if let Some(what) = recognise(&line_text) {
            return refusal(number, indent + 1, what);
        }
    }
    refusal(1, 1, "no node record found")
}

fn recognise(line: &str) -> Option<&'static str> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    let second = words.next().unwrap_or("");
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    if matches!(first, "CA" | "SW" | "RT") && is_number(second) {
        return Some("this looks like the port report of ibnetdiscover -p, which does not describe nodes");
    }
    if matches!(first, "{") && matches!(second, "SW" | "CA" | "CA-SM" | "Rt" | "RT" | "SW-SM") {
        return Some("this looks like a subnet dump of OpenSM (.lst), which is not read yet");
    }
    let arrow = line.contains("-> ") && (line.starts_with('P') || line.contains("/P"));
    if arrow {
        return Some("this looks like an ibdm topology (.topo), which needs system definitions to expand");
    }
    if matches!(first, "Ca" | "Switch" | "Router") && second == ":" {
        return Some("this looks like a node list (ibnodes, ibhosts or ibswitches), which has no links");
    }
    if line.starts_with("CA: ") || line.starts_with("Switch: 0x") || line.starts_with("Switch 0x") {
        return Some("this looks like a link report of iblinkinfo");
    }
    if line.starts_with("Unicast lids") || line.starts_with("Multicast mlids") {
        return Some("this looks like a forwarding table dump");
    }
    if line.starts_with("CA '") {
        return Some("this looks like the output of ibstat");
    }
    if line.starts_with("<?xml") || line.starts_with("<!DOCTYPE") || line.starts_with("<html") {
        return Some("this looks like XML or HTML");
    }
    if line.starts_with("{\"") || line == "{" || line == "[" || line.starts_with("[{") {
        return Some("this looks like JSON");
    }
    if line.starts_with("IBND") {
        return Some("this looks like a cache file of ibnetdiscover --cache");
    }
    None
}
