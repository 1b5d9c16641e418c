//! Attaching: fixed-size messages over a `SOCK_SEQPACKET` Unix socket, with descriptors beside them.
//!
//! One connection is one session (or the control channel, or a hold on the SM bit); it ends when either side closes
//! it, a killed process included. The client speaks first and waits for one reply per request. The plane's
//! housekeeping thread serves the other end; no polling thread ever touches a socket.
//!
//! Both sides name their layout version in every message, and a mismatch is refused with both in the text.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::LAYOUT_VERSION;
use crate::table::MAX_PATH_PORTS;
use crate::table::tenant::NAME_BYTES;
use crate::text::{load_padded, store_padded};

/// First word of every message.
pub const HANDOFF_MAGIC: u32 = 0x4D50_4C31;
/// Longest selector of a request.
pub const SELECTOR_BYTES: usize = 160;

/// What a request asks for; the number travels.
pub mod op {
    /// Open a session at [`super::Request::selector`]. Replies with four descriptors.
    pub const ATTACH: u32 = 1;
    /// Register an agent for the session of this connection.
    pub const REGISTER: u32 = 2;
    /// Remove an agent of the session of this connection.
    pub const UNREGISTER: u32 = 3;
    /// Set IsSM on the port at [`super::Request::selector`] for as long as this connection lives.
    pub const HOLD_SM: u32 = 4;
    /// Open the control channel; only one at a time. Replies with four descriptors.
    pub const CONTROL: u32 = 5;
    /// Ask which node and port a selector names, without attaching.
    pub const LOOKUP: u32 = 6;
    /// Bind the session of this connection to a path for all it sends; see [`super::Request::bind_path`].
    pub const BIND_PATH: u32 = 7;
}

/// Where a session is: values of [`Reply::kind`].
pub mod place_kind {
    /// At a port of the plane's fabric.
    pub const FABRIC: u8 = 0;
    /// At a port of an RDMA device of this machine, whose name is [`super::Reply::text`].
    pub const DEVICE: u8 = 1;
}

/// What a selector begins with that names an RDMA device: `device:NAME` or `device:NAME:PORT`.
pub const DEVICE_PREFIX: &str = "device:";
/// The same for an RDMA device if that works, else the plane's default.
pub const AUTO_PREFIX: &str = "auto:";

/// Bits of [`Request::flags`].
pub mod flag {
    /// [`super::op::HOLD_SM`]: wait for another holder instead of failing with `EAGAIN`.
    pub const WAIT: u32 = 1;
    /// [`super::op::REGISTER`]: the client does RMPP itself (umad's USER_RMPP).
    pub const USER_RMPP: u32 = 2;
    /// [`super::op::BIND_PATH`] and [`crate::command::ask::BIND_SESSION`]: drop what the path cannot carry instead of
    /// falling back to the forwarding tables.
    pub const DROP_BROKEN: u32 = 4;
}

/// A request, 256 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// [`HANDOFF_MAGIC`].
    pub magic: u32,
    /// [`LAYOUT_VERSION`] of the sender.
    pub version: u32,
    /// One of [`op`].
    pub op: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// ATTACH: slots per ring, 0 for the plane's default. UNREGISTER: the agent's `hi_tid`. BIND_PATH: number of ports.
    pub value: u32,
    /// REGISTER: queue pair, 0 or 1.
    pub qpn: u8,
    /// REGISTER: management class; 0 for an agent that only sends.
    pub mgmt_class: u8,
    /// REGISTER: class version.
    pub class_version: u8,
    /// REGISTER: RMPP version, 0 for none.
    pub rmpp_version: u8,
    /// REGISTER: methods wanted as requests, bit m % 64 of word m / 64.
    pub method_mask: [u64; 2],
    /// REGISTER: OUI of vendor range 2 in the low 24 bits.
    pub oui: u32,
    /// Reserved, 0.
    pub reserved: [u32; 3],
    /// ATTACH, HOLD_SM, LOOKUP: node as GUID or description, optionally `:PORT`, or [`DEVICE_PREFIX`] or [`AUTO_PREFIX`]
    /// and the name of a device; UTF-8, zero padded; empty for the plane's default. BIND_PATH: the ports.
    pub selector: [u8; SELECTOR_BYTES],
    /// ATTACH, HOLD_SM: name of the tenant, UTF-8, zero padded; empty for none.
    pub tenant: [u8; NAME_BYTES],
    /// Reserved, 0.
    pub reserved2: [u64; 1],
}

/// A reply, 256 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reply {
    /// [`HANDOFF_MAGIC`].
    pub magic: u32,
    /// [`LAYOUT_VERSION`] of the sender.
    pub version: u32,
    /// 0, or an errno.
    pub status: u32,
    /// ATTACH: session number. REGISTER: the agent's `hi_tid`.
    pub value: u32,
    /// Node GUID.
    pub node_guid: u64,
    /// GUID of the port attached to.
    pub port_guid: u64,
    /// System image GUID.
    pub system_image_guid: u64,
    /// Port number; 0 on a switch.
    pub port: u8,
    /// NodeInfo.NodeType.
    pub node_type: u8,
    /// NodeInfo.NumPorts.
    pub num_ports: u8,
    /// ATTACH, LOOKUP: one of [`place_kind`].
    pub kind: u8,
    /// CPU on which the session's worker polls, `u32::MAX` if it is not pinned.
    pub worker_cpu: u32,
    /// Name of the node, or one line that says what went wrong; UTF-8, zero padded.
    pub text: [u8; 192],
    /// Reserved, 0.
    pub reserved2: [u64; 2],
}

const _: () = {
    assert!(size_of::<Request>() == 256 && size_of::<Reply>() == 256);
    assert!(core::mem::offset_of!(Request, selector) == 56);
    assert!(core::mem::offset_of!(Request, tenant) == 216);
    assert!(core::mem::offset_of!(Reply, text) == 48);
};

impl Default for Request {
    fn default() -> Self {
        Self {
            magic: HANDOFF_MAGIC,
            version: LAYOUT_VERSION,
            op: 0,
            flags: 0,
            value: 0,
            qpn: 0,
            mgmt_class: 0,
            class_version: 0,
            rmpp_version: 0,
            method_mask: [0; 2],
            oui: 0,
            reserved: [0; 3],
            selector: [0; SELECTOR_BYTES],
            tenant: [0; NAME_BYTES],
            reserved2: [0],
        }
    }
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            magic: HANDOFF_MAGIC,
            version: LAYOUT_VERSION,
            status: 0,
            value: 0,
            node_guid: 0,
            port_guid: 0,
            system_image_guid: 0,
            port: 0,
            node_type: 0,
            num_ports: 0,
            kind: place_kind::FABRIC,
            worker_cpu: u32::MAX,
            text: [0; 192],
            reserved2: [0; 2],
        }
    }
}

impl Request {
    /// A request with a selector; `None` if it is longer than the field.
    pub fn with_selector(op: u32, selector: &str) -> Option<Self> {
        let mut request = Self { op, ..Self::default() };
        request.selector.get_mut(..selector.len())?.copy_from_slice(selector.as_bytes());
        Some(request)
    }

    /// A request to bind the session to the path of `ports`, or, with none, to unbind it; `None` for more than 63 ports.
    pub fn bind_path(ports: &[u8], drop_broken: bool) -> Option<Self> {
        let value = u32::try_from(ports.len()).ok().filter(|_| ports.len() <= MAX_PATH_PORTS)?;
        let flags = if drop_broken { flag::DROP_BROKEN } else { 0 };
        let mut request = Self { op: op::BIND_PATH, flags, value, ..Self::default() };
        request.selector[..ports.len()].copy_from_slice(ports);
        Some(request)
    }

    /// The same request for a tenant; `None` if the name is longer than the field.
    pub fn of_tenant(mut self, name: &str) -> Option<Self> {
        self.tenant = [0; NAME_BYTES];
        self.tenant
            .get_mut(..name.len())
            .filter(|_| name.len() < NAME_BYTES)?
            .copy_from_slice(name.as_bytes());
        Some(self)
    }

    /// The selector as text.
    pub fn selector(&self) -> String {
        load_padded(&self.selector)
    }

    /// The tenant's name, empty for none.
    pub fn tenant(&self) -> String {
        load_padded(&self.tenant)
    }

    /// BIND_PATH: the ports; `None` if the request says more than a path has.
    pub fn path(&self) -> Option<&[u8]> {
        let ports = usize::try_from(self.value).ok().filter(|ports| *ports <= MAX_PATH_PORTS)?;
        self.selector.get(..ports)
    }
}

impl Reply {
    /// A refusal with one line of text, cut to what fits.
    pub fn refusal(errno: i32, text: &str) -> Self {
        let mut reply = Self { status: errno.unsigned_abs(), ..Self::default() };
        reply.set_text(text);
        reply
    }

    /// Stores a text, cut at a character boundary to what fits.
    pub fn set_text(&mut self, text: &str) {
        store_padded(&mut self.text, text);
    }

    /// The text.
    pub fn text(&self) -> String {
        load_padded(&self.text)
    }
}

/// Why talking to the plane failed.
#[derive(Debug, thiserror::Error)]
pub enum HandoffError {
    /// No plane listens.
    #[error("no plane named {name} is running; start one with: madctl up --name {name}")]
    NotRunning {
        /// Name of the plane.
        name: String,
    },
    /// The socket may not be opened by this user.
    #[error("no permission to attach to plane {name}")]
    Permission {
        /// Name of the plane.
        name: String,
    },
    /// The connection failed or ended.
    #[error("the plane closed the connection")]
    Gone(#[source] io::Error),
    /// Built from another layout.
    #[error("the plane speaks layout version {theirs}, this program version {ours}")]
    Version {
        /// Version of the plane.
        theirs: u32,
        /// Version of this program.
        ours: u32,
    },
    /// The plane answered with an error.
    #[error("{text}")]
    Refused {
        /// The errno of the reply.
        errno: i32,
        /// What the plane said.
        text: String,
    },
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Connects to the attach socket at `path` of the plane called `name`.
    ///
    /// # Errors
    /// [`HandoffError::NotRunning`] when nobody listens, [`HandoffError::Permission`] when not allowed.
    pub fn open(path: &Path, name: &str) -> Result<Self, HandoffError> {
        Self::open_with(path, name, SocketFlags::CLOEXEC)
    }

    /// As [`Connection::open`], but returns at once, and neither sending nor receiving waits afterwards: for callers
    /// that sleep elsewhere.
    ///
    /// # Errors
    /// As [`Connection::open`], and [`HandoffError::Gone`] with `WouldBlock` when the plane does not accept.
    pub fn try_open(path: &Path, name: &str) -> Result<Self, HandoffError> {
        Self::open_with(path, name, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn open_with(path: &Path, name: &str, flags: SocketFlags) -> Result<Self, HandoffError> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| HandoffError::Gone(e.into()))?;
        let address = SocketAddrUnix::new(path).map_err(|e| HandoffError::Gone(e.into()))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => Ok(Self { socket }),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
                Err(HandoffError::Permission { name: name.to_owned() })
            }
            Err(busy @ rustix::io::Errno::AGAIN) => Err(HandoffError::Gone(busy.into())),
            Err(_) => Err(HandoffError::NotRunning { name: name.to_owned() }),
        }
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// [`HandoffError::Refused`] with the plane's own words, or why the plane could not be asked.
    pub fn call(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), HandoffError> {
        self.send(request)?;
        self.receive()
    }

    /// Sends a request without waiting.
    ///
    /// # Errors
    /// [`HandoffError::Gone`].
    pub fn send(&self, request: &Request) -> Result<(), HandoffError> {
        send_with_fds(&self.socket, request.as_bytes(), &[]).map_err(HandoffError::Gone)
    }

    /// Waits for a reply.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub fn receive(&self) -> Result<(Reply, Vec<OwnedFd>), HandoffError> {
        let mut bytes = [0u8; size_of::<Reply>()];
        let (length, fds) = recv_with_fds(&self.socket, &mut bytes).map_err(HandoffError::Gone)?;
        let reply = match Reply::read_from_bytes(&bytes) {
            Ok(reply) if length == bytes.len() && reply.magic == HANDOFF_MAGIC => reply,
            _ => return Err(HandoffError::Gone(io::ErrorKind::UnexpectedEof.into())),
        };
        if reply.version != LAYOUT_VERSION {
            return Err(HandoffError::Version { theirs: reply.version, ours: LAYOUT_VERSION });
        }
        if reply.status != 0 {
            let errno = i32::try_from(reply.status).unwrap_or(i32::MAX);
            return Err(HandoffError::Refused { errno, text: reply.text() });
        }
        Ok((reply, fds))
    }

    /// Gives the socket up; closing it ends the session.
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends `bytes` as one packet with descriptors beside it.
///
/// # Errors
/// As sendmsg(2).
pub fn send_with_fds(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet and the descriptors beside it. A length of 0 means that the peer is gone.
///
/// # Errors
/// As recvmsg(2).
pub fn recv_with_fds(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let parts = &mut [IoSliceMut::new(bytes)];
        match rustix::net::recvmsg(&socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok((got.bytes, fds))
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests")]
mod tests {
    use super::*;

    fn socket_pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap()
    }

    #[test]
    fn a_request_travels_whole_and_descriptors_come_with_the_reply() {
        let (client, plane) = socket_pair();
        let client = Connection { socket: client };
        client.send(&Request::with_selector(op::ATTACH, "node-1:2").unwrap()).unwrap();
        let mut bytes = [0u8; 256];
        let (length, fds) = recv_with_fds(&plane, &mut bytes).unwrap();
        assert_eq!((length, fds.len()), (256, 0));
        let request = Request::read_from_bytes(&bytes).unwrap();
        assert_eq!((request.op, request.selector().as_str()), (op::ATTACH, "node-1:2"));
        let reply = Reply { value: 7, ..Reply::default() };
        send_with_fds(&plane, reply.as_bytes(), &[plane.as_fd(), plane.as_fd()]).unwrap();
        let (reply, fds) = client.receive().unwrap();
        assert_eq!((reply.value, fds.len()), (7, 2));
    }

    #[test]
    fn a_refusal_carries_its_words_and_a_closed_plane_is_noticed() {
        let (client, plane) = socket_pair();
        let client = Connection { socket: client };
        send_with_fds(&plane, Reply::refusal(22, "no such node").as_bytes(), &[]).unwrap();
        match client.receive().unwrap_err() {
            HandoffError::Refused { errno, text } => assert_eq!((errno, text.as_str()), (22, "no such node")),
            other => panic!("{other}"),
        }
        let other_version = Reply { version: 77, ..Reply::default() };
        send_with_fds(&plane, other_version.as_bytes(), &[]).unwrap();
        assert!(matches!(client.receive().unwrap_err(), HandoffError::Version { theirs: 77, .. }));
        drop(plane);
        assert!(matches!(client.receive().unwrap_err(), HandoffError::Gone(_)));
    }

    #[test]
    fn a_plane_that_does_not_accept_keeps_only_those_waiting_who_want_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("attach.sock");
        let none = Connection::try_open(&path, "p").unwrap_err();
        assert!(matches!(none, HandoffError::NotRunning { .. }), "{none}");
        let kind = SocketType::SEQPACKET;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let mut waiting = Vec::new();
        let refused = loop {
            match Connection::try_open(&path, "p") {
                Ok(connection) if waiting.len() < 100 => waiting.push(connection),
                other => break other.unwrap_err(),
            }
        };
        assert!(matches!(&refused, HandoffError::Gone(error) if error.kind() == io::ErrorKind::WouldBlock));
        let quiet = waiting[0].receive().unwrap_err();
        assert!(matches!(&quiet, HandoffError::Gone(error) if error.kind() == io::ErrorKind::WouldBlock));
    }

    #[test]
    fn a_request_names_its_tenant_and_its_path() {
        let request = Request::with_selector(op::ATTACH, "node-1:2").unwrap();
        assert_eq!((request.tenant().as_str(), request.of_tenant("").unwrap().tenant().as_str()), ("", ""));
        let longest = "t".repeat(31);
        let named = request.of_tenant(&longest).unwrap();
        assert_eq!((named.tenant(), named.selector()), (longest, "node-1:2".to_owned()));
        assert_eq!(named.of_tenant("blue").unwrap().tenant(), "blue");
        assert!(request.of_tenant(&"t".repeat(32)).is_none());
        for ports in [&[9; 63][..], &[1, 0, 255], &[]] {
            let bind = Request::bind_path(ports, true).unwrap();
            assert_eq!((bind.op, bind.flags, bind.path()), (op::BIND_PATH, flag::DROP_BROKEN, Some(ports)));
        }
        assert_eq!(Request::bind_path(&[1], false).unwrap().flags, 0);
        assert!(Request::bind_path(&[1; 64], false).is_none());
        for value in [64, 160, 161, u32::MAX] {
            assert_eq!(Request { value, ..Request::default() }.path(), None, "{value}");
        }
    }

    #[test]
    fn a_selector_that_does_not_fit_is_refused() {
        assert!(Request::with_selector(op::ATTACH, &"x".repeat(SELECTOR_BYTES + 1)).is_none());
    }
}
