//! One link on the service thread: calls, takes calls, and carries frames between the connection and the rings.
//!
//! At most one connection counts, the one made last: a peer that was started anew calls before anybody has noticed that it was
//! gone. What cannot be sent is lost, as datagrams are.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use madplane_shm::sync::Ordering;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, ServerConfig};
use quinn::{TokioRuntime, TransportConfig};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;

use crate::QuicOptions;
use crate::credentials::{Credentials, bears_name};
use crate::dial::Pace;
use crate::rings::{ServiceEnd, Shared};

/// A connection that is silent this long is over; links send every 100 ms.
const IDLE: Duration = Duration::from_millis(1500);
/// The library keeps a connection alive by itself, should the link above be busy elsewhere.
const KEEP_ALIVE: Duration = Duration::from_millis(400);
/// Bytes of datagrams that the library holds each way.
const DATAGRAM_BUFFER: usize = 1 << 20;
/// Frames sent before the connection is looked at again.
const BURST: usize = 64;

/// A link that the service is to run.
pub(crate) struct Task {
    options: QuicOptions,
    client: ClientConfig,
    server: ServerConfig,
    socket: UdpSocket,
    end: ServiceEnd,
    hears: OwnedFd,
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER))
        .datagram_send_buffer_size(DATAGRAM_BUFFER)
        .max_concurrent_bidi_streams(0_u8.into())
        .max_concurrent_uni_streams(0_u8.into());
    Arc::new(transport)
}

impl Task {
    pub(crate) fn new(
        options: QuicOptions,
        credentials: &Credentials,
        socket: UdpSocket,
        end: ServiceEnd,
        hears: OwnedFd,
    ) -> Self {
        let mut client = ClientConfig::new(credentials.client.clone());
        client.transport_config(transport());
        let mut server = ServerConfig::with_crypto(credentials.server.clone());
        server.transport_config(transport());
        Self { options, client, server, socket, end, hears }
    }

    /// Runs until the worker gives the link up.
    pub(crate) async fn run(self) {
        let Self { options, client, server, socket, mut end, hears } = self;
        let shared = end.shared.clone();
        let runtime = Arc::new(TokioRuntime);
        let made = Endpoint::new(EndpointConfig::default(), Some(server), socket, runtime);
        let (endpoint, bell) = match (made, Receiver::from_owned_fd(hears)) {
            (Ok(endpoint), Ok(bell)) => (endpoint, bell),
            (Err(error), _) | (_, Err(error)) => {
                shared.set(false, format!("unavailable, because {error}"));
                return;
            }
        };
        let (came, mut calls) = mpsc::channel(4);
        let listening = tokio::task::spawn_local(listen(
            endpoint.clone(),
            options.peer_name.clone(),
            came,
            end.shared.clone(),
        ));
        let seed = madplane_shm::process::unix_ns() ^ u64::from(options.local.port());
        let mut pace = Pace::new(options.calls_first(), seed);
        shared.set(false, format!("calling {}", options.peer));
        while !shared.worker_is_gone() {
            let connection = tokio::select! {
                Some(connection) = calls.recv() => connection,
                called = call(&endpoint, &client, &options, pace.pause()) => match called {
                    Ok(connection) => connection,
                    Err(error) => {
                        pace.failed();
                        if error.by_credentials {
                            shared.refused_peers.fetch_add(1, Ordering::Relaxed);
                        }
                        shared.set(false, format!("{}: {}", options.peer, error.text));
                        continue;
                    }
                },
                () = discard(&mut end, &bell) => break,
            };
            let since = Instant::now();
            let why = serve(connection, &mut calls, &mut end, &bell).await;
            pace.lasted(since.elapsed());
            shared.set(false, why);
        }
        listening.abort();
        endpoint.close(0_u8.into(), b"link removed");
        // lets the goodbye leave
        let _ = tokio::time::timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
    }
}

/// Why a call came to nothing.
struct Failure {
    text: String,
    by_credentials: bool,
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        Self { by_credentials: concerns_credentials(&error), text: error.to_string() }
    }
}

/// Whether the handshake itself failed; TLS reports all of its alerts as errors 0x100 to 0x1ff.
fn concerns_credentials(error: &ConnectionError) -> bool {
    let code = match error {
        ConnectionError::TransportError(error) => u64::from(error.code),
        ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
        _ => return false,
    };
    (0x100..0x200).contains(&code)
}

async fn call(
    endpoint: &Endpoint,
    client: &ClientConfig,
    options: &QuicOptions,
    pause: Duration,
) -> Result<Connection, Failure> {
    tokio::time::sleep(pause).await;
    let calling = endpoint
        .connect_with(client.clone(), options.peer, &options.peer_name)
        .map_err(|error| Failure { text: error.to_string(), by_credentials: false })?;
    Ok(calling.await?)
}

async fn listen(endpoint: Endpoint, name: String, came: mpsc::Sender<Connection>, shared: Arc<Shared>) {
    while let Some(incoming) = endpoint.accept().await {
        let (came, shared, name) = (came.clone(), shared.clone(), name.clone());
        tokio::task::spawn_local(async move {
            match incoming.await {
                Ok(connection) if bears_name(&connection, &name) => drop(came.send(connection).await),
                Ok(connection) => {
                    shared.refused_peers.fetch_add(1, Ordering::Relaxed);
                    connection.close(0_u8.into(), b"a certificate of another name is wanted");
                }
                Err(error) if concerns_credentials(&error) => {
                    shared.refused_peers.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {}
            }
        });
    }
}

/// Throws away what the worker sends while there is no connection; returns when the worker is gone.
async fn discard(end: &mut ServiceEnd, bell: &Receiver) {
    while !end.shared.worker_is_gone() {
        while end.next().is_some() {}
        rung(end, bell).await;
    }
}

/// Waits until the worker has sent something or is gone.
async fn rung(end: &ServiceEnd, bell: &Receiver) {
    end.shared.service.0.raise();
    if !end.is_waiting() && !end.shared.worker_is_gone() {
        match bell.readable().await {
            Ok(()) => {
                let mut rings = [0; 512];
                let _ = bell.try_read(&mut rings);
            }
            // without its bell the link still works, slowly
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    end.shared.service.0.lower();
}

/// Carries frames until the connection is over, a newer one taking its place; says why.
async fn serve(
    mut connection: Connection,
    calls: &mut mpsc::Receiver<Connection>,
    end: &mut ServiceEnd,
    bell: &Receiver,
) -> String {
    end.shared.set(true, format!("connected to {}", connection.remote_address()));
    loop {
        tokio::select! {
            came = connection.read_datagram() => match came {
                Ok(frame) => end.give(&frame),
                Err(error) => {
                    if concerns_credentials(&error) {
                        end.shared.refused_peers.fetch_add(1, Ordering::Relaxed);
                    }
                    return format!("{}: {error}", connection.remote_address());
                }
            },
            Some(newer) = calls.recv() => {
                connection.close(0_u8.into(), b"replaced by a newer connection");
                end.shared.set(true, format!("connected to {}", newer.remote_address()));
                connection = newer;
            }
            () = rung(end, bell) => {
                if end.shared.worker_is_gone() {
                    connection.close(0_u8.into(), b"link removed");
                    return "removed".to_owned();
                }
                for _ in 0..BURST {
                    let Some(slot) = end.next() else { break };
                    // too large for the path, or the connection is ending: lost, as datagrams are
                    let _ = connection.send_datagram(slot.frame().to_vec().into());
                }
            }
        }
    }
}
