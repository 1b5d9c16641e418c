//! Links over queue pairs: who opens them, keeps them open, and learns who is at the other end.
//!
//! A [`Service`] has one thread of its own, `madplane-verbs`, for any number of links. It opens queues and hands them to workers, waits for
//! the events of devices, and asks the other end for its queue pair over the kernel's agent on queue pair 1 ([`crate::rendezvous`]). A
//! worker holds a [`LinkDatagrams`]: frames go from its hand to the device, and it meets the service by bounded rings of words, at which
//! it looks when there is no frame.
//!
//! | thread | owns | talks to others by |
//! |---|---|---|
//! | the worker of the link | the queue, while it has one | a ring each way; a bell each way, rung only when a queue is handed over |
//! | `madplane-verbs` | queues on their way, umad files, contexts that hear events | the same; orders from housekeeping by a channel |
//!
//! A queue goes back to the service when its device goes or when it broke, because closing it is the service's, too; the service opens
//! another as soon as that works. A link over queue pairs trusts its subnet: whoever can send from the peer's port is the peer, nothing
//! is encrypted. One program answers for links at a port of a device.

mod device;
mod rings;
mod service;

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use madplane_shm::doorbell::Doorbell;

use super::UdDatagrams;
use crate::datagram::Standing;
use crate::device::{DeviceSpec, SpecError, Unavailable};
use crate::rendezvous::{MAX_NAME, Name, Place};
pub use rings::{LinkDatagrams, LinkQueue};

/// What a link over a queue pair needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkOptions {
    /// Own port.
    pub device: DeviceSpec,
    /// Partition key, as the port's table has it; `None` for the first of the table.
    pub p_key: Option<u16>,
    /// The port at the other end.
    pub peer: Place,
    /// What both ends call the link.
    pub name: Name,
}

/// Why there is no link over a queue pair.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not a device.
    #[error(transparent)]
    Device(#[from] SpecError),
    /// Not a partition key.
    #[error("{0:?} is no P_Key; use pkey=0x8001")]
    PKey(String),
    /// Not a port.
    #[error(
        "{0:?} names no port; use peer=GID or peer=lid:N, and link=NAME behind it if there are several links"
    )]
    Peer(String),
    /// Not a name.
    #[error("{0:?} names no link; use at most {MAX_NAME} visible ASCII letters")]
    Name(String),
    /// Somebody wrote credentials.
    #[error("via=verbs takes no credentials: it trusts its subnet")]
    Credentials,
    /// The same link is open already.
    #[error("there is a link of that name to {0} already; both ends have to name each link (link=NAME)")]
    Twice(Place),
    /// The device cannot be used now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// No thread or descriptor left.
    #[error("cannot serve links over verbs: {0}")]
    Start(std::io::Error),
    /// The service is gone.
    #[error("the verbs thread has ended")]
    Ended,
}

impl LinkOptions {
    /// Reads what an operator wrote: `local` is `DEVICE[,port=N][,gid=N][,pkey=N]`, `peer` is `GID[,link=NAME]`, where a GID is written
    /// as an IPv6 address; `lid:N` in its place, or behind it, is what InfiniBand needs.
    ///
    /// # Errors
    /// [`OpenError`] names the word.
    pub fn parse(local: &str, peer: &str, credentials: &str) -> Result<Self, OpenError> {
        if !credentials.is_empty() {
            return Err(OpenError::Credentials);
        }
        let (mut device, mut p_key) = ("verbs:".to_owned(), None);
        for (number, word) in local.split(',').enumerate() {
            match word.strip_prefix("pkey=") {
                Some(key) => p_key = Some(number_in(key).ok_or_else(|| OpenError::PKey(key.to_owned()))?),
                None => device += &format!("{}{word}", if number > 0 { "," } else { "" }),
            }
        }
        let (mut place, mut name) = (Place::default(), Name::default());
        for word in peer.split(',') {
            let wrong = || OpenError::Peer(peer.to_owned());
            if let Some(text) = word.strip_prefix("link=") {
                name = Name::new(text.as_bytes()).ok_or_else(|| OpenError::Name(text.to_owned()))?;
            } else if let Some(text) = word.strip_prefix("lid:") {
                // above are the multicast LIDs
                place.lid = number_in(text).filter(|lid| (1..0xC000).contains(lid)).ok_or_else(wrong)?;
            } else {
                let text = word.strip_prefix("gid:").unwrap_or(word);
                place.gid = text.parse::<Ipv6Addr>().map_err(|_| wrong())?.octets();
            }
        }
        if place == Place::default() || place.gid[0] == 0xFF {
            return Err(OpenError::Peer(peer.to_owned()));
        }
        Ok(Self { device: device.parse()?, p_key, peer: place, name })
    }
}

fn number_in(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Asks the service for a link.
#[derive(Debug)]
struct Order {
    options: LinkOptions,
    reply: SyncSender<Result<(LinkDatagrams, Standing), OpenError>>,
}

/// The thread that looks after links over queue pairs.
#[derive(Debug)]
pub struct Service {
    orders: Option<std::sync::mpsc::Sender<Order>>,
    bell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread or descriptor left.
    pub fn start() -> std::io::Result<Self> {
        let bell = Arc::new(Doorbell::create()?);
        let (orders, taken) = channel();
        let rung = bell.clone();
        // contexts of devices stay on the thread that opened them
        let body = move || service::Serve::new(taken, rung).run();
        let thread = std::thread::Builder::new().name("madplane-verbs".to_owned()).spawn(body)?;
        Ok(Self { orders: Some(orders), bell, thread: Some(thread) })
    }

    /// Opens a link's transport: the queue now, so that the operator hears what is wrong with it. Whoever is at the other end is found
    /// by itself, and the queue is opened again by itself.
    ///
    /// # Errors
    /// [`OpenError`], of which [`OpenError::Unavailable`] may pass.
    pub fn open(&self, options: LinkOptions) -> Result<(LinkDatagrams, Standing), OpenError> {
        let (reply, answer) = sync_channel(1);
        let orders = self.orders.as_ref().ok_or(OpenError::Ended)?;
        orders.send(Order { options, reply }).map_err(|_| OpenError::Ended)?;
        self.bell.ring();
        answer.recv().map_err(|_| OpenError::Ended)?
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // ends the thread's loop
        self.orders = None;
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_words_are_read() {
        let read = |local: &str, peer: &str| LinkOptions::parse(local, peer, "").unwrap();
        let options = read("rxe0,gid=2,pkey=0x8001,port=3", "fe80::2,link=cut-0");
        assert_eq!(options.device.to_string(), "verbs:rxe0,port=3,gid=2");
        assert_eq!((options.p_key, options.name.as_str()), (Some(0x8001), "cut-0"));
        assert_eq!(options.peer.to_string(), "fe80::2");
        assert_eq!(read("rxe0", "gid:fe80::2").peer, read("rxe0", "fe80::2").peer);
        let options = read("mlx5_0", "lid:0x12");
        assert_eq!((options.peer.lid, options.peer.gid, options.p_key), (0x12, [0; 16], None));
        let both = read("mlx5_0", "fe80::2,lid:18").peer;
        assert_eq!((both.lid, both.gid[1]), (18, 0x80));
    }

    #[test]
    fn words_that_mean_nothing_are_named() {
        let wrong = |local: &str, peer: &str| LinkOptions::parse(local, peer, "").unwrap_err().to_string();
        assert!(wrong("", "fe80::2").contains("names no device"));
        assert!(wrong("rxe0,queue=1", "fe80::2").contains("names no device"));
        assert!(wrong("rxe0,pkey=all", "fe80::2").contains("\"all\" is no P_Key"));
        for peer in ["", "x", "lid:0", "lid:0xC000", "::", "ff02::1", "link=a", "fe80::2,x"] {
            assert!(wrong("rxe0", peer).contains("names no port"), "{peer}");
        }
        assert!(wrong("rxe0", "fe80::2,link=a b").contains("names no link"));
        let error = LinkOptions::parse("rxe0", "fe80::2", "/etc/madplane").unwrap_err();
        assert!(error.to_string().contains("no credentials"));
    }

    #[test]
    fn a_device_that_is_not_there_is_said_at_once() {
        let service = Service::start().unwrap();
        let options = LinkOptions::parse("no_such_device", "fe80::2", "").unwrap();
        let error = service.open(options).unwrap_err().to_string();
        assert!(error.starts_with("unavailable, because "), "{error}");
    }
}
