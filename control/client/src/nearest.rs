//! The nearest known name, for messages about unknown ones.
//!
//! Pure functions. Distance is counted in inserted, deleted, replaced and swapped characters, without regard to case.

/// Returns the candidate that `wanted` was most likely meant to be, if any is near enough to be helpful.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wanted.chars().count() / 3).max(1);
    let scored = candidates.into_iter().map(|candidate| (distance(wanted, candidate), candidate));
    scored
        .filter(|(score, _)| *score <= limit)
        .min_by_key(|(score, _)| *score)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean NAME?`, or nothing.
pub fn hint<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wanted, candidates).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

fn distance(a: &str, b: &str) -> usize {
    let fold = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (a, b) = (fold(a), fold(b));
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (above[j] + usize::from(x != y)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_near_and_other_words_are_not() {
        let names = ["fat-tree", "ring", "torus", "random"];
        for (wanted, expected) in [
            ("fat-tre", Some("fat-tree")),
            ("fattree", Some("fat-tree")),
            ("rnig", Some("ring")),
            ("TORUS", Some("torus")),
            ("hypercube", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, names), expected, "{wanted}");
        }
        assert_eq!(hint("rin", names), "; did you mean ring?");
        assert_eq!(hint("x-x-x", names), "");
    }
}
