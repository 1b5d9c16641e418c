//! Who may come in: certificates and keys from a directory, and what TLS is told about them.
//!
//! Three files: `ca.pem` (the authority, or several), `plane.pem` (this plane's certificate and what leads to the authority) and
//! `plane.key`. Both ends show a certificate and verify the other's as TLS does, and both insist on the name: who calls in the handshake,
//! who is called right after it, before a frame passes. Sessions are not resumed, so that a certificate that has run out is noticed at the next connection.

use std::path::Path;
use std::sync::Arc;

use quinn::Connection;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};

use crate::ALPN;

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file is not there or holds nothing that can be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// Together they make no sense to TLS.
    #[error("credentials in {directory}: {reason}")]
    Refused {
        /// The directory.
        directory: String,
        /// Why.
        reason: String,
    },
}

/// What TLS is told, for calls made and taken.
#[derive(Clone)]
pub struct Credentials {
    pub(crate) client: Arc<QuicClientConfig>,
    pub(crate) server: Arc<QuicServerConfig>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // a key is in there
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads a directory.
    ///
    /// # Errors
    /// [`CredentialError`] names the file.
    pub fn load(directory: &Path) -> Result<Self, CredentialError> {
        let authority = certificates(&directory.join("ca.pem"))?;
        let chain = certificates(&directory.join("plane.pem"))?;
        let key_file = directory.join("plane.key");
        let key = PrivateKeyDer::from_pem_file(&key_file).map_err(|error| file(&key_file, &error))?;
        let refuse = |reason: &dyn std::fmt::Display| CredentialError::Refused {
            directory: directory.display().to_string(),
            reason: reason.to_string(),
        };
        let mut roots = RootCertStore::empty();
        for certificate in authority {
            roots.add(certificate).map_err(|error| refuse(&error))?;
        }
        let roots = Arc::new(roots);
        let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| refuse(&error))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| refuse(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| refuse(&error))?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| refuse(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| refuse(&error))?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        Ok(Self {
            client: Arc::new(QuicClientConfig::try_from(client).map_err(|error| refuse(&error))?),
            server: Arc::new(QuicServerConfig::try_from(server).map_err(|error| refuse(&error))?),
        })
    }
}

/// Whether the certificate that the other end has shown bears this name. TLS has verified it, whatever its name.
pub(crate) fn bears_name(connection: &Connection, name: &str) -> bool {
    let shown = connection.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'_>>>().ok());
    let (Some(first), Ok(name)) =
        (shown.as_ref().and_then(|chain| chain.first()), ServerName::try_from(name))
    else {
        return false;
    };
    ParsedCertificate::try_from(first).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let list = read.map_err(|error| file(path, &error))?;
    if list.is_empty() {
        return Err(file(path, &"holds no certificate"));
    }
    Ok(list)
}

fn file(path: &Path, reason: &dyn std::fmt::Display) -> CredentialError {
    CredentialError::File { path: path.display().to_string(), reason: reason.to_string() }
}
