//! How a directed SMP gets from one end of its path to the other.
//!
//! Part of [`Shard`], same owner and thread. Between the ends the same rule decides at every switch; here it is applied from
//! link to link without the way through verdicts. Wherever anything else is to be decided, an end of the path or a refusal,
//! the packet stands still as [`Shard::cross`] would have left it.

use super::Shard;
use crate::packet::Packet;
use crate::sink::Sink;
use crate::smi::Course;
use madplane_wire::smp::port_info::state;

impl Shard {
    /// Takes a packet over the link of `out`, and over all that follow on its `course`, and counts it there; the port where it
    /// arrived last and is still to be decided upon, if that is in this shard.
    #[inline(always)]
    pub(super) fn follow<S: Sink>(
        &mut self,
        mut course: Course,
        out: u32,
        pkt: &mut Packet,
        sink: &mut S,
    ) -> Option<u32> {
        let near = self.ports.get_mut(out as usize)?;
        near.xmit_pkts += 1;
        let mut at = near.peer;
        loop {
            let Some(far) = self.ports.get_mut(at as usize) else {
                self.hand_over(at, pkt, sink);
                return None;
            };
            far.rcv_pkts += 1;
            if !far.is_switch || far.state < state::INIT {
                return Some(at);
            }
            let (first, num_ports) = (far.first, far.num_ports);
            let Some(port) = course.next_port(pkt).filter(|port| (1..=num_ports).contains(port)) else {
                return Some(at);
            };
            match self.ports.get_mut((first + u32::from(port)) as usize) {
                Some(near) if near.state >= state::INIT => {
                    near.xmit_pkts += 1;
                    course.advance(u8::try_from((at - first) & 0xFF).unwrap_or(0), pkt);
                    at = near.peer;
                }
                _ => return Some(at),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::PeerEvent;
    use crate::smi::Verdict;
    use crate::{FabricOptions, FabricPlan, NodeId};
    use madplane_shm::drop_reason::DropReason;
    use madplane_topology::{LinkSpeed, LinkWidth, Node, NodeKind, PortRef, Topology};
    use madplane_wire::mad::method;
    use madplane_wire::{SmpMut, smp};
    use std::collections::BTreeMap;

    /// Everything that left the shard, in order.
    #[derive(Debug, Default, PartialEq)]
    struct Record {
        delivered: Vec<(NodeId, u8, Packet)>,
        crossed: Vec<(usize, NodeId, u8, Packet)>,
        dropped: Vec<(NodeId, DropReason)>,
    }

    impl Sink for Record {
        fn deliver(&mut self, node: NodeId, port: u8, pkt: &Packet) -> bool {
            self.delivered.push((node, port, pkt.clone()));
            true
        }
        fn to_shard(&mut self, shard: usize, node: NodeId, port: u8, pkt: &Packet) {
            self.crossed.push((shard, node, port, pkt.clone()));
        }
        fn peer_event(&mut self, _: usize, _: PeerEvent) {}
        fn dropped(&mut self, node: NodeId, reason: DropReason) {
            self.dropped.push((node, reason));
        }
    }

    impl Shard {
        /// What `drive` does, with a full decision at every node.
        fn drive_by_verdicts(
            &mut self,
            mut at: u32,
            mut verdict: Verdict,
            pkt: &mut Packet,
            sink: &mut Record,
        ) {
            while let Some(out) = self.settle(0, at, verdict, pkt, sink) {
                let Some(next) = self.cross(out, pkt, sink) else { return };
                (at, verdict) = (next, self.receive(next, pkt));
            }
        }

        fn counts(&self) -> Vec<(u64, u64)> {
            self.ports.iter().map(|port| (port.xmit_pkts, port.rcv_pkts)).collect()
        }
    }

    /// A xorshift generator.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, limit: u8) -> u8 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            u8::try_from((self.0 >> 32) % u64::from(limit)).unwrap()
        }
    }

    /// Five switches of six ports in a ring of double links, a loopback plug, two hosts; the last nodes belong to another shard.
    fn fabric() -> (FabricPlan, Topology) {
        let mut topology = Topology::default();
        for guid in 1..=5 {
            topology.nodes.push(Node::new(NodeKind::Switch, guid, 6, "switch"));
        }
        for guid in 6..=12 {
            topology.nodes.push(Node::new(NodeKind::Ca, guid, 2, "host"));
        }
        topology.nodes.push(Node::new(NodeKind::Switch, 13, 36, "far"));
        let end = |(node, port)| PortRef { node, port };
        let mut links = vec![((0, 5), (5, 1)), ((2, 5), (6, 1)), ((3, 5), (3, 6)), ((4, 5), (12, 1))];
        for at in 0..5 {
            links.extend([((at, 1), ((at + 1) % 5, 2)), ((at, 3), ((at + 1) % 5, 4))]);
        }
        for (a, b) in links {
            assert!(topology.connect(end(a), end(b), LinkWidth::X4, LinkSpeed::Hdr));
        }
        let plan = FabricPlan::new(&topology, &FabricOptions { shards: 2 }).unwrap();
        assert!(plan.nodes_of(0).contains(&6) && !plan.nodes_of(0).contains(&12), "{:?}", plan.nodes_of(0));
        (plan, topology)
    }

    fn random_smp(dice: &mut Dice) -> Packet {
        let mut pkt = Packet::default();
        // mostly ports that exist
        let mut path =
            [0; 8].map(|_: u8| if dice.below(12) == 0 { dice.below(9) } else { 1 + dice.below(6) });
        let count = dice.below(9);
        let path = &mut path[..usize::from(count)];
        SmpMut::new(&mut pkt.mad).init_directed(method::GET, 0x11, 0, 1, path);
        pkt.mad[smp::field::HOP_POINTER.byte()] = match dice.below(4) {
            0 => dice.below(12),
            _ => 1 + dice.below(count.max(1)),
        };
        if dice.below(2) == 0 {
            smp::field::DIRECTION.set(&mut pkt.mad, 1);
            pkt.mad[3] = method::GET_RESP;
            pkt.mad[smp::RETURN_PATH + 1..][..path.len()].copy_from_slice(path);
        }
        match dice.below(24) {
            0 => pkt.slid = 3,
            1 => pkt.dlid = 3,
            2 => pkt.mad[smp::field::HOP_COUNT.byte()] = 64 + dice.below(100),
            3 => pkt.mad[smp::field::DR_DLID.byte() + usize::from(dice.below(4))] = 0,
            4 => pkt.mad[1] = 0x01,
            _ => {}
        }
        pkt
    }

    #[test]
    fn a_course_ends_as_a_decision_at_every_node_would_end_it() {
        let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let seed = u64::try_from(seed & u128::from(u64::MAX)).unwrap() | 1;
        let mut dice = Dice(seed);
        let (plan, topology) = fabric();
        let (mut quick, mut slow) = (plan.build_shard(&topology, 0), plan.build_shard(&topology, 0));
        let mut ends = BTreeMap::<&str, u32>::new();
        for round in 0..20_000 {
            if round % 50 == 0 {
                // a link of which one end is down: the other shard has not heard of it yet
                let at = usize::from(dice.below(30));
                let state = if quick.ports[at].state >= state::INIT { state::DOWN } else { state::INIT };
                (quick.ports[at].state, slow.ports[at].state) = (state, state);
            }
            let pkt = random_smp(&mut dice);
            let at = u32::from(dice.below(u8::try_from(quick.ports.len()).unwrap()));
            let (mut once, mut again) = (pkt.clone(), pkt.clone());
            let (mut left, mut expected) = (Record::default(), Record::default());
            let (first, second) = (quick.receive(at, &mut once), slow.receive(at, &mut again));
            quick.drive(0, at, first, &mut once, &mut left);
            slow.drive_by_verdicts(at, second, &mut again, &mut expected);
            assert_eq!(left, expected, "seed {seed}, round {round}, at {at}, {pkt:?}");
            assert_eq!(quick.counts(), slow.counts(), "seed {seed}, round {round}, at {at}, {pkt:?}");
            let Record { delivered, crossed, dropped } = left;
            for (what, count) in
                [("delivered", delivered.len()), ("crossed", crossed.len()), ("dropped", dropped.len())]
            {
                *ends.entry(what).or_default() += u32::try_from(count).unwrap();
            }
        }
        assert!(ends.values().all(|count| *count > 100), "each kind of end was met: {ends:?}, seed {seed}");
    }
}
