//! Random traffic: shards against one shard, forwarding against a naive second implementation, and bytes that mean nothing.

use crate::world::*;
use madplane_engine::{OnBroken, Packet, PeerEvent, PeerEventKind, PinnedRoute, fuzz_shard};
use madplane_shm::drop_reason::DropReason;
use madplane_topology::{NodeKind, PortRef, Random, Topology};
use madplane_wire::mad::{field as mad, method};
use madplane_wire::smp::{attr, field as smp};

/// A small generator of numbers that are the same everywhere.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below.max(1)
    }
    pub(crate) fn byte(&mut self) -> u8 {
        u8::try_from(self.roll(256)).unwrap()
    }
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

pub(crate) fn seed() -> u64 {
    let seed = std::env::var("MADPLANE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5EED_0001);
    println!("seed {seed} (MADPLANE_SEED)");
    seed
}

/// A client of a random node.
pub(crate) fn sender(t: &Topology, dice: &mut Dice) -> (u32, u8) {
    let node = dice.roll(t.nodes.len());
    let port = match t.nodes[node].kind {
        NodeKind::Switch => 0,
        _ => u8::try_from(1 + dice.roll(usize::from(t.nodes[node].num_ports()))).unwrap(),
    };
    (u32::try_from(node).unwrap(), port)
}

/// A path that mostly exists.
pub(crate) fn path(t: &Topology, from: (u32, u8), dice: &mut Dice) -> Vec<u8> {
    let mut at = from;
    let mut path = Vec::new();
    for hop in 0..dice.roll(9) {
        let node = &t.nodes[at.0 as usize];
        let port = if hop == 0 && from.1 != 0 {
            from.1
        } else if dice.roll(40) == 0 {
            dice.byte()
        } else {
            u8::try_from(1 + dice.roll(usize::from(node.num_ports()))).unwrap()
        };
        path.push(port);
        match t.port(PortRef { node: at.0, port }).and_then(|p| p.peer) {
            Some(end) => at = (end.node, end.port),
            None => break,
        }
    }
    path
}

/// One random thing that can happen to the fabric.
fn step(w: &mut World, t: &Topology, dice: &mut Dice) {
    let from = sender(t, dice);
    match dice.roll(110) {
        100.. => {
            let (slid, dlid) = (u16::from(dice.byte() & 31), u16::from(dice.byte() & 63));
            let mut route = PinnedRoute { slid, dlid, ..PinnedRoute::default() };
            let way = path(t, from, dice);
            if dice.roll(3) != 0 {
                route.slid = w.owner(from.0).lid(from.0, from.1).unwrap();
            }
            if dice.roll(4) == 0 {
                route.on_broken = OnBroken::Drop;
            }
            route.p_key = dice.pick(&[0, 0, 0xFFFF, 0x8005]);
            route.path[..way.len()].copy_from_slice(&way);
            route.path_len = u8::try_from(way.len()).unwrap();
            let index = u32::try_from(dice.roll(300)).unwrap();
            w.pin(index, (dice.roll(5) != 0).then_some(&route));
        }
        0 => {
            let (node, port) = (from.0, u8::try_from(dice.roll(9)).unwrap());
            let up = dice.roll(2) == 1;
            w.with_owner(node, |s, now, out| s.set_link(now, node, port, up, out));
        }
        1 if dice.roll(4) == 0 => {
            w.with_owner(from.0, |s, now, out| s.reboot_node(now, from.0, out));
        }
        2 => {
            let is_sm = dice.roll(2) == 1;
            w.with_owner(from.0, |s, now, out| s.set_is_sm(now, from.0, from.1, is_sm, out));
        }
        3..30 => {
            let path = path(t, from, dice);
            let attribute = dice.pick(&[
                attr::PORT_INFO,
                attr::PORT_INFO,
                attr::LFT,
                attr::SWITCH_INFO,
                attr::PKEY_TABLE,
            ]);
            let mut data = [0; 64];
            for byte in &mut data {
                *byte = if dice.roll(3) == 0 { dice.byte() } else { 0 };
            }
            if attribute == attr::LFT {
                data.fill_with(|| u8::try_from(dice.roll(8)).unwrap());
            }
            if attribute == attr::SWITCH_INFO {
                data[6..8].copy_from_slice(&63_u16.to_be_bytes());
            }
            if attribute == attr::PORT_INFO {
                data[0..8].fill(0); // no key, or nobody gets in again
                data[16..20].copy_from_slice(&[0, dice.byte() & 63, 0, dice.byte() & 63]);
                data[36] = 0x50;
                data[32] = dice.pick(&[0, 0, 1, 3, 4]);
                data[33] = dice.pick(&[0, 0, 0, 0x20, 0x30, 0x10]);
            }
            let modifier = u32::try_from(dice.roll(5)).unwrap();
            let pkt = w.directed(method::SET, &path, attribute, modifier, &data);
            w.send(from.0, from.1, pkt);
        }
        30..60 => {
            let path = path(t, from, dice);
            let attribute =
                dice.pick(&[attr::NODE_INFO, attr::NODE_DESC, attr::PORT_INFO, attr::SM_INFO, 0x77]);
            let mut pkt = w.directed(method::GET, &path, attribute, 0, &[0; 64]);
            if dice.roll(10) == 0 {
                smp::DR_SLID.set(&mut pkt.mad, u64::from(dice.byte() & 63));
                pkt.dlid = u16::from(dice.byte() & 63);
            }
            if dice.roll(10) == 0 {
                smp::DR_DLID.set(&mut pkt.mad, u64::from(dice.byte() & 63));
            }
            w.send(from.0, from.1, pkt);
        }
        60..75 => {
            let dlid = u16::from(dice.byte() & 63);
            let pkt = w.by_lid(method::GET, dlid, attr::NODE_INFO, 0, &[0; 64]);
            w.send(from.0, from.1, pkt);
        }
        75..98 => {
            let (class, dlid) = (dice.pick(&[3, 4, 4, 0x32]), u16::from(dice.byte() & 63));
            let mut pkt = w.gmp(dice.pick(&[1, 2, 0x81, 5]), class, dlid, dice.pick(&[1, 0x12, 0x1D]));
            pkt.mad[65] = dice.byte() & 7;
            w.send(from.0, from.1, pkt);
        }
        _ => w.pass(400_000_000),
    }
}

#[test]
fn any_number_of_shards_gives_the_same_results() {
    let seed = seed();
    let t = topology();
    let mut worlds: Vec<World> = [1, 2, 3, 6].into_iter().map(|shards| World::of(&t, shards)).collect();
    for w in &mut worlds {
        w.bring_up();
        w.out.listening = vec![(B, 1), (S2, 0)];
    }
    let dice: Vec<Dice> = (0..worlds.len()).map(|_| Dice(seed)).collect();
    let mut dice = dice;
    for round in 0..20_000 {
        for (w, dice) in worlds.iter_mut().zip(&mut dice) {
            step(w, &t, dice);
        }
        // a trap may overtake the answer that waits between two shards, so the order within a step is free
        for w in &mut worlds {
            w.out.delivered.sort_by_key(|(node, port, pkt)| (*node, *port, pkt.mad));
            w.out.dropped.sort_unstable();
        }
        let (one, others) = worlds.split_first_mut().unwrap();
        for w in others {
            assert_eq!(w.out.delivered, one.out.delivered, "round {round}");
            assert_eq!(w.out.dropped, one.out.dropped, "round {round}");
            assert_eq!(w.out.used, one.out.used, "round {round}");
        }
        for w in &mut worlds {
            w.out.delivered.clear();
            w.out.dropped.clear();
            w.out.events.clear();
        }
    }
    assert!(!worlds[0].out.used.is_empty(), "routes take part");
    let (one, others) = worlds.split_first_mut().unwrap();
    for (node, record) in (0..).zip(&t.nodes) {
        for port in 0..=record.num_ports() {
            for w in &mut *others {
                assert_eq!(w.counters(node, port), one.counters(node, port), "{node} {port}");
                assert_eq!(w.owner(node).port_info(node, port), one.owner(node).port_info(node, port));
            }
        }
    }
}

/// Where a directed request ends and by which ports it came, computed from the topology alone.
fn walk(t: &Topology, from: (u32, u8), path: &[u8]) -> Result<((u32, u8), Vec<u8>), (u32, DropReason)> {
    let (mut at, mut arrivals) = (from, Vec::new());
    for (hop, port) in path.iter().enumerate() {
        let node = &t.nodes[at.0 as usize];
        if hop > 0 && node.kind != NodeKind::Switch {
            return Err((at.0, DropReason::NotSwitch));
        }
        if *port == 0 || *port > node.num_ports() || (hop == 0 && from.1 != 0 && *port != from.1) {
            return Err((at.0, DropReason::PathPort));
        }
        let Some(end) = node.ports[usize::from(*port)].peer else {
            return Err((at.0, DropReason::PathPortDown));
        };
        at = (end.node, end.port);
        arrivals.push(end.port);
    }
    Ok((at, arrivals))
}

#[test]
fn directed_routes_agree_with_a_walk_over_the_topology() {
    let seed = seed();
    for round in 0..20 {
        let t = Random { switches: 12, hosts: 2, links: 14, seed: seed + round, ..Random::default() }
            .build()
            .unwrap();
        let mut w = World::of(&t, 1 + usize::try_from(round % 4).unwrap());
        let mut dice = Dice(seed ^ round);
        for _ in 0..500 {
            let from = sender(&t, &mut dice);
            let path = path(&t, from, &mut dice);
            let request = w.directed(method::GET, &path, attr::NODE_INFO, 0, &[0; 64]);
            let answer = w.exchange_from(from.0, from.1, request.clone());
            match walk(&t, from, &path) {
                Ok(((node, port), arrivals)) => {
                    let answer = answer.unwrap_or_else(|| panic!("no answer from {from:?} by {path:?}"));
                    assert_eq!(answer.mad[76..84], t.nodes[node as usize].guid.to_be_bytes());
                    assert_eq!(answer.mad[100], port);
                    assert_eq!(answer.mad[193..193 + arrivals.len()], arrivals);
                    assert!(answer.mad[193 + arrivals.len()..].iter().all(|b| *b == 0));
                    assert_eq!(answer.mad[128..192], request.mad[128..192]);
                    assert_eq!((answer.mad[6], answer.mad[7]), (0, request.mad[7]));
                }
                Err(drop) => {
                    assert!(answer.is_none());
                    assert_eq!(w.drops(), [drop], "from {from:?} by {path:?}");
                }
            }
        }
        assert_eq!(w.drops(), []);
    }
}

/// Random bytes that look more or less like a MAD.
fn noise(dice: &mut Dice) -> Packet {
    let mut pkt = Packet::default();
    for byte in &mut pkt.mad {
        *byte = dice.byte();
    }
    let shape = dice.roll(8);
    if shape > 0 {
        pkt.mad[0] = 1;
        pkt.mad[1] = dice.pick(&[0x81, 0x81, 0x01, 0x03, 0x04]);
        pkt.mad[2] = 1;
        pkt.mad[3] = dice.pick(&[1, 2, 1, 2, 5, 7, 0x81, 6, 3]);
        pkt.dst_qp = u32::from(pkt.mad[1] & 0x7F != 1);
        let id = if pkt.dst_qp == 0 {
            dice.pick(&[0x10, 0x11, 0x12, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1B, 0x20])
        } else {
            dice.pick(&[1, 0x12, 0x15, 0x16, 0x1D])
        };
        mad::ATTR_ID.set(&mut pkt.mad, id);
    }
    if shape > 1 {
        pkt.mad[6] = dice.byte() & 3;
        pkt.mad[7] = dice.byte() & 3;
        pkt.mad[20..23].fill(0);
        pkt.mad[24..32].fill(0);
        pkt.mad[32..36].fill(0xFF);
        for at in 128..256 {
            pkt.mad[at] &= 7;
        }
    }
    pkt.dlid = dice.pick(&[0xFFFF, 0xFFFF, 2, 3, 4, 0, 0xC000]);
    pkt.slid = dice.pick(&[0xFFFF, 2, 4, 0]);
    pkt.q_key = dice.pick(&[0x8001_0000, 0x8001_0000, 1]);
    pkt.p_key = dice.pick(&[0xFFFF, 0xFFFF, 0x8001]);
    pkt.p_key_index = u16::from(dice.byte());
    pkt.path_bits = dice.byte();
    pkt.sl = dice.byte();
    pkt.lid_hops = dice.byte();
    pkt.src_qp = u32::from(dice.byte());
    pkt
}

#[test]
fn no_bytes_make_a_shard_panic_or_circle() {
    let seed = seed();
    let mut dice = Dice(seed);
    for shards in [1, 3] {
        let mut w = World::new(shards);
        w.bring_up();
        for _ in 0..100_000 {
            let (node, port) = (u32::try_from(dice.roll(7)).unwrap(), dice.byte() & 15);
            let mut pkt = noise(&mut dice);
            if dice.roll(2) == 0 {
                w.send(node, port, pkt);
            } else {
                w.with_owner(node, |s, now, out| s.arrive(now, node, port, &mut pkt, out));
            }
            if dice.roll(50) == 0 {
                let kind = dice.pick(&[
                    PeerEventKind::Dropped,
                    PeerEventKind::Offer,
                    PeerEventKind::Plugged,
                    PeerEventKind::Unplugged,
                ]);
                let mut offer = madplane_engine::LinkOffer {
                    want: dice.byte(),
                    width: dice.byte(),
                    ..Default::default()
                };
                offer.speed = dice.byte();
                let event = PeerEvent { node, port, kind, offer };
                w.with_owner(node, |s, now, out| s.peer_event(now, event, out));
                w.pass(50_000_000);
            }
            w.out.delivered.clear();
            w.out.dropped.clear();
            w.out.events.clear();
        }
    }
}

#[test]
fn the_fuzz_body_takes_any_input() {
    let mut dice = Dice(seed());
    fuzz_shard(&[]);
    for _ in 0..300 {
        let length = dice.roll(2000);
        let input: Vec<u8> = (0..length).map(|_| dice.byte()).collect();
        fuzz_shard(&input);
    }
}

#[test]
fn the_fuzz_body_takes_routes_and_packets_that_claim_to_be_on_one() {
    let mut dice = Dice(seed());
    for _ in 0..2000 {
        let mut input: Vec<u8> = (0..16 * 272).map(|_| dice.byte()).collect();
        for step in input.chunks_exact_mut(272) {
            // small LIDs, a MAD that is let in, and routes along ports that mostly exist
            for at in [3, 5] {
                step[at] = 0;
            }
            for at in [4, 6] {
                step[at] &= 31;
            }
            step[16..18].copy_from_slice(&[1, dice.pick(&[1, 4, 0x81])]);
            step[10] = step[10] & 0xFC | u8::from(step[17] == 4) & !0x04;
            if dice.roll(4) == 0 {
                step[0] |= 0xE0;
                step[16..79].fill_with(|| 1 + (dice.byte() & 7));
            } else {
                step[0] &= 0x1F;
            }
        }
        input[0] |= 0x80;
        fuzz_shard(&input);
    }
}
