//! Test bed: directories of one test's own, a plane made of segments only, and a real one that ends with its test.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use madctl::{Plane, PlanePaths};

/// Watchdog of everything that waits; far beyond what anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const NAME: &str = "bed";

/// Waits until `done`, or fails.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "still not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Directories for one test, removed with it.
pub struct Bed {
    root: tempfile::TempDir,
}

impl Bed {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("run").join(NAME)).unwrap();
        std::fs::create_dir_all(root.path().join("shm")).unwrap();
        Self { root }
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn plane(&self) -> Plane {
        Plane::at(PlanePaths::under(self.root.path(), NAME).unwrap())
    }

    /// A program in the directories of this test, ended after [`PATIENCE`].
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).arg(program);
        command
            .env("MADPLANE_RUNTIME_DIR", self.root.path().join("run"))
            .env("MADPLANE_SHM_DIR", self.root.path().join("shm"))
            .env("LD_LIBRARY_PATH", library().parent().unwrap())
            .env("MADCTL_LIBRARY", library())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("MADPLANE_NAME")
            .env_remove("MADPLANE_LIBEXEC")
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null());
        command
    }

    /// Compiles a C source against header and library.
    pub fn compile(&self, source: &str) -> PathBuf {
        let program = self.root.path().join(Path::new(source).file_stem().unwrap());
        let mut command = Command::new("cc");
        command
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
            .arg(folder().join("include"));
        command.arg(folder().join(source)).arg("-o").arg(&program);
        must(command.arg("-L").arg(library().parent().unwrap()).arg("-lmadctl"));
        program
    }
}

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The library under test: next to the test program or one level up, whichever is newer.
pub fn library() -> PathBuf {
    let places = [deps(), deps().parent().unwrap().to_owned()];
    let found = places.iter().map(|place| place.join("libmadctl.so")).filter(|path| path.exists());
    found
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("cargo builds it before its tests")
}

fn deps() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// An example of this crate; `cargo test` builds it unless told which test to run.
pub fn example(name: &str) -> Option<PathBuf> {
    let path = deps().parent().unwrap().join("examples").join(name);
    present(name, path.is_file(), "build it with: cargo build -p madplane-ctl --examples").then_some(path)
}

pub fn must(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of a command that failed.
pub fn failed(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    text.trim_end().to_owned()
}

/// Whether something that a test needs is there; says so if not, and fails where nothing may be missing.
pub fn present(what: &str, found: bool, remedy: &str) -> bool {
    if !found {
        let required = std::env::var("MADPLANE_REQUIRE_PEERS").is_ok_and(|value| value == "1");
        assert!(!required, "no {what}, and MADPLANE_REQUIRE_PEERS=1");
        println!("skipped: no {what}; {remedy}");
    }
    found
}

/// Whether a tool is installed.
pub fn installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    present(tool, found, "install it")
}

/// A plane with both daemons, stopped with its test whatever the test did.
pub struct RealPlane<'a> {
    bed: &'a Bed,
    madctl: PathBuf,
}

impl<'a> RealPlane<'a> {
    /// Starts one; `None` if the programs are not built.
    pub fn start(bed: &'a Bed) -> Option<Self> {
        let beside = |name: &str| deps().parent().unwrap().join(name);
        let missing = ["madctl", "madctld", "madplaned"].into_iter().find(|name| !beside(name).is_file());
        let remedy = "build it with: cargo build -p madplane-dataplane -p madplane-control --bins";
        if !present(missing.unwrap_or_default(), missing.is_none(), remedy) {
            return None;
        }
        let plane = Self { bed, madctl: beside("madctl") };
        must(&mut plane.command(&["up", "--fabric", "builtin:ring,switches=4,hosts=2", "--no-huge"]));
        Some(plane)
    }

    /// Starts what is missing of it.
    pub fn repair(&self) {
        must(&mut self.command(&["up"]));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bed.program(&self.madctl);
        command.args(["--name", NAME]).args(arguments);
        command
    }

    /// Process ids of both daemons.
    pub fn pids(&self) -> [u32; 2] {
        let status = self.bed.plane().view().status().unwrap();
        [status.head.pid, status.control.pid.unwrap()]
    }

    /// Kills both daemons at once and waits until they are gone.
    pub fn kill(&self) {
        signal(&self.pids(), rustix::process::Signal::KILL);
        let mut view = self.bed.plane().view();
        eventually("both daemons are gone", || {
            let status = view.status().unwrap();
            !status.head.running && !status.control.running
        });
    }
}

impl Drop for RealPlane<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["down"]).output();
    }
}

pub fn signal(pids: &[u32], signal: rustix::process::Signal) {
    for pid in pids {
        let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}
