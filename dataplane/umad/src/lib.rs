//! A drop-in `libibumad.so.3` over a running plane, loaded with `LD_PRELOAD` by `madctl run`.
//!
//! It translates and does nothing else: what a program says to libibumad becomes calls of [`madplane_client`], what it reads
//! from sysfs becomes files written from live data. Transactions, timeouts and RMPP are the client crate's.
//!
//! | module | what |
//! |---|---|
//! | `exports` | the names and their versions |
//! | `abi` | the C structures |
//! | `device` | `umad_get_ca` and relatives |
//! | `ports`, `slots` | `umad_open_port`; what a portid is |
//! | `agent` | `umad_register` and relatives |
//! | `mad`, `address` | `umad_send`, `umad_recv`, and the header they translate |
//! | `text`, `dump` | names and printing |
//! | `plane`, `query`, `facts` | where we stand, and what the node says of itself |
//! | `tree`, `redirect`, `issm`, `interpose` | what programs see below `/sys/class/infiniband` and `/dev/infiniband` |
//!
//! **Threads.** Everything may be called from any thread; see `ports` for what is shared. There is no thread of our own and
//! nothing runs when the library is loaded.
//!
//! **Unsafe.** This crate is a border: pointers come from C programs. Each is checked for null and otherwise believed, as
//! the library it replaces does.
#![allow(unsafe_code)]
// unit tests do not export the replaced C library functions, so that the test programs keep their own
#![cfg_attr(test, allow(dead_code))]

mod abi;
mod address;
mod agent;
mod device;
mod dump;
mod exports;
mod facts;
mod guard;
mod hardware;
mod interpose;
mod issm;
mod mad;
mod plane;
mod ports;
mod query;
mod redirect;
mod slots;
mod text;
mod tree;
