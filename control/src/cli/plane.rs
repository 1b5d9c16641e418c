//! `madctl up` and `madctl down`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use madplane_shm::paths::PlanePaths;
use madplane_shm::status::{PlaneBlock, Status, WorkerBlock};
use madplane_shm::sync::Ordering::Relaxed;
use serde::Serialize;

use super::output::{self, Format, Text, count};
use super::{Failure, Outcome, UpArgs};
use crate::config::{RawUpOptions, UpOptions};
use crate::spawn::{self, Stop};

#[derive(Debug, Serialize)]
struct Up {
    name: String,
    plane_pid: u32,
    control_pid: u32,
    control_only: bool,
    fabric: String,
    nodes: u64,
    switches: u64,
    links: u64,
    workers: u32,
    startup_ns: u64,
    warnings: Vec<String>,
}

impl Text for Up {
    fn text(&self) -> String {
        let Self { name, plane_pid, control_pid, .. } = self;
        if self.control_only {
            return format!(
                "madctld of plane {name} is running again, pid {control_pid} (plane: pid {plane_pid})\n"
            );
        }
        let (nodes, switches) = (count(self.nodes, "node"), count(self.switches, "switch"));
        let (links, workers) = (count(self.links, "link"), count(self.workers.into(), "worker"));
        let option =
            if name == madplane_shm::paths::DEFAULT_NAME { String::new() } else { format!("--name {name} ") };
        format!(
            "plane {name} is ready: {nodes} ({switches}), {links}, {workers}, pid {plane_pid}, control pid {control_pid}\n\
             fabric: {}\nattach: madctl run {option}-- ibnetdiscover\n{}",
            self.fabric,
            self.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect::<String>()
        )
    }
}

/// What the plane runs without although it would be better with it.
fn warnings(plane: &PlaneBlock, first: &WorkerBlock, no_huge: bool, overprovisioned: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let shares = first.shares_core.load(Relaxed) == 1 && !overprovisioned;
    if first.cpu.load(Relaxed) == u32::MAX {
        warnings.push(
            "workers have no core of their own and wait for interrupts: expect higher latency".to_owned(),
        );
    } else if shares {
        warnings.push(
            "workers have every core that there is and wait for interrupts: leave one to others".to_owned(),
        );
    }
    if !no_huge && plane.huge_pages.load(Relaxed) == 0 {
        warnings.push(
            "no huge pages are free: rings and buffers are in normal pages (reserve some: vm.nr_hugepages)"
                .to_owned(),
        );
    }
    warnings
}

pub(crate) fn up(paths: &PlanePaths, format: Format, args: UpArgs) -> Outcome {
    let no_huge = args.no_huge;
    let raw = RawUpOptions {
        name: paths.name().to_owned(),
        fabric: args.fabric,
        cores: args.cores,
        workers: args.workers,
        mode: args.mode,
        tune: args.tune,
        file: args.config,
        overprovisioned: args.overprovisioned,
        at: args.at,
        devices: args.device,
        no_huge: args.no_huge,
        huge_dir: args.huge_dir,
        socket_mem: args.socket_mem,
        session_slots: args.session_slots,
        strict: args.strict,
        dr_table_max: args.dr_table_max,
        tenants_max: args.tenants_max,
        log_format: args.log_format,
    };
    let options = UpOptions::try_from(raw).map_err(|error| match error {
        file @ (crate::config::ConfigError::FabricFile { .. } | crate::config::ConfigError::File { .. }) => {
            Failure::failed(file)
        }
        wrong => Failure::Usage(wrong.to_string()),
    })?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    let overprovisioned = options.overprovisioned();
    let started = spawn::start_plane_unless(&options, &interrupted)?;
    let status = Status::open(&paths.status_segment()).map_err(Failure::failed)?;
    let plane = status.plane();
    let up = Up {
        name: paths.name().to_owned(),
        plane_pid: started.plane_pid,
        control_pid: started.control_pid,
        control_only: started.control_only,
        fabric: plane.fabric.load(),
        nodes: plane.nodes.load(Relaxed),
        switches: plane.switches.load(Relaxed),
        links: plane.links.load(Relaxed),
        workers: plane.workers.load(Relaxed),
        startup_ns: plane.startup_ns.load(Relaxed),
        warnings: warnings(plane, status.worker(0), no_huge, overprovisioned),
    };
    Ok(output::print(format, &up)?)
}

#[derive(Debug, Serialize)]
struct Down {
    name: String,
    plane: DaemonEnd,
    control: DaemonEnd,
}

#[derive(Debug, Serialize)]
struct DaemonEnd {
    was_running: bool,
    pid: Option<u32>,
    killed: bool,
}

impl From<Stop> for DaemonEnd {
    fn from(stop: Stop) -> Self {
        let (pid, killed) = match stop {
            Stop::WasNotRunning => (None, false),
            Stop::Stopped { pid } => (Some(pid), false),
            Stop::Killed { pid } => (Some(pid), true),
        };
        Self { was_running: pid.is_some(), pid, killed }
    }
}

impl Text for Down {
    fn text(&self) -> String {
        let part = |daemon: &str, end: &DaemonEnd| match end.pid {
            None => format!("{daemon} was not running"),
            Some(pid) if end.killed => {
                let seconds = spawn::STOP_WITHIN.as_secs();
                format!("{daemon} (pid {pid}) did not end within {seconds} s and was killed")
            }
            Some(pid) => format!("{daemon} (pid {pid}) ended"),
        };
        let parts = [part("madplaned", &self.plane), part("madctld", &self.control)];
        format!("plane {} is down: {}\n", self.name, parts.join(", "))
    }
}

pub(crate) fn down(paths: &PlanePaths, format: Format) -> Outcome {
    let stopped = spawn::stop_plane(paths).map_err(|error| match error {
        spawn::SpawnError::NotRunning(name) => {
            let others = madctl::daemons::running_planes(paths);
            let hint = crate::nearest::hint(&name, others.iter().map(String::as_str));
            Failure::Failed(format!("plane {name} is not running{hint}"))
        }
        other => Failure::failed(other),
    })?;
    let down =
        Down { name: paths.name().to_owned(), plane: stopped.plane.into(), control: stopped.control.into() };
    Ok(output::print(format, &down)?)
}

/// The line for a command that needs a running plane.
pub(crate) fn not_running(paths: &PlanePaths) -> Failure {
    Failure::Failed(madctl::daemons::not_running(paths))
}
