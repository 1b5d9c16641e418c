//! Child processes with a watchdog.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use super::{PATIENCE, eventually};

/// What a program said and how it ended.
#[derive(Debug, Clone)]
pub struct Ran {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.out, self.err)
    }
}

/// Runs a program to its end; one that does not end is killed and fails the test.
#[track_caller]
pub fn run(command: &mut Command) -> Ran {
    let shown = format!("{command:?}");
    let mut child = Background::start("program", command);
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.ended() {
            return Ran { code: status.code(), out: child.out(), err: child.err() };
        }
        if Instant::now() > until {
            child.kill();
            panic!("hangs: {shown}\n--- stdout\n{}\n--- stderr\n{}", child.out(), child.err());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A running child that is killed with the value that stands for it.
pub struct Background {
    name: String,
    child: Child,
    // files, not pipes: nobody has to read for the child to go on
    output: TempDir,
}

impl Background {
    pub fn start(name: &str, command: &mut Command) -> Self {
        let output = TempDir::new().unwrap();
        let file = |name: &str| Stdio::from(File::create(output.path().join(name)).unwrap());
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { name: name.to_owned(), child, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let name = self.name.clone();
        eventually(&format!("{name} ends"), || self.ended().is_some());
        self.ended().unwrap()
    }

    pub fn out(&self) -> String {
        read_lossy(self.output.path().join("out"))
    }

    pub fn err(&self) -> String {
        read_lossy(self.output.path().join("err"))
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// `kill -9`, and waits for the kernel to have done it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if std::thread::panicking() && !matches!(self.child.try_wait(), Ok(Some(status)) if status.success())
        {
            eprintln!("--- {}: {}\n{}", self.name, self.out(), self.err());
        }
        self.kill();
    }
}

pub fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether there is such a process that is not merely waiting to be buried.
pub fn alive(pid: u32) -> bool {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    if test_kill_process(raw).is_err() {
        return false;
    }
    let stat = read_lossy(format!("/proc/{pid}/stat"));
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub fn read_lossy(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
