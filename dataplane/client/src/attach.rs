//! Attaching to the plane and registering agents: the exchanges over the socket that both kinds of session need.
//!
//! Free functions on the caller's thread; they block until the plane answers, at most [`CALL_TIMEOUT`]. Invariant: an
//! [`Attachment`] is whole, with memory checked and mapped. What it does not do: keep state.

use std::time::Duration;

use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{self, Connection, HandoffError, Reply, Request, op, place_kind};
use madplane_shm::message::MadMessage;
use madplane_shm::paths::PlanePaths;
use madplane_shm::session::{ClientEnds, PairFds, open_pair};

use crate::agents::AgentSpec;
use crate::error::{BindError, OpenError, RegisterError};
use crate::identity::{OwnPath, TenantName};

/// Longest time the plane may take to answer a registration.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a session is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Number of the session in the plane.
    pub session_id: u32,
    /// Node GUID.
    pub node_guid: u64,
    /// GUID of the port.
    pub port_guid: u64,
    /// System image GUID.
    pub system_image_guid: u64,
    /// It is a port of an RDMA device, called [`SessionInfo::node_name`]; else one of the plane's fabric.
    pub is_device: bool,
    /// Port number, 0 on a switch.
    pub port: u8,
    /// NodeInfo.NodeType: 1 channel adapter, 2 switch, 3 router.
    pub node_type: u8,
    /// NodeInfo.NumPorts.
    pub num_ports: u8,
    /// Node description.
    pub node_name: String,
    /// CPU on which the plane's worker for this session polls, if it is pinned.
    pub worker_cpu: Option<u32>,
}

impl SessionInfo {
    pub(crate) fn from_reply(reply: &Reply) -> Self {
        Self {
            session_id: reply.value,
            node_guid: reply.node_guid,
            port_guid: reply.port_guid,
            system_image_guid: reply.system_image_guid,
            is_device: reply.kind == place_kind::DEVICE,
            port: reply.port,
            node_type: reply.node_type,
            num_ports: reply.num_ports,
            node_name: reply.text(),
            worker_cpu: (reply.worker_cpu != u32::MAX).then_some(reply.worker_cpu),
        }
    }
}

/// What ATTACH gives.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) connection: Connection,
    pub(crate) info: SessionInfo,
    pub(crate) ends: ClientEnds<MadMessage, MadMessage>,
    pub(crate) up_bell: Doorbell,
    pub(crate) down_bell: Doorbell,
}

pub(crate) fn attach(
    paths: &PlanePaths,
    selector: &str,
    slots: u32,
    tenant: TenantName,
    path: OwnPath,
) -> Result<Attachment, OpenError> {
    let tenant = tenant.or_environment()?;
    let ports = path.ports()?;
    let connection = Connection::open(&paths.attach_socket(), paths.name())?;
    let limit = rustix::net::sockopt::Timeout::Recv;
    rustix::net::sockopt::set_socket_timeout(&connection, limit, Some(CALL_TIMEOUT))
        .map_err(std::io::Error::from)?;
    let mut request = Request::with_selector(op::ATTACH, selector).ok_or(OpenError::Selector)?;
    request.value = slots;
    request =
        request.of_tenant(tenant.as_str()).ok_or_else(|| OpenError::Tenant(tenant.as_str().to_owned()))?;
    let (reply, fds) = connection.call(&request)?;
    let [up, down, up_bell, down_bell] =
        <[_; 4]>::try_from(fds).map_err(|fds: Vec<_>| OpenError::Descriptors(fds.len()))?;
    let ends = open_pair(&PairFds { up, down })?;
    if !ports.is_empty() {
        call_bind(&connection, &ports, false)?;
    }
    Ok(Attachment {
        connection,
        info: SessionInfo::from_reply(&reply),
        ends,
        up_bell: Doorbell::from_fd(up_bell),
        down_bell: Doorbell::from_fd(down_bell),
    })
}

/// Gives the session of `connection` a path of its own, or with no ports takes it away.
pub(crate) fn call_bind(connection: &Connection, ports: &[u8], drop_broken: bool) -> Result<(), BindError> {
    let request = Request::bind_path(ports, drop_broken).ok_or(BindError::TooLong(ports.len()))?;
    match connection.call(&request) {
        Ok(_) => Ok(()),
        Err(HandoffError::Refused { errno, text }) => Err(BindError::Refused { errno, text }),
        Err(_) => Err(BindError::Gone),
    }
}

/// Registers an agent over `connection`; returns its `hi_tid`.
pub(crate) fn call_register(connection: &Connection, spec: &AgentSpec) -> Result<u32, RegisterError> {
    let request = Request {
        op: op::REGISTER,
        flags: if spec.user_rmpp { handoff::flag::USER_RMPP } else { 0 },
        qpn: spec.qpn,
        mgmt_class: spec.mgmt_class,
        class_version: spec.class_version,
        rmpp_version: spec.rmpp_version,
        method_mask: spec.method_mask,
        oui: spec.oui & 0x00ff_ffff,
        ..Request::default()
    };
    match connection.call(&request) {
        Ok((reply, _)) => Ok(reply.value),
        Err(HandoffError::Refused { errno, text }) => Err(RegisterError::Refused { errno, text }),
        Err(_) => Err(RegisterError::Gone),
    }
}
