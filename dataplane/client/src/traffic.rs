//! What goes in and out of a session, and its counts.
//!
//! Plain values, made and read on the caller's thread. Invariant: the slices of [`Incoming`] are valid only while it is
//! shown. What it does not do: anything.

use madplane_shm::message::Envelope;

/// What a session has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// MADs given to the plane, resent ones and RMPP packets not counted.
    pub sent: u64,
    /// MADs and messages given to the program, timeouts not counted.
    pub received: u64,
    /// MADs sent again because no response came.
    pub resent: u64,
    /// Requests that came back as timed out.
    pub timed_out: u64,
    /// Sends refused because the TID is outstanding.
    pub duplicate_tid: u64,
    /// Responses for which no request waits, late ones included.
    pub dropped_unmatched: u64,
    /// MADs for an agent that is not registered (any more).
    pub dropped_no_agent: u64,
    /// Items of the ring that are no MADs.
    pub dropped_foreign: u64,
}

/// A MAD to send.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Index of the sending agent.
    pub agent: u32,
    /// Address; `kind`, `agent` and `length` are filled in by the session.
    pub envelope: Envelope,
    /// At least 36 bytes; fewer than 256 are padded with zeros. Longer only for RMPP: headers once, then all data.
    pub data: &'a [u8],
    /// Time to wait for a response per attempt; 0 for a MAD that has none.
    pub timeout_ms: u32,
    /// Attempts after the first.
    pub retries: u32,
}

/// A packet at the head of a session.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'a> {
    /// Index of the agent it is for.
    pub agent: u32,
    /// 0, or [`STATUS_TIMED_OUT`](crate::STATUS_TIMED_OUT) for a request that comes back.
    pub status: u32,
    /// Where it came from; for a request that comes back, as it was sent.
    pub envelope: &'a Envelope,
    /// 256 bytes; the 24-byte header of a request that comes back; or a whole reassembled message.
    pub data: &'a [u8],
}

/// What to do with the packet at the head after looking at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken<R> {
    /// Leave it: the next receive sees it again.
    Keep(R),
    /// It is done with.
    Done(R),
}
