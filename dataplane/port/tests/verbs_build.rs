//! How a program with the feature `verbs` finds libibverbs: when it needs it, not when it starts.
#![cfg(feature = "verbs")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they saw and why they are skipped"
)]

use madplane_port::device::Unavailable;
use madplane_port::verbs::{self, MadPort, QueueSettings};

fn is_loaded() -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains("libibverbs")
}

#[test]
fn the_library_is_no_need_of_the_program_but_found_when_it_is_called() {
    assert!(!is_loaded(), "the program names libibverbs among its needs and would not start without it");
    let found = verbs::library::load();
    assert_eq!(is_loaded(), found.is_ok(), "{found:?}");
    if let Err(why) = found {
        println!("libibverbs is not installed here: {why}");
        let refused = MadPort::open(&"verbs:any".parse().unwrap(), &QueueSettings::default()).unwrap_err();
        assert_eq!(refused, Unavailable::NoLibrary { why: why.to_owned() });
    } else if !std::path::Path::new("/sys/class/infiniband").exists() {
        assert_eq!(verbs::devices().unwrap_err().raw_os_error(), Some(libc::ENOSYS));
        let refused = MadPort::open(&"verbs:any".parse().unwrap(), &QueueSettings::default()).unwrap_err();
        assert_eq!(refused, Unavailable::NoRdma);
    }
}
