//! How the two ends of a link over queue pairs find each other: a question and its answer on queue pair 1.
//!
//! A queue pair has another number each time that it is made, so what an operator can write down is the port at the other end and,
//! where several links go between the same two ports, the name of the link. The number is asked for: by a Get of a
//! vendor class, in which the asker says its own, and which the other end answers with its. Either way both know both.
//!
//! Owned by the service thread of the links (`verbs::links`); pure, by a clock of the caller's. Nothing is authenticated: who can send
//! GMPs from the peer's port is the peer. Whatever comes in is understood or refused by name, never a panic. Not here: who
//! carries the MADs, and what becomes of the queue pair.
//!
//! | bytes | content, big-endian |
//! |---|---|
//! | 0 | MAD header: class [`CLASS`] version 1, method Get or GetResp, attribute [`ATTRIBUTE`] |
//! | 24 | 12 zero bytes, where others have RMPP; 1 zero byte; [`OUI`] |
//! | 40 | `MPLK`; version; 1 if the queue pair is there; longest frame |
//! | 48 | queue pair; Q_Key; GID of its port |
//! | 72 | LID of its port; length of the name; zero |
//! | 76 | name of the link, [`MAX_NAME`] bytes, zeros behind it |

use madplane_shm::message::MAD_LEN;

use crate::datagram::MAX_FRAME;

/// Vendor class with OUI.
pub const CLASS: u8 = 0x4D;
/// Locally administered, so nobody's.
pub const OUI: [u8; 3] = [0x02, 0x6d, 0x70];
/// The attribute asked for.
pub const ATTRIBUTE: u16 = 0x0010;
/// Method of a question.
pub const GET: u8 = 0x01;
/// Method of an answer.
pub const GET_RESP: u8 = 0x81;
/// What this end writes and understands.
pub const VERSION: u8 = 1;
/// Longest name of a link, bytes.
pub const MAX_NAME: usize = 32;

const MAGIC: [u8; 4] = *b"MPLK";
const CLASS_VERSION: u8 = 1;
/// Class-specific status of an answer: there is no such link at this port.
const NO_LINK: u16 = 0x0100;
/// Status with which a kernel answers a question that no plane waits for.
const NOBODY: u16 = 0x000C;
/// Above it queue pairs have names of their own, and packets are none.
const MAX_PAIR: u32 = 0x00FF_FFFF;
/// Q_Keys from here on are the kernel's.
const PRIVILEGED: u32 = 1 << 31;

/// Time between two questions while an end does not know the other.
pub const SEARCH_NS: u64 = 250_000_000;
/// Time between two questions afterwards: an end that was made anew asks by itself, so this only mends what got lost.
pub const REFRESH_NS: u64 = 2_000_000_000;

/// Name of a link; empty for the only one between two ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Name {
    bytes: [u8; MAX_NAME],
    length: u8,
}

impl Name {
    /// Reads a name: at most [`MAX_NAME`] visible ASCII characters, none of them a comma.
    pub fn new(text: &[u8]) -> Option<Self> {
        let mut name = Self { bytes: [0; MAX_NAME], length: u8::try_from(text.len()).ok()? };
        name.bytes.get_mut(..text.len())?.copy_from_slice(text);
        text.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',').then_some(name)
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..usize::from(self.length)).and_then(|text| str::from_utf8(text).ok()).unwrap_or("")
    }
}

/// A port, as its packets show it: by GID, by LID where there is no GID, or by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// GID, wire order; all zero if it is not known.
    pub gid: [u8; 16],
    /// LID; 0 if it has none, or if it is not known.
    pub lid: u16,
}

impl Place {
    /// Whether a packet from `other` is one from here: what is known of both is the same, and that is something.
    pub fn is(&self, other: &Self) -> bool {
        let same_gid = self.gid == other.gid;
        let same_lid = self.lid == other.lid;
        let knows_gid = self.gid != [0; 16] && other.gid != [0; 16];
        let knows_lid = self.lid != 0 && other.lid != 0;
        (knows_gid || knows_lid) && (same_gid || !knows_gid) && (same_lid || !knows_lid)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.gid == [0; 16] {
            write!(f, "lid:{}", self.lid)
        } else {
            write!(f, "{}", std::net::Ipv6Addr::from(self.gid))
        }
    }
}

/// A queue pair, as its owner tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// Its port.
    pub place: Place,
    /// Its number, 2 to 2^24 - 1.
    pub pair: u32,
    /// What packets to it have to carry; never a privileged one.
    pub q_key: u32,
    /// Longest frame that it takes, bytes.
    pub frame: u16,
}

/// A question or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// It answers.
    pub answers: bool,
    /// What pairs both; the kernel keeps the lower half.
    pub transaction: u64,
    /// The link that is meant.
    pub name: Name,
    /// What it says.
    pub says: Says,
}

/// What a message says of its sender's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// Here it is.
    Here(End),
    /// There is such a link, and no queue pair for it at present.
    Closed,
    /// There is no such link at this port. Answers only.
    NoLink,
    /// No plane waits at that port: the kernel's answer.
    Nobody,
}

/// Why a MAD is none of these messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Another class, method or attribute, or bytes that are no message.
    #[error("not a message of a plane")]
    Foreign,
    /// A version that this end does not know.
    #[error("a plane of version {0}")]
    Version(u8),
    /// A field that cannot be.
    #[error("a wrong {0}")]
    Field(&'static str),
}

fn word<const N: usize>(mad: &[u8; MAD_LEN], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    if let Some(from) = mad.get(at..at + N) {
        bytes.copy_from_slice(from);
    }
    bytes
}

impl Message {
    /// Writes it.
    pub fn write(&self) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        let mut put = |at: usize, bytes: &[u8]| mad[at..at + bytes.len()].copy_from_slice(bytes);
        let status = match self.says {
            Says::Here(_) | Says::Closed => 0,
            Says::NoLink => NO_LINK,
            Says::Nobody => NOBODY,
        };
        put(0, &[1, CLASS, CLASS_VERSION, if self.answers { GET_RESP } else { GET }]);
        put(4, &status.to_be_bytes());
        put(8, &self.transaction.to_be_bytes());
        put(16, &ATTRIBUTE.to_be_bytes());
        put(37, &OUI);
        put(40, &MAGIC);
        put(44, &[VERSION]);
        if let Says::Here(end) = self.says {
            put(45, &[1]);
            put(46, &end.frame.to_be_bytes());
            put(48, &end.pair.to_be_bytes());
            put(52, &end.q_key.to_be_bytes());
            put(56, &end.place.gid);
            put(72, &end.place.lid.to_be_bytes());
        }
        put(74, &[self.name.length, 0]);
        put(76, &self.name.bytes);
        mad
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`Wrong`] names what is not right.
    pub fn parse(mad: &[u8; MAD_LEN]) -> Result<Self, Wrong> {
        let answers = mad[3] == GET_RESP;
        let headed = mad[..3] == [1, CLASS, CLASS_VERSION] && (answers || mad[3] == GET);
        let attribute = u16::from_be_bytes(word(mad, 16));
        if !headed || attribute != ATTRIBUTE || mad[37..40] != OUI || mad[40..44] != MAGIC {
            return Err(Wrong::Foreign);
        }
        if mad[44] != VERSION {
            return Err(Wrong::Version(mad[44]));
        }
        let transaction = u64::from_be_bytes(word(mad, 8));
        let length = usize::from(mad[74]);
        let text = mad[76..76 + MAX_NAME].get(..length).ok_or(Wrong::Field("name"))?;
        let name = Name::new(text).ok_or(Wrong::Field("name"))?;
        if mad[24..37].iter().chain(&mad[75..76]).chain(&mad[76 + length..]).any(|byte| *byte != 0) {
            return Err(Wrong::Field("reserved byte"));
        }
        let says = match (u16::from_be_bytes(word(mad, 4)), answers) {
            (0, _) => Self::end(mad)?.map_or(Says::Closed, Says::Here),
            (NO_LINK, true) => Says::NoLink,
            (NOBODY, true) => Says::Nobody,
            _ => return Err(Wrong::Field("status")),
        };
        Ok(Self { answers, transaction, name, says })
    }

    fn end(mad: &[u8; MAD_LEN]) -> Result<Option<End>, Wrong> {
        match mad[45] {
            0 if mad[46..74].iter().all(|byte| *byte == 0) => return Ok(None),
            0 => return Err(Wrong::Field("reserved byte")),
            1 => {}
            _ => return Err(Wrong::Field("state")),
        }
        let place = Place { gid: word(mad, 56), lid: u16::from_be_bytes(word(mad, 72)) };
        let end = End {
            place,
            pair: u32::from_be_bytes(word(mad, 48)),
            q_key: u32::from_be_bytes(word(mad, 52)),
            frame: u16::from_be_bytes(word(mad, 46)),
        };
        if !(2..=MAX_PAIR).contains(&end.pair) {
            return Err(Wrong::Field("queue pair"));
        }
        if end.q_key & PRIVILEGED != 0 {
            return Err(Wrong::Field("Q_Key"));
        }
        if usize::from(end.frame) < MAX_FRAME {
            return Err(Wrong::Field("length of frames"));
        }
        if place == Place::default() {
            return Err(Wrong::Field("place"));
        }
        Ok(Some(end))
    }
}

/// What came of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Nothing new.
    Known,
    /// The other end is there, from now on.
    Peer(End),
    /// The message is not for this link, or contradicts where it came from.
    Refused,
}

/// What one end of a link knows of the other.
#[derive(Debug, Clone)]
pub struct Meeting {
    peer_place: Place,
    name: Name,
    own: Option<End>,
    peer: Option<End>,
    /// The other end has our queue pair, as far as we know.
    agreed: bool,
    ask_at_ns: u64,
    /// What was heard last.
    last: Option<Says>,
}

impl Meeting {
    /// For a link of that name to that port; nothing is known yet.
    pub fn new(peer_place: Place, name: Name) -> Self {
        Self { peer_place, name, own: None, peer: None, agreed: false, ask_at_ns: 0, last: None }
    }

    /// The queue pair of this end is another, or none.
    pub fn set_own(&mut self, own: Option<End>) {
        self.own = own;
        self.agreed = false;
        self.ask_at_ns = 0;
    }

    /// The other end, as it told of itself last.
    pub fn peer(&self) -> Option<&End> {
        self.peer.as_ref()
    }

    /// The port at which it is.
    pub fn peer_place(&self) -> Place {
        self.peer_place
    }

    /// The name of the link.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Why there is no peer, for people.
    pub fn why_not(&self) -> &'static str {
        match self.last {
            None => "no answer",
            Some(Says::Here(_)) => "met",
            Some(Says::Closed) => "its queue pair is closed",
            Some(Says::NoLink) => "it has no such link",
            Some(Says::Nobody) => "no plane there",
        }
    }

    /// When [`Meeting::question`] has something to ask.
    pub fn due_ns(&self) -> u64 {
        if self.own.is_some() { self.ask_at_ns } else { u64::MAX }
    }

    /// The question that is due, if one is.
    pub fn question(&mut self, now_ns: u64, transaction: u64) -> Option<Message> {
        let own = self.own.filter(|_| now_ns >= self.ask_at_ns)?;
        self.ask_at_ns = now_ns + if self.agreed { REFRESH_NS } else { SEARCH_NS };
        Some(Message { answers: false, transaction, name: self.name, says: Says::Here(own) })
    }

    /// The answer to a question for this link.
    pub fn answer(&self, question: &Message) -> Message {
        let says = self.own.map_or(Says::Closed, Says::Here);
        Message { answers: true, transaction: question.transaction, name: self.name, says }
    }

    /// The answer to a question for a link that is not there.
    pub fn no_link(question: &Message) -> Message {
        Message { answers: true, says: Says::NoLink, ..*question }
    }

    /// Takes what came from a port.
    pub fn hear(&mut self, from: &Place, message: &Message) -> Heard {
        if message.name != self.name || !self.peer_place.is(from) {
            return Heard::Refused;
        }
        if let Says::Here(end) = &message.says
            && !end.place.is(from)
        {
            return Heard::Refused;
        }
        self.last = Some(message.says);
        let Says::Here(end) = message.says else {
            self.agreed = false;
            return Heard::Known;
        };
        // who answers had our question
        self.agreed |= message.answers;
        if self.peer.replace(end) == Some(end) {
            return Heard::Known;
        }
        if !message.answers {
            // it was made anew, and may not have heard us
            (self.agreed, self.ask_at_ns) = (false, 0);
        }
        Heard::Peer(end)
    }

    /// A question was not answered in time.
    pub fn unanswered(&mut self) {
        (self.agreed, self.last) = (false, None);
    }
}

/// Reads any bytes as a message, writes what was understood, and reads it again.
///
/// # Panics
/// If what was written is not what was read.
#[doc(hidden)]
pub fn fuzz_rendezvous(bytes: &[u8]) {
    let mut mad = [0; MAD_LEN];
    let length = bytes.len().min(MAD_LEN);
    mad[..length].copy_from_slice(&bytes[..length]);
    let Ok(message) = Message::parse(&mad) else { return };
    assert_eq!(Message::parse(&message.write()), Ok(message), "it reads as it was written");
    let Says::Here(end) = message.says else { return };
    let mut meeting = Meeting::new(end.place, message.name);
    assert_eq!(meeting.hear(&end.place, &message), Heard::Peer(end));
    assert_eq!(meeting.hear(&end.place, &message), Heard::Known);
}

#[cfg(test)]
mod tests;
