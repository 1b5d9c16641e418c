//! Queue pairs over verbs: the one place that talks to libibverbs.
//!
//! Feature `verbs`, off by default. A queue pair is owned by one worker and called from its thread only; opening, closing and
//! opening again allocate and call the system, moving MADs does neither: poll mode looks at the completion queue in memory
//! and rings the device's doorbell once a burst.
//!
//! | module | holds |
//! |---|---|
//! | [`library`] | libibverbs.so.1, found at run time |
//! | `context` | what is opened, each closed by its `Drop`: context, protection domain, completion queue, queue pair |
//! | `region` | registered memory, on huge pages where there are any |
//! | `handles` | address handles, a bounded number |
//! | `queue` | the UD queue: fixed slots, batched posting, completions |
//! | [`mad_port`] | MADs over it: [`MadPort`] |
//! | [`datagrams`] | frames of a link over it: [`UdDatagrams`] |
//! | [`links`] | who opens these, keeps them open, and learns who is at the other end |
//!
//! The data path calls (`post_send`, `post_recv`, `poll_cq`, `req_notify_cq`) are no symbols of the library; they go through the
//! table in the context, as the inline functions of its header do. It does not do SMPs: those need QP0, which user space
//! reaches through the kernel's device only ([`crate::umad_dev`]).
#![allow(unsafe_code, reason = "FFI with libibverbs; what is unsafe ends at this module")]

mod context;
pub mod datagrams;
mod handles;
pub mod library;
pub mod links;
pub mod mad_port;
mod queue;
mod region;

pub use context::{Moderation, PortEvent, devices};
pub use datagrams::UdDatagrams;
pub use mad_port::MadPort;
pub use queue::{QueueCounters, QueueSettings};
