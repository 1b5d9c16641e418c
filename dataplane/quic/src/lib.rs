//! Datagrams over QUIC, for links to planes that no RDMA adapter reaches.
//!
//! A [`Service`] has one thread of its own with a single-threaded runtime; nothing of QUIC runs on a polling thread. A worker holds
//! a [`QuicDatagrams`] and meets the service through two rings of whole frames ([`rings`]). Unreliable datagrams only; mutual
//! authentication, encryption, keep-alive and idle time-out are the library's, and who may come in is a matter of certificates
//! ([`credentials`]): both ends have to show one of the same authority.
//!
//! | thread | owns | talks to others by |
//! |---|---|---|
//! | the worker of the link | its ends of both rings | rings, one bell each way, rung once per sleep |
//! | `madplane-quic` | sockets, connections | the same; orders from housekeeping by a channel |
//!
//! Not here: sequence numbers, keep-alives of the link, what a frame holds ([`madplane_port::link`]).
#![forbid(unsafe_code)]

pub mod credentials;
mod dial;
pub mod rings;
mod task;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use credentials::{CredentialError, Credentials};
use madplane_port::datagram::Standing;
use rings::QuicDatagrams;

/// The protocol that both ends have to speak.
pub const ALPN: &[u8] = b"madplane/1";
/// The name that certificates of planes bear besides their own.
pub const COMMON_NAME: &str = "madplane";

/// Longest time for which the socket of a link that was taken away is waited for.
const GOODBYE: Duration = Duration::from_millis(800);

/// What a link over QUIC needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuicOptions {
    /// Own address and port, UDP.
    pub local: SocketAddr,
    /// The other end's.
    pub peer: SocketAddr,
    /// Name that its certificate has to bear, whoever calls.
    pub peer_name: String,
    /// Where `ca.pem`, `plane.pem` and `plane.key` are.
    pub credentials: PathBuf,
}

/// Why there is no link over QUIC.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not an address.
    #[error("{0:?} is no address; use HOST:PORT")]
    Address(String),
    /// The socket cannot be had.
    #[error("cannot use UDP {local}: {source}")]
    Socket {
        /// The address.
        local: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Certificates or key cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// No directory with credentials was named.
    #[error("QUIC needs credentials=DIRECTORY; madctl links credentials makes them")]
    NoCredentials,
    /// No thread or descriptor left.
    #[error("cannot start QUIC: {0}")]
    Start(std::io::Error),
    /// The service is gone.
    #[error("the QUIC thread has ended")]
    Ended,
}

impl QuicOptions {
    /// Reads what an operator wrote: `local` is `HOST:PORT`, `peer` is `[NAME@]HOST:PORT`.
    ///
    /// # Errors
    /// [`OpenError`] names the word.
    pub fn parse(local: &str, peer: &str, credentials: &str) -> Result<Self, OpenError> {
        if credentials.is_empty() {
            return Err(OpenError::NoCredentials);
        }
        let (name, address) = peer.split_once('@').unwrap_or((COMMON_NAME, peer));
        Ok(Self {
            local: resolve(local)?,
            peer: resolve(address)?,
            peer_name: name.to_owned(),
            credentials: PathBuf::from(credentials),
        })
    }

    /// Whether this end calls at once: the one with the smaller address does, the other waits a little first.
    fn calls_first(&self) -> bool {
        let own = if self.local.ip().is_unspecified() {
            self.address_towards_peer()
        } else {
            Some(self.local.ip())
        };
        own.is_none_or(|own| (own, self.local.port()) < (self.peer.ip(), self.peer.port()))
    }

    fn address_towards_peer(&self) -> Option<IpAddr> {
        let socket = UdpSocket::bind((self.local.ip(), 0)).ok()?;
        // no packet is sent by that
        socket.connect(self.peer).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    }
}

/// A socket of one's own. That of a link which was taken away just now lives until it has said goodbye.
fn bind(local: SocketAddr) -> std::io::Result<UdpSocket> {
    let until = Instant::now() + GOODBYE;
    loop {
        match UdpSocket::bind(local) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

fn resolve(text: &str) -> Result<SocketAddr, OpenError> {
    let fail = || OpenError::Address(text.to_owned());
    text.to_socket_addrs().map_err(|_| fail())?.next().ok_or_else(fail)
}

/// The thread that does QUIC, for any number of links.
#[derive(Debug)]
pub struct Service {
    orders: Option<mpsc::UnboundedSender<task::Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread or descriptor left.
    pub fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (orders, mut taken) = mpsc::unbounded_channel::<task::Task>();
        let body = move || {
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                while let Some(task) = taken.recv().await {
                    tokio::task::spawn_local(task.run());
                }
            });
        };
        let thread = std::thread::Builder::new().name("madplane-quic".to_owned()).spawn(body)?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Opens a link's transport. The connection is made, and made again, by itself; credentials are read now. Waits a little for
    /// a socket that a former link has not let go yet.
    ///
    /// # Errors
    /// [`OpenError`], if there will never be a connection.
    pub fn open(&self, options: QuicOptions) -> Result<(QuicDatagrams, Standing), OpenError> {
        let credentials = Credentials::load(Path::new(&options.credentials))?;
        let fail = |source| OpenError::Socket { local: options.local, source };
        let socket = bind(options.local).map_err(fail)?;
        socket.set_nonblocking(true).map_err(fail)?;
        let (worker, standing, service, hears) =
            rings::rings().map_err(|errno| OpenError::Start(errno.into()))?;
        let task = task::Task::new(options, &credentials, socket, service, hears);
        let orders = self.orders.as_ref().ok_or(OpenError::Ended)?;
        orders.send(task).map_err(|_| OpenError::Ended)?;
        Ok((worker, standing))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // ends the thread's loop, and with it all connections
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_nonsense_is_named() {
        let options = QuicOptions::parse("127.0.0.1:7471", "b@127.0.0.2:7471", "d").unwrap();
        assert_eq!(
            (options.peer_name.as_str(), options.peer.to_string()),
            ("b", "127.0.0.2:7471".to_owned())
        );
        assert_eq!(QuicOptions::parse("[::1]:1", "[::1]:2", "d").unwrap().peer_name, COMMON_NAME);
        for (local, peer) in [("x", "127.0.0.1:1"), ("127.0.0.1:1", "a@"), ("127.0.0.1:99999", "127.0.0.1:1")]
        {
            assert!(
                matches!(QuicOptions::parse(local, peer, "d"), Err(OpenError::Address(_))),
                "{local} {peer}"
            );
        }
        assert!(matches!(
            QuicOptions::parse("127.0.0.1:1", "127.0.0.1:2", ""),
            Err(OpenError::NoCredentials)
        ));
    }

    #[test]
    fn exactly_one_of_two_ends_calls_first() {
        for (a, b) in [("127.0.0.1:1", "127.0.0.1:2"), ("127.0.0.2:1", "127.0.0.1:9"), ("[::1]:5", "[::1]:4")]
        {
            let one = QuicOptions::parse(a, b, "d").unwrap();
            let other = QuicOptions::parse(b, a, "d").unwrap();
            assert_ne!(one.calls_first(), other.calls_first(), "{a} {b}");
        }
        let anywhere = QuicOptions::parse("0.0.0.0:7", "127.0.0.1:8", "d").unwrap();
        assert!(anywhere.calls_first(), "its address towards the peer is 127.0.0.1");
    }
}
