//! Two planes in one machine, each with half of a fat tree, linked over queue pairs of two devices.
//!
//! Needs the devices `rxe0` and `rxe1` of scripts/rxe-vm, programs with the feature `verbs` and stock tools beside it; `scripts/rxe-vm/test`
//! puts all of that into the guest.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use support::joined::{Joined, Over, links_of};
use support::{eventually, have, kill, run, skip};

fn over_devices() -> Option<Over> {
    let (mut hosts, mut via) = (Vec::new(), Vec::new());
    for device in ["rxe0", "rxe1"] {
        let gid = Path::new("/sys/class/infiniband").join(device).join("ports/1/gids/0");
        let Ok(gid) = std::fs::read_to_string(gid) else {
            assert!(std::env::var_os("MADPLANE_REQUIRE_RXE").is_none(), "{device} has to be here");
            eprintln!("SKIPPED: there is no device {device} (scripts/rxe-vm/test runs it)");
            return None;
        };
        hosts.push(gid.trim().parse::<std::net::Ipv6Addr>().unwrap().to_string());
        via.push(format!("verbs:{device},gid=0"));
    }
    if !have(&["opensm", "ibnetdiscover", "ibping", "saquery"]) {
        skip("no stock tools");
        return None;
    }
    Some(Over { hosts, via, ..Over::default() })
}

#[test]
fn two_halves_over_verbs_are_one_subnet_and_a_killed_half_comes_back_whole() {
    let Some(over) = over_devices() else { return };
    let joined = Joined::up(2, over);
    for plane in &joined.planes {
        for link in links_of(plane) {
            println!("{} port {}: {}", link["node"], link["port"], link["transport"]);
            assert!(link["transport"].as_str().unwrap().contains("queue pair"), "{link}");
            assert_eq!(link["refused"]["peers"], 0, "{link}");
        }
    }
    let mut opensm = joined.assert_one_subnet();
    joined.assert_survives_a_killed_part(&mut opensm);
    println!("{} of {} MADs lost", joined.sum("lost"), joined.sum("sent"));
}

#[test]
fn a_link_says_why_its_device_cannot_be_used_and_comes_up_when_it_can() {
    let Some(over) = over_devices() else { return };
    let joined = Joined::up(2, over);
    let [one, other] = &joined.planes[..] else { panic!("two planes") };
    let link = links_of(one)[0]["spec"].as_str().unwrap().to_owned();
    let words: Vec<&str> = link.split(' ').collect();
    let (port, peer) = (words[0], &words[2]["peer=".len()..]);
    one.done(&["links", "del", port]);
    let add = |via: &str, peer: &str| one.refused(&["links", "add", port, "--via", via, "--peer", peer]);
    assert!(add("verbs:rxe7", peer).contains("unavailable, because there is no RDMA device \"rxe7\""));
    assert!(add("verbs:rxe0,pkey=0x8001", peer).contains("no P_Key 0x8001"));
    assert!(add("verbs:rxe0", "fe80::1,link=a b").contains("names no link"));
    let states = || links_of(other).iter().filter(|link| link["state"] == "up").count();
    let all = links_of(other).len();
    eventually("the other end sees it go", || states() == all - 1);
    one.done(&["links", "add", port, "--via", "verbs:rxe0", "--peer", peer]);
    eventually("all links are up again", || states() == all);
}

#[test]
fn planes_outlive_their_devices_and_have_their_links_again_when_these_return() {
    if std::env::var_os("MADPLANE_MAY_REMOVE_DEVICES").is_none() {
        eprintln!("SKIPPED: it would take devices away (scripts/rxe-vm/test runs it)");
        return;
    }
    let Some(over) = over_devices() else { return };
    let joined = Joined::up(2, over);
    let [one, other] = &joined.planes[..] else { panic!("two planes") };
    let pids = [one.plane_pid(), other.plane_pid()];
    shell("rdma link delete rxe0");
    eventually("its links say why they are down", || {
        links_of(one).iter().all(|link| {
            let why = link["transport"].as_str().unwrap().to_owned();
            link["state"] == "silent" && why.starts_with("unavailable, because ")
        })
    });
    eventually("the other plane's links are down", || {
        links_of(other).iter().all(|link| link["state"] == "silent")
    });
    shell("rdma link add rxe0 type rxe netdev net0");
    joined.wait_for_links();
    assert_eq!([one.plane_pid(), other.plane_pid()], pids, "nobody was started again");
    // a plane that begins without its device gets its links when the device comes
    kill(other.plane_pid().unwrap(), Signal::KILL);
    eventually("the plane is dead", || other.plane_pid().is_none());
    shell("rdma link delete rxe1");
    joined.start(1);
    for link in links_of(other) {
        let why = link["transport"].as_str().unwrap();
        assert_eq!(link["state"], "unavailable", "{link}");
        assert!(why.starts_with("unavailable, because there is no RDMA device"), "{why}");
    }
    assert_eq!(links_of(other).len(), links_of(one).len());
    shell("rdma link add rxe1 type rxe netdev net1");
    joined.wait_for_links();
}

fn shell(command: &str) {
    let ran = run(Command::new("bash").arg("-c").arg(command));
    assert_eq!(ran.code, Some(0), "{command}: {ran}");
}
