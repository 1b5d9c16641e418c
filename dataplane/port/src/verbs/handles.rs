//! Address handles: made at first use, kept in a bounded table, destroyed when nothing in flight needs them.
//!
//! Owned by one queue. A set of four places per hash; the one that was used longest ago makes room. A handle that a posted
//! request still names waits in a short queue until that request has completed: soft-RoCE looks it up when it sends. While
//! something waits, [`Handles::wants_completions`] asks for completions, so that the wait ends.

use std::ptr::NonNull;
use std::rc::Rc;

use ibverbs_sys as sys;

use super::context::Domain;

const WAYS: usize = 4;
const SETS: usize = 128;
const WAITING: usize = 64;

/// Where a packet goes, as far as an address handle says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Address {
    pub(super) gid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) lid: u16,
    pub(super) sl: u8,
    pub(super) path_bits: u8,
    pub(super) global: bool,
    pub(super) gid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

impl Address {
    /// Which set: the address's bytes, multiplied together.
    fn set(&self) -> usize {
        let (high, low) = self.gid.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        let rest = u64::from(self.flow_label) << 32
            | u64::from(self.lid) << 16
            | u64::from(self.sl) << 8
            | u64::from(self.path_bits);
        let mixed = [word(high), word(low), rest]
            .into_iter()
            .fold(0u64, |hash, word| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        usize::try_from(mixed >> 48).unwrap_or(0) % SETS
    }

    fn attributes(&self, port: u8) -> sys::ibv_ah_attr {
        let grh = sys::ibv_global_route {
            dgid: sys::ibv_gid { raw: self.gid },
            flow_label: self.flow_label,
            sgid_index: self.gid_index,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
        };
        sys::ibv_ah_attr {
            grh,
            dlid: self.lid,
            sl: self.sl,
            src_path_bits: self.path_bits,
            static_rate: 0,
            is_global: u8::from(self.global),
            port_num: port,
        }
    }
}

/// An address handle, destroyed when dropped.
#[derive(Debug)]
struct Handle(NonNull<sys::ibv_ah>);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `Domain::address`, destroyed once; no request in flight names it (see the head of the module).
        unsafe { sys::ibv_destroy_ah(self.0.as_ptr()) };
    }
}

#[derive(Debug)]
struct Entry {
    address: Address,
    handle: Handle,
    /// Sequence number of the last request that names it.
    last_use: u64,
}

/// Why there is no handle.
#[derive(Debug)]
pub(super) enum NoHandle {
    /// All places are in use by requests in flight; later there will be one.
    Busy,
    /// The device knows no way to this address.
    Unreachable,
}

/// The table.
#[derive(Debug)]
pub(super) struct Handles {
    entries: Box<[[Option<Entry>; WAYS]]>,
    waiting: Box<[Option<Entry>]>,
    waiting_count: usize,
    domain: Rc<Domain>,
    port: u8,
}

impl Handles {
    pub(super) fn new(domain: &Rc<Domain>, port: u8) -> Self {
        let entries = (0..SETS).map(|_| [const { None }; WAYS]).collect();
        let waiting = (0..WAITING).map(|_| None).collect();
        Self { entries, waiting, waiting_count: 0, domain: domain.clone(), port }
    }

    /// The handle of `address`, for the request `sequence`; requests before `done` have completed.
    pub(super) fn get(
        &mut self,
        address: &Address,
        sequence: u64,
        done: u64,
    ) -> Result<*mut sys::ibv_ah, NoHandle> {
        let set = &mut self.entries[address.set()];
        for entry in set.iter_mut().flatten() {
            if entry.address == *address {
                entry.last_use = sequence;
                return Ok(entry.handle.0.as_ptr());
            }
        }
        self.add(address, sequence, done)
    }

    #[cold]
    fn add(&mut self, address: &Address, sequence: u64, done: u64) -> Result<*mut sys::ibv_ah, NoHandle> {
        if self.waiting_count > 0 {
            self.bury(done);
        }
        let set = &mut self.entries[address.set()];
        let oldest = set.iter().map(|place| place.as_ref().map_or(0, |entry| entry.last_use + 1));
        let place = oldest.enumerate().min_by_key(|(_, age)| *age).map_or(0, |(place, _)| place);
        let in_flight = set[place].as_ref().is_some_and(|entry| entry.last_use >= done);
        let grave = self.waiting.iter_mut().find(|place| place.is_none());
        if in_flight && grave.is_none() {
            return Err(NoHandle::Busy);
        }
        let mut attributes = address.attributes(self.port);
        let handle = Handle(self.domain.address(&mut attributes).map_err(|_| NoHandle::Unreachable)?);
        let raw = handle.0.as_ptr();
        let old = set[place].replace(Entry { address: *address, handle, last_use: sequence });
        if in_flight && let Some(grave) = grave {
            *grave = old;
            self.waiting_count += 1;
        }
        Ok(raw)
    }

    /// True if a handle waits for requests to complete.
    pub(super) fn wants_completions(&self) -> bool {
        self.waiting_count > 0
    }

    /// Destroys what waits and is no longer named.
    fn bury(&mut self, done: u64) {
        for place in &mut self.waiting {
            if place.as_ref().is_some_and(|entry| entry.last_use < done) {
                *place = None;
                self.waiting_count -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_differ_in_one_field_spread_over_the_sets() {
        let mut hit = [false; SETS];
        for lid in 1..=512 {
            hit[Address { lid, ..Address::default() }.set()] = true;
        }
        assert!(hit.iter().filter(|hit| **hit).count() > SETS / 2);
    }

    #[test]
    fn attributes_say_what_the_address_says() {
        let address = Address {
            gid: [7; 16],
            flow_label: 9,
            lid: 0x1234,
            sl: 3,
            path_bits: 1,
            global: true,
            gid_index: 2,
            hop_limit: 64,
            traffic_class: 5,
        };
        let attributes = address.attributes(1);
        assert_eq!((attributes.dlid, attributes.sl, attributes.src_path_bits), (0x1234, 3, 1));
        assert_eq!((attributes.is_global, attributes.port_num), (1, 1));
        assert_eq!((attributes.grh.flow_label, attributes.grh.sgid_index), (9, 2));
        assert_eq!((attributes.grh.hop_limit, attributes.grh.traffic_class), (64, 5));
        // SAFETY: every byte of the union is initialised.
        assert_eq!(unsafe { attributes.grh.dgid.raw }, [7; 16]);
    }
}
