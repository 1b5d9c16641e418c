//! The header compiles as C and C++ with the layout that the library has, and misuse from C is answered, not suffered.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::process::Command;

use support::{Bed, folder, installed, must};

#[test]
fn the_header_has_the_layout_of_the_library_in_c_and_in_cpp() {
    for (compiler, language, standard) in [("cc", "c", "c11"), ("c++", "c++", "c++11")] {
        if installed(compiler) {
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
fn null_pointers_wrong_names_and_planes_that_are_not_there_are_named_errors() {
    if installed("cc") {
        let bed = Bed::new();
        must(&mut bed.program(bed.compile("tests/c/misuse.c")));
    }
}

#[test]
fn the_python_structs_have_the_sizes_of_the_library() {
    if !installed("python3") {
        return;
    }
    let bed = Bed::new();
    let names = "PlaneInfo Worker Session Counter ErrorEntry Percentiles Table Route Tenant";
    let script = format!(
        "import ctypes, madctl\nprint(*(ctypes.sizeof(getattr(madctl, name)) for name in {names:?}.split()))"
    );
    let mut python = bed.program("python3");
    python.env("PYTHONPATH", folder().join("examples/python")).args(["-c", &script]);
    let sizes = [
        size_of::<madctl::ffi::Plane>(),
        size_of::<madctl::ffi::Worker>(),
        size_of::<madctl::ffi::Session>(),
        size_of::<madctl::ffi::Counter>(),
        size_of::<madctl::ffi::ErrorEntry>(),
        size_of::<madctl::ffi::Percentiles>(),
        size_of::<madctl::ffi::Table>(),
        size_of::<madctl::ffi::Route>(),
        size_of::<madctl::ffi::Tenant>(),
    ];
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    assert_eq!(must(&mut python).trim_end(), sizes.join(" "));
}
