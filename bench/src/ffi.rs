//! The stock libibmad, loaded when asked for: opens a port and asks for NodeInfo along a directed route.
//!
//! The library is not linked, so that everything else runs without it, and a preloaded libibumad takes effect as it does
//! for any tool. Used by one thread. What it does not do: anything else of libibmad.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use libloading::Library;

use crate::error::BenchError;

/// Length of an SMP attribute.
pub const DATA_LEN: usize = 64;

const NODE_INFO: c_uint = 0x11;
const SUBN_DIRECTED: c_int = 0x81;
const SUBN_LID: c_int = 0x1;

/// `ib_portid_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct PortId {
    lid: c_int,
    hops: c_int,
    path: [u8; 64],
    dr_slid: u16,
    dr_dlid: u16,
    grh_present: c_int,
    gid: [u8; 16],
    qp: u32,
    q_key: u32,
    sl: u8,
    p_key_index: c_uint,
}

const _: () = assert!(size_of::<PortId>() == 112 && std::mem::offset_of!(PortId, grh_present) == 76);

type OpenPort = unsafe extern "C" fn(*mut c_char, c_int, *mut c_int, c_int) -> *mut c_void;
type ClosePort = unsafe extern "C" fn(*mut c_void);
type SmpQueryVia =
    unsafe extern "C" fn(*mut c_void, *mut PortId, c_uint, c_uint, c_uint, *const c_void) -> *mut u8;

/// A port opened through libibmad.
#[derive(Debug)]
pub struct IbmadPort {
    port: *mut c_void,
    smp_query_via: SmpQueryVia,
    close: ClosePort,
    // after the functions that it contains
    _library: Library,
}

/// A destination for [`IbmadPort::node_info`].
#[derive(Debug, Clone, Copy)]
pub struct Destination {
    id: PortId,
}

impl Destination {
    /// The end of a directed route; at most 63 hops are kept.
    pub fn directed(ports: &[u8]) -> Self {
        let mut path = [0; 64];
        for (place, port) in path[1..].iter_mut().zip(ports) {
            *place = *port;
        }
        let hops = c_int::try_from(ports.len().min(63)).unwrap_or(63);
        let id = PortId {
            lid: 0,
            hops,
            path,
            dr_slid: 0,
            dr_dlid: 0,
            grh_present: 0,
            gid: [0; 16],
            qp: 0,
            q_key: 0,
            sl: 0,
            p_key_index: 0,
        };
        Self { id }
    }
}

impl IbmadPort {
    /// Loads the library and opens port `port` of the device `device`.
    ///
    /// # Errors
    /// [`BenchError::Missing`] without the library, [`BenchError::Attach`] if the port does not open.
    pub fn open(device: &str, port: u8) -> Result<Self, BenchError> {
        let missing = |error: libloading::Error| BenchError::Missing(format!("libibmad: {error}"));
        // SAFETY: libibmad's initialisers do nothing but set up their own data.
        let library = unsafe { Library::new("libibmad.so.5") }.map_err(missing)?;
        // SAFETY: the type is the function's prototype in infiniband/mad.h.
        let open: OpenPort = *unsafe { library.get(b"mad_rpc_open_port\0") }.map_err(missing)?;
        // SAFETY: the type is the function's prototype in infiniband/mad.h.
        let close: ClosePort = *unsafe { library.get(b"mad_rpc_close_port\0") }.map_err(missing)?;
        // SAFETY: the type is the function's prototype in infiniband/mad.h.
        let smp_query_via: SmpQueryVia = *unsafe { library.get(b"smp_query_via\0") }.map_err(missing)?;
        let name = CString::new(device).map_err(|_| BenchError::Usage("device name".to_owned()))?.into_raw();
        let mut classes = [SUBN_LID, SUBN_DIRECTED];
        // SAFETY: name and classes live until the call returns; the count is that of the array.
        let opened = unsafe { open(name, c_int::from(port), classes.as_mut_ptr(), 2) };
        // SAFETY: the pointer came from `into_raw` above and libibmad keeps no copy.
        drop(unsafe { CString::from_raw(name) });
        if opened.is_null() {
            return Err(BenchError::Attach(format!("libibmad cannot open {device} port {port}")));
        }
        Ok(Self { port: opened, smp_query_via, close, _library: library })
    }

    /// Asks for NodeInfo; false if no answer without error came.
    pub fn node_info(&mut self, destination: &mut Destination, data: &mut [u8; DATA_LEN]) -> bool {
        let buffer = data.as_mut_ptr().cast::<c_void>();
        // SAFETY: the port is open; `data` has the 64 bytes that the function fills; a time of 0 means its default.
        let answer =
            unsafe { (self.smp_query_via)(buffer, &raw mut destination.id, NODE_INFO, 0, 0, self.port) };
        !answer.is_null()
    }
}

impl Drop for IbmadPort {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed only here.
        unsafe { (self.close)(self.port) };
    }
}
