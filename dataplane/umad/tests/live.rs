//! With a plane: the device, MADs there and back, what cannot be told from the kernel's device, and the device tree.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use support::plane::Plane;
use support::{compile, installed, text, under_library};

#[test]
fn a_program_sees_the_kernels_rules() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile("live", directory.path()) else { return };
    let plane = Plane::start(directory.path());
    let output = under_library(program, directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let end = Instant::now() + Duration::from_secs(20);
    while plane.sm_held() {
        assert!(Instant::now() < end, "the end of the process releases the SM bit");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_plane_that_stops_ends_a_receive_that_waits() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile("live", directory.path()) else { return };
    let plane = Plane::start(directory.path());
    let mut child = under_library(program, directory.path())
        .arg("gone")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    drop(plane);
    assert_eq!(lines.next().unwrap().unwrap(), "ok");
    assert!(child.wait().unwrap().success());
}

fn shell(directory: &tempfile::TempDir, script: &str) -> Output {
    under_library("sh", directory.path()).args(["-c", script]).output().unwrap()
}

#[test]
fn shell_scripts_read_the_device_tree() {
    let directory = tempfile::tempdir().unwrap();
    let _plane = Plane::start(directory.path());
    for (script, want) in [
        ("cat /sys/class/infiniband/mlx5_0/ports/2/lid", "0x12\n"),
        ("cat /sys/class/infiniband/mlx5_0/ports/2/rate", "100 Gb/sec (4X EDR)\n"),
        ("cd /sys/class/infiniband && cd mlx5_0/ports && echo *", "1 2\n"),
        ("ls /sys/class/infiniband", "mlx5_0\n"),
        ("ls /sys/class/infiniband_mad", "abi_version\nissm0\nissm1\numad0\numad1\n"),
        ("cat /sys/class/infiniband_mad/umad1/port", "2\n"),
        ("cat /sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0011\n"),
        ("ls /sys/class/infiniband/mlx5_0/ports/1/pkeys | wc -l", "40\n"),
        ("cat /sys/class/infiniband/mlx5_0/ports/1/pkeys/32", "0x0001\n"),
        ("[ -r /sys/class/infiniband/mlx5_0/node_desc ] && [ -d /dev/infiniband ] && echo yes", "yes\n"),
        ("[ -e /sys/class/infiniband/other_0 ] || echo no", "no\n"),
        ("find /sys/class/infiniband/mlx5_0/ports/1 -name lid", "/sys/class/infiniband/mlx5_0/ports/1/lid\n"),
    ] {
        let output = shell(&directory, script);
        assert_eq!(String::from_utf8_lossy(&output.stdout), want, "{script}: {}", text(&output));
    }
}

#[test]
fn the_device_has_the_name_that_the_environment_gives() {
    let directory = tempfile::tempdir().unwrap();
    let _plane = Plane::start(directory.path());
    let output = under_library("ls", directory.path())
        .arg("/sys/class/infiniband")
        .env("MADPLANE_DEVICE", "hca-7")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hca-7\n", "{}", text(&output));
}

#[test]
fn the_tree_follows_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let _plane = Plane::start(directory.path());
    // one process holds the bit while others read the capability mask, before and after
    let script = "f=/sys/class/infiniband/mlx5_0/ports/1/cap_mask; cat $f; exec 5</dev/infiniband/issm0; sleep 0.3; \
        cat $f; exec 5<&-; sleep 0.3; cat $f";
    let output = shell(&directory, script);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "0x02514868\n0x0251486a\n0x02514868\n",
        "{}",
        text(&output)
    );
}

#[test]
fn a_plane_that_is_gone_leaves_no_device_behind() {
    let directory = tempfile::tempdir().unwrap();
    let plane = Plane::start(directory.path());
    assert_eq!(shell(&directory, "ls /sys/class/infiniband").stdout, b"mlx5_0\n");
    drop(plane);
    std::thread::sleep(Duration::from_millis(300));
    let output = shell(&directory, "ls /sys/class/infiniband");
    assert!(output.stdout.is_empty() && !output.status.success(), "{}", text(&output));
}

#[test]
fn ibstat_and_ibstatus_show_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let _plane = Plane::start(directory.path());
    if installed("ibstat") {
        let output = under_library("ibstat", directory.path()).output().unwrap();
        let text = text(&output);
        for want in [
            "CA 'mlx5_0'",
            "CA type: madplane",
            "Number of ports: 2",
            "Firmware version: 1.0.0",
            "Hardware version: a1",
            "Node GUID: 0x0002c90300000010",
            "Physical state: LinkUp",
            "State: Active",
            "Rate: 100",
            "Base lid: 18",
            "SM lid: 1",
            "Capability mask: 0x02514868",
            "Port GUID: 0x0002c90300000012",
            "Link layer: InfiniBand",
        ] {
            assert!(text.contains(want), "{want} is not in {text}");
        }
    }
    if installed("ibstatus") {
        let output = under_library("ibstatus", directory.path()).output().unwrap();
        let text = text(&output);
        for want in [
            "Infiniband device 'mlx5_0' port 2 status:",
            "fe80:0000:0000:0000:0002:c903:0000:0012",
            "0x12",
            "4: ACTIVE",
            "100 Gb/sec (4X EDR)",
            "InfiniBand",
        ] {
            assert!(text.contains(want), "{want} is not in {text}");
        }
    }
}

#[test]
fn libibmad_tools_get_their_answers() {
    let directory = tempfile::tempdir().unwrap();
    let _plane = Plane::start(directory.path());
    if !installed("smpquery") {
        return;
    }
    let output = under_library("smpquery", directory.path()).args(["-D", "nodeinfo", "0"]).output().unwrap();
    let text = text(&output);
    assert!(output.status.success() && text.contains("0x0002c90300000010"), "{text}");
    // the default port is the Active one
    assert!(text.contains("LocalPort:.......................2"), "{text}");
}
