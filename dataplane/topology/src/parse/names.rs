//! Node ids: interning, and what was said about each before its record came.
//!
//! Ids made of a letter and a GUID (`S-0002c90300000001`) are keyed by number, others by text. A slot exists from the
//! first mention of an id, so links may name nodes that come later.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::graph::NodeKind;
use crate::lex::fold_digits;

/// What identifies a node in the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Kind letter and 16 hexadecimal digits.
    Guid(NodeKind, u64),
    /// Anything else.
    Text(Rc<str>),
}

impl Key {
    pub(super) fn of(id: &str) -> Self {
        let bytes = id.as_bytes();
        let kind = match bytes.first() {
            Some(b'S') => NodeKind::Switch,
            Some(b'H') => NodeKind::Ca,
            Some(b'R') => NodeKind::Router,
            _ => return Self::Text(Rc::from(id)),
        };
        if bytes.len() == 18 && bytes[1] == b'-' && bytes[2..].iter().all(u8::is_ascii_hexdigit) {
            Self::Guid(kind, fold_digits(&bytes[2..], 16))
        } else {
            Self::Text(Rc::from(id))
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Guid(kind, guid) => format!("{}-{guid:016x}", kind.letter()),
            Self::Text(text) => text.to_string(),
        }
    }
}

/// State of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Mentioned only.
    Mentioned,
    /// Its record made this node.
    Node(u32),
    /// Its record was so broken that it was skipped; links to it go nowhere.
    Skipped,
}

/// One id.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    pub(super) state: SlotState,
    /// Description and LID a link line gave for it, kept only if stubs may be needed.
    pub(super) hint: Option<(String, u16)>,
}

/// All ids of a text.
#[derive(Debug, Default)]
pub(super) struct Slots {
    by_key: FxHashMap<Key, u32>,
    slots: Vec<Slot>,
}

impl Slots {
    pub(super) fn intern(&mut self, id: &str) -> u32 {
        let key = Key::of(id);
        if let Some(slot) = self.by_key.get(&key) {
            return *slot;
        }
        let slot =
            u32::try_from(self.slots.len()).expect("fewer ids than bytes, and texts of 4 GiB are refused");
        self.by_key.insert(key.clone(), slot);
        self.slots.push(Slot { key, state: SlotState::Mentioned, hint: None });
        slot
    }

    pub(super) fn get(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }
}
