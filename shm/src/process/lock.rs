//! Who is running: lock files of the daemons.
//!
//! A daemon holds a lock on its file for as long as it lives and writes its process id into it; the kernel drops the
//! lock however the process ends. The file itself says nothing and is never removed. Any process may look.
//!
//! The id in the file is believed only while the lock is held, and only if the start time written beside it still belongs
//! to that id. Looking takes a shared lock for a few microseconds when nobody holds the file, which is why
//! [`DaemonLock::acquire`] tries more than once.
//!
//! Not here: what a daemon that is not alone says about it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::start_ticks;

const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("locked by pid {pid}")]
    Held {
        /// Its process id, 0 if it could not be read.
        pid: u32,
    },
    /// The file cannot be made or locked.
    #[error("lock file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A lock held by this process until dropped.
#[derive(Debug)]
pub struct DaemonLock {
    _file: File,
}

impl DaemonLock {
    /// Takes the lock at `path` and writes process id and start time into the file. Never waits for a holder.
    ///
    /// # Errors
    /// [`LockError::Held`] with the holder, [`LockError::Io`].
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let fail = |source| LockError::Io { path: path.to_owned(), source };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
        for attempt in 1..=TRIES {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if attempt == TRIES => {
                    return Err(LockError::Held { pid: read_claim(&mut file).map_or(0, |claim| claim.pid) });
                }
                Err(Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_TRIES),
                Err(other) => return Err(fail(other.into())),
            }
        }
        let pid = std::process::id();
        let text = format!("{pid}\n{}\n", start_ticks(pid).unwrap_or(0));
        file.set_len(0).map_err(fail)?;
        file.rewind().map_err(fail)?;
        file.write_all(text.as_bytes()).map_err(fail)?;
        Ok(Self { _file: file })
    }
}

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
            let found = start_ticks(claim.pid);
            if found.is_some() && (claim.start_ticks.is_none() || claim.start_ticks == found) {
                return Ok(Some(Holder { pid: claim.pid }));
            }
        }
        // locked a moment ago, its id not written yet
        std::thread::sleep(BETWEEN_TRIES);
    }
    Ok(Some(Holder { pid: 0 }))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_names_its_holder_and_a_dropped_one_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert_eq!(holder(&path).unwrap(), None, "no file");
        let lock = DaemonLock::acquire(&path).unwrap();
        assert_eq!(holder(&path).unwrap(), Some(Holder { pid: std::process::id() }));
        match DaemonLock::acquire(&path).unwrap_err() {
            LockError::Held { pid } => assert_eq!(pid, std::process::id()),
            other => panic!("{other}"),
        }
        drop(lock);
        assert_eq!(holder(&path).unwrap(), None, "stale file");
        DaemonLock::acquire(&path).unwrap();
    }

    #[test]
    fn a_held_lock_with_a_stale_id_is_held_by_nobody_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let _lock = DaemonLock::acquire(&path).unwrap();
        for stale in ["", "rubbish", "4294967294\n", &format!("{}\n1\n", std::process::id())] {
            std::fs::write(&path, stale).unwrap();
            assert_eq!(holder(&path).unwrap(), Some(Holder { pid: 0 }), "{stale:?}");
        }
        std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert_eq!(holder(&path).unwrap(), Some(Holder { pid: std::process::id() }), "an id alone");
    }
}
