//! P_KeyTable: one block of a partition table (spec section 5.7).
//!
//! Plain data, no state.

/// Number of keys in a block.
pub const BLOCK: usize = 32;
/// Membership bit of a key: 1 full, 0 limited.
pub const FULL_MEMBER: u16 = 0x8000;
/// Default partition, full membership.
pub const DEFAULT_FULL: u16 = 0xffff;

layout! {
    /// P_KeyTable block taken apart.
    "P_KeyTable" 0..64 {
        /// The keys; base value 0 means empty.
        PKEYS pkeys: [u16; 32] @ 0;
    }
}
