//! Gives the linker the version script and the soname of libibumad.
//!
//! rustc adds a version script of its own with the `no_mangle` names, and a linker has to accept both; lld, this toolchain's
//! default on x86-64 Linux, does. The `umad_*` names are defined in assembly (see `src/exports.rs`), so that they are
//! not in rustc's script and ours is the one that gives them their versions.

use std::path::PathBuf;

fn main() {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let map = manifest.join("libibumad.map");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=libibumad.map");
    // the path below moves with the checkout
    println!("cargo:rerun-if-env-changed=CARGO_MANIFEST_DIR");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibumad.so.3");
}
