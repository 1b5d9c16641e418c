//! Hardware addresses of other ends on Ethernet, asked for before a MAD needs them.
//!
//! The kernel keeps whoever sends a MAD to a GID waiting until neighbour discovery has found its hardware address; seen: a second, for a
//! worker that must not wait. A datagram to the same address, which nobody reads, starts the discovery and waits for nothing. Called by
//! housekeeping when a port has come up. Not here: ends that speak first, since the kernel has learnt theirs from that.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::path::Path;

use super::{DeviceSpec, read};

/// Port of the discard service.
const DISCARD: u16 = 9;

/// Has the kernel look for the other ends that the specification names. What fails is found out by the MAD.
pub fn introduce(spec: &DeviceSpec) {
    if spec.peers().is_empty() {
        return;
    }
    let attributes = format!("sys/class/infiniband/{}/ports/{}/gid_attrs/ndevs", spec.device(), spec.port());
    let interface = read(&Path::new("/").join(attributes).join(spec.gid_index().to_string()));
    let index = read(&Path::new("/sys/class/net").join(&interface).join("ifindex")).parse().unwrap_or(0);
    for (_, gid) in spec.peers() {
        let to = address(*gid, index);
        let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let _ = UdpSocket::bind(from).and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(&[], to)
        });
    }
}

/// Where a GID of Ethernet is, on the interface with this index.
fn address(gid: [u8; 16], index: u32) -> SocketAddr {
    let address = Ipv6Addr::from(gid);
    match address.to_ipv4_mapped() {
        Some(address) => (address, DISCARD).into(),
        None => SocketAddrV6::new(address, DISCARD, 0, index).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_is_an_address_of_its_own_interface() {
        let gid = "fe80::ff:fe00:2".parse::<Ipv6Addr>().unwrap().octets();
        assert_eq!(address(gid, 7).to_string(), "[fe80::ff:fe00:2%7]:9");
        let mapped = "::ffff:192.0.2.1".parse::<Ipv6Addr>().unwrap().octets();
        assert_eq!(address(mapped, 7).to_string(), "192.0.2.1:9");
    }

    #[test]
    fn a_device_that_is_not_there_is_no_fault() {
        introduce(&"umad:no_such_device,peer=1@fe80::1,peer=2@::ffff:192.0.2.1".parse().unwrap());
    }
}
