//! The open ports of this process: what a "portid" means.
//!
//! One static table, used from any thread without a lock. A portid is the descriptor of the session that programs may
//! poll, so `umad_get_fd` returns it as it is, and the table has it as key. Invariants: a port that a call has entered
//! stays whole until the call leaves, even if another thread closes it; finding a port costs one atomic operation, and one
//! more when leaving.
//!
//! | field | who writes | who reads | ordering |
//! |---|---|---|---|
//! | `PORTS` | open and close | every call | see [`crate::slots`] |
//! | `UNWATCHED` | open, close, [`watch_if_port`] | the replaced poll functions | relaxed: a hint that saves looking |
//! | `OpenPort::watched` | whoever watches first | the same | relaxed swap |
//!
//! Not done here: sending and receiving. A program that closes a portid with close(2) leaves its session behind.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use madplane_client::{OpenError, Session, SessionOptions};
use madplane_shm::handoff::HandoffError;

use crate::device::{device, resolve_port};
use crate::facts::port_numbers;
use crate::guard::{guarded, negative, set_errno};
use crate::plane::{self, Place, Settings};
use crate::query;
use crate::slots::{Entered, Table};

static PORTS: Table<OpenPort> = Table::new();
static UNWATCHED: AtomicUsize = AtomicUsize::new(0);

/// A port that is open.
#[derive(Debug)]
pub(crate) struct OpenPort {
    /// Its session.
    pub(crate) session: Session,
    /// Whether a receive has already said that the plane is gone.
    pub(crate) gone: AtomicBool,
    watched: AtomicBool,
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        if !self.watched.load(Ordering::Relaxed) {
            UNWATCHED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The open port that `portid` means.
#[inline]
pub(crate) fn enter(portid: c_int) -> Option<Entered<'static, OpenPort>> {
    PORTS.enter(usize::try_from(portid).ok()?)
}

/// Whether any open port is not watched yet, so that [`watch_if_port`] could have something to do.
#[inline]
pub(crate) fn any_unwatched() -> bool {
    UNWATCHED.load(Ordering::Relaxed) != 0
}

/// Tells the session that its descriptor is going to be polled, if `fd` is one of ours.
pub(crate) fn watch_if_port(fd: c_int) {
    let Some(port) = enter(fd) else { return };
    if !port.watched.swap(true, Ordering::Relaxed) {
        UNWATCHED.fetch_sub(1, Ordering::Relaxed);
        port.session.watch();
    }
}

/// `umad_open_port` and `umad_open_smi_port`: opens a session on a port of the device.
pub(crate) extern "C" fn open_port(ca_name: *const c_char, portnum: c_int) -> c_int {
    guarded(-libc::EIO, || {
        let opened = device(ca_name).and_then(|settings| {
            let place = plane::locate(settings)?;
            let number = wanted_port(settings, place, portnum)?;
            let selector = settings.selector(place, number);
            let session = Session::open(&settings.paths, &selector, &SessionOptions::default())
                .map_err(|error| refusal(&error))?;
            keep(session)
        });
        opened.unwrap_or_else(negative)
    })
}

fn wanted_port(settings: &Settings, place: Place, portnum: c_int) -> Result<u8, c_int> {
    let numbers = port_numbers(place.node_type, place.num_ports);
    if portnum == 0 && numbers.start() != numbers.end() {
        return resolve_port(settings, &query::read_node(settings)?, portnum);
    }
    let number =
        if portnum == 0 { *numbers.start() } else { u8::try_from(portnum).map_err(|_| libc::ENODEV)? };
    if numbers.contains(&number) { Ok(number) } else { Err(libc::ENODEV) }
}

/// Complains and returns the errno for an open that failed.
pub(crate) fn refusal(error: &OpenError) -> c_int {
    plane::report_text(&error.to_string());
    match error {
        OpenError::Handoff(HandoffError::NotRunning { .. }) => libc::ENODEV,
        OpenError::Handoff(HandoffError::Version { .. }) => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

fn keep(session: Session) -> Result<c_int, c_int> {
    let fd = session.pollable_fd().as_raw_fd();
    let key = usize::try_from(fd).map_err(|_| libc::EIO)?;
    UNWATCHED.fetch_add(1, Ordering::Relaxed);
    let port = Box::new(OpenPort { session, gone: AtomicBool::new(false), watched: AtomicBool::new(false) });
    let Err(port) = PORTS.insert(key, port) else { return Ok(fd) };
    // the number was free for the kernel, so whoever held it here was closed behind our back
    PORTS.forget(key);
    PORTS.insert(key, port).map(|()| fd).map_err(|_| libc::EMFILE)
}

/// `umad_close_port`: gives a session up. A receive that waits in another thread ends with an error.
pub(crate) extern "C" fn close_port(portid: c_int) -> c_int {
    guarded(-libc::EIO, || {
        if let Ok(key) = usize::try_from(portid) {
            PORTS.remove(key);
        }
        0
    })
}

/// `umad_get_fd`: the descriptor to poll, which is the portid.
pub(crate) extern "C" fn get_fd(portid: c_int) -> c_int {
    guarded(-libc::EIO, || {
        if enter(portid).is_none() {
            set_errno(libc::EBADF);
            return -libc::EINVAL;
        }
        watch_if_port(portid);
        portid
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_port_is_refused_and_closing_it_is_no_error() {
        for portid in [-1, 0, 2, 100_000] {
            assert!(enter(portid).is_none());
            assert_eq!(get_fd(portid), -libc::EINVAL);
            assert_eq!(close_port(portid), 0);
            watch_if_port(portid);
        }
        assert!(!any_unwatched());
    }

    #[test]
    fn ports_the_node_does_not_have_are_enodev() {
        let settings = plane::tests::settings_at("");
        let switch = Place { node_guid: 1, node_type: 2, num_ports: 36, port: 0, is_device: false };
        assert_eq!(wanted_port(&settings, switch, 0), Ok(0));
        assert_eq!(wanted_port(&settings, switch, 1), Err(libc::ENODEV));
        let adapter = Place { node_type: 1, num_ports: 1, port: 1, ..switch };
        assert_eq!(wanted_port(&settings, adapter, 0), Ok(1));
        assert_eq!(wanted_port(&settings, adapter, 1), Ok(1));
        assert_eq!(wanted_port(&settings, adapter, 2), Err(libc::ENODEV));
        assert_eq!(wanted_port(&settings, adapter, -1), Err(libc::ENODEV));
    }
}
