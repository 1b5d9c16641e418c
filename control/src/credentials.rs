//! Certificates and keys for links over QUIC: an authority of one's own, and a certificate for each plane.
//!
//! `DIRECTORY/ca.pem` and `ca.key` are the authority, made once; whoever has the key can let a plane in, so it stays where it was
//! made. `DIRECTORY/PLANE/` is what one plane needs and is carried to its host: `ca.pem`, `plane.pem`, `plane.key`. A certificate
//! bears the name of the plane and the one that all planes have ([`COMMON_NAME`]). Keys are readable by their owner only, files that
//! are there are never overwritten. Certificates do not run out by themselves; a plane is kept out by a new authority.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The name that every plane's certificate bears besides its own.
pub const COMMON_NAME: &str = "madplane";

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Not a name.
    #[error("{0:?} is no name for a plane: letters, digits, '-' and '.', 63 at most")]
    Name(String),
    /// Something is wrong with keys or certificates.
    #[error("credentials: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// Makes an authority in `directory`, unless one is there, and credentials for `planes`; whether the authority is new.
///
/// # Errors
/// [`MakeError`]; what was made before stays.
pub fn make(directory: &Path, planes: &[String]) -> Result<bool, MakeError> {
    if let Some(wrong) = planes.iter().find(|name| !is_name(name)) {
        return Err(MakeError::Name(wrong.clone()));
    }
    make_directory(directory)?;
    let key_file = directory.join("ca.key");
    let new = !key_file.exists();
    let key = if new {
        KeyPair::generate()?
    } else {
        KeyPair::from_pem(&std::fs::read_to_string(&key_file).map_err(|source| file(&key_file, source))?)?
    };
    let certificate_file = directory.join("ca.pem");
    if new {
        let certificate = authority()?.self_signed(&key)?;
        write(&key_file, &key.serialize_pem(), 0o600)?;
        write(&certificate_file, &certificate.pem(), 0o644)?;
    }
    let authority_pem =
        std::fs::read_to_string(&certificate_file).map_err(|source| file(&certificate_file, source))?;
    let issuer = Issuer::new(authority()?, key);
    for plane in planes {
        let own = directory.join(plane);
        make_directory(&own)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![COMMON_NAME.to_owned(), plane.clone()])?;
        params.distinguished_name.push(DnType::CommonName, plane.as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer)?;
        write(&own.join("plane.key"), &key.serialize_pem(), 0o600)?;
        write(&own.join("plane.pem"), &certificate.pem(), 0o644)?;
        write(&own.join("ca.pem"), &authority_pem, 0o644)?;
    }
    Ok(new)
}

fn authority() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "madplane links");
    Ok(params)
}

fn is_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    (1..=63).contains(&name.len()) && name.bytes().all(fine) && name.bytes().any(|byte| byte != b'.')
}

fn make_directory(path: &Path) -> Result<(), MakeError> {
    std::fs::create_dir_all(path).map_err(|source| file(path, source))
}

fn write(path: &PathBuf, text: &str, mode: u32) -> Result<(), MakeError> {
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    made.and_then(|mut made| made.write_all(text.as_bytes())).map_err(|source| file(path, source))
}

fn file(path: &Path, source: io::Error) -> MakeError {
    MakeError::File { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_authority_is_made_once_and_keys_are_their_owners() {
        let directory = tempfile::tempdir().unwrap();
        assert!(make(directory.path(), &["a".to_owned()]).unwrap());
        let authority = std::fs::read(directory.path().join("ca.pem")).unwrap();
        assert!(!make(directory.path(), &["b".to_owned(), "c.d-1".to_owned()]).unwrap());
        for plane in ["a", "b", "c.d-1"] {
            let own = directory.path().join(plane);
            assert_eq!(std::fs::read(own.join("ca.pem")).unwrap(), authority);
            assert!(std::fs::read_to_string(own.join("plane.pem")).unwrap().contains("BEGIN CERTIFICATE"));
            let mode = own.join("plane.key").metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let again = make(directory.path(), &["a".to_owned()]).unwrap_err().to_string();
        assert!(again.contains("plane.key"), "{again}");
        for name in ["", ".", "..", "a/b", "a b", "x\u{e9}"] {
            assert!(matches!(make(directory.path(), &[name.to_owned()]), Err(MakeError::Name(_))), "{name}");
        }
    }
}
