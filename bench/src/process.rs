//! A child process that ends with the value that stands for it.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::BenchError;

/// How long a process may take to stop in order.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A running child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    /// [`BenchError::Program`] when it cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self, BenchError> {
        let child = command.spawn().map_err(|error| BenchError::program(name, error.to_string()))?;
        Ok(Self { name: name.to_owned(), child })
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal; a process that is gone has no use for it.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Fails if the process has ended.
    ///
    /// # Errors
    /// [`BenchError::Program`] with its exit status.
    pub fn check_alive(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(BenchError::program(&self.name, format!("ended early ({status})"))),
            Err(error) => Err(BenchError::program(&self.name, error.to_string())),
        }
    }

    /// Waits until `ready` gives something.
    ///
    /// # Errors
    /// [`BenchError::Program`] if the process ends first, [`BenchError::Silence`] when `patience` is over.
    pub fn wait_for<R>(
        &mut self,
        patience: Duration,
        pause: Duration,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<R, BenchError> {
        let start = Instant::now();
        loop {
            if let Some(result) = ready() {
                return Ok(result);
            }
            self.check_alive()?;
            if start.elapsed() > patience {
                return Err(BenchError::Silence(patience.as_secs()));
            }
            std::thread::sleep(pause);
        }
    }

    /// Waits until the process has ended well; looks every `pause`.
    ///
    /// # Errors
    /// [`BenchError::Program`] with another exit status, [`BenchError::Silence`] when `patience` is over.
    pub fn finish(&mut self, patience: Duration, pause: Duration) -> Result<(), BenchError> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(BenchError::program(&self.name, format!("failed ({status})")));
                }
                Ok(None) if start.elapsed() > patience => {
                    return Err(BenchError::Silence(patience.as_secs()));
                }
                Ok(None) => std::thread::sleep(pause),
                Err(error) => return Err(BenchError::program(&self.name, error.to_string())),
            }
        }
    }

    /// CPU time used so far, all threads, to the kernel's tick.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Duration::from_nanos(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
    }

    /// A size from `/proc/PID/status`, such as `VmHWM`, in bytes.
    pub fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // one that was stopped has to run to end
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < STOP_PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_process_is_gone_even_if_it_was_stopped() {
        let process = Process::start("sleep", Command::new("sleep").arg("600")).unwrap();
        let pid = process.id();
        process.signal(Signal::STOP);
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn waiting_for_a_process_that_ends_names_its_status() {
        let mut process = Process::start("false", &mut Command::new("false")).unwrap();
        let waited =
            process.wait_for(Duration::from_secs(60), Duration::from_millis(1), || None::<()>).unwrap_err();
        assert!(waited.to_string().contains("ended early"), "{waited}");
    }

    #[test]
    fn a_process_that_fails_is_told_from_one_that_ends_well() {
        let finish = |program: &str| {
            let mut process = Process::start(program, &mut Command::new(program)).unwrap();
            process.finish(Duration::from_secs(60), Duration::from_millis(1))
        };
        assert!(finish("true").is_ok());
        assert!(finish("false").unwrap_err().to_string().contains("failed"));
    }

    #[test]
    fn memory_and_cpu_time_of_a_process_can_be_read() {
        let mut busy = Process::start("sh", Command::new("sh").args(["-c", "while :; do :; done"])).unwrap();
        let mut time = Duration::ZERO;
        for _ in 0..10_000 {
            time = busy.cpu_time();
            if time > Duration::ZERO {
                break;
            }
            busy.check_alive().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(time > Duration::ZERO);
        assert!(busy.memory("VmHWM") > 0);
    }
}
