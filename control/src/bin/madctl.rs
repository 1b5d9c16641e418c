//! The operator's command. Everything is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    madplane_control::cli::main(std::env::args_os())
}
