//! The device tree: the files that the kernel would show for the node, written below the plane's runtime directory.
//!
//! [`files`] says what the files hold, [`write`] puts them there. Any process under the library may write at any time, so
//! every file is written elsewhere in the tree and renamed into place: a reader sees the old or the new text, never a
//! part, and directories stay the same for a process that stands in one. Invariant: paths are relative and made of names chosen here. Not done here: when to write, and where.
//!
//! Source of names and formats: spec/libibumad-abi.md section 1.3.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::facts::{Node, Port, phys_state_name, state_name};

/// Directory of devices inside a tree.
pub(crate) const CLASS: &str = "sys/class/infiniband";
/// Directory of umad devices inside a tree.
pub(crate) const MAD_CLASS: &str = "sys/class/infiniband_mad";
/// Directory of device nodes inside a tree.
pub(crate) const NODES: &str = "dev/infiniband";
/// Kind of adapter shown.
const CA_TYPE: &str = "madplane";
/// Firmware version shown.
const FIRMWARE: &str = "1.0.0";
/// Board shown.
const BOARD: &str = "MADPLANE0000000001";

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Where, relative to the root of the tree.
    pub(crate) path: String,
    /// Its text, final newline included.
    pub(crate) text: String,
}

/// Hardware version shown.
pub(crate) fn hardware_version(node: &Node) -> String {
    node.kernel.as_ref().map_or_else(|| format!("{:x}", node.info.revision), |kernel| kernel.hardware.clone())
}

/// Firmware version shown.
pub(crate) fn firmware(node: &Node) -> &str {
    node.kernel.as_ref().map_or(FIRMWARE, |kernel| &kernel.firmware)
}

/// Kind of adapter shown.
pub(crate) fn ca_type(node: &Node) -> &str {
    node.kernel.as_ref().map_or(CA_TYPE, |kernel| &kernel.kind)
}

/// The files of the tree of `node`, shown as the device `name`.
pub(crate) fn files(node: &Node, name: &str) -> Vec<File> {
    let mut files = Vec::new();
    // opening a device node never reaches its file (see `interpose`), asking for it does
    let mut nodes = Vec::new();
    let mut add = |path: String, text: &str| files.push(File { path, text: format!("{text}\n") });
    let device = format!("{CLASS}/{name}");
    let node_type = match node.info.node_type {
        1 => "1: CA",
        2 => "2: switch",
        3 => "3: router",
        _ => "0: <unknown>",
    };
    add(format!("{device}/node_type"), node_type);
    add(format!("{device}/fw_ver"), firmware(node));
    add(format!("{device}/hw_rev"), &hardware_version(node));
    add(format!("{device}/hca_type"), ca_type(node));
    add(format!("{device}/board_id"), node.kernel.as_ref().map_or(BOARD, |kernel| &kernel.board));
    add(format!("{device}/node_guid"), &guid_text(node.info.node_guid));
    add(format!("{device}/sys_image_guid"), &guid_text(node.info.system_image_guid));
    add(format!("{device}/node_desc"), &node.description);
    add(format!("{MAD_CLASS}/abi_version"), "5");
    for (index, port) in node.ports.iter().enumerate() {
        port_files(port, &format!("{device}/ports/{}", port.number), &mut add);
        for kind in ["umad", "issm"] {
            add(format!("{MAD_CLASS}/{kind}{index}/ibdev"), name);
            add(format!("{MAD_CLASS}/{kind}{index}/port"), &port.number.to_string());
            nodes.push(File { path: format!("{NODES}/{kind}{index}"), text: String::new() });
        }
    }
    files.append(&mut nodes);
    files
}

fn port_files(port: &Port, directory: &str, add: &mut impl FnMut(String, &str)) {
    let info = &port.info;
    let mut entry = |name: &str, text: &str| add(format!("{directory}/{name}"), text);
    entry("lid", &format!("{:#x}", info.lid));
    entry("lid_mask_count", &info.lmc.to_string());
    entry("sm_lid", &format!("{:#x}", info.master_sm_lid));
    entry("sm_sl", &info.master_sm_sl.to_string());
    entry("state", &format!("{}: {}", info.port_state, state_name(info.port_state)));
    entry("phys_state", &format!("{}: {}", info.port_phys_state, phys_state_name(info.port_phys_state)));
    entry("rate", &port.rate_text());
    entry("cap_mask", &format!("{:#010x}", info.cap_mask));
    entry("link_layer", port.link_layer());
    for (index, (prefix, guid)) in port.gids().into_iter().enumerate() {
        entry(&format!("gids/{index}"), &gid_text(prefix, guid));
    }
    for (index, key) in port.p_keys.iter().enumerate() {
        entry(&format!("pkeys/{index}"), &format!("{key:#06x}"));
    }
}

fn guid_text(guid: u64) -> String {
    let [a, b, c, d, e, f, g, h] = guid.to_be_bytes();
    format!("{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f:02x}:{g:02x}{h:02x}")
}

fn gid_text(prefix: u64, guid: u64) -> String {
    format!("{}:{}", guid_text(prefix), guid_text(guid))
}

/// Makes the tree below `root` hold exactly `files`; a file whose text is the same is left alone.
///
/// # Errors
/// As creating directories and files.
pub(crate) fn write(root: &Path, files: &[File]) -> io::Result<()> {
    let wanted: HashMap<PathBuf, &str> =
        files.iter().map(|file| (root.join(&file.path), file.text.as_str())).collect();
    for (path, text) in &wanted {
        if fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
            continue;
        }
        replace(root, path, text)?;
    }
    for top in ["sys", "dev"] {
        prune(&root.join(top), &wanted);
    }
    Ok(())
}

/// Replaces the file at `path`, somewhere below `root`, at once; makes its directories.
pub(crate) fn replace(root: &Path, path: &Path, text: &str) -> io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let drafts = root.join("drafts");
    let draft = drafts.join(format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    if fs::write(&draft, text).is_err() {
        fs::create_dir_all(&drafts)?;
        fs::write(&draft, text)?;
    }
    if fs::rename(&draft, path).is_ok() {
        return Ok(());
    }
    fs::create_dir_all(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
    fs::rename(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Removes what is not wanted, directories that became empty included. Another process may be doing the same.
fn prune(directory: &Path, wanted: &HashMap<PathBuf, &str>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            prune(&path, wanted);
            // fails while it holds anything
            let _ = fs::remove_dir(&path);
        } else if !wanted.contains_key(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::two_port_adapter;
    use std::collections::BTreeMap;

    fn texts(node: &Node) -> BTreeMap<String, String> {
        files(node, "mlx5_0").into_iter().map(|file| (file.path, file.text)).collect()
    }

    #[test]
    fn files_have_the_formats_of_the_kernel() {
        let files = texts(&two_port_adapter());
        let want = [
            ("node_type", "1: CA"),
            ("node_guid", "0002:c903:0000:0010"),
            ("sys_image_guid", "0002:c903:0000:0013"),
            ("node_desc", "host-7 HCA-1"),
            ("ports/2/lid", "0x12"),
            ("ports/2/lid_mask_count", "3"),
            ("ports/2/sm_lid", "0x1"),
            ("ports/2/sm_sl", "2"),
            ("ports/1/state", "2: INIT"),
            ("ports/2/state", "4: ACTIVE"),
            ("ports/2/phys_state", "5: LinkUp"),
            ("ports/2/rate", "40 Gb/sec (4X QDR)"),
            ("ports/2/cap_mask", "0x02514868"),
            ("ports/2/link_layer", "InfiniBand"),
            ("ports/2/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0012"),
            ("ports/2/gids/1", "fe80:0000:0000:0000:0000:0000:0000:0077"),
            ("ports/2/pkeys/0", "0xffff"),
            ("ports/2/pkeys/1", "0x0005"),
            ("ports/2/pkeys/3", "0x0000"),
        ];
        for (path, text) in want {
            assert_eq!(files.get(&format!("{CLASS}/mlx5_0/{path}")), Some(&format!("{text}\n")), "{path}");
        }
        assert_eq!(files[&format!("{MAD_CLASS}/abi_version")], "5\n");
        assert_eq!(files[&format!("{MAD_CLASS}/umad1/port")], "2\n");
        assert_eq!(files[&format!("{MAD_CLASS}/issm0/ibdev")], "mlx5_0\n");
        assert_eq!(files[&format!("{NODES}/issm1")], "");
    }

    #[test]
    fn writing_replaces_what_changed_and_removes_what_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let mut node = two_port_adapter();
        write(root.path(), &files(&node, "mlx5_0")).unwrap();
        let port = root.path().join(CLASS).join("mlx5_0/ports/2");
        let untouched = fs::metadata(port.join("rate")).unwrap().modified().unwrap();
        node.ports.remove(0);
        node.ports[0].info.lid = 0x99;
        node.ports[0].p_keys.truncate(1);
        write(root.path(), &files(&node, "mlx5_0")).unwrap();
        assert_eq!(fs::read_to_string(port.join("lid")).unwrap(), "0x99\n");
        assert!(!port.join("pkeys/1").exists());
        assert!(!root.path().join(CLASS).join("mlx5_0/ports/1").exists());
        assert_eq!(fs::metadata(port.join("rate")).unwrap().modified().unwrap(), untouched);
        assert_eq!(fs::read_dir(root.path().join("drafts")).unwrap().count(), 0);
    }
}
