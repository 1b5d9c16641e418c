//! madctl with a real madplaned: starting, looking, changing, stopping, and daemons that are killed at any time.
//!
//! madplaned belongs to another crate; without it beside madctl (or in `MADPLANE_LIBEXEC`) these tests say so and pass.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use support::{Bed, NAME, Running, eventually, failed, ok, present};

fn up(bed: &Bed) -> serde_json::Value {
    let fabric = ["up", "--fabric", "builtin:ring,switches=4,hosts=2", "--no-huge", "--format", "json"];
    serde_json::from_str(&ok(&bed.madctl(&fabric))).unwrap()
}

fn status(bed: &Bed) -> serde_json::Value {
    serde_json::from_str(&ok(&bed.madctl(&["status", "--format", "json"]))).unwrap()
}

fn kill(pid: &serde_json::Value) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_plane_is_started_looked_at_changed_and_stopped() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let started = up(&bed);
    assert_eq!(
        (&started["nodes"], &started["switches"], &started["links"]),
        (&12.into(), &4.into(), &12.into())
    );
    let pid = started["plane_pid"].to_string();
    let again = failed(&bed.madctl(&["up"]), 1);
    assert!(again.starts_with(&format!("plane {NAME} is already running (pid {pid}, since ")), "{again}");
    assert!(again.ends_with("fabric builtin:ring,switches=4,hosts=2)"), "{again}");
    let shown = status(&bed);
    assert_eq!((&shown["state"], &shown["pid"]), (&"ready".into(), &started["plane_pid"]), "{shown}");
    assert_eq!(shown["control"]["daemon"]["connected"], true, "{shown}");
    assert_eq!(ok(&bed.madctl(&["links", "down", "ring-00:1"])), "ring-00:1: link is down\n");
    assert_eq!(ok(&bed.madctl(&["links", "up", "ring-00:1"])), "ring-00:1: link is up\n");
    assert_eq!(ok(&bed.madctl(&["nodes", "reboot", "ring-01"])), "ring-01: rebooted\n");
    assert!(failed(&bed.madctl(&["links", "down", "rnig-00:1"]), 1).contains("did you mean \"ring-00\"?"));
    assert!(
        failed(&bed.madctl(&["run", "--at", "rnig-00", "--", "true"]), 1)
            .contains("did you mean \"ring-00\"?")
    );
    assert!(ok(&bed.madctl(&["sessions", "list"])).ends_with("no sessions\n"));
    assert!(ok(&bed.madctl(&["fabric", "show"])).contains("4 switches, 8 adapters"));
    let stopped = ok(&bed.madctl(&["down"]));
    assert!(
        stopped.starts_with(&format!("plane {NAME} is down: madplaned (pid {pid}) ended, madctld")),
        "{stopped}"
    );
    assert!(failed(&bed.madctl(&["down"]), 1).contains("is not running"));
    let after = status(&bed);
    assert_eq!((&after["running"], &after["control"]["running"]), (&false.into(), &false.into()), "{after}");
}

#[test]
fn killed_daemons_need_no_cleaning_up() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let first = up(&bed);
    kill(&first["control_pid"]);
    eventually("madctld is gone", || status(&bed)["control"]["running"] == false);
    assert!(
        failed(&bed.madctl(&["links", "down", "ring-00:1"]), 1)
            .contains("madctld of plane bed is not running")
    );
    let repaired: serde_json::Value =
        serde_json::from_str(&ok(&bed.madctl(&["up", "--format", "json"]))).unwrap();
    assert_eq!((&repaired["control_only"], &repaired["plane_pid"]), (&true.into(), &first["plane_pid"]));
    ok(&bed.madctl(&["links", "down", "ring-00:1"]));
    kill(&first["plane_pid"]);
    eventually("madplaned is gone", || status(&bed)["running"] == false);
    assert_eq!(status(&bed)["state"], "not running (died)");
    assert!(failed(&bed.madctl(&["links", "down", "ring-00:1"]), 1).contains("is not running"));
    assert!(failed(&bed.madctl(&["run", "--", "true"]), 1).contains("is not running"));
    let second = up(&bed);
    ok(&bed.madctl(&["links", "down", "ring-00:1"]));
    kill(&second["plane_pid"]);
    kill(&second["control_pid"]);
    eventually("both are gone", || {
        let shown = status(&bed);
        shown["running"] == false && shown["control"]["running"] == false
    });
    assert!(failed(&bed.madctl(&["down"]), 1).contains("is not running"));
    up(&bed);
    ok(&bed.madctl(&["nodes", "reboot", "ring-00"]));
    ok(&bed.madctl(&["down"]));
}

#[test]
fn a_start_that_fails_leaves_nothing_running() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let broken = bed.root().join("broken.net");
    std::fs::write(&broken, "Switch 4 \"a\"\n[1] \"b\"[1]\n").unwrap();
    let refused = failed(&bed.madctl(&["up", "--fabric", broken.to_str().unwrap()]), 1);
    assert!(refused.starts_with("madplaned: ") && refused.contains("line 2"), "{refused}");
    assert!(failed(&bed.madctl(&["up", "--at", "nobody"]), 1).contains("nobody"));
    assert!(failed(&bed.madctl(&["down"]), 1).contains("is not running"));
    // madctld cannot start: its socket's place is taken
    std::fs::create_dir_all(bed.run_file("admin.sock").join("x")).unwrap();
    assert!(failed(&bed.madctl(&["up", "--fabric", "builtin:ring"]), 1).contains("admin socket"));
    assert!(failed(&bed.madctl(&["down"]), 1).contains("is not running"));
}

#[test]
fn a_daemon_that_does_not_end_is_killed_with_a_note() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let started = up(&bed);
    let pid = i32::try_from(started["plane_pid"].as_i64().unwrap()).unwrap();
    let tasks = format!("/proc/{pid}/task");
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // a thread that still runs could take the next signal
    eventually("all its threads have stopped", || {
        std::fs::read_dir(&tasks)
            .unwrap()
            .all(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap().contains(") T "))
    });
    let stopped = ok(&bed.madctl(&["down"]));
    assert!(stopped.contains("did not end within 5 s and was killed"), "{stopped}");
}

#[test]
fn two_ups_at_the_same_time_start_one_plane() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let start = || {
        let mut process = bed.program(env!("CARGO_BIN_EXE_madctl"));
        process.args(["up", "--name", NAME, "--fabric", "builtin:ring", "--no-huge"]);
        process.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| start()).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let done = outputs.iter().filter(|output| output.status.success()).count();
    assert_eq!(done, 1);
    for output in outputs.iter().filter(|output| !output.status.success()) {
        assert!(failed(output, 1).contains("is already running"));
    }
}

#[test]
fn daemons_do_not_keep_what_a_script_had_open() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    let held = bed.root().join("held");
    let script = format!(
        "exec 9>{}; {} up --name {NAME} --fabric builtin:ring --no-huge --format json",
        held.display(),
        env!("CARGO_BIN_EXE_madctl")
    );
    let started = bed.program("sh").args(["-c", &script]).output().unwrap();
    let started: serde_json::Value = serde_json::from_str(&ok(&started)).unwrap();
    for pid in [&started["plane_pid"], &started["control_pid"]] {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let open: Vec<_> = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect();
        assert!(open.len() > 3 && !open.contains(&held), "{pid}: {open:?}");
    }
}

/// Gives LIDs to the first ports of nodes as a subnet manager would, by directed route from the plane's default port.
struct Lids {
    session: madplane_client::Session,
    agent: u32,
}

impl Lids {
    fn open(bed: &Bed) -> Self {
        let paths = madplane_shm::paths::PlanePaths::under(&bed.root(), NAME).unwrap();
        let session = madplane_client::Session::open(&paths, "", &Default::default()).unwrap();
        let spec =
            madplane_client::AgentSpec { qpn: 0, mgmt_class: 0x81, class_version: 1, ..Default::default() };
        let agent = session.register(&spec).unwrap();
        Self { session, agent }
    }

    fn ask(&self, method: u8, path: &[u8], port: u8, data: &[u8; 64]) -> [u8; 64] {
        self.smp(method, madplane_wire::smp::attr::PORT_INFO, port.into(), path, data)
    }

    fn smp(&self, method: u8, attribute: u16, modifier: u32, path: &[u8], data: &[u8; 64]) -> [u8; 64] {
        let mut mad = [0u8; 256];
        let mut smp = madplane_wire::smp::SmpMut::new(&mut mad);
        smp.init_directed(method, attribute, modifier, 7, path);
        smp.data_mut().copy_from_slice(data);
        let envelope = madplane_client::Envelope { slid: 0xffff, dlid: 0xffff, ..Default::default() };
        let outgoing = madplane_client::Outgoing {
            agent: self.agent,
            envelope,
            data: &mad,
            timeout_ms: 5000,
            retries: 2,
        };
        self.session.send(&outgoing).unwrap();
        let answer = self.session.recv_with(Some(support::PATIENCE), |incoming| {
            madplane_client::Taken::Done((incoming.status, incoming.data.to_vec()))
        });
        let (status, answer) = answer.unwrap();
        assert_eq!((status, &answer[4..6]), (0, &[0x80, 0][..]), "path {path:?}");
        answer[64..128].try_into().unwrap()
    }

    fn give(&self, path: &[u8], port: u8, lid: u16) {
        let mut data = self.ask(1, path, port, &[0; 64]);
        data[16..18].copy_from_slice(&lid.to_be_bytes());
        data[18..20].copy_from_slice(&1u16.to_be_bytes());
        // no change of either state
        data[32] &= 0xf0;
        data[33] &= 0x0f;
        self.ask(2, path, port, &data);
        assert_eq!(self.ask(1, path, port, &[0; 64])[16..18], lid.to_be_bytes());
    }
}

#[test]
fn routes_are_found_and_traced_with_the_lids_and_states_of_the_running_fabric() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    up(&bed);
    let before = failed(&bed.madctl(&["routes", "add", "1", "2", "shortest"]), 1);
    assert_eq!(before, "no port of the fabric has LID 0x0001; a subnet manager has to run in it first");
    // the default port is node-0000 at ring-00; its neighbours in the ring are at ports 1 and 2, its hosts at 3 and 4
    let lids = Lids::open(&bed);
    lids.give(&[], 1, 0x11);
    lids.give(&[1, 1, 3], 1, 0x22);
    lids.give(&[1, 1], 0, 5);
    let added = ok(&bed.madctl(&[
        "routes",
        "add",
        "0x11",
        "0x22",
        "via",
        "ring-03",
        "--on-broken",
        "drop",
        "--sync",
    ]));
    assert!(added.contains(" is with 1 worker after "), "{added}");
    assert!(added.starts_with("route 0x0011 -> 0x0022 added (ports 1,2,2,"), "{added}");
    ok(&bed.madctl(&["routes", "add", "0x22", "0x11", "shortest", "avoid", "ring-03"]));
    ok(&bed.madctl(&["routes", "add", "0x22", "5", "shortest"]));
    let unknown = failed(&bed.madctl(&["routes", "add", "0x22", "0x99", "shortest"]), 1);
    assert_eq!(unknown, "no port of the fabric has LID 0x0099; 3 LIDs are in use");
    eventually("the batch is published", || ok(&bed.madctl(&["routes", "show"])).contains("3 of 1024"));
    let traced = ok(&bed.madctl(&["routes", "trace", "0x11", "0x22"]));
    assert!(traced.contains("ring-03") && traced.ends_with("the path is whole\n"), "{traced}");
    assert!(!traced.contains("not known") && !traced.contains("no answer"), "{traced}");
    assert_eq!(ok(&bed.madctl(&["routes", "check"])), "3 routes, 0 broken\n");
    ok(&bed.madctl(&["links", "down", "ring-03:2"]));
    let broken = bed.madctl(&["routes", "trace", "0x11", "0x22"]);
    let line = failed(&broken, 1);
    assert!(line.starts_with("route 0x0011 -> 0x0022: hop ") && line.ends_with(" is down"), "{line}");
    let text = String::from_utf8(broken.stdout).unwrap();
    assert!(text.ends_with("the path is broken: MADs are dropped\n"), "{text}");
    let checked = bed.madctl(&["routes", "check"]);
    assert!(failed(&checked, 1).starts_with("1 of 3 routes are broken"), "{checked:?}");
    ok(&bed.madctl(&["links", "up", "ring-03:2"]));
    ok(&bed.madctl(&["routes", "check"]));
    // another plane takes the table up where the last one left it
    let before = status(&bed)["pid"].clone();
    kill(&before);
    eventually("madplaned is gone", || status(&bed)["running"] == false);
    up(&bed);
    let synced = ok(&bed.madctl(&["routes", "sync"]));
    assert!(
        synced.starts_with("routes published; 3 of 1024") && synced.contains("is with 1 worker"),
        "{synced}"
    );
}

/// What OpenSM programs from a file is what this side reads in it, P_Keys that it makes up included.
#[test]
fn partitions_are_those_that_opensm_programs() {
    use madctl::tenant::partitions::{DEFAULT_P_KEY, Membership, Partition, Partitions, PortKind};
    let Some(bed) = Bed::beside_madplaned() else { return };
    let library = std::path::Path::new(env!("CARGO_BIN_EXE_madctl")).with_file_name("libmadplane_umad.so");
    let opensm = bed.program("opensm").arg("--version").output().is_ok();
    if !present("libmadplane_umad.so beside madctl", library.is_file(), "cargo build -p madplane-umad")
        || !present("opensm", opensm, "scripts/install-missing tools")
    {
        return;
    }
    let _running = Running(&bed);
    up(&bed);
    let lids = Lids::open(&bed);
    // two adapters beside the first node, and their switches; NodeInfo names the port that was asked
    let ports: Vec<(u64, PortKind, &[u8])> = [
        (&[][..], PortKind::Ca),
        (&[1, 4], PortKind::Ca),
        (&[1, 1, 3], PortKind::Ca),
        (&[1], PortKind::Switch),
        (&[1, 1], PortKind::Switch),
    ]
    .into_iter()
    .map(|(path, kind)| {
        let info = lids.smp(1, madplane_wire::smp::attr::NODE_INFO, 0, path, &[0; 64]);
        (u64::from_be_bytes(info[20..28].try_into().unwrap()), kind, path)
    })
    .collect();
    let (own, near, far) = (ports[0].0, ports[1].0, ports[2].0);
    let text = format!(
        "Default=0x7fff,ipoib : ALL=limited, ALL_SWITCHES=full, SELF=full ;\n\
         made : {near:#x}=full, {far:#x} ;\n\
         given = 0x0001 : {own:#x}=full ; # takes the one that was made up: it is the same partition\n\
         second , defmember=full : ALL_CAS, {far:#x}=limi ;\n\
         0x8030 : {near:#x}=both, SELF ;\n\
         made : {own:#x} ;\n\
         nobody = 0x44 : ;\n"
    );
    let conf = bed.root().join("partitions.conf");
    std::fs::write(&conf, &text).unwrap();
    let partitions = Partitions::parse(&text).unwrap();
    let keys: Vec<(&str, u16)> = partitions.iter().map(|p| (p.name(), p.p_key())).collect();
    assert_eq!(
        keys,
        [("Default", DEFAULT_P_KEY), ("made", 1), ("second", 2), ("0030", 0x30), ("nobody", 0x44)]
    );
    let log = bed.root().join("opensm.log");
    let mut opensm = bed.program(env!("CARGO_BIN_EXE_madctl"));
    opensm
        .args([
            "run",
            "--name",
            NAME,
            "--",
            "opensm",
            "-f",
            log.to_str().unwrap(),
            "-P",
            conf.to_str().unwrap(),
        ])
        .env("OSM_CACHE_DIR", bed.root())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let _opensm = support::Daemon { child: opensm.spawn().unwrap() };
    let programmed = |path: &[u8]| {
        let table = lids.smp(1, madplane_wire::smp::attr::PKEY_TABLE, 0, path, &[0; 64]);
        let entries = table.as_chunks::<2>().0.iter().map(|entry| u16::from_be_bytes(*entry));
        let mut entries: Vec<u16> = entries.filter(|entry| entry & 0x7fff != 0).collect();
        entries.sort_unstable();
        entries
    };
    for (guid, kind, path) in ports {
        let key = |partition: &Partition| match partition.membership(guid, kind, own)? {
            Membership::Limited => Some(partition.p_key()),
            Membership::Full => Some(partition.p_key() | 0x8000),
        };
        let mut expected: Vec<u16> = partitions.iter().filter_map(key).collect();
        expected.sort_unstable();
        let until = std::time::Instant::now() + support::PATIENCE;
        while programmed(path) != expected && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(programmed(path), expected, "port {guid:#x} by {path:?}");
    }
}

#[test]
fn a_session_of_a_tenant_is_shown_held_to_its_rights_and_bound_by_the_operator() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let _running = Running(&bed);
    up(&bed);
    let tenants = |arguments: &[&str]| ok(&bed.madctl(&[&["tenants"], arguments].concat()));
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&ok(&bed.madctl(&[arguments, &["--format", "json"]].concat()))).unwrap()
    };
    tenants(&["add", "red", "pkey=0x8001", "priority=reserved", "--sync"]);
    let paths = madplane_shm::paths::PlanePaths::under(&bed.root(), NAME).unwrap();
    let tenant = madplane_client::TenantName::new("red").unwrap();
    let options = madplane_client::SessionOptions { tenant, ..Default::default() };
    let session = madplane_client::Session::open(&paths, "", &options).unwrap();
    let listed = || json(&["sessions", "list"])["sessions"][0].clone();
    assert_eq!((&listed()["tenant_name"], &listed()["class"]), (&"red".into(), &"reserved".into()));
    let number = listed()["session"].to_string();
    let bound = ok(&bed.madctl(&["sessions", "bind", &number, "1,2", "--on-broken", "drop"]));
    assert_eq!(bound, format!("session {number} is bound to ports 1,2\n"));
    eventually("the path is shown", || listed()["path"] == serde_json::json!([1, 2]));
    assert_eq!(listed()["path_on_broken"], "drop");
    ok(&bed.madctl(&["sessions", "bind", &number, "via", "ring-01,node-0002 HCA-1"]));
    eventually("another path is shown", || listed()["path"].as_array().unwrap().len() == 3);
    ok(&bed.madctl(&["sessions", "bind", &number, "none"]));
    eventually("no path is shown", || listed()["path"] == serde_json::json!([]));
    failed(&bed.madctl(&["sessions", "bind", "999", "1"]), 1);
    let kept = failed(&bed.madctl(&["tenants", "del", "red"]), 1);
    assert!(kept.contains("tenant red has 1 session and 0 routes"), "{kept}");
    let shown = json(&["tenants", "show"]);
    assert_eq!(shown["tenants"][0]["sessions"], 1, "{shown}");
    drop(session);
    let unused = || json(&["tenants", "show"])["tenants"][0]["sessions"] == 0;
    eventually("it is gone", unused);
    // the stock tool, as that tenant, at another node: first without any right to SMPs, then with one
    let library = std::path::Path::new(env!("CARGO_BIN_EXE_madctl")).with_file_name("libmadplane_umad.so");
    if !library.is_file() || bed.program("smpquery").arg("--version").output().is_err() {
        println!("skipped in part: needs smpquery, and libmadplane_umad.so beside madctl");
        return;
    }
    let query = || {
        let tool = ["run", "--tenant", "red", "--", "smpquery", "-t", "200", "-D", "nodeinfo", "0,1"];
        bed.madctl(&tool).status.success()
    };
    assert!(!query(), "no right to SMPs");
    let counters = json(&["counters", "show"]);
    let drops = counters["drops"].as_array().unwrap();
    let refused = drops.iter().find(|count| count["name"] == "drop_tenant_smp_get").unwrap();
    assert_eq!(refused["stage"], "acl", "{counters}");
    tenants(&["add", "red", "smp=get", "--replace", "--sync"]);
    assert!(query(), "{}", ok(&bed.madctl(&["counters", "show"])));
    eventually("the tool's session is gone", unused);
    tenants(&["del", "red", "--sync"]);
    let latency = json(&["latency", "show"]);
    assert!(latency["hw_sync_latency"]["count"].as_u64().unwrap() >= 3, "{latency}");
    assert!(latency["workers"][0]["cycles"]["count"].as_u64().unwrap() > 0, "{latency}");
}

/// A plane with devices that no machine has; two lines a device at most, one in the status.
#[test]
fn devices_that_do_not_work_are_named_and_no_reason_not_to_start() {
    let Some(bed) = Bed::beside_madplaned() else { return };
    let refused = failed(&bed.madctl(&["up", "--device", "roce:none0"]), 1);
    assert!(refused.contains("\"roce:none0\" names no device; write [verbs:|umad:|auto:]NAME"), "{refused}");
    let twice = failed(&bed.madctl(&["up", "--device", "none0", "--device", "umad:none0,gid=1"]), 1);
    assert!(twice.contains("--device none0: port 1 of it is given twice"), "{twice}");
    let file = bed.root().join("plane.toml");
    std::fs::write(&file, "devices = [\"verbs:none0\"]\n").unwrap();
    let _running = Running(&bed);
    let up = ["up", "--fabric", "builtin:ring,switches=4,hosts=2", "--no-huge", "--device", "auto:none1"];
    ok(&bed.madctl(&[&up[..], &["--config", file.to_str().unwrap()]].concat()));
    let shown = status(&bed);
    let devices = shown["devices"].as_array().unwrap();
    let names: Vec<_> = devices.iter().map(|device| device["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["none0", "none1"]);
    for device in devices {
        let why = device["why"].as_str().unwrap();
        assert!(device["state"] == "unavailable" && why.starts_with("unavailable, because "), "{device}");
        assert_eq!(device["backend"], serde_json::Value::Null);
    }
    let text = ok(&bed.madctl(&["status"]));
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("device ")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[1].starts_with("device    none1 port 1: unavailable, because "), "{text}");
    // by both backends, each for a reason of its own
    let errors = ok(&bed.madctl(&["errors", "show"]));
    for line in [
        "device none0: by verbs: unavailable",
        "device none1: by verbs: unavailable",
        "device none1: by umad: unavailable",
    ] {
        assert!(errors.contains(line), "{line}: {errors}");
    }
    let refused = failed(&bed.madctl(&["run", "--at", "device:none1", "--", "true"]), 1);
    assert!(refused.starts_with("device none1: unavailable, because "), "{refused}");
    let unknown = failed(&bed.madctl(&["run", "--at", "device:none2", "--", "true"]), 1);
    assert_eq!(unknown, "the plane has no device \"none2\"; it has none0:1, none1:1");
    let listed: serde_json::Value =
        serde_json::from_str(&ok(&bed.madctl(&["devices", "--format", "json"]))).unwrap();
    assert_eq!(listed["plane"]["devices"].as_array().unwrap().len(), 2, "{listed}");
    assert!(listed["devices"].as_array().unwrap().is_empty() || listed["why"] == "", "{listed}");
    assert!(ok(&bed.madctl(&["devices"])).contains("  none1 port 1: unavailable, because "));
}
