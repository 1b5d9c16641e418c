//! A pair of segments between a client and the plane: `up` is written by the client, `down` by the plane.
//!
//! Both have the same shape: header, the two consumer words for the *other* ring, slots from the second page on. The plane
//! creates both, seals them, writes the headers and hands the descriptors over; from then on each has one writer.
//! The same pair carries commands and events between control and the plane, with another item type.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use crate::header::{HeaderError, Incarnation, SegmentHeader, SegmentKind};
use crate::map::{self, Mapping};
use crate::ring::{Consumer, Producer, SLOT_BYTES, SharedRing};

/// Offset of the consumer's index (for the opposite ring), in both segments.
pub const CONSUMED_AT: usize = 128;
/// Offset of the consumer's sleep count (for the opposite ring), in both segments. The position at which it wants to be
/// woken follows.
pub const SLEEP_AT: usize = 256;
/// Offset of the first slot.
pub const SLOTS_AT: usize = 4096;
/// Slots of a ring unless configured otherwise.
pub const DEFAULT_SLOTS: u64 = 1024;
/// Most slots of a ring.
pub const MAX_SLOTS: u64 = 65_536;

/// Why a pair could not be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// A system call failed.
    #[error("cannot map session memory")]
    Io(#[from] io::Error),
    /// A segment is not what it should be.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Slot count is not a power of two within the limits, or does not fit the mapping.
    #[error("session ring of {0} slots is not possible")]
    Slots(u64),
}

/// Producer end of a ring in shared memory.
pub type SharedProducer<T> = Producer<SharedRing<T>>;
/// Consumer end of a ring in shared memory.
pub type SharedConsumer<T> = Consumer<SharedRing<T>>;

/// The plane's ends: takes `Up` items, gives `Down` items.
#[derive(Debug)]
pub struct PlaneEnds<Up, Down> {
    /// Takes what the client sends.
    pub up: SharedConsumer<Up>,
    /// Gives to the client.
    pub down: SharedProducer<Down>,
}

/// The client's ends: gives `Up` items, takes `Down` items.
#[derive(Debug)]
pub struct ClientEnds<Up, Down> {
    /// Gives to the plane.
    pub up: SharedProducer<Up>,
    /// Takes what the plane sends.
    pub down: SharedConsumer<Down>,
}

/// Descriptors of a pair, as the client receives them.
#[derive(Debug)]
pub struct PairFds {
    /// Segment that the client writes.
    pub up: OwnedFd,
    /// Segment that the plane writes; sealed against writable mappings.
    pub down: OwnedFd,
}

/// Bytes of one segment of a pair with rings of `slots` slots, in whole pages.
pub fn pair_bytes(slots: u64) -> u64 {
    (SLOTS_AT as u64 + slots * SLOT_BYTES as u64).next_multiple_of(4096)
}

/// Creates a pair with rings of `slots` slots each; returns the plane's ends and the descriptors for the client.
///
/// `huge` asks for huge pages and fails if there are none.
///
/// # Errors
/// [`PairError::Slots`] for an impossible size, [`PairError::Io`] when memory or descriptors run out.
pub fn create_pair<Up, Down>(
    name: &str,
    slots: u64,
    huge: bool,
    writer: Incarnation,
) -> Result<(PlaneEnds<Up, Down>, PairFds), PairError>
where
    Up: FromBytes + IntoBytes,
    Down: FromBytes + IntoBytes,
{
    if !slots.is_power_of_two() || !(2..=MAX_SLOTS).contains(&slots) {
        return Err(PairError::Slots(slots));
    }
    let bytes = SLOTS_AT + usize::try_from(slots).map_err(|_| PairError::Slots(slots))? * SLOT_BYTES;
    let (up_fd, up_length) = map::create_memfd(&format!("{name}.up"), bytes, huge)?;
    let (down_fd, down_length) = map::create_memfd(&format!("{name}.down"), bytes, huge)?;
    {
        let up = Mapping::writable(&up_fd)?;
        publish(&up, SegmentKind::Up, up_length, slots, writer);
    }
    let up = Arc::new(Mapping::read_only(&up_fd)?);
    let down = Arc::new(Mapping::writable(&down_fd)?);
    publish(&down, SegmentKind::Down, down_length, slots, writer);
    map::seal_future_writes(&down_fd)?;
    let ends = PlaneEnds {
        up: Consumer::new(ring(&up, slots, &down).ok_or(PairError::Slots(slots))?),
        down: Producer::new(ring(&down, slots, &up).ok_or(PairError::Slots(slots))?),
    };
    Ok((ends, PairFds { up: up_fd, down: down_fd }))
}

fn publish(mapping: &Mapping, kind: SegmentKind, length: usize, slots: u64, writer: Incarnation) {
    let header = mapping.atomics::<SegmentHeader>(0).expect("a mapping has at least one page");
    header.publish(kind, length as u64, slots, writer);
}

fn ring<T>(producer: &Arc<Mapping>, slots: u64, consumer: &Arc<Mapping>) -> Option<SharedRing<T>> {
    SharedRing::new(producer.clone(), SLOTS_AT, slots, consumer.clone(), CONSUMED_AT, SLEEP_AT)
}

/// Opens a pair as its client.
///
/// # Errors
/// [`PairError::Header`] when a segment is of another version or shape.
pub fn open_pair<Up, Down>(fds: &PairFds) -> Result<ClientEnds<Up, Down>, PairError>
where
    Up: FromBytes + IntoBytes,
    Down: FromBytes + IntoBytes,
{
    let up = Arc::new(Mapping::writable(fds.up.as_fd())?);
    let down = Arc::new(Mapping::read_only(fds.down.as_fd())?);
    let up_slots = checked_slots(&up, SegmentKind::Up)?;
    let down_slots = checked_slots(&down, SegmentKind::Down)?;
    Ok(ClientEnds {
        up: Producer::new(ring(&up, up_slots, &down).ok_or(PairError::Slots(up_slots))?),
        down: Consumer::new(ring(&down, down_slots, &up).ok_or(PairError::Slots(down_slots))?),
    })
}

fn checked_slots(mapping: &Mapping, kind: SegmentKind) -> Result<u64, PairError> {
    let header = mapping.atomics::<SegmentHeader>(0).ok_or(HeaderError::NotASegment)?;
    header.check(kind, mapping.len() as u64)?;
    Ok(header.slots())
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests {
    use super::*;
    use crate::message::MadMessage;
    use crate::sync::{AtomicU64, Ordering};

    type Plane = PlaneEnds<MadMessage, MadMessage>;
    type Client = ClientEnds<MadMessage, MadMessage>;

    fn pair(slots: u64) -> (Plane, Client, PairFds) {
        let (plane, fds) = create_pair("test", slots, false, Incarnation::default()).unwrap();
        let client = open_pair(&fds).unwrap();
        (plane, client, fds)
    }

    fn numbered(number: u8) -> MadMessage {
        let mut message = MadMessage { mad: [number; 256], ..MadMessage::default() };
        message.envelope.agent = u32::from(number);
        message
    }

    #[test]
    fn items_arrive_in_order_and_whole_over_many_laps() {
        let (mut plane, mut client, _fds) = pair(4);
        let mut got = MadMessage::default();
        for number in 0..=255u8 {
            client.up.push(&numbered(number)).unwrap();
            assert!(plane.up.pop(&mut got));
            assert_eq!(got, numbered(number));
            plane.up.commit();
            plane.down.push(&got).unwrap();
            assert!(client.down.pop(&mut got));
            client.down.commit();
        }
        assert!(!plane.up.pop(&mut got));
    }

    #[test]
    fn a_full_ring_refuses_and_keeps_what_it_has() {
        let (mut plane, mut client, _fds) = pair(4);
        for number in 0..4 {
            client.up.push(&numbered(number)).unwrap();
        }
        assert!(client.up.push(&numbered(9)).is_err());
        let mut got = MadMessage::default();
        assert!(plane.up.pop(&mut got));
        plane.up.commit();
        client.up.push(&numbered(4)).unwrap();
        for number in 1..5 {
            assert!(plane.up.pop(&mut got));
            assert_eq!(got, numbered(number));
        }
    }

    #[test]
    fn a_consumer_index_that_cannot_be_true_leaves_the_ring_full() {
        let (mut plane, _client, fds) = pair(4);
        for number in 0..4 {
            plane.down.push(&numbered(number)).unwrap();
        }
        let up = Mapping::writable(&fds.up).unwrap();
        for lie in [5, 1_000_000, u64::MAX] {
            up.atomics::<AtomicU64>(CONSUMED_AT).unwrap().store(lie, Ordering::Relaxed);
            assert!(plane.down.push(&numbered(9)).is_err(), "claimed {lie}");
        }
    }

    #[test]
    fn scribbled_sequence_words_stall_only_the_scribbler() {
        let (mut plane, mut client, fds) = pair(4);
        client.up.push(&numbered(1)).unwrap();
        let up = Mapping::writable(&fds.up).unwrap();
        for slot in 0..4 {
            let word = up.atomics::<AtomicU64>(SLOTS_AT + slot * SLOT_BYTES).unwrap();
            word.store(u64::MAX, Ordering::Relaxed);
        }
        let mut got = MadMessage::default();
        assert!(!plane.up.pop(&mut got));
    }

    #[test]
    fn a_sleeper_is_rung_once_per_sleep() {
        let (mut plane, mut client, _fds) = pair(4);
        plane.down.push(&numbered(1)).unwrap();
        assert!(!plane.down.wake_due(), "nobody sleeps");
        assert!(!client.down.arm(), "an item is there");
        let mut got = MadMessage::default();
        assert!(client.down.pop(&mut got));
        assert!(client.down.arm());
        assert!(client.down.arm(), "arming again is a new sleep");
        plane.down.push(&numbered(2)).unwrap();
        assert!(plane.down.wake_due());
        assert!(!plane.down.wake_due());
        client.down.disarm();
        assert!(!plane.down.wake_due());
    }

    #[test]
    fn a_moderated_sleeper_is_rung_by_the_item_it_waits_for_and_not_before() {
        let (mut plane, mut client, _fds) = pair(64);
        let mut got = MadMessage::default();
        for (waits_for, ringing) in [(1, 1), (3, 3), (32, 32), (1000, 32), (0, 1)] {
            assert!(plane.up.arm_for(waits_for));
            for sent in 1..=ringing {
                client.up.push(&numbered(1)).unwrap();
                assert_eq!(client.up.wake_due(), sent == ringing, "{sent} of {waits_for}");
            }
            client.up.push(&numbered(1)).unwrap();
            assert!(!client.up.wake_due(), "rung once");
            assert!(!plane.up.arm_for(waits_for), "what it waits for is there");
            while plane.up.pop(&mut got) {}
            plane.up.commit();
        }
        // fewer than the threshold were there before: those count
        client.up.push(&numbered(1)).unwrap();
        assert!(plane.up.arm_for(2));
        client.up.push(&numbered(1)).unwrap();
        assert!(client.up.wake_due());
        // arming for less is a new sleep
        while plane.up.pop(&mut got) {}
        assert!(plane.up.arm_for(8));
        client.up.push(&numbered(1)).unwrap();
        assert!(!client.up.wake_due());
        assert!(!plane.up.arm(), "one is there");
    }

    #[test]
    fn the_client_cannot_write_the_planes_segment() {
        let (_plane, _client, fds) = pair(4);
        assert!(Mapping::writable(&fds.down).is_err());
    }

    #[test]
    fn a_pair_of_another_shape_is_refused() {
        let (_plane, _client, fds) = pair(4);
        let swapped = PairFds { up: fds.up.try_clone().unwrap(), down: fds.up };
        let error = open_pair::<MadMessage, MadMessage>(&swapped).unwrap_err();
        assert!(matches!(error, PairError::Header(HeaderError::Kind { .. })), "{error}");
        for slots in [0, 1, 3, 5, MAX_SLOTS * 2] {
            let made = create_pair::<MadMessage, MadMessage>("test", slots, false, Incarnation::default());
            assert!(matches!(made, Err(PairError::Slots(_))));
        }
    }
}
