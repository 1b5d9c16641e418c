//! The issm device: IsSM is set for as long as the descriptor is open.
//!
//! Opening connects to the plane and asks it to hold the bit; the descriptor that the program gets is that connection, so
//! that closing it, or the death of the process, is what clears the bit. Runs on the caller's thread, which waits while
//! another process holds the bit unless it asked not to. The descriptor can do nothing else, as the kernel's cannot.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, IntoRawFd};

use madplane_shm::handoff::{HandoffError, Request, flag, op};

use crate::facts::port_numbers;
use crate::plane::{self, Settings};

/// Opens the issm device with this number.
///
/// # Errors
/// `EAGAIN` if another process holds the bit and `flags` has `O_NONBLOCK`, `EPERM` if the tenant may not be SM, `ENXIO` if the node has no such port, `ENODEV`
/// without a plane.
pub(crate) fn open(number: u8, flags: c_int) -> Result<c_int, c_int> {
    let settings = plane::settings().ok_or(libc::ENODEV)?;
    let place = plane::locate(settings)?;
    let port = port_numbers(place.node_type, place.num_ports).nth(usize::from(number)).ok_or(libc::ENXIO)?;
    hold(settings, &settings.selector(place, port), flags)
}

fn hold(settings: &Settings, selector: &str, flags: c_int) -> Result<c_int, c_int> {
    let request = Request::with_selector(op::HOLD_SM, selector).ok_or(libc::EIO)?;
    let mut request = request.of_tenant(&settings.tenant).ok_or_else(|| {
        plane::report_text("MADPLANE_TENANT is longer than the name of a tenant");
        libc::EINVAL
    })?;
    if flags & libc::O_NONBLOCK == 0 {
        request.flags = flag::WAIT;
    }
    let connection = settings.connect().map_err(|error| plane::report(&error))?;
    connection.call(&request).map_err(|error| match error {
        // the usual outcome when two subnet managers meet; nothing to complain about
        HandoffError::Refused { errno: libc::EAGAIN, .. } => libc::EAGAIN,
        other => plane::report(&other),
    })?;
    let socket = connection.into_fd();
    if flags & libc::O_CLOEXEC == 0 {
        // SAFETY: a descriptor of our own.
        let result = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, 0) };
        debug_assert_eq!(result, 0, "clearing a flag of an open descriptor cannot fail");
    }
    Ok(socket.into_raw_fd())
}
