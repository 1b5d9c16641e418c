//! Links to other planes that come and go: the list, and what becomes of it.
//!
//! Two sources: what the plane was started with, and the file that control writes ([`madplane_shm::links`]); of two links at one
//! port the first counts. Control says when the file has changed; then what is no longer wanted goes, and what is new comes. A link
//! that is wanted in the same words stays as it is.

use std::time::{Duration, Instant};

use madplane_engine::NodeId;
use madplane_port::datagram::Standing;
use madplane_shm::links::LinkSpec;
use madplane_shm::process::unix_ns;
use madplane_shm::status::{LINK_UNAVAILABLE, MAX_LINKS};
use madplane_shm::sync::Ordering;

use super::Housekeeping;
use crate::orders::{Order, Report};
use crate::worker::NewLink;

/// Time until a link that could not be opened is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// A link that a worker serves.
#[derive(Debug)]
pub(super) struct Held {
    spec: LinkSpec,
    place: (NodeId, u8),
    standing: Standing,
}

/// A link that cannot be.
#[derive(Debug)]
pub(crate) struct WrongLink {
    /// What was asked for; `None` if it is the whole list.
    spec: Option<LinkSpec>,
    /// One line.
    pub(crate) text: String,
}

impl WrongLink {
    /// Whether a change of the link at this port has to be refused for it.
    pub(super) fn concerns(&self, at: &str) -> bool {
        self.spec.as_ref().is_none_or(|spec| spec.at == at)
    }
}

impl std::fmt::Display for WrongLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.spec {
            None => f.write_str(&self.text),
            Some(spec) => write!(f, "link {}: {}", spec.at, self.text),
        }
    }
}

impl Housekeeping {
    /// Has the links that are wanted, and no others. All that can be done is done.
    ///
    /// # Errors
    /// What could not be.
    pub(crate) fn apply_links(&mut self) -> Result<(), Vec<WrongLink>> {
        let mut wrong = Vec::new();
        let mut wanted = self.config.links().to_vec();
        match LinkSpec::load(&self.config.paths().links_file()) {
            Ok(list) => {
                for spec in list {
                    if !wanted.contains(&spec) {
                        wanted.push(spec);
                    }
                }
            }
            // a list that cannot be read is no wish to have no links
            Err(text) => return Err(vec![WrongLink { spec: None, text }]),
        }
        for number in 0..self.links.len() {
            let stays = self.links[number].as_ref().is_none_or(|held| wanted.contains(&held.spec));
            if !stays && let Some(held) = self.links[number].take() {
                self.close_link(number, &held);
            }
        }
        for spec in wanted {
            let there = self.links.iter().flatten().any(|held| held.spec == spec);
            if !there && let Err(text) = self.open_link(&spec) {
                wrong.push(WrongLink { spec: Some(spec), text });
            }
        }
        // an address or a file may come later
        self.links_again = (!wrong.is_empty()).then(|| Instant::now() + TRY_AGAIN);
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Has the links that the plane begins with. What the plane was told itself must be possible; a list that control left behind
    /// is no reason not to start.
    ///
    /// # Errors
    /// One line about a link that the plane was started with.
    pub(crate) fn begin_links(&mut self) -> Result<(), String> {
        let Err(wrong) = self.apply_links() else { return Ok(()) };
        self.show_unavailable(&wrong);
        wrong.iter().for_each(|wrong| self.error(&wrong.to_string()));
        let held = |spec: &LinkSpec| self.links.iter().flatten().any(|held| held.spec == *spec);
        if self.config.links().iter().all(held) {
            return Ok(());
        }
        let lines: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        Err(lines.join("; "))
    }

    /// Whether a link ends at this port.
    pub(super) fn is_linked(&self, place: (NodeId, u8)) -> bool {
        self.links.iter().flatten().any(|held| held.place == place)
    }

    fn open_link(&mut self, spec: &LinkSpec) -> Result<(), String> {
        let end =
            madplane_topology::parse_endpoint(&self.topology, &spec.at).map_err(|error| error.to_string())?;
        let place = (end.node, end.port);
        let Some(port) = self.topology.port(end).filter(|_| end.port != 0) else {
            return Err("not a port; name it as NODE:PORT".to_owned());
        };
        if port.peer.is_some() {
            return Err("the port has a cable in this fabric".to_owned());
        }
        if self.is_linked(place) {
            return Err("the port has a link already".to_owned());
        }
        let Some(number) = self.links.iter().position(Option::is_none).and_then(|n| u16::try_from(n).ok())
        else {
            return Err(format!("a plane has at most {MAX_LINKS} links to others"));
        };
        let (transport, standing) = self.transports.open(spec)?;
        let node_guid = self.topology.nodes.get(end.node as usize).map_or(0, |node| node.guid);
        let new = NewLink { number, node: end.node, port: end.port, node_guid, transport };
        let worker = self.worker_of(end.node);
        self.show_link(usize::from(number), spec, place, worker);
        if !matches!(self.ask(worker, Order::OpenLink(Box::new(new))), Some(Report::Done(_))) {
            self.hide_link(usize::from(number));
            return Err("the worker did not take the link".to_owned());
        }
        tracing::info!("link {spec} opened");
        self.links_seen[usize::from(number)] = (0, 0);
        self.links[usize::from(number)] = Some(Held { spec: spec.clone(), place, standing });
        Ok(())
    }

    fn close_link(&mut self, number: usize, held: &Held) {
        let worker = self.worker_of(held.place.0);
        let Ok(short) = u16::try_from(number) else { return };
        match self.ask(worker, Order::CloseLink { number: short }) {
            Some(Report::Unlinked(end)) => drop(end),
            _ => self.error("a link could not be closed"),
        }
        self.hide_link(number);
        tracing::info!("link {} closed", held.spec);
    }

    fn show_link(&self, number: usize, spec: &LinkSpec, (node, port): (NodeId, u8), worker: usize) {
        let record = self.status.link(number);
        record.state.store(0, Ordering::Relaxed);
        self.show_place(number, (node, port));
        record.worker.store(u32::try_from(worker).unwrap_or(0), Ordering::Relaxed);
        record.spec.store(&spec.to_string());
        record.transport.store("");
        // a former link's
        record.clear_counts();
    }

    fn show_place(&self, number: usize, (node, port): (NodeId, u8)) {
        let record = self.status.link(number);
        if let Some(there) = self.topology.nodes.get(node as usize) {
            record.node_guid.store(there.guid, Ordering::Relaxed);
            record.node.store(&there.description);
        }
        record.port.store(u32::from(port), Ordering::Relaxed);
    }

    /// Shows links that could not be opened, and why, in records that no open link has; those of former ones are free again.
    pub(crate) fn show_unavailable(&self, wrong: &[WrongLink]) {
        let mut free = (0..self.links.len()).filter(|number| self.links[*number].is_none());
        for WrongLink { spec, text } in wrong {
            let Some(spec) = spec else { continue };
            let Some(number) = free.next() else { return };
            let record = self.status.link(number);
            match madplane_topology::parse_endpoint(&self.topology, &spec.at) {
                Ok(end) => self.show_place(number, (end.node, end.port)),
                Err(_) => {
                    record.node_guid.store(0, Ordering::Relaxed);
                    record.port.store(0, Ordering::Relaxed);
                    record.node.store(&spec.at);
                }
            }
            record.clear_counts();
            record.peer_guid.store(0, Ordering::Relaxed);
            record.peer_port.store(0, Ordering::Relaxed);
            record.spec.store(&spec.to_string());
            record.transport.store(text);
            record.state.store(LINK_UNAVAILABLE, Ordering::Relaxed);
        }
        free.for_each(|number| self.hide_link(number));
    }

    fn hide_link(&self, number: usize) {
        let record = self.status.link(number);
        record.state.store(0, Ordering::Relaxed);
        record.peer_guid.store(0, Ordering::Relaxed);
    }

    /// Shows how the transports stand.
    pub(super) fn show_links(&self) {
        for (number, held) in self.links.iter().enumerate() {
            if let Some(held) = held {
                self.status.link(number).transport.store(&held.standing.text());
            }
        }
    }

    /// Tries again what could not be opened; writes into the log, and tells control, which links have come up or gone down.
    pub(super) fn watch_links(&mut self) {
        if self.links_again.is_some_and(|at| at <= Instant::now()) {
            let wrong = self.apply_links().err().unwrap_or_default();
            self.show_unavailable(&wrong);
            // what is wrong has been said, and is counted
            for wrong in wrong {
                self.status.record_error(&wrong.to_string(), unix_ns());
            }
        }
        for number in 0..self.links.len() {
            let Some(held) = &self.links[number] else { continue };
            let record = self.status.link(number);
            let counts = (record.ups.load(Ordering::Relaxed), record.downs.load(Ordering::Relaxed));
            let Some(seen) = self.links_seen.get_mut(number).filter(|seen| **seen != counts) else {
                continue;
            };
            *seen = counts;
            let (place, at) = (held.place, held.spec.at.clone());
            let up = counts.0 > counts.1;
            let text = format!("link {at} is {}", if up { "up" } else { "down" });
            tracing::info!("{text}: {}", held.standing.text());
            self.tell_control(madplane_shm::command::event::LINK, place, u32::from(up), &text);
        }
    }
}

/// Room for all links.
pub(super) fn none() -> Vec<Option<Held>> {
    (0..MAX_LINKS).map(|_| None).collect()
}
