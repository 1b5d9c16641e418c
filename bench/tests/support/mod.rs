//! Test bed of the end-to-end tests: a plane of one test's own, stock programs on it, and guards that end both.
//!
//! Every wait has a watchdog ([`PATIENCE`]); every process is ended by its id. A peer that is not installed makes a test
//! skip itself loudly, or fail under `MADPLANE_REQUIRE_PEERS=1`.

#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used, clippy::missing_panics_doc)]

mod counters;
mod fabric;
pub mod joined;
mod opensm;
pub mod probe;
mod process;
mod users;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use counters::{Counts, counts};
pub use fabric::{Graph, builtin, shared_fabric};
use madplane_shm::paths::PlanePaths;
pub use opensm::OpenSm;
pub use process::{Background, Ran, alive, kill, read_lossy, run};
use tempfile::TempDir;
pub use users::User;

/// Watchdog of everything that waits; far beyond what anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Planes of this process so far.
static PLANES: AtomicU32 = AtomicU32::new(0);

/// Waits until `done`, or fails.
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "still not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Where the programs and the library of this build are; builds them first, unless `MADPLANE_PROGRAMS` names a folder.
pub fn artifacts() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // a guest has no compiler; its programs were built outside
        if let Some(folder) = std::env::var_os("MADPLANE_PROGRAMS") {
            return folder.into();
        }
        let me = std::env::current_exe().unwrap();
        let profile = me.parent().and_then(Path::parent).unwrap().to_owned();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--bins", "--lib"]);
        cargo.args(["-p", "madplane-dataplane", "-p", "madplane-control", "-p", "madplane-umad"]);
        if profile.file_name().is_some_and(|name| name == "release") {
            cargo.arg("--release");
        }
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", profile.parent().unwrap());
        let built = cargo.stdin(Stdio::null()).status().unwrap();
        assert!(built.success(), "the programs under test do not build");
        profile
    })
}

/// The search path with our programs first and the places of the stock tools.
fn search_path() -> std::ffi::OsString {
    let mut all = vec![artifacts().to_owned()];
    all.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    all.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    std::env::join_paths(all).unwrap()
}

/// Whether all these programs are there. Says which one is not, and fails where peers are required.
pub fn have(tools: &[&str]) -> bool {
    let path = search_path();
    let found = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    match tools.iter().find(|tool| !found(tool)) {
        None => true,
        Some(missing) => {
            skip(&format!("{missing} is not installed"));
            false
        }
    }
}

/// Says loudly that a test does not run; fails where it has to.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("MADPLANE_REQUIRE_PEERS").is_none_or(|value| value != "1"),
        "{reason}, and MADPLANE_REQUIRE_PEERS=1"
    );
    eprintln!("SKIPPED: {reason}");
}

/// Directories of one test's own, in which planes can be started.
pub struct Bed {
    pub name: String,
    root: TempDir,
    memory: TempDir,
}

impl Bed {
    pub fn new() -> Self {
        let name = format!("e2e-{}-{}", std::process::id(), PLANES.fetch_add(1, Ordering::Relaxed));
        let shm = Path::new("/dev/shm");
        let memory = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() };
        Self { name, root: TempDir::new().unwrap(), memory: memory.unwrap() }
    }

    /// Scratch space.
    pub fn path(&self, file: &str) -> PathBuf {
        self.root.path().join(file)
    }

    pub fn run_root(&self) -> PathBuf {
        self.path("run")
    }

    pub fn shm_root(&self) -> &Path {
        self.memory.path()
    }

    /// A file of the plane's runtime directory.
    pub fn run_file(&self, file: &str) -> PathBuf {
        self.run_root().join(&self.name).join(file)
    }

    /// Paths as clients in this process use them.
    pub fn paths(&self) -> PlanePaths {
        // `under` wants `run` and `shm` below one root
        let shm = self.path("shm");
        if !shm.exists() {
            std::os::unix::fs::symlink(self.shm_root(), &shm).unwrap();
        }
        PlanePaths::under(self.root.path(), &self.name).unwrap()
    }

    /// A program in the directories of this test.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        self.environment(&mut command);
        command
    }

    pub fn environment(&self, command: &mut Command) {
        command
            .env("PATH", search_path())
            .env("MADPLANE_RUNTIME_DIR", self.run_root())
            .env("MADPLANE_SHM_DIR", self.shm_root())
            .env("MADPLANE_NAME", &self.name)
            .env("OSM_TMP_DIR", self.root.path())
            .env("OSM_CACHE_DIR", self.root.path())
            .env_remove("MADPLANE_AT")
            .env_remove("LD_PRELOAD");
    }

    pub fn madctl(&self, arguments: &[&str]) -> Ran {
        run(self.program("madctl").args(arguments))
    }

    /// Process id in a lock file, if its owner lives.
    pub fn pid(&self, lock: &str) -> Option<u32> {
        let text = std::fs::read_to_string(self.run_file(lock)).ok()?;
        let pid = text.split_whitespace().next()?.parse().ok()?;
        alive(pid).then_some(pid)
    }

    pub fn plane_pid(&self) -> Option<u32> {
        self.pid("madplaned.lock")
    }

    pub fn control_pid(&self) -> Option<u32> {
        self.pid("madctld.lock")
    }

    /// Nothing of a plane is running.
    #[track_caller]
    pub fn assert_nothing_runs(&self) {
        assert_eq!((self.plane_pid(), self.control_pid()), (None, None), "something was left running");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for lock in ["madctld.lock", "madplaned.lock"] {
            if let Some(pid) = self.pid(lock) {
                // a file may be left by somebody else's process of that number
                let name = read_lossy(format!("/proc/{pid}/comm"));
                if name.starts_with("mad") {
                    kill(pid, rustix::process::Signal::KILL);
                    let until = Instant::now() + Duration::from_secs(10);
                    while alive(pid) && Instant::now() < until {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
        }
        if std::thread::panicking() {
            for log in ["madplaned.log", "madctld.log"] {
                eprintln!("--- {log}\n{}", read_lossy(self.run_file(log)));
            }
        }
    }
}

/// A running plane.
pub struct Plane {
    pub bed: Bed,
}

impl std::ops::Deref for Plane {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

impl Plane {
    /// Starts a plane with this fabric.
    #[track_caller]
    pub fn up(fabric: &str) -> Self {
        Self::up_with(fabric, &[])
    }

    #[track_caller]
    pub fn up_with(fabric: &str, arguments: &[&str]) -> Self {
        let plane = Self { bed: Bed::new() };
        plane.again(fabric, arguments);
        plane
    }

    /// `madctl up` in the same directories.
    #[track_caller]
    pub fn again(&self, fabric: &str, arguments: &[&str]) {
        let ran = self.madctl(&[&["up", "--fabric", fabric], arguments].concat());
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(ran.out.contains("is ready"), "{ran}");
    }

    fn tool(&self, options: &[&str], command: &[&str]) -> Command {
        let mut madctl = self.program("madctl");
        // osmtest leaves a file where it stands
        madctl.arg("run").args(options).arg("--").args(command).current_dir(self.root.path());
        madctl
    }

    /// Runs a stock program at the default port.
    pub fn run(&self, command: &[&str]) -> Ran {
        self.run_at("", command)
    }

    /// Runs a stock program at a port.
    pub fn run_at(&self, at: &str, command: &[&str]) -> Ran {
        self.run_with(&at_option(at), command)
    }

    /// Runs a stock program with these options of `madctl run`.
    pub fn run_with(&self, options: &[&str], command: &[&str]) -> Ran {
        run(&mut self.tool(options, command))
    }

    /// Runs a stock program that has to succeed, and returns what it prints.
    #[track_caller]
    pub fn ok(&self, command: &[&str]) -> String {
        self.ok_at("", command)
    }

    #[track_caller]
    pub fn ok_at(&self, at: &str, command: &[&str]) -> String {
        self.ok_with(&at_option(at), command)
    }

    #[track_caller]
    pub fn ok_with(&self, options: &[&str], command: &[&str]) -> String {
        let ran = self.run_with(options, command);
        assert_eq!(ran.code, Some(0), "{options:?} {command:?}: {ran}");
        ran.out
    }

    /// Starts a stock program at a port; it ends with the returned value.
    pub fn spawn_at(&self, at: &str, command: &[&str]) -> Background {
        self.spawn_with(&at_option(at), command)
    }

    /// Starts a stock program with these options of `madctl run`.
    pub fn spawn_with(&self, options: &[&str], command: &[&str]) -> Background {
        Background::start(command[0], &mut self.tool(options, command))
    }

    /// `madctl` that has to succeed; what it prints.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let ran = self.madctl(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {ran}");
        ran.out
    }

    /// `madctl` that has to fail with one line; that line.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let ran = self.madctl(arguments);
        assert!(matches!(ran.code, Some(1 | 2)), "{arguments:?}: {ran}");
        assert_eq!(ran.err.lines().count(), 1, "{arguments:?}: one line on stderr: {ran}");
        let line = ran.err.trim_end();
        line.strip_prefix("madctl: ").unwrap_or_else(|| panic!("{arguments:?}: {ran}")).to_owned()
    }

    /// LID of any node by its description, from the subnet manager.
    #[track_caller]
    pub fn lid(&self, description: &str) -> u16 {
        let lid = self.ok(&["saquery", "-L", description]);
        lid.trim().parse().unwrap_or_else(|error| panic!("{description}: {error}: {lid:?}"))
    }

    /// What a command of `madctl` shows, as JSON.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let ran = self.madctl(&[arguments, &["--format", "json"]].concat());
        assert_eq!(ran.code, Some(0), "{ran}");
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran}"))
    }
}

fn at_option(at: &str) -> Vec<&str> {
    if at.is_empty() { Vec::new() } else { vec!["--at", at] }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if self.plane_pid().is_some() && !std::thread::panicking() {
            let ran = self.madctl(&["down"]);
            if ran.code != Some(0) {
                eprintln!("madctl down: {ran}");
            }
        }
    }
}
