//! Partition rule: when two P_Keys match.
//!
//! Pure. What happens after a mismatch is decided where the packet is.

/// Membership bit of a P_Key.
pub const FULL_MEMBER: u16 = 0x8000;

/// Whether a packet's P_Key matches a table entry: bits 14:0 equal and not 0, and at least one side a full member.
///
/// ```
/// use madplane_engine::partition::p_key_matches;
/// assert!(p_key_matches(0x7FFF, 0xFFFF));
/// assert!(!p_key_matches(0x7FFF, 0x7FFF));
/// ```
pub const fn p_key_matches(packet: u16, entry: u16) -> bool {
    same_partition(packet, entry) && (packet | entry) & FULL_MEMBER != 0
}

/// Whether two P_Keys name the same partition, whatever the memberships; key 0 names none.
pub const fn same_partition(a: u16, b: u16) -> bool {
    (a ^ b) & !FULL_MEMBER == 0 && a & !FULL_MEMBER != 0
}

/// Index of the entry that matches `packet`; a full member entry is preferred to a limited one.
pub fn find_match(packet: u16, table: &[u16]) -> Option<u16> {
    let found = |full: u16| {
        table.iter().position(|entry| p_key_matches(packet, *entry) && entry & FULL_MEMBER == full)
    };
    found(FULL_MEMBER).or_else(|| found(0)).and_then(|index| u16::try_from(index).ok())
}

/// The entry that a refused `packet` is held against when one tells about it: that of the same partition, or else the first.
pub fn counterpart(packet: u16, table: &[u16]) -> u16 {
    let same = table.iter().find(|entry| **entry != 0 && (packet ^ **entry) & !FULL_MEMBER == 0);
    same.or(table.first()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_limited_members_do_not_match() {
        assert!(
            p_key_matches(0xFFFF, 0xFFFF) && p_key_matches(0xFFFF, 0x7FFF) && p_key_matches(0x7FFF, 0xFFFF)
        );
        assert!(!p_key_matches(0x7FFF, 0x7FFF));
    }

    #[test]
    fn a_refused_key_is_shown_with_the_entry_of_its_partition_or_the_first() {
        assert_eq!(counterpart(0x0001, &[0xFFFF, 0x0001]), 0x0001);
        assert_eq!(counterpart(0x8002, &[0xFFFF, 0x0001]), 0xFFFF);
        assert_eq!(counterpart(0x8000, &[0x7FFF, 0]), 0x7FFF);
        assert_eq!(counterpart(1, &[]), 0);
    }

    #[test]
    fn key_zero_never_matches() {
        assert!(!p_key_matches(0x8000, 0x8000) && !p_key_matches(0, 0x8000) && !p_key_matches(0, 0));
    }

    #[test]
    fn other_key_does_not_match_and_the_full_entry_is_preferred() {
        assert_eq!(find_match(0x8001, &[0x7FFF, 0xFFFF]), None);
        assert_eq!(find_match(0xFFFF, &[0, 0x7FFF, 0xFFFF]), Some(2));
        assert_eq!(find_match(0xFFFF, &[0, 0x7FFF]), Some(1));
        assert_eq!(find_match(0x7FFF, &[0, 0x7FFF]), None);
    }
}
