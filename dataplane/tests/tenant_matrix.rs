//! Every pair of memberships against every kind of MAD, route and class: exactly what is allowed passes, and each refusal
//! moves exactly one counter.
//!
//! What is allowed is computed here by plain comparison of partitions, without the code under test.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use madplane_dataplane::acl::Membership;
use madplane_port::MadMessage;
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::table::tenant::{PathPrefix, TenantEntry, service_class};
use madplane_wire::mad::method;
use madplane_wire::smp::attr;
use support::*;

const SEND: u8 = 0x03;
const SENDER: u32 = 3;
const RECEIVER: u32 = 5;
const STRANGER: u32 = 7;

/// A P_Key as people say it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Key {
    partition: u16,
    full: bool,
}

impl Key {
    fn wire(self) -> u16 {
        if self.full { self.partition + 0x8000 } else { self.partition }
    }

    fn meets(self, other: Key) -> bool {
        self.partition != 0 && self.partition == other.partition && (self.full || other.full)
    }
}

const fn key(partition: u16, full: bool) -> Key {
    Key { partition, full }
}

const DEFAULT: Key = key(0x7FFF, true);

/// What a tenant is in the partition that the test is about.
const MEMBERSHIPS: [(&str, &[Key]); 4] =
    [("full", &[key(1, true)]), ("limited", &[key(1, false)]), ("none", &[]), ("default", &[DEFAULT])];

fn wire(keys: &[Key]) -> Vec<u16> {
    keys.iter().map(|key| key.wire()).collect()
}

/// Whether a GMP arrives, by the rules as written.
fn gmp_passes(sender: &[Key], own: Key, receiver: &[Key], port: &[Key]) -> Result<(), DropReason> {
    let mine: Vec<&Key> = sender.iter().filter(|key| key.partition == own.partition).collect();
    if mine.is_empty() {
        return Err(DropReason::TenantPKey);
    }
    let carried = Key { full: own.full && mine.iter().any(|key| key.full), ..own };
    if !port.iter().any(|key| key.meets(carried)) {
        return Err(DropReason::PKey);
    }
    if !receiver.iter().any(|key| key.meets(carried)) {
        return Err(DropReason::TenantReceiver);
    }
    Ok(())
}

/// Which route there is from A to B, over the link that the tables do not take.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pinned {
    No,
    ForAll,
    ForSender,
    ForStranger,
    ForReserved,
}

const ROUTES: [Pinned; 5] =
    [Pinned::No, Pinned::ForAll, Pinned::ForSender, Pinned::ForStranger, Pinned::ForReserved];

impl Pinned {
    fn publish(self, fleet: &mut Fleet) {
        let mut entry = route(OTHER);
        match self {
            Self::No => return fleet.set_route(2, None),
            Self::ForAll => {}
            Self::ForSender => entry.tenant = 4,
            Self::ForStranger => entry.tenant = 8,
            Self::ForReserved => entry.priority = 1,
        }
        fleet.set_route(2, Some(&entry));
    }

    fn serves(self, reserved: bool) -> bool {
        match self {
            Self::No | Self::ForStranger => false,
            Self::ForAll | Self::ForSender => true,
            Self::ForReserved => reserved,
        }
    }
}

/// A fleet with a session of the sender's tenant at A and one of the receiver's at B.
struct Matrix {
    fleet: Fleet,
    sender: usize,
    receiver: usize,
    context: String,
}

impl Matrix {
    fn new(workers: usize) -> Self {
        let mut fleet = Fleet::new(workers);
        let member = |place: u32, id| Membership { tenant: u16::try_from(place + 1).unwrap(), id };
        for (place, id, name) in [(SENDER, 30, "sender"), (RECEIVER, 50, "receiver"), (STRANGER, 70, "other")]
        {
            fleet.set_tenant(place, &tenant(name, id, &[]));
        }
        let sender = fleet.open((A, 1), member(SENDER, 30), &[agent(0x09, &[SEND])]);
        let receiver =
            fleet.open((B, 1), member(RECEIVER, 50), &[agent(0x0A, &[SEND]), agent(0x01, &[method::TRAP])]);
        Self { fleet, sender, receiver, context: String::new() }
    }

    fn set_sender(&mut self, keys: &[Key], reserved: bool, change: impl FnOnce(&mut TenantEntry)) {
        let mut entry = tenant("sender", 30, &wire(keys));
        entry.class = if reserved { service_class::RESERVED } else { service_class::BULK };
        change(&mut entry);
        self.fleet.set_tenant(SENDER, &entry);
    }

    /// Packets that S1 has sent over links 2 and 3.
    fn links(&mut self) -> (u64, u64) {
        (self.fleet.traffic(2).0, self.fleet.traffic(3).0)
    }

    /// Sends, and holds what arrived and what was counted against what is expected.
    fn expect(&mut self, from: usize, to: usize, mad: MadMessage, expected: Result<(), DropReason>) {
        let before = self.fleet.drops();
        self.fleet.send(from, mad);
        let arrived = self.fleet.take(to).len();
        let dropped = self.fleet.dropped_since(&before);
        let (wanted, reasons) = match expected {
            Ok(()) => (1, vec![]),
            Err(reason) => (0, vec![reason]),
        };
        assert_eq!((arrived, dropped), (wanted, reasons), "{}", self.context);
        let told = self.fleet.told();
        let about_keys =
            matches!(expected, Err(DropReason::PKey | DropReason::TenantPKey | DropReason::TenantReceiver));
        assert_eq!(told.len(), usize::from(about_keys), "{}: {told:?}", self.context);
        assert!(told.iter().all(|line| line.starts_with("P_Key mismatch (0x")), "{told:?}");
    }

    /// [`Matrix::expect`] from A to B, where what arrives has to have taken the pinned link or the other.
    fn expect_by(&mut self, to: usize, mad: MadMessage, expected: Result<(), DropReason>, pinned: bool) {
        let before = self.links();
        let sender = self.sender;
        self.expect(sender, to, mad, expected);
        let after = self.links();
        let moved = (after.0 - before.0, after.1 - before.1);
        if expected.is_ok() {
            assert_eq!(moved, if pinned { (0, 1) } else { (1, 0) }, "{}", self.context);
        }
        if expected == Err(DropReason::TenantPKey) {
            assert_eq!(moved, (0, 0), "{}", self.context);
        }
    }

    /// All kinds of GMP with the P_Key at `index` of the ports' tables.
    fn gmps(&mut self, index: u16, tables: [[Key; 2]; 2], members: [&[Key]; 2], pinned: bool) {
        let at = usize::from(index);
        let there = gmp_passes(members[0], tables[0][at], members[1], &tables[1]);
        let back = gmp_passes(members[1], tables[1][at], members[0], &tables[0]);
        let (sender, receiver) = (self.sender, self.receiver);
        let request = self.fleet.gmp(SEND, 0x0A, LID_B, index);
        self.expect_by(receiver, request, there, pinned);
        let request = self.fleet.gmp(SEND, 0x09, LID_A, index);
        self.expect(receiver, sender, request, back);
        let mut answer = self.fleet.gmp(method::GET | method::RESPONSE, 0x09, LID_A, index);
        answer.mad[8..12].copy_from_slice(&self.fleet.hi_tid(sender, 0).to_be_bytes());
        self.expect(receiver, sender, answer, back);
    }

    /// All kinds of SMP, with and without the right to Get and to Set.
    fn smps(&mut self, get: bool, set: bool, keys: [u16; 2], pinned: bool) {
        let (sender, receiver) = (self.sender, self.receiver);
        let may_get = if get { Ok(()) } else { Err(DropReason::TenantSmpGet) };
        let may_set = if set { Ok(()) } else { Err(DropReason::TenantSmpSet) };
        let fill = |mut message: MadMessage| {
            for (place, key) in message.mad[64..].chunks_exact_mut(2).zip(keys) {
                place.copy_from_slice(&key.to_be_bytes());
            }
            message
        };
        let ask = self.fleet.by_lid(method::GET, LID_B, attr::NODE_INFO, 0);
        self.expect_by(sender, ask, may_get, pinned);
        let write = fill(self.fleet.by_lid(method::SET, LID_B, attr::PKEY_TABLE, 0));
        self.expect_by(sender, write, may_set, pinned);
        let trap = self.fleet.by_lid(method::TRAP, LID_B, attr::NOTICE, 0);
        self.expect_by(receiver, trap, may_set, pinned);
        let ask = self.fleet.directed(method::GET, USUAL, attr::NODE_INFO, 0);
        self.expect_by(sender, ask, may_get, false);
        let write = fill(self.fleet.directed(method::SET, OTHER, attr::PKEY_TABLE, 0));
        self.expect_by(sender, write, may_set, true);
    }
}

fn every_pair(workers: usize) {
    let mut m = Matrix::new(workers);
    let mut probes = 0;
    for (a_full, b_full) in [(true, true), (true, false), (false, true), (false, false)] {
        let tables = [[DEFAULT, key(1, a_full)], [DEFAULT, key(1, b_full)]];
        m.fleet.set_p_keys(&[], &wire(&tables[0]));
        m.fleet.set_p_keys(USUAL, &wire(&tables[1]));
        for (sender_name, sender) in MEMBERSHIPS {
            for (receiver_name, receiver) in MEMBERSHIPS {
                m.fleet.set_tenant(RECEIVER, &tenant("receiver", 50, &wire(receiver)));
                for reserved in [false, true] {
                    m.set_sender(sender, reserved, |_| {});
                    for pinned in ROUTES {
                        pinned.publish(&mut m.fleet);
                        let serves = pinned.serves(reserved);
                        for index in [0, 1] {
                            m.context = format!(
                                "{workers} workers, ports {a_full}/{b_full}, {sender_name} to {receiver_name}, \
                                 index {index}, reserved {reserved}, {pinned:?}"
                            );
                            m.gmps(index, tables, [sender, receiver], serves);
                            probes += 3;
                        }
                        for (get, set) in [(true, true), (true, false), (false, true), (false, false)] {
                            m.set_sender(sender, reserved, |entry| {
                                entry.rights = u8::from(get) | u8::from(set) << 1;
                            });
                            m.context = format!(
                                "{workers} workers, {sender_name} to {receiver_name}, get {get} set {set}, \
                                 reserved {reserved}, {pinned:?}"
                            );
                            m.smps(get, set, [tables[1][0].wire(), tables[1][1].wire()], serves);
                            probes += 5;
                        }
                        m.set_sender(sender, reserved, |_| {});
                    }
                }
            }
        }
    }
    assert_eq!(probes, 4 * 16 * 2 * 5 * (2 * 3 + 4 * 5));
}

#[test]
fn every_pair_of_memberships_with_one_worker() {
    every_pair(1);
}

#[test]
fn every_pair_of_memberships_with_two_workers() {
    every_pair(2);
}

#[test]
fn each_refusal_of_the_acl_moves_its_own_counter() {
    for workers in [1, 2] {
        let mut m = Matrix::new(workers);
        let sender = m.sender;
        m.context = format!("{workers} workers");
        m.fleet.set_tenant(RECEIVER, &tenant("receiver", 50, &[0xFFFF]));
        let gmp = |m: &mut Matrix| m.fleet.gmp(SEND, 0x0A, LID_B, 0);
        let receiver = m.receiver;

        m.set_sender(&[DEFAULT], false, |entry| entry.allow_class(0x0A, false));
        let mad = gmp(&mut m);
        m.expect(sender, receiver, mad, Err(DropReason::TenantClass));

        m.set_sender(&[DEFAULT], false, |entry| (entry.rate, entry.burst) = (1, 2));
        for expected in [Ok(()), Ok(()), Err(DropReason::TenantRate), Err(DropReason::TenantRate)] {
            let mad = gmp(&mut m);
            m.expect(sender, receiver, mad, expected);
        }
        m.fleet.now_ns += 1_000_000_000;
        let mad = gmp(&mut m);
        m.expect(sender, receiver, mad, Ok(()));

        // a node of its own, by whatever way; and a path
        m.set_sender(&[], false, |entry| {
            assert!(entry.set_nodes(&[GUIDS[S2 as usize]]));
            assert!(entry.set_prefixes(&[PathPrefix::new(OTHER).unwrap()]));
        });
        let refused = Err(DropReason::TenantScope);
        let cases: [(&[u8], Result<(), DropReason>); 5] =
            [(&[1], refused), (&[1, 2], Ok(())), (&[1, 3], Ok(())), (USUAL, refused), (OTHER, Ok(()))];
        for (path, expected) in cases {
            for method in [method::GET, method::SET] {
                let mad = m.fleet.directed(method, path, attr::SWITCH_INFO, 1);
                m.expect(sender, sender, mad, expected);
            }
        }
        for (lid, expected) in [(LID_S2, Ok(())), (LID_S1, refused), (LID_B, refused), (LID_A, refused)] {
            let mad = m.fleet.by_lid(method::GET, lid, attr::NODE_INFO, 0);
            m.expect(sender, sender, mad, expected);
        }
        // what the own node says of itself is for everybody
        let mad = m.fleet.directed(method::GET, &[], attr::NODE_INFO, 0);
        m.expect(sender, sender, mad, Ok(()));

        m.fleet.table.clear_tenant(SENDER);
        m.fleet.publish();
        let mad = gmp(&mut m);
        m.expect(sender, receiver, mad, Err(DropReason::TenantGone));
        // another tenant at the same place is not the sender's
        m.fleet.set_tenant(SENDER, &tenant("sender", 31, &[0xFFFF]));
        let mad = gmp(&mut m);
        m.expect(sender, receiver, mad, Err(DropReason::TenantGone));
    }
}

#[test]
fn stages_count_what_they_handle() {
    let mut m = Matrix::new(1);
    m.fleet.set_tenant(RECEIVER, &tenant("receiver", 50, &[0xFFFF]));
    m.set_sender(&[DEFAULT], true, |_| {});
    let all = [
        Counter::ClassifyAccepted,
        Counter::AclChecked,
        Counter::DlidRouted,
        Counter::Sl2vlChecked,
        Counter::PKeyChecked,
        Counter::DrTableLooked,
        Counter::ReservedReceived,
    ];
    let moved = |m: &mut Matrix, client: usize, mad: MadMessage| {
        let before = all.map(|counter| m.fleet.counter(counter));
        m.fleet.send(client, mad);
        let after = all.map(|counter| m.fleet.counter(counter));
        std::array::from_fn::<u64, 7, _>(|at| after[at] - before[at])
    };
    let sender = m.sender;
    // three links by LID: an adapter and two switches look at their maps
    let mad = m.fleet.gmp(SEND, 0x0A, LID_B, 0);
    assert_eq!(moved(&mut m, sender, mad), [1, 1, 3, 3, 1, 0, 1]);
    let mad = m.fleet.gmp(SEND, 0x0A, LID_B, 0);
    m.fleet.set_route(0, Some(&route(OTHER)));
    assert_eq!(moved(&mut m, sender, mad), [1, 1, 0, 0, 1, 1, 1], "pinned");
    let mad = m.fleet.directed(method::GET, USUAL, attr::NODE_INFO, 0);
    assert_eq!(moved(&mut m, sender, mad), [1, 1, 0, 0, 0, 0, 1], "directed");
    let mad = m.fleet.directed(method::GET, USUAL, attr::NODE_INFO, 0);
    assert_eq!(moved(&mut m, 0, mad), [1, 0, 0, 0, 0, 0, 0], "nobody's");
}
