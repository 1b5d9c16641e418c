//! A device port: opened by the first backend that works, served by a worker, and opened again when its device comes back.
//!
//! Two halves. [`MadDevice`] is what the worker owns: it moves MADs and never opens anything. [`Keeper`] may call the system and
//! allocate, so it belongs to housekeeping: it opens ports and looks whether the kernel still has the device.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::device::{Backend, DeviceSpec, Unavailable, verbs_entry};
use crate::umad_dev::AgentSpec;
use crate::umad_dev::port::{TimedOut, UmadPort};
#[cfg(feature = "verbs")]
use crate::verbs;
use crate::{Capabilities, MadMessage, MadRx, MadTx};

/// How often a worker looks for events of its devices.
pub const TICK: Duration = Duration::from_millis(100);

/// What happened to an open port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEvent {
    /// Its link carries MADs.
    Up,
    /// Its link carries none; the port stays open.
    Down,
    /// LIDs, keys or GIDs changed.
    Readdressed,
    /// It has to be opened again.
    Broken,
}

/// What a port did and met since it was opened; numbers only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// MADs taken to be sent.
    pub sent: u64,
    /// MADs received.
    pub received: u64,
    /// MADs refused, or reported as not sent.
    pub refused: u64,
    /// Requests that nobody answered in time.
    pub timed_out: u64,
}

/// An open port of a device, as the worker that owns it uses it.
///
/// MADs go by the number of the agent in their envelope and come with it. Where agents are the kernel's, it puts its own upper half into the
/// transaction id of a request, and hands out an answer only while it waits for one.
pub trait MadDevice: MadRx + MadTx + fmt::Debug + Send {
    /// What it is.
    fn backend(&self) -> Backend;

    /// Registers an agent; its number.
    ///
    /// # Errors
    /// As the kernel refuses: EINVAL, EPROTONOSUPPORT without such a queue pair, ENOMEM.
    fn register(&mut self, spec: &AgentSpec) -> io::Result<u32>;

    /// Takes an agent away again.
    fn unregister(&mut self, agent: u32);

    /// Has requests wait this long for their answers, where somebody waits.
    fn set_patience(&mut self, patience: Duration);

    /// The oldest request that timed out and was not asked for yet.
    fn timed_out(&mut self) -> Option<TimedOut>;

    /// What happened to device or port, if anything; [`DeviceEvent::Broken`] as long as it is.
    fn event(&mut self) -> Option<DeviceEvent>;

    /// Whether looking for MADs takes no system call.
    fn looks_are_free(&self) -> bool;

    /// What becomes readable when a MAD comes while it is armed.
    fn waker(&self) -> Option<BorrowedFd<'_>>;

    /// Asks to be woken; false if something has come meanwhile.
    fn arm(&mut self) -> bool;

    /// Says that the worker is awake.
    fn disarm(&mut self);

    /// Counters since it was opened.
    fn counters(&self) -> DeviceCounters;
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
}

impl MadDevice for Opened {
    fn backend(&self) -> Backend {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => Backend::Verbs,
            Self::Umad(_) => Backend::Umad,
        }
    }

    fn register(&mut self, spec: &AgentSpec) -> io::Result<u32> {
        match self {
            // a queue pair takes whatever comes, but SMPs belong to one that is the kernel's
            #[cfg(feature = "verbs")]
            Self::Verbs(_) if spec.pair == 0 => Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT)),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => Ok(0),
            Self::Umad(port) => port.register(spec),
        }
    }

    fn unregister(&mut self, agent: u32) {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => {}
            // it is gone already if the device is
            Self::Umad(port) => drop(port.unregister(agent)),
        }
    }

    fn set_patience(&mut self, patience: Duration) {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => {}
            Self::Umad(port) => port.set_timeout_ms(u32::try_from(patience.as_millis()).unwrap_or(u32::MAX)),
        }
    }

    fn timed_out(&mut self) -> Option<TimedOut> {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => None,
            Self::Umad(port) => port.timed_out(),
        }
    }

    fn event(&mut self) -> Option<DeviceEvent> {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => loop {
                match port.event() {
                    Some(verbs::PortEvent::Up) => return Some(DeviceEvent::Up),
                    Some(verbs::PortEvent::Down) => return Some(DeviceEvent::Down),
                    Some(verbs::PortEvent::Changed) => return Some(DeviceEvent::Readdressed),
                    Some(verbs::PortEvent::QueueBroken | verbs::PortEvent::Removed) => {
                        return Some(DeviceEvent::Broken);
                    }
                    Some(verbs::PortEvent::Other(_)) => {}
                    None => return (!port.is_whole()).then_some(DeviceEvent::Broken),
                }
            },
            Self::Umad(port) => (!port.is_whole()).then_some(DeviceEvent::Broken),
        }
    }

    fn looks_are_free(&self) -> bool {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => true,
            Self::Umad(_) => false,
        }
    }

    fn waker(&self) -> Option<BorrowedFd<'_>> {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => Some(port.waker()),
            Self::Umad(port) => Some(port.waker()),
        }
    }

    fn arm(&mut self) -> bool {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => port.arm(),
            // what came meanwhile is an edge that the worker's epoll has not reported yet
            Self::Umad(_) => true,
        }
    }

    fn disarm(&mut self) {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => port.disarm(),
            Self::Umad(_) => {}
        }
    }

    fn counters(&self) -> DeviceCounters {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => {
                let counted = port.counters();
                DeviceCounters {
                    sent: counted.sent,
                    received: counted.received,
                    refused: counted.send_failed + counted.unreachable + counted.bad_length,
                    timed_out: 0,
                }
            }
            Self::Umad(port) => {
                let counted = port.counters();
                DeviceCounters {
                    sent: counted.sent,
                    received: counted.received,
                    refused: counted.refused + counted.too_long,
                    timed_out: counted.timed_out,
                }
            }
        }
    }
}

impl MadRx for Opened {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => port.rx_burst(into),
            Self::Umad(port) => port.rx_burst(into),
        }
    }

    fn release(&mut self) {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => port.release(),
            Self::Umad(port) => port.release(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => MadRx::capabilities(&**port),
            Self::Umad(port) => MadRx::capabilities(port),
        }
    }
}

impl MadTx for Opened {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => port.tx_burst(from),
            Self::Umad(port) => port.tx_burst(from),
        }
    }

    fn flush(&mut self) -> bool {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(port) => port.flush(),
            Self::Umad(port) => port.flush(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        MadRx::capabilities(self)
    }
}

/// Opens a port and knows whether its device is still there.
#[derive(Debug)]
pub struct Keeper {
    spec: DeviceSpec,
    agents: Vec<AgentSpec>,
    /// Taken when it was opened first, and kept.
    backend: Option<Backend>,
    /// What the kernel takes away first when the device goes: not every driver tells its users by an event.
    node: Option<PathBuf>,
}

impl Keeper {
    /// For a port that is not open yet; on the kernel's device `agents` are registered whenever it is opened.
    pub fn new(spec: DeviceSpec, agents: &[AgentSpec]) -> Self {
        Self { spec, agents: agents.to_vec(), backend: None, node: None }
    }

    /// Opens the port, after the first time by the same backend; beside it why the backends before that did not work.
    ///
    /// # Errors
    /// As [`Opened::open_first`].
    pub fn open(&mut self) -> Result<(Opened, Vec<Unavailable>), Vec<Unavailable>> {
        let (opened, passed_over) = match self.backend {
            None => Opened::open_first(&self.spec, &self.agents)?,
            Some(backend) => {
                let opened =
                    Opened::open(&self.spec, backend, &self.agents).map_err(|reason| vec![reason])?;
                (opened, Vec::new())
            }
        };
        self.backend = Some(opened.backend());
        self.node = match opened.backend() {
            Backend::Verbs => verbs_entry(self.spec.device()),
            Backend::Umad => None,
        };
        Ok((opened, passed_over))
    }

    /// Whether the kernel still shows the device by which the port was opened. A port on one that it does not show is to be closed: the kernel
    /// waits for that.
    pub fn is_listed(&self) -> bool {
        self.node.as_ref().is_none_or(|node| node.exists())
    }

    /// The port's specification.
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }
}

#[cfg(all(test, not(feature = "verbs")))]
mod tests {
    use super::*;

    #[test]
    fn each_backend_says_why_it_does_not_work_in_the_order_of_the_attempts() {
        let spec: DeviceSpec = "auto:no_such_device".parse().unwrap();
        let reasons = Keeper::new(spec, &[]).open().unwrap_err();
        assert_eq!(reasons.len(), 2);
        assert_eq!(reasons[0], Unavailable::NotBuilt);
        assert!(matches!(reasons[1], Unavailable::NoRdma | Unavailable::NoDevice { .. }), "{:?}", reasons[1]);
    }
}
