//! Which plane this process talks to, and where in the fabric it stands.
//!
//! Everything comes from the environment that `madctl run` sets and is read when first needed; nothing happens when the
//! library is loaded. Free functions, any thread. Invariant: a plane that is not there is reported on standard error once
//! in a process. Not done here: sessions; [`locate`] asks a question on a connection of its own and closes it.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `MADPLANE_NAME` | the plane | `default` |
//! | `MADPLANE_AT` | node, optionally `:PORT`, or `device:NAME` or `auto:NAME` | the plane's choice |
//! | `MADPLANE_TENANT` | the tenant of the plane as which it acts | the plane's choice by the user |
//! | `MADPLANE_PATH` | ports such as `1,2,3` that everything takes which is not a directed route | none |
//! | `MADPLANE_DEVICE` | name of the device shown | `mlx5_0`, or that of the RDMA device |

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use madplane_client::TENANT_VARIABLE;
use madplane_shm::handoff::{AUTO_PREFIX, Connection, DEVICE_PREFIX, HandoffError, Request, op, place_kind};
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
    /// Name of the RDMA device that `at` names, empty if it names none.
    pub(crate) rdma: String,
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
    /// It is a port of an RDMA device of this machine.
    pub(crate) is_device: bool,
}

/// The settings of this process, `None` (and one complaint) if they cannot be used.
pub(crate) fn settings() -> Option<&'static Settings> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    SETTINGS
        .get_or_init(|| {
            let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
            let name = variable("MADPLANE_NAME").unwrap_or_else(|| DEFAULT_NAME.to_owned());
            let at = variable("MADPLANE_AT").unwrap_or_default();
            match check(&name, at, variable("MADPLANE_DEVICE")) {
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

/// The RDMA device that a selector names: `device:NAME` or `device:NAME:PORT`, and likewise with `auto:`.
fn rdma_device(at: &str) -> &str {
    let rest = at.strip_prefix(DEVICE_PREFIX).or_else(|| at.strip_prefix(AUTO_PREFIX)).unwrap_or_default();
    rest.split_once(':').map_or(rest, |(name, _)| name)
}

fn check(name: &str, at: String, device: Option<String>) -> Result<Settings, String> {
    let rdma = rdma_device(&at).to_owned();
    let own = if rdma.is_empty() { DEFAULT_DEVICE } else { &rdma };
    let device = device.unwrap_or_else(|| own.to_owned());
    let paths = PlanePaths::new(name).map_err(|error| error.to_string())?;
    let plain = device.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !plain || device.len() >= CA_NAME_LEN {
        return Err(format!("{device:?} is no device name: 1 to 19 letters, digits, '_' or '-'"));
    }
    Ok(Settings { paths, at, device, rdma, tenant: String::new() })
}

impl Settings {
    /// Selector of one port of the node at `place`.
    pub(crate) fn selector(&self, place: Place, port: u8) -> String {
        if place.is_device {
            return format!("{DEVICE_PREFIX}{}:{port}", self.rdma);
        }
        format!("{:#018x}:{port}", place.node_guid)
    }

    /// The port that `MADPLANE_AT` names, if it names one.
    pub(crate) fn named_port(&self) -> Option<u8> {
        let at = self.at.strip_prefix(DEVICE_PREFIX).unwrap_or(&self.at);
        at.rsplit_once(':')?.1.parse().ok()
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
        is_device: reply.kind == place_kind::DEVICE,
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
        check("default", at.to_owned(), None).unwrap()
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
            assert!(check("default", String::new(), Some(device.to_owned())).is_err(), "{device}");
        }
        assert!(check("default", String::new(), Some("nineteen_characters".to_owned())).is_ok());
        assert!(check("a/b", String::new(), None).is_err());
    }

    #[test]
    fn selectors_name_node_and_port() {
        let place = Place { node_guid: 0x2c9, node_type: 1, num_ports: 1, port: 1, is_device: false };
        assert_eq!(settings_at("").selector(place, 1), "0x00000000000002c9:1");
        let device = Place { is_device: true, ..place };
        for at in ["device:rxe0", "device:rxe0:2", "auto:rxe0"] {
            let settings = settings_at(at);
            assert_eq!(
                (settings.selector(device, 2), &*settings.device),
                ("device:rxe0:2".to_owned(), "rxe0")
            );
        }
        assert_eq!(settings_at("device:rxe0:2").named_port(), Some(2));
        assert_eq!(settings_at("device:rxe0").named_port(), None);
        let named = check("default", "device:rxe0".to_owned(), Some("mlx5_7".to_owned())).unwrap();
        assert_eq!((&*named.device, &*named.rdma), ("mlx5_7", "rxe0"));
    }
}
