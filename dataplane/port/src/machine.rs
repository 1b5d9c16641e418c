//! The machine below a worker: which cores it may use, pinning, locked memory.
//!
//! Cores come from the set this process is allowed to use, never from 0..n, so that `taskset`, `srun --cpu-bind`,
//! `CPUAffinity=` and cpusets are obeyed. Called at start-up only.

use std::path::{Path, PathBuf};

use madplane_shm::map::HUGE_PAGE_BYTES;
use rustix::mm::MlockAllFlags;
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_getaffinity, sched_setaffinity};

/// How much later than asked a worker's sleep may end, nanoseconds.
const TIMER_SLACK_NS: u64 = 1_000;

/// Why cores could not be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoreError {
    /// The kernel does not say.
    #[error("cannot read the set of allowed cores")]
    Unknown,
    /// A core outside the allowed set.
    #[error("core {core} is not among the allowed cores {allowed}")]
    NotAllowed {
        /// The core that was asked for.
        core: usize,
        /// The allowed ones, as a list of ranges.
        allowed: String,
    },
    /// Fewer cores than workers.
    #[error("{workers} workers need {workers} cores of their own, {given} are named")]
    TooFew {
        /// Workers to place.
        workers: usize,
        /// Cores named.
        given: usize,
    },
    /// Not a list of cores.
    #[error("{0:?} is not a list of cores such as 1,3-5")]
    Syntax(String),
    /// Two workers on one core.
    #[error("core {0} is named twice")]
    Twice(usize),
}

/// Where workers poll, and what is left for everybody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorePlan {
    /// Core of each worker; empty if workers are not pinned because there is only one core.
    pub workers: Vec<usize>,
    /// Cores for all other threads.
    pub others: Vec<usize>,
}

/// The cores that this process may use, in ascending order.
pub fn allowed_cores() -> Vec<usize> {
    let mut cores: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().iter().map(|c| c.id).collect();
    cores.sort_unstable();
    cores
}

/// Places `workers` polling threads: on the `wanted` cores, or on the highest allowed ones, leaving the lowest to others.
///
/// With a single core nobody is pinned and the plan is empty: pollers have to yield.
///
/// # Errors
/// [`CoreError`] names the core that cannot be used.
pub fn plan_cores(
    allowed: &[usize],
    wanted: Option<&[usize]>,
    workers: usize,
) -> Result<CorePlan, CoreError> {
    if allowed.is_empty() {
        return Err(CoreError::Unknown);
    }
    let chosen: Vec<usize> = match wanted {
        Some(list) => {
            for (index, core) in list.iter().enumerate() {
                if !allowed.contains(core) {
                    return Err(CoreError::NotAllowed { core: *core, allowed: ranges(allowed) });
                }
                if list[..index].contains(core) {
                    return Err(CoreError::Twice(*core));
                }
            }
            if list.len() < workers {
                return Err(CoreError::TooFew { workers, given: list.len() });
            }
            list[..workers].to_vec()
        }
        None if allowed.len() > workers => allowed[allowed.len() - workers..].to_vec(),
        None => Vec::new(),
    };
    let mut others: Vec<usize> = allowed.iter().copied().filter(|core| !chosen.contains(core)).collect();
    if others.is_empty() {
        others = allowed.to_vec();
    }
    Ok(CorePlan { workers: if allowed.len() == 1 { Vec::new() } else { chosen }, others })
}

/// Reads a list such as `1,3-5`.
///
/// # Errors
/// [`CoreError::Syntax`].
pub fn parse_cores(text: &str) -> Result<Vec<usize>, CoreError> {
    let syntax = || CoreError::Syntax(text.to_owned());
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| syntax())?;
        let last: usize = last.trim().parse().map_err(|_| syntax())?;
        if first > last || last >= CpuSet::MAX_CPU {
            return Err(syntax());
        }
        cores.extend(first..=last);
    }
    Ok(cores)
}

/// The cores of each NUMA node, in the order of their numbers; one node with every core where the system does not say.
pub fn numa_nodes() -> Vec<Vec<usize>> {
    nodes_below(Path::new("/sys/devices/system/node"))
}

fn nodes_below(directory: &Path) -> Vec<Vec<usize>> {
    let read = |file: PathBuf| std::fs::read_to_string(file).ok();
    let online = read(directory.join("online")).and_then(|list| parse_cores(list.trim()).ok());
    let nodes = online.unwrap_or_default().into_iter().map(|node| {
        let list = read(directory.join(format!("node{node}/cpulist"))).unwrap_or_default();
        // a node of memory alone has an empty list
        parse_cores(list.trim()).unwrap_or_default()
    });
    let nodes: Vec<Vec<usize>> = nodes.collect();
    if nodes.is_empty() { vec![(0..CpuSet::MAX_CPU).collect()] } else { nodes }
}

/// Bytes of huge pages of 2 MiB that nobody has or has reserved.
pub fn free_huge_bytes() -> u64 {
    let count = |file: &str| {
        let path = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").join(file);
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    count("free_hugepages").saturating_sub(count("resv_hugepages")) * HUGE_PAGE_BYTES as u64
}

/// Writes cores as ranges, `0-3,7`.
pub fn ranges(cores: &[usize]) -> String {
    let mut out = String::new();
    let mut index = 0;
    while index < cores.len() {
        let mut last = index;
        while last + 1 < cores.len() && cores[last + 1] == cores[last] + 1 {
            last += 1;
        }
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(&cores[index].to_string());
        if last > index {
            out.push('-');
            out.push_str(&cores[last].to_string());
        }
        index = last + 1;
    }
    out
}

/// Pins the calling thread to one core; false if the kernel refused.
pub fn pin_thread(core: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: core })
}

/// Lets the calling thread run on any of `cores`; false if the kernel refused.
pub fn allow_cores(cores: &[usize]) -> bool {
    sched_setaffinity(None, &set_of(cores)).is_ok()
}

/// Lets a thread of this process run on any of `cores`, by its id; false if the kernel refused.
pub fn allow_cores_of(thread: u32, cores: &[usize]) -> bool {
    let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
    thread.is_some_and(|thread| sched_setaffinity(Some(thread), &set_of(cores)).is_ok())
}

/// Which of `cores` a thread of this process could use now: a cpuset may have changed. Asks with the calling thread, which
/// may run on `own` afterwards.
pub fn usable_cores(cores: &[usize], own: &[usize]) -> Vec<usize> {
    let widened = allow_cores(cores);
    let usable = sched_getaffinity(None).map_or_else(
        |_| Vec::new(),
        |set| cores.iter().copied().filter(|core| *core < CpuSet::MAX_CPU && set.is_set(*core)).collect(),
    );
    if widened && !allow_cores(own) {
        // none of them is left: anywhere is better than nowhere
        allow_cores(&usable);
    }
    usable
}

fn set_of(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        set.set(*core);
    }
    set
}

/// Keeps the memory of this process from being paged out, what it maps later included if it may have all it wants; false if
/// the limit (`ulimit -l`) does not allow it.
pub fn lock_memory() -> bool {
    let unlimited = rustix::process::getrlimit(rustix::process::Resource::Memlock).current.is_none();
    let mut flags = MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT;
    // with a limit a later mapping would fail instead of being unlocked
    let exempt = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if unlimited || exempt {
        flags |= MlockAllFlags::FUTURE;
    }
    rustix::mm::mlockall(flags).is_ok()
}

/// Has timers of the calling thread end within a microsecond of their time, not within fifty; false if the kernel refused.
pub fn sharpen_timers() -> bool {
    let slack = std::num::NonZeroU64::new(TIMER_SLACK_NS);
    rustix::thread::set_current_timer_slack(slack).is_ok()
}

/// Whether the calling thread may use more than one core right now.
pub fn has_several_cores() -> bool {
    sched_getaffinity(None).is_ok_and(|set| set.count() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_take_the_highest_cores_and_leave_the_lowest() {
        let plan = plan_cores(&[0, 1], None, 1).unwrap();
        assert_eq!(plan, CorePlan { workers: vec![1], others: vec![0] });
        let plan = plan_cores(&[2, 3, 6, 7], None, 2).unwrap();
        assert_eq!(plan, CorePlan { workers: vec![6, 7], others: vec![2, 3] });
    }

    #[test]
    fn the_last_core_is_not_taken_from_the_others_unless_named() {
        assert_eq!(plan_cores(&[0, 1], None, 2).unwrap().workers, Vec::<usize>::new());
        assert_eq!(plan_cores(&[5], None, 1).unwrap(), CorePlan { workers: vec![], others: vec![5] });
        assert_eq!(plan_cores(&[0, 1], Some(&[0, 1]), 2).unwrap().workers, vec![0, 1]);
    }

    #[test]
    fn cores_outside_the_allowed_set_are_named_with_the_set() {
        let error = plan_cores(&[0, 1, 2, 5], Some(&[7]), 1).unwrap_err();
        assert_eq!(error.to_string(), "core 7 is not among the allowed cores 0-2,5");
        assert_eq!(plan_cores(&[0, 1], Some(&[1, 1]), 2), Err(CoreError::Twice(1)));
        assert_eq!(plan_cores(&[0, 1], Some(&[1]), 2), Err(CoreError::TooFew { workers: 2, given: 1 }));
    }

    #[test]
    fn lists_of_cores_are_read_and_nonsense_is_refused() {
        assert_eq!(parse_cores("1,3-5").unwrap(), vec![1, 3, 4, 5]);
        for text in ["", "a", "3-1", "1,,2", "-1", "99999"] {
            assert!(parse_cores(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nodes_are_read_with_their_cores_and_without_them_there_is_one() {
        let directory = std::env::temp_dir().join(format!("madplane-nodes-{}", std::process::id()));
        for (file, text) in [
            ("online", "0-1,3\n"),
            ("node0/cpulist", "0-1,4\n"),
            ("node1/cpulist", "\n"),
            ("node3/cpulist", "2\n"),
        ] {
            let path = directory.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(nodes_below(&directory), [vec![0, 1, 4], vec![], vec![2]]);
        std::fs::remove_dir_all(&directory).unwrap();
        let unknown = nodes_below(&directory);
        assert_eq!((unknown.len(), unknown[0][0]), (1, 0));
        assert!(!numa_nodes().is_empty());
    }

    #[test]
    fn a_pinned_thread_sees_one_core() {
        std::thread::spawn(|| {
            let first = allowed_cores()[0];
            assert!(pin_thread(first));
            assert_eq!(allowed_cores(), vec![first]);
            assert!(!has_several_cores());
        })
        .join()
        .unwrap();
    }
}
