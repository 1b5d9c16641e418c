//! `madctl status`, and the view of the status segment that other nouns share.
//!
//! The segment is mapped read-only and outlives its writer, so a dead plane can be looked at; whether it lives is told
//! by its lock, never by the file.

use std::time::Duration;

use madplane_shm::paths::PlanePaths;
use madplane_shm::process;
use madplane_shm::status::{MAX_WORKERS, Status, StatusError, plane_state};
use madplane_shm::sync::Ordering::Relaxed;
use serde::Serialize;

use super::output::{self, Format, Text, count, span, utc};
use super::{Failure, Outcome};
use crate::admin::ControlStatus;
use crate::{admin_client, spawn};

/// A plane as its status segment and its lock show it; first line of every tool that looks in.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) running: bool,
    pub(crate) state: &'static str,
    pub(crate) heartbeat_age_ns: u64,
}

impl Text for Head {
    fn text(&self) -> String {
        let Self { name, version, pid, state, .. } = self;
        let age = span(self.heartbeat_age_ns);
        format!("plane {name}: madplaned {version}, pid {pid}, heartbeat {age} ago, {state}\n")
    }
}

/// Opens the status segment of a plane and judges whether its writer lives.
pub(crate) fn look(paths: &PlanePaths) -> Result<(Status, Head), Failure> {
    let running = spawn::find_plane(paths)?;
    let status = Status::open(&paths.status_segment()).map_err(|error| match error {
        StatusError::Io { source, .. }
            if source.kind() == std::io::ErrorKind::NotFound && running.is_none() =>
        {
            super::plane::not_running(paths)
        }
        StatusError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::Failed(format!("plane {} is still starting; try again", paths.name()))
        }
        other => Failure::failed(other),
    })?;
    let head = head(paths.name(), &status, running, process::monotonic_ns());
    Ok((status, head))
}

fn head(name: &str, status: &Status, running: Option<u32>, monotonic_ns: u64) -> Head {
    let plane = status.plane();
    let pid = status.writer().pid;
    let is_writer = running.is_some_and(|holder| holder == pid);
    let state = match (plane.state.load(Relaxed), is_writer, running) {
        (_, false, Some(_)) => "not running any more (its successor is starting)",
        (plane_state::STARTING, true, _) => "starting",
        (plane_state::READY, true, _) => "ready",
        (plane_state::STOPPED, true, _) => "stopping",
        (_, true, _) => "in an unknown state",
        (plane_state::STOPPED, false, None) => "not running (stopped in order)",
        (_, false, None) => "not running (died)",
    };
    let heartbeat_ns = plane.heartbeat_ns.load(Relaxed);
    Head {
        name: name.to_owned(),
        version: plane.program.load(),
        pid,
        running: is_writer,
        state,
        heartbeat_age_ns: monotonic_ns.saturating_sub(heartbeat_ns),
    }
}

/// Number of workers that the segment speaks of, at most what it has room for.
pub(crate) fn worker_count(status: &Status) -> usize {
    usize::try_from(status.plane().workers.load(Relaxed)).unwrap_or(MAX_WORKERS).min(MAX_WORKERS)
}

/// Workers show themselves several times a second; one that does not is called silent.
const SILENT_AFTER_NS: u64 = 2_000_000_000;

#[derive(Debug, Serialize)]
struct Worker {
    worker: usize,
    cpu: Option<u32>,
    thread: u32,
    heartbeat_age_ns: u64,
    /// The plane runs but this worker has not shown itself for [`SILENT_AFTER_NS`]: it hangs or is dead.
    silent: bool,
    busy_share: f64,
    polls_full: u64,
    polls_empty: u64,
    longest_cycle_ns: u64,
    stalls: u64,
    sessions: u64,
    nodes: u64,
}

#[derive(Debug, Serialize)]
struct Control {
    running: bool,
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<ControlStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

#[derive(Debug, Serialize)]
struct PlaneStatus {
    #[serde(flatten)]
    head: Head,
    started: String,
    uptime_ns: Option<u64>,
    startup_ns: u64,
    fabric: String,
    nodes: u64,
    switches: u64,
    links: u64,
    mode: &'static str,
    default_node_guid: String,
    default_port: u32,
    sessions: u64,
    session_slots: u32,
    huge_pages: bool,
    workers: Vec<Worker>,
    control: Control,
}

impl Text for PlaneStatus {
    fn text(&self) -> String {
        let mut text = self.head.text();
        let mut line = |name: &str, rest: String| text.push_str(&format!("{name:<9} {rest}\n"));
        let up = self.uptime_ns.map_or_else(String::new, |ns| format!(", up {}", span(ns)));
        line("started", format!("{}{up}, ready after {}", self.started, span(self.startup_ns)));
        let counts = [count(self.nodes, "node"), count(self.switches, "switch"), count(self.links, "link")];
        line("fabric", format!("{}: {}", self.fabric, counts.join(", ")));
        let pages = if self.huge_pages { "huge pages" } else { "normal pages" };
        line(
            "sessions",
            format!(
                "{} open; {} slots each, {pages}; default port {} of node {}",
                self.sessions, self.session_slots, self.default_port, self.default_node_guid
            ),
        );
        line("mode", self.mode.to_owned());
        let control = match (&self.control.daemon, &self.control.trouble, self.control.pid) {
            (Some(daemon), _, _) if daemon.connected => {
                format!(
                    "pid {}, connected, {} commands, {} events",
                    daemon.pid, daemon.commands, daemon.events
                )
            }
            (Some(daemon), _, _) => format!("pid {}, not connected: {}", daemon.pid, daemon.link),
            (None, Some(trouble), Some(pid)) => format!("pid {pid}, {trouble}"),
            (None, _, _) if self.head.running => "not running; start it again with: madctl up".to_owned(),
            _ => "not running".to_owned(),
        };
        line("madctld", control);
        let mut rows = vec![
            ["worker", "cpu", "busy", "sessions", "nodes", "heartbeat", "longest cycle", "stalls"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for worker in &self.workers {
            rows.push(vec![
                worker.worker.to_string(),
                worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
                format!("{:.1} %", worker.busy_share * 100.0),
                worker.sessions.to_string(),
                worker.nodes.to_string(),
                span(worker.heartbeat_age_ns) + if worker.silent { " (silent)" } else { "" },
                span(worker.longest_cycle_ns),
                worker.stalls.to_string(),
            ]);
        }
        text + &output::table(&rows)
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    let (status, head) = look(paths)?;
    let control = control(paths)?;
    let shown = collect(&status, head, control, process::monotonic_ns(), process::unix_ns());
    Ok(output::print(format, &shown)?)
}

fn control(paths: &PlanePaths) -> Result<Control, Failure> {
    let pid = spawn::find_control(paths)?;
    let mut control = Control { running: pid.is_some(), pid, daemon: None, trouble: None };
    if control.running {
        match admin_client::ask(paths, "control.status", &(), Duration::from_secs(2)) {
            Ok(daemon) => control.daemon = Some(daemon),
            Err(error) => control.trouble = Some(error.to_string()),
        }
    }
    Ok(control)
}

fn collect(status: &Status, head: Head, control: Control, monotonic_ns: u64, unix_ns: u64) -> PlaneStatus {
    let plane = status.plane();
    let started_ns = plane.started_unix_ns.load(Relaxed);
    let workers =
        (0..worker_count(status)).map(|index| worker(status, index, monotonic_ns, head.running)).collect();
    PlaneStatus {
        started: utc(started_ns),
        uptime_ns: head.running.then(|| unix_ns.saturating_sub(started_ns)),
        head,
        startup_ns: plane.startup_ns.load(Relaxed),
        fabric: plane.fabric.load(),
        nodes: plane.nodes.load(Relaxed),
        switches: plane.switches.load(Relaxed),
        links: plane.links.load(Relaxed),
        mode: if plane.mode.load(Relaxed) == 0 { "poll" } else { "unknown" },
        default_node_guid: output::guid(plane.default_node_guid.load(Relaxed)),
        default_port: plane.default_port.load(Relaxed),
        sessions: plane.sessions.load(Relaxed),
        session_slots: plane.session_slots.load(Relaxed),
        huge_pages: plane.huge_pages.load(Relaxed) == 1,
        workers,
        control,
    }
}

fn worker(status: &Status, index: usize, monotonic_ns: u64, running: bool) -> Worker {
    let block = status.worker(index);
    let heartbeat_age_ns = monotonic_ns.saturating_sub(block.heartbeat_ns.load(Relaxed));
    Worker {
        worker: index,
        cpu: Some(block.cpu.load(Relaxed)).filter(|cpu| *cpu != u32::MAX),
        thread: block.thread.load(Relaxed),
        heartbeat_age_ns,
        silent: running && heartbeat_age_ns > SILENT_AFTER_NS,
        busy_share: share(block.busy_ns.load(Relaxed), block.total_ns.load(Relaxed)),
        polls_full: block.polls_full.load(Relaxed),
        polls_empty: block.polls_empty.load(Relaxed),
        longest_cycle_ns: block.longest_cycle_ns.load(Relaxed),
        stalls: block.stalls.load(Relaxed),
        sessions: block.sessions.load(Relaxed),
        nodes: block.nodes.load(Relaxed),
    }
}

/// Part of the whole in ten thousandths, from 0 to 1.
fn share(part: u64, whole: u64) -> f64 {
    let ratio = u128::from(part) * 10_000 / u128::from(whole.max(1));
    f64::from(u16::try_from(ratio).unwrap_or(10_000).min(10_000)) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_shm::header::Incarnation;

    const SECOND: u64 = 1_000_000_000;

    fn sample() -> (tempfile::TempDir, Status) {
        let directory = tempfile::tempdir().unwrap();
        let writer = Incarnation { pid: 4711, ..Incarnation::default() };
        let status = Status::create(&directory.path().join("status"), writer).unwrap();
        let plane = status.plane();
        plane.state.store(plane_state::READY, Relaxed);
        plane.workers.store(2, Relaxed);
        plane.heartbeat_ns.store(100 * SECOND, Relaxed);
        plane.started_unix_ns.store(1_767_225_599 * SECOND, Relaxed);
        plane.startup_ns.store(35_000_000, Relaxed);
        plane.nodes.store(702, Relaxed);
        plane.switches.store(54, Relaxed);
        plane.links.store(1296, Relaxed);
        plane.sessions.store(1, Relaxed);
        plane.default_node_guid.store(0x10, Relaxed);
        plane.default_port.store(1, Relaxed);
        plane.session_slots.store(1024, Relaxed);
        plane.fabric.store("builtin:fat-tree,radix=36,levels=2");
        plane.program.store("0.1.0");
        for index in 0..2 {
            let worker = status.worker(index);
            worker.heartbeat_ns.store(100 * SECOND, Relaxed);
            worker.cpu.store(if index == 0 { 1 } else { u32::MAX }, Relaxed);
            worker.busy_ns.store(SECOND, Relaxed);
            worker.total_ns.store(8 * SECOND, Relaxed);
            worker.longest_cycle_ns.store(12_000, Relaxed);
            worker.nodes.store(351, Relaxed);
        }
        (directory, status)
    }

    fn shown(status: &Status, running: Option<u32>, control: Control, format: Format) -> String {
        let now = 100 * SECOND + 4_000_000;
        let head = head("ci", status, running, now);
        output::render(format, &collect(status, head, control, now, 1_767_225_699 * SECOND))
    }

    fn connected() -> Control {
        let daemon = ControlStatus {
            version: "0.1.0".into(),
            pid: 4712,
            started_unix_ns: 1,
            connected: true,
            link: String::new(),
            clients: 1,
            commands: 3,
            events: 5,
        };
        Control { running: true, pid: Some(4712), daemon: Some(daemon), trouble: None }
    }

    fn absent() -> Control {
        Control { running: false, pid: None, daemon: None, trouble: None }
    }

    #[test]
    fn the_status_of_a_running_plane_is_as_stored() {
        let (_directory, status) = sample();
        let text = shown(&status, Some(4711), connected(), Format::Text);
        assert_eq!(text, include_str!("../../tests/golden/status.txt"));
        let json = shown(&status, Some(4711), connected(), Format::Json);
        assert_eq!(json, include_str!("../../tests/golden/status.json"));
    }

    #[test]
    fn a_dead_plane_says_so_in_its_first_line() {
        let (_directory, status) = sample();
        let first =
            |running| shown(&status, running, absent(), Format::Text).lines().next().unwrap().to_owned();
        assert!(first(None).ends_with("pid 4711, heartbeat 4 ms ago, not running (died)"), "{}", first(None));
        assert!(first(Some(1)).contains("successor is starting"));
        status.plane().state.store(plane_state::STOPPED, Relaxed);
        assert!(first(None).ends_with("not running (stopped in order)"));
    }

    #[test]
    fn a_worker_that_shows_itself_no_more_is_called_silent() {
        let (_directory, status) = sample();
        status.worker(1).heartbeat_ns.store(90 * SECOND, Relaxed);
        let lines = |running| {
            let text = shown(&status, running, absent(), Format::Text);
            text.lines().rev().take(2).map(|line| line.contains("10.0 s (silent)")).collect::<Vec<_>>()
        };
        assert_eq!(lines(Some(4711)), [true, false]);
        assert_eq!(lines(None), [false, false], "in a dead plane all are");
    }

    #[test]
    fn shares_stay_between_nothing_and_all() {
        assert!(share(0, 0) == 0.0 && share(5, 0) == 1.0 && share(u64::MAX, 1) == 1.0 && share(1, 4) == 0.25);
    }
}
