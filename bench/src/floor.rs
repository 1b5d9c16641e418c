//! What the machine itself takes: 256 bytes from core to core and back, and the same with a sleep on an eventfd.
//!
//! No program that hands a MAD to a polling core and gets the answer back can be faster than the first; none that sleeps
//! while it waits can be faster than the second. Two threads on the two cores that a plane and its client would use.
//!
//! | shared | who writes | who reads | ordering |
//! |---|---|---|---|
//! | `Slot::words` 1.. | its sender | its receiver | relaxed, ordered by word 0 |
//! | `Slot::words` 0 | its sender | its receiver | release / acquire |

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use madplane_port::machine::pin_thread;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::BenchError;
use crate::harness::{Distribution, Summary};
use crate::load::nanoseconds;
use crate::machine::Cores;
use crate::report::Record;
use crate::scenario::Options;

const WORDS: usize = 32;

/// 256 bytes in four cache lines of their own, the sequence in the first word.
#[derive(Debug)]
#[repr(align(256))]
struct Slot {
    words: [AtomicU64; WORDS],
}

impl Slot {
    fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS] }
    }

    #[inline]
    fn put(&self, payload: &[u64; WORDS], sequence: u64) {
        for (word, value) in self.words[1..].iter().zip(&payload[1..]) {
            word.store(*value, Ordering::Relaxed);
        }
        // pairs with the acquire in `take`
        self.words[0].store(sequence, Ordering::Release);
    }

    /// Waits for `sequence`; false if `stop` was raised instead.
    #[inline]
    fn take(&self, payload: &mut [u64; WORDS], sequence: u64, stop: &AtomicBool) -> bool {
        // pairs with the release in `put`
        while self.words[0].load(Ordering::Acquire) != sequence {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            spin_loop();
        }
        for (value, word) in payload[1..].iter_mut().zip(&self.words[1..]) {
            *value = word.load(Ordering::Relaxed);
        }
        true
    }
}

/// Sends 256 bytes to the worker's core and takes them back, `count` times after some to warm up.
///
/// # Errors
/// [`BenchError::Wrong`] if other bytes came back.
pub fn ping_pong(cores: Cores, count: u32) -> Result<Distribution, BenchError> {
    let (there, back, stop) = (Slot::new(), Slot::new(), AtomicBool::new(false));
    let mut times = Distribution::new();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_thread(cores.worker);
            let mut payload = [0; WORDS];
            let mut sequence = 1;
            while there.take(&mut payload, sequence, &stop) {
                back.put(&payload, sequence);
                sequence += 1;
            }
        });
        let caller = scope.spawn(|| {
            pin_thread(cores.client);
            let never = AtomicBool::new(false);
            let (mut sent, mut got) = ([0; WORDS], [0; WORDS]);
            let warm_up = u64::from(count / 10);
            let mut before = Instant::now();
            for sequence in 1..=u64::from(count) + warm_up {
                sent[1] = sequence;
                sent[WORDS - 1] = !sequence;
                there.put(&sent, sequence);
                back.take(&mut got, sequence, &never);
                if got[1] != sequence || got[WORDS - 1] != !sequence {
                    return Err(BenchError::Wrong(format!("transfer {sequence} came back changed")));
                }
                let now = Instant::now();
                if sequence > warm_up {
                    times.record(nanoseconds(now - before));
                }
                before = now;
            }
            Ok(())
        });
        let result =
            caller.join().unwrap_or_else(|_| Err(BenchError::Wrong("the caller panicked".to_owned())));
        stop.store(true, Ordering::Relaxed);
        result
    });
    result.map(|()| times)
}

/// Wakes a thread that sleeps on the worker's core and is woken by it, `count` times.
///
/// # Errors
/// [`BenchError::Io`] if eventfds fail.
pub fn eventfd_ping_pong(cores: Cores, count: u32) -> Result<Distribution, BenchError> {
    let make = || eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| BenchError::io("eventfd", e));
    let (there, back) = (make()?, make()?);
    let ring = |fd| rustix::io::write(fd, &1u64.to_ne_bytes()).map_err(|e| BenchError::io("eventfd", e));
    let wait = |fd| rustix::io::read(fd, &mut [0u8; 8]).map_err(|e| BenchError::io("eventfd", e));
    let mut times = Distribution::new();
    let total = count + count / 10;
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            pin_thread(cores.worker);
            for _ in 0..total {
                wait(&there)?;
                ring(&back)?;
            }
            Ok(())
        });
        let caller = scope.spawn(|| {
            pin_thread(cores.client);
            let mut before = Instant::now();
            for number in 0..total {
                ring(&there)?;
                wait(&back)?;
                let now = Instant::now();
                if number >= count / 10 {
                    times.record(nanoseconds(now - before));
                }
                before = now;
            }
            Ok(())
        });
        [echo, caller]
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| Err(BenchError::Wrong("a thread panicked".to_owned())))
            })
            .collect::<Result<Vec<()>, _>>()
    })?;
    Ok(times)
}

/// Floors measured in turns with something else, once a round.
#[derive(Debug, Default)]
pub struct Floors {
    transfers: Vec<Summary>,
    wakes: Vec<Summary>,
}

impl Floors {
    /// Measures both; whatever polls on these cores has to be held still meanwhile.
    ///
    /// # Errors
    /// As [`ping_pong`] and [`eventfd_ping_pong`].
    pub fn sample(&mut self, cores: Cores, count: u32) -> Result<(), BenchError> {
        self.transfers.push(ping_pong(cores, count)?.summary(None));
        self.wakes.push(eventfd_ping_pong(cores, count / 10)?.summary(None));
        Ok(())
    }

    /// The bare transfer as a record of the scenario `bench`.
    pub fn transfer(&self, bench: &str) -> Record {
        Record::from_rounds(bench, "floor: 256 bytes there and back", "ns", &self.transfers)
    }

    /// The bare wake-up as a record of the scenario `bench`.
    pub fn wake(&self, bench: &str) -> Record {
        Record::from_rounds(bench, "floor: eventfd there and back", "ns", &self.wakes)
    }
}

/// The scenario.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options) -> Result<Vec<Record>, BenchError> {
    let cores = Cores::choose()?;
    let count = options.count_or(200_000);
    let (mut transfers, mut wakes): (Vec<Summary>, Vec<Summary>) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds_or(7) {
        transfers.push(ping_pong(cores, count)?.summary(None));
        wakes.push(eventfd_ping_pong(cores, count / 10)?.summary(None));
    }
    Ok(vec![
        Record::from_rounds("floor", "256 bytes there and back, both cores spinning", "ns", &transfers)
            .noting("one clock read per round trip is included"),
        Record::from_rounds("floor", "eventfd there and back, both sides sleeping", "ns", &wakes),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_floors_count_every_round_trip() {
        let Ok(cores) = Cores::choose() else { return };
        assert_eq!(ping_pong(cores, 1000).unwrap().count(), 1000);
        assert_eq!(eventfd_ping_pong(cores, 100).unwrap().count(), 100);
    }
}
