//! A plane at full rate while everything around it changes: modes and tunings at random, sessions that come and go, clients
//! that are killed. Nothing may be lost and nothing may grow.
//!
//! `soak run [SECONDS] [SEED]`: afterwards every request has been answered, and descriptors, memory, mappings and files of the
//! plane are what they were at the first rest. A line every ten seconds; exit code 1 and one line if something is wrong.
//! `soak bound [SWITCHES]`: how late a MAD is at the most while the mode is switched, and without that.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "its lines are for people and scripts")]

#[path = "soak/asker.rs"]
mod asker;
#[path = "soak/bound.rs"]
mod bound;
#[path = "soak/footprint.rs"]
mod footprint;
#[path = "soak/stand.rs"]
mod stand;

use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use asker::{Asker, Verb, Wait};
use footprint::Footprint;
use madplane_client::PlanePaths;
use serde_json::json;
use stand::Stand;

/// Threads that ask without pause.
const CLIENTS: u64 = 3;
/// From one line of progress to the next.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

type Fault = String;

/// Numbers that are random enough and come again with their seed.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        let at = usize::try_from(self.below(all.len() as u64)).unwrap_or(0);
        all[at]
    }
}

/// What all threads count.
#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    sessions: AtomicU64,
    killed: AtomicU64,
    switches: AtomicU64,
    at_rest: AtomicU64,
    rest: AtomicBool,
    stop: AtomicBool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (Ok(first), Ok(second)) = (number(2, 0), number(3, 0)) else { return usage() };
    let done = match arguments.get(1).map(String::as_str) {
        Some("run") => run(if first == 0 { 600 } else { first }, second),
        Some("bound") => bound::run(if first == 0 { 1000 } else { first }),
        Some("client") => client(first, second, arguments.get(4..).unwrap_or_default()),
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("soak: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: soak run [SECONDS] [SEED] | soak bound [SWITCHES]");
    ExitCode::from(2)
}

/// A client process: `count` requests, by random choices of its own, on the plane whose directory and name are in `place`.
fn client(count: u64, seed: u64, place: &[String]) -> Result<(), Fault> {
    let [root, name] = place else { return Err("where is the plane?".to_owned()) };
    let paths = PlanePaths::under(root.as_ref(), name).map_err(|error| error.to_string())?;
    let mut asker = random_asker(&paths, &mut Random(seed))?;
    asker.ask_while(|asked| asked < count)
}

fn random_asker(paths: &PlanePaths, random: &mut Random) -> Result<Asker, Fault> {
    let depth = [1, 4, 16, 64][usize::try_from(random.below(4)).unwrap_or(0)];
    let wait = if random.below(2) == 0 { Wait::Spin } else { Wait::Sleep };
    let verb = match random.below(4) {
        0 => Verb::Set,
        _ => Verb::Get { hops: usize::try_from(random.below(5)).unwrap_or(0) },
    };
    Asker::open(paths, verb, depth, wait)
}

/// Opens, asks, closes, again and again; rests when it is told to.
fn asks(paths: &PlanePaths, counts: &Counts, mut random: Random) -> Result<(), Fault> {
    while !counts.stop.load(Relaxed) {
        if counts.rest.load(Relaxed) {
            counts.at_rest.fetch_add(1, Relaxed);
            while counts.rest.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            counts.at_rest.fetch_sub(1, Relaxed);
        }
        let mut asker = random_asker(paths, &mut random)?;
        counts.sessions.fetch_add(1, Relaxed);
        let until = Instant::now() + Duration::from_millis(20 + random.below(1_500));
        asker.ask_while(|asked| {
            asked % 256 != 0
                || (Instant::now() < until && !counts.rest.load(Relaxed) && !counts.stop.load(Relaxed))
        })?;
        counts.answered.fetch_add(asker.answered(), Relaxed);
    }
    Ok(())
}

/// A client process, and what is to become of it.
struct Visitor {
    child: Child,
    killed_at: Option<Instant>,
}

impl Visitor {
    fn start(stand: &Stand, random: &mut Random) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        let count = 2_000 + random.below(50_000);
        command.args(["client", &count.to_string(), &random.next().to_string()]);
        command.arg(stand.root()).arg(stand.paths().name()).stdin(Stdio::null());
        let child = command.spawn().map_err(|error| error.to_string())?;
        let killed_at =
            (random.below(2) == 0).then(|| Instant::now() + Duration::from_millis(random.below(150)));
        Ok(Self { child, killed_at })
    }

    /// Whether it is gone. One that was to live has to have had all its answers.
    fn is_gone(&mut self, counts: &Counts) -> Result<bool, Fault> {
        if self.killed_at.is_some_and(|at| at <= Instant::now()) {
            self.killed_at = None;
            self.child.kill().map_err(|error| error.to_string())?;
            self.child.wait().map_err(|error| error.to_string())?;
            counts.killed.fetch_add(1, Relaxed);
            return Ok(true);
        }
        match self.child.try_wait().map_err(|error| error.to_string())? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(format!("a client process failed: {status}")),
        }
    }
}

/// A random wish about how workers wait; a worker without a core of its own refuses to poll.
fn wish(random: &mut Random, can_poll: bool) -> Vec<String> {
    let modes = &["interrupt", "adaptive", "polling"][..if can_poll { 3 } else { 2 }];
    let mut values = vec![format!("mode={}", random.one_of(modes))];
    for (name, choices) in [
        ("moderator_timeout", &["0", "1", "16", "200", "2000"][..]),
        ("moderator_pkts", &["1", "8", "64"]),
        ("poll_interval", &["0", "5", "100"]),
        ("max_empty_polls", &["1", "512", "100000"]),
        ("idle_poll_us", &["0", "200", "2000"]),
        ("suspend_timeout", &["0", "20000"]),
        ("burst", &["1", "8", "32", "256"]),
        ("adaptive", &["off", "hysteresis", "dim"]),
    ] {
        if random.below(3) == 0 {
            values.push(format!("{name}={}", random.one_of(choices)));
        }
    }
    values
}

/// Everybody leaves; what the plane needs then.
fn rest(stand: &Stand, counts: &Counts, visitors: &mut Vec<Visitor>) -> Result<Footprint, Fault> {
    counts.rest.store(true, Relaxed);
    let until = Instant::now() + PATIENCE;
    loop {
        let mut left = Vec::new();
        for mut visitor in visitors.drain(..) {
            if !visitor.is_gone(counts)? {
                left.push(visitor);
            }
        }
        *visitors = left;
        let alone = visitors.is_empty() && counts.at_rest.load(Relaxed) == CLIENTS;
        if alone && stand.sessions() == 0 {
            break;
        }
        if Instant::now() > until {
            let (inside, open) = (visitors.len(), stand.sessions());
            return Err(format!("no rest: {inside} client processes run, {open} sessions are open"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // what is given back a moment after the last session has gone
    std::thread::sleep(Duration::from_millis(300));
    let footprint = stand.footprint();
    counts.rest.store(false, Relaxed);
    footprint
}

fn run(seconds: u64, seed: u64) -> Result<(), Fault> {
    let of_clock =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::from(since.subsec_nanos()));
    let seed = if seed == 0 { of_clock } else { seed };
    println!("soak: {seconds} s, seed {seed}");
    let stand = Stand::start(&[])?;
    let counts = Arc::new(Counts::default());
    let mut threads = Vec::new();
    for number in 0..CLIENTS {
        let (paths, counts) = (stand.paths().clone(), counts.clone());
        let random = Random(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        threads.push(std::thread::spawn(move || {
            let done = asks(&paths, &counts, random);
            if done.is_err() {
                counts.stop.store(true, Relaxed);
            }
            done
        }));
    }
    let judged = disturb(&stand, &counts, seconds, Random(seed));
    counts.stop.store(true, Relaxed);
    counts.rest.store(false, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a client panicked".to_owned())??;
    }
    judged
}

/// Changes modes, sends visitors, and compares the last rest with the first.
fn disturb(stand: &Stand, counts: &Counts, seconds: u64, mut random: Random) -> Result<(), Fault> {
    let mut admin = stand.admin()?;
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    // after everything has been used once
    let first_rest = start + Duration::from_secs(60.min(seconds / 3));
    let mut next_line = start + BETWEEN_LINES;
    let mut visitors: Vec<Visitor> = Vec::new();
    let mut before: Option<Footprint> = None;
    while Instant::now() < end && !counts.stop.load(Relaxed) {
        let mut left = Vec::new();
        for mut visitor in visitors.drain(..) {
            if !visitor.is_gone(counts)? {
                left.push(visitor);
            }
        }
        visitors = left;
        if visitors.len() < 3 && random.below(6) == 0 {
            visitors.push(Visitor::start(stand, &mut random)?);
            counts.sessions.fetch_add(1, Relaxed);
        }
        let reset = random.below(10) == 0;
        let args = json!({ "values": wish(&mut random, stand.can_poll()), "reset": reset, "sync": true });
        let done = admin.call("tuning.set", &args).map_err(|error| error.to_string())?;
        if done["synced"] != true {
            return Err(format!("the workers do not follow: {done}"));
        }
        counts.switches.fetch_add(1, Relaxed);
        if before.is_none() && Instant::now() >= first_rest {
            let footprint = rest(stand, counts, &mut visitors)?;
            println!("at rest after {} s: {footprint}", start.elapsed().as_secs());
            before = Some(footprint);
        }
        if Instant::now() >= next_line {
            next_line += BETWEEN_LINES;
            line(start, counts, &stand.footprint()?);
        }
        std::thread::sleep(Duration::from_millis(random.below(40)));
    }
    if counts.stop.load(Relaxed) {
        return Ok(());
    }
    let after = rest(stand, counts, &mut visitors)?;
    line(start, counts, &after);
    println!("at rest at the end: {after}");
    println!("plane: {}", stand.remarks());
    let before = before.ok_or("it ended before the first rest")?;
    after.has_not_grown_since(&before)?;
    println!("soak: nothing lost, nothing grown");
    Ok(())
}

fn line(start: Instant, counts: &Counts, footprint: &Footprint) {
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    println!(
        "{:>4} s: {} answered, {} sessions, {} killed, {} switches; {footprint}",
        start.elapsed().as_secs(),
        count(&counts.answered),
        count(&counts.sessions),
        count(&counts.killed),
        count(&counts.switches),
    );
}
