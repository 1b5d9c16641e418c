//! The C functions of `include/madclient.h`.
//!
//! Called by foreign threads; as thread-safe as [`Session`]. Invariants: every pointer is checked for null, a panic becomes
//! `-EIO`, results are 0 or a negative errno, `errno` itself is left alone. What it does not do: keep anything beyond the
//! session behind the handle.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use madplane_shm::message::{Envelope, flag};
use madplane_shm::table::MAX_PATH_PORTS;
use rustix::io::Errno;

use crate::{AgentSpec, PlanePaths, RecvError, Session, SessionOptions, Taken, TenantName, WaitPolicy};

/// `struct madclient_info`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "described in the header")]
pub struct Info {
    pub node_guid: u64,
    pub port_guid: u64,
    pub system_image_guid: u64,
    pub session_id: u32,
    pub port: u8,
    pub node_type: u8,
    pub num_ports: u8,
    pub reserved: u8,
}

/// `struct madclient_agent`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "described in the header")]
pub struct CAgent {
    pub qpn: u8,
    pub mgmt_class: u8,
    pub class_version: u8,
    pub rmpp_version: u8,
    pub oui: u32,
    pub method_mask: [u64; 2],
    pub user_rmpp: u32,
    pub reserved: u32,
}

/// `struct madclient_address`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "described in the header")]
pub struct Address {
    pub lid: u16,
    pub sl: u8,
    pub path_bits: u8,
    pub qp: u32,
    pub q_key: u32,
    pub p_key_index: u16,
    pub grh_present: u8,
    pub gid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u16,
    pub flow_label: u32,
    pub gid: [u8; 16],
}

/// `struct madclient_packet`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "described in the header")]
pub struct Packet {
    pub agent: u32,
    pub status: u32,
    pub length: u64,
    pub address: Address,
}

const _: () = {
    assert!(size_of::<Info>() == 32);
    assert!(size_of::<CAgent>() == 32);
    assert!(size_of::<Address>() == 40);
    assert!(size_of::<Packet>() == 56);
};

/// `MADCLIENT_DROP_BROKEN`.
const DROP_BROKEN: u32 = 1;
/// `EINVAL` as a result.
const INVALID: c_int = -Errno::INVAL.raw_os_error();

fn guarded(body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(-Errno::IO.raw_os_error())
}

fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    if pointer.is_null() {
        return Some("");
    }
    // SAFETY: not null; the header asks callers for a terminated string that lives during the call.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

fn session<'a>(handle: *const Session) -> Option<&'a Session> {
    // SAFETY: null is caught by `as_ref`; other handles come from `madclient_open` and have not been closed (header).
    unsafe { handle.as_ref() }
}

fn envelope_of(address: &Address) -> Envelope {
    Envelope {
        flags: if address.grh_present != 0 { flag::GRH } else { 0 },
        dlid: address.lid,
        sl: address.sl,
        path_bits: address.path_bits,
        p_key_index: address.p_key_index,
        dst_qp: address.qp,
        q_key: address.q_key,
        flow_label: address.flow_label,
        gid_index: address.gid_index,
        hop_limit: address.hop_limit,
        traffic_class: address.traffic_class,
        gid: address.gid,
        ..Envelope::default()
    }
}

/// Where a packet came from, or where a request that comes back had been sent.
fn address_of(envelope: &Envelope, comes_back: bool) -> Address {
    let (lid, qp) =
        if comes_back { (envelope.dlid, envelope.dst_qp) } else { (envelope.slid, envelope.src_qp) };
    Address {
        lid,
        sl: envelope.sl,
        path_bits: envelope.path_bits,
        qp,
        q_key: envelope.q_key,
        p_key_index: envelope.p_key_index,
        grh_present: u8::from(envelope.flags & flag::GRH != 0),
        gid_index: envelope.gid_index,
        hop_limit: envelope.hop_limit,
        traffic_class: envelope.traffic_class,
        reserved: 0,
        flow_label: envelope.flow_label,
        gid: envelope.gid,
    }
}

/// Opens a session; see the header.
///
/// # Safety
/// - `plane` and `selector` are null or terminated strings.
/// - `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_open(
    plane: *const c_char,
    selector: *const c_char,
    out: *mut *mut Session,
) -> c_int {
    // SAFETY: the same promises; no tenant is named.
    unsafe { madclient_open_as(plane, selector, std::ptr::null(), out) }
}

/// Opens a session as a tenant; see the header.
///
/// # Safety
/// - `plane`, `selector` and `tenant` are null or terminated strings.
/// - `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_open_as(
    plane: *const c_char,
    selector: *const c_char,
    tenant: *const c_char,
    out: *mut *mut Session,
) -> c_int {
    guarded(|| {
        let (Some(plane), Some(selector), Some(tenant)) = (text(plane), text(selector), text(tenant)) else {
            return INVALID;
        };
        let Ok(tenant) = TenantName::new(tenant) else { return INVALID };
        if out.is_null() {
            return INVALID;
        }
        let name = if plane.is_empty() { madplane_shm::paths::DEFAULT_NAME } else { plane };
        let Ok(paths) = PlanePaths::new(name) else { return INVALID };
        match Session::open(&paths, selector, &SessionOptions { tenant, ..SessionOptions::default() }) {
            Ok(session) => {
                let handle = Box::into_raw(Box::new(session));
                // SAFETY: not null, and the caller lets us write it.
                unsafe { out.write(handle) };
                0
            }
            Err(error) => -error.errno(),
        }
    })
}

/// Closes a session; see the header.
///
/// # Safety
/// - `handle` is null or comes from [`madclient_open`] and is not used by any thread from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_close(handle: *mut Session) {
    if !handle.is_null() {
        // SAFETY: it was made by `Box::into_raw` and the caller gives it up.
        let session = unsafe { Box::from_raw(handle) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(session)));
    }
}

/// Has receives wait in another way; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
/// - `wait` is null or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_set_wait(handle: *const Session, wait: *const c_char) -> c_int {
    guarded(|| {
        let Some(session) = session(handle) else { return INVALID };
        let wait = match text(wait) {
            None => return INVALID,
            Some("") => Ok(WaitPolicy::Environment),
            Some(wait) => wait.parse(),
        };
        match wait.and_then(|wait| session.set_wait(wait)) {
            Ok(()) => 0,
            Err(_) => INVALID,
        }
    })
}

/// Wakes all threads of a session for good; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_shutdown(handle: *const Session) -> c_int {
    guarded(|| {
        let Some(session) = session(handle) else { return INVALID };
        session.close();
        0
    })
}

/// Says where a session is attached; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
/// - `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_get_info(handle: *const Session, out: *mut Info) -> c_int {
    guarded(|| {
        let Some(session) = session(handle) else { return INVALID };
        if out.is_null() {
            return INVALID;
        }
        let from = session.info();
        let info = Info {
            node_guid: from.node_guid,
            port_guid: from.port_guid,
            system_image_guid: from.system_image_guid,
            session_id: from.session_id,
            port: from.port,
            node_type: from.node_type,
            num_ports: from.num_ports,
            reserved: 0,
        };
        // SAFETY: not null, and the caller lets us write it.
        unsafe { out.write(info) };
        0
    })
}

/// Gives a session a path of its own; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
/// - `ports` is null with a `count` of 0, or has `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_bind_path(
    handle: *const Session,
    ports: *const u8,
    count: usize,
    flags: u32,
) -> c_int {
    guarded(|| {
        let Some(session) = session(handle) else { return INVALID };
        if flags & !DROP_BROKEN != 0 || (ports.is_null() && count != 0) || count > MAX_PATH_PORTS {
            return INVALID;
        }
        let ports = if count == 0 {
            &[]
        } else {
            // SAFETY: not null, and the caller says that so many bytes, few enough for a slice, may be read.
            unsafe { std::slice::from_raw_parts(ports, count) }
        };
        session.bind_path(ports, flags & DROP_BROKEN != 0).map_or_else(|error| -error.errno(), |()| 0)
    })
}

/// Registers an agent; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
/// - `spec` is null or may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_register(handle: *const Session, spec: *const CAgent) -> c_int {
    guarded(|| {
        // SAFETY: null is caught by `as_ref`, else the caller lets us read it.
        let (Some(session), Some(spec)) = (session(handle), unsafe { spec.as_ref() }) else { return INVALID };
        let spec = AgentSpec {
            qpn: spec.qpn,
            mgmt_class: spec.mgmt_class,
            class_version: spec.class_version,
            rmpp_version: spec.rmpp_version,
            user_rmpp: spec.user_rmpp != 0,
            method_mask: spec.method_mask,
            oui: spec.oui,
        };
        match session.register(&spec) {
            Ok(agent) => c_int::try_from(agent).unwrap_or(INVALID),
            Err(error) => -error.errno(),
        }
    })
}

/// Removes an agent; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_unregister(handle: *const Session, agent: u32) -> c_int {
    guarded(|| {
        let Some(session) = session(handle) else { return INVALID };
        session.unregister(agent).map_or_else(|error| -error.errno(), |()| 0)
    })
}

/// Sends a MAD or an RMPP message; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
/// - `address` is null or may be read; `data` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_send(
    handle: *const Session,
    agent: u32,
    address: *const Address,
    data: *const c_void,
    length: usize,
    timeout_ms: u32,
    retries: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: null is caught by `as_ref`, else the caller lets us read it.
        let (Some(session), Some(address)) = (session(handle), unsafe { address.as_ref() }) else {
            return INVALID;
        };
        if data.is_null() || isize::try_from(length).is_err() {
            return INVALID;
        }
        // SAFETY: not null, and the caller says that so many bytes may be read.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
        let envelope = envelope_of(address);
        let outgoing = crate::Outgoing { agent, envelope, data, timeout_ms, retries };
        session.send(&outgoing).map_or_else(|error| -error.errno(), |()| 0)
    })
}

/// Receives a packet; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
/// - `packet` is null or may be written; `buffer` is null or has `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_recv(
    handle: *const Session,
    packet: *mut Packet,
    buffer: *mut c_void,
    size: usize,
    timeout_ms: c_int,
) -> c_int {
    guarded(|| {
        let Some(session) = session(handle) else { return INVALID };
        if packet.is_null() || buffer.is_null() {
            return INVALID;
        }
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let result = session.recv_with(timeout, |incoming| {
            let shown = Packet {
                agent: incoming.agent,
                status: incoming.status,
                length: incoming.data.len() as u64,
                address: address_of(incoming.envelope, incoming.status != 0),
            };
            // SAFETY: not null, and the caller lets us write it.
            unsafe { packet.write(shown) };
            if incoming.data.len() > size {
                return Taken::Keep(-Errno::NOSPC.raw_os_error());
            }
            // SAFETY: the buffer is not null and has `size` bytes, no fewer than are copied.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    incoming.data.as_ptr(),
                    buffer.cast::<u8>(),
                    incoming.data.len(),
                );
            }
            Taken::Done(0)
        });
        match result {
            Ok(code) => code,
            Err(RecvError::TimedOut) if timeout_ms == 0 => -Errno::AGAIN.raw_os_error(),
            Err(error) => -error.errno(),
        }
    })
}

/// The pollable descriptor; see the header.
///
/// # Safety
/// - `handle` is null or an open session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madclient_fd(handle: *const Session) -> c_int {
    guarded(|| {
        let Some(session) = session(handle) else { return INVALID };
        session.watch();
        session.pollable_fd().as_raw_fd()
    })
}
