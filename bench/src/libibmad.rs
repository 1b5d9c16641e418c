//! Query and answer through the stock libibmad: over a plane and over ibsim, in turns.
//!
//! Every round starts a fresh probe process per side: preloaded library, attach, warm up, measure. The probe runs on the
//! client's core. The plane's worker has the other one. ibsim is measured twice, since its figure is mostly that of a wake-up:
//! where the scheduler puts it, and on the client's own core, where waking is cheapest. While its turn is on the plane is
//! stopped.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::error::BenchError;
use crate::fabrics::{Fabric, HOSTS_648, Route};
use crate::ffi::{DATA_LEN, Destination, IbmadPort};
use crate::floor;
use crate::harness::{Distribution, Spread, Summary};
use crate::ibsim::Ibsim;
use crate::load::nanoseconds;
use crate::machine::{Cores, all_cores, on_cores};
use crate::plane::{Plane, PlaneOptions};
use crate::programs;
use crate::report::{Bar, Record};
use crate::scenario::Options;

/// What a probe does.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Device to open.
    pub device: String,
    /// Egress ports.
    pub path: Vec<u8>,
    /// GUID at the end.
    pub node_guid: u64,
    /// Queries to measure, after a tenth of that to warm up.
    pub count: u32,
}

impl Probe {
    /// Asks and checks; the times of all queries.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] at the first wrong or missing answer.
    pub fn run(&self) -> Result<Distribution, BenchError> {
        let mut port = IbmadPort::open(&self.device, 1)?;
        let mut destination = Destination::directed(&self.path);
        let mut data = [0xa5; DATA_LEN];
        let mut times = Distribution::new();
        let warm_up = self.count / 10;
        let mut before = Instant::now();
        for number in 0..self.count + warm_up {
            data[4..12].fill(0xa5);
            if !port.node_info(&mut destination, &mut data) {
                return Err(BenchError::Wrong(format!("query {number} got no answer")));
            }
            if data[4..12] != self.node_guid.to_be_bytes() {
                return Err(BenchError::Wrong(format!(
                    "query {number} was answered by {:02x?}",
                    &data[4..12]
                )));
            }
            let now = Instant::now();
            if number >= warm_up {
                times.record(nanoseconds(now - before));
            }
            before = now;
        }
        Ok(times)
    }

    /// The command line with which `madbench` runs this probe.
    fn command(&self) -> Result<Command, BenchError> {
        let program = std::env::current_exe().map_err(|e| BenchError::io("own program", e))?;
        let path: Vec<_> = self.path.iter().map(ToString::to_string).collect();
        let mut command = Command::new(program);
        command
            .args(["probe-libibmad", "--device", &self.device])
            .args(["--node-guid", &format!("{:#x}", self.node_guid), "--count", &self.count.to_string()])
            .stdin(Stdio::null());
        // no port at all is not an empty list of ports
        if !path.is_empty() {
            command.args(["--path", &path.join(",")]);
        }
        Ok(command)
    }
}

/// Runs a probe on the client's core and reads its result.
fn probe(command: &mut Command, cores: Cores) -> Result<Summary, BenchError> {
    let output = on_cores(&[cores.client], || command.output()).map_err(|e| BenchError::io("probe", e))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find(|line| line.starts_with('{'));
    match line.and_then(|line| serde_json::from_str(line).ok()) {
        Some(summary) if output.status.success() => Ok(summary),
        _ => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let last = complaint.lines().last().unwrap_or("said nothing").to_owned();
            Err(BenchError::program("probe-libibmad", last))
        }
    }
}

/// The scenario.
///
/// # Errors
/// [`BenchError::Missing`] without libibmad, ibsim or our preload library.
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    let cores = Cores::choose()?;
    let preload = programs::ours("libmadplane_umad.so")?;
    programs::peer_library("libibmad.so.5")?;
    let fabric = Fabric::from_spec(options.fabric.as_deref().unwrap_or(HOSTS_648))?;
    let route =
        |hops: usize| fabric.route(hops).ok_or_else(|| BenchError::Usage(format!("no route of {hops} hops")));
    let (near, far) = (route(0)?, route(4)?);
    let ibsim = Ibsim::start(&fabric)?;
    let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
    let count = options.count_or(50_000);
    let through = |device: &str, route: &Route| Probe {
        device: device.to_owned(),
        path: route.ports.clone(),
        node_guid: route.node_guid,
        count,
    };
    let (mut floors, mut nearest, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    let (mut theirs, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds_or(7) {
        for (route, results) in [(&near, &mut nearest), (&far, &mut ours)] {
            let mut command = through(PLANE_DEVICE, route).command()?;
            command.env("LD_PRELOAD", &preload).envs(plane.environment()).env("MADPLANE_AT", "");
            results.push(probe(&mut command, cores)?);
        }
        let pause = plane.pause();
        for (place, results) in [(all_cores(), &mut theirs), (&[cores.client][..], &mut beside)] {
            if !ibsim.place(place) {
                return Err(BenchError::program("ibsim", "cannot be placed"));
            }
            let mut command = through(Ibsim::DEVICE, &far).command()?;
            results.push(probe(ibsim.attach(&mut command), cores)?);
        }
        floors.push(floor::ping_pong(cores, count)?.summary(None));
        drop(pause);
    }
    let record = |case: &str, rounds: &[Summary]| Record::from_rounds("libibmad", case, "ns", rounds);
    let floor = record("floor: 256 bytes there and back", &floors);
    let nearest = over_floor(record("smp_query_via over 0 hops, plane", &nearest), &floor);
    let ours = over_floor(record("smp_query_via over 4 hops, plane", &ours), &floor);
    let theirs = record("smp_query_via over 4 hops, ibsim", &theirs);
    let beside = record("smp_query_via over 4 hops, ibsim on the client's core", &beside);
    let ratio = over_ours("ibsim over plane", &theirs, &ours);
    let ratio_beside = over_ours("ibsim on the client's core over plane", &beside, &ours);
    let ratio = [("p50", 15.0), ("p99", 10.0)].iter().fold(ratio, |record, (metric, limit)| {
        let value = record.median(metric);
        record.held_to(Bar::at_least(&format!("ibsim over plane, {metric}"), value, *limit))
    });
    Ok(vec![floor, nearest, ours, theirs, beside, ratio, ratio_beside])
}

/// Holds a median against the bare transfer of the same round.
fn over_floor(record: Record, floor: &Record) -> Record {
    let ratio = Spread::quotient(record.rounds("p50"), floor.rounds("p50"));
    let bar = Bar::at_most("p50 over the floor", ratio.median, 2.2);
    record.with("p50_over_floor", ratio).held_to(bar)
}

/// How many times as long theirs takes.
fn over_ours(case: &str, theirs: &Record, ours: &Record) -> Record {
    ["p50", "p99"].iter().fold(Record::from_rounds("libibmad", case, "times", &[]), |record, metric| {
        record.with(metric, Spread::quotient(theirs.rounds(metric), ours.rounds(metric)))
    })
}

/// Name of the device that clients of a plane see.
pub const PLANE_DEVICE: &str = "mlx5_0";
