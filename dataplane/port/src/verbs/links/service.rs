//! The service thread: its loop, and what it does for each link and each port of a device.
//!
//! | a link | what is done |
//! |---|---|
//! | has no queue, its port is there | opened, every [`AGAIN_NS`] until that works |
//! | has a queue | the other end is asked for its queue pair, as [`Meeting`] says, and told ours when it asks |
//! | its port goes, or is given other addresses | the queue is asked back, closed, opened again |
//! | its queue broke | it comes back by itself; as above |
//! | its worker's end is gone | forgotten |
//!
//! Wakes up by descriptors, and ten times a second to see whether devices are still there.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use madplane_shm::doorbell::Doorbell;
use madplane_shm::process::monotonic_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::{QueueSettings, UdDatagrams};
use super::device::{Incoming, OpenPort, Sender};
use super::rings::{LinkDatagrams, ServiceEnd, rings};
use super::{LinkOptions, OpenError, Order};
use crate::datagram::Standing;
use crate::device::{DeviceSpec, Unavailable, p_key_index};
use crate::rendezvous::{End, Heard, Meeting, Message, Wrong};

/// Time between two attempts to open a port or a queue.
const AGAIN_NS: u64 = 500_000_000;
/// How often devices are looked at.
const LOOK_NS: u64 = 100_000_000;
/// Messages of one port that are taken before everything else has its turn.
const HEARD_AT_ONCE: usize = 64;

/// A port of a device, open or waiting to be.
struct Port {
    spec: DeviceSpec,
    opened: Option<OpenPort>,
    again_ns: u64,
    look_ns: u64,
    /// Why it is not open.
    why: String,
}

/// Whether two specifications name the same port, by whichever of its addresses.
fn same_port(one: &DeviceSpec, other: &DeviceSpec) -> bool {
    (one.device(), one.port()) == (other.device(), other.port())
}

/// A link.
struct Served {
    options: LinkOptions,
    end: ServiceEnd,
    meeting: Meeting,
    own: Option<End>,
    p_key_index: u16,
    /// The other end, if the worker has to be told.
    untold: Option<End>,
    /// The queue has to come back.
    recalled: bool,
    /// The worker was asked for it.
    asked_back: bool,
    again_ns: u64,
    /// Lower half of the last question's transaction id.
    transaction: u32,
    /// What came from there that was no message.
    wrong: Option<Wrong>,
    /// Why there is no queue.
    why: String,
    text: String,
}

/// Opens the queue of a link.
fn open_queue(options: &LinkOptions, port: &OpenPort) -> Result<(UdDatagrams, u16), Unavailable> {
    let (name, number) = (options.device.device().to_owned(), options.device.port());
    let unnamed = |needs| Err(Unavailable::Unnamed { name: name.clone(), port: number, needs });
    if port.is_ethernet() && options.peer.gid == [0; 16] {
        return unnamed("GID");
    }
    if !port.is_ethernet() && options.peer.lid == 0 {
        return unnamed("LID");
    }
    let p_key_index = match options.p_key {
        Some(key) => p_key_index(&name, number, key)?,
        None => 0,
    };
    // one's own, so that a frame to a former owner of the number is not taken for one of ours; never the kernel's
    let random = std::hash::RandomState::new().build_hasher().finish();
    let q_key = u32::try_from(random & 0x7FFF_FFFF).unwrap_or(1).max(1);
    let settings = QueueSettings { q_key, p_key_index, ..QueueSettings::default() };
    let mut queue = UdDatagrams::open(&options.device, &settings)?;
    if !queue.prepare(&options.peer) {
        return Err(Unavailable::NoWay { name, port: number, to: options.peer.to_string() });
    }
    Ok((queue, p_key_index))
}

impl Served {
    /// Has a queue from now on.
    fn begin(&mut self, queue: UdDatagrams, p_key_index: u16) {
        let own = queue.own();
        self.p_key_index = p_key_index;
        if self.end.lend(Box::new(queue)).is_err() {
            "unavailable, because no descriptor or memory is left".clone_into(&mut self.why);
            return;
        }
        (self.recalled, self.asked_back) = (false, false);
        self.own = Some(own);
        self.meeting.set_own(Some(own));
        self.untold = self.meeting.peer().copied();
        self.why.clear();
    }

    /// Wants its queue back.
    fn recall(&mut self, why: &str) {
        if self.end.is_lent() && !self.recalled {
            self.recalled = true;
            self.own = None;
            self.meeting.set_own(None);
            self.why = why.to_owned();
        }
    }

    fn look_after(&mut self, port: &mut Port, transactions: &mut u32, now_ns: u64) {
        if self.recalled && !self.asked_back {
            self.asked_back = self.end.ask_back();
        }
        if let Some(queue) = self.end.returned() {
            // closes here
            drop(queue);
            if !self.recalled {
                "unavailable, because its queue broke".clone_into(&mut self.why);
                self.again_ns = now_ns + AGAIN_NS;
            }
            self.recalled = false;
            self.own = None;
            self.meeting.set_own(None);
        }
        let Some(opened) = &mut port.opened else {
            self.why.clone_from(&port.why);
            return self.end.set_carrier(false);
        };
        if !self.end.is_lent() && now_ns >= self.again_ns {
            match open_queue(&self.options, opened) {
                Ok((queue, p_key_index)) => self.begin(queue, p_key_index),
                Err(why) => self.why = why.to_string(),
            }
            self.again_ns = now_ns + AGAIN_NS;
        }
        self.end.set_carrier(opened.is_active());
        if let Some(peer) = self.untold
            && self.own.is_some()
            // as the operator named it: the handle to that address is made
            && self.end.connect(End { place: self.options.peer, ..peer })
        {
            self.untold = None;
        }
        if opened.is_active()
            && now_ns >= self.meeting.due_ns()
            && let Some(question) = self.meeting.question(now_ns, u64::from(*transactions))
        {
            self.transaction = *transactions;
            *transactions = transactions.wrapping_add(1);
            let to = Sender {
                place: self.options.peer,
                gid_index: self.options.device.gid_index(),
                p_key_index: self.p_key_index,
            };
            opened.send(&to, &question);
        }
    }

    /// Takes a message for this link; what to say if it asks.
    fn hear(&mut self, from: &Sender, message: &Message) -> Option<Message> {
        match self.meeting.hear(&from.place, message) {
            Heard::Known => {}
            Heard::Peer(peer) => (self.untold, self.wrong) = (Some(peer), None),
            Heard::Refused => {
                self.refuse();
                return None;
            }
        }
        Some(self.meeting.answer(message))
    }

    fn refuse(&self) {
        self.end.shared.count_refused();
    }

    fn describe(&mut self, active: bool) {
        let (name, number) = (self.options.device.device(), self.options.device.port());
        let text = match (&self.own, self.meeting.peer()) {
            (None, _) => self.why.clone(),
            _ if !active => {
                Unavailable::NotActive { name: name.to_owned(), port: number, state: 1 }.to_string()
            }
            (Some(own), peer) => {
                let link = match self.options.name.as_str() {
                    "" => String::new(),
                    link => format!(" ({link})"),
                };
                let there = match (peer, self.meeting.why_not()) {
                    (Some(peer), "met") => format!("queue pair {}", peer.pair),
                    (Some(peer), why) => format!("queue pair {}, {why}", peer.pair),
                    (None, why) => {
                        self.wrong.map_or_else(|| why.to_owned(), |wrong| format!("{why} but {wrong}"))
                    }
                };
                let to = self.options.peer;
                format!("{name} port {number} queue pair {} to {to}{link}: {there}", own.pair)
            }
        };
        if text != self.text {
            self.end.shared.standing.set(text.clone());
            self.text = text;
        }
    }
}

/// The thread's own.
pub(super) struct Serve {
    orders: Receiver<Order>,
    bell: Arc<Doorbell>,
    ports: Vec<Port>,
    links: Vec<Served>,
    /// The next question's transaction id: no two that wait at one agent may have the same.
    transactions: u32,
}

impl Serve {
    pub(super) fn new(orders: Receiver<Order>, bell: Arc<Doorbell>) -> Self {
        Self { orders, bell, ports: Vec::new(), links: Vec::new(), transactions: 1 }
    }

    /// Serves until nobody can give orders any more.
    pub(super) fn run(mut self) {
        loop {
            self.bell.take();
            self.links.retain(|link| !link.end.worker_is_gone());
            loop {
                match self.orders.try_recv() {
                    Ok(Order { options, reply }) => {
                        let answer = self.open(options);
                        // who asked may have given up; then the worker's end is gone, too
                        let _ = reply.send(answer);
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let links = &self.links;
            self.ports.retain(|port| links.iter().any(|link| same_port(&port.spec, &link.options.device)));
            let now_ns = monotonic_ns();
            for at in 0..self.ports.len() {
                self.look_after_port(at, now_ns);
                self.hear(at);
            }
            for link in &mut self.links {
                let port = self.ports.iter_mut().find(|port| same_port(&port.spec, &link.options.device));
                let Some(port) = port else { continue };
                link.look_after(port, &mut self.transactions, now_ns);
                link.describe(port.opened.as_ref().is_some_and(OpenPort::is_active));
            }
            self.sleep();
        }
    }

    fn open(&mut self, options: LinkOptions) -> Result<(LinkDatagrams, Standing), OpenError> {
        // one that was taken away just now is no obstacle
        self.links.retain(|link| !link.end.worker_is_gone());
        let same = |link: &Served| {
            let other = &link.options;
            (other.device.device(), other.device.port(), other.peer, other.name)
                == (options.device.device(), options.device.port(), options.peer, options.name)
        };
        if self.links.iter().any(same) {
            return Err(OpenError::Twice(options.peer));
        }
        let at =
            self.ports.iter().position(|port| same_port(&port.spec, &options.device)).unwrap_or_else(|| {
                let spec = options.device.clone();
                self.ports.push(Port { spec, opened: None, again_ns: 0, look_ns: 0, why: String::new() });
                self.ports.len() - 1
            });
        let place = &mut self.ports[at].opened;
        let port = match place {
            Some(port) => port,
            none => none.insert(OpenPort::open(&options.device)?),
        };
        let (queue, p_key_index) = open_queue(&options, port)?;
        let (worker, standing, end) =
            rings(self.bell.clone()).map_err(|errno| OpenError::Start(errno.into()))?;
        let mut link = Served {
            meeting: Meeting::new(options.peer, options.name),
            options,
            end,
            own: None,
            p_key_index: 0,
            untold: None,
            recalled: false,
            asked_back: false,
            again_ns: 0,
            transaction: 0,
            wrong: None,
            why: String::new(),
            text: String::new(),
        };
        link.begin(queue, p_key_index);
        self.links.push(link);
        Ok((worker, standing))
    }

    fn look_after_port(&mut self, at: usize, now_ns: u64) {
        let port = &mut self.ports[at];
        let Some(opened) = &mut port.opened else {
            if now_ns >= port.again_ns {
                port.again_ns = now_ns + AGAIN_NS;
                match OpenPort::open(&port.spec) {
                    Ok(opened) => port.opened = Some(opened),
                    Err(why) => port.why = why.to_string(),
                }
            }
            return;
        };
        let changed = opened.take_events();
        let look = now_ns >= port.look_ns;
        if look {
            port.look_ns = now_ns + LOOK_NS;
        }
        let removed = !opened.is_there(look);
        let why = Unavailable::Removed { name: port.spec.device().to_owned() }.to_string();
        for link in self.links.iter_mut().filter(|link| same_port(&port.spec, &link.options.device)) {
            if removed {
                link.recall(&why);
            } else if changed
                && let (Some(own), Ok(now)) = (link.own, opened.place(link.options.device.gid_index()))
                && own.place != now
            {
                link.recall("its port has another address");
            }
        }
        if removed {
            (port.opened, port.why, port.again_ns) = (None, why, now_ns + AGAIN_NS);
        }
    }

    /// Takes what came to queue pair 1 of a port.
    fn hear(&mut self, at: usize) {
        let Port { spec, opened: Some(opened), .. } = &mut self.ports[at] else { return };
        for _ in 0..HEARD_AT_ONCE {
            let Some(incoming) = opened.receive() else { break };
            let mut links = self.links.iter_mut().filter(|link| same_port(spec, &link.options.device));
            match incoming {
                Incoming::Unanswered(transaction) => {
                    if let Some(link) = links.find(|link| link.transaction == transaction) {
                        link.meeting.unanswered();
                    }
                }
                // whoever it was, it may have meant any link to there
                Incoming::Wrong(from, wrong) => {
                    for link in links.filter(|link| link.options.peer.is(&from)) {
                        link.wrong = Some(wrong);
                        link.refuse();
                    }
                }
                Incoming::Message { from, message } => {
                    let mut named: Vec<_> = links.filter(|link| link.options.name == message.name).collect();
                    let meant = named.iter().position(|link| link.options.peer.is(&from.place));
                    let answer = if let Some(place) = meant {
                        named[place].hear(&from, &message)
                    } else {
                        named.iter().for_each(|link| link.refuse());
                        Some(Meeting::no_link(&message))
                    };
                    if let Some(answer) = answer.filter(|_| !message.answers) {
                        opened.send(&from, &answer);
                    }
                }
            }
        }
    }

    fn sleep(&self) {
        let mut fds = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        let opened = self.ports.iter().filter_map(|port| port.opened.as_ref());
        fds.extend(opened.flat_map(|port| port.fds()).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let now_ns = monotonic_ns();
        let due = self.links.iter().map(|link| link.meeting.due_ns()).min().unwrap_or(u64::MAX);
        let wait_ns = due.saturating_sub(now_ns).clamp(1_000_000, LOOK_NS);
        let look = Timespec { tv_sec: 0, tv_nsec: i64::try_from(wait_ns).unwrap_or(1) };
        // without links there is nothing to look at; interrupted: the loop looks at everything and comes back
        let _ = poll(&mut fds, (!self.links.is_empty()).then_some(&look));
    }
}
