//! What the processes of madplane agree on, byte for byte.

pub mod drop_reason;
