//! From an SMP that is routed by LIDs to one along a path, and from its answer back.
//!
//! Pure functions on one MAD, used by the worker that owns the device. An adapter has no forwarding table of its own, so a path that somebody
//! pinned can only be walked as a directed route. Both forms have transaction id, attribute, M_Key and data at the same places. Not
//! here: which path, and the LIDs of the packet.
//!
//! Source: IBA volume 1, chapters on the formats of SMPs and on the SMI.

use madplane_wire::mad::class;
use madplane_wire::smp::{INITIAL_PATH, PERMISSIVE_LID};
use madplane_wire::{MadBuf, SmpMut};

/// Where LID-routed SMPs have nothing and directed ones their LIDs: after the M_Key, before the data.
const BETWEEN: std::ops::Range<usize> = 32..64;
const CLASS: usize = 1;

/// Makes a request along `path` of one that is routed by LIDs: the output port of the sender, then of each node on the way, at most 63.
pub fn to_directed(smp: &mut MadBuf, path: &[u8]) {
    smp[CLASS] = class::SUBN_DIRECTED;
    smp[BETWEEN].fill(0);
    smp[INITIAL_PATH..].fill(0);
    let hops = path.len().min(63);
    let mut smp = SmpMut::new(smp);
    smp.set_direction(false);
    smp.set_hop_pointer(0);
    smp.set_hop_count(u8::try_from(hops).unwrap_or(0));
    smp.set_dr_slid(PERMISSIVE_LID);
    smp.set_dr_dlid(PERMISSIVE_LID);
    smp.initial_path_mut()[1..=hops].copy_from_slice(&path[..hops]);
}

/// Makes an answer that is routed by LIDs of one that came back along a path; false, and nothing is changed, if it is none.
pub fn to_lid_routed(smp: &mut MadBuf) -> bool {
    if smp[CLASS] != class::SUBN_DIRECTED || !SmpMut::new(smp).view().direction() {
        return false;
    }
    smp[CLASS] = class::SUBN_LID;
    let mut view = SmpMut::new(smp);
    view.set_direction(false);
    view.set_hop_pointer(0);
    view.set_hop_count(0);
    smp[BETWEEN].fill(0);
    smp[INITIAL_PATH..].fill(0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use madplane_wire::mad::method;
    use madplane_wire::smp::attr;
    use madplane_wire::{MadMut, Smp};

    #[test]
    fn a_request_leaves_along_the_path_and_its_answer_comes_back_as_if_by_lid() {
        let mut mad = [0xa5; 256];
        SmpMut::new(&mut mad).init_lid_routed(method::GET, attr::PORT_INFO, 3, 0x1122_3344_5566_7788);
        SmpMut::new(&mut mad).set_m_key(77);
        SmpMut::new(&mut mad).data_mut().fill(0x5a);
        let by_lid = mad;
        to_directed(&mut mad, &[1, 7, 9]);
        let mut expected = [0xa5; 256];
        SmpMut::new(&mut expected).init_directed(
            method::GET,
            attr::PORT_INFO,
            3,
            0x1122_3344_5566_7788,
            &[1, 7, 9],
        );
        SmpMut::new(&mut expected).set_m_key(77);
        SmpMut::new(&mut expected).data_mut().fill(0x5a);
        assert_eq!(mad, expected);

        assert!(!to_lid_routed(&mut mad), "it is no answer");
        assert_eq!(mad, expected);
        // as it comes back after three hops
        MadMut::new(&mut mad).set_method(method::GET_RESP);
        let mut smp = SmpMut::new(&mut mad);
        smp.set_direction(true);
        smp.set_status(0x1c);
        smp.return_path_mut()[1..4].copy_from_slice(&[1, 2, 3]);
        assert!(to_lid_routed(&mut mad));
        let mut answer = by_lid;
        MadMut::new(&mut answer).set_method(method::GET_RESP);
        SmpMut::new(&mut answer).set_status(0x1c);
        assert_eq!(mad, answer);
        assert_eq!(Smp::new(&mad).status(), 0x1c);
        assert!(!to_lid_routed(&mut mad), "it is routed by LIDs already");
    }

    #[test]
    fn the_longest_path_fits() {
        let mut mad = [0xa5; 256];
        SmpMut::new(&mut mad).init_lid_routed(method::SET, attr::PORT_INFO, 0, 1);
        to_directed(&mut mad, &[9; 63]);
        assert_eq!((Smp::new(&mad).hop_count(), Smp::new(&mad).initial_path()[0]), (63, 0));
        assert!(Smp::new(&mad).initial_path()[1..].iter().all(|port| *port == 9));
    }
}
