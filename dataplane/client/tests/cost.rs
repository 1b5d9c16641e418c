//! What a round trip costs the client: no allocation, no sleep; and the time, which is printed and not judged.
//!
//! One test in this file, because the counts are of the whole process.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is a test")]
#![allow(unsafe_code, reason = "a counting allocator is an unsafe trait")]

mod count_alloc {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    struct Counting;

    // SAFETY: hands everything on to the system's allocator, unchanged.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            COUNT.with(|count| count.set(count.get() + 1));
            // SAFETY: the caller's promise is passed on.
            unsafe { System.alloc(layout) }
        }
        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            // SAFETY: the caller's promise is passed on.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// Allocations of this thread so far.
    pub(crate) fn count() -> u64 {
        COUNT.with(Cell::get)
    }
}

mod support;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use madplane_client::{MadMessage, RawSession, Session, Taken, WaitPolicy};
use support::{FakePlane, mad, outgoing, spec};

const LONG: Option<Duration> = Some(Duration::from_secs(60));
const ROUNDS: u64 = 2_000;
const BURSTS: u32 = 2_000;
const BURST: u32 = 100;

/// Voluntary context switches of this thread: every sleep in a system call is one.
fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// The same traffic without the rules.
struct RawPair {
    raw: RawSession,
    message: MadMessage,
}

impl RawPair {
    fn open(plane: &FakePlane) -> Self {
        let mut message = MadMessage::default();
        message.envelope.kind = 1;
        message.mad = mad(1, 1, 1);
        Self { raw: RawSession::open(&plane.paths, "", 0).unwrap(), message }
    }

    fn measure(&mut self, plane: &FakePlane) -> Duration {
        let mut total = Duration::ZERO;
        for _ in 0..BURSTS {
            let start = cpu_time();
            for _ in 0..BURST {
                self.raw.send(&self.message).unwrap();
            }
            total += cpu_time() - start;
            plane.desk.lock().unwrap().pump(|desk, session, message| desk.echo(session, message));
            plane.desk.lock().unwrap().seen.clear();
            let start = cpu_time();
            for _ in 0..BURST {
                assert!(self.raw.try_recv(&mut self.message));
            }
            total += cpu_time() - start;
        }
        total / (BURSTS * BURST)
    }
}

fn round_trip(session: &Session, agent: u32, tid: u64, retries: u32) {
    session.send(&outgoing(agent, &mad(1, 1, tid), 20_000, retries)).unwrap();
    let status = session.recv_with(LONG, |incoming| Taken::Done(incoming.status)).unwrap();
    assert_eq!(status, 0);
}

#[test]
fn a_round_trip_allocates_nothing() {
    let plane = FakePlane::echo();
    let session = plane.open_with(WaitPolicy::Spin);
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    let mut request = mad(1, 1, 0);
    for retries in [0, 3] {
        for tid in 0..100 {
            round_trip(&session, agent, tid, retries);
        }
        plane.desk.lock().unwrap().seen.clear();
        let (allocations, sleeps, start) = (count_alloc::count(), switches(), Instant::now());
        let allocations_of_measuring = count_alloc::count() - allocations;
        let before = count_alloc::count();
        for tid in 0..ROUNDS {
            round_trip(&session, agent, tid, retries);
        }
        assert_eq!(count_alloc::count() - before, 0);
        let each = start.elapsed() / u32::try_from(ROUNDS).unwrap();
        println!("retries {retries}: {each:?} per round trip, sleeps {}", switches() - sleeps);
        assert!(allocations_of_measuring > 0, "the counter counts");
    }
    assert_eq!(session.stats().resent, 0);

    // the library alone, in CPU time of this thread: the plane works between sending and receiving
    plane.frozen.store(true, Ordering::Relaxed);
    drop(plane.desk.lock().unwrap());
    for retries in [0, 3] {
        let (mut sending, mut receiving) = (Duration::ZERO, Duration::ZERO);
        for round in 0..BURSTS {
            let start = cpu_time();
            for tid in 0..BURST {
                request[12..16].copy_from_slice(&(round << 8 | tid).to_be_bytes());
                session.send(&outgoing(agent, &request, 20_000, retries)).unwrap();
            }
            sending += cpu_time() - start;
            {
                let mut desk = plane.desk.lock().unwrap();
                desk.pump(|desk, session, message| desk.echo(session, message));
                desk.seen.clear();
            }
            let start = cpu_time();
            for _ in 0..BURST {
                let status = session.recv_with(LONG, |incoming| Taken::Done(incoming.status)).unwrap();
                assert_eq!(status, 0);
            }
            receiving += cpu_time() - start;
        }
        let per = |time: Duration| time / (BURSTS * BURST);
        println!("retries {retries}, CPU: send {:?}, recv {:?}", per(sending), per(receiving));
    }
    let mut one = RawPair::open(&plane);
    println!("rings alone, CPU: {:?}", one.measure(&plane));
    plane.frozen.store(false, Ordering::Relaxed);

    let mut raw = RawSession::open(&plane.paths, "", 0).unwrap();
    let hi_tid = raw.register(&spec(0, 1, &[])).unwrap();
    let mut message = MadMessage::default();
    message.envelope.kind = 1;
    message.envelope.agent = hi_tid;
    message.mad = mad(1, 1, u64::from(hi_tid) << 32);
    let mut got = MadMessage::default();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        raw.send(&message).unwrap();
        while !raw.try_recv(&mut got) {
            std::hint::spin_loop();
        }
    }
    println!("raw: {:?} per round trip", start.elapsed() / u32::try_from(ROUNDS).unwrap());
    assert_eq!((got.mad[3], got.envelope.agent), (0x81, hi_tid));
}
