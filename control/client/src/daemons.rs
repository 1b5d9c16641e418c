//! Which daemons of a plane run.
//!
//! By their locks ([`madplane_shm::process::lock`]); madplaned's process is also held against the status segment.
//!
//! Any thread. Taking such a lock, starting and stopping daemons is not done here.

use std::io;

use madplane_shm::paths::{DEFAULT_NAME, PlanePaths};
use madplane_shm::process;
pub use madplane_shm::process::lock::{Holder, holder};
use madplane_shm::status::Status;

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
