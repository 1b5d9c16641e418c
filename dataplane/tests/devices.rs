//! Sessions at an RDMA device, over one that is not there: what leaves, what comes back to whom, and what does not.
//!
//! The device does as the kernel does ([`madplane_port::loopback::device`]): upper halves of transaction ids are its own, answers get in only
//! while their request waits. SMPs on an adapter are tried here only: soft-RoCE has no queue pair 0.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use madplane_dataplane::acl::Membership;
use madplane_dataplane::agents::{AgentSpec, RegisterError};
use madplane_engine::{NodeId, PinnedRoute};
use madplane_port::MadMessage;
use madplane_port::device::PortIdentity;
use madplane_port::loopback::device::{Wire, device};
use madplane_port::opened::DeviceEvent;
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::message::{Envelope, flag};
use madplane_shm::status::device_flag;
use madplane_shm::table::RouteEntry;
use madplane_wire::mad::{class, method};
use madplane_wire::smp::attr;
use madplane_wire::{Mad, MadMut, Smp, SmpMut};
use support::*;

/// LIDs of the subnet behind the device.
const LID_OWN: u16 = 0x40;
const LID_FAR: u16 = 0x41;
const PING: u8 = 0x32;
const OUI: u32 = 0x00_1405;

fn identity() -> PortIdentity {
    PortIdentity {
        node_guid: 0xD0,
        state: 4,
        lid: LID_OWN,
        lmc: 0,
        ethernet: false,
        p_keys: vec![0xffff, 0x8001, 0x0001, 0],
    }
}

fn ping_agent(methods: &[u8]) -> AgentSpec {
    AgentSpec { oui: OUI, ..agent(PING, methods) }
}

/// A plane whose worker 0 has a device, and sessions there.
struct Set {
    fleet: Fleet,
    wire: Wire,
    place: (NodeId, u8),
}

impl Set {
    fn new() -> Self {
        Self::with(64, true)
    }

    fn with(depth: usize, has_pair_0: bool) -> Self {
        let mut fleet = Fleet::new(1);
        let (port, wire) = device(depth, has_pair_0).unwrap();
        let place = fleet.open_device(3, Box::new(port), identity());
        Self { fleet, wire, place }
    }

    fn open(&mut self, agents: &[AgentSpec]) -> usize {
        self.fleet.open(self.place, Membership::NONE, agents)
    }

    /// Sends a GMP of the session's agent 0; what left by the device.
    fn sends(&mut self, client: usize, message: MadMessage) -> Vec<MadMessage> {
        self.fleet.send(client, message);
        self.wire.take()
    }

    /// The other end's answer to `request`; whether the device let it in.
    fn answers(&mut self, request: &MadMessage) -> bool {
        let mut answer = *request;
        answer.envelope.slid = request.envelope.dlid;
        answer.envelope.src_qp = request.envelope.dst_qp;
        answer.mad[3] |= method::RESPONSE;
        let let_in = self.wire.deliver(&answer);
        self.fleet.run();
        let_in
    }
}

fn tid(message: &MadMessage) -> u64 {
    Mad::new(&message.mad).tid()
}

fn low(message: &MadMessage) -> u32 {
    u32::try_from(tid(message) & 0xffff_ffff).unwrap()
}

#[test]
fn sessions_that_choose_the_same_transaction_id_each_get_their_own_answer() {
    let mut set = Set::new();
    let clients = [0, 1].map(|_| set.open(&[agent(class::PERF, &[])]));
    let requests = clients.map(|client| {
        let mut request = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 0);
        MadMut::new(&mut request.mad).set_tid(0x77_0000_0005);
        let [left] = set.sends(client, request)[..] else { panic!("one MAD") };
        assert_eq!(
            (left.envelope.dlid, left.envelope.dst_qp, left.envelope.q_key),
            (LID_FAR, 1, 0x8001_0000)
        );
        left
    });
    assert_ne!(low(&requests[0]), low(&requests[1]));
    assert_eq!(requests.map(|request| tid(&request) >> 32), [0x00ab_0000; 2], "the kernel's agent");
    for (client, request) in clients.iter().zip(&requests).rev() {
        assert!(set.answers(request));
        let [got] = set.fleet.take(*client)[..] else { panic!("its answer alone") };
        assert_eq!(tid(&got), u64::from(set.fleet.hi_tid(*client, 0)) << 32 | 5);
        assert_eq!((got.envelope.slid, got.envelope.agent), (LID_FAR, set.fleet.hi_tid(*client, 0)));
    }
    assert_eq!(set.fleet.device_record(3), ([2, 2, 0, 0], 0));
    assert_eq!(set.fleet.counter(Counter::DeviceSent), 2);
    assert_eq!(set.fleet.counter(Counter::DeviceReceived), 2);
    // the fabric has not seen any of this
    assert_eq!((set.fleet.take(0).len(), set.fleet.counter(Counter::DlidRouted)), (0, 0));
}

#[test]
fn requests_from_outside_go_to_whom_they_are_for_and_the_answer_leaves_as_it_is() {
    let mut set = Set::new();
    let server = set.open(&[ping_agent(&[1])]);
    let other = set.open(&[agent(class::PERF, &[1])]);
    assert_eq!(set.wire.agents().len(), 4, "two to send by, one each for these");
    let mut request = set.fleet.gmp(method::GET, PING, LID_OWN, 0);
    request.mad[37..40].copy_from_slice(&[0, 0x14, 0x05]);
    MadMut::new(&mut request.mad).set_tid(0x1234_5678_9abc_def0);
    (request.envelope.slid, request.envelope.src_qp) = (LID_FAR, 1);
    assert!(set.wire.deliver(&request));
    set.fleet.run();
    let [got] = set.fleet.take(server)[..] else { panic!("the server's") };
    assert_eq!((tid(&got), got.envelope.slid), (0x1234_5678_9abc_def0, LID_FAR));
    assert_eq!(set.fleet.take(other).len(), 0);
    let mut answer = got;
    (answer.envelope.dlid, answer.envelope.dst_qp) = (LID_FAR, 1);
    answer.mad[3] |= method::RESPONSE;
    let [left] = set.sends(server, answer)[..] else { panic!("one MAD") };
    assert_eq!(tid(&left), 0x1234_5678_9abc_def0);
    // an OUI of somebody else's does not get in
    request.mad[39] = 6;
    assert!(!set.wire.deliver(&request));
    set.fleet.close(server);
    assert_eq!(set.wire.agents().len(), 3);
}

#[test]
fn what_the_kernel_does_not_register_is_refused_with_its_error_number() {
    let mut set = Set::new();
    let client = set.open(&[agent(class::PERF, &[])]);
    let mut foreign = ping_agent(&[1]);
    foreign.oui = 7;
    for _ in 0..30 {
        foreign.oui += 1;
        assert!(set.fleet.register(client, foreign).is_ok());
    }
    foreign.oui += 1;
    let refused = set.fleet.register(client, foreign).unwrap_err();
    assert_eq!(refused, RegisterError::Kernel { class: PING, errno: 12 });
    assert_eq!(
        refused.to_string(),
        "the kernel does not register class 0x32 at the device: Cannot allocate memory (os error 12)"
    );
    // agents for answers need none of the kernel's
    let second = set.open(&[]);
    assert!(set.fleet.register(second, agent(class::SA, &[])).is_ok());
    // and of two sessions one is told so by the plane itself
    foreign.oui -= 1;
    assert!(matches!(set.fleet.register(second, foreign), Err(RegisterError::Taken { .. })));
}

#[test]
fn an_answer_for_a_session_that_is_closed_is_a_counted_drop() {
    let mut set = Set::new();
    let client = set.open(&[agent(class::PERF, &[])]);
    let request = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 0);
    let [left] = set.sends(client, request)[..] else { panic!("one MAD") };
    set.fleet.close(client);
    let before = set.fleet.drops();
    assert!(set.answers(&left));
    assert_eq!(set.fleet.dropped_since(&before), [DropReason::DeviceUnmatched]);
}

#[test]
fn a_device_that_goes_leaves_its_sessions_there_and_has_their_agents_again_when_it_comes_back() {
    let mut set = Set::new();
    let client = set.open(&[ping_agent(&[1])]);
    for (event, flags) in [
        (DeviceEvent::Down, device_flag::DOWN),
        (DeviceEvent::Up, 0),
        (DeviceEvent::Readdressed, 0),
        (DeviceEvent::Broken, device_flag::BROKEN),
    ] {
        set.wire.happen(event);
        set.fleet.now_ns += 200_000_000;
        set.fleet.run();
        assert_eq!(set.fleet.device_record(3).1, flags, "{event:?}");
    }
    assert!(set.fleet.close_device(3) && set.fleet.counter(Counter::DeviceSent) == 0);
    let before = set.fleet.drops();
    let request = set.fleet.gmp(method::GET, PING, LID_FAR, 0);
    assert_eq!(set.sends(client, request).len(), 0);
    assert_eq!(set.fleet.dropped_since(&before), [DropReason::DeviceDown]);
    // meanwhile somebody registers
    assert!(set.fleet.register(client, agent(class::PERF, &[1])).is_ok());
    let (port, wire) = device(64, true).unwrap();
    assert_eq!(set.fleet.open_device(3, Box::new(port), identity()), set.place);
    let classes: Vec<u8> = wire.agents().iter().map(|spec| spec.class).collect();
    assert_eq!(classes, [0, 0, PING, class::PERF]);
    set.wire = wire;
    assert_eq!(set.sends(client, request).len(), 1);
}

#[test]
fn without_queue_pair_0_there_are_no_smps() {
    let mut set = Set::with(64, false);
    let client = set.open(&[agent(class::PERF, &[])]);
    let refused = set.fleet.register(client, agent(class::SUBN_LID, &[])).unwrap_err();
    assert_eq!(refused, RegisterError::Kernel { class: 1, errno: 93 });
    let before = set.fleet.drops();
    // an agent that only sends may be for either queue pair
    let sender = set.open(&[AgentSpec { qpn: 1, ..AgentSpec::default() }]);
    let request = set.fleet.by_lid(method::GET, LID_FAR, attr::NODE_INFO, 0);
    assert_eq!(set.sends(sender, request).len(), 0);
    assert_eq!(set.fleet.dropped_since(&before), [DropReason::DeviceSmp]);
}

#[test]
fn an_smp_by_lid_for_which_there_is_a_route_leaves_along_it_and_its_answer_comes_back_by_lid() {
    let mut set = Set::new();
    let client = set.open(&[agent(class::SUBN_LID, &[])]);
    let asked = set.fleet.by_lid(method::GET, LID_FAR, attr::PORT_INFO, 1);
    let [left] = set.sends(client, asked)[..] else { panic!("one MAD") };
    assert_eq!((left.mad[1], left.envelope.dlid), (class::SUBN_LID, LID_FAR), "there is no route yet");
    assert!(set.answers(&left));
    assert_eq!(set.fleet.take(client).len(), 1);

    set.fleet.set_route(
        5,
        Some(&RouteEntry { p_key: 0, ..RouteEntry::new(LID_OWN, LID_FAR, &[1, 9, 2]).unwrap() }),
    );
    let [left] = set.sends(client, asked)[..] else { panic!("one MAD") };
    let smp = Smp::new(&left.mad);
    assert_eq!((left.mad[1], left.envelope.dlid), (class::SUBN_DIRECTED, 0xffff));
    assert_eq!((smp.hop_pointer(), smp.hop_count(), &smp.initial_path()[..5]), (0, 3, &[0, 1, 9, 2, 0][..]));
    assert_eq!((smp.dr_slid(), smp.dr_dlid()), (0xffff, 0xffff));
    let mut answer = left;
    MadMut::new(&mut answer.mad).set_method(method::GET_RESP);
    let mut smp = SmpMut::new(&mut answer.mad);
    smp.set_direction(true);
    smp.return_path_mut()[1..4].copy_from_slice(&[1, 4, 7]);
    smp.data_mut().fill(0x66);
    (answer.envelope.slid, answer.envelope.dlid) = (0xffff, 0xffff);
    assert!(set.wire.deliver(&answer));
    set.fleet.run();
    let [got] = set.fleet.take(client)[..] else { panic!("the answer") };
    let mut expected = asked.mad;
    expected[3] = method::GET_RESP;
    expected[8..12].copy_from_slice(&set.fleet.hi_tid(client, 0).to_be_bytes());
    expected[64..128].fill(0x66);
    assert_eq!(got.mad, expected);
    assert_eq!((got.envelope.slid, got.envelope.dlid), (LID_FAR, LID_OWN));
    assert_eq!(set.fleet.route_uses(5), 1);
    assert_eq!(set.fleet.counter(Counter::DevicePinned), 1);
    assert_eq!(set.fleet.device_record(3), ([2, 2, 1, 0], 0));
}

#[test]
fn what_is_no_question_to_another_node_is_not_turned() {
    let mut set = Set::new();
    let client = set.open(&[agent(class::SUBN_LID, &[])]);
    for dlid in [LID_OWN, LID_FAR] {
        let entry = RouteEntry::new(LID_OWN, dlid, &[1, 2]).unwrap();
        set.fleet.set_route(u32::from(dlid - LID_OWN), Some(&RouteEntry { p_key: 0, ..entry }));
    }
    let of = |set: &mut Set, message: MadMessage| set.sends(client, message)[0].mad[1];
    let trap = set.fleet.by_lid(method::TRAP, LID_FAR, attr::NOTICE, 0);
    let own = set.fleet.by_lid(method::GET, LID_OWN, attr::NODE_INFO, 0);
    let answer = set.fleet.by_lid(method::GET_RESP, LID_FAR, attr::NODE_INFO, 0);
    let multicast = set.fleet.by_lid(method::GET, 0xc001, attr::NODE_INFO, 0);
    for message in [trap, own, answer, multicast] {
        assert_eq!(of(&mut set, message), class::SUBN_LID);
    }
    let question = set.fleet.by_lid(method::SET, LID_FAR, attr::PORT_INFO, 1);
    assert_eq!(of(&mut set, question), class::SUBN_DIRECTED);
    // no GMP can go that way
    let gmp = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 0);
    assert_eq!(of(&mut set, gmp), class::PERF);
}

#[test]
fn a_session_with_a_path_of_its_own_takes_that() {
    let mut set = Set::new();
    let client = set.open(&[agent(class::SUBN_LID, &[])]);
    set.fleet
        .set_route(0, Some(&RouteEntry { p_key: 0, ..RouteEntry::new(LID_OWN, LID_FAR, &[1, 2]).unwrap() }));
    let mut own = PinnedRoute { path_len: 3, ..PinnedRoute::default() };
    own.path[..3].copy_from_slice(&[1, 7, 8]);
    set.fleet.bind(client, Some(own));
    let question = set.fleet.by_lid(method::GET, LID_FAR, attr::NODE_INFO, 0);
    let [left] = set.sends(client, question)[..] else { panic!("one MAD") };
    assert_eq!(&Smp::new(&left.mad).initial_path()[..4], [0, 1, 7, 8]);
    assert_eq!(set.fleet.route_uses(0), 0);
    set.fleet.bind(client, None);
    let [left] = set.sends(client, question)[..] else { panic!("one MAD") };
    assert_eq!(&Smp::new(&left.mad).initial_path()[..4], [0, 1, 2, 0]);
    assert_eq!(set.fleet.route_uses(0), 1);
}

#[test]
fn tenants_are_held_to_what_they_may_as_far_as_a_device_can_tell() {
    let mut set = Set::new();
    let mut entry = tenant("blue", 9, &[0x0001]);
    entry.allow_class(class::SA, false);
    assert!(entry.set_nodes(&[0x77]));
    let member = set.fleet.set_tenant(0, &entry);
    let classes = [class::PERF, class::SUBN_LID, class::SUBN_DIRECTED].map(|class| agent(class, &[]));
    let client = set.fleet.open(set.place, member, &classes);
    let before = set.fleet.drops();
    // the port's key is that of a full member, the tenant's is not: the port has the other as well
    let good = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 1);
    let [left] = set.sends(client, good)[..] else { panic!("one MAD") };
    assert_eq!(left.envelope.p_key_index, 2);
    assert!(set.answers(&left));
    assert_eq!(set.fleet.take(client).len(), 0, "it came with a key that the tenant has not");
    let directed = set.fleet.directed(method::GET, &[1, 2], attr::NODE_INFO, 0);
    let sa = set.fleet.gmp(method::GET, class::SA, LID_FAR, 1);
    let foreign_key = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 0);
    for message in [sa, foreign_key, directed] {
        assert_eq!(set.sends(client, message).len(), 0);
    }
    let expected = [
        DropReason::TenantClass,
        DropReason::TenantScope,
        DropReason::TenantPKey,
        DropReason::TenantReceiver,
    ];
    assert_eq!(set.fleet.dropped_since(&before), expected);
}

#[test]
fn acknowledgements_of_an_answer_in_segments_have_the_id_of_their_request() {
    let mut set = Set::new();
    let client = set.open(&[agent(class::SA, &[])]);
    let request = set.fleet.gmp(method::GET_TABLE, class::SA, LID_FAR, 0);
    let [left] = set.sends(client, request)[..] else { panic!("one MAD") };
    let mut segment = left;
    segment.mad[3] = method::GET_TABLE_RESP;
    // version 1, DATA, active and first
    segment.mad[24..27].copy_from_slice(&[1, 1, 3]);
    for _ in 0..3 {
        assert!(set.wire.deliver(&segment));
        set.fleet.run();
        let [got] = set.fleet.take(client)[..] else { panic!("the segment") };
        assert_eq!(low(&got), low(&request));
        let mut ack = got;
        ack.mad[3] = method::GET_TABLE;
        ack.mad[25] = 2;
        (ack.envelope.dlid, ack.envelope.dst_qp) = (LID_FAR, 1);
        let [sent] = set.sends(client, ack)[..] else { panic!("one acknowledgement") };
        assert_eq!(tid(&sent), tid(&left));
    }
    assert_eq!(set.fleet.device_record(3).0[3], 1, "it goes on");
}

#[test]
fn who_asks_what_nobody_answers_is_held_up_until_the_kernel_gives_up() {
    let mut set = Set::with(10_000, true);
    let client = set.open(&[agent(class::PERF, &[])]);
    let before = set.fleet.drops();
    let mut sent = 0;
    // the same question, as often as it takes
    let request = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 0);
    for _ in 0..10 {
        sent += set.sends(client, request).len();
    }
    assert_eq!((sent, set.fleet.dropped_since(&before)), (8, vec![DropReason::DeviceRequests; 2]));
    set.wire.time_out();
    set.fleet.now_ns += 200_000_000;
    set.fleet.run();
    assert_eq!(set.fleet.counter(Counter::DeviceTimedOut), 8);
    assert_eq!(set.fleet.device_record(3).0[3], 0);
    assert_eq!(set.sends(client, request).len(), 1);
}

#[test]
fn what_a_device_does_not_take_is_dropped_and_waits_for_nothing() {
    let mut set = Set::with(4, true);
    let client = set.open(&[agent(class::PERF, &[])]);
    let before = set.fleet.drops();
    for _ in 0..10 {
        let request = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 0);
        set.fleet.push(client, request);
    }
    set.fleet.run();
    assert_eq!(set.wire.take().len(), 4);
    assert_eq!(set.fleet.dropped_since(&before), [DropReason::DeviceFull; 6]);
    assert_eq!(set.fleet.device_record(3), ([4, 0, 0, 4], 0));
}

#[test]
fn on_ethernet_programs_that_know_lids_only_reach_whom_they_name_and_answer_whom_they_hear() {
    let mut set = Set::new();
    assert!(set.fleet.close_device(3));
    let (port, wire) = device(64, false).unwrap();
    set.fleet.open_device(3, Box::new(port), PortIdentity { lid: 0, ethernet: true, ..identity() });
    set.wire = wire;
    let client = set.open(&[ping_agent(&[1])]);
    let gid = |last: u8| {
        let mut gid = [0; 16];
        (gid[0], gid[1], gid[15]) = (0xfe, 0x80, last);
        gid
    };
    let request = set.fleet.gmp(method::GET, PING, 7, 0);
    let [left] = set.sends(client, request)[..] else { panic!("one MAD") };
    let envelope = &left.envelope;
    assert_eq!((envelope.flags, envelope.gid, envelope.gid_index), (flag::GRH, gid(7), 2));
    // an answer comes back with a header of its own and without a LID
    let mut answer = left;
    answer.mad[3] |= method::RESPONSE;
    (answer.envelope.slid, answer.envelope.dlid) = (0, 0);
    assert!(set.wire.deliver(&answer));
    set.fleet.run();
    let got = set.fleet.take(client)[0];
    assert_eq!(
        (got.envelope.slid, got.envelope.flags),
        (7, 0),
        "an answer has a header if the question had one"
    );
    // and so does a request of somebody who was not named
    let mut request = set.fleet.gmp(method::GET, PING, 0, 0);
    request.mad[37..40].copy_from_slice(&[0, 0x14, 0x05]);
    (request.envelope.flags, request.envelope.gid) = (flag::GRH, gid(9));
    assert!(set.wire.deliver(&request));
    set.fleet.run();
    let [got] = set.fleet.take(client)[..] else { panic!("the request") };
    assert_eq!((got.envelope.slid, got.envelope.flags, got.envelope.gid), (0xB000, flag::GRH, gid(9)));
    let mut answer = got;
    answer.mad[3] |= method::RESPONSE;
    answer.envelope = Envelope { dlid: 0xB000, dst_qp: 1, ..Envelope::default() };
    let [left] = set.sends(client, answer)[..] else { panic!("one MAD") };
    assert_eq!((left.envelope.gid, left.envelope.q_key), (gid(9), 0x8001_0000));
    let before = set.fleet.drops();
    let nobody = set.fleet.gmp(method::GET, PING, 8, 0);
    assert_eq!(set.sends(client, nobody).len(), 0);
    assert_eq!(set.fleet.dropped_since(&before), [DropReason::DeviceAddress]);
}

#[test]
fn a_class_on_the_wrong_queue_pair_does_not_leave() {
    let mut set = Set::new();
    let client = set.open(&[agent(class::PERF, &[])]);
    let before = set.fleet.drops();
    let mut gmp = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 0);
    gmp.envelope.dst_qp = 0;
    let mut smp = set.fleet.by_lid(method::GET, LID_FAR, attr::NODE_INFO, 0);
    smp.envelope.dst_qp = 1;
    let mut old = set.fleet.gmp(method::GET, class::PERF, LID_FAR, 0);
    old.mad[0] = 0;
    for message in [gmp, smp, old] {
        assert_eq!(set.sends(client, message).len(), 0);
    }
    let expected = [DropReason::BaseVersion, DropReason::ClassQp, DropReason::ClassQp];
    assert_eq!(set.fleet.dropped_since(&before), expected);
}
