//! `madbench` from outside: what it runs, keeps, draws and judges, and how it refuses. No timing is asserted.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{Bed, Ran, artifacts, read_lossy, run};

/// Scenarios that are short enough to be run by a test.
const SHORT: [&str; 5] = ["rings", "seqlock", "engine", "route-types", "modes"];

fn madbench(arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_madbench"));
    // a peer that is missing is skipped; what the tools of others do is tested elsewhere
    command.args(arguments).env("MADPLANE_BIN_DIR", artifacts()).env_remove("MADPLANE_REQUIRE_PEERS");
    run(&mut command)
}

/// Refused with exit code `code` and one line that contains all of `parts`.
#[track_caller]
fn assert_refused(arguments: &[&str], code: i32, parts: &[&str]) {
    let ran = madbench(arguments);
    assert_eq!(ran.code, Some(code), "{arguments:?}: {ran}");
    assert_eq!((ran.err.lines().count(), ran.out.as_str()), (1, ""), "one line on stderr: {ran}");
    assert!(ran.err.starts_with("madbench: "), "{ran}");
    for part in parts {
        assert!(ran.err.contains(part), "no {part:?} of {arguments:?}: {ran}");
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

/// Two cores, which every scenario wants.
fn two_cores() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        support::skip("two cores are needed");
    }
    cores >= 2
}

#[test]
fn a_run_is_kept_drawn_and_judged() {
    if !two_cores() {
        return;
    }
    let bed = Bed::new();
    let file = |name: &str| bed.path(name).to_str().unwrap().to_owned();
    let (output, log, page) = (file("run.jsonl"), file("run.hlog"), file("run.html"));
    let mut arguments = vec!["run", "--quick", "--rounds", "2", "--duration", "1", "--format", "json"];
    arguments.extend(["--output", &output, "--log", &log]);
    arguments.extend(SHORT);
    let ran = madbench(&arguments);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(read_lossy(&output), ran.out, "the file is what was printed");
    let results = lines(&ran.out);
    assert_environment(&results);
    assert_records(&results);
    let tags = log_tags(Path::new(&log));
    assert!(tags.iter().any(|tag| tag.starts_with("modes/")), "{tags:?}");

    let drawn = madbench(&["report", &output, "--output", &page]);
    assert_eq!((drawn.code, drawn.out.as_str(), drawn.err.as_str()), (Some(0), "", ""), "{drawn}");
    let page = read_lossy(&page);
    for record in of_kind(&results, "result") {
        let case = record["case"].as_str().unwrap();
        assert!(page.contains(&escaped(case)), "{case} is not on the page");
    }
    assert!(page.contains("<svg") && page.contains("Latency at"), "plots");
    assert_eq!(madbench(&["report", &output]).out, page, "the same page each time");
    assert_judged(&output);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}

#[track_caller]
fn assert_environment(results: &[Value]) {
    let environment = &results[0];
    assert_eq!((&environment["kind"], &environment["version"]), (&"environment".into(), &2.into()));
    assert!(environment["cores"].as_u64().unwrap() >= 2, "{environment}");
    assert_eq!(environment["cores_used"].as_array().unwrap().len(), 2, "{environment}");
    let command = environment["command"].as_str().unwrap();
    assert!(command.contains("--output run.jsonl") && !command.contains(" /"), "no paths: {command}");
}

/// Every scenario has ended well and has cases, and every number of them is one.
#[track_caller]
fn assert_records(results: &[Value]) {
    let ended: Vec<(&str, &str)> = of_kind(results, "outcome")
        .iter()
        .map(|line| (line["bench"].as_str().unwrap(), line["status"].as_str().unwrap()))
        .collect();
    assert_eq!(ended, SHORT.map(|name| (name, "measured")));
    let records = of_kind(results, "result");
    let measured: BTreeSet<&str> = records.iter().map(|record| record["bench"].as_str().unwrap()).collect();
    assert_eq!(measured, BTreeSet::from(SHORT));
    for record in records {
        let metrics = record["metrics"].as_object().unwrap();
        assert!(!metrics.is_empty(), "{record}");
        for (metric, spread) in metrics {
            assert!(spread["median"].as_f64().is_some_and(f64::is_finite), "{metric} of {record}");
        }
    }
}

fn log_tags(path: &Path) -> Vec<String> {
    let text = read_lossy(path);
    text.lines().filter_map(|line| Some(line.strip_prefix("Tag=")?.split(',').next()?.to_owned())).collect()
}

#[track_caller]
fn assert_judged(output: &str) {
    let judged = madbench(&["check", "--issue", "4", "--from", output, "--format", "json"]);
    let verdicts: Value = serde_json::from_str(&judged.out).unwrap_or_else(|e| panic!("{e}: {judged}"));
    let bars = verdicts["bars"].as_array().unwrap();
    assert!(bars.iter().all(|bar| bar["issue"] == 4) && bars.len() > 2, "{judged}");
    let short = bars.iter().filter(|bar| bar["pass"] == false).count();
    assert_eq!(verdicts["short"], short, "{judged}");
    assert_eq!(judged.code, Some(i32::from(short > 0)), "{judged}");
    let missing = bars.iter().filter(|bar| bar["value"].is_null());
    assert!(missing.count() > 0, "not everything was run: {judged}");
    let text = madbench(&["check", "--from", output]);
    assert_eq!(text.code, Some(1), "what was not measured is short: {text}");
    assert!(text.out.contains("not measured"), "{text}");
}

#[test]
fn one_mode_alone_is_measured_alone() {
    if !two_cores() {
        return;
    }
    let ran = madbench(&[
        "run",
        "modes",
        "--mode",
        "adaptive",
        "--quick",
        "--rounds",
        "1",
        "--duration",
        "1",
        "--format",
        "json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let results = lines(&ran.out);
    let labelled =
        of_kind(&results, "result").into_iter().filter_map(|record| record["labels"]["mode"].as_str());
    assert_eq!(labelled.collect::<BTreeSet<_>>(), BTreeSet::from(["adaptive"]));
}

#[test]
fn what_was_measured_is_kept_when_another_scenario_fails() {
    if !two_cores() {
        return;
    }
    let bed = Bed::new();
    let output = bed.path("run.jsonl").to_str().unwrap().to_owned();
    let nowhere = bed.path("no-programs");
    std::fs::create_dir(&nowhere).unwrap();
    // madplaned is a text here, so whatever wants a plane fails
    std::fs::write(nowhere.join("madplaned"), "not a program").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_madbench"));
    command.args([
        "run",
        "seqlock",
        "raw",
        "rings",
        "--quick",
        "--rounds",
        "1",
        "--duration",
        "1",
        "--output",
        &output,
    ]);
    command.env("MADPLANE_BIN_DIR", &nowhere).env_remove("MADPLANE_REQUIRE_PEERS");
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.err.contains("raw failed: "), "{ran}");
    let results = lines(&read_lossy(&output));
    let ended: Vec<&Value> = of_kind(&results, "outcome").into_iter().map(|line| &line["status"]).collect();
    assert_eq!(ended, ["measured", "failed", "measured"], "{ran}");
    let reason = of_kind(&results, "outcome")[1]["reason"].as_str().unwrap();
    assert!(ran.err.contains(reason), "{reason}: {ran}");
    let measured: BTreeSet<&str> =
        of_kind(&results, "result").into_iter().map(|record| record["bench"].as_str().unwrap()).collect();
    assert_eq!(measured, BTreeSet::from(["rings", "seqlock"]));
}

#[test]
fn the_scenarios_are_listed_for_people_and_programs() {
    let json = madbench(&["list", "--format", "json"]);
    assert_eq!(json.code, Some(0), "{json}");
    let listing: Value = serde_json::from_str(&json.out).unwrap();
    let names: Vec<&str> =
        listing["scenarios"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(SHORT.iter().all(|name| names.contains(name)), "{names:?}");
    let text = madbench(&["list"]);
    let listed: Vec<&str> = text.out.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(listed, names);
}

#[test]
fn wrong_usage_is_one_line_and_touches_nothing() {
    let bed = Bed::new();
    let file = |name: &str, text: &str| {
        let path = bed.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let newer = file("newer.jsonl", "{\"kind\":\"environment\",\"version\":99,\"moon\":\"full\"}\n");
    let prose = file("prose.jsonl", "dear reader\n");
    let kept = file("kept.jsonl", "kept\n");
    let none = bed.path("none.jsonl").to_str().unwrap().to_owned();
    for (arguments, code, parts) in [
        (vec!["run", "troughput", "--output", &kept], 2, vec!["troughput", "did you mean throughput?"]),
        (vec!["run", "rings", "moebius", "--output", &kept], 2, vec!["moebius", "throughput"]),
        (vec!["run", "modes", "--mode", "poling", "--output", &kept], 2, vec!["poling", "polling"]),
        (vec!["run", "modes", "--duration", "-1", "--output", &kept], 2, vec!["-1"]),
        (vec!["run", "modes", "--duration", "1e9", "--output", &kept], 2, vec!["86400"]),
        (vec!["run", "modes", "--rounds", "-3"], 2, vec!["-3"]),
        (vec!["run"], 2, vec!["NAMES"]),
        (vec!["rum"], 2, vec!["rum", "run"]),
        (vec!["report", &none], 1, vec!["none.jsonl", "o such file"]),
        (vec!["report", &prose], 2, vec!["prose.jsonl", "line 1", "no result"]),
        (vec!["report", &newer], 2, vec!["newer.jsonl", "version 99", "up to 2"]),
        (vec!["check", "--from", &newer], 2, vec!["newer.jsonl", "version 99"]),
        (vec!["check", "--issue", "77"], 2, vec!["77", "4"]),
        (vec!["compare", &prose, &newer], 2, vec!["prose.jsonl"]),
        (vec!["run", "rings", "--quick", "--output", "/proc/none/x"], 1, vec!["/proc/none/x"]),
    ] {
        assert_refused(&arguments, code, &parts);
    }
    assert_eq!(read_lossy(&kept), "kept\n", "an earlier file is not touched by a command that is refused");
    assert!(!Path::new(&none).exists());
}
