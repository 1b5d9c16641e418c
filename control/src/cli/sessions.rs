//! `madctl sessions list`.

use madplane_shm::paths::PlanePaths;
use madplane_shm::status::{MAX_SESSIONS, Status};
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use serde::Serialize;

use super::Outcome;
use super::output::{self, Format, Text, utc};
use super::status::{Head, look};

#[derive(Debug, Serialize)]
struct Session {
    session: u32,
    pid: u32,
    uid: u32,
    program: String,
    node: String,
    node_guid: String,
    port: u32,
    since: String,
    worker: u32,
    agents: u32,
    received: u64,
    sent: u64,
    dropped: u64,
}

#[derive(Debug, Serialize)]
struct Sessions {
    plane: Head,
    sessions: Vec<Session>,
}

impl Text for Sessions {
    fn text(&self) -> String {
        if self.sessions.is_empty() {
            return format!("{}no sessions\n", self.plane.text());
        }
        let titles = [
            "session", "pid", "program", "node", "port", "since", "worker", "agents", "received", "sent",
            "dropped",
        ];
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        for session in &self.sessions {
            let node = if session.node.is_empty() { &session.node_guid } else { &session.node };
            rows.push(vec![
                session.session.to_string(),
                session.pid.to_string(),
                session.program.clone(),
                node.clone(),
                session.port.to_string(),
                session.since.clone(),
                session.worker.to_string(),
                session.agents.to_string(),
                session.received.to_string(),
                session.sent.to_string(),
                session.dropped.to_string(),
            ]);
        }
        self.plane.text() + &output::table(&rows)
    }
}

pub(crate) fn list(paths: &PlanePaths, format: Format) -> Outcome {
    let (status, plane) = look(paths)?;
    Ok(output::print(format, &collect(&status, plane))?)
}

fn collect(status: &Status, plane: Head) -> Sessions {
    let session = |index| {
        let record = status.session(index);
        // pairs with the release in the plane's housekeeping: the other fields are stored by then
        let session = record.id.load(Acquire);
        (session != 0).then(|| Session {
            session,
            pid: record.pid.load(Relaxed),
            uid: record.uid.load(Relaxed),
            program: record.program.load(),
            node: record.node.load(),
            node_guid: output::guid(record.node_guid.load(Relaxed)),
            port: record.port.load(Relaxed),
            since: utc(record.since_unix_ns.load(Relaxed)),
            worker: record.worker.load(Relaxed),
            agents: record.agents.load(Relaxed),
            received: record.received.load(Relaxed),
            sent: record.sent.load(Relaxed),
            dropped: record.dropped.load(Relaxed),
        })
    };
    Sessions { plane, sessions: (0..MAX_SESSIONS).filter_map(session).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_shm::header::Incarnation;

    #[test]
    fn only_open_sessions_are_listed_as_stored() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        let plane = Head {
            name: "ci".into(),
            version: "0.1.0".into(),
            pid: 4711,
            running: true,
            state: "ready",
            heartbeat_age_ns: 4_000_000,
        };
        assert!(collect(&status, plane.clone()).text().ends_with("no sessions\n"));
        let record = status.session(1023);
        record.pid.store(99, Relaxed);
        record.program.store("opensm");
        record.node.store("host-001");
        record.port.store(1, Relaxed);
        record.received.store(12345, Relaxed);
        record.agents.store(2, Relaxed);
        record.id.store(1024, Relaxed);
        let text = collect(&status, plane).text();
        assert_eq!(text, include_str!("../../tests/golden/sessions.txt"));
    }
}
