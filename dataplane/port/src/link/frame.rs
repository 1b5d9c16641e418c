//! The frames of a link: bytes to fields and back.
//!
//! Pure functions, no state. Big-endian, every field at a fixed place, the length of the whole frame stated in it and checked.
//! Nothing that comes in is trusted: [`Frame::parse`] looks at each field and names what is wrong.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `MPLK` |
//! | 4 | version, 1 |
//! | 5 | kind: 1 MAD, 2 keep-alive |
//! | 6..8 | length of the frame |
//! | 8..16 | sender's link session |
//! | 16..24 | receiver's link session as the sender knows it, 0 if it hears nothing |
//! | 24..32 | MAD: its number, from 1; keep-alive: number of the last MAD sent |
//! | 32..40 | MADs received from the other end |
//! | 40.. | MAD: envelope (52) and MAD (256); keep-alive: [`Declared`] and clock (48) |

use madplane_shm::message::{MAD_LEN, MadMessage};

use super::{Declared, Offer};
use crate::datagram::MAX_FRAME;

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"MPLK";
/// Version of this layout.
pub const VERSION: u8 = 1;

const HEADER: usize = 40;
const ENVELOPE: usize = 52;
/// Length of a frame with a MAD.
pub const MAD_FRAME: usize = HEADER + ENVELOPE + MAD_LEN;
/// Length of a keep-alive.
pub const KEEP_ALIVE_FRAME: usize = HEADER + 48;

const _: () = assert!(MAD_FRAME <= MAX_FRAME && KEEP_ALIVE_FRAME <= MAX_FRAME);

const KIND_MAD: u8 = 1;
const KIND_KEEP_ALIVE: u8 = 2;

/// Why a frame is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// It ends before its fields do, or is shorter than it says.
    Truncated,
    /// It is longer than it says, or than its kind is.
    Oversized,
    /// It does not begin as a frame does.
    Magic,
    /// It is of another version.
    Version,
    /// Its kind does not exist.
    Kind,
    /// It is of a link session that is over, or of another.
    Session,
    /// Its number cannot be.
    Sequence,
}

impl Refusal {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Truncated,
        Self::Oversized,
        Self::Magic,
        Self::Version,
        Self::Kind,
        Self::Session,
        Self::Sequence,
    ];

    /// The name under which the count is shown.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Truncated => "refused_truncated",
            Self::Oversized => "refused_oversized",
            Self::Magic => "refused_magic",
            Self::Version => "refused_version",
            Self::Kind => "refused_kind",
            Self::Session => "refused_session",
            Self::Sequence => "refused_sequence",
        }
    }
}

/// What every frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Link session of the sender.
    pub from: u64,
    /// Link session of the receiver, 0 if the sender hears nothing.
    pub to: u64,
    /// MAD: its number; keep-alive: number of the last MAD sent.
    pub sequence: u64,
    /// MADs that the sender has received.
    pub received: u64,
}

/// What a keep-alive says of clocks, nanoseconds of whoever wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// The sender's clock.
    pub sent_ns: u64,
    /// `sent_ns` of the last keep-alive heard, 0 for none.
    pub echo_ns: u64,
    /// Time since that was heard.
    pub held_ns: u64,
}

/// A frame that is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// A MAD: its 308 bytes, read by [`read_mad`].
    Mad(&'a [u8; ENVELOPE + MAD_LEN]),
    /// A keep-alive.
    KeepAlive(Declared, Clock),
}

/// A frame taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What every frame says.
    pub header: Header,
    /// The rest.
    pub body: Body<'a>,
}

impl<'a> Frame<'a> {
    /// Takes a frame apart.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let mut reader = Reader(bytes);
        if reader.array::<4>()? != MAGIC {
            return Err(Refusal::Magic);
        }
        let [version, kind] = reader.array()?;
        if version != VERSION {
            return Err(Refusal::Version);
        }
        let length = usize::from(reader.u16()?);
        let expected = match kind {
            KIND_MAD => MAD_FRAME,
            KIND_KEEP_ALIVE => KEEP_ALIVE_FRAME,
            _ => return Err(Refusal::Kind),
        };
        if bytes.len() < length || length < expected {
            return Err(Refusal::Truncated);
        }
        if bytes.len() > length || length > expected {
            return Err(Refusal::Oversized);
        }
        let header = Header {
            from: reader.u64()?,
            to: reader.u64()?,
            sequence: reader.u64()?,
            received: reader.u64()?,
        };
        if header.from == 0 {
            return Err(Refusal::Session);
        }
        let body = if kind == KIND_MAD {
            Body::Mad(reader.0.first_chunk().ok_or(Refusal::Truncated)?)
        } else {
            let [want, width, speed, speed_ext, fdr10, plugged, port, _] = reader.array()?;
            let offer = Offer { want, width, speed, speed_ext, fdr10 };
            let (episode, _reserved) = (reader.u32()?, reader.u32()?);
            let node_guid = reader.u64()?;
            let declared = Declared { offer, plugged: plugged & 1 != 0, episode, node_guid, port };
            let clock = Clock { sent_ns: reader.u64()?, echo_ns: reader.u64()?, held_ns: reader.u64()? };
            Body::KeepAlive(declared, clock)
        };
        Ok(Self { header, body })
    }
}

/// Writes a frame with a MAD.
pub fn write_mad(header: &Header, message: &MadMessage, into: &mut [u8; MAX_FRAME]) -> usize {
    let mut writer = Writer { bytes: into, at: 0 };
    writer.header(KIND_MAD, MAD_FRAME, header);
    let envelope = &message.envelope;
    for half in [envelope.kind, envelope.flags, envelope.slid, envelope.dlid, envelope.p_key_index] {
        writer.put(&half.to_be_bytes());
    }
    writer.put(&[envelope.sl, envelope.path_bits]);
    for word in [envelope.agent, envelope.src_qp, envelope.dst_qp, envelope.q_key, envelope.flow_label] {
        writer.put(&word.to_be_bytes());
    }
    writer.put(&[envelope.gid_index, envelope.hop_limit, envelope.traffic_class, 0]);
    writer.put(&envelope.gid);
    writer.put(&message.mad);
    debug_assert_eq!(writer.at, MAD_FRAME);
    writer.at
}

/// Reads the MAD of a frame.
pub fn read_mad(body: &[u8; ENVELOPE + MAD_LEN], message: &mut MadMessage) {
    let mut reader = Reader(body);
    let mut read = || -> Result<(), Refusal> {
        let envelope = &mut message.envelope;
        envelope.kind = reader.u16()?;
        envelope.flags = reader.u16()?;
        envelope.slid = reader.u16()?;
        envelope.dlid = reader.u16()?;
        envelope.p_key_index = reader.u16()?;
        [envelope.sl, envelope.path_bits] = reader.array()?;
        envelope.agent = reader.u32()?;
        envelope.src_qp = reader.u32()?;
        envelope.dst_qp = reader.u32()?;
        envelope.q_key = reader.u32()?;
        envelope.flow_label = reader.u32()?;
        [envelope.gid_index, envelope.hop_limit, envelope.traffic_class, envelope.reserved] =
            reader.array()?;
        envelope.gid = reader.array()?;
        envelope.length = 256;
        message.mad = reader.array()?;
        Ok(())
    };
    let whole = read();
    debug_assert_eq!(whole, Ok(()), "the array is as long as its fields");
}

/// Writes a keep-alive.
pub fn write_keep_alive(
    header: &Header,
    declared: &Declared,
    clock: &Clock,
    into: &mut [u8; MAX_FRAME],
) -> usize {
    let mut writer = Writer { bytes: into, at: 0 };
    writer.header(KIND_KEEP_ALIVE, KEEP_ALIVE_FRAME, header);
    let Offer { want, width, speed, speed_ext, fdr10 } = declared.offer;
    writer.put(&[want, width, speed, speed_ext, fdr10, u8::from(declared.plugged), declared.port, 0]);
    writer.put(&declared.episode.to_be_bytes());
    writer.put(&[0; 4]);
    for word in [declared.node_guid, clock.sent_ns, clock.echo_ns, clock.held_ns] {
        writer.put(&word.to_be_bytes());
    }
    debug_assert_eq!(writer.at, KEEP_ALIVE_FRAME);
    writer.at
}

struct Writer<'a> {
    bytes: &'a mut [u8; MAX_FRAME],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, piece: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + piece.len()) {
            place.copy_from_slice(piece);
            self.at += piece.len();
        }
    }

    fn header(&mut self, kind: u8, length: usize, header: &Header) {
        self.put(&MAGIC);
        self.put(&[VERSION, kind]);
        self.put(&u16::try_from(length).unwrap_or(0).to_be_bytes());
        for word in [header.from, header.to, header.sequence, header.received] {
            self.put(&word.to_be_bytes());
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (piece, rest) = self.0.split_first_chunk::<N>().ok_or(Refusal::Truncated)?;
        self.0 = rest;
        Ok(*piece)
    }

    fn u16(&mut self) -> Result<u16, Refusal> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Whether these bytes do no harm; what came out of them goes in again. For fuzzing.
#[doc(hidden)]
pub fn fuzz_frame(bytes: &[u8]) {
    let Ok(frame) = Frame::parse(bytes) else { return };
    let mut again = [0; MAX_FRAME];
    let length = match frame.body {
        Body::Mad(body) => {
            let mut message = MadMessage::default();
            read_mad(body, &mut message);
            write_mad(&frame.header, &message, &mut again)
        }
        Body::KeepAlive(declared, clock) => write_keep_alive(&frame.header, &declared, &clock, &mut again),
    };
    assert_eq!(Frame::parse(&again[..length]).map(|frame| frame.header), Ok(frame.header));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use madplane_shm::message::Envelope;

    /// Random bytes, the same for the same seed.
    pub(crate) fn random_bytes(seed: u64) -> impl FnMut() -> [u8; 8] {
        let mut random = seed;
        move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_be_bytes()
        }
    }

    fn header() -> Header {
        Header { from: 0x1122_3344_5566_7788, to: 9, sequence: 10, received: 11 }
    }

    fn message() -> MadMessage {
        let envelope = Envelope {
            kind: 1,
            flags: 1,
            agent: 0x0102_0304,
            slid: 5,
            dlid: 0xFFFF,
            sl: 7,
            path_bits: 3,
            p_key_index: 0x8001,
            src_qp: 1,
            dst_qp: 1,
            q_key: 0x8001_0000,
            flow_label: 0xF_FFFF,
            gid_index: 1,
            hop_limit: 2,
            traffic_class: 3,
            reserved: 0,
            gid: [0xFE; 16],
            length: 256,
        };
        MadMessage { envelope, mad: [0xa5; 256] }
    }

    fn declared() -> Declared {
        let offer = Offer { want: 2, width: 3, speed: 7, speed_ext: 0x23, fdr10: 1 };
        Declared { offer, plugged: true, episode: 77, node_guid: 0xabcd, port: 36 }
    }

    #[test]
    fn a_mad_comes_out_as_it_went_in() {
        let mut bytes = [0xa5; MAX_FRAME];
        let length = write_mad(&header(), &message(), &mut bytes);
        let frame = Frame::parse(&bytes[..length]).unwrap();
        assert_eq!(frame.header, header());
        let Body::Mad(body) = frame.body else { panic!("{frame:?}") };
        let mut got = MadMessage::default();
        read_mad(body, &mut got);
        assert_eq!(got, message());
    }

    #[test]
    fn a_keep_alive_comes_out_as_it_went_in() {
        let clock = Clock { sent_ns: 1, echo_ns: 2, held_ns: 3 };
        let mut bytes = [0xa5; MAX_FRAME];
        let length = write_keep_alive(&header(), &declared(), &clock, &mut bytes);
        let frame = Frame::parse(&bytes[..length]).unwrap();
        assert_eq!(frame, Frame { header: header(), body: Body::KeepAlive(declared(), clock) });
    }

    #[test]
    fn the_bytes_are_the_published_ones() {
        let mut bytes = [0xa5; MAX_FRAME];
        let length = write_keep_alive(&header(), &declared(), &Clock::default(), &mut bytes);
        assert_eq!(bytes[..8], [b'M', b'P', b'L', b'K', 1, 2, 0, 88]);
        assert_eq!(bytes[8..16], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(bytes[40..48], [2, 3, 7, 0x23, 1, 1, 36, 0]);
        assert_eq!((length, bytes[51]), (88, 77));
        let length = write_mad(&header(), &message(), &mut bytes);
        assert_eq!((length, &bytes[4..8]), (348, &[1, 1, 1, 92][..]));
        assert_eq!(bytes[44..50], [0, 5, 0xFF, 0xFF, 0x80, 1]);
    }

    #[test]
    fn each_wrong_field_is_refused_by_its_name() {
        for length_of in [
            |bytes: &mut [u8; MAX_FRAME]| write_mad(&header(), &message(), bytes),
            |bytes: &mut [u8; MAX_FRAME]| write_keep_alive(&header(), &declared(), &Clock::default(), bytes),
        ] {
            let mut bytes = [0xa5; MAX_FRAME];
            let length = length_of(&mut bytes);
            for short in 0..length {
                assert_eq!(Frame::parse(&bytes[..short]), Err(Refusal::Truncated), "{short} bytes");
            }
            assert_eq!(Frame::parse(&bytes[..=length]), Err(Refusal::Oversized));
            let spoil = |at: usize, value: u8| {
                let mut bytes = bytes;
                bytes[at] = value;
                Frame::parse(&bytes[..length]).map(|_| ())
            };
            assert_eq!(spoil(0, b'X'), Err(Refusal::Magic));
            assert_eq!(spoil(4, 2), Err(Refusal::Version));
            assert_eq!(spoil(5, 3), Err(Refusal::Kind));
            assert_eq!(spoil(6, 9), Err(Refusal::Truncated));
            assert_eq!(spoil(7, 0), Err(Refusal::Truncated));
            let mut nobody = bytes;
            nobody[8..16].fill(0);
            assert_eq!(Frame::parse(&nobody[..length]), Err(Refusal::Session));
        }
    }

    #[test]
    fn random_and_spoilt_bytes_do_no_harm() {
        let seed = 0x5eed_0001_u64;
        println!("seed {seed:#x}");
        let mut next = random_bytes(seed);
        for round in 0..20_000 {
            let mut bytes = [0; MAX_FRAME];
            let mut length = if round % 2 == 0 {
                write_mad(&header(), &message(), &mut bytes)
            } else {
                write_keep_alive(&header(), &declared(), &Clock::default(), &mut bytes)
            };
            let [count, at, to, cut, how, where_hi, value, _] = next();
            if how % 4 == 0 {
                length = usize::from(cut) % (length + 1);
            }
            for spoilt in 0..usize::from(count % 4) {
                let place =
                    (usize::from(at) + usize::from(where_hi) * 2 + spoilt * usize::from(to)) % MAX_FRAME;
                bytes[place] = value;
            }
            fuzz_frame(&bytes[..length]);
        }
    }
}
