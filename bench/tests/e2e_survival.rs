//! What routes and tenants live through: both daemons killed, madctld killed while it loads, segments of another version.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::probe::{GET, Probe, attribute};
use support::{Background, OpenSm, Plane, counts, eventually, have, kill, run};

const FABRIC: &str = "builtin:fat-tree,radix=4,levels=2";

fn kill_control(plane: &Plane) {
    if let Some(pid) = plane.control_pid() {
        kill(pid, Signal::KILL);
        eventually("madctld is dead", || plane.control_pid().is_none());
    }
}

fn kill_plane(plane: &Plane) {
    if let Some(pid) = plane.plane_pid() {
        kill(pid, Signal::KILL);
        eventually("madplaned is dead", || plane.plane_pid().is_none());
    }
}

/// What of the routes does not change with time.
fn lasting(shown: &Value) -> Vec<String> {
    let fields =
        ["slid", "dlid", "path", "p_key", "priority", "on_broken", "tenant", "tenant_name", "place", "id"];
    let routes = shown["routes"].as_array().unwrap_or_else(|| panic!("{shown}"));
    routes.iter().map(|route| fields.map(|field| route[field].to_string()).join(" ")).collect()
}

#[test]
fn routes_and_tenants_outlive_both_daemons_and_serve_again() {
    if !have(&["opensm", "smpquery", "saquery", "ibtracert"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let opensm = OpenSm::up(&plane, "", &[], &["sweep_interval 0"]);
    let (here, there) = (plane.lid("node-0000 HCA-1").to_string(), plane.lid("node-0002 HCA-1").to_string());
    let trace = plane.ok(&["ibtracert", &here, &there]);
    let other = if trace.contains("spine-00") { "spine-01" } else { "spine-00" };
    plane.done(&[
        "tenants",
        "add",
        "vip",
        "pkey=0xffff",
        "smp=get",
        "priority=reserved",
        "rate=1000",
        "--sync",
    ]);
    plane.done(&["routes", "reserve", &here, &there, "via", other, "--tenant", "vip", "--sync"]);
    plane.done(&["routes", "add", &there, &here, "via", other, "--on-broken", "drop", "--sync"]);
    let ask = |plane: &Plane| {
        let text = plane.ok_with(&["--tenant", "vip"], &["smpquery", "nodedesc", &there]);
        assert!(text.trim_end().ends_with("node-0002 HCA-1"), "{text}");
    };
    ask(&plane);
    let before = plane.json(&["routes", "show"]);
    let used = before["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| route["packets"].as_u64().unwrap())
        .sum::<u64>();
    assert!(used > 0, "{before}");
    let (tenants, counted) =
        (plane.json(&["tenants", "show"])["tenants"].clone(), counts(&plane, "counters"));
    let latency = plane.json(&["latency", "show"])["hw_sync_latency"].clone();
    kill_control(&plane);
    kill_plane(&plane);
    drop(opensm);
    // all that can be seen is still seen
    let dead = plane.json(&["routes", "show"]);
    assert_eq!((lasting(&dead), &dead["plane"]["running"]), (lasting(&before), &false.into()), "{dead}");
    let packets = |shown: &Value| shown["routes"][0]["packets"].clone();
    assert_eq!(packets(&dead), packets(&before));
    assert_eq!(names(&plane.json(&["tenants", "show"])["tenants"]), names(&tenants));
    let last = counts(&plane, "counters");
    assert!(counted.iter().all(|(name, value)| last[name] >= *value), "{counted:?} {last:?}");
    assert_eq!(plane.json(&["latency", "show"])["hw_sync_latency"], latency);
    for command in [
        ["routes", "show"],
        ["tenants", "show"],
        ["counters", "show"],
        ["latency", "show"],
        ["errors", "show"],
    ] {
        let text = plane.done(&command);
        assert!(text.contains("not running (died)"), "{command:?}: {text}");
    }
    assert!(plane.refused(&["routes", "flush"]).contains("not running"));
    // a plane and a control that were not there before take them up
    plane.again(FABRIC, &[]);
    assert_eq!(lasting(&plane.json(&["routes", "show"])), lasting(&before));
    let _opensm = OpenSm::up(&plane, "", &[], &["sweep_interval 0"]);
    assert_eq!(
        (plane.lid("node-0000 HCA-1").to_string(), plane.lid("node-0002 HCA-1").to_string()),
        (here.clone(), there.clone())
    );
    plane.done(&["routes", "sync"]);
    let uses = |plane: &Plane| {
        let shown = plane.json(&["routes", "show"]);
        let routes = shown["routes"].as_array().unwrap().clone();
        let of = |route: &Value| route["packets"].as_u64().unwrap();
        routes.iter().find(|route| route["tenant_name"] == "vip").map(of).unwrap_or_else(|| panic!("{shown}"))
    };
    let used = uses(&plane);
    ask(&plane);
    assert!(uses(&plane) > used, "the workers forward by it");
    assert_eq!(plane.done(&["routes", "check"]), "2 routes, 0 broken\n");
    // and can still change them
    plane.done(&["routes", "del", &there, &here, "--sync"]);
    plane.done(&["tenants", "del", "vip", "--force", "--sync"]);
    assert!(plane.done(&["routes", "show"]).ends_with("no routes\n"));
}

/// Names and rights of tenants, without their use.
fn names(tenants: &Value) -> Vec<String> {
    tenants
        .as_array()
        .unwrap()
        .iter()
        .map(|of| format!("{} {} {}", of["name"], of["p_keys"], of["rate"]))
        .collect()
}

/// How often madctld is killed; `MADPLANE_KILLS` says it.
fn kills() -> u64 {
    std::env::var("MADPLANE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

/// A moment within the first milliseconds of a load.
fn moment(random: &mut u64) -> Duration {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    Duration::from_micros((*random >> 33) % 20_000)
}

fn seed() -> u64 {
    let seed = std::env::var("MADPLANE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("MADPLANE_SEED={seed}");
    seed
}

/// Loads one of two files over the other, kills madctld meanwhile, and holds what is there then against both.
fn killed_while_loading(noun: &str, files: [String; 2], seen: impl Fn(&Plane) -> String) {
    let plane = Plane::up_with(FABRIC, &["--dr-table-max", "2048", "--tenants-max", "256"]);
    let probe = Probe::open(&plane, "");
    let paths = ["even", "odd"].map(|name| plane.path(name).to_str().unwrap().to_owned());
    let mut wanted = Vec::new();
    for (path, text) in paths.iter().zip(files) {
        std::fs::write(path, text).unwrap();
        plane.done(&[noun, "load", path, "--replace", "--sync"]);
        wanted.push(seen(&plane));
    }
    assert_ne!(wanted[0], wanted[1]);
    let (mut random, mut there, mut interrupted) = (seed(), 1, 0);
    for round in 0..kills() {
        let next = 1 - there;
        let mut madctl = plane.program("madctl");
        madctl.args([noun, "load", &paths[next], "--replace", "--sync"]);
        let pid = plane.control_pid().expect("madctld runs");
        let mut load = Background::start("load", &mut madctl);
        std::thread::sleep(moment(&mut random));
        kill(pid, Signal::KILL);
        let acknowledged = load.wait().success();
        eventually("madctld is dead", || plane.control_pid().is_none());
        let left = seen(&plane);
        let found = wanted.iter().position(|of| *of == left);
        assert!(found.is_some(), "round {round}: neither file\n{left}");
        assert!(!acknowledged || found == Some(next), "round {round}: acknowledged and lost");
        interrupted += u32::from(!acknowledged);
        let (status, _) =
            probe.directed(GET, &[1], attribute::NODE_INFO, 0, &[]).expect("forwarding goes on");
        assert_eq!(status, 0);
        plane.done(&["up"]);
        assert_eq!(seen(&plane), left, "round {round}: the successor has what was there");
        there = found.unwrap();
        // and goes on from it, with workers that follow
        if round % 4 == 3 {
            plane.done(&[noun, "load", &paths[there], "--replace", "--sync"]);
            assert_eq!(seen(&plane), wanted[there]);
        }
    }
    eprintln!("{interrupted} of {} loads were interrupted", kills());
}

#[test]
fn a_madctld_killed_while_it_loads_routes_leaves_all_of_them_or_none() {
    let file = |port: u32| {
        (1..=1500)
            .map(|number| format!("{} {} {port},2\n", 1 + number / 40, 100 + number % 40))
            .collect::<String>()
    };
    killed_while_loading("routes", [file(3), file(4)], |plane| {
        let shown = plane.json(&["routes", "show"]);
        assert_eq!(shown["damaged"], 0, "{shown}");
        let routes = shown["routes"].as_array().unwrap();
        routes.iter().map(|of| format!("{} {} {}\n", of["slid"], of["dlid"], of["path"])).collect()
    });
}

#[test]
fn a_madctld_killed_while_it_loads_tenants_leaves_all_of_them_or_none() {
    let file = |key: u32| {
        (1..=200)
            .map(|number| format!("t{number} pkey={:#06x} classes=perf\n", 0x8000 + key))
            .collect::<String>()
    };
    killed_while_loading("tenants", [file(1), file(2)], |plane| {
        let shown = plane.json(&["tenants", "show"]);
        names(&shown["tenants"]).join("\n")
    });
}

#[test]
fn a_second_madctld_is_refused_with_the_process_that_is_there() {
    let plane = Plane::up(FABRIC);
    let pid = plane.control_pid().unwrap();
    let ran = run(plane.program("madctld").args(["--name", &plane.name]));
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{ran}");
    assert!(ran.err.contains("already running") && ran.err.contains(&pid.to_string()), "{ran}");
    assert_eq!(plane.control_pid(), Some(pid));
    plane.done(&["routes", "add", "1", "2", "3", "--sync"]);
}

#[test]
fn segments_of_another_version_are_refused_by_both_versions_and_left_alone() {
    let plane = Plane::up(FABRIC);
    plane.done(&["routes", "add", "1", "2", "3", "--sync"]);
    kill_control(&plane);
    kill_plane(&plane);
    let ours = madplane_shm::LAYOUT_VERSION;
    for (file, commands) in [
        ("table", &[["routes", "show"], ["tenants", "show"], ["routes", "check"]][..]),
        ("status", &[["counters", "show"], ["errors", "show"], ["sessions", "list"]]),
    ] {
        let path = plane.shm_root().join(format!("madplane.{}.{file}", plane.name));
        let good = std::fs::read(&path).unwrap();
        let mut bytes = good.clone();
        bytes[8..12].copy_from_slice(&77u32.to_ne_bytes());
        std::fs::write(&path, &bytes).unwrap();
        for command in commands {
            let line = plane.refused(command);
            assert!(
                line.contains("version 77 ") && line.contains(&format!("version {ours}")),
                "{command:?}: {line}"
            );
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{file}");
        std::fs::write(&path, &good).unwrap();
    }
}
