//! The daemon: workers that poll, or sleep until they are rung for, and one housekeeping thread that mostly sleeps.
//!
//! [`plane::Plane::start`] builds the fabric, shows the status segment, starts the workers and serves the attach socket.
//! `DESIGN.md` beside this crate describes threads, duty cycle and what happens when something dies.
//!
//! | thread | owns | talks to others by |
//! |---|---|---|
//! | `madplane-w0`, … | one [`worker::Worker`]: a shard of the fabric, session rings, agents | [`mesh`] rings between workers; an order and a report ring to housekeeping; [`notices`] to it; a [`sleep::WorkerBell`] each |
//! | housekeeping (the thread that calls [`plane::Plane::serve`]) | sockets, descriptors, session numbers, the topology, who may be which tenant | orders to workers, events to control |
//!
//! | shared between threads | who writes | who reads | ordering |
//! |---|---|---|---|
//! | status segment, worker block | that worker | anyone | relaxed words, see `shm/src/status.rs` |
//! | status segment, session counts | the worker that serves it | anyone | relaxed |
//! | everything else in the status segment | housekeeping | anyone | relaxed |
//! | [`acl::Meters`], the rates of tenants | any worker | any worker | relaxed |
//! | rings | one producer, one consumer | | `ringbuf`'s own |
//!
//! Not here: what a MAD means (`madplane-engine`), where the bytes of a ring lie (`madplane-shm`), what an operator wants
//! (`madplane-control`).
#![forbid(unsafe_code)]

pub mod acl;
pub mod agents;
pub mod attach;
pub mod config;
pub mod cores;
pub mod devices;
pub mod egress;
#[doc(hidden)]
pub mod fuzz;
pub mod idle;
pub mod links;
pub mod memory;
pub mod mesh;
pub mod notices;
pub mod orders;
pub mod plane;
pub mod route_view;
pub mod service;
pub mod sessions;
pub mod sleep;
pub mod telemetry;
pub mod worker;
