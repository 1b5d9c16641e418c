//! As whom a session attaches and which way it sends: names of tenants and paths, from the program or from its environment.
//!
//! Plain values, read on the calling thread when a session is opened. What the program says counts before what the
//! environment says; the plane has the last word on both. Not here: asking the plane ([`crate::attach`]).
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `MADPLANE_TENANT` | name of the tenant | the plane's choice |
//! | `MADPLANE_PATH` | ports such as `1,2,3` that everything takes which is not a directed route | none |

use madplane_shm::table::MAX_PATH_PORTS;
use madplane_shm::table::tenant::{NAME_BYTES, is_tenant_name};

use crate::error::OpenError;

/// Variable that names the tenant of sessions that name none themselves.
pub const TENANT_VARIABLE: &str = "MADPLANE_TENANT";
/// Variable that gives sessions a path of their own.
pub const PATH_VARIABLE: &str = "MADPLANE_PATH";

/// Name of a tenant, or none: then the environment names it, or else the plane chooses by the user.
///
/// ```
/// use madplane_client::TenantName;
/// assert_eq!(TenantName::new("blue").unwrap().as_str(), "blue");
/// assert!(TenantName::new("a b").is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantName([u8; NAME_BYTES]);

impl TenantName {
    /// A name: 1 to 31 letters, digits, `.`, `_` and `-`. Empty text is none.
    ///
    /// # Errors
    /// [`OpenError::Tenant`].
    pub fn new(name: &str) -> Result<Self, OpenError> {
        let mut made = Self::default();
        if name.is_empty() {
            return Ok(made);
        }
        match made.0.get_mut(..name.len()) {
            Some(place) if is_tenant_name(name) => place.copy_from_slice(name.as_bytes()),
            _ => return Err(OpenError::Tenant(name.to_owned())),
        }
        Ok(made)
    }

    /// The name, empty for none.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        std::str::from_utf8(&self.0[..end]).unwrap_or("")
    }

    /// This name, or that of the environment if this is none.
    pub(crate) fn or_environment(self) -> Result<Self, OpenError> {
        if !self.as_str().is_empty() {
            return Ok(self);
        }
        Self::new(&std::env::var(TENANT_VARIABLE).unwrap_or_default())
    }
}

/// Which path of its own a session is bound to when it attaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnPath {
    /// What `MADPLANE_PATH` says; none if it is not set. Falls back to everybody's ways where it is broken.
    #[default]
    Environment,
    /// None, whatever the environment says. [`Session::bind_path`](crate::Session::bind_path) may change it.
    None,
}

impl OwnPath {
    /// The ports; empty for none.
    pub(crate) fn ports(self) -> Result<Vec<u8>, OpenError> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Environment => parse_path(&std::env::var(PATH_VARIABLE).unwrap_or_default()),
        }
    }
}

/// Reads ports such as `1,2,3`; empty text is an empty path.
fn parse_path(text: &str) -> Result<Vec<u8>, OpenError> {
    let wrong = || OpenError::Path(text.to_owned());
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let port = |part: &str| part.trim().parse().ok().filter(|port: &u8| *port != 0);
    let ports: Option<Vec<u8>> = text.split(',').map(port).collect();
    ports.filter(|ports| ports.len() <= MAX_PATH_PORTS).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_ports_from_1_to_255_between_commas() {
        assert_eq!(parse_path("1,2, 255").unwrap(), [1, 2, 255]);
        assert_eq!(parse_path("").unwrap(), []);
        assert_eq!(parse_path(&vec!["7"; 63].join(",")).unwrap(), [7; 63]);
        for wrong in ["0", "1,0", "256", "1,,2", "1;2", "-1", "a", &vec!["7"; 64].join(",")] {
            let error = parse_path(wrong).unwrap_err();
            assert!(error.to_string().contains("MADPLANE_PATH") && error.errno() == 22, "{wrong}: {error}");
        }
    }

    #[test]
    fn names_that_no_tenant_can_have_are_refused_and_none_is_not() {
        assert_eq!(TenantName::new("").unwrap(), TenantName::default());
        assert_eq!(TenantName::new(&"x".repeat(31)).unwrap().as_str(), "x".repeat(31));
        for wrong in ["a b", "ä", "a/b", &"x".repeat(32), &"x".repeat(400)] {
            let error = TenantName::new(wrong).unwrap_err();
            assert_eq!(error.errno(), 22, "{wrong}");
        }
    }
}
