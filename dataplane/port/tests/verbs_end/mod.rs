//! Ends of links over queue pairs of the devices of scripts/rxe-vm.

#![allow(clippy::unwrap_used, reason = "this is for tests")]

use std::net::Ipv6Addr;

use madplane_port::datagram::Standing;
use madplane_port::link::{Declared, Link};
use madplane_port::verbs::links::{LinkOptions, Service};
use madplane_shm::process::unix_ns;

use crate::support::gid_of;

/// An end of a link, with a service of its own.
#[allow(dead_code, reason = "each test program uses a part")]
pub(crate) struct VerbsEnd {
    pub(crate) link: Link,
    pub(crate) watch: Standing,
    pub(crate) service: Service,
}

/// Opens an end at `own` to the port of `peer`; `words` follow the peer's GID.
pub(crate) fn verbs_link(own: &str, peer: &str, words: &str) -> VerbsEnd {
    let peer = format!("{}{words}", Ipv6Addr::from(gid_of(peer)));
    let service = Service::start().unwrap();
    let (datagrams, watch) = service.open(LinkOptions::parse(own, &peer, "").unwrap()).unwrap();
    let declared = Declared { plugged: true, ..Declared::default() };
    VerbsEnd { link: Link::new(Box::new(datagrams), unix_ns(), declared), watch, service }
}
