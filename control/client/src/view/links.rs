//! The links of a plane to other planes.
//!
//! Plain values made from one look at the status segment.

use madplane_shm::status::{LINK_UNAVAILABLE, MAX_LINKS, Status};
use madplane_shm::sync::AtomicU64;
use madplane_shm::sync::Ordering::Relaxed;
use serde::Serialize;

use super::Head;
use crate::show;

/// How a link stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// The other end is not heard.
    Silent,
    /// It is heard, and does not hear us.
    OneWay,
    /// Each hears the other, the cable is pulled at one end or both.
    Pulled,
    /// MADs pass.
    Up,
    /// It could not be opened and is tried again; its transport says why.
    Unavailable,
    /// In a state that this program does not know.
    Unknown,
}

impl LinkState {
    /// The name under which it is shown.
    pub fn label(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::OneWay => "one-way",
            Self::Pulled => "pulled",
            Self::Up => "up",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
        }
    }
}

/// Frames that were refused, by what was wrong with them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Shorter than they say.
    pub truncated: u64,
    /// Longer than they say, or than any frame is.
    pub oversized: u64,
    /// They do not begin as frames do.
    pub magic: u64,
    /// Of another version.
    pub version: u64,
    /// Of a kind that does not exist.
    pub kind: u64,
    /// Of a session that is over.
    pub session: u64,
    /// With a number that cannot be.
    pub sequence: u64,
    /// Connections whose other end could not show who it is.
    pub peers: u64,
}

impl Refused {
    /// All together.
    pub fn total(&self) -> u64 {
        let Self { truncated, oversized, magic, version, kind, session, sequence, peers } = self;
        truncated + oversized + magic + version + kind + session + sequence + peers
    }
}

/// One link.
#[derive(Debug, Clone, Serialize)]
pub struct Link {
    /// Its number.
    pub link: usize,
    /// Description of the node at this end.
    pub node: String,
    /// GUID of that node.
    #[serde(serialize_with = "show::as_guid")]
    pub node_guid: u64,
    /// Port at this end.
    pub port: u32,
    /// How it stands.
    pub state: LinkState,
    /// GUID of the node at the other end, 0 while it is not heard.
    #[serde(serialize_with = "show::as_guid")]
    pub peer_guid: u64,
    /// Port at the other end.
    pub peer_port: u32,
    /// Worker that serves it.
    pub worker: u32,
    /// How it was asked for.
    pub spec: String,
    /// How its transport stands.
    pub transport: String,
    /// MADs handed to the transport.
    pub sent: u64,
    /// MADs taken from it.
    pub received: u64,
    /// MADs of the other end that did not arrive.
    pub lost: u64,
    /// MADs that came twice, or too late to tell.
    pub repeated: u64,
    /// MADs that came after a later one.
    pub late: u64,
    /// Frames that came and found no room.
    pub overflowed: u64,
    /// What was refused.
    pub refused: Refused,
    /// Keep-alives sent.
    pub keep_alives_sent: u64,
    /// Keep-alives understood.
    pub keep_alives_received: u64,
    /// Times that it came up.
    pub ups: u64,
    /// Times that it went down.
    pub downs: u64,
    /// Round trip of the last keep-alive, nanoseconds.
    pub round_trip_ns: u64,
}

/// All links of a plane to others.
#[derive(Debug, Clone, Serialize)]
pub struct Links {
    /// The plane.
    pub plane: Head,
    /// By number.
    pub links: Vec<Link>,
}

impl Links {
    /// Reads a segment.
    pub fn of(status: &Status, plane: Head) -> Self {
        Self { plane, links: (0..MAX_LINKS).filter_map(|index| Link::of(status, index)).collect() }
    }
}

impl Link {
    fn of(status: &Status, index: usize) -> Option<Self> {
        let record = status.link(index);
        let state = match record.state.load(Relaxed) {
            0 => return None,
            1 => LinkState::Silent,
            2 => LinkState::OneWay,
            3 => LinkState::Pulled,
            4 => LinkState::Up,
            LINK_UNAVAILABLE => LinkState::Unavailable,
            _ => LinkState::Unknown,
        };
        let load = |word: &AtomicU64| word.load(Relaxed);
        let [truncated, oversized, magic, version, kind, session, sequence, ..] = &record.refused;
        Some(Self {
            link: index,
            node: record.node.load(),
            node_guid: load(&record.node_guid),
            port: record.port.load(Relaxed),
            state,
            peer_guid: load(&record.peer_guid),
            peer_port: record.peer_port.load(Relaxed),
            worker: record.worker.load(Relaxed),
            spec: record.spec.load(),
            transport: record.transport.load(),
            sent: load(&record.sent),
            received: load(&record.received),
            lost: load(&record.lost),
            repeated: load(&record.repeated),
            late: load(&record.late),
            overflowed: load(&record.overflowed),
            refused: Refused {
                truncated: load(truncated),
                oversized: load(oversized) + load(&record.oversized),
                magic: load(magic),
                version: load(version),
                kind: load(kind),
                session: load(session),
                sequence: load(sequence),
                peers: load(&record.refused_peers),
            },
            keep_alives_sent: load(&record.keep_alives_sent),
            keep_alives_received: load(&record.keep_alives_received),
            ups: load(&record.ups),
            downs: load(&record.downs),
            round_trip_ns: load(&record.round_trip_ns),
        })
    }
}
