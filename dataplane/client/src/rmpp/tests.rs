//! Two machines over a pipe that loses, repeats and reorders; and single packets that must be refused.
#![allow(clippy::cast_possible_truncation, reason = "small random numbers")]

use std::collections::VecDeque;

use madplane_shm::message::{Envelope, MadMessage};
use madplane_wire::rmpp::{kind, status};

use super::*;

const MS: u64 = 1_000_000;
const GET_MULTI: u8 = 0x14;

/// xorshift64*
struct Random(u64);

impl Random {
    fn from_clock() -> Self {
        let seed = match std::env::var("MADPLANE_SEED") {
            Ok(text) => text.parse().unwrap(),
            Err(_) => crate::clock::now_ns() | 1,
        };
        println!("MADPLANE_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn envelope(dlid: u16) -> Envelope {
    Envelope { kind: 1, dlid, dst_qp: 1, length: 256, ..Envelope::default() }
}

fn message(method: u8, tid: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0u8; 56];
    bytes[..4].copy_from_slice(&[1, 3, 2, method]);
    bytes[8..16].copy_from_slice(&tid.to_be_bytes());
    bytes[24..28].copy_from_slice(&[1, kind::DATA, 1, 0]);
    bytes[44..46].copy_from_slice(&[0, 14]);
    bytes.extend_from_slice(data);
    bytes
}

fn transfer(message: &[u8], dlid: u16, retries: u32) -> Transfer<'_> {
    Transfer { agent: 0, envelope: envelope(dlid), message, expects_response: false, timeout_ns: 0, retries }
}

/// What travels keeps its headers, apart from the RMPP header, which the first segment's replaces.
fn same_message(got: &[u8], sent: &[u8]) -> bool {
    got.len() == sent.len() && got[..24] == sent[..24] && got[36..] == sent[36..]
}

/// Loss, repetition, reordering in percent.
#[derive(Clone, Copy)]
struct Weather(u64, u64, u64);

/// One direction of the pipe; packets arrive as if from `slid`.
struct Pipe {
    slid: u16,
    queue: VecDeque<MadMessage>,
}

impl Pipe {
    fn carry(&mut self, mut packet: MadMessage, weather: Weather, random: &mut Random) {
        packet.envelope.slid = self.slid;
        packet.envelope.src_qp = 1;
        if random.chance(weather.0) {
            return;
        }
        if random.chance(weather.1) {
            self.queue.push_back(packet);
        }
        if random.chance(weather.2) && !self.queue.is_empty() {
            let place = random.below(self.queue.len() as u64) as usize;
            self.queue.insert(place, packet);
        } else {
            self.queue.push_back(packet);
        }
    }
}

/// Two machines; `a` has LID 10, `b` has LID 20.
struct World {
    a: Machine,
    b: Machine,
    to_a: Pipe,
    to_b: Pipe,
    now: u64,
    random: Random,
    weather: Weather,
    events_a: Vec<Event>,
    events_b: Vec<Event>,
}

impl World {
    fn new(limits: Limits, weather: Weather) -> Self {
        Self {
            a: Machine::new(limits),
            b: Machine::new(limits),
            to_a: Pipe { slid: 20, queue: VecDeque::new() },
            to_b: Pipe { slid: 10, queue: VecDeque::new() },
            now: 1_000 * MS,
            random: Random::from_clock(),
            weather,
            events_a: Vec::new(),
            events_b: Vec::new(),
        }
    }

    fn step(&mut self) -> bool {
        let mut packet = MadMessage::default();
        let mut moved = false;
        for _ in 0..=self.random.below(8) {
            packet.mad.fill(0xa5);
            if self.a.pull(&mut packet, self.now).is_some() {
                self.to_b.carry(packet, self.weather, &mut self.random);
                moved = true;
            }
            packet.mad.fill(0xa5);
            if self.b.pull(&mut packet, self.now).is_some() {
                self.to_a.carry(packet, self.weather, &mut self.random);
                moved = true;
            }
        }
        for _ in 0..=self.random.below(8) {
            if let Some(packet) = self.to_a.queue.pop_front() {
                self.a.receive(0, &packet, self.now);
                moved = true;
            }
            if let Some(packet) = self.to_b.queue.pop_front() {
                self.b.receive(0, &packet, self.now);
                moved = true;
            }
        }
        self.events_a.extend(std::iter::from_fn(|| self.a.event()));
        self.events_b.extend(std::iter::from_fn(|| self.b.event()));
        moved
    }

    /// Runs until nothing moves and no send is left or time is over.
    fn run(&mut self, longest_ns: u64) {
        let end = self.now + longest_ns;
        while self.now < end {
            if self.step() {
                continue;
            }
            if self.a.transfers().0 + self.b.transfers().0 == 0 {
                return;
            }
            let due = self.a.next_due_ns().into_iter().chain(self.b.next_due_ns()).min();
            let Some(due) = due else { return };
            self.now = due;
            self.a.expire(due);
            self.b.expire(due);
        }
    }

    fn messages(events: &[Event]) -> Vec<&Vec<u8>> {
        let each = events.iter().filter_map(|event| match event {
            Event::Message { data, .. } => Some(data),
            _ => None,
        });
        each.collect()
    }
}

#[test]
fn every_length_around_a_segment_boundary_arrives_whole_over_a_good_pipe() {
    for length in [0u64, 1, 199, 200, 201, 399, 400, 401, 2_000, 12_800, 12_801, 13_000, 26_000, 123_457] {
        let mut world = World::new(Limits::default(), Weather(0, 0, 0));
        let data: Vec<u8> = (0..length).map(|_| world.random.below(256) as u8).collect();
        let sent = message(0x92, 7, &data);
        world.a.start(&transfer(&sent, 20, 3)).unwrap();
        world.run(100_000 * MS);
        assert_eq!(world.events_a, [Event::Acknowledged { send: 0 }], "{length}");
        let got = World::messages(&world.events_b);
        assert!(got.len() == 1 && same_message(got[0], &sent), "{length}");
        assert_eq!(world.a.transfers(), (0, 0));
        assert_eq!(world.a.counts().resends, 0, "{length}");
        let segments = length.div_ceil(200).max(1);
        assert_eq!(world.a.counts().segments_sent, segments);
        assert_eq!(world.b.counts().segments_received, segments);
        assert_eq!((world.b.receive_bytes, world.a.send_bytes), (0, 0));
    }
}

#[test]
fn many_messages_both_ways_arrive_once_and_whole_over_a_bad_pipe() {
    for weather in [Weather(10, 0, 0), Weather(0, 30, 0), Weather(0, 0, 40), Weather(15, 15, 30)] {
        let mut world = World::new(Limits::default(), weather);
        let mut sent = Vec::new();
        for number in 0..12u64 {
            let length = world.random.below(30_000);
            let data: Vec<u8> = (0..length).map(|_| world.random.below(256) as u8).collect();
            sent.push(message(0x92, number, &data));
        }
        for (number, bytes) in sent.iter().enumerate() {
            let machine = if number % 2 == 0 { &mut world.a } else { &mut world.b };
            machine.start(&transfer(bytes, if number % 2 == 0 { 20 } else { 10 }, 40)).unwrap();
        }
        // below the 10 s for which duplicates are remembered, with 2 s timers: each resend restarts the receive timer not
        world.run(39_000 * MS);
        for (number, bytes) in sent.iter().enumerate() {
            let events = if number % 2 == 0 { &world.events_b } else { &world.events_a };
            let tid = (number as u64).to_be_bytes();
            let got: Vec<_> = World::messages(events).into_iter().filter(|data| data[8..16] == tid).collect();
            assert!(got.len() <= 1, "message {number} arrived {} times", got.len());
            if weather.0 == 0 {
                assert_eq!(got.len(), 1, "message {number} is lost without loss");
            }
            for data in got {
                assert!(same_message(data, bytes), "message {number} is damaged");
            }
        }
        let all = World::messages(&world.events_a).len() + World::messages(&world.events_b).len();
        assert!(all > 0);
        assert_eq!(world.a.receive_bytes, world.a.receives.iter().flatten().map(|r| r.buffered()).sum());
    }
}

#[test]
fn loss_is_repaired_by_resending_the_window() {
    let mut world = World::new(Limits::default(), Weather(5, 5, 20));
    let data: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8).collect();
    let sent = message(0x92, 7, &data);
    let quick = Transfer { timeout_ns: 20 * MS, ..transfer(&sent, 20, 1_000) };
    world.a.start(&quick).unwrap();
    world.run(30_000 * MS);
    let got = World::messages(&world.events_b);
    assert!(got.len() == 1 && same_message(got[0], &sent));
    assert_eq!(world.events_a, [Event::Acknowledged { send: 0 }]);
    assert!(world.a.counts().resends > 0, "with 5 % loss something was resent");
}

#[test]
fn a_double_sided_transfer_answers_in_the_window_that_the_requester_opened() {
    let mut world = World::new(Limits::default(), Weather(0, 0, 0));
    let question = message(GET_MULTI, 9, &[1; 5_000]);
    let asked = Transfer { expects_response: true, timeout_ns: 1_000 * MS, ..transfer(&question, 20, 3) };
    let send = world.a.start(&asked).unwrap();
    while world.step() {}
    assert_eq!(world.events_a, [Event::Acknowledged { send }]);
    assert_eq!(World::messages(&world.events_b).len(), 1);
    assert_eq!(world.a.transfers().0, 1, "stays until its response");
    let answer = message(GET_MULTI | 0x80, 9, &[2; 9_000]);
    world.b.start(&transfer(&answer, 10, 3)).unwrap();
    while world.step() {}
    assert!(same_message(World::messages(&world.events_a)[0], &answer));
    assert_eq!(world.b.transfers().0, 0);
    world.a.forget_send(send);
    assert_eq!(world.a.transfers().0, 0);
    assert_eq!((world.a.counts().strays, world.b.counts().strays), (0, 0));
}

#[test]
fn a_sender_whom_nobody_answers_resends_as_often_as_asked_then_aborts_and_reports() {
    let mut machine = Machine::new(Limits::default());
    let sent = message(0x92, 3, &[5; 1_000]);
    machine.start(&Transfer { timeout_ns: 100 * MS, ..transfer(&sent, 20, 2) }).unwrap();
    let mut packet = MadMessage::default();
    let mut segments = 0;
    let mut now = 0;
    loop {
        while machine.pull(&mut packet, now).is_some() {
            if packet.mad[25] == kind::DATA {
                assert_eq!(packet.mad[28..32], 1u32.to_be_bytes(), "the window is 1 at first");
                segments += 1;
            } else {
                assert_eq!((packet.mad[25], packet.mad[27]), (kind::ABORT, status::TOO_MANY_RETRIES));
                assert_eq!(packet.mad[3], 0x92, "an abort of the sender keeps the method");
            }
        }
        let Some(due) = machine.next_due_ns() else { break };
        assert_eq!(due - now, 100 * MS);
        now = due;
        machine.expire(now);
    }
    assert_eq!(segments, 3);
    match machine.event().unwrap() {
        Event::TimedOut { header, .. } => assert_eq!(header, sent[..24]),
        other => panic!("{other:?}"),
    }
    assert_eq!((machine.event(), machine.is_idle()), (None, true));
    assert_eq!(machine.counts().aborts_sent, 1);
}

/// A packet as it comes from LID 20.
fn packet(method: u8, rmpp: [u8; 4], data1: u32, data2: u32) -> MadMessage {
    let mut packet = MadMessage { envelope: envelope(10), ..MadMessage::default() };
    packet.envelope.slid = 20;
    packet.envelope.src_qp = 1;
    packet.mad.fill(0xa5);
    packet.mad[..56].copy_from_slice(&message(method, 7, &[]));
    packet.mad[24..28].copy_from_slice(&rmpp);
    packet.mad[28..32].copy_from_slice(&data1.to_be_bytes());
    packet.mad[32..36].copy_from_slice(&data2.to_be_bytes());
    packet
}

fn next(machine: &mut Machine) -> Option<MadMessage> {
    let mut packet = MadMessage::default();
    machine.pull(&mut packet, 0).map(|_| packet)
}

#[test]
fn every_wrong_packet_is_answered_with_its_status() {
    const DATA: u8 = kind::DATA;
    const ACK: u8 = kind::ACK;
    // (what, packets, status of the ABORT that answers the last one)
    let cases: [(&str, &[MadMessage], u8); 14] = [
        ("version 2", &[packet(0x92, [2, DATA, 3, 0], 1, 440)], status::BAD_VERSION),
        ("type 0", &[packet(0x92, [1, 0, 1, 0], 1, 0)], status::BAD_TYPE),
        ("type 5", &[packet(0x92, [1, 5, 1, 0], 1, 0)], status::BAD_TYPE),
        ("data with a status", &[packet(0x92, [1, DATA, 3, 9], 1, 440)], status::BAD_STATUS),
        ("first flag on segment 2", &[packet(0x92, [1, DATA, 3, 0], 2, 0)], status::BAD_SEGMENT),
        ("segment 1 without first flag", &[packet(0x92, [1, DATA, 1, 0], 1, 0)], status::BAD_SEGMENT),
        ("segment 0", &[packet(0x92, [1, DATA, 1, 0], 0, 0)], status::BAD_SEGMENT),
        ("last payload of 19", &[packet(0x92, [1, DATA, 7, 0], 1, 19)], status::BAD_LENGTH),
        ("last payload of 221", &[packet(0x92, [1, DATA, 7, 0], 1, 221)], status::BAD_LENGTH),
        (
            "a segment after the last",
            &[
                packet(0x92, [1, DATA, 3, 0], 1, 0),
                packet(0x92, [1, DATA, 5, 0], 3, 100),
                packet(0x92, [1, DATA, 1, 0], 4, 0),
            ],
            status::BAD_SEGMENT,
        ),
        (
            "a last one before others",
            &[
                packet(0x92, [1, DATA, 3, 0], 1, 0),
                packet(0x92, [1, DATA, 1, 0], 4, 0),
                packet(0x92, [1, DATA, 5, 0], 3, 100),
            ],
            status::BAD_SEGMENT,
        ),
        ("ack with a status", &[packet(0x12, [1, ACK, 1, 3], 0, 1)], status::BAD_STATUS),
        ("window below the segment", &[packet(0x12, [1, ACK, 1, 0], 5, 4)], status::WINDOW_TOO_SMALL),
        ("stop that is none", &[packet(0x12, [1, kind::STOP, 1, 0], 0, 0)], status::BAD_STATUS),
    ];
    for (what, packets, want) in cases {
        let mut machine = Machine::new(Limits::default());
        let mut answer = None;
        for packet in packets {
            machine.receive(0, packet, 0);
            answer = next(&mut machine).or(answer);
        }
        let answer = answer.unwrap_or_else(|| panic!("{what}: no answer"));
        assert_eq!((answer.mad[25], answer.mad[27]), (kind::ABORT, want), "{what}");
        assert_eq!(answer.mad[3], packets[0].mad[3] ^ 0x80, "{what}: the R bit turns");
        assert_eq!((answer.envelope.dlid, answer.envelope.dst_qp), (20, 1), "{what}");
        assert_eq!(answer.mad[8..16], packets[0].mad[8..16], "{what}: the TID stays");
        assert!(machine.event().is_none(), "{what}");
        assert_eq!(machine.transfers(), (0, 0), "{what}: nothing is kept");
    }
}

#[test]
fn an_abort_with_an_impossible_status_is_answered_with_bad_status() {
    for (wrong, kind_of) in [(0, kind::ABORT), (1, kind::ABORT), (117, kind::ABORT), (118, kind::STOP)] {
        let mut machine = Machine::new(Limits::default());
        machine.receive(0, &packet(0x12, [1, kind_of, 1, wrong], 0, 0), 0);
        assert_eq!(next(&mut machine).unwrap().mad[27], status::BAD_STATUS, "{wrong}");
    }
}

#[test]
fn every_status_of_stop_and_abort_ends_the_send_it_answers_without_a_packet() {
    let ends = (status::TOTAL_TIME..=status::UNSPECIFIED).chain([200, 255]);
    for (kind_of, why) in ends.map(|why| (kind::ABORT, why)).chain([(kind::STOP, status::RESOURCES)]) {
        let mut machine = Machine::new(Limits::default());
        let sent = message(0x92, 7, &[5; 1_000]);
        let send = machine.start(&transfer(&sent, 20, 2)).unwrap();
        assert_eq!(next(&mut machine).unwrap().mad[25], kind::DATA);
        machine.receive(0, &packet(0x12, [1, kind_of, 1, why], 0, 0), 0);
        assert_eq!(machine.event(), Some(Event::Aborted { send, status: why }));
        assert!(machine.is_idle(), "{why}");
        assert_eq!(machine.counts().aborts_received, 1);
    }
}

#[test]
fn an_abort_of_the_sender_drops_the_partial_message() {
    let mut machine = Machine::new(Limits::default());
    machine.receive(0, &packet(0x92, [1, kind::DATA, 3, 0], 1, 0), 0);
    assert_eq!(next(&mut machine).unwrap().mad[25], kind::ACK);
    assert_eq!(machine.transfers(), (0, 1));
    machine.receive(0, &packet(0x92, [1, kind::ABORT, 1, 126], 0, 0), 0);
    assert!(machine.is_idle() && machine.event().is_none() && machine.receive_bytes == 0);
}

#[test]
fn an_ack_beyond_the_window_aborts_the_send() {
    let mut machine = Machine::new(Limits::default());
    let sent = message(0x92, 7, &[5; 1_000]);
    let send = machine.start(&transfer(&sent, 20, 2)).unwrap();
    next(&mut machine).unwrap();
    machine.receive(0, &packet(0x12, [1, kind::ACK, 1, 0], 2, 9), 0);
    assert_eq!(machine.event(), Some(Event::Aborted { send, status: status::SEGMENT_TOO_BIG }));
    let answer = next(&mut machine).unwrap();
    assert_eq!((answer.mad[25], answer.mad[27]), (kind::ABORT, status::SEGMENT_TOO_BIG));
    assert!(machine.is_idle());
}

#[test]
fn a_message_that_takes_too_long_is_aborted_with_total_time() {
    let mut machine = Machine::new(Limits::default());
    machine.receive(0, &packet(0x92, [1, kind::DATA, 3, 0], 1, 0), 5);
    next(&mut machine).unwrap();
    assert_eq!(machine.next_due_ns(), Some(5 + RECEIVE_NS));
    machine.expire(5 + RECEIVE_NS);
    let abort = next(&mut machine).unwrap();
    assert_eq!((abort.mad[25], abort.mad[27], abort.mad[3]), (kind::ABORT, status::TOTAL_TIME, 0x12));
    assert!(machine.is_idle() && machine.event().is_none());
}

#[test]
fn duplicates_are_acknowledged_again_also_after_the_end_and_delivered_never() {
    let mut machine = Machine::new(Limits::default());
    let first = packet(0x92, [1, kind::DATA, 3, 0], 1, 0);
    let last = packet(0x92, [1, kind::DATA, 5, 0], 2, 120);
    machine.receive(0, &first, 0);
    let ack = next(&mut machine).unwrap();
    assert_eq!((ack.mad[25], &ack.mad[28..36]), (kind::ACK, &[0, 0, 0, 1, 0, 0, 0, 65][..]));
    machine.receive(0, &first, 0);
    assert_eq!(next(&mut machine).unwrap(), ack, "the same acknowledgement again");
    machine.receive(0, &last, 0);
    match machine.event().unwrap() {
        Event::Message { data, .. } => assert_eq!(data.len(), 56 + 200 + 100),
        other => panic!("{other:?}"),
    }
    let end = next(&mut machine).unwrap();
    assert_eq!((end.mad[25], &end.mad[28..32]), (kind::ACK, &[0, 0, 0, 2][..]));
    for again in [&first, &last] {
        machine.receive(0, again, 1);
        assert_eq!(next(&mut machine).unwrap(), end);
    }
    assert!(machine.event().is_none());
    assert_eq!(machine.counts().duplicates, 3);
    machine.expire(LINGER_NS);
    assert!(machine.is_idle());
}

#[test]
fn a_segment_beyond_the_window_is_as_if_lost() {
    let mut machine = Machine::new(Limits { window: 4, ..Limits::default() });
    machine.receive(0, &packet(0x92, [1, kind::DATA, 3, 0], 1, 0), 0);
    assert_eq!(next(&mut machine).unwrap().mad[35], 5, "1 + window");
    machine.receive(0, &packet(0x92, [1, kind::DATA, 1, 0], 6, 0), 0);
    assert!(next(&mut machine).is_none());
    machine.receive(0, &packet(0x92, [1, kind::DATA, 1, 0], 2, 0), 0);
    assert!(next(&mut machine).is_none(), "not half a window yet");
    machine.receive(0, &packet(0x92, [1, kind::DATA, 1, 0], 3, 0), 0);
    assert_eq!(next(&mut machine).unwrap().mad[28..36], [0, 0, 0, 3, 0, 0, 0, 7]);
}

#[test]
fn limits_bound_messages_transfers_and_bytes() {
    let limits = Limits { window: 4, sends: 2, receives: 2, message_bytes: 1_000, buffered_bytes: 1_500 };
    let mut machine = Machine::new(limits);
    let long = message(0x92, 1, &[0; 1_000]);
    assert_eq!(machine.start(&transfer(&long, 20, 0)), Err(StartError::TooLong));
    let fits = message(0x92, 1, &[0; 900]);
    machine.start(&transfer(&fits, 20, 0)).unwrap();
    assert_eq!(machine.start(&transfer(&fits, 20, 0)), Err(StartError::TooMany), "bytes");
    let small = message(0x92, 2, &[0; 10]);
    machine.start(&transfer(&small, 20, 0)).unwrap();
    assert_eq!(machine.start(&transfer(&small, 20, 0)), Err(StartError::TooMany), "transfers");
    assert_eq!(machine.start(&transfer(&small[..50], 20, 0)), Err(StartError::Shape));

    let mut machine = Machine::new(limits);
    let with_tid = |tid: u8| {
        let mut first = packet(0x92, [1, kind::DATA, 3, 0], 1, 0);
        first.mad[15] = tid;
        first
    };
    for tid in 1..=2 {
        machine.receive(0, &with_tid(tid), 0);
        assert_eq!(next(&mut machine).unwrap().mad[25], kind::ACK);
    }
    machine.receive(0, &with_tid(3), 0);
    let stop = next(&mut machine).unwrap();
    assert_eq!((stop.mad[25], stop.mad[27]), (kind::STOP, status::RESOURCES));
    for segment in 2..=6 {
        let mut data = packet(0x92, [1, kind::DATA, 1, 0], segment, 0);
        data.mad[15] = 1;
        machine.receive(0, &data, 0);
        if segment < 6 {
            assert!(next(&mut machine).is_none_or(|ack| ack.mad[25] == kind::ACK));
        }
    }
    let stop = next(&mut machine).unwrap();
    assert_eq!((stop.mad[25], stop.mad[27]), (kind::STOP, status::RESOURCES), "longer than a message may be");
    assert_eq!(machine.transfers(), (0, 1));
}

#[test]
fn a_repeated_request_gets_a_new_response_once_the_old_one_is_forgotten() {
    let mut machine = Machine::new(Limits::default());
    let only = packet(0x92, [1, kind::DATA, 7, 0], 1, 120);
    machine.receive(0, &only, 0);
    assert!(machine.event().is_some());
    machine.receive(0, &only, 0);
    assert!(machine.event().is_none());
    machine.forget_complete(0, 7, 3);
    machine.receive(0, &only, 0);
    assert!(machine.event().is_some());
}

#[test]
fn random_packets_neither_panic_nor_grow_beyond_the_limits() {
    let mut random = Random::from_clock();
    let limits = Limits { window: 8, sends: 4, receives: 4, message_bytes: 4_000, buffered_bytes: 8_000 };
    let mut machine = Machine::new(limits);
    let mut out = MadMessage::default();
    for round in 0..200_000u64 {
        let method = [0x12, 0x92, 0x14, 0x94][random.below(4) as usize];
        let rmpp = [
            if random.chance(95) { 1 } else { 2 },
            random.below(6) as u8,
            random.below(8) as u8 | 1,
            if random.chance(90) { 0 } else { random.below(256) as u8 },
        ];
        let mut message_in = packet(method, rmpp, random.below(12) as u32, random.below(230) as u32);
        message_in.mad[15] = random.below(6) as u8;
        machine.receive(random.below(2) as u32, &message_in, round * MS);
        if random.chance(5) {
            let bytes = message(method, random.below(6), &vec![1; random.below(3_000) as usize]);
            let _ =
                machine.start(&Transfer { expects_response: random.chance(50), ..transfer(&bytes, 20, 2) });
        }
        if random.chance(50) {
            let _ = machine.pull(&mut out, round * MS);
        }
        if random.chance(5) {
            machine.expire(round * MS);
        }
        while let Some(event) = machine.event() {
            if let Event::Acknowledged { send } = event {
                machine.forget_send(send);
            }
        }
        assert!(machine.receive_bytes <= 8_000 && machine.send_bytes <= 8_000);
        let buffered: usize = machine.receives.iter().flatten().map(|receive| receive.buffered()).sum();
        assert_eq!(machine.receive_bytes, buffered);
        assert!(machine.refusals.len() <= MAX_REFUSALS);
    }
}
