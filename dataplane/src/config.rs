//! Configuration of a plane: as written, then as valid.
//!
//! [`RawConfig`] has public fields and may hold anything. [`Config`] is reached only through [`TryFrom`] and holds values
//! that make sense together on this machine; it is printed at start.

use std::fmt;
use std::path::PathBuf;

use madplane_port::device::{DeviceSpec, SpecError};
use madplane_port::machine::{self, CoreError, CorePlan};
use madplane_port::pool::Source;
use madplane_shm::links::{LinkSpec, LinkSpecError};
use madplane_shm::map::{self, HUGE_PAGE_BYTES};
use madplane_shm::paths::{NameError, PlanePaths};
use madplane_shm::session::{DEFAULT_SLOTS, MAX_SLOTS};
use madplane_shm::status::{MAX_DEVICES, MAX_WORKERS};
use madplane_shm::tuning::{Tuning, TuningError, TuningPatch};

/// Fabric of a plane that is not told another one: 648 hosts.
pub const DEFAULT_FABRIC: &str = "builtin:fat-tree,radix=36,levels=2";

/// Most MiB for sessions that are taken seriously: 1 TiB.
const MOST_MIB: u64 = 1 << 20;

/// A plane's configuration as written.
#[derive(Debug, Clone, Default)]
pub struct RawConfig {
    /// Name of the plane.
    pub name: String,
    /// File, or `builtin:KIND,k=v...`.
    pub fabric: Option<String>,
    /// Number of workers.
    pub workers: Option<usize>,
    /// Cores of the workers, as a list such as `1,3-5`.
    pub cores: Option<String>,
    /// Node, optionally `:PORT`, where sessions attach unless they say otherwise.
    pub at: Option<String>,
    /// Slots per ring of a session.
    pub session_slots: Option<u64>,
    /// Never use huge pages.
    pub no_huge: bool,
    /// Mount of hugetlbfs that huge pages come from.
    pub huge_dir: Option<PathBuf>,
    /// Most memory for sessions, MiB for each NUMA node, separated by commas.
    pub socket_mem: Option<String>,
    /// Refuse a fabric file that needs repairs.
    pub strict: bool,
    /// How workers wait.
    pub mode: Option<String>,
    /// What tunes them, NAME=VALUE each.
    pub tune: Vec<String>,
    /// Links to other planes, each `NODE:PORT via=TRANSPORT:LOCAL peer=ADDRESS [credentials=DIRECTORY]`.
    pub links: Vec<String>,
    /// RDMA devices, each `[verbs:|umad:|auto:]NAME[,port=N][,gid=N][,peer=LID@GID...]`.
    pub devices: Vec<String>,
    /// Workers never poll in vain, whatever the mode: others need their cores.
    pub overprovisioned: bool,
}

/// Where the fabric comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FabricSource {
    /// A topology file.
    File(PathBuf),
    /// A generator's specification, with its `builtin:`.
    Builtin(String),
}

impl fmt::Display for FabricSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Builtin(spec) => f.write_str(spec),
        }
    }
}

/// A plane's configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    paths: PlanePaths,
    fabric: FabricSource,
    workers: usize,
    cores: CorePlan,
    allowed: Vec<usize>,
    named: bool,
    at: Option<String>,
    session_slots: u64,
    huge_pages: Option<Source>,
    session_bytes: Option<Vec<u64>>,
    strict: bool,
    tuning: Tuning,
    overprovisioned: bool,
    takes_all: bool,
    links: Vec<LinkSpec>,
    devices: Vec<DeviceSpec>,
}

/// Why a configuration is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Cores cannot be used.
    #[error(transparent)]
    Cores(#[from] CoreError),
    /// Too many or too few workers.
    #[error("{0} workers are not possible, use 1 to {MAX_WORKERS}")]
    Workers(usize),
    /// Memory is given for more NUMA nodes than there are.
    #[error("memory for sessions is given for {given} NUMA nodes, there {}", if *nodes == 1 { "is 1".to_owned() } else { format!("are {nodes}") })]
    Nodes {
        /// Numbers given.
        given: usize,
        /// Nodes of the machine.
        nodes: usize,
    },
    /// Not a mount of hugetlbfs that can be used.
    #[error("--huge-dir {}: {reason}", path.display())]
    HugeDir {
        /// What was asked for.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Not a list of numbers of MiB.
    #[error("{0:?} is no memory for sessions; give MiB for each NUMA node, such as 64 or 64,64")]
    Memory(String),
    /// The tuning is not one.
    #[error(transparent)]
    Tuning(#[from] TuningError),
    /// A link is not one.
    #[error("--link {line:?}: {source}")]
    Link {
        /// What was asked for.
        line: String,
        /// What is wrong with it.
        source: LinkSpecError,
    },
    /// A device is not one.
    #[error("--device {0}")]
    Device(#[from] SpecError),
    /// Two devices are one port.
    #[error("--device {0}: port {1} of it is given twice")]
    DeviceTwice(String, u8),
    /// More devices than a plane has.
    #[error("{0} devices are not possible, a plane has at most {MAX_DEVICES}")]
    Devices(usize),
    /// Slots are not a power of two, or too many or too few.
    #[error("{0} session slots are not possible, use a power of two from 64 to {MAX_SLOTS}")]
    Slots(u64),
}

impl TryFrom<RawConfig> for Config {
    type Error = ConfigError;

    fn try_from(raw: RawConfig) -> Result<Self, ConfigError> {
        let paths = PlanePaths::new(&raw.name)?;
        let wanted = raw.cores.as_deref().map(machine::parse_cores).transpose()?;
        let workers = raw.workers.or(wanted.as_ref().map(Vec::len)).unwrap_or(1);
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(ConfigError::Workers(workers));
        }
        let allowed = machine::allowed_cores();
        let cores = machine::plan_cores(&allowed, wanted.as_deref(), workers)?;
        let session_slots = raw.session_slots.unwrap_or(DEFAULT_SLOTS);
        if !session_slots.is_power_of_two() || !(64..=MAX_SLOTS).contains(&session_slots) {
            return Err(ConfigError::Slots(session_slots));
        }
        let session_bytes = raw.socket_mem.as_deref().map(session_bytes).transpose()?;
        let nodes = machine::numa_nodes().len();
        if let Some(given) = session_bytes.as_ref().map(Vec::len).filter(|given| *given > nodes) {
            return Err(ConfigError::Nodes { given, nodes });
        }
        let huge_pages = huge_pages(raw.no_huge, raw.huge_dir)?;
        let tuning = tuning(raw.mode.as_deref(), &raw.tune)?;
        let link = |line: String| match LinkSpec::parse(&line) {
            Ok(spec) => Ok(spec),
            Err(source) => Err(ConfigError::Link { line, source }),
        };
        let links = raw.links.into_iter().map(link).collect::<Result<_, _>>()?;
        let devices = devices(&raw.devices)?;
        let fabric = raw.fabric.unwrap_or_else(|| DEFAULT_FABRIC.to_owned());
        let fabric = if fabric.starts_with("builtin:") {
            FabricSource::Builtin(fabric)
        } else {
            FabricSource::File(fabric.into())
        };
        // who polls on every core that there is leaves none to those who would give it work
        let takes_all = cores.workers.len() == allowed.len();
        Ok(Self {
            paths,
            fabric,
            workers,
            cores,
            allowed,
            named: wanted.is_some(),
            at: raw.at.filter(|at| !at.is_empty()),
            session_slots,
            huge_pages,
            session_bytes,
            strict: raw.strict,
            tuning,
            overprovisioned: raw.overprovisioned || takes_all,
            takes_all,
            links,
            devices,
        })
    }
}

fn huge_pages(never: bool, mount: Option<PathBuf>) -> Result<Option<Source>, ConfigError> {
    let Some(path) = mount else { return Ok((!never).then_some(Source::Machine)) };
    let reason = match map::mount_page_bytes(&path) {
        _ if never => "not together with --no-huge".to_owned(),
        Ok(page) if page == HUGE_PAGE_BYTES as u64 => return Ok(Some(Source::Mount(path))),
        Ok(page) => format!("has pages of {} KiB; mount one with pagesize=2M", page >> 10),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            "is no mount of hugetlbfs".to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(ConfigError::HugeDir { path, reason })
}

fn devices(list: &[String]) -> Result<Vec<DeviceSpec>, ConfigError> {
    if list.len() > MAX_DEVICES {
        return Err(ConfigError::Devices(list.len()));
    }
    let mut devices: Vec<DeviceSpec> = Vec::new();
    for text in list {
        let spec: DeviceSpec = text.parse()?;
        if devices.iter().any(|other| (other.device(), other.port()) == (spec.device(), spec.port())) {
            return Err(ConfigError::DeviceTwice(spec.device().to_owned(), spec.port()));
        }
        devices.push(spec);
    }
    Ok(devices)
}

/// Bytes for each NUMA node.
fn session_bytes(list: &str) -> Result<Vec<u64>, ConfigError> {
    let wrong = || ConfigError::Memory(list.to_owned());
    let bytes =
        |part: &str| part.trim().parse::<u64>().ok().filter(|mib| *mib <= MOST_MIB).map(|mib| mib << 20);
    let list: Vec<u64> = list.split(',').map(bytes).collect::<Option<_>>().ok_or_else(wrong)?;
    if list.iter().all(|bytes| *bytes == 0) { Err(wrong()) } else { Ok(list) }
}

fn tuning(mode: Option<&str>, words: &[String]) -> Result<Tuning, TuningError> {
    let mode = mode.map(|mode| format!("mode={mode}"));
    let words = mode.as_deref().into_iter().chain(words.iter().map(String::as_str));
    Tuning::default().with(&TuningPatch::parse(words)?)
}

impl Config {
    /// Paths of the plane.
    pub fn paths(&self) -> &PlanePaths {
        &self.paths
    }

    /// Where the fabric comes from.
    pub fn fabric(&self) -> &FabricSource {
        &self.fabric
    }

    /// Number of workers, at least 1.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Where threads run.
    pub fn cores(&self) -> &CorePlan {
        &self.cores
    }

    /// The cores that this process was allowed at its start.
    pub fn allowed_cores(&self) -> &[usize] {
        &self.allowed
    }

    /// Whether the workers' cores were named.
    pub fn names_cores(&self) -> bool {
        self.named
    }

    /// Has threads run elsewhere.
    pub(crate) fn move_to(&mut self, cores: CorePlan) {
        self.cores = cores;
    }

    /// Where sessions attach by default, if it was said.
    pub fn at(&self) -> Option<&str> {
        self.at.as_deref()
    }

    /// Slots per ring of a session.
    pub fn session_slots(&self) -> u64 {
        self.session_slots
    }

    /// Most bytes of memory for sessions on each NUMA node; none without a limit.
    pub fn session_bytes(&self) -> Option<&[u64]> {
        self.session_bytes.as_deref()
    }

    /// Where huge pages come from; none if they are not to be used.
    pub fn huge_pages(&self) -> Option<&Source> {
        self.huge_pages.as_ref()
    }

    /// How workers wait until control asks for something else.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Whether workers have to leave their cores to others whenever they can.
    pub fn overprovisioned(&self) -> bool {
        self.overprovisioned
    }

    /// Whether the workers were given every core that there is; they never poll in vain then.
    pub fn takes_all_cores(&self) -> bool {
        self.takes_all
    }

    /// Links to other planes that it begins with.
    pub fn links(&self) -> &[LinkSpec] {
        &self.links
    }

    /// RDMA devices that it is to have.
    pub fn devices(&self) -> &[DeviceSpec] {
        &self.devices
    }

    /// Whether a fabric file that needs repairs is refused.
    pub fn strict(&self) -> bool {
        self.strict
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name={} fabric={} workers={}", self.paths.name(), self.fabric, self.workers)?;
        if self.cores.workers.is_empty() {
            write!(f, " cores=shared")?;
        } else {
            write!(f, " cores={}", machine::ranges(&self.cores.workers))?;
        }
        write!(f, " at={} session_slots={}", self.at().unwrap_or("default"), self.session_slots)?;
        match &self.huge_pages {
            None => write!(f, " huge_pages=never")?,
            Some(Source::Machine) => write!(f, " huge_pages=any")?,
            Some(Source::Mount(path)) => write!(f, " huge_pages={}", path.display())?,
        }
        match &self.session_bytes {
            None => write!(f, " socket_mem=any")?,
            Some(list) => {
                let mib: Vec<String> = list.iter().map(|bytes| (bytes >> 20).to_string()).collect();
                write!(f, " socket_mem={}", mib.join(","))?;
            }
        }
        write!(f, " strict={}", self.strict)?;
        write!(f, " overprovisioned={} {}", self.overprovisioned, self.tuning)?;
        self.devices.iter().try_for_each(|device| write!(f, " device={device}"))?;
        self.links.iter().try_for_each(|link| write!(f, " link={link:?}", link = link.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> RawConfig {
        RawConfig { name: "t".to_owned(), ..RawConfig::default() }
    }

    #[test]
    fn nothing_but_a_name_gives_the_defaults() {
        let config = Config::try_from(raw()).unwrap();
        assert_eq!(config.fabric().to_string(), DEFAULT_FABRIC);
        assert_eq!((config.workers(), config.session_slots()), (1, DEFAULT_SLOTS));
    }

    #[test]
    fn every_nonsense_value_is_refused_by_name() {
        let cases = [
            (RawConfig { name: "a/b".into(), ..raw() }, "a/b"),
            (RawConfig { workers: Some(0), ..raw() }, "0 workers"),
            (RawConfig { workers: Some(99), ..raw() }, "99 workers"),
            (RawConfig { session_slots: Some(100), ..raw() }, "100 session slots"),
            (RawConfig { session_slots: Some(1 << 20), ..raw() }, "1048576 session slots"),
            (RawConfig { cores: Some("x".into()), ..raw() }, "\"x\""),
            (RawConfig { cores: Some("1000".into()), ..raw() }, "core 1000"),
            (RawConfig { socket_mem: Some("0".into()), ..raw() }, "\"0\" is no memory"),
            (RawConfig { socket_mem: Some("1,-1".into()), ..raw() }, "\"1,-1\" is no memory"),
            (RawConfig { socket_mem: Some("99999999999999999".into()), ..raw() }, "is no memory"),
            (RawConfig { socket_mem: Some("9999999".into()), ..raw() }, "is no memory"),
            (RawConfig { socket_mem: Some("NaN".into()), ..raw() }, "is no memory"),
            (RawConfig { socket_mem: Some(String::new()), ..raw() }, "is no memory"),
            (RawConfig { socket_mem: Some("1,".repeat(99) + "1"), ..raw() }, "for 100 NUMA nodes, there"),
            (RawConfig { huge_dir: Some("/proc".into()), ..raw() }, "--huge-dir /proc: is no mount"),
            (RawConfig { huge_dir: Some("/no/such".into()), ..raw() }, "/no/such: No such file"),
            (
                RawConfig { huge_dir: Some("/proc".into()), no_huge: true, ..raw() },
                "not together with --no-huge",
            ),
            (RawConfig { links: vec!["a:1 via=q".into()], ..raw() }, "peer= is missing"),
            (
                RawConfig { devices: vec!["roce:x".into()], ..raw() },
                "--device \"roce:x\" names no device; write",
            ),
            (
                RawConfig { devices: vec!["umad:a".into(), "a,gid=3".into()], ..raw() },
                "--device a: port 1 of it is given twice",
            ),
            (RawConfig { devices: vec!["a".into(); 17], ..raw() }, "17 devices are not possible"),
            (RawConfig { mode: Some("interupt".into()), ..raw() }, "did you mean interrupt?"),
            (RawConfig { tune: vec!["brst=3".into()], ..raw() }, "did you mean burst?"),
            (RawConfig { tune: vec!["burst=-3".into()], ..raw() }, "from 1 to 256"),
            (RawConfig { tune: vec!["irq_threshold=99".into()], ..raw() }, "above poll_threshold"),
        ];
        for (raw, word) in cases {
            let error = Config::try_from(raw).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
