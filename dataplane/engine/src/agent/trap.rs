//! Traps: what a node reports to its SM, repeated until the SM represses it.
//!
//! Part of the shard, same owner and thread. A trap is raised while a packet or event is handled, queued, and sent when
//! that is done. It is repeated with a spacing of 4.096 µs times 2^SubnetTimeout, but never faster than
//! [`MIN_SPACING_NS`], [`SENDS`] times in all, until a TrapRepress with its transaction id arrives. A port keeps at most
//! [`MAX_ACTIVE`] traps; one that says the same as a trap still waiting is not sent beside it, but a change that
//! happened meanwhile is reported again after the repress. Preconditions: the endport is Active and has a LID and an SM
//! LID. Source: sma-behaviour.md section 8, smi-rules.md section 9, mad-format.md section 6.

use crate::agent::SmaOutcome;
use crate::packet::Packet;
use crate::shard::Shard;
use crate::sink::Sink;
use madplane_shm::drop_reason::DropReason;
use madplane_wire::mad::{class, field as mad, method};
use madplane_wire::smp::field as smp;
use madplane_wire::smp::node_info::field as ni;
use madplane_wire::smp::notice::{
    self, bad_key, bad_m_key, bad_p_key_switch, field as head, kind, link_state, local_change, trap,
};
use madplane_wire::smp::port_info::cap_mask;
use madplane_wire::smp::port_info::field as pi;
use madplane_wire::smp::port_info::state;
use madplane_wire::smp::{RETURN_PATH, SMP_DATA, attr};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times a trap is sent when nobody represses it.
pub(crate) const SENDS: u8 = 8;
/// Traps of one port that may wait for their repress.
pub(crate) const MAX_ACTIVE: usize = 16;
/// Shortest spacing of repeats, whatever SubnetTimeout says.
pub(crate) const MIN_SPACING_NS: u64 = 10_000_000;

/// Return path entries that a notice has room for.
const MOST_HOPS: u8 = 30;
const _: () = assert!(MOST_HOPS as usize == notice::BAD_M_KEY_PATH_LEN);

type Notice = [u8; notice::NOTICE_LEN];

/// Which key of a GMP was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyViolation {
    /// Trap 257.
    PKey,
    /// Trap 258.
    QKey,
}

/// Something that happens at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// The M_Key lease of port `at` may end.
    Lease {
        /// Port index.
        at: u32,
    },
    /// Traps of endport `at` are due again.
    Traps {
        /// Port index.
        at: u32,
    },
}

#[derive(Debug)]
struct ActiveTrap {
    tid: u32,
    notice: Notice,
    sends_left: u8,
    /// When it is sent again.
    due_ns: u64,
    /// The same happened again since it was sent.
    again: bool,
}

/// Traps of a shard, and its timers.
#[derive(Debug, Default)]
pub(crate) struct Traps {
    outbox: Vec<(u32, Notice)>,
    active: FxHashMap<u32, Vec<ActiveTrap>>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    /// The entry of `timers` that counts, one per timer: what keeps the heap from growing with every restart.
    armed: FxHashMap<Timer, u64>,
}

impl Traps {
    /// Makes a timer run at `deadline_ns` or, if it is set already, at the earlier of the two; who runs early looks at
    /// its own deadlines and starts the timer again.
    pub(crate) fn start(&mut self, deadline_ns: u64, timer: Timer) {
        if self.armed.get(&timer).is_none_or(|armed| deadline_ns < *armed) {
            self.armed.insert(timer, deadline_ns);
            self.timers.push(Reverse((deadline_ns, timer)));
        }
    }

    /// Takes the next timer that is due.
    fn take_due(&mut self, now_ns: u64) -> Option<Timer> {
        while let Some(Reverse((deadline, timer))) = self.timers.peek().copied() {
            if deadline > now_ns {
                break;
            }
            self.timers.pop();
            if self.armed.get(&timer) == Some(&deadline) {
                self.armed.remove(&timer);
                return Some(timer);
            }
        }
        None
    }

    /// Forgets the traps of the ports of a node.
    pub(crate) fn forget(&mut self, first: u32, num_ports: u8) {
        let ports = first..=first + u32::from(num_ports);
        self.active.retain(|at, _| !ports.contains(at));
    }

    /// Queues a notice unless the same is already queued.
    fn queue(&mut self, at: u32, notice: Notice) {
        if !self.outbox.iter().any(|(port, queued)| *port == at && *queued == notice) {
            self.outbox.push((at, notice));
        }
    }
}

impl Shard {
    /// When [`Shard::run_timers`] has to be called next; it may find nothing to do.
    pub fn next_deadline(&self) -> Option<u64> {
        self.traps.timers.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Repeats traps and ends leases that are due at `now_ns`.
    pub fn run_timers<S: Sink>(&mut self, now_ns: u64, sink: &mut S) {
        while let Some(timer) = self.traps.take_due(now_ns) {
            match timer {
                Timer::Lease { at } => self.lease_timer(now_ns, at),
                Timer::Traps { at } => self.trap_timer(now_ns, at, sink),
            }
        }
        self.flush_traps(now_ns, sink);
    }

    /// Sends the traps that were raised since the last call.
    #[inline(always)]
    pub(crate) fn flush_traps<S: Sink>(&mut self, now_ns: u64, sink: &mut S) {
        if !self.traps.outbox.is_empty() {
            self.send_outbox(now_ns, sink);
        }
    }

    #[cold]
    fn send_outbox<S: Sink>(&mut self, now_ns: u64, sink: &mut S) {
        let mut outbox = std::mem::take(&mut self.traps.outbox);
        for (at, notice) in outbox.drain(..) {
            self.start_trap(now_ns, at, notice, sink);
        }
        // sending a trap changes no state, so nothing was raised meanwhile; keep the allocation
        if self.traps.outbox.is_empty() {
            self.traps.outbox = outbox;
        }
    }

    fn start_trap<S: Sink>(&mut self, now_ns: u64, at: u32, notice: Notice, sink: &mut S) {
        if !self.may_trap(at) {
            return;
        }
        let active = self.traps.active.entry(at).or_default();
        let details = notice::DETAILS..;
        if let Some(same) = active.iter_mut().find(|t| {
            head::TRAP_NUMBER.get(&t.notice) == head::TRAP_NUMBER.get(&notice)
                && t.notice[details.clone()] == notice[details.clone()]
        }) {
            same.again = true;
            return;
        }
        if active.len() >= MAX_ACTIVE {
            sink.dropped(self.name(at).0, DropReason::TrapQueueFull);
            return;
        }
        let node = self.ports.get(at as usize).map_or(u32::MAX, |p| p.node);
        let Some(node) = self.nodes.get_mut(node as usize) else { return };
        node.trap_tid = node.trap_tid.checked_add(1).unwrap_or(1);
        let tid = node.trap_tid;
        active.push(ActiveTrap { tid, notice, sends_left: SENDS, due_ns: now_ns, again: false });
        self.trap_timer(now_ns, at, sink);
    }

    /// Sends the active traps of endport `at` that are due once more, or gives them up.
    fn trap_timer<S: Sink>(&mut self, now_ns: u64, at: u32, sink: &mut S) {
        let Some(cold) = self.cold.get(at as usize) else { return };
        let spacing = (4096_u64 << pi::SUBNET_TIMEOUT.get_u8(&cold.info)).max(MIN_SPACING_NS);
        let mut due: [Option<(u32, Notice)>; MAX_ACTIVE] = [None; MAX_ACTIVE];
        let Some(active) = self.traps.active.get_mut(&at) else { return };
        active.retain(|trap| trap.due_ns > now_ns || trap.sends_left > 0);
        for (trap, slot) in active.iter_mut().filter(|trap| trap.due_ns <= now_ns).zip(&mut due) {
            trap.sends_left -= 1;
            trap.due_ns = now_ns.saturating_add(spacing);
            *slot = Some((trap.tid, trap.notice));
        }
        match active.iter().map(|trap| trap.due_ns).min() {
            Some(next) => self.traps.start(next, Timer::Traps { at }),
            None => {
                self.traps.active.remove(&at);
            }
        }
        if self.may_trap(at) {
            for (tid, notice) in due.into_iter().flatten() {
                self.send_trap(now_ns, at, tid, &notice, sink);
            }
        }
    }

    fn send_trap<S: Sink>(&mut self, now_ns: u64, at: u32, tid: u32, notice: &Notice, sink: &mut S) {
        let Some(cold) = self.cold.get(at as usize) else { return };
        let mut pkt = Packet {
            dlid: pi::MASTER_SM_LID.get_u16(&cold.info),
            sl: pi::MASTER_SM_SL.get_u8(&cold.info),
            ..Packet::default()
        };
        mad::BASE_VERSION.set(&mut pkt.mad, 1);
        mad::MGMT_CLASS.set(&mut pkt.mad, u64::from(class::SUBN_LID));
        mad::CLASS_VERSION.set(&mut pkt.mad, 1);
        mad::METHOD.set(&mut pkt.mad, u64::from(method::TRAP));
        mad::TID.set(&mut pkt.mad, u64::from(tid));
        mad::ATTR_ID.set(&mut pkt.mad, u64::from(attr::NOTICE));
        pkt.mad[SMP_DATA].copy_from_slice(notice);
        self.send_from_agent(now_ns, at, &mut pkt, sink);
    }

    /// TrapRepress for endport `at`: stops the trap with that transaction id; never answered.
    pub(crate) fn trap_repress(&mut self, at: u32, pkt: &Packet) -> SmaOutcome {
        let tid = mad::TID.get(&pkt.mad);
        let unmatched = SmaOutcome::Silent(Some(DropReason::TrapRepressUnmatched));
        let Some(active) = self.traps.active.get_mut(&at) else { return unmatched };
        let Some(index) = active.iter().position(|t| u64::from(t.tid) == tid) else { return unmatched };
        let trap = active.swap_remove(index);
        if active.is_empty() {
            self.traps.active.remove(&at);
        }
        if trap.again
            && matches!(head::TRAP_NUMBER.get_u16(&trap.notice), trap::LINK_STATE_CHANGE | trap::LOCAL_CHANGE)
        {
            self.traps.queue(at, trap.notice);
        }
        SmaOutcome::Silent(None)
    }

    fn may_trap(&self, at: u32) -> bool {
        let (Some(hot), Some(cold)) = (self.ports.get(at as usize), self.cold.get(at as usize)) else {
            return false;
        };
        hot.state == state::ACTIVE && cold.lid != 0 && pi::MASTER_SM_LID.get_u16(&cold.info) != 0
    }

    /// Starts a notice of endport `at`; `None` if the port may not send it.
    fn notice(&self, at: u32, number: u16, kind: u8, capability: u32) -> Option<Notice> {
        let (hot, cold) = (self.ports.get(at as usize)?, self.cold.get(at as usize)?);
        let capabilities = pi::CAP_MASK.get_u32(&cold.info);
        if capabilities & capability != capability || !self.may_trap(at) {
            return None;
        }
        let mut notice = [0; 64];
        head::IS_GENERIC.set(&mut notice, 1);
        head::KIND.set(&mut notice, u64::from(kind));
        head::PRODUCER.set(&mut notice, ni::NODE_TYPE.get(&self.nodes.get(hot.node as usize)?.info));
        head::TRAP_NUMBER.set(&mut notice, u64::from(number));
        head::ISSUER_LID.set(&mut notice, u64::from(cold.lid));
        Some(notice)
    }

    /// Trap 128: an external port of the switch with port 0 at `first` changed its state.
    #[cold]
    pub(crate) fn raise_link_trap(&mut self, first: u32) {
        let Some(mut notice) = self.notice(first, trap::LINK_STATE_CHANGE, kind::URGENT, cap_mask::TRAP)
        else {
            return;
        };
        let lid = head::ISSUER_LID.get(&notice);
        link_state::field::LID.set(&mut notice, lid);
        self.traps.queue(first, notice);
    }

    /// Trap 144: the capability mask changed, or another local attribute that `flags` names.
    #[cold]
    pub(crate) fn raise_change_trap(&mut self, at: u32, flags: u16) {
        let capability = if flags == 0 { cap_mask::CAP_MASK_NOTICE } else { cap_mask::OTHER_LOCAL_CHANGES };
        let Some(mut notice) =
            self.notice(at, trap::LOCAL_CHANGE, kind::INFORMATIONAL, cap_mask::TRAP | capability)
        else {
            return;
        };
        let Some(cold) = self.cold.get(at as usize) else { return };
        local_change::field::LID.set(&mut notice, u64::from(cold.lid));
        local_change::field::OTHER_LOCAL_CHANGES.set(&mut notice, u64::from(flags != 0));
        local_change::field::CAP_MASK.set(&mut notice, pi::CAP_MASK.get(&cold.info));
        local_change::field::CHANGES.set(&mut notice, u64::from(flags));
        local_change::field::CAP_MASK2.set(&mut notice, pi::CAP_MASK2.get(&cold.info));
        self.traps.queue(at, notice);
    }

    /// Trap 256: `pkt` came with a wrong M_Key.
    #[cold]
    pub(crate) fn raise_m_key_trap(&mut self, at: u32, pkt: &Packet) {
        let Some(mut notice) = self.notice(at, trap::BAD_M_KEY, kind::SECURITY, cap_mask::TRAP) else {
            return;
        };
        let n = &mut notice;
        bad_m_key::field::LID.set(n, u64::from(pkt.slid));
        bad_m_key::field::METHOD.set(n, mad::METHOD.get(&pkt.mad));
        bad_m_key::field::ATTR_ID.set(n, mad::ATTR_ID.get(&pkt.mad));
        bad_m_key::field::ATTR_MOD.set(n, mad::ATTR_MOD.get(&pkt.mad));
        bad_m_key::field::M_KEY.set(n, smp::M_KEY.get(&pkt.mad));
        if mad::MGMT_CLASS.get_u8(&pkt.mad) == class::SUBN_DIRECTED {
            let hops = smp::HOP_COUNT.get_u8(&pkt.mad);
            let shown = hops.min(MOST_HOPS);
            bad_m_key::field::DR_SLID.set(n, smp::DR_SLID.get(&pkt.mad));
            bad_m_key::field::DR_NOTICE.set(n, 1);
            bad_m_key::field::PATH_TRUNCATED.set(n, u64::from(hops > shown));
            bad_m_key::field::HOP_COUNT.set(n, u64::from(shown));
            let from = RETURN_PATH + 1;
            let to = bad_m_key::field::RETURN_PATH.byte();
            n[to..to + usize::from(shown)].copy_from_slice(&pkt.mad[from..from + usize::from(shown)]);
        }
        self.traps.queue(at, notice);
    }

    /// Trap 257 or 258: a GMP came with a wrong P_Key or Q_Key.
    #[cold]
    pub(crate) fn raise_key_trap(&mut self, at: u32, kind: KeyViolation, pkt: &Packet) {
        let (number, key) = match kind {
            KeyViolation::PKey => (trap::BAD_P_KEY, u32::from(pkt.p_key)),
            KeyViolation::QKey => (trap::BAD_Q_KEY, pkt.q_key),
        };
        let Some(mut notice) = self.notice(at, number, kind::SECURITY, cap_mask::TRAP) else { return };
        let n = &mut notice;
        bad_key::field::LID1.set(n, u64::from(pkt.slid));
        bad_key::field::LID2.set(n, u64::from(pkt.dlid));
        bad_key::field::KEY.set(n, u64::from(key));
        bad_key::field::SL.set(n, u64::from(pkt.sl));
        bad_key::field::QP1.set(n, u64::from(pkt.src_qp));
        bad_key::field::QP2.set(n, u64::from(pkt.dst_qp));
        self.traps.queue(at, notice);
    }

    /// Trap 259: partition enforcement of external switch port `port` refused a GMP.
    #[cold]
    pub(crate) fn raise_partition_trap(&mut self, port: u32, pkt: &Packet) {
        let at = self.endport(port);
        let Some(mut notice) = self.notice(
            at,
            trap::BAD_P_KEY_SWITCH,
            kind::SECURITY,
            cap_mask::TRAP | cap_mask::PKEY_SW_EXT_PORT_TRAP,
        ) else {
            return;
        };
        let n = &mut notice;
        bad_p_key_switch::field::LID1.set(n, u64::from(pkt.slid));
        bad_p_key_switch::field::LID2.set(n, u64::from(pkt.dlid));
        bad_p_key_switch::field::P_KEY.set(n, u64::from(pkt.p_key));
        bad_p_key_switch::field::SL.set(n, u64::from(pkt.sl));
        bad_p_key_switch::field::QP1.set(n, u64::from(pkt.src_qp));
        bad_p_key_switch::field::QP2.set(n, u64::from(pkt.dst_qp));
        let lid = head::ISSUER_LID.get(n);
        bad_p_key_switch::field::SWITCH_LID.set(n, lid);
        bad_p_key_switch::field::PORT.set(n, u64::from(port - at));
        self.traps.queue(at, notice);
    }
}
