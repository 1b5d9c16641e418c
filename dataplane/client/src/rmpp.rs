//! The RMPP state machine: cuts messages into segments, joins segments into messages, for many transfers at once.
//!
//! Owned by one caller, used by one thread at a time. Pure: no I/O and no clock; time is passed in, packets are pulled out
//! with [`Machine::pull`] as fast as the caller has room for them, results with [`Machine::event`].
//!
//! | part | what |
//! |---|---|
//! | `send` | one outgoing message: window, resends, ABORT when nobody answers |
//! | `receive` | one incoming message: reassembly, acknowledgements, duplicates |
//! | `packet` | writing segments, ACK, STOP and ABORT |
//!
//! Invariants: memory is bounded by [`Limits`]; a message is delivered at most once and only whole; every transfer ends
//! by completion, by STOP or ABORT of either side, or by time. Rules, windows and timers are those of the Linux MAD layer
//! (spec/libibumad-abi.md section 5), except that acknowledgements go out every half window, so that a sender does
//! not have to stop, and that a sender who gives up says so (ABORT 126).
//!
//! What it does not do: match responses with requests, and time the wait for a response; it reports
//! [`Event::Acknowledged`] for that.

mod packet;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use madplane_shm::message::{Envelope, MAD_LEN, MadMessage};
use madplane_wire::mad::method::RESPONSE;
use madplane_wire::rmpp::{Rmpp as Header, Segments, VERSION, class_header_len, field, flag, kind, status};
use madplane_wire::{Mad, mad};

use receive::{Inbound, Progress};
use send::{OnAck, Outbound};

/// Bounds of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Segments that a sender may be ahead of the acknowledged one, 1 to 64.
    pub window: u32,
    /// Messages being sent at one time.
    pub sends: usize,
    /// Messages being received at one time, those included that are complete and still acknowledge duplicates.
    pub receives: usize,
    /// Longest message in bytes, either way.
    pub message_bytes: usize,
    /// Bytes of all unfinished messages, for each direction.
    pub buffered_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { window: 64, sends: 256, receives: 256, message_bytes: 32 << 20, buffered_bytes: 128 << 20 }
    }
}

/// Time to wait for an acknowledgement if the request's own timeout is not shorter.
pub const ACK_WAIT_NS: u64 = 2_000_000_000;
/// Time in which a message must have arrived whole.
pub const RECEIVE_NS: u64 = 40_000_000_000;
/// Time for which a complete message's duplicates are acknowledged.
pub const LINGER_NS: u64 = 10_000_000_000;
/// STOP and ABORT packets kept for sending; further ones are dropped, the peer runs into its own timer.
const MAX_REFUSALS: usize = 64;

/// A message to send.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    /// Index of the sending agent, handed back with every packet.
    pub agent: u32,
    /// Address.
    pub envelope: Envelope,
    /// Headers of the class, then all data. The TID is the final one.
    pub message: &'a [u8],
    /// Whether a response is expected: the transfer then stays until [`Machine::forget_send`].
    pub expects_response: bool,
    /// Time to wait for acknowledgements, 0 for the longest; see [`ACK_WAIT_NS`].
    pub timeout_ns: u64,
    /// How often the window is sent again without progress.
    pub retries: u32,
}

/// A message was not accepted for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The class has no RMPP, or the message is shorter than its headers.
    #[error("not a message that RMPP can carry")]
    Shape,
    /// Longer than [`Limits::message_bytes`].
    #[error("message is too long")]
    TooLong,
    /// [`Limits`] are reached.
    #[error("too many transfers")]
    TooMany,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A message has arrived.
    Message {
        /// Receiving agent.
        agent: u32,
        /// Envelope of its first segment.
        envelope: Envelope,
        /// Headers of the first segment, then all data.
        data: Vec<u8>,
    },
    /// Every segment has been acknowledged. Without an expected response the transfer is over.
    Acknowledged {
        /// Number of the transfer.
        send: u32,
    },
    /// A STOP or ABORT ended the transfer.
    Aborted {
        /// Number of the transfer.
        send: u32,
        /// RMPPStatus, the peer's or what we found wrong with the peer.
        status: u8,
    },
    /// Nobody acknowledged; the transfer is over.
    TimedOut {
        /// Number of the transfer.
        send: u32,
        /// Sending agent.
        agent: u32,
        /// Address as given.
        envelope: Envelope,
        /// MAD header as given.
        header: [u8; 24],
    },
}

/// Past events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Data segments sent, repeated ones included.
    pub segments_sent: u64,
    /// Data segments taken in, each once.
    pub segments_received: u64,
    /// Segments seen before.
    pub duplicates: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Times a window was sent again.
    pub resends: u64,
    /// STOP and ABORT packets sent.
    pub aborts_sent: u64,
    /// Transfers ended by a STOP or ABORT of the peer.
    pub aborts_received: u64,
    /// Messages sent and acknowledged.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Packets that belong to no transfer.
    pub strays: u64,
}

/// Identity of a transfer as seen in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    agent: u32,
    tid: u64,
    class: u8,
    method: u8,
}

impl Key {
    fn of(agent: u32, mad: Mad<'_>) -> Self {
        Self { agent, tid: mad.tid(), class: mad.mgmt_class(), method: mad.method() }
    }

    fn answered(self) -> Self {
        Self { method: self.method ^ RESPONSE, ..self }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Machine {
    limits: Limits,
    sends: Vec<Option<Box<Outbound>>>,
    receives: Vec<Option<Box<Inbound>>>,
    send_bytes: usize,
    receive_bytes: usize,
    sends_ready: VecDeque<u32>,
    acks_ready: VecDeque<u32>,
    refusals: VecDeque<(u32, MadMessage)>,
    events: VecDeque<Event>,
    counts: Counts,
}

fn slot<T>(list: &mut Vec<Option<Box<T>>>, limit: usize) -> Option<u32> {
    let free = list.iter().position(Option::is_none).or_else(|| {
        (list.len() < limit).then(|| {
            list.push(None);
            list.len() - 1
        })
    })?;
    u32::try_from(free).ok()
}

fn at<T>(list: &mut [Option<Box<T>>], id: u32) -> Option<&mut T> {
    list.get_mut(id as usize)?.as_deref_mut()
}

fn find<T>(list: &[Option<Box<T>>], wanted: impl Fn(&T) -> bool) -> Option<u32> {
    let place = list.iter().position(|entry| entry.as_deref().is_some_and(&wanted))?;
    u32::try_from(place).ok()
}

impl Machine {
    /// A machine without transfers. A window outside 1 to 64 is moved to the nearer end.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits: Limits { window: limits.window.clamp(1, 64), ..limits },
            sends: Vec::new(),
            receives: Vec::new(),
            send_bytes: 0,
            receive_bytes: 0,
            sends_ready: VecDeque::new(),
            acks_ready: VecDeque::new(),
            refusals: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Past events.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Unfinished sends and receives, completed ones that linger included.
    pub fn transfers(&self) -> (usize, usize) {
        (self.sends.iter().flatten().count(), self.receives.iter().flatten().count())
    }

    /// Starts to send a message; returns the number of the transfer. Its packets come out of [`Machine::pull`].
    ///
    /// # Errors
    /// See [`StartError`]; nothing was kept then.
    pub fn start(&mut self, transfer: &Transfer<'_>) -> Result<u32, StartError> {
        let message = transfer.message;
        let class = *message.get(1).ok_or(StartError::Shape)?;
        let header = class_header_len(class).ok_or(StartError::Shape)?;
        let data_len = message.len().checked_sub(header).ok_or(StartError::Shape)?;
        let plan = Segments::new(class, data_len).ok_or(StartError::TooLong)?;
        if message.len() > self.limits.message_bytes {
            return Err(StartError::TooLong);
        }
        if self.send_bytes + message.len() > self.limits.buffered_bytes {
            return Err(StartError::TooMany);
        }
        let id = slot(&mut self.sends, self.limits.sends).ok_or(StartError::TooMany)?;
        let mut send = Outbound::new(transfer, header, plan);
        let question = send.key().answered();
        let asked = find(&self.receives, |receive| receive.key() == question);
        let window =
            asked.and_then(|id| at(&mut self.receives, id)).map_or(1, |receive| receive.reply_window);
        send.window_last = window.max(1);
        self.send_bytes += message.len();
        self.sends[id as usize] = Some(Box::new(send));
        self.queue_send(id);
        Ok(id)
    }

    fn queue_send(&mut self, id: u32) {
        if let Some(send) = at(&mut self.sends, id)
            && !std::mem::replace(&mut send.queued, true)
        {
            self.sends_ready.push_back(id);
        }
    }

    /// Ends a transfer that waits for its response, or gives one up without telling the peer.
    pub fn forget_send(&mut self, send: u32) {
        if let Some(place) = self.sends.get_mut(send as usize)
            && let Some(send) = place.take()
        {
            self.send_bytes -= send.message_len();
        }
    }

    fn drop_receive(&mut self, id: u32) {
        if let Some(receive) = self.receives.get_mut(id as usize).and_then(Option::take) {
            self.receive_bytes -= receive.buffered();
        }
    }

    /// Forgets messages that have arrived under this TID, so that a response to a repeated request is new.
    pub fn forget_complete(&mut self, agent: u32, tid: u64, class: u8) {
        for place in &mut self.receives {
            // a complete message has no bytes left here
            if place.as_deref().is_some_and(|receive| {
                let key = receive.key();
                receive.is_complete() && key.agent == agent && key.tid == tid && key.class == class
            }) {
                *place = None;
            }
        }
    }

    /// Forgets everything of an agent.
    pub fn forget_agent(&mut self, agent: u32) {
        while let Some(id) = find(&self.sends, |send| send.key().agent == agent) {
            self.forget_send(id);
        }
        while let Some(id) = find(&self.receives, |receive| receive.key().agent == agent) {
            self.drop_receive(id);
        }
        self.refusals.retain(|refusal| refusal.0 != agent);
    }

    /// Takes in a packet of an RMPP class whose Active flag is set.
    pub fn receive(&mut self, agent: u32, packet: &MadMessage, now_ns: u64) {
        let header = Header::new(&packet.mad);
        if field::VERSION.get(&packet.mad) != u64::from(VERSION) {
            self.refuse(agent, packet, status::BAD_VERSION);
            return;
        }
        match header.kind() {
            kind::DATA => self.receive_data(agent, packet, now_ns),
            kind::ACK => self.receive_ack(agent, packet, now_ns),
            kind::STOP => self.receive_end(agent, packet, header.status() == status::RESOURCES),
            kind::ABORT => self.receive_end(agent, packet, header.status() >= status::TOTAL_TIME),
            _ => self.refuse(agent, packet, status::BAD_TYPE),
        }
    }

    /// Answers with ABORT (STOP for a lack of resources) and ends what the packet belongs to, in both directions.
    fn refuse(&mut self, agent: u32, packet: &MadMessage, why: u8) {
        let key = Key::of(agent, Mad::new(&packet.mad));
        if let Some(id) = find(&self.receives, |receive| receive.key() == key && receive.is_from(packet)) {
            self.drop_receive(id);
        }
        if let Some(id) = self.send_answered_by(key, packet) {
            self.forget_send(id);
            self.events.push_back(Event::Aborted { send: id, status: why });
        }
        self.queue_refusal(agent, packet::refusal(packet, why));
    }

    fn queue_refusal(&mut self, agent: u32, packet: MadMessage) {
        if self.refusals.len() < MAX_REFUSALS {
            self.refusals.push_back((agent, packet));
        }
    }

    fn send_answered_by(&self, key: Key, packet: &MadMessage) -> Option<u32> {
        find(&self.sends, |send| send.key() == key.answered() && send.goes_to(packet))
    }

    fn receive_data(&mut self, agent: u32, packet: &MadMessage, now_ns: u64) {
        let header = Header::new(&packet.mad);
        let first = header.flags() & flag::FIRST != 0;
        if header.status() != status::OK {
            self.refuse(agent, packet, status::BAD_STATUS);
            return;
        }
        if first != (header.segment() == 1) || header.segment() == 0 {
            self.refuse(agent, packet, status::BAD_SEGMENT);
            return;
        }
        let key = Key::of(agent, Mad::new(&packet.mad));
        let known = find(&self.receives, |receive| receive.key() == key && receive.is_from(packet));
        let id = match known {
            Some(id) => id,
            None if first => match self.new_receive(key, packet, now_ns) {
                Some(id) => id,
                None => {
                    self.refuse(agent, packet, status::RESOURCES);
                    return;
                }
            },
            None => {
                self.counts.strays += 1;
                return;
            }
        };
        let room = self.limits.buffered_bytes.saturating_sub(self.receive_bytes);
        let (window, most) = (self.limits.window, self.limits.message_bytes);
        let receive = at(&mut self.receives, id).expect("found or made above");
        let before = receive.buffered();
        let progress = receive.take(packet, window, most.min(before + room));
        if progress == Progress::Complete {
            let (envelope, data) = receive.finish(now_ns + LINGER_NS);
            self.events.push_back(Event::Message { agent, envelope, data });
        }
        self.receive_bytes = self.receive_bytes - before + receive.buffered();
        match progress {
            Progress::Took { ack } => {
                self.counts.segments_received += 1;
                if ack {
                    self.queue_ack(id);
                }
            }
            Progress::Seen => {
                self.counts.duplicates += 1;
                self.queue_ack(id);
            }
            Progress::Ignored => self.counts.strays += 1,
            Progress::Complete => {
                self.counts.segments_received += 1;
                self.counts.messages_received += 1;
                self.queue_ack(id);
            }
            Progress::Wrong(why) => self.refuse(agent, packet, why),
        }
    }

    /// A place for a new message; the oldest complete one makes room.
    fn new_receive(&mut self, key: Key, packet: &MadMessage, now_ns: u64) -> Option<u32> {
        let id = slot(&mut self.receives, self.limits.receives).or_else(|| {
            let complete = self.receives.iter().enumerate().filter_map(|(place, receive)| {
                receive.as_deref().filter(|receive| receive.is_complete()).map(|r| (r.deadline_ns, place))
            });
            u32::try_from(complete.min()?.1).ok()
        })?;
        let header = class_header_len(key.class)?;
        self.receives[id as usize] = Some(Box::new(Inbound::new(key, packet, header, now_ns + RECEIVE_NS)));
        Some(id)
    }

    fn queue_ack(&mut self, id: u32) {
        if let Some(receive) = at(&mut self.receives, id)
            && !std::mem::replace(&mut receive.ack_queued, true)
        {
            self.acks_ready.push_back(id);
        }
    }

    fn receive_ack(&mut self, agent: u32, packet: &MadMessage, now_ns: u64) {
        let header = Header::new(&packet.mad);
        let (segment, window_last) = (header.segment(), header.payload_len());
        if header.status() != status::OK {
            self.refuse(agent, packet, status::BAD_STATUS);
            return;
        }
        if window_last < segment {
            self.refuse(agent, packet, status::WINDOW_TOO_SMALL);
            return;
        }
        let key = Key::of(agent, Mad::new(&packet.mad));
        let Some(id) = self.send_answered_by(key, packet) else {
            // the window for our response, from a peer whose request has arrived
            let asked = find(&self.receives, |r| r.key() == key && r.is_from(packet) && r.is_complete());
            match asked.and_then(|id| at(&mut self.receives, id)).filter(|_| segment == 0) {
                Some(receive) => receive.reply_window = window_last,
                None => self.counts.strays += 1,
            }
            return;
        };
        let send = at(&mut self.sends, id).expect("just found");
        match send.acknowledge(segment, window_last, now_ns) {
            OnAck::Old => {}
            OnAck::More => self.queue_send(id),
            OnAck::Complete => {
                self.counts.messages_sent += 1;
                if send.expects_response {
                    self.queue_send(id);
                } else {
                    self.forget_send(id);
                }
                self.events.push_back(Event::Acknowledged { send: id });
            }
            OnAck::Again => self.queue_send(id),
            OnAck::Wrong(why) => self.refuse(agent, packet, why),
        }
    }

    /// A STOP or ABORT, `proper` if its status is one that it may have.
    fn receive_end(&mut self, agent: u32, packet: &MadMessage, proper: bool) {
        if !proper {
            self.refuse(agent, packet, status::BAD_STATUS);
            return;
        }
        let key = Key::of(agent, Mad::new(&packet.mad));
        if let Some(id) = self.send_answered_by(key, packet) {
            self.forget_send(id);
            self.counts.aborts_received += 1;
            self.events.push_back(Event::Aborted { send: id, status: Header::new(&packet.mad).status() });
        } else if let Some(id) =
            find(&self.receives, |r| r.key() == key && r.is_from(packet) && !r.is_complete())
        {
            self.drop_receive(id);
            self.counts.aborts_received += 1;
        } else {
            self.counts.strays += 1;
        }
    }

    /// Deals with timers that are due.
    pub fn expire(&mut self, now_ns: u64) {
        for id in (0..self.sends.len()).filter_map(|id| u32::try_from(id).ok()) {
            let Some(send) = at(&mut self.sends, id) else { continue };
            if send.deadline_ns.is_none_or(|deadline| now_ns < deadline) {
                continue;
            }
            if send.resend() {
                self.counts.resends += 1;
                self.queue_send(id);
                continue;
            }
            let (agent, envelope, header) = (send.key().agent, send.envelope, send.header24());
            let abort = packet::abort_of_sender(send);
            self.forget_send(id);
            self.queue_refusal(agent, abort);
            self.events.push_back(Event::TimedOut { send: id, agent, envelope, header });
        }
        for id in (0..self.receives.len()).filter_map(|id| u32::try_from(id).ok()) {
            let Some(receive) = at(&mut self.receives, id) else { continue };
            if now_ns < receive.deadline_ns {
                continue;
            }
            if !receive.is_complete() {
                let (agent, abort) = (receive.key().agent, receive.too_late());
                self.queue_refusal(agent, abort);
            }
            self.drop_receive(id);
        }
    }

    /// When [`Machine::expire`] has something to do; `None` if never.
    pub fn next_due_ns(&self) -> Option<u64> {
        let sends = self.sends.iter().flatten().filter_map(|send| send.deadline_ns);
        sends.chain(self.receives.iter().flatten().map(|receive| receive.deadline_ns)).min()
    }

    /// Whether nothing is known and nothing is to be sent.
    pub fn is_idle(&self) -> bool {
        !self.has_output()
            && self.sends.iter().all(Option::is_none)
            && self.receives.iter().all(Option::is_none)
    }

    /// Whether [`Machine::pull`] may have a packet.
    pub fn has_output(&self) -> bool {
        !(self.refusals.is_empty() && self.acks_ready.is_empty() && self.sends_ready.is_empty())
    }

    /// Writes the next packet to send into `packet` and returns the agent that sends it; transfers take turns.
    pub fn pull(&mut self, packet: &mut MadMessage, now_ns: u64) -> Option<u32> {
        if let Some((agent, refusal)) = self.refusals.pop_front() {
            self.counts.aborts_sent += 1;
            *packet = refusal;
            return Some(agent);
        }
        while let Some(id) = self.acks_ready.pop_front() {
            let Some(receive) = at(&mut self.receives, id) else { continue };
            if std::mem::take(&mut receive.ack_queued) {
                receive.write_ack(packet);
                self.counts.acks_sent += 1;
                return Some(receive.key().agent);
            }
        }
        while let Some(id) = self.sends_ready.pop_front() {
            let Some(send) = at(&mut self.sends, id) else { continue };
            if !std::mem::take(&mut send.queued) {
                continue;
            }
            let agent = send.key().agent;
            if send.write_turn_around(packet) {
                self.counts.acks_sent += 1;
                return Some(agent);
            }
            if send.write_next(packet, now_ns) {
                self.counts.segments_sent += 1;
                if send.has_next() {
                    self.queue_send(id);
                }
                return Some(agent);
            }
        }
        None
    }

    /// Takes the next result.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Whether a MAD is an RMPP packet: of a class that has RMPP, with its Active flag set.
pub fn is_active(bytes: &[u8; MAD_LEN]) -> bool {
    mad::is_rmpp_class(bytes[1]) && Header::new(bytes).is_active()
}
