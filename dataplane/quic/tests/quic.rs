//! Links over QUIC on loopback: credentials, refusals, sleep, planes that are started again, and floods of MADs each of which
//! arrives or is counted. What is asked of every port: `conformance.rs`. Every wait has a watchdog.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::mem::MaybeUninit;
mod peers;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use madplane_port::datagram::{Carrier, Datagrams};
use madplane_port::link::frame::Refusal;
use madplane_port::link::{Link, LinkState};
use madplane_port::{MadMessage, MadRx, MadTx};
use madplane_quic::{QuicOptions, Service};
use madplane_shm::process::monotonic_ns;
use peers::{Authority, PATIENCE, free_address, link, open};
use rustix::event::{Timespec, epoll};

fn numbered(number: u32) -> MadMessage {
    let mut message = MadMessage::default();
    message.envelope.kind = 1;
    message.envelope.agent = number;
    message.envelope.length = 256;
    message.mad.fill(number.to_le_bytes()[0]);
    message
}

/// Serves an end once, as a worker does; what came.
fn poll(link: &mut Link) -> Vec<MadMessage> {
    let mut buffer = vec![numbered(0xa5a5); 32];
    let count = link.rx_burst(&mut buffer);
    link.tick(monotonic_ns());
    while link.next_event().is_some() {}
    link.flush();
    buffer.truncate(count);
    buffer
}

#[track_caller]
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two ends, their service, and where they are.
struct Pair {
    authority: Authority,
    service: Service,
    addresses: [SocketAddr; 2],
    ends: [Link; 2],
}

impl Pair {
    fn up() -> Self {
        let authority = Authority::new();
        let service = Service::start().unwrap();
        let addresses = [free_address(), free_address()];
        let [a, b] = addresses;
        let ends = [
            link(open(&service, a, b, &authority.plane("a"))),
            link(open(&service, b, a, &authority.plane("b"))),
        ];
        let mut pair = Self { authority, service, addresses, ends };
        pair.wait_until_up();
        pair
    }

    fn wait_until_up(&mut self) {
        let ends = &mut self.ends;
        wait("both ends are up", || {
            ends.iter_mut().for_each(|end| drop(poll(end)));
            ends.iter().all(|end| end.state() == LinkState::Up)
        });
    }
}

#[test]
fn mads_arrive_in_order_each_once_and_whole_or_are_counted_as_lost() {
    let mut pair = Pair::up();
    let mut got = Vec::new();
    let mut sent = 0;
    for burst in (0..400).map(|round| [1, 3, 16, 5][round % 4]) {
        let messages: Vec<_> = (sent..sent + burst).map(numbered).collect();
        sent += u32::try_from(pair.ends[0].tx_burst(&messages)).unwrap();
        drop(poll(&mut pair.ends[0]));
        got.extend(poll(&mut pair.ends[1]));
    }
    wait("every MAD has come or is counted", || {
        drop(poll(&mut pair.ends[0]));
        got.extend(poll(&mut pair.ends[1]));
        let counts = pair.ends[1].counts();
        counts.received + counts.lost == u64::from(sent)
    });
    assert!(!got.is_empty());
    for message in &got {
        assert_eq!(*message, numbered(message.envelope.agent));
    }
    let late = pair.ends[1].counts().late;
    let disorder = got.windows(2).filter(|pair| pair[0].envelope.agent >= pair[1].envelope.agent).count();
    assert!(disorder as u64 <= late, "{disorder} out of order, {late} counted");
}

#[test]
fn a_full_transport_takes_the_front_of_a_burst_and_says_so() {
    let mut pair = Pair::up();
    let burst: Vec<_> = (0..100_000).map(numbered).collect();
    // nobody takes the other end's, and the service may be slower or not
    let mut given = 0;
    let mut refused = false;
    while given < burst.len() && !refused {
        let taken = pair.ends[0].tx_burst(&burst[given..]);
        refused = taken < burst.len() - given;
        given += taken;
    }
    assert!(refused, "a ring of {} frames", pair.ends[0].capabilities_of_tx());
    assert_eq!(pair.ends[0].counts().sent, given as u64, "what was refused has no number");
    let mut got = Vec::new();
    wait("every MAD that was taken has come or is counted", || {
        drop(poll(&mut pair.ends[0]));
        got.extend(poll(&mut pair.ends[1]));
        let counts = pair.ends[1].counts();
        counts.received + counts.lost == given as u64
    });
    assert_eq!(pair.ends.iter().map(|end| end.counts().downs).collect::<Vec<_>>(), [0, 0]);
}

trait Depth {
    fn capabilities_of_tx(&self) -> usize;
}

impl Depth for Link {
    fn capabilities_of_tx(&self) -> usize {
        MadTx::capabilities(self).depth
    }
}

#[test]
fn the_other_end_may_close_while_busy_and_open_again() {
    let mut pair = Pair::up();
    for round in 0..3 {
        let burst: Vec<_> = (0..40).map(numbered).collect();
        pair.ends[0].tx_burst(&burst);
        // what a restarted plane does: the same addresses, a later session
        let [a, b] = pair.addresses;
        let credentials = pair.authority.plane("b");
        let spare = pair.authority.plane("spare");
        let nowhere = open(&pair.service, free_address(), free_address(), &spare);
        drop(std::mem::replace(&mut pair.ends[1], link(nowhere)));
        let end = &mut pair.ends[0];
        wait("the end that is left hears nothing", || {
            drop(poll(end));
            end.tx_burst(&burst);
            end.state() == LinkState::Silent
        });
        pair.ends[1] = link(open(&pair.service, b, a, &credentials));
        pair.wait_until_up();
        assert_eq!(pair.ends[0].counts().downs, round + 1);
    }
}

#[test]
fn a_sleeping_worker_is_woken_by_a_frame() {
    let mut pair = Pair::up();
    let [one, other] = &mut pair.ends;
    // by edges, as a worker does: nobody reads the waker
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, other.waker().unwrap(), epoll::EventData::new_u64(0), flags).unwrap();
    let rung = |patience: &Timespec| {
        let mut events = [const { MaybeUninit::uninit() }; 4];
        epoll::wait(&epoll, &mut events, Some(patience)).unwrap().0.len()
    };
    rung(&Timespec { tv_sec: 0, tv_nsec: 0 });
    for number in 0..20 {
        wait("the end may sleep", || {
            drop(poll(other));
            other.arm()
        });
        assert_eq!(one.tx_burst(&[numbered(number)]), 1);
        one.flush();
        assert_eq!(rung(&Timespec { tv_sec: 60, tv_nsec: 0 }), 1);
        other.disarm();
        drop(poll(one));
    }
}

#[test]
fn who_has_no_certificate_of_the_authority_never_comes_in_and_is_counted() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let service = Service::start().unwrap();
    for (first, second) in [(&authority, &foreign), (&foreign, &authority)] {
        let [a, b] = [free_address(), free_address()];
        let mut ends =
            [link(open(&service, a, b, &first.plane("a"))), link(open(&service, b, a, &second.plane("b")))];
        wait("somebody is refused, at the end that asked for the credential", || {
            ends.iter_mut().for_each(|end| drop(poll(end)));
            assert!(ends.iter().all(|end| end.state() == LinkState::Silent));
            ends.iter().all(|end| end.mishaps().refused_peers > 0)
        });
        assert!(!ends[0].describe().contains("connected"), "{}", ends[0].describe());
    }
}

/// Addresses of which the first calls.
fn ordered_addresses() -> [SocketAddr; 2] {
    let mut addresses = [free_address(), free_address()];
    addresses.sort_unstable();
    addresses
}

/// Two ends of which only the one that is called insists on a name.
#[test]
fn a_peer_of_another_name_is_refused_by_who_is_called() {
    let authority = Authority::new();
    let service = Service::start().unwrap();
    let [a, b] = ordered_addresses();
    let open = |own: &str, local: SocketAddr, peer: String| {
        let directory = authority.plane(own);
        let options = QuicOptions::parse(&local.to_string(), &peer, directory.to_str().unwrap()).unwrap();
        service.open(options).unwrap()
    };
    for (name, welcome) in [("a", true), ("c", false), ("madplane", true)] {
        let (caller, watch) = open("a", a, b.to_string());
        let (called, _) = open("b", b, format!("{name}@{a}"));
        if welcome {
            wait("connected", || caller.carrier() == Carrier::Up && called.carrier() == Carrier::Up);
            assert_eq!(called.mishaps().refused_peers, 0);
        } else {
            wait("refused", || called.mishaps().refused_peers > 0);
            wait("the caller hears why", || watch.text().contains("another name"));
            assert_eq!(called.carrier(), Carrier::Down);
        }
        drop((caller, called));
        wait("the sockets are free", || UdpSocket::bind(a).is_ok() && UdpSocket::bind(b).is_ok());
    }
}

#[test]
fn a_peer_of_another_name_is_refused_by_who_calls() {
    let authority = Authority::new();
    let service = Service::start().unwrap();
    let [a, b] = ordered_addresses();
    let directory = authority.plane("a");
    let directory = directory.to_str().unwrap();
    for (name, welcome) in [("b", true), ("c", false)] {
        let peer = format!("{name}@{b}");
        let options = QuicOptions::parse(&a.to_string(), &peer, directory).unwrap();
        let other =
            QuicOptions::parse(&b.to_string(), &format!("a@{a}"), authority.plane("b").to_str().unwrap());
        let (one, watch) = service.open(options).unwrap();
        let (other, _) = service.open(other.unwrap()).unwrap();
        if welcome {
            wait("connected", || one.carrier() == Carrier::Up && other.carrier() == Carrier::Up);
        } else {
            wait("refused", || one.mishaps().refused_peers > 0);
            assert!(watch.text().contains(&b.to_string()), "{}", watch.text());
        }
        drop((one, other));
        wait("the sockets are free", || UdpSocket::bind(a).is_ok() && UdpSocket::bind(b).is_ok());
    }
}

#[test]
fn frames_that_are_none_are_refused_and_counted() {
    let authority = Authority::new();
    let service = Service::start().unwrap();
    let [a, b] = [free_address(), free_address()];
    let mut raw = open(&service, a, b, &authority.plane("a"));
    let mut end = link(open(&service, b, a, &authority.plane("b")));
    wait("connected", || raw.carrier() == Carrier::Up);
    let mut whole = [0; 88];
    whole[..8].copy_from_slice(&[b'M', b'P', b'L', b'K', 1, 2, 0, 88]);
    whole[15] = 7;
    let with = |at: usize, value: u8| {
        let mut bytes = whole;
        bytes[at] = value;
        bytes.to_vec()
    };
    let frames = [
        (whole[..50].to_vec(), Refusal::Truncated),
        ([whole.to_vec(), vec![0; 9]].concat(), Refusal::Oversized),
        (with(0, b'X'), Refusal::Magic),
        (with(4, 9), Refusal::Version),
        (with(5, 9), Refusal::Kind),
    ];
    for (frame, refusal) in frames {
        wait(refusal.label(), || {
            raw.send(&frame);
            raw.flush();
            drop(poll(&mut end));
            end.counts().refused[refusal as usize] > 0
        });
    }
    // one that is longer than any frame does not even leave
    assert!(!raw.send(&[0; 481]));
}

#[test]
fn credentials_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let service = Service::start().unwrap();
    let directory = authority.plane("a");
    let refusal = || {
        let options = QuicOptions::parse("127.0.0.1:0", "127.0.0.1:9", directory.to_str().unwrap()).unwrap();
        service.open(options).unwrap_err().to_string()
    };
    let key = std::fs::read(directory.join("plane.key")).unwrap();
    std::fs::write(directory.join("plane.key"), "nonsense").unwrap();
    assert!(refusal().contains("plane.key"), "{}", refusal());
    let other = std::fs::read(authority.plane("b").join("plane.key")).unwrap();
    std::fs::write(directory.join("plane.key"), other).unwrap();
    assert!(refusal().contains("credentials in"), "{}", refusal());
    std::fs::write(directory.join("plane.key"), key).unwrap();
    std::fs::write(directory.join("ca.pem"), "").unwrap();
    assert!(refusal().contains("ca.pem: holds no certificate"), "{}", refusal());
    std::fs::remove_file(directory.join("plane.pem")).unwrap();
    std::fs::write(directory.join("ca.pem"), &authority.pem).unwrap();
    assert!(refusal().contains("plane.pem"), "{}", refusal());
}
