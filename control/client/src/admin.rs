//! The asking end of the admin protocol: one request, one reply, within a bounded time.
//!
//! Blocks the calling thread; used by madctl and by tests. [`ask`] opens a connection per request; an [`AdminClient`] is a
//! connection for several.

mod calls;
mod tenants;

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use madplane_shm::paths::PlanePaths;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::protocol::{MAX_LINE_BYTES, PROTOCOL_VERSION, Reply, Request};

/// Why madctld did not do something; one line each.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Nobody listens.
    #[error("madctld of plane {0} is not running; start it with: madctl up --name {0}")]
    NotRunning(String),
    /// The socket may not be opened by this user.
    #[error("no permission to talk to madctld of plane {0}")]
    Permission(String),
    /// No answer in time.
    #[error("madctld of plane {name} has not answered within {seconds} s; see its log")]
    Slow {
        /// The plane.
        name: String,
        /// The bound.
        seconds: u64,
    },
    /// The connection ended or carried something else than a reply.
    #[error("madctld of plane {name} gave no answer: {reason}")]
    NoAnswer {
        /// The plane.
        name: String,
        /// What was the matter.
        reason: String,
    },
    /// madctld answered that it was not done.
    #[error("{0}")]
    Refused(String),
}

impl AdminError {
    /// The errno for a C caller.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotRunning(_) => Errno::CONNREFUSED.raw_os_error(),
            Self::Permission(_) => Errno::ACCESS.raw_os_error(),
            Self::Slow { .. } => Errno::TIMEDOUT.raw_os_error(),
            Self::NoAnswer { .. } => Errno::PROTO.raw_os_error(),
            Self::Refused(_) => Errno::REMOTEIO.raw_os_error(),
        }
    }
}

/// A connection to madctld, for requests that belong together: what one has left behind goes with it.
#[derive(Debug)]
pub struct AdminClient {
    name: String,
    within: Duration,
    stream: BufReader<UnixStream>,
}

impl AdminClient {
    /// Connects to madctld of the plane at `paths`. Connecting, sending and each answer take at most `within`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn open(paths: &PlanePaths, within: Duration) -> Result<Self, AdminError> {
        let name = paths.name().to_owned();
        match connect(paths, within) {
            Ok(stream) => Ok(Self { name, within, stream: BufReader::new(stream) }),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::PermissionDenied => AdminError::Permission(name),
                io::ErrorKind::WouldBlock => AdminError::Slow { name, seconds: within.as_secs() },
                _ => AdminError::NotRunning(name),
            }),
        }
    }

    /// Asks for `cmd` and waits for the answer.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn ask<T: DeserializeOwned>(&mut self, cmd: &str, args: &impl Serialize) -> Result<T, AdminError> {
        let args = serde_json::to_value(args).map_err(|error| self.no_answer(&error))?;
        let request = Request { v: PROTOCOL_VERSION, id: Value::from(1), cmd: cmd.to_owned(), args };
        let mut line = serde_json::to_vec(&request).map_err(|error| self.no_answer(&error))?;
        line.push(b'\n');
        send(self.stream.get_ref(), &line).map_err(|error| self.failed(&error))?;
        let mut answer = String::new();
        let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX) + 1;
        let read = (&mut self.stream).take(most).read_line(&mut answer);
        read.map_err(|error| self.failed(&error))?;
        if answer.is_empty() {
            return Err(self.no_answer(&"the connection ended"));
        }
        let reply: Reply = serde_json::from_str(&answer).map_err(|error| self.no_answer(&error))?;
        if !reply.ok {
            return Err(AdminError::Refused(
                reply.error.unwrap_or_else(|| "refused without a reason".to_owned()),
            ));
        }
        serde_json::from_value(reply.result).map_err(|error| self.no_answer(&error))
    }

    /// Whether madctld has kept the connection: nothing has come that nobody asked for, and it has not ended.
    pub fn is_connected(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let found = rustix::net::recv(self.stream.get_ref(), &mut [0u8; 1], flags);
        self.stream.buffer().is_empty() && matches!(found, Err(Errno::AGAIN))
    }

    fn no_answer(&self, reason: &impl std::fmt::Display) -> AdminError {
        AdminError::NoAnswer { name: self.name.clone(), reason: reason.to_string() }
    }

    fn failed(&self, error: &io::Error) -> AdminError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                AdminError::Slow { name: self.name.clone(), seconds: self.within.as_secs() }
            }
            _ => self.no_answer(error),
        }
    }
}

/// Asks madctld of the plane at `paths` for `cmd` and waits for the answer, for at most `within`.
///
/// # Errors
/// See [`AdminError`].
pub fn ask<T: DeserializeOwned>(
    paths: &PlanePaths,
    cmd: &str,
    args: &impl Serialize,
    within: Duration,
) -> Result<T, AdminError> {
    AdminClient::open(paths, within)?.ask(cmd, args)
}

/// Sends a whole line. A connection that has ended is an error for the caller, never a signal to its process.
fn send(stream: &UnixStream, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match rustix::net::send(stream, line, SendFlags::NOSIGNAL) {
            Ok(sent) => line = line.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Connects with a bound on connecting, sending and receiving each.
fn connect(paths: &PlanePaths, within: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // also bounds the wait for a place in the backlog
    set_socket_timeout(&socket, Timeout::Send, Some(within))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(within))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(paths.admin_socket())?)?;
    Ok(UnixStream::from(socket))
}
