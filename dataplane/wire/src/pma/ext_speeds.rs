//! PortExtendedSpeedsCounters: per-lane counters of 64b/66b links (spec section 7.4, last row).
//!
//! Plain data, no state. With RSFEC active the lanes of `fec_corrected` count symbols instead of blocks and the three port
//! totals at the end are valid.

layout! {
    /// PortExtendedSpeedsCounters taken apart.
    "PortExtendedSpeedsCounters" 0..152 {
        /// PortSelect.
        PORT_SELECT port_select: u8 @ 1;
        /// CounterSelect, 64 bits.
        COUNTER_SELECT counter_select: u64 @ 8;
        /// SyncHeaderErrorCounter.
        SYNC_HEADER_ERRORS sync_header_errors: u16 @ 16;
        /// UnknownBlockCounter.
        UNKNOWN_BLOCKS unknown_blocks: u16 @ 18;
        /// ErrorDetectionCounter of lanes 0 to 11.
        ERROR_DETECTION error_detection: [u16; 12] @ 20;
        /// FECCorrectableBlockCounter of lanes 0 to 11; with RSFEC, FECCorrectableSymbolCounter.
        FEC_CORRECTED fec_corrected: [u32; 12] @ 44;
        /// FECUncorrectableBlockCounter of lanes 0 to 11.
        FEC_UNCORRECTED fec_uncorrected: [u32; 12] @ 92;
        /// RSFEC: PortFECCorrectableBlockCounter.
        PORT_FEC_CORRECTED_BLOCKS port_fec_corrected_blocks: u32 @ 140;
        /// RSFEC: PortFECUncorrectableBlockCounter.
        PORT_FEC_UNCORRECTED_BLOCKS port_fec_uncorrected_blocks: u32 @ 144;
        /// RSFEC: PortFECCorrectedSymbolCounter.
        PORT_FEC_CORRECTED_SYMBOLS port_fec_corrected_symbols: u32 @ 148;
    }
}
