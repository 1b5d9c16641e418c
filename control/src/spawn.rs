//! Starting and stopping the daemons of a plane.
//!
//! Used by `madctl up` and `down` and by tests; blocks the calling thread for as long as a daemon takes, within bounds.
//! Invariants: after an error nothing that this module started is left running; a process is signalled only through
//! a pidfd, and only while it holds the daemon's lock; starts and stops of one plane exclude one another.
//! Does not restart anything by itself.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use madctl::daemons::{find_control, find_plane};
use madplane_shm::paths::PlanePaths;
use madplane_shm::process::lock::{self, DaemonLock, LockError};
use madplane_shm::status::Status;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::config::{ConfigError, UpOptions, locate};
use crate::sys;

/// How long a daemon may take to become ready.
pub const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long a daemon may take to end before it is killed.
pub const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Longest line of a daemon on its ready pipe.
const MAX_READY_LINE: usize = 4096;
const OTHER_MADCTL_WITHIN: Duration = Duration::from_secs(30);

/// Why a plane was not started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// It runs.
    #[error("plane {name} is already running ({what})")]
    AlreadyRunning {
        /// Its name.
        name: String,
        /// Process id and what the status segment says.
        what: String,
    },
    /// It does not run.
    #[error("plane {0} is not running; start it with: madctl up --name {0}")]
    NotRunning(String),
    /// A program or option is missing or wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A daemon said why it cannot start.
    #[error("{daemon}: {reason}")]
    Daemon {
        /// Which.
        daemon: &'static str,
        /// Its line.
        reason: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A signal came while waiting; what was started is stopped again.
    #[error("interrupted; what was started is stopped again")]
    Interrupted,
    /// Another start or stop is at work.
    #[error("another madctl up or down of plane {name} is at work (pid {pid}); try again when it has ended")]
    Busy {
        /// The plane.
        name: String,
        /// Process id of the other madctl.
        pid: u32,
    },
}

/// A plane with its control, just started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Process id of madplaned.
    pub plane_pid: u32,
    /// Process id of madctld.
    pub control_pid: u32,
    /// Only madctld was missing and has been started.
    pub control_only: bool,
}

/// What happened to one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// There was none.
    WasNotRunning,
    /// It ended when asked.
    Stopped {
        /// Its process id.
        pid: u32,
    },
    /// It did not end in time and was killed.
    Killed {
        /// Its process id.
        pid: u32,
    },
}

/// What happened to the daemons of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoppedPlane {
    /// madplaned.
    pub plane: Stop,
    /// madctld.
    pub control: Stop,
}

/// Starts madplaned and madctld in the background and returns when both are ready.
///
/// # Errors
/// See [`SpawnError`]; nothing is left running then.
pub fn start_plane(options: &UpOptions) -> Result<Started, SpawnError> {
    start_plane_unless(options, &AtomicBool::new(false))
}

/// As [`start_plane`], and gives up once `interrupted` is set (by a signal handler: the wait notices the signal).
///
/// # Errors
/// See [`SpawnError`]; nothing is left running then.
pub fn start_plane_unless(options: &UpOptions, interrupted: &AtomicBool) -> Result<Started, SpawnError> {
    let paths = options.paths();
    let system = |what: String| move |source| SpawnError::System { what, source };
    std::fs::create_dir_all(paths.run_dir())
        .map_err(system(format!("runtime directory {}", paths.run_dir().display())))?;
    let _turn = take_turn(paths)?;
    let plane_program = locate("madplaned", true)?;
    let control_program = locate("madctld", true)?;
    let running = find_plane(paths).map_err(system("lock of madplaned".to_owned()))?;
    let control = find_control(paths).map_err(system("lock of madctld".to_owned()))?;
    if let Some(plane_pid) = running {
        if control.is_some() || !options.only_defaults() {
            let mut what = describe_running(paths, plane_pid);
            if control.is_none() {
                what.push_str("; its madctld is not: madctl up without options restarts it");
            }
            return Err(SpawnError::AlreadyRunning { name: paths.name().to_owned(), what });
        }
        let control_pid = launch_control(options, &control_program, interrupted)?;
        return Ok(Started { plane_pid, control_pid, control_only: true });
    }
    if control.is_some() {
        // left over from a plane that was killed; it may be of another version
        stop_daemon(&paths.control_lock(), "madctld")?;
    }
    let plane = launch("madplaned", &plane_program, options.plane_arguments(), paths, interrupted)?;
    match launch_control(options, &control_program, interrupted) {
        Ok(control_pid) => Ok(Started { plane_pid: plane.id(), control_pid, control_only: false }),
        Err(error) => {
            end_child(plane);
            Err(error)
        }
    }
}

fn launch_control(options: &UpOptions, program: &Path, interrupted: &AtomicBool) -> Result<u32, SpawnError> {
    Ok(launch("madctld", program, options.control_arguments(), options.paths(), interrupted)?.id())
}

fn describe_running(paths: &PlanePaths, pid: u32) -> String {
    use madplane_shm::sync::Ordering::Relaxed;
    let pid_text = format!("pid {pid}");
    match Status::open(&paths.status_segment()) {
        Ok(status) if status.writer().pid == pid => {
            let since = crate::cli::output::utc(status.plane().started_unix_ns.load(Relaxed));
            format!("{pid_text}, since {since}, fabric {}", status.plane().fabric.load())
        }
        _ => pid_text,
    }
}

/// Keeps other starts and stops of this plane out for as long as the lock lives.
fn take_turn(paths: &PlanePaths) -> Result<DaemonLock, SpawnError> {
    let until = Instant::now() + OTHER_MADCTL_WITHIN;
    loop {
        match DaemonLock::acquire(&paths.run_dir().join("madctl.lock")) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held { .. }) if Instant::now() < until => {}
            Err(LockError::Held { pid }) => {
                return Err(SpawnError::Busy { name: paths.name().to_owned(), pid });
            }
            Err(LockError::Io { path, source }) => {
                return Err(SpawnError::System { what: format!("lock file {}", path.display()), source });
            }
        }
    }
}

fn launch(
    daemon: &'static str,
    program: &Path,
    mut arguments: Vec<OsString>,
    paths: &PlanePaths,
    interrupted: &AtomicBool,
) -> Result<Child, SpawnError> {
    let system = |what: String| move |source| SpawnError::System { what, source };
    let log_path = paths.log_file(daemon);
    let log = fresh_log(&log_path).map_err(system(format!("log file {}", log_path.display())))?;
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| system("pipe".to_owned())(error.into()))?;
    arguments.extend(["--ready-fd".into(), sys::fd_number(&writer).to_string().into()]);
    let mut child = sys::spawn_detached(program, &arguments, log, writer)
        .map_err(system(program.display().to_string()))?;
    let answer = read_ready_line(&reader, interrupted);
    let reason = match answer {
        Ok(Some(line)) if line == "READY" => return Ok(child),
        Ok(Some(line)) => line.strip_prefix("ERROR ").unwrap_or(&line).to_owned(),
        Ok(None) => {
            // it ended, or is about to; the exit status is worth a short wait
            let status = wait_child(&mut child, Duration::from_secs(1));
            let status = status.map_or_else(|| "without an answer".to_owned(), |status| status.to_string());
            let last = last_line(&log_path).map_or_else(String::new, |line| format!(": {line}"));
            format!("ended before it was ready ({status}){last}; see {}", log_path.display())
        }
        Err(error) => {
            end_child(child);
            return Err(match error {
                ReadyError::Interrupted => SpawnError::Interrupted,
                ReadyError::Slow => {
                    let reason = format!(
                        "not ready within {} s and stopped again; see {}",
                        READY_WITHIN.as_secs(),
                        log_path.display()
                    );
                    SpawnError::Daemon { daemon, reason }
                }
                ReadyError::Io(source) => {
                    SpawnError::System { what: format!("waiting for {daemon}"), source }
                }
            });
        }
    };
    end_child(child);
    Err(SpawnError::Daemon { daemon, reason: strip_own_name(daemon, &reason).to_owned() })
}

fn strip_own_name<'a>(daemon: &str, reason: &'a str) -> &'a str {
    reason.strip_prefix(daemon).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason)
}

/// Opens an empty log; the one of the last run is kept beside it.
fn fresh_log(path: &Path) -> io::Result<File> {
    let mut kept = path.as_os_str().to_owned();
    kept.push(".old");
    match std::fs::rename(path, PathBuf::from(kept)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().create(true).append(true).open(path)
}

fn last_line(path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned();
    text.lines().rev().find(|line| !line.trim().is_empty()).map(|line| line.chars().take(300).collect())
}

enum ReadyError {
    Interrupted,
    Slow,
    Io(io::Error),
}

/// The daemon's one line; `None` if it closed the pipe without one.
fn read_ready_line(pipe: &OwnedFd, interrupted: &AtomicBool) -> Result<Option<String>, ReadyError> {
    let until = Instant::now() + READY_WITHIN;
    let mut line = Vec::new();
    let mut piece = [0u8; 512];
    while !line.contains(&b'\n') && line.len() < MAX_READY_LINE {
        if interrupted.load(Ordering::Relaxed) {
            return Err(ReadyError::Interrupted);
        }
        // bounded: a signal between the look above and the wait must not be lost
        let wait = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(200));
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&sys::timespec(wait))) {
            Ok(0) if Instant::now() >= until => return Err(ReadyError::Slow),
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(ReadyError::Io(error.into())),
        }
        match rustix::io::read(pipe, &mut piece) {
            Ok(0) => break,
            Ok(count) => line.extend_from_slice(&piece[..count]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(ReadyError::Io(error.into())),
        }
    }
    let text = String::from_utf8_lossy(&line);
    Ok(text.lines().next().map(str::to_owned))
}

fn wait_child(child: &mut Child, within: Duration) -> Option<std::process::ExitStatus> {
    let until = Instant::now() + within;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

/// Ends a child of this process: asks, then kills.
fn end_child(mut child: Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // the child has not been waited for, so the id is still its own; it may have ended already
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    if wait_child(&mut child, STOP_WITHIN).is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Stops madctld and madplaned of a plane and returns when both are gone.
///
/// # Errors
/// [`SpawnError::NotRunning`] if there is neither, [`SpawnError::System`] without permission to stop them.
pub fn stop_plane(paths: &PlanePaths) -> Result<StoppedPlane, SpawnError> {
    if !paths.run_dir().is_dir() {
        return Err(SpawnError::NotRunning(paths.name().to_owned()));
    }
    let _turn = take_turn(paths)?;
    let control = ask_to_end(&paths.control_lock(), "madctld")?;
    let plane = ask_to_end(&paths.plane_lock(), "madplaned")?;
    let until = Instant::now() + STOP_WITHIN;
    let stopped = StoppedPlane { control: see_off(control, until)?, plane: see_off(plane, until)? };
    if stopped.control == Stop::WasNotRunning && stopped.plane == Stop::WasNotRunning {
        return Err(SpawnError::NotRunning(paths.name().to_owned()));
    }
    Ok(stopped)
}

fn stop_daemon(lock: &Path, daemon: &'static str) -> Result<Stop, SpawnError> {
    let ending = ask_to_end(lock, daemon)?;
    see_off(ending, Instant::now() + STOP_WITHIN)
}

struct Ending {
    daemon: &'static str,
    pid: u32,
    process: OwnedFd,
}

/// Sends SIGTERM to the holder of `lock`; `None` if there is none.
fn ask_to_end(lock: &Path, daemon: &'static str) -> Result<Option<Ending>, SpawnError> {
    let system = |source| SpawnError::System { what: format!("stopping {daemon}"), source };
    let Some(held) = lock::holder(lock).map_err(system)? else { return Ok(None) };
    let Some(pid) = i32::try_from(held.pid).ok().and_then(Pid::from_raw) else {
        let text = format!("the holder of {} is not known", lock.display());
        return Err(system(io::Error::other(text)));
    };
    let process = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(None),
        Err(error) => return Err(system(error.into())),
    };
    // the pidfd cannot change its process any more: if the lock is still held under this id, it is the right one
    if lock::holder(lock).map_err(system)? != Some(held) {
        return Ok(None);
    }
    match rustix::process::pidfd_send_signal(&process, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => Ok(Some(Ending { daemon, pid: held.pid, process })),
        Err(error) => Err(SpawnError::System {
            what: format!("stopping {daemon} (pid {})", held.pid),
            source: error.into(),
        }),
    }
}

fn see_off(ending: Option<Ending>, until: Instant) -> Result<Stop, SpawnError> {
    let Some(Ending { daemon, pid, process }) = ending else { return Ok(Stop::WasNotRunning) };
    if ended_by(&process, until) {
        return Ok(Stop::Stopped { pid });
    }
    let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
    if ended_by(&process, Instant::now() + STOP_WITHIN) {
        return Ok(Stop::Killed { pid });
    }
    let source = io::Error::other("does not even end when killed");
    Err(SpawnError::System { what: format!("stopping {daemon} (pid {pid})"), source })
}

fn ended_by(process: &OwnedFd, until: Instant) -> bool {
    loop {
        let wait = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&sys::timespec(wait))) {
            Ok(0) => return false,
            Err(Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}
