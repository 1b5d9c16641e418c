//! RDMA devices as their worker knows them: what leaves by them, and what they bring.
//!
//! Owned by a worker. A device's port is a place to which sessions attach, with a node number of its own behind those of the fabric
//! ([`FIRST_DEVICE_NODE`]), so that agents, tenants and rings are those of every session; nothing of the fabric is seen there, and nobody of
//! the fabric sees it. A [`DeviceEnd`] is opened by housekeeping (`attach/devices.rs`), comes by an order and goes back by its report; here
//! nothing is opened or closed, and nothing is allocated for a MAD.
//!
//! All requests leave by one agent of the kernel's for each queue pair: the kernel writes the upper half of their transaction ids, and the
//! lower half says which request of which session it was ([`transactions`]). Requests from outside come in by agents that are
//! registered as sessions register theirs. On Ethernet the other ends have LIDs of ours ([`neighbours`]). An LID-routed SMP for whose LIDs there is a pinned route leaves along it ([`turning`]).

pub mod neighbours;
pub mod transactions;
pub mod turning;

use std::time::Duration;

use madplane_engine::{NodeId, Packet, Shard, Sink, right};
use madplane_port::MadMessage;
use madplane_port::device::{DeviceSpec, PortIdentity};
use madplane_port::opened::{DeviceEvent, MadDevice, TICK};
use madplane_port::umad_dev::AgentSpec as KernelAgent;
use madplane_port::umad_dev::port::{is_rmpp, wants_answer};
use madplane_shm::counters::Counter;
use madplane_shm::drop_reason::DropReason;
use madplane_shm::message::MAD_LEN;
use madplane_shm::status::{DeviceRecord, MAX_DEVICES, device_flag};
use madplane_shm::sync::Ordering;
use madplane_wire::Mad;
use madplane_wire::mad::{GSI_Q_KEY, class, is_smp_class, is_vendor2, method};
use madplane_wire::smp::PERMISSIVE_LID;
use madplane_wire::smp::mft::FIRST_MLID;

use crate::agents::{AgentId, AgentSpec, RegisterError};
use crate::egress::{Egress, envelope_of, grh_of};
use crate::telemetry::Counts;
use neighbours::Neighbours;
use transactions::{Transactions, Whose};

/// Node numbers from here on are devices; no fabric has as many nodes.
pub const FIRST_DEVICE_NODE: NodeId = 0xFFFF_FF00;
/// How long the kernel waits for the answer to a request. Sessions have time-outs of their own; what comes later than this is lost to them.
pub const PATIENCE: Duration = Duration::from_secs(8);
/// Longer than that by what the kernel may be late.
const PATIENCE_NS: u64 = 8_500_000_000;
/// Time between two looks that cost a system call and find nothing.
const LOOK_NS: u64 = 20_000;
const TICK_NS: u64 = TICK.subsec_nanos() as u64;
/// Events taken from a device in one tick.
const EVENTS_PER_TICK: usize = 16;
/// errno of the kernel for a queue pair that a device does not have.
const EPROTONOSUPPORT: i32 = rustix::io::Errno::PROTONOSUPPORT.raw_os_error();

const _: () = assert!(MAX_DEVICES <= 0xFF);

/// The node number of a device.
pub fn node_of(number: usize) -> NodeId {
    FIRST_DEVICE_NODE + NodeId::try_from(number).unwrap_or(0xFF)
}

/// The device with this node number, if it is one.
pub fn number_of(node: NodeId) -> Option<usize> {
    node.checked_sub(FIRST_DEVICE_NODE).and_then(|number| usize::try_from(number).ok())
}

/// Whether the node is a device.
#[inline]
pub const fn is_device(node: NodeId) -> bool {
    node >= FIRST_DEVICE_NODE
}

/// An open port of a device.
#[derive(Debug)]
pub struct DeviceEnd {
    number: usize,
    port: u8,
    device: Box<dyn MadDevice>,
    identity: PortIdentity,
    /// Agents by which everything is sent.
    gmp_agent: u32,
    smp_agent: Option<u32>,
    /// Agents of sessions that take requests, by the kernel's number.
    registered: Vec<(AgentId, u32)>,
    transactions: Transactions,
    neighbours: Neighbours,
    /// What is sent with the next burst, and the lower half of the transaction id that was given to it.
    outgoing: Vec<(MadMessage, Option<u32>)>,
    messages: Vec<MadMessage>,
    look_at_ns: u64,
    tick_at_ns: u64,
    flags: u32,
    pinned: u64,
}

impl DeviceEnd {
    /// Takes an open port on, with whatever it needs to be served.
    ///
    /// # Errors
    /// Why the kernel gives no agent to send by.
    pub fn new(
        number: usize,
        spec: &DeviceSpec,
        mut device: Box<dyn MadDevice>,
        identity: PortIdentity,
    ) -> std::io::Result<Self> {
        device.set_patience(PATIENCE);
        let gmp_agent = device.register(&KernelAgent { pair: 1, ..KernelAgent::default() })?;
        let smp_agent = device.register(&KernelAgent::default()).ok();
        Ok(Self {
            number,
            port: spec.port(),
            device,
            identity,
            gmp_agent,
            smp_agent,
            registered: Vec::new(),
            transactions: Transactions::default(),
            neighbours: Neighbours::new(spec.peers(), spec.gid_index()),
            outgoing: Vec::with_capacity(256),
            messages: vec![MadMessage::default(); 256],
            look_at_ns: 0,
            tick_at_ns: 0,
            flags: 0,
            pinned: 0,
        })
    }

    /// Its number, that of its record.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The place at which its sessions are.
    pub fn place(&self) -> (NodeId, u8) {
        (node_of(self.number), self.port)
    }

    /// The port itself, to wait for it.
    pub fn device(&self) -> &dyn MadDevice {
        &*self.device
    }

    /// What the kernel says of the port, as far as this worker was told.
    pub fn identity(&self) -> &PortIdentity {
        &self.identity
    }

    /// Takes over what the kernel says of the port now.
    pub fn readdress(&mut self, identity: PortIdentity) {
        self.identity = identity;
    }

    /// Has requests for an agent of a session come in. A call to the system.
    ///
    /// # Errors
    /// As the kernel refuses.
    pub fn register(&mut self, id: AgentId, spec: &AgentSpec) -> Result<(), RegisterError> {
        let refused =
            |errno: Option<i32>| RegisterError::Kernel { class: spec.mgmt_class, errno: errno.unwrap_or(0) };
        if spec.qpn == 0 && self.smp_agent.is_none() {
            return Err(refused(Some(EPROTONOSUPPORT)));
        }
        if !spec.wants_requests() {
            return Ok(());
        }
        let [low, high] = spec.method_mask;
        let [_, oui @ ..] = spec.oui.to_be_bytes();
        let wanted = KernelAgent {
            pair: spec.qpn,
            class: spec.mgmt_class,
            version: spec.class_version,
            methods: u128::from(high) << 64 | u128::from(low),
            oui: if is_vendor2(spec.mgmt_class) { oui } else { [0; 3] },
            kernel_rmpp: false,
        };
        let agent = self.device.register(&wanted).map_err(|error| refused(error.raw_os_error()))?;
        self.registered.push((id, agent));
        Ok(())
    }

    /// Has them come in no longer.
    pub fn unregister(&mut self, id: AgentId) {
        if let Some(place) = self.registered.iter().position(|(other, _)| *other == id) {
            let (_, agent) = self.registered.swap_remove(place);
            self.device.unregister(agent);
        }
    }

    /// Has requests for all agents of a session come in no longer.
    pub fn unregister_session(&mut self, slot: u32, generation: u32) {
        let of_it = |id: AgentId| (id.slot, id.generation) == (slot, generation);
        while let Some((id, _)) = self.registered.iter().copied().find(|(id, _)| of_it(*id)) {
            self.unregister(id);
        }
    }

    /// Puts what the session's agent `id` sends into the burst that [`DeviceEnd::give`] hands over.
    ///
    /// # Errors
    /// Why it is dropped instead.
    pub fn send(
        &mut self,
        id: AgentId,
        pkt: &mut Packet,
        now_ns: u64,
        shard: &Shard,
        egress: &mut Egress,
    ) -> Result<(), DropReason> {
        let mad = Mad::new(&pkt.mad);
        let (mgmt_class, answer) = (mad.mgmt_class(), mad.is_response());
        let smp = is_smp_class(mgmt_class);
        if mad.base_version() != 1 {
            return Err(DropReason::BaseVersion);
        }
        if smp != (pkt.dst_qp == 0) {
            return Err(DropReason::ClassQp);
        }
        // only a fabric of our own could ask its node
        if pkt.rights & right::CHECK_NODE != 0 {
            return Err(DropReason::TenantScope);
        }
        let agent = if smp { self.smp_agent.ok_or(DropReason::DeviceSmp)? } else { self.gmp_agent };
        if pkt.rights & right::AS_LIMITED != 0 {
            pkt.p_key_index = self.as_limited(pkt.p_key_index).ok_or(DropReason::TenantPKey)?;
        }
        let by_lid = self.identity.ethernet && pkt.grh.is_none();
        if by_lid {
            pkt.grh = Some(self.neighbours.header(pkt.dlid).ok_or(DropReason::DeviceAddress)?);
        }
        if !smp && pkt.q_key == 0 {
            // who answers is not told the key of the request
            pkt.q_key = GSI_Q_KEY;
        }
        let turned = if mgmt_class == class::SUBN_LID { self.turn(pkt, shard, egress) } else { 0 };
        let whose = Whose { agent: id.hi_tid(), low: 0, turned, by_lid };
        let low = if answer { None } else { self.count_request(whose, &mut pkt.mad, now_ns)? };
        let mut envelope = envelope_of(agent, pkt);
        if turned != 0 {
            (envelope.slid, envelope.dlid) = (PERMISSIVE_LID, PERMISSIVE_LID);
        }
        self.outgoing.push((MadMessage { envelope, mad: pkt.mad }, low));
        Ok(())
    }

    /// Gives a request its transaction id, and remembers whose it is; the lower half if it is new.
    fn count_request(
        &mut self,
        whose: Whose,
        mad: &mut [u8; MAD_LEN],
        now_ns: u64,
    ) -> Result<Option<u32>, DropReason> {
        const DATA: u8 = 1;
        let rmpp = is_rmpp(mad);
        let own = u32::from_be_bytes([mad[12], mad[13], mad[14], mad[15]]);
        let whose = Whose { low: own, ..whose };
        let known = if rmpp { self.transactions.find(whose.agent, own, now_ns) } else { None };
        let (low, new) = match known {
            Some(low) => (low, None),
            None if wants_answer(mad) || (rmpp && mad[25] == DATA) => {
                let low = self.transactions.open(whose, now_ns, PATIENCE_NS);
                let low = low.ok_or(DropReason::DeviceRequests)?;
                (low, Some(low))
            }
            // nobody answers it
            None => (own, None),
        };
        mad[12..16].copy_from_slice(&low.to_be_bytes());
        Ok(new)
    }

    /// Turns a request that is routed by LIDs into one along the pinned route of its LIDs, or of its sender's own; its LID, 0 if it stays as
    /// it is.
    fn turn(&mut self, pkt: &mut Packet, shard: &Shard, egress: &mut Egress) -> u16 {
        let method = Mad::new(&pkt.mad).method();
        let dlid = pkt.dlid;
        let mask = !0 << (self.identity.lmc & 7);
        let own = self.identity.lid;
        if !matches!(method, method::GET | method::SET)
            || !(1..FIRST_MLID).contains(&dlid)
            || dlid & mask == own
        {
            return 0;
        }
        pkt.slid = own | (u16::from(pkt.path_bits) & !mask);
        let Some((index, path)) = shard.path_of(pkt) else { return 0 };
        turning::to_directed(&mut pkt.mad, path);
        if let Some(index) = index {
            egress.route_used(index, 256);
        }
        egress.counts.add(Counter::DevicePinned, 1);
        self.pinned += 1;
        dlid
    }

    /// Index of the limited key of the partition whose key is at `index`.
    fn as_limited(&self, index: u16) -> Option<u16> {
        const FULL: u16 = 0x8000;
        let key = self.identity.p_key(index)?;
        if key & FULL == 0 {
            return Some(index);
        }
        let place = self.identity.p_keys.iter().position(|other| *other == key & !FULL)?;
        u16::try_from(place).ok()
    }

    /// Hands the burst over; what finds no room is dropped.
    pub fn give(&mut self, counts: &mut Counts) {
        let Some(burst) = self.messages.get_mut(..self.outgoing.len()) else { return };
        for (place, (message, _)) in burst.iter_mut().zip(&self.outgoing) {
            *place = *message;
        }
        let given = self.device.tx_burst(burst);
        for (_, low) in self.outgoing.drain(..).skip(given) {
            counts.drop(DropReason::DeviceFull);
            if let Some(low) = low {
                self.transactions.forget(low);
            }
        }
        counts.add(Counter::DeviceSent, given as u64);
        if self.device.flush() {
            counts.add(Counter::DoorbellsRung, 1);
        }
    }

    /// Takes up to `most` MADs from the device and gives them to sessions; how many there were.
    fn receive(&mut self, most: usize, now_ns: u64, egress: &mut Egress) -> usize {
        if now_ns < self.look_at_ns {
            return 0;
        }
        let most = most.min(self.messages.len());
        let mut messages = std::mem::take(&mut self.messages);
        let count = self.device.rx_burst(&mut messages[..most]);
        for message in &messages[..count] {
            if let Err(reason) = self.deliver(message, now_ns, egress) {
                egress.counts.drop(reason);
            }
        }
        self.messages = messages;
        if count > 0 {
            self.device.release();
            egress.counts.add(Counter::DeviceReceived, count as u64);
        }
        if count < most && !self.device.looks_are_free() {
            self.look_at_ns = now_ns + LOOK_NS;
        }
        count
    }

    fn deliver(&mut self, message: &MadMessage, now_ns: u64, egress: &mut Egress) -> Result<(), DropReason> {
        let mut pkt = packet_from(message);
        pkt.p_key = self.identity.p_key(pkt.p_key_index).unwrap_or(0);
        if self.identity.ethernet
            && pkt.slid == 0
            && let Some(grh) = &pkt.grh
        {
            pkt.slid = self.neighbours.lid_of(&grh.gid);
        }
        let answer = Mad::new(&pkt.mad).is_response();
        if answer {
            let [.., a, b, c, d] = Mad::new(&pkt.mad).tid().to_be_bytes();
            let stays = is_rmpp(&pkt.mad);
            let whose = self.transactions.close(u32::from_be_bytes([a, b, c, d]), stays, now_ns, PATIENCE_NS);
            let whose = whose.ok_or(DropReason::DeviceUnmatched)?;
            pkt.mad[8..12].copy_from_slice(&whose.agent.to_be_bytes());
            pkt.mad[12..16].copy_from_slice(&whose.low.to_be_bytes());
            if whose.by_lid {
                pkt.grh = None;
            }
            if whose.turned != 0 {
                if !turning::to_lid_routed(&mut pkt.mad) {
                    return Err(DropReason::Malformed);
                }
                (pkt.slid, pkt.dlid) = (whose.turned, self.identity.lid);
            }
        }
        let (node, port) = self.place();
        match egress.deliver(node, port, &pkt) {
            true => Ok(()),
            false if answer => Err(DropReason::DeviceUnmatched),
            false => Err(DropReason::NoAgent),
        }
    }

    /// Looks at what is due by time: requests that timed out, and what the device says of itself.
    fn tick(&mut self, now_ns: u64, counts: &mut Counts) -> usize {
        if now_ns < self.tick_at_ns {
            return 0;
        }
        self.tick_at_ns = now_ns + TICK_NS;
        self.transactions.sweep(now_ns);
        while let Some(late) = self.device.timed_out() {
            counts.add(Counter::DeviceTimedOut, 1);
            self.transactions.forget(u32::from_be_bytes([
                late.mad[12],
                late.mad[13],
                late.mad[14],
                late.mad[15],
            ]));
        }
        let before = self.flags;
        for _ in 0..EVENTS_PER_TICK {
            match self.device.event() {
                Some(DeviceEvent::Up) => self.flags &= !device_flag::DOWN,
                Some(DeviceEvent::Down) => self.flags |= device_flag::DOWN,
                Some(DeviceEvent::Broken) => {
                    self.flags |= device_flag::BROKEN;
                    break;
                }
                Some(DeviceEvent::Readdressed) => {}
                None => break,
            }
        }
        usize::from(self.flags != before)
    }

    /// Shows how it stands.
    pub fn show(&self, record: &DeviceRecord) {
        let counted = self.device.counters();
        record.flags.store(self.flags, Ordering::Relaxed);
        for (word, value) in [
            (&record.sent, counted.sent),
            (&record.received, counted.received),
            (&record.timed_out, counted.timed_out),
            (&record.refused, counted.refused),
            (&record.pinned, self.pinned),
            (&record.requests, self.transactions.open_count()),
        ] {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// The devices of one worker.
#[derive(Debug, Default)]
pub struct Devices {
    ends: Vec<DeviceEnd>,
}

impl Devices {
    /// Whether there is none, which is the rule.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &DeviceEnd> {
        self.ends.iter()
    }

    /// The device at which a session sits, if it is open.
    pub fn at(&mut self, node: NodeId) -> Option<&mut DeviceEnd> {
        let number = number_of(node)?;
        self.ends.iter_mut().find(|end| end.number == number)
    }

    /// Takes a device on.
    pub fn add(&mut self, end: DeviceEnd) {
        debug_assert!(
            self.ends.iter().all(|other| other.number != end.number),
            "housekeeping gives each once"
        );
        self.ends.push(end);
    }

    /// Gives a device up.
    pub fn remove(&mut self, number: usize) -> Option<DeviceEnd> {
        let place = self.ends.iter().position(|end| end.number == number)?;
        Some(self.ends.swap_remove(place))
    }

    /// Takes what the devices have, from each up to `most`; how much there was.
    pub fn poll(&mut self, most: usize, now_ns: u64, egress: &mut Egress) -> usize {
        let one =
            |end: &mut DeviceEnd| end.receive(most, now_ns, egress) + end.tick(now_ns, &mut egress.counts);
        self.ends.iter_mut().map(one).sum()
    }

    /// Says that the worker is about to sleep; false if something has come meanwhile.
    pub fn arm(&mut self) -> bool {
        let mut quiet = true;
        for end in &mut self.ends {
            // every one of them, whatever the others say
            quiet &= end.device.arm();
        }
        quiet
    }

    /// Says that the worker is awake: whatever woke it is to be looked for.
    pub fn disarm(&mut self) {
        for end in &mut self.ends {
            end.device.disarm();
            end.look_at_ns = 0;
        }
    }
}

/// What came from a device, as a session is given it.
fn packet_from(message: &MadMessage) -> Packet {
    let envelope = &message.envelope;
    Packet {
        mad: message.mad,
        slid: envelope.slid,
        dlid: envelope.dlid,
        sl: envelope.sl & 0xF,
        path_bits: envelope.path_bits,
        src_qp: envelope.src_qp,
        dst_qp: envelope.dst_qp,
        q_key: envelope.q_key,
        p_key_index: envelope.p_key_index,
        grh: grh_of(envelope),
        ..Packet::default()
    }
}
