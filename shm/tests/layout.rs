//! The layout of this build against the stored one.
#![cfg(not(loom))]

use std::path::Path;

#[test]
fn the_layout_is_the_stored_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/layout.txt");
    let now = madplane_shm::layout::listing();
    if std::env::var_os("MADPLANE_BLESS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    for (line, (a, b)) in stored.lines().zip(now.lines()).enumerate() {
        assert_eq!(
            a,
            b,
            "line {}: a changed layout needs a new LAYOUT_VERSION and MADPLANE_BLESS=1",
            line + 1
        );
    }
    assert_eq!(stored.len(), now.len(), "the listing grew or shrank");
}
