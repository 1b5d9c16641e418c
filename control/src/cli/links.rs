//! `madctl links` and `madctl nodes`: requests that madctld passes on to the plane.

use std::time::Duration;

use madplane_shm::paths::PlanePaths;
use serde::Serialize;
use serde_json::json;

use super::output::{self, Format, Text};
use super::{Failure, Outcome};
use crate::admin::Done;
use crate::admin_client;
use crate::reactor::COMMAND_WITHIN;
use crate::spawn;

#[derive(Debug, Serialize)]
struct Carried {
    what: &'static str,
    place: String,
    #[serde(flatten)]
    done: Done,
}

impl Text for Carried {
    fn text(&self) -> String {
        // the plane's name for it, where that says more than what was typed
        let known = self.place.starts_with(&self.done.text);
        let note = if known { String::new() } else { format!(" ({})", self.done.text) };
        format!("{}: {}{note}\n", self.place, self.what)
    }
}

pub(crate) fn set(paths: &PlanePaths, format: Format, port: &str, up: bool) -> Outcome {
    if !port.rsplit_once(':').is_some_and(|(node, number)| !node.is_empty() && number.parse::<u8>().is_ok()) {
        return Err(Failure::Usage(format!("{port:?} names no port; write NODE:PORT, such as leaf-1:3")));
    }
    let (cmd, what) = if up { ("links.up", "link is up") } else { ("links.down", "link is down") };
    carry(paths, format, cmd, "port", port, what)
}

pub(crate) fn reboot(paths: &PlanePaths, format: Format, node: &str) -> Outcome {
    if node.is_empty() {
        return Err(Failure::Usage("the name of a node is empty".to_owned()));
    }
    carry(paths, format, "nodes.reboot", "node", node, "rebooted")
}

fn carry(
    paths: &PlanePaths,
    format: Format,
    cmd: &str,
    argument: &str,
    place: &str,
    what: &'static str,
) -> Outcome {
    if spawn::find_plane(paths)?.is_none() {
        return Err(super::plane::not_running(paths));
    }
    // madctld itself gives up a moment earlier and says so
    let within = COMMAND_WITHIN + Duration::from_secs(2);
    let done: Done = admin_client::ask(paths, cmd, &json!({ argument: place }), within)?;
    Ok(output::print(format, &Carried { what, place: place.to_owned(), done })?)
}
