//! A cpuset of a test's own, version 1 or 2 of control groups, removed with the test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::present;

/// A control group whose cores can be changed while processes are in it.
pub struct Cpuset {
    parent: PathBuf,
    group: PathBuf,
}

impl Cpuset {
    /// Makes one; `None`, with a word, where that cannot be done.
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to make a cpuset");
            return None;
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mounted = mounts.lines().find_map(parent);
        if !present("cpuset controller", mounted.is_some(), "mount one, of either version of cgroups") {
            return None;
        }
        let parent = mounted?;
        let group = parent.join(format!("madplane-test-{}", std::process::id()));
        let made = std::fs::create_dir(&group).and_then(|()| {
            let mems = ["cpuset.mems", "cpuset.mems.effective", "cpuset.effective_mems"];
            let mems = mems.iter().find_map(|file| std::fs::read_to_string(parent.join(file)).ok());
            std::fs::write(group.join("cpuset.mems"), mems.unwrap_or_else(|| "0".to_owned()).trim())
        });
        let made = made.map(|()| Self { parent: parent.clone(), group });
        let why = made.as_ref().err().map_or_else(String::new, |error| format!(" ({error})"));
        let what = format!("cpuset that can be written below {}{why}", parent.display());
        present(&what, made.is_ok(), "a container may forbid it").then(|| made.unwrap())
    }

    /// What is in it may run there from now on.
    pub fn set(&self, cores: &[usize]) {
        let list = cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        std::fs::write(self.group.join("cpuset.cpus"), list).unwrap();
    }

    /// Brings a process with all its threads in.
    pub fn take(&self, pid: u32) {
        std::fs::write(self.group.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        for _ in 0..200 {
            let inside = std::fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                let _ = std::fs::write(self.parent.join("cgroup.procs"), pid);
            }
            if std::fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The root of a hierarchy with the controller, of one line of mounts.
fn parent(line: &str) -> Option<PathBuf> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, place, kind, options, ..] = words[..] else { return None };
    let place = Path::new(place);
    let first = kind == "cgroup" && options.split(',').any(|option| option == "cpuset");
    let second = kind == "cgroup2" && {
        let there = std::fs::read_to_string(place.join("cgroup.controllers")).unwrap_or_default();
        there.split_whitespace().any(|name| name == "cpuset")
            && std::fs::write(place.join("cgroup.subtree_control"), "+cpuset").is_ok()
    };
    (first || second).then(|| place.to_owned())
}
