//! Sessions that keep requests of several kinds on their way, on one thread, and check every answer.
//!
//! Answers may come in any order: each is found by the number in its transaction ID. Whatever a session sends, its answer
//! must have the right agent, status, method and attribute, and eight bytes of content that were learnt, or known, before.

use madplane_client::{AgentSpec, Envelope, MadMessage, RawReceiver, RawSender, RawSession, kind};
use madplane_wire::mad::{GSI_Q_KEY, class, method, status};
use madplane_wire::smp::attr;
use madplane_wire::{Mad, MadMut, SmpMut, pma};

use crate::by_lid::Patience;
use crate::error::BenchError;
use crate::fabrics::Route;
use crate::harness::Pace;
use crate::plane::Plane;
use crate::stint::Stint;
use crate::subnet::Data;

/// Slots of a session's rings.
const SLOTS: u32 = 512;
/// Numbers among which those on their way are told apart.
const NUMBERS: usize = 4096;
/// Where the attribute of all classes asked here begins.
const DATA: usize = 64;

/// Which agent of a session asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Agent {
    Directed,
    ByLid,
    Perf,
}

/// A request and what its answer must be.
#[derive(Debug, Clone)]
pub struct Ask {
    message: MadMessage,
    agent: Agent,
    /// Place of eight bytes of the answer, and the bytes.
    at: usize,
    expected: [u8; 8],
}

impl Ask {
    fn new(agent: Agent, dlid: u16, at: usize) -> Self {
        let (slid, dst_qp, q_key) = match agent {
            Agent::Directed => (0xFFFF, 0, 0),
            Agent::ByLid => (0, 0, 0),
            Agent::Perf => (0, 1, GSI_Q_KEY),
        };
        let envelope =
            Envelope { kind: kind::MAD, slid, dlid, dst_qp, q_key, length: 256, ..Envelope::default() };
        let message = MadMessage { envelope, ..MadMessage::default() };
        Self { message, agent, at, expected: [0; 8] }
    }

    /// Get(NodeInfo) along a directed route.
    pub fn node_info(route: &Route) -> Self {
        let mut ask = Self::new(Agent::Directed, 0xFFFF, DATA + 4);
        SmpMut::new(&mut ask.message.mad).init_directed(method::GET, attr::NODE_INFO, 0, 0, &route.ports);
        ask.expected = route.node_guid.to_be_bytes();
        ask
    }

    /// Get(NodeInfo) by LID from the node with this GUID.
    pub fn node_info_by_lid(lid: u16, guid: u64) -> Self {
        let mut ask = Self::new(Agent::ByLid, lid, DATA + 4);
        SmpMut::new(&mut ask.message.mad).init_lid_routed(method::GET, attr::NODE_INFO, 0, 0);
        ask.expected = guid.to_be_bytes();
        ask
    }

    /// Get(ClassPortInfo) of the performance agent with this LID; its content is learnt.
    pub fn perf(lid: u16) -> Self {
        let mut ask = Self::new(Agent::Perf, lid, DATA);
        let mut view = MadMut::new(&mut ask.message.mad);
        view.set_base_version(1);
        view.set_mgmt_class(class::PERF);
        view.set_class_version(1);
        view.set_method(method::GET);
        view.set_attr_id(pma::attr::CLASS_PORT_INFO);
        ask
    }

    /// PortInfo along a directed route, Get, or Set to `data`; LIDs and capabilities of the answer are learnt.
    pub fn port_info(path: &[u8], set: Option<&Data>) -> Self {
        let mut ask = Self::new(Agent::Directed, 0xFFFF, DATA + 16);
        let method = if set.is_some() { method::SET } else { method::GET };
        SmpMut::new(&mut ask.message.mad).init_directed(method, attr::PORT_INFO, 0, 0, path);
        if let Some(data) = set {
            ask.message.mad[DATA..DATA + data.len()].copy_from_slice(data);
        }
        ask
    }

    /// Whether `answer` is right as far as it can be told without its number.
    #[inline]
    fn is_answered(&self, answer: &MadMessage) -> bool {
        let view = Mad::new(&answer.mad);
        view.method() == method::GET_RESP
            && view.status() & 0x7FFF == status::OK
            && view.attr_id() == Mad::new(&self.message.mad).attr_id()
            && answer.mad[self.at..self.at + 8] == self.expected
    }
}

/// One session.
#[derive(Debug)]
pub struct Flow {
    sender: RawSender,
    receiver: RawReceiver,
    agents: [u32; 3],
    /// By number: 1 more than the number that is on its way, or 0.
    waiting: Box<[u32; NUMBERS]>,
    next: u32,
    in_flight: u32,
    answer: MadMessage,
}

impl Flow {
    /// Attaches where the plane says and registers an agent for each class.
    ///
    /// # Errors
    /// [`BenchError::Attach`].
    pub fn attach(plane: &Plane) -> Result<Self, BenchError> {
        let mut session = RawSession::open(plane.paths(), "", SLOTS)
            .map_err(|error| BenchError::Attach(error.to_string()))?;
        let mut register = |qpn: u8, mgmt_class: u8| {
            let spec = AgentSpec { qpn, mgmt_class, class_version: 1, ..AgentSpec::default() };
            session.register(&spec).map_err(|error| BenchError::Attach(error.to_string()))
        };
        let agents =
            [register(0, class::SUBN_DIRECTED)?, register(0, class::SUBN_LID)?, register(1, class::PERF)?];
        let (sender, receiver) = session.split();
        let answer = MadMessage::default();
        Ok(Self { sender, receiver, agents, waiting: Box::new([0; NUMBERS]), next: 0, in_flight: 0, answer })
    }

    /// Sends in turns from `asks` until `depth` are on their way; the number sent.
    #[inline]
    fn fill(&mut self, asks: &mut [Ask], depth: u32) -> u32 {
        let mut given = 0;
        while self.in_flight < depth {
            let place = &mut self.waiting[self.next as usize % NUMBERS];
            let ask = &mut asks[self.next as usize % asks.len()];
            ask.message.envelope.agent = self.agents[ask.agent as usize];
            MadMut::new(&mut ask.message.mad).set_tid(u64::from(self.next));
            // one that was overtaken by all the others, or a full ring: later
            if *place != 0 || self.sender.push(&ask.message).is_err() {
                break;
            }
            *place = self.next.wrapping_add(1);
            self.next = self.next.wrapping_add(1);
            self.in_flight += 1;
            given += 1;
        }
        if given > 0 {
            self.sender.flush();
        }
        given
    }

    /// Takes and checks what has come; the number of answers.
    ///
    /// # Errors
    /// [`BenchError::Wrong`].
    #[inline]
    fn drain(&mut self, asks: &[Ask]) -> Result<u32, BenchError> {
        let mut done = 0;
        while self.receiver.try_recv(&mut self.answer) {
            let tid = Mad::new(&self.answer.mad).tid();
            let number = u32::try_from(tid & 0xFFFF_FFFF).unwrap_or(0);
            let ask = &asks[number as usize % asks.len()];
            let agent = self.agents[ask.agent as usize];
            let place = &mut self.waiting[number as usize % NUMBERS];
            let was_sent = *place == number.wrapping_add(1) && *place != 0;
            if !was_sent
                || tid >> 32 != u64::from(agent)
                || self.answer.envelope.agent != agent
                || !ask.is_answered(&self.answer)
            {
                return Err(self.complaint(number));
            }
            *place = 0;
            self.in_flight -= 1;
            done += 1;
        }
        Ok(done)
    }

    #[cold]
    fn complaint(&self, number: u32) -> BenchError {
        let view = Mad::new(&self.answer.mad);
        BenchError::Wrong(format!(
            "request {number}: class {:#x} method {:#x} attribute {:#x} status {:#x} tid {:#x}",
            view.mgmt_class(),
            view.method(),
            view.attr_id(),
            view.status(),
            view.tid()
        ))
    }

    /// Asks once; learns the content that later answers must have unless it was known. Returns the attribute's data.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] or [`BenchError::Silence`].
    pub fn learn(&mut self, ask: &mut Ask) -> Result<Data, BenchError> {
        let known = ask.expected != [0; 8];
        self.fill(std::slice::from_mut(ask), 1);
        let mut patience = Patience::default();
        let mut answer = MadMessage::default();
        while !self.receiver.try_recv(&mut answer) {
            patience.look()?;
        }
        self.waiting.fill(0);
        self.in_flight = 0;
        if !known {
            ask.expected.copy_from_slice(&answer.mad[ask.at..ask.at + 8]);
        }
        if !ask.is_answered(&answer) || ask.expected == [0; 8] {
            self.answer = answer;
            return Err(self.complaint(self.next.wrapping_sub(1)));
        }
        let mut data = [0; 64];
        data.copy_from_slice(&answer.mad[DATA..DATA + 64]);
        Ok(data)
    }
}

/// Keeps `depth` requests of each session on their way, those of a session in turns from `asks`.
///
/// # Errors
/// [`BenchError::Wrong`] or [`BenchError::Silence`].
pub fn stream(flows: &mut [Flow], asks: &mut [Ask], depth: u32, stint: Stint) -> Result<Pace, BenchError> {
    let mut pace = Pace::new();
    let mut running = stint.begin();
    let mut patience = Patience::default();
    let mut goes_on = true;
    pace.start();
    while goes_on || flows.iter().any(|flow| flow.in_flight > 0) {
        let mut done = 0;
        for flow in &mut *flows {
            if goes_on {
                flow.fill(asks, depth);
            }
            done += flow.drain(asks)?;
        }
        if done == 0 {
            patience.look()?;
        } else {
            patience = Patience::default();
            if goes_on {
                pace.done(done);
                goes_on = running.goes_on(done);
            }
        }
    }
    Ok(pace)
}
