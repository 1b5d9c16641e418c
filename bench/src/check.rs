//! The bars of the project, in one table, against measured results.
//!
//! A [`Goal`] names a metric of a record, or the bar that a scenario has put on it, and a limit. What was not measured is
//! short like what is too slow. What falls short is shown with the floor that was measured beside it. Limits live here and in the scenarios' own bars, never in tests. Pure, any thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::harness::Spread;
use crate::report::{Line, Record, latest, number};

/// Version of [`Verdicts`] as JSON.
pub const VERSION: u32 = 1;

/// What has to hold.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// Short name, stable.
    pub name: &'static str,
    /// Where it is asked for.
    pub issue: u32,
    /// What is measured, in words.
    pub what: &'static str,
    /// Scenario of the records.
    pub bench: &'static str,
    /// Beginning of the records' cases; of several, the worst counts.
    pub case: &'static str,
    /// Where in the record.
    pub measure: Measure,
    /// The limit.
    pub limit: f64,
    /// Whether less than the limit is good; otherwise more is.
    pub at_most: bool,
}

/// Where a number stands in a record.
#[derive(Debug, Clone, Copy)]
pub enum Measure {
    /// Median of a metric.
    Metric(&'static str),
    /// Value of a bar of this name.
    Bar(&'static str),
}

const fn most(
    name: &'static str,
    issue: u32,
    what: &'static str,
    (bench, case): (&'static str, &'static str),
    measure: Measure,
    limit: f64,
) -> Goal {
    Goal { name, issue, what, bench, case, measure, limit, at_most: true }
}

const fn least(
    name: &'static str,
    issue: u32,
    what: &'static str,
    place: (&'static str, &'static str),
    measure: Measure,
    limit: f64,
) -> Goal {
    Goal { at_most: false, ..most(name, issue, what, place, measure, limit) }
}

use Measure::{Bar, Metric};

/// All of them; what is not a speed is in the tests.
pub const GOALS: &[Goal] = &[
    most("load_time", 2, "11,664 hosts: seconds to ready", ("load", ""), Metric("startup_s"), 1.0),
    most("load_memory", 2, "11,664 hosts: peak memory, MB", ("load", ""), Metric("peak_rss_mb"), 400.0),
    most(
        "opensm_wall",
        2,
        "OpenSM, 11,664 hosts: wall time over that on ibsim",
        ("opensm", "11664 hosts, plane over ibsim"),
        Metric("wall_s"),
        0.7,
    ),
    least(
        "query_p50",
        2,
        "NodeInfo over 4 hops through libibmad: p50 of ibsim over ours",
        ("libibmad", ""),
        Bar("ibsim over plane, p50"),
        15.0,
    ),
    least("query_p99", 2, "the same at p99", ("libibmad", ""), Bar("ibsim over plane, p99"), 10.0),
    most(
        "hop",
        2,
        "one more directed hop, there and back, ns",
        ("raw", "one more hop"),
        Metric("ns_per_hop"),
        15.0,
    ),
    most(
        "look_1",
        3,
        "look at an unchanged table, burst 1, ns",
        ("table", "look"),
        Metric("burst_1_ns"),
        3.0,
    ),
    most(
        "look_32",
        3,
        "the same at burst 32, ns per MAD",
        ("table", "look"),
        Metric("burst_32_ns_per_mad"),
        1.0,
    ),
    most(
        "sync_p50",
        3,
        "change to used with --sync beyond the round trip, p50, ns",
        ("table-control", "one route through madctld"),
        Metric("sync_beyond_p50"),
        1_000.0,
    ),
    most(
        "sync_p99",
        3,
        "change to used, publisher beside the worker, p99, ns",
        ("table", "one route from change"),
        Metric("p99"),
        10_000.0,
    ),
    most(
        "reload_p999",
        3,
        "1,024 routes reloaded at full rate: growth of p99.9, percent",
        ("table", "1,024 routes reloaded"),
        Metric("growth_percent_p99.9"),
        20.0,
    ),
    least(
        "updates",
        3,
        "single routes a second at full rate",
        ("table", "single routes"),
        Metric("shown_publications_per_second"),
        200_000.0,
    ),
    most(
        "updates_fall",
        3,
        "fall of the worker's throughput by them, percent",
        ("table", "single routes"),
        Metric("fall_percent"),
        10.0,
    ),
    least(
        "pinned_uncached",
        3,
        "pinned, looked at anew, against tables, any number of hops",
        ("pinned", "engine"),
        Metric("tables_over_uncached"),
        1.0,
    ),
    least(
        "pinned_cached",
        3,
        "pinned and resolved against tables, any number of hops",
        ("pinned", "engine"),
        Metric("tables_over_cached"),
        1.0,
    ),
    least(
        "pinned_cached_4",
        3,
        "the same at 4 hops or more",
        ("pinned", "engine"),
        Bar("tables over pinned, cached, 4 hops or more"),
        1.2,
    ),
    most(
        "reserved_p999",
        3,
        "reserved session under 16 bulk sessions: p99.9 over its own when idle",
        ("reserved", "reserved session"),
        Metric("flooded_over_idle_p99.9"),
        2.0,
    ),
    least(
        "bulk_share",
        3,
        "share of the bulk sessions under the reserved one, percent",
        ("reserved", "bulk"),
        Metric("bulk_share_percent"),
        5.0,
    ),
    most(
        "routes_load",
        3,
        "routes load of 65,536, s",
        ("table-control", "routes load"),
        Metric("load_s"),
        0.5,
    ),
    most(
        "resync",
        3,
        "full resync of 65,536 routes, ms",
        ("table-whole", "65,536 routes, all changed"),
        Metric("resync_ms"),
        5.0,
    ),
    most(
        "raw_p50",
        4,
        "round trip through the raw client, 0 hops: p50 over the floor of 256 bytes",
        ("raw", "rings, 0 hops"),
        Metric("p50_over_floor"),
        1.6,
    ),
    most(
        "raw_p99",
        4,
        "the same: p99 over the floor's p50",
        ("raw", "rings, 0 hops"),
        Metric("p99_over_floor"),
        2.5,
    ),
    most(
        "libibmad_p50",
        4,
        "the same through the stock libibmad: p50 over the floor",
        ("libibmad", "smp_query_via over 0 hops, plane"),
        Metric("p50_over_floor"),
        2.2,
    ),
    most(
        "hop_from_1",
        4,
        "one more directed hop, there and back, 1 to 12 hops, ns",
        ("raw", "one more hop"),
        Metric("ns_per_hop_from_1"),
        15.0,
    ),
    least(
        "pipelined",
        4,
        "directed NodeInfo over 4 hops, one client, one worker: MADs a second",
        ("throughput", "NodeInfo by directed route, 4 hops"),
        Bar("MADs per second, one client, one worker"),
        4e6,
    ),
    most(
        "interrupt_p50",
        4,
        "interrupt, depth 1, client asleep: p50 over the bare eventfd ping-pong",
        ("modes", "interrupt, depth 1, client sleeping"),
        Metric("p50_over_eventfd"),
        1.5,
    ),
    most(
        "interrupt_idle",
        4,
        "interrupt, idle since 50 ms: processor time of all threads, percent of a core",
        ("modes", "interrupt, idle since"),
        Metric("idle_process_cpu_percent"),
        0.5,
    ),
    most(
        "interrupt_calls",
        4,
        "interrupt, depth 1: system calls of the worker per MAD, request and answer being two",
        ("modes", "interrupt, depth 1, client sleeping"),
        Metric("worker_calls_per_mad"),
        1.0,
    ),
    most(
        "interrupt_calls_64",
        4,
        "the same at depth 64",
        ("modes", "interrupt, depth 64, client"),
        Metric("worker_calls_per_mad"),
        0.1,
    ),
    most(
        "adaptive_p50",
        4,
        "adaptive at 100,000 MADs a second: p50 over polling",
        ("modes", "adaptive, 100000 a second"),
        Metric("p50_over_polling"),
        1.15,
    ),
    most(
        "adaptive_idle",
        4,
        "adaptive, idle since 50 ms: processor time of all threads, percent of a core",
        ("modes", "adaptive, idle since"),
        Metric("idle_process_cpu_percent"),
        1.0,
    ),
];

/// How one goal stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Of the goal.
    pub name: String,
    /// Of the goal.
    pub issue: u32,
    /// Of the goal.
    pub what: String,
    /// The limit.
    pub limit: f64,
    /// Whether less is good.
    pub at_most: bool,
    /// Measured; none if it was not.
    pub value: Option<f64>,
    /// Case that the value is from.
    #[serde(default)]
    pub case: String,
    /// Whether the limit is kept.
    pub pass: bool,
    /// Lowest and highest round, if the value is the median over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<(f64, f64)>,
    /// Floors of the same scenario by case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub floors: BTreeMap<String, Floor>,
    /// What a reader of the value has to know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Scenario that measures it.
    #[serde(default)]
    pub bench: String,
}

/// What the machine itself took, medians over the rounds, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Half of all.
    pub p50: f64,
    /// 99 of a hundred.
    pub p99: f64,
}

/// How all goals stand. Fields are append-only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    /// [`VERSION`].
    pub version: u32,
    /// How many hold.
    pub passed: usize,
    /// How many do not, or were not measured.
    pub short: usize,
    /// One by one.
    pub bars: Vec<Verdict>,
}

/// The goals of an issue, or all.
///
/// # Errors
/// [`BenchError::Usage`] if the issue asks for none.
pub fn goals(issue: Option<u32>) -> Result<Vec<Goal>, BenchError> {
    let goals: Vec<Goal> =
        GOALS.iter().filter(|goal| issue.is_none_or(|issue| issue == goal.issue)).copied().collect();
    if goals.is_empty() {
        let issues: BTreeSet<String> = GOALS.iter().map(|goal| goal.issue.to_string()).collect();
        let issues = issues.into_iter().collect::<Vec<_>>().join(", ");
        return Err(BenchError::Usage(format!(
            "no bars of issue {}; there are bars of {issues}",
            issue.unwrap_or(0)
        )));
    }
    Ok(goals)
}

/// Scenarios that have to be run, in the order of the goals.
pub fn scenarios(goals: &[Goal]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for goal in goals {
        if !names.contains(&goal.bench) {
            names.push(goal.bench);
        }
    }
    names
}

impl Goal {
    fn holds(&self, value: f64) -> bool {
        if self.at_most { value <= self.limit } else { value >= self.limit }
    }

    /// The worst number and its case.
    fn judge(&self, records: &[&Record]) -> Verdict {
        let found = records
            .iter()
            .filter(|record| record.bench == self.bench && record.case.starts_with(self.case))
            .filter_map(|record| Some((self.measure.of(record)?, *record)));
        let worst = found.reduce(|a, b| if (a.0 > b.0) == self.at_most { a } else { b });
        let record = worst.map(|(_, record)| record);
        let floors = records.iter().filter(|record| record.bench == self.bench);
        Verdict {
            name: self.name.to_owned(),
            issue: self.issue,
            what: self.what.to_owned(),
            limit: self.limit,
            at_most: self.at_most,
            value: worst.map(|(value, _)| value),
            case: record.map_or_else(String::new, |record| record.case.clone()),
            pass: worst.is_some_and(|(value, _)| self.holds(value)),
            rounds: record.and_then(|record| self.measure.rounds_of(record)),
            floors: floors.filter_map(|record| Floor::of(record)).collect(),
            note: record.map_or_else(String::new, |record| record.note.clone()),
            bench: self.bench.to_owned(),
        }
    }
}

/// What the cases of floors begin with.
const FLOOR: &str = "floor: ";

impl Floor {
    /// The floor that a record is, with its name.
    fn of(record: &Record) -> Option<(String, Self)> {
        let name = record.case.strip_prefix(FLOOR)?.to_owned();
        let floor = Self { p50: record.median("p50"), p99: record.median("p99") };
        (floor.p50.is_finite() && floor.p99.is_finite()).then_some((name, floor))
    }
}

impl Measure {
    fn of(self, record: &Record) -> Option<f64> {
        let value = match self {
            Self::Metric(name) => record.median(name),
            Self::Bar(name) => record.bars.iter().find(|bar| bar.what == name)?.value,
        };
        value.is_finite().then_some(value)
    }

    fn rounds_of(self, record: &Record) -> Option<(f64, f64)> {
        let Self::Metric(name) = self else { return None };
        let spread: &Spread = record.metrics.get(name)?;
        (spread.rounds.len() > 1).then_some((spread.low, spread.high))
    }
}

/// Holds goals against the records of `lines`; of two with the same case the later counts.
pub fn check(goals: &[Goal], lines: &[Line]) -> Verdicts {
    let records = latest(lines);
    let bars: Vec<Verdict> = goals.iter().map(|goal| goal.judge(&records)).collect();
    let passed = bars.iter().filter(|bar| bar.pass).count();
    Verdicts { version: VERSION, passed, short: bars.len() - passed, bars }
}

/// The table for people: a line per goal, and below one that falls short what there is to know about it.
pub fn to_text(verdicts: &Verdicts) -> String {
    let mut out = String::new();
    for bar in &verdicts.bars {
        let sign = if bar.at_most { "<=" } else { ">=" };
        let value = bar.value.map_or_else(|| "not measured".to_owned(), number);
        let verdict = if bar.pass { "pass" } else { "SHORT" };
        let _ = writeln!(
            out,
            "{verdict:<6} {:<16} {value:>14} {sign} {:<9} #{} {}{}",
            bar.name,
            number(bar.limit),
            bar.issue,
            bar.what,
            bar.place().map_or_else(String::new, |place| format!(" [{place}]")),
        );
        if !bar.pass && bar.value.is_some() {
            for line in bar.remarks() {
                let _ = writeln!(out, "       {line}");
            }
        }
    }
    let _ = writeln!(out, "{} pass, {} short", verdicts.passed, verdicts.short);
    out
}

impl Verdict {
    /// The case that counts, or what has to be run for one.
    pub fn place(&self) -> Option<String> {
        match (self.case.as_str(), self.bench.as_str()) {
            ("", "") => None,
            ("", bench) => Some(format!("madbench run {bench}")),
            (case, bench) => Some(format!("{bench}: {case}")),
        }
    }

    /// The spread of the value, the floors beside it, and its note, as far as there are any.
    pub fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some((low, high)) = self.rounds {
            lines.push(format!("rounds from {} to {}", number(low), number(high)));
        }
        for (name, Floor { p50, p99 }) in &self.floors {
            lines.push(format!("floor beside it, {name}: p50 {} ns, p99 {} ns", number(*p50), number(*p99)));
        }
        if !self.note.is_empty() {
            lines.push(format!("note: {}", self.note));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Summary;

    fn record(bench: &str, case: &str, metric: &str, value: f64) -> Line {
        Line::Result(Record::from_rounds(bench, case, "", &[Summary::of(metric, value)]))
    }

    fn bar<'a>(verdicts: &'a Verdicts, name: &str) -> &'a Verdict {
        verdicts.bars.iter().find(|bar| bar.name == name).unwrap()
    }

    #[test]
    fn what_was_not_measured_is_short() {
        let verdicts = check(GOALS, &[]);
        assert_eq!((verdicts.passed, verdicts.short), (0, GOALS.len()));
        assert!(verdicts.bars.iter().all(|bar| bar.value.is_none() && !bar.pass));
        let text = to_text(&verdicts);
        assert!(text.contains("not measured") && text.contains("[madbench run load]"), "{text}");
    }

    #[test]
    fn the_worst_case_counts_and_the_later_result_of_a_case() {
        let lines = [
            record("pinned", "engine, SMP, 1 hops", "tables_over_uncached", 0.5),
            record("pinned", "engine, GMP, 6 hops", "tables_over_uncached", 3.0),
            record("pinned", "rings, SMP, 1 hops", "tables_over_uncached", 0.1),
            record("pinned", "engine, SMP, 1 hops", "tables_over_uncached", 1.5),
            record("table-whole", "65,536 routes, all changed, one worker", "resync_ms", 5.1),
        ];
        let verdicts = check(GOALS, &lines);
        let pinned = bar(&verdicts, "pinned_uncached");
        assert_eq!(
            (pinned.value, pinned.case.as_str(), pinned.pass),
            (Some(1.5), "engine, SMP, 1 hops", true)
        );
        assert_eq!((bar(&verdicts, "resync").value, bar(&verdicts, "resync").pass), (Some(5.1), false));
    }

    #[test]
    fn names_are_unique_and_every_scenario_exists() {
        let mut names: Vec<_> = GOALS.iter().map(|goal| goal.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GOALS.len());
        for name in scenarios(GOALS) {
            assert!(crate::scenario::find(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn verdicts_are_read_back_as_they_were_written() {
        let verdicts = check(GOALS, &[record("table", "look at an unchanged table", "burst_1_ns", 0.5)]);
        let text = serde_json::to_string(&verdicts).unwrap();
        assert_eq!(serde_json::from_str::<Verdicts>(&text).unwrap(), verdicts);
    }

    #[test]
    fn what_falls_short_is_shown_with_its_spread_its_floor_and_its_note() {
        let rounds = [90.0, 100.0, 120.0].map(|value| Summary::of("ns_per_hop", value));
        let slope = Record::from_rounds("raw", "one more hop, there and back", "ns", &rounds);
        let mut floor = Summary::of("p50", 440.0);
        floor.values.insert("p99".to_owned(), 2000.0);
        let lines = [
            Line::Result(Record::from_rounds("raw", "floor: 256 bytes there and back", "ns", &[floor])),
            record("libibmad", "floor: of somebody else", "p50", 1.0),
            Line::Result(slope.noting("a slow day")),
        ];
        let text = to_text(&check(GOALS, &lines));
        for part in [
            "rounds from 90.0 to 120.0\n",
            "floor beside it, 256 bytes there and back: p50 440.0 ns, p99 2000 ns\n",
            "note: a slow day\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("somebody else"), "{text}");
    }

    #[test]
    fn only_the_bars_of_one_issue_are_held() {
        let goals = goals(Some(3)).unwrap();
        assert!(goals.len() < GOALS.len() && goals.iter().all(|goal| goal.issue == 3));
        assert_eq!(check(&goals, &[]).short, goals.len());
        let error = super::goals(Some(77)).unwrap_err().to_string();
        assert!(error.contains("issue 77") && error.contains("2, 3"), "{error}");
    }
}
