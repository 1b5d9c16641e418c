//! What the kernel says of one port of a device: its addresses and keys, and whether it carries packets.
//!
//! Housekeeping reads it when a port is opened and whenever it looks whether something has changed; a dozen small files. Plain
//! values. Not here: whether the port can be used ([`super`]).

use std::path::Path;

use super::{port_directory, read, read_hex, read_state};

/// PortState of a port that carries packets.
pub const ACTIVE: u32 = 4;
/// Entries of the P_Key table that are looked at; no adapter has more in use.
const MOST_P_KEYS: u32 = 1024;

/// A port as others see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortIdentity {
    /// GUID of the device.
    pub node_guid: u64,
    /// State, as PortInfo numbers it.
    pub state: u32,
    /// LID, 0 if it has none.
    pub lid: u16,
    /// Low bits of the LID that do not count.
    pub lmc: u8,
    /// The link layer is Ethernet: every packet needs a global header, and there are no LIDs.
    pub ethernet: bool,
    /// P_Key table; empty entries are 0.
    pub p_keys: Vec<u16>,
}

impl PortIdentity {
    /// Reads what the kernel says; `None` if there is no such port.
    pub fn read(name: &str, port: u8) -> Option<Self> {
        Self::read_below(Path::new("/"), name, port)
    }

    /// The same, of the machine whose files lie below `root`.
    pub fn read_below(root: &Path, name: &str, port: u8) -> Option<Self> {
        let device = root.join("sys/class/infiniband").join(name);
        let at = port_directory(root, name, port);
        if !at.exists() {
            return None;
        }
        let key = |index: u32| read_hex(&at.join("pkeys").join(index.to_string()));
        Some(Self {
            node_guid: u64::from_str_radix(&read(&device.join("node_guid")).replace(':', ""), 16)
                .unwrap_or(0),
            state: read_state(&at).unwrap_or(0),
            lid: read_hex(&at.join("lid")).unwrap_or(0),
            lmc: read(&at.join("lid_mask_count")).parse().unwrap_or(0),
            ethernet: read(&at.join("link_layer")) == "Ethernet",
            p_keys: (0..MOST_P_KEYS).map_while(key).collect(),
        })
    }

    /// State of a port alone, which is one small file.
    pub fn read_state(name: &str, port: u8) -> Option<u32> {
        read_state(&port_directory(Path::new("/"), name, port))
    }

    /// Whether it carries packets.
    pub fn is_active(&self) -> bool {
        self.state == ACTIVE
    }

    /// The P_Key at `index`, if there is one.
    pub fn p_key(&self, index: u16) -> Option<u16> {
        self.p_keys.get(usize::from(index)).copied().filter(|key| key & 0x7fff != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_as_the_kernel_writes_it() {
        let root = std::env::temp_dir().join(format!("madplane-identity-{}", std::process::id()));
        let device = root.join("sys/class/infiniband/mlx5_0");
        let port = device.join("ports/2");
        std::fs::create_dir_all(port.join("pkeys")).unwrap();
        for (file, text) in [
            (device.join("node_guid"), "0002:c903:0000:0010\n"),
            (port.join("state"), "4: ACTIVE\n"),
            (port.join("lid"), "0x1c\n"),
            (port.join("lid_mask_count"), "2\n"),
            (port.join("link_layer"), "InfiniBand\n"),
            (port.join("pkeys/0"), "0xffff\n"),
            (port.join("pkeys/1"), "0x0000\n"),
            (port.join("pkeys/2"), "0x8005\n"),
        ] {
            std::fs::write(file, text).unwrap();
        }
        let read = PortIdentity::read_below(&root, "mlx5_0", 2).unwrap();
        let expected = PortIdentity {
            node_guid: 0x0002_c903_0000_0010,
            state: ACTIVE,
            lid: 0x1c,
            lmc: 2,
            ethernet: false,
            p_keys: vec![0xffff, 0, 0x8005],
        };
        assert_eq!(read, expected);
        assert_eq!([0, 1, 2, 3].map(|index| read.p_key(index)), [Some(0xffff), None, Some(0x8005), None]);
        assert_eq!(PortIdentity::read_below(&root, "mlx5_0", 1), None);
        assert_eq!(PortIdentity::read_below(&root, "mlx5_1", 1), None);
        std::fs::remove_dir_all(root).unwrap();
    }
}
