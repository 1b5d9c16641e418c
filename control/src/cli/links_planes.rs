//! `madctl links add|del|show|credentials`: links to other planes.
//!
//! Adding and taking away goes through madctld, which keeps the list; showing looks at the plane's own segment and needs neither
//! daemon; credentials are files that this program writes itself.

use std::path::{Path, PathBuf};

use madctl::{Plane, View};
use madplane_shm::links::LinkSpec;
use madplane_shm::paths::PlanePaths;
use serde::Serialize;

use super::output::{self, Format, Text, guid};
use super::{Failure, Outcome};
use crate::credentials;

#[derive(Debug, Serialize)]
struct Listed {
    links: Vec<String>,
    what: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

impl Text for Listed {
    fn text(&self) -> String {
        let note = if self.note.is_empty() { String::new() } else { format!(" ({})", self.note) };
        self.links.iter().map(|link| format!("{link}: {}{note}\n", self.what)).collect()
    }
}

/// What `links add` is given.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// NODE:PORT, the node by GUID or description; the port has no cable in the fabric.
    #[arg(required_unless_present = "file")]
    port: Option<String>,
    /// Transport and its local address: quic:HOST:PORT, or verbs:DEVICE[,port=N][,gid=N][,pkey=N].
    #[arg(long, value_name = "TRANSPORT:LOCAL", required_unless_present = "file")]
    via: Option<String>,
    /// The other end: [NAME@]HOST:PORT over QUIC; GID[,link=NAME] over verbs, on InfiniBand lid:N[,link=NAME].
    #[arg(long, value_name = "ADDRESS", required_unless_present = "file")]
    peer: Option<String>,
    /// Directory with ca.pem, plane.pem and plane.key (see madctl links credentials).
    #[arg(long, value_name = "DIRECTORY")]
    credentials: Option<PathBuf>,
    /// Add all links of a file, such as madctl fabric split writes.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["port", "via", "peer"])]
    file: Option<PathBuf>,
}

impl AddArgs {
    fn specs(self) -> Result<Vec<LinkSpec>, Failure> {
        let credentials = match self.credentials {
            Some(directory) => directory
                .canonicalize()
                .map_err(|error| Failure::Failed(format!("credentials {}: {error}", directory.display())))?
                .display()
                .to_string(),
            None => String::new(),
        };
        if let Some(file) = self.file {
            let mut list = LinkSpec::load(&file).map_err(Failure::Failed)?;
            if list.is_empty() {
                return Err(Failure::Failed(format!("{} holds no links", file.display())));
            }
            for spec in &mut list {
                if !credentials.is_empty() {
                    spec.credentials.clone_from(&credentials);
                }
            }
            return Ok(list);
        }
        let word = |word: Option<String>| word.unwrap_or_default();
        let spec = LinkSpec { at: word(self.port), via: word(self.via), peer: word(self.peer), credentials };
        // what it looks like is what the plane reads
        LinkSpec::parse(&spec.to_string())
            .map(|spec| vec![spec])
            .map_err(|error| Failure::Usage(error.to_string()))
    }
}

pub(crate) fn add(paths: &PlanePaths, format: Format, args: AddArgs) -> Outcome {
    let specs = args.specs()?;
    let mut admin = Plane::at(paths.clone()).admin()?;
    let mut listed = Listed { links: Vec::new(), what: "link added", note: String::new() };
    for spec in specs {
        listed.note = admin.links_add(&spec.to_string())?.text;
        listed.links.push(spec.at);
    }
    Ok(output::print(format, &listed)?)
}

pub(crate) fn del(paths: &PlanePaths, format: Format, port: &str) -> Outcome {
    let note = Plane::at(paths.clone()).admin()?.links_del(port)?.text;
    Ok(output::print(format, &Listed { links: vec![port.to_owned()], what: "link removed", note })?)
}

impl Text for madctl::view::Links {
    fn text(&self) -> String {
        if self.links.is_empty() {
            return format!("{}no links to other planes\n", self.plane.text());
        }
        let titles = [
            "link",
            "node",
            "port",
            "state",
            "peer",
            "peer port",
            "rtt us",
            "sent",
            "received",
            "lost",
            "repeated",
            "late",
            "refused",
            "ups",
            "downs",
            "transport",
        ];
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        for link in &self.links {
            let peer = if link.peer_guid == 0 { "-".to_owned() } else { guid(link.peer_guid) };
            rows.push(vec![
                link.link.to_string(),
                if link.node.is_empty() { guid(link.node_guid) } else { link.node.clone() },
                link.port.to_string(),
                link.state.label().to_owned(),
                peer,
                link.peer_port.to_string(),
                (link.round_trip_ns / 1_000).to_string(),
                link.sent.to_string(),
                link.received.to_string(),
                link.lost.to_string(),
                link.repeated.to_string(),
                link.late.to_string(),
                link.refused.total().to_string(),
                link.ups.to_string(),
                link.downs.to_string(),
                link.transport.clone(),
            ]);
        }
        self.plane.text() + &output::table(&rows)
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    Ok(output::print(format, &View::new(paths).links()?)?)
}

#[derive(Debug, Serialize)]
struct Made {
    directory: PathBuf,
    planes: Vec<PathBuf>,
    new_authority: bool,
}

impl Text for Made {
    fn text(&self) -> String {
        let authority = if self.new_authority { "authority made" } else { "authority was there" };
        let planes = self.planes.iter().map(|plane| format!("{}: credentials made\n", plane.display()));
        format!("{}: {authority}\n", self.directory.display()) + &planes.collect::<String>()
    }
}

pub(crate) fn make_credentials(format: Format, directory: &Path, planes: &[String]) -> Outcome {
    let made = credentials::make(directory, planes).map_err(Failure::failed)?;
    let planes = planes.iter().map(|plane| directory.join(plane)).collect();
    Ok(output::print(format, &Made { directory: directory.to_owned(), planes, new_authority: made })?)
}
