//! The control client of madplane: look into a plane, and ask its control daemon for changes.
#![deny(unsafe_code)]

pub mod admin;
pub mod daemons;
pub mod fabric;
pub mod nearest;
pub mod protocol;
pub mod route;
pub mod tenant;
