//! The asking end of the admin protocol: one request, one reply, within a bounded time.
//!
//! Blocks the calling thread; used by madctl and by tests. Opens a connection per request and keeps no state.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use madplane_shm::paths::PlanePaths;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admin::{MAX_LINE_BYTES, PROTOCOL_VERSION, Reply, Request};

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
    let name = || paths.name().to_owned();
    let no_answer = |reason: String| AdminError::NoAnswer { name: name(), reason };
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            AdminError::Slow { name: name(), seconds: within.as_secs() }
        }
        _ => no_answer(error.to_string()),
    };
    let mut stream = connect(paths, within).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => AdminError::Permission(name()),
        io::ErrorKind::WouldBlock => failed(error),
        _ => AdminError::NotRunning(name()),
    })?;
    let args = serde_json::to_value(args).map_err(|error| no_answer(error.to_string()))?;
    let request = Request { v: PROTOCOL_VERSION, id: Value::from(1), cmd: cmd.to_owned(), args };
    let mut line = serde_json::to_vec(&request).map_err(|error| no_answer(error.to_string()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let mut answer = String::new();
    let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX) + 1;
    BufReader::new(stream.take(most)).read_line(&mut answer).map_err(failed)?;
    if answer.is_empty() {
        return Err(no_answer("the connection ended".to_owned()));
    }
    let reply: Reply = serde_json::from_str(&answer).map_err(|error| no_answer(error.to_string()))?;
    if !reply.ok {
        return Err(AdminError::Refused(
            reply.error.unwrap_or_else(|| "refused without a reason".to_owned()),
        ));
    }
    serde_json::from_value(reply.result).map_err(|error| no_answer(error.to_string()))
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
