//! The operator's command: arguments, dispatch, exit codes.
//!
//! One file per noun; each collects a result, which [`output`] prints. Exit codes: 0 done, 1 failed with one line on
//! standard error that says what and what to do, 2 wrong usage; `run` ends with the code of its command, 127 if there is
//! no such command and 126 if it cannot be executed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use madctl::OnBroken;
use madplane_shm::paths::PlanePaths;

pub mod output;

mod counters;
mod devices;
mod errors;
mod fabric;
mod latency;
mod links;
mod links_planes;
mod modes;
mod plane;
mod routes;
mod routes_show;
mod run;
mod sessions;
mod split;
mod status;
mod tenants;

use crate::config::{LogFormat, plane_paths};
use output::Format;

/// Why a command ends without having done what it should.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 1 and this line.
    Failed(String),
    /// Exit code 2 and this line.
    Usage(String),
    /// This exit code and this line.
    Code(u8, String),
}

impl Failure {
    pub(crate) fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

macro_rules! fails_with {
    ($($error:ty),*) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::failed(error)
            }
        }
    )* };
}

fails_with!(
    std::io::Error,
    madctl::AdminError,
    madctl::LookError,
    madctl::fabric::trace::TraceError,
    madctl::route_file::FileError,
    crate::config::ConfigError,
    madctl::fabric::view::ViewError,
    crate::spawn::SpawnError,
    madplane_shm::handoff::HandoffError
);

type Outcome = Result<(), Failure>;

/// Runs and controls planes: virtual InfiniBand fabrics for unmodified management programs.
#[derive(Debug, Parser)]
#[command(name = "madctl", version, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Clone, Args)]
struct Common {
    /// Name of the plane [default: MADPLANE_NAME, else "default"].
    #[arg(long, global = true, value_name = "NAME")]
    name: Option<String>,
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t)]
    format: Format,
}

impl Common {
    fn paths(&self) -> Result<PlanePaths, Failure> {
        plane_paths(self.name.as_deref()).map_err(|error| Failure::Usage(error.to_string()))
    }
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Start a plane in the background; returns when it is ready.
    Up(UpArgs),
    /// Stop a plane.
    Down,
    /// Show the state of a plane, also of a dead one.
    Status,
    /// Run a program whose InfiniBand device is a port of the plane.
    Run(RunArgs),
    /// Generate, check and show fabrics.
    #[command(subcommand, arg_required_else_help = false)]
    Fabric(FabricVerb),
    /// Programs attached to the plane, and the paths they are bound to.
    #[command(subcommand, arg_required_else_help = false)]
    Sessions(SessionsVerb),
    /// What the workers counted, by the stage of the pipeline.
    #[command(subcommand, arg_required_else_help = false)]
    Counters(CountersVerb),
    /// How long synchronisations of the table and duty cycles of the workers take.
    #[command(subcommand, arg_required_else_help = false)]
    Latency(LatencyVerb),
    /// Distinct errors of both daemons.
    #[command(subcommand, arg_required_else_help = false)]
    Errors(ErrorsVerb),
    /// Cables, and links to other planes.
    #[command(subcommand, arg_required_else_help = false)]
    Links(LinksVerb),
    /// Nodes of the fabric.
    #[command(subcommand, arg_required_else_help = false)]
    Nodes(NodesVerb),
    /// RDMA devices of this machine, what can be done with them, and which of them the plane has.
    Devices,
    /// Pinned paths between two LIDs.
    #[command(subcommand, arg_required_else_help = false)]
    Routes(routes::RoutesVerb),
    /// How workers wait: polling, interrupt or adaptive.
    #[command(subcommand, arg_required_else_help = false)]
    Mode(modes::ModeVerb),
    /// Tune how workers wait, or show it.
    Tune(modes::TuneArgs),
    /// Who may use the plane, and for what.
    #[command(subcommand, arg_required_else_help = false)]
    Tenants(tenants::TenantsVerb),
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// A file (ibnetdiscover output or an ibsim netfile), or builtin:KIND,k=v...
    #[arg(long, value_name = "FILE|builtin:SPEC")]
    fabric: Option<String>,
    /// How workers wait: polling, interrupt or adaptive [default: polling].
    #[arg(long)]
    mode: Option<String>,
    /// What tunes them, NAME=VALUE each (see madctl tune --help).
    #[arg(long, value_name = "NAME=VALUE", num_args = 1..)]
    tune: Vec<String>,
    /// File with devices and sections [moderation], [lcore] and [[link]]; what is said here goes before it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Workers never poll in vain, whatever the mode: others need their cores.
    #[arg(long)]
    overprovisioned: bool,
    /// CPUs of the workers, such as 1,3-4, from those that madctl may use.
    #[arg(short = 'l', long, visible_alias = "lcores", value_name = "LIST")]
    cores: Option<String>,
    /// Number of workers.
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// Where sessions attach by default: NODE or NODE:PORT, by GUID or description.
    #[arg(long, value_name = "NODE[:PORT]")]
    at: Option<String>,
    /// An RDMA device of this machine to which programs may attach; may be given again. One that does not work is tried again
    /// and again (see madctl devices).
    #[arg(long, value_name = "[verbs:|umad:|auto:]NAME[,port=N][,gid=N][,peer=LID@GID...]")]
    device: Vec<String>,
    /// Use ordinary pages even if there are huge ones.
    #[arg(long)]
    no_huge: bool,
    /// Mount of hugetlbfs, with pages of 2 MiB, that the plane's own huge pages come from.
    #[arg(long, value_name = "DIR")]
    huge_dir: Option<PathBuf>,
    /// Most memory for sessions, MiB for each NUMA node; who would exceed it is refused, and huge pages for it are left free.
    #[arg(long, visible_alias = "numa-mem", value_name = "MB[,MB..]")]
    socket_mem: Option<String>,
    /// Slots per ring of a session, a power of two.
    #[arg(long, value_name = "N")]
    session_slots: Option<u64>,
    /// Refuse a fabric file with any fault.
    #[arg(long)]
    strict: bool,
    /// Places of the route table, up to 65536.
    #[arg(long, value_name = "N")]
    dr_table_max: Option<u32>,
    /// Places of the table of tenants, up to 1024.
    #[arg(long, value_name = "N")]
    tenants_max: Option<u32>,
    /// How the daemons write their logs.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Port that the program sees as its own: NODE or NODE:PORT, by GUID or description; device:NAME[:PORT] for an RDMA device
    /// of the plane, auto:NAME for that if it works and else the plane's default.
    #[arg(long, value_name = "NODE[:PORT]|device:NAME")]
    at: Option<String>,
    /// Tenant as which the program attaches; who may is said by the tenant [default: MADPLANE_TENANT, else the only one of
    /// the user].
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Ports of the path that all its MADs take, directed routes excepted [default: MADPLANE_PATH, else none].
    #[arg(long, value_name = "PORTS")]
    path: Option<String>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum FabricVerb {
    /// Print a generated fabric as ibnetdiscover would.
    Generate {
        /// Kind of fabric.
        kind: String,
        /// Its parameters, such as radix=36 levels=2.
        #[arg(value_name = "K=V")]
        parameters: Vec<String>,
        /// Write to a file instead.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Read a fabric file and say what is in it and what is wrong with it.
    Check {
        /// The file.
        file: PathBuf,
        /// Refuse it with any fault.
        #[arg(long)]
        strict: bool,
    },
    /// Cut a fabric into parts for planes on several hosts, and say which links join them again.
    Split(split::SplitArgs),
    /// Show the fabric of the running plane.
    Show {
        /// List the nodes.
        #[arg(long)]
        nodes: bool,
    },
}

#[derive(Debug, Subcommand)]
enum SessionsVerb {
    /// List them.
    List,
    /// Bind a session to a path for all it sends but directed routes: PORTS, via NODE[,NODE...] (the last is where it ends),
    /// or none.
    Bind {
        /// Its number, as listed.
        session: u32,
        /// The path.
        #[arg(required = true, num_args = 1..=2, value_name = "PORTS|via NODE..|none")]
        path: Vec<String>,
        /// What becomes of a MAD when the path is broken.
        #[arg(long, value_name = "fallback|drop", default_value_t)]
        on_broken: OnBroken,
    },
}

#[derive(Debug, Subcommand)]
enum LatencyVerb {
    /// Show percentiles; works with both daemons dead.
    Show,
}

#[derive(Debug, Subcommand)]
enum CountersVerb {
    /// Show counters and drops that are not zero, summed over the workers.
    Show {
        /// Of one worker only.
        #[arg(long, value_name = "N")]
        worker: Option<usize>,
        /// Also those that are zero.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Subcommand)]
enum ErrorsVerb {
    /// Show them with how often and when.
    Show,
}

#[derive(Debug, Subcommand)]
enum LinksVerb {
    /// Pull the cable of a port.
    Down {
        /// NODE:PORT, the node by GUID or description.
        port: String,
    },
    /// Plug it in again.
    Up {
        /// NODE:PORT, the node by GUID or description.
        port: String,
    },
    /// Link a port without cable to a port of another plane; madctld keeps the link until it is taken away.
    Add(links_planes::AddArgs),
    /// Take a link to another plane away.
    Del {
        /// NODE:PORT as it was added.
        port: String,
    },
    /// Show the links to other planes; works with both daemons dead.
    Show,
    /// Make an authority, unless there is one, and a certificate and key for each plane.
    Credentials {
        /// Where they go: DIRECTORY/PLANE is what one plane needs.
        directory: PathBuf,
        /// Names of planes.
        #[arg(required = true, value_name = "PLANE")]
        planes: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum NodesVerb {
    /// Power-cycle a node.
    Reboot {
        /// The node by GUID or description.
        node: String,
    },
}

/// Runs madctl with these arguments (the program's name first) and returns its exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return usage("madctl", &error),
    };
    let (code, line) = match dispatch(cli) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(line)) => (1, line),
        Err(Failure::Usage(line)) => (2, line),
        Err(Failure::Code(code, line)) => (code, line),
    };
    output::complain("madctl", &line);
    ExitCode::from(code)
}

fn dispatch(cli: Cli) -> Outcome {
    let Cli { common, noun } = cli;
    match noun {
        Noun::Up(args) => plane::up(&common.paths()?, common.format, args),
        Noun::Down => plane::down(&common.paths()?, common.format),
        Noun::Status => status::show(&common.paths()?, common.format),
        Noun::Run(args) => run::run(&common.paths()?, args),
        Noun::Fabric(FabricVerb::Generate { kind, parameters, output }) => {
            fabric::generate(common.format, &kind, &parameters, output.as_deref())
        }
        Noun::Fabric(FabricVerb::Check { file, strict }) => fabric::check(common.format, &file, strict),
        Noun::Fabric(FabricVerb::Split(args)) => split::split(common.format, args),
        Noun::Fabric(FabricVerb::Show { nodes }) => fabric::show(&common.paths()?, common.format, nodes),
        Noun::Sessions(SessionsVerb::List) => sessions::list(&common.paths()?, common.format),
        Noun::Sessions(SessionsVerb::Bind { session, path, on_broken }) => {
            sessions::bind(&common.paths()?, common.format, session, &path, on_broken)
        }
        Noun::Latency(LatencyVerb::Show) => latency::show(&common.paths()?, common.format),
        Noun::Tenants(verb) => tenants::dispatch(&common.paths()?, common.format, verb),
        Noun::Counters(CountersVerb::Show { worker, all }) => {
            counters::show(&common.paths()?, common.format, worker, all)
        }
        Noun::Errors(ErrorsVerb::Show) => errors::show(&common.paths()?, common.format),
        Noun::Links(LinksVerb::Down { port }) => links::set(&common.paths()?, common.format, &port, false),
        Noun::Links(LinksVerb::Up { port }) => links::set(&common.paths()?, common.format, &port, true),
        Noun::Links(LinksVerb::Add(args)) => links_planes::add(&common.paths()?, common.format, args),
        Noun::Links(LinksVerb::Del { port }) => links_planes::del(&common.paths()?, common.format, &port),
        Noun::Links(LinksVerb::Show) => links_planes::show(&common.paths()?, common.format),
        Noun::Links(LinksVerb::Credentials { directory, planes }) => {
            links_planes::make_credentials(common.format, &directory, &planes)
        }
        Noun::Devices => devices::show(&common.paths()?, common.format),
        Noun::Routes(verb) => routes::dispatch(&common.paths()?, common.format, verb),
        Noun::Mode(verb) => modes::mode(&common.paths()?, common.format, verb),
        Noun::Tune(args) => modes::tune(&common.paths()?, common.format, &args),
        Noun::Nodes(NodesVerb::Reboot { node }) => links::reboot(&common.paths()?, common.format, &node),
    }
}

/// Prints help as it is, and wrong usage as one line; returns the exit code.
pub fn usage(program: &str, error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let text = error.to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let printed = output::print_raw(text.as_bytes());
        return ExitCode::from(u8::from(printed.is_err()));
    }
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.join(" ").replace("error: ", "").replace(" tip: ", "; ");
    output::complain(program, &format!("{line} (see {program} --help)"));
    ExitCode::from(2)
}
