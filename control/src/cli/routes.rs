//! `madctl routes`: pinned paths between two LIDs.
//!
//! Changes go through madctld. `show`, `trace` and `check` read the segments and work without it; what only a living
//! daemon can tell is then left out.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use madctl::{AdminError, Plane};
use madplane_shm::paths::PlanePaths;
use serde::Serialize;

use super::output::{self, Format, Text, count};
use super::{Failure, Outcome, routes_show};
use crate::admin_routes::RoutesDone;
use crate::routes::spec::{DEFAULT_P_KEY, PathSpec, Written, parse_lid, parse_p_key};
use crate::routes::{OnBroken, RawRoute, show_key};

/// Device that `madctl run` shows to programs unless told otherwise.
const DEFAULT_DEVICE: &str = "mlx5_0";
/// Priority of a reserved route.
const RESERVED_PRIORITY: u64 = 1;

/// A route to be put in.
#[derive(Debug, Args)]
pub(crate) struct RouteArgs {
    /// LID of the sender.
    slid: String,
    /// LID of the receiver.
    dlid: String,
    /// Egress ports from the sender's node on, such as 1,2,3,4; or a way to find them.
    #[arg(required = true, num_args = 1..=3, value_name = "PATH")]
    path: Vec<String>,
    /// Device, as programs see it.
    #[arg(short = 'i', long, value_name = "DEV")]
    device: Option<String>,
    /// Partition.
    #[arg(long, value_name = "P")]
    pkey: Option<String>,
    /// Only for MADs of this tenant [default: of anybody].
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// What becomes of a MAD when the path is broken.
    #[arg(long, value_name = "fallback|drop", default_value_t)]
    on_broken: OnBroken,
    /// Also in place of a route with the same two LIDs.
    #[arg(long)]
    replace: bool,
    /// Return when every worker has it.
    #[arg(long)]
    sync: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RoutesVerb {
    /// Pin what SLID sends to DLID to a path: PORTS, via NODE[,NODE...], or shortest [avoid NODE[,NODE...]].
    Add {
        #[command(flatten)]
        route: RouteArgs,
        /// 0 serves every class; higher ones serve only the reserved class, as reserve does.
        #[arg(long, value_name = "N", default_value_t = 0)]
        priority: u64,
    },
    /// Pin a path that only MADs of the reserved class take: add with priority 1.
    Reserve {
        #[command(flatten)]
        route: RouteArgs,
    },
    /// Take a route out.
    Del {
        /// LID of the sender.
        slid: String,
        /// LID of the receiver.
        dlid: String,
        /// Return when no worker has it any more.
        #[arg(long)]
        sync: bool,
    },
    /// Show all routes with their use, and how the table does.
    Show,
    /// Take all routes out.
    Flush {
        /// Return when no worker has one any more.
        #[arg(long)]
        sync: bool,
    },
    /// Put in the routes of a file, all or none. A line: SLID DLID PATH [pkey=P] [priority=N] [on-broken=drop]
    /// [tenant=NAME].
    Load {
        /// The file.
        file: PathBuf,
        /// Also in place of routes with the same LIDs.
        #[arg(long)]
        replace: bool,
        /// Return when every worker has them.
        #[arg(long)]
        sync: bool,
    },
    /// Publish what waits and return when every worker has it.
    Sync,
    /// Show which nodes and ports a route takes and whether each hop is there.
    Trace {
        /// LID of the sender.
        slid: String,
        /// LID of the receiver.
        dlid: String,
    },
    /// Hold every route against the fabric.
    Check,
}

#[derive(Debug, Serialize)]
struct Changed {
    what: String,
    #[serde(flatten)]
    done: RoutesDone,
}

impl Text for Changed {
    fn text(&self) -> String {
        let RoutesDone { generation, routes, capacity, workers, synced, hw_sync_latency_ns, .. } = self.done;
        let synced = synced_text(generation, synced, workers, hw_sync_latency_ns);
        format!("{}; {routes} of {capacity}{synced}\n", self.what)
    }
}

/// Who has a change, in words; nothing if nobody was waited for.
pub(super) fn synced_text(generation: u64, synced: bool, workers: usize, latency_ns: Option<u64>) -> String {
    match (synced, workers, latency_ns) {
        (false, ..) => String::new(),
        (true, 0, _) => format!(", generation {generation}; no plane runs, its workers will find it"),
        (true, _, None) => {
            format!(", generation {generation} is with {}", count(workers as u64, "worker"))
        }
        (true, _, Some(ns)) => format!(
            ", generation {generation} is with {} after {}",
            count(workers as u64, "worker"),
            output::span(ns)
        ),
    }
}

pub(crate) fn dispatch(paths: &PlanePaths, format: Format, verb: RoutesVerb) -> Outcome {
    match verb {
        RoutesVerb::Add { route, priority } => add(paths, format, route, priority, "added"),
        RoutesVerb::Reserve { route } => add(paths, format, route, RESERVED_PRIORITY, "reserved"),
        RoutesVerb::Del { slid, dlid, sync } => {
            let key = (lid(&slid)?, lid(&dlid)?);
            let done = Plane::at(paths.clone()).admin()?.routes_del(key, sync)?;
            print(format, format!("route {} removed", show_key(key)), done)
        }
        RoutesVerb::Flush { sync } => {
            let done = Plane::at(paths.clone()).admin()?.routes_flush(sync)?;
            print(format, format!("{} removed", count(done.removed.into(), "route")), done)
        }
        RoutesVerb::Load { file, replace, sync } => load(paths, format, &file, replace, sync),
        RoutesVerb::Sync => {
            let done = Plane::at(paths.clone()).admin()?.routes_sync()?;
            print(format, "routes published".to_owned(), done)
        }
        RoutesVerb::Show => routes_show::show(paths, format),
        RoutesVerb::Trace { slid, dlid } => routes_show::trace(paths, format, (lid(&slid)?, lid(&dlid)?)),
        RoutesVerb::Check => routes_show::check(paths, format),
    }
}

fn add(paths: &PlanePaths, format: Format, args: RouteArgs, priority: u64, verb: &str) -> Outcome {
    let RouteArgs { slid, dlid, path, device, pkey, tenant, on_broken, replace, sync } = args;
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let mut raw = RawRoute::new(lid(&slid)?, lid(&dlid)?, &[]);
    let p_key = pkey.as_deref().map(parse_p_key).transpose().map_err(|error| usage(&error))?;
    raw.p_key = p_key.unwrap_or(DEFAULT_P_KEY.into());
    (raw.priority, raw.on_broken, raw.tenant) = (priority, on_broken, tenant);
    let path = PathSpec::parse(&path).map_err(|error| usage(&error))?;
    let written = Written { raw, path };
    written.by_ports().map_err(|error| usage(&error))?;
    check_device(device.as_deref())?;
    let plane = Plane::at(paths.clone());
    let route = plane.compile(&written)?;
    let done = plane.admin()?.routes_add(&route, replace, sync)?;
    let verb = if done.replaced > 0 { "replaced" } else { verb };
    let what = format!("route {} {verb} (ports {})", show_key(route.key()), route.ports());
    print(format, what, done)
}

fn print(format: Format, what: String, done: RoutesDone) -> Outcome {
    Ok(output::print(format, &Changed { what, done })?)
}

fn lid(text: &str) -> Result<u16, Failure> {
    parse_lid(text).map_err(|error| Failure::Usage(error.to_string()))
}

/// A plane shows one device, under the name that `madctl run` gives it.
fn check_device(device: Option<&str>) -> Result<(), Failure> {
    let shown = std::env::var("MADPLANE_DEVICE").ok().filter(|name| !name.is_empty());
    let shown = shown.unwrap_or_else(|| DEFAULT_DEVICE.to_owned());
    match device {
        Some(device) if device != shown => {
            let hint = crate::nearest::hint(device, [shown.as_str()]);
            Err(Failure::Failed(format!("unknown device {device:?}; the plane's device is {shown}{hint}")))
        }
        _ => Ok(()),
    }
}

fn load(paths: &PlanePaths, format: Format, file: &Path, replace: bool, sync: bool) -> Outcome {
    let plane = Plane::at(paths.clone());
    let routes = plane.read_routes(file)?;
    let done = plane.admin()?.routes_load(&routes, replace, sync).map_err(|error| name_line(file, error))?;
    let replaced = match done.replaced {
        0 => String::new(),
        some => format!(", {some} of them in place of others"),
    };
    let number = u64::try_from(routes.len()).unwrap_or(u64::MAX);
    print(format, format!("{}: {} loaded{replaced}", file.display(), count(number, "route")), done)
}

/// What madctld says about a line, as compilers write it.
pub(super) fn name_line(file: &Path, error: AdminError) -> Failure {
    let text = error.to_string();
    let named = text.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
    match (error, named) {
        (AdminError::Refused(_), Some((line, rest))) => {
            Failure::Failed(format!("{}:{line}: {rest}; nothing was applied", file.display()))
        }
        (error, _) => error.into(),
    }
}
