//! What a round trip costs the client: no allocation and no system call, and the time, printed and not judged.
//!
//! One test in this file, because the counts are of the whole process.
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

use std::time::{Duration, Instant};

use madplane_client::{MadMessage, RawSession, Session, Taken, WaitPolicy};
use madplane_shm::handoff::Reply;
use support::{FakePlane, mad, outgoing, spec};

const LONG: Option<Duration> = Some(Duration::from_secs(60));
const ROUNDS: u64 = 20_000;

/// Voluntary context switches of this thread: every sleep in a system call is one.
fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

fn round_trip(session: &Session, agent: u32, tid: u64, retries: u32) {
    session.send(&outgoing(agent, &mad(1, 1, tid), 20_000, retries)).unwrap();
    let status = session.recv_with(LONG, |incoming| Taken::Done(incoming.status)).unwrap();
    assert_eq!(status, 0);
}

#[test]
fn a_round_trip_allocates_nothing_and_a_spinning_one_never_sleeps() {
    let _ = size_of::<Reply>();
    let plane = FakePlane::echo();
    let session = plane.open_with(WaitPolicy::Spin);
    let agent = session.register(&spec(0, 1, &[])).unwrap();
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

    // the library alone: the responses are in the ring before they are asked for
    let burst = 100u64;
    let (mut sending, mut receiving) = (Duration::ZERO, Duration::ZERO);
    for round in 0..200 {
        let start = Instant::now();
        for tid in 0..burst {
            session.send(&outgoing(agent, &mad(1, 1, round * burst + tid), 20_000, 0)).unwrap();
        }
        sending += start.elapsed();
        std::thread::sleep(Duration::from_micros(500));
        let start = Instant::now();
        for _ in 0..burst {
            let status = session.recv_with(LONG, |incoming| Taken::Done(incoming.status)).unwrap();
            assert_eq!(status, 0);
        }
        receiving += start.elapsed();
    }
    let per = |time: Duration| time / u32::try_from(200 * burst).unwrap();
    println!("in bursts: send {:?}, recv {:?}", per(sending), per(receiving));

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
