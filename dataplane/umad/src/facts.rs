//! What is known of the node that the plane attaches us to, as read from its own management agent.
//!
//! Plain values, made by [`crate::query`] and used by the device functions and the device tree. Invariants: `ports` is not
//! empty, is in ascending order and holds numbers 0 to 9 only, because `umad_ca_t` has no place for others; a switch has
//! port 0 and nothing else. Not done here: no reading, no caching.

use madplane_wire::smp::{GuidInfo, NodeInfo, PortInfo, node_info::node_type, port_info};

/// Highest port number that libibumad can show.
pub(crate) const HIGHEST_PORT: u8 = 9;

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// NodeInfo as answered on the first port.
    pub(crate) info: NodeInfo,
    /// NodeDescription as text.
    pub(crate) description: String,
    /// Its ports that can be shown.
    pub(crate) ports: Vec<Port>,
    /// What the kernel says, if it is a device of this machine.
    pub(crate) kernel: Option<Kernel>,
}

/// What the kernel says of a device beside what a node says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// Firmware version.
    pub(crate) firmware: String,
    /// Hardware version.
    pub(crate) hardware: String,
    /// Kind of adapter.
    pub(crate) kind: String,
    /// Board.
    pub(crate) board: String,
}

/// What the kernel says of a port beside what a port says of itself.
#[derive(Debug, Clone)]
pub(crate) struct KernelPort {
    /// `InfiniBand` or `Ethernet`.
    pub(crate) link_layer: String,
    /// Rate as text.
    pub(crate) rate: String,
    /// The GID table: prefix and GUID.
    pub(crate) gids: Vec<(u64, u64)>,
}

/// A port of a node.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    /// Port number, 0 on a switch.
    pub(crate) number: u8,
    /// PortInfo.
    pub(crate) info: PortInfo,
    /// Port GUID.
    pub(crate) guid: u64,
    /// First block of the GUID table.
    pub(crate) guids: GuidInfo,
    /// The whole P_Key table, empty entries included.
    pub(crate) p_keys: Vec<u16>,
    /// What the kernel says, if it is a port of a device of this machine.
    pub(crate) kernel: Option<KernelPort>,
}

impl Port {
    /// `InfiniBand` or `Ethernet`.
    pub(crate) fn link_layer(&self) -> &str {
        self.kernel.as_ref().map_or("InfiniBand", |kernel| &kernel.link_layer)
    }

    /// Rate as the kernel writes it.
    pub(crate) fn rate_text(&self) -> String {
        self.kernel.as_ref().map_or_else(|| Rate::of(&self.info).text(), |kernel| kernel.rate.clone())
    }

    /// Whole Gb/s, rounded down.
    pub(crate) fn gigabits(&self) -> u32 {
        let whole = |rate: &str| rate.split(['.', ' ']).next().and_then(|number| number.parse().ok());
        let Some(kernel) = &self.kernel else { return Rate::of(&self.info).gigabits() };
        whole(&kernel.rate).unwrap_or(0)
    }

    /// The GID table that is shown, prefix and GUID: the port's own, then what the first block of the GUID table holds.
    pub(crate) fn gids(&self) -> Vec<(u64, u64)> {
        if let Some(kernel) = &self.kernel {
            return kernel.gids.clone();
        }
        let entries = usize::from(self.info.guid_cap).clamp(1, self.guids.guids.len());
        let guids = std::iter::once(self.guid).chain(self.guids.guids.into_iter().take(entries).skip(1));
        guids.map(|guid| (self.info.gid_prefix, guid)).collect()
    }
}

impl Node {
    /// Whether it is a switch.
    pub(crate) fn is_switch(&self) -> bool {
        self.info.node_type == node_type::SWITCH
    }

    /// The port with this number.
    pub(crate) fn port(&self, number: u8) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// The port that a caller who does not care gets: Active, else with a link, else not disabled.
    pub(crate) fn default_port(&self) -> Option<u8> {
        let first = |wanted: fn(&PortInfo) -> bool| self.ports.iter().find(|port| wanted(&port.info));
        first(|info| info.port_state == port_info::state::ACTIVE)
            .or_else(|| first(|info| info.port_phys_state == port_info::phys_state::LINK_UP))
            .or_else(|| first(|info| info.port_phys_state != port_info::phys_state::DISABLED))
            .map(|port| port.number)
    }
}

/// Port numbers to show for a node of this type with this many ports.
pub(crate) fn port_numbers(node_type: u8, num_ports: u8) -> std::ops::RangeInclusive<u8> {
    if node_type == node_type::SWITCH { 0..=0 } else { 1..=num_ports.min(HIGHEST_PORT) }
}

/// Speed of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Tenths of a Gb/s.
    tenths: u32,
    lanes: u32,
    speed: &'static str,
}

impl Rate {
    /// Rate of a port. One without a link says 4X SDR, the least that any adapter of this width has.
    pub(crate) fn of(info: &PortInfo) -> Self {
        let extended = info.cap_mask & port_info::cap_mask::EXTENDED_SPEEDS != 0;
        let (speed, tenths_per_lane) = match info.link_speed_ext_active {
            1 if extended => ("FDR", 140),
            2 if extended => ("EDR", 250),
            4 if extended => ("HDR", 500),
            8 if extended => ("NDR", 1000),
            _ if extended && info.link_speed_ext_active2 & 1 != 0 => ("XDR", 2000),
            _ => match info.link_speed_active {
                2 => ("DDR", 50),
                4 => ("QDR", 100),
                _ => ("SDR", 25),
            },
        };
        let lanes = match info.link_width_active {
            1 => 1,
            4 => 8,
            8 => 12,
            16 => 2,
            _ => 4,
        };
        Self { tenths: tenths_per_lane * lanes, lanes, speed }
    }

    /// Whole Gb/s, rounded down.
    pub(crate) fn gigabits(self) -> u32 {
        self.tenths / 10
    }

    /// As the kernel writes it: `40 Gb/sec (4X QDR)`.
    pub(crate) fn text(self) -> String {
        let half = if self.tenths.is_multiple_of(10) { "" } else { ".5" };
        format!("{}{half} Gb/sec ({}X {})", self.gigabits(), self.lanes, self.speed)
    }
}

/// Name of a PortState, as the kernel writes it.
pub(crate) fn state_name(state: u8) -> &'static str {
    ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"]
        .get(usize::from(state))
        .copied()
        .unwrap_or("UNKNOWN")
}

/// Name of a PortPhysicalState, as the kernel writes it.
pub(crate) fn phys_state_name(state: u8) -> &'static str {
    match state {
        1 => "Sleep",
        2 => "Polling",
        3 => "Disabled",
        4 => "PortConfigurationTraining",
        5 => "LinkUp",
        6 => "LinkErrorRecovery",
        7 => "Phy Test",
        _ => "<unknown>",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An adapter with two ports, the second one Active.
    pub(crate) fn two_port_adapter() -> Node {
        let port = |number: u8, state: u8| Port {
            number,
            info: PortInfo {
                gid_prefix: 0xfe80_0000_0000_0000,
                lid: 0x10 + u16::from(number),
                master_sm_lid: 1,
                cap_mask: 0x0251_4868,
                link_width_active: 2,
                link_speed_active: 4,
                port_state: state,
                port_phys_state: 5,
                lmc: 3,
                master_sm_sl: 2,
                guid_cap: 8,
                ..PortInfo::default()
            },
            guid: 0x0002_c903_0000_0010 + u64::from(number),
            guids: GuidInfo { guids: [0x0002_c903_0000_0010 + u64::from(number), 0x77, 0, 0, 0, 0, 0, 0] },
            p_keys: vec![0xffff, 0x0005, 0, 0],
            kernel: None,
        };
        let info = NodeInfo {
            node_type: node_type::CA,
            num_ports: 2,
            system_image_guid: 0x0002_c903_0000_0013,
            node_guid: 0x0002_c903_0000_0010,
            ..NodeInfo::default()
        };
        Node {
            info,
            description: "host-7 HCA-1".to_owned(),
            ports: vec![port(1, 2), port(2, 4)],
            kernel: None,
        }
    }

    fn rate(width: u8, speed: u8, extended: u8) -> String {
        let cap_mask = if extended == 0 { 0 } else { port_info::cap_mask::EXTENDED_SPEEDS };
        let info = PortInfo {
            link_width_active: width,
            link_speed_active: speed,
            link_speed_ext_active: extended,
            cap_mask,
            ..PortInfo::default()
        };
        Rate::of(&info).text()
    }

    #[test]
    fn rates_are_width_times_lane_speed() {
        assert_eq!(rate(1, 1, 0), "2.5 Gb/sec (1X SDR)");
        assert_eq!(rate(2, 4, 0), "40 Gb/sec (4X QDR)");
        assert_eq!(rate(8, 2, 0), "60 Gb/sec (12X DDR)");
        assert_eq!(rate(2, 0, 1), "56 Gb/sec (4X FDR)");
        assert_eq!(rate(2, 0, 2), "100 Gb/sec (4X EDR)");
        assert_eq!(rate(16, 0, 4), "100 Gb/sec (2X HDR)");
        assert_eq!(rate(2, 0, 8), "400 Gb/sec (4X NDR)");
        assert_eq!(rate(0, 0, 0), "10 Gb/sec (4X SDR)");
        let xdr = PortInfo {
            cap_mask: port_info::cap_mask::EXTENDED_SPEEDS,
            link_speed_ext_active2: 1,
            link_width_active: 2,
            ..PortInfo::default()
        };
        assert_eq!(Rate::of(&xdr).text(), "800 Gb/sec (4X XDR)");
        assert_eq!(Rate::of(&xdr).gigabits(), 800);
    }

    #[test]
    fn an_extended_speed_without_the_capability_is_not_looked_at() {
        let info = PortInfo { link_speed_ext_active: 2, link_speed_active: 2, ..PortInfo::default() };
        assert_eq!(Rate::of(&info).text(), "20 Gb/sec (4X DDR)");
    }

    #[test]
    fn the_default_port_is_the_first_active_then_linked_then_enabled_one() {
        let mut node = two_port_adapter();
        assert_eq!(node.default_port(), Some(2));
        node.ports[1].info.port_state = 2;
        assert_eq!(node.default_port(), Some(1));
        node.ports[0].info.port_phys_state = 2;
        assert_eq!(node.default_port(), Some(2));
        node.ports[0].info.port_phys_state = 3;
        node.ports[1].info.port_phys_state = 2;
        assert_eq!(node.default_port(), Some(2));
        node.ports[1].info.port_phys_state = 3;
        assert_eq!(node.default_port(), None);
    }

    #[test]
    fn ports_without_a_place_in_umad_ca_are_left_out() {
        assert_eq!(port_numbers(node_type::SWITCH, 36), 0..=0);
        assert_eq!(port_numbers(node_type::CA, 2), 1..=2);
        assert_eq!(port_numbers(node_type::CA, 12), 1..=9);
    }
}
