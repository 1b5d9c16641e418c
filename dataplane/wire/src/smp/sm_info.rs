//! SMInfo: identity and state of a subnet manager (spec section 5.13).
//!
//! Plain data, no state. The transitions that a Set asks for are the agent's business.

/// SMState values.
pub mod state {
    /// Not active.
    pub const NOT_ACTIVE: u8 = 0;
    /// Discovering.
    pub const DISCOVERING: u8 = 1;
    /// Standby.
    pub const STANDBY: u8 = 2;
    /// Master.
    pub const MASTER: u8 = 3;
}

layout! {
    /// SMInfo taken apart.
    "SMInfo" 0..21 {
        /// GUID of the port the manager uses.
        GUID guid: u64 @ 0;
        /// SM_Key, 0 for a requester that is not trusted.
        SM_KEY sm_key: u64 @ 8;
        /// ActCount.
        ACT_COUNT act_count: u32 @ 16;
        /// Priority.
        PRIORITY priority: u8 @ 20 [7:4];
        /// SMState, see [its values](crate::smp::sm_info::state).
        STATE state: u8 @ 20 [3:0];
    }
}
