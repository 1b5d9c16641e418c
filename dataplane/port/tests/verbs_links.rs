//! Links over queue pairs of real devices: ends that find each other, sleep, come back, and say what is wrong.
//!
//! Needs the soft-RoCE devices of scripts/rxe-vm and the feature `verbs`; skipped elsewhere.
#![cfg(feature = "verbs")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they saw and why they are skipped"
)]

mod support;
mod verbs_end;

use std::time::Instant;

use madplane_port::datagram::{Datagrams, MAX_FRAME};
use madplane_port::link::LinkState;
use madplane_port::rendezvous::{CLASS, End, Message, Name, OUI, Place, Says};
use madplane_port::umad_dev::AgentSpec;
use madplane_port::umad_dev::port::UmadPort;
use madplane_port::verbs::links::LinkOptions;
use madplane_port::verbs::{QueueSettings, UdDatagrams};
use madplane_port::{Envelope, MadMessage, MadRx, MadTx};
use madplane_shm::process::monotonic_ns;
use support::{number_of, rxe_or_skip, sleep_on, vendor_mad, wait_for};
use verbs_end::{VerbsEnd, verbs_link};

/// A duty cycle; what has come.
fn turn(end: &mut VerbsEnd) -> Vec<u32> {
    let mut buffer = [MadMessage::default(); 16];
    let count = end.link.rx_burst(&mut buffer);
    end.link.tick(monotonic_ns());
    while end.link.next_event().is_some() {}
    end.link.release();
    end.link.flush();
    buffer[..count].iter().map(|message| number_of(&message.mad)).collect()
}

fn send(end: &mut VerbsEnd, number: u32) {
    assert_eq!(end.link.tx_burst(&[MadMessage { mad: vendor_mad(3, number), ..numbered() }]), 1);
    end.link.flush();
}

fn numbered() -> MadMessage {
    let mut message = MadMessage::default();
    message.envelope.length = 256;
    message
}

fn come_up(ends: &mut [VerbsEnd]) {
    wait_for("the ends of the link", || {
        ends.iter_mut().for_each(|end| drop(turn(end)));
        std::thread::sleep(std::time::Duration::from_millis(1));
        ends.iter().all(|end| end.link.state() == LinkState::Up).then_some(())
    });
}

fn joined(words: &str) -> [VerbsEnd; 2] {
    let mut ends = [verbs_link("rxe0,gid=0,pkey=0xffff", "rxe1", words), verbs_link("rxe1", "rxe0", words)];
    come_up(&mut ends);
    ends
}

fn median_round_trip(ends: [VerbsEnd; 2], rounds: u32, sleeping: bool) -> std::time::Duration {
    let next = move |end: &mut VerbsEnd| {
        wait_for("a MAD of a round trip", || {
            let got = turn(end);
            if sleeping && got.is_empty() {
                if end.link.arm() {
                    // keep-alives wake as well
                    assert!(sleep_on(end.link.waker().unwrap(), 5_000), "a wake-up was lost");
                }
                end.link.disarm();
            }
            got.first().copied()
        })
    };
    let [mut a, mut b] = ends;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..rounds {
                let number = next(&mut b);
                send(&mut b, number);
            }
        });
        let mut times = Vec::new();
        for number in 0..rounds {
            let begun = Instant::now();
            send(&mut a, number);
            assert_eq!(next(&mut a), number);
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        times[times.len() / 2]
    })
}

#[test]
fn mads_go_to_and_fro_polled_and_asleep() {
    if !rxe_or_skip("round trips over a link") {
        return;
    }
    let polled = median_round_trip(joined(""), 1000, false);
    let slept = median_round_trip(joined(",link=a"), 1000, true);
    println!("median round trip over a link: polled {polled:?}, by completion channel {slept:?}");
}

#[test]
fn an_end_that_was_made_anew_is_found_without_a_word_to_anybody() {
    if !rxe_or_skip("an end made anew") {
        return;
    }
    let [mut a, b] = joined(",link=x");
    let before = a.watch.text();
    drop(b);
    wait_for("silence", || {
        turn(&mut a);
        std::thread::sleep(std::time::Duration::from_millis(5));
        (a.link.state() == LinkState::Silent).then_some(())
    });
    wait_for("what the other kernel says", || {
        turn(&mut a);
        a.watch.text().contains("no plane there").then_some(())
    });
    let mut ends = [a, verbs_link("rxe1", "rxe0", ",link=x")];
    come_up(&mut ends);
    let after = ends[0].watch.text();
    println!("{before}\n{after}");
    assert!(before != after && after.contains("rxe0 port 1 queue pair"), "{before}, then {after}");
    assert_eq!(ends[0].link.counts().downs, 1);
    send(&mut ends[1], 7);
    assert_eq!(wait_for("a MAD", || turn(&mut ends[0]).first().copied()), 7);
}

#[test]
fn links_between_the_same_ports_are_told_apart_by_their_names() {
    if !rxe_or_skip("names of links") {
        return;
    }
    let [mut a, mut b] = joined(",link=first");
    let peer = std::net::Ipv6Addr::from(support::gid_of("rxe1"));
    let open = |end: &VerbsEnd, own: &str, words: &str| {
        let peer = if own == "rxe0" { peer } else { std::net::Ipv6Addr::from(support::gid_of("rxe0")) };
        end.service.open(LinkOptions::parse(own, &format!("{peer}{words}"), "").unwrap())
    };
    assert!(open(&a, "rxe0", ",link=first").unwrap_err().to_string().contains("of that name"));
    let (second_a, watch) = open(&a, "rxe0", ",link=second").unwrap();
    wait_for("an answer", || watch.text().contains("it has no such link").then_some(()));
    let (second_b, _) = open(&b, "rxe1", ",link=second").unwrap();
    let own = *a.link.own();
    let link = |datagrams| madplane_port::link::Link::new(Box::new(datagrams), 1, own);
    let (mut second_a, mut second_b) = (link(second_a), link(second_b));
    wait_for("the second link", || {
        for link in [&mut second_a, &mut second_b] {
            link.rx_burst(&mut [numbered(); 4]);
            link.tick(monotonic_ns());
            link.flush();
        }
        turn(&mut a);
        turn(&mut b);
        (second_a.state() == LinkState::Up && second_b.state() == LinkState::Up).then_some(())
    });
    // one does not hear the other's
    send(&mut a, 9);
    assert_eq!(wait_for("a MAD", || turn(&mut b).first().copied()), 9);
    assert_eq!(second_b.rx_burst(&mut [numbered(); 4]), 0);
    assert_eq!((a.link.mishaps().refused_peers, b.link.counts().lost), (0, 0));
}

#[test]
fn a_port_without_carrier_takes_the_link_down_and_up() {
    if !rxe_or_skip("carrier") {
        return;
    }
    let shell = |command: &str| {
        assert!(std::process::Command::new("bash").arg("-c").arg(command).status().unwrap().success());
    };
    let mut ends = joined(",link=carrier");
    shell("ip link set net0 down");
    wait_for("both ends to go down", || {
        ends.iter_mut().for_each(|end| drop(turn(end)));
        let down = ends.iter().all(|end| end.link.state() == LinkState::Silent);
        (down && ends[0].watch.text().contains("not ACTIVE")).then_some(())
    });
    shell("ip link set net0 up");
    come_up(&mut ends);
}

#[test]
fn what_cannot_be_opened_says_why_in_one_line() {
    if !rxe_or_skip("reasons") {
        return;
    }
    let end = verbs_link("rxe0", "rxe1", ",link=reasons");
    let refused = |service: &madplane_port::verbs::links::Service, own: &str, peer: &str| {
        let error = service.open(LinkOptions::parse(own, peer, "").unwrap()).unwrap_err().to_string();
        println!("{own} to {peer}: {error}");
        assert!(error.starts_with("unavailable, because ") && !error.contains('\n'), "{error}");
        error
    };
    let gid = std::net::Ipv6Addr::from(support::gid_of("rxe1")).to_string();
    assert!(refused(&end.service, "rxe0,pkey=0x8001", &gid).contains("no P_Key 0x8001"));
    assert!(refused(&end.service, "rxe0", "lid:5").contains("by GID"));
    assert!(refused(&end.service, "rxe0,port=2", &gid).contains("no port 2"));
    let second = madplane_port::verbs::links::Service::start().unwrap();
    assert!(refused(&second, "rxe0", &gid).contains("another program waits for links at rxe0 port 1"));
    drop(end);
    second.open(LinkOptions::parse("rxe0", &gid, "").unwrap()).unwrap();
}

#[test]
fn questions_that_lie_or_make_no_sense_are_counted_and_change_nothing() {
    if !rxe_or_skip("wrong questions") {
        return;
    }
    let mut ends = joined(",link=q");
    // somebody else at the peer's port
    let mut kernel = UmadPort::open(&"umad:rxe1".parse().unwrap()).unwrap();
    let agent = AgentSpec { pair: 1, class: CLASS, version: 1, oui: OUI, ..AgentSpec::default() };
    let agent = kernel.register(&agent).unwrap();
    let envelope = Envelope { agent, ..support::to("rxe0", 1) };
    let mut ask = |mad| assert_eq!(kernel.tx_burst(&[MadMessage { envelope, mad }]), 1);
    let end = |device| {
        let place = Place { gid: support::gid_of(device), lid: 0 };
        End { place, pair: 77, q_key: 1, frame: 480 }
    };
    let question = |transaction, name: &str, end| {
        let name = Name::new(name.as_bytes()).unwrap();
        Message { answers: false, transaction, name, says: Says::Here(end) }.write()
    };
    let [one, other] = &mut ends;
    let mut refused = |wanted| {
        wait_for("a refusal", || {
            turn(one);
            turn(other);
            (one.link.mishaps().refused_peers >= wanted).then_some(())
        });
        assert_eq!(one.link.mishaps().refused_peers, wanted);
    };
    ask(question(1, "q", end("rxe0")));
    refused(1);
    let mut later = question(2, "q", end("rxe1"));
    later[44] = 2;
    ask(later);
    refused(2);
    let seed = 0x5eed_0003_u64;
    println!("seed {seed:#x}");
    let mut random = seed;
    for number in 0..100 {
        let mut mad = question(100 + number, "q", end("rxe1"));
        for byte in &mut mad[45..] {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = random.to_be_bytes()[0];
        }
        ask(mad);
    }
    refused(102);
    // whoever asks for a link that is not there is told so
    ask(question(3, "nowhere", end("rxe1")));
    let answer = support::receive(&mut kernel, "an answer");
    assert_eq!(Message::parse(&answer.mad).map(|message| message.says), Ok(Says::NoLink));
    come_up(&mut ends);
    assert_eq!((ends[0].link.counts().downs, ends[0].link.mishaps().refused_peers), (0, 102));
}

#[test]
fn a_frame_from_another_port_is_a_strangers_though_its_queue_pair_has_the_peers_number() {
    if !rxe_or_skip("strangers at another port") {
        return;
    }
    let settings = QueueSettings { q_key: 0x0026_d700, ..QueueSettings::default() };
    let open =
        |device: &str| UdDatagrams::open(&format!("verbs:{device}").parse().unwrap(), &settings).unwrap();
    // each device counts its queue pairs up by itself
    let mut b = open("rxe1");
    let ahead = |device, number: u32| loop {
        let queue = open(device);
        if queue.own().pair >= number {
            return queue;
        }
    };
    let mut a = ahead("rxe0", b.own().pair + 1);
    let mut stranger = ahead("rxe1", a.own().pair);
    assert_eq!(stranger.own().pair, a.own().pair, "two ports, one number");
    a.connect(b.own());
    b.connect(a.own());
    stranger.connect(b.own());
    let mut into = [0xa5; MAX_FRAME];
    assert!(stranger.send(&[0xee; 100]));
    stranger.flush();
    wait_for("the stranger's frame", || {
        assert_eq!(b.receive(&mut into), None);
        (b.strange() == 1).then_some(())
    });
    assert!(a.send(&[7; 50]));
    a.flush();
    assert_eq!(wait_for("the peer's frame", || b.receive(&mut into)), 50);
    // who does not know the Q_Key is not even heard
    let before = b.strange();
    stranger.connect(End { q_key: 0x0026_d701, ..b.own() });
    assert!(stranger.send(&[0xee; 100]));
    stranger.flush();
    assert!(a.send(&[8; 51]));
    a.flush();
    assert_eq!(wait_for("the peer's next frame", || b.receive(&mut into)), 51);
    assert_eq!(b.strange(), before);
}
