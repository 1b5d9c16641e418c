//! A client of the test's own, for questions that no stock tool asks quickly enough.

use std::time::Duration;

use madplane_client::{AgentSpec, Envelope, Outgoing, Session, SessionOptions, Taken, WaitPolicy};

use super::{Bed, PATIENCE};

pub const GET: u8 = 1;
pub const SET: u8 = 2;

pub mod attribute {
    pub const NODE_DESCRIPTION: u16 = 0x10;
    pub const NODE_INFO: u16 = 0x11;
    pub const SWITCH_INFO: u16 = 0x12;
    pub const PORT_INFO: u16 = 0x15;
    pub const P_KEY_TABLE: u16 = 0x16;
    pub const LINEAR_FORWARDING_TABLE: u16 = 0x19;
    pub const SM_INFO: u16 = 0x20;
}

/// An open session with one agent per SMP class.
pub struct Probe {
    pub session: Session,
    by_lid: u32,
    directed: u32,
    next_tid: std::cell::Cell<u32>,
}

impl Probe {
    pub fn open(bed: &Bed, at: &str) -> Self {
        let options = SessionOptions { wait: WaitPolicy::default(), ..SessionOptions::default() };
        let session = Session::open(&bed.paths(), at, &options).unwrap_or_else(|error| panic!("{error}"));
        let agent = |mgmt_class| {
            let spec = AgentSpec { qpn: 0, mgmt_class, class_version: 1, ..AgentSpec::default() };
            session.register(&spec).unwrap()
        };
        let (by_lid, directed) = (agent(1), agent(0x81));
        Self { session, by_lid, directed, next_tid: std::cell::Cell::new(1) }
    }

    /// SMP by LID; the response's status and 64 data bytes, `None` if there is no response.
    pub fn by_lid(
        &self,
        method: u8,
        lid: u16,
        attribute: u16,
        modifier: u32,
        data: &[u8],
    ) -> Option<(u16, [u8; 64])> {
        let mut mad = header(1, method, attribute, modifier, data);
        self.ask(self.by_lid, lid, &mut mad)
    }

    /// SMP along the exits `path`.
    pub fn directed(
        &self,
        method: u8,
        path: &[u8],
        attribute: u16,
        modifier: u32,
        data: &[u8],
    ) -> Option<(u16, [u8; 64])> {
        let mut mad = header(0x81, method, attribute, modifier, data);
        mad[7] = u8::try_from(path.len()).unwrap();
        mad[32..36].fill(0xff);
        mad[129..129 + path.len()].copy_from_slice(path);
        self.ask(self.directed, 0xffff, &mut mad)
    }

    fn ask(&self, agent: u32, dlid: u16, mad: &mut [u8; 256]) -> Option<(u16, [u8; 64])> {
        let tid = self.next_tid.replace(self.next_tid.get() + 1);
        mad[12..16].copy_from_slice(&tid.to_be_bytes());
        let envelope = Envelope { dlid, ..Envelope::default() };
        self.session.send(&Outgoing { agent, envelope, data: mad, timeout_ms: 2000, retries: 2 }).unwrap();
        loop {
            let taken = self.session.recv_with(Some(PATIENCE.max(Duration::from_secs(10))), |incoming| {
                Taken::Done((incoming.status, incoming.data.to_vec()))
            });
            let (status, answer) =
                taken.unwrap_or_else(|error| panic!("no answer and no timeout either: {error}"));
            if answer[12..16] != tid.to_be_bytes() {
                continue;
            }
            if status != 0 {
                return None;
            }
            return Some((
                u16::from_be_bytes([answer[4], answer[5]]) & 0x7fff,
                answer[64..128].try_into().unwrap(),
            ));
        }
    }

    /// GUID of the node that answers at a LID.
    pub fn node_guid(&self, lid: u16) -> Option<u64> {
        let (status, data) = self.by_lid(GET, lid, attribute::NODE_INFO, 0, &[])?;
        assert_eq!(status, 0, "NodeInfo of lid {lid}");
        Some(u64::from_be_bytes(data[12..20].try_into().unwrap()))
    }
}

fn header(class: u8, method: u8, attribute: u16, modifier: u32, data: &[u8]) -> [u8; 256] {
    let mut mad = [0u8; 256];
    mad[..4].copy_from_slice(&[1, class, 1, method]);
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    mad[64..64 + data.len()].copy_from_slice(data);
    mad
}
