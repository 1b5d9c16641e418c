//! Whose request it was: from the transaction id with which a request left by a device to the session's.
//!
//! The kernel keeps the lower half of a request's transaction id and writes the upper one itself, so the lower half is all there is: it becomes
//! the place in this table and a number that tells former users of the place apart. Sessions choose their own, so each request gets a
//! new one, and the same request sent again too: the kernel takes one that waits already for an error. Segments and acknowledgements of RMPP
//! keep that of their transaction, so they are looked for by the session's.
//!
//! Owned by a device's worker. 4096 places in sets of eight; a place is free again when the answer is there, when the kernel gives up, or when its
//! time is over. Where all eight wait, nothing more is taken: whoever floods a device with questions that nobody answers is held up by that. No
//! allocation after it was made; bounded work.

/// Requests that wait at one time.
const PLACES: u32 = SETS * WAYS;
const SETS: u32 = 512;
const WAYS: u32 = 8;
const PLACE_BITS: u32 = PLACES.ilog2();

/// A request that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Whose {
    /// Upper half of the session's transaction id, which names its agent.
    pub agent: u32,
    /// Lower half.
    pub low: u32,
    /// LID for which it was before it was sent along a path; 0 if it was not.
    pub turned: u16,
    /// Its sender gave a LID where a GID was needed, and knows no global header.
    pub by_lid: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    whose: Whose,
    /// Lower half with which it left; means something while it waits.
    given: u32,
    /// When it is given up; 0 for a free place.
    until_ns: u64,
}

/// Requests that wait for their answers.
#[derive(Debug)]
pub struct Transactions {
    places: Box<[Place]>,
    /// Grows with every request.
    number: u32,
    open: u64,
}

impl Default for Transactions {
    fn default() -> Self {
        Self { places: vec![Place::default(); PLACES as usize].into(), number: 0, open: 0 }
    }
}

fn set_of(agent: u32, low: u32) -> usize {
    // the upper bits of a product depend on all bits of its factors
    let mixed = (u64::from(agent) << 32 | u64::from(low)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let set = mixed >> (u64::BITS - SETS.ilog2());
    usize::try_from(set * u64::from(WAYS)).unwrap_or(0)
}

impl Transactions {
    fn ways(&self, agent: u32, low: u32) -> (usize, &[Place]) {
        let first = set_of(agent, low);
        (first, &self.places[first..first + WAYS as usize])
    }

    /// Takes a request on for `patience_ns`; the lower half with which it leaves, `None` if too many wait.
    pub fn open(&mut self, whose: Whose, now_ns: u64, patience_ns: u64) -> Option<u32> {
        let (first, ways) = self.ways(whose.agent, whose.low);
        let at = first + ways.iter().position(|place| place.until_ns <= now_ns)?;
        self.number = self.number.wrapping_add(1);
        let given = self.number << PLACE_BITS | u32::try_from(at).unwrap_or(0);
        let place = &mut self.places[at];
        self.open += u64::from(place.until_ns == 0);
        *place = Place { whose, given, until_ns: now_ns + patience_ns };
        Some(given)
    }

    /// The lower half with which the newest request of `agent` with `low` left, if it waits or its answer goes on.
    pub fn find(&self, agent: u32, low: u32, now_ns: u64) -> Option<u32> {
        let (_, ways) = self.ways(agent, low);
        let own =
            |place: &&Place| place.until_ns > now_ns && (place.whose.agent, place.whose.low) == (agent, low);
        ways.iter().filter(own).max_by_key(|place| place.until_ns).map(|place| place.given)
    }

    /// Whose request an answer is for. The place is free afterwards, or waits for `patience_ns` more if the answer goes on.
    pub fn close(&mut self, given: u32, goes_on: bool, now_ns: u64, patience_ns: u64) -> Option<Whose> {
        let place = self.place(given).filter(|place| place.until_ns > now_ns)?;
        let whose = place.whose;
        if goes_on {
            place.until_ns = now_ns + patience_ns;
        } else {
            place.until_ns = 0;
            self.open -= 1;
        }
        Some(whose)
    }

    /// Frees the place of a request that is answered no more.
    pub fn forget(&mut self, given: u32) {
        if let Some(place) = self.place(given) {
            place.until_ns = 0;
            self.open -= 1;
        }
    }

    fn place(&mut self, given: u32) -> Option<&mut Place> {
        let at = given & (PLACES - 1);
        self.places.get_mut(at as usize).filter(|place| place.until_ns != 0 && place.given == given)
    }

    /// Frees the places whose time is over; they are taken anyway, but count as waiting until then.
    pub fn sweep(&mut self, now_ns: u64) {
        if self.open == 0 {
            return;
        }
        for place in self.places.iter_mut().filter(|place| place.until_ns != 0 && place.until_ns <= now_ns) {
            place.until_ns = 0;
            self.open -= 1;
        }
    }

    /// Requests that wait, those since the last [`Transactions::sweep`] included whose time is over.
    pub fn open_count(&self) -> u64 {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: u64 = 100;

    fn whose(agent: u32, low: u32) -> Whose {
        Whose { agent, low, ..Whose::default() }
    }

    #[test]
    fn an_answer_finds_its_request_once() {
        let mut table = Transactions::default();
        let given: Vec<u32> = (0..1000).map(|n| table.open(whose(n % 7, n), 1, PATIENCE).unwrap()).collect();
        assert_eq!(table.open_count(), 1000);
        for (n, given) in (0..1000).zip(&given).rev() {
            assert_eq!(table.close(*given, false, 2, PATIENCE), Some(whose(n % 7, n)));
            assert_eq!(table.close(*given, false, 2, PATIENCE), None);
        }
        assert_eq!(table.open_count(), 0);
    }

    #[test]
    fn the_same_request_sent_again_has_another_id_and_both_answers_count() {
        let mut table = Transactions::default();
        let [one, two] = [1, 2].map(|now| table.open(whose(5, 6), now, PATIENCE).unwrap());
        assert_ne!(one, two);
        assert_eq!(table.find(5, 6, 3), Some(two), "the newest");
        assert_eq!(table.close(one, false, 3, PATIENCE), Some(whose(5, 6)));
        assert_eq!(table.close(two, false, 3, PATIENCE), Some(whose(5, 6)));
        assert_eq!(table.find(5, 6, 3), None);
    }

    #[test]
    fn what_nobody_answers_is_given_up_in_time_and_its_place_used_again() {
        let mut table = Transactions::default();
        let first = table.open(whose(1, 1), 0, PATIENCE).unwrap();
        for _ in 1..WAYS {
            assert!(table.open(whose(1, 1), 0, PATIENCE).is_some());
        }
        assert_eq!(table.open(whose(1, 1), PATIENCE - 1, PATIENCE), None, "all places of the set wait");
        let expected = Whose { turned: 9, by_lid: true, ..whose(1, 1) };
        let later = table.open(expected, PATIENCE, PATIENCE).unwrap();
        assert_eq!(later & (PLACES - 1), first & (PLACES - 1), "the place of the first");
        assert_eq!(table.close(first, false, PATIENCE, PATIENCE), None, "a late answer to its former user");
        assert_eq!(table.open_count(), u64::from(WAYS));
        table.sweep(PATIENCE);
        assert_eq!(table.open_count(), 1);
        assert_eq!(table.close(later, false, PATIENCE + 1, PATIENCE), Some(expected));
    }

    #[test]
    fn an_answer_in_segments_keeps_its_place_until_the_last_was_long_ago() {
        let mut table = Transactions::default();
        let given = table.open(whose(1, 2), 0, PATIENCE).unwrap();
        for now in [50, 140, 230] {
            assert_eq!(table.close(given, true, now, PATIENCE), Some(whose(1, 2)), "at {now}");
            assert_eq!(table.find(1, 2, now), Some(given), "for its acknowledgement");
        }
        assert_eq!(table.close(given, true, 330, PATIENCE), None);
    }

    #[test]
    fn nothing_that_comes_from_outside_upsets_the_count() {
        let mut table = Transactions::default();
        let mut dice = 0x5EED_u64;
        for now in 1..20_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let roll = u32::try_from(dice >> 40).unwrap();
            match roll % 4 {
                0 => drop(table.open(whose(roll % 97, roll % 1009), now, PATIENCE)),
                1 => drop(table.close(roll.wrapping_mul(0x1003), roll % 8 < 4, now, PATIENCE)),
                2 => table.forget(roll),
                _ => table.sweep(now),
            }
            let waiting = table.places.iter().filter(|place| place.until_ns != 0).count() as u64;
            assert_eq!(table.open_count(), waiting, "step {now}");
        }
    }
}
