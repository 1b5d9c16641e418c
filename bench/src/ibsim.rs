//! The simulator to compare with: an `ibsim` process and the environment of its clients.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::error::BenchError;
use crate::fabrics::Fabric;
use crate::machine::{all_cores, on_cores};
use crate::process::Process;
use crate::programs;

/// Longest time to read a netfile.
const START_PATIENCE: Duration = Duration::from_secs(600);

/// Simulators of this process so far.
static SIMULATORS: AtomicU32 = AtomicU32::new(0);

/// A running simulator.
#[derive(Debug)]
pub struct Ibsim {
    process: Process,
    // ibsim spins when its console ends
    _console: Option<ChildStdin>,
    socket: String,
    host: String,
    preload: PathBuf,
    directory: TempDir,
}

impl Ibsim {
    /// Starts ibsim on a fabric, with its limits raised to fit, and waits until it answers.
    ///
    /// # Errors
    /// [`BenchError::Missing`] if it is not installed, [`BenchError::Program`] if it does not start.
    pub fn start(fabric: &Fabric) -> Result<Self, BenchError> {
        let program = programs::peer("ibsim")?;
        let preload = programs::peer_library("umad2sim/libumad2sim.so")?;
        let directory = TempDir::new().map_err(|e| BenchError::io("temporary directory", e))?;
        let netfile = directory.path().join("net");
        std::fs::write(&netfile, fabric.netfile()).map_err(|e| BenchError::io("netfile", e))?;
        let socket = format!("bench-{}-{}", std::process::id(), SIMULATORS.fetch_add(1, Ordering::Relaxed));
        let nodes = fabric.topology.nodes.len();
        let ports: usize = fabric.topology.nodes.iter().map(|node| node.ports.len() + 1).sum();
        let log = directory.path().join("ibsim.log");
        let output = File::create(&log).map_err(|e| BenchError::io("log of ibsim", e))?;
        let errors = output.try_clone().map_err(|e| BenchError::io("log of ibsim", e))?;
        let mut command = Command::new(program);
        command
            .args(["-s", "-N", &(nodes + 16).max(2048).to_string(), "-S", &(nodes + 16).max(256).to_string()])
            .args(["-P", &(ports + 64).max(13_312).to_string()])
            .arg(&netfile)
            .env("IBSIM_SOCKNAME", &socket)
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors);
        let mut process = on_cores(all_cores(), || Process::start("ibsim", &mut command))?;
        let console = process.child().stdin.take();
        let control = format!("@{socket}:ctl");
        process
            .wait_for(START_PATIENCE, Duration::from_millis(5), || {
                let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
                sockets.contains(&control).then_some(())
            })
            .map_err(|error| match error {
                BenchError::Program { program, .. } => BenchError::program(program, last_line(&log)),
                other => other,
            })?;
        Ok(Self { process, _console: console, socket, host: fabric.host_id(), preload, directory })
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Lets the simulator run on `cores` only; false if the kernel refused.
    pub fn place(&self, cores: &[usize]) -> bool {
        let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) else { return false };
        let mut set = CpuSet::new();
        for core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
            set.set(*core);
        }
        sched_setaffinity(Some(pid), &set).is_ok()
    }

    /// Makes `command` a client: attached to the fabric's first adapter, in a directory for the rubbish it leaves.
    pub fn attach<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", &self.preload)
            .env("IBSIM_SOCKNAME", &self.socket)
            .env("SIM_HOST", &self.host)
            .current_dir(self.directory.path())
    }

    /// Name of the device that clients see.
    pub const DEVICE: &'static str = "ibsim0";
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("ended early").to_owned()
}
