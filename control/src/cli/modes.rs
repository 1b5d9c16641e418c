//! `madctl mode` and `madctl tune`: how workers wait.
//!
//! Changes go through madctld into the table; what is shown is what the workers say of themselves in the status segment, which
//! needs neither daemon.

use clap::{Args, Subcommand};
use madctl::Plane;
use madplane_shm::counters::Counter;
use madplane_shm::paths::PlanePaths;
use madplane_shm::status::WorkerBlock;
use madplane_shm::sync::Ordering::Relaxed;
use madplane_shm::tuning::{Mode, Parameter, Tuning, TuningPatch};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::output::{self, Format, Text};
use super::routes::synced_text;
use super::status::{Head, look, worker_count};
use super::{Failure, Outcome};
use crate::admin_tuning::TuningDone;

#[derive(Debug, Subcommand)]
pub(crate) enum ModeVerb {
    /// Have workers wait otherwise, while they work: polling, interrupt or adaptive.
    Set {
        /// polling (poll), interrupt or adaptive.
        mode: String,
        /// Only this worker.
        #[arg(long, value_name = "N")]
        worker: Option<usize>,
    },
    /// Show how each worker waits, and how often it slept and was woken.
    Show,
}

const SYNTAX: &str = "\
  mode=polling|interrupt|adaptive
  moderator_timeout=US   longest time for which a wake-up is held back (rx-usecs, cq_period) [default: 16]
  moderator_pkts=N       MADs that wake at once (rx-frames, cq_count) [default: 8]
  poll_interval=US       pause between two polls of polling (poll-sleep-usec) [default: 0]
  max_empty_polls=N      empty polls before adaptive sleeps [default: 512]
  idle_poll_us=US        time without work before adaptive sleeps, whichever is first [default: 200]
  poll_threshold=N       MADs within idle_poll_us from which on only the time counts [default: 10]
  irq_threshold=N        MADs within it below which empty polls count again [default: 5]
  suspend_timeout=US     how long the load may stay between both [default: 20000]
  burst=N                MADs taken from a source at one time (budget) [default: 32]
  adaptive=off|hysteresis|dim   dim walks nine profiles of moderation (adaptive-rx) [default: hysteresis]
madctl tune show prints what holds.";

#[derive(Debug, Args)]
#[command(after_help = SYNTAX)]
pub(crate) struct TuneArgs {
    /// NAME=VALUE each, or show.
    #[arg(value_name = "NAME=VALUE|show")]
    values: Vec<String>,
    /// Only this worker.
    #[arg(long, value_name = "N")]
    worker: Option<usize>,
    /// Back to what the workers were started with, before anything else.
    #[arg(long)]
    reset: bool,
}

#[derive(Debug, Serialize)]
struct WorkerMode {
    worker: usize,
    cpu: Option<u32>,
    mode: &'static str,
    asked: &'static str,
    shares_core: bool,
    moderation_us: u64,
    moderation_pkts: u64,
    asleep_share: f64,
    sleeps: u64,
    sleeps_moderated: u64,
    wake_ups: u64,
    wake_ups_coalesced: u64,
    mads: u64,
    mode_changes: u64,
}

impl WorkerMode {
    fn of(worker: usize, block: &WorkerBlock) -> Self {
        let count = |counter: Counter| block.counters[counter as usize].load(Relaxed);
        let tuning = Tuning::load(&block.tuning);
        Self {
            worker,
            cpu: Some(block.cpu.load(Relaxed)).filter(|cpu| *cpu != u32::MAX),
            mode: Mode::from_number(block.mode.load(Relaxed).into()).unwrap_or_default().name(),
            asked: tuning.mode().name(),
            shares_core: block.shares_core.load(Relaxed) == 1,
            moderation_us: block.moderation_us.load(Relaxed),
            moderation_pkts: block.moderation_pkts.load(Relaxed),
            asleep_share: share(block.slept_ns.load(Relaxed), block.total_ns.load(Relaxed)),
            sleeps: count(Counter::WorkerSleeps),
            sleeps_moderated: count(Counter::SleepsModerated),
            wake_ups: count(Counter::WakeUps),
            wake_ups_coalesced: count(Counter::WakeUpsCoalesced),
            mads: count(Counter::SessionReceived) + count(Counter::ShardReceived),
            mode_changes: count(Counter::ModeChanges),
        }
    }
}

/// Part of the whole in ten thousandths, from 0 to 1.
fn share(part: u64, whole: u64) -> f64 {
    let ratio = u128::from(part) * 10_000 / u128::from(whole.max(1));
    f64::from(u16::try_from(ratio).unwrap_or(10_000).min(10_000)) / 10_000.0
}

#[derive(Debug, Serialize)]
struct Modes {
    plane: Head,
    workers: Vec<WorkerMode>,
}

impl Text for Modes {
    fn text(&self) -> String {
        let heads = [
            "worker",
            "cpu",
            "mode",
            "asleep",
            "sleeps",
            "moderated",
            "wake-ups",
            "coalesced",
            "MADs",
            "changes",
        ];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for of in &self.workers {
            let mode = if of.mode == of.asked {
                of.mode.to_owned()
            } else {
                format!("{} for {}", of.mode, of.asked)
            };
            rows.push(vec![
                of.worker.to_string(),
                of.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
                mode,
                format!("{:.1}%", of.asleep_share * 100.0),
                of.sleeps.to_string(),
                of.sleeps_moderated.to_string(),
                of.wake_ups.to_string(),
                of.wake_ups_coalesced.to_string(),
                of.mads.to_string(),
                of.mode_changes.to_string(),
            ]);
        }
        let mut text = self.plane.text() + &output::table(&rows);
        if self.workers.iter().any(|of| of.shares_core) {
            text.push_str(
                "a worker that has to leave its core to others waits for interrupts, whatever it is asked for\n",
            );
        }
        text
    }
}

#[derive(Debug, Serialize)]
struct Tunings {
    plane: Head,
    workers: Vec<Map<String, Value>>,
}

impl Text for Tunings {
    fn text(&self) -> String {
        let numbers = (0..self.workers.len()).map(|worker| format!("worker {worker}"));
        let mut rows =
            vec![std::iter::once("parameter".to_owned()).chain(numbers).chain([String::new()]).collect()];
        for parameter in Parameter::ALL {
            let values = self.workers.iter().map(|of| match &of[parameter.label()] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            let unit = parameter.unit().to_owned();
            rows.push(
                std::iter::once(parameter.label().to_owned()).chain(values).chain([unit]).collect::<Vec<_>>(),
            );
        }
        self.plane.text() + &output::table(&rows)
    }
}

fn tuning_map(worker: usize, tuning: &Tuning) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("worker".to_owned(), worker.into());
    for parameter in Parameter::ALL {
        let value = tuning.get(parameter);
        let shown = if parameter.unit().is_empty() { parameter.show(value).into() } else { value.into() };
        map.insert(parameter.label().to_owned(), shown);
    }
    map
}

#[derive(Debug, Serialize)]
struct Tuned {
    worker: Option<usize>,
    #[serde(flatten)]
    done: TuningDone,
}

impl Text for Tuned {
    fn text(&self) -> String {
        let TuningDone { generation, asked, synced, workers, hw_sync_latency_ns } = &self.done;
        let who = self.worker.map_or_else(|| "all workers".to_owned(), |worker| format!("worker {worker}"));
        let asked = if asked.is_empty() { "as started" } else { asked };
        format!("{who}: {asked}{}\n", synced_text(*generation, *synced, *workers, *hw_sync_latency_ns))
    }
}

pub(crate) fn mode(paths: &PlanePaths, format: Format, verb: ModeVerb) -> Outcome {
    match verb {
        ModeVerb::Set { mode, worker } => set(paths, format, &[format!("mode={mode}")], worker, false),
        ModeVerb::Show => {
            let (status, plane) = look(paths)?;
            let workers = (0..worker_count(&status))
                .map(|worker| WorkerMode::of(worker, status.worker(worker)))
                .collect();
            Ok(output::print(format, &Modes { plane, workers })?)
        }
    }
}

pub(crate) fn tune(paths: &PlanePaths, format: Format, args: &TuneArgs) -> Outcome {
    let TuneArgs { values, worker, reset } = args;
    if values.as_slice() == ["show"] && !reset {
        let (status, plane) = look(paths)?;
        let known = 0..worker_count(&status);
        if let Some(worker) = worker.filter(|worker| !known.contains(worker)) {
            let last = known.end.max(1) - 1;
            return Err(Failure::Failed(format!("there is no worker {worker}; workers are 0 to {last}")));
        }
        let of = worker.map_or(known, |worker| worker..worker + 1);
        let workers =
            of.map(|worker| tuning_map(worker, &Tuning::load(&status.worker(worker).tuning))).collect();
        return Ok(output::print(format, &Tunings { plane, workers })?);
    }
    if values.is_empty() && !reset {
        return Err(Failure::Usage("give NAME=VALUE, show, or --reset (see madctl tune --help)".to_owned()));
    }
    set(paths, format, values, *worker, *reset)
}

fn set(paths: &PlanePaths, format: Format, values: &[String], worker: Option<usize>, reset: bool) -> Outcome {
    // said here already, so that a slip is one of usage and needs no daemon
    TuningPatch::parse(values.iter().map(String::as_str))
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let mut admin = Plane::at(paths.clone()).admin()?;
    let args = json!({ "values": values, "worker": worker, "reset": reset, "sync": true });
    let result = admin.call("tuning.set", &args)?;
    let done = serde_json::from_value(result).map_err(Failure::failed)?;
    Ok(output::print(format, &Tuned { worker, done })?)
}
