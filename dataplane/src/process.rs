//! The lock that says that a plane runs.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

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
