//! Where the programs are that are measured or compared with.
//!
//! Our own programs are beside the running one, or below it (test programs), or in `MADPLANE_BIN_DIR`. Others are found
//! in `PATH` and the customary directories. With `MADPLANE_REQUIRE_PEERS=1` a missing one is an error everywhere.

use std::path::PathBuf;

use crate::error::BenchError;

/// Whether a missing peer fails instead of skipping.
pub fn peers_required() -> bool {
    std::env::var("MADPLANE_REQUIRE_PEERS").is_ok_and(|value| value == "1")
}

/// One of this workspace's programs or libraries.
///
/// # Errors
/// [`BenchError::Missing`] says how to make it.
pub fn ours(file: &str) -> Result<PathBuf, BenchError> {
    let mut directories: Vec<PathBuf> =
        std::env::var_os("MADPLANE_BIN_DIR").map(PathBuf::from).into_iter().collect();
    if let Ok(here) = std::env::current_exe() {
        directories.extend(here.ancestors().skip(1).take(2).map(PathBuf::from));
    }
    directories.iter().map(|directory| directory.join(file)).find(|path| path.is_file()).ok_or_else(|| {
        let places: Vec<_> = directories.iter().map(|place| place.display().to_string()).collect();
        BenchError::Missing(format!(
            "{file} is not in {}; build the workspace first, or set MADPLANE_BIN_DIR",
            places.join(" or ")
        ))
    })
}

/// A program of the system.
///
/// # Errors
/// [`BenchError::Missing`].
pub fn peer(program: &str) -> Result<PathBuf, BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| BenchError::Missing(format!("{program} is not installed")))
}

/// A library of the system by its file name, below the customary library directories.
///
/// # Errors
/// [`BenchError::Missing`].
pub fn peer_library(file: &str) -> Result<PathBuf, BenchError> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    ["/usr/lib", "/usr/lib64", "/usr/local/lib"]
        .iter()
        .flat_map(|root| [PathBuf::from(root), PathBuf::from(root).join(&triplet)])
        .map(|directory| directory.join(file))
        .find(|path| path.exists())
        .ok_or_else(|| BenchError::Missing(format!("{file} is not installed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        assert!(peer("sh").is_ok());
        assert!(peer("no-such-program").unwrap_err().to_string().contains("no-such-program"));
        assert!(ours("no-such-daemon").unwrap_err().to_string().contains("no-such-daemon"));
        assert!(peer_library("libno-such.so").is_err());
    }
}
