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
    /// Workers never poll in vain: they may have every core.
    polite: bool,
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
        let polite = config.overprovisioned();
        let mut made = Self { directory, usable: allowed.clone(), allowed, places: Vec::new(), polite };
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
            config.move_to(CorePlan { workers: Vec::new(), others: made.unpolled() });
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

    /// The cores where no other plane's worker polls; all if there is no other.
    fn unpolled(&self) -> Vec<usize> {
        let free = |core: &usize| self.lock(*core).is_ok();
        let free: Vec<usize> = self.allowed.iter().copied().filter(free).collect();
        if free.is_empty() { self.allowed.clone() } else { free }
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
        let before = self.held();
        // a worker that goes home may leave a core that another one wants
        for _ in 0..=self.places.len() {
            let former = self.held();
            self.place_all();
            if self.held() == former {
                break;
            }
        }
        let after = self.held().into_iter().enumerate();
        after
            .zip(before)
            .filter(|((_, now), before)| now != before)
            .map(|((worker, core), _)| Move { worker, core })
            .collect()
    }

    /// The core of each worker.
    fn held(&self) -> Vec<Option<usize>> {
        self.places.iter().map(|place| place.now.as_ref().map(|(core, _)| *core)).collect()
    }

    fn place_all(&mut self) {
        // who polls on the last core is in everybody's way
        let most = if self.polite { self.usable.len() } else { self.usable.len().saturating_sub(1) };
        let mut given = 0;
        for worker in 0..self.places.len() {
            let own = self.places[worker].now.take();
            let place = if given < most { self.place(self.places[worker].home, own) } else { None };
            given += usize::from(place.is_some());
            self.places[worker].now = place;
        }
    }

    /// The best core that a worker can have: its home, the one that it has, any that is free and not the lowest.
    fn place(&self, home: Option<usize>, own: Option<(usize, DaemonLock)>) -> Option<(usize, DaemonLock)> {
        let (former, lock) = own.unzip();
        let wanted = home.into_iter().chain(former).chain(self.usable.iter().copied().skip(1).rev());
        let ours = self.held();
        for core in wanted.filter(|core| self.usable.contains(core)) {
            if Some(core) == former {
                return former.zip(lock);
            }
            if ours.contains(&Some(core)) {
                continue;
            }
            if let Ok(lock) = self.lock(core) {
                return Some((core, lock));
            }
        }
        None
    }

    /// The cores where none of the workers polls, for those without one of their own; all if there is no other.
    pub fn shared(&self) -> Vec<usize> {
        let held = self.held();
        let free: Vec<usize> =
            self.usable.iter().copied().filter(|core| !held.contains(&Some(*core))).collect();
        if free.is_empty() { self.usable.clone() } else { free }
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
            polite: false,
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
        // two are held above, one by somebody else: only the lowest is left, and that is left to others
        let mut none = cores(directory.path(), &[0, 1, 2, 3], &[]);
        none.choose(1);
        assert_eq!(none.unpolled(), [0]);
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

    #[test]
    fn one_core_is_left_to_others_even_if_it_is_a_workers_own() {
        let directory = tempfile::tempdir().unwrap();
        let mut cores = cores(directory.path(), &[0, 1, 2], &[1, 2]);
        assert_eq!(shrink(&mut cores, &[1, 2]), [(1, None)]);
        assert_eq!(cores.shared(), [2]);
        assert_eq!(shrink(&mut cores, &[1]), [(0, None)]);
        let lock = claim_core(directory.path(), 1).expect("the lock goes with the core");
        drop(lock);
        assert_eq!(cores.shared(), [1]);
        assert_eq!(shrink(&mut cores, &[0, 1, 2]), [(0, Some(1)), (1, Some(2))]);
        // who never polls in vain may stay
        cores.polite = true;
        assert_eq!(shrink(&mut cores, &[1, 2]), []);
    }

    #[test]
    fn a_worker_goes_home_although_another_one_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let mut cores = cores(directory.path(), &[0, 1, 2, 3, 4], &[3, 4]);
        assert_eq!(shrink(&mut cores, &[0, 1, 2]), [(0, Some(2)), (1, Some(1))]);
        assert_eq!(shrink(&mut cores, &[0, 1, 3]), [(0, Some(3))]);
        assert_eq!(shrink(&mut cores, &[0, 3, 4]), [(1, Some(4))]);
        // both are elsewhere, the first on the home of the second
        assert_eq!(shrink(&mut cores, &[0, 1, 4]), [(0, Some(1))]);
        assert_eq!(shrink(&mut cores, &[0, 1, 2, 3, 4]), [(0, Some(3))]);
    }

    #[test]
    fn a_core_that_somebody_took_meanwhile_is_his() {
        let directory = tempfile::tempdir().unwrap();
        let mut cores = cores(directory.path(), &[0, 1, 2], &[2]);
        assert_eq!(shrink(&mut cores, &[0, 1]), [(0, Some(1))]);
        let theirs = claim_core(directory.path(), 2).unwrap();
        assert_eq!(shrink(&mut cores, &[0, 1, 2]), [], "it stays where it is");
        drop(theirs);
        assert_eq!(shrink(&mut cores, &[0, 2]), [(0, Some(2))]);
    }
}
