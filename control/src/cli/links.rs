//! `madctl links` and `madctl nodes`: requests that madctld passes on to the plane.

use madctl::{AdminClient, AdminError, Plane};
use madplane_shm::paths::PlanePaths;
use serde::Serialize;

use super::output::{self, Format, Text};
use super::{Failure, Outcome};
use crate::admin::Done;
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
        // the plane's description of the node is news only if it was not named by that
        let known = self.done.text.is_empty() || self.place.starts_with(&self.done.text);
        let note = if known { String::new() } else { format!(" ({})", self.done.text) };
        format!("{}: {}{note}\n", self.place, self.what)
    }
}

pub(crate) fn set(paths: &PlanePaths, format: Format, port: &str, up: bool) -> Outcome {
    if !port.rsplit_once(':').is_some_and(|(node, number)| !node.is_empty() && number.parse::<u8>().is_ok()) {
        return Err(Failure::Usage(format!("{port:?} names no port; write NODE:PORT, such as leaf-1:3")));
    }
    let what = if up { "link is up" } else { "link is down" };
    carry(paths, format, port, what, |admin| admin.links_set(port, up))
}

pub(crate) fn reboot(paths: &PlanePaths, format: Format, node: &str) -> Outcome {
    if node.is_empty() {
        return Err(Failure::Usage("the name of a node is empty".to_owned()));
    }
    carry(paths, format, node, "rebooted", |admin| admin.nodes_reboot(node))
}

fn carry(
    paths: &PlanePaths,
    format: Format,
    place: &str,
    what: &'static str,
    ask: impl FnOnce(&mut AdminClient) -> Result<Done, AdminError>,
) -> Outcome {
    if spawn::find_plane(paths)?.is_none() {
        return Err(super::plane::not_running(paths));
    }
    let done = ask(&mut Plane::at(paths.clone()).admin()?)?;
    Ok(output::print(format, &Carried { what, place: place.to_owned(), done })?)
}
