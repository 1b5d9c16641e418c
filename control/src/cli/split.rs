//! `madctl fabric split`: a fabric in parts, and the links that join them again.
//!
//! Writes `part-N.topo`, which a plane loads, and `part-N.links`, which `madctl links add --file` takes. How the cut is found is
//! the topology crate's business.

use std::path::{Path, PathBuf};

use madplane_shm::links::LinkSpec;
use madplane_topology::{CutLink, ParseOptions, PortRef, Split, Topology};
use serde::Serialize;

use super::output::{self, Format, Text, count};
use super::{Failure, Outcome};
use crate::config::BUILTIN_PREFIX;

#[derive(Debug, clap::Args)]
pub(crate) struct SplitArgs {
    /// A fabric file, or builtin:KIND,k=v...
    #[arg(value_name = "FILE|builtin:SPEC")]
    fabric: String,
    /// Number of parts.
    parts: usize,
    /// Where the files go.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Addresses of the hosts, in the order of the parts.
    #[arg(long, value_name = "HOST", value_delimiter = ',', default_value = "127.0.0.1")]
    hosts: Vec<String>,
    /// First UDP port; every link takes one on each of its hosts.
    #[arg(long, value_name = "PORT", default_value_t = 7471)]
    base_port: u16,
    /// Link over queue pairs of these devices, in the order of the parts, or one for all: verbs:DEVICE[,port=N][,gid=N]. Hosts
    /// are GIDs then. Without it links go over QUIC.
    #[arg(long, value_name = "verbs:DEVICE", conflicts_with = "credentials")]
    via: Vec<String>,
    /// Directory with credentials that the links name, the same on every host.
    #[arg(long, value_name = "DIRECTORY")]
    credentials: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct PartFiles {
    fabric: PathBuf,
    links_file: PathBuf,
    nodes: usize,
    links: usize,
    cut_links: usize,
}

#[derive(Debug, Serialize)]
struct Cut {
    parts: Vec<PartFiles>,
    cut_links: usize,
}

impl Text for Cut {
    fn text(&self) -> String {
        let mut out = format!("{} cut\n", count(self.cut_links as u64, "link"));
        for part in &self.parts {
            out.push_str(&format!(
                "{}: {}, {}, {} to other parts in {}\n",
                part.fabric.display(),
                count(part.nodes as u64, "node"),
                count(part.links as u64, "link"),
                part.cut_links,
                part.links_file.display()
            ));
        }
        out
    }
}

pub(crate) fn split(format: Format, args: SplitArgs) -> Outcome {
    let whole = load(&args.fabric)?;
    let split =
        madplane_topology::split(&whole, args.parts).map_err(|error| Failure::Usage(error.to_string()))?;
    if args.hosts.len() != 1 && args.hosts.len() != args.parts {
        return Err(Failure::Usage(format!("{} parts need as many hosts, or one", args.parts)));
    }
    if let Some(other) = args.via.iter().find(|via| !via.starts_with("verbs:")) {
        return Err(Failure::Usage(format!("{other:?} is no verbs:DEVICE")));
    }
    if args.via.len() > 1 && args.via.len() != args.parts {
        return Err(Failure::Usage(format!("{} parts need as many devices, or one", args.parts)));
    }
    let links = link_lists(&args, &split)?;
    std::fs::create_dir_all(&args.out).map_err(|error| cannot(&args.out, &error))?;
    let mut done = Cut { parts: Vec::new(), cut_links: split.cut.len() };
    for (number, (part, list)) in split.parts.iter().zip(links).enumerate() {
        let fabric = args.out.join(format!("part-{number}.topo"));
        let links_file = args.out.join(format!("part-{number}.links"));
        std::fs::write(&fabric, madplane_topology::to_ibnetdiscover(part))
            .map_err(|error| cannot(&fabric, &error))?;
        LinkSpec::store(&links_file, &list).map_err(|error| cannot(&links_file, &error))?;
        let (nodes, links) = (part.nodes.len(), part.link_count());
        done.parts.push(PartFiles { fabric, links_file, nodes, links, cut_links: list.len() });
    }
    Ok(output::print(format, &done)?)
}

fn load(fabric: &str) -> Result<Topology, Failure> {
    if fabric.starts_with(BUILTIN_PREFIX) {
        return madplane_topology::from_spec(fabric).map_err(|error| Failure::Usage(error.to_string()));
    }
    let path = Path::new(fabric);
    let bytes = std::fs::read(path).map_err(|error| cannot(path, &error))?;
    let parsed = madplane_topology::parse(&bytes, &ParseOptions::default());
    Ok(parsed.map_err(|error| Failure::Failed(format!("{fabric}: {error}")))?.topology)
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}

/// The links of each part.
fn link_lists(args: &SplitArgs, split: &Split) -> Result<Vec<Vec<LinkSpec>>, Failure> {
    let mut lists = vec![Vec::new(); split.parts.len()];
    let mut next_port = args.base_port;
    // parts on one host cannot share a port
    let mut take = || {
        let taken = next_port;
        next_port = next_port
            .checked_add(1)
            .ok_or_else(|| Failure::Usage("there are not enough UDP ports".to_owned()))?;
        Ok::<_, Failure>(taken)
    };
    let host = |part: usize| args.hosts.get(part).or(args.hosts.first()).cloned().unwrap_or_default();
    let at = |(part, end): (usize, PortRef)| {
        let guid = split
            .parts
            .get(part)
            .and_then(|part| part.nodes.get(end.node as usize))
            .map_or(0, |node| node.guid);
        format!("{guid:#018x}:{}", end.port)
    };
    let credentials = args.credentials.as_ref().map_or_else(String::new, |path| path.display().to_string());
    let device = |part: usize| args.via.get(part).or(args.via.first()).cloned();
    for (number, CutLink { a, b }) in split.cut.iter().enumerate() {
        let [a_way, b_way] = if let (Some(a_via), Some(b_via)) = (device(a.0), device(b.0)) {
            // between the same two ports there are several links, so each has a name
            let address = |part| format!("{},link=cut-{number}", host(part));
            [(a_via, address(a.0)), (b_via, address(b.0))]
        } else {
            let mut way = |part| {
                let address = format!("{}:{}", host(part), take()?);
                Ok::<_, Failure>((format!("quic:{address}"), address))
            };
            [way(a.0)?, way(b.0)?]
        };
        for (end, (via, _), (_, peer)) in [(a, &a_way, &b_way), (b, &b_way, &a_way)] {
            let (via, peer) = (via.clone(), peer.clone());
            let spec = LinkSpec { at: at(*end), via, peer, credentials: credentials.clone() };
            if let Some(list) = lists.get_mut(end.0) {
                list.push(spec);
            }
        }
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_of_a_cut_link_name_each_other() {
        let whole = madplane_topology::from_spec("fat-tree,radix=4,levels=2").unwrap();
        let split = madplane_topology::split(&whole, 2).unwrap();
        let args = SplitArgs {
            fabric: String::new(),
            parts: 2,
            out: PathBuf::new(),
            hosts: vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()],
            base_port: 7000,
            via: Vec::new(),
            credentials: Some(PathBuf::from("/c")),
        };
        let lists = link_lists(&args, &split).unwrap();
        assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
        for (one, other) in lists[0].iter().zip(&lists[1]) {
            assert_eq!(one.via, format!("quic:{}", other.peer));
            assert_eq!(other.via, format!("quic:{}", one.peer));
            for (part, spec) in [one, other].into_iter().enumerate() {
                let end = madplane_topology::parse_endpoint(&split.parts[part], &spec.at).unwrap();
                assert!(split.parts[part].port(end).unwrap().peer.is_none());
                assert_eq!(LinkSpec::parse(&spec.to_string()).as_ref(), Ok(spec));
            }
        }
        let over = SplitArgs {
            hosts: vec!["fe80::1".to_owned(), "fe80::2".to_owned()],
            via: vec!["verbs:a,gid=0".to_owned(), "verbs:b".to_owned()],
            credentials: None,
            ..args
        };
        let lists = link_lists(&over, &split).unwrap();
        let words = |part: usize, number: usize| {
            let spec: &LinkSpec = &lists[part][number];
            (spec.via.clone(), spec.peer.clone())
        };
        assert_eq!(words(0, 0), ("verbs:a,gid=0".to_owned(), "fe80::2,link=cut-0".to_owned()));
        assert_eq!(words(1, 3), ("verbs:b".to_owned(), "fe80::1,link=cut-3".to_owned()));
        let args = SplitArgs { via: Vec::new(), ..over };
        let few = SplitArgs { base_port: 65_530, ..args };
        assert!(matches!(link_lists(&few, &split), Err(Failure::Usage(_))));
    }
}
