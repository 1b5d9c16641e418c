//! What the plane counted, as maps that can be subtracted.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{PATIENCE, Plane};

/// Counters by name.
pub type Counts = BTreeMap<String, u64>;

/// Counters of this kind (`counters`, `drops`) that are not zero, summed over the workers.
#[track_caller]
pub fn counts(plane: &Plane, kind: &str) -> Counts {
    let shown = plane.json(&["counters", "show"]);
    let all = shown[kind].as_array().unwrap_or_else(|| panic!("no {kind}: {shown}"));
    all.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), one["value"].as_u64().unwrap())).collect()
}

/// What has been added since.
fn since(now: &Counts, before: &Counts) -> Counts {
    let added = now.iter().map(|(name, value)| (name, value - before.get(name).unwrap_or(&0)));
    added.filter(|(_, added)| *added > 0).map(|(name, added)| (name.clone(), added)).collect()
}

impl Plane {
    /// Carries `act` out and returns what it says with the names of the drop counters that it moved.
    ///
    /// On a busy machine a program asks again before it has got the first answer, and the second answer is then dropped for
    /// want of a transaction. Where that has happened the measurement says nothing and is repeated.
    pub fn drops_of<T>(&self, mut act: impl FnMut() -> T) -> (T, Vec<String>) {
        let until = Instant::now() + PATIENCE;
        loop {
            let before = counts(self, "drops");
            let said = act();
            let moved = since(&counts(self, "drops"), &before);
            if !moved.contains_key("drop_no_transaction") || Instant::now() > until {
                return (said, moved.into_keys().collect());
            }
        }
    }
}
