//! What control asks of the operating system, as safe functions.
//!
//! The only module of this crate with unsafe code: starting a process in a session of its own, without descriptors
//! that are not meant for it, taking over a descriptor whose number came on the command line, and asking the C library for
//! the numbers of users and groups. Everything else here is a thin layer over `/proc` and rustix.
//! Any thread may call any of it. Nothing here knows about planes.
#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use madplane_shm::process::notify;
use rustix::io::FdFlags;
use rustix::thread::CpuSet;
use rustix::time::Timespec;

/// Starts `program` in the background: a session of its own, no terminal, input from nowhere, both outputs to `log`.
///
/// Of all other descriptors only `ready` is left open in the child, under its present number, so that a `--ready-fd`
/// argument may name it; this process's copy is closed.
///
/// # Errors
/// As fork and execve; the program could not be started.
pub fn spawn_detached(
    program: &Path,
    arguments: &[OsString],
    log: File,
    ready: OwnedFd,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    for variable in notify::VARIABLES {
        // the service manager waits for the one who was started by it, not for us
        command.env_remove(variable);
    }
    let before_exec = move || {
        rustix::process::setsid()?;
        leave_no_descriptor();
        rustix::io::fcntl_setfd(&ready, FdFlags::empty())?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes three system calls and touches no lock and no allocator.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

/// Marks every descriptor above the standard streams to be closed by the next exec: a daemon must not keep a lock or
/// the end of a pipe that a script opened before it called us. Kernels before 5.11 refuse; then nothing changes.
fn leave_no_descriptor() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the call takes numbers only, and changes no descriptor but its close-on-exec mark.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Takes over the descriptor `number` that a parent left open for this process.
///
/// # Errors
/// The number is one of the standard streams, or no descriptor is open under it.
pub fn adopt_fd(number: RawFd) -> io::Result<File> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is not -1, and the borrow lasts only for the next call, which fails on a closed descriptor.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open, as the call above showed, and the parent opened it for this process alone: it is
    // adopted once, by the daemon's start, before anything else was opened.
    Ok(unsafe { File::from_raw_fd(number) })
}

/// Returns the number of the user called `name`, by whatever the system's name service is configured to ask.
///
/// # Errors
/// The service could not be asked.
pub fn user_id(name: &str) -> io::Result<Option<u32>> {
    look_up(name, |name, buffer, length| {
        let mut found: *mut libc::passwd = std::ptr::null_mut();
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
        // SAFETY: the name is a C string, and the three places are ours and as long as said.
        let error = unsafe { libc::getpwnam_r(name, entry.as_mut_ptr(), buffer, length, &raw mut found) };
        // SAFETY: on success the result is null or points to the entry just filled.
        (error, unsafe { found.as_ref() }.map(|found| found.pw_uid))
    })
}

/// Returns the number of the group called `name`, likewise.
///
/// # Errors
/// The service could not be asked.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    look_up(name, |name, buffer, length| {
        let mut found: *mut libc::group = std::ptr::null_mut();
        let mut entry = std::mem::MaybeUninit::<libc::group>::uninit();
        // SAFETY: the name is a C string, and the three places are ours and as long as said.
        let error = unsafe { libc::getgrnam_r(name, entry.as_mut_ptr(), buffer, length, &raw mut found) };
        // SAFETY: on success the result is null or points to the entry just filled.
        (error, unsafe { found.as_ref() }.map(|found| found.gr_gid))
    })
}

/// Asks with a larger buffer each time until the answer fits.
fn look_up(
    name: &str,
    ask: impl Fn(*const libc::c_char, *mut libc::c_char, usize) -> (libc::c_int, Option<u32>),
) -> io::Result<Option<u32>> {
    const LARGEST_BYTES: usize = 1 << 20;
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut length = 1024;
    loop {
        let mut buffer = vec![0; length];
        match ask(name.as_ptr(), buffer.as_mut_ptr(), length) {
            (0, found) => return Ok(found),
            (libc::ERANGE, _) if length < LARGEST_BYTES => length *= 4,
            (libc::EINTR, _) => {}
            // how some services say that there is none
            (libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM, _) => return Ok(None),
            (error, _) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Returns the number under which `fd` is open.
pub fn fd_number(fd: &OwnedFd) -> RawFd {
    fd.as_raw_fd()
}

/// A span of time as poll and epoll take it.
pub fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: span.subsec_nanos().into(),
    }
}

/// CPUs that this process may run on.
///
/// # Errors
/// As sched_getaffinity(2).
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect())
}

/// Confines this process, and what it executes, to `cpus`.
///
/// # Errors
/// As sched_setaffinity(2).
pub fn confine_to(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter_map(|cpu| usize::try_from(*cpu).ok()).filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_streams_and_closed_descriptors_are_not_adopted() {
        for number in [-1, 0, 1, 2, 1_000_000] {
            assert!(adopt_fd(number).is_err(), "{number}");
        }
    }

    #[test]
    fn users_and_groups_have_the_numbers_of_the_system() {
        assert_eq!((user_id("root").unwrap(), group_id("root").unwrap()), (Some(0), Some(0)));
        for nobody in ["", "no such user", "a\0b"] {
            assert_eq!((user_id(nobody).unwrap(), group_id(nobody).unwrap()), (None, None), "{nobody:?}");
        }
    }

    #[test]
    fn this_process_may_run_somewhere() {
        let cpus = allowed_cpus().unwrap();
        assert!(!cpus.is_empty());
        confine_to(&cpus).unwrap();
        assert_eq!(allowed_cpus().unwrap(), cpus);
    }
}
