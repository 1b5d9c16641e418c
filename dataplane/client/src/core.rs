//! What a session knows: its agents, the requests that wait, and the ring to the plane.
//!
//! Owned by a session and used under its core lock by whichever thread sends or receives. Rules are those of the Linux
//! MAD layer. Invariants: the upper half of the TID of a request is the agent's `hi_tid` before anything else looks at it; a
//! request ends by exactly one of response, timeout, cancellation, abort; a response for which no request waits is dropped.
//! What it does not do: wait, take locks, or make a system call; time is passed in.

use std::collections::VecDeque;

use madplane_shm::message::{Envelope, MAD_LEN, MadMessage, flag, kind};
use madplane_shm::session::SharedProducer;
use madplane_wire::{Mad, MadMut, mad};

use crate::STATUS_TIMED_OUT;
use crate::agents::{Agent, Agents};
use crate::error::SendError;
use crate::rmpp::{self, Event, Limits, Machine, StartError, Transfer};
use crate::traffic::{Outgoing, Stats};
use crate::transactions::{Entry, HEADER_BYTES, Request, TICK_NS, Transactions};

/// Fewest bytes of a MAD that may be sent: MAD header and RMPP header.
const LEAST_BYTES: usize = 36;

/// Something to receive that did not come out of the ring as it is.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) agent: u32,
    pub(crate) status: u32,
    pub(crate) envelope: Envelope,
    pub(crate) body: Body,
}

/// Its bytes.
#[derive(Debug)]
pub(crate) enum Body {
    /// Header of a request that timed out.
    Header([u8; HEADER_BYTES]),
    /// Reassembled message.
    Message(Vec<u8>),
}

impl Body {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Header(header) => header,
            Self::Message(message) => message,
        }
    }
}

/// What became of an item of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is for this agent.
    Deliver(u32),
    /// It was used up here or dropped; deliveries may have been added.
    Consumed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) up: SharedProducer<MadMessage>,
    pub(crate) agents: Agents,
    pub(crate) transactions: Transactions,
    pub(crate) stats: Stats,
    rmpp: Machine,
    out: MadMessage,
    due: Vec<u32>,
}

impl Core {
    pub(crate) fn new(up: SharedProducer<MadMessage>) -> Self {
        Self {
            up,
            agents: Agents::new(),
            transactions: Transactions::new(),
            stats: Stats::default(),
            rmpp: Machine::new(Limits::default()),
            out: MadMessage::default(),
            due: Vec::with_capacity(64),
        }
    }

    /// Sends one MAD; true if a clock is to be started for it soon ([`Core::expire`]).
    ///
    /// On an error nothing was sent and nothing waits.
    pub(crate) fn send(&mut self, outgoing: &Outgoing<'_>) -> Result<bool, SendError> {
        let Outgoing { agent: index, data, .. } = *outgoing;
        let agent = match self.agents.get(index) {
            Some(agent) => agent,
            None if index < 32 => return Err(SendError::UnknownAgent(index)),
            None => return Err(SendError::InvalidAgent(index)),
        };
        if data.len() < LEAST_BYTES {
            return Err(SendError::TooShort(data.len()));
        }
        if agent.rmpp && is_rmpp_message(data) {
            return self.send_message(outgoing, agent);
        }
        if data.len() > MAD_LEN {
            return Err(SendError::TooLong(data.len()));
        }
        self.out.mad[..data.len()].copy_from_slice(data);
        self.out.mad[data.len()..].fill(0);
        self.out.envelope =
            Envelope { kind: kind::MAD, agent: agent.hi_tid, length: 256, ..outgoing.envelope };
        let view = Mad::new(&self.out.mad);
        let (class, is_request) = (view.mgmt_class(), !view.is_response());
        let mut tid = view.tid();
        if is_request {
            tid = u64::from(agent.hi_tid) << 32 | tid & 0xffff_ffff;
            MadMut::new(&mut self.out.mad).set_tid(tid);
        }
        let waits = is_request && outgoing.timeout_ms > 0;
        if is_request && !self.is_raw_segment(agent.rmpp) && self.transactions.find(tid, class).is_some() {
            self.stats.duplicate_tid += 1;
            return Err(SendError::DuplicateTid);
        }
        if waits && !self.transactions.reserve() {
            return Err(SendError::TooManyOutstanding);
        }
        self.up.push(&self.out).map_err(|_| SendError::Full)?;
        self.stats.sent += 1;
        if !waits {
            return Ok(false);
        }
        let timeout_ns = u64::from(outgoing.timeout_ms) * 1_000_000;
        let request = Request {
            agent: index,
            tid,
            class,
            timeout_ns,
            retries: outgoing.retries,
            transfer: None,
            message: &self.out,
        };
        let id = self.transactions.insert(&request).expect("room was reserved");
        self.transactions.start_clock(id);
        Ok(true)
    }

    /// Whether the MAD about to be sent is an RMPP packet of a program that does RMPP itself; such packets share a TID.
    fn is_raw_segment(&self, rmpp_here: bool) -> bool {
        !rmpp_here && rmpp::is_active(&self.out.mad)
    }

    /// Sends a message by RMPP. Its request, if it is one, waits without a clock until everything is acknowledged.
    #[cold]
    fn send_message(&mut self, outgoing: &Outgoing<'_>, agent: Agent) -> Result<bool, SendError> {
        let Outgoing { agent: index, data, .. } = *outgoing;
        self.out.mad.fill(0);
        let shown = data.len().min(MAD_LEN);
        self.out.mad[..shown].copy_from_slice(&data[..shown]);
        self.out.envelope =
            Envelope { kind: kind::MAD, agent: agent.hi_tid, length: 256, ..outgoing.envelope };
        let view = Mad::new(&self.out.mad);
        let (class, is_request) = (view.mgmt_class(), !view.is_response());
        let mut message = std::borrow::Cow::Borrowed(data);
        let mut tid = view.tid();
        if is_request {
            tid = u64::from(agent.hi_tid) << 32 | tid & 0xffff_ffff;
            MadMut::new(&mut self.out.mad).set_tid(tid);
            message.to_mut()[8..16].copy_from_slice(&tid.to_be_bytes());
            if self.transactions.find(tid, class).is_some() {
                self.stats.duplicate_tid += 1;
                return Err(SendError::DuplicateTid);
            }
            self.rmpp.forget_complete(index, tid, class);
        }
        let expects_response = is_request && outgoing.timeout_ms > 0;
        if expects_response && !self.transactions.reserve() {
            return Err(SendError::TooManyOutstanding);
        }
        let timeout_ns = u64::from(outgoing.timeout_ms) * 1_000_000;
        let transfer = Transfer {
            agent: index,
            envelope: self.out.envelope,
            message: &message,
            expects_response,
            timeout_ns,
            retries: outgoing.retries,
        };
        let send = self.rmpp.start(&transfer).map_err(|error| match error {
            StartError::Shape => SendError::TooShort(data.len()),
            StartError::TooLong => SendError::TooLong(data.len()),
            StartError::TooMany => SendError::TooManyOutstanding,
        })?;
        if expects_response {
            let request = Request {
                agent: index,
                tid,
                class,
                timeout_ns,
                retries: outgoing.retries,
                transfer: Some(send),
                message: &self.out,
            };
            self.transactions.insert(&request).expect("room was reserved");
        }
        self.stats.sent += 1;
        self.flush(crate::clock::now_ns());
        Ok(true)
    }

    /// Puts RMPP packets into the ring, as many as fit.
    fn flush(&mut self, now_ns: u64) {
        while self.rmpp.has_output() && self.up.free() > 0 {
            let Some(index) = self.rmpp.pull(&mut self.out, now_ns) else { break };
            let Some(agent) = self.agents.get(index) else { continue };
            self.out.envelope.agent = agent.hi_tid;
            // there is room, as was just seen, and nobody else writes to this ring
            let _ = self.up.push(&self.out);
        }
    }

    fn rmpp_due_ns(&self, now_ns: u64) -> Option<u64> {
        if self.rmpp.has_output() {
            // the ring was full
            return Some(now_ns + TICK_NS);
        }
        self.rmpp.next_due_ns()
    }

    /// Takes in an RMPP packet.
    #[cold]
    fn receive_rmpp(&mut self, index: u32, packet: &MadMessage, pending: &mut VecDeque<Delivery>) {
        let now_ns = crate::clock::now_ns();
        self.rmpp.receive(index, packet, now_ns);
        self.handle_events(pending);
        self.flush(now_ns);
    }

    fn handle_events(&mut self, pending: &mut VecDeque<Delivery>) {
        while let Some(event) = self.rmpp.event() {
            match event {
                Event::Message { agent, envelope, data } => {
                    self.deliver_message(agent, envelope, data, pending)
                }
                Event::Acknowledged { send } => {
                    if let Some(id) = self.transactions.by_transfer(send) {
                        self.transactions.start_clock(id);
                    }
                }
                Event::Aborted { send, .. } => {
                    if let Some(id) = self.transactions.by_transfer(send) {
                        self.transactions.remove(id);
                    }
                }
                Event::TimedOut { send, agent, envelope, header } => {
                    if let Some(id) = self.transactions.by_transfer(send) {
                        self.transactions.remove(id);
                    }
                    self.stats.timed_out += 1;
                    let body = Body::Header(header);
                    pending.push_back(Delivery { agent, status: STATUS_TIMED_OUT, envelope, body });
                }
            }
        }
    }

    fn deliver_message(
        &mut self,
        agent: u32,
        envelope: Envelope,
        data: Vec<u8>,
        pending: &mut VecDeque<Delivery>,
    ) {
        let headers: &[u8; 24] = data.first_chunk().expect("a message has its headers");
        let (class, is_response) = (headers[1], headers[3] & 0x80 != 0);
        let tid = headers[8..16].iter().fold(0u64, |tid, byte| tid << 8 | u64::from(*byte));
        if is_response && !self.finish_request(agent, tid, class, &envelope) {
            self.stats.dropped_unmatched += 1;
            return;
        }
        self.stats.received += 1;
        pending.push_back(Delivery { agent, status: 0, envelope, body: Body::Message(data) });
    }

    /// Ends the request that a response belongs to; false if none waits.
    fn finish_request(&mut self, index: u32, tid: u64, class: u8, received: &Envelope) -> bool {
        let waiting = self
            .transactions
            .find_where(tid, class, |entry| entry.agent == index && same_address(entry, class, received));
        let Some(id) = waiting else { return false };
        if let Some(send) = self.transactions.get(id).and_then(|entry| entry.transfer) {
            self.rmpp.forget_send(send);
        }
        self.transactions.remove(id);
        true
    }

    /// Decides about one item of the ring.
    pub(crate) fn classify(&mut self, message: &MadMessage, pending: &mut VecDeque<Delivery>) -> Verdict {
        if message.envelope.kind != kind::MAD {
            self.stats.dropped_foreign += 1;
            return Verdict::Consumed;
        }
        let Some((index, agent)) = self.agents.by_hi_tid(message.envelope.agent) else {
            self.stats.dropped_no_agent += 1;
            return Verdict::Consumed;
        };
        let view = Mad::new(&message.mad);
        let active_rmpp = rmpp::is_active(&message.mad);
        if agent.rmpp && active_rmpp {
            self.receive_rmpp(index, message, pending);
            return Verdict::Consumed;
        }
        if view.is_response()
            && !self.finish_request(index, view.tid(), view.mgmt_class(), &message.envelope)
            && !active_rmpp
        {
            self.stats.dropped_unmatched += 1;
            return Verdict::Consumed;
        }
        self.stats.received += 1;
        Verdict::Deliver(index)
    }

    /// Starts the clocks of new requests; resends or gives up what is due.
    pub(crate) fn expire(&mut self, now_ns: u64, pending: &mut VecDeque<Delivery>) {
        let mut due = std::mem::take(&mut self.due);
        self.transactions.collect_due(now_ns, &mut due);
        for id in due.drain(..) {
            self.expire_one(id, now_ns, pending);
        }
        self.due = due;
        self.rmpp.expire(now_ns);
        self.handle_events(pending);
        self.flush(now_ns);
        // a resent request, or a transfer just acknowledged
        self.transactions.stamp(now_ns);
    }

    fn expire_one(&mut self, id: u32, now_ns: u64, pending: &mut VecDeque<Delivery>) {
        let Some(entry) = self.transactions.get(id) else { return };
        if entry.retries_left > 0 && self.up.free() == 0 {
            self.transactions.set_deadline(id, now_ns, now_ns + TICK_NS);
            return;
        }
        if let Some(message) = self.transactions.retry(id) {
            // there is room, as was just seen, and nobody else writes to this ring
            let _ = self.up.push(message);
            self.stats.resent += 1;
            self.transactions.start_clock(id);
            return;
        }
        let transfer = self.transactions.get(id).and_then(|entry| entry.transfer);
        if transfer.is_some() && self.transactions.wait_again(id) {
            self.transactions.start_clock(id);
            return;
        }
        if let Some(send) = transfer {
            self.rmpp.forget_send(send);
        }
        self.give_up(id, pending);
    }

    /// The request ends without a response: its header goes back to the program.
    fn give_up(&mut self, id: u32, pending: &mut VecDeque<Delivery>) {
        let Some(entry) = self.transactions.get(id) else { return };
        pending.push_back(Delivery {
            agent: entry.agent,
            status: STATUS_TIMED_OUT,
            envelope: entry.envelope,
            body: Body::Header(entry.header),
        });
        self.stats.timed_out += 1;
        self.transactions.remove(id);
    }

    /// When [`Core::expire`] has something to do; `None` if never.
    pub(crate) fn next_due_ns(&self, now_ns: u64) -> Option<u64> {
        let rmpp = if self.rmpp.is_idle() { None } else { self.rmpp_due_ns(now_ns) };
        self.transactions.next_due_ns().into_iter().chain(rmpp).min()
    }

    /// Forgets an agent: its requests vanish without a report.
    pub(crate) fn forget_agent(&mut self, index: u32) {
        self.agents.set(index, None);
        self.transactions.cancel_agent(index);
        self.rmpp.forget_agent(index);
    }

    /// Past events of RMPP.
    pub(crate) fn rmpp_counts(&self) -> rmpp::Counts {
        self.rmpp.counts()
    }

    /// Whether no RMPP transfer is known.
    pub(crate) fn rmpp_is_idle(&self) -> bool {
        self.rmpp.is_idle()
    }
}

/// Whether what a program sends is to be cut into segments: a class with RMPP and the Active flag.
///
/// Version and type of the header do not matter: OpenSM leaves both 0, and the kernel writes them itself.
fn is_rmpp_message(data: &[u8]) -> bool {
    mad::is_rmpp_class(data[1]) && data[26] & 1 != 0
}

/// The kernel's comparison of addresses: none for directed routes; otherwise both with or both without a GRH, and the
/// response came to a path that the request may have come from. The plane cut the path bits that were asked for to the
/// port's LMC, hence "no other bits".
fn same_address(entry: &Entry, class: u8, received: &Envelope) -> bool {
    class == mad::CLASS_SUBN_DIRECTED
        || ((entry.envelope.flags ^ received.flags) & flag::GRH == 0
            && (received.flags & flag::GRH != 0 || received.path_bits & !entry.envelope.path_bits == 0))
}
