//! OpenSM with a log that can be read while it runs.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Background, Plane, eventually, read_lossy};

/// A running OpenSM; killed when dropped.
pub struct OpenSm {
    pub process: Background,
    folder: tempfile::TempDir,
}

impl OpenSm {
    /// Starts one at a port with further arguments and further lines of its configuration file.
    pub fn start(plane: &Plane, at: &str, arguments: &[&str], config: &[&str]) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |file: &str| folder.path().join(file).to_str().unwrap().to_owned();
        let mut lines = String::from("force_log_flush TRUE\n");
        for line in config {
            writeln!(lines, "{line}").unwrap();
        }
        std::fs::write(path("opensm.conf"), lines).unwrap();
        let (config, log) = (path("opensm.conf"), path("log"));
        let own = folder.path().to_str().unwrap();
        let (cache, scratch) = (format!("OSM_CACHE_DIR={own}"), format!("OSM_TMP_DIR={own}"));
        let start = ["env", &cache, &scratch, "opensm", "-F", &config, "-f", &log];
        let process = plane.spawn_at(at, &[&start, arguments].concat());
        Self { process, folder }
    }

    /// Starts one and waits until the fabric is up.
    #[track_caller]
    pub fn up(plane: &Plane, at: &str, arguments: &[&str], config: &[&str]) -> Self {
        let mut opensm = Self::start(plane, at, arguments, config);
        opensm.wait_for("SUBNET UP", 1);
        opensm
    }

    /// A file in its folder, where it dumps what it computed.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn log(&self) -> String {
        read_lossy(self.file("log"))
    }

    /// How many lines of the log contain `text`.
    pub fn count(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Waits until the log has `text` so many times.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str, times: usize) {
        let folder = self.folder.path().join("log");
        let count = || read_lossy(&folder).lines().filter(|line| line.contains(text)).count();
        eventually(&format!("OpenSM logs {text:?}, {times} times"), || {
            let ended = self.process.ended();
            assert!(
                ended.is_none() || count() >= times,
                "OpenSM ended ({ended:?}) before {text:?}:\n{}\n{}\n{}",
                self.process.out(),
                self.process.err(),
                read_lossy(&folder)
            );
            count() >= times
        });
    }

    /// Lines in which OpenSM complains.
    pub fn errors(&self) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(" ERR ")).map(str::to_owned).collect()
    }

    #[track_caller]
    pub fn assert_no_errors(&self) {
        assert_eq!(self.errors(), Vec::<String>::new(), "OpenSM complains");
    }
}

impl Drop for OpenSm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(4000);
            eprintln!("--- end of OpenSM's log\n{}", String::from_utf8_lossy(&log.as_bytes()[from..]));
        }
    }
}
