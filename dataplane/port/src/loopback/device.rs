//! A device in one process: a port for a worker, and the wire behind it for whoever stands in for the rest of the world.
//!
//! It does what the kernel's umad device does, as far as its users can tell: agents by number, 32 of them, a method of a class has one owner;
//! the upper half of a request's transaction id becomes the agent's; an answer gets in only while its request waits; requests go to
//! whoever registered for them. [`DeviceLoop`] is the port, [`Wire`] the other end; both may be used from different threads. For
//! tests: the queues are bounded, the rest is not measured.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::device::Backend;
use crate::opened::{DeviceCounters, DeviceEvent, MadDevice};
use crate::umad_dev::port::{TimedOut, is_rmpp, wants_answer};
use crate::umad_dev::{AgentSpec, MAD_HEADER_LEN, MAX_AGENTS};
use crate::{Capabilities, MadMessage, MadRx, MadTx};

/// Upper half of the transaction ids of agent 0.
const FIRST_HIGH: u32 = 0x00ab_0000;

#[derive(Debug)]
struct State {
    depth: usize,
    agents: Vec<Option<AgentSpec>>,
    has_pair_0: bool,
    /// Sent and not taken by the wire yet.
    sent: VecDeque<MadMessage>,
    /// Transaction ids that wait for an answer, with the request's header.
    waiting: Vec<(u64, [u8; MAD_HEADER_LEN])>,
    arrived: VecDeque<MadMessage>,
    timed_out: VecDeque<TimedOut>,
    events: VecDeque<DeviceEvent>,
    broken: bool,
    counters: DeviceCounters,
}

/// The port of a device that is not there.
#[derive(Debug)]
pub struct DeviceLoop {
    state: Arc<Mutex<State>>,
    bell: Arc<OwnedFd>,
}

/// What the port of a [`DeviceLoop`] leads to.
#[derive(Debug, Clone)]
pub struct Wire {
    state: Arc<Mutex<State>>,
    bell: Arc<OwnedFd>,
}

/// Makes a device whose port holds up to `depth` MADs that the wire has not taken; without queue pair 0 it carries no SMPs.
///
/// # Errors
/// No descriptor left.
pub fn device(depth: usize, has_pair_0: bool) -> io::Result<(DeviceLoop, Wire)> {
    let state = Arc::new(Mutex::new(State {
        depth,
        agents: Vec::new(),
        has_pair_0,
        sent: VecDeque::with_capacity(depth),
        waiting: Vec::with_capacity(depth),
        arrived: VecDeque::with_capacity(depth),
        timed_out: VecDeque::new(),
        events: VecDeque::new(),
        broken: false,
        counters: DeviceCounters::default(),
    }));
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    Ok((DeviceLoop { state: state.clone(), bell: bell.clone() }, Wire { state, bell }))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tid(mad: &[u8]) -> u64 {
    mad.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// As the kernel tells answers from requests.
fn is_answer(mad: &[u8]) -> bool {
    mad[3] & 0x80 != 0 || mad[3] == 0x07 || (mad[1] == 0x05 && mad[23] & 1 != 0)
}

impl State {
    fn high(agent: u32) -> u32 {
        FIRST_HIGH + agent
    }

    fn owner(&self, mad: &[u8]) -> Option<u32> {
        let wants = |spec: &AgentSpec| {
            let vendor = (0x30..=0x4f).contains(&spec.class);
            spec.class == mad[1]
                && spec.version == mad[2]
                && spec.methods >> (mad[3] & 0x7f) & 1 == 1
                && (!vendor || spec.oui == mad[37..40])
        };
        let place = self.agents.iter().position(|spec| spec.as_ref().is_some_and(wants))?;
        u32::try_from(place).ok()
    }
}

impl Wire {
    /// Takes what the port has sent, oldest first.
    pub fn take(&self) -> Vec<MadMessage> {
        lock(&self.state).sent.drain(..).collect()
    }

    /// Delivers a MAD to the port as the kernel would; false if nobody there waits for it or has registered for it.
    pub fn deliver(&self, message: &MadMessage) -> bool {
        let mut state = lock(&self.state);
        let mut message = *message;
        let agent = if is_answer(&message.mad) {
            let tid = tid(&message.mad);
            match state.waiting.iter().position(|(waiting, _)| *waiting == tid) {
                Some(place) => drop(state.waiting.remove(place)),
                None if is_rmpp(&message.mad) => {}
                None => return false,
            }
            u32::try_from(tid >> 32).ok().and_then(|high| high.checked_sub(FIRST_HIGH))
        } else {
            state.owner(&message.mad)
        };
        let Some(agent) =
            agent.filter(|agent| state.agents.get(*agent as usize).is_some_and(Option::is_some))
        else {
            return false;
        };
        message.envelope.agent = agent;
        state.arrived.push_back(message);
        self.ring();
        true
    }

    /// Gives up waiting for all answers, as the kernel does after its time.
    pub fn time_out(&self) {
        let mut state = lock(&self.state);
        let waiting = std::mem::take(&mut state.waiting);
        state.counters.timed_out += waiting.len() as u64;
        state.timed_out.extend(waiting.iter().map(|(_, mad)| TimedOut { agent: 0, mad: *mad }));
    }

    /// Tells the port that something happened; [`DeviceEvent::Broken`] stays.
    pub fn happen(&self, event: DeviceEvent) {
        let mut state = lock(&self.state);
        state.broken |= event == DeviceEvent::Broken;
        state.events.push_back(event);
    }

    /// What is registered now.
    pub fn agents(&self) -> Vec<AgentSpec> {
        lock(&self.state).agents.iter().flatten().copied().collect()
    }

    fn ring(&self) {
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }
}

impl MadRx for DeviceLoop {
    fn rx_burst(&mut self, into: &mut [MadMessage]) -> usize {
        let mut state = lock(&self.state);
        let taken = into.len().min(state.arrived.len());
        for (slot, message) in into.iter_mut().zip(state.arrived.drain(..taken)) {
            *slot = message;
        }
        state.counters.received += taken as u64;
        taken
    }

    fn release(&mut self) {}

    fn capabilities(&self) -> Capabilities {
        Capabilities { depth: lock(&self.state).depth, wakes: true, can_sleep: true }
    }
}

impl MadTx for DeviceLoop {
    fn tx_burst(&mut self, from: &[MadMessage]) -> usize {
        let mut state = lock(&self.state);
        let mut given = 0;
        for message in from {
            if state.broken || state.sent.len() >= state.depth {
                break;
            }
            given += 1;
            let agent = message.envelope.agent;
            let mut message = *message;
            if !is_answer(&message.mad) {
                message.mad[8..12].copy_from_slice(&State::high(agent).to_be_bytes());
            }
            let tid = tid(&message.mad);
            let known = state.agents.get(agent as usize).is_some_and(Option::is_some);
            let repeated = !is_rmpp(&message.mad) && state.waiting.iter().any(|(waiting, _)| *waiting == tid);
            if !known || repeated {
                state.counters.refused += 1;
                continue;
            }
            if wants_answer(&message.mad) {
                let mut header = [0; MAD_HEADER_LEN];
                header.copy_from_slice(&message.mad[..MAD_HEADER_LEN]);
                state.waiting.push((tid, header));
            }
            state.counters.sent += 1;
            state.sent.push_back(message);
        }
        given
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        MadRx::capabilities(self)
    }
}

impl MadDevice for DeviceLoop {
    fn backend(&self) -> Backend {
        Backend::Umad
    }

    fn register(&mut self, spec: &AgentSpec) -> io::Result<u32> {
        let refuse = |errno| Err(io::Error::from_raw_os_error(errno));
        let mut state = lock(&self.state);
        if spec.pair == 0 && !state.has_pair_0 {
            return refuse(libc::EPROTONOSUPPORT);
        }
        let collides = |other: &AgentSpec| {
            (other.class, other.version, other.oui) == (spec.class, spec.version, spec.oui)
                && other.methods & spec.methods != 0
        };
        if state.agents.iter().flatten().any(collides) {
            return refuse(libc::EINVAL);
        }
        let place = state.agents.iter().position(Option::is_none).unwrap_or(state.agents.len());
        if place >= MAX_AGENTS {
            return refuse(libc::ENOMEM);
        }
        if place == state.agents.len() {
            state.agents.push(None);
        }
        state.agents[place] = Some(*spec);
        u32::try_from(place).or_else(|_| refuse(libc::ENOMEM))
    }

    fn unregister(&mut self, agent: u32) {
        if let Some(place) = lock(&self.state).agents.get_mut(agent as usize) {
            *place = None;
        }
    }

    fn set_patience(&mut self, _: Duration) {}

    fn timed_out(&mut self) -> Option<TimedOut> {
        lock(&self.state).timed_out.pop_front()
    }

    fn event(&mut self) -> Option<DeviceEvent> {
        let mut state = lock(&self.state);
        if state.broken { Some(DeviceEvent::Broken) } else { state.events.pop_front() }
    }

    fn looks_are_free(&self) -> bool {
        true
    }

    fn waker(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn arm(&mut self) -> bool {
        lock(&self.state).arrived.is_empty()
    }

    fn disarm(&mut self) {}

    fn counters(&self) -> DeviceCounters {
        lock(&self.state).counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mad(class: u8, method: u8, tid: u64) -> MadMessage {
        let mut message = MadMessage::default();
        message.mad[..4].copy_from_slice(&[1, class, 1, method]);
        message.mad[8..16].copy_from_slice(&tid.to_be_bytes());
        message
    }

    #[test]
    fn answers_get_in_once_and_only_while_their_request_waits() {
        let (mut port, wire) = device(4, false).unwrap();
        let agent = port.register(&AgentSpec { pair: 1, ..AgentSpec::default() }).unwrap();
        assert_eq!(port.tx_burst(&[mad(4, 1, 7); 2]), 2);
        let [sent] = wire.take()[..] else { panic!("the second has the same transaction id") };
        assert_eq!(port.counters().refused, 1);
        let mut answer = sent;
        answer.mad[3] |= 0x80;
        assert!(!wire.deliver(&mad(4, 0x81, 7)), "the upper half is not the agent's");
        assert!(wire.deliver(&answer) && !wire.deliver(&answer));
        let mut into = [MadMessage::default(); 2];
        assert_eq!(port.rx_burst(&mut into), 1);
        assert_eq!((into[0].envelope.agent, into[0].mad[15]), (agent, 7));
        port.tx_burst(&[mad(4, 1, 8)]);
        wire.time_out();
        assert_eq!(port.timed_out().map(|late| late.mad[15]), Some(8));
    }

    #[test]
    fn requests_go_to_whom_they_are_registered_for() {
        let (mut port, wire) = device(4, false).unwrap();
        assert_eq!(
            port.register(&AgentSpec::default()).unwrap_err().raw_os_error(),
            Some(libc::EPROTONOSUPPORT)
        );
        let spec = AgentSpec { pair: 1, class: 4, version: 1, methods: 1 << 1, ..AgentSpec::default() };
        let agent = port.register(&spec).unwrap();
        assert_eq!(port.register(&spec).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(wire.deliver(&mad(4, 1, 1)) && !wire.deliver(&mad(4, 2, 1)) && !wire.deliver(&mad(3, 1, 1)));
        port.unregister(agent);
        assert!(!wire.deliver(&mad(4, 1, 1)));
    }
}
