//! `madctl routes show`, `trace` and `check`: what is in the table segment, held against the fabric.
//!
//! Looking is the library's ([`madctl::Plane`]) and needs neither daemon; here it is printed.

use madctl::fabric::trace::{Check, RouteFault, Trace};
use madctl::show::short;
use madctl::view::{RouteTable, TableWorkers};
use madctl::{Key, OnBroken, Plane};
use madplane_shm::paths::PlanePaths;

use super::output::{self, Format, Text, count, span};
use super::status::Head;
use super::{Failure, Outcome};
use crate::routes::show_key;

impl Text for RouteTable {
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
        if let Some(TableWorkers { dr_cache_hit, dr_cache_miss, retry_count, refused, applied_generations }) =
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
        let names = [
            "slid",
            "dlid",
            "p_key",
            "tenant",
            "class",
            "priority",
            "on broken",
            "packets",
            "bytes",
            "last use",
            "ports",
        ];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for route in &self.routes {
            rows.push(vec![
                short(route.slid),
                short(route.dlid),
                short(route.p_key),
                tenant_text(route.tenant.into(), route.tenant_name.as_deref().unwrap_or_default()),
                if route.priority > 0 { "reserved" } else { "bulk" }.to_owned(),
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

/// A tenant by name, or by number if it is not there any more; `-` for none.
pub(super) fn tenant_text(number: u32, name: &str) -> String {
    match (number, name) {
        (0, _) => "-".to_owned(),
        (number, "") => format!("number {number}"),
        (_, name) => name.to_owned(),
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    Ok(output::print(format, &Plane::at(paths.clone()).routes()?)?)
}

impl Text for Trace {
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
        let head = format!("route {}: ports {}\n", show_key((self.slid, self.dlid)), self.ports);
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

pub(crate) fn trace(paths: &PlanePaths, format: Format, key: Key) -> Outcome {
    let traced = Plane::at(paths.clone()).trace(key)?;
    output::print(format, &traced)?;
    match traced.fault {
        None => Ok(()),
        Some(fault) => Err(Failure::Failed(format!("route {}: {fault}", show_key(key)))),
    }
}

impl Text for Check {
    fn text(&self) -> String {
        let mut text = String::new();
        for RouteFault { slid, dlid, ports, fault } in &self.faults {
            text.push_str(&format!("route {} (ports {ports}): {fault}\n", show_key((*slid, *dlid))));
        }
        let routes = count(u64::try_from(self.routes).unwrap_or(u64::MAX), "route");
        let states = if self.live { "" } else { "; the plane is not running, port states are not known" };
        text + &format!("{routes}, {} broken{states}\n", self.faults.len())
    }
}

pub(crate) fn check(paths: &PlanePaths, format: Format) -> Outcome {
    let checked = Plane::at(paths.clone()).check()?;
    output::print(format, &checked)?;
    match checked.faults.len() {
        0 => Ok(()),
        broken => Err(Failure::Failed(format!("{broken} of {} routes are broken", checked.routes))),
    }
}
