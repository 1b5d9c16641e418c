//! What the numbers were measured on, and where threads run.
//!
//! Read from `/proc`, `/sys` and `git`; a part that cannot be read is empty, never a guess.

use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;
use std::sync::OnceLock;

use madplane_port::machine::{allow_cores, allowed_cores, ranges};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// Version of result files; files without the field are of version 1. Fields are only ever added, and a new kind of line is
/// a new version, so a program reads what is not newer than itself.
pub const RESULT_VERSION: u32 = 2;

const fn first_version() -> u32 {
    1
}

/// What the numbers were measured on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// [`RESULT_VERSION`] of the program that wrote the file.
    #[serde(default = "first_version")]
    pub version: u32,
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
    /// The cores that may be used, as ranges.
    #[serde(default)]
    pub core_list: String,
    /// The two that [`Cores::choose`] takes: the client's, then the worker's; empty on a machine with one.
    #[serde(default)]
    pub cores_used: Vec<usize>,
    /// Frequency governors of the cores that may be used, each once, with commas between them.
    #[serde(default)]
    pub governor: String,
    /// Huge pages that nobody holds.
    #[serde(default)]
    pub huge_pages_free: u64,
    /// What the hypervisor calls itself.
    #[serde(default)]
    pub hypervisor: String,
    /// What the kernel's clock is read from: each clock read is part of a measured time.
    #[serde(default)]
    pub clock_source: String,
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
        let huge_pages = |name: &str| {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}_hugepages");
            read(&path).trim().parse().unwrap_or(0)
        };
        let load_before = read("/proc/loadavg").split_whitespace().next().unwrap_or("").to_owned();
        let unix_time = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let mut arguments = std::env::args();
        let program = arguments.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        Self {
            version: RESULT_VERSION,
            cpu_model: field("model name").unwrap_or_default(),
            cores: allowed_cores().len(),
            virtual_machine: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            huge_pages: huge_pages("nr"),
            commit: commit(),
            release: !cfg!(debug_assertions),
            command: std::iter::once(program)
                .chain(arguments.map(|argument| without_directories(&argument)))
                .collect::<Vec<_>>()
                .join(" "),
            unix_time,
            load_before,
            core_list: ranges(all_cores()),
            cores_used: Cores::choose().map_or_else(|_| Vec::new(), |cores| vec![cores.client, cores.worker]),
            governor: governors(all_cores()),
            huge_pages_free: huge_pages("free"),
            hypervisor: hypervisor(),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .trim()
                .to_owned(),
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
        )?;
        for (what, value) in [("governor", &self.governor), ("clock", &self.clock_source)] {
            if !value.is_empty() {
                write!(f, ", {what} {value}")?;
            }
        }
        Ok(())
    }
}

/// An argument as it may be shown to others: of a path from the root only the name of the file.
fn without_directories(argument: &str) -> String {
    let (option, value) = match argument.split_once('=') {
        Some((option, value)) if option.starts_with('-') => (Some(option), value),
        _ => (None, argument),
    };
    let value = if value.starts_with('/') { value.rsplit('/').next().unwrap_or_default() } else { value };
    option.map_or_else(|| value.to_owned(), |option| format!("{option}={value}"))
}

/// The governors of these cores, each once.
fn governors(cores: &[usize]) -> String {
    let governor = |core: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
        Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
    };
    let all: BTreeSet<String> = cores.iter().filter_map(governor).collect();
    all.into_iter().collect::<Vec<_>>().join(",")
}

/// What the firmware or the kernel says about the hypervisor.
fn hypervisor() -> String {
    ["/sys/hypervisor/type", "/sys/class/dmi/id/product_name"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .find(|text| !text.is_empty())
        .unwrap_or_default()
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
        assert_eq!(here.version, RESULT_VERSION);
    }

    #[test]
    fn an_environment_of_the_first_version_is_read() {
        let old = r#"{"cpu_model":"x","cores":2,"virtual_machine":true,"kernel":"6","huge_pages":0,"commit":"c",
            "release":true,"command":"madbench run raw","unix_time":1,"load_before":"0.1"}"#;
        let old: Environment = serde_json::from_str(old).unwrap();
        assert_eq!((old.version, old.cores, old.core_list.as_str(), old.huge_pages_free), (1, 2, "", 0));
    }

    #[test]
    fn a_command_is_kept_without_the_directories_of_this_machine() {
        for (argument, kept) in [
            ("--output", "--output"),
            ("/home/x/out.jsonl", "out.jsonl"),
            ("--output=/home/x/out.jsonl", "--output=out.jsonl"),
            ("results/out.jsonl", "results/out.jsonl"),
            ("builtin:fat-tree,radix=8,levels=3", "builtin:fat-tree,radix=8,levels=3"),
        ] {
            assert_eq!(without_directories(argument), kept);
        }
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
