//! `madctl status`, and the view of the status segment that other nouns share.
//!
//! The segment is mapped read-only and outlives its writer, so a dead plane can be looked at; whether it lives is told
//! by its lock, never by the file.

use madctl::view::{Device, LookError, PlaneStatus};
pub(crate) use madctl::view::{Head, worker_count};
use madctl::{Plane, View};
use madplane_shm::paths::PlanePaths;
use madplane_shm::status::Status;

use super::Outcome;
use super::output::{self, Format, Text, count, guid, span, utc};

impl Text for Head {
    fn text(&self) -> String {
        let Self { name, version, pid, state, .. } = self;
        let age = span(self.heartbeat_age_ns);
        format!("plane {name}: madplaned {version}, pid {pid}, heartbeat {age} ago, {}\n", state.label())
    }
}

/// Opens the status segment of a plane and judges whether its writer lives.
pub(crate) fn look(paths: &PlanePaths) -> Result<(Status, Head), LookError> {
    let mut view = View::new(paths);
    let head = view.head()?;
    Ok((view.segment()?, head))
}

impl Text for PlaneStatus {
    fn text(&self) -> String {
        let mut text = self.head.text();
        let mut line = |name: &str, rest: String| text.push_str(&format!("{name:<9} {rest}\n"));
        let up = self.uptime_ns.map_or_else(String::new, |ns| format!(", up {}", span(ns)));
        line("started", format!("{}{up}, ready after {}", utc(self.started_unix_ns), span(self.startup_ns)));
        let counts = [count(self.nodes, "node"), count(self.switches, "switch"), count(self.links, "link")];
        line("fabric", format!("{}: {}", self.fabric, counts.join(", ")));
        let pages = if self.huge_pages { "huge pages" } else { "normal pages" };
        line(
            "sessions",
            format!(
                "{} open; {} slots each, {pages}; default port {} of node {}",
                self.sessions,
                self.session_slots,
                self.default_port,
                guid(self.default_node_guid)
            ),
        );
        let mib = |bytes: u64| bytes >> 20;
        line(
            "memory",
            format!(
                "in huge pages: {} MiB of the plane, {} MiB of sessions",
                mib(self.own_huge_bytes),
                mib(self.session_huge_bytes)
            ),
        );
        line("mode", self.mode.to_owned());
        for device in &self.devices {
            line("device", device_line(device));
        }
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
            [
                "worker",
                "cpu",
                "busy",
                "full polls",
                "empty",
                "sessions",
                "nodes",
                "heartbeat",
                "longest cycle",
                "stalls",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for worker in &self.workers {
            rows.push(vec![
                worker.worker.to_string(),
                worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
                format!("{:.1} %", worker.busy_share * 100.0),
                worker.polls_full.to_string(),
                worker.polls_empty.to_string(),
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

/// A device in one line.
pub(crate) fn device_line(device: &Device) -> String {
    let Device { name, port, sent, received, timed_out, refused, ups, downs, .. } = device;
    let how = match (device.backend, device.why.as_str()) {
        (Some(backend), "") => format!("{} by {backend}", device.state.label()),
        (Some(backend), why) => format!("{} by {backend} (before that {why})", device.state.label()),
        // the reason begins with the state
        (None, why) if why.starts_with(device.state.label()) => why.to_owned(),
        (None, why) => format!("{} {why}", device.state.label()),
    };
    format!(
        "{name} port {port}: {how}; {sent} sent, {received} received, {timed_out} timed out, {refused} refused, {ups} ups, \
         {downs} downs"
    )
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    Ok(output::print(format, &Plane::at(paths.clone()).status()?)?)
}

/// A plane that is well, for tests.
#[cfg(test)]
pub(crate) fn ready_head() -> Head {
    Head {
        name: "ci".into(),
        version: "0.1.0".into(),
        pid: 4711,
        running: true,
        state: madctl::view::PlaneState::Ready,
        heartbeat_age_ns: 4_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use madctl::protocol::ControlStatus;
    use madctl::view::Control;
    use madplane_shm::header::Incarnation;
    use madplane_shm::status::plane_state;
    use madplane_shm::sync::Ordering::Relaxed;

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
        plane.own_huge_bytes.store(10 << 20, Relaxed);
        plane.session_huge_bytes.store(4 << 20, Relaxed);
        plane.fabric.store("builtin:fat-tree,radix=36,levels=2");
        plane.program.store("0.1.0");
        for index in 0..2 {
            let worker = status.worker(index);
            worker.heartbeat_ns.store(100 * SECOND, Relaxed);
            worker.cpu.store(if index == 0 { 1 } else { u32::MAX }, Relaxed);
            worker.polls_full.store(1_000_000, Relaxed);
            worker.polls_empty.store(20_000_000, Relaxed);
            worker.busy_ns.store(SECOND, Relaxed);
            worker.total_ns.store(8 * SECOND, Relaxed);
            worker.longest_cycle_ns.store(12_000, Relaxed);
            worker.nodes.store(351, Relaxed);
        }
        (directory, status)
    }

    fn shown(status: &Status, running: Option<u32>, control: Control, format: Format) -> String {
        let now = 100 * SECOND + 4_000_000;
        let head = Head::of("ci", status, running, now);
        output::render(format, &PlaneStatus::of(status, head, control, now, 1_767_225_699 * SECOND))
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
}
