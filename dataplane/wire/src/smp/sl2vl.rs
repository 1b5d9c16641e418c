//! SLtoVLMappingTable: virtual lane of each service level (spec section 5.8).
//!
//! Plain data, no state. Which input and output port a table belongs to is in the attribute modifier.

/// VL that means: drop packets of this SL.
pub const DROP_VL: u8 = 15;

layout! {
    /// SLtoVLMappingTable taken apart.
    "SLtoVLMappingTable" 0..8 {
        /// VL of each SL, 4 bits.
        VLS vls: [u8; 16] @ 0 [7:4];
    }
}
