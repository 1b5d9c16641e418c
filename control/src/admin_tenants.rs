//! The admin commands about tenants: arguments, checks, results.
//!
//! Part of the protocol of [`crate::admin`]; text and checks only.
//!
//! | command | arguments | result | who |
//! |---|---|---|---|
//! | `tenants.add` | a [`RawTenant`]'s fields in `tenant`, `replace`, `sync` | [`TenantsDone`] | root, or the user of madctld |
//! | `tenants.del` | `name`, `force`, `sync` | [`TenantsDone`] | the same |
//! | `tenants.load` | `lines`: `[number, text]` each ([`parse_line`], in numbers), `more`, `replace`, `sync` | [`TenantsDone`] | the same |
//! | `tenants.show` | `name`, or `from`: a place | [`TenantsShown`] | anyone |
//!
//! A tenant that has sessions or routes is removed with `force` only; its routes go with it, and its sessions may not
//! send any more. Files and `sync` are as for routes ([`crate::admin_routes`]).

pub use madctl::protocol::{TenantUse, TenantsDone, TenantsShown};
use serde::Deserialize;
use serde_json::Value;

use crate::file_part::FilePart;
use crate::tenants::spec::{NumbersOnly, parse_line};
use crate::tenants::{RawTenant, Tenant};

/// Names of the commands.
pub(crate) const COMMANDS: [&str; 4] = ["tenants.add", "tenants.del", "tenants.load", "tenants.show"];

/// A request about tenants, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantAction {
    /// Put one tenant in.
    Add {
        /// The tenant.
        tenant: Tenant,
        /// Also over one with the same name.
        replace: bool,
        /// Answer when every worker has it.
        sync: bool,
    },
    /// Take one tenant out.
    Remove {
        /// Which.
        name: String,
        /// Also if it is in use.
        force: bool,
        /// Answer when no worker has it any more.
        sync: bool,
    },
    /// Part of a file.
    Load(FilePart<Tenant>),
    /// Say which tenants there are, and who uses them.
    Show {
        /// Only this one.
        name: Option<String>,
        /// From this place on.
        from: u32,
    },
}

impl TenantAction {
    /// Whether it changes what the workers do.
    pub fn changes(&self) -> bool {
        !matches!(self, Self::Show { .. })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddArgs {
    tenant: RawTenant,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    sync: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelArgs {
    name: String,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    sync: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ShowArgs {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    from: u32,
}

/// Reads a command about tenants; `None` if it is about something else.
pub(crate) fn understand(cmd: &str, args: Value) -> Option<Result<TenantAction, String>> {
    Some(match cmd {
        "tenants.add" => crate::admin::arguments(cmd, args).and_then(|AddArgs { tenant, replace, sync }| {
            let tenant = Tenant::try_from(tenant).map_err(|error| error.to_string())?;
            Ok(TenantAction::Add { tenant, replace, sync })
        }),
        "tenants.del" => crate::admin::arguments(cmd, args)
            .map(|DelArgs { name, force, sync }| TenantAction::Remove { name, force, sync }),
        "tenants.load" => {
            let parse = |text: &str| parse_line(text, &mut NumbersOnly).map_err(|error| error.to_string());
            FilePart::read(cmd, args, parse).map(TenantAction::Load)
        }
        "tenants.show" if args.is_null() => Ok(TenantAction::Show { name: None, from: 0 }),
        "tenants.show" => crate::admin::arguments(cmd, args)
            .map(|ShowArgs { name, from }| TenantAction::Show { name, from }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_madctl_would_not_send_is_refused_in_one_line() {
        for (cmd, args, expected) in [
            ("tenants.add", r#"{}"#, "missing field `tenant`"),
            ("tenants.add", r#"{"tenant":{"name":"a","x":1}}"#, "unknown field `x`"),
            ("tenants.add", r#"{"tenant":{"name":"a b"}}"#, "\"a b\" is no name for a tenant"),
            ("tenants.add", r#"{"tenant":{"name":"a","smp":"set"}}"#, "unknown variant `set`"),
            ("tenants.load", r#"{"lines":[[7,"a pkey=0"]]}"#, "line 7: P_Key 0x0000 is none"),
            (
                "tenants.load",
                r#"{"lines":[[8,"a uid=root"]]}"#,
                "line 8: user \"root\" has to be given by its number",
            ),
            ("tenants.del", r#"{"name":"a","sure":true}"#, "unknown field `sure`"),
            ("tenants.show", r#"{"names":"a"}"#, "unknown field `names`"),
        ] {
            let error = understand(cmd, serde_json::from_str(args).unwrap()).unwrap().unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{args}: {error}");
        }
        assert!(understand("tenants.sho", Value::Null).is_none());
        let show = understand("tenants.show", Value::Null).unwrap().unwrap();
        assert!(!show.changes() && show == TenantAction::Show { name: None, from: 0 });
    }
}
