//! NodeDescription: 64 bytes of text (spec section 5.1).
//!
//! Plain data, no state. The text need not be NUL terminated nor valid UTF-8; [`Repr::text`] stops at the first NUL and
//! leaves the interpretation of the bytes to the caller.

layout! {
    /// NodeDescription taken apart.
    "NodeDescription" 0..64 {
        /// The text, padded with zeros.
        TEXT text: [u8; 64] @ 0;
    }
}

impl Repr {
    /// Makes a description from `text`, cut to 64 bytes and padded with zeros.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; LEN];
        for (to, from) in bytes.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        Self { text: bytes }
    }

    /// The bytes before the first NUL.
    pub fn text(&self) -> &[u8] {
        let end = self.text.iter().position(|byte| *byte == 0).unwrap_or(LEN);
        &self.text[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stops_at_nul_or_at_64_bytes() {
        assert_eq!(Repr::new("leaf 3").text(), b"leaf 3");
        let long = Repr::new(&"x".repeat(70));
        assert_eq!(long.text(), [b'x'; 64]);
        let mut data = [0xa5; 64];
        Repr::new("s").emit(&mut data);
        assert_eq!((data[0], &data[1..]), (b's', &[0_u8; 63][..]));
    }
}
