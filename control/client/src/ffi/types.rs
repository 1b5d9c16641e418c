//! The structs of `include/madctl.h`, and how they are filled.
//!
//! Plain values, any thread. A text that does not fit is cut between characters; none of the plane's own is that long.

#![allow(missing_docs, reason = "described in the header")]

use std::mem::offset_of;

use madplane_shm::table::tenant::TenantEntry;
use madplane_shm::text::store_padded;

use crate::protocol;
use crate::route::OnBroken;
use crate::tenant::Priority;
use crate::view;

/// `MADCTL_NO_CPU`.
const NO_CPU: u32 = u32::MAX;
/// `MADCTL_NEVER`.
const NEVER: u64 = u64::MAX;

/// A text with its zero.
fn text<const N: usize>(from: &str) -> [u8; N] {
    let mut field = [0; N];
    store_padded(&mut field[..N - 1], from);
    field
}

fn ports(path: &[u8]) -> [u8; 64] {
    let mut field = [0; 64];
    field.iter_mut().zip(path).for_each(|(to, port)| *to = *port);
    field
}

fn small(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

fn length<T>(list: &[T]) -> u8 {
    u8::try_from(list.len()).unwrap_or(u8::MAX)
}

fn broken(what: OnBroken) -> u8 {
    match what {
        OnBroken::Fallback => 0,
        OnBroken::Drop => 1,
    }
}

/// `struct madctl_plane`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Plane {
    pub state: u32,
    pub running: u32,
    pub pid: u32,
    pub control_pid: u32,
    pub workers: u32,
    pub default_port: u32,
    pub session_slots: u32,
    pub huge_pages: u32,
    pub heartbeat_age_ns: u64,
    pub started_unix_ns: u64,
    pub uptime_ns: u64,
    pub startup_ns: u64,
    pub nodes: u64,
    pub switches: u64,
    pub links: u64,
    pub sessions: u64,
    pub default_node_guid: u64,
    pub name: [u8; 64],
    pub version: [u8; 72],
    pub fabric: [u8; 264],
}

impl From<&view::PlaneStatus> for Plane {
    fn from(from: &view::PlaneStatus) -> Self {
        Self {
            state: from.head.state as u32,
            running: from.head.running.into(),
            pid: from.head.pid,
            control_pid: from.control.pid.unwrap_or(0),
            workers: small(from.workers.len()),
            default_port: from.default_port,
            session_slots: from.session_slots,
            huge_pages: from.huge_pages.into(),
            heartbeat_age_ns: from.head.heartbeat_age_ns,
            started_unix_ns: from.started_unix_ns,
            uptime_ns: from.uptime_ns.unwrap_or(0),
            startup_ns: from.startup_ns,
            nodes: from.nodes,
            switches: from.switches,
            links: from.links,
            sessions: from.sessions,
            default_node_guid: from.default_node_guid,
            name: text(&from.head.name),
            version: text(&from.head.version),
            fabric: text(&from.fabric),
        }
    }
}

/// `struct madctl_worker`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Worker {
    pub worker: u32,
    pub cpu: u32,
    pub thread: u32,
    pub silent: u32,
    pub heartbeat_age_ns: u64,
    pub polls_full: u64,
    pub polls_empty: u64,
    pub longest_cycle_ns: u64,
    pub stalls: u64,
    pub sessions: u64,
    pub nodes: u64,
    pub applied_generation: u64,
    pub busy_share: f64,
}

impl From<&view::Worker> for Worker {
    fn from(from: &view::Worker) -> Self {
        Self {
            worker: small(from.worker),
            cpu: from.cpu.unwrap_or(NO_CPU),
            thread: from.thread,
            silent: from.silent.into(),
            heartbeat_age_ns: from.heartbeat_age_ns,
            polls_full: from.polls_full,
            polls_empty: from.polls_empty,
            longest_cycle_ns: from.longest_cycle_ns,
            stalls: from.stalls,
            sessions: from.sessions,
            nodes: from.nodes,
            applied_generation: from.applied_generation,
            busy_share: from.busy_share,
        }
    }
}

/// `struct madctl_session`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Session {
    pub session: u32,
    pub pid: u32,
    pub uid: u32,
    pub port: u32,
    pub worker: u32,
    pub agents: u32,
    pub tenant: u32,
    pub service_class: u32,
    pub node_guid: u64,
    pub since_unix_ns: u64,
    pub received: u64,
    pub sent: u64,
    pub dropped: u64,
    pub path_len: u32,
    pub path_on_broken: u32,
    pub path: [u8; 64],
    pub tenant_name: [u8; 40],
    pub program: [u8; 40],
    pub node: [u8; 72],
}

impl From<&view::Session> for Session {
    fn from(from: &view::Session) -> Self {
        Self {
            session: from.session,
            pid: from.pid,
            uid: from.uid,
            port: from.port,
            worker: from.worker,
            agents: from.agents,
            tenant: from.tenant,
            service_class: u32::from(from.class == Priority::Reserved),
            node_guid: from.node_guid,
            since_unix_ns: from.since_unix_ns,
            received: from.received,
            sent: from.sent,
            dropped: from.dropped,
            path_len: small(from.path.len()),
            path_on_broken: from.path_on_broken.map_or(0, |what| broken(what).into()),
            path: ports(&from.path),
            tenant_name: text(&from.tenant_name),
            program: text(&from.program),
            node: text(&from.node),
        }
    }
}

/// `struct madctl_counter`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Counter {
    pub value: u64,
    pub is_drop: u32,
    pub reserved: u32,
    pub stage: [u8; 16],
    pub name: [u8; 64],
}

impl Counter {
    pub(super) fn of(from: &view::Count, is_drop: bool) -> Self {
        Self {
            value: from.value,
            is_drop: is_drop.into(),
            reserved: 0,
            stage: text(from.stage.unwrap_or_default()),
            name: text(&from.name),
        }
    }
}

/// `struct madctl_error`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ErrorEntry {
    pub count: u64,
    pub first_unix_ns: u64,
    pub last_unix_ns: u64,
    pub source: u32,
    pub reserved: u32,
    pub text: [u8; 232],
}

impl From<&view::ErrorEntry> for ErrorEntry {
    fn from(from: &view::ErrorEntry) -> Self {
        Self {
            count: from.count,
            first_unix_ns: from.first_unix_ns,
            last_unix_ns: from.last_unix_ns,
            source: from.source as u32,
            reserved: 0,
            text: text(&from.text),
        }
    }
}

/// `struct madctl_percentiles`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Percentiles {
    pub count: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl From<&protocol::Latency> for Percentiles {
    fn from(from: &protocol::Latency) -> Self {
        Self {
            count: from.count,
            p50_ns: from.p50_ns,
            p90_ns: from.p90_ns,
            p99_ns: from.p99_ns,
            p999_ns: from.p999_ns,
            max_ns: from.max_ns,
        }
    }
}

/// `struct madctl_table`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Table {
    pub generation: u64,
    pub dr_cache_hit: u64,
    pub dr_cache_miss: u64,
    pub retry_count: u64,
    pub refused: u64,
    pub capacity: u32,
    pub routes: u32,
    pub damaged: u32,
    pub writer_pid: u32,
}

impl From<&view::RouteTable> for Table {
    fn from(from: &view::RouteTable) -> Self {
        let workers = from.workers.clone().unwrap_or_default();
        Self {
            generation: from.generation,
            dr_cache_hit: workers.dr_cache_hit,
            dr_cache_miss: workers.dr_cache_miss,
            retry_count: workers.retry_count,
            refused: workers.refused,
            capacity: from.capacity,
            routes: small(from.routes.len()),
            damaged: from.damaged,
            writer_pid: from.writer_pid,
        }
    }
}

/// `struct madctl_route`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Route {
    pub slid: u16,
    pub dlid: u16,
    pub p_key: u16,
    pub tenant: u16,
    pub priority: u8,
    pub on_broken: u8,
    pub path_len: u8,
    pub reserved: u8,
    pub place: u32,
    pub id: u64,
    pub packets: u64,
    pub bytes: u64,
    pub last_use_age_ns: u64,
    pub path: [u8; 64],
    pub tenant_name: [u8; 32],
}

impl From<&view::RouteLine> for Route {
    fn from(from: &view::RouteLine) -> Self {
        Self {
            slid: from.slid,
            dlid: from.dlid,
            p_key: from.p_key,
            tenant: from.tenant,
            priority: from.priority,
            on_broken: broken(from.on_broken),
            path_len: length(&from.path),
            reserved: 0,
            place: from.place,
            id: from.id,
            packets: from.packets,
            bytes: from.bytes,
            last_use_age_ns: from.last_use_age_ns.unwrap_or(NEVER),
            path: ports(&from.path),
            tenant_name: text(from.tenant_name.as_deref().unwrap_or_default()),
        }
    }
}

/// `struct madctl_tenant`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Tenant {
    pub id: u64,
    pub classes: [u64; 4],
    pub nodes: [u64; 8],
    pub uids: [u32; 8],
    pub gids: [u32; 8],
    pub p_keys: [u16; 32],
    pub prefixes: [[u8; 16]; 4],
    pub number: u32,
    pub rate: u32,
    pub burst: u32,
    pub routes: u32,
    pub sessions: u32,
    pub rights: u8,
    pub service_class: u8,
    pub p_key_count: u8,
    pub uid_count: u8,
    pub gid_count: u8,
    pub node_count: u8,
    pub prefix_count: u8,
    pub reserved: [u8; 5],
    pub name: [u8; 32],
}

impl Tenant {
    pub(super) fn of(entry: &TenantEntry, used: &protocol::TenantUse) -> Self {
        let prefixes = entry.prefixes.map(|prefix| {
            let mut field = [0; 16];
            field[0] = prefix.len;
            field[1..].copy_from_slice(&prefix.ports);
            field
        });
        Self {
            id: entry.id,
            classes: entry.classes,
            nodes: entry.nodes,
            uids: entry.uids,
            gids: entry.gids,
            p_keys: entry.p_keys,
            prefixes,
            number: used.number.into(),
            rate: entry.rate,
            burst: entry.burst,
            routes: small(used.routes),
            sessions: small(used.sessions),
            rights: entry.rights,
            service_class: entry.class,
            p_key_count: entry.p_key_count,
            uid_count: entry.uid_count,
            gid_count: entry.gid_count,
            node_count: entry.node_count,
            prefix_count: entry.prefix_count,
            reserved: [0; 5],
            name: text(entry.name()),
        }
    }
}

const _: () = {
    assert!(size_of::<Plane>() == 504);
    assert!(size_of::<Worker>() == 88);
    assert!(size_of::<Session>() == 296);
    assert!(size_of::<Counter>() == 96);
    assert!(size_of::<ErrorEntry>() == 264);
    assert!(size_of::<Percentiles>() == 48);
    assert!(size_of::<Table>() == 56);
    assert!(size_of::<Route>() == 144);
    assert!(size_of::<Tenant>() == 360);
    // the same as in tests/c/abi.c
    assert!(offset_of!(Plane, default_node_guid) == 96 && offset_of!(Plane, version) == 168);
    assert!(offset_of!(Worker, busy_share) == 80);
    assert!(offset_of!(Session, path) == 80 && offset_of!(Session, node) == 224);
    assert!(offset_of!(Counter, name) == 32);
    assert!(offset_of!(ErrorEntry, text) == 32);
    assert!(offset_of!(Table, capacity) == 40);
    assert!(offset_of!(Route, id) == 16 && offset_of!(Route, tenant_name) == 112);
    assert!(offset_of!(Tenant, p_keys) == 168 && offset_of!(Tenant, number) == 296);
    assert!(offset_of!(Tenant, name) == 328);
};
