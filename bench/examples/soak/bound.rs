//! How late a MAD is at the most: while the mode is switched, and while it is not.
//!
//! One client spins with 16 requests on their way and takes the time of each. Its thread and the worker have a core each. The
//! bound is what `dataplane/DESIGN.md` says, with the costs that this machine has in this run: the longest wake-up of a bare
//! eventfd between the two cores and the longest duty cycle of the worker. A machine that does other things too takes either
//! thread's core away for milliseconds; those times are in all columns alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use madplane_bench::floor;
use madplane_bench::load::nanoseconds;
use madplane_bench::machine::{Cores, on_cores};
use madplane_shm::sync::Ordering;
use madplane_shm::tuning::{Parameter, Tuning};
use serde_json::json;

use crate::Fault;
use crate::asker::{Asker, Verb, Wait};
use crate::stand::Stand;

const MODES: [&str; 3] = ["polling", "interrupt", "adaptive"];
const DEPTH: u64 = 16;
/// Rounds that take turns.
const ROUNDS: u64 = 10;
/// A MAD that was rescued by the net below the doorbells would be about as late as this.
const NET: Duration = Duration::from_millis(50);

/// Times up to a minute, to three digits.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds are valid")
}

/// Measures with so many switches, and as long without.
pub(crate) fn run(switches: u64) -> Result<(), Fault> {
    let cores = Cores::choose().map_err(|error| error.to_string())?;
    let worker = cores.worker.to_string();
    let stand = on_cores(&[cores.client, cores.worker], || Stand::start(&["--cores", &worker]))?;
    let mut admin = stand.admin()?;
    let mut set = |mode: &str| {
        let args = json!({ "values": [format!("mode={mode}")], "sync": true });
        admin.call("tuning.set", &args).map_err(|error| error.to_string())
    };
    let (mut with, mut without) = (empty(), empty());
    let mut done = 0;
    for round in 0..ROUNDS {
        let share = switches * (round + 1) / ROUNDS - done;
        let begun = Instant::now();
        let (fault, times) = while_asking(&stand, cores, || {
            for number in 0..share {
                set(MODES[usize::try_from(number % 3).unwrap_or(0)])?;
            }
            Ok::<_, Fault>(())
        })?;
        fault?;
        with.add(&times).map_err(|error| error.to_string())?;
        done += share;
        let took = begun.elapsed();
        for mode in MODES {
            set(mode)?;
            let (_, times) = while_asking(&stand, cores, || std::thread::sleep(took / 3))?;
            without.add(&times).map_err(|error| error.to_string())?;
        }
    }
    report(&stand, cores, done, &with, &without)
}

/// Runs `meanwhile` while a client asks; what that said, and how long each answer took.
fn while_asking<R>(
    stand: &Stand,
    cores: Cores,
    meanwhile: impl FnOnce() -> R,
) -> Result<(R, Histogram<u64>), Fault> {
    let stop = Arc::new(AtomicBool::new(false));
    let (paths, stops) = (stand.paths().clone(), stop.clone());
    let client = on_cores(&[cores.client], || {
        std::thread::spawn(move || {
            let mut times = empty();
            let mut asker = Asker::open(&paths, Verb::Get { hops: 2 }, DEPTH, Wait::Spin)?;
            asker.ask_timed(|_| !stops.load(Relaxed), |took| times.saturating_record(nanoseconds(took)))?;
            Ok::<_, Fault>(times)
        })
    });
    let said = meanwhile();
    stop.store(true, Relaxed);
    let times = client.join().map_err(|_| "the client panicked".to_owned())??;
    Ok((said, times))
}

fn report(
    stand: &Stand,
    cores: Cores,
    switches: u64,
    with: &Histogram<u64>,
    without: &Histogram<u64>,
) -> Result<(), Fault> {
    let block = stand.status().worker(0);
    let wakes = floor::eventfd_ping_pong(cores, 100_000).map_err(|error| error.to_string())?;
    let tuning = Tuning::load(&block.tuning);
    let held_us = tuning.get(Parameter::ModeratorTimeout) + tuning.get(Parameter::PollInterval);
    let (wake_us, cycle_us) =
        (wakes.quantile(1.0) / 1_000, block.longest_cycle_ns.load(Ordering::Relaxed) / 1_000);
    let bound_us = held_us + wake_us + cycle_us;
    println!("{switches} switches, each waited for; {} answers, none missing", with.len());
    println!(
        "bound: {bound_us} us = held back {held_us} + wake-up {wake_us} (longest of 100000) + duty cycle {cycle_us} (longest)"
    );
    println!(
        "          answers        p50      p99    p99.9   p99.99      max   over the bound   over 50 ms"
    );
    let over = |times: &Histogram<u64>, most: u64| times.len() - times.count_between(0, most);
    for (name, times) in [("switching", with), ("without", without)] {
        let us = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1_000.0;
        println!(
            "{name:<9} {:>8} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} us {:>10} {:>12}",
            times.len(),
            us(0.5),
            us(0.99),
            us(0.999),
            us(0.9999),
            us(1.0),
            over(times, bound_us * 1_000),
            over(times, nanoseconds(NET)),
        );
    }
    println!("plane: {}", stand.remarks());
    Ok(())
}
