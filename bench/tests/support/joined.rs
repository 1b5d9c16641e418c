//! A fabric cut into parts, a plane for each, joined by links: over whatever, the same is asked of it.

#![allow(clippy::print_stdout, reason = "how long a plane's death and return took is worth knowing")]

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Instant;

use madplane_topology::{NodeKind, ParseOptions, Topology, parse};
use rustix::process::Signal;

use super::{Bed, Graph, OpenSm, Plane, builtin, eventually, kill, run};

pub const FABRIC: &str = "fat-tree,radix=4,levels=2";

/// Several planes on few cores are not to poll against each other.
const WAITING: [&str; 2] = ["--mode", "interrupt"];

/// How planes reach each other; all lists in the order of the parts.
#[derive(Debug, Default)]
pub struct Over {
    /// Addresses; empty for all on loopback.
    pub hosts: Vec<String>,
    /// Words before the command that starts a plane.
    pub inside: Vec<Vec<String>>,
    /// Devices of links over verbs; empty for QUIC, which takes credentials.
    pub via: Vec<String>,
}

/// Planes of the parts of one fabric.
pub struct Joined {
    pub whole: Topology,
    parts: Vec<PathBuf>,
    pub planes: Vec<Plane>,
    inside: Vec<Vec<String>>,
    // goes last
    pub files: Bed,
}

/// Consecutive UDP ports that nobody uses.
pub fn free_ports(count: u16) -> u16 {
    let mut base = 20_000 + u16::try_from(std::process::id() % 150).unwrap() * 200;
    loop {
        if (base..base + count).all(|port| UdpSocket::bind(("0.0.0.0", port)).is_ok()) {
            return base;
        }
        base = if base > 50_000 { 20_000 } else { base + count };
    }
}

impl Joined {
    /// Cuts the fabric, starts a plane for each part, and adds the links.
    pub fn up(parts: usize, over: Over) -> Self {
        Self::up_over(parts, over, |_| {})
    }

    /// The same, with a hand in the files of links.
    pub fn up_over(parts: usize, over: Over, change: impl Fn(&Path)) -> Self {
        let files = Bed::new();
        let whole = builtin(FABRIC);
        let base = free_ports(64).to_string();
        let out = files.path("parts");
        let hosts = if over.hosts.is_empty() { "127.0.0.1".to_owned() } else { over.hosts.join(",") };
        let (fabric, count) = (format!("builtin:{FABRIC}"), parts.to_string());
        let out_text = out.to_str().unwrap();
        let mut split = vec![
            "fabric",
            "split",
            &fabric,
            &count,
            "--out",
            out_text,
            "--base-port",
            &base,
            "--hosts",
            &hosts,
        ];
        split.extend(over.via.iter().flat_map(|via| ["--via", via]));
        let done = |arguments: &[&str]| {
            let ran = files.madctl(arguments);
            assert_eq!(ran.code, Some(0), "{ran}");
        };
        done(&split);
        let names: Vec<String> = (0..parts).map(|part| format!("part-{part}")).collect();
        let credentials = files.path("credentials");
        if over.via.is_empty() {
            let mut make = vec!["links", "credentials", credentials.to_str().unwrap()];
            make.extend(names.iter().map(String::as_str));
            done(&make);
        }
        let planes = names.iter().map(|_| Plane { bed: Bed::new() }).collect();
        let parts = names.iter().map(|name| out.join(format!("{name}.topo"))).collect();
        let this = Self { whole, parts, planes, inside: over.inside, files };
        change(&out);
        for (part, name) in names.iter().enumerate() {
            this.start(part);
            let (links, own) = (out.join(format!("{name}.links")), credentials.join(name));
            let mut add = vec!["links", "add", "--file", links.to_str().unwrap()];
            if over.via.is_empty() {
                add.extend(["--credentials", own.to_str().unwrap()]);
            }
            this.planes[part].done(&add);
        }
        this.wait_for_links();
        this
    }

    pub fn start(&self, part: usize) {
        let plane = &self.planes[part];
        let fabric = self.parts[part].to_str().unwrap();
        let Some(inside) = self.inside.get(part) else { return plane.again(fabric, &WAITING) };
        let mut command = plane.program(&inside[0]);
        command.args(&inside[1..]).args(["madctl", "up", "--fabric", fabric]).args(WAITING);
        let ran = run(&mut command);
        assert_eq!(ran.code, Some(0), "{ran}");
    }

    pub fn wait_for_links(&self) {
        for plane in &self.planes {
            eventually("all links are up", || {
                let links = links_of(plane);
                !links.is_empty() && links.iter().all(|link| link["state"] == "up")
            });
        }
    }

    /// Description of the first host of a part.
    pub fn host(&self, part: usize) -> String {
        let topology = self.part(part);
        topology.nodes.iter().find(|node| node.kind == NodeKind::Ca).unwrap().description.clone()
    }

    fn part(&self, part: usize) -> Topology {
        parse(std::fs::read(&self.parts[part]).unwrap(), &ParseOptions::default()).unwrap().topology
    }

    /// Waits until the plane of a part sees this.
    pub fn wait_until_seen(&self, part: usize, wanted: &Graph, what: &str) {
        let mut last = Graph::default();
        eventually(what, || {
            let ran = self.planes[part].run(&["ibnetdiscover"]);
            // while links fall, what the tool prints may be half of something
            let parsed = parse(ran.out.as_bytes(), &ParseOptions::default());
            last = parsed.map(|parsed| Graph::of(&parsed.topology)).unwrap_or_default();
            last == *wanted
        });
        wanted.assert_same(&last, what);
    }

    /// A program of the last part answers one of the first.
    pub fn wait_for_ping(&self, what: &str) {
        self.wait_for_ping_between(0, self.planes.len() - 1, what);
    }

    /// A program of one part answers one of another.
    pub fn wait_for_ping_between(&self, here: usize, there: usize, what: &str) {
        let far = self.host(there);
        let _server = self.planes[there].spawn_at(&far, &["ibping", "-S"]);
        let near = &self.planes[here];
        eventually(what, || {
            let lid = near.run(&["saquery", "-L", &far]).out.trim().to_owned();
            !lid.is_empty() && near.run(&["ibping", "-c", "3", &lid]).out.contains("3 received")
        });
    }

    /// Sum of a field over all links of all planes.
    pub fn sum(&self, field: &str) -> u64 {
        self.planes.iter().flat_map(links_of).map(|link| link[field].as_u64().unwrap()).sum()
    }

    /// One subnet to stock tools, whichever part they look from; the subnet manager that runs it from the first.
    pub fn assert_one_subnet(&self) -> OpenSm {
        let opensm = OpenSm::up(&self.planes[0], "", &[], &[]);
        opensm.assert_no_errors();
        let whole = Graph::of(&self.whole);
        for part in 0..self.planes.len() {
            self.wait_until_seen(part, &whole, &format!("as seen from part {part}"));
        }
        self.wait_for_ping("ibping from end to end");
        self.wait_for_ping_between(self.planes.len() - 1, 0, "ibping back");
        opensm
    }

    /// The subnet goes on without the last part once that is killed, and is whole again once it is started.
    pub fn assert_survives_a_killed_part(&self, opensm: &mut OpenSm) {
        let last = self.planes.len() - 1;
        let whole = Graph::of(&self.whole);
        let rest = whole.without(&Graph::of(&self.part(last))).reachable_from(default_guid(&self.planes[0]));
        let (sweeps, traps) = (opensm.count("SUBNET UP"), opensm.count(LINK_TRAP));
        let killed = Instant::now();
        kill(self.planes[last].plane_pid().unwrap(), Signal::KILL);
        opensm.wait_for(LINK_TRAP, traps + 1);
        println!("the subnet manager has seen a link go {:?} after the kill", killed.elapsed());
        opensm.wait_for("SUBNET UP", sweeps + 1);
        println!("OpenSM has rerouted {:?} after the kill", killed.elapsed());
        self.wait_until_seen(0, &rest, "only the parts that live are there");
        let sweeps = opensm.count("SUBNET UP");
        let started = Instant::now();
        self.start(last);
        self.wait_for_links();
        println!("all links are up {:?} after the return began", started.elapsed());
        opensm.wait_for("SUBNET UP", sweeps + 1);
        self.wait_until_seen(0, &whole, "the fabric is whole again");
        println!("the fabric is whole {:?} after the return began", started.elapsed());
        self.wait_for_ping("ibping after the return");
    }
}

/// What OpenSM writes when a switch tells it that a link changed its state.
const LINK_TRAP: &str = "num:128";

/// What `madctl links show` says of a plane's links.
pub fn links_of(plane: &Plane) -> Vec<serde_json::Value> {
    plane.json(&["links", "show"])["links"].as_array().unwrap().clone()
}

fn default_guid(plane: &Plane) -> u64 {
    let stat = plane.ok(&["ibstat"]);
    let guid = stat.lines().find_map(|line| line.trim().strip_prefix("Node GUID: 0x")).unwrap();
    u64::from_str_radix(guid, 16).unwrap()
}
