//! Configuration of a plane: as written, then as valid.
//!
//! [`RawConfig`] has public fields and may hold anything. [`Config`] is reached only through [`TryFrom`] and holds values
//! that make sense together on this machine; it is printed at start.

use std::fmt;
use std::path::PathBuf;

use madplane_port::machine::{self, CoreError, CorePlan};
use madplane_shm::links::{LinkSpec, LinkSpecError};
use madplane_shm::paths::{NameError, PlanePaths};
use madplane_shm::session::{DEFAULT_SLOTS, MAX_SLOTS};
use madplane_shm::status::MAX_WORKERS;
use madplane_shm::tuning::{Tuning, TuningError, TuningPatch};

/// Fabric of a plane that is not told another one: 648 hosts.
pub const DEFAULT_FABRIC: &str = "builtin:fat-tree,radix=36,levels=2";

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
    /// Most memory for sessions, MiB for each NUMA node, separated by commas; their sum counts.
    pub socket_mem: Option<String>,
    /// Refuse a fabric file that needs repairs.
    pub strict: bool,
    /// How workers wait.
    pub mode: Option<String>,
    /// What tunes them, NAME=VALUE each.
    pub tune: Vec<String>,
    /// Links to other planes, each `NODE:PORT via=TRANSPORT:LOCAL peer=ADDRESS [credentials=DIRECTORY]`.
    pub links: Vec<String>,
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
    huge_pages: bool,
    session_bytes: u64,
    strict: bool,
    tuning: Tuning,
    overprovisioned: bool,
    links: Vec<LinkSpec>,
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
        let session_bytes = raw.socket_mem.as_deref().map_or(Ok(u64::MAX), session_bytes)?;
        let tuning = tuning(raw.mode.as_deref(), &raw.tune)?;
        let link = |line: String| match LinkSpec::parse(&line) {
            Ok(spec) => Ok(spec),
            Err(source) => Err(ConfigError::Link { line, source }),
        };
        let links = raw.links.into_iter().map(link).collect::<Result<_, _>>()?;
        let fabric = raw.fabric.unwrap_or_else(|| DEFAULT_FABRIC.to_owned());
        let fabric = if fabric.starts_with("builtin:") {
            FabricSource::Builtin(fabric)
        } else {
            FabricSource::File(fabric.into())
        };
        Ok(Self {
            paths,
            fabric,
            workers,
            cores,
            allowed,
            named: wanted.is_some(),
            at: raw.at.filter(|at| !at.is_empty()),
            session_slots,
            huge_pages: !raw.no_huge,
            session_bytes,
            strict: raw.strict,
            tuning,
            overprovisioned: raw.overprovisioned,
            links,
        })
    }
}

fn session_bytes(list: &str) -> Result<u64, ConfigError> {
    let wrong = || ConfigError::Memory(list.to_owned());
    let mut total: u64 = 0;
    for part in list.split(',') {
        let mib: u64 = part.trim().parse().map_err(|_| wrong())?;
        total = mib.checked_mul(1 << 20).and_then(|bytes| bytes.checked_add(total)).ok_or_else(wrong)?;
    }
    if total == 0 { Err(wrong()) } else { Ok(total) }
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

    /// Most bytes of memory for sessions.
    pub fn session_bytes(&self) -> u64 {
        self.session_bytes
    }

    /// Whether session memory may come from huge pages.
    pub fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// How workers wait until control asks for something else.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Whether workers have to leave their cores to others whenever they can.
    pub fn overprovisioned(&self) -> bool {
        self.overprovisioned
    }

    /// Links to other planes that it begins with.
    pub fn links(&self) -> &[LinkSpec] {
        &self.links
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
        write!(f, " huge_pages={} strict={}", self.huge_pages, self.strict)?;
        write!(f, " overprovisioned={} {}", self.overprovisioned, self.tuning)?;
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
            (RawConfig { links: vec!["a:1 via=q".into()], ..raw() }, "peer= is missing"),
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
