//! Everything that madctl prints, and the only place that prints.
//!
//! A result is text for people or one JSON document for programs. Times and spans are formatted here, so that they look
//! the same everywhere. A reader that has gone away (a closed pipe) is no error.

use std::io::{self, Write};

pub use madctl::show::{guid, utc};
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
