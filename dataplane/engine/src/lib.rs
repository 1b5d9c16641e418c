//! Skeleton.
#![forbid(unsafe_code)]
