//! VLArbitrationTable: one block of 32 entries (spec section 5.9).
//!
//! Plain data, no state. Blocks 1 and 2 are the low-priority table, 3 and 4 the high-priority one.

/// Number of entries in a block.
pub const BLOCK: usize = 32;

layout! {
    /// VLArbitrationTable block taken apart.
    "VLArbitrationTable" 0..64 {
        /// VL of each entry, 4 bits.
        VLS vls: [u8; 32] @ 0 [3:0] step 16;
        /// Weight of each entry in units of 64 bytes.
        WEIGHTS weights: [u8; 32] @ 1 step 16;
    }
}
