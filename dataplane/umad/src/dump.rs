//! Headers printed for people, and the trace level.
//!
//! Writes to standard error only, a failing write is nobody's problem. The level is one word for the process, changed
//! by `umad_debug` and read by [`trace`]; at 0, the default, nothing is printed.

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::abi::{MadAddr, UserMad};
use crate::address::load_header;
use crate::guard::guarded;

static LEVEL: AtomicI32 = AtomicI32::new(0);

/// `umad_debug`: sets the level and returns it; a negative one only asks.
pub(crate) extern "C" fn debug(level: c_int) -> c_int {
    if level >= 0 {
        LEVEL.store(level, Ordering::Relaxed);
    }
    LEVEL.load(Ordering::Relaxed)
}

/// Prints a line on standard error.
pub(crate) fn complain(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "madplane: {line}");
}

/// Prints a line if the level is at least 1. The arguments cost nothing otherwise.
pub(crate) fn trace(line: std::fmt::Arguments<'_>) {
    if LEVEL.load(Ordering::Relaxed) > 0 {
        complain(line);
    }
}

/// `umad_addr_dump`.
pub(crate) extern "C" fn addr_dump(addr: *const MadAddr) {
    guarded((), || {
        if addr.is_null() {
            return;
        }
        // SAFETY: not null, and the caller passes an ib_mad_addr_t.
        let addr = unsafe { addr.read_unaligned() };
        let _ = writeln!(std::io::stderr(), "{}", address_text(&addr));
    });
}

/// `umad_dump`.
pub(crate) extern "C" fn dump(umad: *const c_void) {
    guarded((), || {
        if let Some(header) = load_header(umad) {
            let _ = writeln!(std::io::stderr(), "{}", header_text(&header));
        }
    });
}

fn header_text(header: &UserMad) -> String {
    format!(
        "agent {} status {} timeout {} ms, {} retries, length {}\n{}",
        header.agent_id,
        header.status,
        header.timeout_ms,
        header.retries,
        header.length,
        address_text(&header.addr)
    )
}

fn address_text(addr: &MadAddr) -> String {
    let mut text = format!(
        "qpn {:#x} qkey {:#x} lid {:#x} sl {} path bits {} pkey index {}",
        u32::from_be(addr.qpn),
        u32::from_be(addr.qkey),
        u16::from_be(addr.lid),
        addr.sl,
        addr.path_bits,
        addr.pkey_index
    );
    if addr.grh_present != 0 {
        let gid = u128::from_be_bytes(addr.gid);
        let _ = write!(
            text,
            "\ngrh: gid index {} hop limit {} traffic class {:#x} flow label {:#x} gid {gid:#034x}",
            addr.gid_index,
            addr.hop_limit,
            addr.traffic_class,
            u32::from_be(addr.flow_label)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_level_only_asks() {
        assert_eq!(debug(3), 3);
        assert_eq!(debug(-1), 3);
        assert_eq!(debug(0), 0);
    }

    #[test]
    fn a_grh_is_shown_only_if_present() {
        let mut addr = MadAddr { lid: 0x12_u16.to_be(), qpn: 1_u32.to_be(), ..MadAddr::default() };
        addr.gid[15] = 0xab;
        assert_eq!(address_text(&addr), "qpn 0x1 qkey 0x0 lid 0x12 sl 0 path bits 0 pkey index 0");
        addr.grh_present = 1;
        assert!(address_text(&addr).ends_with("gid 0x000000000000000000000000000000ab"));
    }
}
