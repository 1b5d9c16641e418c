//! A worker driven on the caller's thread: what a MAD costs without a second core.
//!
//! The rings, the checks, the engine and the way back are those of a running plane; only the cache transfers between
//! cores are missing, and nobody sleeps. This is where instructions and allocations are counted.

use std::sync::Arc;

use madplane_client::{Envelope, MadMessage, kind};
use madplane_dataplane::agents::{AgentId, AgentSpec};
use madplane_dataplane::mesh::mesh;
use madplane_dataplane::orders::{Order, OrderDesk, Report, order_rings};
use madplane_dataplane::sessions::Session;
use madplane_dataplane::worker::Worker;
use madplane_engine::{FabricOptions, FabricPlan};
use madplane_port::session::split;
use madplane_shm::doorbell::Doorbell;
use madplane_shm::header::Incarnation;
use madplane_shm::session::{ClientEnds, PlaneEnds, create_pair, open_pair};
use madplane_shm::status::Status;
use tempfile::TempDir;

use crate::error::BenchError;
use crate::fabrics::{Fabric, RING, Route};
use crate::harness::{Pace, Summary, fit_line};
use crate::load::Query;
use crate::report::{Bar, Record};
use crate::scenario::Options;

const SLOTS: u64 = 1024;
/// MADs in flight while measuring.
const DEPTH: u32 = 64;

/// A worker, one session, and the client's ends of it, all on one thread.
#[derive(Debug)]
pub struct Solo {
    worker: Worker,
    desk: OrderDesk,
    ends: ClientEnds<MadMessage, MadMessage>,
    now_ns: u64,
    answer: MadMessage,
    slot: u32,
    generation: u32,
    agents: u32,
    _status_directory: TempDir,
}

impl Solo {
    /// Builds a worker for the whole fabric and opens a session at its first adapter.
    ///
    /// # Errors
    /// [`BenchError`] when memory for the rings cannot be had.
    ///
    /// # Panics
    /// Never: the orders are those of a fresh worker.
    pub fn build(fabric: &Fabric) -> Result<Self, BenchError> {
        let fail = |error: &dyn std::fmt::Display| BenchError::Attach(error.to_string());
        let directory = TempDir::new().map_err(|e| BenchError::io("temporary directory", e))?;
        let status = Status::create(&directory.path().join("status"), Incarnation::default())
            .map_err(|error| fail(&error))?;
        let plan =
            FabricPlan::new(&fabric.topology, &FabricOptions::default()).map_err(|error| fail(&error))?;
        let bell = || Doorbell::create().map_err(|e| BenchError::io("eventfd", e));
        let (desk, orders) = order_rings(Arc::new(bell()?));
        let shard = plan.build_shard(&fabric.topology, 0);
        let ends = mesh(1).pop().expect("one worker was asked for");
        let worker = Worker::new(0, shard, ends, orders, status);
        let (plane, fds): (PlaneEnds<MadMessage, MadMessage>, _) =
            create_pair("solo", SLOTS, false, Incarnation::default()).map_err(|error| fail(&error))?;
        let ends = open_pair(&fds).map_err(|error| fail(&error))?;
        let (rx, tx) = split(plane, bell()?, SLOTS);
        let (slot, generation) = (0, 1);
        let (node, port) = (fabric.host, 1);
        let session = Session::new(slot, generation, (node, port), rx, tx);
        let mut solo = Self {
            worker,
            desk,
            ends,
            now_ns: 0,
            answer: MadMessage::default(),
            slot,
            generation,
            agents: 0,
            _status_directory: directory,
        };
        solo.order(Order::Open(Box::new(session)))?;
        Ok(solo)
    }

    fn order(&mut self, order: Order) -> Result<(), BenchError> {
        if self.desk.give(order).is_err() {
            return Err(BenchError::Attach("the worker takes no order".to_owned()));
        }
        self.poll();
        match self.desk.report() {
            Some(Report::Done(_)) => Ok(()),
            other => Err(BenchError::Attach(format!("the worker answered {other:?}"))),
        }
    }

    /// Registers an agent for responses of `class` and returns its `hi_tid`.
    ///
    /// # Errors
    /// [`BenchError::Attach`] if the worker refuses.
    pub fn register(&mut self, class: u8, qpn: u8) -> Result<u32, BenchError> {
        let id = AgentId { slot: self.slot, generation: self.generation, agent: self.agents };
        let spec = AgentSpec { qpn, mgmt_class: class, class_version: 1, ..AgentSpec::default() };
        self.order(Order::Register { id, spec })?;
        self.agents += 1;
        Ok(id.hi_tid())
    }

    /// One duty cycle, a microsecond after the last.
    pub fn poll(&mut self) -> usize {
        self.now_ns += 1000;
        self.worker.poll(self.now_ns)
    }

    /// Sends one MAD and returns the answer, if there is one at once.
    pub fn ask(&mut self, message: &MadMessage) -> Option<&MadMessage> {
        self.ends.up.push(message).ok()?;
        self.poll();
        if !self.ends.down.pop(&mut self.answer) {
            return None;
        }
        self.ends.down.commit();
        Some(&self.answer)
    }

    /// Asks `count` times with up to `depth` queries in the rings; every answer is checked.
    ///
    /// # Errors
    /// [`BenchError::Wrong`].
    pub fn stream(&mut self, query: &mut Query, count: u32, depth: u32) -> Result<Pace, BenchError> {
        let (mut sent, mut answered) = (0, 0);
        let mut pace = Pace::new();
        pace.start();
        while answered < count {
            while sent - answered < depth && sent < count && self.ends.up.push(query.numbered(sent)).is_ok() {
                sent += 1;
            }
            self.poll();
            let before = answered;
            while self.ends.down.pop(&mut self.answer) {
                if !query.is_answered(answered, &self.answer) {
                    return Err(BenchError::Wrong(format!("query {answered} on the caller's thread")));
                }
                answered += 1;
            }
            self.ends.down.commit();
            pace.done(answered - before);
            if before == answered {
                return Err(BenchError::Wrong(format!("{} queries got no answer", sent - answered)));
            }
        }
        Ok(pace)
    }
}

/// An envelope for a MAD of the agent `hi_tid`.
pub fn envelope(hi_tid: u32, dlid: u16, dst_qp: u32, q_key: u32) -> Envelope {
    Envelope { kind: kind::MAD, agent: hi_tid, dlid, dst_qp, q_key, length: 256, ..Envelope::default() }
}

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    let spec = options.fabric.as_deref().unwrap_or(RING);
    let fabric = Fabric::from_spec(spec)?;
    let mut solo = Solo::build(&fabric)?;
    let hi_tid = solo.register(madplane_wire::mad::CLASS_SUBN_DIRECTED, 0)?;
    let count = options.count_or(500_000);
    let routes: Vec<Route> =
        [0, 1, 2, 3, 4, 6, 8, 10, 12].into_iter().filter_map(|hops| fabric.route(hops)).collect();
    let mut times: Vec<Vec<Summary>> = vec![Vec::new(); routes.len()];
    let mut slopes = Vec::new();
    for _ in 0..options.rounds_or(7) {
        let mut points = Vec::new();
        for (route, rounds) in routes.iter().zip(&mut times) {
            let mut query = Query::new(route, hi_tid);
            solo.stream(&mut query, count / 10, DEPTH)?;
            let summary = solo.stream(&mut query, count, DEPTH)?.summary();
            points.push((route.ports.len() as f64, summary.get("ns_per_mad_median_stretch")));
            rounds.push(summary);
        }
        if let Some(line) = fit_line(&points) {
            let mut slope = Summary::of("ns_per_hop", line.slope);
            slope.values.insert("ns_at_0_hops".to_owned(), line.intercept);
            slopes.push(slope);
        }
    }
    let mut records: Vec<Record> = routes
        .iter()
        .zip(&times)
        .map(|(route, rounds)| {
            let record = Record::from_rounds("worker", &format!("{} hops", route.ports.len()), "", rounds);
            if route.ports.len() == 4 {
                let rate = record.median("per_second_median_stretch");
                return record.held_to(Bar::at_least("MADs per second per core, 4 hops", rate, 4e6)).noting(
                    "client's copies in and out and its check of the answer run on the same core and are included",
                );
            }
            record
        })
        .collect();
    let slope = Record::from_rounds("worker", "one more hop, there and back", "ns", &slopes);
    let per_hop = slope.median("ns_per_hop");
    records.push(slope.held_to(Bar::at_most("ns per extra hop", per_hop, 15.0)));
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_on_this_thread_answers_along_every_route() {
        let fabric = Fabric::from_spec(RING).unwrap();
        let mut solo = Solo::build(&fabric).unwrap();
        let hi_tid = solo.register(madplane_wire::mad::CLASS_SUBN_DIRECTED, 0).unwrap();
        for hops in 0..=12 {
            let route = fabric.route(hops).unwrap();
            solo.stream(&mut Query::new(&route, hi_tid), 100, 8).unwrap();
            let other = Route { node_guid: 1, ..route };
            assert!(solo.stream(&mut Query::new(&other, hi_tid), 1, 1).is_err());
        }
    }
}
