//! PortInfoExtended: FEC modes of a port (spec section 5.15).
//!
//! Plain data, no state.

layout! {
    /// PortInfoExtended taken apart.
    "PortInfoExtended" 0..22 {
        /// CapMask; bit 0 says that the FEC mode fields are valid.
        CAP_MASK cap_mask: u32 @ 0;
        /// FECModeActive.
        FEC_MODE_ACTIVE fec_mode_active: u16 @ 4;
        /// FDRFECModeSupported.
        FDR_FEC_SUPPORTED fdr_fec_supported: u16 @ 6;
        /// FDRFECModeEnabled.
        FDR_FEC_ENABLED fdr_fec_enabled: u16 @ 8;
        /// EDRFECModeSupported.
        EDR_FEC_SUPPORTED edr_fec_supported: u16 @ 10;
        /// EDRFECModeEnabled.
        EDR_FEC_ENABLED edr_fec_enabled: u16 @ 12;
        /// HDRFECModeSupported.
        HDR_FEC_SUPPORTED hdr_fec_supported: u16 @ 14;
        /// HDRFECModeEnabled.
        HDR_FEC_ENABLED hdr_fec_enabled: u16 @ 16;
        /// NDRFECModeSupported.
        NDR_FEC_SUPPORTED ndr_fec_supported: u16 @ 18;
        /// NDRFECModeEnabled.
        NDR_FEC_ENABLED ndr_fec_enabled: u16 @ 20;
    }
}
