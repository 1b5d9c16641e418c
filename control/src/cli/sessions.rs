//! `madctl sessions`: the programs attached, and the paths they are bound to.

use madctl::fabric::path;
use madctl::route::{check_path, show_ports};
use madctl::view::{Session, Sessions};
use madctl::{OnBroken, PathSpec, Plane, View};
use madplane_shm::paths::PlanePaths;
use madplane_topology::{PortRef, find_node};
use serde::Serialize;

use super::output::{self, Format, Text, guid, utc};
use super::routes_show::tenant_text;
use super::{Failure, Outcome};

impl Text for Sessions {
    fn text(&self) -> String {
        if self.sessions.is_empty() {
            return format!("{}no sessions\n", self.plane.text());
        }
        let titles = [
            "session", "pid", "program", "node", "port", "tenant", "class", "path", "since", "worker",
            "agents", "received", "sent", "dropped",
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
                tenant_text(session.tenant, &session.tenant_name),
                session.class.to_string(),
                path_text(session),
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

/// The bound path; `-` for none.
fn path_text(session: &Session) -> String {
    match (&session.path[..], session.path_on_broken) {
        ([], _) => "-".to_owned(),
        (path, Some(OnBroken::Drop)) => show_ports(path) + " or drop",
        (path, _) => show_ports(path),
    }
}

/// Binds a session to a path for all it sends but directed routes, or to none.
pub(crate) fn bind(
    paths: &PlanePaths,
    format: Format,
    session: u32,
    path: &[String],
    on_broken: OnBroken,
) -> Outcome {
    let plane = Plane::at(paths.clone());
    let ports = match path {
        [none] if none == "none" => Vec::new(),
        words => match PathSpec::parse(words).map_err(Failure::Usage)? {
            PathSpec::Ports(ports) => {
                check_path(&ports).map_err(|error| Failure::Usage(error.to_string()))?
            }
            PathSpec::Via(names) => via(&plane, session, &names)?,
            PathSpec::Shortest { .. } => {
                return Err(Failure::Usage(
                    "a session is bound to PORTS, via NODE[,NODE...] or none".to_owned(),
                ));
            }
        },
    };
    let done = plane.admin()?.sessions_bind(session, &ports, on_broken)?;
    let text = match &ports[..] {
        [] => format!("session {session} is bound to no path"),
        ports => format!("session {session} is bound to ports {}", show_ports(ports)),
    };
    Ok(output::print(format, &Bound { session, path: ports, text, node_guid: done.node_guid })?)
}

/// The way from the session's node over the named ones, ending at the last.
fn via(plane: &Plane, session: u32, names: &[String]) -> Result<Vec<u8>, Failure> {
    let sessions = plane.view().sessions()?;
    let Some(found) = sessions.sessions.iter().find(|of| of.session == session) else {
        return Err(Failure::Failed(format!("there is no session {session}; see madctl sessions list")));
    };
    let fabric = plane.fabric()?;
    let topology = fabric.topology();
    let node = |name: &str| find_node(topology, name).map_err(Failure::failed);
    let mut over = names.iter().map(|name| node(name)).collect::<Result<Vec<u32>, _>>()?;
    let Some(last) = over.pop() else { return Ok(Vec::new()) };
    let port = u8::try_from(found.port).unwrap_or(0);
    let from = PortRef { node: node(&guid(found.node_guid))?, port };
    // a switch is reached at its port 0, an adapter at one of its ports
    let ports = topology.nodes.get(last as usize).map_or(0, |node| node.ports.len());
    let ends = (0..=u8::try_from(ports).unwrap_or(u8::MAX)).map(|port| PortRef { node: last, port });
    let mut why = None;
    for end in ends {
        match path::via(topology, from, end, &over) {
            Ok(path) => return Ok(path),
            Err(error) => why = why.or(Some(error)),
        }
    }
    Err(Failure::Failed(why.map_or_else(|| "the path is empty".to_owned(), |error| error.to_string())))
}

#[derive(Debug, Serialize)]
struct Bound {
    session: u32,
    path: Vec<u8>,
    text: String,
    node_guid: String,
}

impl Text for Bound {
    fn text(&self) -> String {
        format!("{}\n", self.text)
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
    use madplane_shm::table::on_broken;
    use madplane_shm::table::tenant::service_class;

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
        record.tenant.store(3, Relaxed);
        record.tenant_name.store("red");
        record.class.store(service_class::RESERVED.into(), Relaxed);
        record.store_path(&[1, 2, 3], on_broken::DROP);
        record.id.store(1024, Relaxed);
        let text = Sessions::of(&status, plane).text();
        assert_eq!(text, include_str!("../../tests/golden/sessions.txt"));
    }
}
