//! The control daemon: arguments, log, exit codes.
//!
//! SIGTERM and SIGINT stop it in order; SIGHUP has it look for the plane again.
//! Exit codes: 0 stopped in order, 1 could not start or had to end (one line on standard error), 2 wrong usage.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::RawFd;
use std::process::ExitCode;

use clap::Parser;
use madplane_control::cli::{output, usage};
use madplane_control::config::{LogFormat, plane_paths};
use madplane_control::manager::Manager;
use madplane_control::publish::Capacities;
use madplane_control::reactor::{Outcome, Reactor};
use madplane_control::routes::MAX_CAPACITY;
use madplane_control::sys;
use madplane_shm::paths::PlanePaths;
use madplane_shm::table::MAX_TENANTS;
use tracing_subscriber::EnvFilter;

/// Sleeps until an operator or the plane has something for it; never on the path of a packet.
#[derive(Debug, Parser)]
#[command(name = "madctld", version)]
struct Arguments {
    /// Name of the plane [default: MADPLANE_NAME, else "default"].
    #[arg(long)]
    name: Option<String>,
    /// How the log on standard error is written.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
    /// Places of the route table, up to 65536 [default: what it has, else 1024].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CAPACITY)))]
    dr_table_max: Option<u32>,
    /// Places of the table of tenants, up to 1024 [default: what it has, else 64].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_TENANTS)))]
    tenants_max: Option<u32>,
    /// Forget what was asked of workers before: they were started with what they are to do.
    #[arg(long, hide = true)]
    forget_tuning: bool,
    /// Descriptor to which READY or ERROR is written.
    #[arg(long, hide = true)]
    ready_fd: Option<RawFd>,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage("madctld", &error),
    };
    let paths = match plane_paths(arguments.name.as_deref()) {
        Ok(paths) => paths,
        Err(error) => {
            output::complain("madctld", &error.to_string());
            return ExitCode::from(2);
        }
    };
    let mut ready = match arguments.ready_fd.map(sys::adopt_fd).transpose() {
        Ok(ready) => ready,
        Err(error) => {
            output::complain("madctld", &format!("--ready-fd: {error}"));
            return ExitCode::from(2);
        }
    };
    start_log(arguments.log_format);
    let capacities = Capacities { routes: arguments.dr_table_max, tenants: arguments.tenants_max };
    match serve(paths, capacities, arguments.forget_tuning, &mut ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            tell(&mut ready, &format!("ERROR {reason}"));
            output::complain("madctld", &reason);
            ExitCode::FAILURE
        }
    }
}

fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_env("MADPLANE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_env_filter(filter);
    match format {
        LogFormat::Plain => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

fn serve(
    paths: PlanePaths,
    capacities: Capacities,
    forget_tuning: bool,
    ready: &mut Option<File>,
) -> Result<(), String> {
    let mut reactor = Reactor::open(paths, capacities).map_err(|error| error.to_string())?;
    if forget_tuning {
        reactor.forget_tuning();
    }
    let outcome = reactor.run_until_ready().map_err(|error| error.to_string())?;
    if outcome == Outcome::Ready {
        tell(ready, "READY");
        reactor.begin_service(Manager::from_environment());
    }
    reactor.run().map_err(|error| error.to_string())
}

fn tell(ready: &mut Option<File>, line: &str) {
    if let Some(mut pipe) = ready.take() {
        // whoever started us may have gone: then nobody needs to know
        let _ = writeln!(pipe, "{line}");
    }
}
