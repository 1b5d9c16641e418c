//! Query and answer through the bare rings of a running plane, beside the floor of the machine.
//!
//! The floor and the plane take turns on the same two cores: the plane is stopped while the floor is measured.

use madplane_client::{AgentSpec, MadMessage, Outgoing, Session, SessionOptions, Taken, WaitPolicy};
use madplane_port::machine::pin_thread;
use madplane_wire::mad;
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::fabrics::{Fabric, HOSTS_648, RING, Route};
use crate::floor;
use crate::harness::{Distribution, Spread, Summary, fit_line};
use crate::load::{Query, RingClient, nanoseconds};
use crate::machine::Cores;
use crate::plane::{Plane, PlaneOptions};
use crate::report::{Bar, Record};
use crate::scenario::Options;
use crate::table::on_the_client_core;

/// Queries in flight.
const DEPTHS: [u32; 2] = [64, 256];

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    on_the_client_core(|cores| {
        let mut records = round_trips(options, cores)?;
        records.extend(pipelined(options, cores)?);
        Ok(records)
    })
}

/// Starts a plane on `fabric` with its worker on the worker's core.
fn start(fabric: &Fabric, cores: Cores) -> Result<Plane, BenchError> {
    Plane::start(&PlaneOptions::of(fabric, cores))
}

fn round_trips(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(options.fabric.as_deref().unwrap_or(RING))?;
    let routes: Vec<Route> = (0..=12).filter_map(|hops| fabric.route(hops)).collect();
    let plane = start(&fabric, cores)?;
    let mut client = RingClient::attach(plane.paths(), "", 0)?;
    let session = SessionClient::attach(&plane)?;
    let count = options.count_or(100_000);
    let mut floors = Vec::new();
    let mut through_session = Vec::new();
    let mut times: Vec<Vec<Summary>> = vec![Vec::new(); routes.len()];
    let mut slopes = Vec::new();
    for _ in 0..options.rounds_or(7) {
        let pause = plane.pause();
        floors.push(floor::ping_pong(cores, count)?.summary(None));
        drop(pause);
        pin_thread(cores.client);
        let mut points = Vec::new();
        for (route, rounds) in routes.iter().zip(&mut times) {
            let mut query = client.query(route);
            client.ask_each(&mut query, count / 10, &mut Distribution::new())?;
            let mut distribution = Distribution::new();
            client.ask_each(&mut query, count, &mut distribution)?;
            let summary = distribution.summary(None);
            points.push((route.ports.len() as f64, summary.get("p50")));
            rounds.push(summary);
        }
        if let Some(line) = fit_line(&points) {
            let mut slope = Summary::of("ns_per_hop", line.slope);
            slope.values.insert("ns_at_0_hops".to_owned(), line.intercept);
            slope.values.insert("farthest_point".to_owned(), line.worst);
            // the answer of the client's own port passes no cable: a step of its own, perhaps
            if let Some(line) = fit_line(&points[1..]) {
                slope.values.insert("ns_per_hop_from_1".to_owned(), line.slope);
            }
            slopes.push(slope);
        }
        if let Some(route) = routes.iter().find(|route| route.ports.len() == 4) {
            session.ask_each(route, count / 10)?;
            through_session.push(session.ask_each(route, count)?.summary(None));
        }
    }
    let floor = Record::from_rounds("raw", "floor: 256 bytes there and back", "ns", &floors);
    let mut records = vec![floor.clone()];
    for (route, rounds) in routes.iter().zip(&times) {
        let record = Record::from_rounds("raw", &format!("rings, {} hops", route.ports.len()), "ns", rounds);
        let ratio = Spread::quotient(record.rounds("p50"), floor.rounds("p50"));
        // the floor is one figure, its median: its own tail is that of the machine
        let tail = Spread::quotient(record.rounds("p99"), floor.rounds("p50"));
        let tails = Spread::quotient(record.rounds("p99"), floor.rounds("p99"));
        let bars = [
            (Bar::at_most("p50 over the floor", ratio.median, 1.6), [0, 4].as_slice()),
            (Bar::at_most("p99 over the floor", tail.median, 2.5), &[0]),
        ];
        let record = record
            .with("p50_over_floor", ratio)
            .with("p99_over_floor", tail)
            .with("p99_over_floors_p99", tails)
            .labelled("hops", route.ports.len());
        // the budget speaks of query and answer; hops have a bar of their own
        let of_this = bars.into_iter().filter(|(_, hops)| hops.contains(&route.ports.len()));
        records.push(of_this.fold(record, |record, (bar, _)| record.held_to(bar)));
    }
    if !through_session.is_empty() {
        let record = Record::from_rounds("raw", "session API, 4 hops", "ns", &through_session);
        let ratio = Spread::quotient(record.rounds("p50"), floor.rounds("p50"));
        records.push(record.with("p50_over_floor", ratio));
    }
    let slope = Record::from_rounds("raw", "one more hop, there and back", "ns", &slopes);
    let per_hop = slope.median("ns_per_hop");
    records.push(slope.held_to(Bar::at_most("ns per extra hop", per_hop, 15.0)));
    Ok(records)
}

fn pipelined(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(HOSTS_648)?;
    let route = fabric.route(4).ok_or_else(|| BenchError::Usage("no route of 4 hops".to_owned()))?;
    let plane = start(&fabric, cores)?;
    let mut client = RingClient::attach(plane.paths(), "", 0)?;
    let count = options.count_or(100_000) * 10;
    let mut query: Query = client.query(&route);
    let mut rates: Vec<Vec<Summary>> = vec![Vec::new(); DEPTHS.len()];
    for _ in 0..options.rounds_or(7) {
        for (depth, rounds) in DEPTHS.iter().zip(&mut rates) {
            client.ask_many(&mut query, count / 10, *depth)?;
            rounds.push(client.ask_many(&mut query, count, *depth)?.summary());
        }
    }
    let record = |(depth, rounds): (&u32, &Vec<Summary>)| {
        let case = format!("rings, 4 hops in a fat tree, {depth} in flight");
        let record = Record::from_rounds("raw", &case, "", rounds);
        let rate = record.median("per_second_median_stretch");
        record
            .held_to(Bar::at_least("MADs per second, one worker", rate, 4e6))
            .noting("one client core sends, receives and checks; the slower of the two cores decides")
    };
    Ok(DEPTHS.iter().zip(&rates).map(record).collect())
}

/// The same query through the session API, with its matching and timers.
#[derive(Debug)]
struct SessionClient {
    session: Session,
    agent: u32,
}

impl SessionClient {
    fn attach(plane: &Plane) -> Result<Self, BenchError> {
        let options =
            SessionOptions { wait: WaitPolicy::Adaptive { spin_us: 1000 }, ..SessionOptions::default() };
        let session =
            Session::open(plane.paths(), "", &options).map_err(|e| BenchError::Attach(e.to_string()))?;
        let spec =
            AgentSpec { mgmt_class: mad::CLASS_SUBN_DIRECTED, class_version: 1, ..AgentSpec::default() };
        let agent = session.register(&spec).map_err(|e| BenchError::Attach(e.to_string()))?;
        Ok(Self { session, agent })
    }

    fn ask_each(&self, route: &Route, count: u32) -> Result<Distribution, BenchError> {
        let hi_tid = self.session.hi_tid(self.agent).unwrap_or(0);
        let mut query = Query::new(route, hi_tid);
        let mut times = Distribution::new();
        let mut answer = MadMessage::default();
        let mut before = Instant::now();
        for number in 0..count {
            let message = query.numbered(number);
            let outgoing = Outgoing {
                agent: self.agent,
                envelope: message.envelope,
                data: &message.mad,
                timeout_ms: 1000,
                retries: 3,
            };
            self.session.send(&outgoing).map_err(|e| BenchError::Wrong(e.to_string()))?;
            self.session
                .recv_with(Some(Duration::from_secs(10)), |incoming| {
                    answer.envelope = *incoming.envelope;
                    if let Ok(mad) = incoming.data.try_into() {
                        answer.mad = mad;
                    }
                    Taken::Done(())
                })
                .map_err(|e| BenchError::Wrong(e.to_string()))?;
            if !query.is_answered(number, &answer) {
                return Err(BenchError::Wrong(format!("query {number} through the session API")));
            }
            let now = Instant::now();
            times.record(nanoseconds(now - before));
            before = now;
        }
        Ok(times)
    }
}
