//! What madctld tells the service manager that started it.
//!
//! Owned by the reactor's thread. The sign of life is given from the loop itself, at the end of a turn, so a loop that hangs
//! gives none; with a watchdog the loop sleeps no longer than a quarter of the manager's patience, without one as long as it
//! likes. Not here: the protocol ([`notify`](madplane_shm::process::notify)), and what a plane tells.

use std::time::{Duration, Instant};

use madplane_shm::process::notify::Notifier;
use tracing::{info, warn};

/// A status line is sent at most this often.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// madctld's side of the service manager; by default there is none.
#[derive(Debug, Default)]
pub struct Manager {
    notifier: Notifier,
    well_at: Option<Instant>,
    status_at: Option<Instant>,
}

impl Manager {
    /// The manager that the environment names. One that cannot be understood is told nothing, and the log says so.
    pub fn from_environment() -> Self {
        let notifier = Notifier::from_environment().unwrap_or_else(|error| {
            warn!("the service manager will not hear of us: {error}");
            Notifier::default()
        });
        if notifier.is_heard() {
            info!("started by {notifier}");
        }
        Self::new(notifier)
    }

    /// Speaks through `notifier`.
    pub fn new(notifier: Notifier) -> Self {
        Self { notifier, ..Self::default() }
    }

    /// Whether there is one.
    pub fn is_heard(&self) -> bool {
        self.notifier.is_heard()
    }

    /// The longest time for which the loop may sleep.
    pub fn longest_sleep(&self) -> Option<Duration> {
        self.notifier.watchdog().map(|patience| patience / 4)
    }

    /// Start or reload is done.
    pub fn ready(&mut self, status: &str) {
        self.notifier.ready(status);
    }

    /// A turn of the loop has ended: tells that it is well, and what is new, as far as it is time for it.
    pub fn come_by(&mut self, status: &str, now: Instant) {
        if self.notifier.well_every().is_some_and(|every| is_time(self.well_at, every, now)) {
            self.well_at = Some(now);
            self.notifier.well();
        }
        if is_time(self.status_at, STATUS_EVERY, now) {
            self.status_at = Some(now);
            self.notifier.status(status);
        }
    }

    /// A reload begins.
    pub fn reloading(&self) {
        self.notifier.reloading();
    }

    /// madctld ends in order.
    pub fn stopping(&mut self) {
        self.notifier.stopping();
    }
}

fn is_time(last: Option<Instant>, every: Duration, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= every)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn the_loop_is_well_twice_within_the_managers_patience_and_tells_what_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let hears = || {
            let mut bytes = [0xa5; 512];
            let mut all = Vec::new();
            while let Ok(length) = socket.recv(&mut bytes) {
                all.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
            all
        };
        let notifier = Notifier::new(Some(path.as_os_str()), Some(OsStr::new("4000000")), None).unwrap();
        let mut manager = Manager::new(notifier);
        assert_eq!(manager.longest_sleep(), Some(Duration::from_secs(1)));
        let start = Instant::now();
        manager.ready("a");
        assert_eq!(hears(), ["READY=1\nSTATUS=a"]);
        for (second, status, heard) in [
            (0, "a", &["WATCHDOG=1"][..]),
            (1, "b", &["STATUS=b"]),
            (2, "b", &["WATCHDOG=1"]),
            (3, "b", &[]),
            (4, "c", &["WATCHDOG=1", "STATUS=c"]),
        ] {
            manager.come_by(status, start + Duration::from_secs(second));
            assert_eq!(hears(), heard, "after {second} s");
        }
        manager.stopping();
        assert_eq!(hears(), ["STOPPING=1\nSTATUS=stopping"]);
    }

    #[test]
    fn without_a_manager_the_loop_sleeps_as_it_likes() {
        let mut manager = Manager::default();
        assert!(!manager.is_heard() && manager.longest_sleep().is_none());
        manager.ready("a");
        manager.come_by("a", Instant::now());
    }
}
