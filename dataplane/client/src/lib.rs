//! Attach to a running plane, register agents, send and receive MADs.
//!
//! | module | what |
//! |---|---|
//! | [`Session`] | one attachment with the rules of the Linux umad device: TIDs, matching, timeouts, retries, RMPP |
//! | [`RawSession`] | one attachment without any rule: what goes in comes out; for load generators and least latency |
//! | [`rmpp`] | the RMPP state machine by itself, without I/O and clock |
//! | `ffi` | the C functions of `include/madclient.h`, with the feature `c-api` |
//!
//! **Who makes progress.** There is no background thread. Acknowledgements, retries and timeouts are dealt with whenever a
//! call enters the library, above all in [`Session::recv_with`]. A program that waits with poll(2) by itself calls
//! [`Session::watch`] once; from then on [`Session::pollable_fd`] becomes readable also when a timer needs a call.
//!
//! **Sharing.** A [`Session`] may be used by several threads: one may be blocked in a receive while others send. A
//! [`RawSession`] belongs to one thread, its two halves to one thread each.
//!
//! **Tenants.** A session attaches as a tenant of the plane ([`SessionOptions::tenant`], or `MADPLANE_TENANT`), and may have a
//! path of its own ([`Session::bind_path`], or `MADPLANE_PATH`).
//!
//! What it does not do: simulate anything, or interpret a MAD beyond header and RMPP header.
#![deny(unsafe_code)]

mod agents;
mod alarm;
mod attach;
mod clock;
mod core;
mod error;
#[cfg(feature = "c-api")]
#[allow(unsafe_code)]
pub mod ffi;
mod identity;
mod raw;
mod readiness;
pub mod rmpp;
mod session;
mod traffic;
mod transactions;
mod wait;

pub use agents::{AgentSpec, MAX_AGENTS};
pub use attach::SessionInfo;
pub use error::{BindError, OpenError, RecvError, RegisterError, SendError};
pub use identity::{OwnPath, PATH_VARIABLE, TENANT_VARIABLE, TenantName};
pub use madplane_shm::message::{Envelope, MAD_LEN, MadMessage, flag, kind};
pub use madplane_shm::paths::PlanePaths;
pub use madplane_shm::ring::RingFull;
pub use raw::{RawReceiver, RawSender, RawSession};
pub use session::{Session, SessionOptions};
pub use traffic::{Incoming, Outgoing, Stats, Taken};
pub use wait::{WAIT_VARIABLE, WaitError, WaitPolicy};

/// Status of a request that came back because no response arrived in time (`ETIMEDOUT`).
pub const STATUS_TIMED_OUT: u32 = 110;
