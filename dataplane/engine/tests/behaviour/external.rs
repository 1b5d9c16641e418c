//! Ends outside of the fabric: D, which has no cable, is joined to port 5 of S2 by what the test carries from one to the other.

use crate::pinned::{dropping, route};
use crate::world::*;
use madplane_engine::{EXTERNAL, LinkOffer, MAX_EXTERNAL, PeerEvent, PeerEventKind};
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{class, method};
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::smp::{attr, port_info};

const END: (u32, u8) = (S2, 5);
const FAR: (u32, u8) = (D, 1);
const TO_D: &[u8] = &[1, 3, 5];
const LID_D: u16 = 6;
const DOWN: (u8, u8) = (1, 2);
const INIT: (u8, u8) = (2, 5);

/// Tells both ends that the other one is there.
fn plug(w: &mut World, offers: [LinkOffer; 2]) {
    for ((node, port), offer) in [FAR, END].into_iter().zip(offers) {
        let event = PeerEvent { node, port, kind: PeerEventKind::Plugged, offer };
        w.with_owner(node, |shard, now, out| shard.peer_event(now, event, out));
    }
}

/// A fabric with the two ends attached and plugged.
fn joined(shards: usize) -> World {
    let mut w = World::new(shards);
    w.out.wires = vec![FAR, END];
    let offers = [(END, 0), (FAR, 1)].map(|((node, port), link)| {
        w.with_owner(node, |shard, _, _| shard.attach_external(node, port, link)).expect("no cable there")
    });
    assert_eq!([w.state(S2, 5), w.state(D, 1)], [DOWN; 2], "nobody has said that the other end is there");
    plug(&mut w, offers);
    w
}

/// LIDs, routes and Active for everything, D too.
fn up(shards: usize) -> World {
    let mut w = joined(shards);
    w.bring_up();
    let fields = [(pi::LID, u64::from(LID_D)), (pi::MASTER_SM_LID, u64::from(LID_A))];
    assert_eq!(w.set_port(TO_D, 1, &fields).unwrap().0, 0);
    for (path, port) in [(TO_S1, 3), (TO_S2, 5)] {
        let mut block = w.get(path, attr::LFT, 0);
        block[usize::from(LID_D)] = port;
        w.set(path, attr::LFT, 0, &block);
    }
    for state in [port_info::state::ARMED, port_info::state::ACTIVE] {
        for (path, port) in [(TO_S2, 5), (TO_D, 1)] {
            assert_eq!(w.set_port(path, port, &[(pi::PORT_STATE, u64::from(state))]).unwrap().0, 0);
        }
    }
    w
}

#[test]
fn an_external_end_is_a_link_like_any_other() {
    for shards in [1, 2, 6] {
        let mut w = joined(shards);
        assert_eq!([w.state(S2, 5), w.state(D, 1)], [INIT; 2]);
        let info = w.get(TO_D, attr::NODE_INFO, 0);
        assert_eq!(u64::from_be_bytes(info[12..20].try_into().unwrap()), 0xD0, "{info:x?}");
        let width = w.port_info(TO_D, 1);
        assert_eq!(pi::LINK_WIDTH_ACTIVE.get_u8(&width), 2, "4x, as both offer");
        let (sent, back) = (w.counters(S2, 5), w.counters(D, 1));
        assert_eq!((sent.xmit_pkts, sent.rcv_pkts), (2, 2));
        assert_eq!((back.xmit_pkts, back.rcv_pkts), (2, 2));
        assert_eq!(w.drops(), []);
    }
}

#[test]
fn a_pulled_external_end_falls_with_a_trap_and_comes_back() {
    for shards in [1, 6] {
        let mut w = up(shards);
        w.take_traps();
        let offer = LinkOffer { want: 3, ..LinkOffer::default() };
        let gone = PeerEvent { node: S2, port: 5, kind: PeerEventKind::Unplugged, offer };
        w.with_owner(S2, |shard, now, out| shard.peer_event(now, gone, out));
        assert_eq!(w.state(S2, 5), DOWN);
        assert_eq!(w.take_traps().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [128]);
        // plugging in what nobody is at the other end of trains nothing
        w.with_owner(S2, |shard, now, out| shard.set_link(now, S2, 5, true, out));
        assert_eq!(w.state(S2, 5), DOWN);
        let offers = [FAR, END].map(|(node, port)| w.owner(node).offer_of(node, port).unwrap());
        plug(&mut w, [offers[1], offers[0]]);
        assert_eq!(w.state(S2, 5), INIT);
    }
}

#[test]
fn a_set_of_down_at_one_end_is_heard_at_the_other() {
    let mut w = up(2);
    assert_eq!(w.set_port(TO_S2, 5, &[(pi::PORT_STATE, 1)]).unwrap().0, 0);
    assert_eq!([w.state(S2, 5), w.state(D, 1)], [INIT; 2], "both fell, and trained");
}

#[test]
fn a_pinned_path_ends_where_the_fabric_does() {
    for shards in [1, 6] {
        let mut w = up(shards);
        // by LID it arrives, and the answer comes back
        let pkt = w.gmp(method::GET, class::PERF, LID_D, 1);
        assert!(w.exchange(pkt).is_some());
        // a path over the link is broken there, and goes on by LID
        w.pin(0, Some(&route(LID_A, LID_D, &[1, 3, 5])));
        let pkt = w.gmp(method::GET, class::PERF, LID_D, 1);
        assert!(w.exchange(pkt).is_some());
        assert_eq!(w.drops(), []);
        // or is dropped, as the route says
        w.pin(0, Some(&dropping(LID_A, LID_D, &[1, 3, 5])));
        let pkt = w.gmp(method::GET, class::PERF, LID_D, 1);
        assert!(w.exchange(pkt).is_none());
        assert_eq!(
            w.drops().iter().map(|(_, reason)| *reason).collect::<Vec<_>>(),
            [DropReason::RouteBroken]
        );
    }
}

#[test]
fn what_has_no_place_for_an_external_end_is_refused() {
    let mut w = World::new(1);
    let shard = &mut w.shards[0];
    for (node, port, link) in [(S1, 1, 0), (S2, 0, 0), (S2, 9, 0), (99, 1, 0), (S2, 5, MAX_EXTERNAL)] {
        assert_eq!(shard.attach_external(node, port, link), None, "{node}:{port} {link}");
    }
    assert!(shard.attach_external(S2, 5, 0).is_some());
    assert_eq!(shard.attach_external(S2, 5, 1), None, "it has one");
    for (node, port) in [(S1, 1), (S2, 6), (99, 1)] {
        assert!(!w.with_owner(S1, |shard, now, out| shard.detach_external(now, node, port, out)));
    }
    assert_eq!(EXTERNAL, 1 << 16);
}

#[test]
fn a_detached_end_is_a_port_without_cable_again() {
    for round in 0..3 {
        let mut w = up(1);
        for _ in 0..=round {
            assert!(w.with_owner(S2, |shard, now, out| shard.detach_external(now, S2, 5, out)));
            assert_eq!(w.state(S2, 5), DOWN);
            assert!(!w.with_owner(S2, |shard, now, out| shard.detach_external(now, S2, 5, out)));
            w.drops();
            assert!(w.query(method::GET, TO_D, attr::NODE_INFO, 0, &[0; 64]).is_none());
            assert_eq!(w.drops(), [(S2, DropReason::PathPortDown)]);
            let offer = w.with_owner(S2, |shard, _, _| shard.attach_external(S2, 5, 0)).unwrap();
            plug(&mut w, [offer, offer]);
            assert_eq!(w.state(S2, 5), INIT);
        }
    }
}
