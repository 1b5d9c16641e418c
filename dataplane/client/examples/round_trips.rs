//! Round trips of a raw session to its own port, one line of percentiles: how a worker's mode feels.
//!
//! ```text
//! round_trips PLANE DEPTH COUNT PAUSE_US spin|sleep     through the plane
//! round_trips --bell CORE CORE COUNT                    the floor: two threads and two eventfds
//! ```
//! With a depth above 1 all answers of a burst are awaited before the next one is sent. A pause is kept by spinning, as an open
//! load would.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use madplane_client::{AgentSpec, MadMessage, PlanePaths, RawSession};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::message::kind;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::CpuSet;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--bell", one, two, count] => bells(one.parse()?, two.parse()?, count.parse()?),
        [plane, depth, count, pause, wait] => {
            trips(plane, depth.parse()?, count.parse()?, pause.parse()?, *wait == "sleep")
        }
        _ => Err("see the head of this file".into()),
    }
}

fn pin(core: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
}

fn wait_for(bell: impl AsFd) {
    let _ = poll(&mut [PollFd::new(&bell, PollFlags::IN)], None);
}

fn bells(one: usize, two: usize, count: u32) -> Result<(), Box<dyn std::error::Error>> {
    let (there, back) = (Arc::new(Doorbell::create()?), Arc::new(Doorbell::create()?));
    let (far_there, far_back) = (there.clone(), back.clone());
    let far = std::thread::spawn(move || {
        let _ = pin(two);
        for _ in 0..count {
            wait_for(&*far_there);
            far_there.take();
            far_back.ring();
        }
    });
    pin(one)?;
    let mut times = Vec::new();
    let began = Instant::now();
    for _ in 0..count {
        let from = Instant::now();
        there.ring();
        wait_for(&*back);
        back.take();
        times.push(from.elapsed());
    }
    far.join().map_err(|_| "the far end failed")?;
    report("bells", times, began.elapsed())
}

fn trips(
    plane: &str,
    depth: u32,
    count: u32,
    pause_us: u64,
    sleeps: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut session = RawSession::open(&PlanePaths::new(plane)?, "", 0)?;
    let spec = AgentSpec { mgmt_class: 0x81, class_version: 1, ..AgentSpec::default() };
    let agent = session.register(&spec)?;
    let mut message = MadMessage::default();
    message.envelope.kind = kind::MAD;
    message.envelope.length = 256;
    message.envelope.agent = agent;
    message.envelope.dlid = 0xffff;
    // a directed NodeInfo of no hops
    message.mad[..4].copy_from_slice(&[1, 0x81, 1, 1]);
    message.mad[16..18].copy_from_slice(&0x11u16.to_be_bytes());
    message.mad[32..36].copy_from_slice(&[0xff; 4]);
    let (mut sender, mut receiver) = session.split();
    let mut answer = MadMessage::default();
    let mut times = Vec::new();
    let (began, mut tid) = (Instant::now(), 0u32);
    for _ in 0..count / depth {
        let from = Instant::now();
        for _ in 0..depth {
            tid += 1;
            message.mad[12..16].copy_from_slice(&tid.to_be_bytes());
            sender.push(&message)?;
        }
        sender.flush();
        let mut got = 0;
        while got < depth {
            if receiver.try_recv(&mut answer) {
                got += 1;
            } else if sleeps && receiver.arm() {
                wait_for(receiver.doorbell());
                receiver.disarm();
            } else {
                std::hint::spin_loop();
            }
        }
        if answer.mad[12..16] != tid.to_be_bytes() {
            return Err("not the answer to the last request".into());
        }
        times.push(from.elapsed());
        let next = Instant::now() + Duration::from_micros(pause_us);
        while pause_us > 0 && Instant::now() < next {
            std::hint::spin_loop();
        }
    }
    report(&format!("depth {depth}, pause {pause_us} us"), times, began.elapsed())
}

fn report(what: &str, mut times: Vec<Duration>, took: Duration) -> Result<(), Box<dyn std::error::Error>> {
    times.sort_unstable();
    let at = |share: usize| times.get((times.len() * share / 1000).min(times.len() - 1)).copied();
    let shares = [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999), ("max", 1000)];
    let mut line = what.to_owned();
    for (name, share) in shares {
        line += &format!("  {name} {:?}", at(share).unwrap_or_default());
    }
    Ok(writeln!(std::io::stdout(), "{line}  {} bursts in {took:?}", times.len())?)
}
