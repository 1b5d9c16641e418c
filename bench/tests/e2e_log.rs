//! The lines that operators look for: on standard error of the daemons, plain and as JSON, and in the distinct error log.

#![allow(clippy::unwrap_used)]

mod support;

use rustix::process::Signal;
use serde_json::Value;
use support::{OpenSm, Plane, counts, eventually, have, kill, read_lossy};

const FABRIC: &str = "builtin:fat-tree,radix=4,levels=2";
const FULL: &str = "DR table full (max=2), refusing route";
const LATE: &str = "Failed to sync DR table (err=-110)";

impl Log for Plane {
    fn log(&self, daemon: &str) -> String {
        read_lossy(self.run_file(&format!("{daemon}.log")))
    }

    fn error(&self, text: &str) -> Option<(u64, String)> {
        let shown = self.json(&["errors", "show"]);
        let found = shown["errors"].as_array().unwrap().iter().find(|of| of["text"] == text)?;
        Some((found["count"].as_u64().unwrap(), found["source"].as_str().unwrap().to_owned()))
    }
}

/// What a plane has logged.
trait Log {
    /// The log of a daemon.
    fn log(&self, daemon: &str) -> String;
    /// How often an error is in the distinct error log, and whose it is.
    fn error(&self, text: &str) -> Option<(u64, String)>;
}

/// Every line as an object with a time, a level and a message; the messages.
#[track_caller]
fn messages(log: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{log}"));
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{line}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        found.push((text(&line["level"]), text(&line["fields"]["message"])));
    }
    found
}

/// Fills a table of two, and stops the plane while it should take a change over.
fn provoke(plane: &Plane) {
    for dlid in ["2", "3"] {
        plane.done(&["routes", "add", "1", dlid, "1,2", "--sync"]);
    }
    for _ in 0..30 {
        let line = plane.refused(&["routes", "add", "1", "4", "1,2"]);
        assert_eq!(line, format!("{FULL} 0x0001 -> 0x0004"));
    }
    let pid = plane.plane_pid().unwrap();
    kill(pid, Signal::STOP);
    let late = plane.madctl(&["routes", "add", "1", "3", "1,3", "--replace", "--sync"]);
    let again = plane.madctl(&["routes", "sync"]);
    kill(pid, Signal::CONT);
    for ran in [late, again] {
        assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{ran}");
        assert!(ran.err.starts_with(&format!("madctl: {LATE}: worker 0 is at generation ")), "{ran}");
    }
    eventually("it has caught up", || plane.madctl(&["routes", "sync"]).code == Some(0));
}

#[test]
fn a_full_table_and_a_late_worker_are_logged_and_kept_in_the_error_log() {
    let plane = Plane::up_with(FABRIC, &["--dr-table-max", "2"]);
    provoke(&plane);
    let log = plane.log("madctld");
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert!(lines(FULL) >= 1 && lines(FULL) < 30, "a line now and then: {log}");
    assert!(lines(LATE) >= 1, "{log}");
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains(FULL)), "{log}");
    assert!(log.lines().any(|line| line.contains("ERROR") && line.contains(LATE)), "{log}");
    assert_eq!(plane.error(FULL), Some((30, "madctld".to_owned())), "all are counted");
    let late = plane.error(&format!("{LATE}: worker 0"));
    assert!(late.is_some_and(|(count, source)| count >= 1 && source == "madctld"));
    let latency = plane.json(&["latency", "show"]);
    assert!(latency["failures"].as_u64() >= Some(1), "{latency}");
    assert!(latency["hw_sync_latency"]["count"].as_u64() >= Some(2), "{latency}");
    assert_eq!(plane.json(&["routes", "show"])["routes"].as_array().unwrap().len(), 2);
}

#[test]
fn both_logs_are_json_where_that_is_wanted() {
    let plane = Plane::up_with(FABRIC, &["--dr-table-max", "2", "--log-format", "json"]);
    provoke(&plane);
    let control = messages(&plane.log("madctld"));
    assert!(control.iter().any(|(level, text)| level == "WARN" && text == FULL), "{control:?}");
    assert!(control.iter().any(|(level, text)| level == "ERROR" && text.contains(LATE)), "{control:?}");
    let plane_says = messages(&plane.log("madplaned"));
    assert!(plane_says.iter().any(|(level, _)| level == "INFO"), "{plane_says:?}");
}

/// A fabric with one partition for two hosts, and a client of the wrong tenant.
fn mismatch(options: &[&str]) -> Option<Plane> {
    if !have(&["opensm", "ibping", "saquery"]) {
        return None;
    }
    let plane = Plane::up_with(FABRIC, options);
    let conf = plane.path("partitions.conf");
    std::fs::write(
        &conf,
        "Default=0x7fff : ALL=full ;\nred=0x11,indx0 : 0x026d700100000101=full, 0x026d700100000201 ;\n",
    )
    .unwrap();
    let conf = conf.to_str().unwrap();
    let _opensm = OpenSm::up(&plane, "", &["-P", conf], &["sweep_interval 0"]);
    plane.done(&["tenants", "load", "--partitions", conf, "--sync"]);
    plane.done(&["tenants", "add", "green", "pkey=0x0011", "--sync"]);
    let lid = plane.lid("node-0002 HCA-1").to_string();
    let ping = |tenant: &str, more: &[&str]| {
        let options = ["--tenant", tenant, "--at", "node-0001 HCA-1"];
        plane.run_with(&options, &[&["ibping", "-t", "30"], more, &[&lid]].concat())
    };
    // sends as a limited member what a limited member shall get, over and over; then with a P_Key that is not its own
    let ran = ping("green", &["-f", "-c", "40"]);
    assert!(ran.out.contains("0 received"), "{ran}");
    let ran = ping("Default", &["-c", "1"]);
    assert!(ran.out.contains("0 received"), "{ran}");
    Some(plane)
}

#[test]
fn a_refused_p_key_is_logged_with_both_keys_but_not_each_time() {
    let Some(plane) = mismatch(&[]) else { return };
    let lines = ["P_Key mismatch (0x0011 vs 0x0011)", "P_Key mismatch (0x8011 vs 0xFFFF)"];
    for line in lines {
        eventually(line, || plane.error(line).is_some_and(|(_, source)| source == "madplaned"));
        eventually(line, || plane.log("madplaned").contains(line));
    }
    let drops = counts(&plane, "drops");
    let of = |line: &str| plane.error(line).unwrap().0;
    assert_eq!(drops.get("drop_p_key"), Some(&of(lines[0])), "{drops:?}");
    assert_eq!(drops.get("drop_tenant_p_key"), Some(&of(lines[1])), "{drops:?}");
    let text = plane.done(&["errors", "show"]);
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    let log = plane.log("madplaned");
    let logged = log.lines().filter(|line| line.contains("WARN") && line.contains(lines[0])).count() as u64;
    assert!(logged >= 1 && logged < of(lines[0]), "a line now and then: {log}");
}

#[test]
fn a_refused_p_key_is_logged_as_json_where_that_is_wanted() {
    let Some(plane) = mismatch(&["--log-format", "json"]) else { return };
    let line = "P_Key mismatch (0x0011 vs 0x0011)";
    eventually(line, || plane.log("madplaned").contains(line));
    let said = messages(&plane.log("madplaned"));
    assert!(said.iter().any(|(level, text)| level == "WARN" && text.contains(line)), "{said:?}");
}
