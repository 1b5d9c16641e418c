//! One attachment to the plane with the rules of a umad file: agents, matching, timeouts, retries.
//!
//! | state | lock | taken by |
//! |---|---|---|
//! | [`Core`]: agents, requests, up ring | `core` | every call, for the time of one MAD |
//! | [`Receiver`]: down ring, head, deliveries | `rx`, before `core` | receives; released while asleep |
//! | attach socket | `calls` | register, unregister |
//! | `next_due_ns` | atomic, written under `core` | read by spinning and sleeping receivers |
//! | `planned_wake_ns` | atomic, written under `rx` | read by senders, to wake a receiver that would sleep too long |
//!
//! Invariants: at most one packet is at the head, and it stays there until it is taken; a packet is delivered once; no
//! system call and no allocation in a send, nor in a receive whose MAD comes while it still spins, unless the session is
//! watched or RMPP is at work. What it does not do: start threads, or keep MADs that arrive for unknown agents.

mod binding;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{Connection, HandoffError, Request, op};
use madplane_shm::message::MadMessage;
use madplane_shm::paths::PlanePaths;
use madplane_shm::session::SharedConsumer;
use madplane_shm::sync::{AtomicBool, AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agents::{Agent, AgentSpec};
use crate::alarm::{Alarm, Woken};
use crate::attach::{SessionInfo, attach, call_register};
use crate::clock::now_ns;
use crate::core::{Core, Delivery, Verdict};
use crate::error::{OpenError, RecvError, RegisterError, SendError};
use crate::identity::{OwnPath, TenantName};
use crate::readiness::Readiness;
use crate::rmpp::Counts;
use crate::traffic::{Incoming, Outgoing, Stats, Taken};
use crate::wait::{LONGEST_SLEEP, SpinBudget, WaitError, WaitPolicy};

const NEVER: u64 = u64::MAX;
/// In `next_due_ns`: whoever reads the clock next has to look at the timers.
const DUE_AT_ONCE: u64 = 0;
/// Looks at the ring between two looks at the clock.
const SPINS_PER_LOOK: u32 = 64;
/// Looks at the ring by a sender that stays for the answer: a few microseconds, some round trips.
const SPINS_FOR_AN_ANSWER: u32 = 64;
/// MADs taken between two looks at the clock while traffic never pauses.
const POPS_PER_LOOK: u32 = 64;
/// Longest time a send waits for room in the ring.
const ROOM_WAIT_NS: u64 = 50_000_000;
/// Longest time between two looks at the socket for receives that do not wait.
const GLANCE_NS: u64 = 4_000_000;
/// Sends between two looks at the socket.
const SENDS_PER_GLANCE: u64 = 1024;

/// How to open a session.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionOptions {
    /// Slots per ring, a power of two; 0 for the plane's default.
    pub slots: u32,
    /// How receives wait.
    pub wait: WaitPolicy,
    /// As which tenant it attaches.
    pub tenant: TenantName,
    /// Which path of its own it is bound to.
    pub path: OwnPath,
}

#[derive(Debug)]
enum Head {
    None,
    /// In `Receiver::item`, for this agent.
    Ring(u32),
    Queued(Delivery),
}

/// The receiving side.
#[derive(Debug)]
struct Receiver {
    down: SharedConsumer<MadMessage>,
    item: MadMessage,
    head: Head,
    pending: VecDeque<Delivery>,
    spin: SpinBudget,
    sleepers: u32,
    pops: u32,
    glanced_ns: u64,
    ready_shown: bool,
}

/// An attachment to the plane.
#[derive(Debug)]
pub struct Session {
    info: SessionInfo,
    core: Mutex<Core>,
    rx: Mutex<Receiver>,
    calls: Mutex<()>,
    gone: AtomicBool,
    watched: AtomicBool,
    next_due_ns: AtomicU64,
    planned_wake_ns: AtomicU64,
    readiness: Readiness,
    up_bell: Doorbell,
    down_bell: Doorbell,
    kick: Doorbell,
    alarm: Alarm,
    connection: Connection,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // a panic in a caller's closure leaves everything here consistent: it runs between two steps
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Attaches to the port that `selector` names (a node by GUID or description, optionally with `:PORT`; `device:NAME` or
    /// `device:NAME:PORT` for a port of an RDMA device of the plane, `auto:NAME` for that if it works; empty for the plane's default port).
    ///
    /// # Errors
    /// No plane of that name, no permission, no such node or tenant, another layout version.
    pub fn open(paths: &PlanePaths, selector: &str, options: &SessionOptions) -> Result<Self, OpenError> {
        use std::os::fd::AsFd;
        let wait = options.wait.resolved()?;
        let attached = attach(paths, selector, options.slots, options.tenant, options.path)?;
        let readiness = Readiness::create(&attached.down_bell, attached.connection.as_fd())?;
        let kick = Doorbell::create().map_err(std::io::Error::from)?;
        let bells = [&attached.down_bell, &kick];
        let alarm = Alarm::create(&bells, attached.connection.as_fd()).map_err(std::io::Error::from)?;
        let receiver = Receiver {
            down: attached.ends.down,
            item: MadMessage::default(),
            head: Head::None,
            pending: VecDeque::with_capacity(16),
            spin: SpinBudget::new(wait, attached.info.worker_cpu),
            sleepers: 0,
            pops: 0,
            glanced_ns: 0,
            ready_shown: false,
        };
        Ok(Self {
            info: attached.info,
            core: Mutex::new(Core::new(attached.ends.up)),
            rx: Mutex::new(receiver),
            calls: Mutex::new(()),
            gone: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            next_due_ns: AtomicU64::new(NEVER),
            planned_wake_ns: AtomicU64::new(NEVER),
            readiness,
            up_bell: attached.up_bell,
            down_bell: attached.down_bell,
            kick,
            alarm,
            connection: attached.connection,
        })
    }

    /// Has receives that begin from now on wait in another way.
    ///
    /// # Errors
    /// The environment is to decide and says nonsense.
    pub fn set_wait(&self, wait: WaitPolicy) -> Result<(), WaitError> {
        let wait = wait.resolved()?;
        lock(&self.rx).spin = SpinBudget::new(wait, self.info.worker_cpu);
        Ok(())
    }

    /// Where the session is attached.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// What the session has done so far.
    pub fn stats(&self) -> Stats {
        lock(&self.core).stats
    }

    /// What RMPP has done so far.
    pub fn rmpp_counts(&self) -> Counts {
        lock(&self.core).rmpp_counts()
    }

    /// Requests that wait for a response now.
    pub fn outstanding(&self) -> usize {
        lock(&self.core).transactions.len()
    }

    /// Registers an agent; returns its index, the lowest free one of 0..=31.
    ///
    /// # Errors
    /// As the kernel's: a class that does not belong to the queue pair, a method that another agent of this port has, RMPP for
    /// a class without it, no OUI, 32 agents, plane gone.
    pub fn register(&self, spec: &AgentSpec) -> Result<u32, RegisterError> {
        spec.check()?;
        let _one_at_a_time = lock(&self.calls);
        let index = lock(&self.core).agents.free_index().ok_or(RegisterError::TooMany)?;
        let hi_tid = self.call(|connection| call_register(connection, spec))?;
        let rmpp = spec.rmpp_version == 1 && !spec.user_rmpp;
        lock(&self.core).agents.set(index, Some(Agent { hi_tid, rmpp }));
        Ok(index)
    }

    /// Removes an agent. Its outstanding requests vanish without a report; what has been queued for it stays.
    ///
    /// # Errors
    /// No such agent, or plane gone; in the latter case it is removed all the same.
    pub fn unregister(&self, agent: u32) -> Result<(), RegisterError> {
        let _one_at_a_time = lock(&self.calls);
        let hi_tid = self.hi_tid(agent).ok_or(RegisterError::NoSuchAgent(agent))?;
        lock(&self.core).forget_agent(agent);
        let request = Request { op: op::UNREGISTER, value: hi_tid, ..Request::default() };
        self.call(|connection| match connection.call(&request) {
            Ok(_) => Ok(()),
            Err(HandoffError::Refused { errno, text }) => Err(RegisterError::Refused { errno, text }),
            Err(_) => Err(RegisterError::Gone),
        })
    }

    /// One exchange over the socket. After a failed one the next reply may belong to it, so the session is over.
    fn call<R>(
        &self,
        exchange: impl FnOnce(&Connection) -> Result<R, RegisterError>,
    ) -> Result<R, RegisterError> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(RegisterError::Gone);
        }
        let result = exchange(&self.connection);
        if matches!(result, Err(RegisterError::Gone)) {
            self.gone.store(true, Ordering::Relaxed);
        }
        result
    }

    /// The upper half of the TIDs of an agent's requests.
    pub fn hi_tid(&self, agent: u32) -> Option<u32> {
        lock(&self.core).agents.get(agent).map(|agent| agent.hi_tid)
    }

    /// Sends a MAD. Returns as soon as it is in the ring to the plane; waits up to 50 ms for room there.
    ///
    /// A request (no response by R bit, TrapRepress, or baseboard management's bit) gets the agent's `hi_tid` as the upper
    /// half of its TID. With a timeout it is resent `retries` times and then comes back with
    /// [`STATUS_TIMED_OUT`](crate::STATUS_TIMED_OUT).
    ///
    /// # Errors
    /// See [`SendError`]; nothing was sent then.
    pub fn send(&self, outgoing: &Outgoing<'_>) -> Result<(), SendError> {
        if outgoing.timeout_ms > 0 && self.planned_wake_ns.load(Ordering::Relaxed) != NEVER {
            return self.send_for_a_sleeper(outgoing);
        }
        self.send_to_plane(outgoing)
    }

    /// Sends a request while a receiver sleeps, and stays for the answer.
    ///
    /// A polling worker answers within a round trip, which is much less than it costs to have a sleeper woken from another
    /// CPU. So the worker is spared the doorbell, and the receiver is woken from here, where it is going to run.
    fn send_for_a_sleeper(&self, outgoing: &Outgoing<'_>) -> Result<(), SendError> {
        let Ok(mut rx) = self.rx.try_lock() else { return self.send_to_plane(outgoing) };
        if rx.sleepers == 0 || !rx.spin.may_stay() {
            drop(rx);
            return self.send_to_plane(outgoing);
        }
        rx.down.disarm();
        let sent = self.send_to_plane(outgoing);
        for _ in 0..SPINS_FOR_AN_ANSWER {
            if sent.is_err() || rx.down.is_ready() {
                break;
            }
            std::hint::spin_loop();
        }
        if !rx.down.arm() {
            self.kick.ring();
        }
        sent
    }

    fn send_to_plane(&self, outgoing: &Outgoing<'_>) -> Result<(), SendError> {
        let mut give_up_ns = 0;
        loop {
            if self.gone.load(Ordering::Relaxed) {
                return Err(SendError::Gone);
            }
            let mut core = lock(&self.core);
            match core.send(outgoing) {
                Ok(starts_clock) => {
                    let glance = core.stats.sent.is_multiple_of(SENDS_PER_GLANCE);
                    let transfers = !core.rmpp_is_idle();
                    self.after_core_work(core, starts_clock);
                    if glance {
                        self.look_at_socket();
                    }
                    if glance || transfers {
                        self.progress();
                    }
                    return Ok(());
                }
                Err(SendError::Full) => {
                    let ring = core.up.wake_due();
                    drop(core);
                    if ring {
                        self.up_bell.ring();
                    }
                    let now = now_ns();
                    if give_up_ns == 0 {
                        give_up_ns = now + ROOM_WAIT_NS;
                    } else if now > give_up_ns {
                        self.look_at_socket();
                        return Err(SendError::Full);
                    }
                    std::thread::yield_now();
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// For programs that send and send: timers and RMPP packets, unless a receiver is at it.
    #[cold]
    fn progress(&self) {
        let Ok(mut rx) = self.rx.try_lock() else { return };
        self.run_timers(&mut rx, now_ns());
        if self.fetch(&mut rx) && rx.sleepers > 0 {
            self.kick.ring();
        }
        if self.watched.load(Ordering::Relaxed) {
            self.settle(&mut rx);
        }
    }

    /// Tells the plane and the receivers what the holder of the core lock has done.
    ///
    /// With `clock`, something waits for a clock to be read: a receiver that is awake will do that, one that sleeps or a
    /// program that polls by itself would not.
    fn after_core_work(&self, mut core: MutexGuard<'_, Core>, clock: bool) {
        if clock {
            let watched = self.watched.load(Ordering::Relaxed);
            let plan = self.planned_wake_ns.load(Ordering::Relaxed);
            if watched || plan != NEVER {
                let now = now_ns();
                core.transactions.stamp(now);
                let due = core.next_due_ns(now);
                self.next_due_ns.store(due.unwrap_or(NEVER), Ordering::Relaxed);
                if watched {
                    self.readiness.arm_timer(due);
                }
                if due.is_some_and(|due| due < plan) {
                    self.kick.ring();
                }
            } else if self.next_due_ns.load(Ordering::Relaxed) != DUE_AT_ONCE {
                self.next_due_ns.store(DUE_AT_ONCE, Ordering::Relaxed);
            }
        }
        let ring = core.up.wake_due();
        drop(core);
        if ring {
            self.up_bell.ring();
        }
    }

    /// Waits for the next packet and shows it to `take`.
    ///
    /// `timeout` is `None` for ever and zero to return at once. `take` runs under the receive lock and must not call into
    /// this session. [`Taken::Keep`] leaves the packet for the next receive.
    ///
    /// # Errors
    /// [`RecvError::TimedOut`], or [`RecvError::Gone`] at most a second after the plane has gone.
    pub fn recv_with<R>(
        &self,
        timeout: Option<Duration>,
        take: impl FnOnce(&Incoming<'_>) -> Taken<R>,
    ) -> Result<R, RecvError> {
        let mut rx = lock(&self.rx);
        let watched = self.watched.load(Ordering::Relaxed);
        if watched && rx.sleepers == 0 {
            rx.down.disarm();
        }
        let result = if self.fetch(&mut rx) {
            Ok(())
        } else {
            let (guard, result) = self.wait(rx, timeout);
            rx = guard;
            result
        };
        let result = result.map(|()| show_head(&mut rx, take));
        if watched {
            self.settle(&mut rx);
        }
        result
    }

    /// Brings a packet to the head if there is one.
    fn fetch(&self, rx: &mut Receiver) -> bool {
        loop {
            if !matches!(rx.head, Head::None) {
                return true;
            }
            if let Some(delivery) = rx.pending.pop_front() {
                rx.head = Head::Queued(delivery);
                return true;
            }
            if !rx.down.pop(&mut rx.item) {
                rx.down.commit();
                return false;
            }
            {
                let mut core = lock(&self.core);
                match core.classify(&rx.item, &mut rx.pending) {
                    Verdict::Deliver(agent) => rx.head = Head::Ring(agent),
                    Verdict::Consumed => {
                        let clock = !core.rmpp_is_idle();
                        self.after_core_work(core, clock);
                    }
                }
            }
            rx.pops += 1;
            if rx.pops >= POPS_PER_LOOK {
                rx.pops = 0;
                self.run_timers(rx, now_ns());
            }
        }
    }

    /// Resends and gives up what is due.
    fn run_timers(&self, rx: &mut Receiver, now_ns: u64) {
        if now_ns < self.next_due_ns.load(Ordering::Relaxed) {
            return;
        }
        let mut core = lock(&self.core);
        core.expire(now_ns, &mut rx.pending);
        self.next_due_ns.store(core.next_due_ns(now_ns).unwrap_or(NEVER), Ordering::Relaxed);
        self.after_core_work(core, false);
    }

    /// Waits until a packet is at the head.
    fn wait<'a>(
        &'a self,
        mut rx: MutexGuard<'a, Receiver>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, Receiver>, Result<(), RecvError>) {
        if timeout == Some(Duration::ZERO) {
            let result = self.glance(&mut rx);
            return (rx, result);
        }
        if rx.spin.spin_ns() > 0
            && self.is_worth_spinning(&rx)
            && spin_blindly(&mut rx)
            && self.fetch(&mut rx)
        {
            return (rx, Ok(()));
        }
        let mut deadline_ns = None;
        loop {
            if self.gone.load(Ordering::Relaxed) {
                return (rx, Err(RecvError::Gone));
            }
            let now = now_ns();
            let limit = timeout.map_or(NEVER, |t| u64::try_from(t.as_nanos()).unwrap_or(NEVER));
            let deadline = *deadline_ns.get_or_insert(now.saturating_add(limit));
            self.run_timers(&mut rx, now);
            if rx.pending.is_empty() && now >= deadline {
                return (rx, Err(RecvError::TimedOut));
            }
            if rx.pending.is_empty() && !self.spin(&mut rx, now, deadline) {
                rx = if rx.spin.never_sleeps() { self.pause(rx) } else { self.sleep(rx, deadline) };
            }
            if self.fetch(&mut rx) {
                return (rx, Ok(()));
            }
        }
    }

    /// A receive that does not wait found nothing in the ring: timers, and now and then the socket.
    fn glance(&self, rx: &mut Receiver) -> Result<(), RecvError> {
        let now = now_ns();
        self.run_timers(rx, now);
        if self.fetch(rx) {
            return Ok(());
        }
        if now.saturating_sub(rx.glanced_ns) >= GLANCE_NS {
            rx.glanced_ns = now;
            self.look_at_socket();
        }
        if self.gone.load(Ordering::Relaxed) { Err(RecvError::Gone) } else { Err(RecvError::TimedOut) }
    }

    /// On the only CPU of this process, spinning keeps the thread from running that would send the next request: worth it
    /// only for an answer that is on its way.
    fn is_worth_spinning(&self, rx: &Receiver) -> bool {
        !rx.spin.alone || rx.spin.never_sleeps() || lock(&self.core).transactions.len() > 0
    }

    /// Spins until something is ready or a timer is due; false when it is time to sleep.
    fn spin(&self, rx: &mut Receiver, start_ns: u64, deadline_ns: u64) -> bool {
        let budget = rx.spin.spin_ns();
        if budget == 0 || rx.spin.is_rude(start_ns) || !self.is_worth_spinning(rx) {
            return false;
        }
        let end = start_ns.saturating_add(budget);
        loop {
            if spin_blindly(rx) {
                return true;
            }
            let now = now_ns();
            if now >= self.next_due_ns.load(Ordering::Relaxed) || now >= deadline_ns {
                return true;
            }
            if now >= end {
                return false;
            }
            if rx.spin.alone && rx.spin.never_sleeps() {
                std::thread::yield_now();
            }
        }
    }

    /// Where another policy would sleep: looks at the socket and lets other threads have the receive lock.
    fn pause<'a>(&'a self, rx: MutexGuard<'a, Receiver>) -> MutexGuard<'a, Receiver> {
        drop(rx);
        self.look_at_socket();
        std::thread::yield_now();
        lock(&self.rx)
    }

    /// Sleeps until a doorbell, a timer, the deadline or the plane's end; not longer than [`LONGEST_SLEEP`].
    fn sleep<'a>(&'a self, mut rx: MutexGuard<'a, Receiver>, deadline_ns: u64) -> MutexGuard<'a, Receiver> {
        let now = now_ns();
        let longest = u64::try_from(LONGEST_SLEEP.as_nanos()).unwrap_or(NEVER);
        let plan = (now + longest).min(deadline_ns);
        let earlier = self.planned_wake_ns.load(Ordering::Relaxed);
        let until = {
            // under the lock: a sender who comes before is seen here, one who comes later sees the plan
            let mut core = lock(&self.core);
            core.transactions.stamp(now);
            let due = core.next_due_ns(now).unwrap_or(NEVER);
            self.next_due_ns.store(due, Ordering::Relaxed);
            let until = plan.min(due);
            self.planned_wake_ns.store(until.min(earlier), Ordering::Relaxed);
            until
        };
        let may_sleep = until > now && rx.down.arm();
        if may_sleep {
            rx.sleepers += 1;
            // an edge wakes one, so the alarm is for one alone: who comes second sends the first to poll too
            let alone = rx.sleepers == 1 && !self.watched.load(Ordering::Relaxed);
            if rx.sleepers == 2 {
                self.kick.ring();
            }
            drop(rx);
            if alone {
                if self.alarm.wait(until - now, &self.down_bell) == Woken::Gone {
                    self.gone.store(true, Ordering::Relaxed);
                }
            } else {
                self.poll(until - now);
            }
            rx = lock(&self.rx);
            rx.sleepers -= 1;
            rx.spin.miss();
        }
        if rx.sleepers == 0 {
            self.planned_wake_ns.store(NEVER, Ordering::Relaxed);
            rx.down.disarm();
        }
        rx
    }

    fn poll(&self, ns: u64) {
        let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(1);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0) };
        let mut fds = [
            PollFd::new(&self.down_bell, PollFlags::IN),
            PollFd::new(&self.kick, PollFlags::IN),
            PollFd::new(&self.connection, PollFlags::RDHUP),
        ];
        if poll(&mut fds, Some(&timeout)).is_err() {
            // interrupted, or no memory for a moment: the caller looks at everything again
            return;
        }
        if fds[0].revents().contains(PollFlags::IN) {
            self.down_bell.take();
        }
        if fds[1].revents().contains(PollFlags::IN) {
            self.kick.take();
        }
        if !fds[2].revents().is_empty() {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    /// Notices a plane that has closed the connection.
    #[cold]
    fn look_at_socket(&self) {
        let mut fds = [PollFd::new(&self.connection, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0) {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    /// A descriptor that is readable when a receive is worth a call: for poll, select and epoll.
    ///
    /// It is kept true from [`Session::watch`] on. It may then also be readable when a resend is due or an RMPP packet came
    /// in, so that a receive without waiting may find nothing.
    pub fn pollable_fd(&self) -> BorrowedFd<'_> {
        self.readiness.fd()
    }

    /// Keeps [`Session::pollable_fd`] true outside receives from now on, at the price of system calls per receive.
    pub fn watch(&self) {
        let mut rx = lock(&self.rx);
        self.watched.store(true, Ordering::Relaxed);
        self.settle(&mut rx);
    }

    /// Makes the pollable descriptor say what is true now.
    fn settle(&self, rx: &mut Receiver) {
        let mut ready = self.fetch(rx);
        if !ready {
            self.down_bell.take();
            while !ready && !rx.down.arm() {
                ready = self.fetch(rx);
            }
        }
        if ready != rx.ready_shown {
            rx.ready_shown = ready;
            if ready {
                self.readiness.set_ready();
            } else {
                self.readiness.clear_ready();
            }
        }
        let mut core = lock(&self.core);
        let now = now_ns();
        core.transactions.stamp(now);
        self.readiness.arm_timer(core.next_due_ns(now));
    }

    /// Ends the session for all threads: blocked and later calls fail with `Gone`. Dropping the session frees it.
    pub fn close(&self) {
        self.gone.store(true, Ordering::Relaxed);
        let _ = rustix::net::shutdown(&self.connection, rustix::net::Shutdown::Both);
    }

    /// Whether the plane is gone or the session closed, as far as is known.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// Looks at the ring a few times without looking at the clock.
fn spin_blindly(rx: &mut Receiver) -> bool {
    for _ in 0..SPINS_PER_LOOK {
        if rx.down.is_ready() {
            rx.spin.hit();
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Shows the packet at the head, which is there, to `take`.
fn show_head<R>(rx: &mut Receiver, take: impl FnOnce(&Incoming<'_>) -> Taken<R>) -> R {
    let taken = match &rx.head {
        Head::Ring(agent) => {
            take(&Incoming { agent: *agent, status: 0, envelope: &rx.item.envelope, data: &rx.item.mad })
        }
        Head::Queued(delivery) => take(&Incoming {
            agent: delivery.agent,
            status: delivery.status,
            envelope: &delivery.envelope,
            data: delivery.body.bytes(),
        }),
        Head::None => unreachable!("the caller brought a packet to the head"),
    };
    match taken {
        Taken::Keep(result) => result,
        Taken::Done(result) => {
            rx.head = Head::None;
            result
        }
    }
}
