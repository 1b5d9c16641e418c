//! Pinned and reserved routes under stock programs, on a fabric whose LIDs a real OpenSM has given.

#![allow(clippy::unwrap_used)]

mod support;

use support::{OpenSm, Plane, counts, eventually, have};

/// Leaves of two hosts under two spines: from leaf to leaf there are two ways, by port 3 over spine-00 and by port 4 over
/// spine-01.
const FABRIC: &str = "builtin:fat-tree,radix=4,levels=2";
const HERE: &str = "node-0000 HCA-1";
const THERE: &str = "node-0002 HCA-1";

/// A fabric that is up, and where things are on it.
struct Up {
    // first: ends before the plane does
    opensm: OpenSm,
    plane: Plane,
    here: String,
    there: String,
    leaf: String,
    /// Exit of leaf-00 on the way that the forwarding tables take from here to there, and the other one.
    usual: u8,
    other: u8,
}

impl std::ops::Deref for Up {
    type Target = Plane;

    fn deref(&self) -> &Plane {
        &self.plane
    }
}

fn up() -> Option<Up> {
    up_with(&[])
}

fn up_with(options: &[&str]) -> Option<Up> {
    if !have(&["opensm", "smpquery", "perfquery", "saquery", "ibtracert", "ibping"]) {
        return None;
    }
    let plane = Plane::up_with(FABRIC, options);
    let opensm = OpenSm::up(&plane, HERE, &[], &["sweep_interval 0"]);
    let lid = |name| plane.lid(name).to_string();
    let (here, there, leaf) = (lid(HERE), lid(THERE), lid("leaf-00"));
    let usual = exit(&plane, &here, &there);
    Some(Up { opensm, plane, here, there, leaf, usual, other: 7 - usual })
}

/// Exit of the first switch on the way by the forwarding tables.
fn exit(plane: &Plane, here: &str, there: &str) -> u8 {
    let trace = plane.ok(&["ibtracert", here, there]);
    let line = trace.lines().filter(|line| line.starts_with('[')).nth(1);
    let exit = line.and_then(|line| line[1..].split(']').next()?.parse().ok());
    exit.filter(|exit| [3, 4].contains(exit)).unwrap_or_else(|| panic!("{trace}"))
}

fn spine(exit: u8) -> String {
    format!("spine-{:02}", exit - 3)
}

impl Up {
    /// Packets out of and into a port of leaf-00, asked from that switch itself so that nothing crosses a link for it.
    fn packets(&self, port: u8) -> (u64, u64) {
        let text = self.ok_at("leaf-00", &["perfquery", "-x", &self.leaf, &port.to_string()]);
        let value = |label: &str| -> u64 {
            let line =
                text.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("{text}"));
            line.trim_start_matches([':', '.']).parse().unwrap()
        };
        (value("PortXmitPkts"), value("PortRcvPkts"))
    }

    /// Packets out of and into the two uplinks of leaf-00 that `act` causes: the usual one's, the other one's.
    fn traffic(&self, act: impl FnOnce()) -> [(u64, u64); 2] {
        let both = || [self.packets(self.usual), self.packets(self.other)];
        let before = both();
        act();
        let after = both();
        [0, 1].map(|link| (after[link].0 - before[link].0, after[link].1 - before[link].1))
    }

    /// Asks the other host `times` times by SMP and by GMP, each time with success.
    fn ask(&self, options: &[&str], times: usize) {
        for _ in 0..times {
            let text = self.ok_with(options, &["smpquery", "nodedesc", &self.there]);
            assert!(text.trim_end().ends_with(THERE), "{text}");
            let text = self.ok_with(options, &["perfquery", &self.there, "1"]);
            assert!(text.contains("PortXmitPkts"), "{text}");
        }
    }

    /// Packets that the route from here to there has carried, as shown.
    fn carried(&self) -> u64 {
        let shown = self.json(&["routes", "show"]);
        let (here, there) = (hexadecimal(&self.here), hexadecimal(&self.there));
        let routes = shown["routes"].as_array().unwrap();
        let route = routes.iter().find(|route| route["slid"] == here && route["dlid"] == there);
        route.unwrap_or_else(|| panic!("{shown}"))["packets"].as_u64().unwrap()
    }

    fn add(&self, more: &[&str]) -> String {
        self.done(&[&["routes", "add", &self.here, &self.there], more, &["--sync"]].concat())
    }
}

fn hexadecimal(lid: &str) -> String {
    format!("{:#06x}", lid.parse::<u16>().unwrap())
}

#[test]
fn what_is_pinned_travels_by_its_links_and_the_answers_come_back_by_them() {
    // the second time the way leads over nodes of both workers
    for workers in ["1", "2"] {
        let Some(up) = up_with(&["--workers", workers]) else { return };
        pinned_and_back(&up);
    }
}

fn pinned_and_back(up: &Up) {
    let [usual, other] = up.traffic(|| up.ask(&[], 3));
    assert!(usual.0 >= 6 && usual.1 >= 6, "by the tables: {usual:?} {other:?}");
    assert_eq!(other, (0, 0), "by the tables");
    let spine = spine(up.other);
    let added = up.add(&["via", &spine]);
    assert!(added.contains(&format!("(ports 1,{},2,1)", up.other)), "{added}");
    assert!(added.contains(" after "), "{added}");
    let traced = up.done(&["routes", "trace", &up.here, &up.there]);
    let nodes = [HERE, "leaf-00", &spine, "leaf-01"];
    for (line, node) in traced.lines().skip(2).zip(nodes) {
        assert!(line.contains(node) && line.ends_with("active"), "{node}: {traced}");
    }
    assert!(traced.ends_with("the path is whole\n"), "{traced}");
    assert_eq!(up.done(&["routes", "check"]), "1 route, 0 broken\n");
    let before = up.carried();
    let [usual, other] = up.traffic(|| up.ask(&[], 5));
    assert_eq!(usual, (0, 0), "nothing by the tables");
    assert!(other.0 >= 10 && other.1 >= 10, "there and back: {other:?}");
    assert_eq!(up.carried() - before, other.0, "each is counted for the route");
    let shown = up.json(&["routes", "show"]);
    assert_eq!(shown["routes"][0]["bytes"], shown["routes"][0]["packets"].as_u64().unwrap() * 256);
    assert!(shown["routes"][0]["last_use_age_ns"].as_u64().is_some(), "{shown}");
    assert!(shown["workers"]["dr_cache_hit"].as_u64().unwrap() > 0, "{shown}");
    // a directed route goes where it says
    let usual_exit = up.usual.to_string();
    let directed = ["smpquery", "-D", "nodeinfo", &format!("0,1,{usual_exit},2,1")];
    let [usual, other] = up.traffic(|| drop(up.ok(&directed)));
    assert!(usual.0 >= 1 && other == (0, 0), "{usual:?} {other:?}");
    // the other way round is another route
    let back = up.traffic(|| drop(up.ok_at(THERE, &["smpquery", "nodedesc", &up.here])));
    up.done(&["routes", "add", &up.there, &up.here, "via", &spine, "--replace", "--sync"]);
    let pinned = up.traffic(|| drop(up.ok_at(THERE, &["smpquery", "nodedesc", &up.here])));
    assert!(back[0].1 >= 1 || back[1].1 >= 1, "{back:?}");
    assert!(pinned[0].1 == 0 && pinned[1].1 >= 1, "{pinned:?}");
    up.done(&["routes", "flush", "--sync"]);
    let [usual, other] = up.traffic(|| up.ask(&[], 2));
    assert!(usual.0 >= 4 && other == (0, 0), "by the tables again: {usual:?} {other:?}");
}

#[test]
fn a_broken_path_falls_back_or_drops_as_the_route_says_and_heals_by_itself() {
    let Some(mut up) = up() else { return };
    let spine = spine(up.other);
    up.add(&["via", &spine]);
    up.ask(&[], 1);
    let cable = format!("{spine}:2");
    let sweeps = up.opensm.count("SUBNET UP");
    up.done(&["links", "down", &cable]);
    up.opensm.wait_for("SUBNET UP", sweeps + 1);
    up.ask(&[], 2);
    let traced = up.madctl(&["routes", "trace", &up.here, &up.there]);
    assert_eq!(traced.code, Some(1), "{traced}");
    assert!(traced.err.contains("hop 3: ") && traced.err.trim_end().ends_with(" is down"), "{traced}");
    assert!(traced.out.ends_with("the path is broken: MADs go by the forwarding tables\n"), "{traced}");
    let checked = up.madctl(&["routes", "check"]);
    assert_eq!(
        (checked.code, checked.err.as_str()),
        (Some(1), "madctl: 1 of 1 routes are broken\n"),
        "{checked}"
    );
    // the same route, told to drop
    up.add(&["via", &spine, "--on-broken", "drop", "--replace"]);
    let (ran, moved) = up.drops_of(|| up.run(&["smpquery", "-t", "100", "nodedesc", &up.there]));
    assert_ne!(ran.code, Some(0), "{ran}");
    assert_eq!(moved, ["drop_route_broken"], "{ran}");
    let (ran, moved) = up.drops_of(|| up.run(&["perfquery", "-t", "100", &up.there, "1"]));
    assert_ne!(ran.code, Some(0), "{ran}");
    assert_eq!(moved, ["drop_route_broken"], "{ran}");
    let sweeps = up.opensm.count("SUBNET UP");
    up.done(&["links", "up", &cable]);
    up.opensm.wait_for("SUBNET UP", sweeps + 1);
    eventually("the path is whole again", || up.madctl(&["routes", "check"]).code == Some(0));
    let before = up.carried();
    up.ask(&[], 2);
    assert!(up.carried() >= before + 4, "pinned again");
}

#[test]
fn a_reserved_route_serves_the_reserved_class_and_a_tenants_route_its_tenant() {
    let Some(up) = up() else { return };
    let spine = spine(up.other);
    for line in [
        &["vip", "pkey=0xffff", "smp=get", "priority=reserved"][..],
        &["crowd", "pkey=0xffff", "smp=get"],
        &["team", "pkey=0xffff", "smp=get"],
    ] {
        up.done(&[&["tenants", "add"], line, &["--sync"]].concat());
    }
    let reserved =
        up.done(&["routes", "reserve", &up.here, &up.there, "via", &spine, "--tenant", "vip", "--sync"]);
    assert!(reserved.contains(&format!(" reserved (ports 1,{},2,1)", up.other)), "{reserved}");
    let shown = up.json(&["routes", "show"]);
    let route = &shown["routes"][0];
    assert_eq!((&route["tenant_name"], &route["priority"]), (&"vip".into(), &1.into()), "{shown}");
    let vip = ["--tenant", "vip"];
    let before = counts(&up, "counters").get("reserved_mads_received").copied().unwrap_or(0);
    let [usual, other] = up.traffic(|| up.ask(&vip, 2));
    assert!(usual == (0, 0) && other.0 >= 4 && other.1 >= 4, "{usual:?} {other:?}");
    assert!(counts(&up, "counters")["reserved_mads_received"] >= before + 4);
    for options in [&["--tenant", "crowd"][..], &[]] {
        let [usual, other] = up.traffic(|| up.ask(options, 2));
        assert!(usual.0 >= 4 && other == (0, 0), "{options:?}: {usual:?} {other:?}");
    }
    // of one tenant, whatever its class
    let mine = ["via", &spine, "--tenant", "team", "--replace"];
    up.add(&mine);
    let [usual, other] = up.traffic(|| up.ask(&["--tenant", "team"], 2));
    assert!(usual == (0, 0) && other.0 >= 4, "{usual:?} {other:?}");
    let [usual, other] = up.traffic(|| up.ask(&vip, 2));
    assert!(usual.0 >= 4 && other == (0, 0), "{usual:?} {other:?}");
    // a tenant takes its routes with it
    assert!(up.refused(&["tenants", "del", "team"]).contains("0 sessions and 1 route"));
    up.done(&["tenants", "del", "team", "--force", "--sync"]);
    assert_eq!(up.json(&["routes", "show"])["routes"].as_array().unwrap().len(), 0);
}

#[test]
fn a_session_is_bound_to_a_path_from_outside_and_from_its_start() {
    let Some(up) = up() else { return };
    up.done(&["tenants", "add", "vip", "pkey=0xffff", "smp=get", "priority=reserved", "--sync"]);
    let path = format!("1,{},2,1", up.other);
    // from its start
    let [usual, other] = up.traffic(|| up.ask(&["--path", &path], 2));
    assert!(usual == (0, 0) && other.0 >= 4 && other.1 >= 4, "{usual:?} {other:?}");
    // from outside, while it sends
    let mut server = up.spawn_at(THERE, &["ibping", "-S"]);
    let client = up.spawn_with(&["--tenant", "vip"], &["ibping", "-t", "200", &up.there]);
    let session = || {
        let list = up.json(&["sessions", "list"]);
        let found = list["sessions"].as_array().unwrap().iter().find(|of| of["pid"] == client.pid()).cloned();
        found.unwrap_or_default()
    };
    let answered = || session()["sent"].as_u64().unwrap_or(0);
    eventually("it is answered", || answered() > 0);
    let of = session();
    assert_eq!((&of["tenant_name"], &of["class"]), (&"vip".into(), &"reserved".into()), "{of}");
    assert_eq!((&of["program"], &of["node"]), (&"ibping".into(), &HERE.into()), "{of}");
    let number = of["session"].to_string();
    let moved = |what: &str, port: u8| {
        // the path is that of what it sends: answers are another session's
        let before = (up.packets(port).0, answered());
        eventually(what, || up.packets(port).0 > before.0 && answered() > before.1);
    };
    moved("it goes by the tables", up.usual);
    let bound = up.done(&["sessions", "bind", &number, "via", &format!("{},{THERE}", spine(up.other))]);
    assert_eq!(bound, format!("session {number} is bound to ports {path}\n"));
    moved("it goes by its path", up.other);
    let listed = up.done(&["sessions", "list"]);
    assert!(listed.contains(&format!("  {path}  ")), "{listed}");
    // broken and told to drop: nothing comes through until it is whole, or unbound
    up.done(&["sessions", "bind", &number, &path, "--on-broken", "drop"]);
    assert!(up.done(&["sessions", "list"]).contains(&format!("{path} or drop")));
    let sweeps = up.opensm.count("SUBNET UP");
    up.done(&["links", "down", &format!("{}:2", spine(up.other))]);
    eventually("OpenSM has seen it", || up.opensm.count("SUBNET UP") > sweeps);
    let dropped = || counts(&up, "drops").get("drop_route_broken").copied().unwrap_or(0);
    eventually("its MADs are dropped", || dropped() > 0);
    let (before, silent) = (dropped(), answered());
    eventually("and go on to be", || dropped() > before + 1);
    assert_eq!(answered(), silent);
    up.done(&["sessions", "bind", &number, "none"]);
    eventually("unbound it is answered again", || answered() > silent);
    // what cannot be done says so and leaves it as it is
    for (arguments, part) in [
        (&["1,0"][..], "port 0 at hop 2 is out of range"),
        (&["via", "nowhere"], "nowhere"),
        (&["shortest"], "a session is bound to PORTS"),
    ] {
        let line = up.refused(&[&["sessions", "bind", &number], arguments].concat());
        assert!(line.contains(part), "{line}");
    }
    let nobody = up.refused(&["sessions", "bind", "1000", "1,3"]);
    assert!(nobody.contains("no session"), "{nobody}");
    assert_eq!(session()["path"].as_array().unwrap().len(), 0);
    assert!(server.ended().is_none());
    let ran = up.run_with(&["--path", "2,1"], &["smpquery", "nodedesc", &up.there]);
    let ours: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("mad")).collect();
    assert!(ran.code != Some(0) && ours.len() == 1, "a host has one port: {ran}");
}

#[test]
fn a_file_of_routes_is_compiled_and_applied_whole_or_not_at_all() {
    let Some(up) = up() else { return };
    let file = up.path("some.routes");
    let file = file.to_str().unwrap();
    let (here, there, other) = (&up.here, &up.there, up.lid("node-0004 HCA-1"));
    let text = format!(
        "# by name, by search, by ports\n{here} {there} via {}\n{here} {other} shortest avoid spine-00\n{other} {here} 1,3,1,1 on-broken=drop\n",
        spine(up.other)
    );
    std::fs::write(file, &text).unwrap();
    let loaded = up.done(&["routes", "load", file, "--sync"]);
    assert!(loaded.starts_with(&format!("{file}: 3 routes loaded; 3 of 1024")), "{loaded}");
    let shown = up.json(&["routes", "show"])["routes"].clone();
    let paths: Vec<String> =
        shown.as_array().unwrap().iter().map(|route| route["path"].to_string()).collect();
    assert!(
        paths.contains(&format!("[1,{},2,1]", up.other)) && paths.contains(&"[1,4,3,1]".to_owned()),
        "{paths:?}"
    );
    assert_eq!(up.done(&["routes", "check"]), "3 routes, 0 broken\n");
    for (wrong, part) in [
        ("1 2 via nowhere", ":5: "),
        ("1 48 shortest", ":5: "),
        ("1 2 1,256", ":5: port 256 at hop 2"),
        ("1 2 3 tenant=nobody", ":5: there is no tenant \"nobody\""),
    ] {
        std::fs::write(file, format!("{text}{wrong}\n")).unwrap();
        let line = up.refused(&["routes", "load", file, "--replace", "--sync"]);
        assert!(line.starts_with(file) && line.contains(part), "{wrong}: {line}");
        let now = up.json(&["routes", "show"])["routes"].clone();
        let ids = |routes: &serde_json::Value| -> Vec<String> {
            routes.as_array().unwrap().iter().map(|route| route["id"].to_string()).collect()
        };
        assert_eq!(ids(&now), ids(&shown), "{wrong}: nothing was replaced");
    }
}
