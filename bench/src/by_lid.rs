//! Clients that ask by LID: on a shard directly, or through the raw client of a running plane.
//!
//! [`LidQuery`] is a request and what its answer must be; [`EngineClient`] and [`PlaneClient`] bring up the subnet and ask.
//! Every answer is checked. Used by one thread.

use std::time::{Duration, Instant};

use madplane_client::{
    AgentSpec, Envelope, MadMessage, PlanePaths, RawReceiver, RawSender, RawSession, kind,
};
use madplane_engine::{FabricOptions, FabricPlan, NodeId, Packet, PeerEvent, Shard, Sink};
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{GSI_Q_KEY, class, method, status};
use madplane_wire::pma;
use madplane_wire::smp::attr;
use madplane_wire::{Mad, MadMut, Smp, SmpMut};

use crate::error::BenchError;
use crate::fabrics::Fabric;
use crate::subnet::{Asks, Data, Subnet};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Looks at an empty ring between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 1 << 14;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// NodeInfo by LID.
    Smp,
    /// ClassPortInfo of the performance agent.
    Gmp,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Smp, Self::Gmp];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smp => "SMP",
            Self::Gmp => "GMP",
        }
    }

    /// The MAD.
    fn write(self, bytes: &mut [u8; 256]) {
        match self {
            Self::Smp => SmpMut::new(bytes).init_lid_routed(method::GET, attr::NODE_INFO, 0, 0),
            Self::Gmp => {
                let mut view = MadMut::new(bytes);
                view.set_base_version(1);
                view.set_mgmt_class(class::PERF);
                view.set_class_version(1);
                view.set_method(method::GET);
                view.set_attr_id(pma::attr::CLASS_PORT_INFO);
            }
        }
    }

    /// Destination queue pair and Q_Key.
    fn queue(self) -> (u32, u32) {
        match self {
            Self::Smp => (0, 0),
            Self::Gmp => (1, GSI_Q_KEY),
        }
    }

    /// Whether these bytes are the answer of `node` of the fabric.
    fn is_answer(self, bytes: &[u8; 256], guid: u64) -> bool {
        let view = Mad::new(bytes);
        if view.method() != method::GET_RESP || view.status() != status::OK {
            return false;
        }
        match self {
            Self::Smp => guid_of(bytes) == guid,
            Self::Gmp => view.mgmt_class() == class::PERF,
        }
    }
}

fn guid_of(bytes: &[u8; 256]) -> u64 {
    let mut guid = [0; 8];
    guid.copy_from_slice(&Smp::new(bytes).data()[4..12]);
    u64::from_be_bytes(guid)
}

/// A shard and the client of its first adapter, on the caller's thread.
#[derive(Debug)]
pub struct EngineClient {
    /// The whole fabric.
    pub shard: Shard,
    host: NodeId,
    sink: Answers,
}

#[derive(Debug, Default)]
struct Answers {
    delivered: u64,
    dropped: u64,
    last: Option<Box<Packet>>,
    keeps: bool,
}

impl Sink for Answers {
    fn deliver(&mut self, _: NodeId, _: u8, pkt: &Packet) -> bool {
        self.delivered += 1;
        if self.keeps {
            self.last = Some(Box::new(pkt.clone()));
        }
        true
    }
    fn to_shard(&mut self, _: usize, _: NodeId, _: u8, _: &Packet) {}
    fn peer_event(&mut self, _: usize, _: PeerEvent) {}
    fn dropped(&mut self, _: NodeId, _: DropReason) {
        self.dropped += 1;
    }
}

impl EngineClient {
    /// Builds a shard of the whole fabric.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for a fabric that cannot be built.
    pub fn build(fabric: &Fabric) -> Result<Self, BenchError> {
        let plan = FabricPlan::new(&fabric.topology, &FabricOptions::default())
            .map_err(|error| BenchError::Usage(error.to_string()))?;
        let shard = plan.build_shard(&fabric.topology, 0);
        Ok(Self { shard, host: fabric.host, sink: Answers::default() })
    }

    /// A packet that asks the node with this LID.
    pub fn request(kind: Kind, dlid: u16) -> Packet {
        let (dst_qp, q_key) = kind.queue();
        let mut pkt = Packet { dlid, dst_qp, src_qp: dst_qp, q_key, ..Packet::default() };
        kind.write(&mut pkt.mad);
        pkt
    }

    /// A packet along a directed route with this method, attribute and modifier.
    pub fn directed(path: &[u8], method: u8, attribute: u16, modifier: u32, data: &Data) -> Packet {
        let mut pkt = Packet::default();
        write_directed(&mut pkt.mad, path, method, attribute, modifier, data);
        pkt
    }

    /// Sends `request`; the answer, if there is one.
    pub fn exchange(&mut self, request: &Packet) -> Option<Box<Packet>> {
        self.sink.keeps = true;
        let mut pkt = request.clone();
        self.shard.send(0, self.host, 1, &mut pkt, &mut self.sink);
        self.sink.keeps = false;
        self.sink.last.take()
    }

    /// Checks that the node `guid` answers.
    ///
    /// # Errors
    /// [`BenchError::Wrong`].
    pub fn check(&mut self, kind: Kind, request: &Packet, guid: u64) -> Result<(), BenchError> {
        match self.exchange(request) {
            Some(answer) if kind.is_answer(&answer.mad, guid) => Ok(()),
            answer => Err(BenchError::Wrong(format!(
                "{} to LID {} answered by {:?}",
                kind.name(),
                request.dlid,
                answer.map(|a| guid_of(&a.mad))
            ))),
        }
    }

    /// Sends `rounds` requests, one after the other from the list and again from its start, and counts the answers.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] if one got lost.
    pub fn stream(
        &mut self,
        requests: &[Packet],
        rounds: u32,
        before_each: impl Fn(&mut Shard),
    ) -> Result<(), BenchError> {
        let seen = self.pass(requests, rounds, before_each);
        if seen != (u64::from(rounds), 0) {
            return Err(BenchError::Wrong(format!(
                "{rounds} asked, {} answered, {} dropped",
                seen.0, seen.1
            )));
        }
        Ok(())
    }

    /// Sends requests like [`EngineClient::stream`]; how many were answered and how many dropped.
    #[inline]
    pub fn pass(&mut self, requests: &[Packet], rounds: u32, before_each: impl Fn(&mut Shard)) -> (u64, u64) {
        let (delivered, dropped) = (self.sink.delivered, self.sink.dropped);
        let mut pkt = Packet::default();
        for (now, request) in (0..u64::from(rounds)).zip(requests.iter().cycle()) {
            pkt.clone_from(request);
            before_each(&mut self.shard);
            self.shard.send(now, self.host, 1, std::hint::black_box(&mut pkt), &mut self.sink);
        }
        (self.sink.delivered - delivered, self.sink.dropped - dropped)
    }
}

impl Asks for EngineClient {
    fn ask(
        &mut self,
        path: &[u8],
        method: u8,
        attribute: u16,
        modifier: u32,
        data: &Data,
    ) -> Result<Data, BenchError> {
        let answer = self.exchange(&Self::directed(path, method, attribute, modifier, data));
        data_of(answer.as_ref().map(|pkt| &pkt.mad), path, attribute)
    }
}

fn write_directed(
    bytes: &mut [u8; 256],
    path: &[u8],
    method: u8,
    attribute: u16,
    modifier: u32,
    data: &Data,
) {
    SmpMut::new(bytes).init_directed(method, attribute, modifier, 1, path);
    bytes[64..128].copy_from_slice(data);
}

fn data_of(answer: Option<&[u8; 256]>, path: &[u8], attribute: u16) -> Result<Data, BenchError> {
    let Some(bytes) = answer else {
        return Err(BenchError::Wrong(format!("attribute {attribute:#x} at {path:?} got no answer")));
    };
    let view = Smp::new(bytes);
    if view.mad().method() != method::GET_RESP || view.status() != status::OK {
        let status = view.status();
        return Err(BenchError::Wrong(format!("attribute {attribute:#x} at {path:?}: status {status:#x}")));
    }
    Ok(*view.data())
}

/// A raw session of a running plane with an agent for each of the classes that are asked.
#[derive(Debug)]
pub struct PlaneClient {
    sender: RawSender,
    receiver: RawReceiver,
    directed: u32,
    by_lid: u32,
    perf: u32,
    number: u32,
    answer: MadMessage,
}

/// A request by LID through a [`PlaneClient`].
#[derive(Debug, Clone)]
pub struct LidQuery {
    message: MadMessage,
    kind: Kind,
    guid: u64,
}

impl PlaneClient {
    /// Attaches at `selector`; `slots` is a power of two or 0 for the plane's default.
    ///
    /// # Errors
    /// [`BenchError::Attach`].
    pub fn attach(paths: &PlanePaths, selector: &str, slots: u32) -> Result<Self, BenchError> {
        let session = RawSession::open(paths, selector, slots)
            .map_err(|error| BenchError::Attach(error.to_string()))?;
        Self::over(session)
    }

    /// Registers the agents on an attached session.
    ///
    /// # Errors
    /// [`BenchError::Attach`].
    pub fn over(mut session: RawSession) -> Result<Self, BenchError> {
        let mut register = |qpn: u8, mgmt_class: u8| {
            let spec = AgentSpec { qpn, mgmt_class, class_version: 1, ..AgentSpec::default() };
            session.register(&spec).map_err(|error| BenchError::Attach(error.to_string()))
        };
        let directed = register(0, class::SUBN_DIRECTED)?;
        let by_lid = register(0, class::SUBN_LID)?;
        let perf = register(1, class::PERF)?;
        let (sender, receiver) = session.split();
        Ok(Self { sender, receiver, directed, by_lid, perf, number: 0, answer: MadMessage::default() })
    }

    /// A request to the node with this LID and GUID.
    pub fn query(&self, kind: Kind, dlid: u16, guid: u64) -> LidQuery {
        let agent = match kind {
            Kind::Smp => self.by_lid,
            Kind::Gmp => self.perf,
        };
        let (dst_qp, q_key) = kind.queue();
        let envelope =
            Envelope { kind: kind::MAD, agent, dlid, dst_qp, q_key, length: 256, ..Envelope::default() };
        let mut message = MadMessage { envelope, ..MadMessage::default() };
        kind.write(&mut message.mad);
        LidQuery { message, kind, guid }
    }

    /// Puts a request into the ring; false if there is no room. The answers come in the order of the requests.
    #[inline]
    pub fn push(&mut self, query: &LidQuery) -> bool {
        self.sender.push(&query.message).is_ok()
    }

    /// Wakes the plane if it sleeps. Call after a burst.
    #[inline]
    pub fn flush(&mut self) {
        self.sender.flush();
    }

    /// Takes an answer if there is one, and checks it.
    ///
    /// # Errors
    /// [`BenchError::Wrong`].
    #[inline]
    pub fn take(&mut self, query: &LidQuery) -> Result<bool, BenchError> {
        if !self.receiver.try_recv(&mut self.answer) {
            return Ok(false);
        }
        let right = query.kind.is_answer(&self.answer.mad, query.guid)
            && self.answer.envelope.agent == query.message.envelope.agent;
        if right { Ok(true) } else { Err(wrong(query, &self.answer)) }
    }

    /// Asks once and waits, spinning, for the answer.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] or [`BenchError::Silence`].
    #[inline]
    pub fn ask_one(&mut self, query: &LidQuery) -> Result<(), BenchError> {
        if !self.push(query) {
            return Err(BenchError::Wrong("an empty ring is full".to_owned()));
        }
        self.flush();
        let mut patience = Patience::default();
        while !self.take(query)? {
            patience.look()?;
        }
        Ok(())
    }
}

#[cold]
fn wrong(query: &LidQuery, answer: &MadMessage) -> BenchError {
    let view = Mad::new(&answer.mad);
    BenchError::Wrong(format!(
        "{} to LID {}: method {:#x} status {:#x} agent {:#x}",
        query.kind.name(),
        query.message.envelope.dlid,
        view.method(),
        view.status(),
        answer.envelope.agent
    ))
}

impl Asks for PlaneClient {
    fn ask(
        &mut self,
        path: &[u8],
        method: u8,
        attribute: u16,
        modifier: u32,
        data: &Data,
    ) -> Result<Data, BenchError> {
        let envelope = Envelope {
            kind: kind::MAD,
            agent: self.directed,
            slid: 0xFFFF,
            dlid: 0xFFFF,
            length: 256,
            ..Envelope::default()
        };
        let mut message = MadMessage { envelope, ..MadMessage::default() };
        write_directed(&mut message.mad, path, method, attribute, modifier, data);
        self.number += 1;
        MadMut::new(&mut message.mad).set_tid(u64::from(self.number));
        self.sender.send(&message).map_err(|_| BenchError::Wrong("an empty ring is full".to_owned()))?;
        let mut patience = Patience::default();
        while !self.receiver.try_recv(&mut self.answer) {
            patience.look()?;
        }
        data_of(Some(&self.answer.mad), path, attribute)
    }
}

/// Spins, and gives up in the end.
#[derive(Debug, Default)]
pub struct Patience {
    looks: u32,
    since: Option<Instant>,
}

impl Patience {
    /// Call each time that there is nothing.
    ///
    /// # Errors
    /// [`BenchError::Silence`].
    #[inline]
    pub fn look(&mut self) -> Result<(), BenchError> {
        std::hint::spin_loop();
        self.looks += 1;
        if self.looks < LOOKS_PER_CLOCK {
            return Ok(());
        }
        self.looks = 0;
        if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(BenchError::Silence(PATIENCE.as_secs()));
        }
        Ok(())
    }
}

impl Subnet {
    /// GUID of a node.
    pub fn guid(fabric: &Fabric, node: u32) -> u64 {
        fabric.topology.nodes[node as usize].guid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_answers_by_lid_once_the_subnet_is_up() {
        let fabric = Fabric::from_spec("builtin:fat-tree,radix=4,levels=3").unwrap();
        let subnet = Subnet::draw(&fabric);
        let mut client = EngineClient::build(&fabric).unwrap();
        subnet.bring_up(&fabric, &mut client).unwrap();
        for hops in [1, 2, 3, 4, 5, 6] {
            assert!(subnet.at_distance(hops).count() > 0, "{hops}");
            for node in subnet.at_distance(hops) {
                for kind in Kind::ALL {
                    let request = EngineClient::request(kind, Subnet::lid(node));
                    client.check(kind, &request, Subnet::guid(&fabric, node)).unwrap();
                    client.stream(&[request], 3, |_| ()).unwrap();
                }
            }
        }
        let nobody = EngineClient::request(Kind::Smp, 0x4000);
        assert!(client.check(Kind::Smp, &nobody, 1).is_err() && client.stream(&[nobody], 1, |_| ()).is_err());
    }
}
