//! File functions: a path of ours leads into the device tree, every other one goes on untouched.
//!
//! The rule is the same for all and written once, in [`led`]; the macros make the functions from their signatures. The
//! device tree is for reading: an open for writing fails with `EACCES`. Device nodes are the exception that has its own
//! function, [`open_node`].

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::ptr;

use super::real::real;
use crate::guard::{guarded, set_errno};
use crate::issm;
use crate::redirect::{self, DeviceNode, PathBytes, concerns};

/// Where `path`, which concerns us, leads; false with errno set if nowhere.
#[cold]
fn led(path: *const c_char, place: &mut PathBytes) -> bool {
    let result = guarded(Err(libc::EIO), || redirect::resolve(path, place));
    result.map_err(set_errno).is_ok()
}

/// Fails like a function that does not exist.
#[cold]
fn missing<R>(failed: R) -> R {
    set_errno(libc::ENOSYS);
    failed
}

/// Opens a device node; `None` if `path` is none and has to be opened as a file.
#[cold]
fn open_node(path: *const c_char, flags: c_int) -> Option<c_int> {
    let opened = guarded(Some(Err(libc::EIO)), || match redirect::device_node(path)? {
        _ if flags & libc::O_PATH != 0 => None,
        DeviceNode::Issm(number) => Some(issm::open(number, flags)),
        // MADs go through umad_open_port; the device's own read, write and ioctl do not exist
        DeviceNode::Umad(_) => Some(Err(libc::ENXIO)),
    });
    if opened.is_none() && (flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_CREAT != 0) {
        set_errno(libc::EACCES);
        return Some(-1);
    }
    opened.map(|opened| {
        opened.unwrap_or_else(|errno| {
            set_errno(errno);
            -1
        })
    })
}

/// Functions whose first argument is a path: `name(more arguments) -> result, value on failure`.
macro_rules! by_path {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty, $failed:expr;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name(path: *const c_char $(, $arg: $type)*) -> $result {
            let Some(real) = real!($name(*const c_char $(, $type)*) -> $result).get() else { return missing($failed) };
            if !concerns(path) {
                // SAFETY: the caller's own arguments.
                return unsafe { real(path $(, $arg)*) };
            }
            let mut place = PathBytes::new();
            if !led(path, &mut place) {
                return $failed;
            }
            // SAFETY: the caller's own arguments but for the path, which is a C string.
            unsafe { real(place.as_ptr() $(, $arg)*) }
        }
    )*};
}

/// Functions with one argument before the path.
macro_rules! by_second_path {
    ($($name:ident($first:ident: $first_type:ty; $($arg:ident: $type:ty),*) -> $result:ty, $failed:expr;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name($first: $first_type, path: *const c_char $(, $arg: $type)*) -> $result {
            let Some(real) = real!($name($first_type, *const c_char $(, $type)*) -> $result).get() else {
                return missing($failed);
            };
            if !concerns(path) {
                // SAFETY: the caller's own arguments.
                return unsafe { real($first, path $(, $arg)*) };
            }
            let mut place = PathBytes::new();
            if !led(path, &mut place) {
                return $failed;
            }
            // SAFETY: the caller's own arguments but for the path, which is a C string and absolute.
            unsafe { real($first, place.as_ptr() $(, $arg)*) }
        }
    )*};
}

/// Variants of open: arguments before the path, then flags, then what follows. The mode of an open without `O_CREAT` is
/// whatever happens to be in the register, and nobody looks at it.
macro_rules! by_open {
    ($($name:ident($($first:ident: $first_type:ty)?; $($mode:ident: $mode_type:ty)?);)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name(
            $($first: $first_type,)? path: *const c_char, flags: c_int $(, $mode: $mode_type)?
        ) -> c_int {
            let Some(real) = real!($name($($first_type,)? *const c_char, c_int $(, $mode_type)?) -> c_int).get() else {
                return missing(-1);
            };
            if !concerns(path) {
                // SAFETY: the caller's own arguments.
                return unsafe { real($($first,)? path, flags $(, $mode)?) };
            }
            if let Some(opened) = open_node(path, flags) {
                return opened;
            }
            let mut place = PathBytes::new();
            if !led(path, &mut place) {
                return -1;
            }
            // SAFETY: the caller's own arguments but for the path, which is a C string and absolute.
            unsafe { real($($first,)? place.as_ptr(), flags $(, $mode)?) }
        }
    )*};
}

/// Variants of fopen.
macro_rules! by_mode {
    ($($name:ident;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char) -> *mut c_void {
            let Some(real) = real!($name(*const c_char, *const c_char) -> *mut c_void).get() else {
                return missing(ptr::null_mut());
            };
            if !concerns(path) {
                // SAFETY: the caller's own arguments.
                return unsafe { real(path, mode) };
            }
            let mut place = PathBytes::new();
            if !may_read(path, mode) || !led(path, &mut place) {
                return ptr::null_mut();
            }
            // SAFETY: the caller's own mode, and a C string.
            unsafe { real(place.as_ptr(), mode) }
        }
    )*};
}

/// Whether `mode` is for reading and `path` no device node; sets errno if not.
#[cold]
fn may_read(path: *const c_char, mode: *const c_char) -> bool {
    if mode.is_null() {
        set_errno(libc::EINVAL);
        return false;
    }
    // SAFETY: not null, and the caller passes a C string.
    let mode = unsafe { std::ffi::CStr::from_ptr(mode) }.to_bytes();
    if !mode.starts_with(b"r") || mode.contains(&b'+') {
        set_errno(libc::EACCES);
        return false;
    }
    let node = guarded(true, || redirect::device_node(path).is_some());
    if node {
        set_errno(libc::ENXIO);
    }
    !node
}

by_open! {
    open(; mode: libc::mode_t);
    open64(; mode: libc::mode_t);
    __open_2(;);
    __open64_2(;);
    openat(directory: c_int; mode: libc::mode_t);
    openat64(directory: c_int; mode: libc::mode_t);
    __openat_2(directory: c_int;);
    __openat64_2(directory: c_int;);
}

by_mode! {
    fopen;
    fopen64;
}

// stat structures are passed on unseen, whatever their version
by_path! {
    opendir() -> *mut c_void, ptr::null_mut();
    scandir(list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int, -1;
    scandir64(list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int, -1;
    chdir() -> c_int, -1;
    stat(result: *mut c_void) -> c_int, -1;
    stat64(result: *mut c_void) -> c_int, -1;
    lstat(result: *mut c_void) -> c_int, -1;
    lstat64(result: *mut c_void) -> c_int, -1;
    statfs(result: *mut c_void) -> c_int, -1;
    statfs64(result: *mut c_void) -> c_int, -1;
    access(mode: c_int) -> c_int, -1;
    eaccess(mode: c_int) -> c_int, -1;
    euidaccess(mode: c_int) -> c_int, -1;
    pathconf(name: c_int) -> c_long, -1;
    readlink(buffer: *mut c_char, size: usize) -> isize, -1;
    __readlink_chk(buffer: *mut c_char, size: usize, room: usize) -> isize, -1;
    realpath(resolved: *mut c_char) -> *mut c_char, ptr::null_mut();
    __realpath_chk(resolved: *mut c_char, room: usize) -> *mut c_char, ptr::null_mut();
    canonicalize_file_name() -> *mut c_char, ptr::null_mut();
    getxattr(name: *const c_char, value: *mut c_void, size: usize) -> isize, -1;
    lgetxattr(name: *const c_char, value: *mut c_void, size: usize) -> isize, -1;
    listxattr(list: *mut c_char, size: usize) -> isize, -1;
    llistxattr(list: *mut c_char, size: usize) -> isize, -1;
}

by_second_path! {
    fstatat(directory: c_int; result: *mut c_void, flags: c_int) -> c_int, -1;
    fstatat64(directory: c_int; result: *mut c_void, flags: c_int) -> c_int, -1;
    statx(directory: c_int; flags: c_int, mask: c_uint, result: *mut c_void) -> c_int, -1;
    faccessat(directory: c_int; mode: c_int, flags: c_int) -> c_int, -1;
    readlinkat(directory: c_int; buffer: *mut c_char, size: usize) -> isize, -1;
    __xstat(version: c_int; result: *mut c_void) -> c_int, -1;
    __xstat64(version: c_int; result: *mut c_void) -> c_int, -1;
    __lxstat(version: c_int; result: *mut c_void) -> c_int, -1;
    __lxstat64(version: c_int; result: *mut c_void) -> c_int, -1;
}
