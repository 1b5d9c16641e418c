//! The commands about tenants, and about paths of sessions.
//!
//! As in [`super::calls`]: each asks once and waits for the answer.

use serde_json::json;

use super::{AdminClient, AdminError};
use crate::protocol::{Done, TenantUse, TenantsDone, TenantsShown};
use crate::route::OnBroken;
use crate::tenant::{RawTenant, Tenant};

impl AdminClient {
    /// Puts a tenant in, with `replace` also over one with the same name. With `sync` every worker has it on return.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn tenants_add(
        &mut self,
        tenant: &Tenant,
        replace: bool,
        sync: bool,
    ) -> Result<TenantsDone, AdminError> {
        self.ask(
            "tenants.add",
            &json!({ "tenant": RawTenant::from(tenant), "replace": replace, "sync": sync }),
        )
    }

    /// Takes a tenant out; with `force` also one that has sessions, which may not send any more, or routes, which go too.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn tenants_del(&mut self, name: &str, force: bool, sync: bool) -> Result<TenantsDone, AdminError> {
        self.ask("tenants.del", &json!({ "name": name, "force": force, "sync": sync }))
    }

    /// Puts tenants in, all or none; each comes with a number, that of its line in a file, by which a wrong one is named.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn tenants_load(
        &mut self,
        tenants: &[(u32, Tenant)],
        replace: bool,
        sync: bool,
    ) -> Result<TenantsDone, AdminError> {
        let lines = tenants.iter().map(|(line, tenant)| (*line, tenant.to_line()));
        self.load::<TenantsDone>("tenants.load", lines, replace, sync)
    }

    /// The tenants of the software table, or the one called `name`, with what is theirs. What the workers have is shown by
    /// [`View::tenants`](crate::View::tenants).
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn tenants_show(&mut self, name: Option<&str>) -> Result<Vec<TenantUse>, AdminError> {
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            let shown: TenantsShown = self.ask("tenants.show", &json!({ "name": name, "from": from }))?;
            all.extend(shown.tenants);
            match shown.next {
                // only ever forward, whatever the answer says
                Some(next) if next > from => from = next,
                _ => return Ok(all),
            }
        }
    }

    /// Binds a session, by its number from 1, to the path of these ports; without any, to none.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn sessions_bind(
        &mut self,
        session: u32,
        ports: &[u8],
        on_broken: OnBroken,
    ) -> Result<Done, AdminError> {
        self.ask("sessions.bind", &json!({ "session": session, "path": ports, "on_broken": on_broken }))
    }
}
