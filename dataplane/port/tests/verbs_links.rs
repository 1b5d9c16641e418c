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

use madplane_port::link::LinkState;
use madplane_port::verbs::links::LinkOptions;
use madplane_port::{MadMessage, MadRx, MadTx};
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
    let mut ends = [verbs_link("rxe0,gid=0", "rxe1", words), verbs_link("rxe1", "rxe0", words)];
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
