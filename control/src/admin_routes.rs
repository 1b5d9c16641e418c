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

pub use madctl::protocol::{Latency, RoutesDone, RoutesStats};
use serde::Deserialize;
use serde_json::Value;

use crate::file_part::FilePart;
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
    Load(FilePart<Route>),
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddArgs {
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

/// Reads a command about routes; `None` if it is about something else.
pub(crate) fn understand(cmd: &str, args: Value) -> Option<Result<RouteAction, String>> {
    Some(match cmd {
        "routes.add" => crate::admin::arguments(cmd, args).and_then(add),
        "routes.del" => crate::admin::arguments(cmd, args)
            .map(|DelArgs { slid, dlid, sync }| RouteAction::Remove { key: (slid, dlid), sync }),
        "routes.flush" if args.is_null() => Ok(RouteAction::Flush { sync: false }),
        "routes.flush" => {
            crate::admin::arguments(cmd, args).map(|FlushArgs { sync }| RouteAction::Flush { sync })
        }
        "routes.load" => FilePart::read(cmd, args, parse_line).map(RouteAction::Load),
        "routes.sync" => crate::admin::no_arguments(cmd, &args).map(|()| RouteAction::Sync),
        "routes.stats" => crate::admin::no_arguments(cmd, &args).map(|()| RouteAction::Stats),
        _ => return None,
    })
}

pub(crate) fn add(args: AddArgs) -> Result<RouteAction, String> {
    let AddArgs { route, replace, sync } = args;
    let route = Route::try_from(route).map_err(|error| error.to_string())?;
    Ok(RouteAction::Add { route, replace, sync })
}

/// The route of a line, by ports only.
fn parse_line(text: &str) -> Result<Option<Route>, String> {
    let Some(written) = Written::parse_line(text)? else { return Ok(None) };
    let route = written.by_ports().map_err(|error| error.to_string())?;
    route.map(Some).ok_or_else(|| "the path has to be given by ports here".to_owned())
}
