//! madctl routes from outside: wrong input, batches, workers that follow and that do not, files, deaths of daemons.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::io::Read;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use madplane_shm::header::Incarnation;
use madplane_shm::route_counters::RouteCounters;
use madplane_shm::status::Status;
use madplane_shm::sync::Ordering::{Relaxed, Release};
use madplane_shm::table::RouteEntry;
use madplane_shm::table::snapshot::TableReader;
use support::{Admin, Bed, Daemon, FakePlane, NAME, done, eventually, failed, ok};

/// A worker of the fake plane that does nothing but apply the table, as long as it lives.
struct Follower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    fn start(bed: &Bed, status: &Status) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, status, path) = (stop.clone(), status.clone(), bed.table_file());
        let thread = std::thread::spawn(move || {
            let mut reader = TableReader::open(&path).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                let refresh = reader.refresh(&mut |_, _| {}, &mut |_, _| {});
                let worker = status.worker(0);
                worker.applied_ns.store(madplane_shm::process::monotonic_ns(), Relaxed);
                worker.applied_generation.store(refresh.generation, Release);
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// What a daemon has logged, after its end.
fn log_of(mut daemon: Daemon) -> String {
    let mut pipe = daemon.child.stderr.take().unwrap();
    daemon.end();
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text
}

fn routes(bed: &Bed, arguments: &[&str]) -> Output {
    bed.madctl(&[&["routes"], arguments].concat())
}

fn shown(bed: &Bed) -> serde_json::Value {
    serde_json::from_str(&ok(&routes(bed, &["show", "--format", "json"]))).unwrap()
}

/// Keys and ports of the published routes.
fn published(bed: &Bed) -> Vec<(u16, u16, Vec<u8>)> {
    let mut reader = bed.table();
    let mut found = Vec::new();
    let mut take = |_, entry: Option<&RouteEntry>| {
        found.extend(entry.map(|entry| (entry.slid, entry.dlid, entry.ports().to_vec())));
    };
    let refresh = reader.refresh(&mut take, &mut |_, _| {});
    assert!(refresh.complete && refresh.refused == 0);
    found.sort_unstable();
    found
}

#[test]
fn wrong_input_is_one_line_and_leaves_the_table_as_it_was() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    ok(&routes(&bed, &["add", "0x11", "0x22", "1,2", "--sync"]));
    let before = (shown(&bed)["routes"].clone(), published(&bed));
    let long = vec!["1"; 64].join(",");
    let file = bed.write("bad.routes", "# good\n1 2 1,2\n\n3 4 1,0\n");
    let twice = bed.write("twice.routes", "1 2 1\n3 4 1\n1 2 2\n");
    let taken = bed.write("taken.routes", "1 2 1\n# x\n17 34 9\n");
    let table: [(&[&str], i32, &str); 22] = [
        (&["add", "0x11", "0x33", "1,0"], 2, "port 0 at hop 2 is out of range, ports are 1 to 255"),
        (&["add", "0x11", "0x33", "256"], 2, "port 256 at hop 1 is out of range, ports are 1 to 255"),
        (&["add", "0x11", "0x33", &long], 2, "a path has 1 to 63 ports, this one has 64"),
        (&["add", "0", "0x33", "1"], 2, "LID 0x0000 is outside the unicast range 0x0001 to 0xbfff"),
        (&["add", "0x11", "0xc000", "1"], 2, "LID 0xc000 is outside the unicast range 0x0001 to 0xbfff"),
        (&["add", "leaf", "0x33", "1"], 2, "\"leaf\" is no LID: write a number from 0x0001 to 0xbfff"),
        (&["add", "0x11", "0x33", "1;2"], 2, "\"1;2\" is no list of ports: write them like 1,2,3,4"),
        (
            &["add", "0x11", "0x33", "over", "x"],
            2,
            "unknown path \"over\": write PORTS, via NODE or shortest",
        ),
        (
            &["add", "0x11", "0x33", "via"],
            2,
            "write the path as via NODE[,NODE] or shortest [avoid NODE[,NODE]]",
        ),
        (
            &["add", "0x11", "0x33", "1", "--pkey", "0x8000"],
            2,
            "P_Key 0x8000 is none: its low 15 bits have to be from 1 to 0x7fff",
        ),
        (
            &["add", "0x11", "0x33", "1", "--priority", "16"],
            2,
            "priority 16 is out of range, priorities are 0 to 15",
        ),
        (
            &["add", "0x11", "0x22", "3"],
            1,
            "route 0x0011 -> 0x0022 exists already (ports 1,2); change it with --replace",
        ),
        (
            &["add", "0x11", "0x33", "1", "-i", "mlx5_1"],
            1,
            "unknown device \"mlx5_1\"; the plane's device is mlx5_0; did you mean mlx5_0?",
        ),
        (&["del", "0x11", "0x33"], 1, "there is no route 0x0011 -> 0x0033"),
        (&["load", "no/such/file"], 1, "cannot read no/such/file: No such file or directory (os error 2)"),
        (&["trace", "0x11", "0x33"], 1, "there is no route 0x0011 -> 0x0033 in the published table"),
        (&["add", "0x11", "0x33", "via", "a"], 1, "which fabric plane bed has is not known: "),
        (
            &["load", &file],
            1,
            &format!("{file}:4: port 0 at hop 2 is out of range, ports are 1 to 255; nothing was applied"),
        ),
        (
            &["load", &twice],
            1,
            &format!(
                "{twice}:3: route 0x0001 -> 0x0002 is given twice, in line 1 already; nothing was applied"
            ),
        ),
        (
            &["load", &taken],
            1,
            &format!(
                "{taken}:3: route 0x0011 -> 0x0022 exists already (ports 1,2); change it with --replace; nothing was applied"
            ),
        ),
        (&["shwo"], 2, "unrecognized subcommand 'shwo'"),
        (&["add", "0x11"], 2, "the following required arguments were not provided"),
    ];
    for (arguments, code, expected) in table {
        let line = failed(&routes(&bed, arguments), code);
        let matches =
            if expected.ends_with(": ") || code == 2 { line.starts_with(expected) } else { line == expected };
        assert!(matches, "{arguments:?}: {line}");
        assert_eq!((shown(&bed)["routes"].clone(), published(&bed)), before, "{arguments:?}");
    }
}

#[test]
fn wrong_requests_that_madctl_would_not_send_are_refused_too() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    let table = [
        (r#"{"v":1,"cmd":"routes.add"}"#, "arguments of routes.add"),
        (r#"{"v":1,"cmd":"routes.add","args":{"route":{"slid":1,"dlid":2,"path":[0]}}}"#, "port 0 at hop 1"),
        (
            r#"{"v":1,"cmd":"routes.add","args":{"route":{"slid":1,"dlid":2,"path":[1],"x":1}}}"#,
            "unknown field",
        ),
        (r#"{"v":1,"cmd":"routes.load","args":{"lines":[[7,"0 2 1"]]}}"#, "line 7: LID 0x0000"),
        (
            r#"{"v":1,"cmd":"routes.load","args":{"lines":[[8,"1 2 via a"]]}}"#,
            "line 8: the path has to be given by ports",
        ),
        (r#"{"v":1,"cmd":"routes.sync","args":{"x":1}}"#, "routes.sync takes no arguments"),
        (r#"{"v":1,"cmd":"routes.ad","args":{}}"#, "did you mean routes.add?"),
    ];
    for (line, expected) in table {
        let reply = bed.ask(line);
        let text = reply["error"].as_str().unwrap();
        assert!(text.contains(expected), "{line}: {text}");
    }
    assert!(published(&bed).is_empty());
}

#[test]
fn routes_are_shown_as_stored_with_their_use() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, done);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let _follower = Follower::start(&bed, &plane.status);
    assert_eq!(
        ok(&routes(&bed, &["add", "0x0011", "0x0022", "1,2,3,4", "-i", "mlx5_0"])),
        "route 0x0011 -> 0x0022 added (ports 1,2,3,4); 1 of 1024\n"
    );
    let options = ["--pkey", "0x8001", "--priority", "3", "--on-broken", "drop", "--sync"];
    let added = ok(&routes(&bed, &[&["add", "5", "6", "7"], &options[..]].concat()));
    assert!(
        added.starts_with("route 0x0005 -> 0x0006 added (ports 7); 2 of 1024, generation ")
            && added.contains(" is with 1 worker after "),
        "{added}"
    );
    let replaced = ok(&routes(&bed, &["add", "0x0011", "0x0022", "9,8", "--replace", "--sync"]));
    assert!(replaced.starts_with("route 0x0011 -> 0x0022 replaced (ports 9,8); 2 of 1024"), "{replaced}");
    let uses =
        RouteCounters::create(&bed.table_file().with_extension("routes"), 1024, Incarnation::default())
            .unwrap();
    uses.add(0, 256, 1);
    uses.add(0, 256, 1);
    let worker = plane.status.worker(0);
    worker.counters[6].store(41, Relaxed);
    worker.counters[7].store(2, Relaxed);
    worker.table_retries.store(3, Relaxed);
    let text = ok(&routes(&bed, &["show"]));
    let stats = shown(&bed);
    let latency = &stats["control"]["hw_sync_latency"];
    assert!(latency["count"].as_u64().unwrap() >= 2 && latency["max_ns"].as_u64().unwrap() > 0, "{stats}");
    assert!(stats["routes"][1]["last_use_age_ns"].as_u64().unwrap() > 0, "{stats}");
    // what differs from run to run: process ids, generations, ages, latencies
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("plane bed: madplaned fake, pid "), "{text}");
    assert!(lines[1].starts_with("table     2 of 1024, generation "), "{text}");
    assert!(
        lines[2].starts_with("madctld   pid ")
            && lines[2]
                .ends_with(", version 3, 0 changes not published; publishes after 100 ms or 64 changes"),
        "{text}"
    );
    assert!(
        lines[3].starts_with("sync      hw_sync_latency p50 ") && lines[3].ends_with("; 0 failed"),
        "{text}"
    );
    assert!(
        lines[4].starts_with(
            "workers   dr_cache_hit 41, dr_cache_miss 2, retry_count 3, refused 0; at generation "
        ),
        "{text}"
    );
    let last_use = lines[7].find(" ago").map_or(0, |end| lines[7][..end].rfind("   ").unwrap());
    assert!(last_use > 0, "{text}");
    let row = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let golden: Vec<String> = include_str!("golden/routes_show.txt").lines().map(row).collect();
    let mut found: Vec<String> = lines[5..].iter().map(|line| row(line)).collect();
    let age = found[2].find("512 ").unwrap() + 4;
    let ago = found[2].find(" ago").unwrap();
    found[2].replace_range(age..ago, "AGE");
    assert_eq!(found, golden);
    assert_eq!(ok(&routes(&bed, &["flush"])), "2 routes removed; 0 of 1024\n");
    ok(&routes(&bed, &["sync"]));
    assert!(ok(&routes(&bed, &["show"])).ends_with("no routes\n"));
}

#[test]
fn changes_are_published_by_themselves_and_in_the_end() {
    let bed = Bed::new();
    let mut daemon = bed.madctld();
    ok(&routes(&bed, &["add", "1", "2", "3"]));
    eventually("the batch is published", || published(&bed).len() == 1);
    ok(&routes(&bed, &["del", "1", "2"]));
    ok(&routes(&bed, &["add", "1", "3", "4"]));
    assert_eq!(daemon.end(), Some(0));
    assert_eq!(published(&bed), [(1, 3, vec![4])], "an orderly end publishes what waits");
}

#[test]
fn whoever_looks_after_a_change_sees_it() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    for dlid in ["0x0002", "0x0003", "0x0004"] {
        ok(&routes(&bed, &["add", "1", dlid, "1,2"]));
        let routes = &shown(&bed)["routes"];
        assert!(routes.as_array().unwrap().iter().any(|route| route["dlid"] == dlid), "{routes}");
        ok(&bed.madctl(&["tenants", "add", &format!("blue{dlid}")]));
        ok(&bed.madctl(&["tenants", "show", &format!("blue{dlid}")]));
    }
}

#[test]
fn a_sync_is_answered_when_the_worker_has_it_and_holds_nobody_up() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, done);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let mut admin = Admin::new(&bed);
    admin.send(
        r#"{"v":1,"id":1,"cmd":"routes.add","args":{"route":{"slid":1,"dlid":2,"path":[1]},"sync":true}}"#,
    );
    eventually("it is published", || published(&bed).len() == 1);
    let stats = bed.ask(r#"{"v":1,"cmd":"routes.stats"}"#);
    assert_eq!(
        (&stats["result"]["publications"], &stats["result"]["hw_sync_latency"]["count"]),
        (&1.into(), &0.into())
    );
    let _follower = Follower::start(&bed, &plane.status);
    let reply = admin.reply().unwrap();
    assert_eq!(
        (&reply["id"], &reply["result"]["synced"], &reply["result"]["workers"]),
        (&1.into(), &true.into(), &1.into())
    );
    assert!(reply["result"]["hw_sync_latency_ns"].as_u64().unwrap() > 0, "{reply}");
}

#[test]
fn a_worker_that_does_not_follow_is_named_and_logged() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, done);
    let daemon = bed.madctld_that_logs(&[]);
    bed.wait_connected();
    let line = failed(&routes(&bed, &["add", "1", "2", "3", "--sync"]), 1);
    let generation = bed.table().refresh(&mut |_, _| {}, &mut |_, _| {}).generation;
    assert_eq!(
        line,
        format!(
            "Failed to sync DR table (err=-110): worker 0 is at generation 0, not {generation}, after 1000 ms"
        )
    );
    assert_eq!(published(&bed).len(), 1, "it stays published");
    assert_eq!(failed(&routes(&bed, &["sync"]), 1), line, "nothing new, and still not there");
    {
        let _follower = Follower::start(&bed, &plane.status);
        ok(&routes(&bed, &["add", "1", "3", "3", "--sync"]));
    }
    assert_eq!(shown(&bed)["control"]["failures"], 2);
    let log = log_of(daemon);
    assert_eq!(log.matches("ERROR").count(), 2, "{log}");
    assert!(log.contains("Failed to sync DR table (err=-110)"), "{log}");
}

#[test]
fn a_full_table_refuses_and_loses_nothing() {
    let bed = Bed::new();
    let daemon = bed.madctld_that_logs(&["--dr-table-max", "2"]);
    ok(&routes(&bed, &["add", "1", "2", "3"]));
    let file = bed.write("two.routes", "1 3 1\n1 4 1\n");
    let expected =
        format!("{file}:2: DR table full (max=2), refusing route 0x0001 -> 0x0004; nothing was applied");
    assert_eq!(failed(&routes(&bed, &["load", &file]), 1), expected);
    ok(&routes(&bed, &["add", "1", "3", "3", "--sync"]));
    let expected = "DR table full (max=2), refusing route 0x0001 -> 0x0005";
    for _ in 0..3 {
        assert_eq!(failed(&routes(&bed, &["add", "1", "5", "3", "--sync"]), 1), expected);
    }
    ok(&routes(&bed, &["add", "1", "3", "4", "--replace", "--sync"]));
    assert_eq!(published(&bed), [(1, 2, vec![3]), (1, 3, vec![4])]);
    let log = log_of(daemon);
    assert!(log.contains("DR table full (max=2), refusing route"), "{log}");
    let mut wrong = bed.program(env!("CARGO_BIN_EXE_madctld"));
    let output = wrong.args(["--name", NAME, "--dr-table-max", "65537"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    // a table that is too small for what is in it is not made
    let output = wrong.args(["--name", NAME, "--dr-table-max", "1"]).output().unwrap();
    assert_ne!(output.status.code(), Some(0));
    assert_eq!(published(&bed).len(), 2);
}

#[test]
fn a_large_file_is_loaded_as_a_whole_and_a_client_that_dies_half_way_leaves_nothing() {
    let bed = Bed::new();
    let _daemon = bed.madctld_that_logs(&["--dr-table-max", "5000"]);
    let line = |number: u32| format!("{} {} {}\n", 1 + number / 100, 1000 + number % 100, 1 + number % 255);
    let text: String = (0..5000).map(line).collect();
    let file = bed.write("large.routes", &text);
    let mut half = Admin::new(&bed);
    let part = r#"{"v":1,"cmd":"routes.load","args":{"lines":[[1,"1 2 1"]],"more":true}}"#;
    assert_eq!(half.ask(part)["ok"], true);
    drop(half);
    let loaded = ok(&routes(&bed, &["load", &file, "--sync"]));
    assert!(loaded.contains(": 5000 routes loaded; 5000 of 5000, generation "), "{loaded}");
    assert_eq!(published(&bed).len(), 5000);
    let again = failed(&routes(&bed, &["load", &file]), 1);
    assert!(again.starts_with(&format!("{file}:1: route 0x0001 -> 0x03e8 exists already")), "{again}");
    let over = ok(&routes(&bed, &["load", &file, "--replace"]));
    assert!(over.contains("5000 routes loaded, 5000 of them in place of others"), "{over}");
}

#[test]
fn routes_survive_the_death_of_both_daemons() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, done);
    let mut daemon = bed.madctld_that_logs(&["--dr-table-max", "77"]);
    bed.wait_connected();
    {
        let _follower = Follower::start(&bed, &plane.status);
        ok(&routes(&bed, &["add", "1", "2", "3", "--priority", "2"]));
        ok(&routes(&bed, &["add", "1", "3", "4,5", "--on-broken", "drop", "--sync"]));
    }
    let before = shown(&bed)["routes"].clone();
    daemon.kill();
    drop(plane);
    let dead = shown(&bed);
    assert_eq!((&dead["routes"], &dead["control"]), (&before, &serde_json::Value::Null), "{dead}");
    assert!(
        failed(&routes(&bed, &["add", "1", "4", "3"]), 1).starts_with("madctld of plane bed is not running")
    );
    let _again = bed.madctld();
    let after = shown(&bed);
    assert_eq!((&after["routes"], &after["capacity"]), (&before, &77.into()), "{after}");
    assert_eq!(after["control"]["routes"], 2);
    // without a plane there is nobody to wait for
    let added = ok(&routes(&bed, &["add", "1", "4", "3", "--sync"]));
    assert!(added.contains("; 3 of 77, generation ") && added.contains("; no plane runs"), "{added}");
    let ids: Vec<_> =
        shown(&bed)["routes"].as_array().unwrap().iter().map(|r| r["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3], "no id is given twice");
    let second = bed.program(env!("CARGO_BIN_EXE_madctld")).args(["--name", NAME]).output().unwrap();
    let text = String::from_utf8(second.stderr).unwrap();
    assert!(text.contains("is already running (pid "), "{text}");
}

#[test]
fn a_table_of_another_layout_is_refused_naming_both_versions() {
    let bed = Bed::new();
    let mut daemon = bed.madctld();
    ok(&routes(&bed, &["add", "1", "2", "3", "--sync"]));
    daemon.kill();
    let mut bytes = std::fs::read(bed.table_file()).unwrap();
    bytes[8..12].copy_from_slice(&99u32.to_ne_bytes());
    std::fs::write(bed.table_file(), &bytes).unwrap();
    let ours = madplane_shm::LAYOUT_VERSION;
    let expected = format!("layout version 99 found, this program speaks version {ours}");
    assert!(failed(&routes(&bed, &["show"]), 1).ends_with(&expected));
    let output = bed.program(env!("CARGO_BIN_EXE_madctld")).args(["--name", NAME]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.trim_end().ends_with(&expected) && text.lines().count() == 1, "{text}");
    assert_eq!(std::fs::read(bed.table_file()).unwrap(), bytes);
}

/// A fabric file whose ports have LIDs: 1, 2, 3 for the switches, 11, 12, 13 for the hosts.
fn recorded_fabric(bed: &Bed) -> String {
    let text = ok(&bed.madctl(&["fabric", "generate", "ring", "switches=3", "hosts=1"]));
    let mut switches = 0;
    let mut hosts = 10;
    let line = |line: &str| {
        if line.contains("base port 0 lid 0") {
            switches += 1;
            return line.replace("lid 0", &format!("lid {switches}"));
        }
        if line.starts_with("[1](") {
            hosts += 1;
            return line.replacen("lid 0", &format!("lid {hosts}"), 1);
        }
        line.to_owned()
    };
    let text = text.lines().map(line).collect::<Vec<_>>().join("\n");
    bed.write("recorded.net", &format!("{text}\n"))
}

#[test]
fn paths_are_found_traced_and_checked_with_the_lids_of_the_file_when_all_are_dead() {
    let bed = Bed::new();
    let file = recorded_fabric(&bed);
    let plane = FakePlane::start(&bed, done);
    plane.status.plane().fabric.store(&file);
    drop(plane);
    let mut daemon = bed.madctld();
    let add = |arguments: &[&str]| ok(&routes(&bed, &[&["add"], arguments].concat()));
    assert!(add(&["11", "12", "shortest", "--sync"]).contains("(ports 1,1,3)"));
    assert!(add(&["11", "13", "via", "ring-01", "--sync"]).contains("(ports 1,1,1,3)"));
    assert!(add(&["12", "11", "shortest", "avoid", "ring-02", "--sync"]).contains("(ports 1,2,3)"));
    let list = bed.write("via.routes", "12 13 via ring-00,ring-02 # around\n");
    assert!(ok(&routes(&bed, &["load", &list, "--sync"])).contains("1 route loaded"));
    assert!(
        failed(&routes(&bed, &["add", "13", "11", "shortest", "avoid", "ring-0"]), 1)
            .starts_with("no node is called \"ring-0\", did you mean")
    );
    let unknown = failed(&routes(&bed, &["add", "13", "99", "shortest"]), 1);
    assert_eq!(
        unknown,
        format!(
            "no port of the fabric has LID 0x0063; the plane is not running and {file} does not record it"
        )
    );
    daemon.kill();
    let traced = ok(&routes(&bed, &["trace", "11", "13"]));
    assert_eq!(traced, include_str!("golden/routes_trace.txt"));
    assert_eq!(
        ok(&routes(&bed, &["check"])),
        "4 routes, 0 broken; the plane is not running, port states are not known\n"
    );
    let _daemon = bed.madctld();
    add(&["13", "12", "1,9", "--sync"]);
    add(&["13", "11", "1,3,1", "--on-broken", "drop", "--sync"]);
    add(&["13", "77", "1", "--sync"]);
    let checked = routes(&bed, &["check"]);
    assert_eq!(failed(&checked, 1), "3 of 7 routes are broken");
    let text = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(text.replace(&file, "FILE"), include_str!("golden/routes_check.txt"));
    let broken = routes(&bed, &["trace", "13", "12"]);
    assert_eq!(
        failed(&broken, 1),
        "route 0x000d -> 0x000c: hop 2: \"ring-02\" has no port 9, it has ports 1 to 3"
    );
    assert!(
        String::from_utf8(broken.stdout)
            .unwrap()
            .ends_with("the path is broken: MADs go by the forwarding tables\n")
    );
}

/// Kills madctld at random moments of updates; `MADPLANE_KILLS` says how often.
#[test]
fn a_madctld_killed_at_any_moment_loses_nothing_that_it_acknowledged() {
    let kills: u32 = std::env::var("MADPLANE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let mut seed = std::process::id();
    println!("seed {seed}");
    let bed = Bed::new();
    let mut acknowledged = std::collections::BTreeMap::new();
    let mut next = 1u16;
    for _ in 0..kills {
        let mut daemon = bed.madctld();
        let mut kept: std::collections::BTreeMap<u16, Vec<u8>> =
            published(&bed).into_iter().map(|(_, dlid, path)| (dlid, path)).collect();
        // the one that was not acknowledged may be there or not, but not half
        kept.retain(|dlid, _| acknowledged.contains_key(dlid));
        assert_eq!(kept, acknowledged);
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let pause = std::time::Duration::from_micros(u64::from(seed >> 8) % 20_000);
        let pid = rustix::process::Pid::from_child(&daemon.child);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(pause);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        let mut stream = bed.connect().unwrap();
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        loop {
            let (dlid, port) = (2 + next % 500, u8::try_from(1 + next % 250).unwrap());
            next = next.wrapping_add(1);
            let request = format!(
                "{{\"v\":1,\"cmd\":\"routes.add\",\"args\":{{\"route\":{{\"slid\":1,\"dlid\":{dlid},\"path\":[{port}]}},\"replace\":true,\"sync\":true}}}}\n"
            );
            acknowledged.remove(&dlid);
            let mut line = String::new();
            let sent = std::io::Write::write_all(&mut stream, request.as_bytes());
            if sent.is_err() || std::io::BufRead::read_line(&mut reader, &mut line).unwrap_or(0) == 0 {
                break;
            }
            assert!(line.contains("\"synced\":true"), "{line}");
            acknowledged.insert(dlid, vec![port]);
        }
        killer.join().unwrap();
        daemon.child.wait().unwrap();
    }
    assert!(acknowledged.len() > 10, "too little happened: {}", acknowledged.len());
}

#[test]
fn a_plane_that_dies_leaves_no_sync_waiting() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, done);
    let _daemon = bed.madctld();
    bed.wait_connected();
    let mut admin = Admin::new(&bed);
    admin.send(r#"{"v":1,"cmd":"routes.add","args":{"route":{"slid":1,"dlid":2,"path":[1]},"sync":true}}"#);
    eventually("it is published", || published(&bed).len() == 1);
    drop(plane);
    let reply = admin.reply().unwrap();
    // either the death was noticed first, or the second was over first
    let gone = reply["ok"] == true && reply["result"]["workers"] == 0;
    let late =
        reply["error"].as_str().is_some_and(|text| text.starts_with("Failed to sync DR table (err=-110)"));
    assert!(gone || late, "{reply}");
    assert_eq!(bed.ask(r#"{"v":1,"cmd":"routes.sync"}"#)["result"]["workers"], 0);
}

#[test]
fn only_root_and_the_daemons_user_may_change_routes_and_anyone_may_look() {
    let Some(bed) = Bed::for_anyone() else { return };
    let _daemon = bed.madctld();
    ok(&routes(&bed, &["add", "1", "2", "3", "--sync"]));
    let as_nobody = |arguments: &[&str]| bed.madctl_as_nobody(&[&["routes"], arguments].concat());
    for arguments in [&["add", "1", "3", "3"][..], &["del", "1", "2"], &["flush"], &["sync"]] {
        let line = failed(&as_nobody(arguments), 1);
        assert_eq!(line, "only root and the user who runs madctld may change the plane");
    }
    assert!(ok(&as_nobody(&["show"])).contains("1 of 1024"));
    assert_eq!(published(&bed).len(), 1);
}
