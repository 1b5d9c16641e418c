//! Functions that wait for descriptors: one of ours is watched by its session from then on.
//!
//! A portid is a descriptor, and some programs poll it as it is. The descriptor tells the truth only after the session was
//! told that it is being watched, which these functions do before they wait. While every open port is watched, or none
//! is open, they look at one word and go on.

use std::ffi::{c_int, c_void};

use super::real::real;
use crate::guard::{guarded, set_errno};
use crate::ports::{any_unwatched, watch_if_port};

#[cold]
fn watch_polled(fds: *const libc::pollfd, count: libc::nfds_t) {
    guarded((), || {
        if fds.is_null() {
            return;
        }
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the caller passes `count` entries.
            let entry = unsafe { fds.wrapping_add(index).read() };
            watch_if_port(entry.fd);
        }
    });
}

#[cold]
fn watch_selected(count: c_int, read: *const libc::fd_set) {
    guarded((), || {
        if read.is_null() {
            return;
        }
        for fd in 0..count {
            let index = usize::try_from(fd).unwrap_or(0);
            // SAFETY: the caller passes a set with room for `count` descriptors.
            let byte = unsafe { read.cast::<u8>().wrapping_add(index / 8).read() };
            if byte >> (index % 8) & 1 != 0 {
                watch_if_port(fd);
            }
        }
    });
}

macro_rules! waiting {
    ($($name:ident($($arg:ident: $type:ty),*) $watch:block)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            let Some(real) = real!($name($($type),*) -> c_int).get() else {
                set_errno(libc::ENOSYS);
                return -1;
            };
            if any_unwatched() $watch
            // SAFETY: the caller's own arguments.
            unsafe { real($($arg),*) }
        }
    )*};
}

waiting! {
    poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) {
        watch_polled(fds, count);
    }
    __poll_chk(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int, room: usize) {
        watch_polled(fds, count);
    }
    ppoll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: *const c_void, mask: *const c_void) {
        watch_polled(fds, count);
    }
    __ppoll_chk(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const c_void,
        mask: *const c_void,
        room: usize
    ) {
        watch_polled(fds, count);
    }
    select(
        count: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        timeout: *mut c_void
    ) {
        watch_selected(count, read);
    }
    pselect(
        count: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        timeout: *const c_void,
        mask: *const c_void
    ) {
        watch_selected(count, read);
    }
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) {
        watch_if_port(fd);
    }
}
