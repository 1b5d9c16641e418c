//! MAD wire formats: where every field of a management datagram lies, and nothing about what it means.
//!
//! Two levels, and the difference matters:
//!
//! * **Views** ([`Mad`], [`MadMut`], [`Smp`], [`SmpMut`], [`rmpp::Rmpp`], …) and [`Field`] constants read and write single
//!   fields in place. They accept any bytes; whether the value makes sense is for the caller to judge. This is the hot path.
//! * **`Repr`** structs (re-exported under the attribute's name, [`smp::PortInfo`]) hold one attribute taken apart. `parse` reads
//!   all fields, `emit` writes the whole attribute, reserved bits as zero, so that `emit` into a dirty buffer is safe.
//!
//! Length contract, written once: a MAD is always [`MAD_LEN`] bytes and the views borrow `&[u8; 256]`, so no accessor of a
//! view can fail. `Repr::parse`, `Repr::emit` and [`Field`] methods take slices that start at the structure their table
//! names (for SMP attributes, SMP byte 64) and panic if the slice is shorter than the structure; [`Smp::data`] and
//! [`pma::data`] return areas that are long enough for every attribute defined here.
//!
//! Every offset exists once: the macro in `layout.rs` turns a table into the [`Field`] constants, the `FIELDS` list, the
//! `Repr` and a [`Layout`] descriptor; the pretty printer and the comparison with libibmad walk those same lists.
//!
//! The crate owns no state and no thread, does no I/O, does not allocate, and does not decide anything: hop rules, M_Key
//! checks and answers live in the engine.
//!
//! Source of all offsets: `spec/mad-format.md`, whose section numbers the modules cite.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[macro_use]
mod layout;

pub mod catalog;
pub mod field;
mod fuzz;
pub mod mad;
pub mod pma;
pub mod pretty;
pub mod rmpp;
pub mod sa;
pub mod smp;
pub mod vendor;

pub use field::Field;
#[doc(hidden)]
pub use fuzz::fuzz_mad;
pub use layout::Layout;
pub use mad::{MAD_LEN, Mad, MadBuf, MadMut};
pub use smp::{Smp, SmpMut};
