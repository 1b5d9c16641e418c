//! An attachment without rules: what goes in comes out. For load generators and for the least latency.
//!
//! One thread owns a [`RawSession`]; [`RawSession::split`] gives each direction to a thread of its own. Invariants: neither
//! sending nor receiving allocates, takes a lock, or makes a system call, except to ring for a worker that sleeps and to
//! sleep ([`RawReceiver::wait`], one call). What it does not do: fill in TIDs or agents, match, time out, resend, reassemble.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::Connection;
use madplane_shm::message::MadMessage;
use madplane_shm::paths::PlanePaths;
use madplane_shm::ring::RingFull;
use madplane_shm::session::{SharedConsumer, SharedProducer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agents::AgentSpec;
use crate::alarm::Alarm;
use crate::attach::{SessionInfo, attach, call_register};
use crate::error::{OpenError, RegisterError};
use crate::identity::{OwnPath, TenantName};
use crate::wait::LONGEST_SLEEP;

/// Both directions of an attachment.
#[derive(Debug)]
pub struct RawSession {
    info: SessionInfo,
    sender: RawSender,
    receiver: RawReceiver,
}

/// The direction to the plane.
#[derive(Debug)]
pub struct RawSender {
    up: SharedProducer<MadMessage>,
    bell: Doorbell,
    connection: Arc<Connection>,
}

/// The direction from the plane.
#[derive(Debug)]
pub struct RawReceiver {
    down: SharedConsumer<MadMessage>,
    bell: Doorbell,
    alarm: Alarm,
    connection: Arc<Connection>,
}

impl RawSession {
    /// Attaches as [`Session::open`](crate::Session::open) does; `slots` is a power of two or 0 for the plane's default.
    /// Tenant and path are those of the environment.
    ///
    /// # Errors
    /// As there.
    pub fn open(paths: &PlanePaths, selector: &str, slots: u32) -> Result<Self, OpenError> {
        Self::open_as(paths, selector, slots, TenantName::default())
    }

    /// [`RawSession::open`] as a tenant.
    ///
    /// # Errors
    /// As there.
    pub fn open_as(
        paths: &PlanePaths,
        selector: &str,
        slots: u32,
        tenant: TenantName,
    ) -> Result<Self, OpenError> {
        let attached = attach(paths, selector, slots, tenant, OwnPath::Environment)?;
        let connection = Arc::new(attached.connection);
        let alarm =
            Alarm::create(&[&attached.down_bell], connection.as_fd()).map_err(std::io::Error::from)?;
        Ok(Self {
            info: attached.info,
            sender: RawSender {
                up: attached.ends.up,
                bell: attached.up_bell,
                connection: connection.clone(),
            },
            receiver: RawReceiver { down: attached.ends.down, bell: attached.down_bell, alarm, connection },
        })
    }

    /// Where the session is attached.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Registers an agent; returns its `hi_tid`, which goes into `envelope.agent` and bits 63:32 of request TIDs.
    ///
    /// # Errors
    /// As [`Session::register`](crate::Session::register).
    pub fn register(&mut self, spec: &AgentSpec) -> Result<u32, RegisterError> {
        spec.check()?;
        call_register(&self.sender.connection, spec)
    }

    /// See [`RawSender::send`].
    ///
    /// # Errors
    /// [`RingFull`].
    pub fn send(&mut self, message: &MadMessage) -> Result<(), RingFull> {
        self.sender.send(message)
    }

    /// See [`RawReceiver::try_recv`].
    pub fn try_recv(&mut self, message: &mut MadMessage) -> bool {
        self.receiver.try_recv(message)
    }

    /// The two directions, for two threads. The session ends when both are dropped.
    pub fn split(self) -> (RawSender, RawReceiver) {
        (self.sender, self.receiver)
    }
}

impl RawSender {
    /// Puts one message into the ring and rings if the worker sleeps.
    ///
    /// # Errors
    /// [`RingFull`].
    pub fn send(&mut self, message: &MadMessage) -> Result<(), RingFull> {
        self.up.push(message)?;
        self.flush();
        Ok(())
    }

    /// Puts one message into the ring; call [`RawSender::flush`] after a burst.
    ///
    /// # Errors
    /// [`RingFull`].
    pub fn push(&mut self, message: &MadMessage) -> Result<(), RingFull> {
        self.up.push(message)
    }

    /// Rings if the worker sleeps.
    pub fn flush(&mut self) {
        if self.up.wake_due() {
            self.bell.ring();
        }
    }

    /// Whether the plane has closed the connection; a system call.
    pub fn is_gone(&self) -> bool {
        is_gone(&self.connection)
    }
}

impl RawReceiver {
    /// Copies the next message out; false if there is none.
    pub fn try_recv(&mut self, message: &mut MadMessage) -> bool {
        let got = self.down.pop(message);
        if !got {
            self.down.commit();
        }
        got
    }

    /// Whether a message is there.
    pub fn is_ready(&self) -> bool {
        self.down.is_ready()
    }

    /// Sleeps until a message is there, for `longest` and a tenth of a second at most; whether one is there. One system call,
    /// none if a message was there already. Where the plane has gone it returns at once: see [`RawReceiver::is_gone`].
    pub fn wait(&mut self, longest: Duration) -> bool {
        self.down.commit();
        if self.down.arm() {
            let ns = u64::try_from(longest.min(LONGEST_SLEEP).as_nanos()).unwrap_or(u64::MAX);
            self.alarm.wait(ns, &self.bell);
            self.down.disarm();
        }
        self.down.is_ready()
    }

    /// Prepares for waiting on [`RawReceiver::doorbell`]; false if a message has arrived meanwhile.
    pub fn arm(&mut self) -> bool {
        self.down.commit();
        self.bell.take();
        self.down.arm()
    }

    /// Ends waiting.
    pub fn disarm(&mut self) {
        self.down.disarm();
    }

    /// Readable when a message arrived after [`RawReceiver::arm`].
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether the plane has closed the connection; a system call.
    pub fn is_gone(&self) -> bool {
        is_gone(&self.connection)
    }
}

fn is_gone(connection: &Connection) -> bool {
    let mut fds = [PollFd::new(connection, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
