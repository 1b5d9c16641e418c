//! The header in front of a MAD: its fields set and read for the caller.
//!
//! Works on the caller's buffer on the caller's thread and keeps nothing. Invariant: a null buffer is refused, anything
//! else is taken to be at least the 64 bytes that `umad_size` reports. The header without a P_Key index, 56 bytes, does
//! not exist here.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::{HEADER_LEN, MadAddr, UserMad};
use crate::guard::negative;

/// The header at `umad`, by value; `None` for null. Callers' buffers need not be aligned.
pub(crate) fn load_header(umad: *const c_void) -> Option<UserMad> {
    if umad.is_null() {
        return None;
    }
    // SAFETY: the caller of the C function owns at least umad_size() bytes there.
    Some(unsafe { ptr::read_unaligned(umad.cast::<UserMad>()) })
}

/// Writes the header at `umad`, which is not null.
pub(crate) fn store_header(umad: *mut c_void, header: &UserMad) {
    // SAFETY: the caller of the C function owns at least umad_size() bytes there, and load_header refused null.
    unsafe { ptr::write_unaligned(umad.cast::<UserMad>(), *header) };
}

fn change_address(umad: *mut c_void, change: impl FnOnce(&mut MadAddr)) -> c_int {
    let Some(mut header) = load_header(umad) else { return negative(libc::EINVAL) };
    change(&mut header.addr);
    store_header(umad, &header);
    0
}

/// `umad_size`: bytes in front of a MAD.
pub(crate) extern "C" fn size() -> usize {
    HEADER_LEN
}

/// `umad_get_mad`: the MAD behind the header.
pub(crate) extern "C" fn get_mad(umad: *mut c_void) -> *mut c_void {
    if umad.is_null() {
        return ptr::null_mut();
    }
    umad.wrapping_byte_add(HEADER_LEN)
}

/// `umad_get_mad_addr`: the address inside the header.
pub(crate) extern "C" fn get_mad_addr(umad: *mut c_void) -> *mut MadAddr {
    if umad.is_null() {
        return ptr::null_mut();
    }
    umad.wrapping_byte_add(std::mem::offset_of!(UserMad, addr)).cast()
}

/// `umad_status`: 0 or the errno of a request that failed.
pub(crate) extern "C" fn status(umad: *const c_void) -> c_int {
    load_header(umad).map_or(libc::EINVAL, |header| c_int::try_from(header.status).unwrap_or(libc::EIO))
}

/// `umad_set_addr`: destination in host order.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the C function cuts to the field too"
)]
pub(crate) extern "C" fn set_addr(
    umad: *mut c_void,
    dlid: c_int,
    dqp: c_int,
    sl: c_int,
    qkey: c_int,
) -> c_int {
    change_address(umad, |addr| {
        addr.qpn = (dqp as u32).to_be();
        addr.lid = (dlid as u16).to_be();
        addr.sl = sl as u8;
        addr.qkey = (qkey as u32).to_be();
    })
}

/// `umad_set_addr_net`: destination in network order, the SL in host order.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the C function cuts to the field too"
)]
pub(crate) extern "C" fn set_addr_net(umad: *mut c_void, dlid: u16, dqp: u32, sl: c_int, qkey: u32) -> c_int {
    change_address(umad, |addr| {
        addr.qpn = dqp;
        addr.lid = dlid;
        addr.sl = sl as u8;
        addr.qkey = qkey;
    })
}

/// `umad_set_grh`: takes the GRH fields of `mad_addr`, flow label in host order; null clears the GRH.
pub(crate) extern "C" fn set_grh(umad: *mut c_void, mad_addr: *const c_void) -> c_int {
    let given = if mad_addr.is_null() {
        None
    } else {
        // SAFETY: not null, and the caller passes an ib_mad_addr_t.
        Some(unsafe { ptr::read_unaligned(mad_addr.cast::<MadAddr>()) })
    };
    change_address(umad, |addr| match given {
        None => addr.grh_present = 0,
        Some(given) => {
            addr.grh_present = 1;
            addr.gid = given.gid;
            addr.gid_index = given.gid_index;
            addr.flow_label = given.flow_label.to_be();
            addr.hop_limit = given.hop_limit;
            addr.traffic_class = given.traffic_class;
        }
    })
}

/// `umad_set_pkey`: the index of the P_Key to send with.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the C function cuts to the field too"
)]
pub(crate) extern "C" fn set_pkey(umad: *mut c_void, pkey_index: c_int) -> c_int {
    change_address(umad, |addr| addr.pkey_index = pkey_index as u16)
}

/// `umad_get_pkey`: the index of the P_Key.
pub(crate) extern "C" fn get_pkey(umad: *const c_void) -> c_int {
    load_header(umad).map_or(0, |header| c_int::from(header.addr.pkey_index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_buffer(run: impl FnOnce(*mut c_void)) -> [u8; 64] {
        let mut buffer = [0xa5_u8; 64];
        run(buffer.as_mut_ptr().cast());
        buffer
    }

    #[test]
    fn set_addr_writes_big_endian_fields_and_nothing_else() {
        let buffer = with_buffer(|umad| {
            assert_eq!(set_addr(umad, 0x1234, 1, 3, i32::from_be_bytes([0x80, 1, 0, 0])), 0);
        });
        assert_eq!(buffer[..20], [0xa5; 20]);
        assert_eq!(buffer[20..32], [0, 0, 0, 1, 0x80, 1, 0, 0, 0x12, 0x34, 3, 0xa5]);
        assert_eq!(buffer[32..], [0xa5; 32]);
        let same = with_buffer(|umad| {
            assert_eq!(set_addr_net(umad, 0x1234_u16.to_be(), 1_u32.to_be(), 3, 0x8001_0000_u32.to_be()), 0);
        });
        assert_eq!(buffer, same);
    }

    #[test]
    fn grh_takes_a_host_order_flow_label_and_null_clears_it() {
        let grh = MadAddr {
            gid: [7; 16],
            gid_index: 2,
            hop_limit: 64,
            traffic_class: 9,
            flow_label: 0x1_2345,
            qpn: 99,
            ..MadAddr::default()
        };
        let mut header = UserMad::default();
        let umad = (&raw mut header).cast();
        assert_eq!(set_grh(umad, (&raw const grh).cast()), 0);
        let want = MadAddr { grh_present: 1, flow_label: 0x1_2345_u32.to_be(), qpn: 0, ..grh };
        assert_eq!(header.addr, want);
        assert_eq!(set_grh(umad, ptr::null()), 0);
        assert_eq!(header.addr, MadAddr { grh_present: 0, ..want });
    }

    #[test]
    fn pkey_index_is_in_host_order_and_pointers_are_offsets() {
        let mut header = UserMad { status: 110, ..UserMad::default() };
        let umad: *mut c_void = (&raw mut header).cast();
        assert_eq!(set_pkey(umad, 0x0102), 0);
        assert_eq!(header.addr.pkey_index, 0x0102);
        assert_eq!((get_pkey(umad), status(umad)), (0x0102, 110));
        assert_eq!(get_mad(umad) as usize - umad as usize, 64);
        assert_eq!(get_mad_addr(umad) as usize - umad as usize, 20);
    }

    #[test]
    fn null_is_refused() {
        assert_eq!(set_addr(ptr::null_mut(), 1, 1, 0, 0), -libc::EINVAL);
        assert!(get_mad(ptr::null_mut()).is_null() && get_mad_addr(ptr::null_mut()).is_null());
        assert_eq!(get_pkey(ptr::null()), 0);
    }
}
