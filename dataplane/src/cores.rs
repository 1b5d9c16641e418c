//! Cores of the workers: one poller on each, whatever plane it belongs to, and where they go when a cpuset changes.
//!
//! A worker's core is claimed by a lock file beside the runtime directories of all planes (`core-N.lock`), which the kernel
//! gives back when the process ends. Cores that were named are refused if somebody polls there; cores that were not are chosen
//! among the free ones, and without a free one workers share cores and wait for interrupts. Owned by housekeeping, which
//! looks at the allowed set when it comes by: a worker whose core is gone is given another, or shares one until its own is
//! back. Not here: the affinity of clients.

use std::path::{Path, PathBuf};

use madplane_port::machine::{self, CorePlan, ranges};
use madplane_shm::process::lock::{DaemonLock, LockError};

use crate::config::Config;

/// A core that was named and is somebody else's; one line.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another worker polls there.
    #[error("core {core} is polled by another madplane worker (pid {pid}); allowed cores are {allowed}")]
    Taken {
        /// The core.
        core: usize,
        /// Process of the other one.
        pid: u32,
        /// Where one could poll besides.
        allowed: String,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// Where a worker is, and where it belongs.
#[derive(Debug)]
struct Place {
    /// The core that it was given at the start; `None` if it never had one.
    home: Option<usize>,
    /// The core that it has now, claimed.
    now: Option<(usize, DaemonLock)>,
}

/// A worker that has to go elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Number of the worker.
    pub worker: usize,
    /// Its core from now on; `None`: anywhere, sharing.
    pub core: Option<usize>,
}

/// The cores of a plane's workers.
#[derive(Debug)]
pub struct Cores {
    directory: PathBuf,
    allowed: Vec<usize>,
    usable: Vec<usize>,
    places: Vec<Place>,
}

impl Cores {
    /// Claims a core for each worker and corrects the configuration if others are free than it would have taken.
    ///
    /// # Errors
    /// [`ClaimError`] for a core that was named.
    pub fn claim(config: &mut Config) -> Result<Self, ClaimError> {
        let run_dir = config.paths().run_dir();
        let directory = run_dir.parent().unwrap_or(run_dir).to_owned();
        let allowed = config.allowed_cores().to_vec();
        let mut made = Self { directory, usable: allowed.clone(), allowed, places: Vec::new() };
        let planned = config.cores().workers.clone();
        let shares = config.overprovisioned() && !config.names_cores();
        if config.names_cores() {
            for core in &planned {
                let lock = made.lock(*core)?;
                made.places.push(Place { home: Some(*core), now: Some((*core, lock)) });
            }
        } else if !planned.is_empty() && !shares {
            made.choose(planned.len());
        }
        let workers: Vec<usize> = made.places.iter().filter_map(|place| place.home).collect();
        let mut others: Vec<usize> =
            made.allowed.iter().copied().filter(|core| !workers.contains(core)).collect();
        if others.is_empty() {
            others.clone_from(&made.allowed);
        }
        if workers.len() < config.workers() {
            made.places = (0..config.workers()).map(|_| Place { home: None, now: None }).collect();
            config.move_to(CorePlan { workers: Vec::new(), others: made.allowed.clone() });
        } else {
            config.move_to(CorePlan { workers, others });
        }
        Ok(made)
    }

    /// The highest free cores, the lowest of all excepted; none if there are not enough.
    fn choose(&mut self, count: usize) {
        let candidates: Vec<usize> = self.allowed.iter().copied().skip(1).rev().collect();
        for core in candidates {
            if self.places.len() == count {
                break;
            }
            match self.lock(core) {
                Ok(lock) => self.places.insert(0, Place { home: Some(core), now: Some((core, lock)) }),
                Err(why) => tracing::warn!("{why}"),
            }
        }
        if self.places.len() < count {
            self.places.clear();
        }
    }

    fn lock(&self, core: usize) -> Result<DaemonLock, ClaimError> {
        claim_core(&self.directory, core).map_err(|error| match error {
            LockError::Held { pid } => ClaimError::Taken { core, pid, allowed: ranges(&self.allowed) },
            other => ClaimError::Lock(other),
        })
    }

    /// Looks which cores may be used now; the workers that have to move because of it. `own` is where the calling thread runs.
    pub fn look(&mut self, own: &[usize]) -> Vec<Move> {
        if self.places.iter().all(|place| place.home.is_none()) {
            return Vec::new();
        }
        let usable = machine::usable_cores(&self.allowed, own);
        if usable.is_empty() || usable == self.usable {
            return Vec::new();
        }
        self.usable = usable;
        self.settle()
    }

    /// Gives every worker its own core, or another that is free, or none.
    fn settle(&mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        for worker in 0..self.places.len() {
            let Place { home, now } = &self.places[worker];
            let (home, former) = (*home, now.as_ref().map(|(core, _)| *core));
            let is_usable = |core: usize| self.usable.contains(&core);
            if former.is_some() && former == home && former.is_some_and(is_usable) {
                continue;
            }
            // on a single core a poller would be in everybody's way
            let wanted = home.filter(|core| is_usable(*core) && self.usable.len() > 1);
            let spare = self.usable.iter().copied().skip(1).rev();
            let candidates = wanted.into_iter().chain(former.filter(|core| is_usable(*core))).chain(spare);
            let mut given = None;
            for core in candidates {
                if Some(core) == former && self.usable.len() > 1 {
                    given = self.places[worker].now.take();
                    break;
                }
                if let Ok(lock) = self.lock(core) {
                    given = Some((core, lock));
                    break;
                }
            }
            let core = given.as_ref().map(|(core, _)| *core);
            self.places[worker].now = given;
            if core != former {
                moves.push(Move { worker, core });
            }
        }
        moves
    }

    /// The cores that may be used now.
    pub fn usable(&self) -> &[usize] {
        &self.usable
    }
}

fn claim_core(directory: &Path, core: usize) -> Result<DaemonLock, LockError> {
    DaemonLock::acquire(&directory.join(format!("core-{core}.lock")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(directory: &Path, allowed: &[usize], homes: &[usize]) -> Cores {
        let mut made = Cores {
            directory: directory.to_owned(),
            allowed: allowed.to_vec(),
            usable: allowed.to_vec(),
            places: Vec::new(),
        };
        for core in homes {
            let lock = made.lock(*core).unwrap();
            made.places.push(Place { home: Some(*core), now: Some((*core, lock)) });
        }
        made
    }

    fn shrink(cores: &mut Cores, usable: &[usize]) -> Vec<(usize, Option<usize>)> {
        cores.usable = usable.to_vec();
        cores.settle().into_iter().map(|step| (step.worker, step.core)).collect()
    }

    #[test]
    fn a_core_is_claimed_once_and_free_when_its_holder_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let first = cores(directory.path(), &[0, 1], &[1]);
        let error = first.lock(1).unwrap_err().to_string();
        let pid = std::process::id();
        assert_eq!(
            error,
            format!("core 1 is polled by another madplane worker (pid {pid}); allowed cores are 0-1")
        );
        drop(first);
        cores(directory.path(), &[0, 1], &[1]);
    }

    #[test]
    fn cores_that_are_not_named_are_the_highest_free_ones() {
        let directory = tempfile::tempdir().unwrap();
        let _taken = claim_core(directory.path(), 3).unwrap();
        let mut made = cores(directory.path(), &[0, 1, 2, 3], &[]);
        made.choose(2);
        let homes: Vec<_> = made.places.iter().filter_map(|place| place.home).collect();
        assert_eq!(homes, [1, 2]);
        let mut none = cores(directory.path(), &[0, 1, 2, 3], &[]);
        none.choose(1);
        assert!(none.places.is_empty(), "the lowest is left to others");
    }

    #[test]
    fn a_worker_whose_core_is_gone_moves_and_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut cores = cores(directory.path(), &[0, 1, 2, 3], &[2, 3]);
        assert_eq!(shrink(&mut cores, &[0, 1, 2]), [(1, Some(1))]);
        assert_eq!(shrink(&mut cores, &[0, 2]), [(1, None)], "no core is left but the others'");
        assert_eq!(shrink(&mut cores, &[0]), [(0, None)]);
        assert_eq!(shrink(&mut cores, &[0, 1, 2, 3]), [(0, Some(2)), (1, Some(3))]);
        assert_eq!(shrink(&mut cores, &[1, 2, 3]), []);
    }
}
