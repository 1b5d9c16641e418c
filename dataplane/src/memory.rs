//! Memory for sessions: in which pages, how much of it on each NUMA node, and what is in use.
//!
//! Owned by housekeeping. A session's rings are where its worker is, as far as the limits of `--socket-mem` allow, and
//! elsewhere if they do not; who would exceed them everywhere is refused. Rings in huge pages count as long as those are, at
//! least one page for each. Without huge pages, or without a limit that a huge page fits into, a session is in normal pages; each
//! session tries anew. Not here: what the plane itself uses (`madplane_port::pool`).

use madplane_shm::map::HUGE_PAGE_BYTES;
use madplane_shm::session::pair_bytes;

/// Where the memory of one session is; to be given back with [`SessionMemory::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Portion {
    /// NUMA node.
    pub node: usize,
    /// Bytes of both segments.
    pub bytes: u64,
    /// They are in huge pages.
    pub huge: bool,
}

/// What is in use and what may be.
#[derive(Debug)]
pub struct SessionMemory {
    /// Most bytes on each node; none without a limit.
    limits: Option<Vec<u64>>,
    used: Vec<u64>,
    huge_bytes: u64,
    wants_huge: bool,
}

impl SessionMemory {
    /// Nothing in use on `nodes` NUMA nodes, a limit for each if there are any.
    pub fn new(nodes: usize, limits: Option<Vec<u64>>, wants_huge: bool) -> Self {
        Self { limits, used: vec![0; nodes.max(1)], huge_bytes: 0, wants_huge }
    }

    /// Where rings of `slots` slots for a worker on `node` could be: first in huge pages if they are wanted, then in others.
    pub fn candidates(&self, node: usize, slots: u64) -> Vec<Portion> {
        let bytes = 2 * pair_bytes(slots);
        let huge = 2 * pair_bytes(slots).next_multiple_of(HUGE_PAGE_BYTES as u64);
        let sizes = [(huge, true), (bytes, false)].into_iter().filter(|(_, huge)| self.wants_huge || !huge);
        let nodes = || std::iter::once(node).chain((0..self.used.len()).filter(move |other| *other != node));
        sizes
            .filter_map(|(bytes, huge)| {
                let node = nodes().find(|node| self.has_room(*node, bytes))?;
                Some(Portion { node, bytes, huge })
            })
            .collect()
    }

    fn has_room(&self, node: usize, bytes: u64) -> bool {
        let Some(used) = self.used.get(node) else { return false };
        let Some(limits) = &self.limits else { return true };
        limits.get(node).is_some_and(|limit| used.saturating_add(bytes) <= *limit)
    }

    /// Counts a session.
    pub fn take(&mut self, portion: Portion) {
        if let Some(used) = self.used.get_mut(portion.node) {
            *used += portion.bytes;
        }
        self.huge_bytes += if portion.huge { portion.bytes } else { 0 };
    }

    /// Counts a session no more.
    pub fn release(&mut self, portion: Portion) {
        if let Some(used) = self.used.get_mut(portion.node) {
            *used = used.saturating_sub(portion.bytes);
        }
        self.huge_bytes = self.huge_bytes.saturating_sub(if portion.huge { portion.bytes } else { 0 });
    }

    /// Bytes of sessions in huge pages.
    pub fn huge_bytes(&self) -> u64 {
        self.huge_bytes
    }

    /// Why there is no candidate, in one line.
    pub fn refusal(&self) -> String {
        let most: u64 = self.limits.iter().flatten().sum();
        let used: u64 = self.used.iter().sum();
        format!("{} of {} KiB for sessions are in use (--socket-mem)", used >> 10, most >> 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn portion(node: usize, bytes: u64, huge: bool) -> Portion {
        Portion { node, bytes, huge }
    }

    #[test]
    fn rings_are_in_huge_pages_on_the_workers_node_if_nothing_speaks_against_it() {
        let memory = SessionMemory::new(2, None, true);
        let normal = 2 * pair_bytes(64);
        assert_eq!(memory.candidates(1, 64), [portion(1, 4 * MIB, true), portion(1, normal, false)]);
        let memory = SessionMemory::new(1, None, false);
        assert_eq!(memory.candidates(0, 64), [portion(0, normal, false)]);
    }

    #[test]
    fn limits_hold_on_each_node_and_what_is_given_back_counts_no_more() {
        let mut memory = SessionMemory::new(2, Some(vec![4 * MIB, MIB]), true);
        let normal = 2 * pair_bytes(64);
        let first = portion(0, 4 * MIB, true);
        assert_eq!(memory.candidates(1, 64), [first, portion(1, normal, false)], "huge pages fit elsewhere");
        memory.take(first);
        assert_eq!(memory.huge_bytes(), 4 * MIB);
        assert_eq!(memory.candidates(0, 64), [portion(1, normal, false)]);
        let mut sessions = 0;
        while let Some(next) = memory.candidates(0, 64).first().copied() {
            memory.take(next);
            sessions += 1;
        }
        assert_eq!(sessions, MIB / normal);
        assert_eq!(
            memory.refusal(),
            format!(
                "{} of 5120 KiB for sessions are in use (--socket-mem)",
                (4 * MIB + sessions * normal) >> 10
            )
        );
        memory.release(first);
        assert_eq!((memory.candidates(0, 64)[0], memory.huge_bytes()), (first, 0));
    }
}
