//! State of the virtual nodes: packed hot entries for forwarding, everything else beside them.
//!
//! Owned by one shard and touched only on its worker's thread. Invariants: `ports[i]` and `cold[i]` describe the same
//! port; every node has an entry for port 0 (unused on adapters), so port `n` of a node lies at `first + n`; a port whose
//! state is at least Initialize has a peer. Tables are allocated when a Set writes them for the first time. No rule of
//! the protocol is decided here.

use crate::sink::LinkOffer;
use rustc_hash::FxHashMap;

/// Peer value of a port without cable.
pub(crate) const NO_PEER: u32 = u32::MAX;
/// Set in a peer value that is an index into the list of ends owned by other shards.
pub(crate) const REMOTE: u32 = 1 << 31;
/// Largest number of ports of one shard, so that a port index never looks like [`REMOTE`].
pub(crate) const MAX_PORTS: usize = 1 << 30;

/// What forwarding needs of a port: one half of a cache line, two ports to a line.
#[derive(Debug, Clone)]
#[repr(C, align(32))]
pub(crate) struct PortHot {
    /// Index of the port at the other end, [`REMOTE`] and an index into the remote ends, or [`NO_PEER`].
    pub(crate) peer: u32,
    /// Index of the node in this shard.
    pub(crate) node: u32,
    /// Index of port 0 of the node.
    pub(crate) first: u32,
    /// PortState.
    pub(crate) state: u8,
    /// PortPhysicalState.
    pub(crate) phys: u8,
    /// Whether the node is a switch.
    pub(crate) is_switch: bool,
    /// Number of ports of the node.
    pub(crate) num_ports: u8,
    /// Packets sent.
    pub(crate) xmit_pkts: u64,
    /// Packets received.
    pub(crate) rcv_pkts: u64,
}

const _: () = assert!(size_of::<PortHot>() == 32);

/// An end of a link that belongs to another shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteEnd {
    pub(crate) shard: u32,
    pub(crate) node: u32,
    pub(crate) port: u8,
}

/// The rest of a port.
#[derive(Debug, Clone)]
pub(crate) struct PortCold {
    /// PortInfo as a Get shows it, except state, physical state, local port and the M_Key that a stranger may not see.
    pub(crate) info: [u8; 64],
    pub(crate) guid: u64,
    /// When the M_Key lease ends; 0 while no lease runs.
    pub(crate) lease_deadline_ns: u64,
    /// LID, LMC: copies of the fields of `info`, kept for routing.
    pub(crate) lid: u16,
    pub(crate) lmc: u8,
    /// Physical state that this end wants while the link is down.
    pub(crate) want: u8,
    /// The cable is plugged in.
    pub(crate) plugged: bool,
    /// The port has LIDs and keys of its own: adapter port, or port 0 of a switch.
    pub(crate) endport: bool,
    /// Some client of this port acts as SM.
    pub(crate) is_sm: bool,
    /// MlnxExtPortInfo: FDR10 supported, enabled, active.
    pub(crate) fdr10: Fdr10,
    /// The last offer of the other end.
    pub(crate) peer_offer: LinkOffer,
    pub(crate) tables: Option<Box<PortTables>>,
    pub(crate) counters: Option<Box<crate::agent::pma::Counters>>,
}

/// FDR10 speed of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fdr10 {
    pub(crate) supported: bool,
    pub(crate) enabled: bool,
    pub(crate) active: bool,
}

/// Tables of a port that a Set has written.
#[derive(Debug, Clone, Default)]
pub(crate) struct PortTables {
    pub(crate) p_keys: Option<Box<[u16; P_KEY_CAP]>>,
    /// One map per input port; adapters use the first only.
    pub(crate) sl_to_vl: Option<Box<[[u8; 8]]>>,
    /// Low 0..31, low 32..63, high 0..31, high 32..63.
    pub(crate) vl_arb: Option<Box<[[u8; 64]; 4]>>,
    pub(crate) guids: Option<Box<[u64; GUID_CAP]>>,
}

/// P_Key entries of every port.
pub(crate) const P_KEY_CAP: usize = 64;
/// GUID entries of an endport.
pub(crate) const GUID_CAP: usize = 32;
/// VL arbitration entries per priority.
pub(crate) const VL_ARB_CAP: usize = 8;
/// Linear forwarding entries.
pub(crate) const LINEAR_FDB_CAP: u16 = 0xC000;
/// Multicast forwarding entries.
pub(crate) const MULTICAST_FDB_CAP: u16 = 1024;

/// P_Key table of a port that nobody has written.
pub(crate) static DEFAULT_P_KEYS: [u16; P_KEY_CAP] = {
    let mut keys = [0; P_KEY_CAP];
    keys[0] = 0xFFFF;
    keys
};

/// SL n to VL n modulo 8: no map names a VL beyond VL0-7.
pub(crate) const DEFAULT_SL_TO_VL: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x01, 0x23, 0x45, 0x67];

impl PortCold {
    /// The P_Key table.
    pub(crate) fn p_keys(&self) -> &[u16; P_KEY_CAP] {
        self.tables.as_ref().and_then(|t| t.p_keys.as_deref()).unwrap_or(&DEFAULT_P_KEYS)
    }

    /// The SLtoVL map from `input` to this port.
    pub(crate) fn sl_to_vl(&self, input: u8) -> [u8; 8] {
        self.tables
            .as_ref()
            .and_then(|t| t.sl_to_vl.as_ref())
            .and_then(|maps| maps.get(usize::from(input)))
            .copied()
            .unwrap_or(DEFAULT_SL_TO_VL)
    }

    pub(crate) fn tables_mut(&mut self) -> &mut PortTables {
        self.tables.get_or_insert_with(Box::default)
    }

    pub(crate) fn counters_mut(&mut self) -> &mut crate::agent::pma::Counters {
        self.counters.get_or_insert_with(Box::default)
    }

    pub(crate) fn owns_lid(&self, lid: u16) -> bool {
        self.lid != 0 && lid >= self.lid && lid - self.lid < 1 << (self.lmc & 7)
    }
}

/// A node without its ports.
#[derive(Debug, Clone)]
pub(crate) struct NodeCold {
    /// NodeInfo without PortGUID and LocalPortNum.
    pub(crate) info: [u8; 40],
    pub(crate) description: [u8; 64],
    /// Index of port 0.
    pub(crate) first: u32,
    /// Index into the switches of the shard, `u32::MAX` for adapters and routers.
    pub(crate) switch: u32,
    pub(crate) num_ports: u8,
    pub(crate) device_id: u16,
    /// Transaction id of the last trap.
    pub(crate) trap_tid: u32,
}

/// What only a switch has.
#[derive(Debug, Clone)]
pub(crate) struct Switch {
    /// SwitchInfo as a Get shows it.
    pub(crate) info: [u8; 20],
    pub(crate) linear_fdb_top: u16,
    /// Linear forwarding table in blocks of 64; entries beyond read 255.
    pub(crate) lft: Vec<u8>,
    /// Multicast forwarding table by `position << 16 | block`.
    pub(crate) mft: FxHashMap<u32, Box<[u16; 32]>>,
}

impl Switch {
    /// Forwarding entry of `lid`.
    #[inline]
    pub(crate) fn route(&self, lid: u16) -> u8 {
        self.lft.get(usize::from(lid)).copied().unwrap_or(255)
    }

    /// Overwrites one block of the linear forwarding table.
    pub(crate) fn set_lft_block(&mut self, block: usize, entries: &[u8; 64]) {
        let start = block * 64;
        if self.lft.len() < start + 64 {
            if self.lft.capacity() < start + 64 {
                // a quarter more than needed: an SM programs blocks in order, and 1,620 tables count
                let wanted = (start + 64 + start / 4).min(usize::from(LINEAR_FDB_CAP));
                self.lft.reserve_exact(wanted.max(start + 64) - self.lft.len());
            }
            self.lft.resize(start + 64, 255);
        }
        if let Some(slot) = self.lft.get_mut(start..start + 64) {
            slot.copy_from_slice(entries);
        }
    }
}
