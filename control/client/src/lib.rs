//! The control client of madplane: look into a plane, and ask its control daemon for changes.
//!
//! `madctl` is a program over this library; what it shows and does is a function here.
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
