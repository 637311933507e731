//! Suggestions for misspelt names. Filters, programs, configuration keys, fields and interfaces all use the same edit
//! distance and the same threshold.

/// Names longer than this number of bytes are not compared, because the work grows with the square of the length.
const LONGEST: usize = 64;

/// Returns the name in `known` that is nearest to the misspelt `name`: at most one edit away for names of up to four
/// bytes, at most two edits for longer names. `None` if no name is within this distance.
///
/// ```
/// use netgrain_base::nearest;
/// assert_eq!(nearest("hots", ["net", "host", "port"]), Some("host"));
/// assert_eq!(nearest("ethernet", ["net", "host", "port"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let limit = 2.min(name.len().div_ceil(4)).min(name.len().saturating_sub(1));
    let near = known.into_iter().map(|k| (distance(name.as_bytes(), k.as_bytes()), k)).min()?;
    (near.0 <= limit).then_some(near.1)
}

/// Returns the edit distance with transpositions (Damerau 1964, optimal string alignment): the number of insertions,
/// deletions, substitutions and swaps of adjacent bytes that turn one text into the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        (before, last) = (last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_a_suggestion_and_an_unrelated_name_has_none() {
        assert_eq!((distance(b"hots", b"host"), distance(b"", b"port"), distance(b"port", b"")), (1, 4, 4));
        let names = || ["host", "port", "portrange", "net", "a"].into_iter();
        assert_eq!(nearest("hots", names()), Some("host"));
        assert_eq!(nearest("prtrang", names()), Some("portrange"));
        for far in ["", "x", "foo", "dots", "ethernet", &"host".repeat(100)] {
            assert_eq!(nearest(far, names()), None, "{far}");
        }
    }
}
