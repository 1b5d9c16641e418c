//! A plane with its control, in directories of its own, stopped with the value.

use std::path::Path;
use std::process::Command;

use madctl::{AdminClient, Plane};
use madplane_bench::programs;
use madplane_client::PlanePaths;
use madplane_shm::process::lock;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering::Relaxed;
use tempfile::TempDir;

use crate::Fault;
use crate::footprint::Footprint;

/// 32 hosts, four hops across.
pub(crate) const FABRIC: &str = "builtin:fat-tree,radix=8,levels=2";

/// A running plane.
pub(crate) struct Stand {
    directory: TempDir,
    paths: PlanePaths,
    status: Status,
    plane: u32,
    control: u32,
}

impl Stand {
    /// Starts one; `further` are options of `madctl up`.
    pub(crate) fn start(further: &[&str]) -> Result<Self, Fault> {
        let shm = Path::new("/dev/shm");
        let directory = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() };
        let directory = directory.map_err(|error| error.to_string())?;
        for part in ["run", "shm"] {
            std::fs::create_dir(directory.path().join(part)).map_err(|error| error.to_string())?;
        }
        let name = format!("soak-{}", std::process::id());
        let paths = PlanePaths::under(directory.path(), &name).map_err(|error| error.to_string())?;
        run_madctl(&directory, &name, &[&["up", "--fabric", FABRIC], further].concat())?;
        let pid = |file: &Path| {
            let holder = lock::holder(file).map_err(|error| error.to_string())?;
            holder.map(|holder| holder.pid).ok_or_else(|| format!("nobody holds {}", file.display()))
        };
        let status = Status::open(&paths.status_segment()).map_err(|error| error.to_string())?;
        let (plane, control) = (pid(&paths.plane_lock())?, pid(&paths.control_lock())?);
        Ok(Self { directory, paths, status, plane, control })
    }

    /// Directory of everything.
    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Its paths.
    pub(crate) fn paths(&self) -> &PlanePaths {
        &self.paths
    }

    /// Its status segment.
    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// Sessions open now.
    pub(crate) fn sessions(&self) -> u64 {
        self.status.plane().sessions.load(Relaxed)
    }

    /// Whether its worker has a core of its own.
    pub(crate) fn can_poll(&self) -> bool {
        self.status.worker(0).shares_core.load(Relaxed) == 0
    }

    /// What both daemons hold.
    pub(crate) fn footprint(&self) -> Result<Footprint, Fault> {
        Footprint::of(self.plane, self.control, &self.root().join("shm"))
    }

    /// A connection to its control.
    pub(crate) fn admin(&self) -> Result<AdminClient, Fault> {
        Plane::at(self.paths.clone()).admin().map_err(|error| error.to_string())
    }

    /// What its first worker says of itself.
    pub(crate) fn remarks(&self) -> String {
        use madplane_shm::counters::Counter;
        let block = self.status.worker(0);
        let count = |counter: Counter| block.counters[counter as usize].load(Relaxed);
        let drops: u64 = block.drops.iter().map(|word| word.load(Relaxed)).sum();
        format!(
            "{} MADs, {} dropped, {} changes, {} sleeps, {} wake-ups, {} gathered, longest cycle {} us, {} stalls",
            count(Counter::SessionReceived),
            drops,
            count(Counter::ModeChanges),
            count(Counter::WorkerSleeps),
            count(Counter::WakeUps),
            count(Counter::WakeUpsCoalesced),
            block.longest_cycle_ns.load(Relaxed) / 1_000,
            block.stalls.load(Relaxed)
        )
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Err(fault) = run_madctl(&self.directory, self.paths.name(), &["down"]) {
            eprintln!("soak: {fault}");
        }
    }
}

fn run_madctl(directory: &TempDir, name: &str, arguments: &[&str]) -> Result<(), Fault> {
    let program = programs::ours("madctl").map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["--name", name])
        .args(arguments)
        .env("MADPLANE_RUNTIME_DIR", directory.path().join("run"))
        .env("MADPLANE_SHM_DIR", directory.path().join("shm"))
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
}
