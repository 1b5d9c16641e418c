//! For the tests: where the library is, how to run programs under it, and a plane that is a few threads in the test.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

pub(crate) mod plane;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library under test: next to the test program or one level up, whichever is newer.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directories = [test.parent().unwrap(), test.parent().unwrap().parent().unwrap()];
    directories
        .iter()
        .map(|directory| directory.join("libmadplane_umad.so"))
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("cargo builds the library before its tests")
}

/// Whether a program is installed; says so if not.
pub(crate) fn installed(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory| directory.join(program).exists());
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Compiles `tests/c/NAME.c` against the installed header and library; `None` if there is no compiler or no header.
pub(crate) fn compile(name: &str, directory: &Path) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/umad.h").exists() {
        println!("skipped: umad.h is not installed");
        return None;
    }
    if !installed("cc") {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = directory.join(name);
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-g", "-o"])
        .arg(&program)
        .arg(&source)
        .args(["-libumad", "-lpthread"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// `program` as `madctl run` would start it, for the plane `default` below `runtime`.
pub(crate) fn under_library(program: impl AsRef<std::ffi::OsStr>, runtime: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", library())
        .env("MADPLANE_RUNTIME_DIR", runtime)
        .env_remove("MADPLANE_NAME")
        .env_remove("MADPLANE_AT")
        .env_remove("MADPLANE_DEVICE")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Standard output and error as text, with a line that names the status.
pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
