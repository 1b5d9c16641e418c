//! Traps: what a node reports to its SM, repeated until the SM represses it.
//!
//! Part of the shard, same owner and thread. A trap is raised while a packet or event is handled, queued, and sent when
//! that is done. It is repeated with a spacing of 4.096 µs times 2^SubnetTimeout, but never faster than
//! [`MIN_SPACING_NS`], [`SENDS`] times in all, until a TrapRepress with its transaction id arrives. A port keeps at most
//! [`MAX_ACTIVE`] traps; one that says the same as a trap still waiting is not sent beside it, but a change that
//! happened meanwhile is reported again after the repress. Preconditions: the endport is Active and has a LID and an SM
//! LID. Source: sma-behaviour.md section 8, smi-rules.md section 9, mad-format.md section 6.

use crate::agent::SmaOutcome;
use crate::field::{Field, mad, ni, pi};
use crate::node::state;
use crate::packet::Packet;
use crate::shard::{Shard, method};
use crate::sink::Sink;
use crate::smi::{self, CLASS_DIRECTED, DR_SLID, HOP_COUNT, RETURN_PATH};
use madplane_shm::drop_reason::DropReason;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times a trap is sent when nobody represses it.
pub(crate) const SENDS: u8 = 8;
/// Traps of one port that may wait for their repress.
pub(crate) const MAX_ACTIVE: usize = 16;
/// Shortest spacing of repeats, whatever SubnetTimeout says.
pub(crate) const MIN_SPACING_NS: u64 = 10_000_000;

/// Capability bits that allow the traps.
const CAN_TRAP: u64 = 1 << 3;
const CAN_REPORT_EXTERNAL_P_KEY: u64 = 1 << 12;
const CAN_REPORT_CAPABILITY: u64 = 1 << 22;
const CAN_REPORT_OTHER_CHANGES: u64 = 1 << 26;

const NOTICE: u64 = 0x0002;

/// Fields of the notice attribute.
mod notice {
    use super::Field;
    pub(super) const IS_GENERIC: Field = Field::bits(0, 7, 7);
    pub(super) const TYPE: Field = Field::bits(0, 6, 0);
    pub(super) const PRODUCER: Field = Field::whole(1, 24);
    pub(super) const NUMBER: Field = Field::whole(4, 16);
    pub(super) const ISSUER_LID: Field = Field::whole(6, 16);
    pub(super) const DETAILS: usize = 10;

    pub(super) const LINK_LID: Field = Field::whole(10, 16);
    pub(super) const LID: Field = Field::whole(12, 16);

    pub(super) const OTHER_CHANGES: Field = Field::bits(15, 0, 0);
    pub(super) const CAPABILITY_MASK: Field = Field::whole(16, 32);
    pub(super) const CHANGE_FLAGS: Field = Field::whole(20, 16);
    pub(super) const CAPABILITY_MASK2: Field = Field::whole(22, 16);

    pub(super) const DR_SLID: Field = Field::whole(14, 16);
    pub(super) const METHOD: Field = Field::whole(16, 8);
    pub(super) const ATTRIBUTE: Field = Field::whole(18, 16);
    pub(super) const MODIFIER: Field = Field::whole(20, 32);
    pub(super) const M_KEY: Field = Field::whole(24, 64);
    pub(super) const DR_NOTICE: Field = Field::bits(33, 7, 7);
    pub(super) const PATH_TRUNCATED: Field = Field::bits(33, 6, 6);
    pub(super) const PATH_HOPS: Field = Field::bits(33, 5, 0);
    pub(super) const PATH: usize = 34;

    pub(super) const LID2: Field = Field::whole(14, 16);
    pub(super) const KEY: Field = Field::whole(16, 32);
    pub(super) const SL: Field = Field::bits(20, 31, 28);
    pub(super) const QP1: Field = Field::bits(20, 23, 0);
    pub(super) const QP2: Field = Field::bits(24, 23, 0);

    pub(super) const P_KEY: Field = Field::whole(16, 16);
    pub(super) const SWITCH_SL: Field = Field::bits(18, 31, 28);
    pub(super) const SWITCH_QP1: Field = Field::bits(18, 23, 0);
    pub(super) const SWITCH_QP2: Field = Field::bits(22, 23, 0);
    pub(super) const SWITCH_LID: Field = Field::whole(58, 16);
    pub(super) const SWITCH_PORT: Field = Field::whole(60, 8);
}

type Notice = [u8; 64];

/// Which key of a GMP was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyViolation {
    /// Trap 257.
    PKey,
    /// Trap 258.
    QKey,
}

/// Something that happens at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The M_Key lease of port `at` may end.
    Lease {
        /// Port index.
        at: u32,
    },
    /// A trap of endport `at` is due again.
    Trap {
        /// Port index.
        at: u32,
        /// Transaction id.
        tid: u32,
    },
}

#[derive(Debug)]
struct ActiveTrap {
    tid: u32,
    notice: Notice,
    sends_left: u8,
    /// The same happened again since it was sent.
    again: bool,
}

/// Traps of a shard, and its timers.
#[derive(Debug, Default)]
pub(crate) struct Traps {
    outbox: Vec<(u32, Notice)>,
    active: FxHashMap<u32, Vec<ActiveTrap>>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
}

impl Traps {
    /// Starts a timer.
    pub(crate) fn start(&mut self, deadline_ns: u64, timer: Timer) {
        self.timers.push(Reverse((deadline_ns, timer)));
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
        while let Some(Reverse((deadline, timer))) = self.traps.timers.peek().copied() {
            if deadline > now_ns {
                break;
            }
            self.traps.timers.pop();
            match timer {
                Timer::Lease { at } => self.lease_timer(now_ns, at),
                Timer::Trap { at, tid } => self.trap_timer(now_ns, at, tid, sink),
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
            notice::NUMBER.get(&t.notice) == notice::NUMBER.get(&notice)
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
        active.push(ActiveTrap { tid, notice, sends_left: SENDS, again: false });
        self.trap_timer(now_ns, at, tid, sink);
    }

    /// Sends an active trap once more, or gives it up.
    fn trap_timer<S: Sink>(&mut self, now_ns: u64, at: u32, tid: u32, sink: &mut S) {
        let Some(active) = self.traps.active.get_mut(&at) else { return };
        let Some(index) = active.iter().position(|t| t.tid == tid) else { return };
        let Some(trap) = active.get_mut(index).filter(|t| t.sends_left > 0) else {
            active.swap_remove(index);
            return;
        };
        trap.sends_left -= 1;
        let notice = trap.notice;
        let Some(cold) = self.cold.get(at as usize) else { return };
        let spacing = (4096_u64 << pi::SUBNET_TIMEOUT.get_u8(&cold.info)).max(MIN_SPACING_NS);
        self.traps.start(now_ns.saturating_add(spacing), Timer::Trap { at, tid });
        if self.may_trap(at) {
            self.send_trap(now_ns, at, tid, &notice, sink);
        }
    }

    fn send_trap<S: Sink>(&mut self, now_ns: u64, at: u32, tid: u32, notice: &Notice, sink: &mut S) {
        let Some(cold) = self.cold.get(at as usize) else { return };
        let mut pkt = Packet {
            dlid: pi::SM_LID.get_u16(&cold.info),
            sl: pi::SM_SL.get_u8(&cold.info),
            ..Packet::default()
        };
        mad::BASE_VERSION.set(&mut pkt.mad, 1);
        mad::MGMT_CLASS.set(&mut pkt.mad, u64::from(smi::CLASS_LID));
        mad::CLASS_VERSION.set(&mut pkt.mad, 1);
        mad::METHOD.set(&mut pkt.mad, u64::from(method::TRAP));
        mad::TID.set(&mut pkt.mad, u64::from(tid));
        mad::ATTRIBUTE.set(&mut pkt.mad, NOTICE);
        pkt.mad[64..128].copy_from_slice(notice);
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
        if trap.again && matches!(notice::NUMBER.get(&trap.notice), 128 | 144) {
            self.traps.queue(at, trap.notice);
        }
        SmaOutcome::Silent(None)
    }

    fn may_trap(&self, at: u32) -> bool {
        let (Some(hot), Some(cold)) = (self.ports.get(at as usize), self.cold.get(at as usize)) else {
            return false;
        };
        hot.state == state::ACTIVE && cold.lid != 0 && pi::SM_LID.get_u16(&cold.info) != 0
    }

    /// Starts a notice of endport `at`; `None` if the port may not send it.
    fn notice(&self, at: u32, number: u64, kind: u64, capability: u64) -> Option<Notice> {
        let (hot, cold) = (self.ports.get(at as usize)?, self.cold.get(at as usize)?);
        let capabilities = pi::CAPABILITY_MASK.get(&cold.info);
        if capabilities & capability != capability || !self.may_trap(at) {
            return None;
        }
        let mut notice = [0; 64];
        notice::IS_GENERIC.set(&mut notice, 1);
        notice::TYPE.set(&mut notice, kind);
        notice::PRODUCER.set(&mut notice, ni::NODE_TYPE.get(&self.nodes.get(hot.node as usize)?.info));
        notice::NUMBER.set(&mut notice, number);
        notice::ISSUER_LID.set(&mut notice, u64::from(cold.lid));
        Some(notice)
    }

    /// Trap 128: an external port of the switch with port 0 at `first` changed its state.
    #[cold]
    pub(crate) fn raise_link_trap(&mut self, first: u32) {
        let Some(mut notice) = self.notice(first, 128, 1, CAN_TRAP) else { return };
        let lid = notice::ISSUER_LID.get(&notice);
        notice::LINK_LID.set(&mut notice, lid);
        self.traps.queue(first, notice);
    }

    /// Trap 144: the capability mask changed, or another local attribute that `flags` names.
    #[cold]
    pub(crate) fn raise_change_trap(&mut self, at: u32, flags: u16) {
        let capability = if flags == 0 { CAN_REPORT_CAPABILITY } else { CAN_REPORT_OTHER_CHANGES };
        let Some(mut notice) = self.notice(at, 144, 4, CAN_TRAP | capability) else { return };
        let Some(cold) = self.cold.get(at as usize) else { return };
        notice::LID.set(&mut notice, u64::from(cold.lid));
        notice::OTHER_CHANGES.set(&mut notice, u64::from(flags != 0));
        notice::CAPABILITY_MASK.set(&mut notice, pi::CAPABILITY_MASK.get(&cold.info));
        notice::CHANGE_FLAGS.set(&mut notice, u64::from(flags));
        notice::CAPABILITY_MASK2.set(&mut notice, pi::CAPABILITY_MASK2.get(&cold.info));
        self.traps.queue(at, notice);
    }

    /// Trap 256: `pkt` came with a wrong M_Key.
    #[cold]
    pub(crate) fn raise_m_key_trap(&mut self, at: u32, pkt: &Packet) {
        let Some(mut notice) = self.notice(at, 256, 2, CAN_TRAP) else { return };
        let n = &mut notice;
        notice::LID.set(n, u64::from(pkt.slid));
        notice::METHOD.set(n, mad::METHOD.get(&pkt.mad));
        notice::ATTRIBUTE.set(n, mad::ATTRIBUTE.get(&pkt.mad));
        notice::MODIFIER.set(n, mad::MODIFIER.get(&pkt.mad));
        notice::M_KEY.set(n, mad::M_KEY.get(&pkt.mad));
        if mad::MGMT_CLASS.get_u8(&pkt.mad) == CLASS_DIRECTED {
            let hops = pkt.mad[HOP_COUNT];
            let shown = hops.min(30);
            notice::DR_SLID.set(n, u64::from(u16::from_be_bytes([pkt.mad[DR_SLID], pkt.mad[DR_SLID + 1]])));
            notice::DR_NOTICE.set(n, 1);
            notice::PATH_TRUNCATED.set(n, u64::from(hops > shown));
            notice::PATH_HOPS.set(n, u64::from(shown));
            let from = RETURN_PATH + 1;
            n[notice::PATH..notice::PATH + usize::from(shown)]
                .copy_from_slice(&pkt.mad[from..from + usize::from(shown)]);
        }
        self.traps.queue(at, notice);
    }

    /// Trap 257 or 258: a GMP came with a wrong P_Key or Q_Key.
    #[cold]
    pub(crate) fn raise_key_trap(&mut self, at: u32, kind: KeyViolation, pkt: &Packet) {
        let (number, key) = match kind {
            KeyViolation::PKey => (257, u32::from(pkt.p_key)),
            KeyViolation::QKey => (258, pkt.q_key),
        };
        let Some(mut notice) = self.notice(at, number, 2, CAN_TRAP) else { return };
        let n = &mut notice;
        notice::LID.set(n, u64::from(pkt.slid));
        notice::LID2.set(n, u64::from(pkt.dlid));
        notice::KEY.set(n, u64::from(key));
        notice::SL.set(n, u64::from(pkt.sl));
        notice::QP1.set(n, u64::from(pkt.src_qp));
        notice::QP2.set(n, u64::from(pkt.dst_qp));
        self.traps.queue(at, notice);
    }

    /// Trap 259: partition enforcement of external switch port `port` refused a GMP.
    #[cold]
    pub(crate) fn raise_partition_trap(&mut self, port: u32, pkt: &Packet) {
        let at = self.endport(port);
        let Some(mut notice) = self.notice(at, 259, 2, CAN_TRAP | CAN_REPORT_EXTERNAL_P_KEY) else { return };
        let n = &mut notice;
        notice::LID.set(n, u64::from(pkt.slid));
        notice::LID2.set(n, u64::from(pkt.dlid));
        notice::P_KEY.set(n, u64::from(pkt.p_key));
        notice::SWITCH_SL.set(n, u64::from(pkt.sl));
        notice::SWITCH_QP1.set(n, u64::from(pkt.src_qp));
        notice::SWITCH_QP2.set(n, u64::from(pkt.dst_qp));
        let lid = notice::ISSUER_LID.get(n);
        notice::SWITCH_LID.set(n, lid);
        notice::SWITCH_PORT.set(n, u64::from(port - at));
        self.traps.queue(at, notice);
    }
}
