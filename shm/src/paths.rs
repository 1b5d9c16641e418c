//! Where a plane lives in the file system.
//!
//! Sockets, locks and logs are in a runtime directory of the plane's own, mapped files in shared memory. Both are made
//! by the first daemon and may be left behind by a killed one: their being there says nothing, their locks do.

use std::path::{Path, PathBuf};

/// Name of the plane if none is given.
pub const DEFAULT_NAME: &str = "default";
/// Longest name of a plane.
pub const MAX_NAME_BYTES: usize = 48;

/// The name of a plane is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name for a plane: use 1 to 48 letters, digits, '-', '_' or '.', not starting with '.'")]
pub struct NameError(String);

/// The paths of one plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanePaths {
    name: String,
    run: PathBuf,
    memory: PathBuf,
}

impl PlanePaths {
    /// Paths of the plane `name`. `MADPLANE_RUNTIME_DIR` and `MADPLANE_SHM_DIR` move the two roots; otherwise they are
    /// `/run/madplane` and `/dev/shm`. Users other than root have a runtime root of their own below `XDG_RUNTIME_DIR` or
    /// `/tmp`; what is not there but below `/run/madplane` is root's plane, which others attach to.
    ///
    /// # Errors
    /// [`NameError`] if `name` cannot be part of a file name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let root = |variable: &str| std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
        let run = root("MADPLANE_RUNTIME_DIR").unwrap_or_else(|| default_runtime_root(name));
        let memory = root("MADPLANE_SHM_DIR").unwrap_or_else(|| PathBuf::from("/dev/shm"));
        Self::within(run, memory, name)
    }

    /// Paths of the plane `name` with both roots below `root`, whatever the environment says.
    ///
    /// # Errors
    /// [`NameError`] if `name` cannot be part of a file name.
    pub fn under(root: &Path, name: &str) -> Result<Self, NameError> {
        Self::within(root.join("run"), root.join("shm"), name)
    }

    fn within(run: PathBuf, memory: PathBuf, name: &str) -> Result<Self, NameError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty()
            || name.len() > MAX_NAME_BYTES
            || name.starts_with('.')
            || !name.chars().all(allowed)
        {
            return Err(NameError(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), run: run.join(name), memory })
    }

    /// Name of the plane.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Directory of sockets, locks and logs.
    pub fn run_dir(&self) -> &Path {
        &self.run
    }

    /// Socket at which clients and control attach.
    pub fn attach_socket(&self) -> PathBuf {
        self.run.join("attach.sock")
    }

    /// Socket at which operators talk to control.
    pub fn admin_socket(&self) -> PathBuf {
        self.run.join("admin.sock")
    }

    /// Locked by the running madplaned; holds its process id.
    pub fn plane_lock(&self) -> PathBuf {
        self.run.join("madplaned.lock")
    }

    /// Locked by the running madctld; holds its process id.
    pub fn control_lock(&self) -> PathBuf {
        self.run.join("madctld.lock")
    }

    /// The list of links to other planes, see [`crate::links`].
    pub fn links_file(&self) -> PathBuf {
        self.run.join("links")
    }

    /// Log of a daemon started in the background.
    pub fn log_file(&self, daemon: &str) -> PathBuf {
        self.run.join(format!("{daemon}.log"))
    }

    /// Root of the device trees shown to programs that read sysfs themselves.
    pub fn device_trees(&self) -> PathBuf {
        self.run.join("sys")
    }

    /// The status segment.
    pub fn status_segment(&self) -> PathBuf {
        self.memory.join(format!("madplane.{}.status", self.name))
    }

    /// The route table segment.
    pub fn table_segment(&self) -> PathBuf {
        self.memory.join(format!("madplane.{}.table", self.name))
    }

    /// The segment with the use of each route.
    pub fn routes_segment(&self) -> PathBuf {
        self.memory.join(format!("madplane.{}.routes", self.name))
    }
}

fn default_runtime_root(name: &str) -> PathBuf {
    let system = PathBuf::from("/run/madplane");
    let user = rustix::process::geteuid();
    if user.is_root() {
        return system;
    }
    let own = match std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()) {
        Some(directory) => PathBuf::from(directory).join("madplane"),
        None => PathBuf::from(format!("/tmp/madplane-{}", user.as_raw())),
    };
    own_or_system(own, system, name)
}

/// Whose plane `name` is: the user's own unless only root has one.
fn own_or_system(own: PathBuf, system: PathBuf, name: &str) -> PathBuf {
    if !own.join(name).is_dir() && system.join(name).is_dir() { system } else { own }
}

#[cfg(test)]
mod tests {
    use super::{PlanePaths, own_or_system};

    #[test]
    fn a_plane_of_root_is_found_by_those_who_have_none_of_that_name() {
        let directory = tempfile::tempdir().unwrap();
        let (own, system) = (directory.path().join("own"), directory.path().join("system"));
        let chosen = |name: &str| own_or_system(own.clone(), system.clone(), name);
        assert_eq!(chosen("a"), own, "nobody has one: a new one is the user's own");
        std::fs::create_dir_all(system.join("a")).unwrap();
        assert_eq!((chosen("a"), chosen("b")), (system.clone(), own.clone()));
        std::fs::create_dir_all(own.join("a")).unwrap();
        assert_eq!(chosen("a"), own);
    }

    #[test]
    fn names_that_would_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "a b", &"x".repeat(49)] {
            assert!(PlanePaths::new(name).is_err(), "{name}");
        }
        assert!(PlanePaths::new("ci-7_a.b").is_ok());
    }

    #[test]
    fn paths_under_a_root_are_all_below_it_and_apart_for_two_names() {
        let root = std::path::Path::new("/nowhere");
        let (one, two) = (PlanePaths::under(root, "one").unwrap(), PlanePaths::under(root, "two").unwrap());
        let all = |paths: &PlanePaths| {
            [
                paths.attach_socket(),
                paths.admin_socket(),
                paths.plane_lock(),
                paths.status_segment(),
                paths.links_file(),
                paths.table_segment(),
                paths.routes_segment(),
            ]
        };
        assert!(all(&one).iter().all(|path| path.starts_with(root)));
        assert!(all(&one).iter().zip(all(&two)).all(|(one, two)| *one != two));
        assert!(PlanePaths::under(root, "..").is_err());
    }
}
