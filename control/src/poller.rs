//! Readiness of descriptors: epoll with numbered sources.
//!
//! Owned by the reactor's thread. A source that shares its open file with another process (a doorbell) has to be
//! removed before it is closed: the kernel forgets it only when *every* holder has closed it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::sys;

/// What a source is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// Wake when it can be read.
    pub read: bool,
    /// Wake when it can be written.
    pub write: bool,
}

impl Interest {
    /// Only reading.
    pub const READ: Self = Self { read: true, write: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

/// What happened to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The number given when it was added.
    pub source: u64,
    /// It can be read, or its peer has closed.
    pub read: bool,
    /// It can be written.
    pub write: bool,
    /// Both directions are closed, or it failed.
    pub closed: bool,
}

/// A set of sources to sleep on.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Poller {
    /// Makes an empty set.
    ///
    /// # Errors
    /// As epoll_create1(2).
    pub fn create() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, events: Vec::with_capacity(64) })
    }

    /// Adds a source under a number.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn add(&self, fd: impl AsFd, source: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(source), interest.flags())?)
    }

    /// Changes what a source is waited for.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn change(&self, fd: impl AsFd, source: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(source), interest.flags())?)
    }

    /// Removes a source; one that is not there is no matter.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sleeps until a source is ready or `limit` is over; `None` sleeps for as long as it takes.
    ///
    /// # Errors
    /// As epoll_wait(2). A signal ends the sleep without an error.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<Vec<Ready>> {
        self.events.clear();
        let limit = limit.map(sys::timespec);
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let told = self.events.iter().map(|event| {
            let flags = event.flags;
            Ready {
                source: event.data.u64(),
                read: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
                write: flags.contains(EventFlags::OUT),
                closed: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            }
        });
        Ok(told.collect())
    }
}
