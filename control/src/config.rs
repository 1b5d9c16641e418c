//! What may be configured, checked: options of a plane, and where its parts are found.
//!
//! Raw text from the command line comes in, valid values with private fields go out. No value here refers to a running
//! process. The daemons' own arguments are built here, so that one place knows them.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

pub use madctl::fabric::path::BUILTIN_PREFIX;
use madplane_shm::paths::{DEFAULT_NAME, NameError, PlanePaths};
use madplane_shm::table::MAX_TENANTS;
use madplane_shm::tuning::{Tuning, TuningPatch};

mod file;

/// The fabric of a plane if none is named: 648 hosts.
pub const DEFAULT_FABRIC: &str = "builtin:fat-tree,radix=36,levels=2";
/// Environment variable that names the folder of the daemons and the preloaded library.
pub const LIBEXEC_VARIABLE: &str = "MADPLANE_LIBEXEC";
/// File name of the library that stands in for libibumad.
pub const UMAD_LIBRARY: &str = "libmadplane_umad.so";

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The name of the plane.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A file that does not exist or cannot be read.
    #[error("fabric file {}: {reason}", path.display())]
    FabricFile {
        /// The file as it was looked for.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A configuration file that cannot be read or is not one.
    #[error("configuration file {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A value out of range or of the wrong form.
    #[error("{0}")]
    Value(String),
}

/// How a daemon writes its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Plain,
    /// One JSON document a line.
    Json,
}

/// Paths of the plane that is meant: `name`, else the environment's `MADPLANE_NAME`, else the default.
///
/// # Errors
/// It cannot be a plane's name.
pub fn plane_paths(name: Option<&str>) -> Result<PlanePaths, NameError> {
    let inherited = std::env::var("MADPLANE_NAME").ok().filter(|name| !name.is_empty());
    PlanePaths::new(name.or(inherited.as_deref()).unwrap_or(DEFAULT_NAME))
}

/// Where a fabric comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FabricSource {
    /// Generated: kind and parameters, without the prefix.
    Builtin(String),
    /// A file, by absolute path.
    File(PathBuf),
}

impl FabricSource {
    /// Reads `builtin:KIND,k=v...` or a path; a relative path is taken from the working directory.
    ///
    /// # Errors
    /// [`ConfigError::FabricFile`] if the file is not there, [`ConfigError::Value`] for a fabric that cannot be made.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if let Some(spec) = text.strip_prefix(BUILTIN_PREFIX) {
            // made once more by madplaned; here only to learn at once whether it can be made
            madplane_topology::from_spec(spec).map_err(|error| ConfigError::Value(error.to_string()))?;
            return Ok(Self::Builtin(spec.to_owned()));
        }
        let fail = |reason: String| ConfigError::FabricFile { path: text.into(), reason };
        let path = std::path::absolute(text).map_err(|error| fail(error.to_string()))?;
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => Err(fail("is a directory".to_owned())),
            Ok(_) => Ok(Self::File(path)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(fail("no such file".to_owned()))
            }
            Err(error) => Err(fail(error.to_string())),
        }
    }
}

impl Default for FabricSource {
    fn default() -> Self {
        Self::Builtin(DEFAULT_FABRIC[BUILTIN_PREFIX.len()..].to_owned())
    }
}

impl fmt::Display for FabricSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(spec) => write!(f, "{BUILTIN_PREFIX}{spec}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Options of `madctl up` as they were written.
#[derive(Debug, Clone, Default)]
pub struct RawUpOptions {
    /// Name of the plane; empty for the default.
    pub name: String,
    /// File or `builtin:...`.
    pub fabric: Option<String>,
    /// CPUs of the workers, such as `1,3-4`.
    pub cores: Option<String>,
    /// Number of workers.
    pub workers: Option<u32>,
    /// How workers wait.
    pub mode: Option<String>,
    /// What tunes them, NAME=VALUE each.
    pub tune: Vec<String>,
    /// File that says some of this; the other fields go before it.
    pub file: Option<PathBuf>,
    /// Workers never poll in vain.
    pub overprovisioned: bool,
    /// Where sessions attach by default.
    pub at: Option<String>,
    /// RDMA devices, each `[verbs:|umad:|auto:]NAME[,port=N][,gid=N][,peer=LID@GID...]`.
    pub devices: Vec<String>,
    /// Do not ask for huge pages.
    pub no_huge: bool,
    /// Mount of hugetlbfs.
    pub huge_dir: Option<PathBuf>,
    /// Most memory for sessions, MiB for each NUMA node.
    pub socket_mem: Option<String>,
    /// Slots per ring of a session.
    pub session_slots: Option<u64>,
    /// Refuse a fabric file with any fault.
    pub strict: bool,
    /// Places of the route table.
    pub dr_table_max: Option<u32>,
    /// Places of the table of tenants.
    pub tenants_max: Option<u32>,
    /// How the daemons write their logs.
    pub log_format: LogFormat,
}

/// Valid options of a plane to be started.
#[derive(Debug, Clone)]
pub struct UpOptions {
    paths: PlanePaths,
    fabric: FabricSource,
    plane_arguments: Vec<OsString>,
    control_arguments: Vec<OsString>,
    only_defaults: bool,
}

impl TryFrom<RawUpOptions> for UpOptions {
    type Error = ConfigError;

    fn try_from(mut raw: RawUpOptions) -> Result<Self, ConfigError> {
        let file = raw.file.as_deref().map(file::read).transpose()?.unwrap_or_default();
        raw.cores = raw.cores.or(file.cores);
        raw.workers = raw.workers.or(file.workers);
        raw.overprovisioned |= file.overprovisioned;
        let tuning = file.tuning.and(&tuning(raw.mode.as_deref(), &raw.tune)?);
        Tuning::default().with(&tuning).map_err(|error| ConfigError::Value(error.to_string()))?;
        let name = if raw.name.is_empty() { madplane_shm::paths::DEFAULT_NAME } else { &raw.name };
        let paths = PlanePaths::new(name)?;
        let fabric = raw.fabric.as_deref().map(FabricSource::parse).transpose()?;
        let mut arguments: Vec<OsString> = Vec::new();
        let mut given = fabric.is_some();
        let mut option = |flag: &str, value: Option<OsString>| {
            if let Some(value) = value {
                // in one word: a value may begin with a hyphen
                let mut word = OsString::from(flag);
                word.push("=");
                word.push(value);
                arguments.push(word);
                given = true;
            }
        };
        if let Some(cores) = &raw.cores {
            check_cpu_list(cores)?;
        }
        raw.workers.map_or(Ok(()), check_workers)?;
        if let Some(slots) = raw.session_slots
            && !(slots.is_power_of_two() && (64..=madplane_shm::session::MAX_SLOTS).contains(&slots))
        {
            let most = madplane_shm::session::MAX_SLOTS;
            return Err(ConfigError::Value(format!(
                "session slots have to be a power of two from 64 to {most}"
            )));
        }
        let most = crate::routes::MAX_CAPACITY;
        if raw.dr_table_max.is_some_and(|places| !(1..=most).contains(&places)) {
            return Err(ConfigError::Value(format!("a route table has 1 to {most} places")));
        }
        if raw.tenants_max.is_some_and(|places| places > MAX_TENANTS) {
            return Err(ConfigError::Value(format!("a table of tenants has at most {MAX_TENANTS} places")));
        }
        option("--cores", raw.cores.map(Into::into));
        // the daemon may run in another directory
        let huge_dir = raw.huge_dir.map(|path| std::path::absolute(&path).unwrap_or(path));
        option("--huge-dir", huge_dir.map(Into::into));
        option("--socket-mem", raw.socket_mem.map(Into::into));
        option("--workers", raw.workers.map(|workers| workers.to_string().into()));
        option("--at", raw.at.map(Into::into));
        option("--session-slots", raw.session_slots.map(|slots| slots.to_string().into()));
        for word in tuning.to_string().split_whitespace() {
            option("--tune", Some(word.into()));
        }
        for device in file.devices.into_iter().chain(raw.devices) {
            option("--device", Some(device.into()));
        }
        for link in file.links {
            option("--link", Some(link.to_string().into()));
        }
        for (flag, set) in
            [("--no-huge", raw.no_huge), ("--strict", raw.strict), ("--overprovisioned", raw.overprovisioned)]
        {
            if set {
                arguments.push(flag.into());
                given = true;
            }
        }
        let fabric = fabric.unwrap_or_default();
        let mut control_arguments: Vec<OsString> = Vec::new();
        if !tuning.is_empty() {
            // what was asked of an earlier plane's workers would be laid over it
            control_arguments.push("--forget-tuning".into());
        }
        for (flag, places) in [("--dr-table-max", raw.dr_table_max), ("--tenants-max", raw.tenants_max)] {
            if let Some(places) = places {
                control_arguments.extend([flag.into(), places.to_string().into()]);
            }
        }
        if raw.log_format == LogFormat::Json {
            for arguments in [&mut arguments, &mut control_arguments] {
                arguments.extend(["--log-format".into(), "json".into()]);
            }
        }
        Ok(Self { paths, fabric, plane_arguments: arguments, control_arguments, only_defaults: !given })
    }
}

impl UpOptions {
    /// Paths of the plane.
    pub fn paths(&self) -> &PlanePaths {
        &self.paths
    }

    /// The fabric.
    pub fn fabric(&self) -> &FabricSource {
        &self.fabric
    }

    /// Whether workers are never to poll in vain.
    pub fn overprovisioned(&self) -> bool {
        self.plane_arguments.iter().any(|word| word == "--overprovisioned")
    }

    /// Whether nothing but the name was given.
    pub fn only_defaults(&self) -> bool {
        self.only_defaults
    }

    /// Command line of madctld, without the program and `--ready-fd`.
    pub fn control_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--name".into(), self.paths.name().into()];
        arguments.extend(self.control_arguments.iter().cloned());
        arguments
    }

    /// Command line of madplaned, without the program and `--ready-fd`.
    pub fn plane_arguments(&self) -> Vec<OsString> {
        let fabric = match &self.fabric {
            FabricSource::File(path) => path.clone().into_os_string(),
            builtin @ FabricSource::Builtin(_) => builtin.to_string().into(),
        };
        let mut arguments: Vec<OsString> =
            vec!["--name".into(), self.paths.name().into(), "--fabric".into(), fabric];
        arguments.extend(self.plane_arguments.iter().cloned());
        arguments
    }
}

fn tuning(mode: Option<&str>, words: &[String]) -> Result<TuningPatch, ConfigError> {
    let mode = mode.map(|mode| format!("mode={mode}"));
    let words = mode.as_deref().into_iter().chain(words.iter().map(String::as_str));
    TuningPatch::parse(words).map_err(|error| ConfigError::Value(error.to_string()))
}

/// Refuses a number of workers that no plane has.
fn check_workers(workers: u32) -> Result<(), ConfigError> {
    if (1..=16).contains(&workers) {
        return Ok(());
    }
    Err(ConfigError::Value("a plane has 1 to 16 workers".to_owned()))
}

/// Refuses what is no list of CPUs.
fn check_cpu_list(text: &str) -> Result<(), ConfigError> {
    let number = |text: &str| text.parse::<u16>().ok();
    let good = |part: &str| match part.split_once('-') {
        None => number(part).is_some(),
        Some((from, to)) => matches!((number(from), number(to)), (Some(from), Some(to)) if from <= to),
    };
    if text.split(',').all(good) {
        return Ok(());
    }
    Err(ConfigError::Value(format!("{text:?} is no list of CPUs; write it like 1,3-4")))
}

/// Looks for `file` in the folder named by `MADPLANE_LIBEXEC`, beside this executable, and (if `in_path`) on the
/// `PATH`.
///
/// # Errors
/// One line that says where it was looked for.
pub fn locate(file: &str, in_path: bool) -> Result<PathBuf, ConfigError> {
    let mut folders: Vec<PathBuf> = Vec::new();
    folders.extend(std::env::var_os(LIBEXEC_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from));
    let executable = std::env::current_exe().ok();
    folders.extend(executable.as_deref().and_then(Path::parent).map(Path::to_owned));
    if in_path {
        folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    } else if let Some(prefix) = executable.as_deref().and_then(Path::parent).and_then(Path::parent) {
        folders.extend([prefix.join("lib/madplane"), prefix.join("lib")]);
    }
    let found = folders.iter().map(|folder| folder.join(file)).find(|path| path.is_file());
    found.and_then(|path| std::path::absolute(path).ok()).ok_or_else(|| {
        let place = if in_path { "beside madctl or on the PATH" } else { "beside madctl" };
        ConfigError::Value(format!("{file} is not {place}; set {LIBEXEC_VARIABLE} to the folder it is in"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(options: &UpOptions) -> Vec<String> {
        options.plane_arguments().into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn no_option_at_all_is_the_default_plane() {
        let options = UpOptions::try_from(RawUpOptions::default()).unwrap();
        assert_eq!(words(&options), ["--name", "default", "--fabric", DEFAULT_FABRIC]);
        assert!(options.only_defaults());
    }

    #[test]
    fn every_option_reaches_madplaned() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("fabric.net");
        std::fs::write(&file, "").unwrap();
        let file = file.to_str().unwrap();
        let raw = RawUpOptions {
            name: "x".into(),
            fabric: Some(file.into()),
            cores: Some("1,3-4".into()),
            workers: Some(2),
            mode: Some("interrupt".into()),
            tune: vec!["rx-usecs=3".into()],
            file: None,
            overprovisioned: true,
            at: Some("node:1".into()),
            devices: vec!["umad:rxe0".into(), "rxe1,gid=2".into()],
            no_huge: true,
            huge_dir: Some("/huge".into()),
            socket_mem: Some("7".into()),
            session_slots: Some(64),
            strict: true,
            dr_table_max: Some(4096),
            tenants_max: Some(9),
            log_format: LogFormat::Json,
        };
        let options = UpOptions::try_from(raw).unwrap();
        let fabric = ["--name", "x", "--fabric", file];
        let valued = [
            "--cores=1,3-4",
            "--huge-dir=/huge",
            "--socket-mem=7",
            "--workers=2",
            "--at=node:1",
            "--session-slots=64",
            "--tune=mode=interrupt",
            "--tune=moderator_timeout=3",
            "--device=umad:rxe0",
            "--device=rxe1,gid=2",
        ];
        let flags = ["--no-huge", "--strict", "--overprovisioned", "--log-format", "json"];
        assert_eq!(words(&options), [&fabric[..], &valued[..], &flags[..]].concat());
        assert_eq!(
            options.control_arguments(),
            [
                "--name",
                "x",
                "--forget-tuning",
                "--dr-table-max",
                "4096",
                "--tenants-max",
                "9",
                "--log-format",
                "json"
            ]
        );
        assert!(!options.only_defaults());
    }

    #[test]
    fn bad_values_are_refused_in_one_line() {
        let with = |change: fn(&mut RawUpOptions)| {
            let mut raw = RawUpOptions::default();
            change(&mut raw);
            UpOptions::try_from(raw).unwrap_err().to_string()
        };
        for (text, expected) in [
            (with(|raw| raw.name = "a/b".into()), "is no name for a plane"),
            (with(|raw| raw.fabric = Some("no/such.net".into())), "fabric file no/such.net: no such file"),
            (with(|raw| raw.fabric = Some("/".into())), "is a directory"),
            (with(|raw| raw.cores = Some("1,,2".into())), "is no list of CPUs"),
            (with(|raw| raw.cores = Some("4-3".into())), "is no list of CPUs"),
            (with(|raw| raw.workers = Some(0)), "1 to 16 workers"),
            (with(|raw| raw.dr_table_max = Some(65_537)), "1 to 65536 places"),
            (with(|raw| raw.tenants_max = Some(1025)), "at most 1024 places"),
            (with(|raw| raw.session_slots = Some(3)), "power of two"),
            (with(|raw| raw.mode = Some("pol".into())), "did you mean poll?"),
            (with(|raw| raw.tune = vec!["burst=-1".into()]), "from 1 to 256"),
            (with(|raw| raw.file = Some("no/such.toml".into())), "configuration file no/such.toml"),
        ] {
            assert!(text.contains(expected) && !text.contains('\n'), "{text}");
        }
    }
}
