//! System calls that no safe crate wraps.
//!
//! Free functions for housekeeping; nothing here is on the way of a MAD.
#![allow(unsafe_code, reason = "the one place of this crate that calls libc")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Groups that a process can be a member of, as the kernel limits them.
const MAX_GROUPS: usize = 65_536;

/// The supplementary groups of the process at the other end of a Unix socket, as they were when it connected.
///
/// # Errors
/// As getsockopt(2): not a connected Unix socket.
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let fd = socket.as_fd().as_raw_fd();
    let mut groups = vec![0u32; 64];
    loop {
        let room = libc::socklen_t::try_from(groups.len() * size_of::<u32>()).unwrap_or(0);
        let mut length = room;
        // SAFETY: the descriptor is borrowed for the call, and the kernel writes at most `length` bytes, which the buffer has.
        let result = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > MAX_GROUPS {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// What registers an agent with a umad device; 28 bytes, as the kernel lays them out.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads them")]
pub(crate) struct UmadRegistration {
    pub(crate) agent: u32,
    pub(crate) methods: [u32; 4],
    pub(crate) pair: u8,
    pub(crate) class: u8,
    pub(crate) version: u8,
    pub(crate) oui: [u8; 3],
    pub(crate) rmpp_version: u8,
    pub(crate) padding: u8,
}

const _: () = assert!(size_of::<UmadRegistration>() == 28);

const UMAD_REGISTER: libc::Ioctl = 0xC01C_1B01;
const UMAD_UNREGISTER: libc::Ioctl = 0x4004_1B02;
const UMAD_ENABLE_P_KEY: libc::Ioctl = 0x1B03;

/// Asks a umad device for headers with an index of the P_Key; before the first agent.
pub(crate) fn umad_enable_p_key(file: impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for the call, which takes no argument; on another file it is refused.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), UMAD_ENABLE_P_KEY) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Registers an agent; its number is in the request afterwards.
pub(crate) fn umad_register(file: impl AsFd, request: &mut UmadRegistration) -> io::Result<()> {
    let at: *mut UmadRegistration = request;
    // SAFETY: the descriptor is borrowed for the call; the kernel reads and writes 28 bytes, the size of the struct.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), UMAD_REGISTER, at) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unregisters an agent.
pub(crate) fn umad_unregister(file: impl AsFd, agent: u32) -> io::Result<()> {
    let at: *const u32 = &raw const agent;
    // SAFETY: the descriptor is borrowed for the call; the kernel reads 4 bytes.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), UMAD_UNREGISTER, at) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn the_groups_of_the_peer_are_those_of_its_process() {
        let (ours, _theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        let mut seen = peer_groups(&ours).unwrap();
        own.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, own);
    }

    #[test]
    fn what_is_no_socket_has_no_peer() {
        assert!(peer_groups(std::fs::File::open("/").unwrap()).is_err());
    }
}
