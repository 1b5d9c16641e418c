//! GUIDInfo: one block of the GUID table of a port (spec section 5.4).
//!
//! Plain data, no state. Entry 0 of block 0 is the port GUID and read-only; the agent sees to that.

/// Number of GUIDs in a block.
pub const BLOCK: usize = 8;

layout! {
    /// GUIDInfo taken apart.
    "GUIDInfo" 0..64 {
        /// The GUIDs of the block.
        GUIDS guids: [u64; 8] @ 0;
    }
}
