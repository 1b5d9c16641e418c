//! The slot ring beside ringbuf, crossbeam and rtrb: the same items, the same two cores, in turns.
//!
//! Measured are the round trip of one item (there through one ring, back through another), the stream one way in bursts of
//! 1, 8 and 32, and push and pop on one thread in processor time. Consumers check the number of every item at both of its
//! ends, and all of it while warming up. Nobody sleeps, so no doorbell is rung.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use madplane_port::machine::pin_thread;

use crate::by_lid::Patience;
use crate::error::BenchError;
use crate::floor;
use crate::harness::{Distribution, Pace, Spread, Summary};
use crate::load::nanoseconds;
use crate::machine::{Cores, thread_ns};
use crate::report::Record;
use crate::scenario::Options;
use crate::stint::Stint;

use contenders::{Contender, Item, Receive, Transmit, WORDS};

pub mod contenders;

/// Items that are pushed, and popped, at once.
const BURSTS: [usize; 3] = [1, 8, 32];
/// Bursts of the measurement on one thread.
const ALONE: [usize; 2] = [1, 32];
/// Items of which everything is checked.
const WARM_UP: u64 = 4096;
/// Items of a stretch of the stream, as many as sixteen rings hold: a full ring is emptied without its other side.
const LAPS: u32 = 16_384;
/// Of one measurement.
const DEFAULT_TIME: Duration = Duration::from_millis(40);

/// What is done with each contender.
struct Entrant {
    name: &'static str,
    note: &'static str,
    round_trips: fn(Cores, Stint) -> Result<Distribution, BenchError>,
    one_way: fn(Cores, Stint, usize) -> Result<Pace, BenchError>,
    alone: fn(Stint, usize) -> Result<f64, BenchError>,
}

const fn entrant<C: Contender>() -> Entrant {
    Entrant {
        name: C::NAME,
        note: C::NOTE,
        round_trips: round_trips::<C>,
        one_way: one_way::<C>,
        alone: alone::<C>,
    }
}

const ENTRANTS: [Entrant; 6] = [
    entrant::<contenders::Shared>(),
    entrant::<contenders::SharedUnrung>(),
    entrant::<contenders::InProcess>(),
    entrant::<contenders::Ringbuf>(),
    entrant::<contenders::Crossbeam>(),
    entrant::<contenders::Rtrb>(),
];

/// Rounds of one contender.
#[derive(Default)]
struct Results {
    trips: Vec<Summary>,
    times: Distribution,
    streams: [Vec<Summary>; BURSTS.len()],
    alone: Vec<Summary>,
}

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    let cores = Cores::choose()?;
    let rounds = options.rounds_or(7);
    let measurements = ENTRANTS.len() * (2 + BURSTS.len());
    let stint = Stint::of(
        options,
        rounds.saturating_mul(u32::try_from(measurements).unwrap_or(u32::MAX)),
        DEFAULT_TIME,
    );
    let mut floors = Vec::new();
    let mut results: [Results; ENTRANTS.len()] = Default::default();
    for _ in 0..rounds {
        floors.push(floor::ping_pong(cores, options.count_or(20_000))?.summary(None));
        for (entrant, results) in ENTRANTS.iter().zip(&mut results) {
            one_round(entrant, results, cores, stint)?;
        }
    }
    let floor = Record::from_rounds("rings", "floor: 256 bytes there and back", "ns", &floors);
    let mut records = vec![floor.clone()];
    for (entrant, results) in ENTRANTS.iter().zip(results) {
        records.extend(records_of(entrant, results, &floor));
    }
    Ok(records)
}

fn one_round(entrant: &Entrant, results: &mut Results, cores: Cores, stint: Stint) -> Result<(), BenchError> {
    let times = (entrant.round_trips)(cores, stint)?;
    results.trips.push(times.summary(None));
    results.times.merge(&times);
    for (burst, rounds) in BURSTS.iter().zip(&mut results.streams) {
        rounds.push((entrant.one_way)(cores, stint, *burst)?.summary());
    }
    let mut summary = Summary::default();
    for burst in ALONE {
        summary.values.insert(format!("burst_{burst}_ns"), (entrant.alone)(stint, burst)?);
    }
    results.alone.push(summary);
    Ok(())
}

fn records_of(entrant: &Entrant, results: Results, floor: &Record) -> Vec<Record> {
    let record = |case: &str, unit: &str, rounds: &[Summary]| {
        Record::from_rounds("rings", case, unit, rounds).labelled("impl", entrant.name).noting(entrant.note)
    };
    let trip = record(&format!("round trip, {}", entrant.name), "ns", &results.trips);
    let ratio = Spread::quotient(trip.rounds("p50"), floor.rounds("p50"));
    let mut records =
        vec![trip.with("p50_over_floor", ratio).labelled("what", "round trip").distributed(results.times)];
    for (burst, rounds) in BURSTS.iter().zip(&results.streams) {
        records.push(
            record(&format!("one way, burst {burst}, {}", entrant.name), "", rounds)
                .labelled("what", "one way")
                .labelled("burst", burst),
        );
    }
    records.push(
        record(&format!("push and pop on one thread, {}", entrant.name), "ns", &results.alone)
            .labelled("what", "one thread"),
    );
    records
}

/// The item with this number; every word differs from the same word of the next.
fn item(number: u64) -> Item {
    std::array::from_fn(|word| {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ number ^ word as u64
    })
}

/// Marks an item with a number at both of its ends.
#[inline]
fn mark(item: &mut Item, number: u64) {
    item[0] = number;
    item[WORDS - 1] = !number;
}

/// Whether an item is the one with this number, whole as far as its ends tell.
#[inline]
fn is_marked(item: &Item, number: u64) -> bool {
    item[0] == number && item[WORDS - 1] == !number
}

fn damaged(what: &str, number: u64) -> BenchError {
    BenchError::Wrong(format!("{what}: item {number} arrived changed, late or twice"))
}

/// One item there and back.
fn round_trips<C: Contender>(cores: Cores, stint: Stint) -> Result<Distribution, BenchError> {
    let ((mut tx, mut far_rx), (mut far_tx, mut rx)) = (C::pair()?, C::pair()?);
    let stop = AtomicBool::new(false);
    let caller = || {
        pin_thread(cores.client);
        let result = call::<C>(&mut tx, &mut rx, stint);
        stop.store(true, Ordering::Relaxed);
        result
    };
    let echo = || {
        pin_thread(cores.worker);
        let mut taken = [[0xa5a5; WORDS]];
        while !stop.load(Ordering::Relaxed) {
            if far_rx.pop(&mut taken) == 0 {
                std::hint::spin_loop();
            } else if far_tx.push(&taken) == 0 {
                return Err(BenchError::Wrong("an empty ring is full".to_owned()));
            }
        }
        Ok(())
    };
    both(caller, echo)
}

fn call<C: Contender>(tx: &mut C::Tx, rx: &mut C::Rx, stint: Stint) -> Result<Distribution, BenchError> {
    let mut times = Distribution::new();
    let mut taken = [[0xa5a5; WORDS]];
    let mut exchange = |sent: &[Item; 1], taken: &mut [Item; 1]| {
        if tx.push(sent) == 0 {
            return Err(BenchError::Wrong("an empty ring is full".to_owned()));
        }
        let mut patience = Patience::default();
        while rx.pop(taken) == 0 {
            patience.look()?;
        }
        Ok(())
    };
    for number in 0..WARM_UP {
        let sent = [item(number)];
        exchange(&sent, &mut taken)?;
        if taken != sent {
            return Err(damaged(C::NAME, number));
        }
    }
    let mut sent = [item(0)];
    let mut running = stint.begin();
    let mut before = Instant::now();
    for number in 0.. {
        mark(&mut sent[0], number);
        exchange(&sent, &mut taken)?;
        if !is_marked(std::hint::black_box(&taken[0]), number) {
            return Err(damaged(C::NAME, number));
        }
        let now = Instant::now();
        times.record(nanoseconds(now - before));
        if !running.goes_on_at(now, 1) {
            break;
        }
        before = now;
    }
    Ok(times)
}

/// Runs the two sides of a measurement on threads of their own; the second has to end when the first does.
fn both<R: Send>(
    measuring: impl FnOnce() -> Result<R, BenchError> + Send,
    other: impl FnOnce() -> Result<(), BenchError> + Send,
) -> Result<R, BenchError> {
    let panicked = || BenchError::Wrong("a thread panicked".to_owned());
    std::thread::scope(|scope| {
        let (other, measuring) = (scope.spawn(other), scope.spawn(measuring));
        let measured = measuring.join().unwrap_or_else(|_| Err(panicked()));
        other.join().unwrap_or_else(|_| Err(panicked()))?;
        measured
    })
}

/// A stream from the worker's core to the client's, which measures.
fn one_way<C: Contender>(cores: Cores, stint: Stint, burst: usize) -> Result<Pace, BenchError> {
    let (mut tx, mut rx) = C::pair()?;
    let stop = AtomicBool::new(false);
    let consumer = || {
        pin_thread(cores.client);
        let result = consume::<C>(&mut rx, stint, burst);
        stop.store(true, Ordering::Relaxed);
        result
    };
    let producer = || {
        pin_thread(cores.worker);
        produce::<C>(&mut tx, &stop, burst);
        Ok(())
    };
    both(consumer, producer)
}

fn produce<C: Contender>(tx: &mut C::Tx, stop: &AtomicBool, burst: usize) {
    let mut items = vec![item(0); burst];
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        for (number, place) in (next..).zip(&mut items) {
            if number < WARM_UP {
                *place = item(number);
            } else {
                mark(place, number);
            }
        }
        let mut given = 0;
        while given < burst && !stop.load(Ordering::Relaxed) {
            match tx.push(&items[given..]) {
                0 => std::hint::spin_loop(),
                count => given += count,
            }
        }
        next += burst as u64;
    }
}

fn consume<C: Contender>(rx: &mut C::Rx, stint: Stint, burst: usize) -> Result<Pace, BenchError> {
    let mut taken = vec![[0xa5a5; WORDS]; burst];
    let mut next = 0;
    let mut patience = Patience::default();
    let mut take = |taken: &mut [Item]| loop {
        match rx.pop(taken) {
            0 => patience.look()?,
            count => {
                patience = Patience::default();
                return Ok::<usize, BenchError>(count);
            }
        }
    };
    while next < WARM_UP {
        let count = take(&mut taken)?;
        for got in &taken[..count] {
            if next < WARM_UP && *got != item(next) || next >= WARM_UP && !is_marked(got, next) {
                return Err(damaged(C::NAME, next));
            }
            next += 1;
        }
    }
    let mut pace = Pace::of_stretches(LAPS);
    let mut running = stint.begin();
    let mut is_over = false;
    pace.start();
    loop {
        let count = take(&mut taken)?;
        for got in &taken[..count] {
            if !is_marked(std::hint::black_box(got), next) {
                return Err(damaged(C::NAME, next));
            }
            next += 1;
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        pace.done(count);
        is_over |= !running.goes_on(count);
        if is_over && pace.has_rate() {
            return Ok(pace);
        }
    }
}

/// Push and pop in turns on this thread: processor time per item, nanoseconds.
fn alone<C: Contender>(stint: Stint, burst: usize) -> Result<f64, BenchError> {
    let (mut tx, mut rx) = C::pair()?;
    let mut sent: Vec<Item> = vec![item(0); burst];
    let mut taken = vec![[0xa5a5; WORDS]; burst];
    let step = u32::try_from(burst).unwrap_or(u32::MAX);
    let mut next = 0;
    let mut stream = |stint: Stint| {
        let mut running = stint.begin();
        let (start, first) = (thread_ns(), next);
        loop {
            for (number, place) in (next..).zip(&mut sent) {
                mark(place, number);
            }
            if tx.push(std::hint::black_box(&sent)) != burst || rx.pop(&mut taken) != burst {
                return Err(BenchError::Wrong(format!("{} loses count", C::NAME)));
            }
            for (number, got) in (next..).zip(std::hint::black_box(&taken)) {
                if !is_marked(got, number) {
                    return Err(damaged(C::NAME, number));
                }
            }
            next += burst as u64;
            if !running.goes_on(step) {
                return Ok((thread_ns() - start) / (next - first) as f64);
            }
        }
    };
    stream(stint.tenth())?;
    stream(stint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_is_measured_in_every_way_and_by_the_same_items() {
        let options = Options { rounds: 1, count: 2000, ..Options::default() };
        let records = match run(&options) {
            Err(BenchError::Missing(_)) => return,
            result => result.unwrap(),
        };
        assert_eq!(records.len(), 1 + ENTRANTS.len() * (2 + BURSTS.len()));
        for record in &records {
            assert!(record.metrics.values().all(|spread| spread.median > 0.0), "{record:?}");
        }
        for entrant in &ENTRANTS {
            let ours =
                records.iter().filter(|r| r.labels.get("impl").is_some_and(|name| name == entrant.name));
            assert_eq!(ours.count(), 2 + BURSTS.len(), "{}", entrant.name);
        }
    }

    #[test]
    fn an_item_tells_its_number_from_the_next_in_every_word() {
        let (one, next) = (item(7), item(8));
        assert!(one.iter().zip(&next).all(|(a, b)| a != b));
        let mut marked = one;
        mark(&mut marked, 9);
        assert!(is_marked(&marked, 9) && !is_marked(&marked, 8) && !is_marked(&one, 7));
    }
}
