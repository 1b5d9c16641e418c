//! The soak in short, and that it can find something.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program, with madplaned and madctl beside it; builds them.
fn soak() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let profile = me.parent().and_then(Path::parent).unwrap();
    for what in [
        &["-p", "madplane-dataplane", "-p", "madplane-control", "--bins"][..],
        &["-p", "madplane-bench", "--example", "soak"],
    ] {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet"]).args(what).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.file_name().is_some_and(|name| name == "release") {
            cargo.arg("--release");
        }
        cargo.env("CARGO_TARGET_DIR", profile.parent().unwrap()).stdin(Stdio::null());
        assert!(cargo.status().unwrap().success(), "the programs under test do not build");
    }
    profile.join("examples/soak")
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(soak()).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn twenty_seconds_of_everything_at_once_lose_nothing_and_leave_nothing_behind() {
    let (code, said) = run(&["run", "20"]);
    println!("{said}");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("soak: nothing lost, nothing grown\n"), "{said}");
    let counted = |what: &str| {
        let before = said.split(what).next().unwrap();
        before.rsplit([' ', ',']).find_map(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    for what in [" answered", " sessions", " killed", " switches"] {
        assert!(counted(what) > 0, "no{what}: {said}");
    }
}

#[test]
fn switching_the_mode_under_load_loses_no_mad() {
    let (code, said) = run(&["bound", "60"]);
    println!("{said}");
    // on a single core there is nothing to measure
    let cannot = said.contains("two cores are needed");
    assert!(
        cannot || (code == Some(0) && said.contains("60 switches") && said.contains("none missing")),
        "{said}"
    );
}
