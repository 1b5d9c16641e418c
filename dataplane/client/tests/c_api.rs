//! The header compiles as C and C++ with the layout that the library has, and a C program can use the library.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::FakePlane;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn present(compiler: &str) -> bool {
    let there = Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: no {compiler}");
    }
    there
}

fn must(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_header_has_the_layout_of_the_library_in_c_and_in_cpp() {
    for (compiler, language, standard) in [("cc", "c", "c11"), ("c++", "c++", "c++11")] {
        if present(compiler) {
            must(
                Command::new(compiler)
                    .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", "-x", language])
                    .arg(format!("-std={standard}"))
                    .arg("-I")
                    .arg(folder().join("include"))
                    .arg(folder().join("tests/c/abi.c")),
            );
        }
    }
}

#[test]
fn a_c_program_sends_receives_and_sees_a_timeout() {
    if !present("cc") {
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-api");
    // a library of its own: the feature is off in every other build
    must(
        Command::new(env!("CARGO"))
            .args(["rustc", "--quiet", "--offline", "-p", "madplane-client", "--lib"])
            .args(["--features", "c-api", "--crate-type", "cdylib", "--target-dir"])
            .arg(&target)
            .current_dir(folder()),
    );
    let program = target.join("smoke");
    must(
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(folder().join("include"))
            .arg(folder().join("tests/c/smoke.c"))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(target.join("debug"))
            .arg("-lmadplane_client"),
    );
    let plane = FakePlane::start(|desk, session, message| {
        if message.mad[3] != 5 {
            desk.echo(session, message);
        }
    });
    let root = plane.paths.run_dir().parent().unwrap();
    must(
        Command::new(&program).env("LD_LIBRARY_PATH", target.join("debug")).env("MADPLANE_RUNTIME_DIR", root),
    );
}
