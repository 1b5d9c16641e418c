//! A session against a plane that a test plays: the checklist of a umad replacement, below its C functions.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use madplane_client::{
    Envelope, MadMessage, RawSession, RecvError, RegisterError, STATUS_TIMED_OUT, SendError, Session,
    SessionOptions, Taken, WaitPolicy,
};
use support::{FakePlane, mad, outgoing, response_to, spec};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const SHORT: Option<Duration> = Some(Duration::from_millis(60));

/// A packet, copied.
#[derive(Debug, Clone, PartialEq)]
struct Got {
    agent: u32,
    status: u32,
    envelope: Envelope,
    data: Vec<u8>,
}

fn recv(session: &Session, timeout: Option<Duration>) -> Result<Got, RecvError> {
    session.recv_with(timeout, |incoming| {
        Taken::Done(Got {
            agent: incoming.agent,
            status: incoming.status,
            envelope: *incoming.envelope,
            data: incoming.data.to_vec(),
        })
    })
}

fn tid_of(data: &[u8]) -> u64 {
    u64::from_be_bytes(data[8..16].try_into().unwrap())
}

#[test]
fn a_request_gets_its_agents_tid_and_its_response_comes_back_to_it() {
    let plane = FakePlane::echo();
    let session = plane.open();
    assert_eq!((session.info().node_guid, session.info().node_name.as_str()), (0x1234, "fake node"));
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    let high = u64::from(session.hi_tid(agent).unwrap());
    session.send(&outgoing(agent, &mad(1, 1, 0xffff_ffff_0000_0042), 1000, 0)).unwrap();
    let got = recv(&session, LONG).unwrap();
    assert_eq!((got.agent, got.status, got.data.len()), (agent, 0, 256));
    assert_eq!(tid_of(&got.data), high << 32 | 0x42);
    assert_eq!(session.outstanding(), 0);
    assert_eq!(recv(&session, SHORT), Err(RecvError::TimedOut));
    let sent = plane.seen()[0];
    assert_eq!((sent.envelope.kind, sent.envelope.length, u64::from(sent.envelope.agent)), (1, 256, high));
    assert_eq!(sent.mad[36..], [0x5a; 220]);
}

#[test]
fn a_short_mad_is_padded_with_zeros_and_a_shorter_one_refused() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 1)[..36], 0, 0)).unwrap();
    plane.wait_for(1);
    assert_eq!(plane.seen()[0].mad[36..], [0; 220]);
    let refused = session.send(&outgoing(agent, &mad(1, 1, 1)[..35], 0, 0));
    assert_eq!(refused, Err(SendError::TooShort(35)));
    assert_eq!(session.send(&outgoing(agent, &[0; 257], 0, 0)), Err(SendError::TooLong(257)));
    assert_eq!(
        session.send(&outgoing(agent + 1, &mad(1, 1, 1), 0, 0)),
        Err(SendError::UnknownAgent(agent + 1))
    );
    assert_eq!(session.send(&outgoing(32, &mad(1, 1, 1), 0, 0)), Err(SendError::InvalidAgent(32)));
}

#[test]
fn a_response_of_a_class_sent_through_another_classes_agent_arrives_at_the_sender() {
    let plane = FakePlane::echo();
    let session = plane.open();
    let directed = session.register(&spec(0, 0x81, &[1, 2, 5])).unwrap();
    let by_lid = session.register(&spec(0, 1, &[1, 2, 5])).unwrap();
    session.send(&outgoing(directed, &mad(1, 1, 5), 1000, 0)).unwrap();
    session.send(&outgoing(by_lid, &mad(0x81, 1, 5), 1000, 0)).unwrap();
    let (first, second) = (recv(&session, LONG).unwrap(), recv(&session, LONG).unwrap());
    assert_eq!((first.agent, first.data[1]), (directed, 1));
    assert_eq!((second.agent, second.data[1]), (by_lid, 0x81));
}

#[test]
fn a_timed_out_request_comes_back_as_its_header_after_identical_resends() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    let high = u64::from(session.hi_tid(agent).unwrap()) << 32;
    let start = std::time::Instant::now();
    session.send(&outgoing(agent, &mad(1, 1, 9), 30, 2)).unwrap();
    let got = recv(&session, None).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(90), "three attempts of 30 ms");
    assert_eq!((got.agent, got.status, got.data.len()), (agent, STATUS_TIMED_OUT, 24));
    assert_eq!(tid_of(&got.data), high | 9);
    let mut want = mad(1, 1, high | 9)[..24].to_vec();
    want[8..16].copy_from_slice(&(high | 9).to_be_bytes());
    assert_eq!(got.data, want);
    assert_eq!(got.envelope.dlid, 7, "as it was sent");
    let seen = plane.seen();
    assert!(seen.len() == 3 && seen.iter().all(|one| *one == seen[0]));
    let stats = session.stats();
    assert_eq!((stats.sent, stats.resent, stats.timed_out, stats.received), (1, 2, 1, 0));
    assert_eq!(session.outstanding(), 0);
}

#[test]
fn a_request_without_a_timeout_never_comes_back() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 9), 0, 5)).unwrap();
    assert_eq!(session.outstanding(), 0);
    assert_eq!(recv(&session, SHORT), Err(RecvError::TimedOut));
    plane.wait_for(1);
    assert_eq!(plane.seen().len(), 1);
}

#[test]
fn a_late_response_is_dropped_and_counted_and_so_is_one_that_nobody_asked_for() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 9), 5, 0)).unwrap();
    assert_eq!(recv(&session, LONG).unwrap().status, STATUS_TIMED_OUT);
    plane.wait_for(1);
    let late = response_to(&plane.seen()[0]);
    plane.give(0, &late);
    assert_eq!(recv(&session, SHORT), Err(RecvError::TimedOut));
    let mut other_class = late;
    other_class.mad[1] = 0x81;
    session.send(&outgoing(agent, &mad(1, 1, 9), 1000, 0)).unwrap();
    plane.give(0, &other_class);
    assert_eq!(recv(&session, SHORT), Err(RecvError::TimedOut));
    plane.give(0, &late);
    assert_eq!(recv(&session, LONG).unwrap().status, 0, "now it is asked for");
    let mut stranger = late;
    stranger.envelope.agent = 0x00ff_ffff;
    plane.give(0, &stranger);
    assert_eq!(recv(&session, SHORT), Err(RecvError::TimedOut));
    let stats = session.stats();
    assert_eq!((stats.dropped_unmatched, stats.dropped_no_agent, stats.received), (2, 1, 1));
}

#[test]
fn a_response_that_waits_in_the_ring_beats_the_timeout() {
    let plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 9), 5, 0)).unwrap();
    plane.wait_for(1);
    std::thread::sleep(Duration::from_millis(40));
    assert_eq!(recv(&session, LONG).unwrap().status, 0);
    assert_eq!(recv(&session, SHORT), Err(RecvError::TimedOut));
    assert_eq!(session.stats().timed_out, 0);
}

#[test]
fn a_kept_packet_stays_at_the_head() {
    let plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    for tid in 1..=2 {
        session.send(&outgoing(agent, &mad(1, 1, tid), 1000, 0)).unwrap();
    }
    for _ in 0..3 {
        let tid = session.recv_with(LONG, |incoming| Taken::Keep(tid_of(incoming.data) & 0xff)).unwrap();
        assert_eq!(tid, 1);
    }
    assert_eq!(tid_of(&recv(&session, LONG).unwrap().data) & 0xff, 1);
    assert_eq!(tid_of(&recv(&session, LONG).unwrap().data) & 0xff, 2);
}

#[test]
fn the_same_tid_twice_is_refused_until_the_first_is_over() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    let other = session.register(&spec(0, 0x81, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 9), 50, 0)).unwrap();
    assert_eq!(session.send(&outgoing(agent, &mad(1, 1, 9), 50, 0)), Err(SendError::DuplicateTid));
    // the upper half given by the program is replaced, so it makes no difference
    assert_eq!(session.send(&outgoing(agent, &mad(1, 1, 1 << 40 | 9), 50, 0)), Err(SendError::DuplicateTid));
    session.send(&outgoing(agent, &mad(0x81, 1, 9), 50, 0)).unwrap();
    session.send(&outgoing(other, &mad(1, 1, 9), 50, 0)).unwrap();
    plane.wait_for(3);
    for _ in 0..3 {
        assert_eq!(recv(&session, LONG).unwrap().status, STATUS_TIMED_OUT);
    }
    session.send(&outgoing(agent, &mad(1, 1, 9), 50, 0)).unwrap();
    assert_eq!(session.stats().duplicate_tid, 2);
}

#[test]
fn requests_responses_and_trap_repress_keep_or_get_their_tid() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[5])).unwrap();
    let high = u64::from(session.hi_tid(agent).unwrap()) << 32;
    for (method, kept) in [(0x01, false), (0x05, false), (0x81, true), (0x07, true)] {
        session.send(&outgoing(agent, &mad(1, method, 0xabcd_0000_0009), 0, 0)).unwrap();
        let count = plane.seen().len();
        plane.wait_for(count.max(1));
        while plane.seen().last().is_none_or(|last| last.mad[3] != method) {
            std::thread::yield_now();
        }
        let tid = tid_of(&plane.seen().last().unwrap().mad);
        assert_eq!(tid, if kept { 0xabcd_0000_0009 } else { high | 9 }, "method {method:#x}");
    }
}

#[test]
fn an_incoming_request_goes_to_the_agent_the_plane_names_and_its_answer_keeps_the_tid() {
    let plane = FakePlane::fabric();
    let (server, client) = (plane.open(), plane.open());
    server.register(&spec(0, 1, &[])).unwrap();
    let serves = server.register(&spec(1, 4, &[1])).unwrap();
    let asks = client.register(&spec(1, 4, &[])).unwrap();
    client.send(&outgoing(asks, &mad(4, 1, 77), 5000, 0)).unwrap();
    let request = recv(&server, LONG).unwrap();
    assert_eq!((request.agent, request.envelope.slid), (serves, 101));
    let mut answer = request.data.clone();
    answer[3] = 0x81;
    server.send(&outgoing(serves, &answer, 0, 0)).unwrap();
    let response = recv(&client, LONG).unwrap();
    assert_eq!((response.agent, response.data), (asks, answer));
}

#[test]
fn responses_of_two_sessions_never_mix() {
    let plane = FakePlane::fabric();
    let server = plane.open();
    let serves = server.register(&spec(1, 4, &[1])).unwrap();
    let clients = [plane.open(), plane.open()];
    let agents = clients.each_ref().map(|client| client.register(&spec(1, 4, &[])).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..400 {
                let mut answer = recv(&server, LONG).unwrap().data;
                answer[3] = 0x81;
                server.send(&outgoing(serves, &answer, 0, 0)).unwrap();
            }
        });
        for (client, agent) in clients.iter().zip(agents) {
            scope.spawn(move || {
                let mine = u64::from(client.hi_tid(agent).unwrap());
                for tid in 0..200 {
                    client.send(&outgoing(agent, &mad(4, 1, tid), 20_000, 0)).unwrap();
                    let got = recv(client, LONG).unwrap();
                    assert_eq!((got.status, tid_of(&got.data)), (0, mine << 32 | tid));
                }
            });
        }
    });
    assert!(clients.iter().all(|client| client.stats().dropped_unmatched == 0));
}

#[test]
fn a_blocked_receiver_gets_what_another_thread_asks_for_under_every_policy() {
    for wait in [WaitPolicy::Spin, WaitPolicy::Sleep, WaitPolicy::Adaptive { spin_us: 50 }] {
        let plane = FakePlane::echo();
        let session = plane.open_with(wait);
        let agent = session.register(&spec(0, 1, &[])).unwrap();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let next = |_| {
                    let got = recv(&session, None).unwrap();
                    assert_eq!(got.status, 0, "{wait:?} {:?}", session.stats());
                    tid_of(&got.data) & 0xffff
                };
                (0..50).map(next).collect::<Vec<_>>()
            });
            for tid in 0..50 {
                if tid % 10 == 0 {
                    std::thread::sleep(Duration::from_millis(15));
                }
                session.send(&outgoing(agent, &mad(1, 1, tid), 20_000, 0)).unwrap();
            }
            assert_eq!(receiver.join().unwrap(), (0..50).collect::<Vec<_>>(), "{wait:?}");
        });
    }
}

#[test]
fn receivers_that_sleep_side_by_side_get_every_mad_between_them() {
    let plane = FakePlane::echo();
    let session = plane.open_with(WaitPolicy::Sleep);
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    let got = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            // each takes a few and is then no longer there, so that a lone one is left to sleep by itself again
            scope.spawn(|| {
                (0..40)
                    .for_each(|_| _ = got.fetch_add(recv(&session, None).map_or(0, |_| 1), Ordering::Relaxed))
            });
        }
        for tid in 0..120 {
            session.send(&outgoing(agent, &mad(1, 1, tid), 20_000, 0)).unwrap();
            while got.load(Ordering::Relaxed) <= tid {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!((got.into_inner(), session.outstanding()), (120, 0));
}

#[test]
fn a_raw_receiver_sleeps_until_a_mad_comes_or_the_plane_goes() {
    let mut plane = FakePlane::echo();
    let mut session = RawSession::open(&plane.paths, "", 0).unwrap();
    let hi_tid = session.register(&spec(0, 1, &[])).unwrap();
    let (mut sender, mut receiver) = session.split();
    let mut message = MadMessage { mad: mad(1, 1, 7), ..MadMessage::default() };
    message.envelope = Envelope { kind: 1, agent: hi_tid, length: 256, ..Envelope::default() };
    let mut got = MadMessage::default();
    assert!(!receiver.wait(Duration::from_millis(1)));
    for _ in 0..2000 {
        sender.send(&message).unwrap();
        while !receiver.wait(Duration::from_secs(1)) {}
        assert!(receiver.wait(Duration::ZERO), "what is there ends every wait");
        assert!(receiver.try_recv(&mut got) && !receiver.try_recv(&mut got));
        assert_eq!(got, response_to(&message));
    }
    plane.stop();
    drop(plane);
    while !receiver.is_gone() {}
    assert!(!receiver.wait(Duration::from_secs(1)));
}

#[test]
fn a_timeout_set_while_the_receiver_sleeps_is_reported() {
    let plane = FakePlane::silent();
    let session = plane.open_with(WaitPolicy::Sleep);
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| recv(&session, None).unwrap());
        std::thread::sleep(Duration::from_millis(30));
        session.send(&outgoing(agent, &mad(1, 1, 1), 10, 0)).unwrap();
        assert_eq!(receiver.join().unwrap().status, STATUS_TIMED_OUT);
    });
}

#[test]
fn a_stopped_plane_ends_blocked_receives_and_later_calls() {
    for wait in [WaitPolicy::Spin, WaitPolicy::Sleep, WaitPolicy::Adaptive { spin_us: 50 }] {
        let mut plane = FakePlane::silent();
        let session = plane.open_with(wait);
        let agent = session.register(&spec(0, 1, &[])).unwrap();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| recv(&session, None));
            std::thread::sleep(Duration::from_millis(20));
            plane.stop();
            assert_eq!(receiver.join().unwrap(), Err(RecvError::Gone), "{wait:?}");
        });
        assert_eq!(session.send(&outgoing(agent, &mad(1, 1, 1), 10, 0)), Err(SendError::Gone));
        assert!(matches!(session.register(&spec(0, 1, &[])), Err(RegisterError::Gone)));
    }
}

#[test]
fn what_arrived_before_the_plane_stopped_is_still_received() {
    let mut plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 1), 1000, 0)).unwrap();
    plane.wait_for(1);
    plane.stop();
    assert_eq!(recv(&session, None).unwrap().status, 0);
    assert_eq!(recv(&session, None), Err(RecvError::Gone));
}

#[test]
fn closing_wakes_a_blocked_receiver() {
    let plane = FakePlane::silent();
    let session = plane.open();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| recv(&session, None));
        std::thread::sleep(Duration::from_millis(20));
        session.close();
        assert_eq!(receiver.join().unwrap(), Err(RecvError::Gone));
    });
}

#[test]
fn no_plane_means_not_running() {
    let directory = tempfile::tempdir().unwrap();
    let paths = madplane_client::PlanePaths::under(directory.path(), "nobody").unwrap();
    let error = Session::open(&paths, "", &madplane_client::SessionOptions::default()).unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
    assert_eq!(error.errno(), 19);
}

#[test]
fn agents_are_numbered_like_the_kernels_and_the_33rd_is_too_many() {
    let plane = FakePlane::silent();
    let session = plane.open();
    for index in 0..32 {
        assert_eq!(session.register(&spec(0, 1, &[])).unwrap(), index);
    }
    assert_eq!(session.register(&spec(0, 1, &[])).unwrap_err().errno(), 12);
    session.unregister(5).unwrap();
    assert_eq!(session.unregister(5).unwrap_err().errno(), 22);
    assert_eq!(session.register(&spec(0, 1, &[])).unwrap(), 5);
    session.unregister(6).unwrap();
    assert_eq!(session.register(&spec(1, 0x0f, &[])).unwrap_err().errno(), 22, "the plane's word");
    assert_eq!(session.register(&spec(1, 1, &[])).unwrap_err().errno(), 22, "class and queue pair");
}

#[test]
fn unregistering_cancels_what_is_outstanding_without_a_report() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 1), 20, 3)).unwrap();
    session.unregister(agent).unwrap();
    assert_eq!(session.outstanding(), 0);
    assert_eq!(recv(&session, SHORT), Err(RecvError::TimedOut));
}

#[test]
fn a_ring_that_nobody_empties_refuses_and_recovers() {
    let plane = FakePlane::echo();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    plane.frozen.store(true, std::sync::atomic::Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    for tid in 0..256 {
        session.send(&outgoing(agent, &mad(1, 1, tid), 20_000, 0)).unwrap();
    }
    assert_eq!(session.send(&outgoing(agent, &mad(1, 1, 999), 20_000, 0)), Err(SendError::Full));
    assert_eq!(session.outstanding(), 256, "a refused request is not outstanding");
    plane.frozen.store(false, std::sync::atomic::Ordering::Relaxed);
    for tid in 0..256 {
        assert_eq!(tid_of(&recv(&session, LONG).unwrap().data) & 0xffff, tid);
    }
    session.send(&outgoing(agent, &mad(1, 1, 999), 20_000, 0)).unwrap();
}

#[test]
fn more_requests_than_the_table_starts_with_all_get_their_answer() {
    let plane = FakePlane::echo();
    // as many slots: the plane drops what does not fit into the ring to the client
    let options = SessionOptions { slots: 4096, ..SessionOptions::default() };
    let session = Session::open(&plane.paths, "", &options).unwrap();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    let total = 3_000u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for tid in 0..total {
                session.send(&outgoing(agent, &mad(1, 1, tid), 20_000, 1)).unwrap();
            }
        });
        let mut left: std::collections::HashSet<u64> = (0..total).collect();
        while !left.is_empty() {
            let got = recv(&session, LONG).unwrap();
            assert_eq!(got.status, 0);
            assert!(left.remove(&(tid_of(&got.data) & 0xffff_ffff)), "delivered twice");
        }
    });
    assert_eq!(session.outstanding(), 0);
}

#[test]
fn a_grh_or_foreign_path_bits_do_not_match_except_for_directed_routes() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = session.register(&spec(0, 1, &[])).unwrap();
    session.send(&outgoing(agent, &mad(1, 1, 1), 20_000, 0)).unwrap();
    session.send(&outgoing(agent, &mad(0x81, 1, 2), 20_000, 0)).unwrap();
    plane.wait_for(2);
    let (lid_routed, directed) = (response_to(&plane.seen()[0]), response_to(&plane.seen()[1]));
    let with_grh = |mut message: MadMessage| {
        message.envelope.flags = madplane_client::flag::GRH;
        message
    };
    let with_bits = |mut message: MadMessage| {
        message.envelope.path_bits = 2;
        message
    };
    plane.give(0, &with_grh(lid_routed));
    plane.give(0, &with_bits(lid_routed));
    assert_eq!(recv(&session, SHORT), Err(RecvError::TimedOut));
    plane.give(0, &with_bits(directed));
    assert_eq!(recv(&session, LONG).unwrap().data[1], 0x81);
    plane.give(0, &lid_routed);
    assert_eq!(recv(&session, LONG).unwrap().data[1], 1);
    assert_eq!(session.stats().dropped_unmatched, 2);
}
