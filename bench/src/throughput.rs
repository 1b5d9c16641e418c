//! What one client thread and its worker get done with many requests on their way.
//!
//! Directed SMPs of 1 to 6 hops, other classes and all of them mixed, Get and Set, up to 64 sessions, and two workers. All
//! cases of one fabric take turns. The bar is that of one client, one worker and four hops. Everything runs on two cores
//! if there are no more: two workers then leave the client none of its own, which the case says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use madplane_port::machine::ranges;
use madplane_shm::counters::Counter;
use madplane_shm::status::Status;
use madplane_wire::smp::port_info::field as pi;

use crate::by_lid::PlaneClient;
use crate::error::BenchError;
use crate::fabrics::{Fabric, HOSTS_648, RING, Route};
use crate::harness::{STRETCH, Summary};
use crate::machine::{Cores, all_cores};
use crate::plane::{Plane, PlaneOptions};
use crate::report::{Bar, Record};
use crate::scenario::Options;
use crate::stint::Stint;
use crate::subnet::Subnet;
use crate::table::on_the_client_core;

use flow::{Ask, Flow, stream};

pub mod flow;

/// Requests on their way, in all sessions together.
const IN_FLIGHT: u32 = 256;
/// Sessions on one thread.
const SESSIONS: [usize; 4] = [1, 4, 16, 64];
/// Length of the routes of all cases but those about length.
const HOPS: usize = 4;
/// Cases in all, for sharing the time.
const CASES: u32 = 17;
/// Of one measurement.
const DEFAULT_TIME: Duration = Duration::from_millis(200);
/// Time for a worker to be rid of sessions that have ended.
const SETTLING: Duration = Duration::from_millis(20);
/// What one client and one worker have to do a second.
const GOAL: f64 = 4e6;

/// One thing that is measured.
struct Case {
    name: String,
    asks: Vec<Ask>,
    sessions: usize,
    labels: Vec<(&'static str, String)>,
    rounds: Vec<Summary>,
    note: String,
}

impl Case {
    fn new(name: impl Into<String>, asks: Vec<Ask>, sessions: usize) -> Self {
        let labels = vec![("sessions", sessions.to_string())];
        Self { name: name.into(), asks, sessions, labels, rounds: Vec::new(), note: String::new() }
    }

    fn labelled(mut self, label: &'static str, value: impl ToString) -> Self {
        self.labels.push((label, value.to_string()));
        self
    }

    fn record(self) -> Record {
        let record = Record::from_rounds("throughput", &self.name, "", &self.rounds);
        let record = self.labels.iter().fold(record, |record, (label, value)| record.labelled(label, value));
        record.labelled("depth", IN_FLIGHT).noting(self.note)
    }
}

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    on_the_client_core(|cores| {
        let mut records = fat_tree(options, cores)?;
        records.extend(ring(options, cores)?);
        Ok(records)
    })
}

/// How many rounds, and what each case gets in one.
fn share(options: &Options) -> (u32, Stint) {
    let rounds = options.rounds_or(5);
    (rounds, Stint::of(options, rounds.saturating_mul(CASES), DEFAULT_TIME).at_least(STRETCH))
}

fn route(fabric: &Fabric, hops: usize) -> Result<Route, BenchError> {
    fabric.route(hops).ok_or_else(|| BenchError::Usage(format!("no route of {hops} hops")))
}

/// A plane that is measured, and the session that all its cases have.
struct Bed {
    plane: Plane,
    status: Status,
    workers: usize,
    first: Vec<Flow>,
}

impl Bed {
    fn start(options: &PlaneOptions, workers: usize) -> Result<Self, BenchError> {
        let plane = Plane::start(options)?;
        let (status, first) = (plane.status()?, vec![Flow::attach(&plane)?]);
        Ok(Self { plane, status, workers, first })
    }

    /// One round of a case.
    fn measure(&mut self, case: &mut Case, stint: Stint) -> Result<(), BenchError> {
        while self.first.len() < case.sessions {
            self.first.push(Flow::attach(&self.plane)?);
        }
        let depth = IN_FLIGHT / u32::try_from(case.sessions).unwrap_or(IN_FLIGHT);
        stream(&mut self.first, &mut case.asks, depth, stint.tenth())?;
        let before = self.cycles();
        let mut summary = stream(&mut self.first, &mut case.asks, depth, stint)?.summary();
        summary.values.extend(self.cycles().since(before));
        case.rounds.push(summary);
        if self.first.len() > 1 {
            self.first.truncate(1);
            std::thread::sleep(SETTLING);
        }
        Ok(())
    }

    /// What the workers have done so far.
    fn cycles(&self) -> Cycles {
        (0..self.workers).fold(Cycles::default(), |sum, worker| {
            let worker = self.status.worker(worker);
            let of = |word: &AtomicU64| word.load(Ordering::Relaxed) as f64;
            Cycles {
                busy_ns: sum.busy_ns + of(&worker.busy_ns),
                total_ns: sum.total_ns + of(&worker.total_ns),
                mads: sum.mads + of(&worker.counters[Counter::SessionReceived as usize]),
            }
        })
    }
}

/// Duty cycles of all workers of a plane, as they show them once a millisecond.
#[derive(Debug, Clone, Copy, Default)]
struct Cycles {
    /// In cycles that found something.
    busy_ns: f64,
    total_ns: f64,
    /// Taken from sessions.
    mads: f64,
}

impl Cycles {
    /// Share of the time that the workers had work, and how much of it each MAD was; nothing if nothing was shown.
    fn since(self, before: Self) -> impl Iterator<Item = (String, f64)> {
        let busy = self.busy_ns - before.busy_ns;
        [
            ("worker_busy_percent", 100.0 * busy / (self.total_ns - before.total_ns)),
            ("worker_busy_ns_per_mad", busy / (self.mads - before.mads)),
        ]
        .into_iter()
        .filter(|(_, value)| value.is_finite())
        .map(|(metric, value)| (metric.to_owned(), value))
    }
}

/// All that a fat tree of 648 hosts can show.
fn fat_tree(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(options.fabric.as_deref().unwrap_or(HOSTS_648))?;
    let subnet = Subnet::draw(&fabric);
    let mut bed = Bed::start(&PlaneOptions::of(&fabric, cores), 1)?;
    subnet.bring_up(&fabric, &mut PlaneClient::attach(bed.plane.paths(), "", 0)?)?;
    let mut cases = lengths(&fabric, 1..=HOPS)?;
    cases.extend(kinds(&fabric, &subnet, &mut bed.first[0])?);
    let far = route(&fabric, HOPS)?;
    for sessions in &SESSIONS[1..] {
        let name = format!("NodeInfo by directed route, {HOPS} hops, {sessions} sessions");
        cases.push(
            Case::new(name, vec![Ask::node_info(&far)], *sessions)
                .labelled("hops", HOPS)
                .labelled("workers", 1),
        );
    }
    let (two_cores, note) = cores_of_two(cores);
    let two = PlaneOptions {
        cores: None,
        arguments: ["--workers", "2", "--cores", &two_cores].map(str::to_owned).to_vec(),
        ..PlaneOptions::of(&fabric, cores)
    };
    let mut of_two: Vec<Case> = [1, 4]
        .map(|sessions| {
            let name = format!("NodeInfo by directed route, {HOPS} hops, {sessions} sessions, 2 workers");
            let case = Case::new(name, vec![Ask::node_info(&far)], sessions);
            Case { note: note.clone(), ..case.labelled("hops", HOPS).labelled("workers", 2) }
        })
        .into();
    let mut second = Bed::start(&two, 2)?;
    let (rounds, stint) = share(options);
    for _ in 0..rounds {
        let pause = second.plane.pause();
        for case in &mut cases {
            bed.measure(case, stint)?;
        }
        drop(pause);
        let pause = bed.plane.pause();
        for case in &mut of_two {
            second.measure(case, stint)?;
        }
        drop(pause);
    }
    Ok(cases.into_iter().chain(of_two).map(|case| held(case.record())).collect())
}

/// Routes that only a ring is long enough for.
fn ring(options: &Options, cores: Cores) -> Result<Vec<Record>, BenchError> {
    let fabric = Fabric::from_spec(RING)?;
    let mut bed = Bed::start(&PlaneOptions::of(&fabric, cores), 1)?;
    let mut cases = lengths(&fabric, HOPS + 1..=HOPS + 2)?;
    let (rounds, stint) = share(options);
    for _ in 0..rounds {
        for case in &mut cases {
            bed.measure(case, stint)?;
        }
    }
    Ok(cases.into_iter().map(|case| case.record().noting("in a ring: a fat tree is not as deep")).collect())
}

/// Directed NodeInfo by length of the route.
fn lengths(fabric: &Fabric, hops: impl Iterator<Item = usize>) -> Result<Vec<Case>, BenchError> {
    hops.map(|hops| {
        let ask = Ask::node_info(&route(fabric, hops)?);
        Ok(Case::new(format!("NodeInfo by directed route, {hops} hops"), vec![ask], 1)
            .labelled("hops", hops)
            .labelled("workers", 1))
    })
    .collect()
}

/// Other classes, other methods, and mixtures.
fn kinds(fabric: &Fabric, subnet: &Subnet, flow: &mut Flow) -> Result<Vec<Case>, BenchError> {
    let node = subnet
        .at_distance(HOPS)
        .next()
        .ok_or_else(|| BenchError::Usage(format!("nothing is {HOPS} hops away")))?;
    let (lid, guid) = (Subnet::lid(node), Subnet::guid(fabric, node));
    let path = &subnet.paths[node as usize];
    let directed = Ask::node_info(&Route { ports: path.clone(), node_guid: guid });
    let by_lid = Ask::node_info_by_lid(lid, guid);
    let mut perf = Ask::perf(lid);
    flow.learn(&mut perf)?;
    let mut get = Ask::port_info(path, None);
    let mut data = flow.learn(&mut get)?;
    // neither state changes
    pi::PORT_STATE.set(&mut data, 0);
    pi::PORT_PHYS_STATE.set(&mut data, 0);
    let mut set = Ask::port_info(path, Some(&data));
    flow.learn(&mut set)?;
    let cases = [
        ("NodeInfo by LID", vec![by_lid.clone()]),
        ("ClassPortInfo of the performance agent", vec![perf.clone()]),
        ("directed, by LID and performance in turns", vec![directed, by_lid, perf]),
        ("Get(PortInfo) by directed route", vec![get.clone()]),
        ("Set(PortInfo) by directed route", vec![set.clone()]),
        ("Get and Set(PortInfo) in turns", vec![get, set]),
    ];
    let case = |(name, asks)| {
        Case::new(format!("{name}, {HOPS} hops"), asks, 1).labelled("hops", HOPS).labelled("workers", 1)
    };
    Ok(cases.into_iter().map(case).collect())
}

/// Cores for two workers, and what there is to say about them.
fn cores_of_two(cores: Cores) -> (String, String) {
    let all = all_cores();
    if all.len() > 2 {
        return (
            ranges(&all[all.len() - 2..]),
            "each worker and the client have a core of their own".to_owned(),
        );
    }
    let both = format!("{},{}", cores.client, cores.worker);
    (both, "two cores: one worker shares the client's, so this shows what sharing costs and not what a second worker gives".to_owned())
}

/// Holds the case that the project speaks of to its bar.
fn held(record: Record) -> Record {
    if record.case != GOAL_CASE {
        return record;
    }
    let rate = record.median("per_second_median_stretch");
    record
        .held_to(Bar::at_least("MADs per second, one client, one worker", rate, GOAL))
        .noting("one client core sends, receives and checks; the slower of the two cores decides")
}

/// The case with the bar.
pub const GOAL_CASE: &str = "NodeInfo by directed route, 4 hops";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_have_cores_of_their_own_only_if_there_are_three() {
        let (cores, note) = cores_of_two(Cores { client: 0, worker: 1 });
        assert_eq!(note.starts_with("two cores"), all_cores().len() <= 2, "{cores}: {note}");
    }

    #[test]
    fn cycles_that_nobody_has_shown_yet_are_no_figure() {
        let before = Cycles { busy_ns: 100.0, total_ns: 1000.0, mads: 5.0 };
        assert_eq!(before.since(before).count(), 0);
        let after = Cycles { busy_ns: 400.0, total_ns: 1400.0, mads: 8.0 };
        let figures: Vec<_> = after.since(before).collect();
        assert_eq!(figures, [("worker_busy_percent".into(), 75.0), ("worker_busy_ns_per_mad".into(), 100.0)]);
    }

    #[test]
    fn only_the_case_of_the_bar_is_held_to_it() {
        let record = |case: &str| {
            held(
                Case {
                    rounds: vec![Summary::of("per_second_median_stretch", 5e6)],
                    ..Case::new(case, vec![], 1)
                }
                .record(),
            )
        };
        assert!(record(GOAL_CASE).bars[0].is_met());
        assert!(record("NodeInfo by directed route, 4 hops, 4 sessions").bars.is_empty());
        assert_eq!(record(GOAL_CASE).labels["sessions"], "1");
    }
}
