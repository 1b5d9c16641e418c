//! Links to other planes: their MADs, their news, and links that come and go.
//!
//! Part of [`Worker`], same thread. A link is served after sessions and mesh, a burst per duty cycle; what has come is taken before
//! the link looks at the time, so that a worker that was held up does not take a living peer for dead.

use madplane_engine::NodeId;
use madplane_port::datagram::Datagrams;
use madplane_port::link::Link;
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::process::unix_ns;

use super::Worker;
use crate::links::{PlaneLink, declared};
use crate::orders::Report;

/// A link that a worker is to serve.
pub struct NewLink {
    /// Its number.
    pub number: u16,
    /// Node at this end.
    pub node: NodeId,
    /// Port of the node, without cable in the topology.
    pub port: u8,
    /// GUID of the node.
    pub node_guid: u64,
    /// What it is made on.
    pub transport: Box<dyn Datagrams>,
}

impl std::fmt::Debug for NewLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewLink").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Worker {
    /// Serves every link once; how much there was.
    pub(super) fn poll_links(&mut self, now_ns: u64) -> usize {
        let Self { shard, egress, most, .. } = self;
        let mut work = 0;
        for place in 0..egress.links.len() {
            for _ in 0..*most {
                let Some((node, port, packet)) = egress.links.receive(place) else { break };
                match packet {
                    Some(mut packet) => shard.arrive(now_ns, node, port, &mut packet, egress),
                    None => egress.counts.drop(DropReason::Malformed),
                }
                egress.counts.add(Counter::LinkReceived, 1);
                work += 1;
            }
            work += egress.links.tick(place, now_ns);
            while let Some(event) = egress.links.next_event(place) {
                shard.peer_event(now_ns, event, egress);
                egress.counts.add(Counter::LinkEvents, 1);
                work += 1;
            }
        }
        work
    }

    pub(super) fn open_link(&mut self, new: NewLink) -> Report {
        let NewLink { number, node, port, node_guid, transport } = new;
        if let (Some(sleeper), Some(waker)) = (&self.sleeper, transport.waker())
            && sleeper.watch(waker).is_err()
        {
            return Report::Unknown;
        }
        let Some(offer) = self.shard.attach_external(node, port, number) else {
            if let (Some(sleeper), Some(waker)) = (&self.sleeper, transport.waker()) {
                sleeper.forget(waker);
            }
            return Report::Unknown;
        };
        let link = Link::new(transport, unix_ns(), declared(offer, node_guid, port));
        self.egress.links.add(PlaneLink { number, node, port, link });
        Report::Done(None)
    }

    pub(super) fn close_link(&mut self, number: u16, now_ns: u64) -> Report {
        let Some(end) = self.egress.links.remove(number) else { return Report::Unknown };
        if let (Some(sleeper), Some(waker)) = (&self.sleeper, end.link.waker()) {
            sleeper.forget(waker);
        }
        self.shard.detach_external(now_ns, end.node, end.port, &mut self.egress);
        Report::Unlinked(Box::new(end))
    }
}
