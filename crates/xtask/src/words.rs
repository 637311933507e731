//! Words that the repository does not use: the terms in backticks in the last column of `docs/reference/glossary.md`.
//! The first column of the same row has the term to use instead. A term without backticks in the last column has other
//! meanings too, so a program cannot check it.

use std::collections::BTreeMap;
use std::path::Path;

/// The page that lists the terms. No other page may contain the excluded words.
const GLOSSARY: &str = "docs/reference/glossary.md";

/// The directories and files that are checked.
const CHECKED_PATHS: &[&str] = &[
    "crates",
    "docs",
    "include",
    "examples",
    "dist",
    "records",
    "spec",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
];

/// Extensions of the files that are checked.
const EXTENSIONS: &[&str] = &["rs", "md", "toml", "h", "c", "service", "sh", "ng"];

/// Appends a finding for each line that contains a forbidden word, also as a part of a `snake_case` name.
pub fn check(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    let glossary = std::fs::read_to_string(root.join(GLOSSARY)).map_err(|e| format!("{GLOSSARY}: {e}"))?;
    let forbidden = forbidden(&glossary);
    for path in CHECKED_PATHS {
        check_path(root, Path::new(path), &forbidden, findings)?;
    }
    Ok(())
}

fn check_path(
    root: &Path,
    path: &Path,
    forbidden: &BTreeMap<String, String>,
    findings: &mut Vec<String>,
) -> Result<(), String> {
    let whole = root.join(path);
    let with_path = |e: std::io::Error| format!("{}: {e}", path.display());
    if whole.is_dir() {
        for entry in std::fs::read_dir(&whole).map_err(with_path)? {
            check_path(root, &path.join(entry.map_err(with_path)?.file_name()), forbidden, findings)?;
        }
        return Ok(());
    }
    let is_text = path.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known));
    if !is_text || path == Path::new(GLOSSARY) || !whole.is_file() {
        return Ok(());
    }
    let text = std::fs::read_to_string(&whole).map_err(with_path)?;
    for (index, line) in text.lines().enumerate() {
        for word in line.split(|c: char| !c.is_ascii_alphabetic()).map(str::to_ascii_lowercase) {
            if let Some(term) = forbidden.get(&word) {
                findings.push(format!(
                    "{}:{}: \"{word}\" is a word that the glossary excludes: write {term}",
                    path.display(),
                    index + 1
                ));
            }
        }
    }
    Ok(())
}

/// The words in backticks in the last column of the tables of the glossary, with the term of the first column.
fn forbidden(glossary: &str) -> BTreeMap<String, String> {
    let mut words = BTreeMap::new();
    for row in glossary.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(term), Some(last)) = (cells.first(), cells.last()) else { continue };
        for word in last.split('`').skip(1).step_by(2) {
            words.insert(word.to_ascii_lowercase(), (*term).to_owned());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::forbidden;

    #[test]
    fn only_words_in_backticks_of_the_last_column_are_forbidden() {
        let table =
            "| term | source | definition | not |\n|---|---|---|---|\n| data type | `pcap` | a | `lorem`, kind |\n";
        let words: Vec<_> = forbidden(table).into_iter().collect();
        assert_eq!(words, [("lorem".to_owned(), "data type".to_owned())]);
    }
}
