//! Connections coming and going.

use std::os::fd::AsFd;

use madplane_engine::NodeId;
use madplane_shm::command::event;
use madplane_shm::handoff::{self, Reply, Request};
use madplane_shm::sync::Ordering;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use zerocopy::{FromBytes, IntoBytes};

use super::tenancy::Peer;
use super::{Connection, Housekeeping, Role, add};
use crate::devices::is_device;
use crate::orders::{Order, Report};

/// Connections at one time; far more than sessions, so that a refused client can be told why.
const MAX_CONNECTIONS: usize = 4096;

impl Housekeeping {
    /// Takes every connection that waits.
    pub(super) fn accept(&mut self) {
        loop {
            let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => {
                    self.error(&format!("cannot accept a client: {error}"));
                    return;
                }
            };
            let Some(peer) = Peer::of(&socket) else { continue };
            let free = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
            if free >= MAX_CONNECTIONS {
                let _ = answer(&socket, &Reply::refusal(libc_errno::EMFILE, "too many clients"), &[]);
                continue;
            }
            if add(&self.epoll, &socket, free as u64).is_err() {
                continue;
            }
            let connection = Connection { socket, peer, role: Role::New };
            if free == self.connections.len() {
                self.connections.push(Some(connection));
            } else {
                self.connections[free] = Some(connection);
            }
        }
    }

    /// Reads one packet from a connection, or learns that it ended.
    pub(super) fn readable(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get(index) else { return };
        let mut bytes = [0u8; size_of::<Request>()];
        match handoff::recv_with_fds(&connection.socket, &mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok((length, _)) if length == bytes.len() => match Request::read_from_bytes(&bytes) {
                Ok(request) => self.request(index, &request),
                Err(_) => self.disconnect(index),
            },
            Ok(_) | Err(_) => self.disconnect(index),
        }
    }

    /// Ends a connection and everything it stood for.
    pub(super) fn disconnect(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::take) else { return };
        let _ = rustix::event::epoll::delete(&self.epoll, &connection.socket);
        self.sm_waiting.retain(|waiting| *waiting != index);
        match connection.role {
            Role::New | Role::SmHold { held: false, .. } => {}
            Role::Session { slot } => self.close_session(slot),
            Role::SmHold { place, held: true } => self.release_sm(place),
            Role::Control => {
                if let Some(channel) = self.control.take() {
                    // the other side may hold the doorbell open: epoll would go on reporting it
                    let _ = rustix::event::epoll::delete(&self.epoll, &channel.command_bell);
                }
                tracing::info!("control detached");
            }
        }
    }

    fn close_session(&mut self, slot: u32) {
        let place = self.slots[slot as usize].place;
        let worker = self.worker_of(place.0);
        match self.ask(worker, Order::Close { slot }) {
            Some(Report::Done(session)) => drop(session),
            _ => self.error("a session could not be closed"),
        }
        self.slots[slot as usize].open = false;
        self.memory.release(self.slots[slot as usize].memory);
        self.show_huge_bytes();
        self.unbind(slot);
        let record = self.status.session(slot as usize);
        record.id.store(0, Ordering::Release);
        self.count_sessions();
        self.tell_control(event::SESSION_CLOSED, place, slot + 1, "");
    }

    /// Writes the number of open sessions to the status segment.
    pub(super) fn count_sessions(&self) {
        let open = self.slots.iter().filter(|slot| slot.open).count();
        self.status.plane().sessions.store(open as u64, Ordering::Relaxed);
    }

    /// Clears the SM bit and gives it to whoever waits longest for the port.
    fn release_sm(&mut self, place: (NodeId, u8)) {
        // clearing it takes nothing that could be refused
        let _ = self.set_sm(place, false);
        let next = self.sm_waiting.iter().position(|index| {
            matches!(&self.connections[*index],
                Some(Connection { role: Role::SmHold { place: wanted, .. }, .. }) if *wanted == place)
        });
        if let Some(index) = next.and_then(|at| self.sm_waiting.remove(at)) {
            self.hold_sm(index, place);
        }
    }

    /// Gives the SM bit of a port to a connection.
    pub(super) fn hold_sm(&mut self, index: usize, place: (NodeId, u8)) {
        if let Err((errno, text)) = self.set_sm(place, true) {
            self.answer_to(index, &Reply::refusal(errno, &text), &[]);
            return;
        }
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.role = Role::SmHold { place, held: true };
        }
        self.answer_to(index, &Reply::default(), &[]);
    }

    fn set_sm(&mut self, (node, port): (NodeId, u8), on: bool) -> Result<(), (i32, String)> {
        if is_device(node) {
            return self.set_is_sm_of_device(node, on);
        }
        let worker = self.worker_of(node);
        self.ask(worker, Order::SetIsSm { node, port, on });
        Ok(())
    }

    /// Whether a connection holds the SM bit of a port.
    pub(super) fn is_sm_held(&self, place: (NodeId, u8)) -> bool {
        let holds =
            |c: &Connection| matches!(c.role, Role::SmHold { place: other, held: true } if other == place);
        self.connections.iter().flatten().any(holds)
    }

    /// Sends a reply; a client that does not take it is disconnected.
    pub(super) fn answer_to(&mut self, index: usize, reply: &Reply, fds: &[rustix::fd::BorrowedFd<'_>]) {
        let Some(Some(connection)) = self.connections.get(index) else { return };
        if answer(&connection.socket, reply, fds).is_err() {
            self.disconnect(index);
        }
    }
}

fn answer(socket: impl AsFd, reply: &Reply, fds: &[rustix::fd::BorrowedFd<'_>]) -> std::io::Result<()> {
    handoff::send_with_fds(socket, reply.as_bytes(), fds)
}

/// The errnos that travel in replies.
pub(super) mod libc_errno {
    use rustix::io::Errno;

    pub(in super::super) const EACCES: i32 = Errno::ACCESS.raw_os_error();
    pub(in super::super) const EAGAIN: i32 = Errno::AGAIN.raw_os_error();
    pub(in super::super) const EBUSY: i32 = Errno::BUSY.raw_os_error();
    pub(in super::super) const EINVAL: i32 = Errno::INVAL.raw_os_error();
    pub(in super::super) const EIO: i32 = Errno::IO.raw_os_error();
    pub(in super::super) const EMFILE: i32 = Errno::MFILE.raw_os_error();
    pub(in super::super) const ENOENT: i32 = Errno::NOENT.raw_os_error();
    pub(in super::super) const ENODEV: i32 = Errno::NODEV.raw_os_error();
    pub(in super::super) const ENOMEM: i32 = Errno::NOMEM.raw_os_error();
    pub(in super::super) const EPERM: i32 = Errno::PERM.raw_os_error();
    pub(in super::super) const EPROTO: i32 = Errno::PROTO.raw_os_error();
}
