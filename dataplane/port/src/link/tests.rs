//! Two ends over a pair, by a clock of the test's own.

use super::*;
use crate::datagram::pair::{Faults, PairEnd, pair};

const MS: u64 = 1_000_000;

fn offer(width: u8) -> Offer {
    Offer { want: 2, width, speed: 7, speed_ext: 1, fdr10: 0 }
}

fn end(transport: PairEnd, session: u64) -> Link {
    let own = Declared { offer: offer(3), plugged: true, episode: 0, node_guid: session, port: 1 };
    Link::new(Box::new(transport), session, own)
}

fn numbered(number: u32) -> MadMessage {
    let envelope = Envelope { kind: kind::MAD, agent: number, length: 256, ..Envelope::default() };
    MadMessage { envelope, mad: [number.to_le_bytes()[0]; 256] }
}

/// Two ends and their clock.
struct Bed {
    ends: [Link; 2],
    now_ns: u64,
    got: [Vec<u32>; 2],
    events: [Vec<LinkEvent>; 2],
}

impl Bed {
    fn new(faults: Faults) -> Self {
        let (one, other) = pair(4096, faults).unwrap();
        Self::of([end(one, 1000), end(other, 2000)])
    }

    fn of(ends: [Link; 2]) -> Self {
        Self { ends, now_ns: 1, got: Default::default(), events: Default::default() }
    }

    fn poll(&mut self, at: usize) {
        let mut into = [numbered(0); 8];
        loop {
            let count = self.ends[at].rx_burst(&mut into);
            self.got[at].extend(into[..count].iter().map(|message| message.envelope.agent));
            if count == 0 {
                break;
            }
        }
        self.ends[at].tick(self.now_ns);
        while let Some(event) = self.ends[at].next_event() {
            self.events[at].push(event);
        }
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ns += MS;
            self.poll(0);
            self.poll(1);
        }
    }

    fn states(&self) -> [LinkState; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }

    fn take_events(&mut self) -> [Vec<LinkEvent>; 2] {
        std::mem::take(&mut self.events)
    }
}

use LinkEvent::{Dropped, Plugged, Unplugged};

#[test]
fn both_ends_come_up_and_hear_what_the_other_is() {
    let mut bed = Bed::new(Faults::default());
    bed.run(10);
    assert_eq!(bed.states(), [LinkState::Up; 2]);
    assert_eq!(bed.take_events(), [vec![Plugged(offer(3))], vec![Plugged(offer(3))]]);
    assert_eq!(bed.ends[0].peer().unwrap().node_guid, 2000);
    let mut changed = *bed.ends[1].own();
    changed.offer = offer(1);
    bed.ends[1].declare(changed);
    bed.run(2);
    assert_eq!(bed.take_events(), [vec![LinkEvent::Offer(offer(1))], vec![]]);
    changed.episode = 3;
    bed.ends[1].declare(changed);
    bed.run(2);
    assert_eq!(bed.take_events(), [vec![Dropped(offer(1))], vec![]]);
    changed.plugged = false;
    bed.ends[1].declare(changed);
    bed.run(2);
    assert_eq!(bed.take_events(), [vec![Unplugged], vec![]]);
    assert_eq!(bed.states(), [LinkState::Pulled; 2]);
    changed.plugged = true;
    bed.ends[1].declare(changed);
    bed.run(2);
    assert_eq!(bed.take_events(), [vec![Plugged(offer(1))], vec![]]);
    let counts = [*bed.ends[0].counts(), *bed.ends[1].counts()];
    assert_eq!(counts.map(|c| (c.ups, c.downs, c.lost)), [(2, 1, 0), (1, 0, 0)]);
}

#[test]
fn an_end_that_falls_silent_is_unplugged_and_comes_back_by_itself() {
    let (one, other) = pair(4096, Faults::default()).unwrap();
    let cut = other.cutter();
    let mut bed = Bed::of([end(one, 1000), end(other, 2000)]);
    bed.run(10);
    bed.take_events();
    cut(true);
    bed.run(DEAD_NS / MS - 150);
    assert_eq!(bed.take_events(), [vec![], vec![]], "not yet");
    bed.run(300);
    // the other end heard everything, and goes down because it is told so
    assert_eq!(bed.take_events(), [vec![Unplugged], vec![Unplugged]]);
    assert_eq!(bed.states(), [LinkState::Silent, LinkState::OneWay]);
    cut(false);
    bed.run(250);
    assert_eq!(bed.take_events(), [vec![Plugged(offer(3))], vec![Plugged(offer(3))]]);
}

#[test]
fn an_end_that_starts_anew_unnoticed_takes_the_link_down_and_up() {
    let (one, other) = pair(4096, Faults::default()).unwrap();
    let mut bed = Bed::of([end(one, 1000), end(other, 2000)]);
    bed.run(10);
    bed.take_events();
    // the same wires, another process
    let wires =
        std::mem::replace(&mut bed.ends[1].transport, Box::new(pair(1, Faults::default()).unwrap().0));
    let own = *bed.ends[1].own();
    bed.ends[1] = Link::new(wires, 3000, own);
    bed.run(20);
    assert_eq!(bed.take_events(), [vec![Unplugged, Plugged(offer(3))], vec![Plugged(offer(3))]]);
    assert_eq!(bed.ends[0].tx_burst(&[numbered(1)]), 1);
    bed.run(2);
    assert_eq!(bed.got[1], [1]);
}

#[test]
fn a_mad_of_a_session_that_is_over_is_refused() {
    let (mut raw, wire) = pair(64, Faults::default()).unwrap();
    let mut link = end(wire, 1000);
    let mut say = |from, to, sequence, mad: bool| {
        let header = Header { from, to, sequence, received: 0 };
        let mut bytes = [0; MAX_FRAME];
        let own = Declared { plugged: true, ..Declared::default() };
        let length = if mad {
            frame::write_mad(&header, &numbered(7), &mut bytes)
        } else {
            frame::write_keep_alive(&header, &own, &Clock::default(), &mut bytes)
        };
        assert!(raw.send(&bytes[..length]));
        let mut into = [numbered(0); 2];
        let count = link.rx_burst(&mut into);
        link.tick(1);
        (
            count,
            link.counts().refused[Refusal::Session as usize],
            link.counts().refused[Refusal::Sequence as usize],
        )
    };
    assert_eq!(say(50, 1000, 1, true), (0, 1, 0), "nobody has introduced himself");
    assert_eq!(say(50, 1000, 0, false), (0, 1, 0));
    assert_eq!(say(50, 1000, 1, true), (1, 1, 0));
    assert_eq!(say(50, 999, 2, true), (0, 2, 0), "to an end before this one");
    assert_eq!(say(49, 1000, 2, true), (0, 3, 0), "from an end before that one");
    assert_eq!(say(49, 1000, 2, false), (0, 4, 0), "an old keep-alive");
    assert_eq!(say(50, 1000, 0, true), (0, 4, 1), "numbers begin with 1");
    assert_eq!(say(50, 1000, u64::MAX, true), (0, 4, 2));
    assert_eq!(say(50, 1000, u64::MAX, false), (0, 4, 3));
    assert_eq!(say(50, 1000, 2, true), (1, 4, 3));
}

#[test]
fn a_late_mad_is_given_out_once_and_a_repeated_one_never() {
    let (mut raw, wire) = pair(64, Faults::default()).unwrap();
    let mut link = end(wire, 1000);
    let own = Declared { plugged: true, ..Declared::default() };
    let mut bytes = [0; MAX_FRAME];
    let hello = Header { from: 50, to: 1000, sequence: 0, received: 0 };
    let length = frame::write_keep_alive(&hello, &own, &Clock::default(), &mut bytes);
    raw.send(&bytes[..length]);
    let mut into = [numbered(0); 2];
    assert_eq!(link.rx_burst(&mut into), 0);
    let mut mad = |sequence: u32| {
        let header = Header { sequence: u64::from(sequence), ..hello };
        let length = frame::write_mad(&header, &numbered(sequence), &mut bytes);
        raw.send(&bytes[..length]);
        let count = link.rx_burst(&mut into);
        let LinkCounts { lost, late, repeated, .. } = *link.counts();
        (count, lost, late, repeated)
    };
    assert_eq!(mad(1), (1, 0, 0, 0));
    assert_eq!(mad(4), (1, 2, 0, 0));
    assert_eq!(mad(3), (1, 1, 1, 0));
    assert_eq!(mad(3), (0, 1, 1, 1));
    assert_eq!(mad(66), (1, 62, 1, 1));
    assert_eq!(mad(2), (0, 62, 1, 2), "64 behind: too late to tell");
    assert_eq!(mad(5), (1, 61, 2, 2));
    assert_eq!(mad(1000), (1, 994, 2, 2));
}

#[test]
fn under_random_faults_each_mad_comes_at_most_once_and_every_loss_is_counted() {
    for seed in 1..=20_u64 {
        println!("seed {seed}");
        let faults = Faults { lost: 50, repeated: 50, swapped: 100, seed };
        let mut bed = Bed::new(faults);
        bed.run(1000);
        let mut sent = [0_u32; 2];
        for _ in 0..500 {
            for at in [0, 1] {
                let burst = [1, 2, 3].map(|more| numbered(sent[at] + more));
                sent[at] += u32::try_from(bed.ends[at].tx_burst(&burst)).unwrap();
            }
            bed.run(1);
        }
        bed.run(1000);
        assert_eq!(bed.states(), [LinkState::Up; 2], "5 % loss takes no link down");
        for at in [0, 1] {
            let counts = bed.ends[at].counts();
            let mut got = bed.got[at].clone();
            got.sort_unstable();
            got.dedup();
            assert_eq!(got.len(), bed.got[at].len(), "none twice");
            assert_eq!(counts.received, got.len() as u64);
            assert_eq!(counts.received + counts.lost, u64::from(sent[1 - at]));
            assert!(counts.lost > 0 && counts.repeated > 0 && counts.late > 0, "{counts:?}");
            assert_eq!(counts.downs, 0);
        }
    }
}

#[test]
fn a_cut_and_mended_link_never_shows_one_end_up_for_good() {
    for seed in 1..=10_u64 {
        println!("seed {seed}");
        let (one, other) = pair(4096, Faults { lost: 100, seed, ..Faults::default() }).unwrap();
        let cutters = [one.cutter(), other.cutter()];
        let mut bed = Bed::of([end(one, 1000), end(other, 2000)]);
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..40 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            cutters[0](random >> 40 & 1 == 1);
            cutters[1](random >> 41 & 1 == 1);
            bed.run(random >> 42 & 0x3FF);
        }
        cutters[0](false);
        cutters[1](false);
        bed.run(2000);
        assert_eq!(bed.states(), [LinkState::Up; 2]);
        for events in bed.take_events() {
            let up = events.iter().filter(|event| matches!(event, Plugged(_))).count();
            assert_eq!(up * 2 - 1, events.len(), "they alternate, and the last is up: {events:?}");
        }
        let [one, other] = [bed.ends[0].counts().downs, bed.ends[1].counts().downs];
        assert_eq!(one == 0, other == 0, "what falls at one end falls at the other: {one} {other}");
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let seed = 0x0bad_5eed_u64;
    println!("seed {seed:#x}");
    let mut random = seed;
    for _ in 0..500 {
        let mut bytes = Vec::new();
        for _ in 0..200 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes.extend_from_slice(&random.to_be_bytes());
        }
        // half of it begins as frames do
        for frame in bytes.chunks_mut(frame::MAD_FRAME) {
            if frame.len() > 40 && frame[20] % 2 == 0 {
                frame[..4].copy_from_slice(&frame::MAGIC);
                (frame[4], frame[5], frame[6], frame[7]) = (1, 1 + frame[5] % 2, 0, 88);
            }
        }
        fuzz_link(&bytes);
    }
}

#[test]
fn an_outage_that_only_one_end_noticed_is_an_outage_at_both() {
    let (one, other) = pair(4096, Faults::default()).unwrap();
    let cutters = [one.cutter(), other.cutter()];
    let mut bed = Bed::of([end(one, 1000), end(other, 2000)]);
    bed.run(10);
    bed.take_events();
    // the first hears nothing any more, and when it says so, that is lost as well
    cutters[1](true);
    bed.run(DEAD_NS / MS - 20);
    cutters[0](true);
    bed.run(120);
    assert_eq!(bed.take_events(), [vec![Unplugged], vec![]], "the second has heard it until just now");
    cutters[0](false);
    cutters[1](false);
    bed.run(250);
    assert_eq!(bed.take_events(), [vec![Plugged(offer(3))], vec![Unplugged, Plugged(offer(3))]]);
}

#[test]
fn an_outage_between_two_looks_is_not_overlooked() {
    let (mut raw, wire) = pair(64, Faults::default()).unwrap();
    let mut link = end(wire, 1000);
    let mut say = |tos: &[u64]| {
        for to in tos {
            let header = Header { from: 50, to: *to, sequence: 0, received: 0 };
            let mut bytes = [0; MAX_FRAME];
            let own = Declared { plugged: true, ..Declared::default() };
            let length = frame::write_keep_alive(&header, &own, &Clock::default(), &mut bytes);
            assert!(raw.send(&bytes[..length]));
        }
        link.rx_burst(&mut [numbered(0); 8]);
        link.tick(1);
        std::iter::from_fn(|| link.next_event()).collect::<Vec<_>>()
    };
    let up = Plugged(Offer::default());
    assert_eq!(say(&[1000]), [up]);
    assert_eq!(say(&[1000, 1000]), []);
    assert_eq!(say(&[0, 1000]), [Unplugged, up]);
    assert_eq!(say(&[0]), [Unplugged]);
}
