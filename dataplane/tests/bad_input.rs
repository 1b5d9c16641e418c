//! What madplaned refuses: one line, an exit code that is not zero, and nothing started or left behind.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::process::{Command, Output, Stdio};

const FABRIC: [&str; 2] = ["--fabric", "builtin:ring,switches=3,hosts=1"];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        for part in ["run", "shm"] {
            std::fs::create_dir(made.0.path().join(part)).unwrap();
        }
        made
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_madplaned"));
        command.env("MADPLANE_RUNTIME_DIR", self.0.path().join("run"));
        command.env("MADPLANE_SHM_DIR", self.0.path().join("shm"));
        command.args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Files that are there.
    fn files(&self) -> Vec<String> {
        let list = |part| std::fs::read_dir(self.0.path().join(part)).unwrap();
        list("run").chain(list("shm")).map(|found| found.unwrap().path().display().to_string()).collect()
    }
}

#[test]
fn nonsense_is_refused_in_one_line_that_says_what_would_do_and_nothing_is_left() {
    let place = Place::new();
    for (arguments, code, expected) in [
        (&["--cores", "1000"][..], 1, "core 1000 is not among the allowed cores "),
        (&["--cores", "0,0"], 1, "core 0 is named twice"),
        (&["--cores=-1"], 1, "\"-1\" is not a list of cores such as 1,3-5"),
        (&["--cores", ""], 1, "\"\" is not a list of cores"),
        (&["--cores", "99999999999999999999"], 1, "is not a list of cores"),
        (&["--cores", "NaN"], 1, "\"NaN\" is not a list of cores"),
        (&["--cores", "0", "--workers", "2"], 1, "2 workers need 2 cores of their own, 1 are named"),
        (&["--workers", "0"], 1, "0 workers are not possible, use 1 to 16"),
        (&["--workers=-1"], 2, "invalid value '-1' for '--workers"),
        (&["--workers", "99999999999999999999"], 2, "number too large"),
        (&["--workers", "NaN"], 2, "invalid value 'NaN'"),
        (&["--workers", ""], 2, "for '--workers"),
        (&["--mode", "pol"], 1, "mode is polling, interrupt or adaptive, not \"pol\"; did you mean poll?"),
        (&["--mode", ""], 1, "not \"\""),
        (&["--tune", "rx-usec=3"], 1, "no parameter \"rx-usec\"; did you mean rx-usecs?"),
        (&["--tune", "burst"], 1, "\"burst\" is not of the form NAME=VALUE"),
        (&["--tune", "burst=NaN"], 1, "burst is a whole number of MADs from 1 to 256, not \"NaN\""),
        (&["--tune", "burst="], 1, "from 1 to 256, not \"\""),
        (&["--tune", "burst=1e9"], 1, "from 1 to 256"),
        (&["--tune", "moderator_timeout=-1"], 1, "whole number of us from 0 to 100000, not \"-1\""),
        (&["--tune", "moderator_timeout=18446744073709551616"], 1, "from 0 to 100000"),
        (&["--tune", "adaptive=dimm"], 1, "did you mean dim?"),
        (&["--tune", "irq_threshold=99"], 1, "irq_threshold 99 is above poll_threshold 10"),
        (&["--tune", "burst=1", "burst=2"], 1, "burst is given twice"),
        (&["--session-slots", "100"], 1, "use a power of two from 64"),
        (&["--session-slots=-64"], 2, "invalid value '-64'"),
        (&["--socket-mem=-1"], 1, "\"-1\" is no memory for sessions"),
        (&["--socket-mem", "NaN"], 1, "give MiB for each NUMA node"),
        (&["--socket-mem", ""], 1, "is no memory for sessions"),
        (&["--socket-mem", "0"], 1, "is no memory for sessions"),
        (&["--socket-mem", "99999999999999"], 1, "is no memory for sessions"),
        (&["--huge-dir", "/proc"], 1, "--huge-dir /proc: is no mount of hugetlbfs"),
        (&["--huge-dir", "/no/such/place"], 1, "--huge-dir /no/such/place: "),
        (&["--overprovisionned"], 2, "a similar argument exists: '--overprovisioned'"),
        (&["--name", "a/b"], 1, "\"a/b\" is no name for a plane"),
    ] {
        let output = place.run(&[&FABRIC[..], arguments].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{arguments:?}: {said}");
        assert!(said.starts_with("madplaned: ") && said.contains(expected), "{arguments:?}: {said}");
        assert_eq!(place.files(), Vec::<String>::new(), "{arguments:?}");
    }
}

#[test]
fn help_and_version_are_no_mistakes_and_the_effective_configuration_is_printed() {
    let place = Place::new();
    for (flag, expected) in
        [("--help", "--huge-dir"), ("--version", "madplaned "), ("--print-config", "mode=polling")]
    {
        let output = place.run(&[flag]);
        assert!(
            output.status.success() && String::from_utf8(output.stdout).unwrap().contains(expected),
            "{flag}"
        );
    }
}
