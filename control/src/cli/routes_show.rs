//! `madctl routes show`, `trace` and `check`: what is in the table segment, held against the fabric.
//!
//! Reads the segments only; both daemons may be dead.

use std::collections::BTreeSet;
use std::time::Duration;

use madplane_shm::counters::Counter;
use madplane_shm::paths::PlanePaths;
use madplane_shm::process;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering::Relaxed;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::{RouteEntry, TableError};
use madplane_topology::PortRef;
use serde::Serialize;

use super::output::{self, Format, Text, count, span};
use super::status::{Head, look, worker_count};
use super::{Failure, Outcome};
use crate::admin_routes::RoutesStats;
use crate::fabric_path::{Walk, describe};
use crate::fabric_view::FabricView;
use crate::routes::{Key, OnBroken, Placed, Route, show_key};
use crate::{admin_client, publish, spawn};

/// A table as its segment shows it.
struct Table {
    reader: TableReader,
    generation: u64,
    routes: Vec<(u32, Placed)>,
    refused: u32,
}

fn open(paths: &PlanePaths) -> Result<Table, Failure> {
    let mut reader = TableReader::open(&paths.table_segment()).map_err(|error| match error {
        TableError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::Failed(format!("plane {} has no route table; start it with: madctl up", paths.name()))
        }
        other => Failure::failed(other),
    })?;
    let mut routes = Vec::new();
    let mut refused = 0;
    let mut take = |index: u32, entry: Option<&RouteEntry>| match entry.map(publish::placed) {
        Some(Some(placed)) => routes.push((index, placed)),
        Some(None) => refused += 1,
        None => {}
    };
    let refresh = reader.refresh(&mut take, &mut |_, _| {});
    if !refresh.complete {
        return Err(Failure::Failed("the route table changes too fast to be copied; try again".to_owned()));
    }
    refused += refresh.refused;
    routes.sort_unstable_by_key(|(_, placed)| placed.route.key());
    Ok(Table { generation: refresh.generation, reader, routes, refused })
}

#[derive(Debug, Serialize)]
struct Line {
    slid: String,
    dlid: String,
    path: Vec<u8>,
    p_key: String,
    priority: u8,
    on_broken: OnBroken,
    tenant: u16,
    place: u32,
    id: u64,
    packets: u64,
    bytes: u64,
    last_use_age_ns: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct Workers {
    dr_cache_hit: u64,
    dr_cache_miss: u64,
    retry_count: u64,
    refused: u64,
    applied_generations: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Shown {
    plane: Option<Head>,
    generation: u64,
    capacity: u32,
    writer_pid: u32,
    damaged: u32,
    control: Option<RoutesStats>,
    workers: Option<Workers>,
    routes: Vec<Line>,
}

impl Text for Shown {
    fn text(&self) -> String {
        let mut text = self.plane.as_ref().map(Head::text).unwrap_or_default();
        let mut line = |name: &str, rest: String| text.push_str(&format!("{name:<9} {rest}\n"));
        let damaged = match self.damaged {
            0 => String::new(),
            some => format!(", {some} damaged"),
        };
        let routes = self.routes.len();
        line("table", format!("{routes} of {}{damaged}, generation {}", self.capacity, self.generation));
        match &self.control {
            None => line("madctld", "not running".to_owned()),
            Some(stats) => {
                line(
                    "madctld",
                    format!(
                        "pid {}, version {}, {} not published; publishes after {} ms or {}",
                        self.writer_pid,
                        stats.version,
                        count(u64::try_from(stats.unpublished).unwrap_or(u64::MAX), "change"),
                        stats.sync_interval_ms,
                        count(u64::try_from(stats.sync_threshold).unwrap_or(u64::MAX), "change"),
                    ),
                );
                let latency = stats.hw_sync_latency;
                let measured = match latency.count {
                    0 => "not measured yet".to_owned(),
                    some => format!(
                        "p50 {}, p99 {}, max {} ({some} measured)",
                        span(latency.p50_ns),
                        span(latency.p99_ns),
                        span(latency.max_ns)
                    ),
                };
                line("sync", format!("hw_sync_latency {measured}; {} failed", stats.failures));
            }
        }
        if let Some(Workers { dr_cache_hit, dr_cache_miss, retry_count, refused, applied_generations }) =
            &self.workers
        {
            let applied = applied_generations.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            line(
                "workers",
                format!(
                    "dr_cache_hit {dr_cache_hit}, dr_cache_miss {dr_cache_miss}, retry_count {retry_count}, \
                     refused {refused}; at generation {applied}"
                ),
            );
        }
        if self.routes.is_empty() {
            return text + "no routes\n";
        }
        let names =
            ["slid", "dlid", "p_key", "priority", "on broken", "packets", "bytes", "last use", "ports"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for route in &self.routes {
            rows.push(vec![
                route.slid.clone(),
                route.dlid.clone(),
                route.p_key.clone(),
                route.priority.to_string(),
                route.on_broken.to_string(),
                route.packets.to_string(),
                route.bytes.to_string(),
                route.last_use_age_ns.map_or_else(|| "never".to_owned(), |age| format!("{} ago", span(age))),
                crate::routes::spec::show_ports(&route.path),
            ]);
        }
        text + &output::table(&rows)
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    let table = open(paths)?;
    let seen = look(paths).ok();
    let control = match spawn::find_control(paths)? {
        Some(_) => admin_client::ask(paths, "routes.stats", &(), Duration::from_secs(2)).ok(),
        None => None,
    };
    let uses = RouteCounters::open(&paths.routes_segment()).ok();
    let now_ns = process::monotonic_ns();
    let workers = seen.as_ref().map(|(status, _)| workers(status));
    let plane = seen.map(|(_, head)| head);
    let shown = collect(&table, plane, control, workers, uses.as_ref(), now_ns);
    Ok(output::print(format, &shown)?)
}

fn workers(status: &Status) -> Workers {
    let mut sum = Workers::default();
    for index in 0..worker_count(status) {
        let block = status.worker(index);
        let counter = |counter: Counter| block.counters[counter as usize].load(Relaxed);
        sum.dr_cache_hit += counter(Counter::DrCacheHit);
        sum.dr_cache_miss += counter(Counter::DrCacheMiss);
        sum.retry_count += block.table_retries.load(Relaxed);
        sum.refused += block.table_refused.load(Relaxed);
        sum.applied_generations.push(block.applied_generation.load(Relaxed));
    }
    sum
}

fn collect(
    table: &Table,
    plane: Option<Head>,
    control: Option<RoutesStats>,
    workers: Option<Workers>,
    uses: Option<&RouteCounters>,
    now_ns: u64,
) -> Shown {
    let line = |(place, placed): &(u32, Placed)| {
        let (packets, bytes, last_ns) = uses.map_or((0, 0, 0), |uses| uses.get(*place));
        let (slid, dlid) = placed.route.key();
        Line {
            slid: format!("{slid:#06x}"),
            dlid: format!("{dlid:#06x}"),
            path: placed.route.path().to_vec(),
            p_key: format!("{:#06x}", placed.route.p_key()),
            priority: placed.route.priority(),
            on_broken: placed.route.on_broken(),
            tenant: placed.tenant,
            place: *place,
            id: placed.id,
            packets,
            bytes,
            last_use_age_ns: (last_ns > 0).then(|| now_ns.saturating_sub(last_ns)),
        }
    };
    Shown {
        plane,
        generation: table.generation,
        capacity: table.reader.capacity(),
        writer_pid: table.reader.writer().pid,
        damaged: table.refused,
        control,
        workers,
        routes: table.routes.iter().map(line).collect(),
    }
}

#[derive(Debug, Serialize)]
struct TracedHop {
    hop: usize,
    node: String,
    node_guid: String,
    port: u8,
    to_node: Option<String>,
    to_port: Option<u8>,
    state: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Traced {
    slid: String,
    dlid: String,
    ports: String,
    on_broken: OnBroken,
    live: bool,
    hops: Vec<TracedHop>,
    fault: Option<String>,
}

impl Text for Traced {
    fn text(&self) -> String {
        let mut rows = vec![["hop", "node", "port", "cable to", "state"].map(str::to_owned).to_vec()];
        for hop in &self.hops {
            let to = match (&hop.to_node, hop.to_port) {
                (Some(node), Some(port)) => format!("{node}:{port}"),
                _ => "nothing".to_owned(),
            };
            let state = hop.state.unwrap_or(if self.live { "no answer" } else { "not known" });
            rows.push(vec![
                hop.hop.to_string(),
                hop.node.clone(),
                hop.port.to_string(),
                to,
                state.to_owned(),
            ]);
        }
        let head = format!("route {} -> {}: ports {}\n", self.slid, self.dlid, self.ports);
        let end = match (&self.fault, self.on_broken) {
            (None, _) => "the path is whole\n".to_owned(),
            (Some(_), OnBroken::Fallback) => {
                "the path is broken: MADs go by the forwarding tables\n".to_owned()
            }
            (Some(_), OnBroken::Drop) => "the path is broken: MADs are dropped\n".to_owned(),
        };
        head + &output::table(&rows) + &end
    }
}

fn ports_of(walk: &Walk) -> impl Iterator<Item = PortRef> {
    let ends = walk.hops.iter().filter(|hop| hop.to.is_some());
    ends.map(|hop| PortRef { node: hop.node, port: hop.port })
}

pub(crate) fn trace(paths: &PlanePaths, format: Format, key: Key) -> Outcome {
    let table = open(paths)?;
    let found = table.routes.iter().find(|(_, placed)| placed.route.key() == key);
    let Some((_, Placed { route, .. })) = found else {
        return Err(Failure::Failed(format!("there is no route {} in the published table", show_key(key))));
    };
    let view = FabricView::open(paths)?;
    let mut walk = view.walk(route)?;
    let ports: Vec<PortRef> = ports_of(&walk).collect();
    let states = view.states(&ports)?;
    view.judge(&mut walk, &states);
    let name = |node| describe(view.topology(), node);
    let hop = |(index, hop): (usize, &crate::fabric_path::Hop)| TracedHop {
        hop: index + 1,
        node: name(hop.node),
        node_guid: output::guid(view.topology().nodes.get(hop.node as usize).map_or(0, |node| node.guid)),
        port: hop.port,
        to_node: hop.to.map(|to| name(to.node)),
        to_port: hop.to.map(|to| to.port),
        state: states.get(&PortRef { node: hop.node, port: hop.port }).map(|answer| state_name(answer.state)),
    };
    let hops = walk.hops.iter().enumerate().map(hop).collect();
    let traced = Traced {
        slid: format!("{:#06x}", key.0),
        dlid: format!("{:#06x}", key.1),
        ports: route.ports(),
        on_broken: route.on_broken(),
        live: view.is_live(),
        hops,
        fault: walk.fault.clone(),
    };
    output::print(format, &traced)?;
    match walk.fault {
        None => Ok(()),
        Some(fault) => Err(Failure::Failed(format!("route {}: {fault}", show_key(key)))),
    }
}

fn state_name(state: u8) -> &'static str {
    match state {
        1 => "down",
        2 => "init",
        3 => "armed",
        4 => "active",
        _ => "unknown",
    }
}

#[derive(Debug, Serialize)]
struct Fault {
    slid: String,
    dlid: String,
    ports: String,
    fault: String,
}

#[derive(Debug, Serialize)]
struct Checked {
    routes: usize,
    live: bool,
    faults: Vec<Fault>,
}

impl Text for Checked {
    fn text(&self) -> String {
        let mut text = String::new();
        for Fault { slid, dlid, ports, fault } in &self.faults {
            text.push_str(&format!("route {slid} -> {dlid} (ports {ports}): {fault}\n"));
        }
        let routes = count(u64::try_from(self.routes).unwrap_or(u64::MAX), "route");
        let states = if self.live { "" } else { "; the plane is not running, port states are not known" };
        text + &format!("{routes}, {} broken{states}\n", self.faults.len())
    }
}

pub(crate) fn check(paths: &PlanePaths, format: Format) -> Outcome {
    let table = open(paths)?;
    let view = FabricView::open(paths)?;
    let walks: Vec<(&Route, Result<Walk, String>)> = table
        .routes
        .iter()
        .map(|(_, placed)| (&placed.route, view.walk(&placed.route).map_err(|error| error.to_string())))
        .collect();
    let ports: BTreeSet<PortRef> =
        walks.iter().filter_map(|(_, walk)| walk.as_ref().ok()).flat_map(ports_of).collect();
    let ports: Vec<PortRef> = ports.into_iter().collect();
    let states = view.states(&ports)?;
    let mut faults = Vec::new();
    for (route, walk) in walks {
        let fault = match walk {
            Ok(mut walk) => {
                view.judge(&mut walk, &states);
                walk.fault
            }
            Err(error) => Some(error),
        };
        if let Some(fault) = fault {
            let (slid, dlid) = route.key();
            let (slid, dlid) = (format!("{slid:#06x}"), format!("{dlid:#06x}"));
            faults.push(Fault { slid, dlid, ports: route.ports(), fault });
        }
    }
    let checked = Checked { routes: table.routes.len(), live: view.is_live(), faults };
    output::print(format, &checked)?;
    match checked.faults.len() {
        0 => Ok(()),
        broken => Err(Failure::Failed(format!("{broken} of {} routes are broken", checked.routes))),
    }
}
