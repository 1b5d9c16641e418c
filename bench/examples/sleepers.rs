//! A client and a worker that sleep between two MADs, beside a bare eventfd ping-pong on the same two cores, and what the plane
//! costs when nothing comes any more.
//!
//! `sleepers [MODE,MODE...] [DEPTH] [ROUNDS] [COUNT] [sleep|spin] [GAP_US]`; defaults interrupt, 1, 7, 2000, sleep, 0. Rounds of
//! the ping-pong and of each mode take turns, planes whose turn it is not are held still. With a gap the client waits so long
//! before it sends again. With ROUNDS 0 there is one stream and no ping-pong: for a tracer of system calls (`strace -f -o FILE`,
//! counted by thread), and to see which side of a stream is the slower one.
#![forbid(unsafe_code)]

use std::io::Write;
use std::time::{Duration, Instant};

use madplane_bench::BenchError;
use madplane_bench::fabrics::{Fabric, RING};
use madplane_bench::floor;
use madplane_bench::harness::{Distribution, Spread};
use madplane_bench::load::{Query, nanoseconds};
use madplane_bench::machine::Cores;
use madplane_bench::plane::{Plane, PlaneOptions};
use madplane_client::{AgentSpec, MadMessage, RawReceiver, RawSender, RawSession};
use madplane_port::machine::pin_thread;
use madplane_shm::sync::Ordering;
use madplane_wire::mad;

/// How to ask.
#[derive(Clone, Copy)]
struct Manner {
    count: u32,
    depth: u32,
    sleeps: bool,
    gap: Duration,
}

/// A plane in one mode, and its client.
struct Subject {
    mode: String,
    plane: Plane,
    sender: RawSender,
    receiver: RawReceiver,
    query: Query,
    p50: Vec<f64>,
}

impl Subject {
    fn start(mode: &str, fabric: &Fabric, cores: Cores) -> Result<Self, BenchError> {
        let mut options = PlaneOptions::of(fabric, cores);
        options.arguments.extend(["--mode".to_owned(), mode.to_owned()]);
        let plane = Plane::start(&options)?;
        pin_thread(cores.client);
        let attach = |e: &dyn std::fmt::Display| BenchError::Attach(e.to_string());
        let mut client = RawSession::open(plane.paths(), "", 0).map_err(|e| attach(&e))?;
        let spec =
            AgentSpec { mgmt_class: mad::CLASS_SUBN_DIRECTED, class_version: 1, ..AgentSpec::default() };
        let hi_tid = client.register(&spec).map_err(|e| attach(&e))?;
        let route = fabric.route(0).ok_or_else(|| BenchError::Usage("no route".to_owned()))?;
        let (sender, receiver) = client.split();
        Ok(Self {
            mode: mode.to_owned(),
            plane,
            sender,
            receiver,
            query: Query::new(&route, hi_tid),
            p50: Vec::new(),
        })
    }

    /// Queries with up to `depth` on their way; a time is from a burst of queries to the answers that come first.
    fn ask(&mut self, manner: Manner) -> Result<Distribution, BenchError> {
        let Manner { count, depth, sleeps, gap } = manner;
        let mut times = Distribution::new();
        let mut answer = MadMessage::default();
        let (mut sent, mut answered) = (0, 0);
        while answered < count {
            let before = Instant::now();
            let room = depth.saturating_sub(sent - answered).min(count - sent);
            for _ in 0..room {
                if self.sender.push(self.query.numbered(sent)).is_err() {
                    break;
                }
                sent += 1;
            }
            self.sender.flush();
            let from = answered;
            let mut looks: u32 = 0;
            loop {
                while self.receiver.try_recv(&mut answer) {
                    if !self.query.is_answered(answered, &answer) {
                        return Err(BenchError::Wrong(format!("query {answered}")));
                    }
                    answered += 1;
                }
                if answered != from {
                    break;
                }
                if sleeps {
                    self.receiver.wait(Duration::from_millis(100));
                }
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(1024) && before.elapsed() > Duration::from_secs(10) {
                    return Err(BenchError::Silence(10));
                }
            }
            let now = Instant::now();
            times.record(nanoseconds(now - before));
            while !gap.is_zero() && now.elapsed() < gap {
                std::hint::spin_loop();
            }
        }
        Ok(times)
    }

    /// Asks and says how fast that was, and which of the two had to wait: a worker that finds full bursts is the slower one.
    fn stream(&mut self, manner: Manner, out: &mut impl Write) -> Result<(), BenchError> {
        let status = self.plane.status()?;
        let cycles = || {
            // what moved is shown within a millisecond
            std::thread::sleep(Duration::from_millis(5));
            status.worker(0).polls_full.load(Ordering::Relaxed)
        };
        let before = cycles();
        let since = Instant::now();
        self.ask(manner)?;
        let elapsed = since.elapsed();
        let cycles = (cycles() - before).max(1) as f64;
        let _ = writeln!(
            out,
            "{}, {} in flight: {:.0} ns per MAD, {:.1} MADs per duty cycle that found some",
            self.mode,
            manner.depth,
            elapsed.as_nanos() as f64 / f64::from(manner.count),
            f64::from(manner.count) / cycles
        );
        Ok(())
    }

    /// Nanoseconds on a CPU so far, by thread.
    fn on_cpu(&self) -> Vec<(String, u64)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.plane.process().id()));
        let read = |task: std::fs::DirEntry| {
            let text = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let ns = text("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            (text("comm").trim().to_owned(), ns)
        };
        tasks.into_iter().flatten().filter_map(Result::ok).map(read).collect()
    }

    /// Says what each thread costs in the second that begins 50 ms from now.
    fn say_idle_cost(&self, out: &mut impl Write) {
        std::thread::sleep(Duration::from_millis(50));
        let before = self.on_cpu();
        let since = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        let elapsed = since.elapsed().as_nanos() as f64;
        for ((name, from), (_, to)) in before.iter().zip(self.on_cpu()) {
            let share = (to - from) as f64 / elapsed * 100.0;
            let _ = writeln!(out, "{} idle: {name} {share:.3} % of a core", self.mode);
        }
    }
}

fn run() -> Result<(), BenchError> {
    let text = |at: usize, default: &str| std::env::args().nth(at).unwrap_or_else(|| default.to_owned());
    let number = |at: usize, default: u32| text(at, "").parse().unwrap_or(default);
    let rounds = number(3, 7);
    let manner = Manner {
        count: number(4, 2000),
        depth: number(2, 1),
        sleeps: text(5, "sleep") != "spin",
        gap: Duration::from_micros(number(6, 0).into()),
    };
    let cores = Cores::choose()?;
    let fabric = Fabric::from_spec(RING)?;
    let modes = text(1, "interrupt");
    let mut subjects = modes
        .split(',')
        .map(|mode| Subject::start(mode, &fabric, cores))
        .collect::<Result<Vec<_>, BenchError>>()?;
    let out = &mut std::io::stdout();
    if rounds == 0 {
        return subjects.iter_mut().try_for_each(|subject| subject.stream(manner, out));
    }
    let mut bare = Vec::new();
    for round in 0..rounds {
        let held: Vec<_> = subjects.iter().map(|subject| subject.plane.pause()).collect();
        let floor = floor::eventfd_ping_pong(cores, manner.count)?;
        bare.push(floor.quantile(0.5) as f64);
        let _ = write!(out, "round {round}: eventfd {:6}", floor.quantile(0.5));
        drop(held);
        pin_thread(cores.client);
        for at in 0..subjects.len() {
            let (before, rest) = subjects.split_at_mut(at);
            let Some((subject, after)) = rest.split_first_mut() else { continue };
            let held: Vec<_> = before.iter().chain(&*after).map(|other| other.plane.pause()).collect();
            let times = subject.ask(manner)?;
            drop(held);
            let (p50, p99) = (times.quantile(0.5), times.quantile(0.99));
            let _ = write!(out, ", {} p50 {p50:6} p99 {p99:6}", subject.mode);
            subject.p50.push(p50 as f64);
        }
        let _ = writeln!(out, " ns");
    }
    for subject in &subjects {
        let over_floor = Spread::quotient(&subject.p50, &bare);
        let first = subjects.first().map_or(&bare, |first| &first.p50);
        let over_first = Spread::quotient(&subject.p50, first);
        let say = |of: &str, ratio: &Spread| {
            format!("{of} {:.2} ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high)
        };
        let (floor, first) = (say("over the ping-pong", &over_floor), say("over the first", &over_first));
        let _ = writeln!(out, "{}: p50 {floor}, {first}", subject.mode);
    }
    for subject in &mut subjects {
        subject.ask(Manner { count: manner.count.min(10_000), ..manner })?;
        subject.say_idle_cost(out);
    }
    Ok(())
}

fn main() -> Result<(), BenchError> {
    // a thread of its own: it is pinned
    std::thread::spawn(run)
        .join()
        .unwrap_or_else(|_| Err(BenchError::Wrong("the client panicked".to_owned())))
}
