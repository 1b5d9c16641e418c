//! Why a call of this crate failed, and which errno a C caller of umad would see.
//!
//! Plain values, made on the calling thread. Invariant: every error has an `errno()` that is a valid Linux errno, the
//! one that the kernel's umad device gives in the same situation. Not here: any text longer than a line.

use std::io;

use madplane_shm::handoff::HandoffError;
use madplane_shm::session::PairError;
use rustix::io::Errno;

use crate::wait::WaitError;

/// A session could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The plane is not there, refused, or speaks another version.
    #[error(transparent)]
    Handoff(#[from] HandoffError),
    /// The memory that the plane handed over is not a session.
    #[error("cannot use the session memory")]
    Memory(#[from] PairError),
    /// The plane handed over another number of descriptors than a session has.
    #[error("the plane sent {0} descriptors, a session has 4")]
    Descriptors(usize),
    /// A selector longer than the message has room for.
    #[error("selector is longer than 160 bytes")]
    Selector,
    /// Not a name that a tenant can have.
    #[error("{0:?} is no name of a tenant: 1 to 31 letters, digits, '.', '_' and '-'")]
    Tenant(String),
    /// `MADPLANE_PATH` is not a path.
    #[error("MADPLANE_PATH={0} is no path: 1 to 63 ports from 1 to 255, such as 1,2,3")]
    Path(String),
    /// `MADPLANE_WAIT` is no way to wait.
    #[error("MADPLANE_WAIT: {0}")]
    Wait(#[from] WaitError),
    /// The plane does not bind the session to its path.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system has no descriptor or memory left.
    #[error("cannot create the descriptors of a session")]
    Io(#[from] io::Error),
}

impl OpenError {
    /// The errno for a C caller.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Handoff(error) => handoff_errno(error),
            Self::Memory(_) | Self::Descriptors(_) => Errno::PROTO.raw_os_error(),
            Self::Bind(error) => error.errno(),
            Self::Selector | Self::Tenant(_) | Self::Path(_) | Self::Wait(_) => Errno::INVAL.raw_os_error(),
            Self::Io(error) => error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        }
    }
}

fn handoff_errno(error: &HandoffError) -> i32 {
    match error {
        HandoffError::NotRunning { .. } => Errno::NODEV.raw_os_error(),
        HandoffError::Permission { .. } => Errno::ACCESS.raw_os_error(),
        HandoffError::Gone(_) => Errno::IO.raw_os_error(),
        HandoffError::Version { .. } => Errno::OPNOTSUPP.raw_os_error(),
        HandoffError::Refused { errno, .. } => *errno,
    }
}

/// A session was not bound to a path; it sends as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// A path has at most 63 ports.
    #[error("a path of {0} ports is longer than 63")]
    TooLong(usize),
    /// The plane refused; its words.
    #[error("{text}")]
    Refused {
        /// The errno of the plane.
        errno: i32,
        /// One line.
        text: String,
    },
    /// The plane stopped.
    #[error("the plane is gone")]
    Gone,
}

impl BindError {
    /// The errno for a C caller.
    pub fn errno(&self) -> i32 {
        match self {
            Self::TooLong(_) => Errno::INVAL.raw_os_error(),
            Self::Refused { errno, .. } => *errno,
            Self::Gone => Errno::PIPE.raw_os_error(),
        }
    }
}

/// An agent could not be registered or removed.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The session has 32 agents already.
    #[error("the session has 32 agents already")]
    TooMany,
    /// The class does not belong to the queue pair.
    #[error("class {mgmt_class:#04x} does not belong to QP{qpn}")]
    QueuePair {
        /// The class.
        mgmt_class: u8,
        /// The queue pair.
        qpn: u8,
    },
    /// RMPP asked for a class that has none, or in a version that does not exist.
    #[error("class {mgmt_class:#04x} has no RMPP version {rmpp_version}")]
    Rmpp {
        /// The class.
        mgmt_class: u8,
        /// The version.
        rmpp_version: u8,
    },
    /// A class of vendor range 2 needs an OUI.
    #[error("class {0:#04x} needs an OUI")]
    NoOui(u8),
    /// No such agent.
    #[error("agent {0} is not registered")]
    NoSuchAgent(u32),
    /// The plane refused; its words.
    #[error("{text}")]
    Refused {
        /// The errno of the plane.
        errno: i32,
        /// One line.
        text: String,
    },
    /// The plane stopped.
    #[error("the plane is gone")]
    Gone,
}

impl RegisterError {
    /// The errno for a C caller.
    pub fn errno(&self) -> i32 {
        match self {
            Self::TooMany => Errno::NOMEM.raw_os_error(),
            Self::QueuePair { .. } | Self::Rmpp { .. } | Self::NoOui(_) | Self::NoSuchAgent(_) => {
                Errno::INVAL.raw_os_error()
            }
            Self::Refused { errno, .. } => *errno,
            Self::Gone => Errno::PIPE.raw_os_error(),
        }
    }
}

/// A MAD was not sent; nothing of it is outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Agent numbers are 0 to 31.
    #[error("there is no agent {0}")]
    InvalidAgent(u32),
    /// The agent is not registered.
    #[error("agent {0} is not registered")]
    UnknownAgent(u32),
    /// Shorter than a MAD header and an RMPP header.
    #[error("{0} bytes are shorter than the 36 bytes of a MAD header and an RMPP header")]
    TooShort(usize),
    /// Longer than a MAD, and not a message for RMPP.
    #[error("{0} bytes are longer than the plane can carry")]
    TooLong(usize),
    /// A request with the same TID and class is outstanding.
    #[error("a request with this TID and class is outstanding")]
    DuplicateTid,
    /// The plane has not taken anything from the ring for a while.
    #[error("the ring to the plane is full")]
    Full,
    /// More requests or transfers outstanding than this library keeps.
    #[error("too many requests outstanding")]
    TooManyOutstanding,
    /// The plane stopped.
    #[error("the plane is gone")]
    Gone,
}

impl SendError {
    /// The errno for a C caller.
    pub fn errno(&self) -> i32 {
        match self {
            Self::InvalidAgent(_) | Self::TooShort(_) | Self::TooLong(_) | Self::DuplicateTid => {
                Errno::INVAL.raw_os_error()
            }
            Self::UnknownAgent(_) | Self::Gone => Errno::IO.raw_os_error(),
            Self::Full => Errno::AGAIN.raw_os_error(),
            Self::TooManyOutstanding => Errno::NOMEM.raw_os_error(),
        }
    }
}

/// Nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// The time is over.
    #[error("nothing arrived in time")]
    TimedOut,
    /// The plane stopped, and everything that had arrived has been received.
    #[error("the plane is gone")]
    Gone,
}

impl RecvError {
    /// The errno for a C caller.
    pub fn errno(&self) -> i32 {
        match self {
            Self::TimedOut => Errno::TIMEDOUT.raw_os_error(),
            Self::Gone => Errno::IO.raw_os_error(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_are_those_of_the_kernel_device() {
        assert_eq!(SendError::DuplicateTid.errno(), 22);
        assert_eq!(SendError::InvalidAgent(32).errno(), 22);
        assert_eq!(SendError::UnknownAgent(3).errno(), 5);
        assert_eq!(SendError::Gone.errno(), 5);
        assert_eq!(RecvError::TimedOut.errno(), 110);
        assert_eq!(RegisterError::TooMany.errno(), 12);
        assert_eq!(RegisterError::Gone.errno(), 32);
        assert_eq!(OpenError::Selector.errno(), 22);
        let refused = HandoffError::Refused { errno: 13, text: String::new() };
        assert_eq!(OpenError::from(refused).errno(), 13);
    }
}
