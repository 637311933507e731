//! What word was probably meant.

/// The word of `known` that `word` was probably meant to be: at most two letters away, or a third of its own. A swap of neighbours is
/// one change (Damerau 1964, the restricted form).
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A word much longer than any of ours is no slip, and need not be measured.
    if word.len() > 24 {
        return None;
    }
    let near = known.into_iter().map(|k| (distance(word.as_bytes(), k.as_bytes()), k)).min()?;
    (near.0 <= 2.min(word.len() / 3)).then_some(near.1)
}

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
    fn a_slip_is_near_and_another_word_is_not() {
        assert_eq!((distance(b"hots", b"host"), distance(b"", b"port")), (1, 4));
        let words = || ["host", "port", "portrange", "net"].into_iter();
        assert_eq!(nearest("hots", words()), Some("host"));
        assert_eq!(nearest("prtrang", words()), Some("portrange"));
        assert_eq!((nearest("ne", words()), nearest("ethernet", words())), (None, None));
    }
}
