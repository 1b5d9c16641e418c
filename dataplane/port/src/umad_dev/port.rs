//! A port of a worker on the kernel's umad device.
//!
//! Owned by one worker, called from its thread. One system call a MAD, either way; poll mode reads until nothing is there,
//! interrupt mode waits for the descriptor in the worker's epoll. MADs are 256 bytes: agents that leave RMPP to the kernel
//! are for [`Device`], not for this port, which counts and drops what is longer. No allocation per MAD.
//!
//! The kernel hands out an answer only while the request waits for it, so every request goes with a time-out. What timed out is
//! no MAD of the port's: it is kept aside, a bounded number, for [`UmadPort::timed_out`].

use std::io;
use std::os::fd::BorrowedFd;

use madplane_shm::message::{Envelope, MAD_LEN, flag, kind};

use super::{AgentSpec, Device, HEADER_LEN, Header, MAD_HEADER_LEN, Receipt, TIMED_OUT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::{DeviceSpec, Unavailable, umad_path};
use crate::{Capabilities, MadMessage, MadRx, MadTx};

/// How long the kernel waits for an answer unless told otherwise.
pub const DEFAULT_TIMEOUT_MS: u32 = 1000;
/// Requests that timed out and were not asked for yet.
const TIMEOUTS_KEPT: usize = 64;

/// A request that nobody answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut {
    /// Agent that sent it.
    pub agent: u32,
    /// Its MAD header, transaction id as the kernel sent it: low half as written, high half the agent's.
    pub mad: [u8; MAD_HEADER_LEN],
}

/// What a port did and met; numbers only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UmadCounters {
    /// MADs the kernel took.
    pub sent: u64,
    /// MADs received.
    pub received: u64,
    /// MADs the kernel refused: an agent that does not exist, or a transaction id that waits already.
    pub refused: u64,
    /// Requests of ours that nobody answered.
    pub timed_out: u64,
    /// Of these, how many were not asked for in time.
    pub timeouts_lost: u64,
    /// Joined messages longer than a MAD.
    pub too_long: u64,
}

/// A port on a umad device; both halves, because one file serves both.
#[derive(Debug)]
pub struct UmadPort {
    device: Device,
    packet: Box<[u8; HEADER_LEN + MAD_LEN]>,
    timeouts: Box<[Option<TimedOut>; TIMEOUTS_KEPT]>,
    timeouts_first: usize,
    timeouts_count: usize,
    timeout_ms: u32,
    gone: bool,
    counters: UmadCounters,
}

/// True if the kernel has to wait for an answer: not to an answer, nor to a Send, nor to a segment of RMPP that is not the last. A
/// Trap may be answered by a TrapRepress.
pub fn wants_answer(mad: &[u8; MAD_LEN]) -> bool {
    const RESPONSE: u8 = 0x80;
    const SEND: u8 = 0x03;
    const TRAP_REPRESS: u8 = 0x07;
    const BASEBOARD: u8 = 0x05;
    let baseboard_answer = mad[1] == BASEBOARD && mad[23] & 1 != 0;
    let request = mad[3] & RESPONSE == 0 && mad[3] != SEND && mad[3] != TRAP_REPRESS && !baseboard_answer;
    request && (!is_rmpp(mad) || is_last_segment(mad))
}

/// True for a segment or an acknowledgement of RMPP.
pub fn is_rmpp(mad: &[u8; MAD_LEN]) -> bool {
    const ACTIVE: u8 = 0x01;
    matches!(mad[1], 0x03 | 0x06 | 0x10 | 0x12 | 0x30..=0x4f) && mad[26] & ACTIVE != 0
}

fn is_last_segment(mad: &[u8; MAD_LEN]) -> bool {
    const DATA: u8 = 1;
    const LAST: u8 = 0x04;
    mad[25] == DATA && mad[26] & LAST != 0
}

/// Opens the umad device of a port.
///
/// # Errors
/// [`Unavailable`], for the operator.
pub(crate) fn open_device(spec: &DeviceSpec) -> Result<Device, Unavailable> {
    let path = umad_path(spec.device(), spec.port())?;
    Device::open(&path).map_err(|error| match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Unavailable::NoPermission { what: path.display().to_string() },
        Some(libc::ENXIO | libc::ENODEV | libc::ENOENT) => {
            Unavailable::Removed { name: spec.device().to_owned() }
        }
        _ => Unavailable::failed("opening the umad device", &error),
    })
}

impl UmadPort {
    /// Opens the umad device of a port.
    ///
    /// # Errors
    /// [`Unavailable`], for the operator.
    pub fn open(spec: &DeviceSpec) -> Result<Self, Unavailable> {
        Ok(Self {
            device: open_device(spec)?,
            packet: Box::new([0; HEADER_LEN + MAD_LEN]),
            timeouts: Box::new([None; TIMEOUTS_KEPT]),
            timeouts_first: 0,
            timeouts_count: 0,
            timeout_ms: DEFAULT_TIMEOUT_MS,
            gone: false,
            counters: UmadCounters::default(),
        })
    }

    /// Registers an agent. MADs are sent by its number in their envelope, and come with it.
    ///
    /// # Errors
    /// As [`Device::register`]; EINVAL for one that leaves RMPP to the kernel.
    pub fn register(&mut self, spec: &AgentSpec) -> io::Result<u32> {
        if spec.kernel_rmpp {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.device.register(spec)
    }

    /// Takes an agent away again.
    ///
    /// # Errors
    /// EINVAL: no such agent.
    pub fn unregister(&mut self, agent: u32) -> io::Result<()> {
        self.device.unregister(agent)
    }

    /// How long the kernel waits for an answer to what is sent from now on; at least 1 ms.
    pub fn set_timeout_ms(&mut self, timeout_ms: u32) {
        self.timeout_ms = timeout_ms.max(1);
    }

    /// The oldest request that timed out and was not asked for yet.
    pub fn timed_out(&mut self) -> Option<TimedOut> {
        let oldest = self.timeouts[self.timeouts_first].take()?;
        self.timeouts_first = (self.timeouts_first + 1) % TIMEOUTS_KEPT;
        self.timeouts_count -= 1;
        Some(oldest)
    }

    fn keep_timeout(&mut self, agent: u32) {
        self.counters.timed_out += 1;
        if self.timeouts_count == TIMEOUTS_KEPT {
            self.counters.timeouts_lost += 1;
            return;
        }
        let mut mad = [0; MAD_HEADER_LEN];
        mad.copy_from_slice(&self.packet[HEADER_LEN..HEADER_LEN + MAD_HEADER_LEN]);
        self.timeouts[(self.timeouts_first + self.timeouts_count) % TIMEOUTS_KEPT] =
            Some(TimedOut { agent, mad });
        self.timeouts_count += 1;
    }

    /// EIO of a write has two reasons: no such agent, or no device any more; the latter shows at the descriptor as well.
    fn device_is_gone(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.device.fd(), PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::ERR)
    }

    /// The descriptor to wait for.
    pub fn waker(&self) -> BorrowedFd<'_> {
        self.device.fd()
    }

    /// False if the device is gone and the port has to be opened again.
    pub fn is_whole(&self) -> bool {
        !self.gone
    }

    /// Counters since it was opened.
    pub fn counters(&self) -> UmadCounters {
        self.counters
    }
}

fn envelope(header: &Header, class: u8) -> Envelope {
    const SMP_CLASSES: [u8; 2] = [0x01, 0x81];
    Envelope {
        kind: kind::MAD,
        flags: if header.global { flag::GRH } else { 0 },
        agent: header.agent,
        slid: header.lid,
        sl: header.sl,
        path_bits: header.path_bits,
        p_key_index: header.p_key_index,
        src_qp: header.pair,
        dst_qp: u32::from(!SMP_CLASSES.contains(&class)),
        flow_label: header.flow_label,
        gid_index: header.gid_index,
        hop_limit: header.hop_limit,
        traffic_class: header.traffic_class,
        gid: header.gid,
        length: 256,
        ..Envelope::default()
    }
}

fn header(envelope: &Envelope, timeout_ms: u32) -> Header {
    Header {
        agent: envelope.agent,
        timeout_ms,
        pair: envelope.dst_qp,
        q_key: envelope.q_key,
        lid: envelope.dlid,
        sl: envelope.sl,
        path_bits: envelope.path_bits,
        global: envelope.flags & flag::GRH != 0,
        gid_index: envelope.gid_index,
        hop_limit: envelope.hop_limit,
        traffic_class: envelope.traffic_class,
        gid: envelope.gid,
        flow_label: envelope.flow_label,
        p_key_index: envelope.p_key_index,
        ..Header::default()
    }
}

impl MadRx for UmadPort {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        let mut taken = 0;
        while taken < into.len() && !self.gone {
            match self.device.receive(&mut *self.packet) {
                Ok(Receipt::Nothing) => break,
                Ok(Receipt::Mad { header, .. }) if header.status == TIMED_OUT => {
                    self.keep_timeout(header.agent);
                }
                Ok(Receipt::Mad { header, length }) => {
                    let message = &mut into[taken];
                    message.mad.fill(0);
                    let length = length.min(MAD_LEN);
                    message.mad[..length].copy_from_slice(&self.packet[HEADER_LEN..HEADER_LEN + length]);
                    message.envelope = envelope(&header, message.mad[1]);
                    self.counters.received += 1;
                    taken += 1;
                }
                // no agent of ours asks the kernel to join, so this cannot be; it would stay at the head for ever
                Ok(Receipt::TooLong { .. }) => {
                    self.counters.too_long += 1;
                    self.gone = true;
                }
                Err(_) => self.gone = true,
            }
        }
        taken
    }

    fn release(&mut self) {}

    fn capabilities(&self) -> Capabilities {
        Capabilities { depth: usize::MAX, wakes: true, can_sleep: true }
    }
}

impl MadTx for UmadPort {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        let mut given = 0;
        for message in from {
            if self.gone {
                break;
            }
            let timeout_ms = if wants_answer(&message.mad) { self.timeout_ms } else { 0 };
            self.packet[HEADER_LEN..].copy_from_slice(&message.mad);
            match self.device.send(&header(&message.envelope, timeout_ms), &mut *self.packet) {
                Ok(()) => self.counters.sent += 1,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM) => break,
                    Some(libc::EIO | libc::ENODEV) if self.device_is_gone() => {
                        self.gone = true;
                        break;
                    }
                    _ => self.counters.refused += 1,
                },
            }
            given += 1;
        }
        given
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        <Self as MadRx>::capabilities(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mad(class: u8, method: u8, modifier: u8) -> [u8; MAD_LEN] {
        let mut mad = [0xa5; MAD_LEN];
        (mad[1], mad[3], mad[23]) = (class, method, modifier);
        mad
    }

    #[test]
    fn only_what_may_be_answered_waits_for_an_answer() {
        for (class, method, modifier, waits) in [
            (0x04, 0x01, 0, true),
            (0x04, 0x81, 0, false),
            (0x01, 0x05, 0, true),
            (0x01, 0x07, 0, false),
            (0x30, 0x03, 0, false),
            (0x05, 0x02, 1, false),
            (0x05, 0x02, 0, true),
        ] {
            assert_eq!(wants_answer(&mad(class, method, modifier)), waits, "{class:#x} {method:#x}");
        }
    }

    #[test]
    fn of_a_message_in_segments_only_the_last_waits_for_an_answer() {
        for (class, method, kind, flags, waits) in [
            (0x03, 0x12, 1, 0x01, false),
            (0x03, 0x12, 1, 0x05, true),
            (0x32, 0x01, 1, 0x07, true),
            (0x03, 0x12, 2, 0x01, false),
            (0x03, 0x12, 4, 0x01, false),
            (0x03, 0x92, 1, 0x07, false),
            (0x03, 0x12, 2, 0x00, true),
            (0x04, 0x01, 2, 0x01, true),
        ] {
            let mut mad = mad(class, method, 0);
            (mad[25], mad[26]) = (kind, flags);
            assert_eq!(wants_answer(&mad), waits, "{class:#x} {method:#x} kind {kind} flags {flags:#x}");
        }
    }

    #[test]
    fn an_envelope_goes_to_the_kernel_and_comes_back() {
        let sent = Envelope {
            kind: kind::MAD,
            flags: flag::GRH,
            agent: 5,
            dlid: 6,
            sl: 1,
            path_bits: 2,
            p_key_index: 3,
            dst_qp: 1,
            q_key: 0x8001_0000,
            flow_label: 4,
            gid_index: 7,
            hop_limit: 8,
            traffic_class: 9,
            gid: [10; 16],
            length: 256,
            ..Envelope::default()
        };
        let there = header(&sent, 100);
        assert_eq!((there.timeout_ms, there.pair, there.lid), (100, 1, 6));
        let mut back = envelope(&there, 0x04);
        assert_eq!((back.slid, back.src_qp, back.dst_qp), (6, 1, 1));
        (back.slid, back.dlid, back.src_qp, back.q_key) = (0, 6, 0, 0x8001_0000);
        assert_eq!(back, sent);
        assert_eq!(envelope(&there, 0x81).dst_qp, 0);
    }
}
