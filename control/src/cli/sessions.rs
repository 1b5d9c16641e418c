//! `madctl sessions list`.

use madctl::View;
use madctl::view::Sessions;
use madplane_shm::paths::PlanePaths;

use super::Outcome;
use super::output::{self, Format, Text, guid, utc};

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
            let node = if session.node.is_empty() { guid(session.node_guid) } else { session.node.clone() };
            rows.push(vec![
                session.session.to_string(),
                session.pid.to_string(),
                session.program.clone(),
                node,
                session.port.to_string(),
                utc(session.since_unix_ns),
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
    Ok(output::print(format, &View::new(paths).sessions()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::ready_head;
    use madplane_shm::header::Incarnation;
    use madplane_shm::status::Status;
    use madplane_shm::sync::Ordering::Relaxed;

    #[test]
    fn only_open_sessions_are_listed_as_stored() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        let plane = ready_head();
        assert!(Sessions::of(&status, plane.clone()).text().ends_with("no sessions\n"));
        let record = status.session(1023);
        record.pid.store(99, Relaxed);
        record.program.store("opensm");
        record.node.store("host-001");
        record.port.store(1, Relaxed);
        record.received.store(12345, Relaxed);
        record.agents.store(2, Relaxed);
        record.id.store(1024, Relaxed);
        let text = Sessions::of(&status, plane).text();
        assert_eq!(text, include_str!("../../tests/golden/sessions.txt"));
    }
}
