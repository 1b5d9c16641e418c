//! Fuzz bodies of this crate; replayed by ordinary tests and driven by the targets in `bench/fuzz`.

use std::cell::RefCell;
use std::sync::Arc;

use madplane_engine::{FabricOptions, FabricPlan};
use madplane_port::MadMessage;
use madplane_port::session::split;
use madplane_shm::doorbell::Doorbell;
use madplane_shm::header::Incarnation;
use madplane_shm::message::{Envelope, kind};
use madplane_shm::session::{ClientEnds, create_pair, open_pair};
use madplane_shm::status::Status;

use crate::agents::{AgentId, AgentSpec};
use crate::mesh::mesh;
use crate::orders::{Order, OrderDesk, order_rings};
use crate::sessions::Session;
use crate::worker::Worker;

/// A worker with one session, driven without a thread.
struct Bench {
    worker: Worker,
    desk: OrderDesk,
    client: ClientEnds<MadMessage, MadMessage>,
    now_ns: u64,
}

const AGENT: AgentId = AgentId { slot: 0, generation: 1, agent: 0 };

impl Bench {
    fn new() -> Self {
        let topology =
            madplane_topology::from_spec("fat-tree,radix=4,levels=2").expect("a valid specification");
        let plan =
            FabricPlan::new(&topology, &FabricOptions { shards: 1 }).expect("a generated fabric is sound");
        let directory = std::env::temp_dir().join(format!("madplane-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory can be made");
        let status =
            Status::create(&directory.join("status"), Incarnation::default()).expect("there is space");
        let _ = std::fs::remove_dir_all(&directory);
        let (mut desk, order_box) = order_rings(Arc::new(Doorbell::create().expect("a descriptor is left")));
        let ends = mesh(1).pop().expect("one worker was asked for");
        let mut worker = Worker::new(0, plan.build_shard(&topology, 0), ends, order_box, status);
        let (plane, fds) = create_pair("fuzz", 64, false, Incarnation::default()).expect("there is memory");
        let client = open_pair(&fds).expect("a pair just made can be opened");
        let node = u32::try_from(topology.nodes.len() - 1).expect("a small fabric");
        let (rx, tx) = split(plane, Doorbell::create().expect("a descriptor is left"), 64);
        let spec =
            AgentSpec { mgmt_class: 0x81, class_version: 1, method_mask: [!0; 2], ..AgentSpec::default() };
        let session = Session::new(AGENT.slot, AGENT.generation, (node, 1), rx, tx);
        for order in [Order::Open(Box::new(session)), Order::Register { id: AGENT, spec }] {
            assert!(desk.give(order).is_ok(), "the ring is empty");
            worker.poll(0);
            let _ = desk.report();
        }
        Self { worker, desk, client, now_ns: 0 }
    }

    /// Sends one item made of fuzz bytes and looks at what comes back.
    fn round(&mut self, bytes: &[u8]) {
        let mut message = MadMessage::default();
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        message.envelope = Envelope {
            // mostly a proper envelope, so that the MAD behind it is reached
            kind: if byte(0) == 0xff { 0x1234 } else { kind::MAD },
            flags: u16::from(byte(0)) & 1,
            agent: if byte(1) == 0xff { u32::from_le_bytes([byte(2); 4]) } else { AGENT.hi_tid() },
            dlid: u16::from_le_bytes([byte(3), byte(4)]),
            sl: byte(5),
            path_bits: byte(6),
            p_key_index: u16::from(byte(7)),
            dst_qp: u32::from(byte(8)) & 3,
            q_key: if byte(8) & 4 == 0 { 0x8001_0000 } else { u32::from(byte(9)) },
            length: if byte(1) == 0xfe { u32::from(byte(2)) } else { 256 },
            ..Envelope::default()
        };
        let mad = bytes.get(10..).unwrap_or(&[]);
        let length = mad.len().min(256);
        message.mad[..length].copy_from_slice(&mad[..length]);
        let sent = self.client.up.push(&message).is_ok();
        assert!(sent, "the worker empties its rings in every cycle");
        self.now_ns += 1_000_000;
        self.worker.poll(self.now_ns);
        let mut answer = MadMessage::default();
        let mut answers = 0;
        while self.client.down.pop(&mut answer) {
            assert_eq!(answer.envelope.agent, AGENT.hi_tid(), "another agent's MAD");
            assert_eq!(answer.envelope.length, 256);
            answers += 1;
        }
        self.client.down.commit();
        assert!(answers <= 64, "more answers than a ring holds");
        assert!(self.desk.report().is_none(), "a MAD makes no reports");
    }
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// Feeds any bytes to a worker as the slots of a client, 266 bytes a slot, on a fabric that keeps its state from one
/// input to the next. Panics if the worker does, or answers to somebody else.
///
/// # Panics
/// If a claim about the worker does not hold.
pub fn fuzz_slots(input: &[u8]) {
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.get_or_insert_with(Bench::new);
        for slot in input.chunks(266).take(64) {
            bench.round(slot);
        }
    });
}

#[cfg(test)]
mod tests {
    /// A small generator; the seed is in the test.
    fn next(state: &mut u64) -> u8 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        state.to_le_bytes()[3]
    }

    #[test]
    fn any_slots_are_answered_or_dropped_and_never_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..3_000 {
            let mut slots: Vec<u8> = (0..266 * 4).map(|_| next(&mut state)).collect();
            for slot in slots.chunks_mut(266) {
                // a valid common header most of the time: base version, class, class version, method
                if slot[9] & 7 != 0 {
                    let class = [0x01, 0x81, 0x81, 0x04][usize::from(slot[9] >> 6)];
                    slot[8] = u8::from(class == 0x04);
                    let method = 1 + (slot[9] >> 3 & 1);
                    slot[10..14].copy_from_slice(&[1, class, 1, method]);
                    slot[17] &= 7;
                    slot[16] &= 1;
                    slot[26] = 0;
                    slot[27] = 0x10 + (slot[27] & 0x17);
                }
            }
            super::fuzz_slots(&slots);
        }
    }
}
