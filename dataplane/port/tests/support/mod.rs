//! Helpers of the tests that need RDMA devices: two soft-RoCE devices, `rxe0` and `rxe1`, as scripts/rxe-vm makes them.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they saw and why they are skipped"
)]

use std::time::{Duration, Instant};

use madplane_port::{MadMessage, MadRx};
use madplane_shm::message::{Envelope, flag, kind};

/// Q_Key of queue pair 1, and of those who talk with it.
pub(crate) const GSI_Q_KEY: u32 = 0x8001_0000;
/// Vendor class with OUI, and an OUI of nobody (locally administered).
pub(crate) const CLASS: u8 = 0x30;
pub(crate) const OUI: [u8; 3] = [0x02, 0x6d, 0x70];
/// Gives up here; a polling guest on a busy host needs seconds.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

/// True if both devices are there. Without them the test is skipped, unless it has to run.
pub(crate) fn rxe_or_skip(test: &str) -> bool {
    let there =
        ["rxe0", "rxe1"].iter().all(|name| std::path::Path::new("/sys/class/infiniband").join(name).exists());
    if !there {
        assert!(std::env::var_os("MADPLANE_REQUIRE_RXE").is_none(), "{test}: rxe0 and rxe1 have to be here");
        println!("{test}: skipped, there are no devices rxe0 and rxe1 (scripts/rxe-vm/test runs it)");
    }
    there
}

/// First GID of a device's port 1.
pub(crate) fn gid_of(device: &str) -> [u8; 16] {
    let text = std::fs::read_to_string(format!("/sys/class/infiniband/{device}/ports/1/gids/0")).unwrap();
    let address: std::net::Ipv6Addr = text.trim().parse().unwrap();
    address.octets()
}

/// Envelope of a MAD to a queue pair of a device.
pub(crate) fn to(device: &str, pair: u32) -> Envelope {
    Envelope {
        kind: kind::MAD,
        flags: flag::GRH,
        gid: gid_of(device),
        hop_limit: 64,
        dst_qp: pair,
        q_key: GSI_Q_KEY,
        length: 256,
        ..Envelope::default()
    }
}

/// A vendor MAD that says `number`: in the lower half of its transaction id, and in all that follows its headers.
pub(crate) fn vendor_mad(method: u8, number: u32) -> [u8; 256] {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, CLASS, 1, method]);
    mad[12..16].copy_from_slice(&number.to_be_bytes());
    mad[37..40].copy_from_slice(&OUI);
    mad[40..].fill(number.to_le_bytes()[0]);
    mad
}

/// The number in a [`vendor_mad`].
pub(crate) fn number_of(mad: &[u8; 256]) -> u32 {
    u32::from_be_bytes([mad[12], mad[13], mad[14], mad[15]])
}

/// Calls `step` until it gives something.
pub(crate) fn wait_for<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(result) = step() {
            return result;
        }
        assert!(begun.elapsed() < WATCHDOG, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// Receives one MAD.
pub(crate) fn receive(port: &mut dyn MadRx, what: &str) -> MadMessage {
    wait_for(what, || {
        let mut buffer = [MadMessage::default()];
        let count = port.rx_burst(&mut buffer);
        port.release();
        (count == 1).then_some(buffer[0])
    })
}

/// Waits until a descriptor is readable; false after a while.
pub(crate) fn sleep_on(fd: std::os::fd::BorrowedFd<'_>, millis: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let limit = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
    matches!(poll(&mut fds, Some(&limit)), Ok(ready) if ready > 0)
}
