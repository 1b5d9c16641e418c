//! RDMA devices of this machine: their names, what they can be used for, and why they cannot.
//!
//! Cold paths only: housekeeping lists devices, a worker opens one. Reading is done below a root directory, so that tests can
//! give it a tree of their own. It does not open anything; [`crate::umad_dev`] and `verbs` do.

mod identity;
mod introduction;
mod issm;

use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

pub use identity::{ACTIVE, PortIdentity};
pub use introduction::introduce;
pub use issm::hold_is_sm;

/// Why a device cannot be used. One line each, for an operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The kernel has no RDMA, or its modules are not loaded.
    #[error("unavailable, because this kernel has no RDMA (no /sys/class/infiniband)")]
    NoRdma,
    /// No device of that name.
    #[error("unavailable, because there is no RDMA device {name:?}; there {}", there_are(.known))]
    NoDevice {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The device has no such port.
    #[error("unavailable, because {name} has no port {port}")]
    NoPort {
        /// The device.
        name: String,
        /// The port that was asked for.
        port: u8,
    },
    /// The device has no node in /dev/infiniband for this.
    #[error("unavailable, because {name} port {port} has no umad device (module ib_umad)")]
    NoUmad {
        /// The device.
        name: String,
        /// Its port.
        port: u8,
    },
    /// This program was built without verbs.
    #[error("unavailable, because this program was built without the feature verbs")]
    NotBuilt,
    /// libibverbs is not installed.
    #[error("unavailable, because libibverbs is missing ({why})")]
    NoLibrary {
        /// The dynamic linker's words.
        why: String,
    },
    /// The kernel refuses this user.
    #[error("unavailable, because this user may not open {what}")]
    NoPermission {
        /// What was to be opened.
        what: String,
    },
    /// The memory for packets may not be locked.
    #[error(
        "unavailable, because {needs_kib} KiB of locked memory are needed and {} are allowed (ulimit -l)",
        locked_limit(.limit_kib)
    )]
    LockedMemory {
        /// What is needed, KiB.
        needs_kib: u64,
        /// What the limit is, KiB; `None` if there is no limit and memory is just short.
        limit_kib: Option<u64>,
    },
    /// The port does not carry packets.
    #[error("unavailable, because {name} port {port} is {}, not ACTIVE", state_name(*.state))]
    NotActive {
        /// The device.
        name: String,
        /// Its port.
        port: u8,
        /// The state, as PortInfo numbers it.
        state: u32,
    },
    /// Packets are longer than the port carries.
    #[error("unavailable, because the port's MTU is {has} bytes and {needs} are needed")]
    Mtu {
        /// What the port carries.
        has: usize,
        /// What a packet takes.
        needs: usize,
    },
    /// Queues are longer than the device makes.
    #[error("unavailable, because the device completes at most {has} requests and {needs} are needed")]
    Limits {
        /// What the device makes.
        has: usize,
        /// What was asked for.
        needs: usize,
    },
    /// The port has no such partition key.
    #[error("unavailable, because {name} port {port} has no P_Key {p_key:#06x}")]
    NoPKey {
        /// The device.
        name: String,
        /// Its port.
        port: u8,
        /// The key that was asked for.
        p_key: u16,
    },
    /// A peer is not named by what this kind of port needs.
    #[error("unavailable, because {name} port {port} reaches its peer by {needs}, which is not named")]
    Unnamed {
        /// The device.
        name: String,
        /// Its port.
        port: u8,
        /// What has to be named.
        needs: &'static str,
    },
    /// The device knows no way to a port.
    #[error("unavailable, because {name} port {port} knows no way to {to}")]
    NoWay {
        /// The device.
        name: String,
        /// Its port.
        port: u8,
        /// The other port.
        to: String,
    },
    /// Somebody else answers there.
    #[error("unavailable, because another program waits for links at {name} port {port}")]
    Taken {
        /// The device.
        name: String,
        /// Its port.
        port: u8,
    },
    /// The device went away.
    #[error("unavailable, because {name} was removed")]
    Removed {
        /// The device.
        name: String,
    },
    /// Anything else that the system refused.
    #[error("unavailable, because {step} failed: {why}")]
    Failed {
        /// What was being done.
        step: &'static str,
        /// The system's words.
        why: String,
    },
}

fn there_are(names: &[String]) -> String {
    match names {
        [] => "is none".to_owned(),
        [one] => format!("is {one}"),
        many => format!("are {}", many.join(", ")),
    }
}

fn locked_limit(kib: &Option<u64>) -> String {
    kib.map_or_else(|| "not so many".to_owned(), |kib| format!("{kib} KiB"))
}

/// A port's state, as the tools write it.
pub const fn state_name(state: u32) -> &'static str {
    match state {
        1 => "DOWN",
        2 => "INIT",
        3 => "ARMED",
        4 => "ACTIVE",
        5 => "ACTIVE_DEFER",
        _ => "in no known state",
    }
}

impl Unavailable {
    /// A step that the system refused.
    pub(crate) fn failed(step: &'static str, error: &io::Error) -> Self {
        Self::Failed { step, why: error.to_string() }
    }

    /// Why the devices cannot be listed.
    #[cfg(feature = "verbs")]
    pub(crate) fn listing(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => Self::NoRdma,
            _ => Self::failed("listing devices", error),
        }
    }
}

/// How a device is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A queue pair of our own.
    Verbs,
    /// The kernel's device.
    Umad,
}

impl Backend {
    /// The word by which it is asked for and shown.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Umad => "umad",
        }
    }
}

/// A device as an operator names it: `[verbs:|umad:|auto:]NAME[,port=N][,gid=N][,peer=LID@GID...]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSpec {
    backend: Option<Backend>,
    device: String,
    port: u8,
    gid_index: u8,
    peers: Vec<(u16, [u8; 16])>,
}

/// Why a text names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no device; write [verbs:|umad:|auto:]NAME[,port=N][,gid=N][,peer=LID@GID...]")]
pub struct SpecError(String);

impl std::str::FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || SpecError(text.to_owned());
        let (backend, rest) = match text.split_once(':') {
            Some(("verbs", rest)) => (Some(Backend::Verbs), rest),
            Some(("umad", rest)) => (Some(Backend::Umad), rest),
            Some(("auto", rest)) => (None, rest),
            Some(_) => return Err(wrong()),
            None => (None, text),
        };
        let mut parts = rest.split(',');
        let device = parts.next().unwrap_or_default();
        // a name becomes part of paths
        if device.is_empty() || device.len() > 63 || device.contains(['/', '\0']) || device.starts_with('.') {
            return Err(wrong());
        }
        let mut spec = Self { backend, device: device.to_owned(), port: 1, gid_index: 0, peers: Vec::new() };
        for part in parts {
            match part.split_once('=') {
                Some(("port", number)) => spec.port = number.parse().map_err(|_| wrong())?,
                Some(("gid", number)) => spec.gid_index = number.parse().map_err(|_| wrong())?,
                Some(("peer", peer)) => spec.peers.push(parse_peer(peer).ok_or_else(wrong)?),
                _ => return Err(wrong()),
            }
        }
        if spec.port == 0 { Err(wrong()) } else { Ok(spec) }
    }
}

/// A unicast LID and a GID, as in `2@fe80::ff:fe00:2`.
fn parse_peer(text: &str) -> Option<(u16, [u8; 16])> {
    let (lid, gid) = text.split_once('@')?;
    let lid = lid.parse().ok().filter(|lid| (1..0xc000).contains(lid))?;
    Some((lid, gid.parse::<Ipv6Addr>().ok()?.octets()))
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.backend.map_or("auto", Backend::label);
        write!(f, "{backend}:{},port={},gid={}", self.device, self.port, self.gid_index)?;
        self.peers.iter().try_for_each(|(lid, gid)| write!(f, ",peer={lid}@{}", Ipv6Addr::from(*gid)))
    }
}

impl DeviceSpec {
    /// The backends to try, in order.
    pub fn backends(&self) -> &'static [Backend] {
        match self.backend {
            Some(Backend::Verbs) => &[Backend::Verbs],
            Some(Backend::Umad) => &[Backend::Umad],
            None => &[Backend::Verbs, Backend::Umad],
        }
    }

    /// True if the plane may go on with its own fabric where no backend works.
    pub fn falls_back(&self) -> bool {
        self.backend.is_none()
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The port, from 1 on.
    pub fn port(&self) -> u8 {
        self.port
    }

    /// LIDs that other ends of an Ethernet port are known by, with their GIDs.
    pub fn peers(&self) -> &[(u16, [u8; 16])] {
        &self.peers
    }

    /// Index into the port's GID table.
    pub fn gid_index(&self) -> u8 {
        self.gid_index
    }
}

/// A port of a device, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFacts {
    /// Number, from 1 on.
    pub number: u8,
    /// State, as PortInfo numbers it.
    pub state: u32,
    /// LID, 0 if it has none.
    pub lid: u16,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Its umad device and whether this user may use it.
    pub umad: Result<PathBuf, Unavailable>,
}

/// A device, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Name.
    pub name: String,
    /// Whether a queue pair can be had, as far as that can be said without opening one.
    pub verbs: Result<(), Unavailable>,
    /// Its ports, ascending.
    pub ports: Vec<PortFacts>,
}

/// The devices of this machine, by name.
///
/// # Errors
/// ENOSYS if the kernel has no RDMA, or its modules are not loaded. With RDMA and without devices the list is empty.
pub fn devices() -> io::Result<Vec<DeviceFacts>> {
    devices_below(Path::new("/"))
}

/// As [`devices`], of the machine whose files lie below `root`.
///
/// # Errors
/// As [`devices`].
pub fn devices_below(root: &Path) -> io::Result<Vec<DeviceFacts>> {
    let class = root.join("sys/class/infiniband");
    let names = match std::fs::read_dir(&class) {
        Ok(entries) => names(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !root.join("dev/infiniband").exists() {
                return Err(io::Error::from_raw_os_error(libc::ENOSYS));
            }
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for name in names {
        let ports = std::fs::read_dir(class.join(&name).join("ports")).map(self::names).unwrap_or_default();
        let mut ports: Vec<PortFacts> = ports
            .iter()
            .filter_map(|port| port.parse().ok())
            .map(|number| port_facts(root, &name, number))
            .collect();
        ports.sort_by_key(|port| port.number);
        all.push(DeviceFacts { verbs: verbs_node(root, &name), name, ports });
    }
    Ok(all)
}

fn names(entries: std::fs::ReadDir) -> Vec<String> {
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Where the kernel shows a port of a device.
fn port_directory(root: &Path, name: &str, number: u8) -> PathBuf {
    root.join("sys/class/infiniband").join(name).join("ports").join(number.to_string())
}

/// State of the port that is shown there, as PortInfo numbers it; `None` if there is no such port.
fn read_state(port: &Path) -> Option<u32> {
    read(&port.join("state")).split(':').next()?.parse().ok()
}

/// A number such as `0x1c`; `None` if there is none.
fn read_hex(path: &Path) -> Option<u16> {
    u16::from_str_radix(read(path).trim_start_matches("0x"), 16).ok()
}

fn port_facts(root: &Path, name: &str, number: u8) -> PortFacts {
    let at = port_directory(root, name, number);
    PortFacts {
        number,
        state: read_state(&at).unwrap_or(0),
        lid: read_hex(&at.join("lid")).unwrap_or(0),
        link_layer: read(&at.join("link_layer")),
        umad: umad_path_below(root, name, number),
    }
}

/// The node that the kernel made for verbs of this device, if this user may open it.
fn verbs_node(root: &Path, name: &str) -> Result<(), Unavailable> {
    #[cfg(not(feature = "verbs"))]
    {
        let _ = (root, name);
        Err(Unavailable::NotBuilt)
    }
    #[cfg(feature = "verbs")]
    {
        crate::verbs::library::load().map_err(|why| Unavailable::NoLibrary { why: why.to_owned() })?;
        let entry = verbs_entry_below(root, name)
            .ok_or_else(|| Unavailable::NoDevice { name: name.to_owned(), known: Vec::new() })?;
        may_use(&root.join("dev/infiniband").join(entry.file_name().unwrap_or_default()))
    }
}

/// Where the kernel lists the verbs device of a device.
pub(crate) fn verbs_entry(name: &str) -> Option<PathBuf> {
    verbs_entry_below(Path::new("/"), name)
}

fn verbs_entry_below(root: &Path, name: &str) -> Option<PathBuf> {
    let class = root.join("sys/class/infiniband_verbs");
    let entries = std::fs::read_dir(&class).map(names).unwrap_or_default();
    entries.iter().map(|entry| class.join(entry)).find(|entry| read(&entry.join("ibdev")) == name)
}

fn may_use(path: &Path) -> Result<(), Unavailable> {
    rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).map_err(|error| match error {
        rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => {
            Unavailable::NoPermission { what: path.display().to_string() }
        }
        other => Unavailable::failed("looking for its device node", &other.into()),
    })
}

/// The umad device of a port, if this user may use it.
///
/// # Errors
/// [`Unavailable`] says what is missing.
pub fn umad_path(name: &str, port: u8) -> Result<PathBuf, Unavailable> {
    umad_path_below(Path::new("/"), name, port)
}

/// Place of a partition key in the table of a port.
///
/// # Errors
/// [`Unavailable::NoPKey`], also where there is no such port.
pub fn p_key_index(name: &str, port: u8, p_key: u16) -> Result<u16, Unavailable> {
    p_key_index_below(Path::new("/"), name, port, p_key)
}

fn p_key_index_below(root: &Path, name: &str, port: u8, p_key: u16) -> Result<u16, Unavailable> {
    let at = root.join("sys/class/infiniband").join(name).join("ports").join(port.to_string()).join("pkeys");
    let key = |index: &String| u16::from_str_radix(read(&at.join(index)).trim_start_matches("0x"), 16);
    let all = std::fs::read_dir(&at).map(names).unwrap_or_default();
    let found = all.iter().find(|index| key(index) == Ok(p_key)).and_then(|index| index.parse().ok());
    found.ok_or_else(|| Unavailable::NoPKey { name: name.to_owned(), port, p_key })
}

fn umad_path_below(root: &Path, name: &str, port: u8) -> Result<PathBuf, Unavailable> {
    let verbs = root.join("sys/class/infiniband");
    let known = match std::fs::read_dir(&verbs) {
        Ok(entries) => names(entries),
        Err(_) if !root.join("dev/infiniband").exists() => return Err(Unavailable::NoRdma),
        Err(_) => Vec::new(),
    };
    if !known.iter().any(|device| device == name) {
        return Err(Unavailable::NoDevice { name: name.to_owned(), known });
    }
    if !verbs.join(name).join("ports").join(port.to_string()).exists() {
        return Err(Unavailable::NoPort { name: name.to_owned(), port });
    }
    let node = mad_node(root, "umad", name, port)
        .ok_or_else(|| Unavailable::NoUmad { name: name.to_owned(), port })?;
    let path = root.join("dev/infiniband").join(node);
    may_use(&path)?;
    Ok(path)
}

/// The umad or issm device of a port.
fn mad_node(root: &Path, kind: &str, name: &str, port: u8) -> Option<String> {
    let class = root.join("sys/class/infiniband_mad");
    let nodes = std::fs::read_dir(&class).map(names).unwrap_or_default();
    nodes.into_iter().filter(|node| node.starts_with(kind)).find(|node| {
        let at = class.join(node);
        read(&at.join("ibdev")) == name && read(&at.join("port")).parse() == Ok(port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_with_what_differs_from_the_default() {
        let spec: DeviceSpec = "verbs:rxe0,gid=2".parse().unwrap();
        assert_eq!((spec.device(), spec.port(), spec.gid_index()), ("rxe0", 1, 2));
        assert_eq!(spec.backends(), [Backend::Verbs]);
        assert!(!spec.falls_back());
        assert_eq!(spec.to_string(), "verbs:rxe0,port=1,gid=2");
        assert_eq!(spec.to_string().parse(), Ok(spec));
        let spec: DeviceSpec = "umad:rxe0,peer=2@fe80::ff:fe00:2,peer=3@::1".parse().unwrap();
        assert_eq!(spec.peers()[1], (3, Ipv6Addr::LOCALHOST.octets()));
        assert_eq!(spec.to_string(), "umad:rxe0,port=1,gid=0,peer=2@fe80::ff:fe00:2,peer=3@::1");
        let spec: DeviceSpec = "mlx5_0,port=2".parse().unwrap();
        assert_eq!(spec.backends(), [Backend::Verbs, Backend::Umad]);
        assert!(spec.falls_back());
    }

    #[test]
    fn what_names_no_device_is_refused() {
        for text in [
            "",
            "verbs:",
            "roce:rxe0",
            "rxe0,port=0",
            "rxe0,port=256",
            "rxe0,lid=1",
            "../x",
            "a/b",
            "rxe0,gid",
            "rxe0,peer=2",
            "rxe0,peer=0@::1",
            "rxe0,peer=49152@::1",
            "rxe0,peer=1@rxe1",
        ] {
            assert_eq!(text.parse::<DeviceSpec>(), Err(SpecError(text.to_owned())), "{text:?}");
        }
    }

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("madplane-device-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&root).unwrap();
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn without_rdma_it_is_enosys_and_without_devices_an_empty_list() {
        let tree = Tree::new("empty");
        assert_eq!(devices_below(&tree.0).unwrap_err().raw_os_error(), Some(libc::ENOSYS));
        assert_eq!(umad_path_below(&tree.0, "a", 1), Err(Unavailable::NoRdma));
        std::fs::create_dir_all(tree.0.join("sys/class/infiniband")).unwrap();
        assert_eq!(devices_below(&tree.0).unwrap(), []);
        assert_eq!(
            umad_path_below(&tree.0, "a", 1),
            Err(Unavailable::NoDevice { name: "a".to_owned(), known: vec![] })
        );
    }

    #[test]
    fn ports_and_their_nodes_are_found() {
        let tree = Tree::new("ports");
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        write(&tree.0, &format!("{port}/state"), "4: ACTIVE\n");
        write(&tree.0, &format!("{port}/lid"), "0x1c\n");
        write(&tree.0, &format!("{port}/link_layer"), "InfiniBand\n");
        write(&tree.0, &format!("{port}/pkeys/0"), "0xffff\n");
        write(&tree.0, &format!("{port}/pkeys/12"), "0x8001\n");
        assert_eq!(p_key_index_below(&tree.0, "mlx5_0", 1, 0x8001), Ok(12));
        let none = Unavailable::NoPKey { name: "mlx5_0".to_owned(), port: 1, p_key: 1 };
        assert_eq!(p_key_index_below(&tree.0, "mlx5_0", 1, 1), Err(none));
        write(&tree.0, "sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
        write(&tree.0, "sys/class/infiniband_mad/umad7/ibdev", "mlx5_0\n");
        write(&tree.0, "sys/class/infiniband_mad/umad7/port", "1\n");
        write(&tree.0, "dev/infiniband/umad7", "");
        let all = devices_below(&tree.0).unwrap();
        assert_eq!(all.len(), 1);
        let [first, second] = &all[0].ports[..] else { panic!("two ports") };
        assert_eq!((first.number, first.state, first.lid), (1, 4, 0x1c));
        assert_eq!(first.link_layer, "InfiniBand");
        assert_eq!(first.umad, Ok(tree.0.join("dev/infiniband/umad7")));
        assert_eq!(second.state, 1);
        assert_eq!(second.umad, Err(Unavailable::NoUmad { name: "mlx5_0".to_owned(), port: 2 }));
        assert_eq!(
            umad_path_below(&tree.0, "mlx5_0", 3),
            Err(Unavailable::NoPort { name: "mlx5_0".to_owned(), port: 3 })
        );
    }

    #[test]
    fn every_reason_is_one_line_that_begins_alike() {
        let name = || "rxe0".to_owned();
        let all = [
            Unavailable::NoRdma,
            Unavailable::NoDevice { name: name(), known: vec!["a".to_owned(), "b".to_owned()] },
            Unavailable::NoPort { name: name(), port: 2 },
            Unavailable::NoUmad { name: name(), port: 1 },
            Unavailable::NotBuilt,
            Unavailable::NoLibrary { why: "libibverbs.so.1: cannot open".to_owned() },
            Unavailable::NoPermission { what: "/dev/infiniband/umad0".to_owned() },
            Unavailable::LockedMemory { needs_kib: 240, limit_kib: Some(64) },
            Unavailable::NotActive { name: name(), port: 1, state: 1 },
            Unavailable::Mtu { has: 256, needs: 480 },
            Unavailable::Limits { has: 10, needs: 20 },
            Unavailable::NoPKey { name: name(), port: 1, p_key: 0x8001 },
            Unavailable::Unnamed { name: name(), port: 1, needs: "GID" },
            Unavailable::NoWay { name: name(), port: 1, to: "fe80::1".to_owned() },
            Unavailable::Taken { name: name(), port: 1 },
            Unavailable::Removed { name: name() },
            Unavailable::failed("x", &io::Error::from_raw_os_error(libc::EIO)),
        ];
        for reason in all {
            let line = reason.to_string();
            assert!(line.starts_with("unavailable, because ") && !line.contains('\n'), "{line}");
        }
        let locked = Unavailable::LockedMemory { needs_kib: 240, limit_kib: Some(64) };
        assert_eq!(
            locked.to_string(),
            "unavailable, because 240 KiB of locked memory are needed and 64 KiB are allowed (ulimit -l)"
        );
    }
}
