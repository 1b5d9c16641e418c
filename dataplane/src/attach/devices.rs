//! RDMA devices of the plane: opened, handed to a worker, watched, closed and opened again.
//!
//! Owned by housekeeping, which may wait for the kernel; a worker never does. Devices go to workers in turn, in the order in which they were
//! asked for. One that cannot be opened is no reason not to start: the plane has its fabric, says once why, and goes on trying. What
//! happens to a device is written into the log, into its record in the status segment, and told to control.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use madplane_engine::NodeId;
use madplane_port::device::{ACTIVE, Backend, DeviceSpec, PortIdentity, Unavailable, hold_is_sm, introduce};
use madplane_port::opened::{Keeper, MadDevice};
use madplane_shm::command::event;
use madplane_shm::process::unix_ns;
use madplane_shm::status::{device_backend, device_flag, device_state};
use madplane_shm::sync::Ordering;

use super::Housekeeping;
use super::connections::libc_errno::ENODEV;
use crate::devices::{DeviceEnd, node_of, number_of};
use crate::orders::{Order, Report};

/// Time between two looks at the state of a port, and between two attempts to open one.
const LOOK: Duration = Duration::from_millis(400);
/// Looks between two at all that the kernel says of a port: a file for each P_Key.
const LOOKS_TO_WHOLE: u32 = 5;

/// An open port, and why backends before the one taken did not work; or why none works, one reason a backend.
pub type Opening = Result<(Box<dyn MadDevice>, Vec<Unavailable>), Vec<Unavailable>>;

/// Where a device comes from: this machine, or a test.
pub trait DeviceSource: std::fmt::Debug {
    /// Opens the port.
    ///
    /// # Errors
    /// As [`Opening`].
    fn open(&mut self) -> Opening;

    /// Whether the kernel still shows the device by which the port was opened.
    fn is_listed(&self) -> bool;

    /// State of the port, as PortInfo numbers it; `None` without one.
    fn state(&self) -> Option<u32>;

    /// Has the kernel find the other ends that are named, so that no MAD waits for that; the port has come up.
    fn introduce(&self) {}

    /// Sets IsSM of the port until the descriptor is closed.
    ///
    /// # Errors
    /// The kernel's.
    fn hold_is_sm(&self) -> std::io::Result<OwnedFd>;

    /// What the kernel says of the port.
    fn identity(&self) -> Option<PortIdentity>;
}

/// Makes the source of what a specification names.
pub type Sources = Box<dyn Fn(&DeviceSpec) -> Box<dyn DeviceSource>>;

/// The devices of this machine.
pub fn of_this_machine() -> Sources {
    Box::new(|spec| Box::new(Keeper::new(spec.clone(), &[])))
}

impl DeviceSource for Keeper {
    fn open(&mut self) -> Opening {
        Self::open(self).map(|(opened, passed_over)| (Box::new(opened) as Box<dyn MadDevice>, passed_over))
    }

    fn is_listed(&self) -> bool {
        Self::is_listed(self)
    }

    fn state(&self) -> Option<u32> {
        PortIdentity::read_state(self.spec().device(), self.spec().port())
    }

    fn introduce(&self) {
        introduce(self.spec());
    }

    fn hold_is_sm(&self) -> std::io::Result<OwnedFd> {
        hold_is_sm(self.spec().device(), self.spec().port())
    }

    fn identity(&self) -> Option<PortIdentity> {
        PortIdentity::read(self.spec().device(), self.spec().port())
    }
}

/// A device of the plane.
#[derive(Debug)]
pub(super) struct Held {
    spec: DeviceSpec,
    source: Box<dyn DeviceSource>,
    worker: usize,
    /// One of [`device_state`].
    state: u32,
    identity: PortIdentity,
    /// Why it is not open, for whoever asks for it.
    why: String,
    looks: u32,
    /// Held while a program is subnet manager here.
    is_sm: Option<OwnedFd>,
}

impl Held {
    fn is_open(&self) -> bool {
        self.state > device_state::UNAVAILABLE
    }

    fn is_named(&self, name: &str, port: Option<u8>) -> bool {
        self.spec.device() == name && port.is_none_or(|port| port == self.spec.port())
    }
}

impl Housekeeping {
    /// Opens the devices that the plane was told to have, as far as they work.
    pub(crate) fn begin_devices(&mut self, sources: &Sources) {
        let workers = self.desks.len().max(1);
        for (number, spec) in self.config.devices().to_vec().into_iter().enumerate() {
            let worker = number % workers;
            let record = self.status.device(number);
            record.name.store(spec.device());
            record.spec.store(&spec.to_string());
            record.port.store(u32::from(spec.port()), Ordering::Relaxed);
            record.worker.store(u32::try_from(worker).unwrap_or(0), Ordering::Relaxed);
            self.devices.push(Held {
                source: sources(&spec),
                spec,
                worker,
                state: device_state::NONE,
                identity: PortIdentity::default(),
                why: String::new(),
                looks: 0,
                is_sm: None,
            });
            self.open_device(number);
        }
    }

    /// Looks after all devices, if it is time to.
    pub(super) fn watch_devices(&mut self) {
        if self.devices.is_empty() || self.looked_at_devices.elapsed() < LOOK {
            return;
        }
        self.looked_at_devices = Instant::now();
        for number in 0..self.devices.len() {
            if self.devices[number].is_open() {
                self.look_at_device(number);
            } else {
                self.open_device(number);
            }
        }
    }

    fn open_device(&mut self, number: usize) {
        let held = &mut self.devices[number];
        let (spec, worker) = (held.spec.clone(), held.worker);
        let (opened, passed_over) = match held.source.open() {
            Ok(opened) => opened,
            Err(reasons) => {
                let tried = spec.backends().iter().zip(&reasons);
                let lines: Vec<String> =
                    tried.map(|(backend, reason)| format!("by {}: {reason}", backend.label())).collect();
                // the last is that of the backend which needs least; after the first time there is only one
                let why = reasons.last().map(ToString::to_string).unwrap_or_default();
                self.device_is_unavailable(number, why, &lines);
                return;
            }
        };
        let backend = opened.backend();
        let identity = held.source.identity().unwrap_or_default();
        let made = DeviceEnd::new(number, &spec, opened, identity.clone());
        let order = match made {
            Ok(end) => Order::OpenDevice(Box::new(end)),
            Err(error) => {
                let why =
                    Unavailable::Failed { step: "registering an agent", why: error.to_string() }.to_string();
                self.device_is_unavailable(number, why.clone(), &[format!("by {}: {why}", backend.label())]);
                return;
            }
        };
        // of a former opening
        self.status.device(number).flags.store(0, Ordering::Relaxed);
        if !matches!(self.ask(worker, order), Some(Report::Done(_))) {
            let why = "unavailable, because its worker did not take it".to_owned();
            self.device_is_unavailable(number, why.clone(), &[why]);
            return;
        }
        let record = self.status.device(number);
        let kind = match backend {
            Backend::Verbs => device_backend::VERBS,
            Backend::Umad => device_backend::UMAD,
        };
        record.backend.store(kind, Ordering::Relaxed);
        record.why.store(&passed_over.first().map(ToString::to_string).unwrap_or_default());
        for (backend, reason) in spec.backends().iter().zip(&passed_over) {
            tracing::warn!("device {}: by {}: {reason}", spec.device(), backend.label());
        }
        let held = &mut self.devices[number];
        (held.identity, held.why, held.looks) = (identity, String::new(), 0);
        tracing::info!("device {spec} opened by {}", backend.label());
        self.show_identity(number);
        let place = self.place_of_device(number);
        if self.is_sm_held(place)
            && let Err((_, text)) = self.set_is_sm_of_device(place.0, true)
        {
            self.error(&text);
        }
        let active = self.devices[number].identity.is_active();
        self.set_device_state(number, if active { device_state::UP } else { device_state::DOWN }, "");
    }

    /// Says that a device is not there, and why, unless that was said.
    fn device_is_unavailable(&mut self, number: usize, why: String, lines: &[String]) {
        let held = &mut self.devices[number];
        let (name, falls_back) = (held.spec.device().to_owned(), held.spec.falls_back());
        let was = std::mem::replace(&mut held.state, device_state::UNAVAILABLE);
        if held.why == why && was == device_state::UNAVAILABLE {
            return;
        }
        held.why = why;
        let record = self.status.device(number);
        record.why.store(&self.devices[number].why);
        record.backend.store(device_backend::NONE, Ordering::Relaxed);
        record.state.store(device_state::UNAVAILABLE, Ordering::Relaxed);
        record.since_unix_ns.store(unix_ns(), Ordering::Relaxed);
        lines.iter().for_each(|line| self.error(&format!("device {name}: {line}")));
        if falls_back && was == device_state::NONE {
            tracing::info!("device {name}: until it works, whoever asks for it by auto: is in the fabric");
        }
    }

    fn look_at_device(&mut self, number: usize) {
        let flags = self.status.device(number).flags.load(Ordering::Relaxed);
        let held = &mut self.devices[number];
        let state = held.source.state();
        if flags & device_flag::BROKEN != 0 || state.is_none() || !held.source.is_listed() {
            self.close_device(number);
            return;
        }
        held.looks += 1;
        if state != Some(held.identity.state) || held.looks.is_multiple_of(LOOKS_TO_WHOLE) {
            self.look_at_identity(number);
        }
        let active = state == Some(ACTIVE) && flags & device_flag::DOWN == 0;
        let state = if active { device_state::UP } else { device_state::DOWN };
        if state != self.devices[number].state {
            self.set_device_state(number, state, "its port is not ACTIVE");
        }
    }

    fn look_at_identity(&mut self, number: usize) {
        let held = &mut self.devices[number];
        let Some(identity) = held.source.identity().filter(|identity| *identity != held.identity) else {
            return;
        };
        let before = std::mem::replace(&mut held.identity, identity.clone());
        let worker = held.worker;
        self.show_identity(number);
        self.ask(worker, Order::Readdress { number, identity: Box::new(identity.clone()) });
        if (PortIdentity { state: identity.state, ..before }) != identity {
            let text = format!("device {} has other addresses", self.devices[number].spec.device());
            tracing::info!(lid = identity.lid, "{text}");
            self.tell_control(event::DEVICE, self.place_of_device(number), 2, &text);
        }
    }

    fn show_identity(&self, number: usize) {
        let (identity, record) = (&self.devices[number].identity, self.status.device(number));
        record.node_guid.store(identity.node_guid, Ordering::Relaxed);
        record.lid.store(u32::from(identity.lid), Ordering::Relaxed);
    }

    /// Closes a device that is gone or beyond repair; the kernel may be waiting for that.
    fn close_device(&mut self, number: usize) {
        let (worker, name) = (self.devices[number].worker, self.devices[number].spec.device().to_owned());
        match self.ask(worker, Order::CloseDevice { number }) {
            Some(Report::DeviceClosed(end)) => drop(end),
            _ => self.error("a device could not be closed"),
        }
        self.devices[number].is_sm = None;
        let why = Unavailable::Removed { name: name.clone() }.to_string();
        let record = self.status.device(number);
        record.why.store(&why);
        record.backend.store(device_backend::NONE, Ordering::Relaxed);
        self.set_device_state(number, device_state::UNAVAILABLE, "it was removed");
        self.devices[number].why = why;
    }

    /// Shows a new state, writes it into the log and tells control.
    fn set_device_state(&mut self, number: usize, state: u32, why: &str) {
        let was = std::mem::replace(&mut self.devices[number].state, state);
        let record = self.status.device(number);
        record.state.store(state, Ordering::Relaxed);
        record.since_unix_ns.store(unix_ns(), Ordering::Relaxed);
        let up = state == device_state::UP;
        if up {
            self.devices[number].source.introduce();
        }
        let count = if up {
            &record.ups
        } else if was == device_state::UP {
            &record.downs
        } else {
            return;
        };
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let name = self.devices[number].spec.device();
        let text = if up { format!("device {name} is up") } else { format!("device {name} is down: {why}") };
        tracing::info!("{text}");
        self.tell_control(event::DEVICE, self.place_of_device(number), u32::from(up), &text);
    }

    fn place_of_device(&self, number: usize) -> (NodeId, u8) {
        (node_of(number), self.devices[number].spec.port())
    }

    /// Where a session is that asks for a device by name, with its port if that matters.
    ///
    /// # Errors
    /// One line: it is not the plane's, or why it does not work.
    pub(super) fn device_place(&self, selector: &str) -> Result<(NodeId, u8), String> {
        let (name, port) = match selector.rsplit_once(':') {
            Some((name, port)) => (name, port.parse().ok()),
            None => (selector, None),
        };
        let port_is_one = selector.len() == name.len() || port.is_some();
        let found = self.devices.iter().position(|held| port_is_one && held.is_named(name, port));
        let Some(number) = found else {
            let names: Vec<String> = self
                .devices
                .iter()
                .map(|held| format!("{}:{}", held.spec.device(), held.spec.port()))
                .collect();
            let known = if names.is_empty() {
                "it was started without (--device)".to_owned()
            } else {
                format!("it has {}", names.join(", "))
            };
            return Err(format!("the plane has no device {selector:?}; {known}"));
        };
        let held = &self.devices[number];
        if held.is_open() {
            Ok(self.place_of_device(number))
        } else {
            Err(format!("device {name}: {}", held.why))
        }
    }

    /// Sets or clears IsSM of a device's port.
    ///
    /// # Errors
    /// As the kernel refuses, with a line.
    pub(super) fn set_is_sm_of_device(&mut self, node: NodeId, on: bool) -> Result<(), (i32, String)> {
        let Some(held) = number_of(node).and_then(|number| self.devices.get_mut(number)) else {
            return Ok(());
        };
        held.is_sm = None;
        if on {
            let name = held.spec.device();
            held.is_sm = Some(held.source.hold_is_sm().map_err(|error| {
                let errno = error.raw_os_error().unwrap_or(ENODEV);
                (errno, format!("IsSM of device {name} cannot be set: {error}"))
            })?);
        }
        Ok(())
    }

    /// The device whose place this is.
    pub(super) fn device_at(&self, node: NodeId) -> Option<&Held> {
        self.devices.get(number_of(node)?)
    }

    /// The worker that serves a device.
    pub(super) fn worker_of_device(&self, node: NodeId) -> Option<usize> {
        self.device_at(node).map(|held| held.worker)
    }

    /// GUID and name of a device.
    pub(super) fn name_of_device(&self, node: NodeId) -> Option<(u64, String)> {
        self.device_at(node).map(|held| (held.identity.node_guid, held.spec.device().to_owned()))
    }
}
