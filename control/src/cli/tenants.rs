//! `madctl tenants`: who may do what on the plane.
//!
//! Changes go through madctld. `show` reads the segments and needs neither daemon. Names of users, groups, nodes and
//! partitions are looked up here; madctld gets numbers.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use madctl::Plane;
use madctl::fabric::view::FabricView;
use madctl::tenant::file::{read_partitions, read_tenants, tenants_of};
use madctl::tenant::partitions::Partitions;
use madctl::tenant::text::Names;
use madctl::tenant::{RawTenant, SmpRight, Tenant};
use madctl::view::TenantTable;
use madplane_shm::paths::PlanePaths;
use madplane_topology::find_node;
use serde::Serialize;

use super::output::{self, Format, Text, count};
use super::routes::{name_line, synced_text};
use super::{Failure, Outcome};
use crate::admin_tenants::TenantsDone;
use crate::sys;

const SYNTAX: &str = "\
A tenant is NAME and KEY=VALUE..., lists separated by commas:
  pkey=0x8001,0x0002    P_Keys, 0x8000 is full membership, or none [default: 0x7fff, limited member of the default partition]
  partition=NAME[:limited],...  P_Keys by the names in the file given by --partitions, full member unless :limited
  uid=1000,alice        users who may attach as it, besides root and the plane's own user [default: none]
  gid=100,users         groups whose members may [default: none]
  classes=perf,sa,0x30-0x4f     management classes it may send and register for: all, numbers, ranges, or
                        smp sa perf bm devmgt cm snmp vendor cc app [default: all]
  smp=none|get|get,set  what it may do with SMPs besides asking its own node; a right brings the classes [default: none]
  nodes=GUID|DESCRIPTION,...    the only nodes its SMPs may be for; with prefix, either is enough [default: every node]
  prefix=1.2.3,1.4      the only beginnings of its directed routes [default: every route]
  rate=10000            MADs a second, 0 for no limit [default: 0]
  burst=64              MADs at once [default: the rate, at most 64]
  priority=bulk|reserved        reserved is served first and may use reserved routes [default: bulk]";

#[derive(Debug, Subcommand)]
pub(crate) enum TenantsVerb {
    /// Put a tenant in.
    #[command(after_help = SYNTAX)]
    Add {
        /// Its name: 1 to 31 of A-Z a-z 0-9 . _ -
        #[arg(value_name = "NAME")]
        tenant: String,
        /// What it may do.
        #[arg(value_name = "KEY=VALUE")]
        options: Vec<String>,
        /// OpenSM's partitions.conf, for partition=NAME.
        #[arg(long, value_name = "FILE")]
        partitions: Option<PathBuf>,
        /// Also in place of the tenant of that name; its sessions stay and are held to what it may do now.
        #[arg(long)]
        replace: bool,
        /// Return when every worker has it.
        #[arg(long)]
        sync: bool,
    },
    /// Take a tenant out.
    Del {
        /// Its name.
        #[arg(value_name = "NAME")]
        tenant: String,
        /// Also if it has sessions, which may not send any more, or routes, which go with it.
        #[arg(long)]
        force: bool,
        /// Return when no worker has it any more.
        #[arg(long)]
        sync: bool,
    },
    /// Show the tenants with their use.
    Show {
        /// Only this one, with all it may do.
        #[arg(value_name = "NAME")]
        tenant: Option<String>,
    },
    /// Put in the tenants of a file, all or none; without FILE, one for each partition of the file of partitions.
    #[command(after_help = SYNTAX)]
    Load {
        /// The file: a tenant a line, # begins a comment.
        #[arg(required_unless_present = "partitions")]
        file: Option<PathBuf>,
        /// OpenSM's partitions.conf. Partitions without a P_Key get one as OpenSM gives it: the lowest that no partition
        /// above has.
        #[arg(long, value_name = "FILE")]
        partitions: Option<PathBuf>,
        /// Also in place of tenants with the same names.
        #[arg(long)]
        replace: bool,
        /// Return when every worker has them.
        #[arg(long)]
        sync: bool,
    },
}

#[derive(Debug, Serialize)]
struct Changed {
    what: String,
    #[serde(flatten)]
    done: TenantsDone,
}

impl Text for Changed {
    fn text(&self) -> String {
        let TenantsDone { generation, tenants, capacity, workers, synced, hw_sync_latency_ns, .. } =
            self.done;
        let synced = synced_text(generation, synced, workers, hw_sync_latency_ns);
        format!("{}; {tenants} of {capacity}{synced}\n", self.what)
    }
}

/// Looks names up where this command runs: users and groups in the system, nodes in the plane's fabric.
struct Directory {
    plane: Plane,
    fabric: Option<FabricView>,
    partitions: Option<Partitions>,
}

impl Directory {
    fn open(plane: &Plane, partitions: Option<&Path>) -> Result<Self, Failure> {
        let partitions = partitions.map(partitions_of).transpose()?;
        Ok(Self { plane: plane.clone(), fabric: None, partitions })
    }
}

impl Names for Directory {
    fn user(&mut self, name: &str) -> Result<u32, String> {
        let found = sys::user_id(name).map_err(|error| format!("cannot look up user {name:?}: {error}"))?;
        found.ok_or_else(|| format!("there is no user {name:?}"))
    }

    fn group(&mut self, name: &str) -> Result<u32, String> {
        let found = sys::group_id(name).map_err(|error| format!("cannot look up group {name:?}: {error}"))?;
        found.ok_or_else(|| format!("there is no group {name:?}"))
    }

    fn node(&mut self, name: &str) -> Result<u64, String> {
        let view = match self.fabric.take() {
            Some(view) => view,
            None => self.plane.fabric().map_err(|error| error.to_string())?,
        };
        let topology = self.fabric.insert(view).topology();
        let index = find_node(topology, name).map_err(|error| error.to_string())?;
        topology.nodes.get(index as usize).map(|node| node.guid).ok_or_else(|| format!("no node {name:?}"))
    }

    fn partition(&mut self, name: &str) -> Result<u16, String> {
        let partitions = self.partitions.as_ref();
        let partitions = partitions.ok_or_else(|| {
            format!(
                "which P_Key partition {name:?} has is in OpenSM's partitions.conf: name it by --partitions"
            )
        })?;
        partitions.find(name).map(|partition| partition.p_key())
    }
}

/// Reads a file of partitions; what OpenSM reads over is remarked on standard error.
fn partitions_of(file: &Path) -> Result<Partitions, Failure> {
    let partitions = read_partitions(file)?;
    for warning in partitions.warnings() {
        output::complain("madctl", &format!("{}:{}: {}", file.display(), warning.line, warning.text));
    }
    Ok(partitions)
}

pub(crate) fn dispatch(paths: &PlanePaths, format: Format, verb: TenantsVerb) -> Outcome {
    let plane = Plane::at(paths.clone());
    match verb {
        TenantsVerb::Add { tenant, options, partitions, replace, sync } => {
            let mut names = Directory::open(&plane, partitions.as_deref())?;
            let words: Vec<String> = std::iter::once(tenant).chain(options).collect();
            let tenant = madctl::tenant::parse(&words, &mut names).map_err(Failure::Usage)?;
            let done = plane.admin()?.tenants_add(&tenant, replace, sync)?;
            let verb = if done.replaced > 0 { "replaced" } else { "added" };
            print(format, format!("tenant {} {verb}", tenant.name()), done)
        }
        TenantsVerb::Del { tenant: name, force, sync } => {
            let done = plane.admin()?.tenants_del(&name, force, sync)?;
            let too = match (done.routes_removed, done.sessions) {
                (0, 0) => String::new(),
                (routes, sessions) => format!(
                    " with {}; {} may not send any more",
                    count(routes.into(), "route"),
                    count(sessions as u64, "session")
                ),
            };
            print(format, format!("tenant {name} removed{too}"), done)
        }
        TenantsVerb::Show { tenant } => show(paths, format, tenant.as_deref()),
        TenantsVerb::Load { file, partitions, replace, sync } => {
            let (file, tenants): (PathBuf, Vec<(u32, Tenant)>) = match (file, partitions) {
                (Some(file), partitions) => {
                    let mut names = Directory::open(&plane, partitions.as_deref())?;
                    let tenants = read_tenants(&file, &mut names)?;
                    (file, tenants)
                }
                (None, Some(file)) => {
                    let tenants = tenants_of(&file, &partitions_of(&file)?)?;
                    (file, tenants)
                }
                (None, None) => {
                    return Err(Failure::Usage("name a file of tenants or --partitions".to_owned()));
                }
            };
            let loaded = plane.admin()?.tenants_load(&tenants, replace, sync);
            let done = loaded.map_err(|error| name_line(&file, error))?;
            let replaced = match done.replaced {
                0 => String::new(),
                some => format!(", {some} of them in place of others"),
            };
            let number = count(tenants.len() as u64, "tenant");
            print(format, format!("{}: {number} loaded{replaced}", file.display()), done)
        }
    }
}

fn print(format: Format, what: String, done: TenantsDone) -> Outcome {
    Ok(output::print(format, &Changed { what, done })?)
}

fn show(paths: &PlanePaths, format: Format, name: Option<&str>) -> Outcome {
    let mut table = Plane::at(paths.clone()).tenants()?;
    let Some(name) = name else { return Ok(output::print(format, &table)?) };
    let names: Vec<String> = table.tenants.iter().map(|of| of.tenant.name.clone()).collect();
    table.tenants.retain(|of| of.tenant.name == name);
    if table.tenants.is_empty() {
        let hint = crate::nearest::hint(name, names.iter().map(String::as_str));
        return Err(Failure::Failed(format!("there is no tenant {name:?} in the published table{hint}")));
    }
    if format == Format::Json {
        return Ok(output::print(format, &table)?);
    }
    Ok(output::print_raw(one_text(&table).as_bytes())?)
}

impl Text for TenantTable {
    fn text(&self) -> String {
        let mut text = head_text(self);
        if self.tenants.is_empty() {
            text.push_str("no tenants: every user may attach and send anything\n");
            return text;
        }
        let names =
            ["tenant", "priority", "pkeys", "users", "smp", "scope", "rate", "sessions", "routes", "classes"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for of in &self.tenants {
            let tenant = &of.tenant;
            rows.push(vec![
                tenant.name.clone(),
                tenant.priority.to_string(),
                list_or(&p_keys(tenant), "none"),
                list_or(&users(tenant), "root"),
                tenant.smp.to_string(),
                scope(tenant),
                rate(tenant),
                of.sessions.to_string(),
                of.routes.to_string(),
                list_or(&tenant.classes, "none"),
            ]);
        }
        text + &output::table(&rows)
    }
}

fn head_text(table: &TenantTable) -> String {
    let head = table.plane.as_ref().map(Text::text).unwrap_or_default();
    let damaged = match table.damaged {
        0 => String::new(),
        some => format!(", {some} damaged"),
    };
    let (capacity, generation) = (table.capacity, table.generation);
    let number = table.tenants.len();
    format!("{head}table     {number} of {capacity}{damaged}, generation {generation}\n")
}

/// All that one tenant may do, a line each.
fn one_text(table: &TenantTable) -> String {
    let mut text = table.plane.as_ref().map(Text::text).unwrap_or_default();
    for of in &table.tenants {
        let tenant = &of.tenant;
        let prefixes: Vec<String> =
            tenant.prefixes.iter().map(|ports| madctl::tenant::dotted(ports)).collect();
        for (name, value) in [
            ("tenant", format!("{} (number {}, id {})", tenant.name, of.number, of.tenant_id)),
            ("pkeys", list_or(&p_keys(tenant), "none")),
            ("users", list_or(&users(tenant), "root and the plane's own user only")),
            ("classes", list_or(&tenant.classes, "none")),
            ("smp", tenant.smp.to_string()),
            ("nodes", list_or(&tenant.nodes, if prefixes.is_empty() { "all" } else { "none" })),
            ("prefix", list_or(&prefixes, if tenant.nodes.is_empty() { "all" } else { "none" })),
            ("rate", rate(tenant)),
            ("priority", tenant.priority.to_string()),
            ("sessions", of.sessions.to_string()),
            ("routes", of.routes.to_string()),
        ] {
            text.push_str(&format!("{name:<9} {value}\n"));
        }
    }
    text
}

fn list_or(list: &[String], empty: &str) -> String {
    if list.is_empty() { empty.to_owned() } else { list.join(",") }
}

fn p_keys(tenant: &RawTenant) -> Vec<String> {
    tenant.p_keys.iter().map(|key| format!("{key:#06x}")).collect()
}

/// Users by their numbers, groups with a mark.
fn users(tenant: &RawTenant) -> Vec<String> {
    let groups = tenant.gids.iter().map(|gid| format!("gid {gid}"));
    tenant.uids.iter().map(|uid| format!("uid {uid}")).chain(groups).collect()
}

fn scope(tenant: &RawTenant) -> String {
    match (tenant.smp, tenant.nodes.len() as u64, tenant.prefixes.len() as u64) {
        (SmpRight::None, ..) => "-".to_owned(),
        (_, 0, 0) => "all".to_owned(),
        (_, nodes, 0) => count(nodes, "node"),
        (_, 0, 1) => "1 prefix".to_owned(),
        (_, 0, prefixes) => format!("{prefixes} prefixes"),
        (_, nodes, 1) => format!("{}, 1 prefix", count(nodes, "node")),
        (_, nodes, prefixes) => format!("{}, {prefixes} prefixes", count(nodes, "node")),
    }
}

fn rate(tenant: &RawTenant) -> String {
    match tenant.rate {
        0 => "no limit".to_owned(),
        rate => format!("{rate}/s, burst {}", tenant.burst),
    }
}
