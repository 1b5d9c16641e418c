//! M_Key protection: who may read and write a port, and the lease that ends protection.
//!
//! Part of the shard, same owner and thread. A refused request is counted and dropped without an answer. Source:
//! smi-rules.md section 8.

use crate::agent::trap::Timer;
use crate::packet::Packet;
use crate::shard::Shard;
use madplane_wire::mad::{field as mad, method};
use madplane_wire::smp::field as smp;
use madplane_wire::smp::port_info::field as pi;

/// Outcome of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Go on; the flag says whether PortInfo may show the key.
    Granted {
        /// The requester may see the M_Key.
        show_key: bool,
    },
    /// Drop without an answer.
    Refused,
}

impl Shard {
    /// Checks the M_Key of a Get, Set or TrapRepress against endport `at`.
    #[inline(always)]
    pub(crate) fn check_m_key(&mut self, now_ns: u64, at: u32, pkt: &Packet) -> Access {
        let Some(cold) = self.cold.get_mut(at as usize) else { return Access::Refused };
        let key = pi::M_KEY.get(&cold.info);
        if key == 0 || key == smp::M_KEY.get(&pkt.mad) {
            // stops a lease that is running; its timer then finds nothing to do
            if cold.lease_deadline_ns != 0 {
                cold.lease_deadline_ns = 0;
            }
            return Access::Granted { show_key: true };
        }
        self.wrong_m_key(now_ns, at, pkt)
    }

    #[cold]
    fn wrong_m_key(&mut self, now_ns: u64, at: u32, pkt: &Packet) -> Access {
        let Some(cold) = self.cold.get_mut(at as usize) else { return Access::Refused };
        if mad::METHOD.get_u8(&pkt.mad) == method::GET {
            match pi::M_KEY_PROTECT_BITS.get_u8(&cold.info) {
                0 => return Access::Granted { show_key: true },
                1 => return Access::Granted { show_key: false },
                _ => {}
            }
        }
        let violations = pi::M_KEY_VIOLATIONS.get_u16(&cold.info).saturating_add(1);
        pi::M_KEY_VIOLATIONS.set(&mut cold.info, u64::from(violations));
        let period_s = pi::M_KEY_LEASE_PERIOD.get(&cold.info);
        if period_s > 0 && cold.lease_deadline_ns == 0 {
            let deadline = now_ns.saturating_add(period_s * 1_000_000_000).max(1);
            cold.lease_deadline_ns = deadline;
            self.traps.start(deadline, Timer::Lease { at });
        }
        self.raise_m_key_trap(at, pkt);
        Access::Refused
    }

    /// The lease of `at` may have ended: protection ends, the key stays.
    pub(crate) fn lease_timer(&mut self, now_ns: u64, at: u32) {
        let Some(cold) = self.cold.get_mut(at as usize) else { return };
        match cold.lease_deadline_ns {
            0 => {}
            // stopped and started again since the timer was set
            later if later > now_ns => self.traps.start(later, Timer::Lease { at }),
            _ => {
                cold.lease_deadline_ns = 0;
                pi::M_KEY_PROTECT_BITS.set(&mut cold.info, 0);
            }
        }
    }
}
