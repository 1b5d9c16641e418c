//! LID relay of a switch: linear forwarding table to output port.
//!
//! Pure functions over [`SmiNode`]; the LIDs of the packet are never rewritten by a relay. Multicast is the caller's
//! business, and so are the checks that only GMPs need (partition enforcement, SLtoVL, Active ports).

use crate::smi::{SmiNode, Verdict};
use madplane_shm::drop_reason::DropReason;

/// Looks up the output port for `dlid`, 0 meaning the switch itself.
///
/// `arrival` is `None` for packets that the switch itself starts; those may leave by any port.
///
/// # Errors
/// The reason to drop, in the order of smi-rules.md section 4.
pub fn lookup(node: &impl SmiNode, arrival: Option<u8>, dlid: u16) -> Result<u8, DropReason> {
    if dlid > node.linear_fdb_top() {
        return Err(DropReason::AboveFdbTop);
    }
    let port = node.route(dlid);
    if port == 255 {
        return Err(DropReason::NoRoute);
    }
    if port > node.num_ports() {
        return Err(DropReason::RoutePort);
    }
    if port != 0 && arrival == Some(port) {
        return Err(DropReason::RouteLoop);
    }
    Ok(port)
}

/// Relays an SMP: any port that is at least Initialize will do.
pub fn relay_smp(node: &impl SmiNode, arrival: Option<u8>, dlid: u16) -> Verdict {
    match lookup(node, arrival, dlid) {
        Ok(0) => Verdict::Local,
        Ok(port) if node.link_up(port) => Verdict::Forward { port },
        Ok(port) => Verdict::Discard { reason: DropReason::RoutePortDown, output: port },
        Err(reason) => Verdict::discard(reason),
    }
}
