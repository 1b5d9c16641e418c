//! Bit and byte fields: one constant says where a value lies, and reads or writes it.
//!
//! Owned by nobody, runs wherever its caller runs. Invariants: a [`Field`] built by the constructors spans at most eight
//! bytes per element; reading never looks outside those bytes; writing changes only the bits of the field. With a constant
//! field and a fixed-size array the bounds checks and shifts fold away, which is why the methods are `#[inline]`: without
//! it the constant does not reach them across the crate boundary.
//!
//! Not done here: no meaning, no validation of values; a value wider than its field is cut to the field's width.

/// Place of one value, or of an array of equally spaced values, in big-endian bytes.
///
/// ```
/// use madplane_wire::Field;
/// const PORT_STATE: Field = Field::bits(32, 3, 0);
/// let mut data = [0xa5; 64];
/// PORT_STATE.set(&mut data, 4);
/// assert_eq!(PORT_STATE.get(&data), 4);
/// assert_eq!(data[32], 0xa4);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Distance of the most significant bit of element 0 from bit 7 of byte 0.
    bit: u16,
    width: u16,
    count: u16,
    stride: u16,
}

impl Field {
    /// Describes a value of `width` bits whose first bit is bit 7 of `byte`.
    ///
    /// # Panics
    /// At compile time in a constant, if `width` is 0 or above 64.
    pub const fn whole(byte: u16, width: u16) -> Self {
        assert!(width >= 1 && width <= 64, "a field has 1 to 64 bits");
        Self { bit: byte * 8, width, count: 1, stride: width }
    }

    /// Describes bits `hi` down to `lo` of the big-endian word that starts at `byte`.
    ///
    /// The word is the smallest of 8, 16, 32 and 64 bits that has a bit `hi`, the notation of the tables in
    /// `spec/mad-format.md`.
    ///
    /// # Panics
    /// At compile time in a constant, if `hi < lo` or `hi > 63`.
    pub const fn bits(byte: u16, hi: u16, lo: u16) -> Self {
        assert!(hi >= lo && hi < 64, "bits are written high:low");
        let word = match hi {
            0..=7 => 8,
            8..=15 => 16,
            16..=31 => 32,
            _ => 64,
        };
        let width = hi - lo + 1;
        Self { bit: byte * 8 + (word - 1 - hi), width, count: 1, stride: width }
    }

    /// Repeats the field `count` times, `stride` bits from one element to the next.
    ///
    /// # Panics
    /// At compile time in a constant, if elements overlap, there are none, or one spans more than eight bytes.
    pub const fn repeat(self, count: u16, stride: u16) -> Self {
        assert!(count >= 1 && stride >= self.width, "elements must not overlap");
        assert!(stride.is_multiple_of(8) || self.width <= 57, "an element spans at most eight bytes");
        Self { count, stride, ..self }
    }

    /// Repeats the field `count` times without gaps.
    pub(crate) const fn repeat_dense(self, count: u16) -> Self {
        self.repeat(count, self.width)
    }

    /// Returns the field unchanged after checking that a type of `type_bits` bits can hold it.
    pub(crate) const fn held_by(self, type_bits: u16) -> Self {
        assert!(self.width <= type_bits, "the Rust type is narrower than the field");
        assert!(self.bit % 8 + self.width <= 64, "an element spans at most eight bytes");
        self
    }

    /// Whether all elements lie in bytes `start..end`.
    pub(crate) const fn lies_in(self, start: usize, end: usize) -> bool {
        self.byte() >= start && self.end() <= end
    }

    /// Index of the byte that holds the most significant bit of element 0.
    pub const fn byte(self) -> usize {
        (self.bit / 8) as usize
    }

    /// Distance of element 0's most significant bit from bit 7 of its byte, 0..=7.
    pub const fn bit_in_byte(self) -> usize {
        (self.bit % 8) as usize
    }

    /// Width of one element in bits, 1..=64.
    pub const fn width(self) -> u32 {
        self.width as u32
    }

    /// Number of elements; 1 for a plain field.
    pub const fn count(self) -> usize {
        self.count as usize
    }

    /// Distance between elements in bits.
    pub const fn stride(self) -> usize {
        self.stride as usize
    }

    /// Number of bytes a structure must have to contain all elements.
    pub const fn end(self) -> usize {
        let last_bit =
            self.bit as usize + self.stride as usize * (self.count as usize - 1) + self.width as usize;
        last_bit.div_ceil(8)
    }

    /// Largest value of one element.
    pub const fn max(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// Reads element 0.
    ///
    /// # Panics
    /// If `data` ends before the field.
    #[inline]
    pub const fn get(self, data: &[u8]) -> u64 {
        self.read(data, self.bit as usize)
    }

    /// Writes element 0, cutting `value` to the width of the field.
    ///
    /// # Panics
    /// If `data` ends before the field.
    #[inline]
    pub const fn set(self, data: &mut [u8], value: u64) {
        self.write(data, self.bit as usize, value);
    }

    /// Reads element `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Field::count`], or `data` ends before the element.
    #[inline]
    pub const fn get_at(self, data: &[u8], index: usize) -> u64 {
        assert!(index < self.count as usize, "element index beyond the field");
        self.read(data, self.bit as usize + self.stride as usize * index)
    }

    /// Writes element `index`, cutting `value` to the width of an element.
    ///
    /// # Panics
    /// If `index` is not below [`Field::count`], or `data` ends before the element.
    #[inline]
    pub const fn set_at(self, data: &mut [u8], index: usize, value: u64) {
        assert!(index < self.count as usize, "element index beyond the field");
        self.write(data, self.bit as usize + self.stride as usize * index, value);
    }

    /// Reads element 0 of a field of at most 8 bits; of a wider field, its low 8 bits.
    ///
    /// # Panics
    /// If `data` ends before the field.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "documented: the low bits of the value")]
    pub const fn get_u8(self, data: &[u8]) -> u8 {
        self.get(data) as u8
    }

    /// Reads element 0 of a field of at most 16 bits; of a wider field, its low 16 bits.
    ///
    /// # Panics
    /// If `data` ends before the field.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "documented: the low bits of the value")]
    pub const fn get_u16(self, data: &[u8]) -> u16 {
        self.get(data) as u16
    }

    /// Reads element 0 of a field of at most 32 bits; of a wider field, its low 32 bits.
    ///
    /// # Panics
    /// If `data` ends before the field.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "documented: the low bits of the value")]
    pub const fn get_u32(self, data: &[u8]) -> u32 {
        self.get(data) as u32
    }

    /// Whether any bit of element 0 is set; for flags.
    ///
    /// # Panics
    /// If `data` ends before the field.
    #[inline]
    pub const fn get_bool(self, data: &[u8]) -> bool {
        self.get(data) != 0
    }

    #[inline]
    const fn read(self, data: &[u8], bit: usize) -> u64 {
        let start = bit / 8;
        let end = (bit + self.width as usize).div_ceil(8);
        assert!(end <= data.len(), "data ends before the field");
        // Whole words in one load: the loop below becomes eight byte loads otherwise (seen in the assembly of rustc 1.95).
        if bit.is_multiple_of(8) {
            match self.width {
                64 => return get_u64(data, start),
                32 => return get_u32(data, start) as u64,
                _ => {}
            }
        }
        let mut value = 0_u64;
        let mut at = start;
        while at < end {
            value = value << 8 | data[at] as u64;
            at += 1;
        }
        value >> (end * 8 - bit - self.width as usize) & self.max()
    }

    // inlined always: left to itself the compiler calls it with a constant field, 85 instructions for eight bytes (callgrind)
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the word apart byte by byte")]
    const fn write(self, data: &mut [u8], bit: usize, value: u64) {
        let start = bit / 8;
        let end = (bit + self.width as usize).div_ceil(8);
        assert!(end <= data.len(), "data ends before the field");
        // whole words in one store, as in `read`
        if bit.is_multiple_of(8) {
            match self.width {
                64 => return put(data, start, value.to_be_bytes()),
                32 => return put(data, start, (value as u32).to_be_bytes()),
                16 => return put(data, start, (value as u16).to_be_bytes()),
                8 => return put(data, start, [value as u8]),
                _ => {}
            }
        }
        let shift = end * 8 - bit - self.width as usize;
        let mut keep = !(self.max() << shift);
        let mut put = (value & self.max()) << shift;
        let mut at = end;
        while at > start {
            at -= 1;
            data[at] = data[at] & keep as u8 | put as u8;
            keep >>= 8;
            put >>= 8;
        }
    }
}

/// Writes bytes that fit, as the caller has checked.
#[inline(always)]
const fn put<const N: usize>(data: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = data.split_at_mut(at).1.first_chunk_mut() {
        *place = bytes;
    }
}

/// Reads the big-endian 16-bit value at `at`.
///
/// # Panics
/// If `buf` ends before `at + 2`; with a fixed-size array and a constant offset the check folds away.
#[inline]
pub const fn get_u16(buf: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([buf[at], buf[at + 1]])
}

/// Reads the big-endian 32-bit value at `at`.
///
/// # Panics
/// If `buf` ends before `at + 4`.
#[inline]
pub const fn get_u32(buf: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([buf[at], buf[at + 1], buf[at + 2], buf[at + 3]])
}

/// Reads the big-endian 64-bit value at `at`.
///
/// # Panics
/// If `buf` ends before `at + 8`.
#[inline]
pub const fn get_u64(buf: &[u8], at: usize) -> u64 {
    u64::from_be_bytes([
        buf[at],
        buf[at + 1],
        buf[at + 2],
        buf[at + 3],
        buf[at + 4],
        buf[at + 5],
        buf[at + 6],
        buf[at + 7],
    ])
}

/// Writes `value` big-endian at `at`.
///
/// # Panics
/// If `buf` ends before `at + 2`.
#[inline]
pub fn set_u16(buf: &mut [u8], at: usize, value: u16) {
    buf[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes `value` big-endian at `at`.
///
/// # Panics
/// If `buf` ends before `at + 4`.
#[inline]
pub fn set_u32(buf: &mut [u8], at: usize, value: u32) {
    buf[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Writes `value` big-endian at `at`.
///
/// # Panics
/// If `buf` ends before `at + 8`.
#[inline]
pub fn set_u64(buf: &mut [u8], at: usize, value: u64) {
    buf[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_size_follows_the_high_bit() {
        assert_eq!(Field::bits(36, 7, 4), Field { bit: 288, width: 4, count: 1, stride: 4 });
        assert_eq!(Field::bits(8, 14, 0), Field { bit: 65, width: 15, count: 1, stride: 15 });
        assert_eq!(Field::bits(24, 19, 0), Field { bit: 204, width: 20, count: 1, stride: 20 });
        assert_eq!(Field::bits(0, 23, 0), Field { bit: 8, width: 24, count: 1, stride: 24 });
        assert_eq!(Field::bits(0, 32, 0).bit, 31);
    }

    #[test]
    fn set_changes_exactly_the_bits_of_the_field() {
        for first in 0..32_u16 {
            for width in 1..=57_u16 {
                let field = Field { bit: first, width, count: 1, stride: width };
                for (fill, value) in [(0xff_u8, 0_u64), (0, u64::MAX), (0xa5, 0x0123_4567_89ab_cdef)] {
                    let mut data = [fill; 16];
                    field.set(&mut data, value);
                    for bit in 0..128_u16 {
                        let got = data[usize::from(bit / 8)] >> (7 - bit % 8) & 1;
                        let want = if bit >= first && bit < first + width {
                            u8::from(value >> (first + width - 1 - bit) & 1 == 1)
                        } else {
                            fill >> (7 - bit % 8) & 1
                        };
                        assert_eq!(got, want, "first {first} width {width} fill {fill:#x} bit {bit}");
                    }
                    assert_eq!(field.get(&data), value & field.max());
                }
            }
        }
    }

    #[test]
    fn elements_follow_each_other_by_the_stride() {
        let field = Field::bits(0, 3, 0).repeat(4, 16);
        let mut data = [0xa5; 8];
        for index in 0..4 {
            field.set_at(&mut data, index, 8 + index as u64);
        }
        assert_eq!(data, [0xa8, 0xa5, 0xa9, 0xa5, 0xaa, 0xa5, 0xab, 0xa5]);
        assert_eq!(field.get_at(&data, 3), 11);
        assert_eq!(field.end(), 7);
        assert_eq!(Field::whole(4, 2).repeat(16, 2).end(), 8);
    }

    #[test]
    fn byte_helpers_are_big_endian() {
        let mut data = [0_u8; 16];
        set_u16(&mut data, 0, 0x1234);
        set_u32(&mut data, 2, 0x5678_9abc);
        set_u64(&mut data, 6, 0x0102_0304_0506_0708);
        assert_eq!(data[..14], [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(get_u16(&data, 0), 0x1234);
        assert_eq!(get_u32(&data, 2), 0x5678_9abc);
        assert_eq!(get_u64(&data, 6), 0x0102_0304_0506_0708);
    }

    #[test]
    #[should_panic(expected = "data ends before the field")]
    fn a_short_slice_is_refused() {
        let _ = Field::whole(62, 24).get(&[0; 64]);
    }
}
