//! The nearest of a list of names, for error messages.
//!
//! Plain edit distance on bytes; meant for cold paths.

/// Returns the candidate with the fewest edits, if it is near enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + word.len() / 3;
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate.len().abs_diff(word.len()) > limit {
            continue;
        }
        let edits = distance(word.as_bytes(), candidate.as_bytes());
        if edits <= limit && best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace; letter case is free) that turn one text into the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_another_word_does_not() {
        let kinds = ["fat-tree", "torus", "hypercube"];
        assert_eq!(nearest("fattree", kinds), Some("fat-tree"));
        assert_eq!(nearest("Torus", kinds), Some("torus"));
        assert_eq!(nearest("mesh", kinds), None);
        assert_eq!(nearest("", kinds), None);
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"same", b"SAME"), 0);
    }
}
