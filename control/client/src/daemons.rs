//! Which daemons of a plane run.
//!
//! A daemon holds a lock on its file for as long as it lives and writes its process id into it; the kernel drops the lock
//! however the process ends. The file itself says nothing. Any process may look; looking takes a shared lock for a few
//! microseconds when nobody holds the file. The id in the file is believed only while the lock is held, and only if the
//! start time written beside it (madctld) or in the status segment (madplaned) still belongs to that id.
//!
//! Any thread. Taking such a lock, starting and stopping daemons is not done here.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::time::Duration;

use madplane_shm::paths::{DEFAULT_NAME, PlanePaths};
use madplane_shm::process;
use madplane_shm::status::Status;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// A running daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its process id, 0 if it is held by somebody who has not written it yet.
    pub pid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    pid: u32,
    start_ticks: Option<u64>,
}

/// Process id that stands in a lock file, whoever holds it now.
pub fn claimed_pid(file: &mut File) -> Option<u32> {
    read_claim(file).map(|claim| claim.pid)
}

fn read_claim(file: &mut File) -> Option<Claim> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(64).read_to_string(&mut text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let pid = words.next()?.parse().ok()?;
    Some(Claim {
        pid,
        start_ticks: words.next().and_then(|word| word.parse().ok()).filter(|ticks| *ticks != 0),
    })
}

/// Returns who holds the lock at `path`; `None` if nobody does, also if there is no such file.
///
/// # Errors
/// The file cannot be opened.
pub fn holder(path: &Path) -> io::Result<Option<Holder>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    for _ in 0..TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(None),
            Err(Errno::WOULDBLOCK) => {}
            Err(Errno::INTR) => continue,
            Err(other) => return Err(other.into()),
        }
        if let Some(claim) = read_claim(&mut file) {
            let found = process::start_ticks(claim.pid);
            if found.is_some() && (claim.start_ticks.is_none() || claim.start_ticks == found) {
                return Ok(Some(Holder { pid: claim.pid }));
            }
        }
        // locked a moment ago, its id not written yet
        std::thread::sleep(BETWEEN_TRIES);
    }
    Ok(Some(Holder { pid: 0 }))
}

/// Returns the process id of the plane's madplaned, `None` if it does not run. 0 stands for an id not known yet.
///
/// # Errors
/// The lock file cannot be read.
pub fn find_plane(paths: &PlanePaths) -> io::Result<Option<u32>> {
    let Some(held) = holder(&paths.plane_lock())? else { return Ok(None) };
    if let Ok(status) = Status::open(&paths.status_segment()) {
        let writer = status.writer();
        let found = process::start_ticks(held.pid);
        if writer.pid == held.pid && writer.start_ticks != 0 && found.is_some_and(|t| t != writer.start_ticks)
        {
            return Ok(Some(0));
        }
    }
    Ok(Some(held.pid))
}

/// Returns the process id of the plane's madctld, `None` if it does not run.
///
/// # Errors
/// The lock file cannot be read.
pub fn find_control(paths: &PlanePaths) -> io::Result<Option<u32>> {
    Ok(holder(&paths.control_lock())?.map(|held| held.pid))
}

/// Names of the planes that run beside the one at `paths`.
pub fn running_planes(paths: &PlanePaths) -> Vec<String> {
    let Some(Ok(entries)) = paths.run_dir().parent().map(std::fs::read_dir) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let runs = |name: &String| {
        PlanePaths::new(name).is_ok_and(|paths| find_plane(&paths).is_ok_and(|pid| pid.is_some()))
    };
    names.filter(runs).collect()
}

/// The line for whoever needs a running plane.
pub fn not_running(paths: &PlanePaths) -> String {
    let name = paths.name();
    let hint = crate::nearest::hint(name, running_planes(paths).iter().map(String::as_str));
    let option = if name == DEFAULT_NAME { String::new() } else { format!(" --name {name}") };
    format!("plane {name} is not running; start it with: madctl up{option}{hint}")
}
