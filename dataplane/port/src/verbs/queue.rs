//! The UD queue below a MAD port or a link: fixed slots, batched posting, completions.
//!
//! Owned by one worker, called from its thread only. All memory is taken when the queue is opened: a slot per request of either
//! queue, the requests themselves, a ring of what arrived. Sending copies into a slot and chains its request; [`UdQueue::flush`]
//! posts the chain at once, one doorbell. One request in a quarter of the queue asks for a completion, which frees all
//! before it. Slots received go back in one chain too, by [`UdQueue::release`].
//!
//! One completion queue serves both directions, so whoever polls sorts: what arrived waits in the ring. A queue pair that met
//! an error is broken and says so; its owner opens another.

use std::fmt;
use std::io;
use std::mem::zeroed;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use ibverbs_sys as sys;

use super::context::{
    BATCH, Completions, Context, Domain, Moderation, PairSettings, PortEvent, QueuePair, Registration,
};
use super::handles::{Address, Handles, NoHandle};
use super::region::Region;
use crate::device::{DeviceSpec, Unavailable};
use crate::umad_dev::GSI_Q_KEY;

/// Bytes that a device puts before what it received by UD: the global header, or rubbish.
pub(super) const GRH_LEN: usize = 40;
/// A slot begins here in its cache lines, so that what follows the global header begins on one.
const SLOT_LEAD: usize = 64 - GRH_LEN;
/// Bit of a request's number that tells both queues apart in completions.
const RECEIVE: u64 = 1 << 63;

/// How a queue is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// Q_Key that packets to this queue have to carry.
    pub q_key: u32,
    /// Index of the partition key.
    pub p_key_index: u16,
    /// Slots for sending.
    pub send_depth: usize,
    /// Slots for receiving; what comes when none is free is lost, and the device does not say so.
    pub receive_depth: usize,
    /// Ask for huge pages.
    pub huge_pages: bool,
    /// Gather completions, if the device can.
    pub moderation: Option<Moderation>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            q_key: GSI_Q_KEY,
            p_key_index: 0,
            send_depth: 256,
            receive_depth: 512,
            huge_pages: true,
            moderation: None,
        }
    }
}

/// What a queue did and met; numbers only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets posted.
    pub sent: u64,
    /// Packets received whole.
    pub received: u64,
    /// Doorbells: chains posted for sending.
    pub doorbells: u64,
    /// Packets that the device reported as not sent, or that were posted when its queue broke.
    pub send_failed: u64,
    /// Packets dropped because the device knows no way to their address.
    pub unreachable: u64,
    /// Receive requests that ended with an error.
    pub receive_failed: u64,
    /// Packets of a length that is not right for this queue.
    pub bad_length: u64,
    /// Wake-ups by completion channel.
    pub wakeups: u64,
}

/// What arrived in a slot.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrival {
    pub(super) slot: u32,
    /// Bytes behind the global header's place.
    pub(super) length: usize,
    pub(super) source_pair: u32,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) path_bits: u8,
    pub(super) p_key_index: u16,
    pub(super) global: bool,
}

/// What became of a packet that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// It goes with the next flush.
    Taken,
    /// There is no room now.
    Full,
    /// There is no way to that address; counted.
    Unreachable,
}

/// Fixed ring of arrivals.
#[derive(Debug)]
struct Arrivals {
    places: Box<[Arrival]>,
    first: usize,
    count: usize,
}

impl Arrivals {
    fn push(&mut self, arrival: Arrival) {
        debug_assert!(self.count < self.places.len(), "no more arrivals than slots");
        let place = (self.first + self.count) % self.places.len();
        self.places[place] = arrival;
        self.count += 1;
    }

    fn pop(&mut self) -> Option<Arrival> {
        if self.count == 0 {
            return None;
        }
        let arrival = self.places[self.first];
        self.first = (self.first + 1) % self.places.len();
        self.count -= 1;
        Some(arrival)
    }
}

/// An open UD queue pair with its memory. The order of the fields is the order in which they are dropped.
pub(super) struct UdQueue {
    pair: QueuePair,
    handles: Handles,
    completions: Completions,
    _registration: Registration,
    region: Region,
    context: Rc<Context>,

    send_requests: Box<[sys::ibv_send_wr]>,
    send_places: Box<[sys::ibv_sge]>,
    receive_requests: Box<[sys::ibv_recv_wr]>,
    receive_places: Box<[sys::ibv_sge]>,
    batch: Box<[sys::ibv_wc; BATCH]>,
    arrivals: Arrivals,
    /// Slots that were read and are to go back.
    taken: Box<[u32]>,
    taken_count: usize,

    /// Requests filled in, posted and completed since the beginning.
    filled: u64,
    posted: u64,
    done: u64,
    signal_every: u64,
    stride: usize,
    payload: usize,
    broken: bool,
    armed: bool,
    counters: QueueCounters,
    moderated: Result<(), i32>,
    q_key: u32,
    port: u8,
    gid_index: u8,
    gid: [u8; 16],
    lid: u16,
    ethernet: bool,
}

impl fmt::Debug for UdQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdQueue")
            .field("pair", &self.pair)
            .field("filled", &self.filled)
            .field("posted", &self.posted)
            .field("done", &self.done)
            .field("broken", &self.broken)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

// SAFETY: libibverbs' objects are bound to no thread; the `Rc`s and pointers among the fields point to each other only, so they
// move together, and nothing is shared with another value.
unsafe impl Send for UdQueue {}

impl UdQueue {
    /// Opens a queue for packets of up to `payload` bytes.
    pub(super) fn open(
        spec: &DeviceSpec,
        settings: &QueueSettings,
        payload: usize,
    ) -> Result<Self, Unavailable> {
        let failed = |step: &'static str| move |error: io::Error| Unavailable::failed(step, &error);
        let context = Rc::new(Context::open(spec.device())?);
        let state = context
            .port(spec.port())
            .map_err(|_| Unavailable::NoPort { name: spec.device().to_owned(), port: spec.port() })?;
        if !state.active {
            return Err(Unavailable::NotActive {
                name: spec.device().to_owned(),
                port: spec.port(),
                state: state.number,
            });
        }
        if state.mtu_bytes < payload {
            return Err(Unavailable::Mtu { has: state.mtu_bytes, needs: payload });
        }
        let gid = context
            .gid(spec.port(), spec.gid_index())
            .map_err(failed("asking for the GID with that index"))?;
        let (most_requests, most_completions) = context.limits().map_err(failed("asking for its limits"))?;
        let send_depth = settings.send_depth.clamp(4, most_requests.max(4));
        let receive_depth = settings.receive_depth.clamp(4, most_requests.max(4));
        if send_depth + receive_depth > most_completions {
            return Err(Unavailable::Limits { has: most_completions, needs: send_depth + receive_depth });
        }

        let stride = (SLOT_LEAD + GRH_LEN + payload).next_multiple_of(64);
        let domain = Rc::new(Domain::new(&context).map_err(failed("making a protection domain"))?);
        let bytes = stride * (send_depth + receive_depth);
        let (region, registration) = register(&domain, bytes, settings.huge_pages)?;
        let mut completions = Completions::new(&context, send_depth + receive_depth)
            .map_err(failed("making a completion queue"))?;
        let wanted = PairSettings {
            port: spec.port(),
            p_key_index: settings.p_key_index,
            q_key: settings.q_key,
            send_depth: u32::try_from(send_depth).unwrap_or(u32::MAX),
            receive_depth: u32::try_from(receive_depth).unwrap_or(u32::MAX),
        };
        let pair = QueuePair::new(&domain, &completions, wanted).map_err(|error| {
            match (error.raw_os_error(), settings.q_key >> 31) {
                (Some(libc::EPERM | libc::EACCES), 1) => {
                    Unavailable::NoPermission { what: "a queue pair with a privileged Q_Key".to_owned() }
                }
                _ => Unavailable::failed("making a queue pair", &error),
            }
        })?;
        let moderated = settings.moderation.map_or(Ok(()), |wanted| {
            completions.moderate(wanted).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
        });

        let key = registration.key();
        let place = |slot: usize, length: usize, lead: usize| sys::ibv_sge {
            addr: region.address(slot * stride + lead),
            length: u32::try_from(length).unwrap_or(0),
            lkey: key,
        };
        // SAFETY: all-zero is a value of this plain struct: null pointers and unions of integers.
        let blank_send: sys::ibv_send_wr = unsafe { zeroed() };
        // SAFETY: as above.
        let blank_receive: sys::ibv_recv_wr = unsafe { zeroed() };
        // SAFETY: as above.
        let blank_completion: sys::ibv_wc = unsafe { zeroed() };
        let mut queue = Self {
            handles: Handles::new(&domain, spec.port()),
            send_requests: vec![blank_send; send_depth].into(),
            send_places: (0..send_depth)
                .map(|slot| place(receive_depth + slot, 0, SLOT_LEAD + GRH_LEN))
                .collect(),
            receive_requests: vec![blank_receive; receive_depth].into(),
            receive_places: (0..receive_depth)
                .map(|slot| place(slot, GRH_LEN + payload, SLOT_LEAD))
                .collect(),
            batch: Box::new([blank_completion; BATCH]),
            arrivals: Arrivals { places: vec![Arrival::default(); receive_depth].into(), first: 0, count: 0 },
            taken: (0..u32::try_from(receive_depth).unwrap_or(0)).collect(),
            taken_count: receive_depth,
            filled: 0,
            posted: 0,
            done: 0,
            signal_every: (send_depth as u64 / 4).max(1),
            stride,
            payload,
            broken: false,
            armed: false,
            counters: QueueCounters::default(),
            moderated,
            q_key: settings.q_key,
            port: spec.port(),
            gid_index: spec.gid_index(),
            gid,
            lid: state.lid,
            ethernet: state.ethernet,
            pair,
            completions,
            _registration: registration,
            region,
            context,
        };
        queue.release();
        if queue.broken {
            return Err(Unavailable::failed("posting receive slots", &io::Error::last_os_error()));
        }
        Ok(queue)
    }

    /// Copies a packet into a slot; it leaves with the next [`UdQueue::flush`].
    pub(super) fn send(&mut self, to: &Address, pair: u32, q_key: u32, packet: &[u8]) -> Sent {
        debug_assert!(packet.len() <= self.payload, "the owner cuts packets to fit");
        if self.broken {
            return Sent::Full;
        }
        let depth = self.send_requests.len();
        if self.filled - self.done >= depth as u64 {
            self.reap();
            if self.filled - self.done >= depth as u64 {
                return Sent::Full;
            }
        }
        let handle = match self.handles.get(to, self.filled, self.done) {
            Ok(handle) => handle,
            Err(NoHandle::Busy) => {
                self.reap();
                return Sent::Full;
            }
            Err(NoHandle::Unreachable) => {
                self.counters.unreachable += 1;
                return Sent::Unreachable;
            }
        };
        let slot = self.slot_of(self.filled);
        let at = (self.receive_requests.len() + slot) * self.stride + SLOT_LEAD + GRH_LEN;
        self.region.write(at, packet);
        self.send_places[slot].length = u32::try_from(packet.len()).unwrap_or(0);
        let asks =
            self.filled % self.signal_every == self.signal_every - 1 || self.handles.wants_completions();
        let request = &mut self.send_requests[slot];
        request.wr_id = self.filled;
        request.num_sge = 1;
        request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        request.send_flags = if asks { sys::ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 };
        request.wr.ud =
            sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah: handle, remote_qpn: pair, remote_qkey: q_key };
        self.filled += 1;
        Sent::Taken
    }

    /// Makes the address handle that packets to `to` need; false if the device knows no way there.
    pub(super) fn prepare(&mut self, to: &Address) -> bool {
        self.handles.get(to, self.filled, self.done).is_ok()
    }

    fn slot_of(&self, sequence: u64) -> usize {
        usize::try_from(sequence % self.send_requests.len() as u64).unwrap_or(0)
    }

    /// Posts what was filled in, with one doorbell; true if there was something, which on soft-RoCE is a system call.
    pub(super) fn flush(&mut self) -> bool {
        if self.posted == self.filled || self.broken {
            return false;
        }
        let depth = self.send_requests.len();
        let first = self.slot_of(self.posted);
        let requests = self.send_requests.as_mut_ptr();
        let places = self.send_places.as_mut_ptr();
        for sequence in self.posted..self.filled {
            let slot = self.slot_of(sequence);
            let last = sequence + 1 == self.filled;
            // SAFETY: both arrays have `depth` elements and `slot` is below it.
            let at = unsafe { requests.add(slot) };
            // SAFETY: as above; nothing else refers to it.
            let request = unsafe { &mut *at };
            // SAFETY: as above.
            request.sg_list = unsafe { places.add(slot) };
            request.next = if last {
                std::ptr::null_mut()
            } else {
                // SAFETY: as above.
                unsafe { requests.add((slot + 1) % depth) }
            };
        }
        // SAFETY: `first` is below `depth`.
        let chain = unsafe { requests.add(first) };
        // SAFETY: the chain was just made of filled requests; their slots are not written before `done` passes them, their
        // handles not destroyed before either.
        match unsafe { self.pair.post_send(chain) } {
            Ok(()) => {
                self.counters.sent += self.filled - self.posted;
                self.posted = self.filled;
            }
            Err((error, first_left)) => {
                self.counters.sent += first_left - self.posted;
                self.posted = first_left;
                // the device's own queue is full at times, although ours is not: what is left goes with the next flush
                if error != libc::ENOMEM && error != libc::EAGAIN {
                    self.break_down();
                }
            }
        }
        self.counters.doorbells += 1;
        true
    }

    /// The next packet that arrived; its slot is the caller's until [`UdQueue::release`].
    pub(super) fn receive(&mut self) -> Option<Arrival> {
        if self.arrivals.count == 0 {
            self.reap();
        }
        let arrival = self.arrivals.pop()?;
        self.taken[self.taken_count] = arrival.slot;
        self.taken_count += 1;
        Some(arrival)
    }

    /// Copies the packet of an arrival.
    pub(super) fn packet(&self, arrival: &Arrival, into: &mut [u8]) {
        self.region.read(arrival.slot as usize * self.stride + SLOT_LEAD + GRH_LEN, into);
    }

    /// Copies the global header of an arrival that has one.
    pub(super) fn global_header(&self, arrival: &Arrival) -> [u8; GRH_LEN] {
        let mut header = [0; GRH_LEN];
        self.region.read(arrival.slot as usize * self.stride + SLOT_LEAD, &mut header);
        header
    }

    /// Gives the slots of all packets taken so far back to the device, in one chain.
    pub(super) fn release(&mut self) {
        if self.taken_count == 0 || self.broken {
            return;
        }
        let requests = self.receive_requests.as_mut_ptr();
        let places = self.receive_places.as_mut_ptr();
        let mut next = std::ptr::null_mut();
        for slot in self.taken[..self.taken_count].iter().rev() {
            let slot = *slot as usize;
            // SAFETY: slots are numbers below the length of both arrays.
            let at = unsafe { requests.add(slot) };
            // SAFETY: as above; nothing else refers to it.
            let request = unsafe { &mut *at };
            request.wr_id = RECEIVE | slot as u64;
            request.next = next;
            // SAFETY: as above.
            request.sg_list = unsafe { places.add(slot) };
            request.num_sge = 1;
            next = at;
        }
        self.taken_count = 0;
        // SAFETY: the chain was just made; its slots belong to the device until they complete.
        if !unsafe { self.pair.post_receive(next) } {
            self.break_down();
        }
    }

    /// Takes what the device completed.
    fn reap(&mut self) {
        let count = self.completions.poll(&mut self.batch);
        for index in 0..count {
            let completion = self.batch[index];
            let id = completion.wr_id();
            if id & RECEIVE == 0 {
                self.done = self.done.max(id + 1);
                if !completion.is_valid() {
                    // requests behind it come back one by one, each with its own error
                    self.counters.send_failed += 1;
                    self.broken = true;
                }
            } else if completion.is_valid() {
                self.counters.received += 1;
                self.arrivals.push(Arrival {
                    slot: u32::try_from(id & !RECEIVE).unwrap_or(0),
                    length: completion.len().saturating_sub(GRH_LEN),
                    source_pair: completion.src_qp,
                    slid: completion.slid,
                    sl: completion.sl,
                    path_bits: completion.dlid_path_bits,
                    p_key_index: completion.pkey_index,
                    global: completion.wc_flags.0 & sys::ibv_wc_flags::IBV_WC_GRH.0 != 0,
                });
            } else {
                self.counters.receive_failed += 1;
                self.broken = true;
            }
        }
    }

    #[cold]
    fn break_down(&mut self) {
        self.broken = true;
        self.counters.send_failed += self.filled - self.posted;
        self.filled = self.posted;
    }

    /// Asks for a wake-up with the next completion, then looks once more; true if the worker may sleep.
    pub(super) fn arm(&mut self) -> bool {
        self.armed = true;
        if self.broken || !self.completions.arm() {
            return false;
        }
        if self.arrivals.count == 0 {
            self.reap();
        }
        self.arrivals.count == 0
    }

    /// Takes the wake-ups that came.
    pub(super) fn disarm(&mut self) {
        if self.armed {
            self.armed = false;
            self.counters.wakeups += u64::from(self.completions.take_events());
        }
    }

    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.completions.fd()
    }

    pub(super) fn events_fd(&self) -> BorrowedFd<'_> {
        self.context.events_fd()
    }

    /// What happened to device or port; returns at once.
    pub(super) fn event(&mut self) -> Option<PortEvent> {
        let event = self.context.event();
        if matches!(event, Some(PortEvent::QueueBroken | PortEvent::Removed)) {
            self.broken = true;
        }
        if event.is_none() && self.broken { Some(PortEvent::QueueBroken) } else { event }
    }

    /// True if the port carries packets, as the device says now; a system call.
    pub(super) fn is_active(&self) -> bool {
        self.context.port(self.port).is_ok_and(|state| state.active)
    }

    pub(super) fn counters(&self) -> QueueCounters {
        self.counters
    }

    pub(super) fn count_bad_length(&mut self) {
        self.counters.bad_length += 1;
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn number(&self) -> u32 {
        self.pair.number()
    }

    pub(super) fn q_key(&self) -> u32 {
        self.q_key
    }

    pub(super) fn gid(&self) -> [u8; 16] {
        self.gid
    }

    pub(super) fn gid_index(&self) -> u8 {
        self.gid_index
    }

    pub(super) fn lid(&self) -> u16 {
        self.lid
    }

    pub(super) fn is_ethernet(&self) -> bool {
        self.ethernet
    }

    pub(super) fn depth(&self) -> usize {
        self.send_requests.len()
    }

    /// On huge pages, and whether the device gathers completions as it was asked.
    pub(super) fn facts(&self) -> (bool, Result<(), i32>) {
        (self.region.is_huge(), self.moderated)
    }
}

/// Maps and registers memory: on huge pages, else on normal ones, which also need less of the limit on locked memory.
fn register(domain: &Rc<Domain>, bytes: usize, huge: bool) -> Result<(Region, Registration), Unavailable> {
    let mut kinds = [huge, false].into_iter().skip(usize::from(!huge));
    loop {
        let on_huge = kinds.next().unwrap_or(false);
        let region = Region::map(bytes, on_huge)
            .map_err(|error| Unavailable::failed("mapping memory", &io::Error::from(error)))?;
        match Registration::new(domain, &region) {
            Ok(registration) => return Ok((region, registration)),
            Err(_) if region.is_huge() => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
                return Err(Unavailable::LockedMemory {
                    needs_kib: region.length() as u64 / 1024,
                    limit_kib: limit.map(|bytes| bytes / 1024),
                });
            }
            Err(error) => return Err(Unavailable::failed("registering memory", &error)),
        }
    }
}
