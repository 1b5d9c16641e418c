//! Clients that load a plane over the bare rings and check every answer.
//!
//! [`RingClient`] is the least that the shared-memory contract allows: no transactions, no timeouts, no locks. It is what
//! the budget calls the raw client API. A measuring loop reads the clock once per MAD or less, allocates nothing and makes no
//! system call while answers come. Used by one thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use madplane_client::{Envelope, MadMessage, PlanePaths, kind};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{Connection, Request, op};
use madplane_shm::session::{ClientEnds, PairFds, SharedConsumer, SharedProducer, open_pair};
use madplane_wire::smp::attr;
use madplane_wire::{Mad, MadMut, Smp, SmpMut, mad};

use crate::error::BenchError;
use crate::fabrics::Route;
use crate::harness::{Distribution, Pace};

/// Seconds without an answer after which a measurement fails.
const PATIENCE_S: u64 = 10;
/// Looks at an empty ring between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 1 << 16;

/// A session used through its rings.
#[derive(Debug)]
pub struct RingClient {
    connection: Connection,
    up: SharedProducer<MadMessage>,
    down: SharedConsumer<MadMessage>,
    up_bell: Doorbell,
    down_bell: Doorbell,
    hi_tid: u32,
    /// System calls made for sending and waiting.
    calls: u64,
}

impl RingClient {
    /// Attaches to a plane at `selector` and registers for directed routes.
    ///
    /// # Errors
    /// [`BenchError::Attach`].
    pub fn attach(paths: &PlanePaths, selector: &str, slots: u32) -> Result<Self, BenchError> {
        let refuse = |error: &dyn std::fmt::Display| BenchError::Attach(error.to_string());
        let connection =
            Connection::open(&paths.attach_socket(), paths.name()).map_err(|error| refuse(&error))?;
        let mut request = Request::with_selector(op::ATTACH, selector)
            .ok_or_else(|| BenchError::Attach("selector too long".to_owned()))?;
        request.value = slots;
        let (_, fds) = connection.call(&request).map_err(|error| refuse(&error))?;
        let [up, down, up_bell, down_bell] = <[_; 4]>::try_from(fds)
            .map_err(|_| BenchError::Attach("the plane did not send four descriptors".to_owned()))?;
        let ClientEnds { up, down } = open_pair(&PairFds { up, down }).map_err(|error| refuse(&error))?;
        let (up_bell, down_bell) = (Doorbell::from_fd(up_bell), Doorbell::from_fd(down_bell));
        let mut made = Self { connection, up, down, up_bell, down_bell, hi_tid: 0, calls: 0 };
        made.hi_tid = made.register(mad::CLASS_SUBN_DIRECTED)?;
        Ok(made)
    }

    /// Registers for a class of QP0; gives the upper half of its TIDs.
    ///
    /// # Errors
    /// [`BenchError::Attach`].
    pub fn register(&self, mgmt_class: u8) -> Result<u32, BenchError> {
        let register =
            Request { op: op::REGISTER, qpn: 0, mgmt_class, class_version: 1, ..Request::default() };
        let registered = self.connection.call(&register);
        let (reply, _) = registered.map_err(|error| BenchError::Attach(error.to_string()))?;
        Ok(reply.value)
    }

    /// Puts a MAD into the ring; false if there is no room.
    #[inline]
    pub fn send(&mut self, message: &MadMessage) -> bool {
        self.up.push(message).is_ok()
    }

    /// Wakes the plane if it sleeps. Call after a burst.
    #[inline]
    pub fn flush(&mut self) {
        if self.up.wake_due() {
            self.up_bell.ring();
            self.calls += 1;
        }
    }

    /// Takes a MAD out of the ring; false if there is none.
    #[inline]
    pub fn try_receive(&mut self, message: &mut MadMessage) -> bool {
        self.down.pop(message)
    }

    /// Gives the slots back that were taken.
    #[inline]
    pub fn release(&mut self) {
        self.down.commit();
    }

    /// Prepares for waiting for an edge of [`RingClient::bell`]; false if a MAD has arrived meanwhile.
    pub fn arm(&mut self) -> bool {
        self.down.commit();
        self.down.arm()
    }

    /// Takes the rings out of the doorbell; now and then, before it is full.
    pub fn empty_bell(&mut self) {
        self.down_bell.take();
        self.calls += 1;
    }

    /// Ends waiting.
    pub fn disarm(&mut self) {
        self.down.disarm();
    }

    /// Rung when a MAD has arrived after [`RingClient::arm`].
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.down_bell.as_fd()
    }

    /// System calls made so far: doorbells that were rung or emptied.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Waits, spinning, for a MAD.
    ///
    /// # Errors
    /// [`BenchError::Silence`].
    #[inline]
    pub fn receive(&mut self, message: &mut MadMessage) -> Result<(), BenchError> {
        let mut looks: u32 = 0;
        let mut since: Option<Instant> = None;
        while !self.down.pop(message) {
            std::hint::spin_loop();
            looks += 1;
            if looks == LOOKS_PER_CLOCK {
                looks = 0;
                give_up_after(&mut since)?;
            }
        }
        Ok(())
    }
}

#[cold]
fn give_up_after(since: &mut Option<Instant>) -> Result<(), BenchError> {
    if since.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(PATIENCE_S) {
        return Err(BenchError::Silence(PATIENCE_S));
    }
    Ok(())
}

/// A Get(NodeInfo), by directed route or by LID, and what its answer must be.
#[derive(Debug, Clone)]
pub struct Query {
    message: MadMessage,
    node_guid: u64,
    hi_tid: u32,
}

impl Query {
    /// The query of the agent `hi_tid` along `route`.
    pub fn new(route: &Route, hi_tid: u32) -> Self {
        Self::of(hi_tid, 0xFFFF, route.node_guid, |mut smp| {
            smp.init_directed(mad::METHOD_GET, attr::NODE_INFO, 0, 0, &route.ports);
        })
    }

    /// The query of the agent `hi_tid`, which is registered for SMPs by LID, to the node with this LID and GUID.
    pub fn by_lid(dlid: u16, node_guid: u64, hi_tid: u32) -> Self {
        Self::of(hi_tid, dlid, node_guid, |mut smp| {
            smp.init_lid_routed(mad::METHOD_GET, attr::NODE_INFO, 0, 0);
        })
    }

    fn of(hi_tid: u32, dlid: u16, node_guid: u64, init: impl FnOnce(SmpMut<'_>)) -> Self {
        let slid = if dlid == 0xFFFF { dlid } else { 0 };
        let envelope =
            Envelope { kind: kind::MAD, agent: hi_tid, slid, dlid, length: 256, ..Envelope::default() };
        let mut message = MadMessage { envelope, ..MadMessage::default() };
        init(SmpMut::new(&mut message.mad));
        Self { message, node_guid, hi_tid }
    }

    /// The query with this number.
    #[inline]
    pub fn numbered(&mut self, number: u32) -> &MadMessage {
        MadMut::new(&mut self.message.mad).set_tid(u64::from(number));
        &self.message
    }

    /// Whether `answer` is the right one to the query with this number, and came to the agent that asked.
    #[inline]
    pub fn is_answered(&self, number: u32, answer: &MadMessage) -> bool {
        let view = Mad::new(&answer.mad);
        let guid = node_guid(answer);
        answer.envelope.agent == self.hi_tid
            && view.method() == mad::METHOD_GET_RESP
            && view.status() & 0x7FFF == 0
            && view.tid() == (u64::from(self.hi_tid) << 32 | u64::from(number))
            && guid == self.node_guid
    }

    /// The error that says what is wrong with `answer`.
    pub fn complaint(&self, number: u32, answer: &MadMessage) -> BenchError {
        let view = Mad::new(&answer.mad);
        BenchError::Wrong(format!(
            "query {number}: method {:#x} status {:#x} tid {:#x} node {:#018x}, expected node {:#018x}",
            view.method(),
            view.status(),
            view.tid(),
            node_guid(answer),
            self.node_guid
        ))
    }
}

fn node_guid(answer: &MadMessage) -> u64 {
    let data = Smp::new(&answer.mad).data();
    let mut guid = [0; 8];
    guid.copy_from_slice(&data[4..12]);
    u64::from_be_bytes(guid)
}

impl RingClient {
    /// A query along `route` from this client.
    pub fn query(&self, route: &Route) -> Query {
        Query::new(route, self.hi_tid)
    }

    /// Asks once, with this number, and waits, spinning, for the answer, which is checked.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] or [`BenchError::Silence`].
    #[inline]
    pub fn ask_one(&mut self, query: &mut Query, number: u32) -> Result<(), BenchError> {
        self.exchange(query, number, &mut MadMessage::default())
    }

    #[inline(always)]
    fn exchange(
        &mut self,
        query: &mut Query,
        number: u32,
        answer: &mut MadMessage,
    ) -> Result<(), BenchError> {
        if !self.send(query.numbered(number)) {
            return Err(BenchError::Wrong("an empty ring is full".to_owned()));
        }
        self.flush();
        self.receive(answer)?;
        if !query.is_answered(number, answer) {
            return Err(query.complaint(number, answer));
        }
        self.release();
        Ok(())
    }

    /// Asks `count` times, one at a time; every answer is checked.
    ///
    /// A time is from one answer to the next, one clock read included.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] or [`BenchError::Silence`].
    pub fn ask_each(
        &mut self,
        query: &mut Query,
        count: u32,
        times: &mut Distribution,
    ) -> Result<(), BenchError> {
        let mut answer = MadMessage::default();
        let mut before = Instant::now();
        for number in 0..count {
            self.exchange(query, number, &mut answer)?;
            let now = Instant::now();
            times.record(nanoseconds(now - before));
            before = now;
        }
        Ok(())
    }

    /// Asks `count` times with up to `depth` queries on their way. Answers come in order and every one is checked.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] or [`BenchError::Silence`].
    pub fn ask_many(&mut self, query: &mut Query, count: u32, depth: u32) -> Result<Pace, BenchError> {
        let mut answer = MadMessage::default();
        let (mut sent, mut answered) = (0, 0);
        let mut looks: u32 = 0;
        let mut since: Option<Instant> = None;
        let mut pace = Pace::new();
        pace.start();
        while answered < count {
            let room = depth.saturating_sub(sent - answered).min(count - sent);
            let mut given = 0;
            while given < room && self.send(query.numbered(sent)) {
                sent += 1;
                given += 1;
            }
            if given > 0 {
                self.flush();
            }
            let before = answered;
            while self.try_receive(&mut answer) {
                if !query.is_answered(answered, &answer) {
                    return Err(query.complaint(answered, &answer));
                }
                answered += 1;
            }
            if answered != before {
                self.release();
                pace.done(answered - before);
                looks = 0;
                since = None;
                continue;
            }
            std::hint::spin_loop();
            looks += 1;
            if looks == LOOKS_PER_CLOCK {
                looks = 0;
                give_up_after(&mut since)?;
            }
        }
        Ok(pace)
    }
}

/// A duration in nanoseconds.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
