//! The published tenants with what is theirs.
//!
//! Plain values made from a copy of the table and one look at the sessions.

use std::collections::HashMap;

use madplane_shm::status::{MAX_SESSIONS, Status};
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use serde::Serialize;

use super::Head;
use super::table::TableCopy;
use crate::protocol::TenantUse;
use crate::tenant::{RawTenant, Tenant};

/// The published tenants.
#[derive(Debug, Clone, Serialize)]
pub struct TenantTable {
    /// The plane, if it has shown itself.
    pub plane: Option<Head>,
    /// Generation of the copy.
    pub generation: u64,
    /// Places.
    pub capacity: u32,
    /// Process id of madctld, also of a dead one.
    pub writer_pid: u32,
    /// Routes and tenants that are damaged and not shown.
    pub damaged: u32,
    /// By number.
    pub tenants: Vec<TenantUse>,
}

impl TenantTable {
    pub(crate) fn of(copy: &TableCopy, seen: Option<(Status, Head)>) -> Self {
        let mut routes: HashMap<u16, usize> = HashMap::new();
        copy.routes.iter().for_each(|placed| *routes.entry(placed.tenant).or_default() += 1);
        let sessions = seen.as_ref().map(|(status, _)| sessions(status)).unwrap_or_default();
        let mut damaged = copy.damaged;
        let mut tenants = Vec::with_capacity(copy.tenants.len());
        for (number, entry) in &copy.tenants {
            let Some(tenant) = Tenant::from_entry(entry) else {
                damaged += 1;
                continue;
            };
            tenants.push(TenantUse {
                tenant: RawTenant::from(&tenant),
                number: *number,
                tenant_id: entry.id,
                routes: routes.get(number).copied().unwrap_or(0),
                sessions: sessions.get(&u32::from(*number)).copied().unwrap_or(0),
            });
        }
        Self {
            plane: seen.map(|(_, head)| head),
            generation: copy.reader.generation(),
            capacity: copy.reader.options().tenants,
            writer_pid: copy.reader.writer().pid,
            damaged,
            tenants,
        }
    }
}

/// How many sessions each tenant has.
fn sessions(status: &Status) -> HashMap<u32, usize> {
    let mut found = HashMap::new();
    for index in 0..MAX_SESSIONS {
        let record = status.session(index);
        // pairs with the release in the plane's housekeeping: the other fields are stored by then
        if record.id.load(Acquire) != 0 {
            *found.entry(record.tenant.load(Relaxed)).or_default() += 1;
        }
    }
    found
}
