//! The admin commands about routes: arguments, checks, results.
//!
//! Part of the protocol of [`crate::admin`]; text and checks only.
//!
//! | command | arguments | result | who |
//! |---|---|---|---|
//! | `routes.add` | a [`RawRoute`]'s fields in `route`, `replace`, `sync` | [`RoutesDone`] | root, or the user of madctld |
//! | `routes.del` | `slid`, `dlid`, `sync` | [`RoutesDone`] | the same |
//! | `routes.flush` | `sync` | [`RoutesDone`] | the same |
//! | `routes.load` | `lines`: `[number, text]` each ([`Written::parse_line`]), `more`, `replace`, `sync` | [`RoutesDone`] | the same |
//! | `routes.sync` | none | [`RoutesDone`] | the same |
//! | `routes.stats` | none | [`RoutesStats`] | anyone |
//!
//! A file is one transaction: parts with `more` are only kept; the one without applies all of them or none. With
//! `sync` the reply comes when every worker has the routes.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::routes::spec::Written;
use crate::routes::{Key, RawRoute, Route};

/// Names of the commands.
pub(crate) const COMMANDS: [&str; 6] =
    ["routes.add", "routes.del", "routes.flush", "routes.load", "routes.sync", "routes.stats"];

/// A request about routes, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteAction {
    /// Put one route in.
    Add {
        /// The route.
        route: Route,
        /// Also over one with the same key.
        replace: bool,
        /// Answer when every worker has it.
        sync: bool,
    },
    /// Take one route out.
    Remove {
        /// Which.
        key: Key,
        /// Answer when no worker has it any more.
        sync: bool,
    },
    /// Take all routes out.
    Flush {
        /// Answer when no worker has one any more.
        sync: bool,
    },
    /// Part of a file.
    Load {
        /// Routes with the numbers of their lines.
        lines: Vec<(u32, Route)>,
        /// Whether another part follows.
        more: bool,
        /// Also over routes with the same keys.
        replace: bool,
        /// Answer when every worker has them.
        sync: bool,
    },
    /// Publish what waits and answer when every worker has it.
    Sync,
    /// Say how the table does.
    Stats,
}

impl RouteAction {
    /// Whether it changes what the workers do.
    pub fn changes(&self) -> bool {
        *self != Self::Stats
    }
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoutesDone {
    /// Version of the software table.
    pub version: u64,
    /// Generation of the table in shared memory.
    pub generation: u64,
    /// Routes in the table.
    pub routes: usize,
    /// Places in the table.
    pub capacity: u32,
    /// Routes that are new.
    pub added: u32,
    /// Routes that took the place of another.
    pub replaced: u32,
    /// Routes that are gone.
    pub removed: u32,
    /// Whether every worker has it.
    pub synced: bool,
    /// How many workers that are.
    pub workers: usize,
    /// From publication until they had it, if it was published for this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hw_sync_latency_ns: Option<u64>,
}

/// Percentiles of a latency, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Half of them were at most this.
    pub p50_ns: u64,
    /// 99 of 100 were at most this.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Latency {
    /// Percentiles of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self { count: histogram.len(), p50_ns: at(0.5), p99_ns: at(0.99), max_ns: histogram.max() }
    }
}

/// Result of `routes.stats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutesStats {
    /// Version of the software table.
    pub version: u64,
    /// Generation of the table in shared memory.
    pub generation: u64,
    /// Routes in the software table.
    pub routes: usize,
    /// Places in it.
    pub capacity: u32,
    /// Changes that are not published yet.
    pub unpublished: usize,
    /// How long a change waits for others.
    pub sync_interval_ms: u64,
    /// How many changes do not wait.
    pub sync_threshold: usize,
    /// Publications of this madctld.
    pub publications: u64,
    /// Those that a worker did not follow in time.
    pub failures: u64,
    /// From publication until every worker had it.
    pub hw_sync_latency: Latency,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddArgs {
    route: RawRoute,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    sync: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelArgs {
    slid: u16,
    dlid: u16,
    #[serde(default)]
    sync: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FlushArgs {
    #[serde(default)]
    sync: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadArgs {
    lines: Vec<(u32, String)>,
    #[serde(default)]
    more: bool,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    sync: bool,
}

/// Reads a command about routes; `None` if it is about something else.
pub(crate) fn understand(cmd: &str, args: Value) -> Option<Result<RouteAction, String>> {
    Some(match cmd {
        "routes.add" => add(args),
        "routes.del" => crate::admin::arguments(cmd, args)
            .map(|DelArgs { slid, dlid, sync }| RouteAction::Remove { key: (slid, dlid), sync }),
        "routes.flush" if args.is_null() => Ok(RouteAction::Flush { sync: false }),
        "routes.flush" => {
            crate::admin::arguments(cmd, args).map(|FlushArgs { sync }| RouteAction::Flush { sync })
        }
        "routes.load" => load(args),
        "routes.sync" => crate::admin::no_arguments(cmd, &args).map(|()| RouteAction::Sync),
        "routes.stats" => crate::admin::no_arguments(cmd, &args).map(|()| RouteAction::Stats),
        _ => return None,
    })
}

fn add(args: Value) -> Result<RouteAction, String> {
    let AddArgs { route, replace, sync } = crate::admin::arguments("routes.add", args)?;
    let route = Route::try_from(route).map_err(|error| error.to_string())?;
    Ok(RouteAction::Add { route, replace, sync })
}

fn load(args: Value) -> Result<RouteAction, String> {
    let LoadArgs { lines, more, replace, sync } = crate::admin::arguments("routes.load", args)?;
    let mut routes = Vec::with_capacity(lines.len());
    for (line, text) in lines {
        let fail = |error: String| format!("line {line}: {error}");
        let Some(written) = Written::parse_line(&text).map_err(fail)? else { continue };
        let route = written.by_ports().map_err(|error| fail(error.to_string()))?;
        routes.push((line, route.ok_or_else(|| fail("the path has to be given by ports here".to_owned()))?));
    }
    let lines = routes;
    Ok(RouteAction::Load { lines, more, replace, sync })
}
