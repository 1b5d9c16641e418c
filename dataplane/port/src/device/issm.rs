//! IsSM of a device's port: set by the kernel for as long as somebody holds its issm device open.
//!
//! Called by housekeeping. Only ports that carry SMPs have an issm device, so soft-RoCE has none: reasoned from the driver's source, not tried.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::mad_node;

/// Sets IsSM of a port until the descriptor is closed. Does not wait.
///
/// # Errors
/// ENOENT without an issm device, EAGAIN while another program holds it, as open(2) otherwise.
pub fn hold_is_sm(name: &str, port: u8) -> io::Result<OwnedFd> {
    let root = Path::new("/");
    let node = mad_node(root, "issm", name, port).ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(root.join("dev/infiniband").join(node), flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_issm_device_has_none_to_hold() {
        assert_eq!(hold_is_sm("no_such_device", 1).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
