//! Orders from housekeeping to a worker, and reports back: rings of boxed values, used when sessions come and go.
//!
//! Never once per MAD: what a worker no longer needs travels back in a report, so that memory is freed by housekeeping.

use std::sync::Arc;

use madplane_engine::{NodeId, PinnedRoute};
use madplane_port::device::PortIdentity;
use madplane_shm::doorbell::Doorbell;
use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use crate::agents::{AgentId, AgentSpec, RegisterError};
use crate::devices::DeviceEnd;
use crate::links::PlaneLink;
use crate::route_view::RouteView;
use crate::sessions::Session;
use crate::sleep::WorkerBell;
use crate::worker::NewLink;

/// What a worker is asked to do.
#[derive(Debug)]
pub enum Order {
    /// Serve a session.
    Open(Box<Session>),
    /// Stop serving a session; its memory comes back in the report.
    Close {
        /// Session slot.
        slot: u32,
    },
    /// Register an agent of a session.
    Register {
        /// The agent.
        id: AgentId,
        /// What it wants.
        spec: AgentSpec,
    },
    /// Remove an agent of a session.
    Unregister {
        /// The agent.
        id: AgentId,
    },
    /// Set or clear IsSM of a port.
    SetIsSm {
        /// The node.
        node: NodeId,
        /// Its port.
        port: u8,
        /// On or off.
        on: bool,
    },
    /// Plug or pull the cable of a port.
    SetLink {
        /// The node.
        node: NodeId,
        /// Its port.
        port: u8,
        /// Plug or pull.
        up: bool,
    },
    /// Power-cycle a node.
    Reboot {
        /// The node.
        node: NodeId,
    },
    /// Send what session `slot` sends along a path of its own from now on, or no longer; all workers are asked.
    Bind {
        /// Session slot.
        slot: u32,
        /// The path, and what happens when it is broken; LIDs and keys of the route do not matter.
        route: Option<Box<PinnedRoute>>,
    },
    /// Forward by this table from now on.
    Routes(Box<RouteView>),
    /// Serve a link to another plane.
    OpenLink(Box<NewLink>),
    /// Serve a link no longer; it comes back in the report.
    CloseLink {
        /// Its number.
        number: u16,
    },
    /// Serve an RDMA device.
    OpenDevice(Box<DeviceEnd>),
    /// Serve an RDMA device no longer; it comes back in the report.
    CloseDevice {
        /// Its number.
        number: usize,
    },
    /// The addresses or keys of a device's port are these now.
    Readdress {
        /// Its number.
        number: usize,
        /// What the kernel says of the port.
        identity: Box<PortIdentity>,
    },
    /// Have a core of its own from now on, or share one.
    ShareCore(bool),
    /// Leave the duty cycle.
    Stop,
}

/// What a worker answers, once per order.
#[derive(Debug)]
pub enum Report {
    /// Done; a closed session's memory with it.
    Done(Option<Box<Session>>),
    /// The view of the table that is no longer needed.
    Replaced(Option<Box<RouteView>>),
    /// The link that is no longer served.
    Unlinked(Box<PlaneLink>),
    /// The device that is not served, or no longer.
    DeviceClosed(Box<DeviceEnd>),
    /// An agent was refused.
    Refused(RegisterError),
    /// The session, agent, link or device is not there, or was not taken.
    Unknown,
}

/// Housekeeping's end.
pub struct OrderDesk {
    orders: HeapProd<Order>,
    reports: HeapCons<Report>,
    worker: Option<Arc<WorkerBell>>,
}

/// The worker's end.
pub struct OrderBox {
    orders: HeapCons<Order>,
    reports: HeapProd<Report>,
    bell: Arc<Doorbell>,
}

impl std::fmt::Debug for OrderDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrderDesk").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for OrderBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrderBox").finish_non_exhaustive()
    }
}

/// Makes the rings between housekeeping and one worker; `bell` is rung for every report.
pub fn order_rings(bell: Arc<Doorbell>) -> (OrderDesk, OrderBox) {
    let (order_in, order_out) = HeapRb::new(64).split();
    let (report_in, report_out) = HeapRb::new(64).split();
    (
        OrderDesk { orders: order_in, reports: report_out, worker: None },
        OrderBox { orders: order_out, reports: report_in, bell },
    )
}

impl OrderDesk {
    /// Hands an order over; gives it back if the worker has not taken earlier ones.
    ///
    /// # Errors
    /// The order, when 64 of them wait.
    pub fn give(&mut self, order: Order) -> Result<(), Order> {
        self.orders.try_push(order)?;
        self.wake_worker();
        Ok(())
    }

    /// Has the worker woken by `bell` when there is an order.
    #[must_use]
    pub fn waking(mut self, bell: Arc<WorkerBell>) -> Self {
        self.worker = Some(bell);
        self
    }

    /// Wakes the worker if it sleeps.
    pub fn wake_worker(&self) {
        if let Some(bell) = &self.worker {
            bell.call();
        }
    }

    /// Takes the next report.
    pub fn report(&mut self) -> Option<Report> {
        self.reports.try_pop()
    }
}

impl OrderBox {
    /// Takes the next order.
    pub fn take(&mut self) -> Option<Order> {
        self.orders.try_pop()
    }

    /// Whether an order waits.
    pub fn is_waiting(&self) -> bool {
        !self.orders.is_empty()
    }

    /// Answers an order. There is room: at most 64 orders are open.
    pub fn answer(&mut self, report: Report) {
        let sent = self.reports.try_push(report).is_ok();
        debug_assert!(sent, "one report per order, and there are never more open orders than room");
        self.bell.ring();
    }
}
