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
    /// `/run/madplane` (for others than root below `XDG_RUNTIME_DIR` or `/tmp`) and `/dev/shm`.
    ///
    /// # Errors
    /// [`NameError`] if `name` cannot be part of a file name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let root = |variable: &str| std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
        let run = root("MADPLANE_RUNTIME_DIR").unwrap_or_else(default_runtime_root);
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

fn default_runtime_root() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/madplane");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()) {
        Some(directory) => PathBuf::from(directory).join("madplane"),
        None => PathBuf::from(format!("/tmp/madplane-{}", rustix::process::geteuid().as_raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::PlanePaths;

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
                paths.table_segment(),
                paths.routes_segment(),
            ]
        };
        assert!(all(&one).iter().all(|path| path.starts_with(root)));
        assert!(all(&one).iter().zip(all(&two)).all(|(one, two)| *one != two));
        assert!(PlanePaths::under(root, "..").is_err());
    }
}
