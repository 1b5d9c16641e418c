//! The C functions of `include/madctl.h`.
//!
//! Called by foreign threads; calls on one handle wait for one another. Invariants: every pointer is checked for null, a
//! panic becomes `-EIO`, results are not negative or a negative errno, and a failure leaves a line for
//! `madctl_last_error` on its thread. What it does not do: anything that a Rust caller could not do, too.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use serde::Serialize;
use serde_json::Value;

use crate::admin::{AdminClient, AdminError};
use crate::view::{self, LookError, View};

mod types;

pub use types::{Counter, ErrorEntry, Percentiles, Plane, Route, Session, Table, Tenant, Worker};

/// `MADCTL_ABI`.
const ABI: u32 = 1;
/// `MADCTL_ALL`.
const ALL: i32 = -1;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// A handle: a plane, and what was last seen of it.
#[derive(Debug)]
pub struct Handle {
    inner: Mutex<Inner>,
}

/// Several threads may hold one (header).
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Handle>();
};

#[derive(Debug)]
struct Inner {
    plane: crate::Plane,
    view: View,
    admin: Option<AdminClient>,
    text: String,
    workers: Vec<view::Worker>,
    sessions: Vec<view::Session>,
    counters: (i32, Vec<Counter>),
    errors: Vec<view::ErrorEntry>,
    routes: Vec<view::RouteLine>,
    tenants: Vec<Tenant>,
}

/// A failure on its way to the caller.
struct Trouble {
    errno: i32,
    line: String,
}

impl Trouble {
    fn invalid(line: impl Into<String>) -> Self {
        Self { errno: Errno::INVAL.raw_os_error(), line: line.into() }
    }
}

impl From<LookError> for Trouble {
    fn from(error: LookError) -> Self {
        Self { errno: error.errno(), line: error.to_string() }
    }
}

impl From<AdminError> for Trouble {
    fn from(error: AdminError) -> Self {
        Self { errno: error.errno(), line: error.to_string() }
    }
}

fn guarded(body: impl FnOnce() -> Result<c_int, Trouble>) -> c_int {
    let panicked =
        |_| Err(Trouble { errno: Errno::IO.raw_os_error(), line: "the library has panicked".into() });
    let trouble = match catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(panicked) {
        Ok(result) => return result,
        Err(trouble) => trouble,
    };
    let line = CString::new(trouble.line.replace('\0', " ")).unwrap_or_default();
    // a thread that is ending has nobody to tell
    let _ = LAST_ERROR.try_with(|last| last.replace(line));
    -trouble.errno
}

fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Trouble> {
    if pointer.is_null() {
        return Ok("");
    }
    // SAFETY: not null; the header asks callers for a terminated string that lives during the call.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Trouble::invalid(format!("{what} is not UTF-8")))
}

/// Runs `body` on a handle, alone.
fn with(handle: *const Handle, body: impl FnOnce(&mut Inner) -> Result<c_int, Trouble>) -> c_int {
    guarded(|| {
        // SAFETY: null is caught by `as_ref`; others come from `madctl_open` and have not been closed (header).
        let handle = unsafe { handle.as_ref() }.ok_or_else(|| Trouble::invalid("the handle is null"))?;
        // what a call that panicked has left is read anew by the next one
        body(&mut handle.inner.lock().unwrap_or_else(PoisonError::into_inner))
    })
}

fn put<T>(out: *mut T, value: T) -> Result<(), Trouble> {
    if out.is_null() {
        return Err(Trouble::invalid("the place for the result is null"));
    }
    // SAFETY: not null, and the caller lets us write one (header).
    unsafe { out.write(value) };
    Ok(())
}

/// Fills one struct from a list that was brought up to date before; 0 beyond its end.
fn pick<'a, T, U>(
    list: &'a [T],
    index: u32,
    out: *mut U,
    show: impl FnOnce(&'a T) -> U,
) -> Result<c_int, Trouble> {
    let found = usize::try_from(index).ok().and_then(|index| list.get(index));
    match found {
        Some(found) => put(out, show(found)).map(|()| 1),
        None => Ok(0),
    }
}

/// Copies as much of `from` as fits, with a zero, and returns its length.
fn copy_out(from: &str, buffer: *mut c_char, size: usize) -> Result<c_int, Trouble> {
    if size > 0 {
        if buffer.is_null() {
            return Err(Trouble::invalid("the buffer is null"));
        }
        let mut length = from.len().min(size - 1);
        while !from.is_char_boundary(length) {
            length -= 1;
        }
        // SAFETY: the buffer is not null and has `size` bytes (header), more than are copied; it is no part of our own text.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), buffer.cast::<u8>(), length) };
        // SAFETY: `length` is below `size`.
        let end = unsafe { buffer.add(length) };
        // SAFETY: as above, within the buffer.
        unsafe { end.write(0) };
    }
    let long =
        || Trouble { errno: Errno::OVERFLOW.raw_os_error(), line: "the text is too long for an int".into() };
    c_int::try_from(from.len()).map_err(|_| long())
}

impl Inner {
    fn new(plane: crate::Plane) -> Self {
        Self {
            view: plane.view(),
            plane,
            admin: None,
            text: String::new(),
            workers: Vec::new(),
            sessions: Vec::new(),
            counters: (ALL, Vec::new()),
            errors: Vec::new(),
            routes: Vec::new(),
            tenants: Vec::new(),
        }
    }

    fn read_counters(&mut self, worker: i32) -> Result<(), Trouble> {
        let one = match worker {
            ALL => None,
            one => Some(usize::try_from(one).map_err(|_| no_worker(one))?),
        };
        let seen = self.view.counters(one, true)?;
        let counters = seen.counters.iter().map(|count| Counter::of(count, false));
        self.counters =
            (worker, counters.chain(seen.drops.iter().map(|count| Counter::of(count, true))).collect());
        Ok(())
    }

    fn read_tenants(&mut self) -> Result<(), Trouble> {
        let seen = self.view.tenants()?.tenants;
        let filled = |used: &crate::protocol::TenantUse| {
            let tenant = crate::tenant::Tenant::try_from(used.tenant.clone()).ok()?;
            Some(Tenant::of(&tenant.to_entry(used.tenant_id), used))
        };
        self.tenants = seen.iter().filter_map(filled).collect();
        Ok(())
    }

    /// What a noun shows, from the segments alone.
    fn show(&mut self, noun: &str) -> Result<String, Trouble> {
        match noun {
            "status" => json(&self.view.status()?),
            "workers" => json(&self.view.workers()?),
            "sessions" => json(&self.view.sessions()?),
            "counters" => json(&self.view.counters(None, true)?),
            "errors" => json(&self.view.errors()?),
            "latency" => json(&self.view.latency()?),
            "links" => json(&self.view.links()?),
            "devices" => json(&self.view.devices()?),
            "routes" => json(&self.view.routes()?),
            "tenants" => json(&self.view.tenants()?),
            _ => {
                let nouns = [
                    "status", "workers", "sessions", "counters", "errors", "latency", "links", "devices",
                    "routes", "tenants",
                ];
                let hint = crate::nearest::hint(noun, nouns);
                Err(Trouble::invalid(format!("nothing to show is called {noun:?}{hint}")))
            }
        }
    }

    fn call(&mut self, cmd: &str, args: &str) -> Result<Value, Trouble> {
        let args: Value = match args {
            "" => Value::Null,
            some => serde_json::from_str(some)
                .map_err(|error| Trouble::invalid(format!("the arguments are no JSON: {error}")))?,
        };
        let mut admin = match self.admin.take().filter(AdminClient::is_connected) {
            Some(admin) => admin,
            None => self.plane.admin()?,
        };
        let result = admin.call(cmd, &args);
        if matches!(result, Ok(_) | Err(AdminError::Refused(_))) {
            self.admin = Some(admin);
        }
        Ok(result?)
    }
}

fn no_worker(worker: i32) -> Trouble {
    Trouble::invalid(format!("there is no worker {worker}"))
}

fn json(value: &impl Serialize) -> Result<String, Trouble> {
    let fail =
        |error: serde_json::Error| Trouble { errno: Errno::IO.raw_os_error(), line: error.to_string() };
    serde_json::to_string(value).map_err(fail)
}

/// Version of the structs; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn madctl_abi() -> u32 {
    ABI
}

/// What the last failure of this thread was; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn madctl_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Makes a handle; see the header.
///
/// # Safety
/// - `plane` is null or a terminated string.
/// - `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_open(plane: *const c_char, out: *mut *mut Handle) -> c_int {
    guarded(|| {
        let name = text(plane, "the name of the plane")?;
        let plane = crate::Plane::open(name).map_err(|error| Trouble::invalid(error.to_string()))?;
        if out.is_null() {
            return Err(Trouble::invalid("the place for the handle is null"));
        }
        let handle = Box::new(Handle { inner: Mutex::new(Inner::new(plane)) });
        put(out, Box::into_raw(handle)).map(|()| 0)
    })
}

/// Frees a handle; see the header.
///
/// # Safety
/// - `handle` is null or comes from [`madctl_open`] and is not used by any thread from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_close(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: it was made by `Box::into_raw` and the caller gives it up.
        let handle = unsafe { Box::from_raw(handle) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// Shows the plane as a whole; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_plane(handle: *const Handle, out: *mut Plane) -> c_int {
    with(handle, |inner| put(out, Plane::from(&inner.view.status()?)).map(|()| 0))
}

/// Shows a worker; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_worker_at(handle: *const Handle, index: u32, out: *mut Worker) -> c_int {
    with(handle, |inner| {
        if index == 0 || inner.workers.is_empty() {
            inner.workers = inner.view.workers()?;
        }
        pick(&inner.workers, index, out, Worker::from)
    })
}

/// Shows a session; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_session_at(handle: *const Handle, index: u32, out: *mut Session) -> c_int {
    with(handle, |inner| {
        if index == 0 || inner.sessions.is_empty() {
            inner.sessions = inner.view.sessions()?.sessions;
        }
        pick(&inner.sessions, index, out, Session::from)
    })
}

/// Shows a counter; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_counter_at(
    handle: *const Handle,
    worker: i32,
    index: u32,
    out: *mut Counter,
) -> c_int {
    with(handle, |inner| {
        if index == 0 || inner.counters.1.is_empty() || inner.counters.0 != worker {
            inner.read_counters(worker)?;
        }
        pick(&inner.counters.1, index, out, |counter| *counter)
    })
}

/// Shows an error; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_error_at(handle: *const Handle, index: u32, out: *mut ErrorEntry) -> c_int {
    with(handle, |inner| {
        if index == 0 || inner.errors.is_empty() {
            inner.errors = inner.view.errors()?.errors;
        }
        pick(&inner.errors, index, out, ErrorEntry::from)
    })
}

/// Shows percentiles; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_latency(handle: *const Handle, worker: i32, out: *mut Percentiles) -> c_int {
    with(handle, |inner| {
        let seen = inner.view.latency()?;
        let found = match worker {
            ALL => seen.hw_sync_latency.ok_or_else(|| LookError::NoTable(inner.plane.name().to_owned()))?,
            one => {
                let found = usize::try_from(one).ok().and_then(|one| seen.workers.get(one));
                found.ok_or_else(|| no_worker(one))?.cycles
            }
        };
        put(out, Percentiles::from(&found)).map(|()| 0)
    })
}

/// Shows the route table as a whole; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_table(handle: *const Handle, out: *mut Table) -> c_int {
    with(handle, |inner| put(out, Table::from(&inner.view.routes()?)).map(|()| 0))
}

/// Shows a route; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_route_at(handle: *const Handle, index: u32, out: *mut Route) -> c_int {
    with(handle, |inner| {
        if index == 0 || inner.routes.is_empty() {
            inner.routes = inner.view.routes()?.routes;
        }
        pick(&inner.routes, index, out, Route::from)
    })
}

/// Shows a tenant; see the header.
///
/// # Safety
/// - `handle` is null or open; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_tenant_at(handle: *const Handle, index: u32, out: *mut Tenant) -> c_int {
    with(handle, |inner| {
        if index == 0 || inner.tenants.is_empty() {
            inner.read_tenants()?;
        }
        pick(&inner.tenants, index, out, |tenant| *tenant)
    })
}

/// Shows what a noun of madctl shows as JSON; see the header.
///
/// # Safety
/// - `handle` is null or open; `noun` is null or a terminated string.
/// - `buffer` is null or has `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_show(
    handle: *const Handle,
    noun: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    with(handle, |inner| {
        inner.text = inner.show(text(noun, "the noun")?)?;
        copy_out(&inner.text, buffer, size)
    })
}

/// Asks madctld; see the header.
///
/// # Safety
/// - `handle` is null or open; `cmd` and `args` are null or terminated strings.
/// - `buffer` is null or has `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_call(
    handle: *const Handle,
    cmd: *const c_char,
    args: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    with(handle, |inner| {
        if buffer.is_null() && size > 0 {
            return Err(Trouble::invalid("the buffer is null"));
        }
        let (cmd, args) = (text(cmd, "the command")?, text(args, "the argument")?);
        inner.text = json(&inner.call(cmd, args)?)?;
        copy_out(&inner.text, buffer, size)
    })
}

/// Writes the last text again; see the header.
///
/// # Safety
/// - `handle` is null or open; `buffer` is null or has `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madctl_text(handle: *const Handle, buffer: *mut c_char, size: usize) -> c_int {
    with(handle, |inner| copy_out(&inner.text, buffer, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> String {
        let pointer = madctl_last_error();
        // SAFETY: the function returns a terminated string that lives until this thread's next failure.
        unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_handle_can_be_used_afterwards() {
        let handle = Handle { inner: Mutex::new(Inner::new(crate::Plane::open("ffi-test").unwrap())) };
        assert_eq!(with(&handle, |_| panic!("on purpose")), -5);
        assert_eq!(line(), "the library has panicked");
        assert_eq!(with(&handle, |inner| copy_out(&inner.text, std::ptr::null_mut(), 0)), 0);
        let other = std::thread::spawn(line).join().unwrap();
        assert_eq!(other, "", "another thread has its own");
    }

    #[test]
    fn texts_are_cut_between_characters_and_their_length_is_told() {
        let mut buffer = [b'x'; 8];
        for (size, expected) in
            [(1usize, "\0xxxxxxx"), (3, "a\0xxxxxx"), (4, "a\u{e9}\0xxxx"), (8, "a\u{e9}b\0xxx")]
        {
            buffer.fill(b'x');
            assert_eq!(copy_out("a\u{e9}b", buffer.as_mut_ptr().cast(), size).ok(), Some(4));
            assert_eq!(&buffer[..], expected.as_bytes(), "{size}");
        }
        assert!(copy_out("a", std::ptr::null_mut(), 1).is_err());
    }
}
