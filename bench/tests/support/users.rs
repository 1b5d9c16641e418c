//! Stock programs run by another user of the machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Plane, Ran, artifacts, have, run, skip};

/// A user who is neither root nor the one who runs the plane.
pub struct User<'a> {
    plane: &'a Plane,
    programs: PathBuf,
    /// Numbers for setpriv.
    who: Vec<String>,
}

impl<'a> User<'a> {
    /// User `uid` with one group of the same number and these further groups; `None` where this test cannot be somebody else.
    pub fn new(plane: &'a Plane, uid: u32, groups: &[u32]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can be another user");
            return None;
        }
        if !have(&["setpriv"]) {
            return None;
        }
        let open = |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        open(plane.root.path());
        open(plane.shm_root());
        // the build may be in a home that others cannot enter
        let programs = plane.path("programs");
        if !programs.exists() {
            std::fs::create_dir(&programs).unwrap();
            open(&programs);
            for file in ["madctl", "libmadplane_umad.so"] {
                std::fs::copy(artifacts().join(file), programs.join(file)).unwrap();
                open(&programs.join(file));
            }
        }
        let groups = match groups {
            [] => "--clear-groups".to_owned(),
            some => format!("--groups={}", some.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
        };
        let who = vec![format!("--reuid={uid}"), format!("--regid={uid}"), groups];
        Some(Self { plane, programs, who })
    }

    /// Runs `madctl` as this user.
    pub fn madctl(&self, arguments: &[&str]) -> Ran {
        let mut command = self.plane.program("setpriv");
        command.args(&self.who).arg("--").arg(self.programs.join("madctl")).args(arguments);
        run(command.current_dir("/"))
    }

    /// Runs a stock program as this user with these options of `madctl run`.
    pub fn run_with(&self, options: &[&str], command: &[&str]) -> Ran {
        self.madctl(&[&["run"], options, &["--"], command].concat())
    }
}
