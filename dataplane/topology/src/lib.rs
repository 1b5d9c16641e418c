//! Fabric topologies as data: text in, graph out, and back.
//!
//! Pure functions over owned values; any thread may call them. What a [`Topology`] holds has been checked: every link
//! names two existing ports and both ends agree. Nothing here opens files or knows what a MAD is.
#![forbid(unsafe_code)]

mod check;
mod emit;
mod find;
mod fuzz;
mod generate;
mod graph;
mod lex;
mod parse;
mod rate;
mod split;
mod suggest;

pub use check::{Island, RateCount, Report, check, islands};
pub use emit::to_ibnetdiscover;
pub use find::{FindError, find_node, parse_endpoint};
#[doc(hidden)]
pub use fuzz::fuzz_parse;
pub use generate::{
    DEFAULT_RATE, DragonflyPlus, FatTree, GenerateError, Hypercube, KINDS, Random, Ring, Torus, from_spec,
    generate,
};
pub use graph::{
    DEFAULT_VENDOR_ID, LinkSpeed, LinkWidth, MAX_NODES, Name, Node, NodeKind, Port, PortRef, Topology,
};
pub use parse::{Diagnostic, Loader, ParseError, ParseOptions, Parsed, parse};
pub use split::{CutLink, Split, SplitError, split};
