//! A load that comes whether or not the last answer has: latency from when a request was due, not from when it left.
//!
//! Request *n* of an open load is due at `start + n / rate`. Whoever is late, generator or plane, sends all that is due at
//! once; the time of a MAD counts from when it was due, so that what a stall has held up counts as late (*coordinated
//! omission*). The time from when it left is kept beside it, and so is how late it left. A closed load keeps a number of
//! requests on their way; both times are the same then. Answers may come in any order; each is checked, and one that does
//! not come is an error. Owned by one thread, which allocates nothing while a load runs.
//!
//! What it does not do: pin the thread, or warm up.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use madplane_client::MadMessage;
use madplane_wire::Mad;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::error::BenchError;
use crate::harness::Distribution;
use crate::load::{Query, RingClient, nanoseconds};

/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// Requests sent, and answers taken, before the other is looked at.
const BURST: u32 = 64;
/// Answers taken before their slots are given back.
const RELEASE_AFTER: u32 = 32;
/// A spinning generator without anything on its way sleeps if the next request is due later than this, ...
const WORTH_SLEEPING: Duration = Duration::from_micros(250);
/// ... until so long before.
const WAKES_BEFORE: Duration = Duration::from_micros(150);

/// Sleeps between two times that doorbells are emptied, long before one is full.
const WAKES_PER_TAKE: u32 = 1024;

/// What a load is sent to.
pub trait Peer {
    /// Sends request `number`; false if there is no room.
    fn send(&mut self, number: u32) -> bool;

    /// Call after the last of several requests.
    fn flush(&mut self);

    /// Takes an answer that has come, checks it, and gives the number of its request.
    ///
    /// # Errors
    /// [`BenchError::Wrong`].
    fn take(&mut self) -> Result<Option<u32>, BenchError>;

    /// Sleeps until an answer has come, `longest` at most.
    ///
    /// # Errors
    /// [`BenchError::Io`].
    fn sleep(&mut self, longest: Duration) -> Result<(), BenchError>;
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// So many a second, whatever comes back.
    Open(f64),
    /// As many as may be on their way.
    Closed,
}

/// How the generator waits for answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// By looking again; only while nothing is on its way and the next request is far does it sleep, because a core that
    /// spins for nothing disturbs the other one on many machines.
    Spinning,
    /// On the doorbell, until the next request is due.
    Sleeping,
}

impl Waits {
    /// For people and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spinning => "spinning",
            Self::Sleeping => "sleeping",
        }
    }
}

/// A load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// When requests are sent.
    pub pace: Pace,
    /// Most requests on their way; what is due beyond waits and is late.
    pub in_flight: u32,
    /// How long requests are sent, or are due.
    pub duration: Duration,
    /// How the generator waits.
    pub waits: Waits,
}

/// What a load has met.
#[derive(Debug)]
pub struct Outcome {
    /// From when a request was due to its answer, nanoseconds.
    pub latency: Distribution,
    /// From when it left to its answer.
    pub service: Distribution,
    /// From when it was due to when it left; empty for a closed load.
    pub late: Distribution,
    /// Requests, and answers.
    pub answered: u64,
    /// From the start to the last answer, or to the end of the time that was wanted if that is later.
    pub elapsed: Duration,
    /// Times that the generator slept.
    pub sleeps: u64,
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
struct Flight {
    number: u32,
    due: Instant,
    sent: Instant,
    open: bool,
}

/// The requests of a load, those on their way, and what came of the others.
struct Run<'a, P> {
    peer: &'a mut P,
    load: Load,
    start: Instant,
    /// Requests of an open load in all.
    total: u32,
    flights: Vec<Flight>,
    sent: u32,
    answered: u32,
    outcome: Outcome,
}

/// Sends `load` to `peer`.
///
/// # Errors
/// [`BenchError::Wrong`] for a wrong answer or one that nobody asked for, [`BenchError::Silence`] if one does not come,
/// [`BenchError::Usage`] for a load of nothing or of more than 32 bits can count.
pub fn run(peer: &mut impl Peer, load: Load) -> Result<Outcome, BenchError> {
    let mut run = Run::new(peer, load)?;
    let mut moved_at = run.start;
    loop {
        let now = Instant::now();
        run.send_due(now);
        if run.take()? {
            moved_at = now;
        } else if run.is_done(now) {
            break;
        } else if run.answered < run.sent && now - moved_at > PATIENCE {
            return Err(BenchError::Silence(PATIENCE.as_secs()));
        } else {
            run.wait(now)?;
        }
        if run.answered == run.sent {
            moved_at = now;
        }
    }
    run.outcome.answered = u64::from(run.answered);
    run.outcome.elapsed = run.start.elapsed().max(load.duration);
    Ok(run.outcome)
}

impl<'a, P: Peer> Run<'a, P> {
    fn new(peer: &'a mut P, load: Load) -> Result<Self, BenchError> {
        let total = match load.pace {
            Pace::Closed => u32::MAX,
            Pace::Open(rate) => requests(rate, load.duration)?,
        };
        if load.in_flight == 0 {
            return Err(BenchError::Usage("a load with nothing on its way".to_owned()));
        }
        let slots = load.in_flight.next_power_of_two() as usize;
        let outcome = Outcome {
            latency: Distribution::new(),
            service: Distribution::new(),
            late: Distribution::new(),
            answered: 0,
            elapsed: Duration::ZERO,
            sleeps: 0,
        };
        let start = Instant::now();
        let flights = vec![Flight { number: 0, due: start, sent: start, open: false }; slots];
        Ok(Self { peer, load, start, total, flights, sent: 0, answered: 0, outcome })
    }

    /// When a request is due; `now` for the next one of a closed load.
    fn due(&self, number: u32, now: Instant) -> Instant {
        match self.load.pace {
            Pace::Open(rate) => self.start + Duration::from_secs_f64(f64::from(number) / rate),
            Pace::Closed => now,
        }
    }

    /// Whether all that is to be sent is sent at `now`.
    fn is_sent(&self, now: Instant) -> bool {
        match self.load.pace {
            Pace::Open(_) => self.sent == self.total,
            Pace::Closed => now - self.start >= self.load.duration || self.sent == self.total,
        }
    }

    fn is_done(&self, now: Instant) -> bool {
        self.answered == self.sent && self.is_sent(now)
    }

    fn place(&self, number: u32) -> usize {
        number as usize & (self.flights.len() - 1)
    }

    fn send_due(&mut self, now: Instant) {
        if self.is_sent(now) {
            return;
        }
        let before = self.sent;
        while self.sent != self.total
            && self.sent - before < BURST
            && self.sent - self.answered < self.load.in_flight
        {
            let (number, place) = (self.sent, self.place(self.sent));
            let due = self.due(number, now);
            // one whose place is taken waits for an answer that others have overtaken
            if due > now || self.flights[place].open || !self.peer.send(number) {
                break;
            }
            self.flights[place] = Flight { number, due, sent: now, open: true };
            self.sent += 1;
            if self.load.pace != Pace::Closed {
                self.outcome.late.record(nanoseconds(now - due));
            }
        }
        if self.sent != before {
            self.peer.flush();
        }
    }

    /// Takes answers; whether there was one.
    fn take(&mut self) -> Result<bool, BenchError> {
        for taken in 0..BURST {
            let Some(number) = self.peer.take()? else { return Ok(taken > 0) };
            let place = self.place(number);
            let flight = &mut self.flights[place];
            if !flight.open || flight.number != number {
                return Err(BenchError::Wrong(format!("an answer to {number}, which is not on its way")));
            }
            flight.open = false;
            let now = Instant::now();
            self.outcome.latency.record(nanoseconds(now - flight.due));
            self.outcome.service.record(nanoseconds(now - flight.sent));
            self.answered += 1;
        }
        Ok(true)
    }

    /// Waits for an answer, or until the next request is due.
    fn wait(&mut self, now: Instant) -> Result<(), BenchError> {
        let is_full = self.sent - self.answered >= self.load.in_flight;
        let due = if is_full || self.is_sent(now) { None } else { Some(self.due(self.sent, now)) };
        let gap = due.map_or(PATIENCE, |due| due.saturating_duration_since(now));
        match self.load.waits {
            Waits::Spinning if self.answered == self.sent && gap > WORTH_SLEEPING => {
                std::thread::sleep(gap.saturating_sub(WAKES_BEFORE));
                self.outcome.sleeps += 1;
            }
            Waits::Spinning => std::hint::spin_loop(),
            Waits::Sleeping if gap.is_zero() => {}
            Waits::Sleeping => {
                self.peer.sleep(gap)?;
                self.outcome.sleeps += 1;
            }
        }
        Ok(())
    }
}

/// Requests of an open load of `rate` a second, at least one.
fn requests(rate: f64, duration: Duration) -> Result<u32, BenchError> {
    let wanted = (rate * duration.as_secs_f64()).round().max(1.0);
    // the rate too: NaN is lost in `max`
    if !rate.is_finite() || rate <= 0.0 || wanted >= f64::from(u32::MAX) {
        return Err(BenchError::Usage(format!("{rate} a second for {} s", duration.as_secs_f64())));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let wanted = wanted as u32;
    Ok(wanted)
}

/// Sessions of a plane that take the requests in turns.
#[derive(Debug)]
pub struct Sessions {
    all: Vec<(RingClient, Query)>,
    /// The session that is asked for an answer next.
    turn: usize,
    /// Answers taken from it whose slots are not given back.
    held: u32,
    /// Sessions, from `first` on, with requests that nobody was woken for.
    unflushed: usize,
    first: usize,
    answer: MadMessage,
    calls: u64,
    asked: u64,
    /// Watches their doorbells, made when they are first slept for.
    watch: Option<OwnedFd>,
    wakes: u32,
}

impl Sessions {
    /// One session.
    pub fn new(client: RingClient, query: Query) -> Self {
        let all = vec![(client, query)];
        let answer = MadMessage::default();
        Self {
            all,
            turn: 0,
            held: 0,
            unflushed: 0,
            first: 0,
            answer,
            calls: 0,
            asked: 0,
            watch: None,
            wakes: 0,
        }
    }

    /// Adds one.
    pub fn add(&mut self, client: RingClient, query: Query) {
        self.all.push((client, query));
        self.watch = None;
    }

    /// Number of sessions.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// One descriptor for all doorbells, by edges: nobody has to read them after a wake-up.
    fn watch_bells(&self) -> Result<OwnedFd, Errno> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (client, _) in &self.all {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&watch, client.bell(), epoll::EventData::new_u64(0), flags)?;
        }
        Ok(watch)
    }

    /// Ends all but the first.
    pub fn keep_first(&mut self) {
        self.calls = self.calls();
        self.all.truncate(1);
        self.watch = None;
        self.calls -= self.all.iter().map(|(client, _)| client.calls()).sum::<u64>();
        (self.turn, self.first, self.unflushed) = (0, 0, 0);
    }

    /// System calls that were made to wake the plane and to wait for it.
    pub fn calls(&self) -> u64 {
        self.calls + self.all.iter().map(|(client, _)| client.calls()).sum::<u64>()
    }

    /// Requests sent so far, those of sessions that have ended included.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Asks once through the first session and waits, spinning, for the answer.
    ///
    /// # Errors
    /// As [`RingClient::ask_each`].
    pub fn ask_one(&mut self) -> Result<(), BenchError> {
        let (client, query) = &mut self.all[0];
        self.asked += 1;
        client.ask_each(query, 1, &mut Distribution::new())
    }
}

impl Peer for Sessions {
    #[inline]
    fn send(&mut self, number: u32) -> bool {
        let place = number as usize % self.all.len();
        let (client, query) = &mut self.all[place];
        if !client.send(query.numbered(number)) {
            return false;
        }
        if self.unflushed == 0 {
            self.first = place;
        }
        self.unflushed += 1;
        self.asked += 1;
        true
    }

    #[inline]
    fn flush(&mut self) {
        let many = self.all.len();
        for step in 0..std::mem::take(&mut self.unflushed).min(many) {
            self.all[(self.first + step) % many].0.flush();
        }
    }

    #[inline]
    fn take(&mut self) -> Result<Option<u32>, BenchError> {
        for _ in 0..self.all.len() {
            let many = self.all.len();
            let (client, query) = &mut self.all[self.turn];
            if client.try_receive(&mut self.answer) {
                self.held += 1;
                if self.held == RELEASE_AFTER {
                    client.release();
                    self.held = 0;
                }
                // the lower half of a TID is ours
                let number = Mad::new(&self.answer.mad).tid() & u64::from(u32::MAX);
                let number = u32::try_from(number).unwrap_or(0);
                if number as usize % many == self.turn && query.is_answered(number, &self.answer) {
                    return Ok(Some(number));
                }
                return Err(query.complaint(number, &self.answer));
            }
            client.release();
            self.held = 0;
            self.turn = (self.turn + 1) % many;
        }
        Ok(None)
    }

    fn sleep(&mut self, longest: Duration) -> Result<(), BenchError> {
        let mut quiet = true;
        for (client, _) in &mut self.all {
            quiet = quiet && client.arm();
        }
        if quiet {
            let longest = Timespec::try_from(longest).ok();
            let watch = match self.watch.take() {
                Some(watch) => watch,
                None => self.watch_bells().map_err(|error| BenchError::io("watching doorbells", error))?,
            };
            self.calls += 1;
            let mut events = [const { MaybeUninit::uninit() }; 8];
            match epoll::wait(&watch, &mut events, longest.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(BenchError::io("waiting for a doorbell", error)),
            }
            self.watch = Some(watch);
            self.wakes += 1;
            if self.wakes == WAKES_PER_TAKE {
                self.wakes = 0;
                self.all.iter_mut().for_each(|(client, _)| client.empty_bell());
            }
        }
        self.all.iter_mut().for_each(|(client, _)| client.disarm());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers at once, in an order of its own; stalls, forgets or repeats where it is told to.
    #[derive(Default)]
    struct Fake {
        waiting: Vec<u32>,
        turned: bool,
        stall_at: Option<u32>,
        forgets: Option<u32>,
        repeats: Option<u32>,
        most: usize,
    }

    const STALL: Duration = Duration::from_millis(30);

    impl Peer for Fake {
        fn send(&mut self, number: u32) -> bool {
            if self.stall_at == Some(number) {
                std::thread::sleep(STALL);
            }
            if self.forgets != Some(number) {
                self.waiting.push(number);
            }
            if self.repeats == Some(number) {
                self.waiting.push(number);
            }
            self.most = self.most.max(self.waiting.len());
            true
        }

        fn flush(&mut self) {}

        fn take(&mut self) -> Result<Option<u32>, BenchError> {
            Ok(if self.turned || self.waiting.is_empty() {
                self.waiting.pop()
            } else {
                Some(self.waiting.remove(0))
            })
        }

        fn sleep(&mut self, longest: Duration) -> Result<(), BenchError> {
            std::thread::sleep(longest.min(Duration::from_millis(1)));
            Ok(())
        }
    }

    fn open(rate: f64, ms: u64) -> Load {
        let duration = Duration::from_millis(ms);
        Load { pace: Pace::Open(rate), in_flight: 64, duration, waits: Waits::Spinning }
    }

    #[test]
    fn every_request_that_was_due_is_sent_and_answered_in_any_order() {
        for waits in [Waits::Spinning, Waits::Sleeping] {
            for turned in [false, true] {
                let mut fake = Fake { turned, ..Fake::default() };
                let outcome = run(&mut fake, Load { waits, ..open(20_000.0, 50) }).unwrap();
                let counts = [&outcome.latency, &outcome.service, &outcome.late].map(Distribution::count);
                assert_eq!((outcome.answered, counts), (1000, [1000; 3]));
                assert!(outcome.elapsed >= Duration::from_millis(50));
            }
        }
    }

    #[test]
    fn what_a_stall_has_held_up_counts_as_late_though_it_is_served_at_once() {
        let mut fake = Fake { stall_at: Some(100), ..Fake::default() };
        let outcome = run(&mut fake, open(10_000.0, 50)).unwrap();
        // 300 requests were due in those 30 ms, two thirds of them 10 ms before the end
        let late = |times: &Distribution| times.histogram().count_between(9_000_000, u64::MAX);
        assert!(late(&outcome.latency) >= 190, "{}", late(&outcome.latency));
        assert!(late(&outcome.late) >= 190);
        assert!(outcome.latency.count() == 500 && outcome.service.count() == 500);
        // the stall is inside one send, so only what left with it was long on its way
        assert!(late(&outcome.service) < late(&outcome.latency));
    }

    #[test]
    fn no_more_are_on_their_way_than_allowed() {
        let mut fake = Fake { stall_at: Some(10), ..Fake::default() };
        run(&mut fake, Load { in_flight: 3, ..open(50_000.0, 20) }).unwrap();
        assert!(fake.most <= 3, "{}", fake.most);
        let mut fake = Fake::default();
        let closed = Load { pace: Pace::Closed, in_flight: 5, ..open(1.0, 5) };
        let outcome = run(&mut fake, closed).unwrap();
        assert_eq!(fake.most, 5);
        assert!(outcome.answered >= 5 && outcome.late.count() == 0);
    }

    #[test]
    fn an_answer_that_nobody_asked_for_is_an_error() {
        let mut fake = Fake { repeats: Some(7), ..Fake::default() };
        let error = run(&mut fake, open(10_000.0, 10)).unwrap_err();
        assert!(error.to_string().contains("an answer to 7, which is not on its way"), "{error}");
    }

    #[test]
    fn a_lost_answer_ends_the_load_with_an_error() {
        let mut fake = Fake { forgets: Some(7), ..Fake::default() };
        let error = run(&mut fake, Load { waits: Waits::Sleeping, ..open(10_000.0, 10) }).unwrap_err();
        assert!(matches!(error, BenchError::Silence(1)), "{error}");
    }

    #[test]
    fn a_load_of_nothing_or_of_too_much_is_refused() {
        assert_eq!(requests(1000.0, Duration::from_millis(250)).unwrap(), 250);
        assert_eq!(requests(1.0, Duration::from_millis(1)).unwrap(), 1);
        for (rate, seconds) in [(0.0, 1), (-5.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1e9, 5)] {
            assert!(requests(rate, Duration::from_secs(seconds)).is_err(), "{rate}");
        }
        assert!(run(&mut Fake::default(), Load { in_flight: 0, ..open(1.0, 1) }).is_err());
    }
}
