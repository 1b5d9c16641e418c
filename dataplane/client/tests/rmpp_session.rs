//! RMPP between two sessions, over a plane that routes and sometimes loses.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::time::Duration;

use madplane_client::{AgentSpec, RecvError, STATUS_TIMED_OUT, Session, Taken, WaitPolicy};
use support::{FakePlane, outgoing, spec};

const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn sa_agent(session: &Session, methods: &[u8], rmpp: bool) -> u32 {
    let spec = AgentSpec { rmpp_version: u8::from(rmpp), ..spec(1, 3, methods) };
    session.register(&spec).unwrap()
}

/// A SA message: RMPP headers as a program writes them, `length` bytes of data.
fn message(method: u8, tid: u64, length: usize, active: bool) -> Vec<u8> {
    let mut bytes = vec![0u8; 56];
    bytes[..4].copy_from_slice(&[1, 3, 2, method]);
    bytes[8..16].copy_from_slice(&tid.to_be_bytes());
    bytes[16..18].copy_from_slice(&[0, 0x11]);
    if active {
        bytes[24..27].copy_from_slice(&[1, 1, 1]);
    }
    bytes.extend((0..length).map(|at| u8::try_from((at * 7 + at / 256) % 256).unwrap()));
    bytes
}

fn recv(session: &Session, timeout: Option<Duration>) -> Result<(u32, u32, Vec<u8>), RecvError> {
    session
        .recv_with(timeout, |incoming| Taken::Done((incoming.agent, incoming.status, incoming.data.to_vec())))
}

fn reply_lid(answer_to: usize) -> u16 {
    support::lid_of(answer_to)
}

#[test]
fn a_table_of_many_segments_answers_a_plain_request() {
    for wait in [WaitPolicy::default(), WaitPolicy::Sleep] {
        let plane = FakePlane::fabric();
        let (server, client) = (plane.open_with(wait), plane.open_with(wait));
        let serves = sa_agent(&server, &[0x01, 0x12, 0x14], true);
        let asks = sa_agent(&client, &[], true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (_, _, request) = recv(&server, LONG).unwrap();
                let tid = u64::from_be_bytes(request[8..16].try_into().unwrap());
                let answer = message(0x92, tid, 112 * 702, true);
                let mut send = outgoing(serves, &answer, 0, 3);
                send.envelope.dlid = reply_lid(1);
                server.send(&send).unwrap();
                while server.rmpp_counts().messages_sent == 0 {
                    let _ = recv(&server, Some(Duration::from_millis(20)));
                }
            });
            client.send(&outgoing(asks, &message(0x12, 5, 200, false), 20_000, 0)).unwrap();
            let (agent, status, data) = recv(&client, LONG).unwrap();
            assert_eq!((agent, status, data.len()), (asks, 0, 56 + 112 * 702));
            assert_eq!(data[36..], message(0x92, 0, 112 * 702, true)[36..]);
        });
        assert_eq!((client.outstanding(), client.stats().received), (0, 1));
        assert_eq!(client.rmpp_counts().messages_received, 1);
    }
}

#[test]
fn the_active_flag_alone_makes_a_message_as_opensm_writes_it() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = sa_agent(&session, &[], true);
    let mut sent = message(0x92, 5, 1_000, true);
    sent[24..26].fill(0);
    session.send(&outgoing(agent, &sent, 0, 3)).unwrap();
    plane.wait_for(1);
    let first = plane.seen()[0];
    assert_eq!(
        first.mad[24..36],
        [1, 1, 3, 0, 0, 0, 0, 1, 0, 0, 4, 76],
        "5 segments of 220 bytes, none unused"
    );
}

#[test]
fn a_double_sided_transfer_of_two_long_messages_works_and_several_run_at_once() {
    let plane = FakePlane::fabric();
    let (server, client) = (plane.open(), plane.open());
    let serves = sa_agent(&server, &[0x14], true);
    let asks = sa_agent(&client, &[], true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                let (_, status, request) = recv(&server, LONG).unwrap();
                assert_eq!((status, request.len()), (0, 56 + 5_000));
                let tid = u64::from_be_bytes(request[8..16].try_into().unwrap());
                let answer = message(0x94, tid, 9_000, true);
                let mut send = outgoing(serves, &answer, 0, 3);
                send.envelope.dlid = reply_lid(1);
                server.send(&send).unwrap();
            }
            while server.rmpp_counts().messages_sent < 5 {
                let _ = recv(&server, Some(Duration::from_millis(20)));
            }
        });
        for tid in 0..5 {
            client.send(&outgoing(asks, &message(0x14, tid, 5_000, true), 20_000, 3)).unwrap();
        }
        let mut tids = Vec::new();
        for _ in 0..5 {
            let (_, status, data) = recv(&client, LONG).unwrap();
            assert_eq!((status, data.len()), (0, 56 + 9_000));
            tids.push(data[15]);
        }
        tids.sort_unstable();
        assert_eq!(tids, [0, 1, 2, 3, 4]);
    });
    assert_eq!(client.outstanding(), 0);
    let (sent, received) = (client.rmpp_counts().messages_sent, client.rmpp_counts().messages_received);
    assert!(received == 5 && sent <= 5);
}

#[test]
fn lost_packets_are_sent_again() {
    let mut number = 0u32;
    let plane = FakePlane::start(move |desk, session, message| {
        number += 1;
        if !number.is_multiple_of(40) {
            desk.route(session, message);
        }
    });
    let (server, client) = (plane.open(), plane.open());
    let serves = sa_agent(&server, &[0x12], true);
    let asks = sa_agent(&client, &[], true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_, _, request) = recv(&server, LONG).unwrap();
            let tid = u64::from_be_bytes(request[8..16].try_into().unwrap());
            let mut send = outgoing(serves, &[], 20, 1_000);
            let answer = message(0x92, tid, 40_000, true);
            send.data = &answer;
            send.envelope.dlid = reply_lid(1);
            server.send(&send).unwrap();
            while server.rmpp_counts().messages_sent == 0 {
                let _ = recv(&server, Some(Duration::from_millis(5)));
            }
        });
        client.send(&outgoing(asks, &message(0x12, 5, 200, false), 60_000, 0)).unwrap();
        let (_, status, data) = recv(&client, LONG).unwrap();
        assert_eq!(status, 0);
        assert_eq!(data[36..], message(0x92, 0, 40_000, true)[36..]);
        // until the sender has its last acknowledgement
        while server.rmpp_counts().messages_sent == 0 {
            let _ = recv(&client, Some(Duration::from_millis(5)));
        }
    });
    assert!(server.rmpp_counts().resends > 0);
}

#[test]
fn a_request_message_that_nobody_acknowledges_times_out_as_its_header() {
    let plane = FakePlane::silent();
    let session = plane.open();
    let agent = sa_agent(&session, &[], true);
    let sent = message(0x14, 9, 5_000, true);
    session.send(&outgoing(agent, &sent, 20, 2)).unwrap();
    let (_, status, data) = recv(&session, LONG).unwrap();
    assert_eq!((status, data.len()), (STATUS_TIMED_OUT, 24));
    assert_eq!(data[12..24], sent[12..24]);
    assert_eq!(session.outstanding(), 0);
    plane.wait_for(4);
    let kinds: Vec<u8> = plane.seen().iter().map(|seen| seen.mad[25]).collect();
    assert_eq!(kinds, [1, 1, 1, 4], "three times the first segment, then ABORT");
}

#[test]
fn an_aborted_request_vanishes_without_a_packet() {
    let plane = FakePlane::start(|desk, session, message| {
        if message.mad[25] == 1 {
            let mut abort = support::response_to(message);
            abort.mad[25..28].copy_from_slice(&[4, 1, 127]);
            desk.give(session, &abort);
        }
    });
    let session = plane.open();
    let agent = sa_agent(&session, &[], true);
    session.send(&outgoing(agent, &message(0x14, 9, 5_000, true), 5_000, 2)).unwrap();
    while session.outstanding() > 0 {
        let _ = recv(&session, Some(Duration::from_millis(5)));
    }
    assert_eq!(recv(&session, Some(Duration::from_millis(50))), Err(RecvError::TimedOut));
    assert_eq!(session.rmpp_counts().aborts_received, 1);
}

#[test]
fn segments_pass_as_they_are_for_those_who_do_rmpp_themselves() {
    let plane = FakePlane::fabric();
    let (server, client) = (plane.open(), plane.open());
    sa_agent(&server, &[0x12], false);
    let user = AgentSpec { rmpp_version: 1, user_rmpp: true, ..spec(1, 3, &[]) };
    let asks = client.register(&user).unwrap();
    for segment in 1..=3u8 {
        let mut bytes = message(0x12, 5, 200, true);
        bytes[31] = segment;
        // the same TID again and again: these are no new requests
        client.send(&outgoing(asks, &bytes, 0, 0)).unwrap();
        let (_, _, got) = recv(&server, LONG).unwrap();
        assert_eq!((got.len(), got[24..].to_vec()), (256, bytes[24..].to_vec()));
    }
    let mut answer = plane.seen()[0];
    answer.envelope.agent = client.hi_tid(asks).unwrap();
    answer.mad[8..12].copy_from_slice(&answer.envelope.agent.to_be_bytes());
    answer.mad[3] = 0x92;
    for segment in 1..=2u8 {
        answer.mad[31] = segment;
        plane.give(1, &answer);
        assert_eq!(recv(&client, LONG).unwrap().2[31], segment, "no request waits, yet it is delivered");
    }
}

#[test]
fn a_plain_mad_of_an_rmpp_agent_is_matched_like_any_other() {
    let plane = FakePlane::fabric();
    let (server, client) = (plane.open(), plane.open());
    let serves = sa_agent(&server, &[0x12], true);
    let asks = sa_agent(&client, &[], true);
    client.send(&outgoing(asks, &message(0x12, 5, 200, false), 20_000, 0)).unwrap();
    let (_, _, request) = recv(&server, LONG).unwrap();
    let mut answer = request;
    answer[3] = 0x92;
    server.send(&outgoing(serves, &answer, 0, 0)).unwrap();
    let (_, status, data) = recv(&client, LONG).unwrap();
    assert_eq!((status, data.len()), (0, 256));
    assert_eq!(client.rmpp_counts(), madplane_client::rmpp::Counts::default());
}

#[test]
fn many_clients_are_served_at_once() {
    let plane = FakePlane::fabric();
    let server = plane.open();
    let serves = sa_agent(&server, &[0x12], true);
    let clients = [plane.open(), plane.open(), plane.open()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // the address is not checked for LID 0xffff, which the plane here routes by TID like any other
            for _ in 0..9 {
                let (_, _, request) = recv(&server, LONG).unwrap();
                let tid = u64::from_be_bytes(request[8..16].try_into().unwrap());
                let answer = message(0x92, tid, 3_000, true);
                let mut send = outgoing(serves, &answer, 0, 20);
                send.envelope.dlid = 0xffff;
                server.send(&send).unwrap();
            }
            while server.rmpp_counts().messages_sent < 9 {
                let _ = recv(&server, Some(Duration::from_millis(20)));
            }
        });
        for client in &clients {
            scope.spawn(|| {
                let asks = sa_agent(client, &[], true);
                for tid in 0..3 {
                    client.send(&outgoing(asks, &message(0x12, tid, 200, false), 60_000, 0)).unwrap();
                    let (_, status, data) = recv(client, LONG).unwrap();
                    assert_eq!((status, data.len(), u64::from(data[15])), (0, 3_056, tid));
                }
            });
        }
    });
}
