//! What a process holds: memory, descriptors, mappings, files in shared memory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::Fault;

/// Memory that may come and go, KiB: the allocator keeps pages or gives them back as it likes.
const SLACK_KIB: u64 = 1024;

/// What a plane holds at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footprint {
    rss_kib: u64,
    descriptors: usize,
    mappings: usize,
    control_descriptors: usize,
    control_rss_kib: u64,
    files: BTreeMap<String, u64>,
}

impl Footprint {
    /// Of madplaned and madctld, and of the directory of their segments.
    pub(crate) fn of(plane: u32, control: u32, shm: &Path) -> Result<Self, Fault> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(shm).map_err(|error| error.to_string())?.flatten() {
            let bytes = entry.metadata().map_or(0, |found| found.len());
            files.insert(entry.file_name().to_string_lossy().into_owned(), bytes);
        }
        Ok(Self {
            rss_kib: rss_kib(plane)?,
            descriptors: descriptors(plane)?,
            mappings: read(plane, "maps")?.lines().count(),
            control_descriptors: descriptors(control)?,
            control_rss_kib: rss_kib(control)?,
            files,
        })
    }

    /// Whether nothing is more than it was.
    pub(crate) fn has_not_grown_since(&self, before: &Self) -> Result<(), Fault> {
        let slack = |kib: u64| kib + SLACK_KIB.max(kib / 50);
        let grown = [
            ("descriptors of the plane", self.descriptors > before.descriptors),
            ("descriptors of madctld", self.control_descriptors > before.control_descriptors),
            // an arena more or less of the allocator's
            ("mappings of the plane", self.mappings > before.mappings + 4),
            ("memory of the plane", self.rss_kib > slack(before.rss_kib)),
            ("memory of madctld", self.control_rss_kib > slack(before.control_rss_kib)),
            ("files in shared memory", self.files != before.files),
        ];
        match grown.iter().find(|(_, grown)| *grown) {
            None => Ok(()),
            Some((what, _)) => Err(format!("{what} have grown: {before}; now {self}")),
        }
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: u64 = self.files.values().sum();
        write!(
            f,
            "plane {} KiB, {} descriptors, {} mappings; madctld {} KiB, {} descriptors; {} files of {} KiB",
            self.rss_kib,
            self.descriptors,
            self.mappings,
            self.control_rss_kib,
            self.control_descriptors,
            self.files.len(),
            bytes >> 10
        )
    }
}

fn read(pid: u32, file: &str) -> Result<String, Fault> {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).map_err(|error| format!("process {pid}: {error}"))
}

fn descriptors(pid: u32) -> Result<usize, Fault> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd"));
    Ok(all.map_err(|error| format!("process {pid}: {error}"))?.count())
}

fn rss_kib(pid: u32) -> Result<u64, Fault> {
    let status = read(pid, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().split(' ').next()).and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("process {pid} does not say how much memory it has"))
}
