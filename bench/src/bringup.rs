//! OpenSM from its start to `SUBNET UP`, over a plane and over ibsim; and how long a plane takes to load a large fabric.
//!
//! OpenSM runs with its defaults, but for a log that is written at once. Its own CPU time up to that line is the least that any fabric below it could reach.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use madplane_shm::sync::Ordering;
use tempfile::TempDir;

use crate::error::BenchError;
use crate::fabrics::{Fabric, HOSTS_648, HOSTS_11664};
use crate::harness::{Spread, Summary};
use crate::ibsim::Ibsim;
use crate::machine::{Cores, on_cores};
use crate::plane::{Plane, PlaneOptions};
use crate::process::Process;
use crate::programs;
use crate::report::{Bar, Record};
use crate::scenario::Options;

/// Longest time to wait for `SUBNET UP`.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs OpenSM until its log says that the subnet is up; `attach` gives it its environment.
fn until_up(cores: &[usize], attach: impl FnOnce(&mut Command)) -> Result<Summary, BenchError> {
    let program = programs::peer("opensm")?;
    let directory = TempDir::new().map_err(|e| BenchError::io("temporary directory", e))?;
    let place = |name: &str| directory.path().join(name);
    let log = place("opensm.log");
    let configuration = place("opensm.conf");
    // otherwise the line waits in a buffer until the next few have come
    std::fs::write(&configuration, "force_log_flush TRUE\n").map_err(|e| BenchError::io("opensm.conf", e))?;
    let mut command = Command::new(program);
    attach(&mut command);
    command
        .arg("-F")
        .arg(&configuration)
        .arg("-f")
        .arg(&log)
        .args(["--pidfile"])
        .arg(place("opensm.pid"))
        .env("OSM_CACHE_DIR", directory.path())
        .env("OSM_TMP_DIR", directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let mut opensm = on_cores(cores, || Process::start("opensm", &mut command))?;
    opensm.wait_for(PATIENCE, Duration::from_millis(2), || says_up(&log).then_some(())).map_err(|error| {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        match error {
            BenchError::Program { program, reason } => BenchError::program(
                program,
                format!("{reason}; log ends with: {}", text.lines().last().unwrap_or("")),
            ),
            other => other,
        }
    })?;
    let wall = start.elapsed();
    let cpu = opensm.cpu_time();
    let mut summary = Summary::of("wall_s", wall.as_secs_f64());
    summary.values.insert("opensm_cpu_s".to_owned(), cpu.as_secs_f64());
    Ok(summary)
}

fn says_up(log: &Path) -> bool {
    std::fs::read_to_string(log).is_ok_and(|text| text.contains("SUBNET UP"))
}

fn hosts(fabric: &Fabric) -> usize {
    fabric.topology.nodes.iter().filter(|node| node.kind == madplane_topology::NodeKind::Ca).count()
}

/// The scenario.
///
/// # Errors
/// [`BenchError::Missing`] without OpenSM, ibsim or our preload library.
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    let cores = Cores::choose()?;
    let preload = programs::ours("libmadplane_umad.so")?;
    programs::peer("opensm")?;
    let spec = options.fabric.as_deref().unwrap_or(if options.quick { HOSTS_648 } else { HOSTS_11664 });
    let fabric = Fabric::from_spec(spec)?;
    let size = hosts(&fabric);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds_or(1) {
        // a fresh plane each time: a subnet that is up already is not brought up
        let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
        ours.push(until_up(&[cores.client], |command| {
            command.env("LD_PRELOAD", &preload).envs(plane.environment()).env("MADPLANE_AT", "");
        })?);
        drop(plane);
        let ibsim = Ibsim::start(&fabric)?;
        let mut summary = until_up(&[cores.client], |command| {
            ibsim.attach(command);
        })?;
        summary.values.insert("ibsim_cpu_s".to_owned(), ibsim.process().cpu_time().as_secs_f64());
        theirs.push(summary);
    }
    let case = |who: &str| format!("{size} hosts, {who}");
    let ours = Record::from_rounds("opensm", &case("plane"), "s", &ours);
    let theirs = Record::from_rounds("opensm", &case("ibsim"), "s", &theirs);
    let over_cpu = Spread::quotient(ours.rounds("wall_s"), ours.rounds("opensm_cpu_s"));
    let ours = ours.with("wall_over_opensm_cpu", over_cpu);
    let wall = Spread::quotient(ours.rounds("wall_s"), theirs.rounds("wall_s"));
    let bar = Bar::at_most("wall time, plane over ibsim", wall.median, 0.6);
    let ratio = Record::from_rounds("opensm", &case("plane over ibsim"), "times", &[]).with("wall_s", wall);
    Ok(vec![ours, theirs, ratio.held_to(bar)])
}

/// The scenario `load`.
///
/// # Errors
/// See [`BenchError`].
pub fn run_load(options: &Options) -> Result<Vec<Record>, BenchError> {
    let cores = Cores::choose()?;
    let spec = options.fabric.as_deref().unwrap_or(if options.quick { HOSTS_648 } else { HOSTS_11664 });
    let fabric = Fabric::from_spec(spec)?;
    let directory = TempDir::new().map_err(|e| BenchError::io("temporary directory", e))?;
    let file = directory.path().join("fabric.topo");
    std::fs::write(&file, fabric.netfile()).map_err(|e| BenchError::io("fabric file", e))?;
    let sources = [("generated", fabric.spec.clone()), ("file", file.display().to_string())];
    let mut rounds: Vec<Vec<Summary>> = vec![Vec::new(); sources.len()];
    for _ in 0..options.rounds_or(5) {
        for ((_, source), rounds) in sources.iter().zip(&mut rounds) {
            let plane = Plane::start(&PlaneOptions {
                fabric: source.clone(),
                cores: Some(cores),
                ..PlaneOptions::default()
            })?;
            let nanoseconds = plane.status()?.plane().startup_ns.load(Ordering::Relaxed);
            let mut summary = Summary::of("startup_s", Duration::from_nanos(nanoseconds).as_secs_f64());
            for (metric, field) in [("rss_mb", "VmRSS"), ("peak_rss_mb", "VmHWM")] {
                summary.values.insert(metric.to_owned(), plane.process().memory(field) as f64 / 1e6);
            }
            rounds.push(summary);
        }
    }
    let size = hosts(&fabric);
    Ok(sources
        .iter()
        .zip(&rounds)
        .map(|((source, _), rounds)| {
            let record = Record::from_rounds("load", &format!("{size} hosts, {source}"), "", rounds);
            let (startup, peak) = (record.median("startup_s"), record.median("peak_rss_mb"));
            record.held_to(Bar::at_most("seconds to ready", startup, 1.0)).held_to(Bar::at_most(
                "peak memory, MB",
                peak,
                400.0,
            ))
        })
        .collect())
}
