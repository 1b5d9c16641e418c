//! Results as JSON lines and as a table, and the comparison of two result files.
//!
//! A file starts with an [`Environment`] line; every other line is a [`Record`] or, once per scenario, an [`Outcome`]. Fields
//! are append-only. Pure, any thread.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::harness::{Distribution, Spread, Summary, number_or_none};
use crate::machine::{Environment, RESULT_VERSION};

/// One line of a result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// What the following was measured on.
    Environment(Environment),
    /// One case.
    Result(Record),
    /// How a scenario ended; follows its cases.
    Outcome(Outcome),
}

/// How a scenario ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Scenario.
    pub bench: String,
    /// Whether there are cases.
    pub status: Status,
    /// Why there are none; empty if there are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How long it took, seconds.
    pub elapsed_s: f64,
}

/// Whether a scenario has cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It has.
    Measured,
    /// A peer is missing.
    Skipped,
    /// It broke off.
    Failed,
}

/// What a run has given so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Results {
    /// What it is measured on.
    pub environment: Environment,
    /// The cases of all scenarios, in the order in which they ran.
    pub records: Vec<Record>,
    /// How the scenarios ended.
    pub outcomes: Vec<Outcome>,
}

impl Results {
    /// The lines of a result file: the cases of each scenario, then how it ended.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::Environment(self.environment.clone())];
        let ended = |record: &&Record| self.outcomes.iter().any(|outcome| outcome.bench == record.bench);
        for outcome in &self.outcomes {
            let cases = self.records.iter().filter(|record| record.bench == outcome.bench);
            lines.extend(cases.cloned().map(Line::Result));
            lines.push(Line::Outcome(outcome.clone()));
        }
        lines.extend(self.records.iter().filter(|record| !ended(record)).cloned().map(Line::Result));
        lines
    }
}

/// What one case of a scenario gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Scenario.
    pub bench: String,
    /// Case within the scenario.
    pub case: String,
    /// Unit of the metrics that are not rates or ratios.
    pub unit: String,
    /// By name.
    pub metrics: BTreeMap<String, Spread>,
    /// Bars that the case is held against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bars: Vec<Bar>,
    /// What a reader of the number has to know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What the case was, for those who group and draw: `mode`, `load`, `hops`, `depth`, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Time by quantile over all rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<(f64, u64)>,
    /// The times of all rounds; only while the program runs, and in the log of `--log`.
    #[serde(skip)]
    pub times: Option<Distribution>,
}

/// A bar from the project's budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The metric, as it is called in the budget.
    pub what: String,
    /// Measured.
    #[serde(deserialize_with = "number_or_none")]
    pub value: f64,
    /// Limit.
    pub limit: f64,
    /// Whether less than the limit is good; otherwise more is.
    pub at_most: bool,
}

impl Bar {
    /// A value that should not be above `limit`.
    pub fn at_most(what: &str, value: f64, limit: f64) -> Self {
        Self { what: what.to_owned(), value, limit, at_most: true }
    }

    /// A value that should not be below `limit`.
    pub fn at_least(what: &str, value: f64, limit: f64) -> Self {
        Self { what: what.to_owned(), value, limit, at_most: false }
    }

    /// Whether the bar is met.
    pub fn is_met(&self) -> bool {
        if self.at_most { self.value <= self.limit } else { self.value >= self.limit }
    }
}

impl Record {
    /// Puts the rounds of one case together.
    pub fn from_rounds(bench: &str, case: &str, unit: &str, rounds: &[Summary]) -> Self {
        let mut series: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for round in rounds {
            for (metric, value) in &round.values {
                series.entry(metric.clone()).or_default().push(*value);
            }
        }
        let metrics = series.into_iter().map(|(metric, values)| (metric, Spread::new(values))).collect();
        Self {
            bench: bench.to_owned(),
            case: case.to_owned(),
            unit: unit.to_owned(),
            metrics,
            bars: Vec::new(),
            note: String::new(),
            labels: BTreeMap::new(),
            curve: Vec::new(),
            times: None,
        }
    }

    /// Says what the case was.
    #[must_use]
    pub fn labelled(mut self, label: &str, value: impl ToString) -> Self {
        self.labels.insert(label.to_owned(), value.to_string());
        self
    }

    /// Keeps the times of all rounds, as a curve and for the log.
    #[must_use]
    pub fn distributed(mut self, times: Distribution) -> Self {
        self.curve = times.curve();
        self.times = Some(times);
        self
    }

    /// Adds a metric.
    #[must_use]
    pub fn with(mut self, metric: &str, spread: Spread) -> Self {
        self.metrics.insert(metric.to_owned(), spread);
        self
    }

    /// Adds a bar.
    #[must_use]
    pub fn held_to(mut self, bar: Bar) -> Self {
        self.bars.push(bar);
        self
    }

    /// Adds a remark.
    #[must_use]
    pub fn noting(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Rounds of a metric, empty if there is none.
    pub fn rounds(&self, metric: &str) -> &[f64] {
        self.metrics.get(metric).map_or(&[], |spread| &spread.rounds)
    }

    /// Median of a metric, NaN if there is none.
    pub fn median(&self, metric: &str) -> f64 {
        self.metrics.get(metric).map_or(f64::NAN, |spread| spread.median)
    }
}

/// Writes a result file.
pub fn to_json_lines(results: &Results) -> String {
    let mut out = String::new();
    for line in results.lines().iter().filter_map(|line| serde_json::to_string(line).ok()) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Reads a result file, or several one after the other.
///
/// # Errors
/// [`BenchError::Usage`] names the line that is none, or is of a newer version.
pub fn from_json_lines(text: &str) -> Result<Vec<Line>, BenchError> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            // the version first: what a newer program wrote may not be readable otherwise
            let newer = serde_json::from_str::<Versioned>(line)
                .ok()
                .filter(|line| line.kind == "environment" && line.version > RESULT_VERSION);
            if let Some(Versioned { version, .. }) = newer {
                return Err(BenchError::Usage(format!(
                    "line {number} is of version {version}, this program reads up to {RESULT_VERSION}"
                )));
            }
            serde_json::from_str(line)
                .map_err(|error| BenchError::Usage(format!("line {number} is no result: {error}")))
        })
        .collect()
}

/// As much of a line as all versions have.
#[derive(Debug, Deserialize)]
struct Versioned {
    kind: String,
    #[serde(default)]
    version: u32,
}

/// The records of all lines; of two with the same case the later, at the place of the earlier.
pub fn latest(lines: &[Line]) -> Vec<&Record> {
    let mut records: Vec<&Record> = Vec::new();
    for line in lines {
        let Line::Result(record) = line else { continue };
        match records.iter_mut().find(|known| known.bench == record.bench && known.case == record.case) {
            Some(known) => *known = record,
            None => records.push(record),
        }
    }
    records
}

/// Writes results for people.
pub fn to_text(results: &Results) -> String {
    let mut out = format!("# {}\n", results.environment);
    let mut bench = "";
    for record in &results.records {
        if record.bench != bench {
            bench = &record.bench;
            let _ = writeln!(out, "\n{bench}");
        }
        let unit = if record.unit.is_empty() { String::new() } else { format!(" [{}]", record.unit) };
        let _ = writeln!(out, "  {}{unit}", record.case);
        for (metric, spread) in &record.metrics {
            let _ = write!(out, "    {metric:<16} {:>12}", number(spread.median));
            if spread.rounds.len() > 1 {
                let _ = write!(
                    out,
                    "  ({} .. {}, {} rounds)",
                    number(spread.low),
                    number(spread.high),
                    spread.rounds.len()
                );
            }
            out.push('\n');
        }
        for bar in &record.bars {
            let (sign, verdict) =
                (if bar.at_most { "<=" } else { ">=" }, if bar.is_met() { "met" } else { "MISSED" });
            let _ = writeln!(
                out,
                "    bar: {} {} {sign} {}: {verdict}",
                bar.what,
                number(bar.value),
                number(bar.limit)
            );
        }
        if !record.note.is_empty() {
            let _ = writeln!(out, "    note: {}", record.note);
        }
    }
    for outcome in results.outcomes.iter().filter(|outcome| outcome.status != Status::Measured) {
        let how = if outcome.status == Status::Skipped { "skipped" } else { "FAILED" };
        let _ = writeln!(out, "\n{}\n  {how}: {}", outcome.bench, outcome.reason);
    }
    out
}

/// A number with as many digits as mean something.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Compares two result files case by case, metric by metric.
///
/// A difference counts only if no round of one reaches into the rounds of the other.
pub fn compare(before: &[Line], after: &[Line]) -> String {
    let mut out = String::new();
    for (name, lines) in [("A", before), ("B", after)] {
        for line in lines {
            if let Line::Environment(environment) = line {
                let _ = writeln!(out, "# {name}: {environment}");
            }
        }
    }
    let records = |lines: &[Line]| -> Vec<Record> {
        lines
            .iter()
            .filter_map(|line| match line {
                Line::Result(record) => Some(record.clone()),
                Line::Environment(_) | Line::Outcome(_) => None,
            })
            .collect()
    };
    let (before, after) = (records(before), records(after));
    for old in &before {
        let Some(new) = after.iter().find(|new| new.bench == old.bench && new.case == old.case) else {
            let _ = writeln!(out, "{} / {}: only in A", old.bench, old.case);
            continue;
        };
        let _ = writeln!(out, "{} / {}", old.bench, old.case);
        for (metric, a) in &old.metrics {
            let Some(b) = new.metrics.get(metric) else { continue };
            let verdict = if a.overlaps(b) { "no difference beyond the spread" } else { "differs" };
            let _ = writeln!(
                out,
                "  {metric:<16} {:>12} ({} .. {})  ->  {:>12} ({} .. {})  x{:.3}  {verdict}",
                number(a.median),
                number(a.low),
                number(a.high),
                number(b.median),
                number(b.low),
                number(b.high),
                b.median / a.median,
            );
        }
    }
    for new in &after {
        if !before.iter().any(|old| new.bench == old.bench && new.case == old.case) {
            let _ = writeln!(out, "{} / {}: only in B", new.bench, new.case);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(values: &[f64]) -> Record {
        let rounds: Vec<_> = values.iter().map(|value| Summary::of("p50", *value)).collect();
        Record::from_rounds("raw", "4 hops", "ns", &rounds)
    }

    #[test]
    fn a_result_file_is_read_back_as_it_was_written() {
        let environment = Environment { cpu_model: "x".to_owned(), ..Environment::default() };
        let records = vec![record(&[1.0, 2.0, 3.0]).held_to(Bar::at_most("ratio", 1.5, 1.6)).noting("n")];
        let ended = |bench: &str, status, reason: &str| Outcome {
            bench: bench.to_owned(),
            status,
            reason: reason.to_owned(),
            elapsed_s: 1.5,
        };
        let outcomes = vec![
            ended("peers", Status::Skipped, "ibsim is not installed"),
            ended("raw", Status::Measured, ""),
            ended("table", Status::Failed, "no answer"),
        ];
        let results = Results { environment, records, outcomes };
        let lines = from_json_lines(&to_json_lines(&results)).unwrap();
        assert_eq!(lines, results.lines());
        let kinds: Vec<_> = lines
            .iter()
            .map(|line| match line {
                Line::Environment(_) => "environment",
                Line::Result(record) => &record.bench,
                Line::Outcome(_) => "outcome",
            })
            .collect();
        assert_eq!(kinds, ["environment", "outcome", "raw", "outcome", "outcome"]);
        let text = to_text(&results);
        assert!(text.contains("skipped: ibsim is not") && text.contains("FAILED: no answer"), "{text}");
    }

    #[test]
    fn a_line_that_is_none_is_named_and_so_is_a_newer_version() {
        for (text, parts) in [
            ("\n{\"kind\":\"result\"}", ["line 2", "is no result"]),
            ("{\"kind\":\"bogus\"}", ["line 1", "is no result"]),
            ("hello", ["line 1", "is no result"]),
            ("{\"kind\":\"environment\",\"version\":99,\"moon\":1}", ["version 99", "up to 2"]),
        ] {
            let error = from_json_lines(text).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn cases_of_a_scenario_that_has_not_ended_are_kept() {
        let results = Results { records: vec![record(&[1.0])], ..Results::default() };
        assert_eq!(results.lines().len(), 2);
    }

    #[test]
    fn a_difference_inside_the_spread_is_called_none() {
        let line = |values: &[f64]| vec![Line::Result(record(values))];
        assert!(compare(&line(&[10.0, 14.0]), &line(&[12.0, 16.0])).contains("no difference"));
        let apart = compare(&line(&[10.0, 11.0]), &line(&[20.0, 22.0]));
        assert!(apart.contains("x2.000  differs"), "{apart}");
        assert!(compare(&line(&[1.0]), &[]).contains("only in A"));
    }

    #[test]
    fn a_bar_says_which_way_is_good() {
        assert!(Bar::at_most("a", 1.6, 1.6).is_met() && !Bar::at_most("a", 1.7, 1.6).is_met());
        assert!(Bar::at_least("a", 15.0, 15.0).is_met() && !Bar::at_least("a", 14.9, 15.0).is_met());
        let records = vec![record(&[1.0]).held_to(Bar::at_most("r", 2.0, 1.0))];
        let text = to_text(&Results { records, ..Results::default() });
        assert!(text.contains("MISSED"), "{text}");
    }
}
