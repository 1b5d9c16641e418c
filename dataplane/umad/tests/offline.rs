//! Without a plane: structures, the answers of every function, and that nothing else changes for a program.

mod support;

use std::process::Command;

use support::{compile, installed, text, under_library};

#[test]
fn structures_are_those_of_the_installed_header() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile("umad_abi", directory.path()) else { return };
    let output = under_library(program, directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn without_a_plane_there_is_no_device_and_one_line_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile("offline", directory.path()) else { return };
    let output = under_library(program, directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complaints.lines().count(), 1, "{complaints}");
    assert!(complaints.contains("no plane named default is running"), "{complaints}");
    assert!(complaints.contains("madctl up"), "{complaints}");
}

#[test]
fn a_name_that_is_none_is_refused_with_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile("offline", directory.path()) else { return };
    let output = under_library(program, directory.path()).env("MADPLANE_NAME", "a/b").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no name for a plane"));
}

#[test]
fn programs_that_have_nothing_to_do_with_it_behave_as_before() {
    let script = "cd /etc && ls -l passwd && cat passwd | wc -c && test -r /etc/passwd && stat -c %s passwd \
        && find /etc/passwd && readlink -f /etc/mtab | head -c 5 && echo done > \"$OUT\" && cat \"$OUT\"";
    let directory = tempfile::tempdir().unwrap();
    for shell in ["sh", "bash"] {
        if !installed(shell) {
            continue;
        }
        let out = directory.path().join("out");
        let with =
            under_library(shell, directory.path()).args(["-c", script]).env("OUT", &out).output().unwrap();
        let without = Command::new(shell).args(["-c", script]).env("OUT", &out).output().unwrap();
        assert_eq!(text(&with), text(&without));
        assert!(with.status.success(), "{}", text(&with));
    }
}

#[test]
fn stock_tools_load_the_library_without_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    for (tool, arguments) in [
        ("ibstat", vec!["-l"]),
        ("ibnetdiscover", vec![]),
        ("smpquery", vec!["nodeinfo", "1"]),
        ("opensm", vec!["--version"]),
    ] {
        if !installed(tool) {
            continue;
        }
        let output = under_library(tool, directory.path()).args(arguments).output().unwrap();
        let text = text(&output);
        assert!(!text.contains("version information") && !text.contains("ld.so"), "{tool}: {text}");
    }
}
