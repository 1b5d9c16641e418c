//! From the LIDs of a packet to the place of its route.
//!
//! Open addressing in one array that is never more than half full: a search reads one cache line, seldom two, and ends at
//! the first free place. Owned by the routes of a shard. Keys are not 0; what a place means is not known here.

/// Golden ratio; the halves of the product folded together scatter LIDs that differ in either half of a key.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Places of the smallest index.
const SMALLEST: usize = 64;

/// Key in the upper half, route in the lower; 0 is free.
#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    places: Vec<u64>,
    used: usize,
}

impl KeyIndex {
    /// Makes room for `keys` keys, so that inserting them does not allocate.
    pub(crate) fn reserve(&mut self, keys: usize) {
        let wanted = (keys * 2).next_power_of_two().max(SMALLEST);
        if wanted <= self.places.len() {
            return;
        }
        // written once here, so that no search meets a page for the first time
        let mut places = vec![u64::MAX; wanted];
        places.fill(0);
        let former = std::mem::replace(&mut self.places, places);
        self.adopt(&former);
    }

    /// Takes over all keys of `other`; this one has none.
    pub(crate) fn take_over(&mut self, other: &Self) {
        self.reserve(other.used);
        self.used = other.used;
        self.adopt(&other.places);
    }

    fn adopt(&mut self, places: &[u64]) {
        for place in places.iter().filter(|place| **place != 0) {
            let free = self.search(key_of(*place)).unwrap_or_else(|free| free);
            self.put(free, *place);
        }
    }

    /// What `key` stands for.
    #[inline(always)]
    pub(crate) fn get(&self, key: u32) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        self.search(key).ok().map(|at| route_of(self.places[at]))
    }

    /// Lets `key` stand for `route`; what it stood for before.
    pub(crate) fn insert(&mut self, key: u32, route: u32) -> Option<u32> {
        self.reserve(self.used + 1);
        let place = u64::from(key) << 32 | u64::from(route);
        match self.search(key) {
            Ok(at) => {
                let former = route_of(self.places[at]);
                self.put(at, place);
                Some(former)
            }
            Err(free) => {
                self.put(free, place);
                self.used += 1;
                None
            }
        }
    }

    /// Forgets `key`.
    pub(crate) fn remove(&mut self, key: u32) {
        if self.places.is_empty() {
            return;
        }
        let Ok(mut hole) = self.search(key) else { return };
        self.used -= 1;
        // whoever was pushed past the hole moves up, so that a search still ends at the first free place
        let mut at = hole;
        loop {
            at = self.after(at);
            let place = self.places[at];
            if place == 0 {
                break;
            }
            let pushed = at.wrapping_sub(self.home(key_of(place))) & self.mask();
            if pushed >= (at.wrapping_sub(hole) & self.mask()) {
                self.put(hole, place);
                hole = at;
            }
        }
        self.put(hole, 0);
    }

    /// Where `key` is, or else the free place where it would go. There is one: at most half are used.
    #[inline(always)]
    fn search(&self, key: u32) -> Result<usize, usize> {
        let mut at = self.home(key);
        loop {
            let place = self.places[at];
            if key_of(place) == key {
                return Ok(at);
            }
            if place == 0 {
                return Err(at);
            }
            at = self.after(at);
        }
    }

    #[inline(always)]
    fn home(&self, key: u32) -> usize {
        let product = u128::from(key) * u128::from(SPREAD);
        (product ^ product >> 64) as usize & self.mask()
    }

    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    /// The number of places is a power of two.
    #[inline(always)]
    fn mask(&self) -> usize {
        self.places.len() - 1
    }

    fn put(&mut self, at: usize, place: u64) {
        self.places[at] = place;
    }
}

const fn key_of(place: u64) -> u32 {
    (place >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn route_of(place: u64) -> u32 {
    place as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Places read by searching all of `keys`.
    fn steps(index: &KeyIndex, keys: &[u32]) -> usize {
        let far = |key: u32| index.search(key).unwrap().wrapping_sub(index.home(key)) & index.mask();
        keys.iter().map(|key| 1 + far(*key)).sum()
    }

    #[test]
    fn agrees_with_a_map_through_insertions_and_removals() {
        let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
        let mut roll = |below: u32| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(dice >> 33).unwrap() % below
        };
        let (mut index, mut map) = (KeyIndex::default(), HashMap::new());
        assert_eq!(index.get(1), None);
        index.remove(1);
        for step in 0..200_000 {
            // few keys, so that neighbours and holes meet
            let key = (1 + roll(40)) << 16 | (1 + roll(12));
            if roll(2) == 0 {
                assert_eq!(index.insert(key, step), map.insert(key, step));
            } else {
                index.remove(key);
                map.remove(&key);
            }
            let asked = (1 + roll(40)) << 16 | (1 + roll(12));
            assert_eq!(index.get(asked), map.get(&asked).copied());
            assert_eq!(index.used, map.len());
        }
        map.iter().for_each(|(key, route)| assert_eq!(index.get(*key), Some(*route)));
    }

    #[test]
    fn lids_as_they_are_given_out_do_not_crowd() {
        let grid = |slids: u32, dlids: u32, by: u32| -> Vec<u32> {
            (0..slids).flat_map(|s| (0..dlids).map(move |d| (1 + s * by) << 16 | (1 + d * by))).collect()
        };
        let grids = [
            grid(1, 49_000, 1),
            grid(49_000, 1, 1),
            grid(256, 256, 1),
            grid(2, 32_000, 1),
            grid(128, 128, 128),
            grid(200, 200, 8),
            grid(32, 32, 16),
        ];
        for keys in grids {
            let mut index = KeyIndex::default();
            (0..).zip(&keys).for_each(|(route, key)| assert_eq!(index.insert(*key, route), None));
            let steps = steps(&index, &keys);
            assert!(steps < keys.len() * 2, "{steps} steps for {} keys", keys.len());
        }
    }

    #[test]
    fn room_once_made_is_enough() {
        let mut index = KeyIndex::default();
        index.insert(7, 7);
        index.reserve(65_536);
        let places = index.places.len();
        (1..=65_536).for_each(|key| _ = index.insert(key, key));
        assert_eq!((index.places.len(), index.get(7), index.get(65_536)), (places, Some(7), Some(65_536)));
    }
}
