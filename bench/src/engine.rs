//! The engine alone: what one MAD costs from the sender's port through validation, routing and agents, and back.
//!
//! A shard of a fat tree with all its nodes, on one thread, in processor time. Every request is checked once by its answer
//! before anything is timed, and while timed the answers, or the drops, are counted. All cases take turns. No rings, no
//! worker, no clock inside: those are in `worker` and `raw`.

use std::time::Duration;

use madplane_engine::Packet;
use madplane_wire::mad::{class, method, status};
use madplane_wire::smp::attr;
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::{Mad, MadMut, SmpMut, pma};

use crate::by_lid::{EngineClient, Kind};
use crate::error::BenchError;
use crate::fabrics::Fabric;
use crate::harness::{STRETCH, Spread, Summary, fit_line};
use crate::machine::{all_cores, on_cores, thread_ns};
use crate::pinned::HOPS;
use crate::report::Record;
use crate::scenario::Options;
use crate::stint::Stint;
use crate::subnet::{Asks, Data, Subnet};

/// Hosts up to six hops away.
const FABRIC: &str = "builtin:fat-tree,radix=8,levels=3";
/// Longest directed route.
const LONGEST: usize = 6;
/// Length of the routes of all cases but those about length.
const FAR: usize = 4;
/// Of one measurement.
const DEFAULT_TIME: Duration = Duration::from_millis(40);
/// An M_Key that its node does not let anybody do without.
const M_KEY: u64 = 0x6d61_6470_6c61_6e65;

/// What is to become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Dropped,
}

/// One kind of MAD.
struct Case {
    name: String,
    hops: usize,
    way: &'static str,
    request: [Packet; 1],
    fate: Fate,
    rounds: Vec<Summary>,
}

impl Case {
    fn new(name: &str, hops: usize, way: &'static str, request: Packet) -> Self {
        let name = format!("{name}, {hops} hops");
        Self { name, hops, way, request: [request], fate: Fate::Answered, rounds: Vec::new() }
    }

    fn dropped(self) -> Self {
        Self { fate: Fate::Dropped, ..self }
    }

    /// Whether the engine does with this request what it should.
    fn check(&self, client: &mut EngineClient) -> Result<(), BenchError> {
        let answer = client.exchange(&self.request[0]);
        let is_right = match (self.fate, &answer) {
            (Fate::Dropped, None) => true,
            (Fate::Answered, Some(answer)) => {
                let (asked, view) = (Mad::new(&self.request[0].mad), Mad::new(&answer.mad));
                view.method() == method::GET_RESP
                    && view.status() & 0x7FFF == status::OK
                    && view.attr_id() == asked.attr_id()
            }
            _ => false,
        };
        if is_right { Ok(()) } else { Err(BenchError::Wrong(format!("{}: {answer:?}", self.name))) }
    }

    /// Processor time for each, nanoseconds.
    fn time(&self, client: &mut EngineClient, stint: Stint) -> Result<f64, BenchError> {
        let mut running = stint.begin();
        let (mut sent, start) = (0u64, thread_ns());
        loop {
            let seen = client.pass(&self.request, STRETCH, |_| ());
            let expected = match self.fate {
                Fate::Answered => (u64::from(STRETCH), 0),
                Fate::Dropped => (0, u64::from(STRETCH)),
            };
            if seen != expected {
                return Err(BenchError::Wrong(format!(
                    "{}: {} answered, {} dropped",
                    self.name, seen.0, seen.1
                )));
            }
            sent += u64::from(STRETCH);
            if !running.goes_on(STRETCH) {
                return Ok((thread_ns() - start) / sent as f64);
            }
        }
    }
}

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    // where the worker of a plane would be
    on_cores(&all_cores()[all_cores().len().saturating_sub(1)..], || measure(options))
}

fn measure(options: &Options) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(options.fabric.as_deref().unwrap_or(FABRIC))?;
    let mut client = EngineClient::build(&fabric)?;
    let mut cases = cases(&fabric, &mut client)?;
    for case in &cases {
        case.check(&mut client)?;
    }
    let rounds = options.rounds_or(7);
    let parts = rounds.saturating_mul(u32::try_from(cases.len()).unwrap_or(u32::MAX));
    let stint = Stint::of(options, parts, DEFAULT_TIME);
    let mut slopes = Vec::new();
    for _ in 0..rounds {
        let mut points = Vec::new();
        for case in &mut cases {
            case.time(&mut client, stint.tenth())?;
            let ns = case.time(&mut client, stint)?;
            case.rounds.push(Summary::of("ns_per_mad", ns));
            if case.way == BY_LENGTH {
                points.push((case.hops as f64, ns));
            }
        }
        if let Some(line) = fit_line(&points) {
            let mut slope = Summary::of("ns_per_hop", line.slope);
            slope.values.insert("ns_at_0_hops".to_owned(), line.intercept);
            slopes.push(slope);
        }
    }
    for case in &cases {
        case.check(&mut client)?;
    }
    let mut records: Vec<Record> = cases.iter().map(record).collect();
    records.push(
        Record::from_rounds("engine", "one more directed hop, there and back", "ns", &slopes)
            .noting("processor time on one core, out of the caches"),
    );
    Ok(records)
}

fn record(case: &Case) -> Record {
    let record = Record::from_rounds("engine", &case.name, "ns", &case.rounds);
    let rates = record.rounds("ns_per_mad").iter().map(|ns| 1e9 / ns).collect();
    record.with("per_second", Spread::new(rates)).labelled("hops", case.hops).labelled("way", case.way)
}

/// Label of the cases that differ in nothing but the length of the route.
const BY_LENGTH: &str = "directed";

fn cases(fabric: &Fabric, client: &mut EngineClient) -> Result<Vec<Case>, BenchError> {
    let subnet = Subnet::draw(fabric);
    subnet.bring_up(fabric, client)?;
    let none: Data = [0; 64];
    let node = |hops: usize, place: usize| {
        subnet
            .at_distance(hops)
            .nth(place)
            .ok_or_else(|| BenchError::Usage(format!("nothing is {hops} hops away")))
    };
    let path = |node: u32| subnet.paths[node as usize].as_slice();
    let node_info = |path: &[u8]| EngineClient::directed(path, method::GET, attr::NODE_INFO, 0, &none);
    let mut cases = vec![Case::new("NodeInfo by directed route", 0, BY_LENGTH, node_info(&[]))];
    for hops in 1..=LONGEST {
        cases.push(Case::new("NodeInfo by directed route", hops, BY_LENGTH, node_info(path(node(hops, 0)?))));
    }
    for hops in HOPS {
        let node = node(hops, 0)?;
        let request = EngineClient::request(Kind::Smp, Subnet::lid(node));
        client.check(Kind::Smp, &request, Subnet::guid(fabric, node))?;
        cases.push(Case::new("NodeInfo by LID", hops, "by LID", request));
    }
    let far = node(FAR, 0)?;
    let mut data = client.ask(path(far), method::GET, attr::PORT_INFO, 0, &none)?;
    let get = EngineClient::directed(path(far), method::GET, attr::PORT_INFO, 0, &none);
    cases.push(Case::new("Get(PortInfo) by directed route", FAR, "PortInfo", get));
    // neither state changes
    pi::PORT_STATE.set(&mut data, 0);
    pi::PORT_PHYS_STATE.set(&mut data, 0);
    let set = EngineClient::directed(path(far), method::SET, attr::PORT_INFO, 0, &data);
    cases.push(Case::new("Set(PortInfo) by directed route", FAR, "PortInfo", set));
    cases.push(Case::new(
        "Get(ClassPortInfo), performance",
        FAR,
        "performance",
        EngineClient::request(Kind::Gmp, Subnet::lid(far)),
    ));
    cases.push(Case::new(
        "Get(PortCounters), performance",
        FAR,
        "performance",
        port_counters(Subnet::lid(far)),
    ));
    let mut other_version = node_info(path(far));
    MadMut::new(&mut other_version.mad).set_base_version(2);
    cases.push(Case::new("dropped: base version", FAR, "dropped", other_version).dropped());
    cases.push(Case::new("dropped: M_Key", FAR, "dropped", refused(client, path(node(FAR, 1)?))?).dropped());
    Ok(cases)
}

/// Get(PortCounters) of port 1.
fn port_counters(lid: u16) -> Packet {
    let mut pkt = EngineClient::request(Kind::Gmp, lid);
    let mut view = MadMut::new(&mut pkt.mad);
    view.set_mgmt_class(class::PERF);
    view.set_attr_id(pma::attr::PORT_COUNTERS);
    pma::data_mut(&mut pkt.mad)[1] = 1;
    pkt
}

/// Protects the node at the end of `path`; a request with another M_Key.
fn refused(client: &mut EngineClient, path: &[u8]) -> Result<Packet, BenchError> {
    let mut data = client.ask(path, method::GET, attr::PORT_INFO, 0, &[0; 64])?;
    pi::PORT_STATE.set(&mut data, 0);
    pi::PORT_PHYS_STATE.set(&mut data, 0);
    pi::M_KEY.set(&mut data, M_KEY);
    // even a Get needs the key
    pi::M_KEY_PROTECT_BITS.set(&mut data, 3);
    client.ask(path, method::SET, attr::PORT_INFO, 0, &data)?;
    let mut request = EngineClient::directed(path, method::GET, attr::NODE_INFO, 0, &[0; 64]);
    SmpMut::new(&mut request.mad).set_m_key(!M_KEY);
    // the trap of the first violation; those that follow at once are spared theirs
    client.exchange(&request);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_meets_its_fate_and_has_a_time() {
        let options = Options { rounds: 1, count: 1, ..Options::default() };
        let records = run(&options).unwrap();
        assert_eq!(records.len(), LONGEST + 1 + HOPS.len() + 2 + 2 + 2 + 1);
        for record in &records[..records.len() - 1] {
            assert!(record.median("ns_per_mad") > 0.0, "{record:?}");
        }
    }

    #[test]
    fn a_request_that_should_be_dropped_and_is_answered_is_noticed() {
        let fabric = Fabric::from_spec(FABRIC).unwrap();
        let mut client = EngineClient::build(&fabric).unwrap();
        let answered = EngineClient::directed(&[], method::GET, attr::NODE_INFO, 0, &[0; 64]);
        let case = Case::new("not dropped", 0, "dropped", answered).dropped();
        assert!(case.check(&mut client).is_err());
        let stint = Stint::of(&Options { count: 1, ..Options::default() }, 1, Duration::ZERO);
        assert!(case.time(&mut client, stint).is_err());
    }
}
