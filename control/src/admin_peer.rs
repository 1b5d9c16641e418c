//! One admin client of madctld: its bytes both ways, its rights, its commands under way.
//!
//! Owned by the reactor's thread; never blocks. Reads stop while the client does not take its replies, so that a client
//! which only talks holds a bounded amount of memory and nobody else up.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::io::Errno;

use crate::admin::{LineBuffer, LineTooLong};
use crate::poller::{Interest, Poller};

/// Bytes of replies kept for a client before its requests wait.
const MAX_UNSENT_BYTES: usize = 64 * 1024;
/// Bytes read at one time: fairness between clients.
const READ_BYTES: usize = 16 * 1024;

/// What a client has for us.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// Nothing now.
    Idle,
    /// It has gone, and everything it was owed is sent.
    Finished,
    /// It sent a line that is too long; it is closed once it has been told.
    TooLong(LineTooLong),
    /// A line.
    Line(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct AdminPeer {
    stream: UnixStream,
    token: u64,
    input: LineBuffer,
    output: Vec<u8>,
    interest: Interest,
    /// No more input is wanted or will come.
    deaf: bool,
    /// Writing failed: nobody is there.
    broken: bool,
    may_change: bool,
    under_way: usize,
    last_heard: Instant,
}

impl AdminPeer {
    pub(crate) fn new(
        stream: UnixStream,
        token: u64,
        own_uid: u32,
        poller: &Poller,
        now: Instant,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let uid = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
        poller.add(&stream, token, Interest::READ)?;
        Ok(Self {
            stream,
            token,
            input: LineBuffer::default(),
            output: Vec::new(),
            interest: Interest::READ,
            deaf: false,
            broken: false,
            may_change: uid == 0 || uid == own_uid,
            under_way: 0,
            last_heard: now,
        })
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(crate) fn may_change(&self) -> bool {
        self.may_change
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn command_given(&mut self) {
        self.under_way += 1;
    }

    pub(crate) fn command_answered(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// The lowest rank is closed first when there are too many: idle ones before busy ones, then by silence.
    pub(crate) fn rank(&self) -> (bool, Instant) {
        (self.under_way > 0, self.last_heard)
    }

    /// Reads what is there, up to a bound.
    pub(crate) fn fill(&mut self, now: Instant) {
        if self.deaf {
            return;
        }
        let mut bytes = [0u8; READ_BYTES];
        match rustix::io::read(&self.stream, &mut bytes) {
            Ok(0) => self.deaf = true,
            Ok(count) => {
                self.input.extend(&bytes[..count]);
                self.last_heard = now;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                self.deaf = true;
                self.broken = true;
            }
        }
    }

    /// Whether more input may come.
    pub(crate) fn has_input(&self) -> bool {
        !self.deaf
    }

    pub(crate) fn next_request(&mut self) -> PeerState {
        if self.output.len() > MAX_UNSENT_BYTES && !self.broken {
            return PeerState::Idle;
        }
        match self.input.next_line() {
            Ok(Some(line)) => return PeerState::Line(line),
            Ok(None) => {}
            Err(error) => {
                self.deaf = true;
                self.input = LineBuffer::default();
                return PeerState::TooLong(error);
            }
        }
        if self.deaf
            && let Some(line) = self.input.take_rest()
        {
            return PeerState::Line(line);
        }
        if self.is_finished() { PeerState::Finished } else { PeerState::Idle }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.broken || (self.deaf && self.under_way == 0 && self.output.is_empty())
    }

    /// Sends a line, or keeps it until there is room.
    pub(crate) fn reply(&mut self, line: &[u8]) {
        self.output.extend_from_slice(line);
        self.flush();
    }

    /// Sends what is kept, as far as there is room.
    pub(crate) fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.output.len() {
            match rustix::net::send(&self.stream, &self.output[sent..], rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.broken = true;
                    self.deaf = true;
                    sent = self.output.len();
                }
            }
        }
        self.output.drain(..sent);
    }

    /// Tells the poller what this client is waited for now.
    pub(crate) fn update_interest(&mut self, poller: &Poller) -> io::Result<()> {
        let wanted = Interest {
            read: !self.deaf && self.output.len() <= MAX_UNSENT_BYTES,
            write: !self.output.is_empty(),
        };
        if wanted != self.interest {
            poller.change(&self.stream, self.token, wanted)?;
            self.interest = wanted;
        }
        Ok(())
    }
}
