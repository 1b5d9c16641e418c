//! Short texts in shared memory, as words of atomics.
//!
//! One writing process per text. A reader may see a text that is being replaced and then gets a mix of the two; texts
//! are for people, never for decisions.

use crate::sync::{AtomicU64, Ordering};

/// `WORDS * 8` bytes of UTF-8, padded with zeros.
#[derive(Debug)]
#[repr(C)]
pub struct SharedText<const WORDS: usize> {
    words: [AtomicU64; WORDS],
}

/// Stores `text` in a zero-padded field, cut at a character boundary to what fits.
pub fn store_padded(field: &mut [u8], text: &str) {
    let piece = fitting(text, field.len());
    field.fill(0);
    field[..piece.len()].copy_from_slice(piece);
}

/// Returns the text of a zero-padded field; bytes that are not UTF-8 are replaced.
pub fn load_padded(field: &[u8]) -> String {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn fitting(text: &str, bytes: usize) -> &[u8] {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

impl<const WORDS: usize> SharedText<WORDS> {
    /// What [`SharedText::store`] keeps of `text`.
    pub(crate) fn fitting<'a>(&self, text: &'a str) -> &'a [u8] {
        fitting(text, WORDS * 8)
    }

    /// Stores `text`, cut at a character boundary to what fits.
    pub fn store(&self, text: &str) {
        let bytes = self.fitting(text);
        for (index, word) in self.words.iter().enumerate() {
            let mut piece = [0u8; 8];
            let rest = bytes.get(index * 8..).unwrap_or(&[]);
            let take = rest.len().min(8);
            piece[..take].copy_from_slice(&rest[..take]);
            word.store(u64::from_ne_bytes(piece), Ordering::Relaxed);
        }
    }

    /// Returns a copy; bytes that are not UTF-8 are replaced.
    pub fn load(&self) -> String {
        let mut bytes = Vec::with_capacity(WORDS * 8);
        for word in &self.words {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        load_padded(&bytes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::SharedText;
    use crate::sync::AtomicU64;

    fn empty() -> SharedText<2> {
        SharedText { words: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)] }
    }

    #[test]
    fn a_stored_text_comes_back() {
        let text = empty();
        text.store("node-0001");
        assert_eq!(text.load(), "node-0001");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = empty();
        text.store("123456789012345é");
        assert_eq!(text.load(), "123456789012345");
    }
}
