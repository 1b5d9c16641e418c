//! Who may be which tenant: the peer's credentials against the table.
//!
//! [`choose`] decides, once per connection, when a session or a hold on the SM bit is asked for. Afterwards a session is
//! bound to its tenant by number and id: what the tenant may changes at once with the table, whether a user may be it does
//! not end sessions that are open. Owned by housekeeping; nothing here is on the way of a MAD.

use std::os::fd::AsFd;

use madplane_shm::table::tenant::{TenantEntry, number_of, service_class, tenant_right};
use rustix::net::sockopt;

use super::Housekeeping;
use super::connections::libc_errno::{EACCES, EAGAIN, ENOENT, EPERM};
use crate::acl::Membership;

/// Who is at the other end of a connection, as the kernel says.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    pub(super) pid: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

impl Peer {
    /// Reads the credentials of a connection; `None` if there are none.
    pub(super) fn of(socket: impl AsFd) -> Option<Self> {
        let peer = sockopt::socket_peercred(&socket).ok()?;
        let groups = madplane_port::sys::peer_groups(&socket).unwrap_or_default();
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0);
        Some(Self { pid, uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), groups })
    }

    /// Whether the plane belongs to this peer: root, or the user `owner` that runs it.
    pub(super) fn owns_plane(&self, owner: u32) -> bool {
        self.uid == 0 || self.uid == owner
    }

    fn may_be(&self, tenant: &TenantEntry) -> bool {
        tenant.uids().contains(&self.uid)
            || tenant.gids().iter().any(|gid| *gid == self.gid || self.groups.contains(gid))
    }
}

/// The tenant as which `peer` is served that asks for `wanted` (empty: for none) on a plane of the user `owner`; `None`
/// for one that may do everything.
///
/// # Errors
/// An errno and one line.
pub(super) fn choose<'a>(
    peer: &Peer,
    owner: u32,
    wanted: &str,
    tenants: &'a [(u32, TenantEntry)],
) -> Result<Option<&'a (u32, TenantEntry)>, (i32, String)> {
    let privileged = peer.owns_plane(owner);
    if !wanted.is_empty() {
        let Some(found) = tenants.iter().find(|(_, tenant)| tenant.name() == wanted) else {
            return Err((ENOENT, unknown(wanted, tenants)));
        };
        if privileged || peer.may_be(&found.1) {
            return Ok(Some(found));
        }
        return Err((EACCES, format!("user {} may not be tenant {wanted}", peer.uid)));
    }
    if privileged || tenants.is_empty() {
        return Ok(None);
    }
    let mut own = tenants.iter().filter(|(_, tenant)| peer.may_be(tenant));
    match (own.next(), own.next()) {
        (Some(only), None) => Ok(Some(only)),
        (None, _) => Err((EACCES, format!("no tenant of this plane lists user {} or its groups", peer.uid))),
        (Some((_, first)), Some((_, second))) => Err((
            EACCES,
            format!(
                "user {} may be tenant {}, {} or others: name one with MADPLANE_TENANT",
                peer.uid,
                first.name(),
                second.name()
            ),
        )),
    }
}

fn unknown(wanted: &str, tenants: &[(u32, TenantEntry)]) -> String {
    let nearest = tenants
        .iter()
        .map(|(_, tenant)| (distance(wanted, tenant.name()), tenant.name()))
        .min()
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3));
    match nearest {
        Some((_, name)) => format!("there is no tenant {wanted}; did you mean {name}?"),
        None => format!("there is no tenant {wanted}"),
    }
}

/// Letters to change, add or leave out between two names, without regard to case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase().into_bytes(), b.to_ascii_lowercase().into_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (done, from) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], done + 1);
        for (at, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != to);
            diagonal = row[at + 1];
            row[at + 1] = change.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[b.len()]
}

impl Housekeeping {
    /// All tenants of the table as it is now.
    fn tenants(&mut self) -> Result<Vec<(u32, TenantEntry)>, (i32, String)> {
        self.look_for_table();
        match &self.table {
            None => Ok(Vec::new()),
            Some((reader, _)) => {
                reader.tenants().ok_or((EAGAIN, "the table of tenants changes too fast".to_owned()))
            }
        }
    }

    /// The tenant as which the connection `index` is served that asks for `wanted`.
    pub(super) fn tenant_for(
        &mut self,
        index: usize,
        wanted: &str,
    ) -> Result<Option<(u32, TenantEntry)>, (i32, String)> {
        let tenants = self.tenants()?;
        let peer = match self.connections.get(index) {
            Some(Some(connection)) => &connection.peer,
            _ => return Ok(None),
        };
        choose(peer, self.owner, wanted, &tenants).map(Option::<&_>::copied)
    }

    /// The tenant of an open session as it is now; `None` if the session is nobody's.
    ///
    /// # Errors
    /// The tenant is gone.
    pub(super) fn tenant_of(&mut self, member: Membership) -> Result<Option<TenantEntry>, (i32, String)> {
        if member.is_none() {
            return Ok(None);
        }
        let tenants = self.tenants()?;
        let found = tenants.iter().find(|(place, tenant)| membership(*place, tenant) == member);
        match found {
            Some((_, tenant)) => Ok(Some(*tenant)),
            None => Err((EPERM, "the tenant of this session is no more".to_owned())),
        }
    }

    /// Shows in the status segment as whom sessions are served, if the table has changed since it was last shown.
    pub(super) fn show_tenants(&mut self) {
        let Some((reader, _)) = &self.table else { return };
        let open = self.slots.iter().any(|slot| slot.open && !slot.member.is_none());
        if !open {
            return;
        }
        let Some(tenants) = reader.tenants() else { return };
        for (slot, record) in
            self.slots.iter().zip(0..).filter(|(slot, _)| slot.open && !slot.member.is_none())
        {
            let record = self.status.session(record);
            let found = tenants.iter().find(|(place, tenant)| membership(*place, tenant) == slot.member);
            let class = found.map_or(service_class::BULK, |(_, tenant)| tenant.class);
            record.class.store(u32::from(class), madplane_shm::sync::Ordering::Relaxed);
        }
    }
}

/// How a session of the tenant at `place` is told apart from all others.
pub(super) fn membership(place: u32, tenant: &TenantEntry) -> Membership {
    Membership { tenant: number_of(place), id: tenant.id }
}

/// Whether the tenant may have an agent for `class`.
///
/// # Errors
/// It may not.
pub(super) fn may_register(tenant: &TenantEntry, class: u8) -> Result<(), (i32, String)> {
    if class == 0 || tenant.allows_class(class) {
        return Ok(());
    }
    Err((EPERM, format!("tenant {} may not use class {class:#04x}", tenant.name())))
}

/// Whether the tenant may act as SM.
///
/// # Errors
/// It may not.
pub(super) fn may_hold_sm(tenant: &TenantEntry) -> Result<(), (i32, String)> {
    if tenant.rights & tenant_right::SMP_SET != 0 {
        return Ok(());
    }
    Err((EPERM, format!("tenant {} may not act as subnet manager", tenant.name())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 500;

    fn tenant(name: &str, uids: &[u32], gids: &[u32]) -> TenantEntry {
        let mut tenant = TenantEntry::new(name).unwrap();
        assert!(tenant.set_uids(uids) && tenant.set_gids(gids));
        tenant
    }

    fn peer(uid: u32, gid: u32, groups: &[u32]) -> Peer {
        Peer { pid: 1, uid, gid, groups: groups.to_vec() }
    }

    fn outcome(peer: &Peer, wanted: &str, tenants: &[(u32, TenantEntry)]) -> Result<String, (i32, String)> {
        choose(peer, OWNER, wanted, tenants).map(|found| {
            found.map_or("nobody".to_owned(), |(place, tenant)| format!("{place}:{}", tenant.name()))
        })
    }

    #[test]
    fn credentials_decide_who_is_which_tenant() {
        let tenants = [
            (0, tenant("blue", &[1000, 1001], &[])),
            (4, tenant("green", &[], &[200, 300])),
            (9, tenant("red", &[1001], &[])),
        ];
        type Case<'a> = (u32, u32, &'a [u32], &'a str, Result<&'a str, i32>);
        // uid, gid, groups, wanted, outcome or errno
        let cases: &[Case<'_>] = &[
            (0, 0, &[], "", Ok("nobody")),
            (OWNER, 9, &[], "", Ok("nobody")),
            (0, 0, &[], "red", Ok("9:red")),
            (OWNER, 9, &[], "blue", Ok("0:blue")),
            (1000, 9, &[], "", Ok("0:blue")),
            (1000, 9, &[], "blue", Ok("0:blue")),
            (1000, 9, &[], "red", Err(EACCES)),
            (1001, 9, &[], "", Err(EACCES)),
            (1001, 9, &[], "red", Ok("9:red")),
            (1002, 200, &[], "", Ok("4:green")),
            (1002, 9, &[7, 300], "", Ok("4:green")),
            (1002, 9, &[7, 300], "green", Ok("4:green")),
            (1002, 9, &[1000], "", Err(EACCES)),
            (1002, 9, &[], "green", Err(EACCES)),
            (1000, 200, &[], "", Err(EACCES)),
            (0, 0, &[], "purple", Err(ENOENT)),
            (1000, 9, &[], "purple", Err(ENOENT)),
        ];
        for (uid, gid, groups, wanted, expected) in cases {
            let got = outcome(&peer(*uid, *gid, groups), wanted, &tenants);
            let shown = got.as_ref().map(String::as_str).map_err(|(errno, _)| *errno);
            assert_eq!(shown, *expected, "uid {uid} gid {gid} groups {groups:?} as {wanted:?}: {got:?}");
        }
    }

    #[test]
    fn without_tenants_everybody_may_do_everything() {
        assert_eq!(outcome(&peer(1000, 1000, &[]), "", &[]), Ok("nobody".to_owned()));
        assert_eq!(outcome(&peer(0, 0, &[]), "blue", &[]).unwrap_err().0, ENOENT);
    }

    #[test]
    fn refusals_are_one_line_that_helps() {
        let tenants = [(0, tenant("storage", &[7], &[])), (1, tenant("compute", &[7], &[]))];
        let text = |uid, wanted| outcome(&peer(uid, 1, &[]), wanted, &tenants).unwrap_err().1;
        assert_eq!(text(7, "Storge"), "there is no tenant Storge; did you mean storage?");
        assert_eq!(text(7, "xyz"), "there is no tenant xyz");
        assert_eq!(text(8, ""), "no tenant of this plane lists user 8 or its groups");
        assert_eq!(
            text(7, ""),
            "user 7 may be tenant storage, compute or others: name one with MADPLANE_TENANT"
        );
        assert_eq!(text(8, "compute"), "user 8 may not be tenant compute");
    }

    #[test]
    fn registration_follows_the_classes_and_the_sm_bit_the_right_to_set() {
        let mut tenant = tenant("t", &[], &[]);
        tenant.allow_class(0x04, true);
        assert!(may_register(&tenant, 0x04).is_ok() && may_register(&tenant, 0).is_ok());
        let refused = may_register(&tenant, 0x81).unwrap_err();
        assert_eq!(refused, (EPERM, "tenant t may not use class 0x81".to_owned()));
        assert_eq!(may_hold_sm(&tenant).unwrap_err().0, EPERM);
        tenant.rights = tenant_right::SMP_SET;
        assert!(may_hold_sm(&tenant).is_ok());
    }
}
