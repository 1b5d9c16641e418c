//! Two OpenSMs on two nodes: one is master, the other stands by, and they change places.

#![allow(clippy::unwrap_used)]

mod support;

use rustix::process::Signal;
use support::probe::{GET, Probe, attribute};
use support::{OpenSm, Plane, eventually, have};

const FABRIC: &str = "builtin:fat-tree,radix=8,levels=2";
const A: &str = "node-0000 HCA-1";
const B: &str = "node-0031 HCA-1";
/// Quick to notice that a master is gone, and quick to look for others.
const QUICK: [&str; 3] = ["sminfo_polling_timeout 500", "polling_retry_number 2", "sweep_interval 1"];

const STANDBY: u8 = 2;
const MASTER: u8 = 3;

fn start(plane: &Plane, at: &str, priority: &str) -> OpenSm {
    OpenSm::start(plane, at, &["-p", priority], &QUICK)
}

/// SMInfo state of the SM behind the port, `None` if there is none.
fn state(plane: &Plane, at: &str) -> Option<u8> {
    let (status, data) = Probe::open(plane, at).directed(GET, &[], attribute::SM_INFO, 0, &[])?;
    (status == 0).then_some(data[20] & 0xf)
}

#[track_caller]
fn wait_for(plane: &Plane, a: u8, b: u8) {
    let mut last = (None, None);
    eventually("the managers have these states", || {
        last = (state(plane, A), state(plane, B));
        last == (Some(a), Some(b))
    });
}

/// The SM that the port at `at` obeys, by the LID in its PortInfo and by asking there.
fn master_seen_from(plane: &Plane, at: &str) -> String {
    plane.ok_at(at, &["sminfo"])
}

#[test]
fn the_higher_priority_is_master_and_the_other_takes_over_when_it_is_killed() {
    if !have(&["opensm", "sminfo", "ibstat"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let mut first = start(&plane, A, "10");
    first.wait_for("SUBNET UP", 1);
    let mut second = start(&plane, B, "5");
    second.wait_for("Entering STANDBY state", 1);
    wait_for(&plane, MASTER, STANDBY);
    assert!(master_seen_from(&plane, "node-0010 HCA-1").contains("priority 10 state 3 SMINFO_MASTER"));
    assert_eq!(second.count("SUBNET UP"), 0, "a standby does not configure");
    first.process.kill();
    second.wait_for("Entering MASTER state", 1);
    second.wait_for("SUBNET UP", 1);
    let seen = master_seen_from(&plane, "node-0010 HCA-1");
    assert!(seen.contains("priority 5 state 3 SMINFO_MASTER"), "{seen}");
    assert_eq!(state(&plane, A), None, "the IsSM bit of the killed one is gone and nobody answers");
    // the new master configures: a link that goes down is swept
    let sweeps = second.count("SUBNET UP");
    assert_eq!(plane.madctl(&["links", "down", "leaf-03:2"]).code, Some(0));
    second.wait_for("SUBNET UP", sweeps + 1);
    // the first comes back with the higher priority, and the second hands over
    let mut first = start(&plane, A, "10");
    first.wait_for("Entering MASTER state", 1);
    second.wait_for("Entering STANDBY state", 2);
    wait_for(&plane, MASTER, STANDBY);
    first.wait_for("SUBNET UP", 1);
    assert!(master_seen_from(&plane, B).contains("priority 10 state 3"));
}

#[test]
fn a_newcomer_of_lower_priority_stands_by_and_follows_an_orderly_end() {
    if !have(&["opensm", "sminfo"]) {
        return;
    }
    let plane = Plane::up(FABRIC);
    let mut second = start(&plane, B, "8");
    second.wait_for("SUBNET UP", 1);
    let mut first = start(&plane, A, "3");
    first.wait_for("Entering STANDBY state", 1);
    wait_for(&plane, STANDBY, MASTER);
    second.process.signal(Signal::TERM);
    second.process.wait();
    first.wait_for("Entering MASTER state", 1);
    first.wait_for("SUBNET UP", 1);
    let seen = master_seen_from(&plane, "node-0010 HCA-1");
    assert!(seen.contains("priority 3 state 3 SMINFO_MASTER"), "{seen}");
}
