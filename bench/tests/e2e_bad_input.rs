//! Wrong arguments, wrong files, wrong machines: one line why, a non-zero exit, and nothing half-started; or it works
//! with one warning.

#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::PermissionsExt;

use madplane_shm::LAYOUT_VERSION;
use madplane_shm::handoff::{Connection, HandoffError, Request, op};
use support::probe::{GET, Probe, attribute};
use support::{Bed, Plane, Ran, artifacts, have, read_lossy, run, shared_fabric, skip};

const RING: &str = "builtin:ring,switches=3,hosts=1";

/// Refused with exit code `code` and one line that contains all of `parts`.
#[track_caller]
fn assert_refused(ran: &Ran, code: i32, parts: &[&str]) {
    assert_eq!(ran.code, Some(code), "{ran}");
    assert_eq!((ran.err.lines().count(), ran.out.as_str()), (1, ""), "one line on stderr: {ran}");
    assert!(ran.err.starts_with("madctl: "), "{ran}");
    for part in parts {
        assert!(ran.err.contains(part), "no {part:?}: {ran}");
    }
}

#[test]
fn fabrics_that_cannot_be_loaded_are_refused_with_their_place_and_reason() {
    let bed = Bed::new();
    let file = |name: &str, content: &[u8]| {
        let path = bed.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let empty = file("empty.net", b"");
    let prose = file("prose.net", b"dear reader,\nthis is no fabric\n");
    let binary = file("binary.net", &[0u8, 159, 146, 150, 255, 0, 1, 2].repeat(64));
    let dangling = file("dangling.net", b"Switch\t4 \"S-1\"\n[1]\t\"H-2\"[1]\n");
    let folder = bed.run_root().parent().unwrap().to_str().unwrap().to_owned();
    let unreadable = bed.path("no-such-file").to_str().unwrap().to_owned();
    for (fabric, code, parts) in [
        (unreadable.as_str(), 1, vec!["no-such-file", "no such file"]),
        (&folder, 1, vec!["directory"]),
        (&empty, 1, vec!["empty.net", "line 1"]),
        (&prose, 1, vec!["prose.net", "line 1", "no node record found"]),
        (&binary, 1, vec!["binary.net", "binary file"]),
        (&dangling, 1, vec!["dangling.net", "never defined"]),
        ("builtin:moebius", 2, vec!["unknown kind of fabric", "fat-tree"]),
        ("builtin:fat-tree,radix=7,levels=2", 2, vec!["radix=7"]),
        ("builtin:fat-tree,radiks=8", 2, vec!["radiks", "did you mean \"radix\"?"]),
        ("builtin:fat-tree,radix=128,levels=3", 2, vec!["49151"]),
    ] {
        let ran = bed.madctl(&["up", "--fabric", fabric]);
        assert_refused(&ran, code, &parts);
        bed.assert_nothing_runs();
    }
    let files = [
        ("voltaire-atlas-2006-excerpt.ibnetdiscover", "never defined"),
        ("ports-report-format-p-option.txt", "ibnetdiscover -p"),
        ("ibdm-rhino-based-512.topo", "wanted is"),
    ];
    for (name, part) in files {
        let Some(path) = shared_fabric(name) else {
            skip("the shared folder with real fabrics is not there");
            return;
        };
        assert_refused(&bed.madctl(&["up", "--fabric", path.to_str().unwrap()]), 1, &[name, part]);
        bed.assert_nothing_runs();
    }
}

#[test]
fn attachment_points_that_do_not_exist_are_refused() {
    let bed = Bed::new();
    let ran = bed.madctl(&["up", "--fabric", RING, "--at", "nobody"]);
    assert_refused(&ran, 1, &["nobody"]);
    bed.assert_nothing_runs();
    let plane = Plane::up(RING);
    for (at, part) in [
        ("nobody", "nobody"),
        ("node-0000 HCA-9", "did you mean \"node-0000 HCA-1\"?"),
        ("node-0000 HCA-1:7", "port"),
        ("0x1234", "0x1234"),
    ] {
        assert_refused(&plane.run_at(at, &["true"]), 1, &[part]);
    }
    assert_refused(&plane.madctl(&["links", "down", "nobody:1"]), 1, &["nobody"]);
    assert_refused(&plane.madctl(&["nodes", "reboot", "nobody"]), 1, &["nobody"]);
    assert_eq!(plane.run_at("node-0000 HCA-1:1", &["true"]).code, Some(0));
    let missing = plane.run(&["no-such-program"]);
    assert_refused(&missing, 127, &["no-such-program", "not found"]);
}

#[test]
fn without_a_plane_every_command_says_how_to_start_one() {
    let bed = Bed::new();
    for command in [
        &["run", "--", "true"][..],
        &["links", "down", "a:1"],
        &["nodes", "reboot", "a"],
        &["sessions", "list"],
        &["counters", "show"],
        &["fabric", "show"],
    ] {
        assert_refused(&bed.madctl(command), 1, &["is not running"]);
    }
    assert_refused(&bed.madctl(&["--name", "a/b", "status"]), 2, &["a/b"]);
    // a program that was preloaded by hand, too
    if have(&["ibstat", "sminfo"]) {
        let library = artifacts().join("libmadplane_umad.so");
        for tool in [&["ibstat"][..], &["sminfo"]] {
            let mut command = bed.program(tool[0]);
            let ran = run(command.args(&tool[1..]).env("LD_PRELOAD", &library));
            assert_eq!(
                ran.err.lines().next().map(|line| line.contains("is running; start one")),
                Some(true),
                "{ran}"
            );
            // as on a machine without adapters: ibstat has none to show, sminfo fails
            assert_eq!(
                (ran.code == Some(0), ran.out.contains("CA '")),
                (tool[0] == "ibstat", false),
                "{tool:?}: {ran}"
            );
        }
    }
    bed.assert_nothing_runs();
}

#[test]
fn another_layout_version_is_refused_naming_both() {
    let plane = Plane::up(RING);
    let connection = Connection::open(&plane.paths().attach_socket(), &plane.name).unwrap();
    let other = LAYOUT_VERSION + 7;
    let request = Request { version: other, ..Request::with_selector(op::ATTACH, "").unwrap() };
    match connection.call(&request) {
        Err(HandoffError::Refused { text, .. }) => {
            assert!(
                text.contains(&other.to_string()) && text.contains(&LAYOUT_VERSION.to_string()),
                "{text:?}"
            );
        }
        Err(HandoffError::Version { theirs, ours }) => {
            panic!("the reply was of another version: {theirs} {ours}")
        }
        other => panic!("{other:?}"),
    }
    // not a request at all
    let connection = Connection::open(&plane.paths().attach_socket(), &plane.name).unwrap();
    let request = Request { magic: 1, ..Request::with_selector(op::ATTACH, "").unwrap() };
    assert!(connection.call(&request).is_err());
    let sessions = plane.json(&["sessions", "list"]);
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 0, "{sessions}");
    assert!(Probe::open(&plane, "").directed(GET, &[1], attribute::NODE_INFO, 0, &[]).is_some());
}

#[test]
fn a_directory_that_is_not_ours_is_refused() {
    if !have(&["setpriv"]) {
        return;
    }
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let bed = Bed::new();
    std::fs::create_dir_all(bed.run_root()).unwrap();
    std::fs::set_permissions(bed.run_root(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(bed.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    // the build may be where nobody can look
    let madctl = bed.path("bin").join("madctl");
    std::fs::create_dir_all(bed.path("bin")).unwrap();
    for program in ["madctl", "madplaned", "madctld", "libmadplane_umad.so"] {
        std::fs::copy(artifacts().join(program), bed.path("bin").join(program)).unwrap();
    }
    let probe = run(bed.program("setpriv").args(nobody).arg(&madctl).arg("--version"));
    if probe.code != Some(0) {
        skip("no program can be run as another user here");
        return;
    }
    let ran = run(bed.program("setpriv").args(nobody).arg(&madctl).args(["up", "--fabric", RING]));
    assert_refused(&ran, 1, &["ermission denied"]);
    bed.assert_nothing_runs();
    // somebody else's running plane
    let plane = Plane { bed };
    plane.again(RING, &[]);
    let as_nobody = |arguments: &[&str]| {
        let mut command = plane.program("setpriv");
        run(command.args(nobody).arg(&madctl).args(arguments))
    };
    // without tenants all may attach; it takes its owner to change or end it
    assert_eq!(as_nobody(&["run", "--", "true"]).code, Some(0));
    assert_refused(&as_nobody(&["links", "down", "ring-00:1"]), 1, &["only root and the user"]);
    let pid = plane.plane_pid();
    assert_refused(&as_nobody(&["down"]), 1, &["ermi"]);
    assert_eq!((plane.plane_pid(), plane.control_pid().is_some()), (pid, true), "it goes on");
}

#[test]
fn a_full_memory_file_system_is_refused_and_leaves_nothing() {
    if !have(&["unshare", "mount"]) {
        return;
    }
    let bed = Bed::new();
    let memory = bed.shm_root().to_str().unwrap().to_owned();
    let script = format!("mount -t tmpfs -o size=8k none {memory} && exec madctl up --fabric {RING}");
    let tried =
        run(bed.program("unshare").args(["-m", "sh", "-c", &format!("mount -t tmpfs none {memory}")]));
    if tried.code != Some(0) {
        skip("no mount namespace can be made here");
        return;
    }
    let ran = run(bed.program("unshare").args(["-m", "sh", "-c", &script]));
    assert_refused(&ran, 1, &["No space left", "MADPLANE_SHM_DIR"]);
    bed.assert_nothing_runs();
}

#[test]
fn no_huge_pages_is_no_reason_to_fail_and_worth_one_warning() {
    let plane = Plane::up(RING);
    let probes: Vec<Probe> = (0..3).map(|_| Probe::open(&plane, "")).collect();
    for probe in &probes {
        assert!(probe.directed(GET, &[1], attribute::NODE_INFO, 0, &[]).is_some());
    }
    let free = read_lossy("/proc/meminfo")
        .lines()
        .any(|line| line.starts_with("HugePages_Free:") && line.ends_with(" 0"));
    let log = read_lossy(plane.run_file("madplaned.log"));
    let warnings = log.lines().filter(|line| line.contains("WARN")).count();
    if free {
        assert_eq!(warnings, 1, "{log}");
        assert!(log.contains("huge pages"), "{log}");
    } else {
        assert_eq!(warnings, 0, "{log}");
    }
    let quiet = Plane::up_with(RING, &["--no-huge"]);
    assert!(Probe::open(&quiet, "").directed(GET, &[1], attribute::NODE_INFO, 0, &[]).is_some());
    assert!(!read_lossy(quiet.run_file("madplaned.log")).contains("WARN"));
}

#[test]
fn one_cpu_is_enough_and_worth_one_warning() {
    if !have(&["taskset", "ibnetdiscover"]) {
        return;
    }
    let plane = Plane { bed: Bed::new() };
    let madctl = ["-c", "0", "madctl"];
    let ran = run(plane.program("taskset").args(madctl).args(["up", "--no-huge", "--fabric", RING]));
    assert_eq!(ran.code, Some(0), "{ran}");
    let log = read_lossy(plane.run_file("madplaned.log"));
    assert_eq!(log.lines().filter(|line| line.contains("WARN")).count(), 1, "{log}");
    assert!(log.contains("share"), "{log}");
    // on the same CPU
    let ran = run(plane.program("taskset").args(madctl).args(["run", "--", "ibnetdiscover"]));
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(ran.out.lines().filter(|line| line.starts_with("Switch")).count(), 3, "{ran}");
}
