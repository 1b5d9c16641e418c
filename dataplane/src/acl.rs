//! What tenants may do: their entries of the table, compiled, and the check of every MAD that a tenant's session sends.
//!
//! Each worker owns an [`Acl`], which its route view keeps up to date; [`Meters`] are shared by all of them, so that a rate
//! limit counts for the plane. Invariants: a check is bounded and neither allocates nor waits; a refusal is exactly one
//! [`DropReason`]; whoever belongs to no tenant is never asked. What only another place can know is left to it by the
//! packet's [`right`]s: whether a node may be managed, to that node; how a P_Key meets a port's, to that port.
//!
//! | field | who writes | who reads | ordering |
//! |---|---|---|---|
//! | [`Acl`] | its worker | its worker | none |
//! | a word of [`Meters`] | any worker | any worker | relaxed compare-and-swap; nothing else hangs on it |
//!
//! Not here: who may attach as a tenant (`attach/tenancy.rs`), and which routes serve a tenant (the engine).

use std::sync::Arc;

use madplane_engine::{Packet, partition, right};
use madplane_shm::drop_reason::DropReason;
use madplane_shm::sync::{AtomicU64, Ordering};
use madplane_shm::table::MAX_TENANTS;
use madplane_shm::table::tenant::{TenantEntry, place_of, service_class, tenant_right};
use madplane_wire::Mad;
use madplane_wire::mad::{class, is_smp_class, method};
use madplane_wire::smp::{self, PERMISSIVE_LID};

/// As whom a session was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Membership {
    /// Number of the tenant: its place in the table plus 1; 0 for nobody's session, which may do everything.
    pub tenant: u16,
    /// Control's number of the tenant, by which a successor at the same place is told apart.
    pub id: u64,
}

impl Membership {
    /// Belongs to no tenant.
    pub const NONE: Self = Self { tenant: 0, id: 0 };

    /// Whether it is no tenant's.
    pub fn is_none(self) -> bool {
        self.tenant == 0
    }
}

/// Parts of a nanosecond in which rates are kept, so that rounding does not show.
const PARTS_PER_NS: u64 = 16;
/// How much the clocks of two workers may differ, in the same parts: no duty cycle is as long.
const SKEW: u64 = 1_000_000_000 * PARTS_PER_NS;
/// Attempts to count a MAD while other workers count theirs.
const ATTEMPTS: u32 = 64;

/// How far each tenant has used its rate up.
#[derive(Debug)]
pub struct Meters {
    /// When the bucket will be full again, in parts of a nanosecond.
    full_at: Box<[AtomicU64]>,
}

impl Default for Meters {
    fn default() -> Self {
        Self { full_at: (0..MAX_TENANTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Meters {
    /// Takes one token that costs `price` from a bucket as deep as `depth`, both as time; false if there is none.
    fn take(&self, tenant: u16, now_ns: u64, price: u64, depth: u64) -> bool {
        let Some(word) = place_of(tenant).and_then(|place| self.full_at.get(place as usize)) else {
            return true;
        };
        let now = now_ns.saturating_mul(PARTS_PER_NS);
        let empty = now.saturating_add(depth);
        let mut seen = word.load(Ordering::Relaxed);
        for _ in 0..ATTEMPTS {
            let next = seen.max(now).saturating_add(price);
            let granted = next <= empty;
            if !granted && seen <= empty.saturating_add(SKEW) {
                return false;
            }
            // a bucket that much emptier than empty is that of a former, slower limit
            let new = if granted { next } else { empty };
            match word.compare_exchange_weak(seen, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return granted,
                Err(other) => seen = other,
            }
        }
        false
    }
}

/// One tenant as the packet path wants it.
#[derive(Debug)]
struct Compiled {
    id: u64,
    classes: [u64; 4],
    /// Time per MAD, 0 for no limit, and of a full bucket; in parts of a nanosecond.
    price: u64,
    depth: u64,
    rights: u8,
    reserved: bool,
    /// SMP requests are limited to nodes or paths.
    scoped: bool,
    p_keys: Box<[u16]>,
    nodes: Box<[u64]>,
    prefixes: Box<[Box<[u8]>]>,
}

impl Compiled {
    fn new(entry: &TenantEntry) -> Self {
        let price =
            if entry.rate == 0 { 0 } else { (1_000_000_000 * PARTS_PER_NS / u64::from(entry.rate)).max(1) };
        let (nodes, prefixes) = (entry.nodes(), entry.prefixes());
        Self {
            id: entry.id,
            classes: entry.classes,
            price,
            depth: price.saturating_mul(u64::from(entry.burst.max(1))),
            rights: entry.rights,
            reserved: entry.class == service_class::RESERVED,
            scoped: !(nodes.is_empty() && prefixes.is_empty()),
            p_keys: entry.p_keys().into(),
            nodes: nodes.into(),
            prefixes: prefixes.iter().map(|prefix| prefix.ports().into()).collect(),
        }
    }

    /// What an SMP of this tenant may do, as the rights that it travels with.
    fn smp_rights(&self, mad: Mad<'_>) -> Result<u8, DropReason> {
        if self.rights & needed_right(mad) == 0 {
            return Err(if needed_right(mad) == tenant_right::SMP_GET {
                DropReason::TenantSmpGet
            } else {
                DropReason::TenantSmpSet
            });
        }
        if !self.scoped || mad.has_r_bit() || self.prefixes.iter().any(|ports| starts_with(mad, ports)) {
            return Ok(0);
        }
        if self.nodes.is_empty() { Err(DropReason::TenantScope) } else { Ok(right::CHECK_NODE) }
    }
}

/// The right that an SMP needs: what does not only read may change something.
fn needed_right(mad: Mad<'_>) -> u8 {
    if mad.has_r_bit() || mad.method() == method::GET { tenant_right::SMP_GET } else { tenant_right::SMP_SET }
}

/// Whether `mad` starts on the directed path `ports` from its sender, and goes no other way afterwards than by its path.
fn starts_with(mad: Mad<'_>, ports: &[u8]) -> bool {
    let bytes = mad.as_bytes();
    is_directed_from_here(mad)
        && ports.len() <= usize::from(smp::field::HOP_COUNT.get_u8(bytes))
        && bytes.get(smp::INITIAL_PATH + 1..smp::INITIAL_PATH + 1 + ports.len()) == Some(ports)
}

/// A request on a directed route without LID-routed parts before or behind.
fn is_directed_from_here(mad: Mad<'_>) -> bool {
    let bytes = mad.as_bytes();
    mad.mgmt_class() == class::SUBN_DIRECTED
        && !smp::field::DIRECTION.get_bool(bytes)
        && smp::field::DR_SLID.get_u16(bytes) == PERMISSIVE_LID
        && smp::field::DR_DLID.get_u16(bytes) == PERMISSIVE_LID
}

/// Whether `mad` reads what the sender's own node says of itself, which is no secret from any program on a host: the
/// kernel shows it in /sys, and a library has to know it before it can do anything.
fn asks_own_node(mad: Mad<'_>) -> bool {
    is_directed_from_here(mad)
        && mad.method() == method::GET
        && smp::field::HOP_COUNT.get_u8(mad.as_bytes()) == 0
}

/// The tenants, by number.
#[derive(Debug, Default)]
pub struct Acl {
    tenants: Vec<Option<Box<Compiled>>>,
    reserved: usize,
    meters: Arc<Meters>,
}

impl Acl {
    /// Knows no tenant yet.
    pub fn new(meters: Arc<Meters>) -> Self {
        Self { meters, ..Self::default() }
    }

    /// Takes over the entry at `place`, counted from 0. Allocates; for changes of the table only.
    pub fn set(&mut self, place: u32, entry: Option<&TenantEntry>) {
        let place = place as usize;
        if place >= self.tenants.len() {
            if entry.is_none() {
                return;
            }
            self.tenants.resize_with(place + 1, || None);
        }
        if let Some(there) = self.tenants.get_mut(place) {
            self.reserved -= usize::from(there.as_ref().is_some_and(|tenant| tenant.reserved));
            *there = entry.map(|entry| Box::new(Compiled::new(entry)));
            self.reserved += usize::from(there.as_ref().is_some_and(|tenant| tenant.reserved));
        }
    }

    /// Forgets every tenant, before another table takes over.
    pub fn clear(&mut self) {
        self.tenants.clear();
        self.reserved = 0;
    }

    /// Whether any tenant is of the reserved class.
    pub fn has_reserved(&self) -> bool {
        self.reserved > 0
    }

    /// Whether MADs of this member are of the reserved class.
    pub fn is_reserved(&self, who: Membership) -> bool {
        self.tenant(who).is_some_and(|tenant| tenant.reserved)
    }

    /// Whether this member's tenant still exists.
    pub fn knows(&self, who: Membership) -> bool {
        self.tenant(who).is_some()
    }

    fn tenant(&self, who: Membership) -> Option<&Compiled> {
        self.at(who.tenant).filter(|tenant| tenant.id == who.id)
    }

    fn at(&self, tenant: u16) -> Option<&Compiled> {
        self.tenants.get(place_of(tenant)? as usize)?.as_deref()
    }

    /// Checks what a session of `who` sends and fills in what has to travel with it.
    ///
    /// `own_key` reads the P_Key with which the sender's port would send a GMP; `None` is left to the engine.
    ///
    /// # Errors
    /// Why the MAD may not be sent; it has then been counted nowhere.
    pub fn admit(
        &self,
        who: Membership,
        now_ns: u64,
        own_key: impl FnOnce(u16) -> Option<u16>,
        pkt: &mut Packet,
    ) -> Result<(), DropReason> {
        let Some(tenant) = self.tenant(who) else { return Err(DropReason::TenantGone) };
        let mad = Mad::new(&pkt.mad);
        let mgmt_class = mad.mgmt_class();
        let mut rights = if tenant.reserved { right::RESERVED } else { 0 };
        if !asks_own_node(mad) {
            if tenant.classes[usize::from(mgmt_class >> 6)] >> (mgmt_class & 63) & 1 == 0 {
                return Err(DropReason::TenantClass);
            }
            if is_smp_class(mgmt_class) {
                rights |= tenant.smp_rights(mad)?;
            }
        }
        if tenant.price != 0 && !self.meters.take(who.tenant, now_ns, tenant.price, tenant.depth) {
            return Err(DropReason::TenantRate);
        }
        if !is_smp_class(mgmt_class)
            && let Some(key) = own_key(pkt.p_key_index)
        {
            rights |= membership_right(&tenant.p_keys, key)?;
        }
        (pkt.tenant, pkt.rights) = (who.tenant, rights);
        Ok(())
    }

    /// Whether a session of `who` may be given a GMP with this P_Key.
    pub fn receives(&self, who: Membership, p_key: u16) -> bool {
        self.tenant(who).is_some_and(|tenant| partition::find_match(p_key, &tenant.p_keys).is_some())
    }

    /// Whether the tenant may send SMP requests to the node with this GUID; asked only where its paths do not allow it.
    pub fn may_manage(&self, tenant: u16, node_guid: u64) -> bool {
        self.at(tenant).is_some_and(|tenant| tenant.nodes.contains(&node_guid))
    }

    /// The P_Key of the tenant that a refused key was held against.
    pub fn counterpart(&self, who: Membership, p_key: u16) -> u16 {
        self.tenant(who).map_or(0, |tenant| partition::counterpart(p_key, &tenant.p_keys))
    }
}

/// How a tenant with these keys sends by a port that has `key`.
fn membership_right(p_keys: &[u16], key: u16) -> Result<u8, DropReason> {
    let number = key & !partition::FULL_MEMBER;
    let same = |full: u16| number != 0 && p_keys.contains(&(number | full));
    if same(partition::FULL_MEMBER) {
        Ok(0)
    } else if same(0) {
        Ok(right::AS_LIMITED)
    } else {
        Err(DropReason::TenantPKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_shm::table::tenant::PathPrefix;
    use madplane_wire::{MadMut, SmpMut};

    const WHO: Membership = Membership { tenant: 3, id: 77 };

    /// Tenant of place 2 with everything allowed, changed by `change`.
    fn acl(change: impl FnOnce(&mut TenantEntry)) -> Acl {
        let mut entry = TenantEntry::new("blue").unwrap();
        entry.id = WHO.id;
        entry.rights = tenant_right::ALL;
        entry.classes = [!0; 4];
        assert!(entry.set_p_keys(&[0x8001, 0x0002, 0xFFFF]));
        change(&mut entry);
        let mut acl = Acl::default();
        acl.set(2, Some(&entry));
        acl
    }

    fn directed(method: u8, path: &[u8]) -> Packet {
        let mut pkt = Packet::default();
        SmpMut::new(&mut pkt.mad).init_directed(method, 0x11, 0, 1, path);
        pkt
    }

    fn by_lid(method: u8) -> Packet {
        let mut pkt = Packet { dlid: 7, ..Packet::default() };
        SmpMut::new(&mut pkt.mad).init_lid_routed(method, 0x11, 0, 1);
        pkt
    }

    fn gmp(mgmt_class: u8) -> Packet {
        let mut pkt = Packet { dlid: 7, dst_qp: 1, ..Packet::default() };
        let mut mad = MadMut::new(&mut pkt.mad);
        mad.set_base_version(1);
        mad.set_mgmt_class(mgmt_class);
        mad.set_method(method::GET);
        pkt
    }

    /// What becomes of a packet whose port has `key`: the rights it gets, or why not.
    fn verdict(acl: &Acl, mut pkt: Packet, key: u16) -> Result<u8, DropReason> {
        acl.admit(WHO, 0, |_| Some(key), &mut pkt).map(|()| {
            assert_eq!(pkt.tenant, WHO.tenant);
            pkt.rights
        })
    }

    #[test]
    fn classes_and_smp_rights_are_refused_by_their_own_reason() {
        let no_class = acl(|t| t.allow_class(0x04, false));
        assert_eq!(verdict(&no_class, gmp(0x04), 0x8001), Err(DropReason::TenantClass));
        assert_eq!(verdict(&no_class, gmp(0x03), 0x8001), Ok(0));
        let response = method::GET | method::RESPONSE;
        // rights, method, directed too?
        let cases = [
            (0, method::GET, Err(DropReason::TenantSmpGet)),
            (0, method::SET, Err(DropReason::TenantSmpSet)),
            (0, response, Err(DropReason::TenantSmpGet)),
            (tenant_right::SMP_GET, method::GET, Ok(0)),
            (tenant_right::SMP_GET, response, Ok(0)),
            (tenant_right::SMP_GET, method::SET, Err(DropReason::TenantSmpSet)),
            (tenant_right::SMP_GET, method::TRAP, Err(DropReason::TenantSmpSet)),
            (tenant_right::SMP_GET, method::TRAP_REPRESS, Err(DropReason::TenantSmpSet)),
            (tenant_right::SMP_GET, method::REPORT, Err(DropReason::TenantSmpSet)),
            (tenant_right::SMP_GET, 0x33, Err(DropReason::TenantSmpSet)),
            (tenant_right::SMP_SET, method::SET, Ok(0)),
            (tenant_right::SMP_SET, method::GET, Err(DropReason::TenantSmpGet)),
            (tenant_right::ALL, method::TRAP_REPRESS, Ok(0)),
        ];
        for (rights, method, expected) in cases {
            let acl = acl(|t| t.rights = rights);
            for pkt in [by_lid(method), directed(method, &[1, 2])] {
                assert_eq!(verdict(&acl, pkt, 0), expected, "rights {rights} method {method:#x}");
            }
        }
    }

    #[test]
    fn the_own_node_may_be_read_by_anybody_and_nothing_else_of_it() {
        let acl = acl(|t| (t.rights, t.classes) = (0, [0; 4]));
        assert_eq!(verdict(&acl, directed(method::GET, &[]), 0), Ok(0));
        assert_eq!(verdict(&acl, directed(method::SET, &[]), 0), Err(DropReason::TenantClass));
        let mut tail = directed(method::GET, &[]);
        SmpMut::new(&mut tail.mad).set_dr_dlid(9);
        assert_eq!(verdict(&acl, tail, 0), Err(DropReason::TenantClass));
        let mut head = directed(method::GET, &[]);
        SmpMut::new(&mut head.mad).set_dr_slid(9);
        assert_eq!(verdict(&acl, head, 0), Err(DropReason::TenantClass));
        assert_eq!(verdict(&acl, by_lid(method::GET), 0), Err(DropReason::TenantClass));
    }

    #[test]
    fn a_scope_lets_paths_through_and_leaves_the_rest_to_the_node() {
        let prefix = |ports: &[u8]| PathPrefix::new(ports).unwrap();
        let scoped = acl(|t| {
            assert!(t.set_prefixes(&[prefix(&[1, 4]), prefix(&[2])]) && t.set_nodes(&[0x51]));
        });
        let ask = Ok(right::CHECK_NODE);
        for (path, expected) in [
            (&[1, 4][..], Ok(0)),
            (&[1, 4, 9], Ok(0)),
            (&[2, 200], Ok(0)),
            (&[1], ask),
            (&[1, 5, 4], ask),
            (&[4, 1], ask),
        ] {
            for method in [method::GET, method::SET] {
                assert_eq!(verdict(&scoped, directed(method, path), 0), expected, "{path:?}");
            }
        }
        assert_eq!(verdict(&scoped, by_lid(method::GET), 0), ask);
        assert_eq!(verdict(&scoped, by_lid(method::GET | method::RESPONSE), 0), Ok(0), "an answer");
        // a path that begins somewhere else, or goes on by LID, does not stay below its prefix
        let mut tail = directed(method::GET, &[1, 4]);
        SmpMut::new(&mut tail.mad).set_dr_dlid(9);
        let mut head = directed(method::GET, &[1, 4]);
        SmpMut::new(&mut head.mad).set_dr_slid(9);
        let mut returning = directed(method::GET, &[1, 4]);
        smp::field::DIRECTION.set(&mut returning.mad, 1);
        let mut behind = directed(method::GET, &[1, 4]);
        smp::field::HOP_COUNT.set(&mut behind.mad, 1);
        for pkt in [tail, head, returning, behind] {
            assert_eq!(verdict(&scoped, pkt, 0), ask);
        }
        assert!(scoped.may_manage(WHO.tenant, 0x51) && !scoped.may_manage(WHO.tenant, 0x52));
        assert!(!scoped.may_manage(1, 0x51) && !scoped.may_manage(0, 0x51));
        let paths_only = acl(|t| assert!(t.set_prefixes(&[prefix(&[1, 4])])));
        assert_eq!(verdict(&paths_only, by_lid(method::GET), 0), Err(DropReason::TenantScope));
        assert_eq!(verdict(&paths_only, directed(method::GET, &[1]), 0), Err(DropReason::TenantScope));
    }

    #[test]
    fn a_gmp_goes_with_the_lesser_membership() {
        let acl = acl(|_| {});
        for (key, expected) in [
            (0x8001, Ok(0)),
            (0x0001, Ok(0)),
            (0x8002, Ok(right::AS_LIMITED)),
            (0x0002, Ok(right::AS_LIMITED)),
            (0x7FFF, Ok(0)),
            (0x8003, Err(DropReason::TenantPKey)),
            (0x8000, Err(DropReason::TenantPKey)),
            (0, Err(DropReason::TenantPKey)),
        ] {
            assert_eq!(verdict(&acl, gmp(0x04), key), expected, "{key:#x}");
        }
        // no such entry: the engine's business; SMPs have no P_Key
        assert_eq!(acl.admit(WHO, 0, |_| None, &mut gmp(0x04)), Ok(()));
        assert_eq!(verdict(&acl, by_lid(method::GET), 0x8003), Ok(0));
        for (key, taken) in
            [(0x8001, true), (0x0001, true), (0x8002, true), (0x0002, false), (0x7FFF, true), (0x8003, false)]
        {
            assert_eq!(acl.receives(WHO, key), taken, "{key:#x}");
        }
        assert_eq!(acl.counterpart(WHO, 0x0002), 0x0002);
        assert_eq!(acl.counterpart(WHO, 0x8009), 0x8001);
    }

    #[test]
    fn a_deleted_tenant_sends_nothing_and_a_successor_at_its_place_does_not_help() {
        let mut acl = acl(|_| {});
        assert!(acl.knows(WHO));
        let mut successor = TenantEntry::new("red").unwrap();
        successor.id = WHO.id + 1;
        successor.classes = [!0; 4];
        for entry in [Some(&successor), None] {
            acl.set(2, entry);
            assert_eq!(verdict(&acl, gmp(0x04), 0x8001), Err(DropReason::TenantGone));
            assert_eq!(verdict(&acl, directed(method::GET, &[]), 0), Err(DropReason::TenantGone));
            assert!(!acl.receives(WHO, 0x8001) && !acl.knows(WHO));
        }
    }

    #[test]
    fn the_reserved_class_is_a_right_of_every_mad() {
        let mut acl = acl(|t| t.class = service_class::RESERVED);
        assert!(acl.has_reserved() && acl.is_reserved(WHO) && !acl.is_reserved(Membership::NONE));
        assert_eq!(verdict(&acl, gmp(0x04), 0x8002), Ok(right::RESERVED | right::AS_LIMITED));
        assert_eq!(verdict(&acl, by_lid(method::GET), 0), Ok(right::RESERVED));
        acl.set(2, None);
        acl.set(9, None);
        assert!(!acl.has_reserved());
    }

    /// MADs granted of one that comes every `gap_ns` for `for_ns`.
    fn granted(acl: &Acl, from_ns: u64, gap_ns: u64, for_ns: u64) -> u64 {
        let times = (0..).map(|n| from_ns + n * gap_ns).take_while(|at| *at < from_ns + for_ns);
        times.map(|at| u64::from(acl.admit(WHO, at, |_| None, &mut gmp(0x04)).is_ok())).sum()
    }

    /// MADs granted of `count` that come at once.
    fn flood(acl: &Acl, at_ns: u64, count: u64) -> u64 {
        (0..count).map(|_| granted(acl, at_ns, 1, 1)).sum()
    }

    #[test]
    fn a_rate_is_kept_with_its_burst_on_top() {
        let second = 1_000_000_000;
        for (rate, burst) in [(1000, 1), (1000, 64), (333, 7), (1, 3), (2_000_000, 100)] {
            let acl = acl(|t| (t.rate, t.burst) = (rate, burst));
            let start = 5 * second;
            let (rate, burst) = (u64::from(rate), u64::from(burst));
            // a flood at once, then for a second, then after a long pause
            assert_eq!(flood(&acl, start, burst + 50), burst);
            let got = granted(&acl, start, 200, second);
            assert!((rate - 1..=rate + 1).contains(&got), "{rate} a second, {got} granted");
            assert_eq!(
                (0..burst + 50).map(|_| granted(&acl, start + 3600 * second, 1, 1)).sum::<u64>(),
                burst
            );
        }
    }

    #[test]
    fn no_rate_is_no_limit_and_a_new_limit_counts_at_once() {
        let mut acl = acl(|t| (t.rate, t.burst) = (0, 1));
        assert_eq!(granted(&acl, 0, 1, 10_000), 10_000);
        let limited = |acl: &mut Acl, rate, burst| {
            let mut entry = TenantEntry::new("blue").unwrap();
            (entry.id, entry.classes, entry.rate, entry.burst) = (WHO.id, [!0; 4], rate, burst);
            acl.set(2, Some(&entry));
        };
        // one a second with a thousand at once: the bucket would need a thousand seconds to fill again
        limited(&mut acl, 1, 1000);
        assert_eq!(flood(&acl, 0, 2000), 1000);
        limited(&mut acl, 1_000_000, 10);
        let got = granted(&acl, 0, 100, 1_000_000);
        assert!((990..=1000).contains(&got), "a millisecond of a million a second: {got}");
    }

    #[test]
    fn a_rate_is_shared_by_all_workers() {
        let meters = Arc::new(Meters::default());
        let mut entry = TenantEntry::new("blue").unwrap();
        (entry.id, entry.classes, entry.rate, entry.burst) = (WHO.id, [!0; 4], 1000, 100);
        let total: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    let mut acl = Acl::new(meters.clone());
                    acl.set(2, Some(&entry));
                    scope.spawn(move || granted(&acl, 0, 1000, 1_000_000_000))
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!((1090..=1101).contains(&total), "{total}");
    }
}
