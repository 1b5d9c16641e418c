//! MulticastForwardingTable: 32 multicast LIDs by 16 ports (spec section 5.12).
//!
//! Plain data, no state.

/// Number of multicast LIDs in a block.
pub const BLOCK: usize = 32;
/// Number of ports in a position.
pub const POSITION_PORTS: usize = 16;
/// First multicast LID.
pub const FIRST_MLID: u16 = 0xc000;

layout! {
    /// MulticastForwardingTable block taken apart.
    "MulticastForwardingTable" 0..64 {
        /// Port mask of each multicast LID; bit i is port 16 * position + i.
        MASKS masks: [u16; 32] @ 0;
    }
}
