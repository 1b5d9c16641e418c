//! Polling, interrupt and adaptive under an open load of 0 to all a client can send: latency, processor time, wake-ups.
//!
//! One plane; its mode is changed while it runs, through the table, and found in the status segment before anything is
//! measured. Within a round the modes take turns for each load, each depth and each number of sessions, and the floors are
//! measured beside them. The measuring thread is all clients.
//!
//! | metric | what |
//! |---|---|
//! | `p50` ... | from when a request was due to its answer, ns |
//! | `service_p50` ... | from when it left; `late_p50` ... how late it left |
//! | `per_second` | answers a second |
//! | `worker_cpu`, `process_cpu` | CPU seconds per second of the worker's thread, of all of madplaned |
//! | `worker_cpu_ns_per_mad` | the same per request |
//! | `wake_ups_per_mad`, `sleeps_per_mad`, `coalesced_per_mad`, `moderated_per_mad`, `doorbells_per_mad` | per request, from the status segment |
//! | `timed_out_per_mad` | sleeps that time ended, not a doorbell: moderation, and counts that are due to be shown |
//! | `worker_calls_per_request` | sleeps and doorbells: every system call that the worker makes for traffic |
//! | `worker_calls_per_mad` | the same, a request and its answer being two MADs |
//! | `client_calls_per_request` | doorbells, and what waiting takes |
//! | `voluntary_switches_per_mad`, `involuntary_switches_per_mad` | of the worker's thread, per request |

pub mod meter;

use std::time::Duration;

use madplane_port::machine::{pin_thread, sharpen_timers};
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering;
use madplane_shm::tuning::Mode;

use crate::error::BenchError;
use crate::fabrics::{Fabric, HOSTS_648, Route};
use crate::floor::Floors;
use crate::harness::{Distribution, Spread, Summary};
use crate::load::RingClient;
use crate::machine::Cores;
use crate::modes::meter::Meter;
use crate::open_loop::{self, Load, Outcome, Pace, Sessions, Waits};
use crate::plane::{Plane, PlaneOptions};
use crate::report::{Bar, Record};
use crate::scenario::Options;
use crate::table::on_the_client_core;
use crate::tables::Publisher;

/// All modes, in the order in which they take turns.
const MODES: [Mode; 3] = [Mode::Polling, Mode::Interrupt, Mode::Adaptive];
/// Requests a second of the open loads.
const RATES: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Length of the directed route.
const HOPS: usize = 4;
/// Requests on their way at most, of an open load and of all that a client can send.
const MOST_IN_FLIGHT: u32 = 512;
const ALL_IN_FLIGHT: u32 = 256;
/// Requests on their way in closed loops.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// Sessions that share a load, and that load.
const SESSIONS: [usize; 4] = [1, 4, 16, 64];
const SHARED_RATE: u32 = 100_000;
/// Slots of the rings of further sessions.
const FURTHER_SLOTS: u32 = 256;

/// How long the parts of a round take by default.
const OPEN_S: f64 = 0.4;
const IDLE_S: f64 = 0.4;
const CLOSED_S: f64 = 0.1;
const SHARED_S: f64 = 0.15;
/// The load before the worker is idle, the time that it gets to see that, and how long it is watched then.
const BEFORE_IDLE_S: f64 = 0.1;
const IDLE_AFTER_MS: u64 = 50;
const WATCHED_S: f64 = 1.0;
/// What a round takes for each mode, by the numbers above.
const ROUND_S: f64 = IDLE_S + OPEN_S * 5.0 + CLOSED_S * 8.0 + SHARED_S * 4.0 + BEFORE_IDLE_S + WATCHED_S;
/// Shortest part.
const LEAST_S: f64 = 0.02;
/// Rounds by default.
const ROUNDS: u32 = 5;
/// Transfers of the floor, and ten times as many as wake-ups.
const FLOOR_COUNT: u32 = 30_000;

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    on_the_client_core(|cores| {
        sharpen_timers();
        let modes = if options.modes.is_empty() { MODES.to_vec() } else { wanted(&options.modes) };
        let mut bench = Bench::start(options, cores, modes)?;
        for _ in 0..options.rounds_or(ROUNDS) {
            bench.round()?;
        }
        Ok(bench.records())
    })
}

/// Those of all modes that are wanted, each once.
fn wanted(modes: &[Mode]) -> Vec<Mode> {
    MODES.into_iter().filter(|mode| modes.contains(mode)).collect()
}

/// How much longer or shorter than by default everything is.
fn scale(options: &Options, modes: usize) -> f64 {
    let whole = ROUND_S * f64::from(options.rounds_or(ROUNDS)) * modes as f64;
    match (options.duration, options.quick) {
        (Some(wanted), _) => wanted.as_secs_f64() / whole,
        (None, true) => 0.1,
        (None, false) => 1.0,
    }
}

/// One case, round by round.
#[derive(Debug)]
struct Case {
    name: String,
    labels: Vec<(&'static str, String)>,
    rounds: Vec<Summary>,
    times: Option<Distribution>,
}

/// The plane, its clients, and what was measured.
struct Bench {
    plane: Plane,
    publisher: Publisher,
    meter: Meter,
    sessions: Sessions,
    route: Route,
    cores: Cores,
    modes: Vec<Mode>,
    scale: f64,
    floors: Floors,
    cases: Vec<Case>,
}

impl Bench {
    fn start(options: &Options, cores: Cores, modes: Vec<Mode>) -> Result<Self, BenchError> {
        let fabric = Fabric::from_spec(options.fabric.as_deref().unwrap_or(HOSTS_648))?;
        let route =
            fabric.route(HOPS).ok_or_else(|| BenchError::Usage(format!("no route of {HOPS} hops")))?;
        let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
        let client = RingClient::attach(plane.paths(), "", 0)?;
        let query = client.query(&route);
        let publisher = Publisher::start(&plane, 64)?;
        let meter = Meter::of(&plane)?;
        let scale = scale(options, modes.len());
        let sessions = Sessions::new(client, query);
        let (floors, cases) = (Floors::default(), Vec::new());
        Ok(Self { plane, publisher, meter, sessions, route, cores, modes, scale, floors, cases })
    }

    /// Everything once.
    fn round(&mut self) -> Result<(), BenchError> {
        let pause = self.plane.pause();
        let count = if self.scale < 0.5 { FLOOR_COUNT / 4 } else { FLOOR_COUNT };
        self.floors.sample(self.cores, count)?;
        drop(pause);
        pin_thread(self.cores.client);
        self.for_each_mode(Self::idle)?;
        for rate in RATES {
            self.for_each_mode(|bench, mode| bench.open(mode, rate))?;
        }
        self.for_each_mode(Self::all_it_takes)?;
        for waits in [Waits::Spinning, Waits::Sleeping] {
            for depth in DEPTHS {
                self.for_each_mode(|bench, mode| bench.closed(mode, depth, waits))?;
            }
        }
        for sessions in SESSIONS {
            self.attach_up_to(sessions)?;
            self.for_each_mode(|bench, mode| bench.shared(mode, sessions))?;
        }
        self.detach()?;
        self.for_each_mode(Self::idle_after)
    }

    fn for_each_mode(
        &mut self,
        measure: impl Fn(&mut Self, Mode) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        for mode in self.modes.clone() {
            self.switch(mode)?;
            measure(self, mode)?;
        }
        Ok(())
    }

    /// Changes the mode of the worker while it runs.
    fn switch(&mut self, mode: Mode) -> Result<(), BenchError> {
        self.publisher.set_mode(mode);
        let generation = self.publisher.publish();
        // a sleeper looks at the table when it wakes
        self.sessions.ask_one()?;
        self.publisher.wait(generation)?;
        match effective(self.meter.status()) {
            Some(now) if now == mode => Ok(()),
            now => Err(BenchError::Wrong(format!("asked for {}, the worker is in {now:?}", mode.name()))),
        }
    }

    fn part(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64((seconds * self.scale).max(LEAST_S))
    }

    /// Nothing is sent.
    fn idle(&mut self, mode: Mode) -> Result<(), BenchError> {
        std::thread::sleep(Duration::from_millis(IDLE_AFTER_MS));
        let summary = self.watch(self.part(IDLE_S))?;
        self.add(
            format!("{}, idle", mode.name()),
            vec![("mode", named(mode)), ("load", text(0))],
            summary,
            None,
        );
        Ok(())
    }

    /// Nothing is sent since a moment ago.
    fn idle_after(&mut self, mode: Mode) -> Result<(), BenchError> {
        if mode == Mode::Polling {
            return Ok(());
        }
        self.send(Pace::Open(10_000.0), MOST_IN_FLIGHT, BEFORE_IDLE_S, Waits::Spinning)?;
        std::thread::sleep(Duration::from_millis(IDLE_AFTER_MS));
        let summary = self.watch(self.part(WATCHED_S))?;
        let labels = vec![("mode", named(mode)), ("after_load", text(10_000))];
        self.add(format!("{}, idle since {IDLE_AFTER_MS} ms", mode.name()), labels, summary, None);
        Ok(())
    }

    /// What the plane spends while nothing is sent.
    fn watch(&self, stretch: Duration) -> Result<Summary, BenchError> {
        let asked = self.sessions.asked();
        let counts = self.meter.counts(asked)?;
        let before = self.meter.time();
        std::thread::sleep(stretch);
        let after = self.meter.time();
        let counted = self.meter.counts(asked)?;
        let mut summary = Summary::default();
        after.since(before, 0, &mut summary);
        counted.since(counts, 0, stretch, &mut summary);
        for (from, to) in
            [("worker_cpu", "idle_worker_cpu_percent"), ("process_cpu", "idle_process_cpu_percent")]
        {
            summary.values.insert(to.to_owned(), summary.get(from) * 100.0);
        }
        Ok(summary)
    }

    fn open(&mut self, mode: Mode, rate: u32) -> Result<(), BenchError> {
        let (summary, outcome) =
            self.measure(Pace::Open(f64::from(rate)), MOST_IN_FLIGHT, OPEN_S, Waits::Spinning)?;
        let labels = vec![("mode", named(mode)), ("load", text(rate)), ("client", text("spinning"))];
        self.add(format!("{}, {rate} a second", mode.name()), labels, summary, Some(outcome.latency));
        Ok(())
    }

    fn all_it_takes(&mut self, mode: Mode) -> Result<(), BenchError> {
        let (summary, outcome) = self.measure(Pace::Closed, ALL_IN_FLIGHT, OPEN_S, Waits::Spinning)?;
        let labels = vec![
            ("mode", named(mode)),
            ("load", text("max")),
            ("in_flight", text(ALL_IN_FLIGHT)),
            ("client", text("spinning")),
        ];
        self.add(format!("{}, all it takes", mode.name()), labels, summary, Some(outcome.latency));
        Ok(())
    }

    fn closed(&mut self, mode: Mode, depth: u32, waits: Waits) -> Result<(), BenchError> {
        let (summary, outcome) = self.measure(Pace::Closed, depth, CLOSED_S, waits)?;
        let labels = vec![("mode", named(mode)), ("depth", text(depth)), ("client", text(waits.name()))];
        let name = format!("{}, depth {depth}, client {}", mode.name(), waits.name());
        self.add(name, labels, summary, Some(outcome.latency));
        Ok(())
    }

    fn shared(&mut self, mode: Mode, sessions: usize) -> Result<(), BenchError> {
        let rate = f64::from(SHARED_RATE);
        let (summary, outcome) = self.measure(Pace::Open(rate), FURTHER_SLOTS, SHARED_S, Waits::Spinning)?;
        let labels = vec![
            ("mode", named(mode)),
            ("sessions", text(sessions)),
            ("shared_load", text(SHARED_RATE)),
            ("client", text("spinning")),
        ];
        let name = format!("{}, {sessions} sessions share {SHARED_RATE} a second", mode.name());
        self.add(name, labels, summary, Some(outcome.latency));
        Ok(())
    }

    /// Warms up and measures.
    fn measure(
        &mut self,
        pace: Pace,
        in_flight: u32,
        seconds: f64,
        waits: Waits,
    ) -> Result<(Summary, Outcome), BenchError> {
        self.send(pace, in_flight, seconds / 10.0, waits)?;
        let counts = self.meter.counts(self.sessions.asked())?;
        let (calls, before) = (self.sessions.calls(), self.meter.time());
        let outcome = self.send(pace, in_flight, seconds, waits)?;
        let shown = self.meter.shown();
        let (calls, after) = (self.sessions.calls() - calls, self.meter.time());
        let counted = self.meter.counts(self.sessions.asked())?;
        let mut summary = outcome.latency.summary(Some(outcome.elapsed));
        for (what, times) in [("service", &outcome.service), ("late", &outcome.late)] {
            for (metric, value) in times.summary(None).values {
                if times.count() > 0 && matches!(metric.as_str(), "p50" | "p99" | "max") {
                    summary.values.insert(format!("{what}_{metric}"), value);
                }
            }
        }
        let per_request = calls as f64 / outcome.answered.max(1) as f64;
        summary.values.insert("client_calls_per_request".to_owned(), per_request);
        after.since(before, outcome.answered, &mut summary);
        counted.since(counts, outcome.answered, outcome.elapsed, &mut summary);
        shown.calls_since(counts, &mut summary);
        Ok((summary, outcome))
    }

    fn send(
        &mut self,
        pace: Pace,
        in_flight: u32,
        seconds: f64,
        waits: Waits,
    ) -> Result<Outcome, BenchError> {
        let load = Load { pace, in_flight, duration: self.part(seconds), waits };
        open_loop::run(&mut self.sessions, load)
    }

    fn attach_up_to(&mut self, sessions: usize) -> Result<(), BenchError> {
        while self.sessions.count() < sessions {
            let client = RingClient::attach(self.plane.paths(), "", FURTHER_SLOTS)?;
            let query = client.query(&self.route);
            self.sessions.add(client, query);
        }
        Ok(())
    }

    /// Ends all sessions but one, and waits until the worker does not look at them any more.
    fn detach(&mut self) -> Result<(), BenchError> {
        self.sessions.keep_first();
        for _ in 0..5_000 {
            if self.meter.status().worker(0).sessions.load(Ordering::Relaxed) == 1 {
                return Ok(());
            }
            // counts are shown when MADs move them
            self.sessions.ask_one()?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(BenchError::Silence(10))
    }

    fn add(
        &mut self,
        name: String,
        labels: Vec<(&'static str, String)>,
        summary: Summary,
        times: Option<Distribution>,
    ) {
        let Some(case) = self.cases.iter_mut().find(|case| case.name == name) else {
            self.cases.push(Case { name, labels, rounds: vec![summary], times });
            return;
        };
        case.rounds.push(summary);
        if let (Some(all), Some(times)) = (&mut case.times, &times) {
            all.merge(times);
        }
    }

    /// The records, with what is divided by a floor or by polling of the same round.
    fn records(self) -> Vec<Record> {
        let floors = [self.floors.transfer("modes"), self.floors.wake("modes")];
        let mut records: Vec<Record> = self.cases.into_iter().map(Case::into_record).collect();
        let polling: Vec<(String, Vec<f64>)> = records
            .iter()
            .filter_map(|record| {
                let rest = record.case.strip_prefix(Mode::Polling.name())?;
                Some((rest.to_owned(), record.rounds("p50").to_vec()))
            })
            .collect();
        records = records.into_iter().map(|record| compared(record, &floors[1], &polling)).collect();
        floors.into_iter().chain(records).collect()
    }
}

impl Case {
    fn into_record(self) -> Record {
        let mut record = Record::from_rounds("modes", &self.name, "ns", &self.rounds);
        for (label, value) in self.labels {
            record = record.labelled(label, value);
        }
        match self.times {
            Some(times) => record.distributed(times),
            None => record,
        }
    }
}

/// Adds the ratios and what they are held to.
fn compared(record: Record, wake: &Record, polling: &[(String, Vec<f64>)]) -> Record {
    let label = |name: &str| record.labels.get(name).cloned().unwrap_or_default();
    let mode = label("mode");
    let is = |name: &str, value: &str| label(name) == value;
    let over_wake = is("client", "sleeping") && is("depth", "1");
    let (over_polling, idle) = (is("load", "100000"), record.labels.contains_key("after_load"));
    let mut record = record;
    let rest = record.case.strip_prefix(mode.as_str()).unwrap_or_default().to_owned();
    if let Some((_, of_polling)) = polling.iter().find(|(of, _)| *of == rest)
        && mode != Mode::Polling.name()
        && !record.rounds("p50").is_empty()
    {
        let ratio = Spread::quotient(record.rounds("p50"), of_polling);
        if over_polling && mode == Mode::Adaptive.name() {
            record = record.held_to(Bar::at_most("p50 over polling", ratio.median, 1.15));
        }
        record = record.with("p50_over_polling", ratio);
    }
    if over_wake {
        let ratio = Spread::quotient(record.rounds("p50"), wake.rounds("p50"));
        if mode == Mode::Interrupt.name() {
            record = record.held_to(Bar::at_most("p50 over the eventfd floor", ratio.median, 1.5));
        }
        record = record.with("p50_over_eventfd", ratio);
    }
    if idle {
        let limit = if mode == Mode::Interrupt.name() { 0.5 } else { 1.0 };
        let percent = record.median("idle_process_cpu_percent");
        record = record
            .held_to(Bar::at_most("processor time when idle, percent of a core", percent, limit))
            .noting("all threads of madplaned; the load was 10,000 a second");
    }
    noted(record)
}

/// Adds what a reader has to know.
fn noted(record: Record) -> Record {
    let has = |label: &str| record.labels.contains_key(label);
    let note = match record.labels.get("load").map(String::as_str) {
        Some("max") => format!("{ALL_IN_FLIGHT} on their way, so the time is mostly spent in rings"),
        Some("1000" | "10000") => {
            "open load; the spinning client sleeps while nothing is on its way, and how late that makes it is in late_*"
                .to_owned()
        }
        Some("100000" | "1000000") => "open load; time counts from when a request was due".to_owned(),
        _ if has("sessions") => "one thread looks at all sessions in turns; that is in the time".to_owned(),
        _ => return record,
    };
    record.noting(note)
}

fn named(mode: Mode) -> String {
    mode.name().to_owned()
}

fn text(value: impl ToString) -> String {
    value.to_string()
}

/// The mode that the worker is in.
fn effective(status: &Status) -> Option<Mode> {
    Mode::from_number(u64::from(status.worker(0).mode.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(case: &str, labels: &[(&'static str, &str)], metric: &str, rounds: &[f64]) -> Record {
        let case = Case {
            name: case.to_owned(),
            labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            rounds: rounds.iter().map(|value| Summary::of(metric, *value)).collect(),
            times: None,
        };
        case.into_record()
    }

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let wake = record("floor", &[], "p50", &[10.0, 20.0, 40.0]);
        let polling = [(", 100000 a second".to_owned(), vec![1.0, 2.0, 4.0])];
        let labels = [("mode", "interrupt"), ("depth", "1"), ("client", "sleeping")];
        let sleeping = compared(record("interrupt, x", &labels, "p50", &[12.0, 24.0, 60.0]), &wake, &polling);
        assert_eq!(sleeping.rounds("p50_over_eventfd"), [1.2, 1.2, 1.5]);
        assert!(sleeping.bars.len() == 1 && sleeping.bars[0].is_met());
        let labels = [("mode", "adaptive"), ("load", "100000")];
        let load =
            compared(record("adaptive, 100000 a second", &labels, "p50", &[1.2, 2.4, 4.0]), &wake, &polling);
        assert_eq!(load.rounds("p50_over_polling"), [1.2, 1.2, 1.0]);
        assert!(load.bars.len() == 1 && !load.bars[0].is_met());
    }

    #[test]
    fn an_idle_worker_is_held_to_the_limit_of_its_mode() {
        let wake = record("floor", &[], "p50", &[]);
        for (mode, percent, met) in
            [("interrupt", 0.4, true), ("interrupt", 0.6, false), ("adaptive", 0.6, true)]
        {
            let labels = [("mode", mode), ("after_load", "10000")];
            let idle = record("idle", &labels, "idle_process_cpu_percent", &[percent]);
            let idle = compared(idle, &wake, &[]);
            assert_eq!(idle.bars[0].is_met(), met, "{mode} {percent}");
        }
    }

    #[test]
    fn time_that_is_wanted_is_shared_among_rounds_and_modes() {
        let options = Options { duration: Some(Duration::from_secs(10)), rounds: 2, ..Options::default() };
        let all = scale(&options, 3) * ROUND_S * 2.0 * 3.0;
        assert!((all - 10.0).abs() < 1e-9);
        assert!(scale(&Options::default(), 1) >= 1.0);
        assert_eq!(wanted(&[Mode::Adaptive, Mode::Polling, Mode::Adaptive]), [Mode::Polling, Mode::Adaptive]);
    }
}
