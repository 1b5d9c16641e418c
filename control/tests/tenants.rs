//! madctl tenants from outside: wrong input, files, partitions.conf, use by sessions and routes, deaths of daemons.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::process::Output;

use madplane_shm::sync::Ordering::{Relaxed, Release};
use madplane_shm::table::tenant::{service_class, tenant_right};
use support::{Bed, FakePlane, NAME, done, eventually, failed, ok};

fn tenants(bed: &Bed, arguments: &[&str]) -> Output {
    bed.madctl(&[&["tenants"], arguments].concat())
}

fn routes(bed: &Bed, arguments: &[&str]) -> Output {
    bed.madctl(&[&["routes"], arguments].concat())
}

fn shown(bed: &Bed) -> serde_json::Value {
    serde_json::from_str(&ok(&tenants(bed, &["show", "--format", "json"]))).unwrap()
}

/// Names of the published tenants, by place.
fn published(bed: &Bed) -> Vec<(u32, String)> {
    let tenants = bed.table().tenants().unwrap();
    tenants.into_iter().map(|(place, entry)| (place, entry.name().to_owned())).collect()
}

#[test]
fn wrong_input_is_one_line_and_leaves_the_table_as_it_was() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    ok(&tenants(&bed, &["add", "red", "uid=7", "--sync"]));
    ok(&routes(&bed, &["add", "1", "2", "3", "--tenant", "red", "--sync"]));
    let before = (shown(&bed)["tenants"].clone(), published(&bed));
    let file = bed.write("bad.tenants", "# good\nblue pkey=0x8001\n\ngreen pkey=0\n");
    let twice = bed.write("twice.tenants", "blue\ngreen\nblue\n");
    let taken = bed.write("taken.tenants", "blue\n# x\nred\n");
    let parts = bed.write("partitions.conf", "a=0x10: ALL;\nb=0x20: host-1;\n");
    let good = bed.write("good.conf", "io=0x10: ALL;\n");
    let unknown = bed.write("unknown.tenants", "blue partition=oi\n");
    let of_nobody = bed.write("nobody.routes", "1 3 3\n1 4 3 tenant=rde\n");
    let applied = "nothing was applied";
    let table: [(&[&str], i32, &str); 18] = [
        (&["tenants", "add", "a/b"], 2, "\"a/b\" is no name for a tenant: 1 to 31 of the characters"),
        (
            &["tenants", "add", "blue", "pkey=0x8000"],
            2,
            "P_Key 0x8000 is none: its low 15 bits have to be from 1",
        ),
        (&["tenants", "add", "blue", "pky=1"], 2, "unknown option \"pky\"; did you mean pkey?"),
        (&["tenants", "add", "blue", "uid=no such user"], 2, "there is no user \"no such user\""),
        (&["tenants", "add", "blue", "nodes=leaf"], 2, "which fabric plane bed has is not known"),
        (&["tenants", "add", "blue", "partition=io"], 2, "which P_Key partition \"io\" has is in OpenSM's"),
        (&["tenants", "add", "red"], 1, "tenant red exists already; change it with --replace"),
        (&["tenants", "del", "rde"], 1, "there is no tenant \"rde\"; did you mean red?"),
        (
            &["tenants", "del", "red"],
            1,
            "tenant red has 0 sessions and 1 route; take it out with --force, and they go",
        ),
        (
            &["tenants", "show", "rde"],
            1,
            "there is no tenant \"rde\" in the published table; did you mean red?",
        ),
        (
            &["tenants", "load", &file],
            1,
            &format!("{file}:4: P_Key 0x0000 is none: its low 15 bits have to be"),
        ),
        (
            &["tenants", "load", &twice],
            1,
            &format!("{twice}:3: tenant blue is given twice, in line 1 already; {applied}"),
        ),
        (
            &["tenants", "load", &taken],
            1,
            &format!("{taken}:3: tenant red exists already; change it with --replace; {applied}"),
        ),
        (
            &["tenants", "load", "--partitions", &parts],
            1,
            &format!("{parts}:2: \"host-1\" is no member: write a port GUID"),
        ),
        (
            &["tenants", "load", &unknown, "--partitions", &good],
            1,
            &format!("{unknown}:1: there is no partition \"oi\"; did you mean io?"),
        ),
        (&["tenants", "load", "no/such/file"], 1, "cannot read no/such/file: No such file or directory"),
        (
            &["routes", "add", "1", "3", "3", "--tenant", "rde"],
            1,
            "there is no tenant \"rde\"; did you mean red?",
        ),
        (
            &["routes", "load", &of_nobody],
            1,
            &format!("{of_nobody}:2: there is no tenant \"rde\"; did you mean red?; {applied}"),
        ),
    ];
    for (arguments, code, expected) in table {
        let line = failed(&bed.madctl(arguments), code);
        assert!(line.starts_with(expected), "{arguments:?}: {line}");
        assert_eq!((shown(&bed)["tenants"].clone(), published(&bed)), before, "{arguments:?}");
    }
    let none = failed(&tenants(&bed, &["load"]), 2);
    assert!(none.contains("required arguments were not provided"), "{none}");
}

#[test]
fn a_tenant_is_published_as_written_and_shown_with_its_use() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, done);
    plane.status.plane().workers.store(0, Relaxed);
    let _daemon = bed.madctld();
    bed.wait_connected();
    assert_eq!(
        ok(&tenants(&bed, &["show"])).lines().last(),
        Some("no tenants: every user may attach and send anything")
    );
    let options = [
        "pkey=0x8001,0x0002",
        "uid=root,1000",
        "gid=5",
        "classes=perf,sa",
        "smp=get,set",
        "nodes=0x10",
        "prefix=1.2.3",
        "rate=10000",
        "priority=reserved",
    ];
    let added = ok(&tenants(&bed, &[&["add", "red"], &options[..], &["--sync"]].concat()));
    assert!(added.starts_with("tenant red added; 1 of 64, generation "), "{added}");
    ok(&tenants(&bed, &["add", "blue", "--sync"]));
    let [(0, red), (1, blue)] = &bed.table().tenants().unwrap()[..] else { panic!("not two tenants") };
    assert_eq!(
        (red.name(), red.p_keys(), red.uids(), red.gids()),
        ("red", &[0x8001, 2][..], &[0, 1000][..], &[5][..])
    );
    assert_eq!(
        (red.rights, red.class),
        (tenant_right::SMP_GET | tenant_right::SMP_SET, service_class::RESERVED)
    );
    let classes: Vec<u8> = (0..=255).filter(|class| red.allows_class(*class)).collect();
    assert_eq!(
        (classes, red.nodes(), red.prefixes()[0].ports()),
        (vec![1, 3, 4, 0x81], &[0x10][..], &[1, 2, 3][..])
    );
    assert_eq!((red.rate, red.burst, red.id, blue.id), (10_000, 64, 1, 2));
    assert_eq!((blue.p_keys(), blue.rights, blue.class), (&[0x7fff][..], 0, service_class::BULK));
    // two sessions of the first
    for slot in [3, 9] {
        let record = plane.status.session(slot);
        record.tenant.store(1, Relaxed);
        record.id.store(u32::try_from(slot).unwrap() + 1, Release);
    }
    ok(&routes(&bed, &["reserve", "1", "2", "3", "--tenant", "red", "--sync"]));
    let text = ok(&tenants(&bed, &["show"]));
    let rows: Vec<&str> = text.lines().skip(1).collect();
    let golden: Vec<&str> = include_str!("golden/tenants_show.txt").lines().collect();
    assert_eq!(rows[1..], golden[..], "{text}");
    assert!(rows[0].starts_with("table     2 of 64, generation "), "{text}");
    let one = ok(&tenants(&bed, &["show", "red"]));
    assert_eq!(
        one.lines().skip(1).collect::<Vec<_>>().join("\n") + "\n",
        include_str!("golden/tenants_show_one.txt")
    );
    let told = bed.ask(r#"{"v":1,"cmd":"tenants.show"}"#);
    let told = &told["result"]["tenants"];
    assert_eq!(
        (&told[0]["name"], &told[0]["sessions"], &told[0]["routes"], &told[1]["number"]),
        (&"red".into(), &2.into(), &1.into(), &2.into())
    );
    assert_eq!(told, &shown(&bed)["tenants"], "the software table and the segment say the same");
    let kept = failed(&tenants(&bed, &["del", "red"]), 1);
    assert_eq!(kept, "tenant red has 2 sessions and 1 route; take it out with --force, and they go too");
    let replaced = ok(&tenants(&bed, &["add", "red", "pkey=0x8005", "--replace", "--sync"]));
    assert!(replaced.starts_with("tenant red replaced; 2 of 64"), "{replaced}");
    let [(0, red), _] = &bed.table().tenants().unwrap()[..] else { panic!("it has moved") };
    assert_eq!((red.p_keys(), red.id), (&[0x8005][..], 1), "still the same tenant to its sessions");
    let removed = ok(&tenants(&bed, &["del", "red", "--force", "--sync"]));
    assert!(
        removed.starts_with("tenant red removed with 1 route; 2 sessions may not send any more; 1 of 64"),
        "{removed}"
    );
    assert_eq!(published(&bed), [(1, "blue".to_owned())]);
    assert!(ok(&routes(&bed, &["show"])).ends_with("no routes\n"), "its routes went with it");
    ok(&tenants(&bed, &["add", "green", "--sync"]));
    assert_eq!(published(&bed)[1], (2, "green".to_owned()), "a freed number is not given again at once");
}

#[test]
fn routes_of_tenants_and_reserved_ones_say_so_everywhere() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    ok(&tenants(&bed, &["add", "red", "priority=reserved", "--sync"]));
    let reserved = ok(&routes(&bed, &["reserve", "1", "2", "3,4", "--tenant", "red", "--sync"]));
    assert!(reserved.starts_with("route 0x0001 -> 0x0002 reserved (ports 3,4); 1 of 1024"), "{reserved}");
    let file = bed.write("some.routes", "5 6 7 tenant=red\n7 8 9 priority=1\n");
    ok(&routes(&bed, &["load", &file, "--sync"]));
    let mut found = Vec::new();
    let done = bed.table().refresh(
        &mut |_, entry| found.extend(entry.map(|entry| (entry.slid, entry.tenant, entry.priority))),
        &mut |_, _| {},
    );
    assert!(done.complete);
    found.sort_unstable();
    assert_eq!(found, [(1, 1, 1), (5, 1, 0), (7, 0, 1)]);
    let text = ok(&routes(&bed, &["show"]));
    let rows: Vec<Vec<&str>> =
        text.lines().rev().take(3).map(|line| line.split_whitespace().collect()).collect();
    let columns: Vec<(&str, &str)> = rows.iter().rev().map(|row| (row[3], row[4])).collect();
    assert_eq!(columns, [("red", "reserved"), ("red", "bulk"), ("-", "reserved")], "{text}");
}

#[test]
fn tenants_and_their_routes_survive_the_death_of_both_daemons() {
    let bed = Bed::new();
    let mut daemon = bed.madctld();
    let file = bed.write("two.tenants", "red pkey=0x8001 uid=1000\nblue pkey=0x8002 rate=5\n");
    let loaded = ok(&tenants(&bed, &["load", &file, "--sync"]));
    assert!(loaded.starts_with(&format!("{file}: 2 tenants loaded; 2 of 64")), "{loaded}");
    ok(&routes(&bed, &["add", "1", "2", "3", "--tenant", "blue", "--sync"]));
    let before = shown(&bed)["tenants"].clone();
    daemon.kill();
    assert_eq!(shown(&bed)["tenants"], before, "seen without any daemon");
    let away = failed(&tenants(&bed, &["add", "x"]), 1);
    assert!(away.starts_with("madctld of plane bed is not running"), "{away}");
    let _again = bed.madctld();
    assert_eq!(shown(&bed)["tenants"], before);
    assert_eq!(bed.ask(r#"{"v":1,"cmd":"tenants.show"}"#)["result"]["tenants"], before);
    let kept = failed(&tenants(&bed, &["del", "blue"]), 1);
    assert!(kept.starts_with("tenant blue has 0 sessions and 1 route"), "{kept}");
    ok(&tenants(&bed, &["del", "red", "--sync"]));
    assert_eq!(published(&bed), [(1, "blue".to_owned())]);
    ok(&tenants(&bed, &["load", &file, "--replace", "--sync"]));
    let latency = ok(&bed.madctl(&["latency", "show"]));
    assert!(latency.contains("hw_sync_latency") && latency.contains("publications "), "{latency}");
}

#[test]
fn partitions_become_tenants_and_name_their_p_keys() {
    let bed = Bed::new();
    let _daemon = bed.madctld();
    let conf = bed.write("partitions.conf",
        "Default=0x7fff,ipoib : ALL, SELF=full ;\nstorage=0x10, defmember=full : 0x1, 0x2=limited;\ncompute : ALL_CAS;\n",
    );
    let loaded = ok(&tenants(&bed, &["load", "--partitions", &conf, "--sync"]));
    assert!(loaded.starts_with(&format!("{conf}: 3 tenants loaded; 3 of 64")), "{loaded}");
    let p_keys = |bed: &Bed| -> Vec<(String, Vec<u16>)> {
        let tenants = bed.table().tenants().unwrap();
        tenants.iter().map(|(_, entry)| (entry.name().to_owned(), entry.p_keys().to_vec())).collect()
    };
    let expected = [("Default", 0xffff), ("storage", 0x8010), ("compute", 0x8001)];
    assert_eq!(p_keys(&bed), expected.map(|(name, key)| (name.to_owned(), vec![key])));
    let file = bed.write("some.tenants", "red partition=storage,compute:limited,Default:limited uid=5\n");
    ok(&tenants(&bed, &["load", &file, "--partitions", &conf, "--sync"]));
    ok(&tenants(&bed, &["add", "blue", "partition=storage", "--partitions", &conf, "--sync"]));
    let later = [("red", vec![0x8010, 0x0001, 0x7fff]), ("blue", vec![0x8010])];
    assert_eq!(p_keys(&bed)[3..], later.map(|(name, keys)| (name.to_owned(), keys)));
    let odd = bed.write("odd.conf", "x=5,owner: ALL=owner;\n");
    let output = tenants(&bed, &["load", "--partitions", &odd, "--replace", "--sync"]);
    let remarks = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), remarks.lines().count()), (Some(0), 2), "{remarks}");
    assert!(remarks.starts_with(&format!("madctl: {odd}:1: unknown flag \"owner\"")), "{remarks}");
}

#[test]
fn a_full_table_of_tenants_refuses_is_logged_and_shown_with_both_daemons_dead() {
    let bed = Bed::new();
    let mut daemon = bed.madctld_with(&["--tenants-max", "2", "--dr-table-max", "1"]);
    let file = bed.write("three.tenants", "a\nb\nc\n");
    let full = failed(&tenants(&bed, &["load", &file]), 1);
    assert_eq!(full, format!("{file}:3: tenant table full (max=2), refusing tenant c; nothing was applied"));
    ok(&routes(&bed, &["add", "1", "2", "3", "--sync"]));
    for _ in 0..3 {
        failed(&routes(&bed, &["add", "1", "3", "3", "--sync"]), 1);
    }
    daemon.kill();
    let errors: serde_json::Value =
        serde_json::from_str(&ok(&bed.madctl(&["errors", "show", "--format", "json"]))).unwrap();
    let of =
        |index: usize| (errors["errors"][index]["text"].clone(), errors["errors"][index]["count"].clone());
    assert_eq!(of(0), ("tenant table full (max=2), refusing tenant".into(), 1.into()));
    assert_eq!(of(1), ("DR table full (max=1), refusing route".into(), 3.into()));
    assert_eq!(errors["errors"][0]["source"], "madctld");
    assert!(ok(&bed.madctl(&["errors", "show"])).contains("madctld  DR table full (max=1), refusing route"));
}

#[test]
fn a_tenant_that_is_none_stops_a_program_before_it_runs() {
    let bed = Bed::new();
    let plane = FakePlane::start(&bed, done);
    plane.status.plane().workers.store(0, Relaxed);
    let _daemon = bed.madctld();
    ok(&tenants(&bed, &["add", "red", "--sync"]));
    let run = |arguments: &[&str]| bed.madctl(&[&["run"], arguments, &["--", "true"]].concat());
    let line = failed(&run(&["--tenant", "rde"]), 1);
    assert_eq!(line, "there is no tenant \"rde\" on plane bed; did you mean red?");
    assert_eq!(failed(&run(&["--tenant", "a b"]), 2), "\"a b\" is no name of a tenant");
    assert_eq!(
        failed(&run(&["--path", "1,0"]), 2),
        "--path: port 0 at hop 2 is out of range, ports are 1 to 255"
    );
    assert_eq!(failed(&run(&["--path", "shortest"]), 2), "--path: write ports, such as 1,2,3");
}

#[test]
fn a_session_is_bound_by_its_number_and_a_wrong_path_goes_nowhere() {
    let bed = Bed::new();
    let _plane = FakePlane::start(&bed, |command| {
        let mut event = done(command)?;
        event.set_text(&format!("{} {} {:?} {}", command.kind, command.value, command.path(), command.flags));
        Some(event)
    });
    let _daemon = bed.madctld();
    bed.wait_connected();
    let bind = |arguments: &[&str]| bed.madctl(&[&["sessions", "bind"], arguments].concat());
    assert_eq!(ok(&bind(&["7", "1,2,3"])), "session 7 is bound to ports 1,2,3\n");
    assert_eq!(ok(&bind(&["7", "none"])), "session 7 is bound to no path\n");
    let told =
        bed.ask(r#"{"v":1,"cmd":"sessions.bind","args":{"session":7,"path":[1,2],"on_broken":"drop"}}"#);
    assert_eq!(told["result"]["text"], "4 6 Some([1, 2]) 4", "{told}");
    assert_eq!(failed(&bind(&["7", "1,0"]), 2), "port 0 at hop 2 is out of range, ports are 1 to 255");
    assert!(failed(&bind(&["7", "shortest"]), 2).starts_with("a session is bound to PORTS"));
    assert!(failed(&bind(&["7", "via", "x"]), 1).starts_with("there is no session 7"));
    for (args, expected) in [
        (r#"{"session":0,"path":[1]}"#, "numbered from 1"),
        (r#"{"session":1,"path":[256]}"#, "port 256 at hop 1"),
        (r#"{"path":[1]}"#, "missing field `session`"),
    ] {
        let reply = bed.ask(&format!(r#"{{"v":1,"cmd":"sessions.bind","args":{args}}}"#));
        assert!(reply["error"].as_str().unwrap().contains(expected), "{reply}");
    }
}

#[test]
fn more_tenants_than_fit_into_a_line_are_all_told() {
    let bed = Bed::new();
    let _daemon = bed.madctld_with(&["--tenants-max", "1024"]);
    let keys: Vec<String> = (1..=32).map(|key| format!("{:#06x}", 0x8000 | key)).collect();
    let line =
        |number: u32| format!("tenant-{number} pkey={} classes={}\n", keys.join(","), "0x02,0x0a,0x0c,0x0e");
    let text: String = (0..1024).map(line).collect();
    let file = bed.write("many.tenants", &text);
    let loaded = ok(&tenants(&bed, &["load", &file, "--sync"]));
    assert!(loaded.starts_with(&format!("{file}: 1024 tenants loaded; 1024 of 1024")), "{loaded}");
    let paths = madplane_shm::paths::PlanePaths::under(&bed.root(), NAME).unwrap();
    let told = madctl::Plane::at(paths).admin().unwrap().tenants_show(None).unwrap();
    let names: Vec<String> = (0..1024).map(|number| format!("tenant-{number}")).collect();
    assert_eq!(told.iter().map(|of| of.tenant.name.clone()).collect::<Vec<_>>(), names);
    assert_eq!(shown(&bed)["tenants"].as_array().unwrap().len(), 1024);
    eventually("all are published", || published(&bed).len() == 1024);
}

#[test]
fn only_root_and_the_daemons_user_may_change_tenants_and_anyone_may_look() {
    let Some(bed) = Bed::for_anyone() else { return };
    let _daemon = bed.madctld();
    ok(&tenants(&bed, &["add", "red", "--sync"]));
    for arguments in
        [&["tenants", "add", "blue"][..], &["tenants", "del", "red"], &["sessions", "bind", "1", "none"]]
    {
        let line = failed(&bed.madctl_as_nobody(arguments), 1);
        assert_eq!(line, "only root and the user who runs madctld may change the plane");
    }
    assert!(ok(&bed.madctl_as_nobody(&["tenants", "show"])).contains("1 of 64"));
    assert_eq!(published(&bed).len(), 1);
}

#[test]
fn a_table_of_another_layout_version_is_refused_by_reader_and_writer_with_both_versions() {
    let bed = Bed::new();
    let mut daemon = bed.madctld();
    ok(&tenants(&bed, &["add", "red", "--sync"]));
    daemon.kill();
    let path = bed.table_file();
    let mut bytes = std::fs::read(&path).unwrap();
    let other = madplane_shm::LAYOUT_VERSION + 7;
    bytes[8..12].copy_from_slice(&other.to_ne_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let ours = madplane_shm::LAYOUT_VERSION;
    let both = format!("layout version {other} found, this program speaks version {ours}");
    for arguments in [["tenants", "show"], ["routes", "show"]] {
        let line = failed(&bed.madctl(&arguments), 1);
        assert!(line.contains(&both), "{arguments:?}: {line}");
    }
    let output = bed.program(env!("CARGO_BIN_EXE_madctld")).args(["--name", NAME]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains(&both), "{text}");
    assert!(bytes == std::fs::read(&path).unwrap(), "it is left alone");
}
