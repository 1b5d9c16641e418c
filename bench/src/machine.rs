//! What the numbers were measured on, and where threads run.
//!
//! Read from `/proc` and `git`; a part that cannot be read is empty, never a guess.

use std::fmt;
use std::process::Command;
use std::sync::OnceLock;

use madplane_port::machine::{allow_cores, allowed_cores, ranges};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// What the numbers were measured on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Model of the processor.
    pub cpu_model: String,
    /// Cores that may be used.
    pub cores: usize,
    /// Whether this runs under a hypervisor.
    pub virtual_machine: bool,
    /// Kernel release.
    pub kernel: String,
    /// Huge pages that the kernel holds ready.
    pub huge_pages: u64,
    /// Commit, with `+` if the tree was changed.
    pub commit: String,
    /// Optimised build.
    pub release: bool,
    /// The command line.
    pub command: String,
    /// Unix time, seconds.
    pub unix_time: u64,
    /// Load average of the last minute when measuring began: something else ran if it is well above 0.
    pub load_before: String,
}

impl Environment {
    /// Looks around.
    pub fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let huge_pages = read("/proc/sys/vm/nr_hugepages").trim().parse().unwrap_or(0);
        let load_before = read("/proc/loadavg").split_whitespace().next().unwrap_or("").to_owned();
        let unix_time = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let mut arguments = std::env::args();
        let program = arguments.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        Self {
            cpu_model: field("model name").unwrap_or_default(),
            cores: allowed_cores().len(),
            virtual_machine: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            huge_pages,
            commit: commit(),
            release: !cfg!(debug_assertions),
            command: std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" "),
            unix_time,
            load_before,
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = if self.virtual_machine { " (virtual)" } else { "" };
        let build = if self.release { "release" } else { "DEBUG BUILD" };
        write!(f, "{}{machine}, {} cores, Linux {}, ", self.cpu_model, self.cores, self.kernel)?;
        write!(
            f,
            "{} huge pages, commit {}, {build}, load {}",
            self.huge_pages, self.commit, self.load_before
        )
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(hash) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { hash + "+" } else { hash }
}

/// The cores that this process was given. Call it once before any thread is pinned; later calls give the same.
pub fn all_cores() -> &'static [usize] {
    static ALL: OnceLock<Vec<usize>> = OnceLock::new();
    ALL.get_or_init(allowed_cores)
}

/// Processor time of this thread so far, nanoseconds: what others do on the machine counts only through the caches.
pub fn thread_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The two cores of a measurement: where a worker polls and where its client runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores {
    /// The client's.
    pub client: usize,
    /// The worker's.
    pub worker: usize,
}

impl Cores {
    /// The same two that a plane with one worker chooses: highest for the worker, lowest for the client.
    ///
    /// # Errors
    /// [`BenchError::Missing`] on a machine with one core.
    pub fn choose() -> Result<Self, BenchError> {
        let allowed = all_cores();
        match (allowed.first(), allowed.last()) {
            (Some(client), Some(worker)) if client != worker => Ok(Self { client: *client, worker: *worker }),
            _ => Err(BenchError::Missing(format!(
                "two cores are needed, allowed are {}",
                if allowed.is_empty() { "none".to_owned() } else { ranges(allowed) }
            ))),
        }
    }
}

/// Runs `body` with this thread, and what it starts, on `cores`; then goes back to all that were allowed before.
pub fn on_cores<R>(cores: &[usize], body: impl FnOnce() -> R) -> R {
    let before = allowed_cores();
    allow_cores(cores);
    let result = body();
    allow_cores(&before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_kernel_and_cores() {
        let here = Environment::now();
        assert!(!here.kernel.is_empty() && here.cores >= 1);
        assert!(here.to_string().contains(&here.kernel));
    }

    #[test]
    fn threads_started_inside_are_placed_and_the_place_is_given_back() {
        let all = allowed_cores();
        let first = all[0];
        let inside = on_cores(&[first], || std::thread::spawn(allowed_cores).join().unwrap());
        assert_eq!(inside, [first]);
        assert_eq!(allowed_cores(), all);
    }
}
