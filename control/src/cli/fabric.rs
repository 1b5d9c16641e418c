//! `madctl fabric`: generate, check and show fabrics.
//!
//! Reads and writes the files itself; what is in them is the topology crate's business.

use std::path::{Path, PathBuf};

use madplane_shm::paths::PlanePaths;
use madplane_topology::{NodeKind, ParseOptions, Report, Topology};
use serde::Serialize;

use super::output::{self, Format, Text, count};
use super::status::{Head, look};
use super::{Failure, Outcome};
use crate::config::BUILTIN_PREFIX;

#[derive(Debug, Serialize)]
struct Rate {
    rate: String,
    links: usize,
}

#[derive(Debug, Serialize)]
struct Summary {
    switches: usize,
    adapters: usize,
    routers: usize,
    links: usize,
    loopbacks: usize,
    ports: usize,
    unconnected_ports: usize,
    parts: usize,
    shared_descriptions: usize,
    rates: Vec<Rate>,
    #[serde(skip)]
    text: String,
}

impl From<Report> for Summary {
    fn from(report: Report) -> Self {
        let rates = report.rates.iter();
        Self {
            switches: report.switches,
            adapters: report.adapters,
            routers: report.routers,
            links: report.links,
            loopbacks: report.loopbacks,
            ports: report.ports,
            unconnected_ports: report.unconnected_ports,
            parts: report.islands.len(),
            shared_descriptions: report.shared_descriptions,
            rates: rates.map(|r| Rate { rate: format!("{}{}", r.width, r.speed), links: r.links }).collect(),
            text: report.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Generated {
    file: Option<PathBuf>,
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    netlist: Option<String>,
}

impl Text for Generated {
    fn text(&self) -> String {
        match (&self.file, &self.netlist) {
            (Some(file), _) => format!("{} written\n{}", file.display(), self.summary.text),
            (None, netlist) => netlist.clone().unwrap_or_default(),
        }
    }
}

pub(crate) fn generate(format: Format, kind: &str, parameters: &[String], file: Option<&Path>) -> Outcome {
    let mut spec = kind.to_owned();
    for part in parameters {
        spec.push(',');
        spec.push_str(part);
    }
    let topology = madplane_topology::from_spec(&spec).map_err(|error| Failure::Usage(error.to_string()))?;
    let netlist = madplane_topology::to_ibnetdiscover(&topology);
    let mut generated = Generated {
        file: file.map(Path::to_owned),
        summary: madplane_topology::check(&topology).into(),
        netlist: None,
    };
    match file {
        Some(path) => std::fs::write(path, netlist)
            .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))?,
        None => generated.netlist = Some(netlist),
    }
    Ok(output::print(format, &generated)?)
}

#[derive(Debug, Serialize)]
struct Remark {
    line: u32,
    column: u32,
    message: String,
}

#[derive(Debug, Serialize)]
struct Checked {
    file: PathBuf,
    #[serde(flatten)]
    summary: Summary,
    warnings: Vec<Remark>,
}

impl Text for Checked {
    fn text(&self) -> String {
        let mut text = String::new();
        for Remark { line, column, message } in &self.warnings {
            text.push_str(&format!("{}:{line}:{column}: warning: {message}\n", self.file.display()));
        }
        text.push_str(&self.summary.text);
        text.push_str(&format!(
            "{}\n",
            count(u64::try_from(self.warnings.len()).unwrap_or(u64::MAX), "warning")
        ));
        text
    }
}

pub(crate) fn check(format: Format, file: &Path, strict: bool) -> Outcome {
    let (topology, warnings) = read(file, strict)?;
    let checked =
        Checked { file: file.to_owned(), summary: madplane_topology::check(&topology).into(), warnings };
    Ok(output::print(format, &checked)?)
}

fn read(file: &Path, strict: bool) -> Result<(Topology, Vec<Remark>), Failure> {
    let shown = file.display();
    let text =
        std::fs::read(file).map_err(|error| Failure::Failed(format!("cannot read {shown}: {error}")))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let loader = |name: &str| std::fs::read(folder.join(name)).map_err(|error| error.to_string());
    let options = ParseOptions { strict, loader: Some(&loader), ..ParseOptions::default() };
    let parsed = madplane_topology::parse(&text, &options).map_err(|error| {
        Failure::Failed(format!("{shown}:{}:{}: {}", error.line, error.column, error.message))
    })?;
    let remarks = parsed.warnings.into_iter();
    let remarks = remarks.map(|w| Remark { line: w.line, column: w.column, message: w.message }).collect();
    Ok((parsed.topology, remarks))
}

#[derive(Debug, Serialize)]
struct ShownNode {
    guid: String,
    kind: &'static str,
    ports: u8,
    cabled: usize,
    description: String,
}

#[derive(Debug, Serialize)]
struct Shown {
    plane: Head,
    fabric: String,
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<ShownNode>>,
}

impl Text for Shown {
    fn text(&self) -> String {
        let text = format!("{}fabric: {}\n{}", self.plane.text(), self.fabric, self.summary.text);
        let Some(nodes) = &self.nodes else { return text };
        let mut rows = vec![["guid", "kind", "ports", "cabled", "description"].map(str::to_owned).to_vec()];
        for node in nodes {
            rows.push(vec![
                node.guid.clone(),
                node.kind.to_owned(),
                node.ports.to_string(),
                node.cabled.to_string(),
                node.description.clone(),
            ]);
        }
        text + &output::table(&rows)
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format, nodes: bool) -> Outcome {
    let (status, plane) = look(paths)?;
    if !plane.running {
        return Err(super::plane::not_running(paths));
    }
    let fabric = status.plane().fabric.load();
    let topology = if fabric.starts_with(BUILTIN_PREFIX) {
        madplane_topology::from_spec(&fabric).map_err(Failure::failed)?
    } else {
        read(Path::new(&fabric), false)?.0
    };
    let loaded = status.plane().nodes.load(madplane_shm::sync::Ordering::Relaxed);
    if u64::try_from(topology.nodes.len()) != Ok(loaded) {
        let found = topology.nodes.len();
        let text =
            format!("{fabric} has changed since it was loaded: it has {found} nodes now, the plane {loaded}");
        return Err(Failure::Failed(text));
    }
    let summary = madplane_topology::check(&topology).into();
    let nodes = nodes.then(|| topology.nodes.iter().map(shown_node).collect());
    Ok(output::print(format, &Shown { plane, fabric, summary, nodes })?)
}

fn shown_node(node: &madplane_topology::Node) -> ShownNode {
    ShownNode {
        guid: output::guid(node.guid),
        kind: match node.kind {
            NodeKind::Ca => "adapter",
            NodeKind::Switch => "switch",
            NodeKind::Router => "router",
        },
        ports: node.num_ports(),
        cabled: node.ports.iter().filter(|port| port.peer.is_some()).count(),
        description: node.description.clone(),
    }
}
