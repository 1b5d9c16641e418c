//! Huge pages, reserved for real: what of a plane is in them, how much, and what is said when there are none.
//!
//! One test: the number of huge pages belongs to the machine. madplaned belongs to another crate; without it beside madctl, or
//! without root, this says so and passes.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::path::PathBuf;
use std::process::Command;

use madplane_client::{PlanePaths, RawSession};
use serde_json::Value;
use support::{Bed, NAME, Running, eventually, failed, ok, present};

const MIB: u64 = 1 << 20;
const FABRIC: [&str; 3] = ["up", "--fabric", "builtin:fat-tree,radix=8,levels=2"];
const NUMBER: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages beyond those that there were, given back with the value.
struct Reserved {
    before: u64,
}

impl Reserved {
    fn new(pages: u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to reserve huge pages");
            return None;
        }
        let made = Self { before: number() };
        if let Err(error) = std::fs::write(NUMBER, (made.before + pages).to_string()) {
            println!("skipped: huge pages cannot be reserved here: {error}");
            return None;
        }
        present("huge pages", free() >= pages, "the kernel has no memory in one piece").then_some(made)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = std::fs::write(NUMBER, self.before.to_string());
    }
}

fn number() -> u64 {
    std::fs::read_to_string(NUMBER).unwrap().trim().parse().unwrap()
}

fn free() -> u64 {
    let all = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix("HugePages_Free:")).unwrap();
    line.trim().parse().unwrap()
}

/// A mount of hugetlbfs, gone with the value.
struct Mount(PathBuf);

impl Mount {
    fn new(bed: &Bed) -> Option<Self> {
        let place = bed.root().join("huge");
        std::fs::create_dir(&place).unwrap();
        let mut mount = Command::new("mount");
        let made = mount.args(["-t", "hugetlbfs", "-o", "pagesize=2M", "none"]).arg(&place).status();
        let made = made.is_ok_and(|status| status.success());
        if !made {
            println!("skipped: no hugetlbfs can be mounted here");
        }
        made.then_some(Self(place))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Bytes of the plane and of sessions in huge pages, as `madctl status` shows them.
fn bytes(bed: &Bed) -> (u64, u64) {
    let shown: Value = serde_json::from_str(&ok(&bed.madctl(&["status", "--format", "json"]))).unwrap();
    (shown["own_huge_bytes"].as_u64().unwrap(), shown["session_huge_bytes"].as_u64().unwrap())
}

fn attach(bed: &Bed) -> Result<RawSession, String> {
    let paths = PlanePaths::under(&bed.root(), NAME).unwrap();
    RawSession::open(&paths, "", 0).map_err(|error| error.to_string())
}

#[test]
fn rings_and_the_plane_are_in_huge_pages_if_there_are_some_and_it_is_said_if_not() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let Some(reserved) = Reserved::new(40) else { return };
    let _running = Running(&bed);
    let before = free();
    // two sessions of 4 MiB each, and no more
    let said = ok(&bed.madctl(&[&FABRIC[..], &["--socket-mem", "8"]].concat()));
    assert!(!said.contains("huge pages"), "{said}");
    let (own, sessions) = bytes(&bed);
    assert!(own >= 2 * MIB && own % (2 * MIB) == 0, "{own}");
    assert_eq!(sessions, 0);
    assert!(before - free() >= own / (2 * MIB), "the kernel says the same");
    let first = attach(&bed).unwrap();
    assert_eq!(bytes(&bed), (own, 4 * MIB));
    let second = attach(&bed).unwrap();
    assert_eq!(bytes(&bed), (own, 8 * MIB));
    let refused = attach(&bed).unwrap_err();
    assert!(refused.contains("8192 of 8192 KiB for sessions are in use (--socket-mem)"), "{refused}");
    drop((first, second));
    eventually("memory is given back", || bytes(&bed) == (own, 0));
    let shown = ok(&bed.madctl(&["status"]));
    let line = format!("in huge pages: {} MiB of the plane, 0 MiB of sessions", own / MIB);
    assert!(shown.contains(&line), "{shown}");
    ok(&bed.madctl(&["down"]));
    eventually("all pages are free again", || free() == before);

    ok(&bed.madctl(&[&FABRIC[..], &["--no-huge"]].concat()));
    let session = attach(&bed).unwrap();
    assert_eq!((bytes(&bed), free()), ((0, 0), before));
    drop(session);
    ok(&bed.madctl(&["down"]));

    if let Some(mount) = Mount::new(&bed) {
        ok(&bed.madctl(&[&FABRIC[..], &["--huge-dir", mount.0.to_str().unwrap()]].concat()));
        assert!(bytes(&bed).0 >= 2 * MIB);
        assert_eq!(std::fs::read_dir(&mount.0).unwrap().count(), 0, "no name is left there");
        ok(&bed.madctl(&["down"]));
    }
    let no_mount = failed(&bed.madctl(&[&FABRIC[..], &["--huge-dir", "/proc"]].concat()), 1);
    assert!(no_mount.contains("--huge-dir /proc: is no mount of hugetlbfs"), "{no_mount}");

    // fewer than a session wants, then none
    if reserved.before == 0 {
        std::fs::write(NUMBER, "1").unwrap();
        ok(&bed.madctl(&FABRIC));
        let sessions = [attach(&bed).unwrap(), attach(&bed).unwrap()];
        assert_eq!(bytes(&bed).1, 0, "half a session in huge pages is none");
        let log = std::fs::read_to_string(bed.run_file("madplaned.log")).unwrap();
        assert_eq!(log.matches("huge pages have run out").count(), 1, "{log}");
        drop(sessions);
        ok(&bed.madctl(&["down"]));
        std::fs::write(NUMBER, "0").unwrap();
        let said = ok(&bed.madctl(&FABRIC));
        assert_eq!(said.matches("warning: no huge pages are free").count(), 1, "{said}");
        attach(&bed).unwrap();
        let log = std::fs::read_to_string(bed.run_file("madplaned.log")).unwrap();
        assert_eq!(log.matches("huge pages").count(), 1, "{log}");
        assert_eq!(bytes(&bed), (0, 0));
    }
}
