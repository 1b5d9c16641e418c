//! `madctl run`: gives a program the plane's device and becomes that program.
//!
//! Everything is checked before: the plane runs, the port exists, the library is there. Then this process is replaced, so
//! that signals, terminal and exit code are the program's own.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use madctl::Plane;
use madctl::route::{PathSpec, check_path, show_ports};
use madplane_shm::handoff::{AUTO_PREFIX, Connection, DEVICE_PREFIX, HandoffError, Request, op, place_kind};
use madplane_shm::paths::PlanePaths;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering::Relaxed;
use madplane_shm::table::tenant::is_tenant_name;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::status::worker_count;
use super::{Failure, Outcome, RunArgs};
use crate::config::{UMAD_LIBRARY, locate};
use crate::{spawn, sys};

/// How long the plane may take to look a port up.
const LOOKUP_WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn run(paths: &PlanePaths, args: RunArgs) -> Outcome {
    let at = args.at.unwrap_or_default();
    let tenant = args.tenant.unwrap_or_default();
    if !tenant.is_empty() && !is_tenant_name(&tenant) {
        return Err(Failure::Usage(format!("{tenant:?} is no name of a tenant")));
    }
    let path = args.path.as_deref().map(ports).transpose()?;
    if spawn::find_plane(paths)?.is_none() {
        return Err(super::plane::not_running(paths));
    }
    let device = look_up(paths, &at)?;
    if !tenant.is_empty() {
        check_tenant(paths, &tenant)?;
    }
    let library = locate(UMAD_LIBRARY, false)?.into_os_string();
    let preload = preload(&library, std::env::var_os("LD_PRELOAD").as_deref())?;
    leave_workers_alone(paths);
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::Usage("there is no command to run".to_owned()));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LD_PRELOAD", preload)
        .env("MADPLANE_NAME", paths.name())
        .env("MADPLANE_AT", place(&at, device.as_ref()));
    // what is not given here is as this command was given it
    if !tenant.is_empty() {
        command.env("MADPLANE_TENANT", &tenant);
    }
    if let Some(path) = path {
        command.env("MADPLANE_PATH", path);
    }
    // only comes back if the program could not be started
    let error = command.exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    let reason = match code {
        127 => "command not found".to_owned(),
        _ => error.to_string(),
    };
    Err(Failure::Code(code, format!("{}: {reason}", program.display())))
}

/// Ports to bind all sessions of the program to, as the client library reads them.
fn ports(text: &str) -> Result<String, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::Usage(format!("--path: {error}"));
    match PathSpec::parse(&[text]).map_err(|error| wrong(&error))? {
        PathSpec::Ports(ports) => {
            let ports = check_path(&ports).map_err(|error| wrong(&error))?;
            Ok(show_ports(&ports))
        }
        _ => Err(wrong(&"write ports, such as 1,2,3")),
    }
}

/// Says early that there is no such tenant; who may use it is decided by the plane when the program attaches.
fn check_tenant(paths: &PlanePaths, tenant: &str) -> Result<(), Failure> {
    let Ok(table) = Plane::at(paths.clone()).tenants() else { return Ok(()) };
    let names: Vec<&str> = table.tenants.iter().map(|of| of.tenant.name.as_str()).collect();
    if names.contains(&tenant) {
        return Ok(());
    }
    let hint = crate::nearest::hint(tenant, names);
    Err(Failure::Failed(format!("there is no tenant {tenant:?} on plane {}{hint}", paths.name())))
}

/// Where the program attaches: what may be one place or another is settled here, so that all of its sessions are at the same.
fn place(at: &str, device: Option<&(String, u8)>) -> String {
    match device {
        Some((name, port)) => format!("{DEVICE_PREFIX}{name}:{port}"),
        None if at.starts_with(AUTO_PREFIX) => String::new(),
        None => at.to_owned(),
    }
}

/// Asks the plane whether there is such a port to attach to; the name and port of the RDMA device, if it is one.
fn look_up(paths: &PlanePaths, selector: &str) -> Result<Option<(String, u8)>, Failure> {
    let request = Request::with_selector(op::LOOKUP, selector)
        .ok_or_else(|| Failure::Failed("the name after --at is longer than 160 bytes".to_owned()))?;
    let answer = connect(paths).and_then(|connection| connection.call(&request));
    match answer {
        Ok((reply, _)) => {
            let is_device = reply.kind == place_kind::DEVICE;
            Ok(is_device.then(|| (reply.text(), reply.port)))
        }
        Err(HandoffError::Gone(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
            let seconds = LOOKUP_WITHIN.as_secs();
            let log = paths.log_file("madplaned");
            let name = paths.name();
            Err(Failure::Failed(format!(
                "plane {name} does not answer within {seconds} s; see {}",
                log.display()
            )))
        }
        Err(error) => Err(error.into()),
    }
}

/// Connects and waits for answers, both within a bound: also a plane that has been stopped may have a full backlog.
fn connect(paths: &PlanePaths) -> Result<Connection, HandoffError> {
    let until = Instant::now() + LOOKUP_WITHIN;
    let connection = loop {
        match Connection::try_open(&paths.attach_socket(), paths.name()) {
            Err(HandoffError::Gone(error))
                if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => break other?,
        }
    };
    let bounded = set_socket_timeout(&connection, Timeout::Recv, Some(LOOKUP_WITHIN));
    let waiting = rustix::io::ioctl_fionbio(&connection, false);
    bounded.and(waiting).map_err(|error| HandoffError::Gone(error.into()))?;
    Ok(connection)
}

/// Our library in front of what is preloaded already; once.
fn preload(library: &OsStr, before: Option<&OsStr>) -> Result<OsString, Failure> {
    let separators = [b':', b' ', b'\t', b'\n'];
    if library.as_encoded_bytes().iter().any(|byte| separators.contains(byte)) {
        let shown = library.display();
        return Err(Failure::Failed(format!(
            "{shown} cannot be preloaded: no blank or colon may be in its path"
        )));
    }
    let mut list = library.to_owned();
    for other in
        before.map(OsStr::as_encoded_bytes).unwrap_or_default().split(|byte| separators.contains(byte))
    {
        if !other.is_empty() && other != library.as_encoded_bytes() {
            use std::os::unix::ffi::OsStrExt;
            list.push(":");
            list.push(OsStr::from_bytes(other));
        }
    }
    Ok(list)
}

/// Keeps the program off the CPUs on which workers poll, if any are left. An optimisation: failing is no error.
fn leave_workers_alone(paths: &PlanePaths) {
    let Ok(status) = Status::open(&paths.status_segment()) else { return };
    let polled: Vec<u32> =
        (0..worker_count(&status)).map(|index| status.worker(index).cpu.load(Relaxed)).collect();
    let Ok(allowed) = sys::allowed_cpus() else { return };
    let rest = without(&allowed, &polled);
    if !rest.is_empty() && rest.len() < allowed.len() {
        let _ = sys::confine_to(&rest);
    }
}

fn without(allowed: &[u32], taken: &[u32]) -> Vec<u32> {
    allowed.iter().copied().filter(|cpu| !taken.contains(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_comes_first_and_only_once() {
        for (before, expected) in [
            (None, "/x/a.so"),
            (Some(""), "/x/a.so"),
            (Some("b.so"), "/x/a.so:b.so"),
            (Some("b.so /x/a.so:c.so"), "/x/a.so:b.so:c.so"),
        ] {
            assert_eq!(preload(OsStr::new("/x/a.so"), before.map(OsStr::new)).unwrap(), expected);
        }
        assert!(preload(OsStr::new("/x y/a.so"), None).is_err());
    }

    #[test]
    fn a_program_at_one_place_or_another_is_at_one() {
        let device = ("rxe0".to_owned(), 1);
        assert_eq!(place("auto:rxe0", Some(&device)), "device:rxe0:1");
        assert_eq!(place("device:rxe0", Some(&device)), "device:rxe0:1");
        assert_eq!((place("auto:rxe0", None), place("node:2", None)), (String::new(), "node:2".to_owned()));
    }

    #[test]
    fn unpinned_workers_take_no_cpu_away() {
        assert_eq!(without(&[0, 1, 2], &[1, u32::MAX]), [0, 2]);
        assert!(without(&[1], &[1]).is_empty());
    }
}
