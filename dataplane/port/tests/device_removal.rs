//! Devices that go and come: while a port on them is busy, until none is left, and a kernel without RDMA.
//!
//! Takes devices and kernel modules away, so it runs in a guest of its own (scripts/rxe-vm/test); skipped unless
//! `MADPLANE_MAY_REMOVE_DEVICES` says so.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they saw and why they are skipped"
)]

mod kept;
mod support;
#[cfg(feature = "verbs")]
mod verbs_end;

use std::process::{Child, Command};
use std::time::Duration;

use kept::{Change, DevicePort};
use madplane_port::device::devices;
use madplane_port::{MadMessage, MadRx, MadTx};
use support::{rxe_or_skip, vendor_mad, wait_for};

fn may_remove(test: &str) -> bool {
    if std::env::var_os("MADPLANE_MAY_REMOVE_DEVICES").is_none() {
        println!("{test}: skipped, it would take devices away (scripts/rxe-vm/test runs it)");
        return false;
    }
    rxe_or_skip(test)
}

fn start(command: &str) -> Child {
    Command::new("bash").arg("-c").arg(command).spawn().unwrap()
}

fn shell(command: &str) {
    assert!(start(command).wait().unwrap().success(), "{command}");
}

/// Keeps a port busy through its device's removal and return.
fn survive(spec: &str, address: madplane_shm::message::Envelope) {
    let (mut port, _) = DevicePort::open(&spec.parse().unwrap(), &[]).unwrap();
    let mut number = 0;
    let mut busy = |port: &mut DevicePort| {
        let mut buffer = [MadMessage::default(); 8];
        port.rx_burst(&mut buffer);
        port.release();
        port.tx_burst(&[MadMessage { envelope: address, mad: vendor_mad(0x03, number) }]);
        port.flush();
        number += 1;
    };
    for _ in 0..100 {
        busy(&mut port);
    }
    let mut removal = start("rdma link delete rxe0");
    let mut changes = Vec::new();
    wait_for("the removal", || {
        busy(&mut port);
        changes.extend(port.tick());
        std::thread::sleep(Duration::from_millis(5));
        changes.iter().any(|change| matches!(change, Change::Down { .. })).then_some(())
    });
    // what is left of the port is closed at the latest by the tick after; only then the kernel lets go of the device
    wait_for("the kernel to let go of the device", || {
        port.tick();
        std::thread::sleep(Duration::from_millis(20));
        removal.try_wait().unwrap().map(|status| assert!(status.success()))
    });
    assert!(!port.is_up());
    println!("{spec}: {changes:?}");
    shell("rdma link add rxe0 type rxe netdev net0");
    wait_for("its return", || {
        std::thread::sleep(Duration::from_millis(20));
        port.tick();
        port.is_up().then_some(())
    });
    busy(&mut port);
}

/// A link over queue pairs goes down with one end's device and comes back with it.
#[cfg(feature = "verbs")]
fn survive_link() {
    use madplane_port::link::LinkState;
    use verbs_end::verbs_link;
    let mut ends = [verbs_link("rxe0", "rxe1", ""), verbs_link("rxe1", "rxe0", "")];
    let mut states = |what: &str, wanted: LinkState, text: &str| {
        wait_for(what, || {
            for end in &mut ends {
                end.link.rx_burst(&mut [MadMessage::default(); 8]);
                end.link.tick(madplane_shm::process::monotonic_ns());
                end.link.tx_burst(&[MadMessage::default()]);
                end.link.flush();
            }
            std::thread::sleep(Duration::from_millis(2));
            let there = ends.iter().all(|end| end.link.state() == wanted);
            (there && ends[0].watch.text().contains(text)).then_some(())
        });
        println!("{what}: {}", ends[0].watch.text());
    };
    states("the link", LinkState::Up, "queue pair");
    let mut removal = start("rdma link delete rxe0");
    states("the removal", LinkState::Silent, "unavailable, because");
    wait_for("the kernel to let go of the device", || {
        std::thread::sleep(Duration::from_millis(20));
        removal.try_wait().unwrap().map(|status| assert!(status.success()))
    });
    shell("rdma link add rxe0 type rxe netdev net0");
    states("its return", LinkState::Up, "queue pair");
}

#[test]
fn devices_go_and_come() {
    if !may_remove("devices_go_and_come") {
        return;
    }
    survive("umad:rxe0", support::to("rxe1", 1));
    #[cfg(feature = "verbs")]
    {
        survive("verbs:rxe0", support::to("rxe1", 1));
        survive_link();
    }

    shell("rdma link delete rxe0; rdma link delete rxe1");
    assert_eq!(devices().unwrap(), [], "RDMA without devices");
    #[cfg(feature = "verbs")]
    assert_eq!(madplane_port::verbs::devices().unwrap(), Vec::<String>::new());
    let none = DevicePort::open(&"auto:rxe0".parse().unwrap(), &[]).unwrap_err();
    let last = none.last().unwrap().to_string();
    assert_eq!(last, "unavailable, because there is no RDMA device \"rxe0\"; there is none");

    // asked for devices, libibverbs has the kernel load ib_core; a kernel without RDMA has nothing to load
    shell("echo >/proc/sys/kernel/modprobe");
    shell("rmmod rdma_rxe && rmmod ib_umad && rmmod ib_uverbs && rmmod ib_core");
    assert_eq!(devices().unwrap_err().raw_os_error(), Some(libc::ENOSYS), "no RDMA");
    #[cfg(feature = "verbs")]
    assert_eq!(madplane_port::verbs::devices().unwrap_err().raw_os_error(), Some(libc::ENOSYS));
    let none = DevicePort::open(&"auto:rxe0".parse().unwrap(), &[]).unwrap_err();
    assert!(none.last().unwrap().to_string().contains("this kernel has no RDMA"), "{none:?}");
}
