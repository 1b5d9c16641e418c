//! A directed NodeInfo goes out and comes back.
use madplane_engine::*;
use madplane_shm::drop_reason::DropReason;
use madplane_topology::*;

#[derive(Default)]
struct Rec(Vec<(NodeId, u8, Packet)>, Vec<(NodeId, DropReason)>);
impl Sink for Rec {
    fn deliver(&mut self, node: NodeId, port: u8, pkt: &Packet) -> bool {
        self.0.push((node, port, pkt.clone()));
        true
    }
    fn to_shard(&mut self, _: usize, _: NodeId, _: u8, _: &Packet) {}
    fn peer_event(&mut self, _: usize, _: PeerEvent) {}
    fn dropped(&mut self, node: NodeId, reason: DropReason) {
        self.1.push((node, reason));
    }
}
fn node(kind: NodeKind, guid: u64, ports: usize) -> Node {
    Node {
        kind,
        guid,
        system_image_guid: guid,
        vendor_id: 1,
        device_id: 2,
        description: format!("n{guid}"),
        ports: vec![Port::default(); ports + 1],
        enhanced_port0: false,
    }
}
#[test]
fn node_info_comes_back() {
    let mut t = Topology {
        nodes: vec![node(NodeKind::Ca, 1, 1), node(NodeKind::Switch, 2, 4), node(NodeKind::Ca, 3, 1)],
        ..Topology::default()
    };
    assert!(t.connect(
        PortRef { node: 0, port: 1 },
        PortRef { node: 1, port: 2 },
        LinkWidth::X4,
        LinkSpeed::Edr
    ));
    assert!(t.connect(
        PortRef { node: 2, port: 1 },
        PortRef { node: 1, port: 3 },
        LinkWidth::X4,
        LinkSpeed::Edr
    ));
    let plan = FabricPlan::new(&t, &FabricOptions { shards: 1 }).unwrap();
    let mut s = plan.build_shard(&t, 0);
    let mut p = Packet::default();
    p.mad[..8].copy_from_slice(&[1, 0x81, 1, 1, 0, 0, 0, 2]);
    p.mad[17] = 0x11;
    p.mad[32..36].fill(0xFF);
    p.mad[129..131].copy_from_slice(&[1, 3]);
    let mut r = Rec::default();
    s.send(0, 0, 1, &mut p, &mut r);
    assert_eq!(r.1, []);
    let (n, port, got) = &r.0[0];
    assert_eq!((*n, *port), (0, 1));
    assert_eq!(got.mad[3..8], [0x81, 0x80, 0, 0, 2]);
    assert_eq!(got.mad[64 + 12..64 + 20], 3u64.to_be_bytes());
    assert_eq!(got.mad[193..195], [2, 1]);
}
