//! The kernel's umad device: `/dev/infiniband/umadN`, as its driver (`user_mad.c`) wants it.
//!
//! [`Device`] is the file: agents, one write a MAD, one read a MAD, never waiting. [`port::UmadPort`] is a port of a worker on it. The
//! kernel matches answers to requests, counts their time-outs and, for agents that ask for it, cuts and joins RMPP; none of
//! this is done here. A file is owned by one thread; it does not do what libibumad does above it (finding ports: see
//! [`crate::device`]).
//!
//! Tried on soft-RoCE: GMPs on QP1 between two devices, time-outs, kernel RMPP. Agents of QP0 are asked for in the same way, but
//! soft-RoCE refuses them; that SMPs pass on an InfiniBand adapter is reasoned from the driver's source, not tried.

pub mod port;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use madplane_shm::message::MAD_LEN;
use rustix::fs::{Mode, OFlags};

use crate::sys;

/// Bytes before the MAD in what is read and written, with the index of the P_Key.
pub const HEADER_LEN: usize = 64;
/// Bytes of a MAD's own header; all that comes back with a time-out.
pub const MAD_HEADER_LEN: usize = 24;
/// Q_Key of queue pair 1, and of those who talk with it.
pub const GSI_Q_KEY: u32 = 0x8001_0000;
/// Agents of one file.
pub const MAX_AGENTS: usize = 32;
/// Status of a request that nobody answered in time.
pub const TIMED_OUT: u32 = 110;
/// Least that can be written behind the header: a MAD with an RMPP header.
const LEAST_MAD: usize = 36;

/// What an agent wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentSpec {
    /// Queue pair, 0 or 1; SMP classes are on 0, all others on 1.
    pub pair: u8,
    /// Management class; 0 for one that only sends.
    pub class: u8,
    /// Version of the class.
    pub version: u8,
    /// Methods wanted as requests: bit m is method m.
    pub methods: u128,
    /// OUI of a vendor class 0x30 to 0x4F.
    pub oui: [u8; 3],
    /// The kernel cuts and joins RMPP.
    pub kernel_rmpp: bool,
}

/// What goes with a MAD, to the kernel and from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Agent that sends, or that is to receive.
    pub agent: u32,
    /// Received: 0, or [`TIMED_OUT`] for a request of one's own that comes back.
    pub status: u32,
    /// Sent: how long the kernel waits for the answer; 0 expects none.
    pub timeout_ms: u32,
    /// Sent: how often it sends again.
    pub retries: u32,
    /// Received: length with this header.
    pub length: u32,
    /// Queue pair of the other end.
    pub pair: u32,
    /// Q_Key, sent only.
    pub q_key: u32,
    /// LID of the other end.
    pub lid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the own LID.
    pub path_bits: u8,
    /// The fields of the global header are meaningful.
    pub global: bool,
    /// Index of the own GID.
    pub gid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// GID of the other end, wire order.
    pub gid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// Index of the P_Key.
    pub p_key_index: u16,
}

impl Header {
    /// As the kernel reads it.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.agent.to_ne_bytes());
        put(4, &self.status.to_ne_bytes());
        put(8, &self.timeout_ms.to_ne_bytes());
        put(12, &self.retries.to_ne_bytes());
        put(16, &self.length.to_ne_bytes());
        put(20, &self.pair.to_be_bytes());
        put(24, &self.q_key.to_be_bytes());
        put(28, &self.lid.to_be_bytes());
        put(30, &[self.sl, self.path_bits, u8::from(self.global), self.gid_index]);
        put(34, &[self.hop_limit, self.traffic_class]);
        put(36, &self.gid);
        put(52, &self.flow_label.to_be_bytes());
        put(56, &self.p_key_index.to_ne_bytes());
        bytes
    }

    /// As the kernel writes it.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Self {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[36..52]);
        Self {
            agent: u32::from_ne_bytes(word(0)),
            status: u32::from_ne_bytes(word(4)),
            timeout_ms: u32::from_ne_bytes(word(8)),
            retries: u32::from_ne_bytes(word(12)),
            length: u32::from_ne_bytes(word(16)),
            pair: u32::from_be_bytes(word(20)),
            q_key: u32::from_be_bytes(word(24)),
            lid: u16::from_be_bytes([bytes[28], bytes[29]]),
            sl: bytes[30],
            path_bits: bytes[31],
            global: bytes[32] != 0,
            gid_index: bytes[33],
            hop_limit: bytes[34],
            traffic_class: bytes[35],
            gid,
            flow_label: u32::from_be_bytes(word(52)),
            p_key_index: u16::from_ne_bytes([bytes[56], bytes[57]]),
        }
    }
}

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// Nothing is there.
    Nothing,
    /// A MAD of `length` bytes behind the header. A time-out brings [`MAD_HEADER_LEN`] of them.
    Mad {
        /// What goes with it.
        header: Header,
        /// Bytes of the MAD.
        length: usize,
    },
    /// A joined RMPP message of `needed` bytes, for which the buffer is too short; it waits at the head of the queue.
    TooLong {
        /// What goes with it.
        header: Header,
        /// Bytes of the MAD, without the header.
        needed: usize,
    },
}

/// An open umad device.
#[derive(Debug)]
pub struct Device {
    file: OwnedFd,
}

impl Device {
    /// Opens the device, with headers that name P_Keys.
    ///
    /// # Errors
    /// As open(2); EINVAL from a kernel older than P_Key indices.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        sys::umad_enable_p_key(&file)?;
        Ok(Self { file })
    }

    /// Registers an agent; its number on this file.
    ///
    /// # Errors
    /// EINVAL: class, queue pair and methods do not go together, or a method is taken. ENOMEM: 33rd agent. EPROTONOSUPPORT: no
    /// such queue pair on this device. EPIPE: the device is gone.
    pub fn register(&self, spec: &AgentSpec) -> io::Result<u32> {
        let mut request = sys::UmadRegistration {
            pair: spec.pair,
            class: spec.class,
            version: spec.version,
            oui: spec.oui,
            rmpp_version: u8::from(spec.kernel_rmpp),
            ..Default::default()
        };
        for (index, word) in request.methods.iter_mut().enumerate() {
            // bit m of the mask is bit m % 32 of word m / 32
            *word = u32::try_from(spec.methods >> (32 * index) & u128::from(u32::MAX)).unwrap_or(0);
        }
        sys::umad_register(&self.file, &mut request)?;
        Ok(request.agent)
    }

    /// Unregisters an agent; requests of its that wait for an answer are forgotten.
    ///
    /// # Errors
    /// EINVAL: no such agent.
    pub fn unregister(&self, agent: u32) -> io::Result<()> {
        sys::umad_unregister(&self.file, agent)
    }

    /// Sends a MAD that lies behind [`HEADER_LEN`] free bytes in `packet`, into which `header` is written.
    ///
    /// # Errors
    /// EINVAL: too short, bad agent, or a request with this transaction id waits already. EIO, ENODEV: the device is gone.
    pub fn send(&self, header: &Header, packet: &mut [u8]) -> io::Result<()> {
        let Some(place) = packet.first_chunk_mut::<HEADER_LEN>() else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        *place = header.to_bytes();
        if packet.len() < HEADER_LEN + LEAST_MAD {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        rustix::io::write(&self.file, packet)?;
        Ok(())
    }

    /// Receives into `packet`: the header's place, then the MAD. At least 64 + 256 bytes.
    ///
    /// # Errors
    /// EIO: the device is gone. EINVAL: `packet` is shorter than a MAD.
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<Receipt> {
        if packet.len() < HEADER_LEN + MAD_LEN {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let result = rustix::io::read(&self.file, &mut *packet);
        let header = |packet: &[u8]| packet.first_chunk().map(Header::from_bytes).unwrap_or_default();
        match result {
            Ok(length) if length >= HEADER_LEN => {
                Ok(Receipt::Mad { header: header(packet), length: length - HEADER_LEN })
            }
            Ok(_) => Ok(Receipt::Nothing),
            Err(rustix::io::Errno::NOSPC) => {
                let header = header(packet);
                let needed = (header.length as usize).saturating_sub(HEADER_LEN);
                Ok(Receipt::TooLong { header, needed })
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Receipt::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Readable when something is there; in error when the device is gone.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_as_it_was_written() {
        let header = Header {
            agent: 3,
            status: TIMED_OUT,
            timeout_ms: 1000,
            retries: 3,
            length: 88,
            pair: 1,
            q_key: 0x8001_0000,
            lid: 0x0102,
            sl: 4,
            path_bits: 5,
            global: true,
            gid_index: 6,
            hop_limit: 7,
            traffic_class: 8,
            gid: *b"abcdefghijklmnop",
            flow_label: 0x0001_0203,
            p_key_index: 9,
        };
        assert_eq!(Header::from_bytes(&header.to_bytes()), header);
    }

    #[test]
    fn fields_lie_where_the_kernel_looks_for_them() {
        let header = Header {
            agent: 0x0403_0201,
            pair: 0x0102_0304,
            q_key: 0x8001_0000,
            lid: 0xfffe,
            sl: 0x11,
            path_bits: 0x12,
            global: true,
            gid_index: 0x13,
            hop_limit: 0x14,
            traffic_class: 0x15,
            gid: [0x16; 16],
            flow_label: 0x000a_0b0c,
            p_key_index: 0x1718,
            ..Header::default()
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[0..4], 0x0403_0201_u32.to_ne_bytes());
        assert_eq!(bytes[20..28], [1, 2, 3, 4, 0x80, 1, 0, 0]);
        assert_eq!(bytes[28..36], [0xff, 0xfe, 0x11, 0x12, 1, 0x13, 0x14, 0x15]);
        assert_eq!(bytes[36..52], [0x16; 16]);
        assert_eq!(bytes[52..56], [0, 0x0a, 0x0b, 0x0c]);
        assert_eq!(bytes[56..58], 0x1718_u16.to_ne_bytes());
        assert_eq!(bytes[58..64], [0; 6]);
    }

    #[test]
    fn what_is_no_device_is_refused() {
        assert_eq!(Device::open(Path::new("/dev/null")).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(
            Device::open(Path::new("/dev/infiniband/none")).unwrap_err().raw_os_error(),
            Some(libc::ENOENT)
        );
    }
}
