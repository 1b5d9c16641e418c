//! Commands from control to the plane, and events back: the items of the control channel.
//!
//! A command asks for one thing now; it is answered by exactly one [`event::DONE`] with the same `id`. Events that nobody
//! asked for have `id` 0. Numbers are append-only.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::handoff::flag;
use crate::ring::ITEM_BYTES;
use crate::table::MAX_PATH_PORTS;
use crate::text::{load_padded, store_padded};

/// What a command asks for; the number travels.
pub mod ask {
    /// Pull (value 0) or plug (value 1) the cable of a port.
    pub const SET_LINK: u32 = 1;
    /// Power-cycle a node.
    pub const REBOOT_NODE: u32 = 2;
    /// Nothing: answered by housekeeping.
    pub const PING: u32 = 3;
    /// Bind the session in slot `value` to a path, or unbind it; see [`super::Command::bind_session`].
    pub const BIND_SESSION: u32 = 4;
    /// Wake the workers that sleep: the table has moved. Answered by housekeeping.
    pub const WAKE_WORKERS: u32 = 5;
    /// The list of links to other planes has changed ([`crate::links`]): have those, and no others. Answered by housekeeping.
    pub const LINKS_CHANGED: u32 = 6;
}

/// What an event reports; the number travels.
pub mod event {
    /// A command was carried out (`status` 0; node, port and description of what it was about) or refused (`status` an
    /// errno, with a text).
    pub const DONE: u32 = 1;
    /// A client attached.
    pub const SESSION_OPENED: u32 = 2;
    /// A client is gone.
    pub const SESSION_CLOSED: u32 = 3;
    /// A port changed its state.
    pub const PORT_CHANGED: u32 = 4;
    /// A virtual node sent a trap; `value` is its number.
    pub const TRAP: u32 = 5;
    /// A link to another plane came up (`value` 1) or went down (0).
    pub const LINK: u32 = 6;
    /// An RDMA device of the plane came up (`value` 1), went down (0) or changed its addresses (2).
    pub const DEVICE: u32 = 7;
}

/// One command.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Command {
    /// Chosen by control, not 0.
    pub id: u64,
    /// One of [`ask`].
    pub kind: u32,
    /// Argument.
    pub value: u32,
    /// Node as GUID or description with an optional `:PORT`, UTF-8, zero padded. BIND_SESSION: the ports.
    pub selector: [u8; 192],
    /// BIND_SESSION: number of ports, 0 to unbind.
    pub path_len: u32,
    /// BIND_SESSION: 0 or [`crate::handoff::flag::DROP_BROKEN`].
    pub flags: u32,
    /// Reserved, 0.
    pub reserved: [u8; ITEM_BYTES - 216],
}

/// One event.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Event {
    /// The command's id, or 0.
    pub id: u64,
    /// One of [`event`].
    pub kind: u32,
    /// 0, or an errno.
    pub status: u32,
    /// Node GUID the event is about.
    pub node_guid: u64,
    /// Argument: session number, trap number, port state.
    pub value: u32,
    /// Port the event is about.
    pub port: u32,
    /// One line, UTF-8, zero padded.
    pub text: [u8; 192],
    /// Reserved, 0.
    pub reserved: [u8; ITEM_BYTES - 224],
}

const _: () = {
    assert!(size_of::<Command>() == ITEM_BYTES);
    assert!(size_of::<Event>() == ITEM_BYTES);
};

impl Default for Command {
    fn default() -> Self {
        Self {
            id: 0,
            kind: 0,
            value: 0,
            selector: [0; 192],
            path_len: 0,
            flags: 0,
            reserved: [0; ITEM_BYTES - 216],
        }
    }
}

impl Default for Event {
    fn default() -> Self {
        Self {
            id: 0,
            kind: 0,
            status: 0,
            node_guid: 0,
            value: 0,
            port: 0,
            text: [0; 192],
            reserved: [0; ITEM_BYTES - 224],
        }
    }
}

impl Command {
    /// A command about a node or a port; `None` if the selector is longer than the field.
    pub fn about(id: u64, kind: u32, value: u32, selector: &str) -> Option<Self> {
        let mut made = Self { id, kind, value, ..Self::default() };
        made.selector.get_mut(..selector.len())?.copy_from_slice(selector.as_bytes());
        Some(made)
    }

    /// A command that binds the session in `slot` to the path of `ports`, or, with none, unbinds it; `None` for more than
    /// 63 ports.
    pub fn bind_session(id: u64, slot: u32, ports: &[u8], drop_broken: bool) -> Option<Self> {
        let path_len = u32::try_from(ports.len()).ok().filter(|_| ports.len() <= MAX_PATH_PORTS)?;
        let flags = if drop_broken { flag::DROP_BROKEN } else { 0 };
        let mut made = Self { id, kind: ask::BIND_SESSION, value: slot, path_len, flags, ..Self::default() };
        made.selector[..ports.len()].copy_from_slice(ports);
        Some(made)
    }

    /// BIND_SESSION: the ports; `None` if the command says more than a path has.
    pub fn path(&self) -> Option<&[u8]> {
        let ports = usize::try_from(self.path_len).ok().filter(|ports| *ports <= MAX_PATH_PORTS)?;
        self.selector.get(..ports)
    }

    /// The selector as text.
    pub fn selector(&self) -> String {
        load_padded(&self.selector)
    }
}

impl Event {
    /// The text.
    pub fn text(&self) -> String {
        load_padded(&self.text)
    }

    /// Stores a text, cut at a character boundary to what fits.
    pub fn set_text(&mut self, text: &str) {
        store_padded(&mut self.text, text);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_command_binds_a_session_to_a_path_and_says_no_more_ports_than_a_path_has() {
        for ports in [&[9; 63][..], &[1, 0, 255], &[]] {
            let bind = Command::bind_session(5, 7, ports, true).unwrap();
            assert_eq!((bind.id, bind.kind, bind.value), (5, ask::BIND_SESSION, 7));
            assert_eq!((bind.flags, bind.path()), (flag::DROP_BROKEN, Some(ports)));
        }
        assert_eq!(Command::bind_session(5, 7, &[1], false).unwrap().flags, 0);
        assert!(Command::bind_session(5, 7, &[1; 64], true).is_none());
        for path_len in [64, 192, 193, u32::MAX] {
            assert_eq!(Command { path_len, ..Command::default() }.path(), None, "{path_len}");
        }
    }

    #[test]
    fn a_selector_travels_whole_or_not_at_all() {
        let longest = "x".repeat(192);
        assert_eq!(Command::about(1, ask::SET_LINK, 1, &longest).unwrap().selector(), longest);
        assert!(Command::about(1, ask::SET_LINK, 1, &"x".repeat(193)).is_none());
    }
}
