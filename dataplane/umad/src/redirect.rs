//! Which paths are ours, and where they lead instead.
//!
//! Called by the replaced C library functions on any thread, for every path a program uses, so [`concerns`] looks at a few
//! bytes and nothing else. A path of ours leads into the device tree, which is brought up to date first if it is older
//! than [`FRESH_FOR`], by this process or any other with the same selector. Invariants: a path that is not ours is never
//! changed; without a plane, a path of ours does not exist, whatever the machine really has. Not done here: opening.

use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::plane::{self, Settings};
use crate::{query, tree};

/// How long a tree is used without asking the node again.
const FRESH_FOR: Duration = Duration::from_millis(200);
/// Longest path that can lead into a tree; a real one is far below.
const PATH_BYTES: usize = 512;

/// The directories that are ours, and their places in a tree.
const OURS: [(&str, &str); 3] = [
    ("/sys/class/infiniband", tree::CLASS),
    ("/sys/class/infiniband_mad", tree::MAD_CLASS),
    ("/dev/infiniband", tree::NODES),
];

/// Memory for a path; without a destructor, so that a thread may be cancelled inside the call that uses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathBytes {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl PathBytes {
    /// An empty path.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; PATH_BYTES], length: 0 }
    }

    /// As a C string.
    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Adds bytes; false if there is no room for them and a final NUL.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.length + bytes.len();
        if end >= PATH_BYTES {
            return false;
        }
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
        true
    }
}

/// Whether `path` may be one of ours: it starts like `/sys/` or `/dev/` and goes on like one of [`OURS`].
#[inline]
pub(crate) fn concerns(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    let byte = |index: usize| {
        // SAFETY: every earlier byte was looked at and is not NUL, so this one belongs to the caller's string.
        unsafe { path.wrapping_add(index).read() }.to_ne_bytes()[0]
    };
    if byte(0) != b'/' || !matches!(byte(1), b's' | b'd' | b'/' | b'.') {
        return false;
    }
    is_ours(path)
}

#[cold]
fn is_ours(path: *const c_char) -> bool {
    // SAFETY: concerns checked for null, and callers pass C strings.
    let path = unsafe { CStr::from_ptr(path) };
    tidy(path.to_bytes()).is_some_and(|tidy| split(&tidy).is_some())
}

/// The path without doubled slashes and `.` parts; `None` if it has `..` or is too long, and thus is not ours.
fn tidy(path: &[u8]) -> Option<PathBytes> {
    let mut tidy = PathBytes::new();
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." || !tidy.push(b"/") || !tidy.push(part) {
            return None;
        }
    }
    Some(tidy)
}

/// The place in a tree and the rest of the path, if it is ours.
fn split(tidy: &PathBytes) -> Option<(&'static str, &[u8])> {
    OURS.iter().find_map(|(prefix, place)| {
        let rest = tidy.as_bytes().strip_prefix(prefix.as_bytes())?;
        (rest.is_empty() || rest[0] == b'/').then_some((*place, rest))
    })
}

/// Number of the issm or umad device that `path` is, if it is one: `/dev/infiniband/issm0`.
pub(crate) fn device_node(path: *const c_char) -> Option<DeviceNode> {
    // SAFETY: concerns checked for null, and callers pass C strings.
    let path = unsafe { CStr::from_ptr(path) };
    let tidy = tidy(path.to_bytes())?;
    let (tree::NODES, rest) = split(&tidy)? else { return None };
    let name = std::str::from_utf8(rest.strip_prefix(b"/")?).ok()?;
    if let Some(number) = name.strip_prefix("issm") {
        return number.parse().ok().map(DeviceNode::Issm);
    }
    name.strip_prefix("umad")?.parse().ok().map(DeviceNode::Umad)
}

/// A device node by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceNode {
    /// Sets IsSM while open.
    Issm(u8),
    /// The MAD device itself.
    Umad(u8),
}

/// Writes to `place` where `path`, which [`concerns`] us, leads.
///
/// # Errors
/// `ENOENT` if it leads nowhere.
#[cold]
pub(crate) fn resolve(path: *const c_char, place: &mut PathBytes) -> Result<(), c_int> {
    // SAFETY: concerns checked for null, and callers pass C strings.
    let path = unsafe { CStr::from_ptr(path) };
    let tidy = tidy(path.to_bytes()).ok_or(libc::ENOENT)?;
    let (inside, rest) = split(&tidy).ok_or(libc::ENOENT)?;
    let root = current_tree().ok_or(libc::ENOENT)?;
    let root = std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str());
    let whole = place.push(root) && place.push(b"/") && place.push(inside.as_bytes()) && place.push(rest);
    if whole { Ok(()) } else { Err(libc::ENAMETOOLONG) }
}

/// Root of the tree of this process, brought up to date; `None` without a plane.
fn current_tree() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    static CHECKED: Mutex<Option<(Instant, bool)>> = Mutex::new(None);
    let settings = plane::settings()?;
    let root = ROOT.get_or_init(|| Some(settings.paths.device_trees().join(key(settings)))).as_deref()?;
    // a signal handler or the child of a fork may come here while the lock is held for ever: the tree is used as it is
    let Ok(mut checked) = CHECKED.try_lock() else { return Some(root) };
    if let Some((when, there)) = *checked
        && when.elapsed() < FRESH_FOR
    {
        return there.then_some(root);
    }
    let there = is_fresh(root) || refresh(settings, root);
    *checked = Some((Instant::now(), there));
    there.then_some(root)
}

/// Name of the tree: one for each user, device and selector.
fn key(settings: &Settings) -> String {
    // SAFETY: cannot fail.
    let user = unsafe { libc::geteuid() };
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let at: String = settings.at.chars().map(plain).take(48).collect();
    // FNV-1a keeps selectors apart that look the same after that
    let hash = settings.at.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{user}-{}-{at}-{hash:016x}", settings.device)
}

fn stamp(root: &Path) -> PathBuf {
    root.join("stamp")
}

/// Whether some process has written the tree just now.
fn is_fresh(root: &Path) -> bool {
    let age = |path: PathBuf| std::fs::metadata(path).ok()?.modified().ok()?.elapsed().ok();
    age(stamp(root)).is_some_and(|age| age < FRESH_FOR)
}

/// Asks the node and writes the tree; false without a plane.
fn refresh(settings: &Settings, root: &Path) -> bool {
    let Ok(node) = query::read_node(settings) else { return false };
    let written = tree::write(root, &tree::files(&node, &settings.device))
        .and_then(|()| tree::replace(root, &stamp(root), &format!("{}\n", std::process::id())));
    if let Err(error) = &written {
        plane::report_text(&format!("cannot write the device tree {}: {error}", root.display()));
    }
    written.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn ours(path: &str) -> bool {
        concerns(CString::new(path).unwrap().as_ptr())
    }

    #[test]
    fn only_the_three_directories_and_what_is_below_them_are_ours() {
        for path in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/",
            "/sys/class/infiniband/mlx5_0/ports/1/gids/0",
            "//sys//class/./infiniband/mlx5_0",
            "/sys/class/infiniband_mad/abi_version",
            "/dev/infiniband/umad0",
            "/./dev/infiniband/issm0",
        ] {
            assert!(ours(path), "{path}");
        }
        for path in [
            "",
            "/",
            "/s",
            "/d",
            "/sys/class/infiniband_verbs/abi_version",
            "/sys/class/infiniband2",
            "/sys/class/infinibandx/y",
            "/sys/class/net",
            "/sys/class",
            "/dev/infinibandx",
            "/dev/null",
            "sys/class/infiniband",
            "/data/sys/class/infiniband",
            "/sys/class/infiniband/../net",
        ] {
            assert!(!ours(path), "{path}");
        }
        assert!(!concerns(std::ptr::null()));
        let long = format!("/sys/class/infiniband/{}", "x".repeat(PATH_BYTES));
        assert!(!ours(&long));
    }

    #[test]
    fn device_nodes_are_known_by_number() {
        let node = |path: &str| device_node(CString::new(path).unwrap().as_ptr());
        assert_eq!(node("/dev/infiniband/issm0"), Some(DeviceNode::Issm(0)));
        assert_eq!(node("/dev//infiniband/umad13"), Some(DeviceNode::Umad(13)));
        for other in [
            "/dev/infiniband",
            "/dev/infiniband/issm",
            "/dev/infiniband/issm999",
            "/sys/class/infiniband_mad/issm0",
        ] {
            assert_eq!(node(other), None, "{other}");
        }
    }

    #[test]
    fn selectors_that_look_alike_have_trees_of_their_own() {
        let one = key(&plane::tests::settings_at("leaf 1:2"));
        let two = key(&plane::tests::settings_at("leaf_1:2"));
        assert_ne!(one, two);
        assert!(one.bytes().all(|b| b != b'/' && b != b' '), "{one}");
    }
}
