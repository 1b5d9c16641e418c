//! Rings between workers: a hop that leaves a shard goes through one.
//!
//! Two bounded `ringbuf` rings per ordered pair of workers, made before the threads start: one for MADs of the reserved
//! class, so that they never queue behind others, and one for everything else. A full ring drops the MAD with a counter of
//! its own; link-state messages are kept back by the sender and tried again, because they must not be lost.

use std::collections::VecDeque;
use std::sync::Arc;

use madplane_engine::{NodeId, Packet, PeerEvent, right};
use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use crate::sleep::WorkerBell;

/// What crosses from one worker to another.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every item is a MAD; boxing it would allocate")]
pub enum Crossing {
    /// A MAD that arrives at a port of a node of the receiving worker.
    Mad {
        /// The node.
        node: NodeId,
        /// Its port.
        port: u8,
        /// The MAD.
        packet: Packet,
    },
    /// The other end of a link changed.
    Peer(PeerEvent),
}

/// MADs that may be on their way from one worker to another.
pub const MESH_DEPTH: usize = 1024;
/// MADs of the reserved class that may be on their way besides.
pub const RESERVED_DEPTH: usize = 256;

/// One worker's ends of the mesh. Entry `n` leads to or comes from worker `n`; the own entry is `None`.
pub struct MeshEnds {
    out: Vec<Option<HeapProd<Crossing>>>,
    out_reserved: Vec<Option<HeapProd<Crossing>>>,
    kept: Vec<VecDeque<PeerEvent>>,
    into: Vec<Option<HeapCons<Crossing>>>,
    into_reserved: Vec<Option<HeapCons<Crossing>>>,
    /// Wake the other workers.
    bells: Vec<Arc<WorkerBell>>,
    /// Workers that were given something since they were last woken, a bit each.
    given: u64,
}

impl std::fmt::Debug for MeshEnds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeshEnds").field("workers", &self.out.len()).finish_non_exhaustive()
    }
}

/// Makes the rings among `workers` workers.
pub fn mesh(workers: usize) -> Vec<MeshEnds> {
    let mut ends: Vec<MeshEnds> = (0..workers)
        .map(|_| MeshEnds {
            out: (0..workers).map(|_| None).collect(),
            out_reserved: (0..workers).map(|_| None).collect(),
            kept: (0..workers).map(|_| VecDeque::new()).collect(),
            into: (0..workers).map(|_| None).collect(),
            into_reserved: (0..workers).map(|_| None).collect(),
            bells: Vec::new(),
            given: 0,
        })
        .collect();
    for from in 0..workers {
        for to in (0..workers).filter(|to| *to != from) {
            let (producer, consumer) = HeapRb::new(MESH_DEPTH).split();
            ends[from].out[to] = Some(producer);
            ends[to].into[from] = Some(consumer);
            let (producer, consumer) = HeapRb::new(RESERVED_DEPTH).split();
            ends[from].out_reserved[to] = Some(producer);
            ends[to].into_reserved[from] = Some(consumer);
        }
    }
    ends
}

impl MeshEnds {
    /// Has workers that sleep woken by [`MeshEnds::wake_others`]; one bell for each.
    pub fn set_bells(&mut self, bells: Vec<Arc<WorkerBell>>) {
        self.bells = bells;
    }

    /// Wakes the workers that were given something and sleep, each by one system call; returns how many.
    pub fn wake_others(&mut self) -> usize {
        let given = std::mem::take(&mut self.given);
        let others = self.bells.iter().enumerate().filter(|(worker, _)| given >> worker & 1 == 1);
        others.filter(|(_, bell)| bell.call()).count()
    }

    /// Whether another worker has something for this one.
    pub fn is_waiting(&self) -> bool {
        self.into.iter().chain(&self.into_reserved).flatten().any(|ring| !ring.is_empty())
    }

    /// Sends a MAD to `worker`; false if the ring of its class is full.
    pub fn send(&mut self, worker: usize, node: NodeId, port: u8, packet: &Packet) -> bool {
        let reserved = packet.rights & right::RESERVED != 0;
        let rings = if reserved { &mut self.out_reserved } else { &mut self.out };
        let Some(Some(ring)) = rings.get_mut(worker) else { return false };
        self.given |= 1 << worker;
        ring.try_push(Crossing::Mad { node, port, packet: packet.clone() }).is_ok()
    }

    /// Sends a link-state message to `worker`; one that finds the ring full goes with the next [`MeshEnds::retry`].
    pub fn send_peer_event(&mut self, worker: usize, event: PeerEvent) {
        if let Some(kept) = self.kept.get_mut(worker) {
            kept.push_back(event);
        }
        self.retry();
    }

    /// Tries again to send what was kept back.
    pub fn retry(&mut self) {
        for (worker, (kept, ring)) in self.kept.iter_mut().zip(&mut self.out).enumerate() {
            let Some(ring) = ring else { continue };
            if !kept.is_empty() {
                self.given |= 1 << worker;
            }
            while let Some(event) = kept.pop_front() {
                if ring.try_push(Crossing::Peer(event)).is_err() {
                    kept.push_front(event);
                    break;
                }
            }
        }
    }

    /// Whether link-state messages are kept back.
    pub fn has_kept(&self) -> bool {
        self.kept.iter().any(|kept| !kept.is_empty())
    }

    /// Takes the next MAD of the reserved class from `worker`.
    pub fn receive_reserved(&mut self, worker: usize) -> Option<Crossing> {
        self.into_reserved.get_mut(worker)?.as_mut()?.try_pop()
    }

    /// Takes the next other item from `worker`.
    pub fn receive(&mut self, worker: usize) -> Option<Crossing> {
        self.into.get_mut(worker)?.as_mut()?.try_pop()
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_engine::{LinkOffer, PeerEventKind};

    #[test]
    fn every_worker_reaches_every_other_and_not_itself() {
        let mut ends = mesh(3);
        for from in 0..3 {
            for to in 0..3 {
                let sent = ends[from].send(to, 10, 1, &Packet::default());
                assert_eq!(sent, from != to);
                assert_eq!(
                    matches!(ends[to].receive(from), Some(Crossing::Mad { node: 10, port: 1, .. })),
                    sent
                );
            }
        }
        assert!(!ends[0].send(9, 0, 0, &Packet::default()));
    }

    #[test]
    fn a_reserved_mad_overtakes_a_full_ring_of_others() {
        let mut ends = mesh(2);
        while ends[0].send(1, 0, 1, &Packet::default()) {}
        let reserved = Packet { rights: right::RESERVED, tenant: 3, ..Packet::default() };
        for _ in 0..RESERVED_DEPTH {
            assert!(ends[0].send(1, 7, 2, &reserved));
        }
        assert!(!ends[0].send(1, 7, 2, &reserved));
        let first = ends[1].receive_reserved(0);
        assert!(matches!(first, Some(Crossing::Mad { node: 7, port: 2, packet }) if packet == reserved));
        assert!(matches!(ends[1].receive(0), Some(Crossing::Mad { node: 0, .. })));
    }

    #[test]
    fn a_full_ring_refuses_mads_but_keeps_link_states() {
        let mut ends = mesh(2);
        for _ in 0..MESH_DEPTH {
            assert!(ends[0].send(1, 0, 1, &Packet::default()));
        }
        assert!(!ends[0].send(1, 0, 1, &Packet::default()));
        let event = PeerEvent { node: 5, port: 2, kind: PeerEventKind::Offer, offer: LinkOffer::default() };
        ends[0].send_peer_event(1, event);
        assert!(ends[0].has_kept());
        while ends[1].receive(0).is_some() {}
        ends[0].retry();
        assert!(!ends[0].has_kept());
        assert!(matches!(ends[1].receive(0), Some(Crossing::Peer(got)) if got == event));
    }
}
