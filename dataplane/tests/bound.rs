//! Sessions with a path of their own, through workers.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use madplane_dataplane::acl::Membership;
use madplane_engine::{OnBroken, PinnedRoute};
use madplane_port::MadMessage;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{class, method};
use madplane_wire::smp::attr;
use support::*;

fn path(ports: &[u8], on_broken: OnBroken) -> Option<PinnedRoute> {
    let mut route = PinnedRoute { on_broken, ..PinnedRoute::default() };
    route.path[..ports.len()].copy_from_slice(ports);
    route.path_len = u8::try_from(ports.len()).unwrap();
    Some(route)
}

struct Bound {
    fleet: Fleet,
    client: usize,
}

impl Bound {
    fn new(workers: usize) -> Self {
        let mut fleet = Fleet::new(workers);
        let client = fleet.open((A, 1), Membership::NONE, &[agent(0, &[])]);
        Self { fleet, client }
    }

    /// Packets over links 2 and 3 from A's side to B's, and back.
    fn links(&mut self) -> [(u64, u64); 2] {
        [self.fleet.traffic(2), self.fleet.traffic(3)]
    }

    /// Sends: how often it was answered, which of the links moved, what was dropped.
    fn probe(&mut self, mad: MadMessage) -> (usize, [(u64, u64); 2], Vec<DropReason>) {
        let (links, drops) = (self.links(), self.fleet.drops());
        self.fleet.send(self.client, mad);
        let answers = self.fleet.take(self.client).len();
        let dropped = self.fleet.dropped_since(&drops);
        let after = self.links();
        let moved = std::array::from_fn(|at| (after[at].0 - links[at].0, after[at].1 - links[at].1));
        (answers, moved, dropped)
    }

    fn smp(&mut self, lid: u16) -> MadMessage {
        self.fleet.by_lid(method::GET, lid, attr::NODE_INFO, 0)
    }

    fn gmp(&mut self, lid: u16) -> MadMessage {
        self.fleet.gmp(method::GET, class::PERF, lid, 0)
    }
}

const BY_TABLE: [(u64, u64); 2] = [(1, 1), (0, 0)];
const BY_PATH: [(u64, u64); 2] = [(0, 0), (1, 1)];

#[test]
fn everything_but_directed_routes_takes_the_path_of_the_session_and_answers_come_back_by_it() {
    for workers in [1, 2] {
        let mut b = Bound::new(workers);
        for on_broken in [OnBroken::Fallback, OnBroken::Drop] {
            b.fleet.bind(b.client, path(OTHER, on_broken));
            for kind in [Bound::smp, Bound::gmp] {
                let mad = kind(&mut b, LID_B);
                assert_eq!(b.probe(mad), (1, BY_PATH, vec![]), "{workers} workers, {on_broken:?}");
            }
            let mad = b.fleet.directed(method::GET, USUAL, attr::NODE_INFO, 0);
            assert_eq!(b.probe(mad), (1, BY_TABLE, vec![]), "a directed route is its own");
            let mad = b.smp(LID_A);
            assert_eq!(b.probe(mad), (1, [(0, 0); 2], vec![]), "the own node is not reached over a path");
        }
        b.fleet.bind(b.client, None);
        let mad = b.gmp(LID_B);
        assert_eq!(b.probe(mad), (1, BY_TABLE, vec![]), "{workers} workers, unbound");
    }
}

#[test]
fn nobody_else_takes_the_path_and_a_route_of_the_table_counts_less() {
    for workers in [1, 2] {
        let mut b = Bound::new(workers);
        b.fleet.set_route(0, Some(&route(USUAL)));
        b.fleet.bind(b.client, path(OTHER, OnBroken::Drop));
        let mad = b.gmp(LID_B);
        assert_eq!(b.probe(mad), (1, BY_PATH, vec![]));
        b.client = b.fleet.open((A, 1), Membership::NONE, &[agent(0, &[])]);
        b.fleet.set_route(0, None);
        let mad = b.gmp(LID_B);
        assert_eq!(b.probe(mad), (1, BY_TABLE, vec![]));
    }
}

#[test]
fn where_the_path_ends_elsewhere_or_is_broken_it_is_left_or_the_mad_dropped() {
    for workers in [1, 2] {
        let mut b = Bound::new(workers);
        b.fleet.bind(b.client, path(OTHER, OnBroken::Fallback));
        for kind in [Bound::smp, Bound::gmp] {
            // to B, and from there back by LID; the answer by LID
            let mad = kind(&mut b, LID_S2);
            assert_eq!(b.probe(mad), (1, [(0, 1), (1, 0)], vec![]), "{workers} workers");
        }
        b.fleet.bind(b.client, path(OTHER, OnBroken::Drop));
        let mad = b.gmp(LID_S2);
        assert_eq!(b.probe(mad), (0, [(0, 0), (1, 0)], vec![DropReason::RouteBroken]));
        b.fleet.set_link(S1, 3, false);
        for kind in [Bound::smp, Bound::gmp] {
            let mad = kind(&mut b, LID_B);
            assert_eq!(b.probe(mad), (0, [(0, 0); 2], vec![DropReason::RouteBroken]), "{workers} workers");
        }
        b.fleet.bind(b.client, path(OTHER, OnBroken::Fallback));
        for kind in [Bound::smp, Bound::gmp] {
            let mad = kind(&mut b, LID_B);
            assert_eq!(b.probe(mad), (1, BY_TABLE, vec![]), "{workers} workers");
        }
    }
}
