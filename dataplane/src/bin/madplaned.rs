//! The dataplane daemon: arguments, signals, the service manager, exit codes.
//!
//! SIGTERM and SIGINT stop it in order; SIGHUP has it look at its cores and at the route table again.
//! Exit codes: 0 stopped in order, 1 could not start or serve (one line on standard error), 2 wrong usage.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use madplane_dataplane::config::{Config, RawConfig};
use madplane_dataplane::plane::Plane;
use madplane_dataplane::service::Service;
use madplane_port::device::{PortFacts, Unavailable, devices, state_name};
use madplane_port::pool::Pool;
use madplane_shm::process::notify::Notifier;

/// The system's memory, and huge pages for what lives as long as the plane.
#[global_allocator]
static MEMORY: Pool = Pool;

/// Polls MAD rings and forwards MADs through the embedded fabric.
#[derive(Debug, Parser)]
#[command(name = "madplaned", version)]
struct Arguments {
    /// Name of the plane.
    #[arg(long, default_value = madplane_shm::paths::DEFAULT_NAME)]
    name: String,
    /// Topology file, or builtin:KIND,key=value,...
    #[arg(long)]
    fabric: Option<String>,
    /// Number of polling workers.
    #[arg(long)]
    workers: Option<usize>,
    /// Cores for the workers, such as 1,3-5, from those that this process may use.
    #[arg(short = 'l', long, visible_alias = "lcores")]
    cores: Option<String>,
    /// NODE or NODE:PORT where sessions attach unless they say otherwise.
    #[arg(long)]
    at: Option<String>,
    /// Slots per ring of a session.
    #[arg(long)]
    session_slots: Option<u64>,
    /// Never use huge pages.
    #[arg(long)]
    no_huge: bool,
    /// Mount of hugetlbfs, with pages of 2 MiB, that the plane's own huge pages come from.
    #[arg(long, value_name = "DIR")]
    huge_dir: Option<PathBuf>,
    /// Most memory for sessions, MiB for each NUMA node; who would exceed it is refused, and huge pages for it are left free.
    #[arg(long, visible_alias = "numa-mem", value_name = "MB[,MB..]")]
    socket_mem: Option<String>,
    /// Refuse a topology file that needs repairs.
    #[arg(long)]
    strict: bool,
    /// How workers wait: polling, interrupt or adaptive.
    #[arg(long)]
    mode: Option<String>,
    /// What tunes them, such as moderator_timeout=16.
    #[arg(long, value_name = "NAME=VALUE", num_args = 1..)]
    tune: Vec<String>,
    /// Never poll in vain, whatever the mode: others need the cores.
    #[arg(long)]
    overprovisioned: bool,
    /// A link to another plane: "NODE:PORT via=quic:HOST:PORT peer=HOST:PORT credentials=DIRECTORY"; may be given again.
    #[arg(long, value_name = "LINK")]
    link: Vec<String>,
    /// An RDMA device to which sessions may attach; may be given again.
    #[arg(long, value_name = "[verbs:|umad:|auto:]NAME[,port=N][,gid=N][,peer=LID@GID...]")]
    device: Vec<String>,
    /// How log lines on standard error look.
    #[arg(long, value_enum, default_value_t = LogFormat::Plain)]
    log_format: LogFormat,
    /// Print the RDMA devices of this machine and what can be done with them, for programs, and exit.
    #[arg(long)]
    devices: bool,
    /// Print the effective configuration and exit.
    #[arg(long)]
    print_config: bool,
    /// Descriptor to which READY or ERROR is written.
    #[arg(long, hide = true)]
    ready_fd: Option<u32>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    /// Text, a line each.
    Plain,
    /// A JSON object a line.
    Json,
}

fn main() -> ExitCode {
    let started = Instant::now();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    // plain text, no colours: the daemon's standard error is usually a file
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    match arguments.log_format {
        LogFormat::Plain => log.init(),
        LogFormat::Json => log.json().init(),
    }
    let mut ready = arguments.ready_fd.and_then(open_ready);
    match run(arguments, started, &mut ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            if let Some(mut pipe) = ready.take() {
                let _ = writeln!(pipe, "ERROR {reason}");
            }
            let _ = writeln!(std::io::stderr(), "madplaned: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Prints help, or what is wrong with the arguments in one line.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    if !error.use_stderr() {
        let printed = write!(std::io::stdout(), "{text}");
        return ExitCode::from(u8::from(printed.is_err()));
    }
    let said = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let said: Vec<&str> = said.map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = said.join(" ").replace("error: ", "").replace(" tip: ", "; ");
    let _ = writeln!(std::io::stderr(), "madplaned: {line} (see madplaned --help)");
    ExitCode::from(2)
}

/// Opens an inherited descriptor by its name below /proc, which needs no unsafe code.
fn open_ready(fd: u32) -> Option<File> {
    File::options().write(true).open(PathBuf::from(format!("/proc/self/fd/{fd}"))).ok()
}

fn run(arguments: Arguments, started: Instant, ready: &mut Option<File>) -> Result<(), String> {
    if arguments.devices {
        return writeln!(std::io::stdout(), "{}", list_devices()).map_err(|error| error.to_string());
    }
    let print_config = arguments.print_config;
    let raw = RawConfig {
        name: arguments.name,
        fabric: arguments.fabric,
        workers: arguments.workers,
        cores: arguments.cores,
        at: arguments.at,
        session_slots: arguments.session_slots,
        no_huge: arguments.no_huge,
        huge_dir: arguments.huge_dir,
        socket_mem: arguments.socket_mem,
        strict: arguments.strict,
        mode: arguments.mode,
        tune: arguments.tune,
        overprovisioned: arguments.overprovisioned,
        links: arguments.link,
        devices: arguments.device,
    };
    let config = Config::try_from(raw).map_err(|error| error.to_string())?;
    if print_config {
        return writeln!(std::io::stdout(), "{config}").map_err(|error| error.to_string());
    }
    let stop = pipe_of(&[signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    let reload = pipe_of(&[signal_hook::consts::SIGHUP])?;
    let notifier = Notifier::from_environment().unwrap_or_else(|error| {
        tracing::warn!("the service manager will not hear of us: {error}");
        Notifier::default()
    });
    tracing::info!("{config}");
    let plane = Plane::start(config, started).map_err(|error| error.to_string())?;
    let plane = plane.with_service(Service::new(notifier, reload));
    tracing::info!(ms = started.elapsed().as_millis(), "ready");
    if let Some(mut pipe) = ready.take() {
        let _ = writeln!(pipe, "READY");
    }
    plane.serve(stop).map_err(|error| error.to_string())
}

/// A line for each device and port, words between tabs: what `madctl devices` reads. `none` and why, if there can be none.
fn list_devices() -> String {
    let all = match devices() {
        Ok(all) => all,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOSYS.raw_os_error()) => {
            return format!("none\t{}", Unavailable::NoRdma);
        }
        Err(error) => return format!("none\tunavailable, because devices cannot be listed: {error}"),
    };
    let mut lines = Vec::new();
    for device in all {
        let verbs = device.verbs.as_ref().map_or_else(ToString::to_string, |()| "usable".to_owned());
        lines.push(format!("device\t{}\t{verbs}", device.name));
        for port in device.ports {
            let umad = port.umad.as_ref().map_or_else(ToString::to_string, |path| path.display().to_string());
            let PortFacts { number, state, lid, link_layer, .. } = port;
            lines.push(format!("port\t{number}\t{}\t{lid}\t{link_layer}\t{umad}", state_name(state)));
        }
    }
    lines.join("\n")
}

/// Becomes readable when one of `signals` comes.
fn pipe_of(signals: &[std::ffi::c_int]) -> Result<OwnedFd, String> {
    let (reader, writer) = UnixStream::pair().map_err(|error| error.to_string())?;
    for signal in signals {
        let pipe = writer.try_clone().map_err(|error| error.to_string())?;
        signal_hook::low_level::pipe::register(*signal, pipe).map_err(|error| error.to_string())?;
    }
    Ok(reader.into())
}
