//! Fabric topologies as data: text in, graph out, and back.
//!
//! Pure functions over owned values; any thread may call them. What a [`Topology`] holds has been checked: every link
//! names two existing ports and both ends agree. Nothing here opens files or knows what a MAD is.
#![forbid(unsafe_code)]

mod graph;

pub use graph::{LinkSpeed, LinkWidth, Node, NodeKind, Port, PortRef, Topology};
