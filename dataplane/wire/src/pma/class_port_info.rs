//! ClassPortInfo: capabilities and redirection of a class (spec section 7.1), the same layout in every class.
//!
//! Plain data, no state. The meaning of the capability bits depends on the class; [`crate::pma::cap_mask`] has those of
//! the performance class.

layout! {
    /// ClassPortInfo taken apart.
    "ClassPortInfo" 0..72 {
        /// BaseVersion.
        BASE_VERSION base_version: u8 @ 0;
        /// ClassVersion.
        CLASS_VERSION class_version: u8 @ 1;
        /// CapabilityMask.
        CAP_MASK cap_mask: u16 @ 2;
        /// CapabilityMask2, 27 bits.
        CAP_MASK2 cap_mask2: u32 @ 4 [31:5];
        /// RespTimeValue: 4.096 us * 2^n.
        RESP_TIME_VALUE resp_time_value: u8 @ 7 [4:0];
        /// RedirectGID.
        REDIRECT_GID redirect_gid: [u8; 16] @ 8;
        /// RedirectTC.
        REDIRECT_TC redirect_tc: u8 @ 24;
        /// RedirectSL.
        REDIRECT_SL redirect_sl: u8 @ 24 [23:20];
        /// RedirectFL.
        REDIRECT_FL redirect_fl: u32 @ 24 [19:0];
        /// RedirectLID.
        REDIRECT_LID redirect_lid: u16 @ 28;
        /// RedirectP_Key.
        REDIRECT_PKEY redirect_pkey: u16 @ 30;
        /// RedirectQP.
        REDIRECT_QP redirect_qp: u32 @ 32 [23:0];
        /// RedirectQ_Key.
        REDIRECT_QKEY redirect_qkey: u32 @ 36;
        /// TrapGID.
        TRAP_GID trap_gid: [u8; 16] @ 40;
        /// TrapTC.
        TRAP_TC trap_tc: u8 @ 56;
        /// TrapSL.
        TRAP_SL trap_sl: u8 @ 56 [23:20];
        /// TrapFL.
        TRAP_FL trap_fl: u32 @ 56 [19:0];
        /// TrapLID.
        TRAP_LID trap_lid: u16 @ 60;
        /// TrapP_Key.
        TRAP_PKEY trap_pkey: u16 @ 62;
        /// TrapHL.
        TRAP_HL trap_hl: u8 @ 64;
        /// TrapQP.
        TRAP_QP trap_qp: u32 @ 64 [23:0];
        /// TrapQ_Key.
        TRAP_QKEY trap_qkey: u32 @ 68;
    }
}
