//! Timers that fall due in the middle of a flood.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::time::Duration;

use madplane_client::{RecvError, STATUS_TIMED_OUT, Session, SessionOptions, Taken};
use support::{FakePlane, mad, outgoing, response_to, spec};

#[test]
fn a_timeout_that_falls_due_between_packets_of_a_full_ring_is_reported_and_nothing_is_lost() {
    let plane = FakePlane::start(|desk, session, message| {
        // the request that is meant to time out is the one with the odd TID
        if message.mad[15] == 0 {
            desk.give(session, &response_to(message));
        }
    });
    // room for all: the plane drops what does not fit into the ring to the client
    let options = SessionOptions { slots: 1024, ..SessionOptions::default() };
    let session = Session::open(&plane.paths, "", &options).unwrap();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 1), 2, 0)).unwrap();
    let answered = 600;
    for tid in 1..=answered {
        session.send(&outgoing(agent, &mad(1, 1, tid << 8), 60_000, 0)).unwrap();
    }
    plane.wait_for(601);
    // everything is in the ring by now, and the timeout is over
    std::thread::sleep(Duration::from_millis(50));
    // a receiver that stands still would hang the test: it is told apart from a slow one by a minute
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut good, mut timed_out) = (0, 0);
        loop {
            match session.recv_with(Some(Duration::from_secs(1)), |incoming| Taken::Done(incoming.status)) {
                Ok(0) => good += 1,
                Ok(STATUS_TIMED_OUT) => timed_out += 1,
                Ok(other) => panic!("status {other}"),
                Err(RecvError::TimedOut) => break,
                Err(other) => panic!("{other}"),
            }
        }
        tell.send((good, timed_out)).unwrap();
    });
    let result = told.recv_timeout(Duration::from_secs(60)).expect("the receiver stands still");
    assert_eq!(result, (answered, 1));
}
