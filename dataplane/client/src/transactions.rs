//! Requests that wait for their response: found by TID, given up by time.
//!
//! Owned by the session's core, used under its lock; no I/O, time is passed in. Invariants:
//! - An entry leaves the table exactly once: by its response, by its last timeout, or because it was cancelled.
//! - Nothing is allocated per request once the table has grown to the number outstanding at one time. Growth doubles,
//!   up to [`MAX_OUTSTANDING`].
//! - A copy of the MAD is kept only for requests with retries left.
//! - A deadline is never reported early and at most two wheel ticks ([`TICK_NS`]) late.
//!
//! **Clocks.** Reading the clock costs more than everything else that is done for a request. So a request is inserted
//! without a deadline, and gets it from whoever reads the clock next ([`Transactions::stamp`]); a request whose response
//! comes before that never costs a clock read. Its timeout starts late by that much, and never early.
//!
//! What it does not do: send, resend, or tell anybody.

use madplane_shm::message::{Envelope, MadMessage};

/// Most requests of a session that may wait for a response at one time.
pub(crate) const MAX_OUTSTANDING: usize = 65_536;
/// Length of the header that comes back with a timeout.
pub(crate) const HEADER_BYTES: usize = 24;

const INITIAL: usize = 256;
const NONE: u32 = u32::MAX;
const TICK_SHIFT: u32 = 20;
/// Granularity of timeouts, about a millisecond.
pub(crate) const TICK_NS: u64 = 1 << TICK_SHIFT;
const WHEEL: usize = 1024;
const WHEEL_MASK: u64 = WHEEL as u64 - 1;
const WORDS: usize = WHEEL / 64;
/// The list of entries without a deadline that want one, behind those of the wheel.
const UNSTAMPED: usize = WHEEL;
const NOWHERE: usize = WHEEL + 1;

/// A request that waits.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) tid: u64,
    pub(crate) class: u8,
    pub(crate) agent: u32,
    pub(crate) retries_left: u32,
    /// Time for one attempt.
    pub(crate) timeout_ns: u64,
    /// RMPP send that carries the request, if any.
    pub(crate) transfer: Option<u32>,
    /// As sent.
    pub(crate) envelope: Envelope,
    /// First bytes of the MAD as sent.
    pub(crate) header: [u8; HEADER_BYTES],
    deadline_ns: u64,
    copy: u32,
    chain: u32,
    earlier: u32,
    later: u32,
    /// List that the entry is in.
    list: usize,
    live: bool,
}

/// What [`Transactions::insert`] needs to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) agent: u32,
    pub(crate) tid: u64,
    pub(crate) class: u8,
    pub(crate) timeout_ns: u64,
    pub(crate) retries: u32,
    pub(crate) transfer: Option<u32>,
    pub(crate) message: &'a MadMessage,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Transactions {
    entries: Vec<Entry>,
    free: u32,
    buckets: Vec<u32>,
    copies: Vec<MadMessage>,
    free_copies: Vec<u32>,
    lists: Box<[u32; WHEEL + 1]>,
    occupied: [u64; WORDS],
    /// Ticks below this one are done with.
    cursor: u64,
    live: usize,
    timed: usize,
}

fn index(id: u32) -> usize {
    id as usize
}

impl Transactions {
    pub(crate) fn new() -> Self {
        let mut table = Self {
            entries: Vec::new(),
            free: NONE,
            buckets: Vec::new(),
            copies: Vec::with_capacity(64),
            free_copies: Vec::with_capacity(64),
            lists: Box::new([NONE; WHEEL + 1]),
            occupied: [0; WORDS],
            cursor: 0,
            live: 0,
            timed: 0,
        };
        table.grow();
        table
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let old = self.entries.len();
        let new = if old == 0 { INITIAL } else { old * 2 };
        if new > MAX_OUTSTANDING {
            return false;
        }
        let blank = Entry {
            tid: 0,
            class: 0,
            agent: 0,
            retries_left: 0,
            timeout_ns: 0,
            transfer: None,
            envelope: Envelope::default(),
            header: [0; HEADER_BYTES],
            deadline_ns: 0,
            copy: NONE,
            chain: NONE,
            earlier: NONE,
            later: NONE,
            list: NOWHERE,
            live: false,
        };
        self.entries.resize(new, blank);
        for id in (old..new).rev().filter_map(|id| u32::try_from(id).ok()) {
            self.entries[index(id)].chain = self.free;
            self.free = id;
        }
        self.buckets = vec![NONE; new * 2];
        for id in (0..old).filter_map(|id| u32::try_from(id).ok()) {
            if self.entries[index(id)].live {
                let bucket = self.bucket(self.entries[index(id)].tid);
                self.entries[index(id)].chain = std::mem::replace(&mut self.buckets[bucket], id);
            }
        }
        true
    }

    fn bucket(&self, tid: u64) -> usize {
        // the low half belongs to the client, who usually counts; the mask keeps the value inside the vector
        #[allow(clippy::cast_possible_truncation)]
        let low = tid as u32;
        let mixed = low.wrapping_mul(0x9e37_79b1);
        (mixed ^ (mixed >> 15)) as usize & (self.buckets.len() - 1)
    }

    /// The entry of a request with this TID and class.
    pub(crate) fn find(&self, tid: u64, class: u8) -> Option<u32> {
        self.find_where(tid, class, |_| true)
    }

    /// The entry of a request with this TID and class for which `fits` holds.
    pub(crate) fn find_where(&self, tid: u64, class: u8, fits: impl Fn(&Entry) -> bool) -> Option<u32> {
        let mut id = self.buckets[self.bucket(tid)];
        while id != NONE {
            let entry = &self.entries[index(id)];
            if entry.tid == tid && entry.class == class && fits(entry) {
                return Some(id);
            }
            id = entry.chain;
        }
        None
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Entry> {
        self.entries.get(index(id)).filter(|entry| entry.live)
    }

    /// Makes sure that one more request fits; false if the table is at its limit.
    pub(crate) fn reserve(&mut self) -> bool {
        self.free != NONE || self.grow()
    }

    /// The entry of the request that an RMPP send carries. Looks at all entries.
    pub(crate) fn by_transfer(&self, transfer: u32) -> Option<u32> {
        let place = self.entries.iter().position(|entry| entry.live && entry.transfer == Some(transfer))?;
        u32::try_from(place).ok()
    }

    /// Adds a request that is not timed yet; `None` if the table is full.
    pub(crate) fn insert(&mut self, request: &Request<'_>) -> Option<u32> {
        if !self.reserve() {
            return None;
        }
        let id = self.free;
        let bucket = self.bucket(request.tid);
        let copy =
            if request.retries > 0 && request.transfer.is_none() { self.keep(request.message) } else { NONE };
        let entry = &mut self.entries[index(id)];
        self.free = entry.chain;
        entry.tid = request.tid;
        entry.class = request.class;
        entry.agent = request.agent;
        entry.retries_left = request.retries;
        entry.timeout_ns = request.timeout_ns;
        entry.transfer = request.transfer;
        entry.envelope = request.message.envelope;
        entry.header.copy_from_slice(&request.message.mad[..HEADER_BYTES]);
        entry.copy = copy;
        entry.live = true;
        entry.chain = std::mem::replace(&mut self.buckets[bucket], id);
        self.live += 1;
        Some(id)
    }

    fn keep(&mut self, message: &MadMessage) -> u32 {
        if let Some(copy) = self.free_copies.pop() {
            self.copies[index(copy)] = *message;
            return copy;
        }
        let copy = u32::try_from(self.copies.len()).expect("there are at most as many copies as entries");
        self.copies.push(*message);
        copy
    }

    /// Lets the clock of an entry start when the clock is read next.
    pub(crate) fn start_clock(&mut self, id: u32) {
        self.clear_deadline(id);
        self.link(id, UNSTAMPED);
    }

    /// Gives a deadline to every entry whose clock is to start.
    pub(crate) fn stamp(&mut self, now_ns: u64) {
        while self.lists[UNSTAMPED] != NONE {
            let id = self.lists[UNSTAMPED];
            let deadline_ns = now_ns.saturating_add(self.entries[index(id)].timeout_ns);
            self.set_deadline(id, now_ns, deadline_ns);
        }
    }

    /// Sets or moves the deadline of an entry.
    pub(crate) fn set_deadline(&mut self, id: u32, now_ns: u64, deadline_ns: u64) {
        self.clear_deadline(id);
        if self.timed == 0 {
            self.cursor = self.cursor.max(now_ns >> TICK_SHIFT);
        }
        let tick = (deadline_ns >> TICK_SHIFT).max(self.cursor);
        self.entries[index(id)].deadline_ns = tick << TICK_SHIFT;
        self.link(id, slot_of(tick));
    }

    fn link(&mut self, id: u32, list: usize) {
        let next = std::mem::replace(&mut self.lists[list], id);
        let entry = &mut self.entries[index(id)];
        entry.earlier = NONE;
        entry.later = next;
        entry.list = list;
        if next != NONE {
            self.entries[index(next)].earlier = id;
        }
        if list != UNSTAMPED {
            self.occupied[list / 64] |= 1 << (list % 64);
            self.timed += 1;
        }
    }

    /// Stops the clock of an entry.
    pub(crate) fn clear_deadline(&mut self, id: u32) {
        let entry = &mut self.entries[index(id)];
        let list = std::mem::replace(&mut entry.list, NOWHERE);
        if list == NOWHERE {
            return;
        }
        let (earlier, later) = (entry.earlier, entry.later);
        if later != NONE {
            self.entries[index(later)].earlier = earlier;
        }
        if earlier == NONE {
            self.lists[list] = later;
        } else {
            self.entries[index(earlier)].later = later;
        }
        if list != UNSTAMPED {
            self.timed -= 1;
            if self.lists[list] == NONE {
                self.occupied[list / 64] &= !(1 << (list % 64));
            }
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, id: u32) {
        self.clear_deadline(id);
        let entry = &mut self.entries[index(id)];
        debug_assert!(entry.live, "an entry is removed once");
        entry.live = false;
        let (tid, chain, copy) = (entry.tid, entry.chain, entry.copy);
        entry.copy = NONE;
        entry.chain = self.free;
        if copy != NONE {
            self.free_copies.push(copy);
        }
        let bucket = self.bucket(tid);
        if self.buckets[bucket] == id {
            self.buckets[bucket] = chain;
        } else {
            let mut at = self.buckets[bucket];
            while self.entries[index(at)].chain != id {
                at = self.entries[index(at)].chain;
            }
            self.entries[index(at)].chain = chain;
        }
        self.free = id;
        self.live -= 1;
    }

    /// Uses up one retry: the MAD to send again, or `None` if there is none left or none was kept.
    pub(crate) fn retry(&mut self, id: u32) -> Option<&MadMessage> {
        let entry = &mut self.entries[index(id)];
        if entry.retries_left == 0 || entry.copy == NONE {
            return None;
        }
        entry.retries_left -= 1;
        Some(&self.copies[index(entry.copy)])
    }

    /// Uses up one retry of an entry without a copy (an RMPP request); false if there is none left.
    pub(crate) fn wait_again(&mut self, id: u32) -> bool {
        let entry = &mut self.entries[index(id)];
        let again = entry.retries_left > 0;
        entry.retries_left = entry.retries_left.saturating_sub(1);
        again
    }

    /// Takes the clocks off all entries whose deadline has passed and appends their ids.
    pub(crate) fn collect_due(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        let now = now_ns >> TICK_SHIFT;
        if now <= self.cursor {
            return;
        }
        let last = now.min(self.cursor + WHEEL as u64);
        for tick in self.cursor..last {
            if self.timed == 0 {
                break;
            }
            let mut id = self.lists[slot_of(tick)];
            while id != NONE {
                let (later, at) = (self.entries[index(id)].later, self.entries[index(id)].deadline_ns);
                if at >> TICK_SHIFT < now {
                    self.clear_deadline(id);
                    due.push(id);
                }
                id = later;
            }
        }
        self.cursor = now;
    }

    /// When to call [`Transactions::collect_due`] next; `None` if nothing has a deadline.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        if self.timed == 0 {
            return None;
        }
        let mut tick = self.cursor;
        let end = self.cursor + WHEEL as u64;
        while tick < end {
            let slot = slot_of(tick);
            let rest = self.occupied[slot / 64] >> (slot % 64);
            if rest == 0 {
                tick += 64 - (slot % 64) as u64;
                continue;
            }
            tick += u64::from(rest.trailing_zeros());
            if tick < end && self.slot_has(tick) {
                return Some((tick + 1) << TICK_SHIFT);
            }
            tick += 1;
        }
        // every deadline is more than one turn of the wheel away
        let timed = self.entries.iter().filter(|entry| entry.live && entry.list < UNSTAMPED);
        timed.map(|entry| entry.deadline_ns + TICK_NS).min()
    }

    fn slot_has(&self, tick: u64) -> bool {
        let mut id = self.lists[slot_of(tick)];
        while id != NONE {
            if self.entries[index(id)].deadline_ns >> TICK_SHIFT == tick {
                return true;
            }
            id = self.entries[index(id)].later;
        }
        false
    }

    /// Removes all entries of an agent.
    pub(crate) fn cancel_agent(&mut self, agent: u32) {
        for id in (0..self.entries.len()).filter_map(|id| u32::try_from(id).ok()) {
            if self.get(id).is_some_and(|entry| entry.agent == agent) {
                self.remove(id);
            }
        }
    }
}

fn slot_of(tick: u64) -> usize {
    // masked to the size of the wheel
    #[allow(clippy::cast_possible_truncation)]
    let slot = (tick & WHEEL_MASK) as usize;
    slot
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small random numbers")]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn request(message: &MadMessage, tid: u64, retries: u32) -> Request<'_> {
        Request { agent: 3, tid, class: 1, timeout_ns: MS, retries, transfer: None, message }
    }

    #[test]
    fn an_entry_is_found_by_whole_tid_and_class_and_only_until_it_is_removed() {
        let mut table = Transactions::new();
        let message = MadMessage::default();
        let id = table.insert(&request(&message, 0x0000_0007_0000_0001, 0)).unwrap();
        assert_eq!(table.find(0x0000_0007_0000_0001, 1), Some(id));
        assert_eq!(table.find(0x0000_0008_0000_0001, 1), None);
        assert_eq!(table.find(0x0000_0007_0000_0001, 0x81), None);
        table.remove(id);
        assert_eq!(table.find(0x0000_0007_0000_0001, 1), None);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_deadline_never_comes_early_and_at_most_two_ticks_late() {
        let mut table = Transactions::new();
        let message = MadMessage::default();
        let mut due = Vec::new();
        let start = 77 * MS + 13;
        for timeout_ms in [0, 1, 2, 50, 999, 1000, 1073, 1074, 1075, 5000, 70_000] {
            let deadline = start + timeout_ms * MS;
            let id = table.insert(&request(&message, timeout_ms, 0)).unwrap();
            table.collect_due(start, &mut due);
            table.set_deadline(id, start, deadline);
            let mut wakes = 0;
            let mut now = start;
            while due.is_empty() {
                now = table.next_due_ns().expect("it has a deadline").max(now + 1);
                table.collect_due(now, &mut due);
                wakes += 1;
                assert!(wakes < 3, "woken in vain for {timeout_ms}");
            }
            assert!(now >= deadline, "{timeout_ms}: {now} is before {deadline}");
            assert!(now <= deadline + 2 * TICK_NS, "{timeout_ms}: {now} is long after {deadline}");
            assert_eq!(due, [id]);
            due.clear();
            table.remove(id);
            table = Transactions::new();
        }
    }

    #[test]
    fn a_clock_starts_when_it_is_read_next_unless_the_response_was_faster() {
        let mut table = Transactions::new();
        let message = MadMessage::default();
        let slow = table.insert(&request(&message, 1, 0)).unwrap();
        let quick = table.insert(&request(&message, 2, 0)).unwrap();
        for id in [slow, quick] {
            table.start_clock(id);
        }
        assert_eq!(table.next_due_ns(), None);
        table.remove(quick);
        table.stamp(500 * MS);
        let due = table.next_due_ns().unwrap();
        assert!((501 * MS..=501 * MS + 2 * TICK_NS).contains(&due));
        let mut ids = Vec::new();
        table.collect_due(due, &mut ids);
        assert_eq!(ids, [slow]);
    }

    #[test]
    fn random_work_agrees_with_a_plain_list() {
        let seed = std::process::id() as u64 ^ crate::clock::now_ns();
        println!("seed {seed}");
        let mut state = seed | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut table = Transactions::new();
        let message = MadMessage::default();
        let mut model: Vec<(u64, u32, u64)> = Vec::new();
        let (mut now, mut next_tid) = (5_000 * MS, 0u64);
        let mut due = Vec::new();
        for _ in 0..60_000 {
            match random(10) {
                0..=4 => {
                    next_tid += 1;
                    let id = table.insert(&request(&message, next_tid, (next_tid % 2) as u32)).unwrap();
                    let deadline = now + random(3_000) * MS;
                    table.set_deadline(id, now, deadline);
                    model.push((next_tid, id, deadline));
                }
                5..=7 if !model.is_empty() => {
                    let (tid, id, _) = model.swap_remove(random(model.len() as u64) as usize);
                    assert_eq!(table.find(tid, 1), Some(id));
                    table.remove(id);
                }
                _ => {
                    now += random(20 * MS);
                    table.collect_due(now, &mut due);
                    for id in due.drain(..) {
                        let at = model.iter().position(|entry| entry.1 == id).expect("reported once");
                        assert!(model.swap_remove(at).2 <= now);
                        table.remove(id);
                    }
                    assert!(model.iter().all(|entry| entry.2 + 2 * TICK_NS > now));
                    let next = table.next_due_ns();
                    assert_eq!(next.is_none(), model.is_empty());
                    if let Some(next) = next {
                        let first = model.iter().map(|entry| entry.2).min().unwrap();
                        assert!(next >= first && next <= first.max(now) + 2 * TICK_NS);
                    }
                }
            }
            assert_eq!(table.len(), model.len());
        }
    }

    #[test]
    fn growth_keeps_every_entry_and_ends_at_the_limit() {
        let mut table = Transactions::new();
        let message = MadMessage::default();
        for tid in 0..MAX_OUTSTANDING as u64 {
            assert!(table.insert(&request(&message, tid, 0)).is_some());
        }
        assert!(table.insert(&request(&message, 1 << 40, 0)).is_none());
        for tid in 0..MAX_OUTSTANDING as u64 {
            let id = table.find(tid, 1).expect("kept");
            table.remove(id);
        }
        assert!(table.insert(&request(&message, 1 << 40, 0)).is_some());
    }

    #[test]
    fn copies_are_kept_only_for_retries_and_used_again() {
        let mut table = Transactions::new();
        let mut message = MadMessage::default();
        message.mad.fill(0xa5);
        let without = table.insert(&request(&message, 1, 0)).unwrap();
        assert!(table.retry(without).is_none());
        for round in 0..100 {
            let id = table.insert(&request(&message, 10 + round, 2)).unwrap();
            assert_eq!(table.retry(id), Some(&message));
            assert_eq!(table.retry(id), Some(&message));
            assert!(table.retry(id).is_none());
            table.remove(id);
        }
        assert_eq!(table.copies.len(), 1);
    }
}
