//! A plane of one's own: a `madplaned` process with a unique name and directories that go with it.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use madplane_shm::paths::PlanePaths;
use madplane_shm::status::Status;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::error::BenchError;
use crate::fabrics::Fabric;
use crate::machine::{Cores, all_cores, on_cores};
use crate::process::Process;
use crate::programs;

/// Planes of this process so far.
static PLANES: AtomicU32 = AtomicU32::new(0);

/// What the plane is to be.
#[derive(Debug, Clone, Default)]
pub struct PlaneOptions {
    /// Specification or file.
    pub fabric: String,
    /// Where clients attach.
    pub at: Option<String>,
    /// Core of the worker.
    pub cores: Option<Cores>,
    /// Further arguments of madplaned.
    pub arguments: Vec<String>,
}

impl PlaneOptions {
    /// A plane of `fabric` whose worker and clients have their `cores`; clients attach at its first adapter.
    pub fn of(fabric: &Fabric, cores: Cores) -> Self {
        Self {
            fabric: fabric.spec.clone(),
            at: Some(fabric.host_selector()),
            cores: Some(cores),
            ..Self::default()
        }
    }
}

/// A running plane.
#[derive(Debug)]
pub struct Plane {
    process: Process,
    paths: PlanePaths,
    // after the process: removed when it has ended
    directory: TempDir,
}

impl Plane {
    /// Starts `madplaned` and waits until it is ready.
    ///
    /// # Errors
    /// [`BenchError::Missing`] without a `madplaned`, [`BenchError::Program`] with its own words if it does not start.
    pub fn start(options: &PlaneOptions) -> Result<Self, BenchError> {
        let program = programs::ours("madplaned")?;
        // memory if there is some: a status page on a disk costs its writer
        let shm = Path::new("/dev/shm");
        let directory = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() };
        let directory = directory.map_err(|e| BenchError::io("temporary directory", e))?;
        for part in ["run", "shm"] {
            std::fs::create_dir(directory.path().join(part))
                .map_err(|e| BenchError::io("temporary directory", e))?;
        }
        let name = format!("bench-{}-{}", std::process::id(), PLANES.fetch_add(1, Ordering::Relaxed));
        let paths =
            PlanePaths::under(directory.path(), &name).map_err(|e| BenchError::Usage(e.to_string()))?;
        let mut command = Command::new(program);
        command.args(["--name", &name, "--fabric", &options.fabric, "--ready-fd", "1"]);
        if let Some(at) = &options.at {
            command.args(["--at", at]);
        }
        if let Some(cores) = options.cores {
            command.args(["--cores", &cores.worker.to_string()]);
        }
        command.args(&options.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        for (variable, value) in directories(directory.path()) {
            command.env(variable, value);
        }
        let mut process = on_cores(all_cores(), || Process::start("madplaned", &mut command))?;
        let mut said = [0u8; 512];
        let mut length = 0;
        let Some(mut pipe) = process.child().stdout.take() else {
            return Err(BenchError::program("madplaned", "has no standard output"));
        };
        // one short line; the descriptor is closed after it only on `--ready-fd`'s copy
        while length < said.len() && !said[..length].contains(&b'\n') {
            match pipe.read(&mut said[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) => return Err(BenchError::io("reading from madplaned", error)),
            }
        }
        let said = String::from_utf8_lossy(&said[..length]);
        if said.trim() != "READY" {
            return Err(BenchError::program(
                "madplaned",
                said.trim().trim_start_matches("ERROR ").to_owned(),
            ));
        }
        Ok(Self { process, paths, directory })
    }

    /// Its paths.
    pub fn paths(&self) -> &PlanePaths {
        &self.paths
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its status segment.
    ///
    /// # Errors
    /// [`BenchError::Program`].
    pub fn status(&self) -> Result<Status, BenchError> {
        Status::open(&self.paths.status_segment())
            .map_err(|error| BenchError::program("madplaned", error.to_string()))
    }

    /// Environment with which another process finds this plane.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut all = vec![("MADPLANE_NAME".to_owned(), self.paths.name().to_owned())];
        all.extend(directories(self.directory.path()).map(|(variable, value)| (variable.to_owned(), value)));
        all
    }

    /// Holds the plane still while something else is measured; it goes on when the value is dropped.
    pub fn pause(&self) -> Pause<'_> {
        self.process.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.process.id());
        // until the kernel says so, a spinning worker may still be there
        for _ in 0..1000 {
            let state = std::fs::read_to_string(&stat).unwrap_or_default();
            if state.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T')) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Pause { plane: self }
    }
}

/// A plane that is held still.
#[derive(Debug)]
pub struct Pause<'a> {
    plane: &'a Plane,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.plane.process.signal(Signal::CONT);
    }
}

fn directories(root: &Path) -> impl Iterator<Item = (&'static str, String)> {
    let below = |part: &str| String::from_utf8_lossy(root.join(part).as_os_str().as_bytes()).into_owned();
    [("MADPLANE_RUNTIME_DIR", below("run")), ("MADPLANE_SHM_DIR", below("shm"))].into_iter()
}
