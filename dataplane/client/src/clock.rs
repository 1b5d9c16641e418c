//! The monotonic clock, in nanoseconds.
//!
//! One free function, any thread; a vDSO read, no system call. The coarse clock would be cheaper, but was seen to lag by
//! 32 ms on a busy virtual machine whose tick is 4 ms, which would make timeouts come early; so the hot path reads no
//! clock at all instead (see the `transactions` module).

pub(crate) use madplane_shm::process::monotonic_ns as now_ns;
