//! Tenants as an operator has them: partitions that a real OpenSM programs, stock programs as tenants and as other users.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use madctl::tenant::partitions::{Membership, Partitions, PortKind};
use support::{Background, OpenSm, Plane, Ran, User, builtin, eventually, have};

/// Leaves of two hosts under two spines.
const FABRIC: &str = "fat-tree,radix=4,levels=2";
/// The host at which OpenSM stands.
const MANAGER: u32 = 0;
const NOBODY: u32 = 65_534;

/// Hosts 1 to 4 are red, 3 and 4 of them limited; 5 and 6 are blue, 6 limited; 0 and 7 are only in the default partition.
/// `indx0`: stock programs send with the P_Key at index 0.
const PARTITIONS: &str = "\
# three partitions
Default=0x7fff,ipoib : ALL=limited, SELF=full ;
red=0x0001,indx0 : 0x026d700100000101=full, 0x026d700100000201=full,
    0x026d700100000301, 0x026d700100000401=limited ; # limited is the default
blue=0x0002,indx0,defmember=full : 0x026d700100000501, 0x026d700100000601=limited ;
";

/// What partitions.conf does not say.
const TENANTS: &str = "\
red-limited  partition=red:limited
operator     pkey=0xffff smp=get,set
reader       pkey=0xffff smp=get
spine        pkey=0xffff smp=get,set nodes=spine-00
behind       pkey=0xffff smp=get,set prefix=1.3
counters     partition=red classes=perf,sa,smp
nobody       partition=red uid=65534 smp=get
crew         partition=red gid=4242 smp=get
";

fn host(number: u32) -> String {
    format!("node-{number:04} HCA-1")
}

/// A fabric with partitions, and the tenants that go with them.
struct Up {
    // first: ends before the plane does
    _opensm: OpenSm,
    plane: Plane,
}

impl std::ops::Deref for Up {
    type Target = Plane;

    fn deref(&self) -> &Plane {
        &self.plane
    }
}

fn up(tools: &[&str]) -> Option<Up> {
    up_with(tools, &[])
}

fn up_with(tools: &[&str], options: &[&str]) -> Option<Up> {
    if !have(&["opensm", "smpquery", "saquery"]) || !have(tools) {
        return None;
    }
    let plane = Plane::up_with(&format!("builtin:{FABRIC}"), options);
    let conf = plane.path("partitions.conf");
    std::fs::write(&conf, PARTITIONS).unwrap();
    let conf = conf.to_str().unwrap();
    // no sweeps between, which would be counted
    let opensm = OpenSm::up(&plane, &host(MANAGER), &["-P", conf], &["sweep_interval 0"]);
    let loaded = plane.done(&["tenants", "load", "--partitions", conf, "--sync"]);
    assert!(loaded.starts_with(&format!("{conf}: 3 tenants loaded; 3 of ")), "{loaded}");
    let more = plane.path("more.tenants");
    std::fs::write(&more, TENANTS).unwrap();
    plane.done(&["tenants", "load", more.to_str().unwrap(), "--partitions", conf, "--sync"]);
    Some(Up { _opensm: opensm, plane })
}

impl Up {
    /// The P_Keys that `smpquery pkeys` shows of a port.
    fn p_keys(&self, lid: u16, port: u8) -> Vec<u16> {
        let text = self.ok(&["smpquery", "pkeys", &lid.to_string(), &port.to_string()]);
        let words = text.split_whitespace().filter_map(|word| word.strip_prefix("0x"));
        words.map(|word| u16::from_str_radix(word, 16).unwrap()).filter(|key| key & 0x7fff != 0).collect()
    }

    /// Runs a stock program as a tenant at a host.
    fn tool(&self, tenant: &str, at: u32, command: &[&str]) -> Ran {
        self.run_with(&["--tenant", tenant, "--at", &host(at)], command)
    }

    /// Starts `ibping -S` as a tenant, or as none, and waits until it answers.
    fn serve(&self, tenant: &str, at: u32) -> Background {
        let at = host(at);
        let options =
            if tenant.is_empty() { vec!["--at", &at] } else { vec!["--tenant", tenant, "--at", &at] };
        let server = self.spawn_with(&options, &["ibping", "-S"]);
        let pid = server.pid();
        eventually("the server has its agents", || {
            let list = self.json(&["sessions", "list"]);
            let mut sessions = list["sessions"].as_array().unwrap().iter();
            sessions.any(|of| of["pid"] == pid && of["tenant_name"] == tenant && of["agents"] == 2)
        });
        server
    }

    /// Whether an `ibping` as a tenant is answered, and which drop counters moved.
    fn ping(&self, tenant: &str, at: u32, lid: u16) -> (bool, Vec<String>) {
        let lid = lid.to_string();
        self.drops_of(|| {
            // the limit counts for each of several attempts
            let ran = self.tool(tenant, at, &["ibping", "-c", "1", "-t", "400", &lid]);
            assert!(ran.out.contains("1 packets transmitted"), "{ran}");
            ran.out.contains("1 received")
        })
    }
}

/// The lines of ours among what a stock program says.
fn ours(ran: &Ran) -> Vec<&str> {
    ran.err.lines().filter(|line| line.starts_with("madplane: ") || line.starts_with("madctl: ")).collect()
}

/// Failed, and our side said why in one line that contains `part`.
#[track_caller]
fn assert_refused(ran: &Ran, part: &str) {
    assert!(ran.code.is_some_and(|code| code != 0), "{ran}");
    assert_eq!(ours(ran).len(), 1, "{ran}");
    assert!(ours(ran)[0].contains(part), "no {part:?}: {ran}");
}

#[test]
fn every_port_has_the_p_keys_that_the_loader_reads_in_partitions_conf() {
    let Some(up) = up(&[]) else { return };
    let partitions = Partitions::parse(PARTITIONS).unwrap();
    assert_eq!(partitions.warnings(), []);
    let fabric = builtin(FABRIC);
    let manager = fabric.nodes.iter().find(|node| node.description == host(MANAGER)).unwrap();
    let manager = manager.ports[1].guid;
    let expected = |guid: u64, kind: PortKind| -> BTreeSet<u16> {
        let key = |of: &madctl::tenant::partitions::Partition| match of.membership(guid, kind, manager)? {
            Membership::Full => Some(of.p_key() | 0x8000),
            Membership::Limited => Some(of.p_key()),
        };
        partitions.iter().filter_map(key).collect()
    };
    let lids: BTreeMap<&str, u16> =
        fabric.nodes.iter().map(|node| (node.description.as_str(), up.lid(&node.description))).collect();
    let mut seen = BTreeSet::new();
    for node in &fabric.nodes {
        let lid = lids[node.description.as_str()];
        let is_switch = node.kind.letter() == 'S';
        let (own, kind) = if is_switch { (0, PortKind::Switch) } else { (1, PortKind::Ca) };
        let wanted = expected(if is_switch { node.guid } else { node.ports[1].guid }, kind);
        let found = up.p_keys(lid, own);
        assert_eq!(BTreeSet::from_iter(found.iter().copied()), wanted, "{}", node.description);
        seen.extend(found);
        // a switch port enforces what the adapter behind it may use
        for (number, port) in (0u8..).zip(&node.ports).filter(|_| is_switch) {
            let Some(peer) = port.peer.map(|peer| &fabric.nodes[peer.node as usize]) else { continue };
            if peer.kind.letter() != 'S' {
                let wanted = expected(peer.ports[1].guid, PortKind::Ca);
                let found = BTreeSet::from_iter(up.p_keys(lid, number));
                assert_eq!(found, wanted, "{}:{number}", node.description);
            }
        }
    }
    assert_eq!(seen, BTreeSet::from([0xffff, 0x7fff, 0x8001, 0x0001, 0x8002, 0x0002]));
    // the tenants are the partitions, as full members
    let shown = up.json(&["tenants", "show"]);
    for (place, partition) in partitions.iter().enumerate() {
        let tenant = &shown["tenants"][place];
        assert_eq!(tenant["name"], partition.name(), "{shown}");
        assert_eq!(tenant["p_keys"], serde_json::json!([partition.p_key() | 0x8000]), "{tenant}");
    }
    // and a tenant may ask for them by the SA, as programs do
    let own = up.tool("operator", MANAGER, &["saquery", "PKTR", "--smkey", "1"]);
    assert!(own.code == Some(0) && own.out.contains("PKeyTableRecord"), "{own}");
}

#[test]
fn ibping_works_within_a_partition_and_fails_across_by_one_named_counter() {
    // the second time senders and receivers are different workers' business
    for workers in ["1", "2"] {
        let Some(up) = up_with(&["ibping"], &["--workers", workers]) else { return };
        pings(&up);
    }
}

fn pings(up: &Up) {
    let lids: Vec<u16> = (0..8).map(|number| up.lid(&host(number))).collect();
    // the last one serves a tenant that may not use the P_Keys of its port
    let servers = [("red", 1), ("red", 2), ("red", 3), ("red", 4), ("blue", 5), ("red", 6), ("Default", 7)];
    let servers = servers.map(|(tenant, at)| up.serve(tenant, at));
    let unpaid = up.serve("", MANAGER);
    // port, enforcing switch, sending tenant, receiving tenant
    const PORT: &str = "drop_p_key";
    const SWITCH: &str = "drop_partition_enforcement";
    const SENDER: &str = "drop_tenant_p_key";
    const RECEIVER: &str = "drop_tenant_receiver_p_key";
    let cases: [(&str, u32, u32, Result<(), &str>); 18] = [
        ("red", 1, 2, Ok(())),
        ("red", 2, 1, Ok(())),
        // full and limited, both ways; two limited members
        ("red", 1, 3, Ok(())),
        ("red", 3, 1, Ok(())),
        ("red", 3, 4, Err(PORT)),
        ("red", 4, 3, Err(PORT)),
        // the tenant is limited where the port is not
        ("red-limited", 1, 2, Ok(())),
        ("red-limited", 1, 3, Err(PORT)),
        // the default partition: limited members reach the manager's host and no other
        ("Default", 7, 0, Ok(())),
        ("Default", 0, 7, Ok(())),
        ("Default", 7, 2, Err(PORT)),
        // across partitions
        ("red", 1, 5, Err(SWITCH)),
        ("blue", 5, 2, Err(SWITCH)),
        ("red", 2, 7, Err(SWITCH)),
        // the port is in a partition that the tenant is not in
        ("red", 5, 6, Err(SENDER)),
        ("blue", 1, 2, Err(SENDER)),
        ("operator", 1, 2, Err(SENDER)),
        ("blue", 5, 6, Err(RECEIVER)),
    ];
    for (tenant, from, to, expected) in cases {
        let (answered, moved) = up.ping(tenant, from, lids[to as usize]);
        let wanted: Vec<&str> = expected.err().into_iter().collect();
        assert_eq!(
            (answered, &moved[..]),
            (expected.is_ok(), &wanted.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..]),
            "{tenant} at {from} to {to}"
        );
    }
    // stages show where each was stopped
    let shown = up.json(&["counters", "show"]);
    for name in [PORT, SWITCH, SENDER, RECEIVER] {
        let one = shown["drops"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
        assert_eq!(one["stage"], "pkey", "{shown}");
    }
    for mut server in servers.into_iter().chain([unpaid]) {
        assert!(server.ended().is_none(), "{}", server.err());
    }
}

#[test]
fn smps_of_a_tenant_are_held_to_its_rights_and_its_scope() {
    let Some(up) = up(&["ibportstate", "sminfo"]) else { return };
    let (leaf, other) = (up.lid("leaf-01").to_string(), up.lid(&host(2)).to_string());
    let spine = up.lid("spine-00").to_string();
    const GET: &str = "drop_tenant_smp_get";
    const SET: &str = "drop_tenant_smp_set";
    const SCOPE: &str = "drop_tenant_scope";
    let physical = || {
        let text = up.ok(&["smpquery", "portinfo", &leaf, "1"]);
        text.lines().find(|line| line.starts_with("PhysLinkState")).unwrap().to_owned()
    };
    let cases: [(&str, &[&str], Option<&str>); 19] = [
        ("reader", &["smpquery", "nodeinfo", &other], None),
        ("reader", &["smpquery", "-D", "nodeinfo", "0,1,3,2,1"], None),
        ("reader", &["ibportstate", &leaf, "1", "query"], None),
        ("reader", &["sminfo"], None),
        ("reader", &["ibportstate", &leaf, "1", "disable"], Some(SET)),
        ("operator", &["ibportstate", &leaf, "1", "enable"], None),
        // no right at all, not even by another way; what the own port is, is no secret
        ("red", &["smpquery", "nodeinfo", &other], Some(GET)),
        ("red", &["smpquery", "-D", "nodeinfo", "0,1"], Some(GET)),
        ("red", &["smpquery", "-D", "nodeinfo", "0"], None),
        // only that node, from wherever the way leads to it
        ("spine", &["smpquery", "nodeinfo", &spine], None),
        ("spine", &["smpquery", "-D", "nodeinfo", "0,1,3"], None),
        ("spine", &["smpquery", "nodeinfo", &leaf], Some(SCOPE)),
        ("spine", &["smpquery", "-D", "nodeinfo", "0,1,4"], Some(SCOPE)),
        ("spine", &["smpquery", "-D", "nodeinfo", "0,1,3,2"], Some(SCOPE)),
        // only what lies behind those exits, and only by them
        ("behind", &["smpquery", "-D", "nodeinfo", "0,1,3"], None),
        ("behind", &["smpquery", "-D", "nodeinfo", "0,1,3,2,1"], None),
        ("behind", &["smpquery", "-D", "nodeinfo", "0,1"], Some(SCOPE)),
        ("behind", &["smpquery", "-D", "nodeinfo", "0,1,4,2"], Some(SCOPE)),
        ("behind", &["smpquery", "nodeinfo", &spine], Some(SCOPE)),
    ];
    for (tenant, command, refused) in cases {
        let before = physical();
        let (ran, moved) = up.drops_of(|| up.tool(tenant, MANAGER, command));
        assert_eq!(ran.code == Some(0), refused.is_none(), "{tenant} {command:?}: {ran}");
        assert_eq!(moved, Vec::from_iter(refused.map(str::to_owned)), "{tenant} {command:?}: {ran}");
        assert_eq!(physical(), before, "{tenant} {command:?}");
    }
}

#[test]
fn a_class_or_the_manager_bit_that_a_tenant_has_not_is_refused_in_one_line() {
    let Some(up) = up(&["perfquery", "ibping"]) else { return };
    let lid = up.lid(&host(2)).to_string();
    let asked = up.tool("counters", 1, &["perfquery", &lid, "1"]);
    assert!(asked.code == Some(0) && asked.out.contains("PortXmitPkts"), "{asked}");
    for command in [&["ibping", "-S"][..], &["ibping", "-c", "1", &lid]] {
        let (ran, moved) = up.drops_of(|| up.tool("counters", 1, command));
        assert_refused(&ran, "tenant counters may not use class 0x32");
        assert_eq!(moved, Vec::<String>::new(), "nothing was sent");
    }
    // nobody may be subnet manager but by a right: this one looks, finds the master and stays without the bit
    let folder = up.path("");
    let log = up.path("refused.log");
    let manager =
        ["env", &format!("OSM_CACHE_DIR={}", folder.display()), "opensm", "-f", log.to_str().unwrap()];
    let refused = up.spawn_with(&["--tenant", "reader", "--at", &host(7)], &manager);
    eventually("the bit is refused", || !refused.err().is_empty());
    eventually("it stands by", || refused.out().contains("STANDBY"));
    assert_eq!(refused.err(), "madplane: tenant reader may not act as subnet manager\n");
    let info = up.ok(&["smpquery", "portinfo", &up.lid(&host(7)).to_string()]);
    assert!(!info.contains("IsSM"), "{info}");
}

#[test]
fn a_tenant_that_is_none_is_refused_with_the_nearest_name() {
    let Some(up) = up(&["ibstat"]) else { return };
    let early = up.tool("raeder", 1, &["ibstat"]);
    assert_eq!(early.code, Some(1), "{early}");
    assert_refused(&early, "did you mean reader?");
    assert_eq!((early.err.lines().count(), early.out.as_str()), (1, ""), "{early}");
    // a program that was given it by the environment
    let late = up.run(&["env", "MADPLANE_TENANT=raeder", "smpquery", "nodeinfo", "1"]);
    assert_refused(&late, "there is no tenant raeder; did you mean reader?");
    let far = up.tool("xyzzy", 1, &["ibstat"]);
    assert_refused(&far, "there is no tenant \"xyzzy\"");
    assert!(!far.err.contains("did you mean"), "{far}");
}

#[test]
fn another_user_is_held_to_the_tenant_that_lists_him() {
    let Some(up) = up(&["ibping"]) else { return };
    let Some(nobody) = User::new(&up, NOBODY, &[]) else { return };
    let lid = up.lid(&host(2)).to_string();
    let _server = up.serve("red", 2);
    let (at, blue_at) = (host(1), host(5));
    let ping = ["ibping", "-c", "1", &lid];
    let answered = |user: &User<'_>, options: &[&str]| {
        let ran = user.run_with(options, &ping);
        assert!(ran.out.contains("1 received"), "{options:?}: {ran}");
    };
    // named, or not: it is the only one
    answered(&nobody, &["--tenant", "nobody", "--at", &at]);
    answered(&nobody, &["--at", &at]);
    // the tenant counts, not the port: its own P_Keys, its own rights
    let (ran, moved) = up.drops_of(|| nobody.run_with(&["--at", &blue_at], &ping));
    assert!(ran.out.contains("0 received"), "{ran}");
    assert_eq!(moved, ["drop_tenant_p_key"]);
    let seen = nobody.run_with(&["--at", &at], &["smpquery", "nodedesc", &lid]);
    assert!(seen.code == Some(0) && seen.out.contains(&host(2)), "{seen}");
    let refused = |user: &User<'_>, options: &[&str], part: &str| {
        let options = [options, &["--at", &at]].concat();
        assert_refused(&user.run_with(&options, &["smpquery", "nodeinfo", &lid]), part);
    };
    refused(&nobody, &["--tenant", "red"], "user 65534 may not be tenant red");
    refused(&nobody, &["--tenant", "operator"], "user 65534 may not be tenant operator");
    refused(&nobody, &["--tenant", "nobdy"], "did you mean nobody?");
    // by a group beside his own; by none
    let member = User::new(&up, 4001, &[4001, 4242]).unwrap();
    answered(&member, &["--at", &at]);
    let stranger = User::new(&up, 4002, &[4002]).unwrap();
    refused(&stranger, &[], "no tenant of this plane lists user 4002");
    let both = User::new(&up, NOBODY, &[4242]).unwrap();
    refused(&both, &[], "name one with MADPLANE_TENANT");
    answered(&both, &["--tenant", "crew", "--at", &at]);
    // he may look, and change nothing
    let list = nobody.madctl(&["sessions", "list"]);
    assert!(list.code == Some(0) && list.out.contains("red"), "{list}");
    for change in [&["tenants", "del", "red", "--force"][..], &["links", "down", "leaf-00:1"]] {
        let ran = nobody.madctl(change);
        assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{ran}");
        assert!(ran.err.contains("only root and the user who runs"), "{ran}");
    }
}

#[test]
fn a_deleted_tenants_session_sends_nothing_more_and_a_changed_one_is_held_to_it_at_once() {
    let Some(up) = up(&["ibping"]) else { return };
    let _server = up.serve("", 2);
    let lid = up.lid(&host(2)).to_string();
    let at = host(1);
    up.done(&["tenants", "add", "guest", "pkey=0x8001", "--sync"]);
    let guest = up.spawn_with(&["--tenant", "guest", "--at", &at], &["ibping", "-t", "100", &lid]);
    let pongs = || guest.out().matches("Pong from").count();
    // its output is a file, which it writes in blocks: what the plane counts is there at once
    let received = || {
        let list = up.json(&["sessions", "list"]);
        let mut sessions = list["sessions"].as_array().unwrap().iter();
        sessions.find(|of| of["pid"] == guest.pid()).map_or(0, |of| of["sent"].as_u64().unwrap())
    };
    eventually("the guest is answered", || received() > 0);
    let kept = up.refused(&["tenants", "del", "guest"]);
    assert!(kept.starts_with("tenant guest has 1 session"), "{kept}");
    let moves = |what: &str, name: &str| {
        let value = || support::counts(&up, "drops").get(name).copied().unwrap_or(0);
        let before = value();
        eventually(what, || value() > before);
    };
    up.done(&["tenants", "add", "guest", "pkey=0x8002", "--replace", "--sync"]);
    moves("its new P_Key counts", "drop_tenant_p_key");
    up.done(&["tenants", "add", "guest", "pkey=0x8001", "classes=perf,sa", "--replace", "--sync"]);
    moves("its new classes count", "drop_tenant_class");
    up.done(&["tenants", "add", "guest", "pkey=0x8001", "--replace", "--sync"]);
    let before = received();
    eventually("it is answered again", || received() > before);
    let gone = up.done(&["tenants", "del", "guest", "--force", "--sync"]);
    assert!(gone.contains("1 session may not send any more"), "{gone}");
    moves("nothing of it passes", "drop_tenant_gone");
    let (after, pongs_after) = (received(), pongs());
    moves("and nothing ever will", "drop_tenant_gone");
    assert_eq!((received(), pongs()), (after, pongs_after));
}

#[test]
fn a_rate_holds_a_flood_back_and_nobody_else() {
    let Some(up) = up(&["ibping"]) else { return };
    let _server = up.serve("", 2);
    let lid = up.lid(&host(2)).to_string();
    let at = host(1);
    up.done(&["tenants", "add", "slow", "pkey=0x8001", "rate=20", "burst=5", "--sync"]);
    let flood = up.spawn_with(&["--tenant", "slow", "--at", &at], &["ibping", "-f", "-t", "50", &lid]);
    eventually("the limit is felt", || support::counts(&up, "drops").contains_key("drop_tenant_rate"));
    for _ in 0..3 {
        let ran = up.tool("red", 1, &["ibping", "-c", "1", &lid]);
        assert!(ran.out.contains("1 received"), "{ran}");
    }
    drop(flood);
}
