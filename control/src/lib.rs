//! The control side of madplane: the daemon madctld and the operator's command madctl.
//!
//! madctld sleeps until something happens and is never on the path of a packet: killing it harms nothing, a restarted
//! one opens the control channel again. Everything it does is a function of this crate; the binaries read arguments
//! and set exit codes.
//!
//! | what happens | who notices | what follows |
//! |---|---|---|
//! | a line on the admin socket | [`reactor`] | [`admin`] reads it, [`plane_link`] gives a command to the plane |
//! | an event of the plane | [`reactor`], by its doorbell | the waiting client is answered, or a line is logged |
//! | the plane dies | [`reactor`], by the socket | waiting clients are told at once; the link is tried again |
//! | the plane's socket appears | [`reactor`], by inotify | the link is tried at once |
//! | routes are changed | [`reactor`] | [`route_desk`] changes [`routes`], publishes in batches, waits for the workers |
//! | SIGHUP | [`reactor`], by a pipe | the plane is looked for again |
//! | a turn ends | [`manager`] | a service manager hears that madctld is well |
//! | SIGTERM, SIGINT | [`reactor`], by a pipe | orderly end |
//!
//! One thread, no locks. Arrows point to the right only: cli → spawn → config, sys; reactor → admin, plane_link,
//! route_desk → publish → routes, tenants → places, poller. What a client needs, madctl like any other, is the crate [`madctl`]: admin client,
//! who runs, routes as they are written, the fabric. Not here: anything a MAD means, and the state of nodes, which belongs
//! to the fabric.
#![deny(unsafe_code)]

pub mod admin;
mod admin_peer;
pub mod admin_routes;
pub mod admin_tenants;
pub mod admin_tuning;
pub mod answer;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod file_part;
pub mod link_list;
pub mod manager;
pub mod places;
pub mod plane_link;
pub mod poller;
pub mod publish;
pub mod reactor;
pub mod route_desk;
pub mod routes;
pub mod spawn;
pub mod sys;
pub mod tenants;

/// The control client, at the paths where its parts used to be.
pub use madctl::{
    admin as admin_client, fabric::lids as fabric_lids, fabric::path as fabric_path,
    fabric::view as fabric_view, nearest,
};
