//! What every port is asked, asked of a link over QUIC on loopback.
#![allow(clippy::unwrap_used, reason = "this is a test")]

mod peers;
#[path = "../../port/tests/suite/mod.rs"]
mod suite;
#[path = "../../port/tests/support/mod.rs"]
mod support;

use madplane_quic::Service;
use peers::{Authority, free_address, link, open};
use suite::{Direction, conformance};

fn quic_direction(_depth: usize) -> Option<Direction> {
    let authority = Authority::new();
    let service = Service::start().unwrap();
    let [a, b] = [free_address(), free_address()];
    let ends = [
        link(open(&service, a, b, &authority.plane("a"))),
        link(open(&service, b, a, &authority.plane("b"))),
    ];
    Some(Direction::over_links(ends, (authority, service)))
}

conformance!(quic_direction);
