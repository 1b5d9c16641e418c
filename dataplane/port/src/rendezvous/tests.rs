//! Messages, spoilt and whole, and two ends by a clock of the test's own.

use super::*;
use crate::link::frame::tests::random_bytes;

fn place(last: u8) -> Place {
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xfe, 0x80, last);
    Place { gid, lid: 0 }
}

fn end(last: u8, pair: u32) -> End {
    End { place: place(last), pair, q_key: 0x1234_5678, frame: 480 }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn message(answers: bool, says: Says) -> Message {
    Message { answers, transaction: 0x0102_0304_0506_0708, name: name("cut-0"), says }
}

#[test]
fn a_message_reads_as_it_was_written_and_fields_lie_where_the_table_says() {
    for answers in [false, true] {
        for says in [Says::Here(end(7, 0x12_3456)), Says::Closed, Says::NoLink, Says::Nobody] {
            let written = message(answers, says).write();
            let unasked = !answers && matches!(says, Says::NoLink | Says::Nobody);
            let expected = if unasked { Err(Wrong::Field("status")) } else { Ok(message(answers, says)) };
            assert_eq!(Message::parse(&written), expected);
        }
    }
    let mad = message(true, Says::Here(end(7, 0x12_3456))).write();
    assert_eq!(mad[..4], [1, 0x4D, 1, 0x81]);
    assert_eq!((mad[8..16].to_vec(), mad[16..18].to_vec()), ((1..=8).collect(), vec![0, 0x10]));
    assert_eq!(
        mad[36..52],
        [&[0, 2, 0x6d, 0x70][..], b"MPLK", &[1, 1, 1, 224, 0, 0x12, 0x34, 0x56]].concat()
    );
    assert_eq!(
        (&mad[52..58], mad[71], &mad[72..76]),
        (&[0x12, 0x34, 0x56, 0x78, 0xfe, 0x80][..], 7, &[0, 0, 5, 0][..])
    );
    assert_eq!(&mad[76..82], b"cut-0\0");
}

#[test]
fn each_wrong_field_is_refused_by_its_name() {
    let good = message(false, Says::Here(end(7, 9))).write();
    let spoil = |at: usize, value: u8| {
        let mut mad = good;
        mad[at] = value;
        Message::parse(&mad).unwrap_err()
    };
    for (at, value) in [(0, 2), (1, 0x4C), (2, 2), (3, 2), (17, 1), (37, 0), (40, 0)] {
        assert_eq!(spoil(at, value), Wrong::Foreign, "byte {at}");
    }
    assert_eq!(spoil(44, 2), Wrong::Version(2));
    assert_eq!(spoil(5, 0x0C), Wrong::Field("status"));
    assert_eq!(spoil(45, 2), Wrong::Field("state"));
    assert_eq!(spoil(46, 0), Wrong::Field("length of frames"));
    assert_eq!(spoil(51, 1), Wrong::Field("queue pair"));
    assert_eq!(spoil(48, 1), Wrong::Field("queue pair"));
    assert_eq!(spoil(52, 0x80), Wrong::Field("Q_Key"));
    assert_eq!(spoil(74, 33), Wrong::Field("name"));
    assert_eq!(spoil(77, b','), Wrong::Field("name"));
    for at in [24, 36, 45, 75, 76 + 5, 255] {
        assert_eq!(spoil(at, u8::from(at != 45)), Wrong::Field("reserved byte"), "byte {at}");
    }
    let nowhere = Says::Here(End { place: Place::default(), ..end(7, 9) });
    assert_eq!(Message::parse(&message(false, nowhere).write()), Err(Wrong::Field("place")));
}

#[test]
fn names_are_short_visible_and_without_commas() {
    assert_eq!(name("").as_str(), "");
    assert_eq!(name("leaf-1:3").as_str(), "leaf-1:3");
    for wrong in ["a b", "a,b", "\u{e9}", &"x".repeat(MAX_NAME + 1)] {
        assert_eq!(Name::new(wrong.as_bytes()), None, "{wrong}");
    }
    assert!(Name::new(&[b'x'; MAX_NAME]).is_some());
}

#[test]
fn a_place_is_known_by_what_both_know_of_it() {
    let (gid, lid) = (place(1), Place { gid: [0; 16], lid: 5 });
    let both = Place { lid: 5, ..gid };
    assert!(gid.is(&gid) && lid.is(&lid) && both.is(&gid) && both.is(&lid) && gid.is(&both));
    for (one, other) in
        [(gid, lid), (gid, place(2)), (both, Place { lid: 6, ..gid }), (Place::default(), gid)]
    {
        assert!(!one.is(&other) && !other.is(&one), "{one} {other}");
    }
    assert!(!Place::default().is(&Place::default()));
    assert_eq!((gid.to_string(), lid.to_string()), ("fe80::1".to_owned(), "lid:5".to_owned()));
}

/// Two ends that hear each other's questions and answers; how many questions there were.
fn exchange(ends: &mut [Meeting; 2], now_ns: u64, lose: impl Fn(usize, bool) -> bool) -> usize {
    let mut questions = 0;
    for _ in 0..3 {
        for asker in [0, 1] {
            let [asks, answers] = [asker, 1 - asker];
            let Some(question) = ends[asks].question(now_ns, 1) else { continue };
            questions += 1;
            if lose(asks, false) {
                continue;
            }
            let from = ends[answers].peer_place;
            ends[answers].hear(&from, &question);
            let answer = ends[answers].answer(&question);
            let from = ends[asks].peer_place;
            if !lose(answers, true) {
                ends[asks].hear(&from, &answer);
            }
        }
    }
    questions
}

fn meetings() -> [Meeting; 2] {
    let mut ends = [Meeting::new(place(2), name("a")), Meeting::new(place(1), name("a"))];
    ends[0].set_own(Some(end(1, 100)));
    ends[1].set_own(Some(end(2, 200)));
    ends
}

#[test]
fn two_ends_meet_by_one_exchange_and_an_end_made_anew_is_known_at_once() {
    let mut ends = meetings();
    assert!(exchange(&mut ends, 1, |_, _| false) >= 1);
    assert_eq!(ends.each_ref().map(|end| end.peer().unwrap().pair), [200, 100]);
    // quiet now, but for a look every two seconds
    exchange(&mut ends, 1 + SEARCH_NS, |_, _| false);
    assert_eq!(exchange(&mut ends, 2 + SEARCH_NS, |_, _| false), 0);
    assert_eq!(exchange(&mut ends, 1 + SEARCH_NS + REFRESH_NS, |_, _| false), 2);
    // the second was killed and comes back with nothing in its memory
    let [_, anew] = meetings();
    ends[1] = anew;
    ends[1].set_own(Some(end(2, 201)));
    exchange(&mut ends, 3 + SEARCH_NS + REFRESH_NS, |_, _| false);
    assert_eq!(ends.each_ref().map(|end| end.peer().unwrap().pair), [201, 100]);
}

#[test]
fn what_is_lost_is_asked_again_and_not_more_often_than_that() {
    for lost in [(0, false), (1, false), (0, true), (1, true)] {
        let mut ends = meetings();
        let mut questions = 0;
        for step in 0..8 {
            questions +=
                exchange(&mut ends, step * SEARCH_NS, |who, answers| step < 4 && (who, answers) == lost);
        }
        assert_eq!(ends.each_ref().map(|end| end.peer().unwrap().pair), [200, 100], "{lost:?}");
        assert!(questions <= 16, "{questions} questions, {lost:?}");
    }
}

#[test]
fn a_message_of_another_link_port_or_claim_is_refused() {
    let [_, mut meeting] = meetings();
    let mut question = Message { name: name("a"), ..message(false, Says::Here(end(1, 100))) };
    assert_eq!(meeting.hear(&place(3), &question), Heard::Refused, "from elsewhere");
    question.says = Says::Here(end(3, 100));
    assert_eq!(meeting.hear(&place(1), &question), Heard::Refused, "it claims to be elsewhere");
    question.says = Says::Here(end(1, 100));
    question.name = name("b");
    assert_eq!(meeting.hear(&place(1), &question), Heard::Refused, "another link");
    assert_eq!((meeting.peer(), meeting.why_not()), (None, "no answer"));
    question.name = name("a");
    assert_eq!(meeting.hear(&place(1), &question), Heard::Peer(end(1, 100)));
    assert_eq!(
        meeting.hear(&place(1), &Message { answers: true, ..Meeting::no_link(&question) }),
        Heard::Known
    );
    assert_eq!((meeting.peer().map(|end| end.pair), meeting.why_not()), (Some(100), "it has no such link"));
    meeting.set_own(None);
    assert_eq!((meeting.answer(&question).says, meeting.question(9, 9)), (Says::Closed, None));
}

#[test]
fn random_and_spoilt_bytes_do_no_harm() {
    let seed = 0x5eed_0002_u64;
    println!("seed {seed:#x}");
    let mut next = random_bytes(seed);
    let mut understood = 0;
    for round in 0..20_000 {
        let [pair, key, frame, lid, ..] = next();
        let says = Says::Here(End {
            q_key: key.into(),
            frame: 480 + u16::from(frame),
            place: Place { lid: lid.into(), ..place(pair) },
            ..end(0, u32::from(pair) + 2)
        });
        let mut mad = message(round % 2 == 0, says).write();
        for _ in 0..round % 4 {
            let [at, value, ..] = next();
            mad[usize::from(at)] = value;
        }
        understood += u32::from(Message::parse(&mad).is_ok());
        fuzz_rendezvous(&mad);
        fuzz_rendezvous(&mad[..usize::from(lid)]);
    }
    assert!(understood > 5000, "{understood}");
}
