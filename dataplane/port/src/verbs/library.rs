//! libibverbs.so.1, found when it is first needed.
//!
//! The bindings of `ibverbs-sys` ask the linker for the library, and a program linked that way does not start where it is
//! missing. So every function that this program or the `ibverbs` crate calls is defined here, and looks its namesake up in
//! the library, opened by dlopen once. The linker then has no use for the library and leaves it out of the program's needs;
//! `tests/verbs_build.rs` looks. Without the library [`load`] says so and the functions here fail with ENOSYS.
//!
//! The library's own inner calls are bound to itself or to these, which makes no difference: both end at its functions.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use ibverbs_sys as sys;

/// The name under which the library is looked for.
pub const NAME: &str = "libibverbs.so.1";

fn set_errno(error: c_int) {
    // SAFETY: errno of the calling thread always exists.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is this thread's own, and no reference to it exists.
    unsafe { errno.write(error) };
}

macro_rules! delayed {
    ($( fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? , without $missing:expr; )*) => {
        struct Entries {
            _library: libloading::Library,
            $( $name: unsafe extern "C" fn($($type),*) $(-> $result)?, )*
        }

        impl Entries {
            fn open() -> Result<Self, libloading::Error> {
                // SAFETY: libibverbs and its providers have no initialisers that ask something of the program.
                let library = unsafe { libloading::Library::new(NAME) }?;
                Ok(Self {
                    $( $name: {
                        // SAFETY: the type is the one that the library's header declares for this name.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($type),*) $(-> $result)?>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        }?;
                        *symbol
                    }, )*
                    _library: library,
                })
            }
        }

        $(
            // callers keep the contract of the function's manual page
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
                match entries() {
                    // SAFETY: the caller keeps the function's own contract.
                    Ok(entries) => unsafe { (entries.$name)($($arg),*) },
                    Err(_) => {
                        set_errno(libc::ENOSYS);
                        $missing
                    }
                }
            }
        )*
    };
}

delayed! {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device, without null_mut();
    fn ibv_free_device_list(list: *mut *mut sys::ibv_device), without ();
    fn ibv_get_device_name(device: *mut sys::ibv_device) -> *const c_char, without std::ptr::null();
    fn ibv_get_device_index(device: *mut sys::ibv_device) -> c_int, without -1;
    fn ibv_get_device_guid(device: *mut sys::ibv_device) -> sys::__be64, without 0;
    fn ibv_open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context, without null_mut();
    fn ibv_close_device(context: *mut sys::ibv_context) -> c_int, without libc::ENOSYS;
    fn ibv_get_async_event(context: *mut sys::ibv_context, event: *mut sys::ibv_async_event) -> c_int, without -1;
    fn ibv_ack_async_event(event: *mut sys::ibv_async_event), without ();
    fn ibv_query_device(context: *mut sys::ibv_context, into: *mut sys::ibv_device_attr) -> c_int,
        without libc::ENOSYS;
    fn ibv_query_port(context: *mut sys::ibv_context, port: u8, into: *mut sys::_compat_ibv_port_attr) -> c_int,
        without libc::ENOSYS;
    fn ibv_query_gid(context: *mut sys::ibv_context, port: u8, index: c_int, into: *mut sys::ibv_gid) -> c_int,
        without -1;
    fn ibv_alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd, without null_mut();
    fn ibv_dealloc_pd(domain: *mut sys::ibv_pd) -> c_int, without libc::ENOSYS;
    fn ibv_reg_mr(domain: *mut sys::ibv_pd, at: *mut c_void, length: usize, access: c_int) -> *mut sys::ibv_mr,
        without null_mut();
    fn ibv_dereg_mr(region: *mut sys::ibv_mr) -> c_int, without libc::ENOSYS;
    fn ibv_create_comp_channel(context: *mut sys::ibv_context) -> *mut sys::ibv_comp_channel, without null_mut();
    fn ibv_destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int, without libc::ENOSYS;
    fn ibv_create_cq(
        context: *mut sys::ibv_context,
        entries: c_int,
        own: *mut c_void,
        channel: *mut sys::ibv_comp_channel,
        vector: c_int
    ) -> *mut sys::ibv_cq, without null_mut();
    fn ibv_destroy_cq(queue: *mut sys::ibv_cq) -> c_int, without libc::ENOSYS;
    fn ibv_get_cq_event(
        channel: *mut sys::ibv_comp_channel,
        queue: *mut *mut sys::ibv_cq,
        own: *mut *mut c_void
    ) -> c_int, without -1;
    fn ibv_ack_cq_events(queue: *mut sys::ibv_cq, events: c_uint), without ();
    fn ibv_create_qp(domain: *mut sys::ibv_pd, attributes: *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp,
        without null_mut();
    fn ibv_modify_qp(pair: *mut sys::ibv_qp, attributes: *mut sys::ibv_qp_attr, mask: c_int) -> c_int,
        without libc::ENOSYS;
    fn ibv_destroy_qp(pair: *mut sys::ibv_qp) -> c_int, without libc::ENOSYS;
    fn ibv_create_ah(domain: *mut sys::ibv_pd, attributes: *mut sys::ibv_ah_attr) -> *mut sys::ibv_ah,
        without null_mut();
    fn ibv_destroy_ah(handle: *mut sys::ibv_ah) -> c_int, without libc::ENOSYS;
}

fn entries() -> &'static Result<Entries, String> {
    static ENTRIES: OnceLock<Result<Entries, String>> = OnceLock::new();
    ENTRIES.get_or_init(|| Entries::open().map_err(|error| error.to_string()))
}

/// Opens the library, unless that was done.
///
/// # Errors
/// What the dynamic linker says: there is no such library, or it is too old to have one of the functions.
pub fn load() -> Result<(), &'static str> {
    entries().as_ref().map(|_| ()).map_err(String::as_str)
}
