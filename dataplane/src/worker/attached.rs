//! RDMA devices that a worker serves: their MADs, and devices that come and go.
//!
//! Part of [`Worker`], same thread. A device is looked at after sessions, mesh and links, a burst per duty cycle. It comes open and goes open:
//! housekeeping closes it, which may take the kernel its time.

use madplane_port::device::PortIdentity;

use super::Worker;
use crate::agents::AgentId;
use crate::devices::DeviceEnd;
use crate::notices::Notice;
use crate::orders::Report;

impl Worker {
    /// Serves every device once; how much there was.
    #[inline(never)]
    pub(super) fn poll_devices(&mut self, now_ns: u64) -> usize {
        let Self { devices, egress, most, .. } = self;
        devices.poll(*most, now_ns, egress)
    }

    pub(super) fn open_device(&mut self, mut end: DeviceEnd) -> Report {
        if let (Some(sleeper), Some(waker)) = (&self.sleeper, end.device().waker())
            && sleeper.watch(waker).is_err()
        {
            return Report::DeviceClosed(Box::new(end));
        }
        // sessions that were here before the device went away
        let (node, _) = end.place();
        for session in self.sessions.iter().filter(|session| session.node == node) {
            let Some(agents) = self.egress.session(session.slot).map(|out| out.agents) else { continue };
            for (agent, spec) in (0u32..).zip(agents).filter_map(|(n, spec)| spec.map(|spec| (n, spec))) {
                let id = AgentId { slot: session.slot, generation: session.generation, agent };
                if let Err(refused) = end.register(id, &spec) {
                    self.egress.notices.put(Notice::AgentRefused(refused));
                }
            }
        }
        self.devices.add(end);
        Report::Done(None)
    }

    pub(super) fn close_device(&mut self, number: usize) -> Report {
        let Some(end) = self.devices.remove(number) else { return Report::Unknown };
        if let (Some(sleeper), Some(waker)) = (&self.sleeper, end.device().waker()) {
            sleeper.forget(waker);
        }
        Report::DeviceClosed(Box::new(end))
    }

    pub(super) fn readdress(&mut self, number: usize, identity: PortIdentity) -> Report {
        let Some(end) = self.devices.at(crate::devices::node_of(number)) else { return Report::Unknown };
        end.readdress(identity);
        Report::Done(None)
    }
}
