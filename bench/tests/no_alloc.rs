//! A worker allocates nothing per MAD.
#![forbid(unsafe_code)]

use madplane_bench::count_alloc::{CountingAllocator, allocations};
use madplane_bench::fabrics::{Fabric, RING};
use madplane_bench::load::Query;
use madplane_bench::solo::{Solo, envelope};
use madplane_client::MadMessage;
use madplane_dataplane::acl::Acl;
use madplane_dataplane::agents::AgentId;
use madplane_dataplane::devices::{DeviceEnd, Devices};
use madplane_dataplane::egress::Egress;
use madplane_dataplane::mesh::mesh;
use madplane_dataplane::notices::notice_ring;
use madplane_engine::{FabricOptions, FabricPlan, Packet};
use madplane_port::device::PortIdentity;
use madplane_port::loopback::device::device;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::smp::attr;
use madplane_wire::{Mad, MadMut, Smp, SmpMut, mad};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const PERMISSIVE: u16 = 0xFFFF;
const HOST_LID: u16 = 7;
const COUNT: u32 = 10_000;

/// Sends `message` and checks that its answer has status 0.
fn ask(solo: &mut Solo, message: &MadMessage) {
    let answer = solo.ask(message).expect("an answer comes at once");
    let view = Mad::new(&answer.mad);
    assert_eq!((view.method(), view.status() & 0x7FFF), (mad::METHOD_GET_RESP, 0));
}

/// What `body` allocates, per call, after a few calls to warm up.
fn allocated(mut body: impl FnMut(u32)) -> u64 {
    for number in 0..100 {
        body(number);
    }
    let before = allocations();
    for number in 0..COUNT {
        body(number);
    }
    allocations() - before
}

fn message(agent: u32, dlid: u16, dst_qp: u32, q_key: u32) -> MadMessage {
    MadMessage { envelope: envelope(agent, dlid, dst_qp, q_key), ..MadMessage::default() }
}

/// Sets LID and state of our own port by a directed Set(PortInfo) without a hop; state 0 changes none.
fn bring_up(solo: &mut Solo, agent: u32, tid: u64, state: u8) {
    let mut set = message(agent, PERMISSIVE, 0, 0);
    SmpMut::new(&mut set.mad).init_directed(mad::METHOD_GET, attr::PORT_INFO, 1, 2 * tid, &[]);
    let info = *Smp::new(&solo.ask(&set).expect("PortInfo of our own port").mad).data();
    SmpMut::new(&mut set.mad).init_directed(mad::METHOD_SET, attr::PORT_INFO, 1, 2 * tid + 1, &[]);
    let mut smp = SmpMut::new(&mut set.mad);
    let data = smp.data_mut();
    *data = info;
    // LID and MasterSMLID; the state in the low half of byte 32; no change of the physical state in byte 33
    data[16..18].copy_from_slice(&HOST_LID.to_be_bytes());
    data[18..20].copy_from_slice(&HOST_LID.to_be_bytes());
    data[32] = (data[32] & 0xF0) | state;
    data[33] &= 0x0F;
    let answer = solo.ask(&set).expect("an answer to the Set");
    let data = Smp::new(&answer.mad).data();
    assert_eq!(Mad::new(&answer.mad).status() & 0x7FFF, 0, "Set(PortInfo) with state {state}");
    assert_eq!(data[16..18], HOST_LID.to_be_bytes(), "the LID is set");
    assert!(state == 0 || data[32] & 0x0F == state, "the state is {state}");
}

#[test]
fn no_mad_makes_a_worker_allocate() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations(), before + 1, "the counter counts");

    let fabric = Fabric::from_spec(RING).unwrap();
    let mut solo = Solo::build(&fabric).unwrap();
    let directed = solo.register(mad::CLASS_SUBN_DIRECTED, 0).unwrap();
    let by_lid = solo.register(mad::CLASS_SUBN_LID, 0).unwrap();
    let performance = solo.register(mad::CLASS_PERF, 1).unwrap();

    for hops in [0, 1, 2, 4, 8, 12] {
        let mut query = Query::new(&fabric.route(hops).unwrap(), directed);
        for depth in [1, 32, 500] {
            solo.stream(&mut query, 1000, depth).unwrap();
            let before = allocations();
            // the pace of a stream is kept in a histogram: made once, before anything is counted per MAD
            solo.stream(&mut query, 1024, depth).unwrap();
            let short = allocations() - before;
            let before = allocations();
            solo.stream(&mut query, 1024 + COUNT, depth).unwrap();
            let long = allocations() - before;
            assert_eq!(long, short, "directed route of {hops} hops, {depth} in the rings");
        }
    }

    // a LID for our own port, then ARMED and ACTIVE, as a subnet manager does
    for (tid, state) in [(1, 0), (2, 3), (3, 4)] {
        bring_up(&mut solo, directed, tid, state);
    }

    let mut get = message(by_lid, HOST_LID, 0, 0);
    SmpMut::new(&mut get.mad).init_lid_routed(mad::METHOD_GET, attr::NODE_DESC, 0, 0);
    let smps = allocated(|number| {
        MadMut::new(&mut get.mad).set_tid(u64::from(number));
        ask(&mut solo, &get);
    });
    assert_eq!(smps, 0, "SMPs by LID");

    let mut counters = message(performance, HOST_LID, 1, 0x8001_0000);
    MadMut::new(&mut counters.mad).init(mad::CLASS_PERF, 1, mad::METHOD_GET, 0x0012, 0, 0);
    // PortSelect
    counters.mad[64 + 1] = 1;
    let gets = allocated(|number| {
        MadMut::new(&mut counters.mad).set_tid(u64::from(number));
        ask(&mut solo, &counters);
    });
    assert_eq!(gets, 0, "PortCounters");

    let mut lost = message(directed, PERMISSIVE, 0, 0);
    SmpMut::new(&mut lost.mad).init_directed(mad::METHOD_GET, attr::NODE_INFO, 0, 0, &[1, 200]);
    let drops = allocated(|number| {
        MadMut::new(&mut lost.mad).set_tid(u64::from(number));
        assert!(solo.ask(&lost).is_none(), "there is no port 200");
    });
    assert_eq!(drops, 0, "MADs that are dropped");
    assert_eq!(by_a_device(), 0, "requests by a device and their answers");
}

/// What a worker allocates for requests that leave by a device and their answers, that of somebody else's included.
fn by_a_device() -> u64 {
    let topology = madplane_topology::from_spec(RING.trim_start_matches("builtin:")).expect("a ring");
    let plan = FabricPlan::new(&topology, &FabricOptions { shards: 1 }).expect("one shard");
    let shard = plan.build_shard(&topology, 0);
    let mut egress = Egress::new(mesh(1).remove(0), Acl::default(), notice_ring().0);
    let (port, wire) = device(64, true).expect("a descriptor");
    let identity = PortIdentity { state: 4, lid: 1, p_keys: vec![0xffff], ..PortIdentity::default() };
    let mut devices = Devices::default();
    let spec = "umad:loop".parse().expect("a device");
    let end = DeviceEnd::new(0, &spec, Box::new(port), identity).expect("two agents");
    let (node, _) = end.place();
    devices.add(end);
    let mut packet = Packet { dst_qp: 1, dlid: 2, ..Packet::default() };
    MadMut::new(&mut packet.mad).init(mad::CLASS_PERF, 1, mad::METHOD_GET, 0x0012, 0, 0);
    let request = packet.mad;
    let id = AgentId { slot: 0, generation: 1, agent: 0 };
    let mut counted = 0;
    for number in 0..COUNT {
        packet.mad = request;
        MadMut::new(&mut packet.mad).set_tid(u64::from(number));
        let now_ns = u64::from(number) * 100_000;
        let before = allocations();
        let end = devices.at(node).expect("it was added");
        end.send(id, &mut packet, now_ns, &shard, &mut egress).expect("room for one");
        end.give(&mut egress.counts);
        counted += allocations() - before;
        let mut answer = wire.take().remove(0);
        answer.mad[3] = mad::METHOD_GET_RESP;
        assert!(wire.deliver(&answer));
        let before = allocations();
        assert!(devices.poll(32, now_ns, &mut egress) > 0);
        counted += allocations() - before;
    }
    // nobody has a session here
    assert_eq!(egress.counts.drops(DropReason::DeviceUnmatched), u64::from(COUNT));
    counted
}
