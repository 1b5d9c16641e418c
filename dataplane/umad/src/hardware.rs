//! A port of an RDMA device of this machine, for a process that the plane has put there: what the kernel says of it.
//!
//! Runs on the caller's thread and reads anew at every call. The files are those that [`crate::redirect`] leads elsewhere for everybody else in
//! this process, so they are read by system calls of our own. Invariant: as in [`crate::facts`], the one port of the place is shown and
//! no other. Not done here: asking the port itself, which only a subnet manager would answer for.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use madplane_wire::smp::{GuidInfo, NodeInfo, PortInfo};
use rustix::fs::{Mode, OFlags};

use crate::facts::{Kernel, KernelPort, Node, Port};
use crate::plane::{Place, report_text};

/// Longest file that is read; all are short lines.
const FILE_BYTES: usize = 256;
/// Entries of the GID and P_Key tables that are shown.
const ENTRIES: u32 = 128;

/// Reads the port of `place`, which is one of the device `name`.
///
/// # Errors
/// `ENODEV` if the kernel does not have it, after a complaint.
pub(crate) fn read_node(name: &str, place: Place) -> Result<Node, c_int> {
    read_below(Path::new("/"), name, place).ok_or_else(|| {
        report_text(&format!("the kernel shows no device {name} with a port {}", place.port));
        libc::ENODEV
    })
}

fn read(path: &Path) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0; FILE_BYTES];
    let length = rustix::io::read(&file, &mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned())
}

/// A number before a colon, as in `4: ACTIVE`.
fn number(text: &str) -> u8 {
    text.split(':').next().and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(&text.trim_start_matches("0x").replace(':', ""), 16).unwrap_or(0)
}

fn short(text: &str) -> u16 {
    u16::try_from(hex(text)).unwrap_or(0)
}

/// Both halves of a GID such as `fe80:0000:0000:0000:0000:00ff:fe00:0001`.
fn gid(text: &str) -> Option<(u64, u64)> {
    let (prefix, guid) = text.split_at_checked(20)?;
    Some((hex(prefix), hex(guid)))
}

fn read_below(root: &Path, name: &str, place: Place) -> Option<Node> {
    let device: PathBuf = root.join("sys/class/infiniband").join(name);
    let at = device.join("ports").join(place.port.to_string());
    let of_device = |file: &str| read(&device.join(file)).unwrap_or_default();
    let of_port = |file: &str| read(&at.join(file)).unwrap_or_default();
    let table = |table: &str| -> Vec<String> {
        (0..ENTRIES).map_while(|index| read(&at.join(table).join(index.to_string()))).collect()
    };
    let state = read(&at.join("state"))?;
    let gids: Vec<(u64, u64)> = table("gids").iter().filter_map(|text| gid(text)).collect();
    let (gid_prefix, guid) = gids.first().copied().unwrap_or_default();
    let info = PortInfo {
        gid_prefix,
        lid: short(&of_port("lid")),
        lmc: number(&of_port("lid_mask_count")),
        master_sm_lid: short(&of_port("sm_lid")),
        master_sm_sl: number(&of_port("sm_sl")),
        port_state: number(&state),
        port_phys_state: number(&of_port("phys_state")),
        cap_mask: u32::try_from(hex(&of_port("cap_mask"))).unwrap_or(0),
        ..PortInfo::default()
    };
    let port = Port {
        number: place.port,
        info,
        guid,
        guids: GuidInfo::default(),
        p_keys: table("pkeys").iter().map(|text| short(text)).collect(),
        kernel: Some(KernelPort { link_layer: of_port("link_layer"), rate: of_port("rate"), gids }),
    };
    let info = NodeInfo {
        node_type: number(&of_device("node_type")),
        num_ports: place.num_ports,
        node_guid: hex(&of_device("node_guid")),
        system_image_guid: hex(&of_device("sys_image_guid")),
        port_guid: guid,
        ..NodeInfo::default()
    };
    let kernel = Kernel {
        firmware: of_device("fw_ver"),
        hardware: of_device("hw_rev"),
        kind: of_device("hca_type"),
        board: of_device("board_id"),
    };
    Some(Node { info, description: of_device("node_desc"), ports: vec![port], kernel: Some(kernel) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    /// Two ports of a device as soft-RoCE and an adapter show them.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("sys/class/infiniband/rxe0");
        for (file, text) in [
            ("node_type", "1: CA"),
            ("node_guid", "505a:cfff:fe12:3456"),
            ("sys_image_guid", "505a:cfff:fe12:3456"),
            ("fw_ver", ""),
            ("node_desc", "rxe0"),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/2/state", "4: ACTIVE"),
            ("ports/2/phys_state", "5: LinkUp"),
            ("ports/2/lid", "0x1c"),
            ("ports/2/lid_mask_count", "2"),
            ("ports/2/sm_lid", "0x3"),
            ("ports/2/sm_sl", "1"),
            ("ports/2/rate", "2.5 Gb/sec (1X SDR)"),
            ("ports/2/cap_mask", "0x00890000"),
            ("ports/2/link_layer", "Ethernet"),
            ("ports/2/gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001"),
            ("ports/2/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
            ("ports/2/pkeys/0", "0xffff"),
        ] {
            let path = device.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    fn place(port: u8) -> Place {
        Place { node_guid: 0, node_type: 1, num_ports: port, port, is_device: true }
    }

    #[test]
    fn the_port_is_shown_as_the_kernel_shows_it() {
        let root = machine();
        let node = read_below(root.path(), "rxe0", place(2)).unwrap();
        let shown: std::collections::BTreeMap<String, String> =
            tree::files(&node, "rxe0").into_iter().map(|file| (file.path, file.text)).collect();
        let mut compared = 0;
        for (path, text) in &shown {
            // what the kernel has beside our additions
            if let Ok(real) = std::fs::read_to_string(root.path().join(path)) {
                assert_eq!(*text, real, "{path}");
                compared += 1;
            }
        }
        assert_eq!(compared, 17, "{shown:?}");
        assert!(!shown.contains_key("sys/class/infiniband/rxe0/ports/1/state"), "it is not the place's");
        assert_eq!(shown["sys/class/infiniband_mad/umad0/port"], "2\n");
    }

    #[test]
    fn a_port_that_is_not_there_is_none() {
        let root = machine();
        assert!(read_below(root.path(), "rxe0", place(3)).is_none());
        assert!(read_below(root.path(), "rxe1", place(1)).is_none());
    }
}
