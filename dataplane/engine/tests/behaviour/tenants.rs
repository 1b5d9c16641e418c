//! What belongs to a tenant in the engine: routes for some packets only, paths of one sender, and the questions of an
//! addressed node.

use crate::pinned::{KINDS, ZIGZAG, dropping, expected, gmp_to, probe, route, smp_to, up};
use crate::world::*;
use madplane_engine::{MAX_BOUND, Packet, PinnedRoute, right};
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::method;
use madplane_wire::smp::{attr, field as smp};

const TENANT: u16 = 7;

fn of(tenant: u16, rights: u8, pkt: Packet) -> Packet {
    Packet { tenant, rights, ..pkt }
}

#[test]
fn a_route_serves_its_tenant_and_its_class_and_is_not_there_for_others() {
    let t = topology();
    let cases = [
        // of the route: tenant, priority; of the packet: tenant, rights
        (0, 0, 0, 0, true),
        (0, 0, TENANT, 0, true),
        (TENANT, 0, TENANT, 0, true),
        (TENANT, 0, TENANT + 1, 0, false),
        (TENANT, 0, 0, right::RESERVED, false),
        (0, 1, TENANT, right::RESERVED, true),
        (0, 1, 0, 0, false),
        (0, 200, TENANT, right::AS_LIMITED, false),
        (TENANT, 1, TENANT, right::RESERVED, true),
        (TENANT, 1, TENANT, 0, false),
        (TENANT, 1, 1, right::RESERVED, false),
    ];
    for shards in [1, 2, 6] {
        for (tenant, priority, sender, rights, serves) in cases {
            for kind in KINDS {
                let mut w = up(shards);
                w.pin(3, Some(&PinnedRoute { tenant, priority, ..dropping(LID_A, LID_B, ZIGZAG) }));
                let way = if serves { ZIGZAG } else { TO_B };
                let pkt = of(sender, rights, kind(&mut w, LID_B));
                let seen = probe(&mut w, (A, 1), pkt);
                assert_eq!(
                    seen,
                    (true, expected(&t, A, way, true)),
                    "{shards} shards, {tenant}/{priority} for {sender}/{rights}"
                );
                assert_eq!(w.out.used.len(), usize::from(serves));
                assert_eq!(w.drops(), []);
            }
        }
    }
}

#[test]
fn an_answer_passes_a_route_of_others_and_goes_back_by_that_of_its_request() {
    let t = topology();
    for shards in [1, 2] {
        for kind in KINDS {
            let mut w = up(shards);
            w.pin(0, Some(&route(LID_A, LID_B, ZIGZAG)));
            w.pin(1, Some(&PinnedRoute { tenant: TENANT, ..dropping(LID_B, LID_A, &[1, 3, 1]) }));
            for _ in 0..2 {
                let pkt = kind(&mut w, LID_B);
                assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, ZIGZAG, true)), "{shards}");
            }
            // its tenant's answers have a way of their own
            let pkt = of(TENANT, 0, kind(&mut w, LID_B));
            let mut both = expected(&t, A, ZIGZAG, false);
            for (port, counts) in expected(&t, B, &[1, 3, 1], false) {
                let sum = both.entry(port).or_default();
                *sum = (sum.0 + counts.0, sum.1 + counts.1);
            }
            assert_eq!(probe(&mut w, (A, 1), pkt), (true, both), "{shards}");
        }
    }
}

#[test]
fn a_bound_sender_takes_its_path_and_the_answer_comes_back_by_it() {
    let t = topology();
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        w.pin(0, Some(&dropping(LID_A, LID_B, TO_B)));
        let bound = |pkt: Packet| Packet { bound: MAX_BOUND, ..pkt };
        for path in [&dropping(1, 1, ZIGZAG), &route(1, 1, ZIGZAG)] {
            w.shards.iter_mut().for_each(|shard| assert!(shard.bind(MAX_BOUND - 1, Some(path))));
            for kind in KINDS {
                let pkt = bound(kind(&mut w, LID_B));
                assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, ZIGZAG, true)), "{shards}");
                let pkt = kind(&mut w, LID_B);
                assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, TO_B, true)), "{shards}");
            }
        }
        assert_eq!(w.out.used.len(), 4, "a path of one's own is no route of the table");
        let pkt = w.directed(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]);
        assert_eq!(probe(&mut w, (A, 1), bound(pkt)), (true, expected(&t, A, TO_B, true)));
        for kind in KINDS {
            // the own node is not asked over a path
            let pkt = bound(kind(&mut w, LID_A));
            assert_eq!(probe(&mut w, (A, 1), pkt), (true, Default::default()));
        }
        assert_eq!(w.drops(), []);
        w.shards.iter_mut().for_each(|shard| assert!(shard.bind(MAX_BOUND - 1, None)));
        let pkt = bound(gmp_to(&mut w, LID_B));
        assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, TO_B, true)), "unbound");
    }
}

#[test]
fn a_path_that_ends_elsewhere_is_left_there_or_the_packet_dropped() {
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        let bind = |w: &mut World, path: &PinnedRoute| {
            w.shards.iter_mut().for_each(|shard| assert!(shard.bind(0, Some(path))));
        };
        for kind in KINDS {
            bind(&mut w, &route(0, 0, ZIGZAG));
            let pkt = Packet { bound: 1, ..kind(&mut w, LID_C) };
            assert!(w.exchange(pkt).is_some(), "{shards}: on from B by LID");
            bind(&mut w, &dropping(0, 0, ZIGZAG));
            let pkt = Packet { bound: 1, ..kind(&mut w, LID_C) };
            assert!(w.exchange(pkt).is_none());
            assert_eq!(w.drops(), [(B, DropReason::RouteBroken)]);
        }
    }
}

#[test]
fn what_is_no_path_is_refused_and_takes_the_former_away() {
    let mut w = up(1);
    let shard = &mut w.shards[0];
    assert!(!shard.bind(MAX_BOUND, Some(&route(0, 0, ZIGZAG))));
    assert!(shard.bind(4, Some(&route(0, 0, ZIGZAG))));
    assert!(!shard.bind(4, Some(&PinnedRoute::default())));
    assert!(shard.bind(4, None) && shard.bind(9, None));
    let pkt = Packet { bound: 5, ..smp_to(&mut w, LID_B) };
    assert!(w.exchange(pkt).is_some());
    // a number that nobody ever bound
    let pkt = Packet { bound: u16::MAX, ..smp_to(&mut w, LID_B) };
    assert!(w.exchange(pkt).is_some());
}

#[test]
fn the_addressed_node_asks_whether_it_may_be_managed_and_nobody_on_the_way_does() {
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        w.out.manageable = vec![(TENANT, 0xB0)];
        let marked = |pkt| of(TENANT, right::CHECK_NODE, pkt);
        for method in [method::GET, method::SET] {
            let data = w.get(TO_B, attr::PORT_INFO, 1);
            w.out.delivered.clear();
            let attribute = attr::PKEY_TABLE;
            let keys = w.get(TO_B, attribute, 0);
            let asks = [
                (w.directed(method, TO_B, attribute, 0, &keys), true, B),
                (w.by_lid(method, LID_B, attribute, 0, &keys), true, B),
                (w.directed(method, TO_S2, attribute, 0, &keys), false, S2),
                (w.by_lid(method, LID_S2, attribute, 0, &keys), false, S2),
                (w.directed(method, TO_A, attribute, 0, &keys), false, A),
            ];
            for (pkt, allowed, node) in asks {
                assert_eq!(w.exchange(marked(pkt)).is_some(), allowed, "{shards} shards, {node}");
                let drops = if allowed { vec![] } else { vec![(node, DropReason::TenantScope)] };
                assert_eq!(w.drops(), drops);
            }
            let pkt = w.by_lid(method, LID_S2, attribute, 0, &data);
            assert!(w.exchange(of(TENANT, 0, pkt)).is_some(), "nobody asks about what is not marked");
        }
        // a request that pretends to be on its way back reaches clients only, and they are of a node too
        let mut pkt = w.directed(method::GET, TO_S1, attr::NODE_INFO, 0, &[0; 64]);
        smp::DIRECTION.set(&mut pkt.mad, 1);
        smp::HOP_POINTER.set(&mut pkt.mad, 2);
        pkt.mad[192 + 1] = 1;
        w.out.listening = vec![(S1, 0)];
        w.send(A, 1, marked(pkt.clone()));
        assert_eq!(w.drops(), [(S1, DropReason::TenantScope)]);
        w.send(A, 1, pkt);
        assert_eq!(w.drops(), []);
        assert_eq!(w.out.delivered.last().map(|(node, ..)| *node), Some(S1));
    }
}

#[test]
fn a_limited_member_sends_as_one_and_refused_keys_are_told() {
    for shards in [1, 2] {
        let mut w = up(shards);
        let mut keys = w.get(TO_B, attr::PKEY_TABLE, 0);
        let pkt = of(TENANT, right::AS_LIMITED, gmp_to(&mut w, LID_B));
        let answer = w.exchange(pkt).expect("the node is a full member");
        assert_eq!(answer.p_key, 0xFFFF, "an answer goes with the key of its own port");
        keys[..4].copy_from_slice(&[0x80, 0x05, 0x7F, 0xFF]);
        w.set(TO_B, attr::PKEY_TABLE, 0, &keys);
        w.out.delivered.clear();
        let pkt = of(TENANT, right::AS_LIMITED, gmp_to(&mut w, LID_B));
        assert!(w.exchange(pkt).is_none());
        assert_eq!(w.drops(), [(B, DropReason::PKey)]);
        assert_eq!(std::mem::take(&mut w.out.mismatches), [(B, 0x7FFF, 0x7FFF)]);
        keys[..4].copy_from_slice(&[0x80, 0x05, 0x80, 0x06]);
        w.set(TO_B, attr::PKEY_TABLE, 0, &keys);
        let pkt = gmp_to(&mut w, LID_B);
        assert!(w.exchange(pkt).is_none());
        assert_eq!(w.drops(), [(B, DropReason::PKey)]);
        assert_eq!(std::mem::take(&mut w.out.mismatches), [(B, 0xFFFF, 0x8005)]);
        // a route that wants another key tells so, once
        w.pin(0, Some(&PinnedRoute { p_key: 0x8005, ..route(LID_A, LID_B, ZIGZAG) }));
        let pkt = gmp_to(&mut w, LID_B);
        assert!(w.exchange(pkt).is_none());
        assert_eq!(w.drops(), [(A, DropReason::PKey)]);
        assert_eq!(std::mem::take(&mut w.out.mismatches), [(A, 0xFFFF, 0x8005)]);
        assert_eq!(w.owner(A).sender_p_key(A, 1, 0), Some(0xFFFF));
        assert_eq!(w.owner(B).sender_p_key(B, 1, 1), Some(0x8006));
        assert_eq!(w.owner(B).sender_p_key(B, 1, 64), None);
        assert_eq!(w.owner(B).sender_p_key(B, 2, 0), None);
    }
}
