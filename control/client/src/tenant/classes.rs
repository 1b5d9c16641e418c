//! Sets of management classes, and their names.
//!
//! Pure functions and plain values.

use super::TenantError;
use crate::route::number;

/// Management classes with a name: the name, and ranges of numbers.
pub const CLASS_NAMES: [(&str, &[(u8, u8)]); 10] = [
    ("smp", &[(0x01, 0x01), (0x81, 0x81)]),
    ("sa", &[(0x03, 0x03)]),
    ("perf", &[(0x04, 0x04)]),
    ("bm", &[(0x05, 0x05)]),
    ("devmgt", &[(0x06, 0x06)]),
    ("cm", &[(0x07, 0x07)]),
    ("snmp", &[(0x08, 0x08)]),
    ("vendor", &[(0x09, 0x0f), (0x30, 0x4f)]),
    ("cc", &[(0x21, 0x21)]),
    ("app", &[(0x10, 0x2f)]),
];

/// Set of management classes, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes(pub [u64; 4]);

impl Classes {
    /// Every class.
    pub const ALL: Self = Self([u64::MAX; 4]);
    /// No class.
    pub const NONE: Self = Self([0; 4]);

    /// Whether `class` is in it.
    pub fn has(&self, class: u8) -> bool {
        self.0[usize::from(class / 64)] >> (class % 64) & 1 == 1
    }

    pub(super) fn add(&mut self, (first, last): (u8, u8)) {
        for class in first..=last {
            self.0[usize::from(class / 64)] |= 1 << (class % 64);
        }
    }

    fn has_all(&self, ranges: &[(u8, u8)]) -> bool {
        ranges.iter().all(|(first, last)| (*first..=*last).all(|class| self.has(class)))
    }

    pub(super) fn read(words: &[String]) -> Result<Self, TenantError> {
        let mut classes = Self::NONE;
        for word in words {
            if word == "all" {
                return Ok(Self::ALL);
            }
            if let Some((_, ranges)) = CLASS_NAMES.iter().find(|(name, _)| name == word) {
                ranges.iter().for_each(|range| classes.add(*range));
                continue;
            }
            let one = |text: &str| number(text.trim()).and_then(|class| u8::try_from(class).ok());
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            match (one(first), one(last)) {
                (Some(first), Some(last)) if first <= last => classes.add((first, last)),
                _ => return Err(TenantError::Class(word.clone())),
            }
        }
        Ok(classes)
    }

    /// The words that name exactly this set.
    pub fn words(&self) -> Vec<String> {
        if *self == Self::ALL {
            return vec!["all".to_owned()];
        }
        let mut words = Vec::new();
        let mut named = Self::NONE;
        for (name, ranges) in CLASS_NAMES {
            // cc lies within app
            if self.has_all(ranges)
                && !named.has_all(ranges)
                && !(name == "cc" && self.has_all(CLASS_NAMES[9].1))
            {
                ranges.iter().for_each(|range| named.add(*range));
                words.push(name.to_owned());
            }
        }
        let mut rest = (0..=u8::MAX).filter(|class| self.has(*class) && !named.has(*class)).peekable();
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| last.checked_add(1) == Some(*next)) {
                last = next;
            }
            words.push(if first == last {
                format!("{first:#04x}")
            } else {
                format!("{first:#04x}-{last:#04x}")
            });
        }
        words
    }
}
