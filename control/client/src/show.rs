//! How numbers are written where people and JSON readers see them.
//!
//! Pure functions. One form each: a GUID is `0x` and 16 digits, a LID or P_Key `0x` and 4, a time is UTC to the second.

use serde::Serializer;

/// `2026-01-31T12:00:00Z` for a Unix time in nanoseconds.
pub fn utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let (mut year, mut day) = (1970u64, days);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

/// A GUID as all messages write it.
pub fn guid(guid: u64) -> String {
    format!("{guid:#018x}")
}

/// A LID or P_Key as all messages write it.
pub fn short(number: u16) -> String {
    format!("{number:#06x}")
}

pub(crate) fn as_utc<S: Serializer>(unix_ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&utc(*unix_ns))
}

pub(crate) fn as_guid<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&guid(*number))
}

pub(crate) fn as_short<S: Serializer>(number: &u16, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&short(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), expected);
        }
    }
}
