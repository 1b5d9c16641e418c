//! The only door to atomics: the real ones, or loom's under `cfg(loom)`.
//!
//! Code of this crate takes [`AtomicU32`], [`AtomicU64`], [`fence`] and [`Ordering`] from here, so that the ring and the
//! sequence lock can be model-checked without a second copy of the algorithm.

pub use core::sync::atomic::Ordering;

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
