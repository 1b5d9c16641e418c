//! Vendor classes: range 1 has data from byte 24, range 2 an RMPP header and an OUI first (spec sections 2.1 and 9).
//!
//! Plain data, no state.

use core::ops::Range;

/// Data bytes of a MAD of vendor range 1.
pub const VENDOR1_DATA: Range<usize> = 24..256;
/// Data bytes of a MAD of vendor range 2.
pub const VENDOR2_DATA: Range<usize> = 40..256;
/// OUI that ibping and ibsysstat use.
pub const OPENIB_OUI: u32 = 0x00_1405;
/// Class of ibping.
pub const CLASS_PING: u8 = 0x32;
/// Class of ibsysstat.
pub const CLASS_SYSSTAT: u8 = 0x33;

layout! {
    /// Header of vendor range 2 taken apart; the RMPP header before it is in [`crate::rmpp`].
    "Vendor2" 36..40 {
        /// OUI, 24 bits.
        OUI oui: u32 @ 36 [23:0];
    }
}
