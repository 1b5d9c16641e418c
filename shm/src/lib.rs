//! What the processes of madplane agree on, byte for byte.
//!
//! A program belongs here if two processes would disagree were one of them rebuilt with another value: segment
//! layouts, ring slots, attach messages, counter and drop numbers. `LAYOUT.md` draws every segment.
//!
//! | segment | module | writer | readers |
//! |---|---|---|---|
//! | status | [`status`] | madplaned | anyone |
//! | table: routes, tenants | [`table`], [`seqlock`] | madctld | anyone |
//! | routes | [`route_counters`] | madplaned | anyone |
//! | session up | [`session`] | the client | madplaned |
//! | session down | [`session`] | madplaned | the client |
//! | commands | [`session`], [`command`] | madctld | madplaned |
//! | events | [`session`], [`command`] | madplaned | madctld |
//!
//! Invariants: every mapped page has one writing process; a version word is stored last and checked first; every
//! length is compared with the size of one's own mapping; bytes of a peer are copied before they are looked at.
//!
//! Not here: what a MAD means, when anything is done, and who may do it.
#![deny(unsafe_code)]

pub mod command;
pub mod counters;
pub mod doorbell;
pub mod drop_reason;
pub mod errors;
pub mod handoff;
pub mod header;
pub mod latency;
pub mod layout;
pub mod links;
pub mod map;
pub mod message;
pub mod paths;
pub mod process;
pub mod ring;
pub mod route_counters;
pub mod seqlock;
pub mod session;
pub mod stage;
pub mod status;
pub mod sync;
pub mod table;
pub mod text;
pub mod tuning;

/// Version of every layout in this crate. It grows whenever a golden listing in `tests/golden/` changes.
pub const LAYOUT_VERSION: u32 = 6;
