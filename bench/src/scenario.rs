//! What can be run.

use std::time::Duration;

use madctl::nearest::hint;
use madplane_shm::tuning::Mode;
use serde::Serialize;

use crate::error::BenchError;
use crate::machine::RESULT_VERSION;
use crate::report::Record;
use crate::{
    bringup, engine, floor, libibmad, modes, peers, pinned, raw, reserved, rings, route_types, seqlock, solo,
    table, throughput,
};

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
    /// Time that the scenario may take in all; it shares that among its cases and rounds.
    pub duration: Option<Duration>,
    /// Modes of the worker to measure in; empty for the scenario's own.
    pub modes: Vec<Mode>,
}

impl Options {
    /// Rounds, or the scenario's default.
    pub fn rounds_or(&self, default: u32) -> u32 {
        if self.rounds == 0 { default } else { self.rounds }
    }

    /// Time for one of `parts` equal parts of the scenario, or `default` for it; a tenth of that for the small variant.
    pub fn part_of(&self, parts: u32, default: Duration) -> Duration {
        match (self.duration, self.quick) {
            (Some(all), _) => all / parts.max(1),
            (None, true) => default / 10,
            (None, false) => default,
        }
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
#[derive(Debug, Serialize)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Runs it.
    #[serde(skip)]
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
    Scenario {
        name: "route-types",
        about: "LID, directed, pinned and cached routing over 1, 2, 4 and 6 hops: mean and deviation, percentiles",
        run: route_types::run,
    },
    Scenario {
        name: "modes",
        about: "polling, interrupt and adaptive under an open load of 0 to all a client can send: latency, processor time, wake-ups",
        run: modes::run,
    },
    Scenario {
        name: "peers",
        about: "the same work on ibsim: libibmad, ibnetdiscover, OpenSM",
        run: peers::run,
    },
    Scenario {
        name: "throughput",
        about: "directed SMPs of 1 to 6 hops in flight, mixed classes, Get and Set; sessions and workers",
        run: throughput::run,
    },
    Scenario { name: "rings", about: "the slot ring beside ringbuf, crossbeam and rtrb", run: rings::run },
    Scenario {
        name: "seqlock",
        about: "what reading and publishing under the sequence lock costs",
        run: seqlock::run,
    },
    Scenario {
        name: "engine",
        about: "the engine alone: one MAD through validation, routing and agents",
        run: engine::run,
    },
];

/// The scenario called `name`.
///
/// # Errors
/// [`BenchError::Usage`] names the nearest, or lists all.
pub fn find(name: &str) -> Result<&'static Scenario, BenchError> {
    ALL.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        let hint = hint(name, names.iter().copied());
        let rest = if hint.is_empty() { format!("; there are {}", names.join(", ")) } else { hint };
        BenchError::Usage(format!("no scenario {name:?}{rest}"))
    })
}

/// What there is to run, as JSON.
#[derive(Debug, Serialize)]
struct Listing {
    version: u32,
    scenarios: &'static [Scenario],
}

/// All scenarios as JSON.
///
/// # Panics
/// Never: names and sentences can be written as JSON.
pub fn to_json() -> String {
    let listing = Listing { version: RESULT_VERSION, scenarios: ALL };
    serde_json::to_string_pretty(&listing).expect("names and sentences are JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_gets_the_nearest_or_all() {
        assert_eq!(find("raw").unwrap().name, "raw");
        let near = find("thruput-x").or(find("troughput")).unwrap_err().to_string();
        assert!(near.ends_with("did you mean throughput?"), "{near}");
        let far = find("moebius").unwrap_err().to_string();
        assert!(ALL.iter().all(|scenario| far.contains(scenario.name)), "{far}");
    }

    #[test]
    fn the_listing_has_every_scenario_with_its_sentence() {
        let listing: serde_json::Value = serde_json::from_str(&to_json()).unwrap();
        let listed = listing["scenarios"].as_array().unwrap();
        assert_eq!(listed.len(), ALL.len());
        for (listed, scenario) in listed.iter().zip(ALL) {
            assert_eq!((&listed["name"], &listed["about"]), (&scenario.name.into(), &scenario.about.into()));
        }
    }
}
