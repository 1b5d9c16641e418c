//! Registering agents: `umad_register` and its relatives.
//!
//! Runs on the caller's thread; each call asks the plane once. Only arguments are translated; the rules (which queue pair,
//! RMPP, method conflicts) are checked by session and plane, as the kernel checks them. Invariant: the older functions
//! fail with `-EPERM` whatever the reason, the newer one returns the reason as a positive errno.

use std::ffi::{c_int, c_void};

use madplane_client::AgentSpec;
use madplane_wire::mad::{is_smp_class, is_vendor2};

use crate::abi::{RegAttr, USER_RMPP};
use crate::dump::trace;
use crate::guard::{guarded, negative};
use crate::plane::report_text;
use crate::ports;

/// OUI that `umad_register` uses for classes of vendor range 2.
const OPENIB_OUI: u32 = 0x00_1405;

/// Queue pair of a class.
fn queue_pair(mgmt_class: u8) -> u8 {
    u8::from(!is_smp_class(mgmt_class))
}

/// Registers; the agent or an errno.
fn registered(portid: c_int, spec: &AgentSpec) -> Result<u32, c_int> {
    let port = ports::enter(portid).ok_or(libc::EBADF)?;
    port.session.register(spec).map_err(|error| {
        // what a tenant may not do: programs say only that it failed
        if error.errno() == libc::EPERM {
            report_text(&error.to_string());
        } else {
            trace(format_args!("registering class {:#04x} failed: {error}", spec.mgmt_class));
        }
        error.errno()
    })
}

fn agent_or_eperm(result: Result<u32, c_int>) -> c_int {
    result.ok().and_then(|agent| c_int::try_from(agent).ok()).unwrap_or_else(|| negative(libc::EPERM))
}

/// The 128 bits at `mask`; none for null.
fn method_mask(mask: *const c_void) -> [u64; 2] {
    if mask.is_null() {
        return [0; 2];
    }
    // SAFETY: not null, and the caller passes 16 bytes.
    unsafe { mask.cast::<[u64; 2]>().read_unaligned() }
}

/// `umad_register`: an agent of a class, for vendor range 2 with the OpenIB OUI.
pub(crate) extern "C" fn register(
    portid: c_int,
    mgmt_class: c_int,
    mgmt_version: c_int,
    rmpp_version: u8,
    mask: *const c_void,
) -> c_int {
    guarded(-libc::EPERM, || {
        let (Ok(mgmt_class), Ok(class_version)) = (u8::try_from(mgmt_class), u8::try_from(mgmt_version))
        else {
            return negative(libc::EPERM);
        };
        let spec = AgentSpec {
            qpn: queue_pair(mgmt_class),
            mgmt_class,
            class_version,
            rmpp_version,
            user_rmpp: false,
            method_mask: method_mask(mask),
            oui: if is_vendor2(mgmt_class) { OPENIB_OUI } else { 0 },
        };
        agent_or_eperm(registered(portid, &spec))
    })
}

/// `umad_register_oui`: an agent of a class of vendor range 2.
pub(crate) extern "C" fn register_oui(
    portid: c_int,
    mgmt_class: c_int,
    rmpp_version: u8,
    oui: *const u8,
    mask: *const c_void,
) -> c_int {
    guarded(-libc::EPERM, || {
        let Some(mgmt_class) = u8::try_from(mgmt_class).ok().filter(|class| is_vendor2(*class)) else {
            return negative(libc::EINVAL);
        };
        if oui.is_null() {
            return negative(libc::EINVAL);
        }
        // SAFETY: not null, and the caller passes three bytes.
        let [high, middle, low] = unsafe { oui.cast::<[u8; 3]>().read() };
        let spec = AgentSpec {
            qpn: 1,
            mgmt_class,
            class_version: 1,
            rmpp_version,
            user_rmpp: false,
            method_mask: method_mask(mask),
            oui: u32::from_be_bytes([0, high, middle, low]),
        };
        agent_or_eperm(registered(portid, &spec))
    })
}

/// `umad_register2`: an agent described by a structure; 0, or a positive errno.
pub(crate) extern "C" fn register2(portid: c_int, attr: *mut RegAttr, agent_id: *mut u32) -> c_int {
    guarded(libc::EIO, || {
        if attr.is_null() || agent_id.is_null() {
            return libc::EINVAL;
        }
        // SAFETY: not null, and the caller passes a umad_reg_attr.
        let mut wanted = unsafe { attr.read_unaligned() };
        if wanted.flags & !USER_RMPP != 0 {
            wanted.flags = USER_RMPP;
            // SAFETY: as for the read.
            unsafe { attr.write_unaligned(wanted) };
            return libc::EINVAL;
        }
        match registered(portid, &spec_of(&wanted)) {
            Ok(agent) => {
                // SAFETY: not null, and the caller passes a 32-bit number.
                unsafe { agent_id.write_unaligned(agent) };
                0
            }
            Err(errno) => errno,
        }
    })
}

fn spec_of(wanted: &RegAttr) -> AgentSpec {
    AgentSpec {
        qpn: queue_pair(wanted.mgmt_class),
        mgmt_class: wanted.mgmt_class,
        class_version: wanted.mgmt_class_version,
        rmpp_version: wanted.rmpp_version,
        user_rmpp: wanted.flags & USER_RMPP != 0,
        method_mask: wanted.method_mask,
        oui: wanted.oui,
    }
}

/// `umad_unregister`.
pub(crate) extern "C" fn unregister(portid: c_int, agentid: c_int) -> c_int {
    guarded(-libc::EIO, || {
        let Some(port) = ports::enter(portid) else { return negative(libc::EBADF) };
        let Ok(agent) = u32::try_from(agentid) else { return negative(libc::EINVAL) };
        port.session.unregister(agent).map_or_else(|error| negative(error.errno()), |()| 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn smp_classes_use_qp0_and_all_others_qp1() {
        assert_eq!((queue_pair(0x01), queue_pair(0x81)), (0, 0));
        for class in [0x00, 0x03, 0x04, 0x09, 0x32, 0x80] {
            assert_eq!(queue_pair(class), 1, "{class:#x}");
        }
    }

    #[test]
    fn failures_have_the_sign_and_number_of_the_original() {
        assert_eq!(register(-1, 1, 1, 0, ptr::null()), -libc::EPERM);
        assert_eq!(register(-1, 0x101, 1, 0, ptr::null()), -libc::EPERM);
        let oui = [0, 0x14, 0x05];
        assert_eq!(register_oui(-1, 0x2f, 0, oui.as_ptr(), ptr::null()), -libc::EINVAL);
        assert_eq!(register_oui(-1, 0x32, 0, oui.as_ptr(), ptr::null()), -libc::EPERM);
        let mut attr = RegAttr { mgmt_class: 3, flags: 6, ..RegAttr::default() };
        let mut agent = 99;
        assert_eq!(register2(-1, &raw mut attr, &raw mut agent), libc::EINVAL);
        assert_eq!(attr.flags, USER_RMPP, "says what is supported");
        assert_eq!(register2(-1, &raw mut attr, &raw mut agent), libc::EBADF);
        assert_eq!(agent, 99);
        assert_eq!(unregister(-1, 0), -libc::EBADF);
    }

    #[test]
    fn a_mask_is_128_bits_of_memory() {
        let mask = [1_u64 << 5, 1 << 2];
        assert_eq!(method_mask(mask.as_ptr().cast()), mask);
        assert_eq!(method_mask(ptr::null()), [0, 0]);
        let wanted = RegAttr {
            mgmt_class: 0x81,
            flags: 1,
            rmpp_version: 1,
            oui: 7,
            method_mask: mask,
            ..RegAttr::default()
        };
        let spec = spec_of(&wanted);
        assert_eq!((spec.qpn, spec.user_rmpp, spec.method_mask, spec.oui), (0, true, mask, 7));
    }
}
