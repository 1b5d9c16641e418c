//! A device port that is kept open: by the first backend that works, and again when its device comes back.
//!
//! Owned by one worker. Moving MADs is the backend's; [`DevicePort::tick`] is called by a deadline, not per MAD: it takes the
//! device's events, closes a port that is beyond repair and tries to open it again. While it is closed it takes and gives no
//! MADs. Who sends finds the port full.

use std::path::PathBuf;
use std::time::Duration;

use crate::device::{Backend, DeviceSpec, Unavailable, verbs_entry};
use crate::umad_dev::AgentSpec;
use crate::umad_dev::port::UmadPort;
#[cfg(feature = "verbs")]
use crate::verbs;
use crate::{Capabilities, MadMessage, MadRx, MadTx};

/// How often a worker calls [`DevicePort::tick`].
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks between two attempts to open.
const TICKS_BETWEEN_ATTEMPTS: u32 = 5;

/// What [`DevicePort::tick`] saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The port carries MADs again.
    Up,
    /// The port does not carry MADs.
    Down {
        /// Why, for the operator.
        why: Unavailable,
    },
    /// LIDs, keys or GIDs of the port changed.
    Readdressed,
}

/// What moves the MADs.
#[derive(Debug)]
pub enum Opened {
    /// A queue pair of our own.
    #[cfg(feature = "verbs")]
    Verbs(Box<verbs::MadPort>),
    /// The kernel's device.
    Umad(UmadPort),
}

impl Opened {
    /// Opens a port by one backend; on the kernel's device `agents` are registered, in this order, as number 0 and so on.
    ///
    /// # Errors
    /// [`Unavailable`], for the operator.
    pub fn open(spec: &DeviceSpec, backend: Backend, agents: &[AgentSpec]) -> Result<Self, Unavailable> {
        match backend {
            #[cfg(feature = "verbs")]
            Backend::Verbs => {
                let port = verbs::MadPort::open(spec, &verbs::QueueSettings::default())?;
                Ok(Self::Verbs(Box::new(port)))
            }
            #[cfg(not(feature = "verbs"))]
            Backend::Verbs => Err(Unavailable::NotBuilt),
            Backend::Umad => {
                let mut port = UmadPort::open(spec)?;
                for agent in agents {
                    port.register(agent)
                        .map_err(|error| Unavailable::failed("registering an agent", &error))?;
                }
                Ok(Self::Umad(port))
            }
        }
    }

    /// Opens a port by the first backend of the specification that works; beside it why those before it did not.
    ///
    /// # Errors
    /// Why none works, one reason a backend, in the order in which they were tried.
    pub fn open_first(
        spec: &DeviceSpec,
        agents: &[AgentSpec],
    ) -> Result<(Self, Vec<Unavailable>), Vec<Unavailable>> {
        let mut reasons = Vec::new();
        for backend in spec.backends() {
            match Self::open(spec, *backend, agents) {
                Ok(port) => return Ok((port, reasons)),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons)
    }

    /// What it is.
    pub fn backend(&self) -> Backend {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => Backend::Verbs,
            Self::Umad(_) => Backend::Umad,
        }
    }

    fn is_whole(&self) -> bool {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => port.is_whole(),
            Self::Umad(port) => port.is_whole(),
        }
    }
}

/// A port on a device, open or waiting to be.
#[derive(Debug)]
pub struct DevicePort {
    spec: DeviceSpec,
    agents: Vec<AgentSpec>,
    backend: Backend,
    opened: Option<Opened>,
    /// What the kernel takes away first when the device goes: not every driver tells its users by an event.
    node: Option<PathBuf>,
    /// The device's link is down; the port stays open.
    link_down: bool,
    wait: u32,
}

impl DevicePort {
    /// Opens a port; beside it why the backends before the one taken did not work.
    ///
    /// # Errors
    /// As [`Opened::open_first`].
    pub fn open(
        spec: &DeviceSpec,
        agents: &[AgentSpec],
    ) -> Result<(Self, Vec<Unavailable>), Vec<Unavailable>> {
        let (opened, passed_over) = Opened::open_first(spec, agents)?;
        let backend = opened.backend();
        let port = Self {
            spec: spec.clone(),
            agents: agents.to_vec(),
            backend,
            opened: Some(opened),
            node: node(spec, backend),
            link_down: false,
            wait: 0,
        };
        Ok((port, passed_over))
    }

    /// What moves the MADs, if it is open.
    pub fn opened(&mut self) -> Option<&mut Opened> {
        self.opened.as_mut()
    }

    /// The backend that was taken when the port was opened; it is kept.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// True if MADs can pass.
    pub fn is_up(&self) -> bool {
        self.opened.is_some() && !self.link_down
    }

    /// Looks after the port: takes events, closes and opens again. May call the system and allocate; at most one change a
    /// call, so call until there is none.
    pub fn tick(&mut self) -> Option<Change> {
        if self.opened.is_none() {
            return self.try_again();
        }
        if let Some(change) = self.take_events() {
            return Some(change);
        }
        let removed = self.node.as_ref().is_some_and(|node| !node.exists());
        if removed || self.opened.as_ref().is_some_and(|opened| !opened.is_whole()) {
            // the queue pair closes here, which lets a device go that is being removed
            self.opened = None;
            self.wait = 0;
            let why = Unavailable::Removed { name: self.spec.device().to_owned() };
            let was_up = !std::mem::replace(&mut self.link_down, false);
            return was_up.then_some(Change::Down { why });
        }
        None
    }

    fn take_events(&mut self) -> Option<Change> {
        match self.opened.as_mut()? {
            #[cfg(feature = "verbs")]
            Opened::Verbs(port) => {
                while let Some(event) = port.event() {
                    match event {
                        verbs::PortEvent::Up if self.link_down => {
                            self.link_down = false;
                            return Some(Change::Up);
                        }
                        verbs::PortEvent::Down if !self.link_down => {
                            self.link_down = true;
                            let name = self.spec.device().to_owned();
                            let why = Unavailable::NotActive { name, port: self.spec.port(), state: 1 };
                            return Some(Change::Down { why });
                        }
                        verbs::PortEvent::Changed => return Some(Change::Readdressed),
                        verbs::PortEvent::QueueBroken => return None,
                        _ => {}
                    }
                }
                None
            }
            Opened::Umad(_) => None,
        }
    }

    fn try_again(&mut self) -> Option<Change> {
        if self.wait > 0 {
            self.wait -= 1;
            return None;
        }
        self.wait = TICKS_BETWEEN_ATTEMPTS;
        self.opened = Opened::open(&self.spec, self.backend, &self.agents).ok();
        self.node = node(&self.spec, self.backend);
        self.opened.as_ref().map(|_| Change::Up)
    }
}

/// Where the kernel shows a device to its users, as long as it has it.
fn node(spec: &DeviceSpec, backend: Backend) -> Option<PathBuf> {
    match backend {
        Backend::Verbs => verbs_entry(spec.device()),
        Backend::Umad => None,
    }
}

impl MadRx for DevicePort {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        match &mut self.opened {
            #[cfg(feature = "verbs")]
            Some(Opened::Verbs(port)) => port.rx_burst(into),
            Some(Opened::Umad(port)) => port.rx_burst(into),
            None => 0,
        }
    }

    fn release(&mut self) {
        match &mut self.opened {
            #[cfg(feature = "verbs")]
            Some(Opened::Verbs(port)) => port.release(),
            Some(Opened::Umad(port)) => port.release(),
            None => {}
        }
    }

    fn capabilities(&self) -> Capabilities {
        match &self.opened {
            #[cfg(feature = "verbs")]
            Some(Opened::Verbs(port)) => MadRx::capabilities(&**port),
            Some(Opened::Umad(port)) => MadRx::capabilities(port),
            None => Capabilities { depth: 0, wakes: false, can_sleep: false },
        }
    }
}

impl MadTx for DevicePort {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        match &mut self.opened {
            #[cfg(feature = "verbs")]
            Some(Opened::Verbs(port)) => port.tx_burst(from),
            Some(Opened::Umad(port)) => port.tx_burst(from),
            None => 0,
        }
    }

    fn flush(&mut self) -> bool {
        match &mut self.opened {
            #[cfg(feature = "verbs")]
            Some(Opened::Verbs(port)) => port.flush(),
            Some(Opened::Umad(port)) => port.flush(),
            None => false,
        }
    }

    fn capabilities(&self) -> Capabilities {
        MadRx::capabilities(self)
    }
}

#[cfg(all(test, not(feature = "verbs")))]
mod tests {
    use super::*;

    #[test]
    fn each_backend_says_why_it_does_not_work_in_the_order_of_the_attempts() {
        let spec: DeviceSpec = "auto:no_such_device".parse().unwrap();
        let reasons = DevicePort::open(&spec, &[]).unwrap_err();
        assert_eq!(reasons.len(), 2);
        assert_eq!(reasons[0], Unavailable::NotBuilt);
        assert!(matches!(reasons[1], Unavailable::NoRdma | Unavailable::NoDevice { .. }), "{:?}", reasons[1]);
    }
}
