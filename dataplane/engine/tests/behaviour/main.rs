//! Black-box behaviour of the fabric: everything goes in by `Shard::send` and comes out of a recording sink.
//!
//! Most tests run with one, two and six shards, since nobody may be able to tell the difference.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::type_complexity,
    reason = "helpers of tests fail like tests"
)]

mod external;
mod gmp;
mod links;
mod m_key;
mod pinned;
mod pma;
mod random;
mod sma;
mod tenants;
mod traps;
mod world;
