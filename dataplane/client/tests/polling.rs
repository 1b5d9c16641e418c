//! The pollable descriptor under poll, select and epoll, for programs that wait by themselves.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use madplane_client::{RecvError, STATUS_TIMED_OUT, Session, Taken, WaitPolicy};
use madplane_shm::sync::{AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use support::{FakePlane, mad, outgoing, spec};

const NOW: Option<Duration> = Some(Duration::ZERO);

fn readable(session: &Session, ms: i64) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(session.pollable_fd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    poll(&mut fds, Some(&timeout)).unwrap() == 1
}

/// Waits as a program does: poll, then a receive that does not wait; spurious wake-ups are allowed.
fn next(session: &Session) -> Result<(u32, u8), RecvError> {
    loop {
        assert!(readable(session, 20_000), "nothing for 20 s");
        match session.recv_with(NOW, |incoming| Taken::Done((incoming.status, incoming.data[15]))) {
            Err(RecvError::TimedOut) => {}
            other => return other,
        }
    }
}

#[test]
fn it_is_readable_when_something_is_there_and_not_after_it_was_taken() {
    for wait in [WaitPolicy::default(), WaitPolicy::Sleep] {
        let plane = FakePlane::echo();
        let session = plane.open_with(wait);
        let agent = session.register(&spec(0, 1, &[])).unwrap();
        session.watch();
        for tid in 0..200u8 {
            assert!(!readable(&session, 0), "nothing is there before {tid}");
            session.send(&outgoing(agent, &mad(1, 1, u64::from(tid)), 20_000, 0)).unwrap();
            assert_eq!(next(&session), Ok((0, tid)));
        }
        assert!(!readable(&session, 20));
    }
}

#[test]
fn it_stays_readable_until_everything_was_taken() {
    let plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.watch();
    for tid in 0..10 {
        session.send(&outgoing(agent, &mad(1, 1, tid), 20_000, 0)).unwrap();
    }
    plane.wait_for(10);
    std::thread::sleep(Duration::from_millis(20));
    for tid in 0..10u8 {
        assert!(readable(&session, 0), "{tid} is still there");
        assert_eq!(session.recv_with(NOW, |incoming| Taken::Keep(incoming.data[15])), Ok(tid));
        assert!(readable(&session, 0), "a kept packet is still there");
        assert_eq!(session.recv_with(NOW, |incoming| Taken::Done(incoming.data[15])), Ok(tid));
    }
    assert!(!readable(&session, 20));
}

#[test]
fn what_came_before_the_first_poll_is_seen() {
    let plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 7), 20_000, 0)).unwrap();
    plane.wait_for(1);
    session.watch();
    assert_eq!(next(&session), Ok((0, 7)));
}

#[test]
fn a_timeout_makes_it_readable_without_any_other_call() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.watch();
    for retries in [0, 3] {
        session.send(&outgoing(agent, &mad(1, 1, 7), 10, retries)).unwrap();
        assert!(!readable(&session, 0));
        assert_eq!(next(&session), Ok((STATUS_TIMED_OUT, 7)));
        assert!(!readable(&session, 20));
    }
    assert_eq!(plane.seen().len(), 5);
}

#[test]
fn the_end_of_the_plane_makes_it_readable() {
    let mut plane = FakePlane::silent();
    let session = plane.open();
    session.watch();
    assert!(!readable(&session, 0));
    plane.stop();
    assert!(readable(&session, 20_000));
    // looked at every few milliseconds only
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(next(&session), Err(RecvError::Gone));
}

#[test]
fn it_works_inside_an_epoll_of_the_program() {
    let plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.watch();
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&outer, session.pollable_fd(), epoll::EventData::new_u64(9), epoll::EventFlags::IN).unwrap();
    let mut events = Vec::with_capacity(4);
    for tid in 0..50u8 {
        session.send(&outgoing(agent, &mad(1, 1, u64::from(tid)), 20_000, 0)).unwrap();
        let got = loop {
            events.clear();
            let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
            let count =
                epoll::wait(&outer, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).unwrap();
            assert_eq!(count, 1);
            match session.recv_with(NOW, |incoming| Taken::Done(incoming.data[15])) {
                Err(RecvError::TimedOut) => {}
                other => break other,
            }
        };
        assert_eq!(got, Ok(tid));
    }
}

#[test]
#[allow(unsafe_code, reason = "select(2) has no safe wrapper in use here")]
fn it_works_with_select() {
    use rustix::event::{FdSetElement, FdSetIter, fd_set_insert, fd_set_num_elements, select};
    let plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.watch();
    session.send(&outgoing(agent, &mad(1, 1, 3), 20_000, 0)).unwrap();
    let fd = session.pollable_fd().as_fd().as_raw_fd();
    let mut set = vec![FdSetElement::default(); fd_set_num_elements(1, fd + 1)];
    fd_set_insert(&mut set, fd);
    let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
    // SAFETY: the set names one descriptor, which the session keeps open.
    let count = unsafe { select(fd + 1, Some(&mut set), None, None, Some(&timeout)) }.unwrap();
    assert!(count == 1 && FdSetIter::new(&set).eq([fd]));
    assert_eq!(next(&session), Ok((0, 3)));
}

#[test]
fn a_thread_that_polls_and_one_that_sends_lose_nothing() {
    let plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.watch();
    let received = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for tid in 0..2_000u64 {
                // a ring that is full loses answers, which is not what this is about
                while tid - received.load(Ordering::Relaxed) > 128 {
                    std::thread::yield_now();
                }
                session.send(&outgoing(agent, &mad(1, 1, tid), 20_000, 0)).unwrap();
                if tid % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        for tid in 0..2_000u64 {
            let want = u8::try_from(tid % 256).unwrap();
            assert_eq!(next(&session), Ok((0, want)));
            received.store(tid + 1, Ordering::Relaxed);
        }
    });
}
