//! The tenants of the desk: requests about them, and who uses them.
//!
//! Part of [`RouteDesk`], on its thread. Sessions are counted in the plane's status segment; without a plane there are none.

use std::time::Instant;

use madplane_shm::status::MAX_SESSIONS;
use madplane_shm::sync::Ordering::{Acquire, Relaxed};
use madplane_shm::table::tenant::number_of;
use serde_json::Value;
use tracing::info;

use super::{Change, RouteDesk};
use crate::admin_tenants::{TenantAction, TenantUse, TenantsDone, TenantsShown};
use crate::answer::Answer;
use crate::cli::output::count;
use crate::file_part::FilePart;
use crate::routes;
use crate::tenants::{self, RawTenant, TableError, Tenant};

/// Tenants in one answer: the largest still fit into a line of the protocol.
const SHOWN_AT_ONCE: usize = 32;

impl RouteDesk {
    /// Carries out a request about tenants; the reply, unless the workers have to have it first.
    pub fn carry_out_tenants(
        &mut self,
        peer: u64,
        id: Value,
        action: TenantAction,
        now: Instant,
    ) -> Option<Answer> {
        let changed = match action {
            TenantAction::Show { name, from } => {
                return Some(match self.show_tenants(name.as_deref(), from) {
                    Ok(shown) => Answer::done(&id, &shown),
                    Err(text) => Answer::failed(id, text),
                });
            }
            TenantAction::Add { tenant, replace, sync } => {
                let added = self.add_tenants(vec![tenant], replace);
                added.map_err(|refused| refused.1).map(|done| (done, sync))
            }
            TenantAction::Remove { name, force, sync } => {
                self.remove_tenant(&name, force).map(|done| (done, sync))
            }
            TenantAction::Load(FilePart { lines, more, replace, sync }) => {
                let Some(file) = self.staged_tenants.take(peer, lines, more, self.tenants.capacity()) else {
                    return Some(Answer::done(&id, &self.describe_tenants(TenantsDone::default())));
                };
                let added = self.add_tenants(file.entries, replace);
                added.map_err(|refused| file.numbers.name(refused)).map(|done| (done, sync))
            }
        };
        match changed {
            Ok((done, sync)) => self.bring(peer, id, Change::Tenants(done), sync, now),
            Err(text) => Some(Answer::failed(id, text)),
        }
    }

    fn add_tenants(&mut self, list: Vec<Tenant>, replace: bool) -> Result<TenantsDone, (usize, String)> {
        let add = |tenant| tenants::Change::Add { tenant, replace };
        let changes: Vec<tenants::Change> = list.into_iter().map(add).collect();
        match self.tenants.apply(&changes) {
            Ok(applied) => {
                info!(version = applied.version, applied.added, applied.replaced, "tenants changed");
                let (added, replaced) = (applied.added, applied.replaced);
                Ok(TenantsDone { added, replaced, ..TenantsDone::default() })
            }
            Err(refused) => {
                if let TableError::Full { capacity, .. } = refused.why {
                    self.table_full(&format!("tenant table full (max={capacity}), refusing tenant"));
                }
                Err((refused.position, refused.why.to_string()))
            }
        }
    }

    /// Takes a tenant out, with its routes if it has any and `force` is given.
    fn remove_tenant(&mut self, name: &str, force: bool) -> Result<TenantsDone, String> {
        let Some(number) = self.tenants.number(name) else {
            return Err(self.tenants.unknown(name).to_string());
        };
        let sessions = self.sessions_of_tenants().into_iter().filter(|of| *of == u32::from(number)).count();
        let keys = self.table.of_tenant(number);
        if !force && (sessions > 0 || !keys.is_empty()) {
            let of = |number: usize, what| count(u64::try_from(number).unwrap_or(u64::MAX), what);
            return Err(format!(
                "tenant {name} has {} and {}; take it out with --force, and they go too",
                of(sessions, "session"),
                of(keys.len(), "route")
            ));
        }
        let changes: Vec<routes::Change> = keys.into_iter().map(routes::Change::Remove).collect();
        let routes_removed = self.table.apply(&changes).map_err(|refused| refused.why.to_string())?.removed;
        let removal = [tenants::Change::Remove(name.to_owned())];
        let applied = self.tenants.apply(&removal).map_err(|refused| refused.why.to_string())?;
        info!(version = applied.version, name, routes_removed, sessions, "tenant removed");
        Ok(TenantsDone { removed: applied.removed, routes_removed, sessions, ..TenantsDone::default() })
    }

    /// Number of the tenant of each open session that has one.
    fn sessions_of_tenants(&self) -> Vec<u32> {
        let Some(status) = &self.status else { return Vec::new() };
        let tenant = |index| {
            let record = status.session(index);
            // pairs with the release in the plane's housekeeping: the other fields are stored by then
            (record.id.load(Acquire) != 0).then(|| record.tenant.load(Relaxed)).filter(|number| *number != 0)
        };
        (0..MAX_SESSIONS).filter_map(tenant).collect()
    }

    fn show_tenants(&self, name: Option<&str>, from: u32) -> Result<TenantsShown, String> {
        if let Some(name) = name.filter(|name| self.tenants.find(name).is_none()) {
            return Err(self.tenants.unknown(name).to_string());
        }
        let sessions = self.sessions_of_tenants();
        let wanted = |placed: &tenants::Placed| name.is_none_or(|name| placed.tenant.name() == name);
        let mut found =
            self.tenants.iter().filter(|(place, placed)| *place >= from && wanted(placed)).peekable();
        let mut shown = Vec::new();
        while let Some((place, placed)) = found.next_if(|_| shown.len() < SHOWN_AT_ONCE) {
            let number = number_of(place);
            shown.push(TenantUse {
                tenant: RawTenant::from(&placed.tenant),
                number,
                tenant_id: placed.id,
                routes: self.table.of_tenant(number).len(),
                sessions: sessions.iter().filter(|of| **of == u32::from(number)).count(),
            });
        }
        let next = found.next().map(|(place, _)| place);
        let (version, capacity) = (self.tenants.version(), self.tenants.capacity());
        Ok(TenantsShown { version, capacity, tenants: shown, next })
    }

    pub(super) fn describe_tenants(&self, done: TenantsDone) -> TenantsDone {
        TenantsDone {
            version: self.tenants.version(),
            tenants: self.tenants.len(),
            capacity: self.tenants.capacity(),
            generation: self.publisher.generation(),
            ..done
        }
    }
}
