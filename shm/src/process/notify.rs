//! What a daemon tells the service manager that started it: that it is ready, what it does, that it is well.
//!
//! The protocol of `NOTIFY_SOCKET`: lines `NAME=VALUE` in one datagram to an AF_UNIX socket, by path or (`@`) in the abstract
//! name space. One [`Notifier`] belongs to the thread that serves; without a manager it says nothing, at no cost. Nothing here
//! waits for the manager longer than [`PATIENCE`] a message, and nothing decides whether a daemon is well: whoever sends
//! [`Notifier::well`] has looked. The environment is left as it is, so whoever starts other programs takes [`VARIABLES`] away.
//! Source: sd_notify(3), sd_watchdog_enabled(3).

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::monotonic_ns;

/// The variables by which a service manager makes itself known; not for children of the daemon.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
/// A message that the manager has not taken within this time is given up.
pub const PATIENCE: Duration = Duration::from_millis(100);
/// Attempts at a message without which the manager would wait in vain.
const ATTEMPTS: u32 = 20;

/// Why the manager cannot be told anything.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// Neither a path nor an abstract name.
    #[error("NOTIFY_SOCKET={0:?} is neither an absolute path nor an abstract name such as @name")]
    Address(OsString),
    /// No socket.
    #[error("no socket for the service manager: {0}")]
    Socket(io::Error),
    /// `WATCHDOG_USEC` or `WATCHDOG_PID` is not a number above 0.
    #[error("{variable}={value:?} is not a number above 0")]
    Number {
        /// The variable.
        variable: &'static str,
        /// What it holds.
        value: OsString,
    },
}

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    status: String,
}

impl Notifier {
    /// Takes the manager's address and the time of its watchdog from the environment; says nothing if there is none.
    ///
    /// # Errors
    /// [`NotifyError`]: there is a manager that cannot be told anything, or its watchdog cannot be understood.
    pub fn from_environment() -> Result<Self, NotifyError> {
        let [socket, interval, pid] = VARIABLES.map(std::env::var_os);
        Self::new(socket.as_deref(), interval.as_deref(), pid.as_deref())
    }

    /// As [`Notifier::from_environment`], from values of `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    ///
    /// # Errors
    /// As there.
    pub fn new(
        socket: Option<&OsStr>,
        watchdog_usec: Option<&OsStr>,
        watchdog_pid: Option<&OsStr>,
    ) -> Result<Self, NotifyError> {
        let Some(name) = socket.filter(|name| !name.is_empty()) else { return Ok(Self::default()) };
        let wrong = || NotifyError::Address(name.to_owned());
        let address = match name.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(name).map_err(|_| wrong())?,
            [b'@', rest @ ..] if !rest.is_empty() => {
                SocketAddr::from_abstract_name(rest).map_err(|_| wrong())?
            }
            _ => return Err(wrong()),
        };
        let socket = UnixDatagram::unbound().map_err(NotifyError::Socket)?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(NotifyError::Socket)?;
        let watchdog = number("WATCHDOG_USEC", watchdog_usec)?;
        let meant = number("WATCHDOG_PID", watchdog_pid)?;
        let is_for_us = meant.is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = watchdog.filter(|_| is_for_us).map(Duration::from_micros);
        Ok(Self { to: Some((socket, address)), watchdog, status: String::new() })
    }

    /// Whether there is a manager.
    pub fn is_heard(&self) -> bool {
        self.to.is_some()
    }

    /// How long the manager waits for [`Notifier::well`] before it ends the process; `None` if it does not.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// How often to be well: half the manager's patience, as its documentation asks for.
    pub fn well_every(&self) -> Option<Duration> {
        self.watchdog.map(|patience| patience / 2)
    }

    /// Start, or reload, is done: `READY=1`.
    pub fn ready(&mut self, status: &str) {
        self.status = one_line(status);
        self.insist(&format!("READY=1\nSTATUS={}", self.status));
    }

    /// A line for the operator, `STATUS=`; sent when it differs from the last one.
    pub fn status(&mut self, status: &str) {
        if self.is_heard() && self.status != status {
            self.status = one_line(status);
            let _ = self.send(&format!("STATUS={}", self.status));
        }
    }

    /// The daemon is well: `WATCHDOG=1`; nothing if the manager has no watchdog. One that is lost is followed by the next.
    pub fn well(&self) {
        if self.watchdog.is_some() {
            let _ = self.send("WATCHDOG=1");
        }
    }

    /// A reload begins: `RELOADING=1`, with the clock that `Type=notify-reload` asks for. [`Notifier::ready`] ends it.
    pub fn reloading(&self) {
        self.insist(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_ns() / 1000));
    }

    /// The daemon ends in order: `STOPPING=1`.
    pub fn stopping(&mut self) {
        self.status = "stopping".to_owned();
        self.insist("STOPPING=1\nSTATUS=stopping");
    }

    fn insist(&self, message: &str) {
        for _ in 0..ATTEMPTS {
            match self.send(message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // who does not listen any more does not wait either
                _ => return,
            }
        }
    }

    fn send(&self, message: &str) -> io::Result<()> {
        let Some((socket, address)) = &self.to else { return Ok(()) };
        loop {
            match socket.send_to_addr(message.as_bytes(), address) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent.map(drop),
            }
        }
    }
}

impl fmt::Display for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_heard(), self.watchdog) {
            (false, _) => f.write_str("no service manager"),
            (true, None) => f.write_str("a service manager, no watchdog"),
            (true, Some(patience)) => write!(f, "a service manager, watchdog after {patience:?}"),
        }
    }
}

/// A status is one line: a line break in it would begin another assignment.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

fn number(variable: &'static str, value: Option<&OsStr>) -> Result<Option<u64>, NotifyError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let parsed = value.to_str().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
    let wrong = || NotifyError::Number { variable, value: value.to_owned() };
    parsed.ok_or_else(wrong).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(text: &str) -> Option<&OsStr> {
        Some(OsStr::new(text))
    }

    fn received(by: &UnixDatagram) -> String {
        let mut bytes = [0xa5; 512];
        by.set_nonblocking(true).unwrap();
        let length = by.recv(&mut bytes).map_or(0, |length| length);
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn every_message_reaches_a_manager_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("madplane-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let managers = [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}")),
        ];
        for (manager, address) in managers {
            let mut notifier = Notifier::new(os(&address), os("3000000"), None).unwrap();
            assert!(notifier.is_heard());
            assert_eq!(notifier.watchdog(), Some(Duration::from_secs(3)));
            assert_eq!(notifier.well_every(), Some(Duration::from_millis(1500)));
            notifier.ready("a\nMAINPID=1");
            assert_eq!(received(&manager), "READY=1\nSTATUS=a MAINPID=1");
            notifier.status("a MAINPID=1");
            assert_eq!(received(&manager), "", "nothing new");
            notifier.status("b");
            assert_eq!(received(&manager), "STATUS=b");
            notifier.well();
            assert_eq!(received(&manager), "WATCHDOG=1");
            notifier.reloading();
            let reloading = received(&manager);
            let clock = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(clock.parse::<u64>().unwrap() > 0);
            notifier.stopping();
            assert_eq!(received(&manager), "STOPPING=1\nSTATUS=stopping");
        }
    }

    #[test]
    fn without_a_manager_nothing_is_said_and_nothing_fails() {
        for socket in [None, os("")] {
            let mut notifier = Notifier::new(socket, os("1000"), None).unwrap();
            assert!(!notifier.is_heard() && notifier.watchdog().is_none());
            notifier.ready("x");
            notifier.status("y");
            notifier.well();
            notifier.stopping();
        }
        // one that is gone
        let mut gone = Notifier::new(os("/nonexistent/notify"), None, None).unwrap();
        gone.ready("x");
        gone.stopping();
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let own = std::process::id().to_string();
        for (pid, ours) in [(os(&own), true), (os("1"), false), (os(""), true), (None, true)] {
            let notifier = Notifier::new(os("@x"), os("5000000"), pid).unwrap();
            assert_eq!(notifier.watchdog().is_some(), ours, "{pid:?}");
        }
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let long = format!("/{}", "x".repeat(200));
        for address in ["relative", "@", "vsock:2:1", &long] {
            let error = Notifier::new(os(address), None, None).unwrap_err().to_string();
            assert!(error.contains("NOTIFY_SOCKET") && error.contains(address), "{error}");
        }
        for value in ["0", "-1", "5s", "99999999999999999999999"] {
            let error = Notifier::new(os("@x"), os(value), None).unwrap_err().to_string();
            assert!(error.contains("WATCHDOG_USEC") && error.contains(value), "{error}");
            let error = Notifier::new(os("@x"), None, os(value)).unwrap_err().to_string();
            assert!(error.contains("WATCHDOG_PID") && error.contains(value), "{error}");
        }
    }

    #[test]
    fn a_manager_that_does_not_read_is_not_waited_for() {
        let name = format!("madplane-full-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let notifier = Notifier::new(os(&format!("@{name}")), os("1000000"), None).unwrap();
        // far more than its queue takes: each is given up in time, or this hangs
        let mut refused = 0;
        while refused < 3 {
            refused += u32::from(notifier.send("WATCHDOG=1").is_err());
        }
        drop(manager);
    }
}
