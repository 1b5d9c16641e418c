//! This process as others see it: its incarnation, its clocks, and the lock that says it runs.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use madplane_shm::header::Incarnation;

/// Identity of this process.
pub fn incarnation() -> Incarnation {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // the command name may hold anything; fields are counted after its closing parenthesis
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let start_ticks = fields.split_whitespace().nth(19).and_then(|f| f.parse().ok()).unwrap_or(0);
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot_id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    Incarnation { pid: std::process::id(), start_ticks, boot: u64::from_str_radix(&digits, 16).unwrap_or(0) }
}

/// The monotonic clock in nanoseconds, as every process of the machine sees it. No system call.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Unix time in nanoseconds.
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Why the lock of a plane could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("plane {name} is already running (pid {pid})")]
    Held {
        /// Name of the plane.
        name: String,
        /// Process id of the holder.
        pid: String,
    },
    /// The file cannot be used.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A lock that the kernel drops when this process ends, however it ends.
#[derive(Debug)]
pub struct PlaneLock {
    _file: File,
}

impl PlaneLock {
    /// Takes the lock at `path` and writes this process's id into it.
    ///
    /// # Errors
    /// [`LockError::Held`] names the holder.
    pub fn take(path: &Path, name: &str) -> Result<Self, LockError> {
        let fail = |source| LockError::Io { path: path.display().to_string(), source };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                return Err(LockError::Held { name: name.to_owned(), pid: pid.trim().to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
        file.set_len(0).map_err(fail)?;
        file.rewind().map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_names_this_process_and_its_start() {
        let me = incarnation();
        assert_eq!(me.pid, std::process::id());
        assert!(me.start_ticks > 0 && me.boot != 0);
    }

    #[test]
    fn a_second_holder_is_told_who_has_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = PlaneLock::take(&path, "n").unwrap();
        let error = PlaneLock::take(&path, "n").unwrap_err().to_string();
        assert_eq!(error, format!("plane n is already running (pid {})", std::process::id()));
        drop(first);
        PlaneLock::take(&path, "n").unwrap();
    }
}
