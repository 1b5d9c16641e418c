//! What housekeeping asks of a worker: sessions and agents coming and going, links, nodes, the table.
//!
//! Part of [`Worker`], same thread; one order per duty cycle, never on the way of a MAD. What is no longer needed goes back
//! in the report, so that housekeeping frees it.

use madplane_engine::PinnedRoute;

use super::{SessionIn, Worker};
use crate::orders::{Order, Report};
use crate::sessions::Session;

impl Worker {
    pub(super) fn carry_out(&mut self, order: Order, now_ns: u64) -> Report {
        match order {
            Order::Open(session) => self.open(*session),
            Order::Close { slot } => self.close(slot),
            Order::Register { id, spec } => {
                let Some(session) = self.egress.session(id.slot).filter(|s| s.generation == id.generation)
                else {
                    return Report::Unknown;
                };
                let (node, port) = (session.node, session.port);
                if let Err(error) = self.egress.requests.add(node, port, id, spec) {
                    return Report::Refused(error);
                }
                if let Some(end) = self.devices.at(node)
                    && let Err(error) = end.register(id, &spec)
                {
                    self.egress.requests.remove(node, port, id);
                    return Report::Refused(error);
                }
                if let Some(place) =
                    self.egress.session_mut(id.slot).and_then(|s| s.agents.get_mut(id.agent as usize))
                {
                    *place = Some(spec);
                }
                Report::Done(None)
            }
            Order::Unregister { id } => {
                let Some(session) = self.egress.session_mut(id.slot).filter(|s| s.agent(id).is_some()) else {
                    return Report::Unknown;
                };
                session.agents[id.agent as usize] = None;
                let (node, port) = (session.node, session.port);
                self.egress.requests.remove(node, port, id);
                if let Some(end) = self.devices.at(node) {
                    end.unregister(id);
                }
                Report::Done(None)
            }
            Order::SetIsSm { node, port, on } => {
                self.shard.set_is_sm(now_ns, node, port, on, &mut self.egress);
                Report::Done(None)
            }
            Order::SetLink { node, port, up } => {
                self.shard.set_link(now_ns, node, port, up, &mut self.egress);
                Report::Done(None)
            }
            Order::Reboot { node } => {
                self.shard.reboot_node(now_ns, node, &mut self.egress);
                Report::Done(None)
            }
            Order::Bind { slot, route } => {
                self.bind(slot, route.as_deref());
                Report::Done(None)
            }
            Order::Routes(mut view) => {
                let former = self.routes.take();
                if let Some(former) = &former {
                    former.withdraw(&mut self.shard);
                    self.egress.acl.clear();
                    self.sort_by_class();
                }
                view.make_room(&mut self.shard);
                self.egress.route_counters = Some(view.counters().clone());
                self.routes = Some(view);
                Report::Replaced(former)
            }
            Order::OpenLink(new) => self.open_link(*new),
            Order::CloseLink { number } => self.close_link(number, now_ns),
            Order::OpenDevice(end) => self.open_device(*end),
            Order::CloseDevice { number } => self.close_device(number),
            Order::Readdress { number, identity } => self.readdress(number, *identity),
            Order::ShareCore(shares) => {
                self.take_up(*self.idle.tuning(), shares);
                Report::Done(None)
            }
            Order::Stop => {
                self.stopping = true;
                Report::Done(None)
            }
        }
    }

    fn open(&mut self, session: Session) -> Report {
        let Session { slot, generation, node, port, rx, bell, out, received } = session;
        let member = out.member;
        // a session that could not wake this worker would wait for others to do so
        if let (Some(sleeper), Some(bell)) = (&self.sleeper, &bell)
            && sleeper.watch(bell).is_err()
        {
            return Report::Unknown;
        }
        if !self.egress.open(slot, out) {
            if let (Some(sleeper), Some(bell)) = (&self.sleeper, &bell) {
                sleeper.forget(bell);
            }
            return Report::Unknown;
        }
        let (reserved, bound, batch) = (false, 0, 0);
        self.sessions.push(SessionIn {
            slot,
            generation,
            node,
            port,
            rx,
            bell,
            received,
            batch,
            member,
            reserved,
            bound,
        });
        // whoever attaches as a tenant was found in the table; what it sends first must find the tenant here
        if !member.is_none() && !self.egress.acl.knows(member) {
            self.refresh_routes();
        }
        self.sort_by_class();
        Report::Done(None)
    }

    /// Sends what the session in `slot` sends along `route`, or as everybody's; the session may be another worker's.
    fn bind(&mut self, slot: u32, route: Option<&PinnedRoute>) {
        let Ok(number) = u16::try_from(slot) else { return };
        self.shard.bind(number, route);
        if let Some(session) = self.sessions.iter_mut().find(|session| session.slot == slot) {
            session.bound = if route.is_some() { number + 1 } else { 0 };
        }
    }

    fn close(&mut self, slot: u32) -> Report {
        let place = self.sessions.iter().position(|session| session.slot == slot);
        let (Some(place), Some(out)) = (place, self.egress.close(slot)) else { return Report::Unknown };
        let SessionIn { slot, generation, node, port, rx, bell, received, .. } = self.sessions.remove(place);
        if let (Some(sleeper), Some(bell)) = (&self.sleeper, &bell) {
            // the client may hold the doorbell open: epoll would go on reporting it
            sleeper.forget(bell);
        }
        if let Some(end) = self.devices.at(node) {
            end.unregister_session(slot, generation);
        }
        self.sort_by_class();
        Report::Done(Some(Box::new(Session { slot, generation, node, port, rx, bell, out, received })))
    }
}
