//! What reading and publishing under the sequence lock of the route table costs, beside other ways to share a value.
//!
//! Alone on one thread, in processor time: a look at a table that did not change, publications of one route, many, and a
//! tenant, and what a reader pays to follow them. With a writer and a reader on two cores: how fast each gets on, how often
//! the reader had to throw a copy away, and the same of `crossbeam`'s `AtomicCell`, which is a sequence lock without a
//! journal, and of a `Mutex`. Every value that is read is checked for being whole.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use madplane_port::machine::pin_thread;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::TableReader;
use madplane_shm::table::tenant::TenantEntry;
use tempfile::TempDir;

use crate::error::BenchError;
use crate::harness::{STRETCH, Summary};
use crate::machine::{Cores, all_cores, on_cores, thread_ns};
use crate::report::Record;
use crate::scenario::Options;
use crate::stint::Stint;

use contenders::{Pair, Read, Write, failed, is_whole, route, table};

pub mod contenders;

/// Of one measurement.
const DEFAULT_TIME: Duration = Duration::from_millis(40);
/// Measurements of a round.
const PARTS: usize = 2 * CHANGES.len() + 2 + 3 * (1 + RATES.len());
/// What is published at once.
const CHANGES: [Change; 4] = [Change::Routes(1), Change::Routes(32), Change::Routes(1024), Change::Tenant];
/// Writes a second that a steady writer makes; none for one that never rests.
const RATES: [Option<f64>; 2] = [Some(200_000.0), None];

/// What is published at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Routes(u32),
    Tenant,
}

impl Change {
    fn name(self) -> String {
        match self {
            Self::Routes(1) => "1 route".to_owned(),
            Self::Routes(count) => format!("{count} routes"),
            Self::Tenant => "1 tenant".to_owned(),
        }
    }

    fn entries(self) -> u32 {
        match self {
            Self::Routes(count) => count,
            Self::Tenant => 1,
        }
    }

    fn publish(self, publisher: &mut RoutePublisher, tenant: &mut TenantEntry, number: u64) {
        match self {
            Self::Routes(count) => (0..count).for_each(|index| publisher.set(index, &route(number))),
            Self::Tenant => {
                tenant.id = number;
                publisher.set_tenant(0, tenant);
            }
        }
        publisher.publish();
    }
}

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    let shm = Path::new("/dev/shm");
    let directory = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() };
    let directory = directory.map_err(|e| BenchError::io("temporary directory", e))?;
    let rounds = options.rounds_or(7);
    let parts = u32::try_from(PARTS).unwrap_or(u32::MAX);
    let stint = Stint::of(options, rounds.saturating_mul(parts), DEFAULT_TIME);
    let mut records = on_cores(&all_cores()[all_cores().len().saturating_sub(1)..], || {
        alone(directory.path(), rounds, stint)
    })?;
    match Cores::choose() {
        Ok(cores) => records.extend(against_a_writer(directory.path(), rounds, stint, cores)?),
        Err(error) => {
            if let Some(last) = records.pop() {
                records.push(last.noting(format!("nothing beside a writer: {error}")));
            }
        }
    }
    Ok(records)
}

/// Runs `body` until the stint is over; processor time of each, nanoseconds.
fn each(stint: Stint, mut body: impl FnMut(u64) -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let mut number = 0;
    let mut stretch = |stint: Stint| {
        let mut running = stint.begin();
        let (start, first) = (thread_ns(), number);
        loop {
            number += 1;
            body(number)?;
            if !running.goes_on(1) {
                return Ok((thread_ns() - start) / (number - first) as f64);
            }
        }
    };
    stretch(stint.tenth())?;
    stretch(stint)
}

/// As [`each`] for something so long that the clock may be read every time.
fn each_long(stint: Stint, mut body: impl FnMut(u64) -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let mut running = stint.begin();
    let start = thread_ns();
    let mut number = 0;
    loop {
        number += 1;
        body(number)?;
        if !running.goes_on_at(Instant::now(), 1) {
            return Ok((thread_ns() - start) / number as f64);
        }
    }
}

/// The table on one thread.
fn alone(directory: &Path, rounds: u32, stint: Stint) -> Result<Vec<Record>, BenchError> {
    let path = directory.join("alone");
    let mut publisher = table(&path)?;
    let mut reader = TableReader::open(&path).map_err(failed)?;
    let mut tenant = TenantEntry::new("bench").ok_or_else(|| failed("no tenant name"))?;
    let mut looks = Vec::new();
    let mut whole = Vec::new();
    let mut changes: [Vec<Summary>; CHANGES.len()] = Default::default();
    for _ in 0..rounds {
        follow(&mut reader, None)?;
        looks.push(Summary::of("ns", look(&reader, stint)?));
        for (change, results) in CHANGES.iter().zip(&mut changes) {
            results.push(publications(*change, &mut publisher, &mut reader, &mut tenant, stint)?);
        }
        let each = each_long(stint.of_size(contenders::ROUTES), |_| {
            let mut fresh = TableReader::open(&path).map_err(failed)?;
            follow(&mut fresh, Some(contenders::ROUTES))
        })?;
        whole.push(Summary::of("ns_per_route", each / f64::from(contenders::ROUTES)));
    }
    let mut records = vec![
        Record::from_rounds("seqlock", "look at an unchanged table", "ns", &looks)
            .noting("one load and a comparison"),
        Record::from_rounds("seqlock", "a new reader of 1,024 routes", "ns", &whole)
            .noting("opening and mapping the table included"),
    ];
    for (change, rounds) in CHANGES.iter().zip(&changes) {
        let record = Record::from_rounds("seqlock", &format!("publish {}", change.name()), "ns", rounds);
        records.push(record.labelled("entries", change.entries()).noting(
            "per entry, with bringing the other bank up to date and the journal; 'follow' is what a reader on the same thread adds",
        ));
    }
    Ok(records)
}

fn look(reader: &TableReader, stint: Stint) -> Result<f64, BenchError> {
    // a thousand at once, so that counting them is not what is measured
    let thousand = each(stint.of_size(1000), |_| {
        let changed = (0..1000).any(|_| std::hint::black_box(reader).changed());
        if changed { Err(BenchError::Wrong("the table has changed".to_owned())) } else { Ok(()) }
    })?;
    Ok(thousand / 1000.0)
}

/// Publishing alone, and publishing with a reader that follows.
fn publications(
    change: Change,
    publisher: &mut RoutePublisher,
    reader: &mut TableReader,
    tenant: &mut TenantEntry,
    stint: Stint,
) -> Result<Summary, BenchError> {
    let entries = f64::from(change.entries());
    let alone = each_long_or_short(change, stint, |number| {
        change.publish(publisher, tenant, number);
        Ok(())
    })?;
    follow(reader, None)?;
    let followed = each_long_or_short(change, stint, |number| {
        change.publish(publisher, tenant, number);
        follow(reader, Some(change.entries()))
    })?;
    let mut summary = Summary::of("publish_ns_per_entry", alone / entries);
    summary.values.insert("follow_ns_per_entry".to_owned(), (followed - alone) / entries);
    summary.values.insert("publish_ns".to_owned(), alone);
    Ok(summary)
}

fn each_long_or_short(
    change: Change,
    stint: Stint,
    body: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    if change.entries() > 1 { each_long(stint.of_size(change.entries()), body) } else { each(stint, body) }
}

/// Follows the table; checks that so many entries have come, if that is known, and that each is whole.
fn follow(reader: &mut TableReader, entries: Option<u32>) -> Result<(), BenchError> {
    let mut damaged = 0;
    let done = reader.refresh(
        &mut |_, entry| damaged += u32::from(entry.is_some_and(|entry| !is_whole(entry))),
        &mut |_, _| (),
    );
    let came = done.changed + done.tenants_changed;
    let all_came = entries.is_none_or(|entries| came >= entries);
    if damaged == 0 && done.refused == 0 && done.complete && all_came {
        return Ok(());
    }
    Err(BenchError::Wrong(format!("{came} of {entries:?} entries followed, {damaged} damaged: {done:?}")))
}

/// Every contender alone and against a writer on another core, in turns.
fn against_a_writer(
    directory: &Path,
    rounds: u32,
    stint: Stint,
    cores: Cores,
) -> Result<Vec<Record>, BenchError> {
    let mut pairs = contenders::all(directory)?;
    let mut numbers = [0u64; 3];
    let mut quiet: [Vec<Summary>; 3] = Default::default();
    let mut busy: [[Vec<Summary>; RATES.len()]; 3] = Default::default();
    for _ in 0..rounds {
        for (place, pair) in pairs.iter_mut().enumerate() {
            numbers[place] += 1;
            pair.writer.write(numbers[place]);
            quiet[place].push(on_cores(&[cores.client], || unwritten(pair, numbers[place], stint))?);
            for (rate, results) in RATES.iter().zip(&mut busy[place]) {
                results.push(duel(pair, &mut numbers[place], *rate, stint, cores)?);
            }
        }
    }
    let mut records = Vec::new();
    for (place, pair) in pairs.iter().enumerate() {
        let record = |case: String, rounds: &[Summary]| {
            Record::from_rounds("seqlock", &case, "ns", rounds).labelled("impl", pair.name)
        };
        records.push(
            record(format!("read while nobody writes, {}", pair.name), &quiet[place]).labelled("writes", 0),
        );
        for (rate, rounds) in RATES.iter().zip(&busy[place]) {
            let (name, label) = match rate {
                Some(rate) => (format!("{rate:.0} writes a second"), format!("{rate:.0}")),
                None => ("a writer that never rests".to_owned(), "all".to_owned()),
            };
            records
                .push(record(format!("read beside {name}, {}", pair.name), rounds).labelled("writes", label));
        }
    }
    Ok(records)
}

/// Reads a value that does not change.
fn unwritten(pair: &mut Pair, number: u64, stint: Stint) -> Result<Summary, BenchError> {
    let reader = &mut pair.reader;
    let ns = each(stint, |_| {
        let seen = reader.read()?;
        if seen.number == number { Ok(()) } else { Err(old(seen.number, number)) }
    })?;
    Ok(Summary::of("read_ns", ns))
}

fn old(seen: u64, expected: u64) -> BenchError {
    BenchError::Wrong(format!("value {seen} was read after value {expected}"))
}

/// A writer on the worker's core, a reader on the client's.
fn duel(
    pair: &mut Pair,
    number: &mut u64,
    rate: Option<f64>,
    stint: Stint,
    cores: Cores,
) -> Result<Summary, BenchError> {
    let Pair { writer, reader, .. } = pair;
    let stop = AtomicBool::new(false);
    let panicked = || BenchError::Wrong("a thread panicked".to_owned());
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            pin_thread(cores.worker);
            write_on(writer.as_mut(), number, rate, &stop)
        });
        let reading = scope.spawn(|| {
            pin_thread(cores.client);
            let result = read_on(reader.as_mut(), stint.at_least(STRETCH));
            stop.store(true, Ordering::Relaxed);
            result
        });
        let read = reading.join().unwrap_or_else(|_| Err(panicked()));
        let (written, write_ns) = writing.join().map_err(|_| panicked())?;
        let mut summary = read?;
        summary.values.insert("writes_per_second".to_owned(), written);
        summary.values.insert("write_ns".to_owned(), write_ns);
        Ok(summary)
    })
}

/// Writes until told to stop: writes a second, and the time that one takes, waiting for the next not included.
fn write_on(writer: &mut dyn Write, number: &mut u64, rate: Option<f64>, stop: &AtomicBool) -> (f64, f64) {
    let every = rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    let (start, first) = (Instant::now(), *number);
    let (mut due, mut writing) = (start, Duration::ZERO);
    let mut now = start;
    while !stop.load(Ordering::Relaxed) {
        if let Some(every) = every {
            if now < due {
                std::hint::spin_loop();
                now = Instant::now();
                continue;
            }
            // what a pause of this thread left undone is not made up for
            due = now.max(due + every);
        }
        // several at once for one that never rests: the clock would be most of it
        let burst = if every.is_some() { 1 } else { 64 };
        let before = Instant::now();
        for _ in 0..burst {
            *number += 1;
            writer.write(*number);
        }
        now = Instant::now();
        writing += now - before;
    }
    let written = (*number - first).max(1) as f64;
    (written / start.elapsed().as_secs_f64(), writing.as_nanos() as f64 / written)
}

/// Reads until the stint is over.
fn read_on(reader: &mut dyn Read, stint: Stint) -> Result<Summary, BenchError> {
    let mut running = stint.begin();
    let (mut reads, mut fresh, mut retries, mut missed, mut newest) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let start = Instant::now();
    loop {
        let seen = reader.read()?;
        if seen.number < newest {
            return Err(old(seen.number, newest));
        }
        reads += 1;
        fresh += u64::from(seen.number != newest);
        retries += u64::from(seen.retries);
        missed += u64::from(seen.missed);
        newest = seen.number;
        if !running.goes_on(1) {
            break;
        }
    }
    let elapsed = start.elapsed();
    let mut summary = Summary::of("read_ns", elapsed.as_nanos() as f64 / reads as f64);
    for (metric, count) in [("fresh", fresh), ("retries", retries), ("missed", missed)] {
        summary.values.insert(format!("{metric}_per_read"), count as f64 / reads as f64);
    }
    summary.values.insert("fresh_per_second".to_owned(), fresh as f64 / elapsed.as_secs_f64());
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Spread;

    #[test]
    fn every_case_has_rounds_and_no_value_is_torn_or_old() {
        let options = Options { rounds: 2, count: 3000, ..Options::default() };
        let records = run(&options).unwrap();
        let alone = 2 + CHANGES.len();
        let beside = if Cores::choose().is_ok() { 3 * (1 + RATES.len()) } else { 0 };
        assert_eq!(records.len(), alone + beside);
        for record in &records {
            assert!(record.metrics.values().all(|spread: &Spread| spread.rounds.len() == 2), "{record:?}");
        }
    }

    #[test]
    fn a_reader_that_goes_back_in_time_is_noticed() {
        struct Backwards(u64);
        impl Read for Backwards {
            fn read(&mut self) -> Result<contenders::Seen, BenchError> {
                self.0 -= 1;
                Ok(contenders::Seen { number: self.0, ..contenders::Seen::default() })
            }
        }
        let stint = Stint::of(&Options { count: 5, ..Options::default() }, 1, Duration::ZERO);
        assert!(read_on(&mut Backwards(10), stint).is_err());
    }
}
