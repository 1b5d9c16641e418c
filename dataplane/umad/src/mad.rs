//! Sending, receiving and waiting: `umad_send`, `umad_recv`, `umad_poll`.
//!
//! Runs on the caller's thread, any number of threads at once on one port. Only headers are translated here; matching,
//! timeouts and RMPP are the session's. A call that finds something to do neither allocates nor makes a system call of its
//! own.
//!
//! **Cancellation.** OpenSM stops its receiver with pthread_cancel and joins it, so a receive that waits must be a
//! cancellation point like the read(2) it replaces. The session's waits are not, so they are cut into pieces and
//! `pthread_testcancel` is called between them, outside every frame that has anything to clean up.
//!
//! Not done here: finding out whether a MAD makes sense.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use madplane_client::{Envelope, Incoming, MAD_LEN, Outgoing, RecvError, Taken, flag};

use crate::abi::{HEADER_LEN, MadAddr, UserMad};
use crate::address::{load_header, store_header};
use crate::dump::trace;
use crate::guard::{guarded, negative, set_errno};
use crate::ports::{self, OpenPort};

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Longest wait without a look at cancellation and closing.
const PIECE: Duration = Duration::from_millis(100);
/// Rest after telling again that the plane is gone, so that a program that does not stop does not spin.
const REST_WHEN_GONE: Duration = Duration::from_millis(50);

/// `umad_send`: sends one MAD, or one message for RMPP; always `-EIO` if it cannot, with the reason in errno.
pub(crate) extern "C" fn send(
    portid: c_int,
    agentid: c_int,
    umad: *mut c_void,
    length: c_int,
    timeout_ms: c_int,
    retries: c_int,
) -> c_int {
    set_errno(0);
    guarded(-libc::EIO, || {
        let Err(errno) = try_send(portid, agentid, umad, length, timeout_ms, retries) else { return 0 };
        trace(format_args!("send on port {portid} by agent {agentid} failed: errno {errno}"));
        set_errno(errno);
        -libc::EIO
    })
}

fn try_send(
    portid: c_int,
    agentid: c_int,
    umad: *mut c_void,
    length: c_int,
    timeout_ms: c_int,
    retries: c_int,
) -> Result<(), c_int> {
    let port = ports::enter(portid).ok_or(libc::EBADF)?;
    let mut header = load_header(umad).ok_or(libc::EINVAL)?;
    let length = usize::try_from(length).map_err(|_| libc::EINVAL)?;
    let agent = u32::try_from(agentid).map_err(|_| libc::EINVAL)?;
    header.agent_id = agent;
    // a negative time is for ever, as it is for the kernel
    header.timeout_ms = u32::try_from(timeout_ms).unwrap_or(u32::MAX);
    header.retries = u32::try_from(retries).unwrap_or(0);
    store_header(umad, &header);
    let mad = umad.wrapping_byte_add(HEADER_LEN).cast::<u8>();
    // SAFETY: the caller owns `length` bytes behind the header and does not change them during the call.
    let data = unsafe { std::slice::from_raw_parts(mad, length) };
    let outgoing = Outgoing {
        agent,
        envelope: envelope_of(&header.addr),
        data,
        timeout_ms: header.timeout_ms,
        retries: header.retries,
    };
    port.session.send(&outgoing).map_err(|error| error.errno())
}

/// The address of a MAD to send, as the plane wants it.
fn envelope_of(addr: &MadAddr) -> Envelope {
    let mut envelope = Envelope {
        dlid: u16::from_be(addr.lid),
        sl: addr.sl,
        path_bits: addr.path_bits,
        p_key_index: addr.pkey_index,
        dst_qp: u32::from_be(addr.qpn),
        q_key: u32::from_be(addr.qkey),
        ..Envelope::default()
    };
    if addr.grh_present != 0 {
        envelope.flags |= flag::GRH;
        envelope.gid = addr.gid;
        envelope.gid_index = addr.gid_index;
        envelope.hop_limit = addr.hop_limit;
        envelope.traffic_class = addr.traffic_class;
        envelope.flow_label = u32::from_be(addr.flow_label);
    }
    envelope
}

/// The header of a MAD that arrived.
fn header_of(incoming: &Incoming<'_>) -> UserMad {
    let envelope = incoming.envelope;
    let mut header = UserMad {
        agent_id: incoming.agent,
        status: incoming.status,
        length: u32::try_from(HEADER_LEN + incoming.data.len()).unwrap_or(u32::MAX),
        addr: MadAddr {
            qpn: envelope.src_qp.to_be(),
            lid: envelope.slid.to_be(),
            sl: envelope.sl,
            path_bits: envelope.path_bits,
            pkey_index: envelope.p_key_index,
            ..MadAddr::default()
        },
        ..UserMad::default()
    };
    if envelope.flags & flag::GRH != 0 {
        header.addr.grh_present = 1;
        header.addr.gid = envelope.gid;
        header.addr.gid_index = envelope.gid_index;
        header.addr.hop_limit = envelope.hop_limit;
        header.addr.traffic_class = envelope.traffic_class;
        header.addr.flow_label = envelope.flow_label.to_be();
    }
    header
}

/// How one piece of a wait ended.
enum Piece {
    /// The call returns this.
    Over(c_int),
    /// Nothing yet and time left. The port is looked up anew for the next piece, so that one that was closed is noticed.
    NothingYet,
}

/// How long a call may still wait.
#[derive(Clone, Copy)]
enum Wait {
    Never,
    Until(Instant),
    ForEver,
}

impl Wait {
    fn of(timeout_ms: c_int) -> Self {
        match u64::try_from(timeout_ms) {
            Ok(0) => Self::Never,
            Ok(ms) => Self::Until(Instant::now() + Duration::from_millis(ms)),
            Err(_) => Self::ForEver,
        }
    }

    fn next_piece(self) -> Duration {
        match self {
            Self::Never => Duration::ZERO,
            Self::Until(end) => end.saturating_duration_since(Instant::now()).min(PIECE),
            Self::ForEver => PIECE,
        }
    }

    fn is_over(self) -> bool {
        match self {
            Self::Never => true,
            Self::Until(end) => Instant::now() >= end,
            Self::ForEver => false,
        }
    }
}

/// `umad_recv`: one MAD into the caller's buffer; the number of the agent, or a negative errno.
pub(crate) extern "C-unwind" fn recv(
    portid: c_int,
    umad: *mut c_void,
    length: *mut c_int,
    timeout_ms: c_int,
) -> c_int {
    set_errno(0);
    if umad.is_null() || length.is_null() {
        return negative(libc::EINVAL);
    }
    // SAFETY: not null, and the caller passes an int.
    let room = unsafe { length.read() };
    let wait = Wait::of(timeout_ms);
    loop {
        // SAFETY: may be called anywhere; nothing in this frame needs cleaning up if it does not return.
        unsafe { pthread_testcancel() };
        let piece = guarded(Piece::Over(-libc::EIO), || recv_piece(portid, umad, length, room, wait));
        if let Piece::Over(result) = piece {
            return result;
        }
    }
}

fn recv_piece(portid: c_int, umad: *mut c_void, length: *mut c_int, room: c_int, wait: Wait) -> Piece {
    let Some(port) = ports::enter(portid) else { return Piece::Over(negative(libc::EBADF)) };
    let Ok(room) = usize::try_from(room) else { return Piece::Over(negative(libc::EINVAL)) };
    let took = port.session.recv_with(Some(wait.next_piece()), |incoming| deliver(incoming, umad, room));
    let Delivery { result, length: report } = match took {
        Ok(delivery) => delivery,
        Err(RecvError::TimedOut) if !wait.is_over() => return Piece::NothingYet,
        Err(error) => return Piece::Over(negative(failure(&port, error, wait))),
    };
    if let Some(report) = report {
        // SAFETY: recv checked it for null, and the caller passes an int.
        unsafe { length.write(report) };
    }
    Piece::Over(if result < 0 { negative(-result) } else { result })
}

/// The errno of a receive that got nothing.
fn failure(port: &OpenPort, error: RecvError, wait: Wait) -> c_int {
    match (error, wait) {
        (RecvError::TimedOut, Wait::Never) => libc::EAGAIN,
        (RecvError::TimedOut, Wait::Until(_) | Wait::ForEver) => libc::ETIMEDOUT,
        (RecvError::Gone, _) => {
            if port.gone.swap(true, Ordering::Relaxed) && !matches!(wait, Wait::Never) {
                std::thread::sleep(REST_WHEN_GONE);
            }
            libc::EIO
        }
    }
}

/// What `umad_recv` returns, and what it stores as the length, if anything.
#[derive(Debug, PartialEq, Eq)]
struct Delivery {
    result: c_int,
    length: Option<c_int>,
}

/// Copies a MAD behind its header to `umad`, where there is room for `room` bytes behind the header.
///
/// As the kernel does it: no room for a single MAD is `EINVAL`; a longer message that does not fit gives its header, its
/// first 256 bytes and its length with `ENOSPC`; both stay queued.
fn deliver(incoming: &Incoming<'_>, umad: *mut c_void, room: usize) -> Taken<Delivery> {
    let whole = incoming.data.len();
    if room < whole.min(MAD_LEN) {
        return Taken::Keep(Delivery { result: -libc::EINVAL, length: None });
    }
    let fits = whole <= room;
    let part = if fits { incoming.data } else { &incoming.data[..MAD_LEN] };
    store_header(umad, &header_of(incoming));
    let place = umad.wrapping_byte_add(HEADER_LEN).cast::<u8>();
    // SAFETY: the caller owns `room` bytes behind the header, `part` is not longer, and the session's bytes are not there.
    unsafe { ptr::copy_nonoverlapping(part.as_ptr(), place, part.len()) };
    let length = c_int::try_from(whole).ok();
    if fits {
        Taken::Done(Delivery { result: c_int::try_from(incoming.agent).unwrap_or(-libc::EIO), length })
    } else {
        Taken::Keep(Delivery { result: -libc::ENOSPC, length })
    }
}

/// `umad_poll`: waits until a receive would find something.
pub(crate) extern "C-unwind" fn poll(portid: c_int, timeout_ms: c_int) -> c_int {
    let wait = Wait::of(timeout_ms);
    loop {
        // SAFETY: may be called anywhere; nothing in this frame needs cleaning up if it does not return.
        unsafe { pthread_testcancel() };
        if let Piece::Over(result) = guarded(Piece::Over(-libc::EIO), || poll_piece(portid, wait)) {
            return result;
        }
    }
}

fn poll_piece(portid: c_int, wait: Wait) -> Piece {
    let Some(port) = ports::enter(portid) else { return Piece::Over(negative(libc::EBADF)) };
    match port.session.recv_with(Some(wait.next_piece()), |_| Taken::Keep(())) {
        Ok(()) => Piece::Over(0),
        Err(RecvError::TimedOut) if !wait.is_over() => Piece::NothingYet,
        Err(RecvError::TimedOut) => Piece::Over(negative(libc::ETIMEDOUT)),
        Err(error) => Piece::Over(negative(failure(&port, error, wait))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received() -> Envelope {
        Envelope {
            slid: 0x1234,
            sl: 3,
            path_bits: 5,
            p_key_index: 2,
            src_qp: 1,
            flags: flag::GRH,
            flow_label: 0x12345,
            hop_limit: 64,
            traffic_class: 7,
            gid_index: 1,
            gid: [9; 16],
            ..Envelope::default()
        }
    }

    fn incoming<'a>(envelope: &'a Envelope, data: &'a [u8]) -> Incoming<'a> {
        Incoming { agent: 4, status: 0, envelope, data }
    }

    fn delivered(data: &[u8], room: usize) -> (Taken<Delivery>, Vec<u8>) {
        let mut buffer = vec![0xa5_u8; HEADER_LEN + room];
        let taken = deliver(&incoming(&received(), data), buffer.as_mut_ptr().cast(), room);
        (taken, buffer)
    }

    #[test]
    fn a_mad_that_fits_is_taken_with_its_address() {
        let (taken, buffer) = delivered(&[0x77; 256], 260);
        assert!(matches!(taken, Taken::Done(Delivery { result: 4, length: Some(256) })));
        let header = load_header(buffer.as_ptr().cast()).unwrap();
        assert_eq!((header.agent_id, header.status, header.length), (4, 0, 320));
        assert_eq!((header.timeout_ms, header.retries), (0, 0));
        assert_eq!(buffer[20..32], [0, 0, 0, 1, 0, 0, 0, 0, 0x12, 0x34, 3, 5]);
        assert_eq!(buffer[32..36], [1, 1, 64, 7]);
        assert_eq!(buffer[36..52], [9; 16]);
        assert_eq!(buffer[52..56], [0, 1, 0x23, 0x45]);
        assert_eq!(buffer[56..58], 2_u16.to_ne_bytes());
        assert_eq!(buffer[64..320], [0x77; 256]);
        assert_eq!(buffer[320..], [0xa5; 4]);
    }

    #[test]
    fn a_message_that_does_not_fit_stays_and_says_its_length() {
        let message: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let (taken, buffer) = delivered(&message, 256);
        assert!(matches!(taken, Taken::Keep(Delivery { result: -28, length: Some(1000) })));
        assert_eq!(load_header(buffer.as_ptr().cast()).unwrap().length, 1064);
        assert_eq!(buffer[64..], message[..256]);
        let (taken, _) = delivered(&message, 1000);
        assert!(matches!(taken, Taken::Done(Delivery { result: 4, length: Some(1000) })));
    }

    #[test]
    fn a_buffer_below_one_mad_is_einval_and_is_not_touched() {
        let (taken, buffer) = delivered(&[1; 256], 255);
        assert!(matches!(taken, Taken::Keep(Delivery { result: -22, length: None })));
        assert!(buffer.iter().all(|byte| *byte == 0xa5));
        let (taken, buffer) = delivered(&[1; 24], 24);
        assert!(matches!(taken, Taken::Done(Delivery { result: 4, length: Some(24) })), "a timeout needs 24");
        assert_eq!(load_header(buffer.as_ptr().cast()).unwrap().length, 88);
    }

    #[test]
    fn an_address_survives_the_way_through_both_translations() {
        let header = header_of(&incoming(&received(), &[0; 256]));
        let envelope = envelope_of(&header.addr);
        assert_eq!((envelope.dlid, envelope.dst_qp, envelope.p_key_index), (0x1234, 1, 2));
        assert_eq!((envelope.flow_label, envelope.gid, envelope.flags), (0x12345, [9; 16], flag::GRH));
        let plain = envelope_of(&MadAddr { grh_present: 0, ..header.addr });
        assert_eq!((plain.flags, plain.flow_label, plain.gid), (0, 0, [0; 16]));
    }

    #[test]
    fn calls_on_what_is_not_open_fail_as_the_original_does() {
        let mut buffer = [0_u8; 320];
        let umad = buffer.as_mut_ptr().cast();
        assert_eq!(send(-1, 0, umad, 256, 100, 0), -libc::EIO);
        assert_eq!(crate::guard::errno(), libc::EBADF);
        let mut length = 256;
        assert_eq!(recv(-1, umad, &raw mut length, 0), -libc::EBADF);
        assert_eq!(recv(-1, ptr::null_mut(), &raw mut length, 0), -libc::EINVAL);
        assert_eq!(recv(-1, umad, ptr::null_mut(), 0), -libc::EINVAL);
        assert_eq!(length, 256);
        assert_eq!(poll(-1, 0), -libc::EBADF);
    }
}
