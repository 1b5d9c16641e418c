//! The only door to atomics: the real ones, or loom's under `cfg(loom)`.
//!
//! Whoever shares memory takes atomics, [`fence`] and [`Ordering`] from here, so that an algorithm can be model-checked
//! without a second copy of it. `scripts/check-layers` refuses others.

pub use core::sync::atomic::Ordering;

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
