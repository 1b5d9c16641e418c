//! A writer that publishes as fast as it can, beside readers that check all they see; what is published is the test's.
//!
//! The number of a publication is that of its generation less one: generation 1 is the empty table. Every entry is made
//! from its place and the number that changed it last; places of the group change together and hold one number.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "a helper that fails has to fail its test")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use madplane_shm::header::Incarnation;
use madplane_shm::table::TableOptions;
use madplane_shm::table::publish::RoutePublisher;
use madplane_shm::table::snapshot::{Refresh, TableReader};

/// Words that follow from a place and a number alone.
pub fn words_of(place: u32, number: u64) -> impl FnMut() -> u64 {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(place);
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state
    }
}

/// Up to `members` places, from the first to the last of `size`, that change together.
pub fn group(size: u32, members: u32) -> Vec<u32> {
    let mut places: Vec<u32> = (0..members).map(|part| (size - 1) * part / (members - 1)).collect();
    places.dedup();
    places
}

/// The place that a publication changes beside the group, if it is not of the group, and whether it clears it.
pub fn other(size: u32, number: u64, group: &[u32]) -> Option<(u32, bool)> {
    let place = u32::try_from(number.wrapping_mul(2_654_435_761) % u64::from(size)).unwrap();
    (!group.contains(&place)).then(|| (place, number.is_multiple_of(7)))
}

/// The number that each place holds for a reader, and the places that change together.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub numbers: Vec<u64>,
    pub group: Vec<u32>,
}

impl Seen {
    pub fn nothing(size: u32, group: Vec<u32>) -> Self {
        Self { numbers: vec![0; size as usize], group }
    }

    /// A place holds another number, 0 if it is empty.
    pub fn take(&mut self, place: u32, number: u64) {
        let held = &mut self.numbers[place as usize];
        assert!(number == 0 || number > *held, "place {place} went back in time");
        *held = number;
    }

    /// The one number of the group.
    pub fn of_group(&self, generation: u64) -> u64 {
        let held = |place: &u32| self.numbers[*place as usize];
        let first = held(&self.group[0]);
        let mixed = self.group.iter().any(|place| held(place) != first);
        assert!(!mixed, "generation {generation} is a mix of publications");
        first
    }
}

/// A reader that checks what it is given.
pub trait Checker {
    fn new(reader: TableReader) -> Self;

    /// Refreshes once and checks all that comes.
    fn look(&mut self) -> Refresh;

    fn seen(&self) -> &Seen;

    /// Entries handed out of the kind that counts here.
    fn taken(done: &Refresh) -> u64;
}

/// How much is done at least, and how often a reader is one that has never looked before.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    pub publications: u64,
    pub entries_read: u64,
    pub newcomer_every: u64,
}

#[derive(Debug, Default)]
pub struct Tally {
    pub publications: u64,
    pub refreshes: u64,
    /// Entries taken by the reader that is there all the time.
    pub entries: u64,
    /// Entries taken by newcomers, each in a full pass under fire.
    pub full_entries: u64,
    pub retries: u64,
    pub given_up: u64,
}

impl Tally {
    pub fn entries_read(&self) -> u64 {
        self.entries + self.full_entries
    }

    fn look<C: Checker>(&mut self, checker: &mut C) -> u64 {
        let done = checker.look();
        assert_eq!(done.refused, 0, "a checksum failed after the copy was found whole");
        self.refreshes += 1;
        self.retries += u64::from(done.retries);
        self.given_up += u64::from(!done.complete);
        C::taken(&done)
    }
}

/// Lets the writer end whatever became of the readers.
struct Enough<'a>(&'a AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs writer and readers until enough is done; `change` makes a publication's changes, `last` says which publication
/// up to one changed the group last.
pub fn race<C: Checker>(
    options: TableOptions,
    effort: Effort,
    mut change: impl FnMut(&mut RoutePublisher, u64) + Send,
    last: impl Fn(u64) -> u64,
) -> Tally {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let mut publisher = RoutePublisher::create(&path, options, Incarnation::default()).unwrap();
    let newcomer = |path: &Path| C::new(TableReader::open(path).unwrap());
    let enough = AtomicBool::new(false);
    let mut tally = Tally::default();
    tally.publications = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut number = 0;
            while number < effort.publications || !enough.load(Ordering::Relaxed) {
                number += 1;
                change(&mut publisher, number);
                assert_eq!(publisher.publish(), number + 1);
            }
            number
        });
        let readers = Enough(&enough);
        let mut checker = newcomer(&path);
        while !writing.is_finished() {
            tally.entries += tally.look(&mut checker);
            if tally.refreshes.is_multiple_of(effort.newcomer_every) {
                tally.full_entries += tally.look(&mut newcomer(&path));
            }
            readers.0.store(tally.entries_read() >= effort.entries_read, Ordering::Relaxed);
        }
        let number = writing.join().unwrap();
        tally.look(&mut checker);
        assert_eq!(checker.seen().numbers[0], last(number), "the last publication did not arrive");
        let mut late = newcomer(&path);
        tally.look(&mut late);
        assert_eq!(late.seen(), checker.seen(), "a late reader sees another table");
        number
    });
    tally
}
