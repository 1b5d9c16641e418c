//! Reads the node we stand on through its own management agent.
//!
//! Runs on the caller's thread: a session per port for the time of the call, one directed-route SMP with no hops per
//! question. Multi-port adapters need a session per port because GUIDs and P_Keys are those of the port on which an
//! SMP arrives. Nothing is kept. Not done here: who is asked is decided by [`crate::plane`].

use std::ffi::c_int;
use std::time::{Duration, Instant};

use madplane_client::{AgentSpec, Envelope, Outgoing, OwnPath, RecvError, Session, SessionOptions, Taken};
use madplane_wire::mad::{METHOD_GET, STATUS_OK};
use madplane_wire::smp::{
    DATA_LEN, GuidInfo, NodeDescription, NodeInfo, PERMISSIVE_LID, PKeyTable, PortInfo, attr,
};
use madplane_wire::{MAD_LEN, Smp, SmpMut};

use crate::facts::{Node, Port, port_numbers};
use crate::hardware;
use crate::plane::{self, Place, Settings, report_text};
use crate::ports::refusal;

/// Time for one answer, and how often a question is asked again.
const TIMEOUT_MS: u32 = 500;
const RETRIES: u32 = 2;
/// Entries of one P_KeyTable block.
const P_KEYS_PER_BLOCK: u32 = 32;
/// Ring slots of a session that has one question outstanding.
const SLOTS: u32 = 16;

/// Reads the node that `settings` lead to, with all its ports.
///
/// # Errors
/// An errno, after a complaint on standard error: `ENODEV` without a plane, `EIO` if the node does not answer.
pub(crate) fn read_node(settings: &Settings) -> Result<Node, c_int> {
    let place = plane::locate(settings)?;
    if place.is_device {
        return hardware::read_node(&settings.rdma, place);
    }
    let mut node: Option<Node> = None;
    for number in port_numbers(place.node_type, place.num_ports) {
        let mut asker = Asker::open(settings, place, number)?;
        let info = NodeInfo::parse(&asker.get(attr::NODE_INFO, 0)?);
        if node.is_none() {
            let text = NodeDescription::parse(&asker.get(attr::NODE_DESC, 0)?);
            let description = String::from_utf8_lossy(text.text()).replace(['\n', '\0'], " ");
            node = Some(Node { info, description, ports: Vec::new(), kernel: None });
        }
        let port = read_port(&mut asker, number, &info)?;
        if let Some(node) = &mut node {
            node.ports.push(port);
        }
    }
    node.ok_or(libc::ENODEV)
}

fn read_port(asker: &mut Asker, number: u8, node: &NodeInfo) -> Result<Port, c_int> {
    let info = PortInfo::parse(&asker.get(attr::PORT_INFO, u32::from(number))?);
    let guids = GuidInfo::parse(&asker.get(attr::GUID_INFO, 0)?);
    let entries = usize::from(node.partition_cap);
    let mut p_keys = Vec::with_capacity(entries);
    for block in 0..u32::from(node.partition_cap).div_ceil(P_KEYS_PER_BLOCK) {
        let block = PKeyTable::parse(&asker.get(attr::PKEY_TABLE, block)?);
        p_keys.extend(block.pkeys);
    }
    p_keys.truncate(entries);
    Ok(Port { number, info, guid: node.port_guid, guids, p_keys, kernel: None })
}

/// A session that asks the node it stands on.
struct Asker {
    session: Session,
    agent: u32,
    next_tid: u32,
}

impl Asker {
    fn open(settings: &Settings, place: Place, port: u8) -> Result<Self, c_int> {
        let selector = settings.selector(place, port);
        // a question to the own node takes no path, and the path of the environment may start at another port
        let options = SessionOptions { slots: SLOTS, path: OwnPath::None, ..SessionOptions::default() };
        let session = Session::open(&settings.paths, &selector, &options).map_err(|error| refusal(&error))?;
        // an agent without a class: a tenant that has none for SMPs may read its own node all the same
        let spec = AgentSpec::default();
        let agent = session.register(&spec).map_err(|error| {
            report_text(&error.to_string());
            libc::EIO
        })?;
        Ok(Self { session, agent, next_tid: 1 })
    }

    /// The attribute, or `EIO` after a complaint.
    fn get(&mut self, attr_id: u16, attr_mod: u32) -> Result<[u8; DATA_LEN], c_int> {
        self.ask(attr_id, attr_mod).map_err(|what| {
            report_text(&format!("the node does not answer Get {attr_id:#06x}: {what}"));
            libc::EIO
        })
    }

    fn ask(&mut self, attr_id: u16, attr_mod: u32) -> Result<[u8; DATA_LEN], String> {
        let tid = self.next_tid;
        self.next_tid += 1;
        let mut request = [0; MAD_LEN];
        SmpMut::new(&mut request).init_directed(METHOD_GET, attr_id, attr_mod, u64::from(tid), &[]);
        let envelope = Envelope { dlid: PERMISSIVE_LID, ..Envelope::default() };
        let outgoing = Outgoing {
            agent: self.agent,
            envelope,
            data: &request,
            timeout_ms: TIMEOUT_MS,
            retries: RETRIES,
        };
        self.session.send(&outgoing).map_err(|error| error.to_string())?;
        // the session itself reports the timeout; this one is for a session that does not
        let end = Instant::now() + Duration::from_millis(u64::from(TIMEOUT_MS) * u64::from(RETRIES + 2));
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let answer = self.session.recv_with(Some(left), |incoming| {
                Taken::Done((incoming.status, incoming.data.first_chunk::<MAD_LEN>().copied()))
            });
            match answer {
                Err(error @ (RecvError::TimedOut | RecvError::Gone)) => return Err(error.to_string()),
                Ok((0, Some(answer))) => {
                    let smp = Smp::new(&answer);
                    if smp.mad().tid() & u64::from(u32::MAX) != u64::from(tid) {
                        continue;
                    }
                    return match smp.status() {
                        STATUS_OK => Ok(*smp.data()),
                        status => Err(format!("status {status:#06x}")),
                    };
                }
                Ok(_) => return Err("no response in time".to_owned()),
            }
        }
    }
}
