//! Measures the plane from outside and from inside, and judges what it measured.
//!
//! | module | what |
//! |---|---|
//! | [`harness`] | distributions, rounds, spread; check first, warm up, interleave |
//! | [`report`] | result lines (JSON) and their table; comparison of two files |
//! | [`hdr_log`] | the distributions as an HdrHistogram log |
//! | [`machine`] | what the numbers were measured on; placing threads |
//! | [`scenario`] | the list of what can be run |
//! | [`stint`] | how long one thing is measured |
//! | [`check`] | the bars of the project against results |
//! | [`plane`], [`ibsim`], [`programs`], [`process`] | the programs that are measured, started and stopped |
//! | [`fabrics`] | fabrics, their netfiles, directed routes of a wanted length |
//! | [`subnet`], [`by_lid`] | LIDs and forwarding tables programmed, clients that ask by LID |
//! | [`tables`], [`ways`] | a route table written by the measuring process; ways of a request by LID |
//! | [`load`], [`open_loop`] | clients that check every answer: one at a time, many in flight, or at a rate whatever comes back |
//! | [`solo`] | a worker driven on the caller's thread, without a second core |
//! | [`floor`], [`raw`], [`libibmad`], [`bringup`], [`pinned`], [`table`], [`reserved`], [`route_types`], [`modes`], [`peers`], [`throughput`], [`rings`], [`seqlock`], [`engine`] | the scenarios |
//! | [`ffi`] | the stock libibmad, loaded at run time |
//! | [`count_alloc`] | an allocator that counts |
//!
//! Invariants: a number is reported only if the answers behind it were right; two things are compared only when they took
//! turns in one run; no scenario leaves a process behind. What it does not do: tune the machine, or hide a bad run.
#![deny(unsafe_code)]

pub mod bringup;
pub mod by_lid;
pub mod check;
pub mod count_alloc;
pub mod engine;
pub mod error;
pub mod fabrics;
pub mod ffi;
pub mod floor;
pub mod harness;
pub mod hdr_log;
pub mod ibsim;
pub mod libibmad;
pub mod load;
pub mod machine;
pub mod modes;
pub mod open_loop;
pub mod page;
pub mod peers;
pub mod pinned;
pub mod plane;
pub mod process;
pub mod programs;
pub mod raw;
pub mod report;
pub mod reserved;
pub mod rings;
pub mod route_types;
pub mod scenario;
pub mod seqlock;
pub mod solo;
pub mod stint;
pub mod subnet;
pub mod table;
pub mod tables;
pub mod throughput;
pub mod ways;

pub use error::BenchError;
