//! The block tables: GUIDInfo, P_Key, SLtoVL, VL arbitration, linear and multicast forwarding.
//!
//! Part of the shard, same owner and thread. A table that was never written costs no memory and reads as its default.
//! Invariant: entries beyond a capacity are never stored and read 0 (255 in the forwarding table).

use super::{Data, Request};
use crate::node::{
    DEFAULT_P_KEYS, DEFAULT_SL_TO_VL, GUID_CAP, LINEAR_FDB_CAP, MULTICAST_FDB_CAP, P_KEY_CAP, VL_ARB_CAP,
};
use crate::shard::Shard;
use crate::sink::Sink;
use madplane_wire::mad::status;
use madplane_wire::smp::port_info::field as pi;

impl Shard {
    pub(super) fn guid_info(&mut self, request: &Request, data: &mut Data) -> u16 {
        let at = self.endport(request.at);
        let Some(cold) = self.cold.get_mut(at as usize) else { return status::INVALID_FIELD };
        let cap = usize::from(pi::GUID_CAP.get_u8(&cold.info)).min(GUID_CAP);
        let Some(block) = block_of(request.modifier, cap.div_ceil(8)) else { return status::INVALID_FIELD };
        let own = cold.guid;
        let entries = |index: usize| (block * 8 + index < cap).then_some(block * 8 + index);
        if request.is_set {
            let table = cold.tables_mut().guids.get_or_insert_with(|| Box::new([0; GUID_CAP]));
            for (index, bytes) in data.as_chunks::<8>().0.iter().enumerate() {
                if let Some(slot) = entries(index).and_then(|at| table.get_mut(at)) {
                    *slot = u64::from_be_bytes(*bytes);
                }
            }
        }
        let table = cold.tables.as_ref().and_then(|t| t.guids.as_deref());
        for (index, bytes) in data.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let value = match entries(index) {
                // the first is the port GUID, whatever was written
                Some(0) => own,
                Some(at) => table.and_then(|t| t.get(at)).copied().unwrap_or(0),
                None => 0,
            };
            *bytes = value.to_be_bytes();
        }
        0
    }

    pub(super) fn p_key_table<S: Sink>(&mut self, request: &Request, data: &mut Data, sink: &mut S) -> u16 {
        let port = request.modifier >> 16;
        let at = if request.is_switch {
            if port > u32::from(request.num_ports) {
                return status::INVALID_FIELD;
            }
            request.first + port
        } else {
            // an adapter has the port that was asked: `smpquery pkeys LID PORT` and ibdiagnet name it all the same
            request.at
        };
        let Some(cold) = self.cold.get_mut(at as usize) else { return status::INVALID_FIELD };
        let Some(block) = block_of(request.modifier & 0xFFFF, P_KEY_CAP / 32) else {
            return status::INVALID_FIELD;
        };
        if request.is_set {
            let table = cold.tables_mut().p_keys.get_or_insert_with(|| Box::new(DEFAULT_P_KEYS));
            for (slot, bytes) in table.iter_mut().skip(block * 32).zip(data.as_chunks::<2>().0) {
                *slot = u16::from_be_bytes(*bytes);
            }
        }
        for (key, bytes) in cold.p_keys().iter().skip(block * 32).zip(data.as_chunks_mut::<2>().0) {
            *bytes = key.to_be_bytes();
        }
        if request.is_set {
            self.port_changed(at, sink);
        }
        0
    }

    pub(super) fn sl_to_vl(&mut self, request: &Request, data: &mut Data) -> u16 {
        let [_, _, input, output] = request.modifier.to_be_bytes();
        let (at, input, inputs) = if request.is_switch {
            (request.first + u32::from(output), input, usize::from(request.num_ports) + 1)
        } else {
            (request.at, 0, 1)
        };
        let ports = if request.is_switch { request.num_ports } else { 0 };
        if request.modifier >> 16 != 0 || input > ports || (request.is_switch && output > ports) {
            return status::INVALID_FIELD;
        }
        let Some(cold) = self.cold.get_mut(at as usize) else { return status::INVALID_FIELD };
        if request.is_set
            && let Some(map) = data.first_chunk::<8>()
        {
            let maps = cold
                .tables_mut()
                .sl_to_vl
                .get_or_insert_with(|| vec![DEFAULT_SL_TO_VL; inputs].into_boxed_slice());
            if let Some(slot) = maps.get_mut(usize::from(input)) {
                *slot = *map;
            }
        }
        let map = cold.sl_to_vl(input);
        data.fill(0);
        data[..8].copy_from_slice(&map);
        if request.is_set {
            self.carriage_changed(at);
        }
        0
    }

    pub(super) fn vl_arbitration(&mut self, request: &Request, data: &mut Data) -> u16 {
        let (block, port) = (request.modifier >> 16, request.modifier & 0xFFFF);
        let at = match port {
            // an adapter has the port that was asked: `smpquery vlarb LID PORT` names it all the same
            _ if !request.is_switch => request.at,
            _ if port <= u32::from(request.num_ports) => request.first + port,
            _ => return status::INVALID_FIELD,
        };
        if !(1..=4).contains(&block) {
            return status::INVALID_FIELD;
        }
        let Some(cold) = self.cold.get_mut(at as usize) else { return status::INVALID_FIELD };
        let index = block as usize - 1;
        // the second half of a priority begins at entry 32
        let stored = if index & 1 == 0 { VL_ARB_CAP * 2 } else { 0 };
        if request.is_set {
            let table = cold.tables_mut().vl_arb.get_or_insert_with(|| Box::new(default_vl_arb()));
            if let Some(slot) = table.get_mut(index) {
                slot[..stored].copy_from_slice(&data[..stored]);
            }
        }
        let table = cold.tables.as_ref().and_then(|t| t.vl_arb.as_deref());
        *data = table.and_then(|t| t.get(index)).copied().unwrap_or_else(|| default_vl_arb()[index]);
        0
    }

    pub(super) fn linear_fdb(&mut self, request: &Request, data: &mut Data) -> u16 {
        let Some(switch) = self.switch_of(request) else { return status::UNSUPPORTED_METHOD_ATTR };
        let Some(block) = block_of(request.modifier, usize::from(LINEAR_FDB_CAP) / 64) else {
            return status::INVALID_FIELD;
        };
        if request.is_set {
            switch.set_lft_block(block, data);
        } else {
            match switch.lft.get(block * 64..block * 64 + 64) {
                Some(entries) => data.copy_from_slice(entries),
                None => data.fill(255),
            }
        }
        0
    }

    pub(super) fn multicast_fdb(&mut self, request: &Request, data: &mut Data) -> u16 {
        let ports = request.num_ports;
        let Some(switch) = self.switch_of(request) else { return status::UNSUPPORTED_METHOD_ATTR };
        let (block, position) = (request.modifier & 0x1FF, request.modifier >> 28);
        if block >= u32::from(MULTICAST_FDB_CAP) / 32 || position > u32::from(ports) / 16 {
            return status::INVALID_FIELD;
        }
        let key = position << 16 | block;
        if request.is_set {
            let masks = switch.mft.entry(key).or_insert_with(|| Box::new([0; 32]));
            for (mask, bytes) in masks.iter_mut().zip(data.as_chunks::<2>().0) {
                *mask = u16::from_be_bytes(*bytes);
            }
        } else {
            let masks = switch.mft.get(&key).map_or([0; 32], |m| **m);
            for (mask, bytes) in masks.iter().zip(data.as_chunks_mut::<2>().0) {
                *bytes = mask.to_be_bytes();
            }
        }
        0
    }
}

/// Block number of a modifier, if there are that many blocks.
fn block_of(modifier: u32, blocks: usize) -> Option<usize> {
    usize::try_from(modifier).ok().filter(|block| *block < blocks)
}

/// Arbitration of a port nobody has configured: every VL in turn with equal weight, at both priorities.
fn default_vl_arb() -> [Data; 4] {
    let mut block = [0; 64];
    for (vl, entry) in (0_u8..).zip(block.as_chunks_mut::<2>().0.iter_mut().take(VL_ARB_CAP)) {
        *entry = [vl, 4];
    }
    [block, [0; 64], block, [0; 64]]
}
