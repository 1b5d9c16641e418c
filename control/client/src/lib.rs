//! The control client of madplane: look into a plane, and ask its control daemon for changes.
//!
//! `madctl` is a program over this library. What it shows is a value of [`view`], which serializes to what `madctl --format
//! json` prints; what it changes is a call of [`AdminClient`].
//!
//! | to | begin with | needs |
//! |---|---|---|
//! | look: state, workers, sessions, counters, latency, errors, routes, tenants | [`Plane::view`] | the segments only; both daemons may be dead or hang |
//! | change: routes, tenants, links, nodes, paths of sessions | [`Plane::admin`] | madctld, and the rights that it asks for |
//! | find a path, follow a route, check all routes | [`Plane::compile`], [`Plane::trace`], [`Plane::check`] | the segments; the plane for LIDs and port states |
//! | read files of routes and tenants | [`Plane::read_routes`], [`tenant`] | |
//!
//! ```no_run
//! use madctl::{Plane, RawRoute, Route};
//!
//! let plane = Plane::open("default")?;
//! let route = Route::try_from(RawRoute::new(0x11, 0x22, &[1, 2, 3]))?;
//! let done = plane.admin()?.routes_add(&route, false, true)?;
//! println!("with {} workers after {:?} ns", done.workers, done.hw_sync_latency_ns);
//!
//! let mut view = plane.view();
//! for route in view.routes()?.routes {
//!     println!("{:#06x} -> {:#06x}: {} packets", route.slid, route.dlid, route.packets);
//! }
//! for drop in view.counters(None, false)?.drops {
//!     println!("{}: {}", drop.name, drop.value);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **C and what calls C.** The same as functions in `include/madctl.h` ([`ffi`]), from `libmadctl.so`, which this crate builds,
//! too. `examples/` has a program each in Rust, C and Python.
//!
//! **Threads and waiting.** A [`Plane`] is a value, any thread; a [`View`] and an [`AdminClient`] belong to one thread at a
//! time. Looking never waits for a daemon; an admin call waits for [`ANSWER_WITHIN`] at most. There is no background thread.
//!
//! What it does not do: start and stop daemons, send MADs for its caller (that is madplane-client), or keep history.
#![deny(unsafe_code)]

pub mod admin;
pub mod daemons;
pub mod fabric;
#[allow(unsafe_code)]
pub mod ffi;
pub mod nearest;
mod plane;
pub mod protocol;
pub mod route;
pub mod route_file;
pub mod show;
pub mod tenant;
pub mod view;

pub use admin::{AdminClient, AdminError};
pub use madplane_shm::paths::{NameError, PlanePaths};
pub use plane::{ANSWER_WITHIN, Plane};
pub use route::{Key, OnBroken, PathSpec, RawRoute, Route, RouteError, Written};
pub use tenant::{RawTenant, Tenant};
pub use view::{LookError, View};
