//! Bytes to lines, and a cursor over one line.
//!
//! Borrowed views of the text; nothing is copied and nothing fails: a missing token is `None` and the cursor stays where
//! it was. Columns are counted in bytes from 1. Does not know what a record is.

/// Iterator over the lines of a text, numbered from 1; `\n` ends a line and one `\r` before it is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    number: u32,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text), number: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (u32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = match self.rest.iter().position(|b| *b == b'\n') {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &self.rest[self.rest.len()..]),
        };
        self.rest = rest;
        self.number = self.number.saturating_add(1);
        Some((self.number, line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

/// True for the characters that separate words of a line.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// Position in one line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    line: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self { line, pos: 0 }
    }

    /// Column of the next byte, from 1.
    pub(crate) fn column(&self) -> u32 {
        u32::try_from(self.pos).map_or(u32::MAX, |pos| pos.saturating_add(1))
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.line[self.pos..]
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.line.get(self.pos).copied()
    }

    pub(crate) fn skip_blanks(&mut self) {
        self.pos += self.rest().iter().take_while(|b| is_blank(**b)).count();
    }

    /// Takes `byte` if it is next.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let hit = self.peek() == Some(byte);
        self.pos += usize::from(hit);
        hit
    }

    /// Takes `text` if it is next.
    pub(crate) fn eat_text(&mut self, text: &[u8]) -> bool {
        let hit = self.rest().starts_with(text);
        if hit {
            self.pos += text.len();
        }
        hit
    }

    /// Moves on by `len` bytes, at most to the end.
    pub(crate) fn advance(&mut self, len: usize) {
        self.pos = self.line.len().min(self.pos + len);
    }

    /// Takes bytes while `keep` holds; may be empty.
    pub(crate) fn take_while(&mut self, keep: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.rest();
        let len = rest.iter().take_while(|b| keep(**b)).count();
        self.pos += len;
        &rest[..len]
    }

    /// Takes a word up to the next blank, after skipping blanks; `None` at the end.
    pub(crate) fn word(&mut self) -> Option<&'a [u8]> {
        self.skip_blanks();
        let word = self.take_while(|b| !is_blank(b));
        (!word.is_empty()).then_some(word)
    }

    /// Takes a decimal number; too large a one becomes `u64::MAX`.
    pub(crate) fn decimal(&mut self) -> Option<u64> {
        let digits = self.take_while(|b| b.is_ascii_digit());
        (!digits.is_empty()).then(|| fold_digits(digits, 10))
    }

    /// Takes `(hex)`, with or without `0x`; leaves the cursor alone if it is not exactly that.
    pub(crate) fn parenthesised_hex(&mut self) -> Option<u64> {
        let start = self.pos;
        if self.eat(b'(') {
            let _ = self.eat_text(b"0x");
            let digits = self.take_while(|b| b.is_ascii_hexdigit());
            if !digits.is_empty() && digits.len() <= 16 && self.eat(b')') {
                return Some(fold_digits(digits, 16));
            }
        }
        self.pos = start;
        None
    }

    /// Takes `"text"`, up to the next quote; leaves the cursor alone if there is no closing quote.
    pub(crate) fn quoted(&mut self) -> Option<&'a [u8]> {
        let inner = self.rest().strip_prefix(b"\"")?;
        let len = inner.iter().position(|b| *b == b'"')?;
        self.pos += len + 2;
        Some(&inner[..len])
    }

    /// Takes `"text"`, up to the last quote of the line, so that the text may hold quotes itself.
    pub(crate) fn quoted_greedy(&mut self) -> Option<&'a [u8]> {
        let inner = self.rest().strip_prefix(b"\"")?;
        let len = inner.iter().rposition(|b| *b == b'"')?;
        self.pos += len + 2;
        Some(&inner[..len])
    }

    /// Moves past the next `byte`; false and unmoved if there is none.
    pub(crate) fn skip_past(&mut self, byte: u8) -> bool {
        match self.rest().iter().position(|b| *b == byte) {
            Some(at) => {
                self.pos += at + 1;
                true
            }
            None => false,
        }
    }
}

/// Reads a number in C notation: `0x..` hexadecimal, `0..` octal, else decimal. The whole of `text` has to be digits.
pub(crate) fn c_number(text: &[u8]) -> Option<u64> {
    let (digits, base) = match text {
        [b'0', b'x' | b'X', hex @ ..] => (hex, 16),
        [b'0', octal @ ..] if !octal.is_empty() => (octal, 8),
        _ => (text, 10),
    };
    let fits = |b: &u8| char::from(*b).is_digit(base);
    (!digits.is_empty() && digits.iter().all(fits)).then(|| fold_digits(digits, base))
}

/// Reads a GUID: C notation, and bare hexadecimal if it has 16 digits or a letter in it.
pub(crate) fn guid_number(text: &[u8]) -> Option<u64> {
    let bare_hex = text.iter().all(u8::is_ascii_hexdigit)
        && (text.len() == 16 || text.iter().any(u8::is_ascii_alphabetic))
        && text.len() <= 16;
    if bare_hex { Some(fold_digits(text, 16)) } else { c_number(text) }
}

/// Value of digits that are known to fit `base`; saturates.
pub(crate) fn fold_digits(digits: &[u8], base: u32) -> u64 {
    let mut value: u64 = 0;
    for digit in digits {
        let digit = char::from(*digit).to_digit(base).unwrap_or(0);
        match value.checked_mul(u64::from(base)).and_then(|v| v.checked_add(u64::from(digit))) {
            Some(next) => value = next,
            None => return u64::MAX,
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_lf_or_crlf_and_a_bom_is_dropped() {
        let lines: Vec<_> = Lines::new(b"\xef\xbb\xbfa\r\n\nb\r\r\nc").collect();
        assert_eq!(lines, [(1, &b"a"[..]), (2, b""), (3, b"b\r"), (4, b"c")]);
    }

    #[test]
    fn numbers_follow_c_and_guids_may_be_bare() {
        assert_eq!(c_number(b"0x1f"), Some(31));
        assert_eq!(c_number(b"010"), Some(8));
        assert_eq!(c_number(b"10"), Some(10));
        assert_eq!(c_number(b"0"), Some(0));
        assert_eq!(c_number(b"09"), None);
        assert_eq!(c_number(b""), None);
        assert_eq!(c_number(b"99999999999999999999999"), Some(u64::MAX));
        assert_eq!(guid_number(b"0002c90300000001"), Some(0x0002_c903_0000_0001));
        assert_eq!(guid_number(b"2c903"), Some(0x2c903));
        assert_eq!(guid_number(b"100"), Some(100));
        assert_eq!(guid_number(b"xyz"), None);
    }

    #[test]
    fn quotes_close_early_for_ids_and_late_for_descriptions() {
        let mut c = Cursor::new(b"\"a\"b\" rest");
        assert_eq!(c.quoted_greedy(), Some(&b"a\"b"[..]));
        assert_eq!(c.column(), 6);
        let mut c = Cursor::new(b"\"a\"b\"");
        assert_eq!(c.quoted(), Some(&b"a"[..]));
        let mut c = Cursor::new(b"\"open");
        assert_eq!(c.quoted(), None);
        assert_eq!(c.column(), 1);
    }

    #[test]
    fn a_failed_token_leaves_the_cursor() {
        let mut c = Cursor::new(b"(12g)");
        assert_eq!(c.parenthesised_hex(), None);
        assert_eq!(c.column(), 1);
        let mut c = Cursor::new(b"(0x12)");
        assert_eq!(c.parenthesised_hex(), Some(0x12));
    }
}
