//! The one macro that turns a table of fields into constants, a `Repr` and a descriptor.
//!
//! Private machinery; only [`Layout`] leaves the crate. Invariants: each offset is written once, in the table; a field
//! that does not fit its Rust type or its structure fails to compile. Does not know any attribute.

use crate::Field;

/// Describes one structure: its name, extent and fields; what generic code (printer, tests) walks.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Name of the structure as the spec writes it.
    pub name: &'static str,
    /// First byte that `emit` writes; above 0 for structures that are a part of a larger one.
    pub start: usize,
    /// Number of bytes `parse` and `emit` need.
    pub end: usize,
    /// All fields in wire order; offsets count from the slice given to `parse`.
    pub fields: &'static [(&'static str, Field)],
    /// Parses the first slice and emits the result into the second.
    pub parse_emit: fn(&[u8], &mut [u8]),
}

/// A Rust type that can hold a [`Field`].
pub(crate) trait Value: Sized {
    const BITS: u16;
    const COUNT: u16;
    fn load(data: &[u8], field: Field) -> Self;
    fn store(&self, data: &mut [u8], field: Field);
}

pub(crate) trait Scalar: Copy + Default {
    const BITS: u16;
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
}

macro_rules! scalar {
    ($($ty:ty: $bits:literal),*) => {$(
        impl Scalar for $ty {
            const BITS: u16 = $bits;
            #[inline]
            #[allow(clippy::cast_possible_truncation, reason = "Field::held_by checked the width at compile time")]
            fn from_bits(bits: u64) -> Self {
                bits as $ty
            }
            #[inline]
            fn to_bits(self) -> u64 {
                u64::from(self)
            }
        }
        impl Value for $ty {
            const BITS: u16 = <$ty as Scalar>::BITS;
            const COUNT: u16 = 1;
            #[inline]
            fn load(data: &[u8], field: Field) -> Self {
                Scalar::from_bits(field.get(data))
            }
            #[inline]
            fn store(&self, data: &mut [u8], field: Field) {
                field.set(data, self.to_bits());
            }
        }
    )*};
}
scalar!(u8: 8, u16: 16, u32: 32, u64: 64);

impl Value for bool {
    const BITS: u16 = 1;
    const COUNT: u16 = 1;
    #[inline]
    fn load(data: &[u8], field: Field) -> Self {
        field.get(data) != 0
    }
    #[inline]
    fn store(&self, data: &mut [u8], field: Field) {
        field.set(data, u64::from(*self));
    }
}

impl<T: Scalar, const N: usize> Value for [T; N] {
    const BITS: u16 = T::BITS;
    #[expect(clippy::cast_possible_truncation, reason = "no array in a MAD has more than 256 elements")]
    const COUNT: u16 = N as u16;
    #[inline]
    fn load(data: &[u8], field: Field) -> Self {
        core::array::from_fn(|index| T::from_bits(field.get_at(data, index)))
    }
    #[inline]
    fn store(&self, data: &mut [u8], field: Field) {
        for (index, value) in self.iter().enumerate() {
            field.set_at(data, index, value.to_bits());
        }
    }
}

/// Declares `mod field` and `FIELDS` from rows `CONST name: type @ byte [hi:lo] step stride;`.
///
/// Without `[hi:lo]` the field has the width of its type; without `step` the elements of an array follow each other directly.
macro_rules! fields {
    ($(
        $(#[$meta:meta])*
        $konst:ident $name:ident : $ty:tt @ $byte:literal $([ $($bits:tt)* ])? $(step $step:literal)? ;
    )*) => {
        /// Place of each field.
        pub mod field {
            use $crate::field::Field;
            $(
                $(#[$meta])*
                pub const $konst: Field = fields!(@place $ty, $byte, [$($($bits)*)?], [$($step)?]);
            )*
        }
        /// Names and places of all fields, in wire order.
        pub const FIELDS: &[(&str, $crate::field::Field)] = &[$((stringify!($name), field::$konst)),*];
    };
    (@place $ty:tt, $byte:literal, $bits:tt, []) => {
        fields!(@one $ty, $byte, $bits)
            .repeat_dense(<$ty as $crate::layout::Value>::COUNT)
            .held_by(<$ty as $crate::layout::Value>::BITS)
    };
    (@place $ty:tt, $byte:literal, $bits:tt, [$step:literal]) => {
        fields!(@one $ty, $byte, $bits)
            .repeat(<$ty as $crate::layout::Value>::COUNT, $step)
            .held_by(<$ty as $crate::layout::Value>::BITS)
    };
    (@one $ty:tt, $byte:literal, []) => { Field::whole($byte, <$ty as $crate::layout::Value>::BITS) };
    (@one $ty:tt, $byte:literal, [$bit:literal]) => { Field::bits($byte, $bit, $bit) };
    (@one $ty:tt, $byte:literal, [$hi:literal : $lo:literal]) => { Field::bits($byte, $hi, $lo) };
}

/// Declares what [`fields!`] does plus `Repr` with `parse` and `emit`, `LEN` and `LAYOUT`.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        $title:literal $start:literal .. $end:literal {
            $(
                $(#[$fmeta:meta])*
                $konst:ident $name:ident : $ty:tt @ $byte:literal $([ $($bits:tt)* ])? $(step $step:literal)? ;
            )*
        }
    ) => {
        fields! {
            $( $(#[$fmeta])* $konst $name : $ty @ $byte $([ $($bits)* ])? $(step $step)? ; )*
        }

        /// Number of bytes [`Repr::parse`] and [`Repr::emit`] need.
        pub const LEN: usize = $end;

        /// Descriptor for generic code.
        pub const LAYOUT: $crate::layout::Layout = $crate::layout::Layout {
            name: $title,
            start: $start,
            end: $end,
            fields: FIELDS,
            parse_emit: |from, to| Repr::parse(from).emit(to),
        };

        const _: () = {
            $( assert!(field::$konst.lies_in($start, $end), stringify!($name)); )*
        };

        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Repr {
            $( $(#[$fmeta])* pub $name: $ty, )*
        }

        impl Repr {
            /// Reads all fields. Reserved bits are not looked at; any bytes parse.
            ///
            /// # Panics
            /// If `data` is shorter than [`LEN`].
            pub fn parse(data: &[u8]) -> Self {
                let data = data.first_chunk::<LEN>().expect("data shorter than the structure");
                Self { $( $name: $crate::layout::Value::load(data, field::$konst), )* }
            }

            /// Writes all fields, and zero to the reserved bits between them; values are cut to the width of their field.
            ///
            /// # Panics
            /// If `data` is shorter than [`LEN`].
            pub fn emit(&self, data: &mut [u8]) {
                let data = data.first_chunk_mut::<LEN>().expect("data shorter than the structure");
                data[$start..].fill(0);
                $( $crate::layout::Value::store(&self.$name, data, field::$konst); )*
            }
        }

        impl Default for Repr {
            /// All fields zero.
            fn default() -> Self {
                Self::parse(&[0; LEN])
            }
        }
    };
}
