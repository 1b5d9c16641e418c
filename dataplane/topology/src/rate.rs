//! Link rates as text and as the numbers of a netfile.
//!
//! One table each for widths and speeds; parser, emitter and checks read it. Pure functions.

use std::fmt;

use crate::graph::{LinkSpeed, LinkWidth};

const WIDTHS: [(LinkWidth, u8); 5] =
    [(LinkWidth::X1, 1), (LinkWidth::X2, 2), (LinkWidth::X4, 4), (LinkWidth::X8, 8), (LinkWidth::X12, 12)];

const SPEEDS: [(LinkSpeed, &str); 9] = [
    (LinkSpeed::Sdr, "SDR"),
    (LinkSpeed::Ddr, "DDR"),
    (LinkSpeed::Qdr, "QDR"),
    (LinkSpeed::Fdr10, "FDR10"),
    (LinkSpeed::Fdr, "FDR"),
    (LinkSpeed::Edr, "EDR"),
    (LinkSpeed::Hdr, "HDR"),
    (LinkSpeed::Ndr, "NDR"),
    (LinkSpeed::Xdr, "XDR"),
];

impl LinkWidth {
    /// Number of lanes.
    pub fn lanes(self) -> u8 {
        match self {
            Self::X1 => 1,
            Self::X2 => 2,
            Self::X4 => 4,
            Self::X8 => 8,
            Self::X12 => 12,
        }
    }

    /// Returns the width with that number of lanes.
    pub fn from_lanes(lanes: u8) -> Option<Self> {
        WIDTHS.iter().find(|(_, n)| *n == lanes).map(|(width, _)| *width)
    }

    /// Returns the widest of a set in PortInfo's bit coding (1 = 1x, 2 = 4x, 4 = 8x, 8 = 12x, 16 = 2x).
    pub(crate) fn widest_of(mask: u64) -> Option<Self> {
        if mask > 31 {
            return None;
        }
        let by_size = [(8, Self::X12), (4, Self::X8), (2, Self::X4), (16, Self::X2), (1, Self::X1)];
        by_size.into_iter().find(|(bit, _)| mask & bit != 0).map(|(_, width)| width)
    }
}

impl fmt::Display for LinkWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x", self.lanes())
    }
}

impl LinkSpeed {
    /// Trade name in capitals, as ibnetdiscover prints it.
    pub fn name(self) -> &'static str {
        SPEEDS.iter().find(|(speed, _)| *speed == self).map_or("SDR", |(_, name)| name)
    }

    /// Returns the speed of that trade name; letter case does not matter.
    pub fn from_name(name: &str) -> Option<Self> {
        SPEEDS.iter().find(|(_, n)| n.eq_ignore_ascii_case(name)).map(|(speed, _)| *speed)
    }

    /// Returns the fastest of a LinkSpeedEnabled set; 0 stands for QDR, as in a netfile.
    pub(crate) fn fastest_of(mask: u64) -> Option<Self> {
        match mask {
            0 | 4..=7 => Some(Self::Qdr),
            2 | 3 => Some(Self::Ddr),
            1 => Some(Self::Sdr),
            _ => None,
        }
    }

    /// Returns the fastest of a LinkSpeedExtEnabled set; `Some(None)` for the empty set.
    pub(crate) fn fastest_extended_of(mask: u64) -> Option<Option<Self>> {
        match mask {
            0 => Some(None),
            1 => Some(Some(Self::Fdr)),
            2..=3 => Some(Some(Self::Edr)),
            4..=7 => Some(Some(Self::Hdr)),
            8..=15 => Some(Some(Self::Ndr)),
            16..=31 => Some(Some(Self::Xdr)),
            _ => None,
        }
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads `4xQDR` and its like; `None` for anything else.
pub(crate) fn parse_rate(text: &[u8]) -> Option<(LinkWidth, LinkSpeed)> {
    let cross = text.iter().position(|b| *b == b'x')?;
    let lanes: u8 = std::str::from_utf8(&text[..cross]).ok()?.parse().ok()?;
    let name = std::str::from_utf8(&text[cross + 1..]).ok()?;
    Some((LinkWidth::from_lanes(lanes)?, LinkSpeed::from_name(name)?))
}

/// True if `text` starts like a rate: digits and an `x`.
pub(crate) fn looks_like_rate(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    digits > 0 && digits < 4 && text.get(digits) == Some(&b'x') && text.len() > digits + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_read_back_from_its_text() {
        for (width, _) in WIDTHS {
            for (speed, _) in SPEEDS {
                let text = format!("{width}{speed}");
                assert_eq!(parse_rate(text.as_bytes()), Some((width, speed)), "{text}");
                assert!(looks_like_rate(text.as_bytes()), "{text}");
            }
        }
    }

    #[test]
    fn fdr10_is_not_taken_for_fdr() {
        assert_eq!(parse_rate(b"4xFDR10"), Some((LinkWidth::X4, LinkSpeed::Fdr10)));
        assert_eq!(parse_rate(b"4xFDR"), Some((LinkWidth::X4, LinkSpeed::Fdr)));
    }

    #[test]
    fn nonsense_is_no_rate() {
        for text in ["", "x", "4x", "3xQDR", "4xTDR", "4QDR", "xQDR", "4xQDR ", "300xSDR", "-4xQDR"] {
            assert_eq!(parse_rate(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn enabled_sets_give_their_best_member() {
        assert_eq!(LinkWidth::widest_of(3), Some(LinkWidth::X4));
        assert_eq!(LinkWidth::widest_of(12), Some(LinkWidth::X12));
        assert_eq!(LinkWidth::widest_of(16), Some(LinkWidth::X2));
        assert_eq!(LinkWidth::widest_of(0), None);
        assert_eq!(LinkWidth::widest_of(32), None);
        assert_eq!(LinkSpeed::fastest_of(0), Some(LinkSpeed::Qdr));
        assert_eq!(LinkSpeed::fastest_of(3), Some(LinkSpeed::Ddr));
        assert_eq!(LinkSpeed::fastest_of(8), None);
        assert_eq!(LinkSpeed::fastest_extended_of(0), Some(None));
        assert_eq!(LinkSpeed::fastest_extended_of(6), Some(Some(LinkSpeed::Hdr)));
        assert_eq!(LinkSpeed::fastest_extended_of(32), None);
    }
}
