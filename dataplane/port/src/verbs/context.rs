//! What is opened on a device, each closed by its `Drop`.
//!
//! Made and dropped on cold paths by the worker that owns the queue. A value that needs another holds it by `Rc`, so nothing is
//! closed under what was made of it. Queries, events and completions live here too, as thin safe functions.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::io;
use std::mem::zeroed;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

use ibverbs_sys as sys;

use super::library;
use super::region::Region;
use crate::device::Unavailable;

/// Completions taken from a device at once.
pub(super) const BATCH: usize = 32;

/// Something that happened to a device or its port, outside of any queue's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortEvent {
    /// The port carries packets again.
    Up,
    /// The port went down.
    Down,
    /// LID, P_Key table, GID table or subnet manager changed.
    Changed,
    /// The device is going away, or is beyond repair.
    Removed,
    /// This queue pair or its completion queue is beyond repair; it has to be opened again.
    QueueBroken,
    /// Nothing that concerns a port of ours.
    Other(u32),
}

/// When a device says that something completed, if it can wait at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moderation {
    /// Completions that are worth an event.
    pub count: u16,
    /// Longest wait for them, microseconds.
    pub period_us: u16,
}

/// Names of the devices that libibverbs sees.
///
/// # Errors
/// ENOSYS if the kernel has no RDMA; EOPNOTSUPP with the linker's words if there is no library.
pub fn devices() -> io::Result<Vec<String>> {
    library::load().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
    let list = ibverbs::devices()?;
    Ok(list
        .iter()
        .filter_map(|device| device.name().map(|name| name.to_string_lossy().into_owned()))
        .collect())
}

/// What the last failed call left in errno, or the error that it returned.
fn last(result: c_int) -> io::Error {
    if result > 0 { io::Error::from_raw_os_error(result) } else { io::Error::last_os_error() }
}

fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor belongs to an open context or channel, which outlives this call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// An open device.
#[derive(Debug)]
pub(super) struct Context {
    raw: NonNull<sys::ibv_context>,
}

/// What a port says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortState {
    pub(super) active: bool,
    pub(super) number: u32,
    pub(super) lid: u16,
    pub(super) mtu_bytes: usize,
    pub(super) ethernet: bool,
}

impl Context {
    /// Opens the device of that name.
    pub(super) fn open(name: &str) -> Result<Self, Unavailable> {
        library::load().map_err(|why| Unavailable::NoLibrary { why: why.to_owned() })?;
        let list = ibverbs::devices().map_err(|error| Unavailable::listing(&error))?;
        let mut found = None;
        let mut names = Vec::new();
        for (index, device) in list.iter().enumerate() {
            let own = device.name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if own == name {
                found = Some(index);
            }
            names.push(own);
        }
        drop(list);
        if found.is_none() {
            return Err(Unavailable::NoDevice { name: name.to_owned(), known: names });
        }
        let raw = Self::open_named(name).map_err(|error| match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                Unavailable::NoPermission { what: format!("the verbs device of {name}") }
            }
            Some(libc::ENODEV | libc::ENOENT) => Unavailable::Removed { name: name.to_owned() },
            _ => Unavailable::failed("opening the device", &error),
        })?;
        let context = Self { raw };
        // SAFETY: the context is open.
        let fd = unsafe { context.raw.as_ref() }.async_fd;
        set_nonblocking(fd).map_err(|error| Unavailable::failed("setting up its events", &error))?;
        Ok(context)
    }

    /// The crate's own `open` insists on an active port and opens a context of its own type, so the list is walked again.
    fn open_named(name: &str) -> io::Result<NonNull<sys::ibv_context>> {
        let mut count = 0;
        // SAFETY: `count` is writable.
        let list = made(unsafe { sys::ibv_get_device_list(&raw mut count) })?;
        let mut result = Err(io::Error::from_raw_os_error(libc::ENODEV));
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries.
            let entry = unsafe { list.add(index) };
            // SAFETY: as above; entries are pointers.
            let device = unsafe { entry.read() };
            // SAFETY: a device of the list, which is not freed yet.
            let text = unsafe { sys::ibv_get_device_name(device) };
            if text.is_null() {
                continue;
            }
            // SAFETY: the library's names end with a zero and live as long as the list.
            if unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes() == name.as_bytes() {
                // SAFETY: as above; the context outlives the list.
                result = made(unsafe { sys::ibv_open_device(device) });
                break;
            }
        }
        // SAFETY: made by ibv_get_device_list, freed once; errno of `result` was read already.
        unsafe { sys::ibv_free_device_list(list.as_ptr()) };
        result
    }

    fn raw(&self) -> *mut sys::ibv_context {
        self.raw.as_ptr()
    }

    pub(super) fn port(&self, port: u8) -> io::Result<PortState> {
        // SAFETY: all-zero is a value of this plain struct.
        let mut attributes: sys::ibv_port_attr = unsafe { zeroed() };
        // SAFETY: the struct is the current one, which begins as the old one that this entry of the library fills.
        let result = unsafe { sys::ibv_query_port(self.raw(), port, (&raw mut attributes).cast()) };
        if result != 0 {
            return Err(last(result));
        }
        Ok(PortState {
            active: attributes.state == sys::ibv_port_state::IBV_PORT_ACTIVE,
            number: attributes.state,
            lid: attributes.lid,
            mtu_bytes: 128 << attributes.active_mtu.clamp(1, 5),
            ethernet: u32::from(attributes.link_layer) == sys::IBV_LINK_LAYER_ETHERNET,
        })
    }

    /// Longest queues that the device makes.
    pub(super) fn limits(&self) -> io::Result<(usize, usize)> {
        // SAFETY: all-zero is a value of this plain struct.
        let mut attributes: sys::ibv_device_attr = unsafe { zeroed() };
        // SAFETY: the context is open and the struct writable.
        let result = unsafe { sys::ibv_query_device(self.raw(), &raw mut attributes) };
        if result != 0 {
            return Err(last(result));
        }
        let of = |limit: c_int| usize::try_from(limit).unwrap_or(0);
        Ok((of(attributes.max_qp_wr), of(attributes.max_cqe)))
    }

    pub(super) fn gid(&self, port: u8, index: u8) -> io::Result<[u8; 16]> {
        let mut gid = sys::ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open and the union writable.
        let result = unsafe { sys::ibv_query_gid(self.raw(), port, c_int::from(index), &raw mut gid) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: every byte of the union is initialised.
        Ok(unsafe { gid.raw })
    }

    /// The next event, if there is one; returns at once.
    pub(super) fn event(&self) -> Option<PortEvent> {
        // SAFETY: all-zero is a value of this plain struct.
        let mut event: sys::ibv_async_event = unsafe { zeroed() };
        // SAFETY: the context is open, its descriptor does not block, the struct is writable.
        if unsafe { sys::ibv_get_async_event(self.raw(), &raw mut event) } != 0 {
            return None;
        }
        let number = event.event_type;
        // SAFETY: the event just taken, acknowledged once.
        unsafe { sys::ibv_ack_async_event(&raw mut event) };
        Some(match number {
            sys::IBV_EVENT_PORT_ACTIVE => PortEvent::Up,
            sys::IBV_EVENT_PORT_ERR => PortEvent::Down,
            sys::IBV_EVENT_LID_CHANGE
            | sys::IBV_EVENT_PKEY_CHANGE
            | sys::IBV_EVENT_SM_CHANGE
            | sys::IBV_EVENT_GID_CHANGE
            | sys::IBV_EVENT_CLIENT_REREGISTER => PortEvent::Changed,
            sys::IBV_EVENT_DEVICE_FATAL => PortEvent::Removed,
            sys::IBV_EVENT_CQ_ERR
            | sys::IBV_EVENT_QP_FATAL
            | sys::IBV_EVENT_QP_REQ_ERR
            | sys::IBV_EVENT_QP_ACCESS_ERR
            | sys::IBV_EVENT_WQ_FATAL => PortEvent::QueueBroken,
            other => PortEvent::Other(other),
        })
    }

    /// Readable when an event waits.
    pub(super) fn events_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open.
        let fd = unsafe { self.raw.as_ref() }.async_fd;
        // SAFETY: it is open as long as the context, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once; whatever was made of it held it.
        unsafe { sys::ibv_close_device(self.raw()) };
    }
}

/// A protection domain.
#[derive(Debug)]
pub(super) struct Domain {
    raw: NonNull<sys::ibv_pd>,
    context: Rc<Context>,
}

impl Domain {
    pub(super) fn new(context: &Rc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = made(unsafe { sys::ibv_alloc_pd(context.raw()) })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// An address handle; see [`super::handles`], which owns it.
    pub(super) fn address(&self, attributes: &mut sys::ibv_ah_attr) -> io::Result<NonNull<sys::ibv_ah>> {
        // SAFETY: the domain is live and the attributes are initialised.
        made(unsafe { sys::ibv_create_ah(self.raw.as_ptr(), attributes) })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once, after regions and queue pairs, which hold it.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// A region that the device may write to.
#[derive(Debug)]
pub(super) struct Registration {
    raw: NonNull<sys::ibv_mr>,
    _domain: Rc<Domain>,
}

impl Registration {
    pub(super) fn new(domain: &Rc<Domain>, region: &Region) -> io::Result<Self> {
        let access = c_int::try_from(sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0).unwrap_or(1);
        // SAFETY: the region is mapped; its owner drops the registration before the region.
        let raw = unsafe { sys::ibv_reg_mr(domain.raw.as_ptr(), region.start(), region.length(), access) };
        Ok(Self { raw: made(raw)?, _domain: domain.clone() })
    }

    pub(super) fn key(&self) -> u32 {
        // SAFETY: registered.
        unsafe { self.raw.as_ref() }.lkey
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once; the queue pair that used it is gone (field order of the queue).
        unsafe { sys::ibv_dereg_mr(self.raw.as_ptr()) };
    }
}

/// A completion queue with its channel.
pub(super) struct Completions {
    raw: NonNull<sys::ibv_cq>,
    channel: NonNull<sys::ibv_comp_channel>,
    poll: unsafe extern "C" fn(*mut sys::ibv_cq, c_int, *mut sys::ibv_wc) -> c_int,
    notify: unsafe extern "C" fn(*mut sys::ibv_cq, c_int) -> c_int,
    unacknowledged: u32,
    context: Rc<Context>,
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions").field("unacknowledged", &self.unacknowledged).finish_non_exhaustive()
    }
}

/// The words before a context that a library of today has: `modify_cq` is the 21st pointer before the size.
#[repr(C)]
struct ExtendedTail {
    modify_cq: Option<unsafe extern "C" fn(*mut sys::ibv_cq, *mut sys::ibv_modify_cq_attr) -> c_int>,
    between: [*mut c_void; 20],
    size: usize,
}

const _: () = assert!(size_of::<ExtendedTail>() == 22 * size_of::<usize>());

/// Events that are acknowledged at once: it takes a lock in the library.
const ACKNOWLEDGE_AT: u32 = 64;

impl Completions {
    pub(super) fn new(context: &Rc<Context>, entries: usize) -> io::Result<Self> {
        // SAFETY: the context is open.
        let channel = made(unsafe { sys::ibv_create_comp_channel(context.raw()) })?;
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: context and channel are open; vector 0 always exists.
        let raw = unsafe { sys::ibv_create_cq(context.raw(), entries, null_mut(), channel.as_ptr(), 0) };
        let Some(raw) = NonNull::new(raw) else {
            let error = io::Error::last_os_error();
            // SAFETY: the channel just made, which nothing uses.
            unsafe { sys::ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(error);
        };
        // SAFETY: the context is open.
        let ops = unsafe { (*context.raw()).ops };
        let missing = || io::Error::from(io::ErrorKind::Unsupported);
        let completions = Self {
            raw,
            channel,
            poll: ops.poll_cq.ok_or_else(missing)?,
            notify: ops.req_notify_cq.ok_or_else(missing)?,
            unacknowledged: 0,
            context: context.clone(),
        };
        // SAFETY: the channel is open.
        set_nonblocking(unsafe { channel.as_ref() }.fd)?;
        Ok(completions)
    }

    /// Takes completions; how many. A device that fails gives none.
    pub(super) fn poll(&mut self, into: &mut [sys::ibv_wc; BATCH]) -> usize {
        let room = c_int::try_from(BATCH).unwrap_or(1);
        // SAFETY: the queue is live and `into` has room for that many.
        let count = unsafe { (self.poll)(self.raw.as_ptr(), room, into.as_mut_ptr()) };
        usize::try_from(count).unwrap_or(0).min(BATCH)
    }

    /// Asks for an event with the next completion; false if the device refused.
    pub(super) fn arm(&mut self) -> bool {
        // SAFETY: the queue is live.
        unsafe { (self.notify)(self.raw.as_ptr(), 0) == 0 }
    }

    /// Takes the events that came; how many.
    pub(super) fn take_events(&mut self) -> u32 {
        let mut taken = 0;
        loop {
            let mut queue = null_mut();
            let mut own = null_mut();
            // SAFETY: the channel is open and does not block; both results are writable.
            let result =
                unsafe { sys::ibv_get_cq_event(self.channel.as_ptr(), &raw mut queue, &raw mut own) };
            if result != 0 {
                break;
            }
            taken += 1;
        }
        self.unacknowledged += taken;
        if self.unacknowledged >= ACKNOWLEDGE_AT {
            self.acknowledge();
        }
        taken
    }

    fn acknowledge(&mut self) {
        // SAFETY: exactly these events were taken and not acknowledged.
        unsafe { sys::ibv_ack_cq_events(self.raw.as_ptr(), self.unacknowledged) };
        self.unacknowledged = 0;
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open.
        let fd = unsafe { self.channel.as_ref() }.fd;
        // SAFETY: it is open as long as this value, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Asks the device to gather completions. `ibv_modify_cq` is an inline function of the header: it looks before the context.
    pub(super) fn moderate(&mut self, wanted: Moderation) -> io::Result<()> {
        let unsupported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        // SAFETY: the context is open.
        let marker = unsafe { self.context.raw.as_ref() }.abi_compat;
        if marker.addr() != usize::MAX {
            return Err(unsupported());
        }
        // SAFETY: the marker says that the context is the last field of a larger struct.
        let tail = unsafe { self.context.raw().cast::<ExtendedTail>().sub(1) };
        // SAFETY: every library that sets the marker has the size there.
        let size = unsafe { (*tail).size };
        if size < size_of::<sys::ibv_context>() + size_of::<ExtendedTail>() {
            return Err(unsupported());
        }
        // SAFETY: the size says that the struct reaches back to this field.
        let modify = unsafe { (*tail).modify_cq }.ok_or_else(unsupported)?;
        let mut attributes = sys::ibv_modify_cq_attr {
            attr_mask: sys::IBV_CQ_ATTR_MODERATE,
            moderate: sys::ibv_moderate_cq { cq_count: wanted.count, cq_period: wanted.period_us },
        };
        // SAFETY: the queue is live and the attributes are initialised.
        match unsafe { modify(self.raw.as_ptr(), &raw mut attributes) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error.abs())),
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.take_events();
        self.acknowledge();
        // SAFETY: made by `new`, freed once; its queue pair is gone (field order of the queue) and all events are acknowledged.
        unsafe { sys::ibv_destroy_cq(self.raw.as_ptr()) };
        // SAFETY: made by `new`, freed once, after its queue.
        unsafe { sys::ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}

/// A UD queue pair, ready to send and to receive.
pub(super) struct QueuePair {
    raw: NonNull<sys::ibv_qp>,
    send: unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> c_int,
    receive:
        unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> c_int,
    _domain: Rc<Domain>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("number", &self.number()).finish_non_exhaustive()
    }
}

/// Queue lengths and keys of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct PairSettings {
    pub(super) port: u8,
    pub(super) p_key_index: u16,
    pub(super) q_key: u32,
    pub(super) send_depth: u32,
    pub(super) receive_depth: u32,
}

impl QueuePair {
    pub(super) fn new(domain: &Rc<Domain>, queue: &Completions, wanted: PairSettings) -> io::Result<Self> {
        // SAFETY: all-zero is a value of this plain struct: null pointers, no shared queue, no inline data.
        let mut attributes: sys::ibv_qp_init_attr = unsafe { zeroed() };
        attributes.send_cq = queue.raw.as_ptr();
        attributes.recv_cq = queue.raw.as_ptr();
        attributes.cap.max_send_wr = wanted.send_depth;
        attributes.cap.max_recv_wr = wanted.receive_depth;
        attributes.cap.max_send_sge = 1;
        attributes.cap.max_recv_sge = 1;
        attributes.qp_type = sys::ibv_qp_type::IBV_QPT_UD;
        // SAFETY: domain and completion queue are live, the attributes are initialised.
        let raw = made(unsafe { sys::ibv_create_qp(domain.raw.as_ptr(), &raw mut attributes) })?;
        // SAFETY: the context is open.
        let ops = unsafe { (*domain.context.raw()).ops };
        let missing = || io::Error::from(io::ErrorKind::Unsupported);
        let pair = Self {
            raw,
            send: ops.post_send.ok_or_else(missing)?,
            receive: ops.post_recv.ok_or_else(missing)?,
            _domain: domain.clone(),
        };
        pair.start(wanted)?;
        Ok(pair)
    }

    fn start(&self, wanted: PairSettings) -> io::Result<()> {
        use sys::ibv_qp_attr_mask as mask;
        // SAFETY: all-zero is a value of this plain struct.
        let mut attributes: sys::ibv_qp_attr = unsafe { zeroed() };
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_INIT;
        attributes.pkey_index = wanted.p_key_index;
        attributes.port_num = wanted.port;
        attributes.qkey = wanted.q_key;
        self.modify(
            &mut attributes,
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY,
        )?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        self.modify(&mut attributes, mask::IBV_QP_STATE)?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        attributes.sq_psn = 0;
        self.modify(&mut attributes, mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN)
    }

    fn modify(&self, attributes: &mut sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> io::Result<()> {
        let mask = c_int::try_from(mask.0).unwrap_or(0);
        // SAFETY: the queue pair is live, the attributes are initialised.
        match unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), attributes, mask) } {
            0 => Ok(()),
            error => Err(last(error)),
        }
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair is live.
        unsafe { self.raw.as_ref() }.qp_num
    }

    /// Posts a chain; on failure the error and the first request that was not posted.
    ///
    /// # Safety
    /// - `first` begins a chain of initialised requests that ends with a null pointer;
    /// - their lists name slots of a region that stays registered, and that nobody touches until they complete;
    /// - their address handles live until then.
    pub(super) unsafe fn post_send(&mut self, first: *mut sys::ibv_send_wr) -> Result<(), (i32, u64)> {
        let mut bad = null_mut();
        // SAFETY: the caller's part of the contract; the queue pair is live.
        let error = unsafe { (self.send)(self.raw.as_ptr(), first, &raw mut bad) };
        if error == 0 {
            return Ok(());
        }
        let bad = if bad.is_null() { first } else { bad };
        // SAFETY: the library points into the chain that it was given.
        Err((error.abs(), unsafe { (*bad).wr_id }))
    }

    /// Posts a chain of receive slots; false if the device did not take all.
    ///
    /// # Safety
    /// As for `post_send`; the slots are written by the device from here on until they complete.
    pub(super) unsafe fn post_receive(&mut self, first: *mut sys::ibv_recv_wr) -> bool {
        let mut bad = null_mut();
        // SAFETY: the caller's part of the contract; the queue pair is live.
        unsafe { (self.receive)(self.raw.as_ptr(), first, &raw mut bad) == 0 }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { sys::ibv_destroy_qp(self.raw.as_ptr()) };
    }
}
