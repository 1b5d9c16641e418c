//! The same work over ibsim and over a plane, in turns: a round trip of libibmad, ibnetdiscover, OpenSM.
//!
//! Stock programs with our library preloaded on one side and ibsim's on the other, on the client's core; the plane's worker
//! has the other core, and ibsim both. While ibsim has its turn, the plane is stopped. A part whose programs are not
//! installed is left out and says so in a record without numbers.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::fabrics::{Fabric, HOSTS_648};
use crate::harness::{Spread, Summary};
use crate::ibsim::Ibsim;
use crate::libibmad::{self, PLANE_DEVICE};
use crate::machine::{Cores, all_cores, on_cores};
use crate::plane::{Plane, PlaneOptions};
use crate::programs::{self, peers_required};
use crate::report::Record;
use crate::scenario::Options;
use crate::{bringup, process::Process};

/// What all of it takes unless told otherwise, roughly.
const WHOLE: Duration = Duration::from_secs(60);
/// Longest time for one discovery.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks whether it has ended; as fine as its time is known.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// One kind of work.
struct Part {
    name: &'static str,
    rounds: u32,
    run: fn(&Options) -> Result<Vec<Record>, BenchError>,
}

const PARTS: [Part; 3] = [
    Part { name: "libibmad", rounds: 5, run: round_trips },
    Part { name: "ibnetdiscover", rounds: 5, run: discoveries },
    Part { name: "OpenSM", rounds: 5, run: bring_ups },
];

/// The scenario.
///
/// # Errors
/// [`BenchError::Missing`] if nothing of it can be done here, or anything when peers are required; others as they come.
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    let mut missing = Vec::new();
    for part in &PARTS {
        match (part.run)(&of_part(options, part.rounds)) {
            Ok(more) => records.extend(more.into_iter().map(|record| Record {
                bench: "peers".to_owned(),
                case: format!("{}: {}", part.name, record.case),
                ..record
            })),
            Err(BenchError::Missing(what)) if !peers_required() => missing.push((part.name, what)),
            Err(error) => return Err(error),
        }
    }
    if records.is_empty() {
        let all: Vec<_> = missing.into_iter().map(|(_, what)| what).collect();
        return Err(BenchError::Missing(all.join("; ")));
    }
    records.extend(missing.into_iter().map(|(part, what)| {
        Record::from_rounds("peers", &format!("{part}: skipped"), "", &[]).noting(format!("skipped: {what}"))
    }));
    Ok(records)
}

/// What a part is told: its own number of rounds, fewer if time is short, and a fabric that ibsim is quick with.
fn of_part(options: &Options, rounds: u32) -> Options {
    let within = |time: Duration| {
        let share = (time.as_secs_f64() / WHOLE.as_secs_f64()).min(1.0);
        // at most the rounds themselves, so it fits
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to rounds")]
        let fewer = (f64::from(rounds) * share) as u32;
        fewer.max(1)
    };
    let rounds = match (options.rounds, options.duration) {
        (0, Some(time)) => within(time),
        (0, None) if options.quick => 1,
        (0, None) => rounds,
        (said, _) => said,
    };
    let fabric = Some(options.fabric.clone().unwrap_or_else(|| HOSTS_648.to_owned()));
    Options { rounds, fabric, ..options.clone() }
}

fn round_trips(options: &Options) -> Result<Vec<Record>, BenchError> {
    let count = if options.count == 0 { options.count_or(20_000) } else { options.count };
    let records = libibmad::run(&Options { count, ..options.clone() })?;
    Ok(records.into_iter().map(|record| who(record.labelled("work", "round trip"))).collect())
}

fn bring_ups(options: &Options) -> Result<Vec<Record>, BenchError> {
    let unbarred = |record: Record| {
        // its bar is about a larger fabric
        let record = Record { bars: Vec::new(), ..record };
        who(record.labelled("work", "OpenSM until SUBNET UP"))
    };
    Ok(bringup::run(options)?.into_iter().map(unbarred).collect())
}

/// Labels a record with the side that it is of.
fn who(record: Record) -> Record {
    let sides = [("over plane", "ratio"), ("plane over", "ratio"), ("ibsim", "ibsim"), ("plane", "plane")];
    match sides.iter().find(|(part, _)| record.case.contains(part)) {
        Some((_, side)) => record.labelled("side", side),
        None => record,
    }
}

fn discoveries(options: &Options) -> Result<Vec<Record>, BenchError> {
    let cores = Cores::choose()?;
    let preload = programs::ours("libmadplane_umad.so")?;
    programs::peer("ibnetdiscover")?;
    let fabric = Fabric::from_spec(options.fabric.as_deref().unwrap_or(HOSTS_648))?;
    let nodes = fabric.topology.nodes.len();
    let ibsim = Ibsim::start(&fabric)?;
    if !ibsim.place(all_cores()) {
        return Err(BenchError::program("ibsim", "cannot be placed"));
    }
    let plane = Plane::start(&PlaneOptions::of(&fabric, cores))?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds_or(5) {
        ours.push(discover(PLANE_DEVICE, nodes, cores, |command| {
            command.env("LD_PRELOAD", &preload).envs(plane.environment()).env("MADPLANE_AT", "");
        })?);
        let pause = plane.pause();
        theirs.push(discover(Ibsim::DEVICE, nodes, cores, |command| {
            ibsim.attach(command);
        })?);
        drop(pause);
    }
    let record = |side: &str, rounds: &[Summary]| {
        let case = format!("{nodes} nodes, {side}");
        Record::from_rounds("peers", &case, "s", rounds)
            .labelled("work", "ibnetdiscover")
            .labelled("side", side)
    };
    let (ours, theirs) = (record("plane", &ours), record("ibsim", &theirs));
    let ratio = Spread::quotient(theirs.rounds("wall_s"), ours.rounds("wall_s"));
    let ratio = Record { unit: "times".to_owned(), ..record("ibsim over plane", &[]) }
        .with("wall_s", ratio)
        .labelled("side", "ratio");
    Ok(vec![ours, theirs, ratio])
}

/// Runs ibnetdiscover and counts what it found.
fn discover(
    device: &str,
    nodes: usize,
    cores: Cores,
    attach: impl FnOnce(&mut Command),
) -> Result<Summary, BenchError> {
    let mut command = Command::new(programs::peer("ibnetdiscover")?);
    attach(&mut command);
    let file = tempfile::NamedTempFile::new().map_err(|e| BenchError::io("temporary file", e))?;
    let output = file.reopen().map_err(|e| BenchError::io("temporary file", e))?;
    command.args(["-C", device, "-P", "1"]).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    let start = Instant::now();
    let mut process = on_cores(&[cores.client], || Process::start("ibnetdiscover", &mut command))?;
    process.finish(PATIENCE, LOOK_EVERY)?;
    let wall = start.elapsed();
    let said =
        std::fs::read_to_string(file.path()).map_err(|e| BenchError::io("output of ibnetdiscover", e))?;
    let found = said.lines().filter(|line| line.starts_with("Switch\t") || line.starts_with("Ca\t")).count();
    if found != nodes {
        return Err(BenchError::Wrong(format!("ibnetdiscover on {device} found {found} of {nodes} nodes")));
    }
    Ok(Summary::of("wall_s", wall.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_time_means_fewer_rounds_but_one() {
        let rounds = |options: &Options| of_part(options, 5).rounds;
        assert_eq!(rounds(&Options::default()), 5);
        assert_eq!(rounds(&Options { rounds: 9, quick: true, ..Options::default() }), 9);
        assert_eq!(rounds(&Options { quick: true, ..Options::default() }), 1);
        for (seconds, expected) in [(600, 5), (36, 3), (1, 1)] {
            let duration = Some(Duration::from_secs(seconds));
            assert_eq!(rounds(&Options { duration, ..Options::default() }), expected);
        }
        assert_eq!(of_part(&Options::default(), 1).fabric.as_deref(), Some(HOSTS_648));
    }

    #[test]
    fn a_record_says_whose_figure_it_is() {
        let side = |case: &str| {
            who(Record::from_rounds("x", case, "", &[])).labels.get("side").cloned().unwrap_or_default()
        };
        assert_eq!(side("smp_query_via over 4 hops, plane"), "plane");
        assert_eq!(side("smp_query_via over 4 hops, ibsim on the client's core"), "ibsim");
        assert_eq!(side("ibsim on the client's core over plane"), "ratio");
        assert_eq!(side("648 hosts, plane over ibsim"), "ratio");
        assert_eq!(side("floor: 256 bytes there and back"), "");
    }
}
