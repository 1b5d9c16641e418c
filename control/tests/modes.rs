//! How workers wait, on a real plane: started, changed while programs attach, shown, refused.
//!
//! madplaned belongs to another crate; without it beside madctl these tests say so and pass.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use support::{Bed, Running, eventually, failed, ok, present};

const FABRIC: [&str; 4] = ["up", "--fabric", "builtin:ring,switches=4,hosts=2", "--no-huge"];

fn up(bed: &Bed, further: &[&str]) -> String {
    ok(&bed.madctl(&[&FABRIC, further].concat()))
}

fn modes(bed: &Bed) -> serde_json::Value {
    serde_json::from_str(&ok(&bed.madctl(&["mode", "show", "--format", "json"]))).unwrap()
}

fn tuning(bed: &Bed) -> serde_json::Value {
    let shown: serde_json::Value =
        serde_json::from_str(&ok(&bed.madctl(&["tune", "show", "--format", "json"]))).unwrap();
    shown["workers"][0].clone()
}

#[test]
fn a_mode_is_started_with_changed_and_survives_both_daemons() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    up(&bed, &["--mode", "interrupt", "--tune", "rx-usecs=7", "--overprovisioned"]);
    let first = &modes(&bed)["workers"][0];
    assert_eq!((&first["mode"], &first["asked"]), (&"interrupt".into(), &"interrupt".into()), "{first}");
    assert_eq!(tuning(&bed)["moderator_timeout"], 7);
    let done = ok(&bed.madctl(&["tune", "mode=adaptive", "rx-frames=3"]));
    assert!(done.starts_with("all workers: mode=adaptive moderator_pkts=3, generation "), "{done}");
    let shown = tuning(&bed);
    assert_eq!((&shown["mode"], &shown["moderator_pkts"]), (&"adaptive".into(), &3.into()), "{shown}");
    assert_eq!(shown["moderator_timeout"], 7, "what was not asked for stays");
    // it has no core of its own
    let first = &modes(&bed)["workers"][0];
    assert_eq!((&first["mode"], &first["asked"]), (&"interrupt".into(), &"adaptive".into()), "{first}");
    eventually("the worker sleeps", || modes(&bed)["workers"][0]["sleeps"].as_u64() > Some(0));
    // another plane of that name finds it in the table, unless it is started with something else
    ok(&bed.madctl(&["down"]));
    up(&bed, &["--overprovisioned"]);
    eventually("the table is followed", || tuning(&bed)["mode"] == "adaptive");
    ok(&bed.madctl(&["down"]));
    up(&bed, &["--overprovisioned", "--mode", "poll"]);
    eventually("the table is forgotten", || tuning(&bed)["moderator_pkts"] == 8);
    assert_eq!(tuning(&bed)["mode"], "polling");
    ok(&bed.madctl(&["mode", "set", "interrupt", "--worker", "0"]));
    assert_eq!(tuning(&bed)["mode"], "interrupt");
    ok(&bed.madctl(&["tune", "--reset"]));
    assert_eq!(tuning(&bed)["mode"], "polling");
}

#[test]
fn nonsense_is_refused_in_one_line_and_changes_nothing() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    for (further, code, expected) in [
        (&["--mode", "pol"][..], 2, "did you mean poll?"),
        (&["--mode", ""], 2, "not \"\""),
        (&["--tune", "burst=-1"], 2, "from 1 to 256"),
        (&["--tune", "burst=NaN"], 2, "from 1 to 256"),
        (&["--tune", "burst="], 2, "from 1 to 256"),
        (&["--tune", "moderator_timeout=18446744073709551616"], 2, "from 0 to 100000"),
        (&["--tune", "rx-usec=3"], 2, "did you mean rx-usecs?"),
        (&["--tune", "irq_threshold=99"], 2, "above poll_threshold"),
        (&["--config", "no/such.toml"], 1, "configuration file no/such.toml"),
        (&["--cores", "1000"], 1, "core 1000 is not among the allowed cores"),
        (&["--cores", "0,0"], 1, "core 0 is named twice"),
        (&["--cores=-1"], 2, "is no list of CPUs"),
        (&["--cores", ""], 2, "is no list of CPUs"),
        (&["--workers", "0"], 2, "1 to 16 workers"),
        (&["--workers", "NaN"], 2, "invalid value 'NaN'"),
        (&["--session-slots=-4"], 2, "invalid value '-4'"),
        (&["--socket-mem=-1"], 1, "\"-1\" is no memory for sessions"),
        (&["--socket-mem", ""], 1, "is no memory for sessions"),
        (&["--huge-dir", "/proc"], 1, "not together with --no-huge"),
        (&["--overprovisionned"], 2, "a similar argument exists: '--overprovisioned'"),
    ] {
        let line = failed(&bed.madctl(&[&FABRIC, further].concat()), code);
        assert!(line.contains(expected), "{further:?}: {line}");
    }
    for (text, expected) in [
        (
            "[moderation]\nmode = \"pol\"\n",
            "line 2: mode is polling, interrupt or adaptive, not \"pol\"; did you mean poll?",
        ),
        ("[moderation]\n\nburst = -1\n", "line 3: burst is a whole number"),
        ("[moderation]\nburst = nan\n", "line 2: burst is a whole number"),
        ("[moderation]\nrx-usec = 1\n", "line 2: no parameter \"rx-usec\"; did you mean rx-usecs?"),
        ("[lcore]\ncorse = \"1\"\n", "line 2: unknown field `corse`"),
        ("[lcore]\ncores = \"1,,2\"\n", "line 2: \"1,,2\" is no list of CPUs"),
        ("[lcore]\ncores = \"1000\"\n", "core 1000 is not among the allowed cores"),
    ] {
        let file = bed.write("bad.toml", text);
        let line = failed(&bed.madctl(&[&FABRIC[..], &["--config", &file]].concat()), 1);
        assert!(line.contains(expected), "{text}: {line}");
    }
    assert!(!bed.status_file().exists() && !bed.run_file("attach.sock").exists(), "nothing was started");
    up(&bed, &["--overprovisioned"]);
    let before = tuning(&bed);
    for (words, code, expected) in [
        (&["mode", "set", "adaptiv"][..], 2, "did you mean adaptive?"),
        (
            &["mode", "set", "polling"],
            1,
            "worker 0 has no core of its own and cannot poll; interrupt and adaptive are",
        ),
        (&["tune", "mode=poll", "burst=1"], 1, "cannot poll"),
        (&["mode", "set", "polling", "--worker", "9"], 1, "there is no worker 9; workers are 0 to 0"),
        (&["mode", "set", "polling", "--worker", "99"], 1, "there is no worker 99"),
        (&["tune", "moderator_timeout=-5"], 2, "from 0 to 100000"),
        (&["tune", "burst=99999999999999999999"], 2, "from 1 to 256"),
        (&["tune", "brst=3"], 2, "did you mean burst?"),
        (&["tune", "burst"], 2, "not of the form NAME=VALUE"),
        (&["tune"], 2, "give NAME=VALUE"),
        (&["tune", "irq_threshold=11"], 1, "irq_threshold 11 is above poll_threshold 10"),
        (&["tune", "show", "--worker", "3"], 1, "there is no worker 3"),
    ] {
        let line = failed(&bed.madctl(words), code);
        assert!(line.contains(expected), "{words:?}: {line}");
    }
    assert_eq!(tuning(&bed), before);
}

#[test]
fn a_file_says_how_workers_wait_and_the_command_line_goes_before_it() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let text = "[moderation]\nmode = \"adaptive\"\nrx-usecs = 9\n[lcore]\noverprovisioned = true\n";
    let file = bed.write("plane.toml", text);
    up(&bed, &["--config", &file, "--mode", "interrupt"]);
    let shown = tuning(&bed);
    assert_eq!((&shown["mode"], &shown["moderator_timeout"]), (&"interrupt".into(), &9.into()), "{shown}");
    assert_eq!(modes(&bed)["workers"][0]["shares_core"], true);
}

#[test]
fn a_core_that_another_worker_polls_is_refused() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    up(&bed, &[]);
    let Some(core) = modes(&bed)["workers"][0]["cpu"].as_u64() else {
        println!("skipped: a single core");
        return;
    };
    let core = core.to_string();
    let other = |arguments: &[&str]| {
        let mut madctl = bed.program(env!("CARGO_BIN_EXE_madctl"));
        madctl.args(["--name", "other"]).args(arguments).output().unwrap()
    };
    let refused = failed(&other(&[&FABRIC[..], &["--cores", &core]].concat()), 1);
    assert!(
        refused.contains(&format!("core {core} is polled by another madplane worker (pid ")),
        "{refused}"
    );
    // one that names no core takes another, or shares one and says so
    let shared = other(&FABRIC);
    other(&["down"]);
    let cores = rustix::thread::sched_getaffinity(None).unwrap().count();
    assert!(ok(&shared).contains("no core of their own") || cores > 2);
}

#[test]
fn on_a_single_core_workers_wait_for_interrupts_and_say_so_once() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| set.is_set(*core)).unwrap().to_string();
    let mut alone = bed.program("taskset");
    alone.args(["-c", &core, env!("CARGO_BIN_EXE_madctl"), "--name", support::NAME]).args(FABRIC);
    let started = alone.output();
    if !present("taskset", started.is_ok(), "it is in util-linux") {
        return;
    }
    let started = started.unwrap();
    assert_eq!(ok(&started).matches("no core of their own").count(), 1);
    let first = &modes(&bed)["workers"][0];
    assert_eq!((&first["mode"], &first["cpu"]), (&"interrupt".into(), &serde_json::Value::Null), "{first}");
    let log = std::fs::read_to_string(bed.run_file("madplaned.log")).unwrap();
    assert_eq!(log.matches("no core of their own").count(), 1, "{log}");
}
