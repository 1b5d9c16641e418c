//! Mellanox ExtendedPortInfo: FDR10 negotiation (spec section 5.16).
//!
//! Plain data, no state. Asked only of listed device ids; who answers is the agent's business.

layout! {
    /// Mellanox ExtendedPortInfo taken apart.
    "MlnxExtPortInfo" 0..16 {
        /// StateChangeEnable; 1 applies LinkSpeedEnabled.
        STATE_CHANGE_ENABLE state_change_enable: u8 @ 3;
        /// LinkSpeedSupported; bit 0 is FDR10.
        LINK_SPEED_SUPPORTED link_speed_supported: u8 @ 7;
        /// LinkSpeedEnabled.
        LINK_SPEED_ENABLED link_speed_enabled: u8 @ 11;
        /// LinkSpeedActive.
        LINK_SPEED_ACTIVE link_speed_active: u8 @ 15;
    }
}
