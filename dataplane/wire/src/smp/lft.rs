//! LinearForwardingTable: one block of 64 LIDs (spec section 5.10).
//!
//! Plain data, no state.

/// Number of LIDs in a block.
pub const BLOCK: usize = 64;
/// Entry of a LID without a route.
pub const NO_ROUTE: u8 = 0xff;

layout! {
    /// LinearForwardingTable block taken apart.
    "LinearForwardingTable" 0..64 {
        /// Output port of each LID; 0 delivers locally.
        PORTS ports: [u8; 64] @ 0;
    }
}
