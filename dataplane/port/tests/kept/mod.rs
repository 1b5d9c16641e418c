//! A device port looked after by the thread that uses it, so that a test needs no second one: what housekeeping and a worker of a plane
//! do for it between them. While it is closed it takes and gives no MADs.

#![allow(dead_code, reason = "each test program uses a part")]

use madplane_port::device::{Backend, DeviceSpec, Unavailable};
use madplane_port::opened::{DeviceEvent, Keeper, MadDevice, Opened};
use madplane_port::umad_dev::AgentSpec;
use madplane_port::{Capabilities, MadMessage, MadRx, MadTx};

/// Ticks between two attempts to open.
const TICKS_BETWEEN_ATTEMPTS: u32 = 5;

/// What [`DevicePort::tick`] saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
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

/// A port on a device, open or waiting to be.
#[derive(Debug)]
pub(crate) struct DevicePort {
    keeper: Keeper,
    opened: Option<Opened>,
    /// The device's link is down; the port stays open.
    link_down: bool,
    wait: u32,
}

impl DevicePort {
    /// Opens a port; beside it why the backends before the one taken did not work.
    pub(crate) fn open(
        spec: &DeviceSpec,
        agents: &[AgentSpec],
    ) -> Result<(Self, Vec<Unavailable>), Vec<Unavailable>> {
        let mut keeper = Keeper::new(spec.clone(), agents);
        let (opened, passed_over) = keeper.open()?;
        Ok((Self { keeper, opened: Some(opened), link_down: false, wait: 0 }, passed_over))
    }

    /// What moves the MADs.
    pub(crate) fn backend(&self) -> Option<Backend> {
        self.opened.as_ref().map(MadDevice::backend)
    }

    /// True if MADs can pass.
    pub(crate) fn is_up(&self) -> bool {
        self.opened.is_some() && !self.link_down
    }

    /// Looks after the port: takes events, closes and opens again. May call the system and allocate; at most one change a
    /// call, so call until there is none.
    pub(crate) fn tick(&mut self) -> Option<Change> {
        let Some(opened) = self.opened.as_mut() else { return self.try_again() };
        let name = || self.keeper.spec().device().to_owned();
        loop {
            match opened.event() {
                Some(DeviceEvent::Broken) => break,
                None if !self.keeper.is_listed() => break,
                None => return None,
                Some(DeviceEvent::Up) if self.link_down => {
                    self.link_down = false;
                    return Some(Change::Up);
                }
                Some(DeviceEvent::Down) if !self.link_down => {
                    self.link_down = true;
                    let port = self.keeper.spec().port();
                    return Some(Change::Down {
                        why: Unavailable::NotActive { name: name(), port, state: 1 },
                    });
                }
                Some(DeviceEvent::Readdressed) => return Some(Change::Readdressed),
                Some(DeviceEvent::Up | DeviceEvent::Down) => {}
            }
        }
        let why = Unavailable::Removed { name: name() };
        // the queue pair closes here, which lets a device go that is being removed
        self.opened = None;
        self.wait = 0;
        let was_up = !std::mem::replace(&mut self.link_down, false);
        was_up.then_some(Change::Down { why })
    }

    fn try_again(&mut self) -> Option<Change> {
        if self.wait > 0 {
            self.wait -= 1;
            return None;
        }
        self.wait = TICKS_BETWEEN_ATTEMPTS;
        self.opened = self.keeper.open().ok().map(|(opened, _)| opened);
        self.opened.as_ref().map(|_| Change::Up)
    }
}

impl MadRx for DevicePort {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        self.opened.as_mut().map_or(0, |port| port.rx_burst(into))
    }

    fn release(&mut self) {
        if let Some(port) = &mut self.opened {
            port.release();
        }
    }

    fn capabilities(&self) -> Capabilities {
        const CLOSED: Capabilities = Capabilities { depth: 0, wakes: false, can_sleep: false };
        self.opened.as_ref().map_or(CLOSED, MadRx::capabilities)
    }
}

impl MadTx for DevicePort {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        self.opened.as_mut().map_or(0, |port| port.tx_burst(from))
    }

    fn flush(&mut self) -> bool {
        self.opened.as_mut().is_some_and(MadTx::flush)
    }

    fn capabilities(&self) -> Capabilities {
        MadRx::capabilities(self)
    }
}
