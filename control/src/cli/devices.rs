//! `madctl devices`: RDMA devices of this machine, what can be done with them, and which of them the plane has.
//!
//! What this machine has is asked of madplaned, which is the program that would use it: what it was built with and what it may open counts.
//! What the plane has is looked up in its segment, also in that of a dead one. Neither needs the other.

use std::process::Command;

use madctl::View;
use madctl::view::Devices;
use madplane_shm::paths::PlanePaths;
use serde::Serialize;

use super::output::{self, Format, Text};
use super::status::device_line;
use super::{Failure, Outcome};
use crate::config::locate;

/// Whether something can be used, and if not why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Usable {
    usable: bool,
    /// A line that begins `unavailable, because`; empty if it can be used.
    why: String,
}

impl Usable {
    fn of(text: &str) -> Self {
        let usable = !text.starts_with("unavailable");
        Self { usable, why: if usable { String::new() } else { text.to_owned() } }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Port {
    port: u8,
    state: String,
    lid: u16,
    link_layer: String,
    /// Device node, empty without one.
    node: String,
    umad: Usable,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Device {
    name: String,
    verbs: Usable,
    ports: Vec<Port>,
}

#[derive(Debug, Serialize)]
struct Machine {
    /// Why there can be no devices, empty if there can.
    why: String,
    devices: Vec<Device>,
    /// The plane and its devices, if there is one.
    plane: Option<Devices>,
}

impl Text for Machine {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| text.push_str(&format!("{words}\n"));
        if !self.why.is_empty() {
            line(format!("no devices: {}", self.why));
        } else if self.devices.is_empty() {
            line("no devices".to_owned());
        }
        let said = |usable: &Usable| if usable.usable { "usable".to_owned() } else { usable.why.clone() };
        for device in &self.devices {
            line(device.name.clone());
            line(format!("  verbs: {}", said(&device.verbs)));
            for port in &device.ports {
                let Port { port, state, lid, link_layer, node, umad } = port;
                line(format!("  port {port}: {state}, {link_layer}, LID {lid}"));
                let by = if node.is_empty() { said(umad) } else { format!("usable, {node}") };
                line(format!("    umad: {by}"));
            }
        }
        if let Some(Devices { plane, devices }) = &self.plane {
            text.push_str(&plane.text());
            for device in devices {
                text.push_str(&format!("  {}\n", device_line(device)));
            }
            if devices.is_empty() {
                text.push_str("  has no devices (madctl up --device)\n");
            }
        }
        text
    }
}

pub(crate) fn show(paths: &PlanePaths, format: Format) -> Outcome {
    let program = locate("madplaned", true)?;
    let asked = Command::new(&program).arg("--devices").output();
    let told = asked.map_err(|error| Failure::Failed(format!("{}: {error}", program.display())))?;
    if !told.status.success() {
        let line = String::from_utf8_lossy(&told.stderr).trim().replace('\n', " ");
        return Err(Failure::Failed(format!("{}: {line}", program.display())));
    }
    let (why, devices) = parse(&String::from_utf8_lossy(&told.stdout))
        .ok_or_else(|| Failure::Failed(format!("{} is of another version", program.display())))?;
    let plane = View::new(paths).devices().ok();
    Ok(output::print(format, &Machine { why, devices, plane })?)
}

/// Reads what `madplaned --devices` writes.
fn parse(text: &str) -> Option<(String, Vec<Device>)> {
    let mut devices: Vec<Device> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split('\t').collect();
        match words[..] {
            ["none", why] => return Some((why.to_owned(), Vec::new())),
            ["device", name, verbs] => {
                devices.push(Device { name: name.to_owned(), verbs: Usable::of(verbs), ports: Vec::new() })
            }
            ["port", port, state, lid, link_layer, umad] => {
                let usable = Usable::of(umad);
                devices.last_mut()?.ports.push(Port {
                    port: port.parse().ok()?,
                    state: state.to_owned(),
                    lid: lid.parse().ok()?,
                    link_layer: link_layer.to_owned(),
                    node: if usable.usable { umad.to_owned() } else { String::new() },
                    umad: usable,
                });
            }
            _ => return None,
        }
    }
    Some((String::new(), devices))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::ready_head;

    const TOLD: &str = "device\trxe0\tunavailable, because x\nport\t1\tACTIVE\t0\tEthernet\t/dev/infiniband/umad0\n\
                        port\t2\tDOWN\t7\tInfiniBand\tunavailable, because y\n";

    #[test]
    fn each_backend_of_a_device_is_usable_or_says_why_not() {
        let (why, devices) = parse(TOLD).unwrap();
        let plane = Devices { plane: ready_head(), devices: Vec::new() };
        let machine = Machine { why, devices, plane: Some(plane) };
        let text = output::render(Format::Text, &machine);
        let expected = "rxe0\n  verbs: unavailable, because x\n  port 1: ACTIVE, Ethernet, LID 0\n    umad: usable, \
                        /dev/infiniband/umad0\n  port 2: DOWN, InfiniBand, LID 7\n    umad: unavailable, because y\n\
                        plane ci: madplaned 0.1.0, pid 4711, heartbeat 4 ms ago, ready\n  has no devices (madctl up --device)\n";
        assert_eq!(text, expected);
        let json: serde_json::Value = serde_json::from_str(&output::render(Format::Json, &machine)).unwrap();
        assert_eq!(json["devices"][0]["ports"][1]["umad"]["why"], "unavailable, because y");
        assert_eq!(json["devices"][0]["ports"][0]["umad"]["usable"], true);
    }

    #[test]
    fn without_rdma_there_is_one_line_and_without_devices_another() {
        let shown = |told: &str| {
            let (why, devices) = parse(told).unwrap();
            Machine { why, devices, plane: None }.text()
        };
        assert_eq!(shown("none\tunavailable, because z\n"), "no devices: unavailable, because z\n");
        assert_eq!(shown("\n"), "no devices\n");
    }

    #[test]
    fn what_another_madplaned_writes_is_not_guessed_at() {
        for told in
            ["port\t1\tACTIVE\t0\tEthernet\tx", "device\ta", "thing", "device\ta\tb\nport\t1\tA\tx\ty\tz"]
        {
            assert_eq!(parse(told), None, "{told}");
        }
    }
}
