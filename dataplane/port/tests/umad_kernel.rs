//! The umad port against the kernel's driver: what it promises for time-outs, transaction ids, RMPP and refusals.
//!
//! Needs the soft-RoCE devices of scripts/rxe-vm; skipped elsewhere.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they saw and why they are skipped"
)]

mod support;

use madplane_port::device::{Unavailable, umad_path};
use madplane_port::umad_dev::port::UmadPort;
use madplane_port::umad_dev::{AgentSpec, Device, HEADER_LEN, Header, MAD_HEADER_LEN, Receipt, TIMED_OUT};
use madplane_port::{MadMessage, MadRx, MadTx};
use madplane_shm::message::Envelope;
use support::{
    CLASS, GSI_Q_KEY, OUI, gid_of, number_of, receive, rxe_or_skip, sleep_on, vendor_mad, wait_for,
};

const GET: u8 = 0x01;
const GET_RESP: u8 = 0x81;

fn agent(methods: u128) -> AgentSpec {
    AgentSpec { pair: 1, class: CLASS, version: 1, oui: OUI, methods, kernel_rmpp: false }
}

fn port(device: &str) -> UmadPort {
    UmadPort::open(&format!("umad:{device}").parse().unwrap()).unwrap()
}

fn device(name: &str) -> Device {
    Device::open(&umad_path(name, 1).unwrap()).unwrap()
}

/// Somebody who takes requests on `rxe1` and does not answer: where there is nobody, the kernel answers itself (status 0x0C).
fn silent_agent() -> Device {
    let silent = device("rxe1");
    silent.register(&agent(1 << GET)).unwrap();
    silent
}

/// How a request of an agent on `rxe0` is addressed to queue pair 1 of `rxe1`.
fn to_rxe1(agent: u32, timeout_ms: u32) -> Header {
    Header {
        agent,
        timeout_ms,
        pair: 1,
        q_key: GSI_Q_KEY,
        global: true,
        hop_limit: 64,
        gid: gid_of("rxe1"),
        ..Header::default()
    }
}

#[test]
fn the_kernel_answers_for_nobody() {
    if !rxe_or_skip("answers for nobody") {
        return;
    }
    let mut client = port("rxe0");
    let asking = client.register(&agent(0)).unwrap();
    let envelope = Envelope { agent: asking, ..support::to("rxe1", 1) };
    assert_eq!(client.tx_burst(&[MadMessage { envelope, mad: vendor_mad(GET, 5) }]), 1);
    let answer = receive(&mut client, "the kernel's answer");
    assert_eq!((number_of(&answer.mad), answer.mad[3]), (5, GET_RESP));
    assert_eq!(answer.mad[4..6], [0, 0x0c], "method and attribute not supported");
}

#[test]
fn request_and_answer_keep_the_low_half_of_the_transaction_id() {
    if !rxe_or_skip("request_and_answer") {
        return;
    }
    let (mut client, mut server) = (port("rxe0"), port("rxe1"));
    let asking = client.register(&agent(0)).unwrap();
    let serving = server.register(&agent(1 << GET)).unwrap();
    for number in 1..=50 {
        let envelope = Envelope { agent: asking, ..support::to("rxe1", 1) };
        let request = MadMessage { envelope, mad: vendor_mad(GET, number) };
        assert_eq!(client.tx_burst(&[request]), 1);
        let mut got = receive(&mut server, "the request");
        assert_eq!(number_of(&got.mad), number);
        assert_eq!((got.envelope.agent, got.envelope.src_qp), (serving, 1));
        assert_eq!(got.envelope.gid, gid_of("rxe0"));
        let upper = got.mad[8..12].to_vec();
        got.mad[3] = GET_RESP;
        got.envelope = Envelope {
            dlid: got.envelope.slid,
            dst_qp: got.envelope.src_qp,
            q_key: GSI_Q_KEY,
            ..got.envelope
        };
        assert_eq!(server.tx_burst(&[got]), 1);
        let answer = receive(&mut client, "the answer");
        assert_eq!(number_of(&answer.mad), number);
        assert_eq!(answer.mad[8..12], upper[..], "the kernel's half comes back too");
        assert_eq!(answer.envelope.agent, asking);
    }
    assert_eq!(client.timed_out(), None);
    assert_eq!((client.counters().sent, client.counters().received), (50, 50));
}

#[test]
fn a_request_without_an_answer_comes_back_as_its_24_byte_header_with_status_110() {
    if !rxe_or_skip("time-out") {
        return;
    }
    let client = device("rxe0");
    let asking = client.register(&agent(0)).unwrap();
    let _silent = silent_agent();
    let mut packet = [0u8; HEADER_LEN + 256];
    packet[HEADER_LEN..].copy_from_slice(&vendor_mad(GET, 0x1122_3344));
    let to = to_rxe1(asking, 100);
    client.send(&to, &mut packet).unwrap();
    let again = client.send(&to, &mut packet).unwrap_err();
    assert_eq!(again.raw_os_error(), Some(libc::EINVAL), "the same transaction id while it waits");
    let mut back = [0xa5u8; HEADER_LEN + 256];
    assert!(sleep_on(client.fd(), 30_000), "the time-out wakes");
    let Receipt::Mad { header, length } = client.receive(&mut back).unwrap() else {
        panic!("nothing came back")
    };
    assert_eq!((header.status, length), (TIMED_OUT, MAD_HEADER_LEN));
    assert_eq!(header.agent, asking);
    assert_eq!(back[HEADER_LEN + 12..HEADER_LEN + 16], 0x1122_3344_u32.to_be_bytes());
    assert_eq!(back[HEADER_LEN + MAD_HEADER_LEN..], [0xa5; 256 - MAD_HEADER_LEN], "nothing behind it");
}

#[test]
fn the_port_keeps_time_outs_aside() {
    if !rxe_or_skip("time-outs aside") {
        return;
    }
    let mut client = port("rxe0");
    let _silent = silent_agent();
    client.set_timeout_ms(20);
    let asking = client.register(&agent(0)).unwrap();
    let envelope = Envelope { agent: asking, ..support::to("rxe1", 1) };
    let burst: Vec<_> = (0..3).map(|number| MadMessage { envelope, mad: vendor_mad(GET, number) }).collect();
    assert_eq!(client.tx_burst(&burst), 3);
    let mut numbers = Vec::new();
    wait_for("three time-outs", || {
        let mut none = [MadMessage::default()];
        assert_eq!(client.rx_burst(&mut none), 0, "a time-out is no MAD");
        while let Some(late) = client.timed_out() {
            assert_eq!(late.agent, asking);
            numbers.push(u32::from_be_bytes(late.mad[12..16].try_into().unwrap()));
        }
        (numbers.len() == 3).then_some(())
    });
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(client.counters().timed_out, 3);
}

#[test]
fn the_kernel_cuts_and_joins_an_answer_of_5000_bytes() {
    if !rxe_or_skip("RMPP") {
        return;
    }
    let (client, server) = (device("rxe0"), device("rxe1"));
    let rmpp = |methods| AgentSpec { kernel_rmpp: true, ..agent(methods) };
    let asking = client.register(&rmpp(0)).unwrap();
    let serving = server.register(&rmpp(1 << GET)).unwrap();
    let mut packet = [0u8; HEADER_LEN + 256];
    packet[HEADER_LEN..].copy_from_slice(&vendor_mad(GET, 77));
    let to = to_rxe1(asking, 20_000);
    client.send(&to, &mut packet).unwrap();
    let request = wait_for("the request", || match server.receive(&mut packet).unwrap() {
        Receipt::Mad { header, .. } => Some(header),
        _ => None,
    });
    // header of the MAD, RMPP, OUI: 40 bytes; then the data
    let mut answer = vec![0u8; HEADER_LEN + 5000];
    answer[HEADER_LEN..HEADER_LEN + 40].copy_from_slice(&packet[HEADER_LEN..HEADER_LEN + 40]);
    answer[HEADER_LEN + 3] = GET_RESP;
    answer[HEADER_LEN + 24..HEADER_LEN + 28].copy_from_slice(&[1, 1, 0x01, 0]); // version 1, DATA, active
    for (index, byte) in answer[HEADER_LEN + 40..].iter_mut().enumerate() {
        *byte = u8::try_from(index % 251).unwrap();
    }
    let back = Header { agent: serving, timeout_ms: 0, retries: 3, q_key: GSI_Q_KEY, ..request };
    server.send(&back, &mut answer).unwrap();
    let mut joined = vec![0u8; HEADER_LEN + 256];
    let needed = wait_for("the joined answer", || match client.receive(&mut joined).unwrap() {
        Receipt::TooLong { needed, .. } => Some(needed),
        Receipt::Mad { header, length } => panic!("{length} bytes, status {}", header.status),
        Receipt::Nothing => None,
    });
    assert!(needed >= 5000, "{needed}");
    joined.resize(HEADER_LEN + needed, 0);
    let Receipt::Mad { header, length } = client.receive(&mut joined).unwrap() else {
        panic!("it waits at the head")
    };
    assert_eq!((header.status, length), (0, needed));
    assert_eq!(number_of(joined[HEADER_LEN..HEADER_LEN + 256].try_into().unwrap()), 77);
    assert_eq!(joined[HEADER_LEN + 40..HEADER_LEN + 5000], answer[HEADER_LEN + 40..]);
}

#[test]
fn the_kernel_refuses_what_does_not_fit() {
    if !rxe_or_skip("refusals") {
        return;
    }
    let file = device("rxe0");
    let refused = |spec: &AgentSpec| file.register(spec).unwrap_err().raw_os_error();
    assert_eq!(
        refused(&AgentSpec { class: 0x81, version: 1, ..agent(0) }),
        Some(libc::EINVAL),
        "an SMP class on queue pair 1"
    );
    assert_eq!(refused(&AgentSpec { oui: [0; 3], ..agent(1 << GET) }), Some(libc::EINVAL), "no OUI");
    let smp = AgentSpec { pair: 0, class: 0x81, version: 1, ..AgentSpec::default() };
    assert_eq!(refused(&smp), Some(libc::EPROTONOSUPPORT), "soft-RoCE has no queue pair 0");
    file.register(&agent(1 << GET)).unwrap();
    assert_eq!(refused(&agent(1 << GET)), Some(libc::EINVAL), "the method is taken");
    let mut packet = [0u8; HEADER_LEN + 256];
    let nobody = Header { agent: 31, ..Header::default() };
    assert_eq!(file.send(&nobody, &mut packet).unwrap_err().raw_os_error(), Some(libc::EIO));
    let nobody = Header { agent: 32, ..Header::default() };
    assert_eq!(file.send(&nobody, &mut packet).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(
        file.send(&nobody, &mut packet[..HEADER_LEN + 35]).unwrap_err().raw_os_error(),
        Some(libc::EINVAL)
    );
    file.unregister(0).unwrap();
    file.register(&agent(1 << GET)).unwrap();
}

#[test]
fn what_is_missing_is_said() {
    if !rxe_or_skip("umad reasons") {
        return;
    }
    let open = |spec: &str| UmadPort::open(&spec.parse().unwrap()).unwrap_err();
    assert_eq!(
        open("umad:rxe9").to_string(),
        "unavailable, because there is no RDMA device \"rxe9\"; there are rxe0, rxe1"
    );
    assert_eq!(open("umad:rxe0,port=2"), Unavailable::NoPort { name: "rxe0".to_owned(), port: 2 });
}
