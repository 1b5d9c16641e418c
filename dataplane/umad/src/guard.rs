//! The border to C: errno, and no panic crosses it.
//!
//! Used by every exported function on the caller's thread. Invariant: code inside [`guarded`] may panic and the caller
//! sees the failure value with `errno` set to `EIO`. Not done here: no cancellation; a thread that is cancelled must
//! not be inside [`guarded`], so cancellation points stand outside (see `mad::recv`).

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Sets `errno` of this thread.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: glibc returns the address of this thread's own errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid for as long as the thread lives, and no other thread uses it.
    unsafe { *place = value };
}

/// `errno` of this thread.
#[cfg(test)]
pub(crate) fn errno() -> c_int {
    // SAFETY: glibc returns the address of this thread's own errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid for as long as the thread lives, and no other thread uses it.
    unsafe { *place }
}

/// Sets `errno` and returns its negative, as most functions of libibumad do.
pub(crate) fn negative(code: c_int) -> c_int {
    set_errno(code);
    -code
}

/// Runs `body`; a panic becomes `failed` with `errno` = `EIO`.
pub(crate) fn guarded<R>(failed: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        set_errno(libc::EIO);
        failed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_eio() {
        set_errno(0);
        assert_eq!(guarded(-5, || panic!("on purpose")), -5);
        assert_eq!(errno(), libc::EIO);
        assert_eq!(negative(libc::ENODEV), -19);
        assert_eq!(errno(), libc::ENODEV);
    }
}
