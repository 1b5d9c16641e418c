//! One function for each command of madctld.
//!
//! Each asks once and waits for the answer; a change that is refused has changed nothing. What may be done by whom is
//! madctld's to say, by the socket's peer credentials.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{AdminClient, AdminError};
use crate::protocol::{ControlStatus, Done, RoutesDone, RoutesStats};
use crate::route::{Key, RawRoute, Route};

/// A part of a file is about so long: well below the longest line of the protocol.
const PART_BYTES: usize = 40 * 1024;

impl AdminClient {
    /// Asks for any command, also one that this library does not know yet; the result is as it came.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn call(&mut self, cmd: &str, args: &impl Serialize) -> Result<Value, AdminError> {
        self.ask(cmd, args)
    }

    /// How madctld does.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn status(&mut self) -> Result<ControlStatus, AdminError> {
        self.ask("control.status", &())
    }

    /// Goes to the plane and back.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn ping(&mut self) -> Result<Done, AdminError> {
        self.ask("plane.ping", &())
    }

    /// Pulls or plugs the cable of a port, `NODE:PORT`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn links_set(&mut self, port: &str, up: bool) -> Result<Done, AdminError> {
        self.ask(if up { "links.up" } else { "links.down" }, &json!({ "port": port }))
    }

    /// Has the plane have a link to another: `NODE:PORT via=TRANSPORT:LOCAL peer=ADDRESS [credentials=DIRECTORY]`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn links_add(&mut self, link: &str) -> Result<Done, AdminError> {
        self.ask("links.add", &json!({ "link": link }))
    }

    /// Takes the link at a port away, `NODE:PORT` as it was added.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn links_del(&mut self, port: &str) -> Result<Done, AdminError> {
        self.ask("links.del", &json!({ "port": port }))
    }

    /// Power-cycles a node.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn nodes_reboot(&mut self, node: &str) -> Result<Done, AdminError> {
        self.ask("nodes.reboot", &json!({ "node": node }))
    }

    /// Puts a route in, with `replace` also over one with the same LIDs. With `sync` it is with every worker on return.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn routes_add(&mut self, route: &Route, replace: bool, sync: bool) -> Result<RoutesDone, AdminError> {
        self.ask("routes.add", &json!({ "route": RawRoute::from(route), "replace": replace, "sync": sync }))
    }

    /// Takes a route out.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn routes_del(&mut self, key: Key, sync: bool) -> Result<RoutesDone, AdminError> {
        self.ask("routes.del", &json!({ "slid": key.0, "dlid": key.1, "sync": sync }))
    }

    /// Takes all routes out.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn routes_flush(&mut self, sync: bool) -> Result<RoutesDone, AdminError> {
        self.ask("routes.flush", &json!({ "sync": sync }))
    }

    /// Puts routes in, all or none; each comes with a number, that of its line in a file, by which a wrong one is named.
    /// However many there are, it is one transaction.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn routes_load(
        &mut self,
        routes: &[(u32, Route)],
        replace: bool,
        sync: bool,
    ) -> Result<RoutesDone, AdminError> {
        let lines = routes.iter().map(|(line, route)| (*line, route.to_line()));
        self.load::<RoutesDone>("routes.load", lines, replace, sync)
    }

    /// Sends lines of a file in as many requests as it takes; the last one applies all of them.
    pub(super) fn load<T: DeserializeOwned>(
        &mut self,
        cmd: &str,
        lines: impl Iterator<Item = (u32, String)>,
        replace: bool,
        sync: bool,
    ) -> Result<T, AdminError> {
        let mut part: Vec<(u32, String)> = Vec::new();
        let mut bytes = 0;
        for (line, text) in lines {
            // the number of the line, quotes and commas
            bytes += text.len() + 16;
            part.push((line, text));
            if bytes > PART_BYTES {
                self.ask::<T>(cmd, &json!({ "lines": part, "more": true, "replace": replace }))?;
                part.clear();
                bytes = 0;
            }
        }
        self.ask(cmd, &json!({ "lines": part, "replace": replace, "sync": sync }))
    }

    /// Publishes what waits; on return it is with every worker.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn routes_sync(&mut self) -> Result<RoutesDone, AdminError> {
        self.ask("routes.sync", &())
    }

    /// How the table does.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn routes_stats(&mut self) -> Result<RoutesStats, AdminError> {
        self.ask("routes.stats", &())
    }
}
