//! Changes through madctld: the round trip of a change with and without `--sync`, and a whole file.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use madctl::Plane as View;
use serde_json::{Value, json};

use crate::error::BenchError;
use crate::fabrics::Fabric;
use crate::harness::{Distribution, Spread, Summary};
use crate::load::nanoseconds;
use crate::machine::{Cores, on_cores};
use crate::plane::{Plane, PlaneOptions};
use crate::process::Process;
use crate::programs;
use crate::report::{Bar, Record};
use crate::scenario::Options;

use super::{HOSTS_128, whole};

/// Longest time until madctld is ready.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    super::on_the_client_core(|cores| through_madctld(options, cores))
}

fn through_madctld(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(HOSTS_128)?;
    let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
    let mut command = Command::new(programs::ours("madctld")?);
    command.args(["--name", plane.paths().name(), "--dr-table-max", &whole::ROUTES.to_string()]);
    command.envs(plane.environment()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = on_cores(&[cores.client], || Process::start("madctld", &mut command))?;
    let view = View::at(plane.paths().clone());
    daemon.wait_for(READY_WITHIN, Duration::from_millis(10), || {
        let mut admin = view.admin().ok()?;
        let status: Value = admin.ask("control.status", &Value::Null).ok()?;
        status["connected"].as_bool().filter(|connected| *connected).map(|_| ())
    })?;
    let mut records = vec![changes(options, &view)?];
    records.push(load(options, &plane, cores)?);
    Ok(records)
}

fn changes(options: &Options, view: &View) -> Result<Record, BenchError> {
    let refused = |error: &dyn std::fmt::Display| BenchError::program("madctld", error.to_string());
    let mut admin = view.admin().map_err(|error| refused(&error))?;
    let count = options.count_or(5_000);
    let mut rounds = Vec::new();
    for _ in 0..options.rounds_or(7) {
        let mut summary = Summary::default();
        let mut times = [Distribution::new(), Distribution::new(), Distribution::new()];
        for number in 0..count {
            for (turn, times) in times.iter_mut().enumerate() {
                let args = json!({
                    "route": { "slid": 0x1000, "dlid": 0x2000 + turn, "path": [1, 2, 3, 4], "priority": number % 2 },
                    "replace": true,
                    "sync": turn == 2,
                });
                let (cmd, args) =
                    if turn == 0 { ("control.status", Value::Null) } else { ("routes.add", args) };
                let start = Instant::now();
                let _: Value = admin.ask(cmd, &args).map_err(|error| refused(&error))?;
                times.record(nanoseconds(start.elapsed()));
            }
        }
        for (what, times) in ["status", "add", "add_sync"].into_iter().zip(&times) {
            for (metric, value) in times.summary(None).values {
                summary.values.insert(format!("{what}_{metric}"), value);
            }
        }
        rounds.push(summary);
    }
    let record = Record::from_rounds("table-control", "one route through madctld", "ns", &rounds);
    let beyond = |metric: &str| {
        let pair = |what: &str| record.rounds(&format!("{what}_{metric}")).to_vec();
        let (with, without) = (pair("add_sync"), pair("add"));
        Spread::new(with.iter().zip(&without).map(|(with, without)| with - without).collect())
    };
    let (p50, p99) = (beyond("p50"), beyond("p99"));
    let bars = [
        Bar::at_most("--sync beyond the round trip, p50, ns", p50.median, 1_000.0),
        Bar::at_most("--sync beyond the round trip, p99, ns", p99.median, 10_000.0),
    ];
    let record = record.with("sync_beyond_p50", p50).with("sync_beyond_p99", p99);
    Ok(bars.into_iter().fold(record, Record::held_to).noting(
        "the same change without --sync is the round trip that is subtracted; madctld and its client share a core",
    ))
}

fn load(options: &Options, plane: &Plane, cores: Cores) -> Result<Record, BenchError> {
    let directory = super::memory_directory()?;
    let program = programs::ours("madctl")?;
    let mut rounds = Vec::new();
    for round in 0..options.rounds_or(5) {
        let file = directory.path().join("routes");
        let mut text = String::new();
        for index in 0..whole::ROUTES {
            let (slid, dlid) = whole::lids(index);
            let last = 6 + round % 2;
            text.push_str(&format!("0x{slid:04x} 0x{dlid:04x} 1,2,3,4,5,{last}\n"));
        }
        std::fs::write(&file, text).map_err(|e| BenchError::io("route file", e))?;
        let mut command = Command::new(&program);
        command.args(["--name", plane.paths().name(), "routes", "load"]).arg(&file);
        command.args(["--replace", "--sync"]).envs(plane.environment()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let done = on_cores(&[cores.client], || command.output()).map_err(|e| BenchError::io("madctl", e))?;
        let took = start.elapsed();
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(BenchError::program("madctl routes load", said));
        }
        rounds.push(Summary::of("load_s", took.as_secs_f64()));
    }
    let record = Record::from_rounds("table-control", "routes load of 65,536 with --sync", "s", &rounds);
    let seconds = record.median("load_s");
    Ok(record
        .held_to(Bar::at_most("routes load of 65,536, s", seconds, 0.5))
        .noting("madctl and madctld share one core"))
}
