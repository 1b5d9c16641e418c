//! A port of a device, as the service sees it: what happens to it, and questions and answers on its queue pair 1.
//!
//! Owned by the service thread. Its context is one of its own, because events of a context come to one reader, and the queues' contexts are
//! with workers. Nothing here waits, apart from the system's own opening and closing.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use madplane_shm::message::MAD_LEN;

use super::super::context::{Context, PortEvent};
use crate::device::{DeviceSpec, Unavailable, verbs_entry};
use crate::rendezvous::{CLASS, GET, Message, OUI, Place, Wrong};
use crate::umad_dev::port::open_device;
use crate::umad_dev::{AgentSpec, Device, GSI_Q_KEY, HEADER_LEN, Header, Receipt, TIMED_OUT};

/// How long the kernel waits for an answer.
const ANSWER_MS: u32 = 200;
const HOP_LIMIT: u8 = 64;

/// What came to queue pair 1.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A question or an answer.
    Message {
        /// From where, and how to answer.
        from: Sender,
        /// What it says.
        message: Message,
    },
    /// Something that is no message.
    Wrong(Place, Wrong),
    /// A question that nobody answered, by the lower half of its transaction id.
    Unanswered(u32),
}

/// Where a message goes to or comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    pub(super) place: Place,
    /// Own GID that is used.
    pub(super) gid_index: u8,
    /// Own P_Key that is used.
    pub(super) p_key_index: u16,
}

/// An open port.
#[derive(Debug)]
pub(super) struct OpenPort {
    umad: Device,
    agent: u32,
    context: Context,
    /// What the kernel takes away first when the device goes.
    entry: Option<PathBuf>,
    number: u8,
    ethernet: bool,
    active: bool,
    gone: bool,
    packet: Box<[u8; HEADER_LEN + MAD_LEN]>,
}

impl OpenPort {
    pub(super) fn open(spec: &DeviceSpec) -> Result<Self, Unavailable> {
        let context = Context::open(spec.device())?;
        let state = context
            .port(spec.port())
            .map_err(|_| Unavailable::NoPort { name: spec.device().to_owned(), port: spec.port() })?;
        let umad = open_device(spec)?;
        let agent =
            AgentSpec { pair: 1, class: CLASS, version: 1, methods: 1 << GET, oui: OUI, kernel_rmpp: false };
        let agent = umad.register(&agent).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Unavailable::Taken { name: spec.device().to_owned(), port: spec.port() },
            _ => Unavailable::failed("registering for questions", &error),
        })?;
        Ok(Self {
            umad,
            agent,
            context,
            entry: verbs_entry(spec.device()),
            number: spec.port(),
            ethernet: state.ethernet,
            active: state.active,
            gone: false,
            packet: Box::new([0; HEADER_LEN + MAD_LEN]),
        })
    }

    /// Takes what happened to the device; true if its addresses may have changed.
    pub(super) fn take_events(&mut self) -> bool {
        let (mut changed, mut any) = (false, false);
        while let Some(event) = self.context.event() {
            any = true;
            match event {
                PortEvent::Removed => self.gone = true,
                PortEvent::Changed => changed = true,
                _ => {}
            }
        }
        if any {
            self.active = self.context.port(self.number).is_ok_and(|state| state.active);
        }
        changed
    }

    /// Whether it is still there, as far as the system has said so; looks at the file system as well if it is told to.
    pub(super) fn is_there(&self, look: bool) -> bool {
        !self.gone && (!look || self.entry.as_ref().is_none_or(|entry| entry.exists()))
    }

    /// Whether it carries packets.
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Where it is now, by this GID of its.
    pub(super) fn place(&self, gid_index: u8) -> io::Result<Place> {
        let gid = self.context.gid(self.number, gid_index)?;
        let lid = if self.ethernet { 0 } else { self.context.port(self.number)?.lid };
        Ok(Place { gid, lid })
    }

    /// Sends a message; one that cannot be sent is lost, as any.
    pub(super) fn send(&mut self, to: &Sender, message: &Message) {
        let header = Header {
            agent: self.agent,
            timeout_ms: if message.answers { 0 } else { ANSWER_MS },
            pair: 1,
            q_key: GSI_Q_KEY,
            lid: to.place.lid,
            global: to.place.gid != [0; 16],
            gid: to.place.gid,
            gid_index: to.gid_index,
            hop_limit: HOP_LIMIT,
            p_key_index: to.p_key_index,
            ..Header::default()
        };
        self.packet[HEADER_LEN..].copy_from_slice(&message.write());
        let _ = self.umad.send(&header, &mut *self.packet);
    }

    /// The next message.
    pub(super) fn receive(&mut self) -> Option<Incoming> {
        let (header, length) = match self.umad.receive(&mut *self.packet) {
            Ok(Receipt::Mad { header, length }) => (header, length),
            Ok(Receipt::Nothing) => return None,
            // an agent that leaves RMPP alone gets nothing longer than a MAD, and the device is no more
            Ok(Receipt::TooLong { .. }) | Err(_) => {
                self.gone = true;
                return None;
            }
        };
        let mut mad = [0; MAD_LEN];
        let length = length.min(MAD_LEN);
        mad[..length].copy_from_slice(&self.packet[HEADER_LEN..HEADER_LEN + length]);
        if header.status == TIMED_OUT {
            return Some(Incoming::Unanswered(u32::from_be_bytes([mad[12], mad[13], mad[14], mad[15]])));
        }
        let place = Place {
            gid: if header.global { header.gid } else { [0; 16] },
            lid: if self.ethernet { 0 } else { header.lid },
        };
        Some(match Message::parse(&mad) {
            Ok(message) => {
                let from = Sender { place, gid_index: header.gid_index, p_key_index: header.p_key_index };
                Incoming::Message { from, message }
            }
            Err(wrong) => Incoming::Wrong(place, wrong),
        })
    }

    /// Readable when there is something to take.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.umad.fd(), self.context.events_fd()]
    }

    pub(super) fn is_ethernet(&self) -> bool {
        self.ethernet
    }
}
