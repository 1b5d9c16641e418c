//! Which plane this process talks to, and where in the fabric it stands.
//!
//! Everything comes from the environment that `madctl run` sets and is read when first needed; nothing happens when the
//! library is loaded. Free functions, any thread. Invariant: a plane that is not there is reported on standard error once
//! in a process. Not done here: sessions; [`locate`] asks a question on a connection of its own and closes it.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `MADPLANE_NAME` | the plane | `default` |
//! | `MADPLANE_AT` | node, optionally `:PORT` | the plane's choice |
//! | `MADPLANE_TENANT` | the tenant of the plane as which it acts | the plane's choice by the user |
//! | `MADPLANE_PATH` | ports such as `1,2,3` that everything takes which is not a directed route | none |
//! | `MADPLANE_DEVICE` | name of the device shown | `mlx5_0` |

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use madplane_client::TENANT_VARIABLE;
use madplane_shm::handoff::{Connection, HandoffError, Request, op};
use madplane_shm::paths::{DEFAULT_NAME, PlanePaths};

use crate::abi::CA_NAME_LEN;
use crate::dump::complain;

/// Name of the device unless `MADPLANE_DEVICE` says otherwise.
pub(crate) const DEFAULT_DEVICE: &str = "mlx5_0";

/// What the environment says.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Paths of the plane.
    pub(crate) paths: PlanePaths,
    /// Selector, empty for the plane's default.
    pub(crate) at: String,
    /// Name of the device shown.
    pub(crate) device: String,
    /// Name of the tenant, empty for none. Sessions read it for themselves.
    pub(crate) tenant: String,
}

/// Where a selector leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Node GUID.
    pub(crate) node_guid: u64,
    /// NodeType.
    pub(crate) node_type: u8,
    /// Number of ports.
    pub(crate) num_ports: u8,
    /// Port that the plane attaches to.
    pub(crate) port: u8,
}

/// The settings of this process, `None` (and one complaint) if they cannot be used.
pub(crate) fn settings() -> Option<&'static Settings> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    SETTINGS
        .get_or_init(|| {
            let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
            let name = variable("MADPLANE_NAME").unwrap_or_else(|| DEFAULT_NAME.to_owned());
            let at = variable("MADPLANE_AT").unwrap_or_default();
            let device = variable("MADPLANE_DEVICE").unwrap_or_else(|| DEFAULT_DEVICE.to_owned());
            match check(&name, at, device) {
                Ok(settings) => {
                    Some(Settings { tenant: variable(TENANT_VARIABLE).unwrap_or_default(), ..settings })
                }
                Err(text) => {
                    complain(format_args!("{text}"));
                    None
                }
            }
        })
        .as_ref()
}

fn check(name: &str, at: String, device: String) -> Result<Settings, String> {
    let paths = PlanePaths::new(name).map_err(|error| error.to_string())?;
    let plain = device.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !plain || device.len() >= CA_NAME_LEN {
        return Err(format!("{device:?} is no device name: 1 to 19 letters, digits, '_' or '-'"));
    }
    Ok(Settings { paths, at, device, tenant: String::new() })
}

impl Settings {
    /// Selector of one port of a node.
    pub(crate) fn selector(node_guid: u64, port: u8) -> String {
        format!("{node_guid:#018x}:{port}")
    }

    /// The port that `MADPLANE_AT` names, if it names one.
    pub(crate) fn named_port(&self) -> Option<u8> {
        self.at.rsplit_once(':')?.1.parse().ok()
    }

    /// Connects to the plane.
    pub(crate) fn connect(&self) -> Result<Connection, HandoffError> {
        Connection::open(&self.paths.attach_socket(), self.paths.name())
    }
}

/// Asks the plane where this process stands. Complains and returns the errno if it cannot be asked or refuses.
pub(crate) fn locate(settings: &Settings) -> Result<Place, i32> {
    ask(settings).map_err(|error| report(&error))
}

fn ask(settings: &Settings) -> Result<Place, HandoffError> {
    let request = Request::with_selector(op::LOOKUP, &settings.at).ok_or_else(|| HandoffError::Refused {
        errno: libc::EINVAL,
        text: "MADPLANE_AT is longer than 160 bytes".to_owned(),
    })?;
    let (reply, _) = settings.connect()?.call(&request)?;
    Ok(Place {
        node_guid: reply.node_guid,
        node_type: reply.node_type,
        num_ports: reply.num_ports,
        port: reply.port,
    })
}

/// Complains, once in a process, and returns the errno for a C caller.
pub(crate) fn report(error: &HandoffError) -> i32 {
    report_text(&error.to_string());
    match error {
        HandoffError::NotRunning { .. } => libc::ENODEV,
        HandoffError::Permission { .. } => libc::EACCES,
        HandoffError::Version { .. } => libc::EOPNOTSUPP,
        HandoffError::Gone(_) => libc::EIO,
        HandoffError::Refused { errno, .. } => *errno,
    }
}

/// Complains, once in a process.
pub(crate) fn report_text(text: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        complain(format_args!("{text}"));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings_at(at: &str) -> Settings {
        check("default", at.to_owned(), DEFAULT_DEVICE.to_owned()).unwrap()
    }

    #[test]
    fn a_port_is_named_only_by_a_number_after_the_last_colon() {
        assert_eq!(settings_at("").named_port(), None);
        assert_eq!(settings_at("host-7 HCA-1").named_port(), None);
        assert_eq!(settings_at("host-7 HCA-1:2").named_port(), Some(2));
        assert_eq!(settings_at("a:b").named_port(), None);
    }

    #[test]
    fn device_names_that_umad_cannot_hold_or_a_path_would_break_are_refused() {
        for device in ["twenty_characters_xx", "a/b", "..", "a b"] {
            assert!(check("default", String::new(), device.to_owned()).is_err(), "{device}");
        }
        assert!(check("default", String::new(), "nineteen_characters".to_owned()).is_ok());
        assert!(check("a/b", String::new(), DEFAULT_DEVICE.to_owned()).is_err());
    }

    #[test]
    fn selectors_name_node_and_port() {
        assert_eq!(Settings::selector(0x2c9, 1), "0x00000000000002c9:1");
    }
}
