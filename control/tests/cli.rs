//! madctl from outside: wrong usage, missing planes, files, and what it prints.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use support::{Bed, FakePlane, NAME, done, eventually};

/// Arguments, exit code, and a part of the one line on standard error.
type Bad<'a> = (&'a [&'a str], i32, &'a str);

fn check(bed: &Bed, table: &[Bad]) {
    for (arguments, code, part) in table {
        let output = bed.madctl(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
        assert!(
            text.starts_with("madctl: ") && text.ends_with('\n') && text.lines().count() == 1,
            "{arguments:?}: {text}"
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn bad_input_is_answered_with_one_line_and_the_right_code() {
    let bed = Bed::new();
    let folder = bed.root().join("fabric.net");
    std::fs::write(&folder, "Switch 4 \"a\"\n[1] \"b\"[1]\n").unwrap();
    let half = folder.to_str().unwrap();
    let long = "x".repeat(300);
    check(
        &bed,
        &[
            (&[], 2, "requires a subcommand"),
            (&["stauts"], 2, "'status'"),
            (&["latency", "show"], 1, "is not running"),
            (&["tenants", "show"], 1, "has no route table"),
            (&["tenants", "add", "a"], 1, "is not running"),
            (&["up", "--fabirc", "x"], 2, "--fabric"),
            (&["up", "--fabric", "no/such/file"], 1, "no such file"),
            (&["up", "--fabric", "/"], 1, "is a directory"),
            (&["up", "--fabric", "builtin:fat-tre"], 2, "did you mean \"fat-tree\"?"),
            (&["up", "--fabric", "builtin:fat-tree,radix=x"], 2, "radix=x is not valid"),
            (&["up", "--mode", "pol"], 2, "did you mean poll?"),
            (&["up", "--workers", "0"], 2, "1 to 16 workers"),
            (&["up", "--workers", "many"], 2, "invalid value 'many'"),
            (&["up", "--cores", "1,x"], 2, "is no list of CPUs"),
            (&["up", "--session-slots", "100"], 2, "power of two"),
            (&["--format", "xml", "status"], 2, "invalid value 'xml'"),
            (&["down"], 1, "plane bed is not running"),
            (&["status"], 1, "plane bed is not running; start it with: madctl up --name bed"),
            (&["run", "--", "true"], 1, "plane bed is not running"),
            (&["run"], 2, "COMMAND"),
            (&["sessions"], 2, "requires a subcommand"),
            (&["sessions", "list"], 1, "is not running"),
            (&["counters", "show"], 1, "is not running"),
            (&["errors", "show"], 1, "is not running"),
            (&["fabric", "show"], 1, "is not running"),
            (&["fabric", "split", "builtin:fat-tree,radix=4", "7"], 2, "cannot be cut into 7 parts"),
            (&["fabric", "split", "no/such/file", "2"], 1, "no/such/file"),
            (&["fabric", "split", "builtin:ring", "3", "--hosts", "a,b"], 2, "as many hosts, or one"),
            (&["fabric", "split", "builtin:ring", "3", "--via", "quic:h"], 2, "is no verbs:DEVICE"),
            (
                &["fabric", "split", "builtin:ring", "3", "--via", "verbs:a", "--via", "verbs:b"],
                2,
                "as many devices, or one",
            ),
            (
                &["fabric", "split", "builtin:ring", "2", "--via", "verbs:a", "--credentials", "c"],
                2,
                "--credentials",
            ),
            (&["links", "show"], 1, "is not running"),
            (&["links", "add", "a:1"], 2, "--via"),
            (&["links", "add", "--file", "no/such/file"], 1, "holds no links"),
            (&["links", "add", "a:1", "--via", "quic:h:1", "--peer", "h:2"], 1, "is not running"),
            (&["links", "del", "a:1"], 1, "is not running"),
            (&["links", "credentials", "/proc/nowhere", "a"], 1, "/proc/nowhere"),
            (&["links", "credentials", "/tmp", "a/b"], 1, "is no name for a plane"),
            (&["links", "down", "leaf"], 2, "names no port"),
            (&["links", "down", "leaf:300"], 2, "names no port"),
            (&["links", "down", ":3"], 2, "names no port"),
            (&["links", "down", "leaf:1"], 1, "is not running"),
            (&["nodes", "reboot", ""], 2, "is empty"),
            (&["nodes", "reboot", "leaf"], 1, "is not running"),
            (&["fabric", "generate", "hypercub"], 2, "did you mean \"hypercube\"?"),
            (&["fabric", "generate", "ring", "switch=3"], 2, "no parameter \"switch\""),
            (&["fabric", "generate", "ring", "switches"], 2, "not of the form"),
            (&["fabric", "generate", "ring", "-o", "/no/such/folder/x"], 1, "cannot write"),
            (&["fabric", "check", "no/such/file"], 1, "cannot read no/such/file"),
            (&["fabric", "check", half], 1, "fabric.net:2:"),
            (&["run", "--at", &long, "--", "true"], 1, "not running"),
        ],
    );
}

#[test]
fn bad_names_of_planes_are_wrong_usage() {
    let bed = Bed::new();
    for name in ["", "a/b", "..", "a b"] {
        let output =
            bed.program(env!("CARGO_BIN_EXE_madctl")).args(["status", "--name", name]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{name}: {text}");
    }
}

#[test]
fn with_a_plane_but_no_madctld_commands_say_what_to_do() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let long = "x".repeat(193);
    check(
        &bed,
        &[
            (
                &["links", "down", "leaf:1"],
                1,
                "madctld of plane bed is not running; start it with: madctl up --name bed",
            ),
            (&["run", "--at", "hots-1", "--", "true"], 1, "did you mean \"host-1\"?"),
            (&["run", "--at", &long, "--", "true"], 1, "longer than 160 bytes"),
            (&["counters", "show", "--worker", "1"], 1, "there is no worker 1; workers are 0 to 0"),
        ],
    );
    let near = bed.program(env!("CARGO_BIN_EXE_madctl")).args(["status", "--name", "bedd"]).output().unwrap();
    assert!(String::from_utf8(near.stderr).unwrap().ends_with("did you mean bed?\n"));
}

#[test]
fn a_command_is_run_in_the_planes_environment_and_its_exit_code_is_ours() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let libexec = bed.root().join("libexec");
    std::fs::create_dir(&libexec).unwrap();
    let run = |arguments: &[&str]| {
        let mut process = bed.program(env!("CARGO_BIN_EXE_madctl"));
        process
            .env("MADPLANE_LIBEXEC", &libexec)
            .args(["run", "--name", NAME])
            .args(arguments)
            .output()
            .unwrap()
    };
    // the loader complains about an empty library and goes on; what matters here is what the program is told
    std::fs::write(libexec.join("libmadplane_umad.so"), "").unwrap();
    let shown =
        run(&["--at", "host-1", "--", "sh", "-c", "echo $MADPLANE_NAME $MADPLANE_AT $LD_PRELOAD; exit 5"]);
    let expected = format!("bed host-1 {}\n", libexec.join("libmadplane_umad.so").display());
    assert_eq!((shown.status.code(), String::from_utf8(shown.stdout).unwrap()), (Some(5), expected));
    let lost = run(&["no-such-command-at-all"]);
    let text = String::from_utf8(lost.stderr).unwrap();
    assert_eq!(
        (lost.status.code(), text.as_str()),
        (Some(127), "madctl: no-such-command-at-all: command not found\n")
    );
    let refused = run(&["--", "/"]);
    assert_eq!(refused.status.code(), Some(126));
}

#[test]
fn a_generated_fabric_is_accepted_again_with_the_same_counts() {
    let bed = Bed::new();
    let file = bed.root().join("ring.net");
    let path = file.to_str().unwrap();
    let printed = bed.madctl(&["fabric", "generate", "ring", "switches=4", "hosts=2"]);
    let written = bed.madctl(&["fabric", "generate", "ring", "switches=4", "hosts=2", "-o", path]);
    assert_eq!((printed.status.code(), written.status.code()), (Some(0), Some(0)));
    assert_eq!(printed.stdout, std::fs::read(&file).unwrap());
    let checked = bed.madctl(&["fabric", "check", path, "--strict", "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(
        (&value["switches"], &value["adapters"], &value["links"]),
        (&4.into(), &8.into(), &12.into()),
        "{value}"
    );
    assert_eq!(value["warnings"], serde_json::json!([]));
}

#[test]
fn the_fabric_of_a_running_plane_is_shown_as_stored() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let shown = bed.madctl(&["fabric", "show", "--nodes"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    assert!(head.starts_with("plane bed: madplaned fake, pid ") && head.ends_with("ready"), "{head}");
    assert_eq!(rest, include_str!("golden/fabric_show.txt"));
}

#[test]
fn version_and_help_are_no_errors() {
    let bed = Bed::new();
    let version = bed.program(env!("CARGO_BIN_EXE_madctl")).arg("--version").output().unwrap();
    let expected = format!("madctl {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((version.status.code(), String::from_utf8(version.stdout).unwrap()), (Some(0), expected));
    let help = bed.program(env!("CARGO_BIN_EXE_madctl")).args(["up", "--help"]).output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("--session-slots"));
}

/// A folder with daemons that are scripts.
fn scripted(bed: &Bed, madplaned: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let libexec = bed.root().join("libexec");
    std::fs::create_dir(&libexec).unwrap();
    for (name, body) in [("madplaned", madplaned), ("madctld", "exit 9")] {
        std::fs::write(libexec.join(name), format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(libexec.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    libexec
}

fn is_alive(pid_file: &std::path::Path) -> bool {
    let pid = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    // a process that has ended and only waits to be collected is not alive
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    madplane_shm::process::start_ticks(pid).is_some() && !stat.contains(") Z ")
}

#[test]
fn an_interrupted_up_stops_what_it_started() {
    let bed = Bed::new();
    let pid_file = bed.root().join("pid");
    let libexec = scripted(&bed, &format!("echo $$ > {}\nexec sleep 1000", pid_file.display()));
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut process = bed.program(env!("CARGO_BIN_EXE_madctl"));
        process
            .args(["up", "--name", NAME])
            .env("MADPLANE_LIBEXEC", &libexec)
            .stderr(std::process::Stdio::piped());
        let child = process.spawn().unwrap();
        eventually("the daemon runs", || {
            std::fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'))
        });
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), text.as_str()),
            (Some(1), "madctl: interrupted; what was started is stopped again\n")
        );
        assert!(!is_alive(&pid_file));
        std::fs::remove_file(&pid_file).unwrap();
    }
}

#[test]
fn a_daemon_that_ends_without_a_word_is_reported_with_its_last_one() {
    let bed = Bed::new();
    let libexec = scripted(&bed, "echo first >&2\necho it hurts >&2\nexit 3");
    let mut process = bed.program(env!("CARGO_BIN_EXE_madctl"));
    let output = process.args(["up", "--name", NAME]).env("MADPLANE_LIBEXEC", &libexec).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let log = bed.run_file("madplaned.log");
    let expected = format!(
        "madctl: madplaned: ended before it was ready (exit status: 3): it hurts; see {}\n",
        log.display()
    );
    assert_eq!((output.status.code(), text), (Some(1), expected));
}

#[test]
fn a_plane_whose_madctld_does_not_start_is_stopped_again() {
    let bed = Bed::new();
    let pid_file = bed.root().join("pid");
    // the descriptor's number is the last argument
    let body = format!(
        "echo $$ > {}\nfor fd; do :; done\neval \"echo READY >&$fd\"\nexec sleep 1000",
        pid_file.display()
    );
    let libexec = scripted(&bed, &body);
    let mut process = bed.program(env!("CARGO_BIN_EXE_madctl"));
    let output = process.args(["up", "--name", NAME]).env("MADPLANE_LIBEXEC", &libexec).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.starts_with("madctl: madctld: ended before it was ready (exit status: 9)"), "{text}");
    assert!(!is_alive(&pid_file));
}
