//! The smallest plane that the library can attach to: one adapter with two ports, answering for itself.
//!
//! An accepting thread, a thread per connection, and a thread per session that polls its ring. It knows Get of five
//! attributes; an attribute of [`SILENT`] is never answered. Port 2 is Active with LID 0x12, port 1 is Initialize.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{Reply, Request, op, recv_with_fds, send_with_fds};
use madplane_shm::header::Incarnation;
use madplane_shm::message::MadMessage;
use madplane_shm::session::{PlaneEnds, create_pair};
use madplane_wire::smp::{self, GuidInfo, NodeDescription, NodeInfo, PKeyTable, PortInfo};
use madplane_wire::{Mad, MadMut, Smp, SmpMut};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const NODE_GUID: u64 = 0x0002_c903_0000_0010;
pub(crate) const SILENT: u16 = 0xff01;

#[derive(Default)]
struct State {
    stop: AtomicBool,
    next_hi_tid: AtomicU32,
    sm_held: AtomicBool,
    connections: Mutex<Vec<OwnedFd>>,
}

/// A running plane; dropping it closes every connection.
pub(crate) struct Plane {
    state: Arc<State>,
    listener: OwnedFd,
}

impl Plane {
    /// Starts the plane `default` below `runtime`.
    pub(crate) fn start(runtime: &Path) -> Self {
        let directory = runtime.join("default");
        std::fs::create_dir_all(&directory).unwrap();
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(directory.join("attach.sock")).unwrap()).unwrap();
        rustix::net::listen(&listener, 16).unwrap();
        let state = Arc::new(State { next_hi_tid: AtomicU32::new(1), ..State::default() });
        let (accepting, shared) = (listener.try_clone().unwrap(), state.clone());
        std::thread::spawn(move || {
            while let Ok(socket) = rustix::net::accept(&accepting) {
                let state = shared.clone();
                state.connections.lock().unwrap().push(socket.try_clone().unwrap());
                std::thread::spawn(move || serve(&state, &socket));
            }
        });
        Self { state, listener }
    }

    /// Whether somebody holds the SM bit.
    pub(crate) fn sm_held(&self) -> bool {
        self.state.sm_held.load(Ordering::SeqCst)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for socket in self.state.connections.lock().unwrap().iter() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

fn serve(state: &Arc<State>, socket: &OwnedFd) {
    let open = Arc::new(AtomicBool::new(true));
    let mut holds_sm = false;
    let mut bytes = [0; size_of::<Request>()];
    while let Ok((256, _)) = recv_with_fds(socket, &mut bytes) {
        let request = Request::read_from_bytes(&bytes).unwrap();
        let port = match request.selector().rsplit_once(':') {
            Some((_, "2")) => 2,
            _ => 1,
        };
        let mut reply = Reply { node_guid: NODE_GUID, port, node_type: 1, num_ports: 2, ..Reply::default() };
        let mut fds = Vec::new();
        match request.op {
            op::LOOKUP => {}
            op::ATTACH => fds = attach(state, open.clone(), request.value, port),
            op::REGISTER if request.mgmt_class == 0x04 => {
                reply = Reply::refusal(22, "this plane has no such class")
            }
            op::REGISTER => reply.value = state.next_hi_tid.fetch_add(1, Ordering::SeqCst),
            op::UNREGISTER => {}
            op::HOLD_SM if state.sm_held.swap(true, Ordering::SeqCst) => {
                reply = Reply::refusal(11, "another process holds the bit");
            }
            op::HOLD_SM => holds_sm = true,
            other => reply = Reply::refusal(22, &format!("operation {other}")),
        }
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if send_with_fds(socket, reply.as_bytes(), &fds).is_err() {
            break;
        }
    }
    open.store(false, Ordering::SeqCst);
    if holds_sm {
        state.sm_held.store(false, Ordering::SeqCst);
    }
}

fn attach(state: &Arc<State>, open: Arc<AtomicBool>, slots: u32, port: u8) -> Vec<OwnedFd> {
    let slots = if slots == 0 { 64 } else { u64::from(slots) };
    let (ends, fds) = create_pair("test", slots, false, Incarnation::default()).unwrap();
    let (up_bell, down_bell) = (Doorbell::create().unwrap(), Doorbell::create().unwrap());
    let handed = [&up_bell, &down_bell].map(|bell| bell.as_fd().try_clone_to_owned().unwrap());
    let state = state.clone();
    std::thread::spawn(move || work(&state, &open, ends, &down_bell, port));
    let [up_bell, down_bell] = handed;
    vec![fds.up, fds.down, up_bell, down_bell]
}

fn work(
    state: &State,
    open: &AtomicBool,
    mut ends: PlaneEnds<MadMessage, MadMessage>,
    bell: &Doorbell,
    port: u8,
) {
    let mut message = MadMessage::default();
    while open.load(Ordering::SeqCst) && !state.stop.load(Ordering::SeqCst) {
        if !ends.up.pop(&mut message) {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        ends.up.commit();
        let mad = Mad::new(&message.mad);
        if mad.attr_id() == SILENT {
            continue;
        }
        let tid = u64::from(message.envelope.agent) << 32 | mad.tid() & u64::from(u32::MAX);
        MadMut::new(&mut message.mad).set_tid(tid);
        answer(&mut message.mad, port, state.sm_held.load(Ordering::SeqCst));
        message.envelope.slid = 0xffff;
        ends.down.push(&message).unwrap();
        if ends.down.wake_due() {
            bell.ring();
        }
    }
}

fn answer(mad: &mut [u8; 256], port: u8, sm: bool) {
    let view = Smp::new(mad).mad();
    let (attr_id, modifier) = (view.attr_id(), view.attr_mod());
    let mut smp = SmpMut::new(mad);
    smp.mad().set_method(0x81);
    let data = smp.data_mut();
    let guid = |port: u8| NODE_GUID + u64::from(port);
    match attr_id {
        smp::attr::NODE_DESC => NodeDescription::new("host-7 HCA-1").emit(data),
        smp::attr::NODE_INFO => NodeInfo {
            base_version: 1,
            class_version: 1,
            node_type: 1,
            num_ports: 2,
            system_image_guid: guid(3),
            node_guid: NODE_GUID,
            port_guid: guid(port),
            partition_cap: 40,
            revision: 0xa1,
            local_port_num: port,
            ..NodeInfo::default()
        }
        .emit(data),
        smp::attr::PORT_INFO => port_info(u8::try_from(modifier).unwrap(), sm).emit(data),
        smp::attr::GUID_INFO => {
            GuidInfo { guids: [guid(port), 0, 0, 0, 0, 0, 0, 0] }.emit(data);
        }
        smp::attr::PKEY_TABLE => {
            let mut table = PKeyTable::default();
            table.pkeys[0] = if modifier == 0 { 0xffff } else { 0x0001 };
            table.emit(data);
        }
        _ => smp.set_status(0x000c),
    }
}

fn port_info(port: u8, sm: bool) -> PortInfo {
    PortInfo {
        gid_prefix: 0xfe80_0000_0000_0000,
        lid: 0x10 + u16::from(port),
        master_sm_lid: 1,
        cap_mask: 0x0251_4868 | u32::from(sm) << 1,
        link_width_active: 2,
        link_speed_ext_active: 2,
        port_state: port * 2,
        port_phys_state: 5,
        guid_cap: 8,
        ..PortInfo::default()
    }
}
