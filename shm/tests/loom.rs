//! The ring under loom: every interleaving, every ordering that the memory model allows.
//!
//! Run by `scripts/loom`, which also takes each fence and ordering away in turn and expects a test here to fail.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use madplane_shm::doorbell::SleepFlag;
use madplane_shm::ring::{Consumer, Producer, RingMemory};

struct Words {
    sequence: Vec<AtomicU64>,
    items: Vec<UnsafeCell<u64>>,
    consumed: AtomicU64,
    sleep: AtomicU64,
    wake_at: AtomicU64,
}

#[derive(Clone)]
struct HeapRing(Arc<Words>);

impl HeapRing {
    fn new(capacity: usize) -> Self {
        Self(Arc::new(Words {
            sequence: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
            items: (0..capacity).map(|_| UnsafeCell::new(0)).collect(),
            consumed: AtomicU64::new(0),
            sleep: AtomicU64::new(0),
            wake_at: AtomicU64::new(0),
        }))
    }

    fn at(&self, index: u64) -> usize {
        usize::try_from(index).unwrap() % self.0.items.len()
    }
}

// SAFETY: loom checks each access to the cells; that they never race is what the tests are about.
unsafe impl Send for HeapRing {}

impl RingMemory for HeapRing {
    type Item = u64;
    fn capacity(&self) -> u64 {
        self.0.items.len() as u64
    }
    fn sequence(&self, index: u64) -> &AtomicU64 {
        &self.0.sequence[self.at(index)]
    }
    fn read(&self, index: u64, item: &mut u64) {
        // SAFETY: loom fails the test if a write may happen at the same time.
        *item = self.0.items[self.at(index)].with(|cell| unsafe { *cell });
    }
    fn write(&self, index: u64, item: &u64) {
        // SAFETY: loom fails the test if any other access may happen at the same time.
        self.0.items[self.at(index)].with_mut(|cell| unsafe { *cell = *item });
    }
    fn consumed(&self) -> &AtomicU64 {
        &self.0.consumed
    }
    fn sleep(&self) -> &AtomicU64 {
        &self.0.sleep
    }
    fn wake_at(&self) -> &AtomicU64 {
        &self.0.wake_at
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

#[test]
fn an_item_is_whole_when_its_sequence_says_so() {
    model(|| {
        let ring = HeapRing::new(2);
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        let sender = thread::spawn(move || {
            producer.push(&11).unwrap();
            producer.push(&12).unwrap();
        });
        let mut item = 0;
        let mut next = 11;
        for _ in 0..3 {
            if consumer.pop(&mut item) {
                assert_eq!(item, next);
                next += 1;
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_slot_is_not_written_before_its_reader_is_done() {
    model(|| {
        let ring = HeapRing::new(2);
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        producer.push(&11).unwrap();
        producer.push(&12).unwrap();
        let sender = thread::spawn(move || {
            let _ = producer.push(&13);
        });
        let mut item = 0;
        assert!(consumer.pop(&mut item));
        assert_eq!(item, 11);
        consumer.commit();
        assert!(consumer.pop(&mut item));
        assert_eq!(item, 12);
        sender.join().unwrap();
    });
}

#[test]
fn a_sleeper_is_rung_or_has_seen_the_item() {
    model(|| {
        let ring = HeapRing::new(2);
        let rung = Arc::new(AtomicBool::new(false));
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        let bell = rung.clone();
        let sender = thread::spawn(move || {
            producer.push(&11).unwrap();
            if producer.wake_due() {
                bell.store(true, Ordering::Relaxed);
            }
        });
        let asleep = consumer.arm();
        sender.join().unwrap();
        assert!(!asleep || rung.load(Ordering::Relaxed), "asleep, an item is there, nobody rang");
    });
}

/// Sends two items and tells whether a doorbell was rung after either.
fn send_two(mut producer: Producer<HeapRing>, bell: &AtomicBool) {
    for item in [11, 12] {
        producer.push(&item).unwrap();
        if producer.wake_due() {
            bell.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn who_waits_for_two_is_rung_or_has_seen_both() {
    model(|| {
        let ring = HeapRing::new(4);
        let rung = Arc::new(AtomicBool::new(false));
        let producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        let bell = rung.clone();
        let sender = thread::spawn(move || send_two(producer, &bell));
        let asleep = consumer.arm_for(2);
        sender.join().unwrap();
        assert!(!asleep || rung.load(Ordering::Relaxed), "asleep, two items are there, nobody rang");
    });
}

#[test]
fn who_gives_up_waiting_for_two_and_waits_for_one_is_rung_or_has_seen_it() {
    model(|| {
        let ring = HeapRing::new(4);
        let rung = Arc::new(AtomicBool::new(false));
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        // the short sleep, which nothing ends but time
        assert!(consumer.arm_for(2));
        let bell = rung.clone();
        let sender = thread::spawn(move || {
            producer.push(&11).unwrap();
            if producer.wake_due() {
                bell.store(true, Ordering::Relaxed);
            }
        });
        let asleep = consumer.arm();
        sender.join().unwrap();
        assert!(!asleep || rung.load(Ordering::Relaxed), "asleep, an item is there, nobody rang");
    });
}

#[test]
fn a_worker_is_rung_by_one_of_two_or_has_seen_what_they_have() {
    model(|| {
        let flag = Arc::new(SleepFlag::default());
        let given = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let rings = Arc::new(AtomicU64::new(0));
        let givers: Vec<_> = (0..2)
            .map(|place| {
                let (flag, given, rings) = (flag.clone(), given.clone(), rings.clone());
                thread::spawn(move || {
                    given[place].store(true, Ordering::Relaxed);
                    if flag.ring_due() {
                        rings.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        flag.raise();
        let seen = given.iter().all(|word| word.load(Ordering::Relaxed));
        for giver in givers {
            giver.join().unwrap();
        }
        let rings = rings.load(Ordering::Relaxed);
        assert!(rings <= 1, "rung more than once for one sleep");
        assert!(seen || rings == 1, "asleep, something is there, nobody rang");
    });
}
