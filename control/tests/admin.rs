//! madctld from outside: the admin protocol, the link to a plane, and what peers can do to it.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::io::Write;

use madplane_shm::command::{Command, Event, event};
use support::{Admin, Bed, FakePlane, NAME, done, eventually, failed, ok};

fn silent(_: &Command) -> Option<Event> {
    None
}

fn refuse(command: &Command) -> Option<Event> {
    let mut told = Event { id: command.id, kind: event::DONE, status: 19, ..Event::default() };
    told.set_text("no node is called \"hots-1\", did you mean \"host-1\"?");
    Some(told)
}

fn error_of(reply: &serde_json::Value) -> String {
    assert_eq!(reply["ok"], false, "{reply}");
    reply["error"].as_str().unwrap().to_owned()
}

#[test]
fn commands_reach_the_plane_and_its_answers_come_back_with_their_id() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let mut admin = Admin::new(&bed);
    let table = [
        (r#"{"v":1,"id":"a","cmd":"links.down","args":{"port":"leaf:3"}}"#, "a", "1 0 leaf:3"),
        (r#"{"v":1,"id":"b","cmd":"links.up","args":{"port":"leaf:3"}}"#, "b", "1 1 leaf:3"),
        (r#"{"v":1,"id":"c","cmd":"nodes.reboot","args":{"node":"leaf"}}"#, "c", "2 0 leaf"),
        (r#"{"v":1,"id":"d","cmd":"plane.ping"}"#, "d", "3 0 "),
    ];
    for (line, id, text) in table {
        let reply = admin.ask(line);
        let expected = serde_json::json!({
            "v": 1, "id": id, "ok": true,
            "result": { "node_guid": "0x0000000000000010", "port": 3, "text": text },
        });
        assert_eq!(reply, expected);
    }
    let status = admin.ask(r#"{"v":1,"id":null,"cmd":"control.status"}"#);
    assert_eq!(status["result"]["commands"], 4, "{status}");
    assert_eq!(status["result"]["events"], 4, "{status}");
}

#[test]
fn rubbish_gets_an_answer_and_the_connection_lives_on() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let mut admin = Admin::new(&bed);
    for line in
        ["", "x", "{}", "[[[[[[", "\u{fffd}", r#"{"v":9,"cmd":"plane.ping"}"#, r#"{"v":1,"cmd":"no"}"#]
    {
        assert!(!error_of(&admin.ask(line)).is_empty());
    }
    admin.stream.write_all(b"\xff\xfe\x00\n").unwrap();
    error_of(&admin.reply().unwrap());
    assert_eq!(admin.ask(r#"{"v":1,"cmd":"plane.ping"}"#)["ok"], true);
}

#[test]
fn many_requests_in_one_write_each_get_their_answer() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let mut admin = Admin::new(&bed);
    let lines: String =
        (0..50).map(|id| format!("{{\"v\":1,\"id\":{id},\"cmd\":\"plane.ping\"}}\n")).collect();
    admin.stream.write_all(lines.as_bytes()).unwrap();
    // a client may say that no more comes and still gets what it is owed
    admin.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut ids: Vec<u64> = (0..50).map(|_| admin.reply().unwrap()["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..50).collect::<Vec<u64>>());
    assert!(admin.reply().is_none(), "closed when everything is answered");
}

#[test]
fn a_line_without_end_is_refused_and_closed() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    let mut admin = Admin::new(&bed);
    // more than the bound; the rest may meet a closed socket
    let _ = admin.stream.write_all(&vec![b'x'; 80 * 1024]);
    assert!(error_of(&admin.reply().unwrap()).contains("longer than 65536 bytes"));
    assert_eq!(bed.ask(r#"{"v":1,"cmd":"control.status"}"#)["ok"], true);
}

#[test]
fn a_client_that_never_reads_holds_nobody_up() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    let mut greedy = Admin::new(&bed);
    greedy.stream.set_nonblocking(true).unwrap();
    let line = b"{\"v\":1,\"cmd\":\"control.status\"}\n".repeat(100);
    let mut refused = 0;
    eventually("madctld stops reading from it", || {
        refused = if greedy.stream.write(&line).is_err() { refused + 1 } else { 0 };
        refused > 20
    });
    assert_eq!(bed.ask(r#"{"v":1,"cmd":"control.status"}"#)["ok"], true);
    // and it is served again once it reads
    greedy.stream.set_nonblocking(false).unwrap();
    for _ in 0..1000 {
        assert_eq!(greedy.reply().unwrap()["ok"], true);
    }
}

#[test]
fn silent_clients_make_room_for_new_ones() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    let mut crowd = Vec::new();
    for _ in 0..400 {
        let mut admin = Admin::new(&bed);
        admin.stream.write_all(b"{\"v\":1,").unwrap();
        crowd.push(admin);
    }
    let status = bed.ask(r#"{"v":1,"cmd":"control.status"}"#);
    assert!(status["result"]["clients"].as_u64().unwrap() <= 128, "{status}");
}

#[test]
fn without_a_plane_commands_fail_at_once_and_it_is_found_when_it_comes() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    let line = r#"{"v":1,"cmd":"links.down","args":{"port":"leaf:3"}}"#;
    assert_eq!(
        error_of(&bed.ask(line)),
        format!("no plane named {NAME} is running; start one with: madctl up --name {NAME}")
    );
    for _ in 0..3 {
        let plane = FakePlane::start(&bed, done);
        bed.wait_connected();
        assert_eq!(bed.ask(line)["ok"], true);
        drop(plane);
        eventually("the loss is noticed", || bed.ask(line)["ok"] == false);
    }
}

#[test]
fn a_plane_that_dies_leaves_no_command_waiting() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, silent);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let mut admin = Admin::new(&bed);
    admin.send(r#"{"v":1,"id":1,"cmd":"nodes.reboot","args":{"node":"leaf"}}"#);
    eventually("the command is given", || {
        bed.ask(r#"{"v":1,"cmd":"control.status"}"#)["result"]["commands"] == 1
    });
    drop(plane);
    assert!(error_of(&admin.reply().unwrap()).contains("went away"));
}

#[test]
fn a_plane_that_does_not_answer_is_given_up_and_named() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, silent);
    let _daemon = bed.madctld();
    bed.wait_connected();
    assert!(error_of(&bed.ask(r#"{"v":1,"cmd":"plane.ping"}"#)).contains("has not answered within"));
}

#[test]
fn commands_under_way_are_bounded() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, silent);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let mut admin = Admin::new(&bed);
    for _ in 0..65 {
        admin.send(r#"{"v":1,"cmd":"plane.ping"}"#);
    }
    assert!(error_of(&admin.reply().unwrap()).contains("under way"));
}

#[test]
fn a_second_madctld_is_refused_and_a_killed_one_leaves_nothing_to_clean() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let mut first = bed.madctld();
    let second = bed.program(env!("CARGO_BIN_EXE_madctld")).args(["--name", NAME]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let text = String::from_utf8(second.stderr).unwrap();
    assert_eq!(text, format!("madctld: madctld of plane {NAME} is already running (pid {})\n", first.pid()));
    first.kill();
    assert!(bed.run_file("admin.sock").exists(), "a killed one leaves its socket");
    let mut third = bed.madctld();
    bed.wait_connected();
    assert_eq!(bed.ask(r#"{"v":1,"cmd":"plane.ping"}"#)["ok"], true);
    assert_eq!(third.end(), Some(0));
    assert!(!bed.run_file("admin.sock").exists(), "an orderly one does not");
}

#[test]
fn an_idle_madctld_sleeps() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let daemon = bed.madctld();
    bed.wait_connected();
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line =
            status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    // the last client's farewell is over
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = switches();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(switches(), before, "woke up with nothing to do");
}

#[test]
fn only_root_and_the_daemons_user_may_change_the_plane() {
    let Some(bed) = Bed::for_anyone() else { return };
    let _plane = FakePlane::start(&bed, done);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let changed = bed.madctl_as_nobody(&["links", "down", "leaf:1"]);
    assert_eq!(failed(&changed, 1), "only root and the user who runs madctld may change the plane");
    assert!(ok(&bed.madctl_as_nobody(&["status"])).contains("connected, 0 commands"));
}

#[test]
fn madctl_passes_the_planes_words_on() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, refuse);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let refused = bed.madctl(&["nodes", "reboot", "hots-1"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(text, "madctl: no node is called \"hots-1\", did you mean \"host-1\"?\n");
}

#[test]
fn a_stopped_madctld_does_not_stop_who_looks() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, done);
    let daemon = bed.madctld();
    let pid = rustix::process::Pid::from_child(&daemon.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // many others wait already
    let crowd: Vec<_> = (0..100).map(|_| bed.connect().unwrap()).collect();
    let looked = bed.madctl(&["status"]);
    assert_eq!(looked.status.code(), Some(0), "{}", String::from_utf8_lossy(&looked.stderr));
    let text = String::from_utf8(looked.stdout).unwrap();
    assert!(
        text.contains(&format!("pid {}, madctld of plane {NAME} has not answered within 2 s", daemon.pid())),
        "{text}"
    );
    drop(crowd);
}

#[test]
fn a_log_in_json_is_one_document_a_line() {
    let bed = Bed::new();
    let mut process = bed.program(env!("CARGO_BIN_EXE_madctld"));
    process.args(["--name", NAME, "--log-format", "json"]).stderr(std::process::Stdio::piped());
    let mut daemon = support::Daemon { child: process.spawn().unwrap() };
    eventually("madctld listens", || bed.connect().is_some());
    let _plane = FakePlane::start(&bed, done);
    bed.wait_connected();
    let log = daemon.child.stderr.take().unwrap();
    assert_eq!(daemon.end(), Some(0));
    let text = std::io::read_to_string(log).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["fields"]["message"] == "connected to the plane"), "{text}");
}

#[test]
fn a_madctld_started_by_hand_serves_the_plane_that_the_environment_names() {
    let bed = Bed::new();
    let start = |name: Option<&str>, options: &[&str]| {
        let mut process = bed.program(env!("CARGO_BIN_EXE_madctld"));
        process.args(options).stderr(std::process::Stdio::null());
        if let Some(name) = name {
            process.env("MADPLANE_NAME", name);
        }
        support::Daemon { child: process.spawn().unwrap() }
    };
    let socket = |name: &str| bed.root().join("run").join(name).join("admin.sock");
    let _by_environment = start(Some("other"), &[]);
    eventually("it serves the plane named there", || socket("other").exists());
    let _by_option = start(Some("other"), &["--name", "third"]);
    eventually("an option goes before", || socket("third").exists());
    let _by_default = start(Some(""), &[]);
    eventually("an empty one names none", || socket("default").exists());
}

#[test]
fn refusals_are_logged_as_json_once_a_second_with_the_number_left_out() {
    let bed = Bed::new();
    let mut process = bed.program(env!("CARGO_BIN_EXE_madctld"));
    process.args(["--name", NAME, "--log-format", "json", "--dr-table-max", "1"]);
    let mut daemon = support::Daemon { child: process.stderr(std::process::Stdio::piped()).spawn().unwrap() };
    eventually("madctld listens", || bed.connect().is_some());
    let mut admin = Admin::new(&bed);
    for dlid in 2..50 {
        admin.ask(&format!(
            r#"{{"v":1,"cmd":"routes.add","args":{{"route":{{"slid":1,"dlid":{dlid},"path":[1]}},"sync":true}}}}"#
        ));
    }
    let log = daemon.child.stderr.take().unwrap();
    assert_eq!(daemon.end(), Some(0));
    let text = std::io::read_to_string(log).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let full = |line: &&serde_json::Value| {
        line["fields"]["message"] == "DR table full (max=1), refusing route" && line["level"] == "WARN"
    };
    let logged = lines.iter().filter(full).count();
    assert!((1..10).contains(&logged), "{text}");
}
