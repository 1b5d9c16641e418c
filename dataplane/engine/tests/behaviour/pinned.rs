//! Pinned routes: which ports a packet takes, the way back, what happens when the path breaks, and that shards agree.

use crate::random::{Dice, path as random_path, seed, sender};
use crate::world::*;
use madplane_engine::{MAX_ROUTES, NodeId, OnBroken, Packet, PinnedActivity, PinnedRoute};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{NodeKind, PortRef, Random, Topology};
use madplane_wire::mad::{class, field as mad, method};
use madplane_wire::pma::attr as pma;
use madplane_wire::smp::attr;
use madplane_wire::smp::port_info::field as pi;
use std::collections::BTreeMap;

/// A way from port 1 of A to B that no table of `World::bring_up` takes: to S2, back to S1, and again.
pub(crate) const ZIGZAG: &[u8] = &[1, 3, 3, 3, 2];

pub(crate) fn up(shards: usize) -> World {
    let mut w = World::new(shards);
    w.bring_up();
    w
}

pub(crate) fn route(slid: u16, dlid: u16, path: &[u8]) -> PinnedRoute {
    let mut route = PinnedRoute { slid, dlid, ..PinnedRoute::default() };
    route.path[..path.len()].copy_from_slice(path);
    route.path_len = u8::try_from(path.len()).unwrap();
    route
}

pub(crate) fn dropping(slid: u16, dlid: u16, path: &[u8]) -> PinnedRoute {
    PinnedRoute { on_broken: OnBroken::Drop, ..route(slid, dlid, path) }
}

/// Packets sent and received by each port that has any.
pub(crate) type Traffic = BTreeMap<(NodeId, u8), (u64, u64)>;

fn traffic(w: &mut World, t: &Topology) -> Traffic {
    let mut all = Traffic::new();
    for (id, node) in (0..).zip(&t.nodes) {
        for port in 0..=node.num_ports() {
            let seen = w.counters(id, port);
            all.insert((id, port), (seen.xmit_pkts, seen.rcv_pkts));
        }
    }
    all
}

/// What has moved since `before`.
fn moved(w: &mut World, t: &Topology, before: &Traffic) -> Traffic {
    let mut after = traffic(w, t);
    for (port, (xmit, rcv)) in &mut after {
        *xmit -= before[port].0;
        *rcv -= before[port].1;
    }
    after.retain(|_, counts| *counts != (0, 0));
    after
}

/// The traffic of one packet over `path`, and of its reply by the same links if there is one.
pub(crate) fn expected(t: &Topology, from: NodeId, path: &[u8], reply: bool) -> Traffic {
    let mut all = Traffic::new();
    let mut at = from;
    for port in path {
        let end = t.port(PortRef { node: at, port: *port }).unwrap().peer.unwrap();
        for (xmit, rcv) in [((at, *port), (end.node, end.port)), ((end.node, end.port), (at, *port))]
            .into_iter()
            .take(1 + usize::from(reply))
        {
            all.entry(xmit).or_default().0 += 1;
            all.entry(rcv).or_default().1 += 1;
        }
        at = end.node;
    }
    all
}

pub(crate) fn smp_to(w: &mut World, dlid: u16) -> Packet {
    w.by_lid(method::GET, dlid, attr::NODE_INFO, 0, &[0; 64])
}

/// A GMP that the performance agent answers.
pub(crate) fn gmp_to(w: &mut World, dlid: u16) -> Packet {
    w.gmp(method::GET, class::PERF, dlid, pma::CLASS_PORT_INFO)
}

pub(crate) const KINDS: [fn(&mut World, u16) -> Packet; 2] = [smp_to, gmp_to];

/// Sends `pkt` from `(node, port)`: whether an answer came, and what moved.
pub(crate) fn probe(w: &mut World, from: (NodeId, u8), pkt: Packet) -> (bool, Traffic) {
    let t = topology();
    let before = traffic(w, &t);
    let answered = w.exchange_from(from.0, from.1, pkt).is_some();
    (answered, moved(w, &t, &before))
}

#[test]
fn request_and_answer_take_exactly_the_ports_of_the_path() {
    let t = topology();
    for shards in [1, 2, 6] {
        for kind in KINDS {
            let mut w = up(shards);
            assert!(w.pin(7, Some(&route(LID_A, LID_B, ZIGZAG))));
            for _ in 0..3 {
                let pkt = kind(&mut w, LID_B);
                assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, ZIGZAG, true)), "{shards}");
            }
            assert_eq!(w.out.used, [(7, 256); 3]);
            assert_eq!(w.drops(), []);
        }
    }
}

#[test]
fn no_forwarding_table_is_needed() {
    for shards in [1, 2] {
        let mut w = up(shards);
        for path in [TO_S1, TO_S2] {
            w.set(path, attr::LFT, 0, &[255; 64]);
        }
        for kind in KINDS {
            let pkt = kind(&mut w, LID_B);
            assert!(w.exchange(pkt).is_none());
            assert_eq!(w.drops(), [(S1, DropReason::NoRoute)]);
            w.pin(0, Some(&route(LID_A, LID_B, ZIGZAG)));
            let pkt = kind(&mut w, LID_B);
            assert!(w.exchange(pkt).is_some());
            w.pin(0, None);
        }
    }
}

#[test]
fn directed_smps_other_lids_and_traps_are_not_pinned() {
    let t = topology();
    let mut w = up(2);
    w.pin(0, Some(&dropping(LID_A, LID_B, ZIGZAG)));
    w.pin(1, Some(&dropping(LID_B, LID_A, &[1, 7])));
    let pkt = w.directed(method::GET, TO_B, attr::NODE_INFO, 0, &[0; 64]);
    assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, TO_B, true)));
    let pkt = smp_to(&mut w, LID_C);
    assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, TO_C, true)));
    // B reports to the SM at A: its own route would drop the trap
    let before = traffic(&mut w, &t);
    w.with_owner(B, |s, now, out| s.set_is_sm(now, B, 1, true, out));
    assert_eq!(w.take_traps().len(), 1);
    let seen = moved(&mut w, &t, &before);
    assert_eq!((seen[&(B, 1)], seen[&(A, 1)]), ((1, 0), (0, 1)));
    assert_eq!((w.drops(), w.out.used.len()), (vec![], 0));
}

#[test]
fn the_reply_of_a_client_goes_back_by_the_same_links() {
    let t = topology();
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        w.out.listening = vec![(B, 1)];
        let answer = |w: &World| {
            let mut pkt = w.out.delivered.last().unwrap().2.clone();
            mad::METHOD.set(&mut pkt.mad, u64::from(method::GET_RESP));
            pkt.dlid = LID_A;
            pkt
        };
        let mut early = w.gmp(method::GET_RESP, class::SA, LID_A, 0x11);
        w.pin(3, Some(&route(LID_A, LID_B, ZIGZAG)));
        let before = traffic(&mut w, &t);
        w.send(B, 1, early.clone());
        assert_eq!(moved(&mut w, &t, &before), expected(&t, B, &[1, 3, 1], false), "no request came yet");
        let request = w.gmp(method::GET, class::SA, LID_B, 0x11);
        w.send(A, 1, request);
        let before = traffic(&mut w, &t);
        let pkt = answer(&w);
        w.send(B, 1, pkt.clone());
        assert_eq!(moved(&mut w, &t, &before), expected(&t, B, &[1, 3, 3, 3, 1], false));
        let (node, port, got) = w.out.delivered.last().unwrap();
        assert_eq!((*node, *port, got.slid, got.dlid), (A, 1, LID_B, LID_A));
        // only a reply goes back that way
        mad::METHOD.set(&mut early.mad, u64::from(method::TRAP));
        let before = traffic(&mut w, &t);
        w.send(B, 1, early);
        assert_eq!(moved(&mut w, &t, &before), expected(&t, B, &[1, 3, 1], false));
        // and not if it has a route of its own
        w.pin(4, Some(&route(LID_B, LID_A, &[1, 3, 3, 3, 3, 3, 1])));
        let before = traffic(&mut w, &t);
        w.send(B, 1, pkt);
        assert_eq!(moved(&mut w, &t, &before), expected(&t, B, &[1, 3, 3, 3, 3, 3, 1], false));
        assert_eq!((w.drops(), &w.out.used[..]), (vec![], &[(3, 256), (4, 256)][..]));
    }
}

#[test]
fn an_agents_answer_prefers_a_route_of_its_own() {
    let t = topology();
    for kind in KINDS {
        let mut w = up(2);
        w.pin(0, Some(&route(LID_A, LID_B, ZIGZAG)));
        w.pin(1, Some(&route(LID_B, LID_A, &[1, 3, 1])));
        let pkt = kind(&mut w, LID_B);
        let mut both = expected(&t, A, ZIGZAG, false);
        for (port, counts) in expected(&t, B, &[1, 3, 1], false) {
            let sum = both.entry(port).or_default();
            *sum = (sum.0 + counts.0, sum.1 + counts.1);
        }
        assert_eq!(probe(&mut w, (A, 1), pkt), (true, both));
        assert_eq!(w.out.used, [(0, 256), (1, 256)]);
    }
}

#[test]
fn a_broken_path_falls_back_or_drops_where_it_breaks() {
    // path, node where it breaks, ports that an SMP of the fallback takes
    let cases: [(&[u8], NodeId, &[u8]); 8] = [
        (&[2, 2], A, &[1, 3, 2]),             // not the port of the client
        (&[1, 0], S1, &[1, 3, 2]),            // port 0
        (&[1, 9], S1, &[1, 3, 2]),            // beyond the ports
        (&[1, 7], S1, &[1, 3, 2]),            // no cable
        (&[1, 3, 3], S1, &[1, 3, 3, 3, 2]),   // ends too early, at a switch
        (&[1, 6], C, &[1, 6, 1, 3, 2]),       // ends at an adapter that is not the one
        (&[1, 3, 4, 2], A, &[1, 3, 4, 2, 2]), // through an adapter
        (&[1, 3, 2, 1], B, &[1, 3, 2]),       // through the one that it is for
    ];
    for shards in [1, 2, 6] {
        for kind in KINDS {
            for (path, node, fallback) in cases {
                let mut w = up(shards);
                w.pin(0, Some(&dropping(LID_A, LID_B, path)));
                let pkt = kind(&mut w, LID_B);
                assert!(w.exchange(pkt).is_none(), "{path:?}");
                assert_eq!(w.drops(), [(node, DropReason::RouteBroken)], "{path:?}");
                w.pin(0, Some(&route(LID_A, LID_B, path)));
                let t = topology();
                let before = traffic(&mut w, &t);
                let pkt = kind(&mut w, LID_B);
                let answered = w.exchange(pkt).is_some();
                let mut ways = expected(&t, A, fallback, false);
                for (port, counts) in expected(&t, B, &[1, 3, 1], false) {
                    let sum = ways.entry(port).or_default();
                    *sum = (sum.0 + counts.0, sum.1 + counts.1);
                }
                assert_eq!((answered, moved(&mut w, &t, &before)), (true, ways), "{path:?}, {shards} shards");
                assert_eq!(w.drops(), []);
            }
        }
    }
}

#[test]
fn a_link_that_goes_down_breaks_the_path_and_one_that_comes_up_mends_it() {
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        let t = topology();
        let path = [1, 8, 3, 2];
        w.pin(0, Some(&dropping(LID_A, LID_B, &path)));
        for _ in 0..2 {
            let pkt = smp_to(&mut w, LID_B);
            assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, &path, true)));
            w.with_owner(S1, |s, now, out| s.set_link(now, S1, 8, false, out));
            let pkt = smp_to(&mut w, LID_B);
            assert_eq!(probe(&mut w, (A, 1), pkt), (false, expected(&t, A, &[1], false)));
            assert_eq!(w.drops(), [(S1, DropReason::RouteBroken)]);
            w.pin(0, Some(&route(LID_A, LID_B, &path)));
            let pkt = smp_to(&mut w, LID_B);
            assert!(probe(&mut w, (A, 1), pkt).0, "fallback");
            w.pin(0, Some(&dropping(LID_A, LID_B, &path)));
            w.with_owner(S1, |s, now, out| s.set_link(now, S1, 8, true, out));
            w.drops();
            w.take_traps();
        }
    }
}

#[test]
fn smps_need_initialize_and_gmps_need_active() {
    let mut w = up(2);
    // S1 port 8 is in Initialize
    w.pin(0, Some(&dropping(LID_A, LID_B, &[1, 8, 3, 2])));
    let pkt = smp_to(&mut w, LID_B);
    assert!(w.exchange(pkt).is_some());
    let pkt = gmp_to(&mut w, LID_B);
    assert!(w.exchange(pkt).is_none());
    assert_eq!(w.drops(), [(S1, DropReason::RouteBroken)]);
    for (state, passes) in [(3, false), (4, true)] {
        assert_eq!(w.set_port(TO_S1, 8, &[(pi::PORT_STATE, state)]).unwrap().0, 0);
        let pkt = gmp_to(&mut w, LID_B);
        assert_eq!(w.exchange(pkt).is_some(), passes, "state {state}");
    }
    w.drops();
    // the other end of a link decides about what enters
    assert_eq!(w.set_port(TO_S2, 2, &[(pi::PORT_STATE, 1)]).unwrap().0, 0);
    for state in [3, 4] {
        assert_eq!(w.set_port(TO_S2, 2, &[(pi::PORT_STATE, state)]).unwrap().0, 0);
    }
    let pkt = gmp_to(&mut w, LID_B);
    assert!(w.exchange(pkt).is_none());
    assert_eq!(w.drops(), [(B, DropReason::ArrivalDown)]);
}

#[test]
fn resolved_routes_are_used_until_a_link_changes() {
    let mut w = up(1);
    let activity = |w: &World| w.shards[0].pinned_activity();
    let ask = |w: &mut World| {
        let pkt = smp_to(w, LID_B);
        assert!(w.exchange(pkt).is_some());
    };
    ask(&mut w);
    assert_eq!(activity(&w), PinnedActivity::default(), "no route, no activity");
    w.pin(0, Some(&route(LID_A, LID_B, ZIGZAG)));
    ask(&mut w);
    assert_eq!(
        activity(&w),
        PinnedActivity { cache_hits: 1, cache_misses: 1 },
        "the reply finds it resolved"
    );
    ask(&mut w);
    assert_eq!(activity(&w), PinnedActivity { cache_hits: 3, cache_misses: 1 });
    w.pin(0, Some(&route(LID_A, LID_B, ZIGZAG)));
    ask(&mut w);
    assert_eq!(activity(&w), PinnedActivity { cache_hits: 5, cache_misses: 1 }, "the same route again");
    // a Set that changes nothing is no change
    assert_eq!(w.set_port(TO_S1, 3, &[]).unwrap().0, 0);
    ask(&mut w);
    assert_eq!(activity(&w).cache_misses, 1);
    for up in [false, true] {
        w.with_owner(S1, |s, now, out| s.set_link(now, S1, 6, up, out));
        ask(&mut w);
    }
    assert_eq!(activity(&w).cache_misses, 3);
    w.pin(0, Some(&route(LID_A, LID_B, TO_B)));
    ask(&mut w);
    assert_eq!(activity(&w).cache_misses, 4);
}

#[test]
fn sixty_three_hops_and_loops_are_walked() {
    let t = topology();
    let mut path = vec![1];
    while path.len() < 59 {
        path.push(3);
    }
    path.extend_from_slice(&[8, 8, 3, 2]); // the plug of S1, then on to B
    assert_eq!(path.len(), 63);
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        w.pin(0, Some(&dropping(LID_A, LID_B, &path)));
        let pkt = smp_to(&mut w, LID_B);
        assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, &path, true)));
        assert_eq!(w.counters(S1, 8).xmit_pkts, 4);
        // home again by a loop: the tables would not even leave the node
        w.pin(1, Some(&dropping(LID_A, LID_A, &[1, 3, 3, 1])));
        let pkt = smp_to(&mut w, LID_A);
        assert!(probe(&mut w, (A, 1), pkt).0);
        assert_eq!(w.drops(), []);
    }
}

#[test]
fn routes_are_replaced_removed_and_shadowed() {
    let t = topology();
    let long: &[u8] = &[1, 3, 3, 3, 3, 3, 2];
    for shards in [1, 2] {
        let mut w = up(shards);
        let taken = |w: &mut World, path: &[u8]| {
            let pkt = gmp_to(w, LID_B);
            assert_eq!(probe(w, (A, 1), pkt), (true, expected(&t, A, path, true)));
        };
        assert!(w.pin(5, Some(&route(LID_A, LID_B, ZIGZAG))));
        taken(&mut w, ZIGZAG);
        assert!(w.pin(5, Some(&route(LID_A, LID_B, long))));
        taken(&mut w, long);
        assert!(w.pin(9, Some(&route(LID_A, LID_B, ZIGZAG))));
        taken(&mut w, ZIGZAG);
        assert!(w.pin(9, Some(&route(LID_A, LID_C, &[1, 6]))));
        taken(&mut w, long);
        assert!(w.pin(5, None) && w.pin(5, None) && w.pin(1000, None));
        taken(&mut w, TO_B);
        assert!(w.pin(9, None));
        assert_eq!(w.out.used.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [5, 5, 9, 5]);
    }
}

#[test]
fn any_of_the_routes_with_the_same_lids_can_be_taken_away() {
    let t = topology();
    // places to free, oldest route at place 0, and who counts after each
    let cases: [(&[u32], &[Option<u32>]); 4] = [
        (&[1, 2, 0], &[Some(2), Some(0), None]),
        (&[0, 1, 2], &[Some(2), Some(2), None]),
        (&[2, 1, 0], &[Some(1), Some(0), None]),
        (&[2, 0, 1], &[Some(1), Some(1), None]),
    ];
    for (freed, counting) in cases {
        let mut w = up(1);
        let ways: [&[u8]; 3] = [&[1, 3, 3, 3, 3, 3, 3, 3, 2], &[1, 3, 3, 3, 3, 3, 2], ZIGZAG];
        for (place, way) in (0..).zip(ways) {
            assert!(w.pin(place, Some(&route(LID_A, LID_B, way))));
        }
        for (place, counts) in freed.iter().zip(counting) {
            assert!(w.pin(*place, None));
            let pkt = smp_to(&mut w, LID_B);
            let taken = counts.map_or(TO_B, |place| ways[place as usize]);
            assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, taken, true)), "{freed:?} {place}");
        }
    }
}

#[test]
fn a_reply_follows_the_route_that_counts_now() {
    let t = topology();
    let mut w = up(1);
    w.out.listening = vec![(B, 1)];
    w.pin(0, Some(&route(LID_A, LID_B, ZIGZAG)));
    let pkt = w.gmp(method::GET, class::SA, LID_B, 0x11);
    w.send(A, 1, pkt);
    // set later, so it counts; no request has gone its way
    w.pin(1, Some(&route(LID_A, LID_B, TO_B)));
    let pkt = w.gmp(method::GET_RESP, class::SA, LID_A, 0x11);
    let before = traffic(&mut w, &t);
    w.send(B, 1, pkt);
    assert_eq!(moved(&mut w, &t, &before), expected(&t, B, &[1, 3, 1], false));
}

#[test]
fn what_is_not_a_route_is_refused_and_leaves_nothing_behind() {
    let good = route(LID_A, LID_B, ZIGZAG);
    let bad = [
        PinnedRoute { slid: 0, ..good },
        PinnedRoute { dlid: 0, ..good },
        PinnedRoute { slid: 0xC000, ..good },
        PinnedRoute { dlid: 0xFFFF, ..good },
        PinnedRoute { path_len: 0, ..good },
        PinnedRoute { path_len: 64, ..good },
        PinnedRoute { path_len: 255, ..good },
    ];
    let mut w = up(1);
    for bad in bad {
        assert!(w.pin(0, Some(&good)));
        assert!(!w.pin(0, Some(&bad)), "{bad:?}");
        let pkt = smp_to(&mut w, LID_B);
        assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&topology(), A, TO_B, true)));
    }
    assert!(!w.pin(MAX_ROUTES, Some(&good)) && !w.pin(u32::MAX, None));
    assert!(w.pin(MAX_ROUTES - 1, Some(&good)));
}

#[test]
fn a_gmp_has_to_match_the_p_key_of_the_route() {
    // key of the route, key of the sender, passes
    let cases = [
        (0, 0x7FFF, true),
        (0xFFFF, 0xFFFF, true),
        (0xFFFF, 0x7FFF, true),
        (0x7FFF, 0xFFFF, true),
        (0x7FFF, 0x7FFF, false),
        (0x8005, 0xFFFF, false),
        (0x8000, 0xFFFF, false),
    ];
    for (key, sender, passes) in cases {
        let mut w = up(2);
        let mut data = [0; 64];
        data[..2].copy_from_slice(&u16::to_be_bytes(sender));
        w.set(TO_A, attr::PKEY_TABLE, 0, &data);
        w.out.delivered.clear();
        w.out.listening = vec![(B, 1)];
        w.pin(0, Some(&PinnedRoute { p_key: key, ..route(LID_A, LID_B, ZIGZAG) }));
        let before = traffic(&mut w, &topology());
        let pkt = w.gmp(method::GET, class::SA, LID_B, 0x11);
        w.send(A, 1, pkt);
        assert_eq!(w.out.delivered.len(), usize::from(passes), "{key:#x} {sender:#x}");
        if !passes {
            assert_eq!(w.drops(), [(A, DropReason::PKey)]);
            assert_eq!(moved(&mut w, &topology(), &before), Traffic::new());
        }
        assert_eq!(w.drops(), []);
        let pkt = smp_to(&mut w, LID_B);
        assert!(w.exchange(pkt).is_some(), "SMPs have no P_Key");
    }
}

#[test]
fn partition_enforcement_and_vls_stop_a_pinned_gmp() {
    for shards in [1, 2] {
        for (field, port, count) in
            [(pi::PARTITION_ENFORCEMENT_INBOUND, 1, (1, 0)), (pi::PARTITION_ENFORCEMENT_OUTBOUND, 3, (0, 1))]
        {
            let mut w = up(shards);
            w.pin(0, Some(&route(LID_A, LID_B, ZIGZAG)));
            // resolved before the Set, which changes no state
            let pkt = gmp_to(&mut w, LID_B);
            assert!(w.exchange(pkt).is_some());
            assert_eq!(w.set_port(TO_S1, port, &[(field, 1)]).unwrap().0, 0);
            let pkt = gmp_to(&mut w, LID_B);
            assert!(w.exchange(pkt).is_some(), "the default key passes");
            let mut keys = [0; 64];
            keys[..2].copy_from_slice(&[0x80, 5]);
            w.set(TO_S1, attr::PKEY_TABLE, port << 16, &keys);
            let pkt = gmp_to(&mut w, LID_B);
            assert!(w.exchange(pkt).is_none());
            assert_eq!(w.drops(), [(S1, DropReason::PartitionEnforcement)]);
            let seen = w.counters(S1, u8::try_from(port).unwrap());
            assert_eq!((seen.rcv_constraint_errors, seen.xmit_constraint_errors), count);
            let pkt = smp_to(&mut w, LID_B);
            assert!(w.exchange(pkt).is_some(), "SMPs have no P_Key");
        }
        // out of S1 port 3 by the second visit, which came in by port 3: SL 2 to VL 15, SL 4 to VL 7
        let mut w = up(shards);
        w.pin(0, Some(&route(LID_A, LID_B, ZIGZAG)));
        let mut map = [0; 64];
        map[1..3].copy_from_slice(&[0xF8, 0x70]);
        let pkt = gmp_to(&mut w, LID_B);
        assert!(w.exchange(pkt).is_some());
        w.set(TO_S1, attr::SL_TO_VL, 3 << 8 | 3, &map);
        for (sl, passes) in [(0, true), (2, false), (4, true)] {
            let pkt = Packet { sl, ..gmp_to(&mut w, LID_B) };
            assert_eq!(w.exchange(pkt).is_some(), passes, "SL {sl}");
        }
        assert_eq!(w.drops(), [(S1, DropReason::SlToVl)]);
        assert_eq!(w.counters(S1, 3).xmit_discards, 1);
        assert_eq!(w.set_port(TO_S1, 3, &[(pi::OPERATIONAL_VLS, 3)]).unwrap().0, 0);
        let pkt = Packet { sl: 4, ..gmp_to(&mut w, LID_B) };
        assert!(w.exchange(pkt).is_none());
        assert_eq!(w.drops(), [(S1, DropReason::SlToVl)]);
    }
}

#[test]
fn each_lid_of_a_port_has_routes_of_its_own() {
    let t = topology();
    let mut w = up(2);
    w.pin(0, Some(&route(LID_A + 2, LID_B, ZIGZAG)));
    w.pin(1, Some(&route(LID_B, LID_A + 3, &[1, 3, 3, 3, 1])));
    for (bits, path) in [(0, TO_B), (1, TO_B), (2, ZIGZAG), (6, ZIGZAG)] {
        for kind in KINDS {
            let pkt = Packet { path_bits: bits, ..kind(&mut w, LID_B) };
            assert_eq!(probe(&mut w, (A, 1), pkt), (true, expected(&t, A, path, true)), "{bits}");
        }
    }
    let pkt = smp_to(&mut w, LID_A + 3);
    let answer = w.exchange_from(B, 1, pkt).unwrap();
    assert_eq!((answer.slid, answer.dlid), (LID_A + 3, LID_B));
    assert_eq!(w.out.used.last(), Some(&(1, 256)));
}

#[test]
fn a_switch_sends_and_receives_pinned() {
    let t = topology();
    for shards in [1, 2, 6] {
        let mut w = up(shards);
        w.pin(0, Some(&dropping(LID_S1, LID_S2, &[8, 3, 3, 3])));
        assert_eq!(w.set_port(TO_S1, 8, &[(pi::PORT_STATE, 3)]).unwrap().0, 0);
        assert_eq!(w.set_port(TO_S1, 8, &[(pi::PORT_STATE, 4)]).unwrap().0, 0);
        for kind in KINDS {
            let pkt = kind(&mut w, LID_S2);
            assert_eq!(probe(&mut w, (S1, 0), pkt), (true, expected(&t, S1, &[8, 3, 3, 3], true)));
        }
        assert_eq!(w.drops(), []);
    }
}

#[test]
fn a_route_that_changes_while_a_packet_crosses_shards_does_not_lead_it_astray() {
    let changes: [Option<PinnedRoute>; 4] = [
        None,
        Some(dropping(LID_A, LID_C, &[1, 6])),
        Some(dropping(LID_A, LID_B, &[1, 3, 4, 2])),
        Some(route(LID_A, LID_B, TO_B)),
    ];
    for change in changes {
        let mut w = up(6);
        w.out.listening = vec![(B, 1)];
        w.pin(0, Some(&dropping(LID_A, LID_B, ZIGZAG)));
        let mut pkt = w.gmp(method::GET, class::SA, LID_B, 0x11);
        let shard = w.plan.shard_of(A);
        w.shards[shard].send(0, A, 1, &mut pkt, &mut w.out);
        w.pin(0, change.as_ref());
        w.settle();
        let arrived = w.out.delivered.len();
        let dropped = w.drops();
        match change {
            // the packet stands where the new path passes too, so it follows that
            Some(r) if r.dlid == LID_B && r.on_broken == OnBroken::Drop => {
                assert_eq!((arrived, dropped), (0, vec![(A, DropReason::RouteBroken)]));
            }
            _ => assert_eq!((arrived, dropped), (1, vec![])),
        }
    }
}

#[test]
fn a_reboot_forgets_the_lid_but_not_the_routes() {
    let mut w = up(1);
    w.pin(0, Some(&dropping(LID_A, LID_B, ZIGZAG)));
    w.with_owner(B, |s, now, out| s.reboot_node(now, B, out));
    let pkt = smp_to(&mut w, LID_B);
    assert!(w.exchange(pkt).is_none());
    assert_eq!(w.drops().last(), Some(&(B, DropReason::RouteBroken)));
    assert_eq!(w.set_port(TO_B, 1, &[(pi::LID, u64::from(LID_B)), (pi::MASTER_SM_LID, 1)]).unwrap().0, 0);
    let pkt = smp_to(&mut w, LID_B);
    assert!(w.exchange(pkt).is_some());
}

/// LID of a client's port in the random fabrics: every endport has another.
fn lid_of((node, port): (NodeId, u8)) -> u16 {
    u16::try_from(node * 8 + u32::from(port) + 1).unwrap()
}

/// What a naive walk from cable to cable says: links taken, and the end or the node where the path breaks.
fn naive(
    t: &Topology,
    down: &[PortRef],
    from: (NodeId, u8),
    to: (NodeId, u8),
    path: &[u8],
) -> (usize, Result<(), NodeId>) {
    let mut at = PortRef { node: from.0, port: from.1 };
    for (taken, port) in path.iter().enumerate() {
        let node = &t.nodes[at.node as usize];
        let switch = node.kind == NodeKind::Switch;
        let out = PortRef { node: at.node, port: *port };
        let peer = t.port(out).filter(|_| *port != 0).and_then(|p| p.peer);
        match peer {
            Some(peer) if (switch || (taken == 0 && *port == from.1)) && !down.contains(&out) => at = peer,
            _ => return (taken, Err(at.node)),
        }
    }
    let switch = t.nodes[at.node as usize].kind == NodeKind::Switch;
    let ours = at.node == to.0 && (switch || at.port == to.1);
    (path.len(), if ours { Ok(()) } else { Err(at.node) })
}

#[test]
fn pinned_packets_agree_with_a_walk_over_the_topology() {
    let seed = seed();
    let mut reached = 0;
    for round in 0..16 {
        let t = Random { switches: 8, hosts: 4, links: 12, seed: seed + round, ..Random::default() }
            .build()
            .unwrap();
        let mut w = World::of(&t, 1 + usize::try_from(round % 4).unwrap());
        let mut dice = Dice(seed ^ round);
        for (id, node) in (0..).zip(&t.nodes) {
            let switch = node.kind == NodeKind::Switch;
            for port in if switch { 0..=0 } else { 1..=node.num_ports() } {
                let mut data = w.owner(id).port_info(id, port).unwrap();
                pi::PORT_STATE.set(&mut data, 0);
                pi::PORT_PHYS_STATE.set(&mut data, 0);
                pi::LID.set(&mut data, u64::from(lid_of((id, port))));
                pi::MASTER_SM_LID.set(&mut data, 0xBFFF);
                let pkt = w.directed(method::SET, &[], attr::PORT_INFO, u32::from(port), &data);
                assert!(w.exchange_from(id, port, pkt).is_some());
            }
        }
        let mut down: Vec<PortRef> = Vec::new();
        for index in 0..400 {
            if dice.roll(10) == 0 {
                let (node, _) = sender(&t, &mut dice);
                let port =
                    u8::try_from(1 + dice.roll(usize::from(t.nodes[node as usize].num_ports()))).unwrap();
                let here = PortRef { node, port };
                if let Some(peer) = t.port(here).unwrap().peer {
                    let was_down = down.contains(&here);
                    down.retain(|end| *end != here && *end != peer);
                    if !was_down {
                        down.extend([here, peer]);
                    }
                    w.with_owner(node, |s, now, out| s.set_link(now, node, port, was_down, out));
                    // traps that find no way
                    w.drops();
                }
            }
            let (from, other) = (sender(&t, &mut dice), sender(&t, &mut dice));
            let path = random_path(&t, from, &mut dice);
            let mut to = other;
            let mut at = (from, true);
            for port in &path {
                match t.port(PortRef { node: at.0.0, port: *port }).and_then(|p| p.peer) {
                    Some(end) => at.0 = (end.node, end.port),
                    None => at.1 = false,
                }
            }
            // mostly to where the path leads
            if at.1 && dice.roll(8) != 0 {
                let switch = t.nodes[at.0.0 as usize].kind == NodeKind::Switch;
                to = (at.0.0, if switch { 0 } else { at.0.1 });
            }
            // from a port to itself the route of the request is the answer's own
            if path.is_empty() || from == to {
                w.pin(index % 7, None);
                continue;
            }
            // one at a time, or an answer might have a route of its own
            w.pin(index % 7, None);
            w.pin((index + 1) % 7, Some(&dropping(lid_of(from), lid_of(to), &path)));
            for _ in 0..2 {
                let (taken, end) = naive(&t, &down, from, to, &path);
                let before = traffic(&mut w, &t);
                let pkt = smp_to(&mut w, lid_of(to));
                let answer = w.exchange_from(from.0, from.1, pkt);
                let drops = w.drops();
                assert_eq!(
                    answer.is_some(),
                    end.is_ok(),
                    "{from:?} to {to:?} by {path:?} {drops:?} {down:?}"
                );
                assert_eq!(
                    moved(&mut w, &t, &before),
                    expected(&t, from.0, &path[..taken], end.is_ok()),
                    "{from:?} to {to:?} by {path:?}"
                );
                match end {
                    Ok(()) => {
                        reached += 1;
                        assert_eq!(answer.unwrap().mad[76..84], t.nodes[to.0 as usize].guid.to_be_bytes());
                        assert_eq!(drops, []);
                    }
                    Err(node) => assert_eq!(drops, [(node, DropReason::RouteBroken)]),
                }
            }
            w.out.delivered.clear();
        }
    }
    assert!(reached > 1000, "{reached} packets arrived");
}

/// A world and everything that it has counted.
struct Ledger {
    w: World,
    counts: Traffic,
}

#[test]
fn any_number_of_shards_carries_pinned_traffic_alike() {
    let seed = seed();
    let t = topology();
    let mut ledgers: Vec<Ledger> = [1, 2, 3, 6]
        .into_iter()
        .map(|shards| {
            let mut w = up(shards);
            w.out.listening = vec![(B, 1), (S2, 0)];
            let counts = traffic(&mut w, &t);
            Ledger { w, counts }
        })
        .collect();
    let clients =
        [(A, 1, LID_A), (A, 2, LID_A2), (S1, 0, LID_S1), (S2, 0, LID_S2), (B, 1, LID_B), (C, 1, LID_C)];
    let mut dice = Dice(seed);
    let (mut used, mut answered, mut broken) = (0, 0, 0);
    for round in 0..10_000 {
        let (from, to) = (dice.pick(&clients), dice.pick(&clients));
        let bits = dice.byte() & 3;
        let slid = if from.0 == A && from.1 == 1 { from.2 + u16::from(bits) } else { from.2 };
        let kind = dice.pick(&[method::GET, method::GET_RESP, method::SET]);
        let choice = dice.roll(10);
        let mut set_route = None;
        if dice.roll(3) == 0 {
            let mut path = random_path(&t, (from.0, from.1), &mut dice);
            if dice.roll(4) == 0 {
                path.truncate(1);
                path.resize(40, 3);
            }
            let mut new = route(slid, to.2, &path);
            new.on_broken = dice.pick(&[OnBroken::Fallback, OnBroken::Drop]);
            new.p_key = dice.pick(&[0, 0, 0xFFFF, 0x8005]);
            set_route = Some((u32::try_from(dice.roll(60)).unwrap(), (dice.roll(6) != 0).then_some(new)));
        }
        let flap = (dice.roll(40) == 0).then(|| (dice.pick(&[(S1, 8), (S1, 6), (A, 2)]), dice.roll(3) != 0));
        for Ledger { w, counts } in &mut ledgers {
            if let Some((index, new)) = &set_route {
                w.pin(*index, new.as_ref());
            }
            if let Some(((node, port), up)) = flap {
                w.with_owner(node, |s, now, out| s.set_link(now, node, port, up, out));
            }
            let mut pkt = match choice {
                0..5 => smp_to(w, to.2),
                5 => w.gmp(kind, class::SA, to.2, 0x11),
                _ => gmp_to(w, to.2),
            };
            pkt.path_bits = bits;
            w.send(from.0, from.1, pkt);
            *counts = traffic(w, &t);
            w.out.delivered.sort_by_key(|(node, port, pkt)| (*node, *port, pkt.mad));
            w.out.dropped.sort_unstable();
        }
        let (one, others) = ledgers.split_first_mut().unwrap();
        for other in others {
            assert_eq!(other.w.out.delivered, one.w.out.delivered, "round {round}");
            assert_eq!(other.w.out.dropped, one.w.out.dropped, "round {round}");
            assert_eq!(other.w.out.used, one.w.out.used, "round {round}");
            assert_eq!(other.counts, one.counts, "round {round}");
        }
        used += one.w.out.used.len();
        answered += one.w.out.delivered.len();
        broken += one.w.out.dropped.iter().filter(|(_, reason)| *reason == DropReason::RouteBroken).count();
        for Ledger { w, .. } in &mut ledgers {
            w.out.delivered.clear();
            w.out.dropped.clear();
            w.out.used.clear();
            w.out.events.clear();
        }
    }
    assert!(used > 1000 && answered > 3000 && broken > 200, "{used} {answered} {broken}");
}
