//! Graph to text, in the form ibnetdiscover prints and ibsim reads.
//!
//! Pure function. `parse(to_ibnetdiscover(t))` gives `t` again for every sound topology. What the format has no place for
//! (further names, GUIDs of ports without a cable) goes into comment lines that start with `#:`; other readers skip them.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use crate::graph::{Name, Node, NodeKind, Port, Topology};

/// Writes a fabric as ibnetdiscover would print it.
///
/// Records come in the order of [`Topology::nodes`], port lines in the order of ports. Line breaks and NUL bytes in
/// descriptions become dots. Cost: linear, one growing buffer.
///
/// # Examples
/// ```
/// use madplane_topology::{ParseOptions, parse, to_ibnetdiscover};
/// let parsed = parse("Hca 1 \"a\"\n[1] \"b\"[1]\n\nHca 1 \"b\"\n[1] \"a\"[1]\n", &ParseOptions::default())?;
/// let text = to_ibnetdiscover(&parsed.topology);
/// assert_eq!(parse(&text, &ParseOptions::default())?.topology, parsed.topology);
/// # Ok::<(), madplane_topology::ParseError>(())
/// ```
pub fn to_ibnetdiscover(topology: &Topology) -> String {
    let ends: usize = topology.nodes.iter().map(|node| node.ports.len()).sum();
    let mut out = String::with_capacity(256 + topology.nodes.len() * 220 + ends * 60);
    let written = write_all(&mut out, topology);
    debug_assert!(written.is_ok(), "writing to a String does not fail");
    out
}

fn write_all(out: &mut String, topology: &Topology) -> std::fmt::Result {
    let names = names_by_node(topology);
    writeln!(out, "#\n# Topology file: written by madplane\n#")?;
    for (index, node) in (0u32..).zip(&topology.nodes) {
        writeln!(out, "\nvendid=0x{:x}\ndevid=0x{:x}", node.vendor_id, node.device_id)?;
        writeln!(out, "sysimgguid=0x{:x}", node.system_image_guid)?;
        match node.kind {
            NodeKind::Switch => writeln!(out, "switchguid=0x{:x}({:x})", node.guid, port0(node).guid)?,
            NodeKind::Ca => writeln!(out, "caguid=0x{:x}", node.guid)?,
            NodeKind::Router => writeln!(out, "rtguid=0x{:x}", node.guid)?,
        }
        write_header(out, node)?;
        for name in names.get(&index).into_iter().flatten() {
            match name.end.port {
                0 => writeln!(out, "#: name \"{}\"", name.name)?,
                port => writeln!(out, "#: alias {port} \"{}\"", name.name)?,
            }
        }
        for (number, port) in (0u8..=255).zip(&node.ports).skip(1) {
            write_port(out, topology, node, number, port)?;
        }
    }
    Ok(())
}

fn names_by_node(topology: &Topology) -> FxHashMap<u32, Vec<&Name>> {
    let mut names: FxHashMap<u32, Vec<&Name>> = FxHashMap::default();
    for name in &topology.names {
        names.entry(name.end.node).or_default().push(name);
    }
    names
}

fn write_header(out: &mut String, node: &Node) -> std::fmt::Result {
    let word = match node.kind {
        NodeKind::Switch => "Switch",
        NodeKind::Ca => "Ca",
        NodeKind::Router => "Rt",
    };
    write!(out, "{word}\t{} \"", node.num_ports())?;
    write_id(out, node)?;
    out.push_str("\"\t\t# \"");
    push_description(out, node);
    out.push('"');
    if node.kind == NodeKind::Switch {
        let class = if node.enhanced_port0 { "enhanced" } else { "base" };
        write!(out, " {class} port 0 lid {} lmc {}", port0(node).lid, port0(node).lmc)?;
    }
    out.push('\n');
    Ok(())
}

fn write_port(
    out: &mut String,
    topology: &Topology,
    node: &Node,
    number: u8,
    port: &Port,
) -> std::fmt::Result {
    let has_guid = node.kind != NodeKind::Switch;
    if has_guid {
        let default = port.peer.is_none()
            && port.guid == node.guid.wrapping_add(u64::from(number))
            && (port.lid, port.lmc) == (0, 0);
        let needs_note = if port.peer.is_some() { reads_as_label(port.guid, number) } else { !default };
        if needs_note {
            writeln!(out, "#: port {number} guid 0x{:x} lid {} lmc {}", port.guid, port.lid, port.lmc)?;
        }
    }
    let Some(end) = port.peer else { return Ok(()) };
    let Some(peer) = topology.nodes.get(end.node as usize) else { return Ok(()) };
    write!(out, "[{number}]")?;
    if has_guid {
        write!(out, "({:x}) ", port.guid)?;
    }
    out.push_str("\t\"");
    write_id(out, peer)?;
    write!(out, "\"[{}]", end.port)?;
    let peer_lid = if peer.kind == NodeKind::Switch {
        port0(peer).lid
    } else {
        let peer_port = topology.port(end).cloned().unwrap_or_default();
        write!(out, "({:x}) ", peer_port.guid)?;
        peer_port.lid
    };
    out.push_str("\t\t# ");
    if has_guid {
        write!(out, "lid {} lmc {} ", port.lid, port.lmc)?;
    }
    out.push('"');
    push_description(out, peer);
    writeln!(out, "\" lid {peer_lid} {}{}", port.width, port.speed)
}

/// True if a reader would take the GUID in brackets for ibdiagnet's port number.
fn reads_as_label(guid: u64, number: u8) -> bool {
    guid <= 0x254 && format!("{guid:x}") == number.to_string()
}

/// The management port, a blank one for a node that was built without ports.
fn port0(node: &Node) -> Port {
    node.ports.first().cloned().unwrap_or_default()
}

fn write_id(out: &mut String, node: &Node) -> std::fmt::Result {
    write!(out, "{}-{:016x}", node.kind.letter(), node.guid)
}

fn push_description(out: &mut String, node: &Node) {
    out.extend(node.description.chars().map(|c| if matches!(c, '\n' | '\0') { '.' } else { c }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{LinkSpeed, LinkWidth, PortRef};

    #[test]
    fn the_text_is_that_of_ibnetdiscover() {
        let mut t = Topology::default();
        t.nodes.push(Node::new(NodeKind::Switch, 0x2_c903_0000_0010, 36, "leaf;1"));
        t.nodes.push(Node::new(NodeKind::Ca, 0x2_c903_0000_0020, 1, "node HCA-1"));
        t.nodes[0].enhanced_port0 = true;
        t.nodes[0].ports[0].lid = 7;
        t.nodes[1].ports[1].lid = 9;
        let (a, b) = (PortRef { node: 0, port: 3 }, PortRef { node: 1, port: 1 });
        assert!(t.connect(a, b, LinkWidth::X4, LinkSpeed::Qdr));
        let expected = "#\n# Topology file: written by madplane\n#\n\
            \nvendid=0x26d70\ndevid=0x6d02\nsysimgguid=0x2c90300000010\nswitchguid=0x2c90300000010(2c90300000010)\n\
            Switch\t36 \"S-0002c90300000010\"\t\t# \"leaf;1\" enhanced port 0 lid 7 lmc 0\n\
            [3]\t\"H-0002c90300000020\"[1](2c90300000021) \t\t# \"node HCA-1\" lid 9 4xQDR\n\
            \nvendid=0x26d70\ndevid=0x6d01\nsysimgguid=0x2c90300000020\ncaguid=0x2c90300000020\n\
            Ca\t1 \"H-0002c90300000020\"\t\t# \"node HCA-1\"\n\
            [1](2c90300000021) \t\"S-0002c90300000010\"[3]\t\t# lid 9 lmc 0 \"leaf;1\" lid 7 4xQDR\n";
        assert_eq!(to_ibnetdiscover(&t), expected);
    }
}
