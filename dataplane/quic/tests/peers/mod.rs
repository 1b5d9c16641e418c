//! Ends of links over QUIC on loopback, and who they are.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use madplane_port::link::{Declared, Link};
use madplane_quic::rings::QuicDatagrams;
use madplane_quic::{OpenError, QuicOptions, Service};
use madplane_shm::process::unix_ns;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An authority and directories with its certificates.
pub(crate) struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let params = || {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let pem = params().self_signed(&key).unwrap().pem();
        Self { directory: tempfile::tempdir().unwrap(), issuer: Issuer::new(params(), key), pem }
    }

    pub(crate) fn plane(&self, name: &str) -> PathBuf {
        let own = self.directory.path().join(name);
        if !own.exists() {
            std::fs::create_dir(&own).unwrap();
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["madplane".to_owned(), name.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            std::fs::write(own.join("ca.pem"), &self.pem).unwrap();
            std::fs::write(own.join("plane.pem"), certificate.pem()).unwrap();
            std::fs::write(own.join("plane.key"), key.serialize_pem()).unwrap();
        }
        own
    }
}

pub(crate) fn free_address() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(crate) fn open(
    service: &Service,
    local: SocketAddr,
    peer: SocketAddr,
    credentials: &Path,
) -> QuicDatagrams {
    let credentials = credentials.to_str().unwrap();
    let options = QuicOptions::parse(&local.to_string(), &peer.to_string(), credentials).unwrap();
    // a socket of an end that was dropped just now may still be open
    let until = Instant::now() + PATIENCE;
    loop {
        match service.open(options.clone()) {
            Ok((datagrams, _)) => return datagrams,
            Err(OpenError::Socket { .. }) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) fn link(datagrams: QuicDatagrams) -> Link {
    let own = Declared { plugged: true, ..Declared::default() };
    Link::new(Box::new(datagrams), unix_ns(), own)
}
