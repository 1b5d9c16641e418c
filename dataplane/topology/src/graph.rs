//! The graph: nodes, their ports, and who is cabled to whom.
//!
//! Plain owned data without interior mutability. [`Topology::connect`] keeps both ends of a link equal; parsers and
//! generators build through it, so a link is never one-sided in a finished graph.

/// Vendor id of a node whose source names none: a locally administered OUI, so no tool takes it for a known maker.
pub const DEFAULT_VENDOR_ID: u32 = 0x02_6d70;

/// Most nodes a fabric can have: there are no more unicast LIDs than that.
pub const MAX_NODES: usize = 49_151;

/// What kind of node this is; the numbers are those of NodeInfo.NodeType.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Channel adapter (host).
    Ca = 1,
    /// Switch.
    Switch = 2,
    /// Router.
    Router = 3,
}

impl NodeKind {
    /// The letter that a node id of ibnetdiscover starts with.
    pub fn letter(self) -> char {
        match self {
            Self::Ca => 'H',
            Self::Switch => 'S',
            Self::Router => 'R',
        }
    }

    /// The device id of a node whose source names none.
    pub fn default_device_id(self) -> u16 {
        match self {
            Self::Ca => 0x6d01,
            Self::Switch => 0x6d02,
            Self::Router => 0x6d03,
        }
    }
}

/// Link width as PortInfo counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LinkWidth {
    /// One lane.
    X1 = 1,
    /// Four lanes, the default of a cable that does not say.
    #[default]
    X4 = 2,
    /// Eight lanes.
    X8 = 4,
    /// Twelve lanes.
    X12 = 8,
    /// Two lanes.
    X2 = 16,
}

/// Signalling rate of a lane, by its trade name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum LinkSpeed {
    /// 2.5 Gb/s.
    #[default]
    Sdr,
    /// 5 Gb/s.
    Ddr,
    /// 10 Gb/s.
    Qdr,
    /// 10.3125 Gb/s, announced through MlnxExtPortInfo.
    Fdr10,
    /// 14.0625 Gb/s.
    Fdr,
    /// 25.78125 Gb/s.
    Edr,
    /// 53.125 Gb/s.
    Hdr,
    /// 106.25 Gb/s.
    Ndr,
    /// 212.5 Gb/s.
    Xdr,
}

/// One end of a link: index of the node in [`Topology::nodes`] and its port number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRef {
    /// Index into [`Topology::nodes`].
    pub node: u32,
    /// Port number, 1-based.
    pub port: u8,
}

/// A name that the source uses beside GUID and description; at most one per node and one per port.
///
/// Ids of a netfile that are not made of the node GUID (`Switch1`, `rack3#leaf`) have port 0, aliases of ports
/// (`rack3@uplink`) the number of the port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// The name as other lines of the source write it.
    pub name: String,
    /// What it names.
    pub end: PortRef,
}

/// One port. Entry 0 of a node is the management port of a switch and unused on adapters and routers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Port {
    /// Port GUID; for a switch only entry 0 has one (as a rule equal to the node GUID).
    pub guid: u64,
    /// The other end of the cable.
    pub peer: Option<PortRef>,
    /// Width of the link; meaningful when cabled.
    pub width: LinkWidth,
    /// Speed of the link; meaningful when cabled.
    pub speed: LinkSpeed,
    /// LID that the source text recorded, 0 if none. A hint: a fabric starts without LIDs.
    pub lid: u16,
    /// LMC that the source text recorded.
    pub lmc: u8,
}

/// One node, keyed by GUID. Descriptions may repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Adapter, switch or router.
    pub kind: NodeKind,
    /// Node GUID, unique in the topology and never 0.
    pub guid: u64,
    /// System image GUID; several nodes of one chassis may share it.
    pub system_image_guid: u64,
    /// Vendor id (24 bits).
    pub vendor_id: u32,
    /// Device id.
    pub device_id: u16,
    /// NodeDescription, at most 64 bytes.
    pub description: String,
    /// `ports[n]` is port n; `ports.len() == num_ports + 1`.
    pub ports: Vec<Port>,
    /// Switch with an enhanced port 0.
    pub enhanced_port0: bool,
}

impl Node {
    /// Makes a node without cables, with the default ids; the system image GUID is the node GUID.
    ///
    /// A switch has its GUID on port 0; port n of an adapter or router gets `guid + n`, as ibsim numbers them.
    pub fn new(kind: NodeKind, guid: u64, num_ports: u8, description: impl Into<String>) -> Self {
        let mut ports = vec![Port::default(); usize::from(num_ports) + 1];
        match kind {
            NodeKind::Switch => ports[0].guid = guid,
            NodeKind::Ca | NodeKind::Router => {
                for (port, n) in ports.iter_mut().zip(0u64..).skip(1) {
                    port.guid = guid.wrapping_add(n);
                }
            }
        }
        Self {
            kind,
            guid,
            system_image_guid: guid,
            vendor_id: DEFAULT_VENDOR_ID,
            device_id: kind.default_device_id(),
            description: description.into(),
            ports,
            enhanced_port0: false,
        }
    }

    /// Returns the id that ibnetdiscover prints for this node, such as `S-0002c90300000001`.
    pub fn id(&self) -> String {
        format!("{}-{:016x}", self.kind.letter(), self.guid)
    }

    /// Number of physical ports, 1..=254.
    pub fn num_ports(&self) -> u8 {
        u8::try_from(self.ports.len().saturating_sub(1)).unwrap_or(u8::MAX)
    }
}

/// A whole fabric.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    /// Nodes in the order of the source.
    pub nodes: Vec<Node>,
    /// Further names, in the order of the nodes they belong to; empty for most sources.
    pub names: Vec<Name>,
}

impl Topology {
    /// Returns the port record that `end` names.
    pub fn port(&self, end: PortRef) -> Option<&Port> {
        self.nodes.get(end.node as usize)?.ports.get(usize::from(end.port))
    }

    /// Cables two ports, replacing nothing: returns false and changes nothing if an end is missing or taken.
    ///
    /// A port may be cabled to itself (a loopback plug).
    pub fn connect(&mut self, a: PortRef, b: PortRef, width: LinkWidth, speed: LinkSpeed) -> bool {
        let free = |t: &Self, end| t.port(end).is_some_and(|p| p.peer.is_none());
        if a.port == 0 || b.port == 0 || !free(self, a) || !free(self, b) {
            return false;
        }
        for (end, peer) in [(a, b), (b, a)] {
            let port = &mut self.nodes[end.node as usize].ports[usize::from(end.port)];
            port.peer = Some(peer);
            port.width = width;
            port.speed = speed;
        }
        true
    }

    /// Number of links; a link counts once.
    pub fn link_count(&self) -> usize {
        let mut ends = 0;
        let mut loops = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            for (number, port) in node.ports.iter().enumerate() {
                match port.peer {
                    Some(p) if p.node as usize == index && usize::from(p.port) == number => loops += 1,
                    Some(_) => ends += 1,
                    None => {}
                }
            }
        }
        ends / 2 + loops
    }
}
