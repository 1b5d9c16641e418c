//! Sampling attributes (spec sections 7.5 and 7.6).
//!
//! Plain data, no state.

/// PortSamplesControl.
pub mod control {
    layout! {
        /// PortSamplesControl taken apart.
        "PortSamplesControl" 0..80 {
            /// OpCode.
            OP_CODE op_code: u8 @ 0;
            /// PortSelect.
            PORT_SELECT port_select: u8 @ 1;
            /// Tick.
            TICK tick: u8 @ 2;
            /// CounterWidth.
            COUNTER_WIDTH counter_width: u8 @ 3 [2:0];
            /// CounterMask0.
            COUNTER_MASK0 counter_mask0: u8 @ 4 [29:27];
            /// CounterMasks1to9.
            COUNTER_MASKS1_9 counter_masks1_9: u32 @ 4 [26:0];
            /// CounterMasks10to14.
            COUNTER_MASKS10_14 counter_masks10_14: u16 @ 8 [14:0];
            /// SampleMechanisms.
            SAMPLE_MECHANISMS sample_mechanisms: u8 @ 10;
            /// SampleStatus: 0 done, 1 started, 2 running.
            SAMPLE_STATUS sample_status: u8 @ 11 [1:0];
            /// OptionMask.
            OPTION_MASK option_mask: u64 @ 12;
            /// VendorMask.
            VENDOR_MASK vendor_mask: u64 @ 20;
            /// SampleStart in ticks.
            SAMPLE_START sample_start: u32 @ 28;
            /// SampleInterval in ticks.
            SAMPLE_INTERVAL sample_interval: u32 @ 32;
            /// Tag.
            TAG tag: u16 @ 36;
            /// CounterSelect of counters 0 to 14.
            COUNTER_SELECTS counter_selects: [u16; 15] @ 38;
            /// SamplesOnlyOptionMask.
            SAMPLES_ONLY_OPTION_MASK samples_only_option_mask: u64 @ 72;
        }
    }
}

/// PortSamplesResult.
pub mod result {
    layout! {
        /// PortSamplesResult taken apart.
        "PortSamplesResult" 0..64 {
            /// Tag of the sample.
            TAG tag: u16 @ 0;
            /// SampleStatus.
            SAMPLE_STATUS sample_status: u8 @ 3 [1:0];
            /// Counters 0 to 14.
            COUNTERS counters: [u32; 15] @ 4;
        }
    }
}

/// PortSamplesResultExtended.
pub mod result_ext {
    layout! {
        /// PortSamplesResultExtended taken apart.
        "PortSamplesResultExtended" 0..128 {
            /// Tag of the sample.
            TAG tag: u16 @ 0;
            /// SampleStatus.
            SAMPLE_STATUS sample_status: u8 @ 3 [1:0];
            /// ExtendedWidth; 2 = 64 bits.
            EXTENDED_WIDTH extended_width: u8 @ 4 [31:30];
            /// Counters 0 to 14.
            COUNTERS counters: [u64; 15] @ 8;
        }
    }
}
