//! What the plane tells the service manager that started it, and whether it may say that it is well.
//!
//! Owned by housekeeping. Housekeeping being alive says nothing about the plane: MADs are forwarded by the workers. So the
//! watchdog is fed only when *every* worker has shown a new heartbeat in its status block since it was last fed ([`Vigil`]);
//! one worker that hangs is enough to starve it. Idle workers show one every 100 ms. Not here: what a worker shows, and the
//! protocol itself ([`notify`](madplane_shm::process::notify)).

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use madplane_shm::process::notify::Notifier;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering;

/// A status line is sent at most this often.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Watches the heartbeats of workers.
#[derive(Debug)]
pub struct Vigil {
    /// Time between two signs of life of the plane.
    every: Duration,
    last: Instant,
    /// Heartbeats when the last sign was given.
    seen: Vec<u64>,
    silent: Option<usize>,
}

impl Vigil {
    /// Begins to watch at `now`, when the workers have shown `heartbeats`.
    pub fn new(every: Duration, now: Instant, heartbeats: Vec<u64>) -> Self {
        Self { every, last: now, seen: heartbeats, silent: None }
    }

    /// Whether a sign of life is to be given now: it is time for one, and every worker has moved since the last.
    pub fn is_well(&mut self, now: Instant, heartbeats: &[u64]) -> bool {
        if now.saturating_duration_since(self.last) < self.every {
            return false;
        }
        let still = self.seen.iter().zip(heartbeats).position(|(seen, shown)| seen == shown);
        self.silent = still;
        if still.is_some() {
            return false;
        }
        self.last = now;
        self.seen.clear();
        self.seen.extend_from_slice(heartbeats);
        true
    }

    /// The worker that has kept the last sign back, and the time since the one before.
    pub fn silent(&self, now: Instant) -> Option<(usize, Duration)> {
        self.silent.map(|worker| (worker, now.saturating_duration_since(self.last)))
    }
}

/// Housekeeping's side of the service manager.
#[derive(Debug, Default)]
pub struct Service {
    notifier: Notifier,
    vigil: Option<Vigil>,
    status_at: Option<Instant>,
    complained: Option<usize>,
    reload: Option<OwnedFd>,
}

impl Service {
    /// Speaks through `notifier`; a reload is asked for by a byte that `reload` has to read.
    pub fn new(notifier: Notifier, reload: OwnedFd) -> Self {
        Self { notifier, reload: Some(reload), ..Self::default() }
    }

    /// What a reload is asked for through.
    pub(crate) fn reload_fd(&self) -> Option<&OwnedFd> {
        self.reload.as_ref()
    }

    /// The longest time for which housekeeping may sleep if the watchdog is to be fed in time.
    pub fn longest_sleep(&self) -> Option<Duration> {
        self.notifier.watchdog().map(|patience| patience / 4)
    }

    /// The plane serves: from now on its workers are watched.
    pub fn begin(&mut self, status: &Status) {
        let now = Instant::now();
        self.vigil = self.notifier.well_every().map(|every| Vigil::new(every, now, heartbeats(status)));
        if self.notifier.is_heard() {
            tracing::info!("started by {}", self.notifier);
            self.notifier.ready(&summary(status));
        }
    }

    /// Feeds the watchdog if every worker lives, and tells what is new.
    pub fn come_by(&mut self, status: &Status) {
        if !self.notifier.is_heard() {
            return;
        }
        let now = Instant::now();
        let mut silent = None;
        if let Some(vigil) = &mut self.vigil {
            if vigil.is_well(now, &heartbeats(status)) {
                self.notifier.well();
            }
            silent = vigil.silent(now);
        }
        let newly = silent.map(|(worker, _)| worker);
        if let Some((worker, since)) = silent
            && self.complained != newly
        {
            let text = format!("worker {worker} does not come by; the watchdog is not fed");
            tracing::warn!(?since, "{text}");
            status.record_error(&text, madplane_shm::process::unix_ns());
        }
        self.complained = newly;
        if self.status_at.is_none_or(|at| now.saturating_duration_since(at) >= STATUS_EVERY) {
            self.status_at = Some(now);
            let text = match silent {
                None => summary(status),
                Some((worker, since)) => {
                    format!("worker {worker} has not come by for {} s", since.as_secs())
                }
            };
            self.notifier.status(&text);
        }
    }

    /// A reload was asked for.
    pub(crate) fn reloading(&self) {
        if let Some(pipe) = &self.reload {
            let mut bytes = [0; 64];
            // one reload for as many signals as there were
            let _ = rustix::io::read(pipe, &mut bytes);
        }
        self.notifier.reloading();
    }

    /// The reload is done.
    pub(crate) fn reloaded(&mut self, status: &Status) {
        self.notifier.ready(&summary(status));
    }

    /// The plane ends.
    pub(crate) fn stopping(&mut self) {
        self.notifier.stopping();
    }
}

fn heartbeats(status: &Status) -> Vec<u64> {
    let workers = status.plane().workers.load(Ordering::Relaxed) as usize;
    (0..workers).map(|worker| status.worker(worker).heartbeat_ns.load(Ordering::Relaxed)).collect()
}

fn summary(status: &Status) -> String {
    let plane = status.plane();
    let [nodes, links, sessions] =
        [&plane.nodes, &plane.links, &plane.sessions].map(|word| word.load(Ordering::Relaxed));
    format!("{nodes} nodes, {links} links, {sessions} sessions")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use madplane_shm::header::Incarnation;

    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    #[test]
    fn a_sign_of_life_needs_every_worker_to_have_moved_and_is_not_given_more_often_than_asked_for() {
        let start = Instant::now();
        let mut vigil = Vigil::new(EVERY, start, vec![1, 1]);
        let at = |periods: u32| start + EVERY * periods;
        assert!(!vigil.is_well(start, &[2, 2]), "not yet time");
        assert!(vigil.is_well(at(1), &[2, 2]));
        assert!(!vigil.is_well(at(1), &[3, 3]), "not yet time again");
        for (worker, shown) in [(0, [2, 3]), (1, [3, 2])] {
            assert!(!vigil.is_well(at(3), &shown), "worker {worker} has stalled");
            assert_eq!(vigil.silent(at(4)), Some((worker, EVERY * 3)));
        }
        assert!(vigil.is_well(at(5), &[3, 3]), "it goes on");
        assert_eq!(vigil.silent(at(5)), None);
    }

    struct Manager(UnixDatagram);

    impl Manager {
        fn hears(&self) -> Vec<String> {
            let mut all = Vec::new();
            let mut bytes = [0xa5; 512];
            while let Ok(length) = self.0.recv(&mut bytes) {
                all.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
            all
        }
    }

    #[test]
    fn a_stalled_worker_starves_the_watchdog_while_housekeeping_lives_and_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        status.plane().workers.store(2, Ordering::Relaxed);
        status.plane().nodes.store(3, Ordering::Relaxed);
        let path = directory.path().join("notify");
        let manager = Manager(UnixDatagram::bind(&path).unwrap());
        manager.0.set_nonblocking(true).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str()), Some(OsStr::new("2000")), None).unwrap();
        let (reload, _signal) = UnixStream::pair().unwrap();
        let mut service = Service::new(notifier, reload.into());
        assert_eq!(service.longest_sleep(), Some(Duration::from_micros(500)));
        service.begin(&status);
        assert_eq!(manager.hears(), ["READY=1\nSTATUS=3 nodes, 0 links, 0 sessions"]);
        let beat = |worker: usize| status.worker(worker).heartbeat_ns.fetch_add(1, Ordering::Relaxed);
        let mut turn = |moving: &[usize]| {
            moving.iter().for_each(|worker| {
                beat(*worker);
            });
            std::thread::sleep(Duration::from_millis(2));
            service.come_by(&status);
            manager.hears()
        };
        for _ in 0..3 {
            assert_eq!(turn(&[0, 1]), ["WATCHDOG=1"]);
        }
        for stalled in [0, 1] {
            for _ in 0..3 {
                let heard = turn(&[1 - stalled]);
                assert!(!heard.iter().any(|line| line.contains("WATCHDOG")), "{heard:?}");
            }
            assert!(status.error(stalled).text.load().contains(&format!("worker {stalled} ")));
            assert!(turn(&[0, 1]).contains(&"WATCHDOG=1".to_owned()), "it goes on");
        }
    }

    #[test]
    fn without_a_manager_nothing_is_watched() {
        let directory = tempfile::tempdir().unwrap();
        let status = Status::create(&directory.path().join("status"), Incarnation::default()).unwrap();
        status.plane().workers.store(1, Ordering::Relaxed);
        let mut service = Service::default();
        service.begin(&status);
        service.come_by(&status);
        assert!(service.vigil.is_none() && service.longest_sleep().is_none());
        assert!(status.error(0).text.load().is_empty());
    }
}
