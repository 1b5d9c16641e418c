//! A client over the raw rings that counts exactly: every answer is the next one, and right.

use std::time::{Duration, Instant};

use madplane_bench::fabrics::Fabric;
use madplane_client::{
    AgentSpec, Envelope, MadMessage, PlanePaths, RawReceiver, RawSender, RawSession, kind,
};
use madplane_wire::smp::attr;
use madplane_wire::{Mad, MadMut, SmpMut, mad};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Fault;
use crate::stand::FABRIC;

/// After that long without one, an answer is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// A sleeping client looks by itself this often, which is late enough to be found out.
const NET: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Looks at an empty ring before others may run.
const YIELD: u64 = 256;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verb {
    /// NodeInfo of a node so many hops away.
    Get {
        /// Hops.
        hops: usize,
    },
    /// A block of the forwarding table of the nearest switch.
    Set,
}

/// How it waits for answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Looks again.
    Spin,
    /// Sleeps until its doorbell.
    Sleep,
}

/// One session and its count.
pub(crate) struct Asker {
    sender: RawSender,
    receiver: RawReceiver,
    request: MadMessage,
    hi_tid: u32,
    depth: u64,
    wait: Wait,
    sent: u64,
    got: u64,
    /// When each of those on their way was sent.
    times: Vec<Instant>,
}

impl Asker {
    /// Attaches at the first adapter.
    pub(crate) fn open(paths: &PlanePaths, verb: Verb, depth: u64, wait: Wait) -> Result<Self, Fault> {
        let fabric = Fabric::from_spec(FABRIC).map_err(|error| error.to_string())?;
        let selector = fabric.host_selector();
        let mut session = RawSession::open(paths, &selector, 0).map_err(|error| error.to_string())?;
        let spec =
            AgentSpec { mgmt_class: mad::CLASS_SUBN_DIRECTED, class_version: 1, ..AgentSpec::default() };
        let hi_tid = session.register(&spec).map_err(|error| error.to_string())?;
        let envelope = Envelope {
            kind: kind::MAD,
            agent: hi_tid,
            slid: 0xFFFF,
            dlid: 0xFFFF,
            length: 256,
            ..Envelope::default()
        };
        let mut request = MadMessage { envelope, ..MadMessage::default() };
        let (method, attribute, hops) = match verb {
            Verb::Get { hops } => (mad::METHOD_GET, attr::NODE_INFO, hops),
            Verb::Set => (mad::METHOD_SET, attr::LFT, 1),
        };
        let route = fabric.route(hops).ok_or("no route of that length")?;
        SmpMut::new(&mut request.mad).init_directed(method, attribute, 0, 0, &route.ports);
        if matches!(verb, Verb::Set) {
            // everything is unreachable, as it was
            request.mad[madplane_wire::smp::SMP_DATA].fill(0xFF);
        }
        let slots = usize::try_from(depth).unwrap_or(1);
        let (sender, receiver) = session.split();
        Ok(Self {
            sender,
            receiver,
            request,
            hi_tid,
            depth,
            wait,
            sent: 0,
            got: 0,
            times: vec![Instant::now(); slots],
        })
    }

    /// Answers so far.
    pub(crate) fn answered(&self) -> u64 {
        self.got
    }

    /// Asks, as many requests on their way as its depth allows, while `more` says so of the number asked; then waits for
    /// what is missing.
    pub(crate) fn ask_while(&mut self, more: impl Fn(u64) -> bool) -> Result<(), Fault> {
        self.ask_timed(more, |_| {})
    }

    /// The same, and says of each answer how long it took.
    pub(crate) fn ask_timed(
        &mut self,
        more: impl Fn(u64) -> bool,
        mut took: impl FnMut(Duration),
    ) -> Result<(), Fault> {
        let mut answer = MadMessage::default();
        let mut goes_on = true;
        let mut since = Instant::now();
        let mut looks = 0_u64;
        while goes_on || self.got < self.sent {
            while goes_on && self.sent - self.got < self.depth {
                goes_on = more(self.sent);
                if goes_on {
                    self.ask()?;
                }
            }
            if self.receiver.try_recv(&mut answer) {
                took(self.slot(self.got).elapsed());
                self.check(&answer)?;
                self.got += 1;
                looks = 0;
                continue;
            }
            looks += 1;
            if looks == 1 {
                since = Instant::now();
            } else if since.elapsed() > PATIENCE {
                return Err(self.complaint());
            } else if self.wait == Wait::Sleep && self.receiver.arm() {
                let mut bells = [PollFd::from_borrowed_fd(self.receiver.doorbell(), PollFlags::IN)];
                let woken = poll(&mut bells, Some(&NET)).map_err(|error| error.to_string())?;
                self.receiver.disarm();
                if woken == 0 && self.receiver.is_ready() {
                    return Err(format!("nobody rang for {}", self.complaint()));
                }
            } else if looks.is_multiple_of(YIELD) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn complaint(&self) -> Fault {
        let Self { got, sent, depth, wait, .. } = self;
        format!("answer {got} is missing ({sent} asked, depth {depth}, {wait:?})")
    }

    fn slot(&mut self, number: u64) -> &mut Instant {
        let at = usize::try_from(number % self.depth).unwrap_or(0);
        &mut self.times[at]
    }

    fn ask(&mut self) -> Result<(), Fault> {
        MadMut::new(&mut self.request.mad).set_tid(self.sent & 0xFFFF_FFFF);
        *self.slot(self.sent) = Instant::now();
        self.sender
            .send(&self.request)
            .map_err(|error| format!("{error} with {} on their way", self.depth))?;
        self.sent += 1;
        Ok(())
    }

    fn check(&self, answer: &MadMessage) -> Result<(), Fault> {
        let view = Mad::new(&answer.mad);
        let tid = u64::from(self.hi_tid) << 32 | (self.got & 0xFFFF_FFFF);
        if view.is_response() && view.tid() == tid && view.status() & 0x7FFF == 0 {
            return Ok(());
        }
        Err(format!(
            "answer {}: method {:#x} status {:#x} tid {:#x}",
            self.got,
            view.method(),
            view.status(),
            view.tid()
        ))
    }
}
