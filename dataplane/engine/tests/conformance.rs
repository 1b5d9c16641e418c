//! The shared SMI vectors, read from `spec/smi-vectors.json` where it is at hand.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail like tests")]

use madplane_engine::Packet;
use madplane_engine::smi::{self, SmiNode, Verdict};
use madplane_shm::drop_reason::DropReason;
use serde_json::Value;
use std::path::PathBuf;

/// The node of a vector.
struct VectorNode<'a>(&'a Value);

impl VectorNode<'_> {
    fn number(&self, key: &str) -> u16 {
        u16::try_from(self.0[key].as_u64().unwrap()).unwrap()
    }
}

impl SmiNode for VectorNode<'_> {
    fn is_switch(&self) -> bool {
        self.0["is_switch"].as_bool().unwrap()
    }
    fn num_ports(&self) -> u8 {
        u8::try_from(self.number("num_ports")).unwrap()
    }
    fn owns_lid(&self, _: u8, lid: u16) -> bool {
        let base = self.number("lid");
        base != 0 && lid >= base && lid < base + (1 << self.number("lmc"))
    }
    fn own_lid(&self, _: u8) -> u16 {
        self.number("lid")
    }
    fn path_mask(&self, _: u8) -> u16 {
        (1 << self.number("lmc")) - 1
    }
    fn link_up(&self, port: u8) -> bool {
        let down = self.0["down_ports"].as_array().unwrap();
        port >= 1 && port <= self.num_ports() && !down.contains(&Value::from(port))
    }
    fn linear_fdb_top(&self) -> u16 {
        self.number("linear_fdb_top")
    }
    fn route(&self, dlid: u16) -> u8 {
        self.0["lft"][dlid.to_string()].as_u64().map_or(255, |port| u8::try_from(port).unwrap())
    }
}

fn hex_bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn hex16(value: &Value) -> u16 {
    u16::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn mad_of(smp: &Value) -> [u8; 256] {
    let mut mad = [0; 256];
    for (at, key) in [(0, "header_hex"), (128, "initial_path_hex"), (192, "return_path_hex")] {
        let bytes = hex_bytes(&smp[key]);
        mad[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    mad
}

/// The counter that the engine charges for a reason, in the words of the vectors; it has no answer for some.
fn counter_of(reason: DropReason) -> Option<&'static str> {
    match reason {
        DropReason::AboveFdbTop | DropReason::NoRoute | DropReason::RoutePort => {
            Some("PortRcvSwitchRelayErrors/DLIDMapping")
        }
        DropReason::RouteLoop => Some("PortRcvSwitchRelayErrors/Looping"),
        DropReason::PathPort => Some("PortRcvSwitchRelayErrors"),
        DropReason::PathPortDown | DropReason::RoutePortDown => Some("PortXmitDiscards/Inactive"),
        _ => None,
    }
}

#[test]
fn shared_vectors_agree() {
    let shared = std::env::var_os("MADPLANE_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = shared.join("spec/smi-vectors.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("SKIPPED: {} is not there; tests/smi_cases has the same cases", path.display());
        return;
    };
    let document: Value = serde_json::from_str(&text).unwrap();
    let vectors = document["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 107);
    for vector in vectors {
        let name = format!("{} {}", vector["id"], vector["name"]);
        let node = VectorNode(&vector["node"]);
        let mut pkt = Packet {
            mad: mad_of(&vector["smp"]),
            slid: hex16(&vector["lrh"]["slid"]),
            dlid: hex16(&vector["lrh"]["dlid"]),
            ..Packet::default()
        };
        let port = |key: &str| u8::try_from(vector[key].as_u64().unwrap()).unwrap();
        let (verdict, sends) = match vector["op"].as_str().unwrap() {
            "rx" => (smi::receive(&node, port("arrival_port"), &mut pkt), false),
            "tx" => (smi::transmit(&node, port("agent_port"), &mut pkt), true),
            other => panic!("{name}: operation {other}"),
        };
        let expect = &vector["expect"];
        let got = match verdict {
            Verdict::Forward { port } => {
                assert_eq!(Value::from(port), expect["port"], "{name}");
                assert_eq!(pkt.slid, hex16(&expect["lrh_slid"]), "{name}");
                assert_eq!(pkt.dlid, hex16(&expect["lrh_dlid"]), "{name}");
                "forward"
            }
            Verdict::Local => {
                assert_eq!(expect["to"], "local", "{name}");
                "deliver"
            }
            Verdict::Client => {
                assert_eq!(expect["to"], "client", "{name}");
                "deliver"
            }
            Verdict::Discard { reason, .. } => {
                if !sends {
                    assert_eq!(expect["counter"].as_str(), counter_of(reason), "{name}: {reason:?}");
                }
                "discard"
            }
        };
        assert_eq!(got, expect["verdict"], "{name}: {verdict:?}");
        if got != "discard" {
            assert_eq!(pkt.mad, mad_of(&expect["smp"]), "{name}");
        }
    }
}
