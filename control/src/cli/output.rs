//! Everything that madctl prints, and the only place that prints.
//!
//! A result is text for people or one JSON document for programs. Times and spans are formatted here, so that they look
//! the same everywhere. A reader that has gone away (a closed pipe) is no error.

use std::io::{self, Write};

use serde::Serialize;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs; fields are only ever added.
    Json,
}

/// A result that can be shown to people.
pub trait Text {
    /// The text, every line with its end.
    fn text(&self) -> String;
}

/// Renders a result.
#[expect(clippy::missing_panics_doc, reason = "a result can always be written as JSON")]
pub fn render<T: Serialize + Text>(format: Format, result: &T) -> String {
    match format {
        Format::Text => result.text(),
        Format::Json => {
            let mut text = serde_json::to_string_pretty(result)
                .expect("results are texts, numbers and maps with text keys");
            text.push('\n');
            text
        }
    }
}

/// Prints a result.
///
/// # Errors
/// Standard output cannot be written, for another reason than that its reader has gone away.
pub fn print<T: Serialize + Text>(format: Format, result: &T) -> io::Result<()> {
    print_raw(render(format, result).as_bytes())
}

/// Prints bytes as they are.
///
/// # Errors
/// As [`print()`].
pub fn print_raw(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints one line about a failure or a remark on standard error.
pub fn complain(program: &str, text: &str) {
    let line = text.replace(['\n', '\r'], " ");
    let _ = writeln!(io::stderr().lock(), "{program}: {line}");
}

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

/// A span for people: two significant units at most.
pub fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => match seconds {
            0..60 => format!("{seconds}.{} s", ns / 100_000_000 % 10),
            60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
            3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
            _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
        },
    }
}

/// `1 link`, `2 links`.
pub fn count(number: u64, one: &str) -> String {
    let end = match (number, one.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        _ => "s",
    };
    format!("{number} {one}{end}")
}

/// A GUID as all messages write it.
pub fn guid(guid: u64) -> String {
    format!("{guid:#018x}")
}

/// Lines of columns, each as wide as its widest cell; the last column is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
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

    #[test]
    fn spans_have_at_most_two_units() {
        let second = 1_000_000_000;
        for (ns, expected) in [
            (999, "999 ns"),
            (1_500, "1 us"),
            (2_000_000, "2 ms"),
            (second + 600_000_000, "1.6 s"),
            (61 * second, "1 min 1 s"),
            (3_700 * second, "1 h 1 min"),
            (90_000 * second, "1 d 1 h"),
        ] {
            assert_eq!(span(ns), expected);
        }
    }

    #[test]
    fn numbers_agree_with_their_nouns() {
        assert_eq!(count(1, "switch"), "1 switch");
        assert_eq!(count(2, "switch"), "2 switches");
        assert_eq!(count(0, "link"), "0 links");
    }
}
