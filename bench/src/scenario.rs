//! What can be run.

use crate::error::BenchError;
use crate::report::Record;
use crate::{bringup, floor, libibmad, pinned, raw, reserved, solo, table};

/// How much to run; zero or `None` means the scenario's own default.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Rounds of each thing.
    pub rounds: u32,
    /// Measurements per round.
    pub count: u32,
    /// Fabric instead of the scenario's own.
    pub fabric: Option<String>,
    /// The small variant.
    pub quick: bool,
}

impl Options {
    /// Rounds, or the scenario's default.
    pub fn rounds_or(&self, default: u32) -> u32 {
        if self.rounds == 0 { default } else { self.rounds }
    }

    /// Measurements per round, or the scenario's default; a tenth of it for the small variant.
    pub fn count_or(&self, default: u32) -> u32 {
        match (self.count, self.quick) {
            (0, false) => default,
            (0, true) => default / 10,
            (count, _) => count,
        }
    }
}

/// One scenario.
#[derive(Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&Options) -> Result<Vec<Record>, BenchError>,
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    Scenario {
        name: "floor",
        about: "256 bytes there and back between two cores; eventfd there and back",
        run: floor::run,
    },
    Scenario {
        name: "worker",
        about: "one worker on the caller's thread: MADs a second by route length",
        run: solo::run,
    },
    Scenario {
        name: "raw",
        about: "query and answer through the rings: 0 to 12 hops, and many in flight",
        run: raw::run,
    },
    Scenario {
        name: "libibmad",
        about: "query and answer through the stock libibmad: plane against ibsim",
        run: libibmad::run,
    },
    Scenario { name: "opensm", about: "OpenSM until SUBNET UP: plane against ibsim", run: bringup::run },
    Scenario {
        name: "load",
        about: "start of a plane on 11,664 hosts: time and memory",
        run: bringup::run_load,
    },
    Scenario {
        name: "pinned",
        about: "pinned routes against forwarding tables over 1, 2, 4 and 6 hops: engine alone, and through the rings",
        run: pinned::run,
    },
    Scenario {
        name: "table",
        about: "the route table under traffic: looks, publications, reloads, from change to applied",
        run: table::run,
    },
    Scenario {
        name: "table-whole",
        about: "a table of 65,536 routes: time and memory of a worker that follows all of it",
        run: table::whole::run,
    },
    Scenario {
        name: "table-control",
        about: "changes through madctld: with and without --sync, a file of 65,536 routes",
        run: table::control::run,
    },
    Scenario {
        name: "reserved",
        about: "a reserved session among sixteen that flood: its latency against idle, and what the others get",
        run: reserved::run,
    },
];

/// The scenario called `name`.
///
/// # Errors
/// [`BenchError::Usage`] lists the names.
pub fn find(name: &str) -> Result<&'static Scenario, BenchError> {
    ALL.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        BenchError::Usage(format!("no scenario {name:?}; there are {}", names.join(", ")))
    })
}
